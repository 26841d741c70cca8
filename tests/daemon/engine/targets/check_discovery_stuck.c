/*
 * check_discovery_stuck.c: a file of a process whose reading does not come to an end, as one does
 * not whose memory map is locked in the kernel. Here it is a pipe that is not written. Nothing
 * is held against a clock: a question without an answer waits for ever, and the test fails.
 */
#include "daemon/engine/targets/discovery.h"
#include "discovery_rig.h"
#include "fuse_mount.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/targets/target_table.h"
#include "lib/config/config.h"

#include <fcntl.h>

Suite *discovery_stuck_suite(void);

static struct discovery_rig rig;

static void setup(void)
{
	discovery_rig_setup(&rig);
}

static void teardown(void)
{
	discovery_rig_teardown(&rig);
}

/* Each is read of a process that an entry selects by name. */
static const char *const files[] = { "stat", "cgroup" };

static char stuck[160]; /* the pipe */
static char saved[160];

/* The file of process 10 is a pipe. */
static void make_stuck(const char *file, const char *entries)
{
	make_files(&rig, entries);
	snprintf(stuck, sizeof(stuck), "%s/10/%s", rig.root, file);
	snprintf(saved, sizeof(saved), "%s/saved", rig.root);
	ck_assert_int_eq(rename(stuck, saved), 0);
	ck_assert_int_eq(mkfifo(stuck, 0600), 0);
}

/* Waits until it is read; the read blocks until what is returned is closed. */
static int await_reader(void)
{
	int fd = -1;

	scene_wait_for((fd = open(stuck, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0);

	return fd;
}

/* The blocked reader goes on; the next one reads a file. */
static void release_reader(int fd)
{
	ck_assert_int_eq(rename(saved, stuck), 0);
	close(fd);
}

static struct discovery_state state(void)
{
	struct discovery_state found;

	discovery_state(rig.discovery, &found);

	return found;
}

START_TEST(questions_and_a_reload_are_answered_meanwhile)
{
	struct config *first;
	int fd;

	make_stuck(files[_i], "{\"name\": \"w\", \"comm\": \"web\"}");
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	fd = await_reader();
	ck_assert_uint_eq(state().scans, 0);

	first = rig.config;
	rig.config = scene_config(
		"{\"targets\": [{\"name\": \"other\", \"comm\": \"web\"}, {\"name\": \"g\", \"comm\": \"none\", "
		"\"per\": \"group\"}]}");
	ck_assert_int_eq(discovery_reload(rig.discovery, rig.config), 0);
	config_free(first);
	ck_assert_uint_eq(state().scans, 0);

	/* What was begun under the configuration that is no more is given up. */
	release_reader(fd);
	scene_wait_for(state().scans >= 1);
	scene_wait_for(state().target_table.found - state().target_table.left == 3);
	ck_assert_uint_eq(state().target_table.targets, 3);
}
END_TEST

START_TEST(it_is_not_waited_for_at_the_end_and_has_all_that_it_had_when_it_wakes)
{
	int fd;

	make_stuck(files[_i], "{\"name\": \"w\", \"comm\": \"web\"}, {\"name\": \"c\", \"cmdline\": \"--port\"}, "
			      "{\"name\": \"g\", \"cgroup\": \"/system.slice/*\"}");
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	fd = await_reader();
	scene_wait_for(state().reading == 10);
	ck_assert(!discovery_stop(rig.discovery));
	ck_assert(!discovery_stop(rig.discovery));
	discovery_free(rig.discovery);
	ck_assert_int_eq(state().reading, 10);

	/* It ends by itself, without another scan. */
	release_reader(fd);
	scene_wait_for(discovery_stop(rig.discovery));
	ck_assert_uint_eq(state().scans, 0);
	ck_assert_int_eq(state().reading, 0);
}
END_TEST

static bool is_readable(int fd)
{
	struct pollfd polled = { .fd = fd, .events = POLLIN };

	return poll(&polled, 1, 0) == 1;
}

START_TEST(the_first_scan_is_through_when_it_goes_on_also_if_it_was_begun_again)
{
	struct config *first;
	int fd;

	make_stuck(files[_i], "{\"name\": \"w\", \"comm\": \"web\"}");
	ck_assert_int_eq(discovery_progress(rig.discovery).first, DISCOVERY_SCANNING);
	ck_assert_int_eq(discovery_start(rig.discovery, false), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	fd = await_reader();
	scene_wait_for(discovery_progress(rig.discovery).reading == 10);

	/* The scan that hangs is given up, and is none. */
	first = rig.config;
	rig.config = scene_config("{\"targets\": [{\"name\": \"other\", \"comm\": \"web\"}]}");
	ck_assert_int_eq(discovery_reload(rig.discovery, rig.config), 0);
	config_free(first);
	ck_assert_int_eq(discovery_progress(rig.discovery).first, DISCOVERY_SCANNING);
	ck_assert(!is_readable(discovery_progress(rig.discovery).first_fd));

	release_reader(fd);
	scene_wait_for(is_readable(discovery_progress(rig.discovery).first_fd));
	ck_assert_int_eq(discovery_progress(rig.discovery).first, 0);
	scene_wait_for(state().scans >= 1);
}
END_TEST

/* The command line is read by a child, which is given up. */
START_TEST(a_command_line_that_does_not_come_costs_itself_alone)
{
	struct foreign_counts before = foreign_counts();

	make_stuck("cmdline", "{\"name\": \"w\", \"comm\": \"web\"}, {\"name\": \"c\", \"cmdline\": \"--port\"}");
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for(state().scans >= 2);
	ck_assert_uint_ge(state().target_table.targets, 1);
	ck_assert_uint_ge(foreign_counts().hung - before.hung, 1);
	/* It is tried again, until that would be before the refusal ends, which is longer each time. */
	scene_wait_for(foreign_counts().refused - before.refused >= 1);
	ck_assert_uint_le(foreign_counts().hung - before.hung, 5);
	ck_assert(discovery_stop(rig.discovery));
}
END_TEST

/* It was selected by what does not come now: that says nothing of it. Nor is it met anew when it comes again. */
START_TEST(who_is_selected_by_a_command_line_that_does_not_come_any_more_stays)
{
	struct foreign_counts before = foreign_counts();
	uint64_t scans;
	int fd;

	make_files(&rig,
		   "{\"name\": \"c\", \"cmdline\": \"--port\"}, {\"name\": \"d\", \"cmdline\": \"--port\", \"per\": "
		   "\"cgroup\"}");
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for(state().scans >= 1);

	uint64_t found = state().target_table.found;

	ck_assert_uint_ge(found, 2);
	ck_assert_uint_eq(state().target_table.targets, found);
	snprintf(stuck, sizeof(stuck), "%s/10/cmdline", rig.root);
	snprintf(saved, sizeof(saved), "%s/saved", rig.root);
	ck_assert_int_eq(rename(stuck, saved), 0);
	ck_assert_int_eq(mkfifo(stuck, 0600), 0);
	fd = await_reader();
	scene_wait_for(foreign_counts().hung - before.hung >= 1);
	scans = state().scans;
	scene_wait_for(state().scans >= scans + 2);
	scene_wait_for(foreign_counts().refused - before.refused >= 1);
	ck_assert_uint_eq(state().target_table.targets, found);
	release_reader(fd);
	scans = state().scans;
	scene_wait_for(state().scans >= scans + 2);
	ck_assert_uint_eq(state().target_table.targets, found);
	ck_assert_uint_eq(state().target_table.found, found);
	ck_assert_uint_eq(state().target_table.left, 0);
	ck_assert(discovery_stop(rig.discovery));
}
END_TEST

/* A copy of the tree, of which any file may be a pipe. */
static void copy_cgroups(char copy[80])
{
	char command[160];

	snprintf(copy, 80, "%s/cgroups", rig.root);
	snprintf(command, sizeof(command), "cp -r tests/data/cgroup/v1 %s", copy);
	ck_assert_int_eq(system(command), 0);
}

static const struct config *in_use(void)
{
	return discovery_progress(rig.discovery).config;
}

/*
 * A file of a cgroup is read with the lock held. The thread goes over to the last configuration that it
 * was given, and until then has the one before.
 */
START_TEST(a_reload_does_not_wait_for_a_cgroup_file)
{
	struct config *first, *second;
	char cgroups[80];
	int fd;

	copy_cgroups(cgroups);
	appear(&rig, 10, "web", "web|--port|80", 500, "/system.slice/postgresql.service");
	appear(&rig, 11, "web", "web|--port|81", 501, "/");
	snprintf(stuck, sizeof(stuck), "%s/cpu,cpuacct/system.slice/postgresql.service/cpu.cfs_quota_us", cgroups);
	snprintf(saved, sizeof(saved), "%s/saved", rig.root);
	ck_assert_int_eq(rename(stuck, saved), 0);
	ck_assert_int_eq(mkfifo(stuck, 0600), 0);
	make(&rig, rig.root, cgroups, scene_config("{\"targets\": [{\"name\": \"w\", \"comm\": \"web\"}]}"));
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, false), 0);
	fd = await_reader();

	first = rig.config;
	second = scene_config("{\"targets\": [{\"name\": \"second\", \"comm\": \"none\"}]}");
	rig.config = scene_config("{\"targets\": [{\"name\": \"third\", \"comm\": \"web\"}]}");
	ck_assert_int_eq(discovery_reload(rig.discovery, second), DISCOVERY_FOLLOWS);
	ck_assert_ptr_eq(in_use(), first);
	ck_assert_int_eq(discovery_reload(rig.discovery, rig.config), DISCOVERY_FOLLOWS);
	config_free(second);
	ck_assert_ptr_eq(in_use(), first);

	release_reader(fd);
	scene_wait_for(in_use() == rig.config);
	config_free(first);
	scene_wait_for(state().scans >= 1 && state().target_table.targets == 2);

	/* Nothing is left of it: the next is in force at once. */
	first = rig.config;
	rig.config = scene_config("{\"targets\": [{\"name\": \"none\", \"comm\": \"none\"}]}");
	ck_assert_int_eq(discovery_reload(rig.discovery, rig.config), 0);
	config_free(first);
	ck_assert_ptr_eq(in_use(), rig.config);
	scene_wait_for(state().target_table.targets == 0);
}
END_TEST

static char mounted[8][256];
static size_t mounted_count;

static void mount_over(const char *what, const char *in, const char *name)
{
	char *path = mounted[mounted_count++];

	snprintf(path, sizeof(mounted[0]), "%s/%s", in, name);
	ck_assert_msg(mount(what, path, NULL, MS_BIND, NULL) == 0, "%s: %s", path, strerror(errno));
}

/*
 * A user owns the directories of its processes and of what was delegated to it, and an old fusermount(1)
 * mounts there. With the file system that answers nothing each read of it would be the last one.
 */
START_TEST(what_is_mounted_into_a_cgroup_or_a_process_is_not_entered)
{
	static const char *const trees[] = { "memory", "cpu,cpuacct" };
	struct fuse_mount fuse;
	char cgroups[80], path[256];

	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	copy_cgroups(cgroups);
	for (size_t i = 0; i < ARRAY_LEN(trees); i++) {
		snprintf(path, sizeof(path), "%s/%s/system.slice/user", cgroups, trees[i]);
		ck_assert_int_eq(mkdir(path, 0700), 0);
		mount_over(fuse.directory, path, "");
	}
	appear(&rig, 9, "mine", "mine", 499, "/system.slice/user/x");
	appear(&rig, 10, "mine", "mine", 500, "/system.slice/user");
	appear(&rig, 11, "web", "web", 501, "/system.slice/postgresql.service");
	appear(&rig, 12, "over", "over", 502, "/");
	appear(&rig, 13, "web", "web", 503, "/");
	mount_over(fuse.file, rig.root, "10/statm");
	mount_over(fuse.directory, rig.root, "12");
	mount_over(fuse.file, rig.root, "13/cgroup");
	fuse_mount_hang(&fuse, ~0ULL);
	make(&rig, rig.root, cgroups,
	     scene_config("{\"targets\": [{\"name\": \"w\", \"comm\": \"*\"}, {\"name\": \"e\", \"exe\": \"/x*\"},"
			  "{\"name\": \"c\", \"cgroup\": \"/**\"}]}"));
	ck_assert_uint_ge(targets(&rig), 3);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for(state().scans >= 4);
	ck_assert(discovery_stop(rig.discovery));
	ck_assert_uint_eq(fuse.shared->ignored, 0);
	while (mounted_count > 0)
		umount2(mounted[--mounted_count], MNT_DETACH);
	fuse_mount_end(&fuse);
}
END_TEST

#define ID "a329033bf6421fca0d2170d9c2244b783c2a10dcccb5b2f8104a6f9e71af977f"

/* What Docker would have of a container, in a file of that file system. */
static void mount_state(const struct fuse_mount *fuse)
{
	char path[256], command[600];

	snprintf(path, sizeof(path), "%s/host/var/lib/docker/containers/" ID, rig.root);
	snprintf(command, sizeof(command), "mkdir -p %s && touch %s/config.v2.json", path, path);
	ck_assert_int_eq(system(command), 0);
	mount_over(fuse->file, path, "config.v2.json");
	snprintf(path, sizeof(path), "%s/host", rig.root);
	ck_assert_int_eq(containers_new(path, &rig.containers), 0);
}

/* The lock is free while it is waited for: what is asked meanwhile is answered, a reload is taken up after it. */
START_TEST(state_of_containers_that_does_not_come_keeps_nobody_waiting)
{
	struct discovery_state before;
	struct cgroup_limits limits;
	struct fuse_mount fuse;
	struct config *first;
	int32_t pid = 0;

	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	mount_state(&fuse);
	appear(&rig, 10, "web", "web|--port|80", 500, "/system.slice/postgresql.service");
	make(&rig, rig.root, "tests/data/cgroup/v1",
	     scene_config("{\"targets\": [{\"name\": \"w\", \"comm\": \"web\"}]}"));
	ck_assert_uint_eq(targets(&rig), 1);
	before = state();

	fuse_mount_hang(&fuse, ~0ULL);
	appear(&rig, 12, "web", "web|--port|82", 502, "/docker/" ID);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	ck_assert_int_eq(discovery_start(rig.discovery, true), 0);
	scene_wait_for(fuse.shared->ignored > 0);
	ck_assert(discovery_limits(rig.discovery, 1, &limits));
	ck_assert_uint_eq(discovery_pids(rig.discovery, 1, &pid, 1), 1);
	ck_assert_int_eq(pid, 10);
	ck_assert(state().listened && !before.listened); /* not an answer of before */

	first = rig.config;
	rig.config = scene_config("{\"targets\": [{\"name\": \"other\", \"comm\": \"web\"}, {\"name\": \"g\", "
				  "\"comm\": \"none\", \"per\": \"group\"}]}");
	ck_assert_int_ge(discovery_reload(rig.discovery, rig.config), 0);
	ck_assert(discovery_limits(rig.discovery, 1, &limits) || foreign_counts().hung > 0);
	scene_wait_for(in_use() == rig.config);
	config_free(first);
	scene_wait_for(foreign_counts().hung > 0 && state().target_table.targets == 3);
	ck_assert(discovery_stop(rig.discovery));
	while (mounted_count > 0)
		umount2(mounted[--mounted_count], MNT_DETACH);
	fuse_mount_end(&fuse);
}
END_TEST

START_TEST(a_first_scan_that_fails_says_why)
{
	make_files(&rig, "{\"name\": \"w\", \"comm\": \"web\"}");
	close(rig.procfd);
	rig.procfd = -1;
	ck_assert_int_eq(discovery_start(rig.discovery, false), 0);
	scene_wait_for(is_readable(discovery_progress(rig.discovery).first_fd));
	ck_assert_int_lt(discovery_progress(rig.discovery).first, 0);
}
END_TEST

Suite *discovery_stuck_suite(void)
{
	Suite *suite = suite_create("discovery_stuck");
	TCase *tcase = tcase_create("stuck");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, questions_and_a_reload_are_answered_meanwhile, 0, 2);
	tcase_add_loop_test(tcase, it_is_not_waited_for_at_the_end_and_has_all_that_it_had_when_it_wakes, 0, 2);
	tcase_add_loop_test(tcase, the_first_scan_is_through_when_it_goes_on_also_if_it_was_begun_again, 0, 2);
	tcase_add_test(tcase, a_command_line_that_does_not_come_costs_itself_alone);
	tcase_add_test(tcase, who_is_selected_by_a_command_line_that_does_not_come_any_more_stays);
	tcase_add_test(tcase, a_reload_does_not_wait_for_a_cgroup_file);
	tcase_add_test(tcase, what_is_mounted_into_a_cgroup_or_a_process_is_not_entered);
	tcase_add_test(tcase, state_of_containers_that_does_not_come_keeps_nobody_waiting);
	tcase_add_test(tcase, a_first_scan_that_fails_says_why);
	suite_add_tcase(suite, tcase);

	return suite;
}
