/*
 * check_source_idle.c: what does not change is looked at less and less often, and what wakes is not
 * missed.
 */
#include "lib/model/pacing.h"
#include "source_rig.h"
#include "lib/base/base.h"

#include <pthread.h>
#include <sys/prctl.h>
#include <sys/stat.h>

Suite *source_idle_suite(void);

#define MS NS_PER_MS
#define INTERVAL (10 * MS)
#define IDLE (100 * MS)
#define MANY 80

static const struct source_options backing_off = {
	.capacity = MANY + 4,
	.heartbeat_ns = 1000 * S,
	.peak_interval_ns = UINT64_MAX,
	.interval_ns = INTERVAL,
	.idle_interval_ns = IDLE,
	.backoff = SOURCE_BACKOFF_ALL,
};

static struct bench bench;
static uint64_t now;

static void begin(const char *proc_root, struct source_options options)
{
	bench_open(&bench, proc_root, options);
	now = 7 * S;
}

/* A fill at `now`, with the clock of the reads at the same time. */
static void fill_now(void)
{
	bench.at.ns = now;
	source_fill(bench.source, (mono_t){ now });
}

static void pass(uint64_t ns)
{
	for (uint64_t until = now + ns; now < until; now += INTERVAL)
		fill_now();
}

static bool was_looked_at(const struct source_entry *entry)
{
	return source_entry_at(entry).ns >= now;
}

/* The clock of the reads is a little further each time. */
static bool is_as_of(const struct source_entry *entry, uint64_t ns)
{
	return source_entry_at(entry).ns >= ns && source_entry_at(entry).ns < ns + MS;
}

static bool is_seen(const struct source_entry *entry)
{
	size_t count;
	struct source_entry *const *seen = source_seen(bench.source, &count);

	for (size_t i = 0; i < count; i++)
		if (seen[i] == entry)
			return true;
	return false;
}

static uint64_t saved(void)
{
	struct source_counters counters;

	source_counters(bench.source, &counters);
	return counters.saved_looks;
}

/*
 * What a reader goes by: at every tick the last look is no longer ago than follows from the last
 * change.
 */
static void keeps_the_promise(const struct source_entry *entry, mono_t changed, uint64_t idle_ns)
{
	int64_t ago = mono_diff((mono_t){ now }, source_entry_at(entry));
	int64_t still = mono_diff((mono_t){ now }, changed);

	if (ago > 0)
		ck_assert_uint_le((uint64_t)ago, idle_backoff_bound_ns((uint64_t)still, idle_ns));
}

START_TEST(an_idle_process_is_looked_at_ever_less_often_down_to_the_idle_interval)
{
	struct child child = child_start();
	uint64_t last, longest = 0, looks = 0;

	begin("/proc", backing_off);
	struct source_entry *entry = add_process(&bench, child.pid, _i == 0, NULL);
	fill_now();
	mono_t changed = source_entry_at(entry);
	last = now;
	for (unsigned i = 0; i < 300; i++) {
		now += INTERVAL;
		fill_now();
		keeps_the_promise(entry, changed, IDLE);
		if (!was_looked_at(entry))
			continue;
		ck_assert_uint_le(now - last, IDLE);
		if (now - changed.ns <= 150 * MS)
			ck_assert_uint_eq(now - last, INTERVAL);
		longest = now - last > longest ? now - last : longest;
		last = now;
		looks += now - changed.ns > 2 * S;
	}
	ck_assert_uint_eq(longest, IDLE);
	ck_assert_uint_eq(looks, 10); /* of the last second */
	ck_assert_uint_gt(saved(), 200);
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(what_wakes_is_told_with_all_that_it_used_and_since_when)
{
	struct child child = child_start();
	mono_t before = { 0 };

	begin("/proc", backing_off);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	pass(2 * S);
	ck_assert_uint_gt(saved(), 0);
	while (was_looked_at(entry)) {
		now += INTERVAL;
		fill_now();
	}

	mono_t last = source_entry_at(entry);
	uint64_t cpu_ns = value(entry, SAMPLE_CPU), woken = now;

	child_do(&child, 'b');
	do {
		now += INTERVAL;
		fill_now();
		ck_assert_uint_le(now, last.ns + IDLE + INTERVAL);
	} while (!was_looked_at(entry));
	ck_assert_int_eq(source_entry_status(entry), SOURCE_CHANGED);
	ck_assert(is_seen(entry));
	ck_assert_uint_ge(value(entry, SAMPLE_CPU), cpu_ns + BURNT_NS);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU), (uint64_t)cpu_of(child.pid));
	ck_assert(source_entry_woke(entry, &before));
	ck_assert_uint_eq(before.ns, last.ns);
	ck_assert_uint_lt(before.ns, woken);

	/* From now on in every fill, and there is nothing to be told of a pause. */
	child_do(&child, 'b');
	for (unsigned i = 0; i < 15; i++) {
		now += INTERVAL;
		fill_now();
		ck_assert(was_looked_at(entry));
		ck_assert(!source_entry_woke(entry, &before));
	}
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

/* In a /proc made of files: its stat says `text`, of which so much can be read. */
static void say(int fd, const char *text, size_t len)
{
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert_int_eq(pwrite(fd, text, len, 0), (ssize_t)len);
}

START_TEST(what_could_not_be_read_for_a_while_is_told_since_when)
{
	static const char slept[] = "7 (x) S 1 7 7 0 -1 0 1 0 2 0 3 4 0 0 20 0 1 0 5 0 0\n";
	static const char woke[] = "7 (x) S 1 7 7 0 -1 0 1 0 2 0 90 90 0 0 20 0 1 0 5 0 0\n";
	char root[] = "/tmp/spikewatch-source-XXXXXX", dir[64], path[80];
	mono_t before = { 0 };

	ck_assert_ptr_nonnull(mkdtemp(root));
	snprintf(dir, sizeof(dir), "%s/7", root);
	snprintf(path, sizeof(path), "%s/stat", dir);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	say(fd, slept, strlen(slept));
	begin(root, backing_off);
	struct source_entry *entry = add_process(&bench, 7, false, NULL);
	pass(2 * S);
	ck_assert_uint_gt(saved(), 0);

	mono_t last = source_entry_at(entry);

	say(fd, woke, strlen(woke) - 12); /* the CPU time, but not all there is */
	pass(3 * S);
	ck_assert_int_eq(source_entry_status(entry), SOURCE_SAME);
	ck_assert(!is_seen(entry));
	ck_assert_int_lt(mono_diff(source_entry_at(entry), mono_add(last, 2 * IDLE)), 0);
	last = source_entry_at(entry);
	source_read_all_now(bench.source);
	fill_now();
	ck_assert(!is_seen(entry)); /* its state is not known */
	now += INTERVAL;
	say(fd, woke, strlen(woke));
	fill_now();
	ck_assert_int_eq(source_entry_status(entry), SOURCE_CHANGED);
	ck_assert(is_seen(entry));
	ck_assert(source_entry_woke(entry, &before));
	ck_assert_uint_eq(before.ns, last.ns);
	drop(&bench, entry);
	bench_close(&bench);
	close(fd);
	unlink(path);
	rmdir(dir);
	rmdir(root);
}
END_TEST

START_TEST(the_promise_holds_however_ticks_come)
{
	struct child child = child_start();
	uint32_t seed = 1;

	begin("/proc", backing_off);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	fill_now();
	mono_t changed = source_entry_at(entry);
	for (unsigned i = 0; i < 3000; i++) {
		seed = seed * 1664525 + 1013904223;
		now += seed >> 28 == 0 ? (seed >> 8) % (2 * S) : 1 + (seed >> 8) % (3 * INTERVAL);
		if (seed % 64 == 0) /* as the cpu budget does */
			source_set_interval(bench.source, INTERVAL << (seed >> 6) % 5);
		fill_now();
		keeps_the_promise(entry, changed, IDLE);
	}
	ck_assert_uint_gt(saved(), 500);
	now += 50 * 3600 * S; /* a stopped process, longer than due times can be compared */
	fill_now();
	ck_assert(was_looked_at(entry));
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(looks_at_many_idle_ones_are_spread_over_ticks)
{
	struct source_entry *entries[MANY];

	begin("tests/data/proc", backing_off);
	for (unsigned i = 0; i < MANY; i++)
		entries[i] = add_process(&bench, 812, false, NULL);
	pass(2 * S);
	for (unsigned round = 0; round < 2; round++) {
		source_set_interval(bench.source, INTERVAL);
		for (unsigned t = 0; t < 30; t++) {
			unsigned looks = 0;

			fill_now();
			for (unsigned i = 0; i < MANY; i++)
				looks += was_looked_at(entries[i]);
			ck_assert_uint_eq(looks, MANY * INTERVAL / IDLE);
			now += INTERVAL;
		}
		now += 3 * S; /* all are due at once; then they part again */
		fill_now();
		now += INTERVAL;
		pass(IDLE);
	}
	for (unsigned i = 0; i < MANY; i++)
		drop(&bench, entries[i]);
	bench_close(&bench);
}
END_TEST

START_TEST(a_heartbeat_is_shown_of_what_is_idle)
{
	struct source_options options = backing_off;
	uint64_t shown = now;
	unsigned times = 0;

	options.heartbeat_ns = S;
	begin("tests/data/proc", options);
	struct source_entry *entry = add_process(&bench, 812, false, NULL);
	fill_now();
	ck_assert(is_seen(entry));
	shown = now;
	for (unsigned i = 0; i < 1000; i++) {
		now += INTERVAL;
		fill_now();
		ck_assert_uint_le(now - shown, S + IDLE);
		if (!is_seen(entry))
			continue;
		ck_assert_uint_ge(now - shown, S);
		shown = now;
		times++;
	}
	ck_assert_uint_ge(times, 9);
	drop(&bench, entry);
	bench_close(&bench);
}
END_TEST

START_TEST(members_are_all_looked_at_where_windows_end)
{
	struct source_options options = backing_off;
	struct child a = child_start(), b = child_start();
	unsigned pauses = 0;

	options.idle_grid_ns = IDLE / 2;
	begin("/proc", options);
	struct source_entry *group = add_group(&bench);
	struct source_entry *first = add_process(&bench, a.pid, true, group);
	struct source_entry *second = add_process(&bench, b.pid, true, group);
	pass(2 * S);

	uint64_t cpu_ns = value(group, SAMPLE_CPU), used_ns = (uint64_t)(cpu_of(a.pid) + cpu_of(b.pid));

	for (unsigned i = 0; i < 60; i++) {
		if (i == 33)
			child_do(&b, 'b');
		fill_now();
		pauses += !was_looked_at(first);
		if (now % (IDLE / 2) == 0) {
			ck_assert(was_looked_at(first) && was_looked_at(second));
			ck_assert_uint_eq(value(group, SAMPLE_CPU) - cpu_ns,
					  (uint64_t)(cpu_of(a.pid) + cpu_of(b.pid)) - used_ns);
			if (i > 33)
				ck_assert_uint_ge(value(group, SAMPLE_CPU), cpu_ns + BURNT_NS);
		}
		now += INTERVAL;
	}
	ck_assert_uint_gt(pauses, 30);
	ck_assert_uint_eq(source_entry_at(group).ns / INTERVAL,
			  (now - INTERVAL) / INTERVAL); /* a sum is made in every fill */
	drop(&bench, first);
	drop(&bench, second);
	drop(&bench, group);
	bench_close(&bench);
	child_reap(&a);
	child_reap(&b);
}
END_TEST

START_TEST(one_may_be_looked_at_more_often_than_the_others)
{
	begin("tests/data/proc", backing_off);
	struct source_entry *entry = add_process(&bench, 812, false, NULL);
	struct source_entry *other = add_process(&bench, 812, false, NULL);
	source_entry_set_idle(entry, 25 * MS);
	source_entry_set_idle(other, 100 * S);
	pass(3 * S);
	for (unsigned i = 0; i < 100; i++) {
		fill_now();
		ck_assert_uint_le(now - source_entry_at(entry).ns, INTERVAL);
		ck_assert_int_le(mono_diff((mono_t){ now }, source_entry_at(other)), (int64_t)(IDLE - INTERVAL));
		now += INTERVAL;
	}

	uint64_t before = saved();

	pass(S);
	ck_assert_uint_eq(saved() - before, 50 + 90);
	drop(&bench, entry);
	drop(&bench, other);
	bench_close(&bench);
}
END_TEST

START_TEST(other_options_count_from_the_next_fill_on)
{
	struct source_options options = backing_off;
	struct source_room *room;

	begin("tests/data/proc", options);
	struct source_entry *entry = add_process(&bench, 812, false, NULL);
	pass(3 * S);
	for (unsigned round = 0; round < 2; round++) {
		options.idle_interval_ns = round ? IDLE : 0;
		ck_assert_int_eq(source_room_new(options.capacity, &room), 0);
		source_room_free(source_retune(bench.source, &options, (mono_t){ now }, room));

		uint64_t before = saved();

		fill_now();
		ck_assert(was_looked_at(entry)); /* whatever was said before */
		now += INTERVAL;
		pass(S);
		ck_assert_uint_eq(saved() - before, round ? 90 : 0);
	}
	drop(&bench, entry);
	bench_close(&bench);
}
END_TEST

START_TEST(who_is_roused_is_seen_and_begins_anew)
{
	begin("tests/data/proc", backing_off);
	struct source_entry *entry = add_process(&bench, 812, false, NULL);
	struct source_entry *group = add_group(&bench);
	pass(3 * S);
	fill_now();
	source_read_all_now(bench.source);
	for (unsigned i = 0; i < 16; i++) {
		now += INTERVAL;
		fill_now();
		ck_assert(was_looked_at(entry));
		ck_assert(is_seen(entry) == (i == 0) && is_seen(group) == (i == 0));
	}
	now += INTERVAL;
	uint64_t before = saved();
	pass(S);
	ck_assert_uint_gt(saved(), before);
	drop(&bench, group);
	drop(&bench, entry);
	bench_close(&bench);
}
END_TEST

START_TEST(limits_are_taken_within_the_idle_interval)
{
	struct cgroup_mounts *mounts = fixture_mounts();
	struct source_options options = backing_off;
	struct source_entry *cgroup = NULL;

	options.cgroup_interval_ns = 100 * S;
	begin("tests/data/proc", options);
	struct source_entry *entry = add_process(&bench, 812, false, NULL);
	ck_assert_int_eq(source_entry_cgroup(mounts, "/tiny.slice", NULL, &cgroup), 0);
	ck_assert_int_eq(source_add(bench.source, cgroup, NULL), 0);
	pass(3 * S);
	source_entry_set_limits(entry, 2 * S, UINT64_MAX);
	source_entry_set_limits(cgroup, 3 * S, UINT64_MAX);
	pass(IDLE);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU_LIMIT), 2 * S);
	ck_assert_uint_eq(value(cgroup, SAMPLE_CPU_LIMIT), 3 * S);
	drop(&bench, entry);
	drop(&bench, cgroup);
	bench_close(&bench);
	cgroup_mounts_free(mounts);
}
END_TEST

/* Most of what sleeps is not touched in a fill: what is known of it is as of that fill all the same. */
START_TEST(without_back_off_each_fill_is_of_all_that_sleep_whatever_comes_and_goes)
{
	enum { COUNT = 40 };
	struct source_options options = backing_off;
	struct child children[COUNT];
	struct source_entry *entries[COUNT];

	options.backoff = SOURCE_BACKOFF_NONE;
	begin("/proc", options);
	for (int i = 0; i < COUNT; i++) {
		children[i] = child_start();
		entries[i] = add_process(&bench, children[i].pid, true, NULL);
	}
	pass(S);
	for (int gone = 0; gone < COUNT; gone += 3) {
		drop(&bench, entries[gone]); /* the last one takes its place */
		entries[gone] = NULL;
		for (int i = 0; i < COUNT; i++)
			ck_assert(!entries[i] || is_as_of(entries[i], now - INTERVAL));
		fill_now();
		for (int i = 0; i < COUNT; i++)
			ck_assert(!entries[i] || was_looked_at(entries[i]));
		now += INTERVAL;
	}
	ck_assert_uint_eq(saved(), 0);

	source_entry_set_limits(entries[1], 2 * S, UINT64_MAX);
	fill_now();
	ck_assert_int_eq(source_entry_status(entries[1]), SOURCE_CHANGED);
	ck_assert(is_seen(entries[1]) && !is_seen(entries[2]));

	/* From a fill that backs off on they keep the time of their last look. */
	now += INTERVAL;
	fill_now();
	uint64_t last = now;
	source_set_backoff(bench.source, SOURCE_BACKOFF_ALL);
	now += INTERVAL;
	for (int i = 0; i < COUNT; i++)
		ck_assert(!entries[i] || is_as_of(entries[i], last));
	for (int i = 0; i < COUNT; i++) {
		if (entries[i])
			drop(&bench, entries[i]);
		child_reap(&children[i]);
	}
	bench_close(&bench);
}
END_TEST

START_TEST(limits_that_are_set_again_as_they_were_are_no_change)
{
	struct child child = child_start();

	begin("/proc", backing_off);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	source_entry_set_limits(entry, 2 * S, UINT64_MAX);
	pass(3 * S);

	uint64_t before = saved();

	source_entry_set_limits(entry, 2 * S, UINT64_MAX);
	pass(S);
	ck_assert_uint_eq(saved() - before, 90);
	source_entry_set_limits(entry, 3 * S, UINT64_MAX);
	pass(S);
	ck_assert_uint_lt(saved() - before, 180);
	ck_assert_uint_eq(value(entry, SAMPLE_CPU_LIMIT), 3 * S);
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(what_is_gone_is_found_so_and_met_until_it_is_removed)
{
	struct child child = child_start();

	begin("/proc", backing_off);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	pass(2 * S);
	child_reap(&child);
	pass(IDLE);
	for (unsigned i = 0; i < 3; i++) {
		fill_now();
		ck_assert_int_eq(source_entry_status(entry), SOURCE_GONE);
		ck_assert(is_seen(entry));
		now += INTERVAL;
	}
	drop(&bench, entry);
	bench_close(&bench);
}
END_TEST

/* Without back-off a process that sleeps for seconds is looked at in every fill, and its burst is seen in the next. */
START_TEST(without_back_off_every_fill_looks_at_every_process)
{
	struct source_options options = backing_off;
	struct child child = child_start();
	mono_t before;

	options.backoff = _i == 0 ? SOURCE_BACKOFF_NONE : SOURCE_BACKOFF_COSTLY;
	begin("/proc", options);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	for (unsigned i = 0; i < 300; i++) {
		fill_now();
		ck_assert(was_looked_at(entry));
		now += INTERVAL;
	}
	ck_assert_uint_eq(saved(), 0);
	ck_assert_uint_eq(source_longest_pause(bench.source), 0);
	child_do(&child, 'b');
	fill_now();
	ck_assert_int_eq(source_entry_status(entry), SOURCE_CHANGED);
	ck_assert(!source_entry_woke(entry, &before));
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

START_TEST(back_off_begins_and_ends_when_it_is_said)
{
	struct source_options options = backing_off;
	struct child child = child_start();

	options.backoff = SOURCE_BACKOFF_COSTLY;
	begin("/proc", options);
	struct source_entry *entry = add_process(&bench, child.pid, true, NULL);
	pass(2 * S);
	ck_assert_uint_eq(saved(), 0);
	source_set_backoff(bench.source, SOURCE_BACKOFF_ALL);
	ck_assert_uint_eq(source_longest_pause(bench.source), IDLE);
	pass(2 * S);
	ck_assert_uint_gt(saved(), 150);
	while (was_looked_at(entry)) {
		now += INTERVAL;
		fill_now();
	}

	uint64_t before = saved();

	source_set_backoff(bench.source, SOURCE_BACKOFF_COSTLY);
	ck_assert_uint_eq(source_longest_pause(bench.source), 0);
	for (unsigned i = 0; i < 50; i++) {
		now += INTERVAL;
		fill_now();
		ck_assert(was_looked_at(entry));
	}
	ck_assert_uint_eq(saved(), before);
	drop(&bench, entry);
	bench_close(&bench);
	child_reap(&child);
}
END_TEST

static void *sleep_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* The last threads may still be on their way to sleep: until the process's clock stands still. */
static void await_sleep(pid_t pid)
{
	struct timespec used = { 0 }, before;
	clockid_t clock;
	unsigned still = 0;

	ck_assert_int_eq(clock_getcpuclockid(pid, &clock), 0);
	for (unsigned i = 0; i < 1000 && still < 5; i++) {
		before = used;
		usleep(10000);
		ck_assert_int_eq(clock_gettime(clock, &used), 0);
		still = used.tv_sec == before.tv_sec && used.tv_nsec == before.tv_nsec ? still + 1 : 0;
	}
	ck_assert_uint_eq(still, 5);
}

/* A child with so many threads that sleep, once it has them all and they do. */
static pid_t start_threads(unsigned count)
{
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);

	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		pthread_t thread;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (unsigned i = 1; i < count; i++)
			if (pthread_create(&thread, NULL, sleep_for_ever, NULL) != 0)
				_exit(EXIT_FAILURE);
		if (write(ready[1], "", 1) != 1)
			_exit(EXIT_FAILURE);
		sleep_for_ever(NULL);
	}
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	await_sleep(pid);
	return pid;
}

/*
 * By the rig's clock a look takes step_ns: for what has many threads that is what it costs, and it is
 * looked at so rarely that this is a five-hundredth of the time, but not less often than every two idle
 * intervals. Others are not concerned.
 */
START_TEST(a_process_whose_looks_cost_much_is_looked_at_less_often)
{
	static const uint64_t costs_ns[] = { 2 * NS_PER_US, 100 * NS_PER_US, MS };
	static const uint64_t pauses_ns[] = { 0, 50 * MS, 2 * IDLE };
	struct source_options options = backing_off;
	struct child child = child_start();
	pid_t many_threads = start_threads(100);
	uint64_t last = 0, longest = 0;

	options.backoff = _i < 3 ? SOURCE_BACKOFF_COSTLY : SOURCE_BACKOFF_NONE;
	begin("/proc", options);
	bench.step_ns = costs_ns[_i % 3];
	struct source_entry *costly = add_process(&bench, many_threads, true, NULL);
	struct source_entry *cheap = add_process(&bench, child.pid, true, NULL);
	pass(4 * S);
	for (unsigned i = 0; i < 200; i++, now += INTERVAL) {
		fill_now();
		ck_assert(was_looked_at(cheap));
		if (!was_looked_at(costly))
			continue;
		if (last > 0 && now - last > longest)
			longest = now - last;
		last = now;
	}
	ck_assert_uint_eq(longest, _i < 3 && pauses_ns[_i] > 0 ? pauses_ns[_i] : INTERVAL);
	ck_assert_uint_eq(source_longest_pause(bench.source), _i < 3 ? pauses_ns[_i] : 0);
	drop(&bench, costly);
	pass(S);
	ck_assert_uint_eq(source_longest_pause(bench.source), 0);
	drop(&bench, cheap);
	bench_close(&bench);
	child_reap(&child);
	kill(many_threads, SIGKILL);
	waitpid(many_threads, NULL, 0);
}
END_TEST

Suite *source_idle_suite(void)
{
	Suite *suite = suite_create("source_idle");
	TCase *tcase = tcase_create("whether");

	tcase_add_loop_test(tcase, without_back_off_every_fill_looks_at_every_process, 0, 2);
	tcase_add_test(tcase, back_off_begins_and_ends_when_it_is_said);
	tcase_add_loop_test(tcase, a_process_whose_looks_cost_much_is_looked_at_less_often, 0, 6);
	suite_add_tcase(suite, tcase);

	tcase = tcase_create("pauses");

	tcase_add_loop_test(tcase, an_idle_process_is_looked_at_ever_less_often_down_to_the_idle_interval, 0, 2);
	tcase_add_test(tcase, what_wakes_is_told_with_all_that_it_used_and_since_when);
	tcase_add_test(tcase, what_could_not_be_read_for_a_while_is_told_since_when);
	tcase_add_test(tcase, the_promise_holds_however_ticks_come);
	tcase_add_test(tcase, looks_at_many_idle_ones_are_spread_over_ticks);
	tcase_add_test(tcase, a_heartbeat_is_shown_of_what_is_idle);
	tcase_add_test(tcase, members_are_all_looked_at_where_windows_end);
	tcase_add_test(tcase, one_may_be_looked_at_more_often_than_the_others);
	tcase_add_test(tcase, other_options_count_from_the_next_fill_on);
	tcase_add_test(tcase, who_is_roused_is_seen_and_begins_anew);
	tcase_add_test(tcase, limits_are_taken_within_the_idle_interval);
	tcase_add_test(tcase, without_back_off_each_fill_is_of_all_that_sleep_whatever_comes_and_goes);
	tcase_add_test(tcase, limits_that_are_set_again_as_they_were_are_no_change);
	tcase_add_test(tcase, what_is_gone_is_found_so_and_met_until_it_is_removed);
	suite_add_tcase(suite, tcase);

	return suite;
}
