/*
 * check_arrival.c: processes that come, turn into something else and go, the real daemon, and what
 * its ring says of them. They know what they used (workload_arrival.c). Each by every way in which
 * the daemon may hear of processes and that this machine has.
 *
 * Nothing is held against a clock: what has to be seen stands still until it was, and what is
 * summed up is waited for.
 */
#include "live_rig.h"

#include <glob.h>

Suite *arrival_suite(void);

static struct live_rig rig;

static void setup(void)
{
	live_rig_setup(&rig);
}

static void teardown(void)
{
	live_rig_teardown(&rig);
}

/* All that they said: how many they were, and their CPU time. */
static uint64_t said_ns(size_t *ret_count, uint64_t *ret_longest)
{
	int fd = open(rig.file, O_RDONLY | O_CLOEXEC);
	uint64_t words[2], sum = 0;

	*ret_count = 0;
	*ret_longest = 0;
	while (fd >= 0 && read(fd, words, sizeof(words)) == sizeof(words)) {
		sum += words[1];
		*ret_longest = words[1] > *ret_longest ? words[1] : *ret_longest;
		*ret_count += 1;
	}
	if (fd >= 0)
		close(fd);

	return sum;
}

/* ---- one ---- */

START_TEST(a_process_that_executed_is_described_sampled_and_its_end_is_told)
{
	const char *name = own("one"), *program = program_called(&rig, name);
	const char *arguments[] = { program, "stops", rig.file, NULL };
	char targets[128], target[48];
	pid_t pid;

	snprintf(targets, sizeof(targets), "{\"name\": \"e\", \"comm\": \"%s\"}", name);
	if (!start(&rig, (enum way)_i, targets, ""))
		SKIP_TEST("%s", skip_why());
	pid = run(arguments);
	await_stop(pid);
	snprintf(target, sizeof(target), "e/%d", pid);
	live_wait_for(&rig, read_on(&rig, target).samples > 0);
	ck_assert_uint_eq(read_on(&rig, target).gone, 0);
	ck_assert_uint_gt(read_on(&rig, target).cpu_ns, 0);
	ck_assert_uint_le(read_on(&rig, target).cpu_ns, cpu_of(pid));
	kill(pid, SIGCONT);
	await_end(pid);
	live_wait_for(&rig, read_on(&rig, target).gone == 1);
	ck_assert_uint_eq(read_on(&rig, target).described, 1);
	if (_i != RESCAN && counted(&rig, "overruns") == 0 && counted(&rig, "storms") == 0)
		ck_assert_uint_eq(counted(&rig, "scans"), 2);
}
END_TEST

#define LIVES 20
#define LIFE_NS (30 * NS_PER_MS)

/* With both hands of the machine full. */
START_TEST(a_process_of_30_ms_is_seen_with_what_it_used)
{
	const char *name = own("short"), *program = program_called(&rig, name);
	const char *arguments[] = { program, "burn", "30000", rig.file, NULL };
	const char *load[] = { rig.workload, "burn", "100000000", rig.file, NULL };
	char targets[128];
	unsigned seen = 0;
	pid_t loads[2];

	snprintf(targets, sizeof(targets), "{\"name\": \"e\", \"comm\": \"%s\"}", name);
	if (!start(&rig, (enum way)_i, targets, ""))
		SKIP_TEST("%s", skip_why());
	for (int i = 0; i < 2; i++)
		loads[i] = run(load);
	for (int i = 0; i < LIVES; i++) {
		pid_t pid = run(arguments);
		struct tally tally;
		char target[48];

		await_end(pid);
		snprintf(target, sizeof(target), "e/%d", pid);
		for (int naps = 0; naps < 100 && read_on(&rig, target).gone == 0; naps++)
			scene_nap();
		tally = read_on(&rig, target);
		ck_assert(!tally.stepped_back);
		ck_assert_uint_le(tally.cpu_ns, 2 * LIFE_NS);
		seen += tally.samples > 0 && tally.cpu_ns >= LIFE_NS / 3;
	}
	for (int i = 0; i < 2; i++) {
		kill(loads[i], SIGKILL);
		await_end(loads[i]);
	}
	ck_assert_msg(seen > LIVES / 2, "of %d were seen %u", LIVES, seen);
}
END_TEST

/* ---- a group of many that are too short to be seen ---- */

#define MANY 200
/*
 * What the sum may lack. A member that is met more than 20 ms after its fork was heard counts from
 * then on, not from its beginning: what it had used by then, of its 3 ms, is in no sum. On a quiet
 * machine that is none or one of them (1 ms), where twenty wait for two CPUs it was twenty of 200
 * (11 ms).
 */
#define GRAIN_NS (MANY * SHORT_NS / 20)

#define SHORT_US "3000"
#define SHORT_NS (3 * NS_PER_MS)

/*
 * What waited-for times do not show: two clock ticks, and two more if it could not be proven that the
 * parent had waited for nothing before; and how exact a sum of microseconds is.
 */
#define NOT_SHOWN_NS (40 * NS_PER_MS)
#define ROUNDED_NS (200 * NS_PER_US)

/*
 * What may be in a sum beyond what was waited for: of the scheduler's sums, what children ran after
 * that.
 */
static uint64_t beyond_ns(enum way by, uint64_t used_ns)
{
	if (by == KERNEL && !went_over_to_files(&rig))
		return used_ns / 100 + ROUNDED_NS;
	return ROUNDED_NS + live_surplus_ns(used_ns);
}

/* A storm of such processes; what they used to their very end, and in *ret_least what they said. */
static uint64_t storm(const char *program, const char *count, const char *us, uint64_t *ret_least)
{
	const char *arguments[] = { rig.workload, "storm", count, us, rig.file, program, NULL };
	struct program storming;
	unsigned long long used;
	uint64_t longest;
	unsigned long done;
	size_t spoke;
	const char *apart = place(&rig, "storming");
	int out = open(place(&rig, "storm"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	mkdir(apart, 0755);
	unlink(rig.file);
	storming = program_start(arguments, apart, out, 0);
	close(out);
	ck_assert_int_eq(program_wait(&storming), 0);

	char *text = scene_read(place(&rig, "storm"));

	ck_assert_int_eq(sscanf(text, "%lu %llu", &done, &used), 2);
	free(text);
	*ret_least = said_ns(&spoke, &longest);
	ck_assert_uint_eq(done, strtoul(count, NULL, 10));
	ck_assert_uint_eq(spoke, done);

	return used;
}

/*
 * Whether anything of a storm was lost, which is counted: then less is known of it. Processes that
 * came and went unseen left a record.
 */
static bool something_was_lost(void)
{
	return counted(&rig, "overruns") > 0 || went_over_to_files(&rig);
}

START_TEST(the_sum_of_a_group_is_what_its_short_processes_used)
{
	const char *name = own("many"), *program = program_called(&rig, name);
	uint64_t least, most;
	char targets[128];
	bool lost;

	snprintf(targets, sizeof(targets), "{\"name\": \"g\", \"comm\": \"%s\", \"per\": \"group\"}", name);
	if (!start(&rig, (enum way)_i, targets, "") || !discovery_says(&rig, "\"exit_records\": true"))
		SKIP_TEST("%s", skip_why());
	most = storm(program, "200", SHORT_US, &least);
	ck_assert_uint_ge(least, MANY * SHORT_NS);
	for (int naps = 0; naps < 1000 && read_on(&rig, "g").cpu_ns < least; naps++)
		scene_nap();
	lost = something_was_lost();
	ck_assert_msg(lost || read_on(&rig, "g").cpu_ns + GRAIN_NS >= least, "%ju of %ju us are in the sum",
		      (uintmax_t)read_on(&rig, "g").cpu_ns / 1000, (uintmax_t)least / 1000);
	ck_assert_msg(read_on(&rig, "g").cpu_ns <= most + beyond_ns((enum way)_i, most),
		      "%ju of at most %ju us are in the sum", (uintmax_t)read_on(&rig, "g").cpu_ns / 1000,
		      (uintmax_t)most / 1000);
	ck_assert(!read_on(&rig, "g").stepped_back);
}
END_TEST

/*
 * By scans alone, and so without exit records, as any user has it: of a member that was found nothing
 * is lacking that its samples show, and what is too short to be found is in no sum.
 */
START_TEST(without_exit_records_a_group_has_what_its_members_were_seen_to_use_and_never_more)
{
	const char *name = own("many"), *program = program_called(&rig, name);
	const char *arguments[] = { program, "rests", "40000", rig.file, NULL };
	uint64_t from, seen, least, all;
	char targets[128];
	pid_t pid;

	snprintf(targets, sizeof(targets), "{\"name\": \"g\", \"comm\": \"%s\", \"per\": \"group\"}", name);
	if (!start(&rig, RESCAN, targets, ""))
		SKIP_TEST("%s", skip_why());
	pid = run(arguments);
	await_stop(pid);
	live_wait_for(&rig, counted(&rig, "members") == 1);
	live_wait_for(&rig, read_on(&rig, "g").samples > 0);
	from = cpu_of(pid);
	kill(pid, SIGCONT);
	await_stop(pid);
	seen = cpu_of(pid) - from;
	live_wait_for(&rig, read_on(&rig, "g").cpu_ns >= seen);
	all = cpu_of(pid) + storm(program, "200", SHORT_US, &least);
	ck_assert_uint_ge(read_on(&rig, "g").cpu_ns, seen);
	kill(pid, SIGKILL);
	await_end(pid);
	live_wait_for(&rig, counted(&rig, "members") == 0);
	ck_assert_uint_ge(read_on(&rig, "g").cpu_ns, seen);
	ck_assert_uint_le(read_on(&rig, "g").cpu_ns, all + NS_PER_MS);
}
END_TEST

/* Children that end; what all of them have used is known when it has ended. */
static struct program start_spins(const char *const *arguments)
{
	int out = open(place(&rig, "storm"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	mkdir(place(&rig, "storming"), 0755);

	struct program spinning = program_start(arguments, place(&rig, "storming"), out, 0);

	close(out);

	return spinning;
}

/* As waited for, ns. */
static unsigned long long used_by_spins(void)
{
	char *text = scene_read(place(&rig, "storm"));
	unsigned long long used;
	unsigned long done;

	ck_assert_int_eq(sscanf(text, "%lu %llu", &done, &used), 2);
	free(text);

	return used;
}

/* Children that execute nothing and never read their own clock, for two seconds; beside so many others that spin. */
static const struct {
	const char *count, *us;
	unsigned loads;
} spinners[] = {
	{ "4000", "300", 0 }, { "1250", "1500", 0 }, { "400", "5000", 0 },
	{ "4000", "300", 3 }, { "1250", "1500", 3 }, { "400", "5000", 3 },
};

#define LOADS_MAX 3

START_TEST(the_sum_of_a_group_is_exact_to_a_hundredth_for_children_that_never_read_their_clock)
{
	const char *name = own("spin"), *program = program_called(&rig, name);
	const char *count = spinners[_i / PERF].count, *us = spinners[_i / PERF].us;
	const char *arguments[] = { program, "spins", count, us, NULL };
	const enum way by = (enum way)(_i % PERF);
	const char *load[] = { rig.workload, "burn", "1000000000", rig.file, NULL };
	unsigned loads = spinners[_i / PERF].loads;
	unsigned long long used, least, most;
	pid_t loading[LOADS_MAX];
	struct program spinning;
	char targets[128];

	snprintf(targets, sizeof(targets), "{\"name\": \"g\", \"comm\": \"%s\", \"per\": \"group\"}", name);
	if (!start(&rig, by, targets, "") || !discovery_says(&rig, "\"exit_records\": true"))
		SKIP_TEST("%s", skip_why());
	for (unsigned i = 0; i < loads; i++)
		loading[i] = run(load);
	spinning = start_spins(arguments);
	ck_assert_int_eq(program_wait(&spinning), 0);
	for (unsigned i = 0; i < loads; i++) {
		kill(loading[i], SIGKILL);
		await_end(loading[i]);
	}
	used = used_by_spins();
	/* Members that are met late (see GRAIN_NS): other suites, too, may keep the daemon from a CPU. */
	least = used - (by == KERNEL ? ROUNDED_NS + used / 100 : NOT_SHOWN_NS);
	if (by != KERNEL && (loads || live_is_busy()))
		least -= used / 16;
	most = used + beyond_ns(by, used);
	for (int naps = 0; naps < 500 && read_on(&rig, "g").cpu_ns < least; naps++)
		scene_nap();
	if (something_was_lost())
		SKIP_TEST("events of processes were lost on a busy machine");
	ck_assert_msg(read_on(&rig, "g").cpu_ns >= least && read_on(&rig, "g").cpu_ns <= most,
		      "%ju of %llu us are in the sum", (uintmax_t)read_on(&rig, "g").cpu_ns / 1000, used / 1000);
	ck_assert(!read_on(&rig, "g").stepped_back);
}
END_TEST

/*
 * A third of a second in which it reads nothing, and the parent waits for its children: what their records lack is
 * missing, and not what they say. The parent goes on, so that its times are read afterwards.
 */
START_TEST(children_that_end_while_the_daemon_is_stopped_do_not_count_twice)
{
	const char *name = own("spin"), *program = program_called(&rig, name);
	const char *arguments[] = { program, "spins", "300", "5000", NULL };
	unsigned long long used;
	struct program spinning;
	char targets[128];
	uint64_t most;

	snprintf(targets, sizeof(targets), "{\"name\": \"g\", \"comm\": \"%s\", \"per\": \"group\"}", name);
	if (!start(&rig, CONNECTOR, targets, "") || !discovery_says(&rig, "\"exit_records\": true"))
		SKIP_TEST("%s", skip_why());
	spinning = start_spins(arguments);
	live_wait_for(&rig, read_on(&rig, "g").cpu_ns >= 100 * NS_PER_MS);
	kill(rig.server.pid, SIGSTOP);
	nanosleep(&(struct timespec){ .tv_nsec = 300 * NS_PER_MS }, NULL);
	kill(rig.server.pid, SIGCONT);
	ck_assert_int_eq(program_wait(&spinning), 0);
	used = used_by_spins();
	most = used + beyond_ns(CONNECTOR, used);
	for (int naps = 0; naps < 500 && read_on(&rig, "g").cpu_ns + NOT_SHOWN_NS < used; naps++)
		scene_nap();
	ck_assert_msg(read_on(&rig, "g").cpu_ns <= most, "%ju of %llu us are in the sum",
		      (uintmax_t)read_on(&rig, "g").cpu_ns / 1000, used / 1000);
}
END_TEST

/*
 * An entry that is known only by looking lets scans follow each other: they meet children that end before they are
 * members. Each such child has to be of the group all the same: else its parent has children of several.
 */
START_TEST(children_that_a_scan_meets_as_they_end_are_of_their_group)
{
	const char *name = own("spin"), *program = program_called(&rig, name);
	const char *arguments[] = { program, "spins", "4000", "1000", NULL };
	unsigned long long used;
	struct program spinning;
	char targets[400];
	uint64_t least;

	snprintf(targets, sizeof(targets),
		 "{\"name\": \"g\", \"comm\": \"%s\", \"per\": \"group\"}, {\"name\": \"none\", \"pidfile\": \"%s\"}",
		 name, place(&rig, "none.pid"));
	rig.scans_often = true;
	if (!start(&rig, CONNECTOR, targets, "") || !discovery_says(&rig, "\"exit_records\": true"))
		SKIP_TEST("%s", skip_why());
	spinning = start_spins(arguments);
	ck_assert_int_eq(program_wait(&spinning), 0);
	used = used_by_spins();
	least = used - NOT_SHOWN_NS - (live_is_busy() ? used / 16 : 0);
	for (int naps = 0; naps < 500 && read_on(&rig, "g").cpu_ns < least; naps++)
		scene_nap();
	if (something_was_lost())
		SKIP_TEST("events of processes were lost on a busy machine");
	ck_assert_msg(read_on(&rig, "g").cpu_ns >= least, "%ju of %llu us are in the sum",
		      (uintmax_t)read_on(&rig, "g").cpu_ns / 1000, used / 1000);
}
END_TEST

/* Whether an incident that is whole says so of itself. */
static bool incident_says(const char *part)
{
	char pattern[128];
	glob_t found;
	bool says = false;

	snprintf(pattern, sizeof(pattern), "%s/incidents/*[0-9]/incident.json", rig.directory);
	if (glob(pattern, 0, NULL, &found) == 0)
		says = scene_says(found.gl_pathv[0], part);
	globfree(&found);

	return says;
}

START_TEST(a_rule_on_a_group_fires_for_processes_none_of_which_is_long)
{
	const char *name = own("many"), *program = program_called(&rig, name);
	uint64_t least, longest, used;
	char targets[128];
	size_t count;

	snprintf(targets, sizeof(targets), "{\"name\": \"g\", \"comm\": \"%s\", \"per\": \"group\"}", name);
	if (!start(&rig, CONNECTOR, targets,
		   "{\"name\": \"storm\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": "
		   "\"10%\", \"warmup\": 1}") ||
	    !discovery_says(&rig, "\"exit_records\": true"))
		SKIP_TEST("%s", skip_why());
	for (int i = 0; i < 20 && !scene_says(rig.server.err, "rule storm fired"); i++)
		storm(program, "100", SHORT_US, &least);
	live_wait_for(&rig, scene_says(rig.server.err, "rule storm fired"));
	live_wait_for(&rig, incident_says("\"name\": \"storm\""));
	ck_assert(incident_says("\"kind\": \"group\""));
	ck_assert(incident_says("\"name\": \"g\""));
	ck_assert(incident_says("\"metric\": \"cpu\""));
	used = said_ns(&count, &longest);
	ck_assert_uint_gt(count, 0);
	ck_assert_uint_lt(used / count, 20 * NS_PER_MS); /* one may be charged with a whole tick, and more */
}
END_TEST

/* Requests an incident of that target; what its incident.json says, for free(3). */
static char *requested(const char *target)
{
	const char *arguments[] = { rig.spikewatch,         "trigger", "--wait", "--socket",
				    place(&rig, "control"), target,    NULL };
	const char *apart = place(&rig, "asking");
	int out = open(place(&rig, "answer"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	char path[512];

	mkdir(apart, 0755);

	struct program program = program_start(arguments, apart, out, 0);

	close(out);
	ck_assert_int_eq(program_wait(&program), 0);

	AUTO_FREE char *answer = scene_read(place(&rig, "answer"));

	snprintf(path, sizeof(path), "%.*s/incident.json", (int)strcspn(answer, "\n"), answer);
	return scene_read(path);
}

/* Whether an incident says so after one that was in the group has ended. */
static bool says_of_ended(const char *program, const char *part)
{
	const char *arguments[] = { program, "burn", "150000", rig.file, NULL };

	await_end(run(arguments));

	AUTO_FREE char *text = requested("g");

	return text && strstr(text, part);
}

/* Whether a command of spikewatch prints that. */
static bool prints(const char *const *arguments, const char *part)
{
	const char *apart = place(&rig, "printing");
	int out = open(place(&rig, "printed"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	mkdir(apart, 0755);

	struct program program = program_start(arguments, apart, out, 0);

	close(out);
	ck_assert_int_eq(program_wait(&program), 0);

	AUTO_FREE char *text = scene_read(place(&rig, "printed"));

	return text && strstr(text, part);
}

/* What its samples say, wherever they are shown. */
static bool is_marked(void)
{
	const char *top[] = { rig.spikewatch,        "top", "--once", "--ring", place(&rig, "ring"), "--config",
			      place(&rig, "config"), NULL };

	return prints(top, " ~") && discovery_says(&rig, "\"cpu_estimated\": ");
}

/* Of the scheduler's sums nothing is: they hold what ran to its end. */
START_TEST(an_incident_says_whether_the_cpu_time_of_members_that_ended_is_an_estimate)
{
	const char *name = own("few"), *program = program_called(&rig, name);
	const char *arguments[] = { program, "rests", "1000", rig.file, NULL };
	const char *expected;
	char targets[128];
	pid_t pid;

	snprintf(targets, sizeof(targets), "{\"name\": \"g\", \"comm\": \"%s\", \"per\": \"group\"}", name);
	if (!start(&rig, (enum way)_i, targets, "{\"name\": \"never\", \"metric\": \"cpu_cores\", \"above\": 999}"))
		SKIP_TEST("%s", skip_why());
	expected = discovery_says(&rig, "\"exit_records\": true") ? "\"ended_cpu\": \"estimated\","
								  : "\"ended_cpu\": \"seen\"";
	pid = run(arguments);
	await_stop(pid);
	live_wait_for(&rig, counted(&rig, "members") == 1);

	AUTO_FREE char *text = requested("g");

	ck_assert(text && !strstr(text, "ended_cpu"));
	ck_assert(!discovery_says(&rig, "cpu_estimated"));
	if (_i != KERNEL) {
		live_wait_for(&rig, says_of_ended(program, expected));
		live_wait_for(&rig, is_marked());
	} else if (says_of_ended(program, "\"ended_cpu\": ") || discovery_says(&rig, "cpu_estimated")) {
		ck_assert(went_over_to_files(&rig));
	}
	kill(pid, SIGKILL);
	await_end(pid);
}
END_TEST

/* ---- one that turns into something else ---- */

/* It works on for a while, and stops again. */
static bool goes_on(pid_t pid)
{
	kill(pid, SIGCONT);
	await_stop(pid);

	return true;
}

/*
 * Both groups together hold what it used, no less than from when it was seen first, and no more
 * than all. When it is found out that it is another one, it may have used all of that before: then
 * it goes on until it was found out. False: it cannot be heard of in this way here.
 */
static bool goes_over(enum way way, const char *what)
{
	const char *a = own("before"), *b = own("after");
	const char *first = program_called(&rig, a), *second = program_called(&rig, b);
	bool turns = strcmp(what, "turns") == 0;
	const char *arguments[] = { first, what, "40000", rig.file, turns ? second : b, NULL };
	char targets[256];
	uint64_t from, to;
	pid_t pid;

	snprintf(targets, sizeof(targets),
		 "{\"name\": \"b\", \"comm\": \"%s\", \"per\": \"group\"}, {\"name\": \"a\", \"comm\": \"%s\", "
		 "\"per\": \"group\"}",
		 b, a);
	if (!start(&rig, way, targets, ""))
		return false;
	pid = run(arguments);
	await_stop(pid);
	live_wait_for(&rig, counted(&rig, "members") == 1);
	live_wait_for(&rig, read_on(&rig, "a").samples > 0);
	from = cpu_of(pid);
	goes_on(pid);
	ck_assert_uint_ge(cpu_of(pid) - from, 2 * 40 * NS_PER_MS);
	live_wait_for(&rig, read_on(&rig, "b").cpu_ns > 0 || (goes_on(pid) && false));
	to = cpu_of(pid);
	live_wait_for(&rig, read_on(&rig, "a").cpu_ns + read_on(&rig, "b").cpu_ns >= to - from);
	live_wait_for(&rig, counted(&rig, "members") == 1);
	/* A run that goes on is counted by the clock, with interrupts in it, and a sum never goes back. */
	ck_assert_uint_le(read_on(&rig, "a").cpu_ns + read_on(&rig, "b").cpu_ns, to + NS_PER_MS);
	kill(pid, SIGKILL);
	await_end(pid);
	live_wait_for(&rig, counted(&rig, "members") == 0);
	ck_assert_uint_le(read_on(&rig, "a").cpu_ns + read_on(&rig, "b").cpu_ns, to + NS_PER_MS);
	return true;
}

START_TEST(one_that_executes_another_program_goes_over_and_nothing_is_lost_or_counted_twice)
{
	if (!goes_over((enum way)_i, "turns"))
		SKIP_TEST("%s", skip_why());
}
END_TEST

START_TEST(one_that_changes_its_name_goes_over_and_nothing_is_lost_or_counted_twice)
{
	if (!goes_over((enum way)_i, "renames"))
		SKIP_TEST("%s", skip_why());
}
END_TEST

Suite *arrival_suite(void)
{
	Suite *suite = suite_create("arrival");
	TCase *one = tcase_create("one"), *many = tcase_create("many");

	tcase_add_checked_fixture(one, setup, teardown);
	tcase_add_loop_test(one, a_process_that_executed_is_described_sampled_and_its_end_is_told, 0, WAYS);
	tcase_add_loop_test(one, a_process_of_30_ms_is_seen_with_what_it_used, 0, RESCAN);
	tcase_add_loop_test(one, one_that_executes_another_program_goes_over_and_nothing_is_lost_or_counted_twice, 0,
			    WAYS);
	tcase_add_loop_test(one, one_that_changes_its_name_goes_over_and_nothing_is_lost_or_counted_twice, 0, WAYS);
	suite_add_tcase(suite, one);
	tcase_add_checked_fixture(many, setup, teardown);
	tcase_add_loop_test(many, the_sum_of_a_group_is_what_its_short_processes_used, 0, PERF);
	tcase_add_test(many, without_exit_records_a_group_has_what_its_members_were_seen_to_use_and_never_more);
	tcase_add_loop_test(many, the_sum_of_a_group_is_exact_to_a_hundredth_for_children_that_never_read_their_clock,
			    0, PERF * (int)ARRAY_LEN(spinners));
	tcase_add_test(many, children_that_end_while_the_daemon_is_stopped_do_not_count_twice);
	tcase_add_loop_test(many, an_incident_says_whether_the_cpu_time_of_members_that_ended_is_an_estimate, 0, WAYS);
	tcase_add_test(many, children_that_a_scan_meets_as_they_end_are_of_their_group);
	tcase_add_test(many, a_rule_on_a_group_fires_for_processes_none_of_which_is_long);
	suite_add_tcase(suite, many);

	return suite;
}
