/*
 * jsonprint.c: a generator prints single brackets and blanks; a sink wants few writes. In between, the pieces pass a
 * small state machine that keeps an empty container on one line, where generators print "{\n\n  }".
 *
 *             bracket          line break        line break         other
 *   OTHER ─────────────▶ BRACKET ──────▶ BREAK ──────▶ EMPTY ──────────────▶ OTHER
 *                        held back: the break          dropped: both breaks, then the indent
 */
#include "jsonprint.h"

#include "jsontext.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Beyond this, a double has no decimals left; below this, six decimals would leave fewer than four digits. */
#define PLAIN_MAX 1e15
#define PLAIN_MIN 1e-3

int jsonprint_flush(struct jsonprint *print)
{
	if (print->error == 0 && print->gathered > 0)
		print->error = sink_write(&print->sink, print->gather, print->gathered);
	print->gathered = 0;
	return print->error;
}

static void gather(struct jsonprint *print, const char *text, size_t len)
{
	while (len > 0) {
		size_t room = JSONPRINT_GATHER - print->gathered;
		size_t part = len < room ? len : room;

		memcpy(print->gather + print->gathered, text, part);
		print->gathered += part;
		text += part;
		len -= part;
		if (print->gathered == JSONPRINT_GATHER)
			jsonprint_flush(print);
	}
}

void jsonprint_put(struct jsonprint *print, const char *text, size_t len)
{
	enum jsonprint_last last = print->last;
	bool line_break = len == 1 && *text == '\n';

	if (line_break && (last == JSONPRINT_BRACKET || last == JSONPRINT_BREAK)) {
		print->last = last == JSONPRINT_BRACKET ? JSONPRINT_BREAK : JSONPRINT_EMPTY;
		return;
	}
	if (last == JSONPRINT_EMPTY && len > 0 && *text == ' ')
		return;
	if (last == JSONPRINT_BREAK)
		gather(print, "\n", 1);
	print->last = len == 1 && (*text == '{' || *text == '[') ? JSONPRINT_BRACKET : JSONPRINT_OTHER;
	gather(print, text, len);
}

/* Most figures are whole, and printf(3) takes ten times as long. */
size_t jsonprint_whole(char buf[JSONPRINT_NUMBER], bool negative, uint64_t value)
{
	char digits[20];
	size_t count = 0, len = 0;

	do {
		digits[count++] = (char)('0' + value % 10);
		value /= 10;
	} while (value > 0);
	if (negative)
		buf[len++] = '-';
	while (count > 0)
		buf[len++] = digits[--count];
	return len;
}

size_t jsonprint_number(char buf[JSONPRINT_NUMBER], double value)
{
	double size = fabs(value);
	size_t len;

	if (size < PLAIN_MAX && size == trunc(size))
		return jsonprint_whole(buf, value < 0, (uint64_t)size);
	if (size >= PLAIN_MAX || size < PLAIN_MIN)
		return (size_t)snprintf(buf, JSONPRINT_NUMBER, size >= PLAIN_MAX ? "%.17g" : "%.6g", value);
	len = (size_t)snprintf(buf, JSONPRINT_NUMBER, "%.6f", value);
	while (buf[len - 1] == '0')
		len--;
	if (buf[len - 1] == '.')
		len--;
	return len;
}

char *jsonprint_clean(const char *text, size_t len, size_t *ret_len)
{
	char *clean = malloc(len * strlen(REPLACEMENT) + 1);
	size_t out = 0;
	size_t step;

	for (size_t at = 0; clean != NULL && at < len; at += step) {
		size_t length = jsontext_character(text + at, len - at);

		step = length > 0 ? length : 1;
		length = length > 0 ? length : strlen(REPLACEMENT);
		memcpy(clean + out, step == 1 && length > 1 ? REPLACEMENT : text + at, length);
		out += length;
	}
	*ret_len = out;
	return clean;
}
