/*
 * waited_times.h: the CPU time of processes that ended that is not in their exit records.
 *
 * An exit record is made in the middle of the exit, from a clock that was stale since the last
 * scheduler tick: of a process that lives for a few milliseconds a fifth to a half is missing. What
 * a process used in all the kernel adds to its parent when that waits for it (cutime and cstime of
 * /proc/PID/stat): exact, but shown in steps of a clock tick (10 ms), and for all children together.
 *
 * So each parent has an account: what it has waited for, less what is known of the children that
 * ended, is missing. That is handed out in equal parts to the next children of the same groups,
 * which are in all likelihood like those before. Where children of different groups ended between
 * two looks, it is not known in which what was missing belongs: it is counted in none.
 *
 *     waited for  ├──────── known: records and parts ────────┤── missing ──┤
 *
 * Never more than the truth: what stat does not show yet, less than two clock ticks, follows when it
 * is shown, or when the parent itself is waited for. Of a parent that had waited for others before
 * its account was opened, less than two clock ticks of that may not have been shown: as much is held
 * back for good. So an account lacks at most two clock ticks, or four, for any number of children.
 *
 * A parent that does not wait (SIGCHLD ignored) has no such time; of its children there are the
 * records alone. What was waited for and cannot be explained by an exit that was seen is never
 * handed out.
 *
 * Bounded: 512 parents, of which the one that lost a child longest ago is forgotten. For one thread
 * at a time.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_WAITED_TIMES_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_WAITED_TIMES_H

#include "lib/base/base.h"

#include <stdbool.h>
#include <stdint.h>

struct waited_times;

/* procfd: of the proc root, must outlive it. 0 or -ENOMEM. */
int waited_times_new(int procfd, struct waited_times **ret);

/* NULL is fine. */
void waited_times_free(struct waited_times *times);

/* A process that ended. */
struct waited_child {
	int32_t pid, parent_pid;
	uint64_t cpu_ns;     /* what is known of its CPU time; at most what it was */
	uint64_t missing_ns; /* no more than this is missing in it */
	uint64_t faults;     /* minor page faults; 0: not known */
	bool gone;           /* its parent has waited for it */
	uint64_t groups;     /* the caller's, for what is left over; 0: it counts nowhere */
};

/*
 * Returns the CPU time to be added to that of a child, ns. Children in the order of their ends; no
 * process may have ended, and be missing here, that has children itself here. Reads stat of the
 * parent at most each four milliseconds.
 */
uint64_t waited_times_child(struct waited_times *times, const struct waited_child *child, mono_t now);

/*
 * Hands out what is missing of parents of which no child has ended for a while, to the groups of the
 * last one that did.
 */
void waited_times_settle(struct waited_times *times, mono_t now,
			 void (*credit)(void *ctx, uint64_t groups, uint64_t cpu_ns), void *ctx);

/* Groups mean something else from now on: what is left over of children that ended is not handed out. */
void waited_times_forget_groups(struct waited_times *times);

/* When waited_times_settle has something to do. False: not before another child ends. */
bool waited_times_due(const struct waited_times *times, mono_t *ret);

#endif
