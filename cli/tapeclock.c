/*
 * tapeclock.c: rows to ticks.
 *
 * A row begins a new tick if its target has had one in this tick already, or if it comes more than half an interval after the tick began, or if the
 * row before it is another writer's: a ring is read tick by tick. The time of a tick is that of its first row: later than the real one by what it took to
 * look at that target, which is microseconds. For the evaluator a target that was sampled in a tick was seen at its row's time, whatever
 * the tick's (watch.c): so the lengths of windows between rows are exact.
 *
 * A target that wakes has two rows, of its last look before and of this one: the former comes late, after rows of others. It belongs to the last tick
 * there was, which is begun once more if another writer's came in between.
 *
 * A target that does not change has a row per heartbeat. Where no row of a writer came for longer than two of them it did not look: no ticks are
 * made up there, and the evaluator sees what it would have seen, a sampler that stalled. That bounds the ticks made up per row. They are
 * made up when the writer's next row comes, so after ticks of others that are later.
 *
 * Rejected: ticks at the ends of windows exactly. The row of the tick that really ended the window comes a moment later, and the window
 * would be judged with the sample before it. Ticks of all writers together: one that stalls would have looked at what it did not see.
 */
#include "tapeclock.h"

struct ring_event tapeclock_event(struct tapeclock *clock, enum ring_event_type type, uint32_t writer, uint32_t id)
{
	const struct tapeclock_line *line = tapeclock_line(clock, writer);

	return (struct ring_event){
		.type = type, .time = line->tick, .tick = line->number, .writer = writer, .id = id
	};
}

static int hand_over(const struct tapeclock *clock, const struct ring_event *event)
{
	return clock->options->event(clock->options->ctx, event);
}

int tapeclock_end(struct tapeclock *clock)
{
	const struct ring_event event = tapeclock_event(clock, RING_EVENT_TICK_END, clock->writer, 0);

	if (!clock->open)
		return 0;
	clock->open = false;
	return hand_over(clock, &event);
}

static int begin(struct tapeclock *clock, uint32_t writer, mono_t at)
{
	struct tapeclock_line *line = tapeclock_line(clock, writer);
	bool once_more = line->started && line->tick.ns == at.ns;

	*line = (struct tapeclock_line){ .started = true, .tick = at, .number = ++clock->number };
	clock->open = true;
	clock->writer = writer;

	struct ring_event event = tapeclock_event(clock, RING_EVENT_TICK, writer, 0);

	event.wall = (wall_t){ at.ns - (uint64_t)clock->options->mono_ahead_ns };
	event.idle_ns = clock->options->idle_ns;
	tape_summary_tick(clock->summary, event.wall);
	clock->summary->ticks -= once_more;
	return hand_over(clock, &event);
}

/* A tick in which nothing changed. */
static int pass(struct tapeclock *clock, uint32_t writer, mono_t at)
{
	int r = begin(clock, writer, at);

	return r == 0 ? tapeclock_end(clock) : r;
}

/* Ticks in which nothing changed, from the last one up to the one that begins at `at`. */
static int pass_time(struct tapeclock *clock, uint32_t writer, mono_t at)
{
	const struct tapeclock_line *line = tapeclock_line(clock, writer);
	uint64_t step = clock->pace.interval_ns;
	int r = 0;

	if (!line->started || mono_diff(at, line->tick) > (int64_t)(2 * clock->options->heartbeat_ns))
		return 0;
	while (r == 0 && mono_diff(at, line->tick) > (int64_t)(step + step / 2))
		r = pass(clock, writer, mono_add(line->tick, step));
	return r;
}

int tapeclock_next(struct tapeclock *clock, uint32_t writer, mono_t at)
{
	int r = tapeclock_end(clock);

	/* Another stream may be of earlier. An empty tick tells the evaluator, which then forgets what it has seen: not yet the first sample. */
	if (r == 0 && !tapeclock_line(clock, writer)->started && clock->restarts > 0)
		r = pass(clock, writer, mono_sub(at, clock->pace.interval_ns));
	if (r == 0)
		r = pass_time(clock, writer, at);
	return r == 0 ? begin(clock, writer, at) : r;
}

int tapeclock_reach(struct tapeclock *clock, uint32_t writer, mono_t at, bool again)
{
	const struct tapeclock_line *line = tapeclock_line(clock, writer);
	bool open = clock->open && clock->writer == writer;
	int64_t since = mono_diff(at, line->tick);

	if (open && (since <= 0 || (!again && since <= (int64_t)(clock->pace.interval_ns / 2))))
		return 0;
	return tapeclock_next(clock, writer, line->started && since < 0 ? line->tick : at);
}

void tapeclock_restart(struct tapeclock *clock)
{
	for (size_t i = 0; i < TIMELINES_MAX; i++)
		clock->lines[i].started = false;
	rowpace_lose(&clock->pace, 0);
	clock->restarts++;
}
