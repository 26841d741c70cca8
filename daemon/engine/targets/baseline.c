/*
 * baseline.c: two busy snapshots, the last whole one and the one being built, and a hash table of
 * watched processes.
 *
 * The kernel lists processes by pid. When a scan runs out of budget, the next one begins serving at
 * the pid where it did, so that every process gets its turn.
 */
#include "daemon/engine/targets/baseline.h"

#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/text.h"
#include "lib/proc/procfs.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Processes beyond are left out: 24 bytes each. */
#define BUSY_SNAPSHOT_MAX 16384

/* Threads beyond are counted, not listed: 64 bytes each. */
#define THREAD_SNAPSHOT_MAX 1024

/* Processes that have one; beyond them captures have nothing to compare with. */
#define BASELINE_PROCESSES_MAX 4096u

/*
 * busy_snapshot.c: three numbers per process in one growing array. The kernel lists /proc by
 * ascending pid, so sorting an array that is in order already is the rule.
 */

#define BUSY_SNAPSHOT_FIRST_ROOM 256
#define STAT_MAX 1024

void busy_snapshot_begin(struct busy_snapshot *snapshot, mono_t now)
{
	snapshot->taken = now;
	snapshot->count = 0;
	snapshot->left_out = 0;
}

static int reserve(struct busy_snapshot *snapshot, size_t room)
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

int busy_snapshot_add(struct busy_snapshot *snapshot, const struct procfs_stat *stat)
{
	int r = 0;

	if (snapshot->count == BUSY_SNAPSHOT_MAX) {
		snapshot->left_out++;
		return 0;
	}
	if (snapshot->count == snapshot->room)
		r = reserve(snapshot, snapshot->room ? 2 * snapshot->room : BUSY_SNAPSHOT_FIRST_ROOM);
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

/*
 * A crowd that has gone leaves no room behind: what is four times too large is made half as large,
 * in every scan.
 */
static void shrink(struct busy_snapshot *snapshot)
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

void busy_snapshot_end(struct busy_snapshot *snapshot)
{
	shrink(snapshot);
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

/* Copies one into another, whose memory is used again. 0 or -ENOMEM (*to is then empty). */
static int busy_snapshot_copy(struct busy_snapshot *to, const struct busy_snapshot *from)
{
	int r;

	busy_snapshot_begin(to, from->taken);
	r = reserve(to, from->count);
	if (r < 0)
		return r;
	if (from->count > 0)
		memcpy(to->records, from->records, from->count * sizeof(from->records[0]));
	to->count = from->count;
	to->left_out = from->left_out;
	return 0;
}

/* ---- a scan ---- */

struct scan {
	int procfd;
	int (*visit)(void *ctx, const struct procfs_stat *stat);
	void *ctx;
};

/* Processes that are gone, hidden or odd are passed over. */
static int visit_process(void *ctx, const char *name)
{
	const struct scan *scan = ctx;
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
	struct scan scan = { procfd, visit, ctx };

	return directory_list_each(procfd, visit_process, &scan);
}

/*
 * maps_snapshot.c: /proc/<pid>/smaps, read in pieces and summed line by line.
 *
 * smaps of a large process has megabytes, so it is never kept: one piece of text, one line at a
 * time, and one record per name. A record is looked for from the last one that was found: mappings
 * of one file lie side by side.
 */

#define PIECE_BYTES 65536
#define OTHER "[other]"
#define ANONYMOUS "[anon]"
#define MAPPINGS_MAX 262144 /* four times the kernel's default limit, vm.max_map_count */

struct maps_snapshot_building {
	struct maps_snapshot *snapshot; /* with room for MAPS_SNAPSHOT_MAX records */
	size_t current;                 /* record of the mapping whose lines are being read */
	uint32_t mappings;
};

const struct maps_record *maps_snapshot_find(const struct maps_snapshot *snapshot, const struct maps_record *like)
{
	for (size_t i = 0; i < snapshot->count; i++)
		if (strcmp(snapshot->records[i].name, like->name) == 0 &&
		    strcmp(snapshot->records[i].permissions, like->permissions) == 0)
			return &snapshot->records[i];
	return NULL;
}

/* The end of a long path says more than its beginning. */
static void set_name(struct maps_record *record, const char *name, size_t len)
{
	size_t cap = sizeof(record->name) - 1;

	if (len > cap) {
		name += len - cap;
		len = cap;
	}
	memcpy(record->name, name, len);
	record->name[len] = '\0';
}

/* The record of this name, new if need be; the last one takes all for which there is no room. */
static size_t maps_snapshot_find_or_add(struct maps_snapshot *snapshot, size_t current, const struct maps_record *like)
{
	const struct maps_record *found = NULL;

	if (current < snapshot->count && strcmp(snapshot->records[current].name, like->name) == 0 &&
	    strcmp(snapshot->records[current].permissions, like->permissions) == 0)
		return current;
	found = maps_snapshot_find(snapshot, like);
	if (found)
		return (size_t)(found - snapshot->records);
	if (snapshot->count == MAPS_SNAPSHOT_MAX)
		return MAPS_SNAPSHOT_MAX - 1;
	snapshot->records[snapshot->count] = *like;
	if (snapshot->count == MAPS_SNAPSHOT_MAX - 1) {
		set_name(&snapshot->records[snapshot->count], OTHER, sizeof(OTHER) - 1);
		snapshot->records[snapshot->count].permissions[0] = '\0';
	}
	return snapshot->count++;
}

/* Skips a field and the blanks behind it. */
static const char *skip_field(const char *at, const char *end)
{
	while (at < end && *at != ' ')
		at++;
	while (at < end && *at == ' ')
		at++;
	return at;
}

/*
 * "7f10c8a00000-7f10c8a22000 r--p 00000000 08:01 1835 <blanks> /usr/lib/libc.so.6"; the name is
 * missing for anonymous memory.
 */
static void take_header(struct maps_snapshot_building *maps_snapshot_building, const char *line, size_t len)
{
	const char *end = line + len, *at = line, *permissions;
	struct maps_record like = { 0 };

	while (at < end && isxdigit((unsigned char)*at))
		at++;
	if (at == line || at == end || *at != '-')
		return;
	permissions = skip_field(at, end);
	if (end - permissions < 4)
		return;
	memcpy(like.permissions, permissions, 4);
	at = permissions;
	for (int field = 0; field < 4; field++)
		at = skip_field(at, end);
	if (at < end)
		set_name(&like, at, (size_t)(end - at));
	else
		set_name(&like, ANONYMOUS, sizeof(ANONYMOUS) - 1);

	maps_snapshot_building->current =
		maps_snapshot_find_or_add(maps_snapshot_building->snapshot, maps_snapshot_building->current, &like);
	maps_snapshot_building->snapshot->records[maps_snapshot_building->current].mappings++;
	maps_snapshot_building->mappings++;
}

/* "Rss:                 132 kB", with its newline. */
static void take_amount(struct maps_snapshot_building *maps_snapshot_building, const char *line, size_t len)
{
	struct maps_record *record = &maps_snapshot_building->snapshot->records[maps_snapshot_building->current];
	uint64_t bytes;

	if (maps_snapshot_building->mappings == 0)
		return;
	if (procfs_kb_parse(line, len, "Rss", &bytes) == 0)
		record->rss_bytes += bytes;
	else if (procfs_kb_parse(line, len, "Pss", &bytes) == 0)
		record->pss_bytes += bytes;
	else if (procfs_kb_parse(line, len, "Private_Dirty", &bytes) == 0)
		record->private_dirty_bytes += bytes;
	else if (procfs_kb_parse(line, len, "Swap", &bytes) == 0)
		record->swap_bytes += bytes;
}

/* Takes the whole lines of text; returns how many bytes they are. */
static size_t take_lines(struct maps_snapshot_building *maps_snapshot_building, const char *text, size_t len)
{
	size_t used = 0;

	for (;;) {
		const char *line = text + used, *newline = memchr(line, '\n', len - used);
		size_t line_len;

		if (!newline)
			return used;
		line_len = (size_t)(newline - line);
		/*
		 * Names of amounts begin with a capital, addresses with a digit or a small letter.
		 */
		if (line_len > 0 && isupper((unsigned char)*line))
			take_amount(maps_snapshot_building, line, line_len + 1);
		else
			take_header(maps_snapshot_building, line, line_len);
		used += line_len + 1;
	}
}

static int read_smaps(int fd, struct maps_snapshot_building *maps_snapshot_building)
{
	AUTO_FREE char *text = malloc(PIECE_BYTES);
	size_t kept = 0;

	if (!text)
		return -ENOMEM;
	while (maps_snapshot_building->mappings < MAPPINGS_MAX) {
		ssize_t n = read(fd, text + kept, PIECE_BYTES - kept);
		size_t used;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		kept += (size_t)n;
		used = take_lines(maps_snapshot_building, text, kept);
		if (used == 0 && kept == PIECE_BYTES)
			used = kept; /* no line of smaps is so long */
		memmove(text, text + used, kept - used);
		kept -= used;
	}
	return 0;
}

int maps_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, struct maps_snapshot **ret)
{
	AUTO_CLOSE int pid_directory = -1;
	AUTO_CLOSE int fd = -1;
	AUTO_FREE struct maps_snapshot *snapshot = NULL;
	struct maps_snapshot_building maps_snapshot_building = { 0 };
	struct maps_snapshot *fitting;
	int r;

	r = pid_directory_open(procfd, pid, start_ticks, &pid_directory);
	if (r < 0)
		return r;
	fd = pid_directory_file(pid_directory, "smaps");
	if (fd < 0)
		return fd;
	snapshot = malloc(sizeof(*snapshot) + MAPS_SNAPSHOT_MAX * sizeof(snapshot->records[0]));
	if (!snapshot)
		return -ENOMEM;

	*snapshot = (struct maps_snapshot){ .taken = now };
	maps_snapshot_building.snapshot = snapshot;
	r = read_smaps(fd, &maps_snapshot_building);
	if (r < 0)
		return r;
	fitting = realloc(snapshot, sizeof(*snapshot) + snapshot->count * sizeof(snapshot->records[0]));
	if (fitting)
		snapshot = fitting;
	*ret = TAKE(snapshot);
	return 0;
}

/*
 * thread_snapshot.c: /proc/<pid>/task/<tid>/stat and schedstat of every thread.
 *
 * stat counts in ticks of 10 ms, so over a second it tells one percent from two and nothing below;
 * schedstat has nanoseconds but no split into user and system. Both are read; where schedstat is
 * missing (a kernel without it), stat's sum stands in.
 *
 * A baseline keeps two snapshots, because the younger may be some milliseconds old when a rule
 * fires, and the work of milliseconds says little.
 */

#define FIRST_ROOM \
	2 /* threads; doubled as needed: most processes have one, and each that is watched keeps a snapshot */
#define NAME_DIGITS 10

struct building {
	int pid_directory;
	uint64_t ns_per_tick;
	size_t room;
	struct thread_snapshot *snapshot;
};

static int grow(struct building *building)
{
	size_t room = building->room ? 2 * building->room : FIRST_ROOM;
	struct thread_snapshot *snapshot;

	if (building->snapshot && building->snapshot->count < building->room)
		return 0;
	snapshot = realloc(building->snapshot, sizeof(*snapshot) + room * sizeof(snapshot->records[0]));
	if (!snapshot)
		return -ENOMEM;
	if (!building->snapshot)
		*snapshot = (struct thread_snapshot){ 0 };
	building->snapshot = snapshot;
	building->room = room;
	return 0;
}

/*
 * schedstat: "284934343 5734343 1204": ns on a CPU, ns waiting for one, time slices (since 2.6.9,
 * CONFIG_SCHED_INFO).
 */
static uint64_t read_cpu(const struct building *building, int32_t tid, uint64_t otherwise)
{
	char path[48], text[128];
	uint64_t cpu_ns;
	ssize_t len;

	snprintf(path, sizeof(path), "task/%d/schedstat", tid);
	len = pid_directory_read(building->pid_directory, path, text, sizeof(text));
	if (len <= 0 || !text_parse_u64(text, text + len, &cpu_ns))
		return otherwise;
	/* A kernel with the file but without the accounting says 0 for ever. */
	return cpu_ns > 0 ? cpu_ns : otherwise;
}

/* 0; -ESRCH: the thread is gone; -EBADMSG; -errno. */
static int read_thread(const struct building *building, int32_t tid, struct thread_record *ret)
{
	char path[48], text[STAT_MAX];
	struct procfs_stat stat;
	ssize_t len;
	size_t name_len;

	snprintf(path, sizeof(path), "task/%d/stat", tid);
	len = pid_directory_read(building->pid_directory, path, text, sizeof(text));
	if (len < 0)
		return (int)len;
	if (procfs_stat_parse(text, (size_t)len, &stat) < 0)
		return -EBADMSG;

	*ret = (struct thread_record){
		.tid = tid,
		.state = stat.state,
		.start_ticks = stat.start_ticks,
		.user_ns = stat.user_ticks * building->ns_per_tick,
		.system_ns = stat.system_ticks * building->ns_per_tick,
	};
	name_len = stat.comm_len < sizeof(ret->name) ? stat.comm_len : sizeof(ret->name) - 1;
	memcpy(ret->name, stat.comm, name_len);
	ret->cpu_ns = read_cpu(building, tid, ret->user_ns + ret->system_ns);
	return 0;
}

static int visit_task(void *ctx, const char *name)
{
	struct building *building = ctx;
	struct thread_record record;
	size_t len = strlen(name);
	uint64_t tid;
	int r;

	if (len > NAME_DIGITS || text_parse_u64(name, name + len, &tid) != name + len || tid > INT32_MAX)
		return 0;
	if (building->snapshot->count == THREAD_SNAPSHOT_MAX) {
		building->snapshot->unlisted++;
		return 0;
	}
	r = read_thread(building, (int32_t)tid, &record);
	if (r == -ESRCH || r == -EBADMSG)
		return 0; /* it ended meanwhile; the others did not */
	if (r < 0)
		return r;
	r = grow(building);
	if (r < 0)
		return r;
	building->snapshot->records[building->snapshot->count++] = record;
	return 0;
}

static int compare_tid(const void *a, const void *b)
{
	const struct thread_record *left = a, *right = b;

	return (left->tid > right->tid) - (left->tid < right->tid);
}

static int read_tasks(struct building *building)
{
	AUTO_CLOSE int tasks = openat(building->pid_directory, "task", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;

	if (tasks < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	r = directory_list_each(tasks, visit_task, building);
	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;
	return building->snapshot->count == 0 ? -ESRCH : 0;
}

int thread_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, struct thread_snapshot **ret)
{
	AUTO_CLOSE int pid_directory = -1;
	struct building building = { .ns_per_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK) };
	int r;

	r = pid_directory_open(procfd, pid, start_ticks, &pid_directory);
	if (r < 0)
		return r;
	r = grow(&building);
	if (r < 0)
		return r;

	building.pid_directory = pid_directory;
	r = read_tasks(&building);
	if (r < 0) {
		free(building.snapshot);
		return r;
	}
	building.snapshot->taken = now;
	building.snapshot->valid_until = now;
	qsort(building.snapshot->records, building.snapshot->count, sizeof(struct thread_record), compare_tid);
	*ret = building.snapshot;
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

void thread_baseline_add(struct thread_baseline *baseline, struct thread_snapshot *snapshot)
{
	free(baseline->older);
	baseline->older = baseline->newer;
	baseline->newer = snapshot;
}

void thread_baseline_still(struct thread_baseline *baseline, mono_t now)
{
	if (baseline->newer && mono_diff(now, baseline->newer->valid_until) > 0)
		baseline->newer->valid_until = now;
}

static bool old_enough(const struct thread_snapshot *snapshot, mono_t latest)
{
	return snapshot && mono_diff(latest, snapshot->taken) >= 0;
}

const struct thread_snapshot *thread_baseline_pick(const struct thread_baseline *baseline, mono_t now,
						   uint64_t min_age_ns, mono_t *ret_at)
{
	mono_t latest = mono_sub(now, min_age_ns);
	const struct thread_snapshot *found = NULL;

	if (old_enough(baseline->newer, latest))
		found = baseline->newer;
	else
		found = baseline->older ? baseline->older : baseline->newer;
	if (!found)
		return NULL;

	/*
	 * It stands for any moment in [taken, valid_until]: the one nearest to what was asked for.
	 */
	*ret_at = found->taken;
	if (old_enough(found, latest))
		*ret_at = mono_diff(found->valid_until, latest) > 0 ? latest : found->valid_until;
	return found;
}

void thread_baseline_release(struct thread_baseline *baseline)
{
	free(baseline->older);
	free(baseline->newer);
	*baseline = (struct thread_baseline){ 0 };
}

#define BUCKETS 1024u

/* One thread costs 5 us: a scan spends at most 10 ms here. */
#define THREADS_PER_SCAN 2000u

/* smaps holds up the watched process while it is read: few at a time, and seldom. */
#define MAPS_PER_SCAN 2u
#define MAPS_INTERVAL_NS (60 * NS_PER_S)

struct known {
	struct known *next;
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
	struct unlocked_section unlocked_section;
	struct busy_snapshot whole, growing;
	struct known *buckets[BUCKETS];
	size_t count;
	uint64_t scan;
	mono_t now;
	size_t threads_left, maps_left;
	int32_t serve_from; /* pids below were served by the scan before */
	int32_t starved;    /* the first pid that this scan could not serve */
};

int baseline_new(int procfd, bool with_maps, struct baseline **ret)
{
	struct baseline *baseline = calloc(1, sizeof *baseline);

	if (!baseline)
		return -ENOMEM;

	baseline->procfd = procfd;
	baseline->with_maps = with_maps;
	*ret = baseline;

	return 0;
}

static void free_known(struct known *known)
{
	thread_baseline_release(&known->threads);
	free(known->maps);
	free(known);
}

void baseline_free(struct baseline *baseline)
{
	if (!baseline)
		return;

	for (unsigned i = 0; i < BUCKETS; i++) {
		while (baseline->buckets[i]) {
			struct known *known = baseline->buckets[i];

			baseline->buckets[i] = known->next;
			free_known(known);
		}
	}
	busy_snapshot_release(&baseline->whole);
	busy_snapshot_release(&baseline->growing);
	free(baseline);
}

void baseline_set_section(struct baseline *baseline, struct unlocked_section unlocked_section)
{
	baseline->unlocked_section = unlocked_section;
}

void baseline_set_maps(struct baseline *baseline, bool with_maps)
{
	baseline->with_maps = with_maps;
	for (unsigned i = 0; !with_maps && i < BUCKETS; i++) {
		for (struct known *known = baseline->buckets[i]; known; known = known->next) {
			free(known->maps);
			known->maps = NULL;
			known->maps_tried = (mono_t){ 0 };
		}
	}
}

/* ---- a scan ---- */

void baseline_scan_begin(struct baseline *baseline, mono_t now)
{
	baseline->scan++;
	baseline->now = now;
	baseline->threads_left = THREADS_PER_SCAN;
	baseline->maps_left = MAPS_PER_SCAN;
	baseline->starved = 0;
	busy_snapshot_begin(&baseline->growing, now);
}

bool baseline_met(struct baseline *baseline, const struct procfs_stat *stat)
{
	const struct busy_record *before = busy_snapshot_find(&baseline->whole, stat->pid, stat->start_ticks);

	busy_snapshot_add(&baseline->growing, stat); /* without memory it is left out, and counted there */

	return !before || before->cpu_ticks != stat->user_ticks + stat->system_ticks;
}

static struct known *find(const struct baseline *baseline, int32_t pid)
{
	struct known *known = baseline->buckets[(uint32_t)pid % BUCKETS];

	while (known && known->pid != pid)
		known = known->next;

	return known;
}

/* The entry of a process, new if need be; a reused pid starts afresh. NULL: no room. */
static struct known *find_or_add(struct baseline *baseline, const struct procfs_stat *stat)
{
	struct known *known = find(baseline, stat->pid);

	if (known && known->start_ticks != stat->start_ticks) {
		thread_baseline_release(&known->threads);
		free(known->maps);
		known->maps = NULL;
		known->maps_tried = (mono_t){ 0 };
		known->start_ticks = stat->start_ticks;
	}
	if (known || baseline->count == BASELINE_PROCESSES_MAX)
		return known;

	known = calloc(1, sizeof *known);
	if (!known)
		return NULL;

	known->pid = stat->pid;
	known->start_ticks = stat->start_ticks;
	known->next = baseline->buckets[(uint32_t)stat->pid % BUCKETS];
	baseline->buckets[(uint32_t)stat->pid % BUCKETS] = known;
	baseline->count++;

	return known;
}

static void take_threads(struct baseline *baseline, struct known *known, const struct procfs_stat *stat)
{
	struct thread_snapshot *snapshot;

	if (stat->pid < baseline->serve_from)
		return;
	if (baseline->threads_left < stat->threads && baseline->threads_left < THREADS_PER_SCAN) {
		if (!baseline->starved)
			baseline->starved = stat->pid;
		return;
	}

	unlocked_section_leave(&baseline->unlocked_section, stat->pid);

	int r = thread_snapshot_take(baseline->procfd, stat->pid, stat->start_ticks, baseline->now, &snapshot);

	unlocked_section_enter(&baseline->unlocked_section);
	if (r < 0)
		return; /* gone, or not ours to look at: captures will say so */

	thread_baseline_add(&known->threads, snapshot);
	baseline->threads_left -= stat->threads < baseline->threads_left ? stat->threads : baseline->threads_left;
}

static void take_maps(struct baseline *baseline, struct known *known)
{
	struct maps_snapshot *maps;

	if (!baseline->with_maps || baseline->maps_left == 0)
		return;
	if (known->maps_tried.ns && mono_diff(baseline->now, known->maps_tried) < (int64_t)MAPS_INTERVAL_NS)
		return;

	baseline->maps_left--;
	known->maps_tried = baseline->now;
	unlocked_section_leave(&baseline->unlocked_section, known->pid);

	int r = maps_snapshot_take(baseline->procfd, known->pid, known->start_ticks, baseline->now, &maps);

	unlocked_section_enter(&baseline->unlocked_section);
	if (r < 0)
		return;

	free(known->maps);
	known->maps = maps;
	if (!baseline->with_maps) { /* any more */
		free(known->maps);
		known->maps = NULL;
	}
}

void baseline_watched(struct baseline *baseline, const struct procfs_stat *stat, bool ran)
{
	struct known *known = find_or_add(baseline, stat);

	if (!known || known->scan == baseline->scan)
		return; /* no room, or watched by two entries */

	known->scan = baseline->scan;
	if (ran || !known->threads.newer)
		take_threads(baseline, known, stat);
	else
		thread_baseline_still(&known->threads, baseline->now);
	if (ran || !known->maps)
		take_maps(baseline, known);
}

void baseline_unchanged(struct baseline *baseline, const struct procfs_stat *stat)
{
	struct known *known = find(baseline, stat->pid);

	if (!known || known->start_ticks != stat->start_ticks)
		return;

	known->scan = baseline->scan;
	thread_baseline_still(&known->threads, baseline->now);
}

static bool maps_are_due(const struct baseline *baseline, const struct known *known)
{
	return !known->maps_tried.ns || mono_diff(baseline->now, known->maps_tried) >= (int64_t)MAPS_INTERVAL_NS;
}

bool baseline_owes(const struct baseline *baseline, int32_t pid)
{
	const struct known *known = find(baseline, pid);

	return known && (!known->threads.newer || (baseline->with_maps && baseline->maps_left > 0 && !known->maps &&
						   maps_are_due(baseline, known)));
}

void baseline_scan_end(struct baseline *baseline)
{
	struct busy_snapshot finished;

	busy_snapshot_end(&baseline->growing);
	finished = baseline->growing;
	baseline->growing = baseline->whole;
	baseline->whole = finished;
	baseline->serve_from = baseline->starved;

	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct known **at = &baseline->buckets[i]; *at;) {
			struct known *known = *at;

			if (known->scan == baseline->scan) {
				at = &known->next;
				continue;
			}
			*at = known->next;
			baseline->count--;
			free_known(known);
		}
	}
}

/* ---- copies ---- */

static void *copy_bytes(const void *data, size_t size)
{
	void *copy = data ? malloc(size) : NULL;

	if (copy)
		memcpy(copy, data, size);

	return copy;
}

static struct thread_snapshot *copy_threads(const struct thread_snapshot *snapshot)
{
	return copy_bytes(snapshot, snapshot ? sizeof *snapshot + snapshot->count * sizeof snapshot->records[0] : 0);
}

void baseline_copy(const struct baseline *baseline, int32_t pid, struct thread_baseline *ret_threads,
		   struct maps_snapshot **ret_maps)
{
	const struct known *known = find(baseline, pid);

	*ret_threads = (struct thread_baseline){ 0 };
	*ret_maps = NULL;
	if (!known)
		return;

	ret_threads->older = copy_threads(known->threads.older);
	ret_threads->newer = copy_threads(known->threads.newer);
	*ret_maps =
		copy_bytes(known->maps,
			   known->maps ? sizeof *known->maps + known->maps->count * sizeof known->maps->records[0] : 0);
}

int baseline_copy_busy(const struct baseline *baseline, struct busy_snapshot *ret)
{
	return busy_snapshot_copy(ret, &baseline->whole);
}
