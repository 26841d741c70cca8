/*
 * check_incident_worker.c: the order in which the worker takes its jobs, what it may take in the
 * middle of another, and what a work waits for before it is sealed. The recording of all targets:
 * past and present of the window, no more than that, and what was missed is counted. What has no samples
 * on a disk that is full.
 */
#include "daemon/engine/incident/incident_worker.c"

#include "ring_fixture.h"
#include "lib/incident/manifest.h"
#include "scene.h"
#include "skip.h"
#include "torture.h"

#include <check.h>
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

Suite *incident_worker_suite(void);

static struct job_queue queue;
static struct incident_work works[6];
static struct job *jobs[6];

static void setup(void)
{
	queue_init(&queue);
	for (int i = 0; i < 6; i++) {
		works[i] = (struct incident_work){ .seal = { .kind = JOB_SEAL, .work = &works[i] } };
		jobs[i] = &works[i].seal;
	}
}

static void teardown(void)
{
	queue_release(&queue);
}

/* The number of the next one; -1: there is none, and it is the end. */
static int next(void)
{
	struct clock clock = real_clock();
	struct job *job = NULL;
	int r = queue_next(&queue, &clock, (mono_t){ 0 }, &job);

	ck_assert_int_ne(r, QUEUE_DUE);

	return r == 0 ? (int)(job->work - works) : -1;
}

static mono_t now_of_test(void)
{
	struct clock clock = real_clock();

	return clock_mono(&clock);
}

START_TEST(what_is_urgent_comes_before_what_was_put_earlier)
{
	queue_put(&queue, jobs[0], JOB_LAST);
	queue_put(&queue, jobs[1], JOB_URGENT);
	queue_put(&queue, jobs[2], JOB_LAST);
	queue_put(&queue, jobs[3], JOB_URGENT);
	queue_put(&queue, jobs[4], JOB_FIRST);
	queue_stop(&queue);
	ck_assert_int_eq(next(), 4);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(next(), 3);
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), 2);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(what_comes_last_is_last_also_behind_urgent_ones_that_were_alone)
{
	queue_put(&queue, jobs[0], JOB_URGENT);
	queue_put(&queue, jobs[1], JOB_LAST);
	queue_put(&queue, jobs[2], JOB_URGENT);
	queue_put(&queue, jobs[3], JOB_LAST);
	queue_stop(&queue);
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), 2);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(next(), 3);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(what_is_queued_is_not_queued_twice)
{
	queue_put(&queue, jobs[0], JOB_URGENT);
	queue_put(&queue, jobs[0], JOB_URGENT);
	ck_assert_int_eq(next(), 0);
	queue_put(&queue, jobs[0], JOB_URGENT);
	queue_stop(&queue);
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(in_the_middle_of_another_only_urgent_ones_are_taken)
{
	ck_assert_ptr_null(queue_next_urgent(&queue, now_of_test()));
	queue_put(&queue, jobs[0], JOB_LAST);
	ck_assert_ptr_null(queue_next_urgent(&queue, now_of_test()));
	queue_put(&queue, jobs[1], JOB_URGENT);
	ck_assert_ptr_eq(queue_next_urgent(&queue, now_of_test()), jobs[1]);
	ck_assert_ptr_null(queue_next_urgent(&queue, now_of_test()));
	ck_assert(!queue_stopping(&queue));
	queue_stop(&queue);
	ck_assert(queue_stopping(&queue));
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(a_work_is_sealed_when_it_was_handed_over_and_waits_for_nothing)
{
	work_await(&queue, &works[0]);
	work_await(&queue, &works[0]);
	work_hand_over(&queue, &works[0]);
	work_finished(&queue, &works[0]);
	ck_assert_ptr_null(queue.first);
	work_finished(&queue, &works[0]);
	ck_assert_ptr_eq(queue.first, jobs[0]);
	ck_assert_ptr_null(queue_next_urgent(&queue, now_of_test())); /* sealing can wait */
	work_hand_over(&queue, &works[1]);                            /* waits for nothing */
	work_await(&queue, &works[2]);
	work_finished(&queue, &works[2]); /* not handed over yet */
	work_hand_over(&queue, &works[2]);
	queue_stop(&queue);
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(next(), 2);
	ck_assert_int_eq(next(), -1);
}
END_TEST

/* 1 and 2: users; 0: root. */
static void put_of(int number, uint64_t owner, enum job_order order)
{
	works[number].owner = owner;
	queue_put(&queue, jobs[number], order);
}

START_TEST(root_comes_first_and_then_the_user_who_has_taken_least)
{
	queue_charge(&queue, 1, 2 * NS_PER_S, now_of_test());
	queue_charge(&queue, 2, NS_PER_S, now_of_test());
	put_of(0, 1, JOB_LAST);
	put_of(1, 1, JOB_LAST);
	put_of(2, 2, JOB_LAST);
	put_of(3, 2, JOB_LAST);
	put_of(4, 0, JOB_LAST);
	put_of(5, 1, JOB_URGENT); /* nothing is urgent for another's sake */
	queue_stop(&queue);
	ck_assert_int_eq(next(), 5);
	ck_assert_int_eq(next(), 4);
	ck_assert_int_eq(next(), 2);
	queue_charge(&queue, 2, 2 * NS_PER_S, now_of_test());
	ck_assert_int_eq(next(), 0);
	ck_assert_int_eq(next(), 1);
	ck_assert_int_eq(next(), 3);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(urgent_jobs_have_turns_too)
{
	queue_charge(&queue, 1, NS_PER_S, now_of_test());
	put_of(0, 1, JOB_URGENT);
	put_of(1, 1, JOB_URGENT);
	put_of(2, 2, JOB_URGENT);
	put_of(3, 0, JOB_LAST);
	ck_assert_ptr_eq(queue_next_urgent(&queue, now_of_test()), jobs[2]);
	ck_assert_ptr_eq(queue_next_urgent(&queue, now_of_test()), jobs[0]);
	ck_assert_ptr_eq(queue_next_urgent(&queue, now_of_test()), jobs[1]);
	ck_assert_ptr_null(queue_next_urgent(&queue, now_of_test()));
	put_of(4, 1, JOB_LAST); /* behind the last, also when that was taken out of the middle */
	queue_stop(&queue);
	ck_assert_int_eq(next(), 3);
	ck_assert_int_eq(next(), 4);
	ck_assert_int_eq(next(), -1);
}
END_TEST

START_TEST(time_that_was_taken_is_forgotten_and_bounded)
{
	mono_t now = now_of_test();

	queue_charge(&queue, 1, 3600 * NS_PER_S, now);
	ck_assert_uint_eq(queue_used(&queue, 1, now), TURN_MAX_NS);
	ck_assert_uint_eq(queue_used(&queue, 1, mono_add(now, 20 * NS_PER_S)), TURN_MAX_NS - 10 * NS_PER_S);
	ck_assert_uint_eq(queue_used(&queue, 1, mono_add(now, 3600 * NS_PER_S)), 0);
	for (uint64_t user = 2; user < 1000; user++)
		queue_charge(&queue, user, NS_PER_S, now);
	ck_assert_uint_eq(queue_used(&queue, 1, now), TURN_MAX_NS); /* who has taken most is not forgotten */
	ck_assert_uint_eq(queue_used(&queue, 999, now), NS_PER_S);
	ck_assert_uint_eq(queue_used(&queue, 0, now), 0);
}
END_TEST

/* Stacks are named for as long as they take, unless a seal of another waits that comes before. */
START_TEST(naming_gives_way_to_the_seals_of_others)
{
	static struct incident_worker worker;
	mono_t now;

	worker = (struct incident_worker){ .clock = real_clock(), .charged = 1 };
	queue_init(&worker.queue);
	worker.charged_since = worker.naming_since = mono_sub(now_of_test(), NAMING_NS + NS_PER_S);
	ck_assert_ptr_null(while_naming(&worker));
	works[0].owner = works[1].owner = 1;
	queue_put(&worker.queue, jobs[0], JOB_LAST);
	ck_assert_ptr_null(while_naming(&worker)); /* another of the same user */
	works[1].owner = 2;
	queue_put(&worker.queue, jobs[1], JOB_LAST);
	ck_assert_str_eq(while_naming(&worker), "incidents of others were waiting");
	ck_assert_ptr_null(while_naming(&worker)); /* the same stacks, without names */

	now = now_of_test();
	worker.naming_since = mono_sub(now, 2 * NAMING_LITTLE_NS);
	ck_assert_ptr_null(while_naming(&worker));
	queue_charge(&worker.queue, 1, 2 * NAMING_MUCH_NS, now);
	ck_assert_ptr_nonnull(while_naming(&worker));

	worker.naming_since = mono_sub(now, 2 * NAMING_NS);
	worker.charged = 0;
	ck_assert_ptr_null(while_naming(&worker)); /* root's are named to the end */
	queue_release(&worker.queue);
}
END_TEST

START_TEST(a_stop_is_due_at_once_for_what_was_to_come_later)
{
	struct clock clock = real_clock();
	mono_t later = mono_add(clock_mono(&clock), 3600 * NS_PER_S);
	struct job *job;

	ck_assert_int_eq(queue_next(&queue, &clock, clock_mono(&clock), &job), QUEUE_DUE);
	queue_put(&queue, jobs[0], JOB_LAST);
	ck_assert_int_eq(queue_next(&queue, &clock, later, &job), 0);
	queue_stop(&queue);
	ck_assert_int_eq(queue_next(&queue, &clock, later, &job), QUEUE_DUE);
	ck_assert_int_eq(next(), -1);
}
END_TEST

/* ---- all targets into a file ---- */

#define TARGETS 3u

static struct ring *ring;
static struct ring_writer *writer;
static struct fixture_target targets[TARGETS];

static void write_ticks(uint64_t from, uint64_t to)
{
	for (uint64_t tick = from; tick < to; tick++)
		ck_assert_int_eq(fixture_tick(writer, targets, TARGETS, tick), 0);
}

#define FIRED 60 /* tick */
#define BEFORE_TICKS 20
#define AFTER_TICKS 30

static char directory[64];
static int dirfd_of_test;
static struct sample_window_coverage coverage;
static uint64_t bytes;

static void set_up_file(void)
{
	scene_directory(directory);
	dirfd_of_test = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ring = fixture_ring(64);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	for (uint32_t i = 0; i < TARGETS; i++)
		fixture_target_init(&targets[i], i + 1);
}

static void tear_down_file(void)
{
	ring_writer_free(writer);
	ring_free(ring);
	close(dirfd_of_test);
	scene_remove(directory);
}

static struct full_recording_options usual(void)
{
	return (struct full_recording_options){
		.ring = ring,
		.fired = fixture_time(FIRED),
		.wall = fixture_wall(FIRED),
		.before_ns = BEFORE_TICKS * NS_PER_MS,
		.after_ns = AFTER_TICKS * NS_PER_MS,
	};
}

static struct full_recording *opened(void)
{
	struct full_recording_options options = usual();
	struct full_recording *full_recording = NULL;

	ck_assert_int_eq(full_recording_open(&options, dirfd_of_test, &full_recording), 0);

	return full_recording;
}

static bool is_there(void)
{
	return faccessat(dirfd_of_test, INCIDENT_SAMPLES_FILE, F_OK, 0) == 0;
}

START_TEST(the_window_is_there_and_nothing_else)
{
	struct full_recording *full_recording;
	struct scene_rows rows;

	write_ticks(0, FIRED + 1);
	full_recording = opened();
	for (uint64_t tick = FIRED + 1; tick < FIRED + 100; tick += 7) {
		write_ticks(tick, tick + 7);
		ck_assert_int_eq(full_recording_follow(full_recording), 0);
	}
	ck_assert_int_eq(full_recording_close(full_recording, false, &coverage, &bytes), 0);
	rows = scene_rows(directory, INCIDENT_SAMPLES_FILE);
	ck_assert_uint_eq(coverage.ticks_got, BEFORE_TICKS + 1 + AFTER_TICKS);
	ck_assert_uint_eq(coverage.ticks_expected, BEFORE_TICKS + AFTER_TICKS);
	ck_assert_uint_eq(coverage.samples, rows.count);
	ck_assert_uint_eq(rows.count, TARGETS * (BEFORE_TICKS + 1 + AFTER_TICKS));
	ck_assert_int_eq(coverage.got_from_ns, -BEFORE_TICKS * (int64_t)NS_PER_MS);
	ck_assert_int_eq(coverage.got_to_ns, AFTER_TICKS * (int64_t)NS_PER_MS);
	ck_assert_double_eq(coverage.capture_rate, 1);
	ck_assert_uint_eq(coverage.lost_pages + coverage.gaps + coverage.samples_dropped, 0);
	ck_assert_uint_lt(rows.first_ns, NS_PER_MS);
}
END_TEST

/* Slots from 10 after the firing on have no ticks; the next one comes after the end of the window. */
START_TEST(a_hole_at_the_end_of_the_window_is_in_the_capture_rate)
{
	struct full_recording *full_recording;

	write_ticks(0, FIRED + 1);
	full_recording = opened();
	write_ticks(FIRED + 1, FIRED + 11);
	ck_assert_int_eq(ring_tick_begin(writer, fixture_time(FIRED + 60), fixture_wall(FIRED + 60), 0), 0);
	ck_assert_int_eq(ring_put_hole(writer, 49, 0), 0);
	ring_tick_end(writer, NULL);
	write_ticks(FIRED + 61, FIRED + 70);
	ck_assert_int_eq(full_recording_close(full_recording, false, &coverage, &bytes), 0);
	ck_assert_uint_eq(coverage.ticks_got, BEFORE_TICKS + 1 + 10);
	ck_assert_uint_eq(coverage.holes, 1);
	ck_assert_int_eq(coverage.got_to_ns, 10 * (int64_t)NS_PER_MS);
	ck_assert_double_eq_tol(coverage.capture_rate, (BEFORE_TICKS + 1 + 10.0) / (BEFORE_TICKS + 1 + AFTER_TICKS),
				1e-9);
}
END_TEST

/* No tick comes again; then how much is missing is in the coverage, unless the daemon's end cut the window short. */
START_TEST(a_window_that_is_over_before_ticks_come_again_ends_in_a_hole)
{
	struct full_recording_options options = usual();
	struct full_recording *full_recording;
	bool over = _i > 0;

	options.after_ns = 400 * NS_PER_MS;
	write_ticks(0, FIRED + 51);
	ck_assert_int_eq(full_recording_open(&options, dirfd_of_test, &full_recording), 0);
	ck_assert_int_eq(full_recording_close(full_recording, over, &coverage, &bytes), 0);
	ck_assert_uint_eq(coverage.ticks_got, BEFORE_TICKS + 1 + 50);
	ck_assert_uint_eq(coverage.holes, over ? 1 : 0);
	ck_assert_uint_eq(coverage.missed_slots, over ? 350 : 0);
	ck_assert_double_eq_tol(coverage.capture_rate, over ? (BEFORE_TICKS + 1 + 50.0) / (BEFORE_TICKS + 1 + 400) : 1,
				1e-9);
}
END_TEST

/* The first one ticks on, so that only the other one's rate says what is missing. */
START_TEST(of_several_writers_the_coverage_is_that_of_the_one_that_missed_most)
{
	struct full_recording *full_recording;
	struct ring_writer *second;

	ck_assert_int_eq(ring_writer_new(ring, &second), 0);
	for (uint64_t tick = 0; tick <= FIRED + AFTER_TICKS; tick++) {
		ck_assert_int_eq(fixture_tick(writer, targets, 1, tick), 0);
		if (tick % 4 == 0)
			ck_assert_int_eq(fixture_tick(second, targets + 1, 1, tick), 0);
	}
	full_recording = opened();
	ck_assert_int_eq(full_recording_close(full_recording, true, &coverage, &bytes), 0);
	ring_writer_free(second);
	ck_assert_uint_eq(coverage.ticks_got, 13); /* from 40 to 88 */
	ck_assert_double_eq_tol(coverage.capture_rate, 13.0 / 49, 1e-9);
	ck_assert_uint_eq(coverage.holes, 0);
}
END_TEST

START_TEST(the_past_is_in_the_file_before_it_is_closed)
{
	struct full_recording *full_recording;
	char path[128];

	write_ticks(0, FIRED + 1);
	full_recording = opened();
	/* The ring forgets it all. */
	write_ticks(FIRED + 1, FIRED + 5000);
	snprintf(path, sizeof(path), "%s/%s", directory, INCIDENT_SAMPLES_FILE);
	ck_assert_uint_eq(scene_stream_reader(path, NULL).rows, TARGETS * (BEFORE_TICKS + 1));
	ck_assert_int_eq(full_recording_close(full_recording, false, &coverage, &bytes), 0);
	ck_assert_uint_ge(coverage.ticks_got, BEFORE_TICKS + 1);
	ck_assert_uint_gt(coverage.lost_pages, 0);
	ck_assert_uint_gt(coverage.gaps, 0);
	scene_rows(directory, INCIDENT_SAMPLES_FILE);
}
END_TEST

START_TEST(a_past_that_the_ring_has_forgotten_is_not_claimed)
{
	write_ticks(0, FIRED + 5000);

	struct full_recording *full_recording = opened();

	ck_assert_int_eq(full_recording_close(full_recording, false, &coverage, &bytes), 0);
	ck_assert_uint_eq(coverage.ticks_got, 0);
	ck_assert_uint_eq(coverage.samples, 0);
	ck_assert_double_eq(coverage.capture_rate, 0);
	ck_assert_uint_eq(scene_rows(directory, INCIDENT_SAMPLES_FILE).count, 0);
}
END_TEST

START_TEST(the_file_is_bounded_and_what_is_left_out_is_counted)
{
	struct full_recording_options options = usual();
	struct full_recording *full_recording;

	options.max_bytes = 12000;
	write_ticks(0, FIRED + AFTER_TICKS + 1);
	uint64_t foretold = 0;

	ck_assert_int_eq(full_recording_bytes(&options, false, &foretold), 0);
	ck_assert_int_eq(full_recording_open(&options, dirfd_of_test, &full_recording), 0);
	ck_assert_int_eq(full_recording_close(full_recording, false, &coverage, &bytes), 0);
	ck_assert_uint_gt(coverage.samples, 0);
	ck_assert_uint_gt(coverage.samples_dropped, 0);
	ck_assert_uint_eq(coverage.samples + coverage.samples_dropped, TARGETS * (BEFORE_TICKS + 1 + AFTER_TICKS));
	ck_assert_uint_lt(bytes, 16000);
	ck_assert_uint_eq(bytes, foretold);
	ck_assert_uint_eq(scene_rows(directory, INCIDENT_SAMPLES_FILE).count, coverage.samples);
}
END_TEST

START_TEST(a_file_that_cannot_be_written_to_its_end_is_not_left)
{
	struct rlimit before, limit;
	rlim_t room = 0;
	int r = -1;

	signal(SIGXFSZ, SIG_IGN);
	write_ticks(0, FIRED + 1);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	for (; r != 0; room += 500) {
		struct full_recording_options options = usual();
		struct full_recording *full_recording = NULL;

		limit = (struct rlimit){ room, before.rlim_max };
		ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
		r = full_recording_open(&options, dirfd_of_test, &full_recording);
		if (r == 0)
			r = full_recording_close(full_recording, false, &coverage, &bytes);
		ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &before), 0);
		ck_assert(r == 0 || r == -EFBIG);
		ck_assert(is_there() == (r == 0));
		ck_assert_uint_lt(room, 1000000);
	}
	ck_assert_uint_gt(room, 2000);
	scene_rows(directory, INCIDENT_SAMPLES_FILE);
}
END_TEST

START_TEST(an_abort_leaves_no_file)
{
	write_ticks(0, FIRED + 1);

	struct full_recording *full_recording = opened();

	ck_assert(is_there());
	full_recording_abort(full_recording);
	ck_assert(!is_there());
	full_recording_abort(NULL);
}
END_TEST

START_TEST(every_allocation_of_a_recording_may_fail)
{
	bool injected = true;

	write_ticks(0, FIRED + 1);
	for (long n = 1; injected; n++) {
		struct full_recording_options options = usual();
		struct full_recording *full_recording = NULL;
		int r;

		torture_arm(n);
		r = full_recording_open(&options, dirfd_of_test, &full_recording);
		if (r == 0)
			r = full_recording_close(full_recording, false, &coverage, &bytes);
		injected = torture_disarm();
		ck_assert(injected || r == 0);
		ck_assert(r == 0 || r == -ENOMEM);
		ck_assert(is_there() == (r == 0));
		if (r == 0)
			ck_assert_int_eq(unlinkat(dirfd_of_test, INCIDENT_SAMPLES_FILE, 0), 0);
	}
}
END_TEST

/* ---- a full disk: a small one in memory, in a namespace of its own ---- */

#define PAGE 4096u
#define OLD_BYTES (64 * PAGE)

static struct config *config;
static struct session *session;
static struct spool *spool;
static struct incident_worker *sealing;
static struct scene_log said;

static bool mount_disk(void)
{
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", directory, "tmpfs", 0, "size=1m,nr_inodes=64,mode=0750") < 0)
		return skip_because("needs root and a mount namespace");
	return true;
}

static void start_sealing(void)
{
	const struct retention_limits limits = { .min_free_bytes = 16 * PAGE };

	said = scene_log_catch();
	config = scene_config("{\"ring\": {\"size\": \"1MiB\", \"lock\": false}, \"stacks\": \"off\","
			      "\"targets\": [{\"name\": \"self\", \"pid\": %d}], \"rules\": []}",
			      getpid());
	ck_assert_int_eq(spool_open(directory, &limits, &spool, NULL), 0);
	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	ck_assert_int_eq(incident_worker_new(session, spool, NULL, 0, &sealing), 0);
}

static void stop_sealing(void)
{
	incident_worker_free(sealing);
	session_free(session);
	spool_free(spool);
	config_free(config);
	scene_log_release(&said);
	ck_assert_int_eq(umount2(directory, MNT_DETACH), 0);
}

/* Returns when it is sealed, or was given up, and limits were kept. */
static void record_one(const char *rule, double severity, size_t len)
{
	struct incident *info = calloc(1, sizeof *info);
	struct incident_worker_counts before = incident_worker_counts(sealing), now;
	AUTO(buffer_release) struct buffer text = { 0 };

	incident_init(info, "1");
	info->kind = INCIDENT_STORM;
	info->wall.ns = NS_PER_S;
	info->rule.severity = severity;
	incident_text(info->rule.name, sizeof info->rule.name, rule);
	incident_text(info->target.name, sizeof info->target.name, "many");
	while (text.len < len)
		ck_assert_int_eq(buffer_append(&text, "x", 1), 0);
	ck_assert_int_eq(incident_worker_record(sealing, info, INCIDENT_STORM_FILE, &text, NULL), 0);
	scene_wait_for(
		(now = incident_worker_counts(sealing), now.sealed + now.failed > before.sealed + before.failed) &&
		incident_worker_busy_since(sealing).ns == 0);
}

/* Whether it is there, and then whole. */
static bool read_sealed(const char *rule, struct incident *ret)
{
	DIR *dir = opendir(directory);
	bool found = false;

	for (struct dirent *item; !found && (item = readdir(dir));) {
		if (!strstr(item->d_name, rule))
			continue;
		ck_assert_ptr_null(strstr(item->d_name, SPOOL_DIRECTORY_SUFFIX));
		int fd = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
		ck_assert_int_eq(incident_json_read(fd, ret), 0);
		close(fd);
		found = true;
	}
	closedir(dir);

	return found;
}

/* Leaves so many pages; no inodes: not even empty files can be made. */
static void fill(unsigned pages, bool inodes)
{
	char name[300], page[PAGE] = { 1 };
	off_t len = 0;
	int fd, files = 0;

	snprintf(name, sizeof name, "%s/filler", directory);
	fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	for (; write(fd, page, sizeof page) == (ssize_t)sizeof page; len += PAGE)
		;
	ck_assert_int_eq(errno, ENOSPC);
	ck_assert_int_eq(ftruncate(fd, len - (off_t)pages * PAGE), 0);
	for (; !inodes && fd >= 0; files++) {
		close(fd);
		snprintf(name, sizeof name, "%s/filler-%d", directory, files);
		fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	}
	ck_assert(inodes || errno == ENOSPC);
	if (fd >= 0)
		close(fd);
}

/* What there is no room for: the directory, its only file, incident.json, MANIFEST. */
START_TEST(retention_makes_room_for_what_has_no_samples)
{
	struct incident incident;

	if (!mount_disk())
		SKIP_TEST("%s", skip_why());
	start_sealing();
	record_one("old", 1, OLD_BYTES);
	record_one("severe", 5, 100);
	ck_assert(read_sealed("old", &incident) && read_sealed("severe", &incident));
	fill(_i > 0 ? (unsigned)_i - 1 : 0, _i > 0);
	record_one("next", 3, 100);
	ck_assert_uint_eq(incident_worker_counts(sealing).failed, 0);
	ck_assert(read_sealed("next", &incident));
	ck_assert_uint_eq(incident.capture_count, 1);
	ck_assert_int_eq(incident.captures[0].status, INCIDENT_CAPTURE_OK);
	ck_assert_uint_eq(incident.captures[0].bytes, 100);
	ck_assert(read_sealed("severe", &incident));
	ck_assert(!read_sealed("old", &incident));
	stop_sealing();
}
END_TEST

START_TEST(a_storm_whose_rows_do_not_fit_is_sealed_without_them)
{
	struct incident incident;

	if (!mount_disk())
		SKIP_TEST("%s", skip_why());
	start_sealing();
	fill(8, true);
	record_one("next", 3, OLD_BYTES);
	ck_assert_uint_eq(incident_worker_counts(sealing).sealed, 1);
	ck_assert(read_sealed("next", &incident));
	ck_assert_int_eq(incident.kind, INCIDENT_STORM);
	ck_assert_uint_eq(incident.capture_count, 1);
	ck_assert_str_eq(incident.captures[0].name, "storm");
	ck_assert_int_eq(incident.captures[0].status, INCIDENT_CAPTURE_FAILED);
	ck_assert_str_eq(incident.captures[0].why, "No space left on device");
	ck_assert_str_eq(incident.captures[0].file, "");
	stop_sealing();
}
END_TEST

static void set_up_disk(void)
{
	scene_directory(directory);
}

static void tear_down_disk(void)
{
	scene_remove(directory);
}

Suite *incident_worker_suite(void)
{
	Suite *suite = suite_create("incident_worker");
	TCase *tcase = tcase_create("queue"), *file = tcase_create("file"), *small = tcase_create("disk");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_is_urgent_comes_before_what_was_put_earlier);
	tcase_add_test(tcase, what_comes_last_is_last_also_behind_urgent_ones_that_were_alone);
	tcase_add_test(tcase, what_is_queued_is_not_queued_twice);
	tcase_add_test(tcase, in_the_middle_of_another_only_urgent_ones_are_taken);
	tcase_add_test(tcase, a_work_is_sealed_when_it_was_handed_over_and_waits_for_nothing);
	tcase_add_test(tcase, root_comes_first_and_then_the_user_who_has_taken_least);
	tcase_add_test(tcase, urgent_jobs_have_turns_too);
	tcase_add_test(tcase, time_that_was_taken_is_forgotten_and_bounded);
	tcase_add_test(tcase, naming_gives_way_to_the_seals_of_others);
	tcase_add_test(tcase, a_stop_is_due_at_once_for_what_was_to_come_later);
	suite_add_tcase(suite, tcase);

	tcase_add_checked_fixture(file, set_up_file, tear_down_file);
	tcase_add_test(file, the_window_is_there_and_nothing_else);
	tcase_add_test(file, a_hole_at_the_end_of_the_window_is_in_the_capture_rate);
	tcase_add_loop_test(file, a_window_that_is_over_before_ticks_come_again_ends_in_a_hole, 0, 2);
	tcase_add_test(file, of_several_writers_the_coverage_is_that_of_the_one_that_missed_most);
	tcase_add_test(file, the_past_is_in_the_file_before_it_is_closed);
	tcase_add_test(file, a_past_that_the_ring_has_forgotten_is_not_claimed);
	tcase_add_test(file, the_file_is_bounded_and_what_is_left_out_is_counted);
	tcase_add_test(file, a_file_that_cannot_be_written_to_its_end_is_not_left);
	tcase_add_test(file, an_abort_leaves_no_file);
	tcase_add_test(file, every_allocation_of_a_recording_may_fail);
	suite_add_tcase(suite, file);

	tcase_add_checked_fixture(small, set_up_disk, tear_down_disk);
	tcase_add_loop_test(small, retention_makes_room_for_what_has_no_samples, 0, 4);
	tcase_add_test(small, a_storm_whose_rows_do_not_fit_is_sealed_without_them);
	suite_add_tcase(suite, small);

	return suite;
}
