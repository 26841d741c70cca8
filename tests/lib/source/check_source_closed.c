/*
 * check_source_closed.c: processes that have no descriptors, through a source: they are read as the
 * others are, and pids that come to belong to another process, at any step, are never mistaken for
 * it.
 */
#include "lib/source/cpu_accounts.h"
#include "lib/source/process.h"
#include "scene.h"
#include "source_rig.h"
#include "torture.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/model/sample.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

Suite *source_closed_suite(void);

/* ---- before any opening ---- */

static int opens;

static void count_opening(void)
{
	opens++;
}

/* How many files are opened by a fill. */
static int opened_by(struct bench *bench, uint64_t now_ns)
{
	opens = 0;
	torture_before_opening(count_opening);
	source_fill(bench->source, (mono_t){ now_ns });
	torture_before_opening(NULL);

	return opens;
}

static int open_files(void)
{
	int count = 0;

	for (int fd = 0; fd < 1024; fd++)
		count += fcntl(fd, F_GETFD) >= 0;

	return count;
}

/* ---- as others ---- */

START_TEST(a_cold_process_is_read_as_a_warm_one)
{
	struct bench bench;
	struct child child = child_start();
	struct source_options options = { .peak_interval_ns = 0, .fds_interval_ns = S, .heartbeat_ns = S };

	bench_open(&bench, "/proc", options);
	struct source_entry *warm = add_process(&bench, child.pid, true, NULL);
	int files = open_files();
	struct source_entry *cold = add_closed_process(&bench, child.pid, true, NULL);

	ck_assert_int_eq(open_files(), files);
	for (uint64_t at = 10; at < 16; at++) {
		child_do(&child, "bfmbfm"[at - 10]);
		fill(&bench, at * S, cold);
		fill(&bench, at * S + 1, cold);
		ck_assert_int_eq(open_files(), files);
		for (int i = 0; i < SAMPLE_FIELDS; i++)
			if (has(warm, (enum sample_field)i))
				ck_assert_uint_eq(value(cold, (enum sample_field)i), value(warm, (enum sample_field)i));
		ck_assert_uint_eq(source_entry_sample(cold)->mask, source_entry_sample(warm)->mask);
	}
	ck_assert(source_entry_is_closed(cold) && !source_entry_is_closed(warm));
	ck_assert_uint_eq(source_entry_runs(cold), source_entry_runs(warm));
	ck_assert_uint_ge(source_entry_runs(cold), 2);
	child_exit(&child);
	ck_assert_int_eq(fill(&bench, 20 * S, cold), SOURCE_CHANGED); /* a zombie */
	child_reap(&child);
	ck_assert_int_eq(fill(&bench, 21 * S, cold), SOURCE_GONE);
	drop(&bench, warm);
	drop(&bench, cold);
	bench_close(&bench);
}
END_TEST

START_TEST(a_cold_process_that_does_not_run_is_opened_at_its_heartbeat_only)
{
	struct bench bench;
	struct child child = child_start();

	bench_open(&bench, "/proc", (struct source_options){ .peak_interval_ns = UINT64_MAX, .heartbeat_ns = S });
	struct source_entry *cold = add_closed_process(&bench, child.pid, true, NULL);

	for (uint64_t at = 1; at < 4; at++) /* until it was seen to stand still */
		fill(&bench, at, cold);
	for (uint64_t at = 4; at < 100; at++)
		ck_assert_int_eq(opened_by(&bench, at), 0);
	ck_assert_int_eq(opened_by(&bench, 2 * S), 3); /* the directory, stat, statm */
	ck_assert_int_eq(opened_by(&bench, 2 * S + 1), 0);
	child_do(&child, 'b');
	ck_assert_int_eq(opened_by(&bench, 2 * S + 2), 3);
	drop(&bench, cold);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(what_costs_more_is_read_once_per_heartbeat_unless_it_is_needed)
{
	struct bench bench;
	struct child child = child_start();
	struct source_options options = { .peak_interval_ns = 10, .fds_interval_ns = 10, .heartbeat_ns = S };

	bench_open(&bench, "/proc", options);
	struct source_entry *cold = add_closed_process(&bench, child.pid, true, NULL);
	int extras = 0;

	for (uint64_t i = 0; i < 20; i++) { /* twice in a heartbeat, which is S or a little less */
		child_do(&child, 'b');
		extras += opened_by(&bench, S + i * S / 2) > 3;
	}
	ck_assert_int_ge(extras, 9);
	ck_assert_int_le(extras, 11);
	source_entry_need(cold, false, true);
	fill(&bench, 20 * S, cold);
	for (uint64_t i = 1; i < 8; i++) {
		child_do(&child, 'f');
		uint64_t fds = value(cold, SAMPLE_FDS);

		fill(&bench, 20 * S + 20 * i, cold);
		ck_assert_uint_eq(value(cold, SAMPLE_FDS), fds + 10);
	}
	uint64_t peak = value(cold, SAMPLE_MEMORY_PEAK);

	child_do(&child, 'm');
	child_do(&child, 'm');
	fill(&bench, 20 * S + 500, cold);
	ck_assert_uint_eq(value(cold, SAMPLE_MEMORY_PEAK), peak);
	source_entry_need(cold, true, true);
	fill(&bench, 22 * S, cold);
	ck_assert_uint_gt(value(cold, SAMPLE_MEMORY_PEAK), peak);
	peak = value(cold, SAMPLE_MEMORY_PEAK);
	for (int i = 0; i < 4; i++)
		child_do(&child, 'm');
	fill(&bench, 22 * S + 20, cold);
	ck_assert_uint_gt(value(cold, SAMPLE_MEMORY_PEAK), peak);
	drop(&bench, cold);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(a_fill_of_cold_ones_allocates_nothing_and_leaves_nothing_open)
{
	struct bench bench;

	bench_open(&bench, "/proc", (struct source_options){ .fds_interval_ns = 1, .read_always = true });
	struct source_entry *cold = add_closed_process(&bench, getpid(), true, NULL);
	int files = open_files();
	unsigned long before = torture_allocations();

	for (uint64_t i = 1; i < 20; i++)
		source_fill(bench.source, (mono_t){ i * 20 * S });
	ck_assert_uint_eq(torture_allocations(), before);
	ck_assert_int_eq(open_files(), files);
	drop(&bench, cold);
	bench_close(&bench);
}
END_TEST

START_TEST(without_any_descriptor_it_stays_as_it_was_and_is_read_later)
{
	struct bench bench;
	struct child child = child_start();
	struct rlimit limit;
	struct source_counters counters;

	bench_open(&bench, "/proc", never_peaks);
	struct source_entry *cold = add_closed_process(&bench, child.pid, true, NULL);

	fill(&bench, 1, cold);
	child_do(&child, 'b');
	struct sample before = *source_entry_sample(cold);

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	for (rlim_t spare = 0; spare < 3; spare++) {
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ (rlim_t)child.done + 1, limit.rlim_max }),
				 0);
		int taken = -1;

		for (int fd; spare == 0 && (fd = dup(0)) >= 0; taken = fd)
			;
		enum source_status status = fill(&bench, 2 + spare, cold);

		setrlimit(RLIMIT_NOFILE, &limit);
		if (spare == 0 && taken >= 0)
			close_range((unsigned)taken, (unsigned)taken, 0);
		if (status == SOURCE_SAME)
			ck_assert_mem_eq(source_entry_sample(cold), &before, sizeof before);
	}
	source_counters(bench.source, &counters);
	ck_assert_uint_ge(counters.failed_reads, 1);
	fill(&bench, 10, cold);
	ck_assert_uint_ge(value(cold, SAMPLE_CPU), before.value[SAMPLE_CPU] + BURNT_NS);
	drop(&bench, cold);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

/* ---- from one tier to the other ---- */

START_TEST(descriptors_are_given_up_and_had_again)
{
	struct bench bench;
	struct child child = child_start();
	struct source_options options = { .peak_interval_ns = 0, .fds_interval_ns = S, .heartbeat_ns = S };
	int files = open_files();

	bench_open(&bench, "/proc", options);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	int warm = open_files();

	for (uint64_t round = 1; round < 4; round++) {
		uint64_t cpu = value(entry, SAMPLE_CPU);

		child_do(&child, 'b');
		source_entry_close_files(entry);
		ck_assert(!source_entry_is_closed(entry));
		fill(&bench, 10 * round * S, entry);
		ck_assert(source_entry_is_closed(entry));
		ck_assert_int_eq(open_files(), files + 1);
		ck_assert_uint_ge(value(entry, SAMPLE_CPU), cpu + BURNT_NS);
		ck_assert_int_eq(source_entry_reopen(entry, bench.procfd, child.pid, 0, &options), 0);
		ck_assert_int_eq(open_files(), files + 1); /* nothing to be opened for it */

		child_do(&child, 'b');
		ck_assert_int_eq(source_entry_open_files(entry, &options), 0);
		ck_assert(source_entry_is_closed(entry));
		fill(&bench, 10 * round * S + S, entry);
		ck_assert(!source_entry_is_closed(entry));
		ck_assert_int_eq(open_files(), warm);
		ck_assert_uint_ge(value(entry, SAMPLE_CPU), cpu + 2 * BURNT_NS);
		ck_assert_int_eq(opened_by(&bench, 10 * round * S + 5 * S), 0);
	}
	drop(&bench, entry);
	bench_close(&bench);
	ck_assert_int_eq(open_files(), files);
	child_reap(&child);
}
END_TEST

START_TEST(what_was_opened_for_nothing_is_closed)
{
	struct bench bench;
	struct child child = child_start();
	struct source_options few = { .peak_interval_ns = UINT64_MAX }, many = { .fds_interval_ns = S };
	int files = open_files();

	bench_open(&bench, "/proc", many);
	struct source_entry *entry = add_closed_process(&bench, child.pid, true, NULL);

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(source_entry_open_files(entry, &few), 0);
	ck_assert_int_eq(open_files(), files + 1 + 2);
	/* What is about to be warm has what is read by now. */
	ck_assert_int_eq(source_entry_reopen(entry, bench.procfd, child.pid, 0, &many), 0);
	ck_assert_int_eq(open_files(), files + 1 + 4);
	source_entry_close_files(entry);
	fill(&bench, S, entry);
	ck_assert(source_entry_is_closed(entry));
	ck_assert_int_eq(open_files(), files + 1);
	ck_assert_int_eq(source_entry_open_files(entry, &many), 0);
	drop(&bench, entry);
	bench_close(&bench);
	ck_assert_int_eq(open_files(), files);
	child_reap(&child);
}
END_TEST

/* Leaves fd behind on the stack, for a function that reads it uninitialised. */
static __attribute__((noinline)) void soil_stack(int fd)
{
	volatile int left[8192];

	for (size_t i = 0; i < ARRAY_LEN(left); i++)
		left[i] = fd;
}

/*
 * Of whom there is nothing to open there is nothing to close: descriptors of others stay as they
 * are.
 */
START_TEST(who_is_gone_before_he_is_opened_closes_no_file_of_others)
{
	AUTO_CLOSE int procfd = open("tests/data/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct process_reader_target missing = { .procfd = procfd, .pid = 4242 };
	int theirs = open("/dev/null", O_RDONLY | O_CLOEXEC), files = open_files();
	struct sample sample = { 0 };
	struct process_reader reader;

	for (int cold = 0; cold < 2; cold++) {
		missing.closed = cold;
		soil_stack(theirs);
		ck_assert_int_eq(process_reader_init(&reader, &missing, &sample), -ESRCH);
		ck_assert_int_ge(fcntl(theirs, F_GETFD), 0);
		ck_assert_int_eq(open_files(), files);
	}
	ck_assert_int_eq(close(theirs), 0);
}
END_TEST

/* ---- pids that are used again ---- */

static char root[64];

static void put_process(const char *directory, int pid, unsigned start, unsigned ticks, unsigned pages)
{
	char path[160];

	snprintf(path, sizeof path, "%s/%s", root, directory);
	ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	snprintf(path, sizeof path, "%s/%s/stat", root, directory);
	scene_write(path, "%d (app) S 1 1 1 0 -1 0 %u 0 0 0 %u 0 0 0 20 0 %u 0 %u 1000000 100 0\n", pid, pages, ticks,
		    pages, start);
	snprintf(path, sizeof path, "%s/%s/statm", root, directory);
	scene_write(path, "%u %u 50 1 0 60 0\n", 2 * pages, pages);
	snprintf(path, sizeof path, "%s/%s/status", root, directory);
	scene_write(path, "VmHWM:\t %u kB\n", pages);
	snprintf(path, sizeof path, "%s/%s/fd", root, directory);
	ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
}

static int swap_at;

/* The process ends and another one gets its pid. */
static void swap_processes(void)
{
	char from[96], to[96];

	if (opens++ != swap_at)
		return;
	snprintf(from, sizeof from, "%s/77", root);
	snprintf(to, sizeof to, "%s/old", root);
	ck_assert_int_eq(rename(from, to), 0);
	snprintf(to, sizeof to, "%s/new", root);
	ck_assert_int_eq(rename(to, from), 0);
}

START_TEST(a_pid_that_changes_hands_between_any_two_steps_is_not_taken_for_the_other)
{
	bool swapped = true;
	int gone = 0;

	for (swap_at = 0; swapped; swap_at++) {
		struct bench bench;

		scene_directory(root);
		put_process("77", 77, 500, 10, 100);
		put_process("new", 77, 501, 9000, 7000);
		bench_open(&bench, root, (struct source_options){ .fds_interval_ns = 1, .read_always = true });
		struct source_entry *cold = add_closed_process(&bench, 77, false, NULL);

		fill(&bench, S, cold);
		put_process("77", 77, 500, 20, 200);
		struct sample before = *source_entry_sample(cold);

		opens = 0;
		torture_before_opening(swap_processes);
		enum source_status status = fill(&bench, 20 * S, cold);
		torture_before_opening(NULL);
		swapped = opens > swap_at;
		if (status == SOURCE_GONE)
			ck_assert_mem_eq(source_entry_sample(cold), &before, sizeof before);
		else
			ck_assert_uint_eq(value(cold, SAMPLE_MEMORY_PEAK) / 1024, value(cold, SAMPLE_THREADS));
		gone += status == SOURCE_GONE;
		ck_assert_uint_le(value(cold, SAMPLE_THREADS), 200);
		ck_assert_uint_le(value(cold, SAMPLE_MEMORY), 200 * (uint64_t)sysconf(_SC_PAGESIZE));
		if (swapped)
			ck_assert_int_eq(fill(&bench, 40 * S, cold), SOURCE_GONE);
		drop(&bench, cold);
		bench_close(&bench);
		scene_remove(root);
	}
	ck_assert_int_ge(gone, 1);
	ck_assert_int_ge(swap_at, 5);
}
END_TEST

/* ---- of which the scheduler tells ---- */

static struct cpu_account sums[2];

/* The test is the kernel; the process has account 1, and a directory of ours. */
static struct source_entry *add_followed(struct bench *bench, const struct child *of)
{
	static struct cpu_slot slot;
	static uint64_t log[4], base_ns[ARRAY_LEN(sums)];
	static _Atomic uint32_t pids[ARRAY_LEN(sums)];
	static struct cpu_accounts_words words;
	static struct cpu_accounts accounts;
	char name[16];

	memset(sums, 0, sizeof sums);
	words = (struct cpu_accounts_words){ .epoch = 1, .generation = 1 };
	slot = (struct cpu_slot){ .account = CPU_ACCOUNT_NONE, .generation = 1, .group = CPU_ACCOUNT_NONE };
	base_ns[1] = 100 * S;
	pids[1] = (uint32_t)of->pid;
	accounts = (struct cpu_accounts){ .slots = &slot,
					  .accounts = sums,
					  .logs = log,
					  .words = &words,
					  .base_ns = base_ns,
					  .pids = pids,
					  .cpus = 1,
					  .capacity = ARRAY_LEN(sums),
					  .log_length = ARRAY_LEN(log),
					  .reclaimed = UINT64_MAX,
					  .on = true };
	scene_directory(root);
	snprintf(name, sizeof name, "%d", of->pid);
	put_process(name, of->pid, 500, 10, 100);
	put_process("new", of->pid, 501, 9000, 7000);
	bench_open(bench, root,
		   (struct source_options){ .heartbeat_ns = S, .peak_interval_ns = UINT64_MAX, .accounts = &accounts });

	struct source_entry *entry = add_closed_process(bench, of->pid, true, NULL);

	source_entry_follow(entry, 1);
	for (uint64_t at = 1; at < 5; at++) /* until it was seen to stand still */
		fill(bench, at, entry);

	return entry;
}

static void end_followed(struct bench *bench, struct source_entry *entry, struct child *of)
{
	drop(bench, entry);
	bench_close(bench);
	scene_remove(root);
	child_reap(of);
}

static uint64_t pages(const struct source_entry *entry)
{
	return value(entry, SAMPLE_MEMORY) / (uint64_t)sysconf(_SC_PAGESIZE);
}

START_TEST(of_one_that_is_told_to_sleep_memory_alone_is_opened)
{
	struct bench bench;
	struct child child = child_start();
	struct source_entry *cold = add_followed(&bench, &child);
	char name[16];

	snprintf(name, sizeof name, "%d", child.pid);
	put_process(name, child.pid, 500, 10, 90);
	ck_assert_int_eq(opened_by(&bench, 70 * S), 1);
	ck_assert_uint_eq(pages(cold), 90);
	sums[1].exited = 1; /* a zombie: it is asked who it is */
	put_process(name, child.pid, 500, 10, 80);
	ck_assert_int_eq(opened_by(&bench, 140 * S), 3);
	ck_assert_uint_eq(pages(cold), 80);
	end_followed(&bench, cold, &child);
}
END_TEST

static pid_t ends_when_opened;

/* Its id becomes another one's, which the kernel has told by then. */
static void end_process(void)
{
	char from[96], to[96];

	torture_before_opening(NULL);
	sums[1].exited = 1;
	snprintf(from, sizeof from, "%s/%d", root, ends_when_opened);
	snprintf(to, sizeof to, "%s/old", root);
	ck_assert_int_eq(rename(from, to), 0);
	snprintf(to, sizeof to, "%s/new", root);
	ck_assert_int_eq(rename(to, from), 0);
}

START_TEST(memory_of_what_has_the_id_since_is_not_taken_for_its_own)
{
	struct bench bench;
	struct child child = child_start();
	struct source_entry *cold = add_followed(&bench, &child);

	ends_when_opened = child.pid;
	torture_before_opening(end_process);
	ck_assert_int_eq(fill(&bench, 70 * S, cold), SOURCE_SAME);
	ck_assert(!torture_before_opening(NULL));
	ck_assert_uint_eq(pages(cold), 100);
	ck_assert_int_eq(fill(&bench, 140 * S, cold), SOURCE_GONE);
	ck_assert_uint_eq(pages(cold), 100);
	end_followed(&bench, cold, &child);
}
END_TEST

/* The clock is a real one, of a process that is not the one that is meant by its start time. */
START_TEST(a_clock_that_jumped_is_not_believed_before_the_start_time_was_seen)
{
	struct bench bench;
	struct child child = child_start();
	char name[16];

	scene_directory(root);
	snprintf(name, sizeof name, "%d", child.pid);
	put_process(name, child.pid, 500, 10, 100);
	bench_open(&bench, root, never_peaks);
	struct source_entry *group = add_group(&bench);
	struct source_entry *cold = NULL;

	ck_assert_int_eq(source_entry_process_closed(bench.procfd, child.pid, 0, true, NULL, &cold), 0);
	ck_assert_int_eq(source_add(bench.source, cold, group), 0);
	for (uint64_t at = 1; at < 4; at++)
		fill(&bench, at, group);
	struct sample before = *source_entry_sample(cold);
	uint64_t sum = value(group, SAMPLE_CPU);

	put_process(name, child.pid, 501, 9000, 7000);
	child_do(&child, 'b');
	ck_assert_int_eq(fill(&bench, 5, cold), SOURCE_GONE);
	ck_assert_mem_eq(source_entry_sample(cold), &before, sizeof before);
	ck_assert_uint_eq(value(group, SAMPLE_CPU), sum);
	ck_assert_uint_eq(value(group, SAMPLE_PROCESSES), 0);
	drop(&bench, cold);
	drop(&bench, group);
	bench_close(&bench);
	scene_remove(root);
	child_reap(&child);
}
END_TEST

/*
 * A process with a pid of our choice, that burns and waits to be killed. 0: that is not allowed
 * here.
 */
static pid_t start_as(pid_t pid)
{
	struct clone_args args = {
		.exit_signal = SIGCHLD,
		.set_tid = (uint64_t)(uintptr_t)&pid,
		.set_tid_size = 1,
	};
	long made = syscall(SYS_clone3, &args, sizeof args);

	if (made == 0) {
		burn();
		for (;;)
			pause();
	}

	return made < 0 ? 0 : (pid_t)made;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

START_TEST(a_pid_that_is_really_used_again_is_gone)
{
	struct bench bench;
	struct child child = child_start();
	pid_t pid = child.pid;
	struct source_entry *entry;
	uint64_t start = scene_start_ticks(pid);

	bench_open(&bench, "/proc", never_peaks);
	entry = _i ? add_closed_process(&bench, pid, true, NULL) : add_process(&bench, pid, true, NULL);
	for (uint64_t at = 1; at < 4; at++)
		fill(&bench, at, entry);
	struct sample before = *source_entry_sample(entry);

	child_do(&child, 'b');
	child_reap(&child);
	struct timespec pause = { .tv_nsec = 20000000 };

	nanosleep(&pause, NULL); /* two units of the start time */
	if (start_as(pid) == pid) {
		while (scene_start_ticks(pid) == start)
			nanosleep(&pause, NULL);
		struct source_entry *refused = NULL;

		ck_assert_int_eq(source_entry_process_closed(bench.procfd, pid, start, true, NULL, &refused), -ESRCH);
		if (_i)
			ck_assert_int_eq(source_entry_open_files(entry, &never_peaks), -ESRCH);
	}
	ck_assert_int_eq(fill(&bench, 5, entry), SOURCE_GONE);
	ck_assert_mem_eq(source_entry_sample(entry), &before, sizeof before);
	if (kill(pid, 0) == 0)
		end(pid);
	drop(&bench, entry);
	bench_close(&bench);
}
END_TEST

Suite *source_closed_suite(void)
{
	Suite *suite = suite_create("source_closed");
	TCase *tcase = tcase_create("cold");

	tcase_add_test(tcase, a_cold_process_is_read_as_a_warm_one);
	tcase_add_test(tcase, a_cold_process_that_does_not_run_is_opened_at_its_heartbeat_only);
	tcase_add_test(tcase, what_costs_more_is_read_once_per_heartbeat_unless_it_is_needed);
	tcase_add_test(tcase, a_fill_of_cold_ones_allocates_nothing_and_leaves_nothing_open);
	tcase_add_test(tcase, without_any_descriptor_it_stays_as_it_was_and_is_read_later);
	tcase_add_test(tcase, descriptors_are_given_up_and_had_again);
	tcase_add_test(tcase, what_was_opened_for_nothing_is_closed);
	tcase_add_test(tcase, who_is_gone_before_he_is_opened_closes_no_file_of_others);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("reuse");
	tcase_add_test(tcase, a_pid_that_changes_hands_between_any_two_steps_is_not_taken_for_the_other);
	tcase_add_test(tcase, of_one_that_is_told_to_sleep_memory_alone_is_opened);
	tcase_add_test(tcase, memory_of_what_has_the_id_since_is_not_taken_for_its_own);
	tcase_add_test(tcase, a_clock_that_jumped_is_not_believed_before_the_start_time_was_seen);
	tcase_add_loop_test(tcase, a_pid_that_is_really_used_again_is_gone, 0, 2);
	suite_add_tcase(suite, tcase);

	return suite;
}
