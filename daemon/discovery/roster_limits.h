/*
 * roster_limits.h: the effective limits of a target of the roster, and what a group has of its members'.
 *
 * A refresh reads what each cgroup says anew, and who is in them has it at once. Which cgroup a process is in it asks
 *   - those that it meets for the first time, and in their first ten seconds, when managers move what they start;
 *   - those that were heard to begin or execute something;
 *   - those that ran noticeably since they were last asked: a rule of a share of a limit looks at them;
 *   - all others every half minute, each at a moment of its own.
 * So a process that is moved in its sleep has the limits of where it was for half a minute and one refresh at most.
 */
#ifndef SPIKEWATCH_ROSTER_LIMITS_H
#define SPIKEWATCH_ROSTER_LIMITS_H

#include "limitscache.h"
#include "roster_inside.h"

/* Since it was met, while a refresh asks it every time; between two questions to one that sleeps. */
#define ROSTER_LIMITS_YOUNG_NS (10 * NS_PER_S)
#define ROSTER_LIMITS_LONG_NS (30 * NS_PER_S)

/* Reads those of a process or a cgroup. What cannot be read stays what it was; of a new one it is unavailable. 0; -ENOMEM. */
int roster_limits_read(struct roster *roster, struct roster_target *target);

/* Hands them to the sampler. */
void roster_limits_apply(struct roster_target *target);

/* For whoever wants to know. Where nothing is known they are unavailable. */
void roster_limits_of(const struct roster *roster, const struct roster_target *target, struct cglimits *ret);

/* Before a target is freed. */
void roster_limits_release(struct roster *roster, struct roster_target *target);

/* A group has what its members share as far as they were asked (roster_refresh_some_limits): applied too. */
void roster_limits_settle(const struct roster_options *options, struct roster_target *group);

#endif
