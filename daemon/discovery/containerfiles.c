/*
 * containerfiles.c: a table of places, tried in order until one of them has what is looked for. Then, for a pod's container that has no names yet, what
 * the kubelet writes whichever the runtime: names of links, and of directories of logs.
 *
 * Labels are in the same documents, where they are anywhere: with a pod, in that of its sandbox. containerd and Podman have theirs in databases
 * (containerdb.h).
 *
 * A list of all containers is kept as it was read until there is another file in its place: anybody who may make cgroups can have it asked for ids, as often
 * as he likes, and reading megabytes for each would be the end of the daemon's share of a core.
 */
#include "containerfiles.h"

#include "belowroot.h"
#include "containerdb.h"
#include "containerstate.h"
#include "dirlist.h"
#include "scope.h"
#include "wholefile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Directories of logs that are looked through: a machine runs some hundred pods. */
#define NAMES_MAX 20000

typedef int parser(const char *text, size_t len, struct container *ret, struct containerstate_more *more);

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
	{ CONTAINER_DOCKER, "var/lib/docker/containers", NULL, "config.v2.json", containerstate_docker },
	{ CONTAINER_CONTAINERD, "run/containerd/" TASKS, "", "config.json", containerstate_oci },
	{ CONTAINER_CONTAINERD, "run/k3s/containerd/" TASKS, "", "config.json", containerstate_oci },
	{ CONTAINER_CONTAINERD, "run/k0s/containerd/" TASKS, "", "config.json", containerstate_oci },
	{ CONTAINER_CRIO, "run/containers/storage/overlay" STORAGE, NULL, "userdata/config.json", containerstate_oci },
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
	struct containerstate_list *list; /* NULL: it is none, for that error */
};

struct containerfiles {
	int rootfd; /* -errno: there is no such directory */
	struct known_list lists[LISTS];
};

static const char *const spaces[] = { "k8s.io", "default", "moby" };

/* Numbers of files that may change: those of places, then those of lists. */
#define FIRST_PLACE 1u
#define FIRST_LIST (FIRST_PLACE + ARRAY_LEN(places))

/* ---- opening ---- */

/* 0; or as wholefile_read. */
static int read_below(int rootfd, const char *directory, const char *file, struct buffer *text)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, file) >= sizeof path)
		return -ENAMETOOLONG;

	/* wholefile_read takes a directory and a name: those of the file itself, found within the root. */
	char *slash = strrchr(path, '/');

	*slash = '\0';

	AUTO_CLOSE int dir = belowroot_open(rootfd, path, O_PATH | O_DIRECTORY);

	return dir < 0 ? dir : wholefile_read(dir, slash + 1, text);
}

static bool is_there(int rootfd, const char *directory)
{
	AUTO_CLOSE int dir = belowroot_open(rootfd, directory, O_PATH | O_DIRECTORY);

	return dir >= 0;
}

/* ---- what runtimes write ---- */

/* How the search goes. */
struct search {
	struct containerfiles *files;
	int rootfd;
	const struct containerpath *where;
	struct container *container;
	struct containerfiles_more *more;
	bool found;  /* a file of it */
	bool absent; /* a place was there, and it was not in it */
};

static int parse_file(int rootfd, const char *directory, const char *file, parser *parse, struct container *ret,
		      struct containerstate_more *more)
{
	struct buffer text = { .max = CONTAINERSTATE_BYTES_MAX };
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
	AUTO_CLOSE int dir = belowroot_open(rootfd, directory, O_PATH | O_DIRECTORY);
	struct stat status;

	return dir >= 0 && fstatat(dir, file, &status, AT_SYMLINK_NOFOLLOW) == 0 ? stamp_of(&status) : 0;
}

/* The directory of a container, or, id NULL, of all of its space. False: such a path there is not. */
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
static int add_pod(struct search *search, const struct place *place, const char *space, struct containerstate_more *own)
{
	struct containerstate_more pod = { .labelled = false };
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
			    struct containerstate_more *own)
{
	bool of_pod = is_id(own->pod_id) && strcmp(own->pod_id, search->container->id) != 0;
	int r = 0;

	if (place->runtime == CONTAINER_CONTAINERD)
		r = containerdb_containerd(search->rootfd, space, search->container->id, of_pod ? own->pod_id : NULL,
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
	struct containerfiles_more *more = search->more;
	struct containerstate_more own = { .labelled = false };
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
	containerstate_list_free(known->list);
	*known = (struct known_list){ .any = false };
}

static int read_list(int dir, struct known_list *known)
{
	struct buffer text = { .max = CONTAINERSTATE_LIST_BYTES_MAX };
	int r = wholefile_read(dir, LIST_FILE, &text);

	if (r == 0)
		r = containerstate_list_new(text.data, text.len, &known->list);
	buffer_release(&text);

	return r;
}

/* 0; 1: it says nothing of it; -errno. What the file was is looked at before it is read: one that is written meanwhile is read again. */
static int ask_list(struct search *search, size_t i)
{
	struct known_list *known = &search->files->lists[i];
	AUTO_CLOSE int dir = belowroot_open(search->rootfd, lists[i], O_PATH | O_DIRECTORY);
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

	return known->list ? containerstate_list_find(known->list, search->container) : known->error;
}

static void look_for_podman_labels(struct search *search, size_t list)
{
	struct containerfiles_more *more = search->more;
	struct containerstate_more own = { .labelled = false };
	int r = containerdb_podman(search->rootfd, search->container->id, &own);

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

	return containerstate_log_link(name, listing->search->container) || ++listing->seen == NAMES_MAX;
}

static int visit_directory(void *ctx, const char *name)
{
	struct listing *listing = ctx;
	const char *uid = listing->search->where->pod_uid;

	return containerstate_log_directory(name, uid, listing->search->container) || ++listing->seen == NAMES_MAX;
}

static void list_below(struct search *search, const char *directory, int (*visit)(void *ctx, const char *name))
{
	struct listing listing = { .search = search };
	AUTO_CLOSE int dir = belowroot_open(search->rootfd, directory, O_RDONLY | O_DIRECTORY);

	if (dir < 0)
		return;
	search->absent = true;
	dirlist_each(dir, visit, &listing);
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

static int parse_machine(const char *text, size_t len, struct container *ret, struct containerstate_more *more)
{
	static const char vm[] = "\nCLASS=vm\n";

	(void)ret;
	(void)more;
	return memmem(text, len, vm, sizeof vm - 1) != NULL;
}

/* Its name is known by the path; systemd-machined knows what it is (sd-login's files, which are lines of KEY=VALUE). */
static enum containerfiles_result look_for_machine(struct search *search)
{
	int r = strchr(search->container->id, '/') == NULL
			? parse_file(search->rootfd, "run/systemd/machines", search->container->id, parse_machine,
				     search->container, NULL)
			: 0;

	return r == 1 ? CONTAINERFILES_OTHER : CONTAINERFILES_READ;
}

bool containerfiles_changed(const struct containerfiles *files, const char *id,
			    const struct containerfiles_source *source)
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

enum containerfiles_result containerfiles_read(struct containerfiles *files, const struct containerpath *where,
					       struct container *ret, struct containerfiles_more *more)
{
	struct search search = {
		.files = files, .rootfd = files ? files->rootfd : -1, .where = where, .container = ret, .more = more
	};

	/* Machines have no labels. */
	*more = (struct containerfiles_more){ .labelled = where->runtime == CONTAINER_LXC ||
							  where->runtime == CONTAINER_NSPAWN };
	if (where->runtime == CONTAINER_LXC)
		return CONTAINERFILES_READ;
	if (search.rootfd < 0)
		return where->runtime == CONTAINER_NSPAWN ? CONTAINERFILES_READ : CONTAINERFILES_CLOSED;
	if (where->runtime == CONTAINER_NSPAWN)
		return look_for_machine(&search);

	look_for_state(&search);
	look_in_lists(&search);
	look_for_pod(&search);
	if (search.found && (ret->name[0] != '\0' || ret->sandbox))
		return CONTAINERFILES_READ;

	return search.found || search.absent ? CONTAINERFILES_ABSENT : CONTAINERFILES_CLOSED;
}

/* ---- all of them ---- */

int containerfiles_new(const char *root, struct containerfiles **ret)
{
	struct containerfiles *files = calloc(1, sizeof(*files));

	if (!files)
		return -ENOMEM;

	files->rootfd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (files->rootfd < 0)
		files->rootfd = -errno;
	*ret = files;

	return 0;
}

int containerfiles_error(const struct containerfiles *files)
{
	return files->rootfd < 0 ? files->rootfd : 0;
}

void containerfiles_free(struct containerfiles *files)
{
	if (!files)
		return;

	for (size_t i = 0; i < LISTS; i++)
		forget_list(&files->lists[i]);
	if (files->rootfd >= 0)
		close(files->rootfd);
	free(files);
}
