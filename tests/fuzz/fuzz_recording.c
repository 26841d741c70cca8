/*
 * Whatever a stream says, its ticks are whole, one after the other, and samples are within the
 * ticks of their own writer.
 */
#include "cli/replay/recording.c"
#include "lib/evaluator/evaluator.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "stream_feed.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define EVENTS_MAX 200000

struct seen {
	uint64_t events, samples, ticks;
	bool open;
	uint32_t writer;
};

static void expect(bool what)
{
	if (!what)
		abort();
}

static int on_event(void *ctx, const struct ring_event *event)
{
	struct seen *seen = ctx;

	switch (event->type) {
	case RING_EVENT_TICK:
		expect(!seen->open);
		seen->open = true;
		seen->writer = event->writer;
		seen->ticks++;
		break;
	case RING_EVENT_TICK_END:
		expect(seen->open && seen->writer == event->writer);
		seen->open = false;
		break;
	case RING_EVENT_SAMPLE:
		expect(seen->open && writer_clocks_of(seen->writer) == writer_clocks_of(event->writer) &&
		       event->sample);
		seen->samples++;
		break;
	case RING_EVENT_TARGET:
		expect(event->target.id == event->id && event->target.name && event->target.key);
		break;
	case RING_EVENT_GONE:
		break;
	case RING_EVENT_HOLE:
		expect(seen->open && event->hole.missed_slots > 0 && event->hole.from.ns < event->hole.to.ns);
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		expect(!seen->open);
		break;
	}
	return ++seen->events == EVENTS_MAX ? -ECANCELED : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct seen seen = { 0 };
	const struct recording_options options = {
		.interval_ns = 10 * NS_PER_MS, .heartbeat_ns = NS_PER_S, .event = on_event, .ctx = &seen
	};
	struct recording_summary summary;
	struct recording *recording;

	if (recording_new(&options, &recording) < 0)
		abort();

	int fed = stream_feed(recording->stream_reader, (const char *)data, size);
	int finished = recording_finish(recording, &summary);

	expect((fed == 0 || fed == -ECANCELED) && finished == fed);
	expect(fed < 0 || (!seen.open && summary.samples == seen.samples && summary.ticks <= seen.ticks));
	expect(summary.any == (seen.ticks > 0) && (!summary.any || summary.from.ns <= summary.to.ns));
	recording_free(recording);
	return 0;
}
