/*
 * kernel_event.h: what the program in the kernel (switches.bpf.c) says of a process that began, executed,
 * changed its name or its cgroup, ran on and on, or ended, as it is in the ring between it and
 * kernel_accounts.c. Self-contained, because it is compiled for both. Native byte order.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_KERNEL_KERNEL_EVENT_H
#define SPIKEWATCH_DAEMON_ENGINE_KERNEL_KERNEL_EVENT_H

#include <stdint.h>

enum kernel_event_kind {
	KERNEL_EVENT_FORK,
	KERNEL_EVENT_EXEC,
	KERNEL_EVENT_RENAME,
	KERNEL_EVENT_MOVE,  /* to another cgroup, of any hierarchy */
	KERNEL_EVENT_BURST, /* something watched has run for a while, and runs are logged; pid is not set */
	KERNEL_EVENT_END,   /* its last thread has run for the last time */
};

struct kernel_event {
	uint32_t kind;
	int32_t pid;
	int32_t ppid; /* of FORK and END */
	uint32_t unused;
};

/* KERNEL_EVENT_END. Of all threads of the process. */
struct kernel_end {
	struct kernel_event event;
	uint64_t cpu_ns;             /* as the scheduler counts it, to the last moment */
	uint64_t user_ns, system_ns; /* by ticks: only their relation means something */
	uint64_t minor_faults, major_faults;
	uint64_t elapsed_ns; /* since it began */
	uint64_t began_ns;   /* CLOCK_BOOTTIME */
	uint64_t ended_ns;   /* CLOCK_MONOTONIC, of no time namespace */
	char comm[16];       /* ends with a zero byte */
};

#endif
