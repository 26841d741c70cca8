/* check_evaluator.c: targets come and go, rules step, firings are handed out and remembered. */
#include "lib/evaluator/evaluator.c"

#include "scene.h"
#include "evaluator_bench.h"
#include "lib/model/pacing.h"
#include "lib/base/base.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <malloc.h>

Suite *evaluator_suite(void);

static struct config_rule more_rules[16];

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
	watch(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 12 * S, S);
	ck_assert_uint_eq(firing_count, 0);
	ck_assert_uint_eq(feed_judged(evaluator), 2);
}
END_TEST

START_TEST(unknown_ids_are_ignored)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	cpu(7, 10 * S, 0);
	feed_gone(evaluator, 7);
	watch(1, "a");
	cpu(7, 10 * S, 0);
	feed_gone(evaluator, 7);
	ticks(10 * S, 12 * S, S);
	ck_assert_uint_eq(feed_judged(evaluator), 0);
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

		watch(id, "x");
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
	ck_assert_uint_eq(feed_judged(evaluator), count);
}
END_TEST

START_TEST(refused_firing_stops_nobody)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	watch(1, "a");
	watch(2, "b");
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
	watch(1, "a");
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
	watch(1, "a");
	cpu(1, 10 * S, 0);
	for (size_t i = 0; i < ARRAY_LEN(jitter); i++)
		tick((10 + i) * S + jitter[i] * 1000);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_uint_eq(firings[0].to.ns / S, 13);
	ck_assert_uint_eq(firings[1].to.ns / S, 18);
}
END_TEST

/* A target is there from 10 to 12 s, vanishes and comes back; it fires a tick after quiet_until. */
static const struct {
	uint64_t for_ns, cooldown_ns, back_ns, quiet_until_ns;
	unsigned warmup, fired; /* fired: before it vanished */
} comebacks[] = {
	/* It keeps its cooldown and starts its history anew. */
	{ .cooldown_ns = 100 * S, .warmup = 1, .fired = 1, .back_ns = 20 * S, .quiet_until_ns = 111 * S },
	/* One more window and it would have fired: it holds anew. */
	{ .for_ns = 2 * S, .fired = 0, .back_ns = 13 * S, .quiet_until_ns = 15 * S },
};

START_TEST(target_that_comes_back_keeps_its_cooldown_only)
{
	struct config_rule *rule = add_rule("hot", METRIC_CPU, S);
	uint64_t back_ns = comebacks[_i].back_ns, quiet_until_ns = comebacks[_i].quiet_until_ns;

	rule->trigger.for_ns = comebacks[_i].for_ns;
	rule->trigger.cooldown_ns = comebacks[_i].cooldown_ns;
	rule->trigger.warmup = comebacks[_i].warmup;
	start();
	watch(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 12 * S, S);
	ck_assert_uint_eq(firing_count, comebacks[_i].fired);
	feed_gone(evaluator, 1);
	watch(2, "a");
	cpu(2, back_ns, 0);
	ticks(back_ns, quiet_until_ns, S);
	ck_assert_uint_eq(firing_count, comebacks[_i].fired);
	tick(quiet_until_ns + S);
	ck_assert_uint_eq(firing_count, comebacks[_i].fired + 1);
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
		watch(id, "a");
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
	watch(1, "a");
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
	watch(1, "a");
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

	watch(2, "b");
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
	watch(1, "a");
	watch(2, "b");
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
	watch(1, name);
	cpu(1, 10 * S, 0);
	tick(10 * S);
	memcpy(name, "XXXXXX", 6);
	tick(11 * S);
	watch(1, "after");
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
	watch(1, "a");
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
	watch(1, "a");
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
	watch(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 11 * S, S); /* the only firing, and what is remembered of it */
	before = torture_allocations();
	for (uint64_t now = 12 * S; now <= 20 * S; now += S) {
		cpu(1, now, now);
		tick(now);
	}
	ck_assert_uint_eq(torture_allocations(), before);
	ck_assert_uint_eq(feed_judged(evaluator), 10);
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
	int r;

	add_rule("hot", METRIC_CPU, S);
	start();
	watch(1, "a");
	cpu(1, 10 * S, 0);
	tick(10 * S);
	torture_arm(1); /* the trigger's: it could not remember that it fired, so it does not */
	r = tick(11 * S);
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_uint_eq(firing_count, 0);
	torture_arm(2);
	tick(12 * S);
	ck_assert(torture_disarm());
	ck_assert_uint_eq(firing_count, 1);
	ck_assert(!rule_state_get(rule_state, "hot", "a", &value));
	tick(13 * S);
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
	tcase_add_loop_test(tcase, target_that_comes_back_keeps_its_cooldown_only, 0, ARRAY_LEN(comebacks));
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
	const struct feed_writer writer = { .number = w };

	cpu_by(writer, w + 1, at_ns, cpu_ns);
	tick_by(writer, at_ns);
}

static const struct feed_writer second_writer = { .number = 1 };

static void two_writers(void)
{
	add_rule("r", METRIC_CPU, S);
	start();
	watch(1, "a");
	watch_by(second_writer, 2, "b");
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
	 * a: 11 to 15. b is known from the step of 10.1 on. The whole window from 11.005 to 12.715 overlaps
	 * the one that fired; the next one that is at least half a second long ends half a second later.
	 */
	static const uint64_t ends[] = { 11 * S + 105 * MS, 13 * S + 305 * MS, 14 * S + 305 * MS };
	size_t b = 0;

	ck_assert_uint_eq(firing_count, 8);
	for (size_t i = 0; i < firing_count; i++) {
		ck_assert_double_eq_tol(firings[i].value, 50, 0.001);
		if (strcmp(firings[i].target, "b") == 0)
			ck_assert_uint_eq(firings[i].to.ns, ends[b++]);
	}
	ck_assert_uint_eq(b, ARRAY_LEN(ends));
}
END_TEST

/* Ticks without a record of it: only those of its own writer say that it stood still. */
START_TEST(ticks_of_another_writer_say_nothing_of_a_target)
{
	two_writers();
	look(0, 10 * S, 0);
	look(1, 10 * S, 0);
	look(0, 10 * S + 500 * MS, 500 * MS);
	ticks_by(second_writer, 10 * S + 510 * MS, 11 * S - 10 * MS, 10 * MS);
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
	tick_by(second_writer, 11 * S);
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
	cpu(1, 10 * S - 20 * MS, 0);
	cpu_by(second_writer, 2, 10 * S - 20 * MS, 0);
	tick(10 * S);
	tick_by(second_writer, 10 * S - 10 * MS);
	look(1, 10 * S + 5 * MS, 0);
	tick(11 * S);
	tick_by(second_writer, 11 * S + 5 * MS);
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

/* ---- windows: what a target is taken to be at their ends ---- */

START_TEST(busy_process_has_its_true_rate)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	watch(1, "a");
	for (uint64_t now = 10 * S; now <= 14 * S; now += 10 * MS) {
		cpu(1, now + MS, (now - 10 * S) / 2);
		tick(now);
	}
	ck_assert_uint_eq(firing_count, 4);
	for (size_t i = 0; i < firing_count; i++) {
		ck_assert_double_eq(firings[i].value, 50);
		ck_assert_uint_eq(firings[i].from.ns, (10 + i) * S + MS);
		ck_assert_uint_eq(firings[i].to.ns, (11 + i) * S + MS);
		ck_assert_uint_eq(firings[i].wall.ns, (11 + i) * S + MS + WALL_AHEAD);
	}
}
END_TEST

START_TEST(part_of_a_window_is_not_judged)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	tick(10 * S + 200 * MS);
	watch(1, "a");
	cpu(1, 10 * S + 300 * MS, 0);
	tick(10 * S + 300 * MS);
	cpu(1, 10 * S + 990 * MS, 690 * MS);
	tick(11 * S);
	ck_assert_uint_eq(feed_judged(evaluator), 0);
	tick(12 * S - 1);
	ck_assert_uint_eq(feed_judged(evaluator), 0);
	tick(12 * S);
	ck_assert_uint_eq(feed_judged(evaluator), 1);
}
END_TEST

START_TEST(idle_process_uses_nothing_without_a_record)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	watch(1, "a");
	cpu(1, 10 * S + MS, 77);
	ticks(10 * S, 13 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 3);
	ck_assert_double_eq(firings[2].value, 0);
	ck_assert_uint_eq(firings[2].to.ns,
			  13 * S + MS); /* it was seen unchanged, a millisecond into the tick as ever */
}
END_TEST

START_TEST(process_that_wakes_up_did_so_in_its_window)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	watch(1, "a");
	cpu(1, 10 * S + MS, 0);
	ticks(10 * S, 59 * S + 990 * MS, 10 * MS);
	firing_count = 0;
	cpu(1, 60 * S + MS, 0);
	tick(60 * S);
	for (uint64_t now = 60 * S + 10 * MS; now <= 61 * S; now += 10 * MS) {
		cpu(1, now + MS, now - 60 * S);
		tick(now);
	}
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_double_eq(firings[0].value, 0);
	ck_assert_double_eq(firings[1].value, 100);
}
END_TEST

START_TEST(burst_between_two_ticks_counts_in_its_window_only)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	watch(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 12 * S + 490 * MS, 10 * MS);
	cpu(1, 12 * S + 500 * MS, 10 * MS);
	ticks(12 * S + 500 * MS, 15 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 5);
	for (size_t i = 0; i < firing_count; i++)
		ck_assert_double_eq_tol(firings[i].value, i == 2 ? 1 : 0, 1e-9);
}
END_TEST

START_TEST(target_with_heartbeats_only_has_its_gauges)
{
	add_rule("big", METRIC_MEMORY_BYTES, 100 * MS);
	start();
	watch(1, "a");
	for (uint64_t now = 10 * S; now < 12 * S; now += 10 * MS) {
		if (now % S == 0)
			memory(1, now, 4711, 0);
		tick(now);
	}
	ck_assert_uint_eq(firing_count, 19);
	for (size_t i = 0; i < firing_count; i++)
		ck_assert_double_eq(firings[i].value, 4711);
}
END_TEST

START_TEST(windows_end_at_multiples_of_their_length)
{
	add_rule("slow", METRIC_CPU, 3 * S);
	add_rule("fast", METRIC_CPU, S);
	add_rule("slow2", METRIC_CPU, 3 * S);
	start();
	watch(1, "a");
	cpu(1, 1, 0);
	ticks(1, 12 * S + 1, S);
	ck_assert_uint_eq(feed_judged(evaluator), 11 + 3 + 3);
	for (size_t i = 0; i < firing_count; i++)
		ck_assert_uint_eq((firings[i].to.ns - 1) % ((strcmp(firings[i].rule, "fast") == 0 ? 1 : 3) * S), 0);
}
END_TEST

/* Ticks, most of them with a look at the target, and the windows of one second that they end. */
static const struct {
	enum metric metric;
	struct {
		uint64_t at_ns;
		bool looked;
		uint64_t used, mark; /* CPU time; or memory and, if not 0, its high-water mark */
		size_t fired;        /* so far, after this tick */
	} ticks[10];
	struct {
		uint64_t from_ns, to_ns;
		double value;
	} windows[5];
} looks[] = {
	{
		/* A sampler that stalled is judged once over what has passed. */
		METRIC_CPU,
		{
			{ 10 * S, true, .fired = 0 },
			{ 13 * S + 200 * MS, true, 1600 * MS, .fired = 1 },
			{ 14 * S, true, 2400 * MS, .fired = 2 },
		},
		{ { 10 * S, 13 * S + 200 * MS, 50 }, { 13 * S + 200 * MS, 14 * S, 100 } },
	},
	{
		/* A sliver of a window joins the next: the counter's grain is 40 % of its 10 ms. */
		METRIC_CPU,
		{
			{ 10 * S, true, .fired = 0 },
			{ 12 * S + 990 * MS, true, .fired = 1 },
			{ 13 * S, true, 4 * MS, .fired = 1 },
			{ 14 * S, .fired = 2 },
		},
		{ { 10 * S, 12 * S + 990 * MS, 0 }, { 12 * S + 990 * MS, 14 * S, 100 * 4. / 1010 } },
	},
	{
		/* The peak is over all samples in the window, half of the third at 200. */
		METRIC_MEMORY_PEAK,
		{
			{ 10 * S, true, 100, .fired = 0 },
			{ 10 * S + 500 * MS, true, 900, .fired = 0 },
			{ 10 * S + 510 * MS, true, 200, .fired = 0 },
			{ 11 * S, .fired = 1 },
			{ 12 * S, .fired = 2 },
			{ 12 * S + 500 * MS, true, 50, .fired = 2 },
			{ 13 * S, .fired = 3 },
			{ 14 * S, .fired = 4 },
		},
		{ { 10 * S, 11 * S, 900 }, { 11 * S, 12 * S, 200 }, { 12 * S, 13 * S, 200 }, { 13 * S, 14 * S, 50 } },
	},
	{
		/* High-water marks count when they move, even if reset between. */
		METRIC_MEMORY_PEAK,
		{
			{ 10 * S, true, 100, 5000, .fired = 0 },
			{ 11 * S, .fired = 1 },
			{ 11 * S + 100 * MS, true, 100, 6000, .fired = 1 },
			{ 11 * S + 200 * MS, true, 100, 100, .fired = 1 },
			{ 12 * S, .fired = 2 },
			{ 13 * S, .fired = 3 },
		},
		{ { 10 * S, 11 * S, 100 }, { 11 * S, 12 * S, 6000 }, { 12 * S, 13 * S, 100 } },
	},
};

START_TEST(looks_end_these_windows_with_these_values)
{
	add_rule("r", looks[_i].metric, S);
	start();
	watch(1, "a");
	for (size_t k = 0; k < ARRAY_LEN(looks[_i].ticks) && looks[_i].ticks[k].at_ns; k++) {
		uint64_t at_ns = looks[_i].ticks[k].at_ns, used = looks[_i].ticks[k].used;

		if (looks[_i].ticks[k].looked && looks[_i].metric == METRIC_CPU)
			cpu(1, at_ns, used);
		else if (looks[_i].ticks[k].looked)
			memory(1, at_ns, used, looks[_i].ticks[k].mark);
		tick(at_ns);
		ck_assert_uint_eq(firing_count, looks[_i].ticks[k].fired);
	}
	ck_assert_uint_gt(firing_count, 0);
	for (size_t k = 0; k < firing_count; k++) {
		ck_assert_uint_eq(firings[k].from.ns, looks[_i].windows[k].from_ns);
		ck_assert_uint_eq(firings[k].to.ns, looks[_i].windows[k].to_ns);
		ck_assert_double_eq_tol(firings[k].value, looks[_i].windows[k].value, 1e-9);
	}
}
END_TEST

START_TEST(gap_drops_open_windows)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	watch(1, "a");
	watch(2, "b");
	cpu(1, 10 * S, 0);
	cpu(2, 10 * S, 0);
	ticks(10 * S, 11 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 2);
	feed_gap(evaluator);
	cpu(1, 11 * S + 500 * MS, 0); /* seen again; the other one is not */
	ticks(11 * S + 500 * MS, 12 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 2);
	tick(13 * S);
	ck_assert_uint_eq(firing_count, 3);
	ck_assert_str_eq(firings[2].target, "a");
	ck_assert_uint_eq(firings[2].from.ns, 12 * S);
	cpu(2, 13 * S + 10 * MS, 0);
	tick(13 * S + 10 * MS);
	tick(14 * S);
	ck_assert_uint_eq(firing_count, 4);
	tick(15 * S);
	ck_assert_uint_eq(firing_count, 6);
}
END_TEST

START_TEST(clock_that_begins_anew_is_a_gap)
{
	add_rule("hot", METRIC_CPU, S);
	start();
	watch(1, "a");
	cpu(1, 100 * S, 0);
	ticks(100 * S, 101 * S, S);
	ck_assert_uint_eq(firing_count, 1);
	watch(2, "b");
	tick(5 * S + 1);
	cpu(2, 5 * S + 2, 0);
	ticks(5 * S + 2, 7 * S + 2, S);
	ck_assert_uint_eq(firing_count, 2); /* 6 to 7, of the new one */
	ck_assert_str_eq(firings[1].target, "b");
	cpu(1, 7 * S + 3, 0);
	ticks(7 * S + 3, 9 * S + 3, S);
	ck_assert_uint_eq(firing_count, 5); /* of both, when the old one is seen again */
}
END_TEST

/*
 * Reads every 100 ms, at ticks every 10 ms, one of which comes a tick late: neither 0 % nor 200 %
 * is true.
 */
START_TEST(cgroup_is_judged_between_its_reads)
{
	struct target target = make_target(1, "c");

	target.kind = TARGET_CGROUP;
	add_rule("hot", METRIC_CPU, 100 * MS);
	start();
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
	for (uint64_t now = 10 * S, due = now; now <= 12 * S; now += 10 * MS) {
		if (now >= due) {
			cpu(1, now, (now - 10 * S) / 2);
			due = now + (now == 11 * S ? 110 : 100) * MS;
		}
		tick(now);
	}
	ck_assert_uint_ge(firing_count, 18);
	for (size_t i = 0; i < firing_count; i++)
		ck_assert_double_eq(firings[i].value, 50);
}
END_TEST

START_TEST(idle_cgroup_moves_on_with_the_reads_it_must_have_had)
{
	struct target target = make_target(1, "c");

	target.kind = TARGET_CGROUP;
	add_rule("hot", METRIC_CPU, S);
	start();
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
	cpu(1, 10 * S, 0);
	ticks(10 * S, 20 * S + 90 * MS, 10 * MS);
	firing_count = 0;
	for (uint64_t now = 20 * S + 100 * MS; now <= 22 * S; now += 100 * MS) {
		cpu(1, now, now - 20 * S);
		tick(now);
	}
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_double_eq_tol(firings[0].value, 100, 10); /* 1 s of CPU within 1.0 or 1.1 s */
	ck_assert_double_eq(firings[1].value, 100);
}
END_TEST

static void watch_told(void)
{
	struct target target = make_target(1, "c");

	target.kind = TARGET_CGROUP;
	start();
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
}

/* Ticks every millisecond, windows of ten: a burst of that length fires wherever it lies, half as long a one nowhere. */
START_TEST(a_cgroup_of_which_the_scheduler_tells_is_judged_in_each_tick)
{
	uint64_t length_ns = _i == 0 ? 10 * MS : 5 * MS;

	for (uint64_t phase_ns = 0; phase_ns < 10 * MS; phase_ns += MS / 2 + NS_PER_US) {
		uint64_t from_ns = 11 * S + phase_ns;
		struct config_rule *rule = add_rule("hot", METRIC_CPU, 10 * MS);

		rule->trigger.percent = 80;
		rule->trigger.cooldown_ns = 60 * S;
		watch_told();
		tell(10 * S, 77);
		for (uint64_t now = 10 * S + MS; now <= 12 * S; now += MS) {
			uint64_t ran_ns = now < from_ns ? 0 : now - from_ns;

			if (ran_ns > 0 && now < from_ns + length_ns + MS)
				tell(now, 77 + (ran_ns < length_ns ? ran_ns : length_ns));
			tick(now);
		}
		ck_assert_msg(firing_count == (_i == 0), "phase %d us", (int)(phase_ns / NS_PER_US));
		if (_i == 0) {
			ck_assert_uint_le(firings[0].to.ns, from_ns + length_ns + 2 * MS);
			ck_assert_double_le(firings[0].value, 100);
		}
		end();
		begin();
	}
}
END_TEST

START_TEST(what_is_read_of_such_a_cgroup_at_intervals_is_judged_between_reads)
{
	add_rule("waits", METRIC_CPU_PRESSURE, 250 * MS);
	watch_told();
	for (uint64_t now = 10 * S; now <= 14 * S; now += 10 * MS) {
		if (now < 12 * S)
			tell(now, now);
		tick(now);
	}
	ck_assert_uint_ge(firing_count, 6);
	for (size_t i = 0; i < firing_count; i++)
		if (firings[i].to.ns <= 12 * S)
			ck_assert_double_eq_tol(firings[i].value, 50, 0.001);
		else
			ck_assert_double_le(firings[i].value, 50);
}
END_TEST

#define INTERVAL (10 * MS)
#define IDLE (100 * MS)
#define LOOK_NS (100 * NS_PER_US) /* from the tick to the look */

/* A process of one thread that runs and sleeps, and a sampler that backs off from it. */
static struct {
	uint64_t seed;
	uint64_t turn, used; /* until when it does what it does; what it had used when that began */
	uint64_t began;
	bool runs;
	uint64_t last_cpu, last_look, written, changed, due;
	uint32_t ticks, last_tick;
} sleeper;

static uint64_t draw(uint64_t below)
{
	sleeper.seed = sleeper.seed * 6364136223846793005u + 1442695040888963407u;
	return (sleeper.seed >> 33) % below;
}

/* Times only go forward. */
static uint64_t used_by(uint64_t at)
{
	while (at >= sleeper.turn) {
		sleeper.used += sleeper.runs ? sleeper.turn - sleeper.began : 0;
		sleeper.began = sleeper.turn;
		sleeper.runs = !sleeper.runs;
		sleeper.turn += 1 + (sleeper.runs ? draw(draw(4) ? 30 * MS : S) : draw(draw(3) ? 300 * MS : 5 * S));
	}
	return sleeper.used + (sleeper.runs ? at - sleeper.began : 0);
}

static void look_at_it(uint64_t now)
{
	const struct idle_backoff pace = { INTERVAL, IDLE };
	uint64_t at = now + LOOK_NS, used = used_by(at);

	if (used != sleeper.last_cpu && sleeper.last_tick + 1 != sleeper.ticks && sleeper.last_look != sleeper.written)
		cpu(1, sleeper.last_look, sleeper.last_cpu);
	if (used != sleeper.last_cpu || at - sleeper.written >= S) {
		cpu(1, at, used);
		sleeper.written = at;
	}
	if (used != sleeper.last_cpu)
		sleeper.changed = at;
	sleeper.last_cpu = used;
	sleeper.last_look = at;
	sleeper.last_tick = sleeper.ticks;
	sleeper.due =
		now + idle_backoff_wait_ns(&pace, now > sleeper.changed ? now - sleeper.changed : 0, sleeper.ticks, 3);
}

/* What the whole windows of the sleeper add up to. */
static struct {
	double sum;
	uint64_t first, last, windows, used_first, used_last;
	uint64_t others;
} total;

static void add_window(void *ctx, const struct evaluator_firing *window)
{
	double used = window->decision->value / 100 * (double)mono_diff(window->to, window->from);

	(void)ctx;
	ck_assert_double_le(window->decision->value, 100 + 1e-6);
	total.others += !window->whole;
	if (!window->whole)
		return;

	ck_assert_uint_ge(window->from.ns, total.last);
	if (total.windows++ == 0) {
		total.first = window->from.ns;
		total.used_first = sleeper.last_cpu - (uint64_t)(used + 0.5);
	}
	total.last = window->to.ns;
	total.used_last = sleeper.last_cpu;
	total.sum += used;
}

START_TEST(no_window_shows_more_than_was_possible_and_nothing_is_lost)
{
	const struct feed_writer writer = { .idle_ns = IDLE };

	add_rule("hot", METRIC_CPU, 400 * MS)->trigger.percent = 1000;
	witness = add_window;
	memset(&total, 0, sizeof(total));
	start();
	watch(1, "a");
	memset(&sleeper, 0, sizeof(sleeper));
	sleeper.seed = (uint64_t)_i + 1;
	sleeper.turn = sleeper.began = 10 * S;
	for (uint64_t slot = 10 * S; slot < 130 * S; slot += INTERVAL) {
		uint64_t now = slot + draw(2 * MS);

		if (draw(500) == 0)
			slot += draw(30) * INTERVAL; /* ticks that are missed */
		sleeper.ticks++;
		if (now >= sleeper.due)
			look_at_it(now);
		tick_by(writer, now);
	}
	ck_assert_uint_gt(total.windows, 250);
	ck_assert_uint_gt(total.others, 8 * total.windows);
	ck_assert_double_eq_tol(total.sum, (double)(total.used_last - total.used_first), 1000);
}
END_TEST

START_TEST(burst_after_a_pause_is_in_its_window_and_not_above_it)
{
	const struct feed_writer writer = { .idle_ns = IDLE };

	add_rule("hot", METRIC_CPU, S);
	start();
	watch(1, "a");
	cpu(1, 10 * S, 0);
	ticks_by(writer, 10 * S, 19 * S + 990 * MS, 10 * MS);
	firing_count = 0;

	/*
	 * Last looked at just before the end of a window, it had used 30 ms when it was looked at
	 * after it.
	 */
	ticks_by(writer, 20 * S, 20 * S + 40 * MS, 10 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_double_eq(firings[0].value, 0);
	ck_assert_uint_eq(firings[0].to.ns, 20 * S - IDLE); /* for certain */
	cpu(1, 19 * S + 970 * MS, 0);
	cpu(1, 20 * S + 50 * MS, 30 * MS);
	ticks_by(writer, 20 * S + 50 * MS, 21 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_uint_eq(firings[1].from.ns, 19 * S + 970 * MS);
	ck_assert_uint_eq(firings[1].to.ns, 21 * S - IDLE);
	ck_assert_double_eq_tol(firings[1].value, 100 * 30. / 930, 1e-9);

	/* And one that was last looked at after the end begins at the end. */
	ticks_by(writer, 21 * S + 10 * MS, 21 * S + 90 * MS, 10 * MS);
	cpu(1, 21 * S + 50 * MS, 30 * MS);
	cpu(1, 21 * S + 100 * MS, 60 * MS);
	ticks_by(writer, 21 * S + 100 * MS, 22 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 3);
	ck_assert_uint_eq(firings[2].from.ns, 21 * S);
}
END_TEST

/*
 * A process that has slept for long runs without a break from the beginning of a window on, and is
 * looked at no less often than the rule's window asks for (config_idle_of). The window that it
 * fills is judged when it ends, and shows no less than four fifths of it.
 */
START_TEST(burst_that_fills_a_window_is_judged_at_its_end_whenever_the_last_look_was)
{
	const uint64_t window_ns = 100 * MS, began = 20 * S;
	uint64_t idle_ns = INTERVAL;

	for (uint64_t before = 0; before <= idle_ns; before += 5 * MS) {
		add_rule("hot", METRIC_CPU, window_ns);
		config.sampling.interval_ns = INTERVAL;
		config.sampling.idle_interval_ns = IDLE;
		config.sampling.heartbeat_ns = S;
		idle_ns = config_idle_of(&config, "a");

		const struct feed_writer writer = { .idle_ns = idle_ns };
		mono_t last = { began - before };
		uint64_t woken = last.ns + idle_ns > began ? last.ns + idle_ns : began + INTERVAL;

		start();
		watch(1, "a");
		cpu(1, 15 * S, 0);
		cpu(1, 15 * S + INTERVAL, 1);
		ticks_by(writer, 15 * S + INTERVAL, woken - woken % INTERVAL, INTERVAL);
		firing_count = 0;
		cpu(1, last.ns, 1);
		for (uint64_t now = woken - woken % INTERVAL + INTERVAL; now <= began + window_ns; now += INTERVAL) {
			cpu(1, now, 1 + (now - began));
			tick_by(writer, now);
		}
		ck_assert_uint_eq(firing_count, 1);
		ck_assert_uint_eq(firings[0].to.ns, began + window_ns);
		ck_assert_double_le(firings[0].value, 100);
		ck_assert_double_ge(firings[0].value, 80 - 1e-9);
		end();
		begin();
	}
}
END_TEST

START_TEST(who_is_told_nothing_of_pauses_is_put_right_by_the_record)
{
	add_rule("hot", METRIC_CPU, 100 * MS);
	start();
	watch(1, "a");
	cpu(1, 10 * S, 0);
	ticks(10 * S, 12 * S, 10 * MS);
	firing_count = 0;
	cpu(1, 11 * S + 930 * MS, 0);
	cpu(1, 12 * S + 10 * MS, 80 * MS);
	ticks(12 * S + 10 * MS, 12 * S + 100 * MS, 10 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(firings[0].from.ns, 11 * S + 930 * MS);
	ck_assert_double_le(firings[0].value, 100);
}
END_TEST

/*
 * The rules of the benchmark, with the history that is the default: as docs/rules.md says, and no more
 * than half of the 312 bytes that it was when windows did not slide.
 */
START_TEST(a_rule_takes_112_bytes_for_each_target)
{
	const size_t targets = 1000;
	size_t bytes[2];

	for (unsigned k = 0; k < 2; k++) {
		struct judged_target *watches[1000];
		struct rule_plan plan;
		struct target target = make_target(1, "a");
		unsigned count = k == 0 ? 5 : 15;

		config.rule_count = 0;
		for (unsigned i = 0; i < count; i++) {
			more_rules[i] = *add_rule("a", METRIC_CPU, i == 0 ? 5 * S : S);
			more_rules[i].trigger.history = 10;
			config.rule_count = 0;
		}
		config.rules = more_rules;
		config.rule_count = count;
		ck_assert_int_eq(rule_plan_init(&plan, &config), 0);

		struct mallinfo2 before = mallinfo2();
		for (size_t i = 0; i < targets; i++)
			ck_assert_int_eq(judged_target_new(&plan, &target, 0, rule_state, &watches[i]), 0);
		bytes[k] = (mallinfo2().uordblks - before.uordblks) / targets; /* 0 under a sanitizer's allocator */
		ck_assert_uint_eq(watches[0]->rules->pair_count, count);
		for (size_t i = 0; i < targets; i++)
			judged_target_free(watches[i]);
		rule_plan_release(&plan);
	}
	ck_assert_uint_le(bytes[1] - bytes[0], 10 * 112 + 16);
	ck_assert_uint_le(bytes[0], 1600);
}
END_TEST

static TCase *windows(void)
{
	TCase *tcase = tcase_create("windows");

	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_loop_test(tcase, no_window_shows_more_than_was_possible_and_nothing_is_lost, 0, 10);
	tcase_add_test(tcase, burst_after_a_pause_is_in_its_window_and_not_above_it);
	tcase_add_test(tcase, burst_that_fills_a_window_is_judged_at_its_end_whenever_the_last_look_was);
	tcase_add_test(tcase, who_is_told_nothing_of_pauses_is_put_right_by_the_record);
	tcase_add_test(tcase, busy_process_has_its_true_rate);
	tcase_add_test(tcase, part_of_a_window_is_not_judged);
	tcase_add_test(tcase, idle_process_uses_nothing_without_a_record);
	tcase_add_test(tcase, process_that_wakes_up_did_so_in_its_window);
	tcase_add_test(tcase, burst_between_two_ticks_counts_in_its_window_only);
	tcase_add_test(tcase, target_with_heartbeats_only_has_its_gauges);
	tcase_add_test(tcase, windows_end_at_multiples_of_their_length);
	tcase_add_loop_test(tcase, looks_end_these_windows_with_these_values, 0, ARRAY_LEN(looks));
	tcase_add_test(tcase, gap_drops_open_windows);
	tcase_add_test(tcase, clock_that_begins_anew_is_a_gap);
	tcase_add_test(tcase, a_rule_takes_112_bytes_for_each_target);
	tcase_add_test(tcase, cgroup_is_judged_between_its_reads);
	tcase_add_test(tcase, idle_cgroup_moves_on_with_the_reads_it_must_have_had);
	tcase_add_loop_test(tcase, a_cgroup_of_which_the_scheduler_tells_is_judged_in_each_tick, 0, 2);
	tcase_add_test(tcase, what_is_read_of_such_a_cgroup_at_intervals_is_judged_between_reads);
	return tcase;
}

/* ---- sliding ---- */

/*
 * One burst of a whole core in an idle process, sampled every 10 ms; CPU time advances by the
 * scheduler's ticks of 4 ms. phase_ns: of the burst, after 20 s.
 */
static void live_burst(uint64_t phase_ns, uint64_t length_ns, uint64_t until_ns)
{
	uint64_t from = 20 * S + phase_ns, grain = 4 * MS;

	for (uint64_t now = 18 * S + 7 * MS; now <= until_ns; now += 10 * MS) {
		uint64_t at = now + MS / 2, ran = at < from ? 0 : at - from;

		if (ran < length_ns)
			ran = ran / grain * grain;
		else
			ran = length_ns;
		if (ran > 0 && at < from + length_ns + 10 * MS)
			cpu(1, at, 77 + ran);
		tick(now);
	}
}

static const struct {
	uint64_t window_ns, tenths; /* of the window that the burst lasts */
	double percent;
	bool fires;
} bursts[] = {
	{ 100 * MS, 10, 80, true }, { S, 10, 80, true }, { S, 10, 94, true }, { 2 * S, 10, 95, true },
	{ 100 * MS, 7, 80, false }, { S, 7, 80, false }, { S, 11, 98, true }, { 100 * MS, 30, 90, true },
};

START_TEST(burst_as_long_as_the_window_fires_in_every_phase_and_a_shorter_one_in_none)
{
	uint64_t window_ns = bursts[_i].window_ns, length_ns = window_ns / 10 * bursts[_i].tenths;

	for (uint64_t phase = 0; phase < window_ns; phase += window_ns / 50 + NS_PER_US) {
		struct config_rule *rule = add_rule("hot", METRIC_CPU, window_ns);

		rule->trigger.percent = bursts[_i].percent;
		rule->trigger.cooldown_ns = 60 * S;
		start();
		watch(1, "a");
		cpu(1, 18 * S + 7 * MS + MS / 2, 77);
		live_burst(phase, length_ns, 20 * S + 4 * window_ns + length_ns);
		ck_assert_msg(firing_count == bursts[_i].fires, "phase %d us", (int)(phase / NS_PER_US));
		if (bursts[_i].fires)
			ck_assert_uint_le(firings[0].to.ns, 20 * S + phase + length_ns + window_ns / 10 + 10 * MS);
		end();
		begin();
	}
}
END_TEST

static struct trigger_burst noted;

static int take_burst(void *ctx, const struct evaluator_status *status)
{
	(void)ctx;
	noted = status->burst;
	return 0;
}

START_TEST(burst_that_no_window_caught_is_known_with_its_length)
{
	for (uint64_t phase = 0; phase < S; phase += 70 * MS) {
		struct config_rule *rule = add_rule("hot", METRIC_CPU, S);

		rule->trigger.percent = 80;
		start();
		watch(1, "a");
		cpu(1, 18 * S + 7 * MS + MS / 2, 77);
		live_burst(phase, 600 * MS, 24 * S);
		evaluator_visit(evaluator, take_burst, NULL);
		ck_assert_uint_eq(firing_count, 0);
		ck_assert_uint_ge(noted.length_ns, 560 * MS);
		ck_assert_uint_le(noted.length_ns, 640 * MS);
		ck_assert(!noted.badly_placed);
		ck_assert_double_gt(noted.value, 80);
		ck_assert_double_eq_tol(noted.best, 60, 1);
		ck_assert_uint_le(noted.end.ns, 20 * S + phase + 720 * MS);
		ck_assert_uint_ge(noted.end.ns, 20 * S + phase + 480 * MS);
		end();
		begin();
	}
}
END_TEST

/* As long as the window, and above a threshold that no window shows which misses a part of it. */
START_TEST(burst_between_two_windows_is_known_as_badly_placed)
{
	size_t fired = 0, badly = 0;

	for (uint64_t phase = 0; phase < 200 * MS; phase += 20 * MS) {
		struct config_rule *rule = add_rule("hot", METRIC_CPU, 2 * S);

		rule->trigger.percent = 97;
		rule->trigger.cooldown_ns = 60 * S;
		start();
		watch(1, "a");
		cpu(1, 18 * S + 7 * MS + MS / 2, 77);
		live_burst(phase, 2 * S, 26 * S);
		evaluator_visit(evaluator, take_burst, NULL);
		fired += firing_count;
		badly += firing_count == 0 && noted.badly_placed;
		ck_assert_msg(firing_count == 1 || (noted.length_ns > 1960 * MS && noted.length_ns < 2040 * MS),
			      "%ju ns", (uintmax_t)noted.length_ns);
		end();
		begin();
	}
	/* A step is a tenth of the window: one that misses more than three hundredths does not fire. */
	ck_assert_uint_ge(badly, 3);
	ck_assert_uint_ge(fired, 3);
	ck_assert_uint_eq(badly + fired, 10);
}
END_TEST

START_TEST(burst_that_fired_is_none_that_was_missed)
{
	struct config_rule *rule = add_rule("hot", METRIC_CPU, S);

	rule->trigger.percent = 80;
	rule->trigger.cooldown_ns = 60 * S;
	start();
	watch(1, "a");
	cpu(1, 18 * S + 7 * MS + MS / 2, 77);
	live_burst(330 * MS, 1100 * MS, 25 * S);
	evaluator_visit(evaluator, take_burst, NULL);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(noted.end.ns, 0);
}
END_TEST

/* 10 bytes of memory, but 2000 from up to down: that fires once, for the window that ends at fired. */
static const struct {
	enum metric metric;
	uint64_t for_ns, cooldown_ns, up_ns, down_ns, fired_ns;
} humps[] = {
	/* A level between two ends of windows fires. */
	{ METRIC_MEMORY_BYTES, 0, 60 * S, 12 * S + 290 * MS, 12 * S + 320 * MS, 12 * S + 300 * MS },
	/*
	 * A peak slides out a window after it slid in: 2000 lies in the windows that end from 12.3 to
	 * 13.2 s, in the peak but not in the level at their ends.
	 */
	{ METRIC_MEMORY_PEAK, 900 * MS, 0, 12 * S + 240 * MS, 12 * S + 250 * MS, 13 * S + 200 * MS },
};

START_TEST(memory_that_is_high_for_a_moment_fires_once)
{
	struct config_rule *rule = add_rule("big", humps[_i].metric, S);
	uint64_t up_ns = humps[_i].up_ns, down_ns = humps[_i].down_ns;

	rule->trigger.percent = 1000;
	rule->trigger.for_ns = humps[_i].for_ns;
	rule->trigger.cooldown_ns = humps[_i].cooldown_ns;
	start();
	watch(1, "a");
	memory(1, 10 * S, 10, 0);
	ticks(10 * S, up_ns - 10 * MS, 10 * MS);
	memory(1, up_ns, 2000, 0);
	ticks(up_ns, down_ns - 10 * MS, 10 * MS);
	memory(1, down_ns, 10, 0);
	ticks(down_ns, 15 * S, 10 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(firings[0].to.ns, humps[_i].fired_ns);
	ck_assert_double_eq(firings[0].value, 2000);
}
END_TEST

START_TEST(windows_are_counted_once_however_often_they_slide)
{
	struct config_rule *rule = add_rule("hot", METRIC_CPU, S);

	rule->trigger.percent = 80;
	rule->trigger.cooldown_ns = 60 * S;
	memset(&shown, 0, sizeof(shown));
	start();
	watch(1, "a");
	cpu(1, 18 * S + 7 * MS + MS / 2, 77);
	live_burst(450 * MS, 1100 * MS, 25 * S);
	evaluator_visit(evaluator, show, NULL);
	ck_assert_uint_eq(feed_judged(evaluator), 24 - 19);
	ck_assert_uint_eq(shown.fired, 1);
}
END_TEST

static TCase *sliding(void)
{
	TCase *tcase = tcase_create("sliding");

	tcase_add_checked_fixture(tcase, begin, end);
	tcase_add_loop_test(tcase, burst_as_long_as_the_window_fires_in_every_phase_and_a_shorter_one_in_none, 0,
			    ARRAY_LEN(bursts));
	tcase_add_test(tcase, burst_that_no_window_caught_is_known_with_its_length);
	tcase_add_test(tcase, burst_between_two_windows_is_known_as_badly_placed);
	tcase_add_test(tcase, burst_that_fired_is_none_that_was_missed);
	tcase_add_loop_test(tcase, memory_that_is_high_for_a_moment_fires_once, 0, ARRAY_LEN(humps));
	tcase_add_test(tcase, windows_are_counted_once_however_often_they_slide);
	return tcase;
}

/* ---- clocks of the writers ---- */

static struct config *clock_config;
static struct rule_plan clock_plan;
static struct writer_clocks clocks;

/* Window lengths of a clock_plan, in its order: 100 and 250 ms. */
static struct config *clock_config_of(const char *first, const char *second)
{
	return scene_config("{ \"targets\": [ { \"name\": \"a\", \"comm\": \"a\" } ], \"rules\": [\n"
			    "{ \"name\": \"r1\", \"metric\": \"cpu\", \"window\": \"%s\", \"percent\": 40 },\n"
			    "{ \"name\": \"r2\", \"metric\": \"cpu\", \"window\": \"%s\", \"percent\": 40 } ] }",
			    first, second);
}

static void begin_clocks(void)
{
	clock_config = clock_config_of("100ms", "250ms");
	ck_assert_int_eq(rule_plan_init(&clock_plan, clock_config), 0);
	ck_assert_uint_eq(clock_plan.length_count, 2);
	ck_assert_uint_eq(clock_plan.lengths_ns[0], 100 * NS_PER_MS);
	ck_assert_int_eq(writer_clocks_init(&clocks, &clock_plan), 0);
}

static void end_clocks(void)
{
	writer_clocks_release(&clocks);
	rule_plan_release(&clock_plan);
	config_free(clock_config);
}

static bool clock_step(uint32_t line, uint64_t at_ms)
{
	return writer_clocks_step(&clocks, &clock_plan, line, (mono_t){ at_ms * NS_PER_MS });
}

/* Whether a whole window of the plan's length g has ended since the last call. */
static bool ends_whole(uint32_t line, size_t g)
{
	uint64_t before;

	return writer_clocks_end(&clocks, &clock_plan, line, g, &before) &&
	       step_clock_of(&clocks, &clock_plan, line, g)->ended / STEPS != before / STEPS;
}

/* Which windows have ended since the last call, as bits; they are told once. */
static unsigned clock_ended(uint32_t line)
{
	unsigned which = ends_whole(line, 0);

	which |= (unsigned)ends_whole(line, 1) << 1;
	ck_assert(!ends_whole(line, 0) && !ends_whole(line, 1));
	return which;
}

/* Which windows end with a tick, as bits. */
static unsigned clock_ends(uint32_t line, uint64_t at_ms)
{
	ck_assert(clock_step(line, at_ms));
	return clock_ended(line);
}

/* Ticks of lines, and which windows end with them, as bits. */
static const struct {
	struct {
		uint32_t line;
		uint64_t at_ms;
		unsigned ends;
		bool back; /* the time went back */
	} ticks[8];
} clock_runs[] = {
	/* A window ends with the first tick at or after its end; several at once are one. */
	{ { { 0, 1010, .ends = 0 },
	    { 0, 1099, .ends = 0 },
	    { 0, 1100, .ends = 1 },
	    { 0, 1100, .ends = 0 },
	    { 0, 1199, .ends = 0 },
	    { 0, 1253, .ends = 3 },
	    { 0, 1900, .ends = 3 } } },
	/* The first tick ends what ends right then. */
	{ { { 0, 1000, .ends = 3 }, { 1, 1100, .ends = 1 }, { 2, 1101, .ends = 0 } } },
	/* Lines know nothing of each other: one that is behind another has not gone back. */
	{ { { 0, 1010, .ends = 0 },
	    { 15, 1020, .ends = 0 },
	    { 0, 1500, .ends = 3 },
	    { 15, 1030, .ends = 0 },
	    { 15, 1100, .ends = 1 },
	    { 0, 1510, .ends = 0 },
	    { 15, 1510, .ends = 3 } } },
	/* Time that goes back is said and begins anew; the last tick is right at the ends. */
	{ { { 3, 5010, .ends = 0 },
	    { 3, 1010, .ends = 0, .back = true },
	    { 3, 1050, .ends = 0 },
	    { 3, 1100, .ends = 1 },
	    { 3, 1000, .ends = 3, .back = true } } },
};

START_TEST(ticks_end_the_windows_of_their_line)
{
	for (size_t k = 0; k < ARRAY_LEN(clock_runs[_i].ticks) && clock_runs[_i].ticks[k].at_ms; k++) {
		uint32_t line = clock_runs[_i].ticks[k].line;

		ck_assert_int_eq(clock_step(line, clock_runs[_i].ticks[k].at_ms), !clock_runs[_i].ticks[k].back);
		ck_assert_uint_eq(clock_ended(line), clock_runs[_i].ticks[k].ends);
	}
}
END_TEST

START_TEST(writers_beyond_the_last_line_share_one)
{
	ck_assert_uint_eq(writer_clocks_of(0), 0);
	ck_assert_uint_eq(writer_clocks_of(WRITER_CLOCKS_MAX - 1), WRITER_CLOCKS_MAX - 1);
	ck_assert_uint_eq(writer_clocks_of(WRITER_CLOCKS_MAX + 2), 2);
	ck_assert_uint_lt(writer_clocks_of(UINT32_MAX), WRITER_CLOCKS_MAX);
}
END_TEST

/* The first length of the new clock_plan is new, the second was the first. */
START_TEST(lengths_that_stay_go_on_and_new_ones_begin_with_their_next_end)
{
	struct config *next_config = clock_config_of("40ms", "100ms");
	const size_t lengths[] = { SIZE_MAX, 0 };
	struct writer_clocks old = clocks;
	struct rule_plan old_plan = clock_plan;

	ck_assert_uint_eq(clock_ends(0, 1070), 0);
	ck_assert(clock_step(1, 1199) && clock_step(1, 1210)); /* its end has not been asked for */
	old = clocks;
	ck_assert_int_eq(rule_plan_init(&clock_plan, next_config), 0);
	ck_assert_int_eq(writer_clocks_init(&clocks, &clock_plan), 0);
	writer_clocks_inherit(&clocks, &clock_plan, &old, &old_plan, lengths);
	ck_assert_uint_eq(clock_ends(0, 1079), 0);
	ck_assert_uint_eq(clock_ends(0, 1080), 1);
	ck_assert_uint_eq(clock_ends(0, 1100), 2);
	ck_assert_uint_eq(clock_ends(1, 1211), 2);
	ck_assert(!clock_step(0, 900));
	ck_assert_uint_eq(clock_ends(7, 1000), 3); /* one that never ticked */
	writer_clocks_release(&old);
	rule_plan_release(&old_plan);
	config_free(next_config);
}
END_TEST

START_TEST(clocks_without_memory_are_an_error)
{
	struct writer_clocks other = { 0 };

	torture_arm(1);
	ck_assert_int_eq(writer_clocks_init(&other, &clock_plan), -ENOMEM);
	ck_assert(torture_disarm());
	writer_clocks_release(&other);
	ck_assert_int_eq(writer_clocks_init(&other, &(struct rule_plan){ 0 }), 0); /* without rules */
	ck_assert(writer_clocks_step(&other, &(struct rule_plan){ 0 }, 0, (mono_t){ 1 }));
	writer_clocks_release(&other);
}
END_TEST

/* ---- the shipped rules on a service: 40 minutes in steps of 100 ms ---- */

#define MINUTE_TENTHS 600
#define STORY_TENTHS (40 * MINUTE_TENTHS)

/* What a service does in a step. */
struct service_step {
	double cores, throttled, waits; /* shares: of a core, of its CPU periods, of the time for memory */
	uint64_t memory_bytes;
};

#define QUIET ((struct service_step){ .cores = 0.02, .memory_bytes = 50u << 20 })

/* How often a rule of the shipped configuration fires. */
static unsigned shipped_fires(const char *rule, const char *entry, struct service_step (*does)(unsigned tenth))
{
	char message[CONFIG_FILE_MESSAGE_MAX];
	struct config *shipped;
	struct target target = make_target(1, "web.service");
	struct sample sample = { 0 };
	double cpu_ns = 0, stopped = 0, waited_ns = 0;
	unsigned count = 0;

	begin();
	ck_assert_msg(config_file_load(&(struct config_file){ .path = "conf/spikewatch.json" }, &shipped, message) == 0,
		      "%s", message);
	config = *shipped;
	start();
	target.kind = strcmp(entry, "processes") == 0 ? TARGET_PROCESS : TARGET_CGROUP;
	target.entry = entry;
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
	for (unsigned tenth = 0; tenth < STORY_TENTHS; tenth++) {
		struct service_step step = does(tenth);
		mono_t now = { 1000 * S + tenth * 100 * MS };

		cpu_ns += step.cores * 100 * MS;
		stopped += step.throttled;
		waited_ns += step.waits * 100 * MS;
		sample_set(&sample, SAMPLE_CPU, (uint64_t)cpu_ns);
		sample_set(&sample, SAMPLE_PERIODS, tenth);
		sample_set(&sample, SAMPLE_THROTTLED_PERIODS, (uint64_t)stopped);
		sample_set(&sample, SAMPLE_MEMORY_PRESSURE, (uint64_t)waited_ns);
		sample_set(&sample, SAMPLE_MEMORY, step.memory_bytes);
		sample_set(&sample, SAMPLE_MEMORY_LIMIT, (uint64_t)8 << 30);
		sample_set(&sample, SAMPLE_CPU_LIMIT, 4 * S);
		feed_sample(evaluator, 1, now, &sample);
		feed_tick(evaluator, now, (wall_t){ now.ns + WALL_AHEAD });
	}
	for (size_t i = 0; i < firing_count; i++)
		count += strcmp(firings[i].rule, rule) == 0;
	end();
	config_free(shipped);
	return count;
}

/* For ten seconds, after 35 minutes. */
static bool at_last(unsigned tenth)
{
	return tenth >= 35 * MINUTE_TENTHS && tenth < 35 * MINUTE_TENTHS + 100;
}

static bool for_five_seconds(unsigned tenth)
{
	return tenth >= 35 * MINUTE_TENTHS && tenth < 35 * MINUTE_TENTHS + 50;
}

/* For ten seconds of every five minutes. */
static bool again_and_again(unsigned tenth)
{
	return tenth % (5 * MINUTE_TENTHS) < 100;
}

#define STEP(name, when, member, much) \
	static struct service_step name(__attribute__((unused)) unsigned tenth) \
	{ \
		struct service_step step = QUIET; \
\
		if (when) \
			step.member = much; \
		return step; \
	}

STEP(loops_once, at_last(tenth), cores, 1)
STEP(loops_for_five_seconds, for_five_seconds(tenth), cores, 1)
STEP(loops_again, again_and_again(tenth), cores, 1)
STEP(is_always_busy, true, cores, 0.95 + (double)(tenth % 7) / 100)
STEP(grows_once, at_last(tenth), memory_bytes, 550u << 20)
STEP(grows_again, again_and_again(tenth), memory_bytes, 550u << 20)
STEP(is_near_its_limit, at_last(tenth), memory_bytes, ((uint64_t)15 << 30) / 2)
STEP(is_stopped_once, at_last(tenth), throttled, 0.7)
STEP(is_always_stopped, true, throttled, 0.7)
STEP(waits_once, at_last(tenth), waits, 0.3)

static const struct {
	const char *rule, *entry;
	struct service_step (*does)(unsigned tenth);
	unsigned fires;
} stories[] = {
	/* What is unlike anything of the last half hour is caught ... */
	{ "cpu-unusual", "services", loops_once, 1 },
	{ "cpu-unusual", "services", loops_for_five_seconds, 1 },
	{ "cpu-unusual", "containers", loops_for_five_seconds, 1 },
	{ "cpu-unusual", "scopes", loops_for_five_seconds, 1 },
	{ "cpu-unusual", "processes", loops_for_five_seconds, 1 },
	{ "memory-step", "services", grows_once, 1 },
	{ "memory-step", "processes", grows_once, 1 },
	{ "memory-limit", "services", is_near_its_limit, 1 },
	{ "throttled", "services", is_stopped_once, 1 },
	{ "memory-pressure", "services", waits_once, 1 },
	/* ... and what it always does is not, or once. */
	{ "cpu-unusual", "services", loops_again, 0 },
	{ "cpu-core", "services", loops_again, 1 },
	{ "cpu-core", "services", loops_for_five_seconds, 0 },
	{ "cpu-unusual", "services", is_always_busy, 0 },
	{ "cpu-core", "services", is_always_busy, 1 },
	{ "memory-step", "services", grows_again, 0 },
	{ "throttled", "services", is_always_stopped, 0 },
	{ "cpu-process", "services", is_always_busy, 0 },
	{ "cpu-process", "processes", is_always_busy, 1 },
};

START_TEST(shipped_rules_catch_what_is_unusual_and_nothing_else)
{
	ck_assert_uint_eq(shipped_fires(stories[_i].rule, stories[_i].entry, stories[_i].does), stories[_i].fires);
}
END_TEST

static TCase *shipped(void)
{
	TCase *tcase = tcase_create("shipped");

	tcase_add_loop_test(tcase, shipped_rules_catch_what_is_unusual_and_nothing_else, 0, ARRAY_LEN(stories));
	return tcase;
}

static TCase *clocks_case(void)
{
	TCase *tcase = tcase_create("clocks");

	tcase_add_checked_fixture(tcase, begin_clocks, end_clocks);
	tcase_add_loop_test(tcase, ticks_end_the_windows_of_their_line, 0, ARRAY_LEN(clock_runs));
	tcase_add_test(tcase, writers_beyond_the_last_line_share_one);
	tcase_add_test(tcase, lengths_that_stay_go_on_and_new_ones_begin_with_their_next_end);
	tcase_add_test(tcase, clocks_without_memory_are_an_error);
	return tcase;
}

Suite *evaluator_suite(void)
{
	Suite *suite = suite_create("evaluator");

	suite_add_tcase(suite, pairs());
	suite_add_tcase(suite, writers());
	suite_add_tcase(suite, windows());
	suite_add_tcase(suite, sliding());
	suite_add_tcase(suite, clocks_case());
	suite_add_tcase(suite, shipped());
	return suite;
}
