/*
 * check_profile.c: samples are summed up by process, thread and frames, before and during; folded
 * stacks and the table of functions to the letter; the limits; hostile names; every failing
 * allocation and write. The form of pprof to the byte.
 */
#include "profile_counts.h"
#include "torture.h"
#include "unpacked.h"

#include <check.h>

#define MS UINT64_C(1000000)
#define SPIKE 1000

static const struct stack_profile_options usual = {
	.fired_ns = SPIKE + 100,
	.wall_ns = UINT64_C(1795144502123000000),
	.from_ns = 0,
	.to_ns = SPIKE + 500,
	.spike_from_ns = SPIKE,
	.period_ns = 10,
};

static int frame(struct stack_profile *profile, uint32_t mapping, uint64_t address, const char *name, uint32_t *ret)
{
	const struct stack_profile_line line = { name, NULL, 0 };
	const struct stack_profile_frame frame = { mapping, address, &line, 1 };

	return stack_profile_frame(profile, &frame, ret);
}

/* A stack of functions without mappings, one letter each, leaf first. */
static int add(struct stack_profile *profile, uint64_t time_ns, int32_t tid, const char *stack, uint64_t count)
{
	uint32_t frames[600];
	struct stack_profile_sample sample = {
		.time_ns = time_ns,
		.pid = 1,
		.tid = tid,
		.process = "p",
		.thread = "t",
		.frames = frames,
		.count = count,
		.weight = count * 10,
	};
	int rc = 0;

	for (; *stack && rc >= 0 && sample.frame_count < ARRAY_LEN(frames); stack++)
		rc = frame(profile, 0, (uint64_t)*stack, (char[]){ *stack, '\0' }, &frames[sample.frame_count++]);
	return rc < 0 ? rc : stack_profile_add(profile, &sample);
}

static void writes(int (*write_to)(const struct stack_profile *profile, const struct sink *sink),
		   const struct stack_profile *profile, const char *text)
{
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);

	ck_assert_int_eq(write_to(profile, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, text);
	buffer_release(&out);
}

static void counts_are(const struct stack_profile *profile, uint64_t before, uint64_t during, uint64_t other)
{
	struct profile_counts counts;

	counts = profile_counts(profile);
	ck_assert_uint_eq(counts.samples_before, before);
	ck_assert_uint_eq(counts.samples_during, during);
	ck_assert_uint_eq(counts.samples_other, other);
}

START_TEST(the_same_has_the_same_number)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	struct stack_profile_mapping mapping = {
		.start = 1, .end = 9, .path = "/a", .build_id = { 7 }, .build_id_len = 1
	};
	uint32_t a, b, c, d;

	ck_assert_int_eq(stack_profile_new(&usual, &profile), 0);
	ck_assert_int_eq(stack_profile_mapping(profile, &mapping, &a), 0);
	ck_assert_int_eq(stack_profile_mapping(profile, &mapping, &b), 0);
	ck_assert_uint_eq(a, b);
	mapping.build_id[1] = 3; /* not part of it */
	ck_assert_int_eq(stack_profile_mapping(profile, &mapping, &b), 0);
	ck_assert_uint_eq(a, b);
	mapping.build_id[0] = 8;
	ck_assert_int_eq(stack_profile_mapping(profile, &mapping, &b), 0);
	ck_assert_uint_ne(a, b);
	ck_assert_int_eq(frame(profile, a, 5, "f", &c), 0);
	ck_assert_int_eq(frame(profile, a, 5, "f", &d), 0);
	ck_assert_uint_eq(c, d);
	ck_assert_int_eq(frame(profile, b, 5, "f", &d), 0);
	ck_assert_uint_ne(c, d);
	ck_assert_int_eq(frame(profile, a, 6, "f", &d), 0);
	ck_assert_uint_ne(c, d);
	ck_assert_int_eq(frame(profile, 3, 5, "f", &d), -EINVAL);
}
END_TEST

#define MEMORY_CASE 3

/*
 * Samples that are added to a new profile, and what it says of them. Of memory they are 10 bytes
 * each (add).
 */
static const struct profile_case {
	enum stack_profile_quantity quantity;
	size_t stacks_max; /* 0: the usual limit */
	struct {
		uint64_t time_ns;
		int32_t tid;
		const char *stack;
		uint64_t count;
		bool full; /* there is no room for its stack */
	} samples[5];
	uint64_t before, during, other;
	size_t stacks;
	const char *folded, *functions;
} profile_cases[] = {
	{
		/* Samples before the spike and during it are told apart. */
		.samples = { { SPIKE - 1, 1, "fm", .count = 3 },
			     { SPIKE, 1, "fm", .count = 4 },
			     { UINT64_MAX, 2, "fm", .count = 5 },
			     { 0, 1, "m", .count = 6 } },
		.before = 9,
		.during = 9,
		.stacks = 3,
		.folded = "p;m 6\np;m;f 12\n",
		.functions = FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 9, 9\n"
						   "f\t\t3\t3\t9\t9\t0.000\tt\t2\t5\tp\t1\n"
						   "m\t\t6\t9\t0\t9\t0.000\tt\t2\t5\tp\t1\n"
						   "\t\t0\t0\t5\t5\t0.000\tt\t2\t5\tp\t1\n"
						   "\t\t9\t9\t4\t4\t0.000\tt\t1\t4\tp\t1\n",
	},
	{
		/* The top thread does not depend on the order of the samples. */
		.samples = { { SPIKE, 1, "fm", .count = 2 },
			     { SPIKE, 2, "fm", .count = 3 },
			     { SPIKE, 1, "fn", .count = 2 },
			     { SPIKE, 3, "f", .count = 1 } },
		.during = 8,
		.stacks = 4,
		.folded = "p;f 1\np;m;f 5\np;n;f 2\n",
		.functions = FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 0, 8\n"
						   "f\t\t0\t0\t8\t8\t0.000\tt\t1\t4\tp\t1\n"
						   "m\t\t0\t0\t0\t5\t0.000\tt\t2\t3\tp\t1\n"
						   "n\t\t0\t0\t0\t2\t0.000\tt\t1\t2\tp\t1\n"
						   "\t\t0\t0\t4\t4\t0.000\tt\t1\t4\tp\t1\n"
						   "\t\t0\t0\t3\t3\t0.000\tt\t2\t3\tp\t1\n"
						   "\t\t0\t0\t1\t1\t0.000\tt\t3\t1\tp\t1\n",
	},
	{
		/* Stacks beyond the limit are counted as others. */
		.stacks_max = 2,
		.samples = { { 0, 1, "a", .count = 1 },
			     { 0, 1, "ba", .count = 1 },
			     { 0, 1, "ca", .count = 10, .full = true },
			     { SPIKE, 1, "da", .count = 20, .full = true },
			     { SPIKE, 1, "ba", .count = 4 } },
		.before = 12,
		.during = 24,
		.other = 30,
		.stacks = 2,
		.folded = "(other);(other) 30\np;a 1\np;a;b 5\n",
		.functions = FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 12, 24\n"
						   "(other)\t\t10\t10\t20\t20\t0.000\t(other)\t0\t20\t\t0\n"
						   "b\t\t1\t1\t4\t4\t0.000\tt\t1\t4\tp\t1\n"
						   "a\t\t1\t2\t0\t4\t0.000\tt\t1\t4\tp\t1\n"
						   "\t\t10\t10\t20\t20\t0.000\t(other)\t0\t20\t\t0\n"
						   "\t\t2\t2\t4\t4\t0.000\tt\t1\t4\tp\t1\n",
	},
	[MEMORY_CASE] = {
		/* Memory is counted in bytes. */
		.quantity = STACK_PROFILE_MEMORY,
		.stacks_max = 2,
		.samples = { { 0, 1, "fm", .count = 3 },
			     { SPIKE, 1, "fm", .count = 4 },
			     { SPIKE, 2, "m", .count = 5 },
			     { SPIKE, 2, "gm", .count = 6, .full = true } },
		.before = 3,
		.during = 15,
		.other = 6,
		.stacks = 2,
		.folded = "(other);(other) 60\np;m 50\np;m;f 70\n",
		.functions = FUNCTION_TABLE_HEADER_BYTES "\n" FUNCTION_TABLE_BYTES " 30, 150\n"
							 "m\t\t0\t30\t50\t90\t5\tt\t2\t50\tp\t1\n"
							 "(other)\t\t0\t0\t60\t60\t6\t(other)\t0\t60\t\t0\n"
							 "f\t\t30\t30\t40\t40\t4\tt\t1\t40\tp\t1\n"
							 "\t\t0\t0\t60\t60\t6\t(other)\t0\t60\t\t0\n"
							 "\t\t0\t0\t50\t50\t5\tt\t2\t50\tp\t1\n"
							 "\t\t30\t30\t40\t40\t4\tt\t1\t40\tp\t1\n",
	},
};

/* The profile of a case with its samples, for stack_profile_free. */
static struct stack_profile *profile_of(const struct profile_case *it)
{
	struct stack_profile_options options = usual;
	struct stack_profile *profile;

	options.quantity = it->quantity;
	options.period_bytes = it->quantity == STACK_PROFILE_MEMORY ? 4096 : 0;
	options.stacks_max = it->stacks_max;
	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	for (size_t k = 0; k < ARRAY_LEN(it->samples) && it->samples[k].stack; k++)
		ck_assert_int_eq(add(profile, it->samples[k].time_ns, it->samples[k].tid, it->samples[k].stack,
				     it->samples[k].count),
				 it->samples[k].full ? STACK_PROFILE_FULL : 0);
	return profile;
}

START_TEST(samples_are_summed_up)
{
	const struct profile_case *it = &profile_cases[_i];
	AUTO(stack_profile_freep) struct stack_profile *profile = profile_of(it);

	counts_are(profile, it->before, it->during, it->other);
	ck_assert_uint_eq(profile_counts(profile).stacks, it->stacks);
	writes(stack_profile_write_folded, profile, it->folded);
	writes(stack_profile_write_functions, profile, it->functions);
}
END_TEST

START_TEST(build_ids_go_into_the_profile_as_hexadecimal)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	const struct stack_profile_mapping mapping = { .path = "/a",
						       .build_id = { 0xab, 0x01, 0xf0 },
						       .build_id_len = 3 };
	struct buffer out = { 0 }, plain = { 0 };
	struct sink sink = sink_buffer(&out);
	uint32_t number;

	ck_assert_int_eq(stack_profile_new(&usual, &profile), 0);
	ck_assert_int_eq(stack_profile_mapping(profile, &mapping, &number), 0);
	ck_assert_int_eq(stack_profile_write_pprof(profile, &sink), 0);
	unpacked(&out, &plain);
	ck_assert_ptr_nonnull(memmem(plain.data, plain.len,
				     "\x06"
				     "ab01f0",
				     7));
	buffer_release(&out);
	buffer_release(&plain);
}
END_TEST

START_TEST(of_processes_that_are_not_of_the_target_there_is_the_name)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	uint32_t number;
	struct stack_profile_sample sample = {
		.time_ns = SPIKE,
		.pid = 2,
		.tid = 22,
		.process = "noisy",
		.thread = "t",
		.frames = &number,
		.frame_count = 1,
		.other = true,
		.count = 3,
	};

	ck_assert_int_eq(stack_profile_new(&usual, &profile), 0);
	ck_assert_int_eq(add(profile, SPIKE, 1, "fm", 2), 0);
	ck_assert_int_eq(frame(profile, 0, 1, "hidden", &number), 0);
	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	writes(stack_profile_write_functions, profile,
	       FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 0, 5\n" FUNCTION_TABLE_OWN_SAMPLES " 0, 2\n"
				     "noisy\t(another process)\t0\t0\t3\t3\t0.000\tt\t22\t3\tnoisy\t2\n"
				     "f\t\t0\t0\t2\t2\t0.000\tt\t1\t2\tp\t1\n"
				     "m\t\t0\t0\t0\t2\t0.000\tt\t1\t2\tp\t1\n"
				     "\t\t0\t0\t2\t2\t0.000\tt\t1\t2\tp\t1\n"
				     "\t(another process)\t0\t0\t3\t3\t0.000\tt\t22\t3\tnoisy\t2\n");
	writes(stack_profile_write_folded, profile, "noisy;hidden 3\np;m;f 2\n");

	/* Of a process that was part of the target only for a time. */
	sample.other = false;
	sample.time_ns = SPIKE - 1;
	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	writes(stack_profile_write_functions, profile,
	       FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 3, 5\n" FUNCTION_TABLE_OWN_SAMPLES " 3, 2\n"
				     "noisy\t(another process)\t0\t0\t3\t3\t0.000\tt\t22\t3\tnoisy\t2\n"
				     "f\t\t0\t0\t2\t2\t0.000\tt\t1\t2\tp\t1\n"
				     "m\t\t0\t0\t0\t2\t0.000\tt\t1\t2\tp\t1\n"
				     "hidden\t\t3\t3\t0\t0\t0.000\tt\t22\t3\tnoisy\t2\n"
				     "\t\t0\t0\t2\t2\t0.000\tt\t1\t2\tp\t1\n"
				     "\t\t3\t3\t0\t0\t0.000\tt\t22\t3\tnoisy\t2\n"
				     "\t(another process)\t0\t0\t3\t3\t0.000\tt\t22\t3\tnoisy\t2\n");
}
END_TEST

START_TEST(frames_without_names_are_called_after_their_module)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	static const struct {
		const char *path, *called;
	} cases[] = {
		{ "/usr/lib/libc.so.6", "[libc.so.6]" },
		{ "[vdso]", "[vdso]" },
		{ "//anon", "[anon]" },
		{ "", "[unknown]" },
		{ NULL, "[unknown]" },
		{ "/x/", "[/x/]" },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const struct stack_profile_mapping mapping = { .start = i, .path = cases[i].path };
		struct stack_profile_frame nameless = { .address = 5 };
		uint32_t number;
		const struct stack_profile_sample sample = {
			.process = "p", .frames = &number, .frame_count = 1, .count = 1
		};
		char want[64];

		stack_profile_free(profile);
		ck_assert_int_eq(stack_profile_new(&usual, &profile), 0);
		ck_assert_int_eq(stack_profile_mapping(profile, &mapping, &nameless.mapping), 0);
		ck_assert_int_eq(stack_profile_frame(profile, &nameless, &number), 0);
		ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
		ck_assert_int_eq(frame(profile, nameless.mapping, 6, NULL, &number), 0);
		ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
		snprintf(want, sizeof(want), "p;%s 2\n", cases[i].called);
		writes(stack_profile_write_folded, profile, want);
	}
}
END_TEST

START_TEST(inlined_functions_are_frames_of_their_own)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	struct stack_profile_line lines[STACK_PROFILE_LINES_MAX + 9];
	struct stack_profile_frame inlined = { .lines = lines, .line_count = 3 };
	uint32_t number;
	const struct stack_profile_sample sample = { .process = "p", .frames = &number, .frame_count = 1, .count = 1 };
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);

	for (size_t i = 0; i < ARRAY_LEN(lines); i++)
		lines[i] = (struct stack_profile_line){ i == 0                      ? "leaf"
							: i + 1 == ARRAY_LEN(lines) ? "root"
										    : "between",
							"f", 1 };
	ck_assert_int_eq(stack_profile_new(&usual, &profile), 0);
	ck_assert_int_eq(stack_profile_frame(profile, &inlined, &number), 0);
	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	writes(stack_profile_write_folded, profile, "p;between;between;leaf 1\n");

	inlined.line_count = ARRAY_LEN(lines);
	ck_assert_int_eq(stack_profile_frame(profile, &inlined, &number), 0);
	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	ck_assert_int_eq(stack_profile_write_folded(profile, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_ptr_nonnull(strstr(out.data, "p;root;between;"));
	buffer_release(&out);
}
END_TEST

START_TEST(memory_stays_within_the_limit)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	struct stack_profile_options options = usual;
	struct profile_counts counts;
	bool full = false;
	char name[100];

	options.bytes_max = 20000;
	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	for (unsigned i = 0; i < 1000; i++) {
		uint32_t number;
		const struct stack_profile_sample sample = {
			.process = "p", .frames = &number, .frame_count = 1, .count = 1
		};
		int rc, added;

		snprintf(name, sizeof(name), "a rather long name of a function %u", i);
		rc = frame(profile, 0, i, name, &number);
		ck_assert_int_ge(rc, 0);
		ck_assert_int_eq(number == STACK_PROFILE_OTHER, rc == STACK_PROFILE_FULL);
		added = stack_profile_add(profile, &sample);
		ck_assert_int_ge(added, 0);
		ck_assert(rc == 0 || added == STACK_PROFILE_FULL);
		ck_assert(!full || rc == STACK_PROFILE_FULL);
		full |= added == STACK_PROFILE_FULL;
	}
	ck_assert(full);
	counts = profile_counts(profile);
	ck_assert_uint_le(counts.bytes, options.bytes_max);
	ck_assert_uint_gt(counts.stacks, 10);
	ck_assert_uint_eq(counts.samples_before, 1000);
	ck_assert_uint_eq(counts.samples_other, 1000 - counts.stacks);
}
END_TEST

START_TEST(odd_samples_count_too)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	char deep[STACK_PROFILE_FRAMES_MAX + 50];
	const uint32_t bad = 99, other = STACK_PROFILE_OTHER;
	struct stack_profile_sample sample = { .frames = &bad, .frame_count = 1, .count = 1 };
	char want[3 * STACK_PROFILE_FRAMES_MAX];
	size_t len = 1;

	ck_assert_int_eq(stack_profile_new(&usual, &profile), 0);
	ck_assert_int_eq(stack_profile_add(profile, &sample), -EINVAL);
	counts_are(profile, 0, 0, 0);
	sample.frames = &other;
	ck_assert_int_eq(stack_profile_add(profile, &sample), STACK_PROFILE_FULL);
	counts_are(profile, 1, 0, 1);
	sample.frame_count = 0;
	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	writes(stack_profile_write_folded, profile, "(other);(other) 1\n?;[no stack] 1\n");

	/* Of a stack that is too deep the leaf is kept. */
	stack_profile_free(TAKE(profile));
	ck_assert_int_eq(stack_profile_new(&usual, &profile), 0);
	memset(deep, 'r', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	deep[0] = 'l';
	ck_assert_int_eq(add(profile, 0, 1, deep, 1), 0);
	want[0] = 'p';
	for (unsigned i = 0; i + 1 < STACK_PROFILE_FRAMES_MAX; i++, len += 2)
		memcpy(want + len, ";r", 2);
	memcpy(want + len, ";l 1\n", 6);
	writes(stack_profile_write_folded, profile, want);
}
END_TEST

START_TEST(a_profile_of_memory_goes_into_pprof_as_faults_and_bytes)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = profile_of(&profile_cases[MEMORY_CASE]);
	struct buffer out = { 0 }, plain = { 0 };
	struct sink sink = sink_buffer(&out);

	ck_assert_int_eq(stack_profile_write_pprof(profile, &sink), 0);
	unpacked(&out, &plain);
	ck_assert_ptr_nonnull(memmem(plain.data, plain.len,
				     "\x06"
				     "faults",
				     7));
	ck_assert_ptr_nonnull(memmem(plain.data, plain.len,
				     "\x06"
				     "memory",
				     7));
	ck_assert_ptr_nonnull(memmem(plain.data, plain.len,
				     "\x05"
				     "bytes",
				     6));
	ck_assert_ptr_null(memmem(plain.data, plain.len, "nanoseconds", 11));
	/* The period, field 12: 4096 in seven bits a byte. */
	ck_assert_ptr_nonnull(memmem(plain.data, plain.len, "\x60\x80\x20", 3));
	ck_assert_ptr_null(memmem(plain.data, plain.len, "samples", 7));
	buffer_release(&out);
	buffer_release(&plain);
}
END_TEST

/* The values of the profile's samples by their label "time", and of those without one. */
static void times_are(const struct stack_profile *profile, const char *wanted)
{
	AUTO(pprof_read_freep) struct pprof_read *reader = NULL;
	const struct pprof_read_profile *read;
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	char found[256] = "";

	ck_assert_int_eq(stack_profile_write_pprof(profile, &sink), 0);
	ck_assert_int_eq(pprof_read_new(out.data, out.len, NULL, &reader), 0);
	read = pprof_read_profile(reader);
	for (uint32_t i = 0; i < read->sample_count; i++) {
		const struct pprof_read_label *time = pprof_read_label(read, &read->samples[i], "time");
		const struct pprof_read_label *phase = pprof_read_label(read, &read->samples[i], "phase");
		const struct pprof_read_text *name = &read->strings[phase->text];
		size_t len = strlen(found);

		if (time)
			ck_assert_uint_eq(read->strings[time->unit].len, strlen("milliseconds"));
		snprintf(found + len, sizeof(found) - len, "%s%lld:%.1s:%lld/%lld", i ? " " : "",
			 time ? (long long)time->number : -1LL, name->at, (long long)read->samples[i].values[0],
			 (long long)read->samples[i].values[1]);
	}
	ck_assert_str_eq(found, wanted);
	buffer_release(&out);
}

/* In 20 s there are a thousand steps of 20 ms. */
START_TEST(samples_of_the_target_have_their_time_in_pprof)
{
	const struct stack_profile_options options = { .from_ns = 5 * NS_PER_S,
						       .to_ns = 25 * NS_PER_S,
						       .spike_from_ns = 15 * NS_PER_S + 5 * NS_PER_MS,
						       .fired_ns = 16 * NS_PER_S,
						       .period_ns = 10 };
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	uint32_t number;
	struct stack_profile_sample stranger = {
		.time_ns = 6 * NS_PER_S, .pid = 2, .frames = &number, .frame_count = 1, .other = true, .count = 7
	};

	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	ck_assert_int_eq(add(profile, 15 * NS_PER_S + 4 * NS_PER_MS, 1, "fm", 1), 0);
	ck_assert_int_eq(add(profile, 15 * NS_PER_S + 6 * NS_PER_MS, 1, "fm", 1), 0);
	ck_assert_int_eq(add(profile, 15 * NS_PER_S + 6 * NS_PER_MS, 1, "gm", 1), 0);
	ck_assert_int_eq(add(profile, 15 * NS_PER_S + 7 * NS_PER_MS, 1, "fm", 1), 0);
	ck_assert_int_eq(add(profile, 4 * NS_PER_S, 1, "fm", 2), 0);
	ck_assert_int_eq(add(profile, UINT64_MAX, 1, "fm", 3), 0);
	ck_assert_int_eq(frame(profile, 0, 'f', "f", &number), 0);
	ck_assert_int_eq(stack_profile_add(profile, &stranger), 0);
	times_are(profile, "0:b:2/20 10000:b:1/10 10000:d:2/20 -1:d:3/30 10000:d:1/10 -1:b:7/0");
}
END_TEST

static int fill(struct stack_profile *profile)
{
	const struct stack_profile_mapping mapping = { .start = 1, .end = 9, .path = "/a", .build_id_len = 20 };
	uint32_t in, number;
	const struct stack_profile_sample sample = { .cgroup = "/c", .frames = &number, .frame_count = 1, .count = 1 };
	int rc = stack_profile_mapping(profile, &mapping, &in);

	if (rc == 0)
		rc = frame(profile, in, 5, "main", &number);
	if (rc == 0)
		rc = stack_profile_add(profile, &sample);
	for (char stack[] = "!a"; rc == 0 && *stack < 'a'; (*stack)++)
		rc = add(profile, *stack % 2 ? SPIKE : 0, 1, stack, 1);
	if (rc == 0)
		rc = add(profile, 0, 1, "", 1);
	/* One more than the options of the torture allow. */
	return rc == 0 ? add(profile, 0, 2, "z", 1) : rc;
}

static int everything(const struct sink *sink)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	struct stack_profile_options options = usual;
	int rc;

	options.stacks_max = 1 + ('a' - '!') + 1;
	rc = stack_profile_new(&options, &profile);
	if (rc == 0)
		rc = fill(profile);
	if (rc != STACK_PROFILE_FULL)
		return rc;
	rc = stack_profile_write_pprof(profile, sink);
	if (rc == 0)
		rc = stack_profile_write_folded(profile, sink);
	return rc == 0 ? stack_profile_write_functions(profile, sink) : rc;
}

START_TEST(a_failed_allocation_leaves_the_profile_as_it_was)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
		int rc;

		ck_assert_int_eq(stack_profile_new(&usual, &profile), 0);
		ck_assert_int_eq(add(profile, 0, 1, "a", 1), 0);
		torture_arm(n);
		rc = add(profile, 0, 1, "ba", 1);
		injected = torture_disarm();
		counts_are(profile, injected ? 1 : 2, 0, 0);
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
		if (injected)
			ck_assert_int_eq(add(profile, 0, 1, "ba", 1), 0);
		writes(stack_profile_write_folded, profile, "p;a 1\np;a;b 1\n");
	}
}
END_TEST

/* ---- folded stacks ---- */

/* Frames with blanks between them, which are not part of a name here. */
static int fold(struct folded *folded, const char *frames, uint64_t times)
{
	char name[64];
	int rc = 0;

	while (*frames && rc == 0) {
		size_t len = strcspn(frames, " ");

		memcpy(name, frames, len);
		name[len] = '\0';
		rc = folded_push(folded, name);
		frames += len + strspn(frames + len, " ");
	}
	return rc == 0 ? folded_count(folded, times) : rc;
}

static void folded_is(const struct folded *folded, const char *text)
{
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);

	ck_assert_int_eq(folded_write(folded, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, text);
	buffer_release(&out);
}

static int fill_folded(struct folded *folded)
{
	int rc = fold(folded, "sh main loop", 3);

	if (rc == 0)
		rc = fold(folded, "db main scan", UINT64_C(1) << 40);
	if (rc == 0)
		rc = fold(folded, "sh main loop", 4);
	if (rc == 0)
		rc = fold(folded, "sh main", 1);
	return rc == 0 ? fold(folded, "", 99) : rc;
}

#define FILLED "db;main;scan 1099511627776\nsh;main 1\nsh;main;loop 7\n"

START_TEST(the_same_stack_is_one_line_and_lines_are_sorted)
{
	AUTO(folded_release) struct folded folded = { 0 };

	folded_is(&folded, "");
	ck_assert_int_eq(fill_folded(&folded), 0);
	folded_is(&folded, FILLED);
	folded_is(&folded, FILLED);
}
END_TEST

START_TEST(many_stacks_keep_their_counts)
{
	AUTO(folded_release) struct folded folded = { 0 };
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	char name[] = "a0000";

	for (unsigned i = 0; i < 1000; i++) {
		name[2] = (char)('0' + i / 100);
		name[3] = (char)('0' + i / 10 % 10);
		name[4] = (char)('0' + i % 10);
		ck_assert_int_eq(fold(&folded, name, i), 0);
	}
	ck_assert_int_eq(folded_write(&folded, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_ptr_nonnull(strstr(out.data, "a0063 63\na0064 64\na0065 65\n"));
	ck_assert_ptr_nonnull(strstr(out.data, "a0999 999\n"));
	buffer_release(&out);
}
END_TEST

START_TEST(what_is_beyond_the_limit_is_one_line)
{
	AUTO(folded_release) struct folded folded = { 0 };

	folded.budget.max_bytes = 300;
	ck_assert_int_eq(fold(&folded, "sh main", 1), 0);
	for (unsigned i = 0; i < 10; i++)
		ck_assert_int_eq(fold(&folded, (char[]){ (char)('a' + i), '\0' }, 10), 0);
	ck_assert_int_eq(fold(&folded, "sh main", 2), 0);
	folded.other += 1000;
	folded_is(&folded, "(other);(other) 1080\na 10\nb 10\nsh;main 3\n");
}
END_TEST

START_TEST(hostile_names_stay_one_frame)
{
	AUTO(folded_release) struct folded folded = { 0 };
	char whole[600];

	ck_assert_int_eq(folded_push(&folded, ";a;;b\n1 2\x1b[2J\xff\\"), 0);
	ck_assert_int_eq(folded_push(&folded, ""), 0);
	ck_assert_int_eq(folded_push(&folded, "x y 7"), 0);
	ck_assert_int_eq(folded_count(&folded, 5), 0);
	folded_is(&folded, "\\x3ba\\x3b\\x3bb\\x0a1 2\\x1b[2J\\xff\\x5c;?;x y 7 5\n");

	/* Longer than a piece, characters across its end. */
	for (size_t shift = 0; shift < 3; shift++) {
		AUTO(folded_release) struct folded another = { 0 };
		char want[620];
		size_t len = shift;

		memset(whole, 'x', len);
		for (; len < 590; len += 3)
			memcpy(whole + len, "\xe2\x82\xac", 3);
		whole[len] = '\0';
		memcpy(want, whole, len);
		memcpy(want + len, " 1\n", 4);
		ck_assert_int_eq(folded_push(&another, whole), 0);
		ck_assert_int_eq(folded_count(&another, 1), 0);
		folded_is(&another, want);
	}
}
END_TEST

static int write_all_folded(const struct sink *sink)
{
	AUTO(folded_release) struct folded folded = { 0 };
	int rc = fill_folded(&folded);

	return rc == 0 ? folded_write(&folded, sink) : rc;
}

/* ---- the table of functions ---- */

/* Frames: one letter each, leaf first, all in module "m". before + during samples of 10 ms. */
static int add_to_table(struct function_table *list, int32_t tid, const char *frames, uint64_t before, uint64_t during)
{
	uint32_t functions[16];
	struct function_table_stack stack = {
		.functions = functions,
		.samples = { before, during },
		.weight = { before * 10 * MS, during * 10 * MS },
	};
	char name[16];
	int rc;

	snprintf(name, sizeof(name), "t%d", (int)tid);
	rc = function_table_thread(list, &(struct function_table_thread){ 100 + tid, tid, "p", name, false },
				   &stack.thread);
	for (; *frames && rc == 0; frames++)
		rc = function_table_function(list, (char[]){ *frames, '\0' }, "m", &functions[stack.count++]);
	if (rc == 0)
		function_table_add(list, &stack);
	return rc;
}

static void table_is(const struct function_table *list, const char *text)
{
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);

	ck_assert_int_eq(function_table_write(list, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_int_eq(strncmp(out.data, FUNCTION_TABLE_HEADER "\n", strlen(FUNCTION_TABLE_HEADER) + 1), 0);
	ck_assert_str_eq(out.data + strlen(FUNCTION_TABLE_HEADER) + 1, text);
	buffer_release(&out);
}

/* Stacks that are added to an empty table, and what it says of them after its header. */
static const struct table_case {
	struct {
		int32_t tid;
		const char *frames;
		uint64_t before, during;
	} stacks[8];
	const char *text;
} table_cases[] = {
	{
		/* Nothing. */
		.text = FUNCTION_TABLE_SAMPLES " 0, 0\n",
	},
	{
		/* Self is of the leaf and total of all. */
		{ { 1, "cba", 5, .during = 2 }, { 1, "ba", 0, .during = 4 }, { 1, "", 1, .during = 1 } },
		FUNCTION_TABLE_SAMPLES " 6, 7\n"
				       "b\tm\t0\t5\t4\t6\t40.000\tt1\t1\t6\tp\t101\n"
				       "c\tm\t5\t5\t2\t2\t20.000\tt1\t1\t2\tp\t101\n"
				       "a\tm\t0\t5\t0\t6\t0.000\tt1\t1\t6\tp\t101\n"
				       "\t\t6\t6\t7\t7\t70.000\tt1\t1\t7\tp\t101\n",
	},
	{
		/* Recursion counts once for each stack. */
		{ { 1, "fgfgf", 0, .during = 3 }, { 1, "fgfgf", 0, .during = 2 } },
		FUNCTION_TABLE_SAMPLES " 0, 5\n"
				       "f\tm\t0\t0\t5\t5\t50.000\tt1\t1\t5\tp\t101\n"
				       "g\tm\t0\t0\t0\t5\t0.000\tt1\t1\t5\tp\t101\n"
				       "\t\t0\t0\t5\t5\t50.000\tt1\t1\t5\tp\t101\n",
	},
	{
		/* The top thread is that of the spike. */
		{ { 1, "a", 100, .during = 1 },
		  { 2, "a", 0, .during = 2 },
		  { 2, "ba", 0, .during = 1 },
		  { 3, "a", 50, .during = 2 },
		  { 3, "q", 1, .during = 0 },
		  { 4, "q", 3, .during = 0 },
		  { 5, "q", 2, .during = 0 },
		  { 6, "q", 1, .during = 0 } },
		FUNCTION_TABLE_SAMPLES " 157, 6\n"
				       "a\tm\t150\t150\t5\t6\t50.000\tt2\t2\t3\tp\t102\n"
				       "b\tm\t0\t0\t1\t1\t10.000\tt2\t2\t1\tp\t102\n"
				       "q\tm\t7\t7\t0\t0\t0.000\tt4\t4\t3\tp\t104\n"
				       "\t\t0\t0\t3\t3\t30.000\tt2\t2\t3\tp\t102\n"
				       "\t\t51\t51\t2\t2\t20.000\tt3\t3\t2\tp\t103\n"
				       "\t\t100\t100\t1\t1\t10.000\tt1\t1\t1\tp\t101\n"
				       "\t\t3\t3\t0\t0\t0.000\tt4\t4\t3\tp\t104\n"
				       "\t\t2\t2\t0\t0\t0.000\tt5\t5\t2\tp\t105\n"
				       "\t\t1\t1\t0\t0\t0.000\tt6\t6\t1\tp\t106\n",
	},
};

START_TEST(stacks_are_summed_up_by_function_and_thread)
{
	AUTO(function_table_release) struct function_table list = { 0 };
	const struct table_case *it = &table_cases[_i];

	for (size_t k = 0; k < ARRAY_LEN(it->stacks) && it->stacks[k].frames; k++)
		ck_assert_int_eq(add_to_table(&list, it->stacks[k].tid, it->stacks[k].frames, it->stacks[k].before,
					      it->stacks[k].during),
				 0);
	table_is(&list, it->text);
}
END_TEST

START_TEST(functions_of_one_name_are_told_apart_by_module)
{
	AUTO(function_table_release) struct function_table list = { 0 };
	uint32_t a, b, c, d;

	ck_assert_int_eq(function_table_function(&list, "init", "x", &a), 0);
	ck_assert_int_eq(function_table_function(&list, "init", "y", &b), 0);
	ck_assert_int_eq(function_table_function(&list, "init", "x", &c), 0);
	ck_assert_int_eq(function_table_function(&list, "initx", "", &d), 0);
	ck_assert_uint_ne(a, b);
	ck_assert_uint_eq(a, c);
	ck_assert_uint_ne(a, d);
}
END_TEST

START_TEST(hostile_names_stay_one_cell)
{
	AUTO(function_table_release) struct function_table list = { 0 };
	uint32_t function;
	struct function_table_stack stack = { .functions = &function, .count = 1, .samples = { 0, 1 } };

	ck_assert_int_eq(function_table_function(&list, "f\tg\n\x1b", "#\xff", &function), 0);
	ck_assert_int_eq(function_table_thread(&list, &(struct function_table_thread){ -2, -1, "p\nq", "a\tb", false },
					       &stack.thread),
			 0);
	function_table_add(&list, &stack);
	table_is(&list,
		 FUNCTION_TABLE_SAMPLES " 0, 1\n"
					"f\\x09g\\x0a\\x1b\t#\\xff\t0\t0\t1\t1\t0.000\ta\\x09b\t-1\t1\tp\\x0aq\t-2\n"
					"\t\t0\t0\t1\t1\t0.000\ta\\x09b\t-1\t1\tp\\x0aq\t-2\n");
}
END_TEST

START_TEST(no_more_rows_than_the_limit)
{
	AUTO(function_table_release) struct function_table list = { 0 };
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	char name[16];
	uint32_t function;
	struct function_table_stack stack = { .functions = &function, .count = 1, .samples = { 1, 0 } };

	ck_assert_int_eq(
		function_table_thread(&list, &(struct function_table_thread){ 1, 1, "p", "t", false }, &stack.thread),
		0);
	for (unsigned i = 0; i < FUNCTION_TABLE_ROWS_MAX + 3; i++) {
		snprintf(name, sizeof(name), "f%u", i);
		ck_assert_int_eq(function_table_function(&list, name, "", &function), 0);
		function_table_add(&list, &stack);
	}
	ck_assert_int_eq(function_table_function(&list, "never seen", "", &function), 0);
	ck_assert_int_eq(function_table_write(&list, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_ptr_nonnull(strstr(out.data, "\tp\t1\n# 3 more functions\n\t\t"));
	buffer_release(&out);
}
END_TEST

/* Threads come after the functions, and within the first MiB. */
START_TEST(long_names_do_not_crowd_out_the_threads)
{
	AUTO(function_table_release) struct function_table list = { 0 };
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	char name[1001], *rest;
	uint32_t function;
	struct function_table_stack stack = { .functions = &function, .count = 1 };

	memset(name, '\1', sizeof(name) - 1);
	name[1000] = '\0';
	ck_assert_int_eq(
		function_table_thread(&list, &(struct function_table_thread){ 7, 8, "p", "t", false }, &stack.thread),
		0);
	for (unsigned i = 0; i < 1000; i++) {
		snprintf(name, 8, "f%05u:", i);
		name[7] = '\1';
		stack.samples[FUNCTION_TABLE_DURING] = 1000 - i;
		ck_assert_int_eq(function_table_function(&list, name, "", &function), 0);
		function_table_add(&list, &stack);
	}
	ck_assert_int_eq(function_table_write(&list, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_uint_gt(out.len, FUNCTION_TABLE_PART_BYTES_MAX - 8192);
	ck_assert_uint_lt(out.len, FUNCTION_TABLE_PART_BYTES_MAX + 1024);
	rest = strstr(out.data, " more functions\n");
	ck_assert_ptr_nonnull(rest);
	ck_assert_str_eq(rest, " more functions\n\t\t0\t0\t500500\t500500\t0.000\tt\t8\t500500\tp\t7\n");
	/* The hottest are there. */
	ck_assert_ptr_nonnull(strstr(out.data, "f00000:"));
	ck_assert_ptr_null(strstr(out.data, "f00999:"));
	buffer_release(&out);
}
END_TEST

START_TEST(no_more_threads_than_the_limit)
{
	AUTO(function_table_release) struct function_table list = { 0 };
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	uint32_t unseen;

	for (int32_t tid = 1; tid <= FUNCTION_TABLE_THREADS_MAX + 2; tid++)
		ck_assert_int_eq(add_to_table(&list, tid, "f", 0, tid <= 2 ? 1 : 2), 0);
	for (int32_t pid = 1000; pid < 1050; pid++) { /* busier ones of other processes */
		uint32_t function;
		struct function_table_stack stack = { .functions = &function, .count = 1, .samples = { 0, 9 } };

		ck_assert_int_eq(function_table_function(&list, "o", FUNCTION_TABLE_NEIGHBOUR, &function), 0);
		ck_assert_int_eq(function_table_thread(&list,
						       &(struct function_table_thread){ pid, pid, "o", "o", true },
						       &stack.thread),
				 0);
		function_table_add(&list, &stack);
	}
	ck_assert_int_eq(function_table_thread(&list, &(struct function_table_thread){ 1, 1, "p", "never seen", false },
					       &unseen),
			 0);
	ck_assert_int_eq(function_table_write(&list, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	/* Equals are in the order of their numbers, and the least are left out. */
	ck_assert_ptr_nonnull(
		strstr(out.data, "\n\t\t0\t0\t2\t2\t20.000\tt3\t3\t2\tp\t103\n\t\t0\t0\t2\t2\t20.000\tt4\t4\t"));
	ck_assert_ptr_nonnull(strstr(out.data, "\tp\t302\n# 52 more threads\n"));
	ck_assert_ptr_null(strstr(out.data, "\n\t\t0\t0\t1\t1\t"));
	buffer_release(&out);
}
END_TEST

START_TEST(threads_of_one_number_are_told_apart_by_their_names_and_processes)
{
	AUTO(function_table_release) struct function_table list = { 0 };
	uint32_t a, b, c, d, e;

	ck_assert_int_eq(function_table_thread(&list, &(struct function_table_thread){ 1, 2, "p", "t", false }, &a), 0);
	ck_assert_int_eq(function_table_thread(&list, &(struct function_table_thread){ 1, 2, "p", "u", false }, &b), 0);
	ck_assert_int_eq(function_table_thread(&list, &(struct function_table_thread){ 1, 2, "q", "t", false }, &c), 0);
	ck_assert_int_eq(function_table_thread(&list, &(struct function_table_thread){ 3, 2, "p", "t", false }, &d), 0);
	ck_assert_int_eq(function_table_thread(&list, &(struct function_table_thread){ 1, 2, "p", "t", false }, &e), 0);
	ck_assert(a != b && a != c && a != d && b != c && b != d && c != d);
	ck_assert_uint_eq(a, e);
}
END_TEST

START_TEST(a_table_of_memory_counts_bytes)
{
	AUTO(function_table_release) struct function_table list = { .unit = FUNCTION_TABLE_IN_BYTES };
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	uint32_t functions[2];
	struct function_table_stack stack = {
		.functions = functions, .count = 2, .samples = { 7, 3 }, .weight = { 28672, 2101248 }
	};

	ck_assert_int_eq(function_table_function(&list, "memset", "m", &functions[0]), 0);
	ck_assert_int_eq(function_table_function(&list, "grow", "m", &functions[1]), 0);
	ck_assert_int_eq(
		function_table_thread(&list, &(struct function_table_thread){ 5, 6, "p", "t", false }, &stack.thread),
		0);
	function_table_add(&list, &stack);
	/* More faults, but fewer bytes. */
	stack.samples[FUNCTION_TABLE_DURING] = 100;
	stack.weight[FUNCTION_TABLE_DURING] = 409600;
	ck_assert_int_eq(
		function_table_thread(&list, &(struct function_table_thread){ 5, 7, "p", "t", false }, &stack.thread),
		0);
	function_table_add(&list, &stack);
	ck_assert_int_eq(function_table_write(&list, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, FUNCTION_TABLE_HEADER_BYTES
			 "\n" FUNCTION_TABLE_BYTES " 57344, 2510848\n"
			 "memset\tm\t57344\t57344\t2510848\t2510848\t103\tt\t6\t2101248\tp\t5\n"
			 "grow\tm\t0\t57344\t0\t2510848\t0\tt\t6\t2101248\tp\t5\n"
			 "\t\t28672\t28672\t2101248\t2101248\t3\tt\t6\t2101248\tp\t5\n"
			 "\t\t28672\t28672\t409600\t409600\t100\tt\t7\t409600\tp\t5\n");
	buffer_release(&out);
}
END_TEST

static void name_is(const struct text_part *name, const char *text)
{
	ck_assert_uint_eq(name->len, strlen(text));
	ck_assert_mem_eq(name->at, text, name->len);
}

/* A function of one sample stack, and its row, which must come back with its thread's. */
static const struct row_case {
	enum function_table_unit unit;
	const char *function, *module;
	struct function_table_thread thread;
	uint64_t samples[2], weight[2];
	const char *function_back, *process_back; /* escaped */
	uint64_t amount[2], self_ns, self_faults;
} row_cases[] = {
	{
		.function = "a\tb",
		.module = "/lib/x.so",
		.thread = { 812, -7, "post\tgres", "worker 1", false },
		.samples = { 3, UINT64_C(1) << 40 },
		.weight = { 0, 1234567 * MS + 891000 },
		.function_back = "a\\x09b",
		.process_back = "post\\x09gres",
		.amount = { 3, UINT64_C(1) << 40 },
		.self_ns = 1234567 * MS + 891000,
	},
	{
		/* Bytes come back as bytes. */
		.unit = FUNCTION_TABLE_IN_BYTES,
		.function = "grow",
		.module = "",
		.thread = { 812, 813, "p", "t", false },
		.samples = { 2, 3 },
		.weight = { 8192, 12288 },
		.function_back = "grow",
		.process_back = "p",
		.amount = { 8192, 12288 },
		.self_faults = 3,
	},
};

static void row_is(const struct function_rows_row *row, const char *function, const char *module,
		   const struct row_case *it)
{
	name_is(&row->function, function);
	name_is(&row->module, module);
	name_is(&row->thread, it->thread.name);
	name_is(&row->process, it->process_back);
	ck_assert_int_eq(row->tid, it->thread.tid);
	ck_assert_int_eq(row->pid, it->thread.pid);
	ck_assert_mem_eq(row->self, it->amount, sizeof(it->amount));
	ck_assert_mem_eq(row->total, it->amount, sizeof(it->amount));
	ck_assert_uint_eq(row->self_ns, it->self_ns);
	ck_assert_uint_eq(row->self_faults, it->self_faults);
	ck_assert_uint_eq(row->top_amount, it->amount[FUNCTION_TABLE_DURING]);
}

START_TEST(a_table_that_was_written_comes_back)
{
	const struct row_case *it = &row_cases[_i];
	AUTO(function_table_release) struct function_table list = { .unit = it->unit };
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	uint32_t function;
	struct function_table_stack stack = { .functions = &function, .count = 1 };
	struct function_rows rows;
	struct function_rows_row row;

	memcpy(stack.samples, it->samples, sizeof(stack.samples));
	memcpy(stack.weight, it->weight, sizeof(stack.weight));
	ck_assert_int_eq(function_table_function(&list, it->function, it->module, &function), 0);
	ck_assert_int_eq(function_table_thread(&list, &it->thread, &stack.thread), 0);
	function_table_add(&list, &stack);
	ck_assert_int_eq(function_table_write(&list, &sink), 0);

	ck_assert(function_rows_start(&rows, out.data, out.len));
	ck_assert_int_eq(rows.unit, it->unit);
	ck_assert_mem_eq(rows.sum, it->amount, sizeof(it->amount));
	ck_assert(function_rows_next(&rows, &row));
	row_is(&row, it->function_back, it->module, it);
	ck_assert(function_rows_next(&rows, &row)); /* the thread's */
	row_is(&row, "", "", it);
	ck_assert(!function_rows_next(&rows, &row));
	buffer_release(&out);
}
END_TEST

static int write_whole_table(const struct sink *sink)
{
	AUTO(function_table_release) struct function_table list = { 0 };
	int rc = add_to_table(&list, 1, "cba", 5, 2);
	/* More than the tallies begin with. */
	for (char name[] = "!"; rc == 0 && *name < 'z'; (*name)++)
		rc = add_to_table(&list, *name, name, 1, 1);
	return rc == 0 ? function_table_write(&list, sink) : rc;
}

/* ---- the encoder of pprof; what pprof itself makes of a profile: tests/pprof.sh ---- */

static const struct pprof_options least = {
	.values = { { "samples", "count" }, { "cpu", "ns" } },
	.value_count = 2,
	.value_shown = 1,
	.period_type = { "cpu", "ns" },
	.period = 300,
	.wall_ns = 5,
	.duration_ns = 6,
};

static int encode_members(struct pprof *pprof)
{
	const struct pprof_mapping mapping = {
		0x1000, 0x2000, 0, "/a", "0f", .has_functions = true, .has_lines = true
	};
	const struct pprof_function function = { .name = "f", .file = "f.c", .start_line = 2 };
	struct pprof_line line = { .line = 9 };
	struct pprof_location location = { .address = 0x1080, .lines = &line, .line_count = 1 };
	uint64_t ids[2];
	const struct pprof_sample sample = {
		.locations = ids,
		.location_count = 2,
		.values = { 0, 200 },
		.labels = { { .key = "t", .text = "x\n" }, { .key = "n", .number = -1, .unit = "ns" } },
	};
	int rc = pprof_add_mapping(pprof, &mapping, &location.mapping);

	if (rc == 0)
		rc = pprof_add_function(pprof, &function, &line.function);
	if (rc == 0)
		rc = pprof_add_location(pprof, &location, &ids[0]);
	location.line_count = 0;
	if (rc == 0)
		rc = pprof_add_location(pprof, &location, &ids[1]);
	if (rc == 0)
		rc = pprof_add_sample(pprof, &sample);
	return rc;
}

static int encode(const struct pprof_options *options, const struct sink *sink)
{
	AUTO(pprof_freep) struct pprof *pprof = NULL;
	int rc = pprof_new(options, &pprof);

	if (rc == 0)
		rc = encode_members(pprof);
	return rc == 0 ? pprof_finish(pprof, sink) : rc;
}

START_TEST(a_small_profile_is_to_the_byte)
{
	/* clang-format off */
	static const unsigned char want[] = {
		/* sample types: "samples" "count", "cpu" "ns"; strings are numbered as they come */
		0x0a, 4, 0x08, 1, 0x10, 2,
		0x0a, 4, 0x08, 3, 0x10, 4,
		/* time, duration, period type, period 300, shown: "cpu" */
		0x48, 5, 0x50, 6, 0x5a, 4, 0x08, 3, 0x10, 4, 0x60, 0xac, 0x02, 0x70, 3,
		/* mapping 1: 0x1000 to 0x2000, "/a", "0f", has functions and lines, but no files */
		0x1a, 16, 0x08, 1, 0x10, 0x80, 0x20, 0x18, 0x80, 0x40, 0x28, 5, 0x30, 6, 0x38, 1, 0x48, 1,
		/* function 1: "f" "f" "f.c" 2 */
		0x2a, 10, 0x08, 1, 0x10, 7, 0x18, 7, 0x20, 8, 0x28, 2,
		/* location 1 in mapping 1 at 0x1080, line 9 of function 1 */
		0x22, 13, 0x08, 1, 0x10, 1, 0x18, 0x80, 0x21, 0x22, 4, 0x08, 1, 0x10, 9,
		/* location 2, without lines */
		0x22, 7, 0x08, 2, 0x10, 1, 0x18, 0x80, 0x21,
		/* sample at 1 2: 0 and 200; "t" is "x\x0a", "n" is -1 "ns" */
		0x12, 32, 0x0a, 2, 1, 2, 0x12, 3, 0, 0xc8, 0x01, 0x1a, 4, 0x08, 9, 0x10, 10,
		0x1a, 15, 0x08, 11, 0x18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x20, 4,
		/* strings 0 to 11 */
		0x32, 0, 0x32, 7, 's', 'a', 'm', 'p', 'l', 'e', 's', 0x32, 5, 'c', 'o', 'u', 'n', 't',
		0x32, 3, 'c', 'p', 'u', 0x32, 2, 'n', 's', 0x32, 2, '/', 'a', 0x32, 2, '0', 'f', 0x32, 1, 'f',
		0x32, 3, 'f', '.', 'c', 0x32, 1, 't', 0x32, 5, 'x', '\\', 'x', '0', 'a', 0x32, 1, 'n',
	};
	/* clang-format on */
	struct buffer out = { 0 }, plain = { 0 };
	struct sink sink = sink_buffer(&out);

	ck_assert_int_eq(encode(&least, &sink), 0);
	unpacked(&out, &plain);
	for (size_t i = 0; i < plain.len && i < sizeof(want); i++)
		ck_assert_msg((unsigned char)plain.data[i] == want[i], "byte %zu is %02x instead of %02x", i,
			      (unsigned char)plain.data[i], want[i]);
	ck_assert_uint_eq(plain.len, sizeof(want));
	buffer_release(&out);
	buffer_release(&plain);
}
END_TEST

START_TEST(ids_that_were_not_given_are_refused_for_good)
{
	AUTO(pprof_freep) struct pprof *pprof = NULL;
	const struct pprof_line line = { .function = 1 };
	const struct pprof_location bad_mapping = { .mapping = 1 }, bad_function = { .lines = &line, .line_count = 1 },
				    good = { .address = 1 };
	const uint64_t none = 0, one = 1;
	const struct pprof_sample bad[] = { { .locations = &none, .location_count = 1 },
					    { .locations = &one, .location_count = 1 } };
	uint64_t id = 77;

	for (unsigned i = 0; i < 4; i++) {
		struct buffer out = { 0 };
		struct sink sink = sink_buffer(&out);
		int rc;

		pprof_free(pprof);
		ck_assert_int_eq(pprof_new(&least, &pprof), 0);
		if (i < 2)
			rc = pprof_add_location(pprof, i ? &bad_mapping : &bad_function, &id);
		else
			rc = pprof_add_sample(pprof, &bad[i - 2]);
		ck_assert_int_eq(rc, -EINVAL);
		ck_assert_int_eq(pprof_add_location(pprof, &good, &id), -EINVAL);
		ck_assert_uint_eq(id, 77);
		ck_assert_int_eq(pprof_finish(pprof, &sink), -EINVAL);
		ck_assert_uint_eq(out.len, 0);
	}
}
END_TEST

START_TEST(long_and_hostile_strings_are_cut_and_printable)
{
	AUTO(pprof_freep) struct pprof *pprof = NULL;
	static char name[PPROF_TEXT_MAX + 100];
	const struct pprof_function function = { .name = name };
	struct buffer out = { 0 }, plain = { 0 };
	struct sink sink = sink_buffer(&out);
	uint64_t id;

	memset(name, '\xff', sizeof(name) - 1);
	ck_assert_int_eq(pprof_new(&least, &pprof), 0);
	ck_assert_int_eq(pprof_add_function(pprof, &function, &id), 0);
	ck_assert_int_eq(pprof_finish(pprof, &sink), 0);
	unpacked(&out, &plain);
	ck_assert_ptr_nonnull(memmem(plain.data, plain.len, "\x32\x80\x80\x01\\xff\\xff", 12));
	buffer_release(&out);
	buffer_release(&plain);
}
END_TEST

START_TEST(it_grows_to_its_limit_and_no_further)
{
	struct pprof_options options = least;

	for (options.bytes_max = 1; options.bytes_max < 2000; options.bytes_max++) {
		long left = 10000;
		struct sink sink = torture_sink(&left);
		int rc = encode(&options, &sink);

		ck_assert_int_eq(rc, options.bytes_max < 1200 && rc < 0 ? -EFBIG : 0);
		if (options.bytes_max < 200)
			ck_assert_int_eq(rc, -EFBIG);
	}
}
END_TEST

/* ---- every failure of what is written ---- */

static int encode_least(const struct sink *sink)
{
	return encode(&least, sink);
}

static const struct {
	int (*write_to)(const struct sink *sink);
	long step; /* of the room that there is */
} outputs[] = {
	{ everything, 7 },
	{ write_all_folded, 1 },
	{ write_whole_table, 1 },
	{ encode_least, 1 },
};

START_TEST(any_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		long left = 1 << 20;
		struct sink sink = torture_sink(&left);
		int rc;

		torture_arm(n);
		rc = outputs[_i].write_to(&sink);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
	}
}
END_TEST

START_TEST(any_write_may_fail)
{
	struct buffer out = { 0 };
	struct sink whole = sink_buffer(&out);
	long left;
	struct sink sink = torture_sink(&left);

	ck_assert_int_eq(outputs[_i].write_to(&whole), 0);
	for (long room = 0; room < (long)out.len; room += outputs[_i].step) {
		left = room;
		ck_assert_int_eq(outputs[_i].write_to(&sink), -EIO);
	}
	left = (long)out.len;
	ck_assert_int_eq(outputs[_i].write_to(&sink), 0);
	buffer_release(&out);
}
END_TEST

Suite *profile_suite(void);
Suite *profile_suite(void)
{
	Suite *suite = suite_create("profile");
	TCase *profile = tcase_create("profile");
	TCase *folded = tcase_create("folded stacks");
	TCase *functions = tcase_create("functions");
	TCase *failures = tcase_create("failures");

	tcase_add_test(profile, the_same_has_the_same_number);
	tcase_add_loop_test(profile, samples_are_summed_up, 0, ARRAY_LEN(profile_cases));
	tcase_add_test(profile, build_ids_go_into_the_profile_as_hexadecimal);
	tcase_add_test(profile, of_processes_that_are_not_of_the_target_there_is_the_name);
	tcase_add_test(profile, frames_without_names_are_called_after_their_module);
	tcase_add_test(profile, inlined_functions_are_frames_of_their_own);
	tcase_add_test(profile, memory_stays_within_the_limit);
	tcase_add_test(profile, odd_samples_count_too);
	tcase_add_test(profile, a_profile_of_memory_goes_into_pprof_as_faults_and_bytes);
	tcase_add_test(profile, samples_of_the_target_have_their_time_in_pprof);
	tcase_add_test(profile, a_failed_allocation_leaves_the_profile_as_it_was);
	suite_add_tcase(suite, profile);
	tcase_add_test(folded, the_same_stack_is_one_line_and_lines_are_sorted);
	tcase_add_test(folded, many_stacks_keep_their_counts);
	tcase_add_test(folded, what_is_beyond_the_limit_is_one_line);
	tcase_add_test(folded, hostile_names_stay_one_frame);
	suite_add_tcase(suite, folded);
	tcase_add_loop_test(functions, stacks_are_summed_up_by_function_and_thread, 0, ARRAY_LEN(table_cases));
	tcase_add_test(functions, functions_of_one_name_are_told_apart_by_module);
	tcase_add_test(functions, hostile_names_stay_one_cell);
	tcase_add_test(functions, no_more_rows_than_the_limit);
	tcase_add_test(functions, long_names_do_not_crowd_out_the_threads);
	tcase_add_test(functions, no_more_threads_than_the_limit);
	tcase_add_test(functions, threads_of_one_number_are_told_apart_by_their_names_and_processes);
	tcase_add_test(functions, a_table_of_memory_counts_bytes);
	tcase_add_loop_test(functions, a_table_that_was_written_comes_back, 0, ARRAY_LEN(row_cases));
	suite_add_tcase(suite, functions);
	TCase *encoder = tcase_create("encoder");

	tcase_add_test(encoder, a_small_profile_is_to_the_byte);
	tcase_add_test(encoder, ids_that_were_not_given_are_refused_for_good);
	tcase_add_test(encoder, long_and_hostile_strings_are_cut_and_printable);
	tcase_add_test(encoder, it_grows_to_its_limit_and_no_further);
	suite_add_tcase(suite, encoder);
	tcase_add_loop_test(failures, any_allocation_may_fail, 0, ARRAY_LEN(outputs));
	tcase_add_loop_test(failures, any_write_may_fail, 0, ARRAY_LEN(outputs));
	suite_add_tcase(suite, failures);
	return suite;
}
