/*
 * check_rule_replay.c: what an evaluator decides, it decides again when what it saw is replayed from
 * the ring; rules that could not be judged; entries of recorded targets; suggested thresholds; the
 * output. White box of replay.c.
 */
#include "evaluator_feed.h"
#include "replay_rig.h"
#include "torture.h"

#include <errno.h>
#include <unistd.h>

#include "cli/replay/replay.c"

Suite *rule_replay_suite(void);

static struct replay_rig rig;

static struct config *config;

static struct rule_replay *new_rule_replay(void)
{
	const struct rule_replay_options options = {
		.config = config, .machine = rig_machine, .fire = rig_fire, .ctx = &rig.replayed
	};
	struct rule_replay *made;

	ck_assert_int_eq(rule_replay_new(&options, &made), 0);
	return made;
}

static int replay_event(void *ctx, const struct ring_event *event)
{
	return rule_replay_event(ctx, event);
}

/* Plays a ring, which is freed. */
static void play_ring(struct ring *ring, struct rule_replay *rule_replay, struct recording_summary *ret)
{
	AUTO(replay_source_close) struct replay_source source = { .fd = -1, .ring = ring };
	struct recording_options options = rig_tape(NULL);

	options.event = replay_event;
	options.ctx = rule_replay;
	ck_assert_int_eq(replay_source_play(&source, &options, NULL, ret), 0);
}

static void setup(void)
{
	config = rig_config();
	rig.real.count = rig.replayed.count = 0;
	rig.seed = 1;
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
		mono_t at = mono_add(now, rig_random(&rig, 50000));

		rig_live(&rig, &world->samples[i], i == 0, passed_ns);
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

	world = (struct world){ .evaluator = rig_evaluator(&rig, config), .count = RIG_TARGETS };
	ck_assert_int_eq(ring_create_anonymous(&options, &world.ring), 0);
	ck_assert_int_eq(ring_writer_new(world.ring, &world.writer), 0);
	for (size_t i = 0; i < RIG_TARGETS; i++)
		appear(&world, i);
	for (unsigned tick = 0; tick < ticks; tick++) {
		/* Late now and then, stalled once in a while. */
		uint64_t passed = RIG_INTERVAL + rig_random(&rig, 3) * NS_PER_MS +
				  (rig_random(&rig, 100) == 0) * rig_random(&rig, NS_PER_S);

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
		struct rule_replay *rule_replay = new_rule_replay();
		struct recording_summary summary;

		rig.real.count = rig.replayed.count = 0;
		rig.seed = seed;
		struct ring *ring = live_for(1000);

		play_ring(ring, rule_replay, &summary);
		ck_assert_uint_eq(summary.ticks, 1000);
		ck_assert_uint_eq(summary.gone, 3);
		rig_expect_same(&rig);
		rule_replay_free(rule_replay);
	}
}
END_TEST

START_TEST(every_kind_of_rule_fires_in_that_world)
{
	struct rule_replay *rule_replay = new_rule_replay();
	struct recording_summary summary;
	struct ring *ring = live_for(4000);

	play_ring(ring, rule_replay, &summary);
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct rule_replay_rule *row = &rule_replay->rules[i];
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
	rule_replay_free(rule_replay);
}
END_TEST

/* ---- single targets ---- */

static struct rule_replay *one_replay;

static void tell(enum ring_event_type type, uint64_t at_ns, const struct sample *sample)
{
	struct ring_event event = { .type = type, .time = { at_ns }, .wall = { at_ns + RIG_WALL_AHEAD }, .id = 1 };

	event.sample = sample;
	if (type == RING_EVENT_TARGET)
		event.target = rig_target(1);
	ck_assert_int_eq(rule_replay_event(one_replay, &event), 0);
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
			return &one_replay->rules[i];
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

	one_replay = new_rule_replay();
	ck_assert_str_eq(obstacle("core"), "no target of this rule was recorded");
	tell(RING_EVENT_TARGET, 0, NULL);
	ck_assert_str_eq(obstacle("core"), "no whole window of 50 ms was recorded");
	for (uint64_t at = 10; at < 30; at++) {
		sample_set(&sample, SAMPLE_CPU, at * 1000000);
		tick(at * 100 * NS_PER_MS, &sample);
	}
	ck_assert_str_eq(obstacle("above"), "threads is not recorded");
	ck_assert_str_eq(obstacle("delta"), "memory is not recorded");
	ck_assert_str_eq(obstacle("core"), "none");
	rule_replay_free(one_replay);
}
END_TEST

START_TEST(a_recording_shorter_than_the_warm_up_judges_nothing)
{
	struct sample sample = { 0 };

	one_replay = new_rule_replay();
	tell(RING_EVENT_TARGET, 0, NULL);
	sample_set(&sample, SAMPLE_MEMORY, 1 << 20);
	for (uint64_t at = 100; at <= 141; at++)
		tick(at * RIG_INTERVAL, &sample);
	ck_assert_str_eq(obstacle("delta"), "the recording is shorter than its warm-up, 2 windows of 130 ms");
	rule_replay_free(one_replay);
}
END_TEST

START_TEST(a_limit_that_is_not_recorded_is_reported)
{
	struct sample sample = { 0 };
	char text[200];

	one_replay = new_rule_replay();
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
	rule_replay_free(one_replay);
}
END_TEST

/* Windows of 130 ms, and as many in the average as by default. */
START_TEST(an_average_over_less_than_the_rules_history_is_reported)
{
	const struct config_rule *rule;
	struct sample sample = { 0 };
	char text[200];
	uint64_t at = 100;

	one_replay = new_rule_replay();
	rule = row("delta")->rule;
	tell(RING_EVENT_TARGET, 0, NULL);
	for (; (at - 100) * RIG_INTERVAL < rule->trigger.history * rule->window_ns; at++) {
		sample_set(&sample, SAMPLE_MEMORY, at << 12);
		tick(at * RIG_INTERVAL, &sample);
	}
	ck_assert_str_eq(obstacle("delta"), "none");
	ck_assert(rule_replay_remark(row("delta"), text, sizeof(text)));
	ck_assert_msg(strstr(text, "its average is over up to ") && strstr(text, "no recording has more than "), "%s",
		      text);

	/* Another recording does not make it longer. */
	ck_assert_int_eq(rule_replay_again(one_replay, &rig_machine), 0);
	tell(RING_EVENT_TARGET, 0, NULL);
	tick(at * 1000 * RIG_INTERVAL, &sample);
	ck_assert(rule_replay_remark(row("delta"), text, sizeof(text)));
	for (uint64_t end = at * 1000 + (rule->trigger.history + 1) * rule->window_ns / RIG_INTERVAL + 1,
		      now = at * 1000;
	     now <= end; now++)
		tick(now * RIG_INTERVAL, &sample);
	ck_assert(!rule_replay_remark(row("delta"), text, sizeof(text)));
	rule_replay_free(one_replay);
}
END_TEST

START_TEST(keeps_the_nearest_miss)
{
	static const uint64_t used_ms[] = { 10, 70, 75, 60, 90, 30 }; /* of 200 in a window, of which 80 are 40 % */
	struct sample sample = { 0 };

	one_replay = new_rule_replay();
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
	rule_replay_free(one_replay);
}
END_TEST

START_TEST(another_recording_begins_with_nothing)
{
	struct sample sample = { 0 };

	one_replay = new_rule_replay();
	for (unsigned again = 0; again < 2; again++) {
		tell(RING_EVENT_TARGET, 0, NULL);
		for (uint64_t at = 0; at <= 2; at++) {
			sample_set(&sample, SAMPLE_CPU, at * 100 * NS_PER_MS);
			sample_set(&sample, SAMPLE_CPU_LIMIT, 2 * NS_PER_S);
			tick((1000 + 100 * at) * NS_PER_MS, &sample);
		}
		ck_assert_uint_eq(row("percent")->fired, again + 1); /* the cooldown of the first one is forgotten */
		ck_assert_int_eq(rule_replay_again(one_replay, &rig_machine), 0);
	}
	rule_replay_free(one_replay);
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

/* ---- entries of recorded targets ---- */

static void setup_entries(void)
{
	config = scene_config(
		"{ \"targets\": [ { \"name\": \"pid\", \"pid\": 77 }, { \"name\": \"web\", \"comm\": \"nginx\" },\n"
		"{ \"name\": \"jobs\", \"cmdline\": \"^python.* job\" }, { \"name\": \"all\", \"exe\": \"/bin/x\", "
		"\"per\": \"group\" },\n"
		"{ \"name\": \"services\", \"cgroup\": \"/system.slice/*.service\" },\n"
		"{ \"name\": \"shop\", \"containers\": \"shop-*\" } ] }");
}

static const char *entry(const char *as, const struct target *target)
{
	static char name[80];
	struct entry_assignment *entry_assignment;

	ck_assert_int_eq(entry_assignment_new(config, as, &entry_assignment), 0);
	snprintf(name, sizeof(name), "%s", entry_assignment_entry(entry_assignment, target));
	entry_assignment_free(entry_assignment);

	return name;
}

static struct target process(void)
{
	return (struct target){ .kind = TARGET_PROCESS,
				.pid = 5,
				.entry = "another",
				.name = "",
				.key = "",
				.comm = "",
				.cmdline = "",
				.cgroup = "/" };
}

START_TEST(an_entry_of_the_same_name_is_the_one)
{
	struct target target = process();

	target.comm = "nginx";
	target.entry = "all";
	ck_assert_str_eq(entry("jobs", &target), "all");
	target.kind = TARGET_GROUP;
	ck_assert_str_eq(entry(NULL, &target), "all");
}
END_TEST

START_TEST(a_container_is_selected_by_its_name)
{
	struct target target = process();

	target.kind = TARGET_CGROUP;
	target.cgroup = "/docker/a329033bf642";
	target.container = "docker\ta329033bf642\tshop-web";
	ck_assert_str_eq(entry("jobs", &target), "shop");
	target.container = "docker\ta329033bf642\tother";
	ck_assert_str_eq(entry("jobs", &target), "jobs");
	target.container = "";
	ck_assert_str_eq(entry("jobs", &target), "jobs");
}
END_TEST

START_TEST(else_the_first_entry_that_selects_it)
{
	struct target target = process();

	target.comm = "nginx";
	ck_assert_str_eq(entry("jobs", &target), "web");
	target.comm = "python3";
	target.cmdline = "python3 my job.py";
	ck_assert_str_eq(entry(NULL, &target), "jobs");
	target.pid = 77;
	ck_assert_str_eq(entry(NULL, &target), "pid");
}
END_TEST

START_TEST(a_cgroup_is_selected_by_its_path)
{
	struct target target = process();

	target.kind = TARGET_CGROUP;
	target.cgroup = "/system.slice/a.service";
	ck_assert_str_eq(entry(NULL, &target), "services");
	target.cgroup = "/user.slice/a.service";
	ck_assert_str_eq(entry(NULL, &target), "another");
}
END_TEST

START_TEST(what_is_outside_is_no_process_of_an_entry_before)
{
	struct config *dropped =
		scene_config("{\"targets\": [{\"name\": \"services\", \"unit\": \"*.service\"},"
			     "{\"name\": \"others\", \"cgroup\": \"/**\", \"per\": \"process\", \"outside\": true}]}");
	struct entry_assignment *entry_assignment = NULL;
	struct target target = process();

	ck_assert_int_eq(entry_assignment_new(dropped, NULL, &entry_assignment), 0);
	target.cgroup = "/elsewhere";
	ck_assert_str_eq(entry_assignment_entry(entry_assignment, &target), "others");
	target.cgroup = "/system.slice/a.service/below";
	ck_assert_str_eq(entry_assignment_entry(entry_assignment, &target), target.entry);
	entry_assignment_free(entry_assignment);
	config_free(dropped);
}
END_TEST

START_TEST(else_the_entry_of_the_option)
{
	struct target target = process();

	ck_assert_str_eq(entry(NULL, &target), "another");
	ck_assert_str_eq(entry("jobs", &target), "jobs");
	target.kind = TARGET_GROUP;
	target.comm = "nginx";
	ck_assert_str_eq(entry("jobs", &target), "jobs");
}
END_TEST

START_TEST(memory_that_runs_out_assigns_no_entry)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		struct entry_assignment *entry_assignment = NULL;

		torture_arm(n);
		int r = entry_assignment_new(config, NULL, &entry_assignment);

		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		entry_assignment_free(entry_assignment);
	}
}
END_TEST

/* ---- suggested thresholds ---- */

static struct suggestion *collecting;
static uint64_t fired;

/* The rule of the test: memory_bytes, in windows of 100 ms. */
static void configure(const char *rest)
{
	config = scene_config(
		"{ \"targets\": [ { \"name\": \"a\", \"comm\": \"a\" }, { \"name\": \"b\", \"comm\": \"b\" } ], "
		"\"rules\": [ { \"name\": \"big\", \"metric\": \"threads\", \"window\": \"100ms\", "
		"\"above\": 1, \"warmup\": 0, %s } ] }",
		rest);
	collecting = NULL;
	rig.seed = 1;
	fired = 0;
}

static void release_suggestion(void)
{
	suggestion_free(collecting);
	config_free(config);
}

static void suggest_window(void *ctx, const struct evaluator_firing *window)
{
	(void)ctx;
	if (collecting)
		ck_assert_int_eq(suggestion_add(collecting, 0, window), 0);
}

static int count_firing(void *ctx, const struct evaluator_firing *firing)
{
	(void)ctx;
	(void)firing;
	fired++;
	return 0;
}

/* Three targets whose threads change; the same for the same seed. How often the rule fired. */
static uint64_t live_threads(unsigned windows, uint64_t seed)
{
	const struct rule_replay_options options = {
		.config = config, .machine = rig_machine, .fire = count_firing, .witness = suggest_window
	};
	struct ring_event event = { .type = RING_EVENT_TARGET };
	struct rule_replay *rule_replay;
	struct sample samples[3] = { { 0 } };

	fired = 0;
	rig.seed = seed;
	ck_assert_int_eq(rule_replay_new(&options, &rule_replay), 0);
	for (uint32_t id = 1; id <= 3; id++) {
		event.target = rig_target(id);
		ck_assert_int_eq(rule_replay_event(rule_replay, &event), 0);
	}
	for (unsigned window = 0; window <= windows; window++) {
		event = (struct ring_event){ .type = RING_EVENT_TICK, .time = { (1000 + 100 * window) * NS_PER_MS } };
		ck_assert_int_eq(rule_replay_event(rule_replay, &event), 0);
		event.type = RING_EVENT_SAMPLE;
		for (uint32_t id = 1; id <= 3; id++) {
			uint64_t threads = 5 + rig_random(&rig, 40);

			if (rig_random(&rig, 3) == 0)
				sample_set(&samples[id - 1], SAMPLE_THREADS, threads * threads);
			event.id = id;
			event.sample = &samples[id - 1];
			ck_assert_int_eq(rule_replay_event(rule_replay, &event), 0);
		}
		event.type = RING_EVENT_TICK_END;
		ck_assert_int_eq(rule_replay_event(rule_replay, &event), 0);
	}
	rule_replay_free(rule_replay);

	return fired;
}

/* What is proposed for so many firings fires at most so often, and what is lower more often. */
static void check_answers(const char *rest)
{
	struct suggestion_answer answer;

	configure(rest);
	ck_assert_int_eq(suggestion_new(&config->rules[0], &collecting), 0);
	live_threads(400, 7);

	struct suggestion *kept = TAKE(collecting);

	for (uint64_t wanted = 0; wanted < 60; wanted += 1 + wanted / 4) {
		suggestion_answer(kept, wanted, &answer);
		ck_assert(answer.known);
		config->rules[0].trigger.percent = answer.threshold;
		uint64_t really = live_threads(400, 7);

		ck_assert_msg(really == answer.firings && really <= wanted,
			      "%s: %ju wanted, %ju foretold, %ju fired at %g", rest, (uintmax_t)wanted,
			      (uintmax_t)answer.firings, (uintmax_t)really, answer.threshold);
		/* A lower one that makes a difference fires too often. */
		while (really == answer.firings && config->rules[0].trigger.percent > 0) {
			config->rules[0].trigger.percent = config->rules[0].trigger.percent * 0.9 - 0.1;
			really = live_threads(400, 7);
		}
		ck_assert_msg(really > wanted || config->rules[0].trigger.percent <= 0, "%s: %ju wanted, %ju at %g",
			      rest, (uintmax_t)wanted, (uintmax_t)really, config->rules[0].trigger.percent);
	}
	suggestion_free(kept);
	release_suggestion();
}

START_TEST(a_threshold_fires_as_often_as_predicted)
{
	check_answers("\"cooldown\": \"0s\"");
	check_answers("\"cooldown\": \"2s\"");
	check_answers("\"cooldown\": \"0s\", \"minimum\": 100");
	check_answers("\"cooldown\": \"5s\", \"maximum\": 1500");
}
END_TEST

START_TEST(a_threshold_that_must_hold_fires_as_often_as_predicted)
{
	check_answers("\"cooldown\": \"3s\", \"for\": \"200ms\"");
	check_answers("\"cooldown\": \"1s\", \"for\": \"500ms\"");
}
END_TEST

START_TEST(thresholds_are_round)
{
	static const struct {
		double low, high, threshold;
		bool never;
	} cases[] = {
		{ 83.27, 91.4, 90, false },  { 50.1, 50.2, 50.1, false }, { 7, 8, 7, false },
		{ 1234, 5678, 2000, false }, { 0.123, 0.9, 0.2, false },  { 0.2, 0.59, 0.6, true },
		{ 20, 30.5, 31, true },      { 0, 0, 0, true },
	};
	struct sample sample = { 0 };
	struct target target = rig_target(1);
	struct suggestion_answer answer;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		configure("\"cooldown\": \"0s\"");
		ck_assert_int_eq(suggestion_new(&config->rules[0], &collecting), 0);
		for (unsigned k = 0; k < 2; k++) {
			struct trigger_decision decision = { .available = true, .reason = TRIGGER_WITHIN_BOUNDS };
			struct evaluator_firing window = { .rule = &config->rules[0],
							   .target = &target,
							   .to = { (10 + k) * NS_PER_S },
							   .end = { (10 + k) * NS_PER_S },
							   .sample = &sample,
							   .decision = &decision };

			decision.value = k ? cases[i].high : cases[i].low;
			ck_assert_int_eq(suggestion_add(collecting, 0, &window), 0);
		}
		suggestion_answer(collecting, cases[i].never ? 0 : 1, &answer);
		ck_assert(answer.known && answer.firings == (cases[i].never ? 0 : 1));
		ck_assert_double_eq_tol(answer.threshold, cases[i].threshold, 1e-9);
		release_suggestion();
	}
}
END_TEST

START_TEST(without_values_nothing_is_known)
{
	struct suggestion_answer answer = { .known = true };

	configure("\"cooldown\": \"0s\"");
	ck_assert_int_eq(suggestion_new(&config->rules[0], &collecting), 0);
	suggestion_answer(collecting, 5, &answer);
	ck_assert(!answer.known);
	config->rules[0].trigger.for_ns = 3600 * NS_PER_S;
	suggestion_free(TAKE(collecting));
	ck_assert_int_eq(suggestion_new(&config->rules[0], &collecting), -ERANGE);
	release_suggestion();
}
END_TEST

/* More windows than are kept: the highest are, and so the answer for few firings is exact. */
START_TEST(of_very_many_the_highest_are_kept)
{
	struct suggestion_answer answer;

	configure("\"cooldown\": \"0s\"");
	ck_assert_int_eq(suggestion_new(&config->rules[0], &collecting), 0);
	live_threads(24000, 3);

	struct suggestion *kept = TAKE(collecting);

	for (uint64_t wanted = 3000; wanted < 400000; wanted *= 10) {
		suggestion_answer(kept, wanted, &answer);
		config->rules[0].trigger.percent = answer.threshold;
		ck_assert_uint_eq(live_threads(24000, 3), answer.firings);
		ck_assert_uint_gt(answer.firings, wanted > 30000 ? 40000 : wanted / 2);
	}
	suggestion_free(kept);
	release_suggestion();
}
END_TEST

START_TEST(memory_that_runs_out_suggests_nothing)
{
	struct sample sample = { 0 };
	struct trigger_decision decision = { .available = true, .reason = TRIGGER_WITHIN_BOUNDS, .value = 1 };
	bool injected = true;

	configure("\"cooldown\": \"0s\", \"for\": \"1s\"");
	for (long n = 1; injected; n++) {
		struct target target = rig_target(1);
		struct evaluator_firing window = {
			.rule = &config->rules[0], .target = &target, .sample = &sample, .decision = &decision
		};
		struct suggestion *one = NULL;

		torture_arm(n);
		int r = suggestion_new(&config->rules[0], &one);

		for (unsigned i = 0; r == 0 && i < 300; i++) {
			target.id = 1 + i % 20;
			window.end.ns += 100 * NS_PER_MS;
			r = suggestion_add(one, 0, &window);
		}
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		suggestion_free(one);
	}
	release_suggestion();
}
END_TEST

/* ---- the output ---- */

#define MIB (1024.0 * 1024)

static char printed[4096];

/* What is printed of it. Prints to stdout meanwhile. */
static void fire(const struct trigger_rule *rule, const struct trigger_decision *decision, bool json)
{
	const struct config_rule configured = { .name = "jump", .metric = METRIC_MEMORY_BYTES };
	const struct target target = { .name = "db", .key = "db" };
	struct replay_view view;
	FILE *file = tmpfile();
	int saved = dup(STDOUT_FILENO);

	ck_assert_ptr_nonnull(file);
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	ck_assert_int_eq(replay_view_open(&view, json, false), 0);
	replay_view_firing(&view, &(struct evaluator_firing){ .rule = &configured,
							      .target = &target,
							      .from = { 0 },
							      .to = { NS_PER_S },
							      .decision = decision,
							      .effective = rule });
	replay_view_close(&view);
	fflush(stdout);
	dup2(saved, STDOUT_FILENO);
	close(saved);
	rewind(file);
	printed[fread(printed, 1, sizeof(printed) - 1, file)] = '\0';
	fclose(file);
}

static void says(const char *text)
{
	ck_assert_msg(strstr(printed, text), "does not say \"%s\":\n%s", text, printed);
}

static struct trigger_decision decision_of(enum trigger_reason reason, double value, double average)
{
	return (struct trigger_decision){
		.candidate_reason = reason, .value = value, .average = average, .has_average = true
	};
}

START_TEST(above_the_average_and_the_minimum_it_was_held_against_the_higher)
{
	struct trigger_rule rule = { .has_delta = true, .delta = 50, .has_minimum = true, .minimum = 64 * MIB };
	struct trigger_decision decision = decision_of(TRIGGER_ABOVE_AVERAGE, 102 * MIB, 6 * MIB);

	fire(&rule, &decision, false);
	says("102 MiB >= 64 MiB, the minimum; the average was 6 MiB\n");
	fire(&rule, &decision, true);
	says("\"threshold\": 67108864,");

	rule.minimum = 8 * MIB;
	fire(&rule, &decision, false);
	says("102 MiB >= 9 MiB, above the average of 6 MiB\n");
	fire(&rule, &decision, true);
	says("\"threshold\": 9437184,");

	rule.has_minimum = false;
	rule.minimum = 64 * MIB;
	fire(&rule, &decision, false);
	says("102 MiB >= 9 MiB, above the average of 6 MiB\n");
}
END_TEST

START_TEST(above_a_threshold_and_the_minimum_it_was_held_against_the_higher)
{
	struct trigger_rule rule = {
		.has_percent = true, .percent = 32 * MIB, .has_minimum = true, .minimum = 64 * MIB
	};
	struct trigger_decision decision = decision_of(TRIGGER_ABOVE_PERCENT, 102 * MIB, 6 * MIB);

	fire(&rule, &decision, false);
	says("102 MiB >= 64 MiB, the minimum\n");
	rule.minimum = 16 * MIB;
	fire(&rule, &decision, false);
	says("102 MiB > 32 MiB\n");
}
END_TEST

Suite *rule_replay_suite(void)
{
	Suite *suite = suite_create("rule_replay");
	TCase *equal = tcase_create("equal"), *single = tcase_create("single"), *entries = tcase_create("entries");
	TCase *thresholds = tcase_create("thresholds"), *output = tcase_create("output");

	tcase_add_checked_fixture(equal, setup, teardown);
	tcase_add_test(equal, a_replay_of_the_ring_decides_as_was_decided);
	tcase_add_test(equal, every_kind_of_rule_fires_in_that_world);
	suite_add_tcase(suite, equal);
	tcase_add_checked_fixture(single, setup, teardown);
	tcase_add_test(single, says_why_a_rule_could_not_be_judged);
	tcase_add_test(single, a_recording_shorter_than_the_warm_up_judges_nothing);
	tcase_add_test(single, a_limit_that_is_not_recorded_is_reported);
	tcase_add_test(single, an_average_over_less_than_the_rules_history_is_reported);
	tcase_add_test(single, keeps_the_nearest_miss);
	tcase_add_test(single, another_recording_begins_with_nothing);
	tcase_add_test(single, memory_that_runs_out_is_an_error);
	suite_add_tcase(suite, single);
	tcase_add_checked_fixture(entries, setup_entries, teardown);
	tcase_add_test(entries, an_entry_of_the_same_name_is_the_one);
	tcase_add_test(entries, a_container_is_selected_by_its_name);
	tcase_add_test(entries, else_the_first_entry_that_selects_it);
	tcase_add_test(entries, a_cgroup_is_selected_by_its_path);
	tcase_add_test(entries, what_is_outside_is_no_process_of_an_entry_before);
	tcase_add_test(entries, else_the_entry_of_the_option);
	tcase_add_test(entries, memory_that_runs_out_assigns_no_entry);
	suite_add_tcase(suite, entries);
	tcase_add_test(thresholds, a_threshold_fires_as_often_as_predicted);
	tcase_add_test(thresholds, a_threshold_that_must_hold_fires_as_often_as_predicted);
	tcase_add_test(thresholds, thresholds_are_round);
	tcase_add_test(thresholds, without_values_nothing_is_known);
	tcase_add_test(thresholds, of_very_many_the_highest_are_kept);
	tcase_add_test(thresholds, memory_that_runs_out_suggests_nothing);
	suite_add_tcase(suite, thresholds);
	tcase_add_test(output, above_the_average_and_the_minimum_it_was_held_against_the_higher);
	tcase_add_test(output, above_a_threshold_and_the_minimum_it_was_held_against_the_higher);
	suite_add_tcase(suite, output);

	return suite;
}
