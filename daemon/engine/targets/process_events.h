/*
 * process_events.h: which processes fork, execute, change their name and end, from the kernel. Three
 * sources, of which the first that is permitted is taken:
 *
 *     the kernel source   of CPU time (kernel_accounts.h), while it is on: with exit records that are exact
 *     the proc connector  CAP_NET_ADMIN (up to Linux 6.5), in the initial network and pid namespaces.
 *                         With CAP_NET_ADMIN also the exit records of taskstats: what a process used
 *                         in all, even if it was too short-lived to be looked at
 *     perf's records      CAP_PERFMON (or CAP_SYS_ADMIN, or kernel.perf_event_paranoid below 1), in
 *                         any network namespace
 *
 * For one thread.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_PROCESS_EVENTS_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_PROCESS_EVENTS_H

#include "lib/proc/procfs.h"

#include <stdbool.h>
#include <stddef.h>

#define PROCESS_EVENTS_REASON_MAX 200

struct process_events;
struct kernel_accounts; /* kernel_accounts.h */

enum process_events_source {
	PROCESS_EVENTS_NONE,
	PROCESS_EVENTS_CONNECTOR,
	PROCESS_EVENTS_PERF,
	PROCESS_EVENTS_KERNEL,
};

/* Zero is the default. */
struct process_events_options {
	enum process_events_source only;  /* NONE: the first that is permitted */
	struct kernel_accounts *accounts; /* must outlive it; NULL: there are none */
	int receive_bytes;                /* of each socket; 1 MiB, or what net.core.rmem_max allows */
	size_t ring_bytes;                /* of perf's ring on each CPU; 32 KiB */
};

/* What was opened. */
struct process_events_info {
	enum process_events_source source;
	bool exit_totals;                    /* PROCEVENT_TOTALS come */
	int fd;                              /* for poll(2): readable when there is something to read */
	char why[PROCESS_EVENTS_REASON_MAX]; /* why there is no source, or no exit records; or "" */
};

/* 0; -errno: no source is permitted, see ret_info->why. The caller closes *ret. */
int process_events_open(const struct process_events_options *options, struct process_events **ret,
			struct process_events_info *ret_info);

/* NULL is fine. */
void process_events_close(struct process_events *events);

/*
 * Reads what has come, into batch, which has room for cap events, at least twice
 * PROCESS_EVENTS_BATCH; never blocks. The TOTALS of a process come after its other events, if all
 * fit; perf's records of all CPUs are in the order of time. Their number. *ret_lost: there was no room
 * for some, at any time before; *ret_more: there may be more to read, even if the number is 0.
 */
size_t process_events_read(struct process_events *events, struct procevent *batch, size_t cap, bool *ret_lost,
			   bool *ret_more);

#define PROCESS_EVENTS_BATCH 64u

#endif
