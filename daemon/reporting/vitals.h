/* vitals.h: what a running daemon says of itself and nobody keeps: it is read when somebody asks. */
#ifndef SPIKEWATCH_VITALS_H
#define SPIKEWATCH_VITALS_H

#include "ring.h"

#include <stdint.h>

struct vitals {
	uint64_t cpu_ns;         /* of this process, all threads */
	uint64_t resident_bytes; /* 0: not known */
	uint64_t open_fds;
	uint64_t history_ns; /* from the oldest tick in the ring to the newest; 0: none yet */
};

/* Some hundred microseconds. What cannot be read is 0. */
void vitals_read(const struct ring *ring, struct vitals *ret);

#endif
