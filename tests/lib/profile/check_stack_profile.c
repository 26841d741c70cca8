/*
 * check_stack_profile.c: samples are summed up by process, thread and frames, before and during;
 * the limits; every failing allocation and write. The forms to the letter: check_pprof.c,
 * check_folded.c, check_function_table.c; tests/pprof.sh.
 */
#include "lib/profile/profile.c"
#include "lib/profile/stack_text.h"
#include "lib/base/base.h"
#include "profile_counts.h"
#include "torture.h"
#include "unpacked.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPIKE 1000

Suite *stack_profile_suite(void);

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

START_TEST(samples_before_and_during_are_told_apart)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;

	ck_assert_int_eq(stack_profile_new(&usual, &profile), 0);
	ck_assert_int_eq(add(profile, SPIKE - 1, 1, "fm", 3), 0);
	ck_assert_int_eq(add(profile, SPIKE, 1, "fm", 4), 0);
	ck_assert_int_eq(add(profile, UINT64_MAX, 2, "fm", 5), 0);
	ck_assert_int_eq(add(profile, 0, 1, "m", 6), 0);
	counts_are(profile, 9, 9, 0);
	writes(stack_profile_write_folded, profile, "p;m 6\np;m;f 12\n");
	writes(stack_profile_write_functions, profile,
	       FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 9, 9\n"
				     "f\t\t3\t3\t9\t9\t0.000\tt\t2\t5\tp\t1\n"
				     "m\t\t6\t9\t0\t9\t0.000\tt\t2\t5\tp\t1\n"
				     "\t\t0\t0\t5\t5\t0.000\tt\t2\t5\tp\t1\n"
				     "\t\t9\t9\t4\t4\t0.000\tt\t1\t4\tp\t1\n");
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

START_TEST(the_top_thread_does_not_depend_on_the_order_of_samples)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;

	ck_assert_int_eq(stack_profile_new(&usual, &profile), 0);
	ck_assert_int_eq(add(profile, SPIKE, 1, "fm", 2), 0);
	ck_assert_int_eq(add(profile, SPIKE, 2, "fm", 3), 0);
	ck_assert_int_eq(add(profile, SPIKE, 1, "fn", 2), 0);
	ck_assert_int_eq(add(profile, SPIKE, 3, "f", 1), 0);
	writes(stack_profile_write_functions, profile,
	       FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 0, 8\n"
				     "f\t\t0\t0\t8\t8\t0.000\tt\t1\t4\tp\t1\n"
				     "m\t\t0\t0\t0\t5\t0.000\tt\t2\t3\tp\t1\n"
				     "n\t\t0\t0\t0\t2\t0.000\tt\t1\t2\tp\t1\n"
				     "\t\t0\t0\t4\t4\t0.000\tt\t1\t4\tp\t1\n"
				     "\t\t0\t0\t3\t3\t0.000\tt\t2\t3\tp\t1\n"
				     "\t\t0\t0\t1\t1\t0.000\tt\t3\t1\tp\t1\n");
}
END_TEST

START_TEST(of_processes_out_of_focus_there_is_the_name)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	const int32_t focus[] = { 7, 1 };
	struct stack_profile_options options = usual;
	uint32_t number;
	struct stack_profile_sample sample = {
		.time_ns = SPIKE,
		.pid = 2,
		.tid = 22,
		.process = "noisy",
		.thread = "t",
		.frames = &number,
		.frame_count = 1,
		.count = 3,
	};

	options.focus = focus;
	options.focus_count = ARRAY_LEN(focus);
	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	ck_assert_int_eq(add(profile, SPIKE, 1, "fm", 2), 0);
	ck_assert_int_eq(frame(profile, 0, 1, "hidden", &number), 0);
	ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	writes(stack_profile_write_functions, profile,
	       FUNCTION_TABLE_HEADER "\n" FUNCTION_TABLE_SAMPLES " 0, 5\n"
				     "noisy\t(another process)\t0\t0\t3\t3\t0.000\tt\t22\t3\tnoisy\t2\n"
				     "f\t\t0\t0\t2\t2\t0.000\tt\t1\t2\tp\t1\n"
				     "m\t\t0\t0\t0\t2\t0.000\tt\t1\t2\tp\t1\n"
				     "\t\t0\t0\t3\t3\t0.000\tt\t22\t3\tnoisy\t2\n"
				     "\t\t0\t0\t2\t2\t0.000\tt\t1\t2\tp\t1\n");
	writes(stack_profile_write_folded, profile, "noisy;hidden 3\np;m;f 2\n");
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

START_TEST(stacks_beyond_the_limit_are_other)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	struct stack_profile_options options = usual;
	struct profile_counts counts;

	options.stacks_max = 2;
	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	ck_assert_int_eq(add(profile, 0, 1, "a", 1), 0);
	ck_assert_int_eq(add(profile, 0, 1, "ba", 1), 0);
	ck_assert_int_eq(add(profile, 0, 1, "ca", 10), STACK_PROFILE_FULL);
	ck_assert_int_eq(add(profile, SPIKE, 1, "da", 20), STACK_PROFILE_FULL);
	ck_assert_int_eq(add(profile, SPIKE, 1, "ba", 4), 0);
	counts_are(profile, 12, 24, 30);
	counts = profile_counts(profile);
	ck_assert_uint_eq(counts.stacks, 2);
	writes(stack_profile_write_folded, profile, "(other);(other) 30\np;a 1\np;a;b 5\n");
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

/* Faults of 10 bytes each, as add() has it. */
START_TEST(memory_is_counted_in_bytes)
{
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	struct stack_profile_options options = usual;
	struct buffer out = { 0 }, plain = { 0 };
	struct sink sink = sink_buffer(&out);

	options.quantity = STACK_PROFILE_MEMORY;
	options.period_bytes = 4096;
	options.stacks_max = 2;
	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	ck_assert_int_eq(add(profile, 0, 1, "fm", 3), 0);
	ck_assert_int_eq(add(profile, SPIKE, 1, "fm", 4), 0);
	ck_assert_int_eq(add(profile, SPIKE, 2, "m", 5), 0);
	ck_assert_int_eq(add(profile, SPIKE, 2, "gm", 6), STACK_PROFILE_FULL);
	counts_are(profile, 3, 15, 6);
	writes(stack_profile_write_folded, profile, "(other);(other) 60\np;m 50\np;m;f 70\n");
	writes(stack_profile_write_functions, profile,
	       FUNCTION_TABLE_HEADER_BYTES "\n" FUNCTION_TABLE_BYTES " 30, 150\n"
					   "m\t\t0\t30\t50\t90\t5\tt\t2\t50\tp\t1\n"
					   "(other)\t\t0\t0\t60\t60\t6\t(other)\t0\t60\t\t0\n"
					   "f\t\t30\t30\t40\t40\t4\tt\t1\t40\tp\t1\n"
					   "\t\t0\t0\t60\t60\t6\t(other)\t0\t60\t\t0\n"
					   "\t\t0\t0\t50\t50\t5\tt\t2\t50\tp\t1\n"
					   "\t\t30\t30\t40\t40\t4\tt\t1\t40\tp\t1\n");
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

START_TEST(any_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		long left = 1 << 20;
		struct sink sink = torture_sink(&left);
		int rc;

		torture_arm(n);
		rc = everything(&sink);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
	}
}
END_TEST

START_TEST(any_write_may_fail)
{
	struct buffer out = { 0 };
	struct sink whole = sink_buffer(&out);

	ck_assert_int_eq(everything(&whole), 0);
	for (long room = 0; room < (long)out.len; room += 7) {
		long left = room;
		struct sink sink = torture_sink(&left);

		ck_assert_int_eq(everything(&sink), -EIO);
	}
	buffer_release(&out);
}
END_TEST

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

Suite *stack_profile_suite(void)
{
	Suite *suite = suite_create("stack_profile");
	TCase *tcase = tcase_create("profile");

	tcase_add_test(tcase, the_same_has_the_same_number);
	tcase_add_test(tcase, samples_before_and_during_are_told_apart);
	tcase_add_test(tcase, build_ids_go_into_the_profile_as_hexadecimal);
	tcase_add_test(tcase, the_top_thread_does_not_depend_on_the_order_of_samples);
	tcase_add_test(tcase, of_processes_out_of_focus_there_is_the_name);
	tcase_add_test(tcase, frames_without_names_are_called_after_their_module);
	tcase_add_test(tcase, inlined_functions_are_frames_of_their_own);
	tcase_add_test(tcase, stacks_beyond_the_limit_are_other);
	tcase_add_test(tcase, memory_stays_within_the_limit);
	tcase_add_test(tcase, odd_samples_count_too);
	tcase_add_test(tcase, memory_is_counted_in_bytes);
	tcase_add_test(tcase, any_allocation_may_fail);
	tcase_add_test(tcase, any_write_may_fail);
	tcase_add_test(tcase, a_failed_allocation_leaves_the_profile_as_it_was);
	suite_add_tcase(suite, tcase);
	return suite;
}
