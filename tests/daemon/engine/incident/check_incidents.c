/*
 * check_incidents.c: from a process that burns CPU to a sealed directory: session, rules,
 * dispatcher and incidents, wired as the daemon wires them.
 */
#include "evaluator_feed.h"
#include "incidents_rig.h"
#include "skip.h"
#include "torture.h"

#include <sys/prctl.h>

Suite *incidents_suite(void);

static struct incidents_rig rig;

static void setup(void)
{
	incidents_rig_setup(&rig);
}

static void teardown(void)
{
	incidents_rig_teardown(&rig);
}

START_TEST(a_thread_that_burns_becomes_a_sealed_incident_that_names_it)
{
	char path[400];
	struct incident incident;

	start(&rig, "0B", RULE("hot", "100ms"));
	let_pass(&rig, BEFORE + 200 * NS_PER_MS);
	actor_do(&rig.actor, 'b', "hot-thread");
	/* In large bites: when the rule fires the ring holds ticks that come by once more. */
	scene_wait_for((usleep(30000), poll_once(&rig).sealed == 1));
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert_str_eq(incident.rule.name, "hot");
	ck_assert_str_eq(incident.rule.reason, "above-percent");
	ck_assert(incident.rule.has_value && incident.rule.value > 20);
	ck_assert_int_eq(incident.target.pid, rig.actor.pid);
	ck_assert_uint_eq(incident.target.start_ticks, scene_start_ticks(rig.actor.pid));

	/*
	 * The window before and after is covered, but for a tick at either end, or what a busy machine has
	 * missed, which the incident says.
	 */
	ck_assert_int_lt(incident.coverage.got_from_ns - missed_ns(&incident), -(int64_t)BEFORE * 9 / 10);
	ck_assert_int_gt(incident.coverage.got_to_ns + missed_ns(&incident), 0);
	ck_assert_uint_eq(incident.coverage.samples_dropped, 0);
	ck_assert_uint_eq(incident.coverage.lost_pages, 0);
	ck_assert(!incident.coverage.gone);

	struct scene_rows rows = scene_rows(path, INCIDENT_SAMPLES_FILE);

	ck_assert_uint_gt(rows.count, 1);
	ck_assert_uint_gt(rows.count + incident.coverage.missed_slots, 10);
	ck_assert_uint_eq(rows.again, 0);
	ck_assert_uint_eq(rows.count, incident.coverage.samples);
	ck_assert_uint_lt(rows.first_ns, BEFORE);
	ck_assert_uint_gt(rows.last_ns, BEFORE);
	ck_assert_uint_le(rows.last_ns, BEFORE + AFTER);

	/* The busiest thread is the first row below the heading. */
	char *threads = read_file(path, "threads.tsv");
	char *row = strstr(threads, "remark\n");

	ck_assert_ptr_nonnull(row);
	row[strcspn(row + 7, "\n") + 7] = '\0';
	ck_assert_msg(strstr(row, "hot-thread") != NULL, "%s", row);
	free(threads);
	for (size_t i = 0; i < incident.capture_count; i++)
		ck_assert_int_ne(incident.captures[i].status, INCIDENT_CAPTURE_FAILED);
	ck_assert_int_eq(capture_of(&incident, "samples"), INCIDENT_CAPTURE_OK);
	ck_assert_int_eq(capture_of(&incident, "status"), INCIDENT_CAPTURE_OK);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_second_firing_is_merged_into_the_one_that_is_open)
{
	char path[400];
	struct incident incident;

	/* Windows that end together see the same: both fire, however late that is. */
	start(&rig, "0B", RULE("hot", "100ms") "," RULE("hotter", "100ms"));
	let_pass(&rig, 300 * NS_PER_MS);
	actor_do(&rig.actor, 'b', "hot-thread");
	scene_wait_for(poll_once(&rig).sealed == 1);
	stop(&rig);
	struct incidents_counts counts = poll_once(&rig);

	ck_assert_uint_eq(counts.opened, 1);
	ck_assert_uint_eq(counts.merged, 1);
	ck_assert_uint_eq(counts.open, 0);
	read_incident(&rig, path, &incident);
	ck_assert_uint_eq(incident.merged_total, 1);
	ck_assert_uint_eq(incident.merged_count, 1);
	ck_assert_str_ne(incident.merged[0].rule, incident.rule.name);
	ck_assert(incident.merged[0].has_value && incident.merged[0].value > 20);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_target_that_dies_within_the_window_is_sealed_and_said_to_be_gone)
{
	char path[400];
	struct incident incident;

	rig.after_text = "3s";
	start(&rig, "0B", RULE("hot", "100ms"));
	let_pass(&rig, 300 * NS_PER_MS);
	actor_do(&rig.actor, 'b', "hot-thread");
	scene_wait_for(poll_once(&rig).opened == 1);
	actor_end(&rig.actor);
	scene_wait_for(poll_once(&rig).sealed == 1);
	uint64_t evaluations = feed_judged(rig.evaluator);

	let_pass(&rig, 250 * NS_PER_MS);
	ck_assert_uint_eq(feed_judged(rig.evaluator), evaluations); /* the dead are not judged */
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert(incident.coverage.gone);
	ck_assert_int_gt(incident.coverage.gone_ns, 0);
	ck_assert_uint_eq(scene_rows(path, INCIDENT_SAMPLES_FILE).gone, 1);
}
END_TEST

START_TEST(stopping_seals_what_is_open)
{
	char path[400];
	struct incident incident;

	start(&rig, "0B", RULE("hot", "100ms"));
	let_pass(&rig, 200 * NS_PER_MS);
	actor_do(&rig.actor, 'b', "hot-thread");
	scene_wait_for(poll_once(&rig).opened == 1);
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert_uint_eq(incident.coverage.want_after_ns, AFTER);
	scene_rows(path, INCIDENT_SAMPLES_FILE);
	actor_end(&rig.actor);
}
END_TEST

/* How often it was said since this was last asked. */
static unsigned times_said(const char *part)
{
	char *text = scene_log_text(&rig.log_file);
	unsigned times = 0;

	for (const char *at = text; (at = strstr(at, part)); at++)
		times++;
	free(text);

	return times;
}

START_TEST(without_disk_space_nothing_fires_and_it_is_said_once)
{
	unsigned times;
	char path[400];

	start(&rig, "1000TiB", RULE("hot", "100ms"));
	actor_do(&rig.actor, 'b', "hot-thread");
	scene_wait_for((poll_once(&rig), times = times_said("too little disk space")) > 0);
	let_pass(&rig, 500 * NS_PER_MS);
	stop(&rig);
	ck_assert_uint_eq(times + times_said("too little disk space"), 1);
	ck_assert_uint_eq(poll_once(&rig).opened, 0);
	ck_assert_uint_eq(count_directories(&rig, path), 0);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_spool_that_cannot_be_made_anew_is_said)
{
	char path[400];

	start(&rig, "0B", RULE("hot", "100ms"));
	scene_remove(rig.spool_at);
	scene_write(rig.spool_at, "a file is in the way");
	actor_do(&rig.actor, 'b', "hot-thread");
	scene_wait_for(poll_once(&rig).failed == 1);
	stop(&rig);
	ck_assert_uint_eq(poll_once(&rig).sealed, 0);
	ck_assert_uint_eq(count_directories(&rig, path), 0);

	char *text = scene_log_text(&rig.log_file);

	ck_assert_ptr_nonnull(strstr(text, "could not be written: Not a directory"));
	free(text);
	actor_end(&rig.actor);
}
END_TEST

/*
 * Waits for the end of what is open while no file can grow beyond so many bytes: as if the disk
 * were full. Without a ck_assert, which writes a file too.
 */
static struct incidents_counts end_on_full_disk(rlim_t bytes)
{
	struct rlimit limit, none;
	struct incidents_counts counts = { 0 };

	scene_wait_for(poll_once(&rig).opened == 1);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &limit);
	none = (struct rlimit){ bytes, limit.rlim_max };
	setrlimit(RLIMIT_FSIZE, &none);
	for (int naps = 0; naps < SCENE_NAPS && counts.sealed + counts.failed == 0; naps++) {
		dispatcher_poll(rig.dispatcher, clock_mono(&rig.clock));
		incidents_counts(rig.incidents, &counts);
		scene_nap();
	}
	setrlimit(RLIMIT_FSIZE, &limit);
	stop(&rig);

	return counts;
}

START_TEST(a_disk_that_is_full_leaves_nothing_half_written)
{
	char path[400];

	start(&rig, "0B", RULE("hot", "100ms"));
	actor_do(&rig.actor, 'b', "hot-thread");
	struct incidents_counts counts = end_on_full_disk(1024);
	char *text = scene_log_text(&rig.log_file);

	ck_assert_uint_eq(counts.failed, 1);
	ck_assert_uint_eq(count_directories(&rig, path), 0);
	ck_assert_msg(strstr(text, "could not be written: File too large") != NULL, "%s", text);
	free(text);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(samples_that_do_not_fit_are_left_out_and_the_incident_says_so)
{
	char path[400], file[500];
	struct incident incident;

	rig.before_text = "20s";
	start(&rig, "0B", RULE("hot", "100ms"));
	scene_wait_for(ticks(&rig) > 300); /* more than fits, however long they take */
	actor_do(&rig.actor, 'b', "hot-thread");
	struct incidents_counts counts = end_on_full_disk(6000);

	ck_assert_uint_eq(counts.sealed, 1);
	read_incident(&rig, path, &incident);
	ck_assert_int_eq(capture_of(&incident, "samples"), INCIDENT_CAPTURE_FAILED);
	snprintf(file, sizeof(file), "%s/%s", path, INCIDENT_SAMPLES_FILE);
	ck_assert_int_lt(access(file, F_OK), 0);
	actor_end(&rig.actor);
}
END_TEST

/* A rule that has fired on target number i, without anything having happened. */
static const char *fired_cgroup = "";
static double fired_value = 50;
static pid_t fired_pid = 1;
static uint64_t fired_wall_back_ns; /* by so much the wall clock was set back */

static void fire_later(unsigned i, uint64_t later_ns)
{
	char name[32];
	struct trigger_decision decision = {
		.fires = true, .available = true, .value = fired_value, .candidate_reason = TRIGGER_ABOVE_PERCENT
	};
	struct target target = { .id = 1000 + i,
				 .kind = TARGET_PROCESS,
				 .pid = fired_pid,
				 .entry = "burner",
				 .name = name,
				 .key = name,
				 .comm = "",
				 .cmdline = "",
				 .cgroup = fired_cgroup };
	struct evaluator_firing firing = {
		.rule = &rig.config->rules[0],
		.target = &target,
		.to = mono_add(clock_mono(&rig.clock), later_ns),
		.wall = { clock_wall(&rig.clock).ns - fired_wall_back_ns },
		.decision = &decision,
		.effective = &rig.config->rules[0].trigger,
		.cpu_limit = UINT64_MAX,
		.memory_limit = UINT64_MAX,
	};

	firing.from = mono_sub(firing.to, NS_PER_MS);
	snprintf(name, sizeof(name), "target-%u", i);
	incidents_fire(rig.incidents, &firing);
}

static void fire(unsigned i)
{
	fire_later(i, 0);
}

START_TEST(what_is_not_known_to_be_limited_is_limited_by_the_machine)
{
	char path[400];
	struct incident incident;
	double cores;

	start(&rig, "0B", RULE("hot", "100ms"));
	cores = session_parts(rig.session).machine->cores;
	fire(0);
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert_uint_eq(incident.limits.cpu, (uint64_t)(cores * 1e9));
	ck_assert(incident.limits.cpu_is_machine && incident.limits.memory_is_machine);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(too_many_at_once_are_refused_and_the_others_are_written)
{
	struct incidents_counts counts;
	char path[400];

	start(&rig, "0B", RULE("hot", "100ms"));
	incidents_counts(rig.incidents, &counts);
	ck_assert_uint_eq(counts.ends.ns, 0);

	mono_t earliest = clock_mono(&rig.clock), latest;

	fire(0);
	latest = clock_mono(&rig.clock);
	for (unsigned i = 1; i < INCIDENTS_OPEN_MAX + 3; i++)
		fire(i);
	fire(0);
	incidents_counts(rig.incidents, &counts);
	ck_assert_uint_ge(counts.ends.ns, earliest.ns + AFTER);
	ck_assert_uint_le(counts.ends.ns, latest.ns + AFTER);
	ck_assert_uint_eq(counts.open, INCIDENTS_OPEN_MAX);
	ck_assert_uint_eq(counts.refused, 3);
	ck_assert_uint_eq(counts.merged, 1);
	incidents_gap(rig.incidents, clock_mono(&rig.clock), 2);

	char *text = scene_log_text(&rig.log_file);
	char *first = strstr(text, "too many are open");

	ck_assert_ptr_nonnull(first);
	ck_assert_ptr_null(strstr(first + 1, "too many are open"));
	free(text);
	stop(&rig);
	incidents_counts(rig.incidents, &counts);
	ck_assert_uint_eq(counts.sealed, INCIDENTS_OPEN_MAX + 1); /* and the storm */
	ck_assert_uint_eq(counts.ends.ns, 0);
	ck_assert_uint_eq(count_directories(&rig, path), INCIDENTS_OPEN_MAX + 1);
	actor_end(&rig.actor);
}
END_TEST

static struct incidents_counts counts_now(void)
{
	struct incidents_counts counts;

	incidents_counts(rig.incidents, &counts);
	return counts;
}

/* The sealed storm, whole, and the text of its file, for free(3); NULL: there is none. */
static char *read_storm(struct incident *ret)
{
	DIR *dir = opendir(rig.spool_at);
	char path[400], *text = NULL;

	for (struct dirent *item; !text && (item = readdir(dir));) {
		if (!strstr(item->d_name, "-many-storm-") || strstr(item->d_name, ".tmp"))
			continue;
		snprintf(path, sizeof(path), "%s/%s", rig.spool_at, item->d_name);
		int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
		ck_assert_int_eq(incident_json_read(fd, ret), 0);
		close(fd);
		text = read_file(path, INCIDENT_STORM_FILE);
	}
	closedir(dir);

	return text;
}

START_TEST(firings_without_an_incident_are_counted_by_rule_and_target)
{
	struct incident storm;

	start(&rig, "0B", RULE("hot", "100ms"));
	for (unsigned i = 0; i < INCIDENTS_OPEN_MAX; i++)
		fire(i);
	for (fired_value = 30; fired_value <= 90; fired_value += 20)
		fire(20);
	fired_value = 40;
	fire(20);
	fire(21);
	ck_assert_uint_eq(counts_now().storm_firings, 6);
	ck_assert_uint_eq(counts_now().storm_rows, 2);
	incidents_poll(rig.incidents, mono_add(clock_mono(&rig.clock), INCIDENTS_STORM_CALM_NS - NS_PER_S));
	ck_assert_uint_eq(counts_now().storm_firings, 6);
	incidents_poll(rig.incidents, mono_add(clock_mono(&rig.clock), INCIDENTS_STORM_CALM_NS + NS_PER_S));
	ck_assert_uint_eq(counts_now().storm_firings, 0);
	stop(&rig);

	char *text = read_storm(&storm);

	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(storm.kind, INCIDENT_STORM);
	ck_assert_uint_eq(storm.merged_total, 6);
	ck_assert_double_eq_tol(storm.rule.severity, 4.5, 0.001); /* 90 % over 20 % */
	ck_assert_ptr_nonnull(strstr(text, "\n5\thot\ttarget-20\t90%\t4.50\t0\t"));
	ck_assert_ptr_nonnull(strstr(text, "\n1\thot\ttarget-21\t40%\t2.00\t"));
	ck_assert_ptr_nonnull(strstr(text, "too many are open"));
	free(text);
	actor_end(&rig.actor);
}
END_TEST

/* first_ns and last_ns of that target's row. */
static void times_of_row(const char *text, const char *target, uint64_t *ret_first_ns, uint64_t *ret_last_ns)
{
	const char *row = strstr(text, target);

	ck_assert_msg(row && sscanf(row, "%*[^\t]\t%*[^\t]\t%*[^\t]\t%ju\t%ju", ret_first_ns, ret_last_ns) == 2,
		      "%s: %s", target, text);
}

START_TEST(times_in_a_storm_do_not_follow_the_wall_clock)
{
	struct incident storm;
	uint64_t first_ns, last_ns;

	start(&rig, "0B", RULE("hot", "100ms"));
	for (unsigned i = 0; i < INCIDENTS_OPEN_MAX; i++)
		fire(i);
	fire_later(20, 3600 * NS_PER_S);
	fired_wall_back_ns = 86400 * NS_PER_S;
	fire_later(20, 3700 * NS_PER_S);
	fire_later(21, 3800 * NS_PER_S);
	fire(22); /* sampled before the first, and judged after it */
	ck_assert_uint_eq(counts_now().storm_rows, 3);
	stop(&rig);

	AUTO_FREE char *text = read_storm(&storm);

	ck_assert_ptr_nonnull(text);
	times_of_row(text, "target-20", &first_ns, &last_ns);
	ck_assert_uint_eq(first_ns, 0);
	ck_assert(last_ns >= 100 * NS_PER_S && last_ns < 3600 * NS_PER_S);
	times_of_row(text, "target-21", &first_ns, &last_ns);
	ck_assert(first_ns >= 200 * NS_PER_S && first_ns < 3600 * NS_PER_S);
	ck_assert_uint_eq(last_ns, first_ns);
	ck_assert_uint_eq(storm.window_to.ns - storm.mono.ns, last_ns);
	times_of_row(text, "target-22", &first_ns, &last_ns);
	ck_assert_uint_eq(first_ns, 0);
	ck_assert_uint_eq(last_ns, 0);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_storm_of_any_size_is_counted_in_bounded_memory)
{
	const unsigned many = INCIDENTS_STORM_ROWS_MAX + 500;
	struct incident storm;
	unsigned lines = 0;

	start(&rig, "0B", RULE("hot", "100ms"));
	for (unsigned i = 0; i < INCIDENTS_OPEN_MAX + many; i++)
		fire(i);
	ck_assert_uint_eq(counts_now().storm_firings, many);
	ck_assert_uint_eq(counts_now().storm_rows, INCIDENTS_STORM_ROWS_MAX + 1);
	stop(&rig);

	char *text = read_storm(&storm);

	ck_assert_ptr_nonnull(text);
	ck_assert_uint_eq(storm.merged_total, many);
	for (const char *at = text; (at = strchr(at, '\n')); at++)
		lines++;
	ck_assert_uint_eq(lines, INCIDENTS_STORM_ROWS_MAX + 2); /* and the heading */
	ck_assert_ptr_nonnull(strstr(text, "\n500\t\t\t"));
	free(text);
	actor_end(&rig.actor);
}
END_TEST

/* Never returns: is killed before that step of recording a storm, or exits with 0 when it is sealed before. */
static void record_until(long step)
{
	rig.after_text = "0s";
	start(&rig, "0B", RULE("hot", "100ms"));
	rig.config->incidents.max_per_hour = 1;
	fire(0);
	for (int naps = 0; naps < SCENE_NAPS && poll_once(&rig).sealed == 0; naps++)
		scene_nap();
	torture_kill_at(step, "disk");
	fire(1);
	fire(2);
	stop(&rig);
	torture_kill_at(0, NULL);
	_exit(counts_now().sealed == 2 ? 0 : 1);
}

/* What the next start makes of it. Returns whether the storm is there, whole. */
static bool find_storm_after(void)
{
	static const struct retention_limits none;
	const struct spool_swept *swept;
	struct incident storm = { 0 };
	struct spool *spool;
	char path[400];
	size_t before = count_directories(&rig, path), drafts, gone = 0;

	ck_assert_int_eq(spool_open(rig.spool_at, &none, &spool, NULL), 0);
	spool_wait(spool, 60 * NS_PER_S, NULL, NULL);
	drafts = spool_swept(spool, &swept);
	ck_assert_uint_le(drafts, 1);
	for (size_t i = 0; i < drafts; i++)
		gone += !swept[i].adopted;
	ck_assert_uint_eq(count_directories(&rig, path), before - gone);

	AUTO_FREE char *text = read_storm(&storm);

	ck_assert_uint_eq(before - gone, text ? 2 : 1); /* the other was sealed before */
	if (text) {
		ck_assert_int_eq(storm.kind, INCIDENT_STORM);
		ck_assert_uint_eq(storm.merged_total, 2);
		ck_assert_double_eq_tol(storm.rule.severity, 2.5, 0.001);
		ck_assert_ptr_nonnull(strstr(text, "\ttarget-2\t50%\t2.50\t"));
	}
	spool_free(spool);
	return text != NULL;
}

START_TEST(a_daemon_that_is_killed_at_any_step_of_recording_a_storm_leaves_it_whole_or_says_that_it_is_gone)
{
	int status = -1;
	long step = 0, kept = 0;

	while (status != 0) {
		pid_t child;

		step++;
		snprintf(rig.spool_at, sizeof(rig.spool_at), "%s/incidents-%ld", rig.directory, step);
		child = fork();
		if (child == 0)
			record_until(step);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_msg(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL), "step %ld: %x", step,
			      status);
		kept += find_storm_after();
	}
	ck_assert_int_gt(step, 10);
	ck_assert_int_gt(kept, 1);
	ck_assert_int_lt(kept, step);
	actor_end(&rig.actor);
}
END_TEST

/* A limit of the hour refuses firings for an hour: that is no incident each half minute. */
START_TEST(storms_are_not_recorded_one_after_the_other)
{
	start(&rig, "0B", RULE("hot", "100ms"));
	rig.config->incidents.max_per_hour = 1;
	fire(0);
	fire(1);
	incidents_poll(rig.incidents, mono_add(clock_mono(&rig.clock), INCIDENTS_STORM_CALM_NS + NS_PER_S));
	ck_assert_uint_eq(counts_now().opened, 2);
	fire_later(2, 100 * NS_PER_S);
	incidents_poll(rig.incidents, mono_add(clock_mono(&rig.clock), 300 * NS_PER_S));
	ck_assert_uint_eq(counts_now().storm_firings, 1);
	incidents_poll(rig.incidents, mono_add(clock_mono(&rig.clock), 100 * NS_PER_S + INCIDENTS_STORM_MAX_NS));
	ck_assert_uint_eq(counts_now().storm_firings, 0);
	ck_assert_uint_eq(counts_now().opened, 3);
	stop(&rig);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(what_becomes_free_is_taken_by_the_next_firing)
{
	start(&rig, "0B", RULE("hot", "100ms"));
	for (unsigned i = 0; i < INCIDENTS_OPEN_MAX + 1; i++)
		fire(i);
	ck_assert_uint_eq(counts_now().refused, 1);
	scene_wait_for(poll_once(&rig).open < INCIDENTS_OPEN_MAX);
	fire(50);
	ck_assert_uint_eq(counts_now().refused, 1);
	ck_assert_uint_eq(counts_now().opened, INCIDENTS_OPEN_MAX + 1);
	stop(&rig);
	actor_end(&rig.actor);
}
END_TEST

static uint64_t open_now(void)
{
	struct incidents_counts counts;

	incidents_counts(rig.incidents, &counts);
	return counts.open;
}

/* A user has at most half of what is left; services and root have all of it. */
START_TEST(a_user_leaves_room_for_others)
{
	start(&rig, "0B", RULE("hot", "100ms"));
	fired_cgroup = "/user.slice/user-1001.slice/session-3.scope";
	for (unsigned i = 0; i < 1000; i++)
		fire(i);
	ck_assert_uint_eq(open_now(), 8);
	fired_cgroup = "/user.slice/user-1002.slice/user@1002.service/app.slice/b.scope";
	for (unsigned i = 1000; i < 1010; i++)
		fire(i);
	ck_assert_uint_eq(open_now(), 12);
	fired_cgroup = "/system.slice/nginx.service/user-1001.slice"; /* the service's own, of any name */
	for (unsigned i = 1010; i < 1020; i++)
		fire(i);
	ck_assert_uint_eq(open_now(), INCIDENTS_OPEN_MAX);
	stop(&rig);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_user_leaves_incidents_of_the_hour_for_others)
{
	start(&rig, "0B", RULE("hot", "100ms"));
	rig.config->incidents.max_per_hour = 6;
	fired_cgroup = "/user.slice/user-1001.slice/session-3.scope";
	for (unsigned i = 0; i < 10; i++)
		fire(i);
	ck_assert_uint_eq(open_now(), 3);
	fired_cgroup = "/system.slice/nginx.service";
	for (unsigned i = 10; i < 20; i++)
		fire(i);
	ck_assert_uint_eq(open_now(), 6);
	stop(&rig);
	actor_end(&rig.actor);
}
END_TEST

static void fire_of_user(unsigned uid, unsigned i)
{
	char cgroup[64];

	snprintf(cgroup, sizeof(cgroup), "/user.slice/user-%u.slice/session-1.scope", uid);
	fired_cgroup = cgroup;
	fire(i);
	fired_cgroup = "";
}

static void close_all(void)
{
	incidents_poll(rig.incidents, mono_add(clock_mono(&rig.clock), 7200 * NS_PER_S));
	ck_assert_uint_eq(open_now(), 0);
	scene_wait_for(poll_once(&rig).pending == 0);
}

/* Users with one share together: what they had open when an hour was over is not counted for ever. */
START_TEST(a_share_of_several_users_is_free_again_when_their_incidents_are_closed)
{
	start(&rig, "0B", RULE("hot", "100ms"));
	rig.config->incidents.max_per_hour = 0;
	for (unsigned from = 0; from <= 1000; from += 1000) {
		for (unsigned i = 0; i < 100; i++) /* more than have a share of their own */
			fire_of_user(2000 + i, from + i);
		ck_assert_uint_eq(open_now(), INCIDENTS_OPEN_MAX);
		close_all();
		for (unsigned i = 0; i < 20; i++)
			fire_of_user(3000 + from + i, from + 200 + i);
		ck_assert_uint_eq(open_now(), INCIDENTS_OPEN_MAX / 2);
		fired_cgroup = "/system.slice/nginx.service";
		fire_later(from + 300, 3700 * NS_PER_S); /* the hour is over */
		close_all();
	}
	stop(&rig);
	actor_end(&rig.actor);
}
END_TEST

/* A process that keeps what its user has started it with, until it is killed. */
static pid_t start_as(uid_t real, uid_t effective, bool undumpable)
{
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setresuid(real, effective, effective) < 0)
			_exit(1);
		prctl(PR_SET_DUMPABLE, !undumpable);
		(void)!write(ready[1], "", 1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);

	return pid;
}

static const struct {
	uid_t real, effective;
	bool undumpable;
	const char *cgroup, *owner;
} owned[] = {
	{ 4711, 4711, false, "", "uid 4711" },
	{ 4711, 4711, true, "", "uid 4711" },
	{ 4711, 0, false, "", "uid 4711" }, /* set-user-id */
	{ 4711, 0, true, "/system.slice/cron.service", "uid 4711" },
	{ 165536, 165536, false, "/user.slice/user-1001.slice/session-3.scope", "uid 1001" }, /* subuid */
	{ 0, 0, false, "/user.slice/user-1001.slice/session-3.scope", "uid 1001" },           /* su */
	{ 4711, 4711, false, "/user.slice/user-0.slice/session-1.scope", "uid 4711" },
	{ 0, 0, false, "/system.slice/nginx.service", "cgroup nginx.service" },
	{ 0, 0, false, "", "root" },
};

START_TEST(whose_share_an_incident_takes_is_not_chosen_by_the_program)
{
	char path[400];
	struct incident incident;

	if (geteuid() != 0)
		SKIP_TEST("only root becomes other users");
	fired_pid = start_as(owned[_i].real, owned[_i].effective, owned[_i].undumpable);
	fired_cgroup = owned[_i].cgroup;
	start(&rig, "0B", RULE("hot", "100ms"));
	fire(0);
	stop(&rig);
	kill(fired_pid, SIGKILL);
	waitpid(fired_pid, NULL, 0);
	read_incident(&rig, path, &incident);
	ck_assert_str_eq(incident.target.owner, owned[_i].owner);
	actor_end(&rig.actor);
}
END_TEST

/* The directory of a sealed incident of this target; -1: there is none. */
static int sealed_of(const char *target)
{
	DIR *dir = opendir(rig.spool_at);
	int fd = -1;

	for (struct dirent *item; dir && fd < 0 && (item = readdir(dir));)
		if (strstr(item->d_name, target) && !strstr(item->d_name, ".tmp"))
			fd = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir)
		closedir(dir);
	return fd;
}

/*
 * One user's processes fire a thousand times, as severely as can be, in a spool of twenty; a mild
 * incident of another user in the midst of it is sealed soon, whole, and stays.
 */
START_TEST(an_attack_of_a_user_costs_no_other_its_incident)
{
	const struct retention_limits limits = { .max_bytes = 1ull << 30, .max_count = 20, .max_age_ns = UINT64_MAX };
	uint64_t asked_ns = 0, sealed_ns = 0;
	struct incidents_counts counts = { 0 };
	char path[400];
	int dirfd;

	rig.after_text = "50ms";
	start(&rig, "0B", RULE("hot", "100ms"));
	spool_set_limits(rig.spool, &limits);
	rig.config->incidents.max_per_hour = 0;
	for (unsigned i = 0; i < 1000 || sealed_ns == 0 || counts.sealed <= 25; i++) {
		bool is_other = i == 500;

		fired_cgroup = is_other ? "/user.slice/user-1002.slice/session-1.scope"
					: "/user.slice/user-1001.slice/session-3.scope";
		fired_value = is_other ? 21 : 90;
		fire(i);
		if (is_other)
			asked_ns = clock_mono(&rig.clock).ns;
		if (i % 5 == 0) {
			counts = poll_once(&rig);
			scene_nap();
		}
		dirfd = asked_ns > 0 && sealed_ns == 0 ? sealed_of("target-500") : -1;
		if (dirfd >= 0) {
			sealed_ns = clock_mono(&rig.clock).ns;
			close(dirfd);
		}
		ck_assert(asked_ns == 0 || sealed_ns > 0 || clock_mono(&rig.clock).ns - asked_ns < 10 * NS_PER_S);
	}
	stop(&rig);
	incidents_counts(rig.incidents, &counts);
	ck_assert_uint_gt(counts.sealed, 20); /* the spool was full */
	ck_assert_uint_le(count_directories(&rig, path), 20);
	dirfd = sealed_of("target-500");
	ck_assert_int_ge(dirfd, 0);
	ck_assert_int_eq(manifest_verify(dirfd, NULL, NULL), 0);
	close(dirfd);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(in_an_hour_rules_open_no_more_than_they_may)
{
	struct incidents_counts counts;

	start(&rig, "0B", RULE("hot", "100ms"));
	rig.config->incidents.max_per_hour = 2;
	for (unsigned i = 0; i < 4; i++)
		fire(i);
	fire(1);
	incidents_counts(rig.incidents, &counts);
	ck_assert_uint_eq(counts.open, 2);
	ck_assert_uint_eq(counts.refused, 2);
	ck_assert_uint_eq(counts.merged, 1);

	char *text = scene_log_text(&rig.log_file);

	ck_assert_ptr_nonnull(strstr(text, "no incident was opened: there were incidents.max_per_hour within an hour"));
	free(text);
	fire_later(5, 3500 * NS_PER_S);
	incidents_counts(rig.incidents, &counts);
	ck_assert_uint_eq(counts.open, 2);
	fire_later(6, 3700 * NS_PER_S);
	incidents_counts(rig.incidents, &counts);
	ck_assert_uint_eq(counts.open, 3);
	rig.config->incidents.max_per_hour = 0;
	for (unsigned i = 7; i < 12; i++)
		fire_later(i, 3700 * NS_PER_S);
	incidents_counts(rig.incidents, &counts);
	ck_assert_uint_eq(counts.open, 8);
	stop(&rig);
	actor_end(&rig.actor);
}
END_TEST

/* More than the ring can have brought by itself. */
#define MANY_TICKS 20000u

/* Only the writer that sampled the target last covers time: a tick of another one does not. */
START_TEST(only_the_ticks_of_who_looks_at_the_target_count)
{
	const uint32_t looker = 1, ticking = (uint32_t)_i;
	struct sample sample = { 0 };
	struct incident incident;
	char path[400];

	start(&rig, "0B", RULE("hot", "100ms"));
	fire(0);
	mono_t now = mono_add(clock_mono(&rig.clock), NS_PER_MS);

	incidents_tick(rig.incidents, now, 0, looker);
	sample_set(&sample, SAMPLE_CPU, 1);
	incidents_sample(rig.incidents, 1000, now, &sample);
	for (uint64_t i = 1; i <= MANY_TICKS; i++)
		incidents_tick(rig.incidents, mono_add(now, i * NS_PER_US), 0, ticking);
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert_uint_eq(incident.coverage.ticks_got >= MANY_TICKS, ticking == looker);
	actor_end(&rig.actor);
}
END_TEST

Suite *incidents_suite(void)
{
	Suite *suite = suite_create("incidents");
	TCase *tcase = tcase_create("whole");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_thread_that_burns_becomes_a_sealed_incident_that_names_it);
	tcase_add_test(tcase, a_second_firing_is_merged_into_the_one_that_is_open);
	tcase_add_test(tcase, a_target_that_dies_within_the_window_is_sealed_and_said_to_be_gone);
	tcase_add_test(tcase, stopping_seals_what_is_open);
	tcase_add_test(tcase, without_disk_space_nothing_fires_and_it_is_said_once);
	tcase_add_test(tcase, a_spool_that_cannot_be_made_anew_is_said);
	tcase_add_test(tcase, a_disk_that_is_full_leaves_nothing_half_written);
	tcase_add_test(tcase, samples_that_do_not_fit_are_left_out_and_the_incident_says_so);
	tcase_add_test(tcase, what_is_not_known_to_be_limited_is_limited_by_the_machine);
	tcase_add_test(tcase, too_many_at_once_are_refused_and_the_others_are_written);
	tcase_add_test(tcase, firings_without_an_incident_are_counted_by_rule_and_target);
	tcase_add_test(tcase, times_in_a_storm_do_not_follow_the_wall_clock);
	tcase_add_test(tcase, a_storm_of_any_size_is_counted_in_bounded_memory);
	tcase_add_test(tcase, storms_are_not_recorded_one_after_the_other);
	tcase_add_test(
		tcase,
		a_daemon_that_is_killed_at_any_step_of_recording_a_storm_leaves_it_whole_or_says_that_it_is_gone);
	tcase_add_test(tcase, what_becomes_free_is_taken_by_the_next_firing);
	tcase_add_test(tcase, in_an_hour_rules_open_no_more_than_they_may);
	tcase_add_test(tcase, a_user_leaves_room_for_others);
	tcase_add_test(tcase, a_user_leaves_incidents_of_the_hour_for_others);
	tcase_add_test(tcase, a_share_of_several_users_is_free_again_when_their_incidents_are_closed);
	tcase_add_loop_test(tcase, whose_share_an_incident_takes_is_not_chosen_by_the_program, 0,
			    (int)ARRAY_LEN(owned));
	tcase_add_loop_test(tcase, only_the_ticks_of_who_looks_at_the_target_count, 0, 2);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("attack");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, an_attack_of_a_user_costs_no_other_its_incident);
	suite_add_tcase(suite, tcase);

	return suite;
}
