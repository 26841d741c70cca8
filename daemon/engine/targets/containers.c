/*
 * containers.c: a hash table by the path of the container's own cgroup. A path that may be a
 * container's but is not is remembered as well, so that it is looked for once.
 *
 * 	met ──▶ PENDING ── looked at again after 20, 100, 500 ms ──▶ KNOWN, with a name or without
 * 	  └── its files are there, or never will be ──▶ KNOWN ◀────────┘
 */
#include "daemon/engine/targets/containers.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/cgroup/bolt_file.h"
#include "lib/cgroup/container.h"
#include "lib/model/target.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum container_files_result {
	CONTAINER_FILES_READ,   /* it has names */
	CONTAINER_FILES_ABSENT, /* it may still be written: the runtime has a place for it, but there is nothing */
	CONTAINER_FILES_CLOSED, /* nothing can be read: no such runtime here, or no permission */
	CONTAINER_FILES_OTHER,  /* it is no container after all: a virtual machine */
};

/* The file that a name was read from, as it was then. {0}: none, or none that changes. */
struct container_files_source {
	unsigned place; /* a number of container_files.c's */
	char space[CONTAINER_SPACE_MAX + 1];
	uint64_t stamp;
};

/* What there is beside names. */
struct container_files_more {
	struct labels labels;
	bool labelled; /* these are its labels, and its pod's; else they cannot be read, or are nowhere */
	/*
	 * not labelled: why what would have them could not be read, -errno; 0: there is nothing
	 * that would
	 */
	int error;
	struct container_files_source source;
};

struct container_files;

/* Two or three system calls for each container: 2,048 of them take some 15 ms in that time. */
#define CONTAINERS_REVIEW_NS (30 * NS_PER_S)

static int container_db_containerd(int rootfd, const char *space, const char *id, const char *pod_id,
				   struct container_state_more *more);
static int container_db_podman(int rootfd, const char *id, struct container_state_more *more);

/*
 * label_cache.c: a hash table of slots, each as long as its labels. A container without labels has
 * none.
 *
 * What is replaced is put aside and freed later: who is amid the entries of the configuration with
 * one process holds on to its labels, without a count.
 */

#define LABEL_CACHE_BUCKETS 256u

struct slot {
	struct slot *next; /* in its bucket, or put aside */
	char *path;
	struct labels labels; /* as much of it as is in use */
};

struct label_cache {
	pthread_mutex_t lock; /* of the buckets; the thread that writes reads them without */
	struct slot *buckets[LABEL_CACHE_BUCKETS];
	struct slot *aside;
};

static const struct labels no_labels;

/* 0 or -ENOMEM. */
static int label_cache_new(struct label_cache **ret)
{
	struct label_cache *book = calloc(1, sizeof *book);

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

/* NULL is fine. */
static void label_cache_free(struct label_cache *book)
{
	if (!book)
		return;

	for (size_t i = 0; i < LABEL_CACHE_BUCKETS; i++)
		free_slots(book->buckets[i]);
	free_slots(book->aside);
	pthread_mutex_destroy(&book->lock);
	free(book);
}

/* Frees what was put out of use. */
static void label_cache_tidy(struct label_cache *book)
{
	free_slots(book->aside);
	book->aside = NULL;
}

static struct slot **find(struct label_cache *book, const char *path, size_t len)
{
	uint32_t hash = 2166136261u;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ (unsigned char)path[i]) * 16777619u;

	struct slot **at = &book->buckets[(hash ^ (hash >> 15)) % LABEL_CACHE_BUCKETS];

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
static void exchange(struct label_cache *book, const char *path, struct slot *slot)
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

const struct labels *label_cache_put(struct label_cache *book, const char *path, const struct labels *labels)
{
	bool any = labels->count > 0 || labels->left_out > 0;
	struct slot *slot = any ? make_slot(path, labels) : NULL;

	exchange(book, path, slot);
	if (!any)
		return &no_labels;

	return slot ? &slot->labels : NULL;
}

/* They are not known any more. */
static void label_cache_drop(struct label_cache *book, const char *path)
{
	exchange(book, path, NULL);
}

bool label_cache_get(struct label_cache *book, const char *cgroup, struct labels *ret)
{
	struct container_path where;

	if (!container_path_parse(cgroup, &where))
		return false;

	pthread_mutex_lock(&book->lock);

	const struct slot *slot = *find(book, cgroup, where.len);

	if (slot)
		labels_copy(ret, &slot->labels);
	pthread_mutex_unlock(&book->lock);

	return slot != NULL;
}

/*
 * container_files.c: a table of places, tried in order until one of them has what is looked for.
 * Then, for a pod's container that has no names yet, what the kubelet writes whichever the runtime:
 * names of links, and of directories of logs.
 *
 * Labels are in the same documents, where they are anywhere: with a pod, in that of its sandbox.
 * containerd and Podman have theirs in databases (container_db.h).
 *
 * A list of all containers is kept as it was read until there is another file in its place: anybody
 * who may make cgroups can have it asked for ids, as often as he likes, and reading megabytes for
 * each would be the end of the daemon's share of a core.
 */

/* Directories of logs that are looked through: a machine runs some hundred pods. */
#define NAMES_MAX 20000

typedef int parser(const char *text, size_t len, struct container *ret, struct container_state_more *more);

/* A file per container: <directory>/<space>/<id>/<file>. */
struct place {
	enum container_runtime runtime;
	const char *directory,
		*space; /* space NULL: none; "": that of the path, or those that Kubernetes and nerdctl use */
	const char *file;
	parser *parse;
};

#define TASKS "io.containerd.runtime.v2.task"
#define STORAGE "-containers"

static const struct place places[] = {
	{ CONTAINER_DOCKER, "var/lib/docker/containers", NULL, "config.v2.json", container_state_docker },
	{ CONTAINER_CONTAINERD, "run/containerd/" TASKS, "", "config.json", container_state_oci },
	{ CONTAINER_CONTAINERD, "run/k3s/containerd/" TASKS, "", "config.json", container_state_oci },
	{ CONTAINER_CONTAINERD, "run/k0s/containerd/" TASKS, "", "config.json", container_state_oci },
	{ CONTAINER_CRIO, "run/containers/storage/overlay" STORAGE, NULL, "userdata/config.json", container_state_oci },
};

/* Podman has its names in one file. (Its OCI documents are beside it, and hold none.) */
static const char *const lists[] = {
	"var/lib/containers/storage/overlay" STORAGE,
	"var/lib/containers/storage/vfs" STORAGE,
	"var/lib/containers/storage/btrfs" STORAGE,
};

#define LISTS ARRAY_LEN(lists)
#define LIST_FILE "containers.json"

/* A list, and the file that it was read from. */
struct known_list {
	struct stat from;
	bool any; /* it was read */
	int error;
	struct container_state_list *list; /* NULL: it is none, for that error */
};

struct container_files {
	int rootfd; /* -errno: there is no such directory */
	struct known_list lists[LISTS];
};

static const char *const spaces[] = { "k8s.io", "default", "moby" };

/* Numbers of files that may change: those of places, then those of lists. */
#define FIRST_PLACE 1u
#define FIRST_LIST (FIRST_PLACE + ARRAY_LEN(places))

/* ---- opening ---- */

/* 0; or as whole_file_read. */
static int read_below(int rootfd, const char *directory, const char *file, struct buffer *text)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, file) >= sizeof path)
		return -ENAMETOOLONG;

	/*
	 * whole_file_read takes a directory and a name: those of the file itself, found within the
	 * root.
	 */
	char *slash = strrchr(path, '/');

	*slash = '\0';

	AUTO_CLOSE int dir = open_beneath(rootfd, path, O_PATH | O_DIRECTORY);

	return dir < 0 ? dir : whole_file_read(dir, slash + 1, text);
}

static bool is_there(int rootfd, const char *directory)
{
	AUTO_CLOSE int dir = open_beneath(rootfd, directory, O_PATH | O_DIRECTORY);

	return dir >= 0;
}

/* ---- what runtimes write ---- */

/* How the search goes. */
struct search {
	struct container_files *files;
	int rootfd;
	const struct container_path *where;
	struct container *container;
	struct container_files_more *more;
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

/* What tells a file from another one under the same name, as a number; 0: it is not there. */
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

static uint64_t stamp_file(int rootfd, const char *directory, const char *file)
{
	AUTO_CLOSE int dir = open_beneath(rootfd, directory, O_PATH | O_DIRECTORY);
	struct stat status;

	return dir >= 0 && fstatat(dir, file, &status, AT_SYMLINK_NOFOLLOW) == 0 ? stamp_of(&status) : 0;
}

/*
 * The directory of a container, or, id NULL, of all of its space. False: such a path there is not.
 */
static bool directory_of(const struct place *place, const char *space, const char *id, char ret[PATH_MAX])
{
	return (size_t)snprintf(ret, PATH_MAX, "%s%s%s%s%s", place->directory, space ? "/" : "", space ? space : "",
				id ? "/" : "", id ? id : "") < PATH_MAX;
}

/* ---- labels ---- */

static bool is_id(const char *text)
{
	return strlen(text) == 64 && text[strspn(text, "0123456789abcdef")] == '\0';
}

/* The labels of its pod, in front of its own. 0; -errno. */
static int add_pod(struct search *search, const struct place *place, const char *space,
		   struct container_state_more *own)
{
	struct container_state_more pod = { .labelled = false };
	struct container sandbox = { .runtime = search->container->runtime };
	char directory[PATH_MAX];
	int r = directory_of(place, space, own->pod_id, directory)
			? parse_file(search->rootfd, directory, place->file, place->parse, &sandbox, &pod)
			: -ENAMETOOLONG;

	if (r < 0)
		return r;
	labels_merge(&pod.labels, &own->labels);
	own->labels = pod.labels;

	return 0;
}

/* From its document, or from a database. */
static void look_for_labels(struct search *search, const struct place *place, const char *space,
			    struct container_state_more *own)
{
	bool of_pod = is_id(own->pod_id) && strcmp(own->pod_id, search->container->id) != 0;
	int r = 0;

	if (place->runtime == CONTAINER_CONTAINERD)
		r = container_db_containerd(search->rootfd, space, search->container->id, of_pod ? own->pod_id : NULL,
					    own);
	else if (own->labelled && of_pod)
		r = add_pod(search, place, space, own);
	search->more->labelled = own->labelled && r == 0;
	search->more->error = r < 0 ? r : 0;
	if (search->more->labelled)
		search->more->labels = own->labels;
}

/* ---- names ---- */

/* True: it has the container's file. */
static bool look_in(struct search *search, const struct place *place, const char *space)
{
	struct container *container = search->container;
	struct container_files_more *more = search->more;
	struct container_state_more own = { .labelled = false };
	char directory[PATH_MAX], parent[PATH_MAX];
	int r;

	if (!directory_of(place, space, NULL, parent) || !directory_of(place, space, container->id, directory))
		return false;
	/* First, so that what is written meanwhile is read again. */
	more->source.stamp = stamp_file(search->rootfd, directory, place->file);
	r = parse_file(search->rootfd, directory, place->file, place->parse, container, &own);
	if (r < 0) {
		search->absent |= (r == -ENOENT || r == -EBADMSG) && is_there(search->rootfd, parent);
		more->error = r == -ENOENT || r == -ENOTDIR ? more->error : r;
		return false;
	}
	if (container->runtime == CONTAINER_UNKNOWN)
		container->runtime = place->runtime;
	more->source.place = FIRST_PLACE + (unsigned)(place - places);
	snprintf(more->source.space, sizeof more->source.space, "%s", space ? space : "");
	look_for_labels(search, place, space, &own);

	return true;
}

static bool look_in_spaces(struct search *search, const struct place *place)
{
	if (!place->space)
		return look_in(search, place, NULL);
	if (search->where->space[0] != '\0')
		return look_in(search, place, search->where->space);
	for (size_t i = 0; i < ARRAY_LEN(spaces); i++)
		if (look_in(search, place, spaces[i]))
			return true;

	return false;
}

static void look_for_state(struct search *search)
{
	for (size_t i = 0; i < ARRAY_LEN(places) && !search->found; i++) {
		enum container_runtime runtime = search->container->runtime;

		if (runtime == CONTAINER_UNKNOWN || runtime == places[i].runtime)
			search->found = look_in_spaces(search, &places[i]);
	}
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static void forget_list(struct known_list *known)
{
	container_state_list_free(known->list);
	*known = (struct known_list){ .any = false };
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

/*
 * 0; 1: it says nothing of it; -errno. What the file was is looked at before it is read: one that
 * is written meanwhile is read again.
 */
static int ask_list(struct search *search, size_t i)
{
	struct known_list *known = &search->files->lists[i];
	AUTO_CLOSE int dir = open_beneath(search->rootfd, lists[i], O_PATH | O_DIRECTORY);
	struct stat status;

	if (dir < 0 || fstatat(dir, LIST_FILE, &status, AT_SYMLINK_NOFOLLOW) < 0) {
		forget_list(known);
		return dir < 0 ? dir : -ENOENT;
	}
	if (!known->any || !is_same_file(&known->from, &status)) {
		forget_list(known);
		known->from = status;
		known->error = read_list(dir, known);
		known->any = known->error == 0 || known->error == -EBADMSG;
	}

	return known->list ? container_state_list_find(known->list, search->container) : known->error;
}

static void look_for_podman_labels(struct search *search, size_t list)
{
	struct container_files_more *more = search->more;
	struct container_state_more own = { .labelled = false };
	int r = container_db_podman(search->rootfd, search->container->id, &own);

	more->source.place = (unsigned)(FIRST_LIST + list);
	more->source.stamp = stamp_of(&search->files->lists[list].from);
	more->labelled = own.labelled && r == 0;
	more->error = r < 0 ? r : 0;
	if (more->labelled)
		more->labels = own.labels;
}

static void look_in_lists(struct search *search)
{
	enum container_runtime runtime = search->container->runtime;

	if (runtime != CONTAINER_PODMAN && runtime != CONTAINER_UNKNOWN)
		return;
	for (size_t i = 0; i < LISTS && search->container->name[0] == '\0'; i++) {
		int r = ask_list(search, i);

		search->found |= r == 0;
		search->absent |= r == 1 || r == -EBADMSG;
		if (r == 0)
			look_for_podman_labels(search, i);
	}
}

/* ---- what the kubelet writes ---- */

struct listing {
	struct search *search;
	unsigned seen;
};

static int visit_link(void *ctx, const char *name)
{
	struct listing *listing = ctx;

	return container_state_log_link(name, listing->search->container) || ++listing->seen == NAMES_MAX;
}

static int visit_directory(void *ctx, const char *name)
{
	struct listing *listing = ctx;
	const char *uid = listing->search->where->pod_uid;

	return container_state_log_directory(name, uid, listing->search->container) || ++listing->seen == NAMES_MAX;
}

static void list_below(struct search *search, const char *directory, int (*visit)(void *ctx, const char *name))
{
	struct listing listing = { .search = search };
	AUTO_CLOSE int dir = open_beneath(search->rootfd, directory, O_RDONLY | O_DIRECTORY);

	if (dir < 0)
		return;
	search->absent = true;
	directory_list_each(dir, visit, &listing);
}

static void look_for_pod(struct search *search)
{
	const struct container *container = search->container;

	if (search->where->pod_uid[0] == '\0' || container->sandbox)
		return;
	if (container->pod[0] == '\0' || container->name[0] == '\0')
		list_below(search, "var/log/containers", visit_link);
	if (container->pod[0] == '\0')
		list_below(search, "var/log/pods", visit_directory);
	search->found |= container->pod[0] != '\0' && container->name[0] != '\0';
}

/* ---- machines ---- */

static int parse_machine(const char *text, size_t len, struct container *ret, struct container_state_more *more)
{
	static const char vm[] = "\nCLASS=vm\n";

	(void)ret;
	(void)more;
	return memmem(text, len, vm, sizeof vm - 1) != NULL;
}

/*
 * Its name is known by the path; systemd-machined knows what it is (sd-login's files, which are
 * lines of KEY=VALUE).
 */
static enum container_files_result look_for_machine(struct search *search)
{
	int r = strchr(search->container->id, '/') == NULL
			? parse_file(search->rootfd, "run/systemd/machines", search->container->id, parse_machine,
				     search->container, NULL)
			: 0;

	return r == 1 ? CONTAINER_FILES_OTHER : CONTAINER_FILES_READ;
}

/*
 * Whether the source of the names of the container of that id is another file by now. Two or three
 * system calls.
 */
static bool container_files_changed(const struct container_files *files, const char *id,
				    const struct container_files_source *source)
{
	char directory[PATH_MAX];

	if (files->rootfd < 0 || source->place == 0)
		return false;
	if (source->place >= FIRST_LIST)
		return source->stamp != stamp_file(files->rootfd, lists[source->place - FIRST_LIST], LIST_FILE);

	const struct place *place = &places[source->place - FIRST_PLACE];

	return directory_of(place, place->space ? source->space : NULL, id, directory) &&
	       source->stamp != stamp_file(files->rootfd, directory, place->file);
}

/*
 * Fills in *ret, whose id, runtime and name are set if the path has told them, and *more. A runtime
 * that is UNKNOWN is settled by where something was found. files NULL: nothing is looked for. Costs
 * some dozen system calls, and reading the files that there are; a list of all containers is read
 * again only when it is another file.
 */
static enum container_files_result container_files_read(struct container_files *files,
							const struct container_path *where, struct container *ret,
							struct container_files_more *more)
{
	struct search search = {
		.files = files, .rootfd = files ? files->rootfd : -1, .where = where, .container = ret, .more = more
	};

	/* Machines have no labels. */
	*more = (struct container_files_more){ .labelled = where->runtime == CONTAINER_LXC ||
							   where->runtime == CONTAINER_NSPAWN };
	if (where->runtime == CONTAINER_LXC)
		return CONTAINER_FILES_READ;
	if (search.rootfd < 0)
		return where->runtime == CONTAINER_NSPAWN ? CONTAINER_FILES_READ : CONTAINER_FILES_CLOSED;
	if (where->runtime == CONTAINER_NSPAWN)
		return look_for_machine(&search);

	look_for_state(&search);
	look_in_lists(&search);
	look_for_pod(&search);
	if (search.found && (ret->name[0] != '\0' || ret->sandbox))
		return CONTAINER_FILES_READ;

	return search.found || search.absent ? CONTAINER_FILES_ABSENT : CONTAINER_FILES_CLOSED;
}

/* ---- all of them ---- */

/* root: "/", or where the host's is; if it is not there, nothing is found. 0 or -ENOMEM. */
static int container_files_new(const char *root, struct container_files **ret)
{
	struct container_files *files = calloc(1, sizeof(*files));

	if (!files)
		return -ENOMEM;

	files->rootfd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (files->rootfd < 0)
		files->rootfd = -errno;
	*ret = files;

	return 0;
}

/* Why root could not be opened: -errno. 0: it was. */
static int container_files_error(const struct container_files *files)
{
	return files->rootfd < 0 ? files->rootfd : 0;
}

/* NULL is fine. */
static void container_files_free(struct container_files *files)
{
	if (!files)
		return;

	for (size_t i = 0; i < LISTS; i++)
		forget_list(&files->lists[i]);
	if (files->rootfd >= 0)
		close(files->rootfd);
	free(files);
}

/*
 * container_db.c: where the databases are, and what is where within them. A container that is there
 * has labels, though it may be none.
 */

#define META "io.containerd.metadata.v1.bolt/meta.db"

static const char *const containerd[] = {
	"var/lib/containerd/" META,
	"var/lib/rancher/k3s/agent/containerd/" META,
	"var/lib/rancher/rke2/agent/containerd/" META,
	"var/lib/k0s/containerd/" META,
};

static const char podman[] = "var/lib/containers/storage/libpod/bolt_state.db";

/* ---- a file ---- */

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

/* A descriptor or -errno. */
static int open_file(int rootfd, const char *path)
{
	AUTO_CLOSE int fd = open_beneath(rootfd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
	struct stat status;

	if (fd < 0)
		return fd;
	if (fstat(fd, &status) < 0)
		return -errno;

	return S_ISREG(status.st_mode) ? TAKE_FD(fd) : -EINVAL;
}

/* ---- containerd ---- */

static int take_label(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	if (container_state_is_label(key, key_len))
		labels_add(ctx, key, key_len, value, value_len);

	return 0;
}

static int ignore(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	(void)ctx;
	(void)key;
	(void)key_len;
	(void)value;
	(void)value_len;
	return 0;
}

/*
 * v1/SPACE/containers/ID/labels. A container without any has no such bucket, but it has a time when
 * it was made.
 */
static int db_take_labels(const struct bolt_file_source *source, const char *space, const char *id,
			  struct labels *labels)
{
	const char *const buckets[] = { "v1", space, "containers", id, "labels" };
	struct bolt_file_path path = { .buckets = buckets, .count = ARRAY_LEN(buckets) };
	int r = bolt_file_each(source, &path, NULL, take_label, labels);

	if (r != -ENOENT)
		return r;
	path.count--;

	return bolt_file_each(source, &path, "createdat", ignore, NULL);
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
 * it is in none), and says in *more that it is labelled. 0; -ENOENT: there is no such database, or
 * it does not know of them; -errno.
 */
static int container_db_containerd(int rootfd, const char *space, const char *id, const char *pod_id,
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

/* ---- Podman ---- */

static int take_config(void *ctx, const char *key, size_t key_len, const char *value, size_t value_len)
{
	int r = container_state_podman_labels(value, value_len, ctx);

	(void)key;
	(void)key_len;
	((struct container_state_more *)ctx)->labelled = r == 0 || r == 1;

	return r < 0 ? r : 0;
}

/* The same of a container of Podman's. */
/* ctr/ID has "config", a document. */
static int container_db_podman(int rootfd, const char *id, struct container_state_more *more)
{
	AUTO_CLOSE int fd = open_file(rootfd, podman);
	const struct bolt_file_source source = { .read = read_at, .ctx = &fd };
	const char *const buckets[] = { "ctr", id };
	const struct bolt_file_path path = { .buckets = buckets, .count = ARRAY_LEN(buckets) };

	return fd < 0 ? fd : bolt_file_each(&source, &path, "config", take_config, more);
}

#define BUCKETS 512u
#define KEPT_NS (60 * NS_PER_S)
#define KEPT_SCANS 3

/*
 * At a time, so that others have their turn: a look reads files of megabytes at worst, and cgroups
 * that look like containers anybody can make.
 */
#define LOOKS_MAX 16u

/* The same of reviews. */
#define REVIEWS_MAX 64u

/*
 * Labels that cannot be read are tried again after one review, two, four, and so on up to this: it
 * is a dozen files each time.
 */
#define PATIENCE_MAX 16u

/* Since it was met. The last is CONTAINERS_WAIT_NS. */
static const uint64_t looks_ns[] = { 20 * NS_PER_MS, 100 * NS_PER_MS, CONTAINERS_WAIT_NS };

/* Of what is a container, or may yet be one. */
struct about {
	struct container_path where;
	struct container container;
	struct container_files_source source;
};

/*
 * Any cgroup may be called so that it may be one, and many come and go: of what is none little is
 * kept.
 */
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
	struct container_files *files;
	struct label_cache *labels;
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

	int r = container_files_new(runtime_root, &containers->files);

	containers->bucket = BUCKETS;
	if (r == 0)
		r = label_cache_new(&containers->labels);
	if (r < 0) {
		containers_free(containers);
		return r;
	}
	*ret = containers;

	return 0;
}

int containers_error(const struct containers *containers)
{
	return container_files_error(containers->files);
}

/* Takes *at out of its bucket. */
static void drop(struct containers *containers, struct entry **at)
{
	struct entry *entry = *at;

	*at = entry->next;
	containers->count--;
	containers->pending -= entry->answer == CONTAINERS_PENDING;
	label_cache_drop(containers->labels, entry->path);
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
	label_cache_free(containers->labels);
	container_files_free(containers->files);
	free(containers);
}

struct label_cache *containers_labels(struct containers *containers)
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
	const struct container_path *where = &entry->about->where;
	struct container *container = &entry->about->container;

	*container = (struct container){ .runtime = where->runtime };
	container_text(container->id, sizeof container->id, where->id, strlen(where->id));
	/* Only an id of 64 digits is no name. */
	if (where->runtime == CONTAINER_NSPAWN || where->runtime == CONTAINER_LXC || where->space[0] != '\0')
		container_text(container->name, sizeof container->name, where->id, strlen(where->id));
}

/* Takes over what was read of its labels. */
static void take_labels(struct containers *containers, struct entry *entry, const struct container_files_more *more)
{
	entry->error = more->error;
	entry->about->container.labels =
		more->labelled ? label_cache_put(containers->labels, entry->path, &more->labels) : NULL;
	if (!entry->about->container.labels)
		label_cache_drop(containers->labels, entry->path);
}

/* Looks for its names and labels. */
static void look(struct containers *containers, struct entry *entry)
{
	struct about *about = entry->about;
	struct container_files_more more;
	enum container_files_result result;

	begin(entry);
	result = container_files_read(about->where.foreign ? NULL : containers->files, &about->where, &about->container,
				      &more);
	about->source = more.source;
	take_labels(containers, entry, &more);
	if (result == CONTAINER_FILES_OTHER || (about->where.unsure && result != CONTAINER_FILES_READ))
		entry->answer = CONTAINERS_NONE;
	else if (result == CONTAINER_FILES_ABSENT && entry->looks < ARRAY_LEN(looks_ns))
		entry->answer = CONTAINERS_PENDING;
	else
		entry->answer = CONTAINERS_KNOWN;
	if (entry->answer == CONTAINERS_NONE) {
		label_cache_drop(containers->labels, entry->path);
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
static struct entry *meet(struct containers *containers, const char *path, const struct container_path *where,
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
	struct container_path where;

	if (!containers || !container_path_parse(cgroup, &where))
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
	if (container_files_changed(containers->files, entry->about->container.id, &entry->about->source))
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
 * True: something of it is another. What is being taken away with its container, or only half
 * written, leaves it as it is.
 */
static bool read_again(struct containers *containers, struct entry *entry)
{
	struct about *about = entry->about;
	struct container before = about->container;
	struct container_files_more more;

	begin(entry);
	if (container_files_read(containers->files, &about->where, &about->container, &more) != CONTAINER_FILES_READ) {
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
	label_cache_tidy(containers->labels);
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
		label_cache_tidy(containers->labels);
}
