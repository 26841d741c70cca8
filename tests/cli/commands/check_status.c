/*
 * check_status.c: what is said of an answer, to the letter; of answers that are hostile, or no
 * answers at all; and which daemons are asked. The daemon is a process that answers whatever the
 * test wants.
 */
#include "cli/base/options.h"
#include "scene.h"
#include "cli/base/client.h"
#include "lib/base/json.h"

#include <sys/socket.h>
#include <sys/un.h>

Suite *status_suite(void);

#define OUTPUT_MAX 65536

static char directory[64], path[80];
static char output[OUTPUT_MAX];
static pid_t server;

static void setup(void)
{
	scene_directory(directory);
	snprintf(path, sizeof(path), "%s/control", directory);
	setenv("COLUMNS", "80", 1);
	unsetenv("RUNTIME_DIRECTORY");
	server = 0;
}

static void stop_serving(void)
{
	if (server > 0) {
		kill(server, SIGKILL);
		waitpid(server, NULL, 0);
	}
	server = 0;
}

static void teardown(void)
{
	stop_serving();
	scene_remove(directory);
}

/* Answers every request with this text. */
static void serve(const char *answer)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	unlink(path);
	ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listening, 4), 0);
	server = fork();
	ck_assert_int_ge(server, 0);
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			char line[600] = "";
			int fd = accept(listening, NULL, NULL);

			if (recv(fd, line, sizeof(line) - 1, 0) > 0 && strncmp(line, "status", 6) == 0)
				send(fd, answer, strlen(answer), MSG_NOSIGNAL);
			close(fd);
		}
	}
	close(listening);
}

/* Runs the command with the words given, stdout and stderr into output. Its exit code. */
static int run(char **words)
{
	FILE *file = tmpfile();
	int saved[2] = { dup(STDOUT_FILENO), dup(STDERR_FILENO) };
	int argc = 0, code;

	while (words[argc])
		argc++;
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	dup2(fileno(file), STDERR_FILENO);
	code = status_command(argc, words);
	fflush(stdout);
	dup2(saved[0], STDOUT_FILENO);
	dup2(saved[1], STDERR_FILENO);
	close(saved[0]);
	close(saved[1]);

	rewind(file);
	output[fread(output, 1, sizeof(output) - 1, file)] = '\0';
	fclose(file);

	return code;
}

#define STATUS(...) run((char *[]){ (char[]){ "status" }, (char[]){ "--socket" }, path, __VA_ARGS__, NULL })
#define WORD(text) ((char[]){ text })

static void says(const char *part)
{
	ck_assert_msg(strstr(output, part) != NULL, "expected \"%s\", it said:\n%s", part, output);
}

static void says_nothing_of(const char *part)
{
	ck_assert_msg(strstr(output, part) == NULL, "unexpected \"%s\", it said:\n%s", part, output);
}

/* ---- golden ---- */

#define HEAD \
	"{\"daemon\":{\"version\":\"0.1.0\",\"pid\":1234,\"uptime_ns\":11520000000000,\"interval_ns\":10000000," \
	"\"slowdown\":4,\"cpu_percent\":1.25,\"memory_bytes\":9437184,\"open_fds\":91}," \
	"\"sampler\":{\"capture_percent\":95,\"mean_sleep_error_ns\":52000,\"mean_collection_ns\":1200000," \
	"\"interval_ns\":40000000,\"lost_records\":0,\"verdicts\":[{\"what\":\"capture rate\",\"ratio\":0.95," \
	"\"threshold\":0.99,\"bad\":true,\"bad_now\":true,\"cause\":\"Slots passed.\",\"remedy\":\"Lengthen it.\"}," \
	"{\"what\":\"backoff\",\"ratio\":0,\"threshold\":0.05,\"bad\":false,\"bad_now\":false}]}," \
	"\"ring\":{\"size_bytes\":16777216,\"history_ns\":182000000000}," \
	"\"discovery\":{\"targets\":12,\"members\":3,\"processes\":220,\"refused\":2,\"failed\":1," \
	"\"failed_why\":\"Too many open files\"}," \
	"\"incidents\":{\"sealed\":4,\"open\":1,\"merged\":2,\"failed\":0,\"refused\":0,\"disk_short\":true," \
	"\"memory_unsaved\":true},\"targets\":["

#define CPU "\"rule\":\"cpu\",\"metric\":\"cpu\",\"percent\":80,\"warmup\":5,\"for_ns\":3000000000,\"count_limit\":5,"
#define MEMORY \
	"\"rule\":\"memory\",\"metric\":\"memory_bytes\",\"percent\":null,\"delta_percent\":50,\"minimum\":268435456," \
	"\"maximum\":1073741824,\"warmup\":5,"
#define TARGET(name, entry, rules) "{\"name\":\"" name "\",\"entry\":\"" entry "\",\"rules\":[" rules "]}"
#define JUDGED(value, threshold, distance, reason, phase) \
	"\"value\":" value ",\"average\":20,\"threshold\":" threshold ",\"distance\":" distance \
	",\"reason\":\"" reason "\",\"phase\":\"" phase "\","
#define TAIL "],\"left_out\":7}"

static const char answer[] = HEAD TARGET("web/1", "web",
					 "{" CPU JUDGED("70.4", "80", "9.6", "within-bounds", "armed") //
					 "\"burst\":{\"ended_ago_ns\":12000000000,\"length_ns\":600000000,"
					 "\"value\":100,\"best_window\":71,\"why\":\"too-short\"},"
					 "\"fired\":0,\"reasons\":{\"within-bounds\":12}},"
					 "{" MEMORY "\"value\":1048576,\"reason\":\"warming-up\",\"phase\":\"armed\","
					 "\"reasons\":{\"warming-up\":3}}") "," //
	TARGET("web/2", "web",
	       "{" CPU JUDGED("95", "80", "-15", "cooldown", "cooldown")                                             //
	       "\"cooldown_left_ns\":41000000000,\"fired\":1,\"reasons\":{\"above-percent\":1,\"cooldown\":9}}") "," //
	TARGET("web/3", "web",
	       "{" CPU JUDGED("99", "80", "-19", "pending", "cooldown") //
	       "\"pending_ns\":1200000000,\"cooldown_left_ns\":2000000000,\"fired\":3,\"reasons\":{}},"
	       "{" MEMORY "\"value\":1048576,\"reason\":\"below-minimum\",\"phase\":\"armed\",\"reasons\":{}}") "," //
	TARGET("db", "db",
	       "{" CPU JUDGED("90", "80", "-10", "above-percent", "cooldown") //
	       "\"fires\":true,\"cooldown_left_ns\":60000000000,\"fired\":1,\"reasons\":{}},"
	       "{" MEMORY JUDGED("900", "30", "-870", "disk-budget", "armed") "\"reasons\":{}}") "," //
	TARGET("/system.slice/a-service-with-a-long-name.service", "services",
	       "{" CPU "\"value\":null,\"reason\":\"unavailable\",\"phase\":\"armed\",\"reasons\":{}},"
	       "{" MEMORY "\"reasons\":{}},"
	       "{" CPU JUDGED("85", "80", "-5", "count-limit", "armed") "\"count\":5,\"reasons\":{}}") TAIL;

static const char expected_text[] = "spikewatchd 0.1.0, pid 1234, up 3.2 h: 1.25% of a core, 9 MiB, 91 fds\n"
				    "watches 12 targets (and 3 members of groups) of 220 processes, every 40 ms\n"
				    "captured 95%, woken 52 us late, reading all targets takes 1.2 ms\n"
				    "the ring holds 3.03 min in 16 MiB; incidents: 4 sealed, 1 open, 2 merged\n"
				    "! sampling 4 times slower than configured, to keep sampling.cpu_budget\n"
				    "! capture rate: 95% over the whole run, at least 99% expected, and bad right\n"
				    "now. Slots passed. Lengthen it.\n"
				    "! too little disk space for incidents (incidents.min_free): rules do not fire\n"
				    "until there is more\n"
				    "! cooldowns and counts cannot be saved and would not survive a restart; the log\n"
				    "says why\n"
				    "! 2 targets exceed sampling.max_targets and are not watched\n"
				    "! 1 targets cannot be opened: Too many open files\n"
				    "\n"
				    "TARGET              RULE    VALUE  THRESHOLD  WHY\n"
				    "db                  memory  900 B       30 B  no room for an incident\n"
				    "web/3               cpu       99%        80%  pending 1.2 s of 3 s; cooldown 2 s\n"
				    "web/2               cpu       95%        80%  cooldown, 41 s left\n"
				    "db                  cpu       90%        80%  fired; cooldown 1 min\n"
				    "a-service-..ervice  cpu       85%        80%  count limit, 5 of 5\n"
				    "web/1               cpu     70.4%        80%  burst too short, 12% below\n"
				    "web/1               memory  1 MiB       +50%  warming up 3/5\n"
				    "web/3               memory  1 MiB       +50%  below minimum 256 MiB\n"
				    "a-service-..ervice  cpu         -        80%  unavailable\n"
				    "a-service-..ervice  memory      -       +50%  no window has ended yet\n"
				    "The daemon left 7 out: its answer would have been too large.\n";

static void fits(void)
{
	for (const char *line = output; *line; line += strcspn(line, "\n") + 1)
		ck_assert_uint_le(strcspn(line, "\n"), 80);
}

START_TEST(the_answer_is_told_in_words)
{
	serve(answer);
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_OK);
	ck_assert_str_eq(output, expected_text);
	fits();
}
END_TEST

/* Of rules on CPU time: the others are about something else. */
START_TEST(a_value_that_is_an_estimate_is_marked)
{
	serve(HEAD "{\"name\":\"g\",\"entry\":\"g\",\"cpu_estimated\":3,\"rules\":["
		   "{" CPU JUDGED("70", "80", "10", "within-bounds",
				  "armed") "\"reasons\":{}},"
					   "{" MEMORY JUDGED("900", "1000", "100", "within-bounds",
							     "armed") "\"reasons\":{}}]}," //
	      TARGET("web", "web", "{" CPU JUDGED("60", "80", "20", "within-bounds", "armed") "\"reasons\":{}}") TAIL);
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_OK);
	says("   ~70%        80%");
	says("  900 B ");
	says("   60%        80%");
	says("\n~ an estimate: what processes that ended had used is not known exactly\n");
	fits();
	serve(HEAD TARGET("web", "web", "{" CPU JUDGED("60", "80", "20", "within-bounds", "armed") "\"reasons\":{}}")
		      TAIL);
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_OK);
	says_nothing_of("~");
	/* Before the first window is over there is no value to be marked. */
	serve(HEAD "{\"name\":\"g\",\"entry\":\"g\",\"cpu_estimated\":3,\"rules\":["
		   "{" CPU "\"threshold\":80,\"reason\":\"not-judged-yet\",\"phase\":\"armed\",\"reasons\":{}}]}" TAIL);
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_OK);
	says("  -  ");
	says_nothing_of("~");
}
END_TEST

START_TEST(what_is_lacking_or_silent_is_told)
{
	serve("{\"daemon\":{\"lacks\":[{\"needs\":\"CAP_X\",\"off\":\"maps\\u001b[31m\"}]},"
	      "\"health\":{\"lost_log_entries\":3,\"silent_threads\":[{\"thread\":\"sampler\",\"silent_ns\":"
	      "12000000000},{\"thread\":\"discovery\",\"silent_ns\":13000000000,\"pid\":812}]}}");
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_OK);
	says("\nwithout CAP_X: no maps");
	says_nothing_of("\x1b");
	says("! the thread sampler has given no sign of life for 12 s\n");
	says("! the thread discovery has given no sign of life for 13 s: it is blocked in a\n");
	says("read of the files of process 812\n");
	says("! 3 entries of the log were lost");
	fits();
}
END_TEST

/* Where an interval is longer than the pauses of what sleeps would be there are none. */
START_TEST(how_late_a_spike_may_be_seen_is_told)
{
	serve(_i ? "{\"daemon\":{\"backing_off_ns\":60000000000},\"sampler\":{\"interval_ns\":160000000,"
		   "\"idle_interval_ns\":0}}"
		 : "{\"daemon\":{\"backing_off_ns\":60000000000},\"sampler\":{\"interval_ns\":10000000,"
		   "\"idle_interval_ns\":100000000}}");
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_OK);
	says(_i ? "up to 160 ms late\n" : "up to 100 ms late\n");
	fits();
}
END_TEST

START_TEST(what_is_known_of_units_is_told_if_they_are_wanted)
{
	serve("{\"daemon\":{},\"units\":{\"wanted\":true,\"source\":\"cgroups\",\"why\":\"No such file\",\"missing\":["
	      "{\"name\":\"ngnix.service\",\"why\":\"there is no such unit\"}]}}");
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_OK);
	says("\nunits: by the names of their cgroups only: No such file\n");
	says("! no unit ngnix.service: there is no such unit\n");
	fits();
}
END_TEST

START_TEST(entries_that_match_nothing_are_told)
{
	serve("{\"daemon\":{},\"discovery\":{\"unmatched_entries\":3,\"unmatched\":["
	      "{\"entry\":\"web\",\"since_ns\":120000000000},{\"entry\":\"jobs\",\"since_ns\":5000000000}]}}");
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_OK);
	says("\nentry web has matched nothing for 2 min\n");
	says("\nentry jobs has matched nothing for 5 s\n");
	says("\n1 more matches nothing\n");
	fits();
}
END_TEST

static const char *const quiet_units[] = {
	"{\"daemon\":{},\"units\":{\"wanted\":false,\"source\":\"cgroups\",\"why\":\"\",\"missing\":[]}}",
	"{\"daemon\":{},\"units\":{\"wanted\":true,\"source\":\"systemd\",\"why\":\"\",\"missing\":[]}}",
};

START_TEST(units_of_which_all_is_known_are_not_spoken_of)
{
	serve(quiet_units[_i]);
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_OK);
	says_nothing_of("unit");
}
END_TEST

START_TEST(what_does_not_fit_is_counted)
{
	serve(answer);
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("3")), EXIT_OK);
	says("no room for an incident");
	says_nothing_of("fired; cooldown");
	says("... and 7 more");
}
END_TEST

START_TEST(names_of_targets_entries_and_rules_choose)
{
	serve(answer);
	ck_assert_int_eq(STATUS(WORD("web/2")), EXIT_OK);
	says("web/2   cpu     95%        80%      20%  cooldown, 41 s left\n"
	     "    fired 1 time; above-percent 1, cooldown 9\n");
	says_nothing_of("web/1");
	ck_assert_int_eq(STATUS(WORD("web")), EXIT_OK);
	says("web/1");
	says("web/3");
	says_nothing_of("a-service");
	ck_assert_int_eq(STATUS(WORD("mem*"), WORD("web/2")), EXIT_OK);
	says("warming up 3/5");
	says("cooldown, 41 s left");
	says_nothing_of("within bounds");
	ck_assert_int_eq(STATUS(WORD("webs")), EXIT_TROUBLE);
	says("no rule and no judged target");
}
END_TEST

START_TEST(labels_of_a_container_are_told_once_when_it_is_asked_for)
{
	static const char labelled[] =
		HEAD "{\"name\":\"docker/"
		     "web\",\"entry\":\"pods\",\"labels\":{\"app\":\"w\\u009bb\",\"team\":\"core\",\"x\":7},"
		     "\"labels_left_out\":3,\"rules\":[{" CPU "\"reasons\":{}},{" MEMORY "\"reasons\":{}}]}" TAIL;

	serve(labelled);
	ck_assert_int_eq(STATUS(WORD("docker/web")), EXIT_OK);
	says("    labels app=w\\xc2\\x9bb team=core x=7 and 3 more\n");

	char *first = strstr(output, "    labels ");

	ck_assert_ptr_null(strstr(first + 1, "    labels "));
	ck_assert_int_eq(run((char *[]){ WORD("status"), WORD("--socket"), path, NULL }), EXIT_OK);
	says_nothing_of("labels");
}
END_TEST

/* The document printed, for json_document_free. */
static struct json_document *printed(void)
{
	struct json_document *document;
	struct json_error error;

	ck_assert_msg(json_parse(output, strlen(output), NULL, &document, &error) == 0, "%s\n%s", error.message,
		      output);

	return document;
}

START_TEST(json_is_passed_on_and_chosen_from)
{
	struct json_document *document;
	const struct json_node *targets;

	serve(answer);
	ck_assert_int_eq(STATUS(WORD("--json")), EXIT_OK);
	says("\"uptime_ns\": 11520000000000");
	says("\"cpu_percent\": 1.25");
	document = printed();
	ck_assert_uint_eq(json_member(json_root(document), "targets")->count, 5);
	json_document_free(document);

	ck_assert_int_eq(STATUS(WORD("--json"), WORD("memory")), EXIT_OK);
	document = printed();
	targets = json_member(json_root(document), "targets");
	ck_assert_uint_eq(targets->count, 4);
	ck_assert_str_eq(answer_text(targets->first, "name"), "web/1");
	ck_assert_uint_eq(json_member(targets->first, "rules")->count, 1);
	ck_assert_str_eq(answer_text(json_member(targets->first, "rules")->first, "rule"), "memory");
	json_document_free(document);

	ck_assert_int_eq(STATUS(WORD("--json"), WORD("nobody")), EXIT_TROUBLE);
}
END_TEST

START_TEST(hostile_names_are_harmless)
{
	serve("{\"daemon\":{\"version\":\"\\u001b[2J\"},\"sampler\":{\"verdicts\":[{\"bad\":true,\"what\":\"\\u001b]0;"
	      "\"}]},"
	      "\"targets\":[{\"name\":\"a\\u001b[31m\\n\\u009b1m/x\",\"rules\":[{\"rule\":\"\\u0007r\",\"metric\":"
	      "\"\\u001b\",\"reason\":\"\\u001b[5m\",\"value\":1e300,\"threshold\":-1,\"distance\":1e300,"
	      "\"reasons\":{\"\\u001b[7m\":1}}]}]}");
	ck_assert_int_eq(STATUS(WORD("*")), EXIT_OK);
	says("\\x1b");
	for (const char *c = output; *c; c++)
		ck_assert_msg(*c == '\n' || (unsigned char)*c >= ' ', "\\x%02x in: %s", *c, output);
	fits();
	ck_assert_int_eq(STATUS(WORD("--json")), EXIT_OK);
	says_nothing_of("\x1b");
	says_nothing_of("\xc2\x9b");
}
END_TEST

START_TEST(what_is_of_another_type_is_unknown)
{
	serve("{\"daemon\":7,\"sampler\":[],\"ring\":null,\"discovery\":\"\",\"targets\":[1,[],{\"rules\":{}},"
	      "{\"name\":5,\"rules\":[2,null,{\"rule\":[],\"reason\":{},\"reasons\":[1],\"value\":\"x\"}]}],"
	      "\"left_out\":-3}");
	ck_assert_int_eq(STATUS(WORD("--rows"), WORD("9")), EXIT_OK);
	says("no window has ended yet");
	ck_assert_int_eq(STATUS(WORD("*")), EXIT_OK);
	ck_assert_int_eq(STATUS(WORD("--json"), WORD("*")), EXIT_OK);
	json_document_free(printed());
}
END_TEST

START_TEST(no_rows_are_no_trouble)
{
	serve("{\"daemon\":{},\"targets\":[]}");
	ck_assert_int_eq(run((char *[]){ WORD("status"), WORD("-s"), path, NULL }), EXIT_OK);
	says("No rule looks at any target yet.");
}
END_TEST

START_TEST(what_is_no_status_is_trouble)
{
	static const char *const answers[] = { "{\"error\":\"go \\u001b away\"}", "[]", "{\"daemon\":", "no JSON", "\n",
					       "[[[[[[[[[[[[[[]]]]]]]]]]]]]]" };

	for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
		serve(answers[i]);
		ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_TROUBLE);
		says("spikewatch status: ");
		says_nothing_of("\x1b");
		stop_serving();
	}
}
END_TEST

START_TEST(a_server_that_hangs_up_is_not_a_daemon)
{
	serve("");
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_TROUBLE);
	says("no daemon answers at");
	says("too many clients, or is too busy: try again");
}
END_TEST

START_TEST(without_a_daemon_it_says_what_to_do)
{
	ck_assert_int_eq(STATUS(WORD("-n"), WORD("0")), EXIT_TROUBLE);
	says(path);
	says("spikewatchd -c FILE");
	says_nothing_of("/run/spikewatch/control");
	ck_assert_int_eq(STATUS(WORD("--rows"), WORD("many")), EXIT_USAGE);
}
END_TEST

START_TEST(the_socket_is_found_beside_the_ring)
{
	setenv("RUNTIME_DIRECTORY", directory, 1);
	serve(answer);
	ck_assert_int_eq(run((char *[]){ WORD("status"), NULL }), EXIT_OK);
	says("pid 1234");
	unsetenv("RUNTIME_DIRECTORY");
}
END_TEST

Suite *status_suite(void)
{
	Suite *suite = suite_create("status");
	TCase *tcase = tcase_create("status");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_answer_is_told_in_words);
	tcase_add_test(tcase, what_does_not_fit_is_counted);
	tcase_add_test(tcase, a_value_that_is_an_estimate_is_marked);
	tcase_add_test(tcase, what_is_lacking_or_silent_is_told);
	tcase_add_loop_test(tcase, how_late_a_spike_may_be_seen_is_told, 0, 2);
	tcase_add_test(tcase, what_is_known_of_units_is_told_if_they_are_wanted);
	tcase_add_test(tcase, entries_that_match_nothing_are_told);
	tcase_add_loop_test(tcase, units_of_which_all_is_known_are_not_spoken_of, 0, 2);
	tcase_add_test(tcase, names_of_targets_entries_and_rules_choose);
	tcase_add_test(tcase, labels_of_a_container_are_told_once_when_it_is_asked_for);
	tcase_add_test(tcase, json_is_passed_on_and_chosen_from);
	tcase_add_test(tcase, hostile_names_are_harmless);
	tcase_add_test(tcase, what_is_of_another_type_is_unknown);
	tcase_add_test(tcase, no_rows_are_no_trouble);
	tcase_add_test(tcase, what_is_no_status_is_trouble);
	tcase_add_test(tcase, a_server_that_hangs_up_is_not_a_daemon);
	tcase_add_test(tcase, without_a_daemon_it_says_what_to_do);
	tcase_add_test(tcase, the_socket_is_found_beside_the_ring);
	suite_add_tcase(suite, tcase);

	return suite;
}
