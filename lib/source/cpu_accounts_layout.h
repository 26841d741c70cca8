/*
 * cpu_accounts_layout.h: memory that a program in the kernel (daemon/engine/kernel/switches.bpf.c) and
 * its reader (cpu_accounts.h) share. Self-contained, because it is compiled for both.
 *
 * Native byte order. The writer is the kernel, but for struct cpu_accounts_words, which the reader
 * writes. What one CPU writes another one sees in that order: so it is on x86-64 alone.
 */
#ifndef SPIKEWATCH_LIB_SOURCE_CPU_ACCOUNTS_LAYOUT_H
#define SPIKEWATCH_LIB_SOURCE_CPU_ACCOUNTS_LAYOUT_H

#include <stdint.h>

/* Of a slot: what runs there is not watched. */
#define CPU_ACCOUNT_NONE UINT32_MAX

/* Of a slot: no switch was seen there yet, so when the task that runs began to is not known. */
#define CPU_SLOT_UNKNOWN UINT32_MAX

/* One watched process: what its threads used in runs that have ended. A cache line. */
struct cpu_account {
	uint64_t run_ns;    /* as the scheduler counts it */
	uint64_t wait_ns;   /* runnable, but not running: before those runs */
	uint64_t runs;      /* that have ended */
	uint32_t epoch;     /* in which it was last put into a log */
	uint16_t exited;    /* its last thread has begun to end */
	uint16_t lost;      /* a run was not counted: the switch at its end was not seen */
	uint64_t ending_ns; /* of run_ns, runs in which a thread was ending: the process's clock may lack them */
	uint64_t changes;   /* page faults of runs that have ended, threads that began or began to end */
	uint64_t since_ns;  /* the reader's: CLOCK_MONOTONIC when its base was known; UINT64_MAX: it is not yet */
	uint64_t unused;
};

/*
 * What runs on one CPU, and since when. Odd `sequence`: being written, and the account of what ran
 * before is, too: it grows by two at each switch. Two cache lines: the second is of the run's cgroup.
 */
struct cpu_slot {
	uint64_t sequence;
	uint64_t since_ns; /* CLOCK_MONOTONIC */
	uint64_t run_ns;   /* of the thread, when the run began */
	uint64_t wait_ns;  /* the same: all its waiting before the one that ended then */
	uint32_t account;  /* CPU_ACCOUNT_NONE */
	uint32_t tid;      /* 0: idle; CPU_SLOT_UNKNOWN */
	uint32_t tgid;
	uint32_t generation; /* of the table of watched processes, as of since_ns */
	uint64_t faults;     /* of the thread, when the run began */
	uint64_t logged;     /* in all, into the log of this CPU */

	uint64_t cgroup;           /* that of the last thread that was not idle: an address in the kernel; 0 */
	uint32_t group;            /* the same: of the watched cgroup; CPU_ACCOUNT_NONE */
	uint32_t group_generation; /* of the table of watched cgroups, as of then */
	/* Moved to another cgroup in the run of that sequence. By the CPU that moved it. */
	uint64_t moved_sequence;
	uint64_t moved_first_ns, moved_last_ns; /* in between it was in others, and that is counted already */
	uint32_t moved_from, moved_to;          /* watched cgroups */
	/* The writer's: the scheduler's clock when CLOCK_MONOTONIC was last asked, and how far it was behind. */
	uint64_t clock_ns, behind_ns;
};

/*
 * Of one watched cgroup on one CPU: what ran there in it, or below it and in no other watched cgroup that is
 * nearer. Those of a CPU lie together, so no two CPUs write to a line.
 */
struct cpu_cell {
	uint64_t run_ns;
	uint32_t epoch; /* in which it was last put into a log */
	uint32_t unused;
};

/* A run that has ended. */
struct cpu_run {
	uint64_t since_ns;       /* CLOCK_MONOTONIC */
	uint64_t run_ns;         /* as the scheduler counts it */
	uint64_t wait_ns;        /* before it */
	uint32_t account, group; /* watched; CPU_ACCOUNT_NONE */
};

/* A power of two. */
#define CPU_RUNS_LENGTH 1024

/* The last runs of one CPU that are of anything watched, as long as runs_wanted is set. */
struct cpu_run_log {
	uint64_t logged; /* in all; the last one is at (logged - 1) % CPU_RUNS_LENGTH */
	uint64_t timers; /* that were seen to expire */
	uint64_t unused[6];
	struct cpu_run runs[CPU_RUNS_LENGTH];
};

/* Processes of which a CPU remembers the account, by the low bits of their id. A power of two. */
#define CPU_RECENT_LENGTH 64

_Static_assert(sizeof(struct cpu_account) == 64 && sizeof(struct cpu_slot) == 128, "whole cache lines");

/*
 * The reader's. An account gets into the log of a CPU at its first change in an epoch. So does a watched cgroup, with
 * the number of accounts added to its own.
 */
struct cpu_accounts_words {
	uint32_t epoch;       /* from 1 on */
	uint32_t generation;  /* added to after each change of the table of watched processes; by the kernel, too */
	uint32_t groups;      /* cgroups that are watched */
	uint32_t runs_wanted; /* 0: runs are not logged, and bursts not told of */
	uint32_t group_generation; /* added to after each change of their table, and when a cgroup is made */
};

#endif
