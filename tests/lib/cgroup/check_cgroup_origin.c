/*
 * check_cgroup_origin.c: paths as a cgroup namespace says them, and where that begins, in trees
 * made of files.
 */
#include "lib/cgroup/cgroup_mounts.c"
#include "scene.h"
#include "lib/base/base.h"
#include "torture.h"

#include <errno.h>
#include <sys/stat.h>

Suite *cgroup_origin_suite(void);

static char root[64];
static int procfd;
static struct cgroup_mounts *mounts;

static void put(const char *path, const char *text)
{
	char whole[512];

	snprintf(whole, sizeof(whole), "%s/%s", root, path);
	for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
		*at = '\0';
		ck_assert(mkdir(whole, 0755) == 0 || errno == EEXIST);
		*at = '/';
	}
	scene_write(whole, "%s", text);
}

static void setup(void)
{
	char path[128];

	scene_directory(root);
	mounts = NULL;
	put("tree/cgroup.controllers", "cpu memory pids\n");
	put("tree/cgroup.procs", "1\n2\n");
	put("tree/pods/a/cgroup.procs", "14213\n142\n");
	put("tree/pods/a/inner/cgroup.procs", "421\n");
	put("tree/pods/b/cgroup.procs", "7\n0\n42\n");
	put("tree/pods/c/cgroup.procs", "");
	put("proc/1/cgroup", "0::/../../init.scope\n");
	put("proc/50/cgroup", "0::/../a/inner\n");
	put("proc/51/cgroup", "0::/\n");
	put("proc/52/cgroup", "0::/child\n");
	put("proc/53/cgroup", "0::/../..\n");
	snprintf(path, sizeof(path), "%s/proc", root);
	procfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(procfd, 0);
}

static void teardown(void)
{
	cgroup_mounts_free(mounts);
	close(procfd);
	scene_remove(root);
}

static const struct {
	const char *origin, *path, *resolved;
} paths[] = {
	{ "/pods/b", "/", "/pods/b" },
	{ "/pods/b", "/x/y", "/pods/b/x/y" },
	{ "/pods/b", "/..", "/pods" },
	{ "/pods/b", "/../a", "/pods/a" },
	{ "/pods/b", "/../..", "/" },
	{ "/pods/b", "/../../init.scope", "/init.scope" },
	{ "/pods/b", "/../../../init.scope", "/init.scope" }, /* which no kernel says */
	{ "/pods/b", "/..hidden", "/pods/b/..hidden" },
	{ "/pods/b", "", "/pods/b" },
};

START_TEST(paths_are_resolved_from_where_the_namespace_begins)
{
	char buf[64];
	size_t len = strlen(paths[_i].resolved);

	ck_assert_int_eq(
		cgroup_origin_resolve(paths[_i].origin, paths[_i].path, strlen(paths[_i].path), buf, sizeof(buf)), 0);
	ck_assert_str_eq(buf, paths[_i].resolved);
	ck_assert_int_eq(cgroup_origin_resolve(paths[_i].origin, paths[_i].path, strlen(paths[_i].path), buf, len + 1),
			 0);
	ck_assert_int_eq(cgroup_origin_resolve(paths[_i].origin, paths[_i].path, strlen(paths[_i].path), buf, len),
			 -ENAMETOOLONG);
}
END_TEST

static const struct {
	int32_t pid;
	const char *own, *found; /* NULL: it is not */
} origins[] = {
	{ 42, "/", "/pods/b" }, { 42, "/b", "/pods" },   { 42, "/pods/b", NULL }, /* the tree is the namespace's own */
	{ 42, "/c", NULL },     { 142, "/", "/pods/a" }, { 421, "/inner", "/pods/a" },
	{ 1, "/", NULL },       { 4, "/", NULL },        { 99, "/", NULL },
};

START_TEST(the_reader_is_looked_for_among_the_processes)
{
	char tree[128], *found = NULL;

	snprintf(tree, sizeof(tree), "%s/tree", root);
	int r = cgroup_origin_find(tree, origins[_i].pid, origins[_i].own, &found);

	ck_assert_int_eq(r, origins[_i].found ? 0 : -ENOENT);
	if (origins[_i].found)
		ck_assert_str_eq(found, origins[_i].found);
	free(found);
}
END_TEST

START_TEST(without_memory_it_says_so)
{
	char tree[128];
	bool injected = true;

	snprintf(tree, sizeof(tree), "%s/tree", root);
	for (long n = 1; injected; n++) {
		char *found = NULL;

		torture_arm(n);
		int r = cgroup_origin_find(tree, 42, "/", &found);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		free(found);
	}
}
END_TEST

static const char *path_of(int32_t pid)
{
	static char buf[256];

	ck_assert_int_eq(cgroup_path_of(mounts, procfd, pid, buf, sizeof(buf)), 0);

	return buf;
}

START_TEST(paths_of_processes_are_those_of_the_tree)
{
	static const char own[] = "0::/\n";
	const struct cgroup_reader reader = { .pid = 42, .text = own, .len = sizeof(own) - 1 };
	char tree[128], proc[128];

	snprintf(tree, sizeof(tree), "%s/tree", root);
	snprintf(proc, sizeof(proc), "%s/proc", root);
	ck_assert_int_eq(cgroup_mounts_new(proc, tree, &mounts), 0);
	ck_assert_str_eq(path_of(50), "/../a/inner");
	ck_assert_int_eq(cgroup_mounts_orient(mounts, procfd, &reader), 0);
	ck_assert_str_eq(path_of(50), "/pods/a/inner");
	ck_assert_str_eq(path_of(51), "/pods/b");
	ck_assert_str_eq(path_of(52), "/pods/b/child");
	ck_assert_str_eq(path_of(53), "/");
	ck_assert_str_eq(path_of(1), "/init.scope");
}
END_TEST

START_TEST(where_process_1_is_within_nothing_is_looked_for)
{
	static const char own[] = "0::/\n";
	const struct cgroup_reader reader = { .pid = 42, .text = own, .len = sizeof(own) - 1 };
	char tree[128], proc[128];

	put("proc/1/cgroup", "0::/init.scope\n");
	snprintf(tree, sizeof(tree), "%s/tree", root);
	snprintf(proc, sizeof(proc), "%s/proc", root);
	ck_assert_int_eq(cgroup_mounts_new(proc, tree, &mounts), 0);
	ck_assert_int_eq(cgroup_mounts_orient(mounts, procfd, &reader), 0);
	ck_assert_str_eq(path_of(51), "/");
}
END_TEST

Suite *cgroup_origin_suite(void)
{
	Suite *suite = suite_create("cgroup_origin");
	TCase *tcase = tcase_create("cgorigin");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, paths_are_resolved_from_where_the_namespace_begins, 0, ARRAY_LEN(paths));
	tcase_add_loop_test(tcase, the_reader_is_looked_for_among_the_processes, 0, ARRAY_LEN(origins));
	tcase_add_test(tcase, without_memory_it_says_so);
	tcase_add_test(tcase, paths_of_processes_are_those_of_the_tree);
	tcase_add_test(tcase, where_process_1_is_within_nothing_is_looked_for);
	suite_add_tcase(suite, tcase);

	return suite;
}
