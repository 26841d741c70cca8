/*
 * jobs.h: a queue of jobs for one thread that works them off in order, and things that some of them have to wait for. Any thread may put
 * jobs and finish things; jobs_next, jobs_urgent and jobs_park are the worker's.
 */
#ifndef SPIKEWATCH_JOBS_H
#define SPIKEWATCH_JOBS_H

#include "clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

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
 * Waits for the next job: 0: *ret. JOBS_DUE: it is `until`, or jobs_stop was called before it is (until.ns 0: never). JOBS_END: stopped, and
 * there is nothing left to do or to wait for.
 */
int jobs_next(struct jobs *jobs, const struct clock *clock, mono_t until, struct job **ret);

/* The next job, if it is an urgent one: for a worker that has a moment in the middle of another. NULL: there is none. Does not wait. */
struct job *jobs_urgent(struct jobs *jobs);

/* Whether jobs_stop was called. */
bool jobs_stopping(struct jobs *jobs);

/* One thing more to be finished; and it is: the last one puts the job that was parked. */
void jobs_begin(struct jobs *jobs, struct jobs_pending *pending);
void jobs_finish(struct jobs *jobs, struct jobs_pending *pending);

/* True: something is unfinished, and job will be put again when nothing is. */
bool jobs_park(struct jobs *jobs, struct jobs_pending *pending, struct job *job);

#endif
