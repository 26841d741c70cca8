/*
 * switches.bpf.c: the program in the kernel that adds up CPU time where it is known anyway, at each
 * switch from one task to another (kernel_accounts.h loads it, cpu_accounts.h reads what it writes).
 *
 *	switch on a CPU:  account of what ran  +=  its run, as the scheduler counted it
 *	                  slot of the CPU       =  what runs from now on, and since when
 *
 * The scheduler brings a task's sum_exec_runtime up to date before the tracepoint, so the sum of the
 * differences is its own sum: nothing is measured here. The account goes by the process (tgid), which
 * stays when a thread calls exec and takes over the first thread's id. At the first change in an epoch
 * an account gets into the log of the CPU, so the reader looks at what ran and at nothing else.
 *
 * A switch may be hidden from tracing (some hypervisors hide what their agent in the guest does). Then the
 * next one is from a task that is not in the slot: the process that is there has lost a run and says so;
 * of the other the scheduler itself knows when its run began, unless it has real-time priority. Until then the
 * reader takes the one for running and not the other: at first, and where such switches were seen, timers look
 * which task they interrupt (on_timer), the scheduler tick among them. A run of which both ends are hidden is in no
 * account, and nothing here tells: comparisons with clocks find it (kernel_accounts.c).
 *
 * The account of a cgroup is in cells, one for each CPU. A run belongs to the nearest watched cgroup at or above
 * that of the thread, so what is not watched may come and go, and the sums of those above are the reader's. Which
 * one that is is found by the ids of cgroups, from the thread's upwards, and remembered by the address of the
 * thread's: that one cannot be another cgroup's without one having been made (on_new_cgroup). A run counts for the
 * cgroup in which it began, but for what comes after a move (on_move).
 *
 * The same moment is where the CPU time of a process that ends is known in full: at the last switch of its
 * last thread (kernel_event.h). An exit record (taskstats) is made before, from a clock that is stale since
 * the last tick, and lacks a fifth to a half of a process that lives for milliseconds.
 *
 * Rejected: task storage, which needs an entry for each thread (made in the program, which can fail
 * without an error), an iterator to find what runs already, and a rule for the thread that two of them
 * meet; a bitmap, which needs an atomic OR (Linux 5.12) and a look at all its words. Nothing here needs
 * more than Linux 5.8 has: tp_btf, arrays that can be mapped, the ring buffer.
 */
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <stdbool.h>

#include "daemon/engine/kernel/kernel_event.h"
#include "lib/source/cpu_accounts_layout.h"

/* What is used of the kernel's structures; where it is in them is found out when the program is loaded. */
#define KERNEL __attribute__((preserve_access_index))

struct sched_entity {
	uint64_t exec_start; /* by the clock of the CPU's queue */
	uint64_t sum_exec_runtime;
	uint64_t prev_sum_exec_runtime; /* when it was last chosen to run; of the fair class alone */
} KERNEL;

struct sched_info {
	unsigned long long run_delay;
} KERNEL;

struct signal_struct {
	struct {
		int counter;
	} live;         /* threads that have not begun to end */
	int nr_threads; /* that were not released */
	/* Of threads that were released. */
	unsigned long long sum_sched_runtime;
	uint64_t utime, stime;
	unsigned long min_flt, maj_flt;
} KERNEL;

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} KERNEL;

struct kernfs_node {
	uint64_t id;
} KERNEL;

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} KERNEL;

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
} KERNEL;

enum cgroup_subsys_id { cpuacct_cgrp_id };

struct task_struct {
	unsigned int __state, flags, policy;
	int exit_state;
	int pid, tgid;
	struct sched_entity se;
	struct sched_info sched_info;
	struct task_struct *real_parent, *group_leader;
	uint64_t utime, stime, start_time, start_boottime;
	unsigned long min_flt, maj_flt;
	char comm[16];
	struct signal_struct *signal;
	struct css_set *cgroups;
} KERNEL;

/* Before Linux 5.14. */
struct task_struct___old {
	long state;
} KERNEL;

/* linux/sched.h */
#define TASK_DEAD 0x80
#define EXIT_ZOMBIE 0x20
#define PF_EXITING 0x4
#define SCHED_NORMAL 0
#define SCHED_BATCH 3
#define SCHED_IDLE 5

char gpl[] SEC("license") = "GPL"; /* of the functions that it calls */

/* The sizes of all maps are set before loading. */
#define MAPPED_ARRAY(name, what) \
	struct { \
		__uint(type, BPF_MAP_TYPE_ARRAY); \
		__uint(map_flags, BPF_F_MMAPABLE); \
		__uint(max_entries, 1); \
		__type(key, uint32_t); \
		__type(value, what); \
	} name SEC(".maps")

MAPPED_ARRAY(accounts, struct cpu_account);
MAPPED_ARRAY(slots, struct cpu_slot);   /* by CPU */
MAPPED_ARRAY(logs, uint64_t);           /* accounts; log_length for each CPU, in turns */
MAPPED_ARRAY(runs, struct cpu_run_log); /* by CPU */

/* The account of a process that ran on this CPU of late, as of a generation of the table. */
struct recent {
	uint32_t tgid, generation, account;
};

/* CPU_RECENT_LENGTH for each CPU: the table alone costs 60 ns a look. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct recent);
} recents SEC(".maps");

/* tgid -> account. Written by the reader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, uint32_t);
} watched SEC(".maps");

MAPPED_ARRAY(cells, struct cpu_cell); /* group_capacity for each CPU, in turns */

/* The watched cgroup for an address of a cgroup, as of a generation. CPU_RECENT_LENGTH for each CPU. */
struct recent_group {
	uint64_t cgroup;
	uint32_t generation, group;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, uint32_t);
	__type(value, struct recent_group);
} recent_groups SEC(".maps");

/* id of a cgroup -> watched cgroup. Written by the reader. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, uint64_t);
	__type(value, uint32_t);
} groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} events SEC(".maps");

struct cpu_accounts_words words;
uint32_t events_wanted;
uint64_t events_lost; /* the ring was full */
uint64_t missed;      /* switches that were not seen, as far as it was noticed */
uint64_t losses;      /* accounts that say so for the first time */
uint64_t moves;       /* between cgroups of the hierarchy that counts */
uint64_t burst_ns;    /* CLOCK_MONOTONIC, when the last one was told of */

const volatile uint32_t log_length = 1; /* a power of two */
const volatile uint32_t account_capacity, group_capacity, cpus;
const volatile bool by_cpuacct; /* cgroups are those of v1's cpuacct, else those of v2 */

static uint32_t account_of(uint32_t tgid)
{
	const uint32_t *account = tgid ? bpf_map_lookup_elem(&watched, &tgid) : NULL;

	return account ? *account : CPU_ACCOUNT_NONE;
}

/* The same, of a process that is to run on this CPU. The generation was read before. */
static uint32_t account_of_next(uint32_t cpu, uint32_t tgid, uint32_t generation)
{
	uint32_t at = cpu * CPU_RECENT_LENGTH + (tgid & (CPU_RECENT_LENGTH - 1));
	struct recent *recent = tgid ? bpf_map_lookup_elem(&recents, &at) : NULL;

	if (!recent)
		return CPU_ACCOUNT_NONE;
	if (recent->tgid != tgid || recent->generation != generation) {
		recent->account = account_of(tgid);
		recent->tgid = tgid;
		recent->generation = generation;
	}
	return recent->account;
}

/*
 * After the account, or what has this epoch, was changed: the reader changes the epoch before it looks at the log and
 * at accounts.
 */
static void put_into_log(struct cpu_slot *slot, uint32_t cpu, uint32_t index, uint32_t *last)
{
	uint32_t epoch = *(volatile uint32_t *)&words.epoch;

	if (*last == epoch)
		return;

	uint32_t at = cpu * log_length + ((uint32_t)slot->logged & (log_length - 1));
	uint64_t *entry = bpf_map_lookup_elem(&logs, &at);

	if (!entry)
		return;
	*last = epoch;
	*(volatile uint64_t *)entry = index;
	*(volatile uint64_t *)&slot->logged = slot->logged + 1;
}

/* ---- cgroups ---- */

/* 0: this kernel has none. */
static uint64_t cgroup_of(const struct task_struct *task)
{
	if (!bpf_core_field_exists(task->cgroups))
		return 0;
	if (!by_cpuacct)
		return (uint64_t)task->cgroups->dfl_cgrp;
	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id, cpuacct_cgrp_id))
		return 0;

	uint64_t number = bpf_core_enum_value(enum cgroup_subsys_id, cpuacct_cgrp_id);

	return (uint64_t)task->cgroups->subsys[number]->cgroup;
}

/* The same of a task of which nothing may be read directly. */
static uint64_t read_cgroup_of(const struct task_struct *task)
{
	struct cgroup_subsys_state *state = NULL;

	if (!bpf_core_field_exists(task->cgroups))
		return 0;

	const struct css_set *set = BPF_CORE_READ(task, cgroups);

	if (!by_cpuacct)
		return (uint64_t)BPF_CORE_READ(set, dfl_cgrp);
	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id, cpuacct_cgrp_id))
		return 0;
	bpf_probe_read_kernel(&state, sizeof(state),
			      &set->subsys[bpf_core_enum_value(enum cgroup_subsys_id, cpuacct_cgrp_id)]);
	return (uint64_t)BPF_CORE_READ(state, cgroup);
}

/* Deeper ones are in no watched cgroup: the walk through directories stops there, too (cgroup_walk). */
#define DEPTH_MAX 32

/* The nearest that is watched. */
static uint32_t find_group(uint64_t address)
{
	const struct cgroup *cgroup = (const void *)address;

	for (int i = 0; i < DEPTH_MAX && cgroup; i++) {
		uint64_t id = BPF_CORE_READ(cgroup, kn, id);
		const uint32_t *group = bpf_map_lookup_elem(&groups, &id);

		if (group)
			return *group;
		cgroup = BPF_CORE_READ(cgroup, self.parent, cgroup);
	}
	return CPU_ACCOUNT_NONE;
}

/* The same, by what this CPU remembers. The generation was read before. */
static uint32_t group_of(uint32_t cpu, uint64_t cgroup, uint32_t generation)
{
	uint32_t at = cpu * CPU_RECENT_LENGTH + ((uint32_t)(cgroup >> 10 ^ cgroup >> 16) & (CPU_RECENT_LENGTH - 1));
	struct recent_group *recent = bpf_map_lookup_elem(&recent_groups, &at);

	if (!recent)
		return CPU_ACCOUNT_NONE;
	if (recent->cgroup != cgroup || recent->generation != generation) {
		recent->group = find_group(cgroup);
		recent->cgroup = cgroup;
		recent->generation = generation;
	}
	return recent->group;
}

static __noinline void find_group_of_slot(struct cpu_slot *slot, uint32_t cpu, uint32_t generation)
{
	slot->group = group_of(cpu, *(volatile uint64_t *)&slot->cgroup, generation);
	slot->group_generation = generation;
}

/* What runs is in it. Nothing is computed with an address before it was stored: the verifier forbids it. */
static __always_inline void begin_group(struct cpu_slot *slot, uint32_t cpu, uint64_t cgroup)
{
	uint32_t generation = *(volatile uint32_t *)&words.group_generation;

	if (slot->cgroup == cgroup && slot->group_generation == generation)
		return;
	*(volatile uint64_t *)&slot->cgroup = cgroup;
	find_group_of_slot(slot, cpu, generation);
}

/* The reader's epoch must not be read before the cell is changed: an atomic addition orders that. */
static void add_to_group(struct cpu_slot *slot, uint32_t cpu, uint32_t group, uint64_t run_ns)
{
	uint32_t at = cpu * group_capacity + group;
	struct cpu_cell *cell = group < group_capacity ? bpf_map_lookup_elem(&cells, &at) : NULL;

	if (!cell)
		return;
	__sync_fetch_and_add(&cell->run_ns, run_ns);
	put_into_log(slot, cpu, account_capacity + group, &cell->epoch);
}

/* How much of the slot's run was before then. */
static uint64_t part_until(const struct cpu_slot *slot, uint64_t at_ns, uint64_t run_ns)
{
	uint64_t part_ns = at_ns > slot->since_ns ? at_ns - slot->since_ns : 0;

	return part_ns < run_ns ? part_ns : run_ns;
}

/* In a change: the sequence is odd. Returns where all of the run belongs; CPU_ACCOUNT_NONE: to several. */
static uint32_t end_group(struct cpu_slot *slot, uint32_t cpu, const struct task_struct *task, uint64_t run_ns)
{
	if (*(volatile uint64_t *)&slot->moved_sequence + 1 == slot->sequence) {
		uint64_t before_ns = part_until(slot, slot->moved_first_ns, run_ns);
		uint64_t counted_ns = part_until(slot, slot->moved_last_ns, run_ns); /* with that of others */

		add_to_group(slot, cpu, slot->moved_from, before_ns);
		add_to_group(slot, cpu, slot->moved_to, run_ns - counted_ns);
		return CPU_ACCOUNT_NONE;
	}
	if (slot->group_generation != *(volatile uint32_t *)&words.group_generation)
		begin_group(slot, cpu, cgroup_of(task));
	add_to_group(slot, cpu, slot->group, run_ns);
	return slot->group;
}

/* ---- runs ---- */

/* exec by another thread than the first gives it the first one's id. */
static bool is_in_slot(const struct cpu_slot *slot, const struct task_struct *task)
{
	uint32_t tid = (uint32_t)task->pid, tgid = (uint32_t)task->tgid;

	return slot->tid == tid || (tid == tgid && slot->tgid == tgid);
}

static bool is_fair(const struct task_struct *task)
{
	return task->policy == SCHED_NORMAL || task->policy == SCHED_BATCH || task->policy == SCHED_IDLE;
}

/* This one has lost a run. */
static void note_loss(struct cpu_slot *slot, uint32_t cpu, uint32_t tgid)
{
	uint32_t index = account_of(tgid);
	struct cpu_account *account = index == CPU_ACCOUNT_NONE ? NULL : bpf_map_lookup_elem(&accounts, &index);

	if (!account)
		return;
	if (!account->lost) {
		account->lost = 1;
		__sync_fetch_and_add(&losses, 1);
	}
	put_into_log(slot, cpu, index, &account->epoch);
}

/* What the host and interrupts may have taken of a run. */
#define TAKEN_MAX_NS 10000000

/*
 * The slot did not have a run that began then. If the process was taken over in it, its base has a part of
 * the run, which is to be counted in full.
 */
static void check_base(struct cpu_slot *slot, uint32_t cpu, uint32_t tgid, uint64_t began_ns)
{
	uint32_t index = account_of(tgid);
	struct cpu_account *account = index == CPU_ACCOUNT_NONE ? NULL : bpf_map_lookup_elem(&accounts, &index);

	if (account && (account->since_ns == UINT64_MAX || began_ns < account->since_ns + TAKEN_MAX_NS))
		note_loss(slot, cpu, tgid);
}

static uint64_t faults_of(const struct task_struct *task)
{
	return task->min_flt + task->maj_flt;
}

/* Sets what the slot would say of the run, as if there had been a page fault. False: it is not known. */
static bool find_beginning(struct cpu_slot *slot, uint32_t cpu, const struct task_struct *task)
{
	__sync_fetch_and_add(&missed, 1);
	note_loss(slot, cpu, slot->tgid);
	if (!is_fair(task)) {
		note_loss(slot, cpu, (uint32_t)task->tgid);
		return false;
	}
	slot->run_ns = task->se.prev_sum_exec_runtime;
	slot->since_ns = bpf_ktime_get_ns() - (task->se.sum_exec_runtime - slot->run_ns);
	check_base(slot, cpu, (uint32_t)task->tgid, slot->since_ns);
	slot->wait_ns = task->sched_info.run_delay;
	slot->faults = faults_of(task) - 1;
	slot->account = account_of((uint32_t)task->tgid);
	slot->generation = *(volatile uint32_t *)&words.generation;
	slot->moved_sequence = UINT64_MAX;
	if (words.groups)
		begin_group(slot, cpu, cgroup_of(task));
	return true;
}

/*
 * The task that a timer interrupted is not the one in the slot. After a tick its run time is up to date, so
 * when its run began is known.
 */
static void correct_slot(struct cpu_slot *slot, uint32_t cpu, const struct task_struct *task)
{
	uint64_t run_ns = BPF_CORE_READ(task, se.sum_exec_runtime);
	uint64_t began_ns = BPF_CORE_READ(task, se.prev_sum_exec_runtime);
	uint32_t policy = BPF_CORE_READ(task, policy), tgid = (uint32_t)BPF_CORE_READ(task, tgid);

	__sync_fetch_and_add(&missed, 1);
	note_loss(slot, cpu, slot->tgid);
	if (policy != SCHED_NORMAL && policy != SCHED_BATCH && policy != SCHED_IDLE) {
		note_loss(slot, cpu, tgid);
		began_ns = run_ns;
	}
	slot->since_ns = bpf_ktime_get_ns() - (run_ns - began_ns);
	check_base(slot, cpu, tgid, slot->since_ns);
	slot->run_ns = began_ns;
	slot->wait_ns = BPF_CORE_READ(task, sched_info.run_delay);
	slot->faults = BPF_CORE_READ(task, min_flt) + BPF_CORE_READ(task, maj_flt) - 1;
	slot->tid = (uint32_t)BPF_CORE_READ(task, pid);
	slot->tgid = tgid;
	slot->generation = *(volatile uint32_t *)&words.generation;
	slot->account = account_of(tgid);
	slot->moved_sequence = UINT64_MAX;
	if (words.groups)
		begin_group(slot, cpu, read_cgroup_of(task));
}

/* Its place is written before it is counted. */
static void log_run(const struct cpu_slot *slot, uint32_t cpu, const struct cpu_run *run)
{
	struct cpu_run_log *log = bpf_map_lookup_elem(&runs, &cpu);

	if (!log)
		return;

	uint64_t logged = log->logged;
	struct cpu_run *at = &log->runs[logged & (CPU_RUNS_LENGTH - 1)];

	at->since_ns = slot->since_ns;
	at->run_ns = run->run_ns;
	at->wait_ns = run->wait_ns;
	at->account = run->account;
	at->group = run->group;
	barrier();
	*(volatile uint64_t *)&log->logged = logged + 1;
}

/* So long a run is one while runs are logged: what sleeps meanwhile is told, but not again and again. */
#define BURST_NS 1000000
#define BURST_AGAIN_NS 20000000

/* Returns whether it was a burst. */
static bool end_run(struct cpu_slot *slot, uint32_t cpu, const struct task_struct *task)
{
	if (slot->tid == CPU_SLOT_UNKNOWN)
		return false;
	if (task->pid == 0) {
		if (slot->tid != 0) { /* what was hidden came after it, and left the CPU idle */
			__sync_fetch_and_add(&missed, 1);
			note_loss(slot, cpu, slot->tgid);
		}
		return false;
	}

	if (!is_in_slot(slot, task) && !find_beginning(slot, cpu, task))
		return false;

	uint32_t index = slot->account;

	if (slot->generation != *(volatile uint32_t *)&words.generation)
		index = account_of((uint32_t)task->tgid);

	struct cpu_account *account = index == CPU_ACCOUNT_NONE ? NULL : bpf_map_lookup_elem(&accounts, &index);

	struct cpu_run run = {
		.run_ns = task->se.sum_exec_runtime - slot->run_ns,
		.wait_ns = task->sched_info.run_delay - slot->wait_ns,
		.account = index,
		.group = CPU_ACCOUNT_NONE,
	};

	if (words.groups)
		run.group = end_group(slot, cpu, task, run.run_ns);

	bool logged = words.runs_wanted && (index != CPU_ACCOUNT_NONE || run.group != CPU_ACCOUNT_NONE);

	if (logged)
		log_run(slot, cpu, &run);
	logged &= run.run_ns >= BURST_NS;
	if (!account)
		return logged;

	uint64_t faults = faults_of(task) - slot->faults;

	if (faults > 0)
		__sync_fetch_and_add(&account->changes, faults);
	__sync_fetch_and_add(&account->wait_ns, run.wait_ns);
	__sync_fetch_and_add(&account->runs, 1);
	if (task->flags & PF_EXITING)
		__sync_fetch_and_add(&account->ending_ns, run.run_ns);
	__sync_fetch_and_add(&account->run_ns, run.run_ns);
	put_into_log(slot, cpu, index, &account->epoch);
	return logged;
}

/* One began, or begins to end. The process runs: it gets into a log when that has ended. */
static void count_thread(uint32_t tgid)
{
	uint32_t index = account_of(tgid);
	struct cpu_account *account = index == CPU_ACCOUNT_NONE ? NULL : bpf_map_lookup_elem(&accounts, &index);

	if (account)
		__sync_fetch_and_add(&account->changes, 1);
}

/* The compiler moves nothing over these, and the CPU no store (cpu_accounts_layout.h). */
static uint64_t begin_change(struct cpu_slot *slot)
{
	uint64_t sequence = slot->sequence;

	*(volatile uint64_t *)&slot->sequence = sequence + 1;
	barrier();
	return sequence;
}

static void end_change(struct cpu_slot *slot, uint64_t sequence)
{
	barrier();
	*(volatile uint64_t *)&slot->sequence = sequence + 2;
}

/*
 * CLOCK_MONOTONIC when the run began. It costs 60 ns to ask, so it is the scheduler's own time of that, and how far
 * that is behind: asked once in so long, in which that grows by what interrupts and the host take. Where it is another
 * one than before, it is asked again at the next switch: the host may have come in between the two times.
 */
#define CLOCK_KEPT_NS 100000
#define CLOCK_SAME_NS 5000

static uint64_t since_of(struct cpu_slot *slot, const struct task_struct *task)
{
	uint64_t clock_ns = task->se.exec_start, now_ns, behind_ns;

	if (clock_ns - slot->clock_ns < CLOCK_KEPT_NS)
		return clock_ns + slot->behind_ns;
	now_ns = bpf_ktime_get_ns();
	behind_ns = now_ns - clock_ns;
	slot->clock_ns = clock_ns;
	if (behind_ns - slot->behind_ns + CLOCK_SAME_NS > 2 * CLOCK_SAME_NS)
		slot->clock_ns -= CLOCK_KEPT_NS;
	slot->behind_ns = behind_ns;
	return now_ns;
}

/* Of an idle CPU nothing is counted. */
static void begin_run(struct cpu_slot *slot, uint32_t cpu, const struct task_struct *task)
{
	if (task->pid != 0) {
		slot->since_ns = since_of(slot, task);
		if (words.groups)
			begin_group(slot, cpu, cgroup_of(task));
	}
	slot->run_ns = task->se.sum_exec_runtime;
	slot->wait_ns = task->sched_info.run_delay;
	slot->faults = faults_of(task);
	slot->tid = (uint32_t)task->pid;
	slot->tgid = (uint32_t)task->tgid;
	slot->generation = *(volatile uint32_t *)&words.generation;
	slot->account = account_of_next(cpu, slot->tgid, slot->generation);
}

/* ---- events ---- */

static void say(enum kernel_event_kind kind, const struct task_struct *task, int32_t ppid)
{
	struct kernel_event *event;

	if (!events_wanted || task->pid != task->tgid)
		return;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&events_lost, 1);
		return;
	}
	*event = (struct kernel_event){ .kind = kind, .pid = task->tgid, .ppid = ppid };
	bpf_ringbuf_submit(event, 0);
}

static void say_burst(uint64_t now_ns)
{
	struct kernel_event *event;

	if (!events_wanted || (int64_t)(now_ns - burst_ns) < BURST_AGAIN_NS)
		return;
	burst_ns = now_ns;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return; /* so its reader is awake */
	*event = (struct kernel_event){ .kind = KERNEL_EVENT_BURST };
	bpf_ringbuf_submit(event, 0);
}

/* A run that goes on. */
static void look_for_burst(const struct cpu_slot *slot)
{
	if (!words.runs_wanted ||
	    (slot->account == CPU_ACCOUNT_NONE && (!words.groups || slot->group == CPU_ACCOUNT_NONE)))
		return;

	uint64_t now_ns = bpf_ktime_get_ns();

	if ((int64_t)(now_ns - slot->since_ns) >= BURST_NS)
		say_burst(now_ns);
}

static bool is_dead(const struct task_struct *task)
{
	const struct task_struct___old *old = (const void *)task;

	if (!(task->flags & PF_EXITING))
		return false;
	if (bpf_core_field_exists(old->state))
		return old->state & TASK_DEAD;
	return task->__state & TASK_DEAD;
}

static uint64_t larger_of(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}

/*
 * Threads other than the first release themselves before their last switch, and are then part of the
 * signal_struct's sums. The first is a zombie until it is waited for, and part of them thereafter: if
 * that is happening now, what it is in the middle of is not known, and the larger one is right for a
 * process of one thread, and never more than there was.
 *
 * The sums are read before the state: a zombie then was none of them.
 */
static void sum_up(struct kernel_end *end, const struct task_struct *leader, const struct signal_struct *signal)
{
	uint64_t cpu_ns = *(const volatile unsigned long long *)&signal->sum_sched_runtime;
	uint64_t user_ns = signal->utime, system_ns = signal->stime;
	uint64_t minor = signal->min_flt, major = signal->maj_flt;
	bool apart = *(const volatile int *)&leader->exit_state == EXIT_ZOMBIE;

	if (apart) {
		end->cpu_ns = cpu_ns + leader->se.sum_exec_runtime;
		end->user_ns = user_ns + leader->utime;
		end->system_ns = system_ns + leader->stime;
		end->minor_faults = minor + leader->min_flt;
		end->major_faults = major + leader->maj_flt;
	} else {
		end->cpu_ns = larger_of(cpu_ns, leader->se.sum_exec_runtime);
		end->user_ns = larger_of(user_ns, leader->utime);
		end->system_ns = larger_of(system_ns, leader->stime);
		end->minor_faults = larger_of(minor, leader->min_flt);
		end->major_faults = larger_of(major, leader->maj_flt);
	}
}

/*
 * The last switch of a thread. Of a process with several it is the last one if all others were released, but
 * for the first one, and that has no switch to come. Two that end at the same moment on two CPUs may both be
 * the last.
 */
static void say_end(const struct task_struct *task)
{
	const struct signal_struct *signal = task->signal;
	const struct task_struct *leader = task->group_leader;
	struct kernel_end *end;

	if (!events_wanted || signal->live.counter > 0 || signal->nr_threads > 1 ||
	    (task != leader && leader->tgid == task->tgid && !is_dead(leader)))
		return;
	end = bpf_ringbuf_reserve(&events, sizeof(*end), 0);
	if (!end) {
		__sync_fetch_and_add(&events_lost, 1);
		return;
	}
	end->event = (struct kernel_event){
		.kind = KERNEL_EVENT_END,
		.pid = task->tgid,
		.ppid = leader->real_parent->tgid,
	};
	sum_up(end, leader, signal);
	end->ended_ns = bpf_ktime_get_ns();
	end->elapsed_ns = end->ended_ns - leader->start_time;
	end->began_ns = leader->start_boottime;
	__builtin_memcpy(end->comm, leader->comm, sizeof(end->comm));
	bpf_ringbuf_submit(end, 0);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct cpu_slot *slot = bpf_map_lookup_elem(&slots, &cpu);

	if (!slot)
		return 0;

	uint64_t sequence = begin_change(slot);

	bool burst = end_run(slot, cpu, prev);

	begin_run(slot, cpu, next);
	end_change(slot, sequence);
	if (burst)
		say_burst(bpf_ktime_get_ns());
	if (is_dead(prev))
		say_end(prev);
	return 0;
}

static void count_timer(uint32_t cpu)
{
	struct cpu_run_log *log = bpf_map_lookup_elem(&runs, &cpu);

	if (log)
		log->timers++;
}

/*
 * The scheduler tick is among them. Not of what is idle: its ticks stop, and nothing is counted. Timers do not
 * interrupt a switch.
 */
SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(on_timer)
{
	uint32_t cpu = bpf_get_smp_processor_id();
	struct cpu_slot *slot = bpf_map_lookup_elem(&slots, &cpu);
	uint64_t ids = bpf_get_current_pid_tgid();
	uint32_t tid = (uint32_t)ids, tgid = (uint32_t)(ids >> 32);

	count_timer(cpu);
	if (!slot || tid == 0 || slot->tid == CPU_SLOT_UNKNOWN)
		return 0;
	if (slot->tid == tid || (tid == tgid && slot->tgid == tgid)) {
		look_for_burst(slot);
		return 0;
	}

	uint64_t sequence = begin_change(slot);

	correct_slot(slot, cpu, (const struct task_struct *)bpf_get_current_task());
	end_change(slot, sequence);
	return 0;
}

/* When the last thread of a process begins to end, the reader asks from then on whether it is still there. */
SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	if (task->signal->live.counter > 0) {
		count_thread((uint32_t)task->tgid);
		return 0;
	}

	uint32_t index = account_of((uint32_t)task->tgid);
	struct cpu_account *account = index == CPU_ACCOUNT_NONE ? NULL : bpf_map_lookup_elem(&accounts, &index);

	if (account)
		account->exited = 1;
	return 0;
}

/* The account of its id is its own: it was in /proc before this is told, and was entered. It has not run yet. */
static bool is_entered(const struct task_struct *child, uint32_t index)
{
	const struct cpu_account *account = bpf_map_lookup_elem(&accounts, &index);

	return account && account->since_ns != UINT64_MAX && account->since_ns >= child->start_time;
}

/* A new process cannot be the one that was watched by that id, which CPUs may remember. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	uint32_t tgid = (uint32_t)child->tgid;

	if (child->pid != child->tgid) {
		count_thread(tgid);
		return 0;
	}

	uint32_t index = account_of(tgid);

	if (index != CPU_ACCOUNT_NONE && !is_entered(child, index) && bpf_map_delete_elem(&watched, &tgid) == 0)
		__sync_fetch_and_add(&words.generation, 1);
	say(KERNEL_EVENT_FORK, child, child->real_parent->tgid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	say(KERNEL_EVENT_EXEC, task, 0);
	return 0;
}

/*
 * That runs on another CPU, or on this one. Moves exclude each other; a run that ends now is of the cgroup in
 * which it began, or the other one: the difference is what this takes.
 */
static void split_run(struct cpu_slot *slot, uint32_t cpu, uint64_t sequence, uint32_t to)
{
	uint64_t now_ns = bpf_ktime_get_ns(), last_ns = slot->moved_last_ns;
	uint32_t own = bpf_get_smp_processor_id();
	struct cpu_slot *own_slot = bpf_map_lookup_elem(&slots, &own);

	if (slot->moved_sequence == sequence) {
		if (own_slot && now_ns > last_ns)
			add_to_group(own_slot, own, slot->moved_to, now_ns - last_ns);
	} else {
		slot->moved_from = slot->group_generation == *(volatile uint32_t *)&words.group_generation
					   ? slot->group
					   : find_group(slot->cgroup);
		slot->moved_first_ns = now_ns;
	}
	slot->moved_last_ns = now_ns;
	slot->moved_to = to;
	barrier();
	*(volatile uint64_t *)&slot->moved_sequence = sequence;
}

/*
 * If what moves runs there. Global and of numbers alone: so the verifier looks at it once, and not again for each CPU
 * of the loop, which would be more than it does from 40 CPUs on.
 */
__noinline int move_on_cpu(uint32_t cpu, uint32_t id, int threadgroup, uint32_t group)
{
	struct cpu_slot *slot = bpf_map_lookup_elem(&slots, &cpu);

	if (!slot)
		return 0;

	uint64_t sequence = *(volatile uint64_t *)&slot->sequence;

	if (sequence & 1 || slot->tid == CPU_SLOT_UNKNOWN)
		return 0;
	if (threadgroup ? slot->tgid == id : slot->tid == id)
		split_run(slot, cpu, sequence, group);
	return 0;
}

/* The CPUs that are looked at when something is moved. */
#define CPUS_MAX 1024

/* With threadgroup all threads move, and it is of the first; else of one. */
SEC("tp_btf/cgroup_attach_task")
int BPF_PROG(on_move, struct cgroup *to, const char *path, struct task_struct *task, bool threadgroup)
{
	say(KERNEL_EVENT_MOVE, task, 0);
	if (!words.groups)
		return 0;
	/* Of a first thread that has ended it is not known in which hierarchy its process was moved. */
	if (cgroup_of(task) == (uint64_t)to || (task->flags & PF_EXITING))
		__sync_fetch_and_add(&moves, 1);
	if (cgroup_of(task) != (uint64_t)to)
		return 0;

	uint32_t id = threadgroup ? (uint32_t)task->tgid : (uint32_t)task->pid, group = find_group((uint64_t)to);

	for (uint32_t cpu = 0; cpu < CPUS_MAX && cpu < cpus; cpu++)
		move_on_cpu(cpu, id, threadgroup, group);
	return 0;
}

/* Before anything can be in it. It may be where another one was. */
SEC("tp_btf/cgroup_mkdir")
int BPF_PROG(on_new_cgroup)
{
	if (words.groups)
		__sync_fetch_and_add(&words.group_generation, 1);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task)
{
	say(KERNEL_EVENT_RENAME, task, 0);
	return 0;
}
