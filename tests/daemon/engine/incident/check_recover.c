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

#include <errno.h>

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

	leave_ring(true);
	config->incidents.before_ns = 5 * NS_PER_MS;
	recover_ring(path, config, spool);
	ck_assert_uint_eq(count_incidents(incident_path), 1);
	int dirfd = open(incident_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(incident_json_read(dirfd, &incident), 0);
	close(dirfd);
	ck_assert_int_ge(incident.coverage.got_from_ns, -5 * (int64_t)NS_PER_MS);
	ck_assert_uint_le(incident.coverage.ticks_got, 6);
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
	tcase_add_test(tcase, the_entry_in_the_journal_names_the_incident);
	tcase_add_test(tcase, it_is_saved_once);
	tcase_add_test(tcase, only_the_last_of_it_is_saved);
	tcase_add_test(tcase, a_daemon_that_is_killed_again_and_again_keeps_to_the_limits);
	tcase_add_test(tcase, a_ring_that_ended_in_good_order_is_left_alone);
	tcase_add_test(tcase, no_ring_is_no_news);
	tcase_add_test(tcase, what_is_no_ring_is_set_aside);
	tcase_add_test(tcase, a_damaged_page_is_left_out_and_the_rest_saved);
	tcase_add_test(tcase, a_spool_that_cannot_be_written_is_said_and_the_ring_stays);
	suite_add_tcase(suite, tcase);

	return suite;
}
