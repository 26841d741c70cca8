/*
 * check_discovery.c: scans over a /proc made of files, over one with 70,000 processes, over real
 * processes and, where that is possible, over cgroups of our own; what the thread waits for between
 * scans; its tables; what the records of processes that ended lack; new cgroups. White box: includes
 * discovery.c.
 */
#include "daemon/engine/targets/discovery.c"
#include "discovery_rig.h"
#include "skip.h"
#include "torture.h"
#include "lib/ring/ring.h"
#include "samplers_tick.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

Suite *discovery_suite(void);

static struct discovery_rig rig;

static void setup(void)
{
	discovery_rig_setup(&rig);
}

static void teardown(void)
{
	discovery_rig_teardown(&rig);
}

#define ENTRY(selector) "{\"name\": \"e\", " selector "}"

#define OUTSIDE_PROCESSES "{\"name\": \"b\", \"cgroup\": \"/**\", \"per\": \"process\", \"outside\": true}"

/* What is found among the processes and cgroups of make_files(). */
static const struct {
	const char *by, *entries;
	size_t targets;
} selections[] = {
	{ "comm", ENTRY("\"comm\": \"web\""), 2 },
	{ "comm, an odd name", ENTRY("\"comm\": \"a) b\""), 1 },
	{ "cmdline", ENTRY("\"cmdline\": \"^web --port 81$\""), 1 },
	{ "exe, also when it was replaced", ENTRY("\"exe\": \"/opt/bin/w*\""), 2 },
	{ "pid", ENTRY("\"pid\": 11"), 1 },
	{ "cgroup and unit, processes",
	  "{\"name\": \"a\", \"cgroup\": \"/system.slice/*\", \"per\": \"process\"},"
	  "{\"name\": \"b\", \"unit\": \"postgresql.service\", \"per\": \"process\"}",
	  2 },
	{ "cgroup, cgroups", ENTRY("\"cgroup\": \"/system.slice/*\", \"per\": \"cgroup\""), 1 },
	{ "outside, only of entries before", OUTSIDE_PROCESSES ", {\"name\": \"a\", \"unit\": \"*.service\"}", 1 + 3 },
	{ "outside, cgroups that no entry before has",
	  "{\"name\": \"a\", \"unit\": \"*.service\"},"
	  "{\"name\": \"b\", \"cgroup\": \"/system.slice/*\", \"outside\": true}",
	  1 },
};

START_TEST(finds_what_entries_select)
{
	make_files(&rig, selections[_i].entries);
	size_t found = targets(&rig);

	ck_assert_msg(found == selections[_i].targets, "by %s: %zu targets, expected %zu", selections[_i].by, found,
		      selections[_i].targets);
}
END_TEST

/* Of three processes one is in the service. */
START_TEST(outside_are_processes_that_no_entry_before_has)
{
	make_files(&rig, "{\"name\": \"a\", \"unit\": \"*.service\"}, " OUTSIDE_PROCESSES);
	ck_assert_uint_eq(targets(&rig), 1 + 2);
	appear(&rig, 11, "web", "web|--port|81", 501, "/system.slice/postgresql.service/below");
	ck_assert_uint_eq(targets(&rig), 1 + 1);
	appear(&rig, 10, "web", "web|--port|80", 500, "/elsewhere");
	ck_assert_uint_eq(targets(&rig), 1 + 2);
}
END_TEST

START_TEST(finds_the_cgroup_of_matching_processes)
{
	make_files(&rig, ENTRY("\"cmdline\": \"port 80\", \"per\": \"cgroup\""));
	ck_assert_uint_eq(targets(&rig), 1);
	vanish(&rig, 10);
	ck_assert_uint_eq(targets(&rig), 0);
}
END_TEST

START_TEST(a_pid_file_is_read_again_by_every_scan)
{
	char path[128];
	int32_t pid = 0;
	uint32_t id = 0;

	snprintf(path, sizeof(path), "%s/pidfile", rig.root);
	appear(&rig, 10, "web", "web", 500, "/");
	appear(&rig, 11, "web", "web", 501, "/");
	make(&rig, rig.root, "tests/data/cgroup/v1",
	     scene_config("{\"targets\": [{\"name\": \"e\", \"pidfile\": \"%s\"}]}", path));
	ck_assert_uint_eq(targets(&rig), 0);
	scene_write(path, "10\n");
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert_uint_eq(discovery_pids(rig.discovery, ++id, &pid, 1), 1);
	ck_assert_int_eq(pid, 10);
	scene_write(path, "11\n");
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert_uint_eq(discovery_pids(rig.discovery, id, &pid, 1), 0);
	ck_assert_uint_eq(discovery_pids(rig.discovery, ++id, &pid, 1), 1);
	ck_assert_int_eq(pid, 11);
}
END_TEST

START_TEST(a_group_is_one_target_and_knows_its_members)
{
	int32_t pids[8];

	make_files(&rig, ENTRY("\"comm\": \"web\", \"per\": \"group\""));
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert_uint_eq(scan(&rig).target_table.members, 2);
	ck_assert_uint_eq(discovery_pids(rig.discovery, 1, pids, 8), 2);
	ck_assert_int_eq(pids[0] + pids[1], 21);
	ck_assert_uint_eq(discovery_pids(rig.discovery, 1, pids, 1), 1);
	ck_assert_uint_eq(discovery_pids(rig.discovery, 99, pids, 8), 0);
}
END_TEST

START_TEST(a_new_process_becomes_a_target_and_one_that_ended_leaves)
{
	make_files(&rig, ENTRY("\"comm\": \"web\""));
	ck_assert_uint_eq(targets(&rig), 2);
	appear(&rig, 20, "web", "", 600, "/");
	ck_assert_uint_eq(targets(&rig), 3);
	vanish(&rig, 10);
	ck_assert_uint_eq(targets(&rig), 2);
	appear(&rig, 11, "changed", "", 501, "/");
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert_uint_eq(scan(&rig).target_table.found, 3);
	ck_assert_uint_eq(scan(&rig).target_table.left, 2);
}
END_TEST

START_TEST(a_pid_that_is_used_again_is_a_new_target)
{
	struct cgroup_limits limits;

	make_files(&rig, ENTRY("\"pid\": 10"));
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert(discovery_limits(rig.discovery, 1, &limits));
	appear(&rig, 10, "other", "", 900, "/");
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert_uint_eq(scan(&rig).target_table.found, 2);
	ck_assert(!discovery_limits(rig.discovery, 1, &limits));
	ck_assert(discovery_limits(rig.discovery, 2, &limits));
}
END_TEST

START_TEST(counts_what_is_there)
{
	char path[128];

	make_files(&rig, ENTRY("\"comm\": \"web\""));
	snprintf(path, sizeof(path), "%s/99", rig.root);
	mkdir(path, 0700); /* ends while it is looked at */
	snprintf(path, sizeof(path), "%s/77x", rig.root);
	mkdir(path, 0700); /* no process */
	struct discovery_state state = scan(&rig);

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
	for (*count = 0; (free_one = dup(rig.procfd)) < highest && *count < cap; (*count)++)
		gaps[*count] = free_one;
	close(free_one);

	return free_one;
}

START_TEST(a_scan_without_descriptors_removes_no_target)
{
	struct rlimit limit, few;
	struct discovery_state state;
	size_t count;
	int gaps[64], last;

	make_files(&rig, ENTRY("\"comm\": \"web\""));
	ck_assert_uint_eq(targets(&rig), 2);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	last = fill_gaps(gaps, sizeof(gaps) / sizeof(gaps[0]), &count);
	for (int room = 0; room < 3; room++) {
		/* None at all; one for the directory and none for the files in it; one more. */
		few = (struct rlimit){ (rlim_t)(last + room), limit.rlim_max };
		setrlimit(RLIMIT_NOFILE, &few);
		int r = discovery_scan(rig.discovery);
		setrlimit(RLIMIT_NOFILE, &limit);
		samplers_tick(rig.samplers);
		ck_assert_int_eq(r, 0);
		discovery_state(rig.discovery, &state);
		ck_assert_int_eq(state.error, room < 2 ? -EMFILE : 0);
		ck_assert_uint_eq(scan(&rig).target_table.targets, 2);
	}
	ck_assert_uint_eq(scan(&rig).target_table.found, 2);
	while (count > 0)
		close(gaps[--count]);
}
END_TEST

START_TEST(a_process_that_takes_another_name_leaves)
{
	struct actor actor = actor_start("before@");

	make(&rig, "/proc", NULL,
	     scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"before@\"},"
			  "{\"name\": \"b\", \"comm\": \"after@\"}]}"));
	ck_assert_uint_eq(targets(&rig), 1);
	actor_do(&actor, 'n', "after@");
	/*
	 * A process that still runs is not seen to have run before the kernel has charged it: it
	 * may be passed over once.
	 */
	for (int i = 0; i < 100 && scan(&rig).target_table.left == 0; i++)
		usleep(10000);
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert_uint_eq(scan(&rig).target_table.left, 1);
	actor_do(&actor, 'n', "else@");
	for (int i = 0; i < 100 && targets(&rig) > 0; i++)
		usleep(10000);
	ck_assert_uint_eq(targets(&rig), 0);
	actor_end(&actor);
}
END_TEST

/* flags of the stat of a process without arguments: 0 is one that executes. */
static const struct {
	unsigned flags;
	size_t targets;
} empty[] = { { 0, 1 }, { PROCFS_FLAG_EXITING, 0 }, { PROCFS_FLAG_KERNEL, 0 } };

START_TEST(while_a_process_executes_it_is_not_known_whether_its_command_line_matches)
{
	char path[128];

	make_files(&rig, ENTRY("\"cmdline\": \"port 81\""));
	ck_assert_uint_eq(targets(&rig), 1);
	snprintf(path, sizeof(path), "%s/11/cmdline", rig.root);
	scene_write(path, "%s", "");
	snprintf(path, sizeof(path), "%s/11/stat", rig.root);
	scene_write(path, "11 (web) S 1 1 1 0 -1 %u 10 0 0 0 5 5 0 0 20 0 3 0 501 1000000 100 0\n", empty[_i].flags);
	ck_assert_uint_eq(targets(&rig), empty[_i].targets);
	appear(&rig, 11, "web", "web|--port|81", 501, "/");
	ck_assert_uint_eq(targets(&rig), 1);
	appear(&rig, 11, "web", "other", 501, "/");
	ck_assert_uint_eq(targets(&rig), 0);
}
END_TEST

/* Scans until one has passed over this process: in one of sixteen each is looked at. */
START_TEST(a_process_that_has_not_run_is_not_looked_at_and_stays)
{
	struct actor actor = actor_start("asleep@");

	make(&rig, "/proc", NULL, scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"asleep@\"}]}"));
	ck_assert_uint_eq(targets(&rig), 1);
	for (int i = 0; i < 20; i++)
		ck_assert_uint_eq(scan(&rig).target_table.targets, 1);
	ck_assert_uint_gt(scan(&rig).unchanged, 0);
	ck_assert_uint_lt(scan(&rig).unchanged, scan(&rig).processes); /* this one runs */
	ck_assert_uint_eq(scan(&rig).target_table.left, 0);
	ck_assert_uint_eq(scan(&rig).target_table.found, 1);
	kill(actor.pid, SIGKILL);
	ck_assert_int_eq(waitpid(actor.pid, NULL, 0), actor.pid);
	ck_assert_uint_eq(targets(&rig), 0);
}
END_TEST

START_TEST(a_process_that_has_not_run_is_looked_at_after_a_reload)
{
	struct actor actor = actor_start("asleep@");
	struct config *before;

	make(&rig, "/proc", NULL, scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"other@\"}]}"));
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(targets(&rig), 0);
	before = rig.config;
	rig.config = scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"asleep@\"}]}");
	ck_assert_int_eq(discovery_reload(rig.discovery, rig.config), 0);
	config_free(before);
	ck_assert_uint_eq(targets(&rig), 1);
	actor_end(&actor);
}
END_TEST

START_TEST(where_an_entry_selects_by_cgroup_every_process_is_looked_at)
{
	make(&rig, "/proc", NULL,
	     scene_config("{\"targets\": [{\"name\": \"a\", \"cgroup\": \"/**\", \"per\": \"process\"}]}"));
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(scan(&rig).unchanged, 0);
}
END_TEST

START_TEST(a_process_that_was_refused_is_looked_at_until_there_is_room)
{
	struct actor actors[2] = { actor_start("asleep@"), actor_start("asleep@") };

	make(&rig, "/proc", NULL,
	     scene_config("{\"sampling\": {\"max_targets\": 1}, \"targets\": [{\"name\": \"a\", \"comm\": "
			  "\"asleep@\"}]}"));
	for (int i = 0; i < 4; i++)
		ck_assert_uint_eq(targets(&rig), 1);
	ck_assert_uint_eq(scan(&rig).target_table.refused, 1);
	actor_end(&actors[0]);
	targets(&rig);
	ck_assert_uint_eq(targets(&rig), 1);
	ck_assert_uint_eq(scan(&rig).target_table.found, 2);
	actor_end(&actors[1]);
}
END_TEST

#define OTHERS 1000

/* So many processes that a scan takes more than a five-thousandth of a second's CPU. */
START_TEST(where_events_report_everything_scans_are_further_apart)
{
	static pid_t others[OTHERS];
	struct discovery_state state;
	struct config *before;

	for (int i = 0; i < OTHERS; i++) {
		others[i] = fork();
		if (others[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
	}
	make(&rig, "/proc", NULL,
	     scene_config("{\"sampling\": {\"rescan_interval\": \"100ms\"}, \"targets\": [{\"name\": \"a\", \"comm\": "
			  "\"none@\"}]}"));
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for((discovery_state(rig.discovery, &state), state.scans >= 2));
	if (state.source != PROCESS_EVENTS_NONE) {
		scene_wait_for((discovery_state(rig.discovery, &state), state.scan_interval_ns > 100 * NS_PER_MS));
		scene_wait_for((discovery_state(rig.discovery, &state), state.scan_interval_ns <= NS_PER_S));
	}
	before = rig.config;
	rig.config = scene_config("{\"sampling\": {\"rescan_interval\": \"1h\"}, \"targets\": [{\"name\": \"a\", "
				  "\"cmdline\": \"none@\"}]}");
	ck_assert_int_eq(discovery_reload(rig.discovery, rig.config), 0);
	config_free(before);
	scene_wait_for((discovery_state(rig.discovery, &state), state.scan_interval_ns == 3600 * NS_PER_S));
	for (int i = 0; i < OTHERS; i++)
		kill(others[i], SIGKILL);
	for (int i = 0; i < OTHERS; i++)
		waitpid(others[i], NULL, 0);
}
END_TEST

/* Of the thread of this process with that name. */
static int nice_of_thread(const char *name)
{
	DIR *tasks = opendir("/proc/self/task");
	int found = INT_MAX;
	char path[300];

	for (const struct dirent *entry; found == INT_MAX && (entry = readdir(tasks));) {
		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		if (entry->d_name[0] != '.' && scene_says(path, name))
			found = getpriority(PRIO_PROCESS, (id_t)strtoul(entry->d_name, NULL, 10));
	}
	closedir(tasks);
	return found;
}

START_TEST(the_thread_has_a_nice_value_of_its_own_unless_told_otherwise)
{
	struct config *before;

	if (setpriority(PRIO_PROCESS, 0, -10) < 0)
		SKIP_TEST("this user may have none below 0");
	setpriority(PRIO_PROCESS, 0, 0);
	make(&rig, "/proc", NULL, scene_config("{\"targets\": [{\"name\": \"a\", \"comm\": \"none@\"}]}"));
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for(nice_of_thread("discovery") == -10);
	ck_assert_int_eq(getpriority(PRIO_PROCESS, 0), 0);
	before = rig.config;
	rig.config = scene_config("{\"sampling\": {\"scheduling\": \"normal\"}, \"targets\": [{\"name\": \"a\", "
				  "\"comm\": \"none@\"}]}");
	ck_assert_int_eq(discovery_reload(rig.discovery, rig.config), 0);
	config_free(before);
	scene_wait_for(nice_of_thread("discovery") == 0);
}
END_TEST

START_TEST(the_thread_finds_processes_that_come_later)
{
	struct actor actors[2] = { actor_start("thread@"), actor_start("else@") };
	struct discovery_state state;
	struct ring_info info;

	make(&rig, "/proc", NULL,
	     scene_config("{\"sampling\": {\"rescan_interval\": \"100ms\"}, \"targets\": [{\"name\": \"a\", \"comm\": "
			  "\"thread@\"}]}"));
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for((discovery_state(rig.discovery, &state), state.target_table.targets == 1));
	actor_do(&actors[1], 'n', "thread@");
	scene_wait_for((discovery_state(rig.discovery, &state), state.target_table.targets == 2));
	actor_end(&actors[0]);
	scene_wait_for((discovery_state(rig.discovery, &state), state.target_table.targets == 1));
	discovery_stop(rig.discovery);
	discovery_stop(rig.discovery);
	samplers_stop(rig.samplers);
	ring_info(rig.ring, &info);
	ck_assert_uint_gt(info.ticks, 0);
	actor_end(&actors[1]);
}
END_TEST

START_TEST(the_baseline_of_a_watched_process_names_its_hot_thread)
{
	struct actor actor = actor_start("hot@");
	struct thread_baseline threads;
	struct maps_snapshot *maps;
	struct busy_snapshot busy = { 0 };
	const struct thread_record *hot = NULL;
	uint64_t ran = 0;

	make(&rig, "/proc", NULL,
	     scene_config("{\"incidents\": {\"captures\": [\"samples\"]}, \"targets\": [{\"name\": \"a\", \"comm\": "
			  "\"hot@\"}]}"));
	actor_do(&actor, 'b', "burner");
	for (int naps = 0; !hot && naps < SCENE_NAPS; naps++) {
		scan(&rig);
		scene_nap();
		discovery_baselines(rig.discovery, actor.pid, &threads, &maps);
		ck_assert_ptr_null(maps); /* not asked for */
		for (size_t i = 0; threads.newer && threads.older && i < threads.newer->count; i++) {
			const struct thread_record *now = &threads.newer->records[i];
			const struct thread_record *then = thread_snapshot_find(threads.older, now);

			ran = then ? now->cpu_ns - then->cpu_ns : 0;
			if (strcmp(now->name, "burner") == 0 && ran > 0)
				hot = now;
			else if (strcmp(now->name, scene_own("hot@")) == 0)
				ck_assert_uint_lt(ran, NS_PER_S);
		}
		thread_baseline_release(&threads);
	}
	ck_assert_ptr_nonnull(hot);
	ck_assert_int_eq(discovery_busy(rig.discovery, &busy), 0);
	ck_assert_ptr_nonnull(busy_snapshot_find(&busy, actor.pid, scene_start_ticks(actor.pid)));
	busy_snapshot_release(&busy);
	discovery_baselines(rig.discovery, getpid(), &threads, &maps); /* not watched */
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
		SKIP_TEST("needs root and cgroup v1");
	}
	make(&rig, "/proc", NULL, scene_config("{\"targets\": [{\"name\": \"c\", \"cgroup\": \"/%s\"}]}", name));
	size_t found = targets(&rig);
	bool removed = own_cgroup(name, true);

	ck_assert_uint_eq(found, 1);
	ck_assert(removed);
	ck_assert_uint_eq(targets(&rig), 0);
	ck_assert_uint_eq(scan(&rig).target_table.left, 1);
}
END_TEST

static TCase *selectors(void)
{
	TCase *tcase = tcase_create("selectors");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, finds_what_entries_select, 0, (int)(sizeof(selections) / sizeof(selections[0])));
	tcase_add_test(tcase, outside_are_processes_that_no_entry_before_has);
	tcase_add_test(tcase, finds_the_cgroup_of_matching_processes);
	tcase_add_test(tcase, a_pid_file_is_read_again_by_every_scan);

	return tcase;
}

/* As its thread does. */
static void refresh_limits_locked(mono_t now)
{
	fair_mutex_enter(&rig.discovery->lock);
	refresh_limits(rig.discovery, now);
	fair_mutex_leave(&rig.discovery->lock);
}

START_TEST(limits_are_read_again_no_more_often_than_their_share_allows)
{
	make_files(&rig, "{\"name\": \"w\", \"comm\": \"web\"}");
	scan(&rig);

	mono_t read = rig.discovery->limits_read, soon = mono_add(read, (LIMITS_SHARE - 1) * NS_PER_S);
	mono_t later = mono_add(read, (LIMITS_SHARE + 1) * NS_PER_S);

	ck_assert_uint_gt(rig.discovery->limits_cpu_ns, 0);
	rig.discovery->limits_cpu_ns = NS_PER_S;
	refresh_limits_locked(soon);
	ck_assert_uint_eq(rig.discovery->limits_read.ns, read.ns);
	refresh_limits_locked(later);
	ck_assert_uint_eq(rig.discovery->limits_read.ns, later.ns);
	ck_assert_uint_lt(rig.discovery->limits_cpu_ns, NS_PER_S);

	/* Another configuration need not wait for that. */
	rig.discovery->limits_cpu_ns = NS_PER_S;
	rig.discovery->limits_due = true;
	refresh_limits_locked(mono_add(later, 1));
	ck_assert_uint_eq(rig.discovery->limits_read.ns, later.ns + 1);
}
END_TEST

START_TEST(limits_that_are_given_up_halfway_are_due_again)
{
	make_files(&rig, "{\"name\": \"w\", \"comm\": \"web\"}");
	for (int pid = 100; pid < 160; pid++) /* too many for one slice */
		appear(&rig, pid, "web", "web", 500, "/");
	scan(&rig);

	rig.discovery->limits_due = rig.discovery->rescan = true;
	refresh_limits_locked(rig.discovery->limits_read);
	ck_assert(rig.discovery->limits_due);
	rig.discovery->rescan = false;
	refresh_limits_locked(rig.discovery->limits_read);
	ck_assert(!rig.discovery->limits_due);
}
END_TEST

START_TEST(a_scan_that_fails_counts_as_work_too)
{
	struct rlimit before, none;
	struct discovery_state state;

	make_files(&rig, "{\"name\": \"w\", \"comm\": \"web\"}");
	scan(&rig);
	rig.discovery->scan_cpu_ns = 0;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	none = (struct rlimit){ 0, before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	discovery_scan(rig.discovery);
	setrlimit(RLIMIT_NOFILE, &before);
	discovery_state(rig.discovery, &state);
	ck_assert_int_eq(state.error, -EMFILE);
	ck_assert_uint_gt(rig.discovery->scan_cpu_ns, 0);
}
END_TEST

/* ---- waiting for events: time is an argument, nothing sleeps ---- */

#define FAR (60 * NS_PER_S)

static char tree[96];

static void make_cgroup(const char *path)
{
	char full[160];

	snprintf(full, sizeof(full), "%s%s", tree, path);
	ck_assert_int_eq(mkdir(full, 0700), 0);
}

static void make_tree(void)
{
	char path[128];

	snprintf(tree, sizeof(tree), "%s/tree", rig.root);
	make_cgroup("");
	snprintf(path, sizeof(path), "%s/cgroup.controllers", tree);
	scene_write(path, "cpu memory\n");
}

/* As the thread does. */
static void hear_at(mono_t now)
{
	fair_mutex_enter(&rig.discovery->lock);
	read_events(rig.discovery, now);
	fair_mutex_leave(&rig.discovery->lock);
}

/* Until when it would sleep from now on; *ret_polled: how many descriptors may wake it before. */
static mono_t sleeps_until(mono_t now, size_t *ret_polled)
{
	struct pollfd fds[POLL_MAX];
	mono_t until = mono_add(now, FAR);

	*ret_polled = await_events(rig.discovery, now, fds, &until);

	return until;
}

/*
 * Hears at ever later moments: there is nothing, so it sleeps as long as it may, and what comes
 * would wake it.
 */
static void assert_sleeps(mono_t now, size_t polled)
{
	for (int i = 0; i < 4; i++) {
		mono_t later = mono_add(now, (uint64_t)i * 100 * NS_PER_US);
		size_t found;

		hear_at(later);
		ck_assert_uint_eq(sleeps_until(later, &found).ns, mono_add(later, FAR).ns);
		ck_assert_uint_eq(found, polled);
	}
}

START_TEST(without_new_cgroups_it_sleeps_and_polls)
{
	mono_t now;
	size_t polled;

	make_tree();
	make(&rig, rig.root, tree,
	     scene_config("{\"targets\": [{\"name\": \"e\", \"cgroup\": \"/jobs-*\", \"per\": \"cgroup\"}]}"));
	subscribe(rig.discovery);
	scan(&rig);
	now = update_pulse(rig.discovery);
	assert_sleeps(now, 2);

	/* Two in a row: it rests, and is not woken before; the first of them is due in a moment. */
	make_cgroup("/jobs-1");
	hear_at(mono_add(now, NS_PER_MS));
	make_cgroup("/jobs-2");
	hear_at(mono_add(now, NS_PER_MS + 1));
	ck_assert_int_lt(mono_diff(sleeps_until(mono_add(now, NS_PER_MS + 1), &polled), now), (int64_t)(3 * NS_PER_MS));
	ck_assert_uint_eq(polled, 1);

	/* They have been handed out: nothing more to be waited for. */
	hear_at(mono_add(now, NS_PER_S));
	ck_assert_uint_eq(rig.discovery->state.cgroups_heard, 2);
	assert_sleeps(mono_add(now, 2 * NS_PER_S), 2);
}
END_TEST

START_TEST(while_no_entry_selects_units_there_is_nothing_to_wait_for)
{
	make(&rig, "/proc", NULL, scene_config("{\"targets\": [{\"name\": \"e\", \"comm\": \"no process has\"}]}"));
	ask_for_units(rig.discovery);
	ck_assert_ptr_nonnull(rig.discovery->units);
	assert_sleeps(update_pulse(rig.discovery), 1);
}
END_TEST

/* ---- processes ---- */

/* A child that is called name and sleeps. */
static pid_t sleeper_called(const char *name)
{
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);

	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, name);
		close(ready[0]);
		close(ready[1]);
		for (;;)
			pause();
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 0);
	close(ready[0]);

	return pid;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* Targets by the order in which they were found. */
struct order {
	int32_t pid;
	uint32_t process, last_cgroup;
};

static int note(void *ctx, struct target_table_target *target)
{
	struct order *order = ctx;

	if (target->what.kind == TARGET_CGROUP && target->what.id > order->last_cgroup)
		order->last_cgroup = target->what.id;
	if (target->what.kind == TARGET_PROCESS && target->what.pid == order->pid)
		order->process = target->what.id;

	return 0;
}

static struct order order_of(pid_t pid)
{
	struct order order = { .pid = pid };

	target_table_visit(rig.discovery->target_table, note, &order);

	return order;
}

static const char *own_name(void)
{
	static char name[16];

	snprintf(name, sizeof(name), "wait%d", getpid());

	return name;
}

START_TEST(a_process_that_comes_while_cgroups_are_looked_at_does_not_wait_for_all_of_them)
{
	char path[160];
	struct order order;
	mono_t now;
	pid_t pid;

	make_tree();
	make(&rig, "/proc", tree,
	     scene_config("{\"targets\": [{\"name\": \"c\", \"cgroup\": \"/jobs-*\", \"per\": \"cgroup\"}, "
			  "{\"name\": \"p\", \"comm\": \"%s\"}]}",
			  own_name()));
	subscribe(rig.discovery);
	if (!rig.discovery->subscription)
		SKIP_TEST("no source of process events is permitted");
	scan(&rig);
	pid = sleeper_called(own_name());
	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof(path), "/jobs-%d", i);
		make_cgroup(path);
		snprintf(path, sizeof(path), "%s/jobs-%d/cpu.stat", tree, i);
		scene_write(path, "usage_usec 10\nuser_usec 5\nsystem_usec 5\n");
		snprintf(path, sizeof(path), "%s/jobs-%d/memory.current", tree, i);
		scene_write(path, "4096\n");
	}

	/* Both are heard of; the process may be looked at a moment after the first cgroup. */
	now = update_pulse(rig.discovery);
	rig.discovery->subscription->rate_limit = (struct rate_limit){ 0 };
	hear_at(mono_sub(now, NS_PER_S));
	ck_assert_uint_eq(order_of(pid).process, 0);
	rig.discovery->subscription->rate_limit.until = mono_add(now, 1);
	hear_at(now);
	order = order_of(pid);
	end_child(pid);
	ck_assert_uint_eq(rig.discovery->state.cgroups_heard, 8);
	ck_assert_uint_gt(order.last_cgroup, 0);
	ck_assert_uint_gt(order.process, 0);
	ck_assert_uint_lt(order.process, order.last_cgroup);
}
END_TEST

START_TEST(what_was_there_counts_as_looked_at_when_it_was_or_when_a_scan_made_up_for_it)
{
	make(&rig, "/proc", NULL, scene_config("{\"targets\": [{\"name\": \"p\", \"comm\": \"%s\"}]}", own_name()));
	subscribe(rig.discovery);
	if (!rig.discovery->subscription)
		SKIP_TEST("no source of process events is permitted");
	scan(&rig);
	hear_at(update_pulse(rig.discovery));

	pid_t pid = sleeper_called(own_name());
	mono_t now = update_pulse(rig.discovery);

	hear_at(now); /* of it; it waits for a moment */
	ck_assert_uint_eq(order_of(pid).process, 0);
	ck_assert_uint_lt(rig.discovery->complete_ns, now.ns);
	hear_at(mono_add(now, 2 * DELAY_NS));
	ck_assert_uint_gt(order_of(pid).process, 0);
	ck_assert_uint_ge(rig.discovery->complete_ns, now.ns);

	/* Something was missed: that is so until a scan is over that began after that. */
	uint64_t before = rig.discovery->complete_ns;

	rig.discovery->again = true;
	hear_at(mono_add(now, 4 * DELAY_NS));
	ck_assert_uint_eq(rig.discovery->complete_ns, before);
	rig.discovery->rescan = true;
	rig.discovery->again = false;
	rig.discovery->mending = true; /* in the middle of it */
	hear_at(mono_add(now, 6 * DELAY_NS));
	ck_assert_uint_eq(rig.discovery->complete_ns, before);
	now = update_pulse(rig.discovery);
	scan(&rig);
	ck_assert_uint_ge(rig.discovery->complete_ns, now.ns);
	unsubscribe(rig.discovery);
	ck_assert_uint_eq(rig.discovery->complete_ns, 0);
	end_child(pid);
}
END_TEST

/* Nothing is left of the share as of then. */
static void exhaust(mono_t now)
{
	rig.discovery->subscription->token_bucket.left_ns = -(int64_t)NS_PER_MS;
	rig.discovery->subscription->token_bucket.filled = now;
}

/* A process after all of the share was taken, 20 ms after *ret_now. False: none could be heard of. */
static bool starts_when_the_share_is_used_up(pid_t *ret_pid, mono_t *ret_now)
{
	make(&rig, "/proc", NULL, scene_config("{\"targets\": [{\"name\": \"p\", \"comm\": \"%s\"}]}", own_name()));
	subscribe(rig.discovery);
	if (!rig.discovery->subscription)
		return false;
	scan(&rig);
	*ret_now = update_pulse(rig.discovery);
	exhaust(*ret_now);
	hear_at(mono_add(*ret_now, 20 * NS_PER_MS)); /* finds it taken */
	*ret_pid = sleeper_called(own_name());
	return true;
}

START_TEST(a_process_that_comes_when_the_share_is_used_up_is_late_and_counted)
{
	mono_t now;
	uint64_t looks;
	pid_t pid;

	if (!starts_when_the_share_is_used_up(&pid, &now))
		SKIP_TEST("no source of process events is permitted");
	looks = rig.discovery->state.looks;
	hear_at(mono_add(now, 40 * NS_PER_MS));
	ck_assert(rig.discovery->state.held_off);
	ck_assert_uint_eq(rig.discovery->state.looks, looks);
	ck_assert_uint_eq(order_of(pid).process, 0);

	/* There is something left again. */
	hear_at(mono_add(now, 500 * NS_PER_MS));
	end_child(pid);
	ck_assert_uint_gt(order_of(pid).process, 0);
	ck_assert_uint_ge(rig.discovery->state.late, 1);
	ck_assert_uint_eq(rig.discovery->state.storms, 0);
	hear_at(mono_add(now, NS_PER_S));
	ck_assert(!rig.discovery->state.held_off);
}
END_TEST

START_TEST(while_evidence_waits_the_share_is_exceeded_until_that_is_used_up_too)
{
	mono_t now;
	pid_t pid;

	if (!starts_when_the_share_is_used_up(&pid, &now))
		SKIP_TEST("no source of process events is permitted");
	rig.discovery->wanted_ns = UINT64_MAX;
	rig.discovery->subscription->evidence.left_ns = -(int64_t)NS_PER_S;
	rig.discovery->subscription->evidence.filled = now;
	exhaust(mono_add(now, 40 * NS_PER_MS));
	hear_at(mono_add(now, 40 * NS_PER_MS));
	exhaust(mono_add(now, 60 * NS_PER_MS));
	hear_at(mono_add(now, 60 * NS_PER_MS));
	ck_assert_uint_eq(order_of(pid).process, 0);

	rig.discovery->subscription->evidence = token_bucket_of(EVIDENCE_SHARE, now);
	exhaust(mono_add(now, 80 * NS_PER_MS));
	hear_at(mono_add(now, 80 * NS_PER_MS));
	ck_assert_uint_gt(order_of(pid).process, 0);
	end_child(pid);
}
END_TEST

START_TEST(a_process_that_has_waited_a_second_for_the_share_is_left_to_a_scan)
{
	mono_t now, next;
	uint64_t late;
	pid_t pid;

	make(&rig, "/proc", NULL, scene_config("{\"targets\": [{\"name\": \"p\", \"comm\": \"%s\"}]}", own_name()));
	subscribe(rig.discovery);
	if (!rig.discovery->subscription)
		SKIP_TEST("no source of process events is permitted");
	scan(&rig);
	pid = sleeper_called(own_name());
	now = update_pulse(rig.discovery);
	rig.discovery->again = false;
	for (unsigned i = 0; i < 60; i++) {
		ck_assert_uint_eq(rig.discovery->state.storms, i * 20 > 1000);
		late = rig.discovery->state.late;
		exhaust(now);
		now = mono_add(now, 20 * NS_PER_MS);
		hear_at(now);
		if (rig.discovery->state.storms > 0)
			break;
	}
	end_child(pid);
	ck_assert_uint_eq(rig.discovery->state.storms, 1);
	ck_assert_uint_gt(rig.discovery->state.late, late);
	ck_assert(rig.discovery->again);
	ck_assert(!recent_pids_next(&rig.discovery->subscription->recent_pids, 0, &next));
	ck_assert_uint_eq(order_of(pid).process, 0);
}
END_TEST

/* What is needed to hear of processes, and no source. */
static void subscribe_to_none(struct discovery *discovery)
{
	struct process_subscription *subscription = calloc(1, sizeof(*subscription));

	ck_assert_ptr_nonnull(subscription);
	process_facts_init(&subscription->process_facts, discovery);
	ck_assert_int_eq(map_reserve(&subscription->recent_pids.pids, RECENT_PIDS_MAX), 0);
	ck_assert_int_eq(waited_times_new(discovery->options.target_table.procfd, &subscription->waited_times), 0);
	discovery->subscription = subscription;
}

#define NO_PID 2000000001 /* of no process of this machine */

/*
 * A child of 3 ms that was forked before a scan began and had ended 1 ms later, before the scan came to it. With _i
 * the scan has looked at it, and it was called otherwise then.
 */
START_TEST(one_that_ends_before_the_running_scan_comes_to_it_counts_in_its_group)
{
	struct procevent end = { .kind = PROCEVENT_TOTALS,
				 .pid = NO_PID,
				 .ppid = 20,
				 .totals = { .cpu_ns = NS_PER_MS, .elapsed_ns = 3 * NS_PER_MS, .comm = "short" } };
	struct process_facts facts = { 0 };
	mono_t forked;

	appear(&rig, 20, "parent", "parent", 7, "/");
	make(&rig, rig.root, NULL,
	     scene_config("{\"targets\": [" ENTRY("\"comm\": \"short\", \"per\": \"group\"") "]}"));
	scan(&rig);
	subscribe_to_none(rig.discovery);
	process_facts_init(&facts, rig.discovery);
	fair_mutex_enter(&rig.discovery->lock);
	forked = update_pulse(rig.discovery);
	on_process_change(rig.discovery, NO_PID, CHANGE_FORKED, forked);
	rig.discovery->scan_began = mono_add(forked, 2 * NS_PER_MS);
	if (_i) {
		appear(&rig, NO_PID, "other", "other", 8, "/");
		ck_assert_int_eq(visit_process(rig.discovery, NO_PID, &facts), 0);
	}
	on_exit_record(rig.discovery, &end, mono_add(forked, 3 * NS_PER_MS));
	ck_assert_uint_eq(rig.discovery->state.credited, _i == 0);
	ck_assert((find_account(rig.discovery->subscription->waited_times, 20) != NULL) == (_i == 0));
	fair_mutex_leave(&rig.discovery->lock);
}
END_TEST

static bool is_late(uint64_t before_now_ns)
{
	mono_t now = update_pulse(rig.discovery);
	struct sample sample = { 0 };

	put_lateness(rig.discovery, mono_sub(now, before_now_ns), &sample);
	ck_assert_uint_eq(sample.mask & ~(1u << SAMPLE_CPU_LATE), 0);
	if (sample_has(&sample, SAMPLE_CPU_LATE))
		ck_assert_uint_eq(sample.value[SAMPLE_CPU_LATE], before_now_ns);

	return sample_has(&sample, SAMPLE_CPU_LATE);
}

START_TEST(what_ended_long_before_it_is_counted_is_late)
{
	struct sample sample = { 0 };

	make(&rig, rig.root, NULL, scene_config("{\"targets\": [" ENTRY("\"comm\": \"a\"") "]}"));
	fair_mutex_enter(&rig.discovery->lock);
	ck_assert(!is_late(0));
	ck_assert(!is_late(100 * NS_PER_MS));
	ck_assert(is_late(101 * NS_PER_MS));
	ck_assert(is_late(59 * NS_PER_S));
	ck_assert(!is_late(61 * NS_PER_S)); /* of another time namespace */
	put_lateness(rig.discovery, (mono_t){ 0 }, &sample);
	put_lateness(rig.discovery, mono_add(update_pulse(rig.discovery), NS_PER_S), &sample);
	ck_assert_uint_eq(sample.mask, 0);
	fair_mutex_leave(&rig.discovery->lock);
}
END_TEST

/* ---- very many processes ---- */

/*
 * More than a process cache has room for (PROCESS_CACHE_MAX), of which one in a hundred is gone
 * when it is looked at.
 */
#define PROCESSES_USUAL 70000
#define GONE_EVERY 100
#define PID_MOST 4194304 /* the kernel's PID_MAX_LIMIT: the first that no process has */
#define WATCHED 50

/* Of another name, one in so many of all processes. */
#define RARE 10

/* Of one that is not watched, whatever remembers it. */
#define BYTES_EACH 512

static char crowd_root[64];
static int process_count; /* how many there are */
static bool measured;

static int first_pid(void)
{
	return PID_MOST - process_count;
}

/* Where memory is a file system a test need not wait for a disk. */
static void crowd_directory(void)
{
	snprintf(crowd_root, sizeof crowd_root, "%s/check_crowd.XXXXXX",
		 access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(crowd_root));
}

static bool is_rare(int pid)
{
	return (pid - first_pid()) % (process_count / RARE) == process_count / RARE - 1;
}

static void crowd_appear(int pid)
{
	char line[160], path[96];
	int len = snprintf(line, sizeof line, "%d (%s) S 1 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 500 1000000 100 0\n",
			   pid, is_rare(pid) ? "rare" : "many");

	snprintf(path, sizeof path, "%s/%d", crowd_root, pid);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	if (pid % GONE_EVERY == 0 && !is_rare(pid))
		return;

	snprintf(path, sizeof path, "%s/%d/stat", crowd_root, pid);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, line, (size_t)len), len);
	close(fd);
}

/* Once for all tests, none of which changes it: it takes longer than what is done with it. */
static void crowd_gather(void)
{
	const char *asked = getenv("SPIKEWATCH_PROCESSES");

	process_count = asked ? (int)strtol(asked, NULL, 10) : PROCESSES_USUAL;
	measured = asked != NULL;
	crowd_directory();
	for (int pid = first_pid(); pid < PID_MOST; pid++)
		crowd_appear(pid);
}

static void crowd_disperse(void)
{
	scene_remove(crowd_root);
}

static void make_crowd(const char *comm)
{
	make(&rig, crowd_root, "tests/data/cgroup/v1",
	     scene_config("{\"sampling\": {\"max_targets\": %d}, \"targets\": [{\"name\": \"m\", \"comm\": \"%s\"}]}",
			  WATCHED, comm));
}

static size_t gone(void)
{
	size_t count = 0;

	for (int pid = first_pid(); pid < PID_MOST; pid++)
		count += pid % GONE_EVERY == 0 && !is_rare(pid);

	return count;
}

START_TEST(very_many_processes_are_all_met_and_those_without_room_are_counted)
{
	size_t bytes = mallinfo2().uordblks;

	make_crowd("many");
	for (int i = 0; i < 3; i++) {
		struct discovery_state state = scan(&rig);

		ck_assert_int_eq(state.error, 0);
		ck_assert_uint_eq(state.processes, (size_t)process_count);
		ck_assert_uint_eq(state.target_table.targets, WATCHED);
		ck_assert_uint_eq(state.target_table.refused, (size_t)process_count - gone() - RARE - WATCHED);
		ck_assert_uint_ge(state.scan_interval_ns, DISCOVERY_SHARE * rig.discovery->scan_cpu_ns);

		/* As much after each scan: nothing piles up. */
		size_t grown = mallinfo2().uordblks - bytes;

		ck_assert_uint_lt(grown, (size_t)process_count * BYTES_EACH);
		if (measured)
			printf("%d processes: a scan took %.2f s, %.2f s of CPU, %.1f MiB, the next %.0f s later\n",
			       process_count, (double)state.last_scan_ns / 1e9,
			       (double)rig.discovery->scan_cpu_ns / 1e9, (double)grown / (1 << 20),
			       (double)state.scan_interval_ns / 1e9);
	}
}
END_TEST

START_TEST(the_few_that_are_selected_are_found_among_very_many)
{
	make_crowd("rare");
	ck_assert_uint_eq(scan(&rig).target_table.targets, RARE);
	ck_assert_uint_eq(scan(&rig).target_table.refused, 0);
	for (int pid = first_pid(); pid < PID_MOST; pid++)
		if (is_rare(pid))
			ck_assert(target_table_knows(rig.discovery->target_table, pid));
}
END_TEST

static void *scan_once(void *argument)
{
	_Atomic bool *over = argument;

	ck_assert_int_eq(discovery_scan(rig.discovery), 0);
	*over = true;

	return NULL;
}

static uint64_t now_ns(void)
{
	struct clock clock = real_clock();

	return clock_mono(&clock).ns;
}

/* Whether a question was answered between the first and the last process of a scan. */
static bool is_asked_within_a_scan(uint64_t *longest_ns)
{
	_Atomic bool over = false;
	bool within = false;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, scan_once, &over), 0);
	while (!over && (measured || !within)) {
		uint64_t began = now_ns(), waited_ns;

		fair_mutex_enter(&rig.discovery->lock);
		waited_ns = now_ns() - began;
		*longest_ns = waited_ns > *longest_ns ? waited_ns : *longest_ns;
		within |= rig.discovery->processes > 0 && rig.discovery->processes < (uint64_t)process_count;
		fair_mutex_leave(&rig.discovery->lock);
		if (measured)
			scene_nap();
	}
	pthread_join(thread, NULL);

	return within;
}

/* A scan may be over before this thread has a CPU. */
START_TEST(queries_are_answered_while_very_many_are_scanned)
{
	uint64_t longest_ns = 0;
	bool within = false;

	make_crowd("many");
	for (int i = 0; i < 20 && !within; i++)
		within = is_asked_within_a_scan(&longest_ns);
	ck_assert(within);
	if (measured)
		printf("%d processes: a question waited %.1f ms at most\n", process_count, (double)longest_ns / 1e6);
}
END_TEST

/* ---- recent pids: time is made up ---- */

#define DELAY (2 * NS_PER_MS)

static struct recent_pids *recent_pids;
static mono_t moment;

static void setup_recent(void)
{
	moment = (mono_t){ NS_PER_S };
	recent_pids = calloc(1, sizeof(*recent_pids));
	ck_assert_int_eq(map_reserve(&recent_pids->pids, RECENT_PIDS_MAX), 0);
}

static void teardown_recent(void)
{
	map_release(&recent_pids->pids);
	free(recent_pids);
}

static struct recent_pid *change(int32_t pid, enum process_change what)
{
	return recent_pids_change(recent_pids, pid, what, moment);
}

static struct recent_pid *next_due(void)
{
	return recent_pids_due(recent_pids, DELAY, moment);
}

START_TEST(a_forked_process_is_due_after_the_delay_and_once)
{
	mono_t next;

	change(7, CHANGE_FORKED);
	ck_assert(recent_pids_next(recent_pids, DELAY, &next));
	ck_assert_uint_eq(next.ns, moment.ns + DELAY);
	moment = mono_add(moment, DELAY - 1);
	ck_assert_ptr_null(next_due());
	moment = mono_add(moment, 1);
	ck_assert_int_eq(next_due()->pid, 7);
	ck_assert_ptr_null(next_due());
	ck_assert(!recent_pids_next(recent_pids, DELAY, &next));
}
END_TEST

START_TEST(a_process_that_was_looked_at_before_is_known)
{
	change(7, CHANGE_FORKED);
	ck_assert(!change(7, CHANGE_EXECUTED)->met);
	recent_pids_find(recent_pids, 7)->state = RECENT_MET;
	ck_assert(change(7, CHANGE_EXECUTED)->met);
	ck_assert(change(7, CHANGE_RENAMED)->met);
	ck_assert(!change(7, CHANGE_FORKED)->met);
}
END_TEST

START_TEST(one_that_executes_waits_again_and_keeps_its_birth)
{
	mono_t born = moment;
	struct recent_pid *recent;

	change(7, CHANGE_FORKED);
	change(8, CHANGE_FORKED);
	moment = mono_add(moment, DELAY - 1);
	recent = change(7, CHANGE_EXECUTED);
	ck_assert(recent->forked && recent->executed);
	ck_assert_uint_eq(recent->born.ns, born.ns);
	moment = mono_add(moment, 1);
	ck_assert_int_eq(next_due()->pid, 8);
	ck_assert_ptr_null(next_due());
	moment = mono_add(moment, DELAY);
	ck_assert_int_eq(next_due()->pid, 7);
}
END_TEST

START_TEST(another_name_is_kept_until_it_was_looked_at)
{
	ck_assert(!change(10, CHANGE_FORKED)->renamed);
	ck_assert(change(10, CHANGE_RENAMED)->renamed);
	moment = mono_add(moment, DELAY);
	next_due()->renamed = false;
	ck_assert(change(10, CHANGE_EXECUTED)->renamed);
	ck_assert(recent_pids_ended(recent_pids, 10, moment)->renamed);
	ck_assert(!recent_pids_ended(recent_pids, 11, moment)->renamed);
	ck_assert_ptr_null(change(11, CHANGE_RENAMED));
	ck_assert(recent_pids_find(recent_pids, 11)->renamed);
	ck_assert(!change(12, CHANGE_FORKED)->renamed);
}
END_TEST

START_TEST(one_that_ends_while_it_waits_was_missed)
{
	change(7, CHANGE_FORKED);
	ck_assert(recent_pids_ended(recent_pids, 7, moment)->missed);
	recent_pids_ended(recent_pids, 7, moment);
	ck_assert_uint_eq(recent_pids->missed, 1);
	moment = mono_add(moment, DELAY);
	ck_assert_ptr_null(next_due());
}
END_TEST

START_TEST(one_that_was_looked_at_was_not_missed)
{
	change(7, CHANGE_FORKED)->state = RECENT_MET;
	ck_assert(!recent_pids_ended(recent_pids, 7, moment)->missed);
	ck_assert_uint_eq(recent_pids->missed, 0);
}
END_TEST

START_TEST(an_end_alone_is_not_counted)
{
	ck_assert(!recent_pids_ended(recent_pids, 7, moment)->missed);
	ck_assert_uint_eq(recent_pids->missed, 0);
}
END_TEST

START_TEST(events_after_the_end_are_of_a_missed_process)
{
	recent_pids_ended(recent_pids, 7, moment);
	ck_assert_ptr_null(change(7, CHANGE_FORKED));
	ck_assert_ptr_null(change(7, CHANGE_EXECUTED));
	ck_assert_uint_eq(recent_pids->missed, 1);
	ck_assert_ptr_null(next_due());
}
END_TEST

START_TEST(a_pid_that_is_used_again_is_another)
{
	recent_pids_ended(recent_pids, 7, moment);
	moment = mono_add(moment, NS_PER_S);
	ck_assert_ptr_nonnull(change(7, CHANGE_FORKED));
	ck_assert_int_eq(recent_pids_find(recent_pids, 7)->state, RECENT_WAITING);
}
END_TEST

START_TEST(the_oldest_is_forgotten_for_the_newest)
{
	for (int32_t pid = 1; pid <= (int32_t)RECENT_PIDS_MAX + 10; pid++)
		change(pid, CHANGE_FORKED);
	ck_assert_uint_eq(recent_pids->dropped, 10);
	ck_assert_ptr_null(recent_pids_find(recent_pids, 10));
	moment = mono_add(moment, DELAY);
	for (int32_t pid = 11; pid <= (int32_t)RECENT_PIDS_MAX + 10; pid++)
		ck_assert_int_eq(next_due()->pid, pid);
	ck_assert_ptr_null(next_due());
}
END_TEST

START_TEST(those_given_up_are_still_missed_when_they_end)
{
	change(7, CHANGE_FORKED);
	change(8, CHANGE_FORKED)->state = RECENT_MET;
	ck_assert_uint_eq(recent_pids_give_up(recent_pids), 1);
	moment = mono_add(moment, DELAY);
	ck_assert_ptr_null(next_due());
	recent_pids_ended(recent_pids, 7, moment);
	ck_assert_uint_eq(recent_pids->missed, 1);
}
END_TEST

/* Pids that share a bucket come and go in all orders. */
START_TEST(chains_hold)
{
	uint32_t random = 1;

	for (int i = 0; i < 100000; i++) {
		int32_t pid = (int32_t)(1 + (random >> 8) % 8 * RECENT_PIDS_MAX + (random >> 20) % 3);

		random = random * 1664525u + 1013904223u;
		if (random >> 31)
			recent_pids_ended(recent_pids, pid, moment);
		else
			change(pid, CHANGE_FORKED);
		moment = mono_add(moment, NS_PER_MS);
		ck_assert_int_eq(recent_pids_find(recent_pids, pid)->pid, pid);
		if (i % 7 == 0)
			next_due();
	}
}
END_TEST

/* ---- the cache of unchanged processes: what clocks say is made up ---- */

static struct process_cache cache;

static void setup_cache(void)
{
	cache = (struct process_cache){ 0 };
	cache.scan++; /* the first: of the pids below none is in its turn */
}

static void teardown_cache(void)
{
	process_cache_release(&cache);
}

static void remember(int32_t pid, uint64_t cpu_ns)
{
	struct process_record record = {
		.pid = pid, .start_ticks = (uint64_t)pid + 5, .cpu_ticks = 7, .cpu_ns = cpu_ns, .targets = 2
	};

	process_cache_enter(&cache, &record);
}

START_TEST(a_process_that_has_not_run_is_unchanged)
{
	const struct process_record *record;

	ck_assert_ptr_null(process_cache_meet(&cache, 18, 1000));
	remember(18, 1000);
	process_cache_sweep(&cache, false);
	cache.scan++;
	ck_assert_ptr_null(process_cache_meet(&cache, 19, 1000));
	record = process_cache_meet(&cache, 18, 1000);
	ck_assert_ptr_null(record); /* in the second of sixteen scans it is looked at in any case */
	remember(18, 1000);
	cache.scan++;
	record = process_cache_meet(&cache, 18, 1000);
	ck_assert_ptr_nonnull(record);
	ck_assert_uint_eq(record->start_ticks, 23);
	ck_assert_uint_eq(record->cpu_ticks, 7);
	ck_assert_uint_eq(record->targets, 2);
}
END_TEST

START_TEST(one_that_has_run_or_has_no_clock_is_looked_at)
{
	remember(21, 1000);
	ck_assert_ptr_null(process_cache_meet(&cache, 21, 1001));
	ck_assert_ptr_null(process_cache_meet(&cache, 21, 999));
	ck_assert_ptr_null(process_cache_meet(&cache, 21, 0));
	ck_assert_ptr_nonnull(process_cache_meet(&cache, 21, 1000));
	remember(21, 2000);
	ck_assert_ptr_null(process_cache_meet(&cache, 21, 1000));
	ck_assert_ptr_nonnull(process_cache_meet(&cache, 21, 2000));
	ck_assert_uint_eq(cache.records.count, 1);
}
END_TEST

START_TEST(every_process_is_looked_at_once_in_sixteen_scans)
{
	unsigned looked = 0;

	remember(21, 1000);
	for (unsigned i = 0; i < PROCESS_CACHE_TURNS; i++) {
		cache.scan++;
		if (!process_cache_meet(&cache, 21, 1000)) {
			looked++;
			remember(21, 1000);
		}
		process_cache_sweep(&cache, false);
	}
	ck_assert_uint_eq(looked, 1);
}
END_TEST

START_TEST(ended_processes_are_forgotten_and_the_others_are_not)
{
	for (int32_t pid = 1; pid <= 1000; pid++)
		remember(pid, 1000);
	ck_assert_uint_eq(cache.records.count, 1000);
	cache.scan++;
	cache.scan++;
	for (int32_t pid = 1; pid <= 1000; pid += 2)
		if (!process_cache_meet(&cache, pid, 1000))
			remember(pid, 1000);
	process_cache_sweep(&cache, false);
	ck_assert_uint_eq(cache.records.count, 500);
	for (int32_t pid = 1; pid <= 1000; pid++)
		if ((uint32_t)pid % PROCESS_CACHE_TURNS != 3)
			ck_assert(!process_cache_meet(&cache, pid, 1000) == (pid % 2 == 0));
	process_cache_sweep(&cache, true);
	ck_assert_uint_eq(cache.records.count, 0);
	ck_assert_ptr_null(process_cache_meet(&cache, 21, 1000));
}
END_TEST

START_TEST(the_cache_is_bounded)
{
	for (int32_t pid = 1; pid <= (int32_t)PROCESS_CACHE_MAX + 1000; pid++)
		remember(pid, 1000);
	ck_assert_uint_eq(cache.records.count, PROCESS_CACHE_MAX);
	ck_assert_ptr_nonnull(process_cache_meet(&cache, 21, 1000));
	ck_assert_ptr_null(process_cache_meet(&cache, (int32_t)PROCESS_CACHE_MAX + 900, 1000));
}
END_TEST

START_TEST(without_memory_no_process_is_remembered_wrongly)
{
	for (int32_t pid = 1; pid <= 128; pid++)
		remember(pid, 1000);
	for (long n = 1; n <= 2; n++) { /* the buckets, the record */
		torture_arm(n);
		remember(129, 1000);
		ck_assert(torture_disarm());
		ck_assert_ptr_null(process_cache_meet(&cache, 129, 1000));
		ck_assert_ptr_nonnull(process_cache_meet(&cache, 128, 1000));
	}
}
END_TEST

/*
 * Parents that wait for children whose records lack a part, over files that
 * show what the parents have waited for, in clock ticks. What is handed out is compared with what
 * was missing.
 */

#define TICK_NS (10 * NS_PER_MS)
#define GRAIN_NS (2 * TICK_NS)
#define PARENT 10
#define GROUP 4u
#define USED_NS (4 * NS_PER_MS) /* by each child, mostly */
#define FAULTS 20u

static char parents_root[64];
static int parents_procfd;
static struct waited_times *parents;
static mono_t parents_now;
static uint64_t handed_ns, rest_ns, rest_groups;
static int32_t next_pid;
static uint64_t others_ns, others_faults; /* of children that were waited for before, in each mode */

static void setup_parents(void)
{
	scene_directory(parents_root);
	parents_procfd = open(parents_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(parents_procfd, 0);
	ck_assert_int_eq(waited_times_new(parents_procfd, &parents), 0);
	parents_now = (mono_t){ NS_PER_S };
	handed_ns = rest_ns = rest_groups = others_ns = others_faults = 0;
	next_pid = 1000;
}

static void teardown_parents(void)
{
	waited_times_free(parents);
	close(parents_procfd);
	scene_remove(parents_root);
}

/* The stat of a process that has waited for so much, and for others: half of it in user mode. */
static void show_waited(int32_t pid, uint64_t waited_ns)
{
	char path[128];
	uint64_t each_ns = waited_ns / 2 + others_ns;

	snprintf(path, sizeof(path), "%s/%d", parents_root, pid);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%d/stat", parents_root, pid);
	scene_write(path, "%d (p) S 1 1 1 0 -1 0 10 %llu 0 0 5 5 %llu %llu 20 0 1 0 77 1000000 100 0\n", pid,
		    (unsigned long long)(waited_ns / USED_NS * FAULTS + others_faults),
		    (unsigned long long)(each_ns / TICK_NS), (unsigned long long)(each_ns / TICK_NS));
}

static void on_rest(void *ctx, uint64_t groups, uint64_t cpu_ns)
{
	(void)ctx;
	rest_groups = groups;
	rest_ns += cpu_ns;
}

static void look_and_settle(bool given_back)
{
	waited_times_look(parents, parents_now);
	waited_times_settle(parents, given_back, parents_now, on_rest, NULL);
}

static void read_record(int32_t parent, int32_t pid, uint64_t record_ns, uint64_t groups)
{
	struct waited_child child = {
		.pid = pid,
		.parent_pid = parent,
		.cpu_ns = record_ns,
		.missing_ns = 12 * NS_PER_MS,
		.faults = FAULTS,
		.gone = true,
		.groups = groups,
	};

	handed_ns += waited_times_child(parents, &child, parents_now);
}

static void end_child_of(int32_t parent, int32_t pid, uint64_t record_ns, uint64_t groups)
{
	parents_now = mono_add(parents_now, 5 * NS_PER_MS);
	waited_times_look(parents, parents_now);
	read_record(parent, pid, record_ns, groups);
	waited_times_settle(parents, true, parents_now, on_rest, NULL);
}

static void settle_parents(void)
{
	mono_t due;

	while (waited_times_due(parents, &due)) {
		parents_now = due;
		look_and_settle(true);
	}
}

/* Children that used 4 ms each, of which their records have 1; reaped: so many at a time. */
static void run_children(uint64_t opening_ns, int count, int reaped)
{
	uint64_t waited_ns = opening_ns;

	show_waited(PARENT, waited_ns);
	for (int i = 1; i <= count; i++) {
		end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
		if (i % reaped == 0)
			waited_ns += (uint64_t)reaped * 4 * NS_PER_MS;
		show_waited(PARENT, waited_ns);
	}
	settle_parents();
}

/* Never more than is missing, less by at most that. */
static void ck_assert_handed_out(uint64_t missing_ns, uint64_t less_ns)
{
	uint64_t all_ns = handed_ns + rest_ns;

	ck_assert_msg(all_ns + less_ns >= missing_ns && all_ns <= missing_ns, "%ju of %ju us",
		      (uintmax_t)(all_ns / 1000), (uintmax_t)(missing_ns / 1000));
}

START_TEST(what_records_lack_is_handed_out_to_the_next_children)
{
	run_children(0, 1000, 1);
	ck_assert_handed_out(1000 * 3 * NS_PER_MS, GRAIN_NS);
	ck_assert_uint_gt(handed_ns, 99 * (handed_ns + rest_ns) / 100);
}
END_TEST

/*
 * Twenty children that ended, of which the records know everything. One is waited for, and then, after a pause in
 * which no other ends, all are: nothing of it was missing.
 */
START_TEST(children_that_are_waited_for_late_do_not_count_twice)
{
	char path[128];

	show_waited(PARENT, 0);
	for (int round = 0; round < 5; round++) {
		int32_t first = next_pid, waited = _i == 0 ? first : first + 19;

		for (int i = 0; i < 20; i++) {
			show_waited(next_pid, 0); /* a zombie */
			struct waited_child child = { .pid = next_pid++,
						      .parent_pid = PARENT,
						      .cpu_ns = USED_NS,
						      .missing_ns = NS_PER_MS,
						      .faults = FAULTS,
						      .groups = GROUP };

			parents_now = mono_add(parents_now, NS_PER_MS);
			waited_times_look(parents, parents_now);
			handed_ns += waited_times_child(parents, &child, parents_now);
			waited_times_settle(parents, true, parents_now, on_rest, NULL);
		}
		snprintf(path, sizeof(path), "rm -r %s/%d", parents_root, waited);
		ck_assert_int_eq(system(path), 0);
		show_waited(PARENT, (uint64_t)round * 20 * USED_NS + USED_NS);
		parents_now = mono_add(parents_now, 15 * NS_PER_MS);
		look_and_settle(true);
		for (int32_t pid = first; pid < next_pid; pid++) {
			if (pid == waited)
				continue;
			snprintf(path, sizeof(path), "rm -r %s/%d", parents_root, pid);
			ck_assert_int_eq(system(path), 0);
		}
		show_waited(PARENT, (uint64_t)(round + 1) * 20 * USED_NS);
		settle_parents();
	}
	ck_assert_msg(handed_ns + rest_ns == 0, "%ju us", (uintmax_t)((handed_ns + rest_ns) / 1000));
}
END_TEST

/*
 * A quarter of a second in which nothing was read, of a parent that was known before (_i) or was not: then fifty
 * records come at once, of children that were waited for long ago.
 */
START_TEST(records_that_are_still_to_be_read_are_not_missing)
{
	uint64_t before = _i ? 500 : 0;

	if (_i)
		run_children(0, 500, 1);
	for (int batch = 1; batch <= 4; batch++) {
		parents_now = mono_add(parents_now, 250 * NS_PER_MS);
		show_waited(PARENT, (before + (uint64_t)batch * 50) * USED_NS);
		waited_times_look(parents, parents_now);
		for (int i = 0; i < 50; i++)
			read_record(PARENT, next_pid++, 3 * NS_PER_MS, GROUP);
		waited_times_settle(parents, true, parents_now, on_rest, NULL);
	}
	settle_parents();
	ck_assert_handed_out(before * 3 * NS_PER_MS + 200 * NS_PER_MS, GRAIN_NS);
}
END_TEST

START_TEST(parts_are_as_large_as_what_children_lack_not_as_clock_ticks)
{
	uint64_t before_ns;

	run_children(0, 500, 1);
	for (int i = 0; i < 100; i++) {
		before_ns = handed_ns;
		end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
		show_waited(PARENT, (uint64_t)(500 + i + 1) * 4 * NS_PER_MS);
		ck_assert_uint_le(handed_ns - before_ns, 8 * NS_PER_MS);
	}
	ck_assert_uint_ge(handed_ns + rest_ns + GRAIN_NS, 600 * 3 * NS_PER_MS);
}
END_TEST

START_TEST(what_was_waited_for_before_is_nobodys)
{
	run_children(1000 * NS_PER_S, 1000, 1);
	ck_assert_handed_out(1000 * 3 * NS_PER_MS, 2 * GRAIN_NS);
}
END_TEST

/* Others had used almost two clock ticks, of which nothing was shown. */
START_TEST(what_stat_did_not_show_of_others_is_not_handed_out)
{
	others_ns = TICK_NS - 1;
	others_faults = FAULTS;
	run_children(0, 1000, 1);
	ck_assert_handed_out(1000 * 3 * NS_PER_MS, 2 * GRAIN_NS);
}
END_TEST

START_TEST(a_parent_may_wait_late)
{
	run_children(0, 1000, 50);
	ck_assert_handed_out(1000 * 3 * NS_PER_MS, GRAIN_NS);
}
END_TEST

START_TEST(of_children_that_nobody_waits_for_nothing_is_handed_out)
{
	run_children(50 * NS_PER_MS, 100, 1000);
	ck_assert_uint_eq(handed_ns + rest_ns, 0);
}
END_TEST

START_TEST(a_jump_that_no_exit_explains_is_not_handed_out)
{
	uint64_t waited_ns = 1000 * 4 * NS_PER_MS;

	run_children(0, 1000, 1);
	waited_ns += 100 * NS_PER_S;
	for (int i = 0; i < 1000; i++) {
		waited_ns += 4 * NS_PER_MS;
		show_waited(PARENT, waited_ns);
		end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
	}
	settle_parents();
	/* Of a tenth of a second in which the jump might have been explained nothing is known. */
	ck_assert_uint_le(handed_ns + rest_ns, 2000 * 3 * NS_PER_MS);
	ck_assert_uint_ge(handed_ns + rest_ns, 1950 * 3 * NS_PER_MS);
}
END_TEST

START_TEST(an_exit_that_is_known_later_explains_a_jump)
{
	run_children(0, 100, 1);
	show_waited(PARENT, 101 * 4 * NS_PER_MS + 50 * NS_PER_S);
	end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
	end_child_of(PARENT, next_pid++, 50 * NS_PER_S, GROUP);
	settle_parents();
	ck_assert_handed_out(101 * 3 * NS_PER_MS, GRAIN_NS);
}
END_TEST

START_TEST(what_a_child_had_waited_for_is_not_missing_in_its_parent)
{
	uint64_t waited_ns = 0, its_ns;
	char path[128];

	show_waited(PARENT, 0);
	for (int i = 0; i < 100; i++) {
		int32_t pid = next_pid++;

		its_ns = 0;
		show_waited(pid, 0);
		for (int k = 0; k < 10; k++) {
			end_child_of(pid, next_pid++, NS_PER_MS, GROUP);
			its_ns += 4 * NS_PER_MS;
			show_waited(pid, its_ns);
		}
		snprintf(path, sizeof(path), "rm -r %s/%d", parents_root, pid);
		ck_assert_int_eq(system(path), 0);
		waited_ns += its_ns + 4 * NS_PER_MS;
		show_waited(PARENT, waited_ns);
		end_child_of(PARENT, pid, NS_PER_MS, GROUP);
	}
	settle_parents();
	ck_assert_handed_out(1100 * 3 * NS_PER_MS, GRAIN_NS);
}
END_TEST

/* Only those lack anything, and the last one may be of the group: it would have the rest. */
START_TEST(what_children_lack_that_count_nowhere_is_not_handed_out_to_a_group)
{
	uint64_t waited_ns = 0;

	show_waited(PARENT, 0);
	for (int i = 1; i <= 999; i++) {
		bool inside = i % 10 == 9;

		handed_ns = 0;
		end_child_of(PARENT, next_pid++, NS_PER_MS, inside ? GROUP : 0);
		ck_assert_uint_eq(inside ? handed_ns : 0, 0);
		waited_ns += (inside ? 1 : 4) * NS_PER_MS;
		show_waited(PARENT, waited_ns);
	}
	handed_ns = 0;
	settle_parents();
	ck_assert_uint_eq(rest_ns, 0);
}
END_TEST

/*
 * Children of two groups, of which only those of the first lack anything, in turns of ten or mixed (_i);
 * each is waited for when the next ten have ended. What is handed out to the other group is wrong.
 */
START_TEST(nothing_is_handed_out_to_another_group_than_the_one_that_lacks_it)
{
	uint64_t of_others_ns = 0, waited_ns = 0, waits_ns[10] = { 0 };
	int turn = _i ? 1 : 10;

	show_waited(PARENT, 0);
	for (int i = 0; i < 1000; i++) {
		bool other = i / turn % 2;

		waited_ns += waits_ns[i % 10];
		waits_ns[i % 10] = (other ? 1 : 9) * NS_PER_MS;
		show_waited(PARENT, waited_ns);
		handed_ns = rest_ns = 0;
		end_child_of(PARENT, next_pid++, NS_PER_MS, other ? 2 * GROUP : GROUP);
		of_others_ns += other ? handed_ns : 0;
	}
	ck_assert_uint_eq(of_others_ns, 0);

	/* And then of one group alone. */
	handed_ns = rest_ns = 0;
	for (int i = 0; i < 1000; i++) {
		waited_ns += waits_ns[i % 10];
		waits_ns[i % 10] = 9 * NS_PER_MS;
		show_waited(PARENT, waited_ns);
		end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
	}
	settle_parents();
	ck_assert_uint_le(handed_ns + rest_ns, 600 * 8 * NS_PER_MS);
	ck_assert_uint_ge(handed_ns + rest_ns, 550 * 8 * NS_PER_MS); /* without two seconds */
}
END_TEST

START_TEST(the_rest_goes_to_the_groups_of_the_last_child_unless_they_changed)
{
	show_waited(PARENT, 0);
	end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
	show_waited(PARENT, 60 * NS_PER_MS); /* 20 ms can be more than was shown */
	end_child_of(PARENT, next_pid++, 20 * NS_PER_MS, GROUP);
	if (_i)
		waited_times_forget_groups(parents);
	settle_parents();
	ck_assert_uint_eq(rest_ns > 0, !_i);
	ck_assert_uint_eq(rest_groups, _i ? 0 : GROUP);
}
END_TEST

START_TEST(the_rest_waits_for_what_the_sampler_has_counted_of_the_last_child)
{
	show_waited(PARENT, 0);
	end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
	show_waited(PARENT, 60 * NS_PER_MS);
	end_child_of(PARENT, next_pid++, 20 * NS_PER_MS, GROUP);
	for (int i = 0; i < 15; i++) {
		parents_now = mono_add(parents_now, 10 * NS_PER_MS);
		look_and_settle(_i);
	}
	ck_assert_int_eq(rest_ns > 0, _i);
	parents_now = mono_add(parents_now, 60 * NS_PER_MS);
	look_and_settle(false);
	ck_assert_uint_gt(rest_ns, 0);
}
END_TEST

START_TEST(more_parents_than_there_is_room_for_are_no_harm)
{
	for (int32_t parent = 20000; parent < 21000; parent++) {
		show_waited(parent, NS_PER_S);
		end_child_of(parent, next_pid++, NS_PER_MS, GROUP);
	}
	run_children(0, 1000, 1);
	ck_assert_handed_out(1000 * 3 * NS_PER_MS, GRAIN_NS);
}
END_TEST

static char hierarchy[64];
static struct cgroup_mounts *hierarchies;
static struct cgroup_watch *watch;
static mono_t heard_at;
static char came[4096]; /* paths, each behind a blank */
static size_t came_count;

static void setup_watch(void)
{
	char path[128];

	scene_directory(hierarchy);
	snprintf(path, sizeof(path), "%s/cgroup.controllers", hierarchy);
	scene_write(path, "cpu memory\n");
	ck_assert_int_eq(cgroup_mounts_new("/proc", hierarchy, &hierarchies), 0);
	ck_assert_int_eq(cgroup_watch_new(hierarchies, &watch), 0);
	heard_at = (mono_t){ NS_PER_S };
	came[0] = '\0';
	came_count = 0;
}

static void teardown_watch(void)
{
	cgroup_watch_free(watch);
	cgroup_mounts_free(hierarchies);
	scene_remove(hierarchy);
}

static void make_new(const char *path)
{
	char full[256];

	snprintf(full, sizeof(full), "%s%s", hierarchy, path);
	ck_assert_int_eq(mkdir(full, 0700), 0);
}

static void on_new(void *ctx, const char *path)
{
	size_t len = strlen(came);

	(void)ctx;
	came_count++;
	snprintf(came + len, sizeof(came) - len, " %s", path);
}

static bool is_waiting(mono_t *next)
{
	struct cgroup_watch_state state = cgroup_watch_state(watch);

	*next = state.due;

	return state.waiting;
}

static int go_on(void *ctx, const char *path)
{
	(void)ctx;
	(void)path;

	return 0;
}

static void meet_cgroup(struct cgroup_watch *by, const char *path)
{
	walk_visit(&(struct watch_walk){ by, go_on, NULL }, path);
}

/* Hears, and hears again when the moment is over. */
static bool hear_new(void)
{
	mono_t next;
	bool whole = cgroup_watch_read(watch, heard_at, on_new, NULL);

	if (is_waiting(&next))
		heard_at = next;

	return cgroup_watch_read(watch, heard_at, on_new, NULL) && whole;
}

static void watch_all(void)
{
	ck_assert(watch->wants_all);
	walk_begin(watch);
	meet_cgroup(watch, "/");
	walk_end(watch);
}

/* More at a time than can wait; they are gone again. */
static void overflow_watch(void)
{
	char path[128];

	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "/over%d", i);
		make_new(path);
	}
	ck_assert(!hear_new());
	ck_assert(watch->wants_all);
	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "%s/over%d", hierarchy, i);
		ck_assert_int_eq(rmdir(path), 0);
	}
	ck_assert(hear_new());
}

START_TEST(one_that_comes_is_heard_of_after_a_moment)
{
	mono_t next;

	watch_all();
	make_new("/a");
	ck_assert(cgroup_watch_read(watch, heard_at, on_new, NULL));
	ck_assert_str_eq(came, "");
	ck_assert(is_waiting(&next));
	ck_assert_int_gt(mono_diff(next, heard_at), 0);
	ck_assert(hear_new());
	ck_assert_str_eq(came, " /a");
	ck_assert(!is_waiting(&next));
	ck_assert(!watch->wants_all);
}
END_TEST

START_TEST(so_are_those_inside_however_early_they_came)
{
	watch_all();
	make_new("/a");
	make_new("/a/b");
	make_new("/a/b/c");
	ck_assert(hear_new());
	ck_assert_str_eq(came, " /a /a/b /a/b/c");
	make_new("/a/b/d");
	ck_assert(hear_new());
	ck_assert_str_eq(came, " /a /a/b /a/b/c /a/b/d");
}
END_TEST

START_TEST(one_that_goes_and_comes_again_is_heard_of_again)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/a", hierarchy);
	watch_all();
	make_new("/a");
	ck_assert(hear_new());
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert(hear_new());
	make_new("/a");
	make_new("/a/b");
	ck_assert(hear_new());
	ck_assert_str_eq(came, " /a /a /a/b");
}
END_TEST

START_TEST(one_that_goes_is_watched_no_more)
{
	char path[128];

	watch_all();
	for (int i = 0; i < 100; i++) {
		make_new("/a");
		make_new("/a/b");
		ck_assert(hear_new());
		ck_assert_uint_eq(watch->wds.count, 3);
		snprintf(path, sizeof(path), "%s/a/b", hierarchy);
		ck_assert_int_eq(rmdir(path), 0);
		snprintf(path, sizeof(path), "%s/a", hierarchy);
		ck_assert_int_eq(rmdir(path), 0);
		ck_assert(hear_new());
		ck_assert_uint_eq(watch->wds.count, 1);
	}
}
END_TEST

START_TEST(who_a_walk_does_not_meet_is_watched_no_more_and_the_others_are)
{
	watch_all();
	make_new("/a");
	make_new("/b");
	ck_assert(hear_new());
	ck_assert_uint_eq(watch->wds.count, 3);
	walk_begin(watch); /* it is complete: this changes nothing */
	walk_end(watch);
	ck_assert_uint_eq(watch->wds.count, 3);
	overflow_watch();
	walk_begin(watch);
	meet_cgroup(watch, "/");
	meet_cgroup(watch, "/b");
	make_new("/c");
	ck_assert(hear_new()); /* in between */
	walk_end(watch);
	ck_assert(cgroup_watch_state(watch).complete);
	ck_assert_uint_eq(watch->wds.count, 3);
	came[0] = '\0';
	make_new("/a/unheard");
	make_new("/b/heard");
	ck_assert(hear_new());
	ck_assert_str_eq(came, " /b/heard");
}
END_TEST

START_TEST(what_is_lost_during_a_walk_wants_another)
{
	watch_all();
	overflow_watch();
	walk_begin(watch);
	meet_cgroup(watch, "/");
	overflow_watch();
	walk_end(watch);
	ck_assert(watch->wants_all);
	ck_assert(!cgroup_watch_state(watch).complete);
	watch_all();
	ck_assert(cgroup_watch_state(watch).complete);
}
END_TEST

START_TEST(files_are_no_cgroups)
{
	char path[128];

	watch_all();
	snprintf(path, sizeof(path), "%s/memory.max", hierarchy);
	scene_write(path, "max\n");
	ck_assert(hear_new());
	ck_assert_str_eq(came, "");
}
END_TEST

START_TEST(more_than_can_wait_are_a_loss_and_a_walk_is_wanted)
{
	char path[32];

	watch_all();
	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "/%d", i);
		make_new(path);
	}
	ck_assert(!hear_new());
	ck_assert(watch->wants_all);
	ck_assert_uint_eq(came_count, 256);
	ck_assert(hear_new());
}
END_TEST

START_TEST(without_memory_there_is_none)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct cgroup_watch *made = NULL;

		torture_arm(n);
		int r = cgroup_watch_new(hierarchies, &made);
		if (r == 0) {
			walk_begin(made);
			meet_cgroup(made, "/");
		}
		injected = torture_disarm();
		ck_assert(r == 0 || (injected && r == -ENOMEM));
		cgroup_watch_free(made);
	}
}
END_TEST

static TCase *waits_tests(void)
{
	TCase *tcase = tcase_create("waits");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, without_new_cgroups_it_sleeps_and_polls);
	tcase_add_test(tcase, while_no_entry_selects_units_there_is_nothing_to_wait_for);
	tcase_add_test(tcase, what_was_there_counts_as_looked_at_when_it_was_or_when_a_scan_made_up_for_it);
	tcase_add_test(tcase, a_process_that_comes_while_cgroups_are_looked_at_does_not_wait_for_all_of_them);
	tcase_add_test(tcase, a_process_that_comes_when_the_share_is_used_up_is_late_and_counted);
	tcase_add_test(tcase, while_evidence_waits_the_share_is_exceeded_until_that_is_used_up_too);
	tcase_add_test(tcase, a_process_that_has_waited_a_second_for_the_share_is_left_to_a_scan);
	tcase_add_loop_test(tcase, one_that_ends_before_the_running_scan_comes_to_it_counts_in_its_group, 0, 2);
	tcase_add_test(tcase, what_ended_long_before_it_is_counted_is_late);

	return tcase;
}

static TCase *crowd_tests(void)
{
	TCase *tcase = tcase_create("many");

	if (getenv("SPIKEWATCH_PROCESSES"))
		tcase_set_timeout(tcase, 1200);
	tcase_add_unchecked_fixture(tcase, crowd_gather, crowd_disperse);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, very_many_processes_are_all_met_and_those_without_room_are_counted);
	tcase_add_test(tcase, the_few_that_are_selected_are_found_among_very_many);
	tcase_add_test(tcase, queries_are_answered_while_very_many_are_scanned);

	return tcase;
}

static TCase *recent_pids_tests(void)
{
	TCase *tcase = tcase_create("recent_pids");

	tcase_add_checked_fixture(tcase, setup_recent, teardown_recent);
	tcase_add_test(tcase, a_forked_process_is_due_after_the_delay_and_once);
	tcase_add_test(tcase, one_that_executes_waits_again_and_keeps_its_birth);
	tcase_add_test(tcase, a_process_that_was_looked_at_before_is_known);
	tcase_add_test(tcase, another_name_is_kept_until_it_was_looked_at);
	tcase_add_test(tcase, one_that_ends_while_it_waits_was_missed);
	tcase_add_test(tcase, one_that_was_looked_at_was_not_missed);
	tcase_add_test(tcase, an_end_alone_is_not_counted);
	tcase_add_test(tcase, events_after_the_end_are_of_a_missed_process);
	tcase_add_test(tcase, a_pid_that_is_used_again_is_another);
	tcase_add_test(tcase, the_oldest_is_forgotten_for_the_newest);
	tcase_add_test(tcase, those_given_up_are_still_missed_when_they_end);
	tcase_add_test(tcase, chains_hold);

	return tcase;
}

static TCase *cache_tests(void)
{
	TCase *tcase = tcase_create("cache");

	tcase_add_checked_fixture(tcase, setup_cache, teardown_cache);
	tcase_add_test(tcase, a_process_that_has_not_run_is_unchanged);
	tcase_add_test(tcase, one_that_has_run_or_has_no_clock_is_looked_at);
	tcase_add_test(tcase, every_process_is_looked_at_once_in_sixteen_scans);
	tcase_add_test(tcase, ended_processes_are_forgotten_and_the_others_are_not);
	tcase_add_test(tcase, the_cache_is_bounded);
	tcase_add_test(tcase, without_memory_no_process_is_remembered_wrongly);

	return tcase;
}

static TCase *waited_times_tests(void)
{
	TCase *tcase = tcase_create("parents");

	tcase_add_checked_fixture(tcase, setup_parents, teardown_parents);
	tcase_add_test(tcase, what_records_lack_is_handed_out_to_the_next_children);
	tcase_add_loop_test(tcase, children_that_are_waited_for_late_do_not_count_twice, 0, 2);
	tcase_add_loop_test(tcase, records_that_are_still_to_be_read_are_not_missing, 0, 2);
	tcase_add_test(tcase, parts_are_as_large_as_what_children_lack_not_as_clock_ticks);
	tcase_add_test(tcase, what_was_waited_for_before_is_nobodys);
	tcase_add_test(tcase, what_stat_did_not_show_of_others_is_not_handed_out);
	tcase_add_test(tcase, a_parent_may_wait_late);
	tcase_add_test(tcase, of_children_that_nobody_waits_for_nothing_is_handed_out);
	tcase_add_test(tcase, a_jump_that_no_exit_explains_is_not_handed_out);
	tcase_add_test(tcase, an_exit_that_is_known_later_explains_a_jump);
	tcase_add_test(tcase, what_a_child_had_waited_for_is_not_missing_in_its_parent);
	tcase_add_test(tcase, what_children_lack_that_count_nowhere_is_not_handed_out_to_a_group);
	tcase_add_loop_test(tcase, nothing_is_handed_out_to_another_group_than_the_one_that_lacks_it, 0, 2);
	tcase_add_loop_test(tcase, the_rest_goes_to_the_groups_of_the_last_child_unless_they_changed, 0, 2);
	tcase_add_loop_test(tcase, the_rest_waits_for_what_the_sampler_has_counted_of_the_last_child, 0, 2);
	tcase_add_test(tcase, more_parents_than_there_is_room_for_are_no_harm);

	return tcase;
}

/* New cgroups in a hierarchy made of directories. */
static TCase *cgroup_watch_tests(void)
{
	TCase *tcase = tcase_create("cgroupwatch");

	tcase_add_checked_fixture(tcase, setup_watch, teardown_watch);
	tcase_add_test(tcase, one_that_comes_is_heard_of_after_a_moment);
	tcase_add_test(tcase, so_are_those_inside_however_early_they_came);
	tcase_add_test(tcase, one_that_goes_and_comes_again_is_heard_of_again);
	tcase_add_test(tcase, one_that_goes_is_watched_no_more);
	tcase_add_test(tcase, who_a_walk_does_not_meet_is_watched_no_more_and_the_others_are);
	tcase_add_test(tcase, what_is_lost_during_a_walk_wants_another);
	tcase_add_test(tcase, files_are_no_cgroups);
	tcase_add_test(tcase, more_than_can_wait_are_a_loss_and_a_walk_is_wanted);
	tcase_add_test(tcase, without_memory_there_is_none);

	return tcase;
}

Suite *discovery_suite(void)
{
	Suite *suite = suite_create("discovery");
	TCase *tcase = tcase_create("scans");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_group_is_one_target_and_knows_its_members);
	tcase_add_test(tcase, a_new_process_becomes_a_target_and_one_that_ended_leaves);
	tcase_add_test(tcase, a_pid_that_is_used_again_is_a_new_target);
	tcase_add_test(tcase, counts_what_is_there);
	tcase_add_test(tcase, a_scan_without_descriptors_removes_no_target);
	tcase_add_test(tcase, a_process_that_takes_another_name_leaves);
	tcase_add_loop_test(tcase, while_a_process_executes_it_is_not_known_whether_its_command_line_matches, 0,
			    ARRAY_LEN(empty));
	tcase_add_test(tcase, a_process_that_has_not_run_is_not_looked_at_and_stays);
	tcase_add_test(tcase, a_process_that_has_not_run_is_looked_at_after_a_reload);
	tcase_add_test(tcase, where_an_entry_selects_by_cgroup_every_process_is_looked_at);
	tcase_add_test(tcase, a_process_that_was_refused_is_looked_at_until_there_is_room);
	tcase_add_test(tcase, where_events_report_everything_scans_are_further_apart);
	tcase_add_test(tcase, the_thread_has_a_nice_value_of_its_own_unless_told_otherwise);
	tcase_add_test(tcase, the_thread_finds_processes_that_come_later);
	tcase_add_test(tcase, the_baseline_of_a_watched_process_names_its_hot_thread);
	tcase_add_test(tcase, cgroups_come_and_go);
	tcase_add_test(tcase, limits_are_read_again_no_more_often_than_their_share_allows);
	tcase_add_test(tcase, limits_that_are_given_up_halfway_are_due_again);
	tcase_add_test(tcase, a_scan_that_fails_counts_as_work_too);
	suite_add_tcase(suite, selectors());
	suite_add_tcase(suite, tcase);
	suite_add_tcase(suite, waits_tests());
	suite_add_tcase(suite, crowd_tests());
	suite_add_tcase(suite, recent_pids_tests());
	suite_add_tcase(suite, cache_tests());
	suite_add_tcase(suite, waited_times_tests());
	suite_add_tcase(suite, cgroup_watch_tests());

	return suite;
}
