/*
 * Whatever the bytes are: they are refused, or every place in the profile is right and every string
 * within it.
 */
#include "lib/profile/pprof.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds)
{
	if (!holds)
		abort();
}

static size_t check_strings(const struct pprof_read_profile *profile)
{
	size_t sum = 0;

	for (uint32_t i = 0; i < profile->string_count; i++)
		for (size_t n = 0; n < profile->strings[i].len; n++)
			sum += (unsigned char)profile->strings[i].at[n];
	for (uint32_t i = 0; i < profile->function_count; i++)
		must(profile->functions[i].name < profile->string_count &&
		     profile->functions[i].file < profile->string_count);
	for (uint32_t i = 0; i < profile->mapping_count; i++)
		must(profile->mappings[i].file < profile->string_count &&
		     profile->mappings[i].build_id < profile->string_count);
	return sum;
}

static void check_sample(const struct pprof_read_profile *profile, const struct pprof_read_sample *sample)
{
	must(sample->frame_first + sample->frame_count <= profile->frame_count);
	must(sample->label_first + sample->label_count <= profile->label_count);
	for (uint32_t i = 0; i < sample->frame_count; i++)
		must(profile->frames[sample->frame_first + i] < profile->location_count);
	pprof_read_label(profile, sample, "phase");
}

static void check_location(const struct pprof_read_profile *profile, const struct pprof_read_location *location)
{
	must(location->mapping <= profile->mapping_count);
	must(location->line_first + location->line_count <= profile->line_count);
	for (uint32_t i = 0; i < location->line_count; i++)
		must(profile->lines[location->line_first + i].function <= profile->function_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct pprof_read_options options = { .bytes_max = 1 << 20, .memory_max = 16 << 20 };
	const struct pprof_read_profile *profile;
	struct pprof_read *reader;

	if (pprof_read_new(data, size, &options, &reader) < 0)
		return 0;
	profile = pprof_read_profile(reader);
	if (check_strings(profile) == 1)
		must(profile->string_count > 1);
	for (uint32_t i = 0; i < profile->sample_count; i++)
		check_sample(profile, &profile->samples[i]);
	for (uint32_t i = 0; i < profile->location_count; i++)
		check_location(profile, &profile->locations[i]);
	must(pprof_read_value(profile, "cpu", NULL) < (int)profile->type_count);
	pprof_read_free(reader);
	return 0;
}
