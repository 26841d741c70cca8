/* check_idle_backoff.c: what the writer does and what the readers go by. */
#include "lib/model/pacing.h"
#include "lib/base/base.h"

#include <check.h>
#include <stddef.h>

Suite *idle_backoff_suite(void);

#define MS NS_PER_MS
#define S NS_PER_S

START_TEST(a_pause_is_an_eighth_of_the_rest_and_no_more_than_the_longest)
{
	static const struct idle_backoff paces[] = { { 10 * MS, 100 * MS },
						     { MS, 70 * MS },
						     { 100 * NS_PER_US, S },
						     { 3 * MS, 10 * MS },
						     { 10 * MS, 19 * MS } };

	for (size_t p = 0; p < ARRAY_LEN(paces); p++) {
		uint64_t longest = 0;

		for (uint64_t ticks = 0; ticks < 20000; ticks += 7) {
			uint64_t still = ticks * paces[p].interval_ns;
			uint64_t wait = idle_backoff_wait_ns(&paces[p], still, (uint32_t)ticks, (uint32_t)p);

			ck_assert(wait == 0 || wait > paces[p].interval_ns);
			if (wait > 0) /* and the next tick, half an interval later, is still in time */
				ck_assert_uint_le(wait + paces[p].interval_ns / 2,
						  idle_backoff_bound_ns(still, paces[p].idle_ns));
			longest = wait > longest ? wait : longest;
		}
		ck_assert_uint_eq(longest > 0, paces[p].idle_ns >= 2 * paces[p].interval_ns);
	}
}
END_TEST

START_TEST(without_a_longer_interval_every_tick_is_for_all)
{
	ck_assert_uint_eq(idle_backoff_wait_ns(&(struct idle_backoff){ 10 * MS, 0 }, S, 1, 1), 0);
	ck_assert_uint_eq(idle_backoff_wait_ns(&(struct idle_backoff){ 10 * MS, 10 * MS }, S, 1, 1), 0);
	ck_assert_uint_eq(idle_backoff_wait_ns(&(struct idle_backoff){ 200 * MS, 100 * MS }, S, 1, 1), 0);
	ck_assert_uint_eq(idle_backoff_wait_ns(&(struct idle_backoff){ 0, 100 * MS }, S, 1, 1), 0);
}
END_TEST

START_TEST(phases_are_spread_and_kept)
{
	const struct idle_backoff pace = { 10 * MS, 100 * MS };
	unsigned looks[100] = { 0 };

	for (uint32_t phase = 0; phase < 40; phase++)
		for (uint32_t tick = 0; tick < 100;) {
			uint64_t wait = idle_backoff_wait_ns(&pace, 10 * S, tick, phase);

			looks[tick]++;
			tick += wait == 0 ? 1 : (uint32_t)((wait + 5 * MS) / (10 * MS));
		}
	for (unsigned tick = 10; tick < 100; tick++)
		ck_assert_uint_eq(looks[tick], 4);
}
END_TEST

START_TEST(a_reader_knows_as_much_as_follows)
{
	mono_t at = { 10 * S }, since = { 10 * S };

	ck_assert_uint_eq(idle_backoff_seen_at(at, &since, at, 100 * MS).ns, at.ns);
	ck_assert_uint_eq(idle_backoff_seen_at(at, &since, mono_add(at, 80 * MS), 100 * MS).ns, at.ns + 70 * MS);
	ck_assert_uint_eq(idle_backoff_seen_at(at, &since, mono_add(at, 8 * S), 100 * MS).ns, at.ns + 7900 * MS);
	ck_assert_uint_eq(idle_backoff_seen_at(at, &since, mono_add(at, 8 * S), 0).ns, at.ns + 8 * S);
	/* A record that says nothing new says when it was seen. */
	ck_assert_uint_eq(idle_backoff_seen_at(mono_add(at, 8 * S), &since, mono_add(at, 8 * S + 50 * MS), 100 * MS).ns,
			  at.ns + 8 * S);
	/* Who does not know when it changed takes it to be long ago. */
	ck_assert_uint_eq(idle_backoff_seen_at(at, NULL, mono_add(at, 80 * MS), 100 * MS).ns, at.ns);
	ck_assert_uint_eq(idle_backoff_seen_at(at, NULL, mono_add(at, 120 * MS), 100 * MS).ns, at.ns + 20 * MS);
	/* A tick from before the record. */
	ck_assert_uint_eq(idle_backoff_seen_at(at, &since, mono_sub(at, S), 100 * MS).ns, at.ns);
}
END_TEST

Suite *idle_backoff_suite(void)
{
	Suite *suite = suite_create("idle_backoff");
	TCase *tcase = tcase_create("pauses");

	tcase_add_test(tcase, a_pause_is_an_eighth_of_the_rest_and_no_more_than_the_longest);
	tcase_add_test(tcase, without_a_longer_interval_every_tick_is_for_all);
	tcase_add_test(tcase, phases_are_spread_and_kept);
	tcase_add_test(tcase, a_reader_knows_as_much_as_follows);
	suite_add_tcase(suite, tcase);

	return suite;
}
