/*
 * fuzz_symbolize.c: a stack file as spikewatch-symbolize sees it, whole: its tables, its records,
 * what was mapped when, the profile. No binaries are handed over: of descriptors in the file
 * nothing is believed here, for they would be ours.
 */
#include "daemon/symbolize/symbolize.h"
#include "tests/support/profile_counts.h"
#include "lib/profile/stack_file.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The second of two runs counts what one alone did. */
static void run_twice(const struct stack_file *file, const struct symbolize_counts *once)
{
	struct modules *kept = NULL;
	struct symbolize_options options = { .vdso = -1, .kept = &kept, .is_first = true };
	struct symbolize_counts counts;
	struct stack_profile *profiles[SYMBOLIZE_PROFILES];
	int r = symbolize_run(file, &options, NULL, NULL);

	options.is_first = false;
	if (r == 0 && symbolize_run(file, &options, profiles, &counts) == 0) {
		assert(memcmp(&counts, once, sizeof(counts)) == 0);
		for (size_t i = 0; i < SYMBOLIZE_PROFILES; i++)
			stack_profile_free(profiles[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct symbolize_options options = { .vdso = -1 };
	struct symbolize_counts counts;
	struct stack_profile *profiles[SYMBOLIZE_PROFILES];
	struct profile_counts sums;
	struct stack_file file;
	uint8_t *copy = malloc(size > 0 ? size : 1);

	if (copy == NULL)
		return 0;
	if (size > 0)
		memcpy(copy, data, size);
	if (stack_file_parse(copy, size, &file) == 0) {
		struct stack_file_binary *binaries = (struct stack_file_binary *)(uintptr_t)file.binaries;

		for (uint32_t i = 0; i < file.head->binaries; i++)
			binaries[i].fd = -1;
		if (symbolize_run(&file, &options, profiles, &counts) == 0) {
			sums = profile_counts(profiles[STACK_PROFILE_CPU]);
			assert(sums.samples_before + sums.samples_during == counts.samples);
			assert(counts.frames_named <= counts.frames && counts.frames_kernel <= counts.frames);
			assert(counts.samples_without_stack <= counts.samples + counts.samples_of_faults);
			sums = profile_counts(profiles[STACK_PROFILE_MEMORY]);
			assert(sums.samples_before + sums.samples_during == counts.faults);
			for (size_t i = 0; i < SYMBOLIZE_PROFILES; i++)
				stack_profile_free(profiles[i]);
			run_twice(&file, &counts);
		}
	}
	free(copy);

	return 0;
}
