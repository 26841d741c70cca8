/*
 * check_cgroup_files.c: numbers, limits, lists and keyed files of cgroup v1 and v2; what one
 * directory says, whatever is missing, unlimited or nonsense; and the machine.
 */
#include "lib/cgroup/cgroup.c"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/rules/metric.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

Suite *cgroup_files_suite(void);

/* What a number, or a pair of them, is expected to be. */
struct expected {
	const char *text;
	int r;
	uint64_t a;
	uint64_t b;
};

START_TEST(numbers)
{
	static const struct expected cases[] = {
		{ "31305900879\n", 0, 31305900879, 0 },
		{ "0\n", 0, 0, 0 },
		{ "18446744073709551615\n", 0, UINT64_MAX, 0 },
		{ "18446744073709551616\n", -EBADMSG, 0, 0 },
		{ "313", -EBADMSG, 0, 0 },
		{ "-1\n", -EBADMSG, 0, 0 },
		{ "max\n", -EBADMSG, 0, 0 },
		{ " 1\n", -EBADMSG, 0, 0 },
		{ "", -EBADMSG, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t number = 0;

		ck_assert_int_eq(cgroup_files_number_parse(cases[i].text, strlen(cases[i].text), &number), cases[i].r);
		ck_assert_uint_eq(number, cases[i].a);
	}
}
END_TEST

START_TEST(limits)
{
	static const struct expected cases[] = {
		{ "536870912\n", 0, 536870912, 0 },
		{ "max\n", 0, UINT64_MAX, 0 },
		{ "-1\n", 0, UINT64_MAX, 0 },
		{ "9223372036854771712\n", 0, UINT64_MAX, 0 },
		{ "9223372036854710272\n", 0, UINT64_MAX, 0 }, /* pages of 64 KiB */
		{ "4611686018427387904\n", 0, UINT64_MAX, 0 },
		{ "4611686018427387903\n", 0, 4611686018427387903, 0 },
		{ "0\n", 0, 0, 0 },
		{ "-2\n", -EBADMSG, 0, 0 },
		{ "maximal\n", -EBADMSG, 0, 0 },
		{ "max", -EBADMSG, 0, 0 },
		{ "5368709", -EBADMSG, 0, 0 },
		{ "", -EBADMSG, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t limit = 0;

		ck_assert_int_eq(cgroup_files_limit_parse(cases[i].text, strlen(cases[i].text), &limit), cases[i].r);
		ck_assert_uint_eq(limit, cases[i].a);
	}
}
END_TEST

START_TEST(cpu_max)
{
	static const struct expected cases[] = {
		{ "20000 100000\n", 0, 20000, 100000 },
		{ "max 100000\n", 0, UINT64_MAX, 100000 },
		{ "max 0\n", -EBADMSG, 0, 0 },
		{ "20000 0\n", -EBADMSG, 0, 0 },
		{ "20000\n", -EBADMSG, 0, 0 },
		{ "20000 1000", -EBADMSG, 0, 0 },
		{ "max\n", -EBADMSG, 0, 0 },
		{ "", -EBADMSG, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t quota = 0;
		uint64_t period = 0;

		ck_assert_int_eq(cgroup_files_cpu_max_parse(cases[i].text, strlen(cases[i].text), &quota, &period),
				 cases[i].r);
		ck_assert_uint_eq(quota, cases[i].a);
		ck_assert_uint_eq(period, cases[i].b);
	}
}
END_TEST

START_TEST(lists_of_cpus)
{
	static const struct expected cases[] = {
		{ "0-3,8\n", 0, 5, 0 },          { "0\n", 0, 1, 0 },          { "1,3\n", 0, 2, 0 },
		{ "0-65535\n", 0, 65536, 0 },    { "\n", 0, 0, 0 },           { "", -EBADMSG, 0, 0 },
		{ "0-3", -EBADMSG, 0, 0 },       { "3-0\n", -EBADMSG, 0, 0 }, { "0-3,2-5\n", -EBADMSG, 0, 0 },
		{ "0-65536\n", -EBADMSG, 0, 0 }, { "0-\n", -EBADMSG, 0, 0 },  { "0-3 8\n", -EBADMSG, 0, 0 },
		{ "many\n", -EBADMSG, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint32_t count = 0;

		ck_assert_int_eq(cgroup_files_cpus_parse(cases[i].text, strlen(cases[i].text), &count), cases[i].r);
		ck_assert_uint_eq(count, cases[i].a);
	}
}
END_TEST

START_TEST(pressure_is_its_total)
{
	static const struct expected cases[] = {
		{ "some avg10=0.00 avg60=0.23 avg300=0.20 total=4501363\nfull avg10=0.00 total=7\n", 0, 4501363000, 0 },
		{ "some total=1\n", 0, 1000, 0 },
		{ "full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n", -EBADMSG, 0, 0 },
		{ "some avg10=0.00 avg60=0.23 avg300=0.20 total=4501", -EBADMSG, 0, 0 },
		{ "some avg10=0.00 avg60=0.23\nfull avg10=0.00 total=7\n", -EBADMSG, 0, 0 },
		{ "some avg10=0.00 total=18446744073709551615\n", -EBADMSG, 0, 0 },
		{ "", -EBADMSG, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		uint64_t ns = 0;

		ck_assert_int_eq(cgroup_files_pressure_parse(cases[i].text, strlen(cases[i].text), &ns), cases[i].r);
		ck_assert_uint_eq(ns, cases[i].a);
	}
}
END_TEST

static struct sample cpu_stat(const char *text)
{
	struct sample sample = { 0 };

	cgroup_files_cpu_stat_parse(text, strlen(text), &sample);
	return sample;
}

START_TEST(cpu_stat_of_both_versions)
{
	struct sample v2 = cpu_stat("usage_usec 27\nuser_usec 11\nsystem_usec 15\nnice_usec 0\nnr_periods 12\n"
				    "nr_throttled 3\nthrottled_usec 45\n");
	ck_assert_uint_eq(v2.value[SAMPLE_CPU], 27000);
	ck_assert_uint_eq(v2.value[SAMPLE_CPU_USER], 11000);
	ck_assert_uint_eq(v2.value[SAMPLE_CPU_SYSTEM], 15000);
	ck_assert_uint_eq(v2.value[SAMPLE_PERIODS], 12);
	ck_assert_uint_eq(v2.value[SAMPLE_THROTTLED_PERIODS], 3);
	ck_assert_uint_eq(v2.value[SAMPLE_THROTTLED], 45000);

	struct sample v1 = cpu_stat("nr_periods 1\nnr_throttled 2\nthrottled_time 123456789\n");
	ck_assert(!sample_has(&v1, SAMPLE_CPU));
	ck_assert_uint_eq(v1.value[SAMPLE_THROTTLED], 123456789);
}
END_TEST

START_TEST(keys_that_are_missing_or_broken_are_unavailable)
{
	struct sample sample = cpu_stat("usage_usec 27\nuser_usec 11\n");
	ck_assert(sample_has(&sample, SAMPLE_CPU) && sample_has(&sample, SAMPLE_CPU_USER));
	ck_assert(!sample_has(&sample, SAMPLE_PERIODS));

	ck_assert_uint_eq(cpu_stat("").mask, 0);
	ck_assert_uint_eq(cpu_stat("usage_usec 27").mask, 0);
	ck_assert_uint_eq(cpu_stat("usage_usec\nusage_usec \nusage_usec x\nusage_usec 1 2\n").mask, 0);
	ck_assert_uint_eq(cpu_stat("usage_usec_x 1\nxusage_usec 1\n").mask, 0);
	ck_assert_uint_eq(cpu_stat("usage_usec 18446744073709551615\n").mask, 0);
}
END_TEST

START_TEST(cpuacct_stat_counts_ticks)
{
	static const char text[] = "user 1339\nsystem 1791\n";
	struct sample sample = { 0 };

	cgroup_files_cpuacct_stat_parse(text, strlen(text), 10000000, &sample);
	ck_assert_uint_eq(sample.value[SAMPLE_CPU_USER], 13390000000);
	ck_assert_uint_eq(sample.value[SAMPLE_CPU_SYSTEM], 17910000000);
}
END_TEST

START_TEST(memory_stat_is_of_the_subtree)
{
	static const char v1[] = "inactive_file 1\npgfault 2\npgmajfault 3\ntotal_inactive_file 10\ntotal_pgfault 20\n"
				 "total_pgmajfault 30\n";
	static const char v2[] = "anon 5\ninactive_file 1\npgfault 2\npgmajfault 3\n";
	static const char none[] = "anon 5\n";
	struct cgroup_files_memory_stat stat;

	cgroup_files_memory_stat_parse(v1, strlen(v1), &stat);
	ck_assert(stat.inactive_file == 10 && stat.faults == 20 && stat.major_faults == 30);
	cgroup_files_memory_stat_parse(v2, strlen(v2), &stat);
	ck_assert(stat.inactive_file == 1 && stat.faults == 2 && stat.major_faults == 3);
	cgroup_files_memory_stat_parse(none, strlen(none), &stat);
	ck_assert(stat.inactive_file == UINT64_MAX && stat.faults == UINT64_MAX && stat.major_faults == UINT64_MAX);
}
END_TEST

/* ---- limits of a directory, and the machine ---- */

static const struct {
	const char *directory;
	bool v2;
	uint64_t limit[CGROUP_LIMITS_KINDS]; /* CPU in thousandths of a core; 0: none */
} directories[] = {
	{ "v2/system.slice", true, { 3000, 4000, 0 } },
	{ "v2/tiny.slice", true, { 25, 2000, 4ull << 30 } },
	{ "v2/pinned.slice", true, { 0, 2000, 0 } },
	{ "v2/garbage.slice", true, { 0, 0, 0 } },
	{ "v1/cpu,cpuacct/system.slice", false, { 1500, 0, 0 } },
	{ "v1/cpu,cpuacct/zero", false, { 0, 0, 0 } },
	{ "v1/memory/system.slice/postgresql.service", false, { 0, 0, 512ull << 20 } },
};

START_TEST(a_directory_says_what_it_says)
{
	char path[128];

	snprintf(path, sizeof(path), "tests/data/cgroup/%s", directories[_i].directory);
	AUTO_CLOSE int dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(dir_fd, 0);
	for (int kind = 0; kind < CGROUP_LIMITS_KINDS; kind++) {
		uint64_t unit = kind == CGROUP_LIMITS_MEMORY ? 1 : 1000000, limit = 0;

		ck_assert_int_eq(cgroup_limits_read(dir_fd, (enum cgroup_limits_kind)kind, directories[_i].v2, &limit),
				 0);
		ck_assert_uint_eq(limit, directories[_i].limit[kind] ? directories[_i].limit[kind] * unit : UINT64_MAX);
	}
}
END_TEST

START_TEST(without_a_descriptor_left_it_is_not_said_that_there_is_no_limit)
{
	AUTO_CLOSE int dir_fd = open("tests/data/cgroup/v2/system.slice", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct rlimit limit, none;
	uint64_t quota = 7;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){ 0, limit.rlim_max };
	setrlimit(RLIMIT_NOFILE, &none);
	int r = cgroup_limits_read(dir_fd, CGROUP_LIMITS_QUOTA, true, &quota);
	setrlimit(RLIMIT_NOFILE, &limit);
	ck_assert_int_eq(r, -EMFILE);
	ck_assert_uint_eq(quota, 7);
}
END_TEST

START_TEST(the_machine_is_read)
{
	AUTO_CLOSE int procfd = open("tests/data/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int no_procfd = open("tests/data/cgroup", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct metric_machine read = { 0 };

	ck_assert_int_eq(cgroup_limits_machine(procfd, "tests/data/proc/online", NULL, &read), 0);
	ck_assert(read.cores == 4);
	ck_assert_uint_eq(read.memory_bytes, 24684092ULL * 1024);
	ck_assert_int_eq(cgroup_limits_machine(procfd, "tests/data/proc/online_one", NULL, &read), 0);
	ck_assert(read.cores == 1);
	ck_assert_int_eq(cgroup_limits_machine(procfd, "tests/data/proc/online_garbage", NULL, &read), -EBADMSG);
	ck_assert_int_eq(cgroup_limits_machine(procfd, "tests/data/proc/not-there", NULL, &read), -ENOENT);
	ck_assert_int_eq(cgroup_limits_machine(no_procfd, "tests/data/proc/online", NULL, &read), -ENOENT);
	ck_assert(read.cores == 1);
}
END_TEST

Suite *cgroup_files_suite(void)
{
	Suite *suite = suite_create("cgroup_files");
	TCase *tcase = tcase_create("cgroupfs");

	tcase_add_test(tcase, numbers);
	tcase_add_test(tcase, limits);
	tcase_add_test(tcase, cpu_max);
	tcase_add_test(tcase, lists_of_cpus);
	tcase_add_test(tcase, pressure_is_its_total);
	tcase_add_test(tcase, cpu_stat_of_both_versions);
	tcase_add_test(tcase, keys_that_are_missing_or_broken_are_unavailable);
	tcase_add_test(tcase, cpuacct_stat_counts_ticks);
	tcase_add_test(tcase, memory_stat_is_of_the_subtree);
	tcase_add_loop_test(tcase, a_directory_says_what_it_says, 0, (int)ARRAY_LEN(directories));
	tcase_add_test(tcase, without_a_descriptor_left_it_is_not_said_that_there_is_no_limit);
	tcase_add_test(tcase, the_machine_is_read);
	suite_add_tcase(suite, tcase);

	return suite;
}
