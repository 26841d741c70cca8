/*
 * check_unit_table.c: units by name and by cgroup, and what that means for entries of the
 * configuration. White box: includes unit_bus.c.
 */
#include "daemon/engine/targets/unit_bus.c"
#include "daemon/engine/targets/matcher.h"
#include "torture.h"
#include "lib/config/config.h"
#include "lib/config/selection.h"

#include <check.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

Suite *unit_table_suite(void);

#define MARIADB "/system.slice/mariadb.service"

static struct unit_table *table;

static void setup(void)
{
	ck_assert_int_eq(unit_table_new(&table), 0);
}

static void teardown(void)
{
	unit_table_free(table);
}

static struct known_unit *enter(const char *object, const char *names, const char *cgroup)
{
	struct known_unit *unit = NULL;

	ck_assert_int_eq(unit_table_enter(table, object, &unit), 0);
	ck_assert_int_eq(unit_table_rename(table, unit, names), 0);
	ck_assert_int_eq(unit_table_place(table, unit, cgroup), 0);

	return unit;
}

START_TEST(finds_the_unit_of_the_nearest_cgroup_above)
{
	struct known_unit *slice = enter("/s", "system.slice\0", "/system.slice");
	struct known_unit *service = enter("/m", "mariadb.service\0", MARIADB);

	ck_assert_ptr_eq(unit_table_of(table, MARIADB), &service->shown);
	ck_assert_ptr_eq(unit_table_of(table, MARIADB "/a/b"), &service->shown);
	ck_assert_ptr_eq(unit_table_of(table, MARIADB "2"), &slice->shown);
	ck_assert_ptr_null(unit_table_of(table, "/"));
	ck_assert_ptr_null(unit_table_of(table, ""));
	ck_assert_ptr_null(unit_table_of(table, "/user.slice/system.slice2"));
	unit_table_remove(table, service);
	ck_assert_ptr_eq(unit_table_of(table, MARIADB), &slice->shown);
	ck_assert_ptr_null(unit_table_find(table, "/m"));
	ck_assert_uint_eq(table->objects.count, 1);
}
END_TEST

START_TEST(a_unit_that_moves_is_where_it_is)
{
	struct known_unit *unit = enter("/m", "mariadb.service\0mysql.service\0", MARIADB);

	ck_assert(unit_table_matches(table, "mysql.*", MARIADB, false));
	ck_assert_int_eq(unit_table_place(table, unit, ""), 0);
	ck_assert(unit_table_matches(table, "mysql.*", MARIADB, false));
	ck_assert_int_eq(unit_table_place(table, unit, "/db.slice/mariadb.service"), 0);
	ck_assert(!unit_table_matches(table, "mysql.*", MARIADB, false));
	ck_assert(unit_table_matches(table, "mysql.*", "/db.slice/mariadb.service", false));
	ck_assert_int_eq(unit_table_rename(table, unit, "mariadb.service\0"), 0);
	ck_assert(!unit_table_matches(table, "*", "/db.slice/mariadb.service", false));
	ck_assert_ptr_eq(unit_table_of(table, "/db.slice/mariadb.service"), &unit->shown);

	/* Two at one place. */
	enter("/a", "a.service\0", "/b");
	enter("/c", "c.service\0", "/b");
	ck_assert(unit_table_matches(table, "a.service", "/b", false));
	ck_assert(unit_table_matches(table, "c.service", "/b", false));
}
END_TEST

START_TEST(takes_no_place_that_leads_elsewhere)
{
	static const char *const bad[] = { "", "/", "x", "//x", "/x/", "/x//y", "/.", "/..", "/x/../y", "/x/./y" };
	static const char *const good[] = { "/x", "/...", "/.x", "/..x/y..", "/x/\\x2d\xff\n" };
	struct known_unit *unit = enter("/m", "m.service\0", "");
	char path[PATH_MAX + 1];

	/* A name or a path that is too long to be one. */
	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[NAME_MAX + 2] = '\0';
	ck_assert_int_eq(unit_table_place(table, unit, path), 0);
	ck_assert_ptr_null(unit->shown.cgroup);
	path[NAME_MAX + 2] = 'x';
	path[PATH_MAX] = '\0';
	for (size_t i = 0; i < PATH_MAX; i += 2)
		path[i] = '/';
	ck_assert_int_eq(unit_table_place(table, unit, path), 0);
	ck_assert_ptr_null(unit->shown.cgroup);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_int_eq(unit_table_place(table, unit, bad[i]), 0);
		ck_assert_msg(!unit->shown.cgroup, "%s", bad[i]);
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_int_eq(unit_table_place(table, unit, good[i]), 0);
		ck_assert_str_eq(unit->shown.cgroup, good[i]);
		ck_assert_ptr_eq(unit_table_of(table, good[i]), &unit->shown);
	}
}
END_TEST

/* Among thousands, a longer name is in the same chain as a shorter one that it begins with. */
START_TEST(a_cgroup_is_not_that_of_a_longer_name)
{
	char path[32];

	for (int i = 1000; i < 6000; i++) {
		snprintf(path, sizeof(path), "/x%d", i);
		enter(path, "m.service\0", path);
	}
	for (int i = 0; i < 1000; i++) {
		snprintf(path, sizeof(path), "/x%d", i);
		ck_assert_msg(!unit_table_of(table, path), "%s", path);
	}
}
END_TEST

/* What a process of a unit is to entries that select it by an alias. */
START_TEST(processes_of_a_unit_match_by_its_alias)
{
	struct config_target targets[] = {
		{ .name = "p", .selector = CONFIG_UNIT, .pattern = "mysql.service", .per = CONFIG_PER_PROCESS },
		{ .name = "g", .selector = CONFIG_UNIT, .pattern = "mysql*", .per = CONFIG_PER_GROUP },
		{ .name = "c", .selector = CONFIG_UNIT, .pattern = "mysql.service", .per = CONFIG_PER_CGROUP },
		{ .name = "o", .selector = CONFIG_CGROUP, .pattern = "mysql.service", .per = CONFIG_PER_PROCESS },
	};
	struct config config = { .targets = targets, .target_count = 4 };
	struct match_facts facts = { .pid = 7, .cgroup = MARIADB "/workers" };
	struct matcher *matcher = NULL;

	ck_assert_int_eq(matcher_new(&config, &matcher), 0);
	for (size_t i = 0; i < 4; i++)
		ck_assert(!matcher_process(matcher, i, &facts));
	enter("/m", "mariadb.service\0mysql.service\0", MARIADB);
	matcher->units = table;
	ck_assert(matcher_process(matcher, 0, &facts));
	ck_assert(matcher_process(matcher, 1, &facts));
	ck_assert(!matcher_process(matcher, 2, &facts));
	ck_assert(!matcher_process(matcher, 3, &facts));
	ck_assert(matcher_cgroup(matcher, 2, MARIADB, NULL));
	ck_assert(!matcher_cgroup(matcher, 2, MARIADB "/workers", NULL));
	ck_assert(!matcher_cgroup(matcher, 0, MARIADB, NULL));
	facts.cgroup = NULL;
	ck_assert(!matcher_process(matcher, 0, &facts));
	matcher_free(matcher);
}
END_TEST

static void count(void *ctx, struct unit *visited)
{
	struct known_unit *unit = known_of(visited);

	*(size_t *)ctx += 1;
	if (unit->object[1] % 2)
		unit_table_remove(table, unit);
}

START_TEST(has_a_bound_and_gives_room_back)
{
	char object[32];
	struct known_unit *unit;
	size_t seen = 0;

	for (size_t i = 0; i < UNIT_TABLE_MAX; i++) {
		snprintf(object, sizeof(object), "/%zu", i);
		ck_assert_int_eq(unit_table_enter(table, object, &unit), 0);
	}
	ck_assert_int_eq(unit_table_enter(table, "/x", &unit), -ENOSPC);
	unit_table_visit(table, count, &seen);
	ck_assert_uint_eq(seen, UNIT_TABLE_MAX);
	ck_assert_uint_lt(table->objects.count, UNIT_TABLE_MAX);
	ck_assert_int_eq(unit_table_enter(table, "/x", &unit), 0);
	ck_assert_ptr_eq(unit_table_find(table, "/x"), unit);
}
END_TEST

START_TEST(lack_of_memory_changes_nothing)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct unit_table *made = NULL;
		struct known_unit *unit = NULL;

		torture_arm(n);
		int r = unit_table_new(&made);
		if (r == 0)
			r = unit_table_enter(made, "/m", &unit);
		if (r == 0)
			r = unit_table_place(made, unit, MARIADB);
		if (r == 0)
			r = unit_table_rename(made, unit, "m.service\0");
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert(!unit || injected == !unit->shown.names);
		unit_table_free(made);
	}
}
END_TEST

Suite *unit_table_suite(void)
{
	Suite *suite = suite_create("unit_table");
	TCase *tcase = tcase_create("unittable");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, finds_the_unit_of_the_nearest_cgroup_above);
	tcase_add_test(tcase, a_unit_that_moves_is_where_it_is);
	tcase_add_test(tcase, takes_no_place_that_leads_elsewhere);
	tcase_add_test(tcase, a_cgroup_is_not_that_of_a_longer_name);
	tcase_add_test(tcase, processes_of_a_unit_match_by_its_alias);
	tcase_add_test(tcase, has_a_bound_and_gives_room_back);
	tcase_add_test(tcase, lack_of_memory_changes_nothing);
	suite_add_tcase(suite, tcase);

	return suite;
}
