/*
 * process_news.h: processes that were heard of lately: which of them have yet to be looked at, and
 * which came and went before anybody could. Bounded: the oldest is forgotten for the newest. Pure;
 * time is an argument.
 *
 *                     recent_pids_began              looked at
 *     (unknown) ───────────────────────▶ WAITING ──────────▶ MET
 *                        ▲ executes           │ recent_pids_ended │
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
 * process_listener.h: hears from the kernel which processes fork, execute, change their name and
 * end. Two sources, of which the first that is allowed is taken:
 *
 * 	the proc connector  CAP_NET_ADMIN (up to Linux 6.5), in the machine's own network and pid
 *  namespace. With it, where CAP_NET_ADMIN is
 * 	                    there, the exit records of taskstats: what a process used in all, also if it was too short to be
 *                      looked at
 * 	perf's records      CAP_PERFMON (or CAP_SYS_ADMIN, or kernel.perf_event_paranoid below 1), in any
 *  network namespace
 *
 * Belongs to one thread.
 */

#define PROCESS_LISTENER_REASON_MAX 200

struct process_listener;

enum process_listener_source {
	PROCESS_LISTENER_NONE,
	PROCESS_LISTENER_CONNECTOR,
	PROCESS_LISTENER_PERF,
};

/* Zero is the default. */
struct process_listener_options {
	enum process_listener_source only; /* NONE: whichever is allowed */
	int receive_bytes;                 /* 1 MiB, or what net.core.rmem_max allows: of each socket */
	size_t ring_bytes;                 /* 32 KiB; of perf's, on each CPU */
};

/*
 * 0; -errno: none is allowed, and then reason, of PROCESS_LISTENER_REASON_MAX bytes, says it for
 * people; else it says why there are no exit records, or "". *ret belongs to the caller:
 * process_listener_close.
 */
int process_listener_open(const struct process_listener_options *options, struct process_listener **ret, char *reason);

/* NULL is fine. */
void process_listener_close(struct process_listener *listener);

enum process_listener_source process_listener_source(const struct process_listener *listener);

/* Whether PROCEVENT_TOTALS come. */
bool process_listener_has_totals(const struct process_listener *listener);

/*
 * What has come since, cap events at most, at least twice PROCESS_LISTENER_BATCH of room; never
 * waits. Of one process its TOTALS come after its other events, if all fit; between CPUs the order
 * of perf's records is by CPU, not by time. The number. *ret_lost: the kernel had no room for some,
 * at any time before.
 */
size_t process_listener_read(struct process_listener *listener, struct procevent *events, size_t cap, bool *ret_lost);

#define PROCESS_LISTENER_BATCH 64u

/* "connector", "perf", "rescan" (NONE): static text. */
const char *process_listener_name(enum process_listener_source source);

/* A second of a storm. */
#define RECENT_PIDS_MAX 4096u

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

struct recent_pids;

/* 0 or -ENOMEM. */
int recent_pids_new(struct recent_pids **ret);

/* NULL is fine. */
void recent_pids_free(struct recent_pids *recent_pids);

/*
 * News of a process, which waits to be looked at from now on; NULL: its end was heard of before,
 * within a moment: news from several CPUs are not in order. Valid until the next call.
 */
struct newcomer *recent_pids_began(struct recent_pids *recent_pids, int32_t pid, enum newcomer_news news, mono_t now);

/* It ended. What is known of it, GONE from now on. Never NULL. */
struct newcomer *recent_pids_ended(struct recent_pids *recent_pids, int32_t pid, mono_t now);

/* NULL: nothing was heard of it lately. */
struct newcomer *recent_pids_find(struct recent_pids *recent_pids, int32_t pid);

/*
 * The next that waits and whose last news are not younger than delay_ns; it is handed out once.
 * NULL: none.
 */
struct newcomer *recent_pids_due(struct recent_pids *recent_pids, uint64_t delay_ns, mono_t now);

/* When the next one will be due. False: none waits. */
bool recent_pids_next(struct recent_pids *recent_pids, uint64_t delay_ns, mono_t *ret);

/* Those that wait are not handed out any more. How many that were. */
size_t recent_pids_give_up(struct recent_pids *recent_pids);

/* Came and went without being looked at; forgotten while they waited. Ever. */
uint64_t recent_pids_missed(const struct recent_pids *recent_pids);
uint64_t recent_pids_dropped(const struct recent_pids *recent_pids);

#endif
