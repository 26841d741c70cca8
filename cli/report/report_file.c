/*
 * report_file.c: marks and base64.
 *
 * Lines that begin as a mark does are read strictly, in the one form in which they are written:
 * anything else is damage, except for CR LF, which mail programs make of ends of lines. Rejected: a
 * parser of HTML, since a page saved by an HTML editor no longer holds the files bit for bit.
 */
#include "cli/report/report_file.h"

#include "lib/base/compress.h"
#include "lib/base/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FORMAT 1

#define MARK "<script type=\"application/octet-stream;base64\" data-spikewatch=\""
#define CLOSE "</script>"
#define MARK_MAX 512

_Static_assert(sizeof(MARK) + MANIFEST_NAME_MAX + REPORT_FILE_INCIDENT_MAX + 100 < MARK_MAX, "room for a mark");

/* ---- base64 ---- */

#define BASE64_LINE 76 /* letters */
#define BASE64_LINE_BYTES (BASE64_LINE / 4 * 3)
#define BASE64_PIECE 3072 /* decoded bytes are appended so many at a time */

static const char letters[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static void encode_group(char out[static 4], const unsigned char *data, size_t len)
{
	uint32_t bits = (uint32_t)data[0] << 16 | (len > 1 ? (uint32_t)data[1] << 8 : 0) | (len > 2 ? data[2] : 0u);

	out[0] = letters[bits >> 18];
	out[1] = letters[bits >> 12 & 63];
	out[2] = len > 1 ? letters[bits >> 6 & 63] : '=';
	out[3] = len > 2 ? letters[bits & 63] : '=';
}

/* Lines as in RFC 4648, section 4; nothing for no bytes. 0 or what the sink returned. */
static int base64_write(const struct sink *sink, const void *data, size_t len)
{
	const unsigned char *at = data;

	while (len > 0) {
		char line[BASE64_LINE + 1];
		size_t take = len < BASE64_LINE_BYTES ? len : BASE64_LINE_BYTES, used = 0;
		int rc;

		for (size_t i = 0; i < take; i += 3, used += 4)
			encode_group(line + used, at + i, take - i);
		line[used++] = '\n';
		rc = sink_write(sink, line, used);
		if (rc < 0)
			return rc;
		at += take;
		len -= take;
	}
	return 0;
}

/* -1: no letter. */
static int letter_value(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool is_white_space(char c)
{
	return c == '\n' || c == '\r' || c == ' ' || c == '\t';
}

/* Four letters, as far as they were read. */
struct base64_group {
	uint32_t bits;
	unsigned letters, padding;
};

static bool base64_take_letter(struct base64_group *group, char c)
{
	int value = letter_value(c);

	if (c == '=') {
		if (group->letters < 2 || group->letters + group->padding >= 4)
			return false;
		group->padding++;
		return true;
	}
	if (value < 0 || group->padding > 0)
		return false;
	group->bits = group->bits << 6 | (uint32_t)value;
	group->letters++;
	return true;
}

/* How many bytes a whole group stands for: one to three; 0: unused bits are set. */
static size_t decode_group(const struct base64_group *group, unsigned char out[static 3])
{
	uint32_t bits = group->bits << 6 * group->padding;

	out[0] = (unsigned char)(bits >> 16);
	out[1] = (unsigned char)(bits >> 8);
	out[2] = (unsigned char)bits;
	if ((group->padding > 0 && out[2]) || (group->padding > 1 && out[1]))
		return 0;
	return 3 - group->padding;
}

/*
 * Appends what text stands for; white space is skipped. 0; -EBADMSG: other letters, padding at the
 * wrong place, or unused bits that are not zero; -ENOMEM; -EFBIG beyond buffer->max. After an error
 * a part may have been appended.
 */
static int base64_read(const char *text, size_t len, struct buffer *buffer)
{
	struct base64_group group = { .letters = 0 };
	unsigned char piece[BASE64_PIECE];
	size_t used = 0;
	bool ended = false;
	int rc;

	for (size_t i = 0; i < len; i++) {
		size_t count;

		if (is_white_space(text[i]))
			continue;
		if (ended || !base64_take_letter(&group, text[i]))
			return -EBADMSG;
		if (group.letters + group.padding < 4)
			continue;
		count = decode_group(&group, piece + used);
		if (count == 0)
			return -EBADMSG;
		ended = group.padding > 0;
		group = (struct base64_group){ .letters = 0 };
		used += count;
		if (used > sizeof(piece) - 3) {
			rc = buffer_append(buffer, piece, used);
			if (rc < 0)
				return rc;
			used = 0;
		}
	}
	if (group.letters > 0)
		return -EBADMSG;
	return used > 0 ? buffer_append(buffer, piece, used) : 0;
}

/* ---- into a page ---- */

__attribute__((format(printf, 2, 3))) static int write_line(const struct sink *sink, const char *format, ...)
{
	char line[MARK_MAX];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	return sink_write(sink, line, (size_t)len);
}

/* The letters of manifest_name_ok, but longer. */
static bool incident_ok(const char *name, size_t len)
{
	if (len == 0 || len > REPORT_FILE_INCIDENT_MAX || name[0] == '.')
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = name[i];

		if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_' &&
		    c != '.' && c != '-')
			return false;
	}
	return true;
}

int report_file_begin(const struct sink *sink, const char *incident)
{
	return write_line(sink, "\n" MARK "begin\" data-format=\"%d\" data-incident=\"%s\">" CLOSE "\n", FORMAT,
			  incident_ok(incident, strlen(incident)) ? incident : "");
}

int report_file_put(const struct sink *sink, const char *name, const void *data, size_t len)
{
	int rc;

	if (!manifest_name_ok(name))
		return -EINVAL;
	rc = write_line(sink, MARK "file\" data-name=\"%s\" data-bytes=\"%zu\" data-crc32=\"%08x\">\n", name, len,
			checksum_crc32(CHECKSUM_CRC32_EMPTY, data, len));
	if (rc < 0)
		return rc;
	rc = base64_write(sink, data, len);
	return rc < 0 ? rc : write_line(sink, CLOSE "\n");
}

int report_file_end(const struct sink *sink, uint64_t count)
{
	return write_line(sink, MARK "end\" data-files=\"%ju\">" CLOSE "\n", (uintmax_t)count);
}

/* ---- out of a page ---- */

struct span {
	const char *at, *end;
};

/* Moves behind literal, if it stands there. */
static bool skip_literal(struct span *span, const char *literal)
{
	size_t len = strlen(literal);

	if ((size_t)(span->end - span->at) < len || memcmp(span->at, literal, len) != 0)
		return false;
	span->at += len;
	return true;
}

static bool take_number(struct span *span, uint64_t *ret)
{
	const char *end = text_parse_u64(span->at, span->end, ret);

	if (!end)
		return false;
	span->at = end;
	return true;
}

static bool take_crc32(struct span *span, uint32_t *ret)
{
	const char *end = span->end - span->at > 8 ? span->at + 8 : span->end;
	uint64_t value;

	if (text_parse_hex(span->at, end, &value) != end || end - span->at != 8)
		return false;
	span->at = end;
	*ret = (uint32_t)value;
	return true;
}

/* Length up to the quote; 0: there is none. */
static size_t until_quote(const struct span *span)
{
	const char *quote = memchr(span->at, '"', (size_t)(span->end - span->at));

	return quote ? (size_t)(quote - span->at) : 0;
}

static bool take_name(struct span *span, char ret[static MANIFEST_NAME_MAX + 1])
{
	size_t len = until_quote(span);

	if (len == 0 || len > MANIFEST_NAME_MAX || memchr(span->at, '\0', len))
		return false;
	memcpy(ret, span->at, len);
	ret[len] = '\0';
	span->at += len;
	return manifest_name_ok(ret);
}

/* Moves behind the next mark at the beginning of a line. False: there is none. */
static bool find_mark(struct report_file *files)
{
	static const size_t len = sizeof(MARK) - 1;

	while (files->at < files->end) {
		const char *newline =
			files->at[0] == '\n' ? files->at : memchr(files->at, '\n', (size_t)(files->end - files->at));
		const char *line = newline ? newline + 1 : files->end;

		files->at = line;
		if ((size_t)(files->end - line) >= len && memcmp(line, MARK, len) == 0) {
			files->at = line + len;
			return true;
		}
	}
	return false;
}

static bool skip_newline(struct span *span)
{
	skip_literal(span, "\r");
	return skip_literal(span, "\n");
}

/* The text from the walk's position on. */
static struct span rest_of(const struct report_file *files)
{
	return (struct span){ files->at, files->end };
}

int report_file_start(struct report_file *files, const char *text, size_t len)
{
	struct span span;
	uint64_t format;
	size_t name;

	*files = (struct report_file){ .at = text, .end = text + len };
	if (!find_mark(files))
		return -ENOENT;
	span = rest_of(files);
	if (!skip_literal(&span, "begin\" data-format=\"") || !take_number(&span, &format))
		return -ENOENT;
	if (format != FORMAT)
		return -EPROTONOSUPPORT;
	if (!skip_literal(&span, "\" data-incident=\""))
		return 0;
	name = until_quote(&span);
	if (incident_ok(span.at, name)) {
		memcpy(files->incident, span.at, name);
		files->incident[name] = '\0';
	}
	return 0;
}

static int read_end_mark(const struct report_file *files, struct span span)
{
	uint64_t count;

	if (!take_number(&span, &count) || !skip_literal(&span, "\">" CLOSE) || count != files->count)
		return -ENODATA;
	return REPORT_FILE_END;
}

/* A file ends at the first "<", which base64 does not have. */
static int read_file_mark(struct report_file *files, struct span span, struct report_file_entry *ret)
{
	struct report_file_entry entry;
	const char *close;

	files->count++;
	if (!take_name(&span, entry.name) || !skip_literal(&span, "\" data-bytes=\"") ||
	    !take_number(&span, &entry.size_bytes) || !skip_literal(&span, "\" data-crc32=\"") ||
	    !take_crc32(&span, &entry.crc32) || !skip_literal(&span, "\">") || !skip_newline(&span))
		return -EBADMSG;
	close = memchr(span.at, '<', (size_t)(span.end - span.at));
	if (!close)
		return -EBADMSG;
	entry.text = span.at;
	entry.text_len = (size_t)(close - span.at);
	span.at = close;
	if (!skip_literal(&span, CLOSE))
		return -EBADMSG;
	/* The next mark is searched for from a newline. */
	files->at = span.at;
	*ret = entry;
	return 0;
}

int report_file_next(struct report_file *files, struct report_file_entry *ret)
{
	struct span span;

	if (!find_mark(files))
		return -ENODATA;
	span = rest_of(files);
	if (skip_literal(&span, "end\" data-files=\""))
		return read_end_mark(files, span);
	if (skip_literal(&span, "file\" data-name=\""))
		return read_file_mark(files, span, ret);
	files->count++;
	return -EBADMSG;
}

int report_file_get(const struct report_file_entry *entry, struct buffer *buffer)
{
	size_t before = buffer->len;
	int rc;

	/* Memory is bounded by what is there, not by what the mark says. */
	if (entry->size_bytes > entry->text_len)
		return -EBADMSG;
	rc = base64_read(entry->text, entry->text_len, buffer);
	if (rc < 0)
		return rc;
	if (buffer->len - before != entry->size_bytes ||
	    checksum_crc32(CHECKSUM_CRC32_EMPTY, buffer->data ? buffer->data + before : "", buffer->len - before) !=
		    entry->crc32)
		return -EBADMSG;
	return 0;
}
