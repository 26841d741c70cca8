/*
 * text.h: numbers to text and back, and untrusted bytes made printable. No locale, no allocation,
 * no termination unless said so. The hot paths of the stream use it: a number costs some 5 ns.
 */
#ifndef SPIKEWATCH_LIB_BASE_TEXT_H
#define SPIKEWATCH_LIB_BASE_TEXT_H

#include "lib/base/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* len bytes of a text, not terminated. */
struct text_part {
	const char *at;
	size_t len;
};

/*
 * Takes what stands before the next separator off *rest, and the separator; behind the last part
 * rest->at is NULL. False: it was NULL.
 */
bool text_cut(struct text_part *rest, char separator, struct text_part *ret);

/* Equal to text, to the byte. */
static inline bool text_part_is(const struct text_part *part, const char *text)
{
	return part->len == strlen(text) && memcmp(part->at, text, part->len) == 0;
}

/* By bytes, as strcmp(3). */
int text_part_compare(const struct text_part *a, const struct text_part *b);

/*
 * Room that text_put_u64 and text_put_hex need at out: they store whole words, so up to so many
 * bytes are overwritten although fewer are part of the number.
 */
#define TEXT_NUMBER_ROOM 24

/*
 * The eight digits of value < 10^8, zeros included, the first in the lowest byte. The number is split in
 * halves, quarters and digits, each step working on all lanes at once, with a multiplication and a shift for
 * the division: no loop, no branch on the length. A table of two-digit pairs takes a quarter more time over
 * numbers of all lengths.
 */
#define TEXT_EIGHT_DIGITS 100000000ULL
static inline uint64_t text_eight_digits(uint32_t value)
{
	/*
	 * Two lanes of 0 .. 9,999, four of 0 .. 99, eight of 0 .. 9. 10486 / 2^20 and 103 / 2^10
	 * divide those exactly.
	 */
	uint64_t halves = value / 10000 | (uint64_t)(value % 10000) << 32;
	uint64_t hundreds = (halves * 10486 >> 20) & 0x0000007f0000007fULL;
	uint64_t quarters = hundreds | (halves - 100 * hundreds) << 16;
	uint64_t tens = (quarters * 103 >> 10) & 0x000f000f000f000fULL;

	return 0x3030303030303030ULL | tens | (quarters - 10 * tens) << 8;
}

/* Writes value in decimal, or in lower-case hexadecimal, without leading zeros. Returns the end. */
char *text_put_u64(char *out, uint64_t value);
char *text_put_hex(char *out, uint64_t value);

/*
 * Reads the digits at p, before end. Returns where they end, or NULL if there is none or the value
 * does not fit; *ret is then untouched. Signs, spaces and prefixes are not digits; hexadecimal
 * takes lower case only.
 */
const char *text_parse_u64(const char *p, const char *end, uint64_t *ret);
const char *text_parse_hex(const char *p, const char *end, uint64_t *ret);

/*
 * The length of the character of UTF-8 that text begins with, and *ret: its code, unless ret is
 * NULL; 0: there is none, *ret is untouched.
 */
size_t text_decode(const char *text, size_t len, uint32_t *ret);

/* A control character (C0, DEL, C1), an invisible one, or one that changes the text direction. */
bool text_is_hidden(uint32_t code);

/*
 * Copies data to out so that it is safe to print on one line of a terminal: hidden characters,
 * bytes that are not UTF-8, and the backslash become \xNN. Terminated; stops before a character
 * that does not fit whole into size > 0 bytes. Returns the length; 4 * len + 1 bytes always
 * suffice.
 */
size_t text_escape(char *out, size_t size, const char *data, size_t len);

/*
 * The same, but a backslash stays: for text that was escaped when it was written. Returns the length
 * within out.
 */
size_t text_escape_again(char *out, size_t size, const char *data, size_t len);

/*
 * Appends len bytes of a text that was escaped when it was written, of a file that may have been
 * changed since: as text_escape, but backslashes are copied, so an unchanged text stays the same.
 * 0; -ENOMEM; -EFBIG beyond buffer->max.
 */
int clean_text_append(struct buffer *buffer, const char *text, size_t len);

#endif
