/*
 * check_pprof_read.c: what profile.h writes comes back, what Go writes is read, and what is cut,
 * changed or none is refused.
 */
#include "lib/profile/pprof.h"
#include "lib/profile/profile.h"

#include "lib/base/compress.h"
#include "scene.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "torture.h"

#include <check.h>
#include <errno.h>
#include <sys/stat.h>

Suite *pprof_read_suite(void);

static struct buffer made;

static void is(const struct pprof_read_profile *profile, uint32_t string, const char *text)
{
	const struct pprof_read_text *known = &profile->strings[string];

	ck_assert_msg(known->len == strlen(text) && memcmp(known->at, text, known->len) == 0, "%.*s, not %s",
		      (int)known->len, known->at, text);
}

/* main calls scan, into which next is inlined; two phases. */
static void make(void)
{
	const struct stack_profile_options options = {
		.wall_ns = UINT64_C(1795144502123000000),
		.to_ns = 15000000000,
		.spike_from_ns = 1,
		.period_ns = 10000000,
	};
	const struct stack_profile_line of_main = { "main", "x.c", 7 };
	const struct stack_profile_line of_scan[] = { { "next", "x.c", 30 }, { "scan", "x.c", 20 } };
	AUTO(stack_profile_freep) struct stack_profile *profile = NULL;
	struct sink sink = sink_buffer(&made);
	uint32_t mapping, frames[2];

	ck_assert_int_eq(stack_profile_new(&options, &profile), 0);
	ck_assert_int_eq(stack_profile_mapping(profile,
					       &(struct stack_profile_mapping){ .start = 0x400000,
										.end = 0x500000,
										.offset = 0x1000,
										.path = "/bin/x",
										.build_id = { 0xbe, 0xef },
										.build_id_len = 2 },
					       &mapping),
			 0);
	ck_assert_int_eq(stack_profile_frame(profile, &(struct stack_profile_frame){ mapping, 0x402000, of_scan, 2 },
					     &frames[0]),
			 0);
	ck_assert_int_eq(stack_profile_frame(profile, &(struct stack_profile_frame){ mapping, 0x401000, &of_main, 1 },
					     &frames[1]),
			 0);
	for (unsigned i = 0; i < 2; i++) {
		const struct stack_profile_sample sample = {
			.time_ns = i,
			.tid = -9,
			.frames = frames,
			.frame_count = 2,
			.count = i + 3,
			.weight = (uint64_t)(i + 3) * 10000000,
		};

		ck_assert_int_eq(stack_profile_add(profile, &sample), 0);
	}
	ck_assert_int_eq(stack_profile_write_pprof(profile, &sink), 0);
}

static void set_up(void)
{
	made = (struct buffer){ 0 };
	make();
}

static void tear_down(void)
{
	buffer_release(&made);
}

START_TEST(what_was_written_comes_back)
{
	const struct pprof_read_profile *profile;
	const struct pprof_read_sample *sample;
	const struct pprof_read_location *leaf;
	struct pprof_read *reader = NULL;

	ck_assert_int_eq(pprof_read_new(made.data, made.len, NULL, &reader), 0);
	profile = pprof_read_profile(reader);
	ck_assert_int_eq(pprof_read_value(profile, "cpu", "nanoseconds"), 1);
	ck_assert_int_eq(pprof_read_value(profile, "samples", NULL), 0);
	ck_assert_int_eq(pprof_read_value(profile, "cpu", "count"), -1);
	ck_assert_int_eq(profile->time_ns, INT64_C(1795144502123000000));
	ck_assert_int_eq(profile->duration_ns, 15000000000);
	ck_assert_int_eq(profile->period, 10000000);
	ck_assert_uint_eq(profile->mapping_count, 1);
	ck_assert_uint_eq(profile->mappings[0].start, 0x400000);
	ck_assert_uint_eq(profile->mappings[0].limit, 0x500000);
	is(profile, profile->mappings[0].file, "/bin/x");
	is(profile, profile->mappings[0].build_id, "beef");
	ck_assert_uint_eq(profile->sample_count, 2);
	sample = &profile->samples[1];
	ck_assert_int_eq(sample->values[0], 4);
	ck_assert_int_eq(sample->values[1], 40000000);
	ck_assert_int_eq(sample->values[2], 0);
	is(profile, pprof_read_label(profile, sample, "phase")->text, "during");
	ck_assert_int_eq(pprof_read_label(profile, sample, "thread_id")->number, -9);
	ck_assert_ptr_null(pprof_read_label(profile, sample, "threa"));
	ck_assert_uint_eq(sample->frame_count, 2);
	leaf = &profile->locations[profile->frames[sample->frame_first]];
	ck_assert_uint_eq(leaf->address, 0x402000);
	ck_assert_uint_eq(leaf->mapping, 1);
	ck_assert_uint_eq(leaf->line_count, 2);
	is(profile, profile->functions[profile->lines[leaf->line_first].function - 1].name, "next");
	ck_assert_int_eq(profile->lines[leaf->line_first].line, 30);
	is(profile, profile->functions[profile->lines[leaf->line_first + 1].function - 1].name, "scan");
	is(profile, profile->functions[profile->lines[leaf->line_first + 1].function - 1].file, "x.c");
	pprof_read_free(reader);
}
END_TEST

/*
 * Written by runtime/pprof: packed numbers, labels, several lines, a heap profile with four values.
 */
static struct pprof_read *read_golden(const char *name)
{
	char path[80];
	struct pprof_read *reader = NULL;
	struct stat st;

	snprintf(path, sizeof(path), "tests/fuzz/corpus/pprof_read/%s", name);
	AUTO_FREE char *text = scene_read(path);
	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(pprof_read_new(text, (size_t)st.st_size, NULL, &reader), 0);
	return reader;
}

START_TEST(what_go_has_written_is_read)
{
	struct pprof_read *cpu = read_golden("go_cpu"), *heap = read_golden("go_heap");
	const struct pprof_read_profile *profile = pprof_read_profile(cpu);
	bool spins = false, labelled = false;

	ck_assert_int_eq(pprof_read_value(profile, "cpu", "nanoseconds"), 1);
	ck_assert_int_gt(profile->time_ns, 0);
	ck_assert_uint_gt(profile->sample_count, 0);
	for (uint32_t i = 0; i < profile->function_count; i++)
		spins |= strncmp(profile->strings[profile->functions[i].name].at, "main.spin", 9) == 0;
	for (uint32_t i = 0; i < profile->sample_count; i++)
		labelled |= pprof_read_label(profile, &profile->samples[i], "thread") != NULL;
	ck_assert(spins && labelled);
	profile = pprof_read_profile(heap);
	ck_assert_uint_eq(profile->type_count, 4);
	ck_assert_int_eq(pprof_read_value(profile, "inuse_space", "bytes"), 3);
	pprof_read_free(cpu);
	pprof_read_free(heap);
}
END_TEST

START_TEST(what_is_not_compressed_is_read_too)
{
	struct pprof_read *reader = NULL;
	struct buffer plain = { 0 };

	ck_assert_int_eq(deflate_gunzip(made.data, made.len, 1 << 20, &plain), 0);
	ck_assert_int_eq(pprof_read_new(plain.data, plain.len, NULL, &reader), 0);
	ck_assert_uint_eq(pprof_read_profile(reader)->sample_count, 2);
	pprof_read_free(reader);
	buffer_release(&plain);
}
END_TEST

/* A profile of these bytes. */
static int read_bytes(const char *bytes, size_t len)
{
	struct pprof_read *reader = NULL;
	int rc = pprof_read_new(bytes, len, NULL, &reader);

	pprof_read_free(reader);
	return rc;
}

#define BYTES(text) read_bytes(text, sizeof(text) - 1)

START_TEST(what_is_none_is_refused)
{
	ck_assert_int_eq(BYTES(""), -EBADMSG);
	ck_assert_int_eq(BYTES("hello"), -EBADMSG);
	ck_assert_int_eq(BYTES("\x1f\x8b\x08"), -EBADMSG);
	/* The least there can be: the empty string. */
	ck_assert_int_eq(BYTES("\x32\0"), 0);
	ck_assert_int_eq(BYTES("\x32\1x"), -EBADMSG);
	/* A string, a location, a function, a mapping that is not there. */
	ck_assert_int_eq(BYTES("\x32\0\x0a\x02\x08\x01"), -EBADMSG);
	ck_assert_int_eq(BYTES("\x32\0\x12\x02\x08\x01"), -EBADMSG);
	ck_assert_int_eq(BYTES("\x32\0\x22\x06\x08\x01\x22\x02\x08\x05"), -EBADMSG);
	ck_assert_int_eq(BYTES("\x32\0\x22\x04\x08\x01\x10\x02"), -EBADMSG);
	/* Ids of 0, and given twice. */
	ck_assert_int_eq(BYTES("\x32\0\x22\x02\x18\x07"), -EBADMSG);
	ck_assert_int_eq(BYTES("\x32\0\x22\x02\x08\x07\x22\x02\x08\x07"), -EBADMSG);
	ck_assert_int_eq(BYTES("\x32\0\x22\x02\x08\x07\x22\x02\x08\x08"), 0);
	/* A group, a number of eleven bytes, more than there is. */
	ck_assert_int_eq(BYTES("\x32\0\x0b\x0c"), -EBADMSG);
	ck_assert_int_eq(BYTES("\x32\0\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), -EBADMSG);
	ck_assert_int_eq(BYTES("\x32\x7f"), -EBADMSG);
	/* Unknown fields are skipped. */
	ck_assert_int_eq(BYTES("\x32\0\xf8\x01\x05\xfd\x01\1\2\3\4\xf9\x01\1\2\3\4\5\6\7\x08"), 0);
}
END_TEST

START_TEST(limits_are_kept)
{
	const struct pprof_read_options small = { .bytes_max = 100 }, poor = { .memory_max = 1000 };
	struct pprof_read *reader = NULL;

	ck_assert_int_eq(pprof_read_new(made.data, made.len, &small, &reader), -EFBIG);
	ck_assert_int_eq(pprof_read_new(made.data, made.len, &poor, &reader), -EFBIG);
	ck_assert_ptr_null(reader);
}
END_TEST

START_TEST(several_members_are_one_profile)
{
	struct buffer packed = { 0 }, plain = { 0 };
	struct sink sink = sink_buffer(&packed);
	struct pprof_read *reader = NULL;

	ck_assert_int_eq(deflate_gunzip(made.data, made.len, 1 << 20, &plain), 0);
	ck_assert_int_eq(deflate_gzip(plain.data, 50, &sink), 0);
	ck_assert_int_eq(deflate_gzip(plain.data + 50, plain.len - 50, &sink), 0);
	ck_assert_int_eq(pprof_read_new(packed.data, packed.len, NULL, &reader), 0);
	ck_assert_uint_eq(pprof_read_profile(reader)->sample_count, 2);
	pprof_read_free(reader);
	buffer_release(&packed);
	buffer_release(&plain);
}
END_TEST

START_TEST(gzip_that_is_cut_or_changed_is_refused)
{
	struct buffer plain = { 0 };

	for (size_t len = 0; len < made.len; len++)
		ck_assert_int_eq(deflate_gunzip(made.data, len, 1 << 20, &plain), -EBADMSG);
	for (size_t i = 10; i < made.len; i++) {
		int rc;

		made.data[i] ^= 4;
		rc = deflate_gunzip(made.data, made.len, 1 << 20, &plain);
		made.data[i] ^= 4;
		ck_assert_msg(rc == -EBADMSG || rc == -EFBIG, "byte %zu: %d", i, rc);
	}
	ck_assert_uint_eq(plain.len, 0);
	ck_assert_int_eq(deflate_gunzip(made.data, made.len, 10, &plain), -EFBIG);
	buffer_release(&plain);
}
END_TEST

START_TEST(a_bomb_stops_at_the_limit)
{
	AUTO_FREE char *zeros = calloc(1, 1 << 24);
	struct buffer packed = { 0 }, plain = { 0 };
	struct sink sink = sink_buffer(&packed);

	ck_assert_int_eq(deflate_gzip(zeros, 1 << 24, &sink), 0);
	ck_assert_uint_lt(packed.len, 1 << 16);
	ck_assert_int_eq(deflate_gunzip(packed.data, packed.len, 1 << 20, &plain), -EFBIG);
	ck_assert_int_eq(deflate_gunzip(packed.data, packed.len, 1 << 24, &plain), 0);
	ck_assert_uint_eq(plain.len, 1 << 24);
	buffer_release(&packed);
	buffer_release(&plain);
}
END_TEST

START_TEST(is_read_or_memory_is_short)
{
	struct pprof_read *reader = NULL;
	bool injected = true;

	for (long n = 1; injected; n++) {
		int rc;

		torture_arm(n);
		rc = pprof_read_new(made.data, made.len, NULL, &reader);
		injected = torture_disarm();
		ck_assert_int_eq(rc, injected ? -ENOMEM : 0);
	}
	pprof_read_free(reader);
}
END_TEST

Suite *pprof_read_suite(void)
{
	Suite *suite = suite_create("pprof_read");
	TCase *tcase = tcase_create("pprofread");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, what_was_written_comes_back);
	tcase_add_test(tcase, what_go_has_written_is_read);
	tcase_add_test(tcase, what_is_not_compressed_is_read_too);
	tcase_add_test(tcase, what_is_none_is_refused);
	tcase_add_test(tcase, limits_are_kept);
	tcase_add_test(tcase, several_members_are_one_profile);
	tcase_add_test(tcase, gzip_that_is_cut_or_changed_is_refused);
	tcase_add_test(tcase, a_bomb_stops_at_the_limit);
	tcase_add_test(tcase, is_read_or_memory_is_short);
	suite_add_tcase(suite, tcase);
	return suite;
}
