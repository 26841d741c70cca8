/* output.c: the edge to stdout; stdio keeps the errors. */
#include "output.h"

#include "options.h"
#include "text.h"

#include <errno.h>
#include <string.h>

#define PIECE 128

size_t output_escaped_len(FILE *file, const char *text, size_t len)
{
	char piece[4 * PIECE + 1];
	size_t printed = 0;

	while (len > 0) {
		size_t take = len < PIECE ? len : PIECE, back = 0;

		/* Pieces end between characters, so that none is taken for two broken halves. */
		while (take < len && back < 3 && ((unsigned char)text[take - back] & 0xC0) == 0x80)
			back++;
		take -= back;
		printed += fwrite(piece, 1, text_escape(piece, sizeof(piece), text, take), file);
		text += take;
		len -= take;
	}
	return printed;
}

size_t output_escaped(FILE *file, const char *text)
{
	return output_escaped_len(file, text, strlen(text));
}

static int write_stream(void *ctx, const void *data, size_t len)
{
	FILE *file = ctx;

	errno = 0;
	if (fwrite(data, 1, len, file) == len)
		return 0;
	return errno ? -errno : -EIO;
}

struct sink output_sink(FILE *file)
{
	return (struct sink){ write_stream, file };
}

int output_json_new(struct json_writer **ret)
{
	return json_writer_new(output_sink(stdout), true, ret);
}

void output_json_release(struct json_writer **json)
{
	/* The error is stdout's and is reported there. */
	json_writer_close(*json);
}

int output_no_memory(void)
{
	fprintf(stderr, "spikewatch: out of memory\n");
	return EXIT_TROUBLE;
}

size_t output_characters(const char *text, size_t len)
{
	size_t count = 0;

	for (size_t i = 0; i < len; i++)
		count += ((unsigned char)text[i] & 0xC0) != 0x80;
	return count;
}

void output_wrap(const char *text, size_t width, FILE *file)
{
	size_t used = 0;

	while (*text) {
		size_t len = strcspn(text, " "), wide;

		/* A percent sign stays with its number. */
		if (text[len] == ' ' && text[len + 1] == '%')
			len += 1 + strcspn(text + len + 1, " ");
		wide = output_characters(text, len);

		if (used > 0 && used + 1 + wide > width) {
			fputc('\n', file);
			used = 0;
		} else if (used > 0) {
			fputc(' ', file);
			used++;
		}
		fwrite(text, 1, len, file);
		used += wide;
		text += len + (text[len] == ' ');
	}
	fputc('\n', file);
}
