/*
 * ring_file.h: opens a ring that a dead daemon has left, also if its file is truncated or has
 * sectors that cannot be read, which in a mapping would be a SIGBUS.
 */
#ifndef SPIKEWATCH_CLI_BASE_RING_FILE_H
#define SPIKEWATCH_CLI_BASE_RING_FILE_H

#include <stdint.h>

struct ring;

struct ring_file_state {
	uint64_t missing_bytes;    /* the file is that much too short */
	uint64_t unreadable_bytes; /* in blocks that gave an I/O error */
};

/*
 * Reads the file once. Where all of it is there the ring is the file itself, else a copy in memory
 * that has zeros for what is missing. 0, *ret and *ret_state; -EBADMSG: not a ring, of another
 * version, or without its header; -ENOMEM; -errno.
 */
int ring_file_open(const char *path, struct ring **ret, struct ring_file_state *ret_state);

#endif
