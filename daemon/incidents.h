/*
 * incidents.h: from "a rule fired" to a sealed directory. The main thread opens, feeds and closes incidents; one worker thread
 * collects evidence and writes, so that nothing that collects ever stops the rules or the sampling.
 *
 *      fire            capture (worker)                    `after` is over             seal (worker)
 *     ─────▶ OPEN ─┬─▶ status, threads, limits, ... ──┬──▶ handed over ──▶ samples, incident.json, MANIFEST, rename
 *                  └─▶ slice: before from the ring,   │
 *                      then every tick; firings of ───┘
 *                      the same target are merged
 *
 * All functions belong to the main thread.
 */
#ifndef SPIKEWATCH_INCIDENTS_H
#define SPIKEWATCH_INCIDENTS_H

#include "clock.h"
#include "evaluator.h"
#include "memo.h"
#include "session.h"
#include "spool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct incidents;

/* So many at once; further firings are refused with a word in the log. Each holds its slice in memory. */
#define INCIDENTS_OPEN_MAX 16u

struct incidents_options {
	const struct config *config;
	struct session *session;
	const struct memo *memo; /* for how often a rule has fired */
	struct spool *spool;     /* the worker's once incidents_new was called, but for asking about space */
};

struct incidents_counts {
	uint64_t opened, sealed, merged;
	uint64_t failed;  /* could not be written */
	uint64_t refused; /* too many open */
	size_t open;
};

/* Starts the worker. 0; -ENOMEM; -errno. */
int incidents_new(const struct incidents_options *options, struct incidents **ret);

/* incidents_finish first. NULL is fine. */
void incidents_free(struct incidents *incidents);

/* A rule fired: opens an incident, its slice secured when this returns, or merges into the one that is open for this target. 0 (also when refused). */
int incidents_fire(struct incidents *incidents, const struct evaluator_firing *firing);

/* Room for one more on the file system and in the spool? Asked at most once a second, the answer is kept. */
bool incidents_disk_ok(struct incidents *incidents, mono_t now);

/* The ring's events, in order. */
void incidents_tick(struct incidents *incidents, mono_t at);
void incidents_sample(struct incidents *incidents, uint32_t id, mono_t at, const struct sample *sample);
void incidents_gone(struct incidents *incidents, uint32_t id, mono_t at);
void incidents_gap(struct incidents *incidents, mono_t at, uint64_t lost_pages);

/* Hands over to the worker what is complete. */
void incidents_poll(struct incidents *incidents, mono_t now);

/* Hands over everything with what there is, and waits until the worker has written it. */
void incidents_finish(struct incidents *incidents);

/* Totals so far. */
void incidents_counts(struct incidents *incidents, struct incidents_counts *ret);

#endif
