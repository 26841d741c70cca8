/*
 * stream_reader.c: three layers. Lines of ours are cut out of the input (struct line_splitter);
 * columns and rows are read from them (struct columns, struct row_window); and
 * they become streams again (struct stream_reader). The repair of a stream is a reader, which keeps
 * the overall checksum of what it has read, and the writer's closing lines.
 *
 * Lines. A line of the input may hold anything: a logger's own prefix before ours, two lines of ours
 * that lost the newline between them, a foreign line that never ends. So the prefix is searched
 * everywhere. From the first one on, the line is tried as a whole; if its checksum does not agree, it
 * is tried in parts, each up to the next prefix. Both passes are linear, so no input is slow. Complete
 * lines are examined in place. What is left of a piece of input is kept, up to one line of the
 * greatest legal length; when that is full, everything before the last place where a line of ours can
 * still begin is given up.
 *
 * Columns. In our own format a description carries the number of its column, so every line helps by
 * itself: a lost column header is made up for by the descriptions, a lost description costs the
 * description and not the name. In gVisor's format descriptions have only an order, and a lost one
 * would shift the others. So they are held until the column header has given the names; if that is
 * lost, until a row shows that there are as many of them as values.
 *
 * Rows are accounted for by the highest number seen and the ranges of numbers below it that are
 * missing. A step of more than one is a loss, a number in such a range is a late row and no loss after
 * all, everything else is a copy. The ranges are bounded in number, so nothing grows with the input,
 * and no row is handed out twice.
 *
 * A CRC line says which rows it covers, and the sum of their CRCs. Rows that arrived wait for it in
 * spans of consecutive numbers; a CRC line whose rows are not all there waits for them in its turn.
 * Either way the sum is compared when the last of them has arrived. Lines without a number (headers,
 * remarks) belong to the CRC line that comes next.
 *
 * Streams. What is known of the current stream is one struct, zeroed when the next stream begins:
 *
 *     nothing --first line--> open --ADLER32--> closed --line of another stream--> open ...
 *
 * Another stream shows by its START_TIME, which FORMAT has too, so that either may be lost. Where both
 * were lost before, the number of its next row in FORMAT tells: where that row was seen, or is the
 * first, another stream begins.
 *
 * gVisor's format has no such numbers, and writes headers once. There a description after the column
 * header begins another stream if it is not known. Known ones are copies, or the beginning of another
 * stream with the same columns: they are remembered until the line behind them tells.
 *
 * Repair. Where anything but the last line is damaged the stream is left as it is: a closing checksum
 * says that all of it is as it was written.
 */
#include "lib/stream/stream.h"
#include "lib/stream/stream_format.h"

#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/base/io.h"
#include "lib/base/text.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* A line whose checksum agrees; valid during the call. */
struct framed_line {
	const char *content; /* without prefix and checksum; not terminated */
	size_t len;
	size_t framed_len; /* with the checksum, which follows the content in memory; without newline */
	uint32_t adler;    /* of the content */
	bool closing;      /* STREAM_CLOSING: adler is the number it says, not its own; len is framed_len */
	bool ended;        /* by a newline or by another line of ours: what follows is not the rest of it */
};

/* A non-zero return stops and is returned. */
struct line_events {
	int (*line)(void *ctx, const struct framed_line *line);
	/* Carries a prefix of ours, but is damaged; why is static text. */
	int (*damaged)(void *ctx, const char *why);
	void *ctx;
};

struct line_splitter {
	struct line_events events;
	bool format_known; /* by the first good line: from then on, lines of the other format are foreign */
	enum stream_format format;
	uint64_t line; /* of the input, the current one, from 1; 0 before the first byte */
	uint64_t foreign_lines;
	bool prefix_seen; /* somewhere in the input */

	bool inside;       /* the current line has bytes */
	bool prefixed;     /* and a prefix */
	bool foreign_text; /* and other bytes */
	size_t len;        /* kept of it */
	char data[STREAM_LINE_MAX];
};

/*
 * Longer descriptions in STREAM_GVISOR are not kept until the column header says which column they
 * are of.
 */
#define HELD_JSON_MAX 511

struct held_description {
	char name[STREAM_NAME_MAX + 1];
	char json[HELD_JSON_MAX + 1];
};

/* {0}: nothing is known. */
struct columns {
	size_t count;   /* 0: not known */
	bool named;     /* by the column header */
	uint32_t known; /* bit per column: it has a description */

	/*
	 * What the last call has found out: bit per column. json may be NULL, and is valid until
	 * the next call.
	 */
	uint32_t news;
	char names[STREAM_COLUMNS_MAX][STREAM_NAME_MAX + 1];
	const char *json[STREAM_COLUMNS_MAX];

	size_t held_count; /* STREAM_GVISOR: descriptions seen */
	struct held_description held[STREAM_COLUMNS_MAX];
};

/* A value to copy. values beyond columns, and those whose bit in mask is 0, are 0. */
struct parsed_row {
	uint64_t seq; /* from 1; 0 in STREAM_GVISOR, whose rows have no numbers */
	uint64_t time_ns;
	uint32_t target; /* 0 in STREAM_GVISOR */
	uint32_t mask;
	size_t columns; /* 1 .. STREAM_COLUMNS_MAX */
	uint64_t values[STREAM_COLUMNS_MAX];
};

/*
 * Bounds of what is remembered. Missing rows are kept as ranges: one misplaced sector makes two, and
 * one torn row one. When there are too many, the shortest is given up.
 */
#define RANGES_MAX 4096
#define SPANS_MAX 64
#define BLOCKS_MAX 64

struct row_range {
	uint64_t first, last;
};

/* Rows that arrived, one after the other, and that no CRC line has covered yet; sum of their CRCs. */
struct row_span {
	struct row_range rows;
	uint32_t sum;
};

/* What a CRC line covers: how many of its rows are missing, and the sum of their CRCs. */
struct row_block {
	struct row_range rows;
	uint64_t missing;
	uint32_t sum;
};

/* Which rows were seen, and which of them were checked. Nothing: no row. */
struct row_ledger {
	uint64_t highest;
	uint64_t unchecked; /* rows that no CRC line will cover any more */
	size_t missing_count, span_count, block_count;
	struct row_range missing[RANGES_MAX]; /* ascending */
	struct row_span spans[SPANS_MAX];     /* the last is the one that grows */
	struct row_block blocks[BLOCKS_MAX];
};

enum block_verdict {
	BLOCK_AGREES,
	BLOCK_DIFFERS,
	BLOCK_WAITS,     /* for rows that are missing */
	BLOCK_IS_COPY,   /* of one that was judged */
	BLOCK_UNCHECKED, /* which of the rows it covers is not known: a CRC line is missing */
};

/* ---- lines ---- */

#define PREFIX_LEN_MAX (sizeof(STREAM_PREFIX_GVISOR) - 1)

_Static_assert(sizeof(STREAM_PREFIX) <= sizeof(STREAM_PREFIX_GVISOR), "the longer of the prefixes");

static const char *const prefixes[] = { [STREAM_SPIKEWATCH] = STREAM_PREFIX, [STREAM_GVISOR] = STREAM_PREFIX_GVISOR };

/* Zeroes all but data. */
static void lines_init(struct line_splitter *lines, const struct line_events *events)
{
	memset(lines, 0, offsetof(struct line_splitter, data));
	lines->events = *events;
}

/* There are as many bytes at p. */
static bool begins_with_prefix(const char *p, enum stream_format format)
{
	return format == STREAM_GVISOR ? memcmp(p, STREAM_PREFIX_GVISOR, strlen(STREAM_PREFIX_GVISOR)) == 0
				       : memcmp(p, STREAM_PREFIX, strlen(STREAM_PREFIX)) == 0;
}

/* The first prefix in [p, end): NULL, or where it is and of which format. */
static const char *find_prefix(const struct line_splitter *lines, const char *p, const char *end,
			       enum stream_format *ret_format)
{
	const char *first = NULL;

	for (enum stream_format f = STREAM_SPIKEWATCH; f <= STREAM_GVISOR; f++) {
		size_t len = strlen(prefixes[f]);

		if ((lines->format_known && f != lines->format) || (size_t)(end - p) < len)
			continue;
		const char *found = begins_with_prefix(p, f) ? p : memmem(p, (size_t)(end - p), prefixes[f], len);
		if (found && (!first || found < first)) {
			first = found;
			*ret_format = f;
		}
	}
	return first;
}

/* The checksum "5fe4a3d1" between p and end, exactly as the writer writes it. */
static bool parse_checksum(const char *p, const char *end, uint32_t *ret)
{
	uint64_t value;

	if (text_parse_hex(p, end, &value) != end || value > UINT32_MAX || (*p == '0' && end - p > 1))
		return false;
	*ret = (uint32_t)value;
	return true;
}

/* [p, end) is value as the writer writes it. Eight bytes before end are readable. */
static bool ends_with_hex(const char *p, const char *end, uint32_t value)
{
	char digits[TEXT_NUMBER_ROOM] = { 0 };
	size_t len = (size_t)(text_put_hex(digits, value) - digits);
	uint64_t expected = 0, word;

	if ((size_t)(end - p) != len)
		return false;
	memcpy(&expected, digits, sizeof(expected));
	memcpy(&word, end - sizeof(word), sizeof(word));
	return ((le64toh(word) >> 8 * (8 - len)) ^ le64toh(expected)) << 8 * (8 - len) == 0;
}

/* Reads "content\t0x5fe4a3d1". NULL: it is whole; else what is wrong with it. */
static const char *verify(const char *p, const char *end, struct framed_line *ret)
{
	size_t mark_len = strlen(STREAM_CHECKSUM_MARK), closing_len = strlen(STREAM_CLOSING);
	size_t len = (size_t)(end - p);
	uint32_t adler;

	if (len > closing_len && memcmp(p, STREAM_CLOSING, closing_len) == 0) {
		if (!parse_checksum(p + closing_len, end, &adler))
			return "the overall checksum is not a number";
		*ret = (struct framed_line){
			.content = p, .len = len, .framed_len = len, .adler = adler, .closing = true
		};
		return NULL;
	}

	const char *mark = memrchr(p, '\t', len);
	if (!mark || (size_t)(end - mark) <= mark_len || memcmp(mark, STREAM_CHECKSUM_MARK, mark_len) != 0)
		return "no checksum at its end";

	uint32_t own = checksum_adler32(CHECKSUM_ADLER32_EMPTY, p, (size_t)(mark - p));
	if (!ends_with_hex(mark + mark_len, end, own))
		return parse_checksum(mark + mark_len, end, &adler) ? "its checksum differs" : "no checksum at its end";
	*ret = (struct framed_line){ .content = p, .len = (size_t)(mark - p), .framed_len = len, .adler = own };
	return NULL;
}

static int hand_out(struct line_splitter *lines, enum stream_format format, struct framed_line *line, bool ended)
{
	line->ended = ended;
	lines->format = format;
	lines->format_known = true;
	return lines->events.line(lines->events.ctx, line);
}

/* [p, end) begins with a prefix. Hands out each line of ours in it. */
static int take_parts(struct line_splitter *lines, const char *p, const char *end, bool ended)
{
	enum stream_format format, next_format;
	struct framed_line line;
	int r = 0;

	p = find_prefix(lines, p, end, &format);
	while (!r && p) {
		const char *content = p + strlen(prefixes[format]);
		const char *next = find_prefix(lines, content, end, &next_format);
		const char *why = verify(content, next ? next : end, &line);

		r = why ? lines->events.damaged(lines->events.ctx, why) : hand_out(lines, format, &line, ended || next);
		p = next;
		format = next_format;
	}
	return r;
}

/* A whole line, or what is left of it. */
static int take(struct line_splitter *lines, const char *p, const char *end, bool ended)
{
	enum stream_format format;
	struct framed_line line;

	if (end > p && end[-1] == '\r')
		end--;
	const char *first = find_prefix(lines, p, end, &format);
	lines->foreign_text |= (first ? first : end) > p;
	if (!first)
		return 0;

	lines->prefixed = lines->prefix_seen = true;
	if (!verify(first + strlen(prefixes[format]), end, &line))
		return hand_out(lines, format, &line, ended);
	return take_parts(lines, first, end, ended);
}

static void keep_from(struct line_splitter *lines, const char *p)
{
	lines->len -= (size_t)(p - lines->data);
	memmove(lines->data, p, lines->len);
}

/*
 * No newline within the greatest legal length: takes the parts that are complete and gives up what
 * cannot be part of a line of ours any more. What stays begins at the last prefix, so that many
 * prefixes without newline are not moved again and again.
 */
static int make_room(struct line_splitter *lines)
{
	const char *end = lines->data + lines->len, *keep = end - (PREFIX_LEN_MAX - 1), *last = NULL;
	enum stream_format format;
	const char *first = find_prefix(lines, lines->data, end, &format);
	int r = 0;

	for (const char *p = first; p; p = find_prefix(lines, p + 1, end, &format))
		last = p;
	lines->prefixed |= first != NULL;
	lines->prefix_seen |= first != NULL;
	lines->foreign_text |= first != lines->data;

	if (last > first)
		r = take_parts(lines, first, last, true);
	else if (first == lines->data)
		r = lines->events.damaged(lines->events.ctx, "it is too long");
	if (last > lines->data)
		keep = last;
	keep_from(lines, keep);
	return r;
}

static int keep(struct line_splitter *lines, const char *data, size_t len)
{
	while (len) {
		int r = lines->len < sizeof(lines->data) ? 0 : make_room(lines);

		if (r)
			return r;
		size_t room = sizeof(lines->data) - lines->len;
		size_t n = len < room ? len : room;
		memcpy(lines->data + lines->len, data, n);
		lines->len += n;
		data += n;
		len -= n;
	}
	return 0;
}

/* The current line is over: [p, end) is what there is of it. */
static int end_line(struct line_splitter *lines, const char *p, const char *end, bool ended)
{
	int r = take(lines, p, end, ended);

	lines->foreign_lines += lines->foreign_text && !lines->prefixed;
	lines->inside = lines->prefixed = lines->foreign_text = false;
	lines->len = 0;
	return r;
}

/* 0 or what an event returned. How the input is cut into pieces makes no difference. */
static int lines_feed(struct line_splitter *lines, const char *data, size_t len)
{
	const char *end = data + len;
	int r = 0;

	while (!r && data < end) {
		const char *newline = memchr(data, '\n', (size_t)(end - data));
		const char *stop = newline ? newline : end;
		bool in_place = newline && !lines->len && (size_t)(stop - data) <= sizeof(lines->data);

		lines->line += !lines->inside;
		lines->inside = true;
		if (in_place)
			r = end_line(lines, data, stop, true);
		else
			r = keep(lines, data, (size_t)(stop - data));
		if (!r && newline && !in_place)
			r = end_line(lines, lines->data, lines->data + lines->len, true);
		data = newline ? newline + 1 : end;
	}
	return r;
}

/* The end of the input: what there is of a last line without newline. */
static int lines_finish(struct line_splitter *lines)
{
	return lines->inside ? end_line(lines, lines->data, lines->data + lines->len, false) : 0;
}

/* ---- columns ---- */

/* json: NULL if there is none. */
static void learn(struct columns *columns, size_t index, const char *name, size_t len, const char *json)
{
	char *known = columns->names[index];
	uint32_t bit = 1u << index;
	bool same = strlen(known) == len && memcmp(known, name, len) == 0;

	if (same && (columns->known & bit || !json))
		return;
	memcpy(known, name, len);
	known[len] = '\0';
	columns->json[index] = json;
	columns->known = json ? columns->known | bit : columns->known & ~bit;
	columns->news |= bit;
}

/* Which of the held descriptions is the same as this META; held_count: none. */
static size_t find_held(const struct columns *columns, const char *text)
{
	size_t len = strcspn(text, "\t"), i = 0;

	for (; i < columns->held_count; i++) {
		const struct held_description *held = &columns->held[i];

		if (strlen(held->name) == len && memcmp(held->name, text, len) == 0 && text[len] &&
		    strcmp(held->json, text + len + 1) == 0)
			break;
	}
	return i;
}

static bool hold(struct columns *columns, const char *name, size_t len, const char *json)
{
	struct held_description *held = &columns->held[columns->held_count];

	if (columns->held_count == STREAM_COLUMNS_MAX)
		return false;
	columns->held_count++;
	memcpy(held->name, name, len);
	held->name[len] = '\0';
	held->json[0] = '\0';
	if (strlen(json) <= HELD_JSON_MAX)
		memcpy(held->json, json, strlen(json) + 1);
	return true;
}

/*
 * What follows META: name, tab, description. False if it makes no sense. text must stay valid while
 * the news are told.
 */
/* "cpu\t{\"column\":0,\"unit\":\"ns\",\"kind\":\"counter\",\"description\":\"CPU time\"}" */
static bool columns_describe(struct columns *columns, enum stream_format format, const char *text)
{
	static const char member[] = "{\"column\":";
	size_t len = strcspn(text, "\t");
	const char *json = text + len + 1;
	uint64_t index;

	columns->news = 0;
	if (!len || len > STREAM_NAME_MAX || !text[len])
		return false;
	if (format == STREAM_GVISOR)
		return hold(columns, text, len, json);

	if (strncmp(json, member, strlen(member)) != 0 ||
	    !text_parse_u64(json + strlen(member), json + strlen(json), &index) || index >= STREAM_COLUMNS_MAX)
		return false;
	learn(columns, index, text, len, json);
	return true;
}

/* How many names there are up to end; 0 if one of them, or their number, makes no sense. */
static size_t count_names(const char *text, const char *end)
{
	size_t n = 0;

	for (const char *p = text; p <= end; n++) {
		size_t len = strcspn(p, "\t");

		if (!len || len > STREAM_NAME_MAX)
			return 0;
		p += len + 1;
	}
	return n <= STREAM_COLUMNS_MAX ? n : 0;
}

/* Whether a column header gives the names that are known. */
static bool columns_are(const struct columns *columns, const char *text)
{
	for (size_t i = 0; i < columns->count; i++) {
		size_t len = strcspn(text, "\t");

		if (strlen(columns->names[i]) != len || memcmp(columns->names[i], text, len) != 0 || !text[len])
			return false;
		text += len + 1;
	}
	return columns->named && strcmp(text, "Checksum") == 0;
}

static const char *held_json(const struct columns *columns, const char *name, size_t len)
{
	for (size_t i = 0; i < columns->held_count; i++) {
		const struct held_description *held = &columns->held[i];

		if (strlen(held->name) == len && memcmp(held->name, name, len) == 0)
			return *held->json ? held->json : NULL;
	}
	return NULL;
}

/*
 * What follows the cells for number, time and target in the column header: names. False if they
 * make no sense.
 */
/* "cpu\tmemory", and in gVisor's format "cpu\tmemory\tChecksum" */
static bool columns_name(struct columns *columns, enum stream_format format, const char *text)
{
	const char *last = strrchr(text, '\t'), *end = text + strlen(text);

	columns->news = 0;
	if (format == STREAM_GVISOR && last && strcmp(last, "\tChecksum") == 0)
		end = last;
	size_t n = count_names(text, end);
	if (!n)
		return false;

	for (size_t i = 0; i < n; i++) {
		size_t len = strcspn(text, "\t");

		learn(columns, i, text, len, held_json(columns, text, len));
		text += len + 1;
	}
	columns->count = n;
	columns->named = true;
	return true;
}

/*
 * A row has count values: may it be read? If how many columns there are is not known yet, it may
 * tell.
 */
static bool columns_fit(struct columns *columns, enum stream_format format, size_t count)
{
	columns->news = 0;
	if (columns->count || (format == STREAM_GVISOR && columns->held_count != count))
		return columns->count == count;

	columns->count = count;
	for (size_t i = 0; i < columns->held_count; i++)
		learn(columns, i, columns->held[i].name, strlen(columns->held[i].name),
		      *columns->held[i].json ? columns->held[i].json : NULL);
	return true;
}

/* ---- rows ---- */

/*
 * "1184\t\t52": reads cells, the first of them into ret[0], and returns how many there are; 0 if
 * they make no sense or are more than max. Bit n of *ret_mask: cell n is not empty. Empty cells are
 * left alone.
 */
static size_t parse_cells(const char *p, const char *end, size_t max, uint64_t *ret, uint32_t *ret_mask)
{
	uint32_t mask = 0;

	for (size_t n = 0; n < max; n++, p++) {
		if (p < end && *p != '\t') {
			p = text_parse_u64(p, end, &ret[n]);
			mask |= 1u << n;
		}
		if (!p || (p < end && *p != '\t'))
			return 0;
		if (p == end) {
			*ret_mask = mask;
			return n + 1;
		}
	}
	return 0;
}

#ifdef __x86_64__
#define VECTOR 32
#define WITH_AVX2 __attribute__((target("avx2,bmi,popcnt")))

/* The number of up to 16 digits that end there, 0 if there are none. Half a vector before the end is readable. */
WITH_AVX2 static inline uint64_t value_before(const char *end, size_t digits)
{
	static const unsigned char masks[VECTOR] = { [VECTOR / 2 ... VECTOR - 1] = 0x0f };
	__m128i bytes = _mm_and_si128(_mm_loadu_si128((const __m128i *)(end - VECTOR / 2)),
				      _mm_loadu_si128((const __m128i *)(masks + digits)));
	__m128i pairs = _mm_maddubs_epi16(bytes, _mm_set1_epi16(10 | 1 << 8));
	__m128i fours = _mm_madd_epi16(pairs, _mm_set1_epi32(100 | 1 << 16));
	__m128i eights = _mm_madd_epi16(_mm_packus_epi32(fours, fours), _mm_set1_epi32(10000 | 1 << 16));
	uint64_t both = (uint64_t)_mm_cvtsi128_si64(eights);

	return (both & UINT32_MAX) * TEXT_EIGHT_DIGITS + (both >> 32);
}

/* Bit per byte of a vector: it is a tab. False: some are neither tabs nor digits. */
WITH_AVX2 static inline bool find_tabs(const char *p, uint32_t *ret)
{
	__m256i bytes = _mm256_loadu_si256((const __m256i *)p);
	/* What is less than '0' comes out above 9, too. */
	__m256i values = _mm256_sub_epi8(bytes, _mm256_set1_epi8('0')), nine = _mm256_set1_epi8(9);
	__m256i digits = _mm256_cmpeq_epi8(_mm256_max_epu8(values, nine), nine);
	__m256i tabs = _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8('\t'));

	*ret = (uint32_t)_mm256_movemask_epi8(tabs);
	return _mm256_movemask_epi8(_mm256_or_si256(digits, tabs)) == -1;
}

/*
 * As parse_cells, of at least VECTOR bytes; half a vector before the first cell's end is readable. What is between
 * tabs is found first, so that no number has to wait for where the one before it ends.
 */
WITH_AVX2 static size_t parse_cells_avx2(const char *p, const char *end, size_t max, uint64_t *ret, uint32_t *ret_mask)
{
	const char *cell = p;
	uint32_t mask = 0, tabs;
	size_t n = 0;

	for (; p <= end; p += VECTOR) {
		/* The last vector overlaps the one before it. */
		const char *from = end - p < VECTOR ? end - VECTOR : p;

		if (!find_tabs(from, &tabs))
			return 0;
		uint64_t ends = (uint64_t)tabs | (uint64_t)(end - p < VECTOR) << VECTOR;

		ends = ends >> (p - from) << (p - from);
		if (n + (size_t)__builtin_popcountll(ends) > max)
			return 0;
		for (; ends; ends &= ends - 1) {
			const char *cell_end = from + __builtin_ctzll(ends);
			size_t digits = (size_t)(cell_end - cell);

			mask |= (uint32_t)(digits > 0) << n;
			if (digits <= VECTOR / 2)
				ret[n] = value_before(cell_end, digits);
			else if (!text_parse_u64(cell, cell_end, &ret[n]))
				return 0;
			n++;
			cell = cell_end + 1;
		}
	}
	*ret_mask = mask;
	return n;
}
#endif

/* A number and the tab behind it. */
static const char *parse_leading(const char *p, const char *end, uint64_t *ret)
{
	p = p ? text_parse_u64(p, end, ret) : NULL;
	return p && p < end && *p == '\t' ? p + 1 : NULL;
}

/* A prefix and a number or more stand before p. */
static size_t parse_values(const char *p, const char *end, uint64_t *ret, uint32_t *ret_mask)
{
#ifdef __x86_64__
	if (end - p >= VECTOR && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi"))
		return parse_cells_avx2(p, end, STREAM_COLUMNS_MAX, ret, ret_mask);
#endif
	return parse_cells(p, end, STREAM_COLUMNS_MAX, ret, ret_mask);
}

/*
 * Reads the content of a row's line, without checksum. False if it makes no sense; *ret is then
 * undefined.
 */
/*
 * Sample lines: "17\t250000000\t3\t1184\t\t52" (number, time, target, values);
 * in gVisor's format "250000000\t1184\t52" (time, values, none of them empty).
 */
static bool row_parse(enum stream_format format, const char *p, size_t len, struct parsed_row *ret)
{
	bool gvisor = format == STREAM_GVISOR;
	const char *end = p + len;
	uint64_t seq = 0, target = 0;

	memset(ret, 0, sizeof(*ret));
	if (!gvisor)
		p = parse_leading(p, end, &seq);
	p = parse_leading(p, end, &ret->time_ns);
	if (!gvisor)
		p = parse_leading(p, end, &target);
	if (!p || (!gvisor && !seq) || target > UINT32_MAX)
		return false;

	ret->seq = seq;
	ret->target = (uint32_t)target;
	ret->columns = parse_values(p, end, ret->values, &ret->mask);
	return ret->columns && (!gvisor || ret->mask == UINT32_MAX >> (STREAM_COLUMNS_MAX - ret->columns));
}

/* ---- which rows were seen ---- */

static void ledger_reset(struct row_ledger *ledger)
{
	ledger->highest = ledger->unchecked = 0;
	ledger->missing_count = ledger->span_count = ledger->block_count = 0;
}

static bool holds_row(const struct row_range *range, uint64_t seq)
{
	return seq >= range->first && seq <= range->last;
}

static uint64_t range_rows(const struct row_range *range)
{
	return range->last - range->first + 1;
}

/* How many rows are in both. */
static uint64_t rows_in_both(const struct row_range *a, const struct row_range *b)
{
	uint64_t first = a->first > b->first ? a->first : b->first, last = a->last < b->last ? a->last : b->last;

	return first <= last ? last - first + 1 : 0;
}

/* The first range of missing rows that does not end before this row. */
static size_t find_missing(const struct row_ledger *ledger, uint64_t seq)
{
	size_t low = 0, high = ledger->missing_count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (ledger->missing[middle].last < seq)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_missing(const struct row_ledger *ledger, uint64_t seq)
{
	size_t i = find_missing(ledger, seq);

	return i < ledger->missing_count && ledger->missing[i].first <= seq;
}

static void remove_missing(struct row_ledger *ledger, size_t i)
{
	memmove(&ledger->missing[i], &ledger->missing[i + 1],
		(--ledger->missing_count - i) * sizeof(ledger->missing[0]));
}

/* Copies of rows of the range that is given up are no longer told from late rows. */
static void insert_missing(struct row_ledger *ledger, size_t i, struct row_range range)
{
	if (ledger->missing_count == RANGES_MAX) {
		size_t shortest = 0;

		for (size_t k = 1; k < RANGES_MAX; k++)
			if (range_rows(&ledger->missing[k]) < range_rows(&ledger->missing[shortest]))
				shortest = k;
		remove_missing(ledger, shortest);
		i -= i > shortest;
	}
	memmove(&ledger->missing[i + 1], &ledger->missing[i],
		(ledger->missing_count++ - i) * sizeof(ledger->missing[0]));
	ledger->missing[i] = range;
}

/* The stream has had `upto` rows. Returns how many of them are missing now that were not before. */
static uint64_t ledger_advance(struct row_ledger *ledger, uint64_t upto)
{
	struct row_range range = { ledger->highest + 1, upto };

	if (upto <= ledger->highest)
		return 0;
	insert_missing(ledger, ledger->missing_count, range);
	ledger->highest = upto;
	return range_rows(&range);
}

/* A row that was missing arrives. */
static void ledger_found(struct row_ledger *ledger, uint64_t seq)
{
	size_t i = find_missing(ledger, seq);
	struct row_range *range = &ledger->missing[i];
	struct row_range after = { seq + 1, range->last };

	if (range->first == range->last) {
		remove_missing(ledger, i);
	} else if (seq == range->first) {
		range->first++;
	} else {
		range->last = seq - 1;
		if (seq < after.last)
			insert_missing(ledger, i + 1, after);
	}
}

/* ---- which rows were checked ---- */

static void remove_span(struct row_ledger *ledger, size_t i)
{
	memmove(&ledger->spans[i], &ledger->spans[i + 1], (--ledger->span_count - i) * sizeof(ledger->spans[0]));
}

/* No CRC line has come for this row. */
static void keep_unchecked(struct row_ledger *ledger, uint64_t seq, uint32_t crc)
{
	struct row_span *last = ledger->span_count ? &ledger->spans[ledger->span_count - 1] : NULL;

	if (last && last->rows.last + 1 == seq) {
		last->rows.last = seq;
		last->sum += crc;
		return;
	}
	if (ledger->span_count == SPANS_MAX) {
		ledger->unchecked += range_rows(&ledger->spans[0].rows);
		remove_span(ledger, 0);
	}
	ledger->spans[ledger->span_count++] = (struct row_span){ { seq, seq }, crc };
}

static void remove_block(struct row_ledger *ledger, size_t i)
{
	memmove(&ledger->blocks[i], &ledger->blocks[i + 1], (--ledger->block_count - i) * sizeof(ledger->blocks[0]));
}

/* A row arrives, which is no copy. The verdict is on a block that waited for it. */
static enum block_verdict ledger_check_row(struct row_ledger *ledger, uint64_t seq, uint32_t crc)
{
	for (size_t i = 0; i < ledger->block_count; i++) {
		struct row_block *block = &ledger->blocks[i];

		if (!holds_row(&block->rows, seq))
			continue;
		block->sum -= crc;
		if (--block->missing)
			return BLOCK_WAITS;
		bool agrees = !block->sum;
		remove_block(ledger, i);
		return agrees ? BLOCK_AGREES : BLOCK_DIFFERS;
	}
	keep_unchecked(ledger, seq, crc);
	return BLOCK_WAITS;
}

/* Takes the rows that are waiting for it out of the spans. False: some are of other blocks too. */
static bool collect_spans(struct row_ledger *ledger, struct row_block *block, uint64_t *ret_rows)
{
	bool clean = true;

	*ret_rows = 0;
	for (size_t i = 0; i < ledger->span_count;) {
		const struct row_span *span = &ledger->spans[i];
		uint64_t rows = range_rows(&span->rows), within = rows_in_both(&span->rows, &block->rows);

		if (!within) {
			i++;
			continue;
		}
		clean &= within == rows;
		*ret_rows += rows;
		block->sum -= span->sum;
		remove_span(ledger, i);
	}
	return clean;
}

/* A CRC line for at least one row, none of them above the highest. */
static enum block_verdict ledger_check_block(struct row_ledger *ledger, const struct row_range *rows, uint32_t sum)
{
	struct row_block block = { .rows = *rows, .sum = sum };
	uint64_t arrived;
	bool clean = collect_spans(ledger, &block, &arrived);

	for (size_t i = find_missing(ledger, rows->first); i < ledger->missing_count; i++) {
		if (ledger->missing[i].first > rows->last)
			break;
		block.missing += rows_in_both(&ledger->missing[i], rows);
	}
	for (size_t i = 0; i < ledger->block_count; i++)
		if (ledger->blocks[i].rows.first == rows->first)
			return BLOCK_IS_COPY;
	if (!arrived && !block.missing)
		return BLOCK_IS_COPY;
	if (!clean || arrived + block.missing != range_rows(rows)) {
		ledger->unchecked += arrived;
		return BLOCK_UNCHECKED;
	}
	if (!block.missing)
		return block.sum ? BLOCK_DIFFERS : BLOCK_AGREES;
	if (ledger->block_count == BLOCKS_MAX) {
		ledger->unchecked += range_rows(&ledger->blocks[0].rows) - ledger->blocks[0].missing;
		remove_block(ledger, 0);
	}
	ledger->blocks[ledger->block_count++] = block;
	return BLOCK_WAITS;
}

/* Rows that arrived and that no CRC line has agreed with or contradicted. */
static uint64_t ledger_unchecked(const struct row_ledger *ledger)
{
	uint64_t rows = ledger->unchecked;

	for (size_t i = 0; i < ledger->span_count; i++)
		rows += range_rows(&ledger->spans[i].rows);
	for (size_t i = 0; i < ledger->block_count; i++)
		rows += range_rows(&ledger->blocks[i].rows) - ledger->blocks[i].missing;
	return rows;
}

/* ---- streams ---- */

#define FORMAT_VERSION 1

/* Of one read(2). */
#define READ_BYTES 65536

static const char other_version[] = "it is in another version of the format";

enum stream_phase { STREAM_NOTHING, STREAM_OPEN, STREAM_CLOSED };

struct stream_state {
	enum stream_phase phase;
	bool unreadable; /* of another version */
	bool start_known, has_row;
	wall_t start;
	bool checked;   /* there is a CRC line for every line */
	uint32_t adler; /* of all lines so far */
	struct parsed_row last_row;

	/* Since the last CRC line. */
	uint32_t adler_before;
	uint32_t lines_sum;
	uint64_t lines; /* that are neither rows nor CRC lines */
	uint64_t rows;

	struct columns columns;
};

/* STREAM_GVISOR: known descriptions that came again. */
struct repeated_headers {
	size_t count;
	unsigned char held[STREAM_COLUMNS_MAX]; /* which ones */
	uint32_t adler;                         /* of them alone */
};

struct stream_reader {
	struct stream_reader_events events;
	struct stream_reader_report report;
	int stopped; /* what an event returned */
	uint64_t streams_closed, streams_agreeing;
	uint64_t rows_unchecked; /* of streams before this one */
	struct stream_state stream;
	struct repeated_headers repeated;
	struct row_ledger rows; /* of this stream; not in its state, to be zeroed in parts */
	struct line_splitter lines;
	size_t text_len; /* of the line before, unless it was a row */
	char text[STREAM_LINE_MAX + 1];
};

static bool is_gvisor(const struct stream_reader *stream_reader)
{
	return stream_reader->lines.format == STREAM_GVISOR;
}

/* ---- what is wrong ---- */

static int tell_damage(struct stream_reader *stream_reader, uint64_t rows_lost, const char *why)
{
	const struct stream_reader_events *events = &stream_reader->events;

	return events->damage ? events->damage(events->ctx, stream_reader->lines.line, rows_lost, why) : 0;
}

static int damaged(void *ctx, const char *why)
{
	struct stream_reader *stream_reader = ctx;

	stream_reader->report.damaged_lines++;
	return tell_damage(stream_reader, 0, why);
}

/* A CRC is not that of the lines before it. */
static int crc_differs(struct stream_reader *stream_reader, const char *why)
{
	stream_reader->report.crc_differs++;
	return tell_damage(stream_reader, 0, why);
}

static int duplicate(struct stream_reader *stream_reader)
{
	stream_reader->report.duplicate_lines++;
	return 0;
}

/* ---- streams ---- */

/* Rows of the stream that were handed out and that no CRC line vouches for. */
static uint64_t rows_unchecked(const struct stream_reader *stream_reader)
{
	return stream_reader->stream.checked ? ledger_unchecked(&stream_reader->rows) : 0;
}

/* With the descriptions that turn out not to be repeated ones of the stream before. */
static void begin_stream(struct stream_reader *stream_reader)
{
	struct repeated_headers *repeated = &stream_reader->repeated;
	struct columns *columns = &stream_reader->stream.columns;
	struct held_description held[STREAM_COLUMNS_MAX];

	for (size_t i = 0; i < repeated->count; i++)
		held[i] = columns->held[repeated->held[i]];
	stream_reader->rows_unchecked += rows_unchecked(stream_reader);
	stream_reader->stream = (struct stream_state){ .phase = STREAM_OPEN,
						       .adler = CHECKSUM_ADLER32_EMPTY,
						       .adler_before = CHECKSUM_ADLER32_EMPTY };
	ledger_reset(&stream_reader->rows);
	if (repeated->count) {
		memcpy(columns->held, held, repeated->count * sizeof(held[0]));
		columns->held_count = repeated->count;
		stream_reader->stream.adler = repeated->adler;
		repeated->count = 0;
	}
	stream_reader->report.streams++;
	stream_reader->report.first_time_ns = 0;
	stream_reader->report.last_time_ns = 0;
}

/*
 * The overall checksum goes on over the line, its checksum and its newline (which may have become
 * something else).
 */
static void add_line(uint32_t *adler, const struct framed_line *line)
{
	*adler = checksum_adler32_combine(*adler, line->adler, line->len);
	*adler = checksum_adler32(*adler, line->content + line->len, line->framed_len - line->len);
	*adler = checksum_adler32(*adler, "\n", 1);
}

static void add_to_checksum(struct stream_reader *stream_reader, const struct framed_line *line)
{
	add_line(&stream_reader->stream.adler, line);
}

/* The descriptions that came again were copies. */
static void drop_repeated(struct stream_reader *stream_reader)
{
	stream_reader->report.duplicate_lines += stream_reader->repeated.count;
	stream_reader->repeated.count = 0;
}

static int learn_start(struct stream_reader *stream_reader, wall_t start)
{
	struct stream_state *stream = &stream_reader->stream;

	if (stream->start_known)
		return 0;
	stream->start_known = true;
	stream->start = start;
	return stream_reader->events.start_time ? stream_reader->events.start_time(stream_reader->events.ctx, start)
						: 0;
}

static int take_closing(struct stream_reader *stream_reader, const struct framed_line *line)
{
	struct stream_state *stream = &stream_reader->stream;

	drop_repeated(stream_reader);
	if (stream->phase == STREAM_CLOSED)
		return duplicate(stream_reader);
	if (stream->phase == STREAM_NOTHING)
		begin_stream(stream_reader);

	bool agrees = line->adler == stream->adler;
	if (!agrees && !line->ended)
		return damaged(stream_reader, "it is cut short");
	stream->phase = STREAM_CLOSED;
	stream_reader->streams_closed++;
	stream_reader->streams_agreeing += agrees;
	if (!agrees)
		return tell_damage(stream_reader, 0,
				   "the overall checksum differs: not every line was recovered in order");
	if (stream->checked && (stream->lines || stream_reader->rows.span_count))
		return crc_differs(stream_reader, "the CRC of the lines before it is missing");
	return 0;
}

/* ---- columns ---- */

static int tell_columns(struct stream_reader *stream_reader)
{
	const struct columns *columns = &stream_reader->stream.columns;
	const struct stream_reader_events *events = &stream_reader->events;
	int r = 0;

	for (size_t i = 0; !r && events->column && i < STREAM_COLUMNS_MAX; i++)
		if (columns->news >> i & 1)
			r = events->column(events->ctx, i, columns->names[i], columns->json[i]);
	return r;
}

static int take_meta(struct stream_reader *stream_reader, const char *text)
{
	if (!columns_describe(&stream_reader->stream.columns, stream_reader->lines.format, text))
		return damaged(stream_reader, "it describes no column");
	return tell_columns(stream_reader);
}

static int take_columns(struct stream_reader *stream_reader, const char *text)
{
	if (!columns_name(&stream_reader->stream.columns, stream_reader->lines.format, text))
		return damaged(stream_reader, "it names no columns");
	return tell_columns(stream_reader);
}

/* ---- rows ---- */

/* Numbers tell copies apart; without them, the same values at the same nanosecond. */
static bool is_copy(const struct stream_reader *stream_reader, const struct parsed_row *row)
{
	const struct stream_state *stream = &stream_reader->stream;
	const struct parsed_row *last = &stream->last_row;

	if (row->seq)
		return row->seq <= stream_reader->rows.highest && !is_missing(&stream_reader->rows, row->seq);
	return stream->has_row && row->time_ns == last->time_ns &&
	       memcmp(row->values, last->values, sizeof(row->values)) == 0;
}

static int tell_lost(struct stream_reader *stream_reader, uint64_t lost)
{
	uint64_t *sum = &stream_reader->report.rows_lost;

	if (!lost)
		return 0;
	if (__builtin_add_overflow(*sum, lost, sum))
		*sum = UINT64_MAX;
	return tell_damage(stream_reader, lost, "rows are missing before it");
}

static const char row_changed[] = "the CRC differs: a row that it covers was changed, and its checksum still agrees";

/* Not a copy. */
static int account_row(struct stream_reader *stream_reader, const struct framed_line *line, uint64_t seq)
{
	struct row_ledger *rows = &stream_reader->rows;
	int r = 0;

	if (seq == rows->highest + 1) {
		rows->highest = seq;
	} else {
		bool late = seq <= rows->highest;
		uint64_t lost = ledger_advance(rows, seq - 1);

		if (late)
			ledger_found(rows, seq);
		else
			rows->highest = seq;
		stream_reader->report.late_rows += late;
		stream_reader->report.rows_lost -= late;
		r = tell_lost(stream_reader, lost);
	}
	if (r || is_gvisor(stream_reader))
		return r;
	stream_reader->stream.rows++;
	uint32_t crc = checksum_crc32(CHECKSUM_CRC32_EMPTY, line->content, line->len);
	return ledger_check_row(rows, seq, crc) == BLOCK_DIFFERS ? crc_differs(stream_reader, row_changed) : 0;
}

static int hand_out_row(struct stream_reader *stream_reader, const struct parsed_row *row)
{
	struct stream_reader_report *report = &stream_reader->report;
	struct stream_state *stream = &stream_reader->stream;

	if (!stream->has_row || row->time_ns < report->first_time_ns)
		report->first_time_ns = row->time_ns;
	if (!stream->has_row || row->time_ns > report->last_time_ns)
		report->last_time_ns = row->time_ns;
	stream->has_row = true;
	if (is_gvisor(stream_reader))
		stream->last_row = *row;
	report->rows++;
	if (!stream_reader->events.row)
		return 0;
	return stream_reader->events.row(stream_reader->events.ctx, row->seq, row->time_ns, row->target, row->values,
					 row->mask);
}

static int take_row(struct stream_reader *stream_reader, const struct framed_line *line)
{
	struct stream_state *stream = &stream_reader->stream;
	struct parsed_row row;

	stream_reader->text_len = 0;
	drop_repeated(stream_reader);
	if (!row_parse(stream_reader->lines.format, line->content, line->len, &row))
		return damaged(stream_reader, "it is no row");
	if (is_copy(stream_reader, &row))
		return duplicate(stream_reader);
	if (stream->phase == STREAM_NOTHING ||
	    (stream->phase == STREAM_CLOSED && (!row.seq || row.seq > stream_reader->rows.highest)))
		begin_stream(stream_reader);
	add_to_checksum(stream_reader, line);

	if (stream->unreadable)
		return damaged(stream_reader, other_version);
	if (!columns_fit(&stream->columns, stream_reader->lines.format, row.columns))
		return damaged(stream_reader, "it does not have the columns of the stream");
	if (!row.seq)
		row.seq = stream_reader->rows.highest + 1;
	int r = tell_columns(stream_reader);
	if (!r)
		r = account_row(stream_reader, line, row.seq);
	return r ? r : hand_out_row(stream_reader, &row);
}

/* ---- headers and remarks: each function takes what follows the kind, terminated ---- */

/* The number behind a member of one of our own objects, which hold no spaces: {"column":3,…}. */
static bool json_number(const char *json, const char *member, uint64_t *ret)
{
	const char *p = strstr(json, member);

	return p && text_parse_u64(p + strlen(member), json + strlen(json), ret);
}

static bool parse_number(const char *text, uint64_t *ret)
{
	const char *end = text + strlen(text);

	return text_parse_u64(text, end, ret) == end;
}

/* start_ns means the same in every version, so that streams can be told apart. */
static int take_format(struct stream_reader *stream_reader, const char *json)
{
	struct stream_state *stream = &stream_reader->stream;
	uint64_t version, start, columns;
	int r = json_number(json, "\"start_ns\":", &start) ? learn_start(stream_reader, (wall_t){ start }) : 0;

	stream->unreadable = !json_number(json, "\"version\":", &version) || version != FORMAT_VERSION;
	if (stream->unreadable)
		return r ? r : damaged(stream_reader, other_version);
	if (!stream->columns.count && json_number(json, "\"columns\":", &columns) && columns <= STREAM_COLUMNS_MAX)
		stream->columns.count = columns;
	stream->checked |= strstr(json, STREAM_CRC_ANNOUNCED) != NULL;
	return r;
}

static int take_start_time(struct stream_reader *stream_reader, const char *text)
{
	uint64_t start;

	return parse_number(text, &start) ? learn_start(stream_reader, (wall_t){ start })
					  : damaged(stream_reader, "it is no time");
}

static int take_target(struct stream_reader *stream_reader, const char *text)
{
	const char *end = text + strlen(text), *p;
	uint64_t id;

	p = text_parse_u64(text, end, &id);
	if (!p || *p != '\t' || !id || id > UINT32_MAX)
		return damaged(stream_reader, "it declares no target");
	if (!stream_reader->events.target)
		return 0;
	return stream_reader->events.target(stream_reader->events.ctx, (uint32_t)id, p + 1, (size_t)(end - p - 1));
}

static int take_stats(struct stream_reader *stream_reader, const char *json)
{
	return stream_reader->events.stats ? stream_reader->events.stats(stream_reader->events.ctx, json, strlen(json))
					   : 0;
}

static int take_end(struct stream_reader *stream_reader, const char *text)
{
	uint64_t rows;

	if (!parse_number(text, &rows) || rows < stream_reader->rows.highest)
		return damaged(stream_reader, "it is no number of rows");
	return tell_lost(stream_reader, ledger_advance(&stream_reader->rows, rows));
}

/* All of it as it is written, because Adler-32 vouches for little; later versions may append members. */
static bool parse_block(const char *json, struct stream_block *ret)
{
	static const char *const names[] = { "{" STREAM_CRC_FIRST_ROW, "," STREAM_CRC_ROWS, "," STREAM_CRC_ROWS_SUM,
					     "," STREAM_CRC_LINES, "," STREAM_CRC_LINES_SUM };
	const char *end = json + strlen(json);
	uint64_t values[ARRAY_LEN(names)];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		size_t len = strlen(names[i]);

		if (strncmp(json, names[i], len) != 0)
			return false;
		json = text_parse_u64(json + len, end, &values[i]);
		if (!json)
			return false;
	}
	if ((strcmp(json, "}") != 0 && strncmp(json, ",\"", 2) != 0) || !values[0] ||
	    values[1] > UINT64_MAX - values[0] || values[2] > UINT32_MAX || values[4] > UINT32_MAX)
		return false;
	*ret = (struct stream_block){ .first_row = values[0],
				      .rows = values[1],
				      .rows_sum = (uint32_t)values[2],
				      .lines = values[3],
				      .lines_sum = (uint32_t)values[4] };
	return true;
}

static enum block_verdict check_rows(struct stream_reader *stream_reader, const struct stream_block *block)
{
	struct row_range rows = { block->first_row, block->first_row + block->rows - 1 };

	return block->rows ? ledger_check_block(&stream_reader->rows, &rows, block->rows_sum) : BLOCK_AGREES;
}

/*
 * All lines since the last CRC line are copies of some before it, so they are left out of the overall
 * checksum too.
 */
static int take_copied_block(struct stream_reader *stream_reader)
{
	struct stream_state *stream = &stream_reader->stream;

	if (!stream->rows) {
		stream->adler = stream->adler_before;
		stream_reader->report.duplicate_lines += stream->lines;
	}
	return duplicate(stream_reader);
}

static int check_lines(struct stream_reader *stream_reader, const struct stream_block *block)
{
	const struct stream_state *stream = &stream_reader->stream;

	if (stream->lines != block->lines)
		return crc_differs(stream_reader,
				   "the CRC differs: a header or a remark before it is missing, doubled or misplaced");
	if (stream->lines_sum != block->lines_sum)
		return crc_differs(stream_reader,
				   "the CRC differs: a header or a remark was changed, and its checksum still agrees");
	return 0;
}

static int take_crc(struct stream_reader *stream_reader, const char *json)
{
	struct stream_state *stream = &stream_reader->stream;
	struct stream_block block;
	int r;

	if (!parse_block(json, &block))
		return damaged(stream_reader, "it is no CRC");
	stream->checked = true;
	r = tell_lost(stream_reader, ledger_advance(&stream_reader->rows, block.first_row + block.rows - 1));

	enum block_verdict verdict = r ? BLOCK_WAITS : check_rows(stream_reader, &block);
	if (verdict == BLOCK_IS_COPY)
		r = take_copied_block(stream_reader);
	else if (verdict == BLOCK_DIFFERS)
		r = crc_differs(stream_reader, row_changed);
	else if (verdict == BLOCK_UNCHECKED)
		r = crc_differs(stream_reader,
				"rows before it cannot be checked: another line with their CRC is missing");
	else if (verdict == BLOCK_AGREES)
		r = check_lines(stream_reader, &block);
	stream->rows = stream->lines = 0;
	stream->lines_sum = 0;
	stream->adler_before = stream->adler;
	return r;
}

static int take_note(struct stream_reader *stream_reader, const char *text)
{
	size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
	const char *json = text + len + (text[len] == '\t');
	char kind[STREAM_KIND_MAX + 1];

	if (!len || len > STREAM_KIND_MAX || (text[len] && text[len] != '\t') || is_gvisor(stream_reader))
		return damaged(stream_reader, "it is of no known kind");
	memcpy(kind, text, len);
	kind[len] = '\0';
	return stream_reader->events.note
		       ? stream_reader->events.note(stream_reader->events.ctx, kind, json, strlen(json))
		       : 0;
}

/* once: two of them in a row are copies. */
struct kind {
	const char *name;
	int (*take)(struct stream_reader *stream_reader, const char *content);
	bool once;
};

// clang-format off
static const struct kind kinds[] = {
	{ "FORMAT",                 take_format,     true },
	{ "START_TIME",             take_start_time, true },
	{ "META",                   take_meta,       true },
	{ "TARGET",                 take_target,     true },
	{ "Seq\tTime (ns)\tTarget", take_columns,    true },
	{ "Time (ns)",              take_columns,    true },
	{ "END",                    take_end,        true },
	{ STREAM_CRC_KIND,          take_crc,        true },
	{ "STATS",                  take_stats,      false },
};
// clang-format on

static const struct kind *find_kind(const char *text)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t len = strlen(kinds[i].name);

		if (strncmp(text, kinds[i].name, len) == 0 && text[len] == '\t')
			return &kinds[i];
	}
	return NULL;
}

static bool begins_stream(const struct stream_reader *stream_reader, const struct kind *kind, const char *content)
{
	const struct stream_state *stream = &stream_reader->stream;
	uint64_t start, next_row = UINT64_MAX;

	if (stream->phase == STREAM_NOTHING)
		return true;
	if (is_gvisor(stream_reader) && (stream->phase == STREAM_CLOSED || stream_reader->repeated.count ||
					 (kind && kind->take == take_meta && stream->columns.named)))
		return true;
	if (kind && kind->take == take_format) {
		if (!json_number(content, "\"start_ns\":", &start))
			return false;
		json_number(content, "\"next_row\":", &next_row);
	} else if (!kind || kind->take != take_start_time || !parse_number(content, &start)) {
		return false;
	}
	if (stream->start_known)
		return start != stream->start.ns;
	if (next_row > 1 && is_missing(&stream_reader->rows, next_row))
		return false; /* it was misplaced */
	return stream->phase == STREAM_CLOSED || next_row <= stream_reader->rows.highest;
}

/*
 * STREAM_GVISOR, in an open stream: a header that is known. A column header or START_TIME behind all
 * descriptions is one only if there was the other one too.
 */
static bool is_header_again(struct stream_reader *stream_reader, const struct kind *kind, const char *content,
			    const struct framed_line *line)
{
	const struct stream_state *stream = &stream_reader->stream;
	struct repeated_headers *repeated = &stream_reader->repeated;
	bool all = repeated->count && repeated->count == stream->columns.held_count;
	uint64_t start;

	if (kind && kind->take == take_meta) {
		size_t held = find_held(&stream->columns, content);

		if (held == stream->columns.held_count)
			return false;
		if (!stream->columns.named || repeated->count == STREAM_COLUMNS_MAX) {
			stream_reader->report.duplicate_lines++;
			return true;
		}
		if (!repeated->count)
			repeated->adler = CHECKSUM_ADLER32_EMPTY;
		repeated->held[repeated->count++] = (unsigned char)held;
		add_line(&repeated->adler, line);
		return true;
	}
	bool known = kind && kind->take == take_columns && !all && columns_are(&stream->columns, content);
	if (kind && kind->take == take_start_time && parse_number(content, &start))
		known = stream->start_known ? start == stream->start.ns : !all && repeated->count;
	if (known || !kind || (kind->take != take_columns && kind->take != take_start_time))
		drop_repeated(stream_reader);
	stream_reader->report.duplicate_lines += known;
	return known;
}

/* Behind the closing line there are copies; or what it overtook, as long as rows are missing. */
static bool is_over(const struct stream_reader *stream_reader, const struct kind *kind)
{
	return stream_reader->stream.phase == STREAM_CLOSED &&
	       (!stream_reader->rows.missing_count || !kind || !kind->once);
}

static int take_text(struct stream_reader *stream_reader, const struct framed_line *line)
{
	char *text = stream_reader->text;

	if (memchr(line->content, '\0', line->len))
		return damaged(stream_reader, "it holds a NUL");
	bool copy = line->len == stream_reader->text_len && memcmp(text, line->content, line->len) == 0;
	memcpy(text, line->content, line->len);
	text[line->len] = '\0';
	stream_reader->text_len = line->len;

	const struct kind *kind = find_kind(text);
	if (copy && kind && kind->once)
		return duplicate(stream_reader);
	const char *content = kind ? text + strlen(kind->name) + 1 : text;
	if (is_gvisor(stream_reader) && stream_reader->stream.phase == STREAM_OPEN &&
	    is_header_again(stream_reader, kind, content, line))
		return 0;
	if (begins_stream(stream_reader, kind, content))
		begin_stream(stream_reader);
	if (is_over(stream_reader, kind))
		return duplicate(stream_reader);
	add_to_checksum(stream_reader, line);
	if (!kind || kind->take != take_crc) {
		stream_reader->stream.lines++;
		stream_reader->stream.lines_sum += checksum_crc32(CHECKSUM_CRC32_EMPTY, line->content, line->len);
	}

	if (stream_reader->stream.unreadable && !(kind && kind->take == take_format))
		return damaged(stream_reader, other_version);
	return kind ? kind->take(stream_reader, content) : take_note(stream_reader, text);
}

static int take_line(void *ctx, const struct framed_line *line)
{
	struct stream_reader *stream_reader = ctx;

	if (line->closing)
		return take_closing(stream_reader, line);
	if (line->len && *line->content >= '0' && *line->content <= '9')
		return take_row(stream_reader, line);
	return take_text(stream_reader, line);
}

/* ---- life ---- */

int stream_reader_new(const struct stream_reader_events *events, struct stream_reader **ret)
{
	struct stream_reader *stream_reader = calloc(1, sizeof(*stream_reader));

	if (!stream_reader)
		return -ENOMEM;
	stream_reader->events = *events;
	lines_init(&stream_reader->lines, &(struct line_events){ take_line, damaged, stream_reader });
	*ret = stream_reader;
	return 0;
}

/* A piece of the input, of any size. 0 or what an event returned. */
static int feed_reader(struct stream_reader *stream_reader, const char *data, size_t len)
{
	if (!stream_reader->stopped)
		stream_reader->stopped = lines_feed(&stream_reader->lines, data, len);
	return stream_reader->stopped;
}

int stream_read_fd(struct stream_reader *stream_reader, int fd, uint64_t max)
{
	const struct stream_reader_events *events = &stream_reader->events;
	AUTO_FREE char *piece = malloc(READ_BYTES);

	if (!piece)
		return -ENOMEM;
	while (max > 0) {
		ssize_t len = read(fd, piece, max < READ_BYTES ? max : READ_BYTES);

		if (len < 0 && errno == EINTR)
			continue;
		if (len <= 0)
			return len < 0 ? -errno : 0;
		int r = feed_reader(stream_reader, piece, (size_t)len);
		if (r != 0)
			return r;
		if (events->progress)
			events->progress(events->ctx, (uint64_t)len);
		max -= (uint64_t)len;
	}
	return 0;
}

int stream_reader_finish(struct stream_reader *stream_reader, struct stream_reader_report *ret)
{
	struct stream_reader_report *report = &stream_reader->report;

	if (!stream_reader->stopped)
		stream_reader->stopped = lines_finish(&stream_reader->lines);
	drop_repeated(stream_reader);
	report->format = stream_reader->lines.format;
	report->ours = stream_reader->lines.prefix_seen;
	report->lines = stream_reader->lines.line;
	report->adler = stream_reader->stream.adler;
	report->foreign_lines = stream_reader->lines.foreign_lines;
	report->columns = stream_reader->stream.columns.count;
	report->rows_unchecked = stream_reader->rows_unchecked + rows_unchecked(stream_reader);
	report->complete = report->streams && stream_reader->streams_closed == report->streams;
	report->checksum_ok = report->complete && stream_reader->streams_agreeing == report->streams;
	*ret = *report;
	return stream_reader->stopped;
}

void stream_reader_free(struct stream_reader *stream_reader)
{
	free(stream_reader);
}

/*
 * Behind the last newline, before which the number of rows may already be; 0: there is none within
 * the length of a line. -errno.
 */
static off_t find_end(int fd, char *piece, bool *ret_counted)
{
	off_t size = lseek(fd, 0, SEEK_END);
	off_t from = size > STREAM_LINE_MAX ? size - STREAM_LINE_MAX : 0;
	ssize_t len = size < 0 ? -1 : pread(fd, piece, STREAM_LINE_MAX, from);
	const char *newline;

	if (len < 0)
		return -errno;
	newline = memrchr(piece, '\n', (size_t)len);

	if (!newline)
		return 0;
	*ret_counted = memmem(piece, (size_t)(newline - piece), STREAM_PREFIX "END\t", strlen(STREAM_PREFIX "END\t"));

	return from + (newline - piece) + 1;
}

/* Reads the file up to end. 0; -errno; -EIO: it is shorter by now. */
static int read_up_to(struct stream_reader *stream_reader, int fd, off_t end)
{
	if (lseek(fd, 0, SEEK_SET) < 0)
		return -errno;

	int r = stream_read_fd(stream_reader, fd, (uint64_t)end);
	return r == 0 && lseek(fd, 0, SEEK_CUR) != end ? -EIO : r;
}

static bool is_closable(const struct stream_reader_report *report)
{
	return report->ours && report->streams == 1 && !report->complete && report->format == STREAM_SPIKEWATCH &&
	       report->damaged_lines == 0 && report->duplicate_lines == 0 && report->foreign_lines == 0 &&
	       report->rows_lost == 0 && report->crc_differs == 0;
}

/* The last CRC line covers what was written since the one before. */
static int append_end(int fd, const struct stream_reader *stream_reader, bool counted)
{
	const struct stream_state *stream = &stream_reader->stream;
	const struct row_ledger *rows = &stream_reader->rows;
	struct stream_rest rest = {
		.adler = stream->adler,
		.checked = stream->checked,
		.block = { .first_row = rows->highest + 1 - stream->rows,
			   .rows = stream->rows,
			   .rows_sum = rows->span_count ? rows->spans[0].sum : 0,
			   .lines = stream->lines,
			   .lines_sum = stream->lines_sum },
		.rows = rows->highest,
		.counted = counted,
	};

	return stream_rest_close(&rest, sink_fd(&fd));
}

int stream_repair(int fd)
{
	static const struct stream_reader_events nothing;
	AUTO(stream_reader_freep) struct stream_reader *stream_reader = NULL;
	AUTO_FREE char *piece = malloc(STREAM_LINE_MAX);
	struct stream_reader_report report;
	bool counted = false;
	off_t end = piece ? find_end(fd, piece, &counted) : -ENOMEM;
	int r = end < 0 ? (int)end : stream_reader_new(&nothing, &stream_reader);

	if (r == 0)
		r = read_up_to(stream_reader, fd, end);
	if (r == 0)
		r = stream_reader_finish(stream_reader, &report);
	if (r < 0)
		return r;
	if (!is_closable(&report))
		return STREAM_REPAIR_LEFT;
	if (ftruncate(fd, end) < 0 || lseek(fd, end, SEEK_SET) < 0)
		return -errno;

	return append_end(fd, stream_reader, counted);
}
