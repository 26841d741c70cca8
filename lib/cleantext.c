/* cleantext.c: pieces between two backslashes are escaped, the backslashes are copied. */
#include "cleantext.h"

#include "text.h"

#include <string.h>

#define PIECE 256

/* Bytes of text that are escaped at a time: a character of UTF-8 is not torn apart. */
static size_t piece_of(const char *text, size_t len)
{
	size_t take = len < PIECE ? len : PIECE, back = 0;

	while (take < len && back < 3 && ((unsigned char)text[take - back] & 0xC0) == 0x80)
		back++;
	return take - back;
}

static int append_run(struct buffer *buffer, const char *text, size_t len)
{
	int rc = 0;

	while (len > 0 && rc == 0) {
		char piece[4 * PIECE + 1];
		size_t take = piece_of(text, len);

		rc = buffer_append(buffer, piece, text_escape(piece, sizeof(piece), text, take));
		text += take;
		len -= take;
	}
	return rc;
}

int cleantext_append(struct buffer *buffer, const char *text, size_t len)
{
	const char *end = text + len;
	int rc = 0;

	while (text < end && rc == 0) {
		const char *backslash = memchr(text, '\\', (size_t)(end - text));
		const char *stop = backslash ? backslash : end;

		rc = append_run(buffer, text, (size_t)(stop - text));
		if (backslash && rc == 0)
			rc = buffer_append(buffer, backslash, 1);
		text = stop + 1;
	}
	return rc;
}
