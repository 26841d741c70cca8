/*
 * profile_counts.h: what a profile holds, added up from its insides: it includes the module itself.
 */
#ifndef SPIKEWATCH_PROFILE_COUNTS_H
#define SPIKEWATCH_PROFILE_COUNTS_H

#include "lib/profile/profile.c"

#include <stdint.h>

/* Samples: page faults in a profile of memory. */
struct profile_counts {
	uint64_t samples_before, samples_during; /* "(other)" included */
	uint64_t samples_other;                  /* merged into "(other)" */
	uint64_t stacks;                         /* different ones, without "(other)" */
	uint64_t bytes;                          /* of memory */
};

static inline struct profile_counts profile_counts(const struct stack_profile *profile)
{
	const struct stack_profile_tally *other = &profile->other;
	struct profile_counts counts = {
		.samples_before = other->samples[FUNCTION_TABLE_BEFORE],
		.samples_during = other->samples[FUNCTION_TABLE_DURING],
		.samples_other = other->samples[FUNCTION_TABLE_BEFORE] + other->samples[FUNCTION_TABLE_DURING],
		.stacks = profile->stacks.count,
		.bytes = profile->budget.used_bytes,
	};

	for (uint32_t i = 0; i < profile->stacks.count; i++) {
		counts.samples_before += profile->tallies[i].samples[FUNCTION_TABLE_BEFORE];
		counts.samples_during += profile->tallies[i].samples[FUNCTION_TABLE_DURING];
	}
	return counts;
}

#endif
