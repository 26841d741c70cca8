/*
 * cgroup_limits.c: effective limits by a tree of cgroups: a node for each directory, held by its
 * users and by its children, found by its parent and its name. The machine is the first limit, and
 * a limit on the way up counts if it is smaller, so what is missing or larger than the machine
 * changes nothing.
 *
 * A limit that is missing, unreadable, zero or unlimited is none: there is no error to handle, and
 * never a limit of zero. Only if no descriptor is left to look, the previous value stays. The root
 * of a hierarchy as mounted may be a cgroup (in a container), so "/" is read like the rest.
 *
 * The table of nodes is not a struct map: its buckets are the parts that limit_tree_refresh reads
 * in turn. A directory is opened by its path every time. Rejected: keeping it and its files open,
 * which would save a third of a read and cost four descriptors for each cgroup; and a cgroup that
 * is removed and made again under its name would have to be noticed.
 */
#include "lib/cgroup/cgroup_limits.h"

#include "lib/base/base.h"
#include "lib/base/map.h"
#include "lib/cgroup/cgroup.h"
#include "lib/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* ---- what a directory and the machine say ---- */

#define ONLINE_CPUS "/sys/devices/system/cpu/online"

/* Reads the beginning of a file. Length or -errno. */
static ssize_t read_file(int dir_fd, const char *name, char *buf, size_t cap)
{
	AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, buf, cap);

	return len < 0 ? -errno : len;
}

static int read_cpu_count(int dir_fd, const char *name, uint32_t *ret)
{
	char buf[4096];

	ssize_t len = read_file(dir_fd, name, buf, sizeof(buf));
	if (len < 0)
		return (int)len;
	return cgroup_files_cpus_parse(buf, (size_t)len, ret);
}

int cgroup_limits_machine(int procfd, const char *sys_cpu_online, struct metric_machine *ret)
{
	char buf[4096];
	uint32_t cpus = 0;
	uint64_t memory_bytes;
	bool real = !sys_cpu_online || sys_cpu_online[0] == '\0';

	int r = read_cpu_count(AT_FDCWD, real ? ONLINE_CPUS : sys_cpu_online, &cpus);
	if (r < 0 && !real)
		return r;
	if (r < 0 || cpus == 0) { /* no /sys here; one CPU is online, or this would not run */
		long online = sysconf(_SC_NPROCESSORS_ONLN);
		cpus = online > 0 ? (uint32_t)online : 1;
	}

	ssize_t len = read_file(procfd, "meminfo", buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	r = procfs_kb_parse(buf, (size_t)len, "MemTotal", &memory_bytes);
	if (r < 0)
		return r;

	*ret = (struct metric_machine){ .cores = cpus, .memory_bytes = memory_bytes };
	return 0;
}

/* v1: cpu.cfs_quota_us "-1" or "20000" and cpu.cfs_period_us "100000"; v2: cpu.max */
static int read_quota(int dir_fd, bool v2, uint64_t *ret)
{
	char buf[64];
	uint64_t quota_us = 0, period_us = 0;
	ssize_t len = read_file(dir_fd, v2 ? "cpu.max" : "cpu.cfs_quota_us", buf, sizeof(buf));
	int r = len < 0 ? (int)len
		: v2    ? cgroup_files_cpu_max_parse(buf, (size_t)len, &quota_us, &period_us)
			: cgroup_files_limit_parse(buf, (size_t)len, &quota_us);

	if (r == 0 && !v2 && quota_us != UINT64_MAX) {
		len = read_file(dir_fd, "cpu.cfs_period_us", buf, sizeof(buf));
		r = len < 0 ? (int)len : cgroup_files_number_parse(buf, (size_t)len, &period_us);
	}
	if (r < 0)
		return r;
	if (period_us == 0 || quota_us > UINT64_MAX / NS_PER_S) /* the kernel allows a second at most */
		return -EBADMSG;

	*ret = quota_us * NS_PER_S / period_us;
	return 0;
}

static int read_cpuset(int dir_fd, bool v2, uint64_t *ret)
{
	uint32_t cpus;
	int r = read_cpu_count(dir_fd, v2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus", &cpus);

	if (r == 0)
		*ret = cpus * NS_PER_S;
	return r;
}

static int read_memory(int dir_fd, bool v2, uint64_t *ret)
{
	char buf[64];
	ssize_t len = read_file(dir_fd, v2 ? "memory.max" : "memory.limit_in_bytes", buf, sizeof(buf));

	return len < 0 ? (int)len : cgroup_files_limit_parse(buf, (size_t)len, ret);
}

static const struct {
	enum cgroup_resource controller;
	/* Memory bytes, or CPU nanoseconds per second. 0; -errno: nothing is said there. */
	int (*read)(int dir_fd, bool v2, uint64_t *ret);
} kinds[CGROUP_LIMITS_KINDS] = {
	[CGROUP_LIMITS_QUOTA] = { CGROUP_CPU, read_quota },
	[CGROUP_LIMITS_CPUSET] = { CGROUP_CPUSET, read_cpuset },
	[CGROUP_LIMITS_MEMORY] = { CGROUP_MEMORY, read_memory },
};

static bool is_shortage(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

/* UINT64_MAX: no limit. 0; -EMFILE, -ENFILE, -ENOMEM: it could not be looked at. */
static int cgroup_limits_read(int dir_fd, enum cgroup_limits_kind kind, bool v2, uint64_t *ret)
{
	uint64_t limit = UINT64_MAX;
	int r = kinds[kind].read(dir_fd, v2, &limit);

	if (is_shortage(r))
		return r;
	*ret = r < 0 || limit == 0 ? UINT64_MAX : limit;
	return 0;
}

/* ---- the tree ---- */

/* One tree of cgroups, which limits what is in `kinds`, as bits. */
struct hierarchy {
	const char *root; /* of mounts */
	bool v2;
	unsigned kinds;
};

struct limit_tree_node {
	struct limit_tree_node *parent; /* NULL: the root */
	struct limit_tree_node *next;   /* in its bucket */
	uint32_t holders;
	uint8_t hierarchy;
	uint32_t round;                    /* the last in which it was read; 0: only when it was made */
	uint64_t own[CGROUP_LIMITS_KINDS]; /* UINT64_MAX: no limit here */
	char name[];                       /* "" is the root */
};

struct limit_tree {
	const struct cgroup_mounts *mounts;
	struct metric_machine machine;
	struct hierarchy hierarchies[CGROUP_LIMITS_KINDS];
	unsigned hierarchy_count;
	uint8_t hierarchy_of[CGROUP_LIMITS_KINDS]; /* CGROUP_LIMITS_KINDS: there is none */
	struct limit_tree_node *buckets[LIMIT_TREE_PARTS];
};

static void add_kind(struct limit_tree *tree, const struct cgroup_mounts *mounts, enum cgroup_limits_kind kind)
{
	bool v2;
	const char *root = cgroup_mounts_controller(mounts, kinds[kind].controller, &v2);
	unsigned i = 0;

	tree->hierarchy_of[kind] = CGROUP_LIMITS_KINDS;
	if (!root)
		return;

	while (i < tree->hierarchy_count && strcmp(tree->hierarchies[i].root, root) != 0)
		i++;
	if (i == tree->hierarchy_count)
		tree->hierarchies[tree->hierarchy_count++] = (struct hierarchy){ .root = root, .v2 = v2 };
	tree->hierarchies[i].kinds |= 1u << kind;
	tree->hierarchy_of[kind] = (uint8_t)i;
}

int limit_tree_new(const struct cgroup_mounts *mounts, const struct metric_machine *machine, struct limit_tree **ret)
{
	struct limit_tree *tree = calloc(1, sizeof *tree);

	if (!tree)
		return -ENOMEM;

	tree->mounts = mounts;
	tree->machine = *machine;
	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++)
		add_kind(tree, mounts, (enum cgroup_limits_kind)kind);
	*ret = tree;
	return 0;
}

void limit_tree_free(struct limit_tree *tree)
{
	for (unsigned i = 0; tree && i < LIMIT_TREE_PARTS; i++) {
		while (tree->buckets[i]) {
			struct limit_tree_node *node = tree->buckets[i];

			tree->buckets[i] = node->next;
			free(node);
		}
	}
	free(tree);
}

/* ---- reading ---- */

/*
 * Puts the path of a node before *end, down to start at most. The root has none. False: there is
 * not enough room.
 */
static bool prepend_path(const struct limit_tree_node *node, const char *start, char **end)
{
	for (; node->parent; node = node->parent) {
		size_t len = strlen(node->name);

		if ((size_t)(*end - start) < len + 1)
			return false;
		*end -= len;
		memcpy(*end, node->name, len);
		*--*end = '/';
	}
	return true;
}

static int open_node(const struct limit_tree *tree, const struct limit_tree_node *node)
{
	const char *root = tree->hierarchies[node->hierarchy].root;
	size_t root_len = strlen(root);
	char path[PATH_MAX], *at = path + sizeof path - 1;
	int fd;

	*at = '\0';
	if (!prepend_path(node, path, &at) || (size_t)(at - path) < root_len)
		return -ENAMETOOLONG;

	at -= root_len;
	memcpy(at, root, root_len);
	fd = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void read_node(const struct limit_tree *tree, struct limit_tree_node *node, uint32_t round)
{
	const struct hierarchy *hierarchy = &tree->hierarchies[node->hierarchy];
	AUTO_CLOSE int dir_fd = open_node(tree, node);

	node->round = round;
	if (is_shortage(dir_fd))
		return;

	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++) {
		if (dir_fd < 0)
			node->own[kind] = UINT64_MAX;
		else if (hierarchy->kinds >> kind & 1)
			cgroup_limits_read(dir_fd, (enum cgroup_limits_kind)kind, hierarchy->v2, &node->own[kind]);
	}
}

size_t limit_tree_refresh(struct limit_tree *tree, unsigned part, uint32_t round)
{
	size_t count = 0;

	for (struct limit_tree_node *node = tree->buckets[part]; node; node = node->next, count++)
		read_node(tree, node, round);
	return count;
}

size_t limit_tree_read(struct limit_tree *tree, const struct limit_tree_place *place, uint32_t round)
{
	size_t count = 0;

	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++) {
		for (struct limit_tree_node *node = place->at[kind]; node; node = node->parent) {
			if (node->round == round)
				continue;
			read_node(tree, node, round);
			count++;
		}
	}
	return count;
}

/* ---- places ---- */

static struct limit_tree_node **bucket_of(struct limit_tree *tree, const struct limit_tree_node *parent,
					  unsigned hierarchy, const char *name, size_t len)
{
	uint64_t hash = map_hash(name, len) ^ ((uintptr_t)parent ^ hierarchy) * 0x9e3779b97f4a7c15u >> 20;

	return &tree->buckets[hash % LIMIT_TREE_PARTS];
}

/* Releases a node, and those above it that have no holder left. */
static void release_node(struct limit_tree *tree, struct limit_tree_node *node)
{
	while (node && --node->holders == 0) {
		struct limit_tree_node *parent = node->parent;
		struct limit_tree_node **at = bucket_of(tree, parent, node->hierarchy, node->name, strlen(node->name));

		while (*at != node)
			at = &(*at)->next;
		*at = node->next;
		free(node);
		node = parent;
	}
}

/* The child of that name; takes the caller's hold of parent, also if it fails. NULL: no memory. */
static struct limit_tree_node *descend(struct limit_tree *tree, struct limit_tree_node *parent, unsigned hierarchy,
				       const char *name, size_t len)
{
	struct limit_tree_node **bucket = bucket_of(tree, parent, hierarchy, name, len), *node = *bucket;

	while (node && (node->parent != parent || node->hierarchy != hierarchy || strncmp(node->name, name, len) != 0 ||
			node->name[len] != '\0'))
		node = node->next;
	if (node) {
		node->holders++;
		release_node(tree, parent); /* the node has one of its own */
		return node;
	}

	node = malloc(sizeof *node + len + 1);
	if (!node) {
		release_node(tree, parent);
		return NULL;
	}
	*node = (struct limit_tree_node){
		.parent = parent, .next = *bucket, .holders = 1, .hierarchy = (uint8_t)hierarchy
	};
	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++)
		node->own[kind] = UINT64_MAX;
	memcpy(node->name, name, len);
	node->name[len] = '\0';
	*bucket = node;
	read_node(tree, node, 0);
	return node;
}

/* "/.." and "/../x"; "/..x" is a name like any other. */
static bool is_outside(const char *path)
{
	return strncmp(path, "/..", 3) == 0 && (path[3] == '/' || path[3] == '\0');
}

/* 0; -ENOMEM. */
static int hold(struct limit_tree *tree, unsigned hierarchy, const char *path, struct limit_tree_node **ret)
{
	struct limit_tree_node *node;

	if (path[0] != '/' || is_outside(path))
		return 0;

	node = descend(tree, NULL, hierarchy, "", 0);
	while (node && *(path += strspn(path, "/"))) {
		size_t len = strcspn(path, "/");

		node = descend(tree, node, hierarchy, path, len);
		path += len;
	}
	if (!node)
		return -ENOMEM;

	*ret = node;
	return 0;
}

/* Holds the cgroup for one kind, which in the same hierarchy is that of another. */
static int hold_kind(struct limit_tree *tree, struct limit_tree_place *place, int kind, const char *path)
{
	for (int other = 0; other < kind; other++) {
		if (tree->hierarchy_of[other] == tree->hierarchy_of[kind]) {
			place->at[kind] = place->at[other];
			if (place->at[kind])
				place->at[kind]->holders++;
			return 0;
		}
	}
	return hold(tree, tree->hierarchy_of[kind], path, &place->at[kind]);
}

int limit_tree_hold_cgroup(struct limit_tree *tree, const char *path, struct limit_tree_place *ret)
{
	struct limit_tree_place place = { 0 };
	int r = 0;

	for (int kind = 0; r == 0 && kind < CGROUP_LIMITS_KINDS; kind++)
		if (tree->hierarchy_of[kind] != CGROUP_LIMITS_KINDS)
			r = hold_kind(tree, &place, kind, path);
	if (r < 0) {
		limit_tree_drop(tree, &place);
		return r;
	}
	*ret = place;
	return 0;
}

int limit_tree_hold_process(struct limit_tree *tree, const char *text, size_t len, struct limit_tree_place *ret)
{
	struct limit_tree_place place = { 0 };
	char path[PATH_MAX];
	int r = 0;

	for (int kind = 0; r == 0 && kind < CGROUP_LIMITS_KINDS; kind++)
		if (cgroup_path_from(tree->mounts, text, len, kinds[kind].controller, path, sizeof path) == 0)
			r = hold_kind(tree, &place, kind, path);
	if (r < 0) {
		limit_tree_drop(tree, &place);
		return r;
	}
	*ret = place;
	return 0;
}

void limit_tree_drop(struct limit_tree *tree, struct limit_tree_place *place)
{
	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++)
		release_node(tree, place->at[kind]);
	*place = (struct limit_tree_place){ 0 };
}

/* ---- what follows from it ---- */

/*
 * The node on the way up that has the smallest limit, if it is below *limit, which is lowered; else
 * NULL.
 */
static const struct limit_tree_node *climb(const struct limit_tree_node *node, int kind, uint64_t *limit)
{
	const struct limit_tree_node *from = NULL;

	for (; node; node = node->parent) {
		if (node->own[kind] < *limit) {
			*limit = node->own[kind];
			from = node;
		}
	}
	return from;
}

/* Of 256 bytes. What is too long keeps its end. */
static void say_from(const struct limit_tree_node *node, char *ret)
{
	char path[256], *at = path + sizeof path - 1;

	ret[0] = '\0';
	if (!node)
		return;

	*at = '\0';
	prepend_path(node, path, &at);
	snprintf(ret, sizeof path, "%s", *at ? at : "/");
}

void limit_tree_limits(const struct limit_tree *tree, const struct limit_tree_place *place, struct cgroup_limits *ret)
{
	struct cgroup_limits limits = {
		.cpu = (uint64_t)(tree->machine.cores * (double)NS_PER_S),
		.memory_bytes = tree->machine.memory_bytes,
	};
	const struct limit_tree_node *quota, *cpuset, *memory;

	if (limits.cpu == 0)
		limits.cpu = UINT64_MAX;
	if (limits.memory_bytes == 0)
		limits.memory_bytes = UINT64_MAX;
	quota = climb(place->at[CGROUP_LIMITS_QUOTA], CGROUP_LIMITS_QUOTA, &limits.cpu);
	cpuset = climb(place->at[CGROUP_LIMITS_CPUSET], CGROUP_LIMITS_CPUSET, &limits.cpu);
	memory = climb(place->at[CGROUP_LIMITS_MEMORY], CGROUP_LIMITS_MEMORY, &limits.memory_bytes);
	limits.cpu_is_machine = !quota && !cpuset;
	limits.memory_is_machine = !memory;
	say_from(cpuset ? cpuset : quota, limits.cpu_from);
	say_from(memory, limits.memory_from);
	*ret = limits;
}
