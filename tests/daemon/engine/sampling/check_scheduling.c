/*
 * check_scheduling.c: real-time priority where it is allowed, the reason where it is not, and the
 * watch over it: as the kernel says, for the thread of the test.
 */
#include "daemon/engine/sampling/scheduling.c"

#include "own_cgroups.h"
#include "skip.h"

#include <check.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

Suite *scheduling_suite(void);

static struct own_cgroups own_cgroups;

#define BEGIN (100 * NS_PER_S)

static struct scheduling tested;

static mono_t after(uint64_t seconds)
{
	return (mono_t){ BEGIN + seconds * NS_PER_S };
}

static void stop(void)
{
	scheduling_end(&tested);
}

/* False: this machine does not let it have the priority. */
static bool starts_real_time(void)
{
	scheduling_start(&tested, CONFIG_SCHEDULING_AUTO, after(0));
	return scheduling_class_of(&tested) == SCHEDULING_REAL_TIME ||
	       skip_because("no real-time priority here: %s", scheduling_reason_text(scheduling_reason_of(&tested)));
}

/* What the kernel says must be what the module says. */
static void assert_state(enum scheduling_class class, enum scheduling_reason reason)
{
	struct sched_param param;

	ck_assert_str_eq(scheduling_class_name(scheduling_class_of(&tested)), scheduling_class_name(class));
	ck_assert_int_eq(scheduling_reason_of(&tested), reason);
	ck_assert_int_eq(sched_getscheduler(0) & ~SCHED_RESET_ON_FORK,
			 class == SCHEDULING_REAL_TIME ? SCHED_FIFO : SCHED_OTHER);
	ck_assert_int_eq(sched_getparam(0, &param), 0);
	ck_assert_int_eq(param.sched_priority, class == SCHEDULING_REAL_TIME);
}

/* A normal thread: with a short slice, if this kernel has it. */
static void assert_normal(enum scheduling_reason reason)
{
	struct attributes found = { 0 };

	ck_assert_int_eq(syscall(SYS_sched_getattr, 0, &found, (unsigned)sizeof found, 0), 0);
	assert_state(found.runtime == SLICE_SHORT_NS ? SCHEDULING_SHORT_SLICE : SCHEDULING_NORMAL, reason);
}

static rlim_t run_limit(void)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_RTTIME, &limit), 0);
	return limit.rlim_cur;
}

/* No CAP_SYS_NICE from here on, and RLIMIT_RTPRIO of so much. */
static bool give_up_privileges(rlim_t priority)
{
	struct rlimit limit = { priority, priority };

	if (geteuid() != 0 || setrlimit(RLIMIT_RTPRIO, &limit) < 0)
		return skip_because("only root with CAP_SYS_RESOURCE can set the limit and give up the privilege");

	ck_assert_int_eq(setuid(65534), 0);
	return true;
}

START_TEST(a_sampler_has_real_time_priority_and_its_children_have_not)
{
	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	ck_assert_uint_eq(run_limit(), SCHEDULING_RUN_MAX_NS / NS_PER_US);

	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(sched_getscheduler(0));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), SCHED_OTHER);
}
END_TEST

START_TEST(it_has_none_if_the_configuration_does_not_want_it)
{
	scheduling_start(&tested, CONFIG_SCHEDULING_NORMAL, after(0));
	assert_normal(SCHEDULING_CONFIGURED);
	scheduling_change(&tested, CONFIG_SCHEDULING_AUTO, after(1));
	ck_assert_int_ne(scheduling_reason_of(&tested), SCHEDULING_CONFIGURED);
	scheduling_change(&tested, CONFIG_SCHEDULING_NORMAL, after(2));
	assert_normal(SCHEDULING_CONFIGURED);
}
END_TEST

START_TEST(without_the_privilege_it_says_what_it_takes)
{
	if (!give_up_privileges(0))
		SKIP_TEST("%s", skip_reason);

	scheduling_start(&tested, CONFIG_SCHEDULING_AUTO, after(0));
	assert_normal(SCHEDULING_UNPRIVILEGED);
	ck_assert_ptr_ne(strstr(scheduling_reason_text(SCHEDULING_UNPRIVILEGED), "LimitRTPRIO=1"), NULL);
}
END_TEST

/* As in the service. */
START_TEST(the_limit_of_priority_alone_is_enough_to_have_it_and_to_go_back)
{
	if (!give_up_privileges(1) || !starts_real_time())
		SKIP_TEST("%s", skip_reason);
	for (unsigned i = 0; i < 3; i++) {
		assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
		scheduling_change(&tested, CONFIG_SCHEDULING_NORMAL, after(i));
		assert_normal(SCHEDULING_CONFIGURED);
		scheduling_change(&tested, CONFIG_SCHEDULING_AUTO, after(i));
	}
	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
}
END_TEST

static void make_cgroups(void)
{
	own_cgroups_make(&own_cgroups, "scheduling");
}

static void remove_own(void)
{
	own_cgroups_remove(&own_cgroups);
}

START_TEST(a_cgroup_without_real_time_run_time_is_named)
{
	struct cgroup_mounts *mounts;
	bool v2 = true;
	char path[600];

	ck_assert_int_eq(cgroup_mounts_new("/proc", "", &mounts), 0);

	const char *dir = cgroup_mounts_controller(mounts, CGROUP_CPU, &v2);

	snprintf(path, sizeof path, "%s%s/cpu.rt_runtime_us", dir ? dir : "", own_cgroups.name);
	cgroup_mounts_free(mounts);
	if (!dir || v2 || own_cgroups.count == 0 || access(path, R_OK) < 0)
		SKIP_TEST("no cgroup v1 with cpu.rt_runtime_us here");

	ck_assert_int_eq(own_cgroups_add(&own_cgroups, "none"), 0);
	own_cgroups_join(&own_cgroups, "none", getpid());
	scheduling_start(&tested, CONFIG_SCHEDULING_AUTO, after(0));
	assert_normal(SCHEDULING_REFUSED);
}
END_TEST

/* ---- the watch ---- */

START_TEST(a_run_without_a_sleep_ends_the_priority_and_not_the_process)
{
	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	time_t limit = time(NULL) + 60;

	while (scheduling_class_of(&tested) == SCHEDULING_REAL_TIME && time(NULL) < limit)
		continue;
	assert_normal(SCHEDULING_ENDLESS);

	/* It gets it back, with the whole limit, when the time is over. */
	scheduling_look(&tested, after(1), 0, 0.1);
	scheduling_look(&tested, after(60), 0, 0.1);
	assert_normal(SCHEDULING_ENDLESS);
	scheduling_look(&tested, after(61), 0, 0.1);
	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	ck_assert_uint_eq(run_limit(), SCHEDULING_RUN_MAX_NS / NS_PER_US);
}
END_TEST

/* Seconds of so much CPU, in percent. */
static void run_seconds(uint64_t *second, uint64_t seconds, uint64_t percent)
{
	for (uint64_t i = 0; i < seconds; i++) {
		++*second;
		scheduling_look(&tested, after(*second), tested.cpu_ns + percent * NS_PER_S / 100, 0.1);
	}
}

START_TEST(a_thread_that_exceeds_its_budget_loses_it_for_longer_each_time)
{
	uint64_t second = 0;

	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	/* The CPU budget needs two periods to make the interval longer. */
	for (unsigned i = 0; i < 10; i++) {
		run_seconds(&second, SCHEDULING_PERIODS - 1, 11);
		run_seconds(&second, 1, 10);
	}
	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	for (uint64_t pause = 60; pause <= 240; pause *= 2) {
		run_seconds(&second, SCHEDULING_PERIODS, 11);
		assert_normal(SCHEDULING_COSTLY);
		run_seconds(&second, pause - 1, 1);
		assert_normal(SCHEDULING_COSTLY);
		run_seconds(&second, 1, 6); /* too much for its return */
		assert_normal(SCHEDULING_COSTLY);
		run_seconds(&second, 1, 5);
		assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	}
}
END_TEST

START_TEST(without_a_budget_half_a_core_is_the_limit)
{
	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	for (uint64_t i = 1; i <= 10; i++)
		scheduling_look(&tested, after(i), i * NS_PER_S / 2, 0);
	assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
	for (uint64_t i = 11; i <= 13; i++)
		scheduling_look(&tested, after(i), i * NS_PER_S, 16);
	assert_normal(SCHEDULING_COSTLY);
}
END_TEST

/* In the place of the kernel's. */
static void say_run_delay(uint64_t ns)
{
	char text[64];
	int len = snprintf(text, sizeof text, "5 %llu 1\n", (unsigned long long)ns);

	ck_assert_int_eq(ftruncate(tested.schedstat, 0), 0);
	ck_assert_int_eq(pwrite(tested.schedstat, text, (size_t)len, 0), len);
}

START_TEST(priority_that_does_not_help_is_given_up)
{
	if (!starts_real_time())
		SKIP_TEST("%s", skip_reason);

	close(tested.schedstat);
	tested.schedstat = memfd_create("schedstat", MFD_CLOEXEC);
	ck_assert_int_ge(tested.schedstat, 0);
	for (uint64_t i = 1; i <= SCHEDULING_PERIODS; i++) {
		assert_state(SCHEDULING_REAL_TIME, SCHEDULING_NO_REASON);
		say_run_delay(i * 6 * NS_PER_S / 10);
		ck_assert_uint_eq(scheduling_run_delay(&tested), i * 6 * NS_PER_S / 10);
		scheduling_look(&tested, after(i), 0, 0.1);
	}
	assert_normal(SCHEDULING_HELD);
}
END_TEST

/* RLIMIT_CPU, which is the user's, sends the same signal. */
START_TEST(a_limit_of_cpu_time_ends_the_process_as_ever)
{
	scheduling_start(&tested, CONFIG_SCHEDULING_NORMAL, after(0));
	raise(SIGXCPU);
	ck_abort_msg("still there");
}
END_TEST

Suite *scheduling_suite(void)
{
	Suite *suite = suite_create("scheduling");
	TCase *tcase = tcase_create("class");

	tcase_add_checked_fixture(tcase, NULL, stop);
	tcase_add_unchecked_fixture(tcase, make_cgroups, remove_own);
	tcase_add_test(tcase, a_sampler_has_real_time_priority_and_its_children_have_not);
	tcase_add_test(tcase, it_has_none_if_the_configuration_does_not_want_it);
	tcase_add_test(tcase, without_the_privilege_it_says_what_it_takes);
	tcase_add_test(tcase, the_limit_of_priority_alone_is_enough_to_have_it_and_to_go_back);
	tcase_add_test(tcase, a_cgroup_without_real_time_run_time_is_named);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("watch");
	tcase_add_checked_fixture(tcase, NULL, stop);
	tcase_set_timeout(tcase, 90);
	tcase_add_test(tcase, a_run_without_a_sleep_ends_the_priority_and_not_the_process);
	tcase_add_test(tcase, a_thread_that_exceeds_its_budget_loses_it_for_longer_each_time);
	tcase_add_test(tcase, without_a_budget_half_a_core_is_the_limit);
	tcase_add_test(tcase, priority_that_does_not_help_is_given_up);
	tcase_add_test_raise_signal(tcase, a_limit_of_cpu_time_ends_the_process_as_ever, SIGXCPU);
	suite_add_tcase(suite, tcase);

	return suite;
}
