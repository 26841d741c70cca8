/*
 * kernel_accounts.c: loading, the table of accounts, and the watch over both.
 *
 * The seam. An account counts runs that end from the moment its process is in the kernel's table, each
 * in full, also one that had begun before. What the process used earlier is the base:
 *
 *	base  =  clock  -  what is in the clock of runs that go on  -  what the account has by then
 *
 * The clock of a process sums up its threads as of their last tick or switch. Of a thread that runs the
 * slot says what it had when the run began, and its schedstat what it has in the clock now. All of it is
 * read until it is of one state: the clock, the account and the slots read the same before and after.
 * Ticks and switches are milliseconds apart or tens of microseconds, reading takes ten; a process that
 * moves too fast for that keeps its clock, and is tried again later.
 *
 * The comparison. While nothing of a process runs, its clock and its account are equal, but for threads
 * that ended: the kernel adds up what they had when they were released, the account also what they ran
 * after that. Runs in which a thread was ending are counted apart (`ending_ns`), and bound that. Interrupts and
 * what the host took are in neither. So a difference has one cause that is not an error: a switch that was
 * hidden from tracing (switches.bpf.c). Where such were seen the account is given up like one that says itself
 * that it lost a run, and the process gets a new one; only if that happens often is all of it not to be
 * believed. Where none were seen one difference suffices.
 *
 * Cgroups. The seam is the same: a cgroup's file has what its running threads have in their schedstat, so
 *
 *	base  =  file  -  what is in the file of runs that go on  -  what is in its cells and those below it by then
 *
 * and the comparison, too, which need not wait for rest. Of a busy cgroup the two readings are seldom of one state:
 * the pair that lies closest together is taken if that is within a millisecond, and a comparison mends it. A file
 * gives what runs while it is moved to the cgroup that it comes to, since the last tick, the cells at the moment: so
 * after a move, and after a hidden switch, the file is right, and the base is corrected. Any other difference gives
 * the account up. Cells are never set back: an account that is used again begins with what is in them, and what
 * was watched by it stays part of the cgroups above, at first as it is and then in their bases.
 *
 * Adoption is by process, in pieces of the caller's, not by an iterator over the kernel's tasks (iter/task): the
 * clock of a process has what its threads that ended used, which is in no task any more, so an iterator
 * would need the sums of its signal_struct in the same state, without the lock that makes them one; and
 * it cannot be repeated without counting twice what came into the table in between. By process it is
 * one lookup, one clock and as many slots as there are CPUs: 20 us.
 *
 * Three states:
 *
 *	waiting  --a try loads and attaches it-->  on  --costs more, or is wrong-->  off  --it is cheap again-->  on
 *	    '-----a try fails for good------>  waiting, without tries
 *
 * Waiting is off without a program: the tables of this side are there, for readers that are made before it comes,
 * and nothing of the kernel's side is mapped. What is a target when it comes on gets its account by the same
 * seam as after it was off.
 */
#include "daemon/engine/kernel/kernel_accounts.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/perf_events.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/kernel/kernel_event.h"
#include "lib/cgroup/cgroup.h"

/* What the Makefile makes of switches.bpf.c, or SPIKEWATCH_WITHOUT_SWITCHES. */
#include "switches.skel.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <unistd.h>

#ifdef SPIKEWATCH_WITHOUT_SWITCHES

int kernel_accounts_open(const struct kernel_accounts_options *options, struct kernel_accounts **ret,
			 char reason[KERNEL_ACCOUNTS_REASON_MAX])
{
	(void)options;
	(void)ret;
	snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX, "this build is without it (%s)", SPIKEWATCH_WITHOUT_SWITCHES);
	return -ENOSYS;
}

void kernel_accounts_close(struct kernel_accounts *accounts)
{
	(void)accounts;
}

const struct cpu_accounts *kernel_accounts_shared(const struct kernel_accounts *accounts)
{
	(void)accounts;
	return NULL;
}

int kernel_accounts_watch(struct kernel_accounts *accounts, const struct kernel_accounts_watched *what,
			  uint32_t *ret_account)
{
	(void)accounts;
	(void)what;
	(void)ret_account;
	return -ENODEV;
}

void kernel_accounts_unwatch(struct kernel_accounts *accounts, uint32_t account)
{
	(void)accounts;
	(void)account;
}

int kernel_accounts_listen(struct kernel_accounts *accounts, int *ret_fd)
{
	(void)accounts;
	(void)ret_fd;
	return -ENODEV;
}

size_t kernel_accounts_read(struct kernel_accounts *accounts, struct procevent *batch, size_t cap, bool *ret_lost,
			    bool *ret_more)
{
	(void)accounts;
	(void)batch;
	(void)cap;
	*ret_lost = *ret_more = false;
	return 0;
}

void kernel_accounts_check(struct kernel_accounts *accounts, mono_t now, uint64_t interval_ns)
{
	(void)accounts;
	(void)now;
	(void)interval_ns;
}

void kernel_accounts_state(struct kernel_accounts *accounts, struct kernel_accounts_state *ret)
{
	(void)accounts;
	*ret = (struct kernel_accounts_state){ .on = false };
}

#else

#include <bpf/bpf.h>

/* A program that still ran when an account was given up has ended long before. */
#define REUSE_NS NS_PER_S

/* Of the base and of a comparison: some 15 us each. */
#define TRIES 20

/* As many processes can run on one CPU between two ticks without all being looked at. A power of two. */
#define LOG_LENGTH 4096

/* Of events: the ends of two thousand processes and their beginnings. A power of two. */
#define RING_BYTES (256u << 10)

/*
 * What a switch costs with the program, what a look at a clock costs without it (cold caches), and how
 * many switches a second of each CPU are always fine: half a percent of it.
 */
#define SWITCH_NS 200
#define LOOK_NS 900
#define SWITCHES_FREE 25000

/* So many checks in a row turn it off, and on again. */
#define COSTLY_CHECKS 5
#define CHEAP_CHECKS 30

/*
 * Where switches are hidden, differences make doubt, and comparisons without one remove it. Some of a hundred
 * thousand switches are hidden where it was seen, and one in twenty of these loses a run without notice.
 */
#define DOUBT_OF_DIFFERENCE 16
#define DOUBT_MAX 64

/*
 * A check tries so many that have run, and is satisfied with one; it looks for them among so many accounts,
 * and then takes the one of the last time. The first checks take this many, of all accounts.
 */
#define COMPARED_MAX 8
#define COMPARED_LOOKS 1024
#define COMPARED_WHERE_HIDDEN 16
#define PROOF_CHECKS 5
#define PROOF_COMPARED 64
/*
 * If no switch was hidden in so many checks, some 30 s, none will be. Then the program is not asked at timers for so
 * many checks where there are more of them in a second of a CPU: each costs up to 0.2 us, in all a 400th of it.
 */
#define CHECKS_WITH_TIMERS 30
#define CHECKS_WITHOUT_TIMERS 600
#define TIMERS_MAX 12500

/*
 * An abstract socket: the process that has this name uses the accounts. One on a machine is enough.
 * Any user may take the name: it counts if root has it, or the user that asks.
 */
static const char *owner_name = "spikewatch-cpu-accounts";

/*
 * While another one has the name it is asked for so often: three system calls. What is given up after the name
 * was had costs the time of a load, tens of milliseconds.
 */
#define TRY_NAME_NS (10 * NS_PER_S)
#define TRY_LOAD_NS (60 * NS_PER_S)

/* User's side of an account. */
struct seat {
	uint64_t start_ticks;
	uint32_t watches;
	mono_t freed;  /* given back: when */
	uint32_t next; /* given back: the one that is reused after it */
};

/* The same of a watched cgroup. */
struct group_seat {
	char *path; /* NULL: it never was in use */
	uint64_t id;
	uint32_t watches;
	mono_t freed;
	uint64_t moves;     /* as of the last comparison */
	uint64_t within_ns; /* the base is right, before the first comparison */
};

/* A base may be wrong by so much at first; and what a file may have more or less for each move, a scheduler tick. */
#define SEAM_NS NS_PER_MS
#define MOVE_NS (10 * NS_PER_MS)
/* The same where switches are hidden: as long as a run lasts where something else wants to. */
#define HIDDEN_NS (100 * NS_PER_MS)
/* v2 says microseconds. */
#define FILE_GRAIN_NS NS_PER_US

/*
 * Accounts are mapped as they are needed, so many at a time: the capacity is that of a machine with ten times as
 * many processes.
 */
#define PIECE_ACCOUNTS 1024

struct kernel_accounts {
	struct kernel_accounts_options options;
	struct switches *skeleton;
	struct cpu_accounts shared;
	void *mapped[5];
	size_t mapped_bytes[5];
	struct seat *seats;
	uint32_t used;                  /* accounts that ever were in use: the first ones */
	uint32_t ready;                 /* accounts that are mapped */
	uint32_t free_first, free_last; /* of those that were given back; CPU_ACCOUNT_NONE: none */
	uint32_t compared_next, compared_last;
	int owner; /* a socket that has the name */
	struct bpf_link *links[8];
	struct group_seat *group_seats;
	const char *group_root; /* of the hierarchy that counts; NULL: none */
	bool by_cpuacct;        /* it is v1's */
	uint32_t group_next;    /* of comparisons */
	struct ring_buffer *ring;
	struct reading *reading;   /* while it is read */
	uint64_t lost;             /* events, as of the last reading */
	uint64_t switches, others; /* as of the last check: ours; of the whole machine */
	mono_t checked;
	unsigned costly, cheap; /* checks in a row */
	unsigned checks;        /* since it was attached */
	unsigned timerless;     /* checks that are to come without timers */
	uint64_t timers;        /* of all CPUs, at the last check */
	uint32_t worth;         /* processes that were watched while it was on */
	unsigned doubt;         /* see DOUBT_MAX */
	bool wrong;             /* it is not to be believed: never again */
	bool loaded;            /* false: it waits, without a program */
	int waits_for;          /* why the last try failed; one that may pass is tried again */
	mono_t tried;
	pthread_mutex_t lock;
	struct kernel_accounts_state state; /* under the lock */
};

/* ---- one process ---- */

static struct cpu_account *account_at(const struct kernel_accounts *accounts, uint32_t account)
{
	return (struct cpu_account *)(uintptr_t)&accounts->shared.accounts[account];
}

static void next_generation(struct kernel_accounts *accounts)
{
	__atomic_fetch_add(&accounts->skeleton->bss->words.generation, 1, __ATOMIC_SEQ_CST);
}

/* What the clock of the process has of this thread. 0; -errno. */
static int thread_cpu(const struct kernel_accounts *accounts, uint32_t pid, uint32_t tid, uint64_t *ret_ns)
{
	char path[64], text[96];

	snprintf(path, sizeof(path), "%u/task/%u/schedstat", pid, tid);

	ssize_t len = proc_read_file(accounts->options.procfd, 0, path, text, sizeof(text));
	if (len <= 0)
		return len < 0 ? (int)len : -ESRCH;
	*ret_ns = strtoull(text, NULL, 10);
	return 0;
}

/* What of the clock is of runs that go on, and a number that changes when one begins or ends. */
static int runs_in_clock(const struct kernel_accounts *accounts, uint32_t pid, uint64_t *ret_ns, uint64_t *ret_version)
{
	struct cpu_slot slot;
	uint64_t ns = 0;

	*ret_ns = *ret_version = 0;
	for (uint32_t cpu = 0; cpu < accounts->shared.cpus; cpu++) {
		if (!cpu_accounts_slot(&accounts->shared, cpu, &slot))
			return -EAGAIN;
		if (slot.tgid != pid || slot.tid == CPU_SLOT_UNKNOWN)
			continue;
		if (thread_cpu(accounts, pid, slot.tid, &ns) < 0 || ns < slot.run_ns)
			return -EAGAIN;
		*ret_ns += ns - slot.run_ns;
		*ret_version += slot.sequence * (cpu + 1);
	}
	return 0;
}

/* What the process had used by runs that have ended, and what the account has of it, in one state. */
struct settled {
	uint64_t clock_ns, account_ns;
	bool still; /* nothing of it runs */
};

/* 0; -ESRCH; -EAGAIN. */
static int settle(const struct kernel_accounts *accounts, uint32_t account, uint32_t pid, struct settled *ret)
{
	const volatile uint64_t *counted = &accounts->shared.accounts[account].run_ns;
	clockid_t clock = real_clock_of((int32_t)pid);
	uint64_t running_ns, again_ns, version, version_again;

	for (int i = 0; i < TRIES; i++) {
		uint64_t account_ns = __atomic_load_n(counted, __ATOMIC_SEQ_CST);
		uint64_t clock_ns = real_clock_cpu_of(clock);

		if (runs_in_clock(accounts, pid, &running_ns, &version) < 0)
			continue;
		if (real_clock_cpu_of(clock) != clock_ns ||
		    runs_in_clock(accounts, pid, &again_ns, &version_again) < 0 || again_ns != running_ns ||
		    version_again != version || __atomic_load_n(counted, __ATOMIC_SEQ_CST) != account_ns ||
		    running_ns > clock_ns)
			continue;
		*ret = (struct settled){ clock_ns - running_ns, account_ns, version == 0 };
		return 0;
	}
	return -EAGAIN;
}

/* ---- the table ---- */

/* The next piece, where there is room for all. */
static int map_piece(struct kernel_accounts *accounts)
{
	size_t from = accounts->ready * sizeof(struct cpu_account), bytes = accounts->mapped_bytes[0] - from;

	if (bytes > PIECE_ACCOUNTS * sizeof(struct cpu_account))
		bytes = PIECE_ACCOUNTS * sizeof(struct cpu_account);
	if (mmap((char *)accounts->mapped[0] + from, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 bpf_map__fd(accounts->skeleton->maps.accounts), (off_t)from) == MAP_FAILED)
		return -errno;
	accounts->ready += PIECE_ACCOUNTS;
	return 0;
}

/* One that was given back long enough ago, or one that never was in use. */
static uint32_t take_free(struct kernel_accounts *accounts)
{
	uint32_t account = accounts->free_first;
	struct clock clock = real_clock();

	if (account != CPU_ACCOUNT_NONE &&
	    mono_diff(clock_mono(&clock), accounts->seats[account].freed) >= (int64_t)REUSE_NS) {
		accounts->free_first = accounts->seats[account].next;
		if (accounts->free_first == CPU_ACCOUNT_NONE)
			accounts->free_last = CPU_ACCOUNT_NONE;
		return account;
	}
	if (accounts->used == accounts->options.capacity ||
	    (accounts->used == accounts->ready && map_piece(accounts) < 0))
		return CPU_ACCOUNT_NONE;
	return accounts->used++;
}

static void give_free(struct kernel_accounts *accounts, uint32_t account)
{
	struct clock clock = real_clock();
	struct seat *seat = &accounts->seats[account];

	seat->freed = clock_mono(&clock);
	seat->next = CPU_ACCOUNT_NONE;
	if (accounts->free_last == CPU_ACCOUNT_NONE)
		accounts->free_first = account;
	else
		accounts->seats[accounts->free_last].next = account;
	accounts->free_last = account;
}

/* The kernel takes a process out of the table when another one has its id. */
static bool is_entered(const struct kernel_accounts *accounts, uint32_t account, uint32_t pid)
{
	uint32_t found;

	return bpf_map_lookup_elem(bpf_map__fd(accounts->skeleton->maps.watched), &pid, &found) == 0 &&
	       found == account;
}

/* The process is in the kernel's table no more. */
static void leave(struct kernel_accounts *accounts, uint32_t account)
{
	uint32_t pid = atomic_load(&accounts->shared.pids[account]);

	if (pid == 0)
		return;
	if (is_entered(accounts, account, pid))
		bpf_map_delete_elem(bpf_map__fd(accounts->skeleton->maps.watched), &pid);
	atomic_store(&accounts->shared.pids[account], 0);
	next_generation(accounts);
}

static void count(struct kernel_accounts *accounts, uint64_t *counter)
{
	pthread_mutex_lock(&accounts->lock);
	++*counter;
	pthread_mutex_unlock(&accounts->lock);
}

static void count_watched(struct kernel_accounts *accounts, int by)
{
	pthread_mutex_lock(&accounts->lock);
	accounts->state.watched += (uint32_t)by;
	pthread_mutex_unlock(&accounts->lock);
}

/*
 * Of the process, if it is watched. One that had its id before is not, and start times are of ten
 * milliseconds; nor is an account that has lost a run.
 */
static uint32_t find(struct kernel_accounts *accounts, uint32_t pid, uint64_t start_ticks)
{
	for (uint32_t i = 0; i < accounts->used; i++) {
		if (atomic_load_explicit(&accounts->shared.pids[i], memory_order_relaxed) != pid)
			continue;
		if (accounts->seats[i].start_ticks == start_ticks && !accounts->shared.accounts[i].lost &&
		    !accounts->shared.accounts[i].exited)
			return i;
		leave(accounts, i);
	}
	return CPU_ACCOUNT_NONE;
}

/* The kernel has told of its end already; or it is another one by now. */
static bool has_ended(const struct kernel_accounts *accounts, uint32_t pid, uint64_t start_ticks)
{
	char text[1024];
	struct procfs_stat stat;
	ssize_t len = proc_read_file(accounts->options.procfd, (int32_t)pid, "stat", text, sizeof(text));

	return len < 0 || procfs_stat_parse(text, (size_t)len, &stat) < 0 || stat.state == 'Z' || stat.state == 'X' ||
	       (start_ticks != 0 && stat.start_ticks != start_ticks);
}

static int enter(struct kernel_accounts *accounts, uint32_t account, uint32_t pid, uint64_t start_ticks)
{
	struct clock clock = real_clock();
	struct settled settled;
	int r;

	*account_at(accounts, account) = (struct cpu_account){ .since_ns = UINT64_MAX };
	accounts->shared.base_ns[account] = 0;
	if (bpf_map_update_elem(bpf_map__fd(accounts->skeleton->maps.watched), &pid, &account, BPF_ANY) < 0)
		return -errno;
	atomic_store(&accounts->shared.pids[account], pid);
	next_generation(accounts);

	r = settle(accounts, account, pid, &settled);
	if (r < 0)
		return r;
	account_at(accounts, account)->since_ns = clock_mono(&clock).ns;
	if (has_ended(accounts, pid, start_ticks) || !is_entered(accounts, account, pid))
		return -ESRCH;
	accounts->shared.base_ns[account] = settled.clock_ns - settled.account_ns;
	return 0;
}

static int watch_process(struct kernel_accounts *accounts, int32_t pid, uint64_t start_ticks, uint32_t *ret_account)
{
	uint32_t account = find(accounts, (uint32_t)pid, start_ticks);

	if (account == CPU_ACCOUNT_NONE) {
		account = take_free(accounts);
		if (account == CPU_ACCOUNT_NONE) {
			count(accounts, &accounts->state.refused);
			return -ENOSPC;
		}

		int r = enter(accounts, account, (uint32_t)pid, start_ticks);
		if (r < 0) {
			leave(accounts, account);
			give_free(accounts, account);
			return r;
		}
		accounts->seats[account].start_ticks = start_ticks;
		count_watched(accounts, 1);
	}
	accounts->seats[account].watches++;
	*ret_account = account;
	return 0;
}

/* Each CPU has to switch once before it is known what runs there: this thread goes to those from first to end. */
static void visit_cpus(const struct kernel_accounts *accounts, uint32_t first, uint32_t end)
{
	size_t bytes = CPU_ALLOC_SIZE(accounts->shared.cpus);
	AUTO_FREE cpu_set_t *before = calloc(1, bytes), *one = calloc(1, bytes);

	if (!before || !one || sched_getaffinity(0, bytes, before) < 0)
		return;
	for (uint32_t cpu = first; cpu < end; cpu++) {
		CPU_ZERO_S(bytes, one);
		CPU_SET_S(cpu, bytes, one);
		(void)sched_setaffinity(0, bytes, one);
	}
	sched_setaffinity(0, bytes, before);
}

/* ---- cgroups ---- */

static uint32_t group_count(const struct kernel_accounts *accounts)
{
	return atomic_load_explicit(&accounts->shared.group_count, memory_order_relaxed);
}

/* Its own cells. */
static uint64_t cells_ns(const struct kernel_accounts *accounts, uint32_t group)
{
	uint64_t sum_ns = 0;

	for (uint32_t cpu = 0; cpu < accounts->shared.cpus; cpu++)
		sum_ns += __atomic_load_n(
			&accounts->shared.cells[(size_t)cpu * accounts->shared.group_capacity + group].run_ns,
			__ATOMIC_SEQ_CST);
	return sum_ns;
}

static bool is_in_group(const struct kernel_accounts *accounts, uint32_t group, uint32_t above)
{
	while (group < group_count(accounts) && group != above)
		group = accounts->shared.groups[group].parent;
	return group == above;
}

/* And of all below it. */
static uint64_t group_ns(const struct kernel_accounts *accounts, uint32_t group)
{
	uint64_t sum_ns = 0;

	for (uint32_t i = 0; i < group_count(accounts); i++)
		if (is_in_group(accounts, i, group))
			sum_ns += cells_ns(accounts, i);
	return sum_ns;
}

/* Whether path is that of top or below it. */
static bool is_path_below(const char *path, const char *top)
{
	size_t len = strcmp(top, "/") == 0 ? 0 : strlen(top);

	return strncmp(path, top, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static bool is_live(const struct kernel_accounts *accounts, uint32_t group)
{
	return group < group_count(accounts) && accounts->group_seats[group].watches > 0;
}

/* The nearest that is watched; what is not watched any more has a place in the tree for some time. */
static uint32_t live_above(const struct kernel_accounts *accounts, uint32_t group)
{
	do
		group = accounts->shared.groups[group].parent;
	while (group < group_count(accounts) && !is_live(accounts, group));
	return group;
}

/* The nearest watched cgroup in which the path is, but for one. */
static uint32_t nearest_group(const struct kernel_accounts *accounts, const char *path, uint32_t but)
{
	uint32_t nearest = CPU_ACCOUNT_NONE;
	size_t longest = 0;

	for (uint32_t i = 0; i < group_count(accounts); i++) {
		const char *top = accounts->group_seats[i].path;

		if (i == but || !is_live(accounts, i) || !is_path_below(path, top) || strlen(top) <= longest)
			continue;
		nearest = i;
		longest = strlen(top);
	}
	return nearest;
}

/* Readers see the tree and its bases as they were before or as they are after. */
static void change_tree(struct kernel_accounts *accounts)
{
	atomic_fetch_add(&accounts->shared.group_version, 1);
}

/* Of those above it, itself left out. */
static void add_to_bases_above(struct kernel_accounts *accounts, uint32_t group, uint64_t ns)
{
	struct cpu_group *groups = accounts->shared.groups;

	for (uint32_t at = groups[group].parent; at < group_count(accounts); at = groups[at].parent)
		__atomic_fetch_add(&groups[at].base_ns, ns, __ATOMIC_RELAXED);
}

/* It is no part of the tree any more. */
static void take_out_of_tree(struct kernel_accounts *accounts, uint32_t group)
{
	struct cpu_group *groups = accounts->shared.groups;

	add_to_bases_above(accounts, group, cells_ns(accounts, group));
	for (uint32_t i = 0; i < group_count(accounts); i++)
		if (groups[i].parent == group)
			__atomic_store_n(&groups[i].parent, groups[group].parent, __ATOMIC_RELAXED);
	__atomic_store_n(&groups[group].parent, CPU_ACCOUNT_NONE, __ATOMIC_RELAXED);
}

static void put_into_tree(struct kernel_accounts *accounts, uint32_t group)
{
	struct cpu_group *groups = accounts->shared.groups;
	const char *path = accounts->group_seats[group].path;
	uint32_t parent = nearest_group(accounts, path, group);

	__atomic_store_n(&groups[group].parent, parent, __ATOMIC_RELAXED);
	__atomic_store_n(&groups[group].lost, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&groups[group].generation, accounts->skeleton->bss->words.group_generation + 1,
			 __ATOMIC_RELAXED);
	add_to_bases_above(accounts, group, -cells_ns(accounts, group));
	for (uint32_t i = 0; i < group_count(accounts); i++)
		if (i != group && is_live(accounts, i) && is_path_below(accounts->group_seats[i].path, path) &&
		    live_above(accounts, i) == parent)
			__atomic_store_n(&groups[i].parent, group, __ATOMIC_RELAXED);
}

/* The time before a move may still be given to it, in a run that goes on. */
static bool is_left_by_a_run(const struct kernel_accounts *accounts, uint32_t group)
{
	for (uint32_t cpu = 0; cpu < accounts->shared.cpus; cpu++) {
		const volatile struct cpu_slot *slot = &accounts->shared.slots[cpu];

		if (slot->moved_sequence == slot->sequence && (slot->moved_from == group || slot->moved_to == group))
			return true;
	}
	return false;
}

static uint32_t take_free_group(struct kernel_accounts *accounts)
{
	struct clock clock = real_clock();
	uint32_t count = group_count(accounts);

	if (count < accounts->shared.group_capacity) {
		accounts->shared.groups[count].parent = CPU_ACCOUNT_NONE;
		return count;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct group_seat *seat = &accounts->group_seats[i];

		if (seat->watches > 0 || mono_diff(clock_mono(&clock), seat->freed) < (int64_t)REUSE_NS ||
		    is_left_by_a_run(accounts, i))
			continue;
		change_tree(accounts);
		take_out_of_tree(accounts, i);
		change_tree(accounts);
		return i;
	}
	return CPU_ACCOUNT_NONE;
}

static void next_group_generation(struct kernel_accounts *accounts)
{
	__atomic_fetch_add(&accounts->skeleton->bss->words.group_generation, 1, __ATOMIC_SEQ_CST);
}

/* Of a thread, in the hierarchy that counts. 0; -errno. */
static int path_of_thread(const struct kernel_accounts *accounts, uint32_t pid, uint32_t tid, char *ret_path,
			  size_t cap)
{
	char name[64], text[16384];
	const char *line;
	ssize_t len;

	snprintf(name, sizeof(name), "%u/task/%u/cgroup", pid, tid);
	len = proc_read_file(accounts->options.procfd, 0, name, text, sizeof(text) - 1);
	if (len <= 0)
		return len < 0 ? (int)len : -ESRCH;
	if (accounts->by_cpuacct)
		return cgroup_path_from(accounts->options.mounts, text, (size_t)len, CGROUP_CPUACCT, ret_path, cap);
	text[len] = '\0';
	line = strncmp(text, "0::", 3) == 0 ? text : strstr(text, "\n0::");
	if (!line)
		return -ENOENT;
	line += *line == '\n' ? 4 : 3;
	snprintf(ret_path, cap, "%.*s", (int)strcspn(line, "\n"), line);
	return strncmp(ret_path, "/..", 3) == 0 ? -ENOENT : 0;
}

/* Whether what runs there belongs to it. 1; 0; -EAGAIN: it is not known. */
static int is_slot_in_group(const struct kernel_accounts *accounts, const struct cpu_slot *slot, uint32_t group)
{
	char path[4096];

	if (slot->moved_sequence == slot->sequence)
		return -EAGAIN;
	if (slot->group_generation == accounts->skeleton->bss->words.group_generation)
		return is_in_group(accounts, slot->group, group);

	int r = path_of_thread(accounts, slot->tgid, slot->tid, path, sizeof(path));

	if (r == -ENOENT)
		return 0; /* outside of what can be watched */
	return r < 0 ? -EAGAIN : is_path_below(path, accounts->group_seats[group].path);
}

/* As runs_in_clock, of a cgroup and its file. */
static int runs_in_file(const struct kernel_accounts *accounts, uint32_t group, uint64_t *ret_ns)
{
	struct cpu_slot slot;
	uint64_t ns = 0;

	*ret_ns = 0;
	for (uint32_t cpu = 0; cpu < accounts->shared.cpus; cpu++) {
		if (!cpu_accounts_slot(&accounts->shared, cpu, &slot))
			return -EAGAIN;
		if (slot.tid == 0 || slot.tid == CPU_SLOT_UNKNOWN)
			continue;

		int r = is_slot_in_group(accounts, &slot, group);

		if (r < 0)
			return r;
		if (r == 0)
			continue;
		if (thread_cpu(accounts, slot.tgid, slot.tid, &ns) < 0 || ns < slot.run_ns)
			return -EAGAIN;
		*ret_ns += ns - slot.run_ns;
	}
	return 0;
}

/* What its file has of runs that have ended, less what its cells have; to within *ret_within_ns. 0; -errno. */
static int settle_group(const struct kernel_accounts *accounts, uint32_t group, uint64_t *ret_base_ns,
			uint64_t *ret_within_ns)
{
	struct cgroup_files files;
	uint64_t best_ns = UINT64_MAX;
	int r = cgroup_files_init_usage(&files, accounts->options.mounts, accounts->group_seats[group].path);

	if (r < 0)
		return r;
	for (int i = 0; r == 0 && best_ns > 0 && i < TRIES; i++) {
		uint64_t cells[2], file[2] = { 0 }, running[2];
		int busy = 0;

		for (int k = 0; k < 2; k++) {
			cells[k] = group_ns(accounts, group);
			busy |= runs_in_file(accounts, group, &running[k]);
			if (r == 0)
				r = cgroup_files_usage(&files, &file[k]);
		}

		uint64_t apart_ns = cells[1] - cells[0] + (file[1] - file[0]) +
				    (running[1] > running[0] ? running[1] - running[0] : running[0] - running[1]);

		if (r < 0 || busy < 0 || apart_ns >= best_ns)
			continue;
		best_ns = apart_ns;
		*ret_base_ns = file[0] - running[0] - cells[0];
	}
	cgroup_files_release(&files);
	*ret_within_ns = best_ns;
	return r < 0 ? r : best_ns <= SEAM_NS ? 0 : -EAGAIN;
}

/* What runs somewhere since before it was watched is not known to be in it, until it has switched. */
static void visit_runs(const struct kernel_accounts *accounts, uint32_t group)
{
	struct cpu_slot slot;

	for (uint32_t cpu = 0; cpu < accounts->shared.cpus; cpu++)
		if (cpu_accounts_slot(&accounts->shared, cpu, &slot) && slot.tid != 0 && slot.tid != CPU_SLOT_UNKNOWN &&
		    slot.group_generation != accounts->skeleton->bss->words.group_generation &&
		    is_slot_in_group(accounts, &slot, group) == 1)
			visit_cpus(accounts, cpu, cpu + 1);
}

static int enter_group(struct kernel_accounts *accounts, uint32_t group)
{
	struct group_seat *seat = &accounts->group_seats[group];
	uint64_t base_ns;

	__atomic_fetch_add(&accounts->skeleton->bss->words.groups, 1, __ATOMIC_SEQ_CST);
	if (bpf_map_update_elem(bpf_map__fd(accounts->skeleton->maps.groups), &seat->id, &group, BPF_ANY) < 0)
		return -errno;
	next_group_generation(accounts);
	visit_runs(accounts, group);
	seat->moves = accounts->skeleton->bss->moves;

	int r = settle_group(accounts, group, &base_ns, &seat->within_ns);

	if (r < 0)
		return r;
	change_tree(accounts);
	__atomic_store_n(&accounts->shared.groups[group].base_ns, base_ns, __ATOMIC_RELAXED);
	change_tree(accounts);
	return 0;
}

static void leave_group(struct kernel_accounts *accounts, uint32_t group)
{
	struct group_seat *seat = &accounts->group_seats[group];
	struct clock clock = real_clock();
	uint32_t found;

	if (bpf_map_lookup_elem(bpf_map__fd(accounts->skeleton->maps.groups), &seat->id, &found) == 0 && found == group)
		bpf_map_delete_elem(bpf_map__fd(accounts->skeleton->maps.groups), &seat->id);
	__atomic_fetch_sub(&accounts->skeleton->bss->words.groups, 1, __ATOMIC_SEQ_CST);
	next_group_generation(accounts);
	seat->watches = 0;
	seat->freed = clock_mono(&clock);
}

/* The id of a cgroup is the number of its directory. 0; -errno. */
static int id_of_group(const struct kernel_accounts *accounts, const char *path, uint64_t *ret)
{
	if (!accounts->group_root || (!accounts->by_cpuacct && strcmp(path, "/") == 0))
		return -ENOTSUP;

	struct stat stat;
	struct statfs system;
	AUTO_CLOSE int fd = cgroup_open(accounts->group_root, path, O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return fd == -ENOENT ? -ENOTSUP : fd;
	if (fstat(fd, &stat) < 0 || fstatfs(fd, &system) < 0)
		return -errno;
	if (system.f_type != CGROUP_SUPER_MAGIC && system.f_type != CGROUP2_SUPER_MAGIC)
		return -ENOTSUP;
	*ret = stat.st_ino;
	return 0;
}

static uint32_t find_watched_group(const struct kernel_accounts *accounts, uint64_t id)
{
	for (uint32_t i = 0; i < group_count(accounts); i++)
		if (is_live(accounts, i) && accounts->group_seats[i].id == id && !accounts->shared.groups[i].lost)
			return i;
	return CPU_ACCOUNT_NONE;
}

static void count_groups(struct kernel_accounts *accounts, int by)
{
	pthread_mutex_lock(&accounts->lock);
	accounts->state.groups += (uint32_t)by;
	pthread_mutex_unlock(&accounts->lock);
}

static int add_group(struct kernel_accounts *accounts, const char *path, uint64_t id, uint32_t *ret_group)
{
	AUTO_FREE char *copy = strdup(path);
	uint32_t group = copy ? take_free_group(accounts) : CPU_ACCOUNT_NONE;

	if (!copy)
		return -ENOMEM;
	if (group == CPU_ACCOUNT_NONE) {
		if (accounts->state.groups_refused == 0)
			log_line(LOG_NOTICE,
				 "%u cgroups have accounts, and no more can: the CPU time of the others is "
				 "read from files",
				 accounts->shared.group_capacity);
		count(accounts, &accounts->state.groups_refused);
		return -ENOSPC;
	}

	struct group_seat *seat = &accounts->group_seats[group];

	free(seat->path);
	*seat = (struct group_seat){ .path = TAKE(copy), .id = id, .watches = 1 };
	change_tree(accounts);
	if (group == group_count(accounts))
		atomic_store(&accounts->shared.group_count, group + 1);
	put_into_tree(accounts, group);
	change_tree(accounts);

	int r = enter_group(accounts, group);

	if (r < 0) {
		leave_group(accounts, group);
		return r;
	}
	count_groups(accounts, 1);
	*ret_group = group;
	return 0;
}

static int watch_group(struct kernel_accounts *accounts, const char *path, uint32_t *ret_account)
{
	uint64_t id = 0;
	int r = id_of_group(accounts, path, &id);

	if (r < 0)
		return r;

	uint32_t group = find_watched_group(accounts, id);

	if (group != CPU_ACCOUNT_NONE)
		accounts->group_seats[group].watches++;
	else
		r = add_group(accounts, path, id, &group);
	if (r == 0)
		*ret_account = accounts->shared.capacity + group;
	return r;
}

int kernel_accounts_watch(struct kernel_accounts *accounts, const struct kernel_accounts_watched *what,
			  uint32_t *ret_account)
{
	if (!atomic_load(&accounts->shared.on))
		return -ENODEV;
	return what->cgroup ? watch_group(accounts, what->cgroup, ret_account)
			    : watch_process(accounts, what->pid, what->start_ticks, ret_account);
}

static void unwatch_group(struct kernel_accounts *accounts, uint32_t group)
{
	if (--accounts->group_seats[group].watches > 0)
		return;

	leave_group(accounts, group);
	count_groups(accounts, -1);
}

void kernel_accounts_unwatch(struct kernel_accounts *accounts, uint32_t account)
{
	if (account >= accounts->shared.capacity) {
		unwatch_group(accounts, account - accounts->shared.capacity);
		return;
	}
	if (--accounts->seats[account].watches > 0)
		return;

	leave(accounts, account);
	give_free(accounts, account);
	count_watched(accounts, -1);
}

/* ---- events ---- */

struct reading {
	struct procevent *batch;
	size_t count, cap;
};

/* The kernel knows ticks only; the relation is applied to what is exact. */
static void divide_cpu(const struct kernel_end *end, struct procevent_totals *ret)
{
	double ticks = (double)end->user_ns + (double)end->system_ns;

	ret->system_ns = ticks > 0 ? (uint64_t)((double)end->cpu_ns * ((double)end->system_ns / ticks)) : 0;
	ret->system_ns = ret->system_ns < end->cpu_ns ? ret->system_ns : end->cpu_ns;
	ret->user_ns = end->cpu_ns - ret->system_ns;
}

static void put_end(struct reading *reading, const struct kernel_end *end)
{
	struct procevent event = { .kind = PROCEVENT_EXIT, .pid = end->event.pid };

	reading->batch[reading->count++] = event;
	event.kind = PROCEVENT_TOTALS;
	event.ppid = end->event.ppid;
	event.totals = (struct procevent_totals){
		.cpu_ns = end->cpu_ns,
		.minor_faults = end->minor_faults,
		.major_faults = end->major_faults,
		.elapsed_ns = end->elapsed_ns,
		.start_ticks = end->began_ns / (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK)),
		.ended = { end->ended_ns },
		.exact = true,
	};
	divide_cpu(end, &event.totals);
	memcpy(event.totals.comm, end->comm, sizeof(end->comm) - 1);
	reading->batch[reading->count++] = event;
}

/* Less than 0: it is taken, and no other. */
static int on_event(void *ctx, void *data, size_t bytes)
{
	static const enum procevent_kind kinds[] = { [KERNEL_EVENT_FORK] = PROCEVENT_FORK,
						     [KERNEL_EVENT_EXEC] = PROCEVENT_EXEC,
						     [KERNEL_EVENT_RENAME] = PROCEVENT_COMM,
						     [KERNEL_EVENT_MOVE] = PROCEVENT_MOVE,
						     [KERNEL_EVENT_BURST] = PROCEVENT_BURST };
	struct reading *reading = ctx;
	const struct kernel_event *event = data;

	if (event->kind == KERNEL_EVENT_END && bytes >= sizeof(struct kernel_end))
		put_end(reading, data);
	else if (event->kind < ARRAY_LEN(kinds))
		reading->batch[reading->count++] =
			(struct procevent){ .kind = kinds[event->kind], .pid = event->pid, .ppid = event->ppid };
	return reading->count + 2 > reading->cap ? -ENOSPC : 0;
}

static int on_event_of(void *ctx, void *data, size_t bytes)
{
	const struct kernel_accounts *accounts = ctx;

	return accounts->reading ? on_event(accounts->reading, data, bytes) : 0;
}

int kernel_accounts_listen(struct kernel_accounts *accounts, int *ret_fd)
{
	if (!ret_fd) {
		__atomic_store_n(&accounts->skeleton->bss->events_wanted, 0, __ATOMIC_SEQ_CST);
		return 0;
	}
	if (!atomic_load(&accounts->shared.on))
		return -ENODEV;
	ring_buffer__consume(accounts->ring);
	accounts->lost = accounts->skeleton->bss->events_lost;
	__atomic_store_n(&accounts->skeleton->bss->events_wanted, 1, __ATOMIC_SEQ_CST);
	*ret_fd = ring_buffer__epoll_fd(accounts->ring);
	return 0;
}

size_t kernel_accounts_read(struct kernel_accounts *accounts, struct procevent *batch, size_t cap, bool *ret_lost,
			    bool *ret_more)
{
	uint64_t lost = __atomic_load_n(&accounts->skeleton->bss->events_lost, __ATOMIC_SEQ_CST);
	struct reading reading = { .batch = batch, .cap = cap };

	accounts->reading = &reading;
	*ret_more = ring_buffer__consume(accounts->ring) == -ENOSPC;
	accounts->reading = NULL;
	*ret_lost = lost != accounts->lost;
	accounts->lost = lost;
	return reading.count;
}

/* ---- attaching ---- */

static void detach(struct kernel_accounts *accounts)
{
	atomic_store(&accounts->shared.on, false);
	for (size_t i = 0; i < ARRAY_LEN(accounts->links); i++) {
		bpf_link__destroy(accounts->links[i]);
		accounts->links[i] = NULL;
	}
}

/* A CPU that is online and of which nothing is known; -1: none. */
static int unknown_cpu(const struct kernel_accounts *accounts)
{
	struct proc_cpus online;

	proc_read_cpus(PROC_CPUS_ONLINE, &online);
	for (uint32_t cpu = 0; cpu < accounts->shared.cpus; cpu++)
		if (accounts->shared.slots[cpu].tid == CPU_SLOT_UNKNOWN && proc_cpus_has(&online, cpu))
			return (int)cpu;
	return -1;
}

/* Since the last check, which is a second. */
static bool timers_are_many(struct kernel_accounts *accounts)
{
	uint64_t before = accounts->timers, online = 0;

	accounts->timers = 0;
	for (uint32_t cpu = 0; cpu < accounts->shared.cpus; cpu++) {
		online += accounts->shared.slots[cpu].tid != CPU_SLOT_UNKNOWN;
		accounts->timers += __atomic_load_n(&accounts->shared.runs[cpu].timers, __ATOMIC_RELAXED);
	}
	return accounts->timers - before > online * TIMERS_MAX;
}

/*
 * The last of the links: timers correct slots, where the next switch does if there is none, and tell of a burst that
 * goes on. At first it is not known whether switches are hidden, and what runs after one would seem to stand still.
 */
static void attach_to_timers(struct kernel_accounts *accounts)
{
	struct bpf_link **link = &accounts->links[ARRAY_LEN(accounts->links) - 1];
	bool many = timers_are_many(accounts);

	if (accounts->checks < CHECKS_WITH_TIMERS || accounts->skeleton->bss->missed > 0)
		accounts->timerless = 0;
	else if (many)
		accounts->timerless = CHECKS_WITHOUT_TIMERS;
	else if (accounts->timerless > 0)
		accounts->timerless--;

	if (accounts->timerless == 0 && !*link) {
		*link = bpf_program__attach(accounts->skeleton->progs.on_timer);
	} else if (accounts->timerless > 0 && *link) {
		bpf_link__destroy(*link);
		*link = NULL;
	}
}

/*
 * Pages that the kernel took from processes or brought back by itself: reclaimed, swapped, put together to huge ones.
 * UINT64_MAX: the text of /proc/vmstat does not say.
 */
static uint64_t parse_reclaimed(const char *text)
{
	static const char *const names[] = { "pgsteal_",    "pswp",         "zswp",
					     "swpin_zero ", "swpout_zero ", "thp_collapse_alloc " };
	uint64_t sum = 0;
	bool said = false;

	for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
		for (size_t i = 0; i < ARRAY_LEN(names); i++)
			if (strncmp(line, names[i], strlen(names[i])) == 0) {
				sum += strtoull(line + strcspn(line, " \n"), NULL, 10);
				said |= i == 0;
			}
	return said ? sum : UINT64_MAX;
}

static void read_reclaimed(struct kernel_accounts *accounts)
{
	char text[16384]; /* a third of it is used */
	ssize_t len = proc_read_file(accounts->options.procfd, 0, "vmstat", text, sizeof text - 1);

	text[len > 0 ? len : 0] = '\0';
	atomic_store_explicit(&accounts->shared.reclaimed, parse_reclaimed(text), memory_order_relaxed);
}

static int attach(struct kernel_accounts *accounts, char *reason)
{
	struct bpf_program *const programs[] = {
		accounts->skeleton->progs.on_fork,   accounts->skeleton->progs.on_exec,
		accounts->skeleton->progs.on_rename, accounts->skeleton->progs.on_move,
		accounts->skeleton->progs.on_exit,   accounts->skeleton->progs.on_new_cgroup,
		accounts->skeleton->progs.on_switch
	};
	struct cpu_slot *slots = (struct cpu_slot *)(uintptr_t)accounts->shared.slots;
	struct clock clock = real_clock();
	int cpu = -1;

	for (uint32_t i = 0; i < accounts->shared.cpus; i++) {
		slots[i].tid = slots[i].tgid = CPU_SLOT_UNKNOWN;
		slots[i].account = slots[i].group = CPU_ACCOUNT_NONE;
		slots[i].cgroup = 0;
		slots[i].moved_sequence = UINT64_MAX;
		slots[i].sequence += slots[i].sequence & 1;
	}
	_Static_assert(ARRAY_LEN(programs) + 1 == ARRAY_LEN(accounts->links), "the last one is attached by need");
	for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
		if (!bpf_program__autoload(programs[i]))
			continue;
		accounts->links[i] = bpf_program__attach(programs[i]);
		if (!accounts->links[i]) {
			int r = -errno;

			detach(accounts);
			snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX, "the program cannot be attached: %s",
				 strerrordesc_np(-r));
			return r;
		}
	}
	for (int i = 0; i < 10; i++) {
		visit_cpus(accounts, 0, accounts->shared.cpus);
		cpu = unknown_cpu(accounts);
		if (cpu < 0)
			break;
		real_clock_sleep_until(mono_add(clock_mono(&clock), 5 * NS_PER_MS));
	}
	if (cpu >= 0) {
		detach(accounts);
		snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX,
			 "CPU %d does not switch, and this process may not run on it", cpu);
		return -EAGAIN;
	}
	accounts->switches = accounts->others = 0;
	accounts->checked = (mono_t){ 0 };
	accounts->costly = accounts->cheap = accounts->checks = 0;
	attach_to_timers(accounts);
	read_reclaimed(accounts);
	atomic_store(&accounts->shared.on, true);
	return 0;
}

/* ---- loading ---- */

/* Lines of one message of the library that are kept: the last ones. A verifier's say what it stopped at. */
#define LIBRARY_LINES 100

/* Set for a program that the kernel has refused; the library returns the error number alone. */
static _Thread_local bool is_program_refused;

/* A verifier's log is one message of many lines. */
__attribute__((format(printf, 2, 0))) static int print_library(enum libbpf_print_level level, const char *format,
							       va_list arguments)
{
	AUTO_FREE char *text = NULL;
	const char *from, *line;
	unsigned lines = 0;

	if (level == LIBBPF_DEBUG || vasprintf(&text, format, arguments) < 0)
		return 0;
	is_program_refused |= strstr(text, "program load failed") != NULL;
	for (from = text + strlen(text); from > text; from--)
		if (from[-1] == '\n' && from[0] != '\0' && ++lines == LIBRARY_LINES)
			break;
	for (line = from; *line; line += strcspn(line, "\n") + (line[strcspn(line, "\n")] == '\n'))
		log_line(LOG_DEBUG, "%.*s", (int)strcspn(line, "\n"), line);
	return 0;
}

/* The file of one's own namespace; those of the machine's first ones never change their inode (PROC_PID_INIT_INO). */
static bool is_first_namespace(const char *path, ino_t inode)
{
	struct stat stat;

	return fstatat(AT_FDCWD, path, &stat, 0) == 0 && stat.st_ino == inode;
}

static bool is_first_pid_namespace(void)
{
	return is_first_namespace("/proc/self/ns/pid", 0xEFFFFFFC);
}

static const char *lockdown_path = "/sys/kernel/security/lockdown";

static bool is_locked_down(void)
{
	char text[128] = "";
	ssize_t len = proc_read_file(AT_FDCWD, 0, lockdown_path, text, sizeof(text) - 1);

	return len > 0 && strstr(text, "[confidentiality]");
}

static uint64_t capabilities(void)
{
	char text[4096] = "";
	ssize_t len = proc_read_file(AT_FDCWD, 0, "/proc/self/status", text, sizeof(text) - 1);
	const char *line = len > 0 ? strstr(text, "\nCapEff:") : NULL;

	return line ? strtoull(line + 8, NULL, 16) : 0;
}

/* CAP_SYS_ADMIN is both of the others. */
static bool has_capabilities(void)
{
	enum { SYS_ADMIN = 21, PERFMON = 38, BPF = 39 };
	uint64_t set = capabilities();

	return set >> SYS_ADMIN & 1 || (set >> PERFMON & 1 && set >> BPF & 1);
}

/* NULL: that which runs. */
static const char *kernel_release;

/* Before Linux 5.11 tables are locked memory, whose limit the library raises where it may. */
static bool is_locked_memory_limited(void)
{
	enum { SYS_RESOURCE = 24 };
	struct utsname name = { .release = "" };
	struct rlimit limit = { .rlim_cur = RLIM_INFINITY };
	unsigned major = 0, minor = 0;

	uname(&name);
	getrlimit(RLIMIT_MEMLOCK, &limit);
	return sscanf(kernel_release ? kernel_release : name.release, "%u.%u", &major, &minor) == 2 &&
	       (major < 5 || (major == 5 && minor < 11)) && limit.rlim_cur != RLIM_INFINITY &&
	       !(capabilities() >> SYS_RESOURCE & 1);
}

/* Why loading has failed with r, and what helps. */
static void say_why_refused(int r, char *reason)
{
	const char *why = NULL;

	if (r == -EPERM && is_locked_down())
		why = "the kernel is locked down (confidentiality); lockdown=integrity would allow it";
	else if (r == -EPERM && !is_first_namespace("/proc/self/ns/user", 0xEFFFFFFD))
		why = "bpf(2) is not permitted in a user namespace, only to a spikewatch of the machine itself";
	else if (r == -EPERM && !has_capabilities())
		why = "bpf(2) is not permitted: CAP_BPF and CAP_PERFMON are needed";
	else if (r == -EPERM && is_locked_memory_limited())
		why = "its tables are more than the limit of locked memory, which may not be raised: "
		      "LimitMEMLOCK=infinity or CAP_SYS_RESOURCE would allow it";
	else if (r == -EPERM)
		why = "bpf(2) is refused in spite of the capabilities: a seccomp filter (SystemCallFilter=, the "
		      "profile of a container) or a security module has to allow it";
	else if (r == -ENOSYS)
		why = "there is no bpf(2): the kernel is built without it (CONFIG_BPF_SYSCALL), or a seccomp filter "
		      "hides it";
	else if (r == -ENOMEM)
		why = "there is no memory for its tables: the memory limit is too low, or sampling.max_targets too "
		      "high";
	if (why)
		snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX, "%s", why);
	else if (is_program_refused)
		snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX,
			 "the kernel's verifier refuses the program: %s (its log is in the debug output)",
			 strerrordesc_np(-r));
	else
		snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX, "the kernel does not take the program: %s",
			 strerrordesc_np(-r));
}

/* The kernel's type information. */
static const char *btf_path = "/sys/kernel/btf/vmlinux";

/* 0; -errno and *reason. */
static int check_place(char *reason)
{
	int r = 0;

#if !defined(__x86_64__)
	snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX, "it was not proven on this kind of CPU");
	r = -ENOTSUP;
#endif
	if (r == 0 && !is_first_pid_namespace()) {
		snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX,
			 "this is not the machine's first pid namespace; a container has to share it (--pid=host)");
		r = -ENOTSUP;
	}
	if (r == 0 && access(btf_path, R_OK) < 0) {
		r = -errno;
		snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX, "the kernel's type information (BTF), %s: %s%s", btf_path,
			 strerrordesc_np(-r), r == -ENOENT ? "; it has to be built with CONFIG_DEBUG_INFO_BTF" : "");
	}
	return r;
}

static socklen_t owner_address(struct sockaddr_un *address)
{
	*address = (struct sockaddr_un){ .sun_family = AF_UNIX };
	memcpy(address->sun_path + 1, owner_name, strlen(owner_name));
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(owner_name));
}

/*
 * Whether the name is that of a spikewatch: it listens, and is of root or of this user. Does not
 * wait. When it has accepted none for long (answer_others) the answer is no, and two programs count,
 * each for itself.
 */
static bool is_owned_by_another(void)
{
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct ucred peer;
	socklen_t len = sizeof(peer);
	struct sockaddr_un address;
	socklen_t address_len = owner_address(&address);

	return fd >= 0 && connect(fd, (const struct sockaddr *)&address, address_len) == 0 &&
	       getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && (peer.uid == 0 || peer.uid == geteuid());
}

static int take_ownership(struct kernel_accounts *accounts, char *reason)
{
	struct sockaddr_un address;
	socklen_t len = owner_address(&address);
	int r = 0;

	accounts->owner = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (accounts->owner < 0 || bind(accounts->owner, (const struct sockaddr *)&address, len) < 0 ||
	    listen(accounts->owner, SOMAXCONN) < 0)
		r = -errno;
	if (r == -EADDRINUSE && !is_owned_by_another())
		r = 0;
	if (r < 0)
		snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX, "%s",
			 r == -EADDRINUSE ? "another spikewatch on this machine uses it" : strerrordesc_np(-r));
	return r;
}

/* Each try of another one leaves a connection, and there is room for some thousand. */
static void answer_others(const struct kernel_accounts *accounts)
{
	int fd;

	while ((fd = accept4(accounts->owner, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0)
		close(fd);
}

/* map NULL: room only. */
static int map_array(struct kernel_accounts *accounts, size_t number, const struct bpf_map *map, size_t bytes,
		     void *ret)
{
	void *mapped;

	bytes = (bytes + 4095) & ~(size_t)4095;
	mapped = map ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0)
		     : mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	accounts->mapped[number] = mapped;
	accounts->mapped_bytes[number] = bytes;
	memcpy(ret, &mapped, sizeof(mapped));
	return 0;
}

static int map_arrays(struct kernel_accounts *accounts)
{
	struct cpu_accounts *shared = &accounts->shared;
	int r = map_array(accounts, 0, NULL, shared->capacity * sizeof(struct cpu_account), &shared->accounts);

	if (r == 0)
		r = map_array(accounts, 1, accounts->skeleton->maps.slots, shared->cpus * sizeof(struct cpu_slot),
			      &shared->slots);
	if (r == 0)
		r = map_array(accounts, 2, accounts->skeleton->maps.logs,
			      (size_t)shared->cpus * shared->log_length * sizeof(uint64_t), &shared->logs);
	if (r == 0 && shared->group_capacity > 0)
		r = map_array(accounts, 3, accounts->skeleton->maps.cells,
			      (size_t)shared->cpus * shared->group_capacity * sizeof(struct cpu_cell), &shared->cells);
	if (r == 0)
		r = map_array(accounts, 4, accounts->skeleton->maps.runs, shared->cpus * sizeof(struct cpu_run_log),
			      &shared->runs);
	shared->words = &accounts->skeleton->bss->words;
	return r;
}

/* The event of a process that is moved to another cgroup. */
static const char *move_event = "cgroup_attach_task";

/* A kernel without cgroups has no such events, and nothing that moves. */
static void do_without_moves(struct kernel_accounts *accounts)
{
	struct switches *skeleton = accounts->skeleton;

	if (bpf_program__set_attach_target(skeleton->progs.on_move, 0, move_event) == 0 &&
	    bpf_program__set_attach_target(skeleton->progs.on_new_cgroup, 0, "cgroup_mkdir") == 0)
		return;
	bpf_program__set_autoload(skeleton->progs.on_move, false);
	bpf_program__set_autoload(skeleton->progs.on_new_cgroup, false);
	accounts->group_root = NULL;
	log_line(LOG_INFO, "the kernel does not tell of moves between cgroups (%s)", move_event);
}

static int size_groups(struct kernel_accounts *accounts)
{
	const struct cpu_accounts *shared = &accounts->shared;
	struct switches *skeleton = accounts->skeleton;
	uint32_t groups = shared->group_capacity > 0 ? shared->group_capacity : 1;
	int r = bpf_map__set_max_entries(skeleton->maps.cells, shared->cpus * groups);

	skeleton->rodata->account_capacity = shared->capacity;
	skeleton->rodata->group_capacity = shared->group_capacity;
	skeleton->rodata->cpus = shared->cpus;
	skeleton->rodata->by_cpuacct = accounts->by_cpuacct;
	if (r == 0)
		r = bpf_map__set_max_entries(skeleton->maps.groups, groups);
	if (r == 0)
		r = bpf_map__set_max_entries(skeleton->maps.recent_groups, shared->cpus * CPU_RECENT_LENGTH);
	return r;
}

static int open_program(struct kernel_accounts *accounts)
{
	const struct cpu_accounts *shared = &accounts->shared;
	struct switches *skeleton;
	int r;

	libbpf_set_print(print_library);
	skeleton = accounts->skeleton = switches__open();
	if (!skeleton)
		return -errno;
	skeleton->rodata->log_length = shared->log_length;
	r = bpf_map__set_max_entries(skeleton->maps.accounts, shared->capacity);
	if (r == 0)
		r = bpf_map__set_max_entries(skeleton->maps.watched, shared->capacity);
	if (r == 0)
		r = bpf_map__set_max_entries(skeleton->maps.slots, shared->cpus);
	if (r == 0)
		r = bpf_map__set_max_entries(skeleton->maps.runs, shared->cpus);
	if (r == 0)
		r = bpf_map__set_max_entries(skeleton->maps.recents, shared->cpus * CPU_RECENT_LENGTH);
	if (r == 0)
		r = bpf_map__set_max_entries(skeleton->maps.logs, shared->cpus * shared->log_length);
	if (r == 0)
		r = bpf_map__set_max_entries(skeleton->maps.events, RING_BYTES);
	if (r == 0)
		r = size_groups(accounts);
	if (r == 0)
		do_without_moves(accounts);
	return r;
}

static int load_program(struct kernel_accounts *accounts, char *reason)
{
	is_program_refused = false;

	int r = switches__load(accounts->skeleton);

	if (r < 0)
		say_why_refused(r, reason);
	return r;
}

/* v1 counts where it has the controller (cgroup.h). */
static void choose_hierarchy(struct kernel_accounts *accounts)
{
	const struct cgroup_mounts *mounts = accounts->options.mounts;
	bool v2 = true;
	const char *root = mounts ? cgroup_mounts_controller(mounts, CGROUP_CPUACCT, &v2) : NULL;

	accounts->by_cpuacct = root && !v2;
	accounts->group_root = accounts->by_cpuacct ? root : mounts ? cgroup_mounts_v2(mounts) : NULL;
	accounts->shared.group_capacity = accounts->group_root ? accounts->options.groups : 0;
	accounts->state.group_capacity = accounts->shared.group_capacity;
}

static int prepare(struct kernel_accounts *accounts)
{
	uint32_t capacity = accounts->options.capacity;
	struct proc_cpus possible;

	proc_read_cpus(PROC_CPUS_POSSIBLE, &possible);
	accounts->shared.capacity = accounts->state.capacity = capacity;
	accounts->shared.cpus = possible.end;
	accounts->shared.log_length = LOG_LENGTH;
	atomic_init(&accounts->shared.reclaimed, UINT64_MAX);
	choose_hierarchy(accounts);
	accounts->seats = calloc(capacity, sizeof(accounts->seats[0]));
	accounts->shared.base_ns = calloc(capacity, sizeof(uint64_t));
	accounts->shared.pids = calloc(capacity, sizeof(uint32_t));
	accounts->group_seats = calloc(accounts->shared.group_capacity + 1u, sizeof(accounts->group_seats[0]));
	accounts->shared.groups = calloc(accounts->shared.group_capacity + 1u, sizeof(accounts->shared.groups[0]));
	if (!accounts->seats || !accounts->shared.base_ns || !accounts->shared.pids || !accounts->group_seats ||
	    !accounts->shared.groups)
		return -ENOMEM;
	accounts->free_first = accounts->free_last = CPU_ACCOUNT_NONE;
	return 0;
}

/*
 * Frees the program and what of it is mapped. No reader may be using the maps: either the accounts were never on, or
 * all readers are gone.
 */
static void unload(struct kernel_accounts *accounts)
{
	detach(accounts);
	for (size_t i = 0; i < ARRAY_LEN(accounts->mapped); i++)
		if (accounts->mapped[i])
			munmap(accounts->mapped[i], accounts->mapped_bytes[i]);
	memset(accounts->mapped, 0, sizeof(accounts->mapped));
	ring_buffer__free(accounts->ring);
	switches__destroy(accounts->skeleton);
	if (accounts->owner >= 0)
		close(accounts->owner);
	accounts->ring = NULL;
	accounts->skeleton = NULL;
	accounts->owner = -1;
	accounts->shared.accounts = NULL;
	accounts->shared.slots = NULL;
	accounts->shared.logs = NULL;
	accounts->shared.runs = NULL;
	accounts->shared.cells = NULL;
	accounts->shared.words = NULL;
}

/* From the name to the first switch. 0; -errno and *reason, and it is as before. */
static int load(struct kernel_accounts *accounts, char *reason)
{
	int r = take_ownership(accounts, reason);

	if (r == 0)
		r = open_program(accounts);
	if (r == 0)
		r = load_program(accounts, reason);
	if (r == 0)
		r = map_arrays(accounts);
	if (r == 0) {
		accounts->ring =
			ring_buffer__new(bpf_map__fd(accounts->skeleton->maps.events), on_event_of, accounts, NULL);
		r = accounts->ring ? 0 : -errno;
	}
	if (r == 0)
		r = attach(accounts, reason);
	accounts->loaded = r == 0;
	accounts->waits_for = r;
	if (r == 0)
		return 0;
	if (!*reason)
		snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX, "%s", strerrordesc_np(-r));
	unload(accounts);
	return r;
}

/* Another one has it; there is no memory or no descriptor; a CPU did not switch. */
static bool may_pass(int r)
{
	return r == -EADDRINUSE || r == -ENOMEM || r == -EMFILE || r == -ENFILE || r == -EAGAIN;
}

static int open_all(struct kernel_accounts *accounts, char *reason)
{
	int r = check_place(reason);

	if (r == 0)
		r = prepare(accounts);
	if (r < 0)
		return r;

	r = load(accounts, reason);
	if (r == 0 || !accounts->options.waits || !may_pass(r))
		return r;

	struct clock clock = real_clock();

	accounts->tried = clock_mono(&clock);
	snprintf(accounts->state.reason, sizeof(accounts->state.reason), "%s", reason);
	return 1;
}

int kernel_accounts_open(const struct kernel_accounts_options *options, struct kernel_accounts **ret,
			 char reason[KERNEL_ACCOUNTS_REASON_MAX])
{
	struct kernel_accounts *accounts = calloc(1, sizeof(*accounts));

	*reason = '\0';
	if (!accounts)
		return -ENOMEM;
	accounts->options = *options;
	accounts->owner = -1;
	pthread_mutex_init(&accounts->lock, NULL);

	int r = open_all(accounts, reason);
	if (r < 0) {
		if (!*reason)
			snprintf(reason, KERNEL_ACCOUNTS_REASON_MAX, "%s", strerrordesc_np(-r));
		kernel_accounts_close(accounts);
		return r;
	}
	accounts->state.on = r == 0;
	*ret = accounts;
	return r;
}

void kernel_accounts_close(struct kernel_accounts *accounts)
{
	if (!accounts)
		return;

	unload(accounts);
	free(accounts->seats);
	free(accounts->shared.base_ns);
	free(accounts->shared.pids);
	for (uint32_t i = 0; accounts->group_seats && i < group_count(accounts); i++)
		free(accounts->group_seats[i].path);
	free(accounts->group_seats);
	free(accounts->shared.groups);
	pthread_mutex_destroy(&accounts->lock);
	free(accounts);
}

const struct cpu_accounts *kernel_accounts_shared(const struct kernel_accounts *accounts)
{
	return &accounts->shared;
}

/* ---- the watch ---- */

static void turn_off(struct kernel_accounts *accounts, const char *reason)
{
	detach(accounts);
	pthread_mutex_lock(&accounts->lock);
	accounts->state.on = false;
	accounts->state.detached++;
	snprintf(accounts->state.reason, sizeof(accounts->state.reason), "%s", reason);
	pthread_mutex_unlock(&accounts->lock);
	log_about(accounts->wrong ? LOG_WARNING : LOG_NOTICE,
		  &(struct log_about){ .message = MESSAGE_FEATURE_OFF, .state = "begin" },
		  "CPU time is read from files, no longer from the scheduler: %s", reason);
}

static void say_on(struct kernel_accounts *accounts, const char *said)
{
	pthread_mutex_lock(&accounts->lock);
	accounts->state.on = true;
	accounts->state.reason[0] = '\0';
	pthread_mutex_unlock(&accounts->lock);
	log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_FEATURE_OFF, .state = "end" }, "%s", said);
}

static void turn_on(struct kernel_accounts *accounts)
{
	char reason[KERNEL_ACCOUNTS_REASON_MAX];

	if (attach(accounts, reason) < 0) {
		log_line(LOG_NOTICE, "CPU time stays read from files: %s", reason);
		accounts->cheap = 0;
		return;
	}
	say_on(accounts, "CPU time comes from the scheduler again");
}

/* It waits: whether it is time for another try, and that. A reason that is new is said once. */
static void try_again(struct kernel_accounts *accounts, mono_t now)
{
	uint64_t pause_ns = accounts->waits_for == -EADDRINUSE ? TRY_NAME_NS : TRY_LOAD_NS;
	char reason[KERNEL_ACCOUNTS_REASON_MAX] = "";

	if (!may_pass(accounts->waits_for) || mono_diff(now, accounts->tried) < (int64_t)pause_ns)
		return;

	accounts->tried = now;
	if (load(accounts, reason) == 0) {
		say_on(accounts, "CPU time comes from the scheduler now, no longer from files");
		return;
	}
	if (strcmp(reason, accounts->state.reason) == 0)
		return;
	pthread_mutex_lock(&accounts->lock);
	snprintf(accounts->state.reason, sizeof(accounts->state.reason), "%s", reason);
	pthread_mutex_unlock(&accounts->lock);
	log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_FEATURE_OFF, .state = "change" },
		  "CPU time stays read from files, %s: %s",
		  may_pass(accounts->waits_for) ? "for now" : "until the next start", reason);
}

/* Account and clock of the process are not equal. hides: switches were hidden. */
static void judge_difference(struct kernel_accounts *accounts, uint32_t account, uint64_t total_ns, uint64_t clock_ns,
			     bool hides)
{
	uint32_t pid = atomic_load(&accounts->shared.pids[account]);
	char reason[KERNEL_ACCOUNTS_REASON_MAX];

	accounts->doubt += DOUBT_OF_DIFFERENCE;
	if (hides && accounts->doubt <= DOUBT_MAX) {
		account_at(accounts, account)->lost = 1;
		count(accounts, &accounts->state.corrected);
		log_line(LOG_DEBUG, "process %u: %llu ns were counted, its clock says %llu; switches were hidden", pid,
			 (unsigned long long)total_ns, (unsigned long long)clock_ns);
		return;
	}
	accounts->wrong = true;
	snprintf(reason, sizeof(reason), "of process %u it counted %llu ns where the kernel's clock says %llu", pid,
		 (unsigned long long)total_ns, (unsigned long long)clock_ns);
	turn_off(accounts, reason);
}

/* True: it was possible now. */
static bool compare(struct kernel_accounts *accounts, uint32_t account)
{
	uint32_t pid = atomic_load(&accounts->shared.pids[account]);
	const volatile struct cpu_account *sum = &accounts->shared.accounts[account];
	uint64_t ending_ns = __atomic_load_n(&sum->ending_ns, __ATOMIC_SEQ_CST);
	struct settled settled;

	if (pid == 0 || sum->exited || sum->lost || settle(accounts, account, pid, &settled) < 0 || !settled.still ||
	    settled.clock_ns == 0 || ending_ns != __atomic_load_n(&sum->ending_ns, __ATOMIC_SEQ_CST))
		return false;

	uint64_t total_ns = accounts->shared.base_ns[account] + settled.account_ns;

	if (total_ns >= settled.clock_ns && total_ns - settled.clock_ns <= ending_ns) {
		count(accounts, &accounts->state.compared);
		accounts->doubt -= accounts->doubt > 0;
		return true;
	}
	/* It lost a run or ended meanwhile; another process may have its id. */
	if (sum->exited || sum->lost || !proc_read_is_alive((int32_t)pid, accounts->seats[account].start_ticks))
		return false;
	count(accounts, &accounts->state.compared);
	if (!is_entered(accounts, account, pid)) { /* the kernel told late of its fork, and took it for another one */
		account_at(accounts, account)->lost = 1;
		count(accounts, &accounts->state.corrected);
		return false;
	}
	judge_difference(accounts, account, total_ns, settled.clock_ns, accounts->skeleton->bss->missed > 0);
	return true;
}

static bool has_run(const struct kernel_accounts *accounts, uint32_t account)
{
	return accounts->seats[account].watches > 0 && accounts->shared.accounts[account].runs > 0;
}

static void compare_some(struct kernel_accounts *accounts)
{
	bool proof = accounts->checks++<PROOF_CHECKS, hides = accounts->skeleton->bss->missed> 0;
	unsigned wanted = proof ? PROOF_COMPARED : hides ? COMPARED_WHERE_HIDDEN : 1;
	unsigned most = proof || hides ? 2 * wanted : COMPARED_MAX, tried = 0;
	uint32_t used = accounts->used, looks = proof || used < COMPARED_LOOKS ? used : COMPARED_LOOKS;

	for (uint32_t i = 0; i < looks && tried < most && wanted > 0 && !accounts->wrong; i++) {
		uint32_t account = accounts->compared_next;

		accounts->compared_next = (account + 1) % used;
		if (!has_run(accounts, account))
			continue;
		tried++;
		if (compare(accounts, account)) {
			accounts->compared_last = account;
			wanted--;
		}
	}
	if (tried == 0 && !proof && has_run(accounts, accounts->compared_last))
		compare(accounts, accounts->compared_last);
}

/* Its base is to be another one; or its account is given up. */
static void judge_group(struct kernel_accounts *accounts, uint32_t group, uint64_t base_ns)
{
	struct group_seat *seat = &accounts->group_seats[group];
	struct cpu_group *shared = &accounts->shared.groups[group];
	uint64_t moves = accounts->skeleton->bss->moves;
	int64_t difference_ns = (int64_t)(base_ns - shared->base_ns);
	uint64_t apart_ns = (uint64_t)(difference_ns < 0 ? -difference_ns : difference_ns);
	uint64_t hidden_ns = accounts->skeleton->bss->missed > 0 ? HIDDEN_NS : 0;
	bool explained = apart_ns <= seat->within_ns + FILE_GRAIN_NS + (moves - seat->moves) * MOVE_NS + hidden_ns;

	seat->moves = moves;
	seat->within_ns = 0;
	if (apart_ns <= FILE_GRAIN_NS)
		return;
	change_tree(accounts);
	if (explained)
		__atomic_store_n(&shared->base_ns, base_ns, __ATOMIC_RELAXED);
	else
		__atomic_store_n(&shared->lost, 1, __ATOMIC_RELAXED);
	change_tree(accounts);
	count(accounts, explained ? &accounts->state.groups_corrected : &accounts->state.groups_given_up);
	log_line(explained ? LOG_DEBUG : LOG_WARNING, "of cgroup %s %llu ns %s were counted than its file has%s",
		 seat->path, (unsigned long long)apart_ns, difference_ns < 0 ? "more" : "less",
		 explained ? "" : ": its CPU time is read from there");
}

/* One that is watched, in turns: of so many that are tried, the first that stands still for long enough. */
static void compare_group(struct kernel_accounts *accounts)
{
	uint32_t used = group_count(accounts), tried = 0;
	uint64_t base_ns, within_ns;

	for (uint32_t i = 0; i < used && tried < COMPARED_MAX; i++) {
		uint32_t group = accounts->group_next++ % used;

		if (!is_live(accounts, group) || accounts->shared.groups[group].lost)
			continue;
		tried++;
		if (settle_group(accounts, group, &base_ns, &within_ns) < 0 || within_ns > 0)
			continue;
		count(accounts, &accounts->state.groups_compared);
		judge_group(accounts, group, base_ns);
		return;
	}
}

/* Of the whole machine, as the kernel counts them; after a line that has a number for each interrupt. 0: not known. */
static uint64_t machine_switches(const struct kernel_accounts *accounts)
{
	enum { STAT_MAX = 1 << 20 };
	AUTO_FREE char *text = malloc(STAT_MAX);
	ssize_t len = text ? proc_read_file(accounts->options.procfd, 0, "stat", text, STAT_MAX - 1) : -ENOMEM;

	if (len <= 0)
		return 0;
	text[len] = '\0';

	const char *line = strstr(text, "\nctxt ");

	return line ? strtoull(line + 6, NULL, 10) : 0;
}

static uint64_t own_switches(const struct kernel_accounts *accounts)
{
	uint64_t sum = 0;

	for (uint32_t cpu = 0; cpu < accounts->shared.cpus; cpu++)
		sum += accounts->shared.slots[cpu].sequence / 2;
	return sum;
}

/*
 * Switches in a second since the last check; of the whole machine while the program is not attached. False: not known,
 * as there was none or it could not be read.
 */
static bool switch_rate(struct kernel_accounts *accounts, mono_t now, uint64_t *ret)
{
	bool on = atomic_load(&accounts->shared.on);
	uint64_t counted = on ? own_switches(accounts) : machine_switches(accounts);
	uint64_t *last = on ? &accounts->switches : &accounts->others;
	int64_t passed_ns = accounts->checked.ns ? mono_diff(now, accounts->checked) : 0;
	uint64_t grown = counted > *last ? counted - *last : 0;
	bool known = *last > 0 && counted > 0 && passed_ns > 0;

	*last = counted;
	accounts->checked = now;
	if (known)
		*ret = (uint64_t)((double)grown * (double)NS_PER_S / (double)passed_ns);
	return known;
}

/* Of all CPUs. Reading how many there are takes 60 us, and longer with each of them. */
static uint64_t free_rate(void)
{
	struct proc_cpus online;

	proc_read_cpus(PROC_CPUS_ONLINE, &online);
	return SWITCHES_FREE * (uint64_t)online.count;
}

static void judge_cost(struct kernel_accounts *accounts, uint64_t rate, uint64_t interval_ns)
{
	double cost_ns = (double)rate * SWITCH_NS;
	bool on = atomic_load(&accounts->shared.on);

	if (on)
		accounts->worth = accounts->state.watched;

	double saved_ns = (double)accounts->worth * (double)NS_PER_S / (double)interval_ns * LOOK_NS;
	char reason[KERNEL_ACCOUNTS_REASON_MAX];

	if (on) {
		accounts->costly = cost_ns > saved_ns && rate > free_rate() ? accounts->costly + 1 : 0;
		if (accounts->costly < COSTLY_CHECKS)
			return;
		snprintf(reason, sizeof(reason), "at %llu switches a second counting them costs more than it saves",
			 (unsigned long long)rate);
		accounts->others = 0;
		accounts->cheap = 0;
		turn_off(accounts, reason);
		return;
	}
	accounts->cheap = cost_ns < saved_ns / 2 || rate < free_rate() / 2 ? accounts->cheap + 1 : 0;
	if (accounts->cheap >= CHEAP_CHECKS)
		turn_on(accounts);
}

void kernel_accounts_check(struct kernel_accounts *accounts, mono_t now, uint64_t interval_ns)
{
	if (!accounts->loaded) {
		try_again(accounts, now);
		return;
	}
	answer_others(accounts);

	uint64_t rate = 0;
	bool known = switch_rate(accounts, now, &rate);

	pthread_mutex_lock(&accounts->lock);
	accounts->state.switches_per_s = rate;
	accounts->state.missed = accounts->skeleton->bss->missed;
	accounts->state.losses = __atomic_load_n(&accounts->skeleton->bss->losses, __ATOMIC_SEQ_CST);
	accounts->state.lost = accounts->skeleton->bss->events_lost;
	pthread_mutex_unlock(&accounts->lock);
	if (atomic_load(&accounts->shared.on)) {
		read_reclaimed(accounts);
		attach_to_timers(accounts);
		compare_some(accounts);
		compare_group(accounts);
	}
	if (known && !accounts->wrong && !accounts->options.at_any_cost)
		judge_cost(accounts, rate, interval_ns);
}

void kernel_accounts_state(struct kernel_accounts *accounts, struct kernel_accounts_state *ret)
{
	pthread_mutex_lock(&accounts->lock);
	*ret = accounts->state;
	pthread_mutex_unlock(&accounts->lock);
}

#endif
