/*
 * pprof.c: protobuf by hand. A message is a row of fields, each a tag (number << 3 | wire type) and a value: a varint
 * (wire type 0), or a length and so many bytes (2). Fields that are zero are left out, as proto3 has it.
 *
 * Fields may stand in any order, so what is added is encoded at once, and only the strings wait for the end. A nested
 * message needs its length in front: it is made in a scratch buffer of its own. String 0 must be "", and the set counts
 * from 1, which fits.
 */
#include "pprof.h"

#include "deflate.h"
#include "intern.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of fields, by message. */
enum profile_field {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_MAPPING = 3,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING = 6,
	PROFILE_TIME_NS = 9,
	PROFILE_DURATION_NS = 10,
	PROFILE_PERIOD_TYPE = 11,
	PROFILE_PERIOD = 12,
	PROFILE_COMMENT = 13,
	PROFILE_DEFAULT_TYPE = 14,
};

enum value_type_field { VALUE_TYPE_TYPE = 1, VALUE_TYPE_UNIT = 2 };

enum pprof_sample_field { SAMPLE_LOCATIONS = 1, SAMPLE_VALUES = 2, SAMPLE_LABEL = 3 };

enum label_field { LABEL_KEY = 1, LABEL_TEXT = 2, LABEL_NUMBER = 3, LABEL_UNIT = 4 };

enum mapping_field {
	MAPPING_ID = 1,
	MAPPING_START = 2,
	MAPPING_END = 3,
	MAPPING_OFFSET = 4,
	MAPPING_PATH = 5,
	MAPPING_BUILD_ID = 6,
	MAPPING_HAS_FUNCTIONS = 7,
	MAPPING_HAS_FILES = 8,
	MAPPING_HAS_LINES = 9,
	MAPPING_HAS_INLINED = 10,
};

enum location_field { LOCATION_ID = 1, LOCATION_MAPPING = 2, LOCATION_ADDRESS = 3, LOCATION_LINE = 4 };

enum line_field { LINE_FUNCTION = 1, LINE_NUMBER = 2 };

enum function_field {
	FUNCTION_ID = 1,
	FUNCTION_NAME = 2,
	FUNCTION_SYSTEM_NAME = 3,
	FUNCTION_FILE = 4,
	FUNCTION_START_LINE = 5,
};

enum wire { WIRE_VARINT = 0, WIRE_BYTES = 2 };

struct pprof {
	struct buffer body;    /* the profile as far as it is */
	struct buffer message; /* a member of it, while it is made */
	struct buffer part;    /* a member of that */
	struct intern strings;
	struct intern_budget budget;
	uint64_t mappings, functions, locations;
	size_t value_count;
	int error; /* the first one; 0: none */
};

/* ---- fields; errors stay in pprof ---- */

static void put(struct pprof *pprof, struct buffer *to, const void *data, size_t len)
{
	if (pprof->error == 0)
		pprof->error = buffer_append(to, data, len);
}

static void put_varint(struct pprof *pprof, struct buffer *to, uint64_t value)
{
	unsigned char bytes[10];
	size_t len = 0;

	for (; value >= 0x80; value >>= 7)
		bytes[len++] = (unsigned char)(value | 0x80);
	bytes[len++] = (unsigned char)value;
	put(pprof, to, bytes, len);
}

static void put_number(struct pprof *pprof, struct buffer *to, unsigned field, uint64_t value)
{
	if (value == 0)
		return;
	put_varint(pprof, to, field << 3 | WIRE_VARINT);
	put_varint(pprof, to, value);
}

static void put_bytes(struct pprof *pprof, struct buffer *to, unsigned field, const void *data, size_t len)
{
	put_varint(pprof, to, field << 3 | WIRE_BYTES);
	put_varint(pprof, to, len);
	put(pprof, to, data, len);
}

/* Moves what is in from to the end of to, as a nested message. */
static void put_nested(struct pprof *pprof, struct buffer *to, unsigned field, struct buffer *from)
{
	put_bytes(pprof, to, field, from->data, from->len);
	from->len = 0;
}

/* int64 in the format: what is beyond is cut. */
static uint64_t positive(uint64_t value)
{
	return value > INT64_MAX ? INT64_MAX : value;
}

/* The number of a string, made printable. */
static uint64_t string_of(struct pprof *pprof, const char *text)
{
	char printable[4 * PPROF_TEXT_MAX + 1];
	uint32_t number = 0;
	size_t len;
	int rc;

	if (!text || !*text || pprof->error != 0)
		return 0;
	len = text_escape(printable, sizeof(printable), text, strnlen(text, PPROF_TEXT_MAX));
	rc = intern_put(&pprof->strings, &pprof->budget, printable, len, &number);
	if (rc != 0)
		pprof->error = rc == INTERN_FULL ? -EFBIG : rc;
	return number;
}

static void put_text(struct pprof *pprof, struct buffer *to, unsigned field, const char *text)
{
	put_number(pprof, to, field, string_of(pprof, text));
}

/* ---- the head ---- */

static void put_value_type(struct pprof *pprof, unsigned field, const struct pprof_value_type *type)
{
	put_text(pprof, &pprof->message, VALUE_TYPE_TYPE, type->type);
	put_text(pprof, &pprof->message, VALUE_TYPE_UNIT, type->unit);
	put_nested(pprof, &pprof->body, field, &pprof->message);
}

static void put_head(struct pprof *pprof, const struct pprof_options *options)
{
	struct buffer *body = &pprof->body;

	for (size_t i = 0; i < options->value_count; i++)
		put_value_type(pprof, PROFILE_SAMPLE_TYPE, &options->values[i]);
	put_number(pprof, body, PROFILE_TIME_NS, positive(options->wall_ns));
	put_number(pprof, body, PROFILE_DURATION_NS, positive(options->duration_ns));
	if (options->period_type.type)
		put_value_type(pprof, PROFILE_PERIOD_TYPE, &options->period_type);
	put_number(pprof, body, PROFILE_PERIOD, positive(options->period));
	if (options->value_shown < options->value_count)
		put_text(pprof, body, PROFILE_DEFAULT_TYPE, options->values[options->value_shown].type);
}

int pprof_new(const struct pprof_options *options, struct pprof **ret)
{
	struct pprof *pprof = calloc(1, sizeof(*pprof));
	int rc;

	if (!pprof)
		return -ENOMEM;

	pprof->body.max = options->bytes_max;
	pprof->budget.max_bytes = options->bytes_max;
	pprof->value_count = options->value_count < PPROF_VALUES_MAX ? options->value_count : PPROF_VALUES_MAX;
	put_head(pprof, options);
	rc = pprof->error;
	if (rc < 0)
		pprof_free(pprof);
	else
		*ret = pprof;
	return rc;
}

void pprof_free(struct pprof *pprof)
{
	if (!pprof)
		return;

	buffer_release(&pprof->body);
	buffer_release(&pprof->message);
	buffer_release(&pprof->part);
	intern_release(&pprof->strings);
	free(pprof);
}

/* ---- its members ---- */

/* The message is whole. */
static int finish_message(struct pprof *pprof, unsigned field)
{
	put_nested(pprof, &pprof->body, field, &pprof->message);
	return pprof->error;
}

/* An id must have been given; 0 is none and legal where it may be missing. */
static void check_id(struct pprof *pprof, uint64_t id, uint64_t given, uint64_t least)
{
	if (pprof->error == 0 && (id < least || id > given))
		pprof->error = -EINVAL;
}

int pprof_add_mapping(struct pprof *pprof, const struct pprof_mapping *mapping, uint64_t *ret)
{
	struct buffer *message = &pprof->message;
	int rc;

	put_number(pprof, message, MAPPING_ID, pprof->mappings + 1);
	put_number(pprof, message, MAPPING_START, mapping->start);
	put_number(pprof, message, MAPPING_END, mapping->end);
	put_number(pprof, message, MAPPING_OFFSET, mapping->offset);
	put_text(pprof, message, MAPPING_PATH, mapping->path);
	put_text(pprof, message, MAPPING_BUILD_ID, mapping->build_id);
	put_number(pprof, message, MAPPING_HAS_FUNCTIONS, mapping->has_functions);
	put_number(pprof, message, MAPPING_HAS_FILES, mapping->has_files);
	put_number(pprof, message, MAPPING_HAS_LINES, mapping->has_lines);
	put_number(pprof, message, MAPPING_HAS_INLINED, mapping->has_inlined);
	rc = finish_message(pprof, PROFILE_MAPPING);
	if (rc == 0)
		*ret = ++pprof->mappings;
	return rc;
}

int pprof_add_function(struct pprof *pprof, const struct pprof_function *function, uint64_t *ret)
{
	struct buffer *message = &pprof->message;
	int rc;

	put_number(pprof, message, FUNCTION_ID, pprof->functions + 1);
	put_text(pprof, message, FUNCTION_NAME, function->name);
	put_text(pprof, message, FUNCTION_SYSTEM_NAME, function->system_name ? function->system_name : function->name);
	put_text(pprof, message, FUNCTION_FILE, function->file);
	put_number(pprof, message, FUNCTION_START_LINE, function->start_line);
	rc = finish_message(pprof, PROFILE_FUNCTION);
	if (rc == 0)
		*ret = ++pprof->functions;
	return rc;
}

int pprof_add_location(struct pprof *pprof, const struct pprof_location *location, uint64_t *ret)
{
	int rc;

	check_id(pprof, location->mapping, pprof->mappings, 0);
	put_number(pprof, &pprof->message, LOCATION_ID, pprof->locations + 1);
	put_number(pprof, &pprof->message, LOCATION_MAPPING, location->mapping);
	put_number(pprof, &pprof->message, LOCATION_ADDRESS, location->address);
	for (size_t i = 0; i < location->line_count; i++) {
		check_id(pprof, location->lines[i].function, pprof->functions, 1);
		put_number(pprof, &pprof->part, LINE_FUNCTION, location->lines[i].function);
		put_number(pprof, &pprof->part, LINE_NUMBER, location->lines[i].line);
		put_nested(pprof, &pprof->message, LOCATION_LINE, &pprof->part);
	}
	rc = finish_message(pprof, PROFILE_LOCATION);
	if (rc == 0)
		*ret = ++pprof->locations;
	return rc;
}

static void put_label(struct pprof *pprof, const struct pprof_label *label)
{
	put_text(pprof, &pprof->part, LABEL_KEY, label->key);
	if (label->text) {
		put_text(pprof, &pprof->part, LABEL_TEXT, label->text);
	} else {
		put_number(pprof, &pprof->part, LABEL_NUMBER, (uint64_t)label->number);
		put_text(pprof, &pprof->part, LABEL_UNIT, label->unit);
	}
	put_nested(pprof, &pprof->message, SAMPLE_LABEL, &pprof->part);
}

int pprof_add_sample(struct pprof *pprof, const struct pprof_sample *sample)
{
	for (size_t i = 0; i < sample->location_count; i++) {
		check_id(pprof, sample->locations[i], pprof->locations, 1);
		put_varint(pprof, &pprof->part, sample->locations[i]);
	}
	put_nested(pprof, &pprof->message, SAMPLE_LOCATIONS, &pprof->part);
	/* Packed: zeros are kept, there must be as many values as types. */
	for (size_t i = 0; i < pprof->value_count; i++)
		put_varint(pprof, &pprof->part, positive(sample->values[i]));
	put_nested(pprof, &pprof->message, SAMPLE_VALUES, &pprof->part);
	for (size_t i = 0; i < PPROF_LABELS_MAX && sample->labels[i].key; i++)
		put_label(pprof, &sample->labels[i]);
	return finish_message(pprof, PROFILE_SAMPLE);
}

int pprof_add_comment(struct pprof *pprof, const char *text)
{
	put_number(pprof, &pprof->body, PROFILE_COMMENT, string_of(pprof, text));
	return pprof->error;
}

int pprof_finish(struct pprof *pprof, const struct sink *sink)
{
	put_bytes(pprof, &pprof->body, PROFILE_STRING, "", 0);
	for (uint32_t i = 1; i <= pprof->strings.count; i++) {
		size_t len;
		const void *text = intern_get(&pprof->strings, i, &len);

		put_bytes(pprof, &pprof->body, PROFILE_STRING, text, len);
	}
	if (pprof->error == 0)
		pprof->error = deflate_gzip(pprof->body.data, pprof->body.len, sink);
	return pprof->error;
}
