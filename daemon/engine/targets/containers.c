/*
 * containers.c: what runtimes have on disk about a container, and a map by the path of its own
 * cgroup of what was read. A path that looks like a container's but is not is remembered as well,
 * so that it is looked up once.
 *
 * 	met ──▶ PENDING ── looked up again after 20, 100, 500 ms ──▶ KNOWN, with a name or without
 * 	  └── its files are there, or never will be ──▶ KNOWN ◀────────┘
 *
 * Names: a table of places is tried in order until one has the container. Then, for a container of
 * a pod that has no names yet, what the kubelet writes for every runtime: names of links, and of
 * directories of logs. Labels are in the same documents, if anywhere: of a pod, in that of its
 * sandbox; containerd and Podman have theirs in databases (bolt_file.h).
 *
 * A list of all containers is kept as it was read until another file takes its place: any user who
 * may make cgroups can cause lookups of ids, and reading megabytes for each would use up the
 * daemon's share of a core.
 *
 * All files are read by the child of foreign.h, and the lists are in its memory: they can be on a
 * disk or a network that does not answer. Discovery's lock is released while the child is waited for
 * (look_up and read_again keep what is known until they have the answer and the lock). What did not
 * answer in time stays without names, and is asked for again by each review.
 *
 * Rejected: a thread that reads, and containers that are pending until it has. A first scan would
 * have to wait for it all the same, and every container would be named a moment late.
 *
 * Labels are in a map of their own with a mutex, because other threads ask for them. Labels that
 * are replaced are freed later, by label_cache_tidy: discovery may still hold them while it matches
 * a process with the entries.
 */
#include "daemon/engine/targets/containers.h"

#include "daemon/engine/base/foreign.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/cgroup/bolt_file.h"
#include "lib/cgroup/container.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

/* A question for each container: 2,048 of them take some 100 ms in that time. */
#define CONTAINERS_REVIEW_NS (30 * NS_PER_S)

/* Entries of directories of logs that are read: a machine runs some hundred pods. */
#define NAMES_MAX 20000

/* An entry is kept for so long after it was last asked for; or so many pauses between scans. */
#define KEPT_NS (60 * NS_PER_S)
#define KEPT_SCANS 3

/*
 * Lookups at a time: one reads files of megabytes at worst, and any user who may make cgroups can
 * make some that look like containers. The same of reviews.
 */
#define LOOKS_MAX 16u
#define REVIEWS_MAX 64u

/*
 * Labels that cannot be read are tried again after 1, 2, 4 ... reviews, up to this: a dozen files
 * each.
 */
#define PATIENCE_MAX 16u

/* Since it was met. The last is CONTAINERS_WAIT_NS. */
static const uint64_t looks_ns[] = { 20 * NS_PER_MS, 100 * NS_PER_MS, CONTAINERS_WAIT_NS };

typedef int parser(const char *text, size_t len, struct container *ret, struct container_state_more *more);

/* A file per container: DIRECTORY/SPACE/ID/FILE. */
struct place {
	enum container_runtime runtime;
	const char *directory, *space; /* space NULL: none; "": that of the path, or each of spaces */
	const char *file;
	parser *parse;
};

#define TASKS "io.containerd.runtime.v2.task"
#define STORAGE "-containers"
#define META "io.containerd.metadata.v1.bolt/meta.db"

static const struct place places[] = {
	{ CONTAINER_DOCKER, "var/lib/docker/containers", NULL, "config.v2.json", container_state_docker },
	{ CONTAINER_CONTAINERD, "run/containerd/" TASKS, "", "config.json", container_state_oci },
	{ CONTAINER_CONTAINERD, "run/k3s/containerd/" TASKS, "", "config.json", container_state_oci },
	{ CONTAINER_CONTAINERD, "run/k0s/containerd/" TASKS, "", "config.json", container_state_oci },
	{ CONTAINER_CRIO, "run/containers/storage/overlay" STORAGE, NULL, "userdata/config.json", container_state_oci },
};

/* Of Kubernetes, nerdctl and Docker. */
static const char *const spaces[] = { "k8s.io", "default", "moby" };

/* Podman has its names in one file; its OCI documents, beside it, have none. */
static const char *const lists[] = {
	"var/lib/containers/storage/overlay" STORAGE,
	"var/lib/containers/storage/vfs" STORAGE,
	"var/lib/containers/storage/btrfs" STORAGE,
};

#define LISTS ARRAY_LEN(lists)
#define LIST_FILE "containers.json"

/* Numbers of files that may change: those of places, then those of lists. */
#define FIRST_PLACE 1u
#define FIRST_LIST (FIRST_PLACE + ARRAY_LEN(places))

static const char *const containerd[] = {
	"var/lib/containerd/" META,
	"var/lib/rancher/k3s/agent/containerd/" META,
	"var/lib/rancher/rke2/agent/containerd/" META,
	"var/lib/k0s/containerd/" META,
};

static const char podman[] = "var/lib/containers/storage/libpod/bolt_state.db";

enum lookup_result {
	LOOKUP_FOUND,  /* it has names */
	LOOKUP_ABSENT, /* the runtime has a place for it, which may still be written */
	LOOKUP_CLOSED, /* nothing can be read: no such runtime here, or no permission */
	LOOKUP_OTHER,  /* it is not a container after all but a virtual machine */
	LOOKUP_SAME,   /* the file is the one that was read */
	LOOKUP_UNANSWERED,
};

/* The file that a name was read from, as it was then. {0}: none, or none that changes. */
struct name_source {
	unsigned place; /* its number */
	char space[CONTAINER_SPACE_MAX + 1];
	uint64_t stamp;
};

/* What was found beside names. */
struct lookup_more {
	struct labels labels;
	bool labelled; /* these are its labels and its pod's; else they cannot be read, or do not exist */
	int error;     /* not labelled: why what has them could not be read, -errno; 0: nothing has them */
	struct name_source source;
};

/* A list, and the file that it was read from. */
struct known_list {
	uint64_t stamp; /* 0: it was not read */
	int error;
	struct container_state_list *list; /* NULL: it is none, for that error */
};

/* Labels of one container. */
struct label_slot {
	struct map_node node;
	struct label_slot *next; /* of those that were replaced */
	char *path;
	struct labels labels; /* as much of it as is in use */
};

struct label_cache {
	pthread_mutex_t lock; /* of the map; the thread that writes reads it without */
	struct map slots;     /* of containers that have labels */
	struct label_slot *replaced;
};

/* Of what is a container, or may yet be one. */
struct about {
	struct container_path where;
	struct container container;
	struct name_source source;
};

/* Any cgroup may have a name like a container's, and many come and go: of those little is kept. */
struct entry {
	struct map_node node;
	TAILQ_ENTRY(entry) all;
	struct about *about; /* NULL: it is no container */
	enum containers_answer answer;
	mono_t met, used;
	unsigned looks;    /* after the first */
	int error;         /* why it has no labels */
	bool unanswered;   /* the last lookup was */
	uint64_t reviewed; /* the last review that looked at it */
	unsigned patience; /* reviews between two readings for its labels */
	unsigned reviews;  /* since the last */
	char path[];       /* of its own cgroup */
};

struct containers {
	int rootfd; /* -errno: the runtime root could not be opened */
	struct label_cache *labels;
	struct map entries;
	TAILQ_HEAD(, entry) all; /* those that the running review has looked at are at the tail */
	uint64_t review;         /* number of the last one */
	mono_t review_began;
	size_t pending;
	struct unlocked_section section;
};

/* ---- labels ---- */

static const struct labels no_labels;

static int label_cache_new(struct label_cache **ret)
{
	struct label_cache *cache = calloc(1, sizeof *cache);

	if (!cache)
		return -ENOMEM;

	pthread_mutex_init(&cache->lock, NULL);
	*ret = cache;

	return 0;
}

static void label_slot_free(struct label_slot *slot)
{
	free(slot->path);
	free(slot);
}

static void label_cache_tidy(struct label_cache *cache)
{
	while (cache->replaced) {
		struct label_slot *slot = cache->replaced;

		cache->replaced = slot->next;
		label_slot_free(slot);
	}
}

static void label_cache_free(struct label_cache *cache)
{
	if (!cache)
		return;

	label_cache_tidy(cache);
	MAP_FOR_EACH(node, &cache->slots)
		label_slot_free(MAP_ENTRY(node, struct label_slot, node));
	map_release(&cache->slots);
	pthread_mutex_destroy(&cache->lock);
	free(cache);
}

static struct label_slot *label_slot_find(const struct label_cache *cache, const char *path, size_t len)
{
	for (struct map_node *node = map_first(&cache->slots, map_hash(path, len)); node; node = map_next(node)) {
		struct label_slot *slot = MAP_ENTRY(node, struct label_slot, node);

		if (strncmp(slot->path, path, len) == 0 && slot->path[len] == '\0')
			return slot;
	}

	return NULL;
}

static struct label_slot *label_slot_new(const char *path, const struct labels *labels)
{
	struct label_slot *slot = malloc(offsetof(struct label_slot, labels) + labels_size(labels));
	char *copy = strdup(path);

	if (!slot || !copy) {
		free(slot);
		free(copy);
		return NULL;
	}
	slot->path = copy;
	labels_copy(&slot->labels, labels);

	return slot;
}

/* Puts a slot, or none (NULL), in the place of another, or of none. True: it is there. */
static bool label_slot_replace(struct label_cache *cache, const char *path, struct label_slot *slot)
{
	struct label_slot *old = label_slot_find(cache, path, strlen(path));
	bool room;

	pthread_mutex_lock(&cache->lock);
	room = slot && map_reserve(&cache->slots, cache->slots.count + 1) == 0;
	if (old)
		map_remove(&cache->slots, &old->node);
	if (room)
		map_insert(&cache->slots, &slot->node, map_hash(path, strlen(path)));
	pthread_mutex_unlock(&cache->lock);
	if (old) {
		old->next = cache->replaced;
		cache->replaced = old;
	}

	return room;
}

/*
 * Sets the labels of the container at path. Returns the cache's copy, for the thread that writes:
 * valid until label_cache_tidy after they were replaced. NULL: no memory, and none are known.
 */
static const struct labels *label_cache_put(struct label_cache *cache, const char *path, const struct labels *labels)
{
	bool any = labels->count > 0 || labels->left_out > 0;
	struct label_slot *slot = any ? label_slot_new(path, labels) : NULL;

	if (label_slot_replace(cache, path, slot))
		return &slot->labels;
	if (slot)
		label_slot_free(slot);

	return any ? NULL : &no_labels;
}

static void label_cache_drop(struct label_cache *cache, const char *path)
{
	label_slot_replace(cache, path, NULL);
}

bool label_cache_get(struct label_cache *cache, const char *cgroup, struct labels *ret)
{
	struct container_path where;

	if (!container_path_parse(cgroup, &where))
		return false;

	pthread_mutex_lock(&cache->lock);

	const struct label_slot *slot = label_slot_find(cache, cgroup, where.len);

	if (slot)
		labels_copy(ret, &slot->labels);
	pthread_mutex_unlock(&cache->lock);

	return slot != NULL;
}

/* ---- databases ---- */

static int read_at(void *ctx, uint64_t offset, void *buf, size_t len)
{
	char *to = buf;

	while (len > 0) {
		ssize_t got = pread(*(int *)ctx, to, len, (off_t)offset);

		if (got == 0)
			return -ENODATA;
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got < 0)
			continue;
		to += got;
		offset += (uint64_t)got;
		len -= (size_t)got;
	}

	return 0;
}

static int open_file(int rootfd, const char *path)
{
	AUTO_CLOSE int fd = open_beneath(rootfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, false);
	struct stat status;

	if (fd < 0)
		return fd;
	if (fstat(fd, &status) < 0)
		return -errno;

	return S_ISREG(status.st_mode) ? TAKE_FD(fd) : -EINVAL;
}

static int take_label(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	if (container_state_is_label(key, key_len))
		labels_add(ctx, key, key_len, value, value_len);

	return 0;
}

static int ignore_item(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	(void)ctx;
	(void)key;
	(void)key_len;
	(void)value;
	(void)value_len;
	return 0;
}

/* v1/SPACE/containers/ID/labels. Without labels there is no such bucket, but "createdat". */
static int db_take_labels(const struct bolt_file_source *source, const char *space, const char *id,
			  struct labels *labels)
{
	const char *const buckets[] = { "v1", space, "containers", id, "labels" };
	struct bolt_file_path path = { .buckets = buckets, .count = ARRAY_LEN(buckets) };
	int r = bolt_file_each(source, &path, NULL, take_label, labels);

	if (r != -ENOENT)
		return r;
	path.count--;

	return bolt_file_each(source, &path, "createdat", ignore_item, NULL);
}

static int ask_containerd(int rootfd, const char *file, const char *const ids[3], struct container_state_more *more)
{
	AUTO_CLOSE int fd = open_file(rootfd, file);
	const struct bolt_file_source source = { .read = read_at, .ctx = &fd };
	struct labels of_pod = { .count = 0 }, own = { .count = 0 };
	int r = fd;

	if (r >= 0)
		r = ids[2] ? db_take_labels(&source, ids[0], ids[2], &of_pod) : 0;
	if (r >= 0)
		r = db_take_labels(&source, ids[0], ids[1], &own);
	if (r < 0)
		return r;
	labels_merge(&more->labels, &of_pod);
	labels_merge(&more->labels, &own);
	more->labelled = true;

	return 0;
}

/*
 * Adds the labels of a container in a namespace of containerd, and those of its pod (pod_id NULL:
 * it is in none), and sets more->labelled. 0; -ENOENT: no such database, or not in it; -errno.
 */
static int db_containerd(int rootfd, const char *space, const char *id, const char *pod_id,
			 struct container_state_more *more)
{
	const char *const ids[3] = { space, id, pod_id };
	int why = -ENOENT;

	for (size_t i = 0; i < ARRAY_LEN(containerd); i++) {
		int r = ask_containerd(rootfd, containerd[i], ids, more);

		if (r == 0)
			return 0;
		why = r == -ENOENT ? why : r;
	}

	return why;
}

static int take_config(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	int r = container_state_podman_labels(value, value_len, ctx);

	(void)key;
	(void)key_len;
	((struct container_state_more *)ctx)->labelled = r == 0 || r == 1;

	return r < 0 ? r : 0;
}

/* The same of a container of Podman: ctr/ID has "config", a document. */
static int db_podman(int rootfd, const char *id, struct container_state_more *more)
{
	AUTO_CLOSE int fd = open_file(rootfd, podman);
	const struct bolt_file_source source = { .read = read_at, .ctx = &fd };
	const char *const buckets[] = { "ctr", id };
	const struct bolt_file_path path = { .buckets = buckets, .count = ARRAY_LEN(buckets) };

	return fd < 0 ? fd : bolt_file_each(&source, &path, "config", take_config, more);
}

/* ---- files ---- */

/* 0; or as whole_file_read, which takes the directory of the file, found beneath the root. */
static int read_below(int rootfd, const char *directory, const char *file, struct buffer *text)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, file) >= sizeof path)
		return -ENAMETOOLONG;

	char *slash = strrchr(path, '/');

	*slash = '\0';

	AUTO_CLOSE int dir = open_beneath(rootfd, path, O_PATH | O_DIRECTORY, false);

	return dir < 0 ? dir : whole_file_read(dir, slash + 1, text);
}

static bool is_there(int rootfd, const char *directory)
{
	AUTO_CLOSE int dir = open_beneath(rootfd, directory, O_PATH | O_DIRECTORY, false);

	return dir >= 0;
}

/* A lookup in progress. */
struct lookup {
	int rootfd;
	const struct container_path *where;
	struct container *container;
	struct lookup_more *more;
	bool found;  /* a file of it */
	bool absent; /* a place was there, and it was not in it */
};

static int parse_file(int rootfd, const char *directory, const char *file, parser *parse, struct container *ret,
		      struct container_state_more *more)
{
	struct buffer text = { .max = CONTAINER_STATE_BYTES_MAX };
	int r = read_below(rootfd, directory, file, &text);

	if (r == 0)
		r = parse(text.data, text.len, ret, more);
	buffer_release(&text);

	return r;
}

/* A number that differs between two files of the same name. */
static uint64_t stamp_of(const struct stat *status)
{
	const uint64_t parts[] = { status->st_dev,
				   status->st_ino,
				   (uint64_t)status->st_size,
				   (uint64_t)status->st_mtim.tv_sec,
				   (uint64_t)status->st_mtim.tv_nsec,
				   (uint64_t)status->st_ctim.tv_sec,
				   (uint64_t)status->st_ctim.tv_nsec };
	uint64_t hash = 14695981039346656037u;

	for (size_t i = 0; i < ARRAY_LEN(parts); i++)
		hash = (hash ^ parts[i]) * 1099511628211u ^ (hash >> 29);

	return hash ? hash : 1;
}

/* 0: it is not there. */
static uint64_t stamp_file(int rootfd, const char *directory, const char *file)
{
	AUTO_CLOSE int dir = open_beneath(rootfd, directory, O_PATH | O_DIRECTORY, false);
	struct stat status;

	return dir >= 0 && fstatat(dir, file, &status, AT_SYMLINK_NOFOLLOW) == 0 ? stamp_of(&status) : 0;
}

/* The directory of a container, or, id NULL, of all of its space. False: the path is too long. */
static bool directory_of(const struct place *place, const char *space, const char *id, char ret[PATH_MAX])
{
	return (size_t)snprintf(ret, PATH_MAX, "%s%s%s%s%s", place->directory, space ? "/" : "", space ? space : "",
				id ? "/" : "", id ? id : "") < PATH_MAX;
}

static bool is_id(const char *text)
{
	return strlen(text) == 64 && text[strspn(text, "0123456789abcdef")] == '\0';
}

/* r: of looking for them. */
static void take_own_labels(struct lookup_more *more, const struct container_state_more *own, int r)
{
	more->labelled = own->labelled && r == 0;
	more->error = r < 0 ? r : 0;
	if (more->labelled)
		more->labels = own->labels;
}

/* Puts the labels of its pod in front of its own. 0; -errno. */
static int add_pod(struct lookup *lookup, const struct place *place, const char *space,
		   struct container_state_more *own)
{
	struct container_state_more pod = { .labelled = false };
	struct container sandbox = { .runtime = lookup->container->runtime };
	char directory[PATH_MAX];
	int r = directory_of(place, space, own->pod_id, directory)
			? parse_file(lookup->rootfd, directory, place->file, place->parse, &sandbox, &pod)
			: -ENAMETOOLONG;

	if (r < 0)
		return r;
	labels_merge(&pod.labels, &own->labels);
	own->labels = pod.labels;

	return 0;
}

/* From its document, or from a database. */
static void look_for_labels(struct lookup *lookup, const struct place *place, const char *space,
			    struct container_state_more *own)
{
	bool of_pod = is_id(own->pod_id) && strcmp(own->pod_id, lookup->container->id) != 0;
	int r = 0;

	if (place->runtime == CONTAINER_CONTAINERD)
		r = db_containerd(lookup->rootfd, space, lookup->container->id, of_pod ? own->pod_id : NULL, own);
	else if (own->labelled && of_pod)
		r = add_pod(lookup, place, space, own);
	take_own_labels(lookup->more, own, r);
}

/* True: this place has its file. */
static bool look_in(struct lookup *lookup, const struct place *place, const char *space)
{
	struct container *container = lookup->container;
	struct lookup_more *more = lookup->more;
	struct container_state_more own = { .labelled = false };
	char directory[PATH_MAX], parent[PATH_MAX];
	int r;

	if (!directory_of(place, space, NULL, parent) || !directory_of(place, space, container->id, directory))
		return false;
	/* Before reading, so that what is written meanwhile is read again. */
	more->source.stamp = stamp_file(lookup->rootfd, directory, place->file);
	r = parse_file(lookup->rootfd, directory, place->file, place->parse, container, &own);
	if (r < 0) {
		lookup->absent |= (r == -ENOENT || r == -EBADMSG) && is_there(lookup->rootfd, parent);
		more->error = r == -ENOENT || r == -ENOTDIR ? more->error : r;
		return false;
	}
	if (container->runtime == CONTAINER_UNKNOWN)
		container->runtime = place->runtime;
	more->source.place = FIRST_PLACE + (unsigned)(place - places);
	snprintf(more->source.space, sizeof more->source.space, "%s", space ? space : "");
	look_for_labels(lookup, place, space, &own);

	return true;
}

static bool look_in_spaces(struct lookup *lookup, const struct place *place)
{
	if (!place->space)
		return look_in(lookup, place, NULL);
	if (lookup->where->space[0] != '\0')
		return look_in(lookup, place, lookup->where->space);
	for (size_t i = 0; i < ARRAY_LEN(spaces); i++)
		if (look_in(lookup, place, spaces[i]))
			return true;

	return false;
}

static void look_for_state(struct lookup *lookup)
{
	for (size_t i = 0; i < ARRAY_LEN(places) && !lookup->found; i++) {
		enum container_runtime runtime = lookup->container->runtime;

		if (runtime == CONTAINER_UNKNOWN || runtime == places[i].runtime)
			lookup->found = look_in_spaces(lookup, &places[i]);
	}
}

static struct known_list known_lists[LISTS];

static void forget_list(struct known_list *known)
{
	container_state_list_free(known->list);
	*known = (struct known_list){ .stamp = 0 };
}

static int read_list(int dir, struct known_list *known)
{
	struct buffer text = { .max = CONTAINER_STATE_LIST_BYTES_MAX };
	int r = whole_file_read(dir, LIST_FILE, &text);

	if (r == 0)
		r = container_state_list_new(text.data, text.len, &known->list);
	buffer_release(&text);

	return r;
}

/* 0; 1: not in the list; -errno. Stamped before reading: a later write is then another stamp. */
static int ask_list(struct lookup *lookup, size_t i)
{
	struct known_list *known = &known_lists[i];
	AUTO_CLOSE int dir = open_beneath(lookup->rootfd, lists[i], O_PATH | O_DIRECTORY, false);
	struct stat status;

	if (dir < 0 || fstatat(dir, LIST_FILE, &status, AT_SYMLINK_NOFOLLOW) < 0) {
		forget_list(known);
		return dir < 0 ? dir : -ENOENT;
	}
	if (known->stamp != stamp_of(&status)) {
		forget_list(known);
		known->error = read_list(dir, known);
		known->stamp = known->error == 0 || known->error == -EBADMSG ? stamp_of(&status) : 0;
	}

	return known->list ? container_state_list_find(known->list, lookup->container) : known->error;
}

static void look_for_podman_labels(struct lookup *lookup, size_t list)
{
	struct lookup_more *more = lookup->more;
	struct container_state_more own = { .labelled = false };
	int r = db_podman(lookup->rootfd, lookup->container->id, &own);

	more->source.place = (unsigned)(FIRST_LIST + list);
	more->source.stamp = known_lists[list].stamp;
	take_own_labels(more, &own, r);
}

static void look_in_lists(struct lookup *lookup)
{
	enum container_runtime runtime = lookup->container->runtime;

	if (runtime != CONTAINER_PODMAN && runtime != CONTAINER_UNKNOWN)
		return;
	for (size_t i = 0; i < LISTS && lookup->container->name[0] == '\0'; i++) {
		int r = ask_list(lookup, i);

		lookup->found |= r == 0;
		lookup->absent |= r == 1 || r == -EBADMSG;
		if (r == 0)
			look_for_podman_labels(lookup, i);
	}
}

struct listing {
	struct lookup *lookup;
	unsigned seen;
};

static int visit_link(void *ctx, const char *name)
{
	struct listing *listing = ctx;

	return container_state_log_link(name, listing->lookup->container) || ++listing->seen == NAMES_MAX;
}

static int visit_directory(void *ctx, const char *name)
{
	struct listing *listing = ctx;
	const char *uid = listing->lookup->where->pod_uid;

	return container_state_log_directory(name, uid, listing->lookup->container) || ++listing->seen == NAMES_MAX;
}

static void list_below(struct lookup *lookup, const char *directory, int (*visit)(void *ctx, const char *name))
{
	struct listing listing = { .lookup = lookup };
	AUTO_CLOSE int dir = open_beneath(lookup->rootfd, directory, O_RDONLY | O_DIRECTORY, false);

	if (dir < 0)
		return;
	lookup->absent = true;
	directory_list_each(dir, visit, &listing);
}

static void look_for_pod(struct lookup *lookup)
{
	const struct container *container = lookup->container;

	if (lookup->where->pod_uid[0] == '\0' || container->sandbox)
		return;
	if (container->pod[0] == '\0' || container->name[0] == '\0')
		list_below(lookup, "var/log/containers", visit_link);
	if (container->pod[0] == '\0')
		list_below(lookup, "var/log/pods", visit_directory);
	lookup->found |= container->pod[0] != '\0' && container->name[0] != '\0';
}

static int parse_machine(const char *text, size_t len, struct container *ret, struct container_state_more *more)
{
	static const char vm[] = "\nCLASS=vm\n";

	(void)ret;
	(void)more;
	return memmem(text, len, vm, sizeof vm - 1) != NULL;
}

/* Its name is in the path; systemd-machined (see sd-login(3)) knows its class. */
static enum lookup_result look_for_machine(struct lookup *lookup)
{
	int r = strchr(lookup->container->id, '/') == NULL
			? parse_file(lookup->rootfd, "run/systemd/machines", lookup->container->id, parse_machine,
				     lookup->container, NULL)
			: 0;

	return r == 1 ? LOOKUP_OTHER : LOOKUP_FOUND;
}

static bool is_source_changed(int rootfd, const char *id, const struct name_source *source)
{
	char directory[PATH_MAX];

	if (source->place >= FIRST_LIST)
		return source->stamp != stamp_file(rootfd, lists[source->place - FIRST_LIST], LIST_FILE);

	const struct place *place = &places[source->place - FIRST_PLACE];

	return directory_of(place, place->space ? source->space : NULL, id, directory) &&
	       source->stamp != stamp_file(rootfd, directory, place->file);
}

/*
 * Fills in what the files say, and *more. A runtime that is UNKNOWN is set by where something was
 * found. Some dozen system calls, and reading the files.
 */
static enum lookup_result look_in_files(struct lookup *lookup)
{
	const struct container *container = lookup->container;

	if (lookup->where->runtime == CONTAINER_NSPAWN)
		return look_for_machine(lookup);
	look_for_state(lookup);
	look_in_lists(lookup);
	look_for_pod(lookup);
	if (lookup->found && (container->name[0] != '\0' || container->sandbox))
		return LOOKUP_FOUND;

	return lookup->found || lookup->absent ? LOOKUP_ABSENT : LOOKUP_CLOSED;
}

/* What the path tells. */
static void set_from_path(const struct container_path *where, struct container *ret)
{
	*ret = (struct container){ .runtime = where->runtime };
	container_text(ret->id, sizeof ret->id, where->id, strlen(where->id));
	/* Everything but an id of 64 digits is a name too. */
	if (where->runtime == CONTAINER_NSPAWN || where->runtime == CONTAINER_LXC || where->space[0] != '\0')
		container_text(ret->name, sizeof ret->name, where->id, strlen(where->id));
}

/* ---- the child that reads ---- */

/* For messages, and what is refused for a while when it did not answer (foreign.h). */
#define READ_BY_CHILD "/var/lib or /run, where container runtimes keep their state,"

struct question {
	struct container_path where;
	struct name_source source; /* SAME if this is as it was; place 0: whatever it is */
};
_Static_assert(sizeof(struct question) <= FOREIGN_ARGUMENT_MAX, "a question is one argument");

struct reply {
	enum lookup_result result;
	struct container container; /* without labels */
	struct lookup_more more;
};

/* A foreign_function: dirfd is the runtime root. */
static int answer_question(int dirfd, const void *argument, size_t len, const struct sink *to)
{
	struct reply reply = { .result = LOOKUP_SAME };
	struct question question;
	struct lookup lookup = {
		.rootfd = dirfd, .where = &question.where, .container = &reply.container, .more = &reply.more
	};

	(void)len;
	memcpy(&question, argument, sizeof question);
	set_from_path(&question.where, &reply.container);
	if (question.source.place == 0 || is_source_changed(dirfd, reply.container.id, &question.source))
		reply.result = look_in_files(&lookup);

	return to->write(to->ctx, &reply, sizeof reply);
}

/*
 * Fills in *ret, as far as the path and the files tell, and *more. source: of what is known; NULL:
 * nothing is.
 */
static enum lookup_result lookup_files(const struct containers *containers, const struct container_path *where,
				       const struct name_source *source, struct container *ret,
				       struct lookup_more *more)
{
	int rootfd = where->foreign ? -1 : containers->rootfd;
	struct question question = { .where = *where };
	struct reply reply;
	ssize_t len;

	set_from_path(where, ret);
	/* Machines have no labels. */
	*more = (struct lookup_more){ .labelled =
					      where->runtime == CONTAINER_LXC || where->runtime == CONTAINER_NSPAWN };
	if (where->runtime == CONTAINER_LXC)
		return LOOKUP_FOUND;
	if (rootfd < 0)
		return where->runtime == CONTAINER_NSPAWN ? LOOKUP_FOUND : LOOKUP_CLOSED;

	if (source)
		question.source = *source;
	unlocked_section_leave(&containers->section, 0);
	len = foreign_call(FOREIGN_DISCOVERY, rootfd, 0, READ_BY_CHILD, answer_question, &question, sizeof question,
			   &reply, sizeof reply);
	unlocked_section_enter(&containers->section);
	if (len != sizeof reply) {
		more->error = len < 0 ? (int)len : -EIO;
		return LOOKUP_UNANSWERED;
	}
	*ret = reply.container;
	if (where->runtime != CONTAINER_NSPAWN)
		*more = reply.more;

	return reply.result;
}

/* ---- entries ---- */

static void take_labels(struct containers *containers, struct entry *entry, const struct lookup_more *more)
{
	entry->error = more->error;
	entry->about->container.labels =
		more->labelled ? label_cache_put(containers->labels, entry->path, &more->labels) : NULL;
	if (!entry->about->container.labels)
		label_cache_drop(containers->labels, entry->path);
}

static void look_up(struct containers *containers, struct entry *entry)
{
	struct about *about = entry->about;
	struct container found;
	struct lookup_more more;
	enum lookup_result result = lookup_files(containers, &about->where, NULL, &found, &more);

	about->container = found;
	entry->unanswered = result == LOOKUP_UNANSWERED;
	about->source = more.source;
	take_labels(containers, entry, &more);
	if (result == LOOKUP_OTHER || (about->where.unsure && result != LOOKUP_FOUND))
		entry->answer = CONTAINERS_NONE;
	else if (result == LOOKUP_ABSENT && entry->looks < ARRAY_LEN(looks_ns))
		entry->answer = CONTAINERS_PENDING;
	else
		entry->answer = CONTAINERS_KNOWN;
	if (entry->answer == CONTAINERS_NONE) {
		label_cache_drop(containers->labels, entry->path);
		free(entry->about);
		entry->about = NULL;
	}
}

static mono_t next_look(const struct entry *entry)
{
	return mono_add(entry->met, looks_ns[entry->looks]);
}

/* True: it was time, and it was looked for. */
static bool look_up_again(struct containers *containers, struct entry *entry, mono_t now)
{
	if (entry->answer != CONTAINERS_PENDING || mono_diff(now, next_look(entry)) < 0)
		return false;

	while (entry->looks < ARRAY_LEN(looks_ns) && mono_diff(now, next_look(entry)) >= 0)
		entry->looks++;
	look_up(containers, entry);
	containers->pending -= entry->answer != CONTAINERS_PENDING;

	return true;
}

static struct entry *find_entry(const struct containers *containers, const char *path, size_t len)
{
	for (struct map_node *node = map_first(&containers->entries, map_hash(path, len)); node;
	     node = map_next(node)) {
		struct entry *entry = MAP_ENTRY(node, struct entry, node);

		if (strncmp(entry->path, path, len) == 0 && entry->path[len] == '\0')
			return entry;
	}

	return NULL;
}

static void drop_entry(struct containers *containers, struct entry *entry)
{
	map_remove(&containers->entries, &entry->node);
	TAILQ_REMOVE(&containers->all, entry, all);
	containers->pending -= entry->answer == CONTAINERS_PENDING;
	label_cache_drop(containers->labels, entry->path);
	free(entry->about);
	free(entry);
}

static void evict_oldest(struct containers *containers)
{
	struct entry *oldest = TAILQ_FIRST(&containers->all), *entry;

	TAILQ_FOREACH(entry, &containers->all, all)
	if (mono_diff(oldest->used, entry->used) > 0)
		oldest = entry;
	drop_entry(containers, oldest);
}

static struct entry *enter(struct containers *containers, const char *path, const struct container_path *where,
			   mono_t now)
{
	struct entry *entry;

	if (containers->entries.count == CONTAINERS_MAX)
		evict_oldest(containers);
	if (map_reserve(&containers->entries, containers->entries.count + 1) < 0)
		return NULL;
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
	look_up(containers, entry);
	containers->pending += entry->answer == CONTAINERS_PENDING;
	map_insert(&containers->entries, &entry->node, map_hash(path, where->len));
	TAILQ_INSERT_TAIL(&containers->all, entry, all);

	return entry;
}

enum containers_answer containers_find(struct containers *containers, const char *cgroup, mono_t now,
				       const struct container **ret, bool *ret_own)
{
	struct container_path where;

	if (!containers || !container_path_parse(cgroup, &where))
		return CONTAINERS_NONE;

	struct entry *entry = find_entry(containers, cgroup, where.len);

	/* It was none because nothing answered. */
	if (entry && !entry->about && entry->unanswered &&
	    mono_diff(now, entry->met) >= (int64_t)CONTAINERS_REVIEW_NS) {
		drop_entry(containers, entry);
		entry = NULL;
	}
	if (entry)
		look_up_again(containers, entry, now);
	else
		entry = enter(containers, cgroup, &where, now);
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
	const struct entry *entry;
	bool any = false;

	if (!containers || containers->pending == 0)
		return false;

	TAILQ_FOREACH(entry, &containers->all, all)
	if (entry->answer == CONTAINERS_PENDING && (!any || mono_diff(*ret, next_look(entry)) > 0)) {
		*ret = next_look(entry);
		any = true;
	}

	return any;
}

/* Looks at the first pending one that is due. NULL: there is none. */
static struct entry *look_at_pending(struct containers *containers, mono_t now)
{
	struct entry *entry;

	TAILQ_FOREACH(entry, &containers->all, all)
	if (look_up_again(containers, entry, now))
		return entry;

	return NULL;
}

static void containers_retry(struct containers *containers, mono_t now, void (*visit)(void *ctx, const char *cgroup),
			     void *ctx)
{
	/* From the beginning each time: visit may ask for others, which may drop any. */
	for (unsigned looks = 0; containers->pending > 0 && looks < LOOKS_MAX; looks++) {
		struct entry *entry = look_at_pending(containers, now);

		if (!entry)
			return;
		if (entry->answer == CONTAINERS_KNOWN)
			visit(ctx, entry->path);
	}
}

/* ---- reviews ---- */

/* It is time to try again for its names, or labels. */
static bool is_due(struct entry *entry)
{
	if (entry->unanswered)
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

/*
 * True: names or labels have changed. Files half written, or being removed, change nothing.
 * *ret_read: they were read.
 */
static bool read_again(struct containers *containers, struct entry *entry, bool *ret_read)
{
	struct about *about = entry->about;
	struct container before = about->container, found;
	struct lookup_more more;
	bool due = is_due(entry);
	enum lookup_result result;

	*ret_read = false;
	if (about->where.foreign || (!due && about->source.place == 0))
		return false;
	result = lookup_files(containers, &about->where, due ? NULL : &about->source, &found, &more);
	*ret_read = result != LOOKUP_SAME;
	entry->unanswered = result == LOOKUP_UNANSWERED;
	if (result != LOOKUP_FOUND)
		return false;
	about->source = more.source;
	about->container = found;
	about->container.labels = before.labels;
	if (before.labels && (!more.labelled || same_labels(before.labels, &more.labels)))
		return !same_names(&before, &about->container);

	take_labels(containers, entry, &more);

	return about->container.labels || !same_names(&before, &about->container);
}

/* The next that this review has not looked at. NULL: the review is over. */
static struct entry *next_of_review(const struct containers *containers)
{
	struct entry *entry = TAILQ_FIRST(&containers->all);

	return entry && entry->reviewed != containers->review ? entry : NULL;
}

static void containers_review(struct containers *containers, mono_t now, void (*visit)(void *ctx, const char *cgroup),
			      void *ctx)
{
	unsigned looks = 0;
	struct entry *entry;
	bool read;

	label_cache_tidy(containers->labels);
	if (containers->review_began.ns == 0)
		containers->review_began = now;
	if (!next_of_review(containers)) {
		if (mono_diff(now, containers->review_began) < (int64_t)CONTAINERS_REVIEW_NS)
			return;
		containers->review++;
		containers->review_began = now;
	}

	for (unsigned seen = 0; seen < REVIEWS_MAX && looks < LOOKS_MAX; seen++) {
		entry = next_of_review(containers);
		if (!entry)
			return;
		entry->reviewed = containers->review;
		TAILQ_REMOVE(&containers->all, entry, all);
		TAILQ_INSERT_TAIL(&containers->all, entry, all);
		if (entry->answer != CONTAINERS_KNOWN)
			continue;
		if (read_again(containers, entry, &read))
			visit(ctx, entry->path);
		looks += read;
	}
}

void containers_update(struct containers *containers, mono_t now, void (*named)(void *ctx, const char *cgroup),
		       void (*changed)(void *ctx, const char *cgroup), void *ctx)
{
	if (!containers)
		return;

	containers_retry(containers, now, named, ctx);
	containers_review(containers, now, changed, ctx);
}

void containers_forget(struct containers *containers, mono_t now, uint64_t rescan_interval_ns)
{
	uint64_t kept_ns = rescan_interval_ns * KEPT_SCANS;

	if (!containers)
		return;
	if (kept_ns < KEPT_NS)
		kept_ns = KEPT_NS;
	MAP_FOR_EACH(node, &containers->entries) {
		struct entry *entry = MAP_ENTRY(node, struct entry, node);

		if (mono_diff(now, entry->used) > (int64_t)kept_ns)
			drop_entry(containers, entry);
	}
	label_cache_tidy(containers->labels);
}

/* ---- the containers ---- */

int containers_new(const char *runtime_root, struct containers **ret)
{
	struct containers *containers = calloc(1, sizeof *containers);

	if (!containers)
		return -ENOMEM;

	TAILQ_INIT(&containers->all);
	containers->rootfd = open(runtime_root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (containers->rootfd < 0)
		containers->rootfd = -errno;
	if (label_cache_new(&containers->labels) < 0) {
		containers_free(containers);
		return -ENOMEM;
	}
	*ret = containers;

	return containers->rootfd < 0 ? -containers->rootfd : 0;
}

void containers_set_section(struct containers *containers, const struct unlocked_section *section)
{
	if (containers)
		containers->section = *section;
}

void containers_free(struct containers *containers)
{
	if (!containers)
		return;

	MAP_FOR_EACH(node, &containers->entries)
		drop_entry(containers, MAP_ENTRY(node, struct entry, node));
	map_release(&containers->entries);
	label_cache_free(containers->labels);
	if (containers->rootfd >= 0)
		close(containers->rootfd);
	free(containers);
}

struct label_cache *containers_labels(struct containers *containers)
{
	return containers->labels;
}

size_t containers_unlabelled(const struct containers *containers, int *ret_error)
{
	const struct entry *entry;
	size_t count = 0;

	*ret_error = 0;
	TAILQ_FOREACH(entry, &containers->all, all)
	{
		if (entry->answer != CONTAINERS_KNOWN || entry->about->container.labels ||
		    entry->about->where.foreign || entry->about->container.sandbox)
			continue;
		count++;
		*ret_error = entry->error ? entry->error : *ret_error;
	}

	return count;
}
