/* check_match.c: which processes and cgroups an entry of the configuration means. */
#include "lib/config/selection.h"
#include "lib/base/base.h"
#include "lib/config/config.h"

#include <check.h>
#include <errno.h>

Suite *match_suite(void);

static const struct match_facts postgres = {
	.pid = 812,
	.comm = "postgres",
	.exe = "/usr/lib/postgresql/15/bin/postgres",
	.cmdline = "/usr/lib/postgresql/15/bin/postgres -D /var/lib/postgresql/15/main",
	.cgroup = "/system.slice/system-postgresql.slice/postgresql@15-main.service",
};

static bool process_matches(enum config_selector selector, const char *pattern, int32_t pid,
			    const struct match_facts *facts, int32_t pidfile_pid)
{
	struct config_target entry = {
		.name = "x", .selector = selector, .pattern = pattern, .pid = pid, .per = CONFIG_PER_PROCESS
	};
	struct match *match = NULL;

	ck_assert_int_eq(match_new(&entry, &match), 0);
	bool result = match_process(match, facts, pidfile_pid);
	match_free(match);

	return result;
}

static bool path_matches(enum config_selector selector, const char *pattern, const char *path)
{
	struct config_target entry = {
		.name = "x", .selector = selector, .pattern = pattern, .per = CONFIG_PER_CGROUP
	};
	struct match *match = NULL;

	ck_assert_int_eq(match_new(&entry, &match), 0);
	ck_assert(match_is_by_path(match) == (selector >= CONFIG_CGROUP));
	bool result = match_cgroup(match, path, NULL);
	match_free(match);

	return result;
}

START_TEST(selects_processes)
{
	ck_assert(process_matches(CONFIG_PID, NULL, 812, &postgres, 0));
	ck_assert(!process_matches(CONFIG_PID, NULL, 813, &postgres, 0));
	ck_assert(process_matches(CONFIG_PIDFILE, "/run/p.pid", 0, &postgres, 812));
	ck_assert(!process_matches(CONFIG_PIDFILE, "/run/p.pid", 0, &postgres, 0));
	ck_assert(process_matches(CONFIG_COMM, "postgres", 0, &postgres, 0));
	ck_assert(!process_matches(CONFIG_COMM, "postgre", 0, &postgres, 0));
	ck_assert(process_matches(CONFIG_EXE, "/usr/lib/postgresql/*/bin/postgres", 0, &postgres, 0));
	ck_assert(!process_matches(CONFIG_EXE, "/usr/*/postgres", 0, &postgres, 0));
	ck_assert(process_matches(CONFIG_CMDLINE, "postgres -D .*/main$", 0, &postgres, 0));
	ck_assert(!process_matches(CONFIG_CMDLINE, "^postgres", 0, &postgres, 0));
	ck_assert(process_matches(CONFIG_CGROUP, "/system.slice/**", 0, &postgres, 0));
	ck_assert(process_matches(CONFIG_UNIT, "postgresql@*.service", 0, &postgres, 0));
	ck_assert(!process_matches(CONFIG_UNIT, "postgresql.service", 0, &postgres, 0));
}
END_TEST

START_TEST(what_is_not_known_matches_nothing)
{
	static const struct match_facts unknown = { .pid = 1 };

	ck_assert(!process_matches(CONFIG_COMM, "", 0, &unknown, 0));
	ck_assert(!process_matches(CONFIG_EXE, "*", 0, &unknown, 0));
	ck_assert(!process_matches(CONFIG_CMDLINE, ".*", 0, &unknown, 0));
	ck_assert(!process_matches(CONFIG_CGROUP, "/**", 0, &unknown, 0));
	ck_assert(!process_matches(CONFIG_UNIT, "*", 0, &unknown, 0));
}
END_TEST

START_TEST(selects_cgroups)
{
	ck_assert(path_matches(CONFIG_CGROUP, "/system.slice/*.service", "/system.slice/nginx.service"));
	ck_assert(!path_matches(CONFIG_CGROUP, "/system.slice/*.service", "/system.slice/nginx.service/workers"));
	ck_assert(path_matches(CONFIG_UNIT, "nginx.service", "/system.slice/nginx.service"));
	ck_assert(path_matches(CONFIG_UNIT, "getty@*", "/system.slice/system-getty.slice/getty@tty1.service"));
	ck_assert(!path_matches(CONFIG_UNIT, "nginx.service", "/system.slice/nginx.service/workers"));
	ck_assert(!path_matches(CONFIG_UNIT, "nginx.service", "/"));
	ck_assert(path_matches(CONFIG_UNIT, "a-b\\x2d*.service", "/system.slice/a-b\\x2dc.service"));
	ck_assert(!path_matches(CONFIG_COMM, "nginx", "/nginx"));
}
END_TEST

START_TEST(says_what_it_needs_to_know)
{
	struct config_target entry = {
		.name = "x", .selector = CONFIG_UNIT, .pattern = "a.service", .per = CONFIG_PER_GROUP
	};
	struct match *match = NULL;

	ck_assert_int_eq(match_new(&entry, &match), 0);
	ck_assert_uint_eq(match_needs(match), MATCH_CGROUP);
	entry.per = CONFIG_PER_CGROUP;
	ck_assert_uint_eq(match_needs(match), 0);
	match_free(match);
}
END_TEST

static bool contains(enum config_selector selector, const char *pattern, enum config_per per, const char *cgroup)
{
	struct config_target entry = { .name = "x", .selector = selector, .pattern = pattern, .per = per };
	struct match_facts facts = { .pid = 1, .comm = "a", .cgroup = cgroup };
	struct match *match = NULL;

	ck_assert_int_eq(match_new(&entry, &match), 0);
	bool result = match_contains(match, &facts);

	match_free(match);

	return result;
}

START_TEST(an_entry_by_path_contains_what_is_below_its_cgroups)
{
	ck_assert(contains(CONFIG_UNIT, "*.service", CONFIG_PER_CGROUP, "/system.slice/a.service"));
	ck_assert(contains(CONFIG_UNIT, "*.service", CONFIG_PER_CGROUP, "/user.slice/user@1.service/app.slice/b"));
	/* The manager of a user's services is left out, and they are not. */
	ck_assert(!contains(CONFIG_UNIT, "!(user@*).service", CONFIG_PER_CGROUP, "/user.slice/user@1.service/a"));
	ck_assert(contains(CONFIG_UNIT, "!(user@*).service", CONFIG_PER_CGROUP,
			   "/user.slice/user@1.service/a/b.service"));
	ck_assert(contains(CONFIG_UNIT, "!(user@*).service", CONFIG_PER_CGROUP, "/system.slice/a.service"));
	ck_assert(!contains(CONFIG_UNIT, "!(a*|b*).service", CONFIG_PER_CGROUP, "/system.slice/b.service"));
	ck_assert(!contains(CONFIG_UNIT, "*.service", CONFIG_PER_CGROUP, "/system.slice"));
	ck_assert(!contains(CONFIG_UNIT, "*.service", CONFIG_PER_CGROUP, "/"));
	ck_assert(contains(CONFIG_CGROUP, "/db/*", CONFIG_PER_CGROUP, "/db/one"));
	ck_assert(contains(CONFIG_CGROUP, "/db/*", CONFIG_PER_CGROUP, "/db/one/two/three"));
	ck_assert(!contains(CONFIG_CGROUP, "/db/*", CONFIG_PER_CGROUP, "/db"));
	ck_assert(!contains(CONFIG_CGROUP, "/db/*", CONFIG_PER_CGROUP, "/dbx/one"));
	ck_assert(!contains(CONFIG_CGROUP, "/db/*", CONFIG_PER_CGROUP, NULL));

	/* These select processes, not cgroups. */
	ck_assert(!contains(CONFIG_CGROUP, "/db/*", CONFIG_PER_PROCESS, "/db/one"));
	ck_assert(!contains(CONFIG_UNIT, "*.service", CONFIG_PER_GROUP, "/system.slice/a.service"));
	ck_assert(!contains(CONFIG_COMM, "a", CONFIG_PER_PROCESS, "/db/one"));
}
END_TEST

START_TEST(a_broken_expression_is_refused)
{
	struct config_target entry = {
		.name = "x", .selector = CONFIG_CMDLINE, .pattern = "(", .per = CONFIG_PER_PROCESS
	};
	struct match *match = NULL;

	ck_assert_int_eq(match_new(&entry, &match), -EINVAL);
	ck_assert_ptr_null(match);
}
END_TEST

Suite *match_suite(void)
{
	Suite *suite = suite_create("match");
	TCase *tcase = tcase_create("match");

	tcase_add_test(tcase, selects_processes);
	tcase_add_test(tcase, what_is_not_known_matches_nothing);
	tcase_add_test(tcase, selects_cgroups);
	tcase_add_test(tcase, says_what_it_needs_to_know);
	tcase_add_test(tcase, an_entry_by_path_contains_what_is_below_its_cgroups);
	tcase_add_test(tcase, a_broken_expression_is_refused);
	suite_add_tcase(suite, tcase);

	return suite;
}
