/*
 * check_discovery.c: scans over a /proc made of files, over real processes and, where that is
 * possible, over cgroups of our own.
 */
#include "daemon/engine/targets/discovery.h"
#include "discovery_rig.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/baseline.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "daemon/engine/targets/process_news.h"
#include "daemon/engine/targets/target_table.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/config/config.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"

#include <errno.h>
#include <sys/resource.h>

Suite *discovery_suite(void);

#define ENTRY(selector) "{\"name\": \"e\", " selector "}"

START_TEST(finds_by_comm)
{
	make_files(ENTRY("\"comm\": \"web\""));
	ck_assert_uint_eq(targets(), 2);
}
END_TEST

START_TEST(finds_odd_names)
{
	make_files(ENTRY("\"comm\": \"a) b\""));
	ck_assert_uint_eq(targets(), 1);
}
END_TEST

START_TEST(finds_by_cmdline)
{
	make_files(ENTRY("\"cmdline\": \"^web --port 81$\""));
	ck_assert_uint_eq(targets(), 1);
}
END_TEST

START_TEST(finds_by_exe_also_when_it_was_replaced)
{
	make_files(ENTRY("\"exe\": \"/opt/bin/w*\""));
	ck_assert_uint_eq(targets(), 2);
}
END_TEST

START_TEST(finds_by_pid)
{
	make_files(ENTRY("\"pid\": 11"));
	ck_assert_uint_eq(targets(), 1);
}
END_TEST

START_TEST(finds_by_cgroup_and_unit)
{
	make_files("{\"name\": \"a\", \"cgroup\": \"/system.slice/*\", \"per\": \"process\"},"
		   "{\"name\": \"b\", \"unit\": \"postgresql.service\", \"per\": \"process\"}");
	ck_assert_uint_eq(targets(), 2);
}
END_TEST

#define OUTSIDE_PROCESSES "{\"name\": \"b\", \"cgroup\": \"/**\", \"per\": \"process\", \"outside\": true}"

/* Of three processes one is in the service. */
START_TEST(outside_are_processes_that_no_entry_before_has)
{
	make_files("{\"name\": \"a\", \"unit\": \"*.service\"}, " OUTSIDE_PROCESSES);
	ck_assert_uint_eq(targets(), 1 + 2);
	appear(11, "web", "web|--port|81", 501, "/system.slice/postgresql.service/below");
	ck_assert_uint_eq(targets(), 1 + 1);
	appear(10, "web", "web|--port|80", 500, "/elsewhere");
	ck_assert_uint_eq(targets(), 1 + 2);
}
END_TEST

START_TEST(outside_counts_only_entries_before)
{
	make_files(OUTSIDE_PROCESSES ", {\"name\": \"a\", \"unit\": \"*.service\"}");
	ck_assert_uint_eq(targets(), 1 + 3);
}
END_TEST

START_TEST(outside_are_cgroups_that_no_entry_before_has)
{
	make_files("{\"name\": \"a\", \"unit\": \"*.service\"},"
		   "{\"name\": \"b\", \"cgroup\": \"/system.slice/*\", \"outside\": true}");
	ck_assert_uint_eq(targets(), 1);
}
END_TEST

START_TEST(finds_cgroups_by_path)
{
	make_files(ENTRY("\"cgroup\": \"/system.slice/*\", \"per\": \"cgroup\""));
	ck_assert_uint_eq(targets(), 1);
}
END_TEST

START_TEST(finds_the_cgroup_of_matching_processes)
{
	make_files(ENTRY("\"cmdline\": \"port 80\", \"per\": \"cgroup\""));
	ck_assert_uint_eq(targets(), 1);
	vanish(10);
	ck_assert_uint_eq(targets(), 0);
}
END_TEST

START_TEST(a_pid_file_is_read_again_by_every_scan)
{
	char path[128];
	int32_t pid = 0;
	uint32_t id = 0;

	snprintf(path, sizeof(path), "%s/pidfile", root);
	appear(10, "web", "web", 500, "/");
	appear(11, "web", "web", 501, "/");
	make(root, "tests/data/cgroup/v1",
	     scene_config("{\"targets\": [{\"name\": \"e\", \"pidfile\": \"%s\"}]}", path));
	ck_assert_uint_eq(targets(), 0);
	scene_write(path, "10\n");
	ck_assert_uint_eq(targets(), 1);
	ck_assert_uint_eq(discovery_pids(discovery, ++id, &pid, 1), 1);
	ck_assert_int_eq(pid, 10);
	scene_write(path, "11\n");
	ck_assert_uint_eq(targets(), 1);
	ck_assert_uint_eq(discovery_pids(discovery, id, &pid, 1), 0);
	ck_assert_uint_eq(discovery_pids(discovery, ++id, &pid, 1), 1);
	ck_assert_int_eq(pid, 11);
}
END_TEST

START_TEST(a_group_is_one_target_and_knows_its_members)
{
	int32_t pids[8];

	make_files(ENTRY("\"comm\": \"web\", \"per\": \"group\""));
	ck_assert_uint_eq(targets(), 1);
	ck_assert_uint_eq(scan().target_table.members, 2);
	ck_assert_uint_eq(discovery_pids(discovery, 1, pids, 8), 2);
	ck_assert_int_eq(pids[0] + pids[1], 21);
	ck_assert_uint_eq(discovery_pids(discovery, 1, pids, 1), 1);
	ck_assert_uint_eq(discovery_pids(discovery, 99, pids, 8), 0);
}
END_TEST

START_TEST(who_comes_is_picked_up_and_who_goes_is_let_go)
{
	make_files(ENTRY("\"comm\": \"web\""));
	ck_assert_uint_eq(targets(), 2);
	appear(20, "web", "", 600, "/");
	ck_assert_uint_eq(targets(), 3);
	vanish(10);
	ck_assert_uint_eq(targets(), 2);
	appear(11, "changed", "", 501, "/");
	ck_assert_uint_eq(targets(), 1);
	ck_assert_uint_eq(scan().target_table.found, 3);
	ck_assert_uint_eq(scan().target_table.left, 2);
}
END_TEST

START_TEST(a_pid_that_is_used_again_is_a_new_target)
{
	struct cgroup_limits limits;

	make_files(ENTRY("\"pid\": 10"));
	ck_assert_uint_eq(targets(), 1);
	ck_assert(discovery_limits(discovery, 1, &limits));
	appear(10, "other", "", 900, "/");
	ck_assert_uint_eq(targets(), 1);
	ck_assert_uint_eq(scan().target_table.found, 2);
	ck_assert(!discovery_limits(discovery, 1, &limits));
	ck_assert(discovery_limits(discovery, 2, &limits));
}
END_TEST

START_TEST(counts_what_is_there)
{
	char path[128];

	make_files(ENTRY("\"comm\": \"web\""));
	snprintf(path, sizeof(path), "%s/99", root);
	mkdir(path, 0700); /* ends while it is looked at */
	snprintf(path, sizeof(path), "%s/77x", root);
	mkdir(path, 0700); /* no process */
	struct discovery_state state = scan();

	ck_assert_uint_eq(state.processes, 4);
	ck_assert_uint_eq(state.unreadable, 0);
	ck_assert_uint_eq(state.scans, 1);
}
END_TEST

/* Takes the descriptors that are free below one that is in use. The lowest that is free then. */
static int fill_gaps(int *gaps, size_t cap, size_t *count)
{
	int highest = 0, free_one;

	for (int fd = 0; fd < 1024; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			highest = fd;
	for (*count = 0; (free_one = dup(procfd)) < highest && *count < cap; (*count)++)
		gaps[*count] = free_one;
	close(free_one);

	return free_one;
}

START_TEST(a_scan_that_has_no_descriptors_lets_nobody_go)
{
	struct rlimit limit, few;
	struct discovery_state state;
	size_t count;
	int gaps[64], last;

	make_files(ENTRY("\"comm\": \"web\""));
	ck_assert_uint_eq(targets(), 2);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	last = fill_gaps(gaps, sizeof(gaps) / sizeof(gaps[0]), &count);
	for (int room = 0; room < 3; room++) {
		/* None at all; one for the directory and none for the files in it; one more. */
		few = (struct rlimit){ (rlim_t)(last + room), limit.rlim_max };
		setrlimit(RLIMIT_NOFILE, &few);
		int r = discovery_scan(discovery);
		setrlimit(RLIMIT_NOFILE, &limit);
		samplers_tick(samplers);
		ck_assert_int_eq(r, 0);
		discovery_state(discovery, &state);
		ck_assert_int_eq(state.error, room < 2 ? -EMFILE : 0);
		ck_assert_uint_eq(scan().target_table.targets, 2);
	}
	ck_assert_uint_eq(scan().target_table.found, 2);
	while (count > 0)
		close(gaps[--count]);
}
END_TEST

START_TEST(a_process_that_takes_another_name_is_let_go)
{
	struct actor actor = actor_start("scene-before");

	make("/proc", NULL,
	     scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"scene-before\"},"
			  "{\"name\": \"b\", \"comm\": \"scene-after\"}]}"));
	ck_assert_uint_eq(targets(), 1);
	actor_do(&actor, 'n', "scene-after");
	/*
	 * Who still runs is not seen to have run before the kernel has charged it: it may be passed
	 * over once.
	 */
	for (int i = 0; i < 100 && scan().target_table.left == 0; i++)
		usleep(10000);
	ck_assert_uint_eq(targets(), 1);
	ck_assert_uint_eq(scan().target_table.left, 1);
	actor_do(&actor, 'n', "scene-else");
	for (int i = 0; i < 100 && targets() > 0; i++)
		usleep(10000);
	ck_assert_uint_eq(targets(), 0);
	actor_end(&actor);
}
END_TEST

/* Scans until one has passed over this process: in one of sixteen each is looked at. */
START_TEST(who_has_not_run_is_not_looked_at_and_stays)
{
	struct actor actor = actor_start("scene-asleep");

	make("/proc", NULL, scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"scene-asleep\"}]}"));
	ck_assert_uint_eq(targets(), 1);
	for (int i = 0; i < 20; i++)
		ck_assert_uint_eq(scan().target_table.targets, 1);
	ck_assert_uint_gt(scan().unchanged, 0);
	ck_assert_uint_lt(scan().unchanged, scan().processes); /* this one runs */
	ck_assert_uint_eq(scan().target_table.left, 0);
	ck_assert_uint_eq(scan().target_table.found, 1);
	kill(actor.pid, SIGKILL);
	ck_assert_int_eq(waitpid(actor.pid, NULL, 0), actor.pid);
	ck_assert_uint_eq(targets(), 0);
}
END_TEST

START_TEST(who_has_not_run_is_looked_at_by_another_configuration)
{
	struct actor actor = actor_start("scene-asleep");
	struct config *before;

	make("/proc", NULL, scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"scene-other\"}]}"));
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(targets(), 0);
	before = config;
	config = scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"scene-asleep\"}]}");
	ck_assert_int_eq(discovery_reload(discovery, config), 0);
	config_free(before);
	ck_assert_uint_eq(targets(), 1);
	actor_end(&actor);
}
END_TEST

START_TEST(where_a_cgroup_is_what_matters_everybody_is_looked_at)
{
	make("/proc", NULL,
	     scene_config("{\"targets\": [{\"name\": \"a\", \"cgroup\": \"/**\", \"per\": \"process\"}]}"));
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(scan().unchanged, 0);
}
END_TEST

START_TEST(who_was_refused_is_looked_at_until_there_is_room)
{
	struct actor actors[2] = { actor_start("scene-asleep"), actor_start("scene-asleep") };

	make("/proc", NULL,
	     scene_config("{\"sampling\": {\"max_targets\": 1}, \"targets\": [{\"name\": \"a\", \"comm\": "
			  "\"scene-asleep\"}]}"));
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(targets(), 1);
	ck_assert_uint_eq(scan().target_table.refused, 1);
	actor_end(&actors[0]);
	targets();
	ck_assert_uint_eq(targets(), 1);
	ck_assert_uint_eq(scan().target_table.found, 2);
	actor_end(&actors[1]);
}
END_TEST

#define CROWD 1000

/* So many processes that a scan takes more than a five-thousandth of a second's CPU. */
START_TEST(where_all_is_heard_of_scans_are_further_apart)
{
	static pid_t busiest_targets[CROWD];
	struct discovery_state state;
	struct config *before;

	for (int i = 0; i < CROWD; i++) {
		busiest_targets[i] = fork();
		if (busiest_targets[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
	}
	make("/proc", NULL,
	     scene_config("{\"sampling\": {\"rescan_interval\": \"100ms\"}, \"targets\": [{\"name\": \"a\", \"comm\": "
			  "\"scene-nobody\"}]}"));
	ck_assert_int_eq(discovery_start(discovery), 0);
	scene_wait_for((discovery_state(discovery, &state), state.scans >= 2));
	if (state.source != PROCESS_LISTENER_NONE) {
		scene_wait_for((discovery_state(discovery, &state), state.scan_interval_ns > 100 * NS_PER_MS));
		scene_wait_for((discovery_state(discovery, &state), state.scan_interval_ns <= NS_PER_S));
	}
	before = config;
	config = scene_config("{\"sampling\": {\"rescan_interval\": \"1h\"}, \"targets\": [{\"name\": \"a\", "
			      "\"cmdline\": \"scene-nobody\"}]}");
	ck_assert_int_eq(discovery_reload(discovery, config), 0);
	config_free(before);
	scene_wait_for((discovery_state(discovery, &state), state.scan_interval_ns == 3600 * NS_PER_S));
	for (int i = 0; i < CROWD; i++)
		kill(busiest_targets[i], SIGKILL);
	for (int i = 0; i < CROWD; i++)
		waitpid(busiest_targets[i], NULL, 0);
}
END_TEST

START_TEST(the_thread_finds_who_comes_later)
{
	struct actor actors[2] = { actor_start("scene-thread"), actor_start("scene-else") };
	struct discovery_state state;
	struct ring_info info;

	make("/proc", NULL,
	     scene_config("{\"sampling\": {\"rescan_interval\": \"100ms\"}, \"targets\": [{\"name\": \"a\", \"comm\": "
			  "\"scene-thread\"}]}"));
	ck_assert_int_eq(samplers_start(samplers), 0);
	ck_assert_int_eq(discovery_start(discovery), 0);
	scene_wait_for((discovery_state(discovery, &state), state.target_table.targets == 1));
	actor_do(&actors[1], 'n', "scene-thread");
	scene_wait_for((discovery_state(discovery, &state), state.target_table.targets == 2));
	actor_end(&actors[0]);
	scene_wait_for((discovery_state(discovery, &state), state.target_table.targets == 1));
	discovery_stop(discovery);
	discovery_stop(discovery);
	samplers_stop(samplers);
	ring_info(ring, &info);
	ck_assert_uint_gt(info.ticks, 0);
	actor_end(&actors[1]);
}
END_TEST

START_TEST(the_baseline_of_a_watched_process_names_its_hot_thread)
{
	struct actor actor = actor_start("scene-hot");
	struct thread_baseline threads;
	struct maps_snapshot *maps;
	struct busy_snapshot busy = { 0 };
	const struct thread_record *hot = NULL;
	uint64_t ran = 0;

	make("/proc", NULL, scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"scene-hot\"}]}"));
	actor_do(&actor, 'b', "burner");
	for (int naps = 0; !hot && naps < SCENE_NAPS; naps++) {
		scan();
		scene_nap();
		discovery_baselines(discovery, actor.pid, &threads, &maps);
		ck_assert_ptr_null(maps); /* not asked for */
		for (size_t i = 0; threads.newer && threads.older && i < threads.newer->count; i++) {
			const struct thread_record *now = &threads.newer->records[i];
			const struct thread_record *then = thread_snapshot_find(threads.older, now);

			ran = then ? now->cpu_ns - then->cpu_ns : 0;
			if (strcmp(now->name, "burner") == 0 && ran > 0)
				hot = now;
			else if (strcmp(now->name, "scene-hot") == 0)
				ck_assert_uint_lt(ran, NS_PER_S);
		}
		thread_baseline_release(&threads);
	}
	ck_assert_ptr_nonnull(hot);
	ck_assert_int_eq(discovery_busy(discovery, &busy), 0);
	ck_assert_ptr_nonnull(busy_snapshot_find(&busy, actor.pid, scene_start_ticks(actor.pid)));
	busy_snapshot_release(&busy);
	discovery_baselines(discovery, getpid(), &threads, &maps); /* not watched */
	ck_assert_ptr_null(threads.newer);
	actor_end(&actor);
}
END_TEST

/*
 * Makes, or removes, a v1 cgroup of our own in the hierarchies that count. False: that is not
 * possible here.
 */
static bool own_cgroup(const char *name, bool remove_it)
{
	static const char *const controllers[] = { "cpuacct", "memory" };
	char path[128];
	bool done = true;

	for (size_t i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/%s", controllers[i], name);
		done = (remove_it ? rmdir(path) : mkdir(path, 0755)) == 0 && done;
	}

	return done;
}

START_TEST(cgroups_come_and_go)
{
	char name[64];
	struct stat st;

	snprintf(name, sizeof(name), "check-spikewatch-%d", getpid());
	if (stat("/sys/fs/cgroup/cpuacct/cpuacct.usage", &st) < 0 || !own_cgroup(name, false)) {
		own_cgroup(name, true);
		fprintf(stderr, "discovery: skipped cgroups_come_and_go: needs root and cgroup v1\n");
		return;
	}
	make("/proc", NULL, scene_config("{\"targets\": [{\"name\": \"c\", \"cgroup\": \"/%s\"}]}", name));
	size_t found = targets();
	bool removed = own_cgroup(name, true);

	ck_assert_uint_eq(found, 1);
	ck_assert(removed);
	ck_assert_uint_eq(targets(), 0);
	ck_assert_uint_eq(scan().target_table.left, 1);
}
END_TEST

static TCase *selectors(void)
{
	TCase *tcase = tcase_create("selectors");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, finds_by_comm);
	tcase_add_test(tcase, finds_odd_names);
	tcase_add_test(tcase, finds_by_cmdline);
	tcase_add_test(tcase, finds_by_exe_also_when_it_was_replaced);
	tcase_add_test(tcase, finds_by_pid);
	tcase_add_test(tcase, finds_by_cgroup_and_unit);
	tcase_add_test(tcase, outside_are_processes_that_no_entry_before_has);
	tcase_add_test(tcase, outside_counts_only_entries_before);
	tcase_add_test(tcase, outside_are_cgroups_that_no_entry_before_has);
	tcase_add_test(tcase, finds_cgroups_by_path);
	tcase_add_test(tcase, finds_the_cgroup_of_matching_processes);
	tcase_add_test(tcase, a_pid_file_is_read_again_by_every_scan);

	return tcase;
}

/* As its thread does. */
static void refresh_limits(mono_t now)
{
	fair_mutex_enter(&discovery->turn);
	discovery_refresh_limits(discovery, now);
	fair_mutex_leave(&discovery->turn);
}

START_TEST(limits_are_read_again_no_more_often_than_their_share_allows)
{
	make_files("{\"name\": \"w\", \"comm\": \"web\"}");
	scan();

	mono_t read = discovery->limits_read, soon = mono_add(read, (DISCOVERY_SHARE - 1) * NS_PER_S);
	mono_t later = mono_add(read, (DISCOVERY_SHARE + 1) * NS_PER_S);

	ck_assert_uint_gt(discovery->limits_cpu_ns, 0);
	discovery->limits_cpu_ns = NS_PER_S;
	refresh_limits(soon);
	ck_assert_uint_eq(discovery->limits_read.ns, read.ns);
	refresh_limits(later);
	ck_assert_uint_eq(discovery->limits_read.ns, later.ns);
	ck_assert_uint_lt(discovery->limits_cpu_ns, NS_PER_S);

	/* Another configuration need not wait for that. */
	discovery->limits_cpu_ns = NS_PER_S;
	discovery->limits_due = true;
	refresh_limits(mono_add(later, 1));
	ck_assert_uint_eq(discovery->limits_read.ns, later.ns + 1);
}
END_TEST

START_TEST(limits_that_are_given_up_halfway_are_due_again)
{
	make_files("{\"name\": \"w\", \"comm\": \"web\"}");
	for (int pid = 100; pid < 160; pid++) /* too many for one slice */
		appear(pid, "web", "web", 500, "/");
	scan();

	discovery->limits_due = discovery->rescan = true;
	refresh_limits(discovery->limits_read);
	ck_assert(discovery->limits_due);
	discovery->rescan = false;
	refresh_limits(discovery->limits_read);
	ck_assert(!discovery->limits_due);
}
END_TEST

START_TEST(a_scan_that_fails_counts_as_work_too)
{
	struct rlimit before, none;
	struct discovery_state state;

	make_files("{\"name\": \"w\", \"comm\": \"web\"}");
	scan();
	discovery->scan_cpu_ns = 0;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){ 0, before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	discovery_scan(discovery);
	setrlimit(RLIMIT_NOFILE, &before);
	discovery_state(discovery, &state);
	ck_assert_int_eq(state.error, -EMFILE);
	ck_assert_uint_gt(discovery->scan_cpu_ns, 0);
}
END_TEST

Suite *discovery_suite(void)
{
	Suite *suite = suite_create("discovery");
	TCase *tcase = tcase_create("scans");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_group_is_one_target_and_knows_its_members);
	tcase_add_test(tcase, who_comes_is_picked_up_and_who_goes_is_let_go);
	tcase_add_test(tcase, a_pid_that_is_used_again_is_a_new_target);
	tcase_add_test(tcase, counts_what_is_there);
	tcase_add_test(tcase, a_scan_that_has_no_descriptors_lets_nobody_go);
	tcase_add_test(tcase, a_process_that_takes_another_name_is_let_go);
	tcase_add_test(tcase, who_has_not_run_is_not_looked_at_and_stays);
	tcase_add_test(tcase, who_has_not_run_is_looked_at_by_another_configuration);
	tcase_add_test(tcase, where_a_cgroup_is_what_matters_everybody_is_looked_at);
	tcase_add_test(tcase, who_was_refused_is_looked_at_until_there_is_room);
	tcase_add_test(tcase, where_all_is_heard_of_scans_are_further_apart);
	tcase_add_test(tcase, the_thread_finds_who_comes_later);
	tcase_add_test(tcase, the_baseline_of_a_watched_process_names_its_hot_thread);
	tcase_add_test(tcase, cgroups_come_and_go);
	tcase_add_test(tcase, limits_are_read_again_no_more_often_than_their_share_allows);
	tcase_add_test(tcase, limits_that_are_given_up_halfway_are_due_again);
	tcase_add_test(tcase, a_scan_that_fails_counts_as_work_too);
	suite_add_tcase(suite, selectors());
	suite_add_tcase(suite, tcase);

	return suite;
}
