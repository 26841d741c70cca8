/*
 * stackrecorder_faults.h: the events that sample page faults, and that they cost no more than they may: switched off for a while where there are too
 * many, and what the samples stand for then. The recorder's.
 */
#ifndef SPIKEWATCH_STACKRECORDER_FAULTS_H
#define SPIKEWATCH_STACKRECORDER_FAULTS_H

#include "perfthreads.h"
#include "stackfile.h"
#include "thinning.h"

#include <poll.h>
#include <pthread.h>

struct stackrecorder_faults;

struct stackrecorder_faults_options {
	enum stackfile_stream_kind
		kind; /* STACKFILE_FAULTS: of everybody; STACKFILE_FAULTS_FOLLOWED: of followed threads */
	const struct perfevents_wanted *wanted; /* borrowed */
	const struct perfevents *rings;         /* borrowed; one for each CPU */
	unsigned cpus;
	int proc_fd; /* borrowed */
};

/* The faults that all CPUs together have handled, in the text of /proc/vmstat. False: it does not say. */
bool stackrecorder_faults_total(const char *text, size_t len, uint64_t *ret);

/* How many samples of events wake whoever waits for them, and in what time they may come: what struct thinning_options wants. */
struct thinning_options stackrecorder_faults_limits(uint64_t period);

/*
 * Opens everybody's events. 0; -ENOMEM; -errno, and then reason, of PERFEVENTS_REASON_MAX bytes, says it for people. *ret is the caller's:
 * stackrecorder_faults_close.
 */
int stackrecorder_faults_open(const struct stackrecorder_faults_options *options, struct stackrecorder_faults **ret,
			      char *reason);

/* NULL is fine. */
void stackrecorder_faults_close(struct stackrecorder_faults *faults);

/* How long poll(2) may wait at most. Milliseconds, no more than most. For the recorder's thread, as the next. */
int stackrecorder_faults_wait_ms(struct stackrecorder_faults *faults, int most);

/* Looks at the rings and switches off or on what is to be. threads: whose events those of followed threads are; else NULL. */
void stackrecorder_faults_look(struct stackrecorder_faults *faults, struct perfthreads *threads);

/*
 * For who looks at the rings, any thread: what samples until now stand for is settled; what one of ring number `ring` and of time_ns does; and how many
 * faults were counted.
 */
void stackrecorder_faults_settle(struct stackrecorder_faults *faults);
uint64_t stackrecorder_faults_weigh(struct stackrecorder_faults *faults, unsigned ring, uint64_t time_ns);
void stackrecorder_faults_sum_up(struct stackrecorder_faults *faults, uint64_t from_ns, uint64_t to_ns,
				 struct thinning_summary *ret);

/* Why there are no events on some CPU, which should have some: -errno; 0: there are. Any thread. */
int stackrecorder_faults_error(struct stackrecorder_faults *faults);

#endif
