/*
 * The running checksums are libdeflate's, see deflate.c.
 *
 * The combination follows from the definition. With A = 1 + sum of bytes and B = sum of all intermediate A, both modulo
 * 65521, running on from (A1, B1) instead of (1, 0) over n bytes adds A1 - 1 to every intermediate A, so
 * A = A1 + A2 - 1 and B = B1 + B2 + n (A1 - 1).
 */
#include "checksum.h"

#include "deflate.h"

#define ADLER32_MODULUS 65521u /* the largest prime below 2^16 */

uint32_t checksum_adler32(uint32_t adler, const void *data, size_t len)
{
	return deflate_adler32(adler, data, len);
}

uint32_t checksum_crc32(uint32_t crc, const void *data, size_t len)
{
	return deflate_crc32(crc, data, len);
}

uint32_t checksum_adler32_combine(uint32_t a, uint32_t b, uint64_t b_len)
{
	uint64_t before = (a & 0xffff) + ADLER32_MODULUS - 1; /* A1 - 1, not below zero */
	uint64_t low = (before + (b & 0xffff)) % ADLER32_MODULUS;
	uint64_t high = ((a >> 16) + (b >> 16) + b_len % ADLER32_MODULUS * before) % ADLER32_MODULUS;

	return (uint32_t)(high << 16 | low);
}
