/*
 * base64.c: three bytes are four letters. Both directions work on pieces of fixed size, so that memory is asked for once per piece and
 * not once per byte.
 */
#include "base64.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#define LINE_BYTES (BASE64_LINE / 4 * 3)
#define PIECE 3072

static const char letters[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Up to three bytes. */
static void put_group(char out[static 4], const unsigned char *data, size_t len)
{
	uint32_t bits = (uint32_t)data[0] << 16 | (len > 1 ? (uint32_t)data[1] << 8 : 0) | (len > 2 ? data[2] : 0u);

	out[0] = letters[bits >> 18];
	out[1] = letters[bits >> 12 & 63];
	out[2] = len > 1 ? letters[bits >> 6 & 63] : '=';
	out[3] = len > 2 ? letters[bits & 63] : '=';
}

int base64_write(const struct sink *sink, const void *data, size_t len)
{
	const unsigned char *at = data;

	while (len > 0) {
		char line[BASE64_LINE + 1];
		size_t take = len < LINE_BYTES ? len : LINE_BYTES, used = 0;
		int rc;

		for (size_t i = 0; i < take; i += 3, used += 4)
			put_group(line + used, at + i, take - i);
		line[used++] = '\n';
		rc = sink_write(sink, line, used);
		if (rc < 0)
			return rc;
		at += take;
		len -= take;
	}
	return 0;
}

/* 0 to 63; -1: no letter. */
static int value_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return c - '0' + 52;
	return c == '+' ? 62 : c == '/' ? 63 : -1;
}

static bool is_space(char c)
{
	return c == '\n' || c == '\r' || c == ' ' || c == '\t';
}

/* What was read of a group. */
struct group {
	uint32_t bits;
	unsigned letters, padding;
};

static bool take_letter(struct group *group, char c)
{
	int value = value_of(c);

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

/* The bytes of a whole group: one to three; 0: it does not end as it should. */
static size_t end_group(const struct group *group, unsigned char out[static 3])
{
	uint32_t bits = group->bits << 6 * group->padding;

	out[0] = (unsigned char)(bits >> 16);
	out[1] = (unsigned char)(bits >> 8);
	out[2] = (unsigned char)bits;
	if ((group->padding > 0 && out[2]) || (group->padding > 1 && out[1]))
		return 0;
	return 3 - group->padding;
}

int base64_read(const char *text, size_t len, struct buffer *buffer)
{
	struct group group = { .letters = 0 };
	unsigned char piece[PIECE];
	size_t used = 0;
	bool ended = false;
	int rc;

	for (size_t i = 0; i < len; i++) {
		size_t count;

		if (is_space(text[i]))
			continue;
		if (ended || !take_letter(&group, text[i]))
			return -EBADMSG;
		if (group.letters + group.padding < 4)
			continue;
		count = end_group(&group, piece + used);
		if (count == 0)
			return -EBADMSG;
		ended = group.padding > 0;
		group = (struct group){ .letters = 0 };
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
