/*
 * process.h: reads one process through descriptors that are opened once. They stay bound to that very process: when its pid
 * is reused they answer ESRCH, and so does everything here, "gone".
 *
 * The only file of lib/ that asks a clock, and only the CPU clock of another process. Source: proc(5),
 * clock_getcpuclockid(3). Measured: clock 190 ns, stat 1,200, statm 500, status 3,000, with kept descriptors.
 */
#ifndef SPIKEWATCH_PROCESS_H
#define SPIKEWATCH_PROCESS_H

#include "sample.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* In the caller's storage, and small: the owner keeps it in the cache line it looks at every time. */
struct process {
	clockid_t clock; /* CPU clock; 0: not to be asked */
	int stat_fd;
	int statm_fd; /* this one and those below: -1 when unavailable or not wanted */
	int status_fd;
	int fds_fd; /* the directory fd/ */
	int clear_refs_fd;
};

/*
 * Opens all that can be read. Arguments and returns as source_entry_process (source.h). What the process's owner or the
 * kernel does not allow to read, except stat, is unavailable.
 */
int process_init(struct process *process, int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock);
void process_release(struct process *process);

/* Closes what will not be read: VmHWM, its reset, the count of descriptors. */
void process_drop(struct process *process, bool peak, bool reset, bool fds);

/* What process_drop may have closed and process_reopen opens again. */
enum process_extra { PROCESS_STATUS, PROCESS_CLEAR_REFS, PROCESS_FDS, PROCESS_EXTRAS };

/* Opens those files of the process whose bits (1 << enum process_extra) are in wanted, else -1. As process_init otherwise. */
int process_reopen(int procfd, int32_t pid, uint64_t start_ticks, unsigned wanted, int ret[PROCESS_EXTRAS]);

/* Takes over what process_reopen has opened: keeps what it lacks, closes the others. */
void process_adopt(struct process *process, const int extras[PROCESS_EXTRAS]);

/* CPU time used, all threads. The clock must be there. 0; -ESRCH: no process has that pid (a zombie does); -errno. */
int process_cpu(const struct process *process, uint64_t *ret_ns);

/* stat and statm: CPU_USER, CPU_SYSTEM, their sum as CPU, MEMORY, THREADS, faults, STATE. 0; -ESRCH; -EBADMSG, -errno. */
int process_read(const struct process *process, struct sample *sample);

/* MEMORY_PEAK from status; reset: then start a new high-water mark, where that is allowed. Kernel threads have none. */
int process_read_peak(const struct process *process, bool reset, struct sample *sample);

/* FDS. Unavailable where listing is not allowed. More than 65,536 are counted as that many: listing takes 0.2 µs each. */
int process_read_fds(const struct process *process, struct sample *sample);

#endif
