/*
 * cgroup_mounts.c: a hierarchy is a directory and a version; a controller belongs to one of them.
 *
 * libcgroup is asked for the mounts and nothing else. It reads one controller's path of a pid per
 * call and cannot tell a process that vanished from one without a cgroup; it walks one v1 hierarchy
 * at a time; and it does either only below /proc and its own mounts. Reading /proc/<pid>/cgroup
 * once, and walking directories by descriptor, serves every root with one piece of code, which
 * fixtures can test. libcgroup keeps its table of mounts in globals and has no lock that covers
 * reading it again: one thread at a time may make mounts. Everything else works on the immutable
 * result.
 *
 * A walk over several trees visits a path in the first tree that has it. Asking the earlier trees
 * costs a system call for each, and needs no set of the paths seen, whose size would have to be
 * bounded.
 *
 * The kernel does not say where a cgroup namespace begins. But the process lists of cgroups are in
 * the host's tree, and the reader finds itself there: that cgroup's path, less what the namespace
 * shows of it, is the origin. One walk, at the start. Rejected: the inode of /sys/fs/cgroup, which
 * is the namespace's own root only where the host's is not mounted over it.
 */
#include "lib/cgroup/cgroup_mounts.h"

#include "lib/proc/procfs.h"

#include <assert.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CGROUP_TREE_ROOTS_MAX 8
/* Deeper nesting does not occur on purpose; each level costs the walk one descriptor. */
#define CGROUP_TREE_DEPTH_MAX 32
#define CGROUP_TREE_PATHS_MAX 100000

/* ---- patterns of paths ---- */

/*
 * Matches one byte against the set at *glob, "[a-z]" or "[!a-z]", and moves *glob behind it. A '['
 * left open is a byte.
 */
static bool match_set(const char **glob, char byte)
{
	const char *at = *glob + 1;
	bool negated = *at == '!' || *at == '^';
	bool found = false;

	at += negated;
	for (const char *first = at; *at != ']' || at == first; at++) {
		if (*at == '\0') {
			*glob += 1;
			return byte == '[';
		}

		char low = *at;
		bool range = at[1] == '-' && at[2] != ']' && at[2] != '\0';
		at += range ? 2 : 0;
		found |= byte >= low && byte <= *at;
	}

	*glob = at + 1;
	return found != negated;
}

/* Matches one byte of the path against what is at *glob, no star, and moves *glob behind it. */
static bool match_byte(const char **glob, char byte)
{
	if (**glob == '[' && byte != '/')
		return match_set(glob, byte);

	bool same = **glob == byte || (**glob == '?' && byte != '/');
	*glob += same;
	return same;
}

/*
 * Where matching goes on when it fails behind a star: the star takes one byte (or component) more.
 */
struct retry {
	const char *glob;
	const char *path;
};

/* Lets a ** take more: a byte, or for a whole component up to the next one. */
static bool next_start(struct retry *stars)
{
	bool component = stars->glob[-1] == '/';
	const char *slash = component ? strchr(stars->path, '/') : stars->path;

	if (!slash || *slash == '\0')
		return false;

	stars->path = slash + 1;
	return true;
}

/*
 * Two places to go back to are enough, the last * and the last **: what an earlier one could take
 * instead, a later one of the same kind can take as well. So the time is bounded by the product of
 * the three lengths, and nothing recurses. A "**" that is a whole component also matches none at
 * all.
 */
bool cgroup_glob(const char *glob, const char *path)
{
	struct retry star = { 0 };
	struct retry stars = { 0 };
	const char *start = glob;

	while (*path != '\0' || *glob != '\0') {
		bool component = glob == start || glob[-1] == '/';

		if (glob[0] == '*' && glob[1] == '*') {
			glob += component && glob[2] == '/' ? 3 : 2;
			stars = (struct retry){ glob, path };
			star.glob = NULL;
		} else if (glob[0] == '*') {
			star = (struct retry){ ++glob, path };
		} else if (*path != '\0' && match_byte(&glob, *path)) {
			path++;
		} else if (star.glob && *star.path != '\0' && *star.path != '/') {
			path = ++star.path;
			glob = star.glob;
		} else if (stars.glob && next_start(&stars)) {
			path = stars.path;
			glob = stars.glob;
			star.glob = NULL;
		} else {
			return false;
		}
	}
	return true;
}

struct walk {
	int (*visit)(void *ctx, const char *path);
	void *ctx;
	int earlier[CGROUP_TREE_ROOTS_MAX]; /* roots of the trees that were walked before this one */
	size_t earlier_count;
	uint32_t visited;
	bool bounded; /* something was left out */
	bool links;   /* the number of links of a directory of this tree tells its subdirectories */
	size_t len;
	char path[PATH_MAX]; /* below the root; "" is the root itself */
};

static bool was_visited(const struct walk *walk)
{
	const char *relative = walk->len > 0 ? walk->path + 1 : ".";

	for (size_t i = 0; i < walk->earlier_count; i++) {
		AUTO_CLOSE int fd = open_beneath(walk->earlier[i], relative, O_PATH, true);

		if (fd >= 0)
			return true;
	}
	return false;
}

static int visit_path(struct walk *walk)
{
	if (was_visited(walk))
		return 0;
	if (walk->visited == CGROUP_TREE_PATHS_MAX) {
		walk->bounded = true;
		return 0;
	}

	walk->visited++;
	return walk->visit(walk->ctx, walk->len > 0 ? walk->path : "/");
}

static bool is_directory(int dir_fd, const struct dirent *item)
{
	struct stat st;

	if (item->d_type != DT_UNKNOWN)
		return item->d_type == DT_DIR;
	return fstatat(dir_fd, item->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int walk_directory(struct walk *walk, int fd, int depth);

static int walk_open(struct walk *walk, int place, int depth)
{
	int fd = openat(place, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == EACCES ? 0 : -errno;

	return walk_directory(walk, fd, depth);
}

/* Most are, and listing thirty files costs ten times as much. Asked after the visit, which may watch it. */
static bool is_leaf(const struct walk *walk, int place)
{
	struct stat st;

	return walk->links && fstat(place, &st) == 0 && st.st_nlink == 2;
}

static int walk_child(struct walk *walk, int dir_fd, const char *name, int depth)
{
	size_t len = walk->len;
	size_t name_len = strlen(name);

	if (depth == CGROUP_TREE_DEPTH_MAX || len + 1 + name_len >= sizeof(walk->path)) {
		walk->bounded = true;
		return 0;
	}

	AUTO_CLOSE int place = open_beneath(dir_fd, name, O_PATH | O_DIRECTORY | O_NOFOLLOW, true);

	if (place < 0)
		return 0;

	walk->path[len] = '/';
	memcpy(walk->path + len + 1, name, name_len + 1);
	walk->len = len + 1 + name_len;
	int r = visit_path(walk);
	if (r == 0 && !is_leaf(walk, place))
		r = walk_open(walk, place, depth + 1);
	walk->len = len;
	walk->path[len] = '\0';
	return r;
}

/* Takes fd. A cgroup that vanishes on the way is as if it had not been there. */
static int walk_directory(struct walk *walk, int fd, int depth)
{
	DIR *dir = fdopendir(fd);
	if (!dir) {
		close(fd);
		return -ENOMEM;
	}

	const struct dirent *item;
	int r = 0;
	while (r == 0 && (item = readdir(dir))) {
		if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0 && is_directory(dirfd(dir), item))
			r = walk_child(walk, dirfd(dir), item->d_name, depth);
	}
	closedir(dir);
	return r;
}

/* A tree that is not there (any more) is an empty one. */
static int walk_tree(struct walk *walk, const char *root)
{
	int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;

	int kept = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (kept < 0) {
		close(fd);
		return -errno;
	}

	struct statfs fs;

	/* In others it may be 1 or 2 whatever is in it. */
	walk->links = fstatfs(fd, &fs) == 0 && (fs.f_type == CGROUP_SUPER_MAGIC || fs.f_type == CGROUP2_SUPER_MAGIC);

	int r = visit_path(walk);
	if (r == 0)
		r = walk_directory(walk, fd, 0);
	else
		close(fd);
	walk->earlier[walk->earlier_count++] = kept;
	return r;
}

int cgroup_tree_walk(const char *const roots[], size_t count, int (*visit)(void *ctx, const char *path), void *ctx)
{
	struct walk walk = { .visit = visit, .ctx = ctx };
	int r = 0;

	assert(count <= CGROUP_TREE_ROOTS_MAX);

	for (size_t i = 0; i < count && r == 0; i++)
		r = walk_tree(&walk, roots[i]);
	while (walk.earlier_count > 0)
		close(walk.earlier[--walk.earlier_count]);
	return r == 0 && walk.bounded ? -E2BIG : r;
}

/* libcgroup calls its own struct what is an enum here. */
#define cgroup_controller libcgroup_controller
#include <libcgroup.h>
#undef cgroup_controller

#define USUAL_PROC_ROOT "/proc"
#define USUAL_CGROUP_ROOT "/sys/fs/cgroup"

/*
 * A dozen lines, each with a path; usual is below 1 KiB. What is cut off is a hierarchy not found.
 */
#define PROC_CGROUP_MAX 16384

struct cgroup_mounts {
	char *v1[CGROUP_CONTROLLERS]; /* directory of the v1 hierarchy, or NULL */
	char *v2;                     /* directory of the v2 hierarchy, or NULL */
	bool in_v2[CGROUP_CONTROLLERS];
	char *v1_origin[CGROUP_CONTROLLERS], *v2_origin; /* where our namespace begins, or NULL: cgroup_origin.h */
};

static const char *const controller_names[CGROUP_CONTROLLERS] = {
	[CGROUP_CPU] = "cpu",   [CGROUP_CPUACCT] = "cpuacct", [CGROUP_MEMORY] = "memory",
	[CGROUP_PIDS] = "pids", [CGROUP_CPUSET] = "cpuset",
};

/* Is name one of the words of a list? */
static bool list_has(const char *list, size_t len, const char *separators, const char *name)
{
	const char *end = list + len;
	size_t name_len = strlen(name);

	while (list < end) {
		size_t word_len = 0;
		while (list + word_len < end && !strchr(separators, list[word_len]))
			word_len++;
		if (word_len == name_len && memcmp(list, name, name_len) == 0)
			return true;

		list += word_len + 1;
	}
	return false;
}

static bool is_v2(const char *dir)
{
	AUTO_CLOSE int dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statfs fs;

	if (dir_fd < 0)
		return false;
	return (fstatfs(dir_fd, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC) ||
	       faccessat(dir_fd, "cgroup.controllers", F_OK, 0) == 0;
}

static int keep_string(char **place, const char *string)
{
	char *copy = strdup(string);
	if (!copy)
		return -ENOMEM;

	free(*place);
	*place = copy;
	return 0;
}

/* Reads which controllers the v2 hierarchy has: "cpuset cpu io memory pids\n". */
static int use_v2(struct cgroup_mounts *mounts, const char *dir)
{
	char list[512];
	AUTO_CLOSE int dir_fd = -1;
	AUTO_CLOSE int fd = -1;

	if (mounts->v2 || !is_v2(dir))
		return 0;

	dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	fd = dir_fd < 0 ? -1 : openat(dir_fd, "cgroup.controllers", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? 0 : read(fd, list, sizeof(list));
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		mounts->in_v2[i] = len > 0 && list_has(list, (size_t)len, " \n", controller_names[i]);
	/* v2 has no such controller: cpu.stat is always there and tells the same. */
	mounts->in_v2[CGROUP_CPUACCT] = mounts->in_v2[CGROUP_CPU];
	return keep_string(&mounts->v2, dir);
}

/* names: "cpu", or "cpu,cpuacct" where a directory says what is mounted together. */
static int use_v1(struct cgroup_mounts *mounts, const char *names, const char *dir)
{
	for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
		if (mounts->v1[i] || !list_has(names, strlen(names), ",", controller_names[i]))
			continue;

		int r = keep_string(&mounts->v1[i], dir);
		if (r < 0)
			return r;
	}
	return 0;
}

static int use_mount(struct cgroup_mounts *mounts, const char *names, const char *dir)
{
	return is_v2(dir) ? use_v2(mounts, dir) : use_v1(mounts, names, dir);
}

/* libcgroup writes to stdout unless it is given another place. */
static void discard_log(void *userdata, int level, const char *format, va_list arguments)
{
	(void)userdata;
	(void)level;
	(void)format;
	(void)arguments;
}

/*
 * libcgroup's table is for 100 mounts, 8 KiB each, and it clears all of it before it fills in a dozen: so
 * much stays resident for good. The pages behind the last mount hold zeroes alone; they go back to the kernel,
 * which gives zeroes again if they are read.
 */
static void give_back_cleared(void)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	const char *table = dlsym(RTLD_DEFAULT, "cg_mount_table");
	const ElfW(Sym) *symbol = NULL;
	Dl_info info;

	if (!table || !dladdr1(table, &info, (void **)(void *)&symbol, RTLD_DL_SYMENT) || !symbol)
		return;

	uintptr_t first = ((uintptr_t)table + page - 1) & ~(page - 1);
	uintptr_t end = ((uintptr_t)table + symbol->st_size) & ~(page - 1), from = end;

	while (from > first) {
		const char *at = (const char *)(from - page);

		if (at[0] != '\0' || memcmp(at, at + 1, page - 1) != 0)
			break;
		from -= page;
	}
	if (from < end)
		(void)madvise((void *)from, end - from, MADV_DONTNEED);
}

/*
 * Whatever libcgroup reports as an error is "nothing is mounted". A v2 hierarchy without
 * controllers it does not report.
 */
static int ask_libcgroup(struct cgroup_mounts *mounts)
{
	struct cgroup_mount_point mount;
	void *handle = NULL;
	int r = 0;

	cgroup_set_logger(discard_log, CGROUP_LOG_ERROR, NULL);
	if (cgroup_init() == 0) {
		int more = cgroup_get_controller_begin(&handle, &mount);
		for (; more == 0 && r == 0; more = cgroup_get_controller_next(&handle, &mount))
			r = use_mount(mounts, mount.name, mount.path);
		cgroup_get_controller_end(&handle);
	}
	give_back_cleared();
	if (r == 0)
		r = use_v2(mounts, USUAL_CGROUP_ROOT);
	if (r == 0)
		r = use_v2(mounts, USUAL_CGROUP_ROOT "/unified");
	return r;
}

/*
 * Where the names of the directories say what they are: the v2 root itself, or folders "memory",
 * "cpu,cpuacct", "unified".
 */
static int look_below(struct cgroup_mounts *mounts, const char *root)
{
	if (is_v2(root))
		return use_v2(mounts, root);

	DIR *dir = opendir(root);
	if (!dir)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;

	const struct dirent *item;
	int r = 0;
	while (r == 0 && (item = readdir(dir))) {
		char path[PATH_MAX];

		if (item->d_name[0] == '.' || item->d_type == DT_LNK)
			continue;
		if ((size_t)snprintf(path, sizeof(path), "%s/%s", root, item->d_name) >= sizeof(path))
			r = -ENAMETOOLONG;
		else
			r = use_mount(mounts, item->d_name, path);
	}
	closedir(dir);
	return r;
}

int cgroup_mounts_new(const char *proc_root, const char *cgroup_root, struct cgroup_mounts **ret)
{
	AUTO(cgroup_mounts_freep) struct cgroup_mounts *mounts = calloc(1, sizeof(*mounts));
	bool usual_tree = !cgroup_root || cgroup_root[0] == '\0';
	int r;

	if (!mounts)
		return -ENOMEM;

	if (usual_tree && strcmp(proc_root, USUAL_PROC_ROOT) == 0)
		r = ask_libcgroup(mounts);
	else
		r = look_below(mounts, usual_tree ? USUAL_CGROUP_ROOT : cgroup_root);
	if (r < 0)
		return r;

	*ret = TAKE(mounts);
	return 0;
}

void cgroup_mounts_free(struct cgroup_mounts *mounts)
{
	if (!mounts)
		return;

	for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
		free(mounts->v1[i]);
		free(mounts->v1_origin[i]);
	}
	free(mounts->v2);
	free(mounts->v2_origin);
	free(mounts);
}

enum cgroup_mode cgroup_mounts_mode(const struct cgroup_mounts *mounts)
{
	bool v1 = false;

	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		v1 |= mounts->v1[i] != NULL;
	if (v1)
		return mounts->v2 ? CGROUPS_HYBRID : CGROUPS_V1;
	return mounts->v2 ? CGROUPS_V2 : CGROUPS_NONE;
}

const char *cgroup_mode_name(enum cgroup_mode mode)
{
	static const char *const names[] = {
		[CGROUPS_NONE] = "none",
		[CGROUPS_V1] = "v1",
		[CGROUPS_V2] = "v2",
		[CGROUPS_HYBRID] = "hybrid",
	};
	return names[mode];
}

const char *cgroup_mounts_controller(const struct cgroup_mounts *mounts, enum cgroup_resource controller, bool *ret_v2)
{
	bool v2 = !mounts->v1[controller] && mounts->in_v2[controller];

	*ret_v2 = v2;
	return v2 ? mounts->v2 : mounts->v1[controller];
}

const char *cgroup_mounts_v2(const struct cgroup_mounts *mounts)
{
	return mounts->v2;
}

/* The reader's own cgroup has few processes, and the kernel lists them in no order that helps. */
#define PROCS_MAX 65536

struct search {
	const char *root;
	int32_t pid;
	char *text; /* PROCS_MAX bytes */
	char *found;
};

/* Whether a line of "812\n813\n" is that number. */
static bool lists(const char *text, const char *number)
{
	size_t len = strlen(number);

	for (const char *at = text; (at = strstr(at, number)) != NULL; at += len)
		if ((at == text || at[-1] == '\n') && (at[len] == '\n' || at[len] == '\0'))
			return true;
	return false;
}

static int find_pid_in_cgroup(void *ctx, const char *path)
{
	struct search *search = ctx;
	char name[PATH_MAX], number[16];

	if ((size_t)snprintf(name, sizeof(name), "%s/cgroup.procs", path) >= sizeof(name))
		return 0;

	AUTO_CLOSE int fd = cgroup_open(search->root, name, O_RDONLY);
	ssize_t len = fd < 0 ? -1 : read(fd, search->text, PROCS_MAX - 1);

	if (len <= 0)
		return 0;
	search->text[len] = '\0';
	snprintf(number, sizeof(number), "%d", search->pid);
	if (!lists(search->text, number))
		return 0;
	search->found = strdup(path);
	return search->found ? 1 : -ENOMEM;
}

/*
 * Takes own off the end of path, so that "/pods/a/x" less "/x" is "/pods/a". False: it does not end
 * so, or nothing is left.
 */
static bool take_off(char *path, const char *own)
{
	size_t len = strlen(path), cut = strcmp(own, "/") == 0 ? 0 : strlen(own);

	if (cut >= len || strcmp(path + len - cut, cut > 0 ? own : "") != 0)
		return false;
	path[len - cut] = '\0';
	return strcmp(path, "/") != 0;
}

/*
 * Looks in the tree below root for the cgroup whose cgroup.procs has pid, the reader's own, whose
 * path by its own namespace is own. *ret: the path at which the namespace begins, for free(3). 0;
 * -ENOENT: it is not found, or the tree begins there itself; -ENOMEM; -errno.
 */
static int cgroup_origin_find(const char *root, int32_t pid, const char *own, char **ret)
{
	AUTO_FREE char *text = malloc(PROCS_MAX);
	AUTO_FREE char *found = NULL;
	struct search search = { .root = root, .pid = pid, .text = text };
	int r;

	if (!text)
		return -ENOMEM;

	r = cgroup_tree_walk(&root, 1, find_pid_in_cgroup, &search);
	found = search.found;
	if (r < 0 && r != -E2BIG)
		return r;
	if (!found || !take_off(found, own))
		return -ENOENT;

	*ret = TAKE(found);
	return 0;
}

/* A path as the namespace says it, from the tree's root, into buf, terminated. 0; -ENAMETOOLONG. */
static int cgroup_origin_resolve(const char *origin, const char *path, size_t len, char *buf, size_t cap)
{
	size_t kept = strlen(origin), at = 0;

	while (len - at >= 3 && memcmp(path + at, "/..", 3) == 0 && (at + 3 == len || path[at + 3] == '/')) {
		at += 3;
		while (kept > 0 && origin[--kept] != '/')
			;
	}

	/* "/" behind something is nothing. */
	size_t rest_len = len - at == 1 && path[at] == '/' ? 0 : len - at;

	if (kept + rest_len == 0)
		return cap > 1 ? (memcpy(buf, "/", 2), 0) : -ENAMETOOLONG;
	if (kept + rest_len >= cap)
		return -ENAMETOOLONG;
	memcpy(buf, origin, kept);
	memcpy(buf + kept, path + at, rest_len);
	buf[kept + rest_len] = '\0';
	return 0;
}

/* ---- the cgroup of a process ---- */

/* Reads <procfd>/<pid>/cgroup; one read gives all of it. Length or -errno. */
static ssize_t read_proc_cgroup(int procfd, int32_t pid, char *buf, size_t cap)
{
	char name[32];
	AUTO_CLOSE int fd = -1;

	snprintf(name, sizeof(name), "%d/cgroup", pid);
	fd = open_beneath(procfd, name, O_RDONLY, true);
	if (fd < 0)
		return fd == -ENOENT ? -ESRCH : fd;

	ssize_t len = read(fd, buf, cap);
	return len < 0 ? -errno : len;
}

/* The line of a hierarchy; controller "" is v2. */
static bool find_hierarchy(const char *text, size_t len, const char *controller, struct procfs_cgroup *ret)
{
	struct procfs_cgroup line;
	size_t offset = 0;

	while (procfs_cgroup_next(text, len, &offset, &line)) {
		bool same = controller[0] == '\0' ? line.controllers_len == 0
						  : list_has(line.controllers, line.controllers_len, ",", controller);
		if (same) {
			*ret = line;
			return true;
		}
	}
	return false;
}

static bool is_outside(const struct procfs_cgroup *line)
{
	return line->path_len >= 3 && memcmp(line->path, "/..", 3) == 0 &&
	       (line->path_len == 3 || line->path[3] == '/');
}

/* NULL: it is not known, or it begins where the hierarchy does. */
static const char *origin_of(const struct cgroup_mounts *mounts, const struct procfs_cgroup *line)
{
	if (line->controllers_len == 0)
		return mounts->v2_origin;
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		if (list_has(line->controllers, line->controllers_len, ",", controller_names[i]))
			return mounts->v1_origin[i];
	return NULL;
}

static int copy_path(const struct cgroup_mounts *mounts, const struct procfs_cgroup *line, char *buf, size_t cap)
{
	const char *origin = origin_of(mounts, line);

	if (origin)
		return cgroup_origin_resolve(origin, line->path, line->path_len, buf, cap);
	if (line->path_len >= cap)
		return -ENAMETOOLONG;

	memcpy(buf, line->path, line->path_len);
	buf[line->path_len] = '\0';
	return 0;
}

static bool v2_has_controllers(const struct cgroup_mounts *mounts)
{
	bool has = false;

	for (int i = 0; i < CGROUP_CONTROLLERS; i++) {
		bool v2;
		has |= cgroup_mounts_controller(mounts, (enum cgroup_resource)i, &v2) && v2;
	}
	return has || cgroup_mounts_mode(mounts) == CGROUPS_V2;
}

int cgroup_path_of(const struct cgroup_mounts *mounts, int procfd, int32_t pid, char *buf, size_t cap)
{
	static const char *const order[] = { "", "memory", "cpuacct", "cpu", "name=systemd" };
	char text[PROC_CGROUP_MAX];
	struct procfs_cgroup line;
	bool any = false;

	ssize_t len = read_proc_cgroup(procfd, pid, text, sizeof(text));
	if (len < 0)
		return (int)len;

	for (size_t i = v2_has_controllers(mounts) ? 0 : 1; i < ARRAY_LEN(order); i++) {
		if (!find_hierarchy(text, (size_t)len, order[i], &line))
			continue;

		int r = copy_path(mounts, &line, buf, cap);
		if (r < 0 || strcmp(buf, "/") != 0)
			return r;
		any = true;
	}
	if (any)
		return 0;
	if (!find_hierarchy(text, (size_t)len, "", &line))
		return -ENOENT;
	return copy_path(mounts, &line, buf, cap);
}

int cgroup_path_from(const struct cgroup_mounts *mounts, const char *text, size_t len, enum cgroup_resource controller,
		     char *buf, size_t cap)
{
	struct procfs_cgroup line;
	bool v2;

	if (!cgroup_mounts_controller(mounts, controller, &v2) ||
	    !find_hierarchy(text, len, v2 ? "" : controller_names[controller], &line))
		return -ENOENT;
	return copy_path(mounts, &line, buf, cap);
}

int cgroup_path_in(const struct cgroup_mounts *mounts, int procfd, int32_t pid, enum cgroup_resource controller,
		   char *buf, size_t cap)
{
	char text[PROC_CGROUP_MAX];
	bool v2;

	if (!cgroup_mounts_controller(mounts, controller, &v2))
		return -ENOENT;

	ssize_t len = read_proc_cgroup(procfd, pid, text, sizeof(text));

	return len < 0 ? (int)len : cgroup_path_from(mounts, text, (size_t)len, controller, buf, cap);
}

/* ---- a namespace of our own ---- */

static int orient(const char *root, int32_t pid, const struct procfs_cgroup *own, char **ret)
{
	char path[PATH_MAX];

	if (*ret || is_outside(own) || own->path_len >= sizeof(path))
		return 0;
	memcpy(path, own->path, own->path_len);
	path[own->path_len] = '\0';

	int r = cgroup_origin_find(root, pid, path, ret);
	return r == -ENOENT ? 0 : r;
}

int cgroup_mounts_orient(struct cgroup_mounts *mounts, int procfd, const struct cgroup_reader *reader)
{
	char text[PROC_CGROUP_MAX];
	struct procfs_cgroup first, own;
	size_t offset = 0;
	int r = 0;

	ssize_t len = read_proc_cgroup(procfd, 1, text, sizeof(text));
	if (len < 0)
		return len == -ESRCH || len == -EACCES ? 0 : (int)len;

	while (r == 0 && procfs_cgroup_next(text, (size_t)len, &offset, &first)) {
		if (!is_outside(&first))
			continue;
		if (first.controllers_len == 0 && mounts->v2 && find_hierarchy(reader->text, reader->len, "", &own))
			r = orient(mounts->v2, reader->pid, &own, &mounts->v2_origin);
		for (int i = 0; r == 0 && i < CGROUP_CONTROLLERS; i++)
			if (mounts->v1[i] &&
			    list_has(first.controllers, first.controllers_len, ",", controller_names[i]) &&
			    find_hierarchy(reader->text, reader->len, controller_names[i], &own))
				r = orient(mounts->v1[i], reader->pid, &own, &mounts->v1_origin[i]);
	}
	return r;
}

/* ---- the tree ---- */

/* The directories that have counters, each once. cpuset counts nothing. Returns how many. */
static size_t list_hierarchies(const struct cgroup_mounts *mounts, const char *ret[CGROUP_TREE_ROOTS_MAX])
{
	const char *all[] = {
		mounts->v2,
		mounts->v1[CGROUP_MEMORY],
		mounts->v1[CGROUP_CPUACCT],
		mounts->v1[CGROUP_CPU],
		mounts->v1[CGROUP_PIDS],
	};
	size_t count = 0;

	_Static_assert(ARRAY_LEN(all) <= CGROUP_TREE_ROOTS_MAX, "room for every hierarchy");
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		bool known = !all[i];
		for (size_t k = 0; k < count && !known; k++)
			known = strcmp(ret[k], all[i]) == 0;
		if (!known)
			ret[count++] = all[i];
	}
	return count;
}

int cgroup_walk(const struct cgroup_mounts *mounts, int (*visit)(void *ctx, const char *path), void *ctx)
{
	const char *roots[CGROUP_TREE_ROOTS_MAX];
	size_t count = list_hierarchies(mounts, roots);

	return cgroup_tree_walk(roots, count, visit, ctx);
}
