/*
 * scheduling.c: real-time priority, and what bounds it.
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
 * thread run, so the wait before a deadline must end in a sleep (sampler.c).
 *
 * Without permission: a slice of 0.1 ms makes the virtual deadline of a normal thread earlier, so that
 * it is chosen soon after it woke up. It gets no more CPU than its weight, so it helps where few
 * threads compete. Rejected: SCHED_DEADLINE, which needs CAP_SYS_NICE, refuses threads that are bound to
 * CPUs, and whose run time would have to be known before.
 */
#include "daemon/engine/sampling/scheduling.h"

#include "daemon/engine/base/proc_read.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_SHORT_NS (100 * NS_PER_US)

/* Of a period, beyond which real-time priority does not help. */
#define HELD_SHARE 0.5

/* struct sched_attr of linux/sched/types.h, which some C libraries define too; its first version. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

#define RESET_ON_FORK 1u

static _Thread_local struct scheduling *own; /* of this thread, while it samples */

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

/* ---- asking the kernel ---- */

static int set_attributes(const struct attributes *attributes)
{
	return syscall(SYS_sched_setattr, 0, attributes, 0) < 0 ? -errno : 0;
}

/* Also in a signal handler: async-signal-safe. */
static enum scheduling_class be_normal(const struct scheduling *scheduling)
{
	struct attributes wanted = { .size = sizeof wanted,
				     .policy = SCHED_OTHER,
				     .flags = scheduling->keeps_reset ? RESET_ON_FORK : 0,
				     .nice = getpriority(PRIO_PROCESS, 0),
				     .runtime = SLICE_SHORT_NS };
	struct attributes found = { 0 };

	if (set_attributes(&wanted) < 0 || syscall(SYS_sched_getattr, 0, &found, (unsigned)sizeof found, 0) < 0)
		return SCHEDULING_NORMAL;

	return found.runtime == SLICE_SHORT_NS ? SCHEDULING_SHORT_SLICE : SCHEDULING_NORMAL;
}

static bool is_disabled(void)
{
	char text[32];
	ssize_t len = proc_read_file(AT_FDCWD, 0, "/proc/sys/kernel/sched_rt_runtime_us", text, sizeof text);

	return len > 0 && text[0] == '0';
}

static bool is_permitted(void)
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
	struct attributes wanted = {
		.size = sizeof wanted, .policy = SCHED_FIFO, .flags = RESET_ON_FORK, .priority = 1
	};
	int r = set_attributes(&wanted);

	if (r < 0)
		return r != -EPERM ? SCHEDULING_FAILED : is_permitted() ? SCHEDULING_REFUSED : SCHEDULING_UNPRIVILEGED;
	scheduling->keeps_reset = true;

	return SCHEDULING_NO_REASON;
}

static void set_state(struct scheduling *scheduling, enum scheduling_class class, enum scheduling_reason reason)
{
	atomic_store_explicit(&scheduling->class, (int)class, memory_order_relaxed);
	atomic_store_explicit(&scheduling->reason, (int)reason, memory_order_relaxed);
}

/* ---- the limit of a run ---- */

/*
 * SIGXCPU comes of RLIMIT_RTTIME, to a thread with real-time priority, or of RLIMIT_CPU, which is
 * the user's, and ends the process as it would without a handler.
 */
static void on_cpu_limit(int number)
{
	if (!own || scheduling_class_of(own) != SCHEDULING_REAL_TIME) {
		signal(number, SIG_DFL);
		raise(number);
		return;
	}

	int error = errno;

	set_state(own, be_normal(own), SCHEDULING_ENDLESS);
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

/* ---- the life of a thread ---- */

static void begin_period(struct scheduling *scheduling, mono_t now, uint64_t cpu_ns)
{
	scheduling->since = now;
	scheduling->cpu_ns = cpu_ns;
	scheduling->run_delay_ns = scheduling_run_delay(scheduling);
}

static void apply(struct scheduling *scheduling)
{
	enum scheduling_reason reason = SCHEDULING_CONFIGURED;

	if (scheduling->wanted == CONFIG_SCHEDULING_AUTO)
		reason = is_disabled() ? SCHEDULING_DISABLED : SCHEDULING_NO_REASON;
	if (reason == SCHEDULING_NO_REASON) {
		limit_runs();
		reason = be_real_time(scheduling);
	}
	scheduling->costly = scheduling->held = 0;
	set_state(scheduling, reason == SCHEDULING_NO_REASON ? SCHEDULING_REAL_TIME : be_normal(scheduling), reason);
}

void scheduling_start(struct scheduling *scheduling, enum config_scheduling wanted, mono_t now)
{
	*scheduling = (struct scheduling){ .wanted = wanted };
	scheduling->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	own = scheduling;
	handle_cpu_limit();
	apply(scheduling);
	begin_period(scheduling, now, 0);
}

void scheduling_end(struct scheduling *scheduling)
{
	own = NULL;
	if (scheduling->schedstat >= 0)
		close(TAKE_FD(scheduling->schedstat));
}

void scheduling_change(struct scheduling *scheduling, enum config_scheduling wanted, mono_t now)
{
	if (wanted == scheduling->wanted)
		return;

	scheduling->wanted = wanted;
	scheduling->withdrawn_ns = 0;
	apply(scheduling);
	begin_period(scheduling, now, scheduling->cpu_ns);
}

static void withdraw(struct scheduling *scheduling, mono_t now)
{
	uint64_t ns = scheduling->withdrawn_ns * 2;

	if (ns == 0)
		ns = SCHEDULING_WITHDRAWN_NS;
	scheduling->withdrawn_ns = ns < SCHEDULING_WITHDRAWN_MAX_NS ? ns : SCHEDULING_WITHDRAWN_MAX_NS;
	scheduling->until = mono_add(now, scheduling->withdrawn_ns);
}

void scheduling_look(struct scheduling *scheduling, mono_t now, uint64_t cpu_ns, double allowed)
{
	double passed = (double)mono_diff(now, scheduling->since);
	double share = (double)(cpu_ns - scheduling->cpu_ns) / passed;
	double waited = (double)(scheduling_run_delay(scheduling) - scheduling->run_delay_ns) / passed;
	enum scheduling_reason reason = scheduling_reason_of(scheduling);

	if (passed <= 0)
		return;

	if (allowed <= 0 || allowed > SCHEDULING_SHARE_MAX)
		allowed = SCHEDULING_SHARE_MAX;
	begin_period(scheduling, now, cpu_ns);
	scheduling->costly = share > allowed ? scheduling->costly + 1 : 0;
	scheduling->held = waited > HELD_SHARE ? scheduling->held + 1 : 0;

	if (scheduling_class_of(scheduling) == SCHEDULING_REAL_TIME) {
		if (scheduling->costly < SCHEDULING_PERIODS && scheduling->held < SCHEDULING_PERIODS)
			return;
		set_state(scheduling, be_normal(scheduling),
			  scheduling->held < SCHEDULING_PERIODS ? SCHEDULING_COSTLY : SCHEDULING_HELD);
		withdraw(scheduling, now);
	} else if (scheduling_was_withdrawn(reason)) {
		if (scheduling->until.ns == 0)
			withdraw(scheduling, now); /* by the handler */
		if (mono_diff(now, scheduling->until) < 0 || share > allowed / 2)
			return;
		scheduling->until = (mono_t){ 0 };
		apply(scheduling);
	}
}

/* schedstat (proc(5)): "<ns on a CPU> <ns waiting for one> <time slices>". */
uint64_t scheduling_run_delay(const struct scheduling *scheduling)
{
	char text[96], *end;
	ssize_t len = scheduling->schedstat < 0 ? -1 : pread(scheduling->schedstat, text, sizeof text - 1, 0);

	if (len <= 0)
		return 0;

	text[len] = '\0';
	strtoull(text, &end, 10);

	return strtoull(end, NULL, 10);
}
