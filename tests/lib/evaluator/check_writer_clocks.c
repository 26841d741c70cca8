/* check_writer_clocks.c: windows of each line end by its own ticks, whatever the others do. */
#include "scene.h"
#include "lib/evaluator/evaluator.h"
#include "torture.h"
#include "lib/base/base.h"
#include "lib/config/config.h"

#include <errno.h>

Suite *writer_clocks_suite(void);

static struct config *config;
static struct judged_target_plan plan;
static struct writer_clocks writer_clocks;

/* Window lengths of a plan, in its order: 100 and 250 ms. */
static struct config *config_of(const char *first, const char *second)
{
	return scene_config("{ \"targets\": [ { \"name\": \"a\", \"comm\": \"a\" } ], \"rules\": [\n"
			    "{ \"name\": \"r1\", \"metric\": \"cpu\", \"window\": \"%s\", \"percent\": 40 },\n"
			    "{ \"name\": \"r2\", \"metric\": \"cpu\", \"window\": \"%s\", \"percent\": 40 } ] }",
			    first, second);
}

static void setup(void)
{
	config = config_of("100ms", "250ms");
	ck_assert_int_eq(judged_target_plan_init(&plan, config), 0);
	ck_assert_uint_eq(plan.length_count, 2);
	ck_assert_uint_eq(plan.lengths_ns[0], 100 * NS_PER_MS);
	ck_assert_int_eq(writer_clocks_init(&writer_clocks, &plan), 0);
}

static void teardown(void)
{
	writer_clocks_release(&writer_clocks);
	judged_target_plan_release(&plan);
	config_free(config);
}

static bool step(uint32_t line, uint64_t at_ms)
{
	return writer_clocks_step(&writer_clocks, &plan, line, (mono_t){ at_ms * NS_PER_MS });
}

/* Which windows end with a tick, as bits. */
static unsigned ends(uint32_t line, uint64_t at_ms)
{
	unsigned which;

	ck_assert(step(line, at_ms));
	which = writer_clocks_end(&writer_clocks, &plan, line, 0);
	which |= (unsigned)writer_clocks_end(&writer_clocks, &plan, line, 1) << 1;
	ck_assert(!writer_clocks_end(&writer_clocks, &plan, line, 0) &&
		  !writer_clocks_end(&writer_clocks, &plan, line, 1));
	return which;
}

START_TEST(a_window_ends_with_the_first_tick_at_or_after_its_end)
{
	ck_assert_uint_eq(ends(0, 1010), 0);
	ck_assert_uint_eq(ends(0, 1099), 0);
	ck_assert_uint_eq(ends(0, 1100), 1);
	ck_assert_uint_eq(ends(0, 1100), 0);
	ck_assert_uint_eq(ends(0, 1199), 0);
	ck_assert_uint_eq(ends(0, 1253), 3);
	ck_assert_uint_eq(ends(0, 1900), 3); /* several at once are one */
}
END_TEST

START_TEST(the_first_tick_ends_what_ends_right_then)
{
	ck_assert_uint_eq(ends(0, 1000), 3);
	ck_assert_uint_eq(ends(1, 1100), 1);
	ck_assert_uint_eq(ends(2, 1101), 0);
}
END_TEST

START_TEST(lines_know_nothing_of_each_other)
{
	ck_assert_uint_eq(ends(0, 1010), 0);
	ck_assert_uint_eq(ends(15, 1020), 0);
	ck_assert_uint_eq(ends(0, 1500), 3);
	ck_assert_uint_eq(ends(15, 1030), 0); /* behind the other one: that is not back */
	ck_assert_uint_eq(ends(15, 1100), 1);
	ck_assert_uint_eq(ends(0, 1510), 0);
	ck_assert_uint_eq(ends(15, 1510), 3);
}
END_TEST

START_TEST(time_that_goes_back_is_said_and_begins_anew)
{
	ck_assert_uint_eq(ends(3, 5010), 0);
	ck_assert(!step(3, 1010));
	ck_assert(!writer_clocks_end(&writer_clocks, &plan, 3, 0) && !writer_clocks_end(&writer_clocks, &plan, 3, 1));
	ck_assert_uint_eq(ends(3, 1050), 0);
	ck_assert_uint_eq(ends(3, 1100), 1);
	ck_assert(!step(3, 1000)); /* just then */
	ck_assert(writer_clocks_end(&writer_clocks, &plan, 3, 0) && writer_clocks_end(&writer_clocks, &plan, 3, 1));
}
END_TEST

START_TEST(writers_beyond_the_last_line_share_one)
{
	ck_assert_uint_eq(writer_clocks_of(0), 0);
	ck_assert_uint_eq(writer_clocks_of(WRITER_CLOCKS_MAX - 1), WRITER_CLOCKS_MAX - 1);
	ck_assert_uint_eq(writer_clocks_of(WRITER_CLOCKS_MAX + 2), 2);
	ck_assert_uint_lt(writer_clocks_of(UINT32_MAX), WRITER_CLOCKS_MAX);
}
END_TEST

/* The first length of the new plan is new, the second was the first. */
START_TEST(lengths_that_stay_go_on_and_new_ones_begin_with_their_next_end)
{
	struct config *next_config = config_of("40ms", "100ms");
	const size_t lengths[] = { SIZE_MAX, 0 };
	struct writer_clocks old = writer_clocks;
	struct judged_target_plan old_plan = plan;

	ck_assert_uint_eq(ends(0, 1070), 0);
	ck_assert(step(1, 1199) && step(1, 1210)); /* its end has not been asked for */
	old = writer_clocks;
	ck_assert_int_eq(judged_target_plan_init(&plan, next_config), 0);
	ck_assert_int_eq(writer_clocks_init(&writer_clocks, &plan), 0);
	writer_clocks_inherit(&writer_clocks, &plan, &old, &old_plan, lengths);
	ck_assert_uint_eq(ends(0, 1079), 0);
	ck_assert_uint_eq(ends(0, 1080), 1);
	ck_assert_uint_eq(ends(0, 1100), 2);
	ck_assert_uint_eq(ends(1, 1211), 2);
	ck_assert(!step(0, 900));
	ck_assert_uint_eq(ends(7, 1000), 3); /* one that never ticked */
	writer_clocks_release(&old);
	judged_target_plan_release(&old_plan);
	config_free(next_config);
}
END_TEST

START_TEST(memory_that_runs_out_is_an_error)
{
	struct writer_clocks other = { 0 };

	torture_arm(1);
	ck_assert_int_eq(writer_clocks_init(&other, &plan), -ENOMEM);
	ck_assert(torture_disarm());
	writer_clocks_release(&other);
	ck_assert_int_eq(writer_clocks_init(&other, &(struct judged_target_plan){ 0 }), 0); /* without rules */
	ck_assert(writer_clocks_step(&other, &(struct judged_target_plan){ 0 }, 0, (mono_t){ 1 }));
	writer_clocks_release(&other);
}
END_TEST

Suite *writer_clocks_suite(void)
{
	Suite *suite = suite_create("writer_clocks");
	TCase *tcase = tcase_create("lines");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_window_ends_with_the_first_tick_at_or_after_its_end);
	tcase_add_test(tcase, the_first_tick_ends_what_ends_right_then);
	tcase_add_test(tcase, lines_know_nothing_of_each_other);
	tcase_add_test(tcase, time_that_goes_back_is_said_and_begins_anew);
	tcase_add_test(tcase, writers_beyond_the_last_line_share_one);
	tcase_add_test(tcase, lengths_that_stay_go_on_and_new_ones_begin_with_their_next_end);
	tcase_add_test(tcase, memory_that_runs_out_is_an_error);
	suite_add_tcase(suite, tcase);

	return suite;
}
