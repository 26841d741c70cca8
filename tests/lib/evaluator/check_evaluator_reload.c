/*
 * check_evaluator_reload.c: what a new configuration leaves alone, what it begins anew, and what it
 * drops. Each configuration is parsed and freed as soon as the next one is in force, so that a
 * sanitizer sees what still refers to it.
 */
#include "evaluator_bench.h"
#include "torture.h"

#include "lib/base/base.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>

Suite *evaluator_reload_suite(void);

/* Both steps. */
static int reload_evaluator(struct evaluator *which, const struct config *next)
{
	struct evaluator_reload *reload;
	int r = evaluator_reload_prepare(which, next, &reload);

	if (r == 0)
		evaluator_reload_commit(reload);

	return r;
}

#define WEB "{\"name\":\"web\",\"comm\":\"web\"}"
#define CACHE "{\"name\":\"cache\",\"comm\":\"cache\"}"
/* Fires for every value that is no idleness. */
#define HOT(more) "{\"name\":\"hot\",\"metric\":\"cpu\",\"of\":\"core\",\"percent\":1,\"warmup\":0" more "}"
#define COOL(more) "{\"name\":\"cool\",\"metric\":\"cpu\",\"of\":\"core\",\"percent\":90000,\"warmup\":0" more "}"
#define NO_COOLDOWN ",\"cooldown\":\"0s\""
#define CONFIG(targets, rules) "{\"targets\":[" targets "],\"rules\":[" rules "]}"

static struct config *in_force;

static struct config *parsed(const char *text)
{
	const struct config_source source = { "t.json", text, strlen(text) };
	struct config_error err = { .message = "" };
	struct config *ret = NULL;
	char line[1024];
	int r = config_parse(&source, 1, &ret, &err);

	config_error_format(&err, line, sizeof(line));
	ck_assert_msg(r == 0, "%s: %s", text, line);
	return ret;
}

static struct evaluator *evaluator_for(const struct config *with, struct rule_state *its_memo,
				       int (*on_fire)(void *ctx, const struct evaluator_firing *firing), void *ctx)
{
	const struct evaluator_options options = {
		.config = with,
		.machine = { .cores = 4, .memory_bytes = 1 << 20 },
		.rule_state = its_memo,
		.fire = on_fire,
		.ctx = ctx,
	};
	struct evaluator *ret = NULL;

	ck_assert_int_eq(evaluator_new(&options, &ret), 0);
	return ret;
}

static void start_with(const char *text)
{
	in_force = parsed(text);
	evaluator = evaluator_for(in_force, rule_state, fire, NULL);
}

static void reload(const char *text)
{
	struct config *next = parsed(text);

	ck_assert_int_eq(reload_evaluator(evaluator, next), 0);
	config_free(in_force);
	in_force = next;
}

static void end_with(void)
{
	end();
	config_free(in_force);
	in_force = NULL;
}

static void watch_entry(uint32_t id, const char *entry, const char *name)
{
	struct target target = make_target(id, name);

	target.entry = entry;
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
}

/* A target that uses half a core, from its first sample at 0 on. */
static void half_busy(uint32_t id, uint64_t from_ns, uint64_t to_ns, uint64_t step_ns)
{
	for (uint64_t now = from_ns; now <= to_ns; now += step_ns) {
		cpu(id, now, now / 2);
		tick(now);
	}
}

/* ---- what is known of a pair ---- */

struct wanted {
	const char *rule, *target;
	unsigned found;
	struct trigger_decision decision;
	struct trigger_memory memory;
	uint32_t reasons[TRIGGER_REASONS];
	bool judged;
};

static int want(void *ctx, const struct evaluator_status *status)
{
	struct wanted *wanted = ctx;

	if (strcmp(status->rule->name, wanted->rule) != 0 || strcmp(status->target->name, wanted->target) != 0)
		return 0;
	wanted->found++;
	wanted->judged = status->decision != NULL;
	if (status->decision)
		wanted->decision = *status->decision;
	wanted->memory = *status->memory;
	memcpy(wanted->reasons, status->reasons, sizeof(wanted->reasons));
	return 0;
}

static struct wanted look(const char *rule, const char *target)
{
	struct wanted wanted = { .rule = rule, .target = target };

	evaluator_visit(evaluator, want, &wanted);
	ck_assert_uint_le(wanted.found, 1);
	return wanted;
}

static int count_one(void *ctx, const struct evaluator_sight *sight)
{
	(void)sight;
	++*(unsigned *)ctx;
	return 0;
}

static unsigned targets_known(void)
{
	unsigned count = 0;

	evaluator_visit_targets(evaluator, count_one, &count);
	return count;
}

/* ---- rules ---- */

/* Fills it with newer entries. */
static void drop_rule_state(void)
{
	char key[16];

	for (unsigned i = 0; i < RULE_STATE_ENTRIES_MAX; i++) {
		snprintf(key, sizeof(key), "other-%u", i);
		ck_assert_int_eq(rule_state_put(rule_state, "other", key, &(struct trigger_memory){ .fired = i }), 0);
	}
}

START_TEST(rule_that_is_the_same_keeps_all_it_knows)
{
	struct wanted before, after;

	start_with(CONFIG(WEB, HOT(NO_COOLDOWN ",\"history\":4")));
	watch(1, "a");
	for (uint64_t i = 0; i <= 5; i++) {
		cpu(1, (10 + i) * S, i * i * 10 * MS);
		tick((10 + i) * S);
	}
	before = look("hot", "a");
	ck_assert(before.judged && before.decision.has_average);
	ck_assert_uint_gt(before.memory.fired, 0);
	/* What the bounded rule state has dropped is not lost here. */
	drop_rule_state();
	ck_assert(!rule_state_get(rule_state, "hot", "a", &before.memory));
	reload(CONFIG(CACHE "," WEB, COOL("") "," HOT(NO_COOLDOWN ",\"history\":4,\"targets\":[\"web\",\"cache\"]")));
	after = look("hot", "a");
	ck_assert(after.judged);
	ck_assert_double_eq(after.decision.average, before.decision.average);
	ck_assert_double_eq(after.decision.value, before.decision.value);
	ck_assert_int_eq(after.decision.reason, before.decision.reason);
	ck_assert_uint_eq(after.memory.fired, before.memory.fired);
	ck_assert(memcmp(after.reasons, before.reasons, sizeof(after.reasons)) == 0);

	/* 3, 5, 7, 9 % are the last four. */
	cpu(1, 16 * S, 360 * MS);
	tick(16 * S);
	after = look("hot", "a");
	ck_assert_double_eq(after.decision.average, 6);
	ck_assert_double_eq_tol(after.decision.value, 11, 1e-9);
	ck_assert(!look("cool", "a").decision.has_average);
}
END_TEST

START_TEST(rule_that_is_the_same_keeps_its_cooldown_to_the_window)
{
	start_with(CONFIG(WEB, HOT(",\"cooldown\":\"10s\"")));
	watch(1, "a");
	half_busy(1, 10 * S, 14 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	reload(CONFIG(WEB, HOT(",\"cooldown\":\"10s\"") "," COOL("")));
	half_busy(1, 14 * S + 100 * MS, 21 * S - 100 * MS, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(look("hot", "a").reasons[TRIGGER_COOLDOWN], 9);
	half_busy(1, 21 * S, 21 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 2);
}
END_TEST

START_TEST(rule_that_changed_begins_anew_with_its_cooldown_cut)
{
	start_with(CONFIG(WEB, HOT(",\"cooldown\":\"1h\",\"history\":2")));
	watch(1, "a");
	half_busy(1, 10 * S, 14 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	reload(CONFIG(WEB, "{\"name\":\"hot\",\"metric\":\"cpu\",\"of\":\"core\",\"percent\":2,\"warmup\":0,"
			   "\"cooldown\":\"3s\",\"history\":3}"));
	ck_assert(!look("hot", "a").judged);
	ck_assert_uint_eq(look("hot", "a").memory.fired, 1);
	half_busy(1, 14 * S + 100 * MS, 15 * S, 100 * MS);
	ck_assert(look("hot", "a").judged);
	ck_assert(!look("hot", "a").decision.has_average);
	ck_assert_uint_eq(look("hot", "a").reasons[TRIGGER_COOLDOWN], 1);
	half_busy(1, 15 * S + 100 * MS, 17 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	half_busy(1, 17 * S + 100 * MS, 18 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 2);
}
END_TEST

START_TEST(rule_that_changed_has_its_cooldown_even_if_the_memo_does_not)
{
	start_with(CONFIG(WEB, HOT("")));
	watch(1, "a");
	cpu(1, 10 * S, 0);
	tick(10 * S);
	cpu(1, 11 * S, S);
	torture_arm(2);
	tick(11 * S);
	ck_assert(torture_disarm());
	ck_assert_uint_eq(firing_count, 1);
	reload(CONFIG(WEB, HOT(",\"history\":3")));
	half_busy(1, 12 * S, 14 * S, S);
	ck_assert_uint_eq(firing_count, 1);
}
END_TEST

START_TEST(rule_that_comes_back_remembers)
{
	start_with(CONFIG(WEB, HOT("") "," COOL("")));
	watch(1, "a");
	half_busy(1, 10 * S, 11 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	reload(CONFIG(WEB, COOL("")));
	ck_assert_uint_eq(look("hot", "a").found, 0);
	ck_assert_uint_eq(look("cool", "a").found, 1);
	half_busy(1, 11 * S + 100 * MS, 13 * S, 100 * MS);
	reload(CONFIG(WEB, COOL("") "," HOT("")));
	ck_assert_uint_eq(look("hot", "a").memory.fired, 1);
	half_busy(1, 13 * S + 100 * MS, 70 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	half_busy(1, 70 * S + 100 * MS, 71 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 2);
}
END_TEST

/* ---- windows ---- */

/* Of target 1: 9,000 bytes at 10.3 s alone. */
static void peak_once(void)
{
	memory(1, 10 * S, 100, 0);
	tick(10 * S);
	memory(1, 10 * S + 300 * MS, 9000, 0);
	tick(10 * S + 300 * MS);
	memory(1, 10 * S + 400 * MS, 100, 0);
	tick(10 * S + 400 * MS);
}

START_TEST(window_that_is_open_stays_open_with_its_peak)
{
	static const char *const rule = "{\"name\":\"peak\",\"metric\":\"memory_peak\",\"above\":\"1B\",\"warmup\":0}";
	char text[400];

	snprintf(text, sizeof(text), CONFIG(WEB, "%s"), rule);
	start_with(text);
	watch(1, "a");
	peak_once();
	snprintf(text, sizeof(text), CONFIG(WEB, "%s," COOL(",\"window\":\"300ms\"")), rule);
	reload(text);
	ticks(10 * S + 500 * MS, 11 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_double_eq(firings[0].value, 9000);
	ck_assert_uint_eq(firings[0].from.ns, 10 * S);
}
END_TEST

START_TEST(new_length_is_not_judged_over_a_part)
{
	start_with(CONFIG(WEB, HOT(",\"cooldown\":\"30d\"")));
	watch(1, "a");
	half_busy(1, 10 * S, 14 * S + 500 * MS, 100 * MS);
	firing_count = 0;
	reload(CONFIG(WEB, "{\"name\":\"three\",\"metric\":\"cpu\",\"of\":\"core\",\"percent\":1,\"warmup\":0,"
			   "\"window\":\"3s\"}," HOT(",\"cooldown\":\"30d\"")));
	half_busy(1, 14 * S + 600 * MS, 17 * S + 600 * MS, 100 * MS);
	ck_assert(!look("three", "a").judged);
	half_busy(1, 17 * S + 700 * MS, 17 * S + 700 * MS, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(firings[0].from.ns, 14 * S + 700 * MS);
	ck_assert_uint_eq(firings[0].to.ns, 17 * S + 700 * MS);
	ck_assert_uint_eq(look("hot", "a").decision.value > 0, 1);
}
END_TEST

START_TEST(new_length_before_the_first_tick_begins_as_at_the_start)
{
	start_with(CONFIG(WEB, COOL("")));
	watch(1, "a");
	reload(CONFIG(WEB, HOT(",\"window\":\"3s\"")));
	half_busy(1, 10 * S, 13 * S + 100 * MS, 100 * MS);
	ck_assert_uint_eq(firing_count, 0);
	half_busy(1, 13 * S + 200 * MS, 13 * S + 200 * MS, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(firings[0].from.ns, 10 * S + 200 * MS);
}
END_TEST

START_TEST(new_rule_of_a_known_length_is_judged_over_the_whole_window)
{
	start_with(CONFIG(WEB, COOL("")));
	watch(1, "a");
	half_busy(1, 10 * S, 10 * S + 700 * MS, 100 * MS);
	reload(CONFIG(WEB, COOL("") "," HOT("")));
	half_busy(1, 10 * S + 800 * MS, 11 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(firings[0].from.ns, 10 * S);
}
END_TEST

START_TEST(window_that_no_rule_looked_at_is_not_resumed)
{
	start_with(CONFIG(WEB "," CACHE, HOT(",\"targets\":[\"web\"]")));
	watch(1, "a");
	half_busy(1, 10 * S, 10 * S + 500 * MS, 100 * MS);
	reload(CONFIG(WEB "," CACHE, HOT(",\"targets\":[\"cache\"]")));
	half_busy(1, 10 * S + 600 * MS, 20 * S + 500 * MS, 100 * MS);
	ck_assert_uint_eq(firing_count, 0);
	reload(CONFIG(WEB "," CACHE, HOT(",\"targets\":[\"web\"]")));
	half_busy(1, 20 * S + 600 * MS, 21 * S + 500 * MS, 100 * MS);
	ck_assert_uint_eq(firing_count, 0);
	half_busy(1, 21 * S + 600 * MS, 21 * S + 600 * MS, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(firings[0].from.ns, 20 * S + 600 * MS);
}
END_TEST

START_TEST(interval_of_cgroups_follows)
{
	struct target target = make_target(1, "a");

	target.kind = TARGET_CGROUP;
	start_with(CONFIG("{\"name\":\"web\",\"unit\":\"web.service\"}", HOT("")));
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
	cpu(1, 10 * S, 0);
	tick(10 * S);
	reload("{\"sampling\":{\"cgroup_interval\":\"500ms\"},\"targets\":[{\"name\":\"web\",\"unit\":\"web.service\"}]"
	       ","
	       "\"rules\":[" HOT("") "]}");
	cpu(1, 10 * S + 600 * MS, 300 * MS);
	tick(10 * S + 600 * MS);
	tick(11 * S);
	ck_assert_uint_eq(firing_count, 1);
	/* Every 100 ms, it would have been seen unchanged at 10.9 s. */
	ck_assert_uint_eq(firings[0].to.ns, 10 * S + 600 * MS);
}
END_TEST

/* ---- windows of a cgroup, whose observations are laid out by all rules of their length ---- */

#define UNIT "{\"name\":\"web\",\"unit\":\"web.service\"}"
#define CAPPED "{\"name\":\"capped\",\"metric\":\"throttled\",\"percent\":\"90%\",\"warmup\":0}"
#define QUARTER ",\"window\":\"250ms\""
#define WAITS "{\"name\":\"waits\",\"metric\":\"cpu_pressure\",\"percent\":\"20%\",\"warmup\":0" NO_COOLDOWN QUARTER "}"
#define PEAK "{\"name\":\"peak\",\"metric\":\"memory_peak\",\"above\":\"1B\",\"warmup\":0" NO_COOLDOWN "}"

static void start_with_cgroup(const char *text)
{
	struct target target = make_target(1, "a");

	target.kind = TARGET_CGROUP;
	start_with(text);
	ck_assert_int_eq(feed_target(evaluator, &target), 0);
}

START_TEST(rule_of_a_cgroup_fires_on_when_another_of_its_length_goes)
{
	start_with_cgroup(CONFIG(UNIT, HOT(NO_COOLDOWN) "," CAPPED));
	half_busy(1, 10 * S, 12 * S + 500 * MS, 100 * MS);
	ck_assert_uint_eq(firing_count, 2);
	reload(CONFIG(UNIT, HOT(NO_COOLDOWN)));
	half_busy(1, 12 * S + 600 * MS, 20 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 10);
	for (size_t i = 0; i < firing_count; i++)
		ck_assert_double_eq_tol(firings[i].value, 50, 1e-9);
}
END_TEST

/* Files that are read at intervals of their own: their counters belong to the time of the read. */
START_TEST(rule_that_comes_to_a_cgroup_is_judged_between_its_reads)
{
	start_with_cgroup(CONFIG(UNIT, COOL(QUARTER)));
	for (uint64_t now = 10 * S; now <= 14 * S; now += 10 * MS) {
		if (now == 10 * S + 510 * MS)
			reload(CONFIG(UNIT, COOL(QUARTER) "," WAITS));
		tell(now, now);
		tick(now);
	}
	ck_assert_uint_ge(firing_count, 12);
	for (size_t i = 0; i < firing_count; i++)
		ck_assert_double_eq_tol(firings[i].value, 50, 1e-9);
}
END_TEST

START_TEST(peak_of_a_cgroup_is_kept_when_another_rule_of_its_length_comes)
{
	start_with_cgroup(CONFIG(UNIT, PEAK));
	peak_once();
	reload(CONFIG(UNIT, PEAK "," CAPPED));
	ticks(10 * S + 500 * MS, 11 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_double_eq(firings[0].value, 9000);
	memory(1, 11 * S + 300 * MS, 7000, 0);
	tick(11 * S + 300 * MS);
	memory(1, 11 * S + 400 * MS, 100, 0);
	ticks(11 * S + 400 * MS, 12 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 2);
	ck_assert_double_eq(firings[1].value, 7000);
}
END_TEST

/* ---- targets ---- */

START_TEST(targets_of_an_entry_that_changed_are_dropped_and_stay_away)
{
	start_with(CONFIG(WEB "," CACHE, HOT(NO_COOLDOWN)));
	watch_entry(1, "web", "a");
	watch_entry(5, "web", "b");
	watch_entry(3, "cache", "c");
	cpu(1, 10 * S, 0);
	cpu(3, 10 * S, 0);
	cpu(5, 10 * S, 0);
	reload(CONFIG(CACHE ",{\"name\":\"web\",\"comm\":\"nginx\"}", HOT(NO_COOLDOWN)));
	ck_assert_uint_eq(targets_known(), 1);
	tick(10 * S);

	/* The ring describes them once more, and what it has not said yet. */
	watch_entry(1, "web", "a");
	watch_entry(5, "web", "b");
	watch_entry(2, "web", "late");
	ck_assert_uint_eq(targets_known(), 1);
	cpu(1, 11 * S, S);
	cpu(5, 11 * S, S);
	tick(11 * S);
	ck_assert_uint_eq(firing_count, 0);
	feed_gone(evaluator, 1);
	watch_entry(1, "web", "a");
	ck_assert_uint_eq(targets_known(), 1);

	/*
	 * What the new selection finds is new; entries that did not change take whatever is theirs.
	 */
	watch_entry(6, "web", "d");
	watch_entry(4, "cache", "e");
	ck_assert_uint_eq(targets_known(), 3);

	/* And so it stays over a reload that changes something else. */
	reload(CONFIG(CACHE ",{\"name\":\"web\",\"comm\":\"nginx\"}", HOT(NO_COOLDOWN) "," COOL("")));
	ck_assert_uint_eq(targets_known(), 3);
	watch_entry(5, "web", "b");
	ck_assert_uint_eq(targets_known(), 3);
	cpu(6, 12 * S, 0);
	tick(12 * S);
	cpu(6, 13 * S, S);
	tick(13 * S);
	ck_assert_uint_eq(firing_count, 1);
}
END_TEST

START_TEST(targets_of_an_entry_that_is_gone_are_dropped_until_it_is_back_under_new_ids)
{
	start_with(CONFIG(WEB "," CACHE, HOT("")));
	watch_entry(1, "web", "a");
	watch_entry(2, "cache", "c");
	reload(CONFIG(WEB, HOT("")));
	ck_assert_uint_eq(targets_known(), 1);
	watch_entry(2, "cache", "c");
	watch_entry(9, "cache", "d");
	ck_assert_uint_eq(targets_known(), 1);
	reload(CONFIG(WEB "," CACHE, HOT("")));
	watch_entry(2, "cache", "c");
	watch_entry(9, "cache", "d");
	ck_assert_uint_eq(targets_known(), 1);
	watch_entry(10, "cache", "c");
	ck_assert_uint_eq(targets_known(), 2);
}
END_TEST

START_TEST(many_targets_are_dropped_between_sample_and_tick)
{
	start_with(CONFIG(WEB "," CACHE, HOT(NO_COOLDOWN)));
	for (uint32_t id = 1; id <= 300; id++) {
		watch_entry(id, id % 3 ? "cache" : "web", "x");
		cpu(id, 10 * S, 0);
	}
	reload(CONFIG(WEB, HOT(NO_COOLDOWN)));
	ck_assert_uint_eq(targets_known(), 100);
	tick(10 * S);
	for (uint32_t id = 298; id <= 300; id++)
		cpu(id, 11 * S, S);
	tick(11 * S);
	ck_assert_uint_eq(firing_count, 1);
	ck_assert_uint_eq(feed_judged(evaluator), 100);
}
END_TEST

/* ---- all or nothing ---- */

static uint64_t mix(uint64_t hash, const void *data, size_t len)
{
	const unsigned char *bytes = data;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ bytes[i]) * 1099511628211u;
	return hash;
}

#define MIX(hash, value) mix(hash, &(value), sizeof(value))

static uint64_t mix_text(uint64_t hash, const char *text)
{
	return mix(hash, text, strlen(text) + 1);
}

static uint64_t mix_decision(uint64_t hash, const struct trigger_decision *decision)
{
	hash = MIX(hash, decision->fires);
	hash = MIX(hash, decision->reason);
	hash = MIX(hash, decision->value);
	hash = MIX(hash, decision->average);
	hash = MIX(hash, decision->distance);
	hash = MIX(hash, decision->phase);
	hash = MIX(hash, decision->cooldown_left_ns);
	return MIX(hash, decision->pending_ns);
}

/* Sums of what is seen, so that the order does not matter; rules called x... are left out. */
struct print {
	uint64_t known, fired;
};

static int print_pair(void *ctx, const struct evaluator_status *status)
{
	struct print *print = ctx;
	uint64_t hash = mix_text(mix_text(1469598103934665603u, status->rule->name), status->target->name);

	if (status->rule->name[0] == 'x')
		return 0;
	if (status->decision)
		hash = mix_decision(hash, status->decision);
	hash = MIX(hash, status->memory->fired);
	hash = MIX(hash, status->memory->cooldown_until.ns);
	hash = MIX(hash, status->memory->disarmed);
	print->known += mix(hash, status->reasons, TRIGGER_REASONS * sizeof(status->reasons[0]));
	return 0;
}

static int print_target(void *ctx, const struct evaluator_sight *sight)
{
	struct print *print = ctx;
	uint64_t hash = mix_text(MIX(14695981039346656u, sight->target->id), sight->target->name);

	hash = MIX(hash, sight->at);
	if (sight->seen)
		hash = MIX(hash, sight->sample->value[SAMPLE_CPU]);
	print->known += hash;
	return 0;
}

static int print_firing(void *ctx, const struct evaluator_firing *firing)
{
	struct print *print = ctx;
	uint64_t hash = mix_text(mix_text(7, firing->rule->name), firing->target->name);

	if (firing->rule->name[0] == 'x')
		return 0;
	hash = MIX(hash, firing->from);
	hash = MIX(hash, firing->to);
	hash = MIX(hash, firing->wall);
	print->fired += mix_decision(hash, firing->decision);
	return 0;
}

static void take_print(const struct evaluator *of, struct print *print)
{
	print->known = 0;
	evaluator_visit(of, print_pair, print);
	evaluator_visit_targets(of, print_target, print);
}

START_TEST(every_allocation_of_a_reload_may_fail_and_then_nothing_has_changed)
{
	static const char *const text =
		CONFIG(WEB, COOL(",\"window\":\"2s\"") "," HOT("") ",{\"name\":\"more\",\"metric\":"
								   "\"memory_bytes\",\"above\":\"1B\"}");
	struct print before = { 0 }, after = { 0 };
	bool injected = true;
	long n = 1;

	start_with(CONFIG(WEB "," CACHE, COOL("") "," HOT("")));
	watch_entry(1, "web", "a");
	watch_entry(2, "cache", "b");
	watch_entry(3, "web", "c");
	half_busy(1, 10 * S, 13 * S, 100 * MS);
	cpu(2, 13 * S, 1);
	take_print(evaluator, &before);
	for (; injected; n++) {
		struct config *next = parsed(text);
		int r;

		torture_arm(n);
		r = reload_evaluator(evaluator, next);
		injected = torture_disarm();
		ck_assert_int_eq(r, injected ? -ENOMEM : 0);
		if (injected) {
			config_free(next);
			take_print(evaluator, &after);
			ck_assert_uint_eq(after.known, before.known);
			watch_entry(2, "cache", "b");
			ck_assert_uint_eq(targets_known(), 3);
		} else {
			config_free(in_force);
			in_force = next;
		}
	}
	ck_assert_int_gt(n, 10);
	ck_assert_uint_eq(targets_known(), 2);
	firing_count = 0;
	half_busy(1, 13 * S + 100 * MS, 20 * S, 100 * MS);
	ck_assert_uint_eq(firing_count, 0);
	ck_assert_uint_eq(look("hot", "a").reasons[TRIGGER_COOLDOWN], 9);
	ck_assert(look("more", "a").judged);
}
END_TEST

/* ---- as if nothing had happened ---- */

#define BASE \
	"{\"name\":\"a\",\"metric\":\"cpu\",\"of\":\"core\",\"percent\":\"60%\",\"window\":\"200ms\",\"cooldown\":" \
	"\"2s\"}," \
	"{\"name\":\"b\",\"metric\":\"cpu\",\"of\":\"core\",\"delta\":\"30%\",\"window\":\"500ms\",\"cooldown\":" \
	"\"0s\",\"count\":3," \
	"\"count_period\":\"5s\"}," \
	"{\"name\":\"c\",\"metric\":\"memory_peak\",\"above\":\"3kB\",\"window\":\"1s\",\"for\":\"2s\",\"rearm\":" \
	"\"below\"}," \
	"{\"name\":\"d\",\"metric\":\"memory_bytes\",\"above\":\"1kB\",\"window\":\"200ms\",\"rearm\":\"high-water\"," \
	"\"cooldown\":\"1s\",\"targets\":[\"cache\"]}"
#define UNITS "{\"name\":\"unit\",\"unit\":\"x.service\"}"
#define EXTRA_A "{\"name\":\"x1\",\"metric\":\"cpu\",\"of\":\"core\",\"percent\":1,\"window\":\"700ms\"}"
#define EXTRA_B \
	"{\"name\":\"x2\",\"metric\":\"cpu\",\"of\":\"core\",\"percent\":1,\"window\":\"500ms\",\"targets\":[\"web\"]" \
	"}"

#define EXTRA_C \
	"{\"name\":\"x3\",\"metric\":\"throttled\",\"percent\":1,\"window\":\"500ms\"}," \
	"{\"name\":\"x4\",\"metric\":\"cpu_pressure\",\"percent\":1,\"window\":\"1s\"}"

static const char *const alike[] = {
	CONFIG(WEB "," CACHE "," UNITS, BASE),
	CONFIG(UNITS "," WEB ",{\"name\":\"more\",\"comm\":\"more\"}," CACHE, EXTRA_A "," BASE),
	CONFIG(CACHE "," UNITS "," WEB, BASE "," EXTRA_B),
	CONFIG(CACHE "," UNITS "," WEB, EXTRA_B "," BASE "," EXTRA_A),
	CONFIG(WEB "," UNITS "," CACHE, BASE "," EXTRA_C),
};

/* xorshift64, so that a failure comes again. */
static uint64_t dice_state;

static uint64_t dice(uint64_t sides)
{
	dice_state ^= dice_state << 13;
	dice_state ^= dice_state >> 7;
	dice_state ^= dice_state << 17;
	return dice_state % sides;
}

/*
 * Two that are told the same: the first keeps its configuration, the second gets a new one again
 * and again.
 */
struct pair_of {
	struct evaluator *evaluators[2];
	struct rule_state *memos[2];
	struct config *configs[2];
	struct print prints[2];
	bool equal_only;
	uint64_t now, cpu_ns[40];
	uint32_t next_id;
};

static void maybe_reload(struct pair_of *pair)
{
	struct config *next;

	if (dice(20) != 0)
		return;
	next = parsed(alike[pair->equal_only ? 0 : dice(ARRAY_LEN(alike))]);
	ck_assert_int_eq(reload_evaluator(pair->evaluators[1], next), 0);
	config_free(pair->configs[1]);
	pair->configs[1] = next;
}

static void tell_target(struct pair_of *pair, uint32_t id)
{
	static const char *const entries[] = { "web", "cache", "unit" };
	char name[16];
	struct target target;

	snprintf(name, sizeof(name), "t%u", id % 7 + 100 * (id % 3));
	target = make_target(id, name);
	target.entry = entries[id % 3];
	target.kind = id % 3 == 2 ? TARGET_CGROUP : TARGET_PROCESS;
	for (size_t k = 0; k < 2; k++)
		ck_assert_int_eq(feed_target(pair->evaluators[k], &target), 0);
}

static void tell_sample(struct pair_of *pair, uint32_t id)
{
	struct sample sample = { 0 };

	pair->cpu_ns[id % 40] += dice(40 * MS);
	sample_set(&sample, SAMPLE_CPU, pair->cpu_ns[id % 40]);
	if (dice(10) != 0)
		sample_set(&sample, SAMPLE_MEMORY, dice(4000));
	for (size_t k = 0; k < 2; k++)
		feed_sample(pair->evaluators[k], id, (mono_t){ pair->now + id % 5 }, &sample);
}

static void tell_tick(struct pair_of *pair)
{
	uint32_t oldest = pair->next_id > 20 ? pair->next_id - 20 : 1;
	bool gap = dice(200) == 0;

	pair->now += dice(100) == 0 ? 900 * MS : 40 * MS + dice(20 * MS);
	if (dice(15) == 0)
		tell_target(pair, pair->next_id++);
	for (uint32_t id = oldest; id < pair->next_id; id++) {
		if (dice(4) != 0)
			tell_sample(pair, id);
		if (dice(10) == 0)
			tell_target(pair, id);
		if (id + 18 < pair->next_id)
			for (size_t k = 0; k < 2; k++)
				feed_gone(pair->evaluators[k], id);
	}
	for (size_t k = 0; gap && k < 2; k++)
		feed_gap(pair->evaluators[k]);
	maybe_reload(pair);
	for (size_t k = 0; k < 2; k++)
		feed_tick(pair->evaluators[k], (mono_t){ pair->now }, (wall_t){ pair->now + WALL_AHEAD });
	maybe_reload(pair);
}

static void as_if_nothing_had_happened(uint64_t seed, bool equal_only)
{
	struct pair_of pair = { .now = 10 * S, .next_id = 1, .equal_only = equal_only };

	dice_state = 88172645463325252u + seed * 7919;
	for (size_t k = 0; k < 2; k++) {
		pair.configs[k] = parsed(alike[0]);
		ck_assert_int_eq(rule_state_new("boot", &pair.memos[k]), 0);
		pair.evaluators[k] = evaluator_for(pair.configs[k], pair.memos[k], print_firing, &pair.prints[k]);
	}
	for (int i = 0; i < 1500; i++) {
		tell_tick(&pair);
		for (size_t k = 0; k < 2; k++)
			take_print(pair.evaluators[k], &pair.prints[k]);
		ck_assert_msg(pair.prints[0].known == pair.prints[1].known, "seed %d, tick %d", (int)seed, i);
		ck_assert_msg(pair.prints[0].fired == pair.prints[1].fired, "seed %d, tick %d", (int)seed, i);
	}
	if (equal_only)
		ck_assert_uint_eq(feed_judged(pair.evaluators[0]), feed_judged(pair.evaluators[1]));
	ck_assert_uint_ne(pair.prints[0].fired, 0);
	for (size_t k = 0; k < 2; k++) {
		evaluator_free(pair.evaluators[k]);
		rule_state_free(pair.memos[k]);
		config_free(pair.configs[k]);
	}
}

START_TEST(equal_configuration_changes_no_decision)
{
	as_if_nothing_had_happened((uint64_t)_i, true);
}
END_TEST

START_TEST(other_rules_and_entries_change_no_decision_of_those_that_stay)
{
	as_if_nothing_had_happened((uint64_t)_i, false);
}
END_TEST

/* ---- what a witness sees, and the order of writers ---- */

struct outcome {
	uint64_t fired, windows, counted;
};

static int add_firing(void *ctx, const struct evaluator_firing *firing)
{
	struct outcome *outcome = ctx;
	uint64_t hash = mix_text(mix_text(7, firing->rule->name), firing->target->name);

	hash = MIX(hash, firing->from);
	hash = MIX(hash, firing->to);
	outcome->fired += mix_decision(hash, firing->decision);
	return 0;
}

static void add_window(void *ctx, const struct evaluator_firing *window)
{
	((struct outcome *)ctx)->windows += !window->decision->fires || window->decision->candidate;
}

static void add_counted(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision,
			uint32_t windows)
{
	struct outcome *outcome = ctx;

	outcome->counted += windows * mix_text(MIX(3, decision->reason), rule->name);
}

#define PROPERTY_EVENTS 40000
#define PROPERTY_WRITERS 3u

/* Ticks of three writers, with holes; samples of some of their targets. */
struct property_feed {
	struct ring_event *events;
	struct sample *samples;
	size_t count;
};

static struct ring_event *add_event(struct property_feed *feed, enum ring_event_type type, uint64_t at, uint32_t writer)
{
	struct ring_event *event = &feed->events[feed->count++];

	ck_assert_uint_lt(feed->count, PROPERTY_EVENTS);
	*event = (struct ring_event){ .type = type, .time = { at }, .wall = { at + WALL_AHEAD }, .writer = writer };
	return event;
}

static void make_tick(struct property_feed *feed, uint64_t at, uint32_t writer, struct sample *now)
{
	add_event(feed, RING_EVENT_TICK, at, writer);
	for (uint32_t id = writer + 1; id <= 9; id += PROPERTY_WRITERS) {
		struct sample *sample = &feed->samples[feed->count];

		if (dice(3) == 0)
			continue;
		now[id].value[SAMPLE_CPU] += dice(3) ? dice(12 * MS) : 0;
		now[id].value[SAMPLE_MEMORY] = dice(4) ? now[id].value[SAMPLE_MEMORY] : dice(4000);
		*sample = now[id];

		struct ring_event *event = add_event(feed, RING_EVENT_SAMPLE, at + id * 100, writer);

		event->id = id;
		event->sample = sample;
	}
	add_event(feed, RING_EVENT_TICK_END, at, writer);
}

static void make_feed(struct property_feed *feed)
{
	uint64_t at[PROPERTY_WRITERS] = { 10 * S, 10 * S + 3 * MS, 10 * S + 7 * MS };
	struct sample now[10] = { 0 };
	static const char *const entries[] = { "web", "cache", "unit" };

	for (uint32_t id = 1; id <= 9; id++) {
		static char names[10][8];
		struct ring_event *event = add_event(feed, RING_EVENT_TARGET, 10 * S, (id - 1) % PROPERTY_WRITERS);

		snprintf(names[id], sizeof(names[id]), "t%u", id);
		event->target = make_target(id, names[id]);
		event->target.entry = entries[id % 3];
		sample_set(&now[id], SAMPLE_CPU, 1000);
		sample_set(&now[id], SAMPLE_MEMORY, 10);
	}
	while (at[0] < 16 * S) {
		uint32_t writer = (uint32_t)dice(PROPERTY_WRITERS);

		if (at[writer] > at[0] + S || (writer == 0 && at[1] + S < at[0]))
			continue;
		make_tick(feed, at[writer], writer, now);
		at[writer] += dice(60) ? 9 * MS + dice(2 * MS) : dice(700 * MS);
	}
}

/* in_lumps: all ticks of the first writer come first, and so on. */
static struct outcome judge_feed(const struct property_feed *feed, bool every_window, bool in_lumps)
{
	struct config *with = parsed(alike[0]);
	struct outcome outcome = { 0 };
	struct evaluator *judge = NULL;
	const struct evaluator_options options = {
		.config = with,
		.machine = { .cores = 4, .memory_bytes = 1 << 20 },
		.fire = add_firing,
		.judged = add_counted,
		.witness = every_window ? add_window : NULL,
		.every_window = every_window,
		.ctx = &outcome,
	};

	ck_assert_int_eq(evaluator_new(&options, &judge), 0);
	for (uint32_t writer = 0; writer < (in_lumps ? PROPERTY_WRITERS : 1); writer++)
		for (size_t i = 0; i < feed->count; i++)
			if (!in_lumps || feed->events[i].writer == writer)
				ck_assert_int_eq(evaluator_event(judge, &feed->events[i]), 0);
	evaluator_free(judge);
	config_free(with);
	return outcome;
}

START_TEST(decisions_depend_on_no_witness_and_on_no_order_of_writers)
{
	struct property_feed feed = {
		.events = calloc(PROPERTY_EVENTS, sizeof(struct ring_event)),
		.samples = calloc(PROPERTY_EVENTS, sizeof(struct sample)),
	};
	struct outcome plain, watched, lumps;

	ck_assert(feed.events && feed.samples);
	dice_state = 88172645463325252u + (uint64_t)_i * 104729;
	make_feed(&feed);
	plain = judge_feed(&feed, false, false);
	watched = judge_feed(&feed, true, false);
	lumps = judge_feed(&feed, false, true);
	ck_assert_uint_ne(plain.fired, 0);
	ck_assert_uint_gt(watched.windows, 0);
	ck_assert_uint_eq(watched.fired, plain.fired);
	ck_assert_uint_eq(watched.counted, plain.counted);
	ck_assert_uint_eq(lumps.fired, plain.fired);
	ck_assert_uint_eq(lumps.counted, plain.counted);
	free(feed.events);
	free(feed.samples);
}
END_TEST

/* ---- targets at rest ---- */

#define SLEEPERS 6u

#define RULES_OF_SLEEPERS(more) \
	"{\"name\":\"share\",\"metric\":\"cpu\",\"of\":\"core\",\"percent\":\"60%\",\"window\":\"200ms\",\"warmup\":" \
	"0," \
	"\"cooldown\":\"300ms\"}," \
	"{\"name\":\"average\",\"metric\":\"cpu\",\"of\":\"core\",\"delta\":\"30%\",\"window\":\"200ms\",\"history\":" \
	"5," \
	"\"warmup\":3,\"minimum\":\"1%\",\"cooldown\":\"0s\",\"for\":\"200ms\"}," \
	"{\"name\":\"grown\",\"metric\":\"memory_bytes\",\"delta\":\"50%\",\"window\":\"400ms\",\"history\":4," \
	"\"warmup\":" \
	"2,\"cooldown\":\"0s\"}," \
	"{\"name\":\"highest\",\"metric\":\"memory_bytes\",\"delta\":\"1%\",\"usual\":\"highest\",\"window\":" \
	"\"200ms\"," \
	"\"history\":3,\"warmup\":2,\"cooldown\":\"0s\"}," \
	"{\"name\":\"large\",\"metric\":\"memory_bytes\",\"above\":\"3kB\",\"window\":\"1200ms\",\"warmup\":0," \
	"\"for\":" \
	"\"600ms\",\"rearm\":\"below\",\"cooldown\":\"0s\"}," \
	"{\"name\":\"peak\",\"metric\":\"memory_peak\",\"above\":\"3kB\",\"window\":\"400ms\",\"warmup\":0,\"rearm\":" \
	"\"high-water\",\"count\":3,\"count_period\":\"2s\",\"cooldown\":\"0s\"}," \
	"{\"name\":\"high\",\"metric\":\"cpu\",\"of\":\"core\",\"percent\":\"20%\",\"maximum\":\"70%\",\"window\":" \
	"\"400ms\",\"warmup\":2,\"history\":2,\"cooldown\":\"0s\"}," \
	"{\"name\":\"low\",\"metric\":\"memory_bytes\",\"above\":\"1kB\",\"window\":\"400ms\",\"warmup\":3," \
	"\"history\":3," \
	"\"cooldown\":\"200ms\"}," \
	"{\"name\":\"idle\",\"metric\":\"cpu\",\"of\":\"core\",\"percent\":\"5%\",\"window\":\"1200ms\",\"warmup\":0," \
	"\"for\":\"1s\",\"cooldown\":\"1s\",\"targets\":[\"cache\"]}" more

static const char *const sleepers_rules[] = {
	CONFIG(WEB "," CACHE "," UNITS, RULES_OF_SLEEPERS("")),
	CONFIG(CACHE "," WEB "," UNITS, EXTRA_A "," RULES_OF_SLEEPERS("," EXTRA_B)),
};

/* Two that are told the same: the second has a witness, so it asks each target at each window's end. */
struct sleepers {
	struct evaluator *judges[2];
	struct config *configs[2];
	struct rule_state *memos[2];
	struct print prints[2];
	uint64_t counted[2], rested;
	uint64_t now, idle_ns;
	uint32_t first_id;
	struct sample last[SLEEPERS];
	uint32_t asleep[SLEEPERS]; /* ticks that it goes on to sleep */
	uint64_t offset[SLEEPERS];
	uint32_t in_use;
};

static int print_firing_of_sleeper(void *ctx, const struct evaluator_firing *firing)
{
	return print_firing(&((struct sleepers *)ctx)->prints[0], firing);
}

static int print_firing_of_asked(void *ctx, const struct evaluator_firing *firing)
{
	return print_firing(&((struct sleepers *)ctx)->prints[1], firing);
}

static void count_judged(uint64_t *sum, const struct config_rule *rule, const struct trigger_decision *decision,
			 uint32_t windows)
{
	if (rule->name[0] != 'x')
		*sum += windows * mix_text(MIX(3, decision->reason), rule->name);
}

static void count_of_sleeper(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision,
			     uint32_t windows)
{
	struct sleepers *sleepers = ctx;

	sleepers->rested += windows > 1;
	count_judged(&sleepers->counted[0], rule, decision, windows);
}

static void count_of_asked(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision,
			   uint32_t windows)
{
	count_judged(&((struct sleepers *)ctx)->counted[1], rule, decision, windows);
}

static void see_window(void *ctx, const struct evaluator_firing *window)
{
	(void)ctx, (void)window;
}

/* Two of its rules are of the kind that only `trap` makes. */
static struct config *parsed_with_below(const char *text)
{
	struct config *made = parsed(text);

	for (size_t i = 0; i < made->rule_count; i++)
		if (strcmp(made->rules[i].name, "low") == 0 || strcmp(made->rules[i].name, "idle") == 0)
			made->rules[i].trigger.below = true;
	return made;
}

static void tell_sleepers(struct sleepers *sleepers, const struct ring_event *event)
{
	for (size_t k = 0; k < 2; k++)
		ck_assert_int_eq(evaluator_event(sleepers->judges[k], event), 0);
}

static void tell_sleeper(struct sleepers *sleepers, uint32_t i)
{
	static const char *const entries[] = { "web", "cache", "unit" };
	struct ring_event event = { .type = RING_EVENT_TARGET, .time = { sleepers->now }, .writer = i % 2 };
	char name[16];

	snprintf(name, sizeof(name), "s%u", i);
	event.target = make_target(sleepers->first_id + i, name);
	event.target.entry = entries[i % 3];
	event.target.kind = i == 4 ? TARGET_GROUP : i == 5 ? TARGET_CGROUP : TARGET_PROCESS;
	event.id = event.target.id;
	tell_sleepers(sleepers, &event);
}

/* What a process does in a tick: it runs, it is seen standing still, or nothing is heard of it. */
static void sleep_or_run(struct sleepers *sleepers, uint32_t i)
{
	struct ring_event event = { .type = RING_EVENT_SAMPLE,
				    .time = { sleepers->now + sleepers->offset[i] },
				    .writer = i % 2,
				    .id = sleepers->first_id + i,
				    .sample = &sleepers->last[i] };

	if (dice(40) == 0)
		sleepers->offset[i] = dice(4) ? dice(4 * MS) : dice(90 * MS);
	if (sleepers->asleep[i] > 0) {
		sleepers->asleep[i]--;
		if (dice(25) == 0)
			tell_sleepers(sleepers, &event);
		return;
	}
	if (dice(8) == 0)
		sleepers->asleep[i] = (uint32_t)(dice(6) ? dice(60) : dice(700));
	if (dice(5) == 0) {
		struct ring_event before = event;

		before.time.ns = sleepers->now - 36 * MS + dice(MS);
		tell_sleepers(sleepers, &before);
	}
	sleepers->last[i].value[SAMPLE_CPU] += dice(3) ? dice(48 * MS) : dice(20) ? 0 : dice(4000 * MS);
	if (dice(6) == 0)
		sample_set(&sleepers->last[i], SAMPLE_MEMORY, dice(4000));
	if (dice(60) == 0)
		sleepers->last[i].mask ^= 1u << SAMPLE_MEMORY;
	if (dice(4) == 0)
		sample_set(&sleepers->last[i], SAMPLE_MEMORY_PEAK, dice(6000));
	tell_sleepers(sleepers, &event);
}

static void tick_of_sleepers(struct sleepers *sleepers, uint32_t writer)
{
	struct ring_event event = { .type = RING_EVENT_TICK, .time = { sleepers->now }, .writer = writer };

	event.wall.ns = sleepers->now + WALL_AHEAD;
	event.idle_ns = sleepers->idle_ns;
	tell_sleepers(sleepers, &event);
	if (dice(200) == 0) {
		struct ring_event hole = { .type = RING_EVENT_HOLE, .time = event.time, .writer = writer };

		hole.hole = (struct sampling_hole){ .from = { sleepers->now - 300 * MS },
						    .to = { sleepers->now },
						    .missed_slots = 1 + dice(9) };
		tell_sleepers(sleepers, &hole);
	}
	for (uint32_t i = writer; i < SLEEPERS; i += 2)
		sleep_or_run(sleepers, i);
	event.type = RING_EVENT_TICK_END;
	tell_sleepers(sleepers, &event);
}

/* Only the one that lets targets rest gets an equal configuration now and then, both get another one. */
static void reload_sleepers(struct sleepers *sleepers)
{
	uint32_t other = sleepers->in_use;

	if (dice(3) == 0)
		other = 1 - other;
	for (size_t k = 0; k < (other == sleepers->in_use ? 1 : 2); k++) {
		struct config *next = parsed_with_below(sleepers_rules[other]);

		ck_assert_int_eq(reload_evaluator(sleepers->judges[k], next), 0);
		config_free(sleepers->configs[k]);
		sleepers->configs[k] = next;
	}
	sleepers->in_use = other;
}

static void disturb_sleepers(struct sleepers *sleepers)
{
	struct ring_event event = { .type = RING_EVENT_LAPPED };

	switch (dice(6)) {
	case 0:
		tell_sleepers(sleepers, &event);
		break;
	case 1:
		event = (struct ring_event){ .type = RING_EVENT_GONE,
					     .id = sleepers->first_id + (uint32_t)dice(SLEEPERS) };
		tell_sleepers(sleepers, &event);
		break;
	case 2:
		sleepers->idle_ns = dice(2) * 100 * MS;
		break;
	case 3:
		sleepers->now -= dice(20) ? 0 : 8 * S;
		break;
	default:
		reload_sleepers(sleepers);
	}
}

static void compare_sleepers(struct sleepers *sleepers, uint64_t seed, bool look)
{
	for (size_t k = 0; look && k < 2; k++)
		take_print(sleepers->judges[k], &sleepers->prints[k]);
	ck_assert_msg(sleepers->prints[0].fired == sleepers->prints[1].fired, "seed %d: fired at %d ms", (int)seed,
		      (int)(sleepers->now / MS));
	ck_assert_msg(sleepers->counted[0] == sleepers->counted[1], "seed %d: counted at %d ms", (int)seed,
		      (int)(sleepers->now / MS));
	ck_assert_msg(sleepers->prints[0].known == sleepers->prints[1].known, "seed %d: known at %d ms", (int)seed,
		      (int)(sleepers->now / MS));
}

static struct sleepers let_sleep(uint64_t seed)
{
	struct sleepers sleepers = { .now = 100 * S, .first_id = 1 };
	bool steady = seed % 3 == 0; /* nothing but the targets themselves changes */

	dice_state = 88172645463325252u + seed * 15485863;
	for (uint32_t k = 0; k < 2; k++) {
		struct evaluator_options options = {
			.machine = { .cores = 4, .memory_bytes = 1 << 20 },
			.fire = k == 0 ? print_firing_of_sleeper : print_firing_of_asked,
			.judged = k == 0 ? count_of_sleeper : count_of_asked,
			.witness = k == 0 ? NULL : see_window,
			.ctx = &sleepers,
		};

		options.config = sleepers.configs[k] = parsed_with_below(sleepers_rules[0]);
		ck_assert_int_eq(rule_state_new("boot", &sleepers.memos[k]), 0);
		options.rule_state = sleepers.memos[k];
		ck_assert_int_eq(evaluator_new(&options, &sleepers.judges[k]), 0);
	}
	for (uint32_t i = 0; i < SLEEPERS; i++) {
		sample_set(&sleepers.last[i], SAMPLE_CPU, 1000);
		sample_set(&sleepers.last[i], SAMPLE_MEMORY, 500 + 600 * i);
		tell_sleeper(&sleepers, i);
	}
	for (int tick = 0; tick < 400; tick++) {
		sleepers.now += dice(50) || steady ? 36 * MS + dice(8 * MS) : dice(5) ? dice(400 * MS) : dice(4 * S);
		tick_of_sleepers(&sleepers, (uint32_t)tick % 2);
		compare_sleepers(&sleepers, seed, false);
		if (!steady && dice(40) == 0)
			disturb_sleepers(&sleepers);
		if (dice(60) == 0)
			compare_sleepers(&sleepers, seed, true);
		if (dice(90) == 0)
			for (uint32_t i = 0; i < SLEEPERS; i++)
				tell_sleeper(&sleepers, i);
	}
	compare_sleepers(&sleepers, seed, true);
	for (size_t k = 0; k < 2; k++) {
		evaluator_free(sleepers.judges[k]);
		rule_state_free(sleepers.memos[k]);
		config_free(sleepers.configs[k]);
	}
	return sleepers;
}

#define SLEEPERS_SEEDS 60

START_TEST(targets_at_rest_are_judged_as_if_they_were_asked)
{
	uint64_t rested = 0, fired = 0;

	for (uint64_t i = 0; i < SLEEPERS_SEEDS; i++) {
		struct sleepers sleepers = let_sleep((uint64_t)_i * SLEEPERS_SEEDS + i);

		rested += sleepers.rested;
		fired += sleepers.prints[0].fired != 0;
	}
	ck_assert_uint_gt(rested, 0);
	ck_assert_uint_gt(fired, SLEEPERS_SEEDS / 2);
}
END_TEST

static TCase *cases(void)
{
	TCase *tcase = tcase_create("reload");

	tcase_add_checked_fixture(tcase, begin, end_with);
	tcase_add_test(tcase, rule_that_is_the_same_keeps_all_it_knows);
	tcase_add_test(tcase, rule_that_is_the_same_keeps_its_cooldown_to_the_window);
	tcase_add_test(tcase, rule_that_changed_begins_anew_with_its_cooldown_cut);
	tcase_add_test(tcase, rule_that_changed_has_its_cooldown_even_if_the_memo_does_not);
	tcase_add_test(tcase, rule_that_comes_back_remembers);
	tcase_add_test(tcase, window_that_is_open_stays_open_with_its_peak);
	tcase_add_test(tcase, new_length_is_not_judged_over_a_part);
	tcase_add_test(tcase, new_length_before_the_first_tick_begins_as_at_the_start);
	tcase_add_test(tcase, new_rule_of_a_known_length_is_judged_over_the_whole_window);
	tcase_add_test(tcase, window_that_no_rule_looked_at_is_not_resumed);
	tcase_add_test(tcase, interval_of_cgroups_follows);
	tcase_add_test(tcase, rule_of_a_cgroup_fires_on_when_another_of_its_length_goes);
	tcase_add_test(tcase, rule_that_comes_to_a_cgroup_is_judged_between_its_reads);
	tcase_add_test(tcase, peak_of_a_cgroup_is_kept_when_another_rule_of_its_length_comes);
	tcase_add_test(tcase, targets_of_an_entry_that_changed_are_dropped_and_stay_away);
	tcase_add_test(tcase, targets_of_an_entry_that_is_gone_are_dropped_until_it_is_back_under_new_ids);
	tcase_add_test(tcase, many_targets_are_dropped_between_sample_and_tick);
	tcase_add_test(tcase, every_allocation_of_a_reload_may_fail_and_then_nothing_has_changed);
	tcase_add_loop_test(tcase, decisions_depend_on_no_witness_and_on_no_order_of_writers, 0, 8);
	tcase_add_loop_test(tcase, targets_at_rest_are_judged_as_if_they_were_asked, 0, 50);
	tcase_add_loop_test(tcase, equal_configuration_changes_no_decision, 0, 8);
	tcase_add_loop_test(tcase, other_rules_and_entries_change_no_decision_of_those_that_stay, 0, 8);
	return tcase;
}

Suite *evaluator_reload_suite(void)
{
	Suite *suite = suite_create("evaluator_reload");

	suite_add_tcase(suite, cases());
	return suite;
}
