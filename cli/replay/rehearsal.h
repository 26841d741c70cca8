/*
 * rehearsal.h: the rules of a configuration over observations that were recorded: what would have fired, what nearly did, and which rules
 * could not be judged for want of what. The decisions are those of evaluator.h, to which the observations are handed as the daemon hands
 * those of its ring. Pure; memory grows with the targets that are there at a time, not with the length of the recording.
 */
#ifndef SPIKEWATCH_REHEARSAL_H
#define SPIKEWATCH_REHEARSAL_H

#include "config.h"
#include "evaluator.h"
#include "ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rehearsal;

/* The window that came nearest to a threshold without reaching it. */
struct rehearsal_miss {
	bool known;
	double value, distance; /* value + distance is the threshold; distance >= 0 */
	wall_t wall;            /* the window's end */
	char target[128];       /* its name, cut; may hold any byte */
};

/* What became of one rule, over all targets. */
struct rehearsal_rule {
	const struct config_rule *rule;
	bool addressed;                    /* there was a target of an entry that it names */
	uint64_t windows, fired;           /* judged; of them fired */
	uint64_t reasons[TRIGGER_REASONS]; /* of all windows */
	uint64_t unlimited;                /* windows of a share of a limit that was not recorded: of the machine's */
	uint32_t fields;                   /* of the samples that it saw, any */
	bool first_known;
	wall_t first; /* firing */
	struct rehearsal_miss miss;
};

struct rehearsal_options {
	const struct config
		*config; /* must outlive the rehearsal; a row of rules is told by its place in config->rules */
	struct metric_machine machine;
	/* Any may be NULL. witness sees every window, before fire, which sees those that fired; a non-zero return of fire ends the event. */
	int (*fire)(void *ctx, const struct evaluator_firing *firing);
	void (*witness)(void *ctx, const struct evaluator_firing *window);
	void *ctx;
};

/* 0 or -ENOMEM. */
int rehearsal_new(const struct rehearsal_options *options, struct rehearsal **ret);

/* NULL is fine. */
void rehearsal_free(struct rehearsal *rehearsal);

/* The next event of a recording, in its order. 0; -ENOMEM; what fire returned. */
int rehearsal_event(struct rehearsal *rehearsal, const struct ring_event *event);

/*
 * Another recording begins, of this machine: all targets are forgotten, with their history and cooldowns; counts go on. 0 or -ENOMEM, and
 * then the old targets are still there.
 */
int rehearsal_again(struct rehearsal *rehearsal, const struct metric_machine *machine);

/* Outcomes, one for each rule in the order of the configuration. */
const struct rehearsal_rule *rehearsal_rules(const struct rehearsal *rehearsal);

/* Windows that wanted to fire and were held back: pending, in cooldown, not re-armed, count limit. */
uint64_t rehearsal_held_back(const struct rehearsal_rule *rule);

/*
 * Why a rule has judged nothing, or never had a value, in words without a full stop into buf, always terminated. False: it was judged.
 */
bool rehearsal_obstacle(const struct rehearsal_rule *rule, char *buf, size_t cap);

/* What must be said of a rule that was judged ("no limit is recorded: ..."). False: nothing. */
bool rehearsal_remark(const struct rehearsal_rule *rule, char *buf, size_t cap);

#endif
