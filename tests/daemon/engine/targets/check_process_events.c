/*
 * check_process_events.c: what the kernel says of our own processes, by every source that is
 * allowed here.
 */
#include "daemon/engine/targets/process_events.h"
#include "skip.h"
#include "scene.h"
#include "torture.h"
#include "daemon/engine/base/clocks.h"
#include "lib/proc/procfs.h"

#include <errno.h>
#include <sched.h>

Suite *process_events_suite(void);

static const enum process_events_source sources[] = { PROCESS_EVENTS_CONNECTOR, PROCESS_EVENTS_PERF };

static struct procevent events[4 * PROCESS_EVENTS_BATCH];
static struct process_events_info info;

static struct process_events *opened(enum process_events_source only)
{
	struct process_events *listener = NULL;
	int r = process_events_open(&(struct process_events_options){ .only = only }, &listener, &info);

	if (r < 0)
		ck_assert_str_ne(info.why, "");

	return listener;
}

static void *nothing(void *ctx)
{
	return ctx;
}

/* A process that starts a thread and executes something. */
static pid_t run(void)
{
	pid_t pid = fork();
	pthread_t thread;

	if (pid == 0) {
		if (pthread_create(&thread, NULL, nothing, NULL) == 0)
			pthread_join(thread, NULL);
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);

	return pid;
}

struct heard {
	unsigned count[PROCEVENT_TOTALS + 1];
	bool lost, disordered; /* totals and then something else */
	struct procevent_totals totals;
};

static void hear(struct process_events *listener, pid_t pid, struct heard *heard)
{
	bool lost, more;
	size_t count;

	do {
		count = process_events_read(listener, events, ARRAY_LEN(events), &lost, &more);
		heard->lost |= lost;
		for (size_t i = 0; i < count; i++) {
			if (events[i].pid != pid)
				continue;
			heard->disordered |= heard->count[PROCEVENT_TOTALS] > 0;
			heard->count[events[i].kind]++;
			if (events[i].kind == PROCEVENT_TOTALS)
				heard->totals = events[i].totals;
		}
	} while (count > 0);
}

START_TEST(a_life_is_heard_and_its_threads_are_not)
{
	struct process_events *listener = opened(sources[_i]);
	struct heard heard = { 0 };
	pid_t pid;

	if (!listener)
		SKIP_TEST("%s", info.why);
	ck_assert_int_eq(info.source, sources[_i]);
	pid = run();
	scene_wait_for((hear(listener, pid, &heard), heard.lost || heard.count[PROCEVENT_EXIT] == 1));
	if (!heard.lost) {
		ck_assert_uint_eq(heard.count[PROCEVENT_FORK], 1);
		ck_assert_uint_eq(heard.count[PROCEVENT_EXEC], 1);
	}
	process_events_close(listener);
}
END_TEST

START_TEST(all_that_it_used_is_heard_last)
{
	struct process_events *listener = opened(PROCESS_EVENTS_CONNECTOR);
	struct heard heard = { 0 };

	if (!listener || !info.exit_totals) {
		process_events_close(listener);
		SKIP_TEST("no exit records: %s", info.why);
	}
	pid_t pid = run();

	scene_wait_for((hear(listener, pid, &heard), heard.lost || heard.count[PROCEVENT_TOTALS] == 1));
	if (!heard.lost) {
		ck_assert_str_eq(heard.totals.comm, "true");
		ck_assert_uint_gt(heard.totals.cpu_ns, 0);
		ck_assert(heard.totals.threads);
		ck_assert(!heard.disordered);
	}
	process_events_close(listener);
}
END_TEST

/* More than are taken at once, of each kind, which came while nobody listened. */
#define PILED 200

START_TEST(when_there_is_no_more_nothing_is_left)
{
	struct process_events *listener = opened(PROCESS_EVENTS_CONNECTOR);
	bool lost = false, more = true;
	pid_t pids[PILED];
	unsigned heard = 0;

	if (!listener || !info.exit_totals) {
		process_events_close(listener);
		SKIP_TEST("no exit records: %s", info.why);
	}
	for (unsigned i = 0; i < PILED; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			_exit(0);
		ck_assert_int_eq(waitpid(pids[i], NULL, 0), pids[i]);
	}
	while (more) {
		bool some_lost;
		size_t count = process_events_read(listener, events, ARRAY_LEN(events), &some_lost, &more);

		lost |= some_lost;
		for (size_t e = 0; e < count; e++)
			for (unsigned i = 0; events[e].kind == PROCEVENT_TOTALS && i < PILED; i++)
				heard += events[e].pid == pids[i];
	}
	process_events_close(listener);
	if (lost)
		SKIP_TEST("the machine had more events than there is room for");
	ck_assert_uint_eq(heard, PILED);
}
END_TEST

START_TEST(what_found_no_room_is_said)
{
	struct process_events_options tiny = { .only = sources[_i], .receive_bytes = 1, .ring_bytes = 4096 };
	struct process_events *listener = NULL;
	struct heard heard = { 0 };

	if (process_events_open(&tiny, &listener, &info) < 0)
		SKIP_TEST("%s", info.why);
	for (int i = 0; i < 20 && !heard.lost; i++) {
		for (int j = 0; j < 50; j++)
			run();
		hear(listener, 0, &heard);
	}
	ck_assert(heard.lost);
	process_events_close(listener);
}
END_TEST

/* Other namespaces are for the privileged. */
static void *open_elsewhere(void *ctx)
{
	if (unshare(CLONE_NEWNET) == 0)
		*(bool *)ctx = opened(PROCESS_EVENTS_CONNECTOR) == NULL;

	return NULL;
}

START_TEST(in_another_network_namespace_there_is_no_connector)
{
	bool refused = false;
	pthread_t thread;

	info.why[0] = '\0';
	ck_assert_int_eq(pthread_create(&thread, NULL, open_elsewhere, &refused), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	if (refused)
		ck_assert_ptr_nonnull(strstr(info.why, "proc connector: not "));
}
END_TEST

/* The namespace's connector: 0 if it was refused within a second, with its reason. */
static int open_in_namespace(void)
{
	struct clock clock = real_clock();
	mono_t begin = clock_mono(&clock);

	if (opened(PROCESS_EVENTS_CONNECTOR) != NULL)
		return 1;
	return *info.why && mono_diff(clock_mono(&clock), begin) < (int64_t)NS_PER_S ? 0 : 2;
}

/* The host's events arrive there for ever, the answer to the subscription does not. */
START_TEST(in_a_pid_namespace_with_the_hosts_network_there_is_no_connector)
{
	struct process_events *host = opened(PROCESS_EVENTS_CONNECTOR);
	int status = 0;
	pid_t pid;

	if (host == NULL)
		SKIP_TEST("no proc connector: %s", info.why);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (unshare(CLONE_NEWPID) < 0)
			_exit(3);
		pid = fork();
		if (pid == 0)
			_exit(open_in_namespace());
		waitpid(pid, &status, 0);
		_exit(WEXITSTATUS(status));
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		pid_t busy = fork();

		if (busy == 0)
			_exit(0);
		waitpid(busy, NULL, 0);
	}
	process_events_close(host);
	if (WEXITSTATUS(status) == 3)
		SKIP_TEST("no pid namespaces");
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

START_TEST(without_memory_it_does_not_open)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct process_events_options options = { .only = sources[_i] };
		struct process_events *listener = NULL;

		torture_arm(n);
		int r = process_events_open(&options, &listener, &info);
		injected = torture_disarm();
		ck_assert(!injected || r == -ENOMEM);
		process_events_close(listener);
	}
}
END_TEST

/* As in a program that was started without standard input: descriptor 0 is closed again, too. */
START_TEST(descriptor_0_is_not_left_open)
{
	close(STDIN_FILENO);
	process_events_close(opened(sources[_i]));
	ck_assert_int_eq(fcntl(STDIN_FILENO, F_GETFD), -1);
}
END_TEST

Suite *process_events_suite(void)
{
	Suite *suite = suite_create("process_events");
	TCase *tcase = tcase_create("listening");

	tcase_add_loop_test(tcase, a_life_is_heard_and_its_threads_are_not, 0, 2);
	tcase_add_test(tcase, all_that_it_used_is_heard_last);
	tcase_add_test(tcase, when_there_is_no_more_nothing_is_left);
	tcase_add_loop_test(tcase, what_found_no_room_is_said, 0, 2);
	tcase_add_test(tcase, in_another_network_namespace_there_is_no_connector);
	tcase_add_test(tcase, in_a_pid_namespace_with_the_hosts_network_there_is_no_connector);
	tcase_add_loop_test(tcase, without_memory_it_does_not_open, 0, 2);
	tcase_add_loop_test(tcase, descriptor_0_is_not_left_open, 0, 2);
	suite_add_tcase(suite, tcase);

	return suite;
}
