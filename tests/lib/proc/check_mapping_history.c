/* check_mapping_history.c: what was mapped when, through forks, execve(2) and time. */
#include "lib/proc/mapping_history.h"
#include "skip.h"
#include "torture.h"
#include "lib/base/io.h"
#include "lib/proc/perf.h"

#include <check.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Suite *mapping_history_suite(void);

static struct mapping_history *book;

static void begin(void)
{
	ck_assert_int_eq(mapping_history_new(&(struct mapping_history_limits){ 0 }, &book), 0);
}

static void end(void)
{
	mapping_history_free(book);
	book = NULL;
}

static void begin_with(const struct mapping_history_limits *limits)
{
	end();
	ck_assert_int_eq(mapping_history_new(limits, &book), 0);
}

static void feed_comm(uint32_t pid, uint32_t tid, const char *name, bool exec, uint64_t time_ns)
{
	struct perf_record record = { .type = PERF_RECORD_COMM, .pid = pid, .tid = tid, .time_ns = time_ns };

	record.comm.name = name;
	record.comm.name_len = strlen(name);
	record.comm.exec = exec;
	mapping_history_feed(book, &record);
}

static void feed_map(uint32_t pid, uint64_t start, uint64_t len, const char *path, uint64_t time_ns)
{
	struct perf_record record = { .type = PERF_RECORD_MMAP2, .pid = pid, .tid = pid, .time_ns = time_ns };

	record.mmap = (struct perf_record_mmap){ .start = start, .len = len, .path = path, .path_len = strlen(path) };
	record.mmap.file.inode = strlen(path);
	mapping_history_feed(book, &record);
}

static void feed_task(uint32_t type, uint32_t pid, uint32_t tid, uint32_t ppid, uint64_t time_ns)
{
	struct perf_record record = { .type = type, .pid = pid, .tid = tid, .time_ns = time_ns };

	record.fork.ppid = ppid;
	record.fork.ptid = ppid;
	mapping_history_feed(book, &record);
}

static void feed_fork(uint32_t parent, uint32_t pid, uint64_t time_ns)
{
	feed_task(PERF_RECORD_FORK, pid, pid, parent, time_ns);
}

static void feed_exit(uint32_t pid, uint64_t time_ns)
{
	feed_task(PERF_RECORD_EXIT, pid, pid, 1, time_ns);
}

static struct mapping_history_stats stats_now(void)
{
	struct mapping_history_stats stats;

	mapping_history_stats(book, &stats);
	return stats;
}

static const char *path_at(uint32_t pid, uint64_t time_ns, uint64_t address)
{
	struct mapping_history_place place;

	return mapping_history_find(book, pid, time_ns, address, &place) ? place.path : "";
}

static bool known(uint32_t pid, uint64_t time_ns)
{
	uint32_t parent;

	return mapping_history_knows(book, pid, time_ns, &parent);
}

/* "TIME NAME(PID/TID) ..." of what is written. */
static const char *written(uint32_t pid, uint64_t from_ns, uint64_t to_ns)
{
	static const struct perf_record_format format = { .sample_type = PERF_RECORD_FRAME_POINTERS };
	static char text[2048];
	struct buffer buffer = { 0 };
	const struct sink sink = sink_buffer(&buffer);
	struct perf_record record;
	size_t used = 0;

	text[0] = '\0';
	ck_assert_int_eq(mapping_history_write(book, pid, from_ns, to_ns, &sink), 0);
	for (size_t at = 0; at < buffer.len; at += record.size) {
		const char *name = "?";
		char kind = '?';

		ck_assert_int_eq(perf_record_decode(&format, buffer.data + at, buffer.len - at, &record), 0);
		ck_assert_uint_eq(record.pid, pid);
		if (record.type == PERF_RECORD_COMM) {
			kind = record.comm.exec ? 'x' : 'c';
			name = record.comm.name;
		} else if (record.type == PERF_RECORD_MMAP2) {
			kind = 'm';
			name = record.mmap.path;
		} else {
			kind = record.type == PERF_RECORD_FORK ? 'f' : 'e';
			name = "";
		}
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%llu%c%s", used > 0 ? " " : "",
					 (unsigned long long)record.time_ns, kind, name);
		if (record.type == PERF_RECORD_COMM && record.tid != record.pid)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "@%u", record.tid);
	}
	buffer_release(&buffer);
	return text;
}

START_TEST(program_that_was_started_is_known_whole)
{
	struct mapping_history_place place;

	feed_fork(1, 10, 100);
	ck_assert(!known(10, 100));
	feed_comm(10, 10, "prog", true, 110);
	feed_map(10, 0x1000, 0x1000, "/prog", 111);
	feed_map(10, 0x8000, 0x2000, "/lib", 112);
	ck_assert(known(10, 110));
	ck_assert(!known(10, 109));
	ck_assert_str_eq(path_at(10, 111, 0x1000), "/prog");
	ck_assert_str_eq(path_at(10, 111, 0x1fff), "/prog");
	ck_assert_str_eq(path_at(10, 111, 0x2000), "");
	ck_assert_str_eq(path_at(10, 111, 0x8000), "");
	ck_assert_str_eq(path_at(10, 112, 0x9fff), "/lib");
	ck_assert(mapping_history_find(book, 10, 200, 0x9000, &place));
	ck_assert_uint_eq(place.start, 0x8000);
	ck_assert_uint_eq(place.end, 0xa000);
	ck_assert_uint_eq(place.file.inode, 4);
	ck_assert(place.running);
	ck_assert_str_eq(written(10, 100, 200), "100f 110xprog 111m/prog 112m/lib");
	ck_assert_str_eq(written(10, 115, 200), "110xprog 111m/prog 112m/lib");
	ck_assert_str_eq(written(10, 105, 111), "100f 110xprog 111m/prog");
	ck_assert_str_eq(written(10, 0, 99), "");
}
END_TEST

START_TEST(execve_replaces_everything_and_the_past_stays)
{
	feed_comm(10, 10, "old", true, 100);
	feed_map(10, 0x1000, 0x1000, "/old", 101);
	feed_comm(10, 10, "new", true, 200);
	feed_map(10, 0x1000, 0x1000, "/new", 201);
	ck_assert_str_eq(path_at(10, 150, 0x1000), "/old");
	ck_assert_str_eq(path_at(10, 200, 0x1000), "");
	ck_assert_str_eq(path_at(10, 201, 0x1000), "/new");
	ck_assert_uint_eq(mapping_history_origin(book, 10, 199).began_ns, 100);
	ck_assert_uint_eq(mapping_history_origin(book, 10, 200).began_ns, 200);
	ck_assert_str_eq(written(10, 150, 300), "100xold 101m/old 200xnew 201m/new");
	ck_assert_str_eq(written(10, 250, 300), "200xnew 201m/new");
}
END_TEST

START_TEST(child_has_what_its_parent_had_when_it_forked)
{
	feed_comm(10, 10, "parent", true, 100);
	feed_map(10, 0x1000, 0x1000, "/before", 110);
	feed_fork(10, 11, 120);
	feed_map(10, 0x3000, 0x1000, "/after", 130);
	ck_assert(known(11, 120));
	ck_assert_str_eq(path_at(11, 140, 0x1000), "/before");
	ck_assert_str_eq(path_at(11, 140, 0x3000), "");
	ck_assert_str_eq(written(11, 0, 200), "120f 120cparent 120m/before");
	/* its own */
	feed_map(11, 0x3000, 0x1000, "/own", 150);
	ck_assert_str_eq(path_at(11, 150, 0x3000), "/own");
	ck_assert_str_eq(path_at(11, 150, 0x1000), "/before");
	ck_assert_str_eq(path_at(10, 150, 0x3000), "/after");
	/* a child of the child, after the parent is gone and forgotten */
	feed_fork(11, 12, 160);
	feed_exit(10, 170);
	feed_exit(11, 171);
	mapping_history_expire(book, 5000);
	ck_assert_uint_eq(stats_now().lifetimes, 1);
	ck_assert_str_eq(path_at(12, 5000, 0x3000), "/own");
	ck_assert_str_eq(path_at(12, 5000, 0x1000), "/before");
}
END_TEST

START_TEST(grandchild_sees_no_more_than_the_child_did)
{
	feed_comm(10, 10, "parent", true, 100);
	feed_fork(10, 11, 120);
	feed_map(10, 0x3000, 0x1000, "/after", 130);
	feed_fork(11, 12, 140);
	ck_assert_str_eq(path_at(12, 200, 0x3000), "");
	ck_assert_str_eq(written(12, 0, 200), "140f 140cparent");
}
END_TEST

START_TEST(newer_mapping_hides_the_older_where_they_overlap)
{
	feed_comm(10, 10, "p", true, 100);
	feed_map(10, 0x1000, 0x4000, "/wide", 110);
	feed_map(10, 0x2000, 0x1000, "/narrow", 120);
	ck_assert_str_eq(path_at(10, 115, 0x2000), "/wide");
	ck_assert_str_eq(path_at(10, 120, 0x1000), "/wide");
	ck_assert_str_eq(path_at(10, 120, 0x2000), "/narrow");
	ck_assert_str_eq(path_at(10, 120, 0x3000), "/wide");
	/* covered: not told of a span in which it was not there any more */
	feed_map(10, 0x1000, 0x4000, "/all", 130);
	ck_assert_str_eq(written(10, 140, 200), "100xp 130m/all");
	ck_assert_str_eq(written(10, 125, 200), "100xp 110m/wide 120m/narrow 130m/all");
	/* the same again is the same */
	feed_map(10, 0x1000, 0x4000, "/all", 150);
	ck_assert_uint_eq(stats_now().mappings, 3);
}
END_TEST

START_TEST(seed_tells_of_a_process_that_was_there_before)
{
	static const char maps[] = "1000-2000 r-xp 00003000 08:01 42                         /usr/bin/old one\n"
				   "2000-3000 rw-p 00000000 08:01 42                         /usr/bin/data\n"
				   "nonsense\n"
				   "5000-6000 r-xp 00000000 00:00 0 \n"
				   "7fffffff0000-7fffffff1000 r-xp 00000000 00:00 0          [vdso]\n"
				   "8000-9000 r-xs 00000000 fd:1f 7   /a\\012b (deleted)";
	struct mapping_history_place place;

	feed_map(10, 0xa000, 0x1000, "/plugin", 500);
	ck_assert(!known(10, 500));
	mapping_history_seed(book, 10, "daemon", maps, strlen(maps), 600);
	ck_assert(known(10, 1));
	ck_assert_str_eq(path_at(10, 1, 0x1000), "/usr/bin/old one");
	ck_assert_str_eq(path_at(10, 1, 0x2000), "");
	ck_assert_str_eq(path_at(10, 1, 0x5000), "//anon");
	ck_assert_str_eq(path_at(10, 1, 0x7fffffff0000), "[vdso]");
	ck_assert_str_eq(path_at(10, 1, 0xa000), "");
	ck_assert_str_eq(path_at(10, 500, 0xa000), "/plugin");
	ck_assert(mapping_history_find(book, 10, 1, 0x1fff, &place));
	ck_assert_uint_eq(place.offset, 0x3000);
	ck_assert_uint_eq(place.file.major, 8);
	ck_assert_uint_eq(place.file.minor, 1);
	ck_assert_uint_eq(place.file.inode, 42);
	ck_assert(mapping_history_find(book, 10, 1, 0x8000, &place));
	ck_assert_uint_eq(place.file.major, 0xfd);
	ck_assert_uint_eq(place.file.minor, 0x1f);
	ck_assert_str_eq(place.path, "/a\nb (deleted)");
	/* once is enough */
	mapping_history_seed(book, 10, "other", "f000-f100 r-xp 0 0:0 1 /x\n", 26, 700);
	ck_assert_str_eq(path_at(10, 800, 0xf000), "");
	ck_assert_str_eq(written(10, 0, 400), "0cdaemon 0m/usr/bin/old one 0m//anon 0m[vdso] 0m/a\nb (deleted)");
}
END_TEST

START_TEST(seed_is_refused_for_what_was_before_an_execve)
{
	static const char maps[] = "1000-2000 r-xp 00000000 08:01 42 /new\n";

	feed_map(10, 0xa000, 0x1000, "/plugin", 500);
	feed_comm(10, 10, "new", true, 550);
	mapping_history_seed(book, 10, "new", maps, strlen(maps), 600);
	ck_assert_str_eq(path_at(10, 510, 0x1000), "");
	ck_assert_str_eq(path_at(10, 650, 0x1000), "");
	ck_assert(!known(10, 510));
	/* a life that began after the look */
	feed_fork(99, 11, 700);
	mapping_history_seed(book, 11, "x", maps, strlen(maps), 650);
	ck_assert(!known(11, 800));
	/* and one that has exited: its pid is another process now */
	feed_map(12, 0xa000, 0x1000, "/plugin", 500);
	feed_exit(12, 510);
	mapping_history_seed(book, 12, "x", maps, strlen(maps), 650);
	ck_assert(!known(12, 505));
}
END_TEST

START_TEST(child_is_known_by_its_parent)
{
	static const char maps[] = "1000-2000 r-xp 00000000 08:01 42 /shell\n";
	uint32_t parent = 0;

	feed_fork(10, 11, 500);
	feed_exit(11, 520);
	ck_assert(!mapping_history_knows(book, 11, 510, &parent));
	ck_assert_uint_eq(parent, 10);
	mapping_history_seed(book, parent, "sh", maps, strlen(maps), 600);
	ck_assert(mapping_history_knows(book, 11, 510, &parent));
	ck_assert_str_eq(path_at(11, 510, 0x1000), "/shell");
	/* of a child that lives, its own will do, and says nothing of the parent */
	feed_fork(20, 21, 500);
	mapping_history_seed(book, 21, "sh", maps, strlen(maps), 600);
	ck_assert(known(21, 510));
	ck_assert(!known(20, 510));
}
END_TEST

START_TEST(names_are_those_of_the_time)
{
	feed_comm(10, 10, "main", true, 100);
	feed_comm(10, 12, "worker-of-a-long-name", false, 120);
	feed_comm(10, 10, "renamed", false, 130);
	ck_assert(mapping_history_knows_thread(book, 10, 12, 120));
	ck_assert(!mapping_history_knows_thread(book, 10, 12, 119));
	ck_assert(!mapping_history_knows_thread(book, 10, 13, 200));
	mapping_history_seed_thread(book, 10, 13, "seeded");
	mapping_history_seed_thread(book, 10, 12, "ignored");
	ck_assert_str_eq(written(10, 0, 200), "100xmain 100cseeded@13 120cworker-of-a-lon@12 130crenamed");
	ck_assert_str_eq(written(10, 0, 125), "100xmain 100cseeded@13 120cworker-of-a-lon@12");
}
END_TEST

START_TEST(exited_are_kept_for_a_while_and_threads_are_no_processes)
{
	feed_comm(10, 10, "p", true, 100);
	feed_map(10, 0x1000, 0x1000, "/p", 110);
	feed_task(PERF_RECORD_FORK, 10, 11, 10, 115);
	feed_task(PERF_RECORD_EXIT, 10, 11, 10, 116);
	ck_assert_str_eq(written(10, 0, 130), "100xp 110m/p");
	feed_exit(10, 120);
	ck_assert_str_eq(written(10, 0, 130), "100xp 110m/p 120e");
	mapping_history_expire(book, 120);
	ck_assert_str_eq(path_at(10, 115, 0x1000), "/p");
	mapping_history_expire(book, 121);
	ck_assert_str_eq(path_at(10, 115, 0x1000), "");
	ck_assert_uint_eq(stats_now().lifetimes, 0);
	ck_assert_uint_eq(stats_now().bytes, 0);
}
END_TEST

START_TEST(number_that_is_used_again_is_another_process)
{
	feed_comm(10, 10, "first", true, 100);
	feed_map(10, 0x1000, 0x1000, "/first", 101);
	feed_exit(10, 110);
	feed_fork(1, 10, 120);
	feed_comm(10, 10, "second", true, 121);
	feed_map(10, 0x1000, 0x1000, "/second", 122);
	ck_assert_str_eq(path_at(10, 105, 0x1000), "/first");
	ck_assert_str_eq(path_at(10, 122, 0x1000), "/second");
	ck_assert_str_eq(written(10, 0, 200), "100xfirst 101m/first 110e 120f 121xsecond 122m/second");
}
END_TEST

START_TEST(life_that_begins_at_the_last_moment_is_written_once)
{
	feed_comm(100, 100, "app", true, UINT64_MAX);
	ck_assert_str_eq(written(100, 0, UINT64_MAX), "18446744073709551615xapp");
	ck_assert_str_eq(written(100, UINT64_MAX, UINT64_MAX), "18446744073709551615xapp");
}
END_TEST

START_TEST(all_limits_hold)
{
	const struct mapping_history_limits limits = {
		.max_lifetimes = 8, .max_bytes = 64 << 10, .max_mappings = 32, .max_names = 16
	};
	char path[5000];

	begin_with(&limits);
	for (uint32_t i = 0; i < 3000; i++) {
		uint32_t pid = 100 + i % 50;

		feed_fork(1, pid, i * 10);
		feed_comm(pid, pid, "p", true, i * 10 + 1);
		snprintf(path, sizeof(path), "/%0*u", (int)(i % 1000), i);
		feed_map(pid, 0x1000, 0x1000, path, i * 10 + 2);
		ck_assert_uint_le(stats_now().lifetimes, limits.max_lifetimes);
		ck_assert_uint_le(stats_now().bytes, limits.max_bytes);
	}
	ck_assert_uint_gt(stats_now().evicted, 0);
	begin_with(&limits);
	feed_comm(10, 10, "p", true, 1);
	for (uint32_t i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), "t%u", i);
		feed_map(10, 0x10000 + i * 0x1000ULL, 0x1000, "/jit", i + 2);
		feed_comm(10, 11 + i, path, false, i + 2);
		ck_assert_uint_le(stats_now().mappings, limits.max_mappings);
		ck_assert_str_eq(path_at(10, i + 2, 0x10000 + i * 0x1000ULL), "/jit");
	}
	ck_assert_uint_gt(stats_now().dropped, 0);
	memset(path, 'x', sizeof(path));
	path[sizeof(path) - 1] = '\0';
	feed_map(10, 0x1000, 0x1000, path, 5000);
	ck_assert_str_eq(path_at(10, 5000, 0x1000), "");
}
END_TEST

START_TEST(what_is_counted_is_what_the_heap_gave)
{
	size_t before, taken;

	if (mallinfo2().arena == 0)
		SKIP_TEST("the heap of a sanitizer has sizes of its own");
	begin_with(&(struct mapping_history_limits){ .max_bytes = 2 << 20 });
	before = mallinfo2().uordblks;
	feed_comm(1, 1, "parent", true, 1);
	for (uint32_t i = 0; i < 40000; i++) {
		uint32_t pid = 100 + i;

		feed_fork(1, pid, 10 * i);
		if (i % 8 == 0) {
			feed_comm(pid, pid, "p", true, 10 * i + 1);
			feed_map(pid, 0x1000, 0x1000, "/p", 10 * i + 2);
			feed_comm(pid, pid + 1, "thread", false, 10 * i + 3);
		}
		feed_exit(pid, 10 * i + 5);
	}
	taken = mallinfo2().uordblks - before;
	ck_assert_uint_gt(stats_now().evicted, 0);
	ck_assert_uint_le(stats_now().bytes, 2 << 20);
	ck_assert_uint_le(taken, stats_now().bytes + 1024);
	ck_assert_uint_ge(taken + 1024, stats_now().bytes);
	/* a child that does nothing of its own, with its name and its share of those that do */
	ck_assert_uint_lt(stats_now().bytes / stats_now().lifetimes, 300);
}
END_TEST

START_TEST(children_that_ended_leave_the_blocks_of_those_that_live)
{
	size_t full, rest;

	feed_comm(1, 1, "parent", true, 1);
	for (uint32_t i = 0; i < 20000; i++) {
		feed_fork(1, 100 + i, 10 + i);
		if (i % 5000 != 0)
			feed_exit(100 + i, 11 + i);
	}
	full = stats_now().bytes;
	mapping_history_expire(book, UINT64_MAX);
	ck_assert_uint_eq(stats_now().lifetimes, 5);
	rest = stats_now().bytes;
	ck_assert_uint_lt(rest, full / 8);
	for (uint32_t i = 0; i < 1500; i++) /* beside these */
		feed_fork(1, 30000 + i, 30000 + i);
	ck_assert_uint_eq(stats_now().bytes, rest);
	for (uint32_t i = 0; i < 1500; i++)
		feed_exit(30000 + i, 40000 + i);
	for (uint32_t i = 0; i < 20000; i += 5000)
		feed_exit(100 + i, 50000);
	feed_exit(1, 50000);
	mapping_history_expire(book, UINT64_MAX);
	ck_assert_uint_eq(stats_now().bytes, 0);
}
END_TEST

START_TEST(covered_mappings_go_first)
{
	begin_with(&(struct mapping_history_limits){ .max_mappings = 32 });
	feed_comm(10, 10, "p", true, 1);
	feed_map(10, 0x1000, 0x1000, "/program", 2);
	for (uint32_t i = 0; i < 1000; i++)
		feed_map(10, 0x5000, 0x1000, i % 2 ? "/jit-1" : "/jit-2", i + 3);
	ck_assert_str_eq(path_at(10, 5000, 0x1000), "/program");
	ck_assert_str_eq(path_at(10, 5000, 0x5000), "/jit-1");
	ck_assert_uint_eq(stats_now().dropped, 0);
}
END_TEST

static void live(void)
{
	static const char maps[] = "1000-2000 r-xp 00000000 08:01 42 /a\n3000-4000 r-xp 00000000 08:01 43 /b\n";

	feed_fork(9, 10, 100);
	feed_comm(10, 10, "p", true, 110);
	for (uint32_t i = 0; i < 20; i++) {
		feed_map(10, 0x1000 * (i + 1), 0x1000, i % 2 ? "/x" : "/y", 120 + i);
		feed_comm(10, 20 + i, "t", false, 120 + i);
	}
	feed_fork(10, 11, 200);
	feed_map(11, 0x1000, 0x1000, "/z", 210);
	mapping_history_seed(book, 9, "nine", maps, strlen(maps), 300);
	feed_exit(10, 400);
}

START_TEST(every_allocation_may_fail)
{
	bool injected = true;
	int r = 0;

	end();
	for (long n = 1; injected; n++) {
		torture_arm(n);
		r = mapping_history_new(&(struct mapping_history_limits){ 0 }, &book);
		if (r == 0)
			live();
		injected = torture_disarm();
		if (r == 0) {
			ck_assert_uint_eq(stats_now().dropped > 0, injected);
			mapping_history_expire(book, UINT64_MAX);
			feed_exit(9, 500);
			feed_exit(11, 500);
			mapping_history_expire(book, UINT64_MAX);
			ck_assert_uint_eq(stats_now().bytes, 0);
			end();
		} else {
			ck_assert_int_eq(r, -ENOMEM);
		}
	}
	begin();
}
END_TEST

static int write_all(const struct sink *sink)
{
	int r = 0;

	for (uint32_t pid = 9; r == 0 && pid <= 11; pid++)
		r = mapping_history_write(book, pid, 0, 1000, sink);
	return r;
}

START_TEST(every_write_may_fail)
{
	long left = 1 << 20, needed;
	struct sink sink = torture_sink(&left);

	live();
	ck_assert_int_eq(write_all(&sink), 0);
	needed = (1 << 20) - left;
	ck_assert_int_gt(needed, 1000);
	for (long bytes = 0; bytes < needed; bytes += 8) {
		left = bytes;
		ck_assert_int_eq(write_all(&sink), -EIO);
	}
}
END_TEST

Suite *mapping_history_suite(void)
{
	Suite *suite = suite_create("mapping_history");
	TCase *tcase = tcase_create("mapping_history");

	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_test(tcase, program_that_was_started_is_known_whole);
	tcase_add_test(tcase, execve_replaces_everything_and_the_past_stays);
	tcase_add_test(tcase, child_has_what_its_parent_had_when_it_forked);
	tcase_add_test(tcase, grandchild_sees_no_more_than_the_child_did);
	tcase_add_test(tcase, newer_mapping_hides_the_older_where_they_overlap);
	tcase_add_test(tcase, seed_tells_of_a_process_that_was_there_before);
	tcase_add_test(tcase, seed_is_refused_for_what_was_before_an_execve);
	tcase_add_test(tcase, child_is_known_by_its_parent);
	tcase_add_test(tcase, names_are_those_of_the_time);
	tcase_add_test(tcase, exited_are_kept_for_a_while_and_threads_are_no_processes);
	tcase_add_test(tcase, number_that_is_used_again_is_another_process);
	tcase_add_test(tcase, life_that_begins_at_the_last_moment_is_written_once);
	tcase_add_test(tcase, all_limits_hold);
	tcase_add_test(tcase, what_is_counted_is_what_the_heap_gave);
	tcase_add_test(tcase, children_that_ended_leave_the_blocks_of_those_that_live);
	tcase_add_test(tcase, covered_mappings_go_first);
	tcase_add_test(tcase, every_allocation_may_fail);
	tcase_add_test(tcase, every_write_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
