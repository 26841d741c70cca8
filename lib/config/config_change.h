/*
 * config_change.h: whether a running daemon can change from one configuration to another, and what
 * differs; and the configurations that "hot.percent=60,70,80%" makes of one, with other values for
 * keys of rules. The parser checks a changed rule, so it is refused with the parser's words. Pure.
 */
#ifndef SPIKEWATCH_LIB_CONFIG_CONFIG_CHANGE_H
#define SPIKEWATCH_LIB_CONFIG_CONFIG_CHANGE_H

#include "lib/config/config.h"

#include <stdbool.h>
#include <stddef.h>

#define WHAT_IF_VARIANTS_MAX 64
#define WHAT_IF_VALUE_MAX 63 /* bytes of a value */

#define WHAT_IF_MESSAGE_MAX 512

/* The configuration with one key of one rule changed. */
struct what_if_variant {
	size_t rule;                       /* place in config->rules */
	char key[32];                      /* "percent" */
	char value[WHAT_IF_VALUE_MAX + 1]; /* as written: "60%" */
	struct config config;              /* borrows everything from the base but its array of rules, and owned */
	struct config *owned;              /* what was parsed for it */
};

/* {0} is empty and legal. */
struct what_if {
	struct what_if_variant *variants; /* in the order in which they were asked for */
	size_t count;
};

/*
 * Reads text: RULE.KEY=VALUE[,VALUE...][;RULE.KEY=VALUE...], one variant per value. KEY is any key
 * of a rule but its name, targets and metric. Adds to *what if, which is to be released, before
 * base. 0; -ENOMEM; -EINVAL: message (WHAT_IF_MESSAGE_MAX bytes, terminated) says what is wrong and
 * what was expected.
 */
int what_if_parse(struct what_if *what_if, const struct config *base, const char *text, char *message);

/* Adds one variant. As what_if_parse. */
int what_if_add(struct what_if *what_if, const struct config *base, size_t rule, const char *key, const char *value,
		char *message);

/* Frees all variants; empty and usable again. */
void what_if_release(struct what_if *what_if);

/*
 * 0: next can replace old without a restart. -EINVAL: a key that is read at start only differs.
 * *err (may be NULL) names the first such key, where it is written (a key that was removed: the
 * first file), the value in force and the one wanted. Values are compared as written: "" differs
 * from the path that it stands for.
 */
int config_change_reloadable(const struct config *old, const struct config *next, struct config_error *err);

/*
 * Entries are identified by name. A rule has changed if the set of names in its list of targets
 * differs, not if only their order does.
 */
struct config_change_counts {
	size_t targets_added, targets_removed, targets_changed;
	size_t rules_added, rules_removed, rules_changed;
};

/* Costs entries x entries comparisons of names. */
void config_change_count(const struct config *old, const struct config *next, struct config_change_counts *ret);

/* Whether any key outside of targets and rules differs. */
bool config_change_sections(const struct config *old, const struct config *next);

#endif
