/*
 * baseline.c: snapshots of all processes, and of the threads and the mappings of one; and the
 * baselines: two busy snapshots, the last whole one and the one being built, and a map of watched
 * processes.
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
#include "daemon/engine/base/foreign.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/proc/procfs.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

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

#define FIRST_ROOM 1 /* threads; doubled as needed: most processes have one */
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
static void read_schedstat(const struct tasks_reader *reader, struct thread_record *record)
{
	char path[48], text[128];
	uint64_t cpu_ns, wait_ns;
	const char *end;
	ssize_t len;

	record->cpu_ns = record->user_ns + record->system_ns;
	record->wait_ns = UINT64_MAX;
	snprintf(path, sizeof(path), "task/%d/schedstat", record->tid);
	len = pid_directory_read(reader->pid_directory, path, text, sizeof(text));
	end = len > 0 ? text_parse_u64(text, text + len, &cpu_ns) : NULL;
	/* A kernel with the file but without the accounting says 0 for ever. */
	if (!end || cpu_ns == 0)
		return;
	record->cpu_ns = cpu_ns;
	if (end < text + len && *end == ' ' && text_parse_u64(end + 1, text + len, &wait_ns))
		record->wait_ns = wait_ns;
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
	read_schedstat(reader, ret);
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

/* The directory of threads has a link more than an empty one for each: listing it costs many times what that does. */
#define LINKS_OF_ONE_THREAD 3

static int read_only_task(struct tasks_reader *reader, int32_t pid)
{
	char name[16];

	snprintf(name, sizeof(name), "%d", pid);
	return visit_task(reader, name);
}

static int read_tasks(struct tasks_reader *reader, int32_t pid)
{
	AUTO_CLOSE int tasks = openat(reader->pid_directory, "task", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat status;
	int r = 0;

	if (tasks < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	if (fstat(tasks, &status) == 0 && status.st_nlink == LINKS_OF_ONE_THREAD)
		r = read_only_task(reader, pid);
	if (r == 0 && reader->snapshot->count == 0)
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
	r = read_tasks(&reader, pid);
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

/* ---- mappings: smaps of a small process; maps and page tables of a large one ----
 *
 * smaps of a large process has megabytes, so it is never kept: it is read in pieces, line by line,
 * into one record per name. A record is searched for from the last one that was found: mappings of
 * one file are adjacent. /proc/<pid>/maps has the same lines without the amounts, which are then
 * counted by page.
 *
 * One read of smaps holds the mmap lock for the whole of a mapping (46 ns a page: 60 ms for 5 GiB),
 * and the file cannot be read in smaller parts. Page tables can be read by address, so the lock is
 * held for PIECE_PAGES at most. Short parts alone are not enough: a thread that waits for a
 * read-write semaphore to write is not awake yet when the next part takes it to read, and is passed
 * over for four milliseconds and more (measured: 14 ms whatever the size of a piece, 0.3 ms with
 * a pause between pieces).
 *
 *   smaps        Rss, Pss, dirty, swap     a process of SMALL_BYTES at most
 *   PAGEMAP_SCAN present, swapped          Linux 6.7; holes cost nothing
 *   pagemap      present, swapped          8 bytes of each page, of holes too
 *
 * A page that is present is counted as resident. Beside what the kernel counts these are pages of
 * hugetlbfs and of devices and, where pagemap is read, the zero page.
 */

/* By smaps: 0.4 ms of page tables in use, and 0.3 ms of empty ones. */
#define SMALL_BYTES (32ULL << 20)
#define SMALL_PAGE_TABLE_BYTES (1ULL << 20)

/* A pause after so much time in the kernel. */
#define HOLD_NS (200 * NS_PER_US)
#define PAUSE_NS (100 * NS_PER_US)

/* 64 MiB in pages of 4 KiB: 0.25 ms. */
#define PIECE_PAGES 16384u
/* An address range where nothing was found is followed by one twice as long. */
#define PIECE_PAGES_MAX (1ULL << 28)
#define REGIONS_MAX 512u

/* pagemap: 0.2 ms. Of a longer mapping, reserved and hardly used, the holes alone would take 80 ms. */
#define ENTRIES_MAX 4096u
#define PAGEMAP_MAPPING_MAX (64ULL << 30)

#define TEXT_BYTES 65536
#define OTHER "[other]"
#define ANONYMOUS "[anon]"

/* linux/fs.h since Linux 6.7; headers of Debian 12 do not have it. */
struct page_scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

struct page_region {
	uint64_t start, end, categories;
};

#define PAGE_SCAN _IOWR('f', 16, struct page_scan)
#define PAGE_PRESENT (1u << 3)
#define PAGE_SWAPPED (1u << 4)
#define PAGE_ZERO (1u << 5)

/* An entry of pagemap. */
#define ENTRY_PRESENT (1ULL << 63)
#define ENTRY_SWAPPED (1ULL << 62)

struct reader {
	struct maps_snapshot *snapshot; /* with room for MAPS_SNAPSHOT_MAX records */
	size_t current;                 /* record of the mapping whose lines are being read */
	uint32_t mappings;
	uint64_t cpu_end_ns;
	uint64_t paused_ns; /* when the last pause ended */
	int pagemap;        /* -1: amounts are in the text */
	bool can_scan;
	uint64_t page_bytes;
	uint64_t *entries; /* ENTRIES_MAX; NULL while can_scan */
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

/* The record of this name, new if needed; the last record takes all that have no room. */
static size_t find_or_add_record(struct maps_snapshot *snapshot, size_t current, const struct maps_record *like)
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

/* ---- time ---- */

static uint64_t monotonic_ns(void)
{
	struct clock clock = real_clock();

	return clock_mono(&clock).ns;
}

/* After each system call that took the lock. False: the CPU time is used up. */
static bool may_go_on(struct reader *reader)
{
	if (monotonic_ns() - reader->paused_ns >= HOLD_NS) {
		nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
		reader->paused_ns = monotonic_ns();
		reader->snapshot->left_out |= real_clock_thread_cpu() >= reader->cpu_end_ns;
	}
	return !reader->snapshot->left_out;
}

/* ---- pages ---- */

static void add_pages(struct reader *reader, uint64_t bytes, bool present, bool swapped)
{
	struct maps_record *record = &reader->snapshot->records[reader->current];

	if (present)
		record->rss_bytes += bytes;
	else if (swapped)
		record->swap_bytes += bytes;
}

/* One system call. 0: *at is beyond what was read; -errno. *ret_found: pages in use. */
static int scan_piece(struct reader *reader, uint64_t *at, uint64_t end, uint64_t *ret_found)
{
	struct page_region regions[REGIONS_MAX];
	struct page_scan scan = {
		.size = sizeof(scan),
		.start = *at,
		.end = end,
		.vec = (uint64_t)(uintptr_t)regions,
		.vec_len = REGIONS_MAX,
		.max_pages = PIECE_PAGES,
		.category_anyof_mask = PAGE_PRESENT | PAGE_SWAPPED,
		.return_mask = PAGE_PRESENT | PAGE_SWAPPED | PAGE_ZERO,
	};
	int count = ioctl(reader->pagemap, PAGE_SCAN, &scan);

	if (count < 0)
		return -errno;
	*ret_found = 0;
	for (int i = 0; i < count; i++) {
		uint64_t bytes = regions[i].end - regions[i].start, categories = regions[i].categories;

		*ret_found += bytes / reader->page_bytes;
		add_pages(reader, bytes, (categories & (PAGE_PRESENT | PAGE_ZERO)) == PAGE_PRESENT,
			  categories & PAGE_SWAPPED);
	}
	if (scan.walk_end <= *at)
		return -EIO;
	*at = scan.walk_end;
	return 0;
}

static int scan_mapping(struct reader *reader, uint64_t start, uint64_t end)
{
	uint64_t pages = PIECE_PAGES;

	while (start < end) {
		uint64_t piece = pages * reader->page_bytes, found;
		int r = scan_piece(reader, &start, end - start < piece ? end : start + piece, &found);

		if (r < 0 || !may_go_on(reader))
			return r;
		pages = found > 0 ? PIECE_PAGES : pages < PIECE_PAGES_MAX ? 2 * pages : pages;
	}
	return 0;
}

static int read_pagemap(struct reader *reader, uint64_t start, uint64_t end)
{
	if (end - start > PAGEMAP_MAPPING_MAX) {
		reader->snapshot->left_out = true;
		return 0;
	}
	while (start < end) {
		uint64_t pages = (end - start) / reader->page_bytes;
		size_t wanted = pages < ENTRIES_MAX ? (size_t)pages : ENTRIES_MAX;
		ssize_t len = pread(reader->pagemap, reader->entries, wanted * sizeof(reader->entries[0]),
				    (off_t)(start / reader->page_bytes * sizeof(reader->entries[0])));

		if (len < 0)
			return -errno;
		if ((size_t)len < sizeof(reader->entries[0]))
			return 0; /* not memory of the process, such as [vsyscall] */
		for (size_t i = 0; i < (size_t)len / sizeof(reader->entries[0]); i++)
			add_pages(reader, reader->page_bytes, reader->entries[i] & ENTRY_PRESENT,
				  reader->entries[i] & ENTRY_SWAPPED);
		start += (uint64_t)len / sizeof(reader->entries[0]) * reader->page_bytes;
		if (!may_go_on(reader))
			return 0;
	}
	return 0;
}

/* Of the current record's next mapping. */
static int count_pages(struct reader *reader, uint64_t start, uint64_t end)
{
	int r = -ENOTTY;

	if (start >= end || start > INT64_MAX) /* [vsyscall] is the kernel's */
		return 0;
	if (reader->can_scan)
		r = scan_mapping(reader, start, end);
	if (r != -ENOTTY)
		return r == -EFAULT || r == -EINVAL ? 0 : r; /* beyond the address space of the process */
	reader->can_scan = false;
	if (!reader->entries)
		reader->entries = malloc(ENTRIES_MAX * sizeof(reader->entries[0]));
	return reader->entries ? read_pagemap(reader, start, end) : -ENOMEM;
}

/* ---- lines ---- */

static const char *skip_field(const char *at, const char *end)
{
	while (at < end && *at != ' ')
		at++;
	while (at < end && *at == ' ')
		at++;
	return at;
}

/* Hexadecimal digits up to the character `stop`, which is skipped. NULL: another character. */
static const char *parse_address(const char *at, const char *end, char stop, uint64_t *ret)
{
	const char *from = at;

	for (*ret = 0; at < end && isxdigit((unsigned char)*at); at++)
		*ret = *ret << 4 | (uint64_t)(*at <= '9' ? *at - '0' : (*at | 0x20) - 'a' + 10);
	return at > from && at < end && *at == stop ? at + 1 : NULL;
}

/* "7f10c8a00000-7f10c8a22000 r--p 00000000 08:01 1835  /usr/lib/libc.so.6"; anonymous: no name. */
static int take_header(struct reader *reader, const char *line, size_t len)
{
	const char *end = line + len, *at, *permissions;
	struct maps_record like = { 0 };
	uint64_t from, to;

	at = parse_address(line, end, '-', &from);
	permissions = at ? parse_address(at, end, ' ', &to) : NULL;
	if (!permissions || end - permissions < 4)
		return 0;
	memcpy(like.permissions, permissions, 4);
	at = permissions;
	for (int field = 0; field < 4; field++)
		at = skip_field(at, end);
	if (at < end)
		set_name(&like, at, (size_t)(end - at));
	else
		set_name(&like, ANONYMOUS, sizeof(ANONYMOUS) - 1);

	reader->current = find_or_add_record(reader->snapshot, reader->current, &like);
	reader->snapshot->records[reader->current].mappings++;
	reader->mappings++;
	return reader->pagemap < 0 ? 0 : count_pages(reader, from, to);
}

/* "Rss:                 132 kB", with its newline. */
static void take_amount(struct reader *reader, const char *line, size_t len)
{
	struct maps_record *record = &reader->snapshot->records[reader->current];
	uint64_t bytes;

	if (reader->mappings == 0)
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

/* Takes the whole lines of text. 0, *ret_used: how many bytes they are; -errno. */
static int take_lines(struct reader *reader, const char *text, size_t len, size_t *ret_used)
{
	*ret_used = 0;
	while (!reader->snapshot->left_out) {
		const char *line = text + *ret_used, *newline = memchr(line, '\n', len - *ret_used);
		size_t line_len;
		int r = 0;

		if (!newline)
			return 0;
		line_len = (size_t)(newline - line);
		/* Names of amounts begin with a capital, addresses with a digit or "a" to "f". */
		if (line_len > 0 && isupper((unsigned char)*line))
			take_amount(reader, line, line_len + 1);
		else
			r = take_header(reader, line, line_len);
		if (r < 0)
			return r;
		*ret_used += line_len + 1;
	}
	return 0;
}

/* One read gives as many mappings as fit into a page of text. */
static int read_lines(int fd, struct reader *reader)
{
	AUTO_FREE char *text = malloc(TEXT_BYTES);
	size_t kept = 0;

	if (!text)
		return -ENOMEM;
	while (!reader->snapshot->left_out) {
		ssize_t n = read(fd, text + kept, TEXT_BYTES - kept);
		size_t used;
		int r;

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		kept += (size_t)n;
		r = take_lines(reader, text, kept, &used);
		if (r < 0)
			return r;
		if (used == 0 && kept == TEXT_BYTES)
			used = kept; /* no line is so long */
		memmove(text, text + used, kept - used);
		kept -= used;
		may_go_on(reader);
	}
	return 0;
}

/* ---- a snapshot ---- */

static uint64_t status_bytes(const char *status, ssize_t len, const char *name)
{
	uint64_t bytes = 0;

	if (len > 0 && procfs_kb_parse(status, (size_t)len, name, &bytes) < 0)
		return 0;
	return bytes;
}

static bool is_small(int pid_directory)
{
	char status[4096];
	ssize_t len = pid_directory_read(pid_directory, "status", status, sizeof(status));

	return status_bytes(status, len, "VmRSS") + status_bytes(status, len, "VmSwap") <= SMALL_BYTES &&
	       status_bytes(status, len, "VmPTE") <= SMALL_PAGE_TABLE_BYTES;
}

static int read_mappings(int pid_directory, struct reader *reader)
{
	AUTO_CLOSE int fd = -1;
	AUTO_CLOSE int pagemap = -1;
	int r;

	reader->snapshot->by_pages = !is_small(pid_directory);
	if (reader->snapshot->by_pages) {
		pagemap = pid_directory_file(pid_directory, "pagemap");
		if (pagemap < 0)
			return pagemap;
	}
	fd = pid_directory_file(pid_directory, reader->snapshot->by_pages ? "maps" : "smaps");
	if (fd < 0)
		return fd;
	reader->pagemap = pagemap;
	r = read_lines(fd, reader);
	free(reader->entries);
	return r;
}

static size_t snapshot_bytes(size_t count)
{
	return sizeof(struct maps_snapshot) + count * sizeof(struct maps_record);
}

struct maps_request {
	uint64_t start_ticks, cpu_ns;
	mono_t now;
	int32_t pid;
};

/* A foreign_function: what is read waits for the process. */
static int read_snapshot(int procfd, const void *argument, size_t len, const struct sink *to)
{
	AUTO_CLOSE int pid_directory = -1;
	AUTO_FREE struct maps_snapshot *snapshot = malloc(snapshot_bytes(MAPS_SNAPSHOT_MAX));
	struct reader reader = { .can_scan = true, .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE) };
	uint64_t cpu_before_ns = real_clock_thread_cpu();
	struct maps_request request;
	int r;

	assert(len == sizeof(request));
	memcpy(&request, argument, len);
	r = pid_directory_open(procfd, request.pid, request.start_ticks, &pid_directory);
	if (r < 0 || !snapshot)
		return r < 0 ? r : -ENOMEM;

	*snapshot = (struct maps_snapshot){ .taken = request.now };
	reader.snapshot = snapshot;
	reader.cpu_end_ns = request.cpu_ns < UINT64_MAX - cpu_before_ns ? cpu_before_ns + request.cpu_ns : UINT64_MAX;
	reader.paused_ns = monotonic_ns();
	r = read_mappings(pid_directory, &reader);
	if (r < 0)
		return r;
	if (snapshot->left_out)
		snapshot->count = 0;
	snapshot->cpu_ns = real_clock_thread_cpu() - cpu_before_ns;
	return sink_write(to, snapshot, snapshot_bytes(snapshot->count));
}

int maps_snapshot_take(enum foreign_lane lane, int procfd, int32_t pid, uint64_t start_ticks, mono_t now,
		       uint64_t cpu_ns, struct maps_snapshot **ret)
{
	const struct maps_request request = { start_ticks, cpu_ns, now, pid };
	AUTO_FREE struct maps_snapshot *snapshot = malloc(snapshot_bytes(MAPS_SNAPSHOT_MAX));
	struct maps_snapshot *fitting;
	ssize_t len;

	if (!snapshot)
		return -ENOMEM;
	len = foreign_call(lane, procfd, pid, "smaps", read_snapshot, &request, sizeof(request), snapshot,
			   snapshot_bytes(MAPS_SNAPSHOT_MAX));
	if (len < 0)
		return (int)len;
	if ((size_t)len < sizeof(*snapshot) || (size_t)len != snapshot_bytes(snapshot->count))
		return -EIO;
	fitting = realloc(snapshot, (size_t)len);
	if (fitting)
		snapshot = fitting;
	*ret = TAKE(snapshot);
	return 0;
}

/* For free(3); NULL of NULL, or without memory. */
static struct maps_snapshot *maps_snapshot_copy(const struct maps_snapshot *snapshot)
{
	struct maps_snapshot *copy = snapshot ? malloc(snapshot_bytes(snapshot->count)) : NULL;

	if (copy)
		memcpy(copy, snapshot, snapshot_bytes(snapshot->count));
	return copy;
}

/* ---- baselines of watched processes ---- */

/* One thread costs 5 us: a scan spends at most 10 ms here, and so do looks between scans in so long. */
#define THREADS_PER_SCAN 2000u
#define THREADS_INTERVAL_NS (5 * NS_PER_S)

/*
 * Mappings: few processes at a time (so many for each second since the last scan) and seldom, and at most a
 * hundredth of a CPU for all of them: what has been read took its hundredfold until the next is read.
 */
#define MAPS_PER_SCAN 2u
#define MAPS_PER_SCAN_MAX 32u
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
	mono_t now; /* when threads_left was set */
	size_t threads_left, maps_left;
	mono_t scan_began;  /* the last one */
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

static size_t maps_for(const struct baseline *baseline, mono_t now)
{
	uint64_t passed_ns = baseline->scan_began.ns > 0 ? (uint64_t)mono_diff(now, baseline->scan_began) : 0;
	uint64_t count = MAPS_PER_SCAN * (passed_ns > NS_PER_S ? passed_ns / NS_PER_S : 1);

	if (mono_diff(now, baseline->maps_from) < 0)
		return 0;
	return count < MAPS_PER_SCAN_MAX ? (size_t)count : MAPS_PER_SCAN_MAX;
}

void baseline_scan_begin(struct baseline *baseline, mono_t now)
{
	baseline->scan++;
	baseline->threads_left = THREADS_PER_SCAN;
	baseline->maps_left = maps_for(baseline, now);
	baseline->now = baseline->scan_began = now;
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

static void take_threads(struct baseline *baseline, struct watched_process *process, const struct procfs_stat *stat,
			 mono_t now)
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

	int r = thread_snapshot_take(baseline->procfd, stat->pid, stat->start_ticks, now, &snapshot);

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

	int r = maps_snapshot_take(FOREIGN_DISCOVERY, baseline->procfd, process->pid, process->start_ticks,
				   baseline->now, MAPS_CPU_NS, &maps);

	unlocked_section_enter(&baseline->section);
	if (r < 0)
		return;
	if (maps->cpu_ns * MAPS_CPU_SHARE > NS_PER_S) {
		baseline->maps_left = 0;
		baseline->maps_from = mono_add(baseline->now, maps->cpu_ns * MAPS_CPU_SHARE);
	}

	free(process->maps);
	process->maps = maps;
	if (!baseline->with_maps) { /* any more */
		free(process->maps);
		process->maps = NULL;
	}
}

/* The scan has met it already: it is watched by two entries, or this is later. */
static void look_again(struct baseline *baseline, struct watched_process *process, mono_t now)
{
	const struct thread_snapshot *last = process->threads.newer;

	if (!last || mono_diff(now, last->taken) < (int64_t)THREADS_INTERVAL_NS)
		return;

	struct procfs_stat stat = { .pid = process->pid, .start_ticks = process->start_ticks, .threads = last->count };

	if (mono_diff(now, baseline->now) >= (int64_t)THREADS_INTERVAL_NS) {
		baseline->now = now;
		baseline->threads_left = THREADS_PER_SCAN;
	}
	take_threads(baseline, process, &stat, now);
}

static void update_watched(struct baseline *baseline, const struct procfs_stat *stat, mono_t now, bool ran)
{
	struct watched_process *process = find_or_add_watched(baseline, stat);

	if (!process)
		return; /* no room */
	if (process->scan == baseline->scan) {
		if (ran)
			look_again(baseline, process, now);
		return;
	}

	process->scan = baseline->scan;
	if (ran || !process->threads.newer)
		take_threads(baseline, process, stat, now);
	else
		thread_baseline_still(&process->threads, baseline->now);
	if (ran || !process->maps)
		take_maps(baseline, process);
}

void baseline_update(struct baseline *baseline, const struct procfs_stat *stat, mono_t now, bool watched, bool ran)
{
	struct watched_process *process;

	if (watched) {
		update_watched(baseline, stat, now, ran);
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
