/*
 * roster_events.h: the roster between two scans: single processes that begin, turn into something else and end.
 *
 * What a member of a group used between its last sample and its end is added to its group when the sampler gives it back. So that nothing is told too
 * late: first roster_fetch, then all ends that are known, then roster_settle.
 */
#ifndef SPIKEWATCH_ROSTER_EVENTS_H
#define SPIKEWATCH_ROSTER_EVENTS_H

#include "roster.h"

/* Takes from the sampler what it gave back, up to a bound. True: there is something for roster_settle. */
bool roster_fetch(struct roster *roster);

/* Frees what was fetched; credits to groups what is known of ends. */
void roster_settle(struct roster *roster);

/* Targets whose end was told and that the sampler has yet to find gone. */
size_t roster_ended(const struct roster *roster);

/*
 * A process is not of this entry (any more): it leaves, if it is watched for it. Cheap if it is not. now: its counters, up to which its group counts it;
 * without any, up to where the sampler saw it last. True: it was.
 */
bool roster_unmatch(struct roster *roster, size_t entry, const struct roster_sighting *seen, const struct sample *now);

/* How many targets a process is. */
size_t roster_watches(const struct roster *roster, int32_t pid, uint64_t start_ticks);

/* A process was met as it was before: all its targets count as seen in this scan. */
void roster_still(struct roster *roster, int32_t pid, uint64_t start_ticks, uint64_t scan);

/*
 * Whether a process is watched for this entry as a target of its own and was called something else than comm when it was met: as another program,
 * which deserves a target of its own.
 */
bool roster_was_other(const struct roster *roster, size_t entry, int32_t pid, uint64_t start_ticks, const char *comm);

/* Whether a process is watched for this entry under another name than it has now, or has executed something since. Looks at comm and arguments_at alone. */
bool roster_is_outdated(const struct roster *roster, size_t entry, const struct roster_sighting *seen);

/*
 * A process that is watched for this entry is called that from now on, and so is a group by pid whose root it is: in the ring, and so for all who read
 * it. Does nothing if it is not watched, or is called that. 0; -ENOMEM: it keeps its names.
 */
int roster_describe(struct roster *roster, size_t entry, const struct roster_sighting *seen);

/* Whether pid is watched for any entry. */
bool roster_knows(const struct roster *roster, int32_t pid);

/* Whether pid is a member of this entry's group. */
bool roster_is_member(const struct roster *roster, size_t entry, int32_t pid);

/* An end, of which the news may be late: another process may have the pid. */
struct roster_ending {
	int32_t pid;
	uint64_t start_ticks; /* of the one that ended; 0: not known */
	uint64_t alive_ticks; /* of the one that has the pid and lives on, which is not the one that ended; 0: none */
	const char *comm; /* of the one that ended; NULL: not known. A watched process of another name is another one */
	struct sample counters;
};

/* A process ended with these counters; each target ends once. True: it is watched. */
bool roster_end(struct roster *roster, const struct roster_ending *ending);

/* A process that never was a member ended, and its counters belong to this entry's group. False: the entry has none. */
bool roster_credit(struct roster *roster, size_t entry, const struct sample *counters);

#endif
