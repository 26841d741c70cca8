/*
 * statusview.h: the daemon's answer (docs/status.md) as a table: why each rule did or did not fire on each target. The answer is not
 * trusted: what is missing or of another type is shown as unknown, and all its texts are escaped.
 */
#ifndef SPIKEWATCH_STATUSVIEW_H
#define SPIKEWATCH_STATUSVIEW_H

#include "json.h"
#include "statusquery.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

/* Whether a rule on a target, both from the answer, is wanted. */
bool statusview_wanted(const struct statusquery *query, const struct json_node *target, const struct json_node *rule);

/*
 * The table, nearest to firing first, and with names what was counted for each row. At most query->nearest rows (0: all); says how many more
 * there are, those included that the daemon kept to itself. The rows that are wanted; -ENOMEM.
 */
ssize_t statusview_rules(const struct json_node *root, const struct statusquery *query, size_t width, FILE *file);

#endif
