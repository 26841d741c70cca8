/*
 * Lines are composed in place, at the end of one buffer that goes to the sink in one write when it is full:
 *
 *     begin (prefix) ──▶ the caller puts the content ──▶ end (checksum, newline)
 *
 * The overall checksum covers the lines without their prefixes, so it cannot be taken over the buffer as a whole. It is
 * not computed a second time either: the checksum of each content is combined into it.
 *
 * The buffer has room for one ordinary line beyond flush_bytes. Only a longer one makes it grow, and it never
 * shrinks, so a line that was put once can be put again without memory.
 */
#include "stream_lines.h"

#include "checksum.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Empty line, prefix, checksum (its digits take up whole words), newline, empty line. */
#define LINE_FRAME 64

_Static_assert(sizeof("\n" STREAM_PREFIX_GVISOR STREAM_CHECKSUM_MARK "\n\n") + TEXT_NUMBER_ROOM <= LINE_FRAME,
	       "the frame of a line fits");

static char *put_bytes(char *out, const char *data, size_t len)
{
	memcpy(out, data, len);
	return out + len;
}

static int grow(struct stream_lines *lines, size_t cap)
{
	char *data = realloc(lines->data, cap);

	if (!data)
		return -ENOMEM;
	lines->data = data;
	lines->cap = cap;
	return 0;
}

int stream_lines_init(struct stream_lines *lines, struct sink sink, const char *prefix, size_t flush_bytes, size_t room)
{
	*lines = (struct stream_lines){
		.sink = sink,
		.prefix = prefix,
		.prefix_len = strlen(prefix),
		.flush_bytes = flush_bytes,
		.adler = CHECKSUM_ADLER32_EMPTY,
	};
	return grow(lines, flush_bytes + room + LINE_FRAME);
}

void stream_lines_release(struct stream_lines *lines)
{
	free(lines->data);
	lines->data = NULL;
}

int stream_lines_flush(struct stream_lines *lines)
{
	if (!lines->len) /* always so after an error */
		return lines->error;

	lines->data[lines->len++] = '\n';
	lines->error = sink_write(&lines->sink, lines->data, lines->len);
	lines->flushed_bytes += lines->len;
	lines->len = 0;
	return lines->error;
}

/* Room for a line at the end of the buffer. */
static int reserve(struct stream_lines *lines, size_t bytes)
{
	if (bytes > STREAM_LINE_MAX)
		return -EINVAL;
	if (lines->len + bytes <= lines->cap)
		return 0;

	int r = stream_lines_flush(lines);
	return r || bytes <= lines->cap ? r : grow(lines, bytes);
}

int stream_lines_begin(struct stream_lines *lines, size_t room, char **ret)
{
	int r = lines->error ? lines->error : reserve(lines, room + LINE_FRAME);

	if (r < 0)
		return r;
	char *p = lines->data + lines->len;
	if (!lines->len)
		*p++ = '\n';
	p = put_bytes(p, lines->prefix, lines->prefix_len);
	lines->content = (size_t)(p - lines->data);
	*ret = p;
	return 0;
}

int stream_lines_end(struct stream_lines *lines, char *end)
{
	const char *content = lines->data + lines->content;
	size_t len = (size_t)(end - content);
	uint32_t adler = checksum_adler32(CHECKSUM_ADLER32_EMPTY, content, len);
	char *p = text_put_hex(put_bytes(end, STREAM_CHECKSUM_MARK, strlen(STREAM_CHECKSUM_MARK)), adler);

	*p++ = '\n';
	lines->adler = checksum_adler32_combine(lines->adler, adler, len);
	lines->adler = checksum_adler32(lines->adler, end, (size_t)(p - end));
	lines->len = (size_t)(p - lines->data);
	return lines->len < lines->flush_bytes ? 0 : stream_lines_flush(lines);
}

int stream_lines_put(struct stream_lines *lines, const char *content, size_t len)
{
	char *p;
	int r = stream_lines_begin(lines, len, &p);

	return r < 0 ? r : stream_lines_end(lines, put_bytes(p, content, len));
}

int stream_lines_close(struct stream_lines *lines)
{
	char *p;
	int r = stream_lines_begin(lines, strlen(STREAM_CLOSING), &p);

	if (r < 0)
		return r;
	p = text_put_hex(put_bytes(p, STREAM_CLOSING, strlen(STREAM_CLOSING)), lines->adler);
	*p++ = '\n';
	lines->len = (size_t)(p - lines->data);
	return stream_lines_flush(lines);
}

uint64_t stream_lines_bytes(const struct stream_lines *lines)
{
	return lines->flushed_bytes + lines->len;
}
