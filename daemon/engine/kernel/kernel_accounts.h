/*
 * kernel_accounts.h: has the scheduler add up the CPU time of watched processes, by a BPF program at
 * each switch (switches.bpf.c), and keeps the accounts that the sampler reads (lib/source/cpu_accounts.h).
 * The same program tells which processes begin and end, and what they used in all.
 *
 * One thread, that of discovery, but for kernel_accounts_state. Nothing is pinned: the program is
 * gone when this process is, however it ends.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_KERNEL_KERNEL_ACCOUNTS_H
#define SPIKEWATCH_DAEMON_ENGINE_KERNEL_KERNEL_ACCOUNTS_H

#include "lib/base/base.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/proc/procfs.h"
#include "lib/source/cpu_accounts.h"

#include <stdbool.h>
#include <stdint.h>

#define KERNEL_ACCOUNTS_REASON_MAX 256

struct kernel_accounts;

struct kernel_accounts_options {
	int procfd;                         /* the /proc of this pid namespace; must outlive it */
	uint32_t capacity;                  /* processes that can be watched */
	uint32_t groups;                    /* cgroups, the same */
	const struct cgroup_mounts *mounts; /* NULL: no cgroups; must outlive it */
	bool at_any_cost; /* also when there are so many switches that reading clocks would cost less */
	bool waits;       /* for what may pass, as another one that has it: opens, and is off until then */
};

/*
 * Loads and attaches the program. Moves the calling thread to each CPU for a moment, so that what runs
 * there is known. 0; 1: it is off for now, and kernel_accounts_check tries again; -errno. reason, a
 * sentence without full stop, says why.
 */
int kernel_accounts_open(const struct kernel_accounts_options *options, struct kernel_accounts **ret,
			 char reason[KERNEL_ACCOUNTS_REASON_MAX]);
/* The readers must be gone. NULL is fine. */
void kernel_accounts_close(struct kernel_accounts *accounts);

/* What its readers need. Valid until it is closed; what is the kernel's is NULL until it is on for the first time. */
const struct cpu_accounts *kernel_accounts_shared(const struct kernel_accounts *accounts);

/* A process, or a cgroup with all that is below it: that of v1's cpuacct where there is one, else that of v2. */
struct kernel_accounts_watched {
	int32_t pid;
	uint64_t start_ticks; /* as in stat; 0: whatever has the id */
	const char *cgroup;   /* its path; NULL: it is a process */
};

/*
 * It has an account from now on, in which is all that it has used so far and will use. The same one may be watched
 * several times and has one account. 0; -ENOSPC: all are in use; -EAGAIN: it did not stand still for long enough to
 * be counted exactly, try again later; -ENODEV: they are off; -ENOTSUP: the hierarchy of the cgroup does not count, or
 * it is v2's root; -errno.
 */
int kernel_accounts_watch(struct kernel_accounts *accounts, const struct kernel_accounts_watched *what,
			  uint32_t *ret_account);
/* Once for each watch. The account is not used again within a second. */
void kernel_accounts_unwatch(struct kernel_accounts *accounts, uint32_t account);

/*
 * About once a second: compares accounts of processes that stand still with their clocks, and what
 * switches cost with what reading clocks every interval_ns would. Turns accounts off and on again by
 * that, and logs it. An account that a hidden switch made wrong says `lost` from then on. While they
 * are off nothing is to be watched; then it may take 0.1 s, and watch and unwatch may be called meanwhile.
 */
void kernel_accounts_check(struct kernel_accounts *accounts, mono_t now, uint64_t interval_ns);

/*
 * From now on, and while they are on, it is told which processes fork, execute, change name or cgroup, and end,
 * in the order of time. ret_fd: for poll(2), readable when there is something to read; of the accounts; NULL: not
 * any more, and what was not read is dropped. 0; -ENODEV: they are off.
 */
int kernel_accounts_listen(struct kernel_accounts *accounts, int *ret_fd);

/*
 * Reads what has come, into batch, of which there must be 2 at least; never blocks. The end of a process is
 * two events, its EXIT and its TOTALS, which are exact, come once it has run for the last time, and now and
 * then twice. Their number. *ret_lost: there was no room for some, at any time before; *ret_more: there may
 * be more to read.
 */
size_t kernel_accounts_read(struct kernel_accounts *accounts, struct procevent *batch, size_t cap, bool *ret_lost,
			    bool *ret_more);

struct kernel_accounts_state {
	bool on;
	char reason[KERNEL_ACCOUNTS_REASON_MAX]; /* why it is off; "" */
	uint64_t switches_per_s;                 /* on all CPUs, while it is on */
	uint32_t watched, capacity;
	uint64_t refused;                /* watches for which there was no account */
	uint64_t missed;                 /* runs that could not be counted, because their beginning was not seen */
	uint64_t losses;                 /* accounts that have lost such a run, and begin anew */
	uint64_t compared;               /* with the clock */
	uint64_t corrected;              /* of them were not equal, since a switch was hidden, and begin anew too */
	uint64_t detached;               /* how often it was turned off */
	uint32_t groups, group_capacity; /* cgroups that are watched */
	uint64_t groups_refused;         /* for want of an account */
	uint64_t groups_compared;        /* with their files */
	uint64_t groups_corrected;       /* of them were not equal, since something was moved or a switch hidden */
	uint64_t groups_given_up;        /* the same, for no such reason: files are read */
	uint64_t lost;                   /* events for which there was no room */
};

/* Any thread. */
void kernel_accounts_state(struct kernel_accounts *accounts, struct kernel_accounts_state *ret);

#endif
