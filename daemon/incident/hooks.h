/*
 * hooks.h: the commands that an incident runs ("run" of its target), beside everything else that is done: one thread starts them, takes
 * their output, ends what takes too long, and tells what became of each.
 *
 *      hooks_start ──▶ first ──▶ second ──▶ ... ──▶ done()          one after the other in an incident: two that stop the same
 *                        │ ends by itself                            process would be in each other's way; those of different
 *                        │ time is over: SIGTERM, a second later     incidents at the same time, up to HOOKS_AT_ONCE
 *                        ▼ SIGKILL, to its whole process group
 *
 * A command has ended when its first process has; what is left in its group is then killed.
 */
#ifndef SPIKEWATCH_HOOKS_H
#define SPIKEWATCH_HOOKS_H

#include "clock.h"
#include "hookplan.h"
#include "incident.h"

#include <stdint.h>

/* So many at once; further ones are refused, and the incident says so. Each is a process that takes memory while the machine is short of it. */
#define HOOKS_AT_ONCE 4

/* What a command may still take when the daemon is to end, before it is told to; and after it was told to, always. */
#define HOOKS_STOP_NS (2 * NS_PER_S)
#define HOOKS_GRACE_NS (1 * NS_PER_S)

struct hooks;
struct hookrun; /* the commands of one incident while they run, and what became of them */

/* The thread is started with the first command. 0; -ENOMEM; -errno. */
int hooks_new(const struct clock *clock, struct hooks **ret);

/* hooks_stop first, or wait for what runs. NULL is fine. */
void hooks_free(struct hooks *hooks);

/* What runs is given HOOKS_STOP_NS; what has not begun does not begin. Any thread. */
void hooks_stop(struct hooks *hooks);

/* The plan, dirfd and what done needs must outlive the run; the rest is copied. */
struct hooks_scene {
	const struct hookplan *plan;
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

/* Begins to run them. 0: *ret is the caller's when done is called. -ENOMEM; -errno: nothing runs, done is not called. */
int hooks_start(struct hooks *hooks, const struct hooks_scene *scene, struct hookrun **ret);

/* After done: adds what became of each to the captures of an incident. */
void hookrun_report(const struct hookrun *run, struct incident *incident);

/* After done. NULL is fine. */
void hookrun_free(struct hookrun *run);

#endif
