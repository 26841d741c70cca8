/*
 * whatif.h: "hot.percent=60,70,80%": other values for keys of rules of a configuration, and the configurations that they make. A changed
 * rule is checked by the code that checks configurations, so what is refused there is refused here, with the same words.
 */
#ifndef SPIKEWATCH_WHATIF_H
#define SPIKEWATCH_WHATIF_H

#include "config.h"

#include <stddef.h>

#define WHATIF_VARIANTS_MAX 64
#define WHATIF_VALUE_MAX 63 /* bytes of a value */

/* Room for a message. */
#define WHATIF_MESSAGE_MAX 512

/* The configuration with one key of one rule changed. */
struct whatif_variant {
	size_t rule;                      /* place in config->rules */
	char key[32];                     /* "percent" */
	char value[WHATIF_VALUE_MAX + 1]; /* as written: "60%" */
	struct config config;             /* borrows everything from the base but its array of rules, and owned */
	struct config *owned;             /* what was parsed for it */
};

/* {0} is empty and legal. */
struct whatif {
	struct whatif_variant *variants; /* in the order in which they were asked for */
	size_t count;
};

/*
 * Reads text: RULE.KEY=VALUE[,VALUE...][;RULE.KEY=VALUE...], one variant per value. KEY is any key of a rule but its name, targets and
 * metric. Adds to *whatif, which is to be released, before base. 0; -ENOMEM; -EINVAL: message (WHATIF_MESSAGE_MAX bytes, terminated) says
 * what is wrong and what was expected.
 */
int whatif_parse(struct whatif *whatif, const struct config *base, const char *text, char *message);

/* Adds one variant. As whatif_parse. */
int whatif_add(struct whatif *whatif, const struct config *base, size_t rule, const char *key, const char *value,
	       char *message);

/* Frees all variants; empty and usable again. */
void whatif_release(struct whatif *whatif);

#endif
