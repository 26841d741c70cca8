/*
 * check_discovery_news.c: what happens between two scans, with real processes and whichever sources
 * this machine allows. Rescans are an hour apart, so that what is found was heard of. Nothing is
 * held against a clock: what is waited for comes, or the test fails.
 */
#include "daemon/engine/base/clocks.h"
#include "discovery_rig.h"
#include "skip.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>

Suite *discovery_news_suite(void);

static struct discovery_rig rig;

static void setup(void)
{
	discovery_rig_setup(&rig);
}

static void teardown(void)
{
	discovery_rig_teardown(&rig);
}

#define HOURLY "\"sampling\": {\"rescan_interval\": \"1h\"}, "
#define ENTRY(selector) "{\"name\": \"e\", " selector "}"
#define SHORT_ENTRY ENTRY("\"comm\": \"short@\"")
#define TRIES 20

static struct discovery_options options;
static const char *cgroup_root; /* NULL: the machine's */

/* make() of the rig, with a listener as wanted and the threads running. */
static void start(struct config *made, struct process_events_options listen)
{
	struct ring_options ring_options = { .size_bytes = 4 << 20, .page_bytes = 16384 };
	struct sampler_options sampler_options = { .source = { .capacity = 4096, .interval_ns = 2 * NS_PER_MS } };

	scene_own(""); /* before there is a child that would say another number */
	rig.config = made;
	rig.procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(cgroup_mounts_new("/proc", cgroup_root, &rig.mounts), 0);
	ck_assert_int_eq(ring_create_anonymous(&ring_options, &rig.ring), 0);
	ck_assert_int_eq(samplers_new(&sampler_options, 1, rig.ring, &rig.samplers), 0);
	options = (struct discovery_options){
		.target_table = {
			.machine = { .cores = 2, .memory_bytes = 1 << 30 },
			.config = rig.config,
			.samplers = rig.samplers,
			.mounts = rig.mounts,
			.procfd = rig.procfd,
			.own_proc = true,
		},
		.listen = listen,
	};
	ck_assert_int_eq(discovery_new(&options, &rig.discovery), 0);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
}

static struct discovery_state state(void)
{
	struct discovery_state found;

	discovery_state(rig.discovery, &found);

	return found;
}

/* Whether the machine lets this source be heard; starts on it and waits for the first scan. */
static bool started(const char *entries, struct process_events_options listen)
{
	start(scene_config("{" HOURLY "\"targets\": [%s]}", entries), listen);
	scene_wait_for(state().scans >= 1);

	return state().source != PROCESS_EVENTS_NONE &&
	       (listen.only == PROCESS_EVENTS_NONE || state().source == listen.only);
}

static const struct process_events_options sources[] = {
	{ .only = PROCESS_EVENTS_CONNECTOR },
	{ .only = PROCESS_EVENTS_PERF },
};

/* ---- what the sampler made of it ---- */

struct tally {
	const char *name;
	struct ring_cursor *cursor;
	uint32_t id; /* of the last target of that name */
	unsigned described;
	uint64_t cpu_ns; /* the highest */
	bool stepped_back;
};

static void read_on(struct tally *tally)
{
	struct ring_event event;

	if (!tally->cursor)
		ck_assert_int_eq(ring_cursor_new(rig.ring, RING_OLDEST, &tally->cursor), 0);
	while (ring_cursor_next(tally->cursor, &event) == 0) {
		if (event.type == RING_EVENT_TARGET && strcmp(event.target.name, tally->name) == 0) {
			tally->id = event.id;
			tally->described++;
		}
		if (event.type != RING_EVENT_SAMPLE || event.id != tally->id || !sample_has(event.sample, SAMPLE_CPU))
			continue;
		tally->stepped_back |= event.sample->value[SAMPLE_CPU] < tally->cpu_ns;
		tally->cpu_ns = event.sample->value[SAMPLE_CPU];
	}
}

static bool has_cpu(struct tally *tally, uint64_t least_ns)
{
	read_on(tally);

	return tally->cpu_ns >= least_ns;
}

static bool is_described(struct tally *tally)
{
	read_on(tally);

	return tally->described > 0;
}

static void release(struct tally *tally)
{
	ring_cursor_free(tally->cursor);
}

/* Events alone told of what is new, unless there were more of them than can be kept or looked at. */
static bool no_scan_was_needed(void)
{
	struct discovery_state now = state();

	return now.scans == 1 || now.overruns > 0 || now.storms > 0;
}

/* ---- processes ---- */

/* A program of that name: the shell. */
static void make_program(const char *name, char path[128])
{
	snprintf(path, 128, "%s/%s", rig.root, name);
	ck_assert(symlink("/bin/sh", path) == 0 || errno == EEXIST);
}

static pid_t run_program(const char *path, const char *script)
{
	pid_t pid = fork();

	if (pid == 0) {
		execl(path, path, "-c", script, (char *)NULL);
		_exit(1);
	}
	ck_assert_int_gt(pid, 0);

	return pid;
}

static void burn_ns(uint64_t ns)
{
	struct timespec now;

	do {
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	} while ((uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec < ns);
}

static void await_end(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
}

/* Something to be heard: what the sampler gave back is looked at then. */
static void stir(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	await_end(pid);
}

/* Some 30 ms of a shell's. */
#define SHORT "i=0; while [ $i -lt 15000 ]; do i=$((i+1)); done"

START_TEST(a_process_of_30_ms_appears_with_its_cpu_time)
{
	char path[128], name[32];
	bool seen = false;

	if (!started(ENTRY("\"comm\": \"short@\""), sources[_i]))
		SKIP_TEST("this source of process events is not permitted");
	make_program(scene_own("short@"), path);
	for (int i = 0; i < TRIES && !seen; i++) {
		pid_t pid = run_program(path, SHORT);
		struct tally tally = { .name = name };

		await_end(pid);
		snprintf(name, sizeof(name), "e/%d", pid);
		for (int naps = 0; naps < 50 && !seen; naps++) {
			scene_nap();
			seen = has_cpu(&tally, NS_PER_MS);
		}
		release(&tally);
	}
	ck_assert(seen);
	ck_assert(no_scan_was_needed());
}
END_TEST

START_TEST(a_process_that_executes_is_another_from_then_on)
{
	char path[128], a[32], b[32];
	struct tally before = { .name = b }, after = { .name = a };
	int go[2];
	char byte = 0;
	pid_t pid;

	if (!started("{\"name\": \"b\", \"comm\": \"before@\"}, {\"name\": \"a\", \"comm\": \"after@\"}", sources[_i]))
		SKIP_TEST("this source of process events is not permitted");
	make_program(scene_own("after@"), path);
	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, scene_own("before@"));
		if (read(go[0], &byte, 1) == 1)
			execl(path, path, "-c", "kill -STOP $$", (char *)NULL);
		_exit(1);
	}
	snprintf(a, sizeof(a), "a/%d", pid);
	snprintf(b, sizeof(b), "b/%d", pid);
	scene_wait_for(is_described(&before));
	ck_assert(!is_described(&after));
	ck_assert_uint_eq(state().target_table.targets, 1);
	ck_assert_int_eq(write(go[1], &byte, 1), 1);
	scene_wait_for(is_described(&after));
	scene_wait_for((stir(), state().target_table.targets == 1));
	ck_assert_uint_eq(state().target_table.left, 1);
	kill(pid, SIGKILL);
	await_end(pid);
	ck_assert(no_scan_was_needed());
	ck_assert_int_eq(before.described, 1);
	release(&before);
	release(&after);
	close(go[0]);
	close(go[1]);
}
END_TEST

START_TEST(a_target_that_executes_another_program_is_another_target)
{
	char path[128], name[32], entry[64];
	struct tally tally = { .name = name };
	int go[2];
	char byte = 0;
	pid_t pid;

	make_program(scene_own("after@"), path); /* before there is a child that would say another number */
	ck_assert_int_eq(pipe2(go, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(path, sizeof(path), "%s/%s", rig.root, scene_own("after@"));
		if (read(go[0], &byte, 1) == 1)
			execl(path, path, "-c", "kill -STOP $$", (char *)NULL);
		_exit(1);
	}
	snprintf(entry, sizeof(entry), ENTRY("\"cmdline\": \"check-spikewatch|after@\""));
	snprintf(name, sizeof(name), "e/%d", pid);
	if (started(entry, sources[_i])) {
		scene_wait_for(is_described(&tally));
		ck_assert_int_eq(write(go[1], &byte, 1), 1);
		scene_wait_for((read_on(&tally), tally.described == 2));
	}
	kill(pid, SIGKILL);
	await_end(pid);
	release(&tally);
	close(go[0]);
	close(go[1]);
}
END_TEST

/* ---- storms ---- */

/* Under ThreadSanitizer each fork is slow. */
#ifdef __SANITIZE_THREAD__
#define STORM 200
#else
#define STORM 2000
#endif

/*
 * So many processes, one after the other, each of which ends at once; by a process that is called
 * stormy. Their CPU time, with its own.
 */
static uint64_t storm(int count, uint64_t burn_each_ns)
{
	struct rusage usage;
	pid_t parent = fork();
	int status;

	if (parent == 0) {
		prctl(PR_SET_NAME, scene_own("stormy@"));
		for (int i = 0; i < count; i++) {
			pid_t pid = fork();

			if (pid == 0) {
				burn_ns(burn_each_ns);
				_exit(0);
			}
			if (pid > 0)
				waitpid(pid, NULL, 0);
		}
		_exit(0);
	}
	ck_assert_int_eq(wait4(parent, &status, 0, &usage), parent);

	return ((uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S) +
	       (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * NS_PER_US;
}

static bool all_are_counted(void)
{
	struct discovery_state now = state();

	return now.overruns > 0 || now.looks + now.missed + now.dropped >= STORM;
}

START_TEST(nothing_of_a_storm_is_lost_without_being_counted)
{
	if (!started(ENTRY("\"comm\": \"stormy@\", \"per\": \"group\""), sources[_i]))
		SKIP_TEST("this source of process events is not permitted");
	storm(STORM, 0);
	scene_wait_for(all_are_counted());
}
END_TEST

START_TEST(a_group_holds_what_processes_used_that_nobody_looked_at)
{
	struct tally tally = { .name = "e" };
	uint64_t used_ns;

	if (!started(ENTRY("\"comm\": \"stormy@\", \"per\": \"group\""), sources[0]) || !state().exit_totals)
		SKIP_TEST("exit records are not permitted");
	used_ns = storm(STORM / 4, 500 * NS_PER_US);
	ck_assert_uint_ge(used_ns, STORM / 4 * 500 * NS_PER_US);
	if (state().overruns == 0)
		scene_wait_for(has_cpu(&tally, STORM / 4 * 500 * NS_PER_US));
	has_cpu(&tally, 0);
	ck_assert(!tally.stepped_back);
	ck_assert_uint_le(tally.cpu_ns, used_ns + used_ns / 10);
	release(&tally);
}
END_TEST

#define CROWD 50

/* Of the first group, as of now. */
static size_t count_members(void)
{
	struct target_member *members;
	struct clock clock = real_clock();
	size_t count = 0;

	ck_assert_int_eq(discovery_members(rig.discovery, 1, clock_mono(&clock), 0, &members, &count), 0);
	free(members);

	return count;
}

/* So many children that have that name by now. */
static void start_crowd(const char *name, pid_t *pids)
{
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	for (int i = 0; i < CROWD; i++) {
		pids[i] = fork();
		ck_assert_int_ge(pids[i], 0);
		if (pids[i] > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, name);
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	for (int i = 0; i < CROWD; i++)
		ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
}

/* A query waits for 2 s at most: where a machine is busy another crowd may have more luck. */
START_TEST(all_that_are_there_are_members_when_it_is_asked)
{
	pid_t pids[CROWD];
	bool all = false;

	if (!started(ENTRY("\"comm\": \"crowd@\", \"per\": \"group\""), sources[_i]))
		SKIP_TEST("this source of process events is not permitted");
	for (int i = 0; i < 5 && !all; i++) {
		start_crowd(scene_own("crowd@"), pids);
		all = count_members() == CROWD;
		for (int k = 0; k < CROWD; k++) {
			kill(pids[k], SIGKILL);
			await_end(pids[k]);
		}
		scene_wait_for(state().target_table.members == 0);
	}
	ck_assert(all);
}
END_TEST

START_TEST(an_overrun_is_followed_by_a_scan)
{
	struct process_events_options tiny = { .only = PROCESS_EVENTS_CONNECTOR, .receive_bytes = 1 };

	if (!started(ENTRY("\"comm\": \"stormy@\""), tiny))
		SKIP_TEST("no source of process events is permitted");
	for (int i = 0; i < 50 && state().overruns == 0; i++)
		storm(100, 0);
	ck_assert_uint_gt(state().overruns, 0);
	scene_wait_for(state().scans >= 2);
}
END_TEST

/* ---- without ---- */

static void *start_elsewhere(void *ctx)
{
	bool *possible = ctx;

	*possible = unshare(CLONE_NEWNET) == 0;
	if (*possible)
		start(scene_config("%s",
				   "{\"sampling\": {\"rescan_interval\": \"100ms\"}, \"targets\": [" SHORT_ENTRY "]}"),
		      sources[0]);

	return NULL;
}

START_TEST(where_nothing_can_be_heard_rescans_find_and_it_is_said)
{
	pthread_t thread;
	char path[128];
	bool possible;
	pid_t pid;

	ck_assert_int_eq(pthread_create(&thread, NULL, start_elsewhere, &possible), 0);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	if (!possible)
		SKIP_TEST("a network namespace of its own is not permitted");
	scene_wait_for(state().listened);
	ck_assert_int_eq(state().source, PROCESS_EVENTS_NONE);
	ck_assert_str_eq(state().source_why, "proc connector: not in this network namespace");
	make_program(scene_own("short@"), path);
	pid = run_program(path, "kill -STOP $$");
	scene_wait_for(state().target_table.targets == 1);
	ck_assert_uint_eq(state().events, 0);
	kill(pid, SIGKILL);
	await_end(pid);
}
END_TEST

START_TEST(listening_begins_and_ceases_with_the_configuration)
{
	struct config *first, *second;

	start(scene_config(
		      "{\"sampling\": {\"rescan_interval\": \"1h\", \"discovery\": \"rescan\"}, \"targets\": [" ENTRY(
			      "\"comm\": \"short@\"") "]}"),
	      (struct process_events_options){ 0 });
	scene_wait_for(state().scans >= 1);
	ck_assert_int_eq(state().source, PROCESS_EVENTS_NONE);
	ck_assert_str_eq(state().source_why, "sampling.discovery is \"rescan\"");

	first = rig.config;
	rig.config = scene_config("{" HOURLY "\"targets\": [" SHORT_ENTRY "]}");
	ck_assert_int_eq(discovery_reload(rig.discovery, rig.config), 0);
	config_free(first);
	scene_wait_for(state().scans >= 2);
	scene_wait_for(state().source != PROCESS_EVENTS_NONE || state().source_why[0] != '\0');

	second = rig.config;
	rig.config = scene_config(
		"{\"sampling\": {\"rescan_interval\": \"1h\", \"discovery\": \"rescan\"}, \"targets\": [" ENTRY(
			"\"comm\": \"short@\"") "]}");
	ck_assert_int_eq(discovery_reload(rig.discovery, rig.config), 0);
	config_free(second);
	scene_wait_for(state().scans >= 3);
	ck_assert_int_eq(state().source, PROCESS_EVENTS_NONE);
}
END_TEST

/* A cgroup with the files that are read. */
static void make_cgroup(const char *path)
{
	char file[160];

	ck_assert_int_eq(mkdir(path, 0700), 0);
	snprintf(file, sizeof(file), "%s/cpu.stat", path);
	scene_write(file, "usage_usec 10\nuser_usec 5\nsystem_usec 5\n");
	snprintf(file, sizeof(file), "%s/memory.current", path);
	scene_write(file, "4096\n");
}

START_TEST(a_cgroup_that_comes_is_a_target_without_a_scan)
{
	static char tree[96];
	char path[128], made[128];

	snprintf(tree, sizeof(tree), "%s/tree", rig.root);
	ck_assert_int_eq(mkdir(tree, 0700), 0);
	snprintf(path, sizeof(path), "%s/cgroup.controllers", tree);
	scene_write(path, "cpu memory\n");
	snprintf(made, sizeof(made), "%s/made", rig.root);
	make_cgroup(made);
	cgroup_root = tree;
	start(scene_config("{" HOURLY "\"targets\": [" ENTRY("\"cgroup\": \"/jobs-*\", \"per\": \"cgroup\"") "]}"),
	      (struct process_events_options){ 0 });
	cgroup_root = NULL;
	scene_wait_for(state().scans >= 1);
	ck_assert_uint_eq(state().target_table.targets, 0);
	snprintf(path, sizeof(path), "%s/jobs-1", tree);
	ck_assert_int_eq(rename(made, path), 0);
	scene_wait_for(state().target_table.targets == 1);
	ck_assert(no_scan_was_needed());
	ck_assert_uint_eq(state().cgroups_heard, 1);
}
END_TEST

Suite *discovery_news_suite(void)
{
	Suite *suite = suite_create("discovery_news");
	TCase *news = tcase_create("news");

	tcase_add_checked_fixture(news, setup, teardown);
	tcase_add_loop_test(news, a_process_of_30_ms_appears_with_its_cpu_time, 0, 2);
	tcase_add_loop_test(news, a_process_that_executes_is_another_from_then_on, 0, 2);
	tcase_add_loop_test(news, a_target_that_executes_another_program_is_another_target, 0, 2);
	tcase_add_loop_test(news, nothing_of_a_storm_is_lost_without_being_counted, 0, 2);
	tcase_add_test(news, a_group_holds_what_processes_used_that_nobody_looked_at);
	tcase_add_loop_test(news, all_that_are_there_are_members_when_it_is_asked, 0, 2);
	tcase_add_test(news, an_overrun_is_followed_by_a_scan);
	tcase_add_test(news, where_nothing_can_be_heard_rescans_find_and_it_is_said);
	tcase_add_test(news, a_cgroup_that_comes_is_a_target_without_a_scan);
	tcase_add_test(news, listening_begins_and_ceases_with_the_configuration);
	suite_add_tcase(suite, news);

	return suite;
}
