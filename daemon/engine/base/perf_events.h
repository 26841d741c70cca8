/*
 * perf_events.h: opening what the kernel reports: samples, into rings that overwrite their oldest; and who maps, forks, executes and exits, into rings
 * that are emptied. Of one CPU, whoever runs; or of one thread and what it starts, on one CPU.
 *
 *	everybody's        the event and its ring are one descriptor:  perfevents_open
 *	a thread's         the ring is there by itself, of one CPU:    perfevents_open_ring
 *	                   and many events are written into it:        perfevents_follow
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_PERF_EVENTS_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_PERF_EVENTS_H

#include "lib/proc/perf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PERFEVENTS_REASON_MAX 200

enum perfevents_kind {
	PERFEVENTS_CPU,    /* SAMPLE: who is on a CPU that is busy, by the clock or by cycles */
	PERFEVENTS_FAULTS, /* SAMPLE: who touches memory that is not there; each stands for perfevents_period faults */
	PERFEVENTS_SIDE,   /* MMAP2, COMM, FORK and EXIT */
	PERFEVENTS_TASKS,  /* COMM, FORK and EXIT */
	PERFEVENTS_KINDS,
};

/* What is to be reported. All events that share a ring have the same. */
struct perfevents_wanted {
	enum perfevents_kind kind;
	uint32_t frequency;   /* samples a second of a CPU that is busy, or that has 100,000 faults a second; not 0 */
	uint32_t stack_bytes; /* 0: by frame pointers; else with registers and so much of the stack: PERFRECORD_DWARF */
	bool cycles;          /* PERFEVENTS_CPU: of the hardware, instead of the clock */
	bool user_only;       /* not while the kernel runs, nor its part of the call chain: what takes no privilege */
	bool build_ids;       /* PERFEVENTS_SIDE: Linux 5.12 */
	uint32_t
		wake_samples; /* PERFEVENTS_FAULTS: poll(2) of the ring wakes each time that so many were written; 0: never */
	uint64_t fault_period; /* PERFEVENTS_FAULTS: each stands for so many; 0: by frequency */
};

/* A ring, and maybe an event of its own. */
struct perfevents {
	int fd; /* -1: closed */
	uint32_t cpu;
	void *map;
	size_t map_bytes;
	struct perfring ring;
};

/* {-1} of it. */
#define PERFEVENTS_NONE ((struct perfevents){ .fd = -1 })

/* Whether registers and stacks can be had on this machine. */
bool perfevents_can_dwarf(void);

/* How the records of these events are read. Samples of faults do not say their period. */
struct perfrecord_format perfevents_format(const struct perfevents_wanted *wanted);

/* The period of samples that do not say it; 0: they do. Odd, so that loops of round numbers do not always meet the same fault. */
uint64_t perfevents_period(const struct perfevents_wanted *wanted);

/*
 * An event without a ring: of everybody (tid -1), of the calling thread (0) or of thread tid, and then of all that it starts, on cpu. The descriptor;
 * -ENODEV: cpu is offline; -ESRCH: no such thread; -errno. Good for asking whether it is possible.
 */
int perfevents_event(const struct perfevents_wanted *wanted, pid_t tid, uint32_t cpu);

/* "perf_event_open: Permission denied; kernel.perf_event_paranoid is 2", of PERFEVENTS_REASON_MAX bytes. error: a negative errno; returns it. */
int perfevents_refusal(int error, char *reason);

/*
 * Everybody's event on cpu, with a ring of its own. poll(2) wakes when one of PERFEVENTS_SIDE is half full, and at
 * everything that PERFEVENTS_TASKS says. 0; -ENODEV: offline, or no such CPU;
 * -errno, and then reason, of PERFEVENTS_REASON_MAX bytes, says it for people: of mmap(2), -EPERM is no room for locked memory. *ret is closed by
 * perfevents_close.
 */
int perfevents_open(const struct perfevents_wanted *wanted, uint32_t cpu, size_t ring_bytes, struct perfevents *ret,
		    char *reason);

/* A ring for perfevents_follow: its own event counts nothing. Otherwise as perfevents_open. */
int perfevents_open_ring(const struct perfevents_wanted *wanted, uint32_t cpu, size_t ring_bytes,
			 struct perfevents *ret, char *reason);

/* perfevents_event of a thread, or of everybody, on the CPU of the ring and into it, which wants the same. The descriptor, which the caller closes; or as there. */
int perfevents_follow(const struct perfevents_wanted *wanted, pid_t tid, const struct perfevents *ring);

/*
 * What events of PERFEVENTS_FAULTS or with `cycles` have counted, with what was started, and for how long they were on a CPU: added to both. 0 or -errno.
 */
int perfevents_count(int fd, uint64_t *count, uint64_t *running_ns);

/* Has an event, with what was started, count or not. Where it ceased it goes on. 0 or -errno. */
int perfevents_switch(int fd, bool on);

/* Holds the ring still, or lets it go on. 0 or -errno. */
int perfevents_pause(const struct perfevents *events, bool pause);

/* {-1} of it and what is closed already is fine. */
void perfevents_close(struct perfevents *events);

/* As many samples per second as are wanted and as the kernel allows. */
uint32_t perfevents_frequency(uint32_t wanted);

/* Whether the kernel says that cpu is online; true if it does not say. */
bool perfevents_cpu_is_online(uint32_t cpu);

#endif
