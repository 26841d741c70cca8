/*
 * pprofread.c: one walk over the wire format fills piles of equal things, a second step turns ids into places.
 *
 * Ids are any 64-bit numbers and may be used before they are given; strings come last in most profiles. So everything is kept as it was
 * written until the end. A thing costs at least two bytes of the profile but up to a hundred of memory, so memory has a limit of its own.
 * Rejected: a general reader of protobuf. Five kinds of messages with numbered fields, none nested deeper than three, need no recursion.
 */
#include "pprofread.h"

#include "deflate.h"
#include "idindex.h"
#include "scope.h"
#include "sink.h"
#include "wirefields.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Things of one kind. */
struct pile {
	void *things;
	uint32_t count, room;
};

enum pile_kind {
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
	PILES
};

static const size_t sizes[PILES] = {
	[TYPES] = sizeof(struct pprofread_value_type),
	[MAPPINGS] = sizeof(struct pprofread_mapping),
	[FUNCTIONS] = sizeof(struct pprofread_function),
	[LINES] = sizeof(struct pprofread_line),
	[LOCATIONS] = sizeof(struct pprofread_location),
	[FRAMES] = sizeof(uint32_t),
	[FRAME_IDS] = sizeof(uint64_t),
	[LABELS] = sizeof(struct pprofread_label),
	[SAMPLES] = sizeof(struct pprofread_sample),
	[STRINGS] = sizeof(struct pprofread_text),
};

struct pprofread {
	struct buffer bytes; /* strings are within */
	struct pile piles[PILES];
	size_t memory, memory_max;
	struct pprofread_profile profile;
};

/* One more, all zeros, in *ret until the next call for the same kind. */
static int add(struct pprofread *reader, enum pile_kind kind, void *ret)
{
	struct pile *pile = &reader->piles[kind];

	if (pile->count == pile->room) {
		uint32_t room = pile->room ? 2 * pile->room : 16;
		size_t more = (room - pile->room) * sizes[kind];
		void *grown;

		if (room < pile->room || more > reader->memory_max - reader->memory)
			return -EFBIG;
		grown = realloc(pile->things, room * sizes[kind]);
		if (!grown)
			return -ENOMEM;
		pile->things = grown;
		pile->room = room;
		reader->memory += more;
	}
	memset((char *)pile->things + pile->count * sizes[kind], 0, sizes[kind]);
	*(void **)ret = (char *)pile->things + pile->count++ * sizes[kind];
	return 0;
}

/* ---- messages of numbers ---- */

/* Where the numbers of a message go: fields[i] is number i + 1. */
struct slot {
	void *to;
	bool wide; /* 64 bits; else 32, of a string: too large a number is none that is there */
};

static int read_numbers(struct wirefields wire, const struct slot *slots, size_t count)
{
	struct wirefields_field field;
	int rc;

	while ((rc = wirefields_next(&wire, &field)) > 0) {
		const struct slot *slot;

		if (field.type != WIREFIELDS_VARINT || field.number == 0 || field.number > count)
			continue;
		slot = &slots[field.number - 1];
		if (!slot->to)
			continue;
		if (slot->wide)
			*(uint64_t *)slot->to = field.value;
		else
			*(uint32_t *)slot->to = field.value > UINT32_MAX ? UINT32_MAX : (uint32_t)field.value;
	}
	return rc;
}

static int read_value_type(struct wirefields wire, struct pprofread_value_type *ret)
{
	return read_numbers(wire, (struct slot[]){ { &ret->type, false }, { &ret->unit, false } }, 2);
}

static int on_type(struct pprofread *reader, struct wirefields wire)
{
	struct pprofread_value_type *type;
	int rc = add(reader, TYPES, &type);

	return rc < 0 ? rc : read_value_type(wire, type);
}

static int on_mapping(struct pprofread *reader, struct wirefields wire)
{
	struct pprofread_mapping *mapping;
	int rc = add(reader, MAPPINGS, &mapping);

	if (rc < 0)
		return rc;
	return read_numbers(wire,
			    (struct slot[]){ { &mapping->id, true },
					     { &mapping->start, true },
					     { &mapping->limit, true },
					     { &mapping->offset, true },
					     { &mapping->file, false },
					     { &mapping->build_id, false } },
			    6);
}

static int on_function(struct pprofread *reader, struct wirefields wire)
{
	struct pprofread_function *function;
	int rc = add(reader, FUNCTIONS, &function);

	if (rc < 0)
		return rc;
	return read_numbers(wire,
			    (struct slot[]){ { &function->id, true },
					     { &function->name, false },
					     { &function->system_name, false },
					     { &function->file, false },
					     { &function->start_line, true } },
			    5);
}

/* ---- locations and samples ---- */

static int on_line(struct pprofread *reader, struct wirefields wire)
{
	struct pprofread_line *line;
	int rc = add(reader, LINES, &line);

	return rc < 0 ? rc
		      : read_numbers(wire, (struct slot[]){ { &line->function_id, true }, { &line->line, true } }, 2);
}

static int on_location(struct pprofread *reader, struct wirefields wire)
{
	struct pprofread_location *location;
	struct wirefields numbers = wire;
	struct wirefields_field field;
	int rc = add(reader, LOCATIONS, &location);

	if (rc < 0)
		return rc;
	location->line_first = reader->piles[LINES].count;
	while ((rc = wirefields_next(&wire, &field)) > 0) {
		if (field.number == 4 && field.type == WIREFIELDS_BYTES)
			rc = on_line(reader, field.bytes);
		if (rc < 0)
			return rc;
	}
	location->line_count = reader->piles[LINES].count - location->line_first;
	return rc < 0 ? rc
		      : read_numbers(numbers,
				     (struct slot[]){ { &location->id, true },
						      { &location->mapping_id, true },
						      { &location->address, true } },
				     3);
}

static int add_frame(struct pprofread *reader, uint64_t id)
{
	uint64_t *to;
	int rc = add(reader, FRAME_IDS, &to);

	if (rc == 0)
		*to = id;
	return rc;
}

static int on_label(struct pprofread *reader, struct wirefields wire)
{
	struct pprofread_label *label;
	int rc = add(reader, LABELS, &label);

	if (rc < 0)
		return rc;
	return read_numbers(wire,
			    (struct slot[]){ { &label->key, false },
					     { &label->text, false },
					     { &label->number, true },
					     { &label->unit, false } },
			    4);
}

/* One number of a sample: a frame, or a value. at: how many values there are. */
static int take_number(struct pprofread *reader, const struct wirefields_field *field, uint64_t value, int64_t *values,
		       size_t *at)
{
	if (field->number == 1)
		return add_frame(reader, value);
	if (*at == PPROFREAD_VALUES_MAX)
		return -EBADMSG;
	values[(*at)++] = (int64_t)value;
	return 0;
}

/* Repeated numbers are packed, or one by one. */
static int take_numbers(struct pprofread *reader, struct wirefields_field *field, int64_t *values, size_t *at)
{
	uint64_t value;
	int rc = 0;

	if (field->type == WIREFIELDS_VARINT)
		return take_number(reader, field, field->value, values, at);
	while (rc == 0 && field->bytes.at < field->bytes.end) {
		if (!wirefields_varint(&field->bytes, &value))
			return -EBADMSG;
		rc = take_number(reader, field, value, values, at);
	}
	return rc;
}

static int on_sample(struct pprofread *reader, struct wirefields wire)
{
	struct pprofread_sample sample = { .frame_first = reader->piles[FRAME_IDS].count,
					   .label_first = reader->piles[LABELS].count },
				*to;
	struct wirefields_field field;
	size_t values = 0;
	int rc;

	while ((rc = wirefields_next(&wire, &field)) > 0) {
		bool number = field.type == WIREFIELDS_VARINT || field.type == WIREFIELDS_BYTES;

		if ((field.number == 1 || field.number == 2) && number)
			rc = take_numbers(reader, &field, sample.values, &values);
		else if (field.number == 3 && field.type == WIREFIELDS_BYTES)
			rc = on_label(reader, field.bytes);
		if (rc < 0)
			return rc;
	}
	if (rc < 0)
		return rc;
	sample.frame_count = reader->piles[FRAME_IDS].count - sample.frame_first;
	sample.label_count = reader->piles[LABELS].count - sample.label_first;
	rc = add(reader, SAMPLES, &to);
	if (rc == 0)
		*to = sample;
	return rc;
}

/* ---- the profile ---- */

static int on_string(struct pprofread *reader, struct wirefields wire)
{
	struct pprofread_text *text;
	int rc = add(reader, STRINGS, &text);

	if (rc == 0)
		*text = (struct pprofread_text){ (const char *)wire.at, (size_t)(wire.end - wire.at) };
	return rc;
}

static int on_period_type(struct pprofread *reader, struct wirefields wire)
{
	return read_value_type(wire, &reader->profile.period_type);
}

static int read_profile(struct pprofread *reader)
{
	static int (*const messages[])(struct pprofread * reader, struct wirefields wire) = {
		[1] = on_type,     [2] = on_sample, [3] = on_mapping,      [4] = on_location,
		[5] = on_function, [6] = on_string, [11] = on_period_type,
	};
	struct wirefields wire = { (unsigned char *)reader->bytes.data,
				   (unsigned char *)reader->bytes.data + reader->bytes.len };
	struct wirefields_field field;
	int rc;

	while ((rc = wirefields_next(&wire, &field)) > 0) {
		if (field.type == WIREFIELDS_BYTES && field.number < ARRAY_LEN(messages) && messages[field.number])
			rc = messages[field.number](reader, field.bytes);
		else if (field.type == WIREFIELDS_VARINT && field.number == 9)
			reader->profile.time_ns = (int64_t)field.value;
		else if (field.type == WIREFIELDS_VARINT && field.number == 10)
			reader->profile.duration_ns = (int64_t)field.value;
		else if (field.type == WIREFIELDS_VARINT && field.number == 12)
			reader->profile.period = (int64_t)field.value;
		if (rc < 0)
			return rc;
	}
	return rc;
}

/* ---- ids to places ---- */

/* The id is the first member of each thing. */
static int index_pile(const struct pprofread *reader, enum pile_kind kind, struct idindex *ret)
{
	const struct pile *pile = &reader->piles[kind];

	if (pile->count * sizeof(uint64_t) * 2 > reader->memory_max)
		return -EFBIG;
	return idindex_init(ret, pile->things, pile->count, sizes[kind]);
}

/* Ids of others to places from 1 on; id and place are so far within each thing of the pile. An id of 0 is none. */
static int resolve(struct pprofread *reader, enum pile_kind kind, size_t id_at, size_t place_at, enum pile_kind others)
{
	AUTO(idindex_release) struct idindex index = { 0 };
	int rc = index_pile(reader, others, &index);

	for (uint32_t i = 0; rc == 0 && i < reader->piles[kind].count; i++) {
		char *thing = (char *)reader->piles[kind].things + i * sizes[kind];
		uint64_t id;
		uint32_t at = 0;

		memcpy(&id, thing + id_at, sizeof(id));
		if (id != 0 && !idindex_find(&index, id, &at))
			return -EBADMSG;
		at += id != 0;
		memcpy(thing + place_at, &at, sizeof(at));
	}
	return rc;
}

static int resolve_frames(struct pprofread *reader)
{
	AUTO(idindex_release) struct idindex locations = { 0 };
	const uint64_t *ids = reader->piles[FRAME_IDS].things;
	int rc = index_pile(reader, LOCATIONS, &locations);

	for (uint32_t i = 0; rc == 0 && i < reader->piles[FRAME_IDS].count; i++) {
		uint32_t *frame, at;

		if (!idindex_find(&locations, ids[i], &at))
			return -EBADMSG;
		rc = add(reader, FRAMES, &frame);
		if (rc == 0)
			*frame = at;
	}
	return rc;
}

/* ---- strings ---- */

static bool strings_ok(const struct pprofread *reader)
{
	const struct pprofread_profile *profile = &reader->profile;
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

static void hand_over(struct pprofread *reader)
{
	struct pprofread_profile *profile = &reader->profile;
	const struct pile *piles = reader->piles;

#define HAND(kind, member, counter) (profile->member = piles[kind].things, profile->counter = piles[kind].count)
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

static void release(struct pprofread **reader)
{
	pprofread_free(*reader);
}

static int take_bytes(struct pprofread *reader, const void *data, size_t len, size_t bytes_max)
{
	const unsigned char *bytes = data;

	reader->bytes.max = bytes_max;
	if (len >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b)
		return deflate_gunzip(data, len, bytes_max, &reader->bytes);
	return buffer_append(&reader->bytes, data, len);
}

int pprofread_new(const void *data, size_t len, const struct pprofread_options *options, struct pprofread **ret)
{
	AUTO(release) struct pprofread *reader = calloc(1, sizeof(*reader));
	size_t bytes_max = options && options->bytes_max ? options->bytes_max : PPROFREAD_BYTES_DEFAULT;
	int rc;

	if (!reader)
		return -ENOMEM;
	if (len == 0)
		return -EBADMSG;
	reader->memory_max = options && options->memory_max ? options->memory_max : PPROFREAD_MEMORY_DEFAULT;

	rc = take_bytes(reader, data, len, bytes_max);
	if (rc == 0)
		rc = read_profile(reader);
	if (rc == 0)
		rc = resolve(reader, LINES, offsetof(struct pprofread_line, function_id),
			     offsetof(struct pprofread_line, function), FUNCTIONS);
	if (rc == 0)
		rc = resolve(reader, LOCATIONS, offsetof(struct pprofread_location, mapping_id),
			     offsetof(struct pprofread_location, mapping), MAPPINGS);
	if (rc == 0)
		rc = resolve_frames(reader);
	if (rc < 0)
		return rc;
	hand_over(reader);
	if (!strings_ok(reader) || reader->profile.type_count > PPROFREAD_VALUES_MAX)
		return -EBADMSG;
	*ret = TAKE(reader);
	return 0;
}

void pprofread_free(struct pprofread *reader)
{
	if (!reader)
		return;
	for (unsigned i = 0; i < PILES; i++)
		free(reader->piles[i].things);
	buffer_release(&reader->bytes);
	free(reader);
}

const struct pprofread_profile *pprofread_profile(const struct pprofread *reader)
{
	return &reader->profile;
}

static bool is(const struct pprofread_profile *profile, uint32_t string, const char *text)
{
	const struct pprofread_text *known = &profile->strings[string];

	return known->len == strlen(text) && memcmp(known->at, text, known->len) == 0;
}

const struct pprofread_label *pprofread_label(const struct pprofread_profile *profile,
					      const struct pprofread_sample *sample, const char *key)
{
	for (uint32_t i = 0; i < sample->label_count; i++) {
		const struct pprofread_label *label = &profile->labels[sample->label_first + i];

		if (is(profile, label->key, key))
			return label;
	}
	return NULL;
}

int pprofread_value(const struct pprofread_profile *profile, const char *type, const char *unit)
{
	for (uint32_t i = 0; i < profile->type_count; i++)
		if (is(profile, profile->types[i].type, type) && (!unit || is(profile, profile->types[i].unit, unit)))
			return (int)i;
	return -1;
}
