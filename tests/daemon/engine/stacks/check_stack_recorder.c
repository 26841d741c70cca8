/*
 * check_stack_recorder.c: what ran is in the snapshot, with what was mapped. Needs to be allowed to
 * open perf events; says so if it is not.
 */
#include "stack_recorder_rig.h"
#include "torture.h"

#include <sys/mman.h>

Suite *stack_recorder_suite(void);

static struct stack_recorder_rig rig;

static void check_child(pid_t pid, uint64_t since_ns, uint64_t asked_ns)
{
	struct seen seen = look(&rig, pid);

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

	if (!begin(&rig))
		SKIP_TEST("%s", skip_reason);
	pid = burning_child();
	wait_until_it_burned(pid, 400 * NS_PER_MS);
	asked_ns = now_ns();
	ck_assert_int_eq(stack_recorder_snapshot(rig.recorder, since_ns, asked_ns, 0, &rig.snapshot), 0);
	end_child(pid);
	check_child(pid, since_ns, asked_ns);
	end(&rig);
}
END_TEST

START_TEST(a_process_that_was_there_before_is_looked_up_when_it_is_asked_for)
{
	pid_t pid = burning_child();
	uint64_t since_ns = now_ns(), asked_ns;

	if (!begin(&rig)) {
		end_child(pid);
		SKIP_TEST("%s", skip_reason);
	}
	wait_until_it_burned(pid, 400 * NS_PER_MS);
	asked_ns = now_ns();
	ck_assert_int_eq(stack_recorder_snapshot(rig.recorder, since_ns, asked_ns, 0, &rig.snapshot), 0);
	end_child(pid);
	check_child(pid, since_ns, asked_ns);
	end(&rig);
}
END_TEST

START_TEST(a_child_that_has_exited_is_still_known)
{
	uint64_t since_ns = now_ns(), asked_ns;
	pid_t pid;

	if (!begin(&rig))
		SKIP_TEST("%s", skip_reason);
	pid = burning_child();
	wait_until_it_burned(pid, 400 * NS_PER_MS);
	asked_ns = now_ns();
	end_child(pid);
	ck_assert_int_eq(stack_recorder_snapshot(rig.recorder, since_ns, asked_ns, 0, &rig.snapshot), 0);
	check_child(pid, since_ns, asked_ns);
	end(&rig);
}
END_TEST

START_TEST(files_that_samples_were_in_are_listed)
{
	char self[4096] = "";
	bool found = false;
	pid_t pid;

	ck_assert_int_gt(readlink("/proc/self/exe", self, sizeof(self) - 1), 0);
	if (!begin(&rig))
		SKIP_TEST("%s", skip_reason);
	pid = burning_child();
	wait_until_it_burned(pid, 400 * NS_PER_MS);
	ck_assert_int_eq(stack_recorder_snapshot(rig.recorder, 0, UINT64_MAX, 0, &rig.snapshot), 0);
	end_child(pid);
	for (size_t i = 0; i < rig.snapshot.file_count; i++) {
		const struct stack_recorder_file *file = &rig.snapshot.files[i];

		ck_assert_uint_gt(file->frames, 0);
		ck_assert(i == 0 || rig.snapshot.files[i - 1].frames >= file->frames);
		found |= strcmp(file->path, self) == 0 && (file->file.build_id_len == 20 || file->file.inode != 0);
	}
	ck_assert(found);
	for (size_t i = 1; i < rig.snapshot.pid_count; i++)
		ck_assert_uint_lt(rig.snapshot.pids[i - 1], rig.snapshot.pids[i]);
	end(&rig);
}
END_TEST

START_TEST(nothing_outside_the_span_is_given)
{
	uint64_t from_ns, to_ns;
	pid_t pid;

	if (!begin(&rig))
		SKIP_TEST("%s", skip_reason);
	pid = burning_child();
	wait_until_it_burned(pid, 200 * NS_PER_MS);
	from_ns = now_ns();
	wait_until_it_burned(pid, 200 * NS_PER_MS);
	to_ns = now_ns();
	wait_until_it_burned(pid, 200 * NS_PER_MS);
	ck_assert_int_eq(stack_recorder_snapshot(rig.recorder, from_ns, to_ns, 0, &rig.snapshot), 0);
	end_child(pid);
	ck_assert_uint_gt(look(&rig, pid).samples, 0);
	ck_assert_uint_ge(look(&rig, pid).first_ns, from_ns);
	ck_assert_uint_le(look(&rig, pid).last_ns, to_ns);
	ck_assert_uint_eq(stream_of(&rig, STACK_FILE_CPU)->head.covered_ns, from_ns);
	ck_assert_uint_eq(stream_of(&rig, STACK_FILE_CPU)->head.units_per_second, NS_PER_S);
	stack_recorder_snapshot_release(&rig.snapshot);

	/* The second question gets the same answer: nothing was consumed. */
	ck_assert_int_eq(stack_recorder_snapshot(rig.recorder, from_ns, to_ns, 0, &rig.snapshot), 0);
	ck_assert_uint_gt(look(&rig, pid).samples, 0);
	end(&rig);
}
END_TEST

START_TEST(records_beyond_the_limit_are_left_out_and_counted)
{
	uint64_t bytes = 0, left_out = 0;
	pid_t pid;

	if (!begin(&rig))
		SKIP_TEST("%s", skip_reason);
	pid = burning_child();
	wait_until_it_burned(pid, 200 * NS_PER_MS);
	ck_assert_int_eq(stack_recorder_snapshot(rig.recorder, 0, UINT64_MAX, 1024, &rig.snapshot), 0);
	end_child(pid);
	for (size_t i = 0; i < rig.snapshot.stream_count; i++) {
		bytes += rig.snapshot.streams[i].records.len;
		left_out += rig.snapshot.streams[i].left_out;
	}
	ck_assert_uint_le(bytes, 1024);
	ck_assert_uint_gt(left_out, 0);
	end(&rig);
}
END_TEST

START_TEST(every_allocation_of_a_snapshot_may_fail)
{
	bool injected = true;

	if (!begin(&rig))
		SKIP_TEST("%s", skip_reason);
	for (long n = 1; injected && n < 100000; n++) {
		int r;

		torture_arm(n);
		r = stack_recorder_snapshot(rig.recorder, 0, UINT64_MAX, 0, &rig.snapshot);
		injected = torture_disarm();
		/*
		 * what the book or /proc could not be given memory for is missing, and no reason to
		 * fail
		 */
		ck_assert(r == 0 || (injected && r == -ENOMEM));
		stack_recorder_snapshot_release(&rig.snapshot);
	}
	ck_assert(!injected);
	end(&rig);
}
END_TEST

START_TEST(every_allocation_of_opening_may_fail)
{
	char reason[STACK_RECORDER_REASON_MAX];
	bool injected = true;

	if (!begin(&rig))
		SKIP_TEST("%s", skip_reason);
	end(&rig);
	for (long n = 1; injected; n++) {
		int r;

		torture_arm(n);
		r = stack_recorder_open(&(struct stack_recorder_options){ 0 }, &rig.recorder, reason);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		if (r == 0)
			stack_recorder_close(rig.recorder);
		else
			ck_assert_str_ne(reason, "");
	}
	rig.recorder = NULL;
}
END_TEST

START_TEST(without_permission_the_reason_is_told)
{
	int status;
	pid_t pid;

	if (getuid() != 0) {
		SKIP_TEST("not root");
	}
	pid = fork();
	if (pid == 0) {
		char reason[STACK_RECORDER_REASON_MAX];
		int r;

		if (setresuid(65534, 65534, 65534) < 0)
			_exit(1);
		r = stack_recorder_open(&(struct stack_recorder_options){ 0 }, &rig.recorder, reason);
		if (r == 0) {
			struct stack_recorder_status got;

			stack_recorder_status(rig.recorder, &got);
			/*
			 * kernel.perf_event_paranoid allows it to everybody, or at least of its own
			 * processes
			 */
			_exit(got.system_wide == (reason[0] == '\0') ? 0 : 3);
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

Suite *stack_recorder_suite(void)
{
	Suite *suite = suite_create("stack_recorder");
	TCase *tcase = tcase_create("stack_recorder");

	tcase_add_test(tcase, a_child_that_burned_before_the_question_is_in_the_answer);
	tcase_add_test(tcase, a_process_that_was_there_before_is_looked_up_when_it_is_asked_for);
	tcase_add_test(tcase, a_child_that_has_exited_is_still_known);
	tcase_add_test(tcase, files_that_samples_were_in_are_listed);
	tcase_add_test(tcase, nothing_outside_the_span_is_given);
	tcase_add_test(tcase, records_beyond_the_limit_are_left_out_and_counted);
	tcase_add_test(tcase, every_allocation_of_a_snapshot_may_fail);
	tcase_add_test(tcase, every_allocation_of_opening_may_fail);
	tcase_add_test(tcase, without_permission_the_reason_is_told);
	suite_add_tcase(suite, tcase);
	return suite;
}
