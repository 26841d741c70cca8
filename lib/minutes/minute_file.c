/*
 * minute_file.c: minutes as blocks, and back.
 *
 * A block is a header of fixed size and a payload. The payload is a list of targets, a list of
 * minutes, and then column after column: numbers of one kind beside each other, each as the
 * difference from the same target's number in the minute before, so that most are 0 and gzip makes
 * little of them. Differences reach back within the block only, and names are in each block: a block
 * that is damaged takes nothing with it. A target's names cost that much in each block, and are the
 * reason why minutes are packed, fifteen at a time (daemon/service/minutes/minute_log.c).
 *
 * Rejected: records of fixed size, which are five times as large; a dictionary of names for a whole
 * file, which one damaged byte would take from all that follows.
 *
 * A reader trusts a block whose two checksums are right as far as lengths and numbers go that are
 * checked once more: the checksum is not meant to stop a person who writes files.
 */
#include "lib/minutes/minute_file.h"

#include "lib/base/compress.h"

#include <errno.h>
#include <string.h>

#define MAGIC "SWMINUTE"
#define VERSION 1u
#define HEADER_BYTES 56u
#define PAYLOAD_MAX (8u << 20) /* ten times what fifteen minutes of the most targets take */
#define PAGE_BYTES 4096u
#define ROW_BYTES_MIN 5u    /* a number in each column */
#define TARGET_TEXTS 3u     /* name, entry, comm */
#define TARGET_BYTES_MIN 4u /* kind and three lengths */

/* Of a row, beside the columns: what few rows have. */
enum { ROW_NO_CPU = 1, ROW_NO_MEMORY = 2, ROW_THROTTLED = 4, ROW_PARTLY_SEEN = 8, ROW_SEVERAL = 16 };

/*
 *  0 magic   8 version, packed, 2 bytes of 0   12 stored bytes   16 payload bytes   20 minutes
 * 24 begin of the first minute   32 end of the last, ns   40 periods in all, ns
 * 48 CRC-32 of the stored bytes   52 CRC-32 of the 52 bytes before
 */
struct header {
	bool packed;
	uint32_t stored, payload, minutes, crc;
	uint64_t from_ns, until_ns, period_ns;
};

static void put_number(unsigned char *at, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		at[i] = (unsigned char)(value >> (8 * i));
}

static uint64_t get_number(const unsigned char *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << (8 * i);
	return value;
}

static void header_put(unsigned char at[HEADER_BYTES], const struct header *header)
{
	memset(at, 0, HEADER_BYTES);
	memcpy(at, MAGIC, 8);
	put_number(at + 8, VERSION, 1);
	put_number(at + 9, header->packed, 1);
	put_number(at + 12, header->stored, 4);
	put_number(at + 16, header->payload, 4);
	put_number(at + 20, header->minutes, 4);
	put_number(at + 24, header->from_ns, 8);
	put_number(at + 32, header->until_ns, 8);
	put_number(at + 40, header->period_ns, 8);
	put_number(at + 48, header->crc, 4);
	put_number(at + 52, checksum_crc32(CHECKSUM_CRC32_EMPTY, at, 52), 4);
}

/* False: it is none, or none that this program knows. */
static bool header_get(const unsigned char *at, size_t len, struct header *ret)
{
	if (len < HEADER_BYTES || memcmp(at, MAGIC, 8) != 0 ||
	    get_number(at + 52, 4) != checksum_crc32(CHECKSUM_CRC32_EMPTY, at, 52) || at[8] != VERSION || at[9] > 1)
		return false;
	*ret = (struct header){
		.packed = at[9],
		.stored = (uint32_t)get_number(at + 12, 4),
		.payload = (uint32_t)get_number(at + 16, 4),
		.minutes = (uint32_t)get_number(at + 20, 4),
		.from_ns = get_number(at + 24, 8),
		.until_ns = get_number(at + 32, 8),
		.period_ns = get_number(at + 40, 8),
		.crc = (uint32_t)get_number(at + 48, 4),
	};
	return ret->stored <= PAYLOAD_MAX && ret->payload <= PAYLOAD_MAX && ret->minutes > 0 &&
	       ret->minutes <= MINUTE_BLOCK_MINUTES;
}

/* ---- writing ---- */

/* LEB128, the lowest seven bits first. Errors stay in the writer. */
struct writer {
	struct buffer text;
	int r;
};

static void put_bytes(struct writer *writer, const void *data, size_t len)
{
	if (writer->r == 0)
		writer->r = buffer_append(&writer->text, data, len);
}

static void put(struct writer *writer, uint64_t value)
{
	unsigned char bytes[10];
	size_t len = 0;

	do {
		bytes[len++] = (unsigned char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
		value >>= 7;
	} while (value > 0);
	put_bytes(writer, bytes, len);
}

/* Small numbers of either sign are short: 0, -1, 1, -2 ... are 0, 1, 2, 3. */
static void put_difference(struct writer *writer, uint64_t value, uint64_t from)
{
	uint64_t difference = value - from;

	put(writer, (difference << 1) ^ (0 - (difference >> 63)));
}

static void put_text(struct writer *writer, const char *text)
{
	size_t len = strnlen(text, MINUTE_TEXT_MAX);

	put(writer, len);
	put_bytes(writer, text, len);
}

static uint64_t in_ms(uint64_t ns)
{
	return (ns + NS_PER_MS / 2) / NS_PER_MS;
}

/* A row by the number of its target; before: where it stands in its minute. */
struct order {
	uint32_t target, before;
};

static int compare_order(const void *a, const void *b)
{
	const struct order *x = a, *y = b;

	if (x->target != y->target)
		return x->target < y->target ? -1 : 1;
	return x->before < y->before ? -1 : x->before > y->before;
}

/* The rows of all minutes in the order of their file. */
struct sheet {
	const struct minute *minutes;
	size_t count;
	struct order *order; /* minute after minute, each by target */
	struct intern targets;
	struct intern_budget budget; /* none */
	uint64_t *last;              /* by target: the value before, in a column */
};

static void sheet_release(struct sheet *sheet)
{
	free(sheet->order);
	free(sheet->last);
	intern_release(&sheet->targets);
}

static int number_target(struct sheet *sheet, const struct minute_row *row, uint32_t *ret)
{
	const char *const texts[TARGET_TEXTS] = { row->name, row->entry, row->comm };
	char key[1 + TARGET_TEXTS * (MINUTE_TEXT_MAX + 1)];
	size_t len = 0;

	key[len++] = (char)row->kind;
	for (size_t i = 0; i < TARGET_TEXTS; i++) {
		size_t more = strnlen(texts[i], MINUTE_TEXT_MAX);

		memcpy(key + len, texts[i], more);
		key[len + more] = '\0';
		len += more + 1;
	}
	return intern_put(&sheet->targets, &sheet->budget, key, len, ret);
}

static int sheet_make(struct sheet *sheet)
{
	size_t total = 0, at = 0;

	for (size_t m = 0; m < sheet->count; m++)
		total += sheet->minutes[m].row_count;
	sheet->order = calloc(total + 1, sizeof(*sheet->order));
	if (!sheet->order)
		return -ENOMEM;
	for (size_t m = 0; m < sheet->count; m++) {
		for (size_t i = 0; i < sheet->minutes[m].row_count; i++) {
			struct order *order = &sheet->order[at + i];
			int r = number_target(sheet, &sheet->minutes[m].rows[i], &order->target);

			if (r < 0)
				return r;
			order->target--; /* interned numbers begin with 1 */
			order->before = (uint32_t)i;
		}
		qsort(sheet->order + at, sheet->minutes[m].row_count, sizeof(*sheet->order), compare_order);
		at += sheet->minutes[m].row_count;
	}
	sheet->last = calloc(sheet->targets.count + 1, sizeof(*sheet->last));
	return sheet->last ? 0 : -ENOMEM;
}

static uint64_t column_cpu(const struct minute_row *row)
{
	return row->has_cpu ? in_ms(row->cpu_ns) : 0;
}

static uint64_t column_peak(const struct minute_row *row)
{
	return row->has_cpu ? row->cpu_peak_milli : 0;
}

static uint64_t column_memory(const struct minute_row *row)
{
	return row->has_memory ? (row->memory_bytes + PAGE_BYTES - 1) / PAGE_BYTES : 0;
}

static void put_column(struct writer *writer, const struct sheet *sheet, uint64_t (*value)(const struct minute_row *))
{
	const struct order *order = sheet->order;

	memset(sheet->last, 0, sheet->targets.count * sizeof(*sheet->last));
	for (size_t m = 0; m < sheet->count; m++) {
		for (size_t i = 0; i < sheet->minutes[m].row_count; i++, order++) {
			uint64_t now = value(&sheet->minutes[m].rows[order->before]);

			put_difference(writer, now, sheet->last[order->target]);
			sheet->last[order->target] = now;
		}
	}
}

static unsigned flags_of(const struct minute *minute, const struct minute_row *row)
{
	return (row->has_cpu ? 0u : ROW_NO_CPU) | (row->has_memory ? 0u : ROW_NO_MEMORY) |
	       (row->throttled_ns || row->throttled_permille ? ROW_THROTTLED : 0u) |
	       (in_ms(row->seen_ns) != in_ms(minute->span_ns) ? ROW_PARTLY_SEEN : 0u) |
	       (row->targets != 1 ? ROW_SEVERAL : 0u);
}

static void put_rest(struct writer *writer, const struct minute *minute, const struct minute_row *row)
{
	unsigned flags = flags_of(minute, row);

	put(writer, flags);
	if (flags & ROW_THROTTLED) {
		put(writer, in_ms(row->throttled_ns));
		put(writer, row->throttled_permille);
	}
	if (flags & ROW_PARTLY_SEEN)
		put(writer, in_ms(row->seen_ns));
	if (flags & ROW_SEVERAL)
		put(writer, row->targets);
}

static void put_targets(struct writer *writer, const struct sheet *sheet)
{
	put(writer, sheet->targets.count);
	for (uint32_t i = 0; i < sheet->targets.count; i++) {
		const char *text = intern_text(&sheet->targets, i + 1);

		put(writer, (unsigned char)*text++);
		for (size_t k = 0; k < TARGET_TEXTS; k++, text += strlen(text) + 1)
			put_text(writer, text);
	}
}

static void put_minutes(struct writer *writer, const struct sheet *sheet)
{
	uint64_t begin_ms = 0, number = 0;

	for (size_t m = 0; m < sheet->count; m++) {
		const struct minute *minute = &sheet->minutes[m];

		put_difference(writer, minute->begin.ns / NS_PER_MS, begin_ms);
		put(writer, in_ms(minute->period_ns));
		put(writer, in_ms(minute->peak_ns));
		put(writer, in_ms(minute->span_ns));
		put(writer, in_ms(minute->unsampled_ns));
		put_difference(writer, minute->number, number);
		put(writer, minute->row_count);
		put(writer, minute->incident_count);
		begin_ms = (minute->begin.ns + minute->period_ns) / NS_PER_MS;
		number = minute->number + 1;
	}
}

/* An incident names its row as the reader will number it: by target. */
static void put_incidents(struct writer *writer, const struct minute *minute, const struct order *order)
{
	for (size_t i = 0; i < minute->incident_count; i++) {
		uint64_t place = 0;

		for (size_t k = 0; k < minute->row_count && place == 0; k++)
			if (order[k].before == minute->incidents[i].row)
				place = k + 1;
		put(writer, place);
		put_text(writer, minute->incidents[i].id);
	}
}

static void put_payload(struct writer *writer, const struct sheet *sheet)
{
	const struct order *order = sheet->order;

	put_targets(writer, sheet);
	put_minutes(writer, sheet);
	for (size_t m = 0; m < sheet->count; order += sheet->minutes[m++].row_count)
		for (size_t i = 0; i < sheet->minutes[m].row_count; i++)
			put(writer, order[i].target - (i > 0 ? order[i - 1].target : 0));
	put_column(writer, sheet, column_cpu);
	put_column(writer, sheet, column_peak);
	put_column(writer, sheet, column_memory);
	order = sheet->order;
	for (size_t m = 0; m < sheet->count; order += sheet->minutes[m++].row_count)
		for (size_t i = 0; i < sheet->minutes[m].row_count; i++)
			put_rest(writer, &sheet->minutes[m], &sheet->minutes[m].rows[order[i].before]);
	order = sheet->order;
	for (size_t m = 0; m < sheet->count; order += sheet->minutes[m++].row_count)
		put_incidents(writer, &sheet->minutes[m], order);
}

static int append_block(const struct sheet *sheet, const struct buffer *payload, bool packed, struct buffer *buffer)
{
	AUTO(buffer_release) struct buffer stored = { 0 };
	struct sink sink = sink_buffer(&stored);
	unsigned char head[HEADER_BYTES];
	struct header header = { .packed = packed,
				 .payload = (uint32_t)payload->len,
				 .minutes = (uint32_t)sheet->count,
				 .from_ns = sheet->minutes[0].begin.ns };
	size_t before = buffer->len;
	int r = packed ? deflate_gzip(payload->data, payload->len, &sink)
		       : buffer_append(&stored, payload->data, payload->len);

	for (size_t m = 0; m < sheet->count; m++) {
		const struct minute *minute = &sheet->minutes[m];
		uint64_t end = minute->begin.ns + minute->period_ns;

		header.period_ns += minute->period_ns;
		header.from_ns = minute->begin.ns < header.from_ns ? minute->begin.ns : header.from_ns;
		header.until_ns = end > header.until_ns ? end : header.until_ns;
	}
	if (r < 0)
		return r;
	if (stored.len > PAYLOAD_MAX)
		return -EFBIG;
	header.stored = (uint32_t)stored.len;
	header.crc = checksum_crc32(CHECKSUM_CRC32_EMPTY, stored.data, stored.len);
	header_put(head, &header);
	r = buffer_append(buffer, head, sizeof(head));
	if (r == 0)
		r = buffer_append(buffer, stored.data, stored.len);
	if (r < 0)
		buffer->len = before;
	return r;
}

int minute_block_write(const struct minute *minutes, size_t count, bool packed, struct buffer *buffer)
{
	AUTO(sheet_release) struct sheet sheet = { .minutes = minutes, .count = count };
	struct writer writer = { .text = { .max = PAYLOAD_MAX } };
	int r = sheet_make(&sheet);

	if (r == 0) {
		put_payload(&writer, &sheet);
		r = writer.r;
	}
	if (r == 0)
		r = append_block(&sheet, &writer.text, packed, buffer);
	buffer_release(&writer.text);
	return r;
}

/* ---- reading ---- */

struct reader {
	const unsigned char *at, *end;
	bool bad;
};

static uint64_t get(struct reader *reader)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64 && reader->at < reader->end; shift += 7) {
		unsigned char byte = *reader->at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80)
			return value;
	}
	reader->bad = true;
	return 0;
}

static uint64_t get_difference(struct reader *reader, uint64_t from)
{
	uint64_t folded = get(reader);

	return from + ((folded >> 1) ^ (0 - (folded & 1)));
}

/* A number above max makes the block bad. */
static uint64_t get_below(struct reader *reader, uint64_t max)
{
	uint64_t value = get(reader);

	if (value <= max)
		return value;
	reader->bad = true;
	return 0;
}

/* A time in milliseconds, as nanoseconds. */
static uint64_t get_ms(struct reader *reader)
{
	return get_below(reader, UINT64_MAX / NS_PER_MS / 2) * NS_PER_MS;
}

/* NULL: no memory, or the block is bad. */
static const char *get_text(struct reader *reader, struct arena *arena)
{
	size_t len = (size_t)get_below(reader, MINUTE_TEXT_MAX);
	const char *text;

	if (len > (size_t)(reader->end - reader->at))
		reader->bad = true;
	if (reader->bad || memchr(reader->at, '\0', len)) {
		reader->bad = true;
		return NULL;
	}
	text = arena_copy(arena, (const char *)reader->at, len);
	reader->at += len;
	return text;
}

/* What the rows of a block are made of. */
struct intake {
	struct reader reader;
	struct minute_block *block;
	struct minute_row *targets; /* kind and names of each */
	uint64_t *last;             /* as in struct sheet */
	uint32_t *target;           /* of each row of all minutes */
	size_t target_count, rows;
};

/* Of elements that take so many bytes of the payload each, at least: more cannot be there. */
static size_t get_count(struct reader *reader, size_t bytes_each)
{
	return (size_t)get_below(reader, (uint64_t)(reader->end - reader->at) / bytes_each);
}

static int take_targets(struct intake *intake)
{
	struct reader *reader = &intake->reader;

	intake->target_count = get_count(reader, TARGET_BYTES_MIN);
	intake->targets = arena_alloc(&intake->block->arena, (intake->target_count + 1) * sizeof(*intake->targets));
	intake->last = arena_alloc(&intake->block->arena, (intake->target_count + 1) * sizeof(*intake->last));
	if (!intake->targets || !intake->last)
		return -ENOMEM;
	for (size_t i = 0; i < intake->target_count && !reader->bad; i++) {
		struct minute_row *target = &intake->targets[i];

		target->kind = (unsigned)get_below(reader, TARGET_GROUP);
		target->name = get_text(reader, &intake->block->arena);
		target->entry = reader->bad ? NULL : get_text(reader, &intake->block->arena);
		target->comm = reader->bad ? NULL : get_text(reader, &intake->block->arena);
		if (!reader->bad && (!target->name || !target->entry || !target->comm))
			return -ENOMEM;
	}
	return 0;
}

static int take_minute(struct intake *intake, struct minute *minute, uint64_t *begin_ms, uint64_t *number)
{
	struct reader *reader = &intake->reader;
	uint64_t begin = get_difference(reader, *begin_ms);

	minute->period_ns = get_ms(reader);
	if (begin > UINT64_MAX / NS_PER_MS / 4 || minute->period_ns == 0)
		reader->bad = true;
	minute->begin.ns = begin * NS_PER_MS;
	minute->peak_ns = get_ms(reader);
	minute->span_ns = get_ms(reader);
	minute->unsampled_ns = get_ms(reader);
	minute->number = get_difference(reader, *number);
	minute->row_count = get_count(reader, ROW_BYTES_MIN);
	minute->incident_count = get_count(reader, 2);
	if (reader->bad)
		return 0;
	*begin_ms = begin + minute->period_ns / NS_PER_MS;
	*number = minute->number + 1;
	intake->rows += minute->row_count;
	if (intake->rows > (size_t)(reader->end - reader->at) / ROW_BYTES_MIN) {
		reader->bad = true;
		return 0;
	}
	minute->rows = arena_alloc(&intake->block->arena, (minute->row_count + 1) * sizeof(*minute->rows));
	minute->incidents =
		arena_alloc(&intake->block->arena, (minute->incident_count + 1) * sizeof(*minute->incidents));
	return minute->rows && minute->incidents ? 0 : -ENOMEM;
}

static int take_minutes(struct intake *intake)
{
	struct minute_block *block = intake->block;
	uint64_t begin_ms = 0, number = 0;
	int r = 0;

	block->minutes = arena_alloc(&block->arena, block->count * sizeof(*block->minutes));
	if (!block->minutes)
		return -ENOMEM;
	for (size_t m = 0; r == 0 && m < block->count && !intake->reader.bad; m++)
		r = take_minute(intake, &block->minutes[m], &begin_ms, &number);
	return r;
}

static int take_names(struct intake *intake)
{
	struct minute_block *block = intake->block;
	size_t row = 0;

	intake->target = arena_alloc(&block->arena, (intake->rows + 1) * sizeof(*intake->target));
	if (!intake->target)
		return -ENOMEM;
	for (size_t m = 0; m < block->count; m++) {
		uint64_t target = 0;

		for (size_t i = 0; i < block->minutes[m].row_count; i++, row++) {
			target += get(&intake->reader);
			if (intake->reader.bad || target >= intake->target_count) {
				intake->reader.bad = true;
				return 0;
			}
			intake->target[row] = (uint32_t)target;
			block->minutes[m].rows[i] = intake->targets[target];
		}
	}
	return 0;
}

enum column { COLUMN_CPU, COLUMN_PEAK, COLUMN_MEMORY };

static void set_column(struct minute_row *row, enum column column, uint64_t value, bool *bad)
{
	switch (column) {
	case COLUMN_CPU:
		*bad |= value > UINT64_MAX / NS_PER_MS;
		row->cpu_ns = value * NS_PER_MS;
		break;
	case COLUMN_PEAK:
		*bad |= value > UINT32_MAX;
		row->cpu_peak_milli = (uint32_t)value;
		break;
	case COLUMN_MEMORY:
		*bad |= value > UINT64_MAX / PAGE_BYTES;
		row->memory_bytes = value * PAGE_BYTES;
	}
}

static void take_column(struct intake *intake, enum column column)
{
	size_t row = 0;

	memset(intake->last, 0, intake->target_count * sizeof(*intake->last));
	for (size_t m = 0; m < intake->block->count; m++) {
		struct minute *minute = &intake->block->minutes[m];

		for (size_t i = 0; i < minute->row_count && !intake->reader.bad; i++, row++) {
			uint64_t *last = &intake->last[intake->target[row]];

			*last = get_difference(&intake->reader, *last);
			set_column(&minute->rows[i], column, *last, &intake->reader.bad);
		}
	}
}

static void take_rest(struct reader *reader, const struct minute *minute, struct minute_row *row)
{
	uint64_t flags = get(reader);

	row->has_cpu = !(flags & ROW_NO_CPU);
	row->has_memory = !(flags & ROW_NO_MEMORY);
	if (flags & ROW_THROTTLED) {
		row->throttled_ns = get_ms(reader);
		row->throttled_permille = (uint32_t)get_below(reader, UINT32_MAX);
	}
	row->seen_ns = flags & ROW_PARTLY_SEEN ? get_ms(reader) : minute->span_ns;
	row->targets = flags & ROW_SEVERAL ? (uint32_t)get_below(reader, UINT32_MAX) : 1;
}

static int take_incidents(struct intake *intake, struct minute *minute)
{
	for (size_t i = 0; i < minute->incident_count && !intake->reader.bad; i++) {
		uint64_t place = get_below(&intake->reader, minute->row_count);

		minute->incidents[i].row = place ? (uint32_t)place - 1 : MINUTE_NO_ROW;
		minute->incidents[i].id = intake->reader.bad ? NULL : get_text(&intake->reader, &intake->block->arena);
		if (!intake->reader.bad && !minute->incidents[i].id)
			return -ENOMEM;
	}
	return 0;
}

static int take_payload(struct intake *intake)
{
	struct minute_block *block = intake->block;
	int r = take_targets(intake);

	if (r == 0 && !intake->reader.bad)
		r = take_minutes(intake);
	if (r == 0 && !intake->reader.bad)
		r = take_names(intake);
	if (r < 0 || intake->reader.bad)
		return r;
	for (enum column column = COLUMN_CPU; column <= COLUMN_MEMORY; column++)
		take_column(intake, column);
	for (size_t m = 0; m < block->count; m++)
		for (size_t i = 0; i < block->minutes[m].row_count && !intake->reader.bad; i++)
			take_rest(&intake->reader, &block->minutes[m], &block->minutes[m].rows[i]);
	for (size_t m = 0; r == 0 && m < block->count; m++)
		r = take_incidents(intake, &block->minutes[m]);
	return r;
}

/* 0; -ENOMEM; -EBADMSG: the checksums are right and the rest is not. */
static int read_block(const struct header *header, const unsigned char *stored, struct minute_block *ret)
{
	AUTO(buffer_release) struct buffer payload = { 0 };
	struct intake intake = { .block = ret };
	int r = 0;

	if (header->packed) {
		r = deflate_gunzip(stored, header->stored, header->payload, &payload);
		if (r < 0)
			return r == -ENOMEM ? r : -EBADMSG;
		stored = (const unsigned char *)payload.data;
	}
	if ((header->packed ? payload.len : header->stored) != header->payload)
		return -EBADMSG;
	ret->count = header->minutes;
	ret->packed = header->packed;
	intake.reader = (struct reader){ stored, stored + header->payload, false };
	if (header->payload > 0)
		r = take_payload(&intake);
	if (r == 0 && (header->payload == 0 || intake.reader.bad || intake.reader.at != intake.reader.end))
		r = -EBADMSG;
	if (r < 0)
		minute_block_release(ret);
	return r;
}

/* Of a block that seems to begin at scan->at; false: there is no whole one. */
static bool look(const struct minute_scan *scan, size_t at, struct header *ret)
{
	const unsigned char *data = (const unsigned char *)scan->data + at;

	return header_get(data, scan->len - at, ret) && ret->stored <= scan->len - at - HEADER_BYTES &&
	       checksum_crc32(CHECKSUM_CRC32_EMPTY, data + HEADER_BYTES, ret->stored) == ret->crc;
}

/* Passes over what is no block, up to the next one or the end. */
static int skip_damage(struct minute_scan *scan)
{
	size_t begin = scan->at;
	struct header header;

	do {
		const char *next = memmem(scan->data + scan->at + 1, scan->len - scan->at - 1, MAGIC, 8);

		scan->at = next ? (size_t)(next - scan->data) : scan->len;
	} while (scan->at < scan->len && !look(scan, scan->at, &header));
	scan->damaged++;
	scan->damaged_bytes += scan->at - begin;
	return MINUTE_DAMAGED;
}

int minute_block_next(struct minute_scan *scan, struct minute_block *ret)
{
	struct header header;

	*ret = (struct minute_block){ 0 };
	while (scan->at < scan->len) {
		const unsigned char *data = (const unsigned char *)scan->data + scan->at;
		bool wanted;
		int r = 0;

		if (!look(scan, scan->at, &header))
			return skip_damage(scan);
		wanted = header.until_ns > scan->from.ns && (scan->until.ns == 0 || header.from_ns < scan->until.ns);
		if (wanted)
			r = read_block(&header, data + HEADER_BYTES, ret);
		if (r == -EBADMSG)
			return skip_damage(scan);
		if (r < 0)
			return r;
		scan->at += HEADER_BYTES + header.stored;
		scan->whole = scan->at;
		scan->blocks++;
		scan->minutes += header.minutes;
		scan->period_ns += header.period_ns;
		if (wanted)
			return 0;
	}
	return MINUTE_END;
}
