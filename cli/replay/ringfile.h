/*
 * ringfile.h: a ring that was left behind, opened so that it can be read whatever became of its file: cut off, or with sectors that cannot
 * be read any more, which in a mapped file would be a SIGBUS.
 */
#ifndef SPIKEWATCH_RINGFILE_H
#define SPIKEWATCH_RINGFILE_H

#include "ring.h"

#include <stdint.h>

/* A ring that claims to be larger is not believed when its file is shorter. */
#define RINGFILE_BYTES_MAX ((uint64_t)4 << 30)

struct ringfile_state {
	uint64_t missing_bytes;    /* the file is that much too short */
	uint64_t unreadable_bytes; /* in blocks that gave an I/O error */
};

/*
 * Reads the file once. Where all of it is there the ring is the file itself, else a copy in memory that has zeros for what is missing.
 * 0, *ret and *ret_state; -EBADMSG: not a ring, of another version, or its header is lost; -ENOMEM; -errno.
 */
int ringfile_open(const char *path, struct ring **ret, struct ringfile_state *ret_state);

#endif
