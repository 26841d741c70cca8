/* check_sampler_idle.c: what the ring is told of a process that was not looked at for a while. */
#include "sampler_rig.h"
#include "samplers_tick.h"

Suite *sampler_idle_suite(void);

static struct sampler_rig rig;

static void setup(void)
{
	rig_begin(&rig);
}

static void teardown(void)
{
	rig_end(&rig);
}

/* Far more ticks than it takes; each is followed by a nap of a millisecond. */
#define TICKS_MAX 20000

static struct sampler_options options;

static void begin(void)
{
	rig.heartbeat_ns = 1000 * NS_PER_S;
	options = (struct sampler_options){ .source = { .capacity = 8,
							.heartbeat_ns = rig.heartbeat_ns,
							.peak_interval_ns = UINT64_MAX,
							.idle_interval_ns = 500 * NS_PER_MS,
							.backoff = SOURCE_BACKOFF_ALL,
							.interval_ns = NS_PER_MS } };

	struct ring_options ring_options = { .size_bytes = 1 << 20,
					     .page_bytes = 65536,
					     .heartbeat_ns = rig.heartbeat_ns };

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &rig.ring), 0);
	ck_assert_int_eq(samplers_new(&options, 1, rig.ring, &rig.samplers), 0);
	ck_assert_int_eq(ring_cursor_new(rig.ring, RING_OLDEST, &rig.cursor), 0);
}

static uint64_t saved_looks(void)
{
	struct stats stats;

	ck_assert_int_eq(ring_stats(rig.ring, &stats), 0);
	return stats.saved_looks;
}

/* Ticks until one has not looked at the process, `times` times. */
static void tick_until_idle(unsigned times)
{
	uint64_t saved = 0;

	for (unsigned i = 0; i < TICKS_MAX && times > 0; i++) {
		nap();
		samplers_tick(rig.samplers);
		times -= saved_looks() > saved;
		saved = saved_looks();
	}
	ck_assert_uint_eq(times, 0);
}

START_TEST(what_wakes_has_a_record_of_when_it_was_last_seen_asleep)
{
	struct child child = child_start();
	struct ring_event event;
	uint64_t cpu_ns, records = 0, ticks = 0;
	mono_t tick = { 0 }, still = { 0 };

	begin();
	rig_add_process(&rig, 0, child.pid, NULL);
	tick_until_idle(20);
	rig_read_ring(&rig);
	cpu_ns = rig_value(&rig, 0, SAMPLE_CPU);

	child_do(&child, 'b');
	for (unsigned i = 0; i < TICKS_MAX && records < 2; i++) {
		nap();
		samplers_tick(rig.samplers);
		while (ring_cursor_next(rig.cursor, &event) == 0) {
			if (event.type == RING_EVENT_TICK) {
				ck_assert_uint_eq(event.idle_ns, 500 * NS_PER_MS);
				tick = event.time;
				ticks++;
			}
			if (event.type != RING_EVENT_SAMPLE)
				continue;
			records++;
			if (records == 1) {
				ck_assert_uint_eq(event.sample->value[SAMPLE_CPU], cpu_ns);
				still = event.time;
				ck_assert_int_lt(mono_diff(still, tick), 0);
			} else if (records == 2) {
				ck_assert_uint_ge(event.sample->value[SAMPLE_CPU], cpu_ns + BURNT_NS);
				ck_assert_int_ge(mono_diff(event.time, tick), 0);
			}
		}
	}
	ck_assert_uint_eq(records, 2);
	ck_assert_uint_gt(ticks, 0);
	child_reap(&child);
}
END_TEST

START_TEST(what_is_looked_at_in_every_tick_has_one_record)
{
	struct child child = child_start();
	uint64_t samples;

	begin();
	rig_add_process(&rig, 0, child.pid, NULL);
	samplers_tick(rig.samplers);
	samplers_tick(rig.samplers);
	rig_read_ring(&rig);
	samples = rig.seen.samples;
	child_do(&child, 'b');
	samplers_tick(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig.seen.samples, samples + 1);
	child_reap(&child);
}
END_TEST

/* Of a budget that nothing fits into, two periods take what may be spared: the ring says so, and the interval is as before. */
START_TEST(it_backs_off_when_the_cpu_budget_is_short_and_not_before)
{
	struct child child = child_start();
	struct ring_info info;

	begin();
	options.source.backoff = SOURCE_BACKOFF_COSTLY;
	options.cpu_budget_percent = _i == 0 ? 1600 : 1e-9;
	ck_assert_int_eq(samplers_retune(rig.samplers, &options), 0);
	rig_add_process(&rig, 0, child.pid, NULL);
	for (unsigned i = 0; i < TICKS_MAX && samplers_state(rig.samplers).back_off_since.ns == 0; i++) {
		nap();
		samplers_tick(rig.samplers);
		if (_i == 0 && i == 3000)
			break; /* some three periods */
	}
	ck_assert_uint_eq(samplers_state(rig.samplers).slowdown, 1);
	ck_assert(_i == 0 || saved_looks() == 0);
	ck_assert_int_eq(samplers_state(rig.samplers).back_off_since.ns != 0, _i == 1);
	if (_i == 1)
		tick_until_idle(5);
	samplers_tick(rig.samplers);
	ring_info(rig.ring, &info);
	ck_assert_uint_eq(info.idle_ns, _i == 0 ? 0 : 500 * NS_PER_MS);
	ck_assert_int_eq(saved_looks() > 0, _i == 1);

	options.source.backoff = SOURCE_BACKOFF_NONE; /* "never" */
	ck_assert_int_eq(samplers_retune(rig.samplers, &options), 0);
	samplers_tick(rig.samplers);
	samplers_tick(rig.samplers);
	ring_info(rig.ring, &info);
	ck_assert_uint_eq(info.idle_ns, 0);
	ck_assert_uint_eq(samplers_state(rig.samplers).back_off_since.ns, 0);
	child_reap(&child);
}
END_TEST

START_TEST(a_changed_idle_interval_counts_at_once_and_is_told)
{
	struct child child = child_start();
	struct ring_info info;

	begin();
	rig_add_process(&rig, 0, child.pid, NULL);
	tick_until_idle(20);
	options.source.idle_interval_ns = 0;
	ck_assert_int_eq(samplers_retune(rig.samplers, &options), 0);
	ring_info(rig.ring, &info);
	ck_assert_uint_eq(info.idle_ns, 500 * NS_PER_MS); /* not before the tick */

	uint64_t saved = saved_looks();

	for (int i = 0; i < 20; i++) {
		nap();
		samplers_tick(rig.samplers);
	}
	ring_info(rig.ring, &info);
	ck_assert_uint_eq(info.idle_ns, 0);
	ck_assert_uint_eq(saved_looks(), saved);

	options.source.idle_interval_ns = 300 * NS_PER_MS;
	ck_assert_int_eq(samplers_retune(rig.samplers, &options), 0);
	tick_until_idle(5);
	ring_info(rig.ring, &info);
	ck_assert_uint_eq(info.idle_ns, 300 * NS_PER_MS);
	child_reap(&child);
}
END_TEST

START_TEST(a_run_ends_with_a_look_at_all)
{
	struct child child = child_start();
	uint64_t saved;

	begin();
	rig_add_process(&rig, 0, child.pid, NULL);
	tick_until_idle(300);
	do { /* until it was looked at: its next look is far off */
		saved = saved_looks();
		nap();
		samplers_tick(rig.samplers);
	} while (saved_looks() > saved);
	child_do(&child, 'f');
	ck_assert_int_eq(samplers_start(rig.samplers), 0);
	samplers_stop(rig.samplers);
	rig_read_ring(&rig);
	ck_assert_uint_eq(rig_value(&rig, 0, SAMPLE_CPU), (uint64_t)cpu_of(child.pid));
	child_reap(&child);
}
END_TEST

Suite *sampler_idle_suite(void)
{
	Suite *suite = suite_create("sampler_idle");
	TCase *tcase = tcase_create("pauses");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_wakes_has_a_record_of_when_it_was_last_seen_asleep);
	tcase_add_test(tcase, what_is_looked_at_in_every_tick_has_one_record);
	tcase_add_loop_test(tcase, it_backs_off_when_the_cpu_budget_is_short_and_not_before, 0, 2);
	tcase_add_test(tcase, a_changed_idle_interval_counts_at_once_and_is_told);
	tcase_add_test(tcase, a_run_ends_with_a_look_at_all);
	suite_add_tcase(suite, tcase);

	return suite;
}
