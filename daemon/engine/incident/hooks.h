/*
 * hooks.h: the commands that an incident runs ("run" of its target). One thread starts them, reads
 * their output into files of the incident's directory, ends those that take too long, and records
 * what became of each.
 *
 *     hooks_start ──▶ first ──▶ second ──▶ ... ──▶ done()
 *                       │ time is over: SIGTERM, a second later
 *                       ▼ SIGKILL, to its process group
 *
 * The commands of one incident run one after the other (two that stop the same process would
 * disturb each other), those of different incidents at the same time, up to HOOKS_AT_ONCE. A
 * command has ended when its first process has; the rest of its process group is then killed.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_HOOKS_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_HOOKS_H

#include "lib/base/base.h"
#include "lib/incident/incident.h"

#include <stdint.h>

struct config_target;

/* Processes at once. Further commands are refused: each takes memory. */
#define HOOKS_AT_ONCE 4

/* Between SIGTERM and SIGKILL. */
#define HOOKS_GRACE_NS (1 * NS_PER_S)

struct hook_plan; /* the commands of one incident, copied from the configuration */
struct hook_run;  /* the same while they run, and what became of them */
struct hooks;

/* Those commands of entry that an incident of rule runs; NULL: there are none. 0; -ENOMEM. */
int hook_plan_new(const struct config_target *entry, const char *rule, struct hook_plan **ret);

/* NULL is fine. */
void hook_plan_free(struct hook_plan *plan);
CLEANUP(hook_plan, free);

/* Adds a record for each command to an incident: not run, and why. */
void hook_plan_refuse(const struct hook_plan *plan, const char *why, struct incident *incident);

/*
 * stop_ns: how long a command may still run after hooks_stop; 0: 2 s. The thread is started with
 * the first command. 0; -ENOMEM; -errno.
 */
int hooks_new(const struct clock *clock, uint64_t stop_ns, struct hooks **ret);

/* Waits for what runs: call hooks_stop first. NULL is fine. */
void hooks_free(struct hooks *hooks);

/* What runs is given stop_ns; nothing more is started. Any thread. */
void hooks_stop(struct hooks *hooks);

/* The plan, the descriptors and what done needs must outlive the run; the rest is copied. */
struct hooks_scene {
	const struct hook_plan *plan;
	int dirfd;  /* of the incident's draft */
	int lockfd; /* held as long as anything of a command runs; 0: none */
	int procfd;
	int32_t pid; /* the process to look at; 0: there is none */
	uint64_t start_ticks;
	const char *rule, *target;
	mono_t fired;
	uint64_t max_bytes;      /* of any file that a command writes */
	void (*done)(void *ctx); /* once, from the hooks' thread, when the last has ended */
	void *ctx;
};

/*
 * Begins to run them. 0: *ret is the caller's when done is called, for hook_run_report. -ENOMEM;
 * -errno: nothing runs, done is not called.
 */
int hooks_start(struct hooks *hooks, const struct hooks_scene *scene, struct hook_run **ret);

/* After done: adds the record of each command to the captures of an incident, and frees the run. */
void hook_run_report(struct hook_run *run, struct incident *incident);

#endif
