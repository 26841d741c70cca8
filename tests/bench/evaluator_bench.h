/*
 * evaluator_bench.h: an evaluator that is told ticks and samples by hand: what the suites about it
 * share. The state is that of the running test; begin and end are its fixture.
 */
#ifndef SPIKEWATCH_EVALUATOR_BENCH_H
#define SPIKEWATCH_EVALUATOR_BENCH_H

#include "evaluator_feed.h"
#include "lib/evaluator/evaluator.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/rule_state.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define S NS_PER_S
#define MS NS_PER_MS

#define WALL_AHEAD (1000000 * S)

#define FIRINGS_MAX 64

/* What was seen of one firing. */
struct seen {
	char rule[16], target[16];
	mono_t from, to;
	wall_t wall;
	double value;
	uint64_t cpu_limit;
};

static struct config config;
static struct config_rule rules[8];
static struct evaluator *evaluator;
static struct rule_state *rule_state;
static struct seen firings[FIRINGS_MAX];
static size_t firing_count;
static int answer, then_answer; /* of the next firing, and of those after it */
static bool disk_full;
static unsigned disk_questions;
static void (*witness)(void *ctx, const struct evaluator_firing *window);

static inline int fire(void *ctx, const struct evaluator_firing *firing)
{
	struct seen *seen = &firings[firing_count++];
	int first;

	(void)ctx;
	ck_assert_uint_lt(firing_count, FIRINGS_MAX);
	snprintf(seen->rule, sizeof(seen->rule), "%s", firing->rule->name);
	snprintf(seen->target, sizeof(seen->target), "%s", firing->target->name);
	seen->from = firing->from;
	seen->to = firing->to;
	seen->wall = firing->wall;
	seen->value = firing->decision->value;
	seen->cpu_limit = firing->cpu_limit;
	ck_assert_ptr_eq(firing->effective, &firing->rule->trigger);
	first = answer;
	answer = then_answer;
	return first;
}

static inline bool disk_ok(void *ctx)
{
	(void)ctx;
	disk_questions++;
	return !disk_full;
}

/* A rule that fires for every available value, whatever it is: what fires is what was judged. */
static inline struct config_rule *add_rule(const char *name, enum metric metric, uint64_t window_ns)
{
	struct config_rule *rule = &rules[config.rule_count++];

	*rule = (struct config_rule){
		.name = name,
		.metric = metric,
		.of = METRIC_OF_CORE,
		.window_ns = window_ns,
		.trigger = { .has_percent = true, .percent = -1, .history = 4 },
	};
	return rule;
}

static inline void start(void)
{
	const struct evaluator_options options = {
		.config = &config,
		.machine = { .cores = 4, .memory_bytes = 1 << 20 },
		.rule_state = rule_state,
		.fire = fire,
		.disk_ok = disk_ok,
		.witness = witness,
		.every_window = witness != NULL,
	};

	ck_assert_int_eq(evaluator_new(&options, &evaluator), 0);
}

static inline void begin(void)
{
	memset(&config, 0, sizeof(config));
	config.sampling.cgroup_interval_ns = 100 * MS;
	config.rules = rules;
	evaluator = NULL;
	firing_count = 0;
	answer = then_answer = 0;
	disk_full = false;
	disk_questions = 0;
	witness = NULL;
	ck_assert_int_eq(rule_state_new("boot", &rule_state), 0);
}

static inline void end(void)
{
	evaluator_free(evaluator);
	rule_state_free(rule_state);
}

static inline struct target make_target(uint32_t id, const char *name)
{
	return (struct target){
		.id = id,
		.kind = TARGET_PROCESS,
		.pid = (int32_t)id,
		.entry = "web",
		.name = name,
		.key = name,
		.comm = "",
		.cmdline = "",
		.cgroup = "",
	};
}

static inline void watch_by(struct feed_writer writer, uint32_t id, const char *name)
{
	struct target target = make_target(id, name);

	ck_assert_int_eq(feed_target_by(evaluator, writer, &target), 0);
}

static inline void watch(uint32_t id, const char *name)
{
	watch_by((struct feed_writer){ 0 }, id, name);
}

static inline void cpu_by(struct feed_writer writer, uint32_t id, uint64_t at_ns, uint64_t cpu_ns)
{
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_CPU, cpu_ns);
	feed_sample_by(evaluator, writer, id, (mono_t){ at_ns }, &sample);
}

static inline void cpu(uint32_t id, uint64_t at_ns, uint64_t cpu_ns)
{
	cpu_by((struct feed_writer){ 0 }, id, at_ns, cpu_ns);
}

static inline void memory(uint32_t id, uint64_t at_ns, uint64_t bytes, uint64_t mark)
{
	struct sample sample = { 0 };

	sample_set(&sample, SAMPLE_MEMORY, bytes);
	if (mark)
		sample_set(&sample, SAMPLE_MEMORY_PEAK, mark);
	feed_sample(evaluator, id, (mono_t){ at_ns }, &sample);
}

/* A cgroup whose CPU time the scheduler tells: its files are read every 100 ms, and say of half the time that it waits. */
static inline void tell(uint64_t at_ns, uint64_t cpu_ns)
{
	uint64_t read_ns = at_ns / (100 * MS) * (100 * MS) + 3 * MS;
	struct sample sample = { 0 };

	if (read_ns > at_ns)
		read_ns -= 100 * MS;
	sample_set(&sample, SAMPLE_CPU, cpu_ns);
	sample_set(&sample, SAMPLE_CPU_PRESSURE, read_ns / 2);
	sample_set(&sample, SAMPLE_FILES_READ, read_ns);
	feed_sample(evaluator, 1, (mono_t){ at_ns }, &sample);
}

static inline int tick_by(struct feed_writer writer, uint64_t now_ns)
{
	return feed_tick_by(evaluator, writer, (mono_t){ now_ns }, (wall_t){ now_ns + WALL_AHEAD });
}

static inline int tick(uint64_t now_ns)
{
	return tick_by((struct feed_writer){ 0 }, now_ns);
}

static inline void ticks_by(struct feed_writer writer, uint64_t from_ns, uint64_t to_ns, uint64_t step_ns)
{
	for (uint64_t now = from_ns; now <= to_ns; now += step_ns)
		tick_by(writer, now);
}

static inline void ticks(uint64_t from_ns, uint64_t to_ns, uint64_t step_ns)
{
	ticks_by((struct feed_writer){ 0 }, from_ns, to_ns, step_ns);
}

#endif
