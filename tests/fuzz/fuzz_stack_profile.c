/*
 * The bytes are calls: each is what to do, and with which of the last numbers and names. Whatever
 * it is, samples are neither lost nor invented, memory stays within the limit, and all three forms
 * can be written.
 */
#include "tests/support/profile_counts.h"
#include "lib/base/io.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX 4000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is left of the input; after the end it is zeros. */
struct input {
	const uint8_t *data;
	size_t len;
};

static uint8_t byte(struct input *input)
{
	if (input->len == 0)
		return 0;
	input->len--;
	return *input->data++;
}

/* A name of up to fifteen bytes, or none. */
static const char *name(struct input *input, char ret[static 16])
{
	size_t len = byte(input) % 16;

	for (size_t i = 0; i < len; i++)
		ret[i] = (char)byte(input);
	ret[len] = '\0';
	return len == 15 ? NULL : ret;
}

static void add_mapping(struct stack_profile *profile, struct input *input)
{
	char path[16];
	struct stack_profile_mapping mapping = { .start = byte(input),
						 .end = byte(input),
						 .build_id_len = byte(input) };
	uint32_t number;

	mapping.path = name(input, path);
	mapping.build_id[0] = byte(input);
	if (stack_profile_mapping(profile, &mapping, &number) < 0)
		abort();
}

static void add_frame(struct stack_profile *profile, struct input *input)
{
	char function[16], file[16];
	struct stack_profile_line lines[3] = { { name(input, function), name(input, file), byte(input) } };
	struct stack_profile_frame frame = { .mapping = byte(input), .address = byte(input), .lines = lines };
	uint32_t number;
	int rc;

	lines[1] = lines[2] = lines[0];
	frame.line_count = byte(input) % 4;
	rc = stack_profile_frame(profile, &frame, &number);
	if (rc < 0 && frame.mapping == 0)
		abort();
}

/* Returns how many samples it stands for. */
static uint64_t add_sample(struct stack_profile *profile, struct input *input)
{
	char process[16], thread[16], cgroup[16];
	uint32_t frames[8];
	struct stack_profile_sample sample = { .time_ns = byte(input), .tid = byte(input), .count = byte(input) };

	sample.process = name(input, process);
	sample.thread = name(input, thread);
	sample.cgroup = name(input, cgroup);
	sample.frames = frames;
	sample.frame_count = byte(input) % 9;
	sample.weight = sample.count * 1000000;
	for (size_t i = 0; i < sample.frame_count; i++)
		frames[i] = byte(input);
	return stack_profile_add(profile, &sample) >= 0 ? sample.count : 0;
}

static void write_all(const struct stack_profile *profile)
{
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);

	if (stack_profile_write_pprof(profile, &sink) != 0 || stack_profile_write_folded(profile, &sink) != 0 ||
	    stack_profile_write_functions(profile, &sink) != 0)
		abort();
	buffer_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = { data, size };
	struct stack_profile_options options = { .spike_from_ns = 100,
						 .stacks_max = byte(&input),
						 .bytes_max = BYTES_MAX };
	/* Of the other bytes none is changed: the corpus keeps what it found. */
	bool memory = size > 0 && data[size - 1] % 2;
	struct profile_counts counts;
	struct stack_profile *profile = NULL;
	uint64_t samples = 0;

	options.quantity = memory ? STACK_PROFILE_MEMORY : STACK_PROFILE_CPU;
	if (stack_profile_new(&options, &profile) != 0)
		abort();
	while (input.len > 0) {
		switch (byte(&input) % 3) {
		case 0:
			add_mapping(profile, &input);
			break;
		case 1:
			add_frame(profile, &input);
			break;
		default:
			samples += add_sample(profile, &input);
		}
	}
	counts = profile_counts(profile);
	if (counts.samples_before + counts.samples_during != samples || counts.bytes > BYTES_MAX)
		abort();
	write_all(profile);
	stack_profile_free(profile);
	return 0;
}
