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
#include "evaluator.h"

#include "heritage.h"
#include "scope.h"
#include "timelines.h"
#include "watch.h"
#include "watchtable.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
