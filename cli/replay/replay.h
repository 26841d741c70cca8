/*
 * replay.h: what a replay has found, for people or as JSON, as it is found: firings are printed
 * while the recording is read. The JSON is one object; it is ended by replay_view_close.
 */
#ifndef SPIKEWATCH_CLI_REPLAY_REPLAY_H
#define SPIKEWATCH_CLI_REPLAY_REPLAY_H

#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * casting.h: which entry of a configuration a target of a recording belongs to, when it was
 * recorded under another configuration or under none: what the entries select among what is known
 * of the target. Pure.
 */

struct entry_assignment;

/*
 * as: the name of the entry for targets that no entry selects, NULL: they stay what they are.
 * config and as must outlive it. 0; -ENOMEM; -EINVAL.
 */
int entry_assignment_new(const struct config *config, const char *as, struct entry_assignment **ret);

/* NULL is fine. */
void entry_assignment_free(struct entry_assignment *entry_assignment);
CLEANUP(entry_assignment, free);

/*
 * The name of the entry: the target's own if the configuration has it, else of the first that
 * selects it by pid, name, command line or cgroup, else `as`, else the target's own. Never NULL;
 * text of the target, the configuration or `as`.
 */
const char *entry_assignment_entry(const struct entry_assignment *entry_assignment, const struct target *target);

/*
 * suggestion.h: which threshold of a rule would have fired so and so often on what was seen. Fed
 * with the rule's own values, window by window; the highest are kept, and the rule's `for` and
 * `cooldown` are applied to them. Pure, and bounded.
 *
 * It is a proposal: what else a rule has (count, rearm, delta) is left out. Whoever wants to be
 * sure replays it.
 */

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
 * A window of the rule on a target, in order for each target. source tells recordings apart:
 * targets of two are never the same. 0 or -ENOMEM.
 */
int suggestion_add(struct suggestion *suggestion, uint32_t source, const struct evaluator_firing *window);

/*
 * The lowest threshold at which it fires at most `firings` times. Sorts what is kept: nothing can
 * be added afterwards.
 */
void suggestion_answer(struct suggestion *suggestion, uint64_t firings, struct suggestion_answer *ret);

/*
 * rule_replay.h: the rules of a configuration over observations that were recorded: what would have
 * fired, what nearly did, and which rules could not be judged for want of what. The decisions are
 * those of evaluator.h, to which the observations are handed as the daemon hands those of its ring.
 * Pure; memory grows with the targets that are there at a time, not with the length of the
 * recording.
 */

struct rule_replay;

/* The window that came nearest to a threshold without reaching it. */
struct rule_replay_miss {
	bool known;
	double value, distance; /* value + distance is the threshold; distance >= 0 */
	wall_t wall;            /* the window's end */
	char target[128];       /* its name, cut; may hold any byte */
};

/* What became of one rule, over all targets. */
struct rule_replay_rule {
	const struct config_rule *rule;
	bool addressed;                    /* there was a target of an entry that it names */
	uint64_t windows, fired;           /* judged; of them fired */
	uint64_t reasons[TRIGGER_REASONS]; /* of all windows */
	uint64_t unlimited;                /* windows of a share of a limit that was not recorded: of the machine's */
	uint32_t fields;                   /* of the samples that it saw, any */
	bool first_known;
	wall_t first; /* firing */
	struct rule_replay_miss miss;
};

struct rule_replay_options {
	const struct config
		*config; /* must outlive the rule replay; a row of rules is told by its place in config->rules */
	struct metric_machine machine;
	/*
	 * Any may be NULL. witness sees every window, before fire, which sees those that fired; a
	 * non-zero return of fire ends the event.
	 */
	int (*fire)(void *ctx, const struct evaluator_firing *firing);
	void (*witness)(void *ctx, const struct evaluator_firing *window);
	void *ctx;
};

/* 0 or -ENOMEM. */
int rule_replay_new(const struct rule_replay_options *options, struct rule_replay **ret);

/* NULL is fine. */
void rule_replay_free(struct rule_replay *rule_replay);
CLEANUP(rule_replay, free);

/* The next event of a recording, in its order. 0; -ENOMEM; what fire returned. */
int rule_replay_event(struct rule_replay *rule_replay, const struct ring_event *event);

/*
 * Another recording begins, of this machine: all targets are forgotten, with their history and
 * cooldowns; counts go on. 0 or -ENOMEM, and then the old targets are still there.
 */
int rule_replay_again(struct rule_replay *rule_replay, const struct metric_machine *machine);

/* Outcomes, one for each rule in the order of the configuration. */
const struct rule_replay_rule *rule_replay_rules(const struct rule_replay *rule_replay);

/*
 * Windows that wanted to fire and were held back: pending, in cooldown, not re-armed, count limit.
 */
uint64_t rule_replay_held_back(const struct rule_replay_rule *rule);

/*
 * Why a rule has judged nothing, or never had a value, in words without a full stop into buf,
 * always terminated. False: it was judged.
 */
bool rule_replay_obstacle(const struct rule_replay_rule *rule, char *buf, size_t cap);

/* What must be said of a rule that was judged ("no limit is recorded: ..."). False: nothing. */
bool rule_replay_remark(const struct rule_replay_rule *rule, char *buf, size_t cap);

struct json_writer;

struct replay_view {
	struct json_writer *json; /* NULL: text */
	bool summary;             /* no list of firings */
	bool progress;            /* standard error is a terminal */
	/* Of the source at hand. */
	const char *path;
	uint64_t troubles;
	unsigned shown_percent; /* progress that stands on the terminal; 0: none */
	bool headed;            /* the head of the list of firings was printed */
};

/* 0 or -ENOMEM. json: instead of text. */
int replay_view_open(struct replay_view *view, bool json, bool summary);
void replay_view_close(struct replay_view *view);

/*
 * A source begins, something is wrong with it, so far it has been read, one of its windows fired,
 * it is over.
 */
void replay_view_firing(struct replay_view *view, const struct evaluator_firing *firing);

#endif
