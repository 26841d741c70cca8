/*
 * check_record.c: spikewatch record as it is used: on processes that end, on commands, into pipes
 * without a reader.
 */
#include "program.h"
#include "skip.h"

#include <errno.h>
#include <poll.h>
#include <sys/prctl.h>

Suite *record_suite(void);

static char directory[64], spikewatch[512], output[128];
static bool built;

static void setup(void)
{
	scene_directory(directory);
	snprintf(output, sizeof(output), "%s/out.tsv", directory);
	built = program_find("spikewatch", spikewatch);
}

static void teardown(void)
{
	scene_remove(directory);
}

#define RECORD(...) ((const char *const[]){ spikewatch, "record", __VA_ARGS__, NULL })

static const char *pid_text(const struct actor *actor)
{
	static char text[4][16];
	static unsigned next;
	char *ret = text[next++ % 4];

	snprintf(ret, 16, "%d", actor->pid);

	return ret;
}

static struct scene_rows recorded(void)
{
	return scene_rows(directory, "out.tsv");
}

/* Bytes of a file. */
static long size_of(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long size = fd < 0 ? 0 : (long)lseek(fd, 0, SEEK_END);

	if (fd >= 0)
		close(fd);

	return size;
}

START_TEST(a_recording_ends_with_its_process)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-record");
	struct program program =
		program_start(RECORD("-i", "2ms", "-o", output, "-p", pid_text(&actor)), directory, -1, 0);

	scene_wait_for(size_of(output) > 0);
	actor_end(&actor);
	ck_assert_int_eq(program_wait(&program), 0);
	struct scene_rows rows = recorded();

	ck_assert_uint_gt(rows.count, 0);
	ck_assert_uint_eq(rows.gone, 1);
	program_said(directory, "snapshots");
}
END_TEST

START_TEST(it_goes_on_until_the_last_of_several_has_ended)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actors[2] = { actor_start("scene-record"), actor_start("scene-record") };
	char pids[32];

	snprintf(pids, sizeof(pids), "%d,%d", actors[0].pid, actors[1].pid);
	struct program program = program_start(RECORD("-i", "2ms", "-o", output, "-p", pids), directory, -1, 0);

	scene_wait_for(size_of(output) > 0);
	actor_end(&actors[0]);
	scene_wait_for(scene_says(output, "GONE"));
	ck_assert_int_eq(waitpid(program.pid, NULL, WNOHANG), 0);
	actor_end(&actors[1]);
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_uint_eq(recorded().gone, 2);
}
END_TEST

START_TEST(the_exit_code_is_that_of_the_command)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	ck_assert_int_eq(
		program_run(RECORD("-q", "-i", "1ms", "-o", output, "--", "/bin/sh", "-c", "exit 7"), directory), 7);
	ck_assert_uint_gt(recorded().count, 0);
	ck_assert_int_eq(program_run(RECORD("-q", "-o", output, "--", "/bin/true"), directory), 0);
	ck_assert_int_eq(program_run(RECORD("-q", "-o", output, "--", "/bin/sh", "-c", "kill -9 $$"), directory),
			 128 + SIGKILL);
	recorded();
	ck_assert_int_eq(program_run(RECORD("-q", "-o", output, "--", "/nowhere/program"), directory), 127);
	program_said(directory, "/nowhere/program: No such file or directory");
	recorded();
}
END_TEST

START_TEST(the_command_is_watched_from_its_start_to_its_end)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	ck_assert_int_eq(program_run(RECORD("-q", "-i", "2ms", "-o", output, "--", "/bin/sleep", "0.3"), directory), 0);
	struct scene_rows rows = recorded();

	ck_assert_uint_ge(rows.count, 2);
	ck_assert_uint_ge(rows.last_ns, 280 * NS_PER_MS);
}
END_TEST

START_TEST(what_the_command_starts_is_recorded_with_it)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	ck_assert_int_eq(program_run(RECORD("-i", "2ms", "-o", output, "--", "/bin/sh", "-c",
					    "sleep 0.5 & (setsid sleep 0.51 &) ; sleep 0.6; exit 3"),
				     directory),
			 3);
	recorded();
	char *text = scene_read(output);

	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_nonnull(strstr(text, "\"cmdline\":\"/bin/sh -c sleep 0.5 & (setsid"));
	ck_assert_ptr_nonnull(strstr(text, "\"cmdline\":\"sleep 0.5\""));
	ck_assert_ptr_nonnull(strstr(text, "\"cmdline\":\"sleep 0.51\""));
	free(text);

	/* gVisor's columns are settled before: the sum. */
	ck_assert_int_eq(program_run(RECORD("-f", "gvisor", "-i", "2ms", "-o", output, "--", "/bin/sh", "-c",
					    "sleep 0.3 & wait"),
				     directory),
			 0);
	struct stream_reader_report report = scene_stream_reader(output, NULL);

	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_gt(report.rows, 1);
}
END_TEST

START_TEST(a_tree_is_recorded_until_its_last_has_ended)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	char work[512], end[160], text[16];

	/* A child goes on when its parent has ended. */
	snprintf(end, sizeof(end), "%s/end", directory);
	snprintf(work, sizeof(work),
		 "sh -c 'while ! [ -e %s.child ]; do sleep 0.02; done' & while ! [ -e %s ]; do sleep 0.02; done", end,
		 end);
	pid_t pid = fork();

	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", work, (char *)NULL);
		_exit(1);
	}
	snprintf(text, sizeof(text), "%d", pid);

	struct program program = program_start(RECORD("--tree", "-o", output, "-p", text), directory, -1, 0);

	scene_wait_for(scene_says(output, "\"cmdline\":\"sh -c while"));
	scene_write(end, "%s", "");
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(waitpid(program.pid, NULL, WNOHANG), 0);
	snprintf(end + strlen(end), sizeof(end) - strlen(end), ".child");
	scene_write(end, "%s", "");
	ck_assert_int_eq(program_wait(&program), 0);
	char *rows = scene_read(output);

	ck_assert_ptr_nonnull(strstr(rows, "\"cmdline\":\"sh -c while"));
	free(rows);
	ck_assert_uint_ge(recorded().gone, 2);
}
END_TEST

START_TEST(more_than_64_processes_are_recorded)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	pid_t pids[70];
	char text[70 * 8] = "";

	for (int i = 0; i < 70; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		snprintf(text + strlen(text), 16, "%s%d", i ? "," : "", pids[i]);
	}
	ck_assert_int_eq(program_run(RECORD("-d", "300ms", "-i", "50ms", "-o", output, "-p", text), directory), 0);
	ck_assert_uint_ge(recorded().count, 70);
	ck_assert_int_eq(program_run(RECORD("--tree", "-d", "300ms", "-o", output, "-p", text), directory), 2);
	program_said(directory, "at most 1000 processes at a time, 64 with --tree");
	for (int i = 0; i < 70; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
}
END_TEST

START_TEST(gvisors_format_verifies)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct stream_reader_report report;

	ck_assert_int_eq(
		program_run(RECORD("-f", "gvisor", "-i", "2ms", "-o", output, "--", "/bin/sleep", "0.1"), directory),
		0);
	report = scene_stream_reader(output, NULL);
	ck_assert(stream_reader_whole(&report));
	ck_assert_int_eq(report.format, STREAM_GVISOR);
	ck_assert_uint_gt(report.rows, 1);
}
END_TEST

START_TEST(it_stops_in_good_order_when_it_is_told_to)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-record");
	struct program program =
		program_start(RECORD("-q", "-i", "2ms", "-o", output, "-p", pid_text(&actor)), directory, -1, 0);

	scene_wait_for(size_of(output) > 0);
	kill(program.pid, SIGINT);
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_uint_gt(recorded().count, 0);

	ck_assert_int_eq(program_run(RECORD("-q", "-d", "100ms", "-o", output, "-p", pid_text(&actor)), directory), 0);
	recorded();
	actor_end(&actor);
}
END_TEST

/* Reads all of a pipe into the output file. */
static void drain(int from)
{
	char buf[1 << 14];
	ssize_t got;
	int to = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	while ((got = read(from, buf, sizeof(buf))) > 0)
		ck_assert_int_eq(write(to, buf, (size_t)got), got);
	close(to);
}

struct stats_seen {
	unsigned long long backoff_sleeps, lost_records, saved_looks, gaps;
};

static int on_stats(void *ctx, const char *json, size_t len)
{
	struct stats_seen *seen = ctx;
	const char *sleeps = strstr(json, "\"num_backoff_sleeps\":"), *lost = strstr(json, "\"lost_records\":");
	const char *saved = strstr(json, "\"saved_looks\":");

	(void)len;
	ck_assert(sleeps && lost && saved);
	seen->backoff_sleeps = strtoull(strchr(sleeps, ':') + 1, NULL, 10);
	seen->lost_records = strtoull(strchr(lost, ':') + 1, NULL, 10);
	seen->saved_looks = strtoull(strchr(saved, ':') + 1, NULL, 10);

	return 0;
}

static int on_note(void *ctx, const char *kind, const char *json, size_t len)
{
	struct stats_seen *seen = ctx;

	/* Slots that were missed while the sampler waited are no loss of what it took. */
	seen->gaps += strcmp(kind, "GAP") == 0 && memmem(json, len, "lost_pages", strlen("lost_pages"));

	return 0;
}

static unsigned long long looks_saved(void)
{
	struct stats_seen seen = { 0 };
	struct stream_reader_events events = { .stats = on_stats, .note = on_note, .ctx = &seen };
	struct stream_reader_report report = scene_stream_reader(output, &events);

	ck_assert(stream_reader_whole(&report));

	return seen.saved_looks;
}

START_TEST(what_sleeps_is_looked_at_in_every_tick_unless_back_off_is_asked_for)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-record");
	const char *pid = pid_text(&actor);

	ck_assert_int_eq(program_run(RECORD("-d", "1s", "-i", "5ms", "-o", output, "-p", pid), directory), 0);
	ck_assert_uint_eq(looks_saved(), 0);
	ck_assert_int_eq(program_run(RECORD("--idle-backoff", "--source", "files", "-d", "1s", "-i", "5ms", "-o",
					    output, "-p", pid),
				     directory),
			 0);
	ck_assert_uint_gt(looks_saved(), 0);
	actor_end(&actor);
}
END_TEST

/* ---- short bursts of what sleeps ---- */

#define BURSTS 6u
#define BURST_NS (20 * NS_PER_MS)
#define BETWEEN_NS (400 * NS_PER_MS)

/* What a process did whose CPU time grows in bursts. */
struct bursts_seen {
	unsigned long long missed; /* slots that had no sampler */
	uint64_t cpu_ns, grew_ns;  /* of the row before; when it last grew */
	unsigned bursts;
	struct burst_seen {
		unsigned rows; /* in which it grew */
		uint64_t cpu_ns;
	} each[2 * BURSTS]; /* and when it wakes up or ends, for a moment */
};

static int on_burst_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values,
			uint32_t mask)
{
	struct bursts_seen *seen = ctx;
	uint64_t grown_ns = values[SAMPLE_CPU] - seen->cpu_ns;

	(void)seq;
	(void)target;
	if (!(mask & 1u << SAMPLE_CPU))
		return 0;
	if (seen->cpu_ns > 0 && grown_ns > 0) {
		seen->bursts += seen->bursts == 0 || time_ns - seen->grew_ns > BETWEEN_NS / 2;
		ck_assert_uint_lt(seen->bursts, ARRAY_LEN(seen->each));
		seen->each[seen->bursts].rows++;
		seen->each[seen->bursts].cpu_ns += grown_ns;
		seen->grew_ns = time_ns;
	}
	seen->cpu_ns = values[SAMPLE_CPU];
	return 0;
}

static int on_burst_stats(void *ctx, const char *json, size_t len)
{
	struct bursts_seen *seen = ctx;
	const char *missed = strstr(json, "\"missed_slots\":");

	(void)len;
	ck_assert_ptr_nonnull(missed);
	seen->missed = strtoull(strchr(missed, ':') + 1, NULL, 10);
	return 0;
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

/* They begin when a byte can be read from gate. */
static pid_t start_bursts(int gate)
{
	pid_t pid = fork();
	char byte;

	ck_assert_int_ge(pid, 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (read(gate, &byte, 1) != 1)
		_exit(1);
	for (unsigned i = 0; i < BURSTS; i++) {
		poll(NULL, 0, BETWEEN_NS / NS_PER_MS);
		for (uint64_t from = thread_cpu_ns(); thread_cpu_ns() - from < BURST_NS;)
			continue;
	}
	poll(NULL, 0, BETWEEN_NS / NS_PER_MS);
	_exit(0);
}

/*
 * Each while it lasts: in several rows; and all in a row for each millisecond of CPU time, but for the slots
 * that were missed, and the edges. It sleeps for twenty times as long in between.
 */
START_TEST(each_short_burst_of_what_sleeps_is_seen_at_a_thousand_looks_a_second)
{
	struct bursts_seen seen = { 0 };
	struct stream_reader_events events = { .row = on_burst_row, .stats = on_burst_stats, .ctx = &seen };
	unsigned found = 0, rows = 0;
	char text[16];

	if (!built)
		SKIP_TEST("the programs were not built");

	int gate[2];

	ck_assert_int_eq(pipe2(gate, O_CLOEXEC), 0);

	pid_t pid = start_bursts(gate[0]);

	snprintf(text, sizeof(text), "%d", pid);

	struct program program = program_start(RECORD("-q", "-i", "1ms", "-o", output, "-p", text), directory, -1, 0);

	scene_wait_for(size_of(output) > 0);
	ck_assert_int_eq(write(gate[1], "", 1), 1);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	ck_assert_int_eq(program_wait(&program), 0);
	close(gate[0]);
	close(gate[1]);

	struct stream_reader_report report = scene_stream_reader(output, &events);

	ck_assert(stream_reader_whole(&report));
	for (unsigned i = 1; i <= seen.bursts; i++) {
		found += seen.each[i].cpu_ns >= BURST_NS / 2 && seen.each[i].rows >= 3;
		rows += seen.each[i].rows;
	}
	/* One that is not in three rows lacked a sampler in sixteen slots at least. */
	ck_assert_msg(found <= BURSTS && found + seen.missed / 16 >= BURSTS, "%u bursts, %llu slots missed", found,
		      seen.missed);
	ck_assert_msg(rows + seen.missed + 3 * BURSTS >= BURSTS * BURST_NS / NS_PER_MS, "%u rows, %llu slots missed",
		      rows, seen.missed);
}
END_TEST

/* Records into a pipe that is not read for so long. How often the sampler had to wait. */
static unsigned long long record_into_slow_pipe(const struct actor *actor, int hold_ms)
{
	struct stats_seen seen = { 0 };
	struct stream_reader_events events = { .stats = on_stats, .note = on_note, .ctx = &seen };
	int ends[2];

	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	fcntl(ends[1], F_SETPIPE_SZ, 4096);
	struct program program = program_start(
		RECORD("-q", "-i", "100us", "--ring-size", "384KiB", "-p", pid_text(actor)), directory, ends[1], 0);

	close(ends[1]);
	ck_assert_int_eq(poll(&(struct pollfd){ .fd = ends[0], .events = POLLIN }, 1, 10000), 1);
	poll(NULL, 0, hold_ms);
	kill(program.pid, SIGTERM);
	drain(ends[0]);
	close(ends[0]);
	ck_assert_int_eq(program_wait(&program), 0);

	struct stream_reader_report report = scene_stream_reader(output, &events);

	ck_assert(stream_reader_whole(&report));
	ck_assert_uint_gt(report.rows, 0);
	ck_assert_uint_eq(seen.gaps, 0);
	ck_assert_uint_eq(seen.lost_records, 0);

	return seen.backoff_sleeps;
}

START_TEST(a_pipe_that_is_not_read_slows_the_sampling_and_loses_nothing)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-record");
	unsigned long long sleeps = 0;

	actor_do(&actor, 'b', "hot-thread");
	for (int hold_ms = 500; sleeps == 0 && hold_ms <= 8000; hold_ms *= 2)
		sleeps = record_into_slow_pipe(&actor, hold_ms);
	ck_assert_uint_gt(sleeps, 0);
	actor_end(&actor);
}
END_TEST

START_TEST(a_sink_that_fails_is_said)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-record");

	ck_assert_int_eq(program_run(RECORD("-o", "/dev/full", "-p", pid_text(&actor)), directory), 1);
	program_said(directory, "/dev/full: No space left on device");
	ck_assert_int_eq(program_run(RECORD("-o", "/nowhere/file", "-p", pid_text(&actor)), directory), 1);
	program_said(directory, "/nowhere/file: No such file or directory");
	actor_end(&actor);
}
END_TEST

static const struct {
	const char *arguments[6];
	const char *says;
} mistakes[] = {
	{ { "-q" }, "nothing to record" },
	{ { "--pid", "abc" }, "expected process ids" },
	{ { "--pid", "1,,2" }, "expected process ids" },
	{ { "--pid", "-1" }, "expected process ids" },
	{ { "--pid", "99999999999" }, "expected process ids" },
	{ { "--pid", "2000000000" }, "there is no process 2000000000" },
	{ { "--pid", "1", "--format", "xml" }, "expected spikewatch or gvisor" },
	{ { "--pid", "1", "--interval", "soon" }, "interval" },
	{ { "--pid", "1", "--interval", "1us" }, "interval" },
	{ { "--pid", "1", "--ring-size", "1KiB" }, "256 KiB" },
	{ { "--pid", "1", "--ring-size", "255KiB" }, "256 KiB" },
	{ { "--pid", "1", "--colour" }, "colour" },
};

START_TEST(wrong_usage_is_explained)
{
	const char *arguments[PROGRAM_ARGUMENTS] = { spikewatch, "record", "-o", output };

	if (!built)
		SKIP_TEST("the programs were not built");

	memcpy(arguments + 4, mistakes[_i].arguments, sizeof(mistakes[_i].arguments));
	ck_assert_msg(program_run(arguments, directory) == 2, "%s %s", arguments[4], arguments[5]);
	program_said(directory, "spikewatch record: ");
	program_said(directory, mistakes[_i].says);
}
END_TEST

START_TEST(a_process_that_is_named_twice_is_recorded_once)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-record");
	char pids[32];

	snprintf(pids, sizeof(pids), "%d,%d", actor.pid, actor.pid);
	ck_assert_int_eq(program_run(RECORD("-d", "50ms", "-o", output, "-p", pids), directory), 0);
	recorded();
	actor_end(&actor);
}
END_TEST

START_TEST(a_dead_process_that_nobody_has_reaped_is_recorded_until_it_is)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-record");
	siginfo_t info;

	actor_do(&actor, 'x', "");
	ck_assert_int_eq(waitid(P_PID, (id_t)actor.pid, &info, WEXITED | WNOWAIT), 0);
	struct program program =
		program_start(RECORD("-i", "2ms", "-o", output, "-p", pid_text(&actor)), directory, -1, 0);

	scene_wait_for(size_of(output) > 0);
	actor_end(&actor);
	ck_assert_int_eq(program_wait(&program), 0);
	ck_assert_uint_eq(recorded().gone, 1);
}
END_TEST

/* The id of the thread that burns in an actor. */
static int thread_of(const struct actor *actor)
{
	char path[64];

	for (int tid = actor->pid + 1; tid < actor->pid + 10000; tid++) {
		snprintf(path, sizeof(path), "/proc/%d/task/%d", actor->pid, tid);
		if (access(path, F_OK) == 0)
			return tid;
	}
	ck_abort_msg("no thread");
}

START_TEST(what_is_no_process_is_not_waited_for)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actor = actor_start("scene-record");
	char tid[16];

	actor_do(&actor, 'b', "hot-thread");
	snprintf(tid, sizeof(tid), "%d", thread_of(&actor));
	ck_assert_int_eq(program_run(RECORD("-o", output, "-p", tid), directory), 1);
	program_said(directory, "nothing to record: No such process");
	actor_end(&actor);
}
END_TEST

START_TEST(gvisors_format_has_room_for_few)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor actors[6];
	char pids[100] = "";

	for (int i = 0; i < 6; i++) {
		actors[i] = actor_start("scene-record");
		snprintf(pids + strlen(pids), 16, "%s%d", i ? "," : "", actors[i].pid);
	}
	ck_assert_int_eq(program_run(RECORD("-f", "gvisor", "-o", output, "-p", pids), directory), 2);
	program_said(directory, "room for");
	for (int i = 0; i < 6; i++)
		actor_end(&actors[i]);
}
END_TEST

Suite *record_suite(void)
{
	Suite *suite = suite_create("record");
	TCase *tcase = tcase_create("program");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_recording_ends_with_its_process);
	tcase_add_test(tcase, it_goes_on_until_the_last_of_several_has_ended);
	tcase_add_test(tcase, the_exit_code_is_that_of_the_command);
	tcase_add_test(tcase, the_command_is_watched_from_its_start_to_its_end);
	tcase_add_test(tcase, what_the_command_starts_is_recorded_with_it);
	tcase_add_test(tcase, a_tree_is_recorded_until_its_last_has_ended);
	tcase_add_test(tcase, more_than_64_processes_are_recorded);
	tcase_add_test(tcase, gvisors_format_verifies);
	tcase_add_test(tcase, gvisors_format_has_room_for_few);
	tcase_add_test(tcase, what_is_no_process_is_not_waited_for);
	tcase_add_test(tcase, it_stops_in_good_order_when_it_is_told_to);
	tcase_add_test(tcase, what_sleeps_is_looked_at_in_every_tick_unless_back_off_is_asked_for);
	tcase_add_test(tcase, each_short_burst_of_what_sleeps_is_seen_at_a_thousand_looks_a_second);
	tcase_add_test(tcase, a_pipe_that_is_not_read_slows_the_sampling_and_loses_nothing);
	tcase_add_test(tcase, a_sink_that_fails_is_said);
	tcase_add_loop_test(tcase, wrong_usage_is_explained, 0, (int)(sizeof(mistakes) / sizeof(mistakes[0])));
	tcase_add_test(tcase, a_process_that_is_named_twice_is_recorded_once);
	tcase_add_test(tcase, a_dead_process_that_nobody_has_reaped_is_recorded_until_it_is);
	suite_add_tcase(suite, tcase);

	return suite;
}
