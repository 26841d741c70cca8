/*
 * recording.c: opens a source, and plays it as the events of a ring.
 *
 * A ring is known by its header, an incident by being a directory; anything else is read as a
 * stream. The events of a ring end with the tick that is the newest when the replay begins. The
 * rows of a stream are given ticks (struct tick_clock):
 *
 * A row begins a new tick if its target already has a row in this tick, if it comes more than half
 * an interval after the tick began, or if the row before it is another writer's. The time of a tick
 * is that of its first row, microseconds later than the real one. The evaluator takes the time of a
 * row as that of the sample, so the lengths of windows between rows are exact.
 *
 * A target that wakes has two rows: one of the last time it was read before, which comes late, and
 * the present one. The late row belongs to the last tick of its writer, which is begun once more if
 * another writer's came in between. Other late rows are dropped.
 *
 * A target that does not change has a row per heartbeat. A writer without a row for two heartbeats
 * had stalled: no ticks are made up there, which also bounds the ticks made up per row. They are
 * made up when the writer's next row comes, so after later ticks of others. An incident says when
 * its last tick was: those after the last row are made up too, the firing is one of them where the
 * target had no CPU just then.
 *
 * Unless it is known, the interval is the shortest mean distance of INTERVAL_ROWS consecutive rows
 * of one target: single ticks come late, so the distance of two rows says nothing.
 *
 * Rejected: ticks exactly at the ends of windows (the row that ends a window comes a moment later,
 * so the window would be judged with the sample before it); ticks of all writers together (a writer
 * that stalls would seem to have read its targets).
 */
#include "cli/replay/recording.h"

#include "cli/base/output.h"
#include "cli/incident/incident_load.h"
#include "lib/base/compress.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/evaluator/evaluator.h"
#include "lib/incident/incident.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/stream/sample_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the interval of a stream ---- */

/* Start with the longest that it can be as ns, which is shortened as rows come. */
struct row_interval {
	uint64_t ns;
	uint32_t target;
	uint64_t rows;
	mono_t from;
};

/* Shorter intervals cannot be configured. */
#define INTERVAL_MIN_NS (100 * NS_PER_US)

/* Enough for a tick that is late by an interval to change it by a thirtieth. */
#define INTERVAL_ROWS 32

static void row_interval_add_row(struct row_interval *interval, uint32_t target, mono_t at)
{
	uint64_t mean;

	if (interval->rows > 0 && interval->target != target)
		return;
	if (interval->rows++ == 0) {
		interval->target = target;
		interval->from = at;
	}
	if (interval->rows <= INTERVAL_ROWS)
		return;

	mean = mono_diff(at, interval->from) > 0 ? (uint64_t)mono_diff(at, interval->from) / INTERVAL_ROWS : 0;
	interval->rows = 0;
	if (mean >= INTERVAL_MIN_NS && mean < interval->ns)
		interval->ns = mean;
}

/* Rows of this target, or of any if 0, are no longer consecutive. */
static void row_interval_reset(struct row_interval *interval, uint32_t target)
{
	if (target == 0 || target == interval->target)
		interval->rows = 0;
}

/* ---- ticks ---- */

/* Of a stream: samples of further targets at a time are dropped. */
#define RECORDING_TARGETS_MAX 65536

/* Of names of targets that have columns: room for so many of them. */
#define COLUMNS_BYTES_MAX ((size_t)RECORDING_TARGETS_MAX * 2 * STREAM_NAME_MAX)

/* The ticks of one writer. */
struct tick_clock_line {
	bool started;      /* there was a tick */
	mono_t tick;       /* the last one, */
	uint64_t number;   /* and its number; */
	uint64_t after_ns; /* it ended a hole of that length */
};

/* Start with options, summary and interval.ns. The first two must outlive it. */
struct tick_clock {
	const struct recording_options *options;
	struct recording_summary *summary; /* its ticks and times are counted here */
	struct row_interval interval;
	struct tick_clock_line lines[WRITER_CLOCKS_MAX];
	bool open;         /* a tick has begun and not ended */
	uint32_t writer;   /* of this tick, or of the last one */
	uint64_t number;   /* of ticks so far */
	uint64_t restarts; /* calls of tick_clock_restart */
	mono_t first;      /* before all rows; ns 0: not known */
};

static struct tick_clock_line *tick_clock_line(struct tick_clock *clock, uint32_t writer)
{
	return &clock->lines[writer_clocks_of(writer)];
}

static void summary_add_tick(struct recording_summary *summary, wall_t at)
{
	if (!summary->any || at.ns < summary->from.ns)
		summary->from = at;
	if (!summary->any || at.ns > summary->to.ns)
		summary->to = at;
	summary->any = true;
	summary->ticks++;
}

/* writer: all have the same suspends. */
static void summary_add_hole(struct recording_summary *summary, const struct sampling_hole *hole, uint32_t writer)
{
	summary->holes += hole->missed_slots > 0;
	summary->unsampled_ns += sampling_hole_unsampled_ns(hole, mono_diff(hole->to, hole->from));
	if (writer > 0 || hole->suspended_ns == 0)
		return;
	summary->suspends++;
	summary->suspended_ns += hole->suspended_ns;
}

/* An event within the last tick of this writer. */
static struct ring_event tick_clock_event(struct tick_clock *clock, enum ring_event_type type, uint32_t writer,
					  uint32_t id)
{
	const struct tick_clock_line *line = tick_clock_line(clock, writer);

	return (struct ring_event){
		.type = type, .time = line->tick, .tick = line->number, .writer = writer, .id = id
	};
}

static int emit_event(const struct tick_clock *clock, const struct ring_event *event)
{
	return clock->options->event(clock->options->ctx, event);
}

/* Ends the tick that is open, if one is. 0 or what options->event returned, as below. */
static int tick_clock_end(struct tick_clock *clock)
{
	const struct ring_event event = tick_clock_event(clock, RING_EVENT_TICK_END, clock->writer, 0);

	if (!clock->open)
		return 0;
	clock->open = false;
	return emit_event(clock, &event);
}

static int tick_clock_begin(struct tick_clock *clock, uint32_t writer, mono_t at)
{
	struct tick_clock_line *line = tick_clock_line(clock, writer);
	bool once_more = line->started && line->tick.ns == at.ns;

	*line = (struct tick_clock_line){ .started = true, .tick = at, .number = ++clock->number };
	clock->open = true;
	clock->writer = writer;

	struct ring_event event = tick_clock_event(clock, RING_EVENT_TICK, writer, 0);

	event.wall = (wall_t){ at.ns - (uint64_t)clock->options->mono_ahead_ns };
	event.idle_ns = clock->options->idle_ns;
	summary_add_tick(clock->summary, event.wall);
	clock->summary->ticks -= once_more;
	return emit_event(clock, &event);
}

/* A tick in which nothing changed. */
static int tick_clock_idle_tick(struct tick_clock *clock, uint32_t writer, mono_t at)
{
	int r = tick_clock_begin(clock, writer, at);

	return r == 0 ? tick_clock_end(clock) : r;
}

/* Ticks in which nothing changed, from the last one up to the one that begins at `at`. */
static int tick_clock_idle_until(struct tick_clock *clock, uint32_t writer, mono_t at)
{
	const struct tick_clock_line *line = tick_clock_line(clock, writer);
	uint64_t step = clock->interval.ns;
	int r = 0;

	if (!line->started || mono_diff(at, line->tick) > (int64_t)(2 * clock->options->heartbeat_ns))
		return 0;
	while (r == 0 && mono_diff(at, line->tick) > (int64_t)(step + step / 2))
		r = tick_clock_idle_tick(clock, writer, mono_add(line->tick, step));
	return r;
}

/*
 * The ticks after a writer's last row, up to the last one that is known to have been: nothing changed in
 * them. until.ns 0: not known.
 */
static int tick_clock_idle_to_end(struct tick_clock *clock, mono_t until)
{
	uint64_t half = clock->interval.ns / 2;

	for (uint32_t writer = 0; writer < WRITER_CLOCKS_MAX && until.ns > 0; writer++) {
		const struct tick_clock_line *line = &clock->lines[writer];
		int r = line->started ? tick_clock_idle_until(clock, writer, until) : 0;
		int64_t left_ns = mono_diff(until, line->tick);

		if (r == 0 && line->started && left_ns > (int64_t)half &&
		    left_ns <= (int64_t)(clock->interval.ns + half))
			r = tick_clock_idle_tick(clock, writer, until);
		if (r != 0)
			return r;
	}
	return 0;
}

/* Begins a tick of this writer at `at`, after those in which nothing changed. */
static int tick_clock_next(struct tick_clock *clock, uint32_t writer, mono_t at)
{
	int r = tick_clock_end(clock);

	/*
	 * Another stream may be of an earlier time. An empty tick before its first sample tells the
	 * evaluator, which then forgets what it has seen.
	 */
	if (r == 0 && !tick_clock_line(clock, writer)->started && clock->restarts > 0)
		r = tick_clock_idle_tick(clock, writer, mono_sub(at, clock->interval.ns));
	if (r == 0)
		r = tick_clock_idle_until(clock, writer, at);
	return r == 0 ? tick_clock_begin(clock, writer, at) : r;
}

/*
 * Begins the first tick of all, before the first row. A row is some time after its tick: if a window begins in between,
 * it would seem to begin with the row, and not with the next tick.
 */
static int tick_clock_first(struct tick_clock *clock, uint32_t writer, mono_t at)
{
	int64_t since_ns = mono_diff(at, clock->first);

	if (clock->number > 0 || clock->first.ns == 0 || since_ns <= 0 ||
	    since_ns > (int64_t)(2 * clock->options->heartbeat_ns))
		return 0;
	return tick_clock_begin(clock, writer, clock->first);
}

/*
 * Makes the tick that a row at `at` belongs to the open one. again: its target has a row in this
 * writer's last tick already.
 */
static int tick_clock_reach(struct tick_clock *clock, uint32_t writer, mono_t at, bool again)
{
	const struct tick_clock_line *line = tick_clock_line(clock, writer);
	int r = tick_clock_first(clock, writer, at);
	bool open = clock->open && clock->writer == writer;
	int64_t since = mono_diff(at, line->tick);

	if (r != 0)
		return r;

	if (open && (since <= 0 || (!again && since <= (int64_t)(clock->interval.ns / 2))))
		return 0;
	return tick_clock_next(clock, writer, line->started && since < 0 ? line->tick : at);
}

/* Another stream begins, perhaps of an earlier time. */
static void tick_clock_restart(struct tick_clock *clock)
{
	for (size_t i = 0; i < WRITER_CLOCKS_MAX; i++)
		clock->lines[i].started = false;
	row_interval_reset(&clock->interval, 0);
	clock->restarts++;
}

/* ---- streams ---- */

/* Rows further from the start of their stream are nonsense, and would overflow arithmetic later. */
#define TIME_MAX_NS (3660ULL * 86400 * NS_PER_S)

/* A target of a stream. */
struct stream_target {
	uint32_t id;       /* in the stream, and in events */
	uint32_t writer;   /* whose ticks it belongs to */
	uint32_t checksum; /* of its declaration */
	bool announced;    /* and not gone */
	bool is_column;    /* STREAM_GVISOR */
	uint64_t tick;     /* number of the last one with a row of it */
	mono_t at;         /* of its last row */
};

struct recording {
	struct recording_options options;
	struct stream_reader *stream_reader;
	struct recording_summary summary;
	/* The stream that is being read. */
	uint64_t streams;
	wall_t start;
	struct sample_stream rows;
	struct stream_target *targets;
	size_t target_count, target_cap;
	struct pair_map index; /* id -> place in targets */
	struct intern columns; /* STREAM_GVISOR: names of targets; their numbers are the targets' */
	struct intern_budget columns_budget;
	struct tick_clock clock;
	mono_t until; /* the last tick; ns 0: not known */
	/* Of replay_source_play; may be NULL. */
	void (*progress)(void *ctx, uint64_t done_bytes, uint64_t size_bytes);
	uint64_t done_bytes, size_bytes;
};

static int emit_gap(struct recording *recording, uint64_t pages)
{
	struct ring_event event = tick_clock_event(&recording->clock, RING_EVENT_LAPPED, recording->clock.writer, 0);
	int r = tick_clock_end(&recording->clock);

	event.lost_pages = pages;
	recording->summary.gaps++;
	return r == 0 ? emit_event(&recording->clock, &event) : r;
}

/*
 * A hole ends with a tick, and has none within: windows that ended there are judged with that tick, as
 * the daemon did.
 */
static int tick_clock_hole(struct tick_clock *clock, uint32_t writer, const struct sampling_hole *hole)
{
	mono_t from = hole->from, to = hole->to;

	struct tick_clock_line *line = tick_clock_line(clock, writer);
	int r = tick_clock_end(clock);

	if (line->started && mono_diff(to, line->tick) <= 0)
		return r;
	if (r == 0)
		r = tick_clock_idle_until(clock, writer, from);
	if (r == 0)
		r = tick_clock_begin(clock, writer, to);
	if (r != 0)
		return r;

	struct ring_event event = tick_clock_event(clock, RING_EVENT_HOLE, writer, 0);

	event.hole = *hole;
	line->after_ns = (uint64_t)mono_diff(to, from);
	summary_add_hole(clock->summary, hole, writer);
	return emit_event(clock, &event);
}

static struct stream_target *find_target(const struct recording *recording, uint32_t id)
{
	uint32_t at;

	return pair_map_get(&recording->index, id, 0, &at) ? &recording->targets[at] : NULL;
}

/* Finds or adds it. *ret NULL: there are too many. 0 or -ENOMEM. */
static int add_target(struct recording *recording, uint32_t id, struct stream_target **ret)
{
	*ret = find_target(recording, id);
	if (*ret || recording->target_count == RECORDING_TARGETS_MAX)
		return 0;
	if (vector_reserve(&recording->targets, &recording->target_cap, recording->target_count + 1,
			   sizeof(*recording->targets)) < 0)
		return -ENOMEM;
	pair_map_put(&recording->index, id, 0, (uint32_t)recording->target_count);
	recording->targets[recording->target_count] = (struct stream_target){ .id = id };
	*ret = find_target(recording, id);
	if (!*ret)
		return -ENOMEM;
	recording->target_count++;
	return 0;
}

static int emit_target(struct recording *recording, struct stream_target *known, const struct target *target)
{
	struct ring_event event = tick_clock_event(&recording->clock, RING_EVENT_TARGET, known->writer, known->id);

	event.target = *target;
	recording->summary.targets += !known->announced;
	known->announced = true;
	return emit_event(&recording->clock, &event);
}

static int emit_gone(struct recording *recording, struct stream_target *known)
{
	struct ring_event event = tick_clock_event(&recording->clock, RING_EVENT_GONE, known->writer, known->id);

	event.reason = RING_GONE_EXITED;
	if (!known->announced)
		return 0;
	known->announced = false;
	known->checksum = 0;
	known->at = (mono_t){ 0 };
	row_interval_reset(&recording->clock.interval, known->id);
	return emit_event(&recording->clock, &event);
}

static int on_target(void *ctx, uint32_t id, const char *json, size_t len)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	uint32_t checksum = checksum_adler32(1, json, len);
	struct recording *recording = ctx;
	struct stream_target *known;
	int r = add_target(recording, id, &known);

	if (r < 0 || !known || id == 0 || (known->announced && known->checksum == checksum))
		return r;
	r = json_parse(json, len, NULL, &document, NULL);
	if (r < 0)
		return r == -ENOMEM ? r : 0;

	struct target target = target_json_read(json_root(document), id);

	known->checksum = checksum;
	known->writer = (uint32_t)target_json_number(json_root(document), "writer", UINT32_MAX);
	return emit_target(recording, known, &target);
}

/* When a row was taken. False: at an absurd time. */
static bool time_of(const struct recording *recording, uint64_t time_ns, mono_t *ret)
{
	if (time_ns > TIME_MAX_NS || recording->start.ns > INT64_MAX / 2)
		return false;
	ret->ns = recording->start.ns + time_ns + (uint64_t)recording->options.mono_ahead_ns;
	return ret->ns < INT64_MAX;
}

static int emit_sample(struct recording *recording, const struct stream_target *known, mono_t at,
		       const struct sample *sample)
{
	struct ring_event event = tick_clock_event(&recording->clock, RING_EVENT_SAMPLE, known->writer, known->id);

	event.time = at;
	event.sample = sample;
	event.changed = sample->mask;
	recording->summary.samples++;
	return emit_event(&recording->clock, &event);
}

/*
 * Rows of other targets may be up to a heartbeat ahead, those of the same one may not. known NULL:
 * the row is of all targets (STREAM_GVISOR), or of an unknown one.
 */
static bool is_late(struct recording *recording, const struct stream_target *known, uint32_t id, mono_t at)
{
	const struct tick_clock_line *line = tick_clock_line(&recording->clock, known ? known->writer : 0);
	int64_t late_ns = mono_diff(line->tick, at);

	if (!line->started || late_ns <= (int64_t)(id ? recording->clock.interval.ns : 0))
		return false;
	return !known || known->at.ns == 0 || mono_diff(known->at, at) > 0 ||
	       late_ns > (int64_t)(recording->options.heartbeat_ns + line->after_ns);
}

static int on_own_row(struct recording *recording, mono_t at, struct stream_target *known, const struct sample_row *row)
{
	const struct tick_clock_line *line;
	struct sample sample;
	int r;

	if (!known || !known->announced) {
		recording->summary.nameless++;
		return 0;
	}
	line = tick_clock_line(&recording->clock, known->writer);
	if (!recording->options.interval_is_known)
		row_interval_add_row(&recording->clock.interval, known->id, at);
	r = tick_clock_reach(&recording->clock, known->writer, at, line->started && known->tick == line->number);
	if (r != 0)
		return r;
	known->at = at;
	if (mono_diff(line->tick, at) <= (int64_t)(recording->clock.interval.ns / 2))
		known->tick = line->number;
	sample_row_sample(row, row->target, &sample);
	return emit_sample(recording, known, at, &sample);
}

static int on_gvisor_row(struct recording *recording, mono_t at, const struct sample_row *row)
{
	int r = tick_clock_next(&recording->clock, 0, at);

	for (size_t i = 0; r == 0 && i < recording->target_count; i++) {
		struct sample sample;

		sample_row_sample(row, recording->targets[i].id, &sample);
		r = emit_sample(recording, &recording->targets[i], at, &sample);
	}
	return r;
}

static int on_row(void *ctx, const struct sample_row *row)
{
	struct recording *recording = ctx;
	struct stream_target *known = row->target ? find_target(recording, row->target) : NULL;
	mono_t at;

	if (!time_of(recording, row->time_ns, &at) || is_late(recording, known, row->target, at)) {
		recording->summary.late++;
		return 0;
	}
	return row->target ? on_own_row(recording, at, known, row) : on_gvisor_row(recording, at, row);
}

/* A name is the same target in every stream. Declared targets count from 1 up: these count down. */
static int on_column_target(void *ctx, const char *name, uint32_t *ret_id)
{
	struct recording *recording = ctx;
	struct stream_target *known = NULL;
	uint32_t number;
	int r = intern_put(&recording->columns, &recording->columns_budget, name, strlen(name), &number);

	*ret_id = r == 0 ? UINT32_MAX - number : 0;
	r = r == 0 ? add_target(recording, *ret_id, &known) : r;
	if (r != 0 || !known)
		return r < 0 ? r : 0;
	known->is_column = true;
	if (known->announced)
		return 0;

	const struct target target = {
		.id = known->id,
		.kind = TARGET_PROCESS,
		.entry = name,
		.name = name,
		.key = name,
		.comm = "",
		.cmdline = "",
		.cgroup = "",
	};

	return emit_target(recording, known, &target);
}

/* Another stream has other targets, except for those of columns, which come before the start. */
static int on_start(void *ctx, wall_t start)
{
	struct recording *recording = ctx;
	int r = 0;

	recording->start = start;
	if (recording->streams++ == 0)
		return 0;

	r = emit_gap(recording, 0);
	tick_clock_restart(&recording->clock);
	for (size_t i = 0; r == 0 && i < recording->target_count; i++)
		if (!recording->targets[i].is_column)
			r = emit_gone(recording, &recording->targets[i]);
	return r;
}

static int on_gap(void *ctx)
{
	return emit_gap(ctx, 0);
}

static int on_hole(void *ctx, const struct sample_hole *hole)
{
	struct recording *recording = ctx;
	mono_t from, to;

	if (!time_of(recording, hole->from_ns, &from) || !time_of(recording, hole->to_ns, &to))
		return 0;

	struct sampling_hole found = { from, to, hole->missed_slots, hole->suspended_ns };

	return tick_clock_hole(&recording->clock, hole->writer, &found);
}

static int on_gone(void *ctx, const char *json, size_t len)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	struct recording *recording = ctx;
	struct stream_target *known;
	int r = json_parse(json, len, NULL, &document, NULL);

	if (r < 0)
		return r == -ENOMEM ? r : 0;
	known = find_target(recording, (uint32_t)target_json_number(json_root(document), "target", UINT32_MAX));
	recording->summary.gone += known && known->announced;
	return known ? emit_gone(recording, known) : 0;
}

static void on_damage(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	const struct recording *recording = ctx;

	if (recording->options.trouble)
		recording->options.trouble(recording->options.ctx, line, rows_lost, why);
}

static void on_progress(void *ctx, uint64_t bytes)
{
	struct recording *recording = ctx;

	recording->done_bytes += bytes;
	if (recording->progress)
		recording->progress(recording->options.ctx, recording->done_bytes, recording->size_bytes);
}

static void recording_free(struct recording *recording)
{
	if (!recording)
		return;

	stream_reader_free(recording->stream_reader);
	pair_map_release(&recording->index);
	intern_release(&recording->columns);
	free(recording->targets);
	free(recording);
}
CLEANUP(recording, free);

/* A stream; *options is copied. 0 or -ENOMEM. */
static int recording_new(const struct recording_options *options, struct recording **ret)
{
	AUTO(recording_freep) struct recording *recording = calloc(1, sizeof(*recording));
	int r;

	if (!recording)
		return -ENOMEM;

	recording->rows.events = (struct sample_stream_events){
		.start = on_start,
		.target = on_target,
		.column_target = on_column_target,
		.row = on_row,
		.gone = on_gone,
		.gap = on_gap,
		.hole = on_hole,
		.damage = on_damage,
		.progress = on_progress,
		.ctx = recording,
	};
	recording->options = *options;
	recording->columns_budget.max_bytes = COLUMNS_BYTES_MAX;
	recording->clock.options = &recording->options;
	recording->clock.summary = &recording->summary;
	recording->clock.interval.ns = options->interval_ns;
	r = sample_stream_reader(&recording->rows, &recording->stream_reader);
	if (r < 0)
		return r;

	*ret = TAKE(recording);
	return 0;
}

/* The end of the stream. 0; -ENOMEM; what event returned. *ret is always set. */
static int recording_finish(struct recording *recording, struct recording_summary *ret)
{
	struct stream_reader_report report;
	int r = stream_reader_finish(recording->stream_reader, &report);

	if (r == 0)
		r = tick_clock_end(&recording->clock);
	if (r == 0)
		r = tick_clock_idle_to_end(&recording->clock, recording->until);
	recording->summary.report = report;
	*ret = recording->summary;
	return r;
}

/* ---- rings ---- */

static void count_event(struct recording_summary *summary, const struct ring_event *event)
{
	switch (event->type) {
	case RING_EVENT_TICK:
		summary_add_tick(summary, event->wall);
		break;
	case RING_EVENT_SAMPLE:
		summary->samples++;
		break;
	case RING_EVENT_TARGET:
		summary->targets++;
		break;
	case RING_EVENT_GONE:
		summary->gone++;
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		summary->gaps++;
		break;
	case RING_EVENT_HOLE:
		summary_add_hole(summary, &event->hole, event->writer);
		break;
	case RING_EVENT_TICK_END:
		break;
	}
}

/* From the oldest tick up to the newest there is now. 0; -ENOMEM; what event returned. */
static int play_ring(const struct ring *ring, const struct recording_options *options, struct recording_summary *ret)
{
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = NULL;
	struct ring_event event;
	struct ring_info info;
	int r;

	*ret = (struct recording_summary){ 0 };
	ring_info(ring, &info);
	r = ring_cursor_new(ring, RING_OLDEST, &cursor);
	while (r == 0 && (r = ring_cursor_next(cursor, &event)) == 0) {
		if (event.type == RING_EVENT_TICK && mono_diff(event.time, info.last_tick) > 0)
			return 0;
		count_event(ret, &event);
		if (event.type == RING_EVENT_DAMAGED && options->trouble)
			options->trouble(options->ctx, 0, 0, "a page of the ring is damaged");
		r = options->event(options->ctx, &event);
	}
	return r == RING_EMPTY ? 0 : r;
}

/* ---- sources ---- */

/* Returns error. */
__attribute__((format(printf, 3, 4))) static int source_refuse(char *message, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, REPLAY_SOURCE_MESSAGE_MAX, format, arguments);
	va_end(arguments);
	return error;
}

/* What incident.json tells of the clocks and of the machine; it may be missing. */
static void read_description(int dirfd, struct replay_source *source)
{
	AUTO_FREE struct incident *incident = malloc(sizeof(*incident));

	if (output_incomplete(INCIDENT_FILE, incident ? incident_json_read(dirfd, incident) : -ENOMEM) < 0)
		return;
	if (incident->mono.ns > 0 && incident->mono.ns < INT64_MAX && incident->wall.ns < INT64_MAX) {
		source->has_clock = true;
		source->mono_ahead_ns = (int64_t)(incident->mono.ns - incident->wall.ns);
		if (incident->coverage.ticks_got > 0) {
			source->first_tick = mono_add(incident->mono, (uint64_t)incident->coverage.got_from_ns);
			source->last_tick = mono_add(incident->mono, (uint64_t)incident->coverage.got_to_ns);
		}
	}
	source->interval_ns = incident->cost.interval_ns;
	source->idle_ns = incident->cost.idle_ns;
	if (incident->limits.cpu_is_machine && incident->limits.cpu != UINT64_MAX)
		source->machine.cores = (double)incident->limits.cpu / (double)NS_PER_S;
	if (incident->limits.memory_is_machine && incident->limits.memory_bytes != UINT64_MAX)
		source->machine.memory_bytes = incident->limits.memory_bytes;
}

static int open_incident(int dirfd, struct replay_source *source, char *message)
{
	struct stat st;

	source->kind = "incident";
	source->fd = incident_load_open_file(dirfd, INCIDENT_SAMPLES_FILE);
	if (source->fd == -ENOENT)
		return source_refuse(message, -EINVAL,
				     "%.300s: there is no " INCIDENT_SAMPLES_FILE " in this directory", source->path);
	if (source->fd < 0)
		return source_refuse(message, source->fd, "%.300s/" INCIDENT_SAMPLES_FILE ": %s", source->path,
				     source->fd == -EBADMSG ? "is no regular file" : strerror(-source->fd));
	source->rereadable = true;
	if (fstat(source->fd, &st) == 0)
		source->size_bytes = (uint64_t)st.st_size;
	read_description(dirfd, source);
	return 0;
}

static int open_named(const char *operand, const char *directory, struct replay_source *source, char *message)
{
	AUTO_CLOSE int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO(incident_load_names_release) struct incident_load_names names = { 0 };
	AUTO_CLOSE int dirfd = -1;
	const char *name;
	int r;

	if (fd < 0 || incident_load_list(fd, &names) < 0)
		return source_refuse(message, -EINVAL, "%.200s: no such file, and no incidents in %.200s", operand,
				     directory);
	r = incident_load_find(&names, operand, &name);
	if (r == INCIDENT_LOAD_NONE)
		return source_refuse(message, -EINVAL, "%.200s: no such file, and no incident of this name in %.200s",
				     operand, directory);
	if (r == INCIDENT_LOAD_MANY)
		return source_refuse(message, -EINVAL, "%.200s: more than one incident in %.200s matches", operand,
				     directory);
	snprintf(source->path, sizeof(source->path), "%s/%s", directory, name);
	dirfd = incident_load_open(fd, name);
	if (dirfd < 0)
		return source_refuse(message, dirfd, "%.300s: %s", source->path, strerror(-dirfd));
	return open_incident(dirfd, source, message);
}

static int open_file(struct replay_source *source, const struct stat *st, char *message)
{
	int r = S_ISREG(st->st_mode) ? ring_open(AT_FDCWD, source->path, false, &source->ring) : -EBADMSG;

	if (r == -ENOMEM)
		return source_refuse(message, r, "out of memory");
	if (r == 0) {
		source->kind = "ring";
		source->rereadable = true;
		return 0;
	}
	source->fd = open(source->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (source->fd < 0)
		return source_refuse(message, -errno, "%.300s: %s", source->path, strerror(errno));
	source->rereadable = S_ISREG(st->st_mode);
	source->size_bytes = S_ISREG(st->st_mode) ? (uint64_t)st->st_size : 0;
	return 0;
}

static int open_directory(struct replay_source *source, char *message)
{
	AUTO_CLOSE int dirfd = open(source->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dirfd < 0)
		return source_refuse(message, -errno, "%.300s: %s", source->path, strerror(errno));
	return open_incident(dirfd, source, message);
}

int replay_source_open(const char *operand, const char *directory, struct replay_source *ret, char *message)
{
	struct replay_source source = { .kind = "recording", .fd = -1 };
	struct stat st;
	int r = 0;

	if ((size_t)snprintf(source.path, sizeof(source.path), "%s", operand) >= sizeof(source.path))
		return source_refuse(message, -EINVAL, "the name of a source is too long");
	if (strcmp(operand, "-") == 0) {
		source.fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
		if (source.fd < 0)
			r = source_refuse(message, -errno, "the standard input is closed");
	} else if (stat(operand, &st) == 0)
		r = S_ISDIR(st.st_mode) ? open_directory(&source, message) : open_file(&source, &st, message);
	else if (errno == ENOENT && !strchr(operand, '/'))
		r = open_named(operand, directory, &source, message);
	else
		r = source_refuse(message, -EINVAL, "%.300s: %s", operand, strerror(errno));
	if (r == 0)
		*ret = source;
	return r;
}

void replay_source_close(struct replay_source *source)
{
	if (source->fd >= 0)
		close(source->fd);
	ring_free(source->ring);
	source->fd = -1;
	source->ring = NULL;
}

int replay_source_play(struct replay_source *source, const struct recording_options *options,
		       void (*progress)(void *ctx, uint64_t done_bytes, uint64_t size_bytes),
		       struct recording_summary *ret)
{
	AUTO(recording_freep) struct recording *recording = NULL;
	struct recording_options known = *options;
	int r, finished;

	*ret = (struct recording_summary){ 0 };
	if (source->ring)
		return play_ring(source->ring, options, ret);
	if (source->interval_ns > 0) {
		known.interval_ns = source->interval_ns;
		known.interval_is_known = true;
	}
	known.idle_ns = source->idle_ns;
	if (source->has_clock)
		known.mono_ahead_ns = source->mono_ahead_ns;
	r = recording_new(&known, &recording);
	if (r < 0)
		return r;
	recording->progress = progress;
	recording->clock.first = source->first_tick;
	recording->until = source->last_tick;
	recording->size_bytes = source->size_bytes;
	r = stream_read_fd(recording->stream_reader, source->fd, UINT64_MAX);
	finished = recording_finish(recording, ret);
	return r != 0 ? r : finished;
}
