/*
 * perfevents.h: opening what the kernel reports of one CPU, each with its ring: samples, into one that overwrites its oldest; and who maps, forks,
 * executes and exits, into one that is emptied.
 */
#ifndef SPIKEWATCH_PERFEVENTS_H
#define SPIKEWATCH_PERFEVENTS_H

#include "perfring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PERFEVENTS_REASON_MAX 200

struct perfevents {
	int fd; /* -1: closed */
	uint32_t cpu;
	void *map;
	size_t map_bytes;
	struct perfring ring;
};

/* {-1} of it. */
#define PERFEVENTS_NONE ((struct perfevents){ .fd = -1 })

/*
 * Samples cpu while it is busy, frequency times a second, whoever runs: PERFRECORD_FRAME_POINTERS. 0; -ENODEV: offline, or no such CPU; -errno, and
 * then reason, of PERFEVENTS_REASON_MAX bytes, says it for people. *ret is closed by perfevents_close.
 */
int perfevents_open_samples(uint32_t cpu, uint32_t frequency, size_t ring_bytes, struct perfevents *ret, char *reason);

/*
 * MMAP2, COMM, FORK and EXIT of what runs on cpu, with the same trailer. *build_ids: whether to ask for build ids; false afterwards if the kernel
 * is too old for that. poll(2) wakes when the ring is half full. Otherwise as perfevents_open_samples.
 */
int perfevents_open_side(uint32_t cpu, size_t ring_bytes, bool *build_ids, struct perfevents *ret, char *reason);

/* Holds the ring still, or lets it go on. 0 or -errno. */
int perfevents_pause(const struct perfevents *events, bool pause);

/* {-1} of it and what is closed already is fine. */
void perfevents_close(struct perfevents *events);

/* As many samples per second as are wanted and as the kernel allows. */
uint32_t perfevents_frequency(uint32_t wanted);

#endif
