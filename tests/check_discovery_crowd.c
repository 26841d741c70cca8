/* check_discovery_crowd.c: a /proc with more processes than anybody has: what is kept of them, and what is said of those that are not watched. */
#include "discovery_inside.h"
#include "discovery_rig.h"

#include <malloc.h>

Suite *discovery_crowd_suite(void);

/* More than a census has room for (census.h), of which one in a hundred is gone when it is looked at. */
#define CROWD 70000
#define GONE_EVERY 100
#define FIRST 1000
#define WATCHED 50

/* Of one that is not watched, whatever remembers it. */
#define BYTES_EACH 512

static char crowd_root[64];

/* Where memory is a file system a test need not wait for a disk. */
static void crowd_directory(void)
{
	snprintf(crowd_root, sizeof crowd_root, "%s/check_crowd.XXXXXX",
		 access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(crowd_root));
}

static void crowd_appear(int pid)
{
	static const char text[] = " (many) S 1 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 500 1000000 100 0\n";
	char line[160], path[96];
	int len = snprintf(line, sizeof line, "%d%s", pid, text);

	snprintf(path, sizeof path, "%s/%d", crowd_root, pid);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	if (pid % GONE_EVERY == 0)
		return;

	snprintf(path, sizeof path, "%s/%d/stat", crowd_root, pid);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, line, (size_t)len), len);
	close(fd);
}

/* Once for all tests, none of which changes it: it takes longer than what is done with it. */
static void crowd_gather(void)
{
	crowd_directory();
	for (int pid = FIRST; pid < FIRST + CROWD; pid++)
		crowd_appear(pid);
}

static void crowd_disperse(void)
{
	scene_remove(crowd_root);
}

static void crowd_setup(void)
{
	setup();
	make(crowd_root, "tests/data/cgroup/v1",
	     scene_config("{\"sampling\": {\"max_targets\": %d}, \"targets\": [{\"name\": \"m\", \"comm\": \"many\"}]}",
			  WATCHED));
}

START_TEST(a_crowd_is_met_whole_and_those_beyond_the_room_are_counted)
{
	size_t bytes = mallinfo2().uordblks;

	for (int i = 0; i < 3; i++) {
		struct discovery_state state = scan();

		ck_assert_int_eq(state.error, 0);
		ck_assert_uint_eq(state.processes, CROWD);
		ck_assert_uint_eq(state.roster.targets, WATCHED);
		ck_assert_uint_eq(state.roster.refused, CROWD - CROWD / GONE_EVERY - WATCHED);
		ck_assert_uint_ge(state.scan_interval_ns, DISCOVERY_SHARE * discovery->scan_cpu_ns);

		/* As much after each scan: nothing piles up. */
		size_t grown = mallinfo2().uordblks - bytes;

		ck_assert_uint_lt(grown, (size_t)CROWD * BYTES_EACH);
	}
}
END_TEST

static void *scan_once(void *argument)
{
	_Atomic bool *over = argument;

	ck_assert_int_eq(discovery_scan(discovery), 0);
	*over = true;

	return NULL;
}

/* Whether a question was answered between the first and the last process of a scan. */
static bool is_asked_within_a_scan(void)
{
	_Atomic bool over = false;
	bool within = false;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, scan_once, &over), 0);
	while (!over && !within) {
		turnstile_enter(&discovery->turn);
		within = discovery->processes > 0 && discovery->processes < CROWD;
		turnstile_leave(&discovery->turn);
	}
	pthread_join(thread, NULL);

	return within;
}

/* A scan may be over before this thread has a CPU. */
START_TEST(questions_are_answered_while_a_crowd_is_scanned)
{
	bool within = false;

	for (int i = 0; i < 20 && !within; i++)
		within = is_asked_within_a_scan();
	ck_assert(within);
}
END_TEST

Suite *discovery_crowd_suite(void)
{
	Suite *suite = suite_create("discovery_crowd");
	TCase *tcase = tcase_create("crowd");

	tcase_set_timeout(tcase, 120);
	tcase_add_unchecked_fixture(tcase, crowd_gather, crowd_disperse);
	tcase_add_checked_fixture(tcase, crowd_setup, teardown);
	tcase_add_test(tcase, a_crowd_is_met_whole_and_those_beyond_the_room_are_counted);
	tcase_add_test(tcase, questions_are_answered_while_a_crowd_is_scanned);
	suite_add_tcase(suite, tcase);

	return suite;
}
