/*
 * check_stack_recorder_parts.c: the parts of the recorder that open no events: how large rings are,
 * cycles as time, what /proc/stat and /proc/vmstat say, which cgroup stands for a process.
 * White-box: includes the module.
 */
#include "daemon/engine/stacks/stack_recorder.c"

#include <check.h>
#include <sys/timerfd.h>

Suite *stack_recorder_parts_suite(void);

#define MB (1ULL << 20)
#define KB (1ULL << 10)

/* ---- plans ---- */

static struct stack_recorder_options options;
static struct ring_needs needs;
static struct ring_plan plan;
static char reason[STACK_RECORDER_REASON_MAX];

static void need(unsigned cpus, bool system_wide, bool dwarf, uint64_t memory_bytes)
{
	options = (struct stack_recorder_options){ .max_memory_bytes = memory_bytes };
	needs = (struct ring_needs){
		.options = &options, .cpus = cpus, .frequency = 99, .system_wide = system_wide, .dwarf = dwarf
	};
	reason[0] = '\0';
}

static void check_plan(uint64_t chains, uint64_t stacks, uint64_t faults)
{
	ck_assert_int_eq(plan_rings(&needs, &plan, reason), 0);
	ck_assert_uint_eq(plan.ring_bytes[STACK_FILE_SIDEBAND], 64 * KB);
	ck_assert_uint_eq(plan.ring_bytes[STACK_FILE_CPU], chains);
	ck_assert_uint_eq(plan.ring_bytes[STACK_FILE_CPU_FOLLOWED], stacks);
	/* of all processes, or of those that are followed: never both */
	ck_assert_uint_eq(plan.ring_bytes[STACK_FILE_FAULTS], needs.system_wide ? faults : 0);
	ck_assert_uint_eq(plan.ring_bytes[STACK_FILE_FAULTS_FOLLOWED], needs.system_wide ? 0 : faults);
	ck_assert_uint_eq(plan_bytes(&plan), 64 * KB + chains + stacks + faults);
	ck_assert_uint_le(needs.cpus * plan_bytes(&plan), plan_memory(&options) / 4 * 3);
}

START_TEST(with_memory_enough_rings_hold_what_was_asked_for)
{
	/* 20 s x 99 x 320 bytes is 619 KiB; x 8592 bytes is 16.2 MiB */
	need(2, true, false, 1024 * MB);
	check_plan(1 * MB, 0, 512 * KB);
	ck_assert(!plan.dwarf);
	need(2, true, true, 1024 * MB);
	check_plan(1 * MB, 16 * MB, 8 * MB);
	ck_assert(plan.dwarf);
	need(2, false, true, 1024 * MB);
	check_plan(0, 16 * MB, 8 * MB);
	need(2, false, false, 1024 * MB);
	check_plan(0, 1 * MB, 512 * KB);
	ck_assert(!plan.dwarf);
}
END_TEST

START_TEST(what_is_asked_for_counts)
{
	need(2, true, true, 4096 * MB);
	options.before_ns = 75 * NS_PER_S;
	check_plan(4 * MB, 64 * MB, 32 * MB);
	options.ring_bytes = 3 * MB;
	check_plan(4 * MB, 64 * MB, 32 * MB);
	options.ring_bytes = 5 * MB;
	options.stack_bytes = 32768;
	check_plan(8 * MB, 256 * MB, 128 * MB);
	needs.frequency = 10;
	check_plan(8 * MB, 32 * MB, 16 * MB);
	options.without_faults = true;
	check_plan(8 * MB, 32 * MB, 0);
	options.before_ns = UINT64_MAX;
	options.max_memory_bytes = UINT64_MAX;
	ck_assert_int_eq(plan_rings(&needs, &plan, reason), 0);
}
END_TEST

START_TEST(stacks_give_way_first_then_chains_then_stacks_altogether)
{
	need(2, true, true, 64 * MB); /* 24 MiB of each CPU */
	check_plan(1 * MB, 16 * MB, 4 * MB);
	need(2, true, true, 32 * MB);
	check_plan(1 * MB, 8 * MB, 2 * MB);
	need(16, true, true, 64 * MB); /* 3 MiB */
	check_plan(1 * MB, 1 * MB, 512 * KB);
	need(24, true, true, 64 * MB); /* 2 MiB */
	check_plan(256 * KB, 1 * MB, 512 * KB);
	need(32, true, true, 64 * MB); /* 1.5 MiB: less than a second of stacks */
	check_plan(512 * KB, 0, 256 * KB);
	ck_assert(!plan.dwarf);
	need(32, false, true, 64 * MB);
	check_plan(0, 512 * KB, 256 * KB);
	ck_assert(!plan.dwarf);
	need(31, false, true, 64 * MB);
	options.without_faults = true;
	check_plan(0, 1 * MB, 0);
	ck_assert(plan.dwarf);
}
END_TEST

/* The next smaller plan, and so on until there is none: how room for locked memory is found. */
START_TEST(plans_become_smaller_until_there_is_none)
{
	static const bool both[] = { false, true };

	for (size_t system_wide = 0; system_wide < 2; system_wide++)
		for (size_t dwarf = 0; dwarf < 2; dwarf++) {
			uint64_t before = UINT64_MAX;
			int r, steps = 0;

			need(3, both[system_wide], both[dwarf], 512 * MB);
			while ((r = plan_rings(&needs, &plan, reason)) == 0) {
				uint64_t bytes = 3 * plan_bytes(&plan);

				ck_assert_uint_lt(bytes, before);
				for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
					ck_assert_uint_eq(plan.ring_bytes[kind] & (plan.ring_bytes[kind] - 1), 0);
				before = bytes;
				needs.most = bytes - 1;
				ck_assert_int_lt(++steps, 40);
			}
			ck_assert_int_eq(r, -ENOSPC);
			ck_assert_uint_eq(before, 3 * 192 * KB);
			ck_assert_ptr_nonnull(strstr(reason, "take 576 KiB, and 575 KiB are allowed"));
		}
}
END_TEST

/* ---- cycles ---- */

START_TEST(busy_time_is_read_from_proc_stat)
{
	static const char text[] = "cpu  100 20 3 9000 500 7 40 1 5 0\ncpu0 50 10 1 4500 250 3 20 0 2 0\n";

	/* 100 + 20 + 3 + 7 + 40 ticks */
	ck_assert_uint_eq(parse_stat_busy_ns(text, strlen(text), 100), 1700 * NS_PER_MS);
	ck_assert_uint_eq(parse_stat_busy_ns(text, strlen(text), 0), 0);
	ck_assert_uint_eq(parse_stat_busy_ns("cpu 1 2 3\n", 10, 100), 0);
	ck_assert_uint_eq(parse_stat_busy_ns("cpu", 3, 100), 0);
	ck_assert_uint_eq(parse_stat_busy_ns("intr 1 2 3 4 5 6 7 8\n", 21, 100), 0);
	for (size_t len = 0; len < 33; len++)
		ck_assert_uint_eq(parse_stat_busy_ns(text, len, 100), 0);
}
END_TEST

START_TEST(cycles_become_a_rate_when_there_was_time_enough)
{
	ck_assert_uint_eq(cycles_per_second(3000000000, NS_PER_S), 3000000000);
	ck_assert_uint_eq(cycles_per_second(300000000, 100 * NS_PER_MS), 3000000000);
	ck_assert_uint_eq(cycles_per_second(300000000, 99 * NS_PER_MS), 0);
	ck_assert_uint_eq(cycles_per_second(0, 0), 0);
	/* a year of a thousand CPUs */
	ck_assert_uint_eq(cycles_per_second(UINT64_MAX / 2, UINT64_MAX / 4), 2 * NS_PER_S);
}
END_TEST

/* ---- page faults ---- */

START_TEST(the_total_of_page_faults_is_read_from_proc_vmstat)
{
	static const char text[] = "nr_free_pages 7\npgfree 8\npgfault 1234567890123\npgmajfault 5\n";
	uint64_t total = 0;

	ck_assert(parse_vmstat_faults(text, strlen(text), &total));
	ck_assert_uint_eq(total, 1234567890123);
	total = 7;
	for (size_t len = 0; len < 47; len++)
		ck_assert(!parse_vmstat_faults(text, len, &total));
	ck_assert(!parse_vmstat_faults("pgfault", 7, &total));
	ck_assert(!parse_vmstat_faults("\npgfault \n", 10, &total));
	ck_assert(!parse_vmstat_faults("\npgfault x\n", 11, &total));
}
END_TEST

START_TEST(a_tenth_of_a_second_has_four_samples_whatever_that_is_in_faults)
{
	struct overload_sampling_options limits = fault_events_limits(1011); /* 99 Hz */

	ck_assert_uint_eq(limits.most, 4);
	ck_assert_uint_eq(limits.burst, 79);
	ck_assert_uint_gt(limits.slot_ns, 100 * NS_PER_MS);
	ck_assert_uint_lt(limits.slot_ns, 102 * NS_PER_MS);
	limits = fault_events_limits(101);
	ck_assert_uint_eq(limits.most, 40);
	ck_assert_uint_eq(limits.burst, 792);
	ck_assert_uint_lt(limits.slot_ns, 102 * NS_PER_MS);
	limits = fault_events_limits(100001); /* 1 Hz: a sample is more than a slot has */
	ck_assert_uint_eq(limits.most, 1);
	ck_assert_uint_eq(limits.burst, 1);
	ck_assert_uint_gt(limits.slot_ns, 2499 * NS_PER_MS);
}
END_TEST

/* ---- descriptors ---- */

START_TEST(a_quarter_of_the_descriptors_may_be_events)
{
	ck_assert_uint_eq(events_allowed(0), 0);
	ck_assert_uint_eq(events_allowed(1024), 256);
	ck_assert_uint_eq(events_allowed(16384), 4096);
	ck_assert_uint_eq(events_allowed(524288), 4096);
	ck_assert_uint_eq(events_allowed(UINT64_MAX), 4096);
}
END_TEST

START_TEST(samples_of_faults_have_a_period_that_is_put_in)
{
	struct perf_events_wanted wanted = { .kind = PERF_EVENTS_FAULTS, .frequency = 99 };

	ck_assert_uint_eq(perf_events_period(&wanted), 1011);
	wanted.frequency = 1000000;
	ck_assert_uint_eq(perf_events_period(&wanted), 1);
	ck_assert_uint_eq(perf_events_format(&wanted).sample_type & PERF_SAMPLE_PERIOD, 0);
	wanted.kind = PERF_EVENTS_CPU;
	ck_assert_uint_eq(perf_events_period(&wanted), 0);
	ck_assert_uint_eq(perf_events_format(&wanted).sample_type, PERF_RECORD_FRAME_POINTERS);
}
END_TEST

/* ---- cgroups ---- */

static const char *cgroup_of(const char *text)
{
	static char path[64];

	return parse_cgroup(text, strlen(text), path, sizeof(path)) ? path : NULL;
}

/* A timer that is not set cannot be written to, and is never readable. */
START_TEST(a_thread_that_cannot_be_woken_ends_nevertheless)
{
	static struct stack_recorder recorder;

	recorder.wake_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	ck_assert_int_ge(recorder.wake_fd, 0);
	pthread_mutex_init(&recorder.lock, NULL);
	ck_assert_int_eq(start_thread(&recorder), 0);
	stop_thread(&recorder);
	close(recorder.wake_fd);
}
END_TEST

START_TEST(a_process_has_one_cgroup_that_stands_for_it)
{
	ck_assert_str_eq(cgroup_of("0::/system.slice/a.service\n"), "/system.slice/a.service");
	ck_assert_str_eq(cgroup_of("0::/\n"), "/");
	/* hybrid: the cpu controller is where it is used */
	ck_assert_str_eq(cgroup_of("5:memory:/m\n4:cpu,cpuacct:/c\n0::/\n"), "/c");
	ck_assert_str_eq(cgroup_of("0::/\n4:cpuacct,cpu:/c\n"), "/c");
	ck_assert_str_eq(cgroup_of("4:cpu,cpuacct:/c\n0::/u\n"), "/u");
	/* v1 alone */
	ck_assert_str_eq(cgroup_of("4:cpu:/c\n1:name=systemd:/s\n"), "/c");
	ck_assert_ptr_null(cgroup_of("4:cpuset:/c\n3:cpuacct:/d\n1:name=systemd:/s\n"));
	ck_assert_ptr_null(cgroup_of(""));
	ck_assert_ptr_null(
		cgroup_of("0::/of-a-path-that-is-longer-than-the-room-that-there-is-for-it-here-and-so-on\n"));
}
END_TEST

Suite *stack_recorder_parts_suite(void)
{
	Suite *suite = suite_create("stack_recorder_parts");
	TCase *tcase = tcase_create("stack_recorder_parts");

	tcase_add_test(tcase, with_memory_enough_rings_hold_what_was_asked_for);
	tcase_add_test(tcase, what_is_asked_for_counts);
	tcase_add_test(tcase, stacks_give_way_first_then_chains_then_stacks_altogether);
	tcase_add_test(tcase, plans_become_smaller_until_there_is_none);
	tcase_add_test(tcase, busy_time_is_read_from_proc_stat);
	tcase_add_test(tcase, cycles_become_a_rate_when_there_was_time_enough);
	tcase_add_test(tcase, the_total_of_page_faults_is_read_from_proc_vmstat);
	tcase_add_test(tcase, a_tenth_of_a_second_has_four_samples_whatever_that_is_in_faults);
	tcase_add_test(tcase, a_quarter_of_the_descriptors_may_be_events);
	tcase_add_test(tcase, samples_of_faults_have_a_period_that_is_put_in);
	tcase_add_test(tcase, a_thread_that_cannot_be_woken_ends_nevertheless);
	tcase_add_test(tcase, a_process_has_one_cgroup_that_stands_for_it);
	suite_add_tcase(suite, tcase);
	return suite;
}
