/*
 * htmltext.c: a character at a time. A backslash stays as it is: what was escaped before would else be escaped again.
 */
#include "htmltext.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* First and last of those that would not be seen, or would turn what follows around. */
static const uint32_t unseen[][2] = {
	{ 0x80, 0x9f },     { 0xad, 0xad },     { 0x61c, 0x61c },   { 0x200b, 0x200b }, { 0x200e, 0x200f },
	{ 0x2028, 0x202e }, { 0x2060, 0x206f }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f },
};

/* The length of a character of UTF-8 and *ret; 0: it is none. */
static size_t decode(const unsigned char *at, size_t len, uint32_t *ret)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t need = at[0] < 0x80 ? 1 : at[0] >> 5 == 6 ? 2 : at[0] >> 4 == 14 ? 3 : at[0] >> 3 == 30 ? 4 : 0;
	uint32_t code = need > 1 ? at[0] & (0x7fu >> need) : at[0];

	if (need == 0 || need > len)
		return 0;
	for (size_t i = 1; i < need; i++) {
		if ((at[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (at[i] & 0x3f);
	}
	if (code < least[need] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return 0;
	*ret = code;
	return need;
}

static int is_unseen(uint32_t code)
{
	for (size_t i = 0; i < sizeof(unseen) / sizeof(*unseen); i++)
		if (code >= unseen[i][0] && code <= unseen[i][1])
			return 1;
	return 0;
}

/* What stands for a character that must not stand there itself; 0: it may. */
static size_t replace(uint32_t code, char *buf, size_t cap)
{
	if (code < 0x20 || code == 0x7f)
		return (size_t)snprintf(buf, cap, "\\x%02x", (unsigned)code);
	if (code == '<' || code == '>' || code == '&' || code == '"' || code == '\'')
		return (size_t)snprintf(buf, cap, "&#%u;", (unsigned)code);
	if (is_unseen(code))
		return (size_t)snprintf(buf, cap, "\\u{%x}", (unsigned)code);
	return 0;
}

int htmltext_write(const struct sink *sink, const char *text, size_t len)
{
	const unsigned char *at = (const unsigned char *)text, *end = at + len;

	while (at < end) {
		char buf[16];
		uint32_t code = 0;
		size_t taken = decode(at, (size_t)(end - at), &code), used;
		int rc;

		if (taken == 0)
			used = (size_t)snprintf(buf, sizeof(buf), "\\x%02x", (unsigned)*at);
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
