/*
 * check_follow_up.c: incidents whose target has commands and a second look, from the firing (here:
 * a request by hand) to the sealed directory.
 */
#include "incidents_rig.h"
#include "lib/stream/stream.h"
#include "skip.h"
#include "torture.h"

#include "cli/base/options.h"

Suite *follow_up_suite(void);

static struct incidents_rig rig;

static void setup(void)
{
	incidents_rig_setup(&rig);
}

static void teardown(void)
{
	incidents_rig_teardown(&rig);
}

/* more: of the target entry, JSON; stacks: the value of that section. */
static void start_with(const char *more, const char *after, const char *stacks)
{
	rig.config = scene_config(
		"{\"sampling\": {\"interval\": \"2ms\", \"rescan_interval\": \"100ms\", \"cpu_budget\": \"100%%\"},"
		"\"ring\": {\"size\": \"4MiB\", \"lock\": false}, \"stacks\": \"%s\","
		"\"incidents\": {\"before\": \"2s\", \"after\": \"%s\", \"min_free\": \"0B\", "
		"\"max_incident_size\": \"2MiB\"},"
		"\"targets\": [{\"name\": \"burner\", \"pid\": %d, %s}], \"rules\": [%s]}",
		stacks, after, rig.actor.pid, more, RULE("memory-x", "1m"));

	struct retention_limits limits = { .min_free_bytes = 0 };

	ck_assert_int_eq(spool_open(rig.spool_at, &limits, &rig.spool, NULL), 0);
	ck_assert_int_eq(session_new(rig.config, NULL, &rig.session), 0);
	ck_assert_int_eq(rule_state_new("", &rig.rule_state), 0);
	build_rules(&rig);
	ck_assert_int_eq(session_start(rig.session), 0);
}

static void request(void)
{
	struct target target = { .id = 1,
				 .kind = TARGET_PROCESS,
				 .pid = rig.actor.pid,
				 .start_ticks = scene_start_ticks(rig.actor.pid),
				 .entry = "burner",
				 .name = "burner",
				 .key = "burner",
				 .comm = "scene-burner",
				 .cmdline = "",
				 .cgroup = "" };
	struct incidents_ticket ticket;

	ck_assert_int_eq(incidents_trigger(rig.incidents, &target, &ticket), 0);
	ck_assert_int_eq(ticket.answer, INCIDENTS_OPENED);
}

static const struct incident_capture *find(const struct incident *incident, const char *name)
{
	for (size_t i = 0; i < incident->capture_count; i++)
		if (strcmp(incident->captures[i].name, name) == 0)
			return &incident->captures[i];
	ck_abort_msg("no capture %s", name);
}

#define SH(name, script, more) "{\"name\":\"" name "\",\"command\":[\"/bin/sh\",\"-c\",\"" script "\"]" more "}"

START_TEST(commands_and_what_they_leave_are_sealed_with_the_incident)
{
	char path[400];
	struct incident incident;

	start_with("\"run\": [" SH("who",
				   "echo $SPIKEWATCH_PID; echo mine > {incident}/left.txt; mkdir d; head -c 3000000 "
				   "/dev/zero > big; head -c "
				   "1900000 /dev/zero > almost",
				   "") "," SH("cpu", "true", ",\"rules\":[\"memory-*\"]") "]",
		   "100ms", "off");
	request();
	scene_wait_for(poll_once(&rig).sealed == 1);
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert_int_eq(find(&incident, "run-who")->status, INCIDENT_CAPTURE_OK);
	char *text = read_file(path, "run-who.txt");

	ck_assert_int_eq(strtol(text, NULL, 10), rig.actor.pid);
	free(text);
	text = read_file(path, "left.txt");
	ck_assert_str_eq(text, "mine\n");
	free(text);
	bool recorded = false;

	for (size_t i = 0; i < incident.capture_count; i++) {
		ck_assert_str_ne(incident.captures[i].name, "run-cpu"); /* of another rule */
		recorded |= strcmp(incident.captures[i].file, "left.txt") == 0;
	}
	ck_assert(recorded);

	/* A line for each that is not there any more. */
	size_t removed = 0;

	for (size_t i = 0; i < incident.capture_count; i++)
		removed += strncmp(incident.captures[i].why, "removed: ", 9) == 0;
	ck_assert_uint_ge(removed, 2); /* d and big; almost, if the rest leaves no room for it */
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_slow_command_holds_up_only_its_own_incident)
{
	start_with("\"run\": [" SH("slow", "while [ ! -e /proc/self/cwd/go ]; do sleep 0.01; done", "") "]", "50ms",
		   "off");
	request();
	/*
	 * Its window is over, but not its command; another incident comes and goes meanwhile, of
	 * everything.
	 */
	scene_wait_for(poll_once(&rig).open == 0);
	let_pass(&rig, 200 * NS_PER_MS);
	ck_assert_uint_eq(poll_once(&rig).sealed, 0);

	struct incidents_ticket ticket;

	ck_assert_int_eq(incidents_trigger(rig.incidents, NULL, &ticket), 0);
	scene_wait_for(poll_once(&rig).sealed == 1);

	char path[400], go[500];
	DIR *dir = opendir(rig.spool_at);
	struct dirent *item;

	*go = '\0';
	while ((item = readdir(dir)))
		if (*item->d_name != '.' && strstr(item->d_name, ".tmp"))
			snprintf(go, sizeof(go), "%s/%s/go", rig.spool_at, item->d_name);
	closedir(dir);
	ck_assert_str_ne(go, "");
	scene_write(go, "now");
	scene_wait_for(poll_once(&rig).sealed == 2);
	stop(&rig);
	ck_assert_uint_eq(count_directories(&rig, path), 2);
	actor_end(&rig.actor);
}
END_TEST

static bool is_there(const char *path, const char *name)
{
	char file[500];

	snprintf(file, sizeof(file), "%s/%s", path, name);

	return access(file, F_OK) == 0;
}

START_TEST(stopping_gives_commands_a_moment_and_seals)
{
	char path[400];
	struct incident incident;

	start_with("\"again\": \"10m\", \"run\": [" SH("endless", "echo > {incident}/begun; exec sleep 1000",
						       "") "," SH("never", "true", "") "]",
		   "10s", "off");
	request();
	scene_wait_for((poll_once(&rig), count_directories(&rig, path) == 1 && is_there(path, "begun")));
	stop(&rig);
	read_incident(&rig, path, &incident);
	ck_assert_str_eq(find(&incident, "run-endless")->why, "ended because the daemon was stopped");
	ck_assert_str_eq(find(&incident, "run-never")->why, "the daemon was being stopped");
	ck_assert_int_eq(find(&incident, "smaps-again")->status, INCIDENT_CAPTURE_SKIPPED);
	ck_assert_str_eq(find(&incident, "smaps-again")->why, "the daemon was being stopped");
	ck_assert_str_eq(find(&incident, "smaps-again")->again_of, "smaps");
	ck_assert_int_eq(find(&incident, "samples")->status, INCIDENT_CAPTURE_OK);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(the_second_look_shows_what_has_grown_meanwhile)
{
	char path[400], shown[600], text[20000] = "";
	struct incident incident;

	start_with("\"again\": \"1500ms\"", "2s", "off"); /* a firing meanwhile is merged */
	request();
	scene_wait_for((poll_once(&rig), count_directories(&rig, path) == 1 && is_there(path, "smaps.tsv") &&
						 incidents_busy_since(rig.incidents).ns == 0));
	actor_do(&rig.actor, 'm', "");
	scene_wait_for(poll_once(&rig).sealed == 1);
	stop(&rig);
	read_incident(&rig, path, &incident);

	const struct incident_capture *first = find(&incident, "smaps"), *second = find(&incident, "smaps-again");

	ck_assert_int_eq(second->status, INCIDENT_CAPTURE_OK);
	ck_assert_str_eq(second->file, "smaps.again.tsv");
	ck_assert_str_eq(second->again_of, "smaps");
	ck_assert(first->has_at && second->has_at);
	ck_assert_int_ge(second->at_ns - first->at_ns, 1500000000);
	ck_assert_str_eq(find(&incident, "threads-again")->file, "threads.again.tsv");
	ck_assert_str_eq(find(&incident, "status-again")->file, "status.again.txt");

	snprintf(shown, sizeof(shown), "%s/shown", rig.directory);
	int saved = dup(STDOUT_FILENO), out = open(shown, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	char *words[] = { (char[]){ "show" }, (char[]){ "--full" }, path, NULL };

	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	setenv("COLUMNS", "100", 1);
	ck_assert_int_eq(show_command(3, words), 0);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	close(out);
	char *said = scene_read(shown);

	snprintf(text, sizeof(text), "%s", said);
	free(said);
	const char *growth = strstr(text, "Between the two snapshots of its memory (");

	ck_assert_msg(growth, "%s", text);
	ck_assert_msg(strstr(growth, "+32 MiB"), "%s", growth);
	ck_assert_msg(strstr(text, "smaps.again.tsv, "), "%s", text);
	ck_assert_msg(strstr(text, ", again smaps"), "%s", text);
	actor_end(&rig.actor);
}
END_TEST

START_TEST(a_reload_while_commands_run_takes_nothing_from_them)
{
	char path[400];
	struct incident incident;
	struct config *old;

	start_with("\"run\": [" SH("a", "sleep 0.3; echo a", "") "," SH("b", "echo b", "") "]", "50ms", "off");
	request();
	let_pass(&rig, 100 * NS_PER_MS);
	old = rig.config;
	rig.config = scene_config("{\"targets\": [{\"name\": \"burner\", \"pid\": %d}]}", rig.actor.pid);
	incidents_reload(rig.incidents, rig.config);
	struct evaluator_reload *reload;

	ck_assert_int_eq(evaluator_reload_prepare(rig.evaluator, rig.config, &reload), 0);
	ck_assert_int_eq(session_reload(rig.session, rig.config), 0);
	evaluator_reload_commit(reload);
	config_free(old);
	scene_wait_for(poll_once(&rig).sealed == 1);
	stop(&rig);
	read_incident(&rig, path, &incident);
	char *text = read_file(path, "run-b.txt");

	ck_assert_str_eq(text, "b\n");
	free(text);
	actor_end(&rig.actor);
}
END_TEST

/* ---- killed at each step of the worker ---- */

/*
 * Never returns: is killed before that step, or exits with 0 when the incident is sealed before.
 * everything: of one of all targets, whose samples are written while it is open. stacks: as above.
 */
static void seal_until(long step, bool everything, const char *stacks)
{
	struct incidents_ticket ticket;

	start_with("\"again\": \"100ms\", \"run\": [" SH("x", "echo said; echo left > left.txt", "") "]", "20ms",
		   stacks);
	let_pass(&rig, 150 * NS_PER_MS);
	torture_kill_at(step, "disk");
	if (everything)
		ck_assert_int_eq(incidents_trigger(rig.incidents, NULL, &ticket), 0);
	else
		request();
	for (int naps = 0; naps < SCENE_NAPS && poll_once(&rig).sealed == 0; naps++)
		scene_nap();
	torture_kill_at(0, NULL);
	_exit(poll_once(&rig).sealed == 1 ? 0 : 1);
}

static bool has_rows(int dirfd)
{
	static const struct stream_reader_events nothing;
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_RDONLY | O_CLOEXEC);
	struct stream_reader_report report;
	struct stream_reader *reader;

	ck_assert_int_eq(stream_reader_new(&nothing, &reader), 0);
	ck_assert_int_eq(stream_read_fd(reader, fd, UINT64_MAX), 0);
	ck_assert_int_eq(stream_reader_finish(reader, &report), 0);
	stream_reader_free(reader);
	return report.rows > 0;
}

/* Of the stacks, what it has, or that it has none. */
static bool tells_of_stacks(const struct incident *incident)
{
	for (size_t i = 0; i < incident->capture_count; i++)
		if (strcmp(incident->captures[i].name, "stacks") == 0)
			return incident->captures[i].file[0] || incident->captures[i].why[0];
	return false;
}

/* What the next start makes of it. Returns whether there is an incident. */
static bool check_after(bool stacks)
{
	static const struct retention_limits none;
	const struct spool_swept *swept;
	struct spool *spool;
	struct incident back;
	char path[400];
	size_t drafts = count_directories(&rig, path);
	bool draft = drafts == 1 && strstr(path, SPOOL_DIRECTORY_SUFFIX);

	ck_assert_int_eq(spool_open(rig.spool_at, &none, &spool, NULL), 0);
	spool_wait(spool, 60 * NS_PER_S, NULL, NULL); /* for the command */
	ck_assert_uint_eq(spool_swept(spool, &swept), draft);
	if (draft)
		ck_assert_msg(strstr(path, swept[0].name), "%s was swept, not %s", swept[0].name, path);
	bool there = count_directories(&rig, path) == 1;

	ck_assert_int_eq(there, draft ? swept[0].adopted : drafts == 1);
	if (there) {
		read_incident(&rig, path, &back); /* whole, with its name */
		ck_assert(back.rule.severity == INCIDENT_MANUAL_SEVERITY);
		ck_assert_int_eq(tells_of_stacks(&back), stacks);
		AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		for (size_t i = 0; i < back.capture_count; i++)
			if (strcmp(back.captures[i].file, INCIDENT_SAMPLES_FILE) == 0)
				ck_assert(has_rows(fd));
	}
	spool_free(spool);
	return there;
}

/* Of one target, of all, and of one with stacks, for which the symboliser runs each time: at each third step. */
static const struct {
	bool everything;
	const char *stacks;
	long stride;
} killed[] = { { false, "off", 1 }, { true, "off", 1 }, { false, "dwarf", 3 } };

static bool perf_is_allowed(void)
{
	struct stack_recorder_options options = { 0 };
	char reason[STACK_RECORDER_REASON_MAX] = "";
	struct stack_recorder *recorder;

	if (stack_recorder_open(&options, &recorder, reason) < 0)
		return skip_because("%s", reason);
	stack_recorder_close(recorder);
	return true;
}

START_TEST(a_daemon_that_is_killed_at_any_step_of_an_incident_leaves_it_whole_or_says_that_it_is_gone)
{
	bool stacks = strcmp(killed[_i].stacks, "off") != 0;
	int status = -1;
	long step = 0, kept = 0, tried = 0;

	if (stacks && !perf_is_allowed())
		SKIP_TEST("%s", skip_why());

	actor_do(&rig.actor, 'b', "busy"); /* so that there are samples */
	while (status != 0) {
		pid_t child;

		step += killed[_i].stride;
		tried++;
		snprintf(rig.spool_at, sizeof(rig.spool_at), "%s/incidents-%ld", rig.directory, step);
		child = fork();
		if (child == 0)
			seal_until(step, killed[_i].everything, killed[_i].stacks);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_msg(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL), "step %ld: %x", step,
			      status);
		kept += check_after(stacks);
	}
	ck_assert_int_gt(step, 40);
	ck_assert_int_gt(kept, tried / 2);
	actor_end(&rig.actor);
}
END_TEST

Suite *follow_up_suite(void)
{
	Suite *suite = suite_create("follow_up");
	TCase *tcase = tcase_create("incidents");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, commands_and_what_they_leave_are_sealed_with_the_incident);
	tcase_add_test(tcase, a_slow_command_holds_up_only_its_own_incident);
	tcase_add_test(tcase, stopping_gives_commands_a_moment_and_seals);
	tcase_add_test(tcase, the_second_look_shows_what_has_grown_meanwhile);
	tcase_add_test(tcase, a_reload_while_commands_run_takes_nothing_from_them);
	tcase_add_loop_test(tcase,
			    a_daemon_that_is_killed_at_any_step_of_an_incident_leaves_it_whole_or_says_that_it_is_gone,
			    0, ARRAY_LEN(killed));
	suite_add_tcase(suite, tcase);

	return suite;
}
