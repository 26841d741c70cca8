/*
 * check_dispatcher.c: targets that come and go are said by name while they are few, counted while
 * they are many, and all of them add up. Until when ticks were told.
 */
#include "daemon/engine/dispatch/dispatcher.c"

#include "journal.h"
#include "scene.h"
#include "torture.h"
#include "lib/base/base.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"

Suite *dispatcher_suite(void);

#define LOG_MINUTE_MAX 50 /* dispatcher.h: entries in a minute */

static struct scene_log log_file;
static struct journal journal;
static struct dispatcher logging; /* of which only the log of targets is used */
static mono_t now;
static uint32_t next_id;

/* What the entries read so far say. */
static struct {
	uint64_t entries, found, gone;
} heard;

static void setup(void)
{
	log_file = scene_log_catch();
	journal = journal_open();
	logging = (struct dispatcher){ 0 };
	now = (mono_t){ 1000 * NS_PER_S };
	next_id = 0;
	memset(&heard, 0, sizeof(heard));
}

static void teardown(void)
{
	target_log_release(&logging.log);
	journal_close(&journal);
	scene_log_release(&log_file);
}

static void hear(void)
{
	while (journal_next(&journal)) {
		const struct journal_field *count = journal_field(&journal, "SPIKEWATCH_COUNT");
		const struct journal_field *id = journal_field(&journal, "MESSAGE_ID");
		uint64_t n = count ? strtoull(count->value, NULL, 10) : 1;

		ck_assert_ptr_nonnull(id);
		heard.entries++;
		if (strcmp(id->value, message_id(MESSAGE_TARGET_FOUND)) == 0)
			heard.found += n;
		else if (strcmp(id->value, message_id(MESSAGE_TARGET_GONE)) == 0)
			heard.gone += n;
		else
			ck_abort_msg("what is %s", id->value);
	}
}

static struct target target_of(uint32_t id, const char *name)
{
	return (struct target){ .id = id, .kind = TARGET_PROCESS, .entry = "web", .name = name, .key = name };
}

static uint32_t come(void)
{
	struct target target = target_of(++next_id, "nginx/7");

	target_log_found(&logging.log, &target, now);
	hear();

	return next_id;
}

static void go(uint32_t id)
{
	target_log_gone(&logging.log, id, "nginx/7", RING_GONE_EXITED, now);
	hear();
}

static void pass(uint64_t seconds)
{
	for (uint64_t i = 0; i < seconds; i++) {
		now.ns += NS_PER_S;
		dispatcher_log_poll(&logging, now);
		hear();
	}
}

START_TEST(a_few_are_said_by_name)
{
	struct target target = target_of(5, "nginx/7");

	target_log_found(&logging.log, &target, now);
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE_ID", message_id(MESSAGE_TARGET_FOUND));
	journal_expect(&journal, "SPIKEWATCH_TARGET", "nginx/7");
	journal_expect(&journal, "SPIKEWATCH_COUNT", NULL);
	journal_expect(&journal, "MESSAGE", "target nginx/7 found: a process, of entry web");
	target_log_gone(&logging.log, 5, "nginx/7", RING_GONE_EXITED, now);
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE_ID", message_id(MESSAGE_TARGET_GONE));
	journal_expect(&journal, "SPIKEWATCH_TARGET", "nginx/7");
	journal_expect(&journal, "MESSAGE", "target nginx/7 is gone: it ended");
	target.id = 6;
	target_log_found(&logging.log, &target, now);
	ck_assert(journal_next(&journal));
	target_log_gone(&logging.log, 6, NULL, RING_GONE_UNWATCHED, now);
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "target without a name is gone: it is not watched any more");
	journal_expect(&journal, "SPIKEWATCH_TARGET", NULL);
}
END_TEST

static void leave(uint32_t id, const char *name)
{
	target_log_gone(&logging.log, id, name, RING_GONE_UNWATCHED, now);
	hear();
}

START_TEST(what_leaves_and_is_back_at_once_is_no_news)
{
	uint32_t id = come();
	struct target target = target_of(++next_id, "nginx/7");

	leave(id, "nginx/7");
	now.ns += LOG_HELD_NS - 1;
	target_log_found(&logging.log, &target, now);
	pass(3);
	ck_assert_uint_eq(heard.entries, 1);

	/* Of another name it is another one, and so it is later. */
	leave(target.id, "nginx/7");
	target = target_of(++next_id, "nginx/8");
	target_log_found(&logging.log, &target, now);
	now.ns += LOG_HELD_NS;
	target = target_of(++next_id, "nginx/7");
	target_log_found(&logging.log, &target, now);
	/* In the order in which it was. */
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "target nginx/8 found: a process, of entry web");
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "target nginx/7 is gone: it is not watched any more");
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "target nginx/7 found: a process, of entry web");
	pass(1);
	ck_assert_uint_eq(heard.entries, 1);
	heard.found = 3;
	heard.gone = 1;
	ck_assert_uint_eq(heard.gone, 1);

	/* What ended has ended. */
	go(target.id);
	come();
	ck_assert_uint_eq(heard.found, 4);
	ck_assert_uint_eq(heard.gone, 2);
	ck_assert_uint_eq(logging.log.held_count, 0);
}
END_TEST

START_TEST(who_has_left_is_said_a_moment_later_at_the_end_or_for_want_of_room)
{
	uint32_t id = come();

	leave(id, "nginx/7");
	dispatcher_log_poll(&logging, now);
	hear();
	ck_assert_uint_eq(heard.gone, 0);
	pass(1);
	ck_assert_uint_eq(heard.gone, 1);

	leave(come(), "nginx/7");
	target_log_flush(&logging.log, now);
	hear();
	ck_assert_uint_eq(heard.gone, 2);

	pass(600);
	for (int i = 0; i < 3; i++)
		leave(come(), "nginx/7");
	/* The last of them was the next one's first life. */
	ck_assert_uint_eq(logging.log.held_count, 1);
	for (int i = 0; i < LOG_HELD_MAX; i++) {
		struct target target = target_of(++next_id, "other");
		char name[32];

		snprintf(name, sizeof(name), "other/%d", i);
		target.name = name;
		target_log_found(&logging.log, &target, now);
		leave(next_id, name);
	}
	ck_assert_uint_eq(logging.log.held_count, LOG_HELD_MAX);
	ck_assert_uint_eq(heard.gone, 3);
	pass(1200);
	ck_assert_uint_eq(heard.found, 3 + LOG_HELD_MAX);
	ck_assert_uint_eq(heard.gone, 3 + LOG_HELD_MAX);
}
END_TEST

START_TEST(a_description_that_is_repeated_is_no_news)
{
	static const uint32_t ids[] = { 7, 3, 9, 3, 7, 9, 5, 5 };

	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		struct target target = target_of(ids[i], "a");

		target_log_found(&logging.log, &target, now);
	}
	hear();
	ck_assert_uint_eq(heard.found, 4);
	go(3);
	go(3);
	go(4);
	ck_assert_uint_eq(heard.gone, 1);
	go(9);
	go(5);
	go(7);
	ck_assert_uint_eq(heard.gone, 4);
	ck_assert_uint_eq(logging.log.count, 0);
}
END_TEST

START_TEST(a_flood_is_a_sum)
{
	for (int i = 0; i < 812; i++)
		go(come());
	ck_assert_uint_eq(heard.entries, 20);
	pass(9);
	ck_assert_uint_eq(heard.entries, 20);
	now.ns += NS_PER_S;
	dispatcher_log_poll(&logging, now);
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "802 more targets came in the last 10 s");
	journal_expect(&journal, "SPIKEWATCH_COUNT", "802");
	ck_assert(journal_next(&journal));
	journal_expect(&journal, "MESSAGE", "802 more targets left in the last 10 s");
	ck_assert(!journal_next(&journal));
}
END_TEST

START_TEST(after_a_flood_names_are_said_again)
{
	for (int i = 0; i < 100; i++)
		come();
	pass(19);
	uint64_t before = heard.entries;
	come();
	ck_assert_uint_eq(heard.entries, before); /* not yet */
	pass(30);
	before = heard.entries;
	come();
	ck_assert_uint_eq(heard.entries, before + 1);
	ck_assert_uint_eq(heard.found, 102);
}
END_TEST

START_TEST(a_flood_lasts_for_twenty_seconds_at_least)
{
	for (int i = 0; i < 20; i++)
		come();
	now.ns += 3900 * NS_PER_MS;
	come();
	pass(19);
	ck_assert(logging.log.flood);
	pass(1);
	ck_assert(!logging.log.flood);
}
END_TEST

START_TEST(a_flood_that_goes_on_is_said_ever_more_rarely)
{
	for (int minute = 0; minute < 60; minute++)
		for (int second = 0; second < 60; second++) {
			go(come());
			pass(1);
		}
	/* 20 by name; then after 10, 20, 40, ... 600 s, two entries each. */
	ck_assert_uint_le(heard.entries, 20 + 2 * 12);
	uint64_t before = heard.entries;
	for (int i = 0; i < 1200; i++) {
		go(come());
		pass(1);
	}
	ck_assert_uint_eq(heard.entries, before + 4);
	target_log_flush(&logging.log, now);
	hear();
	ck_assert_uint_eq(heard.found, next_id);
	ck_assert_uint_eq(heard.gone, next_id);
}
END_TEST

/* Any pattern: in 60 s never more entries than stated, and in the end all add up. */
START_TEST(no_pattern_makes_more_entries_than_stated_and_all_add_up)
{
	uint64_t at[3600], random = (uint64_t)_i * 2654435761u + 1;

	for (size_t second = 0; second < 3600; second++) {
		uint64_t burst, busy;

		random = random * 6364136223846793005u + 1442695040888963407u;
		busy = 1 + (uint64_t)_i * 3;
		burst = (random >> 33) % (second % (20 * busy) < 20 ? 30 : 2 + (uint64_t)_i % 2);
		for (uint64_t i = 0; i < burst; i++)
			go(come());
		pass(1);
		at[second] = heard.entries;
		if (second >= 60)
			ck_assert_uint_le(at[second] - at[second - 60], LOG_MINUTE_MAX);
	}
	target_log_flush(&logging.log, now);
	hear();
	ck_assert_uint_eq(heard.found, next_id);
	ck_assert_uint_eq(heard.gone, next_id);
	ck_assert_uint_eq(logging.log.count, 0);
}
END_TEST

START_TEST(many_at_the_start_are_not_said_again)
{
	dispatcher_log_start(&logging, 500, now);
	for (int i = 0; i < 500; i++)
		come();
	ck_assert_uint_eq(heard.entries, 0);
	come();
	ck_assert_uint_eq(heard.found, 1);
	go(1);
	ck_assert_uint_eq(heard.gone, 1);
}
END_TEST

START_TEST(a_few_at_the_start_are_said)
{
	dispatcher_log_start(&logging, 3, now);
	for (int i = 0; i < 3; i++)
		come();
	ck_assert_uint_eq(heard.found, 3);
}
END_TEST

START_TEST(the_start_is_over_after_a_while)
{
	dispatcher_log_start(&logging, 500, now);
	come();
	ck_assert_uint_eq(heard.found, 0);
	pass(3);
	come();
	ck_assert_uint_eq(heard.found, 1);
}
END_TEST

START_TEST(a_clock_that_is_a_little_behind_does_no_harm)
{
	pass(10);
	for (int i = 0; i < 20; i++)
		come();
	now.ns -= 50 * NS_PER_MS;
	come(); /* is one too many all the same */
	now.ns += 50 * NS_PER_MS;
	dispatcher_log_poll(&logging, now);
	ck_assert_uint_eq(heard.found, 20);
	ck_assert(logging.log.flood);
}
END_TEST

START_TEST(without_memory_they_are_said_nevertheless)
{
	struct target target = target_of(++next_id, "nginx/7");

	torture_arm(1);
	target_log_found(&logging.log, &target, now);
	ck_assert(torture_disarm());
	hear();
	ck_assert_uint_eq(heard.found, 1);
	ck_assert_uint_eq(logging.log.count, 0);
	go(next_id); /* an unknown id */
	ck_assert_uint_eq(heard.gone, 0);
	go(come());
	ck_assert_uint_eq(heard.gone, 1);
}
END_TEST

START_TEST(incidents_wait_for_ticks_that_are_read_later)
{
	mono_t late = mono_sub(now, 100 * NS_PER_MS), none = mono_sub(now, NS_PER_S);

	ck_assert_uint_eq(told_until(&(struct dispatcher){ .tick = late }, now).ns, late.ns);
	ck_assert_uint_eq(told_until(&(struct dispatcher){ .tick = none }, now).ns, now.ns - TICKS_LATE_MAX_NS);
	ck_assert_uint_eq(told_until(&(struct dispatcher){ .tick = now }, now).ns, now.ns);
	ck_assert_uint_eq(told_until(&(struct dispatcher){ .tick = mono_add(now, 1) }, now).ns, now.ns);
}
END_TEST

Suite *dispatcher_suite(void)
{
	Suite *suite = suite_create("dispatcher");
	TCase *tcase = tcase_create("entries");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, a_few_are_said_by_name);
	tcase_add_test(tcase, what_leaves_and_is_back_at_once_is_no_news);
	tcase_add_test(tcase, who_has_left_is_said_a_moment_later_at_the_end_or_for_want_of_room);
	tcase_add_test(tcase, a_description_that_is_repeated_is_no_news);
	tcase_add_test(tcase, a_flood_is_a_sum);
	tcase_add_test(tcase, after_a_flood_names_are_said_again);
	tcase_add_test(tcase, a_flood_lasts_for_twenty_seconds_at_least);
	tcase_add_test(tcase, a_flood_that_goes_on_is_said_ever_more_rarely);
	tcase_add_loop_test(tcase, no_pattern_makes_more_entries_than_stated_and_all_add_up, 0, 8);
	tcase_add_test(tcase, many_at_the_start_are_not_said_again);
	tcase_add_test(tcase, a_few_at_the_start_are_said);
	tcase_add_test(tcase, the_start_is_over_after_a_while);
	tcase_add_test(tcase, a_clock_that_is_a_little_behind_does_no_harm);
	tcase_add_test(tcase, without_memory_they_are_said_nevertheless);
	tcase_add_test(tcase, incidents_wait_for_ticks_that_are_read_later);
	suite_add_tcase(suite, tcase);

	return suite;
}
