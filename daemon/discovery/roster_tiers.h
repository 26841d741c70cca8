/*
 * roster_tiers.h: which processes keep descriptors open and which are cold (source.h), where there are not enough for all.
 *
 * Nobody is cold while there are enough (descriptors.h). Else newcomers are cold to begin with, and after each scan descriptors are handed on: a cold
 * process that ran at least three times since the scan before, and clearly more often than the warm one that ran least and longest ago, takes over from that one
 * by the next scan. Whatever descriptors are free go to cold ones, the busiest first. Cgroups are never cold: for those that could not be opened
 * processes make room, and none becomes warm meanwhile.
 */
#ifndef SPIKEWATCH_ROSTER_TIERS_H
#define SPIKEWATCH_ROSTER_TIERS_H

#include "roster.h"

/* So many change tier after a scan, each way: what comes after waits for the next. Opening one takes 15 us. */
#define ROSTER_TIERS_CHANGES 256u

/* Zeroed is the right start. */
struct roster_tiers {
	bool uneven;       /* some process is cold, or may be */
	size_t unopened;   /* cgroups for which there were no descriptors, in the running scan */
	size_t making_way; /* and in the last one */
};

/* Whether a process that is met now is cold to begin with. */
bool roster_tiers_newcomer(struct roster *roster);

/* A cgroup could not be opened for want of descriptors. */
void roster_tiers_refused(struct roster *roster);

/* After a whole scan: asks some to give up their descriptors, and opens those of others. Without the memory for that everything stays as it is. */
void roster_tiers_balance(struct roster *roster);

/*
 * Says which entries' processes have their high-water marks and descriptors read even when they are cold: those that a rule looks at; and how long
 * they may go without a look while they are idle.
 */
void roster_tiers_need(struct roster *roster, struct roster_target *target);

#endif
