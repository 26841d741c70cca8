/*
 * compress.c: libdeflate, whose checksums are several times as fast as zlib's, on short lines too. It
 * compresses what is whole in memory and nothing else. One member for all of it, not one for each
 * piece: some viewers stop reading after the first.
 *
 * Combining checksums follows from the definition. With A = 1 + sum of bytes and B = sum of all
 * intermediate A, both modulo 65521, running on from (A1, B1) instead of (1, 0) over n bytes adds
 * A1 - 1 to every intermediate A, so A = A1 + A2 - 1 and B = B1 + B2 + n (A1 - 1).
 */
#include "lib/base/compress.h"

#include "lib/base/base.h"

#include <errno.h>
#include <libdeflate.h>
#include <sys/types.h>

/* zlib's default: higher levels take twice the time for a few percent. */
#define LEVEL 6

static void free_compressor(struct libdeflate_compressor **compressor)
{
	if (*compressor)
		libdeflate_free_compressor(*compressor);
}

int deflate_gzip(const void *data, size_t len, const struct sink *sink)
{
	AUTO(free_compressor) struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(LEVEL);
	size_t bound = libdeflate_gzip_compress_bound(compressor, len);
	AUTO_FREE void *out = malloc(bound);
	size_t used;

	if (!compressor || !out)
		return -ENOMEM;

	used = libdeflate_gzip_compress(compressor, len ? data : "", len, out, bound);
	/* Never 0: there is room for the worst. */
	return used > 0 ? sink_write(sink, out, used) : -ENOMEM;
}

static void free_decompressor(struct libdeflate_decompressor **decompressor)
{
	if (*decompressor)
		libdeflate_free_decompressor(*decompressor);
}

/* A first guess: the last four bytes of a single member are its size, if they are right. */
static size_t first_room(const unsigned char *data, size_t len, size_t max)
{
	size_t room = 4096;

	if (len >= 18)
		room = (size_t)data[len - 4] | (size_t)data[len - 3] << 8 | (size_t)data[len - 2] << 16 |
		       (size_t)data[len - 1] << 24;
	/* Nothing deflates to less than a thousandth: a larger size is a lie. */
	if (room / 1100 > len)
		room = 1100 * len;
	if (room < 4096)
		room = 4096;
	return room < max ? room : max;
}

/* One member. Bytes taken of data, or -errno. */
static ssize_t inflate(struct libdeflate_decompressor *decompressor, const unsigned char *data, size_t len, size_t max,
		       struct buffer *buffer)
{
	size_t room = first_room(data, len, max);

	for (;;) {
		AUTO_FREE char *out = malloc(room ? room : 1);
		size_t taken = 0, given = 0;
		enum libdeflate_result result;
		int rc;

		if (!out)
			return -ENOMEM;
		result = libdeflate_gzip_decompress_ex(decompressor, data, len, out, room, &taken, &given);
		if (result == LIBDEFLATE_SUCCESS) {
			rc = buffer_append(buffer, out, given);
			return rc < 0 ? rc : (ssize_t)taken;
		}
		if (result != LIBDEFLATE_INSUFFICIENT_SPACE)
			return -EBADMSG;
		if (room >= max)
			return -EFBIG;
		room = room > max / 2 ? max : 2 * room;
	}
}

int deflate_gunzip(const void *data, size_t len, size_t max, struct buffer *buffer)
{
	AUTO(free_decompressor) struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
	const unsigned char *at = data;
	size_t begin = buffer->len;

	if (!decompressor)
		return -ENOMEM;
	if (len == 0)
		return -EBADMSG;
	while (len > 0) {
		ssize_t taken = inflate(decompressor, at, len, max - (buffer->len - begin), buffer);

		if (taken < 0)
			return (int)taken;
		at += taken;
		len -= (size_t)taken;
	}
	return 0;
}

#define ADLER32_MODULUS 65521u /* the largest prime below 2^16 */

/* With NULL libdeflate answers with the initial value instead of the checksum before. */
uint32_t checksum_adler32(uint32_t adler, const void *data, size_t len)
{
	return len ? libdeflate_adler32(adler, data, len) : adler;
}

uint32_t checksum_crc32(uint32_t crc, const void *data, size_t len)
{
	return len ? libdeflate_crc32(crc, data, len) : crc;
}

uint32_t checksum_adler32_combine(uint32_t a, uint32_t b, uint64_t b_len)
{
	uint64_t before = (a & 0xffff) + ADLER32_MODULUS - 1; /* A1 - 1, not below zero */
	uint64_t low = (before + (b & 0xffff)) % ADLER32_MODULUS;
	uint64_t high = ((a >> 16) + (b >> 16) + b_len % ADLER32_MODULUS * before) % ADLER32_MODULUS;

	return (uint32_t)(high << 16 | low);
}
