/*
 * labelbook.c: a hash table of slots, each as long as its labels. A container without labels has none.
 *
 * What is replaced is put aside and freed later: who is amid the entries of the configuration with one process holds on to its labels, without a count.
 */
#include "labelbook.h"

#include "containerpath.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 256u

struct slot {
	struct slot *next; /* in its bucket, or put aside */
	char *path;
	struct labels labels; /* as much of it as is in use */
};

struct labelbook {
	pthread_mutex_t lock; /* of the buckets; the thread that writes reads them without */
	struct slot *buckets[BUCKETS];
	struct slot *aside;
};

static const struct labels none;

int labelbook_new(struct labelbook **ret)
{
	struct labelbook *book = calloc(1, sizeof *book);

	if (!book)
		return -ENOMEM;

	pthread_mutex_init(&book->lock, NULL);
	*ret = book;

	return 0;
}

static void free_slots(struct slot *slot)
{
	while (slot) {
		struct slot *next = slot->next;

		free(slot->path);
		free(slot);
		slot = next;
	}
}

void labelbook_free(struct labelbook *book)
{
	if (!book)
		return;

	for (size_t i = 0; i < BUCKETS; i++)
		free_slots(book->buckets[i]);
	free_slots(book->aside);
	pthread_mutex_destroy(&book->lock);
	free(book);
}

void labelbook_tidy(struct labelbook *book)
{
	free_slots(book->aside);
	book->aside = NULL;
}

static struct slot **find(struct labelbook *book, const char *path, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)path[i]) * 16777619u;

	struct slot **at = &book->buckets[(hash ^ (hash >> 15)) % BUCKETS];

	while (*at && (strncmp((*at)->path, path, len) != 0 || (*at)->path[len] != '\0'))
		at = &(*at)->next;

	return at;
}

/* NULL: no memory. */
static struct slot *make_slot(const char *path, const struct labels *labels)
{
	struct slot *slot = malloc(offsetof(struct slot, labels) + labels_size(labels));
	char *copy = strdup(path);

	if (!slot || !copy) {
		free(slot);
		free(copy);
		return NULL;
	}
	slot->next = NULL;
	slot->path = copy;
	labels_copy(&slot->labels, labels);

	return slot;
}

/* One slot, or none, in the place of another, or of none. */
static void exchange(struct labelbook *book, const char *path, struct slot *slot)
{
	struct slot **at = find(book, path, strlen(path)), *old = *at;

	pthread_mutex_lock(&book->lock);
	if (slot)
		slot->next = old ? old->next : NULL;
	if (slot || old)
		*at = slot ? slot : old->next;
	pthread_mutex_unlock(&book->lock);
	if (old) {
		old->next = book->aside;
		book->aside = old;
	}
}

const struct labels *labelbook_put(struct labelbook *book, const char *path, const struct labels *labels)
{
	bool any = labels->count > 0 || labels->left_out > 0;
	struct slot *slot = any ? make_slot(path, labels) : NULL;

	exchange(book, path, slot);
	if (!any)
		return &none;

	return slot ? &slot->labels : NULL;
}

void labelbook_drop(struct labelbook *book, const char *path)
{
	exchange(book, path, NULL);
}

bool labelbook_get(struct labelbook *book, const char *cgroup, struct labels *ret)
{
	struct containerpath where;

	if (!containerpath_parse(cgroup, &where))
		return false;

	pthread_mutex_lock(&book->lock);

	const struct slot *slot = *find(book, cgroup, where.len);

	if (slot)
		labels_copy(ret, &slot->labels);
	pthread_mutex_unlock(&book->lock);

	return slot != NULL;
}
