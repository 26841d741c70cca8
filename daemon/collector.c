/*
 * collector.c: a queue of two kinds of jobs, in order, so that the captures of an incident are done when it is sealed.
 *
 * What is lost by waiting comes first: captures run as soon as a rule has fired, into the draft that the incident will become. The samples
 * and incident.json follow when the window is over.
 */
#include "collector.h"

#include "capture.h"
#include "log.h"
#include "realclock.h"
#include "scope.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* Processes of a group that are considered before the busiest are chosen. */
#define PIDS_MAX 4096u

enum job_kind { JOB_CAPTURE, JOB_SEAL };

struct job {
	struct job *next;
	enum job_kind kind;
	struct collector_incident *incident;
};

struct collector {
	const struct config *config;
	struct session *session;
	struct spool *spool;
	struct clock clock;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct job *first, **last;
	struct collector_counts counts;
	bool stop, running;
	pthread_t thread;
};

void collector_incident_free(struct collector_incident *incident)
{
	if (!incident)
		return;

	slice_free(incident->slice);
	spool_abort(incident->draft);
	free(incident);
}

/* ---- captures ---- */

/* Everything a capture looks at, gathered for one incident. */
struct scene {
	struct capture_context context;
	struct cglimits limits;
	struct busy_snapshot busy;
	struct capture_member members[CAPTURE_MEMBERS_MAX];
	struct thread_baseline threads[CAPTURE_MEMBERS_MAX];
	struct maps_snapshot *maps[CAPTURE_MEMBERS_MAX];
};

static void release_scene(struct scene *scene)
{
	for (size_t i = 0; i < CAPTURE_MEMBERS_MAX; i++) {
		thread_baseline_release(&scene->threads[i]);
		free(scene->maps[i]);
	}
	busy_snapshot_release(&scene->busy);
}

static size_t choose_members(struct collector *collector, struct scene *scene, const struct target *target)
{
	AUTO_FREE int32_t *pids = NULL;
	size_t count;

	if (target->kind == TARGET_PROCESS) {
		scene->members[0] = (struct capture_member){ .pid = target->pid, .start_ticks = target->start_ticks };
		return 1;
	}
	if (target->kind == TARGET_CGROUP)
		return capture_busiest(&scene->context, NULL, 0, scene->members, CAPTURE_MEMBERS_MAX);

	pids = malloc(PIDS_MAX * sizeof *pids);
	if (!pids)
		return 0;

	count = discovery_pids(session_discovery(collector->session), target->id, pids, PIDS_MAX);

	return count ? capture_busiest(&scene->context, pids, count, scene->members, CAPTURE_MEMBERS_MAX) : 0;
}

static void build_scene(struct collector *collector, const struct collector_incident *incident, struct scene *scene)
{
	struct discovery *discovery = session_discovery(collector->session);

	*scene = (struct scene){
		.limits = incident->info.limits,
		.context = {
			.procfd = session_procfd(collector->session),
			.clock = &collector->clock,
			.mounts = session_mounts(collector->session),
			.target = &incident->target,
			.limits = &scene->limits,
			.members = scene->members,
		},
	};
	if (discovery_busy(discovery, &scene->busy) == 0)
		scene->context.busy = &scene->busy;
	scene->context.member_count = choose_members(collector, scene, &incident->target);
	for (size_t i = 0; i < scene->context.member_count; i++) {
		discovery_baselines(discovery, scene->members[i].pid, &scene->threads[i], &scene->maps[i]);
		scene->members[i].threads = &scene->threads[i];
		scene->members[i].maps = scene->maps[i];
	}
}

static void begin_draft(struct collector *collector, struct collector_incident *incident)
{
	char stem[INCIDENT_NAME_MAX + 1];

	incident_stem(incident->wall, incident->target.name, incident->info.rule.name, stem, sizeof stem);
	incident->error = spool_begin(collector->spool, stem, &incident->draft);
	if (incident->error < 0)
		incident->draft = NULL;
}

/* What there is now is what will be left if the daemon is killed before the window is over. */
static void note(struct collector_incident *incident)
{
	struct incident so_far = incident->evidence;

	incident_add_capture(&so_far,
			     &(struct incident_capture){
				     .name = "samples",
				     .status = INCIDENT_CAPTURE_FAILED,
				     .why = "the daemon was killed; they are in the recovered incident of that moment",
			     });
	if (spool_note(incident->draft, &so_far) < 0)
		log_line(LOG_DEBUG, "incident %s could not be noted", spool_draft_name(incident->draft));
}

static void capture(struct collector *collector, struct collector_incident *incident)
{
	struct scene *scene;

	begin_draft(collector, incident);
	if (!incident->draft)
		return;

	scene = malloc(sizeof *scene);
	if (!scene)
		return;

	build_scene(collector, incident, scene);
	capture_run_all(&scene->context, collector->config->incidents.captures & ~(unsigned)CONFIG_CAPTURE_SAMPLES,
			spool_draft_dirfd(incident->draft), &incident->evidence);
	release_scene(scene);
	free(scene);
	note(incident);
}

/* ---- sealing ---- */

static void write_samples(struct collector *collector, struct collector_incident *incident)
{
	struct capture_context context = {
		.procfd = session_procfd(collector->session),
		.clock = &collector->clock,
		.mounts = session_mounts(collector->session),
		.target = &incident->target,
		.limits = &incident->info.limits,
		.slice = incident->slice,
		.slice_start = { incident->wall.ns -
				 (uint64_t)mono_diff(incident->fired, slice_start(incident->slice)) },
	};

	capture_run_all(&context, collector->config->incidents.captures & CONFIG_CAPTURE_SAMPLES,
			spool_draft_dirfd(incident->draft), &incident->info);
}

static void complete_info(struct collector *collector, struct collector_incident *incident)
{
	struct incident *info = &incident->info;
	uint64_t grain = info->rule.window_ns > 100 * NS_PER_MS ? info->rule.window_ns : 100 * NS_PER_MS;

	slice_coverage(incident->slice, collector->config->sampling.interval_ns, &info->coverage);
	slice_peaks(incident->slice, grain, &info->peaks);
	if (info->peaks.has_cpu && info->limits.cpu && info->limits.cpu != UINT64_MAX)
		info->peak_cpu_percent = 100 * info->peaks.cpu_cores * 1e9 / (double)info->limits.cpu;
	for (size_t i = 0; i < incident->evidence.capture_count; i++)
		incident_add_capture(info, &incident->evidence.captures[i]);
}

static void say_removed(void *ctx, const struct retention_entry *entry, enum retention_reason why)
{
	struct collector *collector = ctx;

	pthread_mutex_lock(&collector->lock);
	collector->counts.removed++;
	pthread_mutex_unlock(&collector->lock);
	log_line(LOG_INFO, "removed incident %s (severity %.2f): limit of %s", entry->name, entry->severity,
		 retention_reason_name(why));
}

static void say_sealed(struct collector *collector, const struct incident *info, const char *name, int error)
{
	struct log_about about = {
		.message = error < 0 ? MESSAGE_INCIDENT_FAILED : MESSAGE_INCIDENT_SEALED,
		.rule = info->rule.name,
		.target = info->target.name,
		.incident = name,
		.error = error,
	};

	pthread_mutex_lock(&collector->lock);
	if (error < 0)
		collector->counts.failed++;
	else
		collector->counts.sealed++;
	pthread_mutex_unlock(&collector->lock);

	if (error < 0)
		log_about(LOG_ERR, &about, "incident of rule %s on %s could not be written: %s", info->rule.name,
			  info->target.name, strerror(-error));
	else
		log_about(LOG_NOTICE, &about, "sealed incident %s", name);
}

static void seal(struct collector *collector, struct collector_incident *incident)
{
	char name[INCIDENT_NAME_MAX + 1] = "";
	int r;

	if (!incident->draft)
		begin_draft(collector, incident); /* what stood in its way may be gone */
	if (incident->draft) {
		snprintf(name, sizeof name, "%s", spool_draft_name(incident->draft));
		incident_text(incident->info.id, sizeof incident->info.id, name);
		write_samples(collector, incident);
		complete_info(collector, incident);
		r = spool_seal(TAKE(incident->draft), &incident->info);
	} else {
		r = incident->error;
	}

	say_sealed(collector, &incident->info, name, r);
	collector_incident_free(incident);
	r = spool_enforce(collector->spool, clock_wall(&collector->clock), say_removed, collector);
	if (r < 0)
		log_line(LOG_WARNING, "cannot keep the limits of the incident directory: %s", strerror(-r));
}

/* ---- the thread ---- */

static struct job *next_job(struct collector *collector)
{
	struct job *job;

	pthread_mutex_lock(&collector->lock);
	while (!collector->first && !collector->stop)
		pthread_cond_wait(&collector->wake, &collector->lock);
	job = collector->first;
	if (job) {
		collector->first = job->next;
		if (!collector->first)
			collector->last = &collector->first;
	}
	pthread_mutex_unlock(&collector->lock);

	return job;
}

static void *run(void *argument)
{
	struct collector *collector = argument;
	struct job *job;

	prctl(PR_SET_NAME, "collector");
	while ((job = next_job(collector))) {
		if (job->kind == JOB_CAPTURE)
			capture(collector, job->incident);
		else
			seal(collector, job->incident);
		free(job);
	}

	return NULL;
}

static bool enqueue(struct collector *collector, enum job_kind kind, struct collector_incident *incident)
{
	struct job *job = calloc(1, sizeof *job);

	if (!job)
		return false;

	job->kind = kind;
	job->incident = incident;
	pthread_mutex_lock(&collector->lock);
	*collector->last = job;
	collector->last = &job->next;
	pthread_cond_signal(&collector->wake);
	pthread_mutex_unlock(&collector->lock);

	return true;
}

void collector_capture(struct collector *collector, struct collector_incident *incident)
{
	if (!enqueue(collector, JOB_CAPTURE, incident))
		log_line(LOG_WARNING, "no memory to collect evidence of rule %s on %s", incident->info.rule.name,
			 incident->info.target.name);
}

void collector_seal(struct collector *collector, struct collector_incident *incident)
{
	if (enqueue(collector, JOB_SEAL, incident))
		return;

	/* Capturing may still be going on: the incident must not be freed here, and is lost. */
	log_line(LOG_ERR, "no memory to write the incident of rule %s on %s", incident->info.rule.name,
		 incident->info.target.name);
}

int collector_new(const struct config *config, struct session *session, struct spool *spool, struct collector **ret)
{
	struct collector *collector = calloc(1, sizeof *collector);
	sigset_t all, before;
	int r;

	if (!collector)
		return -ENOMEM;

	collector->config = config;
	collector->session = session;
	collector->spool = spool;
	collector->clock = realclock();
	collector->last = &collector->first;
	pthread_mutex_init(&collector->lock, NULL);
	pthread_cond_init(&collector->wake, NULL);

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&collector->thread, NULL, run, collector);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0) {
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

void collector_stop(struct collector *collector)
{
	if (!collector || !collector->running)
		return;

	pthread_mutex_lock(&collector->lock);
	collector->stop = true;
	pthread_cond_signal(&collector->wake);
	pthread_mutex_unlock(&collector->lock);
	pthread_join(collector->thread, NULL);
	collector->running = false;
}

void collector_free(struct collector *collector)
{
	if (!collector)
		return;

	collector_stop(collector);
	pthread_cond_destroy(&collector->wake);
	pthread_mutex_destroy(&collector->lock);
	free(collector);
}

void collector_counts(struct collector *collector, struct collector_counts *ret)
{
	pthread_mutex_lock(&collector->lock);
	*ret = collector->counts;
	pthread_mutex_unlock(&collector->lock);
}
