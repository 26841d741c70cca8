/*
 * watchtable.c: a hash table that chains watches through themselves. Ids are given in order, so their low bits spread
 * them perfectly: a bucket holds one or two.
 */
#include "watchtable.h"

#include "scope.h"

#include <errno.h>
#include <stdlib.h>

#define WATCHES_MIN 64

/* A tick is over within this. A sampler that was stopped in the middle of one (SIGSTOP) would else shift its targets by as long. */
#define OFFSET_MAX_NS ((int64_t)(100 * NS_PER_MS))

static struct watch **bucket_of(const struct watchtable *table, uint32_t id)
{
	return &table->buckets[id & (table->capacity - 1)];
}

struct watch *watchtable_find(const struct watchtable *table, uint32_t id)
{
	struct watch *watch = table->capacity ? *bucket_of(table, id) : NULL;

	while (watch && watch->target.id != id)
		watch = watch->chain;
	return watch;
}

static void bucket_add(struct watchtable *table, struct watch *watch)
{
	struct watch **bucket = bucket_of(table, watch->target.id);

	watch->chain = *bucket;
	*bucket = watch;
}

int watchtable_reserve(struct watchtable *table)
{
	size_t capacity = table->capacity ? table->capacity * 2 : WATCHES_MIN;
	AUTO_FREE struct watch **watches = NULL;
	AUTO_FREE struct watch **buckets = NULL;
	AUTO_FREE struct watch **old_watches = NULL;
	AUTO_FREE struct watch **old_buckets = NULL;

	if (table->count < table->capacity)
		return 0;

	watches = calloc(capacity, sizeof(*watches));
	buckets = calloc(capacity, sizeof(*buckets));
	if (!watches || !buckets)
		return -ENOMEM;

	old_watches = table->watches;
	old_buckets = table->buckets;
	table->watches = TAKE(watches);
	table->buckets = TAKE(buckets);
	table->capacity = capacity;
	for (size_t i = 0; i < table->count; i++) {
		table->watches[i] = old_watches[i];
		bucket_add(table, old_watches[i]);
	}
	return 0;
}

void watchtable_add(struct watchtable *table, struct watch *watch)
{
	watch->index = table->count;
	table->watches[table->count++] = watch;
	bucket_add(table, watch);
}

static void untouch(struct watchtable *table, struct watch *watch)
{
	struct watch **link = &table->touched;

	if (!watch->is_touched)
		return;

	while (*link != watch)
		link = &(*link)->touched;
	*link = watch->touched;
}

void watchtable_remove(struct watchtable *table, struct watch *watch)
{
	struct watch **link = bucket_of(table, watch->target.id);
	struct watch *last = table->watches[--table->count];

	while (*link != watch)
		link = &(*link)->chain;
	*link = watch->chain;

	untouch(table, watch);
	last->index = watch->index;
	table->watches[watch->index] = last;
	watch_free(watch);
}

void watchtable_touch(struct watchtable *table, struct watch *watch)
{
	if (watch->is_touched)
		return;

	watch->is_touched = true;
	watch->touched = table->touched;
	table->touched = watch;
}

static int64_t bounded(int64_t offset_ns)
{
	if (offset_ns > OFFSET_MAX_NS)
		return OFFSET_MAX_NS;

	return offset_ns < -OFFSET_MAX_NS ? -OFFSET_MAX_NS : offset_ns;
}

void watchtable_settle(struct watchtable *table, uint32_t line, mono_t now)
{
	for (struct watch **link = &table->touched; *link;) {
		struct watch *watch = *link;

		if (watch->line != line) {
			link = &watch->touched;
			continue;
		}
		*link = watch->touched;
		watch->offset_ns = bounded(mono_diff(watch->at, now));
		watch->is_touched = false;
	}
}

void watchtable_forget(struct watchtable *table)
{
	for (struct watch *watch = table->touched; watch; watch = watch->touched)
		watch->is_touched = false;
	table->touched = NULL;
}

void watchtable_release(struct watchtable *table)
{
	for (size_t i = 0; i < table->count; i++)
		watch_free(table->watches[i]);
	free(table->watches);
	free(table->buckets);
	*table = (struct watchtable){ 0 };
}
