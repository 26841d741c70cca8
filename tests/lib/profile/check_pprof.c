/*
 * check_pprof.c: a small profile to the byte, ids that were not given, limits, failing memory and
 * sinks. What pprof itself makes of a profile: tests/pprof.sh.
 */
#include "lib/profile/pprof.h"

#include "lib/base/base.h"
#include "torture.h"
#include "unpacked.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Suite *pprof_suite(void);

static const struct pprof_options small = {
	.values = { { "samples", "count" }, { "cpu", "ns" } },
	.value_count = 2,
	.value_shown = 1,
	.period_type = { "cpu", "ns" },
	.period = 300,
	.wall_ns = 5,
	.duration_ns = 6,
};

static int fill(struct pprof *pprof)
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

static int everything(const struct pprof_options *options, const struct sink *sink)
{
	AUTO(pprof_freep) struct pprof *pprof = NULL;
	int rc = pprof_new(options, &pprof);

	if (rc == 0)
		rc = fill(pprof);
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

	ck_assert_int_eq(everything(&small, &sink), 0);
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
		ck_assert_int_eq(pprof_new(&small, &pprof), 0);
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
	ck_assert_int_eq(pprof_new(&small, &pprof), 0);
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
	struct pprof_options options = small;

	for (options.bytes_max = 1; options.bytes_max < 2000; options.bytes_max++) {
		long left = 10000;
		struct sink sink = torture_sink(&left);
		int rc = everything(&options, &sink);

		ck_assert_int_eq(rc, options.bytes_max < 1200 && rc < 0 ? -EFBIG : 0);
		if (options.bytes_max < 200)
			ck_assert_int_eq(rc, -EFBIG);
	}
}
END_TEST

START_TEST(any_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		long left = 10000;
		struct sink sink = torture_sink(&left);
		int rc;

		torture_arm(n);
		rc = everything(&small, &sink);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
	}
}
END_TEST

START_TEST(a_failing_sink_is_told)
{
	long left = 10;
	struct sink sink = torture_sink(&left);

	ck_assert_int_eq(everything(&small, &sink), -EIO);
}
END_TEST

Suite *pprof_suite(void)
{
	Suite *suite = suite_create("pprof");
	TCase *tcase = tcase_create("encoder");

	tcase_add_test(tcase, a_small_profile_is_to_the_byte);
	tcase_add_test(tcase, ids_that_were_not_given_are_refused_for_good);
	tcase_add_test(tcase, long_and_hostile_strings_are_cut_and_printable);
	tcase_add_test(tcase, it_grows_to_its_limit_and_no_further);
	tcase_add_test(tcase, any_allocation_may_fail);
	tcase_add_test(tcase, a_failing_sink_is_told);
	suite_add_tcase(suite, tcase);
	return suite;
}
