/*
 * toprules.h: what the rules of a configuration think of the targets in a ring, found out without asking the daemon: its own engine
 * (evaluator.h) is fed with the same samples, and with what the daemon's state file remembers from before.
 *
 * It differs from what the daemon thinks where the daemon knows more: a configuration that was changed and not yet loaded, averages over
 * more than the ring still holds, disk budgets.
 */
#ifndef SPIKEWATCH_TOPRULES_H
#define SPIKEWATCH_TOPRULES_H

#include "config.h"
#include "configfile.h"
#include "metric.h"
#include "ring.h"
#include "toptable.h"

#include <stdint.h>

struct toprules;

/* 0; as configfile_load otherwise, with its message. */
int toprules_new(const struct configfile *file, const struct metric_machine *machine, struct toprules **ret,
		 char *message);

/* NULL is fine. */
void toprules_free(struct toprules *rules);

/* The configuration in force here. */
const struct config *toprules_config(const struct toprules *rules);

/* How much of the past the rules look back on. */
uint64_t toprules_span_ns(const struct toprules *rules);

/* A number that changes whenever a file of the configuration does. */
uint64_t toprules_signature(const struct configfile *file);

/* The events of a ring are about to be delivered from somewhere on: nothing is known, but what the state file says. 0 or -ENOMEM. */
int toprules_begin(struct toprules *rules);

/* One event of the ring, in order. 0 or -ENOMEM. */
int toprules_event(struct toprules *rules, const struct ring_event *event);

/* Hands what each rule thinks of each target to the table, as of now; names stay valid as long as the rules do. */
void toprules_judge(const struct toprules *rules, wall_t now, struct toptable *table);

#endif
