/*
 * deflate.h: gzip (RFC 1952), Adler-32 (RFC 1950) and CRC-32 (IEEE 802.3). The only module that knows libdeflate.
 */
#ifndef SPIKEWATCH_DEFLATE_H
#define SPIKEWATCH_DEFLATE_H

#include "sink.h"

#include <stddef.h>
#include <stdint.h>

/* Continues a checksum over len more bytes. What to start from: checksum.h. */
uint32_t deflate_adler32(uint32_t adler, const void *data, size_t len);
uint32_t deflate_crc32(uint32_t crc, const void *data, size_t len);

/*
 * Writes data to sink as one gzip member without a name and a time. Takes memory for as much again as there is data,
 * and at most one write. 0; -ENOMEM; what sink returns.
 */
int deflate_gzip(const void *data, size_t len, const struct sink *sink);

/*
 * Appends what gzip holds, of all its members, to buffer, at most max bytes in all. 0; -EBADMSG: no gzip, cut off or damaged; -EFBIG; -ENOMEM.
 * What was appended by then stays.
 */
int deflate_gunzip(const void *data, size_t len, size_t max, struct buffer *buffer);

#endif
