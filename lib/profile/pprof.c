/*
 * pprof.c: protobuf by hand: a message is a row of fields, each a tag (number << 3 | wire type) and
 * a value: a varint (wire type 0), or a length and so many bytes (2). Rejected: a general protobuf
 * library. Five kinds of messages with numbered fields, none nested deeper than three, need no
 * recursion.
 *
 * One walk over the wire format fills an array for each kind of object, a second step turns ids into
 * indexes: ids are any 64-bit numbers and may be used before they are defined. An object takes at
 * least two bytes of the profile but up to a hundred of memory, so memory has a limit of its own.
 * Lengths are compared with what is left before anything is read. Groups, which are obsolete, are
 * refused.
 */
#include "lib/profile/pprof.h"

#include "lib/base/compress.h"
#include "lib/base/io.h"
#include "lib/base/map.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What is left of a message. */
struct wire_fields {
	const unsigned char *at, *end;
};

/* Others are passed over, or none. */
enum wire_fields_type {
	WIRE_FIELDS_VARINT = 0,
	WIRE_FIELDS_FIXED64 = 1,
	WIRE_FIELDS_BYTES = 2,
	WIRE_FIELDS_FIXED32 = 5
};

struct wire_fields_field {
	uint64_t number;
	unsigned type;
	uint64_t value;           /* VARINT */
	struct wire_fields bytes; /* BYTES: text, a message, or packed numbers */
};

/* Limits if the options have none. */
#define PPROF_READ_BYTES_DEFAULT ((size_t)256 << 20)
#define PPROF_READ_MEMORY_DEFAULT ((size_t)512 << 20)

/* ---- the wire format ---- */

/* A number at the front. False: it is cut off, or longer than 64 bits. */
static bool wire_fields_varint(struct wire_fields *fields, uint64_t *ret)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64 && fields->at < fields->end; shift += 7) {
		unsigned char byte = *fields->at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = value;
			return true;
		}
	}
	return false;
}

static bool skip_bytes(struct wire_fields *fields, uint64_t len)
{
	if (len > (uint64_t)(fields->end - fields->at))
		return false;
	fields->at += len;
	return true;
}

static bool wire_fields_take_bytes(struct wire_fields *fields, struct wire_fields *ret)
{
	uint64_t len;

	if (!wire_fields_varint(fields, &len))
		return false;
	ret->at = fields->at;
	if (!skip_bytes(fields, len))
		return false;
	ret->end = fields->at;
	return true;
}

/* 1 and *ret; 0: the end; -EBADMSG: cut off, or a group. */
static int wire_fields_next(struct wire_fields *fields, struct wire_fields_field *ret)
{
	uint64_t key;

	if (fields->at == fields->end)
		return 0;
	if (!wire_fields_varint(fields, &key))
		return -EBADMSG;
	*ret = (struct wire_fields_field){ .number = key >> 3, .type = key & 7 };
	switch (ret->type) {
	case WIRE_FIELDS_VARINT:
		return wire_fields_varint(fields, &ret->value) ? 1 : -EBADMSG;
	case WIRE_FIELDS_FIXED64:
		return skip_bytes(fields, 8) ? 1 : -EBADMSG;
	case WIRE_FIELDS_FIXED32:
		return skip_bytes(fields, 4) ? 1 : -EBADMSG;
	case WIRE_FIELDS_BYTES:
		return wire_fields_take_bytes(fields, &ret->bytes) ? 1 : -EBADMSG;
	default:
		return -EBADMSG;
	}
}

/* ---- reading ---- */

/* Objects of one kind. */
struct objects {
	void *items;
	uint32_t count, room;
};

enum object_kind {
	TYPES,
	MAPPINGS,
	FUNCTIONS,
	LINES,
	LOCATIONS,
	FRAMES,
	FRAME_IDS, /* of FRAMES, which become places at the end */
	LABELS,
	SAMPLES,
	STRINGS,
	OBJECT_KINDS
};

static const size_t sizes[OBJECT_KINDS] = {
	[TYPES] = sizeof(struct pprof_read_value_type),
	[MAPPINGS] = sizeof(struct pprof_read_mapping),
	[FUNCTIONS] = sizeof(struct pprof_read_function),
	[LINES] = sizeof(struct pprof_read_line),
	[LOCATIONS] = sizeof(struct pprof_read_location),
	[FRAMES] = sizeof(uint32_t),
	[FRAME_IDS] = sizeof(uint64_t),
	[LABELS] = sizeof(struct pprof_read_label),
	[SAMPLES] = sizeof(struct pprof_read_sample),
	[STRINGS] = sizeof(struct pprof_read_text),
};

struct pprof_read {
	struct buffer bytes; /* strings are within */
	struct objects objects[OBJECT_KINDS];
	size_t memory, memory_max;
	struct pprof_read_profile profile;
};

/* One more, all zeros, in *ret until the next call for the same kind. */
static int add_object(struct pprof_read *reader, enum object_kind kind, void *ret)
{
	struct objects *objects = &reader->objects[kind];

	if (objects->count == objects->room) {
		uint32_t room = objects->room ? 2 * objects->room : 16;
		size_t more = (room - objects->room) * sizes[kind];
		void *grown;

		if (room < objects->room || more > reader->memory_max - reader->memory)
			return -EFBIG;
		grown = realloc(objects->items, room * sizes[kind]);
		if (!grown)
			return -ENOMEM;
		objects->items = grown;
		objects->room = room;
		reader->memory += more;
	}
	memset((char *)objects->items + objects->count * sizes[kind], 0, sizes[kind]);
	*(void **)ret = (char *)objects->items + objects->count++ * sizes[kind];
	return 0;
}

/* ---- messages of numbers ---- */

/* Where a field goes in its object. 32 bits: the number of a string; larger ones are invalid. */
struct slot {
	enum { SLOT_NONE, SLOT_32, SLOT_64 } width;
	size_t at;
};

#define SLOT(width, type, member) \
	{ \
		width, offsetof(struct pprof_read_##type, member) \
	}
#define SLOTS_MAX 6

/* Field number n is in slot n - 1. */
static const struct slot slots[OBJECT_KINDS][SLOTS_MAX] = {
	[TYPES] = { SLOT(SLOT_32, value_type, type), SLOT(SLOT_32, value_type, unit) },
	[MAPPINGS] = { SLOT(SLOT_64, mapping, id), SLOT(SLOT_64, mapping, start), SLOT(SLOT_64, mapping, limit),
		       SLOT(SLOT_64, mapping, offset), SLOT(SLOT_32, mapping, file), SLOT(SLOT_32, mapping, build_id) },
	[FUNCTIONS] = { SLOT(SLOT_64, function, id), SLOT(SLOT_32, function, name),
			SLOT(SLOT_32, function, system_name), SLOT(SLOT_32, function, file),
			SLOT(SLOT_64, function, start_line) },
	[LINES] = { SLOT(SLOT_64, line, function_id), SLOT(SLOT_64, line, line) },
	[LOCATIONS] = { SLOT(SLOT_64, location, id), SLOT(SLOT_64, location, mapping_id),
			SLOT(SLOT_64, location, address) },
	[LABELS] = { SLOT(SLOT_32, label, key), SLOT(SLOT_32, label, text), SLOT(SLOT_64, label, number),
		     SLOT(SLOT_32, label, unit) },
};

static int read_numbers(struct wire_fields wire, enum object_kind kind, void *object)
{
	struct wire_fields_field field;
	int rc;

	while ((rc = wire_fields_next(&wire, &field)) > 0) {
		const struct slot *slot;

		if (field.type != WIRE_FIELDS_VARINT || field.number == 0 || field.number > SLOTS_MAX)
			continue;
		slot = &slots[kind][field.number - 1];
		if (slot->width == SLOT_64)
			*(uint64_t *)((char *)object + slot->at) = field.value;
		else if (slot->width == SLOT_32)
			*(uint32_t *)((char *)object + slot->at) =
				field.value > UINT32_MAX ? UINT32_MAX : (uint32_t)field.value;
	}
	return rc;
}

static int read_object(struct pprof_read *reader, enum object_kind kind, struct wire_fields wire)
{
	void *object;
	int rc = add_object(reader, kind, &object);

	return rc < 0 ? rc : read_numbers(wire, kind, object);
}

/* ---- locations and samples ---- */

static int read_location(struct pprof_read *reader, struct wire_fields wire)
{
	struct pprof_read_location *location;
	struct wire_fields numbers = wire;
	struct wire_fields_field field;
	int rc = add_object(reader, LOCATIONS, &location);

	if (rc < 0)
		return rc;
	location->line_first = reader->objects[LINES].count;
	while ((rc = wire_fields_next(&wire, &field)) > 0) {
		if (field.number == LOCATION_LINE && field.type == WIRE_FIELDS_BYTES)
			rc = read_object(reader, LINES, field.bytes);
		if (rc < 0)
			return rc;
	}
	location->line_count = reader->objects[LINES].count - location->line_first;
	return rc < 0 ? rc : read_numbers(numbers, LOCATIONS, location);
}

static int add_frame(struct pprof_read *reader, uint64_t id)
{
	uint64_t *to;
	int rc = add_object(reader, FRAME_IDS, &to);

	if (rc == 0)
		*to = id;
	return rc;
}

/* One number of a sample: a frame, or a value. at: how many values there are. */
static int take_number(struct pprof_read *reader, const struct wire_fields_field *field, uint64_t value,
		       int64_t *values, size_t *at)
{
	if (field->number == 1)
		return add_frame(reader, value);
	if (*at == PPROF_READ_VALUES_MAX)
		return -EBADMSG;
	values[(*at)++] = (int64_t)value;
	return 0;
}

/* Repeated numbers are packed, or one by one. */
static int take_numbers(struct pprof_read *reader, struct wire_fields_field *field, int64_t *values, size_t *at)
{
	uint64_t value;
	int rc = 0;

	if (field->type == WIRE_FIELDS_VARINT)
		return take_number(reader, field, field->value, values, at);
	while (rc == 0 && field->bytes.at < field->bytes.end) {
		if (!wire_fields_varint(&field->bytes, &value))
			return -EBADMSG;
		rc = take_number(reader, field, value, values, at);
	}
	return rc;
}

static int read_sample(struct pprof_read *reader, struct wire_fields wire)
{
	struct pprof_read_sample sample = { .frame_first = reader->objects[FRAME_IDS].count,
					    .label_first = reader->objects[LABELS].count },
				 *to;
	struct wire_fields_field field;
	size_t values = 0;
	int rc;

	while ((rc = wire_fields_next(&wire, &field)) > 0) {
		bool number = field.type == WIRE_FIELDS_VARINT || field.type == WIRE_FIELDS_BYTES;

		if ((field.number == 1 || field.number == 2) && number)
			rc = take_numbers(reader, &field, sample.values, &values);
		else if (field.number == 3 && field.type == WIRE_FIELDS_BYTES)
			rc = read_object(reader, LABELS, field.bytes);
		if (rc < 0)
			return rc;
	}
	if (rc < 0)
		return rc;
	sample.frame_count = reader->objects[FRAME_IDS].count - sample.frame_first;
	sample.label_count = reader->objects[LABELS].count - sample.label_first;
	rc = add_object(reader, SAMPLES, &to);
	if (rc == 0)
		*to = sample;
	return rc;
}

/* ---- the profile ---- */

static int read_string(struct pprof_read *reader, struct wire_fields wire)
{
	struct pprof_read_text *text;
	int rc = add_object(reader, STRINGS, &text);

	if (rc == 0)
		*text = (struct pprof_read_text){ (const char *)wire.at, (size_t)(wire.end - wire.at) };
	return rc;
}

static int read_member(struct pprof_read *reader, uint64_t number, struct wire_fields wire)
{
	switch (number) {
	case PROFILE_SAMPLE_TYPE:
		return read_object(reader, TYPES, wire);
	case PROFILE_SAMPLE:
		return read_sample(reader, wire);
	case PROFILE_MAPPING:
		return read_object(reader, MAPPINGS, wire);
	case PROFILE_LOCATION:
		return read_location(reader, wire);
	case PROFILE_FUNCTION:
		return read_object(reader, FUNCTIONS, wire);
	case PROFILE_STRING:
		return read_string(reader, wire);
	case PROFILE_PERIOD_TYPE:
		return read_numbers(wire, TYPES, &reader->profile.period_type);
	default:
		return 1;
	}
}

static int read_profile(struct pprof_read *reader)
{
	struct wire_fields wire = { (unsigned char *)reader->bytes.data,
				    (unsigned char *)reader->bytes.data + reader->bytes.len };
	struct wire_fields_field field;
	int rc;

	while ((rc = wire_fields_next(&wire, &field)) > 0) {
		if (field.type == WIRE_FIELDS_BYTES)
			rc = read_member(reader, field.number, field.bytes);
		else if (field.type == WIRE_FIELDS_VARINT && field.number == PROFILE_TIME_NS)
			reader->profile.time_ns = (int64_t)field.value;
		else if (field.type == WIRE_FIELDS_VARINT && field.number == PROFILE_DURATION_NS)
			reader->profile.duration_ns = (int64_t)field.value;
		else if (field.type == WIRE_FIELDS_VARINT && field.number == PROFILE_PERIOD)
			reader->profile.period = (int64_t)field.value;
		if (rc < 0)
			return rc;
	}
	return rc;
}

/* ---- ids to places ---- */

/* The id is the first member of each object. */
static int index_objects(const struct pprof_read *reader, enum object_kind kind, struct pair_map *ret)
{
	const struct objects *objects = &reader->objects[kind];

	if (objects->count * (size_t)PAIR_MAP_ENTRY_BYTES > reader->memory_max)
		return -EFBIG;

	for (uint32_t i = 0; i < objects->count; i++) {
		uint64_t id;
		uint32_t at;

		memcpy(&id, (const char *)objects->items + i * sizes[kind], sizeof(id));
		if (id == 0 || pair_map_get(ret, id, 0, &at))
			return -EBADMSG;
		if (pair_map_put(ret, id, 0, i) < 0)
			return -ENOMEM;
	}
	return 0;
}

/*
 * Ids of others to places from 1 on; id and place are so far within each object of the objects. An
 * id of 0 is none.
 */
static int resolve_ids(struct pprof_read *reader, enum object_kind kind, size_t id_at, size_t place_at,
		       enum object_kind others)
{
	AUTO(pair_map_release) struct pair_map index = { 0 };
	int rc = index_objects(reader, others, &index);

	for (uint32_t i = 0; rc == 0 && i < reader->objects[kind].count; i++) {
		char *object = (char *)reader->objects[kind].items + i * sizes[kind];
		uint64_t id;
		uint32_t at = 0;

		memcpy(&id, object + id_at, sizeof(id));
		if (id != 0 && !pair_map_get(&index, id, 0, &at))
			return -EBADMSG;
		at += id != 0;
		memcpy(object + place_at, &at, sizeof(at));
	}
	return rc;
}

static int resolve_frames(struct pprof_read *reader)
{
	AUTO(pair_map_release) struct pair_map locations = { 0 };
	const uint64_t *ids = reader->objects[FRAME_IDS].items;
	int rc = index_objects(reader, LOCATIONS, &locations);

	for (uint32_t i = 0; rc == 0 && i < reader->objects[FRAME_IDS].count; i++) {
		uint32_t *frame, at;

		if (!pair_map_get(&locations, ids[i], 0, &at))
			return -EBADMSG;
		rc = add_object(reader, FRAMES, &frame);
		if (rc == 0)
			*frame = at;
	}
	return rc;
}

/* ---- strings ---- */

static bool strings_ok(const struct pprof_read *reader)
{
	const struct pprof_read_profile *profile = &reader->profile;
	uint32_t count = profile->string_count, most = 0;

#define SEE(number) (most = (number) > most ? (number) : most)
	for (uint32_t i = 0; i < profile->type_count; i++)
		SEE(profile->types[i].type), SEE(profile->types[i].unit);
	for (uint32_t i = 0; i < profile->mapping_count; i++)
		SEE(profile->mappings[i].file), SEE(profile->mappings[i].build_id);
	for (uint32_t i = 0; i < profile->function_count; i++)
		SEE(profile->functions[i].name), SEE(profile->functions[i].system_name),
			SEE(profile->functions[i].file);
	for (uint32_t i = 0; i < profile->label_count; i++)
		SEE(profile->labels[i].key), SEE(profile->labels[i].text), SEE(profile->labels[i].unit);
	SEE(profile->period_type.type), SEE(profile->period_type.unit);
#undef SEE
	return count > 0 && most < count && profile->strings[0].len == 0;
}

static void fill_in_profile(struct pprof_read *reader)
{
	struct pprof_read_profile *profile = &reader->profile;
	const struct objects *objects = reader->objects;

#define HAND(kind, member, counter) (profile->member = objects[kind].items, profile->counter = objects[kind].count)
	HAND(TYPES, types, type_count);
	HAND(MAPPINGS, mappings, mapping_count);
	HAND(FUNCTIONS, functions, function_count);
	HAND(LINES, lines, line_count);
	HAND(LOCATIONS, locations, location_count);
	HAND(FRAMES, frames, frame_count);
	HAND(LABELS, labels, label_count);
	HAND(SAMPLES, samples, sample_count);
	HAND(STRINGS, strings, string_count);
#undef HAND
}

static int inflate_input(struct pprof_read *reader, const void *data, size_t len, size_t bytes_max)
{
	const unsigned char *bytes = data;

	reader->bytes.max = bytes_max;
	if (len >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
		return deflate_gunzip(data, len, bytes_max, &reader->bytes);
	return buffer_append(&reader->bytes, data, len);
}

int pprof_read_new(const void *data, size_t len, const struct pprof_read_options *options, struct pprof_read **ret)
{
	AUTO(pprof_read_freep) struct pprof_read *reader = calloc(1, sizeof(*reader));
	size_t bytes_max = options && options->bytes_max ? options->bytes_max : PPROF_READ_BYTES_DEFAULT;
	int rc;

	if (!reader)
		return -ENOMEM;
	if (len == 0)
		return -EBADMSG;
	reader->memory_max = options && options->memory_max ? options->memory_max : PPROF_READ_MEMORY_DEFAULT;

	rc = inflate_input(reader, data, len, bytes_max);
	if (rc == 0)
		rc = read_profile(reader);
	if (rc == 0)
		rc = resolve_ids(reader, LINES, offsetof(struct pprof_read_line, function_id),
				 offsetof(struct pprof_read_line, function), FUNCTIONS);
	if (rc == 0)
		rc = resolve_ids(reader, LOCATIONS, offsetof(struct pprof_read_location, mapping_id),
				 offsetof(struct pprof_read_location, mapping), MAPPINGS);
	if (rc == 0)
		rc = resolve_frames(reader);
	if (rc < 0)
		return rc;
	fill_in_profile(reader);
	if (!strings_ok(reader) || reader->profile.type_count > PPROF_READ_VALUES_MAX)
		return -EBADMSG;
	*ret = TAKE(reader);
	return 0;
}

void pprof_read_free(struct pprof_read *reader)
{
	if (!reader)
		return;
	for (unsigned i = 0; i < OBJECT_KINDS; i++)
		free(reader->objects[i].items);
	buffer_release(&reader->bytes);
	free(reader);
}

const struct pprof_read_profile *pprof_read_profile(const struct pprof_read *reader)
{
	return &reader->profile;
}

static bool string_is(const struct pprof_read_profile *profile, uint32_t string, const char *text)
{
	const struct pprof_read_text *known = &profile->strings[string];

	return known->len == strlen(text) && memcmp(known->at, text, known->len) == 0;
}

const struct pprof_read_label *pprof_read_label(const struct pprof_read_profile *profile,
						const struct pprof_read_sample *sample, const char *key)
{
	for (uint32_t i = 0; i < sample->label_count; i++) {
		const struct pprof_read_label *label = &profile->labels[sample->label_first + i];

		if (string_is(profile, label->key, key))
			return label;
	}
	return NULL;
}

int pprof_read_value(const struct pprof_read_profile *profile, const char *type, const char *unit)
{
	for (uint32_t i = 0; i < profile->type_count; i++)
		if (string_is(profile, profile->types[i].type, type) &&
		    (!unit || string_is(profile, profile->types[i].unit, unit)))
			return (int)i;
	return -1;
}
