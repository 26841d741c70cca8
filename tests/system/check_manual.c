/*
 * check_manual.c: incidents that are requested: of a target, of everything, merged, refused;
 * and what a reload leaves alone.
 */
#include "incidents_rig.h"

#include <sys/inotify.h>
#include <sys/stat.h>

Suite *manual_suite(void);

static struct incidents_rig rig;

static void setup(void)
{
	incidents_rig_setup(&rig);
}

static void teardown(void)
{
	incidents_rig_teardown(&rig);
}

/* The target that the configuration names, as the ring describes it. */
static void find_target(struct target *ret, char storage[TARGET_ENCODED_MAX])
{
	struct ring_cursor *cursor;
	struct ring_event event;
	bool found = false;

	for (int naps = 0; naps < SCENE_NAPS && !found; naps++) {
		ck_assert_int_eq(ring_cursor_new(session_parts(rig.session).ring, RING_OLDEST, &cursor), 0);
		while (!found && ring_cursor_next(cursor, &event) == 0)
			found = event.type == RING_EVENT_TARGET;
		if (found)
			ck_assert_int_eq(
				target_decode(storage, target_encode(&event.target, storage, TARGET_ENCODED_MAX), ret),
				0);
		if (found)
			ret->id = event.target.id;
		ring_cursor_free(cursor);
		scene_nap();
	}
	ck_assert(found);
}

static struct incidents_ticket ask(const struct target *target, enum incidents_answer answer)
{
	struct incidents_ticket ticket;

	ck_assert_int_eq(incidents_trigger(rig.incidents, target, &ticket), 0);
	ck_assert_int_eq(ticket.answer, answer);
	ck_assert_str_eq(ticket.directory, rig.spool_at);

	return ticket;
}

static bool begins_with(const char *text, const char *part)
{
	return strncmp(text, part, strlen(part)) == 0;
}

START_TEST(a_target_is_recorded_as_if_a_rule_had_fired)
{
	char path[400], storage[TARGET_ENCODED_MAX];
	struct incident incident;
	struct target target;

	start(&rig, "0B", RULE("hot", "100ms"));
	find_target(&target, storage);
	let_pass(&rig, BEFORE + 100 * NS_PER_MS);

	struct incidents_ticket ticket = ask(&target, INCIDENTS_OPENED);

	ck_assert_uint_gt(ticket.sealed_in_ns, 0);
	ck_assert_uint_le(ticket.sealed_in_ns, AFTER);
	ck_assert_str_eq(ticket.why, "");
	scene_wait_for(poll_once(&rig).sealed == 1);
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert(begins_with(incident.id, ticket.stem));
	ck_assert_int_eq(incident.kind, INCIDENT_MANUAL);
	ck_assert(!incident_of_everything(&incident));
	ck_assert_str_eq(incident.rule.name, "manual");
	ck_assert(!incident.rule.has_value);
	ck_assert_double_eq(incident.rule.severity, INCIDENT_MANUAL_SEVERITY);
	ck_assert_int_eq(incident.target.pid, rig.actor.pid);
	ck_assert_int_lt(incident.coverage.got_from_ns - missed_ns(&incident), -(int64_t)BEFORE * 9 / 10);
	ck_assert_int_gt(incident.coverage.got_to_ns + missed_ns(&incident), 0);
	ck_assert_int_eq(capture_of(&incident, "threads"), INCIDENT_CAPTURE_OK);
	ck_assert_int_eq(capture_of(&incident, "status"), INCIDENT_CAPTURE_OK);
	ck_assert_uint_eq(scene_rows(path, INCIDENT_SAMPLES_FILE).count, incident.coverage.samples);
	ck_assert_uint_eq(poll_once(&rig).manual, 1);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(everything_is_recorded_with_its_past_and_what_comes)
{
	char path[400], file[500], storage[TARGET_ENCODED_MAX];
	struct incident incident;
	struct target target;

	start(&rig, "0B", RULE("hot", "100ms"));
	find_target(&target, storage);
	actor_do(&rig.actor, 'b', "hot-thread");
	let_pass(&rig, BEFORE + 100 * NS_PER_MS);

	struct incidents_ticket ticket = ask(NULL, INCIDENTS_OPENED);

	ck_assert_ptr_nonnull(strstr(ticket.stem, "Z-all-manual"));
	/* What the rule's own incident does is another story. */
	scene_wait_for(poll_once(&rig).sealed >= 1 && poll_once(&rig).open == 0);
	stop(&rig);
	snprintf(path, sizeof(path), "%s/%s-1", rig.spool_at, ticket.stem);
	int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(dirfd, 0);
	ck_assert_int_eq(manifest_verify(dirfd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(dirfd, &incident), 0);
	close(dirfd);
	ck_assert(incident_of_everything(&incident));
	ck_assert_str_eq(incident.target.name, "all");
	ck_assert_uint_eq(incident.coverage.want_before_ns, BEFORE);
	ck_assert_uint_eq(incident.coverage.want_after_ns, AFTER);
	ck_assert_int_lt(incident.coverage.got_from_ns - missed_ns(&incident), -(int64_t)BEFORE * 9 / 10);
	ck_assert_int_gt(incident.coverage.got_to_ns + missed_ns(&incident), 0);
	ck_assert_int_le(incident.coverage.got_to_ns, (int64_t)AFTER);
	ck_assert_uint_gt(incident.coverage.ticks_got, 0);
	ck_assert_uint_gt(incident.coverage.ticks_got + incident.coverage.missed_slots, 10);
	ck_assert_uint_eq(incident.coverage.lost_pages, 0);
	ck_assert(incident.limits.cpu_is_machine);

	struct scene_rows rows = scene_rows(path, INCIDENT_SAMPLES_FILE);

	ck_assert_uint_eq(rows.count, incident.coverage.samples);
	ck_assert_uint_lt(rows.first_ns, BEFORE);
	ck_assert_uint_gt(rows.last_ns, BEFORE);

	/* The busiest of what is watched is looked at. */
	ck_assert_int_eq(capture_of(&incident, "system"), INCIDENT_CAPTURE_OK);
	ck_assert_int_eq(capture_of(&incident, "threads"), INCIDENT_CAPTURE_OK);
	snprintf(file, sizeof(file), "%s/threads.tsv", path);
	ck_assert(scene_says(file, "hot-thread"));
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_second_request_is_merged_and_says_so)
{
	char path[400];
	struct incident incident;

	rig.after_text = "60s"; /* it is open until the end, however long that takes */
	start(&rig, "0B", RULE("hot", "100ms"));
	struct incidents_ticket first = ask(NULL, INCIDENTS_OPENED);

	poll_once(&rig);
	struct incidents_ticket second = ask(NULL, INCIDENTS_MERGED);

	ck_assert_str_eq(first.stem, second.stem);
	ck_assert_uint_le(second.sealed_in_ns, first.sealed_in_ns);
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert_uint_eq(incident.merged_total, 1);
	ck_assert_int_eq(incident.merged[0].kind, INCIDENT_MANUAL);
	ck_assert(!incident.merged[0].has_value);

	char *text = scene_log_text(&rig.log_file);

	ck_assert_ptr_nonnull(strstr(text, "an incident of everything was asked for by hand"));
	ck_assert_ptr_nonnull(strstr(text, "merged into the one that is open"));
	free(text);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_request_joins_the_incident_of_a_rule_and_makes_it_worth_keeping)
{
	char path[400], storage[TARGET_ENCODED_MAX];
	struct incident incident;
	struct target target;

	rig.after_text = "60s";
	start(&rig, "0B", RULE("hot", "100ms"));
	find_target(&target, storage);
	actor_do(&rig.actor, 'b', "hot-thread");
	scene_wait_for(poll_once(&rig).opened == 1);
	ask(&target, INCIDENTS_MERGED);
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert_int_eq(incident.kind, INCIDENT_RULE);
	ck_assert_str_eq(incident.rule.name, "hot");
	ck_assert_int_eq(incident.merged[0].kind, INCIDENT_MANUAL);
	ck_assert_double_ge(incident.rule.severity, INCIDENT_MANUAL_SEVERITY);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(too_little_space_refuses_and_says_why)
{
	char path[400];

	start(&rig, "1000TiB", RULE("hot", "100ms"));
	scene_wait_for((poll_once(&rig), incidents_disk_is_short(rig.incidents)));
	struct incidents_ticket ticket = ask(NULL, INCIDENTS_REFUSED);

	ck_assert_str_eq(ticket.why, "too little disk space");
	ck_assert_str_eq(ticket.stem, "");
	ck_assert_uint_eq(ticket.sealed_in_ns, 0);
	stop(&rig);
	ck_assert_uint_eq(poll_once(&rig).refused, 1);
	ck_assert_uint_eq(count_directories(&rig, path), 0);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(too_many_at_once_are_refused)
{
	char name[32];
	struct target target = { .id = 1000,
				 .kind = TARGET_PROCESS,
				 .pid = 1,
				 .entry = "x",
				 .name = name,
				 .key = name,
				 .comm = "",
				 .cmdline = "",
				 .cgroup = "" };

	start(&rig, "0B", RULE("hot", "100ms"));
	for (unsigned i = 0; i < INCIDENTS_OPEN_MAX; i++) {
		snprintf(name, sizeof(name), "target-%u", i);
		ask(&target, INCIDENTS_OPENED);
	}
	ck_assert_str_eq(ask(NULL, INCIDENTS_REFUSED).why, "too many are open");
	stop(&rig);
	ck_assert_uint_eq(poll_once(&rig).sealed, INCIDENTS_OPEN_MAX);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_reload_changes_what_comes_and_not_what_is_open)
{
	char path[400];
	struct incident incident;
	struct config *before, *after;

	start(&rig, "0B", RULE("hot", "100ms"));
	after = scene_config(
		"{\"incidents\": {\"before\": \"50ms\", \"after\": \"10ms\", \"max_count\": 1, \"min_free\": \"0B\", "
		"\"captures\": [\"samples\"]}, \"targets\": [{\"name\": \"burner\", \"pid\": %d}], \"rules\": [%s]}",
		rig.actor.pid, RULE("hot", "100ms"));
	before = rig.config;
	let_pass(&rig, 300 * NS_PER_MS);
	ask(NULL, INCIDENTS_OPENED);
	incidents_reload(rig.incidents, after);

	/* No incident may refer to it any more; the rules of this test do. */
	memset(&before->incidents, 0xff, sizeof(before->incidents));
	before->sampling.interval_ns = 0;
	before->sampling.heartbeat_ns = 0;
	for (int naps = 0; naps < SCENE_NAPS; naps++) {
		struct incidents_counts counts;

		incidents_poll(rig.incidents, clock_mono(&rig.clock));
		incidents_counts(rig.incidents, &counts);
		if (counts.sealed == 1)
			break;
		scene_nap();
	}
	read_incident(&rig, path, &incident);
	ck_assert_uint_eq(incident.coverage.want_before_ns, BEFORE);
	ck_assert_uint_eq(incident.coverage.want_after_ns, AFTER);
	ck_assert_int_eq(capture_of(&incident, "system"), INCIDENT_CAPTURE_OK);

	/* The next one is of the new one, and there is room for one only. */
	ask(NULL, INCIDENTS_OPENED);
	session_stop(rig.session);
	incidents_finish(rig.incidents);
	read_incident(&rig, path, &incident);
	ck_assert_uint_eq(incident.coverage.want_before_ns, 50 * NS_PER_MS);
	ck_assert_uint_eq(incident.capture_count, 1);
	ck_assert_int_eq(capture_of(&incident, "samples"), INCIDENT_CAPTURE_OK);
	dispatcher_close(rig.dispatcher);
	rig.dispatcher = NULL;
	config_free(after);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_worker_with_nothing_to_do_is_idle)
{
	start(&rig, "0B", RULE("hot", "100ms"));
	ck_assert_uint_eq(incidents_busy_since(rig.incidents).ns, 0);
	ask(NULL, INCIDENTS_OPENED);
	stop(&rig);
	ck_assert_uint_eq(incidents_busy_since(rig.incidents).ns, 0);
	actor_end(&rig.actor);
}
END_TEST

/* The worker waits for the lock of the spool: as if the disk did not answer. */
START_TEST(a_worker_that_is_stuck_says_since_when)
{
	int fd;

	start(&rig, "0B", RULE("hot", "100ms"));
	fd = incidents_rig_lock(&rig);
	mono_t asked = clock_mono(&rig.clock);

	ask(NULL, INCIDENTS_OPENED);
	scene_wait_for(incidents_busy_since(rig.incidents).ns != 0);
	mono_t since = incidents_busy_since(rig.incidents);

	ck_assert_int_ge(mono_diff(since, asked), 0);
	let_pass(&rig, 100 * NS_PER_MS);
	ck_assert_uint_eq(incidents_busy_since(rig.incidents).ns, since.ns);
	close(fd);
	scene_wait_for(incidents_busy_since(rig.incidents).ns != since.ns);
	stop(&rig);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(what_comes_is_written_as_it_comes)
{
	struct stat first, later;
	char path[400], storage[TARGET_ENCODED_MAX];
	struct config *longer;
	struct target target;

	start(&rig, "0B", RULE("hot", "100ms"));
	find_target(&target, storage);
	longer = scene_config(
		"{\"incidents\": {\"after\": \"60s\", \"min_free\": \"0B\"}, \"targets\": [{\"name\": \"burner\", "
		"\"pid\": %d}], \"rules\": [%s]}",
		rig.actor.pid, RULE("hot", "100ms"));
	incidents_reload(rig.incidents, longer);
	actor_do(&rig.actor, 'b', "hot-thread");

	struct incidents_ticket ticket = ask(NULL, INCIDENTS_OPENED);

	snprintf(path, sizeof(path), "%s/%s-1.tmp/%s", rig.spool_at, ticket.stem, INCIDENT_SAMPLES_FILE);
	scene_wait_for(stat(path, &first) == 0 && first.st_size > 0);
	let_pass(&rig, 100 * NS_PER_MS);
	ck_assert_int_eq(stat(path, &first), 0);
	/* A minute before its end. */
	scene_wait_for((poll_once(&rig), stat(path, &later) == 0 && later.st_size > first.st_size));
	stop(&rig);
	dispatcher_close(rig.dispatcher);
	rig.dispatcher = NULL;
	config_free(longer);
	actor_end(&rig.actor);
}
END_TEST

/*
 * Three are waiting for a worker that is stuck: the past of everything is in the ring only, so it
 * goes first.
 */
START_TEST(everything_comes_before_what_else_is_queued)
{
	char name[32], first[128] = "", second[128] = "";
	struct target target = { .id = 1000,
				 .kind = TARGET_PROCESS,
				 .pid = 1,
				 .entry = "x",
				 .name = name,
				 .key = name,
				 .comm = "",
				 .cmdline = "",
				 .cgroup = "" };
	union {
		struct inotify_event event;
		char text[4096];
	} events;
	int fd, watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	start(&rig, "0B", RULE("hot", "100ms"));
	fd = incidents_rig_lock(&rig);
	snprintf(name, sizeof(name), "stuck");
	ask(&target, INCIDENTS_OPENED);
	scene_wait_for(incidents_busy_since(rig.incidents).ns != 0);
	snprintf(name, sizeof(name), "queued");
	ask(&target, INCIDENTS_OPENED);
	ask(NULL, INCIDENTS_OPENED);
	ck_assert_int_ge(inotify_add_watch(watch, rig.spool_at, IN_CREATE), 0);
	close(fd);
	stop(&rig);

	ssize_t len = read(watch, &events, sizeof(events));

	for (ssize_t at = 0; at < len;) {
		const struct inotify_event *event = (const void *)(events.text + at);

		if (strstr(event->name, "-all-manual") || strstr(event->name, "-queued-manual"))
			snprintf(*first ? second : first, sizeof(first), "%s", event->name);
		at += (ssize_t)(sizeof(*event) + event->len);
	}
	ck_assert_ptr_nonnull(strstr(first, "-all-manual"));
	ck_assert_ptr_nonnull(strstr(second, "-queued-manual"));
	close(watch);
	actor_end(&rig.actor);
}
END_TEST

Suite *manual_suite(void)
{
	Suite *suite = suite_create("manual");
	TCase *tcase = tcase_create("by_hand");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_target_is_recorded_as_if_a_rule_had_fired);
	tcase_add_test(tcase, everything_is_recorded_with_its_past_and_what_comes);
	tcase_add_test(tcase, a_second_request_is_merged_and_says_so);
	tcase_add_test(tcase, a_request_joins_the_incident_of_a_rule_and_makes_it_worth_keeping);
	tcase_add_test(tcase, too_little_space_refuses_and_says_why);
	tcase_add_test(tcase, too_many_at_once_are_refused);
	tcase_add_test(tcase, a_reload_changes_what_comes_and_not_what_is_open);
	tcase_add_test(tcase, a_worker_with_nothing_to_do_is_idle);
	tcase_add_test(tcase, a_worker_that_is_stuck_says_since_when);
	tcase_add_test(tcase, what_comes_is_written_as_it_comes);
	tcase_add_test(tcase, everything_comes_before_what_else_is_queued);
	suite_add_tcase(suite, tcase);

	return suite;
}
