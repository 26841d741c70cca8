/*
 * check_discovery_tree.c: entries with "tree": descendants by scans over a /proc made of files, and
 * by news of real processes.
 */
#include "discovery_rig.h"
#include "skip.h"
#include "lib/base/base.h"
#include "ring_targets.h"
#include "samplers_tick.h"

#include <sys/prctl.h>
#include <sys/wait.h>

Suite *discovery_tree_suite(void);

static struct discovery_rig rig;

static void setup(void)
{
	discovery_rig_setup(&rig);
}

static void teardown(void)
{
	discovery_rig_teardown(&rig);
}

#define GROUP "{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\", \"tree\": true}"
#define EACH "{\"name\": \"e\", \"comm\": \"app\", \"tree\": true}"
#define PIDS_MAX 16

/* ---- scans ---- */

static void appear_below(int pid, int ppid, const char *comm, uint64_t start)
{
	char path[128];

	appear(&rig, pid, comm, comm, start, "/");
	snprintf(path, sizeof(path), "%s/%d/stat", rig.root, pid);
	scene_write(path, "%d (%s) S %d 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 %llu 1000000 100 0\n", pid, comm, ppid,
		    (unsigned long long)start);
}

static struct config *wanted(const char *entries)
{
	return scene_config("{\"targets\": [%s]}", entries);
}

/* The members of the group, which is the first target that there is, in their order. */
static const char *members(uint32_t id)
{
	static char text[256];
	int32_t pids[PIDS_MAX];
	size_t count, len = 0;

	scan(&rig);
	scan(&rig);
	count = discovery_pids(rig.discovery, id, pids, PIDS_MAX);
	text[0] = '\0';
	for (int32_t pid = 1; pid < 10000; pid++)
		for (size_t i = 0; i < count; i++)
			if (pids[i] == pid)
				len += (size_t)snprintf(text + len, sizeof(text) - len, "%d ", pid);

	return text;
}

START_TEST(descendants_are_members)
{
	appear_below(1, 0, "init", 1);
	appear_below(100, 1, "app", 50);
	appear_below(200, 100, "sh", 60);
	appear_below(300, 200, "cc1", 70);
	appear_below(400, 1, "sh", 80);
	make(&rig, rig.root, rig.root, wanted(GROUP));
	ck_assert_str_eq(members(1), "100 200 300 ");

	/* Its parents end; it does not leave. */
	vanish(&rig, 200);
	vanish(&rig, 100);
	appear_below(300, 1, "cc1", 70);
	ck_assert_str_eq(members(1), "300 ");
	ck_assert_str_eq(members(1), "300 ");

	/* It starts another. A stranger gets the pid of a member. */
	appear_below(301, 300, "as", 90);
	appear_below(200, 1, "sh", 91);
	appear_below(201, 200, "ls", 92);
	ck_assert_str_eq(members(1), "300 301 ");
}
END_TEST

START_TEST(who_executes_something_else_stays_with_its_descendants)
{
	appear_below(1, 0, "init", 1);
	appear_below(100, 1, "app", 50);
	appear_below(200, 100, "sh", 60);
	make(&rig, rig.root, rig.root, wanted(GROUP));
	ck_assert_str_eq(members(1), "100 200 ");
	appear_below(100, 1, "other", 50);
	appear_below(200, 100, "ls", 60);
	appear_below(201, 100, "ls", 70);
	ck_assert_str_eq(members(1), "100 200 201 ");
}
END_TEST

START_TEST(children_that_are_met_before_their_parent_are_found_by_the_next_scan)
{
	appear_below(1, 0, "init", 1);
	appear_below(900, 1, "sh", 50);
	appear_below(100, 900, "cc1", 60);
	make(&rig, rig.root, rig.root, wanted(GROUP));
	ck_assert_str_eq(members(1), "");
	appear_below(900, 1, "app", 50);
	ck_assert_str_eq(members(1), "100 900 ");
}
END_TEST

/* The names of all targets that the ring has heard of. */
static const char *names(void)
{
	static char text[512];
	struct ring_cursor *cursor;
	struct ring_event event;
	size_t len = 0;

	text[0] = '\0';
	scan(&rig);
	scan(&rig);
	ck_assert_int_eq(ring_cursor_new(rig.ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0)
		if (event.type == RING_EVENT_TARGET && len < sizeof(text) / 2)
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s ", event.target.name);
	ring_cursor_free(cursor);

	return text;
}

START_TEST(each_is_a_target_of_its_own)
{
	appear_below(1, 0, "init", 1);
	appear_below(100, 1, "app", 50);
	appear_below(200, 100, "sh", 60);
	make(&rig, rig.root, rig.root, wanted(EACH));
	ck_assert_uint_eq(targets(&rig), 2);
	ck_assert_ptr_nonnull(strstr(names(), "e/100 "));
	ck_assert_ptr_nonnull(strstr(names(), "e/200 "));
}
END_TEST

START_TEST(the_process_of_an_entry_by_pid_has_its_name_and_its_descendants_have_theirs)
{
	appear_below(1, 0, "init", 1);
	appear_below(100, 1, "app", 50);
	appear_below(200, 100, "sh", 60);
	make(&rig, rig.root, rig.root, wanted("{\"name\": \"p\", \"pid\": 100, \"tree\": true}"));
	ck_assert_uint_eq(targets(&rig), 2);
	ck_assert_ptr_nonnull(strstr(names(), "p "));
	ck_assert_ptr_nonnull(strstr(names(), "p/200 "));
	ck_assert_ptr_null(strstr(names(), "p/100"));
}
END_TEST

/* What a target is called now, as a reader of the ring knows it: "name: comm: cmdline, ...". */
static const char *descriptions(void)
{
	static char text[9 * TARGET_ENCODED_MAX];
	static struct ring_targets targets;
	struct target target;
	size_t len = 0;

	text[0] = '\0';
	ring_targets_read(rig.ring, &targets);
	for (uint32_t id = 1; id <= 9; id++)
		if (ring_targets_find(&targets, id, &target))
			len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s: %s: %s", len ? ", " : "",
						target.name, target.comm, target.cmdline);
	ck_assert_uint_lt(len, sizeof(text));

	return text;
}

/* As appear, with arguments at that place. */
static void appear_with_arguments(int pid, const char *comm, const char *cmdline, uint64_t at)
{
	static unsigned used; /* CPU time, so that it has something to say */
	char path[128];

	appear(&rig, pid, comm, cmdline, 50, "/");
	snprintf(path, sizeof(path), "%s/%d/stat", rig.root, pid);
	scene_write(path,
		    "%d (%s) S 1 1 1 0 -1 0 10 0 0 0 %u 5 0 0 20 0 3 0 50 1000000 100 0 0 0 0 0 0 0 0 0 0 0 0 0 17 1 0 "
		    "0 0 0 0 0 0 0 "
		    "%llu 0 0 0 0\n",
		    pid, comm, used += 10, (unsigned long long)at);
}

static const char *after_a_scan(void)
{
	scan(&rig);
	samplers_tick(rig.samplers);

	return descriptions();
}

static const struct {
	const char *entry, *before, *renamed, *executed;
} described[] = {
	{ "{\"name\": \"p\", \"pid\": 100}", "p: app: app one", "p: renamed: renamed two", "p: renamed: three" },
	{ "{\"name\": \"x\", \"cmdline\": \"o|e\"}", "x/100: app: app one", "x/100: renamed: renamed two",
	  "x/100: renamed: three" },
	/* A group by pid is called as its root is. */
	{ "{\"name\": \"g\", \"pid\": 100, \"per\": \"group\", \"tree\": true}", "g: app: app one",
	  "g: renamed: renamed two", "g: renamed: three" },
	/* One that may have several has no such name. */
	{ "{\"name\": \"g\", \"exe\": \"/opt/**\", \"per\": \"group\"}", "g: : ", "g: : ", "g: : " },
};

START_TEST(a_target_that_is_called_something_else_is_described_anew_by_scans)
{
	appear_with_arguments(100, "app", "app|one", 7000);
	make(&rig, rig.root, rig.root, wanted(described[_i].entry));
	ck_assert_str_eq(after_a_scan(), described[_i].before);
	appear_with_arguments(100, "renamed", "renamed|two", 7000);
	ck_assert_str_eq(after_a_scan(), described[_i].renamed);

	/* The command line of one that has not executed anything is not read. */
	appear_with_arguments(100, "renamed", "three", 7000);
	ck_assert_str_eq(after_a_scan(), described[_i].renamed);
	appear_with_arguments(100, "renamed", "three", 9000);
	ck_assert_str_eq(after_a_scan(), described[_i].executed);
}
END_TEST

START_TEST(arguments_that_did_not_come_are_in_the_description_when_they_do)
{
	char stuck[128], saved[128];

	appear_with_arguments(100, "app", "app|one", 7000);
	snprintf(stuck, sizeof(stuck), "%s/100/cmdline", rig.root);
	snprintf(saved, sizeof(saved), "%s/saved", rig.root);
	ck_assert_int_eq(rename(stuck, saved), 0);
	ck_assert_int_eq(mkfifo(stuck, 0600), 0);
	make(&rig, rig.root, "tests/data/cgroup/v1",
	     scene_config("{\"targets\": [{\"name\": \"x\", \"comm\": \"app\"}]}"));
	ck_assert_str_eq(after_a_scan(), "x/100: app: ");
	ck_assert_int_eq(rename(saved, stuck), 0);
	scene_wait_for(strcmp(after_a_scan(), "x/100: app: app one") == 0);
}
END_TEST

static void reload(const char *entries)
{
	struct config *next = wanted(entries);

	ck_assert_int_eq(discovery_reload(rig.discovery, next), 0);
	config_free(rig.config);
	rig.config = next;
}

START_TEST(a_reload_keeps_trees_of_entries_that_stay)
{
	appear_below(1, 0, "init", 1);
	appear_below(100, 1, "app", 50);
	appear_below(200, 100, "sh", 60);
	make(&rig, rig.root, rig.root, wanted(GROUP));
	ck_assert_str_eq(members(1), "100 200 ");
	vanish(&rig, 100);
	appear_below(200, 1, "sh", 60);
	ck_assert_str_eq(members(1), "200 ");

	/* It is the second with a tree now. */
	reload("{\"name\": \"x\", \"comm\": \"none\", \"tree\": true}, " GROUP);
	ck_assert_str_eq(members(1), "200 ");
	reload(GROUP);
	ck_assert_str_eq(members(1), "200 ");

	/* Without a tree it is another entry, and with one again yet another, which begins anew. */
	reload("{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\"}");
	ck_assert_str_eq(members(1), "");
	reload(GROUP);
	ck_assert_uint_eq(scan(&rig).target_table.members, 0);
}
END_TEST

/* ---- real processes ---- */

static const enum process_events_source sources[] = { PROCESS_EVENTS_CONNECTOR, PROCESS_EVENTS_PERF };

/*
 * Starts threads over the machine's /proc; rescans are an hour apart. False: the source is not
 * allowed here.
 */
static bool started(struct config *made, enum process_events_source only)
{
	struct discovery_options options = {
		.target_table = { .machine = { .cores = 2, .memory_bytes = 1 << 30 },
				  .config = made,
				  .own_proc = true },
		.listen = { .only = only },
	};
	struct ring_options ring_options = { .size_bytes = 4 << 20, .page_bytes = 16384 };
	struct sampler_options sampler_options = { .source = { .capacity = 4096, .interval_ns = 2 * NS_PER_MS } };
	struct discovery_state now;

	rig.config = made;
	rig.procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(cgroup_mounts_new("/proc", NULL, &rig.mounts), 0);
	ck_assert_int_eq(ring_create_anonymous(&ring_options, &rig.ring), 0);
	ck_assert_int_eq(samplers_new(&sampler_options, 1, rig.ring, &rig.samplers), 0);
	options.target_table.samplers = rig.samplers;
	options.target_table.mounts = rig.mounts;
	options.target_table.procfd = rig.procfd;
	ck_assert_int_eq(discovery_new(&options, &rig.discovery), 0);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for((discovery_state(rig.discovery, &now), now.scans >= 1));

	return now.source == only;
}

/* Where forks were lost, those whose parents have ended by the next scan belong to no tree. */
static bool has_lost_events(void)
{
	struct discovery_state now;

	discovery_state(rig.discovery, &now);
	return now.overruns > 0;
}

static bool has_member(int32_t pid)
{
	int32_t pids[PIDS_MAX];
	size_t count = discovery_pids(rig.discovery, 1, pids, PIDS_MAX);

	for (size_t i = 0; i < count; i++)
		if (pids[i] == pid)
			return true;

	return false;
}

/* Tells its pid, and is there until it is killed. */
__attribute__((noreturn)) static void stay(int out, const char *program)
{
	int32_t pid = getpid();

	alarm(120); /* also if the test has failed */

	if (write(out, &pid, sizeof(pid)) == sizeof(pid) && program)
		execl(program, "sleep", "600", (char *)NULL);
	for (;;)
		pause();
}

/*
 * A process that does as daemons do: its child leaves the session, and that one's child is all that
 * stays.
 */
__attribute__((noreturn)) static void daemonise(int in, int out, bool executes)
{
	char go;

	if (read(in, &go, 1) != 1)
		_exit(1);
	if (fork() == 0) {
		setsid();
		if (fork() == 0)
			stay(out, executes ? "/bin/sleep" : NULL);
		_exit(0);
	}
	_exit(0);
}

/* Which source, and whether what stays executes another program. */
START_TEST(what_daemonises_is_still_a_member)
{
	int in[2], out[2];
	int32_t daemon = 0;
	pid_t pid;

	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0)
		daemonise(in[0], out[1], _i >= 2);

	bool allowed =
		started(scene_config("{\"sampling\": {\"rescan_interval\": \"1h\"}, \"targets\": [{\"name\": \"g\", "
				     "\"pid\": %d, \"per\": \"group\", \"tree\": true}]}",
				     pid),
			sources[_i % 2]);

	ck_assert_int_eq(write(in[1], "", 1), 1);
	ck_assert_int_eq(read(out[0], &daemon, sizeof(daemon)), sizeof(daemon));
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	if (allowed)
		scene_wait_for(has_member(daemon) || has_lost_events());
	bool lost = allowed && !has_member(daemon);

	kill(daemon, SIGKILL);
	for (int i = 0; i < 2; i++) {
		close(in[i]);
		close(out[i]);
	}
	if (!allowed)
		SKIP_TEST("this source of process events is not permitted");
	if (lost)
		SKIP_TEST("the machine had more process events than the kernel keeps");
}
END_TEST

/* With the same name before and after: a target of its own, which is only described anew. */
START_TEST(who_executes_is_described_anew_at_once)
{
	int in[2];
	pid_t pid;

	ck_assert_int_eq(pipe2(in, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		char go;

		prctl(PR_SET_NAME, "sleep");
		if (read(in[0], &go, 1) == 1)
			execl("/bin/sleep", "sleep", "601", (char *)NULL);
		_exit(1);
	}

	bool allowed = started(scene_config("{\"sampling\": {\"rescan_interval\": \"1h\", \"heartbeat\": \"100ms\"}, "
					    "\"targets\": [{\"name\": \"p\", \"pid\": %d}]}",
					    pid),
			       sources[_i]);

	ck_assert_int_eq(write(in[1], "", 1), 1);
	if (allowed)
		scene_wait_for(strcmp(descriptions(), "p: sleep: sleep 601") == 0);
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	close(in[0]);
	close(in[1]);
	if (!allowed)
		SKIP_TEST("this source of process events is not permitted");
}
END_TEST

Suite *discovery_tree_suite(void)
{
	Suite *suite = suite_create("discovery_tree");
	TCase *scans = tcase_create("scans"), *news = tcase_create("news");

	tcase_add_checked_fixture(scans, setup, teardown);
	tcase_add_test(scans, descendants_are_members);
	tcase_add_test(scans, who_executes_something_else_stays_with_its_descendants);
	tcase_add_test(scans, children_that_are_met_before_their_parent_are_found_by_the_next_scan);
	tcase_add_test(scans, each_is_a_target_of_its_own);
	tcase_add_test(scans, the_process_of_an_entry_by_pid_has_its_name_and_its_descendants_have_theirs);
	tcase_add_test(scans, a_reload_keeps_trees_of_entries_that_stay);
	tcase_add_test(scans, arguments_that_did_not_come_are_in_the_description_when_they_do);
	tcase_add_loop_test(scans, a_target_that_is_called_something_else_is_described_anew_by_scans, 0,
			    ARRAY_LEN(described));
	suite_add_tcase(suite, scans);
	tcase_add_checked_fixture(news, setup, teardown);
	tcase_add_loop_test(news, what_daemonises_is_still_a_member, 0, 4);
	tcase_add_loop_test(news, who_executes_is_described_anew_at_once, 0, 2);
	suite_add_tcase(suite, news);

	return suite;
}
