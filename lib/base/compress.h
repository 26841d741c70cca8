/*
 * compress.h: gzip (RFC 1952), zlib and Adler-32 (RFC 1950) and CRC-32 (IEEE 802.3). The only module that
 * knows libdeflate.
 */
#ifndef SPIKEWATCH_LIB_BASE_COMPRESS_H
#define SPIKEWATCH_LIB_BASE_COMPRESS_H

#include "lib/base/io.h"

#include <stddef.h>
#include <stdint.h>

/*
 * Writes data to sink as one gzip member without a name and a time. Takes memory for as much again
 * as there is data, and at most one write. 0; -ENOMEM; what sink returns.
 */
int deflate_gzip(const void *data, size_t len, const struct sink *sink);

/*
 * Appends what gzip holds, of all its members, to buffer, at most max bytes in all. 0; -EBADMSG: no
 * gzip, cut off or damaged; -EFBIG; -ENOMEM. What was appended by then stays.
 */
int deflate_gunzip(const void *data, size_t len, size_t max, struct buffer *buffer);

/*
 * What a zlib stream (RFC 1950) of len bytes holds, which must be exactly ret_len bytes, to ret. 0;
 * -EBADMSG: it is not, or is damaged; -ENOMEM. *ret may be written to all the same.
 */
int inflate_zlib(const void *data, size_t len, void *ret, size_t ret_len);

/* Checksums of nothing: what a running checksum starts from. */
#define CHECKSUM_ADLER32_EMPTY 1u
#define CHECKSUM_CRC32_EMPTY 0u

/* Continues a checksum over len more bytes. */
uint32_t checksum_adler32(uint32_t adler, const void *data, size_t len);
uint32_t checksum_crc32(uint32_t crc, const void *data, size_t len);

/*
 * The Adler-32 of a followed by b, from the Adler-32 of each and the length of b: some 5 ns however
 * long they are.
 */
uint32_t checksum_adler32_combine(uint32_t a, uint32_t b, uint64_t b_len);

#endif
