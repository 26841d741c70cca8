/*
 * collector.h: the worker thread that collects evidence and writes incidents. It takes jobs in order; whatever it does may be slow.
 */
#ifndef SPIKEWATCH_COLLECTOR_H
#define SPIKEWATCH_COLLECTOR_H

#include "capture.h"
#include "hooks.h"
#include "incident.h"
#include "jobs.h"
#include "panorama.h"
#include "session.h"
#include "slice.h"
#include "spool.h"
#include "stackcapture.h"
#include "target.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>
#include <stdint.h>

struct collector;

/* What the configuration said when it was opened: it ends as it began. */
struct collector_settings {
	uint64_t before_ns, after_ns;
	uint64_t interval_ns; /* of the sampler */
	uint64_t max_bytes;   /* of samples.tsv, in an incident of everything */
	unsigned captures;    /* CONFIG_CAPTURE_... */
	uint64_t max_incident_bytes;
	uint64_t again_ns; /* from the first look at the memory to the second; 0: there is none */
};

/* A process that was looked at. */
struct collector_member {
	int32_t pid;
	uint64_t start_ticks;
};

/* An incident from the firing to the disk. */
#define COLLECTOR_NO_WRITER UINT32_MAX

struct collector_incident {
	struct collector_incident *next; /* in the main thread's list, then in the job queue */
	/* The main thread's until collector_seal. */
	struct incident info;
	struct slice *slice; /* NULL: of everything */
	uint32_t
		writer; /* who looks at the target: only its ticks count (ring.h). COLLECTOR_NO_WRITER: not known yet */
	mono_t followed; /* ticks up to here are in the slice; of everything: when the worker was last asked to follow */
	/* Set before collector_capture, then only read. */
	unsigned char encoded[TARGET_ENCODED_MAX];
	struct target target; /* strings point into encoded */
	mono_t fired;
	wall_t wall; /* of fired */
	struct collector_settings settings;
	struct hookplan *plan; /* the commands to be run; NULL: none */
	/* Both threads': a job to follow is queued. */
	atomic_bool following;
	/* The worker's. */
	struct collector *collector; /* whose it is, once it was captured */
	struct spool_draft *draft;
	struct incident evidence;    /* as of the firing, with the captures that were run then */
	struct panorama *panorama;   /* of everything: NULL when it could not be opened, or has failed, */
	int panorama_error;          /* for this reason */
	int error;                   /* why there is no draft */
	struct stackcapture *stacks; /* what the rings held at the firing; NULL: there are none */
	mono_t captured;             /* when the first look was over */
	struct collector_member members[CAPTURE_MEMBERS_MAX];
	size_t member_count;
	struct hookrun *run; /* the commands, from their start until they are reported */
	mono_t again_at;     /* 0: there is no second look, or it has been taken */
	struct collector_incident *again_next;
	struct jobs_pending pending; /* the queue's: what sealing waits for */
};

/* Whether a tick of this writer counts. */
static inline bool collector_incident_is_of(const struct collector_incident *incident, uint32_t writer)
{
	return incident->writer == COLLECTOR_NO_WRITER || incident->writer == writer;
}

struct collector_counts {
	uint64_t sealed, failed, removed;
};

/* What the configuration says for an incident that is opened now. */
struct collector_settings collector_settings_of(const struct config *config);

/* Starts the thread. spool is the thread's alone until collector_stop, but for what spool.h says. 0; -ENOMEM; -errno. */
int collector_new(struct session *session, struct spool *spool, struct collector **ret);

/* Since when it has been at the job that it is doing now; 0: it is idle. Any thread. */
mono_t collector_busy_since(const struct collector *collector);

/* The CPU clock of its thread, for sampler_exempt. */
clockid_t collector_cpu_clock(const struct collector *collector);

/*
 * Queues the captures of what would be gone later. incident stays the caller's but for the worker's fields. One of everything comes before
 * all that is queued: its past is in the ring only.
 */
void collector_capture(struct collector *collector, struct collector_incident *incident);

/* Of everything: queues the writing of what the ring has got since. What is queued already is not queued twice. */
void collector_follow(struct collector *collector, struct collector_incident *incident);

/*
 * Hands the incident over: when its commands have ended and the second look has been taken, its samples are written, it is sealed, the
 * spool's limits are enforced, and it is freed.
 */
void collector_seal(struct collector *collector, struct collector_incident *incident);

/* Queues what is done after each incident: old ones go until the spool's limits are kept, and there is room for the next. */
void collector_enforce(struct collector *collector);

/*
 * Finishes all jobs and ends the thread: commands are given a moment (hooks_stop), what else was to come later is not done. Harmless if it has ended. At
 * one job for long it hangs, mostly in a read of the files of a process, and is not waited for any longer. True: it has ended. False: it hangs (said in the log), and
 * may wake at any time: the session and the spool must be left as they are until the end of the process, or until this, called again, says that it has ended, which
 * it then does without waiting.
 */
bool collector_stop(struct collector *collector);

/* Stops it, and frees nothing if that gives false. NULL is fine. */
void collector_free(struct collector *collector);

/* Totals so far. */
void collector_counts(struct collector *collector, struct collector_counts *ret);

/* Frees an incident that was never handed over. */
void collector_incident_free(struct collector_incident *incident);

#endif
