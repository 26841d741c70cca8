/*
 * reportfile.c: the page is searched for lines that begin in one particular way. A mark is read strictly, in the one form in which it is
 * written: anything else is damage. The page may have been through programs that end lines with CR LF.
 *
 * Rejected: a parser of HTML. The page is ours, and what has been changed by an editor of HTML is not bit for bit any more.
 */
#include "reportfile.h"

#include "base64.h"
#include "checksum.h"
#include "text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MARK "<script type=\"application/octet-stream;base64\" data-spikewatch=\""
#define CLOSE "</script>"
#define HEAD_MAX 512 /* no mark is longer */

_Static_assert(sizeof(MARK) + MANIFEST_NAME_MAX + REPORTFILE_INCIDENT_MAX + 100 < HEAD_MAX, "room for a mark");

/* ---- into a page ---- */

__attribute__((format(printf, 2, 3))) static int put_line(const struct sink *sink, const char *format, ...)
{
	char line[HEAD_MAX];
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
	if (len == 0 || len > REPORTFILE_INCIDENT_MAX || name[0] == '.')
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = name[i];

		if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '_' &&
		    c != '.' && c != '-')
			return false;
	}
	return true;
}

int reportfile_begin(const struct sink *sink, const char *incident)
{
	return put_line(sink, "\n" MARK "begin\" data-format=\"%d\" data-incident=\"%s\">" CLOSE "\n",
			REPORTFILE_FORMAT, incident_ok(incident, strlen(incident)) ? incident : "");
}

int reportfile_put(const struct sink *sink, const char *name, const void *data, size_t len)
{
	int rc;

	if (!manifest_name_ok(name))
		return -EINVAL;
	rc = put_line(sink, MARK "file\" data-name=\"%s\" data-bytes=\"%zu\" data-crc32=\"%08x\">\n", name, len,
		      checksum_crc32(CHECKSUM_CRC32_EMPTY, data, len));
	if (rc < 0)
		return rc;
	rc = base64_write(sink, data, len);
	return rc < 0 ? rc : put_line(sink, CLOSE "\n");
}

int reportfile_end(const struct sink *sink, uint64_t count)
{
	return put_line(sink, MARK "end\" data-files=\"%ju\">" CLOSE "\n", (uintmax_t)count);
}

/* ---- out of it ---- */

/* A piece of text that is being read. */
struct span {
	const char *at, *end;
};

/* Moves behind literal, if it stands there. */
static bool skip(struct span *span, const char *literal)
{
	size_t len = strlen(literal);

	if ((size_t)(span->end - span->at) < len || memcmp(span->at, literal, len) != 0)
		return false;
	span->at += len;
	return true;
}

static bool take_u64(struct span *span, uint64_t *ret)
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

/* Up to the quote, which is left. */
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

/* Searches for a mark at the beginning of a line, and moves behind it. False: there is none any more. */
static bool find_mark(struct reportfile *files)
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
	skip(span, "\r");
	return skip(span, "\n");
}

/* What stands behind a mark's first word; the rest of the text. */
static struct span rest(const struct reportfile *files)
{
	return (struct span){ files->at, files->end };
}

int reportfile_start(struct reportfile *files, const char *text, size_t len)
{
	struct span span;
	uint64_t format;
	size_t name;

	*files = (struct reportfile){ .at = text, .end = text + len };
	if (!find_mark(files))
		return -ENOENT;
	span = rest(files);
	if (!skip(&span, "begin\" data-format=\"") || !take_u64(&span, &format))
		return -ENOENT;
	if (format != REPORTFILE_FORMAT)
		return -EPROTONOSUPPORT;
	if (!skip(&span, "\" data-incident=\""))
		return 0;
	name = until_quote(&span);
	if (incident_ok(span.at, name)) {
		memcpy(files->incident, span.at, name);
		files->incident[name] = '\0';
	}
	return 0;
}

/* The end mark. */
static int read_end(const struct reportfile *files, struct span span)
{
	uint64_t count;

	if (!take_u64(&span, &count) || !skip(&span, "\">" CLOSE) || count != files->count)
		return -ENODATA;
	return REPORTFILE_END;
}

/* Nothing of base64 has a "<". */
static int read_file(struct reportfile *files, struct span span, struct reportfile_entry *ret)
{
	struct reportfile_entry entry;
	const char *close;

	files->count++;
	if (!take_name(&span, entry.name) || !skip(&span, "\" data-bytes=\"") || !take_u64(&span, &entry.size_bytes) ||
	    !skip(&span, "\" data-crc32=\"") || !take_crc32(&span, &entry.crc32) || !skip(&span, "\">") ||
	    !skip_newline(&span))
		return -EBADMSG;
	close = memchr(span.at, '<', (size_t)(span.end - span.at));
	if (!close)
		return -EBADMSG;
	entry.text = span.at;
	entry.text_len = (size_t)(close - span.at);
	span.at = close;
	if (!skip(&span, CLOSE))
		return -EBADMSG;
	/* A newline before the next mark is where it is searched from. */
	files->at = span.at;
	*ret = entry;
	return 0;
}

int reportfile_next(struct reportfile *files, struct reportfile_entry *ret)
{
	struct span span;

	if (!find_mark(files))
		return -ENODATA;
	span = rest(files);
	if (skip(&span, "end\" data-files=\""))
		return read_end(files, span);
	if (skip(&span, "file\" data-name=\""))
		return read_file(files, span, ret);
	files->count++;
	return -EBADMSG;
}

int reportfile_get(const struct reportfile_entry *entry, struct buffer *buffer)
{
	size_t before = buffer->len;
	int rc;

	/* The letters say how much memory is asked for, not the number. */
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
