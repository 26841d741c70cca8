/*
 * newcomers.c: slots in the order of their last news, used round and round, and chains from pid to slot. A process of which there are news again moves to
 * a new slot, so that those at the front are always the ones that have waited longest.
 */
#include "newcomers.h"

#include <errno.h>
#include <stdlib.h>

#define BUCKETS NEWCOMERS_MAX
#define NOWHERE UINT32_MAX

/* News that come so late after an end are not of the process that ended: pids are used again after thousands of others. */
#define LATE_NS (100 * NS_PER_MS)

_Static_assert((NEWCOMERS_MAX & (NEWCOMERS_MAX - 1)) == 0, "numbers of slots go round");

struct newcomers {
	struct newcomer slots[NEWCOMERS_MAX];
	uint32_t buckets[BUCKETS];
	uint64_t used; /* ever; the next is used % NEWCOMERS_MAX */
	uint64_t due;  /* those before it were handed out */
	uint64_t missed, dropped;
};

int newcomers_new(struct newcomers **ret)
{
	struct newcomers *newcomers = calloc(1, sizeof(*newcomers));

	if (newcomers == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < BUCKETS; i++)
		newcomers->buckets[i] = NOWHERE;
	*ret = newcomers;
	return 0;
}

void newcomers_free(struct newcomers *newcomers)
{
	free(newcomers);
}

static uint32_t *bucket_of(struct newcomers *newcomers, int32_t pid)
{
	return &newcomers->buckets[(uint32_t)pid % BUCKETS];
}

struct newcomer *newcomers_find(struct newcomers *newcomers, int32_t pid)
{
	for (uint32_t i = *bucket_of(newcomers, pid); i != NOWHERE; i = newcomers->slots[i].next)
		if (newcomers->slots[i].pid == pid)
			return &newcomers->slots[i];
	return NULL;
}

static void forget(struct newcomers *newcomers, struct newcomer *newcomer)
{
	uint32_t *at = bucket_of(newcomers, newcomer->pid);
	uint32_t index = (uint32_t)(newcomer - newcomers->slots);

	while (*at != index)
		at = &newcomers->slots[*at].next;
	*at = newcomer->next;
	newcomer->state = NEWCOMER_NONE;
}

/* The newest slot, for pid. */
static struct newcomer *enter(struct newcomers *newcomers, const struct newcomer *what)
{
	uint32_t index = (uint32_t)(newcomers->used % NEWCOMERS_MAX);
	struct newcomer *slot = &newcomers->slots[index];
	uint32_t *bucket = bucket_of(newcomers, what->pid);

	if (slot->state != NEWCOMER_NONE) {
		newcomers->dropped += slot->state == NEWCOMER_WAITING;
		forget(newcomers, slot);
	}
	*slot = *what;
	slot->next = *bucket;
	*bucket = index;
	newcomers->used++;
	if (newcomers->used - newcomers->due > NEWCOMERS_MAX)
		newcomers->due = newcomers->used - NEWCOMERS_MAX;
	return slot;
}

static void miss(struct newcomers *newcomers, struct newcomer *newcomer)
{
	newcomers->missed += !newcomer->missed;
	newcomer->missed = true;
}

struct newcomer *newcomers_began(struct newcomers *newcomers, int32_t pid, enum newcomer_news news, mono_t now)
{
	struct newcomer *known = newcomers_find(newcomers, pid);
	struct newcomer newcomer = { .pid = pid };

	if (known != NULL && known->state == NEWCOMER_GONE && mono_diff(now, known->at) < (int64_t)LATE_NS) {
		known->renamed |= news != NEWCOMER_FORKED;
		if (news != NEWCOMER_RENAMED)
			miss(newcomers, known);
		return NULL;
	}
	if (known != NULL && known->state != NEWCOMER_GONE && news != NEWCOMER_FORKED)
		newcomer = *known;
	newcomer.met |= newcomer.state == NEWCOMER_MET;
	if (known != NULL)
		forget(newcomers, known);
	newcomer.state = NEWCOMER_WAITING;
	newcomer.at = now;
	if (news == NEWCOMER_FORKED)
		newcomer.born = now;
	newcomer.forked |= news == NEWCOMER_FORKED;
	newcomer.executed |= news == NEWCOMER_EXECUTED;
	newcomer.renamed |= news != NEWCOMER_FORKED;
	return enter(newcomers, &newcomer);
}

struct newcomer *newcomers_ended(struct newcomers *newcomers, int32_t pid, mono_t now)
{
	struct newcomer *known = newcomers_find(newcomers, pid);

	if (known == NULL)
		return enter(newcomers, &(struct newcomer){ .pid = pid, .state = NEWCOMER_GONE, .at = now });
	if (known->state == NEWCOMER_WAITING)
		miss(newcomers, known);
	known->state = NEWCOMER_GONE;
	known->at = now;
	return known;
}

/* The first that waits, or NULL. */
static struct newcomer *first(struct newcomers *newcomers)
{
	for (; newcomers->due < newcomers->used; newcomers->due++) {
		struct newcomer *newcomer = &newcomers->slots[newcomers->due % NEWCOMERS_MAX];

		if (newcomer->state == NEWCOMER_WAITING)
			return newcomer;
	}
	return NULL;
}

struct newcomer *newcomers_due(struct newcomers *newcomers, uint64_t delay_ns, mono_t now)
{
	struct newcomer *newcomer = first(newcomers);

	if (newcomer == NULL || mono_diff(now, newcomer->at) < (int64_t)delay_ns)
		return NULL;
	newcomers->due++;
	return newcomer;
}

bool newcomers_next(struct newcomers *newcomers, uint64_t delay_ns, mono_t *ret)
{
	const struct newcomer *newcomer = first(newcomers);

	if (newcomer != NULL)
		*ret = mono_add(newcomer->at, delay_ns);
	return newcomer != NULL;
}

size_t newcomers_give_up(struct newcomers *newcomers)
{
	size_t count = 0;

	for (; first(newcomers) != NULL; newcomers->due++)
		count++;
	return count;
}

uint64_t newcomers_missed(const struct newcomers *newcomers)
{
	return newcomers->missed;
}

uint64_t newcomers_dropped(const struct newcomers *newcomers)
{
	return newcomers->dropped;
}
