/* ring_targets.h: the last description of each target on a ring, as a reader from its oldest page learns it. */
#ifndef SPIKEWATCH_TESTS_RING_TARGETS_H
#define SPIKEWATCH_TESTS_RING_TARGETS_H

#include "lib/model/target.h"
#include "lib/ring/ring.h"

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define RING_TARGETS_MAX 64 /* ids below */

struct ring_targets {
	struct {
		size_t len; /* 0: unknown, or gone */
		uint64_t encoded[TARGET_ENCODED_MAX / 8];
	} of[RING_TARGETS_MAX];
};

static inline void ring_targets_read(const struct ring *from, struct ring_targets *ret)
{
	struct ring_cursor *reader = NULL;
	struct ring_event event;

	memset(ret, 0, sizeof(*ret));
	ck_assert_int_eq(ring_cursor_new(from, RING_OLDEST, &reader), 0);
	while (ring_cursor_next(reader, &event) == 0)
		if (event.type == RING_EVENT_TARGET && event.id < RING_TARGETS_MAX)
			ret->of[event.id].len =
				target_encode(&event.target, ret->of[event.id].encoded, TARGET_ENCODED_MAX);
		else if (event.type == RING_EVENT_GONE && event.id < RING_TARGETS_MAX)
			ret->of[event.id].len = 0;
	ring_cursor_free(reader);
}

/* False: there is none of this id. The strings of *ret are those of targets. */
static inline bool ring_targets_find(const struct ring_targets *targets, uint32_t id, struct target *ret)
{
	if (targets->of[id].len == 0)
		return false;
	ck_assert_int_eq(target_decode(targets->of[id].encoded, targets->of[id].len, ret), 0);
	ret->id = id;
	return true;
}

#endif
