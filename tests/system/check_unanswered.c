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

/*
 * Readers of the daemons of this ring that wait for a file: each holds a slot (foreign.c) that says whose.
 * Requests are not counted, because other daemons of this machine may ask for the file, too.
 */
static unsigned readers_that_wait(void)
{
	char path[128];
	uint64_t owner;
	unsigned count = 0;

	snprintf(path, sizeof(path), "%s/ring.readers", rig.directory);
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);

	for (off_t at = 0; fd >= 0 && pread(fd, &owner, sizeof(owner), at) == sizeof(owner); at += 8) {
		struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 8 };

		count += owner != UINT64_MAX && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
	}
	return count;
}

START_TEST(an_incident_is_sealed_without_what_does_not_answer)
{
	const char *arguments[] = { fuse.file, "burst", "300", NULL };
	char *about, map[64];
	bool left;

	if (!begin())
		SKIP_TEST("%s", skip_why());

	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	lay_perf_map(map);
	stacks_rig_start_daemon(&rig, "{\"mode\": \"frame-pointers\"}", "[]");
	stacks_rig_work(&rig);
	fuse_mount_hang(&fuse, hangs[_i]);
	stacks_rig_trigger(&rig);
	ck_assert(scene_says(rig.daemon.err, " did not answer within 2 s"));
	/* Not where its reader had no CPU, and was killed before it has asked for the file. */
	left = readers_that_wait() > 0;
	ck_assert(!left || fuse.shared->ignored > 0);

	about = stacks_rig_file(&rig, "incident.json");
	if (!strstr(about, "they do not answer"))
		stacks_rig_give_up(&rig, "functions.tsv", "the incident does not say that a file does not answer");
	free(about);
	ck_assert_int_eq(stacks_rig_ask(&rig, "status", "--json", NULL), 0);
	ck_assert(!scene_says(rig.said, "\"unanswered_reads\": 0"));
	ck_assert(!left || !scene_says(rig.said, "\"readers_left_behind\": 0"));

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

static unsigned said_to_be_left(void)
{
	char *log = scene_read(rig.daemon.err),
	     *at = strstr(log, " readers of files that do not answer were left behind by the daemon before");
	unsigned count = 0;

	while (at && at > log && at[-1] >= '0' && at[-1] <= '9')
		at--;
	count = at ? (unsigned)strtoul(at, NULL, 10) : 0;
	free(log);
	return count;
}

/* How many wait in all after that. */
static unsigned record_until_killed(void)
{
	record_stacks_of_silent_file();
	kill(rig.daemon.pid, SIGKILL);
	program_wait(&rig.daemon);
	scene_wait_for(readers_that_wait() <= 2); /* one that was slow alone is gone soon */

	return readers_that_wait();
}

START_TEST(a_daemon_that_is_killed_again_and_again_leaves_as_many_readers_as_one)
{
	if (!begin())
		SKIP_TEST("%s", skip_why());

	/*
	 * The limit of a user is two. Mostly the second leaves the second; but one may leave two, where sealing takes
	 * its time, or none, where its reader has not had a CPU before its time was over.
	 */
	for (unsigned killed = 0, left = 0; left < 2; killed++) {
		ck_assert_uint_lt(killed, 8);
		left = record_until_killed();
	}
	ck_assert_uint_eq(record_until_killed(), 2);
	record_stacks_of_silent_file();
	scene_wait_for(readers_that_wait() == 2);
	/* Those that only were idle may take their time to end. */
	ck_assert_uint_ge(said_to_be_left(), 2);
	scene_wait_for(stacks_rig_ask(&rig, "status", "--json", NULL) == 0 &&
		       scene_says(rig.said, "\"readers_left_behind\": 2"));
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
