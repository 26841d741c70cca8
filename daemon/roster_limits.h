/* roster_limits.h: the effective limits of a target of the roster, and what a group has of its members'. */
#ifndef SPIKEWATCH_ROSTER_LIMITS_H
#define SPIKEWATCH_ROSTER_LIMITS_H

#include "limitscache.h"
#include "roster.h"

/* Reads those of a process or a cgroup; they stay what they were if it is gone. */
void roster_limits_read(const struct roster_options *options, struct limitscache *cache, struct roster_target *target);

/* Hands them to the sampler. */
void roster_limits_apply(struct roster_target *target);

/* For all groups first clear, then for every member merge, then for all groups settle, which applies them. */
void roster_limits_clear(struct roster_target *group);
void roster_limits_merge(struct roster_target *member);
void roster_limits_settle(const struct metric_machine *machine, struct roster_target *group);

#endif
