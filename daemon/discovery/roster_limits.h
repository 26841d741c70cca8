/* roster_limits.h: the effective limits of a target of the roster, and what a group has of its members'. */
#ifndef SPIKEWATCH_ROSTER_LIMITS_H
#define SPIKEWATCH_ROSTER_LIMITS_H

#include "limitscache.h"
#include "roster.h"

/* Reads those of a process or a cgroup; they stay what they were if it is gone. */
void roster_limits_read(const struct roster_options *options, struct limitscache *cache, struct roster_target *target);

/* Hands them to the sampler. */
void roster_limits_apply(struct roster_target *target);

/* A group has what its members share as far as they were asked (roster_refresh_some_limits): applied too. */
void roster_limits_settle(const struct metric_machine *machine, struct roster_target *group);

#endif
