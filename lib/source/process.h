/*
 * process.h: reads one process, and decides what to read of it, so that a look at an idle one, or
 * at one that ran for a moment, costs a single call of 190 ns.
 *
 * Files are read through descriptors that are opened once. They stay bound to that very process:
 * when its pid is reused they answer ESRCH. The only file of lib/ that reads a clock, and only the
 * CPU clock of another process. Source: proc(5), clock_getcpuclockid(3). Measured with kept
 * descriptors: clock 190 ns, stat 1,200, statm 500, status 3,000; the first three 9,000 when stat
 * and statm are opened and closed for it.
 *
 * While its CPU clock stands still a process does not run, and what does not run does not change
 * its files, but for memory that is taken from it: hence a heartbeat. It backs off: the readings of
 * a process that does not run are 1, 2, 4 and then 8 heartbeats apart (at most 10 s, unless the
 * heartbeat is longer), until it runs or one of them finds its memory changed. Of one whose CPU time is
 * told they are one heartbeat apart and then 64 (at most 60 s), with a pause between that is different for
 * each; if it runs and no change is told, up to 8. Of one that is open they ask for its memory alone.
 *
 * One that ran is read when it has used unread_max_ns of CPU time since it was last read, when that
 * reading found its memory changed, or when something was left unread for a time that the caller
 * names. Until then only its CPU time is new. Closed readers defer only while their CPU time is told.
 *
 * A reader is open (it keeps descriptors) or closed (it has none). What is due to be read of a
 * closed one is opened for that and closed again, which takes four times as long; a look costs the
 * same. The pid of a closed one may come to belong to another process: what its CPU clock says is
 * believed only when its files were read after that and have its start time.
 *
 * 	        process_reader_close              next process_reader_look
 * 	open -----------------> open, to be closed -----------> closed
 * 	  ^                                                        |
 * 	  +-- next process_reader_look -- closed, files on offer <-+ process_reader_open
 *
 * High-water marks and descriptor counts of closed ones are read once per heartbeat at most, descriptor
 * counts of one that runs and of which no change is told with all else, unless they are needed
 * (process_reader_need).
 */
#ifndef SPIKEWATCH_LIB_SOURCE_PROCESS_H
#define SPIKEWATCH_LIB_SOURCE_PROCESS_H

#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <stdatomic.h>
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

/*
 * In the caller's storage, and small: the owner keeps it in the cache line it looks at every time.
 */
struct process {
	clockid_t clock;       /* CPU clock; 0: not to be asked */
	int fd[PROCESS_FILES]; /* -1: unavailable or not wanted */
};

/* See source.h for their meaning; here 0 is no default. */
struct process_reader_options {
	uint64_t heartbeat_ns;
	uint64_t peak_interval_ns; /* UINT64_MAX: never */
	uint64_t fds_interval_ns;  /* 0: never */
	uint64_t unread_max_ns;    /* of CPU time; 0: one that ran is read at once */
	bool reset_peaks;
	void (*reset_peak)(int fd);
	bool read_always;
};

/* The result of a look. */
enum process_reader_due {
	PROCESS_READER_NOTHING,
	PROCESS_READER_CLOCK, /* it ran: process_reader_take_clock; reading the files is deferred */
	PROCESS_READER_FILES, /* process_reader_read is due, which takes the clock too */
};

/* Bits of pending and needed; of asked: if both, the files are taken over and then all are closed. */
enum { PROCESS_READER_PEAK = 1, PROCESS_READER_FDS = 2 };
enum { PROCESS_READER_ADOPT = 1, PROCESS_READER_CLOSE = 2 };

/* Which process it is. */
struct process_reader_target {
	int procfd; /* must outlive the reader */
	int32_t pid;
	uint64_t start_ticks; /* 0: whichever has the pid now */
	bool with_cpu_clock;
	bool closed; /* at first */
};

/*
 * In the caller's storage. The fields up to asked are all that a look at an idle process touches.
 */
struct process_reader {
	struct process process;
	uint64_t cpu_ns; /* what the clock said */
	uint64_t due_ns; /* when to read although nothing moved */
	bool ran;        /* at the last look */
	bool settled;
	bool unread_same; /* unread, and no change was told since it was read */
	bool unread;      /* it ran, and was not read since with the clock standing still: due_ns says until when */
	uint8_t pending;
	uint8_t lazy;          /* what of pending became so in runs without a change: the next reading will do */
	_Atomic uint8_t asked; /* bits: files on offer, or to be given up */
	uint8_t doublings;     /* of the heartbeat; of one that is told: readings in a row with nothing new */
	uint16_t spread;       /* of the heartbeats */
	bool moving;           /* the last reading found its memory changed */
	bool is_told;          /* at the last look: its CPU time */
	bool is_known_alive;   /* the same, and that it has not ended */
	bool by_id;            /* the last reading did not ask whose file it was */
	bool was_told;         /* cpu_ns was told: what the clock says may be less */
	bool same_pages;       /* the last reading found no page come since the high-water mark was read */
	uint64_t wait_ns;      /* for a CPU: of all that was told */
	uint64_t told_wait_ns; /* the last that was */
	uint64_t past_cpu_ns;  /* what process_reader_take_past came to */
	uint64_t defer_ns;     /* as of the last look that saw it run */
	uint64_t read_cpu_ns;  /* cpu_ns at the last reading */
	uint64_t read_changes; /* what was told before the last reading; UINT64_MAX: nothing */
	uint64_t told_changes; /* at the last look; UINT64_MAX: nothing, or that it runs */
	uint64_t read_ns, read_reclaimed; /* as of the last reading */
	uint64_t told_reclaimed;          /* at the last look; UINT64_MAX: it is not known */
	uint64_t peak_faults;             /* at the last reading of the high-water mark */
	uint64_t peak_memory;
	uint64_t heartbeat_ns;
	uint64_t peak_due_ns;
	uint64_t fds_due_ns;
	struct process_reader_target who;
	_Atomic uint32_t runs;              /* readings after it ran */
	_Atomic bool closed;                /* as of the last look */
	_Atomic uint8_t needed;             /* bits: see process_reader_need */
	_Atomic int offered[PROCESS_FILES]; /* files to be taken over; -1: none */
};

/*
 * Opens the process and reads it a first time into *sample. Returns as source_entry_process
 * (source.h).
 */
int process_reader_init(struct process_reader *reader, const struct process_reader_target *process,
			struct sample *sample);
void process_reader_release(struct process_reader *reader);

/*
 * Once, before the first process_reader_look. spread: any number; readers with different ones have
 * their heartbeats at different times.
 */
void process_reader_start(struct process_reader *reader, const struct process_reader_options *options, uint32_t spread);

/*
 * From now on *options are in force instead of *before. What is no longer read becomes unavailable
 * in *sample; what is now read, or sooner, is due within a heartbeat. Closes nothing and opens
 * nothing. True: *sample changed.
 */
bool process_reader_retune(struct process_reader *reader, const struct process_reader_options *before,
			   const struct process_reader_options *options, mono_t now, struct sample *sample);

/*
 * Opens again what options need and process_drop may have closed; the next process_reader_look
 * takes it over, and it is read then. A closed one needs none. Any thread, one at a time. Arguments
 * and returns as source_entry_reopen (source.h).
 */
int process_reader_reopen(struct process_reader *reader, int procfd, int32_t pid, uint64_t start_ticks,
			  const struct process_reader_options *options);

/*
 * The next process_reader_look takes over the files that options need. Returns as
 * process_reader_reopen. Any thread, one at a time with that.
 */
int process_reader_open(struct process_reader *reader, const struct process_reader_options *options);

/* The next process_reader_look closes it. Any thread. */
static inline void process_reader_close(struct process_reader *reader)
{
	atomic_fetch_or_explicit(&reader->asked, PROCESS_READER_CLOSE, memory_order_relaxed);
}

/*
 * Whether it was closed at its last look, and how often it was read after it had run, modulo 2^32.
 * Any thread.
 */
static inline bool process_reader_is_closed(const struct process_reader *reader)
{
	return atomic_load_explicit(&reader->closed, memory_order_relaxed);
}

static inline uint32_t process_reader_runs(const struct process_reader *reader)
{
	return atomic_load_explicit(&reader->runs, memory_order_relaxed);
}

/* What is read at its own interval although it could be left (see above). At first nothing is. Any thread. */
static inline void process_reader_need(struct process_reader *reader, bool peak, bool fds)
{
	uint8_t needed = (uint8_t)((peak ? PROCESS_READER_PEAK : 0) | (fds ? PROCESS_READER_FDS : 0));

	atomic_store_explicit(&reader->needed, needed, memory_order_relaxed);
}

/* What is known of its CPU time without asking its clock. */
struct process_told {
	uint64_t cpu_ns;
	uint64_t wait_ns;   /* for a CPU, since it is told; may begin again */
	uint64_t changes;   /* grows when a run ends in which it got pages, or other threads */
	uint64_t reclaimed; /* grows when pages are taken from any process; UINT64_MAX: not known */
	bool runs;          /* now, and longer than what it may have changed in that time can be left unread */
	bool ended;         /* it may be gone: the clock is asked all the same, whether it is there */
};

/*
 * Looks at the clock; or does not, if told is not NULL, and believes that, but for a step back. The same
 * of the clock once anything was told. defer_ns: for how long the files may be left unread after it ran; 0: not
 * at all. Of PROCESS_READER_FILES, what the clock says is not to be believed before
 * process_reader_read. Of PROCESS_READER_CLOCK it is, but for one case: the pid came to belong to
 * another process, the clock of which is ahead of this one's by less than unread_max_ns; that is
 * found out when the files are read.
 */
enum process_reader_due process_reader_look(struct process_reader *reader, const struct process_reader_options *options,
					    mono_t now, uint64_t defer_ns, const struct process_told *told);

/* Whether this clock of a process still says so; false also where it cannot be asked. */
bool process_clock_stands(clockid_t clock, uint64_t cpu_ns);

/*
 * After PROCESS_READER_CLOCK: CPU in *sample is what the clock said; all else in it stays as of the
 * last reading.
 */
void process_reader_take_clock(struct process_reader *reader, struct sample *sample);

/*
 * What it used in a time that is past, after the last look: in *sample, and nothing else is. The next look is told
 * that, too, in cpu_ns and wait_ns, and does not step back behind it.
 */
static inline void process_reader_take_past(struct process_reader *reader, uint64_t cpu_ns, uint64_t wait_ns,
					    struct sample *sample)
{
	uint64_t before_ns = reader->past_cpu_ns > reader->cpu_ns ? reader->past_cpu_ns : reader->cpu_ns;

	reader->past_cpu_ns = before_ns + cpu_ns;
	sample_set(sample, SAMPLE_CPU, reader->past_cpu_ns);
	if (sample_has(sample, SAMPLE_CPU_WAIT))
		sample_set(sample, SAMPLE_CPU_WAIT, sample->value[SAMPLE_CPU_WAIT] + wait_ns);
}

/*
 * Reads into *sample what is due. 0; -ESRCH: gone, another process may have its pid; -errno:
 * reading stays due. Where it failed *sample is partly new (of a closed one: as it was). Of a
 * closed one up to 6 descriptors are open meanwhile.
 */
int process_reader_read(struct process_reader *reader, const struct process_reader_options *options, mono_t now,
			struct sample *sample);

#endif
