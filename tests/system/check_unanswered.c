/*
 * check_unanswered.c: a program that runs from a file system whose server stops to answer, with a
 * perf map there too, and the real daemon: it writes the incident without the names of that file,
 * answers meanwhile, and ends when it is told to. Killed and started again, it tries no more often.
 */
#include "fuse_mount.h"
#include "skip.h"
#include "stacks_rig.h"

Suite *unanswered_suite(void);

static struct stacks_rig rig;
static struct fuse_mount fuse;

static const uint64_t hangs[] = { FUSE_HANGS(FUSE_OPEN),    FUSE_HANGS(FUSE_READ),
				  FUSE_HANGS(FUSE_GETATTR), FUSE_HANGS(FUSE_STATFS),
				  FUSE_HANGS(FUSE_FLUSH),   FUSE_HANGS(FUSE_LOOKUP) | FUSE_HANGS(FUSE_OPEN) };

static bool begin(void)
{
	char found[512];

	return program_find("workload_stacks", found) && fuse_mount_begin(&fuse, found) && stacks_rig_init(&rig);
}

/* The file, too, is its perf map. */
static void lay_perf_map(char path[64])
{
	snprintf(path, 64, "/tmp/perf-%d.map", rig.work.pid);
	scene_write(path, "nothing");
	ck_assert_int_eq(mount(fuse.file, path, NULL, MS_BIND, NULL), 0);
}

START_TEST(an_incident_is_sealed_without_what_does_not_answer)
{
	const char *arguments[] = { fuse.file, "burst", "300", NULL };
	char *about, map[64];

	if (!begin())
		SKIP_TEST("%s", skip_why());

	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	lay_perf_map(map);
	stacks_rig_start_daemon(&rig, "{\"mode\": \"frame-pointers\"}", "[]");
	stacks_rig_work(&rig);
	fuse_mount_hang(&fuse, hangs[_i]);
	stacks_rig_trigger(&rig);
	ck_assert_uint_gt(fuse.shared->ignored, 0);

	about = stacks_rig_file(&rig, "incident.json");
	if (!strstr(about, "they do not answer"))
		stacks_rig_give_up(&rig, "functions.tsv", "the incident does not say that a file does not answer");
	free(about);
	ck_assert_int_eq(stacks_rig_ask(&rig, "status", "--json", NULL), 0);
	ck_assert(!scene_says(rig.said, "\"unanswered_reads\": 0"));
	ck_assert(!scene_says(rig.said, "\"readers_left_behind\": 0"));

	/* The next one, too, and the end do not wait for it. */
	stacks_rig_trigger(&rig);
	kill(rig.daemon.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&rig.daemon), 0);
	kill(rig.work.pid, SIGKILL);
	fuse_mount_end(&fuse);
	umount2(map, MNT_DETACH);
	unlink(map);
	program_wait(&rig.work);
	stacks_rig_release(&rig);
}
END_TEST

/* An incident whose stacks lead to a file that does not answer any more; the daemon runs on. */
static void record_stacks_of_silent_file(void)
{
	const char *arguments[] = { fuse.file, "burst", "300", NULL };

	fuse_mount_hang(&fuse, 0);
	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	stacks_rig_start_daemon(&rig, "{\"mode\": \"frame-pointers\"}", "[]");
	stacks_rig_work(&rig);
	fuse_mount_hang(&fuse, FUSE_HANGS(FUSE_OPEN));
	stacks_rig_trigger(&rig);
	kill(rig.work.pid, SIGKILL);
	program_wait(&rig.work);
}

START_TEST(a_daemon_that_is_killed_again_and_again_leaves_as_many_readers_as_one)
{
	uint64_t ignored;

	if (!begin())
		SKIP_TEST("%s", skip_why());

	/* The second may leave one more: the limit of a user is two. */
	for (unsigned killed = 0; killed < 3; killed++) {
		ignored = fuse.shared->ignored;
		record_stacks_of_silent_file();
		if (killed < 2)
			ck_assert_uint_eq(fuse.shared->ignored, killed + 1);
		kill(rig.daemon.pid, SIGKILL);
		program_wait(&rig.daemon);
	}
	record_stacks_of_silent_file();
	ck_assert_uint_eq(fuse.shared->ignored, ignored);
	ck_assert(scene_says(rig.daemon.err, "2 readers of files that do not answer were left behind by the daemon"));
	ck_assert_int_eq(stacks_rig_ask(&rig, "status", "--json", NULL), 0);
	ck_assert(scene_says(rig.said, "\"readers_left_behind\": 2"));
	kill(rig.daemon.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&rig.daemon), 0);
	fuse_mount_end(&fuse);
	stacks_rig_release(&rig);
}
END_TEST

Suite *unanswered_suite(void)
{
	Suite *suite = suite_create("unanswered");
	TCase *tcase = tcase_create("unanswered");

	tcase_add_loop_test(tcase, an_incident_is_sealed_without_what_does_not_answer, 0, (int)ARRAY_LEN(hangs));
	tcase_add_test(tcase, a_daemon_that_is_killed_again_and_again_leaves_as_many_readers_as_one);
	suite_add_tcase(suite, tcase);
	return suite;
}
