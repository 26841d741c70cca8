/*
 * rowpace.h: how often a sampler looked, told by the rows that it left: where a target is busy it has one in every tick. Pure.
 */
#ifndef SPIKEWATCH_ROWPACE_H
#define SPIKEWATCH_ROWPACE_H

#include "clock.h"

#include <stdint.h>

/* Start with {.interval_ns = ...}: the longest that it can be; read interval_ns, the rest is this module's. */
struct rowpace {
	uint64_t interval_ns;
	uint32_t target;
	uint64_t rows;
	mono_t from;
};

/* A row of a target. */
void rowpace_row(struct rowpace *pace, uint32_t target, mono_t at);

/* No more rows of it, or of any if 0. */
void rowpace_lose(struct rowpace *pace, uint32_t target);

#endif
