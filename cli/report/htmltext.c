/*
 * htmltext.c: a character at a time. A backslash stays as it is: what was escaped before would else be escaped again.
 */
#include "htmltext.h"

#include "text.h"

#include <stdio.h>
#include <string.h>

/* What stands for a character that must not stand there itself; 0: it may. */
static size_t replace(uint32_t code, char *buf, size_t cap)
{
	if (code < 0x20 || code == 0x7f)
		return (size_t)snprintf(buf, cap, "\\x%02x", (unsigned)code);
	if (code == '<' || code == '>' || code == '&' || code == '"' || code == '\'')
		return (size_t)snprintf(buf, cap, "&#%u;", (unsigned)code);
	if (text_is_hidden(code))
		return (size_t)snprintf(buf, cap, "\\u{%x}", (unsigned)code);
	return 0;
}

int htmltext_write(const struct sink *sink, const char *text, size_t len)
{
	const char *at = text, *end = text + len;

	while (at < end) {
		char buf[16];
		uint32_t code = 0;
		size_t taken = text_decode(at, (size_t)(end - at), &code), used;
		int rc;

		if (taken == 0)
			used = (size_t)snprintf(buf, sizeof(buf), "\\x%02x", (unsigned)(unsigned char)*at);
		else
			used = replace(code, buf, sizeof(buf));
		taken = taken ? taken : 1;
		rc = used ? sink_write(sink, buf, used) : sink_write(sink, at, taken);
		if (rc < 0)
			return rc;
		at += taken;
	}
	return 0;
}

static int write_json(void *ctx, const void *data, size_t len)
{
	const struct sink *inner = ctx;
	const char *at = data, *end = at + len;

	while (at < end) {
		const char *tag = memchr(at, '<', (size_t)(end - at));
		size_t plain = (size_t)((tag ? tag : end) - at);
		int rc = plain ? sink_write(inner, at, plain) : 0;

		if (rc == 0 && tag)
			rc = sink_write(inner, "\\u003c", 6);
		if (rc < 0)
			return rc;
		at += plain + (tag ? 1 : 0);
	}
	return 0;
}

struct sink htmltext_json(const struct sink *inner)
{
	return (struct sink){ .write = write_json, .ctx = (void *)(uintptr_t)inner };
}
