/*
 * check_discovery_crowd.c: a /proc with more processes than anybody has: what is kept of them, and
 * what is said of those that are not watched. Their pids are the highest that Linux has.
 *
 * How many: 70,000, or what SPIKEWATCH_CROWD says; if it does, what was measured is printed. Each
 * takes 6 KiB in /dev/shm.
 */
#include "daemon/engine/targets/discovery.h"
#include "discovery_rig.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/targets/target_table.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/fair_mutex.h"
#include "lib/base/base.h"
#include "lib/proc/perf.h"

#include <malloc.h>

Suite *discovery_crowd_suite(void);

/*
 * More than a process cache has room for (process_cache.h), of which one in a hundred is gone when
 * it is looked at.
 */
#define CROWD_USUAL 70000
#define GONE_EVERY 100
#define PID_MOST 4194304 /* the kernel's PID_MAX_LIMIT: the first that nobody has */
#define WATCHED 50

/* Of another name, one in so many parts of the crowd. */
#define RARE 10

/* Of one that is not watched, whatever remembers it. */
#define BYTES_EACH 512

static char crowd_root[64];
static int busiest_targets; /* how many there are */
static bool measured;

static int first_pid(void)
{
	return PID_MOST - busiest_targets;
}

/* Where memory is a file system a test need not wait for a disk. */
static void crowd_directory(void)
{
	snprintf(crowd_root, sizeof crowd_root, "%s/check_crowd.XXXXXX",
		 access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(crowd_root));
}

static bool is_rare(int pid)
{
	return (pid - first_pid()) % (busiest_targets / RARE) == busiest_targets / RARE - 1;
}

static void crowd_appear(int pid)
{
	char line[160], path[96];
	int len = snprintf(line, sizeof line, "%d (%s) S 1 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 500 1000000 100 0\n",
			   pid, is_rare(pid) ? "rare" : "many");

	snprintf(path, sizeof path, "%s/%d", crowd_root, pid);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	if (pid % GONE_EVERY == 0 && !is_rare(pid))
		return;

	snprintf(path, sizeof path, "%s/%d/stat", crowd_root, pid);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, line, (size_t)len), len);
	close(fd);
}

/* Once for all tests, none of which changes it: it takes longer than what is done with it. */
static void crowd_gather(void)
{
	const char *asked = getenv("SPIKEWATCH_CROWD");

	busiest_targets = asked ? (int)strtol(asked, NULL, 10) : CROWD_USUAL;
	measured = asked != NULL;
	crowd_directory();
	for (int pid = first_pid(); pid < PID_MOST; pid++)
		crowd_appear(pid);
}

static void crowd_disperse(void)
{
	scene_remove(crowd_root);
}

static void judged_target(const char *comm)
{
	make(crowd_root, "tests/data/cgroup/v1",
	     scene_config("{\"sampling\": {\"max_targets\": %d}, \"targets\": [{\"name\": \"m\", \"comm\": \"%s\"}]}",
			  WATCHED, comm));
}

static size_t gone(void)
{
	size_t count = 0;

	for (int pid = first_pid(); pid < PID_MOST; pid++)
		count += pid % GONE_EVERY == 0 && !is_rare(pid);

	return count;
}

START_TEST(a_crowd_is_met_whole_and_those_beyond_the_room_are_counted)
{
	size_t bytes = mallinfo2().uordblks;

	judged_target("many");
	for (int i = 0; i < 3; i++) {
		struct discovery_state state = scan();

		ck_assert_int_eq(state.error, 0);
		ck_assert_uint_eq(state.processes, (size_t)busiest_targets);
		ck_assert_uint_eq(state.target_table.targets, WATCHED);
		ck_assert_uint_eq(state.target_table.refused, (size_t)busiest_targets - gone() - RARE - WATCHED);
		ck_assert_uint_ge(state.scan_interval_ns, DISCOVERY_SHARE * discovery->scan_cpu_ns);

		/* As much after each scan: nothing piles up. */
		size_t grown = mallinfo2().uordblks - bytes;

		ck_assert_uint_lt(grown, (size_t)busiest_targets * BYTES_EACH);
		if (measured)
			printf("%d processes: a scan took %.2f s, %.2f s of CPU, %.1f MiB, the next %.0f s later\n",
			       busiest_targets, (double)state.last_scan_ns / 1e9, (double)discovery->scan_cpu_ns / 1e9,
			       (double)grown / (1 << 20), (double)state.scan_interval_ns / 1e9);
	}
}
END_TEST

START_TEST(the_few_that_are_meant_are_found_in_a_crowd)
{
	judged_target("rare");
	ck_assert_uint_eq(scan().target_table.targets, RARE);
	ck_assert_uint_eq(scan().target_table.refused, 0);
	for (int pid = first_pid(); pid < PID_MOST; pid++)
		if (is_rare(pid))
			ck_assert(target_table_knows(discovery->target_table, pid));
}
END_TEST

static void *scan_once(void *argument)
{
	_Atomic bool *over = argument;

	ck_assert_int_eq(discovery_scan(discovery), 0);
	*over = true;

	return NULL;
}

static uint64_t now_ns(void)
{
	struct clock clock = real_clock();

	return clock_mono(&clock).ns;
}

/* Whether a question was answered between the first and the last process of a scan. */
static bool is_asked_within_a_scan(uint64_t *longest_ns)
{
	_Atomic bool over = false;
	bool within = false;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, scan_once, &over), 0);
	while (!over && (measured || !within)) {
		uint64_t began = now_ns(), waited_ns;

		fair_mutex_enter(&discovery->turn);
		waited_ns = now_ns() - began;
		*longest_ns = waited_ns > *longest_ns ? waited_ns : *longest_ns;
		within |= discovery->processes > 0 && discovery->processes < (uint64_t)busiest_targets;
		fair_mutex_leave(&discovery->turn);
		if (measured)
			scene_nap();
	}
	pthread_join(thread, NULL);

	return within;
}

/* A scan may be over before this thread has a CPU. */
START_TEST(questions_are_answered_while_a_crowd_is_scanned)
{
	uint64_t longest_ns = 0;
	bool within = false;

	judged_target("many");
	for (int i = 0; i < 20 && !within; i++)
		within = is_asked_within_a_scan(&longest_ns);
	ck_assert(within);
	if (measured)
		printf("%d processes: a question waited %.1f ms at most\n", busiest_targets, (double)longest_ns / 1e6);
}
END_TEST

Suite *discovery_crowd_suite(void)
{
	Suite *suite = suite_create("discovery_crowd");
	TCase *tcase = tcase_create("crowd");

	tcase_set_timeout(tcase, getenv("SPIKEWATCH_CROWD") ? 1200 : 120);
	tcase_add_unchecked_fixture(tcase, crowd_gather, crowd_disperse);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_crowd_is_met_whole_and_those_beyond_the_room_are_counted);
	tcase_add_test(tcase, the_few_that_are_meant_are_found_in_a_crowd);
	tcase_add_test(tcase, questions_are_answered_while_a_crowd_is_scanned);
	suite_add_tcase(suite, tcase);

	return suite;
}
