/* check_folded.c: to the letter, hostile names, failing memory and sinks. */
#include "lib/profile/stack_text.h"

#include "lib/base/base.h"
#include "torture.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

Suite *folded_suite(void);

/* Frames with blanks between them, which are not part of a name here. */
static int count(struct folded *folded, const char *frames, uint64_t times)
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

static void writes(const struct folded *folded, const char *text)
{
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);

	ck_assert_int_eq(folded_write(folded, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_str_eq(out.data, text);
	buffer_release(&out);
}

static int fill(struct folded *folded)
{
	int rc = count(folded, "sh main loop", 3);

	if (rc == 0)
		rc = count(folded, "db main scan", UINT64_C(1) << 40);
	if (rc == 0)
		rc = count(folded, "sh main loop", 4);
	if (rc == 0)
		rc = count(folded, "sh main", 1);
	return rc == 0 ? count(folded, "", 99) : rc;
}

#define FILLED "db;main;scan 1099511627776\nsh;main 1\nsh;main;loop 7\n"

START_TEST(the_same_stack_is_one_line_and_lines_are_sorted)
{
	AUTO(folded_freep) struct folded *folded = NULL;

	ck_assert_int_eq(folded_new(0, &folded), 0);
	writes(folded, "");
	ck_assert_int_eq(fill(folded), 0);
	writes(folded, FILLED);
	writes(folded, FILLED);
}
END_TEST

START_TEST(many_stacks_keep_their_counts)
{
	AUTO(folded_freep) struct folded *folded = NULL;
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	char name[] = "a0000";

	ck_assert_int_eq(folded_new(0, &folded), 0);
	for (unsigned i = 0; i < 1000; i++) {
		name[2] = (char)('0' + i / 100);
		name[3] = (char)('0' + i / 10 % 10);
		name[4] = (char)('0' + i % 10);
		ck_assert_int_eq(count(folded, name, i), 0);
	}
	ck_assert_int_eq(folded_write(folded, &sink), 0);
	ck_assert_int_eq(buffer_append(&out, "", 1), 0);
	ck_assert_ptr_nonnull(strstr(out.data, "a0063 63\na0064 64\na0065 65\n"));
	ck_assert_ptr_nonnull(strstr(out.data, "a0999 999\n"));
	buffer_release(&out);
}
END_TEST

START_TEST(what_is_beyond_the_limit_is_one_line)
{
	AUTO(folded_freep) struct folded *folded = NULL;

	ck_assert_int_eq(folded_new(300, &folded), 0);
	ck_assert_int_eq(count(folded, "sh main", 1), 0);
	for (unsigned i = 0; i < 10; i++)
		ck_assert_int_eq(count(folded, (char[]){ (char)('a' + i), '\0' }, 10), 0);
	ck_assert_int_eq(count(folded, "sh main", 2), 0);
	folded_other(folded, 1000);
	writes(folded, "(other);(other) 1080\na 10\nb 10\nsh;main 3\n");
}
END_TEST

START_TEST(hostile_names_stay_one_frame)
{
	AUTO(folded_freep) struct folded *folded = NULL;
	char whole[600];

	ck_assert_int_eq(folded_new(0, &folded), 0);
	ck_assert_int_eq(folded_push(folded, ";a;;b\n1 2\x1b[2J\xff\\"), 0);
	ck_assert_int_eq(folded_push(folded, ""), 0);
	ck_assert_int_eq(folded_push(folded, "x y 7"), 0);
	ck_assert_int_eq(folded_count(folded, 5), 0);
	writes(folded, "\\x3ba\\x3b\\x3bb\\x0a1 2\\x1b[2J\\xff\\x5c;?;x y 7 5\n");

	/* Longer than a piece, characters across its end. */
	for (size_t shift = 0; shift < 3; shift++) {
		AUTO(folded_freep) struct folded *another = NULL;
		char want[620];
		size_t len = shift;

		memset(whole, 'x', len);
		for (; len < 590; len += 3)
			memcpy(whole + len, "\xe2\x82\xac", 3);
		whole[len] = '\0';
		memcpy(want, whole, len);
		memcpy(want + len, " 1\n", 4);
		ck_assert_int_eq(folded_new(0, &another), 0);
		ck_assert_int_eq(folded_push(another, whole), 0);
		ck_assert_int_eq(folded_count(another, 1), 0);
		writes(another, want);
	}
}
END_TEST

static int everything(const struct sink *sink)
{
	AUTO(folded_freep) struct folded *folded = NULL;
	int rc = folded_new(0, &folded);

	if (rc == 0)
		rc = fill(folded);
	return rc == 0 ? folded_write(folded, sink) : rc;
}

START_TEST(any_allocation_may_fail)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		long left = 1000;
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
	for (long room = 0; room <= (long)strlen(FILLED); room++) {
		long left = room;
		struct sink sink = torture_sink(&left);

		ck_assert_int_eq(everything(&sink), room < (long)strlen(FILLED) ? -EIO : 0);
	}
}
END_TEST

Suite *folded_suite(void)
{
	Suite *suite = suite_create("folded");
	TCase *tcase = tcase_create("stacks");

	tcase_add_test(tcase, the_same_stack_is_one_line_and_lines_are_sorted);
	tcase_add_test(tcase, many_stacks_keep_their_counts);
	tcase_add_test(tcase, what_is_beyond_the_limit_is_one_line);
	tcase_add_test(tcase, hostile_names_stay_one_frame);
	tcase_add_test(tcase, any_allocation_may_fail);
	tcase_add_test(tcase, any_write_may_fail);
	suite_add_tcase(suite, tcase);
	return suite;
}
