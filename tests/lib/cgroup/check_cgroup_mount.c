/* check_cgroup_mount.c: hierarchies of every mode, the cgroup of a process, the tree, and globs. */
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/base/base.h"
#include "skip.h"
#include "torture.h"

#include <check.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

Suite *cgroup_mount_suite(void);

static struct cgroup_mounts *fixture(const char *mode)
{
	struct cgroup_mounts *mounts = NULL;
	char root[64];

	snprintf(root, sizeof(root), "tests/data/cgroup/%s", mode);
	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", root, &mounts), 0);

	return mounts;
}

static int fixture_proc(void)
{
	int fd = open("tests/data/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static void expect_controller(const struct cgroup_mounts *mounts, enum cgroup_resource controller, const char *dir,
			      bool v2)
{
	bool is_v2 = !v2;
	const char *found = cgroup_mounts_controller(mounts, controller, &is_v2);

	ck_assert_pstr_eq(found, dir);
	ck_assert(is_v2 == v2);
}

START_TEST(v1_is_recognised)
{
	struct cgroup_mounts *mounts = fixture("v1");

	ck_assert_int_eq(cgroup_mounts_mode(mounts), CGROUPS_V1);
	expect_controller(mounts, CGROUP_CPU, "tests/data/cgroup/v1/cpu,cpuacct", false);
	expect_controller(mounts, CGROUP_CPUACCT, "tests/data/cgroup/v1/cpu,cpuacct", false);
	expect_controller(mounts, CGROUP_MEMORY, "tests/data/cgroup/v1/memory", false);
	ck_assert_ptr_null(cgroup_mounts_v2(mounts));
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(v2_is_recognised)
{
	struct cgroup_mounts *mounts = fixture("v2");

	ck_assert_int_eq(cgroup_mounts_mode(mounts), CGROUPS_V2);
	for (int i = 0; i < CGROUP_CONTROLLERS; i++)
		expect_controller(mounts, (enum cgroup_resource)i, "tests/data/cgroup/v2", true);
	ck_assert_str_eq(cgroup_mounts_v2(mounts), "tests/data/cgroup/v2");
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(hybrid_without_controllers_in_v2_is_recognised)
{
	struct cgroup_mounts *mounts = fixture("hybrid");

	ck_assert_int_eq(cgroup_mounts_mode(mounts), CGROUPS_HYBRID);
	expect_controller(mounts, CGROUP_MEMORY, "tests/data/cgroup/hybrid/memory", false);
	ck_assert_str_eq(cgroup_mounts_v2(mounts), "tests/data/cgroup/hybrid/unified");
	cgroup_mounts_free(mounts);
}
END_TEST

static int count_path(void *ctx, const char *path)
{
	(void)path;
	++*(int *)ctx;
	return 0;
}

START_TEST(no_cgroups_are_no_error)
{
	AUTO_CLOSE int procfd = fixture_proc();
	struct cgroup_mounts *mounts = fixture("not-there");
	char path[256];
	int count = 0;

	ck_assert_int_eq(cgroup_mounts_mode(mounts), CGROUPS_NONE);
	expect_controller(mounts, CGROUP_CPU, NULL, false);
	ck_assert_int_eq(cgroup_walk(mounts, count_path, &count), 0);
	ck_assert_int_eq(count, 0);
	ck_assert_int_eq(cgroup_path_in(mounts, procfd, 812, CGROUP_CPU, path, sizeof(path)), -ENOENT);
	ck_assert_int_eq(cgroup_path_of(mounts, procfd, 2, path, sizeof(path)), -ENOENT);
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(modes_have_names)
{
	ck_assert_str_eq(cgroup_mode_name(CGROUPS_NONE), "none");
	ck_assert_str_eq(cgroup_mode_name(CGROUPS_V1), "v1");
	ck_assert_str_eq(cgroup_mode_name(CGROUPS_V2), "v2");
	ck_assert_str_eq(cgroup_mode_name(CGROUPS_HYBRID), "hybrid");
}
END_TEST

START_TEST(path_of_a_process_is_the_one_that_says_most)
{
	AUTO_CLOSE int procfd = fixture_proc();
	struct cgroup_mounts *v1 = fixture("v1");
	struct cgroup_mounts *v2 = fixture("v2");
	char path[256];

	ck_assert_int_eq(cgroup_path_of(v1, procfd, 812, path, sizeof(path)), 0);
	ck_assert_str_eq(path, "/system.slice/postgresql.service");
	ck_assert_int_eq(cgroup_path_of(v1, procfd, 813, path, sizeof(path)), 0);
	ck_assert_str_eq(path, "/");
	ck_assert_int_eq(cgroup_path_of(v2, procfd, 813, path, sizeof(path)), 0);
	ck_assert_str_eq(path, "/../elsewhere");
	ck_assert_int_eq(cgroup_path_of(v1, procfd, 2, path, sizeof(path)), -ENOENT);
	ck_assert_int_eq(cgroup_path_of(v1, procfd, 4242, path, sizeof(path)), -ESRCH);
	ck_assert_int_eq(cgroup_path_of(v1, procfd, 812, path, 32), -ENAMETOOLONG);
	ck_assert_int_eq(cgroup_path_of(v1, procfd, 812, path, 33), 0);
	cgroup_mounts_free(v1);
	cgroup_mounts_free(v2);
}
END_TEST

START_TEST(path_differs_between_hierarchies)
{
	AUTO_CLOSE int procfd = fixture_proc();
	struct cgroup_mounts *mounts = fixture("v1");
	char path[256];

	ck_assert_int_eq(cgroup_path_in(mounts, procfd, 812, CGROUP_CPU, path, sizeof(path)), 0);
	ck_assert_str_eq(path, "/system.slice");
	ck_assert_int_eq(cgroup_path_in(mounts, procfd, 812, CGROUP_MEMORY, path, sizeof(path)), 0);
	ck_assert_str_eq(path, "/system.slice/postgresql.service");
	ck_assert_int_eq(cgroup_path_in(mounts, procfd, 901, CGROUP_MEMORY, path, sizeof(path)), -ESRCH);
	cgroup_mounts_free(mounts);
}
END_TEST

struct seen {
	int count;
	int stop_at;
	char paths[64][128];
};

static int remember(void *ctx, const char *path)
{
	struct seen *seen = ctx;

	snprintf(seen->paths[seen->count++], sizeof(seen->paths[0]), "%s", path);
	return seen->count == seen->stop_at ? 42 : 0;
}

static int position(const struct seen *seen, const char *path)
{
	int found = -1;

	for (int i = 0; i < seen->count; i++) {
		if (strcmp(seen->paths[i], path) == 0) {
			ck_assert_msg(found < 0, "%s twice", path);
			found = i;
		}
	}

	return found;
}

START_TEST(walk_visits_each_path_once_and_parents_first)
{
	struct cgroup_mounts *mounts = fixture("hybrid");
	struct seen seen = { 0 };

	ck_assert_int_eq(cgroup_walk(mounts, remember, &seen), 0);
	ck_assert_int_eq(position(&seen, "/"), 0);
	ck_assert_int_gt(position(&seen, "/only-in-v2"), 0);
	ck_assert_int_gt(position(&seen, "/only-in-pids"), 0);
	ck_assert_int_gt(position(&seen, "/huge"), 0);
	ck_assert_int_gt(position(&seen, "/system.slice"), 0);
	ck_assert_int_gt(position(&seen, "/system.slice/postgresql.service"), position(&seen, "/system.slice"));
	ck_assert_int_lt(position(&seen, "/one"), 0); /* nothing is counted there */
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(walk_stops_when_told)
{
	struct cgroup_mounts *mounts = fixture("v2");
	struct seen seen = { .stop_at = 2 };

	ck_assert_int_eq(cgroup_walk(mounts, remember, &seen), 42);
	ck_assert_int_eq(seen.count, 2);
	cgroup_mounts_free(mounts);
}
END_TEST

/* A v2 tree of 40 levels, made and removed again. */
static void make_deep(const char *root, char *path, size_t cap, bool remove)
{
	size_t len[41];

	len[0] = (size_t)snprintf(path, cap, "%s", root);
	for (int i = 1; i <= 40; i++)
		len[i] = len[i - 1] + (size_t)snprintf(path + len[i - 1], cap - len[i - 1], "/d");
	for (int i = 0; i <= 40 && !remove; i++) {
		char saved = path[len[i]];
		path[len[i]] = '\0';
		mkdir(path, 0700);
		path[len[i]] = saved;
	}
	for (int i = 40; i >= 0 && remove; i--) {
		path[len[i]] = '\0';
		rmdir(path);
	}
}

START_TEST(walk_is_bounded_and_says_so)
{
	char root[] = "/tmp/spikewatch-cgmount-XXXXXX";
	char path[256];
	char control[64];
	struct cgroup_mounts *mounts = NULL;
	int count = 0;

	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(control, sizeof(control), "%s/cgroup.controllers", root);
	close(open(control, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	make_deep(root, path, sizeof(path), false);

	int made = cgroup_mounts_new("/proc", root, &mounts);
	int r = cgroup_walk(mounts, count_path, &count);
	cgroup_mounts_free(mounts);
	unlink(control);
	make_deep(root, path, sizeof(path), true);

	ck_assert_int_eq(made, 0);
	ck_assert_int_eq(r, -E2BIG);
	ck_assert_int_eq(count, 33);
}
END_TEST

START_TEST(this_machine_is_understood)
{
	struct cgroup_mounts *mounts = NULL;
	AUTO_CLOSE int procfd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	char path[4096];
	int count = 0;

	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);
	int r = cgroup_path_of(mounts, procfd, getpid(), path, sizeof(path));
	ck_assert(r == 0 || (r == -ENOENT && cgroup_mounts_mode(mounts) == CGROUPS_NONE));
	r = cgroup_walk(mounts, count_path, &count);
	ck_assert(r == 0 || r == -E2BIG);
	ck_assert(count > 0 || cgroup_mounts_mode(mounts) == CGROUPS_NONE);
	if (access("/sys/fs/cgroup/memory/memory.usage_in_bytes", R_OK) == 0)
		expect_controller(mounts, CGROUP_MEMORY, "/sys/fs/cgroup/memory", false);
	if (access("/sys/fs/cgroup/unified/cpu.stat", R_OK) == 0)
		ck_assert_str_eq(cgroup_mounts_v2(mounts), "/sys/fs/cgroup/unified");
	cgroup_mounts_free(mounts);
}
END_TEST

/* libcgroup clears a table of 800 KiB. */
START_TEST(what_only_holds_zeroes_is_not_resident)
{
	const char *table = dlsym(RTLD_DEFAULT, "cg_mount_table");
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)table + page - 1) & ~(page - 1);
	enum { PAGES = 199 }; /* of 100 mounts, 8 KiB each */
	struct cgroup_mounts *mounts = NULL;
	unsigned char resident[PAGES];
	unsigned count = 0;

	if (!table)
		SKIP_TEST("libcgroup has no table of this name");
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);
		ck_assert_int_eq(mincore((void *)from, PAGES * page, resident), 0);
		for (unsigned n = count = 0; n < PAGES; n++)
			count += resident[n] & 1;
		ck_assert_uint_le(count, PAGES / 2);
		cgroup_mounts_free(mounts);
	}
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	static const struct {
		const char *proc_root;
		const char *cgroup_root;
	} roots[] = { { "tests/data/proc", "tests/data/cgroup/hybrid" }, { "/proc", NULL } };
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct cgroup_mounts *mounts = NULL;

		torture_arm(n);
		int r = cgroup_mounts_new(roots[_i].proc_root, roots[_i].cgroup_root, &mounts);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		ck_assert((mounts != NULL) == !injected);
		cgroup_mounts_free(mounts);
	}
}
END_TEST

static const struct {
	const char *glob;
	const char *path;
	bool match;
} globs[] = {
	{ "/", "/", true },
	{ "", "", true },
	{ "", "/", false },
	{ "*", "", true },
	{ "/a", "/a/b", false },
	{ "/a/b", "/a", false },
	{ "/*", "/a", true },
	{ "/*", "/", true },
	{ "/*", "/a/b", false },
	{ "/*/b", "/a/b", true },
	{ "/*/b", "/a/x/b", false },
	{ "/**", "/", true },
	{ "/**", "/a/b/c", true },
	{ "/a/**", "/a/b/c", true },
	{ "/a/**", "/a", false },
	{ "/a/**", "/ab/c", false },
	{ "/**/b", "/b", true },
	{ "/**/b", "/a/b", true },
	{ "/**/b", "/a/x/y/b", true },
	{ "/**/b", "/ab", false },
	{ "/**/b", "/a/xb", false },
	{ "/**/b", "/a/b/c", false },
	{ "/a/**/b/**/c", "/a/b/c", true },
	{ "/a/**/b/**/c", "/a/x/b/b/y/c", true },
	{ "/a/**/b/**/c", "/a/x/y/c", false },
	{ "/**/*.service", "/system.slice/a.b.service", true },
	{ "/**/*.service", "/system.slice/a.service/x", false },
	{ "/x**y", "/x/a/y", true },
	{ "/x**y", "/xy", true },
	{ "/x**y", "/x/a/yz", false },
	{ "/?", "/a", true },
	{ "/?", "/", false },
	{ "?", "/", false },
	{ "/a?b", "/a/b", false },
	{ "/[abc]", "/b", true },
	{ "/[a-c]x", "/bx", true },
	{ "/[a-c]", "/d", false },
	{ "/[!a-c]", "/d", true },
	{ "/[^a-c]", "/b", false },
	{ "/[]]", "/]", true },
	{ "/[a-]", "/-", true },
	{ "/a[!b]c", "/a/c", false },
	{ "/[a", "/[a", true },
	{ "/[", "/[", true },
	{ "/[", "/a", false },
	{ "/system-getty\\x2d*", "/system-getty\\x2dtty1", true },
	{ "/a*b*c", "/aXbYc", true },
	{ "/a*b*c", "/acb", false },
	{ "/*a*a*a*a*a*a*a*a*b", "/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false },
};

START_TEST(globs_match_components)
{
	ck_assert_msg(cgroup_glob(globs[_i].glob, globs[_i].path) == globs[_i].match, "%s %s", globs[_i].glob,
		      globs[_i].path);
}
END_TEST

Suite *cgroup_mount_suite(void)
{
	Suite *suite = suite_create("cgroup_mount");
	TCase *tcase = tcase_create("cgmount");

	tcase_add_test(tcase, v1_is_recognised);
	tcase_add_test(tcase, v2_is_recognised);
	tcase_add_test(tcase, hybrid_without_controllers_in_v2_is_recognised);
	tcase_add_test(tcase, no_cgroups_are_no_error);
	tcase_add_test(tcase, modes_have_names);
	tcase_add_test(tcase, path_of_a_process_is_the_one_that_says_most);
	tcase_add_test(tcase, path_differs_between_hierarchies);
	tcase_add_test(tcase, walk_visits_each_path_once_and_parents_first);
	tcase_add_test(tcase, walk_stops_when_told);
	tcase_add_test(tcase, walk_is_bounded_and_says_so);
	tcase_add_test(tcase, this_machine_is_understood);
	tcase_add_test(tcase, what_only_holds_zeroes_is_not_resident);
	tcase_add_loop_test(tcase, every_allocation_may_fail, 0, 2);
	tcase_add_loop_test(tcase, globs_match_components, 0, (int)ARRAY_LEN(globs));
	suite_add_tcase(suite, tcase);

	return suite;
}
