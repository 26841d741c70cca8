/*
 * bench_rules.c: what rules cost: 1,000 targets with 5 rules each, fed as from the ring, all of which
 * run all the time. A judgement of a whole window is held against the bare trigger step it ends in,
 * with the same rule and the same memory behind it; a look at a window in between against that.
 */
#include "bench.h"
#include "lib/config/config.h"
#include "evaluator_feed.h"
#include "lib/evaluator/evaluator.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/rules/trigger.h"

#define TARGETS 1000u
#define RULES 5u
#define TICK_NS (10 * NS_PER_MS)
#define ROUNDS 9u

static const char text[] =
	"{ \"targets\": [ { \"name\": \"bench\", \"comm\": \"bench\" } ],"
	"  \"rules\": ["
	"    { \"name\": \"a\", \"metric\": \"cpu\", \"window\": \"1s\", \"percent\": \"90%\", \"delta\": \"400%\" },"
	"    { \"name\": \"b\", \"metric\": \"cpu_cores\", \"window\": \"1s\", \"above\": 12, \"for\": \"5s\" },"
	"    { \"name\": \"c\", \"metric\": \"memory\", \"window\": \"1s\", \"percent\": \"90%\" },"
	"    { \"name\": \"d\", \"metric\": \"threads\", \"window\": \"1s\", \"above\": 1000 },"
	"    { \"name\": \"e\", \"metric\": \"faults\", \"window\": \"1s\", \"above\": 1000000 } ] }";

struct rig {
	uint64_t judged; /* windows so far */
	struct config *config;
	struct evaluator *evaluator;
	struct sample samples[TARGETS];
	mono_t now;
};

static int never(void *ctx, const struct evaluator_firing *firing)
{
	bench_need(ctx && !firing, "no rule fires");
	return 0;
}

static void add_target(struct rig *rig, uint32_t i)
{
	char key[32];

	snprintf(key, sizeof key, "bench:%u@1", i);

	struct target what = {
		.id = i + 1,
		.kind = TARGET_PROCESS,
		.pid = (int32_t)i + 1000,
		.entry = "bench",
		.name = "bench",
		.key = key,
		.comm = "bench",
		.cmdline = "bench target",
		.cgroup = "/",
	};

	bench_need(feed_target(rig->evaluator, &what) == 0, "target");
	for (unsigned field = 0; field <= SAMPLE_MAJOR_FAULTS; field++)
		if (field != SAMPLE_WORKING_SET)
			sample_set(&rig->samples[i], (enum sample_field)field, 1000);
	sample_set(&rig->samples[i], SAMPLE_CPU_LIMIT, NS_PER_S);
	sample_set(&rig->samples[i], SAMPLE_MEMORY_LIMIT, 1u << 30);
}

static void count_window(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision,
			 uint32_t windows)
{
	struct rig *rig = ctx;

	(void)rule;
	(void)decision;
	rig->judged += windows;
}

static void begin(struct rig *rig)
{
	struct config_source source = { "bench", text, sizeof text - 1 };
	struct config_error error;

	if (config_parse(&source, 1, &rig->config, &error) < 0) {
		fprintf(stderr, "bench: %s: %s\n", error.key, error.message);
		exit(EXIT_FAILURE);
	}

	struct evaluator_options options = {
		.config = rig->config,
		.machine = { .cores = 2, .memory_bytes = 1ull << 32 },
		.fire = never,
		.judged = count_window,
		.ctx = rig,
	};

	bench_need(evaluator_new(&options, &rig->evaluator) == 0, "evaluator");
	for (uint32_t i = 0; i < TARGETS; i++)
		add_target(rig, i);
	rig->now = (mono_t){ 1000 * NS_PER_S };
}

/* ns of fed_ns every target with a sample. */
static uint64_t feed(struct rig *rig)
{
	uint64_t from = bench_cpu();

	for (uint32_t i = 0; i < TARGETS; i++) {
		rig->samples[i].value[SAMPLE_CPU] += 100000;
		feed_sample(rig->evaluator, i + 1, mono_add(rig->now, i * 300), &rig->samples[i]);
	}
	return bench_cpu() - from;
}

static uint64_t tick(struct rig *rig)
{
	uint64_t from = bench_cpu();

	bench_need(feed_tick(rig->evaluator, rig->now, (wall_t){ rig->now.ns }) == 0, "tick");
	return bench_cpu() - from;
}

struct costs {
	double sample, idle_tick, look, judgement;
};

#define STEP_NS (100 * NS_PER_MS) /* a window ends */

/* Ten seconds of sampling at 100 Hz. */
static struct costs run(struct rig *rig)
{
	uint64_t fed_ns = 0, judging = 0, looking = 0, looks = 0, ticking = 0, judged = rig->judged, quiet = 0;

	for (unsigned i = 0; i < 1000; i++) {
		rig->now = mono_add(rig->now, TICK_NS);
		fed_ns += feed(rig);

		uint64_t before = rig->judged, took = tick(rig);

		if (rig->judged != before) {
			judging += took;
		} else if (rig->now.ns % STEP_NS == 0) {
			looking += took;
			looks++;
		} else {
			ticking += took;
			quiet++;
		}
	}
	judged = rig->judged - judged;
	bench_need(judged >= 9 * TARGETS * RULES && looks >= 80, "windows were judged");
	return (struct costs){
		.sample = (double)fed_ns / (1000.0 * TARGETS),
		.idle_tick = (double)ticking / (double)quiet / TARGETS,
		.look = (double)looking / (double)looks / TARGETS / RULES,
		.judgement = (double)judging / (double)judged,
	};
}

/* The same number of trigger states, stepped one after the other. */
static double time_steps(const struct rig *rig)
{
	static struct trigger_state *states[TARGETS * RULES];
	struct trigger_decision decision;
	uint64_t took = 0;

	for (size_t i = 0; i < TARGETS * RULES; i++) {
		const struct trigger_rule *rule = &rig->config->rules[i % RULES].trigger;

		states[i] = calloc(1, trigger_state_size(rule));
		bench_need(states[i] != NULL, "trigger");
		trigger_state_init(states[i], rule);
	}
	for (unsigned round = 0; round < 20; round++) {
		mono_t now = mono_add(rig->now, round * NS_PER_S);
		uint64_t from = bench_cpu();

		const struct trigger_window window = { .now = now,
						       .wall = { now.ns },
						       .window_ns = NS_PER_S,
						       .step_ns = NS_PER_S,
						       .whole = true,
						       .apart = true,
						       .available = true,
						       .value = 0.5,
						       .disk_ok = true };

		for (size_t i = 0; i < TARGETS * RULES; i++)
			trigger_step(states[i], &rig->config->rules[i % RULES].trigger, &window, &decision);
		took += bench_cpu() - from;
	}
	for (size_t i = 0; i < TARGETS * RULES; i++)
		free(states[i]);
	return (double)took / 20 / TARGETS / RULES;
}

int main(void)
{
	static struct rig rig;
	double samples[ROUNDS], ticks[ROUNDS], looks[ROUNDS], judgements[ROUNDS], steps[ROUNDS];

	bench_pin(bench_nth_cpu(0));
	begin(&rig);
	run(&rig);
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct costs costs = run(&rig);

		samples[i] = costs.sample;
		ticks[i] = costs.idle_tick;
		looks[i] = costs.look;
		judgements[i] = costs.judgement;
		steps[i] = time_steps(&rig);
	}

	double judgement = bench_median(judgements, ROUNDS);

	bench_report((struct bench_row){ "judging a rule on a target (against: the bare trigger step)", "ns", judgement,
					 bench_median(steps, ROUNDS), BENCH_RATIO_AT_MOST, 4 });
	bench_report((struct bench_row){ "  a window in between that is no candidate", "ns",
					 bench_median(looks, ROUNDS), judgement, BENCH_RATIO_AT_MOST, 0.8 });
	bench_report((struct bench_row){ .what = "  judgements a second", .unit = "M/s", .measured = 1e3 / judgement });
	bench_report((struct bench_row){
		.what = "rules, taking in a sample", .unit = "ns", .measured = bench_median(samples, ROUNDS) });
	bench_report((struct bench_row){ .what = "rules, a tick without a judgement, per target",
					 .unit = "ns",
					 .measured = bench_median(ticks, ROUNDS) });
	evaluator_free(rig.evaluator);
	config_free(rig.config);

	return 0;
}
