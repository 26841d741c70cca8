/*
 * watcher.h: the lossy reader of the ring that feeds the rules (evaluator.h), the incidents that are open (incidents.h), and the log of who came and went (arrivals.h). Belongs to the
 * main thread; the sampler does not know it exists.
 */
#ifndef SPIKEWATCH_WATCHER_H
#define SPIKEWATCH_WATCHER_H

#include "arrivals.h"
#include "evaluator.h"
#include "incidents.h"
#include "ring.h"

struct watcher;

struct watcher_counts {
	uint64_t ticks;
	uint64_t lost_pages; /* overtaken by the sampler */
	uint64_t damaged_pages;
};

/* From now on. All must outlive the watcher; arrivals may be NULL. 0 or -ENOMEM. */
int watcher_new(struct ring *ring, struct evaluator *evaluator, struct incidents *incidents, struct arrivals *arrivals,
		struct watcher **ret);
void watcher_free(struct watcher *watcher);

/* Takes in whatever is published. 0 or -ENOMEM. */
int watcher_poll(struct watcher *watcher);

/* Totals so far. */
void watcher_counts(const struct watcher *watcher, struct watcher_counts *ret);

#endif
