/*
 * incident_worker.c: a queue of jobs, captures before what seals. The thread knows no
 * configuration: an incident brings along what was in force when it was opened, so a reload has
 * nothing to wait for here.
 *
 * What is lost by waiting comes first: captures run as soon as a rule has fired, into the draft
 * that the incident will become. The samples and incident.json follow when the window is over. Only
 * the naming of stacks takes long; captures of other incidents go on meanwhile.
 */
#include "daemon/engine/incident/incident_worker.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/incident/capture.h"
#include "daemon/engine/incident/hooks.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/incident/ring_recorder.h"
#include "daemon/engine/incident/spool.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_capture.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/discovery.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/incident/incident.h"
#include "lib/incident/sample_window.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <time.h>

/* {0}: nothing has failed. All is failing.c's own. */
struct write_failures {
	int error; /* 0: the last one was written */
	mono_t said;
	uint64_t lost, unsaid; /* all of them; those not spoken for yet */
};

struct sealing {
	struct session *session;
	struct spool *spool;
	const struct clock *clock;
	/*
	 * Old incidents may have to make room, by the limits of retention: as with spool_enforce.
	 */
	void (*removed)(void *ctx, const struct retention_entry *entry, enum retention_reason why);
	void *ctx;
};

struct follow_up {
	struct session *session;
	const struct clock *clock;
	struct hooks *hooks;
	void (*done)(void *ctx); /* of the commands: from the thread of hooks */
};

/*
 * jobs.c: a list, a lock and a condition that knows the monotonic clock. A job that has to wait is
 * not in the list: whoever finishes the last thing that it waits for puts it back, and needs no
 * memory for that.
 */

void jobs_init(struct jobs *jobs)
{
	pthread_condattr_t attributes;

	*jobs = (struct jobs){ .last = &jobs->first };
	pthread_mutex_init(&jobs->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&jobs->wake, &attributes);
	pthread_condattr_destroy(&attributes);
}

void jobs_release(struct jobs *jobs)
{
	pthread_cond_destroy(&jobs->wake);
	pthread_mutex_destroy(&jobs->lock);
}

/* The lock is held. */
static void insert(struct jobs *jobs, struct job *job, enum jobs_order order)
{
	struct job **at = &jobs->first;

	while (order == JOBS_URGENT && *at && (*at)->urgent)
		at = &(*at)->next;
	job->urgent = true;
	job->next = *at;
	*at = job;
	if (!job->next)
		jobs->last = &job->next;
}

/* The lock is held. */
static void append(struct jobs *jobs, struct job *job)
{
	job->urgent = false;
	job->next = NULL;
	*jobs->last = job;
	jobs->last = &job->next;
}

void jobs_put(struct jobs *jobs, struct job *job, enum jobs_order order)
{
	pthread_mutex_lock(&jobs->lock);
	if (order == JOBS_LAST)
		append(jobs, job);
	else
		insert(jobs, job, order);
	pthread_cond_signal(&jobs->wake);
	pthread_mutex_unlock(&jobs->lock);
}

void jobs_stop(struct jobs *jobs)
{
	pthread_mutex_lock(&jobs->lock);
	jobs->stop = true;
	pthread_cond_signal(&jobs->wake);
	pthread_mutex_unlock(&jobs->lock);
}

/* The lock is held. */
static void wait_for_change(struct jobs *jobs, mono_t until)
{
	struct timespec at = { .tv_sec = (time_t)(until.ns / NS_PER_S), .tv_nsec = (long)(until.ns % NS_PER_S) };

	if (until.ns)
		pthread_cond_timedwait(&jobs->wake, &jobs->lock, &at);
	else
		pthread_cond_wait(&jobs->wake, &jobs->lock);
}

/* The lock is held. */
static struct job *take_first(struct jobs *jobs)
{
	struct job *job = jobs->first;

	jobs->first = job->next;
	if (!jobs->first)
		jobs->last = &jobs->first;

	return job;
}

int jobs_next(struct jobs *jobs, const struct clock *clock, mono_t until, struct job **ret)
{
	int r = -1;

	pthread_mutex_lock(&jobs->lock);
	while (r < 0) {
		if (until.ns && (jobs->stop || mono_diff(clock_mono(clock), until) >= 0)) {
			r = JOBS_DUE;
		} else if (jobs->first) {
			*ret = take_first(jobs);
			r = 0;
		} else if (jobs->stop && jobs->waiting == 0) {
			r = JOBS_END;
		} else {
			wait_for_change(jobs, until);
		}
	}
	pthread_mutex_unlock(&jobs->lock);

	return r;
}

struct job *jobs_urgent(struct jobs *jobs)
{
	struct job *job = NULL;

	pthread_mutex_lock(&jobs->lock);
	if (jobs->first && jobs->first->urgent)
		job = take_first(jobs);
	pthread_mutex_unlock(&jobs->lock);

	return job;
}

bool jobs_stopping(struct jobs *jobs)
{
	bool stop;

	pthread_mutex_lock(&jobs->lock);
	stop = jobs->stop;
	pthread_mutex_unlock(&jobs->lock);

	return stop;
}

/* ---- what is waited for ---- */

void jobs_begin(struct jobs *jobs, struct jobs_pending *pending)
{
	pthread_mutex_lock(&jobs->lock);
	jobs->waiting += pending->unfinished == 0;
	pending->unfinished++;
	pthread_mutex_unlock(&jobs->lock);
}

void jobs_finish(struct jobs *jobs, struct jobs_pending *pending)
{
	pthread_mutex_lock(&jobs->lock);
	if (--pending->unfinished == 0) {
		jobs->waiting--;
		if (pending->parked)
			append(jobs, TAKE(pending->parked));
		pthread_cond_signal(&jobs->wake);
	}
	pthread_mutex_unlock(&jobs->lock);
}

bool jobs_park(struct jobs *jobs, struct jobs_pending *pending, struct job *job)
{
	bool parked;

	pthread_mutex_lock(&jobs->lock);
	parked = pending->unfinished > 0;
	if (parked)
		pending->parked = job;
	pthread_mutex_unlock(&jobs->lock);

	return parked;
}

/* failing.c: counts what is not said, and says it with the next. */

/* How often the same trouble is said. */
#define SAY_AGAIN_NS (60 * NS_PER_S)

/*
 * One more that could not be written: said when it begins, when the reason changes, and once a
 * minute.
 */
static void write_failures_say(struct write_failures *write_failures, const struct incident *info, int error,
			       mono_t now)
{
	struct log_about about = {
		.message = MESSAGE_INCIDENT_FAILED,
		.state = write_failures->error ? "change" : "begin",
		.rule = info->rule.name,
		.target = info->target.name,
		.error = error,
	};

	write_failures->lost++;
	write_failures->unsaid++;
	if (write_failures->error == error && mono_diff(now, write_failures->said) < (int64_t)SAY_AGAIN_NS)
		return;

	about.count = write_failures->unsaid;
	log_about(LOG_ERR, &about, "incident of rule %s on %s could not be written: %s", info->rule.name,
		  info->target.name, strerror(-error));
	write_failures->error = error;
	write_failures->said = now;
	write_failures->unsaid = 0;
}

/* One was sealed, which is said; and if others could not be written, that it is over. */
static void write_failures_sealed(struct write_failures *write_failures, const struct incident *info)
{
	struct log_about about = {
		.message = MESSAGE_INCIDENT_SEALED,
		.rule = info->rule.name,
		.target = info->target.name,
		.incident = info->id,
	};
	struct log_about end = { .message = MESSAGE_INCIDENT_FAILED, .state = "end", .count = write_failures->lost };

	if (write_failures->error)
		log_about(LOG_NOTICE, &end, "incidents can be written again; %llu could not",
			  (unsigned long long)write_failures->lost);
	*write_failures = (struct write_failures){ 0 };
	log_about(LOG_NOTICE, &about, "sealed incident %s", info->id);
}

/*
 * sealing.c: fitting an incident onto the disk that there is.
 *
 * Captures are written when the rule fires, samples when the window is over: on a full disk the
 * order of time is the wrong one. So room for the samples is made by removing, in this order: old
 * incidents (as far as retention wants that anyway), the captures from the largest down; and when
 * incident.json itself does not fit, the samples. Where removing all captures would not be enough
 * for the samples, they stay and the samples do not.
 *
 * What does not depend on the room that is left (a limit of the size of a file, an I/O error) costs
 * what it hits, and nothing else.
 */

/* incident.json, MANIFEST, and the blocks that directories take. */
#define RATE_LIMIT_BYTES 16384u

/* Room is given out in blocks of so many bytes. */
#define BLOCK_BYTES 4096u

static bool is_full(int error)
{
	return error == -ENOSPC || error == -EDQUOT;
}

/* ---- beginning ---- */

static struct incident_capture samples_record(void)
{
	struct incident_capture record = { .status = INCIDENT_CAPTURE_OK };

	incident_text(record.name, sizeof record.name, config_capture_name(CONFIG_CAPTURE_SAMPLES));
	incident_text(record.file, sizeof record.file, INCIDENT_SAMPLES_FILE);

	return record;
}

static void fail_record(struct incident_capture *record, const char *why)
{
	record->status = INCIDENT_CAPTURE_FAILED;
	record->file[0] = '\0';
	record->bytes = 0;
	incident_text(record->why, sizeof record->why, why);
}

static bool wants_samples(const struct incident_worker_incident *incident)
{
	return incident->settings.captures & CONFIG_CAPTURE_SAMPLES;
}

static struct full_recording_options full_recording_of(const struct sealing *sealing,
						       const struct incident_worker_incident *incident)
{
	return (struct full_recording_options){
		.ring = session_ring(sealing->session),
		.fired = incident->fired,
		.wall = incident->wall,
		.before_ns = incident->settings.before_ns,
		.after_ns = incident->settings.after_ns,
		.interval_ns = incident->settings.interval_ns,
		.max_bytes = incident->settings.max_bytes,
	};
}

static void open_full_recording(const struct sealing *sealing, struct incident_worker_incident *incident)
{
	struct full_recording_options options = full_recording_of(sealing, incident);

	incident->full_recording_error =
		full_recording_open(&options, spool_draft_dirfd(incident->draft), &incident->full_recording);
}

/*
 * Makes the incident's draft; without one says why in incident->error. Of everything: opens the
 * full recording too, if samples are wanted.
 */
static void sealing_begin(const struct sealing *sealing, struct incident_worker_incident *incident)
{
	char stem[INCIDENT_NAME_MAX + 1];

	incident_stem(incident->wall, incident->target.name, incident->info.rule.name, stem, sizeof stem);
	incident->error = spool_begin(sealing->spool, stem, &incident->draft);
	if (incident->error < 0)
		incident->draft = NULL;
	else if (!incident->sample_window && wants_samples(incident))
		open_full_recording(sealing, incident);
}

/*
 * The draft is gone, or never was: what was captured is lost, but samples may be written all the
 * same.
 */
static void begin_again(const struct sealing *sealing, struct incident_worker_incident *incident)
{
	int why = incident->draft ? -ENOENT : incident->error;

	full_recording_abort(TAKE(incident->full_recording));
	spool_abort(TAKE(incident->draft));
	incident->evidence.capture_count = 0;
	capture_fail_all(evidence_captures(incident), why ? why : -ENOMEM, &incident->evidence);
	if (incident->plan)
		hook_plan_refuse(incident->plan, strerrordesc_np(why ? -why : ENOMEM), &incident->evidence);
	sealing_begin(sealing, incident);
}

/* ---- making room ---- */

static uint64_t free_bytes(int dirfd)
{
	struct statvfs fs;

	if (fstatvfs(dirfd, &fs) < 0)
		return 0;

	return (uint64_t)(geteuid() == 0 ? fs.f_bfree : fs.f_bavail) * fs.f_frsize;
}

static uint64_t captured_bytes(const struct incident *info)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < info->capture_count; i++)
		bytes += (info->captures[i].bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;

	return bytes;
}

/* Removes the largest file but the samples, and says so in its record. False: there is none. */
static bool drop_largest(struct incident_worker_incident *incident, int error)
{
	struct incident_capture *largest = NULL;
	char why[96];

	for (size_t i = 0; i < incident->info.capture_count; i++) {
		struct incident_capture *capture = &incident->info.captures[i];

		if (*capture->file && strcmp(capture->file, INCIDENT_SAMPLES_FILE) != 0 &&
		    (!largest || capture->bytes > largest->bytes))
			largest = capture;
	}
	if (!largest || unlinkat(spool_draft_dirfd(incident->draft), largest->file, 0) < 0)
		return false;

	snprintf(why, sizeof why, "removed to make room for the rest: %s", strerrordesc_np(-error));
	fail_record(largest, why);

	return true;
}

/* The samples are what comes last. False: they are not there. */
static bool drop_samples(struct incident_worker_incident *incident, int error)
{
	for (size_t i = 0; i < incident->info.capture_count; i++) {
		struct incident_capture *capture = &incident->info.captures[i];

		if (strcmp(capture->file, INCIDENT_SAMPLES_FILE) != 0)
			continue;
		if (unlinkat(spool_draft_dirfd(incident->draft), capture->file, 0) < 0)
			return false;
		fail_record(capture, strerrordesc_np(-error));
		return true;
	}

	return false;
}

static void sealing_enforce(const struct sealing *sealing)
{
	spool_enforce(sealing->spool, (wall_t){ 0 }, sealing->removed, sealing->ctx); /* by size: age is no hurry */
}

/* ---- samples ---- */

static struct capture_context context_of(const struct sealing *sealing, const struct incident_worker_incident *incident)
{
	return (struct capture_context){
		.procfd = session_procfd(sealing->session),
		.clock = sealing->clock,
		.mounts = session_mounts(sealing->session),
		.target = &incident->target,
		.limits = &incident->info.limits,
		.sample_window = incident->sample_window,
		.sample_window_start = { incident->wall.ns -
					 (uint64_t)mono_diff(incident->fired,
							     sample_window_start(incident->sample_window)) },
	};
}

/*
 * Ends the file that was begun, or says why it was given up; the next time it begins anew, with
 * what the ring still holds.
 */
static int write_full_recording(const struct sealing *sealing, struct incident_worker_incident *incident,
				struct incident_capture *ret)
{
	int r = incident->full_recording_error;

	*ret = samples_record();
	incident->full_recording_error = 0;
	if (r == 0 && !incident->full_recording) {
		open_full_recording(sealing, incident);
		r = incident->full_recording_error;
		incident->full_recording_error = 0;
	}
	if (r == 0)
		r = full_recording_close(TAKE(incident->full_recording), &incident->info.coverage, &ret->bytes);
	if (r < 0)
		fail_record(ret, strerrordesc_np(-r));

	return r;
}

static int write_samples(const struct sealing *sealing, struct incident_worker_incident *incident,
			 struct incident_capture *ret)
{
	struct capture_context context;

	if (!incident->sample_window)
		return write_full_recording(sealing, incident, ret);

	context = context_of(sealing, incident);

	return capture_run(&context, CONFIG_CAPTURE_SAMPLES, spool_draft_dirfd(incident->draft), ret);
}

/*
 * Whether removing all captures would do: how much the samples need can be known without writing
 * them.
 */
static bool would_fit(const struct sealing *sealing, const struct incident_worker_incident *incident)
{
	uint64_t needed;
	int r;

	if (incident->sample_window) {
		struct capture_context context = context_of(sealing, incident);

		r = capture_samples_bytes(&context, &needed);
	} else {
		struct full_recording_options options = full_recording_of(sealing, incident);

		r = full_recording_bytes(&options, &needed);
	}

	return r < 0 || needed + RATE_LIMIT_BYTES <=
				free_bytes(spool_draft_dirfd(incident->draft)) + captured_bytes(&incident->info);
}

static void add_samples(const struct sealing *sealing, struct incident_worker_incident *incident)
{
	struct incident_capture record;
	int r = write_samples(sealing, incident, &record);

	if (is_full(r)) {
		sealing_enforce(sealing);
		r = write_samples(sealing, incident, &record);
	}
	if (is_full(r) && would_fit(sealing, incident)) {
		while (is_full(r) && drop_largest(incident, r))
			r = write_samples(sealing, incident, &record);
	}
	incident_add_capture(&incident->info, &record);
}

/* ---- what commands have left ---- */

/* Before the samples, so that on a full disk it makes room for them like other captures. */
static int settle_strays(const struct sealing *sealing, struct incident_worker_incident *incident)
{
	uint64_t most = incident->settings.max_incident_bytes, taken = 0;
	int r;

	if (!incident->plan)
		return 0;

	if (wants_samples(incident)) {
		struct capture_context context = context_of(sealing, incident);

		r = capture_samples_bytes(&context, &taken);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < incident->info.capture_count; i++)
		taken += incident->info.captures[i].bytes;

	return leftover_files_settle(spool_draft_dirfd(incident->draft), taken < most ? most - taken : 0,
				     &incident->info);
}

/* ---- the end ---- */

static void describe_slice(struct incident_worker_incident *incident)
{
	struct incident *info = &incident->info;
	uint64_t grain = info->rule.window_ns > 100 * NS_PER_MS ? info->rule.window_ns : 100 * NS_PER_MS;

	sample_window_coverage(incident->sample_window, incident->settings.interval_ns, &info->coverage);
	sample_window_peaks(incident->sample_window, grain, &info->peaks);
	if (info->peaks.has_cpu && info->limits.cpu && info->limits.cpu != UINT64_MAX)
		info->peak_cpu_percent = 100 * info->peaks.cpu_cores * 1e9 / (double)info->limits.cpu;
}

static int publish(struct incident_worker_incident *incident)
{
	int r;

	do
		r = spool_write(incident->draft, &incident->info);
	while (is_full(r) && (drop_largest(incident, r) || drop_samples(incident, r)));
	if (r < 0) {
		spool_abort(TAKE(incident->draft));
		return r;
	}

	return spool_publish(TAKE(incident->draft));
}

/*
 * Writes what is still to be written and seals it; makes the draft if there was none, or if
 * somebody removed it. incident has no draft any more. 0: info.id is its name; -errno: nothing is
 * left of it.
 */
static int sealing_finish(const struct sealing *sealing, struct incident_worker_incident *incident)
{
	int r;

	if (!incident->draft || spool_lost(incident->draft))
		begin_again(sealing, incident);
	if (!incident->draft)
		return incident->error;

	incident_text(incident->info.id, sizeof incident->info.id, spool_draft_name(incident->draft));
	for (size_t i = 0; i < incident->evidence.capture_count; i++)
		incident_add_capture(&incident->info, &incident->evidence.captures[i]);
	if (incident->sample_window)
		describe_slice(incident);
	r = settle_strays(sealing, incident);
	if (r < 0) {
		spool_abort(TAKE(incident->draft));
		return r;
	}
	if (wants_samples(incident))
		add_samples(sealing, incident);

	return publish(incident);
}

/*
 * follow_up.c: glue between an incident, its entry in the configuration, the thread of hooks and
 * the captures.
 */

static const struct config_target *find_entry(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->target_count; i++)
		if (strcmp(config->targets[i].name, name) == 0)
			return &config->targets[i];

	return NULL;
}

void follow_up_plan(struct incident_worker_incident *incident, const struct config *config)
{
	const struct config_target *entry = incident->sample_window ? find_entry(config, incident->target.entry) : NULL;
	struct incident_capture failed = { .name = "run", .status = INCIDENT_CAPTURE_FAILED, .why = "no memory" };

	if (!entry)
		return;

	incident->settings.again_ns = entry->again_ns;
	if (hook_plan_new(entry, incident->info.rule.name, &incident->plan) < 0)
		incident_add_capture(&incident->evidence, &failed);
}

/* ---- commands ---- */

/*
 * Begins to run the commands. True: done(incident) will be called; false: there are none, or the
 * incident says why none is run.
 */
static bool follow_up_run(const struct follow_up *follow_up, struct incident_worker_incident *incident)
{
	const struct incident_worker_member *looked_at = incident->member_count ? &incident->members[0] : NULL;
	struct hooks_scene scene = {
		.plan = incident->plan,
		.dirfd = spool_draft_dirfd(incident->draft),
		.procfd = session_procfd(follow_up->session),
		.pid = looked_at ? looked_at->pid : 0,
		.start_ticks = looked_at ? looked_at->start_ticks : 0,
		.rule = incident->evidence.rule.name,
		.target = incident->target.name,
		.fired = incident->fired,
		.max_bytes = incident->settings.max_incident_bytes,
		.done = follow_up->done,
		.ctx = incident,
	};
	int r;

	if (!incident->plan)
		return false;

	r = hooks_start(follow_up->hooks, &scene, &incident->run);
	if (r < 0)
		hook_plan_refuse(incident->plan, strerrordesc_np(-r), &incident->evidence);

	return r == 0;
}

static void say(const struct incident_worker_incident *incident, const struct incident_capture *capture)
{
	struct log_about about = {
		.rule = incident->evidence.rule.name,
		.target = incident->target.name,
		.incident = spool_draft_name(incident->draft),
	};

	log_about(LOG_INFO, &about, "%s of incident %s: %s: %s", capture->name, spool_draft_name(incident->draft),
		  incident_capture_status_name(capture->status), capture->why);
}

/*
 * After done: adds to the incident what became of the commands, and says in the log what went
 * wrong.
 */
static void follow_up_report(struct incident_worker_incident *incident)
{
	size_t before = incident->evidence.capture_count;

	if (!incident->run)
		return;

	hookrun_report(incident->run, &incident->evidence);
	for (size_t i = before; i < incident->evidence.capture_count; i++)
		if (incident->evidence.captures[i].status != INCIDENT_CAPTURE_OK)
			say(incident, &incident->evidence.captures[i]);
	hookrun_free(TAKE(incident->run));
}

/* ---- the second look ---- */

/* When the second look is due; 0: there will be none. */
static mono_t follow_up_again_at(const struct incident_worker_incident *incident)
{
	if (incident->settings.again_ns == 0 || evidence_again_captures(incident) == 0)
		return (mono_t){ 0 };

	return mono_add(incident->captured, incident->settings.again_ns);
}

/* Takes it; why: not NULL: it is not taken, for this reason. */
static void follow_up_again(const struct follow_up *follow_up, struct incident_worker_incident *incident,
			    const char *why)
{
	if (why)
		capture_skip_again(evidence_again_captures(incident), why, &incident->evidence);
	else
		evidence_again(follow_up->session, follow_up->clock, incident);
}

/* stack_evidence.c: from what an incident is about to what its stacks are about. */

/*
 * Secures what the rings hold of the time before; why not, if not, is added to incident->evidence.
 * held: see stack_capture_options.
 */
static void stack_evidence_secure(struct session *session, size_t *held, struct incident_worker_incident *incident)
{
	struct stack_capture_options options = {
		.recorder = session_stacks(session),
		.procfd = session_procfd(session),
		.symbolizer = session_symbolizer(session),
		.before_ns = incident->settings.before_ns,
		.spike_from_ns = incident->info.window_from.ns,
		.fired = incident->fired,
		.wall = incident->wall,
		.held = held,
	};

	if (options.recorder)
		incident->stacks = stack_capture_secure(&options, &incident->evidence);
}

/* Of everything: all processes are of interest. Of a cgroup: those that were busiest. */
static void choose_focus(struct session *session, const struct incident_worker_incident *incident,
			 struct stack_capture_focus *ret)
{
	ret->count = 0;
	if (!incident->sample_window)
		return;
	if (incident->target.kind == TARGET_GROUP)
		ret->count = discovery_pids(session_discovery(session), incident->target.id, ret->pids,
					    SYMBOLIZER_FOCUS_MAX);
	for (size_t i = 0; ret->count == i && i < incident->member_count; i++)
		ret->pids[ret->count++] = incident->members[i].pid;
}

/*
 * Writes them into the draft, and does what is said in waiting meanwhile; what became of it is
 * added to incident->evidence.
 */
static void stack_evidence_write(struct session *session, const struct symbolizer_waiting *waiting,
				 struct incident_worker_incident *incident)
{
	struct stack_capture_focus focus;

	if (!incident->stacks || !incident->draft)
		return;

	choose_focus(session, incident, &focus);
	stack_capture_write(TAKE(incident->stacks), &focus, spool_draft_dirfd(incident->draft), waiting,
			    &incident->evidence);
}

/* incident_worker_incident.c: what an incident brings along, and what it leaves. */

void incident_worker_incident_free(struct incident_worker_incident *incident)
{
	if (!incident)
		return;

	sample_window_free(incident->sample_window);
	hookrun_free(incident->run);
	hook_plan_free(incident->plan);
	full_recording_abort(incident->full_recording);
	spool_abort(incident->draft);
	stack_capture_free(incident->stacks);
	free(incident);
}

struct incident_worker_settings incident_worker_settings_of(const struct config *config)
{
	uint64_t most = config->incidents.max_incident_bytes;

	return (struct incident_worker_settings){
		.before_ns = config->incidents.before_ns,
		.after_ns = config->incidents.after_ns,
		.interval_ns = config->sampling.interval_ns,
		.max_bytes =
			most > 2 * (uint64_t)FREE_SPACE_CAPTURES_BYTES ? most - FREE_SPACE_CAPTURES_BYTES : most / 2,
		.captures = config->incidents.captures,
		.max_incident_bytes = most,
	};
}

/* Second looks that may be waited for; each keeps an incident in memory beyond its window. */
#define AGAIN_MAX 16

/*
 * What all stacks together may still take, by the clock, when the daemon is being stopped: a
 * fraction of what systemd waits for.
 */
#define STOPPING_NS (10 * NS_PER_S)

/*
 * How long one job, or what is left of it, is waited for then, and how often it is looked. Evidence
 * of many gigabytes and a slow disk take some seconds.
 */
#define HANGS_NS (20 * NS_PER_S)
#define LOOK_NS (NS_PER_S / 4)

enum job_kind { JOB_CAPTURE, JOB_FOLLOW, JOB_SEAL, JOB_ENFORCE };

struct incident_worker {
	struct steady_clock steady; /* the thread's */
	struct session *session;
	struct spool *spool;
	struct clock clock;
	struct jobs jobs;
	pthread_mutex_t lock; /* of counts */
	struct incident_worker_counts counts;
	uint64_t hangs_ns;
	bool running, abandoned;
	struct write_failures write_failures; /* the thread's */
	size_t stacks_held;                   /* by incidents that are open. The thread's */
	mono_t stop_by;                       /* 0: it was not being stopped when somebody looked. The thread's */
	int unkept;                           /* the last result of keeping the limits. The thread's */
	_Atomic uint64_t busy_since;
	pthread_t thread;
	struct hooks *hooks;
	struct incident_worker_incident *again; /* with a second look to come. The thread's */
};

/* ---- what is said ---- */

static void on_removed(void *ctx, const struct retention_entry *entry, enum retention_reason why)
{
	struct log_about about = { .message = MESSAGE_INCIDENT_REMOVED, .incident = entry->name };
	struct incident_worker *incident_worker = ctx;

	pthread_mutex_lock(&incident_worker->lock);
	incident_worker->counts.removed++;
	pthread_mutex_unlock(&incident_worker->lock);
	log_about(LOG_INFO, &about, "removed incident %s (severity %.2f): limit of %s", entry->name, entry->severity,
		  retention_reason_name(why));
}

/* The incident whose second look comes next, NULL: none. */
static struct incident_worker_incident *next_again(const struct incident_worker *incident_worker)
{
	struct incident_worker_incident *next = incident_worker->again;

	for (struct incident_worker_incident *other = next; other; other = other->again_next)
		if (mono_diff(other->again_at, next->again_at) < 0)
			next = other;

	return next;
}

/* ---- jobs ---- */

static struct sealing sealing_of(struct incident_worker *incident_worker)
{
	return (struct sealing){
		.session = incident_worker->session,
		.spool = incident_worker->spool,
		.clock = &incident_worker->clock,
		.removed = on_removed,
		.ctx = incident_worker,
	};
}

/* What there is now is what will be left if the daemon is killed before the window is over. */
static void note(struct incident_worker_incident *incident)
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

	incident_add_capture(&so_far, incident->full_recording ? &cut : &lost);
	if (spool_note(incident->draft, &so_far) < 0)
		log_line(LOG_DEBUG, "incident %s could not be noted", spool_draft_name(incident->draft));
}

/* ---- what is finished later ---- */

/* From the thread of hooks. */
static void on_commands_done(void *ctx)
{
	struct incident_worker_incident *incident = ctx;

	jobs_finish(&incident->incident_worker->jobs, &incident->pending);
}

static struct follow_up follow_up_of(struct incident_worker *incident_worker)
{
	return (struct follow_up){
		.session = incident_worker->session,
		.clock = &incident_worker->clock,
		.hooks = incident_worker->hooks,
		.done = on_commands_done,
	};
}

static void expect_again(struct incident_worker *incident_worker, struct incident_worker_incident *incident)
{
	struct follow_up follow_up = follow_up_of(incident_worker);
	size_t count = 0;

	incident->again_at = follow_up_again_at(incident);
	if (incident->again_at.ns == 0)
		return;
	for (const struct incident_worker_incident *other = incident_worker->again; other; other = other->again_next)
		count++;
	if (count == AGAIN_MAX) {
		incident->again_at.ns = 0;
		follow_up_again(&follow_up, incident, "too many are waited for");
		return;
	}
	jobs_begin(&incident_worker->jobs, &incident->pending);
	incident->again_next = incident_worker->again;
	incident_worker->again = incident;
}

static void look_again(struct incident_worker *incident_worker, struct incident_worker_incident *incident)
{
	struct follow_up follow_up = follow_up_of(incident_worker);
	bool due = mono_diff(clock_mono(&incident_worker->clock), incident->again_at) >= 0;

	for (struct incident_worker_incident **at = &incident_worker->again; *at; at = &(*at)->again_next) {
		if (*at == incident) {
			*at = incident->again_next;
			break;
		}
	}
	incident->again_at.ns = 0;
	follow_up_again(&follow_up, incident, due ? NULL : "the daemon was being stopped");
	jobs_finish(&incident_worker->jobs, &incident->pending);
}

/* The done of the commands may come before follow_up_run returns. */
static void run_commands(struct incident_worker *incident_worker, struct incident_worker_incident *incident)
{
	struct follow_up follow_up = follow_up_of(incident_worker);

	jobs_begin(&incident_worker->jobs, &incident->pending);
	if (!follow_up_run(&follow_up, incident))
		jobs_finish(&incident_worker->jobs, &incident->pending);
}

/* ---- jobs ---- */

static void capture(struct incident_worker *incident_worker, struct incident_worker_incident *incident)
{
	struct sealing sealing = sealing_of(incident_worker);

	stack_evidence_secure(incident_worker->session, &incident_worker->stacks_held,
			      incident); /* first of all: the rings go on */
	sealing_begin(&sealing, incident);
	if (!incident->draft)
		return;

	incident->incident_worker = incident_worker;
	evidence_collect(incident_worker->session, &incident_worker->clock, incident);
	note(incident);
	expect_again(incident_worker, incident);
	run_commands(incident_worker, incident);
}

static void follow(struct incident_worker_incident *incident)
{
	atomic_store(&incident->thread_selection, false);
	if (!incident->full_recording)
		return;

	incident->full_recording_error = full_recording_follow(incident->full_recording);
	if (incident->full_recording_error < 0)
		full_recording_abort(TAKE(incident->full_recording));
}

/* Without a directory the limits cannot be kept either: one reason, one entry. */
static void enforce(struct incident_worker *incident_worker)
{
	wall_t now = steady_clock_look(&incident_worker->steady, clock_mono(&incident_worker->clock),
				       clock_wall(&incident_worker->clock));
	int r = spool_enforce(incident_worker->spool, now, on_removed, incident_worker);

	if (r < 0 && r != incident_worker->unkept)
		log_line(LOG_WARNING, "cannot keep the limits of the incident directory: %s", strerror(-r));
	incident_worker->unkept = r;
}

/* An urgent one. */
static void do_urgent(struct incident_worker *incident_worker, struct job *job)
{
	if (job->kind == JOB_CAPTURE)
		capture(incident_worker, job->subject);
	else
		follow(job->subject);
	free(job);
}

/*
 * While names are given to stacks: what would be lost by waiting for it. False: there is no time
 * left.
 */
static bool meanwhile(void *ctx)
{
	struct incident_worker *incident_worker = ctx;
	struct incident_worker_incident *again = next_again(incident_worker);
	mono_t now = clock_mono(&incident_worker->clock);
	struct job *job = jobs_urgent(&incident_worker->jobs);

	if (job)
		do_urgent(incident_worker, job);
	else if (again && mono_diff(now, again->again_at) >= 0)
		look_again(incident_worker, again);
	if (!jobs_stopping(&incident_worker->jobs))
		return true;
	if (incident_worker->stop_by.ns == 0)
		incident_worker->stop_by = mono_add(now, STOPPING_NS);

	return mono_diff(incident_worker->stop_by, now) > 0;
}

static void seal(struct incident_worker *incident_worker, struct incident_worker_incident *incident)
{
	const struct symbolizer_waiting waiting = { meanwhile, incident_worker };
	struct sealing sealing = sealing_of(incident_worker);
	int r;

	follow_up_report(incident);
	stack_evidence_write(incident_worker->session, &waiting, incident);
	r = sealing_finish(&sealing, incident);

	pthread_mutex_lock(&incident_worker->lock);
	if (r < 0)
		incident_worker->counts.failed++;
	else
		incident_worker->counts.sealed++;
	pthread_mutex_unlock(&incident_worker->lock);

	if (r < 0)
		write_failures_say(&incident_worker->write_failures, &incident->info, r,
				   clock_mono(&incident_worker->clock));
	else
		write_failures_sealed(&incident_worker->write_failures, &incident->info);
	incident_worker_incident_free(incident);
	if (r == 0)
		enforce(incident_worker);
}

/* ---- the thread ---- */

static void do_job(struct incident_worker *incident_worker, struct job *job)
{
	struct incident_worker_incident *incident = job->subject;

	if (job->kind == JOB_SEAL && jobs_park(&incident_worker->jobs, &incident->pending, job))
		return;

	if (job->urgent) {
		do_urgent(incident_worker, job);
		return;
	}
	if (job->kind == JOB_SEAL)
		seal(incident_worker, incident);
	else
		enforce(incident_worker);
	free(job);
}

static void *run(void *argument)
{
	struct incident_worker *incident_worker = argument;

	prctl(PR_SET_NAME, "collector");
	for (;;) {
		struct incident_worker_incident *again = next_again(incident_worker);
		mono_t until = again ? again->again_at : (mono_t){ 0 };
		struct job *job = NULL;
		int r = jobs_next(&incident_worker->jobs, &incident_worker->clock, until, &job);

		if (r == JOBS_END)
			return NULL;
		atomic_store(&incident_worker->busy_since, clock_mono(&incident_worker->clock).ns);
		if (r == JOBS_DUE)
			look_again(incident_worker, again);
		else
			do_job(incident_worker, job);
		atomic_store(&incident_worker->busy_since, 0);
	}
}

static bool enqueue(struct incident_worker *incident_worker, enum job_kind kind,
		    struct incident_worker_incident *incident)
{
	struct job *job = calloc(1, sizeof *job);
	enum jobs_order order = JOBS_LAST;

	if (!job)
		return false;

	if (kind == JOB_CAPTURE || kind == JOB_FOLLOW)
		order = kind == JOB_CAPTURE && !incident->sample_window ? JOBS_FIRST : JOBS_URGENT;
	job->kind = (int)kind;
	job->subject = incident;
	jobs_put(&incident_worker->jobs, job, order);

	return true;
}

void incident_worker_capture(struct incident_worker *incident_worker, struct incident_worker_incident *incident)
{
	if (!enqueue(incident_worker, JOB_CAPTURE, incident))
		log_line(LOG_WARNING, "no memory to collect evidence of rule %s on %s", incident->info.rule.name,
			 incident->info.target.name);
}

void incident_worker_follow(struct incident_worker *incident_worker, struct incident_worker_incident *incident)
{
	if (atomic_exchange(&incident->thread_selection, true))
		return;
	/* Without memory the next time will do. */
	if (!enqueue(incident_worker, JOB_FOLLOW, incident))
		atomic_store(&incident->thread_selection, false);
}

void incident_worker_enforce(struct incident_worker *incident_worker)
{
	enqueue(incident_worker, JOB_ENFORCE, NULL); /* without memory the next time will do */
}

mono_t incident_worker_busy_since(const struct incident_worker *incident_worker)
{
	return (mono_t){ atomic_load(&incident_worker->busy_since) };
}

void incident_worker_seal(struct incident_worker *incident_worker, struct incident_worker_incident *incident)
{
	if (enqueue(incident_worker, JOB_SEAL, incident))
		return;

	/* Capturing may still be going on: the incident must not be freed here, and is lost. */
	log_line(LOG_ERR, "no memory to write the incident of rule %s on %s", incident->info.rule.name,
		 incident->info.target.name);
}

int incident_worker_new(struct session *session, struct spool *spool, uint64_t stuck_ns, struct incident_worker **ret)
{
	struct incident_worker *incident_worker = calloc(1, sizeof *incident_worker);
	sigset_t all, before;
	int r;

	if (!incident_worker)
		return -ENOMEM;

	incident_worker->session = session;
	incident_worker->spool = spool;
	incident_worker->hangs_ns = stuck_ns ? stuck_ns : HANGS_NS;
	incident_worker->clock = real_clock();
	steady_clock_look(&incident_worker->steady, clock_mono(&incident_worker->clock),
			  clock_wall(&incident_worker->clock));
	r = hooks_new(&incident_worker->clock, &incident_worker->hooks);
	if (r < 0) {
		free(incident_worker);
		return r;
	}
	pthread_mutex_init(&incident_worker->lock, NULL);
	jobs_init(&incident_worker->jobs);

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&incident_worker->thread, NULL, run, incident_worker);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0) {
		hooks_free(incident_worker->hooks);
		free(incident_worker);
		return -r;
	}
	incident_worker->running = true;
	*ret = incident_worker;

	return 0;
}

clockid_t incident_worker_cpu_clock(const struct incident_worker *incident_worker)
{
	clockid_t clock = CLOCK_THREAD_CPUTIME_ID;

	pthread_getcpuclockid(incident_worker->thread, &clock);

	return clock;
}

/* Waits for the thread for so long. True: it has ended. */
static bool join(struct incident_worker *incident_worker, uint64_t wait_ns)
{
	wall_t until = { clock_wall(&incident_worker->clock).ns + wait_ns };
	struct timespec deadline = { .tv_sec = (time_t)(until.ns / NS_PER_S), .tv_nsec = (long)(until.ns % NS_PER_S) };

	if (wait_ns == 0)
		return pthread_tryjoin_np(incident_worker->thread, NULL) == 0;

	return pthread_timedjoin_np(incident_worker->thread, NULL, &deadline) == 0;
}

/* Waits for the thread as long as it gets on. True: it has ended. */
static bool await_end(struct incident_worker *incident_worker)
{
	mono_t since = clock_mono(&incident_worker->clock); /* when its job was begun, if that was after we came */

	while (!join(incident_worker, LOOK_NS)) {
		mono_t busy = incident_worker_busy_since(incident_worker), now = clock_mono(&incident_worker->clock);

		if (busy.ns == 0 || mono_diff(busy, since) > 0)
			since = busy.ns ? busy : now;
		if (mono_diff(now, since) > (int64_t)incident_worker->hangs_ns)
			return false;
	}

	return true;
}

bool incident_worker_stop(struct incident_worker *incident_worker)
{
	if (!incident_worker || !incident_worker->running)
		return true;

	if (incident_worker->abandoned) {
		incident_worker->running = !join(incident_worker, 0);
		return !incident_worker->running;
	}
	hooks_stop(incident_worker->hooks);
	jobs_stop(&incident_worker->jobs);
	incident_worker->running = incident_worker->abandoned = !await_end(incident_worker);
	if (incident_worker->abandoned)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_THREAD_STUCK, .thread = "collector" },
			  "collecting evidence hangs, mostly in a read of the files of a process: it is not waited "
			  "for. What was not written is recovered at the next start, as far as it can be.");

	return !incident_worker->running;
}

void incident_worker_free(struct incident_worker *incident_worker)
{
	if (!incident_worker || !incident_worker_stop(incident_worker))
		return;

	hooks_free(incident_worker->hooks);
	jobs_release(&incident_worker->jobs);
	pthread_mutex_destroy(&incident_worker->lock);
	free(incident_worker);
}

void incident_worker_counts(struct incident_worker *incident_worker, struct incident_worker_counts *ret)
{
	pthread_mutex_lock(&incident_worker->lock);
	*ret = incident_worker->counts;
	pthread_mutex_unlock(&incident_worker->lock);
}
