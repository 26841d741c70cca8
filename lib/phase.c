/*
 * phase.c: whoever counts 160 things of a thousand in each stretch has one sample in every sixth, instead of none at all. Nothing is lost: what all
 * samples stand for and what is carried is what was counted.
 *
 * A stretch keeps the period it began with, for there is no changing it without a sample: after an early first sample the next are as early. So
 * the period is no shorter than a quarter, unless the stretch before was shorter than that, and no shorter than a sixteenth in any case: a stretch
 * that turns out to have many things has that many more samples. What is carried beyond two periods, by stretches that are too short even
 * so, is forgotten: it would be too much for whoever comes next.
 */
#include "phase.h"

#define PART_MIN 4
#define PART_LEAST 16
#define CARRY_MAX 2

uint64_t phase_period(const struct phase *phase)
{
	uint64_t least = phase->counted / 2;

	if (least > phase->period / PART_MIN)
		least = phase->period / PART_MIN;
	if (least < phase->period / PART_LEAST)
		least = phase->period / PART_LEAST;
	least += least == 0;
	return phase->carry + least < phase->period ? phase->period - phase->carry : least;
}

uint64_t phase_end(struct phase *phase, uint64_t period, uint64_t counted)
{
	uint64_t samples = counted / period, stood_for;

	phase->counted = counted;
	if (samples == 0) {
		phase->carry += counted;
		if (phase->carry > CARRY_MAX * phase->period)
			phase->carry = CARRY_MAX * phase->period;
		return 0;
	}
	stood_for = phase->carry + samples * period;
	phase->carry = stood_for % samples + counted % period;
	return stood_for / samples;
}
