/*
 * check_recover.c: what a killed daemon's ring held becomes an incident, once; whatever else lies
 * there never stops the daemon.
 */
#include "lib/incident/incident.h"
#include "journal.h"
#include "lib/incident/manifest.h"
#include "daemon/engine/incident/recover.c"
#include "lib/ring/ring.h"
#include "scene.h"
#include "skip.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/incident/spool.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/stream/stream.h"
#include "torture.h"

#include <errno.h>
#include <glob.h>

Suite *recover_suite(void);

static char directory[64], path[128], incidents[128];
static struct scene_log log_file;
static struct config *config;
static struct spool *spool;
static struct actor actor;

static void open_spool(uint32_t max_count)
{
	struct retention_limits limits = { .max_count = max_count };

	spool_free(spool);
	ck_assert_int_eq(spool_open(incidents, &limits, &spool, NULL), 0);
}

static void setup(void)
{
	log_file = scene_log_catch();
	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/ring", directory);
	snprintf(incidents, sizeof(incidents), "%s/incidents", directory);
	actor = actor_start("scene-recover");
	spool = NULL;
	open_spool(0);
	config = scene_config("{\"sampling\": {\"interval\": \"1ms\"}, \"ring\": {\"size\": \"1MiB\", \"page_size\": "
			      "\"16KiB\", \"lock\": false}, \"incidents\": {\"before\": \"10s\"}, \"targets\": "
			      "[{\"name\": \"a\", \"pid\": %d}]}",
			      actor.pid);
}

static void teardown(void)
{
	actor_end(&actor);
	spool_free(spool);
	config_free(config);
	scene_remove(directory);
	scene_log_release(&log_file);
}

static uint64_t ticks_of_ring(void)
{
	struct ring_info info = { 0 };
	struct ring *ring = NULL;

	if (ring_open(AT_FDCWD, path, false, &ring) < 0)
		return 0;
	ring_info(ring, &info);
	ring_free(ring);

	return info.ticks;
}

/* Runs a session on the ring in a process of its own, which is killed, or goes in good order. */
static void leave_ring(bool killed)
{
	pid_t pid = fork();
	struct session *session;

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (session_new(config, path, &session) < 0 || session_start(session) < 0)
			_exit(1);
		while (killed || ticks_of_ring() < 50)
			scene_nap();
		session_free(session);
		_exit(0);
	}
	scene_wait_for(ticks_of_ring() >= 50);
	if (killed)
		kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	free(scene_log_text(&log_file)); /* what it said is not our business */
}

/* How many incidents there are; the first one's directory in ret, if there is one. */
static size_t count_incidents(char ret[256])
{
	AUTO_CLOSE int fd = open(incidents, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct retention_entry *entries;
	size_t count;

	ck_assert_int_eq(spool_list_at(fd, &entries, &count, &(int){ 0 }), 0);
	if (count)
		snprintf(ret, 256, "%s/%s", incidents, entries[0].name);
	free(entries);

	return count;
}

static void said(const char *part)
{
	char *text = scene_log_text(&log_file);

	ck_assert_msg(*part ? strstr(text, part) != NULL : *text == '\0', "expected \"%s\", it said: %s", part, text);
	free(text);
}

START_TEST(what_a_killed_daemon_held_becomes_an_incident)
{
	char incident_path[256];
	struct incident incident;

	leave_ring(true);
	uint64_t ticks = ticks_of_ring();

	recover_ring(path, config, spool);
	said("the last daemon was killed: what its ring held is incident");
	ck_assert_uint_eq(count_incidents(incident_path), 1);

	int dirfd = open(incident_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(manifest_verify(dirfd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(dirfd, &incident), 0);
	close(dirfd);
	ck_assert_int_eq(incident.kind, INCIDENT_RECOVERED);
	ck_assert_uint_eq(incident.coverage.ticks_got, ticks);
	ck_assert_uint_eq(incident.coverage.want_before_ns, 10 * NS_PER_S);
	ck_assert_int_lt(incident.coverage.got_from_ns, 0);
	struct scene_rows rows = scene_rows(incident_path, INCIDENT_SAMPLES_FILE);

	ck_assert_uint_gt(rows.count, 0);
	ck_assert_uint_le(rows.last_ns, (uint64_t)-incident.coverage.got_from_ns + NS_PER_S);
}
END_TEST

/* As if an incident had fired with the first tick, and its window were not on the disk yet. */
static void leave_unwritten(double severity)
{
	struct ring_cursor *cursor;
	struct ring_event event;
	struct ring *ring;

	ck_assert_int_eq(ring_open(AT_FDCWD, path, true, &ring), 0);
	ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0 && event.type != RING_EVENT_TICK)
		;
	ring_set_unwritten(ring, event.time, severity);
	ring_cursor_free(cursor);
	ring_free(ring);
}

START_TEST(windows_of_incidents_that_were_not_written_are_saved_with_their_severity)
{
	char incident_path[256];
	struct incident incident;

	config_free(config);
	config = scene_config("{\"sampling\": {\"interval\": \"1ms\"}, \"ring\": {\"size\": \"1MiB\", \"page_size\": "
			      "\"16KiB\", \"lock\": false}, \"incidents\": {\"before\": \"1ms\"}, \"targets\": "
			      "[{\"name\": \"a\", \"pid\": %d}]}",
			      actor.pid);
	leave_ring(true);
	uint64_t ticks = ticks_of_ring();

	leave_unwritten(7.5);
	recover_ring(path, config, spool);
	ck_assert_uint_eq(count_incidents(incident_path), 1);

	AUTO_CLOSE int dirfd = open(incident_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(incident_json_read(dirfd, &incident), 0);
	ck_assert_uint_ge(incident.coverage.ticks_got, ticks - 1);
	ck_assert_double_eq(incident.rule.severity, 7.5);
}
END_TEST

/*
 * A tick whose number was taken when its thread was killed is a hole: one for each thread at most.
 */
START_TEST(what_several_threads_held_is_saved_and_says_whose_targets_are_whose)
{
	char incident_path[256], file[320];
	struct incident incident;

	config_free(config);
	config =
		scene_config("{\"sampling\": {\"interval\": \"1ms\", \"threads\": 3}, \"ring\": {\"size\": \"4MiB\", "
			     "\"page_size\": \"16KiB\", \"lock\": false}, \"incidents\": {\"before\": \"60s\"}, "
			     "\"targets\": [{\"name\": \"a\", \"pid\": %d}, {\"name\": \"b\", \"pid\": %d}, {\"name\": "
			     "\"c\", \"pid\": 1}]}",
			     actor.pid, getpid());
	leave_ring(true);
	uint64_t ticks = ticks_of_ring();

	recover_ring(path, config, spool);
	said("the last daemon was killed: what its ring held is incident");
	ck_assert_uint_eq(count_incidents(incident_path), 1);

	int dirfd = open(incident_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(manifest_verify(dirfd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(dirfd, &incident), 0);
	close(dirfd);
	ck_assert_uint_le(incident.coverage.ticks_got, ticks + 3);
	ck_assert_uint_ge(incident.coverage.ticks_got + 3, ticks);
	ck_assert_uint_gt(scene_rows(incident_path, INCIDENT_SAMPLES_FILE).count, 0);

	snprintf(file, sizeof(file), "%s/" INCIDENT_SAMPLES_FILE, incident_path);
	ck_assert(scene_says(file, "\"writer\":1}"));
	ck_assert(scene_says(file, "\"writer\":2}"));
	ck_assert(!scene_says(file, "\"writer\":0}"));
}
END_TEST

/* A ring that was made, and ticked, before a target was found. */
START_TEST(a_ring_without_a_sample_makes_no_incident_and_that_is_said)
{
	char incident_path[256];

	config_free(config);
	config = scene_config(
		"{\"sampling\": {\"interval\": \"1ms\"}, \"ring\": {\"size\": \"1MiB\", \"page_size\": "
		"\"16KiB\", \"lock\": false}, \"targets\": [{\"name\": \"a\", \"comm\": \"scene-no-one\"}]}");
	leave_ring(true);
	recover_ring(path, config, spool);
	said("its ring held no sample");
	ck_assert_uint_eq(count_incidents(incident_path), 0);
	ck_assert_int_lt(access(path, F_OK), 0);
}
END_TEST

/* ---- killed at each step ---- */

#define SEVERITY 7.5

/* A row of the stream, and the next one cut. */
static void write_cut_samples(int dirfd)
{
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
	static const struct stream_column column = { "cpu", "ns", "counter", "CPU time" };
	struct stream_options options = { .columns = &column, .column_count = 1, .flush_bytes = 1 };
	struct stream_writer *writer;
	uint64_t value = 1;

	if (stream_writer_new(sink_fd(&fd), &options, &writer) < 0 || stream_row(writer, 1, 1, &value, 1) < 0 ||
	    stream_row(writer, 2, 1, &value, 1) < 0 || ftruncate(fd, lseek(fd, 0, SEEK_END) - 2) < 0)
		_exit(1);
	/* Not closed: that would end it. */
}

static const char *const drafts[] = { "20000102T000000.000Z-t-none", "20000102T000000.000Z-t-cut",
				      "20000102T000000.000Z-t-empty" };

/* Drafts of a daemon that was killed with the ring: without samples, with a part of them, not noted yet. */
static void leave_drafts(mono_t fired, const char *boot_id)
{
	pid_t pid = fork();

	if (pid == 0) {
		const struct retention_limits none = { 0 };
		struct incident incident;
		struct spool_draft *draft;
		struct spool *own;

		if (spool_open(incidents, &none, &own, NULL) < 0)
			_exit(1);
		for (size_t i = 0; i < ARRAY_LEN(drafts); i++) {
			struct incident_capture samples = { .name = "samples",
							    .status = INCIDENT_CAPTURE_FAILED,
							    .why = INCIDENT_KILLED };

			if (spool_begin(own, drafts[i], &draft) < 0)
				_exit(1);
			incident_init(&incident, "1");
			incident.rule.severity = SEVERITY;
			incident.mono = fired;
			incident_text(incident.boot_id, sizeof incident.boot_id, boot_id);
			if (i == 1)
				write_cut_samples(spool_draft_parts(draft).dirfd);
			incident_text(samples.file, sizeof samples.file, i == 1 ? INCIDENT_SAMPLES_FILE : "");
			incident_add_capture(&incident, &samples);
			if (i < 2 && spool_note(draft, &incident) < 0)
				_exit(1);
		}
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &(int){ 0 }, 0), pid);
}

static char *read_all(const char *file, size_t *ret_len)
{
	AUTO_CLOSE int fd = open(file, O_RDONLY | O_CLOEXEC);
	struct stat st;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	char *data = malloc((size_t)st.st_size);

	ck_assert_int_eq(read(fd, data, (size_t)st.st_size), (ssize_t)st.st_size);
	*ret_len = (size_t)st.st_size;
	return data;
}

/* What a killed daemon leaves, anew each time. */
struct left {
	char *ring;
	size_t bytes;
	uint64_t ticks, samples;
	mono_t last;
	char boot_id[40];
};

static void put_left(const struct left *left)
{
	int fd;

	spool_free(spool);
	spool = NULL;
	scene_remove(incidents);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, left->ring, left->bytes), (ssize_t)left->bytes);
	close(fd);
	leave_unwritten(SEVERITY);
	leave_drafts(left->last, left->boot_id);
}

/* Whether the daemon's start was over before that step: else it is killed just before it. */
static bool start_until(long step)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		torture_kill_at(step, NULL);
		recover_begin(path, incidents, config);
		torture_kill_at(0, NULL);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL), "step %ld: %x", step,
		      status);
	return status == 0;
}

static void read_sealed(const char *name, struct incident *ret)
{
	char at[400];

	snprintf(at, sizeof at, "%s/%s", incidents, name);
	AUTO_CLOSE int fd = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_msg(fd >= 0, "%s is not there", name);
	ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(fd, ret), 0);
	ck_assert_str_eq(ret->id, name);
	ck_assert_double_eq(ret->rule.severity, SEVERITY);
}

/* After a start that was not killed. text: what was said since the daemon was killed. */
static void check_recovered(const struct left *left, const char *text, long step)
{
	AUTO_FREE struct retention_entry *entries = NULL;
	AUTO_CLOSE int fd = open(incidents, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct incident incident;
	char at[400], recovered[128] = "", part[200];
	size_t count;

	ck_assert_int_eq(spool_list_at(fd, &entries, &count, &(int){ 0 }), 0);
	ck_assert_msg(count == 3, "step %ld: %zu incidents", step, count);
	for (size_t i = 0; i < count; i++)
		if (strstr(entries[i].name, "-all-recovered-"))
			snprintf(recovered, sizeof recovered, "%s", entries[i].name);
	read_sealed(recovered, &incident);
	ck_assert_int_eq(incident.kind, INCIDENT_RECOVERED);
	ck_assert_uint_eq(incident.coverage.ticks_got, left->ticks);
	ck_assert_uint_eq(incident.coverage.samples, left->samples);
	ck_assert_uint_eq(incident.coverage.lost_pages, 0);
	ck_assert_uint_eq(incident.mono.ns, left->last.ns);
	ck_assert_int_eq(incident.captures[0].status, INCIDENT_CAPTURE_OK);
	ck_assert_str_eq(incident.captures[0].why, "");
	snprintf(at, sizeof at, "%s/%s", incidents, recovered);
	ck_assert_uint_gt(scene_rows(at, INCIDENT_SAMPLES_FILE).count, 0);
	snprintf(part, sizeof part, "what its ring held is incident %s", recovered);
	ck_assert_msg(strstr(text, part), "step %ld: not \"%s\" in: %s", step, part, text);

	for (size_t i = 0; i < 2; i++) {
		char name[128];

		snprintf(name, sizeof name, "%s-1", drafts[i]);
		read_sealed(name, &incident);
		ck_assert_uint_eq(incident.capture_count, 1);
		ck_assert_msg(strstr(incident.captures[0].why, recovered), "step %ld: %s", step,
			      incident.captures[0].why);
		ck_assert_str_eq(incident.captures[0].file, i == 1 ? INCIDENT_SAMPLES_FILE : "");
		snprintf(part, sizeof part, "incident %s of a daemon that was killed was sealed", name);
		ck_assert_msg(strstr(text, part), "step %ld: not \"%s\" in: %s", step, part, text);
	}
	snprintf(part, sizeof part, "incident %s-1 of a daemon that was killed held nothing yet", drafts[2]);
	ck_assert_msg(strstr(text, part), "step %ld: not \"%s\" in: %s", step, part, text);

	/* Nothing else is left, and the start after it finds nothing to do. */
	for (const char *const *end = (const char *const[]){ "", ".left1", ".left2", ".damaged", NULL }; *end; end++) {
		snprintf(at, sizeof at, "%s%s", path, *end);
		ck_assert_msg(access(at, F_OK) < 0, "step %ld: %s is left", step, at);
	}
	glob_t found;

	snprintf(at, sizeof at, "%s/*.tmp", incidents);
	ck_assert_int_eq(glob(at, 0, NULL, &found), GLOB_NOMATCH);
	recover_begin(path, incidents, config);
	said("");
}

static struct left leave_all(void)
{
	struct left left = { 0 };
	struct recover_report report;
	struct ring_info info;
	struct ring *ring;

	leave_ring(true);
	config->incidents.before_ns = 600 * NS_PER_S; /* all of it */
	left.ring = read_all(path, &left.bytes);
	ck_assert_int_eq(ring_open(AT_FDCWD, path, false, &ring), 0);
	ck_assert_int_eq(survey(ring, 0, &(mono_t){ 0 }, &report), 0);
	ring_info(ring, &info);
	ring_free(ring);
	write_boot_id(info.boot_id, left.boot_id, sizeof left.boot_id);
	left.ticks = report.ticks;
	left.samples = report.samples;
	left.last = report.to;
	ck_assert_uint_gt(left.samples, 0);
	return left;
}

START_TEST(a_start_that_is_killed_at_any_step_is_gone_on_with_by_the_next)
{
	struct left left = leave_all();
	bool over = false;
	long step;

	for (step = 1; !over; step++) {
		put_left(&left);
		free(scene_log_text(&log_file));
		over = start_until(step);
		if (!over)
			recover_begin(path, incidents, config);

		char *text = scene_log_text(&log_file);

		check_recovered(&left, text, step);
		free(text);
	}
	ck_assert_int_gt(step, 60);
	free(left.ring);
}
END_TEST

/* The second start at its second step, the third at its third, and so on. */
START_TEST(starts_that_are_killed_again_and_again_come_to_an_end)
{
	struct left left = leave_all();
	long step = 1;

	put_left(&left);
	free(scene_log_text(&log_file));
	while (!start_until(step))
		step++;

	char *text = scene_log_text(&log_file);

	check_recovered(&left, text, step);
	free(text);
	ck_assert_int_gt(step, 10);
	free(left.ring);
}
END_TEST

START_TEST(a_draft_whose_ring_is_gone_says_that_nothing_has_its_samples)
{
	struct left left = leave_all();
	struct incident incident;

	put_left(&left);
	ck_assert_int_eq(unlink(path), 0);
	recover_begin(path, incidents, config);
	read_sealed("20000102T000000.000Z-t-none-1", &incident);
	ck_assert_str_eq(incident.captures[0].why,
			 "the daemon was killed before they were written; no recovered incident had them then");
	read_sealed("20000102T000000.000Z-t-cut-1", &incident);
	ck_assert_str_eq(incident.captures[0].why,
			 "the daemon was killed: the file ends there; no recovered incident had the rest then");
	free(left.ring);
}
END_TEST

START_TEST(a_ring_for_which_there_is_no_place_any_more_is_named)
{
	struct left left = leave_all();
	char at[160];

	put_left(&left);
	for (int i = 1; i <= 2; i++) {
		snprintf(at, sizeof at, "%s.left%d", path, i);
		scene_write(at, "one that could not be saved");
	}
	look_at_ring(path);
	said("ring.left2 of a daemon that was killed was never saved, and is given up");
	free(left.ring);
}
END_TEST

START_TEST(the_entry_in_the_journal_names_the_incident)
{
	char incident_path[256];
	struct journal journal = journal_open();

	leave_ring(true);
	recover_ring(path, config, spool);
	ck_assert_uint_eq(count_incidents(incident_path), 1);
	do
		ck_assert(journal_next(&journal)); /* the killed session may have spoken too */
	while (!journal_field(&journal, "SPIKEWATCH_INCIDENT"));
	journal_expect(&journal, "MESSAGE_ID", message_id(MESSAGE_RING_RECOVERED));
	journal_expect(&journal, "SPIKEWATCH_INCIDENT", strrchr(incident_path, '/') + 1);
	journal_close(&journal);
}
END_TEST

START_TEST(it_is_saved_once)
{
	char incident_path[256];

	leave_ring(true);
	recover_ring(path, config, spool);
	said("the last daemon was killed");
	recover_ring(path, config, spool);
	said("");
	ck_assert_uint_eq(count_incidents(incident_path), 1);
}
END_TEST

START_TEST(only_the_last_of_it_is_saved)
{
	char incident_path[256];
	struct incident incident;
	struct ring_info info;
	struct ring *ring;
	mono_t last;

	leave_ring(true);
	ck_assert_int_eq(ring_open(AT_FDCWD, path, false, &ring), 0);
	ring_info(ring, &info);
	ck_assert_int_eq(find_last_sample(ring, info.last_tick, &last), 0);
	ring_free(ring);
	config->incidents.before_ns = (uint64_t)mono_diff(info.last_tick, last) + NS_PER_MS;
	recover_ring(path, config, spool);
	ck_assert_uint_eq(count_incidents(incident_path), 1);
	int dirfd = open(incident_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(incident_json_read(dirfd, &incident), 0);
	close(dirfd);
	ck_assert_int_ge(incident.coverage.got_from_ns, -(int64_t)config->incidents.before_ns);
	ck_assert_uint_le(incident.coverage.ticks_got, config->incidents.before_ns / NS_PER_MS + 1);
}
END_TEST

/* What sleeps has a row once a second. */
START_TEST(where_there_was_nothing_in_the_last_of_it_there_is_what_was_before)
{
	char incident_path[256];
	struct incident incident;

	leave_ring(true);
	config->incidents.before_ns = NS_PER_MS;
	recover_ring(path, config, spool);
	ck_assert_uint_eq(count_incidents(incident_path), 1);
	AUTO_CLOSE int dirfd = open(incident_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(incident_json_read(dirfd, &incident), 0);
	ck_assert_uint_gt(incident.coverage.samples, 0);
	ck_assert_uint_gt(scene_rows(incident_path, INCIDENT_SAMPLES_FILE).count, 0);
}
END_TEST

START_TEST(a_daemon_that_is_killed_again_and_again_keeps_to_the_limits)
{
	char incident_path[256];

	open_spool(2);
	for (int i = 0; i < 4; i++) {
		leave_ring(true);
		recover_ring(path, config, spool);
	}
	ck_assert_uint_eq(count_incidents(incident_path), 2);
}
END_TEST

START_TEST(a_ring_that_ended_in_good_order_is_left_alone)
{
	char incident_path[256];

	leave_ring(false);
	recover_ring(path, config, spool);
	said("");
	ck_assert_uint_eq(count_incidents(incident_path), 0);
	ck_assert_uint_ge(ticks_of_ring(), 50);
}
END_TEST

START_TEST(no_ring_is_no_news)
{
	recover_ring(path, config, spool);
	said("");
}
END_TEST

START_TEST(what_is_no_ring_is_set_aside)
{
	char aside[160], incident_path[256];

	scene_write(path, "this is no ring");
	recover_ring(path, config, spool);
	said("the old ring cannot be read");
	snprintf(aside, sizeof(aside), "%s.damaged", path);
	ck_assert(scene_says(aside, "this is no ring"));
	ck_assert_int_lt(access(path, F_OK), 0);
	ck_assert_uint_eq(count_incidents(incident_path), 0);
}
END_TEST

START_TEST(a_damaged_page_is_left_out_and_the_rest_saved)
{
	char incident_path[256], noise[4096];
	struct incident incident;

	leave_ring(true);
	memset(noise, 0x5a, sizeof(noise));
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_eq(pwrite(fd, noise, sizeof(noise), 4096 + 8192), (ssize_t)sizeof(noise));
	close(fd);
	recover_ring(path, config, spool);
	if (count_incidents(incident_path) == 0)
		SKIP_TEST("the damaged page was the only one of the ring");

	int dirfd = open(incident_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(manifest_verify(dirfd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(dirfd, &incident), 0);
	close(dirfd);
	scene_rows(incident_path, INCIDENT_SAMPLES_FILE);
}
END_TEST

START_TEST(a_spool_that_cannot_be_written_is_said_and_the_ring_stays)
{
	leave_ring(true);
	scene_remove(incidents);
	scene_write(incidents, "a file is in the way");
	recover_ring(path, config, spool);
	said("could not be saved: Not a directory");
	ck_assert_uint_ge(ticks_of_ring(), 50);
}
END_TEST

Suite *recover_suite(void)
{
	Suite *suite = suite_create("recover");
	TCase *tcase = tcase_create("ring");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_a_killed_daemon_held_becomes_an_incident);
	tcase_add_test(tcase, windows_of_incidents_that_were_not_written_are_saved_with_their_severity);
	tcase_add_test(tcase, what_several_threads_held_is_saved_and_says_whose_targets_are_whose);
	tcase_add_test(tcase, a_ring_without_a_sample_makes_no_incident_and_that_is_said);
	tcase_add_test(tcase, a_start_that_is_killed_at_any_step_is_gone_on_with_by_the_next);
	tcase_add_test(tcase, starts_that_are_killed_again_and_again_come_to_an_end);
	tcase_add_test(tcase, a_draft_whose_ring_is_gone_says_that_nothing_has_its_samples);
	tcase_add_test(tcase, a_ring_for_which_there_is_no_place_any_more_is_named);
	tcase_add_test(tcase, the_entry_in_the_journal_names_the_incident);
	tcase_add_test(tcase, it_is_saved_once);
	tcase_add_test(tcase, only_the_last_of_it_is_saved);
	tcase_add_test(tcase, where_there_was_nothing_in_the_last_of_it_there_is_what_was_before);
	tcase_add_test(tcase, a_daemon_that_is_killed_again_and_again_keeps_to_the_limits);
	tcase_add_test(tcase, a_ring_that_ended_in_good_order_is_left_alone);
	tcase_add_test(tcase, no_ring_is_no_news);
	tcase_add_test(tcase, what_is_no_ring_is_set_aside);
	tcase_add_test(tcase, a_damaged_page_is_left_out_and_the_rest_saved);
	tcase_add_test(tcase, a_spool_that_cannot_be_written_is_said_and_the_ring_stays);
	suite_add_tcase(suite, tcase);

	return suite;
}
