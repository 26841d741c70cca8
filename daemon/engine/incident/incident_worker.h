/*
 * incident_worker.h: what is done for an incident after its first captures and before it is sealed:
 * the commands of its target, and the second look at its memory.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_INCIDENT_WORKER_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_INCIDENT_WORKER_H

#include "daemon/engine/incident/capture.h"
#include "daemon/engine/incident/hooks.h"
#include "daemon/engine/incident/ring_recorder.h"
#include "daemon/engine/incident/spool.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_capture.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/incident/incident.h"
#include "lib/incident/sample_window.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/*
 * jobs.h: a queue of jobs for one thread that works them off in order, and things that some of them
 * have to wait for. Any thread may put jobs and finish things; jobs_next, jobs_urgent and jobs_park
 * are the worker's.
 */

enum jobs_order {
	JOBS_LAST,   /* at the end of the queue */
	JOBS_URGENT, /* before all that are not, behind those that are */
	JOBS_FIRST,  /* before all others; urgent, too */
};

/* Whoever makes one says what it means; the queue only links it. */
struct job {
	struct job *next;
	int kind;
	void *subject;
	bool urgent; /* the queue's */
};

/* What is unfinished of one subject, and the job that waits for it. {0}: nothing. */
struct jobs_pending {
	unsigned unfinished;
	struct job *parked;
};

struct jobs {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job *first, **last;
	size_t waiting; /* subjects with something unfinished */
	bool stop;
};

/* Empty, in the caller's storage. Whoever releases it has stopped it, and the worker has ended. */
void jobs_init(struct jobs *jobs);

/* Frees what jobs_init has taken. */
void jobs_release(struct jobs *jobs);

/* The job is the queue's until jobs_next or jobs_urgent hands it out. */
void jobs_put(struct jobs *jobs, struct job *job, enum jobs_order order);

/* No more jobs will be put, but for those that are parked: jobs_next ends when they are done. */
void jobs_stop(struct jobs *jobs);

enum { JOBS_DUE = 1, JOBS_END = 2 };

/*
 * Waits for the next job: 0: *ret. JOBS_DUE: it is `until`, or jobs_stop was called before it is
 * (until.ns 0: never). JOBS_END: stopped, and there is nothing left to do or to wait for.
 */
int jobs_next(struct jobs *jobs, const struct clock *clock, mono_t until, struct job **ret);

/*
 * The next job, if it is an urgent one: for a worker that has a moment in the middle of another.
 * NULL: there is none. Does not wait.
 */
struct job *jobs_urgent(struct jobs *jobs);

/* Whether jobs_stop was called. */
bool jobs_stopping(struct jobs *jobs);

/* One thing more to be finished; and it is: the last one puts the job that was parked. */
void jobs_begin(struct jobs *jobs, struct jobs_pending *pending);
void jobs_finish(struct jobs *jobs, struct jobs_pending *pending);

/* True: something is unfinished, and job will be put again when nothing is. */
bool jobs_park(struct jobs *jobs, struct jobs_pending *pending, struct job *job);

/*
 * incident_worker.h: the worker thread that collects evidence and writes incidents. It takes jobs
 * in order; whatever it does may be slow.
 */

struct incident_worker;

/* What the configuration said when it was opened: it ends as it began. */
struct incident_worker_settings {
	uint64_t before_ns, after_ns;
	uint64_t interval_ns; /* of the sampler */
	uint64_t max_bytes;   /* of samples.tsv, in an incident of everything */
	unsigned captures;    /* CONFIG_CAPTURE_... */
	uint64_t max_incident_bytes;
	uint64_t again_ns; /* from the first look at the memory to the second; 0: there is none */
};

/* A process that was looked at. */
struct incident_worker_member {
	int32_t pid;
	uint64_t start_ticks;
};

/* An incident from the firing to the disk. */
#define INCIDENT_WORKER_NO_WRITER UINT32_MAX

struct incident_worker_incident {
	struct incident_worker_incident *next; /* in the main thread's list, then in the job queue */
	/* The main thread's until incident_worker_seal. */
	struct incident info;
	struct sample_window *sample_window; /* NULL: of everything */
	uint32_t
		writer; /* who looks at the target: only its ticks count (ring.h). INCIDENT_WORKER_NO_WRITER: not known yet */
	/*
	 * ticks up to here are in the slice; of everything: when the worker was last asked to
	 * follow
	 */
	mono_t followed;
	/* Set before incident_worker_capture, then only read. */
	unsigned char encoded[TARGET_ENCODED_MAX];
	struct target target; /* strings point into encoded */
	mono_t fired;
	wall_t wall; /* of fired */
	struct incident_worker_settings settings;
	struct hook_plan *plan; /* the commands to be run; NULL: none */
	/* Both threads': a job to follow is queued. */
	atomic_bool thread_selection;
	/* The worker's. */
	struct incident_worker *incident_worker; /* whose it is, once it was captured */
	struct spool_draft *draft;
	struct incident evidence;              /* as of the firing, with the captures that were run then */
	struct full_recording *full_recording; /* of everything: NULL when it could not be opened, or has failed, */
	int full_recording_error;              /* for this reason */
	int error;                             /* why there is no draft */
	struct stack_capture *stacks;          /* what the rings held at the firing; NULL: there are none */
	mono_t captured;                       /* when the first look was over */
	struct incident_worker_member members[CAPTURE_MEMBERS_MAX];
	size_t member_count;
	struct hookrun *run; /* the commands, from their start until they are reported */
	mono_t again_at;     /* 0: there is no second look, or it has been taken */
	struct incident_worker_incident *again_next;
	struct jobs_pending pending; /* the queue's: what sealing waits for */
};

/* Whether a tick of this writer counts. */
static inline bool incident_worker_incident_is_of(const struct incident_worker_incident *incident, uint32_t writer)
{
	return incident->writer == INCIDENT_WORKER_NO_WRITER || incident->writer == writer;
}

struct incident_worker_counts {
	uint64_t sealed, failed, removed;
};

/* What the configuration says for an incident that is opened now. */
struct incident_worker_settings incident_worker_settings_of(const struct config *config);

/*
 * Starts the thread. stuck_ns: config_file.stuck_ns. spool is the thread's alone until incident_worker_stop, but for what spool.h
 * says. 0; -ENOMEM; -errno.
 */
int incident_worker_new(struct session *session, struct spool *spool, uint64_t stuck_ns, struct incident_worker **ret);

/* Since when it has been at the job that it is doing now; 0: it is idle. Any thread. */
mono_t incident_worker_busy_since(const struct incident_worker *incident_worker);

/* The CPU clock of its thread, for sampler_exempt. */
clockid_t incident_worker_cpu_clock(const struct incident_worker *incident_worker);

/*
 * Queues the captures of what would be gone later. incident stays the caller's but for the worker's
 * fields. One of everything comes before all that is queued: its past is in the ring only.
 */
void incident_worker_capture(struct incident_worker *incident_worker, struct incident_worker_incident *incident);

/*
 * Of everything: queues the writing of what the ring has got since. What is queued already is not
 * queued twice.
 */
void incident_worker_follow(struct incident_worker *incident_worker, struct incident_worker_incident *incident);

/*
 * Hands the incident over: when its commands have ended and the second look has been taken, its
 * samples are written, it is sealed, the spool's limits are enforced, and it is freed.
 */
void incident_worker_seal(struct incident_worker *incident_worker, struct incident_worker_incident *incident);

/*
 * Queues what is done after each incident: old ones go until the spool's limits are kept, and there
 * is room for the next.
 */
void incident_worker_enforce(struct incident_worker *incident_worker);

/*
 * Finishes all jobs and ends the thread: commands are given a moment (hooks_stop), what else was to
 * come later is not done. Harmless if it has ended. At one job for long it hangs, mostly in a read
 * of the files of a process, and is not waited for any longer. True: it has ended. False: it hangs
 * (said in the log), and may wake at any time: the session and the spool must be left as they are
 * until the end of the process, or until this, called again, says that it has ended, which it then
 * does without waiting.
 */
bool incident_worker_stop(struct incident_worker *incident_worker);

/* Stops it, and frees nothing if that gives false. NULL is fine. */
void incident_worker_free(struct incident_worker *incident_worker);

/* Totals so far. */
void incident_worker_counts(struct incident_worker *incident_worker, struct incident_worker_counts *ret);

/* Frees an incident that was never handed over. */
void incident_worker_incident_free(struct incident_worker_incident *incident);

/*
 * What the configuration wants for an incident of this target and rule, which must be known. The
 * main thread, before incident_worker_capture. Without memory for it the incident says so.
 */
void follow_up_plan(struct incident_worker_incident *incident, const struct config *config);

#endif
