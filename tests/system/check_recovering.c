/*
 * check_recovering.c: spikewatch recover on rings that are whole, cut off, damaged, in use, or
 * none.
 */
#include "commandrun.h"

#include "cli/base/options.h"
#include "lib/base/io.h"
#include "lib/incident/incident.h"
#include "lib/base/json.h"
#include "lib/incident/manifest.h"
#include "daemon/engine/base/paths.h"
#include "daemon/engine/incident/recover.h"
#include "ring_fixture.h"
#include "lib/base/base.h"
#include "daemon/engine/incident/spool.h"
#include "skip.h"
#include "torture.h"
#include "lib/ring/ring.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

Suite *recovering_suite(void);

static struct commandrun command_run;

#define PAGE 4096
#define PAGES 8
#define SIZE (PAGE + PAGES * PAGE)
#define TICKS 400
#define TARGETS 5

static char directory[64], ring_path[100], incidents[100];
static struct fixture_target targets[TARGETS];
static struct fixture_tally whole;

static void make_ring(bool clean)
{
	const struct ring_options options = { .size_bytes = SIZE, .page_bytes = PAGE, .interval_ns = NS_PER_MS };
	struct ring *ring = NULL;
	struct ring_writer *writer = NULL;

	for (uint32_t i = 0; i < TARGETS; i++)
		fixture_target_init(&targets[i], i + 1);
	ck_assert_int_eq(ring_create(AT_FDCWD, ring_path, &options, &ring), 0);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	for (uint64_t tick = 0; tick < TICKS; tick++)
		ck_assert_int_eq(fixture_tick(writer, targets, TARGETS, tick), 0);
	if (clean) {
		ring_writer_free(writer);
		ring_finish(ring);
	}
	whole = (struct fixture_tally){ 0 };
	fixture_read(ring, RING_OLDEST, &whole);
	if (!clean)
		ring_writer_free(writer);
	ring_free(ring);
}

static void set_up(void)
{
	snprintf(directory, sizeof(directory), "/tmp/check-recovering-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(ring_path, sizeof(ring_path), "%s/ring", directory);
	snprintf(incidents, sizeof(incidents), "%s/incidents", directory);
	setenv("SPIKEWATCH_DIR", incidents, 1);
	setenv("TZ", "UTC", 1);
	tzset();
	make_ring(false);
}

static void tear_down(void)
{
	ck_assert_int_eq(directory_tree_remove(AT_FDCWD, directory), 0);
	commandrun_end(&command_run);
}

/* How many incidents there are; all of them whole. The last one that was read in ret. */
static size_t count_incidents(struct incident *ret)
{
	AUTO_CLOSE int dirfd = open(incidents, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_FREE struct retention_entry *entries = NULL;
	size_t count = 0;

	if (dirfd < 0)
		return 0;
	ck_assert_int_eq(spool_list_at(dirfd, &entries, &count, &(int){ 0 }), 0);
	for (size_t i = 0; i < count; i++) {
		AUTO_CLOSE int fd = openat(dirfd, entries[i].name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
		ck_assert_int_eq(incident_json_read(fd, ret), 0);
	}
	return count;
}

static uint64_t number(const char *key)
{
	struct json_document *document = NULL;
	uint64_t value;

	ck_assert_int_eq(json_parse(command_run.output, command_run.len, NULL, &document, NULL), 0);
	value = (uint64_t)json_member(json_root(document), key)->number;
	json_document_free(document);
	return value;
}

START_TEST(all_that_it_holds_is_saved)
{
	struct incident incident;

	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path), EXIT_OK);
	commandrun_says(&command_run, "Its daemon was killed");
	commandrun_says(&command_run, "Nothing of what it held was lost.");
	commandrun_says(&command_run, "-all-recovered-1\n");
	ck_assert_uint_eq(count_incidents(&incident), 1);
	ck_assert_int_eq(incident.kind, INCIDENT_RECOVERED);
	ck_assert_uint_eq(incident.coverage.ticks_got, whole.ticks);
	ck_assert_uint_eq(incident.coverage.ticks_expected, whole.ticks);
	ck_assert_uint_eq(incident.coverage.samples, whole.samples);
	ck_assert_uint_eq(incident.coverage.lost_pages, 0);
	ck_assert_uint_eq(incident.wall.ns, fixture_wall(TICKS - 1).ns);
	ck_assert_int_eq(access(ring_path, F_OK), 0);
}
END_TEST

START_TEST(json_says_the_same)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path, "--json"), EXIT_OK);
	ck_assert_uint_eq(number("ticks"), whole.ticks);
	ck_assert_uint_eq(number("samples"), whole.samples);
	ck_assert_uint_eq(number("targets"), TARGETS);
	ck_assert_uint_eq(number("lost_pages"), 0);
	ck_assert_uint_eq(number("missing_bytes"), 0);
	ck_assert_uint_eq(number("interval_ns"), NS_PER_MS);
}
END_TEST

START_TEST(only_the_last_part_is_saved_if_asked_for)
{
	struct incident incident;

	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path, "--before", "9ms"), EXIT_OK);
	ck_assert_uint_eq(count_incidents(&incident), 1);
	ck_assert_uint_eq(incident.coverage.ticks_got, 10);
	ck_assert_uint_eq(incident.coverage.want_before_ns, 9 * NS_PER_MS);
}
END_TEST

START_TEST(a_damaged_page_is_named_and_the_rest_saved)
{
	struct incident incident;
	AUTO_CLOSE int fd = open(ring_path, O_RDWR | O_CLOEXEC);
	size_t damaged = 0;

	for (unsigned page = 0; page < PAGES; page++) {
		char kept[64], noise[64];
		off_t at = PAGE + (off_t)page * PAGE + 200;

		memset(noise, 0x5a, sizeof(noise));
		ck_assert_int_eq(pread(fd, kept, sizeof(kept), at), (ssize_t)sizeof(kept));
		ck_assert_int_eq(pwrite(fd, noise, sizeof(noise), at), (ssize_t)sizeof(noise));
		ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path), EXIT_OK);
		if (strstr(command_run.output, "Lost:\n")) {
			damaged++;
			commandrun_says(&command_run, " 1 page ");
		}
		ck_assert_uint_eq(count_incidents(&incident), 1);
		ck_assert_uint_le(incident.coverage.ticks_got, whole.ticks);
		ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--max-size", "1B"), EXIT_OK);
		ck_assert_int_eq(pwrite(fd, kept, sizeof(kept), at), (ssize_t)sizeof(kept));
	}
	ck_assert_uint_ge(damaged, PAGES - 1); /* the page that was being written has no checksum yet */
}
END_TEST

START_TEST(what_is_left_of_a_file_that_was_cut_off_is_saved)
{
	struct incident incident;
	uint64_t last = UINT64_MAX;

	for (off_t size = SIZE - 1; size >= PAGE; size -= 1000) {
		uint64_t ticks = 0;

		ck_assert_int_eq(truncate(ring_path, size), 0);
		if (COMMANDRUN(&command_run, recover, ring_path) == EXIT_OK) {
			commandrun_says(&command_run, "the file is too short by");
			ck_assert_uint_eq(count_incidents(&incident), 1);
			ticks = incident.coverage.ticks_got;
			ck_assert_int_eq(COMMANDRUN(&command_run, prune, "--max-size", "1B"), EXIT_OK);
		} else {
			commandrun_says(&command_run, "nothing was saved");
		}
		ck_assert_uint_le(ticks, last);
		last = ticks;
	}
	ck_assert_uint_eq(last, 0);
	ck_assert_int_eq(truncate(ring_path, PAGE - 1), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path), EXIT_USAGE);
	ck_assert_uint_eq(count_incidents(&incident), 0);
}
END_TEST

START_TEST(a_ring_in_use_is_refused_unless_it_is_meant)
{
	char lock_path[120];
	struct incident incident;
	AUTO_CLOSE int lock = -1;

	snprintf(lock_path, sizeof(lock_path), "%s.lock", ring_path);
	lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(flock(lock, LOCK_EX), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path), EXIT_TROUBLE);
	commandrun_says(&command_run, "--live");
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path, "--live", "--remove"), EXIT_USAGE);
	ck_assert_uint_eq(count_incidents(&incident), 0);
	ck_assert_int_eq(access(ring_path, F_OK), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path, "--live"), EXIT_OK);
	commandrun_says(&command_run, "still being written");
	ck_assert_uint_eq(count_incidents(&incident), 1);
	flock(lock, LOCK_UN);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path), EXIT_OK);
	/* And it is let go of again. */
	ck_assert_int_eq(flock(lock, LOCK_EX | LOCK_NB), 0);
}
END_TEST

/* A member of the group could keep the daemon out otherwise. */
START_TEST(a_reader_of_the_ring_takes_no_lock_and_is_told_so)
{
	char lock_path[120];
	AUTO_CLOSE int lock = -1;

	if (geteuid() != 0)
		SKIP_TEST("only root can become another user");
	snprintf(lock_path, sizeof(lock_path), "%s.lock", ring_path);
	ck_assert_int_eq(lock_file_take(AT_FDCWD, lock_path, &lock), 0);
	close(TAKE_FD(lock));
	ck_assert_int_eq(seteuid(65534), 0);

	int code = COMMANDRUN(&command_run, recover, ring_path);

	ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(code, EXIT_TROUBLE);
	commandrun_says(&command_run, "only root and the user of its daemon");
	ck_assert_int_eq(lock_file_take(AT_FDCWD, lock_path, &lock), 0);
}
END_TEST

/* Ticks until it is killed. */
static pid_t start_writer(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		const struct ring_options options = { .size_bytes = SIZE,
						      .page_bytes = PAGE,
						      .interval_ns = NS_PER_MS };
		struct ring *ring = NULL;
		struct ring_writer *writer = NULL;

		if (ring_create(AT_FDCWD, ring_path, &options, &ring) < 0 || ring_writer_new(ring, &writer) < 0)
			_exit(1);
		for (uint64_t tick = 0;; tick++)
			fixture_tick(writer, targets, TARGETS, tick);
	}
	ck_assert_int_gt(pid, 0);
	return pid;
}

START_TEST(a_ring_that_is_written_meanwhile_ends_where_it_was)
{
	struct incident incident;
	struct ring_info info = { 0 };
	struct ring *ring = NULL;
	pid_t pid;

	unlink(ring_path);
	pid = start_writer();
	while (ring_open(AT_FDCWD, ring_path, false, &ring) < 0)
		sched_yield();
	while (info.ticks < 1000)
		ring_info(ring, &info);
	for (int i = 0; i < 20; i++) {
		/*
		 * The writer may overtake the walk again and again: then there was nothing to be
		 * had.
		 */
		int code = COMMANDRUN(&command_run, recover, ring_path, "--live");

		ck_assert(code == EXIT_OK || code == EXIT_TROUBLE);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	ring_free(ring);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path), EXIT_OK);
	ck_assert_uint_ge(count_incidents(&incident), 1);
}
END_TEST

START_TEST(the_ring_goes_if_that_is_asked_for)
{
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path, "--remove"), EXIT_OK);
	ck_assert_int_lt(access(ring_path, F_OK), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path, "--remove"), EXIT_TROUBLE);
	commandrun_says(&command_run, "No such file");
}
END_TEST

START_TEST(one_that_ended_in_good_order_can_be_saved_too)
{
	make_ring(true);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path), EXIT_OK);
	commandrun_says(&command_run, "stopped in order");
}
END_TEST

START_TEST(what_is_no_ring_is_refused)
{
	struct incident incident;
	char path[120], hostile[120];

	snprintf(path, sizeof(path), "%s/fifo", directory);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, path), EXIT_USAGE);
	ck_assert_int_ne(COMMANDRUN(&command_run, recover, directory), EXIT_OK);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, "/dev/null"), EXIT_USAGE);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover), EXIT_USAGE);
	snprintf(hostile, sizeof(hostile), "%s/\x1b[31m", directory);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, hostile), EXIT_TROUBLE);
	commandrun_harmless(&command_run);
	/* Longer than it says it is. */
	ck_assert_int_eq(truncate(ring_path, SIZE + 1), 0);
	ck_assert_int_eq(COMMANDRUN(&command_run, recover, ring_path), EXIT_USAGE);
	ck_assert_uint_eq(count_incidents(&incident), 0);
}
END_TEST

START_TEST(without_memory_nothing_half_is_left)
{
	const struct retention_limits limits = { 0 };
	struct recover_report report;
	struct incident incident;
	struct spool *spool = NULL;
	struct ring *ring = NULL;
	bool injected = true;

	ck_assert_int_eq(spool_open(incidents, &limits, &spool, NULL), 0);
	ck_assert_int_eq(ring_open(AT_FDCWD, ring_path, false, &ring), 0);
	for (long n = 1; injected; n++) {
		int rc;

		report = (struct recover_report){ 0 };
		torture_arm(n);
		rc = recover_save(ring, 0, spool, &report);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
		ck_assert_uint_eq(count_incidents(&incident), injected ? 0 : 1);
		ck_assert_int_eq(report.name[0] != '\0', !injected);
	}
	ring_free(ring);
	spool_free(spool);
}
END_TEST

START_TEST(a_cut_ring_is_opened_or_memory_is_short)
{
	struct ring_damage state;
	struct ring *ring = NULL;
	bool injected = true;

	ck_assert_int_eq(truncate(ring_path, SIZE - PAGE), 0);
	for (long n = 1; injected; n++) {
		int rc;

		torture_arm(n);
		rc = ring_open_damaged(ring_path, &ring, &state);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
	}
	ck_assert_uint_eq(state.missing_bytes, PAGE);
	ck_assert_uint_eq(state.unreadable_bytes, 0);
	ring_free(ring);
}
END_TEST

Suite *recovering_suite(void)
{
	Suite *suite = suite_create("recovering");
	TCase *tcase = tcase_create("recovering");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, all_that_it_holds_is_saved);
	tcase_add_test(tcase, json_says_the_same);
	tcase_add_test(tcase, only_the_last_part_is_saved_if_asked_for);
	tcase_add_test(tcase, a_damaged_page_is_named_and_the_rest_saved);
	tcase_add_test(tcase, what_is_left_of_a_file_that_was_cut_off_is_saved);
	tcase_add_test(tcase, a_ring_in_use_is_refused_unless_it_is_meant);
	tcase_add_test(tcase, a_reader_of_the_ring_takes_no_lock_and_is_told_so);
	tcase_add_test(tcase, a_ring_that_is_written_meanwhile_ends_where_it_was);
	tcase_add_test(tcase, the_ring_goes_if_that_is_asked_for);
	tcase_add_test(tcase, one_that_ended_in_good_order_can_be_saved_too);
	tcase_add_test(tcase, what_is_no_ring_is_refused);
	tcase_add_test(tcase, without_memory_nothing_half_is_left);
	tcase_add_test(tcase, a_cut_ring_is_opened_or_memory_is_short);
	suite_add_tcase(suite, tcase);
	return suite;
}
