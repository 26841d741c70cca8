/*
 * check_hooks.c: commands that behave and commands that do not, run as an incident runs them, into
 * a directory that stands for its draft.
 */
#include "daemon/engine/incident/hooks.c"

#include "lib/config/config.h"
#include "daemon/engine/base/clocks.h"
#include "scene.h"
#include "skip.h"
#include "torture.h"
#include "lib/base/base.h"
#include "lib/incident/incident.h"
#include "lib/model/target.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>

Suite *hooks_suite(void);

#define RUNS_MAX 24

static char directory[64];
static struct hooks *hooks;
static struct clock the_clock;
static int dirfd_of, lockfd_of;
static struct config *config;

/* Of one incident. */
static struct one {
	struct hook_plan *plan;
	struct hook_run *run;
	struct incident incident;
	atomic_bool done;
} ones[RUNS_MAX];

static void setup(void)
{
	the_clock = real_clock();
	scene_directory(directory);
	dirfd_of = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dirfd_of, 0);
	ck_assert_int_eq(hooks_new(&the_clock, 0, &hooks), 0);
}

static void teardown(void)
{
	hooks_stop(hooks);
	hooks_free(hooks);
	for (int i = 0; i < RUNS_MAX; i++) {
		free(ones[i].run);
		hook_plan_free(ones[i].plan);
	}
	config_free(config);
	close(dirfd_of);
	scene_remove(directory);
}

static void on_done(void *ctx)
{
	atomic_store((atomic_bool *)ctx, true);
}

/* Begins what runs says, an array of JSON, as an incident of rule on a process. */
static void begin(struct one *one, const char *runs, const char *rule, int32_t pid)
{
	struct hooks_scene scene = {
		.dirfd = dirfd_of,
		.lockfd = lockfd_of,
		.procfd = AT_FDCWD,
		.pid = pid,
		.rule = rule,
		.target = "-a b/../c",
		.fired = clock_mono(&the_clock),
		.max_bytes = 1 << 20,
		.done = on_done,
		.ctx = &one->done,
	};
	static int procfd = -1;

	if (procfd < 0)
		procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	scene.procfd = procfd;
	config_free(config);
	config = scene_config("{\"targets\":[{\"name\":\"t\",\"pid\":1,\"run\":%s}],"
			      "\"rules\":[{\"name\":\"memory-a\",\"metric\":\"cpu\",\"percent\":1}]}",
			      runs);
	ck_assert_int_eq(hook_plan_new(&config->targets[0], rule, &one->plan), 0);
	ck_assert_ptr_nonnull(one->plan);
	scene.plan = one->plan;
	ck_assert_int_eq(hooks_start(hooks, &scene, &one->run), 0);
}

static void wait_for(struct one *one)
{
	scene_wait_for(atomic_load(&one->done));
	hook_run_report(TAKE(one->run), &one->incident);
}

static const struct incident_capture *run(const char *runs)
{
	begin(&ones[0], runs, "memory-a", getpid());
	wait_for(&ones[0]);

	return &ones[0].incident.captures[0];
}

#define SH(name, script, more) "{\"name\":\"" name "\",\"command\":[\"/bin/sh\",\"-c\",\"" script "\"]" more "}"

static char *output(const char *file)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", directory, file);

	return scene_read(path);
}

static bool is_alive(pid_t pid)
{
	char path[64], state = '?';

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	char *text = scene_read(path);

	if (text && strrchr(text, ')'))
		state = strrchr(text, ')')[2];
	free(text);

	return state != '?' && state != 'Z' && state != 'X';
}

/* A number that a command has written into a file of its own. */
static pid_t pid_in(const char *file)
{
	pid_t pid = 0;

	for (int naps = 0; naps < SCENE_NAPS && pid <= 0; naps++) {
		char *text = output(file);

		pid = text && strchr(text, '\n') ? (pid_t)strtol(text, NULL, 10) : 0;
		free(text);
		scene_nap();
	}
	ck_assert_int_gt(pid, 0);

	return pid;
}

START_TEST(what_a_command_says_is_in_its_file_and_how_it_ended_in_its_record)
{
	const struct incident_capture *record = run("[" SH("heap", "echo to out; echo to err >&2", "") "]");

	ck_assert_str_eq(record->name, "run-heap");
	ck_assert_str_eq(record->file, "run-heap.txt");
	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_OK);
	ck_assert_str_eq(record->why, "");
	ck_assert(record->has_exit && record->exit_status == 0 && !record->has_signal);
	ck_assert(record->has_duration && record->duration_ns > 0);
	ck_assert(record->has_at && record->at_ns >= 0);
	char *text = output("run-heap.txt");

	ck_assert_str_eq(text, "to out\nto err\n");
	ck_assert_uint_eq(record->bytes, strlen(text));
	free(text);
}
END_TEST

START_TEST(it_knows_what_it_is_for_and_nothing_of_the_daemon)
{
	char expected[600];
	int leak = open("/dev/null", O_RDONLY); /* without O_CLOEXEC, on purpose */

	sigset_t usr1;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	signal(SIGUSR2, SIG_IGN);
	run("[{\"name\":\"env\",\"command\":[\"/usr/bin/env\"]},"
	    "{\"name\":\"words\",\"command\":[\"/usr/bin/printf\",\"%s|\",\"{pid}\",\"{incident}/"
	    "x\",\"{rule}\",\"{target}\","
	    "\"{name}\",\"{{pid}\",\"a b;$(id)\",\"\"]},"
	    "{\"name\":\"state\",\"command\":[\"/bin/sh\",\"-c\",\"pwd; ls -l /proc/self/fd | wc -l; readlink "
	    "/proc/self/fd/0;"
	    " cat /proc/self/oom_score_adj; awk '{{print $1 == $5}' /proc/$$/stat; ulimit -c; ulimit -f;"
	    /*
	     * Signals 32 and 33 are the C library's: what was inherited of them cannot be reset.
	     */
	    " for mask in $(grep -E 'Sig(Blk|Ign)' /proc/self/status | awk '{{print $2}');"
	    " do echo $((0x$mask & ~0x180000000)); done\"]}]");
	signal(SIGUSR2, SIG_DFL);
	close(leak);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(ones[0].incident.captures[i].status, INCIDENT_CAPTURE_OK);

	char *text = output("run-env.txt");

	snprintf(expected, sizeof(expected),
		 "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nSPIKEWATCH_INCIDENT=%s\n"
		 "SPIKEWATCH_RULE=memory-a\nSPIKEWATCH_TARGET=_a_b_.._c\nSPIKEWATCH_PID=%d\n",
		 directory, getpid());
	ck_assert_str_eq(text, expected);
	free(text);
	text = output("run-words.txt");
	snprintf(expected, sizeof(expected), "%d|%s/x|memory-a|_a_b_.._c|words|{pid}|a b;$(id)||", getpid(), directory);
	ck_assert_str_eq(text, expected);
	free(text);
	text = output("run-state.txt");
	/* ls: a line for the total, 0, 1, 2 and the directory that it reads. */
	snprintf(expected, sizeof(expected), "%s\n5\n/dev/null\n0\n1\n0\n2048\n0\n0\n", directory);
	ck_assert_str_eq(text, expected);
	free(text);
}
END_TEST

START_TEST(commands_of_an_incident_run_one_after_the_other)
{
	begin(&ones[0], "[" SH("a", "sleep 0.2; echo a > order", "") "," SH("b", "cat order; echo b >> order", "") "]",
	      "memory-a", 0);
	wait_for(&ones[0]);
	char *text = output("run-b.txt");

	ck_assert_str_eq(text, "a\n");
	free(text);
	ck_assert_uint_eq(ones[0].incident.capture_count, 2);
	ck_assert_str_eq(ones[0].incident.captures[0].file, ""); /* it has said nothing */
	ck_assert_int_eq(faccessat(dirfd_of, "run-a.txt", F_OK, 0), -1);
	ck_assert_int_ge(ones[0].incident.captures[1].at_ns, ones[0].incident.captures[0].at_ns + 200000000);
}
END_TEST

START_TEST(only_commands_of_the_rule_run)
{
	begin(&ones[0],
	      "[" SH("a", "true", ",\"rules\":[\"manual\"]") "," SH("b", "true", ",\"rules\":[\"memory-*\"]") "]",
	      "memory-a", 0);
	wait_for(&ones[0]);
	ck_assert_uint_eq(ones[0].incident.capture_count, 1);
	ck_assert_str_eq(ones[0].incident.captures[0].name, "run-b");

	struct hook_plan *none = ones[0].plan;

	ck_assert_int_eq(hook_plan_new(&config->targets[0], "cpu", &none), 0);
	ck_assert_ptr_null(none);
}
END_TEST

START_TEST(another_exit_status_than_0_is_a_failure_that_says_so)
{
	const struct incident_capture *record = run("[" SH("x", "echo no; exit 3", "") "]");

	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(record->why, "exit status 3");
	ck_assert_int_eq(record->exit_status, 3);
	ck_assert_str_eq(record->file, "run-x.txt"); /* it may say why */
}
END_TEST

START_TEST(a_signal_that_ends_it_is_said)
{
	const struct incident_capture *record = run("[" SH("x", "kill -SEGV $$", "") "]");

	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(record->why, "ended by signal 11 (Segmentation fault)");
	ck_assert(record->has_signal && record->signal == SIGSEGV && !record->has_exit);
}
END_TEST

START_TEST(a_program_that_is_not_there_is_said_and_the_next_one_runs)
{
	const struct incident_capture *record =
		run("[{\"name\":\"x\",\"command\":[\"/proc/nonexistent\"]},{\"name\":\"y\",\"command\":[\"/dev/"
		    "null\"]}," SH("z", "true", "") "]");

	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(record->why, "could not be started: No such file or directory");
	ck_assert(!record->has_exit && !record->has_duration);
	ck_assert_str_eq(record[1].why, "could not be started: Permission denied");
	ck_assert_int_eq(record[2].status, INCIDENT_CAPTURE_OK);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), 0); /* no zombie is left: there is only the keeper */
}
END_TEST

START_TEST(what_runs_holds_the_lock_of_its_draft)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/lock", directory);
	lockfd_of = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	AUTO_CLOSE int other = open(path, O_RDWR | O_CLOEXEC);

	ck_assert_int_eq(flock(lockfd_of, LOCK_EX), 0);
	begin(&ones[0], "[" SH("a", "echo $$ > pid; exec sleep 1000", ",\"timeout\":\"60s\"") "]", "memory-a",
	      getpid());

	pid_t pid = pid_in("pid");

	close(lockfd_of);
	ck_assert_int_lt(flock(other, LOCK_EX | LOCK_NB), 0);
	kill(pid, SIGKILL);
	wait_for(&ones[0]);
	scene_wait_for(flock(other, LOCK_EX | LOCK_NB) == 0);
}
END_TEST

START_TEST(what_ignores_sigterm_is_killed_with_what_it_has_forked)
{
	begin(&ones[0],
	      "[" SH("x", "trap '' TERM; (trap '' TERM; sleep 1000) & echo $! > child; wait; sleep 1000",
		     ",\"timeout\":\"200ms\"") "]",
	      "memory-a", 0);
	pid_t child = pid_in("child");

	ck_assert(is_alive(child));
	wait_for(&ones[0]);

	const struct incident_capture *record = &ones[0].incident.captures[0];

	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(record->why, "ended because it took longer than 200 ms");
	ck_assert_int_eq(record->signal, SIGKILL);
	ck_assert_uint_ge(record->duration_ns, 200 * NS_PER_MS + HOOKS_GRACE_NS);
	scene_wait_for(!is_alive(child));
}
END_TEST

START_TEST(what_obeys_sigterm_is_given_time_to_tidy_up)
{
	const struct incident_capture *record = run("[" SH(
		"x", "trap 'echo tidy; exit 7' TERM; while :; do sleep 0.01; done", ",\"timeout\":\"300ms\"") "]");

	ck_assert_str_eq(record->why, "ended because it took longer than 300 ms");
	ck_assert(record->has_exit && record->exit_status == 7);
	char *text = output("run-x.txt");

	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_nonnull(strstr(text, "tidy"));
	free(text);
}
END_TEST

START_TEST(what_it_leaves_running_in_its_group_is_killed_at_once)
{
	const struct incident_capture *record = run("[" SH("x", "sleep 1000 & echo $! > child", "") "]");
	pid_t child = pid_in("child");

	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_OK);
	ck_assert_uint_lt(record->duration_ns, 20 * NS_PER_S);
	scene_wait_for(!is_alive(child));
}
END_TEST

START_TEST(what_has_left_its_group_and_holds_the_pipe_ends_with_it)
{
	const struct incident_capture *record =
		run("[" SH("x", "setsid sleep 1000 & echo $! > child; sleep 0.2", "") "]");
	pid_t child = pid_in("child");

	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_OK);
	ck_assert(!is_alive(child));
}
END_TEST

START_TEST(what_writes_endlessly_is_cut)
{
	const struct incident_capture *record =
		run("[{\"name\":\"x\",\"command\":[\"/usr/bin/yes\"],\"max_output\":\"100KiB\"}]");
	struct stat st;

	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_OK);
	ck_assert_str_eq(record->why, "cut: its output is larger than 100 KiB");
	ck_assert_uint_eq(record->bytes, 102400);
	ck_assert_int_eq(fstatat(dirfd_of, "run-x.txt", &st, 0), 0);
	ck_assert_int_eq(st.st_size, 102400);
}
END_TEST

START_TEST(what_is_exactly_as_long_as_it_may_be_is_not_cut)
{
	const struct incident_capture *record =
		run("[{\"name\":\"x\",\"command\":[\"/usr/bin/head\",\"-c\",\"102400\",\"/dev/zero\"],"
		    "\"max_output\":\"100KiB\"}]");

	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_OK);
	ck_assert_str_eq(record->why, "");
	ck_assert_uint_eq(record->bytes, 102400);
}
END_TEST

START_TEST(a_file_that_grows_beyond_an_incident_ends_it)
{
	const struct incident_capture *record = run("[" SH("x", "exec head -c 2000000 /dev/zero > big", "") "]");
	struct stat st;

	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(record->why, "ended because a file of it grew beyond max_incident_size");
	ck_assert_int_eq(fstatat(dirfd_of, "big", &st, 0), 0);
	ck_assert_int_eq(st.st_size, 1 << 20);
}
END_TEST

START_TEST(a_process_that_is_gone_or_never_was_is_not_asked_about)
{
	pid_t gone = fork();

	if (gone == 0)
		_exit(0);
	ck_assert_int_eq(waitpid(gone, NULL, 0), gone);
	begin(&ones[0], "[{\"name\":\"x\",\"command\":[\"/bin/echo\",\"{pid}\"]}," SH("y", "true", "") "]", "memory-a",
	      gone);
	wait_for(&ones[0]);
	ck_assert_int_eq(ones[0].incident.captures[0].status, INCIDENT_CAPTURE_SKIPPED);
	ck_assert_str_eq(ones[0].incident.captures[0].why, "target has exited");
	ck_assert_int_eq(ones[0].incident.captures[1].status, INCIDENT_CAPTURE_OK);

	begin(&ones[1], "[{\"name\":\"z\",\"command\":[\"/bin/echo\",\"{pid}\"]}]", "memory-a", 0);
	wait_for(&ones[1]);
	ck_assert_str_eq(ones[1].incident.captures[0].why, "the target has no process");
}
END_TEST

START_TEST(of_twenty_at_once_four_run_and_the_others_are_refused)
{
	size_t refused = 0, ran = 0;

	for (int i = 0; i < 20; i++) {
		char runs[200];

		snprintf(runs, sizeof(runs), "[" SH("n%d", "while [ ! -e go ]; do sleep 0.01; done", "") "]", i);
		begin(&ones[i], runs, "memory-a", 0);
	}
	for (int naps = 0; naps < SCENE_NAPS; naps++) {
		refused = 0;
		for (int i = 0; i < 20; i++)
			refused += atomic_load(&ones[i].done);
		if (refused == 16)
			break;
		scene_nap();
	}
	ck_assert_uint_eq(refused, 16);
	close(openat(dirfd_of, "go", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	for (int i = 0; i < 20; i++) {
		wait_for(&ones[i]);
		const struct incident_capture *record = &ones[i].incident.captures[0];

		ran += record->status == INCIDENT_CAPTURE_OK;
		if (record->status != INCIDENT_CAPTURE_OK)
			ck_assert_str_eq(record->why, "refused: too many commands are running");
	}
	ck_assert_uint_eq(ran, HOOKS_AT_ONCE);

	/* There is room again. */
	begin(&ones[20], "[" SH("more", "true", "") "]", "memory-a", 0);
	wait_for(&ones[20]);
	ck_assert_int_eq(ones[20].incident.captures[0].status, INCIDENT_CAPTURE_OK);
}
END_TEST

START_TEST(when_the_daemon_stops_what_runs_is_ended_and_nothing_more_begins)
{
	begin(&ones[0], "[" SH("a", "echo here > there; sleep 1000", "") "," SH("b", "true", "") "]", "memory-a", 0);
	scene_wait_for(faccessat(dirfd_of, "there", F_OK, 0) == 0);
	hooks->stop_ns = 100 * NS_PER_MS; /* read by the thread once it is told to stop */
	hooks_stop(hooks);
	wait_for(&ones[0]);
	ck_assert_str_eq(ones[0].incident.captures[0].why, "ended because the daemon was stopped");
	ck_assert_uint_ge(ones[0].incident.captures[0].duration_ns, hooks->stop_ns);
	ck_assert_int_eq(ones[0].incident.captures[1].status, INCIDENT_CAPTURE_SKIPPED);
	ck_assert_str_eq(ones[0].incident.captures[1].why, "the daemon was being stopped");
}
END_TEST

START_TEST(what_is_nearly_done_when_the_daemon_stops_may_end)
{
	begin(&ones[0], "[" SH("a", "echo here > there; sleep 0.3; echo done", "") "]", "memory-a", 0);
	scene_wait_for(faccessat(dirfd_of, "there", F_OK, 0) == 0);
	hooks_stop(hooks);
	wait_for(&ones[0]);
	ck_assert_int_eq(ones[0].incident.captures[0].status, INCIDENT_CAPTURE_OK);
}
END_TEST

START_TEST(a_file_that_is_there_already_is_not_written_over)
{
	ck_assert_int_eq(symlinkat("/proc/nonexistent/file", dirfd_of, "run-x.txt"), 0);
	const struct incident_capture *record = run("[" SH("x", "echo something", "") "]");

	ck_assert_int_eq(record->status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(record->why, "its output could not be written: File exists");
	ck_assert_str_eq(record->file, "");
}
END_TEST

START_TEST(words_that_become_too_long_are_refused)
{
	char runs[3000] = "[{\"name\":\"x\",\"command\":[\"/bin/echo\",\"", *at = runs + strlen(runs);

	/* 250 paths of 24 bytes and more in each of 16 words. */
	for (int i = 0; i < 250; i++)
		at += snprintf(at, 12, "{incident}");
	snprintf(at, 20, "\"]}]");
	begin(&ones[0], runs, "memory-a", 0);
	wait_for(&ones[0]);
	ck_assert_int_eq(ones[0].incident.captures[0].status, INCIDENT_CAPTURE_OK);

	struct hook_plan *plan = ones[0].plan;
	char incident[4096];
	char **words = NULL;

	memset(incident, 'i', sizeof(incident));
	incident[sizeof(incident) - 1] = '\0';
	const struct command_template_values values = { { [COMMAND_TEMPLATE_INCIDENT] = incident } };

	ck_assert_int_eq(hook_plan_words(&plan->commands[0], &values, &words), -E2BIG);
	ck_assert_ptr_null(words);
}
END_TEST

START_TEST(whatever_allocation_fails_nothing_is_left)
{
	const struct command_template_values values = { { [COMMAND_TEMPLATE_PID] = "1" } };
	bool injected = true;

	config = scene_config(
		"{\"targets\":[{\"name\":\"t\",\"pid\":1,\"run\":[" SH("a", "x{pid}", "") "," SH("b", "y", "") "]}]}");
	for (long n = 1; injected; n++) {
		struct hook_plan *plan = NULL;
		char **words = NULL;

		torture_arm(n);
		int r = hook_plan_new(&config->targets[0], "r", &plan);

		if (r == 0)
			r = hook_plan_words(&plan->commands[0], &values, &words);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		free(words);
		hook_plan_free(plan);
	}
	injected = true;
	for (long n = 1; injected; n++) {
		struct hooks *more = NULL;

		torture_arm(n);
		int r = hooks_new(&the_clock, 0, &more);

		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		hooks_free(more);
	}
}
END_TEST

/* Bits of a set of /proc/self/status that a command has copied. */
static uint64_t own_set(const char *name)
{
	char *text = output("run-x.txt"), *at = text ? strstr(text, name) : NULL;

	ck_assert_msg(at, "no %s", name);
	uint64_t bits = strtoull(at + strlen(name), NULL, 16);

	free(text);
	return bits;
}

START_TEST(a_command_has_no_capabilities_unless_it_is_privileged)
{
	ck_assert_int_eq(run("[{\"name\":\"x\",\"command\":[\"/bin/cat\",\"/proc/self/status\"]}]")->status,
			 INCIDENT_CAPTURE_OK);
	ck_assert_uint_eq(own_set("CapPrm:") | own_set("CapEff:") | own_set("CapInh:") | own_set("CapAmb:"), 0);
	ck_assert_uint_eq(own_set("NoNewPrivs:"), 1);
	ck_assert_uint_eq(own_set("Seccomp:"), 2);
}
END_TEST

START_TEST(a_privileged_command_has_what_the_daemon_has)
{
	if (geteuid() != 0)
		SKIP_TEST("only root has capabilities to keep");
	run("[{\"name\":\"x\",\"command\":[\"/bin/cat\",\"/proc/self/status\"],\"privileged\":true}]");
	ck_assert_uint_ne(own_set("CapEff:"), 0);
	ck_assert_uint_eq(own_set("NoNewPrivs:"), 0);
}
END_TEST

Suite *hooks_suite(void)
{
	Suite *suite = suite_create("hooks");
	TCase *tcase = tcase_create("commands");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_a_command_says_is_in_its_file_and_how_it_ended_in_its_record);
	tcase_add_test(tcase, it_knows_what_it_is_for_and_nothing_of_the_daemon);
	tcase_add_test(tcase, commands_of_an_incident_run_one_after_the_other);
	tcase_add_test(tcase, only_commands_of_the_rule_run);
	tcase_add_test(tcase, another_exit_status_than_0_is_a_failure_that_says_so);
	tcase_add_test(tcase, a_signal_that_ends_it_is_said);
	tcase_add_test(tcase, a_program_that_is_not_there_is_said_and_the_next_one_runs);
	tcase_add_test(tcase, what_runs_holds_the_lock_of_its_draft);
	tcase_add_test(tcase, what_ignores_sigterm_is_killed_with_what_it_has_forked);
	tcase_add_test(tcase, what_obeys_sigterm_is_given_time_to_tidy_up);
	tcase_add_test(tcase, what_it_leaves_running_in_its_group_is_killed_at_once);
	tcase_add_test(tcase, what_has_left_its_group_and_holds_the_pipe_ends_with_it);
	tcase_add_test(tcase, what_writes_endlessly_is_cut);
	tcase_add_test(tcase, what_is_exactly_as_long_as_it_may_be_is_not_cut);
	tcase_add_test(tcase, a_file_that_grows_beyond_an_incident_ends_it);
	tcase_add_test(tcase, a_process_that_is_gone_or_never_was_is_not_asked_about);
	tcase_add_test(tcase, of_twenty_at_once_four_run_and_the_others_are_refused);
	tcase_add_test(tcase, when_the_daemon_stops_what_runs_is_ended_and_nothing_more_begins);
	tcase_add_test(tcase, what_is_nearly_done_when_the_daemon_stops_may_end);
	tcase_add_test(tcase, a_file_that_is_there_already_is_not_written_over);
	tcase_add_test(tcase, words_that_become_too_long_are_refused);
	tcase_add_test(tcase, whatever_allocation_fails_nothing_is_left);
	tcase_add_test(tcase, a_command_has_no_capabilities_unless_it_is_privileged);
	tcase_add_test(tcase, a_privileged_command_has_what_the_daemon_has);
	suite_add_tcase(suite, tcase);

	return suite;
}
