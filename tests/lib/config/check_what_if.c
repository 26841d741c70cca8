/*
 * check_what_if.c: "RULE.KEY=VALUE,...": every key of a rule, the rest of the rule untouched, and
 * every mistake with its remedy.
 */
#include "replay_rig.h"
#include "lib/base/base.h"
#include "torture.h"
#include "lib/config/config_keys.h"
#include "lib/config/config.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <errno.h>

Suite *what_if_suite(void);

static struct config *config;
static struct what_if what_if;
static char message[WHAT_IF_MESSAGE_MAX];

static void setup(void)
{
	config = rig_config();
	what_if = (struct what_if){ 0 };
	*message = '\0';
}

static void teardown(void)
{
	what_if_release(&what_if);
	config_free(config);
}

static const struct config_rule *changed(size_t variant)
{
	ck_assert_uint_lt(variant, what_if.count);

	return &what_if.variants[variant].config.rules[what_if.variants[variant].rule];
}

static void parse(const char *text)
{
	what_if_release(&what_if);
	ck_assert_msg(what_if_parse(&what_if, config, text, message) == 0, "%s: %s", text, message);
}

static void refused(const char *text, const char *part)
{
	size_t count = what_if.count;

	ck_assert_msg(what_if_parse(&what_if, config, text, message) == -EINVAL, "%s", text);
	ck_assert_msg(strstr(message, part), "%s: \"%s\" does not say \"%s\"", text, message, part);
	ck_assert_uint_ge(what_if.count, count);
}

START_TEST(each_value_is_a_variant)
{
	parse("percent.percent=60,70%, 80 ; core.for=1s");
	ck_assert_uint_eq(what_if.count, 4);
	ck_assert_double_eq(changed(0)->trigger.percent, 60);
	ck_assert_double_eq(changed(1)->trigger.percent, 70);
	ck_assert_double_eq(changed(2)->trigger.percent, 80);
	ck_assert_str_eq(what_if.variants[1].value, "70%");
	ck_assert_uint_eq(changed(3)->trigger.for_ns, NS_PER_S);
	ck_assert_str_eq(changed(3)->name, "core");
	ck_assert_str_eq(what_if.variants[3].key, "for");
}
END_TEST

START_TEST(every_key_can_be_changed)
{
	parse("percent.window=250ms;delta.delta=7;percent.minimum=3;percent.maximum=99;percent.warmup=9;percent."
	      "history=77");
	ck_assert_uint_eq(changed(0)->window_ns, 250 * NS_PER_MS);
	ck_assert(changed(1)->trigger.has_delta && changed(1)->trigger.delta == 7);
	ck_assert(changed(2)->trigger.has_minimum && changed(2)->trigger.minimum == 3);
	ck_assert(changed(3)->trigger.has_maximum && changed(3)->trigger.maximum == 99);
	ck_assert_uint_eq(changed(4)->trigger.warmup, 9);
	ck_assert_uint_eq(changed(5)->trigger.history, 77);
	parse("high.above=1.5GiB;count.above=2.25;percent.of=machine;percent.cooldown=2m;percent.count=4;percent.count_"
	      "period=1h;"
	      "percent.rearm=high-water");
	ck_assert_double_eq(changed(0)->trigger.percent, 1.5 * (1 << 30));
	ck_assert_double_eq(changed(1)->trigger.percent, 2.25);
	ck_assert_int_eq(changed(2)->of, METRIC_OF_MACHINE);
	ck_assert_uint_eq(changed(3)->trigger.cooldown_ns, 120 * NS_PER_S);
	ck_assert_uint_eq(changed(4)->trigger.count, 4);
	ck_assert_uint_eq(changed(5)->trigger.count_period_ns, 3600 * NS_PER_S);
	ck_assert_int_eq(changed(6)->trigger.rearm, TRIGGER_REARM_HIGH_WATER);
}
END_TEST

START_TEST(the_rest_of_the_rule_and_the_other_rules_stay)
{
	static const double odd[] = { 0.1, 33.333333333333336, 0.00001234, 99999.875, 80 };
	char text[80];

	for (size_t i = 0; i < config->rule_count; i++) {
		for (size_t k = 0; k < ARRAY_LEN(odd); k++) {
			struct config_rule *rule = &config->rules[i];
			struct config_rule was = *rule;

			if (metric_unit(rule->metric) == UNIT_PERCENT)
				rule->trigger.percent = odd[k];
			rule->trigger.history = 500;
			snprintf(text, sizeof(text), "%s.history=400", rule->name);
			parse(text);
			ck_assert(!config_rule_same(changed(0), rule));
			rule->trigger.history = 400;
			ck_assert_msg(config_rule_same(changed(0), rule), "%s with %.17g", rule->name, odd[k]);
			ck_assert_uint_eq(changed(0)->target_count, rule->target_count);
			for (size_t other = 0; other < config->rule_count; other++)
				if (other != i)
					ck_assert(config_rule_same(&config->rules[other],
								   &what_if.variants[0].config.rules[other]));
			*rule = was;
		}
	}
}
END_TEST

START_TEST(mistakes_name_what_was_meant)
{
	refused("", "expected RULE.KEY=VALUE");
	refused("percent", "expected RULE.KEY=VALUE");
	refused("percent=5", "expected RULE.KEY=VALUE");
	refused("percent.=5", "expected RULE.KEY=VALUE");
	refused(".percent=5", "expected RULE.KEY=VALUE");
	refused("percent.percent=5;", "expected RULE.KEY=VALUE");
	refused("percnt.percent=5", "did you mean \"percent\"?");
	refused("percent.cooldwn=5s", "did you mean \"cooldown\"?");
	refused("percent.name=x", "no key \"name\" that can be changed");
	refused("percent.targets=x", "no key");
	refused("percent.percent=", "a value is empty");
	refused("percent.percent=5,,6", "a value is empty");
	refused("percent.percent=\"5\"", "a value is none");
	refused("percent.percent=5}", "a value is none");
	refused("percent.percent=x", "percent.percent=x: ");
	refused("percent.above=5", "is a percentage");
	refused("high.above=5", "high.above=5: ");
	refused("high.percent=5", "is no percentage");
	refused("percent.window=1ms", "percent.window=1ms: ");
	refused("percent.window=5", "percent.window=5: ");
	refused("delta.warmup=0", "needs an average");
	refused("core.maximum=50", "could never fire");
	refused("delta.of=core", "means nothing");
}
END_TEST

START_TEST(there_is_an_end_to_it)
{
	char text[1000] = "percent.percent=1", value[600];

	for (unsigned i = 1; i < WHAT_IF_VARIANTS_MAX; i++)
		strncat(text, ",5", sizeof(text) - strlen(text) - 1);
	parse(text);
	ck_assert_uint_eq(what_if.count, WHAT_IF_VARIANTS_MAX);
	refused("percent.percent=5", "too many values");
	what_if_release(&what_if);
	memset(value, '5', sizeof(value));
	value[sizeof(value) - 1] = '\0';
	snprintf(text, sizeof(text), "percent.percent=%s", value);
	refused(text, "a value is none");
}
END_TEST

START_TEST(memory_that_runs_out_is_an_error)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = what_if_parse(&what_if, config, "percent.percent=60;core.for=1s", message);

		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		what_if_release(&what_if);
	}
}
END_TEST

Suite *what_if_suite(void)
{
	Suite *suite = suite_create("what_if");
	TCase *tcase = tcase_create("syntax");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, each_value_is_a_variant);
	tcase_add_test(tcase, every_key_can_be_changed);
	tcase_add_test(tcase, the_rest_of_the_rule_and_the_other_rules_stay);
	tcase_add_test(tcase, mistakes_name_what_was_meant);
	tcase_add_test(tcase, there_is_an_end_to_it);
	tcase_add_test(tcase, memory_that_runs_out_is_an_error);
	suite_add_tcase(suite, tcase);

	return suite;
}
