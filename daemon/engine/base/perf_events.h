/*
 * perf_events.h: perf events and their rings: samples, into rings that are overwritten; and mmap,
 * fork, exec and exit records, into rings that are drained. Of all processes on one CPU; or of one
 * thread, and what it starts, on one CPU.
 *
 * 	all processes   the event and its ring are one descriptor:   perf_events_open
 * 	a thread        a ring of its own for each CPU:              perf_events_open_ring
 * 	                and many events that are written into it:    perf_events_follow
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_PERF_EVENTS_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_PERF_EVENTS_H

#include "lib/proc/perf.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/types.h>

#define PERF_EVENTS_REASON_MAX 200

enum perf_events_kind {
	PERF_EVENTS_CPU,         /* SAMPLE: what runs on a busy CPU, by the clock or by cycles */
	PERF_EVENTS_FAULTS,      /* SAMPLE: page faults; each stands for perf_events_period of them */
	PERF_EVENTS_SIDE,        /* MMAP2, COMM, FORK and EXIT */
	PERF_EVENTS_TASKS,       /* COMM, FORK and EXIT */
	PERF_EVENTS_LARGE_PAGES, /* SAMPLE: what a BPF program writes, into rings of PERF_EVENTS_FAULTS */
	PERF_EVENTS_KINDS,
};

/* What is to be reported. All events that share a ring have the same. */
struct perf_events_wanted {
	enum perf_events_kind kind;
	uint32_t frequency; /* samples a second of a CPU that is busy, or that has 100,000 faults a second; not 0 */
	uint32_t
		stack_bytes; /* 0: by frame pointers; else with registers and so much of the stack: PERF_RECORD_DWARF */
	bool cycles;         /* PERF_EVENTS_CPU: of the hardware, instead of the clock */
	bool user_only;      /* not while the kernel runs, nor its part of the call chain: what takes no privilege */
	bool build_ids;      /* PERF_EVENTS_SIDE: Linux 5.12 */
	bool cgroups; /* samples say their cgroup, PERF_EVENTS_SIDE which are made: Linux 5.7, CONFIG_CGROUP_PERF */
	uint32_t wake_samples; /* PERF_EVENTS_FAULTS: the ring is readable after so many; 0: never */
	bool large_pages;      /* PERF_EVENTS_FAULTS: the ring takes samples of PERF_EVENTS_LARGE_PAGES, too */
	uint64_t fault_period; /* PERF_EVENTS_FAULTS: each stands for so many; 0: by frequency */
};

/* A ring, and maybe an event of its own. */
struct perf_events {
	int fd; /* -1: closed */
	uint32_t cpu;
	void *map;
	size_t map_bytes;
	struct perf_ring ring;
};

/* {-1} of it. */
#define PERF_EVENTS_NONE ((struct perf_events){ .fd = -1 })

/* Whether registers and stacks can be sampled on this machine. */
bool perf_events_can_dwarf(void);

/*
 * How the records of these events are read. Samples of faults do not say their period. Those of
 * large pages have raw data: how many small ones they stand for, 64 bits.
 */
struct perf_record_format perf_events_format(const struct perf_events_wanted *wanted);

/*
 * The period of samples that do not say it; 0: they do. Odd, so that a loop with an even number
 * of faults is not always sampled at the same one.
 */
uint64_t perf_events_period(const struct perf_events_wanted *wanted);

/*
 * An event without a ring: of all threads (tid -1), of the calling thread (0) or of thread tid, and
 * then of all that it starts, on cpu. The descriptor; -ENODEV: cpu is offline; -ESRCH: no such
 * thread; -errno. Good for asking whether it is possible.
 */
int perf_events_event(const struct perf_events_wanted *wanted, pid_t tid, uint32_t cpu);

/*
 * "perf_event_open: Permission denied; kernel.perf_event_paranoid is 2", of PERF_EVENTS_REASON_MAX
 * bytes. error: a negative errno; returns it.
 */
int perf_events_refusal(int error, char *reason);

/*
 * An event of all threads on cpu, with a ring of its own. poll(2) wakes when one of
 * PERF_EVENTS_SIDE is half full, and at everything that PERF_EVENTS_TASKS says. 0; -ENODEV:
 * offline, or no such CPU; -errno, and then reason, of PERF_EVENTS_REASON_MAX bytes, says it: of
 * mmap(2), -EPERM is no room for locked memory. *ret is closed by perf_events_close.
 */
int perf_events_open(const struct perf_events_wanted *wanted, uint32_t cpu, size_t ring_bytes, struct perf_events *ret,
		     char *reason);

/* A ring for perf_events_follow: its own event counts nothing. Otherwise as perf_events_open. */
int perf_events_open_ring(const struct perf_events_wanted *wanted, uint32_t cpu, size_t ring_bytes,
			  struct perf_events *ret, char *reason);

/*
 * perf_events_event of a thread, or of all, on the CPU of the ring and into it, which wants
 * the same. The descriptor, which the caller closes; or as there.
 */
int perf_events_follow(const struct perf_events_wanted *wanted, pid_t tid, const struct perf_events *ring);

/*
 * Adds what an event of PERF_EVENTS_FAULTS or with `cycles` has counted, with inherited ones, and
 * for how long it was on a CPU. 0 or -errno.
 */
int perf_events_count(int fd, uint64_t *count, uint64_t *running_ns);

/* Enables or disables an event, with inherited ones. 0 or -errno. */
static inline int perf_events_switch(int fd, bool on)
{
	return ioctl(fd, on ? PERF_EVENT_IOC_ENABLE : PERF_EVENT_IOC_DISABLE, 0) < 0 ? -errno : 0;
}

/* Pauses or resumes output into the ring. 0 or -errno. */
int perf_events_pause(const struct perf_events *events, bool pause);

/* {-1} of it and what is closed already is fine. */
void perf_events_close(struct perf_events *events);

/* The wanted number of samples per second, or the limit of the kernel. */
uint32_t perf_events_frequency(uint32_t wanted);

#endif
