/*
 * check_discovery_wait.c: what discovery's thread waits for between scans. Time is an argument: nothing here sleeps.
 */
#include "discovery_inside.h"
#include "discovery_rig.h"

Suite *discovery_wait_suite(void);

#define FAR (60 * NS_PER_S)

static char tree[96];

static void make_cgroup(const char *path)
{
	char full[160];

	snprintf(full, sizeof(full), "%s%s", tree, path);
	ck_assert_int_eq(mkdir(full, 0700), 0);
}

/* Until when it would sleep from now on; *ret_polled: how many descriptors may wake it before. */
static mono_t sleeps_until(mono_t now, size_t *ret_polled)
{
	struct pollfd fds[DISCOVERY_FDS];
	mono_t until = mono_add(now, FAR);

	*ret_polled = discovery_await(discovery, now, fds, &until);

	return until;
}

/* Hears at ever later moments: there is nothing, so it sleeps as long as it may, and what comes would wake it. */
static void assert_sleeps(mono_t now, size_t polled)
{
	for (int i = 0; i < 4; i++) {
		mono_t later = mono_add(now, (uint64_t)i * 100 * NS_PER_US);
		size_t found;

		discovery_hear(discovery, later);
		ck_assert_uint_eq(sleeps_until(later, &found).ns, mono_add(later, FAR).ns);
		ck_assert_uint_eq(found, polled);
	}
}

START_TEST(while_no_cgroup_comes_it_sleeps_and_polls)
{
	char path[128];
	mono_t now;
	size_t polled;

	snprintf(tree, sizeof(tree), "%s/tree", root);
	make_cgroup("");
	snprintf(path, sizeof(path), "%s/cgroup.controllers", tree);
	scene_write(path, "cpu memory\n");
	make(root, tree,
	     scene_config("{\"targets\": [{\"name\": \"e\", \"cgroup\": \"/jobs-*\", \"per\": \"cgroup\"}]}"));
	discovery_tune_in(discovery);
	scan();
	now = discovery_show_life(discovery);
	assert_sleeps(now, 2);

	/* Two in a row: it rests, and is not woken before; the first of them is due in a moment. */
	make_cgroup("/jobs-1");
	discovery_hear(discovery, mono_add(now, NS_PER_MS));
	make_cgroup("/jobs-2");
	discovery_hear(discovery, mono_add(now, NS_PER_MS + 1));
	ck_assert_int_lt(mono_diff(sleeps_until(mono_add(now, NS_PER_MS + 1), &polled), now), (int64_t)(2 * NS_PER_MS));
	ck_assert_uint_eq(polled, 1);

	/* They have been handed out: nothing more to be waited for. */
	discovery_hear(discovery, mono_add(now, NS_PER_S));
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

Suite *discovery_wait_suite(void)
{
	Suite *suite = suite_create("discovery_wait");
	TCase *tcase = tcase_create("waits");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, while_no_cgroup_comes_it_sleeps_and_polls);
	tcase_add_test(tcase, while_no_entry_selects_units_there_is_nothing_to_wait_for);
	suite_add_tcase(suite, tcase);

	return suite;
}
