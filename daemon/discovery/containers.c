/*
 * containers.c: a hash table by the path of the container's own cgroup. A path that may be a container's but is not is remembered as well, so that it is
 * looked for once.
 *
 *	met ──▶ PENDING ── looked at again after 20, 100, 500 ms ──▶ KNOWN, with a name or without
 *	  └── its files are there, or never will be ──▶ KNOWN ◀────────┘
 */
#include "containers.h"

#include "containerfiles.h"
#include "containerpath.h"
#include "scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 512u
#define KEPT_NS (60 * NS_PER_S)
#define KEPT_SCANS 3

/* At a time, so that others have their turn: a look reads files of megabytes at worst, and cgroups that look like containers anybody can make. */
#define LOOKS_MAX 16u

/* The same of reviews. */
#define REVIEWS_MAX 64u

/* Labels that cannot be read are tried again after one review, two, four, and so on up to this: it is a dozen files each time. */
#define PATIENCE_MAX 16u

/* Since it was met. The last is CONTAINERS_WAIT_NS. */
static const uint64_t looks_ns[] = { 20 * NS_PER_MS, 100 * NS_PER_MS, CONTAINERS_WAIT_NS };

/* Of what is a container, or may yet be one. */
struct about {
	struct containerpath where;
	struct container container;
	struct containerfiles_source source;
};

/* Any cgroup may be called so that it may be one, and many come and go: of what is none little is kept. */
struct entry {
	struct entry *next;  /* in its bucket */
	struct about *about; /* NULL: it is none */
	enum containers_answer answer;
	mono_t met, used;
	unsigned looks;    /* after the first */
	int error;         /* why it has no labels */
	uint64_t reviewed; /* the last review that looked at it */
	unsigned patience; /* reviews between two readings for its labels */
	unsigned reviews;  /* since the last */
	char path[];       /* of its own cgroup */
};

struct containers {
	struct containerfiles *files;
	struct labelbook *labels;
	uint64_t review; /* number of the last one */
	mono_t review_began;
	size_t bucket; /* where it is; BUCKETS: it is over */
	struct entry *buckets[BUCKETS];
	size_t count, pending;
};

int containers_new(const char *runtime_root, struct containers **ret)
{
	struct containers *containers = calloc(1, sizeof *containers);

	if (!containers)
		return -ENOMEM;

	int r = containerfiles_new(runtime_root, &containers->files);

	containers->bucket = BUCKETS;
	if (r == 0)
		r = labelbook_new(&containers->labels);
	if (r < 0) {
		containers_free(containers);
		return r;
	}
	*ret = containers;

	return 0;
}

int containers_error(const struct containers *containers)
{
	return containerfiles_error(containers->files);
}

/* Takes *at out of its bucket. */
static void drop(struct containers *containers, struct entry **at)
{
	struct entry *entry = *at;

	*at = entry->next;
	containers->count--;
	containers->pending -= entry->answer == CONTAINERS_PENDING;
	labelbook_drop(containers->labels, entry->path);
	free(entry->about);
	free(entry);
}

void containers_free(struct containers *containers)
{
	if (!containers)
		return;

	for (size_t i = 0; i < BUCKETS; i++)
		while (containers->buckets[i])
			drop(containers, &containers->buckets[i]);
	labelbook_free(containers->labels);
	containerfiles_free(containers->files);
	free(containers);
}

struct labelbook *containers_labels(struct containers *containers)
{
	return containers->labels;
}

size_t containers_unlabelled(const struct containers *containers, int *ret_error)
{
	size_t count = 0;

	*ret_error = 0;
	for (size_t i = 0; i < BUCKETS; i++)
		for (const struct entry *entry = containers->buckets[i]; entry; entry = entry->next) {
			if (entry->answer != CONTAINERS_KNOWN || entry->about->container.labels ||
			    entry->about->where.foreign || entry->about->container.sandbox)
				continue;
			count++;
			*ret_error = entry->error ? entry->error : *ret_error;
		}

	return count;
}

size_t containers_count(const struct containers *containers)
{
	return containers->count;
}

/* ---- one ---- */

/* What the path alone says. */
static void begin(struct entry *entry)
{
	const struct containerpath *where = &entry->about->where;
	struct container *container = &entry->about->container;

	*container = (struct container){ .runtime = where->runtime };
	container_text(container->id, sizeof container->id, where->id, strlen(where->id));
	/* Only an id of 64 digits is no name. */
	if (where->runtime == CONTAINER_NSPAWN || where->runtime == CONTAINER_LXC || where->space[0] != '\0')
		container_text(container->name, sizeof container->name, where->id, strlen(where->id));
}

/* Takes over what was read of its labels. */
static void take_labels(struct containers *containers, struct entry *entry, const struct containerfiles_more *more)
{
	entry->error = more->error;
	entry->about->container.labels =
		more->labelled ? labelbook_put(containers->labels, entry->path, &more->labels) : NULL;
	if (!entry->about->container.labels)
		labelbook_drop(containers->labels, entry->path);
}

/* Looks for its names and labels. */
static void look(struct containers *containers, struct entry *entry)
{
	struct about *about = entry->about;
	struct containerfiles_more more;
	enum containerfiles_result result;

	begin(entry);
	result = containerfiles_read(about->where.foreign ? NULL : containers->files, &about->where, &about->container,
				     &more);
	about->source = more.source;
	take_labels(containers, entry, &more);
	if (result == CONTAINERFILES_OTHER || (about->where.unsure && result != CONTAINERFILES_READ))
		entry->answer = CONTAINERS_NONE;
	else if (result == CONTAINERFILES_ABSENT && entry->looks < ARRAY_LEN(looks_ns))
		entry->answer = CONTAINERS_PENDING;
	else
		entry->answer = CONTAINERS_KNOWN;
	if (entry->answer == CONTAINERS_NONE) {
		labelbook_drop(containers->labels, entry->path);
		free(entry->about);
		entry->about = NULL;
	}
}

static mono_t due(const struct entry *entry)
{
	return mono_add(entry->met, looks_ns[entry->looks]);
}

/* True: it was time, and it was looked for. */
static bool look_again(struct containers *containers, struct entry *entry, mono_t now)
{
	if (entry->answer != CONTAINERS_PENDING || mono_diff(now, due(entry)) < 0)
		return false;

	while (entry->looks < ARRAY_LEN(looks_ns) && mono_diff(now, due(entry)) >= 0)
		entry->looks++;
	look(containers, entry);
	containers->pending -= entry->answer != CONTAINERS_PENDING;

	return true;
}

/* ---- all ---- */

static uint32_t bucket_of(const char *path, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)path[i]) * 16777619u;

	return (hash ^ (hash >> 15)) % BUCKETS;
}

/* Whoever was asked for longest ago makes room. */
static void make_room(struct containers *containers)
{
	struct entry **oldest = NULL;

	for (size_t i = 0; i < BUCKETS; i++)
		for (struct entry **at = &containers->buckets[i]; *at; at = &(*at)->next)
			if (!oldest || mono_diff((*oldest)->used, (*at)->used) > 0)
				oldest = at;
	if (oldest)
		drop(containers, oldest);
}

/* NULL: no memory. */
static struct entry *meet(struct containers *containers, const char *path, const struct containerpath *where,
			  mono_t now)
{
	struct entry *entry;

	if (containers->count == CONTAINERS_MAX)
		make_room(containers);
	entry = malloc(sizeof *entry + where->len + 1);

	struct about *about = entry ? malloc(sizeof *about) : NULL;

	if (!about) {
		free(entry);
		return NULL;
	}

	*about = (struct about){ .where = *where };
	*entry = (struct entry){ .about = about, .met = now, .reviewed = containers->review };
	memcpy(entry->path, path, where->len);
	entry->path[where->len] = '\0';
	look(containers, entry);
	containers->pending += entry->answer == CONTAINERS_PENDING;
	containers->count++;

	struct entry **bucket = &containers->buckets[bucket_of(path, where->len)];

	entry->next = *bucket;
	*bucket = entry;

	return entry;
}

enum containers_answer containers_find(struct containers *containers, const char *cgroup, mono_t now,
				       const struct container **ret, bool *ret_own)
{
	struct containerpath where;

	if (!containers || !containerpath_parse(cgroup, &where))
		return CONTAINERS_NONE;

	struct entry *entry = containers->buckets[bucket_of(cgroup, where.len)];

	while (entry && (strncmp(entry->path, cgroup, where.len) != 0 || entry->path[where.len] != '\0'))
		entry = entry->next;
	if (entry)
		look_again(containers, entry, now);
	else
		entry = meet(containers, cgroup, &where, now);
	if (!entry)
		return CONTAINERS_NONE;

	entry->used = now;
	if (entry->answer == CONTAINERS_NONE)
		return CONTAINERS_NONE;

	*ret = &entry->about->container;
	*ret_own = cgroup[where.len] == '\0';

	return entry->answer;
}

bool containers_next(const struct containers *containers, mono_t *ret)
{
	bool any = false;

	for (size_t i = 0; containers && containers->pending > 0 && i < BUCKETS; i++)
		for (const struct entry *entry = containers->buckets[i]; entry; entry = entry->next)
			if (entry->answer == CONTAINERS_PENDING && (!any || mono_diff(*ret, due(entry)) > 0)) {
				*ret = due(entry);
				any = true;
			}

	return any;
}

void containers_retry(struct containers *containers, mono_t now, void (*visit)(void *ctx, const char *cgroup),
		      void *ctx)
{
	unsigned looks = 0;

	for (size_t i = 0; containers && containers->pending > 0 && i < BUCKETS; i++)
		for (struct entry *entry = containers->buckets[i]; entry && looks < LOOKS_MAX; entry = entry->next) {
			if (!look_again(containers, entry, now))
				continue;
			looks++;
			if (entry->answer == CONTAINERS_KNOWN)
				visit(ctx, entry->path);
		}
}

/* ---- those that are known ---- */

/* Its file is another one, or it is time to try again for its labels. */
static bool is_worth_reading(const struct containers *containers, struct entry *entry)
{
	if (entry->answer != CONTAINERS_KNOWN || entry->about->where.foreign)
		return false;
	if (containerfiles_changed(containers->files, entry->about->container.id, &entry->about->source))
		return true;
	if (entry->about->container.labels || ++entry->reviews < entry->patience)
		return false;

	entry->reviews = 0;
	entry->patience = entry->patience == 0             ? 2
			  : entry->patience < PATIENCE_MAX ? entry->patience * 2
							   : PATIENCE_MAX;

	return true;
}

static bool same_labels(const struct labels *a, const struct labels *b)
{
	return labels_size(a) == labels_size(b) && memcmp(a, b, labels_size(a)) == 0;
}

static bool same_names(const struct container *a, const struct container *b)
{
	return strcmp(a->name, b->name) == 0 && strcmp(a->space, b->space) == 0 && strcmp(a->pod, b->pod) == 0 &&
	       strcmp(a->image, b->image) == 0 && a->runtime == b->runtime;
}

/* True: something of it is another. What is being taken away with its container, or only half written, leaves it as it is. */
static bool read_again(struct containers *containers, struct entry *entry)
{
	struct about *about = entry->about;
	struct container before = about->container;
	struct containerfiles_more more;

	begin(entry);
	if (containerfiles_read(containers->files, &about->where, &about->container, &more) != CONTAINERFILES_READ) {
		about->container = before;
		return false;
	}
	about->source = more.source;
	about->container.labels = before.labels;
	if (before.labels && (!more.labelled || same_labels(before.labels, &more.labels)))
		return !same_names(&before, &about->container);

	take_labels(containers, entry, &more);

	return about->container.labels || !same_names(&before, &about->container);
}

/* The next that this review has not looked at. Starts where the last one was found. */
static struct entry *next_of_review(struct containers *containers)
{
	for (; containers->bucket < BUCKETS; containers->bucket++)
		for (struct entry *entry = containers->buckets[containers->bucket]; entry; entry = entry->next)
			if (entry->reviewed != containers->review)
				return entry;

	return NULL;
}

void containers_review(struct containers *containers, mono_t now, void (*visit)(void *ctx, const char *cgroup),
		       void *ctx)
{
	unsigned looks = 0;

	if (!containers)
		return;
	labelbook_tidy(containers->labels);
	if (containers->review_began.ns == 0)
		containers->review_began = now;
	if (containers->bucket == BUCKETS && mono_diff(now, containers->review_began) < (int64_t)CONTAINERS_REVIEW_NS)
		return;
	if (containers->bucket == BUCKETS) {
		containers->review++;
		containers->review_began = now;
		containers->bucket = 0;
	}

	for (unsigned seen = 0; seen < REVIEWS_MAX && looks < LOOKS_MAX; seen++) {
		struct entry *entry = next_of_review(containers);

		if (!entry)
			return;
		entry->reviewed = containers->review;
		if (!is_worth_reading(containers, entry))
			continue;
		looks++;
		if (read_again(containers, entry))
			visit(ctx, entry->path);
	}
}

void containers_forget(struct containers *containers, mono_t now, uint64_t rescan_interval_ns)
{
	uint64_t kept_ns = rescan_interval_ns * KEPT_SCANS;

	if (kept_ns < KEPT_NS)
		kept_ns = KEPT_NS;
	for (size_t i = 0; containers && i < BUCKETS; i++) {
		struct entry **at = &containers->buckets[i];

		while (*at)
			if (mono_diff(now, (*at)->used) > (int64_t)kept_ns)
				drop(containers, at);
			else
				at = &(*at)->next;
	}
	if (containers)
		labelbook_tidy(containers->labels);
}
