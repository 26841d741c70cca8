/*
 * maps_snapshot.c: smaps of a small process; maps and page tables of a large one.
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
#include "daemon/engine/targets/maps_snapshot.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/io.h"
#include "lib/base/text.h"
#include "lib/proc/procfs.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

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

int maps_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, uint64_t cpu_ns,
		       struct maps_snapshot **ret)
{
	AUTO_CLOSE int pid_directory = -1;
	AUTO_FREE struct maps_snapshot *snapshot = NULL;
	struct reader reader = { .can_scan = true, .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE) };
	struct maps_snapshot *fitting;
	int r;

	r = pid_directory_open(procfd, pid, start_ticks, &pid_directory);
	if (r < 0)
		return r;
	snapshot = malloc(snapshot_bytes(MAPS_SNAPSHOT_MAX));
	if (!snapshot)
		return -ENOMEM;

	*snapshot = (struct maps_snapshot){ .taken = now };
	reader.snapshot = snapshot;
	reader.cpu_end_ns = real_clock_thread_cpu();
	reader.cpu_end_ns = cpu_ns < UINT64_MAX - reader.cpu_end_ns ? reader.cpu_end_ns + cpu_ns : UINT64_MAX;
	reader.paused_ns = monotonic_ns();
	r = read_mappings(pid_directory, &reader);
	if (r < 0)
		return r;
	if (snapshot->left_out)
		snapshot->count = 0;
	fitting = realloc(snapshot, snapshot_bytes(snapshot->count));
	if (fitting)
		snapshot = fitting;
	*ret = TAKE(snapshot);
	return 0;
}

struct maps_snapshot *maps_snapshot_copy(const struct maps_snapshot *snapshot)
{
	struct maps_snapshot *copy = snapshot ? malloc(snapshot_bytes(snapshot->count)) : NULL;

	if (copy)
		memcpy(copy, snapshot, snapshot_bytes(snapshot->count));
	return copy;
}
