/*
 * ruletally.h: how often each rule was judged, and what came of it, over all targets, those that are gone included: what the evaluator knows
 * of a target goes with it, and a counter must not. Belongs to the main thread.
 */
#ifndef SPIKEWATCH_RULETALLY_H
#define SPIKEWATCH_RULETALLY_H

#include "config.h"
#include "trigger.h"

#include <stdint.h>

struct ruletally;

/* Since the daemon started, or since the rule was added. */
struct ruletally_counts {
	uint64_t windows, fired;
	uint64_t opened; /* firings that began an incident */
	uint64_t reasons[TRIGGER_REASONS];
};

/*
 * Counts the rules of config, which must outlive it. before: the tally that it takes the place of: rules that were there, by name, go on from
 * where they are; may be NULL. 0 or -ENOMEM.
 */
int ruletally_new(const struct config *config, const struct ruletally *before, struct ruletally **ret);

/* NULL is fine. */
void ruletally_free(struct ruletally *tally);

/* A window was judged. A rule of another configuration is not counted. O(1). */
void ruletally_judged(struct ruletally *tally, const struct config_rule *rule, const struct trigger_decision *decision);

/* A firing began an incident. */
void ruletally_opened(struct ruletally *tally, const struct config_rule *rule);

/* NULL: it is not of the configuration in force. */
const struct ruletally_counts *ruletally_counts(const struct ruletally *tally, const struct config_rule *rule);

#endif
