/*
 * suggestion.h: which threshold of a rule would have fired so and so often on what was seen. Fed with the rule's own values, window by
 * window; the highest are kept, and the rule's `for` and `cooldown` are applied to them. Pure, and bounded.
 *
 * It is a proposal: what else a rule has (count, rearm, delta) is left out. Whoever wants to be sure replays it.
 */
#ifndef SPIKEWATCH_SUGGESTION_H
#define SPIKEWATCH_SUGGESTION_H

#include "clock.h"
#include "config.h"
#include "evaluator.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The highest values that are kept: so many firings can be asked for. */
#define SUGGESTION_VALUES_MAX 65536

/* A rule whose `for` lasts longer than so many of its windows has no suggestion. */
#define SUGGESTION_HOLD_MAX 4096

struct suggestion;

struct suggestion_answer {
	bool known;       /* there were values */
	double threshold; /* as round as it can be; fires for what is above it */
	uint64_t firings; /* at that threshold, as far as this module knows */
	double highest;   /* value of all: one that held for `for` */
};

/* rule must outlive it. 0; -ENOMEM; -ERANGE: its `for` is too long for its window. */
int suggestion_new(const struct config_rule *rule, struct suggestion **ret);

/* NULL is fine. */
void suggestion_free(struct suggestion *suggestion);

/*
 * A window of the rule on a target, in order for each target. source tells recordings apart: targets of two are never the same. 0 or
 * -ENOMEM.
 */
int suggestion_add(struct suggestion *suggestion, uint32_t source, const struct evaluator_firing *window);

/* The lowest threshold at which it fires at most `firings` times. Sorts what is kept: nothing can be added afterwards. */
void suggestion_answer(struct suggestion *suggestion, uint64_t firings, struct suggestion_answer *ret);

#endif
