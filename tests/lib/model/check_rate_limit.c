/* check_rate_limit.c: when a source may be heard again. */
#include "lib/model/pacing.h"
#include "lib/base/base.h"

#include <check.h>
#include <stdlib.h>

Suite *rate_limit_suite(void);

#define GAP NS_PER_MS

static mono_t at(uint64_t ns)
{
	return (mono_t){ 100 * NS_PER_S + ns };
}

START_TEST(what_comes_alone_is_heard_at_once_and_so_is_what_comes_next)
{
	struct rate_limit rate_limit = { 0 };

	ck_assert(rate_limit_allows(&rate_limit, at(0)));
	rate_limit_event(&rate_limit, GAP, at(0));
	ck_assert(rate_limit_allows(&rate_limit, at(0)));
	rate_limit_event(&rate_limit, GAP, at(GAP));
	ck_assert(rate_limit_allows(&rate_limit, at(GAP)));
}
END_TEST

START_TEST(what_comes_thick_and_fast_is_heard_every_so_often)
{
	struct rate_limit rate_limit = { 0 };

	rate_limit_event(&rate_limit, GAP, at(0));
	rate_limit_event(&rate_limit, GAP, at(GAP - 1));
	ck_assert(!rate_limit_allows(&rate_limit, at(GAP - 1)));
	ck_assert(!rate_limit_allows(&rate_limit, at(2 * GAP - 2)));
	ck_assert(rate_limit_allows(&rate_limit, at(2 * GAP - 1)));
	ck_assert_uint_eq(rate_limit.until.ns, at(2 * GAP - 1).ns);
}
END_TEST

START_TEST(after_a_calm_it_is_heard_at_once_again)
{
	struct rate_limit rate_limit = { 0 };

	rate_limit_event(&rate_limit, GAP, at(0));
	rate_limit_event(&rate_limit, GAP, at(1));
	rate_limit_event(&rate_limit, GAP, at(NS_PER_S));
	ck_assert(rate_limit_allows(&rate_limit, at(NS_PER_S)));
}
END_TEST

Suite *rate_limit_suite(void)
{
	Suite *suite = suite_create("rate_limit");
	TCase *tcase = tcase_create("rest");

	tcase_add_test(tcase, what_comes_alone_is_heard_at_once_and_so_is_what_comes_next);
	tcase_add_test(tcase, what_comes_thick_and_fast_is_heard_every_so_often);
	tcase_add_test(tcase, after_a_calm_it_is_heard_at_once_again);
	suite_add_tcase(suite, tcase);

	return suite;
}
