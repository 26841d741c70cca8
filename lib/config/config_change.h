/*
 * config_change.h: two configurations, side by side: may the second be put in force while the first
 * runs, and what is different. Pure.
 */
#ifndef SPIKEWATCH_LIB_CONFIG_CONFIG_CHANGE_H
#define SPIKEWATCH_LIB_CONFIG_CONFIG_CHANGE_H

#include "lib/config/config.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * what_if.h: "hot.percent=60,70,80%": other values for keys of rules of a configuration, and the
 * configurations that they make. A changed rule is checked by the code that checks configurations,
 * so what is refused there is refused here, with the same words.
 */

#define WHAT_IF_VARIANTS_MAX 64
#define WHAT_IF_VALUE_MAX 63 /* bytes of a value */

/* Room for a message. */
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
 * 0 if next can be put in force in place of old without a restart. -EINVAL: a key differs that is
 * read at the start only. *err then says which (the first one), where it is written (of a key that
 * is written no more: the first file), what is in force and what was wanted. Values are compared as
 * they are in the configuration: "" is not the path that it stands for. err may be NULL.
 */
int config_change_reloadable(const struct config *old, const struct config *next, struct config_error *err);

/*
 * Entries are told by their names. A rule whose list of targets differs in names has changed, one
 * in another order has not.
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
