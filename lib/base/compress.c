/*
 * compress.c: libdeflate, whose checksums are several times as fast as zlib's. It compresses what is
 * whole in memory and nothing else. One member for all of it, not one for each
 * piece: some viewers stop reading after the first.
 *
 * Combining checksums follows from the definition. With A = 1 + sum of bytes and B = sum of all
 * intermediate A, both modulo 65521, running on from (A1, B1) instead of (1, 0) over n bytes adds
 * A1 - 1 to every intermediate A, so A = A1 + A2 - 1 and B = B1 + B2 + n (A1 - 1).
 */
#include "lib/base/compress.h"

#include "lib/base/base.h"

#include <endian.h>
#include <errno.h>
#include <libdeflate.h>
#include <string.h>
#include <sys/types.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

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

int inflate_zlib(const void *data, size_t len, void *ret, size_t ret_len)
{
	AUTO(free_decompressor) struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();

	if (!decompressor)
		return -ENOMEM;
	/* Without a place for the length it must be exactly ret_len. */
	return libdeflate_zlib_decompress(decompressor, data, len, ret, ret_len, NULL) == LIBDEFLATE_SUCCESS ? 0
													     : -EBADMSG;
}

#define ADLER32_MODULUS 65521u /* the largest prime below 2^16 */

/* Up to here the sums below do not overflow 32 bits. */
#define SHORT_MAX 4096u

/*
 * A and B over eight bytes, the first in the lowest, in four lanes of 16 bits. The product with four factors
 * has in its highest lane the sum of each lane times its factor, and no lane overflows.
 */
static void adler32_word(uint64_t word, uint32_t bytes, uint32_t *low, uint32_t *high)
{
	uint64_t even = word & 0x00ff00ff00ff00ffULL, odd = word >> 8 & 0x00ff00ff00ff00ffULL;

	*high += bytes * *low + (uint32_t)((even * 0x0008000600040002ULL + odd * 0x0007000500030001ULL) >> 48);
	*low += (uint32_t)((even + odd) * 0x0001000100010001ULL >> 48);
}

static uint64_t load_word(const unsigned char *data)
{
	uint64_t word;

	memcpy(&word, data, sizeof(word));
	return le64toh(word);
}

/* Fewer bytes than a vector has: the ends of lines. Those that are left over are a word that begins with zeros. */
static uint32_t adler32_bytes(uint32_t adler, const unsigned char *data, size_t len)
{
	uint32_t low = adler & 0xffff, high = adler >> 16;
	size_t i = 0;

	for (; i + 8 <= len; i += 8)
		adler32_word(load_word(data + i), 8, &low, &high);
	if (len > 8 && i < len) {
		uint32_t rest = (uint32_t)(len - i);

		adler32_word(load_word(data + len - 8) & UINT64_MAX << 8 * (8 - rest), rest, &low, &high);
		i = len;
	}
	for (; i < len; i++) {
		low += data[i];
		high += low;
	}
	return high % ADLER32_MODULUS << 16 | low % ADLER32_MODULUS;
}

#ifdef __x86_64__
#define VECTOR 32u

__attribute__((target("avx2"))) static uint32_t sum_lanes(__m256i lanes)
{
	__m128i sum = _mm_add_epi32(_mm256_castsi256_si128(lanes), _mm256_extracti128_si256(lanes, 1));

	sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(1, 0, 3, 2)));
	sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, _MM_SHUFFLE(2, 3, 0, 1)));
	return (uint32_t)_mm_cvtsi128_si32(sum);
}

/*
 * The lines of a stream have some hundred bytes. Over them libdeflate takes three times as long,
 * because it aligns its loads and reduces the sums first. VECTOR <= len <= SHORT_MAX.
 *
 * A byte counts in B as often as there are bytes from it to the end. In a vector of 32 that is 32 to
 * 1, and once more for each byte behind the vector. The last vector overlaps the one before it; what
 * was counted there is masked.
 */
__attribute__((target("avx2"))) static uint32_t adler32_avx2(uint32_t adler, const unsigned char *data, size_t len)
{
	static const unsigned char masks[2 * VECTOR] = { [VECTOR... 2 * VECTOR - 1] = 0xff };
	const __m256i weights = _mm256_setr_epi8(32, 31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15,
						 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1);
	const __m256i ones = _mm256_set1_epi16(1), zero = _mm256_setzero_si256();
	__m256i sums = zero, sums_before = zero, weighted = zero;
	size_t tail = len % VECTOR, at = 0;

	for (; at + VECTOR <= len; at += VECTOR) {
		__m256i bytes = _mm256_loadu_si256((const __m256i *)(data + at));

		sums_before = _mm256_add_epi32(sums_before, sums);
		sums = _mm256_add_epi32(sums, _mm256_sad_epu8(bytes, zero));
		weighted = _mm256_add_epi32(weighted, _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, weights), ones));
	}
	__m256i bytes = _mm256_and_si256(_mm256_loadu_si256((const __m256i *)(data + len - VECTOR)),
					 _mm256_loadu_si256((const __m256i *)(masks + tail)));
	weighted = _mm256_add_epi32(weighted, _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, weights), ones));
	weighted = _mm256_add_epi32(weighted, _mm256_slli_epi32(sums_before, 5));
	weighted = _mm256_add_epi32(weighted, _mm256_mullo_epi32(sums, _mm256_set1_epi32((int)tail)));
	sums = _mm256_add_epi32(sums, _mm256_sad_epu8(bytes, zero));

	uint32_t low = adler & 0xffff;
	uint64_t high = (uint64_t)(adler >> 16) + len * low + sum_lanes(weighted);

	return (uint32_t)(high % ADLER32_MODULUS) << 16 | (low + sum_lanes(sums)) % ADLER32_MODULUS;
}
#endif

uint32_t checksum_adler32(uint32_t adler, const void *data, size_t len)
{
	if (len < 32)
		return adler32_bytes(adler, data, len);
#ifdef __x86_64__
	if (len <= SHORT_MAX && __builtin_cpu_supports("avx2"))
		return adler32_avx2(adler, data, len);
#endif
	return libdeflate_adler32(adler, data, len);
}

/* With NULL libdeflate answers with the initial value instead of the checksum before. */
uint32_t checksum_crc32(uint32_t crc, const void *data, size_t len)
{
	return len ? libdeflate_crc32(crc, data, len) : crc;
}

uint32_t checksum_adler32_combine(uint32_t a, uint32_t b, uint64_t b_len)
{
	uint32_t before = (a & 0xffff) + ADLER32_MODULUS - 1; /* A1 - 1, not below zero */
	uint32_t low = (before + (b & 0xffff)) % ADLER32_MODULUS;
	uint64_t len = b_len < ADLER32_MODULUS ? b_len : b_len % ADLER32_MODULUS;
	uint64_t high = ((a >> 16) + (b >> 16) + len * before) % ADLER32_MODULUS;

	return (uint32_t)(high << 16 | low);
}
