/* timelines.c: a row of counters for each line. */
#include "timelines.h"

#include <errno.h>
#include <stdlib.h>

static uint64_t *ended_at(const struct timelines *timelines, const struct watch_plan *plan, uint32_t line, size_t g)
{
	return &timelines->ended[line * plan->length_count + g];
}

int timelines_init(struct timelines *timelines, const struct watch_plan *plan)
{
	uint64_t *ended = calloc(TIMELINES_MAX * plan->length_count + 1, sizeof(*ended));

	if (!ended)
		return -ENOMEM;

	*timelines = (struct timelines){ .ended = ended };
	return 0;
}

void timelines_release(struct timelines *timelines)
{
	free(timelines->ended);
	*timelines = (struct timelines){ 0 };
}

bool timelines_step(struct timelines *timelines, const struct watch_plan *plan, uint32_t line, mono_t now)
{
	struct timeline *at = &timelines->lines[line];
	bool back = at->started && mono_diff(now, at->now) < 0;

	if (!at->started || back)
		for (size_t g = 0; g < plan->length_count; g++)
			*ended_at(timelines, plan, line, g) = (now.ns - 1) / plan->lengths_ns[g];
	*at = (struct timeline){ true, now };
	return !back;
}

bool timelines_end(struct timelines *timelines, const struct watch_plan *plan, uint32_t line, size_t g)
{
	uint64_t *ended = ended_at(timelines, plan, line, g);
	uint64_t before = *ended;

	*ended = timelines->lines[line].now.ns / plan->lengths_ns[g];
	return *ended != before;
}

void timelines_inherit(struct timelines *next, const struct watch_plan *next_plan, const struct timelines *old,
		       const struct watch_plan *plan, const size_t *lengths)
{
	for (uint32_t line = 0; line < TIMELINES_MAX; line++) {
		next->lines[line] = old->lines[line];
		for (size_t g = 0; g < next_plan->length_count; g++)
			*ended_at(next, next_plan, line, g) =
				lengths[g] != SIZE_MAX ? *ended_at(old, plan, line, lengths[g])
						       : old->lines[line].now.ns / next_plan->lengths_ns[g];
	}
}
