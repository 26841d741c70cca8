/*
 * baseline.c: snapshots of all processes and of the threads of one; and the baselines: two busy
 * snapshots, the last whole one and the one being built, and a map of watched processes.
 *
 * Busy snapshots: three numbers per process in one array. The kernel lists /proc by ascending pid,
 * so the array is mostly sorted already.
 *
 * Threads: stat counts in ticks of 10 ms, so over a second it tells one percent from two; schedstat
 * has nanoseconds but no split into user and system. Both are read; without schedstat the sum of
 * stat is used. Two snapshots are kept, because the younger may be some milliseconds old when a
 * rule fires, and the work of milliseconds says little.
 *
 * The kernel lists processes by pid. When a scan runs out of budget, the next one continues at the
 * pid where it did, so that every process gets its turn.
 */
#include "daemon/engine/targets/baseline.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Processes beyond are left out: 24 bytes each. */
#define BUSY_SNAPSHOT_MAX 16384

/* Threads beyond are counted, not listed: 64 bytes each. */
#define THREAD_SNAPSHOT_MAX 1024

/* Processes that have one; captures of others have nothing to compare with. */
#define BASELINE_PROCESSES_MAX 4096u

/* ---- busy snapshots ---- */

#define BUSY_SNAPSHOT_FIRST_ROOM 256
#define STAT_MAX 1024

static void busy_snapshot_begin(struct busy_snapshot *snapshot, mono_t now)
{
	snapshot->taken = now;
	snapshot->count = 0;
	snapshot->left_out = 0;
}

static int busy_snapshot_reserve(struct busy_snapshot *snapshot, size_t room)
{
	struct busy_record *records;

	if (room <= snapshot->room)
		return 0;
	records = realloc(snapshot->records, room * sizeof(*records));
	if (!records)
		return -ENOMEM;
	snapshot->records = records;
	snapshot->room = room;
	return 0;
}

/* 0 or -ENOMEM: it is left out, and counted. */
static int busy_snapshot_add(struct busy_snapshot *snapshot, const struct procfs_stat *stat)
{
	int r = 0;

	if (snapshot->count == BUSY_SNAPSHOT_MAX) {
		snapshot->left_out++;
		return 0;
	}
	if (snapshot->count == snapshot->room)
		r = busy_snapshot_reserve(snapshot, snapshot->room ? 2 * snapshot->room : BUSY_SNAPSHOT_FIRST_ROOM);
	if (r < 0) {
		snapshot->left_out++;
		return r;
	}
	snapshot->records[snapshot->count++] =
		(struct busy_record){ stat->pid, stat->start_ticks, stat->user_ticks + stat->system_ticks };
	return 0;
}

static int compare_pid(const void *a, const void *b)
{
	const struct busy_record *left = a, *right = b;

	return (left->pid > right->pid) - (left->pid < right->pid);
}

/* After very many processes have ended: an array four times too large is halved, in every scan. */
static void busy_snapshot_shrink(struct busy_snapshot *snapshot)
{
	size_t room = snapshot->room / 2;

	if (room < BUSY_SNAPSHOT_FIRST_ROOM || snapshot->count > room / 2)
		return;

	struct busy_record *records = realloc(snapshot->records, room * sizeof(*records));

	if (!records)
		return;

	snapshot->records = records;
	snapshot->room = room;
}

/* It is complete, and can be searched from now on. */
static void busy_snapshot_end(struct busy_snapshot *snapshot)
{
	busy_snapshot_shrink(snapshot);
	if (snapshot->count > 1)
		qsort(snapshot->records, snapshot->count, sizeof(snapshot->records[0]), compare_pid);
}

void busy_snapshot_release(struct busy_snapshot *snapshot)
{
	free(snapshot->records);
	*snapshot = (struct busy_snapshot){ 0 };
}

const struct busy_record *busy_snapshot_find(const struct busy_snapshot *snapshot, int32_t pid, uint64_t start_ticks)
{
	struct busy_record key = { .pid = pid };
	const struct busy_record *found;

	if (snapshot->count == 0)
		return NULL;
	found = bsearch(&key, snapshot->records, snapshot->count, sizeof(key), compare_pid);
	return found && found->start_ticks == start_ticks ? found : NULL;
}

/* Reuses the memory of *to. 0 or -ENOMEM (*to is then empty). */
static int busy_snapshot_copy(struct busy_snapshot *to, const struct busy_snapshot *from)
{
	int r;

	busy_snapshot_begin(to, from->taken);
	r = busy_snapshot_reserve(to, from->count);
	if (r < 0)
		return r;
	if (from->count > 0)
		memcpy(to->records, from->records, from->count * sizeof(from->records[0]));
	to->count = from->count;
	to->left_out = from->left_out;
	return 0;
}

/* ---- a scan ---- */

struct stat_scan {
	int procfd;
	int (*visit)(void *ctx, const struct procfs_stat *stat);
	void *ctx;
};

/* A process that has ended, is hidden or odd is passed over. */
static int visit_process(void *ctx, const char *name)
{
	const struct stat_scan *scan = ctx;
	char path[32], text[STAT_MAX];
	struct procfs_stat stat;
	size_t len = strlen(name);
	uint64_t pid;
	ssize_t n;

	if (len > 10 || text_parse_u64(name, name + len, &pid) != name + len)
		return 0;
	snprintf(path, sizeof(path), "%s/stat", name);
	n = pid_directory_read(scan->procfd, path, text, sizeof(text));
	if (n < 0 || procfs_stat_parse(text, (size_t)n, &stat) < 0)
		return n == -ENOMEM || n == -EMFILE || n == -ENFILE ? (int)n : 0;
	return scan->visit(scan->ctx, &stat);
}

int busy_snapshot_scan(int procfd, int (*visit)(void *ctx, const struct procfs_stat *stat), void *ctx)
{
	struct stat_scan scan = { procfd, visit, ctx };

	return directory_list_each(procfd, visit_process, &scan);
}

/* ---- snapshots of threads ---- */

#define FIRST_ROOM 2 /* threads; doubled as needed: most processes have one */
#define NAME_DIGITS 10

struct tasks_reader {
	int pid_directory;
	uint64_t ns_per_tick;
	size_t room;
	struct thread_snapshot *snapshot;
};

static int tasks_reader_grow(struct tasks_reader *reader)
{
	size_t room = reader->room ? 2 * reader->room : FIRST_ROOM;
	struct thread_snapshot *snapshot;

	if (reader->snapshot && reader->snapshot->count < reader->room)
		return 0;
	snapshot = realloc(reader->snapshot, sizeof(*snapshot) + room * sizeof(snapshot->records[0]));
	if (!snapshot)
		return -ENOMEM;
	if (!reader->snapshot)
		*snapshot = (struct thread_snapshot){ 0 };
	reader->snapshot = snapshot;
	reader->room = room;
	return 0;
}

/* schedstat (2.6.9, CONFIG_SCHED_INFO): ns on a CPU, ns waiting for one, time slices. */
static uint64_t read_cpu(const struct tasks_reader *reader, int32_t tid, uint64_t otherwise)
{
	char path[48], text[128];
	uint64_t cpu_ns;
	ssize_t len;

	snprintf(path, sizeof(path), "task/%d/schedstat", tid);
	len = pid_directory_read(reader->pid_directory, path, text, sizeof(text));
	if (len <= 0 || !text_parse_u64(text, text + len, &cpu_ns))
		return otherwise;
	/* A kernel with the file but without the accounting says 0 for ever. */
	return cpu_ns > 0 ? cpu_ns : otherwise;
}

/* 0; -ESRCH: the thread is gone; -EBADMSG; -errno. */
static int read_thread(const struct tasks_reader *reader, int32_t tid, struct thread_record *ret)
{
	char path[48], text[STAT_MAX];
	struct procfs_stat stat;
	ssize_t len;
	size_t name_len;

	snprintf(path, sizeof(path), "task/%d/stat", tid);
	len = pid_directory_read(reader->pid_directory, path, text, sizeof(text));
	if (len < 0)
		return (int)len;
	if (procfs_stat_parse(text, (size_t)len, &stat) < 0)
		return -EBADMSG;

	*ret = (struct thread_record){
		.tid = tid,
		.state = stat.state,
		.start_ticks = stat.start_ticks,
		.user_ns = stat.user_ticks * reader->ns_per_tick,
		.system_ns = stat.system_ticks * reader->ns_per_tick,
	};
	name_len = stat.comm_len < sizeof(ret->name) ? stat.comm_len : sizeof(ret->name) - 1;
	memcpy(ret->name, stat.comm, name_len);
	ret->cpu_ns = read_cpu(reader, tid, ret->user_ns + ret->system_ns);
	return 0;
}

static int visit_task(void *ctx, const char *name)
{
	struct tasks_reader *reader = ctx;
	struct thread_record record;
	size_t len = strlen(name);
	uint64_t tid;
	int r;

	if (len > NAME_DIGITS || text_parse_u64(name, name + len, &tid) != name + len || tid > INT32_MAX)
		return 0;
	if (reader->snapshot->count == THREAD_SNAPSHOT_MAX) {
		reader->snapshot->unlisted++;
		return 0;
	}
	r = read_thread(reader, (int32_t)tid, &record);
	if (r == -ESRCH || r == -EBADMSG)
		return 0; /* it ended meanwhile; the others did not */
	if (r < 0)
		return r;
	r = tasks_reader_grow(reader);
	if (r < 0)
		return r;
	reader->snapshot->records[reader->snapshot->count++] = record;
	return 0;
}

static int compare_tid(const void *a, const void *b)
{
	const struct thread_record *left = a, *right = b;

	return (left->tid > right->tid) - (left->tid < right->tid);
}

static int read_tasks(struct tasks_reader *reader)
{
	AUTO_CLOSE int tasks = openat(reader->pid_directory, "task", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;

	if (tasks < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	r = directory_list_each(tasks, visit_task, reader);
	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;
	return reader->snapshot->count == 0 ? -ESRCH : 0;
}

int thread_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, struct thread_snapshot **ret)
{
	AUTO_CLOSE int pid_directory = -1;
	struct tasks_reader reader = { .ns_per_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK) };
	int r;

	r = pid_directory_open(procfd, pid, start_ticks, &pid_directory);
	if (r < 0)
		return r;
	r = tasks_reader_grow(&reader);
	if (r < 0)
		return r;

	reader.pid_directory = pid_directory;
	r = read_tasks(&reader);
	if (r < 0) {
		free(reader.snapshot);
		return r;
	}
	reader.snapshot->taken = now;
	reader.snapshot->valid_until = now;
	qsort(reader.snapshot->records, reader.snapshot->count, sizeof(struct thread_record), compare_tid);
	*ret = reader.snapshot;
	return 0;
}

const struct thread_record *thread_snapshot_find(const struct thread_snapshot *snapshot,
						 const struct thread_record *thread)
{
	const struct thread_record *found =
		bsearch(thread, snapshot->records, snapshot->count, sizeof(*thread), compare_tid);

	return found && found->start_ticks == thread->start_ticks ? found : NULL;
}

/* ---- baselines ---- */

/* Takes over snapshot, frees the oldest. */
static void thread_baseline_add(struct thread_baseline *baseline, struct thread_snapshot *snapshot)
{
	free(baseline->older);
	baseline->older = baseline->newer;
	baseline->newer = snapshot;
}

/* The process has not run from the last snapshot until now: that is valid for now as well. */
static void thread_baseline_still(struct thread_baseline *baseline, mono_t now)
{
	if (baseline->newer && mono_diff(now, baseline->newer->valid_until) > 0)
		baseline->newer->valid_until = now;
}

static bool is_old_enough(const struct thread_snapshot *snapshot, mono_t latest)
{
	return snapshot && mono_diff(latest, snapshot->taken) >= 0;
}

const struct thread_snapshot *thread_baseline_pick(const struct thread_baseline *baseline, mono_t now,
						   uint64_t min_age_ns, mono_t *ret_at)
{
	mono_t latest = mono_sub(now, min_age_ns);
	const struct thread_snapshot *found = NULL;

	if (is_old_enough(baseline->newer, latest))
		found = baseline->newer;
	else
		found = baseline->older ? baseline->older : baseline->newer;
	if (!found)
		return NULL;

	/*
	 * It is valid for any moment in [taken, valid_until]: the one nearest to what was asked
	 * for.
	 */
	*ret_at = found->taken;
	if (is_old_enough(found, latest))
		*ret_at = mono_diff(found->valid_until, latest) > 0 ? latest : found->valid_until;
	return found;
}

void thread_baseline_release(struct thread_baseline *baseline)
{
	free(baseline->older);
	free(baseline->newer);
	*baseline = (struct thread_baseline){ 0 };
}

/* ---- baselines of watched processes ---- */

/* One thread costs 5 us: a scan spends at most 10 ms here. */
#define THREADS_PER_SCAN 2000u

/*
 * Mappings: few processes at a time and seldom, and at most a hundredth of a CPU for all of them:
 * what has been read took its hundredfold until the next is read.
 */
#define MAPS_PER_SCAN 2u
#define MAPS_INTERVAL_NS (60 * NS_PER_S)
#define MAPS_CPU_NS (100 * NS_PER_MS) /* of one process: 25 GiB in small pages */
#define MAPS_CPU_SHARE 100u

struct watched_process {
	struct map_node node;
	int32_t pid;
	uint64_t start_ticks;
	uint64_t scan; /* the last that met it */
	struct thread_baseline threads;
	struct maps_snapshot *maps;
	mono_t maps_tried;
};

struct baseline {
	int procfd;
	bool with_maps;
	struct unlocked_section section;
	struct busy_snapshot whole, growing;
	struct map processes;
	uint64_t scan;
	mono_t now;
	size_t threads_left, maps_left;
	mono_t maps_from;   /* not before */
	int32_t serve_from; /* pids below were served by the scan before */
	int32_t starved;    /* the first pid that this scan could not serve */
};

int baseline_new(int procfd, bool with_maps, const struct unlocked_section *section, struct baseline **ret)
{
	struct baseline *baseline = calloc(1, sizeof *baseline);

	if (!baseline)
		return -ENOMEM;

	baseline->procfd = procfd;
	baseline->with_maps = with_maps;
	if (section)
		baseline->section = *section;
	*ret = baseline;

	return 0;
}

static void watched_process_free(struct watched_process *process)
{
	thread_baseline_release(&process->threads);
	free(process->maps);
	free(process);
}

void baseline_free(struct baseline *baseline)
{
	if (!baseline)
		return;

	MAP_FOR_EACH(node, &baseline->processes)
		watched_process_free(MAP_ENTRY(node, struct watched_process, node));
	map_release(&baseline->processes);
	busy_snapshot_release(&baseline->whole);
	busy_snapshot_release(&baseline->growing);
	free(baseline);
}

void baseline_set_maps(struct baseline *baseline, bool with_maps)
{
	baseline->with_maps = with_maps;
	if (with_maps)
		return;

	MAP_FOR_EACH(node, &baseline->processes) {
		struct watched_process *process = MAP_ENTRY(node, struct watched_process, node);

		free(process->maps);
		process->maps = NULL;
		process->maps_tried = (mono_t){ 0 };
	}
}

/* ---- a scan ---- */

void baseline_scan_begin(struct baseline *baseline, mono_t now)
{
	baseline->scan++;
	baseline->now = now;
	baseline->threads_left = THREADS_PER_SCAN;
	baseline->maps_left = mono_diff(now, baseline->maps_from) >= 0 ? MAPS_PER_SCAN : 0;
	baseline->starved = 0;
	busy_snapshot_begin(&baseline->growing, now);
}

bool baseline_met(struct baseline *baseline, const struct procfs_stat *stat)
{
	const struct busy_record *before = busy_snapshot_find(&baseline->whole, stat->pid, stat->start_ticks);

	busy_snapshot_add(&baseline->growing, stat); /* without memory it is left out, and counted there */

	return !before || before->cpu_ticks != stat->user_ticks + stat->system_ticks;
}

static uint64_t hash_pid(int32_t pid)
{
	return map_hash(&pid, sizeof pid);
}

static struct watched_process *find_watched(const struct baseline *baseline, int32_t pid)
{
	for (struct map_node *node = map_first(&baseline->processes, hash_pid(pid)); node; node = map_next(node)) {
		struct watched_process *process = MAP_ENTRY(node, struct watched_process, node);

		if (process->pid == pid)
			return process;
	}

	return NULL;
}

/* New if needed; one with a reused pid starts empty. NULL: no room. */
static struct watched_process *find_or_add_watched(struct baseline *baseline, const struct procfs_stat *stat)
{
	struct watched_process *process = find_watched(baseline, stat->pid);

	if (process && process->start_ticks != stat->start_ticks) {
		thread_baseline_release(&process->threads);
		free(process->maps);
		process->maps = NULL;
		process->maps_tried = (mono_t){ 0 };
		process->start_ticks = stat->start_ticks;
	}
	if (process || baseline->processes.count == BASELINE_PROCESSES_MAX ||
	    map_reserve(&baseline->processes, baseline->processes.count + 1) < 0)
		return process;

	process = calloc(1, sizeof *process);
	if (!process)
		return NULL;

	process->pid = stat->pid;
	process->start_ticks = stat->start_ticks;
	map_insert(&baseline->processes, &process->node, hash_pid(process->pid));

	return process;
}

static void take_threads(struct baseline *baseline, struct watched_process *process, const struct procfs_stat *stat)
{
	struct thread_snapshot *snapshot;

	if (stat->pid < baseline->serve_from)
		return;
	if (baseline->threads_left < stat->threads && baseline->threads_left < THREADS_PER_SCAN) {
		if (!baseline->starved)
			baseline->starved = stat->pid;
		return;
	}

	unlocked_section_leave(&baseline->section, stat->pid);

	int r = thread_snapshot_take(baseline->procfd, stat->pid, stat->start_ticks, baseline->now, &snapshot);

	unlocked_section_enter(&baseline->section);
	if (r < 0)
		return; /* gone, or not permitted: captures will say so */

	thread_baseline_add(&process->threads, snapshot);
	baseline->threads_left -= stat->threads < baseline->threads_left ? stat->threads : baseline->threads_left;
}

static void take_maps(struct baseline *baseline, struct watched_process *process)
{
	struct maps_snapshot *maps;

	if (!baseline->with_maps || baseline->maps_left == 0)
		return;
	if (process->maps_tried.ns && mono_diff(baseline->now, process->maps_tried) < (int64_t)MAPS_INTERVAL_NS)
		return;

	baseline->maps_left--;
	process->maps_tried = baseline->now;
	unlocked_section_leave(&baseline->section, process->pid);

	uint64_t cpu_ns = real_clock_thread_cpu();
	int r = maps_snapshot_take(baseline->procfd, process->pid, process->start_ticks, baseline->now, MAPS_CPU_NS,
				   &maps);

	cpu_ns = real_clock_thread_cpu() - cpu_ns;
	unlocked_section_enter(&baseline->section);
	if (cpu_ns * MAPS_CPU_SHARE > NS_PER_S) {
		baseline->maps_left = 0;
		baseline->maps_from = mono_add(baseline->now, cpu_ns * MAPS_CPU_SHARE);
	}
	if (r < 0)
		return;

	free(process->maps);
	process->maps = maps;
	if (!baseline->with_maps) { /* any more */
		free(process->maps);
		process->maps = NULL;
	}
}

static void update_watched(struct baseline *baseline, const struct procfs_stat *stat, bool ran)
{
	struct watched_process *process = find_or_add_watched(baseline, stat);

	if (!process || process->scan == baseline->scan)
		return; /* no room, or watched by two entries */

	process->scan = baseline->scan;
	if (ran || !process->threads.newer)
		take_threads(baseline, process, stat);
	else
		thread_baseline_still(&process->threads, baseline->now);
	if (ran || !process->maps)
		take_maps(baseline, process);
}

void baseline_update(struct baseline *baseline, const struct procfs_stat *stat, bool watched, bool ran)
{
	struct watched_process *process;

	if (watched) {
		update_watched(baseline, stat, ran);
		return;
	}

	process = find_watched(baseline, stat->pid);
	if (!process || process->start_ticks != stat->start_ticks)
		return;

	process->scan = baseline->scan;
	thread_baseline_still(&process->threads, baseline->now);
}

static bool maps_are_due(const struct baseline *baseline, const struct watched_process *process)
{
	return !process->maps_tried.ns || mono_diff(baseline->now, process->maps_tried) >= (int64_t)MAPS_INTERVAL_NS;
}

bool baseline_owes(const struct baseline *baseline, int32_t pid)
{
	const struct watched_process *process = find_watched(baseline, pid);

	return process && (!process->threads.newer || (baseline->with_maps && baseline->maps_left > 0 &&
						       !process->maps && maps_are_due(baseline, process)));
}

void baseline_scan_end(struct baseline *baseline)
{
	struct busy_snapshot finished;

	busy_snapshot_end(&baseline->growing);
	finished = baseline->growing;
	baseline->growing = baseline->whole;
	baseline->whole = finished;
	baseline->serve_from = baseline->starved;

	MAP_FOR_EACH(node, &baseline->processes) {
		struct watched_process *process = MAP_ENTRY(node, struct watched_process, node);

		if (process->scan == baseline->scan)
			continue;
		map_remove(&baseline->processes, node);
		watched_process_free(process);
	}
}

/* ---- copies ---- */

static struct thread_snapshot *copy_threads(const struct thread_snapshot *snapshot)
{
	size_t size = snapshot ? sizeof *snapshot + snapshot->count * sizeof snapshot->records[0] : 0;
	struct thread_snapshot *copy = snapshot ? malloc(size) : NULL;

	if (copy)
		memcpy(copy, snapshot, size);

	return copy;
}

void baseline_copy(const struct baseline *baseline, int32_t pid, struct thread_baseline *ret_threads,
		   struct maps_snapshot **ret_maps)
{
	const struct watched_process *process = find_watched(baseline, pid);

	*ret_threads = (struct thread_baseline){ 0 };
	*ret_maps = NULL;
	if (!process)
		return;

	ret_threads->older = copy_threads(process->threads.older);
	ret_threads->newer = copy_threads(process->threads.newer);
	*ret_maps = maps_snapshot_copy(process->maps);
}

int baseline_copy_busy(const struct baseline *baseline, struct busy_snapshot *ret)
{
	return busy_snapshot_copy(ret, &baseline->whole);
}
