/* check_session.c: ring, sampler and discovery together, on processes of our own. */
#include "fuse_mount.h"
#include "scene.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "torture.h"
#include "daemon/engine/sampling/sampler.h"
#include "samplers_tick.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/engine/targets/target_table.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/model/sample.h"
#include "lib/ring/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

Suite *session_suite(void);

static char directory[64], path[128];
static struct scene_log log_file;
static struct config *config;
static struct actor actor;

static void setup(void)
{
	log_file = scene_log_catch();
	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/ring", directory);
	actor = actor_start("session@");
	config = NULL;
}

static void teardown(void)
{
	actor_end(&actor);
	config_free(config);
	scene_remove(directory);
	scene_log_release(&log_file);
}

static void configure(const char *proc_root)
{
	config = scene_config("{\"sampling\": {\"interval\": \"1ms\"}, \"ring\": {\"size\": \"256KiB\", \"page_size\": "
			      "\"16KiB\", \"lock\": false}, \"proc_root\": \"%s\", \"targets\": "
			      "[{\"name\": \"a\", \"pid\": %d}]}",
			      proc_root, actor.pid);
}

/* How many samples the first tick of the ring has. */
static unsigned first_samples(const struct ring *ring)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event = { 0 };
	unsigned samples = 0;

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while (event.type != RING_EVENT_TICK_END && ring_cursor_next(cursor, &event) == 0)
		samples += event.type == RING_EVENT_SAMPLE;
	ring_cursor_free(cursor);

	return samples;
}

START_TEST(who_is_there_at_the_start_is_in_the_first_tick)
{
	struct session *session = NULL;
	struct discovery_state state;
	struct ring_info info;

	configure("/proc");
	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	discovery_state(session_parts(session).discovery, &state);
	ck_assert_uint_eq(state.target_table.targets, 1);
	ck_assert_int_eq(session_start(session), 0);
	scene_wait_for((ring_info(session_parts(session).ring, &info), info.ticks > 0));
	session_stop(session);
	session_stop(session);
	ck_assert_uint_eq(first_samples(session_parts(session).ring), 1);
	session_free(session);
}
END_TEST

START_TEST(the_ring_says_whose_it_is_and_how_it_ended)
{
	struct session *session = NULL;
	struct ring *ring = NULL;
	struct ring_info info;
	uint8_t zero[16] = { 0 };

	configure("/proc");
	ck_assert_int_eq(session_new(config, path, &session), 0);
	ck_assert_int_eq(session_start(session), 0);
	ck_assert_int_eq(ring_open(AT_FDCWD, path, false, &ring), 0);
	scene_wait_for((ring_info(ring, &info), info.ticks > 10));
	ck_assert_int_eq(info.pid, getpid());
	ck_assert_uint_eq(info.start_ticks, scene_start_ticks(getpid()));
	ck_assert_int_ne(memcmp(info.boot_id, zero, sizeof(zero)), 0);
	ck_assert_uint_eq(ring_interval_ns(ring), NS_PER_MS);
	ck_assert(!info.clean);
	session_free(session);
	ring_info(ring, &info);
	ck_assert(info.clean);
	ring_free(ring);
}
END_TEST

START_TEST(it_can_be_stopped_before_it_was_started)
{
	struct session *session = NULL;

	configure("/proc");
	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	session_stop(session);
	session_free(session);
	session_free(NULL);
}
END_TEST

START_TEST(what_cannot_be_opened_is_named)
{
	struct session *session = NULL;

	configure("/nowhere");
	ck_assert_int_eq(session_new(config, NULL, &session), -ENOENT);
	ck_assert_ptr_null(session);

	char *text = scene_log_text(&log_file);

	ck_assert_ptr_nonnull(strstr(text, "/nowhere: No such file or directory"));
	free(text);
	config_free(config);

	configure("/proc");
	ck_assert_int_eq(session_new(config, "/nowhere/ring", &session), -ENOENT);
	text = scene_log_text(&log_file);
	ck_assert_ptr_nonnull(strstr(text, "/nowhere/ring: No such file or directory"));
	free(text);
}
END_TEST

/* Its threads would wait with it. */
START_TEST(a_root_for_which_a_process_answers_is_refused)
{
	struct session *session = NULL;
	struct fuse_mount fuse;
	char *text;

	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	fuse_mount_hang(&fuse, _i ? ~0ULL : 0);
	config =
		scene_config("{\"cgroup_root\": \"%s\", \"targets\": [{\"name\": \"a\", \"pid\": 1}]}", fuse.directory);
	ck_assert_int_eq(session_new(config, NULL, &session), _i ? -ETIMEDOUT : -EXDEV);
	text = scene_log_text(&log_file);
	ck_assert_ptr_nonnull(strstr(text, "it is on a file system that need not answer"));
	free(text);
	fuse_mount_end(&fuse);
}
END_TEST

/* As where lxcfs is: the kernel is asked instead, and the start goes on. */
START_TEST(a_start_does_not_wait_for_what_is_mounted_over_meminfo)
{
	struct session *session = NULL;
	struct fuse_mount fuse;
	char *text;

	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	if (mount(fuse.file, "/proc/meminfo", NULL, MS_BIND, NULL) < 0)
		SKIP_TEST("mount over /proc/meminfo: %s", strerror(errno));
	fuse_mount_hang(&fuse, ~0ULL);
	configure("/proc");
	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	ck_assert_uint_gt(session_parts(session).machine->memory_bytes, 1 << 20);
	text = scene_log_text(&log_file);
	ck_assert_ptr_nonnull(strstr(text, "did not answer within"));
	free(text);
	session_free(session);
	umount2("/proc/meminfo", MNT_DETACH);
	fuse_mount_end(&fuse);
}
END_TEST

/* As where lxcfs is, with everything that asks how many CPUs there are. */
START_TEST(a_start_does_not_wait_for_what_is_mounted_over_the_list_of_cpus)
{
	struct stack_recorder_status stacks = { 0 };
	struct session *session = NULL;
	struct proc_cpus own, online;
	struct discovery_state state;
	struct fuse_mount fuse;
	char *text;

	proc_read_cpus(PROC_CPUS_ONLINE, &online);
	proc_read_cpus(PROC_CPUS_OWN, &own);
	if (!fuse_mount_begin(&fuse, "/proc/self/exe"))
		SKIP_TEST("%s", skip_why());
	if (mount(fuse.directory, "/sys/devices/system/cpu", NULL, MS_BIND, NULL) < 0)
		SKIP_TEST("mount over /sys/devices/system/cpu: %s", strerror(errno));
	fuse_mount_hang(&fuse, ~0ULL);
	configure("/proc");
	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	ck_assert_uint_eq((unsigned)session_parts(session).machine->cores, own.count);
	if (session_parts(session).stacks)
		stack_recorder_status(session_parts(session).stacks, &stacks);
	ck_assert_uint_eq(stacks.cpus, session_parts(session).stacks ? online.count : 0);
	ck_assert_int_eq(session_start(session), 0);
	scene_wait_for((discovery_state(session_parts(session).discovery, &state), state.scans > 1));
	text = scene_log_text(&log_file);
	ck_assert_msg(strstr(text, "/sys/devices/system/cpu/online did not answer within"), "%s", text);
	free(text);
	session_free(session);
	umount2("/sys/devices/system/cpu", MNT_DETACH);
	fuse_mount_end(&fuse);
}
END_TEST

/* Another configuration: the old one is freed right after. */
static void take_over(struct session *session, struct config *new)
{
	ck_assert_int_eq(session_reload(session, new), 0);
	config_free(config);
	config = new;
}

static struct config *variant(const char *interval, const char *fds, const char *more)
{
	return scene_config("{\"sampling\": {\"interval\": \"%s\", \"fds_interval\": \"%s\"}, \"ring\": {\"size\": "
			    "\"256KiB\", \"page_size\": \"16KiB\", \"lock\": false}, \"targets\": [{\"name\": \"a\", "
			    "\"pid\": %d}%s]}",
			    interval, fds, actor.pid, more);
}

struct newest {
	bool has_fds, gone;
};

/* What the ring says of the first target. */
static struct newest newest_of_first(const struct ring *ring)
{
	struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct newest newest = { 0 };

	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type == RING_EVENT_SAMPLE && event.id == 1)
			newest.has_fds = sample_has(event.sample, SAMPLE_FDS);
		newest.gone |= event.type == RING_EVENT_GONE && event.id == 1;
	}
	ring_cursor_free(cursor);

	return newest;
}

START_TEST(another_configuration_reaches_all_parts_and_what_is_watched_stays)
{
	struct session *session = NULL;
	struct discovery_state state;
	struct ring_info info;

	config = variant("1ms", "0", "");
	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	ck_assert_int_eq(session_start(session), 0);
	scene_wait_for((ring_info(session_parts(session).ring, &info), info.ticks > 3));
	ck_assert(!newest_of_first(session_parts(session).ring).has_fds);
	take_over(session, variant("2ms", "100ms", ", {\"name\": \"g\", \"comm\": \"session@\", \"per\": \"group\"}"));
	scene_wait_for((ring_interval_ns(session_parts(session).ring) == 2 * NS_PER_MS));
	scene_wait_for((discovery_state(session_parts(session).discovery, &state), state.target_table.members == 1));
	ck_assert_uint_eq(state.target_table.targets, 2);
	scene_wait_for(newest_of_first(session_parts(session).ring).has_fds); /* it was opened without */
	take_over(session, variant("1ms", "0", ""));
	scene_wait_for((discovery_state(session_parts(session).discovery, &state), state.target_table.targets == 1));
	scene_wait_for((ring_interval_ns(session_parts(session).ring) == NS_PER_MS));
	session_stop(session);
	ck_assert_uint_eq(state.target_table.members, 0);
	ck_assert(!newest_of_first(session_parts(session).ring).gone);
	session_free(session);
}
END_TEST

START_TEST(a_reload_for_which_there_is_no_memory_changes_nothing)
{
	struct session *session = NULL;
	struct discovery_state state;
	bool injected = true;

	config = variant("1ms", "1s", "");
	struct config *new = variant("2ms", "1s", ", {\"name\": \"g\", \"comm\": \"session@\", \"per\": \"group\"}");

	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = session_reload(session, new);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		samplers_tick(session_parts(session).samplers);
		ck_assert_uint_eq(ring_interval_ns(session_parts(session).ring), (injected ? 1 : 2) * NS_PER_MS);
		discovery_state(session_parts(session).discovery, &state);
		ck_assert_uint_eq(state.target_table.targets, injected ? 1 : 2);
	}
	config_free(config);
	config = new;
	session_free(session);
}
END_TEST

/* ---- a thread that hangs ---- */

static char proc[96], stuck[128]; /* the latter is a pipe where a file of a process should be */

static void make_proc(void)
{
	char text[192], cgroups[PATH_MAX];

	ck_assert_ptr_nonnull(realpath("tests/data/cgroup/v1", cgroups));
	snprintf(proc, sizeof(proc), "%s/proc", directory);
	snprintf(stuck, sizeof(stuck), "%s/10/cgroup", proc);
	snprintf(text, sizeof(text), "%s/10", proc);
	ck_assert_int_eq(mkdir(proc, 0700), 0);
	ck_assert_int_eq(mkdir(text, 0700), 0);
	snprintf(text, sizeof(text), "%s/meminfo", proc);
	scene_write(text, "MemTotal: 1048576 kB\n");
	snprintf(text, sizeof(text), "%s/10/stat", proc);
	scene_write(text, "10 (web) S 1 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 500 1000000 100 0\n");
	snprintf(text, sizeof(text), "%s/10/cgroup", proc);
	scene_write(text, "4:cpu,cpuacct:/x\n3:memory:/x\n");
	config = scene_config("{\"sampling\": {\"interval\": \"1ms\"}, \"ring\": {\"size\": \"256KiB\", \"page_size\": "
			      "\"16KiB\", \"lock\": false}, \"proc_root\": \"%s\", \"cgroup_root\": "
			      "\"%s\", \"targets\": [{\"name\": \"a\", \"cmdline\": \"x\"}, "
			      "{\"name\": \"b\", \"cgroup\": \"/x\", \"per\": \"process\"}]}",
			      proc, cgroups);
	config->stuck_ns = 200 * NS_PER_MS;
}

/*
 * After the read the cgroup is told by what the session has found of the hierarchies.
 */
START_TEST(a_thread_that_hangs_at_the_end_finds_everything_when_it_wakes)
{
	struct session *session = NULL;
	int fd = -1;

	make_proc();
	ck_assert_int_eq(session_new(config, path, &session), 0);
	ck_assert_int_eq(unlink(stuck), 0);
	ck_assert_int_eq(mkfifo(stuck, 0600), 0);
	ck_assert_int_eq(session_start(session), 0);
	scene_wait_for((fd = open(stuck, O_WRONLY | O_NONBLOCK | O_CLOEXEC)) >= 0);
	ck_assert(!session_free(session));

	char *text = scene_log_text(&log_file);

	ck_assert_msg(strstr(text, "not waiting for it any longer"), "%s", text);
	free(text);

	unlink(stuck);
	close(fd);
	scene_wait_for(session_stop(session));
	ck_assert(session_free(session));
}
END_TEST

Suite *session_suite(void)
{
	Suite *suite = suite_create("session");
	TCase *tcase = tcase_create("whole");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, who_is_there_at_the_start_is_in_the_first_tick);
	tcase_add_test(tcase, the_ring_says_whose_it_is_and_how_it_ended);
	tcase_add_test(tcase, it_can_be_stopped_before_it_was_started);
	tcase_add_test(tcase, what_cannot_be_opened_is_named);
	tcase_add_loop_test(tcase, a_root_for_which_a_process_answers_is_refused, 0, 2);
	tcase_add_test(tcase, a_start_does_not_wait_for_what_is_mounted_over_meminfo);
	tcase_add_test(tcase, a_start_does_not_wait_for_what_is_mounted_over_the_list_of_cpus);
	tcase_add_test(tcase, another_configuration_reaches_all_parts_and_what_is_watched_stays);
	tcase_add_test(tcase, a_thread_that_hangs_at_the_end_finds_everything_when_it_wakes);
	tcase_add_test(tcase, a_reload_for_which_there_is_no_memory_changes_nothing);
	suite_add_tcase(suite, tcase);

	return suite;
}
