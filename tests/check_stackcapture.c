/*
 * check_stackcapture.c: the stacks of real incidents of a workload whose answer is known, taken by the real daemon; and symbolisers that
 * fail. Without permission to use perf, or without the programs, the tests say so and pass.
 */
#include "stackcapture.h"

#include "incident_json.h"
#include "manifest.h"
#include "program.h"
#include "realclock.h"

#include <math.h>
#include <sys/stat.h>

Suite *stackcapture_suite(void);

static char directory[64], spikewatchd[512], spikewatch[512], workload[512], config_path[128], out_path[128];
static bool able;

static bool perf_is_allowed(void)
{
	struct stackrecorder_options options = { 0 };
	char reason[STACKRECORDER_REASON_MAX] = "";
	struct stackrecorder *recorder;

	if (stackrecorder_open(&options, &recorder, reason) < 0) {
		fprintf(stderr, "skipped: no stacks here: %s\n", reason);
		return false;
	}
	stackrecorder_close(recorder);

	return true;
}

static void setup(void)
{
	char symbolizer[512];

	scene_directory(directory);
	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	snprintf(out_path, sizeof(out_path), "%s/out", directory);
	able = program_find("spikewatchd", spikewatchd) && program_find("spikewatch", spikewatch) &&
	       program_find("spikewatch-symbolize", symbolizer) && program_find("workload_functions", workload) &&
	       perf_is_allowed();
}

static void teardown(void)
{
	scene_remove(directory);
}

static struct program start_daemon(pid_t pid)
{
	const char *arguments[] = { spikewatchd, "-c", config_path, NULL };

	scene_write(config_path,
		    "{\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false},\n"
		    "\"sampling\": {\"cpu_budget\": \"100%%\"}, \"stacks\": {\"mode\": \"frame-pointers\"},\n"
		    "\"incidents\": {\"directory\": \"%s/incidents\", \"before\": \"60s\", \"after\": \"0s\",\n"
		    "\"min_free\": \"0B\", \"captures\": [\"samples\"]},\n"
		    "\"targets\": [{\"name\": \"work\", \"pid\": %d}]}\n",
		    directory, directory, pid);

	struct program program = program_start(arguments, directory, -1, 0);

	scene_wait_for(scene_says(program.err, "watching 1 targets"));

	return program;
}

/* Starts the workload stopped, the daemon, and lets it go; waits until it has burned what it was to burn. */
static void burn(const char *burst_ms, const char *ratio_ms, struct program *ret_work, struct program *ret_daemon)
{
	const char *arguments[] = { workload, burst_ms, ratio_ms, NULL };
	char quiet[80];
	int out = open(out_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	snprintf(quiet, sizeof(quiet), "%s/work", directory);
	ck_assert_int_eq(mkdir(quiet, 0755), 0);
	*ret_work = program_start(arguments, quiet, out, 0);
	kill(ret_work->pid, SIGSTOP);
	*ret_daemon = start_daemon(ret_work->pid);
	kill(ret_work->pid, SIGCONT);
	for (int i = 0; i < 6 && !scene_says(out_path, "done"); i++) { /* a minute, on a machine that is busy */
		for (int naps = 0; naps < SCENE_NAPS && !scene_says(out_path, "done"); naps++)
			scene_nap();
	}
	ck_assert(scene_says(out_path, "done"));
	close(out);
}

/* An incident now; its path, for free(3). */
static char *trigger(void)
{
	char control[128], asked[80];
	const char *arguments[] = { spikewatch, "trigger", "--wait", "--socket", control, "work", NULL };
	int out = open(out_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	snprintf(control, sizeof(control), "%s/control", directory);
	snprintf(asked, sizeof(asked), "%s/asked", directory);
	ck_assert_int_eq(mkdir(asked, 0755), 0);

	struct program program = program_start(arguments, asked, out, 0);

	ck_assert_int_eq(program_wait(&program), 0);
	close(out);

	char *path = scene_read(out_path);

	path[strcspn(path, "\n")] = '\0';

	return path;
}

/* Samples of a function by itself, before and during, in functions.tsv. */
static unsigned long samples_of(const char *incident, const char *function)
{
	char path[512], row[64];
	unsigned long before = 0, total_before, during = 0;

	snprintf(path, sizeof(path), "%s/functions.tsv", incident);
	snprintf(row, sizeof(row), "\n%s\t", function);

	char *text = scene_read(path), *at = text ? strstr(text, row) : NULL;

	ck_assert_ptr_nonnull(text);
	if (at)
		ck_assert_int_eq(sscanf(at + strlen(row), "%*[^\t]\t%lu\t%lu\t%lu", &before, &total_before, &during),
				 3);
	free(text);

	return before + during;
}

static void end(struct program *work, struct program *daemon)
{
	kill(work->pid, SIGKILL);
	program_wait(work);
	kill(daemon->pid, SIGTERM);
	ck_assert_int_eq(program_wait(daemon), 0);
}

START_TEST(the_shares_of_two_functions_are_those_that_they_had)
{
	struct program work, daemon;

	if (!able)
		return;

	burn("0", "3000", &work, &daemon);

	char *incident = trigger();
	double seventy = (double)samples_of(incident, "burn_seventy"),
	       all = seventy + (double)samples_of(incident, "burn_thirty");

	/* Three seconds of CPU time are 297 samples; some may be in other functions, none in too many. */
	ck_assert_msg(all > 200 && all < 400, "%.0f samples of 3 s of CPU time at 99 Hz", all);
	/* Five standard deviations. */
	ck_assert_msg(fabs(seventy / all - 0.7) < 5 * sqrt(0.7 * 0.3 / all), "%.0f of %.0f", seventy, all);
	free(incident);
	end(&work, &daemon);
}
END_TEST

START_TEST(a_burst_that_was_over_before_anybody_asked_is_there)
{
	struct program work, daemon;

	if (!able)
		return;

	burn("300", "0", &work, &daemon);

	char *incident = trigger();

	ck_assert_uint_gt(samples_of(incident, "burn_burst"), 15);
	ck_assert_uint_eq(samples_of(incident, "burn_seventy"), 0);
	free(incident);
	end(&work, &daemon);
}
END_TEST

START_TEST(the_incident_is_whole_and_lists_its_profile)
{
	struct program work, daemon;
	struct incident incident;
	size_t found = 0;

	if (!able)
		return;

	burn("200", "0", &work, &daemon);

	char *path = trigger();
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(fd, &incident), 0);
	for (size_t i = 0; i < incident.capture_count; i++)
		if (incident.captures[i].status == INCIDENT_CAPTURE_OK && incident.captures[i].bytes > 0)
			found += strcmp(incident.captures[i].file, "cpu.pb.gz") == 0 ||
				 strcmp(incident.captures[i].file, "cpu.folded") == 0 ||
				 strcmp(incident.captures[i].file, "functions.tsv") == 0;
	ck_assert_uint_eq(found, 3);
	close(fd);
	free(path);
	end(&work, &daemon);
}
END_TEST

/* ---- symbolisers that fail ---- */

static void fails_with(const char *symbolizer, const char *why)
{
	struct stackrecorder_options how = { 0 };
	char reason[STACKRECORDER_REASON_MAX], left[128];
	struct stackrecorder *recorder;
	struct clock clock = realclock();
	struct incident info;
	int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(stackrecorder_open(&how, &recorder, reason), 0);
	incident_init(&info, "0");

	struct stackcapture_options options = {
		.recorder = recorder,
		.procfd = procfd,
		.symbolizer = symbolizer,
		.before_ns = NS_PER_S,
		.fired = clock_mono(&clock),
		.wall = clock_wall(&clock),
	};
	struct stackcapture *capture = stackcapture_secure(&options, &info);

	ck_assert_ptr_nonnull(capture);
	stackcapture_write(capture, &(struct stackcapture_focus){ .count = 0 }, dirfd, &info);
	ck_assert_uint_eq(info.capture_count, 1);
	ck_assert_int_eq(info.captures[0].status, INCIDENT_CAPTURE_FAILED);
	ck_assert_msg(strstr(info.captures[0].why, why), "%s", info.captures[0].why);
	ck_assert_str_eq(info.captures[0].file, "");
	snprintf(left, sizeof(left), "%s/cpu.pb.gz", directory);
	ck_assert_int_lt(access(left, F_OK), 0);
	stackrecorder_close(recorder);
	close(procfd);
	close(dirfd);
}

START_TEST(a_symboliser_that_fails_costs_the_stacks_and_nothing_else)
{
	char killed[128];

	if (!able)
		return;

	fails_with("/bin/false", "failed with 1");
	fails_with("/nonexistent/symboliser", "failed with 127");
	snprintf(killed, sizeof(killed), "%s/killed", directory);
	scene_write(killed, "#!/bin/sh\nkill -SEGV $$\n");
	ck_assert_int_eq(chmod(killed, 0755), 0);
	fails_with(killed, "signal 11");
}
END_TEST

Suite *stackcapture_suite(void)
{
	Suite *suite = suite_create("stackcapture");
	TCase *tcase = tcase_create("stackcapture");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, the_shares_of_two_functions_are_those_that_they_had);
	tcase_add_test(tcase, a_burst_that_was_over_before_anybody_asked_is_there);
	tcase_add_test(tcase, the_incident_is_whole_and_lists_its_profile);
	tcase_add_test(tcase, a_symboliser_that_fails_costs_the_stacks_and_nothing_else);
	suite_add_tcase(suite, tcase);

	return suite;
}
