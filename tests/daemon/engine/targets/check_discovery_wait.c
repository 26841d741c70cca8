/*
 * check_discovery_wait.c: what discovery's thread waits for between scans. Time is an argument:
 * nothing here sleeps.
 */
#include "daemon/engine/targets/discovery.h"
#include "discovery_rig.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "daemon/engine/targets/process_news.h"
#include "daemon/engine/targets/target_table.h"
#include "lib/base/base.h"
#include "lib/model/pacing.h"
#include "lib/model/target.h"

#include <sys/prctl.h>
#include <sys/wait.h>

Suite *discovery_wait_suite(void);

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

	snprintf(tree, sizeof(tree), "%s/tree", root);
	make_cgroup("");
	snprintf(path, sizeof(path), "%s/cgroup.controllers", tree);
	scene_write(path, "cpu memory\n");
}

/* As the thread does. */
static void hear(mono_t now)
{
	fair_mutex_enter(&discovery->turn);
	discovery_hear(discovery, now);
	fair_mutex_leave(&discovery->turn);
}

/* Until when it would sleep from now on; *ret_polled: how many descriptors may wake it before. */
static mono_t sleeps_until(mono_t now, size_t *ret_polled)
{
	struct pollfd fds[DISCOVERY_FDS];
	mono_t until = mono_add(now, FAR);

	*ret_polled = discovery_await(discovery, now, fds, &until);

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

		hear(later);
		ck_assert_uint_eq(sleeps_until(later, &found).ns, mono_add(later, FAR).ns);
		ck_assert_uint_eq(found, polled);
	}
}

START_TEST(while_no_cgroup_comes_it_sleeps_and_polls)
{
	mono_t now;
	size_t polled;

	make_tree();
	make(root, tree,
	     scene_config("{\"targets\": [{\"name\": \"e\", \"cgroup\": \"/jobs-*\", \"per\": \"cgroup\"}]}"));
	discovery_tune_in(discovery);
	scan();
	now = discovery_show_life(discovery);
	assert_sleeps(now, 2);

	/* Two in a row: it rests, and is not woken before; the first of them is due in a moment. */
	make_cgroup("/jobs-1");
	hear(mono_add(now, NS_PER_MS));
	make_cgroup("/jobs-2");
	hear(mono_add(now, NS_PER_MS + 1));
	ck_assert_int_lt(mono_diff(sleeps_until(mono_add(now, NS_PER_MS + 1), &polled), now), (int64_t)(3 * NS_PER_MS));
	ck_assert_uint_eq(polled, 1);

	/* They have been handed out: nothing more to be waited for. */
	hear(mono_add(now, NS_PER_S));
	ck_assert_uint_eq(discovery->state.cgroups_heard, 2);
	assert_sleeps(mono_add(now, 2 * NS_PER_S), 2);
}
END_TEST

START_TEST(while_no_entry_selects_units_there_is_nothing_to_wait_for)
{
	make("/proc", NULL, scene_config("{\"targets\": [{\"name\": \"e\", \"comm\": \"no process has\"}]}"));
	discovery_ask_for_units(discovery);
	ck_assert_ptr_nonnull(discovery->units);
	assert_sleeps(discovery_show_life(discovery), 1);
}
END_TEST

/* ---- processes ---- */

/* A child that is called name and sleeps. */
static pid_t deadline_timer_called(const char *name)
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

static void end(pid_t pid)
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

	target_table_visit(discovery->target_table, note, &order);

	return order;
}

static const char *own_name(void)
{
	static char name[16];

	snprintf(name, sizeof(name), "wait%d", getpid());

	return name;
}

START_TEST(who_comes_while_cgroups_are_looked_at_need_not_wait_for_all_of_them)
{
	char path[160];
	struct order order;
	mono_t now;
	pid_t pid;

	make_tree();
	make("/proc", tree,
	     scene_config("{\"targets\": [{\"name\": \"c\", \"cgroup\": \"/jobs-*\", \"per\": \"cgroup\"}, "
			  "{\"name\": \"p\", \"comm\": \"%s\"}]}",
			  own_name()));
	discovery_tune_in(discovery);
	if (!discovery->news)
		return; /* nothing can be heard here */
	scan();
	pid = deadline_timer_called(own_name());
	for (int i = 0; i < 8; i++) {
		snprintf(path, sizeof(path), "/jobs-%d", i);
		make_cgroup(path);
		snprintf(path, sizeof(path), "%s/jobs-%d/cpu.stat", tree, i);
		scene_write(path, "usage_usec 10\nuser_usec 5\nsystem_usec 5\n");
		snprintf(path, sizeof(path), "%s/jobs-%d/memory.current", tree, i);
		scene_write(path, "4096\n");
	}

	/* Both are heard of; the process may be looked at a moment after the first cgroup. */
	now = discovery_show_life(discovery);
	discovery->news->rate_limit = (struct rate_limit){ 0 };
	hear(mono_sub(now, NS_PER_S));
	ck_assert_uint_eq(order_of(pid).process, 0);
	discovery->news->rate_limit.until = mono_add(now, 1);
	hear(now);
	order = order_of(pid);
	end(pid);
	ck_assert_uint_eq(discovery->state.cgroups_heard, 8);
	ck_assert_uint_gt(order.last_cgroup, 0);
	ck_assert_uint_gt(order.process, 0);
	ck_assert_uint_lt(order.process, order.last_cgroup);
}
END_TEST

/* Nothing is left of the share as of then. */
static void exhaust(mono_t now)
{
	discovery->news->token_bucket.left_ns = -(int64_t)NS_PER_MS;
	discovery->news->token_bucket.filled = now;
}

START_TEST(who_comes_when_the_share_is_taken_is_late_and_that_is_counted)
{
	mono_t now;
	uint64_t looks;
	pid_t pid;

	make("/proc", NULL, scene_config("{\"targets\": [{\"name\": \"p\", \"comm\": \"%s\"}]}", own_name()));
	discovery_tune_in(discovery);
	if (!discovery->news)
		return;
	scan();
	now = discovery_show_life(discovery);
	exhaust(now);
	hear(mono_add(now, 20 * NS_PER_MS)); /* finds it taken */
	pid = deadline_timer_called(own_name());
	looks = discovery->state.looks;
	hear(mono_add(now, 40 * NS_PER_MS));
	ck_assert(discovery->state.held_off);
	ck_assert_uint_eq(discovery->state.looks, looks);
	ck_assert_uint_eq(order_of(pid).process, 0);

	/* There is something left again. */
	hear(mono_add(now, 500 * NS_PER_MS));
	end(pid);
	ck_assert_uint_gt(order_of(pid).process, 0);
	ck_assert_uint_ge(discovery->state.late, 1);
	ck_assert_uint_eq(discovery->state.storms, 0);
	hear(mono_add(now, NS_PER_S));
	ck_assert(!discovery->state.held_off);
}
END_TEST

START_TEST(who_has_waited_for_his_share_for_a_second_is_left_to_a_scan)
{
	mono_t now, next;
	uint64_t late;
	pid_t pid;

	make("/proc", NULL, scene_config("{\"targets\": [{\"name\": \"p\", \"comm\": \"%s\"}]}", own_name()));
	discovery_tune_in(discovery);
	if (!discovery->news)
		return;
	scan();
	pid = deadline_timer_called(own_name());
	now = discovery_show_life(discovery);
	discovery->again = false;
	for (unsigned i = 0; i < 60; i++) {
		ck_assert_uint_eq(discovery->state.storms, i * 20 > 1000);
		late = discovery->state.late;
		exhaust(now);
		now = mono_add(now, 20 * NS_PER_MS);
		hear(now);
		if (discovery->state.storms > 0)
			break;
	}
	end(pid);
	ck_assert_uint_eq(discovery->state.storms, 1);
	ck_assert_uint_gt(discovery->state.late, late);
	ck_assert(discovery->again);
	ck_assert(!recent_pids_next(discovery->news->recent_pids, 0, &next));
	ck_assert_uint_eq(order_of(pid).process, 0);
}
END_TEST

Suite *discovery_wait_suite(void)
{
	Suite *suite = suite_create("discovery_wait");
	TCase *tcase = tcase_create("waits");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, while_no_cgroup_comes_it_sleeps_and_polls);
	tcase_add_test(tcase, while_no_entry_selects_units_there_is_nothing_to_wait_for);
	tcase_add_test(tcase, who_comes_while_cgroups_are_looked_at_need_not_wait_for_all_of_them);
	tcase_add_test(tcase, who_comes_when_the_share_is_taken_is_late_and_that_is_counted);
	tcase_add_test(tcase, who_has_waited_for_his_share_for_a_second_is_left_to_a_scan);
	suite_add_tcase(suite, tcase);

	return suite;
}
