/*
 * check_thread_events.c: which threads and processes get events of their own, by what notes tell.
 * The notes are made up, the processes and events are real: needs to be allowed to open events on
 * its own threads; says so if it is not.
 */
#include "daemon/engine/base/proc_read.h"
#include "skip.h"
#include "daemon/engine/stacks/thread_events.h"
#include "daemon/engine/base/clocks.h"
#include "torture.h"
#include "daemon/engine/base/perf_events.h"
#include "lib/base/base.h"
#include "lib/proc/perf.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

Suite *thread_events_suite(void);

static const struct perf_events_wanted wanted = { .kind = PERF_EVENTS_CPU, .frequency = 99, .user_only = true };

static const struct perf_events_wanted wanted_faults = { .kind = PERF_EVENTS_FAULTS,
							 .frequency = 99,
							 .user_only = true };

/* What happens on the way. */
static struct {
	struct perf_events ring;
	struct thread_events_output output;
	struct thread_events *threads;
	struct thread_events_note notes[4]; /* for the catch_up after start_thread */
	size_t note_count;
	bool start_thread; /* when the clock is asked next: another thread of ours */
	uint32_t started_tid;
	unsigned opened_processes, opened_threads;
	pthread_t thread;
	int go[2], told[2];
} stage;

static void *wait_here(void *unused)
{
	uint32_t tid = (uint32_t)syscall(SYS_gettid);
	char byte;

	if (write(stage.told[1], &tid, sizeof(tid)) == sizeof(tid) && read(stage.go[0], &byte, 1) == 1)
		return unused;
	return unused;
}

static mono_t clock_of_stage(void *unused)
{
	struct clock clock = real_clock();

	(void)unused;
	if (stage.start_thread) {
		stage.start_thread = false;
		ck_assert_int_eq(pthread_create(&stage.thread, NULL, wait_here, NULL), 0);
		ck_assert_int_eq(read(stage.told[0], &stage.started_tid, sizeof(stage.started_tid)),
				 sizeof(stage.started_tid));
	}
	return clock_mono(&clock);
}

static void catch_up(void *unused)
{
	(void)unused;
	if (stage.started_tid == 0)
		return;
	for (size_t i = 0; i < stage.note_count; i++) {
		if (stage.notes[i].tid == 0)
			stage.notes[i].tid = stage.started_tid;
		thread_events_note(stage.threads, &stage.notes[i]);
	}
	stage.note_count = 0;
}

static void opened(void *unused, uint32_t pid, const uint32_t *tids, size_t count)
{
	(void)unused;
	/* no assertion here: memory may be short */
	stage.opened_processes += pid != 0;
	for (size_t i = 0; i < count; i++)
		stage.opened_threads += tids[i] != 0;
}

static int make(unsigned max_events, unsigned max_processes)
{
	static int proc_fd = -1;
	struct thread_events_options options = { .outputs = &stage.output,
						 .output_count = 1,
						 .cpus = 1,
						 .max_events = max_events,
						 .max_processes = max_processes,
						 .clock = { clock_of_stage, NULL, NULL },
						 .catch_up = catch_up,
						 .opened = opened };

	if (proc_fd < 0)
		proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	options.proc_fd = proc_fd;
	stage.output = (struct thread_events_output){ &wanted, &stage.ring };
	return thread_events_new(&options, &stage.threads);
}

/* False: not allowed here. */
static bool begin_with(unsigned max_events, unsigned max_processes)
{
	char reason[PERF_EVENTS_REASON_MAX];

	memset(&stage, 0, sizeof(stage));
	ck_assert_int_eq(pipe(stage.go), 0);
	ck_assert_int_eq(pipe(stage.told), 0);
	if (perf_events_open_ring(&wanted, 0, 65536, &stage.ring, reason) < 0) {
		return skip_because("%s", reason);
	}
	ck_assert_int_eq(make(max_events, max_processes), 0);
	return true;
}

static void end(void)
{
	thread_events_free(stage.threads);
	perf_events_close(&stage.ring);
	if (stage.started_tid != 0) {
		ck_assert_int_eq(write(stage.go[1], "x", 1), 1);
		pthread_join(stage.thread, NULL);
	}
	close(stage.go[0]);
	close(stage.go[1]);
	close(stage.told[0]);
	close(stage.told[1]);
}

static struct thread_events_status status(void)
{
	struct thread_events_status status;

	thread_events_status(stage.threads, &status);
	return status;
}

static uint32_t sleeping_child(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return (uint32_t)pid;
}

static void end_child(uint32_t pid)
{
	kill((pid_t)pid, SIGKILL);
	ck_assert_int_eq(waitpid((pid_t)pid, NULL, 0), (pid_t)pid);
}

static void note_fork(uint32_t pid, uint32_t ppid, uint64_t time_ns)
{
	thread_events_note(
		stage.threads,
		&(struct thread_events_note){ .time_ns = time_ns, .pid = pid, .tid = pid, .ppid = ppid, .ptid = ppid });
}

static void note_end(uint32_t pid)
{
	thread_events_note(stage.threads, &(struct thread_events_note){ .pid = pid, .tid = pid, .ended = true });
}

/*
 * A thread of ours begins when ours has its events, started by `by` at time_ns. How many threads
 * get events.
 */
static unsigned threads_opened(bool note, uint64_t time_ns)
{
	uint32_t self = (uint32_t)getpid();

	if (!begin_with(64, 4))
		return 0;
	stage.start_thread = true;
	stage.notes[0] = (struct thread_events_note){ .time_ns = time_ns, .pid = self, .ppid = self, .ptid = self };
	stage.note_count = note;
	thread_events_follow(stage.threads, &self, 1);
	ck_assert_uint_eq(status().processes, 1);
	ck_assert_uint_eq(status().events, status().threads);
	ck_assert_uint_eq(stage.opened_processes, 1);
	ck_assert_uint_eq(stage.opened_threads, 2);
	return status().threads;
}

START_TEST(a_thread_that_inherited_gets_no_events_of_its_own)
{
	unsigned inherited = threads_opened(true, UINT64_MAX), before, silent;

	if (inherited == 0)
		SKIP_TEST("%s", skip_reason);
	end();
	before = threads_opened(true, 1);
	end();
	silent = threads_opened(false, 0);
	end();
	ck_assert_uint_eq(inherited, 1);
	/* started before its parent had them */
	ck_assert_uint_eq(before, 2);
	/* its parent is unknown */
	ck_assert_uint_eq(silent, 2);
}
END_TEST

START_TEST(descendants_inherit_from_whoever_was_followed_then)
{
	uint32_t pids[3];

	if (!begin_with(64, 8))
		SKIP_TEST("%s", skip_reason);
	for (int i = 0; i < 3; i++)
		pids[i] = sleeping_child();
	thread_events_follow(stage.threads, pids, 1);
	note_fork(pids[1], pids[0], UINT64_MAX);
	note_fork(pids[2], pids[1], UINT64_MAX);
	thread_events_follow(stage.threads, pids, 3);
	ck_assert_uint_eq(status().processes, 3);
	ck_assert_uint_eq(status().threads, 1);

	/* the first leaves: the others need their own */
	thread_events_follow(stage.threads, pids + 1, 2);
	ck_assert_uint_eq(status().processes, 2);
	ck_assert_uint_eq(status().threads, 2);
	thread_events_follow(stage.threads, NULL, 0);
	ck_assert_uint_eq(status().events, 0);
	for (int i = 0; i < 3; i++)
		end_child(pids[i]);
	end();
}
END_TEST

/* The note of a fork comes when the child has events already. */
START_TEST(what_turns_out_to_have_inherited_gives_its_own_back)
{
	uint32_t pids[3];

	if (!begin_with(64, 8))
		SKIP_TEST("%s", skip_reason);
	for (int i = 0; i < 3; i++)
		pids[i] = sleeping_child();
	thread_events_follow(stage.threads, pids, 2);
	note_fork(pids[2], pids[1], UINT64_MAX);
	ck_assert_uint_eq(status().threads, 2);
	note_fork(pids[1], pids[0], UINT64_MAX);
	thread_events_follow(stage.threads, pids, 3);
	ck_assert_uint_eq(status().processes, 3);
	ck_assert_uint_eq(status().threads, 1);
	ck_assert_uint_eq(status().events, 1);

	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(status().events, 1);
		end_child(pids[i]);
		note_end(pids[i]);
		thread_events_sweep(stage.threads, false);
	}
	ck_assert_uint_eq(status().events, 0);
	end();
}
END_TEST

START_TEST(what_was_forked_before_did_not_inherit)
{
	uint32_t pids[2] = { sleeping_child(), sleeping_child() };

	if (begin_with(64, 8)) {
		thread_events_follow(stage.threads, pids, 1);
		note_fork(pids[1], pids[0], 1);
		thread_events_follow(stage.threads, pids, 2);
		ck_assert_uint_eq(status().threads, 2);
		end();
	}
	end_child(pids[0]);
	end_child(pids[1]);
}
END_TEST

START_TEST(events_of_one_that_exited_stay_while_its_kin_runs)
{
	uint32_t pids[2] = { sleeping_child(), sleeping_child() };

	if (!begin_with(64, 8))
		SKIP_TEST("%s", skip_reason);
	thread_events_follow(stage.threads, pids, 2);
	ck_assert_uint_eq(status().threads, 2);
	thread_events_follow(stage.threads, pids, 1);
	note_fork(pids[1], pids[0], UINT64_MAX);
	end_child(pids[0]);
	note_end(pids[0]);
	ck_assert(!thread_events_sweep(stage.threads, false));
	ck_assert(!thread_events_sweep(stage.threads, true));
	ck_assert_uint_eq(status().events, 1);
	end_child(pids[1]);
	note_end(pids[1]);
	ck_assert(thread_events_sweep(stage.threads, false));
	ck_assert_uint_eq(status().events, 0);
	ck_assert_uint_eq(status().processes, 0);
	ck_assert_uint_eq(status().not_followed, 0);
	end();
}
END_TEST

START_TEST(an_end_that_was_not_told_is_found_by_looking)
{
	uint32_t pids[2] = { sleeping_child(), sleeping_child() };

	if (!begin_with(64, 8))
		SKIP_TEST("%s", skip_reason);
	thread_events_follow(stage.threads, pids, 1);
	note_fork(pids[1], pids[0], UINT64_MAX);
	end_child(pids[0]);
	end_child(pids[1]);
	ck_assert(!thread_events_sweep(stage.threads, false));
	ck_assert_uint_eq(status().events, 1);
	ck_assert(thread_events_sweep(stage.threads, true));
	ck_assert_uint_eq(status().events, 0);
	end();
}
END_TEST

/* A first thread may end while others run on. */
START_TEST(a_note_of_an_end_is_not_believed_while_it_runs)
{
	uint32_t pid = sleeping_child();

	if (begin_with(64, 8)) {
		thread_events_follow(stage.threads, &pid, 1);
		note_end(pid);
		ck_assert(!thread_events_sweep(stage.threads, true));
		ck_assert_uint_eq(status().threads, 1);
		end();
	}
	end_child(pid);
}
END_TEST

START_TEST(no_more_events_and_processes_than_allowed)
{
	uint32_t pids[4];

	for (int i = 0; i < 4; i++)
		pids[i] = sleeping_child();
	if (begin_with(2, 8)) {
		thread_events_follow(stage.threads, pids, 4);
		ck_assert_uint_eq(status().events, 2);
		ck_assert_uint_eq(status().processes, 2);
		ck_assert_uint_eq(status().not_followed, 2);
		ck_assert_int_eq(status().error, -ENOSPC);
		/* there is room only when the set changes */
		thread_events_follow(stage.threads, pids + 2, 2);
		ck_assert_uint_eq(status().processes, 2);
		ck_assert_uint_eq(status().not_followed, 0);
		ck_assert_int_eq(status().error, 0);
		end();
	}
	if (begin_with(64, 3)) {
		thread_events_follow(stage.threads, pids, 4);
		ck_assert_uint_eq(status().processes, 3);
		ck_assert_uint_eq(status().not_followed, 1);
		end();
	}
	for (int i = 0; i < 4; i++)
		end_child(pids[i]);
}
END_TEST

/* Whatever others have taken of the descriptors: what is reserved is not for events. */
START_TEST(events_leave_the_reserve_of_descriptors_alone)
{
	struct rlimit before, few = { .rlim_cur = 400 };
	uint32_t pid = sleeping_child();
	int first, others[300], count = 0;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few.rlim_max = before.rlim_max;
	if (begin_with(64, 8)) {
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
		while (count < 300 && !descriptors_short(stage.go[0]))
			others[count++] = dup(stage.go[0]);
		ck_assert_int_gt(count, 0);
		first = dup(stage.go[0]); /* there are some */
		ck_assert_int_ge(first, 0);
		close(first);
		thread_events_follow(stage.threads, &pid, 1);
		ck_assert_uint_eq(status().events, 0);
		ck_assert_uint_eq(status().not_followed, 1);
		ck_assert_int_eq(status().error, -ENOSPC);
		while (count > 0)
			close(others[--count]);
		thread_events_follow(stage.threads, &pid, 1);
		ck_assert_uint_eq(status().events, 1);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
		end();
	}
	end_child(pid);
}
END_TEST

/* As a whole or not at all: what was opened of it is closed again. */
/* Touches pages when it is told to; the count of them as our first event sees it, of one CPU. */
static uint64_t faults_counted(int fd)
{
	uint64_t count = 0, unused = 0;
	size_t bytes = 256 * 4096;
	volatile char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne((void *)memory, MAP_FAILED);
	madvise((void *)memory, bytes, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < bytes; at += 4096)
		memory[at] = 1;
	munmap((void *)memory, bytes);
	ck_assert_int_eq(perf_events_count(fd, &count, &unused), 0);
	return count;
}

/* The newest descriptor that is an event of perf's. */
static int newest_event(void)
{
	for (int fd = 255; fd > 2; fd--) {
		char path[32], target[64];
		ssize_t len;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		len = readlink(path, target, sizeof(target) - 1);
		target[len > 0 ? len : 0] = '\0';
		if (strstr(target, "perf_event") != NULL)
			return fd;
	}
	return -1;
}

START_TEST(events_of_a_kind_are_switched_off_and_on_also_those_that_come_later)
{
	uint32_t self = (uint32_t)getpid();
	cpu_set_t first;
	uint64_t before;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	if (!begin_with(64, 4) || sched_setaffinity(0, sizeof(first), &first) < 0)
		SKIP_TEST("%s", skip_reason);
	stage.output.wanted = &wanted_faults;
	thread_events_follow(stage.threads, &self, 1);
	ck_assert_uint_eq(status().events, 1);
	ck_assert_uint_ge(faults_counted(newest_event()), 256);
	thread_events_switch(stage.threads, PERF_EVENTS_CPU, false);
	before = faults_counted(newest_event());
	ck_assert_uint_ge(faults_counted(newest_event()), before + 256);
	thread_events_switch(stage.threads, PERF_EVENTS_FAULTS, false);
	before = faults_counted(newest_event());
	ck_assert_uint_eq(faults_counted(newest_event()), before);
	thread_events_switch(stage.threads, PERF_EVENTS_FAULTS, true);
	ck_assert_uint_ge(faults_counted(newest_event()), before + 256);

	thread_events_switch(stage.threads, PERF_EVENTS_FAULTS, false);
	thread_events_follow(stage.threads, NULL, 0);
	thread_events_follow(stage.threads, &self, 1);
	ck_assert_uint_eq(status().events, 1);
	before = faults_counted(newest_event());
	ck_assert_uint_eq(faults_counted(newest_event()), before);
	end();
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	uint32_t pids[2] = { sleeping_child(), (uint32_t)getpid() };
	bool injected = true;

	if (!begin_with(64, 8))
		SKIP_TEST("%s", skip_reason);
	thread_events_free(stage.threads);
	stage.threads = NULL;
	for (long n = 1; injected && n < 1000; n++) {
		int r;

		torture_arm(n);
		r = make(64, 8);
		if (r == 0)
			thread_events_follow(stage.threads, pids, 2);
		injected = torture_disarm();
		ck_assert(r == 0 || (injected && r == -ENOMEM));
		if (r == 0) {
			ck_assert_uint_eq(status().events, status().threads);
			ck_assert_uint_eq(status().processes + status().not_followed, 2);
			ck_assert(injected || status().processes == 2);
			thread_events_free(stage.threads);
		}
		stage.threads = NULL;
	}
	ck_assert(!injected);
	end();
	end_child(pids[0]);
}
END_TEST

Suite *thread_events_suite(void)
{
	Suite *suite = suite_create("thread_events");
	TCase *tcase = tcase_create("thread_events");

	tcase_add_test(tcase, a_thread_that_inherited_gets_no_events_of_its_own);
	tcase_add_test(tcase, descendants_inherit_from_whoever_was_followed_then);
	tcase_add_test(tcase, what_turns_out_to_have_inherited_gives_its_own_back);
	tcase_add_test(tcase, what_was_forked_before_did_not_inherit);
	tcase_add_test(tcase, events_of_one_that_exited_stay_while_its_kin_runs);
	tcase_add_test(tcase, an_end_that_was_not_told_is_found_by_looking);
	tcase_add_test(tcase, a_note_of_an_end_is_not_believed_while_it_runs);
	tcase_add_test(tcase, no_more_events_and_processes_than_allowed);
	tcase_add_test(tcase, events_leave_the_reserve_of_descriptors_alone);
	tcase_add_test(tcase, events_of_a_kind_are_switched_off_and_on_also_those_that_come_later);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
