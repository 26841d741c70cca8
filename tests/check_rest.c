/* check_rest.c: when a source may be heard again. */
#include "lib/model/pacing.h"
#include "lib/base/base.h"

#include <check.h>
#include <stdlib.h>

Suite *rest_suite(void);

#define GAP NS_PER_MS

static mono_t at(uint64_t ns)
{
	return (mono_t){ 100 * NS_PER_S + ns };
}

START_TEST(what_comes_alone_is_heard_at_once_and_so_is_what_comes_next)
{
	struct rest rest = { 0 };

	ck_assert(rest_is_over(&rest, at(0)));
	rest_found(&rest, GAP, at(0));
	ck_assert(rest_is_over(&rest, at(0)));
	rest_found(&rest, GAP, at(GAP));
	ck_assert(rest_is_over(&rest, at(GAP)));
}
END_TEST

START_TEST(what_comes_thick_and_fast_is_heard_every_so_often)
{
	struct rest rest = { 0 };

	rest_found(&rest, GAP, at(0));
	rest_found(&rest, GAP, at(GAP - 1));
	ck_assert(!rest_is_over(&rest, at(GAP - 1)));
	ck_assert(!rest_is_over(&rest, at(2 * GAP - 2)));
	ck_assert(rest_is_over(&rest, at(2 * GAP - 1)));
	ck_assert_uint_eq(rest.until.ns, at(2 * GAP - 1).ns);
}
END_TEST

START_TEST(after_a_calm_it_is_heard_at_once_again)
{
	struct rest rest = { 0 };

	rest_found(&rest, GAP, at(0));
	rest_found(&rest, GAP, at(1));
	rest_found(&rest, GAP, at(NS_PER_S));
	ck_assert(rest_is_over(&rest, at(NS_PER_S)));
}
END_TEST

Suite *rest_suite(void)
{
	Suite *suite = suite_create("rest");
	TCase *tcase = tcase_create("rest");

	tcase_add_test(tcase, what_comes_alone_is_heard_at_once_and_so_is_what_comes_next);
	tcase_add_test(tcase, what_comes_thick_and_fast_is_heard_every_so_often);
	tcase_add_test(tcase, after_a_calm_it_is_heard_at_once_again);
	suite_add_tcase(suite, tcase);

	return suite;
}
