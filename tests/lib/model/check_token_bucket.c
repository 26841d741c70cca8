/* check_token_bucket.c: a share of a core, and who takes more than that. */
#include "lib/model/pacing.h"
#include "lib/base/base.h"

#include <check.h>
#include <stdlib.h>

Suite *token_bucket_suite(void);

#define SHARE 50u
#define ROOM (NS_PER_S / SHARE)

static mono_t at(uint64_t ns)
{
	return (mono_t){ 100 * NS_PER_S + ns };
}

START_TEST(what_a_second_gives_may_be_taken_at_once)
{
	struct token_bucket token_bucket = token_bucket_of(SHARE, at(0));

	token_bucket_take(&token_bucket, ROOM, at(0));
	ck_assert(!token_bucket_is_spent(&token_bucket, at(0)));
	token_bucket_take(&token_bucket, 1, at(0));
	ck_assert(token_bucket_is_spent(&token_bucket, at(0)));
}
END_TEST

START_TEST(what_was_taken_in_advance_is_paid_for_by_time)
{
	struct token_bucket token_bucket = token_bucket_of(SHARE, at(0));

	token_bucket_take(&token_bucket, ROOM + NS_PER_MS, at(0));
	ck_assert(token_bucket_is_spent(&token_bucket, at(49 * NS_PER_MS)));
	ck_assert(!token_bucket_is_spent(&token_bucket, at(50 * NS_PER_MS)));
}
END_TEST

START_TEST(over_long_it_is_no_more_than_the_share)
{
	struct token_bucket token_bucket = token_bucket_of(SHARE, at(0));
	uint64_t taken = 0;

	for (uint64_t ms = 0; ms < 10000; ms++)
		if (!token_bucket_is_spent(&token_bucket, at(ms * NS_PER_MS))) {
			token_bucket_take(&token_bucket, NS_PER_MS, at(ms * NS_PER_MS));
			taken += NS_PER_MS;
		}
	ck_assert_uint_le(taken, ROOM + 10 * ROOM + NS_PER_MS);
	ck_assert_uint_ge(taken, 10 * ROOM);
}
END_TEST

START_TEST(nobody_waits_longer_than_a_second)
{
	struct token_bucket token_bucket = token_bucket_of(SHARE, at(0));

	token_bucket_take(&token_bucket, UINT64_MAX, at(0));
	ck_assert(token_bucket_is_spent(&token_bucket, at(NS_PER_S - SHARE)));
	ck_assert(!token_bucket_is_spent(&token_bucket, at(NS_PER_S)));
}
END_TEST

START_TEST(a_calm_of_any_length_fills_it_and_no_more)
{
	struct token_bucket token_bucket = token_bucket_of(SHARE, at(0));

	token_bucket_take(&token_bucket, 2 * ROOM, at(0));
	token_bucket_take(&token_bucket, 0, at(3600 * NS_PER_S));
	token_bucket_take(&token_bucket, ROOM, at(3600 * NS_PER_S));
	ck_assert(!token_bucket_is_spent(&token_bucket, at(3600 * NS_PER_S)));
	token_bucket_take(&token_bucket, 1, at(3600 * NS_PER_S));
	ck_assert(token_bucket_is_spent(&token_bucket, at(3600 * NS_PER_S)));
}
END_TEST

Suite *token_bucket_suite(void)
{
	Suite *suite = suite_create("token_bucket");
	TCase *tcase = tcase_create("allowance");

	tcase_add_test(tcase, what_a_second_gives_may_be_taken_at_once);
	tcase_add_test(tcase, what_was_taken_in_advance_is_paid_for_by_time);
	tcase_add_test(tcase, over_long_it_is_no_more_than_the_share);
	tcase_add_test(tcase, nobody_waits_longer_than_a_second);
	tcase_add_test(tcase, a_calm_of_any_length_fills_it_and_no_more);
	suite_add_tcase(suite, tcase);

	return suite;
}
