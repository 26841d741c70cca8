/*
 * check_stacktruth.c: workloads whose stacks are known, the real daemon as it is by default, and what an incident says of them.
 */
#include "sample.h"
#include "stacks_rig.h"

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>

Suite *stacktruth_suite(void);

static struct stacks_rig rig;
static char workload[512];
static bool able;

static void setup(void)
{
	able = stacks_rig_init(&rig) && program_find("workload_stacks", workload);
}

static void teardown(void)
{
	stacks_rig_release(&rig);
}

#define DWARF "\"dwarf\""
#define NO_RULES "[]"

/* A workload from its start to an incident that somebody asked for when it was done. */
static void run(const char *stacks, const char *what, const char *much, const char *file)
{
	const char *arguments[] = { workload, what, much, file, NULL };

	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	stacks_rig_start_daemon(&rig, stacks, NO_RULES);
	stacks_rig_work(&rig);
	stacks_rig_trigger(&rig);
}

/* So much CPU time a workload uses. */
#define BURN_MS 1000
#define BURN_MS_TEXT "1000"

/* At 99 Hz. What burns may be a little elsewhere, in the kernel or reading the clock. */
#define EXPECT_SAMPLES(count, cpu_ms) \
	ck_assert_msg((double)(count) > 0.7 * 0.099 * (cpu_ms) && (double)(count) < 1.3 * 0.099 * (cpu_ms), \
		      "%lu samples of %d ms", (unsigned long)(count), cpu_ms)

START_TEST(one_hot_thread_among_fifty_is_named)
{
	if (!able)
		return;

	run(DWARF, "threads", BURN_MS_TEXT, NULL);
	EXPECT_SAMPLES(stacks_rig_function(&rig, "functions.tsv", "burn_hot").total, BURN_MS);
	EXPECT_SAMPLES(STACKS_RIG_FOLDED(&rig, "cpu.folded", ";be_hot;burn_hot"), BURN_MS);
	ck_assert_uint_eq(STACKS_RIG_FOLDED(&rig, "cpu.folded", "sleep_cold"), 0);

	char *text = stacks_rig_file(&rig, "functions.tsv");
	char *at = strstr(text, "\nburn_hot\t");

	ck_assert_ptr_nonnull(at);
	at[1 + strcspn(at + 1, "\n")] = '\0';
	ck_assert_msg(strstr(at, "\thot\t"), "the hottest thread of burn_hot is not \"hot\": %s", at);
	free(text);
	stacks_rig_end(&rig);
}
END_TEST

START_TEST(every_level_of_a_recursion_is_there)
{
	char levels[20 * 10 + 16];
	size_t len = 0;

	if (!able)
		return;

	run(DWARF, "recursion", BURN_MS_TEXT, NULL);
	for (int i = 0; i < 20; i++)
		len += (size_t)snprintf(levels + len, sizeof(levels) - len, ";go_deeper");
	snprintf(levels + len, sizeof(levels) - len, ";burn_leaf");
	EXPECT_SAMPLES(STACKS_RIG_FOLDED(&rig, "cpu.folded", ";main;", levels), BURN_MS);
	ck_assert_uint_eq(STACKS_RIG_FOLDED(&rig, "cpu.folded", ";go_deeper", levels), 0); /* 21 levels */
	stacks_rig_end(&rig);
}
END_TEST

START_TEST(who_is_called_back_by_a_library_without_frame_pointers_has_its_callers)
{
	if (!able)
		return;

	run(DWARF, "qsort", BURN_MS_TEXT, NULL);
	EXPECT_SAMPLES(STACKS_RIG_FOLDED(&rig, "cpu.folded", ";main;", ";sort_all;", ";compare_slowly"), BURN_MS);
	stacks_rig_end(&rig);
}
END_TEST

START_TEST(a_library_that_was_loaded_late_is_known)
{
	char library[128], command[512];

	if (!able)
		return;

	snprintf(library, sizeof(library), "%s/late.so", rig.directory);
	snprintf(command, sizeof(command), "%s/late.c", rig.directory);
	scene_write(command, "static volatile unsigned long sum;\n"
			     "__attribute__((noinline)) static void burn_inside(void)\n"
			     "{ for (int i = 0; i < 200000; i++) sum = sum * 25214903917ul + 11; }\n"
			     "void burn_in_library(void) { burn_inside(); sum++; }\n");
	snprintf(command, sizeof(command), "cc -O2 -g -shared -fPIC -o '%s' '%s/late.c'", library, rig.directory);
	ck_assert_int_eq(system(command), 0);
	run(DWARF, "library", BURN_MS_TEXT, library);
	EXPECT_SAMPLES(STACKS_RIG_FOLDED(&rig, "cpu.folded", ";main;", ";burn_in_library;burn_inside"), BURN_MS);
	stacks_rig_end(&rig);
}
END_TEST

START_TEST(code_that_was_compiled_at_run_time_has_the_name_of_its_perf_map)
{
	if (!able)
		return;

#ifdef __x86_64__
	char map[64];

	run(DWARF, "compiled", BURN_MS_TEXT, NULL);
	EXPECT_SAMPLES(STACKS_RIG_FOLDED(&rig, "cpu.folded", ";main;", ";burn_compiled"), BURN_MS);
	snprintf(map, sizeof(map), "/tmp/perf-%d.map", rig.work.pid);
	unlink(map);
	stacks_rig_end(&rig);
#endif
}
END_TEST

START_TEST(children_that_live_a_tenth_of_a_second_are_named)
{
	if (!able)
		return;

	run(DWARF, "children", BURN_MS_TEXT, NULL);
	EXPECT_SAMPLES(STACKS_RIG_FOLDED(&rig, "cpu.folded", ";main;", ";burn_in_child"), BURN_MS);
	stacks_rig_end(&rig);
}
END_TEST

/* ---- the end of a process ---- */

static bool sealed(struct stacks_rig *target)
{
	char path[128];
	DIR *directory;
	bool found = false;

	snprintf(path, sizeof(path), "%s/incidents", target->directory);
	directory = opendir(path);
	for (struct dirent *entry; directory && (entry = readdir(directory));) {
		char file[640];

		if (entry->d_name[0] < '0' || entry->d_name[0] > '9' || strstr(entry->d_name, ".tmp"))
			continue; /* it is being written */
		snprintf(target->incident, sizeof(target->incident), "%s/%s", path, entry->d_name);
		snprintf(file, sizeof(file), "%s/incident.json", target->incident);
		found = access(file, F_OK) == 0;
		if (found)
			break;
	}
	if (directory)
		closedir(directory);

	return found;
}

START_TEST(a_process_that_exits_right_at_its_spike_has_names)
{
	const char *arguments[] = { workload, "exit", "600", NULL };

	if (!able)
		return;

	rig.after = "1s";
	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	stacks_rig_start_daemon(&rig, DWARF,
				"[{\"name\": \"spike\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", "
				"\"percent\": \"20%\", \"warmup\": 1}]");
	kill(rig.work.pid, SIGCONT);
	ck_assert_int_eq(program_wait(&rig.work), 0);
	rig.work.pid = 0;
	scene_wait_for(sealed(&rig));
	ck_assert_uint_gt(STACKS_RIG_FOLDED(&rig, "cpu.folded", ";main;", "burn_and_go"), 2);
	stacks_rig_end(&rig);
}
END_TEST

/* ---- a mount namespace of its own ---- */

/* In a child: a file system that nobody else sees, with the workload in it. */
static void start_inside(const char *inner)
{
	char program[256], command[1024];
	const char *arguments[] = { program, "recursion", BURN_MS_TEXT, NULL };
	int out = open(rig.out, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	snprintf(program, sizeof(program), "%s/only_here", inner);
	snprintf(command, sizeof(command), "cp '%s' '%s'", workload, program);
	rig.work.pid = fork();
	ck_assert_int_ge(rig.work.pid, 0);
	if (rig.work.pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		    mount("none", inner, "tmpfs", 0, NULL) < 0 || system(command) != 0)
			_exit(125);
		dup2(out, STDOUT_FILENO);
		execv(program, (char *const *)(uintptr_t)arguments);
		_exit(126);
	}
	close(out);
}

START_TEST(a_program_of_another_mount_namespace_has_names)
{
	char inner[128], unseen[160];

	if (!able)
		return;
	if (geteuid() != 0) {
		fprintf(stderr, "skipped: making mount namespaces takes root\n");
		return;
	}

	stacks_rig_place(&rig, "inner", inner);
	start_inside(inner);
	stacks_rig_until_stopped(&rig);
	snprintf(unseen, sizeof(unseen), "%s/only_here", inner);
	ck_assert_int_lt(access(unseen, F_OK), 0);
	stacks_rig_start_daemon(&rig, DWARF, NO_RULES);
	stacks_rig_work(&rig);
	stacks_rig_trigger(&rig);
	EXPECT_SAMPLES(STACKS_RIG_FOLDED(&rig, "cpu.folded", "only_here;", ";main;", ";go_deeper;burn_leaf"), BURN_MS);
	stacks_rig_end(&rig);
}
END_TEST

/* ---- memory ---- */

START_TEST(memory_that_grew_three_to_one_is_so_in_the_profile)
{
	if (!able)
		return;

	run(DWARF, "memory", "600", NULL);

	double three = (double)STACKS_RIG_FOLDED(&rig, "memory.folded", ";main;", ";grow_three"),
	       one = (double)STACKS_RIG_FOLDED(&rig, "memory.folded", ";main;", ";grow_one"), all = three + one;
	struct stacks_rig_row table = stacks_rig_function(&rig, "memory-functions.tsv", "grow_three");

	ck_assert_msg(three / all > 0.65 && three / all < 0.85, "%.3f of %.0f", three / all, all);
	ck_assert_uint_gt(table.total, 0);
	stacks_rig_end(&rig);
}
END_TEST

/* Far faster than page faults may be counted: what was is a part of it, and stands for all. */
static void flood(const char *mib, uint64_t bytes, double by)
{
	run(DWARF, "flood", mib, NULL);

	double three = (double)STACKS_RIG_FOLDED(&rig, "memory.folded", ";main;", ";grow_three"),
	       one = (double)STACKS_RIG_FOLDED(&rig, "memory.folded", ";main;", ";grow_one"), all = three + one;

	ck_assert_msg(three / all > 0.75 - by && three / all < 0.75 + by, "%.3f of %.0f", three / all, all);
	ck_assert_msg(all > (double)bytes * (1 - by) && all < (double)bytes * (1 + by), "%.0f bytes of %.0f", all,
		      (double)bytes);
	stacks_rig_end(&rig);
}

START_TEST(half_a_gigabyte_at_once_has_its_bytes)
{
	if (able)
		flood("512", 512ull << 20, 0.25);
}
END_TEST

START_TEST(a_burst_of_two_hundred_megabytes_has_its_stacks)
{
	if (able)
		flood("200", 200ull << 20, 0.25);
}
END_TEST

/* ---- the profile and the samples ---- */

/* CPU time by the first row and by the last. */
struct cpu_time {
	bool begun;
	uint64_t first_ns, last_ns;
};

static int take_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	struct cpu_time *time = ctx;

	(void)seq;
	(void)time_ns;
	(void)target;
	if (!(mask & 1u << SAMPLE_CPU))
		return 0;
	if (!time->begun)
		time->first_ns = values[SAMPLE_CPU];
	time->begun = true;
	time->last_ns = values[SAMPLE_CPU];

	return 0;
}

static double cpu_seconds(void)
{
	struct cpu_time time = { .begun = false };
	struct salvage_events events = { .row = take_row, .ctx = &time };
	char path[640];

	snprintf(path, sizeof(path), "%s/samples.tsv", rig.incident);
	scene_salvage(path, &events);
	ck_assert(time.begun);

	return (double)(time.last_ns - time.first_ns) / 1e9;
}

START_TEST(the_profile_has_as_many_cpu_seconds_as_the_samples)
{
	if (!able)
		return;

	run(DWARF, "recursion", "2000", NULL);

	double samples = (double)STACKS_RIG_FOLDED(&rig, "cpu.folded", "workload_stacks;"), seconds = cpu_seconds();

	/* Evenly spaced samples of one thread: one in a hundred off for the clock, one for each time it was put off the CPU. */
	ck_assert_msg(fabs(samples / 99 - seconds) < 0.1 * seconds, "%.0f samples of %.3f s", samples, seconds);
	stacks_rig_end(&rig);
}
END_TEST

/* ---- an interpreter ---- */

/* One that can tell perf the names of its functions (3.12). False: there is none. */
static bool find_python(char ret[512])
{
	FILE *file = popen(
		"for p in python3.14 python3.13 python3.12 python3 \"$HOME\"/.pyenv/versions/3.1[2-9]*/bin/python3; do "
		"$p -X perf -c 'import sys; assert sys.is_stack_trampoline_active(); print(sys.executable)' "
		"2>/dev/null && "
		"break; done",
		"re");
	bool found = file && fgets(ret, 512, file) != NULL;

	if (file)
		pclose(file);
	ret[strcspn(ret, "\n")] = '\0';

	return found;
}

START_TEST(functions_of_python_have_their_names)
{
	char python[512], script[128], map[64];
	const char *arguments[] = { python, "-X", "perf", script, NULL };

	if (!able)
		return;
	if (!find_python(python)) {
		fprintf(stderr, "skipped: no python3 of 3.12 or later\n");
		return;
	}

	snprintf(script, sizeof(script), "%s/burn.py", rig.directory);
	scene_write(script, "import os, signal, time\n"
			    "def burn_in_python():\n"
			    "    x = 0\n"
			    "    for i in range(100000):\n"
			    "        x = (x * 31 + i) & 0xffff\n"
			    "    return x\n"
			    "def work_in_python():\n"
			    "    while time.process_time() < until:\n"
			    "        burn_in_python()\n"
			    "os.kill(os.getpid(), signal.SIGSTOP)\n"
			    "until = time.process_time() + 1.0\n"
			    "work_in_python()\n"
			    "print('done', flush=True)\n"
			    "signal.pause()\n");
	stacks_rig_start_work(&rig, arguments);
	stacks_rig_until_stopped(&rig);
	stacks_rig_start_daemon(&rig, DWARF, NO_RULES);
	stacks_rig_work(&rig);
	stacks_rig_trigger(&rig);
	EXPECT_SAMPLES(STACKS_RIG_FOLDED(&rig, "cpu.folded", "burn_in_python"), BURN_MS);
	snprintf(map, sizeof(map), "/tmp/perf-%d.map", rig.work.pid);
	unlink(map);
	stacks_rig_end(&rig);
}
END_TEST

Suite *stacktruth_suite(void)
{
	Suite *suite = suite_create("stacktruth");
	TCase *tcase = tcase_create("stacktruth");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, one_hot_thread_among_fifty_is_named);
	tcase_add_test(tcase, every_level_of_a_recursion_is_there);
	tcase_add_test(tcase, who_is_called_back_by_a_library_without_frame_pointers_has_its_callers);
	tcase_add_test(tcase, a_library_that_was_loaded_late_is_known);
	tcase_add_test(tcase, code_that_was_compiled_at_run_time_has_the_name_of_its_perf_map);
	tcase_add_test(tcase, children_that_live_a_tenth_of_a_second_are_named);
	tcase_add_test(tcase, a_process_that_exits_right_at_its_spike_has_names);
	tcase_add_test(tcase, a_program_of_another_mount_namespace_has_names);
	tcase_add_test(tcase, memory_that_grew_three_to_one_is_so_in_the_profile);
	tcase_add_test(tcase, half_a_gigabyte_at_once_has_its_bytes);
	tcase_add_test(tcase, a_burst_of_two_hundred_megabytes_has_its_stacks);
	tcase_add_test(tcase, the_profile_has_as_many_cpu_seconds_as_the_samples);
	tcase_add_test(tcase, functions_of_python_have_their_names);
	suite_add_tcase(suite, tcase);

	return suite;
}
