/* check_stackrecorder.c: what ran is in the snapshot, with what was mapped. Needs to be allowed to open perf events; says so if it is not. */
#include "clock.h"
#include "realclock.h"
#include "scope.h"
#include "stackrecorder.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

Suite *stackrecorder_suite(void);

#define WAIT_NS (20 * NS_PER_S) /* for what takes half a second when nobody is in the way */

static struct stackrecorder *recorder;
static struct stackrecorder_snapshot snapshot;

static uint64_t now_ns(void)
{
	struct clock clock = realclock();

	return clock_mono(&clock).ns;
}

static bool begin_with(const struct stackrecorder_options *options)
{
	char reason[STACKRECORDER_REASON_MAX];
	int r = stackrecorder_open(options, &recorder, reason);

	if (r == 0)
		return true;
	ck_assert_str_ne(reason, "");
	fprintf(stderr, "stackrecorder: not checked: %s\n", reason);
	return false;
}

/* False: not allowed here. */
static bool begin(void)
{
	struct stackrecorder_status status;

	if (!begin_with(&(struct stackrecorder_options){ 0 }))
		return false;
	stackrecorder_status(recorder, &status);
	if (status.everybody)
		return true;
	stackrecorder_close(recorder);
	fprintf(stderr, "stackrecorder: not checked: everybody's events are not allowed\n");
	return false;
}

static void end(void)
{
	stackrecorder_snapshot_release(&snapshot);
	stackrecorder_close(recorder);
	recorder = NULL;
}

__attribute__((noinline, noclone)) static void burn_here(volatile uint64_t *counter)
{
	for (int i = 0; i < 1000000; i++)
		++*counter;
}

/* A child that burns until it is killed; pages of its code are this program's. */
static pid_t burning_child(void)
{
	pid_t pid = fork();
	volatile uint64_t counter = 0;

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "burning;child");
	for (;;)
		burn_here(&counter);
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* CPU time of a process until now. */
static uint64_t cpu_of(pid_t pid)
{
	clockid_t clock;
	struct timespec time;

	ck_assert_int_eq(clock_getcpuclockid(pid, &clock), 0);
	ck_assert_int_eq(clock_gettime(clock, &time), 0);
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static void wait_until_it_burned(pid_t pid, uint64_t cpu_ns)
{
	uint64_t deadline = now_ns() + WAIT_NS, until = cpu_of(pid) + cpu_ns;

	while (cpu_of(pid) < until) {
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(10000);
	}
}

struct seen {
	unsigned samples, in_function, with_stack, with_kernel, comms, maps, tids;
	uint32_t last_tid;
	uint64_t period, first_ns, last_ns, time_ns;
	uint64_t start, end; /* of the mapping that has burn_here */
	char comm[32];
};

static const struct stackrecorder_stream *stream_of(enum stackfile_stream_kind kind)
{
	for (size_t i = 0; i < snapshot.stream_count; i++)
		if (snapshot.streams[i].head.kind == (uint32_t)kind)
			return &snapshot.streams[i];
	return NULL;
}

static void look_at_sample(const struct perfrecord *record, struct seen *seen)
{
	bool here = false, kernel = false;

	seen->samples++;
	seen->period += record->sample.period;
	seen->first_ns = seen->first_ns == 0 ? record->time_ns : seen->first_ns;
	seen->last_ns = record->time_ns;
	seen->tids += record->tid != seen->last_tid;
	seen->last_tid = record->tid;
	for (size_t i = 0; i < record->sample.chain_len; i++) {
		here |= record->sample.chain[i] >= seen->start && record->sample.chain[i] < seen->end;
		kernel |= record->sample.chain[i] == PERF_CONTEXT_KERNEL;
	}
	seen->in_function += here;
	seen->with_kernel += kernel;
	seen->with_stack += record->sample.stack_bytes > 0 && record->sample.regs_len == 20;
}

static void look_at(const struct perfrecord *record, struct seen *seen)
{
	uint64_t function = (uint64_t)(uintptr_t)burn_here;

	if (record->type == PERF_RECORD_COMM && record->tid == record->pid) {
		seen->comms++;
		snprintf(seen->comm, sizeof(seen->comm), "%s", record->comm.name);
	} else if (record->type == PERF_RECORD_MMAP2) {
		seen->maps++;
		if (function >= record->mmap.start && function < record->mmap.start + record->mmap.len) {
			seen->start = record->mmap.start;
			seen->end = record->mmap.start + record->mmap.len;
		}
	} else if (record->type == PERF_RECORD_SAMPLE) {
		look_at_sample(record, seen);
	}
}

static void look_through(const struct stackrecorder_stream *stream, pid_t pid, struct seen *seen)
{
	const struct perfrecord_format format = { stream->head.sample_type, stream->head.regs_user };
	struct perfrecord record;
	uint64_t time_ns = 0;

	ck_assert_uint_eq(stream->head.record_bytes, stream->records.len);
	for (size_t at = 0; at < stream->records.len; at += record.size) {
		if (perfrecord_decode(&format, stream->records.data + at, stream->records.len - at, &record) < 0 ||
		    record.time_ns < time_ns)
			ck_abort_msg("a record at %zu that cannot be read, or is out of order", at);
		time_ns = record.time_ns;
		if (record.pid == (uint32_t)pid)
			look_at(&record, seen);
	}
}

/* What the records say of pid: those of the book, and samples of this kind. */
static struct seen look_in(enum stackfile_stream_kind kind, pid_t pid)
{
	struct seen seen = { 0 };

	ck_assert_uint_eq(snapshot.streams[0].head.kind, STACKFILE_BOOK);
	look_through(&snapshot.streams[0], pid, &seen);
	if (stream_of(kind) != NULL)
		look_through(stream_of(kind), pid, &seen);
	return seen;
}

static struct seen look(pid_t pid)
{
	return look_in(STACKFILE_CPU, pid);
}

static void check_child(pid_t pid, uint64_t since_ns, uint64_t asked_ns)
{
	struct seen seen = look(pid);

	ck_assert_uint_ge(seen.samples, 10);
	/* nearly all: a few are in the C library's start, or in the kernel alone */
	ck_assert_uint_ge(seen.in_function * 10, seen.samples * 8);
	ck_assert_uint_ge(seen.first_ns, since_ns);
	ck_assert_uint_le(seen.last_ns, asked_ns);
	ck_assert_str_eq(seen.comm, "burning;child");
	ck_assert_uint_ge(seen.maps, 2);
}

START_TEST(a_child_that_burned_before_the_question_is_in_the_answer)
{
	uint64_t since_ns = now_ns(), asked_ns;
	pid_t pid;

	if (!begin())
		return;
	pid = burning_child();
	wait_until_it_burned(pid, 400 * NS_PER_MS);
	asked_ns = now_ns();
	ck_assert_int_eq(stackrecorder_snapshot(recorder, since_ns, asked_ns, 0, &snapshot), 0);
	end_child(pid);
	check_child(pid, since_ns, asked_ns);
	end();
}
END_TEST

START_TEST(a_process_that_was_there_before_is_looked_up_when_it_is_asked_for)
{
	pid_t pid = burning_child();
	uint64_t since_ns = now_ns(), asked_ns;

	if (!begin()) {
		end_child(pid);
		return;
	}
	wait_until_it_burned(pid, 400 * NS_PER_MS);
	asked_ns = now_ns();
	ck_assert_int_eq(stackrecorder_snapshot(recorder, since_ns, asked_ns, 0, &snapshot), 0);
	end_child(pid);
	check_child(pid, since_ns, asked_ns);
	end();
}
END_TEST

START_TEST(a_child_that_has_exited_is_still_known)
{
	uint64_t since_ns = now_ns(), asked_ns;
	pid_t pid;

	if (!begin())
		return;
	pid = burning_child();
	wait_until_it_burned(pid, 400 * NS_PER_MS);
	asked_ns = now_ns();
	end_child(pid);
	ck_assert_int_eq(stackrecorder_snapshot(recorder, since_ns, asked_ns, 0, &snapshot), 0);
	check_child(pid, since_ns, asked_ns);
	end();
}
END_TEST

START_TEST(files_that_samples_were_in_are_listed)
{
	char self[4096] = "";
	bool found = false;
	pid_t pid;

	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	if (!begin())
		return;
	pid = burning_child();
	wait_until_it_burned(pid, 400 * NS_PER_MS);
	ck_assert_int_eq(stackrecorder_snapshot(recorder, 0, UINT64_MAX, 0, &snapshot), 0);
	end_child(pid);
	for (size_t i = 0; i < snapshot.file_count; i++) {
		const struct stackrecorder_file *file = &snapshot.files[i];

		ck_assert_uint_gt(file->frames, 0);
		ck_assert(i == 0 || snapshot.files[i - 1].frames >= file->frames);
		found |= strcmp(file->path, self) == 0 && (file->file.build_id_len == 20 || file->file.inode != 0);
	}
	ck_assert(found);
	for (size_t i = 1; i < snapshot.pid_count; i++)
		ck_assert_uint_lt(snapshot.pids[i - 1], snapshot.pids[i]);
	end();
}
END_TEST

START_TEST(nothing_outside_the_span_is_given)
{
	uint64_t from_ns, to_ns;
	pid_t pid;

	if (!begin())
		return;
	pid = burning_child();
	wait_until_it_burned(pid, 200 * NS_PER_MS);
	from_ns = now_ns();
	wait_until_it_burned(pid, 200 * NS_PER_MS);
	to_ns = now_ns();
	wait_until_it_burned(pid, 200 * NS_PER_MS);
	ck_assert_int_eq(stackrecorder_snapshot(recorder, from_ns, to_ns, 0, &snapshot), 0);
	end_child(pid);
	ck_assert_uint_gt(look(pid).samples, 0);
	ck_assert_uint_ge(look(pid).first_ns, from_ns);
	ck_assert_uint_le(look(pid).last_ns, to_ns);
	ck_assert_uint_eq(stream_of(STACKFILE_CPU)->head.covered_ns, from_ns);
	ck_assert_uint_eq(stream_of(STACKFILE_CPU)->head.units_per_second, NS_PER_S);
	stackrecorder_snapshot_release(&snapshot);

	/* The second question gets the same answer: nothing was consumed. */
	ck_assert_int_eq(stackrecorder_snapshot(recorder, from_ns, to_ns, 0, &snapshot), 0);
	ck_assert_uint_gt(look(pid).samples, 0);
	end();
}
END_TEST

START_TEST(records_beyond_the_limit_are_left_out_and_counted)
{
	uint64_t bytes = 0, left_out = 0;
	pid_t pid;

	if (!begin())
		return;
	pid = burning_child();
	wait_until_it_burned(pid, 200 * NS_PER_MS);
	ck_assert_int_eq(stackrecorder_snapshot(recorder, 0, UINT64_MAX, 1024, &snapshot), 0);
	end_child(pid);
	for (size_t i = 0; i < snapshot.stream_count; i++) {
		bytes += snapshot.streams[i].records.len;
		left_out += snapshot.streams[i].left_out;
	}
	ck_assert_uint_le(bytes, 1024);
	ck_assert_uint_gt(left_out, 0);
	end();
}
END_TEST

START_TEST(every_allocation_of_a_snapshot_may_fail)
{
	bool injected = true;

	if (!begin())
		return;
	for (long n = 1; injected && n < 100000; n++) {
		int r;

		torture_arm(n);
		r = stackrecorder_snapshot(recorder, 0, UINT64_MAX, 0, &snapshot);
		injected = torture_disarm();
		/* what the book or /proc could not be given memory for is missing, and no reason to fail */
		ck_assert(r == 0 || (injected && r == -ENOMEM));
		stackrecorder_snapshot_release(&snapshot);
	}
	ck_assert(!injected);
	end();
}
END_TEST

START_TEST(every_allocation_of_opening_may_fail)
{
	char reason[STACKRECORDER_REASON_MAX];
	bool injected = true;

	if (!begin())
		return;
	end();
	for (long n = 1; injected; n++) {
		int r;

		torture_arm(n);
		r = stackrecorder_open(&(struct stackrecorder_options){ 0 }, &recorder, reason);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		if (r == 0)
			stackrecorder_close(recorder);
		else
			ck_assert_str_ne(reason, "");
	}
	recorder = NULL;
}
END_TEST

START_TEST(without_permission_the_reason_is_told)
{
	int status;
	pid_t pid;

	if (getuid() != 0) {
		fprintf(stderr, "stackrecorder: refusal not checked: not root\n");
		return;
	}
	pid = fork();
	if (pid == 0) {
		char reason[STACKRECORDER_REASON_MAX];
		int r;

		if (setresuid(65534, 65534, 65534) < 0)
			_exit(1);
		r = stackrecorder_open(&(struct stackrecorder_options){ 0 }, &recorder, reason);
		if (r == 0) {
			struct stackrecorder_status got;

			stackrecorder_status(recorder, &got);
			/* kernel.perf_event_paranoid allows it to everybody, or at least of its own processes */
			_exit(got.everybody == (reason[0] == '\0') ? 0 : 3);
		}
		_exit((r == -EACCES || r == -EPERM) && strstr(reason, "perf_event_open: ") == reason &&
				      strstr(reason, "; kernel.perf_event_paranoid is ") != NULL
			      ? 0
			      : 2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

/* ---- followed ---- */

static struct stackrecorder_status status_now(void)
{
	struct stackrecorder_status status;

	stackrecorder_status(recorder, &status);
	return status;
}

static void wait_until_followed(unsigned processes)
{
	uint64_t deadline = now_ns() + WAIT_NS;

	while (status_now().followed_processes != processes) {
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(5000);
	}
}

static void follow_one(pid_t pid)
{
	uint32_t one = (uint32_t)pid;

	ck_assert_int_eq(stackrecorder_follow(recorder, &one, 1), 0);
	wait_until_followed(1);
}

START_TEST(a_followed_process_is_sampled_with_registers_and_stack)
{
	uint64_t since_ns = now_ns();
	struct seen seen;
	pid_t pid;

	if (!begin_with(&(struct stackrecorder_options){ .dwarf = true }))
		return;
	if (!status_now().dwarf) {
		fprintf(stderr, "stackrecorder: not checked: %s\n", status_now().limits);
		end();
		return;
	}
	pid = burning_child();
	follow_one(pid);
	ck_assert_uint_eq(status_now().followed_threads, 1);
	wait_until_it_burned(pid, 400 * NS_PER_MS);
	end_child(pid);
	ck_assert_int_eq(stackrecorder_snapshot(recorder, since_ns, UINT64_MAX, 0, &snapshot), 0);
	seen = look_in(STACKFILE_CPU_FOLLOWED, pid);
	ck_assert_uint_ge(seen.samples, 10);
	ck_assert_uint_eq(seen.with_stack, seen.samples);
	ck_assert_uint_ge(seen.in_function * 10, seen.samples * 8);
	ck_assert_str_eq(seen.comm, "burning;child");
	ck_assert_uint_eq(stream_of(STACKFILE_CPU_FOLLOWED)->head.stack_bytes, 8192);
	end();
}
END_TEST

Suite *stackrecorder_suite(void)
{
	Suite *suite = suite_create("stackrecorder");
	TCase *tcase = tcase_create("stackrecorder");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_child_that_burned_before_the_question_is_in_the_answer);
	tcase_add_test(tcase, a_process_that_was_there_before_is_looked_up_when_it_is_asked_for);
	tcase_add_test(tcase, a_child_that_has_exited_is_still_known);
	tcase_add_test(tcase, files_that_samples_were_in_are_listed);
	tcase_add_test(tcase, nothing_outside_the_span_is_given);
	tcase_add_test(tcase, records_beyond_the_limit_are_left_out_and_counted);
	tcase_add_test(tcase, every_allocation_of_a_snapshot_may_fail);
	tcase_add_test(tcase, every_allocation_of_opening_may_fail);
	tcase_add_test(tcase, without_permission_the_reason_is_told);
	tcase_add_test(tcase, a_followed_process_is_sampled_with_registers_and_stack);
	suite_add_tcase(suite, tcase);
	return suite;
}
