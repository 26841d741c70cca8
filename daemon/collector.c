/*
 * collector.c: a queue of jobs, captures before what seals. The thread knows no
 * configuration: an incident brings along what was in force when it was opened, so a reload has nothing to wait for here.
 *
 * What is lost by waiting comes first: captures run as soon as a rule has fired, into the draft that the incident will become. The samples
 * and incident.json follow when the window is over. Only the naming of stacks takes long; captures of other incidents go on meanwhile.
 */
#include "collector.h"

#include "evidence.h"
#include "failing.h"
#include "log.h"
#include "realclock.h"
#include "scope.h"
#include "sealing.h"
#include "sequel.h"
#include "stackevidence.h"
#include "steadyclock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* Second looks that may be waited for; each keeps an incident in memory beyond its window. */
#define AGAIN_MAX 16

/* What all stacks together may still take, by the clock, when the daemon is being stopped: a fraction of what systemd waits for. */
#define STOPPING_NS (10 * NS_PER_S)

/* How long one job, or what is left of it, is waited for then, and how often it is looked. Evidence of many gigabytes and a slow disk take some seconds. */
#define HANGS_NS (20 * NS_PER_S)
#define LOOK_NS (NS_PER_S / 4)

enum job_kind { JOB_CAPTURE, JOB_FOLLOW, JOB_SEAL, JOB_ENFORCE };

struct collector {
	struct steadyclock steady; /* the thread's */
	struct session *session;
	struct spool *spool;
	struct clock clock;
	struct jobs jobs;
	pthread_mutex_t lock; /* of counts */
	struct collector_counts counts;
	bool running, abandoned;
	struct failing failing; /* the thread's */
	size_t stacks_held;     /* by incidents that are open. The thread's */
	mono_t stop_by;         /* 0: it was not being stopped when somebody looked. The thread's */
	int unkept;             /* the last result of keeping the limits. The thread's */
	_Atomic uint64_t busy_since;
	pthread_t thread;
	struct hooks *hooks;
	struct collector_incident *again; /* with a second look to come. The thread's */
};

/* ---- what is said ---- */

static void on_removed(void *ctx, const struct retention_entry *entry, enum retention_reason why)
{
	struct log_about about = { .message = MESSAGE_INCIDENT_REMOVED, .incident = entry->name };
	struct collector *collector = ctx;

	pthread_mutex_lock(&collector->lock);
	collector->counts.removed++;
	pthread_mutex_unlock(&collector->lock);
	log_about(LOG_INFO, &about, "removed incident %s (severity %.2f): limit of %s", entry->name, entry->severity,
		  retention_reason_name(why));
}

/* The incident whose second look comes next, NULL: none. */
static struct collector_incident *next_again(const struct collector *collector)
{
	struct collector_incident *next = collector->again;

	for (struct collector_incident *other = next; other; other = other->again_next)
		if (mono_diff(other->again_at, next->again_at) < 0)
			next = other;

	return next;
}

/* ---- jobs ---- */

static struct sealing sealing_of(struct collector *collector)
{
	return (struct sealing){
		.session = collector->session,
		.spool = collector->spool,
		.clock = &collector->clock,
		.removed = on_removed,
		.ctx = collector,
	};
}

/* What there is now is what will be left if the daemon is killed before the window is over. */
static void note(struct collector_incident *incident)
{
	static const struct incident_capture lost = {
		.name = "samples",
		.status = INCIDENT_CAPTURE_FAILED,
		.why = "the daemon was killed; they are in the recovered incident of that moment",
	};
	static const struct incident_capture cut = {
		.name = "samples",
		.file = INCIDENT_SAMPLES_FILE,
		.status = INCIDENT_CAPTURE_FAILED,
		.why = "the daemon was killed: the file ends there; the rest is in the recovered incident of that "
		       "moment",
	};
	struct incident so_far = incident->evidence;

	incident_add_capture(&so_far, incident->panorama ? &cut : &lost);
	if (spool_note(incident->draft, &so_far) < 0)
		log_line(LOG_DEBUG, "incident %s could not be noted", spool_draft_name(incident->draft));
}

/* ---- what is finished later ---- */

/* From the thread of hooks. */
static void on_commands_done(void *ctx)
{
	struct collector_incident *incident = ctx;

	jobs_finish(&incident->collector->jobs, &incident->pending);
}

static struct sequel sequel_of(struct collector *collector)
{
	return (struct sequel){
		.session = collector->session,
		.clock = &collector->clock,
		.hooks = collector->hooks,
		.done = on_commands_done,
	};
}

static void expect_again(struct collector *collector, struct collector_incident *incident)
{
	struct sequel sequel = sequel_of(collector);
	size_t count = 0;

	incident->again_at = sequel_again_at(incident);
	if (incident->again_at.ns == 0)
		return;
	for (const struct collector_incident *other = collector->again; other; other = other->again_next)
		count++;
	if (count == AGAIN_MAX) {
		incident->again_at.ns = 0;
		sequel_again(&sequel, incident, "too many are waited for");
		return;
	}
	jobs_begin(&collector->jobs, &incident->pending);
	incident->again_next = collector->again;
	collector->again = incident;
}

static void look_again(struct collector *collector, struct collector_incident *incident)
{
	struct sequel sequel = sequel_of(collector);
	bool due = mono_diff(clock_mono(&collector->clock), incident->again_at) >= 0;

	for (struct collector_incident **at = &collector->again; *at; at = &(*at)->again_next) {
		if (*at == incident) {
			*at = incident->again_next;
			break;
		}
	}
	incident->again_at.ns = 0;
	sequel_again(&sequel, incident, due ? NULL : "the daemon was being stopped");
	jobs_finish(&collector->jobs, &incident->pending);
}

/* The done of the commands may come before sequel_run returns. */
static void run_commands(struct collector *collector, struct collector_incident *incident)
{
	struct sequel sequel = sequel_of(collector);

	jobs_begin(&collector->jobs, &incident->pending);
	if (!sequel_run(&sequel, incident))
		jobs_finish(&collector->jobs, &incident->pending);
}

/* ---- jobs ---- */

static void capture(struct collector *collector, struct collector_incident *incident)
{
	struct sealing sealing = sealing_of(collector);

	stackevidence_secure(collector->session, &collector->stacks_held, incident); /* first of all: the rings go on */
	sealing_begin(&sealing, incident);
	if (!incident->draft)
		return;

	incident->collector = collector;
	evidence_collect(collector->session, &collector->clock, incident);
	note(incident);
	expect_again(collector, incident);
	run_commands(collector, incident);
}

static void follow(struct collector_incident *incident)
{
	atomic_store(&incident->following, false);
	if (!incident->panorama)
		return;

	incident->panorama_error = panorama_follow(incident->panorama);
	if (incident->panorama_error < 0)
		panorama_abort(TAKE(incident->panorama));
}

/* Without a directory the limits cannot be kept either: one reason, one entry. */
static void enforce(struct collector *collector)
{
	wall_t now = steadyclock_look(&collector->steady, clock_mono(&collector->clock), clock_wall(&collector->clock));
	int r = spool_enforce(collector->spool, now, on_removed, collector);

	if (r < 0 && r != collector->unkept)
		log_line(LOG_WARNING, "cannot keep the limits of the incident directory: %s", strerror(-r));
	collector->unkept = r;
}

/* An urgent one. */
static void do_urgent(struct collector *collector, struct job *job)
{
	if (job->kind == JOB_CAPTURE)
		capture(collector, job->subject);
	else
		follow(job->subject);
	free(job);
}

/* While names are given to stacks: what would be lost by waiting for it. False: there is no time left. */
static bool meanwhile(void *ctx)
{
	struct collector *collector = ctx;
	struct collector_incident *again = next_again(collector);
	mono_t now = clock_mono(&collector->clock);
	struct job *job = jobs_urgent(&collector->jobs);

	if (job)
		do_urgent(collector, job);
	else if (again && mono_diff(now, again->again_at) >= 0)
		look_again(collector, again);
	if (!jobs_stopping(&collector->jobs))
		return true;
	if (collector->stop_by.ns == 0)
		collector->stop_by = mono_add(now, STOPPING_NS);

	return mono_diff(collector->stop_by, now) > 0;
}

static void seal(struct collector *collector, struct collector_incident *incident)
{
	const struct symbolizer_waiting waiting = { meanwhile, collector };
	struct sealing sealing = sealing_of(collector);
	int r;

	sequel_report(incident);
	stackevidence_write(collector->session, &waiting, incident);
	r = sealing_finish(&sealing, incident);

	pthread_mutex_lock(&collector->lock);
	if (r < 0)
		collector->counts.failed++;
	else
		collector->counts.sealed++;
	pthread_mutex_unlock(&collector->lock);

	if (r < 0)
		failing_say(&collector->failing, &incident->info, r, clock_mono(&collector->clock));
	else
		failing_sealed(&collector->failing, &incident->info);
	collector_incident_free(incident);
	if (r == 0)
		enforce(collector);
}

/* ---- the thread ---- */

static void do_job(struct collector *collector, struct job *job)
{
	struct collector_incident *incident = job->subject;

	if (job->kind == JOB_SEAL && jobs_park(&collector->jobs, &incident->pending, job))
		return;

	if (job->urgent) {
		do_urgent(collector, job);
		return;
	}
	if (job->kind == JOB_SEAL)
		seal(collector, incident);
	else
		enforce(collector);
	free(job);
}

static void *run(void *argument)
{
	struct collector *collector = argument;

	prctl(PR_SET_NAME, "collector");
	for (;;) {
		struct collector_incident *again = next_again(collector);
		mono_t until = again ? again->again_at : (mono_t){ 0 };
		struct job *job = NULL;
		int r = jobs_next(&collector->jobs, &collector->clock, until, &job);

		if (r == JOBS_END)
			return NULL;
		atomic_store(&collector->busy_since, clock_mono(&collector->clock).ns);
		if (r == JOBS_DUE)
			look_again(collector, again);
		else
			do_job(collector, job);
		atomic_store(&collector->busy_since, 0);
	}
}

static bool enqueue(struct collector *collector, enum job_kind kind, struct collector_incident *incident)
{
	struct job *job = calloc(1, sizeof *job);
	enum jobs_order order = JOBS_LAST;

	if (!job)
		return false;

	if (kind == JOB_CAPTURE || kind == JOB_FOLLOW)
		order = kind == JOB_CAPTURE && !incident->slice ? JOBS_FIRST : JOBS_URGENT;
	job->kind = (int)kind;
	job->subject = incident;
	jobs_put(&collector->jobs, job, order);

	return true;
}

void collector_capture(struct collector *collector, struct collector_incident *incident)
{
	if (!enqueue(collector, JOB_CAPTURE, incident))
		log_line(LOG_WARNING, "no memory to collect evidence of rule %s on %s", incident->info.rule.name,
			 incident->info.target.name);
}

void collector_follow(struct collector *collector, struct collector_incident *incident)
{
	if (atomic_exchange(&incident->following, true))
		return;
	/* Without memory the next time will do. */
	if (!enqueue(collector, JOB_FOLLOW, incident))
		atomic_store(&incident->following, false);
}

void collector_enforce(struct collector *collector)
{
	enqueue(collector, JOB_ENFORCE, NULL); /* without memory the next time will do */
}

mono_t collector_busy_since(const struct collector *collector)
{
	return (mono_t){ atomic_load(&collector->busy_since) };
}

void collector_seal(struct collector *collector, struct collector_incident *incident)
{
	if (enqueue(collector, JOB_SEAL, incident))
		return;

	/* Capturing may still be going on: the incident must not be freed here, and is lost. */
	log_line(LOG_ERR, "no memory to write the incident of rule %s on %s", incident->info.rule.name,
		 incident->info.target.name);
}

int collector_new(struct session *session, struct spool *spool, struct collector **ret)
{
	struct collector *collector = calloc(1, sizeof *collector);
	sigset_t all, before;
	int r;

	if (!collector)
		return -ENOMEM;

	collector->session = session;
	collector->spool = spool;
	collector->clock = realclock();
	steadyclock_look(&collector->steady, clock_mono(&collector->clock), clock_wall(&collector->clock));
	r = hooks_new(&collector->clock, &collector->hooks);
	if (r < 0) {
		free(collector);
		return r;
	}
	pthread_mutex_init(&collector->lock, NULL);
	jobs_init(&collector->jobs);

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&collector->thread, NULL, run, collector);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0) {
		hooks_free(collector->hooks);
		free(collector);
		return -r;
	}
	collector->running = true;
	*ret = collector;

	return 0;
}

clockid_t collector_cpu_clock(const struct collector *collector)
{
	clockid_t clock = CLOCK_THREAD_CPUTIME_ID;

	pthread_getcpuclockid(collector->thread, &clock);

	return clock;
}

/* Waits for the thread for so long. True: it has ended. */
static bool join(struct collector *collector, uint64_t wait_ns)
{
	wall_t until = { clock_wall(&collector->clock).ns + wait_ns };
	struct timespec deadline = { .tv_sec = (time_t)(until.ns / NS_PER_S), .tv_nsec = (long)(until.ns % NS_PER_S) };

	if (wait_ns == 0)
		return pthread_tryjoin_np(collector->thread, NULL) == 0;

	return pthread_timedjoin_np(collector->thread, NULL, &deadline) == 0;
}

/* Waits for the thread as long as it gets on. True: it has ended. */
static bool await_end(struct collector *collector)
{
	mono_t since = clock_mono(&collector->clock); /* when its job was begun, if that was after we came */

	while (!join(collector, LOOK_NS)) {
		mono_t busy = collector_busy_since(collector), now = clock_mono(&collector->clock);

		if (busy.ns == 0 || mono_diff(busy, since) > 0)
			since = busy.ns ? busy : now;
		if (mono_diff(now, since) > (int64_t)HANGS_NS)
			return false;
	}

	return true;
}

bool collector_stop(struct collector *collector)
{
	if (!collector || !collector->running)
		return true;

	if (collector->abandoned) {
		collector->running = !join(collector, 0);
		return !collector->running;
	}
	hooks_stop(collector->hooks);
	jobs_stop(&collector->jobs);
	collector->running = collector->abandoned = !await_end(collector);
	if (collector->abandoned)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_THREAD_STUCK, .thread = "collector" },
			  "collecting evidence hangs, mostly in a read of the files of a process: it is not waited "
			  "for. What was not written is recovered at the next start, as far as it can be.");

	return !collector->running;
}

void collector_free(struct collector *collector)
{
	if (!collector || !collector_stop(collector))
		return;

	hooks_free(collector->hooks);
	jobs_release(&collector->jobs);
	pthread_mutex_destroy(&collector->lock);
	free(collector);
}

void collector_counts(struct collector *collector, struct collector_counts *ret)
{
	pthread_mutex_lock(&collector->lock);
	*ret = collector->counts;
	pthread_mutex_unlock(&collector->lock);
}
