/*
 * newcomers.h: processes that were heard of lately: which of them have yet to be looked at, and which came and went before anybody could. Bounded: the
 * oldest is forgotten for the newest. Pure; time is an argument.
 *
 *                     newcomers_began              looked at
 *     (unknown) ───────────────────────▶ WAITING ──────────▶ MET
 *                        ▲ executes           │ newcomers_ended │
 *                        └──────────── MET    └───────▶ GONE ◀──┘
 */
#ifndef SPIKEWATCH_NEWCOMERS_H
#define SPIKEWATCH_NEWCOMERS_H

#include "clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A second of a storm. */
#define NEWCOMERS_MAX 4096u

enum newcomer_state { NEWCOMER_NONE, NEWCOMER_WAITING, NEWCOMER_MET, NEWCOMER_GONE };

enum newcomer_news { NEWCOMER_FORKED, NEWCOMER_EXECUTED, NEWCOMER_RENAMED };

struct newcomer {
	int32_t pid;
	enum newcomer_state state; /* the caller's to set to MET */
	bool forked, executed;     /* was heard of it */
	bool renamed; /* since it was last looked at it executed something or changed its name; the caller's to clear */
	bool met;     /* it was MET before it became WAITING again */
	bool missed;  /* GONE, and was counted as missed */
	mono_t born;  /* forked: when that was heard */
	mono_t at;    /* the last news */
	uint32_t next; /* in its bucket */
};

struct newcomers;

/* 0 or -ENOMEM. */
int newcomers_new(struct newcomers **ret);

/* NULL is fine. */
void newcomers_free(struct newcomers *newcomers);

/*
 * News of a process, which waits to be looked at from now on; NULL: its end was heard of before, within a moment: news from several CPUs are not
 * in order. Valid until the next call.
 */
struct newcomer *newcomers_began(struct newcomers *newcomers, int32_t pid, enum newcomer_news news, mono_t now);

/* It ended. What is known of it, GONE from now on. Never NULL. */
struct newcomer *newcomers_ended(struct newcomers *newcomers, int32_t pid, mono_t now);

/* NULL: nothing was heard of it lately. */
struct newcomer *newcomers_find(struct newcomers *newcomers, int32_t pid);

/* The next that waits and whose last news are not younger than delay_ns; it is handed out once. NULL: none. */
struct newcomer *newcomers_due(struct newcomers *newcomers, uint64_t delay_ns, mono_t now);

/* When the next one will be due. False: none waits. */
bool newcomers_next(struct newcomers *newcomers, uint64_t delay_ns, mono_t *ret);

/* Those that wait are not handed out any more. How many that were. */
size_t newcomers_give_up(struct newcomers *newcomers);

/* Came and went without being looked at; forgotten while they waited. Ever. */
uint64_t newcomers_missed(const struct newcomers *newcomers);
uint64_t newcomers_dropped(const struct newcomers *newcomers);

#endif
