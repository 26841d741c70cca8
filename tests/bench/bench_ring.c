/*
 * bench_ring.c: records in and out of the ring, and how long it takes to secure the slice of one
 * target from a full one.
 */
#include "bench.h"
#include "lib/ring/ring.h"
#include "lib/incident/sample_window.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <limits.h>

#define TARGETS 220u
#define BUSY 20u
#define TICK_NS (10 * NS_PER_MS)
#define RING_BYTES (16u << 20)
#define ROUNDS 9u

struct rig {
	struct ring *ring;
	struct ring_writer *writer;
	struct ring_track tracks[TARGETS];
	unsigned char descriptions[TARGETS][TARGET_ENCODED_MAX];
	struct sample samples[TARGETS];
	mono_t now;
};

static void describe(struct rig *rig, uint32_t i)
{
	struct target what = {
		.id = i + 1,
		.kind = TARGET_PROCESS,
		.pid = (int32_t)i + 1000,
		.entry = "bench",
		.name = "bench/1234",
		.key = "bench:1234@567890",
		.comm = "bench",
		.cmdline = "/usr/lib/postgresql/15/bin/postgres -D /var/lib/postgresql/15/main",
		.cgroup = "/system.slice/system-postgresql.slice/postgresql@15-main.service",
	};

	rig->tracks[i] = (struct ring_track){
		.description = rig->descriptions[i],
		.description_len = (uint32_t)target_encode(&what, rig->descriptions[i], TARGET_ENCODED_MAX),
		.id = i + 1,
	};
	for (unsigned field = SAMPLE_CPU; field <= SAMPLE_MAJOR_FAULTS; field++)
		if (field != SAMPLE_WORKING_SET)
			sample_set(&rig->samples[i], (enum sample_field)field, 123456789u * (field + 1));
}

static struct rig *rig_new(void)
{
	struct rig *rig = calloc(1, sizeof *rig);
	struct ring_options options = { .size_bytes = RING_BYTES, .interval_ns = TICK_NS };

	bench_need(rig && ring_create_anonymous(&options, &rig->ring) == 0, "ring");
	bench_need(ring_writer_new(rig->ring, &rig->writer) == 0, "writer");
	for (uint32_t i = 0; i < TARGETS; i++)
		describe(rig, i);
	rig->now = (mono_t){ 1000 * NS_PER_S };
	return rig;
}

static void rig_free(struct rig *rig)
{
	ring_writer_free(rig->writer);
	ring_free(rig->ring);
	free(rig);
}

/* What a process that runs changes from tick to tick. */
static void move(struct rig *rig, uint32_t i)
{
	struct sample *sample = &rig->samples[i];

	sample->value[SAMPLE_CPU] += 1234567 + i;
	sample->value[SAMPLE_MEMORY] += 4096;
	sample->value[SAMPLE_MINOR_FAULTS]++;
}

static void begin_tick(struct rig *rig)
{
	rig->now = mono_add(rig->now, TICK_NS);
	bench_need(ring_tick_begin(rig->writer, rig->now, (wall_t){ rig->now.ns }, TARGETS * RING_RECORD_MAX) == 0,
		   "tick");
}

/* A tick in which the first `moving` targets have changed, and `shown` are shown to the ring. */
static void take_tick(struct rig *rig, uint32_t moving, uint32_t shown)
{
	struct stats stats = { 0 };

	begin_tick(rig);
	for (uint32_t i = 0; i < shown; i++) {
		if (i < moving)
			move(rig, i);
		ring_put_sample(rig->writer, &rig->tracks[i], mono_add(rig->now, i * 300), &rig->samples[i]);
	}
	ring_tick_end(rig->writer, &stats);
}

/* ---- in ---- */

/* ns per target. */
static double time_puts(struct rig *rig, uint32_t moving)
{
	uint64_t from = bench_cpu();

	for (unsigned tick = 0; tick < 90; tick++) /* less than a heartbeat */
		take_tick(rig, moving, TARGETS);
	return (double)(bench_cpu() - from) / 90 / TARGETS;
}

static void puts_of(const char *what, uint32_t moving)
{
	double costs[ROUNDS];

	for (unsigned i = 0; i < ROUNDS; i++) {
		struct rig *rig = rig_new();

		take_tick(rig, TARGETS, TARGETS);
		costs[i] = time_puts(rig, moving);
		rig_free(rig);
	}
	bench_report((struct bench_row){ .what = what, .unit = "ns", .measured = bench_median(costs, ROUNDS) });
}

/* ---- out ---- */

/* As the sampler does it: the busy ones, and each other once a second. */
static struct rig *full_rig(void)
{
	struct rig *rig = rig_new();
	struct ring_info info;
	uint64_t ticks = 0;

	do {
		take_tick(rig, BUSY, ticks++ % 100 ? BUSY : TARGETS);
		ring_info(rig->ring, &info);
	} while (info.next_seq < info.page_count + info.page_count / 2);
	return rig;
}

static double copy_ms(void *to, const void *from)
{
	uint64_t began = bench_cpu();

	memcpy(to, from, RING_BYTES);
	__asm__ volatile("" : : "r"(to) : "memory");
	return (double)(bench_cpu() - began) / 1e6;
}

/* Million events a second of a cursor that goes through a full ring. */
static double time_cursor(const struct rig *rig)
{
	struct ring_cursor *cursor;
	struct ring_event event;
	uint64_t events = 0, from = bench_cpu();

	bench_need(ring_cursor_new(rig->ring, RING_OLDEST, &cursor) == 0, "cursor");
	while (ring_cursor_next(cursor, &event) == 0)
		events++;
	ring_cursor_free(cursor);
	return (double)events * 1e3 / (double)(bench_cpu() - from);
}

/* What opening an incident does (before: as much as there is): milliseconds. */
static double time_slice(const struct rig *rig, uint64_t *ret_samples)
{
	struct sample_window_options options = { .fired = rig->now, .before_ns = 3600 * NS_PER_S };
	struct sample_window_coverage coverage;
	struct ring_cursor *cursor;
	struct ring_event event;
	struct sample_window *sample_window;
	uint64_t from = bench_cpu();

	bench_need(sample_window_new(&options, &sample_window) == 0, "slice");
	bench_need(ring_cursor_new(rig->ring, RING_OLDEST, &cursor) == 0, "cursor");
	ring_cursor_only(cursor, 7);
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type == RING_EVENT_TICK)
			sample_window_tick(sample_window, event.time, 0);
		else if (event.type == RING_EVENT_SAMPLE && event.id == 7)
			sample_window_add(sample_window, event.time, event.sample);
	}
	ring_cursor_free(cursor);

	double took = (double)(bench_cpu() - from) / 1e6;

	sample_window_coverage(sample_window, TICK_NS, &coverage);
	*ret_samples = coverage.samples;
	sample_window_free(sample_window);
	return took;
}

static void out(void)
{
	double rates[ROUNDS], slices[ROUNDS], copies[ROUNDS];
	struct rig *rig = full_rig();
	char *from = malloc(RING_BYTES), *to = malloc(RING_BYTES);
	uint64_t samples = 0;

	bench_need(from && to, "memory");
	memset(from, 1, RING_BYTES);
	memset(to, 1, RING_BYTES);
	for (unsigned i = 0; i < ROUNDS; i++) {
		rates[i] = time_cursor(rig);
		slices[i] = time_slice(rig, &samples);
		copies[i] = copy_ms(to, from);
	}
	bench_need(samples > 1000, "a slice of a full ring");
	bench_report((struct bench_row){
		.what = "ring cursor, events a second", .unit = "M/s", .measured = bench_median(rates, ROUNDS) });
	bench_report((struct bench_row){ "slice of one target from a full ring of 16 MiB (against: memcpy of it)", "ms",
					 bench_median(slices, ROUNDS), bench_median(copies, ROUNDS), BENCH_AT_MOST,
					 10 });
	free(from);
	free(to);
	rig_free(rig);
}

int main(void)
{
	bench_pin(bench_nth_cpu(0));
	puts_of("ring, a target that did not change", 0);
	puts_of("ring, a target of which three fields changed", TARGETS);
	out();

	return 0;
}
