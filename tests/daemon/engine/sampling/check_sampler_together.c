/*
 * check_sampler_together.c: ticks that are slept through and put together afterwards, by the real
 * scheduler's accounts, against what the process itself says of its CPU time.
 */
#include "daemon/engine/kernel/kernel_accounts.h"
#include "sampler_rig.h"
#include "skip.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

Suite *sampler_together_suite(void);

#ifndef SPIKEWATCH_WITHOUT_SWITCHES

#define INTERVAL (10 * NS_PER_MS)
#define READ (50 * NS_PER_MS)
#define BURSTS 60

/* Of switches and of interrupts, which its clock has or has not. */
#define CLOCK_TOLERANCE_NS (100 * NS_PER_US)

/* A process that runs now and then, and says when, and what its CPU clock said then. */
struct worker {
	pid_t pid;
	struct burst {
		uint64_t began_ns, began_cpu_ns, ended_ns, ended_cpu_ns;
	} * bursts;
	_Atomic uint32_t *done;
};

static struct sampler_rig rig;
static struct kernel_accounts *accounts;
static struct sampler_options options;
static int alarm_fd;

static uint64_t now_of(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void work(const struct worker *worker, uint64_t burst_ns, uint64_t pause_ns)
{
	for (uint32_t i = 0; i < BURSTS; i++) {
		struct timespec pause = { .tv_nsec = (long)(pause_ns + i % 7 * NS_PER_MS) };
		struct burst *burst = &worker->bursts[i];

		nanosleep(&pause, NULL);
		burst->began_ns = now_of(CLOCK_MONOTONIC);
		burst->began_cpu_ns = now_of(CLOCK_PROCESS_CPUTIME_ID);
		while (now_of(CLOCK_PROCESS_CPUTIME_ID) - burst->began_cpu_ns < burst_ns)
			;
		burst->ended_cpu_ns = now_of(CLOCK_PROCESS_CPUTIME_ID);
		burst->ended_ns = now_of(CLOCK_MONOTONIC);
		atomic_store(worker->done, i + 1);
	}
	for (;;)
		pause();
}

static struct worker start_worker(uint64_t burst_ns, uint64_t pause_ns)
{
	struct worker worker;
	char *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(shared, MAP_FAILED);
	worker.bursts = (void *)shared;
	worker.done = (void *)(shared + 4096);
	worker.pid = fork();
	ck_assert_int_ge(worker.pid, 0);
	if (worker.pid == 0)
		work(&worker, burst_ns, pause_ns);
	return worker;
}

static void end_worker(const struct worker *worker)
{
	kill(worker->pid, SIGKILL);
	ck_assert_int_eq(waitpid(worker->pid, NULL, 0), worker->pid);
	munmap(worker->bursts, 8192);
}

/* False: the scheduler's accounts cannot be had here. */
static bool setup_with(uint64_t read_interval_ns)
{
	struct kernel_accounts_options of_accounts = { .capacity = 64 };
	struct ring_options ring_options = { .size_bytes = 1 << 20, .page_bytes = 16384, .heartbeat_ns = NS_PER_S };
	char reason[KERNEL_ACCOUNTS_REASON_MAX];

	rig_begin(&rig);
	of_accounts.procfd = rig.procfd;
	accounts = NULL;
	if (kernel_accounts_open(&of_accounts, &accounts, reason) < 0)
		return skip_because("%s", reason);
	options = (struct sampler_options){ .source = { .capacity = 64,
							.interval_ns = INTERVAL,
							.heartbeat_ns = NS_PER_S,
							.idle_interval_ns = 100 * NS_PER_MS,
							.peak_interval_ns = UINT64_MAX,
							.accounts = kernel_accounts_shared(accounts) },
					    .read_interval_ns = read_interval_ns };
	ck_assert_int_eq(ring_create_anonymous(&ring_options, &rig.ring), 0);
	ck_assert_int_eq(samplers_new(&options, 1, rig.ring, &rig.samplers), 0);
	alarm_fd = samplers_open_alarm(rig.samplers);
	ck_assert_int_ge(alarm_fd, 0);
	return true;
}

static void teardown(void)
{
	rig_end(&rig);
	kernel_accounts_close(accounts);
}

static void watch(int i, pid_t pid)
{
	struct kernel_accounts_watched what = { .pid = pid };
	uint32_t account;
	int r = -EAGAIN; /* it was running in a switch that was not seen, or on and on */

	for (unsigned tries = 0; r == -EAGAIN && tries < 1000; tries++) {
		r = kernel_accounts_watch(accounts, &what, &account);
		usleep(1000);
	}
	ck_assert_int_eq(r, 0);
	rig_add_process(&rig, i, pid, NULL);
	source_entry_follow(rig.watched[i].sampled.entry, account);
}

/* A worker that is watched. False: the scheduler's accounts cannot be had here. */
static bool begin(uint64_t read_interval_ns, uint64_t burst_ns, struct worker *ret)
{
	if (!setup_with(read_interval_ns)) {
		teardown();
		return false;
	}
	*ret = start_worker(burst_ns, 13 * NS_PER_MS);
	watch(0, ret->pid);
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	return true;
}

static void finish(const struct worker *worker)
{
	end_worker(worker);
	teardown();
}

static void await(const struct worker *worker, uint32_t bursts)
{
	while (atomic_load(worker->done) < bursts)
		usleep(5000);
	usleep(200000);
}

/* What it had used until then, at least and at most. */
static void bounds_at(const struct worker *worker, uint64_t at_ns, uint64_t *ret_least, uint64_t *ret_most)
{
	const struct burst *bursts = worker->bursts;
	uint32_t i = 0;

	while (i < BURSTS && bursts[i].ended_ns <= at_ns)
		i++;
	*ret_least = i > 0 ? bursts[i - 1].ended_cpu_ns : 0;
	*ret_most = UINT64_MAX;
	if (i < BURSTS)
		*ret_most = at_ns < bursts[i].began_ns ? bursts[i].began_cpu_ns : bursts[i].ended_cpu_ns;
	if (i < BURSTS && at_ns >= bursts[i].began_ns)
		*ret_least = bursts[i].began_cpu_ns;
}

struct rows {
	uint64_t ticks, rows, apart; /* ticks one interval after the one before, to the nanosecond */
	uint64_t wrong;
	mono_t tick, row;
	uint64_t cpu_ns;
};

/* Rows of target 1 against what the worker says. */
static void read_rows(const struct worker *worker, struct rows *rows)
{
	struct ring_cursor *cursor;
	struct ring_event event;
	uint64_t least_ns, most_ns;

	*rows = (struct rows){ 0 };
	ck_assert_int_eq(ring_cursor_new(rig.ring, RING_OLDEST, &cursor), 0);
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type == RING_EVENT_TICK) {
			ck_assert_int_gt(mono_diff(event.time, rows->tick), 0);
			rows->ticks++;
			rows->apart += mono_diff(event.time, rows->tick) == (int64_t)INTERVAL;
			rows->tick = event.time;
		}
		if (event.type != RING_EVENT_SAMPLE || event.id != 1)
			continue;
		bounds_at(worker, event.time.ns, &least_ns, &most_ns);
		ck_assert_int_ge(mono_diff(event.time, rows->row), 0);
		ck_assert_uint_ge(event.sample->value[SAMPLE_CPU], rows->cpu_ns);
		rows->row = event.time;
		rows->cpu_ns = event.sample->value[SAMPLE_CPU];
		rows->rows++;
		rows->wrong += rows->cpu_ns + CLOCK_TOLERANCE_NS < least_ns ||
			       (most_ns != UINT64_MAX && rows->cpu_ns > most_ns + CLOCK_TOLERANCE_NS);
	}
	ring_cursor_free(cursor);
}

START_TEST(each_tick_has_what_was_used_until_then)
{
	struct worker worker;
	struct stats stats;
	struct rows rows;

	if (!begin(READ, 200 * NS_PER_US, &worker))
		return;
	await(&worker, BURSTS);
	samplers_stop(rig.samplers);
	samplers_stats(rig.samplers, &stats);
	read_rows(&worker, &rows);

	ck_assert_uint_eq(rows.ticks, stats.total_snapshots + 1); /* a last look */
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);
	ck_assert_uint_ge(stats.past_snapshots, stats.total_snapshots / 4);
	ck_assert_uint_ge(rows.apart, stats.past_snapshots / 2); /* such ticks are on time */
	ck_assert_uint_ge(rows.rows, BURSTS / 2);
	/* Now and then both ends of a run are hidden from tracing, see switches.bpf.c. */
	ck_assert_uint_le(rows.wrong, rows.rows / 20);
	finish(&worker);
}
END_TEST

/* What uses much is looked at in each tick. */
START_TEST(nothing_is_slept_through_while_something_is_hot)
{
	struct worker worker;
	struct stats before, after;

	if (!begin(READ, 20 * NS_PER_S, &worker))
		return;
	usleep(300000);
	ck_assert_int_eq(samplers_thread_stats(rig.samplers, 0, &before), 0);
	usleep(500000);
	ck_assert_int_eq(samplers_thread_stats(rig.samplers, 0, &after), 0);
	ck_assert_uint_gt(after.total_snapshots, before.total_snapshots);
	ck_assert_uint_eq(after.past_snapshots, before.past_snapshots);
	samplers_stop(rig.samplers);
	finish(&worker);
}
END_TEST

START_TEST(without_a_read_interval_each_tick_is_read)
{
	struct worker worker;
	struct stats stats;

	if (!begin(0, 200 * NS_PER_US, &worker))
		return;
	await(&worker, BURSTS / 2);
	samplers_stop(rig.samplers);
	samplers_stats(rig.samplers, &stats);
	ck_assert_uint_gt(stats.total_snapshots, 0);
	ck_assert_uint_eq(stats.past_snapshots, 0);
	finish(&worker);
}
END_TEST

/* It is retuned in the middle of a sleep, again and again. */
START_TEST(no_slot_is_lost_when_options_change)
{
	struct worker worker;
	struct stats stats;

	if (!begin(READ, 100 * NS_PER_US, &worker))
		return;
	for (unsigned i = 0; i < 20; i++) {
		usleep(90000);
		options.source.heartbeat_ns = NS_PER_S + i;
		ck_assert_int_eq(samplers_retune(rig.samplers, &options), 0);
	}
	samplers_stop(rig.samplers);
	samplers_stats(rig.samplers, &stats);
	ck_assert_uint_gt(stats.past_snapshots, 0);
	ck_assert_uint_eq(stats.total_slots, stats.total_snapshots + stats.missed_slots);
	/* Where the machine had no time for it for a while; 20 sleeps that were lost are 80. */
	ck_assert_uint_le(stats.missed_slots, 40);
	finish(&worker);
}
END_TEST

/* It does not wait for the end of a sleep that is longer than the test. */
START_TEST(what_is_handed_over_ends_a_sleep)
{
	struct worker worker, other;
	unsigned soon = 0;

	if (!begin(100 * NS_PER_MS, 100 * NS_PER_US, &worker))
		return;
	other = start_worker(100 * NS_PER_US, 13 * NS_PER_MS);
	for (int i = 1; i <= 12; i++) {
		usleep(400000 + 7000 * (useconds_t)i);

		watch(i, other.pid);

		uint64_t added_ns = now_of(CLOCK_MONOTONIC);

		while (rig.seen.last[i + 1].mask == 0) {
			usleep(1000);
			rig_read_ring(&rig);
		}
		soon += now_of(CLOCK_MONOTONIC) - added_ns < 30 * NS_PER_MS;
	}
	samplers_stop(rig.samplers);
	/* By chance a sleep ends in time three times in ten. */
	ck_assert_uint_ge(soon, 8);
	end_worker(&other);
	finish(&worker);
}
END_TEST

START_TEST(it_is_roused_from_a_sleep)
{
	struct worker worker;
	struct stats before, after;
	unsigned soon = 0;

	if (!begin(100 * NS_PER_MS, 100 * NS_PER_US, &worker))
		return;
	await(&worker, BURSTS);
	for (unsigned i = 0; i < 20; i++) {
		usleep(130000 + 7000 * i);
		ck_assert_int_eq(samplers_thread_stats(rig.samplers, 0, &before), 0);
		samplers_rouse(rig.samplers);
		usleep(30000);
		ck_assert_int_eq(samplers_thread_stats(rig.samplers, 0, &after), 0);
		soon += after.total_snapshots > before.total_snapshots;
	}
	samplers_stop(rig.samplers);
	samplers_stats(rig.samplers, &after);
	ck_assert_uint_gt(after.past_snapshots, 0);
	/* By chance a sleep ends in time three times in ten. */
	ck_assert_uint_ge(soon, 14);
	finish(&worker);
}
END_TEST

static bool goes_off(int timeout_ms)
{
	return poll(&(struct pollfd){ .fd = alarm_fd, .events = POLLIN }, 1, timeout_ms) == 1;
}

START_TEST(while_ticks_are_slept_through_an_alarm_may_wait)
{
	static const mono_t never = { UINT64_MAX };
	struct worker worker;
	struct stats stats;

	if (!begin(READ, 100 * NS_PER_US, &worker))
		return;
	await(&worker, BURSTS);
	do {
		usleep(1000);
		ck_assert_int_eq(samplers_thread_stats(rig.samplers, 0, &stats), 0);
	} while (stats.past_snapshots == 0);
	samplers_set_alarm(rig.samplers, (mono_t){ 1 }, never);
	ck_assert(!goes_off(300));
	samplers_set_alarm(rig.samplers, (mono_t){ 1 }, (mono_t){ 2 });
	ck_assert(goes_off(10000));
	samplers_stop(rig.samplers);
	finish(&worker);
}
END_TEST

START_TEST(an_alarm_does_not_wait_while_something_is_hot)
{
	static const mono_t never = { UINT64_MAX };
	struct worker worker;

	if (!begin(READ, 20 * NS_PER_S, &worker))
		return;
	usleep(300000);
	samplers_set_alarm(rig.samplers, (mono_t){ 1 }, never);
	ck_assert(goes_off(10000));
	samplers_stop(rig.samplers);
	finish(&worker);
}
END_TEST

#endif

Suite *sampler_together_suite(void)
{
	Suite *suite = suite_create("sampler_together");
	TCase *tcase = tcase_create("together");

	tcase_set_timeout(tcase, 120);
#ifndef SPIKEWATCH_WITHOUT_SWITCHES
	tcase_add_test(tcase, each_tick_has_what_was_used_until_then);
	tcase_add_test(tcase, nothing_is_slept_through_while_something_is_hot);
	tcase_add_test(tcase, without_a_read_interval_each_tick_is_read);
	tcase_add_test(tcase, no_slot_is_lost_when_options_change);
	tcase_add_test(tcase, what_is_handed_over_ends_a_sleep);
	tcase_add_test(tcase, it_is_roused_from_a_sleep);
	tcase_add_test(tcase, while_ticks_are_slept_through_an_alarm_may_wait);
	tcase_add_test(tcase, an_alarm_does_not_wait_while_something_is_hot);
#endif
	suite_add_tcase(suite, tcase);
	return suite;
}
