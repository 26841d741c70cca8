/*
 * check_rule_replay.c: what an evaluator decides, it decides again when what it saw is replayed out
 * of the ring; and what is said of the rest.
 */
#include "evaluator_feed.h"
#include "replay_rig.h"
#include "torture.h"

#include <errno.h>

Suite *rule_replay_suite(void);

static struct config *config;

static void setup(void)
{
	config = rig_config();
	rig_real.count = rig_replayed.count = 0;
	rig_seed = 1;
}

static void teardown(void)
{
	config_free(config);
}

struct world {
	struct ring *ring;
	struct ring_writer *writer;
	struct evaluator *evaluator;
	struct ring_track tracks[RIG_TARGETS + 4];
	char descriptions[RIG_TARGETS + 4][TARGET_ENCODED_MAX];
	struct sample samples[RIG_TARGETS + 4];
	size_t first, count; /* targets that live */
};

static void appear(struct world *world, size_t i)
{
	struct target target = rig_target((uint32_t)i + 1);

	world->tracks[i] = (struct ring_track){ .id = target.id, .description = world->descriptions[i] };
	world->tracks[i].description_len =
		(uint32_t)target_encode(&target, world->descriptions[i], sizeof(world->descriptions[i]));
	world->samples[i] = (struct sample){ 0 };
	ck_assert_int_eq(feed_target(world->evaluator, &target), 0);
}

/* One tick: the ring and the evaluator are told the same. */
static void live(struct world *world, mono_t now, uint64_t passed_ns)
{
	wall_t wall = { now.ns + RIG_WALL_AHEAD };

	ck_assert_int_eq(ring_tick_begin(world->writer, now, wall, 0), 0);
	for (size_t i = world->first; i < world->first + world->count; i++) {
		mono_t at = mono_add(now, rig_random(50000));

		rig_live(&world->samples[i], i == 0, passed_ns);
		if (ring_put_sample(world->writer, &world->tracks[i], at, &world->samples[i]) == 0)
			feed_sample(world->evaluator, world->tracks[i].id, at, &world->samples[i]);
	}
	ring_tick_end(world->writer, NULL);
	ck_assert_int_eq(feed_tick(world->evaluator, now, wall), 0);
}

/* The first one ends, another comes. */
static void change(struct world *world, mono_t now)
{
	ck_assert_int_eq(ring_tick_begin(world->writer, now, (wall_t){ now.ns + RIG_WALL_AHEAD }, 0), 0);
	ring_put_gone(world->writer, &world->tracks[world->first], now, RING_GONE_EXITED);
	ring_tick_end(world->writer, NULL);
	feed_gone(world->evaluator, world->tracks[world->first].id);
	feed_tick(world->evaluator, now, (wall_t){ now.ns + RIG_WALL_AHEAD });
	world->first++;
	appear(world, world->first + world->count - 1);
}

static struct ring *live_for(unsigned ticks)
{
	static struct world world;
	const struct ring_options options = { .size_bytes = 32u << 20, .interval_ns = RIG_INTERVAL };
	mono_t now = { 77 * NS_PER_S + 3333333 };

	world = (struct world){ .evaluator = rig_evaluator(config), .count = RIG_TARGETS };
	ck_assert_int_eq(ring_create_anonymous(&options, &world.ring), 0);
	ck_assert_int_eq(ring_writer_new(world.ring, &world.writer), 0);
	for (size_t i = 0; i < RIG_TARGETS; i++)
		appear(&world, i);
	for (unsigned tick = 0; tick < ticks; tick++) {
		/* Late now and then, stalled once in a while. */
		uint64_t passed =
			RIG_INTERVAL + rig_random(3) * NS_PER_MS + (rig_random(100) == 0) * rig_random(NS_PER_S);

		now = mono_add(now, passed);
		if (tick > 0 && tick % (ticks / 4) == 0)
			change(&world, now);
		else
			live(&world, now, passed);
	}
	ring_writer_free(world.writer);
	evaluator_free(world.evaluator);

	return world.ring;
}

START_TEST(a_replay_of_the_ring_decides_as_was_decided)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		struct rule_replay *rule_replay = rig_rule_replay(config);
		struct recording_options options = rig_tape(rule_replay);
		struct recording_summary summary;

		rig_real.count = rig_replayed.count = 0;
		rig_seed = seed;
		struct ring *ring = live_for(1000);

		ck_assert_int_eq(recording_play_ring(ring, &options, &summary), 0);
		ck_assert_uint_eq(summary.ticks, 1000);
		ck_assert_uint_eq(summary.gone, 3);
		rig_expect_same();
		ring_free(ring);
		rule_replay_free(rule_replay);
	}
}
END_TEST

START_TEST(every_kind_of_rule_fires_in_that_world)
{
	struct rule_replay *rule_replay = rig_rule_replay(config);
	struct recording_options options = rig_tape(rule_replay);
	struct recording_summary summary;
	struct ring *ring = live_for(4000);

	ck_assert_int_eq(recording_play_ring(ring, &options, &summary), 0);
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct rule_replay_rule *row = &rule_replay_rules(rule_replay)[i];
		uint64_t windows = 0;
		char text[200];

		ck_assert_msg(row->fired > 0, "%s", row->rule->name);
		ck_assert_uint_gt(rule_replay_held_back(row), 0);
		for (unsigned reason = 0; reason < TRIGGER_REASONS; reason++)
			windows += row->reasons[reason];
		ck_assert_uint_eq(windows, row->windows);
		ck_assert_uint_eq(row->fired,
				  row->reasons[TRIGGER_ABOVE_PERCENT] + row->reasons[TRIGGER_ABOVE_AVERAGE]);
		ck_assert(!rule_replay_obstacle(row, text, sizeof(text)));
		ck_assert(row->miss.known && row->miss.distance >= 0);
	}
	ring_free(ring);
	rule_replay_free(rule_replay);
}
END_TEST

/* ---- single targets ---- */

static struct rule_replay *rule_replay;

static void tell(enum ring_event_type type, uint64_t at_ns, const struct sample *sample)
{
	struct ring_event event = { .type = type, .time = { at_ns }, .wall = { at_ns + RIG_WALL_AHEAD }, .id = 1 };

	event.sample = sample;
	if (type == RING_EVENT_TARGET)
		event.target = rig_target(1);
	ck_assert_int_eq(rule_replay_event(rule_replay, &event), 0);
}

static void tick(uint64_t at_ns, const struct sample *sample)
{
	tell(RING_EVENT_TICK, at_ns, NULL);
	tell(RING_EVENT_SAMPLE, at_ns, sample);
	tell(RING_EVENT_TICK_END, at_ns, NULL);
}

static const struct rule_replay_rule *row(const char *name)
{
	for (size_t i = 0; i < config->rule_count; i++)
		if (strcmp(config->rules[i].name, name) == 0)
			return &rule_replay_rules(rule_replay)[i];
	ck_abort_msg("no rule %s", name);
}

static const char *obstacle(const char *name)
{
	static char text[200];

	return rule_replay_obstacle(row(name), text, sizeof(text)) ? text : "none";
}

START_TEST(says_why_a_rule_could_not_be_judged)
{
	struct sample sample = { 0 };

	rule_replay = rig_rule_replay(config);
	ck_assert_str_eq(obstacle("core"), "there is no target that it names");
	tell(RING_EVENT_TARGET, 0, NULL);
	ck_assert_str_eq(obstacle("core"), "no whole window of 50 ms was recorded");
	for (uint64_t at = 10; at < 30; at++) {
		sample_set(&sample, SAMPLE_CPU, at * 1000000);
		tick(at * 100 * NS_PER_MS, &sample);
	}
	ck_assert_str_eq(obstacle("above"), "threads is not recorded");
	ck_assert_str_eq(obstacle("delta"), "memory is not recorded");
	ck_assert_str_eq(obstacle("core"), "none");
	rule_replay_free(rule_replay);
}
END_TEST

START_TEST(a_recording_shorter_than_the_warm_up_judges_nothing)
{
	struct sample sample = { 0 };

	rule_replay = rig_rule_replay(config);
	tell(RING_EVENT_TARGET, 0, NULL);
	sample_set(&sample, SAMPLE_MEMORY, 1 << 20);
	for (uint64_t at = 100; at <= 141; at++)
		tick(at * RIG_INTERVAL, &sample);
	ck_assert_str_eq(obstacle("delta"), "the recording is shorter than its warm-up, 2 windows of 130 ms");
	rule_replay_free(rule_replay);
}
END_TEST

START_TEST(a_limit_that_is_not_recorded_is_said)
{
	struct sample sample = { 0 };
	char text[200];

	rule_replay = rig_rule_replay(config);
	tell(RING_EVENT_TARGET, 0, NULL);
	for (uint64_t at = 100; at <= 130; at++) {
		sample_set(&sample, SAMPLE_CPU, at);
		if (at > 120)
			sample_set(&sample, SAMPLE_CPU_LIMIT, NS_PER_S);
		tick(at * RIG_INTERVAL, &sample);
	}
	ck_assert(rule_replay_remark(row("percent"), text, sizeof(text)));
	ck_assert_msg(strstr(text, "2 of its 3 windows"), "%s", text);
	ck_assert(!rule_replay_remark(row("core"), text, sizeof(text)));
	rule_replay_free(rule_replay);
}
END_TEST

START_TEST(keeps_the_nearest_miss)
{
	static const uint64_t used_ms[] = { 10, 70, 75, 60, 90, 30 }; /* of 200 in a window, of which 80 are 40 % */
	struct sample sample = { 0 };

	rule_replay = rig_rule_replay(config);
	tell(RING_EVENT_TARGET, 0, NULL);
	sample_set(&sample, SAMPLE_CPU, 0);
	sample_set(&sample, SAMPLE_CPU_LIMIT, 2 * NS_PER_S);
	tick(1000 * NS_PER_MS, &sample);
	for (size_t i = 0; i < 6; i++) {
		sample.value[SAMPLE_CPU] += used_ms[i] * NS_PER_MS;
		tick((1100 + 100 * i) * NS_PER_MS, &sample);
	}
	const struct rule_replay_rule *percent = row("percent");

	ck_assert_uint_eq(percent->fired, 1); /* 90 ms of 200 */
	ck_assert(percent->first_known && percent->first.ns == 1500 * NS_PER_MS + RIG_WALL_AHEAD);
	ck_assert_double_eq_tol(percent->miss.value, 37.5, 1e-9);
	ck_assert_double_eq_tol(percent->miss.distance, 2.5, 1e-9);
	ck_assert_uint_eq(percent->miss.wall.ns, 1300 * NS_PER_MS + RIG_WALL_AHEAD);
	ck_assert_str_eq(percent->miss.target, "one");
	rule_replay_free(rule_replay);
}
END_TEST

START_TEST(another_recording_begins_with_nothing)
{
	struct sample sample = { 0 };

	rule_replay = rig_rule_replay(config);
	for (unsigned again = 0; again < 2; again++) {
		tell(RING_EVENT_TARGET, 0, NULL);
		for (uint64_t at = 0; at <= 2; at++) {
			sample_set(&sample, SAMPLE_CPU, at * 100 * NS_PER_MS);
			sample_set(&sample, SAMPLE_CPU_LIMIT, 2 * NS_PER_S);
			tick((1000 + 100 * at) * NS_PER_MS, &sample);
		}
		ck_assert_uint_eq(row("percent")->fired, again + 1); /* the cooldown of the first one is forgotten */
		ck_assert_int_eq(rule_replay_again(rule_replay, &rig_machine), 0);
	}
	rule_replay_free(rule_replay);
}
END_TEST

START_TEST(memory_that_runs_out_is_an_error)
{
	const struct rule_replay_options options = { .config = config, .machine = rig_machine };
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct ring_event event = { .type = RING_EVENT_TARGET, .id = 1, .target = rig_target(1) };
		struct rule_replay *one = NULL;

		torture_arm(n);
		int r = rule_replay_new(&options, &one);

		r = r == 0 ? rule_replay_event(one, &event) : r;
		r = r == 0 ? rule_replay_again(one, &rig_machine) : r;
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		rule_replay_free(one);
	}
}
END_TEST

Suite *rule_replay_suite(void)
{
	Suite *suite = suite_create("rule_replay");
	TCase *equal = tcase_create("equal"), *single = tcase_create("single");

	tcase_add_checked_fixture(equal, setup, teardown);
	tcase_add_test(equal, a_replay_of_the_ring_decides_as_was_decided);
	tcase_add_test(equal, every_kind_of_rule_fires_in_that_world);
	suite_add_tcase(suite, equal);
	tcase_add_checked_fixture(single, setup, teardown);
	tcase_add_test(single, says_why_a_rule_could_not_be_judged);
	tcase_add_test(single, a_recording_shorter_than_the_warm_up_judges_nothing);
	tcase_add_test(single, a_limit_that_is_not_recorded_is_said);
	tcase_add_test(single, keeps_the_nearest_miss);
	tcase_add_test(single, another_recording_begins_with_nothing);
	tcase_add_test(single, memory_that_runs_out_is_an_error);
	suite_add_tcase(suite, single);

	return suite;
}
