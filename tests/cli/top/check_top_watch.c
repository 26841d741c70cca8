/*
 * check_top_watch.c: rings as files, written by the test, read as spikewatch top does: found,
 * replaced, damaged, ended; and what the rules of a configuration make of them.
 */
#include "lib/evaluator/rule_state.h"
#include "ring_fixture.h"
#include "scene.h"
#include "lib/base/base.h"
#include "cli/top/top_data.h"
#include "torture.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/trigger.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

Suite *top_watch_suite(void);

static char directory[64], ring_path[128], config_path[128], state_path[128], message[CONFIG_FILE_MESSAGE_MAX];
static struct top_watch watch;
static struct ring *ring;
static struct ring_writer *writer;
static struct ring_track track;
static char description[TARGET_ENCODED_MAX];
static uint64_t now_ms; /* of the made ring */
static uint64_t cpu_ns;

#define START_MS 1000000ull
#define WALL_MS 1700000000000ull

static void configure(const char *rules)
{
	scene_write(config_path,
		    "{\"ring\": {\"path\": \"%s\"}, \"state_file\": \"%s\", \"incidents\": {\"directory\": \"%s/i\"},\n"
		    "\"targets\": [{\"name\": \"a\", \"comm\": \"a\"}], \"rules\": [%s]}\n",
		    ring_path, state_path, directory, rules);
}

#define HOT \
	"{\"name\": \"hot\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": \"50%\", " \
	"\"warmup\": 0, " \
	"\"cooldown\": \"1m\"}"
#define SLOW \
	"{\"name\": \"slow\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": \"50%\", " \
	"\"warmup\": 0, " \
	"\"for\": \"10s\", \"cooldown\": \"1m\"}"

/* A new daemon: a new ring. */
static void make_ring(uint64_t size_bytes, uint32_t id)
{
	struct ring_options options = { .size_bytes = size_bytes, .page_bytes = 4096, .interval_ns = 10 * NS_PER_MS };
	struct target target = { .id = id, .kind = TARGET_PROCESS, .pid = 12, .start_ticks = 7, .entry = "a" };

	options.pid = getpid();
	options.start_ticks = scene_start_ticks(getpid());
	target.name = "a/12";
	target.key = "a:12@7";
	target.comm = target.cmdline = target.cgroup = "";
	ring_writer_free(writer);
	ring_free(ring);
	ck_assert_int_eq(ring_create(AT_FDCWD, ring_path, &options, &ring), 0);
	ck_assert_int_eq(ring_writer_new(ring, &writer), 0);
	track = (struct ring_track){ .id = id, .description = description };
	track.description_len = (uint32_t)target_encode(&target, description, sizeof(description));
}

/* Ticks of 10 ms of a process that uses so many cores. */
static void run_for(uint64_t ms, double cores)
{
	for (uint64_t end = now_ms + ms; now_ms < end; now_ms += 10) {
		mono_t now = { now_ms * NS_PER_MS };
		struct sample sample = { 0 };

		cpu_ns += (uint64_t)(cores * 10e6);
		sample_set(&sample, SAMPLE_CPU, cpu_ns);
		sample_set(&sample, SAMPLE_MEMORY, 1 << 20);
		ck_assert_int_eq(ring_tick_begin(writer, now, (wall_t){ (WALL_MS + now_ms) * NS_PER_MS }, 0), 0);
		ring_put_sample(writer, &track, now, &sample);
		ring_tick_end(writer, NULL);
	}
}

static void setup(void)
{
	scene_directory(directory);
	snprintf(ring_path, sizeof(ring_path), "%s/ring", directory);
	snprintf(config_path, sizeof(config_path), "%s/config.json", directory);
	snprintf(state_path, sizeof(state_path), "%s/state.json", directory);
	configure(HOT "," SLOW);
	now_ms = START_MS;
	cpu_ns = 0;
}

static void teardown(void)
{
	top_watch_release(&watch);
	ring_writer_free(writer);
	ring_free(ring);
	writer = NULL;
	ring = NULL;
	scene_remove(directory);
}

static mono_t now(void)
{
	return (mono_t){ now_ms * NS_PER_MS };
}

static void open_watch(void)
{
	ck_assert_int_eq(top_watch_init(&watch, NULL, config_path, message), 0);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
}

static struct top_table_row *only(void)
{
	struct top_table_list list;

	ck_assert_int_eq(top_table_view(&watch.table, &(struct top_table_wish){ 0 }, &list), 0);
	ck_assert_uint_eq(list.count, 1);

	return list.row[0];
}

static bool noted(const char *part)
{
	char note[TOP_WATCH_NOTE_MAX];
	bool found = false;

	for (size_t i = 0; top_watch_note(&watch, now(), i, note); i++)
		found |= strstr(note, part) != NULL;

	return found;
}

static bool any_note(void)
{
	char note[TOP_WATCH_NOTE_MAX];

	return top_watch_note(&watch, now(), 0, note);
}

START_TEST(what_the_ring_holds_is_there_at_once)
{
	make_ring(1 << 20, 1);
	run_for(5000, 0.25);
	open_watch();
	ck_assert_str_eq(only()->name, "a/12");
	ck_assert_double_eq_tol(only()->cpu_cores, 0.25, 0.01);
	ck_assert_double_eq_tol(only()->nearness, 0.5, 0.01);
	ck_assert_uint_eq(watch.since.ns, (WALL_MS + START_MS) * NS_PER_MS);
	ck_assert(!any_note());
}
END_TEST

START_TEST(what_is_written_meanwhile_is_followed)
{
	make_ring(1 << 20, 1);
	run_for(2000, 0.1);
	open_watch();
	run_for(3000, 0.4);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_double_eq_tol(only()->cpu_cores, 0.4, 0.01);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.4, 0.01);
}
END_TEST

START_TEST(pending_and_cooling_are_found_out_from_the_samples)
{
	make_ring(1 << 20, 1);
	run_for(1000, 0.1);
	run_for(4000, 0.8);
	open_watch();
	ck_assert_uint_eq(only()->pending, 1);
	ck_assert_uint_eq(only()->cooling, 1);
	ck_assert_str_eq(only()->waiting[0].rule, "slow");
	ck_assert_uint_eq(only()->waiting[0].for_whole_ns, 10 * NS_PER_S);
	ck_assert_uint_ge(only()->waiting[0].for_ns, 3 * NS_PER_S);
	ck_assert_uint_lt(only()->waiting[0].for_ns, 4 * NS_PER_S);
	ck_assert_str_eq(only()->waiting[1].rule, "hot");
	ck_assert_uint_gt(only()->waiting[1].left_ns, 55 * NS_PER_S);
	ck_assert_uint_lt(only()->waiting[1].left_ns, 58 * NS_PER_S);
	ck_assert_double_eq_tol(only()->nearness, -0.6, 0.01);
}
END_TEST

/* As the daemon writes it: see memo.c. */
static void remember(uint64_t cooldown_until_ms)
{
	struct trigger_memory memory = { .cooldown_until = { cooldown_until_ms * NS_PER_MS }, .fired = 1 };
	AUTO_CLOSE int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char boot_id[64] = "";
	struct rule_state *rule_state;
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	ck_assert_ptr_nonnull(file);
	ck_assert_ptr_nonnull(fgets(boot_id, sizeof(boot_id), file));
	fclose(file);
	boot_id[strcspn(boot_id, "\n")] = '\0';
	ck_assert_int_eq(rule_state_new(boot_id, &rule_state), 0);
	ck_assert_int_eq(rule_state_put(rule_state, "hot", "a:12@7", &memory), 0);
	ck_assert_int_eq(rule_state_save(rule_state, dirfd, "state.json"), 0);
	rule_state_free(rule_state);
}

START_TEST(a_cooldown_from_before_is_known_from_the_state_file)
{
	make_ring(1 << 20, 1);
	run_for(5000, 0.1);
	remember(WALL_MS + now_ms + 20000);
	open_watch();
	ck_assert_uint_eq(only()->cooling, 1);
	ck_assert_uint_gt(only()->waiting[0].left_ns, 19 * NS_PER_S);
	ck_assert_uint_lt(only()->waiting[0].left_ns, 21 * NS_PER_S);
}
END_TEST

START_TEST(a_firing_that_the_ring_and_the_file_know_cools_as_long_as_it_should)
{
	configure(HOT);
	make_ring(4 << 20, 1);
	run_for(20000, 0.1);
	run_for(200, 0.9);
	remember(WALL_MS + now_ms + 60000); /* fired just now */
	run_for(55000, 0.9);
	open_watch();
	ck_assert_uint_eq(only()->cooling, 1);
	ck_assert_uint_gt(only()->waiting[0].left_ns, 4 * NS_PER_S);
	ck_assert_uint_lt(only()->waiting[0].left_ns, 6 * NS_PER_S);
}
END_TEST

START_TEST(a_changed_configuration_is_judged_from_the_past_on)
{
	make_ring(1 << 20, 1);
	run_for(5000, 0.4);
	open_watch();
	ck_assert_uint_eq(only()->cooling, 0);
	only()->cpu_peak = 3; /* of long ago */
	configure("{\"name\": \"low\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": "
		  "\"30%\", "
		  "\"warmup\": 0, \"cooldown\": \"1m\"}");
	run_for(1000, 0.4);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_uint_eq(only()->cooling, 1);
	ck_assert_str_eq(only()->waiting[0].rule, "low");
	ck_assert_double_eq(only()->cpu_peak, 3);
	ck_assert_double_eq_tol(only()->cpu_cores, 0.4, 0.01);

	/* A bad one is not taken; it is said. */
	scene_write(config_path, "{ this is none");
	run_for(1000, 0.4);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert(noted("rules as before a change: "));
	ck_assert_str_eq(only()->nearest, "low");
}
END_TEST

START_TEST(another_ring_is_another_world)
{
	make_ring(1 << 20, 1);
	run_for(5000, 0.4);
	open_watch();
	ck_assert_uint_eq(only()->id, 1);
	ring_finish(ring);
	ck_assert(noted("the daemon has stopped"));
	make_ring(1 << 20, 3);
	run_for(2000, 0.2);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_uint_eq(only()->id, 3);
	ck_assert_uint_eq(watch.since.ns, (WALL_MS + START_MS + 5000) * NS_PER_MS);
	ck_assert_double_eq_tol(only()->cpu_peak, 0.2, 0.01);
	ck_assert(!any_note());
}
END_TEST

START_TEST(a_daemon_that_is_silent_gone_or_was_never_there_is_told_apart)
{
	make_ring(1 << 20, 1);
	run_for(5000, 0.4);
	open_watch();
	ck_assert(!any_note());
	now_ms += 2500;
	ck_assert(!any_note());
	now_ms += 2000;
	ck_assert(noted("the daemon has written nothing for 5 s"));
	unlink(ring_path);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_str_eq(only()->name, "a/12"); /* what was seen stays */
	top_watch_release(&watch);

	ck_assert_int_eq(top_watch_init(&watch, ring_path, NULL, message), 0);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_ptr_null(watch.feed.ring);
	ck_assert_int_eq(watch.place_error[0], -ENOENT);
	ck_assert(noted("there is no ring any more"));
	make_ring(1 << 20, 2);
	run_for(2000, 0.1);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_uint_eq(only()->id, 2);
}
END_TEST

static bool nobody(int32_t pid, uint64_t start_ticks)
{
	(void)pid;
	(void)start_ticks;

	return false;
}

START_TEST(a_daemon_without_a_goodbye_is_gone)
{
	make_ring(1 << 20, 1);
	run_for(1000, 0.4);
	open_watch();
	ck_assert_int_eq(top_feed_state(&watch.feed, now(), nobody), TOP_FEED_LIVE);
	now_ms += 5000;
	ck_assert_int_eq(top_feed_state(&watch.feed, now(), nobody), TOP_FEED_KILLED);
	/* Of another boot: its last tick is in the future. */
	now_ms = 1000;
	ck_assert_int_eq(top_feed_state(&watch.feed, now(), nobody), TOP_FEED_KILLED);
}
END_TEST

START_TEST(being_overtaken_is_said)
{
	double cells[60];

	make_ring(4096 + 8 * 4096, 1);
	run_for(1000, 0.4);
	open_watch();
	run_for(60000, 0.3);
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_uint_gt(watch.feed.lost_pages, 0);
	ck_assert(noted("pages of the ring were overwritten"));
	ck_assert_double_eq_tol(only()->cpu_cores, 0.3, 0.01);
	top_table_history(&watch.table, only(), TOP_TABLE_CPU_CORES, cells, 60);
	ck_assert(isnan(cells[30]) && !isnan(cells[58]));
}
END_TEST

START_TEST(a_damaged_page_is_said_and_passed_over)
{
	make_ring(1 << 20, 1);
	run_for(30000, 0.3);
	AUTO_CLOSE int fd = open(ring_path, O_RDWR | O_CLOEXEC);
	char byte;

	/* In the records of the fourth page. */
	ck_assert_int_eq(pread(fd, &byte, 1, 4096 + 3 * 4096 + 1000), 1);
	byte = (char)~byte;
	ck_assert_int_eq(pwrite(fd, &byte, 1, 4096 + 3 * 4096 + 1000), 1);
	open_watch();
	ck_assert_uint_eq(watch.feed.damaged_pages, 1);
	ck_assert(noted("1 pages of the ring are damaged"));
	ck_assert_double_eq_tol(only()->cpu_cores, 0.3, 0.01);
}
END_TEST

START_TEST(what_is_no_ring_is_refused_with_a_reason)
{
	char said[2048] = "";
	FILE *file = fmemopen(said, sizeof(said), "w");

	scene_write(ring_path, "this is no ring");
	open_watch();
	ck_assert_ptr_null(watch.feed.ring);
	ck_assert_int_eq(top_watch_explain(&watch, "x: ", file), 2);
	fclose(file);
	ck_assert_msg(strstr(said, "not a ring that can be read"), "%s", said);
	ck_assert_msg(strstr(said, "The file is damaged"), "%s", said);
}
END_TEST

START_TEST(without_a_good_configuration_there_are_figures_and_no_rules)
{
	make_ring(1 << 20, 1);
	run_for(2000, 0.3);
	scene_write(config_path, "{}");
	ck_assert_int_eq(top_watch_init(&watch, ring_path, config_path, message), 0);
	scene_write(config_path, "{\"rules\": 7}");
	ck_assert_int_eq(top_watch_update(&watch, now()), 0);
	ck_assert_ptr_null(watch.rules);
	ck_assert(noted("no rules: "));
	ck_assert_double_eq_tol(only()->cpu_cores, 0.3, 0.01);
	ck_assert_ptr_null(only()->nearest);
	top_watch_release(&watch);

	/* One that was named must be good where it says where the ring is. */
	ck_assert_int_eq(top_watch_init(&watch, NULL, config_path, message), -EINVAL);
	ck_assert_msg(strstr(message, config_path) != NULL, "%s", message);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
	bool injected = true;

	make_ring(1 << 20, 1);
	run_for(500, 0.1);
	run_for(500, 0.8);
	remember(WALL_MS + now_ms + 20000);
	for (long n = 1; injected && n < 100000; n++) {
		int r;

		torture_arm(n);
		r = top_watch_init(&watch, NULL, config_path, message);
		if (r == 0)
			r = top_watch_update(&watch, now());
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		if (injected)
			top_watch_release(&watch);
	}
	ck_assert_uint_eq(only()->cooling, 1);
	ck_assert_uint_eq(only()->pending, 1);
}
END_TEST

Suite *top_watch_suite(void)
{
	Suite *suite = suite_create("top_watch");
	TCase *tcase = tcase_create("topwatch");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_the_ring_holds_is_there_at_once);
	tcase_add_test(tcase, what_is_written_meanwhile_is_followed);
	tcase_add_test(tcase, pending_and_cooling_are_found_out_from_the_samples);
	tcase_add_test(tcase, a_cooldown_from_before_is_known_from_the_state_file);
	tcase_add_test(tcase, a_firing_that_the_ring_and_the_file_know_cools_as_long_as_it_should);
	tcase_add_test(tcase, a_changed_configuration_is_judged_from_the_past_on);
	tcase_add_test(tcase, another_ring_is_another_world);
	tcase_add_test(tcase, a_daemon_that_is_silent_gone_or_was_never_there_is_told_apart);
	tcase_add_test(tcase, a_daemon_without_a_goodbye_is_gone);
	tcase_add_test(tcase, being_overtaken_is_said);
	tcase_add_test(tcase, a_damaged_page_is_said_and_passed_over);
	tcase_add_test(tcase, what_is_no_ring_is_refused_with_a_reason);
	tcase_add_test(tcase, without_a_good_configuration_there_are_figures_and_no_rules);
	tcase_add_test(tcase, every_allocation_may_fail);
	suite_add_tcase(suite, tcase);

	return suite;
}
