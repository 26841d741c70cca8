/*
 * trigger_bench.h: one rule on one target, stepped by hand: what the suites about the trigger
 * share. `bench` is the state of the running test; each test begins and ends it.
 */
#ifndef SPIKEWATCH_TRIGGER_BENCH_H
#define SPIKEWATCH_TRIGGER_BENCH_H

#include "lib/base/base.h"
#include "lib/rules/trigger.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define S NS_PER_S

/* One rule on one target, a window a second, and the wall clock this far ahead. */
static struct trigger_bench {
	struct trigger_rule rule;
	struct trigger_state *state;
	struct trigger_decision decision;
	uint64_t now_ns, wall_ahead_ns;
	uint64_t window_ns, step_ns;
	bool disk_full;
} bench;

static inline void make_state(void)
{
	bench.state = calloc(1, trigger_state_size(&bench.rule));
	ck_assert_ptr_nonnull(bench.state);
	trigger_state_init(bench.state, &bench.rule);
}

static inline void begin(struct trigger_rule rule)
{
	memset(&bench, 0, sizeof(bench));
	bench.rule = rule;
	if (bench.rule.history == 0)
		bench.rule.history = 10;
	bench.now_ns = 1000 * S;
	bench.wall_ahead_ns = 1000000 * S;
	bench.window_ns = bench.step_ns = S;
	make_state();
}

static inline void end(void)
{
	trigger_state_release(bench.state);
	free(bench.state);
	bench.state = NULL;
}

static inline uint64_t wall_ns(void)
{
	return bench.now_ns + bench.wall_ahead_ns;
}

static inline struct trigger_window window_of(bool whole, bool available, double value)
{
	return (struct trigger_window){
		.now = { bench.now_ns },
		.wall = { wall_ns() },
		.window_ns = bench.window_ns,
		.step_ns = bench.step_ns,
		.whole = whole,
		.apart = whole,
		.disk_ok = !bench.disk_full,
		.available = available,
		.value = value,
	};
}

/* Judges a whole window. */
static inline void step(bool available, double value)
{
	const struct trigger_window window = window_of(true, available, value);

	ck_assert_int_eq(trigger_step(bench.state, &bench.rule, &window, &bench.decision), 0);
}

/* Judges, if it is wanted, a window that ends a step after the last one and is not whole. */
static inline enum trigger_reason slide(double value)
{
	bench.now_ns += bench.step_ns;

	const struct trigger_window window = window_of(false, true, value);

	if (trigger_wants(bench.state, &bench.rule, &window))
		ck_assert_int_eq(trigger_step(bench.state, &bench.rule, &window, &bench.decision), 0);
	else
		trigger_peek(bench.state, &bench.rule, &window, &bench.decision);
	return bench.decision.reason;
}

/* Judges a window that ends ns after the last one. */
static inline enum trigger_reason after(uint64_t ns, double value)
{
	bench.now_ns += ns;
	step(true, value);
	return bench.decision.reason;
}

static inline enum trigger_reason next(double value)
{
	return after(S, value);
}

static inline enum trigger_reason next_unavailable(void)
{
	bench.now_ns += S;
	step(false, 99);
	return bench.decision.reason;
}

static inline struct trigger_memory memory(void)
{
	return *trigger_memory(bench.state);
}

/* The daemon starts again after so many nanoseconds, with a new monotonic clock. */
static inline void restart(uint64_t pause_ns)
{
	struct trigger_memory kept = memory();

	end();
	make_state();
	ck_assert_int_eq(trigger_restore(bench.state, &kept), 0);
	bench.wall_ahead_ns = wall_ns() + pause_ns - 5 * S;
	bench.now_ns = 5 * S;
}

#define ck_assert_fires(reason_) \
	do { \
		ck_assert_int_eq((int)(reason_), bench.decision.reason); \
		ck_assert(bench.decision.fires &&bench.decision.candidate); \
	} while (0)

#define ck_assert_reason(reason_, expected_) \
	do { \
		ck_assert_str_eq(trigger_reason_name(reason_), trigger_reason_name(expected_)); \
		ck_assert(!bench.decision.fires); \
	} while (0)

#endif
