/*
 * check_trap_plan.c: the parts of spikewatch trap: options as a configuration, the line on the
 * terminal, and a session that cannot be opened.
 */
#include "cli/trap/trap.c"

#include "torture.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"
#include "scene.h"
#include "lib/evaluator/evaluator.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

Suite *trap_plan_suite(void);

/* ==== plans ==== */

static char error[400];

/* Must be good; for config_free. */
static struct config *make(struct trap_plan *plan)
{
	struct config *config = NULL;

	ck_assert_msg(trap_plan_resolve(plan, error, sizeof(error)) == 0, "%s", error);
	ck_assert_msg(trap_plan_config(plan, &config, error, sizeof(error)) == 0, "%s", error);

	return config;
}

static const struct config_rule *rule_of(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->rule_count; i++)
		if (strcmp(config->rules[i].name, name) == 0)
			return &config->rules[i];

	return NULL;
}

START_TEST(without_thresholds_it_is_a_core_for_a_second_or_memory_that_grows)
{
	struct trap_plan plan = { .after_ns = TRAP_PLAN_AFTER_NS };
	char text[TRAP_PLAN_TEXT_MAX];

	trap_plan_watch(&plan, 812, "/usr/bin/python3");
	struct config *config = make(&plan);
	const struct config_rule *cpu = rule_of(config, "cpu"), *growth = rule_of(config, "memory-growth");

	ck_assert_uint_eq(config->rule_count, 2);
	ck_assert(cpu && growth);
	ck_assert(cpu->metric == METRIC_CPU && cpu->of == METRIC_OF_CORE);
	ck_assert_double_eq(cpu->trigger.percent, 80);
	ck_assert_uint_eq(cpu->window_ns + cpu->trigger.for_ns, NS_PER_S);
	ck_assert_uint_eq(cpu->trigger.warmup, 0);
	ck_assert_uint_eq(cpu->trigger.cooldown_ns, 0);
	ck_assert_int_eq(cpu->trigger.rearm, TRIGGER_REARM_BELOW);
	ck_assert(growth->trigger.has_delta && growth->trigger.has_minimum && growth->trigger.warmup > 0);
	ck_assert_str_eq(config->targets[0].name, "python3-812");
	ck_assert_int_eq(config->targets[0].pid, 812);
	ck_assert_uint_eq(config->incidents.after_ns, 3 * NS_PER_S);
	ck_assert_uint_eq(config->incidents.min_free_bytes, 0);
	ck_assert_str_eq(trap_plan_text(&plan, text, sizeof(text)),
			 "more than 80% of a core for 1 s, or memory that grows by half, to 128 MiB or more");
	config_free(config);
}
END_TEST

START_TEST(only_what_was_asked_for_is_waited_for)
{
	struct trap_plan plan = { .cpu = "150%", .comm = "web server", .for_ns = 5 * NS_PER_S };
	char text[TRAP_PLAN_TEXT_MAX];
	struct config *config = make(&plan);

	ck_assert_uint_eq(config->rule_count, 1);
	ck_assert_double_eq(config->rules[0].trigger.percent, 150);
	ck_assert_uint_eq(config->rules[0].window_ns, NS_PER_S);
	ck_assert_uint_eq(config->rules[0].trigger.for_ns, 4 * NS_PER_S);
	ck_assert_str_eq(config->targets[0].pattern, "web server");
	ck_assert_int_eq(config->targets[0].selector, CONFIG_COMM);
	ck_assert_int_eq(config->targets[0].per, CONFIG_PER_PROCESS);
	ck_assert_str_eq(config->targets[0].name, "web_server");
	ck_assert_str_eq(trap_plan_text(&plan, text, sizeof(text)), "more than 150% of a core for 5 s");
	config_free(config);
}
END_TEST

START_TEST(memory_without_a_time_is_its_peak_and_with_one_what_stays)
{
	struct trap_plan plan = { .memory_bytes = { 512 << 20 }, .memory_count = 1, .comm = "a" };
	char text[TRAP_PLAN_TEXT_MAX];
	struct config *config = make(&plan);

	ck_assert_uint_eq(config->rule_count, 1);
	ck_assert_int_eq(config->rules[0].metric, METRIC_MEMORY_PEAK);
	ck_assert_double_eq(config->rules[0].trigger.percent, 512 << 20);
	ck_assert_uint_eq(config->rules[0].trigger.for_ns, 100 * NS_PER_MS);
	ck_assert_str_eq(trap_plan_text(&plan, text, sizeof(text)), "more than 512 MiB of memory");
	config_free(config);

	plan = (struct trap_plan){
		.memory_bytes = { 512 << 20 }, .memory_count = 1, .comm = "a", .cpu = "50", .for_ns = 2 * NS_PER_S
	};
	config = make(&plan);
	ck_assert_uint_eq(config->rule_count, 2);
	ck_assert_int_eq(rule_of(config, "memory")->metric, METRIC_MEMORY_BYTES);
	ck_assert_uint_eq(rule_of(config, "memory")->trigger.for_ns + rule_of(config, "memory")->window_ns,
			  2 * NS_PER_S);
	ck_assert_str_eq(trap_plan_text(&plan, text, sizeof(text)),
			 "more than 50% of a core for 2 s, or more than 512 MiB of memory for 2 s");
	config_free(config);
}
END_TEST

START_TEST(any_time_is_split_into_windows_that_add_up_to_it)
{
	static const uint64_t times_ns[] = { NS_PER_MS,       5 * NS_PER_MS,   20 * NS_PER_MS, 99 * NS_PER_MS,
					     100 * NS_PER_MS, 150 * NS_PER_MS, NS_PER_S / 4,   NS_PER_S,
					     7 * NS_PER_S,    3600 * NS_PER_S };
	struct trap_plan plan = { .cpu = "80%", .comm = "a", .for_ns = times_ns[_i] };
	struct config *config = make(&plan);

	ck_assert_uint_eq(config->rules[0].window_ns + config->rules[0].trigger.for_ns, times_ns[_i]);
	ck_assert_uint_le(config->rules[0].window_ns, NS_PER_S);
	ck_assert_uint_le(2 * config->sampling.interval_ns, config->rules[0].window_ns);
	if (times_ns[_i] < 20 * NS_PER_MS)
		ck_assert_int_eq(config->sampling.source, CONFIG_CPU_SOURCE_KERNEL);
	config_free(config);
}
END_TEST

START_TEST(a_name_may_hold_any_bytes)
{
	struct trap_plan plan = { .comm = "a\"\\\xff\n$(x)" };
	struct config *config = make(&plan);

	ck_assert_str_eq(config->targets[0].pattern, "a\"\\\xff\n$(x)");
	ck_assert_str_eq(config->targets[0].name, "a______x_");
	config_free(config);
}
END_TEST

static const struct {
	struct trap_plan plan;
	const char *says;
} mistakes[] = {
	{ { .cpu = "fast" }, "--cpu fast: expected a percentage" },
	{ { .cpu = "0%" }, "--cpu 0%: expected" },
	{ { .cpu = "1000000%" }, "--cpu 1000000%: expected" },
	{ { .for_ns = 1 }, "--for: out of range" },
	{ { .for_ns = 3601 * NS_PER_S }, "--for: out of range" },
	{ { .comm = "" }, "--comm \"\"" },
	{ { .comm = "a-name-of-sixteen" }, "expected \"a-name-of-sixte\"" },
	{ { .comm = "a", .stacks = "\"" }, "--stacks" },
	{ { .comm = "a", .stacks = "of" }, "--stacks" },
	{ { .comm = "a", .after_ns = 3601 * NS_PER_S }, "--after: out of range" },
};

START_TEST(what_cannot_be_is_refused_by_option)
{
	struct trap_plan plan = mistakes[_i].plan;
	struct config *config = NULL;
	int r = trap_plan_resolve(&plan, error, sizeof(error));

	if (r == 0)
		r = trap_plan_config(&plan, &config, error, sizeof(error));
	ck_assert_int_eq(r, -EINVAL);
	ck_assert_ptr_null(config);
	ck_assert_msg(strstr(error, mistakes[_i].says), "it said: %s", error);
}
END_TEST

START_TEST(each_of_several_sizes_is_a_rule)
{
	struct trap_plan plan = { .comm = "a", .threads = 40, .descriptors = 500, .spacing_ns = 5 * NS_PER_S };
	char text[TRAP_PLAN_TEXT_MAX];

	ck_assert_int_eq(read_memory(&plan, "100M,1.5GiB", error, sizeof(error)), 0);
	struct config *config = make(&plan);

	ck_assert_uint_eq(config->rule_count, 4);
	ck_assert_double_eq(rule_of(config, "memory-1")->trigger.percent, 100 << 20);
	ck_assert_double_eq(rule_of(config, "memory-2")->trigger.percent, 1536.0 * (1 << 20));
	ck_assert_uint_eq(rule_of(config, "memory-2")->trigger.cooldown_ns, 5 * NS_PER_S);
	ck_assert_int_eq(rule_of(config, "threads")->metric, METRIC_THREADS);
	ck_assert_double_eq(rule_of(config, "threads")->trigger.percent, 40);
	ck_assert_int_eq(rule_of(config, "fds")->metric, METRIC_FDS);
	ck_assert_double_eq(rule_of(config, "fds")->trigger.percent, 500);
	ck_assert_str_eq(
		trap_plan_text(&plan, text, sizeof(text)),
		"more than 100 MiB, 1.5 GiB of memory, or more than 40 threads, or more than 500 open descriptors");
	config_free(config);
}
END_TEST

START_TEST(sizes_that_make_no_sense_are_refused)
{
	static const struct {
		const char *text, *says;
	} cases[] = {
		{ "", "\"\" is not a size" },
		{ "0", "\"0\" is not a size" },
		{ "100M,", "\"\" is not a size" },
		{ "100M,5x", "\"5x\" is not a size" },
		{ "2G,1G", "expected sizes that rise" },
		{ "1M,1M", "expected sizes that rise" },
		{ "1M,2M,3M,4M,5M,6M,7M,8M,9M", "at most 8 sizes" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct trap_plan plan = { .comm = "a" };

		ck_assert_int_eq(read_memory(&plan, cases[i].text, error, sizeof(error)), -EINVAL);
		ck_assert_msg(strstr(error, cases[i].says), "%s: %s", cases[i].text, error);
	}
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	struct trap_plan plan = {
		.comm = "a", .cpu = "80%", .memory_bytes = { 1 << 20 }, .memory_count = 1, .stacks = "off"
	};
	bool injected = true;

	ck_assert_int_eq(trap_plan_resolve(&plan, error, sizeof(error)), 0);
	for (long n = 1; injected; n++) {
		struct config *config = NULL;

		torture_arm(n);
		int r = trap_plan_config(&plan, &config, error, sizeof(error));

		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		config_free(config);
	}
}
END_TEST

/* ==== the line ==== */

static char text[TRAP_LIVE_TEXT_MAX];

static const char *say(const struct trap_plan *plan, const struct trap_session_view *view, uint64_t wanted)
{
	return trap_live_text(plan, view, 12300 * NS_PER_MS, wanted, text, sizeof(text));
}

START_TEST(it_says_values_and_what_they_are_held_against)
{
	struct trap_plan plan = { .cpu_percent = 80, .memory_bytes = { 512 << 20 }, .memory_count = 1 };
	struct trap_session_view view = {
		.targets = 1,
		.name = "job-812",
		.has_cpu = true,
		.cpu_percent = 43.4,
		.has_memory = true,
		.memory_bytes = 84 << 20,
	};

	ck_assert_str_eq(say(&plan, &view, 1), "12.3 s: job-812 CPU 43% of 80%, memory 84 MiB of 512 MiB");
	plan.memory_count = 0;
	view.pending_ns = 600 * NS_PER_MS;
	ck_assert_str_eq(say(&plan, &view, 1), "12.3 s: job-812 CPU 43% of 80%, memory 84 MiB; over for 0.6 s");
	view.has_cpu = false;
	view.pending_ns = 0;
	view.targets = 3;
	ck_assert_str_eq(say(&plan, &view, 1), "12.3 s: job-812 memory 84 MiB; the nearest of 3");
}
END_TEST

START_TEST(it_says_what_it_waits_for_otherwise)
{
	struct trap_plan plan = { .cpu_percent = 80, .comm = "a\033b" };
	struct trap_session_view view = { .caught = 1 };

	ck_assert_str_eq(say(&plan, &view, 3), "12.3 s: caught 1 of 3; no process is called a\\x1bb yet");
	view = (struct trap_session_view){
		.targets = 1, .name = "x\x1b[2J", .open = 1, .open_ns = 2100 * NS_PER_MS, .disarmed = true
	};
	ck_assert_str_eq(say(&plan, &view, 1), "12.3 s: recording 2.1 s more; x\\x1b[2J");
	view.open = 0;
	ck_assert_str_eq(say(&plan, &view, 1), "12.3 s: x\\x1b[2J; has to come down first");
}
END_TEST

/* A terminal of so many columns: our side, and in *ret_file the other. */
static int open_terminal(unsigned short columns, FILE **ret_file)
{
	struct winsize size = { .ws_row = 24, .ws_col = columns };
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	ck_assert_int_ge(master, 0);
	ck_assert_int_eq(grantpt(master), 0);
	ck_assert_int_eq(unlockpt(master), 0);
	int slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	ck_assert_int_ge(slave, 0);
	ck_assert_int_eq(ioctl(slave, TIOCSWINSZ, &size), 0);
	*ret_file = fdopen(slave, "w");
	ck_assert_ptr_nonnull(*ret_file);

	return master;
}

static const char *seen(int master)
{
	static char buf[4096];
	ssize_t got = read(master, buf, sizeof(buf) - 1);

	ck_assert_int_gt(got, 0);
	buf[got] = '\0';

	return buf;
}

START_TEST(it_never_fills_the_terminal_and_takes_itself_back)
{
	struct winsize narrow = { .ws_row = 24, .ws_col = 10 };
	struct trap_live live;
	FILE *file;
	int master = open_terminal(20, &file);

	setenv("TERM", "xterm", 1);
	trap_live_detect(&live, file);
	ck_assert(live.on);
	trap_live_draw(&live, "0123456789012345678901234");
	ck_assert_str_eq(seen(master), "\r\033[J0123456789012345678");
	trap_live_draw(&live, "\xc3\xa4\xc3\xa4");
	ck_assert_str_eq(seen(master), "\r\033[J\xc3\xa4\xc3\xa4");
	trap_live_draw(&live, "0123456789012345678");
	seen(master);
	/* Nineteen columns in a terminal of ten are two lines. */
	ck_assert_int_eq(ioctl(fileno(file), TIOCSWINSZ, &narrow), 0);
	trap_live_draw(&live, "x");
	ck_assert_str_eq(seen(master), "\033[1A\r\033[Jx");
	trap_live_erase(&live);
	ck_assert_str_eq(seen(master), "\r\033[J");
	ck_assert_uint_eq(live.shown, 0);
	fclose(file);
	close(master);
}
END_TEST

START_TEST(there_is_none_where_it_cannot_be_taken_back)
{
	struct trap_live live;
	FILE *terminal, *file = tmpfile();
	int master = open_terminal(20, &terminal);

	setenv("TERM", "dumb", 1);
	trap_live_detect(&live, terminal);
	ck_assert(!live.on);
	setenv("TERM", "xterm", 1);
	trap_live_detect(&live, file);
	ck_assert(!live.on);
	trap_live_draw(&live, "x");
	trap_live_erase(&live);
	ck_assert_int_eq(ftell(file), 0);
	fclose(file);
	fclose(terminal);
	close(master);
}
END_TEST

/* ==== sessions ==== */

static char directory[64];
static struct config *config;

static void setup(void)
{
	struct trap_plan plan = { .memory_bytes = { 1 << 20 }, .memory_count = 1, .after_ns = 0 };

	scene_directory(directory);
	trap_plan_watch(&plan, getpid(), "scene");
	ck_assert_int_eq(trap_plan_resolve(&plan, error, sizeof(error)), 0);
	ck_assert_int_eq(trap_plan_config(&plan, &config, error, sizeof(error)), 0);
}

static void teardown(void)
{
	config_free(config);
	scene_remove(directory);
}

static void ignore_caught(void *ctx, const struct evaluator_firing *firing, bool joins)
{
	(void)firing;
	(void)joins;
	++*(int *)ctx;
}

START_TEST(memory_that_runs_out_at_the_start_is_survived)
{
	struct scene_log log = scene_log_catch();
	int caught = 0;
	struct trap_session_options options = {
		.config = config, .directory = directory, .count = 1, .caught = ignore_caught, .ctx = &caught
	};
	bool injected = true, directory_failed;
	long failures = 0;

	for (long n = 1; injected && n < 3000; n++) {
		struct trap_session *trap = NULL;

		torture_arm(n);
		int r = trap_session_new(&options, &trap, &directory_failed);

		injected = torture_disarm();
		ck_assert_int_le(r, 0);
		ck_assert((r == 0) == (trap != NULL));
		ck_assert(injected || r == 0);
		failures += r < 0;
		if (trap)
			trap_session_finish(trap);
		trap_session_free(trap);
	}
	ck_assert(!injected);
	ck_assert_int_gt(failures, 10);
	scene_log_release(&log);
}
END_TEST

START_TEST(a_directory_that_cannot_be_is_told_from_other_trouble)
{
	char path[100];
	int caught = 0;
	struct trap_session_options options = {
		.config = config, .directory = path, .caught = ignore_caught, .ctx = &caught
	};
	struct trap_session *trap = NULL;
	bool directory_failed = false;

	snprintf(path, sizeof(path), "%s/file", directory);
	scene_write(path, "x");
	ck_assert_int_eq(trap_session_new(&options, &trap, &directory_failed), -ENOTDIR);
	ck_assert(directory_failed);
	ck_assert_ptr_null(trap);
}
END_TEST

Suite *trap_plan_suite(void)
{
	Suite *suite = suite_create("trap_plan");
	TCase *tcase = tcase_create("plan");

	tcase_add_test(tcase, without_thresholds_it_is_a_core_for_a_second_or_memory_that_grows);
	tcase_add_test(tcase, only_what_was_asked_for_is_waited_for);
	tcase_add_test(tcase, memory_without_a_time_is_its_peak_and_with_one_what_stays);
	tcase_add_loop_test(tcase, any_time_is_split_into_windows_that_add_up_to_it, 0, 10);
	tcase_add_test(tcase, a_name_may_hold_any_bytes);
	tcase_add_loop_test(tcase, what_cannot_be_is_refused_by_option, 0, (int)ARRAY_LEN(mistakes));
	tcase_add_test(tcase, each_of_several_sizes_is_a_rule);
	tcase_add_test(tcase, sizes_that_make_no_sense_are_refused);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);

	TCase *lines = tcase_create("line"), *sessions = tcase_create("sessions");

	tcase_add_test(lines, it_says_values_and_what_they_are_held_against);
	tcase_add_test(lines, it_says_what_it_waits_for_otherwise);
	tcase_add_test(lines, it_never_fills_the_terminal_and_takes_itself_back);
	tcase_add_test(lines, there_is_none_where_it_cannot_be_taken_back);
	suite_add_tcase(suite, lines);
	tcase_add_checked_fixture(sessions, setup, teardown);
	tcase_add_test(sessions, memory_that_runs_out_at_the_start_is_survived);
	tcase_add_test(sessions, a_directory_that_cannot_be_is_told_from_other_trouble);
	suite_add_tcase(suite, sessions);

	return suite;
}
