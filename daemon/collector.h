/*
 * collector.h: the worker thread that collects evidence and writes incidents. It takes jobs in order; whatever it does may be slow.
 */
#ifndef SPIKEWATCH_COLLECTOR_H
#define SPIKEWATCH_COLLECTOR_H

#include "config.h"
#include "incident.h"
#include "session.h"
#include "slice.h"
#include "spool.h"
#include "target.h"

#include <stdbool.h>
#include <time.h>
#include <stdint.h>

struct collector;

/* An incident from the firing to the disk. */
struct collector_incident {
	struct collector_incident *next; /* in the main thread's list, then in the job queue */
	/* The main thread's until collector_seal. */
	struct incident info;
	struct slice *slice;
	mono_t followed; /* ticks up to here are in the slice */
	/* Set before collector_capture, then only read. */
	unsigned char encoded[TARGET_ENCODED_MAX];
	struct target target; /* strings point into encoded */
	mono_t fired;
	wall_t wall; /* of fired */
	/* The worker's. */
	struct spool_draft *draft;
	struct incident evidence; /* as of the firing, with the captures that were run then */
	int error;
};

struct collector_counts {
	uint64_t sealed, failed, removed;
};

/* Starts the thread. spool is the thread's alone until collector_stop. 0; -ENOMEM; -errno. */
int collector_new(const struct config *config, struct session *session, struct spool *spool, struct collector **ret);

/* The CPU clock of its thread, for sampler_exempt. */
clockid_t collector_cpu_clock(const struct collector *collector);

/* Queues the captures of what would be gone later. incident stays the caller's but for the worker's fields. */
void collector_capture(struct collector *collector, struct collector_incident *incident);

/* Hands the incident over: its samples are written, it is sealed, the spool's limits are enforced, and it is freed. */
void collector_seal(struct collector *collector, struct collector_incident *incident);

/* Finishes all jobs and ends the thread. Harmless if it has ended. */
void collector_stop(struct collector *collector);

/* collector_stop first. NULL is fine. */
void collector_free(struct collector *collector);

/* Totals so far. */
void collector_counts(struct collector *collector, struct collector_counts *ret);

/* Frees an incident that was never handed over. */
void collector_incident_free(struct collector_incident *incident);

#endif
