/*
 * addressbook_limits.h: how much an addressbook may hold, and what it says of it.
 */
#ifndef SPIKEWATCH_ADDRESSBOOK_LIMITS_H
#define SPIKEWATCH_ADDRESSBOOK_LIMITS_H

#include <stddef.h>
#include <stdint.h>

/* Zero is the default. */
struct addressbook_limits {
	size_t max_lives;    /* 65,536 */
	size_t max_bytes;    /* 16 MiB; all it takes from the heap */
	size_t max_mappings; /* 4,096; of one life, the oldest go first */
	size_t max_names;    /* 1,024; names of threads, of one life, the oldest go first */
	uint64_t keep_ns;    /* 120 s; a life that has ended is kept this long */
};

/* The first three are what there is now, the others count since it was made. */
struct addressbook_stats {
	uint64_t lives, mappings, bytes;
	uint64_t evicted; /* ended lives that went before their time, to make room */
	uint64_t dropped; /* mappings, names and lives that found no room, or no memory */
};

#endif
