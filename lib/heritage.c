/*
 * heritage.c: a target under the next configuration is made like any other, with fresh triggers for all its rules; then what is
 * worth keeping is swapped in. So all that can fail has happened before anything is touched, and what is left over is
 * freed like any target.
 *
 * Invariant: a window that no rule looks at is not open. One that was left open by a rule that went away would be as long, when the
 * rule is back, as that is ago.
 */
#include "heritage.h"

#include "scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

int heritage_init(struct heritage *heritage, const struct config *old, const struct watch_plan *old_plan,
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

void heritage_release(struct heritage *heritage)
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

void heritage_pass(struct heritage *heritage, struct watch *watch, struct watch *fresh)
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
