/* check_procfs.c: what the kernel writes about a process, and what a process can make it write. */
#include "lib/proc/procfs.h"
#include "lib/base/base.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

Suite *procfs_suite(void);

/* Fields 4 to 22 of stat and what follows. */
#define NUMBERS "1 812 812 0 -1 4194560 5120 8123 17 2 1339 1791 11 7 20 0 3 0 132835 233472000 7499 0 0\n"

static int parse_stat(const char *text, struct procfs_stat *ret)
{
	return procfs_stat_parse(text, strlen(text), ret);
}

START_TEST(stat_has_its_fields)
{
	struct procfs_stat stat;

	ck_assert_int_eq(parse_stat("812 (postgres) S " NUMBERS, &stat), 0);
	ck_assert_int_eq(stat.pid, 812);
	ck_assert_int_eq(stat.parent_pid, 1);
	ck_assert_int_eq(stat.state, 'S');
	ck_assert_uint_eq(stat.minor_faults, 5120);
	ck_assert_uint_eq(stat.major_faults, 17);
	ck_assert_uint_eq(stat.user_ticks, 1339);
	ck_assert_uint_eq(stat.system_ticks, 1791);
	ck_assert_uint_eq(stat.threads, 3);
	ck_assert_uint_eq(stat.start_ticks, 132835);
	ck_assert(!stat.exiting);
	ck_assert(!stat.kernel);
	ck_assert_int_eq(parse_stat("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 1 0 0 20 0 1 0 3 0 0 0\n", &stat), 0);
	ck_assert(stat.kernel);
	ck_assert_int_eq(parse_stat("9 (a) Z 1 9 9 0 -1 4194564 0 0 0 0 0 1 0 0 20 0 1 0 3 0 0 0\n", &stat), 0);
	ck_assert(stat.exiting);
}
END_TEST

START_TEST(arguments_begin_somewhere)
{
	static const char text[] =
		"812 (a) S 1) S 1 812 812 0 -1 4194560 5120 8123 17 2 1339 1791 11 7 20 0 3 0 132835 233472000 7499 "
		"18446744073709551615 94643489890304 94643489910185 140729863370400 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 "
		"94643489922512 94643489923856 94644120252416 140729863371393 140729863371413 140729863371413 "
		"140729863376873 0\n";
	size_t needed = (size_t)(strstr(text, " 140729863371413 ") - text) + 1;

	ck_assert_uint_eq(procfs_stat_arguments(text, strlen(text)), 140729863371393ull);
	for (size_t len = 0; len <= strlen(text); len++)
		ck_assert_uint_eq(procfs_stat_arguments(text, len), len < needed ? 0 : 140729863371393ull);
	ck_assert_uint_eq(procfs_stat_arguments("812 (a) S " NUMBERS, strlen("812 (a) S " NUMBERS)), 0);
}
END_TEST

static const char *const names[] = {
	"postgres", "a b c", "a) S 1 (b", ")", "(", "", "\n", ") R 0 0 0", "tmux: server", "((sd-pam))", "\xff\x01",
};

START_TEST(name_is_whatever_the_process_says)
{
	const char *name = names[_i];
	struct procfs_stat stat;
	char text[256];

	snprintf(text, sizeof(text), "812 (%s) Z " NUMBERS, name);
	ck_assert_int_eq(parse_stat(text, &stat), 0);
	ck_assert_uint_eq(stat.comm_len, strlen(name));
	ck_assert(memcmp(stat.comm, name, stat.comm_len) == 0);
	ck_assert_int_eq(stat.state, 'Z');
	ck_assert_uint_eq(stat.start_ticks, 132835);
}
END_TEST

START_TEST(stat_cut_short_is_refused)
{
	static const char text[] = "812 (post gres) S " NUMBERS;
	size_t needed = (size_t)(strstr(text, " 233472000") - text) + 1;

	for (size_t len = 0; len < sizeof(text); len++) {
		AUTO_FREE char *copy = calloc(1, len + 1); /* so that a sanitizer sees a read beyond it */
		struct procfs_stat stat;

		memcpy(copy, text, len);
		ck_assert_int_eq(procfs_stat_parse(copy, len, &stat), len < needed ? -EBADMSG : 0);
	}
}
END_TEST

static const char *const broken_stats[] = {
	"",
	"\n",
	"812",
	"812 postgres S " NUMBERS,
	"(postgres) S " NUMBERS,
	"812 (postgres S " NUMBERS,
	"812 )postgres( S " NUMBERS,
	"812 (postgres)S " NUMBERS,
	"812 (postgres) SS " NUMBERS,
	"99999999999 (postgres) S " NUMBERS,
	"812 (postgres) S x" NUMBERS,
	"812 (postgres) S 1 2 3 4 5 6 18446744073709551616 8 9 10 11 12 13 14 15 16 17 18 19 20\n",
};

START_TEST(broken_stat_is_refused)
{
	struct procfs_stat stat = { .pid = 77 };

	ck_assert_int_eq(parse_stat(broken_stats[_i], &stat), -EBADMSG);
	ck_assert_int_eq(stat.pid, 77);
}
END_TEST

START_TEST(huge_numbers_are_kept)
{
	struct procfs_stat stat;

	ck_assert_int_eq(
		parse_stat("1 (init) S 0 1 1 0 -1 4194560 18446744073709551615 1 1 1 18446744073709551614 5 0 0 20 "
			   "0 1 0 18446744073709551613 1\n",
			   &stat),
		0);
	ck_assert_uint_eq(stat.minor_faults, UINT64_MAX);
	ck_assert_uint_eq(stat.user_ticks, UINT64_MAX - 1);
	ck_assert_uint_eq(stat.start_ticks, UINT64_MAX - 2);
}
END_TEST

START_TEST(own_stat_is_understood)
{
	char buf[4096];
	struct procfs_stat stat;
	AUTO_CLOSE int fd = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);

	ssize_t len = read(fd, buf, sizeof(buf));
	ck_assert_int_gt(len, 0);
	ck_assert_int_eq(procfs_stat_parse(buf, (size_t)len, &stat), 0);
	ck_assert_int_eq(stat.pid, getpid());
	ck_assert_int_eq(stat.parent_pid, getppid());
	ck_assert_int_eq(stat.state, 'R');
	ck_assert_uint_eq(stat.threads, 1);
}
END_TEST

START_TEST(statm_gives_resident_pages)
{
	static const struct {
		const char *text;
		int r;
		uint64_t pages;
	} cases[] = {
		{ "765 427 399 5 0 123 0\n", 0, 427 },
		{ "0 0 0 0 0 0 0\n", 0, 0 },        /* a kernel thread, a zombie */
		{ "765 -5 399 5 0 123 0\n", 0, 0 }, /* per-CPU counters, for a moment */
		{ "765 18446744073709551615 0", 0, UINT64_MAX },
		{ "765 18446744073709551616 0", -EBADMSG, 0 },
		{ "765 427", -EBADMSG, 0 }, /* could be 4271 */
		{ "765 ", -EBADMSG, 0 },
		{ "765", -EBADMSG, 0 },
		{ "", -EBADMSG, 0 },
		{ "- - -", -EBADMSG, 0 },
		{ "765 x 399", -EBADMSG, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t pages = 0;

		ck_assert_int_eq(procfs_statm_parse(cases[i].text, strlen(cases[i].text), &pages), cases[i].r);
		ck_assert_uint_eq(pages, cases[i].pages);
	}
}
END_TEST

START_TEST(kilobytes_are_found_by_name)
{
	static const struct {
		const char *text;
		int r;
		uint64_t bytes;
	} cases[] = {
		{ "Name:\tcat\nVmPeak:\t  9 kB\nVmHWM:\t    1708 kB\nVmRSS:\t 5 kB\n", 0, 1708 * 1024 },
		{ "VmHWM:\t0 kB\n", 0, 0 },
		{ "Name:\tVmHWM: 3 kB\nVmHWM:\t7 kB\n", 0, 7 * 1024 },
		{ "VmHWMx:\t3 kB\nVmHW:\t4 kB\n", -ENODATA, 0 },
		{ "Name:\tkthreadd\nThreads:\t1\n", -ENODATA, 0 },
		{ "VmHWM:\t    1708 kB", -ENODATA, 0 },
		{ "VmHWM:\t    17", -ENODATA, 0 },
		{ "VmHWM:\nVmRSS:\t5 kB\n", -ENODATA, 0 },
		{ "VmHWM:\t18446744073709551615 kB\n", -ENODATA, 0 },
		{ "", -ENODATA, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t bytes = 0;

		ck_assert_int_eq(procfs_kb_parse(cases[i].text, strlen(cases[i].text), "VmHWM", &bytes), cases[i].r);
		ck_assert_uint_eq(bytes, cases[i].bytes);
	}
}
END_TEST

static void expect_line(const char *text, size_t *offset, const char *controllers, const char *path)
{
	struct procfs_cgroup line;

	ck_assert_int_eq(procfs_cgroup_next(text, strlen(text), offset, &line), 1);
	ck_assert_uint_eq(line.controllers_len, strlen(controllers));
	ck_assert(memcmp(line.controllers, controllers, line.controllers_len) == 0);
	ck_assert_uint_eq(line.path_len, strlen(path));
	ck_assert(memcmp(line.path, path, line.path_len) == 0);
}

START_TEST(cgroups_come_line_by_line)
{
	static const char text[] = "9:name=systemd:/\n4:memory:/a:b/c d\nbroken\n5:x\n6:y:relative\n"
				   "2:cpu,cpuacct:/../out\n\n0::/user.slice (deleted)\n0::/cut";
	struct procfs_cgroup line;
	size_t offset = 0;

	expect_line(text, &offset, "name=systemd", "/");
	expect_line(text, &offset, "memory", "/a:b/c d");
	expect_line(text, &offset, "cpu,cpuacct", "/../out");
	expect_line(text, &offset, "", "/user.slice (deleted)");
	ck_assert_int_eq(procfs_cgroup_next(text, strlen(text), &offset, &line), 0);
	ck_assert_int_eq(procfs_cgroup_next(text, strlen(text), &offset, &line), 0);
}
END_TEST

Suite *procfs_suite(void)
{
	Suite *suite = suite_create("procfs");
	TCase *tcase = tcase_create("procfs");

	tcase_add_test(tcase, stat_has_its_fields);
	tcase_add_test(tcase, arguments_begin_somewhere);
	tcase_add_loop_test(tcase, name_is_whatever_the_process_says, 0, (int)ARRAY_LEN(names));
	tcase_add_test(tcase, stat_cut_short_is_refused);
	tcase_add_loop_test(tcase, broken_stat_is_refused, 0, (int)ARRAY_LEN(broken_stats));
	tcase_add_test(tcase, huge_numbers_are_kept);
	tcase_add_test(tcase, own_stat_is_understood);
	tcase_add_test(tcase, statm_gives_resident_pages);
	tcase_add_test(tcase, kilobytes_are_found_by_name);
	tcase_add_test(tcase, cgroups_come_line_by_line);
	suite_add_tcase(suite, tcase);

	return suite;
}
