/*
 * ring_ledger.c: a list of accounts behind a lock of one word in private memory, held for the few hundred additions of a sum.
 *
 * A tick must not wait: a post that does not get the lock at once, or a little later, is kept and made by the next one. Since the sum is made of what
 * was posted, it is at any time the sum of whole states of each writer, if not of the same moment.
 *
 * Rejected: every writer's counters in the file, to be added up by readers: each of them would have to know how.
 */
#include "ring_ledger.h"

#include "ring.h"

#include <errno.h>
#include <sched.h>

/* The lock is held for less than a microsecond: who does not get it after so many looks waits for a thread that has no CPU. */
#define TRIES 200

static bool lock_soon(struct ring *ring)
{
	for (int i = 0; i < TRIES; i++)
		if (ring_load(&ring->ledger_lock) == 0 && ring_swap(&ring->ledger_lock, 0, 1))
			return true;
	return false;
}

static void lock(struct ring *ring)
{
	while (!lock_soon(ring))
		sched_yield();
}

static void unlock(struct ring *ring)
{
	ring_store_release(&ring->ledger_lock, 0);
}

static void publish(struct ring *ring)
{
	struct stats sum = ring->departed;

	for (const struct ring_account *account = ring->accounts; account; account = account->next)
		if (account->used)
			stats_merge(&sum, &account->stats);
	ring_stats_publish(ring, &sum);
}

static void enter(struct ring_account *account, const struct stats *stats)
{
	account->stats = *stats;
	account->used = true;
	account->unposted = false;
}

void ring_ledger_open(struct ring *ring, struct ring_account *account, uint64_t writer)
{
	account->writer = writer;
	lock(ring);
	account->next = ring->accounts;
	ring->accounts = account;
	unlock(ring);
}

void ring_ledger_close(struct ring *ring, struct ring_account *account)
{
	struct ring_account **link = &ring->accounts;

	lock(ring);
	while (*link != account)
		link = &(*link)->next;
	*link = account->next;
	if (account->unposted)
		enter(account, &account->kept);
	if (account->used) {
		stats_merge(&ring->departed, &account->stats);
		publish(ring);
	}
	unlock(ring);
}

void ring_ledger_post(struct ring *ring, struct ring_account *account, const struct stats *stats)
{
	if (!lock_soon(ring)) {
		account->kept = *stats;
		account->unposted = true;
		return;
	}
	enter(account, stats);
	publish(ring);
	unlock(ring);
}

int ring_writer_stats(struct ring *ring, uint64_t writer, struct stats *ret)
{
	int r = -ENOENT;

	lock(ring);
	for (const struct ring_account *account = ring->accounts; account; account = account->next)
		if (account->writer == writer && account->used) {
			*ret = account->stats;
			r = 0;
		}
	unlock(ring);
	return r;
}
