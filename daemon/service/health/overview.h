/*
 * overview.h: what the status document and the metrics say of a running daemon, in one place: its
 * parts (struct overview), what it lacks (privileges), how its rules were judged (rule_counts), the
 * file with their state, and figures of the process. Read in the main thread.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_HEALTH_OVERVIEW_H
#define SPIKEWATCH_DAEMON_SERVICE_HEALTH_OVERVIEW_H

#include "daemon/engine/base/paths.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/service/health/health.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/ring/ring.h"
#include "lib/rules/trigger.h"

#include <stddef.h>
#include <stdint.h>

#define PRIVILEGES_LACKS_MAX 8

/* Static texts. */
struct privileges_lack {
	const char *needs; /* "CAP_SYS_PTRACE", "LimitMEMLOCK=infinity" */
	const char *off;   /* what does not work without it */
};

struct privileges {
	struct privileges_lack lacks[PRIVILEGES_LACKS_MAX];
	size_t count;
};

/*
 * Finds out what this process lacks of what the configuration needs, and locks the code that
 * samples into memory (mlock(2)) if ring.lock wants that. ret has what was found before ({0}:
 * nothing): what is new is logged.
 */
void privileges_look(const struct config *config, struct privileges *ret);

/* The state of the rules (rule_state.h) and its file. Failures are logged, once until they end. */
struct state_file;

/*
 * Reads the state of an earlier run; a damaged file is renamed. paths must outlive it. procfd: the
 * proc root, for the boot's id. 0; -ENOMEM; -errno: the directory cannot be opened (logged).
 */
int state_file_open(const struct paths *paths, int procfd, struct state_file **ret);

/* Stays the file's. */
struct rule_state *state_file_rules(const struct state_file *file);

/*
 * Hands it to the writing thread if it has changed, or could not be written, and nothing is being
 * written; otherwise a later call does. A directory that was removed is made again. Never waits.
 */
void state_file_save(struct state_file *file);

/* True: the last text that was written failed, as far as state_file_save has seen. */
bool state_file_is_failing(const struct state_file *file);

/*
 * Saves, closes, frees. Does not wait for a blocked disk beyond `until`; a text that is not written by
 * then is the last. What could not be saved is logged. NULL is fine.
 */
void state_file_close(struct state_file *file, mono_t until);

/*
 * How often each rule was judged, with which results, over all targets, those that have ended too:
 * the evaluator forgets what it knows of a target, and a counter must not decrease.
 */
struct rule_counts;

/* Since the daemon started, or since the rule was added. */
struct rule_count {
	uint64_t windows, fired;
	uint64_t opened; /* firings that began an incident */
	uint64_t reasons[TRIGGER_REASONS];
};

/*
 * For the rules of config, which must outlive it. before: the counts that it replaces, of which
 * those of rules with the same name are kept; may be NULL. 0 or -ENOMEM.
 */
int rule_counts_new(const struct config *config, const struct rule_counts *before, struct rule_counts **ret);

/* NULL is fine. */
void rule_counts_free(struct rule_counts *rule_counts);
CLEANUP(rule_counts, free);

/* So many windows were judged alike. A rule of another configuration is not counted. O(1). */
void rule_counts_judged(struct rule_counts *rule_counts, const struct config_rule *rule,
			const struct trigger_decision *decision, uint32_t windows);

/* A firing began an incident. */
void rule_counts_opened(struct rule_counts *rule_counts, const struct config_rule *rule);

/* NULL: it is not of the configuration in force. */
const struct rule_count *rule_counts_of(const struct rule_counts *rule_counts, const struct config_rule *rule);

/* All borrowed. */
struct overview {
	const struct config *config;
	const struct paths *paths;
	struct session *session;
	const struct evaluator *evaluator;
	struct incidents *incidents;
	const struct state_file *state_file; /* NULL: there is none */
	const struct minute_log *minute_log; /* NULL: there is none */
	const struct dispatcher *dispatcher;
	const struct health *health;
	const struct rule_counts *rule_counts; /* NULL: not counted */
	const struct privileges *privileges;
	mono_t started, now;
};

struct vitals {
	uint64_t cpu_ns;         /* of this process, all threads */
	uint64_t resident_bytes; /* 0: not known */
	uint64_t open_fds;
	uint64_t history_ns; /* from the oldest tick in the ring to the newest; 0: none yet */
};

/* Some hundred microseconds. What cannot be read is 0. */
void vitals_read(const struct ring *ring, struct vitals *ret);

#endif
