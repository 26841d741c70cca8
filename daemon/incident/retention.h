/*
 * retention.h: which incidents make room for others when space is short: the mildest, not the oldest. Pure.
 */
#ifndef SPIKEWATCH_RETENTION_H
#define SPIKEWATCH_RETENTION_H

#include "clock.h"
#include "incident.h"

#include <stddef.h>
#include <stdint.h>

/* 0 means no such limit. */
struct retention_limits {
	uint64_t max_bytes;
	uint32_t max_count;
	uint64_t max_age_ns;
	uint64_t min_free_bytes; /* of the file system, left for others */
	uint64_t next_bytes;     /* and for the next incident */
};

/* A sealed incident. */
struct retention_entry {
	char name[INCIDENT_NAME_MAX + 1];
	wall_t wall;     /* when it fired: the time in its name */
	uint64_t bytes;  /* disk space: sizes, each rounded up to 4 KiB */
	double severity; /* of incident.json; 0 if that cannot be read */
};

enum retention_reason {
	RETENTION_KEEP,
	RETENTION_AGE,   /* older than max_age_ns */
	RETENTION_COUNT, /* more than max_count */
	RETENTION_BYTES, /* more than max_bytes together */
	RETENTION_FREE,  /* less left than retention_free_bytes */
};

/* What is to be free: min_free_bytes and next_bytes, or as much as can be said. */
uint64_t retention_free_bytes(const struct retention_limits *limits);

/*
 * Sorts entries, the mildest first (of equals the oldest), and sets reasons[i] for entries[i]: first what is over age
 * goes, then the mildest until count, bytes and free space are right. A file system that others fill never costs the
 * last one, the worst of all, and nothing goes for free space if all but that one would not be enough. free_bytes: free on the file
 * system now.
 */
void retention_choose(const struct retention_limits *limits, wall_t now, uint64_t free_bytes,
		      struct retention_entry *entries, enum retention_reason *reasons, size_t count);

/* Older first, then by name: for qsort(3) over entries. */
int retention_compare_age(const void *a, const void *b);

/* "keep", "age", "count", "bytes", "free space". */
const char *retention_reason_name(enum retention_reason reason);

#endif
