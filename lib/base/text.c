/* text.c: numbers are written and read in whole words; escaping works character by character. */
#include "lib/base/text.h"

#include <endian.h>
#include <string.h>

/* ---- parts ---- */

bool text_cut(struct text_part *rest, char separator, struct text_part *ret)
{
	const char *end = rest->len > 0 ? memchr(rest->at, separator, rest->len) : NULL;

	if (!rest->at)
		return false;
	*ret = (struct text_part){ rest->at, end ? (size_t)(end - rest->at) : rest->len };
	*rest = end ? (struct text_part){ end + 1, rest->len - ret->len - 1 } : (struct text_part){ NULL, 0 };

	return true;
}

int text_part_compare(const struct text_part *a, const struct text_part *b)
{
	int order = memcmp(a->at, b->at, a->len < b->len ? a->len : b->len);

	return order != 0 ? order : (a->len > b->len) - (a->len < b->len);
}

/* ---- numbers ---- */

#define TEN_TO_8 TEXT_EIGHT_DIGITS
#define TEN_TO_16 (TEN_TO_8 * TEN_TO_8)

static char *put_word(char *out, uint64_t word)
{
	word = htole64(word);
	memcpy(out, &word, sizeof(word));
	return out + sizeof(word);
}

/* All eight digits, zeros included. */
static char *put_padded(char *out, uint32_t value)
{
	return put_word(out, text_eight_digits(value));
}

static char *put_short(char *out, uint32_t value)
{
	uint64_t digits = text_eight_digits(value);
	/* The last digit stays, even if it is 0. */
	int zeros = __builtin_ctzll((digits & 0x0f0f0f0f0f0f0f0fULL) | 1ULL << 56) / 8;

	return put_word(out, digits >> 8 * zeros) - zeros;
}

char *text_put_u64(char *out, uint64_t value)
{
	if (value < TEN_TO_8)
		return put_short(out, (uint32_t)value);

	if (value < TEN_TO_16)
		return put_padded(put_short(out, (uint32_t)(value / TEN_TO_8)), (uint32_t)(value % TEN_TO_8));

	out = put_short(out, (uint32_t)(value / TEN_TO_16));
	value %= TEN_TO_16;
	return put_padded(put_padded(out, (uint32_t)(value / TEN_TO_8)), (uint32_t)(value % TEN_TO_8));
}

/* The eight digits of a number of 32 bits: its nibbles are spread over eight bytes, the first in the lowest. */
static uint64_t hex_digits(uint32_t value)
{
	uint64_t word = (uint64_t)value << 32 | value >> 16;

	word &= 0x0000ffff0000ffffULL;
	word = (word << 16 | word >> 8) & 0x00ff00ff00ff00ffULL;
	word = (word << 8 | word >> 4) & 0x0f0f0f0f0f0f0f0fULL;

	/* What is above 9 has bit 4 set when 6 is added. 39 lie between the digits and the letters. */
	uint64_t letters = (word + 0x0606060606060606ULL) >> 4 & 0x0101010101010101ULL;

	return word + 0x3030303030303030ULL + letters * 39;
}

char *text_put_hex(char *out, uint64_t value)
{
	int zeros = __builtin_clzll(value | 1) / 4;

	if (value > UINT32_MAX) {
		out = put_word(out, hex_digits((uint32_t)(value >> 32)) >> 8 * zeros) - zeros;
		return put_word(out, hex_digits((uint32_t)value));
	}
	zeros -= 8;
	return put_word(out, hex_digits((uint32_t)value) >> 8 * zeros) - zeros;
}

/* How many of eight bytes are digits, up to the first that is none, and their value. */
static unsigned parse_word(const char *p, uint64_t *ret)
{
	uint64_t word;

	memcpy(&word, p, sizeof(word));
	word = le64toh(word) ^ 0x3030303030303030ULL;

	/* The high bit of each byte that is above 9. */
	uint64_t others = (((word & 0x7f7f7f7f7f7f7f7fULL) + 0x7676767676767676ULL) | word) & 0x8080808080808080ULL;
	unsigned digits = others ? (unsigned)__builtin_ctzll(others) / 8 : 8;

	if (digits == 0)
		return 0;
	/* Zeros in front; then pairs of digits, and pairs of pairs with those behind them, as in text_eight_digits. */
	word <<= 8 * (8 - digits);
	word = word * 10 + (word >> 8);
	*ret = ((word & 0x000000ff000000ffULL) * (100 + (1000000ULL << 32)) +
		(word >> 16 & 0x000000ff000000ffULL) * (1 + (10000ULL << 32))) >>
	       32;
	return digits;
}

const char *text_parse_u64(const char *p, const char *end, uint64_t *ret)
{
	static const uint32_t powers[] = { 1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000 };
	const char *start = p;
	uint64_t value = 0, low;

	/* Sixteen digits cannot overflow. */
	for (int word = 0; word < 2 && end - p >= 8; word++) {
		unsigned digits = parse_word(p, &low);

		if (digits > 0)
			value = value * powers[digits] + low;
		p += digits;
		if (digits == 8)
			continue;
		if (p == start)
			return NULL;
		*ret = value;
		return p;
	}
	for (; p < end && *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
			return NULL;
	if (p == start)
		return NULL;

	*ret = value;
	return p;
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

const char *text_parse_hex(const char *p, const char *end, uint64_t *ret)
{
	const char *start = p;
	uint64_t value = 0;

	for (int digit; p < end && (digit = hex_digit(*p)) >= 0; p++) {
		if (value >> 60)
			return NULL;
		value = value << 4 | (uint64_t)digit;
	}
	if (p == start)
		return NULL;

	*ret = value;
	return p;
}

/*
 * The length of the UTF-8 character at p, 0 if there is none: neither overlong forms nor surrogates
 * are characters.
 */
static size_t utf8_length(const unsigned char *p, size_t len)
{
	/*
	 * The second byte is bounded by the first (Unicode, table 3-7); the rest are plain
	 * continuations.
	 */
	unsigned char low = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
	unsigned char high = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;
	size_t want = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;

	if (want > len || (want > 1 && (p[1] < low || p[1] > high)))
		return 0;
	for (size_t i = 2; i < want; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return want;
}

size_t text_decode(const char *text, size_t len, uint32_t *ret)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t n = len ? utf8_length(p, len) : 0;

	if (n == 0)
		return 0;

	if (!ret)
		return n;

	uint32_t code = n > 1 ? p[0] & (0x7fu >> n) : p[0];

	for (size_t i = 1; i < n; i++)
		code = code << 6 | (p[i] & 0x3f);
	*ret = code;
	return n;
}

bool text_is_hidden(uint32_t code)
{
	static const uint32_t hidden[][2] = {
		{ 0, 0x1f },        { 0x7f, 0x9f },     { 0xad, 0xad },       { 0x61c, 0x61c },
		{ 0x200b, 0x200b }, { 0x200e, 0x200f }, { 0x2028, 0x202e },   { 0x2060, 0x206f },
		{ 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f },
	};

	if (code >= 0x20 && code < 0x7f)
		return false;
	for (size_t i = 0; i < sizeof(hidden) / sizeof(*hidden); i++)
		if (code >= hidden[i][0] && code <= hidden[i][1])
			return true;
	return false;
}

size_t text_escape(char *out, size_t size, const char *data, size_t len)
{
	static const char digits[16] = "0123456789abcdef";
	const unsigned char *in = (const unsigned char *)data;
	size_t used = 0;

	for (size_t i = 0; i < len;) {
		uint32_t code = 0;
		size_t n = text_decode(data + i, len - i, &code);
		bool plain = n && code != '\\' && !text_is_hidden(code);

		if (!plain)
			n = 1;
		if ((plain ? n : 4) >= size - used)
			break;
		if (plain) {
			memcpy(out + used, in + i, n);
			used += n;
		} else {
			out[used++] = '\\';
			out[used++] = 'x';
			out[used++] = digits[in[i] >> 4];
			out[used++] = digits[in[i] & 15];
		}
		i += n;
	}
	out[used] = '\0';
	return used;
}

size_t text_escape_again(char *out, size_t size, const char *data, size_t len)
{
	size_t used = text_escape(out, size, data, len), to = 0;

	for (size_t from = 0; from < used; to++) {
		bool backslash = strncmp(out + from, "\\x5c", 4) == 0; /* text_escape writes nothing else so */

		out[to] = out[from];
		from += backslash ? 4 : 1;
	}
	out[to] = '\0';
	return to;
}

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

int clean_text_append(struct buffer *buffer, const char *text, size_t len)
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
