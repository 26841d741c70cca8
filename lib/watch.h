/*
 * watch.h: one watched target within the evaluator: when and how it was last seen, the windows that are open on it, and the
 * triggers of the rules that look at it. The structures are the evaluator's to read and write; this module makes them and
 * knows what an observation means.
 */
#ifndef SPIKEWATCH_WATCH_H
#define SPIKEWATCH_WATCH_H

#include "clock.h"
#include "config.h"
#include "memo.h"
#include "metric.h"
#include "target.h"
#include "trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The rules of a configuration, sorted by window length, and the lengths there are. {0} is empty and legal. */
struct watch_plan {
	const struct config_rule **rules;
	size_t rule_count;
	uint64_t *lengths_ns;
	size_t length_count;
};

/* One rule on one target. */
struct watch_pair {
	const struct config_rule *rule;
	struct trigger_state *state;
	struct trigger_decision decision;
	bool judged; /* decision is known */
	bool owed;   /* what is to be remembered of it may not be in the memo */
};

/* The window that all rules of one length share on one target. */
struct watch_window {
	bool open;
	bool untouched; /* the target has not changed since from */
	mono_t edge;    /* where from would be if the target had been looked at in that tick */
	struct metric_point from;
	uint64_t peak_bytes; /* most memory since from, from included */
	size_t first, count; /* its pairs */
};

struct watch {
	struct watch *chain;   /* next in a bucket of the table */
	struct watch *touched; /* next of those sampled since the last tick */
	bool is_touched;
	size_t index;  /* in the table's row */
	uint32_t line; /* of timelines.h: whose ticks it moves on with */
	struct target target;
	char *strings;     /* of target */
	uint64_t read_ns;  /* how often it is read; 0: every tick */
	bool seen;         /* the next four are known */
	bool since_known;  /* and so is since */
	mono_t since;      /* of the sample that was the last to differ from the one before */
	mono_t at;         /* of the last sample */
	int64_t offset_ns; /* at, less the time of its tick */
	struct sample sample;
	struct watch_window *windows; /* one for each length of the plan, in its order */
	size_t window_count;
	struct watch_pair *pairs;
	size_t pair_count;
};

/* 0 or -ENOMEM. config must outlive the plan. */
int watch_plan_init(struct watch_plan *plan, const struct config *config);

/* Frees what init took. */
void watch_plan_release(struct watch_plan *plan);

/* Copies the target, pairs it with the rules that name its entry, and resumes what memo remembers of each. 0 or -ENOMEM. */
int watch_new(const struct watch_plan *plan, const struct target *target, uint64_t read_ns, const struct memo *memo,
	      struct watch **ret);

/* NULL is fine. */
void watch_free(struct watch *watch);

/* The same target under other names. 0 or -ENOMEM: it keeps the old ones. */
int watch_rename(struct watch *watch, const struct target *target);

/* A look at the target at `at`. */
void watch_see(struct watch *watch, mono_t at, const struct sample *sample);

/*
 * When it was last seen by the end of tick now, changed or not, as far as that is certain. idle_ns: the longest pause between two looks at a
 * process, as of that tick. Only if watch->seen.
 */
mono_t watch_seen_at(const struct watch *watch, mono_t now, uint64_t idle_ns);

/* Opens one of its windows at the end of tick now: that it looks as it does is known as of *from. */
void watch_open(const struct watch *watch, struct watch_window *window, const struct metric_point *from, mono_t now);

/* Forgets what it looks like: windows that are open are dropped, and it is unseen until the next look. */
void watch_lose(struct watch *watch);

#endif
