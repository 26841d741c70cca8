/*
 * kinship.h: who descends from whom, and so to which trees (up to 64, by number) a process belongs: to those that it is the root of, and to all
 * of its ancestors'. It is told what is heard (a fork, an end) and what is met (a look at a process); either alone will do. Pure.
 *
 * Once in a tree means in it until the end: a process that executes something else stays, so does one whose parent ends (it is handed to init, or
 * another ancestor), and a child is in it from its fork on. A process is (pid, start time): one that has the pid of another has none of its trees.
 *
 * What cannot be known: the ancestors of a process that was never heard nor met before its parent had ended.
 *
 * Bounded: processes beyond KINSHIP_MAX are not remembered, and counted. Cost: a look-up; a new root costs its descendants.
 */
#ifndef SPIKEWATCH_KINSHIP_H
#define SPIKEWATCH_KINSHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Trees are bits. */
#define KINSHIP_TREES 64u

/* Processes, those that ended lately included: 3.9 MiB, of which only what was used once is taken. */
#define KINSHIP_MAX 65536u

/* So many that ended are remembered, for news of their children that come after those of their end. */
#define KINSHIP_ENDED_MAX 1024u

struct kinship;

/* A process as it was met. */
struct kinship_process {
	int32_t pid;
	int32_t ppid; /* at this moment; 0: it has none */
	uint64_t start_ticks;
};

/* 0 or -ENOMEM. Nothing allocates later. */
int kinship_new(struct kinship **ret);

/* NULL is fine. */
void kinship_free(struct kinship *kinship);

/* Process ppid has forked pid. May come after that one was met, and after the end of ppid. */
void kinship_forked(struct kinship *kinship, int32_t ppid, int32_t pid);

/* A process was looked at, and is the root of these trees. Returns those that it belongs to. */
uint64_t kinship_met(struct kinship *kinship, const struct kinship_process *process, uint64_t roots);

/* It has ended: its children stay in its trees. If it is met again after all (only its main thread had ended), it has not. */
void kinship_ended(struct kinship *kinship, int32_t pid);

/* The trees of a process, which may have ended lately. False: never heard of. */
bool kinship_find(const struct kinship *kinship, int32_t pid, uint64_t *ret);

/* A look at every process that there is begins. */
void kinship_begin(struct kinship *kinship);

/* That look is over: who was not met is forgotten. */
void kinship_sweep(struct kinship *kinship);

/* Whether processes came into a tree after they had been met, since the last call: they are to be met once more to be told. */
bool kinship_belated(struct kinship *kinship);

/* The numbers of trees change: what was bit i is bit place[i] from now on, and nothing if that is KINSHIP_TREES or more. */
void kinship_renumber(struct kinship *kinship, const unsigned place[static KINSHIP_TREES]);

/* Processes remembered now; how often one was not, ever. */
size_t kinship_count(const struct kinship *kinship);
uint64_t kinship_dropped(const struct kinship *kinship);

#endif
