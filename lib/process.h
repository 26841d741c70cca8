/*
 * process.h: reads one process through descriptors that are opened once. They stay bound to that very process: when its pid
 * is reused they answer ESRCH, and so does everything here, "gone".
 *
 * The only file of lib/ that asks a clock, and only the CPU clock of another process. Source: proc(5),
 * clock_getcpuclockid(3). Measured: clock 190 ns, stat 1,200, statm 500, status 3,000, with kept descriptors; the first three 9,000 when stat and
 * statm are opened and closed for it.
 */
#ifndef SPIKEWATCH_PROCESS_H
#define SPIKEWATCH_PROCESS_H

#include "sample.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* What is open of a process. */
enum process_file {
	PROCESS_STAT,
	PROCESS_STATM,
	PROCESS_STATUS,
	PROCESS_CLEAR_REFS,
	PROCESS_FDS, /* the directory fd/ */
	PROCESS_FILES
};

/* As bits, 1 << enum process_file. */
#define PROCESS_ALL ((1u << PROCESS_FILES) - 1)

/* In the caller's storage, and small: the owner keeps it in the cache line it looks at every time. */
struct process {
	clockid_t clock;       /* CPU clock; 0: not to be asked */
	int fd[PROCESS_FILES]; /* -1: unavailable or not wanted */
};

/*
 * Opens all that can be read. Arguments and returns as source_entry_process (source.h). What the process's owner or the
 * kernel does not allow to read, except stat, is unavailable.
 */
int process_init(struct process *process, int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock);
void process_release(struct process *process);

/* Nothing is open; the CPU clock of pid, if wanted, can be asked, and says nothing of who has that pid. */
void process_init_closed(struct process *process, int32_t pid, bool with_cpu_clock);

/*
 * Opens stat, and what is in `wanted`; reads nothing. All belongs to one process, which need not be the one that is meant: process_identify
 * says. 0; -ESRCH; -errno. Has one descriptor more for a moment.
 */
int process_open(struct process *process, int procfd, int32_t pid, unsigned wanted);

/* The start time, from stat. 0; -ESRCH; -EBADMSG, -errno. */
int process_identify(const struct process *process, uint64_t *ret_start_ticks);

/* Closes those in `files`. */
void process_drop(struct process *process, unsigned files);

/* Opens those files of the process that are in wanted; others are -1 in *ret, and so is its clock. As process_init otherwise. */
int process_reopen(int procfd, int32_t pid, uint64_t start_ticks, unsigned wanted, struct process *ret);

/* Takes over what process_reopen has opened: keeps what it lacks, closes the others. */
void process_adopt(struct process *process, const int offered[PROCESS_FILES]);

/* CPU time used, all threads. The clock must be there. 0; -ESRCH: no process has that pid (a zombie does); -errno. */
int process_cpu(const struct process *process, uint64_t *ret_ns);

/*
 * stat and statm: CPU_USER, CPU_SYSTEM, their sum as CPU, MEMORY, THREADS, faults, STATE. 0; -ESRCH; -EBADMSG, -errno. start_ticks: 0, or the
 * start time that stat must have: -ESRCH if it is another one, and *sample is as it was.
 */
int process_read(const struct process *process, uint64_t start_ticks, struct sample *sample);

/* MEMORY_PEAK from status; reset: then start a new high-water mark, where that is allowed. Kernel threads have none. */
int process_read_peak(const struct process *process, bool reset, struct sample *sample);

/* FDS. Unavailable where listing is not allowed. More than 65,536 are counted as that many: listing takes 0.2 µs each. */
int process_read_fds(const struct process *process, struct sample *sample);

#endif
