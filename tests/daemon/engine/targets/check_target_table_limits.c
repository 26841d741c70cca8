/*
 * check_target_table_limits.c: effective limits of targets, over a /proc and cgroups made of files,
 * and by a time that is an argument: whose move from one cgroup to another is noticed when, and how
 * many files are opened for that.
 */
#include "limits_of.h"
#include "own_cgroups.h"
#include "skip.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/targets/target_table.h"
#include "target_table_rig.h"
#include "lib/base/base.h"
#include "daemon/engine/sampling/sampler.h"
#include "samplers_tick.h"
#include "lib/cgroup/cgroup.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/model/sample.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"

#include <sys/inotify.h>

Suite *target_table_limits_suite(void);

static struct target_table_rig rig;

static void setup(void)
{
	target_table_rig_setup(&rig);
}

static void teardown(void)
{
	target_table_rig_teardown(&rig);
}

/* As by default. */
#define INTERVAL_S 2

#define PROCESSES "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}"
#define GROUP "{\"targets\": [{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\"}]}"

/* The first target's own moment is 26 s after the first minute. */
static mono_t at(uint64_t seconds)
{
	return (mono_t){ (1005 + seconds) * NS_PER_S };
}

START_TEST(limits_are_those_of_the_cgroup)
{
	struct cgroup_limits expected = { 0 };

	make(&rig, 8, "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}");
	appear(&rig, 10, 500, "/system.slice/postgresql.service");
	appear(&rig, 11, 500, "/");
	meet(&rig, 0, 10, 500, 1);
	meet(&rig, 0, 11, 500, 1);
	ck_assert_int_eq(limits_of_process(rig.mounts, &rig.options.machine, rig.procfd, 10, &expected), 0);
	ck_assert(!expected.memory_is_machine);
	ck_assert_uint_eq(limits_of(&rig, "a:10@500").cpu, expected.cpu);
	ck_assert_uint_eq(limits_of(&rig, "a:10@500").memory_bytes, expected.memory_bytes);
	ck_assert_uint_ne(limits_of(&rig, "a:11@500").memory_bytes, expected.memory_bytes);

	/* It moves to another cgroup. */
	appear(&rig, 10, 500, "/");
	refresh_limits(&rig, at(0));
	ck_assert_uint_eq(limits_of(&rig, "a:10@500").memory_bytes, limits_of(&rig, "a:11@500").memory_bytes);
}
END_TEST

START_TEST(a_group_has_the_limits_its_members_share_or_the_machines)
{
	make(&rig, 8, "{\"targets\": [{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\"}]}");
	ck_assert_uint_eq(limits_of(&rig, "g").cpu, 4 * NS_PER_S);
	ck_assert_uint_eq(limits_of(&rig, "g").memory_bytes, 8ull << 30);
	appear(&rig, 10, 500, "/system.slice/postgresql.service");
	appear(&rig, 11, 500, "/system.slice/postgresql.service");
	meet(&rig, 0, 10, 500, 1);
	meet(&rig, 0, 11, 500, 1);
	refresh_limits(&rig, at(0));
	ck_assert_uint_eq(limits_of(&rig, "g").memory_bytes, limits_of(&rig, "g:10@500").memory_bytes);
	ck_assert_uint_lt(limits_of(&rig, "g").memory_bytes, 8ull << 30);

	/*
	 * One from elsewhere joins: what the group had still is a number until the next refresh,
	 * and then the machine's.
	 */
	appear(&rig, 12, 500, "/huge");
	meet(&rig, 0, 12, 500, 2);
	ck_assert_uint_ne(limits_of(&rig, "g").memory_bytes, UINT64_MAX);
	ck_assert_uint_ne(limits_of(&rig, "g").cpu, UINT64_MAX);
	refresh_limits(&rig, at(0));
	ck_assert_uint_eq(limits_of(&rig, "g").memory_bytes, 8ull << 30);
	ck_assert(limits_of(&rig, "g").memory_is_machine);
	ck_assert_str_eq(limits_of(&rig, "g").memory_from, "");
}
END_TEST

START_TEST(limits_are_read_in_slices_and_a_group_has_its_own_all_along)
{
	unsigned part = 0, slices = 0;

	make(&rig, 200, "{\"targets\": [{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\"}]}");
	appear(&rig, 10, 500, "/system.slice/postgresql.service");
	appear(&rig, 11, 500, "/system.slice/postgresql.service");
	for (int pid = 100; pid < 200; pid++)
		appear(&rig, pid, 500, "/system.slice/postgresql.service");
	meet(&rig, 0, 10, 500, 1);
	meet(&rig, 0, 11, 500, 1);
	for (int pid = 100; pid < 200; pid++)
		meet(&rig, 0, pid, 500, 1);
	refresh_limits(&rig, at(0));

	struct cgroup_limits shared = limits_of(&rig, "g");

	ck_assert_uint_lt(shared.memory_bytes, 8ull << 30);
	appear(&rig, 11, 500, "/huge");
	while (target_table_refresh_some_limits(rig.table, at(2), &part)) {
		struct cgroup_limits now = limits_of(&rig, "g");

		ck_assert_mem_eq(&now, &shared, sizeof shared);
		if (++slices == 2) /* one that comes in between */
			meet(&rig, 0, 10, 501, 1);
	}
	ck_assert_uint_eq(part, 0);
	ck_assert_uint_gt(slices, 2);
	ck_assert_uint_eq(limits_of(&rig, "g").memory_bytes, 8ull << 30);
}
END_TEST

/* ---- which is asked when ---- */

/* Cgroups of our own, whose limits can be changed: /a and /b. */
static char tree[64];

static void set_quota(const char *cgroup, unsigned percent)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/cpu,cpuacct%s/cpu.cfs_quota_us", tree, cgroup);
	scene_write(path, "%u\n", percent * 1000);
	snprintf(path, sizeof(path), "%s/cpu,cpuacct%s/cpu.cfs_period_us", tree, cgroup);
	scene_write(path, "100000\n");
}

static void setup_tree(void)
{
	static const char *const directories[] = { "memory",      "memory/a",      "memory/b",
						   "cpu,cpuacct", "cpu,cpuacct/a", "cpu,cpuacct/b" };
	char path[128];

	target_table_rig_setup(&rig);
	scene_directory(tree);
	for (size_t i = 0; i < sizeof directories / sizeof directories[0]; i++) {
		snprintf(path, sizeof(path), "%s/%s", tree, directories[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
	}
	snprintf(path, sizeof(path), "%s/cpu,cpuacct/a/cpuacct.usage", tree);
	scene_write(path, "1000\n");
	set_quota("/a", 100);
	set_quota("/b", 200);
	cgroup_mounts_free(rig.mounts);
	ck_assert_int_eq(cgroup_mounts_new(rig.root, tree, &rig.mounts), 0);
}

static void teardown_tree(void)
{
	target_table_rig_teardown(&rig);
	scene_remove(tree);
}

/* What the sampler says. */
static uint64_t sampled_percent(const char *key)
{
	samplers_tick(rig.samplers);

	return source_entry_sample(find(&rig, key)->sampled.entry)->value[SAMPLE_CPU_LIMIT] / 10000000;
}

/* It uses CPU time in so many ticks. */
static void run_for(int pid, unsigned ticks)
{
	static unsigned used = 5;
	char path[128];

	snprintf(path, sizeof(path), "%s/%d/stat", rig.root, pid);
	for (unsigned i = 0; i < ticks; i++) {
		scene_write(path, "%d (app) S 1 1 1 0 -1 0 10 0 0 0 %u 5 0 0 20 0 3 0 500 1000000 100 0\n", pid,
			    ++used);
		samplers_tick(rig.samplers);
	}
}

/* Processes that have been there for a minute, in /a. */
static void make_old(int count)
{
	make(&rig, (uint32_t)count + 1, PROCESSES);
	for (int pid = 10; pid < 10 + count; pid++) {
		appear(&rig, pid, 500, "/a");
		ck_assert_int_eq(meet(&rig, 0, pid, 500, 1), 0);
	}
	settle(&rig);
	for (uint64_t seconds = 0; seconds <= 60; seconds += INTERVAL_S)
		refresh_limits(&rig, at(seconds));
	ck_assert_uint_eq(sampled_percent("a:10@500"), 100);
}

/* Refreshes until a move of process 10 to /b is noticed: how many it took. */
static unsigned refreshes_until_noticed(void)
{
	unsigned count = 0;

	while (sampled_percent("a:10@500") != 200 && count < 100)
		refresh_limits(&rig, at(60 + INTERVAL_S * ++count));

	return count;
}

START_TEST(a_process_that_is_moved_while_it_runs_has_its_new_limits_after_the_next_refresh)
{
	make_old(1);
	appear(&rig, 10, 500, "/b");
	run_for(10, 20);
	ck_assert_uint_eq(refreshes_until_noticed(), 1);
	ck_assert_str_eq(limits_of(&rig, "a:10@500").cpu_from, "/b");
}
END_TEST

START_TEST(at_a_slow_rate_a_single_look_is_running)
{
	make_old(1);
	rig.config->sampling.interval_ns = NS_PER_S;
	appear(&rig, 10, 500, "/b");
	run_for(10, 1);
	ck_assert_uint_eq(refreshes_until_noticed(), 1);
}
END_TEST

START_TEST(one_that_is_moved_in_its_sleep_has_them_within_half_a_minute_and_a_refresh)
{
	make_old(1);
	appear(&rig, 10, 500, "/b");
	unsigned took = refreshes_until_noticed();

	ck_assert_uint_gt(took, 1);
	ck_assert_uint_le(took, 30 / INTERVAL_S + 1);
}
END_TEST

/* Of the accounts that announce moves, which were on all the time or were off for a moment. */
START_TEST(one_that_was_not_announced_is_noticed_soon_if_announcements_may_be_missing_else_later)
{
	_Atomic bool *on;
	unsigned took;

	rig.accounts = accounts_here(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (!rig.accounts)
		SKIP_TEST("%s", skip_why());
	on = (_Atomic bool *)(uintptr_t)&kernel_accounts_shared(rig.accounts)->on;
	make_old(1);
	appear(&rig, 10, 500, "/b");
	atomic_store(on, _i == 1);
	refresh_limits(&rig, at(60));
	atomic_store(on, true);
	took = refreshes_until_noticed();
	if (_i == 0)
		ck_assert_uint_le(took, 30 / INTERVAL_S + 1);
	else
		ck_assert_uint_gt(took, 30 / INTERVAL_S + 1);
}
END_TEST

START_TEST(one_that_has_just_come_is_asked_every_time)
{
	make(&rig, 1, PROCESSES);
	appear(&rig, 10, 500, "/a");
	meet(&rig, 0, 10, 500, 1);
	settle(&rig);
	for (uint64_t seconds = 0; seconds < 10; seconds += INTERVAL_S) {
		const char *where = seconds / INTERVAL_S % 2 ? "/b" : "/a";

		appear(&rig, 10, 500, where);
		refresh_limits(&rig, at(seconds));
		ck_assert_str_eq(limits_of(&rig, "a:10@500").cpu_from, where);
	}
}
END_TEST

/* By accounts that were on all the time or went off for a moment. */
START_TEST(one_that_has_just_come_is_asked_once_where_moves_are_told)
{
	_Atomic bool *on;

	rig.accounts = accounts_here(open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	if (!rig.accounts)
		SKIP_TEST("%s", skip_why());
	on = (_Atomic bool *)(uintptr_t)&kernel_accounts_shared(rig.accounts)->on;
	make(&rig, 1, PROCESSES);
	appear(&rig, 10, 500, "/a");
	meet(&rig, 0, 10, 500, 1);
	settle(&rig);
	refresh_limits(&rig, at(0));
	appear(&rig, 10, 500, "/b");
	atomic_store(on, _i == 1);
	refresh_limits(&rig, at(INTERVAL_S));
	atomic_store(on, true);
	refresh_limits(&rig, at(2 * INTERVAL_S));
	refresh_limits(&rig, at(3 * INTERVAL_S));
	ck_assert_str_eq(limits_of(&rig, "a:10@500").cpu_from, _i == 1 ? "/a" : "/b");
}
END_TEST

START_TEST(one_that_executes_something_is_asked_at_the_next_refresh)
{
	struct process_observation seen = {
		.pid = 10, .start_ticks = 500, .comm = "app", .cmdline = "app -y", .cgroup = "/"
	};

	make_old(1);
	appear(&rig, 10, 500, "/b");
	ck_assert_int_eq(target_table_describe(rig.table, 0, &seen), 0);
	ck_assert_uint_eq(refreshes_until_noticed(), 1);
}
END_TEST

START_TEST(a_quota_that_changes_is_everybodys_after_the_next_refresh)
{
	static const char *const keys[] = { "p:10@500", "p:11@500", "g:10@500", "g", "c:/a" };

	make(&rig, 16,
	     "{\"targets\": [{\"name\": \"p\", \"comm\": \"app\"},"
	     "{\"name\": \"g\", \"comm\": \"app\", \"per\": \"group\"},"
	     "{\"name\": \"c\", \"cgroup\": \"/*\"}]}");
	for (int pid = 10; pid < 12; pid++) {
		appear(&rig, pid, 500, "/a");
		meet(&rig, 0, pid, 500, 1);
		meet(&rig, 1, pid, 500, 1);
	}
	ck_assert_int_eq(target_table_cgroup(rig.table, 2, "/a", 1), 0);
	settle(&rig);
	for (uint64_t seconds = 0; seconds <= 60; seconds += INTERVAL_S)
		refresh_limits(&rig, at(seconds));
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
		ck_assert_uint_eq(sampled_percent(keys[i]), 100);
	set_quota("/a", 30);
	refresh_limits(&rig, at(62));
	for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
		ck_assert_uint_eq(sampled_percent(keys[i]), 30);
		ck_assert_uint_eq(limits_of(&rig, keys[i]).cpu, 300000000);
		ck_assert_str_eq(limits_of(&rig, keys[i]).cpu_from, "/a");
	}
}
END_TEST

/* ---- what it costs ---- */

#define CROWD 150

static int watch_openings(void)
{
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	char path[128];

	ck_assert_int_ge(fd, 0);
	for (int pid = 10; pid < 10 + CROWD; pid++) {
		snprintf(path, sizeof(path), "%s/%d/cgroup", rig.root, pid);
		ck_assert_int_ge(inotify_add_watch(fd, path, IN_OPEN), 0);
	}

	return fd;
}

/*
 * How often one of these files was opened since the last time; an event has no name and so is as
 * large as its head.
 */
static unsigned openings(int fd)
{
	struct inotify_event events[64];
	unsigned count = 0;
	ssize_t len;

	while ((len = read(fd, events, sizeof events)) > 0) {
		const struct inotify_event *event = events;

		/*
		 * Two that are alike and follow each other are one: none is asked twice in a row.
		 */
		for (; (const char *)event < (const char *)events + len; event++) {
			ck_assert_uint_eq(event->len, 0);
			ck_assert_uint_eq(event->mask & IN_Q_OVERFLOW, 0);
			count++;
		}
	}

	return count;
}

START_TEST(those_who_sleep_are_asked_twice_a_minute_and_not_all_at_once)
{
	unsigned sum = 0, most = 0;

	make_old(CROWD);
	AUTO_CLOSE int fd = watch_openings();
	for (uint64_t seconds = 62; seconds <= 120; seconds += INTERVAL_S) {
		refresh_limits(&rig, at(seconds));
		unsigned count = openings(fd);

		sum += count;
		most = count > most ? count : most;
	}
	ck_assert_uint_eq(sum, 2 * CROWD);
	ck_assert_uint_le(most, CROWD / 5);
}
END_TEST

START_TEST(those_who_run_are_asked_every_time_and_nobody_else_for_that)
{
	make_old(CROWD);
	AUTO_CLOSE int fd = watch_openings();
	unsigned sum = 0;

	for (uint64_t seconds = 62; seconds <= 120; seconds += INTERVAL_S) {
		run_for(10, 20);
		run_for(11, 20);
		refresh_limits(&rig, at(seconds));
		sum += openings(fd);
	}
	ck_assert_uint_eq(sum, 2 * (CROWD - 2) + 2 * 30);
}
END_TEST

START_TEST(a_slice_asks_no_more_than_some)
{
	unsigned part = 0, sum = 0;
	bool more = true;

	make(&rig, CROWD, PROCESSES);
	for (int pid = 10; pid < 10 + CROWD; pid++) {
		appear(&rig, pid, 500, pid % 2 ? "/a" : "/b");
		meet(&rig, 0, pid, 500, 1);
	}
	AUTO_CLOSE int fd = watch_openings();
	while (more) {
		more = target_table_refresh_some_limits(rig.table, at(0), &part);
		unsigned count = openings(fd);

		ck_assert_uint_le(count, 40); /* so many fit into half a millisecond, and the rest of a bucket */
		sum += count;
	}
	ck_assert_uint_eq(sum, CROWD);
	ck_assert_uint_eq(part, 0);
}
END_TEST

/* ---- more cgroups than are read at once ---- */

#define MANY 100

/* Of each: /many/N/in/it, with a quota of one core. The descriptor tells of readings of the quotas. */
static int make_many(void)
{
	static const char *const hierarchies[] = { "memory", "cpu,cpuacct" };
	static const char *const levels[] = { "/many", "", "/in", "/in/it" };
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	char path[160], cgroup[64];

	ck_assert_int_ge(fd, 0);
	make(&rig, MANY, "{\"targets\": [{\"name\": \"c\", \"cgroup\": \"/many/*/in/it\"}]}");
	for (int i = 0; i < MANY; i++) {
		for (int k = 0; k < 8; k++) {
			snprintf(path, sizeof path, "%s/%s/many", tree, hierarchies[k / 4]);
			if (k % 4 > 0)
				snprintf(path + strlen(path), 32, "/%d%s", i, levels[k % 4]);
			ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
		}
		snprintf(cgroup, sizeof cgroup, "/many/%d/in/it", i);
		set_quota(cgroup, 100);
		snprintf(path, sizeof path, "%s/cpu,cpuacct%s/cpuacct.usage", tree, cgroup);
		scene_write(path, "1000\n");
		snprintf(path, sizeof path, "%s/cpu,cpuacct%s/cpu.cfs_quota_us", tree, cgroup);
		ck_assert_int_eq(target_table_cgroup(rig.table, 0, cgroup, 1), 0);
		ck_assert_int_ge(inotify_add_watch(fd, path, IN_OPEN), 0);
	}
	settle(&rig);
	refresh_limits(&rig, at(0));
	openings(fd);
	return fd;
}

START_TEST(of_many_cgroups_those_that_run_are_read_every_time_and_the_others_in_turn)
{
	AUTO_CLOSE int fd = make_many();
	char path[160];

	snprintf(path, sizeof path, "%s/cpu,cpuacct/many/7/in/it/cpuacct.usage", tree);
	for (unsigned i = 1; i <= 6; i++) {
		set_quota("/many/7/in/it", 100 + i);
		openings(fd);
		scene_write(path, "%u\n", 1000 + i * 1000);
		samplers_tick(rig.samplers);
		refresh_limits(&rig, at(2 * i));
		ck_assert_uint_eq(sampled_percent("c:/many/7/in/it"), 100 + i);
		ck_assert_uint_lt(openings(fd), MANY);
	}
}
END_TEST

START_TEST(of_many_cgroups_one_that_sleeps_is_read_when_its_turn_comes)
{
	AUTO_CLOSE int fd = make_many();
	unsigned sum = 0;

	for (int i = 0; i < MANY; i++) {
		char cgroup[64];

		snprintf(cgroup, sizeof cgroup, "/many/%d/in/it", i);
		set_quota(cgroup, 30);
	}
	openings(fd);
	for (unsigned i = 1; i <= 3; i++) { /* of 607 directories 256 each time */
		refresh_limits(&rig, at(2 * i));
		unsigned count = openings(fd);

		ck_assert_uint_lt(count, MANY);
		sum += count;
	}
	ck_assert_uint_ge(sum, MANY);
	for (int i = 0; i < MANY; i++) {
		char key[64];

		snprintf(key, sizeof key, "c:/many/%d/in/it", i);
		ck_assert_uint_eq(sampled_percent(key), 30);
	}
}
END_TEST

/* ---- gates of real cgroups ---- */

#define GATED 6 /* more than a gate is for */
#define BURST_NS (20 * NS_PER_MS)
/* So long one that was moved is believed to be where it was, and a tick more: of the sampler's clock. */
#define TRUSTED_NS (1100 * NS_PER_MS)

static struct own_cgroups gates;

static void make_gates(void)
{
	own_cgroups_make(&gates, "gates");
}

static void remove_gates(void)
{
	own_cgroups_remove(&gates);
}

static void setup_real(void)
{
	target_table_rig_setup(&rig);
	close(rig.procfd);
	rig.procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cgroup_mounts_free(rig.mounts);
	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &rig.mounts), 0);
	rig.config = scene_config("%s", PROCESSES);
	make_sampler(&rig, GATED + 2);
	rig.options.own_proc = true;
	ck_assert_int_eq(target_table_new(&rig.options, &rig.table), 0);
}

/* Stops; each time that it goes on it has a burst and stops again. */
static pid_t start_stopped(void)
{
	pid_t pid = fork();
	uint64_t until_ns = 0;
	struct timespec used;

	ck_assert_int_ge(pid, 0);
	if (pid > 0) {
		ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "app");
	for (;;) {
		raise(SIGSTOP);
		until_ns += BURST_NS;
		do
			clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
		while ((uint64_t)used.tv_sec * NS_PER_S + (uint64_t)used.tv_nsec < until_ns);
	}
}

static void have_burst(pid_t pid)
{
	ck_assert_int_eq(kill(pid, SIGCONT), 0);
	ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
}

static void meet_real(pid_t pid, char key[48])
{
	struct procfs_stat stat;
	char text[1024];
	ssize_t len = proc_read_file(rig.procfd, pid, "stat", text, sizeof(text));

	ck_assert_int_gt(len, 0);
	ck_assert_int_eq(procfs_stat_parse(text, (size_t)len, &stat), 0);
	ck_assert_int_eq(meet(&rig, 0, pid, stat.start_ticks, 1), 0);
	snprintf(key, 48, "a:%d@%ju", pid, (uintmax_t)stat.start_ticks);
}

/* As of the next tick. */
static uint64_t sampled_cpu(const char *key)
{
	samplers_tick(rig.samplers);
	return source_entry_sample(find(&rig, key)->sampled.entry)->value[SAMPLE_CPU];
}

/* They are asked when it has run; one that is moved out in its sleep, a second later at the latest. */
START_TEST(processes_that_sleep_are_behind_the_gate_of_their_real_cgroup)
{
	char key[GATED][48];
	pid_t pid[GATED];
	uint64_t had;

	if (gates.count == 0 || own_cgroups_add(&gates, "crowd") < 0 || own_cgroups_add(&gates, "apart") < 0)
		SKIP_TEST("no cgroups of our own");
	for (int i = 0; i < GATED; i++) {
		pid[i] = start_stopped();
		own_cgroups_join(&gates, "crowd", pid[i]);
		meet_real(pid[i], key[i]);
	}
	for (uint64_t seconds = 0; seconds <= 12; seconds += INTERVAL_S)
		refresh_limits(&rig, at(seconds));
	for (int i = 0; i < GATED; i++)
		ck_assert(find(&rig, key[i])->membership.gated);
	for (int i = 0; i < 5; i++)
		had = sampled_cpu(key[3]);
	have_burst(pid[3]);
	ck_assert_uint_ge(sampled_cpu(key[3]), had + BURST_NS / 2);
	ck_assert_uint_lt(sampled_cpu(key[2]), BURST_NS / 2);

	for (int i = 0; i < 5; i++)
		had = sampled_cpu(key[2]);
	own_cgroups_join(&gates, "apart", pid[2]);
	have_burst(pid[2]);
	nanosleep(&(struct timespec){ .tv_sec = TRUSTED_NS / NS_PER_S, .tv_nsec = TRUSTED_NS % NS_PER_S }, NULL);
	ck_assert_uint_ge(sampled_cpu(key[2]), had + BURST_NS / 2);
	for (int i = 0; i < GATED; i++) {
		kill(pid[i], SIGKILL);
		ck_assert_int_eq(waitpid(pid[i], NULL, 0), pid[i]);
	}
}
END_TEST

Suite *target_table_limits_suite(void)
{
	Suite *suite = suite_create("target_table_limits");
	TCase *limits = tcase_create("limits"), *moves = tcase_create("moves"), *costs = tcase_create("costs");
	TCase *real = tcase_create("real");

	tcase_add_checked_fixture(limits, setup, teardown);
	tcase_add_test(limits, limits_are_those_of_the_cgroup);
	tcase_add_test(limits, a_group_has_the_limits_its_members_share_or_the_machines);
	tcase_add_test(limits, limits_are_read_in_slices_and_a_group_has_its_own_all_along);
	suite_add_tcase(suite, limits);
	tcase_add_checked_fixture(moves, setup_tree, teardown_tree);
	tcase_add_test(moves, a_process_that_is_moved_while_it_runs_has_its_new_limits_after_the_next_refresh);
	tcase_add_test(moves, at_a_slow_rate_a_single_look_is_running);
	tcase_add_test(moves, one_that_is_moved_in_its_sleep_has_them_within_half_a_minute_and_a_refresh);
	tcase_add_test(moves, one_that_has_just_come_is_asked_every_time);
	tcase_add_loop_test(moves, one_that_has_just_come_is_asked_once_where_moves_are_told, 0, 2);
	tcase_add_loop_test(
		moves, one_that_was_not_announced_is_noticed_soon_if_announcements_may_be_missing_else_later, 0, 2);
	tcase_add_test(moves, one_that_executes_something_is_asked_at_the_next_refresh);
	tcase_add_test(moves, a_quota_that_changes_is_everybodys_after_the_next_refresh);
	suite_add_tcase(suite, moves);
	tcase_add_checked_fixture(costs, setup_tree, teardown_tree);
	tcase_add_test(costs, those_who_sleep_are_asked_twice_a_minute_and_not_all_at_once);
	tcase_add_test(costs, those_who_run_are_asked_every_time_and_nobody_else_for_that);
	tcase_add_test(costs, a_slice_asks_no_more_than_some);
	tcase_add_test(costs, of_many_cgroups_those_that_run_are_read_every_time_and_the_others_in_turn);
	tcase_add_test(costs, of_many_cgroups_one_that_sleeps_is_read_when_its_turn_comes);
	suite_add_tcase(suite, costs);
	tcase_add_unchecked_fixture(real, make_gates, remove_gates);
	tcase_add_checked_fixture(real, setup_real, teardown);
	tcase_add_test(real, processes_that_sleep_are_behind_the_gate_of_their_real_cgroup);
	suite_add_tcase(suite, real);

	return suite;
}
