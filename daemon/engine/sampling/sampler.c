/*
 * sampler.c: one or several sampler threads of a session. Each waits for its deadline, takes what the
 * control thread has handed over, reads its targets and publishes a tick.
 *
 * The tick allocates nothing, logs nothing, locks nothing and opens no files, except those of processes
 * whose descriptors are closed (read gate, process.h). A tick begins in the ring before anything is
 * read: if a blocking reader holds the next page there is nothing to read for, and the schedule backs
 * off.
 *
 * Records are written for targets that changed, and for those that had none for a heartbeat; the source
 * keeps the list (source_seen), so idle targets cost nothing in between. After a tick in which records
 * were lost all are written: the ring knows which of them it has not got. When a process wakes that was
 * not read in the tick before, two records are written: that it was unchanged when it was last read,
 * and its new sample.
 *
 * Several threads. Targets are placed by the control thread, so placing needs no lock: the number of
 * each thread's targets changes when one is handed over and when it comes back. The first thread leads:
 * it keeps the CPU budget of the process and writes the interval to the ring; the others follow its
 * slowdown. They tick in turn, thread k that part of an interval after the first. Each source has room
 * for all targets, since groups do not split evenly; the limit on their sum is checked here. A single
 * thread checks it itself, exactly.
 *
 * Rejected: moving targets between threads to even them out: the ring would have to say so, and every
 * reader would have to understand it. Processes come and go, and new ones go where there are fewest.
 */
#include "daemon/engine/sampling/sampler.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/model/pacing.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/source/cpu_accounts_layout.h"
#include "lib/source/source.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/futex.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- the timer of a thread ---- */

/*
 * Waits for absolute times in slices: the thread shows that it is alive however long it waits, and a
 * call ends the wait. A call is a flag that is looked at between slices. Rejected: a futex or a signal
 * that ends a sleep at once. No caller is in a hurry, and the accuracy of the ticks was measured with
 * plain clock_nanosleep.
 */
struct deadline_timer {
	struct clock clock;
	_Atomic uint64_t pulse_ns;
	_Atomic bool called;
	_Atomic uint32_t naps;
};

/*
 * Where sleeping ends and yielding or spinning begins: about the 99th percentile of a wake-up's
 * lateness on an idle machine.
 */
#define YIELD_NS (50 * NS_PER_US)
#define SPIN_NS (100 * NS_PER_US)

/* The longest uninterrupted sleep: a caller waits no longer, and no pulse of a healthy thread is older. */
#define SLICE_NS (100 * NS_PER_MS)

/* Any thread: what it has handed over before is not to wait for the end of a nap. */
static void deadline_timer_rouse(struct deadline_timer *deadline_timer)
{
	if (atomic_exchange(&deadline_timer->naps, 0) != 0)
		syscall(SYS_futex, &deadline_timer->naps, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Any thread: waits of the owner end within 100 ms, and later ones at once, until it answers. */
static void deadline_timer_call(struct deadline_timer *deadline_timer)
{
	atomic_store(&deadline_timer->called, true);
	deadline_timer_rouse(deadline_timer);
}

static mono_t deadline_timer_pulse(const struct deadline_timer *deadline_timer)
{
	return (mono_t){ atomic_load_explicit(&deadline_timer->pulse_ns, memory_order_relaxed) };
}

static void deadline_timer_beat(struct deadline_timer *deadline_timer, mono_t now)
{
	atomic_store_explicit(&deadline_timer->pulse_ns, now.ns, memory_order_relaxed);
}

/*
 * Clears the call: what was stored before it is visible from here on, so look for it after this. An
 * exchange and not a store, because it must see what came before the call that it clears.
 */
static void deadline_timer_answer(struct deadline_timer *deadline_timer)
{
	if (atomic_load_explicit(&deadline_timer->called, memory_order_relaxed))
		atomic_exchange_explicit(&deadline_timer->called, false, memory_order_acq_rel);
}

static bool called(const struct deadline_timer *deadline_timer)
{
	return atomic_load_explicit(&deadline_timer->called, memory_order_relaxed);
}

static void deadline_timer_sleep(struct deadline_timer *deadline_timer, mono_t until)
{
	while (!called(deadline_timer)) {
		mono_t now = clock_mono(&deadline_timer->clock);
		int64_t left = mono_diff(until, now);

		deadline_timer_beat(deadline_timer, now);
		if (left <= 0)
			return;
		real_clock_sleep_until(left > (int64_t)SLICE_NS ? mono_add(now, SLICE_NS) : until);
	}
}

/* Sleeps, until it is called or roused: deadline_timer_rouse. */
static void deadline_timer_nap(struct deadline_timer *deadline_timer, mono_t until)
{
	struct timespec at = { .tv_sec = (time_t)(until.ns / NS_PER_S), .tv_nsec = (long)(until.ns % NS_PER_S) };

	deadline_timer_beat(deadline_timer, clock_mono(&deadline_timer->clock));
	atomic_store(&deadline_timer->naps, 1);
	if (!atomic_load(&deadline_timer->called))
		syscall(SYS_futex, &deadline_timer->naps, FUTEX_WAIT_BITSET_PRIVATE, 1, &at, NULL,
			FUTEX_BITSET_MATCH_ANY);
	atomic_store(&deadline_timer->naps, 0);
}

static void pause_briefly(enum config_wait wait)
{
	if (wait == CONFIG_WAIT_YIELD)
		sched_yield();
#if defined(__x86_64__) || defined(__i386__)
	else
		__builtin_ia32_pause();
#endif
}

/*
 * Sleeps, and is on time by yielding or spinning at the end, if wait says so: for most_ns at most.
 */
static void deadline_timer_wait(struct deadline_timer *deadline_timer, mono_t deadline, enum config_wait wait,
				uint64_t most_ns)
{
	uint64_t early = wait == CONFIG_WAIT_SPIN ? SPIN_NS : wait == CONFIG_WAIT_YIELD ? YIELD_NS : 0;

	early = early < most_ns ? early : most_ns;
	deadline_timer_sleep(deadline_timer, mono_sub(deadline, early));
	while (early && !called(deadline_timer) && mono_diff(deadline, clock_mono(&deadline_timer->clock)) > 0)
		pause_briefly(wait);
}

/* ---- the CPU budget ---- */

/*
 * The CPU time that the process may take: the leading thread measures (cpu_budget.h) and sets how much
 * slower than configured all threads are; the others follow. {0} but for stats before budget_restart.
 */
struct budget {
	struct cpu_budget cpu_budget;
	const struct budget *leader; /* NULL: this one */
	const struct stats *stats;   /* of this thread */
	unsigned threads;            /* how many do about the same as this one; 0: it is the only one */
	_Atomic uint64_t quota_ns;   /* as in struct samplers_supply, but 0: no quota */
	_Atomic uint64_t throttled_ns, stolen_ns;
	clockid_t exempt[2]; /* of threads whose CPU time is not budgeted */
	unsigned exempt_count;
	_Atomic clockid_t others; /* of the thread that does what others make it do; 0: none */
	_Atomic uint32_t slowdown;
	_Atomic uint64_t backs_off_since; /* from processes that sleep, to keep to it; 0: it does not */
	_Atomic uint32_t share_ppm;
};

/* CPU time of this process that counts. */
static uint64_t spent(const struct budget *budget)
{
	uint64_t all = real_clock_process_cpu();
	uint64_t exempt = 0;

	for (unsigned i = 0; i < budget->exempt_count; i++)
		exempt += real_clock_cpu_of(budget->exempt[i]);
	return all > exempt ? all - exempt : 0;
}

/* What was used, as of now. The calling thread is the one that the budget is of. */
static struct cpu_use used(const struct budget *budget, uint64_t saved_ns)
{
	unsigned threads = budget->threads ? budget->threads : 1;
	clockid_t others = atomic_load_explicit(&budget->others, memory_order_relaxed);

	return (struct cpu_use){
		.cpu_ns = spent(budget),
		.sampling_ns = real_clock_thread_cpu() * threads,
		.others_ns = others ? real_clock_cpu_of(others) : 0,
		.saved_ns = saved_ns,
		.slots = budget->stats->total_slots,
		.snapshots = budget->stats->total_snapshots,
	};
}

/* CPU seconds per second. */
static double quota_of(const struct budget *budget)
{
	const struct budget *leader = budget->leader ? budget->leader : budget;

	return (double)atomic_load_explicit(&leader->quota_ns, memory_order_relaxed) / (double)NS_PER_S;
}

/*
 * No slowdown; CPU time that was spent before does not count. percent: of one core; <= 0: no limit.
 * may_back_off: from processes that sleep, before it slows down.
 */
static void budget_restart(struct budget *budget, double percent, bool may_back_off, mono_t now)
{
	struct cpu_use before = used(budget, 0);

	cpu_budget_init(&budget->cpu_budget, percent, now, &before);
	budget->cpu_budget.may_back_off = may_back_off;
	atomic_store_explicit(&budget->slowdown, 1, memory_order_relaxed);
	atomic_store_explicit(&budget->backs_off_since, 0, memory_order_relaxed);
}

/* At the start: under a quota the factor is one from which it finds its rate. Returns the factor. */
static uint32_t budget_start_slowly(struct budget *budget)
{
	cpu_budget_begin(&budget->cpu_budget, quota_of(budget));
	atomic_store_explicit(&budget->slowdown, budget->cpu_budget.factor, memory_order_relaxed);

	return budget->cpu_budget.factor;
}

static uint64_t budget_backs_off_since(const struct budget *budget)
{
	const struct budget *leader = budget->leader ? budget->leader : budget;

	return atomic_load_explicit(&leader->backs_off_since, memory_order_relaxed);
}

static void budget_charge(struct budget *budget, enum samplers_charge charge, clockid_t thread_clock)
{
	if (charge == SAMPLERS_CHARGE_PART)
		atomic_store_explicit(&budget->others, thread_clock, memory_order_relaxed);
	else if (budget->exempt_count < ARRAY_LEN(budget->exempt))
		budget->exempt[budget->exempt_count++] = thread_clock;
}

static uint32_t budget_slowdown(const struct budget *budget)
{
	return atomic_load_explicit(&budget->slowdown, memory_order_relaxed);
}

static void note_backoff(struct budget *budget, mono_t now)
{
	bool before = atomic_load_explicit(&budget->backs_off_since, memory_order_relaxed) != 0;

	if (budget->cpu_budget.backs_off != before)
		atomic_store_explicit(&budget->backs_off_since, before ? 0 : now.ns, memory_order_relaxed);
}

/*
 * To be called often. saved_ns: what backing off has saved all threads so far. Sets the factor in force
 * from now on; whether a period has ended.
 */
static bool budget_look(struct budget *budget, mono_t now, uint64_t saved_ns, uint32_t *ret_factor)
{
	bool over = cpu_budget_due(&budget->cpu_budget, now);

	if (budget->leader) {
		if (over)
			budget->cpu_budget.since = now;
		*ret_factor = budget_slowdown(budget->leader);
	} else {
		*ret_factor = budget->cpu_budget.factor;
		if (over) {
			struct cpu_use until_now = used(budget, saved_ns);

			*ret_factor = cpu_budget_step(&budget->cpu_budget, now, &until_now, quota_of(budget));
			atomic_store_explicit(&budget->share_ppm, (uint32_t)(budget->cpu_budget.share * 1e6),
					      memory_order_relaxed);
		}
		note_backoff(budget, now);
	}
	atomic_store_explicit(&budget->slowdown, *ret_factor, memory_order_relaxed);

	return over;
}

static double budget_share(const struct budget *budget)
{
	return atomic_load_explicit(&budget->share_ppm, memory_order_relaxed) / 1e6;
}

/* ---- real-time priority, and what bounds it ----
 *
 * A thread has real-time priority where that is allowed, so that it runs on time when the CPUs are
 * taken, and under a watch, so that it cannot take one itself; else a short time slice. What does
 * not say otherwise is the thread's own. Nothing here waits or allocates.
 *
 * SCHED_FIFO at priority 1, the lowest: such a thread takes a CPU from any normal one at once, and
 * waits only for other real-time threads. SCHED_RESET_ON_FORK: what it started would be normal. It
 * is for threads that sleep nearly always, and this is made sure of three times:
 *
 * 	RLIMIT_RTTIME   a thread that runs for 0.2 s without a sleep gets SIGXCPU and makes itself normal
 * 	                in the handler. The kernel sends it to the process, but prefers the thread that
 * 	                ran too long; the others block it or, as the main thread, do not run then.
 * 	scheduling_look one that uses more than its share of a core over some seconds is made normal. The
 * 	                CPU budget acts first: it lengthens the interval.
 * 	the kernel      kernel.sched_rt_runtime_us, by default: all real-time threads of a CPU together
 * 	                leave a twentieth of it to the others.
 *
 *                    scheduling_start, permitted
 *      (normal) ──────────────────────────────────────▶ (real-time)
 *          ▲ ▲──────── SIGXCPU, or scheduling_look ◀────────┘ ▲
 *          │           "withdrawn", for 60 s, then 120 s ...  │
 *          └──────────────── when that is over ───────────────┘
 *
 * A thread that has real-time priority and waits for a CPU all the same is throttled, by
 * sched_rt_runtime_us or by cpu.rt_runtime_us of its cgroup (v1, CONFIG_RT_GROUP_SCHED), or there are
 * real-time threads that never sleep. It is better off as a normal one: those are never left without
 * a CPU for long.
 *
 * No lock that a normal thread may hold is waited for in a tick: the queues have none, and the lock of
 * the ring's counters is tried a limited number of times (ring_writer.c). sched_yield(2) lets no normal
 * thread run, so the wait before a deadline must end in a sleep.
 *
 * Without permission: a slice of 0.1 ms makes the virtual deadline of a normal thread earlier, so that
 * it is chosen soon after it woke up. It gets no more CPU than its weight, so it helps where few
 * threads compete. Rejected: SCHED_DEADLINE, which needs CAP_SYS_NICE, refuses threads that are bound to
 * CPUs, and whose run time would have to be known before.
 */

#define SLICE_SHORT_NS (100 * NS_PER_US)

/* Of a period, beyond which real-time priority does not help. */
#define HELD_SHARE 0.5

/* struct sched_attr of linux/sched/types.h, which some C libraries define too; its first version. */
struct sched_attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

#define RESET_ON_FORK 1u

/* RLIMIT_RTTIME of the process while a thread has real-time priority. */
#define SCHEDULING_RUN_MAX_NS (200 * NS_PER_MS)

/* Periods in a row (scheduling_look), as many as the CPU budget needs to make the interval longer, and one. */
#define SCHEDULING_PERIODS 3u

/* Of a core, whatever the budget: a real-time thread leaves at least half of it to others. */
#define SCHEDULING_SHARE_MAX 0.5

/* How long a thread whose priority was withdrawn keeps none: the first time, and at most; it doubles each time. */
#define SCHEDULING_WITHDRAWN_NS (60 * NS_PER_S)
#define SCHEDULING_WITHDRAWN_MAX_NS (3600 * NS_PER_S)

/* { .schedstat = -1 } until scheduling_start. */
struct scheduling {
	_Atomic int class, reason; /* any thread may read them */
	bool keeps_reset;          /* SCHED_RESET_ON_FORK is set, and only a privilege would unset it */
	int schedstat;             /* descriptor of the thread's; -1: not there */
	enum config_scheduling wanted;
	unsigned costly, held; /* periods of that kind in a row */
	mono_t since;          /* start of the period */
	uint64_t cpu_ns, run_delay_ns;
	mono_t until; /* withdrawn: not before then */
	uint64_t withdrawn_ns;
};

static _Thread_local struct scheduling *own_scheduling; /* of this thread, while it samples */

const char *scheduling_reason_text(enum scheduling_reason reason)
{
	static const char *const texts[] = {
		[SCHEDULING_NO_REASON] = "",
		[SCHEDULING_CONFIGURED] = "sampling.scheduling is \"normal\"",
		[SCHEDULING_UNPRIVILEGED] = "it takes LimitRTPRIO=1 (RLIMIT_RTPRIO) or CAP_SYS_NICE",
		[SCHEDULING_REFUSED] =
			"permitted, but refused by a filter of system calls (RestrictRealtime=, "
			"SystemCallFilter=) or by a cgroup without real-time run time (cpu.rt_runtime_us)",
		[SCHEDULING_DISABLED] = "kernel.sched_rt_runtime_us is 0",
		[SCHEDULING_FAILED] = "the kernel refused it",
		[SCHEDULING_ENDLESS] = "it ran for 200 ms without a sleep",
		[SCHEDULING_COSTLY] = "it used more CPU than it may, three seconds in a row",
		[SCHEDULING_HELD] = "it waited for a CPU for most of three seconds all the same: other real-time "
				    "threads took it, or kernel.sched_rt_runtime_us or cpu.rt_runtime_us bounds them",
	};

	return texts[reason];
}

const char *scheduling_class_name(enum scheduling_class class)
{
	static const char *const names[] = { "normal", "short slice", "real-time" };

	return names[class];
}

/* Any thread. */
static enum scheduling_class scheduling_class_of(const struct scheduling *scheduling)
{
	return (enum scheduling_class)atomic_load_explicit(&scheduling->class, memory_order_relaxed);
}

static enum scheduling_reason scheduling_reason_of(const struct scheduling *scheduling)
{
	return (enum scheduling_reason)atomic_load_explicit(&scheduling->reason, memory_order_relaxed);
}

static int set_attributes(const struct sched_attributes *attributes)
{
	return syscall(SYS_sched_setattr, 0, attributes, 0) < 0 ? -errno : 0;
}

/* Also in a signal handler: async-signal-safe. */
static enum scheduling_class be_normal(const struct scheduling *scheduling)
{
	struct sched_attributes wanted = { .size = sizeof wanted,
					   .policy = SCHED_OTHER,
					   .flags = scheduling->keeps_reset ? RESET_ON_FORK : 0,
					   .nice = getpriority(PRIO_PROCESS, 0),
					   .runtime = SLICE_SHORT_NS };
	struct sched_attributes found = { 0 };

	if (set_attributes(&wanted) < 0 || syscall(SYS_sched_getattr, 0, &found, (unsigned)sizeof found, 0) < 0)
		return SCHEDULING_NORMAL;

	return found.runtime == SLICE_SHORT_NS ? SCHEDULING_SHORT_SLICE : SCHEDULING_NORMAL;
}

static bool is_real_time_disabled(void)
{
	char text[32];
	ssize_t len = proc_read_file(AT_FDCWD, 0, "/proc/sys/kernel/sched_rt_runtime_us", text, sizeof text);

	return len > 0 && text[0] == '0';
}

static bool is_real_time_permitted(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = { 0 };
	struct rlimit limit;

	if (getrlimit(RLIMIT_RTPRIO, &limit) == 0 && limit.rlim_cur > 0)
		return true;

	return syscall(SYS_capget, &header, data) == 0 && (data[0].effective & (1u << CAP_SYS_NICE));
}

static enum scheduling_reason be_real_time(struct scheduling *scheduling)
{
	struct sched_attributes wanted = {
		.size = sizeof wanted, .policy = SCHED_FIFO, .flags = RESET_ON_FORK, .priority = 1
	};
	int r = set_attributes(&wanted);

	if (r == -EPERM)
		return is_real_time_permitted() ? SCHEDULING_REFUSED : SCHEDULING_UNPRIVILEGED;
	if (r < 0)
		return SCHEDULING_FAILED;
	scheduling->keeps_reset = true;

	return SCHEDULING_NO_REASON;
}

static void set_scheduling(struct scheduling *scheduling, enum scheduling_class class, enum scheduling_reason reason)
{
	atomic_store_explicit(&scheduling->class, (int)class, memory_order_relaxed);
	atomic_store_explicit(&scheduling->reason, (int)reason, memory_order_relaxed);
}

/*
 * SIGXCPU comes of RLIMIT_RTTIME, to a thread with real-time priority, or of RLIMIT_CPU, which is
 * the user's, and ends the process as it would without a handler.
 */
static void on_cpu_limit(int number)
{
	if (!own_scheduling || scheduling_class_of(own_scheduling) != SCHEDULING_REAL_TIME) {
		signal(number, SIG_DFL);
		raise(number);
		return;
	}

	int error = errno;

	set_scheduling(own_scheduling, be_normal(own_scheduling), SCHEDULING_ENDLESS);
	errno = error;
}

/* The kernel raises the limit by a second with each signal. */
static void limit_runs(void)
{
	const rlim_t most = SCHEDULING_RUN_MAX_NS / NS_PER_US;
	struct rlimit limit;

	if (getrlimit(RLIMIT_RTTIME, &limit) < 0)
		return;

	limit.rlim_cur = limit.rlim_max < most ? limit.rlim_max : most;
	setrlimit(RLIMIT_RTTIME, &limit);
}

static void handle_cpu_limit(void)
{
	struct sigaction action = { .sa_handler = on_cpu_limit, .sa_flags = SA_RESTART };
	sigset_t one;

	sigemptyset(&action.sa_mask);
	sigaction(SIGXCPU, &action, NULL);
	sigemptyset(&one);
	sigaddset(&one, SIGXCPU);
	pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

/*
 * How long the thread has waited for a CPU in all. 0: the kernel does not say (CONFIG_SCHED_INFO).
 * schedstat (proc(5)): "<ns on a CPU> <ns waiting for one> <time slices>".
 */
static uint64_t scheduling_run_delay(const struct scheduling *scheduling)
{
	char text[96], *end;
	ssize_t len = scheduling->schedstat < 0 ? -1 : pread(scheduling->schedstat, text, sizeof text - 1, 0);

	if (len <= 0)
		return 0;

	text[len] = '\0';
	strtoull(text, &end, 10);

	return strtoull(end, NULL, 10);
}

static void begin_scheduling_period(struct scheduling *scheduling, mono_t now, uint64_t cpu_ns)
{
	scheduling->since = now;
	scheduling->cpu_ns = cpu_ns;
	scheduling->run_delay_ns = scheduling_run_delay(scheduling);
}

static void apply_scheduling(struct scheduling *scheduling)
{
	enum scheduling_reason reason = SCHEDULING_CONFIGURED;

	if (scheduling->wanted == CONFIG_SCHEDULING_AUTO)
		reason = is_real_time_disabled() ? SCHEDULING_DISABLED : SCHEDULING_NO_REASON;
	if (reason == SCHEDULING_NO_REASON) {
		limit_runs();
		reason = be_real_time(scheduling);
	}
	scheduling->costly = scheduling->held = 0;
	set_scheduling(scheduling, reason == SCHEDULING_NO_REASON ? SCHEDULING_REAL_TIME : be_normal(scheduling),
		       reason);
}

/*
 * Asks for what is wanted, and takes the next best thing. Sets a handler for SIGXCPU, unblocks it in
 * this thread, and lowers RLIMIT_RTTIME: children that may have real-time threads of their own
 * should raise that again.
 */
static void scheduling_start(struct scheduling *scheduling, enum config_scheduling wanted, mono_t now)
{
	/* Other threads may be reading class and reason: these are set below, and by nothing else. */
	scheduling->keeps_reset = false;
	scheduling->wanted = wanted;
	scheduling->until = (mono_t){ 0 };
	scheduling->withdrawn_ns = 0;
	scheduling->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	own_scheduling = scheduling;
	handle_cpu_limit();
	apply_scheduling(scheduling);
	begin_scheduling_period(scheduling, now, 0);
}

/* The thread is a normal one afterwards: without own_scheduling, the limit of a run would end the process. */
static void scheduling_end(struct scheduling *scheduling)
{
	if (scheduling_class_of(scheduling) == SCHEDULING_REAL_TIME)
		be_normal(scheduling);
	own_scheduling = NULL;
	if (scheduling->schedstat >= 0)
		close(TAKE_FD(scheduling->schedstat));
}

/* Something else is wanted. */
static void scheduling_change(struct scheduling *scheduling, enum config_scheduling wanted, mono_t now)
{
	if (wanted == scheduling->wanted)
		return;

	scheduling->wanted = wanted;
	scheduling->withdrawn_ns = 0;
	apply_scheduling(scheduling);
	begin_scheduling_period(scheduling, now, scheduling->cpu_ns);
}

static void withdraw_priority(struct scheduling *scheduling, mono_t now)
{
	uint64_t ns = scheduling->withdrawn_ns * 2;

	if (ns == 0)
		ns = SCHEDULING_WITHDRAWN_NS;
	scheduling->withdrawn_ns = ns < SCHEDULING_WITHDRAWN_MAX_NS ? ns : SCHEDULING_WITHDRAWN_MAX_NS;
	scheduling->until = mono_add(now, scheduling->withdrawn_ns);
}

/*
 * Ends a period of a second or so, in which the thread was allowed that share of a core (<= 0: as much
 * as SCHEDULING_SHARE_MAX). cpu_ns: of this thread, in all. Withdraws real-time priority or gives it
 * back. Before a sleep, so that the run that ends is not held against it.
 */
static void scheduling_look(struct scheduling *scheduling, mono_t now, uint64_t cpu_ns, double allowed)
{
	double passed = (double)mono_diff(now, scheduling->since);
	double share = (double)(cpu_ns - scheduling->cpu_ns) / passed;
	double waited = (double)(scheduling_run_delay(scheduling) - scheduling->run_delay_ns) / passed;
	enum scheduling_reason reason = scheduling_reason_of(scheduling);

	if (passed <= 0)
		return;

	if (allowed <= 0 || allowed > SCHEDULING_SHARE_MAX)
		allowed = SCHEDULING_SHARE_MAX;
	begin_scheduling_period(scheduling, now, cpu_ns);
	scheduling->costly = share > allowed ? scheduling->costly + 1 : 0;
	scheduling->held = waited > HELD_SHARE ? scheduling->held + 1 : 0;

	if (scheduling_class_of(scheduling) == SCHEDULING_REAL_TIME) {
		if (scheduling->costly < SCHEDULING_PERIODS && scheduling->held < SCHEDULING_PERIODS)
			return;
		set_scheduling(scheduling, be_normal(scheduling),
			       scheduling->held < SCHEDULING_PERIODS ? SCHEDULING_COSTLY : SCHEDULING_HELD);
		withdraw_priority(scheduling, now);
	} else if (scheduling_was_withdrawn(reason)) {
		if (scheduling->until.ns == 0)
			withdraw_priority(scheduling, now); /* by the handler */
		if (mono_diff(now, scheduling->until) < 0 || share > allowed / 2)
			return;
		scheduling->until = (mono_t){ 0 };
		apply_scheduling(scheduling);
	}
}

/* ---- new options for a thread ---- */

/*
 * New options reach a thread, which must not wait, through one word, and the memory that they came in
 * goes back through another. The latest options win. Whichever side exchanges `posted` owns what was in
 * it, so each set of options has one owner at any time. What comes back is a list, because a second set
 * may be taken before the first was collected.
 */
struct option_handoff {
	struct sampler_options options;
	struct source_room *room; /* for options.source.capacity; the owner puts here what it has no more use for */
	struct option_handoff *next;
};

/* {0} is empty. */
struct option_handoff_box {
	struct option_handoff *_Atomic posted; /* not taken yet */
	struct option_handoff *_Atomic spent;  /* back from the owner */
};

static void free_option_handoffs(struct option_handoff *option_handoff)
{
	while (option_handoff) {
		struct option_handoff *next = option_handoff->next;

		source_room_free(option_handoff->room);
		free(option_handoff);
		option_handoff = next;
	}
}

static void collect_spent(struct option_handoff_box *box)
{
	free_option_handoffs(atomic_exchange_explicit(&box->spent, NULL, memory_order_acquire));
}

/* Any thread, one at a time. 0; -ENOMEM: nothing was posted, and what was before still is. */
static int option_handoff_post(struct option_handoff_box *box, const struct sampler_options *options)
{
	AUTO_FREE struct option_handoff *option_handoff = calloc(1, sizeof *option_handoff);

	collect_spent(box);
	if (!option_handoff)
		return -ENOMEM;

	int r = source_room_new(options->source.capacity, &option_handoff->room);
	if (r < 0)
		return r;
	if (options->source.hold)
		options->source.hold(option_handoff->room);

	option_handoff->options = *options;
	free_option_handoffs(atomic_exchange_explicit(&box->posted, TAKE(option_handoff), memory_order_acq_rel));

	return 0;
}

static void option_handoff_release(struct option_handoff_box *box)
{
	free_option_handoffs(atomic_exchange(&box->posted, NULL));
	collect_spent(box);
}

/* The owner, which must not wait, allocate or free. NULL: nothing new. */
static struct option_handoff *option_handoff_take(struct option_handoff_box *box)
{
	if (!atomic_load_explicit(&box->posted, memory_order_relaxed))
		return NULL;

	return atomic_exchange_explicit(&box->posted, NULL, memory_order_acquire);
}

/* The owner. Only a post competes for the word, and takes all of it: the loop ends. */
static void option_handoff_return(struct option_handoff_box *box, struct option_handoff *option_handoff)
{
	option_handoff->next = atomic_load_explicit(&box->spent, memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&box->spent, &option_handoff->next, option_handoff,
						      memory_order_release, memory_order_relaxed))
		;
}

/* ---- queues between two threads ---- */

/* What is handed over; `what` is up to the two sides. */
struct spsc_queue_item {
	uint32_t what;
	void *pointer;
};

/*
 * A bounded queue without locks, for one producer and one consumer. Counters run free and are compared
 * by difference. head is written by the producer only, tail by the consumer only; the release store of
 * one, read with acquire by the other, orders the item between them. Each has a cache line of its own,
 * so that the two sides do not slow each other down.
 */
struct spsc_queue {
	uint32_t mask;
	_Alignas(64) _Atomic uint32_t head;
	_Alignas(64) _Atomic uint32_t tail;
	_Alignas(64) struct spsc_queue_item items[];
};

static int spsc_queue_new(uint32_t capacity, struct spsc_queue **ret)
{
	assert(capacity && (capacity & (capacity - 1)) == 0);

	size_t size = sizeof(struct spsc_queue) + capacity * sizeof(struct spsc_queue_item);
	struct spsc_queue *spsc_queue = aligned_alloc(64, (size + 63) / 64 * 64);

	if (!spsc_queue)
		return -ENOMEM;

	spsc_queue->mask = capacity - 1;
	atomic_init(&spsc_queue->head, 0);
	atomic_init(&spsc_queue->tail, 0);
	*ret = spsc_queue;

	return 0;
}

static void spsc_queue_free(struct spsc_queue *spsc_queue)
{
	free(spsc_queue);
}

static bool spsc_queue_room(const struct spsc_queue *spsc_queue)
{
	uint32_t head = atomic_load_explicit(&spsc_queue->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&spsc_queue->tail, memory_order_acquire);

	return head - tail <= spsc_queue->mask;
}

static bool spsc_queue_put(struct spsc_queue *spsc_queue, struct spsc_queue_item item)
{
	if (!spsc_queue_room(spsc_queue))
		return false;

	uint32_t head = atomic_load_explicit(&spsc_queue->head, memory_order_relaxed);

	spsc_queue->items[head & spsc_queue->mask] = item;
	atomic_store_explicit(&spsc_queue->head, head + 1, memory_order_release);

	return true;
}

static bool spsc_queue_take(struct spsc_queue *spsc_queue, struct spsc_queue_item *ret)
{
	uint32_t tail = atomic_load_explicit(&spsc_queue->tail, memory_order_relaxed);
	uint32_t head = atomic_load_explicit(&spsc_queue->head, memory_order_acquire);

	if (head == tail)
		return false;

	*ret = spsc_queue->items[tail & spsc_queue->mask];
	atomic_store_explicit(&spsc_queue->tail, tail + 1, memory_order_release);

	return true;
}

/* ---- the memory of a target ---- */

/*
 * A description on its way is a pointer in one of two places, each written by one side and emptied by
 * the other. The sampler takes a new one only when `done` is free for the old one, and the control
 * thread frees that when it posts the next, or with the target: there are never more than three.
 *
 * 	control thread -- posted --> sampler -- done --> control thread
 */
struct sampler_description {
	uint32_t len;
	unsigned char encoded[];
};

static struct sampler_description *describe(const struct target *what)
{
	unsigned char encoded[TARGET_ENCODED_MAX];
	size_t len = target_encode(what, encoded, sizeof encoded);
	struct sampler_description *description = malloc(sizeof(*description) + len);

	if (!description)
		return NULL;

	description->len = (uint32_t)len;
	memcpy(description->encoded, encoded, len);

	return description;
}

int sampler_target_describe(struct sampler_target *target, const struct target *what)
{
	target->description = describe(what);
	if (!target->description)
		return -ENOMEM;

	target->track = (struct ring_track){
		.description = target->description->encoded,
		.description_len = target->description->len,
		.id = what->id,
	};

	return 0;
}

int sampler_target_describe_anew(struct sampler_target *target, const struct target *what)
{
	struct sampler_description *description = describe(what);

	if (!description)
		return -ENOMEM;

	free(atomic_exchange_explicit(&target->done, NULL, memory_order_acquire));
	free(atomic_exchange_explicit(&target->posted, description, memory_order_acq_rel));

	return 0;
}

/* For the sampler: takes what was posted. Allocates and frees nothing. */
static void sampler_target_take_description(struct sampler_target *target)
{
	struct sampler_description *description;

	if (!atomic_load_explicit(&target->posted, memory_order_relaxed) ||
	    atomic_load_explicit(&target->done, memory_order_relaxed))
		return;

	description = atomic_exchange_explicit(&target->posted, NULL, memory_order_acquire);
	atomic_store_explicit(&target->done, target->description, memory_order_release);
	target->description = description;
	target->track.description = description->encoded;
	target->track.description_len = description->len;
	target->track.described_seq = 0;
}

void sampler_target_release(struct sampler_target *target)
{
	source_entry_free(target->entry);
	free(target->description);
	free(atomic_exchange_explicit(&target->posted, NULL, memory_order_acquire));
	free(atomic_exchange_explicit(&target->done, NULL, memory_order_acquire));
}

/* ---- one sampler ---- */

struct sampler;

/* Which of several samplers of one ring this is. {0}: the only one. */
struct sampler_seat {
	unsigned number, of;
	/* NULL: this one governs the interval, and tells the ring of it; else the one that does. */
	const struct sampler *leader;
};

/* Commands that fit between two ticks; the control thread simply waits when they do not. */
#define QUEUE_LENGTH 4096u

/* How many commands one tick takes at most: adding is cheap (20 ns), but a tick has a deadline. */
#define COMMANDS_PER_TICK 1024u

/* Over so many ticks the cost of a look is averaged. */
#define LOOK_COST_TICKS 64

/*
 * Timer slack: the kernel may group wake-ups by so much. 1 us costs nothing here and keeps the mean
 * error below 50 us.
 */
#define TIMER_SLACK_NS 1000ul

/* At most so many ticks are read together. */
#define TOGETHER_MAX 100

/* Calm is what was so for so long, and longer where it did not last for CALM_LASTS_NS the last time. */
#define CALM_FIRST_NS (100 * NS_PER_MS)
#define CALM_MOST_NS (1600 * NS_PER_MS)
#define CALM_LASTS_NS NS_PER_S

/* A shorter one is none: no machine falls asleep and wakes up in less. */
#define SUSPEND_MIN_NS NS_PER_MS

enum command { COMMAND_ADD = 1, COMMAND_REMOVE };

/* What waits for a tick, see samplers_set_alarm. */
struct alarm {
	_Atomic uint64_t at_ns;       /* UINT64_MAX: none */
	_Atomic uint64_t quiet_at_ns; /* the same while ticks are slept through; no sooner */
	int fd;                       /* -1: nothing does */
};

struct sampler {
	struct sampler_options options;
	struct alarm *alarm; /* of all threads; NULL: none */
	struct sampler_seat seat;
	struct ring *ring;
	struct ring_writer *writer;
	struct source *source;
	struct schedule schedule;
	struct budget budget;
	struct stats stats;
	struct {
		bool remembers; /* the source does what ran, since the last fill at the latest */
		bool sleeps;    /* through ticks */
		mono_t since;   /* that; or since when it could */
		uint64_t runs;  /* of struct source_counters, and when it was that */
		mono_t runs_at;
		uint64_t wait_ns;
	} calm;
	uint64_t missed_told;          /* of stats.missed_slots: those that the ring knows of */
	bool boot_known;               /* the next is set */
	int64_t boot_ahead_ns;         /* CLOCK_BOOTTIME of CLOCK_MONOTONIC, at the last tick */
	_Atomic uint64_t heartbeat_ns; /* in force: the leader's choice */
	struct {
		mono_t at;
		uint64_t pages;
	} turned;    /* at the last choice: how many pages of the ring had been begun */
	bool resync; /* records were lost: show everything */
	/* What backing off saves: how many looks there were, what one takes, what those not taken would have. */
	uint64_t looks;
	double look_ns, saved_ns;
	struct spsc_queue *commands, *returns;
	struct option_handoff_box option_handoffs;
	struct deadline_timer deadline_timer;
	struct scheduling scheduling;
	struct {
		uint64_t run_delay_ns, cpu_ns;
	} seen; /* of the thread, at the last look */
	pthread_t thread;
	bool running;
	_Atomic bool stop;
};

/* The budget backs off only from what the options do not spare anyway. */
static bool may_back_off(const struct sampler_options *options)
{
	return options->source.backoff == SOURCE_BACKOFF_COSTLY &&
	       options->source.idle_interval_ns > options->source.interval_ns;
}

static void restart_budget(struct sampler *sampler, mono_t now)
{
	budget_restart(&sampler->budget, sampler->options.cpu_budget_percent, may_back_off(&sampler->options), now);
}

/* Between two fills. */
static void follow_backoff(struct sampler *sampler)
{
	bool backs_off = may_back_off(&sampler->options) && budget_backs_off_since(&sampler->budget) != 0;

	source_set_backoff(sampler->source, backs_off ? SOURCE_BACKOFF_ALL : sampler->options.source.backoff);
}

/* CPU time that was spent before, on opening and on the first scan, is not that of sampling. */
static void restart_clocks(struct sampler *sampler)
{
	mono_t now = clock_mono(&sampler->deadline_timer.clock);
	uint64_t turn_ns =
		sampler->seat.of ? sampler->options.source.interval_ns * sampler->seat.number / sampler->seat.of : 0;

	schedule_init(&sampler->schedule, &sampler->stats, mono_add(now, turn_ns), sampler->options.source.interval_ns);
	restart_budget(sampler, now);
	deadline_timer_beat(&sampler->deadline_timer, now);
	follow_backoff(sampler);
}

/*
 * What a tick touches. Only pages that are used are in memory. Where that is not allowed it works unlocked: that is
 * said once, of the code (overview.c).
 */
static void lock_block(void *block)
{
	mlock2(block, malloc_usable_size(block), MLOCK_ONFAULT);
}

static struct sampler_options with_defaults(const struct sampler_options *options)
{
	struct sampler_options full = *options;

	full.source.hold = options->lock_memory ? lock_block : NULL;

	if (!full.source.heartbeat_ns)
		full.source.heartbeat_ns = NS_PER_S;

	return full;
}

/* It stops after the tick in progress, without a wait for it. sampler_stop is still due. */
static void sampler_call_off(struct sampler *sampler)
{
	atomic_store(&sampler->stop, true);
	deadline_timer_call(&sampler->deadline_timer);
}

static void sampler_stop(struct sampler *sampler)
{
	if (!sampler->running)
		return;

	sampler_call_off(sampler);
	pthread_join(sampler->thread, NULL);
	sampler->running = false;
}

static void sampler_free(struct sampler *sampler)
{
	if (!sampler)
		return;

	sampler_stop(sampler);
	ring_writer_free(sampler->writer);
	source_free(sampler->source);
	spsc_queue_free(sampler->commands);
	spsc_queue_free(sampler->returns);
	option_handoff_release(&sampler->option_handoffs);
	free(sampler);
}

static int sampler_new(const struct sampler_options *options, struct ring *ring, struct sampler **ret)
{
	struct sampler *sampler = calloc(1, sizeof *sampler);
	int r;

	if (!sampler)
		return -ENOMEM;

	sampler->options = with_defaults(options);
	sampler->heartbeat_ns = sampler->options.source.heartbeat_ns;
	sampler->ring = ring;
	sampler->deadline_timer.clock = real_clock();
	sampler->stats.threads = 1;
	sampler->scheduling.schedstat = -1;
	sampler->budget.stats = &sampler->stats;

	r = source_new(&sampler->options.source, &sampler->deadline_timer.clock, &sampler->source);
	if (r == 0)
		r = ring_writer_new(ring, &sampler->writer);
	if (r == 0)
		r = spsc_queue_new(QUEUE_LENGTH, &sampler->commands);
	if (r == 0)
		r = spsc_queue_new(QUEUE_LENGTH, &sampler->returns);
	if (r < 0) {
		sampler_free(sampler);
		return r;
	}

	restart_clocks(sampler);
	ring_writer_idle(sampler->writer, source_longest_pause(sampler->source));
	*ret = sampler;

	return 0;
}

/* ---- for the control thread ---- */

static bool sampler_add(struct sampler *sampler, struct sampler_target *target)
{
	bool put = spsc_queue_put(sampler->commands, (struct spsc_queue_item){ COMMAND_ADD, target });

	deadline_timer_rouse(&sampler->deadline_timer);
	return put;
}

static bool sampler_remove(struct sampler *sampler, struct sampler_target *target)
{
	bool put = spsc_queue_put(sampler->commands, (struct spsc_queue_item){ COMMAND_REMOVE, target });

	deadline_timer_rouse(&sampler->deadline_timer);
	return put;
}

static bool sampler_returned(struct sampler *sampler, struct sampler_target **ret, enum sampler_return *ret_why)
{
	struct spsc_queue_item item;

	if (!spsc_queue_take(sampler->returns, &item))
		return false;

	*ret = item.pointer;
	*ret_why = (enum sampler_return)item.what;

	return true;
}

static int sampler_retune(struct sampler *sampler, const struct sampler_options *options)
{
	struct sampler_options full = with_defaults(options);
	int r = option_handoff_post(&sampler->option_handoffs, &full);

	if (r == 0)
		deadline_timer_call(&sampler->deadline_timer);

	return r;
}

static void sampler_stats(const struct sampler *sampler, struct stats *ret)
{
	*ret = sampler->stats;
	ring_writer_account(sampler->writer, ret);
}

/* ---- the tick ---- */

/*
 * What does not change is recorded once in a heartbeat. Of thousands of targets that alone would fill the
 * ring and be most of the work, so the heartbeat is doubled, up to three times, until it makes no more
 * than so many records in a second.
 */
#define HEARTBEATS_PER_S 100
#define HEARTBEAT_DOUBLINGS_MAX 3

/* Bytes of a record of what has not changed: all its fields, as a rule. */
#define HEARTBEAT_BYTES 150

/* Bytes a second that go into the ring, without those of `beats` records in each heartbeat. */
static double other_bytes(struct sampler *sampler, mono_t now, double beats)
{
	struct ring_info info;
	double pages, seconds = (double)mono_diff(now, sampler->turned.at) / (double)NS_PER_S;

	ring_info(sampler->ring, &info);
	pages = (double)(info.next_seq - sampler->turned.pages);
	sampler->turned.at = now;
	sampler->turned.pages = info.next_seq;

	double all = pages * info.page_bytes / seconds;
	double ours = beats * HEARTBEAT_BYTES * (double)NS_PER_S / (double)sampler->heartbeat_ns;

	return all > ours ? all - ours : 0;
}

/* Not back and forth: it becomes shorter where a third fewer would do. */
static uint64_t choose_heartbeat(struct sampler *sampler, mono_t now)
{
	uint64_t heartbeat_ns = sampler->options.source.heartbeat_ns;
	struct ring_info info;
	size_t count;

	source_entries(sampler->source, &count);
	ring_info(sampler->ring, &info);

	double beats = (double)count * (sampler->seat.of > 1 ? sampler->seat.of : 1);
	double others = other_bytes(sampler, now, beats), quarter = (double)info.size_bytes / 4;

	for (unsigned i = 0; i < HEARTBEAT_DOUBLINGS_MAX; i++) {
		double seconds = (double)heartbeat_ns / (double)NS_PER_S, next = 2 * seconds;
		double most = HEARTBEATS_PER_S * (heartbeat_ns < sampler->heartbeat_ns ? 0.67 : 1);

		if (beats <= seconds * most || others * next + beats * HEARTBEAT_BYTES > quarter)
			break;
		heartbeat_ns *= 2;
	}
	return heartbeat_ns;
}

static void set_heartbeat(struct sampler *sampler, uint64_t heartbeat_ns)
{
	if (heartbeat_ns == sampler->heartbeat_ns)
		return;

	atomic_store_explicit(&sampler->heartbeat_ns, heartbeat_ns, memory_order_relaxed);
	source_set_heartbeat(sampler->source, heartbeat_ns);
	if (!sampler->seat.leader)
		ring_writer_retune(sampler->writer, ring_interval_ns(sampler->ring), heartbeat_ns);
}

/* Now and then. Readers learn of a longer one in the tick from which on it holds. */
static void follow_heartbeat(struct sampler *sampler, mono_t now)
{
	const struct sampler *leader = sampler->seat.leader;

	set_heartbeat(sampler, leader ? atomic_load_explicit(&leader->heartbeat_ns, memory_order_relaxed)
				      : choose_heartbeat(sampler, now));
}

/*
 * Between two ticks. The cpu budget goes on if neither what it divides nor what it divides by has
 * changed: a reload for another reason is no reason to overrun the budget again.
 */
static void take_option_handoff(struct sampler *sampler, mono_t now)
{
	struct option_handoff *option_handoff = option_handoff_take(&sampler->option_handoffs);

	if (!option_handoff)
		return;

	struct sampler_options before = sampler->options;

	sampler->options = option_handoff->options;
	option_handoff->room = source_retune(sampler->source, &sampler->options.source, now, option_handoff->room);
	option_handoff_return(&sampler->option_handoffs, option_handoff);
	atomic_store_explicit(&sampler->heartbeat_ns, sampler->options.source.heartbeat_ns, memory_order_relaxed);
	if (!sampler->seat.leader)
		ring_writer_retune(sampler->writer, sampler->options.source.interval_ns,
				   sampler->options.source.heartbeat_ns);
	scheduling_change(&sampler->scheduling, sampler->options.scheduling, now);
	if (before.source.interval_ns == sampler->options.source.interval_ns &&
	    before.cpu_budget_percent == sampler->options.cpu_budget_percent &&
	    may_back_off(&before) == may_back_off(&sampler->options)) {
		follow_backoff(sampler);
		return;
	}

	if (sampler->schedule.interval_ns != sampler->options.source.interval_ns)
		schedule_set_interval(&sampler->schedule, now, sampler->options.source.interval_ns);
	restart_budget(sampler, now);
	follow_backoff(sampler);
	source_set_interval(sampler->source, sampler->options.source.interval_ns);
}

/*
 * The control thread may free the target at once: nothing may touch it after this. There must be room.
 */
static void give_back(struct sampler *sampler, struct sampler_target *target, enum sampler_return why)
{
	spsc_queue_put(sampler->returns, (struct spsc_queue_item){ why, target });
}

/* A record that the ring could not take is written again. */
static void note_put(struct sampler *sampler, int result)
{
	if (result == RING_HELD)
		sampler->resync = true;
}

static void take_out_target(struct sampler *sampler, struct sampler_target *target, mono_t now,
			    enum ring_gone_reason reason)
{
	if (!target->group)
		note_put(sampler, ring_put_gone(sampler->writer, &target->track, now, reason));
	source_remove(sampler->source, target->entry);
	target->lent = false;
}

static void run_command(struct sampler *sampler, const struct spsc_queue_item *command, mono_t now)
{
	struct sampler_target *target = command->pointer;

	if (command->what == COMMAND_REMOVE) {
		if (target->lent)
			take_out_target(sampler, target, now, RING_GONE_UNWATCHED);
		give_back(sampler, target, SAMPLER_REMOVED);
		return;
	}

	if (source_add(sampler->source, target->entry, target->group ? target->group->entry : NULL) < 0)
		give_back(sampler, target, SAMPLER_REFUSED);
	else
		target->lent = true;
}

/* A command is only taken when its answer will fit. */
static void take_commands(struct sampler *sampler, mono_t now)
{
	struct spsc_queue_item command;

	for (unsigned i = 0; i < COMMANDS_PER_TICK; i++) {
		if (!spsc_queue_room(sampler->returns) || !spsc_queue_take(sampler->commands, &command))
			return;
		run_command(sampler, &command, now);
	}
}

static void fill_source(struct sampler *sampler, mono_t now)
{
	if (sampler->resync)
		source_read_all_now(sampler->source);
	sampler->resync = false;
	source_fill(sampler->source, now);
}

static void publish(struct sampler *sampler, struct source_entry *entry)
{
	struct sampler_target *target = source_entry_user(entry);
	mono_t before;

	sampler_target_take_description(target);
	if (source_entry_woke(entry, &before))
		note_put(sampler, ring_put_still(sampler->writer, &target->track, before));

	mono_t at = source_entry_at(entry), written = target->track.written;
	int r = ring_put_sample(sampler->writer, &target->track, at, source_entry_sample(entry));

	/* Its turn comes before the heartbeat is over. */
	if (r == RING_UNCHANGED && mono_diff(at, written) >= (int64_t)(sampler->heartbeat_ns / 4))
		r = ring_put_still(sampler->writer, &target->track, at);
	note_put(sampler, r);
}

/* What was written of a target last is out of the caches when its turn comes again. */
#define PUBLISH_AHEAD 4

static void fetch_track(const struct sampler_target *target)
{
	const char *end = (const char *)(&target->track + 1);

	for (const char *line = (const char *)&target->track; line < end; line += 64)
		__builtin_prefetch(line, 1);
}

static void publish_all(struct sampler *sampler)
{
	size_t count;
	struct source_entry *const *entries = source_seen(sampler->source, &count);

	for (size_t i = 0; i < count; i++) {
		if (i + PUBLISH_AHEAD < count)
			fetch_track(source_entry_user(entries[i + PUBLISH_AHEAD]));
		publish(sampler, entries[i]);
	}
}

/* Takes a gone target out and gives it back. False: no room; the next tick tries again. */
static bool return_gone(struct sampler *sampler, struct source_entry *entry, mono_t now)
{
	struct sampler_target *target = source_entry_user(entry);

	if (!spsc_queue_room(sampler->returns))
		return false;

	take_out_target(sampler, target, now, RING_GONE_EXITED);
	give_back(sampler, target, SAMPLER_GONE);
	sampler->stats.gone_targets++;

	return true;
}

/* Members backwards, because taking one out reorders those behind it. */
static void collect_gone(struct sampler *sampler, mono_t now)
{
	size_t count;
	struct source_entry *const *entries = source_gone_members(sampler->source, &count);

	for (size_t i = count; i-- > 0;)
		if (!return_gone(sampler, entries[i], now))
			return;

	entries = source_seen(sampler->source, &count);
	for (size_t i = 0; i < count; i++)
		if (source_entry_status(entries[i]) == SOURCE_GONE && !return_gone(sampler, entries[i], now))
			return;
}

/* What the kernel says of the thread. Returns how long it has waited for a CPU since the last time. */
static uint64_t look_at_thread(struct sampler *sampler)
{
	uint64_t run_delay_ns = scheduling_run_delay(&sampler->scheduling);
	uint64_t waited_ns = run_delay_ns > sampler->seen.run_delay_ns ? run_delay_ns - sampler->seen.run_delay_ns : 0;

	sampler->seen.run_delay_ns = run_delay_ns;
	sampler->seen.cpu_ns = real_clock_thread_cpu();
	sampler->stats.run_delay += waited_ns;
	sampler->stats.own_cpu = sampler->seen.cpu_ns;
	sampler->stats.real_time = scheduling_class_of(&sampler->scheduling) == SCHEDULING_REAL_TIME;

	return waited_ns;
}

/*
 * Slots were missed, and the thread was so late: what part of that it waited for a CPU, and what part it
 * neither did so nor ran. In the latter is what could have been a missed slot alone. Time that it
 * waited or ran earlier, since the last look, may count here: a second at most passes between two.
 */
static void account_lateness(struct sampler *sampler, uint64_t late_ns)
{
	uint64_t cpu_ns = sampler->seen.cpu_ns, waited_ns = look_at_thread(sampler);

	if (sampler->seen.run_delay_ns == 0)
		return; /* the kernel does not say */

	waited_ns = waited_ns < late_ns ? waited_ns : late_ns;
	sampler->stats.starved += waited_ns;
	late_ns -= waited_ns;
	cpu_ns = sampler->seen.cpu_ns - cpu_ns;
	if (late_ns > cpu_ns && late_ns - cpu_ns >= sampler->schedule.interval_ns)
		sampler->stats.stopped += late_ns - cpu_ns;
}

static void wake(struct sampler *sampler, mono_t now)
{
	uint64_t missed = sampler->stats.missed_slots;
	int64_t late_ns = mono_diff(now, sampler->schedule.until);

	schedule_wake(&sampler->schedule, now);
	if (sampler->stats.missed_slots > missed && late_ns > 0)
		account_lateness(sampler, (uint64_t)late_ns);
}

static void finish(struct sampler *sampler, mono_t now)
{
	uint64_t missed = sampler->stats.missed_slots;
	int64_t took_ns = mono_diff(now, sampler->schedule.woke);

	schedule_done(&sampler->schedule, now, sampler->calm.sleeps);
	if (sampler->stats.missed_slots > missed && took_ns > 0)
		account_lateness(sampler, (uint64_t)took_ns);
}

static void apply_budget(struct sampler *sampler, mono_t now)
{
	struct budget *budget = &sampler->budget;
	uint32_t factor, before = budget_slowdown(budget);

	if (budget_look(budget, now, (uint64_t)sampler->saved_ns, &factor)) {
		look_at_thread(sampler);
		follow_heartbeat(sampler, now);
		sampler->stats.throttled = atomic_load_explicit(&budget->throttled_ns, memory_order_relaxed);
		sampler->stats.stolen = atomic_load_explicit(&budget->stolen_ns, memory_order_relaxed);
		scheduling_look(&sampler->scheduling, now, sampler->seen.cpu_ns,
				cpu_budget_allowed(&budget->cpu_budget, quota_of(budget)));
	}
	follow_backoff(sampler);
	if (factor == before)
		return;
	schedule_set_interval(&sampler->schedule, now, sampler->options.source.interval_ns * factor);
	source_set_interval(sampler->source, sampler->options.source.interval_ns * factor);
}

/* What a look takes is the mean of the last ticks, with all that a tick costs; alike in all threads. */
static void count_saved(struct sampler *sampler, const struct source_counters *counters, uint64_t took_ns)
{
	uint64_t looks = counters->looks - sampler->looks, saved = counters->saved_looks - sampler->stats.saved_looks;
	double threads = sampler->seat.of > 1 ? sampler->seat.of : 1;

	if (looks > 0)
		sampler->look_ns += ((double)took_ns / (double)looks - sampler->look_ns) / LOOK_COST_TICKS;
	sampler->looks = counters->looks;
	sampler->saved_ns += (double)saved * sampler->look_ns * threads;
}

static void count_source(struct sampler *sampler, uint64_t took_ns)
{
	struct source_counters counters;

	source_counters(sampler->source, &counters);
	count_saved(sampler, &counters, took_ns);
	sampler->stats.skipped_reads = counters.skipped_reads;
	sampler->stats.saved_looks = counters.saved_looks;
	sampler->stats.failed_reads = counters.failed_reads;
}

/*
 * How long the machine was suspended since the last look: CLOCK_MONOTONIC stands still then. The other
 * clock is read first: what passes between the two makes the difference smaller, so that a thread that
 * had to wait for its CPU there takes that for no suspend.
 */
static uint64_t suspended_since(struct sampler *sampler)
{
	const struct clock *clock = &sampler->deadline_timer.clock;

	if (!clock->boot_ns)
		return 0;

	uint64_t boot_ns = clock->boot_ns(clock->ctx);
	int64_t ahead_ns = (int64_t)(boot_ns - clock_mono(clock).ns);
	int64_t more_ns = sampler->boot_known ? ahead_ns - sampler->boot_ahead_ns : 0;

	if (!sampler->boot_known || more_ns > 0)
		sampler->boot_ahead_ns = ahead_ns;
	sampler->boot_known = true;

	return more_ns >= (int64_t)SUSPEND_MIN_NS ? (uint64_t)more_ns : 0;
}

/*
 * What was missed since the last tick, by a stop, by waiting, or by a collection that took too long;
 * and a suspend.
 */
static void publish_hole(struct sampler *sampler)
{
	note_put(sampler, ring_put_hole(sampler->writer, sampler->stats.missed_slots - sampler->missed_told,
					suspended_since(sampler)));
	sampler->missed_told = sampler->stats.missed_slots;
}

/*
 * Asks for room for the longest records of every target. at: now, or before. False: a reader holds the next page.
 */
static bool begin_tick(struct sampler *sampler, mono_t at)
{
	size_t count;

	source_entries(sampler->source, &count);
	ring_writer_idle(sampler->writer, source_longest_pause(sampler->source));

	const struct clock *clock = &sampler->deadline_timer.clock;
	wall_t wall = clock_wall(clock);

	wall.ns -= (uint64_t)mono_diff(clock_mono(clock), at);
	return ring_tick_begin(sampler->writer, at, wall, (count + 1) * RING_TARGET_MAX) != RING_HELD;
}

/* ---- ticks that are read together ---- */

static void end_calm(struct sampler *sampler, mono_t now)
{
	bool lasted = sampler->calm.sleeps && mono_diff(now, sampler->calm.since) >= (int64_t)CALM_LASTS_NS;
	uint64_t wait_ns = sampler->calm.wait_ns;

	if (sampler->calm.remembers)
		source_remember(sampler->source, false);
	if (sampler->calm.sleeps)
		wait_ns = lasted ? CALM_FIRST_NS : wait_ns < CALM_MOST_NS ? 2 * wait_ns : wait_ns;
	sampler->calm.wait_ns = wait_ns > 0 ? wait_ns : CALM_FIRST_NS;
	sampler->calm.remembers = sampler->calm.sleeps = false;
	sampler->calm.since = now;
}

/* At most so many runs are to be remembered at once: all may be on one CPU, and some sleeps are longer. */
#define RUNS_TOGETHER_MAX (CPU_RUNS_LENGTH / 2)

/* How many ticks that will take, if it goes on as since the last tick. */
static uint64_t ticks_to_remember(struct sampler *sampler, mono_t now, uint64_t runs)
{
	double more = (double)(runs - sampler->calm.runs), ns = (double)mono_diff(now, sampler->calm.runs_at);
	bool known = sampler->calm.runs_at.ns != 0;

	sampler->calm.runs = runs;
	sampler->calm.runs_at = now;
	if (!known)
		return 0;
	return more < 1 ? TOGETHER_MAX
			: (uint64_t)(RUNS_TOGETHER_MAX * ns / more / (double)sampler->schedule.interval_ns);
}

/* After a tick: how many of the next ones are not to be woken up for. */
static uint64_t ticks_to_sleep_through(struct sampler *sampler, mono_t now)
{
	uint64_t ticks = sampler->options.read_interval_ns / sampler->schedule.interval_ns, most;
	struct source_counters counters;

	source_counters(sampler->source, &counters);
	if (ticks < 2 || sampler->options.wait != CONFIG_WAIT_SLEEP || sampler->seat.of > 1 ||
	    counters.calm == SOURCE_HOT) {
		end_calm(sampler, now);
		return 0;
	}
	if (counters.calm == SOURCE_PARTLY_FOLLOWED) {
		sampler->calm.sleeps =
			false; /* of what is not followed a tick afterwards would say that it stood still */
		return 0;
	}
	if (!sampler->calm.remembers) {
		sampler->calm.runs_at.ns = 0;
		if (mono_diff(now, sampler->calm.since) >= (int64_t)sampler->calm.wait_ns)
			sampler->calm.remembers = source_remember(sampler->source, true);
		return 0;
	}

	most = ticks_to_remember(sampler, now, counters.remembered);
	most = most < TOGETHER_MAX ? most : TOGETHER_MAX;
	ticks = ticks < most ? ticks : most;
	if (ticks < 2)
		return 0;
	if (!sampler->calm.sleeps)
		sampler->calm.since = now;
	sampler->calm.sleeps = true;
	return ticks - 1;
}

static bool has_passed(const struct sampler *sampler, mono_t now)
{
	return mono_diff(now, sampler->schedule.deadline) >= (int64_t)sampler->schedule.interval_ns;
}

/* The tick of the slot at the deadline, which has passed. False: it stays missed. */
static bool put_together(struct sampler *sampler)
{
	mono_t at = sampler->schedule.deadline;

	if (!source_fill_past(sampler->source, at))
		return false;
	if (!begin_tick(sampler, at)) {
		sampler->resync = true;
		return false;
	}
	publish_hole(sampler);
	publish_all(sampler);
	schedule_make_up(&sampler->schedule);
	ring_tick_end(sampler->writer, &sampler->stats);
	return true;
}

/* Those before the one that is to be taken now. What cannot be put together is missed. */
static void put_past_together(struct sampler *sampler, mono_t now)
{
	if (!sampler->calm.sleeps || !has_passed(sampler, now))
		return;
	while (has_passed(sampler, now))
		if (!put_together(sampler)) {
			end_calm(sampler, now);
			return;
		}
}

/* Ticks are not put off any more. */
static void end_sleep(struct sampler *sampler, mono_t now)
{
	if (!sampler->calm.sleeps)
		return;
	put_past_together(sampler, now);
	end_calm(sampler, now);
	schedule_put_off(&sampler->schedule, 0);
}

/* They are in force for ticks to come. */
static void take_new_options(struct sampler *sampler, mono_t now)
{
	if (atomic_load_explicit(&sampler->option_handoffs.posted, memory_order_relaxed))
		end_sleep(sampler, now);
	take_option_handoff(sampler, now);
}

/* After the tick at now was published. */
static void ring_alarm(const struct sampler *sampler, mono_t now)
{
	struct alarm *alarm = sampler->alarm;

	if (!alarm)
		return;

	const _Atomic uint64_t *at_ns = sampler->calm.sleeps ? &alarm->quiet_at_ns : &alarm->at_ns;

	if (now.ns < atomic_load_explicit(at_ns, memory_order_relaxed))
		return;
	if (atomic_exchange(&alarm->at_ns, UINT64_MAX) != UINT64_MAX)
		eventfd_write(alarm->fd, 1);
}

/* A tick at `now`. Returns false if it could not begin because a reader holds the next page. */
static bool take_tick(struct sampler *sampler, mono_t now)
{
	deadline_timer_beat(&sampler->deadline_timer, now);
	take_new_options(sampler, now);
	put_past_together(sampler, now);
	if (!begin_tick(sampler, now))
		return false;

	wake(sampler, now);
	publish_hole(sampler);
	take_commands(sampler, now);
	fill_source(sampler, now);
	publish_all(sampler);

	mono_t end = clock_mono(&sampler->deadline_timer.clock);

	collect_gone(sampler, end);
	finish(sampler, end);
	deadline_timer_beat(&sampler->deadline_timer, end);
	count_source(sampler, (uint64_t)mono_diff(end, now));
	apply_budget(sampler, end);
	ring_tick_end(sampler->writer, &sampler->stats);
	schedule_put_off(&sampler->schedule, ticks_to_sleep_through(sampler, end));
	ring_alarm(sampler, now);

	return true;
}

/* ---- the thread ---- */

static bool stopped(const struct sampler *sampler)
{
	return atomic_load_explicit(&sampler->stop, memory_order_relaxed);
}

/* A last tick at the end of the run, with its total cost. It belongs to no slot of the schedule. */
static void take_last_look(struct sampler *sampler)
{
	mono_t now = clock_mono(&sampler->deadline_timer.clock);

	end_sleep(sampler, now);
	schedule_stop(&sampler->schedule, now);
	look_at_thread(sampler);
	if (!begin_tick(sampler, now))
		return;

	publish_hole(sampler);
	take_commands(sampler, now); /* of a run that ends before its first tick */
	source_read_all_now(sampler->source);
	fill_source(sampler, now);
	publish_all(sampler);
	sampler->stats.own_cpu = real_clock_thread_cpu();
	ring_tick_end(sampler->writer, &sampler->stats);
}

static void name_thread(const struct sampler_seat *seat)
{
	char name[16] = "sampler";

	if (seat->of > 1)
		snprintf(name, sizeof name, "sampler/%u", seat->number);
	prctl(PR_SET_NAME, name);
}

/* A thread with real-time priority must sleep in each interval: nothing else lets normal ones run. */
static uint64_t longest_spin_ns(const struct sampler *sampler)
{
	return sampler->stats.real_time ? sampler->schedule.interval_ns / 4 : UINT64_MAX;
}

/* Of a stack: the deepest path of a tick takes 16 KiB. */
#define STACK_LOCKED ((size_t)64 << 10)

/* Of the calling thread: the end where a stack begins. */
static void lock_stack(void)
{
	pthread_attr_t attributes;
	size_t size = 0;
	void *at = NULL;

	if (pthread_getattr_np(pthread_self(), &attributes) != 0)
		return;
	pthread_attr_getstack(&attributes, &at, &size);
	pthread_attr_destroy(&attributes);
	if (size > STACK_LOCKED)
		mlock2((char *)at + size - STACK_LOCKED, STACK_LOCKED, MLOCK_ONFAULT);
}

static void lock_memory(struct sampler *sampler)
{
	void *const tables[] = { sampler, sampler->source, sampler->writer, sampler->commands, sampler->returns };

	lock_stack();
	for (size_t i = 0; i < ARRAY_LEN(tables); i++)
		lock_block(tables[i]);
}

/* What there is under a quota is needed for the first look at everything. */
static void begin_slowly(struct sampler *sampler)
{
	uint64_t interval_ns = sampler->options.source.interval_ns * budget_start_slowly(&sampler->budget);

	if (interval_ns == sampler->schedule.interval_ns)
		return;

	schedule_set_interval(&sampler->schedule, clock_mono(&sampler->deadline_timer.clock), interval_ns);
	source_set_interval(sampler->source, interval_ns);
}

static bool is_put_off(const struct sampler *sampler)
{
	return sampler->calm.sleeps && mono_diff(sampler->schedule.until, sampler->schedule.deadline) > 0;
}

/* Where it was roused the tick of now is not put off any more. */
static void stop_waiting(struct sampler *sampler, mono_t now)
{
	struct schedule *schedule = &sampler->schedule;
	int64_t since_ns = mono_diff(now, schedule->deadline);

	if (is_put_off(sampler) && mono_diff(schedule->until, now) > 0)
		schedule_put_off(schedule, since_ns > 0 ? (uint64_t)since_ns / schedule->interval_ns : 0);
}

static void *run(void *argument)
{
	struct sampler *sampler = argument;

	name_thread(&sampler->seat);
	if (sampler->options.lock_memory)
		lock_memory(sampler);
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	sampler->seen.run_delay_ns = sampler->seen.cpu_ns = 0;
	scheduling_start(&sampler->scheduling, sampler->options.scheduling, clock_mono(&sampler->deadline_timer.clock));
	sampler->stats.real_time = scheduling_class_of(&sampler->scheduling) == SCHEDULING_REAL_TIME;
	take_option_handoff(sampler, clock_mono(&sampler->deadline_timer.clock));
	restart_clocks(sampler);
	end_calm(sampler, sampler->schedule.deadline);
	begin_slowly(sampler);

	for (;;) {
		if (is_put_off(sampler))
			deadline_timer_nap(&sampler->deadline_timer, sampler->schedule.until);
		else
			deadline_timer_wait(&sampler->deadline_timer, schedule_deadline(&sampler->schedule),
					    sampler->options.wait, longest_spin_ns(sampler));
		deadline_timer_answer(&sampler->deadline_timer);
		if (stopped(sampler))
			break;

		mono_t now = clock_mono(&sampler->deadline_timer.clock);

		take_new_options(sampler, now);
		stop_waiting(sampler, now);
		if (mono_diff(schedule_deadline(&sampler->schedule), now) > 0)
			continue; /* called away from its sleep */
		if (take_tick(sampler, now))
			continue;
		end_sleep(sampler, now);
		deadline_timer_sleep(&sampler->deadline_timer, schedule_backoff(&sampler->schedule, now));
	}

	take_last_look(sampler);
	scheduling_end(&sampler->scheduling);

	return NULL;
}

/*
 * Several samplers of one ring tick in turn, number k that part of an interval after the first, and
 * are slowed down together by the leader, which must outlive the others' threads. Before the first
 * tick and sampler_start.
 */
static void sampler_sit(struct sampler *sampler, const struct sampler_seat *seat)
{
	sampler->seat = *seat;
	sampler->budget.leader = seat->leader ? &seat->leader->budget : NULL;
	sampler->budget.threads = seat->of;
	restart_clocks(sampler);
}

static int sampler_start(struct sampler *sampler)
{
	int r;

	atomic_store(&sampler->stop, false);
	deadline_timer_beat(&sampler->deadline_timer, clock_mono(&sampler->deadline_timer.clock));
	r = thread_start(&sampler->thread, run, sampler);
	sampler->running = r == 0;

	return r;
}

struct samplers {
	struct ring *ring;
	struct sampler_options options;
	unsigned count;
	unsigned next; /* whose returns are taken next */
	size_t placed; /* on all */
	struct sampler_target *refused;
	struct sampler_target **refused_end;
	uint64_t first_writer; /* the ring's number of the first */
	struct alarm alarm;
	struct {
		struct sampler *sampler;
		size_t placed;
	} threads[];
};

static int add_thread(struct samplers *samplers, unsigned of)
{
	struct sampler **sampler = &samplers->threads[samplers->count].sampler;
	struct sampler_seat seat = { .number = samplers->count, .of = of };
	int r = sampler_new(&samplers->options, samplers->ring, sampler);

	if (r < 0)
		return r;
	if (samplers->count > 0)
		seat.leader = samplers->threads[0].sampler;
	sampler_sit(*sampler, &seat);
	samplers->count++;
	return 0;
}

int samplers_new(const struct sampler_options *options, unsigned count, struct ring *ring, struct samplers **ret)
{
	assert(count >= 1 && count <= SAMPLERS_MAX);

	AUTO(samplers_freep)
	struct samplers *samplers = calloc(1, sizeof(*samplers) + count * sizeof(samplers->threads[0]));
	struct ring_info info;

	if (!samplers)
		return -ENOMEM;

	ring_info(ring, &info);
	samplers->first_writer = info.writers;
	samplers->ring = ring;
	samplers->options = *options;
	samplers->refused_end = &samplers->refused;
	samplers->alarm = (struct alarm){ .at_ns = UINT64_MAX, .quiet_at_ns = UINT64_MAX, .fd = -1 };
	for (unsigned i = 0; i < count; i++) {
		int r = add_thread(samplers, count);

		if (r < 0)
			return r;
	}

	*ret = TAKE(samplers);
	return 0;
}

static void call_off(struct samplers *samplers)
{
	for (unsigned i = 0; i < samplers->count; i++)
		sampler_call_off(samplers->threads[i].sampler);
}

void samplers_free(struct samplers *samplers)
{
	if (!samplers)
		return;

	samplers_stop(samplers); /* before the first is freed: the others read its slowdown */
	for (unsigned i = samplers->count; i-- > 0;)
		sampler_free(samplers->threads[i].sampler);
	if (samplers->alarm.fd >= 0)
		close(samplers->alarm.fd);
	free(samplers);
}

int samplers_open_alarm(struct samplers *samplers)
{
	int fd = samplers->alarm.fd >= 0 ? samplers->alarm.fd : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return -errno;

	samplers->alarm.fd = fd;
	for (unsigned i = 0; i < samplers->count; i++)
		samplers->threads[i].sampler->alarm = &samplers->alarm;
	return fd;
}

void samplers_set_alarm(struct samplers *samplers, mono_t at, mono_t quiet_at)
{
	atomic_store_explicit(&samplers->alarm.quiet_at_ns, quiet_at.ns, memory_order_relaxed);
	atomic_store_explicit(&samplers->alarm.at_ns, at.ns, memory_order_relaxed);
}

void samplers_rouse(struct samplers *samplers)
{
	for (unsigned i = 0; i < samplers->count; i++)
		deadline_timer_rouse(&samplers->threads[i].sampler->deadline_timer);
}

int samplers_retune(struct samplers *samplers, const struct sampler_options *options)
{
	int r = 0;
	unsigned told = 0;

	while (r == 0 && told < samplers->count)
		r = sampler_retune(samplers->threads[told++].sampler, options);
	if (r == 0) {
		samplers->options = *options;
		return 0;
	}

	for (unsigned i = 0; i + 1 < told; i++)
		sampler_retune(samplers->threads[i].sampler, &samplers->options);
	return r;
}

int samplers_start(struct samplers *samplers)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < samplers->count; i++)
		r = sampler_start(samplers->threads[i].sampler);
	if (r < 0)
		samplers_stop(samplers);
	return r;
}

void samplers_stop(struct samplers *samplers)
{
	call_off(samplers);
	for (unsigned i = 0; i < samplers->count; i++)
		sampler_stop(samplers->threads[i].sampler);
}

/* ---- targets ---- */

static unsigned thread_for(const struct samplers *samplers, const struct sampler_target *target)
{
	unsigned best = 0;

	if (target->group)
		return target->group->thread;
	for (unsigned i = 1; i < samplers->count; i++)
		if (samplers->threads[i].placed < samplers->threads[best].placed)
			best = i;
	return best;
}

static void refuse(struct samplers *samplers, struct sampler_target *target)
{
	target->refused = NULL;
	*samplers->refused_end = target;
	samplers->refused_end = &target->refused;
}

bool samplers_add(struct samplers *samplers, struct sampler_target *target)
{
	target->thread = thread_for(samplers, target);
	if (samplers->count > 1 && samplers->placed >= samplers->options.source.capacity) {
		refuse(samplers, target);
		return true;
	}
	if (!sampler_add(samplers->threads[target->thread].sampler, target))
		return false;

	target->placed = true;
	samplers->threads[target->thread].placed++;
	samplers->placed++;
	return true;
}

bool samplers_remove(struct samplers *samplers, struct sampler_target *target)
{
	return sampler_remove(samplers->threads[target->thread].sampler, target);
}

static void displace(struct samplers *samplers, struct sampler_target *target)
{
	if (!target->placed)
		return;

	target->placed = false;
	samplers->threads[target->thread].placed--;
	samplers->placed--;
}

static bool take_refused(struct samplers *samplers, struct sampler_target **ret, enum sampler_return *ret_why)
{
	struct sampler_target *target = samplers->refused;

	if (!target)
		return false;

	samplers->refused = target->refused;
	if (!samplers->refused)
		samplers->refused_end = &samplers->refused;
	*ret = target;
	*ret_why = SAMPLER_REFUSED;
	return true;
}

/* Targets that were refused here come first, before the answer to a samplers_remove of one. */
bool samplers_returned(struct samplers *samplers, struct sampler_target **ret, enum sampler_return *ret_why)
{
	if (take_refused(samplers, ret, ret_why))
		return true;

	for (unsigned i = 0; i < samplers->count; i++) {
		unsigned number = (samplers->next + i) % samplers->count;

		if (!sampler_returned(samplers->threads[number].sampler, ret, ret_why))
			continue;
		samplers->next = (number + 1) % samplers->count;
		displace(samplers, *ret);
		return true;
	}
	return false;
}

/* ---- figures ---- */

void samplers_charge(struct samplers *samplers, enum samplers_charge charge, clockid_t thread_clock)
{
	budget_charge(&samplers->threads[0].sampler->budget, charge, thread_clock);
}

void samplers_supply(struct samplers *samplers, const struct samplers_supply *supply)
{
	struct budget *budget = &samplers->threads[0].sampler->budget;
	uint64_t quota_ns = supply->quota_ns == UINT64_MAX ? 0 : supply->quota_ns;

	atomic_store_explicit(&budget->quota_ns, quota_ns, memory_order_relaxed);
	atomic_store_explicit(&budget->throttled_ns, supply->throttled_ns, memory_order_relaxed);
	atomic_store_explicit(&budget->stolen_ns, supply->stolen_ns, memory_order_relaxed);
}

struct samplers_state samplers_state(const struct samplers *samplers)
{
	const struct scheduling *worst = &samplers->threads[0].sampler->scheduling;
	const struct budget *budget = &samplers->threads[0].sampler->budget;
	struct samplers_state state = {
		.threads = samplers->count,
		.slowdown = budget_slowdown(budget),
		.back_off_since = { budget_backs_off_since(budget) },
		.quota_ns = atomic_load_explicit(&budget->quota_ns, memory_order_relaxed),
		.cpu_share = budget_share(budget),
	};

	for (unsigned i = 0; i < samplers->count; i++) {
		const struct sampler *sampler = samplers->threads[i].sampler;

		state.pulses[i] = deadline_timer_pulse(&sampler->deadline_timer);
		if (i == 0 || mono_diff(state.pulses[i], state.pulse) < 0)
			state.pulse = state.pulses[i];
		if (scheduling_class_of(&sampler->scheduling) < scheduling_class_of(worst))
			worst = &sampler->scheduling;
	}
	state.reason = scheduling_reason_of(worst);
	state.class = scheduling_class_of(worst);

	return state;
}

void samplers_stats(const struct samplers *samplers, struct stats *ret)
{
	struct stats sum = { 0 };

	for (unsigned i = 0; i < samplers->count; i++) {
		struct stats stats;

		sampler_stats(samplers->threads[i].sampler, &stats);
		stats_merge(&sum, &stats);
	}
	*ret = sum;
}

int samplers_thread_stats(const struct samplers *samplers, unsigned number, struct stats *ret)
{
	return ring_writer_stats(samplers->ring, samplers->first_writer + number, ret);
}
