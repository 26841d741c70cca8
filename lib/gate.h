/*
 * gate.h: decides what to read of one process, so that an idle one costs a single call of 190 ns.
 *
 * While its CPU clock stands still a process does not run, and what does not run does not change its files, but for memory
 * that others take from it: hence a heartbeat.
 */
#ifndef SPIKEWATCH_GATE_H
#define SPIKEWATCH_GATE_H

#include "clock.h"
#include "process.h"
#include "sample.h"

#include <stdbool.h>
#include <stdint.h>

/* See source.h for their meaning; here 0 is no default. */
struct gate_options {
	uint64_t heartbeat_ns;
	uint64_t peak_interval_ns; /* UINT64_MAX: never */
	uint64_t fds_interval_ns;  /* 0: never */
	bool reset_peaks;
	bool ungated;
};

/* In the caller's storage. The fields up to adopt are all that a look at an idle process touches. */
struct gate {
	struct process process;
	uint64_t cpu_ns; /* what the clock said */
	uint64_t due_ns; /* when to read although nothing moved */
	bool ran;        /* at the last look */
	bool settled;
	uint8_t owed;
	_Atomic bool adopt; /* there are files to be taken over */
	uint8_t spread;     /* step of the heartbeats' spreading */
	uint64_t heartbeat_ns;
	uint64_t peak_due_ns;
	uint64_t fds_due_ns;
	_Atomic int reopened[PROCESS_EXTRAS]; /* files to be taken over; -1: none */
};

/* Opens the process and reads it a first time into *sample. Arguments and returns as source_entry_process (source.h). */
int gate_init(struct gate *gate, int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock,
	      struct sample *sample);
void gate_release(struct gate *gate);

/* Once, before the first gate_look. spread: any number; gates with different ones do not have their heartbeats together. */
void gate_arm(struct gate *gate, const struct gate_options *options, uint32_t spread);

/*
 * From now on *options are in force instead of *before. What is no longer read becomes unavailable in *sample; what is now read, or sooner, is
 * due within a heartbeat. Closes nothing and opens nothing. True: *sample changed.
 */
bool gate_retune(struct gate *gate, const struct gate_options *before, const struct gate_options *options, mono_t now,
		 struct sample *sample);

/*
 * Opens again what options need and process_drop may have closed; the next gate_look takes it over, and it is read then. Any thread, one
 * at a time. Arguments and returns as source_entry_reopen (source.h).
 */
int gate_reopen(struct gate *gate, int procfd, int32_t pid, uint64_t start_ticks, const struct gate_options *options);

/* Looks at the clock. True: gate_read is due. */
bool gate_look(struct gate *gate, const struct gate_options *options, mono_t now);

/* Reads into *sample what is due. 0; -ESRCH: gone; -errno: *sample is partly new, and reading stays due. */
int gate_read(struct gate *gate, const struct gate_options *options, mono_t now, struct sample *sample);

#endif
