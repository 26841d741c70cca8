/*
 * process.h: decides what to read of one process, so that an idle one costs a single call of 190
 * ns, and so does one that ran for a moment.
 *
 * While its CPU clock stands still a process does not run, and what does not run does not change
 * its files, but for memory that others take from it: hence a heartbeat. It backs off: the readings
 * of a process that does not run are 1, 2, 4 and then 8 heartbeats apart (not more than 10 s,
 * unless the heartbeat is longer), until it runs or one of them finds its memory changed.
 *
 * One that ran is read when it has used unread_max_ns of CPU time since it was last read, when that
 * reading found its memory changed, or when something was left unread for a time that the caller
 * names. Until then its CPU time alone is new. That is not done with cold ones (see below).
 *
 * A gate is warm, its files are open, or cold: nothing is open. What is due to be read of a cold
 * one is opened for that and closed again, which takes four times as long; looking at it costs the
 * same. Its pid may come to belong to somebody else while it is cold: whatever its CPU clock says
 * is believed only when its files were read after that and have its start time.
 *
 * 	          read_gate_chill                      next read_gate_look
 * 	warm -----------------> warm, asked to give up -----------> cold
 * 	  ^                                                          |
 * 	  +---- next read_gate_look ---- cold, with files on offer <------+ read_gate_warm
 *
 * Cold ones have their high-water marks and descriptors looked at once per heartbeat at most,
 * unless they are needed (read_gate_need).
 */
#ifndef SPIKEWATCH_LIB_SOURCE_PROCESS_H
#define SPIKEWATCH_LIB_SOURCE_PROCESS_H

#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/*
 * process.h: reads one process through descriptors that are opened once. They stay bound to that
 * very process: when its pid is reused they answer ESRCH, and so does everything here, "gone".
 *
 * The only file of lib/ that asks a clock, and only the CPU clock of another process. Source:
 * proc(5), clock_getcpuclockid(3). Measured: clock 190 ns, stat 1,200, statm 500, status 3,000,
 * with kept descriptors; the first three 9,000 when stat and statm are opened and closed for it.
 */

/* What is open of a process. */
enum process_file {
	PROCESS_STAT,
	PROCESS_STATM,
	PROCESS_STATUS,
	PROCESS_CLEAR_REFS,
	PROCESS_FDS, /* the directory fd/ */
	PROCESS_FILES
};

/*
 * In the caller's storage, and small: the owner keeps it in the cache line it looks at every time.
 */
struct process {
	clockid_t clock;       /* CPU clock; 0: not to be asked */
	int fd[PROCESS_FILES]; /* -1: unavailable or not wanted */
};

/*
 * Opens all that can be read. Arguments and returns as source_entry_process (source.h). What the
 * process's owner or the kernel does not allow to read, except stat, is unavailable.
 */
int process_init(struct process *process, int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock);
void process_release(struct process *process);

/* Closes those in `files`. */
void process_drop(struct process *process, unsigned files);

/*
 * Opens those files of the process that are in wanted; others are -1 in *ret, and so is its clock.
 * As process_init otherwise.
 */
int process_reopen(int procfd, int32_t pid, uint64_t start_ticks, unsigned wanted, struct process *ret);

/* Takes over what process_reopen has opened: keeps what it lacks, closes the others. */
void process_adopt(struct process *process, const int offered[PROCESS_FILES]);

/*
 * CPU time used, all threads. The clock must be there. 0; -ESRCH: no process has that pid (a zombie
 * does); -errno.
 */
int process_cpu(const struct process *process, uint64_t *ret_ns);

/*
 * stat and statm: CPU_USER, CPU_SYSTEM, their sum as CPU, MEMORY, THREADS, faults, STATE. 0;
 * -ESRCH; -EBADMSG, -errno. start_ticks: 0, or the start time that stat must have: -ESRCH if it is
 * another one, and *sample is as it was.
 */
int process_read(const struct process *process, uint64_t start_ticks, struct sample *sample);

/*
 * MEMORY_PEAK from status; reset: then start a new high-water mark, where that is allowed. Kernel
 * threads have none.
 */
int process_read_peak(const struct process *process, bool reset, struct sample *sample);

/*
 * FDS. Unavailable where listing is not allowed. More than 65,536 are counted as that many: listing
 * takes 0.2 µs each.
 */
int process_read_fds(const struct process *process, struct sample *sample);

/* See source.h for their meaning; here 0 is no default. */
struct read_gate_options {
	uint64_t heartbeat_ns;
	uint64_t peak_interval_ns; /* UINT64_MAX: never */
	uint64_t fds_interval_ns;  /* 0: never */
	uint64_t unread_max_ns;    /* of CPU time; 0: one that ran is read at once */
	bool reset_peaks;
	bool ungated;
};

/* What a look has found. */
enum read_gate_due {
	READ_GATE_NOTHING,
	READ_GATE_CLOCK, /* it ran: read_gate_take_clock; the files are left unread */
	READ_GATE_FILES, /* read_gate_read is due, which takes the clock too */
};

/* Which process it is. */
struct read_gate_process {
	int procfd; /* must outlive the gate */
	int32_t pid;
	uint64_t start_ticks; /* 0: whichever has the pid now */
	bool with_cpu_clock;
	bool cold; /* to begin with */
};

/*
 * In the caller's storage. The fields up to asked are all that a look at an idle process touches.
 */
struct read_gate {
	struct process process;
	uint64_t cpu_ns; /* what the clock said */
	uint64_t due_ns; /* when to read although nothing moved */
	bool ran;        /* at the last look */
	bool settled;
	bool unread; /* it ran, and was not read since with the clock standing still: due_ns says until when */
	uint8_t owed;
	_Atomic uint8_t asked; /* bits: files on offer, or to be given up */
	uint8_t spread;        /* step of the heartbeats' spreading */
	uint8_t rate_limit;    /* how often the heartbeat was doubled */
	bool moving;           /* the last reading found its memory changed */
	bool same_pages;       /* the last reading found no page come since the high-water mark was read */
	uint64_t patience_ns;  /* as of the last look that saw it run */
	uint64_t read_cpu_ns;  /* cpu_ns at the last reading */
	uint64_t peak_faults;  /* at the last reading of the high-water mark */
	uint64_t peak_memory;
	uint64_t heartbeat_ns;
	uint64_t peak_due_ns;
	uint64_t fds_due_ns;
	struct read_gate_process who;
	_Atomic uint32_t runs;              /* readings after it ran */
	_Atomic bool cold;                  /* as of the last look */
	_Atomic uint8_t needed;             /* bits: see read_gate_need */
	_Atomic int offered[PROCESS_FILES]; /* files to be taken over; -1: none */
};

/*
 * Opens the process and reads it a first time into *sample. Returns as source_entry_process
 * (source.h).
 */
int read_gate_init(struct read_gate *read_gate, const struct read_gate_process *process, struct sample *sample);
void read_gate_release(struct read_gate *read_gate);

/*
 * Once, before the first read_gate_look. spread: any number; gates with different ones do not have
 * their heartbeats together.
 */
void read_gate_arm(struct read_gate *read_gate, const struct read_gate_options *options, uint32_t spread);

/*
 * From now on *options are in force instead of *before. What is no longer read becomes unavailable
 * in *sample; what is now read, or sooner, is due within a heartbeat. Closes nothing and opens
 * nothing. True: *sample changed.
 */
bool read_gate_retune(struct read_gate *read_gate, const struct read_gate_options *before,
		      const struct read_gate_options *options, mono_t now, struct sample *sample);

/*
 * Opens again what options need and process_drop may have closed; the next read_gate_look takes it
 * over, and it is read then. A cold one needs none. Any thread, one at a time. Arguments and
 * returns as source_entry_reopen (source.h).
 */
int read_gate_reopen(struct read_gate *read_gate, int procfd, int32_t pid, uint64_t start_ticks,
		     const struct read_gate_options *options);

/*
 * The next read_gate_look makes it warm, with the files that options need. Returns as
 * read_gate_reopen. Any thread, one at a time with that.
 */
int read_gate_warm(struct read_gate *read_gate, const struct read_gate_options *options);

/* The next read_gate_look makes it cold. Any thread. */
void read_gate_chill(struct read_gate *read_gate);

/*
 * Whether it was cold at its last look, and how often it was read after it had run, modulo 2^32.
 * Any thread.
 */
bool read_gate_is_cold(const struct read_gate *read_gate);
uint32_t read_gate_runs(const struct read_gate *read_gate);

/*
 * What is read at its own interval although the gate is cold. To begin with, nothing is. Any
 * thread.
 */
void read_gate_need(struct read_gate *read_gate, bool peak, bool fds);

/*
 * Looks at the clock. patience_ns: for how long the files may be left unread after it ran; 0: not
 * at all. Of READ_GATE_FILES, what the clock says is not to be believed before read_gate_read. Of
 * READ_GATE_CLOCK it is, but for one case: the pid came to belong to another process, the clock of
 * which is ahead of this one's by less than unread_max_ns; that is found out when the files are
 * read.
 */
enum read_gate_due read_gate_look(struct read_gate *read_gate, const struct read_gate_options *options, mono_t now,
				  uint64_t patience_ns);

/*
 * After READ_GATE_CLOCK: CPU in *sample is what the clock said; all else in it stays as of the last
 * reading.
 */
void read_gate_take_clock(struct read_gate *read_gate, struct sample *sample);

/*
 * Reads into *sample what is due. 0; -ESRCH: gone, another process may have its pid; -errno:
 * reading stays due. Where it failed *sample is partly new (of a cold one: as it was). Of a cold
 * one up to 6 descriptors are open meanwhile.
 */
int read_gate_read(struct read_gate *read_gate, const struct read_gate_options *options, mono_t now,
		   struct sample *sample);

#endif
