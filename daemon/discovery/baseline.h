/*
 * baseline.h: how things were a moment ago: per-thread CPU and mappings of watched processes, CPU of every process of the host. Captures
 * are compared with these, which is how an incident knows what a thread did *before* the trigger.
 *
 * Fed by the scans of discovery, under whose lock everything here stands. A process that did not run since the last scan costs
 * nothing: its last snapshot still holds. Each scan has a budget of threads and of mappings; what does not fit is served by the next.
 */
#ifndef SPIKEWATCH_BASELINE_H
#define SPIKEWATCH_BASELINE_H

#include "busy_snapshot.h"
#include "clock.h"
#include "maps_snapshot.h"
#include "outside.h"
#include "procfs.h"
#include "thread_snapshot.h"

#include <stdbool.h>
#include <stdint.h>

struct baseline;

/* Processes that have one; beyond them captures have nothing to compare with. */
#define BASELINE_PROCESSES_MAX 4096u

/* procfd must outlive it. with_maps: mappings too. 0 or -ENOMEM. */
int baseline_new(int procfd, bool with_maps, struct baseline **ret);
void baseline_free(struct baseline *baseline);

/* Where threads and mappings are read; nowhere else than under the lock at first. */
void baseline_set_outside(struct baseline *baseline, struct outside outside);

/* Mappings too from now on, or no longer: then those that are there are dropped. */
void baseline_set_maps(struct baseline *baseline, bool with_maps);

/* A scan begins. */
void baseline_scan_begin(struct baseline *baseline, mono_t now);

/* The scan met this process. True: it is new, or has run since the last scan. */
bool baseline_met(struct baseline *baseline, const struct procfs_stat *stat);

/* And it is watched: snapshots are taken as needed. ran: what baseline_met said. */
void baseline_watched(struct baseline *baseline, const struct procfs_stat *stat, bool ran);

/* Nobody asked whether it is watched, because it did not run: if it has snapshots they still hold. */
void baseline_unchanged(struct baseline *baseline, const struct procfs_stat *stat);

/* Whether a snapshot of a watched process is still to be taken, although it may not have run, and this scan has the budget for it. */
bool baseline_owes(const struct baseline *baseline, int32_t pid);

/* The scan is over: what it did not meet is forgotten. */
void baseline_scan_end(struct baseline *baseline);

/* Copies what there is of a process; both are left empty (NULL) if there is nothing. The caller's to release and free. */
void baseline_copy(const struct baseline *baseline, int32_t pid, struct thread_baseline *ret_threads,
		   struct maps_snapshot **ret_maps);

/* Copies the CPU times of all processes as of the last whole scan. 0 or -ENOMEM (*ret is then empty). */
int baseline_copy_busy(const struct baseline *baseline, struct busy_snapshot *ret);

#endif
