/*
 * evaluator.c: targets come and go, windows end, rules step.
 *
 * Observations. A tick without a sample of a target means that the target is unchanged, so its last
 * observation moves on with the ticks: time of the tick + offset of its last sample from that
 * sample's tick (the sampler visits targets in the same order every time). A process that wakes up
 * after a minute has therefore used its CPU time since the last tick, not within that minute.
 *
 * Idle processes are not read in every tick (idle_backoff.h), so their observation stays behind the
 * tick by the longest pause that the time without a change allows. A window may begin that much
 * before its edge, and then holds all that can have been used since: it never shows more than was
 * possible. When the process wakes, a record says when it was last read unchanged: the window then
 * begins there, or at its edge if that is later. cgroups are read at an interval of their own, and
 * ticks in between say nothing: their observation moves on in steps of that interval, half an
 * interval late, so that a read which slips by a tick is not taken for an idle one.
 *
 * Cost. A tick costs one division per window length. Work is done only for the lengths of which a
 * window has ended, and only for targets that a rule of that length applies to. The rules of a
 * target are ordered by window length, so those that share a window are neighbours. A sample costs
 * a look-up and a copy.
 *
 * Short windows. When less than half of a window lies between its two observations (the sampler
 * stalled almost up to its end, or a cgroup was not read again) it stays open and is judged with
 * the next one. Otherwise the resolution of CPU counters would look like a spike.
 *
 * Several writers. Each sampler thread ticks by itself and says nothing of the targets of another,
 * so each has a clock, and a window of a target ends with the ticks of its writer.
 *
 * Remembered state. What a trigger remembers is put into the rule state as soon as a step has
 * changed it, before the firing is handed out: a crash during the incident does not forget the
 * cooldown.
 *
 * Reload. Every target that stays is made once more for the new rules, with fresh triggers and all
 * the memory that this takes; then what is worth keeping is swapped in, which cannot fail. What is
 * left over is freed like any target. A lowest id for each entry tells targets of a changed entry,
 * which the ring may describe again, from those of the new one.
 *
 * Rejected: windows that slide with every tick: a hundred evaluations where one answers the
 * question, and histories that overlap themselves.
 */
#include "lib/evaluator/evaluator.h"

#include "lib/base/base.h"
#include "lib/base/map.h"
#include "lib/config/config.h"
#include "lib/evaluator/rule_state.h"
#include "lib/model/pacing.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The rules of a configuration, sorted by window length, and the lengths. {0} is empty and legal. */
struct rule_plan {
	const struct config_rule **rules;
	size_t rule_count;
	uint64_t *lengths_ns;
	size_t length_count;
};

/* One rule on one target. */
struct judged_pair {
	const struct config_rule *rule;
	struct trigger_state *state;
	struct trigger_decision decision;
	bool judged; /* decision is known */
	bool owed;   /* could not be put into the rule state for want of memory, or was not yet */
};

/* The window that all rules of one length share on one target. */
struct judged_window {
	bool open;
	bool untouched; /* the target has not changed since from */
	mono_t edge;    /* where from would be if the target had been read in that tick */
	struct metric_point from;
	uint64_t peak_bytes; /* most memory since from, from included */
	size_t first, count; /* its pairs */
};

/* What a sample touches comes first. */
struct judged_target {
	struct map_node node;          /* its hash is the id */
	struct judged_target *touched; /* next of those sampled since the last tick */
	uint32_t clock;                /* of the writer whose ticks it moves on with */
	bool is_touched;
	bool seen;                     /* at, since, offset_ns and sample are known */
	bool since_known;              /* and since is exact */
	uint64_t read_ns;              /* how often it is read; 0: every tick */
	mono_t since;                  /* of the sample that was the last to differ from the one before */
	mono_t at;                     /* of the last sample */
	int64_t offset_ns;             /* at, less the time of its tick */
	struct judged_window *windows; /* one for each length of the plan, in its order */
	size_t window_count;
	struct sample sample;
	struct judged_pair *pairs;
	size_t pair_count;
	size_t index; /* in the table's array */
	struct target target;
	char *strings; /* of target */
};

/* {0} is empty and legal. */
struct judged_targets {
	struct map map; /* by id. Ids are given in order, so their low bits spread them evenly */
	struct judged_target **all;
	size_t count, cap;
	struct judged_target *touched;
};

/* More would only be short ones. */
#define RECENT_HOLES_MAX 8u

/* The longest of those holes of a writer's ticks that a window may still reach into. */
struct recent_holes {
	struct sampling_hole hole[RECENT_HOLES_MAX];
	size_t count;
};

struct writer_clock {
	bool started;
	mono_t now; /* of the last tick */
};

/* How far the ticks of each writer have come, and which windows have ended by then. */
struct writer_clocks {
	struct writer_clock clocks[WRITER_CLOCKS_MAX];
	uint64_t *ended; /* of each clock, windows of each length that have ended since the clock's epoch */
};

#define NOWHERE SIZE_MAX

/* One rule of the next configuration. */
struct carried_rule {
	size_t old; /* the one of its name in the old configuration, or NOWHERE */
	bool same;  /* and they judge alike */
};

/* What the next configuration takes over from the old one. */
struct carried_state {
	const struct config *old, *next;
	struct carried_rule *rules; /* for each rule of next */
	size_t *lengths;            /* for each length of next's plan its place in the old plan, or NOWHERE */
	struct judged_pair **pairs; /* scratch: of one target, for each rule of old; else NULL */
};

struct evaluator {
	struct evaluator_options options;
	/*
	 * By target entry: targets with lower ids were selected by another entry of this name. NULL:
	 * never reloaded, every target is taken.
	 */
	uint64_t *first_ids;
	uint32_t newest_id;                /* of all targets so far */
	struct rule_state *own_rule_state; /* if none was handed in */
	struct rule_plan plan;
	struct writer_clocks writer_clocks;
	struct judged_targets table;
	uint32_t clock;   /* of the writer whose events come */
	mono_t tick;      /* that is being delivered, */
	wall_t wall;      /* the same moment on the wall clock, */
	uint64_t idle_ns; /* and the longest pause between two reads of a process */
	struct recent_holes recent_holes[WRITER_CLOCKS_MAX];
};

/* ---- clocks of the writers ---- */

static uint64_t *ended_at(const struct writer_clocks *writer_clocks, const struct rule_plan *plan, uint32_t clock,
			  size_t g)
{
	return &writer_clocks->ended[clock * plan->length_count + g];
}

/* For the window lengths of a plan. 0 or -ENOMEM. */
static int writer_clocks_init(struct writer_clocks *writer_clocks, const struct rule_plan *plan)
{
	uint64_t *ended = calloc(WRITER_CLOCKS_MAX * plan->length_count + 1, sizeof(*ended));

	if (!ended)
		return -ENOMEM;

	*writer_clocks = (struct writer_clocks){ .ended = ended };
	return 0;
}

static void writer_clocks_release(struct writer_clocks *writer_clocks)
{
	free(writer_clocks->ended);
	*writer_clocks = (struct writer_clocks){ 0 };
}

/*
 * A tick. False: time went back (another boot, say). Then, and with the first tick, a window ends only
 * if its end is exactly now.
 */
static bool writer_clocks_step(struct writer_clocks *writer_clocks, const struct rule_plan *plan, uint32_t clock,
			       mono_t now)
{
	struct writer_clock *at = &writer_clocks->clocks[clock];
	bool back = at->started && mono_diff(now, at->now) < 0;

	if (!at->started || back)
		for (size_t g = 0; g < plan->length_count; g++)
			*ended_at(writer_clocks, plan, clock, g) = (now.ns - 1) / plan->lengths_ns[g];
	*at = (struct writer_clock){ true, now };
	return !back;
}

/* Whether windows of the plan's length g have ended since the last call. */
static bool writer_clocks_end(struct writer_clocks *writer_clocks, const struct rule_plan *plan, uint32_t clock,
			      size_t g)
{
	uint64_t *ended = ended_at(writer_clocks, plan, clock, g);
	uint64_t before = *ended;

	*ended = writer_clocks->clocks[clock].now.ns / plan->lengths_ns[g];
	return *ended != before;
}

/*
 * Makes next, of next_plan, continue old. lengths: for each length of next_plan its place in plan;
 * NOWHERE: it is new, has no window open, and begins with its next end.
 */
static void writer_clocks_inherit(struct writer_clocks *next, const struct rule_plan *next_plan,
				  const struct writer_clocks *old, const struct rule_plan *plan, const size_t *lengths)
{
	for (uint32_t clock = 0; clock < WRITER_CLOCKS_MAX; clock++) {
		next->clocks[clock] = old->clocks[clock];
		for (size_t g = 0; g < next_plan->length_count; g++)
			*ended_at(next, next_plan, clock, g) =
				lengths[g] != NOWHERE ? *ended_at(old, plan, clock, lengths[g])
						      : old->clocks[clock].now.ns / next_plan->lengths_ns[g];
	}
}

/* ---- the plan ---- */

/* Rules by window length; those of one length stay in the order of the configuration. */
static void sort_rules(const struct config *config, const struct config_rule **rules)
{
	for (size_t i = 0; i < config->rule_count; i++) {
		size_t k = i;

		for (; k > 0 && rules[k - 1]->window_ns > config->rules[i].window_ns; k--)
			rules[k] = rules[k - 1];
		rules[k] = &config->rules[i];
	}
}

static int rule_plan_init(struct rule_plan *plan, const struct config *config)
{
	AUTO_FREE const struct config_rule **rules = calloc(config->rule_count + 1, sizeof(*rules));
	AUTO_FREE uint64_t *lengths = calloc(config->rule_count + 1, sizeof(*lengths));
	size_t length_count = 0;

	if (!rules || !lengths)
		return -ENOMEM;

	sort_rules(config, rules);
	for (size_t i = 0; i < config->rule_count; i++)
		if (length_count == 0 || lengths[length_count - 1] != rules[i]->window_ns)
			lengths[length_count++] = rules[i]->window_ns;

	*plan = (struct rule_plan){ TAKE(rules), config->rule_count, TAKE(lengths), length_count };
	return 0;
}

static void rule_plan_release(struct rule_plan *plan)
{
	free(plan->rules);
	free(plan->lengths_ns);
	*plan = (struct rule_plan){ 0 };
}

static void judged_target_free(struct judged_target *judged_target)
{
	if (!judged_target)
		return;

	for (size_t i = 0; i < judged_target->pair_count; i++)
		trigger_state_free(judged_target->pairs[i].state);
	free(judged_target->pairs);
	free(judged_target->windows);
	free(judged_target->strings);
	free(judged_target);
}

CLEANUP(judged_target, free);

/* Copies a target and its strings. */
static int copy_target(const struct target *target, struct target *ret, char **ret_strings)
{
	struct target copy = *target;
	const char **const strings[] = { &copy.entry,   &copy.name,   &copy.key,      &copy.comm,
					 &copy.cmdline, &copy.cgroup, &copy.container };
	size_t size = 0;
	char *text, *p;

	copy.container = target->container ? target->container : "";
	for (size_t i = 0; i < ARRAY_LEN(strings); i++)
		size += strlen(*strings[i]) + 1;
	p = text = malloc(size);
	if (!text)
		return -ENOMEM;

	for (size_t i = 0; i < ARRAY_LEN(strings); i++) {
		size = strlen(*strings[i]) + 1;
		memcpy(p, *strings[i], size);
		*strings[i] = p;
		p += size;
	}

	*ret = copy;
	*ret_strings = text;
	return 0;
}

static bool rule_applies(const struct config_rule *rule, const struct target *target)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], target->entry) == 0)
			return true;
	return rule->target_count == 0;
}

static int add_pair(struct judged_target *judged_target, const struct config_rule *rule,
		    const struct rule_state *rule_state)
{
	struct judged_pair *pair = &judged_target->pairs[judged_target->pair_count];
	struct trigger_memory memory;
	int r = trigger_state_new(&rule->trigger, &pair->state);

	if (r < 0)
		return r;

	judged_target->pair_count++;
	pair->rule = rule;
	if (rule_state_get(rule_state, rule->name, judged_target->target.key, &memory))
		trigger_restore(pair->state, &memory);
	return 0;
}

static size_t count_rules(const struct rule_plan *plan, const struct target *target)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->rule_count; i++)
		count += rule_applies(plan->rules[i], target);
	return count;
}

static int add_pairs(struct judged_target *judged_target, const struct rule_plan *plan,
		     const struct rule_state *rule_state)
{
	size_t g = 0;

	for (size_t i = 0; i < plan->rule_count; i++) {
		const struct config_rule *rule = plan->rules[i];
		int r;

		if (!rule_applies(rule, &judged_target->target))
			continue;
		while (plan->lengths_ns[g] != rule->window_ns)
			g++;
		if (judged_target->windows[g].count++ == 0)
			judged_target->windows[g].first = judged_target->pair_count;

		r = add_pair(judged_target, rule, rule_state);
		if (r < 0)
			return r;
	}
	return 0;
}

/*
 * Copies the target, pairs it with the rules that name its entry, and resumes what is remembered of
 * each. 0 or -ENOMEM.
 */
static int judged_target_new(const struct rule_plan *plan, const struct target *target, uint64_t read_ns,
			     const struct rule_state *rule_state, struct judged_target **ret)
{
	AUTO(judged_target_freep) struct judged_target *judged_target = calloc(1, sizeof(*judged_target));
	int r;

	if (!judged_target)
		return -ENOMEM;

	judged_target->read_ns = read_ns;
	r = copy_target(target, &judged_target->target, &judged_target->strings);
	if (r < 0)
		return r;
	size_t rules = count_rules(plan, &judged_target->target);

	judged_target->windows = calloc(plan->length_count ? plan->length_count : 1, sizeof(*judged_target->windows));
	judged_target->pairs = calloc(rules ? rules : 1, sizeof(*judged_target->pairs));
	if (!judged_target->windows || !judged_target->pairs)
		return -ENOMEM;
	judged_target->window_count = plan->length_count;

	r = add_pairs(judged_target, plan, rule_state);
	if (r < 0)
		return r;

	*ret = TAKE(judged_target);
	return 0;
}

static bool same_names(const struct target *a, const struct target *b)
{
	return strcmp(a->name, b->name) == 0 && strcmp(a->comm, b->comm) == 0 && strcmp(a->cmdline, b->cmdline) == 0 &&
	       strcmp(a->cgroup, b->cgroup) == 0 &&
	       strcmp(a->container ? a->container : "", b->container ? b->container : "") == 0;
}

/* The same target under other names. 0 or -ENOMEM: it keeps the old ones. */
static int judged_target_rename(struct judged_target *judged_target, const struct target *target)
{
	struct target copy;
	char *strings;
	int r;

	if (same_names(&judged_target->target, target))
		return 0;

	r = copy_target(target, &copy, &strings);
	if (r < 0)
		return r;

	free(judged_target->strings);
	judged_target->strings = strings;
	judged_target->target = copy;
	return 0;
}

/* It was read unchanged at `at`: no window may begin later with this state. */
static void hold_back(struct judged_target *judged_target, mono_t at)
{
	for (size_t i = 0; i < judged_target->window_count; i++) {
		struct judged_window *window = &judged_target->windows[i];

		if (window->untouched && mono_diff(window->from.time, at) > 0)
			window->from.time = at;
	}
}

/* It has changed since `at`, and was unchanged from the beginning of the windows up to then. */
static void move_up(struct judged_target *judged_target, mono_t at)
{
	for (size_t i = 0; i < judged_target->window_count; i++) {
		struct judged_window *window = &judged_target->windows[i];
		mono_t from = mono_diff(at, window->edge) < 0 ? at : window->edge;

		if (window->untouched && mono_diff(from, window->from.time) > 0)
			window->from.time = from;
		window->untouched = false;
	}
}

static void note_change(struct judged_target *judged_target, mono_t at, const struct sample *sample)
{
	bool same = judged_target->seen && judged_target->sample.mask == sample->mask &&
		    sample_difference(&judged_target->sample, sample) == 0;

	if (!judged_target->seen)
		judged_target->since_known = false;
	else if (!same)
		judged_target->since_known = true;
	if (!same)
		judged_target->since = at;
	if (!judged_target->seen || judged_target->read_ns > 0)
		return;
	if (same)
		hold_back(judged_target, at);
	else
		move_up(judged_target, judged_target->at);
}

/* A sample of the target. */
static void judged_target_see(struct judged_target *judged_target, mono_t at, const struct sample *sample)
{
	note_change(judged_target, at, sample);

	uint64_t peak = metric_peak(judged_target->seen ? &judged_target->sample : sample, sample);

	for (size_t i = 0; i < judged_target->window_count; i++)
		if (judged_target->windows[i].peak_bytes < peak)
			judged_target->windows[i].peak_bytes = peak;

	judged_target->sample = *sample;
	judged_target->at = at;
	judged_target->seen = true;
}

/* When the target is read in that tick, if it is. */
static mono_t seen_in(const struct judged_target *judged_target, mono_t now)
{
	return (mono_t){ now.ns + (uint64_t)judged_target->offset_ns };
}

/*
 * When it was last observed by the end of tick now, changed or not, as far as that is certain.
 * idle_ns: the longest pause between two reads of a process, as of that tick. Only if it was seen.
 * Sums of groups are made in every tick, and windows end when they are exact (source.h).
 */
static mono_t judged_target_seen_at(const struct judged_target *judged_target, mono_t now, uint64_t idle_ns)
{
	int64_t age = mono_diff(now, judged_target->at) - (int64_t)(judged_target->read_ns / 2);
	mono_t here = seen_in(judged_target, now);

	if (judged_target->read_ns == 0 && judged_target->target.kind == TARGET_PROCESS && idle_ns > 0)
		return idle_backoff_seen_at(judged_target->at,
					    judged_target->since_known ? &judged_target->since : NULL, here, idle_ns);
	if (judged_target->read_ns == 0)
		return here;
	if (age < 0)
		return judged_target->at;
	return mono_add(judged_target->at, (uint64_t)age / judged_target->read_ns * judged_target->read_ns);
}

/* Opens one of its windows at the end of tick now; *from is the observation that it begins with. */
static void judged_target_open(const struct judged_target *judged_target, struct judged_window *window,
			       const struct metric_point *from, mono_t now)
{
	window->open = true;
	window->untouched = true;
	window->edge = seen_in(judged_target, now);
	window->from = *from;
	window->peak_bytes = metric_peak(&judged_target->sample, &judged_target->sample);
}

/* Drops its open windows; it is unseen until its next sample. */
static void judged_target_lose(struct judged_target *judged_target)
{
	judged_target->seen = false;
	for (size_t i = 0; i < judged_target->window_count; i++)
		judged_target->windows[i].open = false;
}

/* ---- the table ---- */

/* A tick takes no longer, unless the sampler was stopped in it (SIGSTOP): its targets are not shifted by that. */
#define OFFSET_MAX_NS ((int64_t)(100 * NS_PER_MS))

/* NULL: there is none. */
static struct judged_target *table_find(const struct judged_targets *table, uint32_t id)
{
	struct map_node *node = map_first(&table->map, id);

	return node ? MAP_ENTRY(node, struct judged_target, node) : NULL;
}

/* Makes room for one more. 0 or -ENOMEM. */
static int table_reserve(struct judged_targets *table)
{
	int r = vector_reserve(&table->all, &table->cap, table->count + 1, sizeof(struct judged_target *));

	return r < 0 ? r : map_reserve(&table->map, table->count + 1);
}

/* Takes a target, for which there must be room, and whose id must be new. */
static void table_add(struct judged_targets *table, struct judged_target *judged_target)
{
	judged_target->index = table->count;
	table->all[table->count++] = judged_target;
	map_insert(&table->map, &judged_target->node, judged_target->target.id);
}

static void untouch(struct judged_targets *table, struct judged_target *judged_target)
{
	struct judged_target **link = &table->touched;

	if (!judged_target->is_touched)
		return;

	while (*link != judged_target)
		link = &(*link)->touched;
	*link = judged_target->touched;
}

/* Frees a target; the last one of the array takes its place. */
static void table_remove(struct judged_targets *table, struct judged_target *judged_target)
{
	struct judged_target *last = table->all[--table->count];

	map_remove(&table->map, &judged_target->node);
	untouch(table, judged_target);
	last->index = judged_target->index;
	table->all[judged_target->index] = last;
	judged_target_free(judged_target);
}

static void table_touch(struct judged_targets *table, struct judged_target *judged_target)
{
	if (judged_target->is_touched)
		return;

	judged_target->is_touched = true;
	judged_target->touched = table->touched;
	table->touched = judged_target;
}

static int64_t bounded(int64_t offset_ns)
{
	if (offset_ns > OFFSET_MAX_NS)
		return OFFSET_MAX_NS;

	return offset_ns < -OFFSET_MAX_NS ? -OFFSET_MAX_NS : offset_ns;
}

/* The tick of this clock is over: its time is known now, and the offset of its samples from it. */
static void table_settle(struct judged_targets *table, uint32_t clock, mono_t now)
{
	for (struct judged_target **link = &table->touched; *link;) {
		struct judged_target *judged_target = *link;

		if (judged_target->clock != clock) {
			link = &judged_target->touched;
			continue;
		}
		*link = judged_target->touched;
		judged_target->offset_ns = bounded(mono_diff(judged_target->at, now));
		judged_target->is_touched = false;
	}
}

/* The samples since the last tick belong to no tick. */
static void table_forget_touched(struct judged_targets *table)
{
	for (struct judged_target *judged_target = table->touched; judged_target;
	     judged_target = judged_target->touched)
		judged_target->is_touched = false;
	table->touched = NULL;
}

/* Frees every target, and the table. */
static void table_release(struct judged_targets *table)
{
	for (size_t i = 0; i < table->count; i++)
		judged_target_free(table->all[i]);
	free(table->all);
	map_release(&table->map);
	*table = (struct judged_targets){ 0 };
}

/* ---- what a reload carries over ---- */

static size_t find_rule(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->rule_count; i++)
		if (strcmp(config->rules[i].name, name) == 0)
			return i;
	return NOWHERE;
}

static size_t find_length(const struct rule_plan *plan, uint64_t length_ns)
{
	for (size_t i = 0; i < plan->length_count; i++)
		if (plan->lengths_ns[i] == length_ns)
			return i;
	return NOWHERE;
}

/* 0 or -ENOMEM. The configurations must outlive it. Costs rules x rules comparisons of names. */
static int carried_state_init(struct carried_state *carried_state, const struct config *old,
			      const struct rule_plan *old_plan, const struct config *next,
			      const struct rule_plan *next_plan)
{
	AUTO_FREE struct carried_rule *rules = calloc(next->rule_count + 1, sizeof(*rules));
	AUTO_FREE size_t *lengths = calloc(next_plan->length_count + 1, sizeof(*lengths));
	AUTO_FREE struct judged_pair **pairs = calloc(old->rule_count + 1, sizeof(struct judged_pair *));

	if (!rules || !lengths || !pairs)
		return -ENOMEM;

	for (size_t i = 0; i < next->rule_count; i++) {
		rules[i].old = find_rule(old, next->rules[i].name);
		rules[i].same = rules[i].old != NOWHERE && config_rule_same(&old->rules[rules[i].old], &next->rules[i]);
	}
	for (size_t g = 0; g < next_plan->length_count; g++)
		lengths[g] = find_length(old_plan, next_plan->lengths_ns[g]);

	*carried_state = (struct carried_state){ old, next, TAKE(rules), TAKE(lengths), TAKE(pairs) };
	return 0;
}

static void carried_state_release(struct carried_state *carried_state)
{
	free(carried_state->rules);
	free(carried_state->lengths);
	free(carried_state->pairs);
	*carried_state = (struct carried_state){ 0 };
}

static void carry_pair(struct judged_pair *from, struct judged_pair *to, bool same)
{
	struct trigger_state *state = to->state;

	if (!same) {
		/* The fresh state was made from the rule state, which may lack what the old one has. */
		to->owed = !trigger_memory_equal(trigger_memory(from->state), trigger_memory(to->state));
		trigger_restore(to->state, trigger_memory(from->state));
		return;
	}

	to->state = from->state;
	from->state = state;
	to->decision = from->decision;
	to->judged = from->judged;
	to->owed = from->owed;
}

static void carry_pairs(struct carried_state *carried_state, struct judged_target *judged_target,
			struct judged_target *fresh)
{
	for (size_t i = 0; i < judged_target->pair_count; i++)
		carried_state->pairs[judged_target->pairs[i].rule - carried_state->old->rules] =
			&judged_target->pairs[i];

	for (size_t i = 0; i < fresh->pair_count; i++) {
		const struct carried_rule *rule =
			&carried_state->rules[fresh->pairs[i].rule - carried_state->next->rules];
		struct judged_pair *from = rule->old != NOWHERE ? carried_state->pairs[rule->old] : NULL;

		if (from)
			carry_pair(from, &fresh->pairs[i], rule->same);
	}

	for (size_t i = 0; i < judged_target->pair_count; i++)
		carried_state->pairs[judged_target->pairs[i].rule - carried_state->old->rules] = NULL;
}

static void carry_windows(const struct carried_state *carried_state, const struct judged_target *judged_target,
			  struct judged_target *fresh)
{
	for (size_t g = 0; g < fresh->window_count; g++) {
		size_t old = carried_state->lengths[g], first = fresh->windows[g].first,
		       count = fresh->windows[g].count;

		if (old == NOWHERE || count == 0)
			continue;
		fresh->windows[g] = judged_target->windows[old];
		fresh->windows[g].first = first;
		fresh->windows[g].count = count;
	}
}

/*
 * Makes a target of the old plan into one of the next plan. fresh: the same target, made with the
 * next plan; it gets what the target has no more use for, to be freed. Rules that judge as before
 * keep their whole state; others begin with the cooldown, the count and the high-water mark they
 * had. A window stays open if rules of its length apply to the target before and after: one that was
 * left open without rules would be as long, once a rule is back, as that took. Never fails.
 */
static void carry_target(struct carried_state *carried_state, struct judged_target *judged_target,
			 struct judged_target *fresh)
{
	struct judged_target old = *judged_target;

	carry_pairs(carried_state, judged_target, fresh);
	carry_windows(carried_state, judged_target, fresh);

	judged_target->read_ns = fresh->read_ns;
	judged_target->windows = fresh->windows;
	judged_target->window_count = fresh->window_count;
	judged_target->pairs = fresh->pairs;
	judged_target->pair_count = fresh->pair_count;

	fresh->windows = old.windows;
	fresh->window_count = old.window_count;
	fresh->pairs = old.pairs;
	fresh->pair_count = old.pair_count;
}

/* The end of one tick. */
struct tick {
	mono_t now;
	wall_t wall;
	bool asked, disk_ok;
	int result;
};

/* ---- targets ---- */

/* The place of an entry in a configuration; target_count: there is none of this name. */
static size_t entry_of(const struct config *config, const char *name)
{
	size_t i = 0;

	while (i < config->target_count && strcmp(config->targets[i].name, name) != 0)
		i++;
	return i;
}

/* Whether the configuration in force selected this target, and not a previous one. */
static bool is_current(const struct evaluator *evaluator, const struct target *target)
{
	const struct config *config = evaluator->options.config;
	size_t i;

	if (!evaluator->first_ids)
		return true;
	i = entry_of(config, target->entry);
	return i < config->target_count && target->id >= evaluator->first_ids[i];
}

static int new_target(const struct evaluator *evaluator, const struct config *config, const struct rule_plan *plan,
		      const struct target *target, struct judged_target **ret)
{
	uint64_t read_ns = target->kind == TARGET_CGROUP ? config->sampling.cgroup_interval_ns : 0;

	int r = judged_target_new(plan, target, read_ns, evaluator->options.rule_state, ret);

	if (r == 0)
		(*ret)->clock = evaluator->clock;
	return r;
}

static int take_target(struct evaluator *evaluator, const struct target *target)
{
	struct judged_target *judged_target = table_find(&evaluator->table, target->id);

	if (judged_target)
		return judged_target_rename(judged_target, target);
	if (evaluator->newest_id < target->id)
		evaluator->newest_id = target->id;
	if (!is_current(evaluator, target))
		return 0;

	int r = table_reserve(&evaluator->table);
	if (r < 0)
		return r;
	r = new_target(evaluator, evaluator->options.config, &evaluator->plan, target, &judged_target);
	if (r < 0)
		return r;
	table_add(&evaluator->table, judged_target);
	return 0;
}

static void drop_target(struct evaluator *evaluator, uint32_t id)
{
	struct judged_target *judged_target = table_find(&evaluator->table, id);

	if (judged_target)
		table_remove(&evaluator->table, judged_target);
}

static void take_sample(struct evaluator *evaluator, uint32_t id, mono_t at, const struct sample *sample)
{
	struct judged_target *judged_target = table_find(&evaluator->table, id);

	if (!judged_target)
		return;

	judged_target->clock = evaluator->clock;
	judged_target_see(judged_target, at, sample);
	table_touch(&evaluator->table, judged_target);
}

static void drop_all_windows(struct evaluator *evaluator)
{
	for (size_t i = 0; i < evaluator->table.count; i++)
		judged_target_lose(evaluator->table.all[i]);
	table_forget_touched(&evaluator->table);
}

/* Time of one writer went back. */
static void lose_targets_of_clock(struct evaluator *evaluator)
{
	for (size_t i = 0; i < evaluator->table.count; i++)
		if (evaluator->table.all[i]->clock == evaluator->clock)
			judged_target_lose(evaluator->table.all[i]);
}

/* ---- judging ---- */

static bool ask_disk_ok(const struct evaluator *evaluator, struct tick *tick)
{
	if (!tick->asked && evaluator->options.disk_ok)
		tick->disk_ok = evaluator->options.disk_ok(evaluator->options.ctx);
	tick->asked = true;
	return tick->disk_ok;
}

static uint64_t limit_of(const struct sample *sample, enum sample_field field)
{
	return sample_has(sample, field) ? sample->value[field] : UINT64_MAX;
}

static uint64_t hole_ns(const struct sampling_hole *hole)
{
	return (uint64_t)mono_diff(hole->to, hole->from);
}

static void note_hole(struct evaluator *evaluator, const struct sampling_hole *hole)
{
	const struct rule_plan *plan = &evaluator->plan;
	uint64_t longest_ns = plan->length_count > 0 ? plan->lengths_ns[plan->length_count - 1] : 0;
	struct recent_holes *recent = &evaluator->recent_holes[evaluator->clock];
	size_t kept = 0, shortest = 0;

	for (size_t i = 0; i < recent->count; i++)
		if (mono_diff(hole->from, recent->hole[i].to) < 2 * (int64_t)longest_ns)
			recent->hole[kept++] = recent->hole[i];
	recent->count = kept;
	if (kept < RECENT_HOLES_MAX) {
		recent->hole[recent->count++] = *hole;
		return;
	}
	for (size_t i = 1; i < kept; i++)
		if (hole_ns(&recent->hole[i]) < hole_ns(&recent->hole[shortest]))
			shortest = i;
	if (hole_ns(hole) >= hole_ns(&recent->hole[shortest]))
		recent->hole[shortest] = *hole;
}

static uint64_t unsampled_ns(const struct evaluator *evaluator, mono_t from, mono_t to)
{
	const struct recent_holes *recent = &evaluator->recent_holes[evaluator->clock];
	uint64_t sum = 0;

	for (size_t i = 0; i < recent->count; i++) {
		const struct sampling_hole *hole = &recent->hole[i];
		mono_t begin = mono_diff(hole->from, from) > 0 ? hole->from : from;
		mono_t end = mono_diff(to, hole->to) > 0 ? hole->to : to;

		/* Between any two ticks there is an interval in which nothing is sampled. */
		if (mono_diff(end, begin) > 0)
			sum += (uint64_t)mono_diff(end, begin) / (hole->missed_slots + 1) * hole->missed_slots;
	}
	return sum;
}

static void hand_out(struct evaluator *evaluator, const struct judged_target *judged_target,
		     const struct judged_pair *pair, const struct judged_window *window, const struct metric_point *to,
		     struct tick *tick)
{
	struct evaluator_firing firing = {
		.rule = pair->rule,
		.target = &judged_target->target,
		.from = window->from.time,
		.to = to->time,
		.unsampled_ns = unsampled_ns(evaluator, window->from.time, to->time),
		.wall = { tick->wall.ns + (uint64_t)mono_diff(to->time, tick->now) },
		.sample = &to->sample,
		.decision = &pair->decision,
		.effective = &pair->rule->trigger,
		.cpu_limit = limit_of(&to->sample, SAMPLE_CPU_LIMIT),
		.memory_limit = limit_of(&to->sample, SAMPLE_MEMORY_LIMIT),
	};

	if (evaluator->options.witness)
		evaluator->options.witness(evaluator->options.ctx, &firing);
	int r = pair->decision.fires ? evaluator->options.fire(evaluator->options.ctx, &firing) : 0;
	if (tick->result == 0)
		tick->result = r;
}

/* before: what was remembered. What cannot be put for want of memory is put after the next step. */
static void remember(struct evaluator *evaluator, const struct judged_target *judged_target, struct judged_pair *pair,
		     const struct trigger_memory *before)
{
	const struct trigger_memory *memory = trigger_memory(pair->state);

	if (!pair->owed && trigger_memory_equal(memory, before))
		return;
	pair->owed =
		rule_state_put(evaluator->options.rule_state, pair->rule->name, judged_target->target.key, memory) < 0;
}

/*
 * The trigger's clock is the nominal end of the window: `for` and cooldowns are whole numbers of
 * windows, exactly.
 */
static void judge(struct evaluator *evaluator, const struct judged_target *judged_target, struct judged_pair *pair,
		  const struct judged_window *window, const struct metric_point *to, struct tick *tick)
{
	const struct config_rule *rule = pair->rule;
	uint64_t late = tick->now.ns % rule->window_ns;
	const struct trigger_memory before = *trigger_memory(pair->state);
	double value = 0;
	bool available = metric_value(rule->metric, rule->of, &evaluator->options.machine, &window->from, to, &value);

	trigger_step(pair->state, &rule->trigger, (mono_t){ tick->now.ns - late }, (wall_t){ tick->wall.ns - late },
		     available, value, ask_disk_ok(evaluator, tick), &pair->decision);
	pair->judged = true;
	remember(evaluator, judged_target, pair, &before);
	if (evaluator->options.judged)
		evaluator->options.judged(evaluator->options.ctx, pair->rule, &pair->decision);
	if (pair->decision.fires || evaluator->options.witness)
		hand_out(evaluator, judged_target, pair, window, to, tick);
}

static void end_window(struct evaluator *evaluator, struct judged_target *judged_target, struct judged_window *window,
		       uint64_t window_ns, struct tick *tick)
{
	struct metric_point to = { judged_target_seen_at(judged_target, tick->now, evaluator->idle_ns),
				   judged_target->sample, window->peak_bytes };

	if (window->open && mono_diff(to.time, window->from.time) < (int64_t)(window_ns / 2))
		return;

	for (size_t i = 0; window->open && i < window->count; i++)
		judge(evaluator, judged_target, &judged_target->pairs[window->first + i], window, &to, tick);

	judged_target_open(judged_target, window, &to, tick->now);
}

static void end_windows(struct evaluator *evaluator, size_t g, struct tick *tick)
{
	for (size_t i = 0; i < evaluator->table.count; i++) {
		struct judged_target *judged_target = evaluator->table.all[i];

		if (judged_target->seen && judged_target->clock == evaluator->clock &&
		    judged_target->windows[g].count > 0)
			end_window(evaluator, judged_target, &judged_target->windows[g], evaluator->plan.lengths_ns[g],
				   tick);
	}
}

static int end_tick(struct evaluator *evaluator)
{
	mono_t now = evaluator->tick;
	struct tick tick = { .now = now, .wall = evaluator->wall, .disk_ok = true };

	if (!writer_clocks_step(&evaluator->writer_clocks, &evaluator->plan, evaluator->clock, now))
		lose_targets_of_clock(evaluator);
	table_settle(&evaluator->table, evaluator->clock, now);

	for (size_t g = 0; g < evaluator->plan.length_count; g++)
		if (writer_clocks_end(&evaluator->writer_clocks, &evaluator->plan, evaluator->clock, g))
			end_windows(evaluator, g, &tick);
	return tick.result;
}

int evaluator_event(struct evaluator *evaluator, const struct ring_event *event)
{
	if (event->type != RING_EVENT_LAPPED && event->type != RING_EVENT_DAMAGED)
		evaluator->clock = writer_clocks_of(event->writer);
	switch (event->type) {
	case RING_EVENT_TICK:
		evaluator->tick = event->time;
		evaluator->wall = event->wall;
		evaluator->idle_ns = event->idle_ns;
		return 0;
	case RING_EVENT_HOLE:
		note_hole(evaluator, &event->hole);
		return 0;
	case RING_EVENT_SAMPLE:
		take_sample(evaluator, event->id, event->time, event->sample);
		return 0;
	case RING_EVENT_TARGET:
		return take_target(evaluator, &event->target);
	case RING_EVENT_GONE:
		drop_target(evaluator, event->id);
		return 0;
	case RING_EVENT_TICK_END:
		return end_tick(evaluator);
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		drop_all_windows(evaluator);
		return 0;
	}
	return 0;
}

/* ---- another configuration ---- */

/* What the evaluator will consist of; after the commit, what it did consist of. */
struct evaluator_reload {
	struct evaluator *evaluator;
	const struct config *config;
	struct rule_plan plan;
	struct writer_clocks writer_clocks;
	uint64_t *first_ids;
	struct carried_state carried_state;
	struct judged_target **fresh; /* for each target; NULL: it does not stay */
	size_t fresh_count;
};

void evaluator_reload_drop(struct evaluator_reload *reload)
{
	if (!reload)
		return;

	for (size_t i = 0; reload->fresh && i < reload->fresh_count; i++)
		judged_target_free(reload->fresh[i]);
	free(reload->fresh);
	carried_state_release(&reload->carried_state);
	free(reload->first_ids);
	writer_clocks_release(&reload->writer_clocks);
	rule_plan_release(&reload->plan);
	free(reload);
}

static void prepare_entries(const struct evaluator *evaluator, struct evaluator_reload *reload)
{
	const struct config *old = evaluator->options.config;

	for (size_t i = 0; i < reload->config->target_count; i++) {
		const struct config_target *target = &reload->config->targets[i];
		size_t was = entry_of(old, target->name);

		reload->first_ids[i] = (uint64_t)evaluator->newest_id + 1;
		if (was < old->target_count && config_target_same(&old->targets[was], target))
			reload->first_ids[i] = evaluator->first_ids ? evaluator->first_ids[was] : 0;
	}
}

static int prepare_targets(const struct evaluator *evaluator, struct evaluator_reload *reload)
{
	for (size_t i = 0; i < evaluator->table.count; i++) {
		const struct target *target = &evaluator->table.all[i]->target;
		size_t at = entry_of(reload->config, target->entry);
		int r;

		reload->fresh_count = i + 1;
		if (at == reload->config->target_count || target->id < reload->first_ids[at])
			continue;
		r = new_target(evaluator, reload->config, &reload->plan, target, &reload->fresh[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int prepare(const struct evaluator *evaluator, struct evaluator_reload *reload)
{
	int r = rule_plan_init(&reload->plan, reload->config);

	if (r < 0)
		return r;
	r = carried_state_init(&reload->carried_state, evaluator->options.config, &evaluator->plan, reload->config,
			       &reload->plan);
	if (r < 0)
		return r;
	r = writer_clocks_init(&reload->writer_clocks, &reload->plan);
	if (r < 0)
		return r;
	reload->first_ids = calloc(reload->config->target_count + 1, sizeof(*reload->first_ids));
	reload->fresh = calloc(evaluator->table.count + 1, sizeof(struct judged_target *));
	if (!reload->first_ids || !reload->fresh)
		return -ENOMEM;

	writer_clocks_inherit(&reload->writer_clocks, &reload->plan, &evaluator->writer_clocks, &evaluator->plan,
			      reload->carried_state.lengths);
	prepare_entries(evaluator, reload);
	return prepare_targets(evaluator, reload);
}

/* From the last one on: what table_remove moves into a gap was visited already. */
static void carry_targets(struct evaluator *evaluator, struct evaluator_reload *reload)
{
	for (size_t i = evaluator->table.count; i-- > 0;) {
		if (reload->fresh[i])
			carry_target(&reload->carried_state, evaluator->table.all[i], reload->fresh[i]);
		else
			table_remove(&evaluator->table, evaluator->table.all[i]);
	}
}

int evaluator_reload_prepare(struct evaluator *evaluator, const struct config *config, struct evaluator_reload **ret)
{
	AUTO(evaluator_reload_dropp) struct evaluator_reload *reload = calloc(1, sizeof(*reload));
	int r;

	if (!reload)
		return -ENOMEM;

	reload->evaluator = evaluator;
	reload->config = config;
	r = prepare(evaluator, reload);
	if (r < 0)
		return r;

	*ret = TAKE(reload);
	return 0;
}

void evaluator_reload_commit(struct evaluator_reload *reload)
{
	struct evaluator *evaluator = reload->evaluator;
	struct rule_plan plan = evaluator->plan;
	struct writer_clocks writer_clocks = evaluator->writer_clocks;
	uint64_t *first_ids = evaluator->first_ids;

	carry_targets(evaluator, reload);
	evaluator->options.config = reload->config;
	evaluator->plan = reload->plan;
	evaluator->writer_clocks = reload->writer_clocks;
	evaluator->first_ids = reload->first_ids;
	reload->plan = plan;
	reload->writer_clocks = writer_clocks;
	reload->first_ids = first_ids;
	evaluator_reload_drop(reload);
}

/* ---- the object ---- */

static int visit_pairs(const struct judged_target *judged_target,
		       int (*visit)(void *ctx, const struct evaluator_status *status), void *ctx)
{
	int r = 0;

	for (size_t k = 0; k < judged_target->pair_count && r == 0; k++) {
		const struct judged_pair *pair = &judged_target->pairs[k];

		r = visit(ctx, &(struct evaluator_status){
				       .rule = pair->rule,
				       .target = &judged_target->target,
				       .decision = pair->judged ? &pair->decision : NULL,
				       .memory = trigger_memory(pair->state),
				       .reasons = trigger_reasons(pair->state),
			       });
	}
	return r;
}

int evaluator_visit_one(const struct evaluator *evaluator, uint32_t id,
			int (*visit)(void *ctx, const struct evaluator_status *status), void *ctx)
{
	const struct judged_target *judged_target = table_find(&evaluator->table, id);

	return judged_target ? visit_pairs(judged_target, visit, ctx) : 0;
}

int evaluator_visit(const struct evaluator *evaluator, int (*visit)(void *ctx, const struct evaluator_status *status),
		    void *ctx)
{
	int r = 0;

	for (size_t i = 0; i < evaluator->table.count && r == 0; i++)
		r = visit_pairs(evaluator->table.all[i], visit, ctx);
	return r;
}

int evaluator_visit_targets(const struct evaluator *evaluator,
			    int (*visit)(void *ctx, const struct evaluator_sight *sight), void *ctx)
{
	for (size_t i = 0; i < evaluator->table.count; i++) {
		const struct judged_target *judged_target = evaluator->table.all[i];
		const struct sample *sample = judged_target->seen ? &judged_target->sample : NULL;
		struct evaluator_sight sight = { &judged_target->target, judged_target->seen, judged_target->at,
						 sample };
		int r = visit(ctx, &sight);

		if (r != 0)
			return r;
	}
	return 0;
}

int evaluator_new(const struct evaluator_options *options, struct evaluator **ret)
{
	AUTO(evaluator_freep) struct evaluator *evaluator = calloc(1, sizeof(*evaluator));
	int r;

	if (!evaluator)
		return -ENOMEM;

	evaluator->options = *options;
	r = rule_plan_init(&evaluator->plan, options->config);
	if (r < 0)
		return r;
	r = writer_clocks_init(&evaluator->writer_clocks, &evaluator->plan);
	if (r < 0)
		return r;
	if (!options->rule_state) {
		r = rule_state_new("", &evaluator->own_rule_state);
		if (r < 0)
			return r;
		evaluator->options.rule_state = evaluator->own_rule_state;
	}

	*ret = TAKE(evaluator);
	return 0;
}

void evaluator_free(struct evaluator *evaluator)
{
	if (!evaluator)
		return;

	table_release(&evaluator->table);
	free(evaluator->first_ids);
	writer_clocks_release(&evaluator->writer_clocks);
	rule_plan_release(&evaluator->plan);
	rule_state_free(evaluator->own_rule_state);
	free(evaluator);
}
