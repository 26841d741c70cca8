/* check_cgroup_watch.c: new cgroups in a hierarchy made of directories. White box: includes cgroup_watch.c. */
#include "daemon/engine/targets/cgroup_watch.c"
#include "scene.h"
#include "torture.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup_mounts.h"

#include <errno.h>
#include <sys/stat.h>

Suite *cgroup_watch_suite(void);

static char root[64];
static struct cgroup_mounts *mounts;
static struct cgroup_watch *watch;
static mono_t now;
static char came[4096]; /* paths, each behind a blank */
static size_t count;

static void setup(void)
{
	char path[128];

	scene_directory(root);
	snprintf(path, sizeof(path), "%s/cgroup.controllers", root);
	scene_write(path, "cpu memory\n");
	ck_assert_int_eq(cgroup_mounts_new("/proc", root, &mounts), 0);
	ck_assert_int_eq(cgroup_watch_new(mounts, &watch), 0);
	now = (mono_t){ NS_PER_S };
	came[0] = '\0';
	count = 0;
}

static void teardown(void)
{
	cgroup_watch_free(watch);
	cgroup_mounts_free(mounts);
	scene_remove(root);
}

static void make(const char *path)
{
	char full[256];

	snprintf(full, sizeof(full), "%s%s", root, path);
	ck_assert_int_eq(mkdir(full, 0700), 0);
}

static void visit(void *ctx, const char *path)
{
	size_t len = strlen(came);

	(void)ctx;
	count++;
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

static void meet(struct cgroup_watch *by, const char *path)
{
	walk_visit(&(struct watch_walk){ by, go_on, NULL }, path);
}

/* Hears, and hears again when the moment is over. */
static bool hear(void)
{
	mono_t next;
	bool whole = cgroup_watch_read(watch, now, visit, NULL);

	if (is_waiting(&next))
		now = next;

	return cgroup_watch_read(watch, now, visit, NULL) && whole;
}

static void watch_all(void)
{
	ck_assert(watch->wants_all);
	walk_begin(watch);
	meet(watch, "/");
	walk_end(watch);
}

/* More at a time than can wait; they are gone again. */
static void overflow(void)
{
	char path[128];

	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "/over%d", i);
		make(path);
	}
	ck_assert(!hear());
	ck_assert(watch->wants_all);
	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "%s/over%d", root, i);
		ck_assert_int_eq(rmdir(path), 0);
	}
	ck_assert(hear());
}

START_TEST(one_that_comes_is_heard_of_after_a_moment)
{
	mono_t next;

	watch_all();
	make("/a");
	ck_assert(cgroup_watch_read(watch, now, visit, NULL));
	ck_assert_str_eq(came, "");
	ck_assert(is_waiting(&next));
	ck_assert_int_gt(mono_diff(next, now), 0);
	ck_assert(hear());
	ck_assert_str_eq(came, " /a");
	ck_assert(!is_waiting(&next));
	ck_assert(!watch->wants_all);
}
END_TEST

START_TEST(so_are_those_inside_however_early_they_came)
{
	watch_all();
	make("/a");
	make("/a/b");
	make("/a/b/c");
	ck_assert(hear());
	ck_assert_str_eq(came, " /a /a/b /a/b/c");
	make("/a/b/d");
	ck_assert(hear());
	ck_assert_str_eq(came, " /a /a/b /a/b/c /a/b/d");
}
END_TEST

START_TEST(one_that_goes_and_comes_again_is_heard_of_again)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/a", root);
	watch_all();
	make("/a");
	ck_assert(hear());
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert(hear());
	make("/a");
	make("/a/b");
	ck_assert(hear());
	ck_assert_str_eq(came, " /a /a /a/b");
}
END_TEST

START_TEST(one_that_goes_is_watched_no_more)
{
	char path[128];

	watch_all();
	for (int i = 0; i < 100; i++) {
		make("/a");
		make("/a/b");
		ck_assert(hear());
		ck_assert_uint_eq(watch->wds.count, 3);
		snprintf(path, sizeof(path), "%s/a/b", root);
		ck_assert_int_eq(rmdir(path), 0);
		snprintf(path, sizeof(path), "%s/a", root);
		ck_assert_int_eq(rmdir(path), 0);
		ck_assert(hear());
		ck_assert_uint_eq(watch->wds.count, 1);
	}
}
END_TEST

START_TEST(who_a_walk_does_not_meet_is_watched_no_more_and_the_others_are)
{
	watch_all();
	make("/a");
	make("/b");
	ck_assert(hear());
	ck_assert_uint_eq(watch->wds.count, 3);
	walk_begin(watch); /* it is complete: this changes nothing */
	walk_end(watch);
	ck_assert_uint_eq(watch->wds.count, 3);
	overflow();
	walk_begin(watch);
	meet(watch, "/");
	meet(watch, "/b");
	make("/c");
	ck_assert(hear()); /* in between */
	walk_end(watch);
	ck_assert(cgroup_watch_state(watch).complete);
	ck_assert_uint_eq(watch->wds.count, 3);
	came[0] = '\0';
	make("/a/unheard");
	make("/b/heard");
	ck_assert(hear());
	ck_assert_str_eq(came, " /b/heard");
}
END_TEST

START_TEST(what_is_lost_during_a_walk_wants_another)
{
	watch_all();
	overflow();
	walk_begin(watch);
	meet(watch, "/");
	overflow();
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
	snprintf(path, sizeof(path), "%s/memory.max", root);
	scene_write(path, "max\n");
	ck_assert(hear());
	ck_assert_str_eq(came, "");
}
END_TEST

START_TEST(more_than_can_wait_are_a_loss_and_a_walk_is_wanted)
{
	char path[32];

	watch_all();
	for (int i = 0; i < 300; i++) {
		snprintf(path, sizeof(path), "/%d", i);
		make(path);
	}
	ck_assert(!hear());
	ck_assert(watch->wants_all);
	ck_assert_uint_eq(count, 256);
	ck_assert(hear());
}
END_TEST

START_TEST(without_memory_there_is_none)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct cgroup_watch *made = NULL;

		torture_arm(n);
		int r = cgroup_watch_new(mounts, &made);
		if (r == 0) {
			walk_begin(made);
			meet(made, "/");
		}
		injected = torture_disarm();
		ck_assert(r == 0 || (injected && r == -ENOMEM));
		cgroup_watch_free(made);
	}
}
END_TEST

Suite *cgroup_watch_suite(void)
{
	Suite *suite = suite_create("cgroup_watch");
	TCase *tcase = tcase_create("cgroupwatch");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, one_that_comes_is_heard_of_after_a_moment);
	tcase_add_test(tcase, so_are_those_inside_however_early_they_came);
	tcase_add_test(tcase, one_that_goes_and_comes_again_is_heard_of_again);
	tcase_add_test(tcase, one_that_goes_is_watched_no_more);
	tcase_add_test(tcase, who_a_walk_does_not_meet_is_watched_no_more_and_the_others_are);
	tcase_add_test(tcase, what_is_lost_during_a_walk_wants_another);
	tcase_add_test(tcase, files_are_no_cgroups);
	tcase_add_test(tcase, more_than_can_wait_are_a_loss_and_a_walk_is_wanted);
	tcase_add_test(tcase, without_memory_there_is_none);
	suite_add_tcase(suite, tcase);

	return suite;
}
