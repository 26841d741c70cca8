/* check_view.c: the table of what has changed between two snapshots of the memory. */

#include "torture.h"
#include "lib/base/io.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#include "cli/incident/view.c"

Suite *view_suite(void);

#define HEAD \
	"# what grew\npid\tmapping\tpermissions\tmappings\trss_bytes\tpss_bytes\tprivate_dirty_bytes\tswap_bytes\tx\n"
#define ROW(pid, name, rss, swap) #pid "\t" name "\trw-p\t1\t" #rss "\t0\t0\t" #swap "\t\t\t\t\n"
#define OUT "rss_growth_bytes\tswap_growth_bytes\trss_bytes\tpermissions\tmapping\tpid\tremark\n"

static struct buffer first, second, table;

static void expect(const char *before, const char *after, const char *expected, size_t rows)
{
	size_t count = 99;

	ck_assert_int_eq(buffer_append(&first, before, strlen(before)), 0);
	ck_assert_int_eq(buffer_append(&second, after, strlen(after)), 0);
	ck_assert_int_eq(growth_table(&first, &second, &table, &count), 0);
	ck_assert_int_eq(buffer_append(&table, "", 1), 0);
	ck_assert_str_eq(table.data, expected);
	ck_assert_uint_eq(count, rows);
	buffer_release(&first);
	buffer_release(&second);
	buffer_release(&table);
}

START_TEST(what_changed_most_is_first_and_what_did_not_is_left_out)
{
	expect(HEAD ROW(7, "[heap]", 100, 0) ROW(7, "/lib/a", 50, 0) ROW(7, "same", 9, 9) ROW(7, "old", 3, 1),
	       HEAD ROW(7, "[heap]", 900, 0) ROW(7, "same", 9, 9) ROW(7, "/lib/a", 40, 5) ROW(7, "young", 70, 0),
	       OUT "+800\t+0\t900\trw-p\t[heap]\t7\t\n"
		   "+70\t+0\t70\trw-p\tyoung\t7\tnew\n"
		   "-10\t+5\t40\trw-p\t/lib/a\t7\t\n"
		   "-3\t-1\t0\trw-p\told\t7\tgone\n",
	       4);
}
END_TEST

START_TEST(the_same_mapping_of_two_processes_is_two)
{
	expect(ROW(7, "[heap]", 1, 0) ROW(8, "[heap]", 2, 0), ROW(8, "[heap]", 5, 0) ROW(7, "[heap]", 2, 0),
	       OUT "+3\t+0\t5\trw-p\t[heap]\t8\t\n+1\t+0\t2\trw-p\t[heap]\t7\t\n", 2);
}
END_TEST

START_TEST(nothing_and_nonsense_are_no_rows)
{
	expect("", "", OUT, 0);
	expect(HEAD,
	       "\t\t\t\n7\tx\n\n# "
	       "7\tx\tr\t1\t2\t3\t4\t5\n7\tx\tr\t1\t99999999999999999999\t0\t0\t0\n-7\tx\tr\t1\t2\t3\t4\t5\n",
	       OUT, 0);
	expect("", "7\tx\tr\t1\t5\t0\t0\t6", OUT "+5\t+6\t5\tr\tx\t7\tnew\n", 1);
}
END_TEST

START_TEST(whatever_allocation_fails_it_is_reported)
{
	bool injected = true;

	buffer_append(&first, ROW(7, "[heap]", 1, 0), strlen(ROW(7, "[heap]", 1, 0)));
	buffer_append(&second, ROW(7, "[heap]", 2, 0), strlen(ROW(7, "[heap]", 2, 0)));
	for (long n = 1; injected; n++) {
		size_t rows = 0;

		torture_arm(n);
		int r = growth_table(&first, &second, &table, &rows);

		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		buffer_release(&table);
	}
	buffer_release(&first);
	buffer_release(&second);
}
END_TEST

#define MIB 1048576.0

static void expect_change(double touched, uint64_t before, uint64_t after, const char *expected)
{
	static struct view view;
	struct series_point points[3] = { { .at_ns = -2000000000 }, { .at_ns = 0 }, { .at_ns = 1500000000 } };
	char text[VIEW_MEMORY_CHANGE_MAX];

	sample_set(&points[0].sample, SAMPLE_MEMORY, before); /* the one in between has none */
	sample_set(&points[2].sample, SAMPLE_MEMORY, after);
	view.samples.series = (struct series){ .points = points, .count = 3 };
	view.memory_functions.own[FUNCTION_TABLE_BEFORE] = (uint64_t)touched;
	view.memory_functions.count = 1;
	ck_assert(view_memory_change(&view, text));
	ck_assert_msg(strstr(text, expected), "%s", text);
	view.memory_functions.count = 0;
	ck_assert(!view_memory_change(&view, text));
}

START_TEST(what_was_touched_stands_beside_what_memory_grew_by)
{
	expect_change(100 * MIB, 7, 7 + 100 * (1 << 20),
		      "In all it touched 100 MiB; its memory grew by 100 MiB from -2.0 s to +1.5 s.");
	expect_change(120 * MIB, 0, 100 << 20, " to +1.5 s. Memory that was freed, ");
	expect_change(80 * MIB, 0, 100 << 20, " to +1.5 s. Pages of files, ");
	expect_change(80 * MIB, 100 << 20, 0,
		      "its memory shrank by 100 MiB from -2.0 s to +1.5 s. Memory that was freed");
}
END_TEST

START_TEST(cpu_time_that_was_added_late_is_said_and_only_that)
{
	static struct view view;
	char *text;
	size_t len;

	for (uint64_t late_ns = 0; late_ns <= 250 * NS_PER_MS; late_ns += 250 * NS_PER_MS) {
		FILE *file = open_memstream(&text, &len);

		view.incident.coverage.cpu_late_ns = late_ns;
		print_recording(&view, file);
		fclose(file);
		if (late_ns > 0)
			ck_assert_msg(strstr(text, "members that had ended was added up to 250 ms late"), "%s", text);
		else
			ck_assert_msg(!strstr(text, " late: "), "%s", text);
		free(text);
	}
}
END_TEST

Suite *view_suite(void)
{
	Suite *suite = suite_create("view");
	TCase *tcase = tcase_create("table");

	tcase_add_test(tcase, cpu_time_that_was_added_late_is_said_and_only_that);

	tcase_add_test(tcase, what_changed_most_is_first_and_what_did_not_is_left_out);
	tcase_add_test(tcase, the_same_mapping_of_two_processes_is_two);
	tcase_add_test(tcase, nothing_and_nonsense_are_no_rows);
	tcase_add_test(tcase, whatever_allocation_fails_it_is_reported);
	tcase_add_test(tcase, what_was_touched_stands_beside_what_memory_grew_by);
	suite_add_tcase(suite, tcase);

	return suite;
}
