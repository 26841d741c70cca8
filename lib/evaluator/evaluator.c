/*
 * evaluator.c: targets come and go, windows slide, rules step.
 *
 * Windows. Time is cut into steps, STEPS to a window length, at the same moments for all targets. At
 * the end of each step one window ends, which began STEPS steps before; every STEPS-th of them is a
 * whole one, and those lie end to end. So a stretch as long as a window lies at most half a step
 * beside one of them. A step is no shorter than a tick: several that end with one tick are one.
 *
 * What is kept. A rate is the difference of two values of a counter. So for each window length that
 * a target has rules of, the values of the counters that these rules compare (metric_counters) are
 * kept as of the end of the last STEPS steps, each with its time, and shared by the rules; no
 * samples. Metrics that only look at the end of a window need no past at all, peaks the most in each
 * step.
 *
 * Cost. A tick in which no step ends costs one comparison per window length. At the end of a step
 * only those targets are visited that had a sample in it, or of which a rule waits for something: a
 * target that has not changed can have no higher value than in the step before. At the end of a whole
 * window all are that are not at rest. Its rules are asked in the order of the plan, those of one
 * length are neighbours.
 *
 * Rest. A window of a target that has not changed for its length is the same again each time, and as
 * a rule the triggers say that no such window will ever be a candidate (trigger_repeat). Then it is at
 * rest: whole windows are counted on the clock of the writer, for all targets at rest together, and
 * each target takes in those that it has missed when it changes, when it is asked for, or with a
 * reload. For that to be exact windows must end with the same ticks for all: so none rests that is not
 * read in every tick, and where a tick comes so late that the next window may be too short to be
 * judged, all are asked. With a witness none rests.
 *
 * Observations. A tick without a sample of a target means that the target is unchanged, so its last
 * observation moves on with the ticks: time of the tick + offset of its last sample from that
 * sample's tick (the sampler visits targets in the same order every time). A process that wakes up
 * after a minute has therefore used its CPU time since the last tick, not within that minute. For a
 * target without samples the ends of steps are written down late, when a sample comes (catch_up).
 *
 * Idle processes are not read in every tick (idle_backoff.h), so their observation stays behind the
 * tick by the longest pause that the time without a change allows. A window may begin that much
 * before its edge, and then holds all that can have been used since: it never shows more than was
 * possible. When the process wakes, a record says when it was last read unchanged: the window then
 * begins there, or at its edge if that is later. cgroups are read at an interval of their own, and
 * ticks in between say nothing: their observation moves on in steps of that interval, half an
 * interval late, so that a read which slips by a tick is not taken for an idle one.
 *
 * Short windows. When less than half of a window lies between its two observations (the sampler
 * stalled almost up to its end, or a cgroup was not read again) it is not judged; a whole one stays
 * open and is judged with the next. Otherwise the resolution of CPU counters would look like a spike.
 * A stall that is longer than a window is judged once, over the time that passed.
 *
 * Several writers. Each sampler thread ticks by itself and says nothing of the targets of another,
 * so each has a clock, and a window of a target ends with the ticks of its writer.
 *
 * Remembered state. What a trigger remembers is put into the rule state as soon as a step has
 * changed it, before the firing is handed out: a crash during the incident does not forget the
 * cooldown.
 *
 * Reload. Every target that stays is made once more for the new rules, with fresh triggers and all
 * the memory that this takes; then what is worth keeping is moved in, which cannot fail. What is
 * left over is freed like any target. A lowest id for each entry tells targets of a changed entry,
 * which the ring may describe again, from those of the new one.
 *
 * Memory. A target has one block for its rules: windows, pairs, observations and triggers.
 *
 * Rejected: a window that ends with every tick and begins at any (a thousand observations for a
 * second at 1 kHz, to catch what lies less than a twentieth beside); interpolation between two
 * observations (it shows more than was possible when a burst begins between them); reading the ring
 * backwards (a recording that is replayed has none).
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

/* Windows of so many lengths may be at rest. */
#define RESTING_LENGTHS_MAX 16u

/* Steps in a window: half of one is what a burst as long as the window may lie beside it. */
#define STEPS 10u

/* The rules of a configuration, sorted by window length, and the lengths. {0} is empty and legal. */
struct rule_plan {
	const struct config_rule **rules;
	size_t rule_count;
	uint64_t *lengths_ns;
	size_t length_count;
};

/* One rule on one target. */
struct judged_pair {
	uint32_t trigger;      /* where its state is in the block of the target, in words */
	uint32_t rule : 26;    /* in the plan */
	uint32_t rests_as : 4; /* at rest: enum trigger_reason of each of its windows */
	bool owed : 1;         /* could not be put into the rule state for want of memory, or was not yet */
	bool bursting : 1;     /* above the threshold in the last step, although the window was not */
};

_Static_assert(sizeof(struct judged_pair) == 8, "there is one for each target of each rule");

/*
 * What all rules of one length share on one target: observations at the ends of the last STEPS steps,
 * and one more at the beginning of the whole window under way. Each is a time, with has_read that of its
 * other counters (struct metric_point), the counters in `fields` in their order, and with has_peak the most memory in
 * the step that it ends. Steps are numbered from
 * the beginning of the clock; 32 bits are enough to compare them.
 */
struct judged_window {
	uint64_t *observations; /* `words` each */
	uint64_t peak_bytes;    /* most memory since the end of the last step, that included */
	uint32_t step;          /* the last one that an observation is kept of */
	uint32_t base;          /* the one that the whole window under way began with */
	uint32_t touched;       /* those after this one were taken since the target last changed */
	uint32_t fields;        /* counters that are kept */
	uint32_t first, count;  /* its pairs */
	uint8_t words, known;   /* observations of steps before the last one, at most STEPS */
	bool open, based : 1, has_peak : 1, waits : 1; /* waits: a rule does, see pair_waits */
	bool rests : 1, has_read : 1;
	uint64_t rested; /* the clock's count of whole windows, of which its rules have taken in all */
};

/* A counter that was missing; that was not kept, because no rule compared it. */
#define MISSING UINT64_MAX
#define NOT_KEPT (UINT64_MAX - 1)

/* All that a target has for its rules: made for one plan, exchanged by a reload. */
struct judged_rules {
	struct judged_window *windows; /* one for each length of the plan, in its order */
	struct judged_pair *pairs;
	uint64_t *triggers;
	size_t window_count, pair_count;
	uint64_t block[]; /* what these point to */
};

/* What a sample touches comes first. */
struct judged_target {
	struct map_node node;          /* its hash is the id */
	struct judged_target *touched; /* next of those sampled since the last tick */
	struct judged_rules *rules;
	size_t index; /* in the table's array */
	bool is_touched;
	bool seen;                /* at, since, offset_ns and last are known */
	bool since_known;         /* and since is exact */
	uint64_t read_ns;         /* how often it is read; 0: every tick */
	mono_t since;             /* of the sample that was the last to differ from the one before */
	mono_t at;                /* of the last sample */
	int64_t offset_ns;        /* at, less the time of its tick */
	struct metric_point last; /* the sample; its time and peak are those of the window being judged */
	struct target target;
	char *strings; /* of target */
};

/* What is asked of every target at the end of a step. */
struct table_row {
	struct judged_target *target;
	uint64_t sampled; /* number of the tick with its last sample */
	uint8_t clock;    /* of the writer whose ticks it moves on with */
	bool waits;       /* one of its windows does, or is not open */
	uint16_t resting; /* mask of the plan's lengths of which its window is at rest */
};

_Static_assert(WRITER_CLOCKS_MAX <= UINT8_MAX && RESTING_LENGTHS_MAX <= 16, "they fit into a row");

/* {0} is empty and legal. */
struct judged_targets {
	struct map map; /* by id. Ids are given in order, so their low bits spread them evenly */
	struct table_row *all;
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
	mono_t now;       /* of the last tick */
	uint64_t idle_ns; /* as it said */
	uint32_t resting; /* windows of its targets that are at rest */
};

/* Whole windows of targets at rest, which end with the same tick. */
struct resting_windows {
	uint64_t count; /* that have ended, ever */
	mono_t end;     /* nominal, of the last one */
	wall_t wall;
	uint64_t step; /* the last step by the last tick in which one ended, or was too short to end */
	uint64_t base; /* the step and the tick with which the one under way began */
	mono_t base_tick;
};

/* The steps of one window length on one clock. */
struct step_clock {
	uint64_t ended;             /* steps that have ended since the clock's epoch */
	uint64_t number;            /* of the tick that last ended any */
	mono_t next;                /* when the next one ends */
	mono_t edges[STEPS];        /* the ticks that ended the last ones; step n is at n % STEPS */
	mono_t edges_before[STEPS]; /* the same as of the tick before the last that ended any */
	struct resting_windows resting;
};

/* How far the ticks of each writer have come, and which steps have ended by then. */
struct writer_clocks {
	struct writer_clock clocks[WRITER_CLOCKS_MAX];
	struct step_clock *steps; /* of each clock, one for each length */
	/* Of each clock, for each rule: pairs at rest, by what their windows are counted as. */
	uint32_t (*resting_pairs)[TRIGGER_REASONS];
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
	uint32_t clock;           /* of the writer whose events come */
	uint64_t number;          /* of the tick: how many have ended, of all writers */
	mono_t tick;              /* that is being delivered, */
	wall_t wall;              /* the same moment on the wall clock, */
	uint64_t idle_ns;         /* and the longest pause between two reads of a process */
	struct metric_point from; /* scratch: where the window begins that is being judged */
	struct recent_holes recent_holes[WRITER_CLOCKS_MAX];
};

/* ---- steps ---- */

static uint64_t step_length(uint64_t window_ns)
{
	return (window_ns + STEPS - 1) / STEPS;
}

/* How many steps have ended by then. */
static uint64_t steps_by(uint64_t ns, uint64_t window_ns)
{
	return ns / window_ns * STEPS + ns % window_ns / step_length(window_ns);
}

/* When a step ends. */
static mono_t end_of_step(uint64_t step, uint64_t window_ns)
{
	return (mono_t){ step / STEPS * window_ns + step % STEPS * step_length(window_ns) };
}

/* ---- clocks of the writers ---- */

static struct step_clock *step_clock_of(const struct writer_clocks *writer_clocks, const struct rule_plan *plan,
					uint32_t clock, size_t g)
{
	return &writer_clocks->steps[clock * plan->length_count + g];
}

/* For the window lengths of a plan. 0 or -ENOMEM. */
static int writer_clocks_init(struct writer_clocks *writer_clocks, const struct rule_plan *plan)
{
	AUTO_FREE struct step_clock *steps = calloc(WRITER_CLOCKS_MAX * plan->length_count + 1, sizeof(*steps));
	uint32_t(*resting_pairs)[TRIGGER_REASONS] =
		calloc(WRITER_CLOCKS_MAX * plan->rule_count + 1, sizeof(*resting_pairs));

	if (!steps || !resting_pairs) {
		free(resting_pairs);
		return -ENOMEM;
	}
	*writer_clocks = (struct writer_clocks){ .steps = TAKE(steps), .resting_pairs = resting_pairs };
	return 0;
}

static void writer_clocks_release(struct writer_clocks *writer_clocks)
{
	free(writer_clocks->steps);
	free(writer_clocks->resting_pairs);
	*writer_clocks = (struct writer_clocks){ 0 };
}

/* Steps that ended before now are not asked about. */
static void begin_steps(struct step_clock *steps, uint64_t now_ns, uint64_t window_ns)
{
	struct resting_windows resting = { .count = steps->resting.count, .end = steps->resting.end };

	*steps = (struct step_clock){ .ended = steps_by(now_ns - 1, window_ns), .resting = resting };
	steps->next = end_of_step(steps->ended + 1, window_ns);
}

/*
 * A tick. False: time went back (another boot, say). Then, and with the first tick, a step ends only
 * if its end is exactly now.
 */
static bool writer_clocks_step(struct writer_clocks *writer_clocks, const struct rule_plan *plan, uint32_t clock,
			       mono_t now)
{
	struct writer_clock *at = &writer_clocks->clocks[clock];
	bool back = at->started && mono_diff(now, at->now) < 0;

	if (!at->started || back)
		for (size_t g = 0; g < plan->length_count; g++)
			begin_steps(step_clock_of(writer_clocks, plan, clock, g), now.ns, plan->lengths_ns[g]);
	at->started = true;
	at->now = now;
	return !back;
}

/*
 * Whether steps of the plan's length g have ended since the last call. *ret_before: how many had by
 * then.
 */
static bool writer_clocks_end(struct writer_clocks *writer_clocks, const struct rule_plan *plan, uint32_t clock,
			      size_t g, uint64_t *ret_before)
{
	struct step_clock *steps = step_clock_of(writer_clocks, plan, clock, g);
	mono_t now = writer_clocks->clocks[clock].now;

	if (mono_diff(now, steps->next) < 0)
		return false;

	*ret_before = steps->ended;
	steps->ended = steps_by(now.ns, plan->lengths_ns[g]);
	steps->next = end_of_step(steps->ended + 1, plan->lengths_ns[g]);
	memcpy(steps->edges_before, steps->edges, sizeof(steps->edges));
	for (uint64_t n = steps->ended - *ret_before < STEPS ? *ret_before + 1 : steps->ended - STEPS + 1;
	     n <= steps->ended; n++)
		steps->edges[n % STEPS] = now;
	return true;
}

/*
 * Makes next, of next_plan, continue old. lengths: for each length of next_plan its place in plan;
 * NOWHERE: it is new, has no window open, and begins with the end of its next step.
 */
static void writer_clocks_inherit(struct writer_clocks *next, const struct rule_plan *next_plan,
				  const struct writer_clocks *old, const struct rule_plan *plan, const size_t *lengths)
{
	for (uint32_t clock = 0; clock < WRITER_CLOCKS_MAX; clock++) {
		next->clocks[clock] = old->clocks[clock];
		next->clocks[clock].resting = 0;
		for (size_t g = 0; g < next_plan->length_count; g++) {
			struct step_clock *steps = step_clock_of(next, next_plan, clock, g);

			if (lengths[g] != NOWHERE)
				*steps = *step_clock_of(old, plan, clock, lengths[g]);
			else
				begin_steps(steps, old->clocks[clock].now.ns + 1, next_plan->lengths_ns[g]);
		}
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

/* ---- the rules of a target ---- */

static struct trigger_state *trigger_of(const struct judged_rules *rules, const struct judged_pair *pair)
{
	return (struct trigger_state *)(rules->triggers + pair->trigger);
}

static void judged_rules_free(struct judged_rules *rules)
{
	if (!rules)
		return;

	for (size_t i = 0; i < rules->pair_count; i++)
		trigger_state_release(trigger_of(rules, &rules->pairs[i]));
	free(rules);
}

CLEANUP(judged_rules, free);

static bool rule_applies(const struct config_rule *rule, const struct target *target)
{
	for (size_t i = 0; i < rule->target_count; i++)
		if (strcmp(rule->targets[i], target->entry) == 0)
			return true;
	return rule->target_count == 0;
}

/* How many words a block needs. */
struct block_size {
	size_t windows, pairs, observations, triggers;
};

static size_t words_of(size_t bytes)
{
	return (bytes + sizeof(uint64_t) - 1) / sizeof(uint64_t);
}

static uint8_t words_of_observation(const struct judged_window *window)
{
	return (uint8_t)(1 + window->has_read + __builtin_popcount(window->fields) + window->has_peak);
}

/*
 * Visits the rules that apply to a target: first without a block, to measure it, then with one, to
 * fill it. windows: of the plan's lengths, zeroed; they get their layout.
 */
static void lay_out(const struct rule_plan *plan, const struct target *target, struct judged_rules *rules,
		    struct judged_window *windows, struct block_size *ret)
{
	size_t g = 0;

	*ret = (struct block_size){ .windows = words_of(plan->length_count * sizeof(*windows)) };
	for (size_t i = 0; i < plan->rule_count; i++) {
		const struct config_rule *rule = plan->rules[i];

		if (!rule_applies(rule, target))
			continue;
		while (plan->lengths_ns[g] != rule->window_ns)
			g++;
		if (windows[g].count++ == 0)
			windows[g].first = (uint32_t)ret->pairs;
		windows[g].fields |= metric_counters(rule->metric);
		windows[g].has_peak |= rule->metric == METRIC_MEMORY_PEAK;
		if (rules)
			rules->pairs[ret->pairs] =
				(struct judged_pair){ .trigger = (uint32_t)ret->triggers, .rule = i & 0x3ffffff };
		ret->pairs++;
		ret->triggers += words_of(trigger_state_size(&rule->trigger));
	}
	for (g = 0; g < plan->length_count; g++) {
		windows[g].has_read = target->kind == TARGET_CGROUP && (windows[g].fields & ~(1u << SAMPLE_CPU)) != 0;
		windows[g].words = words_of_observation(&windows[g]);
		if (rules)
			windows[g].observations = rules->triggers + ret->triggers + ret->observations;
		if (windows[g].count > 0)
			ret->observations += (STEPS + 1) * windows[g].words;
	}
}

/* What is remembered of each. 0 or -ENOMEM. */
static int resume_rules(const struct rule_plan *plan, const struct target *target, const struct rule_state *rule_state,
			struct judged_rules *rules, size_t pairs)
{
	struct trigger_memory memory;

	for (; rules->pair_count < pairs; rules->pair_count++) {
		const struct judged_pair *pair = &rules->pairs[rules->pair_count];
		const struct config_rule *rule = plan->rules[pair->rule];

		trigger_state_init(trigger_of(rules, pair), &rule->trigger);
		if (!rule_state_get(rule_state, rule->name, target->key, &memory))
			continue;
		if (trigger_restore(trigger_of(rules, pair), &memory) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Pairs a target with the rules that name its entry. 0 or -ENOMEM. */
static int judged_rules_new(const struct rule_plan *plan, const struct target *target,
			    const struct rule_state *rule_state, struct judged_rules **ret)
{
	AUTO_FREE struct judged_window *measured = calloc(plan->length_count + 1, sizeof(*measured));
	AUTO(judged_rules_freep) struct judged_rules *rules = NULL;
	struct block_size size;

	if (!measured)
		return -ENOMEM;

	lay_out(plan, target, NULL, measured, &size);

	size_t pair_words = words_of(size.pairs * sizeof(struct judged_pair));
	size_t words = size.windows + pair_words + size.triggers + size.observations;

	rules = calloc(1, sizeof(*rules) + words * sizeof(uint64_t));
	if (!rules)
		return -ENOMEM;

	rules->windows = (struct judged_window *)rules->block;
	rules->pairs = (struct judged_pair *)(rules->block + size.windows);
	rules->triggers = rules->block + size.windows + pair_words;
	rules->window_count = plan->length_count;
	lay_out(plan, target, rules, rules->windows, &size);
	int r = resume_rules(plan, target, rule_state, rules, size.pairs);
	if (r < 0)
		return r;

	*ret = TAKE(rules);
	return 0;
}

static void judged_target_free(struct judged_target *judged_target)
{
	if (!judged_target)
		return;

	judged_rules_free(judged_target->rules);
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

/* Copies the target and pairs it with its rules. 0 or -ENOMEM. */
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
	r = judged_rules_new(plan, &judged_target->target, rule_state, &judged_target->rules);
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

/* ---- observations ---- */

/* When the target is read in that tick, if it is. */
static mono_t seen_in(const struct judged_target *judged_target, mono_t now)
{
	return (mono_t){ now.ns + (uint64_t)judged_target->offset_ns };
}

/* A cgroup whose CPU time the scheduler tells is asked for that in every tick, whatever read_ns. */
static bool is_told(const struct judged_target *judged_target)
{
	return sample_has(&judged_target->last.sample, SAMPLE_FILES_READ);
}

/* By the end of tick now, of what is read at intervals and was read at `at`. */
static mono_t read_since(const struct judged_target *judged_target, mono_t at, mono_t now)
{
	int64_t age = mono_diff(now, at) - (int64_t)(judged_target->read_ns / 2);

	return age < 0 ? at : mono_add(at, (uint64_t)age / judged_target->read_ns * judged_target->read_ns);
}

/*
 * When it was last observed by the end of tick now, changed or not, as far as that is certain.
 * idle_ns: the longest pause between two reads of a process, as of that tick. Only if it was seen.
 * Sums of groups are made in every tick, and windows end when they are exact (source.h).
 */
static mono_t judged_target_seen_at(const struct judged_target *judged_target, mono_t now, uint64_t idle_ns)
{
	mono_t here = seen_in(judged_target, now);

	if (judged_target->read_ns > 0 && !is_told(judged_target))
		return read_since(judged_target, judged_target->at, now);
	if (judged_target->target.kind == TARGET_PROCESS && idle_ns > 0)
		return idle_backoff_seen_at(judged_target->at,
					    judged_target->since_known ? &judged_target->since : NULL, here, idle_ns);
	return here;
}

/* The same of its other counters; 0: at the same time. */
static mono_t judged_target_read_at(const struct judged_target *judged_target, mono_t now)
{
	mono_t at = { judged_target->last.sample.value[SAMPLE_FILES_READ] };

	return judged_target->read_ns > 0 && is_told(judged_target) ? read_since(judged_target, at, now)
								    : (mono_t){ 0 };
}

/* Of the end of a step, which must be one of the last STEPS. */
static uint64_t *observation_of(const struct judged_window *window, uint64_t step)
{
	return window->observations + step % STEPS * window->words;
}

/* Of the beginning of the whole window under way. */
static uint64_t *base_of(const struct judged_window *window)
{
	return window->observations + STEPS * window->words;
}

static mono_t time_of(const uint64_t *observation)
{
	return (mono_t){ observation[0] };
}

/* peak_bytes: in the step that it ends. */
static void put_observation(const struct judged_window *window, uint64_t *observation, mono_t at, mono_t read,
			    const struct sample *sample, uint64_t peak_bytes)
{
	uint64_t *word = observation;

	*word++ = at.ns;
	if (window->has_read)
		*word++ = read.ns;
	for (uint32_t left = window->fields; left != 0; left &= left - 1) {
		enum sample_field field = (enum sample_field)__builtin_ctz(left);

		*word++ = sample_has(sample, field) ? sample->value[field] : MISSING;
	}
	if (window->has_peak)
		*word = peak_bytes;
}

/* As a point from which metrics can be computed. Returns the fields that were not kept by then. */
static uint32_t get_observation(const struct judged_window *window, const uint64_t *observation,
				struct metric_point *ret)
{
	const uint64_t *word = observation;
	uint32_t not_kept = 0;

	ret->time.ns = *word++;
	ret->read.ns = window->has_read ? *word++ : 0;
	ret->sample.mask = 0;
	for (uint32_t left = window->fields; left != 0; left &= left - 1, word++) {
		uint32_t bit = left & -left;

		ret->sample.value[__builtin_ctz(left)] = *word;
		ret->sample.mask |= *word < NOT_KEPT ? bit : 0;
		not_kept |= *word == NOT_KEPT ? bit : 0;
	}
	return not_kept;
}

static uint64_t peak_now(const struct judged_target *judged_target)
{
	return metric_peak(&judged_target->last.sample, &judged_target->last.sample);
}

/* ---- windows ---- */

/* Moves an observation that was made up for a tick without a sample. */
static void move_observation(uint64_t *observation, mono_t at)
{
	observation[0] = at.ns;
}

/* How many observations were taken since the target last changed, of steps up to the last one. */
static uint32_t untouched(const struct judged_window *window)
{
	uint32_t count = window->step - window->touched;

	return count < STEPS ? count : STEPS;
}

/* Whether the base is the observation of that step, which is one of the last STEPS. */
static bool is_base(const struct judged_window *window, uint64_t step)
{
	return window->based && window->base == (uint32_t)step;
}

/* It was read unchanged at `at`: no window may begin later with this state. */
static void hold_back(struct judged_window *window, const struct step_clock *steps, mono_t at)
{
	for (uint64_t i = untouched(window); i-- > 0;) {
		uint64_t step = steps->ended - i, *observation = observation_of(window, step);

		if (mono_diff(time_of(observation), at) <= 0)
			continue;
		move_observation(observation, at);
		if (is_base(window, step))
			move_observation(base_of(window), at);
	}
}

/* It has changed since `at`, and was unchanged from its last change up to then. */
static void move_up(const struct judged_target *judged_target, struct judged_window *window,
		    const struct step_clock *steps, mono_t at)
{
	for (uint64_t i = untouched(window); i-- > 0;) {
		uint64_t step = steps->ended - i, *observation = observation_of(window, step);
		mono_t edge = seen_in(judged_target, steps->edges[step % STEPS]);
		mono_t from = mono_diff(at, edge) < 0 ? at : edge;

		if (mono_diff(from, time_of(observation)) <= 0)
			continue;
		move_observation(observation, from);
		if (is_base(window, step))
			move_observation(base_of(window), from);
	}
	window->touched = window->step;
}

/*
 * Writes down the observations of the steps up to `ended` in which nothing was heard of the target.
 * edges: of the last STEPS of them.
 */
static void catch_up(const struct judged_target *judged_target, struct judged_window *window, uint64_t ended,
		     const mono_t *edges, uint64_t idle_ns)
{
	uint32_t missing = (uint32_t)ended - window->step;
	uint64_t peak;

	if (!window->open || missing == 0)
		return;

	peak = peak_now(judged_target);
	for (uint64_t i = missing < STEPS ? missing : STEPS; i-- > 0;) {
		uint64_t step = ended - i;

		put_observation(window, observation_of(window, step),
				judged_target_seen_at(judged_target, edges[step % STEPS], idle_ns),
				judged_target_read_at(judged_target, edges[step % STEPS]), &judged_target->last.sample,
				i + 1 == missing ? window->peak_bytes : peak);
	}
	window->known = missing < STEPS - window->known ? (uint8_t)(window->known + missing) : STEPS;
	window->step = (uint32_t)ended;
	window->peak_bytes = peak;
}

/* Takes in a sample; the one before is still there. */
static void see_in_window(const struct judged_target *judged_target, struct judged_window *window,
			  const struct step_clock *steps, bool same, mono_t at)
{
	if (!window->open || (judged_target->read_ns > 0 && !is_told(judged_target)))
		return;
	if (same)
		hold_back(window, steps, at);
	else
		move_up(judged_target, window, steps, judged_target->at);
}

/* A sample of the target. steps: of its clock, for all lengths. */
static void judged_target_see(struct judged_target *judged_target, const struct step_clock *steps, uint64_t idle_ns,
			      mono_t at, const struct sample *sample)
{
	struct sample *last = &judged_target->last.sample;
	bool same = judged_target->seen && last->mask == sample->mask && sample_difference(last, sample) == 0;
	uint64_t peak = metric_peak(judged_target->seen ? last : sample, sample);
	struct judged_rules *rules = judged_target->rules;

	for (size_t g = 0; judged_target->seen && g < rules->window_count; g++) {
		struct judged_window *window = &rules->windows[g];

		catch_up(judged_target, window, steps[g].ended, steps[g].edges, idle_ns);
		see_in_window(judged_target, window, &steps[g], same, at);
		if (window->peak_bytes < peak)
			window->peak_bytes = peak;
	}

	judged_target->since_known = judged_target->seen && (judged_target->since_known || !same);
	if (!same)
		judged_target->since = at;
	*last = *sample;
	judged_target->at = at;
	judged_target->seen = true;
}

/* Drops its open windows; it is unseen until its next sample. */
static void judged_target_lose(struct judged_target *judged_target)
{
	judged_target->seen = false;
	for (size_t g = 0; g < judged_target->rules->window_count; g++)
		judged_target->rules->windows[g].open = false;
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
	int r = vector_reserve(&table->all, &table->cap, table->count + 1, sizeof(*table->all));

	return r < 0 ? r : map_reserve(&table->map, table->count + 1);
}

/* Takes a target, for which there must be room, and whose id must be new. */
static void table_add(struct judged_targets *table, struct judged_target *judged_target, uint32_t clock)
{
	judged_target->index = table->count;
	table->all[table->count++] =
		(struct table_row){ .target = judged_target, .clock = (uint8_t)clock, .waits = true };
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
	struct table_row last = table->all[--table->count];

	map_remove(&table->map, &judged_target->node);
	untouch(table, judged_target);
	last.target->index = judged_target->index;
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

		if (table->all[judged_target->index].clock != clock) {
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
		judged_target_free(table->all[i].target);
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

static void carry_pair(struct judged_rules *old, struct judged_pair *from, struct judged_rules *next,
		       struct judged_pair *to, const struct config_rule *same)
{
	struct trigger_state *old_state = trigger_of(old, from), *next_state = trigger_of(next, to);

	if (!same) {
		/* The fresh state was made from the rule state, which may lack what the old one has. */
		to->owed = !trigger_memory_equal(trigger_memory(old_state), trigger_memory(next_state));
		trigger_inherit(next_state, old_state);
		return;
	}

	trigger_state_swap(old_state, next_state, &same->trigger);
	to->owed = from->owed;
	to->bursting = from->bursting;
}

static void carry_pairs(struct carried_state *carried_state, const struct rule_plan *plan, struct judged_rules *old,
			const struct rule_plan *next_plan, struct judged_rules *next)
{
	for (size_t i = 0; i < old->pair_count; i++)
		carried_state->pairs[plan->rules[old->pairs[i].rule] - carried_state->old->rules] = &old->pairs[i];

	for (size_t i = 0; i < next->pair_count; i++) {
		const struct config_rule *rule = next_plan->rules[next->pairs[i].rule];
		const struct carried_rule *carried = &carried_state->rules[rule - carried_state->next->rules];
		struct judged_pair *from = carried->old != NOWHERE ? carried_state->pairs[carried->old] : NULL;

		if (from)
			carry_pair(old, from, next, &next->pairs[i], carried->same ? rule : NULL);
	}

	for (size_t i = 0; i < old->pair_count; i++)
		carried_state->pairs[plan->rules[old->pairs[i].rule] - carried_state->old->rules] = NULL;
}

/* The same moment with the counters of another window. */
static void carry_observation(const struct judged_window *old, const uint64_t *from, const struct judged_window *next,
			      uint64_t *to)
{
	struct metric_point point;
	uint32_t not_kept = get_observation(old, from, &point) | (next->fields & ~old->fields);

	put_observation(next, to, point.time, point.read, &point.sample, old->has_peak ? from[old->words - 1] : 0);
	to += next->has_read;
	for (uint32_t left = next->fields; left != 0; left &= left - 1) {
		to++;
		if (not_kept & left & -left)
			*to = NOT_KEPT;
	}
}

/* A window goes on if rules of its length apply to the target before and after. */
static void carry_windows(const struct carried_state *carried_state, const struct judged_rules *old,
			  struct judged_rules *next)
{
	for (size_t g = 0; g < next->window_count; g++) {
		struct judged_window *to = &next->windows[g], layout = *to;
		const struct judged_window *from;

		if (carried_state->lengths[g] == NOWHERE || to->count == 0)
			continue;
		from = &old->windows[carried_state->lengths[g]];
		if (from->count == 0)
			continue;
		*to = *from;
		to->observations = layout.observations;
		to->fields = layout.fields;
		to->first = layout.first;
		to->count = layout.count;
		to->words = layout.words;
		to->has_peak = layout.has_peak;
		to->has_read = layout.has_read;
		for (size_t i = 0; i <= STEPS; i++)
			carry_observation(from, from->observations + i * from->words, to,
					  to->observations + i * to->words);
	}
}

/*
 * Makes a target of the old plan into one of the next plan. fresh: the same target, made with the
 * next plan; it gets what the target has no more use for, to be freed. Rules that judge as before
 * keep their whole state; others begin with the cooldown, the count and the high-water mark they
 * had. Never fails.
 */
static void carry_target(struct carried_state *carried_state, const struct rule_plan *plan,
			 struct judged_target *judged_target, const struct rule_plan *next_plan,
			 struct judged_target *fresh)
{
	struct judged_rules *old = judged_target->rules;

	carry_pairs(carried_state, plan, old, next_plan, fresh->rules);
	carry_windows(carried_state, old, fresh->rules);

	judged_target->read_ns = fresh->read_ns;
	judged_target->rules = fresh->rules;
	fresh->rules = old;
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

	return judged_target_new(plan, target, read_ns, evaluator->options.rule_state, ret);
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
	table_add(&evaluator->table, judged_target, evaluator->clock);
	return 0;
}

/* ---- targets at rest ---- */

/* A part of the window: by so much its samples may come later or earlier in their tick. */
#define RESTING_OFFSET_SHARE 16

static struct step_clock *steps_of_row(const struct evaluator *evaluator, const struct table_row *row)
{
	return step_clock_of(&evaluator->writer_clocks, &evaluator->plan, row->clock, 0);
}

/* Whether samples that come so long after their tick's time change no window's length by much. */
static bool is_near_tick(int64_t offset_ns, uint64_t window_ns)
{
	return (offset_ns < 0 ? -offset_ns : offset_ns) <= (int64_t)(window_ns / RESTING_OFFSET_SHARE);
}

/* A whole window in which nothing changes, as each will be from now on. */
static struct trigger_window unchanged_window(const struct evaluator *evaluator,
					      const struct judged_target *judged_target, const struct config_rule *rule,
					      const struct step_clock *steps)
{
	struct metric_point to = judged_target->last, from = to;
	struct trigger_window window = { .now = steps->resting.end,
					 .wall = steps->resting.wall,
					 .window_ns = rule->window_ns,
					 .step_ns = rule->window_ns,
					 .whole = true,
					 .apart = true };

	to.peak_bytes = peak_now(judged_target);
	from.time = mono_sub(to.time, rule->window_ns);
	window.available = metric_value(rule->metric, rule->of, &evaluator->options.machine, &from, &to, &window.value);
	return window;
}

/* Has the triggers take in so many whole windows. False: one of its rules would not stay as it is. */
static bool repeat_windows(const struct evaluator *evaluator, const struct table_row *row, size_t g, uint64_t times)
{
	const struct judged_rules *rules = row->target->rules;
	const struct judged_window *window = &rules->windows[g];
	const struct step_clock *steps = steps_of_row(evaluator, row) + g;

	for (size_t i = 0; i < window->count; i++) {
		struct judged_pair *pair = &rules->pairs[window->first + i];
		const struct config_rule *rule = evaluator->plan.rules[pair->rule];
		struct trigger_window unchanged = unchanged_window(evaluator, row->target, rule, steps);
		enum trigger_reason reason;

		if (pair->owed || pair->bursting ||
		    !trigger_repeat(trigger_of(rules, pair), &rule->trigger, &unchanged, times, &reason))
			return false;
		pair->rests_as = (unsigned)reason & 0xf;
	}
	return true;
}

/* Of a window at rest: what has ended since its rules were last brought up to date. */
static void take_in_missed(const struct evaluator *evaluator, const struct table_row *row, size_t g)
{
	struct judged_window *window = &row->target->rules->windows[g];
	uint64_t count = steps_of_row(evaluator, row)[g].resting.count;

	if (count > window->rested)
		repeat_windows(evaluator, row, g, count - window->rested);
	window->rested = count;
}

/* All of its windows: for what is asked of its rules. */
static void take_in_all_missed(const struct evaluator *evaluator, const struct judged_target *judged_target)
{
	const struct table_row *row = &evaluator->table.all[judged_target->index];

	for (uint32_t left = row->resting; left != 0; left &= left - 1)
		take_in_missed(evaluator, row, (size_t)__builtin_ctz(left));
}

/*
 * Writes down the observations up to the last end of a whole window, as of the ticks then: before the
 * offset of the target's samples changes. edges: of the steps that have ended by then, and since.
 */
static void observe_rest(const struct judged_target *judged_target, struct judged_window *window,
			 const struct resting_windows *resting, const mono_t *edges)
{
	if ((int32_t)((uint32_t)resting->step - window->step) > 0)
		catch_up(judged_target, window, resting->step, edges, 0);
	if (window->base == (uint32_t)resting->base)
		return;
	window->base = (uint32_t)resting->base;
	put_observation(window, base_of(window), seen_in(judged_target, resting->base_tick), (mono_t){ 0 },
			&judged_target->last.sample, 0);
}

static void count_resting(struct evaluator *evaluator, const struct table_row *row, size_t g, bool begins)
{
	const struct judged_rules *rules = row->target->rules;
	const struct judged_window *window = &rules->windows[g];
	uint32_t more = begins ? 1 : UINT32_MAX; /* or one less */

	evaluator->writer_clocks.clocks[row->clock].resting += more;
	for (size_t i = 0; i < window->count; i++) {
		const struct judged_pair *pair = &rules->pairs[window->first + i];

		evaluator->writer_clocks
			.resting_pairs[row->clock * evaluator->plan.rule_count + pair->rule][pair->rests_as] += more;
	}
}

/* Without what it has missed. */
static void leave_rest(struct evaluator *evaluator, struct table_row *row, size_t g)
{
	count_resting(evaluator, row, g, false);
	row->target->rules->windows[g].rests = false;
	row->resting &= (uint16_t) ~(1u << g);
}

/* edges: as in observe_rest. */
static void end_rest(struct evaluator *evaluator, struct table_row *row, size_t g, const mono_t *edges)
{
	take_in_missed(evaluator, row, g);
	observe_rest(row->target, &row->target->rules->windows[g], &steps_of_row(evaluator, row)[g].resting, edges);
	leave_rest(evaluator, row, g);
}

/* Of all windows of a target; not while steps are being ended. */
static void end_all_rest(struct evaluator *evaluator, struct table_row *row)
{
	for (uint32_t left = row->resting; left != 0; left &= left - 1) {
		size_t g = (size_t)__builtin_ctz(left);

		end_rest(evaluator, row, g, steps_of_row(evaluator, row)[g].edges);
	}
}

/* There may be pauses between two reads from this tick on: up to the one before there were none. */
static void note_pauses(struct evaluator *evaluator, uint64_t idle_ns)
{
	struct writer_clock *clock = &evaluator->writer_clocks.clocks[evaluator->clock];
	bool begin = clock->idle_ns == 0 && idle_ns > 0;

	clock->idle_ns = idle_ns;
	for (size_t i = 0; begin && i < evaluator->table.count; i++) {
		struct table_row *row = &evaluator->table.all[i];
		const struct step_clock *steps = steps_of_row(evaluator, row);

		if (row->clock != evaluator->clock)
			continue;
		end_all_rest(evaluator, row);
		for (size_t g = 0; row->target->seen && g < row->target->rules->window_count; g++)
			catch_up(row->target, &row->target->rules->windows[g], steps[g].ended, steps[g].edges, 0);
	}
}

/* A sample of a target at rest: another one ends that. */
static void disturb_rest(struct evaluator *evaluator, struct table_row *row, mono_t at, const struct sample *sample)
{
	const struct sample *last = &row->target->last.sample;

	if (row->clock != evaluator->clock || mono_diff(at, evaluator->tick) < 0 || last->mask != sample->mask ||
	    sample_difference(last, sample) != 0) {
		end_all_rest(evaluator, row);
		return;
	}
	for (uint32_t left = row->resting; left != 0; left &= left - 1) {
		size_t g = (size_t)__builtin_ctz(left);
		const struct step_clock *steps = steps_of_row(evaluator, row) + g;

		observe_rest(row->target, &row->target->rules->windows[g], &steps->resting, steps->edges);
	}
}

/* Of targets whose samples lie elsewhere in their tick from now on. */
static void end_rest_of_shifted(struct evaluator *evaluator, mono_t now)
{
	for (struct judged_target *judged_target = evaluator->table.touched; judged_target;
	     judged_target = judged_target->touched) {
		struct table_row *row = &evaluator->table.all[judged_target->index];
		int64_t offset_ns = mono_diff(judged_target->at, now);

		if (row->resting != 0 && row->clock == evaluator->clock &&
		    !is_near_tick(offset_ns, evaluator->plan.lengths_ns[__builtin_ctz(row->resting)]))
			end_all_rest(evaluator, row); /* lengths are in order: the shortest */
	}
}

/* A whole window has just been judged, and the next one begun. */
static void try_rest(struct evaluator *evaluator, struct table_row *row, size_t g, mono_t now)
{
	struct judged_target *judged_target = row->target;
	struct judged_window *window = &judged_target->rules->windows[g];
	const struct step_clock *steps = steps_of_row(evaluator, row) + g;
	uint64_t window_ns = evaluator->plan.lengths_ns[g];

	if (window->waits || g >= RESTING_LENGTHS_MAX || evaluator->options.witness ||
	    evaluator->options.every_window || judged_target->read_ns > 0 || evaluator->idle_ns > 0)
		return;
	if (mono_diff(now, judged_target->since) < (int64_t)window_ns || steps->resting.base_tick.ns != now.ns ||
	    !is_near_tick(judged_target->offset_ns, window_ns) || !repeat_windows(evaluator, row, g, 0))
		return;
	window->rests = true;
	window->rested = steps->resting.count;
	row->resting |= (uint16_t)(1u << g);
	count_resting(evaluator, row, g, true);
}

/* What those at rest count as, for a whole window that has ended. */
static void tell_resting(const struct evaluator *evaluator, size_t g)
{
	const struct rule_plan *plan = &evaluator->plan;

	for (size_t i = 0; evaluator->options.judged && i < plan->rule_count; i++) {
		const uint32_t *pairs = evaluator->writer_clocks.resting_pairs[evaluator->clock * plan->rule_count + i];

		for (int reason = 0; plan->rules[i]->window_ns == plan->lengths_ns[g] && reason < TRIGGER_REASONS;
		     reason++) {
			struct trigger_decision counted = { .reason = (enum trigger_reason)reason,
							    .counted = true,
							    .counted_reason = (enum trigger_reason)reason };

			if (pairs[reason] > 0)
				evaluator->options.judged(evaluator->options.ctx, plan->rules[i], &counted,
							  pairs[reason]);
		}
	}
}

/*
 * Whole windows end with this tick, also those of targets at rest: unless they may be too short to be
 * judged, by the offset of a target's samples. end: nominal.
 */
static void end_resting_windows(struct evaluator *evaluator, size_t g, struct step_clock *steps, mono_t now, mono_t end,
				wall_t wall)
{
	struct resting_windows *resting = &steps->resting;
	uint64_t window_ns = evaluator->plan.lengths_ns[g];
	int64_t over_ns = mono_diff(now, resting->base_tick) - (int64_t)(window_ns / 2);
	bool is_long = over_ns > 0 && !is_near_tick(over_ns, 2 * window_ns);

	for (size_t i = 0; !is_long && i < evaluator->table.count; i++) {
		struct table_row *row = &evaluator->table.all[i];

		if (row->clock == evaluator->clock && ((uint32_t)row->resting >> g & 1))
			end_rest(evaluator, row, g, steps->edges_before);
	}
	tell_resting(evaluator, g);
	*resting = (struct resting_windows){ .count = resting->count + 1,
					     .end = end,
					     .wall = wall,
					     .step = steps->ended,
					     .base = steps->ended / STEPS * STEPS,
					     .base_tick = now };
}

static void drop_target(struct evaluator *evaluator, uint32_t id)
{
	struct judged_target *judged_target = table_find(&evaluator->table, id);

	if (!judged_target)
		return;

	struct table_row *row = &evaluator->table.all[judged_target->index];

	for (uint32_t left = row->resting; left != 0; left &= left - 1)
		leave_rest(evaluator, row, (size_t)__builtin_ctz(left));
	table_remove(&evaluator->table, judged_target);
}

static void take_sample(struct evaluator *evaluator, uint32_t id, mono_t at, const struct sample *sample)
{
	struct judged_target *judged_target = table_find(&evaluator->table, id);

	if (!judged_target)
		return;

	struct table_row *row = &evaluator->table.all[judged_target->index];

	if (row->resting)
		disturb_rest(evaluator, row, at, sample);
	row->clock = (uint8_t)evaluator->clock;
	row->sampled = evaluator->number;
	judged_target_see(judged_target,
			  step_clock_of(&evaluator->writer_clocks, &evaluator->plan, evaluator->clock, 0),
			  evaluator->idle_ns, at, sample);
	table_touch(&evaluator->table, judged_target);
}

static void lose_row(struct evaluator *evaluator, struct table_row *row)
{
	row->waits = true;
	judged_target_lose(row->target);
	end_all_rest(evaluator, row);
}

static void drop_all_windows(struct evaluator *evaluator)
{
	for (size_t i = 0; i < evaluator->table.count; i++)
		lose_row(evaluator, &evaluator->table.all[i]);
	table_forget_touched(&evaluator->table);
}

/* Time of one writer went back. */
static void lose_targets_of_clock(struct evaluator *evaluator)
{
	for (size_t i = 0; i < evaluator->table.count; i++)
		if (evaluator->table.all[i].clock == evaluator->clock)
			lose_row(evaluator, &evaluator->table.all[i]);
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
			sum += sampling_hole_unsampled_ns(hole, mono_diff(end, begin));
	}
	return sum;
}

/* One position of a window on one target, and what its rules have in common. */
struct position {
	struct judged_target *target;
	struct judged_window *window;
	struct trigger_window end; /* without a value */
	uint64_t before;           /* the last step that had ended before this tick */
	uint32_t not_kept;         /* counters that are not known where it begins */
	bool changed;              /* the target had a sample since the last step */
};

static void hand_out(struct evaluator *evaluator, const struct position *position, const struct config_rule *rule,
		     const struct trigger_decision *decision, struct tick *tick)
{
	const struct metric_point *to = &position->target->last;
	struct evaluator_firing firing = {
		.rule = rule,
		.target = &position->target->target,
		.from = evaluator->from.time,
		.to = to->time,
		.unsampled_ns = unsampled_ns(evaluator, evaluator->from.time, to->time),
		.end = position->end.now,
		.whole = position->end.whole,
		.wall = { tick->wall.ns + (uint64_t)mono_diff(to->time, tick->now) },
		.sample = &to->sample,
		.decision = decision,
		.effective = &rule->trigger,
		.cpu_limit = limit_of(&to->sample, SAMPLE_CPU_LIMIT),
		.memory_limit = limit_of(&to->sample, SAMPLE_MEMORY_LIMIT),
	};

	if (evaluator->options.witness)
		evaluator->options.witness(evaluator->options.ctx, &firing);
	int r = decision->fires ? evaluator->options.fire(evaluator->options.ctx, &firing) : 0;
	if (tick->result == 0)
		tick->result = r;
}

/* before: what was remembered. What cannot be put for want of memory is put after the next step. */
static void remember(struct evaluator *evaluator, const struct judged_target *judged_target, struct judged_pair *pair,
		     const struct config_rule *rule, const struct trigger_memory *before)
{
	const struct trigger_memory *memory = trigger_memory(trigger_of(judged_target->rules, pair));

	if (!pair->owed && trigger_memory_equal(memory, before))
		return;
	pair->owed = rule_state_put(evaluator->options.rule_state, rule->name, judged_target->target.key, memory) < 0;
}

/* ---- judging: bursts that no window catches ---- */

/* The value of a metric between two observations; limits are those of the last sample. */
static bool value_between(const struct evaluator *evaluator, const struct position *position,
			  const struct config_rule *rule, const uint64_t *from, const uint64_t *to, double *ret)
{
	struct metric_point begin, end = position->target->last;
	uint32_t kept = end.sample.mask & ~position->window->fields;

	get_observation(position->window, from, &begin);
	if (to) {
		get_observation(position->window, to, &end);
		end.sample.mask |= kept;
	}
	return metric_value(rule->metric, rule->of, &evaluator->options.machine, &begin, &end, ret);
}

/* What part of a step beside a burst was part of it: as much as it shows of what the burst used. */
static uint64_t part_of_step(const struct evaluator *evaluator, const struct position *position,
			     const struct config_rule *rule, const uint64_t *from, const uint64_t *to, double burst)
{
	mono_t end = to ? time_of(to) : position->target->last.time;
	double value, part;

	if (!value_between(evaluator, position, rule, from, to, &value) || value <= 0)
		return 0;
	part = value < burst ? value / burst : 1;
	return (uint64_t)(part * (double)mono_diff(end, time_of(from)));
}

/* The burst ended in this step: how long was it, and would a window over it have been above the threshold? */
static void note_burst(const struct evaluator *evaluator, const struct position *position,
		       const struct config_rule *rule, double threshold, struct judged_pair *pair)
{
	const struct judged_window *window = position->window;
	const uint64_t *end = observation_of(window, position->before), *begin = end, *edge = end;
	struct trigger_burst burst = { .end = time_of(end), .best = position->end.value };
	uint64_t window_ns = rule->window_ns;
	double value;

	for (uint64_t i = 1; i < window->known; i++) {
		const uint64_t *earlier = observation_of(window, position->before - i);

		edge = earlier;
		if (!value_between(evaluator, position, rule, earlier, begin, &value) || value <= threshold)
			break;
		begin = earlier;
	}
	if (begin == end || !value_between(evaluator, position, rule, begin, end, &burst.value))
		return;

	burst.length_ns = (uint64_t)mono_diff(time_of(end), time_of(begin)) +
			  part_of_step(evaluator, position, rule, end, NULL, burst.value);
	if (edge != begin)
		burst.length_ns += part_of_step(evaluator, position, rule, edge, begin, burst.value);
	else if (burst.length_ns < window_ns)
		burst.length_ns = window_ns; /* as far as is kept: what lies before the first step is less than one */
	burst.badly_placed = burst.value * (double)(burst.length_ns < window_ns ? burst.length_ns : window_ns) >
			     threshold * (double)window_ns;
	trigger_note_burst(trigger_of(position->target->rules, pair), &burst);
}

/*
 * A window below the threshold: is a part of it above? A part that is a tenth of it is not, unless the
 * whole has more than a tenth of the threshold. Metrics that are no rate have no parts.
 */
static void look_for_bursts(const struct evaluator *evaluator, const struct position *position,
			    const struct config_rule *rule, struct judged_pair *pair)
{
	bool is_rate = metric_counters(rule->metric) != 0 && rule->metric != METRIC_THROTTLED;
	bool was_bursting = pair->bursting;
	double threshold, value;

	pair->bursting = false;
	if (!is_rate || !position->end.available || position->window->known == 0)
		return;
	if (!was_bursting && position->end.value <= 0)
		return;
	if (!trigger_threshold(trigger_of(position->target->rules, pair), &rule->trigger, &threshold))
		return;
	if (!was_bursting && position->end.value * STEPS <= threshold)
		return;

	pair->bursting = value_between(evaluator, position, rule, observation_of(position->window, position->before),
				       NULL, &value) &&
			 value > threshold;
	if (was_bursting && !pair->bursting)
		note_burst(evaluator, position, rule, threshold, pair);
}

/* ---- judging: rules ---- */

static void tell_counted(const struct evaluator *evaluator, const struct config_rule *rule,
			 const struct trigger_decision *decision)
{
	struct trigger_decision counted = *decision;

	counted.reason = decision->counted_reason;
	if (decision->counted && evaluator->options.judged)
		evaluator->options.judged(evaluator->options.ctx, rule, &counted, 1);
}

/* Returns 0; -ENOMEM: nothing was judged. */
static int step(struct evaluator *evaluator, struct position *position, const struct config_rule *rule,
		struct judged_pair *pair, struct trigger_decision *ret)
{
	struct trigger_state *state = trigger_of(position->target->rules, pair);
	const struct trigger_memory before = *trigger_memory(state);
	int r = trigger_step(state, &rule->trigger, &position->end, ret);

	if (r < 0)
		return r;

	remember(evaluator, position->target, pair, rule, &before);
	tell_counted(evaluator, rule, ret);
	return 0;
}

static void judge(struct evaluator *evaluator, struct position *position, struct judged_pair *pair, struct tick *tick)
{
	const struct config_rule *rule = evaluator->plan.rules[pair->rule];
	struct trigger_state *state = trigger_of(position->target->rules, pair);
	bool asked = position->end.whole || position->changed || pair->bursting || trigger_is_waiting(state);
	struct trigger_decision decision = { .fires = false };
	bool wanted;

	if (metric_counters(rule->metric) & position->not_kept)
		return;
	if (!asked && !evaluator->options.every_window)
		return;

	position->end.available = metric_value(rule->metric, rule->of, &evaluator->options.machine, &evaluator->from,
					       &position->target->last, &position->end.value);
	wanted = asked && trigger_wants(state, &rule->trigger, &position->end);
	position->end.disk_ok = wanted && ask_disk_ok(evaluator, tick);
	if (wanted || position->end.whole) {
		int r = step(evaluator, position, rule, pair, &decision);

		if (r < 0 && tick->result == 0)
			tick->result = r;
		if (r < 0)
			return;
	} else if (evaluator->options.witness) {
		trigger_peek(state, &rule->trigger, &position->end, &decision);
	}

	if (decision.candidate)
		pair->bursting = false;
	else if (asked)
		look_for_bursts(evaluator, position, rule, pair);
	if (decision.fires || evaluator->options.witness)
		hand_out(evaluator, position, rule, &decision, tick);
}

/* from: where the window begins. At least half of it must lie between that and its end. */
static void judge_all(struct evaluator *evaluator, struct position *position, const uint64_t *from, struct tick *tick)
{
	struct judged_window *window = position->window;

	position->not_kept = get_observation(window, from, &evaluator->from);
	window->waits = false;
	for (size_t i = 0; i < window->count; i++) {
		struct judged_pair *pair = &position->target->rules->pairs[window->first + i];

		judge(evaluator, position, pair, tick);
		window->waits |= pair->bursting || trigger_is_waiting(trigger_of(position->target->rules, pair));
	}
}

/* ---- judging: windows ---- */

static bool is_long_enough(const struct position *position, const uint64_t *from)
{
	return mono_diff(position->target->last.time, time_of(from)) >= (int64_t)(position->end.window_ns / 2);
}

/* Most memory since the end of a step, which is one of the last STEPS before this tick. */
static uint64_t peak_since(const struct position *position, uint64_t step)
{
	const struct judged_window *window = position->window;
	uint64_t peak = window->peak_bytes;

	for (uint64_t i = step + 1; window->has_peak && i <= position->before; i++) {
		const uint64_t *observation = observation_of(window, i);

		if (peak < observation[window->words - 1])
			peak = observation[window->words - 1];
	}
	return peak;
}

/* Steps that have passed since the whole window under way began, up to `step`. */
static uint32_t since_base(const struct judged_window *window, uint64_t step)
{
	return (uint32_t)step - window->base;
}

/* Judges the whole window that has ended. False: it is too short, and stays open. */
static bool end_whole(struct evaluator *evaluator, struct position *position, struct tick *tick)
{
	uint32_t steps = since_base(position->window, position->before);

	if (!is_long_enough(position, base_of(position->window)))
		return false;

	position->end.apart = true;
	position->target->last.peak_bytes = peak_since(position, position->before - (steps < STEPS ? steps : STEPS));
	judge_all(evaluator, position, base_of(position->window), tick);
	return true;
}

/* Judges the window that has ended with a step. ended: its number. */
static void slide(struct evaluator *evaluator, struct position *position, uint64_t ended, struct tick *tick)
{
	const struct judged_window *window = position->window;
	const uint64_t *from = observation_of(window, ended);

	if (window->known + (ended - position->before) < STEPS || ended - position->before >= STEPS ||
	    !is_long_enough(position, from))
		return;

	position->end.apart = !window->based || (int32_t)(since_base(window, ended) - STEPS) >= 0;
	position->target->last.peak_bytes = peak_since(position, ended - STEPS);
	judge_all(evaluator, position, from, tick);
}

/* The target's last sample is its observation at the end of these steps. */
static void keep_observations(const struct judged_target *judged_target, struct judged_window *window, uint64_t before,
			      uint64_t ended)
{
	for (uint64_t i = ended - before < STEPS ? before + 1 : ended - STEPS + 1; i <= ended; i++)
		put_observation(window, observation_of(window, i), judged_target->last.time, judged_target->last.read,
				&judged_target->last.sample, window->peak_bytes);
	window->known = ended - before < STEPS - window->known ? (uint8_t)(window->known + (ended - before)) : STEPS;
	window->step = (uint32_t)ended;
	window->peak_bytes = peak_now(judged_target);
}

static void open_whole(const struct position *position, uint64_t ended)
{
	struct judged_window *window = position->window;

	window->based = true;
	window->base = (uint32_t)(ended / STEPS * STEPS);
	put_observation(window, base_of(window), position->target->last.time, position->target->last.read,
			&position->target->last.sample, 0);
}

static void open_window(const struct judged_target *judged_target, struct judged_window *window, uint64_t ended)
{
	window->open = true;
	window->based = false;
	window->waits = true; /* a rule may have been waiting before a gap */
	window->known = 0;
	window->touched = (uint32_t)(ended - 1);
	window->peak_bytes = peak_now(judged_target);
	keep_observations(judged_target, window, ended - 1, ended);
	window->known = 0;
}

/* Steps of one length have ended, for one target. True: a whole window was judged. */
static bool end_steps(struct evaluator *evaluator, struct position *position, const struct step_clock *steps,
		      struct tick *tick)
{
	struct judged_target *judged_target = position->target;
	struct judged_window *window = position->window;
	bool opens = !window->open;

	catch_up(judged_target, window, position->before, steps->edges_before, evaluator->idle_ns);
	judged_target->last.time = judged_target_seen_at(judged_target, tick->now, evaluator->idle_ns);
	judged_target->last.read = judged_target_read_at(judged_target, tick->now);
	if (opens)
		open_window(judged_target, window, steps->ended);

	bool judged = position->end.whole && window->based && end_whole(evaluator, position, tick);
	bool rebase = judged || (position->end.whole && !window->based);

	if (!opens && (!position->end.whole || !window->based)) {
		position->end.whole = false;
		slide(evaluator, position, steps->ended, tick);
	}
	if (rebase)
		open_whole(position, steps->ended);
	if (!opens)
		keep_observations(judged_target, window, position->before, steps->ended);
	return judged;
}

static bool target_waits(const struct judged_target *judged_target)
{
	const struct judged_rules *rules = judged_target->rules;

	for (size_t g = 0; g < rules->window_count; g++)
		if (rules->windows[g].count > 0 && (!rules->windows[g].open || rules->windows[g].waits))
			return true;
	return false;
}

/* Steps of the plan's length g have ended on the clock of this tick. */
static void end_steps_of_all(struct evaluator *evaluator, size_t g, uint64_t before, struct tick *tick)
{
	struct step_clock *steps = step_clock_of(&evaluator->writer_clocks, &evaluator->plan, evaluator->clock, g);
	uint64_t window_ns = evaluator->plan.lengths_ns[g];
	bool whole = steps->ended / STEPS != before / STEPS;
	/* The trigger's clock is the nominal end: `for` and cooldowns are whole numbers of steps, exactly. */
	mono_t now = end_of_step(whole ? steps->ended / STEPS * STEPS : steps->ended, window_ns);
	uint64_t late = (uint64_t)mono_diff(tick->now, now);

	if (whole)
		end_resting_windows(evaluator, g, steps, tick->now, now, (wall_t){ tick->wall.ns - late });
	for (size_t i = 0; i < evaluator->table.count; i++) {
		struct table_row *row = &evaluator->table.all[i];
		bool changed = row->sampled > steps->number;

		if (row->clock != evaluator->clock || (uint32_t)row->resting >> g & 1 ||
		    (!whole && !changed && !row->waits && !evaluator->options.every_window))
			continue;
		if (!row->target->seen || row->target->rules->windows[g].count == 0)
			continue;

		struct position position = {
			.target = row->target,
			.window = &row->target->rules->windows[g],
			.end = { .now = now,
				 .wall = { tick->wall.ns - late },
				 .window_ns = window_ns,
				 .step_ns = (steps->ended - before) * step_length(window_ns),
				 .whole = whole },
			.before = before,
			.changed = changed,
		};

		if (end_steps(evaluator, &position, steps, tick))
			try_rest(evaluator, row, g, tick->now);
		row->waits = target_waits(row->target);
	}
	steps->number = evaluator->number;
}

static int end_tick(struct evaluator *evaluator)
{
	mono_t now = evaluator->tick;
	struct tick tick = { .now = now, .wall = evaluator->wall, .disk_ok = true };
	uint64_t before;

	if (!writer_clocks_step(&evaluator->writer_clocks, &evaluator->plan, evaluator->clock, now))
		lose_targets_of_clock(evaluator);
	if (evaluator->writer_clocks.clocks[evaluator->clock].resting > 0)
		end_rest_of_shifted(evaluator, now);
	table_settle(&evaluator->table, evaluator->clock, now);

	for (size_t g = 0; g < evaluator->plan.length_count; g++)
		if (writer_clocks_end(&evaluator->writer_clocks, &evaluator->plan, evaluator->clock, g, &before))
			end_steps_of_all(evaluator, g, before, &tick);
	evaluator->number++;
	return tick.result;
}

mono_t evaluator_next_end(const struct evaluator *evaluator)
{
	const struct rule_plan *plan = &evaluator->plan;
	mono_t earliest = { UINT64_MAX };

	for (uint32_t clock = 0; clock < WRITER_CLOCKS_MAX; clock++)
		for (size_t g = 0; evaluator->writer_clocks.clocks[clock].started && g < plan->length_count; g++) {
			mono_t next = step_clock_of(&evaluator->writer_clocks, plan, clock, g)->next;

			earliest = next.ns < earliest.ns ? next : earliest;
		}
	return earliest;
}

int evaluator_event(struct evaluator *evaluator, const struct ring_event *event)
{
	if (event->type != RING_EVENT_LAPPED && event->type != RING_EVENT_DAMAGED)
		evaluator->clock = writer_clocks_of(event->writer);
	switch (event->type) {
	case RING_EVENT_TICK:
		note_pauses(evaluator, event->idle_ns);
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
		const struct target *target = &evaluator->table.all[i].target->target;
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
		struct table_row *row = &evaluator->table.all[i];

		if (!reload->fresh[i]) {
			table_remove(&evaluator->table, row->target);
			continue;
		}
		carry_target(&reload->carried_state, &evaluator->plan, row->target, &reload->plan, reload->fresh[i]);
		row->waits = target_waits(row->target);
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

	for (size_t i = 0; i < evaluator->table.count; i++)
		end_all_rest(evaluator, &evaluator->table.all[i]);
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

static int visit_pairs(const struct evaluator *evaluator, const struct judged_target *judged_target,
		       int (*visit)(void *ctx, const struct evaluator_status *status), void *ctx)
{
	int r = 0;

	take_in_all_missed(evaluator, judged_target);
	for (size_t k = 0; k < judged_target->rules->pair_count && r == 0; k++) {
		const struct judged_pair *pair = &judged_target->rules->pairs[k];
		const struct config_rule *rule = evaluator->plan.rules[pair->rule];
		const struct trigger_state *state = trigger_of(judged_target->rules, pair);
		struct trigger_decision decision;
		uint32_t reasons[TRIGGER_REASONS];

		trigger_reasons(state, reasons);
		r = visit(ctx, &(struct evaluator_status){
				       .rule = rule,
				       .target = &judged_target->target,
				       .decision = trigger_last(state, &rule->trigger, &decision) ? &decision : NULL,
				       .memory = trigger_memory(state),
				       .reasons = reasons,
				       .burst = trigger_last_burst(state),
				       .sample = judged_target->seen ? &judged_target->last.sample : NULL,
			       });
	}
	return r;
}

int evaluator_visit_one(const struct evaluator *evaluator, uint32_t id,
			int (*visit)(void *ctx, const struct evaluator_status *status), void *ctx)
{
	const struct judged_target *judged_target = table_find(&evaluator->table, id);

	return judged_target ? visit_pairs(evaluator, judged_target, visit, ctx) : 0;
}

int evaluator_visit(const struct evaluator *evaluator, int (*visit)(void *ctx, const struct evaluator_status *status),
		    void *ctx)
{
	int r = 0;

	for (size_t i = 0; i < evaluator->table.count && r == 0; i++)
		r = visit_pairs(evaluator, evaluator->table.all[i].target, visit, ctx);
	return r;
}

int evaluator_visit_targets(const struct evaluator *evaluator,
			    int (*visit)(void *ctx, const struct evaluator_sight *sight), void *ctx)
{
	for (size_t i = 0; i < evaluator->table.count; i++) {
		const struct judged_target *judged_target = evaluator->table.all[i].target;
		const struct sample *sample = judged_target->seen ? &judged_target->last.sample : NULL;
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
