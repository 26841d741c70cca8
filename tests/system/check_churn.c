/*
 * check_churn.c: cgroups that are made and removed as fast as possible below a glob, real ones in
 * every hierarchy that is mounted, and the real daemon: all that came are accounted for, and
 * nothing is left of those that went.
 */
#include "live_rig.h"
#include "own_cgroups.h"

#include <dirent.h>

Suite *churn_suite(void);

static struct own_cgroups own_cgroups;

static struct live_rig rig;

static void setup(void)
{
	live_rig_setup(&rig);
}

static void teardown(void)
{
	live_rig_teardown(&rig);
}

#define CGROUPS 300u

static void make_own(void)
{
	own_cgroups_make(&own_cgroups, "churn");
}

static void remove_own(void)
{
	own_cgroups_remove(&own_cgroups);
}

/* True: it runs. */
static bool start_over_cgroups(enum way way)
{
	char targets[128];

	if (own_cgroups.count == 0) {
		return skip_because("this user may make no cgroups here");
	}
	snprintf(targets, sizeof(targets), "{\"name\": \"c\", \"cgroup\": \"%s/*\"}", own_cgroups.name);

	return start(&rig, way, targets, "{\"name\": \"memory\", \"metric\": \"memory_bytes\", \"above\": \"1TiB\"}");
}

/* What the daemon holds on to. */
struct holdings {
	size_t descriptors, watches; /* of inotify */
};

static size_t watches_of(const char *fd)
{
	char path[300], *text;
	size_t count = 0;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo/%s", rig.server.pid, fd);
	text = scene_read(path);
	for (const char *at = text; at && (at = strstr(at, "inotify wd:")); at++)
		count++;
	free(text);

	return count;
}

/* Of the program in the kernel: its part for timers is attached when the first hidden switch is seen. */
static bool is_of_bpf(int dir_fd, const char *fd)
{
	char target[64];
	ssize_t len = readlinkat(dir_fd, fd, target, sizeof(target) - 1);

	return len > 0 && memmem(target, (size_t)len, "bpf", 3);
}

static struct holdings holdings(void)
{
	struct holdings found = { 0 };
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/fd", rig.server.pid);

	DIR *dir = opendir(path);

	ck_assert_ptr_nonnull(dir);
	for (const struct dirent *item; (item = readdir(dir));) {
		if (item->d_name[0] == '.' || is_of_bpf(dirfd(dir), item->d_name))
			continue;
		found.descriptors++;
		found.watches += watches_of(item->d_name);
	}
	closedir(dir);

	return found;
}

static bool holds_no_more_than(struct holdings before)
{
	struct holdings now = holdings();

	return now.descriptors <= before.descriptors && now.watches <= before.watches;
}

static const char *nth(unsigned n)
{
	static char name[16];

	snprintf(name, sizeof(name), "c%u", n);

	return name;
}

/* Of the cgroups that the ring described: all have ended, once. How many they were. */
static size_t all_ended(void)
{
	size_t count = 0;

	read_on(&rig, "");
	for (size_t i = 0; i < rig.tally_count; i++) {
		ck_assert_uint_le(rig.tallies[i].gone, 1);
		count += rig.tallies[i].gone;
	}

	return count == rig.tally_count ? count : SIZE_MAX;
}

/* By the rules too. */
static bool is_forgotten(void)
{
	char *text = status(&rig);
	bool forgotten = text && !strstr(text, own_cgroups.name + 1);

	free(text);

	return forgotten;
}

static void nothing_is_left(struct holdings before)
{
	live_wait_for(&rig, counted(&rig, "targets") == 0);
	live_wait_for(&rig, all_ended() != SIZE_MAX);
	live_wait_for(&rig, holds_no_more_than(before));

	live_wait_for(&rig, is_forgotten());
}

START_TEST(cgroups_that_go_at_once_are_heard_of_and_leave_nothing)
{
	struct holdings before;

	if (!start_over_cgroups((enum way)_i))
		SKIP_TEST("%s", skip_why());
	before = holdings();
	for (unsigned i = 0; i < CGROUPS; i++) {
		ck_assert_int_eq(own_cgroups_add(&own_cgroups, nth(i)), 0);
		own_cgroups_drop(&own_cgroups, nth(i));
	}
	if (_i != RESCAN)
		live_wait_for(&rig, counted(&rig, "cgroups_heard") >= CGROUPS || counted(&rig, "overruns") > 0);
	nothing_is_left(before);
}
END_TEST

START_TEST(cgroups_that_stay_are_all_targets_and_when_they_go_all_have_ended)
{
	unsigned count = _i == RESCAN ? CGROUPS / 4 : CGROUPS; /* scans take their time */
	struct holdings before;

	if (!start_over_cgroups((enum way)_i))
		SKIP_TEST("%s", skip_why());
	before = holdings();
	for (unsigned i = 0; i < count; i++)
		ck_assert_int_eq(own_cgroups_add(&own_cgroups, nth(i)), 0);
	live_wait_for(&rig, counted(&rig, "targets") == count);
	for (unsigned i = 0; i < count; i++)
		own_cgroups_drop(&own_cgroups, nth(i));
	nothing_is_left(before);
	ck_assert_uint_eq(all_ended(), count);
}
END_TEST

/* The same names again and again, each time another cgroup. */
START_TEST(a_cgroup_that_comes_again_is_another_target)
{
	struct holdings before;

	if (!start_over_cgroups((enum way)_i))
		SKIP_TEST("%s", skip_why());
	before = holdings();
	for (unsigned i = 1; i <= 5; i++) {
		ck_assert_int_eq(own_cgroups_add(&own_cgroups, "same"), 0);
		live_wait_for(&rig, counted(&rig, "targets") == 1);
		own_cgroups_drop(&own_cgroups, "same");
		nothing_is_left(before);
		ck_assert_uint_eq(all_ended(), i);
	}
}
END_TEST

Suite *churn_suite(void)
{
	Suite *suite = suite_create("churn");
	TCase *tcase = tcase_create("churn");

	tcase_add_unchecked_fixture(tcase, make_own, remove_own);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, cgroups_that_go_at_once_are_heard_of_and_leave_nothing, 0, WAYS);
	tcase_add_loop_test(tcase, cgroups_that_stay_are_all_targets_and_when_they_go_all_have_ended, 0, WAYS);
	tcase_add_loop_test(tcase, a_cgroup_that_comes_again_is_another_target, 0, WAYS);
	suite_add_tcase(suite, tcase);

	return suite;
}
