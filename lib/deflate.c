/*
 * libdeflate does the work: its checksums are several times as fast as zlib's, on short lines too. It compresses what
 * is whole in memory and nothing else. One member for all of it, not one for each piece: some viewers stop reading
 * after the first.
 */
#include "deflate.h"

#include "scope.h"

#include <errno.h>
#include <libdeflate.h>

/* zlib's default: higher levels take twice the time for a few percent. */
#define LEVEL 6

uint32_t deflate_adler32(uint32_t adler, const void *data, size_t len)
{
	/* With NULL libdeflate answers with the initial value instead of adler. */
	return len ? libdeflate_adler32(adler, data, len) : adler;
}

uint32_t deflate_crc32(uint32_t crc, const void *data, size_t len)
{
	return len ? libdeflate_crc32(crc, data, len) : crc;
}

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
