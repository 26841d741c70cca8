/*
 * capture_host.c: the cgroups of a target, raw; the machine in a page.
 *
 * cgroup.txt is raw on purpose: what a kernel of tomorrow says there is evidence although nobody here knows it. One
 * list of file names serves v1 and v2: what a directory does not have is passed over.
 */
#include "capture_host.h"
#include "cgtree.h"
#include "dirtree.h"
#include "piddir.h"
#include "procfs.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FILE_BYTES 32768
#define SMALL_BYTES 8192
#define PLACES_MAX 48 /* CAPTURE_MEMBERS_MAX processes in six hierarchies */
#define BUSIEST 10
#define CANDIDATE_MAX 4096 /* processes of a cgroup that are looked at */

static uint64_t growth(uint64_t now, uint64_t then)
{
	return now > then ? now - then : 0;
}

/* Whether it is our trouble, and says nothing about what was looked for. */
static bool is_ours(ssize_t error)
{
	return error == -ENOMEM || error == -EMFILE || error == -ENFILE;
}

/* What could not be read for want of our own means must not look as if it were not there. */
static void note_ours(struct capture_text *text, ssize_t error)
{
	if (is_ours(error) && !text->error)
		text->error = (int)error;
}

/* ---- cgroups ---- */

/* Directories that were written already: processes of a target mostly share theirs. */
struct places {
	struct {
		dev_t device;
		ino_t inode;
	} seen[PLACES_MAX];
	size_t count;
};

static bool seen_before(struct places *places, int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return true;
	for (size_t i = 0; i < places->count; i++)
		if (places->seen[i].device == st.st_dev && places->seen[i].inode == st.st_ino)
			return true;
	if (places->count == PLACES_MAX)
		return true;
	places->seen[places->count].device = st.st_dev;
	places->seen[places->count].inode = st.st_ino;
	places->count++;
	return false;
}

static void add_cgroup_file(int dirfd, const char *directory, const char *name, char *data, struct capture_text *text)
{
	ssize_t len = piddir_read(dirfd, name, data, FILE_BYTES);

	note_ours(text, len);
	if (len < 0)
		return;
	capture_text_say(text, "# ");
	capture_text_word(text, directory, strlen(directory));
	capture_text_say(text, "/%s\n", name);
	capture_text_lines(text, data, (size_t)len);
}

/* 1: written; 0: there is nothing new there; -ENOMEM, -EMFILE, -ENFILE. */
static int add_place(struct places *places, const char *root, const char *path, struct capture_text *text)
{
	static const char *const names[] = {
		/* v2 */
		"cgroup.controllers", "cgroup.events", "cpu.max", "cpu.weight", "cpu.stat", "cpu.pressure",
		"memory.current", "memory.peak", "memory.min", "memory.low", "memory.high", "memory.max",
		"memory.swap.current", "memory.swap.max", "memory.events", "memory.stat", "memory.pressure", "io.stat",
		"io.pressure", "pids.current", "pids.max", "cpuset.cpus.effective", "cpuset.mems.effective",
		/* v1 */
		"cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.shares", "cpuacct.usage", "cpuacct.stat",
		"cpuacct.usage_percpu", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.limit_in_bytes",
		"memory.soft_limit_in_bytes", "memory.memsw.usage_in_bytes", "memory.memsw.limit_in_bytes",
		"memory.failcnt", "memory.oom_control", "cpuset.cpus", "cpuset.mems"
	};
	char directory[PATH_MAX];
	AUTO_CLOSE int fd = -1;
	AUTO_FREE char *data = NULL;

	if (snprintf(directory, sizeof(directory), "%s%s", root, strcmp(path, "/") == 0 ? "" : path) >=
	    (int)sizeof(directory))
		return 0;
	fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 && is_ours(-errno))
		return -errno;
	if (fd < 0 || seen_before(places, fd))
		return 0;
	data = malloc(FILE_BYTES);
	if (!data)
		return -ENOMEM;
	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		add_cgroup_file(fd, directory, names[i], data, text);
	return 1;
}

/* The path in the v2 hierarchy: "0::/user.slice". False if the process is in none, or gone. */
static bool unified_path(const struct capture_context *context, int32_t pid, char *ret, size_t cap,
			 struct capture_text *trouble)
{
	char name[32], text[SMALL_BYTES];
	struct procfs_cgroup line;
	size_t offset = 0;
	ssize_t len;

	snprintf(name, sizeof(name), "%d/cgroup", pid);
	len = piddir_read(context->procfd, name, text, sizeof(text));
	note_ours(trouble, len);
	while (len > 0 && procfs_cgroup_next(text, (size_t)len, &offset, &line) > 0)
		if (line.controllers_len == 0 && line.path_len < cap) {
			memcpy(ret, line.path, line.path_len);
			ret[line.path_len] = '\0';
			return true;
		}
	return false;
}

/*
 * pid 0: the path of the target itself, which is the same in every hierarchy. Returns how many places were written;
 * -ENOMEM, -EMFILE, -ENFILE.
 */
static int add_hierarchies(const struct capture_context *context, int32_t pid, struct places *places,
			   struct capture_text *text)
{
	const char *unified = cgroup_mounts_v2(context->mounts);
	char path[PATH_MAX];
	int added = 0, r;
	bool v2;

	for (unsigned c = 0; c < CGROUP_CONTROLLERS; c++) {
		const char *root = cgroup_mounts_controller(context->mounts, c, &v2);

		if (!root)
			continue;
		r = pid ? cgroup_path_in(context->mounts, context->procfd, pid, c, path, sizeof(path)) : 0;
		if (is_ours(r))
			return r;
		if (r < 0)
			continue;
		r = add_place(places, root, pid ? path : context->target->cgroup, text);
		if (r < 0)
			return r;
		added += r;
	}
	if (!unified || (pid && !unified_path(context, pid, path, sizeof(path), text)))
		return added;
	r = add_place(places, unified, pid ? path : context->target->cgroup, text);
	return r < 0 ? r : added + r;
}

int capture_host_cgroup(const struct capture_context *context, struct capture_text *text)
{
	struct places places = { .count = 0 };
	int added = 0;

	if (!context->mounts || cgroup_mounts_mode(context->mounts) == CGROUPS_NONE)
		return -ENOENT;
	capture_text_say(text, "# cgroups: %s\n", cgroup_mode_name(cgroup_mounts_mode(context->mounts)));
	for (size_t i = 0; i < context->member_count && i < CAPTURE_MEMBERS_MAX; i++) {
		int r = add_hierarchies(context, context->members[i].pid, &places, text);

		if (r < 0)
			return r;
		added += r;
	}
	/* A cgroup is its own evidence; so is the last one that a process was seen in. */
	if (context->target->cgroup[0] == '/' && (added == 0 || context->target->kind == TARGET_CGROUP)) {
		int r = add_hierarchies(context, 0, &places, text);

		if (r < 0)
			return r;
		added += r;
	}
	if (text->error)
		return text->error;
	return added > 0 ? 0 : -ESRCH;
}

/* ---- the machine ---- */

static void add_machine_file(int procfd, const char *name, struct capture_text *text)
{
	char data[SMALL_BYTES];
	ssize_t len = piddir_read(procfd, name, data, sizeof(data));

	note_ours(text, len);
	if (len < 0)
		capture_text_say(text, "# /proc/%s: not available\n", name);
	else
		capture_text_say(text, "# /proc/%s\n", name);
	if (len > 0)
		capture_text_lines(text, data, (size_t)len);
}

/* The lines of /proc/meminfo that say where memory went. */
static void add_meminfo(int procfd, struct capture_text *text)
{
	static const char *const names[] = { "MemTotal",   "MemFree",     "MemAvailable", "Buffers",      "Cached",
					     "SwapTotal",  "SwapFree",    "Dirty",        "Writeback",    "AnonPages",
					     "Mapped",     "Shmem",       "Slab",         "SReclaimable", "SUnreclaim",
					     "PageTables", "CommitLimit", "Committed_AS" };
	char data[SMALL_BYTES];
	ssize_t len = piddir_read(procfd, "meminfo", data, sizeof(data));

	note_ours(text, len);
	capture_text_say(text, "# /proc/meminfo%s\n", len < 0 ? ": not available" : "");
	for (size_t i = 0; len > 0 && i < ARRAY_LEN(names); i++) {
		uint64_t bytes;

		if (procfs_kb_parse(data, (size_t)len, names[i], &bytes) == 0)
			capture_text_say(text, "%s:\t%ju kB\n", names[i], (uintmax_t)bytes / 1024);
	}
}

/* ---- the busiest ---- */

struct busy_row {
	int32_t pid;
	char state;
	char name[64];
	uint64_t start_ticks;
	uint64_t ticks; /* since the baseline; since its start without one */
};

/* The busiest so far, busiest first. */
struct ranking {
	const struct busy_snapshot *before;
	struct busy_row *rows;
	size_t count, room;
	size_t processes;
};

static uint64_t ticks_since(const struct busy_snapshot *before, const struct procfs_stat *stat)
{
	const struct busy_record *then = before ? busy_snapshot_find(before, stat->pid, stat->start_ticks) : NULL;

	return growth(stat->user_ticks + stat->system_ticks, then ? then->cpu_ticks : 0);
}

static int rank(void *ctx, const struct procfs_stat *stat)
{
	struct ranking *ranking = ctx;
	uint64_t ticks = ticks_since(ranking->before, stat);
	size_t at = ranking->count, name_len;

	ranking->processes++;
	while (at > 0 && ranking->rows[at - 1].ticks < ticks)
		at--;
	if (at == ranking->room)
		return 0;
	if (ranking->count < ranking->room)
		ranking->count++;
	memmove(&ranking->rows[at + 1], &ranking->rows[at], (ranking->count - 1 - at) * sizeof(ranking->rows[0]));

	ranking->rows[at] = (struct busy_row){ stat->pid, stat->state, "", stat->start_ticks, ticks };
	name_len =
		stat->comm_len < sizeof(ranking->rows[at].name) ? stat->comm_len : sizeof(ranking->rows[at].name) - 1;
	memcpy(ranking->rows[at].name, stat->comm, name_len);
	return 0;
}

static void say_busy(struct capture_text *text, const struct busy_row *row, uint64_t since_ns)
{
	double ms = (double)row->ticks * 1000.0 / (double)sysconf(_SC_CLK_TCK);

	capture_text_say(text, "%d\t", row->pid);
	capture_text_word(text, row->name, strlen(row->name));
	capture_text_say(text, "\t");
	capture_text_word(text, &row->state, 1);
	capture_text_say(text, "\t%.0f\t", ms);
	if (since_ns > 0)
		capture_text_say(text, "%.1f", 100.0 * ms * (double)NS_PER_MS / (double)since_ns);
	capture_text_say(text, "\n");
}

static int add_busiest(const struct capture_context *context, struct capture_text *text)
{
	struct busy_row rows[BUSIEST];
	struct ranking ranking = { .before = context->busy, .rows = rows, .room = BUSIEST };
	mono_t now = clock_mono(context->clock);
	uint64_t since_ns = context->busy ? growth(now.ns, context->busy->taken.ns) : 0;
	int r;

	r = busy_snapshot_scan(context->procfd, rank, &ranking);
	if (r < 0)
		return r;
	if (context->busy)
		capture_text_say(text,
				 "# the busiest of %zu processes within the last %.1f s; 100 percent is one core\n",
				 ranking.processes, (double)since_ns / (double)NS_PER_S);
	else
		capture_text_say(text, "# the busiest of %zu processes since each of them started: no baseline\n",
				 ranking.processes);
	capture_text_say(text, "pid\tname\tstate\tcpu_ms\tcpu_percent\n");
	for (size_t i = 0; i < ranking.count; i++)
		say_busy(text, &rows[i], since_ns);
	return 0;
}

int capture_host_system(const struct capture_context *context, struct capture_text *text)
{
	static const char *const names[] = { "loadavg", "uptime", "pressure/cpu", "pressure/memory", "pressure/io" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		add_machine_file(context->procfd, names[i], text);
	add_meminfo(context->procfd, text);
	return add_busiest(context, text);
}

/* ---- the members of a cgroup or group ---- */

struct candidates {
	const char *root;
	const char *path;
	int32_t *pids;
	size_t count;
};

/* cgroup.procs: one pid a line; 0 is a process outside of the reader's pid namespace. */
static int add_procs(void *ctx, const char *below)
{
	struct candidates *candidates = ctx;
	AUTO_FREE char *text = malloc(FILE_BYTES);
	char file[PATH_MAX];
	const char *at, *end;
	uint64_t pid;
	ssize_t len;

	if (!text)
		return -ENOMEM;
	if (snprintf(file, sizeof(file), "%s%s%s/cgroup.procs", candidates->root,
		     strcmp(candidates->path, "/") == 0 ? "" : candidates->path,
		     strcmp(below, "/") == 0 ? "" : below) >= (int)sizeof(file))
		return 0;
	len = piddir_read(AT_FDCWD, file, text, FILE_BYTES);
	if (len <= 0)
		return 0;
	end = text + len;
	for (at = text; candidates->count < CANDIDATE_MAX && (at = text_parse_u64(at, end, &pid)) != NULL; at++)
		if (pid > 0 && pid <= INT32_MAX)
			candidates->pids[candidates->count++] = (int32_t)pid;
	return candidates->count == CANDIDATE_MAX;
}

static size_t read_procs(const struct capture_context *context, int32_t *pids)
{
	static const enum cgroup_controller order[] = { CGROUP_MEMORY, CGROUP_CPUACCT, CGROUP_CPU, CGROUP_PIDS };
	struct candidates candidates = { .path = context->target->cgroup, .pids = pids };
	bool v2;

	if (!context->mounts)
		return 0;
	for (size_t i = 0; candidates.count == 0 && i <= ARRAY_LEN(order); i++) {
		char directory[PATH_MAX];
		const char *roots[] = { directory };

		candidates.root = i < ARRAY_LEN(order) ? cgroup_mounts_controller(context->mounts, order[i], &v2)
						       : cgroup_mounts_v2(context->mounts);
		if (!candidates.root || snprintf(directory, sizeof(directory), "%s%s", candidates.root,
						 candidates.path) >= (int)sizeof(directory))
			continue;
		cgtree_walk(roots, 1, add_procs, &candidates); /* as far as it gets */
	}
	return candidates.count;
}

static void rank_pid(const struct capture_context *context, int32_t pid, struct ranking *ranking)
{
	char name[32], text[1024];
	struct procfs_stat stat;
	ssize_t len;

	snprintf(name, sizeof(name), "%d/stat", pid);
	len = piddir_read(context->procfd, name, text, sizeof(text));
	if (len > 0 && procfs_stat_parse(text, (size_t)len, &stat) == 0)
		rank(ranking, &stat);
}

size_t capture_busiest(const struct capture_context *context, const int32_t *pids, size_t pid_count,
		       struct capture_member *ret, size_t cap)
{
	AUTO_FREE int32_t *own = NULL;
	struct busy_row rows[CAPTURE_MEMBERS_MAX];
	struct ranking ranking = { .before = context->busy, .rows = rows };

	ranking.room = cap < CAPTURE_MEMBERS_MAX ? cap : CAPTURE_MEMBERS_MAX;
	if (pid_count == 0 && context->target->kind == TARGET_CGROUP) {
		own = calloc(CANDIDATE_MAX, sizeof(*own));
		pid_count = own ? read_procs(context, own) : 0;
		pids = own;
	}
	for (size_t i = 0; i < pid_count; i++)
		rank_pid(context, pids[i], &ranking);
	for (size_t i = 0; i < ranking.count; i++)
		ret[i] = (struct capture_member){ .pid = rows[i].pid, .start_ticks = rows[i].start_ticks };
	return ranking.count;
}
