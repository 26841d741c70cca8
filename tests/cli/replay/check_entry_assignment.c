/*
 * check_entry_assignment.c: which entry a recorded target is of: its own, one that selects it, the
 * one that is asked for, none.
 */
#include "cli/replay/replay.h"
#include "scene.h"
#include "torture.h"
#include "lib/config/config.h"
#include "lib/model/target.h"

#include <errno.h>

Suite *entry_assignment_suite(void);

static struct config *config;

static void setup(void)
{
	config = scene_config(
		"{ \"targets\": [ { \"name\": \"pid\", \"pid\": 77 }, { \"name\": \"web\", \"comm\": \"nginx\" },\n"
		"{ \"name\": \"jobs\", \"cmdline\": \"^python.* job\" }, { \"name\": \"all\", \"exe\": \"/bin/x\", "
		"\"per\": \"group\" },\n"
		"{ \"name\": \"services\", \"cgroup\": \"/system.slice/*.service\" },\n"
		"{ \"name\": \"shop\", \"containers\": \"shop-*\" } ] }");
}

static void teardown(void)
{
	config_free(config);
}

static const char *entry(const char *as, const struct target *target)
{
	static char name[80];
	struct entry_assignment *entry_assignment;

	ck_assert_int_eq(entry_assignment_new(config, as, &entry_assignment), 0);
	snprintf(name, sizeof(name), "%s", entry_assignment_entry(entry_assignment, target));
	entry_assignment_free(entry_assignment);

	return name;
}

static struct target process(void)
{
	return (struct target){ .kind = TARGET_PROCESS,
				.pid = 5,
				.entry = "somebody",
				.name = "",
				.key = "",
				.comm = "",
				.cmdline = "",
				.cgroup = "/" };
}

START_TEST(an_entry_of_the_same_name_is_the_one)
{
	struct target target = process();

	target.comm = "nginx";
	target.entry = "all";
	ck_assert_str_eq(entry("jobs", &target), "all");
	target.kind = TARGET_GROUP;
	ck_assert_str_eq(entry(NULL, &target), "all");
}
END_TEST

START_TEST(a_container_is_selected_by_its_name)
{
	struct target target = process();

	target.kind = TARGET_CGROUP;
	target.cgroup = "/docker/a329033bf642";
	target.container = "docker\ta329033bf642\tshop-web";
	ck_assert_str_eq(entry("jobs", &target), "shop");
	target.container = "docker\ta329033bf642\tother";
	ck_assert_str_eq(entry("jobs", &target), "jobs");
	target.container = "";
	ck_assert_str_eq(entry("jobs", &target), "jobs");
}
END_TEST

START_TEST(else_the_entry_that_selects_it)
{
	struct target target = process();

	target.comm = "nginx";
	ck_assert_str_eq(entry("jobs", &target), "web");
	target.comm = "python3";
	target.cmdline = "python3 my job.py";
	ck_assert_str_eq(entry(NULL, &target), "jobs");
	target.pid = 77;
	ck_assert_str_eq(entry(NULL, &target), "pid");
}
END_TEST

START_TEST(a_cgroup_is_selected_by_its_path)
{
	struct target target = process();

	target.kind = TARGET_CGROUP;
	target.cgroup = "/system.slice/a.service";
	ck_assert_str_eq(entry(NULL, &target), "services");
	target.cgroup = "/user.slice/a.service";
	ck_assert_str_eq(entry(NULL, &target), "somebody");
}
END_TEST

START_TEST(what_is_outside_is_no_process_of_an_entry_before)
{
	struct config *dropped =
		scene_config("{\"targets\": [{\"name\": \"services\", \"unit\": \"*.service\"},"
			     "{\"name\": \"others\", \"cgroup\": \"/**\", \"per\": \"process\", \"outside\": true}]}");
	struct entry_assignment *entry_assignment = NULL;
	struct target target = process();

	ck_assert_int_eq(entry_assignment_new(dropped, NULL, &entry_assignment), 0);
	target.cgroup = "/elsewhere";
	ck_assert_str_eq(entry_assignment_entry(entry_assignment, &target), "others");
	target.cgroup = "/system.slice/a.service/below";
	ck_assert_str_eq(entry_assignment_entry(entry_assignment, &target), target.entry);
	entry_assignment_free(entry_assignment);
	config_free(dropped);
}
END_TEST

START_TEST(else_what_is_asked_for)
{
	struct target target = process();

	ck_assert_str_eq(entry(NULL, &target), "somebody");
	ck_assert_str_eq(entry("jobs", &target), "jobs");
	target.kind = TARGET_GROUP;
	target.comm = "nginx";
	ck_assert_str_eq(entry("jobs", &target), "jobs");
}
END_TEST

START_TEST(memory_that_runs_out_is_an_error)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct entry_assignment *entry_assignment = NULL;

		torture_arm(n);
		int r = entry_assignment_new(config, NULL, &entry_assignment);

		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		entry_assignment_free(entry_assignment);
	}
}
END_TEST

Suite *entry_assignment_suite(void)
{
	Suite *suite = suite_create("entry_assignment");
	TCase *tcase = tcase_create("entries");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_entry_of_the_same_name_is_the_one);
	tcase_add_test(tcase, a_container_is_selected_by_its_name);
	tcase_add_test(tcase, else_the_entry_that_selects_it);
	tcase_add_test(tcase, a_cgroup_is_selected_by_its_path);
	tcase_add_test(tcase, what_is_outside_is_no_process_of_an_entry_before);
	tcase_add_test(tcase, else_what_is_asked_for);
	tcase_add_test(tcase, memory_that_runs_out_is_an_error);
	suite_add_tcase(suite, tcase);

	return suite;
}
