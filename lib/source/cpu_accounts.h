/*
 * cpu_accounts.h: reads what the program in the kernel adds up (cpu_accounts_layout.h): which
 * processes and watched cgroups ran since the last tick, and how much CPU time each has used until now,
 * with the runs that go on. Without a system call, without a lock.
 *
 * Accounts have numbers below `capacity`; that of a cgroup is its own, added to that.
 */
#ifndef SPIKEWATCH_LIB_SOURCE_CPU_ACCOUNTS_H
#define SPIKEWATCH_LIB_SOURCE_CPU_ACCOUNTS_H

#include "lib/base/base.h"
#include "lib/source/cpu_accounts_layout.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A watched cgroup: what is not in its cells. */
struct cpu_group {
	uint64_t base_ns;    /* to be added to its cells and those of all below it; modulo 2^64 */
	uint32_t parent;     /* the nearest above it; CPU_ACCOUNT_NONE */
	uint32_t generation; /* of the table of watched cgroups: since then it is this one */
	uint32_t lost;       /* it is not to be believed */
};

/*
 * The memory, of the one who had it mapped; it outlives its readers. What the program writes may come later than
 * a reader: until it is on for the first time slots, accounts, logs, runs, words and cells may be NULL.
 */
struct cpu_accounts {
	const volatile struct cpu_slot *slots;
	const volatile struct cpu_account *accounts;
	const volatile uint64_t *logs;
	const volatile struct cpu_run_log *runs;
	volatile struct cpu_accounts_words *words;
	uint64_t *base_ns;      /* of each account: what its process had used before; written before it is in use */
	_Atomic uint32_t *pids; /* the same: of its process; 0: not in use. The generation changes after it */
	uint32_t cpus, capacity;
	uint32_t log_length;                   /* of each CPU; a power of two */
	const volatile struct cpu_cell *cells; /* group_capacity of each CPU */
	struct cpu_group *groups;              /* written while group_version is odd */
	_Atomic uint32_t group_version;
	_Atomic uint32_t group_count; /* the first ones: those that ever were in use */
	uint32_t group_capacity;      /* 0: cgroups have no accounts */
	_Atomic bool on;              /* what is read is to be believed */
	_Atomic uint64_t reclaimed;   /* grows when the kernel takes pages from any process; UINT64_MAX: not known */
};

struct cpu_accounts_reader;

/* The only reader of the logs; one block of memory. 0 or -ENOMEM. */
int cpu_accounts_reader_new(const struct cpu_accounts *accounts, struct cpu_accounts_reader **ret);
/* NULL is fine. */
void cpu_accounts_reader_free(struct cpu_accounts_reader *reader);
CLEANUP(cpu_accounts_reader, free);

/*
 * Of each account that changed since the last call, or in which something runs now: changed(ctx,
 * account), perhaps more than once. False: some may have been left out, because a log was too short.
 */
bool cpu_accounts_reader_begin(struct cpu_accounts_reader *reader, void (*changed)(void *ctx, uint32_t account),
			       void *ctx);

/* What a process has used, or a watched cgroup with all that is below it: of that cpu_ns, unknown and lost alone. */
struct cpu_accounts_use {
	uint64_t cpu_ns;   /* with the runs that were found by the last begin and go on, as of now */
	uint64_t going_ns; /* of it, those runs */
	uint64_t wait_ns;  /* before runs that have ended */
	uint64_t changes;  /* page faults, threads that came or went: of runs that have ended */
	bool runs;         /* there may be more of it, in a run that goes on */
	bool ended;        /* its last thread has begun to end; it may be gone */
	bool lost;         /* a run is missing: cpu_ns is not to be believed */
	bool unknown;      /* cpu_ns is not to be used: ask later, unless it is lost */
};

/*
 * cpu_ns may be less than it was before: a run that goes on counts as the time since it began, and
 * when it ends as the scheduler counts it, which takes out interrupts.
 */
void cpu_accounts_reader_use(struct cpu_accounts_reader *reader, uint32_t account, mono_t now,
			     struct cpu_accounts_use *ret);

/*
 * What ran at which time, afterwards, while runs_wanted is set, which costs some ns at each switch: of the last runs of
 * each CPU.
 *
 *     begin, use --> ran_until --> ran_until ... --> begin, use
 */

/* A run, or a part of one, of a process or of a watched cgroup. */
struct cpu_accounts_part {
	uint32_t account;
	mono_t from, to;
	uint64_t wait_ns; /* before the run; in its last part, else 0 */
};

/*
 * Of each run before `until`, and not before the last `until` since begin, nor ended before that: ran(ctx, part). Of
 * one that went on in the first call after begin the time counts. until: not later than that call. False: some was
 * forgotten, and some of what was told may be wrong; until the next begin it is no use to go on.
 */
bool cpu_accounts_reader_ran_until(struct cpu_accounts_reader *reader, mono_t until,
				   void (*ran)(void *ctx, const struct cpu_accounts_part *part), void *ctx);

/* A slot is written within a microsecond; an interrupt, or one of the host, may come between. */
#define CPU_SLOT_TRIES 1000

/* What runs on a CPU, as one state. False: it is being written, time after time; *ret may be of two states then. */
static inline bool cpu_accounts_slot(const struct cpu_accounts *accounts, uint32_t cpu, struct cpu_slot *ret)
{
	const volatile struct cpu_slot *slot = &accounts->slots[cpu];

	for (int i = 0; i < CPU_SLOT_TRIES; i++) {
		uint64_t sequence = __atomic_load_n(&slot->sequence, __ATOMIC_ACQUIRE);

		*ret = *slot;
		if (sequence & 1)
			continue;
		atomic_thread_fence(memory_order_acquire);
		if (__atomic_load_n(&slot->sequence, __ATOMIC_RELAXED) == sequence)
			return true;
	}
	return false;
}

#endif
