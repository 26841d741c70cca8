/*
 * peaks.h: which of many targets did most: the highest CPU use and the most memory of each, from rows as they come. Pure, and bounded:
 * nothing in the rows is trusted.
 */
#ifndef SPIKEWATCH_PEAKS_H
#define SPIKEWATCH_PEAKS_H

#include "sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More targets are not told apart: they are counted. */
#define PEAKS_TARGETS_MAX 16384u

/* CPU is taken over at least so long: below, the grain of the kernel's accounting shows. */
#define PEAKS_WINDOW_NS 100000000

struct peaks_target {
	uint32_t id;
	char name[128]; /* "" until it is known; may hold any byte */
	bool has_cpu, has_memory;
	double cpu_cores; /* the most over PEAKS_WINDOW_NS or more */
	uint64_t memory_bytes;
	/* Where the window that is being looked at began. */
	bool begun;
	int64_t begun_ns;
	uint64_t begun_cpu;
};

/* {0} is empty and legal. */
struct peaks {
	struct peaks_target *target;
	size_t count, cap;
	uint32_t *slot; /* index + 1 into target, by id; 0: free */
	bool cut;       /* there were more targets */
};

/* A target's name, out of its declaration (columns.h): one JSON object. What is none is passed over. 0 or -ENOMEM. */
int peaks_declare(struct peaks *peaks, uint32_t id, const char *json, size_t len);

/* A sample of a target. 0 or -ENOMEM. */
int peaks_add(struct peaks *peaks, uint32_t id, int64_t at_ns, const struct sample *sample);

/* Samples are missing: no window reaches over this. */
void peaks_gap(struct peaks *peaks);

/* Most CPU first, then most memory. No samples may be added after this. */
void peaks_sort(struct peaks *peaks);

/* Frees. */
void peaks_release(struct peaks *peaks);

#endif
