/*
 * trapsession.h: the daemon's session, rules and incidents in this process, until so many incidents were opened: no file but the
 * incidents is written, nobody can ask it, nothing is remembered. Belongs to one thread; session and incidents have their own.
 */
#ifndef SPIKEWATCH_TRAPSESSION_H
#define SPIKEWATCH_TRAPSESSION_H

#include "config.h"
#include "evaluator.h"
#include "incident.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trapsession;

/* More are counted, not named. */
#define TRAPSESSION_CAUGHT_MAX 1000

struct trapsession_options {
	const struct config *config;                                      /* must outlive it */
	const char *directory;                                            /* of incidents; made if need be */
	uint64_t count;                                                   /* incidents; then no more are opened */
	void (*caught)(void *ctx, const struct evaluator_firing *firing); /* one was opened; must not call back */
	void *ctx;
};

/* How it is. name is cut to fit. */
struct trapsession_view {
	size_t targets;           /* trapsession_targets */
	char name[96];            /* of the one nearest to a threshold; "": nothing is known of any */
	bool has_cpu, has_memory; /* of that one, over the last window */
	double cpu_percent;
	uint64_t memory_bytes;
	uint64_t pending_ns; /* it has been over a threshold for so long */
	bool disarmed;       /* it has to come down first */
	uint64_t caught;
	size_t open;
	uint64_t open_ns; /* until the last open one is complete */
};

/*
 * Opens everything and makes a first scan. 0; -ENOMEM; -errno. What failed is in the log, but for the directory: then *ret_directory
 * is true.
 */
int trapsession_new(const struct trapsession_options *options, struct trapsession **ret, bool *ret_directory);

/* Sampling begins. 0 or -errno (logged). */
int trapsession_start(struct trapsession *trap);

/* Judges what was sampled, and has written what is complete. Every few milliseconds. 0 or -errno. */
int trapsession_poll(struct trapsession *trap);

/* So many as were wanted were opened, and all are complete. */
bool trapsession_done(const struct trapsession *trap);

/* How many processes are watched now, members of a sum each for itself; *ret_error: if there are none, -errno of why one could not be, or 0. */
size_t trapsession_targets(const struct trapsession *trap, int *ret_error);

/* How many processes of the sum that is watched, but for this one, are still there; at most 256 are counted. Also after trapsession_finish. */
size_t trapsession_left(const struct trapsession *trap, int32_t but);

/* Why there are no stacks; "": there are, or nobody wants them. */
const char *trapsession_stacks_off(const struct trapsession *trap);

/* Of this moment, as of the windows that were judged. Costs a walk over all targets. */
void trapsession_view(const struct trapsession *trap, struct trapsession_view *ret);

/* Stops sampling, writes what is open as it is, and waits for that. Once. */
void trapsession_finish(struct trapsession *trap);

/*
 * Names of incidents that are in the directory by now, in the order in which they were opened: the first that was not handed out yet. False: none.
 */
bool trapsession_written(struct trapsession *trap, char ret[static INCIDENT_NAME_MAX + 1]);

/* The highest values that were judged, of any target; 0 where there is no rule for it. */
void trapsession_most(const struct trapsession *trap, double *ret_cpu_percent, double *ret_memory_bytes);

/* How many could not be written; the log said why. */
uint64_t trapsession_failed(const struct trapsession *trap);

/* trapsession_finish first. NULL is fine. False: the configuration is still referred to (session_free). */
bool trapsession_free(struct trapsession *trap);

#endif
