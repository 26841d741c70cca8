/*
 * check_minute_log.c: what a minute says of what the ring told, and what becomes of its files when
 * they are full, old, torn, in the way, and when the daemon is killed at any step of writing them.
 */
#include "daemon/service/minutes/minute_log.h"

#include "daemon/engine/base/clocks.h"
#include "lib/base/io.h"
#include "lib/incident/incident.h"
#include "lib/minutes/minute_file.h"
#include "scene.h"
#include "torture.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/file.h>
#include <sys/stat.h>

Suite *minute_log_suite(void);

/* A disk that has room for so many bytes: what goes beyond is written in part. */
static _Atomic long disk_room = LONG_MAX;

static int write_to_disk(int fd, const void *data, size_t len)
{
	long room = atomic_load(&disk_room);
	int r = sink_write_all(fd, data, (long)len > room ? (size_t)room : len);

	return r == 0 && (long)len > room ? -ENOSPC : r;
}

#define sink_write_all write_to_disk
#include "daemon/service/minutes/minute_log.c"
#undef sink_write_all

#define BEGIN_S 1763899980ull /* a whole minute */
#define TICK_NS (100 * NS_PER_MS)

static char directory[64], history[96];
static struct config config;
static struct minute_log *minute_log;
static uint64_t now_ns; /* since the begin */

static void setup(void)
{
	scene_directory(directory);
	snprintf(history, sizeof(history), "%s/history", directory);
	config = (struct config){
		.history = { .enabled = true, .max_bytes = 1 << 30, .max_age_ns = UINT64_MAX, .max_targets = 300 }
	};
	now_ns = 0;
	minute_log = NULL;
}

static void stop(void)
{
	struct clock clock = real_clock();

	minute_log_close(TAKE(minute_log), mono_add(clock_mono(&clock), 10 * NS_PER_S));
}

static void teardown(void)
{
	stop();
	scene_remove(directory);
}

static void start(void)
{
	ck_assert_int_eq(minute_log_open(history, &config, &minute_log), 0);
}

/* ---- what the ring tells ---- */

static mono_t mono_now(void)
{
	return (mono_t){ 1000 * NS_PER_S + now_ns };
}

static void tell(struct ring_event event)
{
	event.time = mono_now();
	minute_log_event(minute_log, &event);
}

static void tell_tick(void)
{
	tell((struct ring_event){ .type = RING_EVENT_TICK, .wall = { BEGIN_S * NS_PER_S + now_ns } });
}

static void tell_target(uint32_t id, const char *name)
{
	tell((struct ring_event){ .type = RING_EVENT_TARGET,
				  .id = id,
				  .target = { .id = id,
					      .kind = TARGET_PROCESS,
					      .name = name,
					      .entry = "work",
					      .key = "",
					      .comm = "worker",
					      .cmdline = "",
					      .cgroup = "" } });
}

static void tell_sample(uint32_t id, uint64_t cpu_ns, uint64_t memory)
{
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, cpu_ns);
	sample_set(&sample, SAMPLE_MEMORY, memory);
	tell((struct ring_event){ .type = RING_EVENT_SAMPLE, .id = id, .sample = &sample });
}

/* Ticks until then, in which one target uses so much of a core. */
static void run(uint64_t until_ns, double cores, uint64_t *cpu_ns, uint64_t memory)
{
	for (; now_ns < until_ns; now_ns += TICK_NS) {
		tell_tick();
		*cpu_ns += (uint64_t)(cores * TICK_NS);
		tell_sample(1, *cpu_ns, memory);
	}
}

/* Minutes with a row each. */
static void run_minutes(size_t count)
{
	static uint64_t cpu_ns;
	uint64_t period_ns = config.minute_ns ? config.minute_ns : 60 * NS_PER_S;

	for (size_t i = 0; i < count; i++) {
		tell_tick();
		tell_target(1, "work/1");
		tell_sample(1, cpu_ns += NS_PER_MS, 4096);
		now_ns += period_ns;
	}
	tell_tick();
}

static struct minute_log_state state(void)
{
	struct minute_log_state ret;

	minute_log_state(minute_log, &ret);
	return ret;
}

/* ---- what is there ---- */

#define MINUTES_MAX 20000

static struct minute_block held[MINUTES_MAX];
static const struct minute *read_minutes[MINUTES_MAX];
static size_t held_count, minute_count, file_count, packed_files, damaged_bytes;
static uint64_t bytes_of_files;
static char names[400][64];

static int note_name(void *ctx, const char *name)
{
	(void)ctx;
	if (strcmp(name, PATHS_LOCK) == 0)
		return 0;
	ck_assert_msg(name[0] != '.', "%s was left behind", name);
	snprintf(names[file_count++], sizeof(names[0]), "%s", name);
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void forget(void)
{
	for (size_t i = 0; i < held_count; i++)
		minute_block_release(&held[i]);
	held_count = minute_count = file_count = packed_files = damaged_bytes = 0;
	bytes_of_files = 0;
}

static void read_file(int dirfd, const char *name)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct minute_scan scan = { 0 };
	int r;

	ck_assert_int_eq(whole_file_read(dirfd, name, &text), 0);
	bytes_of_files += text.len;
	scan.data = text.data;
	scan.len = text.len;
	while ((r = minute_block_next(&scan, &held[held_count])) != MINUTE_END) {
		ck_assert_int_ge(r, 0);
		if (r != 0)
			continue;
		ck_assert_uint_le(minute_count + held[held_count].count, MINUTES_MAX);
		packed_files += held[held_count].packed && scan.blocks == 1;
		for (size_t i = 0; i < held[held_count].count; i++)
			read_minutes[minute_count++] = &held[held_count].minutes[i];
		held_count++;
	}
	damaged_bytes += scan.damaged_bytes;
}

static void read_all(void)
{
	int dirfd = open(history, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	forget();
	ck_assert_int_ge(dirfd, 0);
	ck_assert_int_eq(directory_list_each(dirfd, note_name, NULL), 0);
	qsort(names, file_count, sizeof(names[0]), compare_names);
	for (size_t i = 0; i < file_count; i++)
		read_file(dirfd, names[i]);
	close(dirfd);
}

static const struct minute_row *find_row(size_t minute, const char *name)
{
	for (size_t i = 0; i < read_minutes[minute]->row_count; i++)
		if (strcmp(read_minutes[minute]->rows[i].name, name) == 0)
			return &read_minutes[minute]->rows[i];
	ck_abort_msg("minute %zu has no %s", minute, name);
	return NULL;
}

/* ---- sums ---- */

START_TEST(a_minute_has_mean_peak_memory_and_incidents)
{
	uint64_t cpu_ns = 5 * NS_PER_S;
	const struct minute_row *row;

	start();
	tell_target(1, "work/1");
	run(20 * NS_PER_S, 0.1, &cpu_ns, 1 << 20);
	run(20 * NS_PER_S + 500 * NS_PER_MS, 1, &cpu_ns, 5 << 20);
	minute_log_incident(minute_log, 1, "20261123T140201.123Z-work_1-cpu");
	minute_log_incident(minute_log, 0, "20261123T140201.500Z-everything-manual");
	run(60 * NS_PER_S, 0.1, &cpu_ns, 2 << 20);
	run(61 * NS_PER_S, 0.1, &cpu_ns, 2 << 20);
	stop();
	read_all();
	ck_assert_uint_eq(minute_count, 2);
	ck_assert_uint_eq(read_minutes[0]->begin.ns, BEGIN_S * NS_PER_S);
	ck_assert_uint_eq(read_minutes[0]->unsampled_ns, 0);
	ck_assert_uint_eq(read_minutes[0]->number, 0);
	ck_assert_uint_eq(read_minutes[1]->number, 1);
	row = find_row(0, "work/1");
	ck_assert_str_eq(row->entry, "work");
	ck_assert_str_eq(row->comm, "worker");
	/* 59.5 s at 0.1 and 0.5 s at 1 */
	ck_assert_uint_ge(row->cpu_ns, 6430 * NS_PER_MS);
	ck_assert_uint_le(row->cpu_ns, 6460 * NS_PER_MS);
	/* half of the second at 1, the rest at 0.1 */
	ck_assert_uint_ge(row->cpu_peak_milli, 500);
	ck_assert_uint_le(row->cpu_peak_milli, 600);
	ck_assert_uint_eq(row->memory_bytes, 5 << 20);
	ck_assert_uint_eq(read_minutes[0]->incident_count, 2);
	ck_assert_uint_eq(read_minutes[0]->incidents[0].row, 0);
	ck_assert_uint_eq(read_minutes[0]->incidents[1].row, MINUTE_NO_ROW);
	row = find_row(1, "work/1");
	ck_assert_uint_eq(row->memory_bytes, 2 << 20);
	ck_assert_uint_le(read_minutes[1]->span_ns, 2 * NS_PER_S);
}
END_TEST

/* Ten seconds of a core while nothing was sampled are a mean, and no peak of ten cores. */
START_TEST(a_hole_makes_no_peak_and_is_said)
{
	uint64_t cpu_ns = 0;
	mono_t before;

	start();
	tell_target(1, "work/1");
	run(20 * NS_PER_S, 0, &cpu_ns, 4096);
	before = (mono_t){ mono_now().ns - TICK_NS };
	now_ns += 10 * NS_PER_S;
	tell_tick();
	tell((struct ring_event){ .type = RING_EVENT_HOLE,
				  .hole = { .from = before, .to = mono_now(), .missed_slots = 99 } });
	tell_sample(1, cpu_ns += 10 * NS_PER_S, 4096);
	run(60 * NS_PER_S, 0, &cpu_ns, 4096);
	tell_tick();
	stop();
	read_all();
	ck_assert_uint_ge(find_row(0, "work/1")->cpu_ns, 9900 * NS_PER_MS);
	ck_assert_uint_le(find_row(0, "work/1")->cpu_peak_milli, 1010);
	ck_assert_uint_ge(read_minutes[0]->unsampled_ns, 9 * NS_PER_S);
	ck_assert_uint_le(read_minutes[0]->unsampled_ns, 11 * NS_PER_S);
}
END_TEST

/* Five minutes stopped: the minutes are missing, and none has what the others used. */
START_TEST(minutes_without_a_tick_are_not_there)
{
	uint64_t cpu_ns = 0;

	start();
	tell_target(1, "work/1");
	run(30 * NS_PER_S, 0.5, &cpu_ns, 4096);
	now_ns += 300 * NS_PER_S;
	cpu_ns += 300 * NS_PER_S;
	run(390 * NS_PER_S, 0.5, &cpu_ns, 4096);
	stop();
	read_all();
	ck_assert_uint_eq(minute_count, 3);
	ck_assert_uint_eq(read_minutes[1]->begin.ns - read_minutes[0]->begin.ns, 300 * NS_PER_S);
	for (size_t i = 0; i < minute_count; i++)
		ck_assert_uint_le(find_row(i, "work/1")->cpu_ns, read_minutes[i]->span_ns / 2 + NS_PER_S);
}
END_TEST

START_TEST(the_targets_beyond_the_limit_are_summed)
{
	const struct minute_row *others;

	config.history.max_targets = 4;
	start();
	tell_tick();
	for (uint32_t id = 1; id <= 100; id++) {
		char name[32];

		snprintf(name, sizeof(name), "work/%u", id);
		tell_target(id, name);
		tell_sample(id, 0, id == 50 ? 1 << 30 : 4096);
	}
	minute_log_incident(minute_log, 7, "20261123T140201.123Z-work_7-cpu");
	now_ns += NS_PER_S;
	tell_tick();
	for (uint32_t id = 1; id <= 100; id++) {
		tell_sample(id, id * NS_PER_MS, id == 50 ? 1 << 30 : 4096);
		if (id % 2 == 0)
			tell((struct ring_event){ .type = RING_EVENT_GONE, .id = id });
	}
	now_ns += 60 * NS_PER_S;
	tell_tick();
	stop();
	read_all();
	ck_assert_uint_eq(read_minutes[0]->row_count, 5);
	find_row(0, "work/7");  /* had the incident */
	find_row(0, "work/99"); /* used most */
	find_row(0, "work/50"); /* had most memory */
	others = find_row(0, "");
	ck_assert_uint_eq(others->kind, MINUTE_OTHERS);
	ck_assert_uint_eq(others->targets, 96);
	/* 1 + ... + 100 ms less those that have a row */
	ck_assert_uint_ge(others->cpu_ns, 5050 * NS_PER_MS - (7 + 50 + 99 + 100) * NS_PER_MS);
}
END_TEST

START_TEST(nothing_is_kept_while_it_is_off)
{
	config.minute_ns = NS_PER_S;
	start();
	run_minutes(3);
	config.history.enabled = false;
	minute_log_reload(minute_log, &config);
	run_minutes(5);
	config.history.enabled = true;
	minute_log_reload(minute_log, &config);
	run_minutes(2);
	stop();
	read_all();
	/* The one that had begun when it was turned off, and the last one, are there too. */
	ck_assert_uint_ge(minute_count, 6);
	ck_assert_uint_le(minute_count, 8);
}
END_TEST

/* ---- files ---- */

/* The thread has all that was handed over; one minute may be pending. */
static void wait_written(uint64_t minutes)
{
	scene_wait_for((tell_tick(), now_ns += NS_PER_S / 4, state().written >= minutes));
}

static void expect_numbers(uint64_t first, size_t count)
{
	ck_assert_uint_ge(minute_count, count);
	for (size_t i = 0; i < count; i++)
		ck_assert_uint_eq(read_minutes[i]->number, first + i);
}

START_TEST(an_hour_is_packed_and_nothing_is_lost)
{
	config.minute_ns = 4 * NS_PER_S;
	start();
	for (int i = 0; i < 13; i++) {
		run_minutes(10);
		wait_written(state().written + state().waiting);
	}
	stop();
	read_all();
	ck_assert_uint_ge(file_count, 2);
	ck_assert_uint_ge(packed_files, 1);
	ck_assert_uint_eq(damaged_bytes, 0);
	expect_numbers(0, 130);
}
END_TEST

START_TEST(the_oldest_are_removed_when_they_are_too_many)
{
	config.minute_ns = 4 * NS_PER_S;
	if (_i == 0)
		config.history.max_bytes = 8000;
	else
		config.history.max_age_ns = 100 * config.minute_ns;
	/* A packed hour of one target takes 600 bytes, the last one, which is not packed, 6,500 at most. */
	start();
	for (int i = 0; i < 60; i++) {
		run_minutes(10);
		wait_written(state().written + state().waiting);
	}
	ck_assert_uint_gt(state().removed, 0);
	stop();
	read_all();
	ck_assert_uint_le(bytes_of_files, _i == 0 ? 8000 : 1 << 20);
	ck_assert_uint_gt(minute_count, 30);
	ck_assert_uint_lt(minute_count, 600);
	expect_numbers(read_minutes[0]->number, minute_count);
	ck_assert_uint_gt(read_minutes[0]->number, 0);
}
END_TEST

START_TEST(what_a_killed_daemon_was_writing_is_cut_off)
{
	char path[160];
	FILE *file;

	config.minute_ns = NS_PER_S;
	start();
	run_minutes(3);
	stop();
	snprintf(path, sizeof(path), "%s/0000000001.minutes", history);
	file = fopen(path, "ae");
	ck_assert_ptr_nonnull(file);
	fputs("SWMINUTE torn in the middle", file);
	fclose(file);
	start();
	run_minutes(2);
	wait_written(1);
	ck_assert_uint_eq(state().torn_bytes, strlen("SWMINUTE torn in the middle"));
	stop();
	read_all();
	ck_assert_uint_eq(file_count, 1);
	ck_assert_uint_eq(damaged_bytes, 0);
	expect_numbers(0, 4);
	ck_assert_uint_eq(read_minutes[4]->number, 0); /* it has begun again */
}
END_TEST

START_TEST(a_full_disk_costs_nothing_once_there_is_room)
{
	config.minute_ns = NS_PER_S;
	start();
	run_minutes(2);
	wait_written(1);
	disk_room = 100;
	run_minutes(10);
	scene_wait_for((tell_tick(), now_ns += NS_PER_S, state().error != 0));
	ck_assert_int_eq(state().error, -ENOSPC);
	ck_assert_uint_gt(state().waiting, 0);
	disk_room = LONG_MAX;
	run_minutes(3);
	scene_wait_for((tell_tick(), now_ns += NS_PER_S, state().error == 0 && state().written > 12));
	ck_assert_uint_eq(state().lost, 0);
	stop();
	read_all();
	ck_assert_uint_eq(damaged_bytes, 0);
	expect_numbers(0, minute_count);
}
END_TEST

START_TEST(what_waits_for_a_disk_is_bounded_and_the_gap_shows)
{
	FILE *file = fopen(history, "we"); /* no directory can be made there */

	fclose(file);
	config.minute_ns = NS_PER_S;
	config.history.max_targets = 2000;
	start();
	for (uint32_t id = 2; id < 2000; id++) {
		char name[64];

		snprintf(name, sizeof(name), "work/%u-of-a-long-name-that-takes-its-room", id);
		tell_target(id, name);
		tell_sample(id, id, 4096);
	}
	scene_wait_for((run_minutes(1), state().lost > 5));
	scene_wait_for(state().error == -ENOTDIR);
	ck_assert_int_eq(unlink(history), 0);
	scene_wait_for((run_minutes(1), state().written > 3));
	stop();
	read_all();
	ck_assert_uint_gt(read_minutes[0]->number, 5); /* the oldest are given up */
}
END_TEST

START_TEST(one_daemon_writes)
{
	struct minute_log *first;

	config.minute_ns = NS_PER_S;
	start();
	run_minutes(2);
	wait_written(1);
	first = minute_log;
	start();
	run_minutes(2);
	scene_wait_for((tell_tick(), now_ns += NS_PER_S, state().error != 0));
	ck_assert_int_eq(state().error, -EBUSY);
	stop();
	minute_log = first;
}
END_TEST

START_TEST(a_lock_of_what_the_group_may_read_keeps_nothing_out)
{
	ck_assert_int_eq(mkdir(history, 0750), 0);

	AUTO_CLOSE int fd = open(history, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(flock(fd, LOCK_EX), 0);
	config.minute_ns = NS_PER_S;
	start();
	run_minutes(2);
	scene_wait_for((tell_tick(), now_ns += NS_PER_S, state().error != 0 || state().written > 0));
	ck_assert_int_eq(state().error, 0);
	stop();
}
END_TEST

START_TEST(files_are_not_for_others)
{
	struct stat st;
	char path[160];

	umask(027);
	config.minute_ns = NS_PER_S;
	start();
	run_minutes(2);
	stop();
	snprintf(path, sizeof(path), "%s/0000000001.minutes", history);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0640);
	snprintf(path, sizeof(path), "%s/.lock", history);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(stat(history, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0750);
}
END_TEST

/* ---- kill -9 ---- */

/* Writes on until the file is packed and the next one has begun; killed before its nth step. True: it was. */
static bool write_killed(long nth)
{
	pid_t pid = fork();
	int status;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (minute_log_open(history, &config, &minute_log) < 0)
			_exit(1);
		torture_kill_at(nth, NULL);
		for (int i = 0; i < 6; i++) {
			uint64_t before = state().written;

			run_minutes(1);
			while (state().written == before && state().error == 0) {
				tell_tick();
				now_ns += NS_PER_S / 4;
				scene_nap();
			}
		}
		torture_kill_at(0, NULL);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
	return WIFSIGNALED(status);
}

/* 57 minutes in a file that is not packed. */
static void write_most_of_an_hour(void)
{
	start();
	run_minutes(56);
	stop();
	read_all();
	ck_assert_uint_eq(minute_count, 57);
}

START_TEST(killed_at_any_step_whole_minutes_stay)
{
	bool killed = true;
	long steps = 0;

	config.minute_ns = 2 * NS_PER_S;
	for (long n = 1; killed; n++) {
		size_t before;

		ck_assert_int_eq(directory_tree_remove(AT_FDCWD, history), 0);
		now_ns = 0;
		write_most_of_an_hour();
		killed = write_killed(n);
		/* The next daemon goes on, and what is there is whole. */
		start();
		run_minutes(2);
		stop();
		read_all();
		before = minute_count;
		ck_assert_uint_ge(before, 57 + 2);
		ck_assert_uint_eq(damaged_bytes, 0);
		expect_numbers(0, 57);
		steps = n;
	}
	ck_assert_int_gt(steps, 15);
	ck_assert_uint_ge(packed_files, 1);
}
END_TEST

Suite *minute_log_suite(void)
{
	Suite *suite = suite_create("minute_log");
	TCase *sums = tcase_create("sums"), *files = tcase_create("files"), *kill9 = tcase_create("kill9");

	tcase_add_checked_fixture(sums, setup, teardown);
	tcase_add_test(sums, a_minute_has_mean_peak_memory_and_incidents);
	tcase_add_test(sums, a_hole_makes_no_peak_and_is_said);
	tcase_add_test(sums, minutes_without_a_tick_are_not_there);
	tcase_add_test(sums, the_targets_beyond_the_limit_are_summed);
	tcase_add_test(sums, nothing_is_kept_while_it_is_off);
	suite_add_tcase(suite, sums);

	tcase_add_checked_fixture(files, setup, teardown);
	tcase_add_test(files, an_hour_is_packed_and_nothing_is_lost);
	tcase_add_loop_test(files, the_oldest_are_removed_when_they_are_too_many, 0, 2);
	tcase_add_test(files, what_a_killed_daemon_was_writing_is_cut_off);
	tcase_add_test(files, a_full_disk_costs_nothing_once_there_is_room);
	tcase_add_test(files, what_waits_for_a_disk_is_bounded_and_the_gap_shows);
	tcase_add_test(files, one_daemon_writes);
	tcase_add_test(files, a_lock_of_what_the_group_may_read_keeps_nothing_out);
	tcase_add_test(files, files_are_not_for_others);
	suite_add_tcase(suite, files);

	tcase_add_checked_fixture(kill9, setup, teardown);
	tcase_add_test(kill9, killed_at_any_step_whole_minutes_stay);
	suite_add_tcase(suite, kill9);

	return suite;
}
