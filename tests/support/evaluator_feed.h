/*
 * evaluator_feed.h: the events of a ring for an evaluator, made by hand. They are of writer 0,
 * which says nothing of pauses; those of others are made with feed_..._by.
 */
#ifndef SPIKEWATCH_EVALUATOR_FEED_H
#define SPIKEWATCH_EVALUATOR_FEED_H

#include "lib/evaluator/evaluator.h"

struct feed_writer {
	uint32_t number;
	uint64_t idle_ns; /* its longest pause between two looks at a target, as its ticks say; 0: they do not */
};

static inline int feed_target_by(struct evaluator *evaluator, struct feed_writer writer, const struct target *target)
{
	const struct ring_event event = { .type = RING_EVENT_TARGET, .writer = writer.number, .target = *target };

	return evaluator_event(evaluator, &event);
}

static inline int feed_target(struct evaluator *evaluator, const struct target *target)
{
	return feed_target_by(evaluator, (struct feed_writer){ 0 }, target);
}

static inline void feed_sample_by(struct evaluator *evaluator, struct feed_writer writer, uint32_t id, mono_t at,
				  const struct sample *sample)
{
	struct ring_event event;

	event.type = RING_EVENT_SAMPLE;
	event.time = at;
	event.writer = writer.number;
	event.id = id;
	event.sample = sample;
	evaluator_event(evaluator, &event);
}

static inline void feed_sample(struct evaluator *evaluator, uint32_t id, mono_t at, const struct sample *sample)
{
	feed_sample_by(evaluator, (struct feed_writer){ 0 }, id, at, sample);
}

static inline void feed_gone(struct evaluator *evaluator, uint32_t id)
{
	const struct ring_event event = { .type = RING_EVENT_GONE, .id = id };

	evaluator_event(evaluator, &event);
}

/* A tick that begins and ends after its samples. */
static inline int feed_tick_by(struct evaluator *evaluator, struct feed_writer writer, mono_t now, wall_t wall)
{
	struct ring_event event = {
		.type = RING_EVENT_TICK, .time = now, .wall = wall, .writer = writer.number, .idle_ns = writer.idle_ns
	};

	evaluator_event(evaluator, &event);
	event.type = RING_EVENT_TICK_END;
	return evaluator_event(evaluator, &event);
}

static inline int feed_tick(struct evaluator *evaluator, mono_t now, wall_t wall)
{
	return feed_tick_by(evaluator, (struct feed_writer){ 0 }, now, wall);
}

static inline void feed_gap(struct evaluator *evaluator)
{
	const struct ring_event event = { .type = RING_EVENT_LAPPED };

	evaluator_event(evaluator, &event);
}

static inline int feed_add_reasons(void *ctx, const struct evaluator_status *status)
{
	for (unsigned i = 0; i < TRIGGER_REASONS; i++)
		*(uint64_t *)ctx += status->reasons[i];
	return 0;
}

/* Windows that were judged so far, of the targets that are known. */
static inline uint64_t feed_judged(const struct evaluator *evaluator)
{
	uint64_t sum = 0;

	evaluator_visit(evaluator, feed_add_reasons, &sum);
	return sum;
}

#endif
