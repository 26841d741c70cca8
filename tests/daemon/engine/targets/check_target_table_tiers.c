/*
 * check_target_table_tiers.c: which keep descriptors when there are too few, in processes made of
 * files that run as the test wants.
 */
#include "daemon/engine/targets/target_table.h"
#include "daemon/engine/base/proc_read.h"
#include "target_table_rig.h"
#include "torture.h"
#include "daemon/engine/sampling/sampler.h"
#include "samplers_tick.h"
#include "lib/model/target.h"
#include "lib/source/source.h"

#include <sys/resource.h>

Suite *target_table_tiers_suite(void);

static struct target_table_rig rig;

static void setup(void)
{
	target_table_rig_setup(&rig);
}

static void teardown(void)
{
	target_table_rig_teardown(&rig);
}

#define APP "{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}]}"
#define FIRST 100
#define MANY 40

static uint64_t scan;

/* It has used so much more. */
static void run(int pid, unsigned ticks)
{
	static unsigned used;
	char path[128];

	used += ticks;
	snprintf(path, sizeof path, "%s/%d/stat", rig.root, pid);
	scene_write(path, "%d (app) S 1 1 1 0 -1 0 10 0 0 0 %u 5 0 0 20 0 3 0 500 1000000 100 0\n", pid, 100 + used);
}

/*
 * The sampler has a few ticks in which those from `first` to `last` run, then a scan meets every
 * process of the scene, and cgroup if there is one.
 */
static void pass_with(const char *cgroup, int processes, int first, int last)
{
	for (int tick = 0; tick < 5; tick++) {
		for (int pid = first; pid < last; pid++)
			run(pid, 1);
		samplers_tick(rig.samplers);
	}
	scan++;
	target_table_collect(rig.table);
	for (int pid = FIRST; pid < FIRST + processes; pid++)
		ck_assert_int_eq(meet(&rig, 0, pid, 500, scan), 0);
	if (cgroup)
		ck_assert_int_eq(target_table_cgroup(rig.table, 1, cgroup, scan), 0);
	target_table_sweep(rig.table, scan);
}

static void pass(int processes, int first, int last)
{
	pass_with(NULL, processes, first, last);
}

struct tier_count {
	int first, last;
	size_t cold, warm;
};

static int count_one(void *ctx, struct target_table_target *target)
{
	struct tier_count *count = ctx;
	bool cold = source_entry_is_closed(target->sampled.entry);

	if (target->what.kind == TARGET_PROCESS && target->what.pid >= count->first && target->what.pid < count->last) {
		count->cold += cold;
		count->warm += !cold;
	}

	return 0;
}

static struct tier_count tiers(int first, int last)
{
	struct tier_count count = { .first = first, .last = last };

	target_table_visit(rig.table, count_one, &count);

	return count;
}

/* So many descriptors from the lowest that is free; returns the limit before. */
static struct rlimit limit_to(unsigned more)
{
	struct rlimit before, low;
	int fd = dup(STDERR_FILENO);

	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	low = (struct rlimit){ (rlim_t)fd + more, before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);

	return before;
}

static void begin(const char *text, int processes)
{
	scan = 0;
	make(&rig, 256, text);
	for (int pid = FIRST; pid < FIRST + processes; pid++) {
		char path[128];

		appear(&rig, pid, 500, "/");
		snprintf(path, sizeof path, "%s/%d/status", rig.root, pid);
		scene_write(path, "VmHWM:\t 100 kB\n");
	}
}

START_TEST(nobody_is_cold_while_there_are_enough)
{
	begin(APP, MANY);
	pass(MANY, 0, 0);
	pass(MANY, 0, 0);
	ck_assert_uint_eq(counts(&rig).processes, MANY);
	ck_assert_uint_eq(counts(&rig).cold, 0);
	ck_assert_uint_eq(tiers(0, 1000).warm, MANY);
}
END_TEST

START_TEST(all_are_watched_when_there_are_too_few_and_warm_again_when_not)
{
	begin(APP, MANY);
	struct rlimit before = limit_to(100);

	for (int i = 0; i < 4; i++)
		pass(MANY, 0, 0);
	struct target_table_counts few = counts(&rig);
	bool is_short = descriptors_short(STDERR_FILENO);

	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_uint_eq(few.targets, MANY);
	ck_assert_uint_eq(few.processes, MANY);
	ck_assert_uint_eq(few.failed, 0);
	ck_assert_uint_gt(few.cold, MANY / 4);
	ck_assert_uint_lt(few.cold, MANY);
	ck_assert(is_short);
	ck_assert_uint_eq(few.cold, tiers(0, 1000).cold);
	for (int i = 0; i < 3; i++)
		pass(MANY, 0, 0);
	ck_assert_uint_eq(counts(&rig).cold, 0);
	ck_assert_uint_eq(tiers(0, 1000).warm, MANY);
}
END_TEST

START_TEST(those_that_run_take_over_from_those_that_do_not)
{
	begin(APP, MANY);
	struct rlimit before = limit_to(100);

	pass(MANY, 0, 0);
	size_t places = tiers(0, 1000).warm;

	/* The last ones came when nothing was left. */
	struct tier_count at_first = tiers(FIRST + MANY - 5, FIRST + MANY);

	for (int i = 0; i < 6; i++)
		pass(MANY, FIRST + MANY - 5, FIRST + MANY);
	struct tier_count runners = tiers(FIRST + MANY - 5, FIRST + MANY), all = tiers(0, 1000);

	/* Now others run, as many as there are places: of equals none changes. */
	for (int i = 0; i < 12; i++)
		pass(MANY, FIRST, FIRST + MANY);
	size_t moved = 0;

	for (int i = 0; i < 6; i++) {
		struct tier_count earlier = tiers(FIRST, FIRST + 10);

		pass(MANY, FIRST, FIRST + MANY);
		moved += earlier.cold != tiers(FIRST, FIRST + 10).cold;
	}
	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_uint_eq(at_first.cold, 5);
	ck_assert_uint_eq(runners.warm, 5);
	ck_assert_uint_ge(all.warm, places - 1);
	ck_assert_uint_le(all.warm, places + 5);
	ck_assert_uint_eq(moved, 0);
}
END_TEST

START_TEST(who_runs_once_in_a_while_stays_cold)
{
	begin(APP, MANY);
	struct rlimit before = limit_to(100);

	pass(MANY, 0, 0);
	for (int i = 0; i < 8; i++) { /* twice between two scans, then not */
		for (int times = 0; times < 2 && i % 2 == 0; times++) {
			run(FIRST + MANY - 1, 1);
			samplers_tick(rig.samplers);
		}
		pass(MANY, 0, 0);
	}
	struct tier_count one = tiers(FIRST + MANY - 1, FIRST + MANY);

	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_uint_eq(one.cold, 1);
}
END_TEST

START_TEST(processes_make_room_for_cgroups)
{
	begin("{\"targets\": [{\"name\": \"a\", \"comm\": \"app\"}, {\"name\": \"c\", \"cgroup\": "
	      "\"/system.slice/*\"}]}",
	      MANY);
	struct rlimit before = limit_to(100);

	pass(MANY, 0, 0);
	size_t warm = tiers(0, 1000).warm;
	uint64_t failed = 0;

	for (int i = 0; i < 4; i++) {
		pass_with("/system.slice/postgresql.service", MANY, 0, 0);
		failed += counts(&rig).failed;
	}
	struct target_table_counts last = counts(&rig);
	struct tier_count all = tiers(0, 1000);

	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_uint_ge(failed, 1);
	ck_assert_uint_eq(last.failed, 0);
	ck_assert_uint_eq(last.targets, MANY + 1);
	ck_assert_uint_lt(all.warm, warm);
}
END_TEST

START_TEST(without_memory_everything_stays_as_it_is)
{
	begin(APP, MANY);
	struct rlimit before = limit_to(100);

	pass(MANY, 0, 0);
	struct tier_count earlier = tiers(0, 1000);

	torture_arm(1);
	target_table_sweep(rig.table, scan);
	bool injected = torture_disarm();
	struct tier_count later = tiers(0, 1000);

	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert(injected);
	ck_assert_uint_eq(earlier.cold, later.cold);
	pass(MANY, 0, 0);
	ck_assert_uint_eq(counts(&rig).targets, MANY);
}
END_TEST

/* Now and then, as chance will have it: so often in a pass at most. */
static void pass_by_chance(int processes, unsigned most)
{
	static uint64_t seed = 1;

	for (unsigned tick = 0; tick < most; tick++) {
		for (int pid = FIRST; pid < FIRST + processes; pid++) {
			seed = seed * 6364136223846793005u + 1442695040888963407u;
			if (seed >> 63)
				run(pid, 1);
		}
		samplers_tick(rig.samplers);
	}
	pass(processes, 0, 0);
}

static int count_opened(void *ctx, struct target_table_target *target)
{
	static bool was_cold[FIRST + MANY];
	bool cold = source_entry_is_closed(target->sampled.entry);
	unsigned *opened = ctx;

	*opened += was_cold[target->what.pid] && !cold;
	was_cold[target->what.pid] = cold;

	return 0;
}

START_TEST(who_runs_as_often_as_others_does_not_change_places_for_ever)
{
	unsigned opened = 0;

	begin(APP, MANY);
	struct rlimit before = limit_to(100);

	for (int i = 0; i < 10; i++)
		pass_by_chance(MANY, 8);
	target_table_visit(rig.table, count_opened, &opened);
	opened = 0;
	for (int i = 0; i < 40; i++) {
		pass_by_chance(MANY, 8);
		target_table_visit(rig.table, count_opened, &opened);
	}
	struct tier_count count = tiers(0, 1000);
	setrlimit(RLIMIT_NOFILE, &before);
	ck_assert_uint_gt(count.cold, 5);
	ck_assert_uint_gt(count.warm, 5);
	ck_assert_uint_le(opened, 4);
}
END_TEST

Suite *target_table_tiers_suite(void)
{
	Suite *suite = suite_create("target_table_tiers");
	TCase *tcase = tcase_create("tiers");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, nobody_is_cold_while_there_are_enough);
	tcase_add_test(tcase, all_are_watched_when_there_are_too_few_and_warm_again_when_not);
	tcase_add_test(tcase, those_that_run_take_over_from_those_that_do_not);
	tcase_add_test(tcase, who_runs_once_in_a_while_stays_cold);
	tcase_add_test(tcase, processes_make_room_for_cgroups);
	tcase_add_test(tcase, without_memory_everything_stays_as_it_is);
	tcase_add_test(tcase, who_runs_as_often_as_others_does_not_change_places_for_ever);
	suite_add_tcase(suite, tcase);

	return suite;
}
