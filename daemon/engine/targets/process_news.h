/*
 * process_news.h: processes that were heard of lately: which of them have yet to be looked at, and which came and went before anybody could. Bounded: the
 * oldest is forgotten for the newest. Pure; time is an argument.
 *
 *                     newcomers_began              looked at
 *     (unknown) ───────────────────────▶ WAITING ──────────▶ MET
 *                        ▲ executes           │ newcomers_ended │
 *                        └──────────── MET    └───────▶ GONE ◀──┘
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_PROCESS_NEWS_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_PROCESS_NEWS_H

#include "lib/base/base.h"
#include "lib/proc/procfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * proclistener.h: hears from the kernel which processes fork, execute, change their name and end. Two sources, of which the first that is
 * allowed is taken:
 *
 *	the proc connector  CAP_NET_ADMIN (up to Linux 6.5), in the machine's own network and pid namespace. With it, where CAP_NET_ADMIN is
 *	                    there, the exit records of taskstats: what a process used in all, also if it was too short to be looked at
 *	perf's records      CAP_PERFMON (or CAP_SYS_ADMIN, or kernel.perf_event_paranoid below 1), in any network namespace
 *
 * Belongs to one thread.
 */

#define PROCLISTENER_REASON_MAX 200

struct proclistener;

enum proclistener_source {
	PROCLISTENER_NONE,
	PROCLISTENER_CONNECTOR,
	PROCLISTENER_PERF,
};

/* Zero is the default. */
struct proclistener_options {
	enum proclistener_source only; /* NONE: whichever is allowed */
	int receive_bytes;             /* 1 MiB, or what net.core.rmem_max allows: of each socket */
	size_t ring_bytes;             /* 32 KiB; of perf's, on each CPU */
};

/*
 * 0; -errno: none is allowed, and then reason, of PROCLISTENER_REASON_MAX bytes, says it for people; else it says why there are no exit records, or "".
 * *ret belongs to the caller: proclistener_close.
 */
int proclistener_open(const struct proclistener_options *options, struct proclistener **ret, char *reason);

/* NULL is fine. */
void proclistener_close(struct proclistener *listener);

enum proclistener_source proclistener_source(const struct proclistener *listener);

/* Whether PROCEVENT_TOTALS come. */
bool proclistener_has_totals(const struct proclistener *listener);

/*
 * What has come since, cap events at most, at least twice PROCLISTENER_BATCH of room; never waits. Of one process its TOTALS come after its other
 * events, if all fit; between CPUs the order of perf's records is by CPU, not by time. The number. *ret_lost: the kernel
 * had no room for some, at any time before.
 */
size_t proclistener_read(struct proclistener *listener, struct procevent *events, size_t cap, bool *ret_lost);

#define PROCLISTENER_BATCH 64u

/* "connector", "perf", "rescan" (NONE): static text. */
const char *proclistener_name(enum proclistener_source source);

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
