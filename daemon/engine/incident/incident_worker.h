/*
 * incident_worker.h: the thread that collects evidence and writes incidents: all that waits for
 * /proc or symbols, and by a second thread for the disk.
 *
 *     incident_worker_open ──▶ incident_worker_follow (all targets only) ──▶ incident_worker_seal
 *
 * Each incident is a struct incident_request, constant and read by both threads, and a struct
 * incident_work, which is the worker's: to the event loop it is a handle. All functions are the
 * event loop's, but for incident_worker_busy_since.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_INCIDENT_WORKER_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_INCIDENT_WORKER_H

#include "daemon/engine/incident/incident_request.h"
#include "lib/base/base.h"

#include <stdbool.h>
#include <stdint.h>

struct buffer;
struct notifier;
struct notify_plan;
struct sample_window;
struct session;
struct spool;

struct incident_worker;
struct incident_work;

struct incident_worker_counts {
	uint64_t sealed, failed, removed;
	uint64_t held, held_bytes; /* captures that were taken and are not on the disk yet */
};

/*
 * Starts the threads (what they take is not charged to sampling: samplers_charge), to which the spool
 * belongs until incident_worker_stop, but for what spool.h says. notifier must outlive it; NULL: nothing
 * is told. stuck_ns: how long the stop waits for one job; 0: 10 s, because evidence of many gigabytes
 * takes some seconds on a slow disk, a blocked read of /proc forever. 0; -ENOMEM; -errno.
 */
int incident_worker_new(struct session *session, struct spool *spool, struct notifier *notifier, uint64_t stuck_ns,
			struct incident_worker **ret);

/* Stops it, and frees nothing if that returns false. NULL is fine. */
void incident_worker_free(struct incident_worker *worker);

/*
 * Queues what is lost by waiting: stacks, captures, commands; for an incident of all targets, whose
 * past is in the ring only, before everything else that is queued. Takes request, also when it
 * fails. 0: *ret, until incident_worker_seal; -ENOMEM.
 */
int incident_worker_open(struct incident_worker *worker, struct incident_request *request, struct incident_work **ret);

/*
 * Of an incident of all targets: queues the copying of what the ring has got since, unless that is
 * queued already.
 */
void incident_worker_follow(struct incident_worker *worker, struct incident_work *work);

/*
 * Hands everything over: as soon as the commands have ended and the second snapshot was taken, the
 * samples are written, the incident is sealed, the spool's limits are enforced, and all is freed.
 * window: the samples, NULL for all targets; over: for all targets,
 * whether the time after the firing is over, and not cut short; info: the request's with what was merged since, from
 * malloc; tell: by whom it is told afterwards, NULL: by none. Cannot fail.
 */
void incident_worker_seal(struct incident_worker *worker, struct incident_work *work, struct sample_window *window,
			  bool over, struct incident *info, struct notify_plan *tell);

/*
 * Queues an incident that is one file, whose text is taken: *text is empty then. A file that cannot be
 * written is a capture that has failed. Takes info, from malloc, of all targets, and tell. 0; -ENOMEM.
 */
int incident_worker_record(struct incident_worker *worker, struct incident *info, const char *file, struct buffer *text,
			   struct notify_plan *tell);

/* Queues spool_enforce alone, for room for the next incident, unless it is queued already. */
void incident_worker_enforce(struct incident_worker *worker);

/*
 * Whether the file system had room when the worker looked last; true as long as it has not.
 * expected_bytes: has it look again, for so many bytes; 0: no. A look may wait for the disk.
 */
bool incident_worker_has_space(struct incident_worker *worker, uint64_t expected_bytes);

/*
 * Finishes all jobs and ends the thread: commands are stopped (hooks_stop), second snapshots are
 * skipped. True: it has ended, or had before. False: one job takes longer than stuck_ns, or all
 * together 15 s, mostly for a slow disk or in a read of the files of a process (logged, with the name of
 * each incident that is not written). It may
 * continue at any time, so the session and the spool must not be freed before the process ends, or
 * before a later call, which does not wait, returns true.
 */
bool incident_worker_stop(struct incident_worker *worker);

/* When the job that runs now was begun; 0: none runs. Any thread. */
mono_t incident_worker_busy_since(const struct incident_worker *worker);

/* Totals so far. */
struct incident_worker_counts incident_worker_counts(const struct incident_worker *worker);

#endif
