/* check_evaluator.c: targets come and go, rules step, firings are handed out and remembered. */
#include "evaluator_bench.h"
#include "lib/base/base.h"
#include "torture.h"

#include <check.h>
#include <errno.h>

Suite *evaluator_suite(void);

START_TEST(rule_looks_at_the_entries_it_names)
{
	const char *entries[] = { "db", "cache" };
	struct target target = make_target(1, "a");
	struct config_rule *rule = add_rule("hot", METRIC_CPU, S);

	rule->targets = entries;
	rule->target_count = 2;
	start();
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
	target = make_target(2, "b");
	target.entry = "cache";
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
	cpu(1, 10 * S, 0);
	cpu(2, 10 * S, 0);
	ticks(10 * S, 12 * S, S);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_str_eq(firings[0].target, "b");
}
END_TEST

START_TEST(unavailable_values_are_judged_so)
{
	add_rule("big", METRIC_MEMORY, S);
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 12 * S, S);
	ck_assert_uint_eq(firing_count, 0);
	ck_assert_uint_eq(evaluator_evaluations(evaluator), 2);
}
END_TEST

START_TEST(unknown_ids_are_ignored)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	cpu(7, 10 * S, 0);
	feed_gone(evaluator, 7);
	judged_target(1, "a");
	cpu(7, 10 * S, 0);
	feed_gone(evaluator, 7);
	ticks(10 * S, 12 * S, S);
	ck_assert_uint_eq(evaluator_evaluations(evaluator), 0);
}
END_TEST

START_TEST(many_targets_come_and_go)
{
	bool alive[1001] = { false };
	unsigned count = 0;

	add_rule("hot", METRIC_CPU, S);
	start();
	for (uint32_t id = 1; id <= 1000; id++) {
		uint32_t other = id * 2654435761u % id + 1;

		judged_target(id, "x");
		cpu(id, 10 * S, 0);
		alive[id] = true;
		if (id % 3 == 0) {
			feed_gone(evaluator, other); /* sampled in a tick that it does not live to see the end of */
			alive[other] = false;
		}
	}
	for (uint32_t id = 1; id <= 1000; id += 4) {
		feed_gone(evaluator, id);
		alive[id] = false;
	}
	for (uint32_t id = 1; id <= 1000; id++)
		count += alive[id];
	disk_full = true; /* counts, does not fire */
	tick(10 * S);
	tick(11 * S);
	ck_assert_uint_gt(count, 0);
	ck_assert_uint_eq(evaluator_evaluations(evaluator), count);
}
END_TEST

START_TEST(refused_firing_stops_nobody)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	judged_target(2, "b");
	cpu(1, 10 * S, 0);
	cpu(2, 10 * S, 0);
	tick(10 * S);
	answer = -ENOSPC;
	then_answer = -EIO;
	ck_assert_int_eq(tick(11 * S), -ENOSPC);
	ck_assert_uint_eq(firing_count, 2);
	answer = then_answer = 0;
	ck_assert_int_eq(tick(12 * S), 0);
}
END_TEST

START_TEST(disk_is_asked_about_once_in_a_tick_that_judges)
{
	add_rule("hot", METRIC_CPU, S);
	add_rule("hotter", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	disk_full = true;
	ticks(10 * S, 11 * S, 10 * MS);
	ck_assert_uint_eq(disk_questions, 1);
	ck_assert_uint_eq(firing_count, 0);
}
END_TEST

START_TEST(for_and_cooldown_are_whole_windows_whatever_the_jitter)
{
	struct config_rule *rule = add_rule("hot", METRIC_CPU, S);
	const uint64_t jitter[] = { 900, 3, 70, 500, 1, 800, 20, 0, 600, 5, 7, 300, 2 };

	rule->trigger.for_ns = 2 * S;
	rule->trigger.cooldown_ns = 5 * S;
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	for (size_t i = 0; i < ARRAY_LEN(jitter); i++)
		tick((10 + i) * S + jitter[i] * 1000);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_uint_eq(firings[0].to.ns / S, 13);
	ck_assert_uint_eq(firings[1].to.ns / S, 18);
}
END_TEST

START_TEST(rediscovered_target_keeps_its_cooldown_and_starts_its_history_anew)
{
	struct config_rule *rule = add_rule("hot", METRIC_CPU, S);

	rule->trigger.cooldown_ns = 100 * S;
	rule->trigger.warmup = 1;
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 12 * S, S);
	ck_assert_uint_eq(firing_count, 1);
	feed_gone(evaluator, 1);
	judged_target(2, "a");
	cpu(2, 20 * S, 0);
	ticks(20 * S, 111 * S, S);
	ck_assert_uint_eq(firing_count, 1);
	tick(112 * S);
	ck_assert_uint_eq(firing_count, 2);
}
END_TEST

START_TEST(target_that_vanishes_while_pending_holds_anew_when_it_is_back)
{
	struct config_rule *rule = add_rule("hot", METRIC_CPU, S);

	rule->trigger.for_ns = 2 * S;
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 12 * S, S); /* one more window and it fires */
	feed_gone(evaluator, 1);
	judged_target(2, "a");
	cpu(2, 13 * S, 0);
	ticks(13 * S, 15 * S, S);
	ck_assert_uint_eq(firing_count, 0);
	tick(16 * S);
	ck_assert_uint_eq(firing_count, 1);
}
END_TEST

START_TEST(without_a_memo_it_remembers_itself)
{
	struct config_rule *rule = add_rule("hot", METRIC_CPU, S);

	rule->trigger.count = 1;
	rule_state_free(rule_state);
	rule_state = NULL;
	start();
	for (uint32_t id = 1; id <= 3; id++) {
		judged_target(id, "a");
		cpu(id, 10 * id * S, 0);
		ticks(10 * id * S, (10 * id + 3) * S, S);
		feed_gone(evaluator, id);
	}
	ck_assert_uint_eq(firing_count, 1);
}
END_TEST

START_TEST(memo_is_kept_up_to_date)
{
	struct config_rule *rule = add_rule("hot", METRIC_CPU, S);
	struct trigger_memory value;

	rule->trigger.cooldown_ns = 2 * S;
	rule->trigger.percent = 50;
	rule->trigger.rearm = TRIGGER_REARM_BELOW;
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	tick(10 * S);
	ck_assert(!rule_state_get(rule_state, "hot", "a", &value));
	cpu(1, 11 * S, S);
	tick(11 * S);
	ck_assert(rule_state_get(rule_state, "hot", "a", &value));
	ck_assert_uint_eq(value.cooldown_until.ns, 13 * S + WALL_AHEAD);
	ck_assert_uint_eq(value.fired, 1);
	ck_assert_double_eq(value.high_water, 100);
	ck_assert(value.disarmed);
	tick(12 * S);
	ck_assert(rule_state_get(rule_state, "hot", "a", &value) && !value.disarmed);
	tick(13 * S);
	ck_assert(rule_state_get(rule_state, "hot", "a", &value) && value.cooldown_until.ns == 0);
}
END_TEST

/* What evaluator_visit shows of the only pair. */
static struct {
	unsigned count;
	bool judged;
	enum trigger_reason reason;
	uint64_t fired, unavailable;
	char target[16];
} shown;

static int show(void *ctx, const struct evaluator_status *status)
{
	shown.count++;
	shown.judged = status->decision != NULL;
	if (status->decision)
		shown.reason = status->decision->reason;
	shown.fired = status->memory->fired;
	shown.unavailable = status->reasons[TRIGGER_UNAVAILABLE];
	snprintf(shown.target, sizeof(shown.target), "%s", status->target->name);
	return ctx ? *(int *)ctx : 0;
}

START_TEST(status_says_why)
{
	int stop = 5;

	memset(&shown, 0, sizeof(shown));
	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	ck_assert_int_eq(evaluator_visit(evaluator, show, NULL), 0);
	ck_assert_uint_eq(shown.count, 1);
	ck_assert(!shown.judged);

	memory(1, 10 * S, 1, 0);
	ticks(10 * S, 11 * S, S);
	cpu(1, 12 * S, 0);
	ticks(12 * S, 13 * S, S);
	evaluator_visit(evaluator, show, NULL);
	ck_assert(shown.judged);
	ck_assert_int_eq(shown.reason, TRIGGER_ABOVE_PERCENT);
	ck_assert_uint_eq(shown.fired, 1);
	ck_assert_uint_eq(shown.unavailable, 2);

	judged_target(2, "b");
	shown.count = 0;
	ck_assert_int_eq(evaluator_visit(evaluator, show, &stop), 5);
	ck_assert_uint_eq(shown.count, 1);
}
END_TEST

static int count_sight(void *ctx, const struct evaluator_sight *sight)
{
	unsigned *seen = ctx;

	if (strcmp(sight->target->name, "a") == 0) {
		ck_assert(sight->seen);
		ck_assert_uint_eq(sight->at.ns, 11 * S + MS);
		ck_assert_uint_eq(sight->sample->value[SAMPLE_CPU], 5);
	} else {
		ck_assert(!sight->seen && !sight->sample);
	}
	return ++*seen == 3 ? -EIO : 0;
}

START_TEST(targets_are_visited_with_and_without_rules_and_samples)
{
	unsigned seen = 0;

	start();
	ck_assert_int_eq(evaluator_visit_targets(evaluator, count_sight, &seen), 0);
	ck_assert_uint_eq(seen, 0);
	judged_target(1, "a");
	judged_target(2, "b");
	cpu(1, 10 * S, 0);
	tick(10 * S);
	cpu(1, 11 * S + MS, 5);
	ck_assert_int_eq(evaluator_visit_targets(evaluator, count_sight, &seen), 0);
	ck_assert_uint_eq(seen, 2);
	ck_assert_int_eq(evaluator_visit_targets(evaluator, count_sight, &seen), -EIO);
	ck_assert_uint_eq(seen, 3);
}
END_TEST

START_TEST(target_may_be_renamed_and_its_strings_are_copied)
{
	char name[] = "before";

	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, name);
	cpu(1, 10 * S, 0);
	tick(10 * S);
	memcpy(name, "XXXXXX", 6);
	tick(11 * S);
	judged_target(1, "after");
	tick(12 * S);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_str_eq(firings[0].target, "before");
	ck_assert_str_eq(firings[1].target, "after");
}
END_TEST

START_TEST(limits_are_those_of_the_last_sample)
{
	struct sample sample = { 0 };

	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	sample_set(&sample, SAMPLE_CPU, 0);
	feed_sample(evaluator, 1, (mono_t){ 10 * S }, &sample);
	ticks(10 * S, 11 * S, S);
	ck_assert_uint_eq(firings[0].cpu_limit, UINT64_MAX);
	sample_set(&sample, SAMPLE_CPU_LIMIT, 2 * S);
	feed_sample(evaluator, 1, (mono_t){ 12 * S }, &sample);
	tick(12 * S);
	ck_assert_uint_eq(firings[1].cpu_limit, 2 * S);
}
END_TEST

START_TEST(nothing_to_do_without_rules)
{
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	ck_assert_int_eq(tick(10 * S), 0);
	ck_assert_int_eq(evaluator_visit(evaluator, show, NULL), 0);
}
END_TEST

START_TEST(samples_and_ticks_allocate_nothing)
{
	unsigned long before;

	add_rule("hot", METRIC_CPU, S)->trigger.count = 1;
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 11 * S, S); /* the only firing, and what is remembered of it */
	before = torture_allocations();
	for (uint64_t now = 12 * S; now <= 20 * S; now += S) {
		cpu(1, now, now);
		tick(now);
	}
	ck_assert_uint_eq(torture_allocations(), before);
	ck_assert_uint_eq(evaluator_evaluations(evaluator), 10);
}
END_TEST

START_TEST(every_allocation_may_fail_when_a_target_appears)
{
	struct target target = make_target(1, "a");
	bool injected = true;

	add_rule("hot", METRIC_CPU, S);
	add_rule("big", METRIC_MEMORY, 2 * S);
	start();
	for (long n = 1; injected; n++) {
		int r;

		torture_arm(n);
		r = feed_target(evaluator, &target);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		shown.count = 0;
		evaluator_visit(evaluator, show, NULL);
		ck_assert_uint_eq(shown.count, injected ? 0 : 2);
	}

	target.name = "b";
	torture_arm(1);
	ck_assert_int_eq(feed_target(evaluator, &target), -ENOMEM);
	ck_assert(torture_disarm());
	evaluator_visit(evaluator, show, NULL);
	ck_assert_str_eq(shown.target, "a");
}
END_TEST

START_TEST(every_allocation_may_fail_at_the_beginning)
{
	const struct evaluator_options options = { .config = &config, .fire = fire };
	bool injected = true;

	add_rule("hot", METRIC_CPU, S);
	for (long n = 1; injected; n++) {
		int r;

		torture_arm(n);
		r = evaluator_new(&options, &evaluator);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
	}
	evaluator_free(NULL);
}
END_TEST

START_TEST(memo_that_gets_no_memory_gets_it_next_time)
{
	struct trigger_memory value;

	add_rule("hot", METRIC_CPU, S);
	start();
	judged_target(1, "a");
	cpu(1, 10 * S, 0);
	tick(10 * S);
	torture_arm(1);
	tick(11 * S);
	ck_assert(torture_disarm());
	ck_assert_uint_eq(firing_count, 1);
	ck_assert(!rule_state_get(rule_state, "hot", "a", &value));
	tick(12 * S);
	ck_assert(rule_state_get(rule_state, "hot", "a", &value));
	ck_assert_uint_eq(value.fired, 2);
}
END_TEST

static TCase *pairs(void)
{
	TCase *tcase = tcase_create("pairs");

	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_test(tcase, rule_looks_at_the_entries_it_names);
	tcase_add_test(tcase, unavailable_values_are_judged_so);
	tcase_add_test(tcase, unknown_ids_are_ignored);
	tcase_add_test(tcase, many_targets_come_and_go);
	tcase_add_test(tcase, refused_firing_stops_nobody);
	tcase_add_test(tcase, disk_is_asked_about_once_in_a_tick_that_judges);
	tcase_add_test(tcase, for_and_cooldown_are_whole_windows_whatever_the_jitter);
	tcase_add_test(tcase, rediscovered_target_keeps_its_cooldown_and_starts_its_history_anew);
	tcase_add_test(tcase, target_that_vanishes_while_pending_holds_anew_when_it_is_back);
	tcase_add_test(tcase, without_a_memo_it_remembers_itself);
	tcase_add_test(tcase, memo_is_kept_up_to_date);
	tcase_add_test(tcase, status_says_why);
	tcase_add_test(tcase, targets_are_visited_with_and_without_rules_and_samples);
	tcase_add_test(tcase, target_may_be_renamed_and_its_strings_are_copied);
	tcase_add_test(tcase, limits_are_those_of_the_last_sample);
	tcase_add_test(tcase, nothing_to_do_without_rules);
	tcase_add_test(tcase, samples_and_ticks_allocate_nothing);
	tcase_add_test(tcase, every_allocation_may_fail_when_a_target_appears);
	tcase_add_test(tcase, every_allocation_may_fail_at_the_beginning);
	tcase_add_test(tcase, memo_that_gets_no_memory_gets_it_next_time);
	return tcase;
}

/* ---- several writers ---- */

/* A look of writer w at its target, which has the number w + 1, and the tick that ends it. */
static void look(uint32_t w, uint64_t at_ns, uint64_t cpu_ns)
{
	feeding.writer = w;
	cpu(w + 1, at_ns, cpu_ns);
	tick(at_ns);
}

static void two_writers(void)
{
	add_rule("r", METRIC_CPU, S);
	start();
	for (uint32_t w = 0; w < 2; w++) {
		feeding.writer = w;
		judged_target(w + 1, w == 0 ? "a" : "b");
	}
}

/* Both use half a core all the time; the second is not looked at for 1.5 s. */
START_TEST(a_writer_that_stalls_makes_no_target_idle_and_none_busy)
{
	two_writers();
	for (uint64_t at = 10 * S; at <= 15 * S; at += 10 * MS) {
		look(0, at, at / 2);
		if (at < 11 * S + 205 * MS || at > 12 * S + 705 * MS)
			look(1, at + 5 * MS, (at + 5 * MS) / 2);
	}
	/*
	 * a: 11 to 15. b: begun at 11.005, the window of 12 ends with the tick at 12.715, that of
	 * 13 would be too short.
	 */
	static const uint64_t ends[] = { 12 * S + 715 * MS, 14 * S + 5 * MS, 15 * S + 5 * MS };
	size_t b = 0;

	ck_assert_uint_eq(firing_count, 8);
	for (size_t i = 0; i < firing_count; i++) {
		ck_assert_double_eq_tol(firings[i].value, 50, 0.001);
		if (strcmp(firings[i].target, "b") == 0)
			ck_assert_uint_eq(firings[i].to.ns, ends[b++]);
	}
	ck_assert_uint_eq(b, 3);
}
END_TEST

/* Ticks without a record of it: only those of its own writer say that it stood still. */
START_TEST(ticks_of_another_writer_say_nothing_of_a_target)
{
	two_writers();
	look(0, 10 * S, 0);
	look(1, 10 * S, 0);
	look(0, 10 * S + 500 * MS, 500 * MS);
	for (uint64_t at = 10 * S + 510 * MS; at < 11 * S; at += 10 * MS) {
		feeding.writer = 1;
		tick(at);
	}
	/*
	 * It went on as before; its writer has only been away. Had it stood still it would have
	 * been half a second's work.
	 */
	look(0, 11 * S, 1000 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_str_eq(firings[0].target, "a");
	ck_assert_double_eq_tol(firings[0].value, 100, 0.001);
	ck_assert_uint_eq(firings[0].from.ns, 10 * S);
	ck_assert_uint_eq(firings[0].to.ns, 11 * S);

	/* The other one's was idle, and seen to be. */
	feeding.writer = 1;
	tick(11 * S);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_str_eq(firings[1].target, "b");
	ck_assert_double_eq_tol(firings[1].value, 0, 0.001);
}
END_TEST

START_TEST(ticks_of_two_writers_need_not_come_in_the_order_of_their_times)
{
	two_writers();
	for (uint64_t at = 10 * S; at <= 12 * S; at += 100 * MS)
		look(0, at, at);
	for (uint64_t at = 10 * S; at <= 12 * S; at += 100 * MS)
		look(1, at, at);
	ck_assert_uint_eq(firing_count, 4);
	for (size_t i = 0; i < 4; i++) {
		ck_assert_str_eq(firings[i].target, i < 2 ? "a" : "b");
		ck_assert_double_eq_tol(firings[i].value, 100, 0.001);
	}
}
END_TEST

/* Its own time going back is another thing: that loses what was seen, of its own targets. */
START_TEST(time_that_goes_back_is_a_gap_for_the_targets_of_that_writer)
{
	two_writers();
	look(0, 10 * S, 0);
	look(1, 10 * S, 0);
	look(0, 9 * S + 500 * MS, 0);
	look(0, 10 * S + 500 * MS, 0);
	look(1, 11 * S, S);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_str_eq(firings[0].target, "b");
	look(0, 11 * S, S);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_uint_eq(firings[1].from.ns, 10 * S + 500 * MS);
}
END_TEST

/* As a reader that begins at the newest tick gets them: samples of all, then the ticks of each. */
START_TEST(what_was_known_before_the_first_tick_waits_for_a_tick_of_its_own)
{
	two_writers();
	for (uint32_t w = 0; w < 2; w++) {
		feeding.writer = w;
		cpu(w + 1, 10 * S - 20 * MS, 0);
	}
	feeding.writer = 0;
	tick(10 * S);
	feeding.writer = 1;
	tick(10 * S - 10 * MS);
	look(1, 10 * S + 5 * MS, 0);
	feeding.writer = 0;
	tick(11 * S);
	feeding.writer = 1;
	tick(11 * S + 5 * MS);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_uint_eq(firings[0].from.ns, 10 * S - 20 * MS);
	ck_assert_uint_eq(firings[0].to.ns, 11 * S - 20 * MS);
	ck_assert_uint_eq(firings[1].from.ns, 10 * S + 5 * MS);
}
END_TEST

static TCase *writers(void)
{
	TCase *tcase = tcase_create("writers");

	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_test(tcase, a_writer_that_stalls_makes_no_target_idle_and_none_busy);
	tcase_add_test(tcase, ticks_of_another_writer_say_nothing_of_a_target);
	tcase_add_test(tcase, ticks_of_two_writers_need_not_come_in_the_order_of_their_times);
	tcase_add_test(tcase, time_that_goes_back_is_a_gap_for_the_targets_of_that_writer);
	tcase_add_test(tcase, what_was_known_before_the_first_tick_waits_for_a_tick_of_its_own);
	return tcase;
}

Suite *evaluator_suite(void)
{
	Suite *suite = suite_create("evaluator");

	suite_add_tcase(suite, pairs());
	suite_add_tcase(suite, writers());
	return suite;
}
