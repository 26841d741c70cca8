/*
 * check_cgroup.c: one cgroup by its kept descriptors, v1, v2 and hybrid; and a real one where this
 * machine lets us make it.
 */
#include "lib/cgroup/cgroup.h"
#include "skip.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/model/sample.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

Suite *cgroup_suite(void);

#define POSTGRES "/system.slice/postgresql.service"

static struct cgroup_mounts *fixture(const char *mode)
{
	struct cgroup_mounts *mounts = NULL;
	char root[64];

	snprintf(root, sizeof(root), "tests/data/cgroup/%s", mode);
	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", root, &mounts), 0);

	return mounts;
}

static struct sample read_fixture(const char *mode, const char *path)
{
	struct cgroup_mounts *mounts = fixture(mode);
	struct cgroup_files files;
	struct sample sample = { 0 };

	ck_assert_int_eq(cgroup_files_init(&files, mounts, path), 0);
	ck_assert_int_eq(cgroup_files_read(&files, &sample), 0);
	cgroup_files_release(&files);
	cgroup_mounts_free(mounts);

	return sample;
}

START_TEST(v1_has_its_fields)
{
	struct sample sample = read_fixture("v1", POSTGRES);
	uint64_t tick = 1000000000ULL / (uint64_t)sysconf(_SC_CLK_TCK);

	ck_assert_uint_eq(sample.value[SAMPLE_CPU], 7000000001);
	ck_assert_uint_eq(sample.value[SAMPLE_CPU_USER], 500 * tick);
	ck_assert_uint_eq(sample.value[SAMPLE_CPU_SYSTEM], 200 * tick);
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY], 256307200);
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY_PEAK], 959373312);
	ck_assert_uint_eq(sample.value[SAMPLE_WORKING_SET], 256307200 - 149012480);
	ck_assert_uint_eq(sample.value[SAMPLE_MINOR_FAULTS], 1290221 - 1101);
	ck_assert_uint_eq(sample.value[SAMPLE_MAJOR_FAULTS], 1101);
	ck_assert_uint_eq(sample.value[SAMPLE_PERIODS], 500);
	ck_assert_uint_eq(sample.value[SAMPLE_THROTTLED_PERIODS], 20);
	ck_assert_uint_eq(sample.value[SAMPLE_THROTTLED], 123456789);
	ck_assert_uint_eq(sample.value[SAMPLE_PIDS], 9);
	ck_assert(!sample_has(&sample, SAMPLE_CPU_PRESSURE));
	ck_assert(!sample_has(&sample, SAMPLE_THREADS));
}
END_TEST

START_TEST(v2_has_its_fields)
{
	struct sample sample = read_fixture("v2", POSTGRES);

	ck_assert_uint_eq(sample.value[SAMPLE_CPU], 27647792000);
	ck_assert_uint_eq(sample.value[SAMPLE_CPU_USER], 11833206000);
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY], 104857600);
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY_PEAK], 209715200);
	ck_assert_uint_eq(sample.value[SAMPLE_WORKING_SET], 100000000);
	ck_assert_uint_eq(sample.value[SAMPLE_MAJOR_FAULTS], 21);
	ck_assert_uint_eq(sample.value[SAMPLE_THROTTLED], 4500000);
	ck_assert_uint_eq(sample.value[SAMPLE_PIDS], 5);
	ck_assert_uint_eq(sample.value[SAMPLE_CPU_PRESSURE], 4501363000);
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY_PRESSURE], 77000);
	ck_assert_uint_eq(sample.value[SAMPLE_IO_PRESSURE], 0);
}
END_TEST

START_TEST(the_root_of_v2_has_no_memory)
{
	struct sample sample = read_fixture("v2", "/");

	ck_assert(sample_has(&sample, SAMPLE_CPU));
	ck_assert(!sample_has(&sample, SAMPLE_MEMORY) && !sample_has(&sample, SAMPLE_WORKING_SET));
}
END_TEST

START_TEST(hybrid_takes_counters_from_v1_and_pressure_from_v2)
{
	struct sample sample = read_fixture("hybrid", POSTGRES);

	ck_assert_uint_eq(sample.value[SAMPLE_CPU], 7000000001);
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY], 256307200);
	ck_assert_uint_eq(sample.value[SAMPLE_CPU_PRESSURE], 4501363000);
}
END_TEST

START_TEST(a_path_that_one_hierarchy_knows_is_enough)
{
	struct sample sample = read_fixture("hybrid", "/only-in-v2");

	ck_assert_uint_eq(sample.mask,
			  1u << SAMPLE_CPU_PRESSURE | 1u << SAMPLE_MEMORY_PRESSURE | 1u << SAMPLE_IO_PRESSURE);
	sample = read_fixture("hybrid", "/only-in-pids");
	ck_assert_uint_eq(sample.mask, 1u << SAMPLE_PIDS);
}
END_TEST

START_TEST(a_path_that_nobody_knows_is_refused)
{
	static const char *const paths[] = {
		"/nobody", "/..", "/../v1/memory", "/system.slice/../system.slice", "system.slice", "", "/x/..",
	};
	struct cgroup_mounts *mounts = fixture("v2");
	struct cgroup_files files;

	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		ck_assert_int_eq(cgroup_files_init(&files, mounts, paths[i]), -ENOENT);
	cgroup_mounts_free(mounts);
	mounts = fixture("not-there");
	ck_assert_int_eq(cgroup_files_init(&files, mounts, "/"), -ENOENT);
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(a_path_too_long_is_refused)
{
	struct cgroup_mounts *mounts = fixture("v2");
	struct cgroup_files files;
	char path[5000];

	memset(path, 'x', sizeof(path));
	path[0] = '/';
	path[sizeof(path) - 1] = '\0';
	ck_assert_int_eq(cgroup_files_init(&files, mounts, path), -ENAMETOOLONG);
	cgroup_mounts_free(mounts);
}
END_TEST

START_TEST(garbage_is_reported_and_the_rest_is_read)
{
	char root[] = "/tmp/spikewatch-cgroup-XXXXXX";
	static const struct {
		const char *name;
		const char *text;
	} contents[] = {
		{ "cgroup.controllers", "cpu memory pids\n" },
		{ "memory.current", "lots\n" },
		{ "pids.current", "3\n" },
		{ "memory.stat", "inactive_file 1\n" },
	};
	char path[128];
	struct cgroup_mounts *mounts = NULL;
	struct cgroup_files files;
	struct sample sample = { 0 };

	ck_assert_ptr_nonnull(mkdtemp(root));
	for (size_t i = 0; i < ARRAY_LEN(contents); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, contents[i].name);
		FILE *file = fopen(path, "we");
		fputs(contents[i].text, file);
		fclose(file);
	}
	int made = cgroup_mounts_new("/proc", root, &mounts);
	int opened = cgroup_files_init(&files, mounts, "/");
	int r = cgroup_files_read(&files, &sample);
	cgroup_files_release(&files);
	cgroup_mounts_free(mounts);
	for (size_t i = 0; i < ARRAY_LEN(contents); i++) {
		snprintf(path, sizeof(path), "%s/%s", root, contents[i].name);
		unlink(path);
	}
	rmdir(root);

	ck_assert(made == 0 && opened == 0);
	ck_assert_int_eq(r, -EBADMSG);
	ck_assert_uint_eq(sample.mask, 1u << SAMPLE_PIDS);
}
END_TEST

/* ---- a cgroup of our own ---- */

static char real_path[64];
static bool real_made;

static void for_each_hierarchy(int (*act)(const char *path))
{
	static const char *const roots[] = {
		"/sys/fs/cgroup/cpu",  "/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/memory",
		"/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup",
	};

	for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
		char path[256];

		snprintf(path, sizeof(path), "%s/cgroup.procs", roots[i]);
		if (access(path, F_OK) != 0)
			continue;
		snprintf(path, sizeof(path), "%s%s", roots[i], real_path);
		real_made |= act(path) == 0;
	}
}

static int make(const char *path)
{
	return mkdir(path, 0755);
}

/*
 * Unchecked fixtures: they run in Check's own process too, so what a failed test leaves behind goes
 * away.
 */
static void make_real(void)
{
	snprintf(real_path, sizeof(real_path), "/spikewatch-test-cgroup-%d", getpid());
	real_made = false;
	for_each_hierarchy(make);
}

static void remove_real(void)
{
	for_each_hierarchy(rmdir);
}

START_TEST(a_real_cgroup_is_read_until_it_is_gone)
{
	struct cgroup_mounts *mounts = NULL;
	struct cgroup_files files;
	struct sample sample = { 0 };

	if (!real_made)
		SKIP_TEST("cgroups cannot be made here: not root, or none mounted");

	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);
	ck_assert_int_eq(cgroup_files_init(&files, mounts, real_path), 0);
	ck_assert_int_eq(cgroup_files_read(&files, &sample), 0);
	ck_assert_uint_ne(sample.mask, 0);
	if (sample_has(&sample, SAMPLE_CPU))
		ck_assert_uint_eq(sample.value[SAMPLE_CPU], 0);

	struct sample last = sample;
	for_each_hierarchy(rmdir);
	for_each_hierarchy(make); /* another one under the same path */
	ck_assert_int_eq(cgroup_files_read(&files, &sample), -ENOENT);
	ck_assert_int_eq(cgroup_files_read(&files, &sample), -ENOENT);
	ck_assert_mem_eq(&sample, &last, sizeof(last));
	cgroup_files_release(&files);
	cgroup_mounts_free(mounts);
}
END_TEST

/*
 * A child in the cgroup's memory hierarchy that touches so many bytes and ends. False: there is no
 * such hierarchy here.
 */
static bool touch_inside(const struct cgroup_mounts *mounts, size_t bytes)
{
	bool v2 = false;
	const char *memory = cgroup_mounts_controller(mounts, CGROUP_MEMORY, &v2);
	char procs[256];
	int status = 1;

	if (!memory || v2)
		return false;

	snprintf(procs, sizeof(procs), "%s%s/cgroup.procs", memory, real_path);
	pid_t child = fork();
	if (child == 0) {
		AUTO_CLOSE int fd = open(procs, O_WRONLY | O_CLOEXEC);
		char *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (fd < 0 || write(fd, "0", 1) != 1 || data == MAP_FAILED)
			_exit(1);
		memset(data, 1, bytes);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);

	return status == 0;
}

START_TEST(a_peak_that_was_reset_starts_anew)
{
	const size_t large = 32u << 20, small = 8u << 20;
	struct cgroup_mounts *mounts = NULL;
	struct cgroup_files files;
	struct sample sample = { 0 };

	if (!real_made)
		SKIP_TEST("cgroups cannot be made here: not root, or none mounted");

	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);
	ck_assert_int_eq(cgroup_files_init(&files, mounts, real_path), 0);
	if (touch_inside(mounts, large)) {
		ck_assert_int_eq(cgroup_files_read(&files, &sample), 0);
		ck_assert_uint_ge(sample.value[SAMPLE_MEMORY_PEAK], large);
		cgroup_files_reset_peak(&files);
		ck_assert(touch_inside(mounts, small));
		ck_assert_int_eq(cgroup_files_read(&files, &sample), 0);
		ck_assert_uint_ge(sample.value[SAMPLE_MEMORY_PEAK], small);
		ck_assert_uint_lt(sample.value[SAMPLE_MEMORY_PEAK], large);
	}
	cgroup_files_release(&files);
	cgroup_mounts_free(mounts);
}
END_TEST

Suite *cgroup_suite(void)
{
	Suite *suite = suite_create("cgroup");
	TCase *tcase = tcase_create("cgroup");
	TCase *real = tcase_create("real");

	tcase_add_test(tcase, v1_has_its_fields);
	tcase_add_test(tcase, v2_has_its_fields);
	tcase_add_test(tcase, the_root_of_v2_has_no_memory);
	tcase_add_test(tcase, hybrid_takes_counters_from_v1_and_pressure_from_v2);
	tcase_add_test(tcase, a_path_that_one_hierarchy_knows_is_enough);
	tcase_add_test(tcase, a_path_that_nobody_knows_is_refused);
	tcase_add_test(tcase, a_path_too_long_is_refused);
	tcase_add_test(tcase, garbage_is_reported_and_the_rest_is_read);
	suite_add_tcase(suite, tcase);

	tcase_add_unchecked_fixture(real, make_real, remove_real);
	tcase_add_test(real, a_real_cgroup_is_read_until_it_is_gone);
	tcase_add_test(real, a_peak_that_was_reset_starts_anew);
	suite_add_tcase(suite, real);

	return suite;
}
