/*
 * incident_worker.c: a queue of jobs and the thread that works them off; from the opening of an
 * incident to its sealed directory, in this order.
 *
 *     open ─┬─▶ draft ───────────┬─▶ save, commands, second snapshot ──▶ seal: stacks, leftover files,
 *           └─▶ take, in memory ─┘                                      samples, rename; limits
 *
 * What is lost by waiting comes first: the draft is made, which is what the incident is known by, and
 * meanwhile the stacks of the time before the firing and the captures are taken into memory. Then they
 * are saved there, and the commands are started. Naming stacks takes long, and so may the disk; jobs of
 * other incidents that cannot wait run meanwhile (take_turn).
 *
 * The disk. What may wait for it is a step: a function that this thread, which owns all state, has
 * called by a second one, "disk", of whom one call runs at a time (on_disk).
 *
 *     worker: on_disk ──▶ takes what cannot wait, of others too ──────▶ goes on
 *     disk:   step (draft, saving, seal, retention, ...) ──▶ done
 *
 * Until the step returns it alone touches its work's draft, recording, window and incident, and the
 * spool; the worker takes stacks and captures, which touches none of these, and begins no other step,
 * unless the disk offers a turn between two calls of a long one (offer_turn). So the hand-over is all
 * that needs a lock. A disk of seconds a call delays drafts and seals, and no evidence: that is bounded
 * (HELD_MAX), and counted until it is saved.
 *
 * Ownership. The request is constant. The fields of a work that the queue's lock protects are its
 * jobs, what it still waits for, and what incident_worker_seal hands over; the rest is the worker's
 * alone, and lent to a step. Jobs are part of the work, so that queueing cannot fail. A work is sealed
 * when it was handed over and waits for nothing more: the opening, the compression of its stacks, the
 * commands (reported from the thread of hooks.c) and the second snapshot each count as one. Nothing
 * here refers to a configuration, so a reload has nothing to wait for.
 *
 * Turns. Of jobs of equal urgency the next is one of root's and of system services, else one of the
 * user whose jobs have taken least of the worker's time lately, and of those the oldest. While others
 * wait, stacks of a user are named for some seconds at most. So what one user's programs do, however
 * often and however large they are, delays the incidents of others by one job.
 *
 * A full disk. Captures are written at the firing, samples when the window is over, although
 * samples matter most. So room for them is made by removing old incidents, as far as retention
 * allows, then the captures, the largest first; samples are removed only if incident.json does not
 * fit otherwise. If removing all captures would not be enough for the samples, the captures stay.
 * Old incidents make room too for the directory, for the file of a record and for incident.json.
 * Errors that do not depend on free space cost the one file they hit.
 */
#include "daemon/engine/incident/incident_worker.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/incident/capture.h"
#include "daemon/engine/incident/hooks.h"
#include "daemon/engine/incident/notify.h"
#include "daemon/engine/incident/ring_recorder.h"
#include "daemon/engine/incident/spool.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_capture.h"
#include "daemon/engine/targets/discovery.h"
#include "lib/base/io.h"
#include "lib/config/config.h"
#include "lib/incident/incident.h"
#include "lib/incident/sample_window.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/stream/sample_stream.h"
#include "lib/stream/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Second snapshots that may be pending; each keeps an incident in memory beyond its window. */
#define AGAIN_MAX 16

/* For naming all stacks while the daemon stops. */
#define STOP_STACKS_NS (8 * NS_PER_S)

/* How long one job may take while the daemon stops, by default, and how often the stop checks for it. */
#define STUCK_NS (10 * NS_PER_S)
#define STUCK_CHECK_NS (NS_PER_S / 4)

/* How long all jobs together may take then: a third of TimeoutStopSec= of the unit (daemon/service/main.c). */
#define STOP_NS (15 * NS_PER_S)

/*
 * How long stacks of a user's incident are named while seals of others wait, of all such incidents
 * that have taken NAMING_MUCH_NS lately; nearly all are named within the first.
 */
#define NAMING_NS (3 * NS_PER_S)
#define NAMING_LITTLE_NS NS_PER_S
#define NAMING_MUCH_NS (10 * NS_PER_S)

/* Users whose time is known; the least is forgotten for another. It is forgotten at half its pace. */
#define TURNS_MAX 64
#define TURN_FORGET 2
#define TURN_MAX_NS (60 * NS_PER_S)

/* The same failure is logged once in this time. */
#define FAILURE_LOG_NS (60 * NS_PER_S)

/*
 * Captures in memory that are not saved yet: a few hundred KB unless a disk stands still. A text may
 * take a quarter of what is left, and always a little: many large ones do not take it all from the next.
 */
#define HELD_MAX ((size_t)8 << 20)
#define HELD_LEAST 4096u

/* A step that takes longer is waited for by compressing stacks; after one that does not, commands come first. */
#define SLOW_STEP_NS (NS_PER_S / 10)

/* incident.json, MANIFEST, and the blocks that directories take. */
#define METADATA_BYTES 16384u

/* File systems allocate blocks of this size. */
#define BLOCK_BYTES 4096u

enum job_kind { JOB_TAKE, JOB_PREPARE, JOB_OPEN, JOB_SAVE, JOB_FOLLOW, JOB_SEAL, JOB_ENFORCE, JOB_SPACE };

/* Behind those that are as urgent. All but the last are urgent. */
enum job_order {
	JOB_LAST,
	JOB_SOON, /* while the disk is waited for, if that takes long: without a step */
	JOB_URGENT,
	JOB_NOW,   /* while the disk is waited for, too: without a step */
	JOB_FIRST, /* before all others, those that are first, too */
};

/* Part of the struct it belongs to. All but kind and work under the queue's lock. */
struct job {
	struct job *next;
	struct incident_work *work; /* NULL: JOB_ENFORCE, JOB_SPACE */
	enum job_kind kind;
	enum job_order order;
	bool queued;
};

/* What the jobs of a user have taken of the worker's time lately. */
struct turn {
	uint64_t owner; /* struct incident_work's; 0: free */
	uint64_t used_ns;
	mono_t at; /* as of then */
};

struct job_queue {
	struct turn turns[TURNS_MAX]; /* the worker's alone */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job *first, **last;
	struct incident_work *works; /* that are not freed */
	size_t waiting;              /* works that wait for something */
	bool stop;
};

struct incident_work {
	struct incident_worker *worker;
	struct incident_request *request; /* constant */
	uint64_t owner;                   /* the request's */

	/* Under the lock of the queue. */
	struct incident_work *next; /* of all */
	struct job take, prepare, open, save, follow, seal;
	unsigned awaited; /* what must be finished before it is sealed */
	bool handed_over;
	char drafted[INCIDENT_NAME_MAX + 1]; /* its name, when there is a draft */

	/* Handed over by incident_worker_seal. */
	struct sample_window *window; /* NULL: of all targets */
	bool over;                    /* the time of the samples, for all targets */
	struct incident *info;        /* becomes incident.json */

	/* Of incident_worker_record. */
	const char *file;
	struct buffer text;

	/* The worker's alone, or the step's. */
	struct spool_draft *draft;
	int draft_error;                  /* why there is no draft */
	struct incident *captured;        /* the request's info, to which records of what was captured are added */
	struct full_recording *recording; /* of all targets; NULL: none, or it has failed */
	int recording_error;              /* why */
	struct stack_capture *stacks;     /* what the rings held at the firing; NULL: nothing */
	struct target_member *members;    /* as far as they are known, those of the time before the firing */
	size_t member_count;
	struct capture_processes processes;
	struct incident_capture unsecured; /* why there are no stacks; without a name: there are, or none were wanted */
	struct capture_files first, second; /* snapshots that are not saved yet */
	bool second_is_due;                 /* when the draft is noted: it is not saved yet */
	bool room_made;                     /* make_room was called */
	bool taken, opening;                /* whether take_work has run, and open_work has begun */
	struct hook_run *run;               /* the commands, from their start until they are reported */
	struct notify_plan *tell;           /* NULL: nothing is told of it */
	mono_t again_at;                    /* when the second snapshot is due; 0: there is none, or it was taken */
	struct incident_work *again_next;
};

/* {0}: nothing has failed. */
struct write_failures {
	int error; /* the last; 0: none since an incident was sealed */
	mono_t logged;
	uint64_t lost, unlogged;
};

enum disk_state { DISK_IDLE, DISK_GIVEN, DISK_BUSY, DISK_OFFERS, DISK_RESUMED, DISK_DONE, DISK_END };

/* All but the thread under the queue's lock. */
struct disk {
	pthread_t thread;
	bool running; /* the event loop's */
	pthread_cond_t wake;
	enum disk_state state;
	void (*step)(void *argument);
	void *argument;
};

struct incident_worker {
	struct session *session;
	struct spool *spool;
	struct clock clock;
	uint64_t stuck_ns;
	struct job_queue queue;
	struct disk disk;
	struct job enforce, space;
	_Atomic uint64_t expected_bytes; /* of space */
	_Atomic bool space_is_short;     /* its answer */
	struct hooks *hooks;
	struct notifier *notifier;
	pthread_t thread;
	bool running, abandoned; /* the event loop's */
	_Atomic uint64_t busy_since;
	_Atomic uint64_t sealed, failed, removed, held, held_bytes; /* struct incident_worker_counts */

	/* The thread's alone, or the step's. */
	struct write_failures failures;
	struct stack_held stacks_held; /* by incidents that are open */
	int kernel_symbols;            /* for their stacks; -1 */
	mono_t stop_by;                /* for naming stacks; 0: the stop was not noticed yet */
	int enforce_error;             /* of the last spool_enforce */
	struct incident_work *again;   /* list of works whose second snapshot is pending */
	bool disk_works;               /* no step may be begun */
	uint64_t charged;              /* whose job runs: struct incident_work's owner */
	mono_t charged_since, naming_since;
};

/* ---- samples.tsv of an incident of all targets ----
 *
 * Written through a lossy cursor: pages that the sampler overwrote first are counted. Every call may
 * wait for the disk.
 *
 * Rejected: copying the window into memory first. A thousand targets, sampled a
 * thousand times a second, take more memory than the daemon may use; the disk keeps up.
 */

struct full_recording_options {
	const struct ring *ring; /* must outlive it */
	mono_t fired;
	wall_t wall; /* of fired */
	uint64_t before_ns, after_ns;
	uint64_t max_bytes; /* of the file; samples beyond are dropped and counted. 0: no limit */
};

struct full_recording {
	struct full_recording_options options;
	uint64_t interval_ns; /* at the firing: after a reload it may be another */
	int dirfd;            /* the caller's */
	int fd;               /* -1: there is no file */
	struct ring_cursor *cursor;
	struct recorder *recorder;
	int error;
};

/* Frees it and removes the file. NULL is fine. */
static void full_recording_abort(struct full_recording *recording)
{
	struct stats nothing = { 0 };

	if (!recording)
		return;

	recorder_close(recording->recorder, &nothing, 0, NULL);
	ring_cursor_free(recording->cursor);
	if (recording->fd >= 0) {
		unlinkat(recording->dirfd, INCIDENT_SAMPLES_FILE, 0);
		close(recording->fd);
	}
	free(recording);
}
CLEANUP(full_recording, abort);

/* Writes what was sampled since. 0; -errno: the first error, also from all later calls. */
static int full_recording_follow(struct full_recording *recording)
{
	if (recording->error == 0)
		recording->error = recorder_pump(recording->recorder);
	if (recording->error == 0)
		recording->error = recorder_flush(recording->recorder);

	return recording->error;
}

static struct recorder_options recorder_options_of(const struct full_recording_options *options)
{
	struct recorder_options recorder = {
		.format = STREAM_SPIKEWATCH,
		.start = mono_sub(options->fired, options->before_ns),
		.until = mono_add(options->fired, options->after_ns),
		.max_bytes = options->max_bytes,
	};

	recorder.start_wall.ns = options->wall.ns - (uint64_t)mono_diff(options->fired, recorder.start);

	return recorder;
}

static int start_recorder(struct full_recording *recording, struct sink sink)
{
	struct recorder_options recorder = recorder_options_of(&recording->options);
	int r = ring_cursor_new(recording->options.ring, RING_OLDEST, &recording->cursor);

	if (r < 0)
		return r;

	ring_cursor_seek(recording->cursor, recorder.start);

	return recorder_new(recording->cursor, sink, &recorder, &recording->recorder);
}

/*
 * How large the file would be, within a hundred bytes, if it were opened and closed now (over: as there). 0;
 * -ENOMEM. Costs as much as writing it without a disk.
 */
static int full_recording_bytes(const struct full_recording_options *options, bool over, uint64_t *ret_bytes)
{
	struct full_recording recording = { .options = *options, .dirfd = -1, .fd = -1 };
	struct stats stats = { 0 };
	uint64_t bytes = 0;
	int r = start_recorder(&recording, sink_count(&bytes));

	ring_stats(options->ring, &stats);
	if (r == 0) {
		int followed = full_recording_follow(&recording); /* a flush adds a checksum of its own */

		r = recorder_close(recording.recorder, &stats, over ? ring_interval_ns(options->ring) : 0, NULL);
		r = followed < 0 ? followed : r;
	}
	ring_cursor_free(recording.cursor);
	if (r == 0)
		*ret_bytes = bytes;

	return r;
}

/*
 * Makes samples.tsv in dirfd and writes what the ring holds of the window by now. 0; -ENOMEM;
 * -errno, and then there is no such file. dirfd stays the caller's and must outlive it.
 */
static int full_recording_open(const struct full_recording_options *options, int dirfd, struct full_recording **ret)
{
	AUTO(full_recording_abortp) struct full_recording *recording = calloc(1, sizeof *recording);
	int r;

	if (!recording)
		return -ENOMEM;

	recording->options = *options;
	recording->interval_ns = ring_interval_ns(options->ring);
	recording->dirfd = dirfd;
	recording->fd = -1;
	recording->fd =
		openat(dirfd, INCIDENT_SAMPLES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	if (recording->fd < 0)
		return -errno;
	r = start_recorder(recording, sink_fd(&recording->fd));
	if (r == 0)
		r = full_recording_follow(recording);
	if (r < 0)
		return r;
	*ret = TAKE(recording);

	return 0;
}

/* As sample_window_coverage; with several writers, its ticks are those of the one that missed most. */
static struct sample_window_coverage coverage_of(const struct full_recording *recording,
						 const struct recorder_counts *counts)
{
	const struct full_recording_options *options = &recording->options;
	struct sample_window_coverage coverage = counts->coverage, worst;

	coverage.want_before_ns = options->before_ns;
	coverage.want_after_ns = options->after_ns;
	coverage.samples = counts->rows;
	coverage.samples_dropped = counts->dropped;
	worst = coverage;
	for (size_t i = 0; i < RECORDER_WRITERS; i++) {
		struct sample_window_coverage of_writer = coverage;

		of_writer.ticks_got = counts->writers[i].ticks;
		sample_window_cover_ticks(options->fired, &counts->writers[i].span, recording->interval_ns, &of_writer);
		if (of_writer.ticks_got > 0 && (worst.ticks_got == 0 || of_writer.capture_rate < worst.capture_rate))
			worst = of_writer;
	}

	return worst;
}

/*
 * Follows once more, ends the file, frees. over: the window was over before this call, so that it may end in a hole.
 * 0: *ret, how much of the window there is, and the size
 * of the file; -errno: the first error, and the file is removed.
 */
static int full_recording_close(struct full_recording *recording, bool over, struct sample_window_coverage *ret,
				uint64_t *ret_bytes)
{
	AUTO(full_recording_abortp) struct full_recording *owned = recording;
	struct recorder_counts counts;
	struct stats stats = { 0 };
	struct stat st;
	int r = full_recording_follow(owned);

	if (r < 0)
		return r;

	ring_stats(owned->options.ring, &stats);
	r = recorder_close(TAKE(owned->recorder), &stats, over ? owned->interval_ns : 0, &counts);
	if (r < 0)
		return r;
	if (fstat(owned->fd, &st) < 0)
		return -errno;

	close(TAKE_FD(recording->fd));
	*ret = coverage_of(recording, &counts);
	*ret_bytes = (uint64_t)st.st_size;

	return 0;
}

/* ---- the queue ---- */

static void queue_init(struct job_queue *queue)
{
	pthread_condattr_t attributes;

	*queue = (struct job_queue){ .last = &queue->first };
	pthread_mutex_init(&queue->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&queue->wake, &attributes);
	pthread_condattr_destroy(&attributes);
}

static void queue_release(struct job_queue *queue)
{
	pthread_cond_destroy(&queue->wake);
	pthread_mutex_destroy(&queue->lock);
}

/* The lock is held. */
static void queue_insert(struct job_queue *queue, struct job *job, enum job_order order)
{
	struct job **at = order == JOB_LAST ? queue->last : &queue->first;

	while (*at && order < JOB_FIRST && (*at)->order >= order)
		at = &(*at)->next;
	job->order = order;
	job->queued = true;
	job->next = *at;
	*at = job;
	if (!job->next)
		queue->last = &job->next;
	pthread_cond_signal(&queue->wake);
}

/* What is queued already is not queued twice. */
static void queue_put(struct job_queue *queue, struct job *job, enum job_order order)
{
	pthread_mutex_lock(&queue->lock);
	if (!job->queued)
		queue_insert(queue, job, order);
	pthread_mutex_unlock(&queue->lock);
}

static uint64_t used_at(const struct turn *turn, mono_t now)
{
	int64_t forgotten = mono_diff(now, turn->at) / TURN_FORGET;

	if (forgotten <= 0)
		return turn->used_ns;
	return turn->used_ns > (uint64_t)forgotten ? turn->used_ns - (uint64_t)forgotten : 0;
}

/* What jobs of this owner have taken lately. */
static uint64_t queue_used(const struct job_queue *queue, uint64_t owner, mono_t now)
{
	for (size_t i = 0; owner && i < TURNS_MAX; i++)
		if (queue->turns[i].owner == owner)
			return used_at(&queue->turns[i], now);
	return 0;
}

static void queue_charge(struct job_queue *queue, uint64_t owner, uint64_t ns, mono_t now)
{
	struct turn *turn = queue->turns;
	uint64_t used = queue_used(queue, owner, now) + ns;

	for (size_t i = 0; i < TURNS_MAX && turn->owner != owner; i++)
		if (queue->turns[i].owner == owner || used_at(&queue->turns[i], now) < used_at(turn, now))
			turn = &queue->turns[i];
	if (owner)
		*turn = (struct turn){ owner, used < TURN_MAX_NS ? used : TURN_MAX_NS, now };
}

/* Whether a job of this owner comes before one of the other. */
static bool has_precedence(const struct job_queue *queue, uint64_t owner, uint64_t other, mono_t now)
{
	if (owner == 0 || other == 0)
		return owner == 0 && other != 0;
	return queue_used(queue, owner, now) < queue_used(queue, other, now);
}

static uint64_t owner_of(const struct job *job)
{
	return job->work ? job->work->owner : 0;
}

/* The lock is held. Takes out what is there. */
static struct job *queue_remove(struct job_queue *queue, struct job **at)
{
	struct job *job = *at;

	*at = job->next;
	if (!*at)
		queue->last = at;
	job->queued = false;

	return job;
}

/* The lock is held. Of the jobs of this order the one whose turn it is; NULL: there is none. */
static struct job *queue_take(struct job_queue *queue, enum job_order order, mono_t now)
{
	struct job **at = &queue->first, **next;

	while (*at && (*at)->order > order)
		at = &(*at)->next;
	for (next = at; *at && (*at)->order == order; at = &(*at)->next)
		if (has_precedence(queue, owner_of(*at), owner_of(*next), now))
			next = at;

	return *next && (*next)->order == order ? queue_remove(queue, next) : NULL;
}

/* Whether an incident that comes before those of owner could be sealed. */
static bool queue_seals_wait(struct job_queue *queue, uint64_t owner, mono_t now)
{
	bool found = false;

	pthread_mutex_lock(&queue->lock);
	for (const struct job *job = queue->first; job && !found; job = job->next)
		found = job->kind == JOB_SEAL && has_precedence(queue, owner_of(job), owner, now);
	pthread_mutex_unlock(&queue->lock);

	return found;
}

/* The lock is held. */
static void queue_wait(struct job_queue *queue, mono_t until)
{
	struct timespec at = { .tv_sec = (time_t)(until.ns / NS_PER_S), .tv_nsec = (long)(until.ns % NS_PER_S) };

	if (until.ns)
		pthread_cond_timedwait(&queue->wake, &queue->lock, &at);
	else
		pthread_cond_wait(&queue->wake, &queue->lock);
}

enum { QUEUE_DUE = 1, QUEUE_END = 2 };

/*
 * Waits for the next job. 0: *ret. QUEUE_DUE: `until` has come, or the queue was stopped before it
 * (until.ns 0: never). QUEUE_END: stopped, and nothing is queued or waited for.
 */
static int queue_next(struct job_queue *queue, const struct clock *clock, mono_t until, struct job **ret)
{
	int r = -1;

	pthread_mutex_lock(&queue->lock);
	while (r < 0) {
		if (until.ns && (queue->stop || mono_diff(clock_mono(clock), until) >= 0)) {
			r = QUEUE_DUE;
		} else if (queue->first) {
			*ret = queue_take(queue, queue->first->order, clock_mono(clock));
			r = 0;
		} else if (queue->stop && queue->waiting == 0) {
			r = QUEUE_END;
		} else {
			queue_wait(queue, until);
		}
	}
	pthread_mutex_unlock(&queue->lock);

	return r;
}

/* The next job if it is urgent, else NULL. Does not wait. */
static struct job *queue_next_urgent(struct job_queue *queue, mono_t now)
{
	struct job *job = NULL;

	pthread_mutex_lock(&queue->lock);
	if (queue->first && queue->first->order > JOB_LAST)
		job = queue_take(queue, queue->first->order, now);
	pthread_mutex_unlock(&queue->lock);

	return job;
}

/* Takes it out of the queue. False: it is not there. */
static bool queue_withdraw(struct job_queue *queue, struct job *job)
{
	struct job **at = &queue->first;
	bool queued;

	pthread_mutex_lock(&queue->lock);
	queued = job->queued;
	while (queued && *at != job)
		at = &(*at)->next;
	if (queued)
		queue_remove(queue, at);
	pthread_mutex_unlock(&queue->lock);

	return queued;
}

/* After this, only the seals of what was handed over are still put. */
static void queue_stop(struct job_queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	queue->stop = true;
	pthread_cond_signal(&queue->wake);
	pthread_mutex_unlock(&queue->lock);
}

static bool queue_stopping(struct job_queue *queue)
{
	bool stop;

	pthread_mutex_lock(&queue->lock);
	stop = queue->stop;
	pthread_mutex_unlock(&queue->lock);

	return stop;
}

/* What the ring must still have, should the daemon be killed now. The lock is held. */
static void note_unwritten(const struct job_queue *queue, struct ring *ring)
{
	mono_t from = { 0 };
	double severity = 0;

	for (const struct incident_work *work = queue->works; work; work = work->next) {
		const struct incident_request *request = work->request;
		mono_t begin = mono_sub(request->fired, request->settings.before_ns);

		if (request->info.rule.severity > severity)
			severity = request->info.rule.severity;
		if (request->fired.ns && (from.ns == 0 || mono_diff(begin, from) < 0))
			from = begin;
	}
	ring_set_unwritten(ring, from, severity);
}

static void queue_add_work(struct job_queue *queue, struct incident_work *work)
{
	pthread_mutex_lock(&queue->lock);
	work->next = queue->works;
	queue->works = work;
	note_unwritten(queue, session_parts(work->worker->session).ring);
	pthread_mutex_unlock(&queue->lock);
}

static void queue_remove_work(struct job_queue *queue, struct incident_work *work)
{
	struct incident_work **at = &queue->works;

	pthread_mutex_lock(&queue->lock);
	while (*at != work)
		at = &(*at)->next;
	*at = work->next;
	note_unwritten(queue, session_parts(work->worker->session).ring);
	pthread_mutex_unlock(&queue->lock);
}

/* The work waits for one thing more. */
static void work_await(struct job_queue *queue, struct incident_work *work)
{
	pthread_mutex_lock(&queue->lock);
	queue->waiting += work->awaited == 0;
	work->awaited++;
	pthread_mutex_unlock(&queue->lock);
}

/* One of them has finished. Any thread. After the last the work may be sealed and freed at once. */
static void work_finished(struct job_queue *queue, struct incident_work *work)
{
	pthread_mutex_lock(&queue->lock);
	if (--work->awaited == 0) {
		queue->waiting--;
		if (work->handed_over)
			queue_insert(queue, &work->seal, JOB_LAST);
		pthread_cond_signal(&queue->wake);
	}
	pthread_mutex_unlock(&queue->lock);
}

static void work_hand_over(struct job_queue *queue, struct incident_work *work)
{
	pthread_mutex_lock(&queue->lock);
	work->handed_over = true;
	if (work->awaited == 0)
		queue_insert(queue, &work->seal, JOB_LAST);
	pthread_mutex_unlock(&queue->lock);
}

/* ---- the disk ---- */

/* The lock is held. Does the step that was given, or waits. */
static void disk_serve(struct disk *disk, struct job_queue *queue)
{
	void (*step)(void *argument) = disk->step;
	void *argument = disk->argument;

	if (disk->state != DISK_GIVEN) {
		pthread_cond_wait(&disk->wake, &queue->lock);
		return;
	}
	disk->state = DISK_BUSY;
	pthread_mutex_unlock(&queue->lock);
	step(argument);
	pthread_mutex_lock(&queue->lock);
	disk->state = DISK_DONE;
	pthread_cond_signal(&queue->wake);
}

static void *run_disk(void *argument)
{
	struct incident_worker *worker = argument;

	prctl(PR_SET_NAME, "disk");
	pthread_mutex_lock(&worker->queue.lock);
	while (worker->disk.state != DISK_END)
		disk_serve(&worker->disk, &worker->queue);
	pthread_mutex_unlock(&worker->queue.lock);

	return NULL;
}

/* The lock is held. */
static void disk_set(struct disk *disk, enum disk_state state)
{
	disk->state = state;
	pthread_cond_signal(&disk->wake);
}

/*
 * In a step that has several calls, between two of them: if there is a job that cannot wait, the worker
 * does one, and its steps are done here.
 */
static void offer_turn(void *ctx)
{
	struct incident_worker *worker = ctx;
	struct job_queue *queue = &worker->queue;
	struct disk *disk = &worker->disk;

	pthread_mutex_lock(&queue->lock);
	if (queue->first && queue->first->order > JOB_LAST) {
		disk->state = DISK_OFFERS;
		pthread_cond_signal(&queue->wake);
		while (disk->state != DISK_RESUMED)
			disk_serve(disk, queue);
		disk->state = DISK_BUSY;
	}
	pthread_mutex_unlock(&queue->lock);
}

static void work_free(struct incident_work *work)
{
	queue_remove_work(&work->worker->queue, work);
	sample_window_free(work->window);
	buffer_release(&work->text);
	full_recording_abort(work->recording);
	spool_abort(work->draft);
	stack_capture_free(work->stacks);
	free(work->members);
	free(work->tell);
	hook_plan_free(work->request->hooks);
	free(work->request);
	free(work->info);
	free(work);
}

/* ---- open: the draft, stacks, captures ---- */

static bool wants_samples(const struct incident_request *request)
{
	return request->settings.captures & CONFIG_CAPTURE_SAMPLES;
}

static struct full_recording_options recording_options(const struct incident_work *work)
{
	const struct incident_request *request = work->request;

	return (struct full_recording_options){
		.ring = session_parts(work->worker->session).ring,
		.fired = request->fired,
		.wall = request->wall,
		.before_ns = request->settings.before_ns,
		.after_ns = request->settings.after_ns,
		.max_bytes = request->settings.max_samples_bytes,
	};
}

static void open_recording(struct incident_work *work)
{
	struct full_recording_options options = recording_options(work);

	work->recording_error = full_recording_open(&options, spool_draft_parts(work->draft).dirfd, &work->recording);
}

/* For the other thread, should it not wait for this one any longer. */
static void name_draft(struct incident_work *work, const char *name)
{
	struct job_queue *queue = &work->worker->queue;

	pthread_mutex_lock(&queue->lock);
	incident_text(work->drafted, sizeof work->drafted, name);
	pthread_mutex_unlock(&queue->lock);
}

/* Makes the draft, or sets draft_error. Of all targets: begins the recording too. */
static void begin_draft(struct incident_work *work)
{
	const struct incident_request *request = work->request;
	char stem[INCIDENT_NAME_MAX + 1];

	incident_stem(request->wall, request->target.name, request->info.rule.name, stem, sizeof stem);
	work->draft_error = spool_begin(work->worker->spool, stem, &work->draft);
	if (work->draft_error < 0)
		work->draft = NULL;
	else
		name_draft(work, spool_draft_parts(work->draft).name);
	if (work->draft && request->everything && wants_samples(request))
		open_recording(work);
}

/*
 * Adds the processes that have been part of the target: now, and in the time before as far as it is
 * remembered; waits for those that were there at as_of to be looked at. Without memory some are missing.
 */
static void add_members(struct incident_work *work, mono_t as_of)
{
	const struct incident_request *request = work->request;
	struct target_member self = { .pid = request->target.pid, .to_ns = UINT64_MAX };
	AUTO_FREE struct target_member *found = NULL;
	const struct target_member *members = &self;
	size_t count = request->target.kind == TARGET_PROCESS;

	if (request->target.kind == TARGET_GROUP &&
	    discovery_members(session_parts(work->worker->session).discovery, request->target.id, as_of,
			      mono_sub(request->fired, request->settings.before_ns).ns, &found, &count) == 0)
		members = found;

	struct target_member *grown =
		reallocarray(work->members, work->member_count + count + 1, sizeof *work->members);

	if (!grown)
		return;
	memcpy(grown + work->member_count, members, count * sizeof *members);
	work->members = grown;
	work->member_count += count;
}

/* Copies what the perf rings hold of the time before the firing. A step may be noting work->captured. */
static void secure_stacks(struct incident_work *work)
{
	const struct incident_request *request = work->request;
	struct session *session = work->worker->session;
	struct stack_capture_options options = {
		.recorder = session_parts(session).stacks,
		.procfd = session_parts(session).procfd,
		.symbolizer = session_parts(session).symbolizer,
		.before_ns = request->settings.before_ns,
		.until = mono_add(request->fired, request->settings.after_ns),
		.spike_from_ns = request->info.window_from.ns,
		.cgroup = request->target.kind == TARGET_CGROUP ? request->target.cgroup : NULL,
		.fired = request->fired,
		.wall = request->wall,
		.held = &work->worker->stacks_held,
		.owner = request->owner,
		.kernel_symbols = &work->worker->kernel_symbols,
	};

	AUTO_FREE struct incident *told = options.recorder ? calloc(1, sizeof *told) : NULL;

	if (told)
		work->stacks = stack_capture_secure(&options, told);
	if (told && told->capture_count) {
		work->unsecured = told->captures[0];
	} else if (options.recorder && !told) {
		work->unsecured.status = INCIDENT_CAPTURE_FAILED;
		incident_text(work->unsecured.name, sizeof work->unsecured.name, "stacks");
		incident_text(work->unsecured.why, sizeof work->unsecured.why, strerrordesc_np(ENOMEM));
	}
	if (work->stacks)
		add_members(work, (mono_t){ 0 });
}

/* What was taken and is now held in memory, or is no longer. */
static void count_held(struct incident_worker *worker, size_t captures, size_t bytes, bool held)
{
	atomic_fetch_add(&worker->held, held ? captures : -captures);
	atomic_fetch_add(&worker->held_bytes, held ? bytes : -bytes);
}

/* Into memory: on the worker's thread, also while a step runs, of this work too. */
static void take_captures(struct incident_work *work, bool again)
{
	struct incident_worker *worker = work->worker;
	struct capture_files *files = again ? &work->second : &work->first;
	size_t held = worker->held_bytes, room = held < HELD_MAX ? (HELD_MAX - held) / 4 : 0;
	struct capture_options options = {
		.session = worker->session,
		.clock = &worker->clock,
		.request = work->request,
		.max_bytes = room < HELD_LEAST ? HELD_LEAST : room,
		.again = again,
	};

	capture_take(&options, &work->processes, files);
	count_held(worker, files->count, files->bytes, true);
}

/* In a step. Without a draft they are lost. */
static void save_captures(struct incident_work *work, struct capture_files *files)
{
	count_held(work->worker, files->count, files->bytes, false);
	capture_save(files, work->draft ? spool_draft_parts(work->draft).dirfd : -1,
		     work->draft ? work->captured : NULL);
}

/*
 * Writes the incident.json that counts if the daemon is killed before the incident is sealed: what is
 * not taken or written by then is missing. spool.c says where the samples are (settle_samples).
 */
static void note_draft(const struct incident_work *work, bool captured, bool has_stacks, bool second)
{
	const struct incident_request *request = work->request;
	struct incident_capture lost = { .status = INCIDENT_CAPTURE_FAILED, .why = INCIDENT_KILLED };
	struct incident so_far = *work->captured;
	size_t before;

	if (wants_samples(request)) {
		incident_text(lost.name, sizeof lost.name, config_capture_name(CONFIG_CAPTURE_SAMPLES));
		incident_text(lost.file, sizeof lost.file, work->recording ? INCIDENT_SAMPLES_FILE : "");
		incident_add_capture(&so_far, &lost);
	}
	if (has_stacks) {
		incident_text(lost.name, sizeof lost.name, "stacks");
		incident_text(lost.file, sizeof lost.file, "");
		incident_text(lost.why, sizeof lost.why, INCIDENT_KILLED " before they were written");
		incident_add_capture(&so_far, &lost);
	}
	for (int again = captured; again <= second; again++) {
		struct capture_files files = { 0 };

		capture_not_taken(request, again, INCIDENT_CAPTURE_FAILED, INCIDENT_KILLED, &files);
		capture_save(&files, -1, &so_far);
	}
	before = so_far.capture_count;
	if (request->hooks)
		hook_plan_refuse(request->hooks, INCIDENT_KILLED, &so_far);
	for (size_t i = before; i < so_far.capture_count; i++)
		so_far.captures[i].status = INCIDENT_CAPTURE_FAILED;
	if (spool_note(work->draft, &so_far) < 0)
		log_line(LOG_DEBUG, "incident %s could not be noted", spool_draft_parts(work->draft).name);
}

/* ---- follow-ups: the commands, the second snapshot, the recording of all targets ---- */

/* From the thread of hooks.c, perhaps before hooks_start has returned. */
static void on_commands_done(void *ctx)
{
	struct incident_work *work = ctx;

	work_finished(&work->worker->queue, work);
}

static void start_commands(struct incident_work *work)
{
	struct incident_worker *worker = work->worker;
	const struct incident_request *request = work->request;
	struct hooks_scene scene = {
		.plan = request->hooks,
		.dirfd = spool_draft_parts(work->draft).dirfd,
		.lockfd = spool_draft_parts(work->draft).lockfd,
		.procfd = session_parts(worker->session).procfd,
		.pid = work->processes.count ? work->processes.process[0].pid : 0,
		.start_ticks = work->processes.count ? work->processes.process[0].start_ticks : 0,
		.rule = request->info.rule.name,
		.target = request->target.name,
		.fired = request->fired,
		.max_bytes = request->settings.max_incident_bytes,
		.done = on_commands_done,
		.ctx = work,
	};
	int r;

	if (!request->hooks)
		return;

	work_await(&worker->queue, work);
	r = hooks_start(worker->hooks, &scene, &work->run);
	if (r < 0) {
		hook_plan_refuse(request->hooks, strerrordesc_np(-r), work->captured);
		work_finished(&worker->queue, work);
	}
}

/* After they have ended: adds a record of each, and logs those that went wrong. */
static void report_commands(struct incident_work *work)
{
	size_t before = work->captured->capture_count;
	const char *id;

	if (!work->run)
		return;

	id = spool_draft_parts(work->draft).name;
	hook_run_report(TAKE(work->run), work->captured);
	for (size_t i = before; i < work->captured->capture_count; i++) {
		const struct incident_capture *capture = &work->captured->captures[i];
		struct log_about about = { .rule = work->request->info.rule.name,
					   .target = work->request->target.name,
					   .incident = id };

		if (capture->status != INCIDENT_CAPTURE_OK)
			log_about(LOG_INFO, &about, "%s of incident %s: %s: %s", capture->name, id,
				  incident_capture_status_name(capture->status), capture->why);
	}
}

static void skip_again(struct incident_work *work, const char *why)
{
	capture_not_taken(work->request, true, INCIDENT_CAPTURE_SKIPPED, why, &work->second);
	count_held(work->worker, work->second.count, work->second.bytes, true);
}

static void schedule_again(struct incident_work *work)
{
	struct incident_worker *worker = work->worker;
	uint64_t again_ns = work->request->settings.again_ns;
	size_t count = 0;

	if (again_ns == 0 || capture_set(work->request, true) == 0)
		return;

	for (const struct incident_work *other = worker->again; other; other = other->again_next)
		count++;
	if (count == AGAIN_MAX) {
		skip_again(work, "too many second snapshots are pending");
		return;
	}
	work->again_at = mono_add(clock_mono(&worker->clock), again_ns);
	work->again_next = worker->again;
	worker->again = work;
	work_await(&worker->queue, work);
}

/* The one whose second snapshot is due first, NULL: none. */
static struct incident_work *next_again(const struct incident_worker *worker)
{
	struct incident_work *next = worker->again;

	for (struct incident_work *other = next; other; other = other->again_next)
		if (mono_diff(other->again_at, next->again_at) < 0)
			next = other;

	return next;
}

static void remove_again(struct incident_work *work)
{
	struct incident_work **at = &work->worker->again;

	while (*at != work)
		at = &(*at)->again_next;
	*at = work->again_next;
	work->again_at.ns = 0;
}

/* Takes the second snapshot; before its time, which is when the worker stops, it is skipped. */
static void finish_again(struct incident_work *work)
{
	struct incident_worker *worker = work->worker;

	if (mono_diff(clock_mono(&worker->clock), work->again_at) >= 0)
		take_captures(work, true);
	else
		skip_again(work, "the daemon was being stopped");
	remove_again(work);
	queue_put(&worker->queue, &work->save, JOB_URGENT);
}

/* A step. */
static void follow_recording(void *argument)
{
	struct incident_work *work = argument;

	if (!work->recording)
		return;

	work->recording_error = full_recording_follow(work->recording);
	if (work->recording_error < 0)
		full_recording_abort(TAKE(work->recording));
}

/* What vanishes, into memory. */
static void take_work(struct incident_work *work)
{
	struct job_queue *queue = &work->worker->queue;

	secure_stacks(work);
	take_captures(work, false);
	schedule_again(work);
	if (work->stacks) {
		work_await(queue, work);
		queue_put(queue, &work->prepare, JOB_SOON);
	}
	work->taken = true;
	if (!work->opening)
		queue_put(queue, &work->open, JOB_URGENT);
}

/*
 * A step, while its stacks and captures are taken: the draft, noted so that it is sealed if the daemon is killed
 * meanwhile.
 */
static void begin_work(void *argument)
{
	struct incident_work *work = argument;
	const struct incident_request *request = work->request;

	begin_draft(work);
	if (work->draft)
		note_draft(work, false, session_parts(work->worker->session).stacks,
			   request->settings.again_ns && capture_set(request, true));
}

/* A step: the draft, with what was taken. */
static void save_first(void *argument)
{
	struct incident_work *work = argument;

	if (!work->draft && work->draft_error == 0) {
		begin_draft(work);
		if (work->draft)
			note_draft(work, false, work->stacks, work->second_is_due);
	}
	if (*work->unsecured.name)
		incident_add_capture(work->captured, &work->unsecured);
	save_captures(work, &work->first);
	if (work->draft)
		note_draft(work, true, work->stacks, work->second_is_due);
}

/* A step. */
static void save_second(void *argument)
{
	struct incident_work *work = argument;

	save_captures(work, &work->second);
}

static void on_disk(void *ctx, void (*step)(void *argument), void *argument);

static void open_work(struct incident_work *work)
{
	struct incident_worker *worker = work->worker;

	work->opening = true;
	if (!work->taken) { /* no step ran when it came: both at once */
		queue_put(&worker->queue, &work->take, JOB_NOW);
		on_disk(worker, begin_work, work);
		if (queue_withdraw(&worker->queue, &work->take))
			take_work(work);
	}
	work->second_is_due = work->again_at.ns || work->second.count;
	on_disk(worker, save_first, work);
	if (work->draft) {
		start_commands(work);
	} else if (work->again_at.ns) {
		remove_again(work);
		work_finished(&worker->queue, work);
	}
	work_finished(&worker->queue, work);
}

/* ---- seal: room on the disk ---- */

static bool is_full(int error)
{
	return error == -ENOSPC || error == -EDQUOT;
}

static uint64_t free_bytes(int dirfd)
{
	struct statvfs fs;

	if (fstatvfs(dirfd, &fs) < 0)
		return 0;

	return (uint64_t)(geteuid() == 0 ? fs.f_bfree : fs.f_bavail) * fs.f_frsize;
}

/* Removes the samples, or the largest other file, and records why. False: there is none. */
static bool drop_file(struct incident_work *work, bool samples, int error)
{
	struct incident_capture *largest = NULL;
	char why[96];

	for (size_t i = 0; i < work->info->capture_count; i++) {
		struct incident_capture *capture = &work->info->captures[i];

		if (*capture->file && (strcmp(capture->file, INCIDENT_SAMPLES_FILE) == 0) == samples &&
		    (!largest || capture->bytes > largest->bytes))
			largest = capture;
	}
	if (!largest || unlinkat(spool_draft_parts(work->draft).dirfd, largest->file, 0) < 0)
		return false;

	snprintf(why, sizeof why, "%s%s",
		 samples ? "" : "removed to make room for the rest: ", strerrordesc_np(-error));
	incident_capture_without_file(largest, INCIDENT_CAPTURE_FAILED, why);

	return true;
}

static void on_removed(void *ctx, const struct retention_entry *entry, enum retention_reason why)
{
	struct log_about about = { .message = MESSAGE_INCIDENT_REMOVED, .incident = entry->name };
	struct incident_worker *worker = ctx;

	atomic_fetch_add(&worker->removed, 1);
	log_about(LOG_INFO, &about, "removed incident %s (severity %.2f): limit of %s", entry->name, entry->severity,
		  retention_reason_name(why));
}

/* On a full disk, once for each: removes what retention would, by size only: age can wait. False: it has. */
static bool make_room(struct incident_work *work)
{
	if (work->room_made)
		return false;

	work->room_made = true;
	spool_enforce(work->worker->spool, (struct spool_now){ 0 }, on_removed, work->worker);

	return true;
}

/* A step. Without a directory the limits cannot be kept either: the same error is logged once. */
static void enforce_limits(void *argument)
{
	struct incident_worker *worker = argument;
	struct spool_now now = { .mono_ns = clock_mono(&worker->clock).ns };
	int r;

	r = spool_enforce(worker->spool, now, on_removed, worker);

	if (r < 0 && r != worker->enforce_error)
		log_line(LOG_WARNING, "cannot keep the limits of the incident directory: %s", strerror(-r));
	worker->enforce_error = r;
}

/* ---- what cannot wait ---- */

/* A step. */
static void look_for_space(void *argument)
{
	struct incident_worker *worker = argument;

	worker->space_is_short = !spool_predict_ok(worker->spool, worker->expected_bytes);
}

static void run_urgent_job(struct incident_worker *worker, struct job *job)
{
	struct incident_work *work = job->work;

	if (job->kind == JOB_TAKE && worker->disk_works) {
		take_work(work);
	} else if (job->kind == JOB_TAKE || job->kind == JOB_OPEN) {
		open_work(work);
	} else if (job->kind == JOB_FOLLOW) {
		on_disk(worker, follow_recording, work);
	} else if (job->kind == JOB_SPACE) {
		on_disk(worker, look_for_space, worker);
	} else if (job->kind == JOB_PREPARE) {
		/* The draft of a work may be the step's. */
		stack_capture_prepare(work->stacks,
				      work->draft && !worker->disk_works ? spool_draft_parts(work->draft).dirfd : -1);
		work_finished(&worker->queue, work);
	} else {
		on_disk(worker, save_second, work);
		work_finished(&worker->queue, work);
	}
}

/* From now on the worker's time is this owner's. Whose it was before. */
static uint64_t charge_to(struct incident_worker *worker, uint64_t owner)
{
	mono_t now = clock_mono(&worker->clock);
	uint64_t before = worker->charged;

	queue_charge(&worker->queue, before, (uint64_t)mono_diff(now, worker->charged_since), now);
	worker->charged = owner;
	worker->charged_since = now;

	return before;
}

/* Whether a user's stacks have been named for as long as they may be while incidents of others wait. */
static bool is_others_turn(struct incident_worker *worker, mono_t now)
{
	uint64_t named_ns = (uint64_t)mono_diff(now, worker->naming_since);
	bool much = queue_used(&worker->queue, worker->charged, now) > NAMING_MUCH_NS;

	return worker->charged && named_ns > (much ? NAMING_LITTLE_NS : NAMING_NS) &&
	       queue_seals_wait(&worker->queue, worker->charged, now);
}

/* Does this job, or takes that second snapshot, if it is due. */
static void run_turn(struct incident_worker *worker, struct job *job, struct incident_work *again, mono_t now)
{
	uint64_t owner = charge_to(worker, job ? owner_of(job) : again ? again->owner : worker->charged);

	if (job)
		run_urgent_job(worker, job);
	else if (again && mono_diff(now, again->again_at) >= 0)
		finish_again(again);
	charge_to(worker, owner);
}

/* Within a job that takes long: does one that cannot wait. */
static void take_turn(struct incident_worker *worker)
{
	mono_t now = clock_mono(&worker->clock);

	run_turn(worker, queue_next_urgent(&worker->queue, now), next_again(worker), now);
}

/* While a step runs, with the lock held: takes what cannot wait, or waits. slow_at: when the step is a long one. */
static void while_disk_works(struct incident_worker *worker, mono_t slow_at)
{
	struct job_queue *queue = &worker->queue;
	struct incident_work *again = next_again(worker);
	mono_t now = clock_mono(&worker->clock);
	bool slow = mono_diff(now, slow_at) >= 0, due = again && mono_diff(now, again->again_at) >= 0;
	struct job *job = queue_take(queue, JOB_NOW, now);

	if (!job && !due && slow)
		job = queue_take(queue, JOB_SOON, now);
	if (job || due) {
		pthread_mutex_unlock(&queue->lock);
		worker->disk_works = true;
		run_turn(worker, job, again, now);
		worker->disk_works = false;
		pthread_mutex_lock(&queue->lock);
		return;
	}
	mono_t until = slow ? (mono_t){ 0 } : slow_at;

	if (again && (until.ns == 0 || mono_diff(again->again_at, until) < 0))
		until = again->again_at;
	queue_wait(queue, until);
}

/* Has the disk do it, and returns when that is done. ctx: the worker. */
static void on_disk(void *ctx, void (*step)(void *argument), void *argument)
{
	struct incident_worker *worker = ctx;
	struct job_queue *queue = &worker->queue;
	struct disk *disk = &worker->disk;
	mono_t slow_at = mono_add(clock_mono(&worker->clock), SLOW_STEP_NS);

	pthread_mutex_lock(&queue->lock);
	disk->step = step;
	disk->argument = argument;
	disk_set(disk, DISK_GIVEN);
	while (disk->state != DISK_DONE) {
		if (disk->state != DISK_OFFERS) {
			while_disk_works(worker, slow_at);
			continue;
		}
		pthread_mutex_unlock(&queue->lock);
		take_turn(worker);
		pthread_mutex_lock(&queue->lock);
		disk_set(disk, DISK_RESUMED);
	}
	disk->state = DISK_IDLE;
	pthread_mutex_unlock(&queue->lock);
}

/* ---- seal: stacks ---- */

/* While stacks are named. Why there is no time left; NULL: there is. */
static const char *while_naming(void *ctx)
{
	struct incident_worker *worker = ctx;
	mono_t now = clock_mono(&worker->clock);

	take_turn(worker);
	if (!queue_stopping(&worker->queue) && is_others_turn(worker, now)) {
		worker->naming_since = now; /* of the same stacks, without names */
		return "incidents of others were waiting";
	}
	if (!queue_stopping(&worker->queue))
		return NULL;
	if (worker->stop_by.ns == 0)
		worker->stop_by = mono_add(now, STOP_STACKS_NS);

	return mono_diff(worker->stop_by, now) > 0 ? NULL : "the daemon was being stopped";
}

static void write_stacks(struct incident_work *work)
{
	const struct symbolizer_waiting waiting = { while_naming, on_disk, work->worker };
	struct stack_capture_members members = { .everyone = work->request->everything };

	if (!work->stacks || !work->draft)
		return;

	add_members(work, queue_stopping(&work->worker->queue) ? (mono_t){ 0 } : clock_mono(&work->worker->clock));
	members.members = work->members;
	members.count = work->member_count;
	work->worker->naming_since = clock_mono(&work->worker->clock);
	stack_capture_write(TAKE(work->stacks), &members, spool_draft_parts(work->draft).dirfd, &waiting,
			    work->captured);
}

static bool has_ended_members(const struct incident_work *work)
{
	for (size_t i = 0; i < work->member_count; i++)
		if (work->members[i].to_ns != UINT64_MAX)
			return true;
	return false;
}

/*
 * Whether members of a group have ended in the window whose CPU time is an estimate: it is exact where the
 * scheduler adds it up. Asked at the end: they may have ended since the firing. Also if that is not known.
 */
static void describe_ended(struct incident_work *work)
{
	struct discovery *discovery = session_parts(work->worker->session).discovery;
	struct incident *info = work->info;
	struct discovery_state state;

	if (work->request->target.kind != TARGET_GROUP || strcmp(info->cost.cpu_time_source, "files") != 0)
		return;
	if (!has_ended_members(work))
		add_members(work, (mono_t){ 0 });
	if (!has_ended_members(work) && work->member_count > 0)
		return;

	discovery_state(discovery, &state);
	info->has_ended_cpu_lack = state.exit_totals;
	incident_text(info->ended_cpu, sizeof info->ended_cpu,
		      state.exit_totals ? INCIDENT_ENDED_ESTIMATED : INCIDENT_ENDED_SEEN);
	info->ended_cpu_lack_ns = DISCOVERY_LACK_TICKS * NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
}

/* ---- seal: samples ---- */

static int stream_window(const struct incident_work *work, struct stream_writer *writer)
{
	const struct target *target = &work->request->target;
	uint32_t id = target->id ? target->id : 1;
	AUTO(buffer_release) struct buffer json = { 0 };
	int r = columns_target_json(target, 0, &json);

	if (r == 0)
		r = stream_target(writer, id, json.data, json.len);
	if (r == 0)
		r = sample_window_write(work->window, writer, id);

	return r;
}

/* Writes samples.tsv of one target into the sink. */
static int write_window_to(const struct incident_work *work, struct sink sink)
{
	const struct incident_request *request = work->request;
	mono_t start = mono_sub(request->fired, request->settings.before_ns);
	struct stream_column columns[SAMPLE_FIELDS];
	struct stream_options options = {
		.format = STREAM_SPIKEWATCH,
		.columns = columns,
		.column_count = SAMPLE_FIELDS,
		.start = { request->wall.ns - (uint64_t)mono_diff(request->fired, start) },
	};
	struct stream_writer *writer;
	int r, close_r;

	columns_of_samples(columns);
	r = stream_writer_new(sink, &options, &writer);
	if (r < 0)
		return r;
	r = stream_window(work, writer);
	close_r = stream_close(writer);

	return r < 0 ? r : close_r;
}

static int write_window(const struct incident_work *work, uint64_t *ret_bytes)
{
	int dirfd = spool_draft_parts(work->draft).dirfd;
	AUTO_CLOSE int fd =
		openat(dirfd, INCIDENT_SAMPLES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	struct stat st;
	int r;

	if (fd < 0)
		return -errno;
	r = write_window_to(work, sink_fd(&fd));
	if (r == 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dirfd, INCIDENT_SAMPLES_FILE, 0);
	else
		*ret_bytes = (uint64_t)st.st_size;

	return r;
}

/* How large samples.tsv would be: costs as much as writing it without a disk. */
static int measure_samples(const struct incident_work *work, uint64_t *ret_bytes)
{
	*ret_bytes = 0;
	if (work->request->everything) {
		struct full_recording_options options = recording_options(work);

		return full_recording_bytes(&options, work->over, ret_bytes);
	}

	return write_window_to(work, sink_count(ret_bytes));
}

/*
 * Ends the file that was begun, or returns why that was given up; the next call begins a new one,
 * with what the ring still holds.
 */
static int write_recording(struct incident_work *work, uint64_t *ret_bytes)
{
	int r = work->recording_error;

	work->recording_error = 0;
	if (r == 0 && !work->recording) {
		open_recording(work);
		r = work->recording_error;
		work->recording_error = 0;
	}
	if (r == 0)
		r = full_recording_close(TAKE(work->recording), work->over, &work->info->coverage, ret_bytes);

	return r;
}

static int write_samples(struct incident_work *work, struct incident_capture *ret)
{
	int r;

	*ret = (struct incident_capture){ .status = INCIDENT_CAPTURE_OK, .file = INCIDENT_SAMPLES_FILE };
	incident_text(ret->name, sizeof ret->name, config_capture_name(CONFIG_CAPTURE_SAMPLES));
	r = work->request->everything ? write_recording(work, &ret->bytes) : write_window(work, &ret->bytes);
	if (r < 0)
		incident_capture_without_file(ret, INCIDENT_CAPTURE_FAILED, strerrordesc_np(-r));

	return r;
}

/* Whether the samples would fit if all captures were removed. */
static bool samples_would_fit(const struct incident_work *work)
{
	uint64_t needed, captured = 0;

	for (size_t i = 0; i < work->info->capture_count; i++)
		captured += (work->info->captures[i].bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;

	return measure_samples(work, &needed) < 0 ||
	       needed + METADATA_BYTES <= free_bytes(spool_draft_parts(work->draft).dirfd) + captured;
}

static void add_samples(struct incident_work *work)
{
	struct incident_capture record;
	int r;

	do
		r = write_samples(work, &record);
	while (is_full(r) && make_room(work));
	if (is_full(r) && samples_would_fit(work)) {
		while (is_full(r) && drop_file(work, false, r))
			r = write_samples(work, &record);
	}
	incident_add_capture(work->info, &record);
}

/* Of incident_worker_record. Without the file the incident says at least that there was something. */
static void add_text(struct incident_work *work)
{
	struct incident_capture record = { .status = INCIDENT_CAPTURE_OK, .bytes = work->text.len };
	int r;

	do
		r = whole_file_replace(spool_draft_parts(work->draft).dirfd, work->file, work->text.data,
				       work->text.len, WHOLE_FILE_QUICK);
	while (is_full(r) && make_room(work));

	incident_text(record.name, sizeof record.name, incident_kind_name(work->info->kind));
	incident_text(record.file, sizeof record.file, work->file);
	if (r < 0)
		incident_capture_without_file(&record, INCIDENT_CAPTURE_FAILED, strerrordesc_np(-r));
	incident_add_capture(work->info, &record);
}

/* ---- seal: the directory ---- */

/*
 * The draft could not be made, or was removed from outside: what was captured is lost, but the
 * samples may still be written.
 */
static void begin_draft_again(struct incident_work *work)
{
	const char *why = strerrordesc_np(work->draft ? ENOENT : -work->draft_error);

	full_recording_abort(TAKE(work->recording));
	spool_abort(TAKE(work->draft));
	work->captured->capture_count = 0;
	capture_not_taken(work->request, false, INCIDENT_CAPTURE_FAILED, why, &work->first);
	capture_save(&work->first, -1, work->captured);
	if (work->request->hooks)
		hook_plan_refuse(work->request->hooks, why, work->captured);
	begin_draft(work);
}

/* Before the samples, so that on a full disk these files make room for them as captures do. */
static int settle_leftover_files(struct incident_work *work)
{
	uint64_t most = work->request->settings.max_incident_bytes, taken = 0;

	if (!work->request->hooks)
		return 0;

	if (wants_samples(work->request)) {
		int r = measure_samples(work, &taken);

		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < work->info->capture_count; i++)
		taken += work->info->captures[i].bytes;

	return leftover_files_settle(spool_draft_parts(work->draft).dirfd, taken < most ? most - taken : 0, work->info);
}

static void describe_window(struct incident_work *work)
{
	struct incident *info = work->info;
	uint64_t grain = info->rule.window_ns > 100 * NS_PER_MS ? info->rule.window_ns : 100 * NS_PER_MS;

	sample_window_coverage(work->window, work->request->settings.interval_ns, &info->coverage);
	sample_window_peaks(work->window, grain, &info->peaks);
	if (info->peaks.has_cpu && info->limits.cpu && info->limits.cpu != UINT64_MAX)
		info->peak_cpu_percent = 100 * info->peaks.cpu_cores * 1e9 / (double)info->limits.cpu;
}

static int publish_draft(struct incident_work *work)
{
	int r;

	do
		r = spool_write(work->draft, work->info, offer_turn, work->worker);
	while (is_full(r) && (make_room(work) || drop_file(work, false, r) || drop_file(work, true, r)));
	if (r < 0) {
		spool_abort(TAKE(work->draft));
		return r;
	}

	return spool_publish(TAKE(work->draft));
}

/* 0: info->id is its name; -errno: nothing of it is left. */
static int write_incident(struct incident_work *work)
{
	int r = 0;

	if (!work->draft || spool_lost(work->draft))
		begin_draft_again(work);
	if (!work->draft && is_full(work->draft_error) && make_room(work))
		begin_draft(work);
	if (!work->draft)
		return work->draft_error;

	save_captures(work, &work->second); /* if it could not be scheduled */
	incident_text(work->info->id, sizeof work->info->id, spool_draft_parts(work->draft).name);
	for (size_t i = 0; i < work->captured->capture_count; i++)
		incident_add_capture(work->info, &work->captured->captures[i]);
	if (work->window)
		describe_window(work);
	if (work->file)
		add_text(work);
	else
		r = settle_leftover_files(work);
	if (r < 0) {
		spool_abort(TAKE(work->draft));
		return r;
	}
	if (wants_samples(work->request))
		add_samples(work);

	return publish_draft(work);
}

struct seal {
	struct incident_work *work;
	int error; /* of write_incident */
};

/* A step. */
static void seal_draft(void *argument)
{
	struct seal *seal = argument;
	struct incident_work *work = seal->work;

	seal->error = write_incident(work);
	full_recording_abort(TAKE(work->recording));
	spool_abort(TAKE(work->draft));
	save_captures(work, &work->second);
}

/* Logged when failures begin, when the reason changes, and once a minute. */
static void log_failure(struct write_failures *failures, const struct incident *info, int error, mono_t now)
{
	struct log_about about = {
		.message = MESSAGE_INCIDENT_FAILED,
		.state = failures->error ? "change" : "begin",
		.rule = info->rule.name,
		.target = info->target.name,
		.error = error,
	};

	failures->lost++;
	failures->unlogged++;
	if (failures->error == error && mono_diff(now, failures->logged) < (int64_t)FAILURE_LOG_NS)
		return;

	about.count = failures->unlogged;
	log_about(LOG_ERR, &about, "incident of rule %s on %s could not be written: %s", info->rule.name,
		  info->target.name, strerror(-error));
	failures->error = error;
	failures->logged = now;
	failures->unlogged = 0;
}

static void log_sealed(struct write_failures *failures, const struct incident *info)
{
	struct log_about about = {
		.message = MESSAGE_INCIDENT_SEALED,
		.rule = info->rule.name,
		.target = info->target.name,
		.incident = info->id,
	};
	struct log_about end = { .message = MESSAGE_INCIDENT_FAILED, .state = "end", .count = failures->lost };

	if (failures->error)
		log_about(LOG_NOTICE, &end, "incidents can be written again; %llu could not",
			  (unsigned long long)failures->lost);
	*failures = (struct write_failures){ 0 };
	log_about(LOG_NOTICE, &about, "sealed incident %s", info->id);
}

static void tell(struct incident_work *work, bool sealed)
{
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s/%s", spool_path(work->worker->spool), work->info->id);
	notifier_send(work->worker->notifier, TAKE(work->tell), work->info, sealed ? path : NULL);
}

static void seal_work(struct incident_work *work)
{
	struct incident_worker *worker = work->worker;
	struct seal seal = { .work = work };
	int r;

	report_commands(work);
	write_stacks(work);
	describe_ended(work);
	on_disk(worker, seal_draft, &seal);
	r = seal.error;

	atomic_fetch_add(r < 0 ? &worker->failed : &worker->sealed, 1);
	if (r < 0)
		log_failure(&worker->failures, work->info, r, clock_mono(&worker->clock));
	else
		log_sealed(&worker->failures, work->info);
	tell(work, r == 0);
	work_free(work);
	malloc_trim(0); /* an incident takes megabytes for a while, and there may be none for weeks */
	if (worker->stacks_held.captures == 0 && worker->kernel_symbols >= 0)
		close(TAKE_FD(worker->kernel_symbols));
	if (r == 0)
		on_disk(worker, enforce_limits, worker);
}

/* ---- the thread ---- */

static void run_job(struct incident_worker *worker, struct job *job)
{
	if (job->kind == JOB_ENFORCE)
		on_disk(worker, enforce_limits, worker);
	else if (job->kind == JOB_SEAL)
		seal_work(job->work);
	else
		run_urgent_job(worker, job);
}

static void *run_worker(void *argument)
{
	struct incident_worker *worker = argument;

	prctl(PR_SET_NAME, "collector");
	for (;;) {
		struct incident_work *again = next_again(worker);
		mono_t until = again ? again->again_at : (mono_t){ 0 };
		struct job *job = NULL;
		int r = queue_next(&worker->queue, &worker->clock, until, &job);

		if (r == QUEUE_END)
			return NULL;
		atomic_store(&worker->busy_since, clock_mono(&worker->clock).ns);
		charge_to(worker, r == QUEUE_DUE ? again->owner : owner_of(job));
		if (r == QUEUE_DUE)
			finish_again(again);
		else
			run_job(worker, job);
		charge_to(worker, 0);
		atomic_store(&worker->busy_since, 0);
	}
}

/* ---- the event loop's side ---- */

int incident_worker_open(struct incident_worker *worker, struct incident_request *request, struct incident_work **ret)
{
	struct incident_work *work = calloc(1, sizeof *work);

	if (!work) {
		hook_plan_free(request->hooks);
		free(request);
		return -ENOMEM;
	}

	work->worker = worker;
	work->request = request;
	work->owner = request->owner;
	work->captured = &request->info;
	work->take = (struct job){ .kind = JOB_TAKE, .work = work };
	work->prepare = (struct job){ .kind = JOB_PREPARE, .work = work };
	work->open = (struct job){ .kind = JOB_OPEN, .work = work };
	work->save = (struct job){ .kind = JOB_SAVE, .work = work };
	work->follow = (struct job){ .kind = JOB_FOLLOW, .work = work };
	work->seal = (struct job){ .kind = JOB_SEAL, .work = work };
	queue_add_work(&worker->queue, work);
	work_await(&worker->queue, work);
	if (request->everything)
		queue_put(&worker->queue, &work->open, JOB_FIRST);
	else
		queue_put(&worker->queue, &work->take, JOB_NOW);
	*ret = work;

	return 0;
}

void incident_worker_follow(struct incident_worker *worker, struct incident_work *work)
{
	queue_put(&worker->queue, &work->follow, JOB_URGENT);
}

void incident_worker_seal(struct incident_worker *worker, struct incident_work *work, struct sample_window *window,
			  bool over, struct incident *info, struct notify_plan *tell)
{
	work->window = window;
	work->over = over;
	work->info = info;
	work->tell = tell;
	work_hand_over(&worker->queue, work);
}

int incident_worker_record(struct incident_worker *worker, struct incident *info, const char *file, struct buffer *text,
			   struct notify_plan *tell)
{
	struct incident_work *work = calloc(1, sizeof *work);
	struct incident_request *request = calloc(1, sizeof *request);

	if (!work || !request) {
		free(work);
		free(request);
		free(info);
		free(tell);
		return -ENOMEM;
	}

	request->everything = true;
	request->target.name = info->target.name;
	request->wall = info->wall;
	request->info = *info;
	work->worker = worker;
	work->request = request;
	work->captured = &request->info;
	work->seal = (struct job){ .kind = JOB_SEAL, .work = work };
	work->draft_error = -ENOENT;
	work->file = file;
	work->text = *text;
	*text = (struct buffer){ .max = text->max };
	queue_add_work(&worker->queue, work);
	incident_worker_seal(worker, work, NULL, false, info, tell);

	return 0;
}

void incident_worker_enforce(struct incident_worker *worker)
{
	queue_put(&worker->queue, &worker->enforce, JOB_LAST);
}

bool incident_worker_has_space(struct incident_worker *worker, uint64_t expected_bytes)
{
	if (expected_bytes) {
		worker->expected_bytes = expected_bytes;
		queue_put(&worker->queue, &worker->space, JOB_URGENT);
	}

	return !worker->space_is_short;
}

int incident_worker_new(struct session *session, struct spool *spool, struct notifier *notifier, uint64_t stuck_ns,
			struct incident_worker **ret)
{
	struct incident_worker *worker = calloc(1, sizeof *worker);
	clockid_t cpu_clock = CLOCK_THREAD_CPUTIME_ID;
	int r;

	if (!worker)
		return -ENOMEM;

	worker->session = session;
	worker->spool = spool;
	worker->notifier = notifier;
	worker->kernel_symbols = -1;
	worker->stuck_ns = stuck_ns ? stuck_ns : STUCK_NS;
	worker->enforce = (struct job){ .kind = JOB_ENFORCE };
	worker->space = (struct job){ .kind = JOB_SPACE };
	worker->clock = real_clock();
	r = hooks_new(&worker->clock, stuck_ns, &worker->hooks);
	if (r < 0) {
		free(worker);
		return r;
	}
	queue_init(&worker->queue);
	pthread_cond_init(&worker->disk.wake, NULL);

	r = thread_start(&worker->disk.thread, run_disk, worker);
	worker->disk.running = r == 0;
	if (r == 0)
		r = thread_start(&worker->thread, run_worker, worker);
	worker->running = r == 0;
	if (r < 0) {
		incident_worker_free(worker);
		return r;
	}
	pthread_getcpuclockid(worker->thread, &cpu_clock);
	samplers_charge(session_parts(session).samplers, SAMPLERS_CHARGE_NOTHING, cpu_clock);
	pthread_getcpuclockid(worker->disk.thread, &cpu_clock);
	samplers_charge(session_parts(session).samplers, SAMPLERS_CHARGE_NOTHING, cpu_clock);
	*ret = worker;

	return 0;
}

/* Waits for the thread as long as no job takes longer than stuck_ns, at most STOP_NS. True: it has ended. */
static bool await_worker(struct incident_worker *worker)
{
	mono_t began = clock_mono(&worker->clock);
	mono_t since = began; /* when its job was begun, or the wait, if that was later */

	while (!thread_join_within(worker->thread, STUCK_CHECK_NS)) {
		mono_t busy = incident_worker_busy_since(worker), now = clock_mono(&worker->clock);

		if (busy.ns == 0 || mono_diff(busy, since) > 0)
			since = busy.ns ? busy : now;
		if (mono_diff(now, since) > (int64_t)worker->stuck_ns || mono_diff(now, began) > (int64_t)STOP_NS)
			return false;
	}

	return true;
}

/* Each by its name, when the thread is not waited for any more. */
static void log_unwritten(struct job_queue *queue)
{
	pthread_mutex_lock(&queue->lock);
	for (const struct incident_work *work = queue->works; work; work = work->next) {
		const struct incident_request *request = work->request;
		struct log_about about = {
			.message = MESSAGE_INCIDENT_FAILED,
			.state = "stop",
			.rule = request->info.rule.name,
			.target = request->info.target.name,
			.incident = *work->drafted ? work->drafted : NULL,
			.error = -ETIMEDOUT,
		};
		char stem[INCIDENT_NAME_MAX + 1];

		incident_stem(request->wall, request->info.target.name, request->info.rule.name, stem, sizeof stem);
		log_about(LOG_WARNING, &about,
			  "incident %s was not written before the stop: the next start seals what its draft holds, and "
			  "saves what is in the ring",
			  *work->drafted ? work->drafted : stem);
	}
	pthread_mutex_unlock(&queue->lock);
}

bool incident_worker_stop(struct incident_worker *worker)
{
	if (!worker || !worker->running)
		return true;

	if (worker->abandoned) {
		worker->running = !thread_join_within(worker->thread, 0);
		return !worker->running;
	}
	hooks_stop(worker->hooks);
	queue_stop(&worker->queue);
	worker->running = worker->abandoned = !await_worker(worker);
	if (worker->abandoned)
		log_about(
			LOG_WARNING, &(struct log_about){ .message = MESSAGE_THREAD_STUCK, .thread = "collector" },
			"the incident worker is blocked, mostly by a slow disk or in a read of the files of a process: "
			"it is not waited for. What was not written is recovered at the next start as far as "
			"possible.");
	if (worker->abandoned)
		log_unwritten(&worker->queue);

	return !worker->running;
}

void incident_worker_free(struct incident_worker *worker)
{
	if (!worker || !incident_worker_stop(worker))
		return;

	if (worker->disk.running) {
		pthread_mutex_lock(&worker->queue.lock);
		disk_set(&worker->disk, DISK_END);
		pthread_mutex_unlock(&worker->queue.lock);
		pthread_join(worker->disk.thread, NULL);
	}
	pthread_cond_destroy(&worker->disk.wake);
	scope_close(&worker->kernel_symbols);
	hooks_free(worker->hooks);
	queue_release(&worker->queue);
	free(worker);
}

mono_t incident_worker_busy_since(const struct incident_worker *worker)
{
	return (mono_t){ atomic_load(&worker->busy_since) };
}

struct incident_worker_counts incident_worker_counts(const struct incident_worker *worker)
{
	return (struct incident_worker_counts){ .sealed = atomic_load(&worker->sealed),
						.failed = atomic_load(&worker->failed),
						.removed = atomic_load(&worker->removed),
						.held = atomic_load(&worker->held),
						.held_bytes = atomic_load(&worker->held_bytes) };
}
