/*
 * check_cpu_accounts.c: what a source makes of memory that the kernel writes. The memory is ours: the
 * test is the kernel.
 */
#include "lib/source/cpu_accounts.h"
#include "lib/source/source.h"
#include "source_rig.h"

#include <sched.h>

Suite *cpu_accounts_suite(void);

#define CPUS 2u
#define CAPACITY 8u
#define LOG 4u
#define GROUPS 5u
#define MS NS_PER_MS

static struct cpu_account sums[CAPACITY];
static struct cpu_slot slots[CPUS];
static uint64_t logs[CPUS * LOG];
static struct cpu_run_log runs[CPUS];
static struct cpu_accounts_words words;
static uint64_t base_ns[CAPACITY];
static _Atomic uint32_t pids[CAPACITY];
static struct cpu_accounts accounts;
static struct cpu_accounts_reader *reader;
static struct cpu_group groups[GROUPS];
static struct cpu_cell cells[CPUS * GROUPS];
static unsigned told[CAPACITY + GROUPS];
static void (*when_told)(void); /* called once */

static void setup(void)
{
	memset(sums, 0, sizeof sums);
	memset(slots, 0, sizeof slots);
	memset(told, 0, sizeof told);
	memset(base_ns, 0, sizeof base_ns);
	memset(groups, 0, sizeof groups);
	memset(cells, 0, sizeof cells);
	memset(runs, 0, sizeof runs);
	when_told = NULL;
	for (uint32_t i = 0; i < CAPACITY; i++)
		pids[i] = 0;
	words = (struct cpu_accounts_words){ .epoch = 1, .generation = 1, .group_generation = 1 };
	for (uint32_t i = 0; i < CPUS; i++)
		slots[i] = (struct cpu_slot){ .account = CPU_ACCOUNT_NONE,
					      .generation = 1,
					      .group = CPU_ACCOUNT_NONE,
					      .moved_sequence = UINT64_MAX };
	accounts = (struct cpu_accounts){ .reclaimed = UINT64_MAX,
					  .slots = slots,
					  .accounts = sums,
					  .logs = logs,
					  .runs = runs,
					  .words = &words,
					  .base_ns = base_ns,
					  .pids = pids,
					  .cpus = CPUS,
					  .capacity = CAPACITY,
					  .log_length = LOG,
					  .cells = cells,
					  .groups = groups,
					  .group_capacity = GROUPS,
					  .on = true };
	ck_assert_int_eq(cpu_accounts_reader_new(&accounts, &reader), 0);
}

static void teardown(void)
{
	cpu_accounts_reader_free(reader);
}

static void count(void *ctx, uint32_t account)
{
	(void)ctx;
	told[account]++;
	if (when_told) {
		void (*call)(void) = when_told;

		when_told = NULL;
		call();
	}
}

static bool begin(void)
{
	memset(told, 0, sizeof told);
	return cpu_accounts_reader_begin(reader, count, NULL);
}

static uint64_t cpu_of_account(uint32_t account, uint64_t now_ns)
{
	struct cpu_accounts_use use;

	cpu_accounts_reader_use(reader, account, (mono_t){ now_ns }, &use);
	return use.cpu_ns;
}

/* As switches.bpf.c does. */
static void start_run(uint32_t cpu, uint32_t account, uint32_t tgid, uint64_t at_ns)
{
	struct cpu_slot *slot = &slots[cpu];

	slot->sequence++;
	slot->account = account;
	slot->tgid = tgid;
	slot->tid = tgid + cpu;
	slot->since_ns = at_ns;
	slot->generation = words.generation;
	slot->sequence++;
}

static void log_account(uint32_t cpu, uint32_t account)
{
	if (sums[account].epoch == words.epoch)
		return;
	sums[account].epoch = words.epoch;
	logs[cpu * LOG + slots[cpu].logged++ % LOG] = account;
}

static void log_run(uint32_t cpu, uint64_t ran_ns, uint64_t waited_ns, uint32_t group)
{
	struct cpu_run_log *log = &runs[cpu];

	if (!words.runs_wanted)
		return;
	log->runs[log->logged % CPU_RUNS_LENGTH] = (struct cpu_run){ .since_ns = slots[cpu].since_ns,
								     .run_ns = ran_ns,
								     .wait_ns = waited_ns,
								     .account = slots[cpu].account,
								     .group = group };
	log->logged++;
}

static void end_run_after(uint32_t cpu, uint64_t ran_ns, uint64_t waited_ns)
{
	uint32_t account = slots[cpu].account;

	slots[cpu].sequence++;
	log_run(cpu, ran_ns, waited_ns, CPU_ACCOUNT_NONE);
	sums[account].wait_ns += waited_ns;
	sums[account].run_ns += ran_ns;
	log_account(cpu, account);
	slots[cpu].account = CPU_ACCOUNT_NONE;
	slots[cpu].tid = slots[cpu].tgid = 0;
	slots[cpu].sequence++;
}

static void end_run(uint32_t cpu, uint64_t ran_ns)
{
	end_run_after(cpu, ran_ns, 0);
}

START_TEST(what_ran_is_told_once_and_what_sleeps_is_not)
{
	start_run(0, 3, 33, 100);
	end_run(0, 50);
	start_run(0, 3, 33, 200);
	end_run(0, 50);
	ck_assert(begin());
	ck_assert_uint_eq(told[3], 1);
	ck_assert_uint_eq(told[2], 0);
	ck_assert_uint_eq(cpu_of_account(3, 1000), 100);
	ck_assert(begin());
	ck_assert_uint_eq(told[3], 0);
	start_run(1, 3, 33, 300);
	end_run(1, 7);
	ck_assert(begin());
	ck_assert_uint_eq(told[3], 1);
	ck_assert_uint_eq(cpu_of_account(3, 1000), 107);
}
END_TEST

START_TEST(a_run_that_goes_on_counts_until_now_on_each_cpu)
{
	base_ns[2] = 5000;
	start_run(0, 2, 22, 100);
	start_run(1, 2, 22, 150);
	ck_assert(begin());
	ck_assert_uint_eq(told[2], 2);
	ck_assert_uint_eq(cpu_of_account(2, 200), 5000 + 100 + 50);
	ck_assert_uint_eq(cpu_of_account(2, 300), 5000 + 200 + 150);
	ck_assert(begin());
	ck_assert_uint_ge(told[2], 1);
}
END_TEST

START_TEST(a_run_that_ends_between_two_looks_counts_once)
{
	start_run(0, 2, 22, 100);
	ck_assert(begin());
	end_run(0, 90);
	ck_assert_uint_eq(cpu_of_account(2, 200), 90);
	start_run(0, 2, 22, 210); /* begun after the look: in the next */
	ck_assert_uint_eq(cpu_of_account(2, 300), 90);
	ck_assert(begin());
	ck_assert_uint_eq(cpu_of_account(2, 300), 180);
}
END_TEST

START_TEST(a_run_that_is_older_than_its_account_is_found)
{
	start_run(0, CPU_ACCOUNT_NONE, 44, 100);
	ck_assert(begin());
	pids[5] = 44;
	words.generation++;
	ck_assert(begin());
	ck_assert_uint_eq(told[5], 1);
	ck_assert_uint_eq(cpu_of_account(5, 150), 50);
	/* Given up, and in use by another process. */
	pids[5] = 55;
	words.generation++;
	ck_assert(begin());
	ck_assert_uint_eq(told[5], 0);
	ck_assert_uint_eq(cpu_of_account(5, 150), 0);
}
END_TEST

START_TEST(a_log_that_is_too_short_is_said)
{
	for (uint32_t i = 0; i < LOG; i++)
		log_account(0, i);
	ck_assert(begin());
	for (uint32_t i = 0; i <= LOG; i++)
		log_account(0, i);
	ck_assert(!begin());
	ck_assert(begin());
}
END_TEST

START_TEST(a_slot_that_is_being_written_is_not_believed)
{
	struct cpu_slot slot;

	start_run(0, 2, 22, 100);
	slots[0].sequence++;
	ck_assert(!cpu_accounts_slot(&accounts, 0, &slot));
	ck_assert(begin());

	struct cpu_accounts_use use;

	cpu_accounts_reader_use(reader, 2, (mono_t){ 200 }, &use);
	ck_assert(use.unknown && !use.runs);
	slots[0].sequence++;
	ck_assert(begin());
	cpu_accounts_reader_use(reader, 2, (mono_t){ 200 }, &use);
	ck_assert(!use.unknown && use.runs);
	slots[0].sequence++; /* it begins to end, and that takes long */
	cpu_accounts_reader_use(reader, 2, (mono_t){ 200 }, &use);
	ck_assert(use.unknown);
}
END_TEST

/* ---- cgroups ---- */

enum { TOP, LEFT, RIGHT, DEEP }; /* TOP is above LEFT and RIGHT, LEFT is above DEEP */

static void put_group(uint32_t group, uint32_t parent, uint64_t group_base_ns)
{
	accounts.group_version++;
	groups[group] = (struct cpu_group){ group_base_ns, parent, words.group_generation, 0 };
	if (accounts.group_count <= group)
		accounts.group_count = group + 1;
	words.groups++;
	accounts.group_version++;
}

static void make_groups(void)
{
	put_group(TOP, CPU_ACCOUNT_NONE, 1000);
	put_group(LEFT, TOP, 100);
	put_group(RIGHT, TOP, 10);
	put_group(DEEP, LEFT, 1);
}

static uint64_t cpu_of_group(uint32_t group, uint64_t at_ns)
{
	struct cpu_accounts_use use;

	cpu_accounts_reader_use(reader, CAPACITY + group, (mono_t){ at_ns }, &use);
	ck_assert(!use.unknown && !use.lost);
	return use.cpu_ns;
}

static void start_run_in(uint32_t cpu, uint32_t group, uint64_t at_ns)
{
	start_run(cpu, CPU_ACCOUNT_NONE, 99, at_ns);
	slots[cpu].group = group;
	slots[cpu].group_generation = words.group_generation;
}

static void add_to_cell(uint32_t cpu, uint32_t group, uint64_t ran_ns)
{
	struct cpu_cell *cell = &cells[cpu * GROUPS + group];

	cell->run_ns += ran_ns;
	if (cell->epoch == words.epoch)
		return;
	cell->epoch = words.epoch;
	logs[cpu * LOG + slots[cpu].logged++ % LOG] = CAPACITY + group;
}

static void go_idle(uint32_t cpu)
{
	slots[cpu].tid = slots[cpu].tgid = 0;
	slots[cpu].sequence++;
}

static void end_run_in(uint32_t cpu, uint64_t ran_ns)
{
	slots[cpu].sequence++;
	log_run(cpu, ran_ns, 0, slots[cpu].group);
	add_to_cell(cpu, slots[cpu].group, ran_ns);
	go_idle(cpu);
}

START_TEST(what_ran_in_a_cgroup_is_in_those_above_it_and_in_no_other)
{
	make_groups();
	start_run_in(0, DEEP, 100);
	end_run_in(0, 50);
	start_run_in(1, RIGHT, 100);
	ck_assert(begin());
	ck_assert_uint_eq(told[CAPACITY + DEEP], 1);
	ck_assert_uint_eq(told[CAPACITY + LEFT], 1);
	ck_assert_uint_eq(told[CAPACITY + RIGHT], 1);
	ck_assert_uint_ge(told[CAPACITY + TOP], 1);
	ck_assert_uint_eq(cpu_of_group(DEEP, 107), 1 + 50);
	ck_assert_uint_eq(cpu_of_group(LEFT, 107), 100 + 50);
	ck_assert_uint_eq(cpu_of_group(RIGHT, 107), 10 + 7);
	ck_assert_uint_eq(cpu_of_group(TOP, 107), 1000 + 50 + 7);
	end_run_in(1, 9);
	ck_assert_uint_eq(cpu_of_group(TOP, 200), 1000 + 50 + 9);
	ck_assert_uint_eq(cpu_of_group(RIGHT, 200), 10 + 9);
	ck_assert(begin());
	ck_assert_uint_eq(told[CAPACITY + LEFT], 0);
	ck_assert_uint_eq(cpu_of_group(TOP, 200), 1000 + 50 + 9);
	ck_assert_uint_eq(cpu_of_group(LEFT, 200), 100 + 50);
}
END_TEST

static void end_it(void)
{
	end_run_in(0, 3000);
	start_run_in(0, RIGHT, 3100);
}

START_TEST(a_run_that_ends_while_it_is_looked_at_is_not_lost)
{
	make_groups();
	start_run_in(0, LEFT, 100);
	add_to_cell(0, LEFT, 7); /* so there is something to be told of it from a log, too */
	when_told = end_it;
	begin();
	ck_assert_uint_eq(cpu_of_group(LEFT, 3105), 100 + 7 + 3000);
	ck_assert_uint_ge(cpu_of_group(TOP, 3105), 1000 + 7 + 3000);
}
END_TEST

START_TEST(a_run_that_was_moved_counts_where_it_was_in_turns)
{
	make_groups();
	start_run_in(0, LEFT, 100);
	slots[0].moved_from = LEFT;
	slots[0].moved_first_ns = 130;
	slots[0].moved_last_ns = 150; /* in DEEP in between: that is counted where it was moved on */
	slots[0].moved_to = RIGHT;
	slots[0].moved_sequence = slots[0].sequence;
	add_to_cell(1, DEEP, 20);
	ck_assert(begin());
	ck_assert_uint_eq(cpu_of_group(LEFT, 160), 100 + 30 + 20);
	ck_assert_uint_eq(cpu_of_group(DEEP, 160), 1 + 20);
	ck_assert_uint_eq(cpu_of_group(RIGHT, 160), 10 + 10);
	ck_assert_uint_eq(cpu_of_group(TOP, 160), 1000 + 60);
	slots[0].sequence++;
	add_to_cell(0, LEFT, 30);
	add_to_cell(0, RIGHT, 12);
	go_idle(0);
	ck_assert_uint_eq(cpu_of_group(TOP, 170), 1000 + 62);
	ck_assert_uint_eq(cpu_of_group(RIGHT, 170), 10 + 12);
	ck_assert(begin());
	ck_assert_uint_eq(cpu_of_group(TOP, 170), 1000 + 62);
}
END_TEST

/* It is used again, elsewhere in the tree: what is in its cells stays with those that were above it, in their bases. */
START_TEST(a_tree_that_changes_moves_nothing_twice)
{
	make_groups();
	start_run_in(0, DEEP, 100);
	end_run_in(0, 50);
	ck_assert(begin());
	ck_assert_uint_eq(cpu_of_group(TOP, 200), 1050);
	accounts.group_version++;
	groups[LEFT].base_ns += 50;
	groups[TOP].base_ns += 50;
	ck_assert(begin());
	for (uint32_t i = TOP; i <= DEEP; i++) {
		struct cpu_accounts_use use;

		cpu_accounts_reader_use(reader, CAPACITY + i, (mono_t){ 200 }, &use);
		ck_assert(use.unknown && !use.lost); /* it is being changed */
	}
	words.group_generation++;
	groups[DEEP] = (struct cpu_group){ 7 - (uint64_t)50, RIGHT, words.group_generation, 0 };
	groups[RIGHT].base_ns -= 50;
	groups[TOP].base_ns -= 50;
	accounts.group_version++;
	ck_assert(begin());
	ck_assert_uint_eq(cpu_of_group(DEEP, 200), 7);
	ck_assert_uint_eq(cpu_of_group(RIGHT, 200), 10);
	ck_assert_uint_eq(cpu_of_group(LEFT, 200), 150);
	ck_assert_uint_eq(cpu_of_group(TOP, 200), 1050);
	start_run_in(1, DEEP, 300);
	end_run_in(1, 4);
	ck_assert(begin());
	ck_assert_uint_eq(cpu_of_group(RIGHT, 400), 14);
	ck_assert_uint_eq(cpu_of_group(LEFT, 400), 150);
	ck_assert_uint_eq(cpu_of_group(TOP, 400), 1054);
}
END_TEST

START_TEST(a_run_of_what_had_the_number_before_is_in_no_cgroup)
{
	make_groups();
	start_run_in(0, LEFT, 100);
	words.group_generation++;
	put_group(LEFT, TOP, 0);
	ck_assert(begin());
	ck_assert_uint_eq(told[CAPACITY + LEFT], 0);
	ck_assert_uint_eq(cpu_of_group(LEFT, 900), 0);
	ck_assert_uint_eq(cpu_of_group(TOP, 900), 1000);
}
END_TEST

START_TEST(a_reader_that_comes_later_knows_what_was_counted_before)
{
	make_groups();
	start_run_in(0, DEEP, 100);
	end_run_in(0, 50);
	cpu_accounts_reader_free(reader);
	ck_assert_int_eq(cpu_accounts_reader_new(&accounts, &reader), 0);
	ck_assert(begin());
	ck_assert_uint_eq(cpu_of_group(LEFT, 200), 150);
}
END_TEST

START_TEST(a_cgroup_that_is_not_in_a_log_for_want_of_room_is_read_all_the_same)
{
	make_groups();
	for (uint32_t i = 0; i < LOG; i++)
		log_account(0, i);
	add_to_cell(0, LEFT, 5);
	ck_assert(!begin());
	ck_assert_uint_eq(cpu_of_group(TOP, 200), 1005);
}
END_TEST

/* ---- what ran when ---- */

static uint64_t ran_ns[CAPACITY + GROUPS], waited[CAPACITY + GROUPS];

static void add_part(void *ctx, const struct cpu_accounts_part *part)
{
	(void)ctx;
	ck_assert_uint_lt(part->from.ns, part->to.ns);
	ran_ns[part->account] += part->to.ns - part->from.ns;
	waited[part->account] += part->wait_ns;
	if (when_told) {
		void (*call)(void) = when_told;

		when_told = NULL;
		call();
	}
}

static void want_runs(void)
{
	words.runs_wanted = 1;
	ck_assert(begin());
}

static bool look_until(uint64_t until_ns)
{
	memset(ran_ns, 0, sizeof ran_ns);
	memset(waited, 0, sizeof waited);
	return cpu_accounts_reader_ran_until(reader, (mono_t){ until_ns }, add_part, NULL);
}

START_TEST(what_ran_is_told_by_time)
{
	start_run(0, 3, 33, 900);
	end_run(0, 50); /* not wanted yet */
	want_runs();
	start_run(0, 3, 33, 1000);
	end_run_after(0, 500, 70);
	start_run(0, 4, 44, 1550);
	end_run(0, 10);
	start_run(1, 2, 22, 1200); /* goes on */
	ck_assert(look_until(1300));
	ck_assert_uint_eq(ran_ns[3], 300);
	ck_assert_uint_eq(waited[3], 0);
	ck_assert_uint_eq(ran_ns[2], 100);
	ck_assert_uint_eq(ran_ns[4], 0);
	ck_assert(look_until(1555));
	ck_assert_uint_eq(ran_ns[3], 200);
	ck_assert_uint_eq(waited[3], 70);
	ck_assert_uint_eq(ran_ns[2], 255);
	ck_assert_uint_eq(ran_ns[4], 5);
	ck_assert(look_until(1600));
	ck_assert_uint_eq(ran_ns[3], 0);
	ck_assert_uint_eq(ran_ns[2], 45);
	ck_assert_uint_eq(ran_ns[4], 5);

	/* In the next round what went on is whole, and the reader knows what it has had of it. */
	ck_assert(begin());
	end_run_after(1, 800, 9);
	ck_assert(look_until(3000));
	ck_assert_uint_eq(ran_ns[2], 800);
	ck_assert_uint_eq(waited[2], 9);
	ck_assert_uint_eq(ran_ns[3] + ran_ns[4], 0);
}
END_TEST

START_TEST(what_ran_in_a_cgroup_is_told_of_those_above_it)
{
	make_groups();
	want_runs();
	start_run_in(0, DEEP, 1000);
	end_run_in(0, 500);
	start_run_in(1, RIGHT, 1100);
	ck_assert(look_until(1200));
	ck_assert_uint_eq(ran_ns[CAPACITY + DEEP], 200);
	ck_assert_uint_eq(ran_ns[CAPACITY + LEFT], 200);
	ck_assert_uint_eq(ran_ns[CAPACITY + RIGHT], 100);
	ck_assert_uint_eq(ran_ns[CAPACITY + TOP], 300);
}
END_TEST

/* Where it was in turns is not told: it would be in the wrong one for a part of the time. */
START_TEST(of_a_run_that_was_moved_nothing_is_told_of_cgroups)
{
	make_groups();
	want_runs();
	start_run_in(0, DEEP, 1000);
	slots[0].moved_sequence = slots[0].sequence;
	ck_assert(look_until(1200));
	ck_assert_uint_eq(ran_ns[CAPACITY + TOP], 0);
}
END_TEST

static void run_often(uint32_t account, unsigned times)
{
	for (unsigned i = 0; i < times; i++) {
		start_run(0, account, 30 + account, 1000 + 10 * i);
		end_run(0, 5);
	}
}

START_TEST(runs_that_were_forgotten_are_said_and_later_ones_are_told)
{
	want_runs();
	run_often(3, CPU_RUNS_LENGTH - 1);
	ck_assert(look_until(100000));
	ck_assert_uint_eq(ran_ns[3], 5 * (CPU_RUNS_LENGTH - 1));
	run_often(3, CPU_RUNS_LENGTH);
	ck_assert(!look_until(100000));
	run_often(3, 2);
	ck_assert(look_until(100000));
	ck_assert_uint_eq(ran_ns[3], 10);
}
END_TEST

static void run_very_often(void)
{
	run_often(2, CPU_RUNS_LENGTH);
}

START_TEST(runs_that_are_forgotten_while_they_are_read_are_said)
{
	want_runs();
	run_often(3, 2);
	when_told = run_very_often;
	ck_assert(!look_until(100000));
	run_often(3, 1);
	ck_assert(look_until(100000));
	ck_assert_uint_eq(ran_ns[3], 5);
}
END_TEST

START_TEST(a_thread_that_is_in_two_slots_ran_where_it_came_last)
{
	want_runs();
	start_run(0, 2, 22, 1000);
	start_run(1, 2, 22, 1100);
	slots[1].tid = slots[0].tid;
	ck_assert(look_until(1200));
	ck_assert_uint_eq(ran_ns[2], 100);
}
END_TEST

/* ---- a source ---- */

#define SLEEPERS 64

static struct bench rig;
static struct child child;
static struct source_entry *entry;
static uint64_t now_ns;

struct kind {
	uint64_t idle_interval_ns; /* how long files may be left unread */
	uint64_t peak_interval_ns; /* 0: never */
	uint64_t heartbeat_ns;     /* 0: a second */
	bool closed;
};

static void open_source_of(struct kind kind)
{
	child = child_start();
	bench_open(
		&rig, "/proc",
		(struct source_options){ .interval_ns = 10 * MS,
					 .capacity = SLEEPERS + 8,
					 .peak_interval_ns = kind.peak_interval_ns ? kind.peak_interval_ns : UINT64_MAX,
					 .heartbeat_ns = kind.heartbeat_ns ? kind.heartbeat_ns : S,
					 .idle_interval_ns = kind.idle_interval_ns,
					 .fds_interval_ns = S,
					 .accounts = &accounts });
	rig.at.ns = S;
	now_ns = S;
	entry = (kind.closed ? add_closed_process : add_process)(&rig, child.pid, true, NULL);
	base_ns[1] = 100 * S; /* the clock of a process that has just begun says less */
	pids[1] = (uint32_t)child.pid;
	source_entry_follow(entry, 1);
}

static void open_source_with(uint64_t idle_interval_ns)
{
	open_source_of((struct kind){ .idle_interval_ns = idle_interval_ns });
}

static void open_source(void)
{
	open_source_with(0);
}

static void close_source(void)
{
	drop(&rig, entry);
	bench_close(&rig);
	child_reap(&child);
}

static uint64_t tick(void)
{
	now_ns += 10 * MS;
	rig.at.ns = now_ns;
	fill(&rig, now_ns, entry);
	return source_entry_sample(entry)->value[SAMPLE_CPU];
}

static uint64_t looks(void)
{
	struct source_counters counters;

	source_counters(rig.source, &counters);
	return counters.looks;
}

START_TEST(the_cpu_time_of_a_process_is_that_of_its_account)
{
	open_source();
	ck_assert_uint_eq(tick(), 100 * S);
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	end_run(0, 12345);
	ck_assert_uint_eq(tick(), 100 * S + 12345);
	for (unsigned i = 0; i < 5; i++)
		tick();

	uint64_t before = looks();

	for (unsigned i = 0; i < 20; i++)
		tick();
	ck_assert_uint_le(looks() - before, 1); /* a heartbeat */
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	end_run(0, 5);
	ck_assert_uint_eq(tick(), 100 * S + 12350);

	mono_t woke;

	ck_assert(source_entry_woke(entry, &woke));
	ck_assert_int_lt(mono_diff((mono_t){ now_ns }, woke), 11 * (int64_t)MS);
	close_source();
}
END_TEST

START_TEST(a_process_is_shown_at_heartbeats_though_it_sleeps)
{
	unsigned shown = 0;
	size_t seen;

	open_source();
	for (unsigned i = 0; i < 500; i++) {
		tick();
		source_seen(rig.source, &seen);
		shown += seen > 0;
	}
	ck_assert_uint_ge(shown, 5);
	ck_assert_uint_le(shown, 10);
	close_source();
}
END_TEST

START_TEST(a_sum_never_steps_back)
{
	open_source();
	tick();
	start_run(0, 1, (uint32_t)child.pid, now_ns);

	uint64_t running = tick();

	ck_assert_uint_ge(running, 100 * S + 10 * MS);
	end_run(0, 8 * MS); /* interrupts are not its time */
	ck_assert_uint_eq(tick(), running);
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	end_run(0, 3 * MS);
	ck_assert_uint_eq(tick(), 100 * S + 11 * MS);
	close_source();
}
END_TEST

/* Reading its files may take long: what it uses meanwhile is not in the row, so the row is not of then. */
START_TEST(a_row_is_of_the_moment_in_which_the_account_was_asked_however_long_the_files_take)
{
	open_source();
	tick();
	start_run(0, 1, (uint32_t)child.pid, now_ns);

	uint64_t began_ns = now_ns;

	rig.step_ns = 18 * MS; /* from one look at the clock to the next */
	for (unsigned i = 0; i < 5; i++) {
		now_ns = rig.at.ns;
		fill(&rig, now_ns, entry);
		ck_assert_uint_eq(value(entry, SAMPLE_CPU) - 100 * S, source_entry_at(entry).ns - began_ns);
	}
	close_source();
}
END_TEST

static void take_long(int fd)
{
	(void)fd;
	rig.at.ns += 18 * MS;
}

/* Without an account it is the clock of the process, asked before the files, too. */
START_TEST(a_row_without_account_is_of_before_its_files_were_read)
{
	child = child_start();
	bench_open(&rig, "/proc",
		   (struct source_options){ .interval_ns = 10 * MS, .reset_peaks = true, .reset_peak = take_long });
	rig.at.ns = now_ns = S;
	entry = add_process(&rig, child.pid, true, NULL);
	for (unsigned i = 0; i < 3; i++) {
		child_do(&child, 'b');
		tick();
		ck_assert_uint_ge(rig.at.ns, now_ns + 18 * MS);
		ck_assert_uint_lt(source_entry_at(entry).ns, now_ns + MS);
	}
	close_source();
}
END_TEST

/* The host has stopped the CPU in the middle of a switch: what it has of the process is not known. */
START_TEST(of_a_process_whose_slot_cannot_be_read_nothing_is_said)
{
	mono_t woke;
	size_t seen;

	open_source();
	tick();
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	ck_assert_uint_ge(tick(), 100 * S + 10 * MS);

	mono_t last = source_entry_at(entry);

	slots[0].sequence++;
	for (unsigned i = 0; i < 2; i++) {
		tick();
		source_seen(rig.source, &seen);
		ck_assert_uint_eq(seen, 0);
		ck_assert_uint_eq(source_entry_at(entry).ns, last.ns);
	}
	slots[0].sequence--;
	end_run(0, 28 * MS);
	ck_assert_uint_eq(tick(), 100 * S + 28 * MS);
	source_seen(rig.source, &seen);
	ck_assert_uint_eq(seen, 1);
	if (source_entry_woke(entry, &woke)) /* it was not seen standing still */
		ck_assert_uint_le(woke.ns, last.ns);
	close_source();
}
END_TEST

static uint32_t looks_at_clock;

/* While the first process is read, the other one, which was waiting, begins to run. */
static void begin_at_third_look(void)
{
	if (looks_at_clock++ == 2)
		start_run(1, 2, pids[2], rig.at.ns);
}

START_TEST(what_began_to_run_while_another_one_was_read_is_counted)
{
	struct child sleeper = child_start();
	struct source_entry *other;

	open_source();
	other = add_process(&rig, sleeper.pid, true, NULL);
	base_ns[2] = 200 * S;
	pids[2] = (uint32_t)sleeper.pid;
	source_entry_follow(other, 2);
	tick();
	start_run(0, 1, pids[1], now_ns);
	start_run(1, 2, pids[2], now_ns);
	end_run(1, 3 * MS);
	now_ns += 10 * MS;
	rig.at.ns = now_ns;
	rig.step_ns = 5 * MS;
	looks_at_clock = 0;
	rig.looked = begin_at_third_look;
	fill(&rig, now_ns, other);
	ck_assert_uint_gt(looks_at_clock, 3);
	ck_assert_uint_eq(value(other, SAMPLE_CPU), 200 * S + 3 * MS + source_entry_at(other).ns - slots[1].since_ns);
	rig.looked = NULL;
	drop(&rig, other);
	child_reap(&sleeper);
	close_source();
}
END_TEST

/* It went from one CPU to the other, and the switch away from it was hidden. */
START_TEST(a_thread_runs_where_it_came_last)
{
	open_source();
	tick();
	for (uint32_t cpu = 0; cpu < CPUS; cpu++) {
		uint64_t before = tick();

		start_run(1 - cpu, 1, pids[1], now_ns - 5 * MS);
		start_run(cpu, 1, pids[1], now_ns);
		slots[0].tid = slots[1].tid = pids[1];
		ck_assert_uint_le(tick() - before, 10 * MS + 100);
		end_run(1 - cpu, 0);
		end_run(cpu, 10 * MS);
	}
	close_source();
}
END_TEST

START_TEST(without_accounts_it_is_the_clock_again_and_does_not_step_back)
{
	open_source();
	ck_assert_uint_eq(tick(), 100 * S);
	accounts.on = false;
	sums[1].run_ns = S;
	log_account(0, 1);
	ck_assert_uint_eq(tick(), 100 * S);
	accounts.on = true; /* not before the account is named anew */
	ck_assert_uint_eq(tick(), 100 * S);
	source_entry_follow(entry, 1);
	tick();
	ck_assert_uint_eq(tick(), 101 * S);
	close_source();
}
END_TEST

START_TEST(runs_are_wanted_no_longer_than_they_are_remembered)
{
	open_source();
	ck_assert(source_remember(rig.source, true));
	ck_assert_uint_eq(words.runs_wanted, 1);
	accounts.on = false;
	ck_assert(source_remember(rig.source, false));
	ck_assert_uint_eq(words.runs_wanted, 0);
	ck_assert(!source_remember(rig.source, true));
	ck_assert_uint_eq(words.runs_wanted, 0);
	close_source();
}
END_TEST

/* Of the process, and of a group that it is in. An account of its own begins at 0 each time. */
START_TEST(waiting_for_a_cpu_grows_as_it_is_told_and_is_unavailable_without)
{
	open_source();

	struct source_entry *group = add_group(&rig), *member = add_process(&rig, child.pid, true, group);

	source_entry_follow(member, 1);
	tick();
	for (uint64_t wait_ns = 500; wait_ns <= 1500; wait_ns += 1000) {
		sums[1].wait_ns = wait_ns;
		start_run(0, 1, (uint32_t)child.pid, now_ns);
		end_run(0, 4000);
		tick();
		ck_assert_uint_eq(source_entry_sample(entry)->value[SAMPLE_CPU_WAIT], wait_ns);
		ck_assert_uint_eq(source_entry_sample(group)->value[SAMPLE_CPU_WAIT], wait_ns);
	}
	sums[1].wait_ns = 30;
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	end_run(0, 4000);
	tick();
	ck_assert_uint_eq(source_entry_sample(entry)->value[SAMPLE_CPU_WAIT], 1530);
	ck_assert_uint_eq(source_entry_sample(group)->value[SAMPLE_CPU_WAIT], 1530);
	accounts.on = false;
	for (unsigned i = 0; i < 3; i++)
		tick();
	ck_assert(!sample_has(source_entry_sample(entry), SAMPLE_CPU_WAIT));
	drop(&rig, member);
	drop(&rig, group);
	close_source();
}
END_TEST

START_TEST(an_account_that_has_lost_a_run_is_not_believed)
{
	open_source();
	ck_assert_uint_eq(tick(), 100 * S);
	sums[1].run_ns = S;
	sums[1].lost = 1;
	log_account(0, 1);
	ck_assert_uint_eq(tick(), 100 * S);

	struct source_counters counters;

	source_counters(rig.source, &counters);
	ck_assert_uint_eq(counters.followed, 0);
	close_source();
}
END_TEST

START_TEST(a_process_that_ended_is_found_gone_with_all_that_it_used)
{
	open_source();
	tick();
	child_reap(&child);
	sums[1].run_ns = 777;
	sums[1].exited = 1;
	log_account(0, 1);
	tick();
	ck_assert_int_eq(source_entry_status(entry), SOURCE_GONE);
	ck_assert_uint_eq(source_entry_sample(entry)->value[SAMPLE_CPU], 100 * S + 777);
	drop(&rig, entry);
	bench_close(&rig);
}
END_TEST

START_TEST(several_targets_of_one_process_have_one_account)
{
	open_source();

	struct source_entry *group = add_group(&rig), *member = add_process(&rig, child.pid, true, group);

	source_entry_follow(member, 1);
	tick();
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	end_run(0, 4000);
	ck_assert_uint_eq(tick(), 100 * S + 4000);
	ck_assert_uint_eq(source_entry_sample(member)->value[SAMPLE_CPU], 100 * S + 4000);
	drop(&rig, member);
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	end_run(0, 1000);
	ck_assert_uint_eq(tick(), 100 * S + 5000);
	drop(&rig, group);
	close_source();
}
END_TEST

/* ---- cgroups in a source ---- */

/* ---- ticks afterwards ---- */

static enum source_calm calm(void)
{
	struct source_counters counters;

	source_counters(rig.source, &counters);
	return counters.calm;
}

/* Ready for them: two fills that find nothing, the second with memory. */
static void open_past_source(void)
{
	open_source_with(100 * MS);
	for (unsigned i = 0; i < 5; i++)
		tick();
	ck_assert(source_remember(rig.source, true));
	tick();
	ck_assert_int_eq(calm(), SOURCE_CALM);
}

static bool is_seen(const struct source_entry *which)
{
	size_t count;
	struct source_entry *const *seen = source_seen(rig.source, &count);

	for (size_t i = 0; i < count; i++)
		if (seen[i] == which)
			return true;
	return false;
}

/* A row as of then, in which so much more was used than in the one before. */
static void past_is(uint64_t at_ns, uint64_t more_ns)
{
	uint64_t before_ns = value(entry, SAMPLE_CPU);

	ck_assert(source_fill_past(rig.source, (mono_t){ at_ns }));
	ck_assert_uint_eq(value(entry, SAMPLE_CPU) - before_ns, more_ns);
	ck_assert_int_eq(is_seen(entry), more_ns > 0);
	if (more_ns > 0) {
		ck_assert_uint_eq(source_entry_at(entry).ns, at_ns);
		ck_assert_int_eq(source_entry_status(entry), SOURCE_CHANGED);
	}
}

START_TEST(ticks_that_are_put_together_afterwards_have_what_was_used_until_then)
{
	uint64_t origin_ns;

	open_past_source();
	origin_ns = now_ns;
	start_run(0, 1, (uint32_t)child.pid, origin_ns + 8 * MS);
	end_run_after(0, 4 * MS, 3000);
	start_run(0, 1, (uint32_t)child.pid, origin_ns + 35 * MS); /* goes on */
	rig.at.ns = origin_ns + 50 * MS;
	past_is(origin_ns + 10 * MS, 2 * MS);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU_WAIT), 0);
	past_is(origin_ns + 20 * MS, 2 * MS);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU_WAIT), 3000);
	past_is(origin_ns + 30 * MS, 0);
	past_is(origin_ns + 40 * MS, 5 * MS);

	mono_t before;

	ck_assert(source_entry_woke(entry, &before));
	ck_assert_int_eq(mono_diff(before, (mono_t){ origin_ns + 30 * MS }), 0);

	now_ns = origin_ns + 40 * MS;
	ck_assert_uint_eq(tick(), 100 * S + 4 * MS + (source_entry_at(entry).ns - origin_ns - 35 * MS));
	ck_assert_uint_eq(value(entry, SAMPLE_CPU_WAIT), 3000);
	ck_assert_int_eq(calm(), SOURCE_HOT);
	close_source();
}
END_TEST

/* The end of a run is not where the clock says: what was told before it is not taken back. */
START_TEST(a_sum_does_not_step_back_after_a_tick_that_was_put_together)
{
	uint64_t origin_ns;

	open_past_source();
	origin_ns = now_ns;
	start_run(0, 1, (uint32_t)child.pid, origin_ns + 5 * MS);
	past_is(origin_ns + 10 * MS, 5 * MS);
	end_run(0, 4 * MS); /* interrupts took the rest */
	now_ns = origin_ns + 10 * MS;
	ck_assert_uint_eq(tick(), 100 * S + 5 * MS);
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	end_run(0, 3 * MS);
	ck_assert_uint_eq(tick(), 100 * S + 7 * MS);
	close_source();
}
END_TEST

/* Else what it got of pages then would be read at a heartbeat only. */
START_TEST(what_ran_in_a_tick_that_was_put_together_is_read_as_if_it_was_looked_at)
{
	struct source_counters before, after;

	open_past_source();
	source_counters(rig.source, &before);
	start_run(0, 1, (uint32_t)child.pid, now_ns + 5 * MS);
	sums[1].changes += 10;
	end_run(0, MS);
	past_is(now_ns + 10 * MS, MS);
	now_ns += 10 * MS;
	ck_assert_uint_eq(tick(), 100 * S + MS);
	source_counters(rig.source, &after);
	ck_assert_uint_eq(after.looks - before.looks, 1);
	ck_assert_uint_eq(after.skipped_reads, before.skipped_reads);
	close_source();
}
END_TEST

START_TEST(what_ran_before_a_fill_is_in_no_tick_after_it)
{
	open_past_source();
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	end_run(0, MS / 2);
	start_run(0, 1, (uint32_t)child.pid, now_ns + 9 * MS); /* until after the fill */

	uint64_t at_fill = tick();

	ck_assert_uint_ge(at_fill, 100 * S + MS / 2 + MS);

	uint64_t looked_ns = source_entry_at(entry).ns;

	end_run(0, 5 * MS);
	past_is(now_ns + 10 * MS, now_ns + 4 * MS - looked_ns);
	now_ns += 10 * MS;
	ck_assert_uint_eq(tick(), 100 * S + MS / 2 + 5 * MS);
	close_source();
}
END_TEST

START_TEST(a_group_is_the_sum_of_its_members_in_ticks_that_are_put_together)
{
	struct source_entry *group, *members[2];

	open_past_source();
	group = add_group(&rig);
	for (unsigned i = 0; i < 2; i++) {
		members[i] = add_process(&rig, child.pid, true, group);
		base_ns[2 + i] = 200 * S;
		pids[2 + i] = (uint32_t)child.pid;
		source_entry_follow(members[i], 2 + i);
	}
	for (unsigned i = 0; i < 5; i++)
		tick();

	uint64_t origin_ns = now_ns, before_ns = value(group, SAMPLE_CPU);

	for (unsigned i = 0; i < 2; i++) {
		start_run(i, 2 + i, (uint32_t)child.pid, origin_ns + 2 * MS);
		end_run(i, MS);
	}
	ck_assert(source_fill_past(rig.source, (mono_t){ origin_ns + 10 * MS }));
	ck_assert_uint_eq(value(group, SAMPLE_CPU) - before_ns, 2 * MS);
	ck_assert(is_seen(group) && !is_seen(members[0]) && !is_seen(entry));
	ck_assert_uint_eq(source_entry_at(group).ns, origin_ns + 10 * MS);
	ck_assert(source_fill_past(rig.source, (mono_t){ origin_ns + 20 * MS }));
	ck_assert(!is_seen(group));
	now_ns = origin_ns + 20 * MS;
	rig.step_ns = 3 * MS; /* from one look at the clock to the next: the fill takes longer than a tick */
	tick();
	rig.step_ns = 0;
	ck_assert_uint_eq(value(group, SAMPLE_CPU) - before_ns, 2 * MS);

	/* Nothing is of a time before its last row. */
	mono_t last = source_entry_at(group);

	ck_assert_int_gt(mono_diff(last, (mono_t){ now_ns + 2 * MS }), 0);
	start_run(0, 2, (uint32_t)child.pid, last.ns + MS);
	end_run(0, MS);
	ck_assert(source_fill_past(rig.source, (mono_t){ now_ns + 2 * MS }));
	ck_assert(!is_seen(group));
	ck_assert_int_eq(mono_diff(source_entry_at(group), last), 0);
	ck_assert(source_fill_past(rig.source, (mono_t){ last.ns + 5 * MS }));
	ck_assert(is_seen(group));
	ck_assert_uint_eq(value(group, SAMPLE_CPU) - before_ns, 3 * MS);
	for (unsigned i = 0; i < 2; i++)
		drop(&rig, members[i]);
	drop(&rig, group);
	close_source();
}
END_TEST

START_TEST(it_is_calm_where_all_are_followed_and_none_uses_much)
{
	struct source_entry *other;

	open_past_source();
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	end_run(0, MS);
	tick();
	ck_assert_int_eq(calm(), SOURCE_CALM);
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	end_run(0, MS + 1);
	tick();
	ck_assert_int_eq(calm(), SOURCE_HOT);
	tick();
	ck_assert_int_eq(calm(), SOURCE_CALM);
	other = add_process(&rig, child.pid, true, NULL);
	tick();
	ck_assert_int_eq(calm(), SOURCE_PARTLY_FOLLOWED);
	drop(&rig, other);
	tick();
	ck_assert_int_eq(calm(), SOURCE_CALM);
	accounts.on = false;
	tick();
	ck_assert_int_eq(calm(), SOURCE_HOT);
	ck_assert(!source_fill_past(rig.source, (mono_t){ now_ns + MS }));
	ck_assert(!source_remember(rig.source, true));
	close_source();
}
END_TEST

static char tree[64];

static void set_usage(uint64_t cpu_ns)
{
	char name[128];

	snprintf(name, sizeof name, "%s/cpuacct/pod/cpuacct.usage", tree);

	FILE *out = fopen(name, "w");

	ck_assert_ptr_nonnull(out);
	ck_assert_int_gt(fprintf(out, "%llu\n", (unsigned long long)cpu_ns), 0);
	ck_assert_int_eq(fclose(out), 0);
}

static struct cgroup_mounts *open_cgroup_source(void)
{
	struct cgroup_mounts *mounts;
	char command[192];

	snprintf(tree, sizeof tree, "/tmp/check-accounts-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(tree));
	snprintf(command, sizeof command, "mkdir -p %s/cpuacct/pod", tree);
	ck_assert_int_eq(system(command), 0);
	set_usage(S);
	ck_assert_int_eq(cgroup_mounts_new("tests/data/proc", tree, &mounts), 0);
	bench_open(&rig, "tests/data/proc",
		   (struct source_options){ .interval_ns = 10 * MS,
					    .heartbeat_ns = S,
					    .cgroup_interval_ns = 100 * MS,
					    .accounts = &accounts });
	rig.at.ns = S;
	now_ns = S;
	ck_assert_int_eq(source_entry_cgroup(mounts, "/pod", NULL, &entry), 0);
	ck_assert_int_eq(source_add(rig.source, entry, NULL), 0);
	put_group(TOP, CPU_ACCOUNT_NONE, S);
	return mounts;
}

static void close_cgroup_source(struct cgroup_mounts *mounts)
{
	char command[128];

	drop(&rig, entry);
	bench_close(&rig);
	cgroup_mounts_free(mounts);
	snprintf(command, sizeof command, "rm -r %s", tree);
	ck_assert_int_eq(system(command), 0);
}

/* Its file, which says something else here, is read for the first sample and when the account is lost. */
START_TEST(the_cpu_time_of_a_cgroup_is_that_of_its_account_in_each_tick)
{
	struct cgroup_mounts *mounts = open_cgroup_source();
	uint64_t last_read = 0, reads = 0;

	ck_assert_uint_eq(tick(), S);
	ck_assert(!sample_has(source_entry_sample(entry), SAMPLE_FILES_READ));
	source_entry_follow(entry, CAPACITY + TOP);
	for (unsigned i = 0; i < 30; i++) {
		start_run_in(0, TOP, now_ns);
		end_run_in(0, 1000);
		ck_assert_uint_eq(tick(), S + 1000 * (i + 1));
		ck_assert_int_eq(source_entry_status(entry), SOURCE_CHANGED);
		ck_assert_int_le(mono_diff((mono_t){ now_ns }, source_entry_at(entry)), 0);
		/* All else is read every tenth tick. */
		ck_assert_uint_ge(source_entry_sample(entry)->value[SAMPLE_FILES_READ], now_ns - 110 * MS);
		reads += source_entry_sample(entry)->value[SAMPLE_FILES_READ] != last_read;
		last_read = source_entry_sample(entry)->value[SAMPLE_FILES_READ];
	}
	ck_assert_uint_ge(reads, 3);
	ck_assert_uint_le(reads, 5);
	for (unsigned i = 0; i < 30; i++)
		tick();
	ck_assert_int_eq(source_entry_status(entry), SOURCE_SAME);
	start_run_in(1, TOP, now_ns); /* one that goes on */
	ck_assert_uint_ge(tick(), S + 30000 + 10 * MS);

	set_usage(2 * S);
	accounts.group_version++;
	groups[TOP].lost = 1;
	accounts.group_version++;
	for (unsigned i = 0; i < 11; i++)
		tick();
	ck_assert_uint_eq(tick(), 2 * S);
	ck_assert(!sample_has(source_entry_sample(entry), SAMPLE_FILES_READ));
	close_cgroup_source(mounts);
}
END_TEST

START_TEST(a_cgroup_whose_file_is_behind_its_account_does_not_step_back)
{
	struct cgroup_mounts *mounts = open_cgroup_source();

	source_entry_follow(entry, CAPACITY + TOP);
	add_to_cell(0, TOP, 500 * MS);
	ck_assert_uint_eq(tick(), S + 500 * MS);
	accounts.on = false;
	set_usage(S + 400 * MS);
	for (unsigned i = 0; i < 20; i++)
		ck_assert_uint_eq(tick(), S + 500 * MS);
	set_usage(S + 600 * MS);
	for (unsigned i = 0; i < 20; i++)
		tick();
	ck_assert_uint_eq(tick(), S + 600 * MS);
	close_cgroup_source(mounts);
}
END_TEST

START_TEST(a_cgroup_is_in_ticks_that_are_put_together_too)
{
	struct cgroup_mounts *mounts = open_cgroup_source();
	uint64_t origin_ns;

	source_entry_follow(entry, CAPACITY + TOP);
	for (unsigned i = 0; i < 5; i++)
		tick();
	ck_assert(source_remember(rig.source, true));
	tick();
	ck_assert_int_eq(calm(), SOURCE_CALM);
	origin_ns = now_ns;
	start_run_in(0, TOP, origin_ns + 9 * MS);
	end_run_in(0, 3 * MS);
	past_is(origin_ns + 10 * MS, MS);
	past_is(origin_ns + 20 * MS, 2 * MS);
	now_ns = origin_ns + 20 * MS;
	ck_assert_uint_eq(tick(), S + 3 * MS);
	ck_assert_int_eq(calm(), SOURCE_HOT);
	close_cgroup_source(mounts);
}
END_TEST

/* How often its files were read in 50 ticks, in each of which it runs for a millisecond. */
static uint64_t reads_while_it_runs(uint64_t faults)
{
	struct source_counters before, after;

	source_counters(rig.source, &before);
	for (unsigned i = 0; i < 50; i++) {
		start_run(0, 1, (uint32_t)child.pid, now_ns);
		sums[1].changes += faults;
		end_run(0, MS);
		tick();
	}
	source_counters(rig.source, &after);

	return 50 - (after.skipped_reads - before.skipped_reads);
}

START_TEST(files_are_read_as_often_as_pages_or_threads_change)
{
	open_source_with(100 * MS);
	for (unsigned i = 0; i < 5; i++)
		tick();
	reads_while_it_runs(0);
	ck_assert_uint_le(reads_while_it_runs(0), 6); /* every 10 ms of its CPU time, and a heartbeat */
	ck_assert_uint_ge(reads_while_it_runs(1), 49);
	ck_assert_uint_le(reads_while_it_runs(0), 7);
	close_source();
}
END_TEST

/* Of a process that sleeps so long. */
static uint64_t reads_in(uint64_t ns)
{
	struct source_counters before, after;

	source_counters(rig.source, &before);
	for (uint64_t end_ns = now_ns + ns; now_ns < end_ns;)
		tick();
	source_counters(rig.source, &after);

	return after.looks - before.looks - (after.skipped_reads - before.skipped_reads);
}

START_TEST(what_sleeps_is_read_once_a_minute_and_again_soon_without_accounts)
{
	open_source();
	ck_assert_uint_le(reads_in(55 * S), 5);
	reads_in(60 * S);
	ck_assert_uint_ge(reads_in(122 * S), 2);
	ck_assert_uint_le(reads_in(122 * S), 3);
	tick();
	accounts.on = false;
	ck_assert_uint_ge(reads_in(S + S / 2), 1);
	close_source();
}
END_TEST

START_TEST(what_sleeps_is_read_every_ten_minutes_while_no_pages_are_taken_from_any)
{
	open_source();
	accounts.reclaimed = 0;
	reads_in(70 * S);
	ck_assert_uint_eq(reads_in(500 * S), 0);
	ck_assert_uint_eq(reads_in(100 * S), 1);
	ck_assert_uint_eq(reads_in(70 * S), 0);
	accounts.reclaimed = 1;
	ck_assert_uint_eq(reads_in(61 * S), 1);
	ck_assert_uint_eq(reads_in(61 * S), 0);
	accounts.reclaimed = UINT64_MAX;
	ck_assert_uint_ge(reads_in(122 * S), 2);
	close_source();
}
END_TEST

START_TEST(what_sleeps_is_read_as_much_more_often_as_the_heartbeat_is_shorter)
{
	open_source_of((struct kind){ .heartbeat_ns = 100 * MS });
	accounts.reclaimed = 0;
	reads_in(30 * S);
	ck_assert_uint_ge(reads_in(170 * S), 2);
	ck_assert_uint_le(reads_in(170 * S), 3);
	close_source();
}
END_TEST

/* They came together, and are not read together. */
START_TEST(those_that_sleep_are_read_in_turn)
{
	struct source_entry *sleepers[SLEEPERS];
	uint64_t reads, most = 0, sum = 0;

	open_source();
	for (unsigned i = 0; i < SLEEPERS; i++) {
		sleepers[i] = add_process(&rig, child.pid, true, NULL);
		source_entry_follow(sleepers[i], 1);
	}
	reads_in(5 * S);
	for (unsigned i = 0; i < 6000; i++) {
		reads = reads_in(10 * MS);
		most = reads > most ? reads : most;
		sum += reads;
	}
	ck_assert_uint_le(most, 3);
	ck_assert_uint_ge(sum, SLEEPERS - 8);
	ck_assert_uint_le(sum, SLEEPERS * 5 / 4);
	for (unsigned i = 0; i < SLEEPERS; i++)
		drop(&rig, sleepers[i]);
	close_source();
}
END_TEST

static size_t shown_in(uint64_t ns)
{
	size_t sum = 0, count;

	for (uint64_t end_ns = now_ns + ns; now_ns < end_ns; sum += count) {
		tick();
		source_seen(rig.source, &count);
	}
	return sum;
}

/* All were shown within a second. The heartbeat is a second at first. */
START_TEST(those_that_stand_still_are_shown_in_turn_after_a_heartbeat_of_another_length)
{
	struct source_entry *sleepers[SLEEPERS];
	size_t shown, sum = 0;

	open_source();
	for (unsigned i = 0; i < SLEEPERS; i++) {
		sleepers[i] = add_process(&rig, child.pid, true, NULL);
		source_entry_follow(sleepers[i], 1);
	}
	ck_assert_uint_ge(shown_in(5 * S), 4 * SLEEPERS);
	source_set_heartbeat(rig.source, 8 * S);
	shown_in(16 * S);
	for (unsigned i = 0; i < 8; i++, sum += shown) {
		shown = shown_in(S);
		ck_assert_uint_ge(shown, SLEEPERS / 8 / 2);
		ck_assert_uint_le(shown, SLEEPERS / 8 * 2);
	}
	ck_assert_uint_ge(sum, SLEEPERS - 8);
	ck_assert_uint_le(sum, SLEEPERS + 8);
	for (unsigned i = 0; i < SLEEPERS; i++)
		drop(&rig, sleepers[i]);
	close_source();
}
END_TEST

/* In so many ticks, at the end of each of which it has been running for 20 us. */
static uint64_t reads_while_it_ticks(unsigned ticks, uint64_t faults)
{
	struct source_counters before, after;

	source_counters(rig.source, &before);
	for (unsigned i = 0; i < ticks; i++) {
		start_run(0, 1, (uint32_t)child.pid, now_ns + 10 * MS - 20000);
		sums[1].changes += faults;
		tick();
		end_run(0, 20000);
	}
	source_counters(rig.source, &after);
	return ticks - (after.skipped_reads - before.skipped_reads);
}

START_TEST(what_runs_for_moments_and_gets_no_pages_is_read_every_few_seconds)
{
	open_source_with(100 * MS);
	for (unsigned i = 0; i < 5; i++)
		tick();
	reads_while_it_ticks(300, 0);
	ck_assert_uint_le(reads_while_it_ticks(2000, 0), 6); /* 10 ms of CPU time in 5 s */
	ck_assert_uint_ge(reads_while_it_ticks(200, 1), 15); /* in each tenth of a second */
	source_entry_need(entry, false, true);
	reads_while_it_ticks(300, 0);
	ck_assert_uint_ge(reads_while_it_ticks(2000, 0), 19); /* its descriptors are counted each second */
	close_source();
}
END_TEST

/* Its high-water mark and its descriptors have intervals of their own. */
START_TEST(what_gets_no_pages_is_read_for_all_that_is_pending_at_once)
{
	open_source_of((struct kind){ 100 * MS, .peak_interval_ns = 100 * MS, .closed = _i });
	reads_while_it_ticks(200, 1);
	reads_while_it_ticks(300, 0);
	ck_assert_uint_le(reads_while_it_ticks(2000, 0), 6);
	tick();
	ck_assert_uint_le(reads_in(10 * S), 3); /* what was left to be read is, soon after it ran the last time */
	ck_assert_uint_le(reads_in(50 * S), 2);
	close_source();
}
END_TEST

START_TEST(while_a_run_goes_on_its_pages_are_not_known)
{
	open_source_with(100 * MS);
	for (unsigned i = 0; i < 5; i++)
		tick();
	start_run(0, 1, (uint32_t)child.pid, now_ns);
	tick();

	struct source_counters before, after;

	source_counters(rig.source, &before);
	for (unsigned i = 0; i < 20; i++)
		tick();
	source_counters(rig.source, &after);
	ck_assert_uint_eq(after.skipped_reads, before.skipped_reads);
	end_run(0, 210 * MS);
	close_source();
}
END_TEST

Suite *cpu_accounts_suite(void)
{
	Suite *suite = suite_create("cpu_accounts");
	TCase *tcase = tcase_create("reader");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_ran_is_told_once_and_what_sleeps_is_not);
	tcase_add_test(tcase, a_run_that_goes_on_counts_until_now_on_each_cpu);
	tcase_add_test(tcase, a_run_that_ends_between_two_looks_counts_once);
	tcase_add_test(tcase, a_run_that_is_older_than_its_account_is_found);
	tcase_add_test(tcase, a_log_that_is_too_short_is_said);
	tcase_add_test(tcase, a_slot_that_is_being_written_is_not_believed);
	tcase_add_test(tcase, what_ran_in_a_cgroup_is_in_those_above_it_and_in_no_other);
	tcase_add_test(tcase, a_run_that_ends_while_it_is_looked_at_is_not_lost);
	tcase_add_test(tcase, a_run_that_was_moved_counts_where_it_was_in_turns);
	tcase_add_test(tcase, a_tree_that_changes_moves_nothing_twice);
	tcase_add_test(tcase, a_run_of_what_had_the_number_before_is_in_no_cgroup);
	tcase_add_test(tcase, a_reader_that_comes_later_knows_what_was_counted_before);
	tcase_add_test(tcase, a_cgroup_that_is_not_in_a_log_for_want_of_room_is_read_all_the_same);
	tcase_add_test(tcase, what_ran_is_told_by_time);
	tcase_add_test(tcase, what_ran_in_a_cgroup_is_told_of_those_above_it);
	tcase_add_test(tcase, of_a_run_that_was_moved_nothing_is_told_of_cgroups);
	tcase_add_test(tcase, runs_that_were_forgotten_are_said_and_later_ones_are_told);
	tcase_add_test(tcase, runs_that_are_forgotten_while_they_are_read_are_said);
	tcase_add_test(tcase, a_thread_that_is_in_two_slots_ran_where_it_came_last);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("source");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, the_cpu_time_of_a_process_is_that_of_its_account);
	tcase_add_test(tcase, a_process_is_shown_at_heartbeats_though_it_sleeps);
	tcase_add_test(tcase, a_sum_never_steps_back);
	tcase_add_test(tcase, a_row_is_of_the_moment_in_which_the_account_was_asked_however_long_the_files_take);
	tcase_add_test(tcase, a_row_without_account_is_of_before_its_files_were_read);
	tcase_add_test(tcase, of_a_process_whose_slot_cannot_be_read_nothing_is_said);
	tcase_add_test(tcase, what_began_to_run_while_another_one_was_read_is_counted);
	tcase_add_test(tcase, a_thread_runs_where_it_came_last);
	tcase_add_test(tcase, runs_are_wanted_no_longer_than_they_are_remembered);
	tcase_add_test(tcase, waiting_for_a_cpu_grows_as_it_is_told_and_is_unavailable_without);
	tcase_add_test(tcase, without_accounts_it_is_the_clock_again_and_does_not_step_back);
	tcase_add_test(tcase, an_account_that_has_lost_a_run_is_not_believed);
	tcase_add_test(tcase, a_process_that_ended_is_found_gone_with_all_that_it_used);
	tcase_add_test(tcase, several_targets_of_one_process_have_one_account);
	tcase_add_test(tcase, the_cpu_time_of_a_cgroup_is_that_of_its_account_in_each_tick);
	tcase_add_test(tcase, a_cgroup_whose_file_is_behind_its_account_does_not_step_back);
	tcase_add_test(tcase, files_are_read_as_often_as_pages_or_threads_change);
	tcase_add_test(tcase, what_sleeps_is_read_once_a_minute_and_again_soon_without_accounts);
	tcase_add_test(tcase, what_sleeps_is_read_every_ten_minutes_while_no_pages_are_taken_from_any);
	tcase_add_test(tcase, what_sleeps_is_read_as_much_more_often_as_the_heartbeat_is_shorter);
	tcase_add_test(tcase, those_that_sleep_are_read_in_turn);
	tcase_add_test(tcase, those_that_stand_still_are_shown_in_turn_after_a_heartbeat_of_another_length);
	tcase_add_test(tcase, what_runs_for_moments_and_gets_no_pages_is_read_every_few_seconds);
	tcase_add_loop_test(tcase, what_gets_no_pages_is_read_for_all_that_is_pending_at_once, 0, 2);
	tcase_add_test(tcase, while_a_run_goes_on_its_pages_are_not_known);
	suite_add_tcase(suite, tcase);
	tcase = tcase_create("past");
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, ticks_that_are_put_together_afterwards_have_what_was_used_until_then);
	tcase_add_test(tcase, a_sum_does_not_step_back_after_a_tick_that_was_put_together);
	tcase_add_test(tcase, what_ran_in_a_tick_that_was_put_together_is_read_as_if_it_was_looked_at);
	tcase_add_test(tcase, what_ran_before_a_fill_is_in_no_tick_after_it);
	tcase_add_test(tcase, a_group_is_the_sum_of_its_members_in_ticks_that_are_put_together);
	tcase_add_test(tcase, it_is_calm_where_all_are_followed_and_none_uses_much);
	tcase_add_test(tcase, a_cgroup_is_in_ticks_that_are_put_together_too);
	suite_add_tcase(suite, tcase);
	return suite;
}
