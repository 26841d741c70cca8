/*
 * containerfiles.c: a table of places, tried in order until one of them has what is looked for. Then, for a pod's container that has no names yet, what
 * the kubelet writes whichever the runtime: names of links, and of directories of logs.
 *
 * A list of all containers is kept as it was read until there is another file in its place: anybody who may make cgroups can have it asked for ids, as often
 * as he likes, and reading megabytes for each would be the end of the daemon's share of a core.
 *
 * Files are opened with RESOLVE_IN_ROOT (openat2(2), Linux 5.6): below "/host" a link to /data is one to /host/data. Before Linux 5.6 that is right
 * only where the root is "/", and links are not followed below another.
 */
#include "containerfiles.h"

#include "containerstate.h"
#include "dirlist.h"
#include "scope.h"
#include "wholefile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Directories of logs that are looked through: a machine runs some hundred pods. */
#define NAMES_MAX 20000

typedef int parser(const char *text, size_t len, struct container *ret);

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

/* ---- opening ---- */

/* Directories only: what they hold is opened by their descriptors. (O_PATH and O_NONBLOCK together openat2(2) refuses.) */
static int open_below(int rootfd, const char *path, int flags)
{
	struct open_how how = {
		.flags = (unsigned)flags | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, rootfd, path, &how, sizeof how);

	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = openat(rootfd, path, flags | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}

/* 0; or as wholefile_read. */
static int read_below(int rootfd, const char *directory, const char *file, struct buffer *text)
{
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof path, "%s/%s", directory, file) >= sizeof path)
		return -ENAMETOOLONG;

	/* wholefile_read takes a directory and a name: those of the file itself, found within the root. */
	char *slash = strrchr(path, '/');

	*slash = '\0';

	AUTO_CLOSE int dir = open_below(rootfd, path, O_PATH | O_DIRECTORY);

	return dir < 0 ? dir : wholefile_read(dir, slash + 1, text);
}

static bool is_there(int rootfd, const char *directory)
{
	AUTO_CLOSE int dir = open_below(rootfd, directory, O_PATH | O_DIRECTORY);

	return dir >= 0;
}

/* ---- what runtimes write ---- */

/* How the search goes. */
struct search {
	struct containerfiles *files;
	int rootfd;
	const struct containerpath *where;
	struct container *container;
	bool found;  /* a file of it */
	bool absent; /* a place was there, and it was not in it */
};

static int parse_file(struct search *search, const char *directory, const char *file, parser *parse)
{
	struct buffer text = { .max = CONTAINERSTATE_BYTES_MAX };
	int r = read_below(search->rootfd, directory, file, &text);

	if (r == 0)
		r = parse(text.data, text.len, search->container);
	buffer_release(&text);

	return r;
}

/* True: it has the container's file. */
static bool look_in(struct search *search, const struct place *place, const char *space)
{
	struct container *container = search->container;
	char directory[PATH_MAX], parent[PATH_MAX];
	int r;

	snprintf(parent, sizeof parent, "%s%s%s", place->directory, space ? "/" : "", space ? space : "");
	if ((size_t)snprintf(directory, sizeof directory, "%s/%s", parent, container->id) >= sizeof directory)
		return false;
	r = parse_file(search, directory, place->file, place->parse);
	if (r < 0) {
		search->absent |= (r == -ENOENT || r == -EBADMSG) && is_there(search->rootfd, parent);
		return false;
	}
	if (container->runtime == CONTAINER_UNKNOWN)
		container->runtime = place->runtime;

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
	AUTO_CLOSE int dir = open_below(search->rootfd, lists[i], O_PATH | O_DIRECTORY);
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

static void look_in_lists(struct search *search)
{
	enum container_runtime runtime = search->container->runtime;

	if (runtime != CONTAINER_PODMAN && runtime != CONTAINER_UNKNOWN)
		return;
	for (size_t i = 0; i < LISTS && search->container->name[0] == '\0'; i++) {
		int r = ask_list(search, i);

		search->found |= r == 0;
		search->absent |= r == 1 || r == -EBADMSG;
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
	AUTO_CLOSE int dir = open_below(search->rootfd, directory, O_RDONLY | O_DIRECTORY);

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

static int parse_machine(const char *text, size_t len, struct container *ret)
{
	static const char vm[] = "\nCLASS=vm\n";

	(void)ret;
	return memmem(text, len, vm, sizeof vm - 1) != NULL;
}

/* Its name is known by the path; systemd-machined knows what it is (sd-login's files, which are lines of KEY=VALUE). */
static enum containerfiles_result look_for_machine(struct search *search)
{
	int r = strchr(search->container->id, '/') == NULL
			? parse_file(search, "run/systemd/machines", search->container->id, parse_machine)
			: 0;

	return r == 1 ? CONTAINERFILES_OTHER : CONTAINERFILES_READ;
}

enum containerfiles_result containerfiles_read(struct containerfiles *files, const struct containerpath *where,
					       struct container *ret)
{
	struct search search = {
		.files = files, .rootfd = files ? files->rootfd : -1, .where = where, .container = ret
	};

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
