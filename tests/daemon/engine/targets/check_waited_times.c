/*
 * check_waited_times.c: parents that wait for children whose records lack a part, over files that
 * show what the parents have waited for, in clock ticks. What is handed out is compared with what
 * was missing.
 */
#include "daemon/engine/targets/waited_times.h"

#include "scene.h"

#include <fcntl.h>
#include <sys/stat.h>

Suite *waited_times_suite(void);

#define TICK_NS (10 * NS_PER_MS)
#define GRAIN_NS (2 * TICK_NS)
#define PARENT 10
#define GROUP 4u
#define USED_NS (4 * NS_PER_MS) /* by each child, mostly */
#define FAULTS 20u

static char root[64];
static int procfd;
static struct waited_times *times;
static mono_t now;
static uint64_t handed_ns, rest_ns, rest_groups;
static int32_t next_pid;
static uint64_t others_ns, others_faults; /* of children that were waited for before, in each mode */

static void setup(void)
{
	scene_directory(root);
	procfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(procfd, 0);
	ck_assert_int_eq(waited_times_new(procfd, &times), 0);
	now = (mono_t){ NS_PER_S };
	handed_ns = rest_ns = rest_groups = others_ns = others_faults = 0;
	next_pid = 1000;
}

static void teardown(void)
{
	waited_times_free(times);
	close(procfd);
	scene_remove(root);
}

/* The stat of a process that has waited for so much, and for others: half of it in user mode. */
static void show_waited(int32_t pid, uint64_t waited_ns)
{
	char path[128];
	uint64_t each_ns = waited_ns / 2 + others_ns;

	snprintf(path, sizeof(path), "%s/%d", root, pid);
	mkdir(path, 0700);
	snprintf(path, sizeof(path), "%s/%d/stat", root, pid);
	scene_write(path, "%d (p) S 1 1 1 0 -1 0 10 %llu 0 0 5 5 %llu %llu 20 0 1 0 77 1000000 100 0\n", pid,
		    (unsigned long long)(waited_ns / USED_NS * FAULTS + others_faults),
		    (unsigned long long)(each_ns / TICK_NS), (unsigned long long)(each_ns / TICK_NS));
}

static void end_child_of(int32_t parent, int32_t pid, uint64_t record_ns, uint64_t groups)
{
	struct waited_child child = {
		.pid = pid,
		.parent_pid = parent,
		.cpu_ns = record_ns,
		.missing_ns = 12 * NS_PER_MS,
		.faults = FAULTS,
		.gone = true,
		.groups = groups,
	};

	now = mono_add(now, 5 * NS_PER_MS);
	handed_ns += waited_times_child(times, &child, now);
}

static void on_rest(void *ctx, uint64_t groups, uint64_t cpu_ns)
{
	(void)ctx;
	rest_groups = groups;
	rest_ns += cpu_ns;
}

static void settle(void)
{
	mono_t due;

	while (waited_times_due(times, &due)) {
		now = due;
		waited_times_settle(times, now, on_rest, NULL);
	}
}

/* Children that used 4 ms each, of which their records have 1; reaped: so many at a time. */
static void run_children(uint64_t opening_ns, int count, int reaped)
{
	uint64_t waited_ns = opening_ns;

	show_waited(PARENT, waited_ns);
	for (int i = 1; i <= count; i++) {
		end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
		if (i % reaped == 0)
			waited_ns += (uint64_t)reaped * 4 * NS_PER_MS;
		show_waited(PARENT, waited_ns);
	}
	settle();
}

/* Never more than is missing, less by at most that. */
static void ck_assert_handed_out(uint64_t missing_ns, uint64_t less_ns)
{
	uint64_t all_ns = handed_ns + rest_ns;

	ck_assert_msg(all_ns + less_ns >= missing_ns && all_ns <= missing_ns, "%ju of %ju us",
		      (uintmax_t)(all_ns / 1000), (uintmax_t)(missing_ns / 1000));
}

START_TEST(what_records_lack_is_handed_out_to_the_next_children)
{
	run_children(0, 1000, 1);
	ck_assert_handed_out(1000 * 3 * NS_PER_MS, GRAIN_NS);
	ck_assert_uint_gt(handed_ns, 99 * (handed_ns + rest_ns) / 100);
}
END_TEST

START_TEST(parts_are_as_large_as_what_children_lack_not_as_clock_ticks)
{
	uint64_t before_ns;

	run_children(0, 500, 1);
	for (int i = 0; i < 100; i++) {
		before_ns = handed_ns;
		end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
		show_waited(PARENT, (uint64_t)(500 + i + 1) * 4 * NS_PER_MS);
		ck_assert_uint_le(handed_ns - before_ns, 8 * NS_PER_MS);
	}
	ck_assert_uint_ge(handed_ns + rest_ns + GRAIN_NS, 600 * 3 * NS_PER_MS);
}
END_TEST

START_TEST(what_was_waited_for_before_is_nobodys)
{
	run_children(1000 * NS_PER_S, 1000, 1);
	ck_assert_handed_out(1000 * 3 * NS_PER_MS, 2 * GRAIN_NS);
}
END_TEST

/* Others had used almost two clock ticks, of which nothing was shown. */
START_TEST(what_stat_did_not_show_of_others_is_not_handed_out)
{
	others_ns = TICK_NS - 1;
	others_faults = FAULTS;
	run_children(0, 1000, 1);
	ck_assert_handed_out(1000 * 3 * NS_PER_MS, 2 * GRAIN_NS);
}
END_TEST

START_TEST(a_parent_may_wait_late)
{
	run_children(0, 1000, 50);
	ck_assert_handed_out(1000 * 3 * NS_PER_MS, GRAIN_NS);
}
END_TEST

START_TEST(of_children_that_nobody_waits_for_nothing_is_handed_out)
{
	run_children(50 * NS_PER_MS, 100, 1000);
	ck_assert_uint_eq(handed_ns + rest_ns, 0);
}
END_TEST

START_TEST(a_jump_that_no_exit_explains_is_not_handed_out)
{
	uint64_t waited_ns = 1000 * 4 * NS_PER_MS;

	run_children(0, 1000, 1);
	waited_ns += 100 * NS_PER_S;
	for (int i = 0; i < 1000; i++) {
		waited_ns += 4 * NS_PER_MS;
		show_waited(PARENT, waited_ns);
		end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
	}
	settle();
	/* Of a tenth of a second in which the jump might have been explained nothing is known. */
	ck_assert_uint_le(handed_ns + rest_ns, 2000 * 3 * NS_PER_MS);
	ck_assert_uint_ge(handed_ns + rest_ns, 1950 * 3 * NS_PER_MS);
}
END_TEST

START_TEST(an_exit_that_is_known_later_explains_a_jump)
{
	run_children(0, 100, 1);
	show_waited(PARENT, 101 * 4 * NS_PER_MS + 50 * NS_PER_S);
	end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
	end_child_of(PARENT, next_pid++, 50 * NS_PER_S, GROUP);
	settle();
	ck_assert_handed_out(101 * 3 * NS_PER_MS, GRAIN_NS);
}
END_TEST

START_TEST(what_a_child_had_waited_for_is_not_missing_in_its_parent)
{
	uint64_t waited_ns = 0, its_ns;

	show_waited(PARENT, 0);
	for (int i = 0; i < 100; i++) {
		int32_t pid = next_pid++;

		its_ns = 0;
		show_waited(pid, 0);
		for (int k = 0; k < 10; k++) {
			end_child_of(pid, next_pid++, NS_PER_MS, GROUP);
			its_ns += 4 * NS_PER_MS;
			show_waited(pid, its_ns);
		}
		end_child_of(PARENT, pid, NS_PER_MS, GROUP);
		waited_ns += its_ns + 4 * NS_PER_MS;
		show_waited(PARENT, waited_ns);
	}
	settle();
	ck_assert_handed_out(1100 * 3 * NS_PER_MS, GRAIN_NS);
}
END_TEST

START_TEST(children_that_count_nowhere_have_their_parts_too)
{
	uint64_t of_group_ns = 0;

	show_waited(PARENT, 0);
	for (int i = 1; i <= 1000; i++) {
		handed_ns = 0;
		end_child_of(PARENT, next_pid++, NS_PER_MS, i % 2 ? GROUP : 0);
		of_group_ns += i % 2 ? handed_ns : 0;
		show_waited(PARENT, (uint64_t)i * 4 * NS_PER_MS);
	}
	ck_assert_uint_le(of_group_ns, 550 * 3 * NS_PER_MS);
	ck_assert_uint_ge(of_group_ns, 450 * 3 * NS_PER_MS);
}
END_TEST

START_TEST(the_rest_goes_to_the_groups_of_the_last_child_unless_they_changed)
{
	show_waited(PARENT, 0);
	end_child_of(PARENT, next_pid++, NS_PER_MS, GROUP);
	show_waited(PARENT, 60 * NS_PER_MS); /* 20 ms can be more than was shown */
	end_child_of(PARENT, next_pid++, 20 * NS_PER_MS, GROUP);
	if (_i)
		waited_times_forget_groups(times);
	settle();
	ck_assert_uint_eq(rest_ns > 0, !_i);
	ck_assert_uint_eq(rest_groups, _i ? 0 : GROUP);
}
END_TEST

START_TEST(more_parents_than_there_is_room_for_are_no_harm)
{
	for (int32_t parent = 20000; parent < 21000; parent++) {
		show_waited(parent, NS_PER_S);
		end_child_of(parent, next_pid++, NS_PER_MS, GROUP);
	}
	run_children(0, 1000, 1);
	ck_assert_handed_out(1000 * 3 * NS_PER_MS, GRAIN_NS);
}
END_TEST

Suite *waited_times_suite(void)
{
	Suite *suite = suite_create("waited_times");
	TCase *tcase = tcase_create("parents");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_records_lack_is_handed_out_to_the_next_children);
	tcase_add_test(tcase, parts_are_as_large_as_what_children_lack_not_as_clock_ticks);
	tcase_add_test(tcase, what_was_waited_for_before_is_nobodys);
	tcase_add_test(tcase, what_stat_did_not_show_of_others_is_not_handed_out);
	tcase_add_test(tcase, a_parent_may_wait_late);
	tcase_add_test(tcase, of_children_that_nobody_waits_for_nothing_is_handed_out);
	tcase_add_test(tcase, a_jump_that_no_exit_explains_is_not_handed_out);
	tcase_add_test(tcase, an_exit_that_is_known_later_explains_a_jump);
	tcase_add_test(tcase, what_a_child_had_waited_for_is_not_missing_in_its_parent);
	tcase_add_test(tcase, children_that_count_nowhere_have_their_parts_too);
	tcase_add_loop_test(tcase, the_rest_goes_to_the_groups_of_the_last_child_unless_they_changed, 0, 2);
	tcase_add_test(tcase, more_parents_than_there_is_room_for_are_no_harm);
	suite_add_tcase(suite, tcase);

	return suite;
}
