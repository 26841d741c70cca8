/*
 * hooks.h: the commands that an incident runs ("run" of its target), beside everything else that is
 * done: one thread starts them, takes their output, ends what takes too long, and tells what became
 * of each.
 *
 *      hooks_start ──▶ first ──▶ second ──▶ ... ──▶ done()          one after the other in an incident:
 *      two that stop the same
 *                        │ ends by itself                            process would be in each other's way; those of
 *                        different
 *                        │ time is over: SIGTERM, a second later     incidents at the same time, up to HOOKS_AT_ONCE
 *                        ▼ SIGKILL, to its whole process group
 *
 * A command has ended when its first process has; what is left in its group is then killed.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_HOOKS_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_HOOKS_H

#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/incident/incident.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * hook_plan.h: the commands that one incident runs: a copy of what the configuration said when it
 * was opened, which may change meanwhile.
 */

struct hook_plan_command {
	char name[CONFIG_RUN_NAME_MAX + 1];
	char **words; /* with placeholders; NULL at the end */
	uint64_t timeout_ns, max_output_bytes;
	bool wants_pid;
};

struct hook_plan {
	size_t count; /* at least one */
	struct hook_plan_command commands[CONFIG_RUNS_MAX];
};

/* Those commands of entry that an incident of rule runs; there are none: NULL. 0; -ENOMEM. */
int hook_plan_new(const struct config_target *entry, const char *rule, struct hook_plan **ret);

/* NULL is fine. */
void hook_plan_free(struct hook_plan *plan);
CLEANUP(hook_plan, free);

/* Adds to the captures of an incident that none of the commands was run, and why. */
void hook_plan_refuse(const struct hook_plan *plan, const char *why, struct incident *incident);

/*
 * The words of a command as they are to be run: one allocation for free(3), NULL at the end.
 * values: of command_template.h; the command's name is added. 0; -ENOMEM; -E2BIG: longer than
 * HOOK_PLAN_BYTES_MAX.
 */
struct command_template_values;

/*
 * hook_spawn.h: starts one program that knows nothing of the daemon: in a process group of its own,
 * with /dev/null as its input, no other descriptor but its output, signals and limits as a login
 * has them. Whoever calls waits for it and ends it.
 */

struct hook_spawn_options {
	char *const *words;       /* ends with NULL; the first is the program's path */
	char *const *environment; /* ends with NULL: all that it gets */
	int dirfd;                /* its working directory */
	int out;                  /* its output and its complaints; stays the caller's */
	uint64_t max_file_bytes;  /* no file that it writes grows beyond */
};

/*
 * So many at once; further ones are refused, and the incident says so. Each is a process that takes
 * memory while the machine is short of it.
 */
#define HOOKS_AT_ONCE 4

/*
 * What a command may still take when the daemon is to end, before it is told to; and after it was
 * told to, always.
 */
#define HOOKS_STOP_NS (2 * NS_PER_S)
#define HOOKS_GRACE_NS (1 * NS_PER_S)

struct hooks;
struct hook_run; /* the commands of one incident while they run, and what became of them */

/* The thread is started with the first command. 0; -ENOMEM; -errno. */
int hooks_new(const struct clock *clock, struct hooks **ret);

/* hooks_stop first, or wait for what runs. NULL is fine. */
void hooks_free(struct hooks *hooks);

/* What runs is given HOOKS_STOP_NS; what has not begun does not begin. Any thread. */
void hooks_stop(struct hooks *hooks);

/* The plan, dirfd and what done needs must outlive the run; the rest is copied. */
struct hooks_scene {
	const struct hook_plan *plan;
	int dirfd; /* of the incident's draft */
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
 * Begins to run them. 0: *ret is the caller's when done is called. -ENOMEM; -errno: nothing runs,
 * done is not called.
 */
int hooks_start(struct hooks *hooks, const struct hooks_scene *scene, struct hook_run **ret);

/* After done: adds what became of each to the captures of an incident. */
void hook_run_report(const struct hook_run *run, struct incident *incident);

/* After done. NULL is fine. */
void hook_run_free(struct hook_run *run);

#endif
