/*
 * replay_rig.h: rules over a made-up world, judged by an evaluator that is told everything by hand,
 * while the world is recorded; and the list of what fired, to be compared with that of a replay.
 * The state is that of the running test.
 */
#ifndef SPIKEWATCH_TESTS_REPLAY_RIG_H
#define SPIKEWATCH_TESTS_REPLAY_RIG_H

#include "lib/stream/sample_stream.h"
#include "lib/evaluator/evaluator.h"
#include "lib/ring/ring.h"
#include "scene.h"
#include "lib/stream/stream.h"
#include "cli/replay/recording.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#define RIG_TARGETS 4
#define RIG_INTERVAL (10 * NS_PER_MS)
#define RIG_WALL_AHEAD (1700000000 * NS_PER_S)
#define RIG_FIRINGS_MAX 4096

static const struct metric_machine rig_machine = { .cores = 4, .memory_bytes = 1ULL << 32 };

/* All that matters of a firing. */
struct rig_firing {
	char rule[16], target[16];
	enum trigger_reason reason;
	uint64_t from_ns, to_ns, wall_ns;
	double value, average;
};

struct rig_list {
	struct rig_firing firings[RIG_FIRINGS_MAX];
	size_t count;
	uint64_t percent_windows; /* of the rule "percent" */
};

struct replay_rig {
	struct rig_list real, replayed;
	uint64_t seed;
};

static inline int rig_fire(void *ctx, const struct evaluator_firing *firing)
{
	struct rig_list *list = ctx;
	struct rig_firing *put = &list->firings[list->count++];

	ck_assert_uint_lt(list->count, RIG_FIRINGS_MAX);
	memset(put, 0, sizeof(*put));
	snprintf(put->rule, sizeof(put->rule), "%s", firing->rule->name);
	snprintf(put->target, sizeof(put->target), "%s", firing->target->name);
	put->reason = firing->decision->reason;
	put->from_ns = firing->from.ns;
	put->to_ns = firing->to.ns;
	put->wall_ns = firing->wall.ns;
	put->value = firing->decision->value;
	put->average = firing->decision->average;

	return 0;
}

static inline int rig_compare(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(struct rig_firing));
}

/* The same firings; those of one tick come in no particular order. */
static inline void rig_expect_same(struct replay_rig *rig)
{
	ck_assert_uint_gt(rig->real.count, 0);
	ck_assert_uint_eq(rig->replayed.count, rig->real.count);
	qsort(rig->real.firings, rig->real.count, sizeof(struct rig_firing), rig_compare);
	qsort(rig->replayed.firings, rig->replayed.count, sizeof(struct rig_firing), rig_compare);
	for (size_t i = 0; i < rig->real.count; i++) {
		const struct rig_firing *real = &rig->real.firings[i], *replayed = &rig->replayed.firings[i];

		ck_assert_msg(
			rig_compare(real, replayed) == 0,
			"%s on %s at %ju of %.17g (reason %d) was replayed as %s on %s at %ju of %.17g (reason %d)",
			real->rule, real->target, (uintmax_t)real->to_ns, real->value, real->reason, replayed->rule,
			replayed->target, (uintmax_t)replayed->to_ns, replayed->value, replayed->reason);
	}
}

/* One rule of every kind. */
static inline struct config *rig_config(void)
{
	return scene_config(
		"{ \"sampling\": { \"cgroup_interval\": \"20ms\" },\n"
		"\"targets\": [ { \"name\": \"a\", \"comm\": \"a\" }, { \"name\": \"b\", \"comm\": \"b\" } ],\n"
		"\"rules\": [\n"
		"{ \"name\": \"percent\", \"metric\": \"cpu\", \"window\": \"100ms\", \"percent\": 40, \"warmup\": 0, "
		"\"cooldown\": \"700ms\" },\n"
		"{ \"name\": \"core\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"50ms\", \"percent\": 60, "
		"\"for\": "
		"\"150ms\", \"cooldown\": \"0s\", \"targets\": [\"a\"] },\n"
		"{ \"name\": \"delta\", \"metric\": \"memory_bytes\", \"window\": \"130ms\", \"delta\": 40, "
		"\"minimum\": "
		"\"40MiB\", \"cooldown\": \"300ms\", \"warmup\": 2 },\n"
		"{ \"name\": \"above\", \"metric\": \"threads\", \"window\": \"30ms\", \"above\": 12, \"maximum\": 15, "
		"\"warmup\": 1, \"rearm\": \"below\", \"cooldown\": \"60ms\" },\n"
		"{ \"name\": \"count\", \"metric\": \"cpu_cores\", \"window\": \"200ms\", \"above\": 0.5, \"count\": "
		"3, "
		"\"count_period\": \"4s\", \"cooldown\": \"0s\" },\n"
		"{ \"name\": \"high\", \"metric\": \"memory_peak\", \"window\": \"100ms\", \"above\": \"50MiB\", "
		"\"rearm\": "
		"\"high-water\", \"cooldown\": \"0s\" } ] }\n");
}

static inline struct target rig_target(uint32_t id)
{
	static const char *const names[] = { "?", "one", "two", "three", "four", "five", "six", "seven", "eight" };

	return (struct target){
		.id = id,
		.kind = TARGET_PROCESS,
		.pid = (int32_t)id,
		.start_ticks = 100 + id,
		.entry = id % 2 ? "a" : "b",
		.name = names[id % 9],
		.key = names[id % 9],
		.comm = "",
		.cmdline = "",
		.cgroup = "",
	};
}

static inline struct evaluator *rig_evaluator(struct replay_rig *rig, const struct config *config)
{
	const struct evaluator_options options = {
		.config = config, .machine = rig_machine, .fire = rig_fire, .ctx = &rig->real
	};
	struct evaluator *evaluator;

	ck_assert_int_eq(evaluator_new(&options, &evaluator), 0);

	return evaluator;
}

static inline void rig_window(void *ctx, const struct evaluator_firing *window)
{
	struct rig_list *list = ctx;

	list->percent_windows += strcmp(window->rule->name, "percent") == 0;
}

/* An evaluator that is fed with what is replayed. */
static inline struct evaluator *rig_replayer(struct replay_rig *rig, const struct config *config)
{
	const struct evaluator_options options = {
		.config = config, .machine = rig_machine, .fire = rig_fire, .witness = rig_window, .ctx = &rig->replayed
	};
	struct evaluator *evaluator;

	rig->replayed.percent_windows = 0;
	ck_assert_int_eq(evaluator_new(&options, &evaluator), 0);

	return evaluator;
}

static inline int rig_event(void *ctx, const struct ring_event *event)
{
	return evaluator_event(ctx, event);
}

/* How a recording is played. */
static inline struct recording_options rig_tape(struct evaluator *replayer)
{
	return (struct recording_options){
		.interval_ns = RIG_INTERVAL,
		.heartbeat_ns = NS_PER_S,
		.interval_is_known = true,
		.mono_ahead_ns = -(int64_t)RIG_WALL_AHEAD,
		.event = rig_event,
		.ctx = replayer,
	};
}

/* ---- chance that is the same every time ---- */

static inline uint64_t rig_random(struct replay_rig *rig, uint64_t below)
{
	rig->seed = rig->seed * 6364136223846793005ULL + 1442695040888963407ULL;

	return (rig->seed >> 33) % below;
}

/* A target that works, rests, grows and shrinks. Its CPU time rises in every tick if it is busy. */
static inline void rig_live(struct replay_rig *rig, struct sample *sample, bool busy, uint64_t passed_ns)
{
	uint64_t cpu = sample->value[SAMPLE_CPU] + (busy ? 1 : 0);

	if (busy || rig_random(rig, 3) == 0)
		cpu += rig_random(rig, 2 * passed_ns);
	sample_set(sample, SAMPLE_CPU, cpu);
	sample_set(sample, SAMPLE_CPU_LIMIT, 2 * NS_PER_S);
	if (rig_random(rig, 20) == 0)
		sample_set(sample, SAMPLE_MEMORY, (10 + rig_random(rig, 80)) << 20);
	if (rig_random(rig, 50) == 0)
		sample_set(sample, SAMPLE_MEMORY_PEAK, (60 + rig_random(rig, 60)) << 20);
	if (rig_random(rig, 10) == 0)
		sample_set(sample, SAMPLE_THREADS, 1 + rig_random(rig, 18));
	if (rig_random(rig, 200) == 0)
		sample_unset(sample, SAMPLE_THREADS);
}

#endif
