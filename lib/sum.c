/*
 * sum.c: moved by differences, so that a member that did not change costs nothing.
 *
 * A counter contributes the growth of the highest value seen: the kernel's CPU counters step back by a little at times, and
 * catching up must not be counted again. That a counter restarts does not happen to a process.
 */
#include "sum.h"

#define COUNTERS SUM_COUNTERS

static const uint8_t fields[SUM_FIELDS] = {
	SAMPLE_CPU,          SAMPLE_CPU_USER, SAMPLE_CPU_SYSTEM, SAMPLE_MINOR_FAULTS,
	SAMPLE_MAJOR_FAULTS, SAMPLE_MEMORY,   SAMPLE_THREADS,    SAMPLE_FDS,
};

static uint64_t counter_of(const struct sample *sample, int i)
{
	return sample_has(sample, (enum sample_field)fields[i]) ? sample->value[fields[i]] : 0;
}

void sum_keep(struct sum_counters *kept, const struct sample *sample)
{
	for (int i = 0; i < COUNTERS; i++)
		kept->value[i] = counter_of(sample, i);
	kept->mask = sample->mask;
}

void sum_kept(const struct sum_counters *kept, struct sample *ret)
{
	for (int i = 0; i < COUNTERS; i++)
		if (kept->mask >> fields[i] & 1)
			sample_set(ret, (enum sample_field)fields[i], kept->value[i]);
}

void sum_begin(struct sum_part *part, const struct sample *since, const struct sample *now)
{
	for (int i = 0; i < COUNTERS; i++)
		part->value[i] = counter_of(sample_has(since, (enum sample_field)fields[i]) ? since : now, i);
}

void sum_join(struct sum *sum, struct sum_part *part, const struct sample *now, bool begun)
{
	for (int i = 0; i < COUNTERS && !begun; i++)
		part->value[i] = counter_of(now, i);
	for (int i = COUNTERS; i < SUM_FIELDS; i++)
		part->value[i] = 0;
	part->mask = 0;
	sum->members++;
	sum_update(sum, part, now);
}

void sum_update(struct sum *sum, struct sum_part *part, const struct sample *now)
{
	for (int i = 0; i < SUM_FIELDS; i++) {
		uint32_t had = part->mask >> fields[i] & 1;
		uint32_t has = now->mask >> fields[i] & 1;
		uint64_t value = has ? now->value[fields[i]] : 0;

		if (i < COUNTERS && value < part->value[i])
			value = part->value[i];
		sum->value[i] += value - part->value[i];
		sum->have[i] += has - had;
		part->value[i] = value;
	}
	part->mask = now->mask;
	sum->seen |= now->mask;
	sum->changed = true;
}

void sum_leave(struct sum *sum, struct sum_part *part)
{
	static const struct sample nothing = { 0 };

	sum_update(sum, part, &nothing);
	sum->members--;
}

void sum_credit(struct sum *sum, const uint64_t counters[SUM_COUNTERS])
{
	for (int i = 0; i < COUNTERS; i++) {
		sum->value[i] += counters[i];
		if (counters[i] > 0)
			sum->seen |= 1u << fields[i];
	}
	sum->changed = true;
}

void sum_sample(struct sum *sum, struct sample *ret)
{
	ret->mask = 0;
	for (int i = 0; i < SUM_FIELDS; i++) {
		bool seen = sum->seen >> fields[i] & 1;

		if (seen && (i < COUNTERS || sum->have[i] == sum->members))
			sample_set(ret, (enum sample_field)fields[i], sum->value[i]);
	}
	sample_set(ret, SAMPLE_PROCESSES, sum->members);
	sum->changed = false;
}
