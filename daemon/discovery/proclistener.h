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
#ifndef SPIKEWATCH_PROCLISTENER_H
#define SPIKEWATCH_PROCLISTENER_H

#include "procevents.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/* For poll(2): readable when there is something to be read. */
int proclistener_fd(const struct proclistener *listener);

/*
 * What has come since, cap events at most, at least twice PROCLISTENER_BATCH of room; never waits. Of one process its TOTALS come after its other
 * events, if all fit; between CPUs the order of perf's records is by CPU, not by time. The number. *ret_lost: the kernel
 * had no room for some, at any time before.
 */
size_t proclistener_read(struct proclistener *listener, struct procevent *events, size_t cap, bool *ret_lost);

#define PROCLISTENER_BATCH 64u

/* Whether there was nothing more than what the last read took. */
bool proclistener_drained(const struct proclistener *listener);

/* "connector", "perf", "rescan" (NONE): static text. */
const char *proclistener_name(enum proclistener_source source);

#endif
