/*
 * ring_ledger.h: the counters of all writers of a ring in one, for its header. Each writer of this process has an account; whoever
 * posts to one publishes the sum of all.
 *
 * Only for the ring's own modules: callers use ring.h.
 */
#ifndef SPIKEWATCH_RING_LEDGER_H
#define SPIKEWATCH_RING_LEDGER_H

#include "ring_format.h"
#include "stats.h"

#include <stdbool.h>
#include <stdint.h>

struct ring_account {
	struct ring_account *next;
	uint64_t writer; /* its number */
	bool used;       /* something was posted */
	bool unposted;   /* the owner's: kept says more than stats */
	struct stats stats;
	struct stats kept;
};

/* Opens an account for the writer of this number, in the writer's storage. May wait for another thread's post. */
void ring_ledger_open(struct ring *ring, struct ring_account *account, uint64_t writer);

/* What the writer has counted stays in the sum. May wait likewise. */
void ring_ledger_close(struct ring *ring, struct ring_account *account);

/* The writer's counters are these: ring_stats() says so, unless another thread keeps the ledger busy; then the next post or the close does. */
void ring_ledger_post(struct ring *ring, struct ring_account *account, const struct stats *stats);

#endif
