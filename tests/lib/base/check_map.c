/* check_map.c: the hash map against a plain array, vectors, every allocation that fails. */
#include "lib/base/map.h"

#include "torture.h"

#include <check.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define THINGS 3000u

Suite *map_suite(void);

struct thing {
	unsigned number;
	struct map_node node;
	bool inside, seen;
};

static struct thing things[THINGS];

/* Few hashes for many things, if shared: keys that collide. */
static uint64_t hash_of(unsigned number, unsigned shared)
{
	number %= shared;
	return map_hash(&number, sizeof(number));
}

static struct thing *find(const struct map *map, unsigned number, unsigned shared)
{
	for (struct map_node *node = map_first(map, hash_of(number, shared)); node; node = map_next(node)) {
		struct thing *thing = MAP_ENTRY(node, struct thing, node);

		if (thing->number == number)
			return thing;
	}
	return NULL;
}

static void set_inside(struct map *map, struct thing *thing, bool inside, unsigned shared)
{
	if (thing->inside == inside)
		return;
	if (inside)
		map_insert(map, &thing->node, hash_of(thing->number, shared));
	else
		map_remove(map, &thing->node);
	thing->inside = inside;
}

static void begin(struct map *map)
{
	*map = (struct map){ 0 };
	for (unsigned i = 0; i < THINGS; i++)
		things[i] = (struct thing){ .number = i };
}

/* Everything that is inside is found and visited once, and nothing else. */
static void check_all(const struct map *map, unsigned shared)
{
	size_t inside = 0, visited = 0;

	for (unsigned i = 0; i < THINGS; i++) {
		ck_assert_ptr_eq(find(map, i, shared), things[i].inside ? &things[i] : NULL);
		inside += things[i].inside;
		things[i].seen = false;
	}
	MAP_FOR_EACH(node, map) {
		struct thing *thing = MAP_ENTRY(node, struct thing, node);

		ck_assert(thing->inside && !thing->seen);
		thing->seen = true;
		visited++;
	}
	ck_assert_uint_eq(visited, inside);
	ck_assert_uint_eq(map->count, inside);
}

START_TEST(an_empty_map_finds_nothing)
{
	struct map map = { 0 };

	ck_assert_ptr_null(map_first(&map, 0));
	MAP_FOR_EACH(node, &map)
		ck_abort_msg("nothing to visit");
	ck_assert_int_eq(map_reserve(&map, 0), 0);
	ck_assert_ptr_null(map_first(&map, 0));
	ck_assert_ptr_null(map_visit(&map, NULL));
	map_release(&map);
	map_release(&map);
}
END_TEST

START_TEST(finds_what_was_inserted_and_not_removed)
{
	const unsigned shared = _i == 0 ? THINGS : 40; /* and 40 hashes for all */
	struct map map;

	begin(&map);
	srand(7);
	for (unsigned round = 0; round < 12; round++) {
		ck_assert_int_eq(map_reserve(&map, (round + 1) * THINGS / 12), 0);
		for (unsigned i = 0; i < (round + 1) * THINGS / 12; i++)
			set_inside(&map, &things[i], rand() % 3 > 0, shared);
		check_all(&map, shared);
	}
	map_release(&map);
	ck_assert_uint_eq(map.count, 0);
}
END_TEST

START_TEST(the_visited_entry_may_be_removed)
{
	struct map map;

	begin(&map);
	ck_assert_int_eq(map_reserve(&map, THINGS), 0);
	for (unsigned i = 0; i < THINGS; i++)
		set_inside(&map, &things[i], true, 500);
	MAP_FOR_EACH(node, &map) {
		struct thing *thing = MAP_ENTRY(node, struct thing, node);

		if (thing->number % 3 != 0) {
			set_inside(&map, thing, false, 500);
			memset(node, 0xff, sizeof(*node)); /* as free(3) would */
		}
	}
	check_all(&map, 500);
	ck_assert_uint_eq(map.count, THINGS / 3);
	map_release(&map);
}
END_TEST

START_TEST(inserting_after_reserve_allocates_nothing)
{
	struct map map;
	unsigned long before, after;
	int r;

	begin(&map);
	ck_assert_int_eq(map_reserve(&map, THINGS), 0);
	before = torture_allocations();
	for (unsigned i = 0; i < THINGS; i++)
		set_inside(&map, &things[i], true, THINGS);
	r = map_reserve(&map, THINGS);
	after = torture_allocations();
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(after, before);
	check_all(&map, THINGS);
	map_release(&map);
}
END_TEST

START_TEST(a_reserve_without_memory_changes_nothing)
{
	struct map map;
	int r;

	begin(&map);
	torture_arm(1);
	r = map_reserve(&map, 10);
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);

	ck_assert_int_eq(map_reserve(&map, 100), 0);
	for (unsigned i = 0; i < 100; i++)
		set_inside(&map, &things[i], true, 50);
	torture_arm(1);
	r = map_reserve(&map, THINGS);
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	check_all(&map, 50);
	ck_assert_int_eq(map_reserve(&map, SIZE_MAX), -ENOMEM);
	ck_assert_int_eq(map_reserve(&map, SIZE_MAX / 2), -ENOMEM);
	check_all(&map, 50);
	ck_assert_int_eq(map_reserve(&map, THINGS), 0);
	check_all(&map, 50);
	map_release(&map);
}
END_TEST

START_TEST(a_hash_depends_on_every_byte)
{
	unsigned char text[40] = { 0 };
	uint64_t hash = map_hash(text, sizeof(text));

	ck_assert_uint_eq(map_hash(text, sizeof(text)), hash);
	for (size_t len = 0; len < sizeof(text); len++) {
		ck_assert_uint_ne(map_hash(text, len), hash);
		text[len]++;
		ck_assert_uint_ne(map_hash(text, sizeof(text)), hash);
		text[len]--;
	}
}
END_TEST

START_TEST(hashes_of_numbers_spread_over_few_buckets)
{
	unsigned filled[64] = { 0 };

	for (uint64_t i = 0; i < 6400; i++) {
		uint64_t address = 0x7f0000000000 + i * 4096;

		filled[map_hash(&address, sizeof(address)) % 64]++;
	}
	for (unsigned i = 0; i < 64; i++)
		ck_assert(filled[i] > 50 && filled[i] < 150);
}
END_TEST

START_TEST(a_pair_map_remembers_what_fits)
{
	struct pair_map pairs = { .max = 1000 };
	uint32_t value;
	size_t found = 0;

	ck_assert(!pair_map_get(&pairs, 0, 0, &value));
	for (uint32_t i = 0; i < 2000; i++)
		ck_assert_int_eq(pair_map_put(&pairs, i % 7, (uint64_t)i << 12, i), i < 1000 ? 0 : -ENOSPC);
	for (uint32_t i = 0; i < 2000; i++)
		if (pair_map_get(&pairs, i % 7, (uint64_t)i << 12, &value)) {
			ck_assert_uint_eq(value, i);
			found++;
		}
	ck_assert_uint_eq(found, 1000);
	ck_assert(!pair_map_get(&pairs, 8, 0, &value));
	pair_map_release(&pairs);
	for (long n = 1; n <= 2; n++) {
		torture_arm(n);
		int r = pair_map_put(&pairs, 1, 1, 1);

		ck_assert(torture_disarm());
		ck_assert_int_eq(r, -ENOMEM);
		ck_assert(!pair_map_get(&pairs, 1, 1, &value));
		pair_map_release(&pairs);
	}
}
END_TEST

START_TEST(a_vector_keeps_its_elements_and_grows_geometrically)
{
	uint16_t *numbers = NULL, *before;
	size_t cap = 0, moved = 0;

	for (size_t i = 0; i < 10000; i++) {
		before = numbers;
		ck_assert_int_eq(vector_reserve(&numbers, &cap, i + 1, sizeof(*numbers)), 0);
		moved += numbers != before;
		ck_assert_uint_gt(cap, i);
		numbers[i] = (uint16_t)i;
	}
	ck_assert_uint_le(moved, 12);
	ck_assert_uint_le(cap, 20000);
	for (size_t i = 0; i < 10000; i++)
		ck_assert_uint_eq(numbers[i], i);
	ck_assert_int_eq(vector_reserve(&numbers, &cap, 1000000, sizeof(*numbers)), 0);
	ck_assert_uint_eq(cap, 1000000);
	free(numbers);
}
END_TEST

START_TEST(a_vector_without_memory_stays_as_it_is)
{
	uint64_t *numbers = NULL;
	size_t cap = 0;
	int r;

	ck_assert_int_eq(vector_reserve(&numbers, &cap, 3, sizeof(*numbers)), 0);
	numbers[2] = 5;

	uint64_t *at = numbers;
	size_t had = cap;

	torture_arm(1);
	r = vector_reserve(&numbers, &cap, 100, sizeof(*numbers));
	ck_assert(torture_disarm());
	ck_assert_int_eq(r, -ENOMEM);
	ck_assert_int_eq(vector_reserve(&numbers, &cap, SIZE_MAX, sizeof(*numbers)), -ENOMEM);
	ck_assert_int_eq(vector_reserve(&numbers, &cap, SIZE_MAX / 4, sizeof(*numbers)), -ENOMEM);
	ck_assert_ptr_eq(numbers, at);
	ck_assert_uint_eq(cap, had);
	ck_assert_uint_eq(numbers[2], 5);
	free(numbers);
}
END_TEST

Suite *map_suite(void)
{
	Suite *suite = suite_create("map");
	TCase *tcase = tcase_create("map");

	tcase_add_test(tcase, an_empty_map_finds_nothing);
	tcase_add_loop_test(tcase, finds_what_was_inserted_and_not_removed, 0, 2);
	tcase_add_test(tcase, the_visited_entry_may_be_removed);
	tcase_add_test(tcase, inserting_after_reserve_allocates_nothing);
	tcase_add_test(tcase, a_reserve_without_memory_changes_nothing);
	tcase_add_test(tcase, a_hash_depends_on_every_byte);
	tcase_add_test(tcase, a_pair_map_remembers_what_fits);
	tcase_add_test(tcase, hashes_of_numbers_spread_over_few_buckets);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("vector");
	tcase_add_test(tcase, a_vector_keeps_its_elements_and_grows_geometrically);
	tcase_add_test(tcase, a_vector_without_memory_stays_as_it_is);
	suite_add_tcase(suite, tcase);
	return suite;
}
