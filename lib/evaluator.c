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
 * Rejected: windows sliding with every tick: a hundred evaluations where one answers the question, and histories that
 * overlap themselves.
 */
#include "evaluator.h"

#include "scope.h"
#include "watch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EVALUATOR_WATCHES_MIN 64

struct evaluator {
	struct evaluator_options options;
	struct memo *own_memo; /* if none was handed in */
	struct watch_plan plan;
	uint64_t *ended; /* windows of each length of the plan that have ended since the epoch of the clock */
	struct watch **watches, **buckets; /* capacity of both: a power of two */
	size_t watch_count, capacity;
	struct watch *touched;
	bool started;
	mono_t now; /* the last tick */
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

static struct watch **bucket_of(const struct evaluator *evaluator, uint32_t id)
{
	return &evaluator->buckets[id & (evaluator->capacity - 1)];
}

/* Ids are given in order, so their low bits spread them perfectly. */
static struct watch *find(const struct evaluator *evaluator, uint32_t id)
{
	struct watch *watch = evaluator->capacity ? *bucket_of(evaluator, id) : NULL;

	while (watch && watch->target.id != id)
		watch = watch->chain;
	return watch;
}

static void bucket_add(struct evaluator *evaluator, struct watch *watch)
{
	struct watch **bucket = bucket_of(evaluator, watch->target.id);

	watch->chain = *bucket;
	*bucket = watch;
}

/* Makes room for one more watch. */
static int reserve(struct evaluator *evaluator)
{
	size_t capacity = evaluator->capacity ? evaluator->capacity * 2 : EVALUATOR_WATCHES_MIN;
	AUTO_FREE struct watch **watches = NULL;
	AUTO_FREE struct watch **buckets = NULL;
	AUTO_FREE struct watch **old_watches = NULL;
	AUTO_FREE struct watch **old_buckets = NULL;

	if (evaluator->watch_count < evaluator->capacity)
		return 0;

	watches = calloc(capacity, sizeof(*watches));
	buckets = calloc(capacity, sizeof(*buckets));
	if (!watches || !buckets)
		return -ENOMEM;

	old_watches = evaluator->watches;
	old_buckets = evaluator->buckets;
	evaluator->watches = TAKE(watches);
	evaluator->buckets = TAKE(buckets);
	evaluator->capacity = capacity;
	for (size_t i = 0; i < evaluator->watch_count; i++) {
		evaluator->watches[i] = old_watches[i];
		bucket_add(evaluator, old_watches[i]);
	}
	return 0;
}

static void untouch(struct evaluator *evaluator, struct watch *watch)
{
	struct watch **link = &evaluator->touched;

	if (!watch->is_touched)
		return;

	while (*link != watch)
		link = &(*link)->touched;
	*link = watch->touched;
}

static void remove_watch(struct evaluator *evaluator, struct watch *watch)
{
	struct watch **link = bucket_of(evaluator, watch->target.id);
	struct watch *last = evaluator->watches[--evaluator->watch_count];

	while (*link != watch)
		link = &(*link)->chain;
	*link = watch->chain;

	untouch(evaluator, watch);
	last->index = watch->index;
	evaluator->watches[watch->index] = last;
	watch_free(watch);
}

int evaluator_target(struct evaluator *evaluator, const struct target *target)
{
	uint64_t cgroup_ns = evaluator->options.config->sampling.cgroup_interval_ns;
	struct watch *watch = find(evaluator, target->id);
	int r;

	if (watch)
		return watch_rename(watch, target);

	r = reserve(evaluator);
	if (r < 0)
		return r;
	r = watch_new(&evaluator->plan, target, target->kind == TARGET_CGROUP ? cgroup_ns : 0, evaluator->options.memo,
		      &watch);
	if (r < 0)
		return r;

	watch->index = evaluator->watch_count;
	evaluator->watches[evaluator->watch_count++] = watch;
	bucket_add(evaluator, watch);
	return 0;
}

void evaluator_gone(struct evaluator *evaluator, uint32_t id)
{
	struct watch *watch = find(evaluator, id);

	if (watch)
		remove_watch(evaluator, watch);
}

/* ---- observations ---- */

void evaluator_sample(struct evaluator *evaluator, uint32_t id, mono_t at, const struct sample *sample)
{
	struct watch *watch = find(evaluator, id);

	if (!watch)
		return;

	watch_see(watch, at, sample);
	if (!watch->is_touched) {
		watch->is_touched = true;
		watch->touched = evaluator->touched;
		evaluator->touched = watch;
	}
}

/* A tick is over within this. A sampler that was stopped in the middle of one (SIGSTOP) would else shift its targets by as long. */
#define OFFSET_MAX_NS ((int64_t)(100 * NS_PER_MS))

static int64_t bounded(int64_t offset_ns)
{
	if (offset_ns > OFFSET_MAX_NS)
		return OFFSET_MAX_NS;

	return offset_ns < -OFFSET_MAX_NS ? -OFFSET_MAX_NS : offset_ns;
}

/* The tick that these samples came with is over: its time is known now. */
static void settle_offsets(struct evaluator *evaluator, mono_t now)
{
	for (struct watch *watch = evaluator->touched; watch; watch = watch->touched) {
		watch->offset_ns = bounded(mono_diff(watch->at, now));
		watch->is_touched = false;
	}
	evaluator->touched = NULL;
}

void evaluator_gap(struct evaluator *evaluator)
{
	for (size_t i = 0; i < evaluator->watch_count; i++)
		watch_lose(evaluator->watches[i]);
	settle_offsets(evaluator, evaluator->now);
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

static void fire(struct evaluator *evaluator, const struct watch *watch, const struct watch_pair *pair,
		 const struct watch_window *window, const struct metric_point *to, struct tick *tick)
{
	struct evaluator_firing firing = {
		.rule = pair->rule,
		.target = &watch->target,
		.from = window->from.time,
		.to = to->time,
		.wall = { tick->wall.ns + (uint64_t)mono_diff(to->time, tick->now) },
		.decision = &pair->decision,
		.effective = &pair->rule->trigger,
		.cpu_limit = limit_of(&to->sample, SAMPLE_CPU_LIMIT),
		.memory_limit = limit_of(&to->sample, SAMPLE_MEMORY_LIMIT),
	};
	int r = evaluator->options.fire(evaluator->options.ctx, &firing);

	if (tick->result == 0)
		tick->result = r;
}

/* What could not be put for want of memory is put again after the next step. */
static void remember(struct evaluator *evaluator, const struct watch *watch, struct watch_pair *pair)
{
	struct trigger_memory memory;

	trigger_memory(pair->state, &memory);
	if (trigger_memory_equal(&memory, &pair->memory))
		return;
	if (memo_put(evaluator->options.memo, pair->rule->name, watch->target.key, &memory) == 0)
		pair->memory = memory;
}

/* The trigger's clock is the nominal end of the window: `for` and cooldowns are whole numbers of windows, exactly. */
static void judge(struct evaluator *evaluator, const struct watch *watch, struct watch_pair *pair,
		  const struct watch_window *window, const struct metric_point *to, struct tick *tick)
{
	const struct config_rule *rule = pair->rule;
	uint64_t late = tick->now.ns % rule->window_ns;
	double value = 0;
	bool available = metric_value(rule->metric, rule->of, &evaluator->options.machine, &window->from, to, &value);

	trigger_step(pair->state, &rule->trigger, (mono_t){ tick->now.ns - late }, (wall_t){ tick->wall.ns - late },
		     available, value, disk_ok(evaluator, tick), &pair->decision);
	pair->judged = true;
	evaluator->evaluations++;
	remember(evaluator, watch, pair);
	if (pair->decision.fires)
		fire(evaluator, watch, pair, window, to, tick);
}

static void end_window(struct evaluator *evaluator, struct watch *watch, struct watch_window *window,
		       uint64_t window_ns, struct tick *tick)
{
	struct metric_point to = { watch_seen_at(watch, tick->now), watch->sample, window->peak_bytes };

	if (window->open && mono_diff(to.time, window->from.time) < (int64_t)(window_ns / 2))
		return;

	for (size_t i = 0; window->open && i < window->count; i++)
		judge(evaluator, watch, &watch->pairs[window->first + i], window, &to, tick);

	window->open = true;
	window->from = to;
	window->peak_bytes = metric_peak(&watch->sample, &watch->sample);
}

static void end_windows(struct evaluator *evaluator, size_t g, struct tick *tick)
{
	for (size_t i = 0; i < evaluator->watch_count; i++) {
		struct watch *watch = evaluator->watches[i];

		if (watch->seen && watch->windows[g].count > 0)
			end_window(evaluator, watch, &watch->windows[g], evaluator->plan.lengths_ns[g], tick);
	}
}

/* The first tick, or a clock that began anew (another boot): a window ends only if that is right now. */
static void start(struct evaluator *evaluator, mono_t now)
{
	for (size_t g = 0; g < evaluator->plan.length_count; g++)
		evaluator->ended[g] = (now.ns - 1) / evaluator->plan.lengths_ns[g];
	evaluator->started = true;
}

int evaluator_tick(struct evaluator *evaluator, mono_t now, wall_t wall)
{
	struct tick tick = { .now = now, .wall = wall, .disk_ok = true };

	if (evaluator->started && mono_diff(now, evaluator->now) < 0) {
		evaluator_gap(evaluator);
		evaluator->started = false;
	}
	if (!evaluator->started)
		start(evaluator, now);
	evaluator->now = now;
	settle_offsets(evaluator, now);

	for (size_t g = 0; g < evaluator->plan.length_count; g++) {
		uint64_t ended = now.ns / evaluator->plan.lengths_ns[g];

		if (ended == evaluator->ended[g])
			continue;
		evaluator->ended[g] = ended;
		end_windows(evaluator, g, &tick);
	}
	return tick.result;
}

/* ---- the whole ---- */

int evaluator_visit(const struct evaluator *evaluator, int (*visit)(void *ctx, const struct evaluator_status *status),
		    void *ctx)
{
	for (size_t i = 0; i < evaluator->watch_count; i++) {
		const struct watch *watch = evaluator->watches[i];

		for (size_t k = 0; k < watch->pair_count; k++) {
			const struct watch_pair *pair = &watch->pairs[k];
			struct evaluator_status status = {
				.rule = pair->rule,
				.target = &watch->target,
				.decision = pair->judged ? &pair->decision : NULL,
				.memory = &pair->memory,
				.reasons = trigger_reasons(pair->state),
			};
			int r = visit(ctx, &status);

			if (r != 0)
				return r;
		}
	}
	return 0;
}

int evaluator_visit_targets(const struct evaluator *evaluator,
			    int (*visit)(void *ctx, const struct evaluator_sight *sight), void *ctx)
{
	for (size_t i = 0; i < evaluator->watch_count; i++) {
		const struct watch *watch = evaluator->watches[i];
		struct evaluator_sight sight = { .target = &watch->target };
		int r;

		if (watch->seen) {
			sight.seen = true;
			sight.at = watch->at;
			sight.sample = &watch->sample;
		}
		r = visit(ctx, &sight);
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
	evaluator->ended = calloc(evaluator->plan.length_count + 1, sizeof(*evaluator->ended));
	if (!evaluator->ended)
		return -ENOMEM;
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

	for (size_t i = 0; i < evaluator->watch_count; i++)
		watch_free(evaluator->watches[i]);
	free(evaluator->watches);
	free(evaluator->buckets);
	free(evaluator->ended);
	watch_plan_release(&evaluator->plan);
	memo_free(evaluator->own_memo);
	free(evaluator);
}
