/*
 * scheduling.h: how the kernel schedules a sampler thread: with real-time priority where that is
 * allowed, so that it runs on time when the CPUs are taken, and under a watch, so that it cannot
 * take one itself; else with a short time slice. And how long the thread waited for a CPU.
 *
 * Functions that do not say otherwise are the thread's own. None of them waits or allocates.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_SAMPLING_SCHEDULING_H
#define SPIKEWATCH_DAEMON_ENGINE_SAMPLING_SCHEDULING_H

#include "lib/base/base.h"
#include "lib/config/config.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum scheduling_class {
	SCHEDULING_NORMAL,
	SCHEDULING_SHORT_SLICE, /* normal, with a slice of 0.1 ms: Linux 6.12 */
	SCHEDULING_REAL_TIME,   /* SCHED_FIFO 1 */
};

/* Why a thread has no real-time priority. */
enum scheduling_reason {
	SCHEDULING_NO_REASON,    /* it has, or does not run */
	SCHEDULING_CONFIGURED,   /* sampling.scheduling "normal" */
	SCHEDULING_UNPRIVILEGED, /* neither CAP_SYS_NICE nor RLIMIT_RTPRIO */
	SCHEDULING_REFUSED,      /* one of both, but a filter of system calls or the cgroup forbids it */
	SCHEDULING_DISABLED,     /* kernel.sched_rt_runtime_us is 0 */
	SCHEDULING_FAILED,       /* any other error */
	/* It had, and gets it back after a while. */
	SCHEDULING_ENDLESS, /* it ran for SCHEDULING_RUN_MAX_NS without a sleep */
	SCHEDULING_COSTLY,  /* it used more CPU than its budget for SCHEDULING_PERIODS */
	SCHEDULING_HELD,    /* it waited for a CPU for most of SCHEDULING_PERIODS all the same */
};

/* A sentence without full stop; "" of SCHEDULING_NO_REASON. Static text. */
const char *scheduling_reason_text(enum scheduling_reason reason);

/* "normal", "short slice", "real-time". */
const char *scheduling_class_name(enum scheduling_class class);

static inline bool scheduling_was_withdrawn(enum scheduling_reason reason)
{
	return reason >= SCHEDULING_ENDLESS;
}

/* RLIMIT_RTTIME of the process while a thread has real-time priority. */
#define SCHEDULING_RUN_MAX_NS (200 * NS_PER_MS)

/* Periods in a row (scheduling_look), as many as the CPU budget needs to make the interval longer, and one. */
#define SCHEDULING_PERIODS 3u

/* Of a core, whatever the budget: a real-time thread leaves at least half of it to others. */
#define SCHEDULING_SHARE_MAX 0.5

/* How long a thread whose priority was withdrawn keeps none: the first time, and at most; it doubles each time. */
#define SCHEDULING_WITHDRAWN_NS (60 * NS_PER_S)
#define SCHEDULING_WITHDRAWN_MAX_NS (3600 * NS_PER_S)

/* { .schedstat = -1 } until scheduling_start. */
struct scheduling {
	_Atomic int class, reason; /* any thread may read them */
	bool keeps_reset;          /* SCHED_RESET_ON_FORK is set, and only a privilege would unset it */
	int schedstat;             /* descriptor of the thread's; -1: not there */
	enum config_scheduling wanted;
	unsigned costly, held; /* periods of that kind in a row */
	mono_t since;          /* start of the period */
	uint64_t cpu_ns, run_delay_ns;
	mono_t until; /* withdrawn: not before then */
	uint64_t withdrawn_ns;
};

/*
 * Asks for what is wanted, and takes the next best thing. Sets a handler for SIGXCPU, unblocks it in
 * this thread, and lowers RLIMIT_RTTIME: children that may have real-time threads of their own
 * should raise that again.
 */
void scheduling_start(struct scheduling *scheduling, enum config_scheduling wanted, mono_t now);
void scheduling_end(struct scheduling *scheduling);

/* Something else is wanted. */
void scheduling_change(struct scheduling *scheduling, enum config_scheduling wanted, mono_t now);

/*
 * Ends a period of a second or so, in which the thread was allowed that share of a core (<= 0: as much
 * as SCHEDULING_SHARE_MAX). cpu_ns: of this thread, in all. Withdraws real-time priority or gives it
 * back. Before a sleep, so that the run that ends is not held against it.
 */
void scheduling_look(struct scheduling *scheduling, mono_t now, uint64_t cpu_ns, double allowed);

/* How long the thread has waited for a CPU in all. 0: the kernel does not say (CONFIG_SCHED_INFO). */
uint64_t scheduling_run_delay(const struct scheduling *scheduling);

/* Any thread. */
static inline enum scheduling_class scheduling_class_of(const struct scheduling *scheduling)
{
	return (enum scheduling_class)atomic_load_explicit(&scheduling->class, memory_order_relaxed);
}

static inline enum scheduling_reason scheduling_reason_of(const struct scheduling *scheduling)
{
	return (enum scheduling_reason)atomic_load_explicit(&scheduling->reason, memory_order_relaxed);
}

#endif
