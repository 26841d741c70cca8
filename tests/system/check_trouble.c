/*
 * check_trouble.c: the directory of incidents is full, read-only, gone or another user's;
 * descriptors run out. What can be had is sealed, what cannot is said, nothing is left
 * half-written, and when the trouble is over it is over.
 *
 * Full and read-only file systems are small ones in memory, mounted in a namespace of their own:
 * that needs root, and is left out otherwise.
 */
#include "evaluator_feed.h"
#include "incidents_rig.h"
#include "lib/base/base.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

Suite *trouble_suite(void);

static struct incidents_rig rig;

static void setup(void)
{
	incidents_rig_setup(&rig);
}

static void teardown(void)
{
	incidents_rig_teardown(&rig);
}

/* What is sealed, or given up, is counted before it is said, and before limits are kept. */
static void await_idle(void)
{
	scene_wait_for(incidents_busy_since(rig.incidents).ns == 0);
}

/*
 * Asks for an incident of the target that the rig watches, and waits until it is on the disk or was
 * given up.
 */
static struct incidents_counts record(void)
{
	struct target target = { .id = 1,
				 .kind = TARGET_PROCESS,
				 .pid = rig.actor.pid,
				 .entry = "burner",
				 .name = "burner",
				 .key = "burner",
				 .comm = "",
				 .cmdline = "",
				 .cgroup = "" };
	struct incidents_counts before = poll_once(&rig);
	struct incidents_counts counts = before;
	struct incidents_ticket ticket;

	target.start_ticks = scene_start_ticks(rig.actor.pid);
	ck_assert_int_eq(incidents_trigger(rig.incidents, &target, &ticket), 0);
	ck_assert_int_eq(ticket.answer, INCIDENTS_OPENED);
	for (int naps = 0; naps < SCENE_NAPS && counts.sealed + counts.failed == before.sealed + before.failed;
	     naps++) {
		counts = poll_once(&rig);
		scene_nap();
	}
	await_idle();

	return counts;
}

/* The captures of the one that is open have been run when the worker has nothing more to do. */
static void open_one(const struct target *target)
{
	struct incidents_ticket ticket;
	struct ring_info info = { 0 };
	char path[400];

	/* From the first tick on there are the targets. */
	scene_wait_for((ring_info(session_parts(rig.session).ring, &info), info.ticks > 0));
	ck_assert_int_eq(incidents_trigger(rig.incidents, target, &ticket), 0);
	snprintf(path, sizeof(path), "%s/%s-1.tmp/incident.json", rig.spool_at, ticket.stem);
	scene_wait_for(access(path, F_OK) == 0 && incidents_busy_since(rig.incidents).ns == 0);
}

static void says(const char *part)
{
	char *text = scene_log_text(&rig.log_file);

	ck_assert_msg(strstr(text, part) != NULL, "expected \"%s\", it said: %s", part, text);
	free(text);
}

static bool mount_small(const char *path, const char *size)
{
	char options[64];

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		dprintf(rig.log_file.before, "check_trouble: needs root and a mount namespace: left out\n");
		return false;
	}
	snprintf(options, sizeof(options), "size=%s,mode=0750", size);
	ck_assert(mkdir(path, 0750) == 0 || errno == EEXIST);
	ck_assert_int_eq(mount("tmpfs", path, "tmpfs", 0, options), 0);

	return true;
}

/* Takes all the room. */
static void fill(void)
{
	char path[400], page[4096] = { 1 };

	snprintf(path, sizeof(path), "%s/filler", rig.spool_at);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	while (write(fd, page, sizeof(page)) == (ssize_t)sizeof(page))
		;
	ck_assert_int_eq(errno, ENOSPC);
	close(fd);
}

static void remove_filler(void)
{
	char path[400];

	snprintf(path, sizeof(path), "%s/filler", rig.spool_at);
	ck_assert_int_eq(unlink(path), 0);
}

/* ---- gone, replaced ---- */

static const struct {
	const char *what, *path;
} removed_directories[] = {
	{ "the directory", rig.spool_at },
	{ "its parent", rig.directory },
};

START_TEST(a_directory_that_was_removed_is_made_anew)
{
	const char *what = removed_directories[_i].what;
	struct stat st;
	char path[400];
	struct incident incident;

	start(&rig, "0B", RULE("hot", "100ms"));
	scene_remove(removed_directories[_i].path);
	ck_assert_msg(record().sealed == 1, "removed: %s: nothing was sealed", what);
	stop(&rig);
	ck_assert_msg(stat(rig.spool_at, &st) == 0, "removed: %s: not made anew", what);
	ck_assert_msg((st.st_mode & 07027) == 0, "removed: %s: mode %o", what, st.st_mode);
	read_incident(&rig, path, &incident);
	ck_assert_msg(capture_of(&incident, "status") == INCIDENT_CAPTURE_OK, "removed: %s: no capture of status",
		      what);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(what_was_captured_before_it_was_removed_is_said_to_be_lost)
{
	char path[400];
	struct incident incident;

	start(&rig, "0B", RULE("hot", "100ms"));
	open_one(NULL);
	scene_remove(rig.spool_at);
	scene_wait_for(poll_once(&rig).sealed == 1);
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert_int_eq(capture_of(&incident, "status"), INCIDENT_CAPTURE_FAILED);
	ck_assert_int_eq(capture_of(&incident, "samples"), INCIDENT_CAPTURE_OK);
	ck_assert_uint_gt(scene_rows(path, INCIDENT_SAMPLES_FILE).count, 0);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(what_is_open_moves_into_a_directory_that_replaced_it)
{
	char path[400], aside[200];
	struct incident incident;

	start(&rig, "0B", RULE("hot", "100ms"));
	open_one(NULL);
	snprintf(aside, sizeof(aside), "%s.old", rig.spool_at);
	ck_assert_int_eq(rename(rig.spool_at, aside), 0);
	ck_assert_int_eq(mkdir(rig.spool_at, 0700), 0);
	scene_wait_for(poll_once(&rig).sealed == 1);
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert_int_eq(capture_of(&incident, "status"), INCIDENT_CAPTURE_OK);
	snprintf(path, sizeof(path), "%s/" PATHS_LOCK, aside);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(rmdir(aside), 0);
	actor_end(&rig.actor);
}
END_TEST

/* ---- not to be written ---- */

START_TEST(a_lasting_trouble_is_said_when_it_begins_and_when_it_ends)
{
	start(&rig, "0B", RULE("hot", "100ms"));
	scene_remove(rig.spool_at);
	scene_write(rig.spool_at, "a file is in the way");
	ck_assert_uint_eq(record().failed, 1);
	says("could not be written: Not a directory");
	ck_assert_uint_eq(record().failed, 2);
	char *text = scene_log_text(&rig.log_file);

	ck_assert_ptr_null(strstr(text, "could not be written"));
	free(text);
	uint64_t evaluations = feed_judged(rig.evaluator);

	ck_assert_int_eq(unlink(rig.spool_at), 0);
	ck_assert_uint_eq(record().sealed, 1);
	ck_assert_uint_gt(feed_judged(rig.evaluator), evaluations); /* rules went on */
	says("incidents can be written again; 2 could not");
	stop(&rig);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_read_only_file_system_fails_honestly_and_works_again)
{
	char path[400];

	if (mount_small(rig.spool_at, "8m")) {
		start(&rig, "0B", RULE("hot", "100ms"));
		ck_assert_int_eq(mount(NULL, rig.spool_at, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
		ck_assert_uint_eq(record().failed, 1);
		says("could not be written: Read-only file system");
		ck_assert_uint_eq(count_directories(&rig, path), 0);
		ck_assert_int_eq(mount(NULL, rig.spool_at, NULL, MS_REMOUNT, NULL), 0);
		ck_assert_uint_eq(record().sealed, 1);
		stop(&rig);
		spool_free(TAKE(rig.spool));
		ck_assert_int_eq(umount2(rig.spool_at, MNT_DETACH), 0);
	} else {
		start(&rig, "0B", RULE("hot", "100ms"));
	}
	actor_end(&rig.actor);
}
END_TEST

/* ---- full ---- */

/* Without that, what it has written itself would silence it for ever. */
START_TEST(old_incidents_make_room_for_the_next)
{
	char path[400], padding[420];
	struct incidents_ticket ticket;

	if (mount_small(rig.spool_at, "8m")) {
		start(&rig, "0B", RULE("never", "10s"));
		record();
		ck_assert_uint_eq(count_directories(&rig, path), 1);
		snprintf(padding, sizeof(padding), "%s/padding", path);
		int fd = open(padding, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

		ck_assert_int_eq(posix_fallocate(fd, 0, 3 << 20), 0);
		close(fd);
		record();
		fill();
		/* For a while the last answer about the disk is believed. */
		scene_wait_for((poll_once(&rig), incidents_disk_is_short(rig.incidents)));
		ck_assert_int_eq(incidents_trigger(rig.incidents, NULL, &ticket), 0);
		ck_assert_int_eq(ticket.answer, INCIDENTS_REFUSED);
		ck_assert(incidents_disk_is_short(rig.incidents));
		scene_wait_for(poll_once(&rig).removed == 1);
		ck_assert_int_lt(access(padding, F_OK), 0);
		scene_wait_for((poll_once(&rig), !incidents_disk_is_short(rig.incidents)));
		ck_assert_int_eq(incidents_trigger(rig.incidents, NULL, &ticket), 0);
		ck_assert_int_eq(ticket.answer, INCIDENTS_OPENED);
		ck_assert(!incidents_disk_is_short(rig.incidents));
		stop(&rig);
		spool_free(TAKE(rig.spool));
		ck_assert_int_eq(umount2(rig.spool_at, MNT_DETACH), 0);
	} else {
		start(&rig, "0B", RULE("never", "10s"));
	}
	actor_end(&rig.actor);
}
END_TEST

START_TEST(samples_displace_captures_on_a_full_disk)
{
	char path[400];
	struct incident incident;
	size_t removed = 0;

	if (mount_small(rig.spool_at, "8m")) {
		start(&rig, "0B", RULE("hot", "100ms"));
		open_one(&(struct target){ .id = 9,
					   .kind = TARGET_PROCESS,
					   .pid = rig.actor.pid,
					   .entry = "x",
					   .name = "x",
					   .key = "x",
					   .comm = "",
					   .cmdline = "",
					   .cgroup = "" });
		fill();
		scene_wait_for(poll_once(&rig).sealed == 1);
		stop(&rig);
		remove_filler();
		read_incident(&rig, path, &incident);
		ck_assert_int_eq(capture_of(&incident, "samples"), INCIDENT_CAPTURE_OK);
		for (size_t i = 0; i < incident.capture_count; i++)
			removed += strstr(incident.captures[i].why,
					  "removed to make room for the rest: No space left") != NULL;
		ck_assert_uint_gt(removed, 0);
		ck_assert_uint_eq(scene_rows(path, INCIDENT_SAMPLES_FILE).count, incident.coverage.samples);
		spool_free(TAKE(rig.spool));
		ck_assert_int_eq(umount2(rig.spool_at, MNT_DETACH), 0);
	} else {
		start(&rig, "0B", RULE("hot", "100ms"));
	}
	actor_end(&rig.actor);
}
END_TEST

START_TEST(captures_stay_where_removing_them_would_not_do)
{
	char path[400];
	struct incident incident;

	if (mount_small(rig.spool_at, "8m")) {
		/*
		 * The window is still open when the disk is full, so hundreds of rows are yet to be
		 * written.
		 */
		rig.before_text = rig.after_text = "10s";
		start(&rig, "0B", RULE("never", "10s"));
		actor_do(&rig.actor, 'b', "hot-thread");
		scene_wait_for((poll_once(&rig), ticks(&rig) > 400));
		open_one(NULL);
		fill();
		uint64_t full = ticks(&rig);

		scene_wait_for(ticks(&rig) > full + 400);
		stop(&rig);
		remove_filler();
		read_incident(&rig, path, &incident);
		ck_assert_int_eq(capture_of(&incident, "samples"), INCIDENT_CAPTURE_FAILED);
		ck_assert_int_eq(capture_of(&incident, "system"), INCIDENT_CAPTURE_OK);
		ck_assert_int_eq(capture_of(&incident, "status"), INCIDENT_CAPTURE_OK);
		spool_free(TAKE(rig.spool));
		ck_assert_int_eq(umount2(rig.spool_at, MNT_DETACH), 0);
	} else {
		start(&rig, "0B", RULE("never", "10s"));
	}
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_disk_without_any_room_leaves_nothing_and_recovers_by_itself)
{
	char path[400];

	if (mount_small(rig.spool_at, "8m")) {
		start(&rig, "0B", RULE("hot", "100ms"));
		/* The room is taken between the question whether there is some and the first byte. */
		int fd = incidents_rig_lock(&rig);
		struct incidents_ticket ticket;

		ck_assert_int_eq(incidents_trigger(rig.incidents, NULL, &ticket), 0);
		ck_assert_int_eq(ticket.answer, INCIDENTS_OPENED);
		fill();
		close(fd);
		scene_wait_for(poll_once(&rig).failed == 1);
		await_idle();
		says("could not be written: No space left on device");
		ck_assert_uint_eq(count_directories(&rig, path), 1); /* the filler */
		remove_filler();
		scene_wait_for((poll_once(&rig), !incidents_disk_is_short(rig.incidents)));
		ck_assert_uint_eq(record().sealed, 1);
		stop(&rig);
		spool_free(TAKE(rig.spool));
		ck_assert_int_eq(umount2(rig.spool_at, MNT_DETACH), 0);
	} else {
		start(&rig, "0B", RULE("hot", "100ms"));
	}
	actor_end(&rig.actor);
}
END_TEST

/* ---- no descriptors ---- */

/* This process opens nothing any more. */
static struct rlimit take_descriptors(unsigned left)
{
	struct rlimit limit, low;
	int fd = dup(STDIN_FILENO);

	getrlimit(RLIMIT_NOFILE, &limit);
	low = (struct rlimit){ (rlim_t)fd + left, limit.rlim_max };
	close(fd);
	setrlimit(RLIMIT_NOFILE, &low);

	return limit;
}

START_TEST(without_descriptors_an_incident_fails_and_the_next_one_does_not)
{
	char path[400];

	start(&rig, "0B", RULE("hot", "100ms"));
	uint64_t start_ticks = scene_start_ticks(rig.actor.pid);
	struct target target = { .id = 1,
				 .kind = TARGET_PROCESS,
				 .pid = rig.actor.pid,
				 .start_ticks = start_ticks,
				 .entry = "",
				 .name = "burner",
				 .key = "burner",
				 .comm = "",
				 .cmdline = "",
				 .cgroup = "" };
	struct incidents_counts counts = { 0 };
	struct incidents_ticket ticket;
	struct rlimit limit = take_descriptors(0);

	incidents_trigger(rig.incidents, &target, &ticket);
	for (int naps = 0; naps < SCENE_NAPS && counts.sealed + counts.failed == 0; naps++) {
		dispatcher_poll(rig.dispatcher, clock_mono(&rig.clock));
		incidents_counts(rig.incidents, &counts);
		scene_nap();
	}
	setrlimit(RLIMIT_NOFILE, &limit);
	await_idle();
	ck_assert_uint_eq(counts.failed, 1);
	says("could not be written: Too many open files");
	ck_assert_uint_eq(record().sealed, 1);
	stop(&rig);
	ck_assert_uint_eq(count_directories(&rig, path), 1); /* what could not even be removed is gone, too */
	actor_end(&rig.actor);
}
END_TEST

START_TEST(captures_that_ran_out_of_descriptors_say_so)
{
	char path[400];
	struct incident incident;

	start(&rig, "0B", RULE("hot", "100ms"));
	session_stop(rig.session); /* its threads would give descriptors back */

	/* When the captures are in memory and the draft waits for the lock of the spool, no file can be opened any more. */
	int fd = incidents_rig_lock(&rig);
	struct incidents_ticket ticket;
	struct target target = { .id = 1,
				 .kind = TARGET_PROCESS,
				 .pid = rig.actor.pid,
				 .entry = "",
				 .name = "burner",
				 .key = "burner",
				 .comm = "",
				 .cmdline = "",
				 .cgroup = "" };

	struct incidents_counts counts;

	incidents_trigger(rig.incidents, &target, &ticket);
	scene_wait_for((incidents_counts(rig.incidents, &counts), counts.captures_unsaved > 0));
	struct rlimit limit = take_descriptors(0);

	flock(fd, LOCK_UN);
	for (int naps = 0; naps < SCENE_NAPS && counts.captures_unsaved > 0; naps++) {
		incidents_counts(rig.incidents, &counts);
		scene_nap();
	}
	setrlimit(RLIMIT_NOFILE, &limit);
	close(fd);
	scene_wait_for(poll_once(&rig).sealed == 1);
	stop(&rig);
	read_incident(&rig, path, &incident);
	for (size_t i = 0; i < incident.capture_count; i++) {
		const struct incident_capture *capture = &incident.captures[i];

		if (strcmp(capture->name, "samples") == 0)
			continue;
		ck_assert_int_eq(capture->status, INCIDENT_CAPTURE_FAILED);
		ck_assert_str_eq(capture->why, "Too many open files");
	}
	ck_assert_int_eq(capture_of(&incident, "samples"), INCIDENT_CAPTURE_OK);
	actor_end(&rig.actor);
}
END_TEST

Suite *trouble_suite(void)
{
	Suite *suite = suite_create("trouble");
	TCase *tcase = tcase_create("directory");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_loop_test(tcase, a_directory_that_was_removed_is_made_anew, 0,
			    (int)(sizeof(removed_directories) / sizeof(removed_directories[0])));
	tcase_add_test(tcase, what_was_captured_before_it_was_removed_is_said_to_be_lost);
	tcase_add_test(tcase, what_is_open_moves_into_a_directory_that_replaced_it);
	tcase_add_test(tcase, a_lasting_trouble_is_said_when_it_begins_and_when_it_ends);
	tcase_add_test(tcase, a_read_only_file_system_fails_honestly_and_works_again);
	tcase_add_test(tcase, old_incidents_make_room_for_the_next);
	tcase_add_test(tcase, samples_displace_captures_on_a_full_disk);
	tcase_add_test(tcase, captures_stay_where_removing_them_would_not_do);
	tcase_add_test(tcase, a_disk_without_any_room_leaves_nothing_and_recovers_by_itself);
	tcase_add_test(tcase, without_descriptors_an_incident_fails_and_the_next_one_does_not);
	tcase_add_test(tcase, captures_that_ran_out_of_descriptors_say_so);
	suite_add_tcase(suite, tcase);

	return suite;
}
