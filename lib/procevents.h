/*
 * procevents.h: what the kernel says of processes as it happens, from its messages: the proc connector's (fork, exec, comm, exit), the exit
 * records of taskstats, and records of perf. Pure; no length inside a message is believed before it was compared with what is there.
 *
 * Only whole processes: what a single thread does is left out.
 *
 * Source: linux/cn_proc.h, linux/taskstats.h, linux/genetlink.h; Documentation/accounting/taskstats.rst.
 */
#ifndef SPIKEWATCH_PROCEVENTS_H
#define SPIKEWATCH_PROCEVENTS_H

#include "perfrecord.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum procevent_kind {
	PROCEVENT_FORK,
	PROCEVENT_EXEC,
	PROCEVENT_COMM,
	PROCEVENT_EXIT,   /* its main thread ended: usually the process */
	PROCEVENT_TOTALS, /* its last thread ends: all that it used */
};

/* Of PROCEVENT_TOTALS. */
struct procevent_totals {
	uint64_t cpu_ns, user_ns,
		system_ns; /* of all threads; user and system are its shares as far as the kernel knows them */
	uint64_t minor_faults, major_faults; /* 0 of a process that had several threads: not known */
	uint64_t elapsed_ns;                 /* since its last thread began, which is the process if it had no other */
	bool threads;                        /* it had several */
	char comm[17];
};

struct procevent {
	enum procevent_kind kind;
	int32_t pid;
	int32_t ppid; /* of FORK and TOTALS */
	struct procevent_totals totals;
};

/* What a message was. */
enum procevents_result {
	PROCEVENTS_EVENT = 0,
	PROCEVENTS_OTHER = 1, /* nothing of interest, *ret untouched */
	PROCEVENTS_ANSWER =
		2 /* the connector's answer to listening, or an error of netlink's: *ret_error is 0 or -errno */
};

/*
 * One datagram of a NETLINK_CONNECTOR socket. enum procevents_result; -EBADMSG: cut off or of another shape. ret_error: set with
 * PROCEVENTS_ANSWER only.
 */
int procevents_connector(const void *data, size_t len, struct procevent *ret, int *ret_error);

/* The same for a NETLINK_GENERIC socket that is registered for exits of the taskstats family, whose number is family. */
int procevents_taskstats(const void *data, size_t len, uint16_t family, struct procevent *ret, int *ret_error);

/* A record of perf's. PROCEVENTS_EVENT or PROCEVENTS_OTHER. */
int procevents_perf(const struct perfrecord *record, struct procevent *ret);

/* The number of a family in the answer to CTRL_CMD_GETFAMILY. 0; -ENOENT: there is no such family; -errno as the kernel says; -EBADMSG. */
int procevents_family(const void *data, size_t len, uint16_t *ret);

#endif
