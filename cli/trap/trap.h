/* trap.h: the one line that `spikewatch trap` keeps up to date on a terminal while it waits. */
#ifndef SPIKEWATCH_CLI_TRAP_TRAP_H
#define SPIKEWATCH_CLI_TRAP_TRAP_H

#include "cli/base/output.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * trap_session.h: the daemon's session, rules and incidents in this process, until so many
 * incidents were opened: no file but the incidents is written, nobody can ask it, nothing is
 * remembered. Belongs to one thread; session and incidents have their own.
 */

struct trap_session;

struct trap_session_options {
	const struct config *config;                                      /* must outlive it */
	const char *directory;                                            /* of incidents; made if need be */
	uint64_t count;                                                   /* incidents; then no more are opened */
	void (*caught)(void *ctx, const struct evaluator_firing *firing); /* one was opened; must not call back */
	void *ctx;
};

/* How it is. name is cut to fit. */
struct trap_session_view {
	size_t targets;           /* trap_session_targets */
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
 * Opens everything and makes a first scan. 0; -ENOMEM; -errno. What failed is in the log, but for
 * the directory: then *ret_directory is true.
 */
int trap_session_new(const struct trap_session_options *options, struct trap_session **ret, bool *ret_directory);

/* Of this moment, as of the windows that were judged. Costs a walk over all targets. */
void trap_session_view(const struct trap_session *trap, struct trap_session_view *ret);

/* Stops sampling, writes what is open as it is, and waits for that. Once. */
void trap_session_finish(struct trap_session *trap);

/*
 * trap_session_finish first. NULL is fine. False: the configuration is still referred to
 * (session_free).
 */
bool trap_session_free(struct trap_session *trap);

/*
 * trap_plan.h: what `spikewatch trap` was asked for, as the configuration that a daemon would be
 * given for it: one target, a rule for each threshold, short times.
 */

#define TRAP_PLAN_TEXT_MAX 320

/*
 * How long an incident goes on, unless somebody wants it otherwise: the height of the spike, and
 * perhaps its end.
 */
#define TRAP_PLAN_AFTER_NS (3 * NS_PER_S)

/*
 * Zeroed but for after_ns is a plan of which nothing is said. Texts are the caller's and must
 * outlive the configuration.
 */
struct trap_plan {
	const char *comm; /* all processes of this name, those that come later too; NULL: trap_plan_watch says which */
	const char *cpu;  /* "80%", of a core; NULL: not asked for */
	const char *stacks;    /* a mode of the configuration; NULL: its default */
	uint64_t memory_bytes; /* 0: not asked for */
	uint64_t for_ns;       /* how long it has to last; 0: a second for CPU, no time for memory */
	uint64_t after_ns;
	bool tree; /* with all that they start, as one sum */
	/* What trap_plan_watch and trap_plan_resolve make of it. */
	int32_t pid;                /* 0: comm */
	char name[TARGET_NAME_MAX]; /* of the target entry */
	double cpu_percent;         /* 0: no such rule */
	bool growth;                /* a rule for memory that grows: nothing was asked for */
};

/* It is about this process, which runs a program of this name, or path. */
void trap_plan_watch(struct trap_plan *plan, int32_t pid, const char *program);

/*
 * Checks what was asked for, and fills in defaults. 0; -EINVAL: error (cap bytes, terminated) says
 * which option is wrong and what was expected.
 */
int trap_plan_resolve(struct trap_plan *plan, char *error, size_t cap);

/*
 * Of a resolved plan, which must outlive it. 0; -ENOMEM; -EINVAL as above. *ret is for config_free.
 */
int trap_plan_config(const struct trap_plan *plan, struct config **ret, char *error, size_t cap);

/*
 * "more than 80% of a core for 1 s, or more than 512 MiB of memory": what a resolved plan waits
 * for. Into buf, which is returned.
 */
const char *trap_plan_text(const struct trap_plan *plan, char *buf, size_t cap);

#define TRAP_LIVE_TEXT_MAX 512

/* {file} with on set by trap_live_detect; else all calls do nothing. */
struct trap_live {
	FILE *file;
	bool on;
	size_t shown; /* columns that stand there */
};

/* On if file is a terminal that can go back in a line. */
void trap_live_detect(struct trap_live *live, FILE *file);

/*
 * "12 s: job-812 CPU 43% of 80%, memory 84 MiB". Into buf, which is returned; names are printable.
 */
const char *trap_live_text(const struct trap_plan *plan, const struct trap_session_view *view, uint64_t waited_ns,
			   uint64_t wanted, char *buf, size_t cap);

/* Puts text in the place of what stands there, cut to the width that the terminal has now. */
void trap_live_draw(struct trap_live *live, const char *text);

/* Nothing stands there any more: before anything else is printed, and at the end. */
void trap_live_erase(struct trap_live *live);

#endif
