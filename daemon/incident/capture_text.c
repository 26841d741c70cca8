/*
 * capture_text.c: a buffer with a limit that is cut at the end of a line, so that a table stays a table.
 */
#include "capture_text.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define PIECE_BYTES 256 /* escaped at a time: four times as much at worst */
#define SAY_BYTES 1024
#define CUT_NOTE "# cut: there was more\n"

/* Room is kept for the note. */
static void append(struct capture_text *text, const char *data, size_t len)
{
	int r;

	if (text->cut || text->error)
		return;
	if (text->buffer.len + len + sizeof(CUT_NOTE) > text->buffer.max) {
		text->cut = true;
		return;
	}
	r = buffer_append(&text->buffer, data, len);
	if (r < 0)
		text->error = r;
}

void capture_text_say(struct capture_text *text, const char *format, ...)
{
	char said[SAY_BYTES];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(said, sizeof(said), format, args);
	va_end(args);
	if (len > 0)
		append(text, said, (size_t)len < sizeof(said) ? (size_t)len : sizeof(said) - 1);
}

/* How much of data is one piece: no character is split, as far as there are characters. */
static size_t piece(const char *data, size_t len)
{
	size_t size = PIECE_BYTES;

	if (len <= PIECE_BYTES)
		return len;
	while (size > PIECE_BYTES - 4 && ((unsigned char)data[size] & 0xc0) == 0x80)
		size--;
	return size;
}

void capture_text_word(struct capture_text *text, const char *data, size_t len)
{
	char escaped[4 * PIECE_BYTES + 1];

	while (len > 0) {
		size_t size = piece(data, len);

		append(text, escaped, text_escape(escaped, sizeof(escaped), data, size));
		data += size;
		len -= size;
	}
}

void capture_text_lines(struct capture_text *text, const char *data, size_t len)
{
	size_t at = 0;

	while (at < len) {
		size_t end = at;

		while (end < len && data[end] != '\n' && data[end] != '\t')
			end++;
		capture_text_word(text, data + at, end - at);
		if (end < len)
			append(text, data + end, 1);
		at = end + 1;
	}
	if (len > 0 && data[len - 1] != '\n')
		append(text, "\n", 1);
}

/* What does not end with a newline was cut within a line. */
static void finish(struct capture_text *text)
{
	struct buffer *buffer = &text->buffer;

	if (!text->cut)
		return;
	while (buffer->len > 0 && buffer->data[buffer->len - 1] != '\n')
		buffer->len--;
	text->error = buffer_append(buffer, CUT_NOTE, sizeof(CUT_NOTE) - 1);
}

static int write_file(const struct buffer *buffer, int dirfd, const char *name)
{
	AUTO_CLOSE int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	int r;

	if (fd < 0)
		return -errno;
	r = sink_write_all(fd, buffer->data, buffer->len);
	if (r < 0)
		unlinkat(dirfd, name, 0);
	return r;
}

int capture_text_save(struct capture_text *text, int dirfd, const char *name, uint64_t *ret_bytes)
{
	int r;

	if (!text->error)
		finish(text);
	if (text->error)
		return text->error;
	r = write_file(&text->buffer, dirfd, name);
	if (r < 0)
		return r;
	*ret_bytes = text->buffer.len;
	return 0;
}

void capture_text_release(struct capture_text *text)
{
	buffer_release(&text->buffer);
}
