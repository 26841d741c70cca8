/*
 * A line of the input may hold anything: a logger's own prefix before ours, two lines of ours that lost the
 * newline between them, a foreign line that never ends. So the prefix is searched everywhere. From the first
 * one on, the line is tried as a whole; if its checksum does not agree, it is tried in parts, each up to the
 * next prefix. Both passes are linear, so no input is slow.
 *
 * Complete lines are examined where they lie. What is left of a piece of input is kept, up to one line of the
 * greatest legal length; when that is full, everything before the last place where a line of ours can still
 * begin is given up.
 */
#include "salvage_lines.h"

#include "checksum.h"
#include "text.h"

#include <string.h>

#define PREFIX_LEN_MAX (sizeof(STREAM_PREFIX_GVISOR) - 1)

_Static_assert(sizeof(STREAM_PREFIX) <= sizeof(STREAM_PREFIX_GVISOR), "the longer of the prefixes");

static const char *const prefixes[] = { [STREAM_SPIKEWATCH] = STREAM_PREFIX, [STREAM_GVISOR] = STREAM_PREFIX_GVISOR };

void salvage_lines_init(struct salvage_lines *lines, const struct salvage_lines_events *events)
{
	memset(lines, 0, offsetof(struct salvage_lines, data));
	lines->events = *events;
}

/* The first prefix in [p, end): NULL, or where it is and of which format. */
static const char *find_prefix(const struct salvage_lines *lines, const char *p, const char *end,
			       enum stream_format *ret_format)
{
	const char *first = NULL;

	for (enum stream_format f = STREAM_SPIKEWATCH; f <= STREAM_GVISOR; f++) {
		size_t len = strlen(prefixes[f]);

		if ((lines->format_known && f != lines->format) || (size_t)(end - p) < len)
			continue;
		const char *found =
			memcmp(p, prefixes[f], len) == 0 ? p : memmem(p, (size_t)(end - p), prefixes[f], len);
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

/* Reads "content\t0x5fe4a3d1". NULL: it is whole; else what is wrong with it. */
static const char *verify(const char *p, const char *end, struct salvage_line *ret)
{
	size_t mark_len = strlen(STREAM_CHECKSUM_MARK), closing_len = strlen(STREAM_CLOSING);
	size_t len = (size_t)(end - p);
	uint32_t adler;

	if (len > closing_len && memcmp(p, STREAM_CLOSING, closing_len) == 0) {
		if (!parse_checksum(p + closing_len, end, &adler))
			return "the overall checksum is not a number";
		*ret = (struct salvage_line){
			.content = p, .len = len, .framed_len = len, .adler = adler, .closing = true
		};
		return NULL;
	}

	const char *mark = memrchr(p, '\t', len);
	if (!mark || (size_t)(end - mark) <= mark_len || memcmp(mark, STREAM_CHECKSUM_MARK, mark_len) != 0 ||
	    !parse_checksum(mark + mark_len, end, &adler))
		return "no checksum at its end";
	if (checksum_adler32(CHECKSUM_ADLER32_EMPTY, p, (size_t)(mark - p)) != adler)
		return "its checksum differs";
	*ret = (struct salvage_line){ .content = p, .len = (size_t)(mark - p), .framed_len = len, .adler = adler };
	return NULL;
}

static int hand_out(struct salvage_lines *lines, enum stream_format format, struct salvage_line *line, bool ended)
{
	line->ended = ended;
	lines->format = format;
	lines->format_known = true;
	return lines->events.line(lines->events.ctx, line);
}

/* [p, end) begins with a prefix. Hands out each line of ours in it. */
static int take_parts(struct salvage_lines *lines, const char *p, const char *end, bool ended)
{
	enum stream_format format, next_format;
	struct salvage_line line;
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
static int take(struct salvage_lines *lines, const char *p, const char *end, bool ended)
{
	enum stream_format format;
	struct salvage_line line;

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

static void keep_from(struct salvage_lines *lines, const char *p)
{
	lines->len -= (size_t)(p - lines->data);
	memmove(lines->data, p, lines->len);
}

/*
 * No newline within the greatest legal length: takes the parts that are complete and gives up what cannot be
 * part of a line of ours any more. What stays begins at the last prefix, so that many prefixes without newline
 * are not moved again and again.
 */
static int make_room(struct salvage_lines *lines)
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

static int keep(struct salvage_lines *lines, const char *data, size_t len)
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
static int end_line(struct salvage_lines *lines, const char *p, const char *end, bool ended)
{
	int r = take(lines, p, end, ended);

	lines->foreign_lines += lines->foreign_text && !lines->prefixed;
	lines->inside = lines->prefixed = lines->foreign_text = false;
	lines->len = 0;
	return r;
}

int salvage_lines_feed(struct salvage_lines *lines, const char *data, size_t len)
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

int salvage_lines_finish(struct salvage_lines *lines)
{
	return lines->inside ? end_line(lines, lines->data, lines->data + lines->len, false) : 0;
}
