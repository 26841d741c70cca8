/* The map of a reader against the simplest model of it. */
#include "lib/ring/ring.h"

#include <check.h>

#include <stdlib.h>

Suite *ring_states_suite(void);

#define IDS 300u

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void compare(const struct ring_states *states, const uint64_t *seen)
{
	size_t count = 0;
	size_t position = 0;

	for (uint32_t id = 1; id <= IDS; id++) {
		const struct ring_state *state = ring_states_find(states, id);
		ck_assert_int_eq(state != NULL, seen[id] != 0);
		if (state != NULL)
			ck_assert_uint_eq(state->seen, seen[id]);
		count += seen[id] != 0;
	}
	ck_assert_uint_eq(states->count, count);
	while (ring_states_walk(states, &position) != NULL)
		count--;
	ck_assert_uint_eq(count, 0);
}

START_TEST(the_map_is_as_its_model)
{
	struct ring_states states = { 0 };
	uint64_t seen[IDS + 1] = { 0 };
	uint32_t random = 1;

	for (uint64_t step = 1; step < 20000; step++) {
		uint32_t id = next_random(&random) % IDS + 1;
		if (next_random(&random) % 3 == 0) {
			ring_states_drop(&states, id);
			seen[id] = 0;
		} else {
			ck_assert_ptr_nonnull(ring_states_touch(&states, id, step));
			seen[id] = step;
		}
		if (step % 4000 == 0) {
			ring_states_expire(&states, step - 100);
			for (id = 1; id <= IDS; id++)
				seen[id] = seen[id] < step - 100 ? 0 : seen[id];
		}
		if (step % 20 == 0)
			compare(&states, seen);
	}
	ring_states_release(&states);
	ck_assert_ptr_null(ring_states_find(&states, 1));
}
END_TEST

START_TEST(a_description_is_new_once)
{
	struct ring_states states = { 0 };
	struct ring_state *state = ring_states_touch(&states, 7, 1);

	ck_assert_int_eq(ring_state_describe(state, "one", 3), 1);
	ck_assert_int_eq(ring_state_describe(state, "one", 3), 0);
	ck_assert_int_eq(ring_state_describe(state, "on", 2), 1);
	ck_assert_int_eq(ring_state_describe(state, "", 0), 1);
	ring_states_release(&states);
}
END_TEST

Suite *ring_states_suite(void)
{
	Suite *suite = suite_create("ring_states");
	TCase *tc = tcase_create("map");

	tcase_add_test(tc, the_map_is_as_its_model);
	tcase_add_test(tc, a_description_is_new_once);
	suite_add_tcase(suite, tc);
	return suite;
}
