/*
 * check_process.c: one process by its kept descriptors: fixtures for what is rare, children for
 * what is alive.
 */
#include "lib/source/process.c"
#include "children.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <check.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

Suite *process_suite(void);

/* Opens all that can be read. */
static int process_init(struct process *process, int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock)
{
	struct process opened;

	process_init_closed(process, pid, with_cpu_clock);
	int r = process_reopen(procfd, pid, start_ticks, PROCESS_ALL, &opened);
	if (r == 0)
		process_adopt(process, opened.fd);

	return r;
}

static int open_proc(const char *root)
{
	int fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static struct sample read_fixture(int32_t pid)
{
	AUTO_CLOSE int procfd = open_proc("tests/data/proc");
	struct process process;
	struct sample sample = { 0 };

	ck_assert_int_eq(process_init(&process, procfd, pid, 0, false), 0);
	ck_assert_int_eq(process_read(&process, 0, &sample), 0);
	ck_assert_int_eq(process_read_peak(&process, false, &sample), 0);
	ck_assert_int_eq(process_read_fds(&process, &sample), 0);
	process_release(&process);

	return sample;
}

START_TEST(a_process_has_all_fields)
{
	struct sample sample = read_fixture(812);
	uint64_t tick = 1000000000ULL / (uint64_t)sysconf(_SC_CLK_TCK);

	ck_assert_uint_eq(sample.value[SAMPLE_CPU], 3130 * tick);
	ck_assert_uint_eq(sample.value[SAMPLE_CPU_USER], 1339 * tick);
	ck_assert_uint_eq(sample.value[SAMPLE_CPU_SYSTEM], 1791 * tick);
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY], 7528 * (uint64_t)sysconf(_SC_PAGESIZE));
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY_PEAK], 31044 * 1024);
	ck_assert_uint_eq(sample.value[SAMPLE_THREADS], 1);
	ck_assert_uint_eq(sample.value[SAMPLE_FDS], 4);
	ck_assert_uint_eq(sample.value[SAMPLE_MINOR_FAULTS], 5120);
	ck_assert_uint_eq(sample.value[SAMPLE_MAJOR_FAULTS], 17);
	ck_assert_uint_eq(sample.value[SAMPLE_STATE], 'S');
}
END_TEST

START_TEST(negative_memory_is_none)
{
	struct sample sample = read_fixture(813);

	ck_assert(sample_has(&sample, SAMPLE_MEMORY));
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY], 0);
	ck_assert_uint_eq(sample.value[SAMPLE_STATE], 'R');
	ck_assert_uint_eq(sample.value[SAMPLE_THREADS], 9);
}
END_TEST

START_TEST(a_kernel_thread_has_no_high_water_mark)
{
	struct sample sample = read_fixture(2);

	ck_assert(sample_has(&sample, SAMPLE_MEMORY) && sample.value[SAMPLE_MEMORY] == 0);
	ck_assert(!sample_has(&sample, SAMPLE_MEMORY_PEAK));
}
END_TEST

START_TEST(a_zombie_is_seen_as_one)
{
	struct sample sample = read_fixture(900);

	ck_assert_uint_eq(sample.value[SAMPLE_STATE], 'Z');
	ck_assert_uint_eq(sample.value[SAMPLE_MEMORY], 0);
}
END_TEST

START_TEST(what_is_missing_is_unavailable)
{
	struct sample sample = read_fixture(901);

	ck_assert(sample_has(&sample, SAMPLE_CPU));
	ck_assert(!sample_has(&sample, SAMPLE_MEMORY));
	ck_assert(!sample_has(&sample, SAMPLE_MEMORY_PEAK));
	ck_assert(!sample_has(&sample, SAMPLE_FDS));
}
END_TEST

START_TEST(what_cannot_be_watched_says_why)
{
	AUTO_CLOSE int procfd = open_proc("tests/data/proc");
	struct process process;

	ck_assert_int_eq(process_init(&process, procfd, 4242, 0, false), -ESRCH);
	ck_assert_int_eq(process_init(&process, procfd, 902, 0, false), -EBADMSG);
	ck_assert_int_eq(process_init(&process, procfd, 812, 132836, false), -ESRCH);
	ck_assert_int_eq(process_init(&process, procfd, 812, 132835, false), 0);
	process_release(&process);
}
END_TEST

static uint64_t open_descriptors(int procfd)
{
	struct process process;
	struct sample sample = { 0 };

	ck_assert_int_eq(process_init(&process, procfd, getpid(), 0, false), 0);
	ck_assert_int_eq(process_read_fds(&process, &sample), 0);
	process_release(&process);

	return sample.value[SAMPLE_FDS];
}

START_TEST(running_out_of_descriptors_is_reported)
{
	AUTO_CLOSE int procfd = open_proc("/proc");
	uint64_t before = open_descriptors(procfd);
	struct rlimit limit;
	int failures = 0;
	int r = -EMFILE;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	rlim_t usual = limit.rlim_cur;
	for (rlim_t n = (rlim_t)procfd + 1; r != 0; n++) {
		struct process process;

		limit.rlim_cur = n;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
		r = process_init(&process, procfd, getpid(), 0, true);
		if (r == 0)
			process_release(&process);
		else
			ck_assert_int_eq(r, -EMFILE);
		failures += r != 0;
	}
	limit.rlim_cur = usual;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_ge(failures, 6); /* the directory, stat, statm, status, fd, clear_refs */
	ck_assert_uint_eq(open_descriptors(procfd), before);
}
END_TEST

START_TEST(a_child_is_followed_to_its_end)
{
	AUTO_CLOSE int procfd = open_proc("/proc");
	struct child child = child_start();
	struct process process;
	struct sample sample = { 0 };
	uint64_t before;
	uint64_t after;

	ck_assert_int_eq(process_init(&process, procfd, child.pid, 0, true), 0);
	ck_assert_int_eq(process_cpu(&process, &before), 0);
	ck_assert_int_eq(process_read(&process, 0, &sample), 0);
	uint64_t memory = sample.value[SAMPLE_MEMORY];
	child_do(&child, 'b');
	child_do(&child, 'm');
	ck_assert_int_eq(process_cpu(&process, &after), 0);
	ck_assert_uint_ge(after - before, BURNT_NS);
	ck_assert_int_eq(process_read(&process, 0, &sample), 0);
	ck_assert_uint_ge(sample.value[SAMPLE_MEMORY], memory + TOUCHED_BYTES);
	ck_assert_int_eq(process_read_peak(&process, false, &sample), 0);
	ck_assert_uint_ge(sample.value[SAMPLE_MEMORY_PEAK], sample.value[SAMPLE_MEMORY]);

	child_exit(&child);
	ck_assert_int_eq(process_cpu(&process, &after), 0);
	ck_assert_int_eq(process_read(&process, 0, &sample), 0);
	ck_assert_uint_eq(sample.value[SAMPLE_STATE], 'Z');
	ck_assert_int_eq(process_read_fds(&process, &sample), 0);

	child_reap(&child);
	ck_assert_int_eq(process_cpu(&process, &after), -ESRCH);
	ck_assert_int_eq(process_read(&process, 0, &sample), -ESRCH);
	ck_assert_int_eq(process_read_peak(&process, false, &sample), -ESRCH);
	ck_assert_int_eq(process_read_fds(&process, &sample), -ESRCH);
	process_release(&process);
}
END_TEST

START_TEST(descriptors_are_counted_anew_each_time)
{
	AUTO_CLOSE int procfd = open_proc("/proc");
	struct child child = child_start();
	struct process process;
	struct sample sample = { 0 };

	ck_assert_int_eq(process_init(&process, procfd, child.pid, 0, true), 0);
	ck_assert_int_eq(process_read_fds(&process, &sample), 0);
	uint64_t before = sample.value[SAMPLE_FDS];
	for (int i = 0; i < 40; i++)
		child_do(&child, 'f');
	ck_assert_int_eq(process_read_fds(&process, &sample), 0);
	ck_assert_uint_eq(sample.value[SAMPLE_FDS], before + 400);
	process_release(&process);
	child_reap(&child);
}
END_TEST

START_TEST(peak_starts_anew_when_reset)
{
	AUTO_CLOSE int procfd = open_proc("/proc");
	struct process process;
	struct sample sample = { 0 };

	ck_assert_int_eq(process_init(&process, procfd, getpid(), 0, false), 0);
	void *big = mmap(NULL, 64u << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	ck_assert(big != MAP_FAILED);
	munmap(big, 64u << 20);
	ck_assert_int_eq(process_read_peak(&process, true, &sample), 0);
	ck_assert_uint_ge(sample.value[SAMPLE_MEMORY_PEAK], 64u << 20);
	uint64_t before = sample.value[SAMPLE_MEMORY_PEAK];
	ck_assert_int_eq(process_read_peak(&process, false, &sample), 0);
	if (process.fd[PROCESS_CLEAR_REFS] >= 0)
		ck_assert_uint_lt(sample.value[SAMPLE_MEMORY_PEAK], before);
	process_release(&process);
}
END_TEST

START_TEST(what_is_dropped_is_unavailable)
{
	AUTO_CLOSE int procfd = open_proc("tests/data/proc");
	struct process process;
	struct sample sample = { 0 };

	ck_assert_int_eq(process_init(&process, procfd, 812, 0, false), 0);
	process_drop(&process, 1u << PROCESS_STATUS | 1u << PROCESS_CLEAR_REFS | 1u << PROCESS_FDS);
	ck_assert_int_eq(process_read_peak(&process, true, &sample), 0);
	ck_assert_int_eq(process_read_fds(&process, &sample), 0);
	ck_assert_uint_eq(sample.mask, 0);
	ck_assert_int_eq(process_read(&process, 0, &sample), 0);
	process_release(&process);
}
END_TEST

START_TEST(a_process_opens_what_is_wanted_and_keeps_what_it_has)
{
	struct process process;
	struct process extras;
	int procfd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(process_init(&process, procfd, getpid(), 0, true), 0);
	int status = process.fd[PROCESS_STATUS];

	process_drop(&process, 1u << PROCESS_CLEAR_REFS | 1u << PROCESS_FDS);
	ck_assert_int_eq(process_reopen(procfd, getpid(), 0, 1u << PROCESS_STATUS | 1u << PROCESS_CLEAR_REFS, &extras),
			 0);
	ck_assert_int_eq(extras.fd[PROCESS_FDS], -1);
	int reset = extras.fd[PROCESS_CLEAR_REFS];

	ck_assert_int_ge(reset, 0);
	process_adopt(&process, extras.fd);
	ck_assert_int_eq(process.fd[PROCESS_STATUS], status);
	ck_assert_int_eq(process.fd[PROCESS_CLEAR_REFS], reset);
	ck_assert_int_eq(process.fd[PROCESS_FDS], -1);
	process_release(&process);
	close(procfd);
}
END_TEST

Suite *process_suite(void)
{
	Suite *suite = suite_create("process");
	TCase *tcase = tcase_create("process");

	tcase_add_test(tcase, a_process_has_all_fields);
	tcase_add_test(tcase, a_process_opens_what_is_wanted_and_keeps_what_it_has);
	tcase_add_test(tcase, negative_memory_is_none);
	tcase_add_test(tcase, a_kernel_thread_has_no_high_water_mark);
	tcase_add_test(tcase, a_zombie_is_seen_as_one);
	tcase_add_test(tcase, what_is_missing_is_unavailable);
	tcase_add_test(tcase, what_cannot_be_watched_says_why);
	tcase_add_test(tcase, running_out_of_descriptors_is_reported);
	tcase_add_test(tcase, a_child_is_followed_to_its_end);
	tcase_add_test(tcase, descriptors_are_counted_anew_each_time);
	tcase_add_test(tcase, peak_starts_anew_when_reset);
	tcase_add_test(tcase, what_is_dropped_is_unavailable);
	suite_add_tcase(suite, tcase);

	return suite;
}
