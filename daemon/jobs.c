/*
 * jobs.c: a list, a lock and a condition that knows the monotonic clock. A job that has to wait is not in the list: whoever finishes the
 * last thing that it waits for puts it back, and needs no memory for that.
 */
#include "jobs.h"

#include "scope.h"

#include <time.h>

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
