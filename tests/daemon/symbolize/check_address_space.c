/*
 * check_address_space.c: which process had what mapped, record by record; and pair_map.h, which
 * remembers what came of it.
 */
#include "daemon/symbolize/address_space.h"
#include "lib/base/map.h"
#include "torture.h"
#include "lib/proc/perf.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct address_spaces *spaces;

static void setup(void)
{
	ck_assert_int_eq(address_spaces_new(&(struct address_spaces_limits){ 0 }, &spaces), 0);
}

static void teardown(void)
{
	address_spaces_free(spaces);
}

static struct perf_record mapping(uint32_t pid, uint64_t start, uint64_t end, const char *path)
{
	struct perf_record record = { .type = PERF_RECORD_MMAP2, .pid = pid, .tid = pid };

	record.mmap =
		(struct perf_record_mmap){ .start = start, .len = end - start, .path = path, .path_len = strlen(path) };

	return record;
}

static void map(uint32_t pid, uint64_t start, uint64_t end, const char *path)
{
	struct perf_record record = mapping(pid, start, end, path);

	ck_assert_int_eq(address_spaces_record(spaces, &record), 0);
}

static void name(uint32_t pid, uint32_t tid, const char *what, bool exec)
{
	struct perf_record record = { .type = PERF_RECORD_COMM, .pid = pid, .tid = tid };

	record.comm.name = what;
	record.comm.name_len = strlen(what);
	record.comm.exec = exec;
	ck_assert_int_eq(address_spaces_record(spaces, &record), 0);
}

static void begin(uint32_t type, uint32_t pid, uint32_t tid, uint32_t parent)
{
	struct perf_record record = { .type = type, .pid = pid, .tid = tid };

	record.fork.ppid = record.fork.ptid = parent;
	ck_assert_int_eq(address_spaces_record(spaces, &record), 0);
}

static const char *at(uint32_t pid, uint64_t address)
{
	const struct address_space_mapping *found = address_spaces_find(spaces, pid, address);

	return found != NULL ? found->path : "";
}

START_TEST(a_mapping_is_found_from_its_first_to_its_last_byte)
{
	map(1, 100, 200, "b");
	map(1, 300, 400, "c");
	map(1, 50, 60, "a");
	ck_assert_str_eq(at(1, 49), "");
	ck_assert_str_eq(at(1, 50), "a");
	ck_assert_str_eq(at(1, 100), "b");
	ck_assert_str_eq(at(1, 199), "b");
	ck_assert_str_eq(at(1, 200), "");
	ck_assert_str_eq(at(1, 399), "c");
	ck_assert_str_eq(at(1, 400), "");
	ck_assert_str_eq(at(2, 100), "");
}
END_TEST

START_TEST(a_new_mapping_takes_the_place_of_what_was_there)
{
	map(1, 100, 200, "a");
	map(1, 200, 300, "b");
	map(1, 300, 400, "c");
	map(1, 150, 350, "new");
	ck_assert_str_eq(at(1, 149), "a");
	ck_assert_str_eq(at(1, 150), "new");
	ck_assert_str_eq(at(1, 349), "new");
	ck_assert_str_eq(at(1, 350), "c");
	ck_assert_uint_eq(address_spaces_find(spaces, 1, 350)->offset_bytes, 50);
	map(1, 200, 210, "within");
	ck_assert_str_eq(at(1, 199), "new");
	ck_assert_str_eq(at(1, 205), "within");
	ck_assert_str_eq(at(1, 210), "new");
	ck_assert_uint_eq(address_spaces_find(spaces, 1, 210)->offset_bytes, 60);
	ck_assert_uint_eq(address_spaces_find(spaces, 1, 210)->id, address_spaces_find(spaces, 1, 199)->id);
	ck_assert_uint_ne(address_spaces_find(spaces, 1, 205)->id, address_spaces_find(spaces, 1, 199)->id);
}
END_TEST

START_TEST(a_child_has_its_parents_mappings_and_changes_only_its_own)
{
	map(1, 100, 200, "a");
	name(1, 1, "parent", false);
	begin(PERF_RECORD_FORK, 2, 2, 1);
	ck_assert_str_eq(at(2, 100), "a");
	ck_assert_str_eq(address_spaces_name(spaces, 2), "parent");
	map(2, 100, 200, "b");
	map(1, 300, 400, "c");
	ck_assert_str_eq(at(1, 100), "a");
	ck_assert_str_eq(at(2, 100), "b");
	ck_assert_str_eq(at(2, 300), "");
}
END_TEST

START_TEST(another_program_starts_with_nothing)
{
	map(1, 100, 200, "a");
	name(1, 1, "same", false);
	ck_assert_str_eq(at(1, 100), "a");
	name(1, 1, "other", true);
	ck_assert_str_eq(at(1, 100), "");
	ck_assert_str_eq(address_spaces_name(spaces, 1), "other");
}
END_TEST

START_TEST(a_thread_has_a_name_and_no_mappings_of_its_own)
{
	name(1, 1, "main", false);
	begin(PERF_RECORD_FORK, 1, 5, 1);
	ck_assert_str_eq(address_spaces_name(spaces, 5), "main");
	name(1, 5, "a thread with too long a name", false);
	ck_assert_str_eq(address_spaces_name(spaces, 5), "a thread with t");
	ck_assert_str_eq(address_spaces_name(spaces, 1), "main");
	ck_assert_ptr_null(address_spaces_name(spaces, 6));
}
END_TEST

START_TEST(a_process_that_has_ended_stays_until_its_number_is_taken)
{
	map(1, 100, 200, "a");
	begin(PERF_RECORD_EXIT, 1, 1, 0);
	ck_assert_str_eq(at(1, 100), "a");
	begin(PERF_RECORD_FORK, 1, 1, 0);
	ck_assert_str_eq(at(1, 100), "");
}
END_TEST

START_TEST(what_does_not_fit_is_counted_and_those_that_ended_make_room)
{
	const struct address_spaces_limits limits = { .tasks = 4, .mappings = 6, .texts = 1 << 16 };

	teardown();
	ck_assert_int_eq(address_spaces_new(&limits, &spaces), 0);
	for (uint32_t pid = 1; pid <= 5; pid++)
		map(pid, 100, 200, "a");
	ck_assert_str_eq(at(4, 100), "a");
	ck_assert_str_eq(at(5, 100), "");
	ck_assert_uint_eq(address_spaces_dropped(spaces), 1);
	begin(PERF_RECORD_EXIT, 2, 2, 0);
	map(5, 100, 200, "a");
	ck_assert_str_eq(at(5, 100), "a");
	ck_assert_str_eq(at(2, 100), "");
	for (uint64_t i = 0; i < 10; i++)
		map(1, 1000 + 10 * i, 1005 + 10 * i, "b");
	ck_assert_str_eq(at(1, 1000), "b");
	ck_assert_str_eq(at(1, 1090), "");
	ck_assert_uint_gt(address_spaces_dropped(spaces), 8);
}
END_TEST

START_TEST(an_empty_mapping_or_one_around_the_end_is_none)
{
	map(1, 100, 100, "a");
	ck_assert_str_eq(at(1, 100), "");
	map(1, UINT64_MAX - 10, 10, "a");
	ck_assert_str_eq(at(1, UINT64_MAX - 5), "");
	ck_assert_str_eq(at(1, 5), "");
}
END_TEST

START_TEST(many_processes_are_all_found)
{
	for (uint32_t pid = 1; pid < 5000; pid++)
		map(pid * 64, pid, pid + 1, "a");
	for (uint32_t pid = 1; pid < 5000; pid++)
		ck_assert_str_eq(at(pid * 64, pid), "a");
}
END_TEST

static int play(void)
{
	struct address_spaces *mine;
	struct perf_record one = mapping(1, 1, 9, "a"), two = mapping(2, 4, 5, "b");
	struct perf_record child = { .type = PERF_RECORD_FORK, .pid = 2, .tid = 2, .fork = { .ppid = 1, .ptid = 1 } };
	int r = address_spaces_new(&(struct address_spaces_limits){ 0 }, &mine);

	if (r < 0)
		return r;
	r = address_spaces_record(mine, &one);
	r = r < 0 ? r : address_spaces_record(mine, &child);
	r = r < 0 ? r : address_spaces_record(mine, &two);
	address_spaces_free(mine);

	return r;
}

START_TEST(without_memory_it_says_so)
{
	bool injected = true;

	for (long n = 1; injected; n++) {
		torture_arm(n);
		int r = play();
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
	}
}
END_TEST

Suite *address_space_suite(void);
Suite *address_space_suite(void)
{
	Suite *suite = suite_create("address_space");
	TCase *core = tcase_create("core");

	tcase_add_checked_fixture(core, setup, teardown);
	tcase_add_test(core, a_mapping_is_found_from_its_first_to_its_last_byte);
	tcase_add_test(core, a_new_mapping_takes_the_place_of_what_was_there);
	tcase_add_test(core, a_child_has_its_parents_mappings_and_changes_only_its_own);
	tcase_add_test(core, another_program_starts_with_nothing);
	tcase_add_test(core, a_thread_has_a_name_and_no_mappings_of_its_own);
	tcase_add_test(core, a_process_that_has_ended_stays_until_its_number_is_taken);
	tcase_add_test(core, what_does_not_fit_is_counted_and_those_that_ended_make_room);
	tcase_add_test(core, an_empty_mapping_or_one_around_the_end_is_none);
	tcase_add_test(core, many_processes_are_all_found);
	tcase_add_test(core, without_memory_it_says_so);
	suite_add_tcase(suite, core);

	return suite;
}
