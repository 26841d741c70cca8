/*
 * check_pidreuse.c: a pid that is used again within milliseconds, hundreds of times, by processes
 * of two names of which one works and the other does not; and the real daemon, by every way in
 * which it may hear of them. Nothing that one used may be ascribed to another, also where both
 * began in the same hundredth of a second, which is all that /proc says of when.
 *
 * clone3(2) gives a child the pid that is asked for, so no other pids are touched. They know
 * what they used.
 */
#include "live_rig.h"

#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

Suite *pidreuse_suite(void);

static struct live_rig rig;

static void setup(void)
{
	live_rig_setup(&rig);
}

static void teardown(void)
{
	live_rig_teardown(&rig);
}

#define ROUNDS 60u

/*
 * So long after an end the next process with that pid is looked at, and more: news come late and in
 * any order.
 */
#define APART_NS (120 * NS_PER_MS)

enum kind { BUSY, IDLE, KINDS };

/* What those of a kind used, ns. */
static struct {
	uint64_t least, most; /* as they said just before their end, and in all */
	uint64_t greatest;    /* of one */
	unsigned count;
} used[KINDS];

static char names[KINDS][16];
static _Atomic uint64_t *said; /* by the last one */
static pid_t reused;

static uint64_t cpu_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);

	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void work(enum kind kind, uint64_t for_ns)
{
	uint64_t before_ns = cpu_ns();
	struct timespec rest = { .tv_nsec = (long)for_ns };

	while (kind == BUSY && cpu_ns() - before_ns < for_ns)
		continue;
	if (kind == IDLE)
		nanosleep(&rest, NULL);
	*said = cpu_ns();
}

/* Stops: after that time, and again after as much. */
static void live(enum kind kind, uint64_t for_ns, bool stops)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, names[kind]);
	for (int i = 0; i < (stops ? 2 : 1); i++) {
		work(kind, for_ns);
		if (stops)
			raise(SIGSTOP);
	}
	_exit(0);
}

/* A child with that pid; -EEXIST: it is in use; -EPERM: it is not allowed. */
static pid_t fork_as(pid_t pid)
{
	struct clone_args arguments = { .exit_signal = SIGCHLD,
					.set_tid = (uint64_t)(uintptr_t)&pid,
					.set_tid_size = 1 };
	long r = syscall(SYS_clone3, &arguments, sizeof(arguments));

	return r < 0 ? -errno : (pid_t)r;
}

/*
 * A pid that is not in use and will not be soon: they go upwards. 0: they may not be chosen
 * here.
 */
static pid_t choose(void)
{
	char *text = scene_read("/proc/sys/kernel/pid_max");
	pid_t most = (pid_t)strtol(text, NULL, 10), got = -EEXIST;

	free(text);
	for (pid_t pid = getpid() > most / 2 ? most / 4 : most - 1; got == -EEXIST && pid > 1000; pid--) {
		got = fork_as(pid);
		if (got == 0)
			_exit(0);
	}
	if (got > 0)
		ck_assert_int_eq(waitpid(got, NULL, 0), got);

	return got > 0 ? got : 0;
}

static void begin(enum kind kind, uint64_t for_ns, bool stops)
{
	pid_t pid = -EEXIST;

	for (int naps = 0; pid == -EEXIST && naps < SCENE_NAPS; naps++) {
		pid = fork_as(reused);
		if (pid == 0)
			live(kind, for_ns, stops);
		if (pid == -EEXIST)
			scene_nap();
	}
	ck_assert_int_eq(pid, reused);
}

/* A process runs on for a moment when it was waited for: the scheduler counts that, rusage does not. */
#define AFTERWARDS_NS (50 * NS_PER_US)

static void end(enum kind kind)
{
	struct rusage usage;
	uint64_t in_all;

	ck_assert_int_eq(wait4(reused, NULL, 0, &usage), reused);
	in_all = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * NS_PER_S +
		 (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * NS_PER_US + AFTERWARDS_NS;
	used[kind].least += *said;
	used[kind].most += in_all;
	used[kind].greatest = in_all > used[kind].greatest ? in_all : used[kind].greatest;
	used[kind].count++;
}

/* One life, from beginning to end. */
static void use(enum kind kind, uint64_t for_ns)
{
	begin(kind, for_ns, false);
	end(kind);
}

static void keep_apart(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = (long)APART_NS }, NULL);
}

static bool start_with(enum way way, const char *per)
{
	char targets[256];

	memset(used, 0, sizeof(used));
	said = mmap(NULL, sizeof(*said), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(said, MAP_FAILED);
	snprintf(names[BUSY], sizeof(names[0]), "%s", own("busy"));
	snprintf(names[IDLE], sizeof(names[0]), "%s", own("idle"));
	snprintf(targets, sizeof(targets),
		 "{\"name\": \"b\", \"comm\": \"%s\", \"per\": \"%s\"}, {\"name\": \"i\", \"comm\": \"%s\", \"per\": "
		 "\"%s\"}",
		 names[BUSY], per, names[IDLE], per);
	if (!start(&rig, way, targets, ""))
		return false;
	reused = choose();

	return reused != 0 || skip_because("pids may not be chosen here");
}

/*
 * Some are too short to be looked at, some are looked at and sampled; one follows the other at
 * once.
 */
static void take_turns(void)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		if (i % 10 == 0)
			keep_apart();
		use(i % 2 == 0 ? BUSY : IDLE, (1 + i % 7 + (i % 16 == 0 ? 12 : 0)) * NS_PER_MS);
	}
}

/* What the sampler knew of a group when its last member had left is in the ring. */
static void await_ticks(const char *name)
{
	uint64_t ticks = told(&rig, "ring", "ticks");

	live_wait_for(&rig, told(&rig, "ring", "ticks") > ticks + 2);
	read_on(&rig, name);
}

static void reload(void)
{
	const char *arguments[] = { rig.spikewatch, "reload", "--socket", place(&rig, "control"), NULL };

	ck_assert_int_eq(program_run(arguments, place(&rig, "asked")), 0);
}

/* Of sums from files; the kernel's have none. */
static uint64_t surplus_ns(uint64_t used_ns)
{
	return hears_by(&rig, "kernel") ? 0 : used_ns / 100 + live_surplus_ns(used_ns);
}

static void is_no_more_than_was_used(const char *name, enum kind kind)
{
	uint64_t cpu = read_on(&rig, name).cpu_ns;

	ck_assert_msg(cpu <= used[kind].most + surplus_ns(used[kind].most),
		      "%ju us are in the sum of %s, whose processes used %ju", (uintmax_t)cpu / 1000, names[kind],
		      (uintmax_t)used[kind].most / 1000);
}

/* Of one that is sampled when a scan begins the last milliseconds may be missing. */
static bool has_nearly_all(const char *name, enum kind kind)
{
	return read_on(&rig, name).cpu_ns >= used[kind].least / 10 * 9;
}

START_TEST(a_group_has_nothing_of_what_others_used_with_the_same_pid)
{
	if (!start_with((enum way)_i, "group"))
		SKIP_TEST("%s", skip_why());
	take_turns();
	live_wait_for(&rig, counted(&rig, "members") == 0);
	if (_i == CONNECTOR && discovery_says(&rig, "\"exit_records\": true"))
		live_wait_for(&rig,
			      has_nearly_all("b", BUSY) || counted(&rig, "overruns") + counted(&rig, "storms") > 0);
	await_ticks("b");
	is_no_more_than_was_used("b", BUSY);
	is_no_more_than_was_used("i", IDLE);
	ck_assert(!read_on(&rig, "b").stepped_back);
	ck_assert(!read_on(&rig, "i").stepped_back);
}
END_TEST

/*
 * The run in which a process ends is counted by the clock while it goes on, with interrupts and what the
 * host takes in it (docs/limits.md). Busy ones use more than that.
 */
static uint64_t in_a_run_ns(enum way way)
{
	return way == KERNEL ? NS_PER_MS / 2 : 12 * NS_PER_MS; /* its record may be this old */
}

START_TEST(each_process_is_a_target_of_its_own_with_what_it_used)
{
	uint64_t sums[KINDS] = { 0 };
	unsigned counts[KINDS] = { 0 };

	if (!start_with((enum way)_i, "process"))
		SKIP_TEST("%s", skip_why());
	take_turns();
	live_wait_for(&rig, counted(&rig, "targets") == 0);
	read_on(&rig, "");
	for (size_t i = 0; i < rig.tally_count; i++) {
		enum kind kind = rig.tallies[i].name[0] == 'b' ? BUSY : IDLE;

		ck_assert(!rig.tallies[i].stepped_back);
		ck_assert_msg(rig.tallies[i].cpu_ns <= used[kind].greatest + in_a_run_ns((enum way)_i),
			      "%s has %ju us, none used more than %ju", rig.tallies[i].name,
			      (uintmax_t)rig.tallies[i].cpu_ns / 1000, (uintmax_t)used[kind].greatest / 1000);
		sums[kind] += rig.tallies[i].cpu_ns;
		counts[kind]++;
	}
	for (int kind = 0; kind < KINDS; kind++) {
		ck_assert_uint_le(counts[kind], used[kind].count);
		ck_assert_uint_le(sums[kind], used[kind].most + surplus_ns(used[kind].most));
	}
}
END_TEST

/* A whole scan after this, whatever was heard before. */
static void scan_again(void)
{
	uint64_t scans = counted(&rig, "scans");

	reload();
	live_wait_for(&rig, counted(&rig, "scans") > scans);
}

#define WORK_NS (200 * NS_PER_MS)

/*
 * The news of the end come when another one has the pid, and has used much more. Then the first one
 * leaves, and the next one, whose beginning is taken for late news of the one that ended, is found
 * by a scan; or the kernel had no room for all of the news, and a scan has followed at once.
 */
START_TEST(what_the_next_one_uses_is_not_taken_for_what_the_last_one_used)
{
	if (!start_with((enum way)_i, "group"))
		SKIP_TEST("%s", skip_why());
	keep_apart();
	begin(IDLE, 0, true);
	await_stop(reused);
	scan_again(); /* where news come late it was taken for late news of the previous process of that pid */
	live_wait_for(&rig, counted(&rig, "members") == 1);
	live_wait_for(&rig, read_on(&rig, "i").samples > 0);
	kill(rig.server.pid, SIGSTOP);
	await_stop(rig.server.pid);
	kill(reused, SIGKILL);
	end(IDLE);
	begin(BUSY, WORK_NS, true);
	await_stop(reused);
	kill(rig.server.pid, SIGCONT);
	for (int naps = 0; naps < 20 && counted(&rig, "members") > 0; naps++)
		live_nap();
	scan_again();
	live_wait_for(&rig, counted(&rig, "members") == 1);
	await_ticks("b");
	kill(reused, SIGCONT);
	await_stop(reused);
	live_wait_for(&rig, read_on(&rig, "b").cpu_ns > 0); /* so it was this one */
	kill(reused, SIGKILL);
	end(BUSY);
	live_wait_for(&rig, counted(&rig, "members") == 0);
	await_ticks("b");
	is_no_more_than_was_used("i", IDLE);
	is_no_more_than_was_used("b", BUSY);
}
END_TEST

/* Works under one name and ends under another, between two moments of the daemon. */
static void work_and_change_the_name(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, names[BUSY]);
	raise(SIGSTOP);
	while (cpu_ns() < 50 * NS_PER_MS)
		continue;
	prctl(PR_SET_NAME, names[IDLE]);
	_exit(0);
}

START_TEST(who_changes_its_name_before_it_ends_is_not_another)
{
	if (!start_with(CONNECTOR, "group") || !discovery_says(&rig, "\"exit_records\": true"))
		SKIP_TEST("%s", skip_why());

	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		work_and_change_the_name();
	await_stop(pid);
	live_wait_for(&rig, counted(&rig, "members") == 1);
	live_wait_for(&rig, read_on(&rig, "b").samples > 0);

	/*
	 * A scan follows where news were lost, or could not be heard in time: what it finds at its
	 * end is what was sampled last. Exit records come by a way of their own: where thousands of
	 * other processes' news wait, they may be heard before the change of the name. What it used
	 * is then that of the last process of that name, but it is not lost.
	 */
	uint64_t scans = counted(&rig, "scans"), missed = counted(&rig, "missed");

	kill(rig.server.pid, SIGSTOP);
	await_stop(rig.server.pid);
	kill(pid, SIGCONT);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	kill(rig.server.pid, SIGCONT);
	live_wait_for(&rig, counted(&rig, "members") == 0);
	live_wait_for(&rig,
		      read_on(&rig, "b").cpu_ns >= 40 * NS_PER_MS || counted(&rig, "scans") > scans ||
			      (counted(&rig, "missed") > missed + 100 && read_on(&rig, "i").cpu_ns >= 40 * NS_PER_MS));
}
END_TEST

Suite *pidreuse_suite(void)
{
	Suite *suite = suite_create("pidreuse");
	TCase *turns = tcase_create("turns"), *late = tcase_create("late");

	tcase_add_checked_fixture(turns, setup, teardown);
	tcase_add_loop_test(turns, a_group_has_nothing_of_what_others_used_with_the_same_pid, 0, WAYS);
	tcase_add_loop_test(turns, each_process_is_a_target_of_its_own_with_what_it_used, 0, WAYS);
	suite_add_tcase(suite, turns);
	tcase_add_checked_fixture(late, setup, teardown);
	tcase_add_loop_test(late, what_the_next_one_uses_is_not_taken_for_what_the_last_one_used, 0, WAYS);
	tcase_add_test(late, who_changes_its_name_before_it_ends_is_not_another);
	suite_add_tcase(suite, late);

	return suite;
}
