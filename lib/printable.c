/*
 * printable.c: hostile names hardly ever occur, so the ordinary string is handed on as it is and only the other is
 * copied, to the stack: nothing here can fail but the writer.
 *
 * What is not UTF-8 is the JSON writer's to replace.
 */
#include "printable.h"

#include "text.h"

#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

/* Length of the harmful character at text (NUL-terminated), 0 if it is harmless. */
static size_t harmful(const char *text)
{
	uint32_t code = 0;
	size_t len;

	if ((unsigned char)text[0] < 0x7f)
		return 0;
	len = text_decode(text, strnlen(text, 4), &code);

	return len && text_is_hidden(code) ? len : 0;
}

int printable_json(struct json_writer *writer, const char *text)
{
	char copy[PRINTABLE_MAX];
	size_t len = 0;
	const char *at = text;

	while (*at && harmful(at) == 0)
		at++;
	if (!*at)
		return json_string(writer, text);

	for (at = text; *at && len + sizeof(REPLACEMENT) <= sizeof(copy);) {
		size_t skip = harmful(at);

		if (skip > 0) {
			memcpy(copy + len, REPLACEMENT, sizeof(REPLACEMENT) - 1);
			len += sizeof(REPLACEMENT) - 1;
			at += skip;
		} else {
			copy[len++] = *at++;
		}
	}
	return json_string_len(writer, copy, len);
}
