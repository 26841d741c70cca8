/*
 * bench_sample.c: what a look at a process costs, everything included: the reads, the ring, the end
 * of the tick. Held against the same system calls in a bare loop, in turns with it.
 */
#include "daemon/engine/sampling/sampler.c"

#include "bench_targets.h"
#include "daemon/engine/incident/ring_recorder.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/model/sample.h"
#include "lib/ring/ring.h"
#include "lib/stream/stream.h"

/* How often each pair is measured; the median counts. Each takes at least so much CPU time. */
#define ROUNDS 9u
#define ROUND_NS 12000000u

/* Targets run elsewhere, where there is an elsewhere. */
static unsigned target_cpu;

struct cost {
	double ours, bare; /* ns per process-sample */
};

struct case_ {
	struct bench_targets targets;
	struct bench_sampler sampler;
	struct bench_bare bare;
	struct recorder *recorder; /* NULL: only the ring */
	uint64_t pace_ns;          /* wait so long before a tick; 0: not at all */
	unsigned batch;            /* ticks between two looks at the clock */
	uint64_t overhead_ns;      /* of those looks */
};

static void wait_for_tick(struct case_ *c)
{
	uint64_t until = bench_now() + c->pace_ns;

	bench_targets_step(&c->targets);
	while (c->pace_ns && bench_now() < until)
		sched_yield();
}

static double time_ours(struct case_ *c)
{
	struct sampler *sampler = c->sampler.sampler->threads[0].sampler;
	uint64_t from = bench_cpu();

	for (unsigned i = 0; i < c->batch; i++) {
		take_tick(sampler, clock_mono(&sampler->deadline_timer.clock));
		if (c->recorder)
			bench_need(recorder_pump(c->recorder) == 0, "recorder");
	}
	return (double)(bench_cpu() - from - c->overhead_ns);
}

static double time_bare(struct case_ *c)
{
	uint64_t from = bench_cpu();

	for (unsigned i = 0; i < c->batch; i++)
		bench_bare_tick(&c->bare);
	return (double)(bench_cpu() - from - c->overhead_ns);
}

/* First one, then the other: both then see what happened in one pace. */
static struct cost measure_once(struct case_ *c)
{
	struct cost sum = { 0 };
	unsigned ticks = 0;

	for (; sum.ours < ROUND_NS; ticks++) {
		wait_for_tick(c);
		sum.ours += time_ours(c);
	}
	for (unsigned i = 0; i < ticks; i++) {
		wait_for_tick(c);
		sum.bare += time_bare(c);
	}

	double samples = (double)c->targets.count * c->batch * ticks;

	return (struct cost){ sum.ours / samples, sum.bare / samples };
}

static struct cost measure(struct case_ *c)
{
	double ours[ROUNDS], bare[ROUNDS];

	c->batch = c->targets.busy ? 1 : c->targets.count < 1000 ? (unsigned)(1000 / c->targets.count) : 1;
	c->overhead_ns = bench_cpu_cost();
	for (unsigned i = 0; i < 20; i++) {
		wait_for_tick(c);
		time_ours(c);
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct cost cost = measure_once(c);

		ours[i] = cost.ours;
		bare[i] = cost.bare;
	}
	return (struct cost){ bench_median(ours, ROUNDS), bench_median(bare, ROUNDS) };
}

static void begin(struct case_ *c, size_t count, size_t busy, enum bench_manner manner)
{
	*c = (struct case_){ 0 };
	c->targets = (struct bench_targets){
		.count = count,
		.busy = busy,
		.manner = manner,
		.cpu = target_cpu,
	};
	bench_targets_start(&c->targets);
	bench_sampler_make(&c->sampler, &c->targets, 10000000, CONFIG_WAIT_SLEEP);
	bench_bare_make(&c->bare, &c->targets);
}

static void end(struct case_ *c)
{
	bench_bare_end(&c->bare);
	bench_sampler_end(&c->sampler);
	bench_targets_end(&c->targets);
}

static void ring_only(size_t count, bool busy)
{
	struct case_ c;
	char what[80];

	begin(&c, count, busy ? count : 0, BENCH_STEPPED);
	struct cost cost = measure(&c);

	snprintf(what, sizeof what, "process-sample, %zu processes, %s", count,
		 busy ? "all ran since the last tick" : "all asleep");
	bench_report((struct bench_row){ what, "ns", cost.ours, cost.bare, BENCH_RATIO_AT_MOST, 1.25 });
	end(&c);
}

/* ---- with text ---- */

static int drop(void *ctx, const void *data, size_t len)
{
	*(uint64_t *)ctx += len;
	return data ? 0 : -EINVAL;
}

static void with_text(enum bench_manner manner, uint64_t pace_ns, struct bench_row row)
{
	struct case_ c;
	struct ring_cursor *cursor;
	struct recorder_options options = { .format = STREAM_SPIKEWATCH };
	struct stats none = { 0 };
	uint64_t bytes = 0;

	begin(&c, 220, 20, manner);
	c.pace_ns = pace_ns;
	bench_need(ring_cursor_new(c.sampler.ring, RING_OLDEST, &cursor) == 0, "cursor");
	bench_need(recorder_new(cursor, (struct sink){ drop, &bytes }, &options, &c.recorder) == 0, "recorder");

	struct cost cost = measure(&c);

	row.unit = "ns";
	row.measured = cost.ours;
	row.against = cost.bare;
	bench_report(row);
	bench_need(recorder_close(c.recorder, &none, 0, NULL) == 0 && bytes > 0, "text");
	ring_cursor_free(cursor);
	end(&c);
}

int main(void)
{
	unsigned own_cpu = bench_nth_cpu(0);

	target_cpu = bench_nth_cpu(1);
	bench_pin(own_cpu);
	bench_raise_descriptors();
	for (unsigned busy = 0; busy < 2; busy++) {
		ring_only(10, busy);
		ring_only(100, busy);
		ring_only(1000, busy);
	}
	with_text(BENCH_SPINNING, NS_PER_MS,
		  (struct bench_row){ .what = "  with text and checksum, 220 processes, 20 of them spin, 1 kHz",
				      .limit = BENCH_RATIO_AT_MOST,
				      .budget = 1.25 });
	/* No two CPUs can do that: it shows what the text costs when there is much of it. */
	with_text(BENCH_STEPPED, 0,
		  (struct bench_row){ .what = "  with text and checksum, 220 processes, 20 ran since the last tick",
				      .limit = BENCH_RATIO_AT_MOST,
				      .budget = 1.25 });

	return 0;
}
