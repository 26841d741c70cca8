/*
 * check_discovery_reload.c: discovery gets another configuration while it runs, shows that it
 * lives, and leaves descriptors to others. The old configuration is freed right after each reload.
 */
#include "discovery_rig.h"
#include "torture.h"
#include "samplers_tick.h"

#include <stdatomic.h>
#include <sys/resource.h>

Suite *discovery_reload_suite(void);

static struct discovery_rig rig;

static void setup(void)
{
	discovery_rig_setup(&rig);
}

static void teardown(void)
{
	discovery_rig_teardown(&rig);
}

static void reload(struct config *new)
{
	ck_assert_int_eq(discovery_reload(rig.discovery, new), 0);
	config_free(rig.config);
	rig.config = new;
}

#define ENTRIES(...) scene_config("{\"targets\": [" __VA_ARGS__ "]}")
#define WEB "{\"name\": \"e\", \"comm\": \"web\"}"

START_TEST(selectors_of_the_new_configuration_are_in_force)
{
	struct cgroup_limits limits;

	make_files(&rig, WEB);
	ck_assert_uint_eq(targets(&rig), 2);
	reload(ENTRIES("{\"name\": \"f\", \"cmdline\": \"port 81\"}," WEB));
	ck_assert_uint_eq(targets(&rig), 3);
	ck_assert(discovery_limits(rig.discovery, 1, &limits) && discovery_limits(rig.discovery, 2, &limits));
	reload(ENTRIES("{\"name\": \"s\", \"cgroup\": \"/system.slice/*\"}"));
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert(!discovery_limits(rig.discovery, 1, &limits) && !discovery_limits(rig.discovery, 3, &limits));
	reload(ENTRIES("{\"name\": \"g\", \"exe\": \"/opt/bin/w*\", \"per\": \"group\"}"));
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert_uint_eq(scan(&rig).target_table.members, 2);
	reload(ENTRIES("{\"name\": \"p\", \"pid\": 12}"));
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert_uint_eq(scan(&rig).target_table.members, 0);
	ck_assert_uint_eq(scan(&rig).target_table.leaving, 0);
}
END_TEST

START_TEST(intervals_and_maximum_are_the_new_ones)
{
	make_files(&rig, WEB);
	ck_assert_uint_eq(targets(&rig), 2);
	reload(scene_config("{\"sampling\": {\"max_targets\": 3}, \"targets\": [" WEB ","
			    "{\"name\": \"x\", \"cmdline\": \"web\"}]}"));
	ck_assert_uint_eq(targets(&rig), 3);
	ck_assert_uint_eq(scan(&rig).target_table.refused, 1);
	reload(scene_config("{\"targets\": [" WEB ",{\"name\": \"x\", \"cmdline\": \"web\"}]}"));
	ck_assert_uint_eq(targets(&rig), 4);
	ck_assert_uint_eq(scan(&rig).target_table.found, 4);
}
END_TEST

START_TEST(limits_are_read_again)
{
	struct cgroup_limits before, after;

	make_files(&rig, WEB);
	reload(scene_config("{\"sampling\": {\"limits_interval\": \"1h\"}, \"targets\": [" WEB "]}"));
	ck_assert_uint_eq(targets(&rig), 2);
	uint32_t id = 0;
	int32_t pid = 0;

	for (id = 1; pid != 10 && id < 4; id++)
		discovery_pids(rig.discovery, id, &pid, 1);
	id--;
	ck_assert(discovery_limits(rig.discovery, id, &before));
	appear(&rig, 10, "web", "web|--port|80", 500, "/"); /* it moved */
	ck_assert_uint_eq(targets(&rig), 2);
	ck_assert(discovery_limits(rig.discovery, id, &after));
	ck_assert_uint_eq(before.memory_bytes, after.memory_bytes);
	reload(scene_config("{\"sampling\": {\"limits_interval\": \"1h\"}, \"targets\": [" WEB "]}"));
	ck_assert_uint_eq(targets(&rig), 2);
	ck_assert(discovery_limits(rig.discovery, id, &after));
	ck_assert_uint_ne(before.memory_bytes, after.memory_bytes);
}
END_TEST

static bool has_maps(int32_t pid)
{
	struct thread_baseline threads;
	struct maps_snapshot *maps = NULL;

	discovery_baselines(rig.discovery, pid, &threads, &maps);
	thread_baseline_release(&threads);
	bool has = maps != NULL;

	free(maps);

	return has;
}

START_TEST(mappings_are_kept_as_the_captures_say)
{
	struct actor actor = actor_start("maps@");

	make(&rig, "/proc", NULL,
	     scene_config("{\"incidents\": {\"captures\": [\"samples\"]}, \"targets\": [{\"name\": \"a\", \"comm\": "
			  "\"maps@\"}]}"));
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert(!has_maps(actor.pid));
	reload(ENTRIES("{\"name\": \"a\", \"comm\": \"maps@\"}"));
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert(has_maps(actor.pid));
	reload(scene_config("{\"incidents\": {\"captures\": [\"samples\"]}, \"targets\": [{\"name\": \"a\", \"comm\": "
			    "\"maps@\"}]}"));
	ck_assert(!has_maps(actor.pid));
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert(!has_maps(actor.pid));
	actor_end(&actor);
}
END_TEST

START_TEST(when_any_allocation_fails_nothing_has_changed)
{
	struct config *new = ENTRIES("{\"name\": \"f\", \"cmdline\": \"port 81\"},"
				     "{\"name\": \"g\", \"comm\": \"web\", \"per\": \"group\"}");
	bool injected = true;

	make_files(&rig, WEB);
	ck_assert_uint_eq(targets(&rig), 2);
	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = discovery_reload(rig.discovery, new);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		if (!injected)
			break;
		struct discovery_state state = scan(&rig);

		ck_assert_uint_eq(state.target_table.targets, 2);
		ck_assert_uint_eq(state.target_table.found, 2);
		ck_assert_uint_eq(state.target_table.left, 0);
	}
	config_free(rig.config);
	rig.config = new;
	ck_assert_uint_eq(targets(&rig), 2); /* f's one, and the group */
	ck_assert_uint_eq(scan(&rig).target_table.members, 2);
}
END_TEST

START_TEST(the_thread_looks_at_once)
{
	struct actor actor = actor_start("reload@");
	struct discovery_state state;

	make(&rig, "/proc", NULL,
	     scene_config("{\"sampling\": {\"rescan_interval\": \"1h\"}, \"targets\": [{\"name\": \"a\", \"comm\": "
			  "\"none@\"}]}"));
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for((discovery_state(rig.discovery, &state), state.scans == 1));
	reload(scene_config("{\"sampling\": {\"rescan_interval\": \"1h\"}, \"targets\": [{\"name\": \"a\", \"comm\": "
			    "\"reload@\"}]}"));
	scene_wait_for((discovery_state(rig.discovery, &state), state.target_table.targets == 1));
	actor_end(&actor);
}
END_TEST

START_TEST(however_long_the_interval_it_shows_life_while_it_waits)
{
	struct discovery_state state;

	make_files(&rig, WEB);
	reload(scene_config("{\"sampling\": {\"rescan_interval\": \"1h\"}, \"targets\": [" WEB "]}"));
	mono_t made = discovery_progress(rig.discovery).pulse;

	ck_assert_uint_gt(made.ns, 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for((discovery_state(rig.discovery, &state), state.scans == 1));
	for (int i = 0; i < 2; i++) {
		mono_t before = discovery_progress(rig.discovery).pulse;

		scene_wait_for(mono_diff(discovery_progress(rig.discovery).pulse, before) > (int64_t)(100 * NS_PER_MS));
	}
	discovery_state(rig.discovery, &state);
	ck_assert_uint_eq(state.scans, 1);
}
END_TEST

/*
 * ---- in the middle of a scan: some files of /proc are pipes, at which it stops until the test
 * writes ----
 */

#define PIPES 3
#define PIDFILES 8

static char pipes[PIPES][128];
static int stopped_at;
static _Atomic bool reloaded, finish;

static void *reload_it(void *new)
{
	int r = discovery_reload(rig.discovery, new);
	atomic_store(&reloaded, true);

	return (void *)(intptr_t)r;
}

/* The pipe at which the scan has stopped, open for writing; negative: none yet. */
static int open_pipe(void)
{
	for (int i = 0; i < PIPES; i++) {
		int fd = open(pipes[i], O_WRONLY | O_NONBLOCK | O_CLOEXEC);

		if (fd >= 0) {
			stopped_at = i;
			return fd;
		}
	}

	return -1;
}

/* Lets a reader that stops there go on, until finish. */
static void *keep_open(void *argument)
{
	while (!atomic_load(&finish)) {
		int fd = open_pipe();

		if (fd >= 0)
			close(fd);
		scene_nap();
	}

	return argument;
}

/* The scan goes on from the pipe at which it has stopped, and does not meet it again. */
static void feed(int fd)
{
	const char stat[] = "20 (pipe) S 1 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 500 1000000 100 0\n";

	ck_assert_int_eq(unlink(pipes[stopped_at]), 0);
	ck_assert_int_eq(write(fd, stat, sizeof(stat) - 1), (ssize_t)sizeof(stat) - 1);
	close(fd);
}

/* Entries by pid file, and more; of processes that are there. */
static struct config *pidfile_config(const char *more)
{
	char entries[4096] = "";
	size_t len = 0;

	for (int i = 0; i < PIDFILES; i++)
		len += (size_t)snprintf(entries + len, sizeof(entries) - len,
					"{\"name\": \"p%d\", \"pidfile\": \"%s/pidfile%d\"},", i, rig.root, i);

	return scene_config("{\"targets\": [%s%s]}", entries, more);
}

static void make_pidfiles(void)
{
	char path[128];

	for (int i = 0; i < PIDFILES; i++) {
		appear(&rig, 30 + i, "pid", "pid", 500, "/");
		snprintf(path, sizeof(path), "%s/pidfile%d", rig.root, i);
		scene_write(path, "%d\n", 30 + i);
	}
}

static void make_pipes(void)
{
	for (int i = 0; i < PIPES; i++) {
		snprintf(pipes[i], sizeof(pipes[i]), "%s/%d", rig.root, 20 + i);
		ck_assert_int_eq(mkdir(pipes[i], 0700), 0);
		snprintf(pipes[i], sizeof(pipes[i]), "%s/%d/stat", rig.root, 20 + i);
		ck_assert_int_eq(mkfifo(pipes[i], 0600), 0);
	}
}

START_TEST(a_scan_that_takes_long_shows_life_and_gives_way_to_a_reload)
{
	struct config *new;
	struct discovery_state state;
	pthread_t thread, keeper;
	void *result;
	int fd = -1;

	make_files(&rig, WEB);
	make_pidfiles();
	reload(pidfile_config(WEB));
	ck_assert_uint_eq(targets(&rig), 2 + PIDFILES);
	make_pipes();
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for((fd = open_pipe()) >= 0);
	mono_t first = discovery_progress(rig.discovery).pulse;

	feed(fd);
	scene_wait_for((fd = open_pipe()) >= 0);
	ck_assert_int_gt(mono_diff(discovery_progress(rig.discovery).pulse, first), 0);

	new = pidfile_config("{\"name\": \"f\", \"cmdline\": \"port 81\"}");
	ck_assert_int_eq(pthread_create(&thread, NULL, reload_it, new), 0);
	scene_wait_for(atomic_load(&reloaded)); /* though the second pipe is still in the way, and then the third */
	feed(fd);
	pthread_join(thread, &result);
	ck_assert_ptr_null(result);
	config_free(rig.config);
	rig.config = new;

	ck_assert_int_eq(pthread_create(&keeper, NULL, keep_open, NULL), 0);
	scene_wait_for((discovery_state(rig.discovery, &state), state.scans > 2));
	discovery_stop(rig.discovery);
	atomic_store(&finish, true);
	pthread_join(keeper, NULL);
	ck_assert_int_eq(state.error, 0);
	ck_assert_uint_eq(state.target_table.found, 2 + PIDFILES + 1);
	ck_assert_uint_eq(state.target_table.targets - state.target_table.leaving, PIDFILES + 1);
}
END_TEST

/* ---- descriptors ---- */

START_TEST(what_targets_may_not_take_is_left_to_others)
{
	struct rlimit before, limit;
	struct discovery_state full, again, eased;
	int fds[64], opened = 0;

	for (int pid = 100; pid < 150; pid++)
		appear(&rig, pid, "web", "web", 500, "/");
	make_files(&rig, WEB);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){ 100, before.rlim_max };
	setrlimit(RLIMIT_NOFILE, &limit);
	int r = discovery_scan(rig.discovery);
	samplers_tick(rig.samplers);
	discovery_state(rig.discovery, &full);
	while (opened < 64 && (fds[opened] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
		opened++;
	for (int i = 0; i < opened; i++)
		close(fds[i]);
	int r2 = discovery_scan(rig.discovery);
	samplers_tick(rig.samplers);
	discovery_state(rig.discovery, &again);
	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(r2, 0);
	ck_assert_int_ge(opened, 25);
	ck_assert_uint_eq(full.target_table.targets, 52);
	ck_assert_uint_eq(full.target_table.failed, 0);
	ck_assert_int_eq(full.error, 0);
	ck_assert_uint_gt(full.target_table.cold, 20);
	ck_assert_uint_lt(full.target_table.cold, 50);

	/* No target left, none was added. */
	ck_assert_uint_eq(again.target_table.targets, full.target_table.targets);
	ck_assert_uint_eq(again.target_table.found, full.target_table.found);
	ck_assert_uint_eq(again.target_table.left, 0);
	ck_assert_uint_eq(again.target_table.cold, full.target_table.cold);
	eased = scan(&rig);
	ck_assert_uint_eq(eased.target_table.targets, 52);
	samplers_tick(rig.samplers);
	eased = scan(&rig);
	ck_assert_uint_eq(eased.target_table.cold, 0);
}
END_TEST

START_TEST(a_reload_works_when_descriptors_are_short)
{
	struct rlimit before, limit;
	struct discovery_state state;

	for (int pid = 100; pid < 150; pid++)
		appear(&rig, pid, "web", "web", 500, "/");
	make_files(&rig, WEB);
	struct config *new = ENTRIES("{\"name\": \"f\", \"comm\": \"web\"}");

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){ 100, before.rlim_max };
	setrlimit(RLIMIT_NOFILE, &limit);
	discovery_scan(rig.discovery);
	samplers_tick(rig.samplers);
	int r = discovery_reload(rig.discovery, new);
	for (int i = 0; i < 4; i++) {
		discovery_scan(rig.discovery);
		samplers_tick(rig.samplers);
	}
	discovery_state(rig.discovery, &state);
	setrlimit(RLIMIT_NOFILE, &before);
	config_free(rig.config);
	rig.config = new;
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(state.target_table.targets, 52);
	ck_assert_uint_gt(state.target_table.cold, 0);
	ck_assert_uint_eq(state.target_table.leaving, 0);
}
END_TEST

/* ---- everything at once ---- */

#define ACTORS 6
#define RELOADS 200

static const char *const variants[] = {
	"{\"name\": \"a\", \"comm\": \"a@\"}, {\"name\": \"b\", \"comm\": \"b@\"}",
	"{\"name\": \"b\", \"comm\": \"b@\"}, {\"name\": \"a\", \"comm\": \"a@\", \"per\": \"group\"}",
	"{\"name\": \"c\", \"cmdline\": \".\", \"per\": \"group\"}, {\"name\": \"b\", \"comm\": \"b@\"}",
	"{\"name\": \"b\", \"comm\": \"b@\"}",
};

static struct config *variant(int i)
{
	return scene_config("{\"sampling\": {\"rescan_interval\": \"100ms\"}, \"targets\": [%s]}", variants[i % 4]);
}

START_TEST(reloads_while_everything_runs)
{
	struct actor actors[ACTORS];
	struct discovery_state state;
	int32_t pids[4];

	for (int i = 0; i < ACTORS; i++)
		actors[i] = actor_start(i % 2 ? "b@" : "a@");
	make(&rig, "/proc", NULL, variant(0));
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	for (int i = 1; i <= RELOADS; i++) {
		reload(variant(i));
		actor_do(&actors[i % (ACTORS - 1)], 'n', i % 3 ? "a@" : "b@");
		discovery_pids(rig.discovery, (uint32_t)i, pids, 4);
		ck_assert_uint_gt(discovery_progress(rig.discovery).pulse.ns, 0);
		if (i == RELOADS / 2)
			actor_end(&actors[ACTORS - 1]);
		if (i % 10 == 0)
			scene_nap();
	}
	for (int i = 0; i < ACTORS - 1; i++)
		actor_do(&actors[i], 'n', "b@");
	reload(variant(0));
	scene_wait_for((discovery_state(rig.discovery, &state), state.target_table.targets == ACTORS - 1 &&
									state.target_table.members == 0 &&
									state.target_table.leaving == 0));
	discovery_stop(rig.discovery);
	samplers_stop(rig.samplers);
	for (int i = 0; i < ACTORS - 1; i++)
		actor_end(&actors[i]);
}
END_TEST

Suite *discovery_reload_suite(void)
{
	Suite *suite = suite_create("discovery_reload");
	TCase *tcase = tcase_create("reload");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, selectors_of_the_new_configuration_are_in_force);
	tcase_add_test(tcase, intervals_and_maximum_are_the_new_ones);
	tcase_add_test(tcase, limits_are_read_again);
	tcase_add_test(tcase, mappings_are_kept_as_the_captures_say);
	tcase_add_test(tcase, when_any_allocation_fails_nothing_has_changed);
	tcase_add_test(tcase, the_thread_looks_at_once);
	tcase_add_test(tcase, however_long_the_interval_it_shows_life_while_it_waits);
	tcase_add_test(tcase, a_scan_that_takes_long_shows_life_and_gives_way_to_a_reload);
	tcase_add_test(tcase, what_targets_may_not_take_is_left_to_others);
	tcase_add_test(tcase, a_reload_works_when_descriptors_are_short);
	tcase_add_test(tcase, reloads_while_everything_runs);
	suite_add_tcase(suite, tcase);

	return suite;
}
