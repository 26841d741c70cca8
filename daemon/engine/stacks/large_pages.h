/*
 * large_pages.h: samples of memory that comes in pages larger than the smallest. An event of page
 * faults counts a fault once, whatever it brings: one of a huge page brings 512 small ones.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_STACKS_LARGE_PAGES_H
#define SPIKEWATCH_DAEMON_ENGINE_STACKS_LARGE_PAGES_H

#include "daemon/engine/base/perf_events.h"

#include <stdbool.h>
#include <stdint.h>

struct large_pages;

/*
 * Begins to write samples of PERF_EVENTS_LARGE_PAGES into rings that are opened for page faults
 * with `large_pages`, cpus of them, borrowed. wanted: of those. Takes CAP_BPF and CAP_PERFMON
 * (Linux 5.8; before, CAP_SYS_ADMIN). 0; -ENOMEM; -errno, and then reason, of
 * PERF_EVENTS_REASON_MAX bytes, is a message. *ret is the caller's: large_pages_close.
 */
int large_pages_open(const struct perf_events_wanted *wanted, const struct perf_events *rings, unsigned cpus,
		     struct large_pages **ret, char *reason);

/* NULL is fine. */
void large_pages_close(struct large_pages *large);

/*
 * While it is on, each allocation of a page takes 50 ns more, on every CPU. It is on after
 * large_pages_open. 0 or -errno; nothing if it is so already.
 */
int large_pages_switch(struct large_pages *large, bool on);

/* How many samples were written to the ring of this CPU, ever. */
uint64_t large_pages_samples(const struct large_pages *large, uint32_t cpu);

#endif
