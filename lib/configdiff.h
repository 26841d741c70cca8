/*
 * configdiff.h: two configurations, side by side: may the second be put in force while the first runs, and what is different. Pure.
 */
#ifndef SPIKEWATCH_CONFIGDIFF_H
#define SPIKEWATCH_CONFIGDIFF_H

#include "config.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * 0 if next can be put in force in place of old without a restart. -EINVAL: a key differs that is read at the start only. *err
 * then says which (the first one), where it is written (of a key that is written no more: the first file), what is in force and what was wanted. Values are compared as
 * they are in the configuration: "" is not the path that it stands for. err may be NULL.
 */
int configdiff_reloadable(const struct config *old, const struct config *next, struct config_error *err);

/* Entries are told by their names. A rule whose list of targets differs in names has changed, one in another order has not. */
struct configdiff_counts {
	size_t targets_added, targets_removed, targets_changed;
	size_t rules_added, rules_removed, rules_changed;
};

/* Costs entries x entries comparisons of names. */
void configdiff_count(const struct config *old, const struct config *next, struct configdiff_counts *ret);

/* Whether any key outside of targets and rules differs. */
bool configdiff_sections(const struct config *old, const struct config *next);

#endif
