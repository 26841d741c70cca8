/*
 * check_reload.c: a daemon that runs and is told to do something: take another configuration, open
 * an incident. By signals and by the commands that people use.
 */
#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"
#include "program.h"
#include "skip.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

Suite *reload_suite(void);

static char directory[64], spikewatchd[512], spikewatch[512], config_path[128], incidents[128], socket_path[128];
static struct actor actor;
static struct program program;
static bool built;
/*
 * "off" where nothing is said of stacks: naming the functions of these tests takes longer than the
 * rest of an incident.
 */
static const char *stacks;

/* Rules and their cooldowns, as text; ring: its size. */
static void configure_metrics(const char *ring, const char *targets, const char *rules, const char *metrics)
{
	scene_write(
		config_path,
		"{\"sampling\": {\"interval\": \"2ms\", \"rescan_interval\": \"100ms\", \"cpu_budget\": \"100%%\"},\n"
		"\"ring\": {\"path\": \"%s/ring\", \"size\": \"%s\", \"lock\": false},\n"
		"\"incidents\": {\"directory\": \"%s\", \"before\": \"500ms\", \"after\": \"100ms\",\n"
		"\"min_free\": \"0B\"},\n"
		"\"state_file\": \"%s/state.json\", \"stacks\": \"%s\",\n"
		"\"targets\": [{\"name\": \"burner\", \"pid\": %d}%s],\n"
		"\"metrics\": {%s}, \"rules\": [%s]}\n",
		directory, ring, incidents, directory, stacks, actor.pid, targets, metrics, rules);
}

static void configure(const char *ring, const char *targets, const char *rules)
{
	configure_metrics(ring, targets, rules, "");
}

#define RULE(name, metric, percent, warmup) \
	"{\"name\": \"" name "\", \"metric\": \"" metric \
	"\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": \"" percent "\", \"warmup\": " warmup \
	", \"history\": 100, \"cooldown\": \"1h\"}"
#define HOT RULE("hot", "cpu", "5%", "1")

static bool said(const char *part)
{
	return scene_says(program.err, part);
}

/* How often the daemon has said so. */
static int times_said(const char *part)
{
	char *text = scene_read(program.err);
	int count = 0;

	for (const char *at = text; at && (at = strstr(at, part)); at++)
		count++;
	free(text);

	return count;
}

static void setup_with(const char *mode)
{
	stacks = mode;
	scene_directory(directory);
	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	snprintf(incidents, sizeof(incidents), "%s/incidents", directory);
	snprintf(socket_path, sizeof(socket_path), "%s/control", directory);
	built = program_find("spikewatchd", spikewatchd) && program_find("spikewatch", spikewatch);
	if (!built)
		return;

	const char *arguments[] = { spikewatchd, "-c", config_path, NULL };

	actor = actor_start("scene-reload");
	configure("4MiB", "", HOT);
	program = program_start(arguments, directory, -1, 0);
	scene_wait_for(program_watches_one(&program) || waitpid(program.pid, NULL, WNOHANG) != 0);
	if (!program_watches_one(&program))
		program_said(directory, "watching 1 targets");
	actor_do(&actor, 'b', "hot-thread");
	scene_wait_for(said("rule hot fired"));
}

static void setup(void)
{
	setup_with("off");
}

static void setup_stacks(void)
{
	setup_with("dwarf");
}

static void teardown(void)
{
	if (built) {
		kill(program.pid, SIGTERM);
		ck_assert_int_eq(program_wait(&program), 0);
		actor_end(&actor);
	}
	scene_remove(directory);
}

/*
 * Runs spikewatch with these arguments (NULL at the end) and the daemon's socket. *ret: what it
 * prints, for free(3). Its exit code.
 */
static int ask(const char *command, const char *option, const char *target, char **ret)
{
	char out[160], err[80];
	const char *arguments[] = { spikewatch, command, "--socket", socket_path, option, target, NULL };

	snprintf(out, sizeof(out), "%s/out", directory);
	snprintf(err, sizeof(err), "%s/asked", directory);
	ck_assert(mkdir(err, 0755) == 0 || errno == EEXIST);

	int fd = open(out, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	struct program asked = program_start(arguments, err, fd, 0);
	int code = program_wait(&asked);

	close(fd);
	*ret = scene_read(code == 0 ? out : asked.err);

	return code;
}

static int reload(char **ret)
{
	return ask("reload", NULL, NULL, ret);
}

static struct incident find_incident(const char *part)
{
	struct incident incident = { 0 };
	DIR *dir = opendir(incidents);

	for (struct dirent *item; dir && (item = readdir(dir));) {
		if (!strstr(item->d_name, part) || strstr(item->d_name, ".tmp"))
			continue;

		int fd = openat(dirfd(dir), item->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		ck_assert_int_eq(manifest_verify(fd, NULL, NULL), 0);
		ck_assert_int_eq(incident_json_read(fd, &incident), 0);
		close(fd);
	}
	if (dir)
		closedir(dir);

	return incident;
}

START_TEST(a_new_rule_is_in_force_and_an_unchanged_one_keeps_its_cooldown)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	configure("4MiB", "", HOT ", " RULE("warm", "cpu", "3%", "1"));
	kill(program.pid, SIGHUP);
	scene_wait_for(said("rule warm fired"));
	ck_assert_int_eq(times_said("reloaded: "), 1);
	ck_assert_int_eq(times_said("rule hot fired"), 1);
}
END_TEST

START_TEST(a_removed_rule_does_not_fire_and_a_changed_one_keeps_its_cooldown)
{
	char *text;

	if (!built)
		SKIP_TEST("the programs were not built");

	configure("4MiB", "", RULE("hot", "cpu", "4%", "1"));
	ck_assert_int_eq(reload(&text), 0);
	ck_assert_ptr_nonnull(strstr(text, "Reloaded: "));
	free(text);
	configure("4MiB", "", RULE("other", "cpu", "4%", "1"));
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	scene_wait_for(said("rule other fired"));
	ck_assert_int_eq(times_said("rule hot fired"), 1);
}
END_TEST

/*
 * A rule that needs 50 windows of history is judged at once after the reload only if it kept them.
 */
START_TEST(an_unchanged_target_keeps_its_history)
{
	char *text, *before;

	if (!built)
		SKIP_TEST("the programs were not built");

	configure("4MiB", "", HOT ", " RULE("patient", "cpu", "1000%", "30"));
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	do {
		ck_assert_int_eq(ask("status", "--json", "patient", &before), 0);
		text = strstr(before, "\"reason\": \"within-bounds\"");
		free(before);
		scene_nap();
	} while (!text);

	configure("4MiB", "", HOT ", " RULE("patient", "cpu", "1000%", "30") ", " RULE("new", "cpu", "1000%", "30"));
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	ck_assert_int_eq(ask("status", "--json", "patient", &text), 0);
	ck_assert_ptr_nonnull(strstr(text, "\"reason\": \"within-bounds\""));
	free(text);
	ck_assert_int_eq(ask("status", "--json", "new", &text), 0);
	ck_assert_ptr_null(strstr(text, "\"reason\": \"within-bounds\""));
	free(text);
}
END_TEST

START_TEST(a_new_entry_is_watched_and_a_removed_one_let_go)
{
	char targets[96], *text;

	if (!built)
		SKIP_TEST("the programs were not built");

	struct actor second = actor_start("scene-second");

	snprintf(targets, sizeof(targets), ", {\"name\": \"second\", \"pid\": %d}", second.pid);
	configure("4MiB", targets, HOT);
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	actor_do(&second, 'b', "hot-thread");
	scene_wait_for(said("rule hot fired on second"));

	configure("4MiB", "", HOT);
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	ck_assert_int_eq(ask("status", "--json", "second", &text), 1);
	free(text);
	actor_end(&second);
}
END_TEST

START_TEST(a_bad_configuration_is_refused_in_the_words_of_check)
{
	const char *check[] = { spikewatchd, "--check", config_path, NULL };
	char checked[80], *text, *words;

	if (!built)
		SKIP_TEST("the programs were not built");

	configure("4MiB", "", RULE("hot", "cpu", "5%", "1") ", {\"name\": \"x\", \"metrik\": \"cpu\"}");
	snprintf(checked, sizeof(checked), "%s/checked", directory);
	ck_assert_int_eq(mkdir(checked, 0755), 0);

	struct program checker = program_start(check, checked, -1, 0);

	ck_assert_int_eq(program_wait(&checker), 78);
	text = scene_read(checker.err);
	ck_assert_ptr_nonnull(text);
	text[strcspn(text, "\n")] = '\0';
	words = strstr(text, config_path);
	ck_assert_ptr_nonnull(words);
	kill(program.pid, SIGHUP);
	scene_wait_for(said("reload refused"));
	program_said(directory, words);

	char *answer;

	ck_assert_int_eq(reload(&answer), 1);
	ck_assert_msg(strstr(answer, words), "expected \"%s\" in \"%s\"", words, answer);
	free(answer);
	free(text);
	ck_assert_int_eq(ask("status", "--json", "hot", &answer), 0); /* the old one stays */
	free(answer);
}
END_TEST

START_TEST(what_only_a_restart_can_change_is_refused_as_a_whole)
{
	char *text;

	if (!built)
		SKIP_TEST("the programs were not built");

	configure("8MiB", "", HOT ", " RULE("warm", "cpu", "3%", "1"));
	ck_assert_int_eq(reload(&text), 1);
	ck_assert_ptr_nonnull(strstr(text, "ring.size"));
	ck_assert_ptr_nonnull(strstr(text, "restart"));
	free(text);
	ck_assert_int_eq(ask("status", "--json", "warm", &text), 1);
	free(text);
}
END_TEST

START_TEST(many_reloads_leave_nothing_behind)
{
	char path[64], *text, *before;

	if (!built)
		SKIP_TEST("the programs were not built");

	snprintf(path, sizeof(path), "/proc/%d/fd", program.pid);
	for (int i = 0; i < 20; i++) {
		configure("4MiB", "", i % 2 ? HOT : HOT ", " RULE("warm", "cpu", "1000%", "1"));
		ck_assert_int_eq(reload(&text), 0);
		free(text);
	}
	ck_assert_int_eq(ask("status", "--json", NULL, &before), 0);
	ck_assert_ptr_nonnull(strstr(before, "\"unjudged_pages\": 0"));
	free(before);
	ck_assert_int_eq(times_said("rule hot fired"), 1);
	ck_assert_int_eq(times_said("reloaded: "), 20);
}
END_TEST

START_TEST(metrics_are_written_where_the_configuration_says_now)
{
	char first[128], second[128], metrics[256], *text;

	if (!built)
		SKIP_TEST("the programs were not built");

	snprintf(first, sizeof(first), "%s/first.prom", directory);
	snprintf(second, sizeof(second), "%s/second.prom", directory);
	snprintf(metrics, sizeof(metrics), "\"textfile\": \"%s\", \"textfile_interval\": \"1h\"", first);
	configure_metrics("4MiB", "", HOT, metrics);
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	scene_wait_for(access(first, F_OK) == 0);

	/* Another interval counts at once, not after the hour. */
	ck_assert_int_eq(unlink(first), 0);
	snprintf(metrics, sizeof(metrics), "\"textfile\": \"%s\", \"textfile_interval\": \"1s\"", first);
	configure_metrics("4MiB", "", HOT, metrics);
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	scene_wait_for(scene_says(first, "spikewatch_rule_firings_total{rule=\"hot\"} 1"));

	snprintf(metrics, sizeof(metrics), "\"textfile\": \"%s\", \"textfile_interval\": \"1s\"", second);
	configure_metrics("4MiB", "", HOT, metrics);
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	scene_wait_for(scene_says(second, "spikewatch_rule_firings_total{rule=\"hot\"} 1"));
	ck_assert_int_lt(access(first, F_OK), 0);

	configure("4MiB", "", HOT);
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	ck_assert_int_lt(access(second, F_OK), 0);
}
END_TEST

/* A port of an address of loopback that is not in use. */
static struct sockaddr_in address_of(uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(0x7f575701),
	};
}

/* Listens there, for close(2). */
static int take(uint16_t port)
{
	struct sockaddr_in address = address_of(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 1), 0);

	return fd;
}

/* Whether connections are accepted there. */
static bool listens(uint16_t port)
{
	struct sockaddr_in address = address_of(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	bool yes = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;

	close(fd);

	return yes;
}

START_TEST(metrics_are_served_where_the_configuration_says_now)
{
	char *text;

	if (!built)
		SKIP_TEST("the programs were not built");

	configure_metrics("4MiB", "", HOT, "\"listen\": \"127.87.87.1:7745\"");
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	ck_assert(listens(7745));
	configure_metrics("4MiB", "", HOT, "\"listen\": \"127.87.87.1:7746\"");
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	ck_assert(listens(7746) && !listens(7745));
	configure("4MiB", "", HOT);
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	ck_assert(!listens(7746));

	/* A port that is taken is tried again by the next reload. */
	int taken = take(7747);

	configure_metrics("4MiB", "", HOT, "\"listen\": \"127.87.87.1:7747\"");
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	program_said(directory, "no metrics at 127.87.87.1:7747: Address already in use");
	close(taken);
	ck_assert(!listens(7747));
	ck_assert_int_eq(reload(&text), 0);
	free(text);
	ck_assert(listens(7747));
}
END_TEST

START_TEST(a_signal_makes_an_incident_of_everything)
{
	if (!built)
		SKIP_TEST("the programs were not built");

	kill(program.pid, SIGUSR1);
	scene_wait_for(find_incident("-all-manual-").id[0]);

	struct incident incident = find_incident("-all-manual-");

	ck_assert_int_eq(incident.kind, INCIDENT_MANUAL);
	ck_assert_uint_gt(incident.coverage.samples, 0);
}
END_TEST

START_TEST(the_command_makes_an_incident_and_waits_for_it)
{
	char *text;

	if (!built)
		SKIP_TEST("the programs were not built");

	ck_assert_int_eq(ask("trigger", "--wait", "burner", &text), 0);
	ck_assert_ptr_nonnull(strstr(text, incidents));
	text[strcspn(text, "\n")] = '\0';
	ck_assert_int_eq(access(text, R_OK), 0);
	free(text);
	ck_assert_int_eq(ask("trigger", "", NULL, &text), 2); /* as of a variable that is not set: not of everything */
	free(text);
	ck_assert_int_eq(ask("trigger", "  ", NULL, &text), 2);
	free(text);
	ck_assert_int_eq(ask("trigger", "burner", NULL, &text), 0);
	ck_assert_ptr_nonnull(strstr(text, "sealed in"));
	free(text);
	ck_assert_int_eq(ask("trigger", "nobody", NULL, &text), 1);
	ck_assert_ptr_nonnull(strstr(text, "nobody"));
	free(text);
}
END_TEST

Suite *reload_suite(void)
{
	Suite *suite = suite_create("reload");
	TCase *tcase = tcase_create("program"), *with_stacks = tcase_create("stacks");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_new_rule_is_in_force_and_an_unchanged_one_keeps_its_cooldown);
	tcase_add_test(tcase, a_removed_rule_does_not_fire_and_a_changed_one_keeps_its_cooldown);
	tcase_add_test(tcase, an_unchanged_target_keeps_its_history);
	tcase_add_test(tcase, a_new_entry_is_watched_and_a_removed_one_let_go);
	tcase_add_test(tcase, a_bad_configuration_is_refused_in_the_words_of_check);
	tcase_add_test(tcase, what_only_a_restart_can_change_is_refused_as_a_whole);
	tcase_add_test(tcase, metrics_are_written_where_the_configuration_says_now);
	tcase_add_test(tcase, metrics_are_served_where_the_configuration_says_now);
	tcase_add_test(tcase, a_signal_makes_an_incident_of_everything);
	tcase_add_test(tcase, the_command_makes_an_incident_and_waits_for_it);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(with_stacks, setup_stacks, teardown);
	tcase_add_test(with_stacks, many_reloads_leave_nothing_behind);
	suite_add_tcase(suite, with_stacks);

	return suite;
}
