/*
 * evaluator.c: targets come and go, windows end, rules step.
 *
 * A tick costs one division per window length; work is done only for lengths of which a window has ended, and only for targets
 * that a rule of that length looks at. A sample costs a look-up and a copy. What a target looks like "as of" a tick
 * is watch.c's business.
 *
 * A window must have some length: when less than half of it lies between its two observations (the sampler stalled almost
 * up to its end, or a cgroup was not read again) it stays open and ends with the next one. Otherwise the grain of CPU
 * counters would look like a spike.
 *
 * The memo is written when a memory differs from what was last put there, right after the step, before the firing is
 * handed out: a crash during the incident does not forget the cooldown.
 *
 * A reload makes every target that stays once more, for the new rules, and only then lets them take over what is known (heritage.c).
 * One number for each entry tells targets of a changed entry, described once more by the ring, from those of the new one.
 *
 * Rejected: windows sliding with every tick: a hundred evaluations where one answers the question, and histories that
 * overlap themselves.
 */
#include "lib/evaluator/evaluator.h"

#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/rule_state.h"
#include "lib/model/pacing.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* {0} is empty and legal. Read watches [0, count); the rest is this module's. */
struct watchtable {
	struct watch **watches;
	size_t count;
	struct watch **buckets;
	size_t capacity; /* of both: 0 or a power of two */
	struct watch *touched;
};

#define HERITAGE_NONE ((size_t)-1)

/* One rule of the next configuration. */
struct heritage_rule {
	size_t old; /* the one of its name in the old configuration, or HERITAGE_NONE */
	bool same;  /* and they judge alike */
};

struct heritage {
	const struct config *old, *next;
	struct heritage_rule *rules; /* for each rule of next */
	size_t *lengths;             /* for each length of next's plan its place in the old plan, or HERITAGE_NONE */
	struct watch_pair **pairs;   /* of the target that is being looked at, for each rule of old; else NULL */
};

/* timelines.c: a row of counters for each line. */

static uint64_t *ended_at(const struct timelines *timelines, const struct watch_plan *plan, uint32_t line, size_t g)
{
	return &timelines->ended[line * plan->length_count + g];
}

int timelines_init(struct timelines *timelines, const struct watch_plan *plan)
{
	uint64_t *ended = calloc(TIMELINES_MAX * plan->length_count + 1, sizeof(*ended));

	if (!ended)
		return -ENOMEM;

	*timelines = (struct timelines){ .ended = ended };
	return 0;
}

void timelines_release(struct timelines *timelines)
{
	free(timelines->ended);
	*timelines = (struct timelines){ 0 };
}

bool timelines_step(struct timelines *timelines, const struct watch_plan *plan, uint32_t line, mono_t now)
{
	struct timeline *at = &timelines->lines[line];
	bool back = at->started && mono_diff(now, at->now) < 0;

	if (!at->started || back)
		for (size_t g = 0; g < plan->length_count; g++)
			*ended_at(timelines, plan, line, g) = (now.ns - 1) / plan->lengths_ns[g];
	*at = (struct timeline){ true, now };
	return !back;
}

bool timelines_end(struct timelines *timelines, const struct watch_plan *plan, uint32_t line, size_t g)
{
	uint64_t *ended = ended_at(timelines, plan, line, g);
	uint64_t before = *ended;

	*ended = timelines->lines[line].now.ns / plan->lengths_ns[g];
	return *ended != before;
}

void timelines_inherit(struct timelines *next, const struct watch_plan *next_plan, const struct timelines *old,
		       const struct watch_plan *plan, const size_t *lengths)
{
	for (uint32_t line = 0; line < TIMELINES_MAX; line++) {
		next->lines[line] = old->lines[line];
		for (size_t g = 0; g < next_plan->length_count; g++)
			*ended_at(next, next_plan, line, g) =
				lengths[g] != SIZE_MAX ? *ended_at(old, plan, line, lengths[g])
						       : old->lines[line].now.ns / next_plan->lengths_ns[g];
	}
}

/*
 * watch.c: a target, its windows, its triggers.
 *
 * When was a target seen? A tick without a record of it means that it looked as before, so the observation moves on with
 * the ticks: tick time + the offset of its last record from its tick (the sampler visits targets in the same order
 * every time). A process that wakes up after a minute has therefore used its CPU time since it was last looked at, not within that
 * minute.
 *
 * When was that? What is idle is not looked at in every tick (idlepace.h), so the observation stays behind the tick by as much as
 * follows from how long the target has stood still. A window may begin that much before its edge, and then holds all that can have been used
 * since: it never shows more than was possible. When the target wakes, a record says when it was last looked at as it was
 * before: then the window begins there, or at its edge.
 *
 * cgroups are different: they are read at an interval of their own, and a tick in between says nothing. Theirs moves
 * on in steps of that interval, half an interval late, so that a read which slips by a tick is not taken for an idle one.
 *
 * Pairs are in the order of the plan, by window length: those of a window are neighbours.
 */

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

int watch_plan_init(struct watch_plan *plan, const struct config *config)
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

	*plan = (struct watch_plan){ TAKE(rules), config->rule_count, TAKE(lengths), length_count };
	return 0;
}

void watch_plan_release(struct watch_plan *plan)
{
	free(plan->rules);
	free(plan->lengths_ns);
	*plan = (struct watch_plan){ 0 };
}

void watch_free(struct watch *watch)
{
	if (!watch)
		return;

	for (size_t i = 0; i < watch->pair_count; i++)
		trigger_state_free(watch->pairs[i].state);
	free(watch->pairs);
	free(watch->windows);
	free(watch->strings);
	free(watch);
}

static void release_watch(struct watch **watch)
{
	watch_free(*watch);
}

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

static int add_pair(struct watch *watch, const struct config_rule *rule, const struct memo *memo)
{
	struct watch_pair *pair = &watch->pairs[watch->pair_count];
	struct trigger_memory memory;
	int r = trigger_state_new(&rule->trigger, &pair->state);

	if (r < 0)
		return r;

	watch->pair_count++;
	pair->rule = rule;
	if (memo_get(memo, rule->name, watch->target.key, &memory))
		trigger_restore(pair->state, &memory);
	return 0;
}

static size_t count_rules(const struct watch_plan *plan, const struct target *target)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->rule_count; i++)
		count += rule_applies(plan->rules[i], target);
	return count;
}

/* Pairs the watch with its rules; their order, by window length, makes those of a window neighbours. */
static int add_pairs(struct watch *watch, const struct watch_plan *plan, const struct memo *memo)
{
	size_t g = 0;

	for (size_t i = 0; i < plan->rule_count; i++) {
		const struct config_rule *rule = plan->rules[i];
		int r;

		if (!rule_applies(rule, &watch->target))
			continue;
		while (plan->lengths_ns[g] != rule->window_ns)
			g++;
		if (watch->windows[g].count++ == 0)
			watch->windows[g].first = watch->pair_count;

		r = add_pair(watch, rule, memo);
		if (r < 0)
			return r;
	}
	return 0;
}

int watch_new(const struct watch_plan *plan, const struct target *target, uint64_t read_ns, const struct memo *memo,
	      struct watch **ret)
{
	AUTO(release_watch) struct watch *watch = calloc(1, sizeof(*watch));
	int r;

	if (!watch)
		return -ENOMEM;

	watch->read_ns = read_ns;
	r = copy_target(target, &watch->target, &watch->strings);
	if (r < 0)
		return r;
	size_t rules = count_rules(plan, &watch->target);

	watch->windows = calloc(plan->length_count ? plan->length_count : 1, sizeof(*watch->windows));
	watch->pairs = calloc(rules ? rules : 1, sizeof(*watch->pairs));
	if (!watch->windows || !watch->pairs)
		return -ENOMEM;
	watch->window_count = plan->length_count;

	r = add_pairs(watch, plan, memo);
	if (r < 0)
		return r;

	*ret = TAKE(watch);
	return 0;
}

static bool same_names(const struct target *a, const struct target *b)
{
	return strcmp(a->name, b->name) == 0 && strcmp(a->comm, b->comm) == 0 && strcmp(a->cmdline, b->cmdline) == 0 &&
	       strcmp(a->cgroup, b->cgroup) == 0 &&
	       strcmp(a->container ? a->container : "", b->container ? b->container : "") == 0;
}

/* The same target under other names. 0 or -ENOMEM: it keeps the old ones. */
static int watch_rename(struct watch *watch, const struct target *target)
{
	struct target copy;
	char *strings;
	int r;

	if (same_names(&watch->target, target))
		return 0;

	r = copy_target(target, &copy, &strings);
	if (r < 0)
		return r;

	free(watch->strings);
	watch->strings = strings;
	watch->target = copy;
	return 0;
}

/* It was as it is now at `at`: no window can know it to have been so later. */
static void hold_back(struct watch *watch, mono_t at)
{
	for (size_t i = 0; i < watch->window_count; i++) {
		struct watch_window *window = &watch->windows[i];

		if (window->untouched && mono_diff(window->from.time, at) > 0)
			window->from.time = at;
	}
}

/* It has changed since `at`: until then it was as it was when the windows began. */
static void move_up(struct watch *watch, mono_t at)
{
	for (size_t i = 0; i < watch->window_count; i++) {
		struct watch_window *window = &watch->windows[i];
		mono_t from = mono_diff(at, window->edge) < 0 ? at : window->edge;

		if (window->untouched && mono_diff(from, window->from.time) > 0)
			window->from.time = from;
		window->untouched = false;
	}
}

static void note_change(struct watch *watch, mono_t at, const struct sample *sample)
{
	bool same = watch->seen && watch->sample.mask == sample->mask && sample_difference(&watch->sample, sample) == 0;

	if (!watch->seen)
		watch->since_known = false;
	else if (!same)
		watch->since_known = true;
	if (!same)
		watch->since = at;
	if (!watch->seen || watch->read_ns > 0)
		return;
	if (same)
		hold_back(watch, at);
	else
		move_up(watch, watch->at);
}

/* A look at the target at `at`. */
static void watch_see(struct watch *watch, mono_t at, const struct sample *sample)
{
	note_change(watch, at, sample);

	uint64_t peak = metric_peak(watch->seen ? &watch->sample : sample, sample);

	for (size_t i = 0; i < watch->window_count; i++)
		if (watch->windows[i].peak_bytes < peak)
			watch->windows[i].peak_bytes = peak;

	watch->sample = *sample;
	watch->at = at;
	watch->seen = true;
}

/* When it would have been seen if it was looked at in that tick. */
static mono_t seen_in(const struct watch *watch, mono_t now)
{
	return (mono_t){ now.ns + (uint64_t)watch->offset_ns };
}

/*
 * When it was last seen by the end of tick now, changed or not, as far as that is certain. idle_ns: the longest pause between two looks at a
 * process, as of that tick. Only if watch->seen.
 */
/* Sums are made in every tick, and windows end when they are exact (source.h). */
static mono_t watch_seen_at(const struct watch *watch, mono_t now, uint64_t idle_ns)
{
	int64_t age = mono_diff(now, watch->at) - (int64_t)(watch->read_ns / 2);
	mono_t here = seen_in(watch, now);

	if (watch->read_ns == 0 && watch->target.kind == TARGET_PROCESS && idle_ns > 0)
		return idlepace_seen_at(watch->at, watch->since_known ? &watch->since : NULL, here, idle_ns);
	if (watch->read_ns == 0)
		return here;
	if (age < 0)
		return watch->at;
	return mono_add(watch->at, (uint64_t)age / watch->read_ns * watch->read_ns);
}

/* Opens one of its windows at the end of tick now: that it looks as it does is known as of *from. */
static void watch_open(const struct watch *watch, struct watch_window *window, const struct metric_point *from, mono_t now)
{
	window->open = true;
	window->untouched = true;
	window->edge = seen_in(watch, now);
	window->from = *from;
	window->peak_bytes = metric_peak(&watch->sample, &watch->sample);
}

/* Forgets what it looks like: windows that are open are dropped, and it is unseen until the next look. */
static void watch_lose(struct watch *watch)
{
	watch->seen = false;
	for (size_t i = 0; i < watch->window_count; i++)
		watch->windows[i].open = false;
}

/*
 * watchtable.c: a hash table that chains watches through themselves. Ids are given in order, so their low bits spread
 * them perfectly: a bucket holds one or two.
 */

#define WATCHES_MIN 64

/* A tick is over within this. A sampler that was stopped in the middle of one (SIGSTOP) would else shift its targets by as long. */
#define OFFSET_MAX_NS ((int64_t)(100 * NS_PER_MS))

static struct watch **bucket_of(const struct watchtable *table, uint32_t id)
{
	return &table->buckets[id & (table->capacity - 1)];
}

/* NULL: there is none. */
static struct watch *watchtable_find(const struct watchtable *table, uint32_t id)
{
	struct watch *watch = table->capacity ? *bucket_of(table, id) : NULL;

	while (watch && watch->target.id != id)
		watch = watch->chain;
	return watch;
}

static void bucket_add(struct watchtable *table, struct watch *watch)
{
	struct watch **bucket = bucket_of(table, watch->target.id);

	watch->chain = *bucket;
	*bucket = watch;
}

/* Makes room for one more. 0 or -ENOMEM. */
static int watchtable_reserve(struct watchtable *table)
{
	size_t capacity = table->capacity ? table->capacity * 2 : WATCHES_MIN;
	AUTO_FREE struct watch **watches = NULL;
	AUTO_FREE struct watch **buckets = NULL;
	AUTO_FREE struct watch **old_watches = NULL;
	AUTO_FREE struct watch **old_buckets = NULL;

	if (table->count < table->capacity)
		return 0;

	watches = calloc(capacity, sizeof(*watches));
	buckets = calloc(capacity, sizeof(*buckets));
	if (!watches || !buckets)
		return -ENOMEM;

	old_watches = table->watches;
	old_buckets = table->buckets;
	table->watches = TAKE(watches);
	table->buckets = TAKE(buckets);
	table->capacity = capacity;
	for (size_t i = 0; i < table->count; i++) {
		table->watches[i] = old_watches[i];
		bucket_add(table, old_watches[i]);
	}
	return 0;
}

/* Takes watch, for which there must be room, and whose id must be new. */
static void watchtable_add(struct watchtable *table, struct watch *watch)
{
	watch->index = table->count;
	table->watches[table->count++] = watch;
	bucket_add(table, watch);
}

static void untouch(struct watchtable *table, struct watch *watch)
{
	struct watch **link = &table->touched;

	if (!watch->is_touched)
		return;

	while (*link != watch)
		link = &(*link)->touched;
	*link = watch->touched;
}

/* Frees watch; the last one in the row takes its place. */
static void watchtable_remove(struct watchtable *table, struct watch *watch)
{
	struct watch **link = bucket_of(table, watch->target.id);
	struct watch *last = table->watches[--table->count];

	while (*link != watch)
		link = &(*link)->chain;
	*link = watch->chain;

	untouch(table, watch);
	last->index = watch->index;
	table->watches[watch->index] = last;
	watch_free(watch);
}

/* It was sampled. */
static void watchtable_touch(struct watchtable *table, struct watch *watch)
{
	if (watch->is_touched)
		return;

	watch->is_touched = true;
	watch->touched = table->touched;
	table->touched = watch;
}

static int64_t bounded(int64_t offset_ns)
{
	if (offset_ns > OFFSET_MAX_NS)
		return OFFSET_MAX_NS;

	return offset_ns < -OFFSET_MAX_NS ? -OFFSET_MAX_NS : offset_ns;
}

/* The tick of this line that the samples since the last call came with is over: its time is known now, and how far from it they were. */
static void watchtable_settle(struct watchtable *table, uint32_t line, mono_t now)
{
	for (struct watch **link = &table->touched; *link;) {
		struct watch *watch = *link;

		if (watch->line != line) {
			link = &watch->touched;
			continue;
		}
		*link = watch->touched;
		watch->offset_ns = bounded(mono_diff(watch->at, now));
		watch->is_touched = false;
	}
}

/* Whatever was sampled since the last tick came with none. */
static void watchtable_forget(struct watchtable *table)
{
	for (struct watch *watch = table->touched; watch; watch = watch->touched)
		watch->is_touched = false;
	table->touched = NULL;
}

/* Frees the table and every watch in it. */
static void watchtable_release(struct watchtable *table)
{
	for (size_t i = 0; i < table->count; i++)
		watch_free(table->watches[i]);
	free(table->watches);
	free(table->buckets);
	*table = (struct watchtable){ 0 };
}

/*
 * heritage.c: a target under the next configuration is made like any other, with fresh triggers for all its rules; then what is
 * worth keeping is swapped in. So all that can fail has happened before anything is touched, and what is left over is
 * freed like any target.
 *
 * Invariant: a window that no rule looks at is not open. One that was left open by a rule that went away would be as long, when the
 * rule is back, as that is ago.
 */

static size_t find_rule(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->rule_count; i++)
		if (strcmp(config->rules[i].name, name) == 0)
			return i;
	return HERITAGE_NONE;
}

static size_t find_length(const struct watch_plan *plan, uint64_t length_ns)
{
	for (size_t i = 0; i < plan->length_count; i++)
		if (plan->lengths_ns[i] == length_ns)
			return i;
	return HERITAGE_NONE;
}

/* 0 or -ENOMEM. Configurations must outlive it, plans need not. Costs rules x rules comparisons of names. */
static int heritage_init(struct heritage *heritage, const struct config *old, const struct watch_plan *old_plan,
		  const struct config *next, const struct watch_plan *next_plan)
{
	AUTO_FREE struct heritage_rule *rules = calloc(next->rule_count + 1, sizeof(*rules));
	AUTO_FREE size_t *lengths = calloc(next_plan->length_count + 1, sizeof(*lengths));
	AUTO_FREE struct watch_pair **pairs = calloc(old->rule_count + 1, sizeof(struct watch_pair *));

	if (!rules || !lengths || !pairs)
		return -ENOMEM;

	for (size_t i = 0; i < next->rule_count; i++) {
		rules[i].old = find_rule(old, next->rules[i].name);
		rules[i].same =
			rules[i].old != HERITAGE_NONE && config_rule_same(&old->rules[rules[i].old], &next->rules[i]);
	}
	for (size_t g = 0; g < next_plan->length_count; g++)
		lengths[g] = find_length(old_plan, next_plan->lengths_ns[g]);

	*heritage = (struct heritage){ old, next, TAKE(rules), TAKE(lengths), TAKE(pairs) };
	return 0;
}

/* Frees what init took; also of one that is {0}. */
static void heritage_release(struct heritage *heritage)
{
	free(heritage->rules);
	free(heritage->lengths);
	free(heritage->pairs);
	*heritage = (struct heritage){ 0 };
}

/* ---- one target ---- */

static void pass_pair(struct watch_pair *from, struct watch_pair *to, bool same)
{
	struct trigger_state *state = to->state;

	if (!same) {
		/* What it has by now is what the memo had. */
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

static void pass_pairs(struct heritage *heritage, struct watch *watch, struct watch *fresh)
{
	for (size_t i = 0; i < watch->pair_count; i++)
		heritage->pairs[watch->pairs[i].rule - heritage->old->rules] = &watch->pairs[i];

	for (size_t i = 0; i < fresh->pair_count; i++) {
		const struct heritage_rule *rule = &heritage->rules[fresh->pairs[i].rule - heritage->next->rules];
		struct watch_pair *from = rule->old != HERITAGE_NONE ? heritage->pairs[rule->old] : NULL;

		if (from)
			pass_pair(from, &fresh->pairs[i], rule->same);
	}

	for (size_t i = 0; i < watch->pair_count; i++)
		heritage->pairs[watch->pairs[i].rule - heritage->old->rules] = NULL;
}

static void pass_windows(const struct heritage *heritage, const struct watch *watch, struct watch *fresh)
{
	for (size_t g = 0; g < fresh->window_count; g++) {
		size_t old = heritage->lengths[g];
		struct watch_window *to = &fresh->windows[g];

		if (old == HERITAGE_NONE || to->count == 0)
			continue;
		to->open = watch->windows[old].open;
		to->untouched = watch->windows[old].untouched;
		to->edge = watch->windows[old].edge;
		to->from = watch->windows[old].from;
		to->peak_bytes = watch->windows[old].peak_bytes;
	}
}

/*
 * Makes watch, which was made with the old plan, into what it is under the next one. fresh: the same target, just made with the next
 * plan; what watch has no more use for is in it afterwards, to be freed. Rules that judge as before keep their whole state;
 * one that does not begins anew with the cooldown, the count and the mark it had. Windows that are open stay so if rules of their length look
 * at the target before and after. Never fails.
 */
static void heritage_pass(struct heritage *heritage, struct watch *watch, struct watch *fresh)
{
	struct watch old = *watch;

	pass_pairs(heritage, watch, fresh);
	pass_windows(heritage, watch, fresh);

	watch->read_ns = fresh->read_ns;
	watch->windows = fresh->windows;
	watch->window_count = fresh->window_count;
	watch->pairs = fresh->pairs;
	watch->pair_count = fresh->pair_count;

	fresh->windows = old.windows;
	fresh->window_count = old.window_count;
	fresh->pairs = old.pairs;
	fresh->pair_count = old.pair_count;
}

struct evaluator {
	struct evaluator_options options;
	/* By target entry: older targets of this name were those of another selection. NULL: never reloaded, whatever comes is taken. */
	uint64_t *first_ids;
	uint32_t newest_id;    /* of all targets that ever came by */
	struct memo *own_memo; /* if none was handed in */
	struct watch_plan plan;
	struct timelines timelines;
	struct watchtable table;
	uint32_t line;    /* of the writer whose observations come */
	uint64_t idle_ns; /* as of the next tick */
	uint64_t evaluations;
};

/* One evaluator_tick. */
struct tick {
	mono_t now;
	wall_t wall;
	bool asked, disk_ok;
	int result;
};

/* ---- watched targets ---- */

/* The place of an entry in a configuration; target_count: it has none of this name. */
static size_t entry_of(const struct config *config, const char *name)
{
	size_t i = 0;

	while (i < config->target_count && strcmp(config->targets[i].name, name) != 0)
		i++;
	return i;
}

/* Whether the configuration in force selected this target, and not one before. */
static bool is_current(const struct evaluator *evaluator, const struct target *target)
{
	const struct config *config = evaluator->options.config;
	size_t i;

	if (!evaluator->first_ids)
		return true;
	i = entry_of(config, target->entry);
	return i < config->target_count && target->id >= evaluator->first_ids[i];
}

static int make_watch(const struct evaluator *evaluator, const struct config *config, const struct watch_plan *plan,
		      const struct target *target, struct watch **ret)
{
	uint64_t read_ns = target->kind == TARGET_CGROUP ? config->sampling.cgroup_interval_ns : 0;

	int r = watch_new(plan, target, read_ns, evaluator->options.memo, ret);

	if (r == 0)
		(*ret)->line = evaluator->line;
	return r;
}

int evaluator_target(struct evaluator *evaluator, const struct target *target)
{
	struct watch *watch = watchtable_find(&evaluator->table, target->id);

	if (watch)
		return watch_rename(watch, target);
	if (evaluator->newest_id < target->id)
		evaluator->newest_id = target->id;
	if (!is_current(evaluator, target))
		return 0;

	int r = watchtable_reserve(&evaluator->table);
	if (r < 0)
		return r;
	r = make_watch(evaluator, evaluator->options.config, &evaluator->plan, target, &watch);
	if (r < 0)
		return r;
	watchtable_add(&evaluator->table, watch);
	return 0;
}

void evaluator_writer(struct evaluator *evaluator, uint32_t writer)
{
	evaluator->line = timelines_of(writer);
}

void evaluator_gone(struct evaluator *evaluator, uint32_t id)
{
	struct watch *watch = watchtable_find(&evaluator->table, id);

	if (watch)
		watchtable_remove(&evaluator->table, watch);
}

/* ---- observations ---- */

void evaluator_sample(struct evaluator *evaluator, uint32_t id, mono_t at, const struct sample *sample)
{
	struct watch *watch = watchtable_find(&evaluator->table, id);

	if (!watch)
		return;

	watch->line = evaluator->line;
	watch_see(watch, at, sample);
	watchtable_touch(&evaluator->table, watch);
}

void evaluator_gap(struct evaluator *evaluator)
{
	for (size_t i = 0; i < evaluator->table.count; i++)
		watch_lose(evaluator->table.watches[i]);
	watchtable_forget(&evaluator->table);
}

/* Forgets what the targets of one writer look like. */
static void lose_line(struct evaluator *evaluator)
{
	for (size_t i = 0; i < evaluator->table.count; i++)
		if (evaluator->table.watches[i]->line == evaluator->line)
			watch_lose(evaluator->table.watches[i]);
}

/* ---- judging ---- */

static bool disk_ok(const struct evaluator *evaluator, struct tick *tick)
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

static void hand_out(struct evaluator *evaluator, const struct watch *watch, const struct watch_pair *pair,
		     const struct watch_window *window, const struct metric_point *to, struct tick *tick)
{
	struct evaluator_firing firing = {
		.rule = pair->rule,
		.target = &watch->target,
		.from = window->from.time,
		.to = to->time,
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

/* before: what there was to be remembered. What could not be put for want of memory is put after the next step. */
static void remember(struct evaluator *evaluator, const struct watch *watch, struct watch_pair *pair,
		     const struct trigger_memory *before)
{
	const struct trigger_memory *memory = trigger_memory(pair->state);

	if (!pair->owed && trigger_memory_equal(memory, before))
		return;
	pair->owed = memo_put(evaluator->options.memo, pair->rule->name, watch->target.key, memory) < 0;
}

/* The trigger's clock is the nominal end of the window: `for` and cooldowns are whole numbers of windows, exactly. */
static void judge(struct evaluator *evaluator, const struct watch *watch, struct watch_pair *pair,
		  const struct watch_window *window, const struct metric_point *to, struct tick *tick)
{
	const struct config_rule *rule = pair->rule;
	uint64_t late = tick->now.ns % rule->window_ns;
	const struct trigger_memory before = *trigger_memory(pair->state);
	double value = 0;
	bool available = metric_value(rule->metric, rule->of, &evaluator->options.machine, &window->from, to, &value);

	trigger_step(pair->state, &rule->trigger, (mono_t){ tick->now.ns - late }, (wall_t){ tick->wall.ns - late },
		     available, value, disk_ok(evaluator, tick), &pair->decision);
	pair->judged = true;
	evaluator->evaluations++;
	remember(evaluator, watch, pair, &before);
	if (evaluator->options.judged)
		evaluator->options.judged(evaluator->options.ctx, pair->rule, &pair->decision);
	if (pair->decision.fires || evaluator->options.witness)
		hand_out(evaluator, watch, pair, window, to, tick);
}

static void end_window(struct evaluator *evaluator, struct watch *watch, struct watch_window *window,
		       uint64_t window_ns, struct tick *tick)
{
	struct metric_point to = { watch_seen_at(watch, tick->now, evaluator->idle_ns), watch->sample,
				   window->peak_bytes };

	if (window->open && mono_diff(to.time, window->from.time) < (int64_t)(window_ns / 2))
		return;

	for (size_t i = 0; window->open && i < window->count; i++)
		judge(evaluator, watch, &watch->pairs[window->first + i], window, &to, tick);

	watch_open(watch, window, &to, tick->now);
}

static void end_windows(struct evaluator *evaluator, size_t g, struct tick *tick)
{
	for (size_t i = 0; i < evaluator->table.count; i++) {
		struct watch *watch = evaluator->table.watches[i];

		if (watch->seen && watch->line == evaluator->line && watch->windows[g].count > 0)
			end_window(evaluator, watch, &watch->windows[g], evaluator->plan.lengths_ns[g], tick);
	}
}

void evaluator_idle(struct evaluator *evaluator, uint64_t idle_ns)
{
	evaluator->idle_ns = idle_ns;
}

int evaluator_tick(struct evaluator *evaluator, mono_t now, wall_t wall)
{
	struct tick tick = { .now = now, .wall = wall, .disk_ok = true };

	if (!timelines_step(&evaluator->timelines, &evaluator->plan, evaluator->line, now))
		lose_line(evaluator);
	watchtable_settle(&evaluator->table, evaluator->line, now);

	for (size_t g = 0; g < evaluator->plan.length_count; g++)
		if (timelines_end(&evaluator->timelines, &evaluator->plan, evaluator->line, g))
			end_windows(evaluator, g, &tick);
	return tick.result;
}

/* ---- another configuration ---- */

/* All that the evaluator will be made of, and what it was made of afterwards. */
struct evaluator_reload {
	struct evaluator *evaluator;
	const struct config *config;
	struct watch_plan plan;
	struct timelines timelines;
	uint64_t *first_ids;
	struct heritage heritage;
	struct watch **fresh; /* for each watch; NULL: it does not stay */
	size_t fresh_count;
};

void evaluator_reload_drop(struct evaluator_reload *reload)
{
	if (!reload)
		return;

	for (size_t i = 0; reload->fresh && i < reload->fresh_count; i++)
		watch_free(reload->fresh[i]);
	free(reload->fresh);
	heritage_release(&reload->heritage);
	free(reload->first_ids);
	timelines_release(&reload->timelines);
	watch_plan_release(&reload->plan);
	free(reload);
}

static void drop(struct evaluator_reload **reload)
{
	evaluator_reload_drop(*reload);
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

static int prepare_watches(const struct evaluator *evaluator, struct evaluator_reload *reload)
{
	for (size_t i = 0; i < evaluator->table.count; i++) {
		const struct target *target = &evaluator->table.watches[i]->target;
		size_t at = entry_of(reload->config, target->entry);
		int r;

		reload->fresh_count = i + 1;
		if (at == reload->config->target_count || target->id < reload->first_ids[at])
			continue;
		r = make_watch(evaluator, reload->config, &reload->plan, target, &reload->fresh[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int prepare(const struct evaluator *evaluator, struct evaluator_reload *reload)
{
	int r = watch_plan_init(&reload->plan, reload->config);

	if (r < 0)
		return r;
	r = heritage_init(&reload->heritage, evaluator->options.config, &evaluator->plan, reload->config,
			  &reload->plan);
	if (r < 0)
		return r;
	r = timelines_init(&reload->timelines, &reload->plan);
	if (r < 0)
		return r;
	reload->first_ids = calloc(reload->config->target_count + 1, sizeof(*reload->first_ids));
	reload->fresh = calloc(evaluator->table.count + 1, sizeof(struct watch *));
	if (!reload->first_ids || !reload->fresh)
		return -ENOMEM;

	timelines_inherit(&reload->timelines, &reload->plan, &evaluator->timelines, &evaluator->plan,
			  reload->heritage.lengths);
	prepare_entries(evaluator, reload);
	return prepare_watches(evaluator, reload);
}

/* From the last one on: what watchtable_remove puts into the gap has had its turn. */
static void pass_watches(struct evaluator *evaluator, struct evaluator_reload *reload)
{
	for (size_t i = evaluator->table.count; i-- > 0;) {
		if (reload->fresh[i])
			heritage_pass(&reload->heritage, evaluator->table.watches[i], reload->fresh[i]);
		else
			watchtable_remove(&evaluator->table, evaluator->table.watches[i]);
	}
}

int evaluator_reload_prepare(struct evaluator *evaluator, const struct config *config, struct evaluator_reload **ret)
{
	AUTO(drop) struct evaluator_reload *reload = calloc(1, sizeof(*reload));
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

/* What the evaluator was made of until now goes with the reload. */
void evaluator_reload_commit(struct evaluator_reload *reload)
{
	struct evaluator *evaluator = reload->evaluator;
	struct watch_plan plan = evaluator->plan;
	struct timelines timelines = evaluator->timelines;
	uint64_t *first_ids = evaluator->first_ids;

	pass_watches(evaluator, reload);
	evaluator->options.config = reload->config;
	evaluator->plan = reload->plan;
	evaluator->timelines = reload->timelines;
	evaluator->first_ids = reload->first_ids;
	reload->plan = plan;
	reload->timelines = timelines;
	reload->first_ids = first_ids;
	evaluator_reload_drop(reload);
}

/* ---- the whole ---- */

int evaluator_visit_one(const struct evaluator *evaluator, uint32_t id,
			int (*visit)(void *ctx, const struct evaluator_status *status), void *ctx)
{
	const struct watch *watch = watchtable_find(&evaluator->table, id);
	int r = 0;

	for (size_t k = 0; watch && k < watch->pair_count && r == 0; k++) {
		const struct watch_pair *pair = &watch->pairs[k];
		struct evaluator_status status = {
			.rule = pair->rule,
			.target = &watch->target,
			.decision = pair->judged ? &pair->decision : NULL,
			.memory = trigger_memory(pair->state),
			.reasons = trigger_reasons(pair->state),
		};

		r = visit(ctx, &status);
	}
	return r;
}

int evaluator_visit(const struct evaluator *evaluator, int (*visit)(void *ctx, const struct evaluator_status *status),
		    void *ctx)
{
	int r = 0;

	for (size_t i = 0; i < evaluator->table.count && r == 0; i++)
		r = evaluator_visit_one(evaluator, evaluator->table.watches[i]->target.id, visit, ctx);
	return r;
}

int evaluator_visit_targets(const struct evaluator *evaluator,
			    int (*visit)(void *ctx, const struct evaluator_sight *sight), void *ctx)
{
	for (size_t i = 0; i < evaluator->table.count; i++) {
		const struct watch *watch = evaluator->table.watches[i];
		const struct sample *sample = watch->seen ? &watch->sample : NULL;
		struct evaluator_sight sight = { &watch->target, watch->seen, watch->at, sample };
		int r = visit(ctx, &sight);

		if (r != 0)
			return r;
	}
	return 0;
}

uint64_t evaluator_evaluations(const struct evaluator *evaluator)
{
	return evaluator->evaluations;
}

static void release_evaluator(struct evaluator **evaluator)
{
	evaluator_free(*evaluator);
}

int evaluator_new(const struct evaluator_options *options, struct evaluator **ret)
{
	AUTO(release_evaluator) struct evaluator *evaluator = calloc(1, sizeof(*evaluator));
	int r;

	if (!evaluator)
		return -ENOMEM;

	evaluator->options = *options;
	r = watch_plan_init(&evaluator->plan, options->config);
	if (r < 0)
		return r;
	r = timelines_init(&evaluator->timelines, &evaluator->plan);
	if (r < 0)
		return r;
	if (!options->memo) {
		r = memo_new("", &evaluator->own_memo);
		if (r < 0)
			return r;
		evaluator->options.memo = evaluator->own_memo;
	}

	*ret = TAKE(evaluator);
	return 0;
}

void evaluator_free(struct evaluator *evaluator)
{
	if (!evaluator)
		return;

	watchtable_release(&evaluator->table);
	free(evaluator->first_ids);
	timelines_release(&evaluator->timelines);
	watch_plan_release(&evaluator->plan);
	memo_free(evaluator->own_memo);
	free(evaluator);
}
