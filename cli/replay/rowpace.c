/*
 * rowpace.c: the shortest mean distance of some rows of one target, of one after the other. Single ticks come late and the next one early,
 * so the shortest distance of two rows says nothing.
 */
#include "rowpace.h"

/* Rates beyond it are not configurable. */
#define INTERVAL_MIN_NS (100 * NS_PER_US)

/* Enough for a tick that is late by an interval to change it by a thirtieth. */
#define ROWS 32

void rowpace_row(struct rowpace *pace, uint32_t target, mono_t at)
{
	uint64_t mean;

	if (pace->rows > 0 && pace->target != target)
		return;
	if (pace->rows++ == 0) {
		pace->target = target;
		pace->from = at;
	}
	if (pace->rows <= ROWS)
		return;

	mean = mono_diff(at, pace->from) > 0 ? (uint64_t)mono_diff(at, pace->from) / ROWS : 0;
	pace->rows = 0;
	if (mean >= INTERVAL_MIN_NS && mean < pace->interval_ns)
		pace->interval_ns = mean;
}

void rowpace_lose(struct rowpace *pace, uint32_t target)
{
	if (target == 0 || target == pace->target)
		pace->rows = 0;
}
