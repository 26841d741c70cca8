/* check_trap_plan.c: what was asked of spikewatch trap becomes the configuration that means it. */
#include "torture.h"

#include "lib/base/base.h"
#include "cli/trap/trap.h"
#include "lib/config/config.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

Suite *trap_plan_suite(void);

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
	struct trap_plan plan = { .memory_bytes = 512 << 20, .comm = "a" };
	char text[TRAP_PLAN_TEXT_MAX];
	struct config *config = make(&plan);

	ck_assert_uint_eq(config->rule_count, 1);
	ck_assert_int_eq(config->rules[0].metric, METRIC_MEMORY_PEAK);
	ck_assert_double_eq(config->rules[0].trigger.percent, 512 << 20);
	ck_assert_uint_eq(config->rules[0].trigger.for_ns, 100 * NS_PER_MS);
	ck_assert_str_eq(trap_plan_text(&plan, text, sizeof(text)), "more than 512 MiB of memory");
	config_free(config);

	plan = (struct trap_plan){ .memory_bytes = 512 << 20, .comm = "a", .cpu = "50", .for_ns = 2 * NS_PER_S };
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
	static const uint64_t times_ns[] = { 20 * NS_PER_MS, 99 * NS_PER_MS, 100 * NS_PER_MS, 150 * NS_PER_MS,
					     NS_PER_S / 4,   NS_PER_S,       7 * NS_PER_S,    3600 * NS_PER_S };
	struct trap_plan plan = { .cpu = "80%", .comm = "a", .for_ns = times_ns[_i] };
	struct config *config = make(&plan);

	ck_assert_uint_eq(config->rules[0].window_ns + config->rules[0].trigger.for_ns, times_ns[_i]);
	ck_assert_uint_le(config->rules[0].window_ns, NS_PER_S);
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

START_TEST(every_allocation_may_fail)
{
	struct trap_plan plan = { .comm = "a", .cpu = "80%", .memory_bytes = 1 << 20, .stacks = "off" };
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

Suite *trap_plan_suite(void)
{
	Suite *suite = suite_create("trap_plan");
	TCase *tcase = tcase_create("plan");

	tcase_add_test(tcase, without_thresholds_it_is_a_core_for_a_second_or_memory_that_grows);
	tcase_add_test(tcase, only_what_was_asked_for_is_waited_for);
	tcase_add_test(tcase, memory_without_a_time_is_its_peak_and_with_one_what_stays);
	tcase_add_loop_test(tcase, any_time_is_split_into_windows_that_add_up_to_it, 0, 8);
	tcase_add_test(tcase, a_name_may_hold_any_bytes);
	tcase_add_loop_test(tcase, what_cannot_be_is_refused_by_option, 0, (int)ARRAY_LEN(mistakes));
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);

	return suite;
}
