/*
 * stack_recorder.c: opening and closing, and the thread that empties the side rings.
 *
 * The thread wakes once a second, or when a side ring is half full; and for a moment where page
 * faults come fast (stack_recorder_faults.h). A process forks on one CPU and its child runs on
 * another: records are put in the order of their times over all rings before the book sees them,
 * and those of the last moment wait, since an older one may not have been written yet.
 *
 * Rejected: reading /proc of everybody at start, which costs a second on a large machine, for
 * processes that no sample may ever hit. Who is hit is looked up when somebody asks
 * (stack_recorder_snapshot.c).
 */
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/stacks/stack_source.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/perf_events.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/stacks/thread_events.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/model/pacing.h"
#include "lib/proc/mapping_history.h"
#include "lib/proc/perf.h"
#include "lib/proc/procfs.h"
#include "lib/profile/stack_file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

struct stack_recorder_faults_options {
	enum stack_file_stream_kind
		kind; /* STACK_FILE_FAULTS: of everybody; STACK_FILE_FAULTS_FOLLOWED: of followed threads */
	const struct perf_events_wanted *wanted; /* borrowed */
	const struct perf_events *rings;         /* borrowed; one for each CPU */
	unsigned cpus;
	int proc_fd; /* borrowed */
};

/* ---- stack recorder_events.c ---- */

/* ---- stack_recorder_follow.c ---- */

static void stack_recorder_faults_close(struct stack_recorder_faults *faults);
static uint64_t stack_recorder_busy_now(int proc_fd);

/*
 * following.c: two lists, as of the last whole scan and as of the running one. The difference of
 * CPU times between the two says who is busy.
 *
 * Where there are more than THREAD_SELECTION_MAX, one that is followed already is exchanged only
 * for one that is clearly busier: opening events for all its threads has its price, and what its
 * rings hold of the past would begin anew.
 */

struct candidate {
	uint64_t start_ticks, cpu_ticks;
	uint64_t used_ticks; /* since the scan before */
	uint32_t pid;
	bool followed;
};

struct list {
	struct candidate *rows;
	size_t count, room;
};

struct thread_selection {
	thread_selection_take *take;
	void *ctx;
	struct list last, now; /* last is ascending by pid */
	uint32_t set[THREAD_SELECTION_MAX];
	uint64_t starts[THREAD_SELECTION_MAX]; /* of the processes in the set: another one may get its number */
	size_t count;
};

int thread_selection_new(thread_selection_take *take, void *ctx, struct thread_selection **ret)
{
	struct thread_selection *thread_selection = calloc(1, sizeof(*thread_selection));

	if (thread_selection == NULL)
		return -ENOMEM;
	thread_selection->take = take;
	thread_selection->ctx = ctx;
	*ret = thread_selection;
	return 0;
}

void thread_selection_free(struct thread_selection *thread_selection)
{
	if (thread_selection == NULL)
		return;
	free(thread_selection->last.rows);
	free(thread_selection->now.rows);
	free(thread_selection);
}

void thread_selection_begin(struct thread_selection *thread_selection)
{
	if (thread_selection == NULL)
		return;
	thread_selection->now.count = 0;
}

static int by_pid(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* As of the last scan; NULL: it was not there, or another process had its number. */
static const struct candidate *recall(const struct list *list, const struct procfs_stat *stat)
{
	struct candidate key = { .pid = (uint32_t)stat->pid };
	const struct candidate *found =
		list->count > 0 ? bsearch(&key, list->rows, list->count, sizeof(key), by_pid) : NULL;

	return found != NULL && found->start_ticks == stat->start_ticks ? found : NULL;
}

/* False: there is no room. */
static bool has_room(struct list *list)
{
	size_t room = list->room == 0 ? 64 : 2 * list->room;
	struct candidate *rows;

	if (list->count < list->room)
		return true;
	if (list->count >= THREAD_SELECTION_CANDIDATES_MAX)
		return false;
	rows = reallocarray(list->rows, room, sizeof(*rows));
	if (rows == NULL)
		return false;
	list->rows = rows;
	list->room = room;
	return true;
}

void thread_selection_met(struct thread_selection *thread_selection, const struct procfs_stat *stat, bool watched)
{
	const struct candidate *before = thread_selection != NULL ? recall(&thread_selection->last, stat) : NULL;
	uint64_t cpu_ticks = stat->user_ticks + stat->system_ticks;

	if (thread_selection == NULL || (!watched && before == NULL) || !has_room(&thread_selection->now))
		return;
	thread_selection->now.rows[thread_selection->now.count++] = (struct candidate){
		.pid = (uint32_t)stat->pid,
		.start_ticks = stat->start_ticks,
		.cpu_ticks = cpu_ticks,
		.used_ticks = before != NULL && cpu_ticks > before->cpu_ticks ? cpu_ticks - before->cpu_ticks : 0,
		.followed = before != NULL && before->followed,
	};
}

/* Twice as busy, and a tick more, is clearly busier. */
static uint64_t weight(const struct candidate *candidate)
{
	return candidate->followed ? 2 * candidate->used_ticks + 1 : candidate->used_ticks;
}

static int by_weight(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	uint64_t of_a = weight(a), of_b = weight(b);

	return of_a > of_b ? -1 : of_a < of_b ? 1 : by_pid(a, b);
}

/* Marks those that are to be followed; the list is ascending by pid then. */
static void choose(struct list *list)
{
	if (list->count > THREAD_SELECTION_MAX)
		qsort(list->rows, list->count, sizeof(*list->rows), by_weight);
	for (size_t i = 0; i < list->count; i++)
		list->rows[i].followed = i < THREAD_SELECTION_MAX;
	if (list->count > 0)
		qsort(list->rows, list->count, sizeof(*list->rows), by_pid);
}

/* True: it is another one than before. */
static bool make_set(struct thread_selection *thread_selection, const struct list *list)
{
	size_t count = 0;
	bool changed = false;

	for (size_t i = 0; i < list->count; i++) {
		const struct candidate *row = &list->rows[i];

		if (!row->followed)
			continue;
		changed |= count >= thread_selection->count || thread_selection->set[count] != row->pid ||
			   thread_selection->starts[count] != row->start_ticks;
		thread_selection->set[count] = row->pid;
		thread_selection->starts[count++] = row->start_ticks;
	}
	changed |= count != thread_selection->count;
	thread_selection->count = count;
	return changed;
}

void thread_selection_end(struct thread_selection *thread_selection)
{
	struct list last;

	if (thread_selection == NULL)
		return;
	last = thread_selection->last;
	choose(&thread_selection->now);
	thread_selection->last = thread_selection->now;
	thread_selection->now = last;
	if (make_set(thread_selection, &thread_selection->last))
		thread_selection->take(thread_selection->ctx, thread_selection->set, thread_selection->count);
}

void thread_selection_forget(struct thread_selection *thread_selection)
{
	if (thread_selection == NULL)
		return;
	thread_selection->last.count = 0;
}

/*
 * stack_recorder_faults.c: an event of page faults costs at each fault, whether it is sampled or
 * not: some 60 ns with registers and stack, where a fault takes one to two microseconds (x86-64 in
 * a virtual machine, Linux 6.18). A program that does nothing but touch new memory is slowed by
 * three to five in a hundred. So no CPU counts more than FAULTS_PER_SECOND of them on an average,
 * and FAULTS_PER_BURST at once (lib/overload_sampling.h): 320 MB, then the events are closed for
 * most of each tenth of a second. That is 3 ms of each second, 8 of the first, and programs that
 * touch memory slowly, or a lot of it at once, have all of it counted.
 *
 * 	ring woke (four samples) ──▶ count them since the slot began ──▶ too many: close │ read the clock
 *  and /proc/vmstat
 * 	                                                                    later: open  │ the same
 *
 * Closed, and not disabled: the kernel patches its fault handler when the first such event of the
 * machine is opened and the last is closed. While there is one, even a disabled one, 20 ns are gone
 * at each fault, of every CPU: that alone is one to two in a hundred. So all CPUs' events are
 * closed and opened together, and one is not counted because of its neighbour for a while; two
 * system calls for each, 20 us on two CPUs, at most twenty times a second. The rings stay: they
 * belong to events that count nothing. A new event begins its period anew, and on a CPU that has
 * few faults would never come to its end: lib/phase.h.
 *
 * Those of followed threads, which is all there is without the privilege, are inherited by whatever
 * these start and cannot be opened anew without losing some. They are disabled, and the 20 ns
 * remain.
 *
 * Rejected: two events for each fault of who is followed, everybody's with a call chain and its own
 * with registers and stack, which costs twice; there is one now, with stacks of everybody.
 * PERF_EVENT_IOC_REFRESH, by which an event disables itself after so many samples: exact, but
 * disabled only, and not for inherited ones. A longer period: it is not the samples that cost.
 * Stacks of CPU samples that hit the fault handler, which cost nothing: 99 a second, a third of
 * them of the handler, and no way to tell how many faults each stands for. The tracepoints of
 * faults: they cost more.
 */

/* 64 ns each: a quarter of a percent of a CPU, and three quarters in the first second. */
#define FAULTS_PER_SECOND 40000u
#define FAULTS_PER_SLOT 4000u
#define FAULTS_PER_BURST 80000u

/* The longest that the rings are looked back: a thread that was kept waiting. */
#define COUNT_MAX 64u

/* Openings that are remembered of a ring: twenty seconds and more. */
#define STRETCHES 256u

/* From one opening of the events to the next. */
struct stretch {
	uint64_t from_ns;
	uint64_t each; /* what a sample stands for */
};

struct cpu {
	int fd;          /* everybody's event; -1: closed, or there is none */
	uint64_t period; /* of fd */
	struct phase phase;
	uint64_t head; /* of the ring when the slot began */
	struct stretch stretches[STRETCHES];
	uint64_t count; /* of them, ever */
};

struct stack_recorder_faults {
	struct stack_recorder_faults_options options;
	struct perf_events_wanted wanted; /* of one opening */
	uint64_t period;
	bool by_time; /* there is no total: the time is taken for it */
	uint64_t last_total;
	pthread_mutex_t lock; /* of all below */
	struct overload_sampling overload_sampling;
	int error;
	struct cpu cpus[];
};

/* ---- the total ---- */

bool stack_recorder_faults_total(const char *text, size_t len, uint64_t *ret)
{
	static const char name[] = "\npgfault ";
	const char *at = memmem(text, len, name, sizeof(name) - 1);
	const char *end = text + len;
	uint64_t total = 0;

	if (at == NULL)
		return false;
	at += sizeof(name) - 1;
	if (at == end || *at < '0' || *at > '9')
		return false;
	for (; at < end && *at >= '0' && *at <= '9'; at++)
		total = total * 10 + (uint64_t)(*at - '0');
	*ret = total;
	return at < end && *at == '\n';
}

/* Some 30 us. */
static uint64_t read_total(struct stack_recorder_faults *faults, uint64_t now_ns)
{
	char text[16384]; /* a third of it is used */
	ssize_t len;

	if (faults->by_time)
		return now_ns;
	len = proc_read_file(faults->options.proc_fd, 0, "vmstat", text, sizeof(text));
	if (len > 0)
		stack_recorder_faults_total(text, (size_t)len, &faults->last_total);
	return faults->last_total;
}

static uint64_t now(void)
{
	struct clock clock = real_clock();

	return clock_mono(&clock).ns;
}

/* ---- the events ---- */

static bool of_everybody(const struct stack_recorder_faults *faults)
{
	return faults->options.kind == STACK_FILE_FAULTS;
}

/* each: what is known of it by now. */
static void begin_stretch(struct cpu *cpu, uint64_t now_ns)
{
	cpu->stretches[cpu->count++ % STRETCHES] = (struct stretch){ now_ns, cpu->period };
}

static int open_event(struct stack_recorder_faults *faults, unsigned ring, uint64_t period)
{
	struct cpu *cpu = &faults->cpus[ring];
	uint64_t now_ns = now();

	faults->wanted.fault_period = cpu->period = period;
	cpu->fd = perf_events_follow(&faults->wanted, -1, &faults->options.rings[ring]);
	if (cpu->fd >= 0)
		begin_stretch(cpu, now_ns);
	return cpu->fd < 0 && cpu->fd != -ENODEV ? cpu->fd : 0;
}

/*
 * Disabled first: a child that was forked a moment ago has the descriptor, too, until it is another
 * program.
 */
static void close_event(struct cpu *cpu)
{
	uint64_t counted = 0, unused = 0, each;

	if (cpu->fd < 0)
		return;
	perf_events_switch(cpu->fd, false);
	perf_events_count(cpu->fd, &counted, &unused);
	close(cpu->fd);
	cpu->fd = -1;
	each = phase_end(&cpu->phase, cpu->period, counted);
	if (each != 0)
		cpu->stretches[(cpu->count - 1) % STRETCHES].each = each;
}

/* Those that are closed. calm: for long, so with the period as it should be. */
static void open_all(struct stack_recorder_faults *faults, bool calm)
{
	faults->error = 0;
	for (unsigned i = 0; of_everybody(faults) && i < faults->options.cpus; i++) {
		struct cpu *cpu = &faults->cpus[i];
		int r = 0;

		if (cpu->fd < 0)
			r = open_event(faults, i, calm ? faults->period : phase_period(&cpu->phase));
		if (r < 0)
			faults->error = r;
	}
}

/* Without the lock: it takes as long as there are threads. */
static void switch_threads(const struct stack_recorder_faults *faults, struct thread_events *threads, bool on)
{
	if (!of_everybody(faults) && threads != NULL)
		thread_events_switch(threads, PERF_EVENTS_FAULTS, on);
}

/* ---- opening ---- */

struct overload_sampling_options stack_recorder_faults_limits(uint64_t period)
{
	uint64_t most = (FAULTS_PER_SLOT + period / 2) / period;

	most += most == 0;
	return (struct overload_sampling_options){ .slot_ns = most * period * (NS_PER_S / FAULTS_PER_SECOND),
						   .most = (uint32_t)most,
						   .burst = (uint32_t)((FAULTS_PER_BURST + period / 2) / period),
						   .seed = (uint32_t)getpid() };
}

/*
 * Opens everybody's events. 0; -ENOMEM; -errno, and then reason, of PERF_EVENTS_REASON_MAX bytes,
 * says it for people. *ret is the caller's: stack_recorder_faults_close.
 */
static int stack_recorder_faults_open(const struct stack_recorder_faults_options *options,
				      struct stack_recorder_faults **ret, char *reason)
{
	struct stack_recorder_faults *faults = calloc(1, sizeof(*faults) + options->cpus * sizeof(struct cpu));
	struct overload_sampling_options limits;
	uint64_t now_ns = now();
	int r;

	if (faults == NULL)
		return -ENOMEM;
	faults->options = *options;
	faults->wanted = *options->wanted;
	faults->period = perf_events_period(options->wanted);
	limits = stack_recorder_faults_limits(faults->period);
	for (unsigned i = 0; i < options->cpus; i++) {
		faults->cpus[i].fd = -1;
		faults->cpus[i].period = faults->cpus[i].phase.period = faults->period;
		faults->cpus[i].head = perf_ring_head(&options->rings[i].ring);
	}
	read_total(faults, now_ns);
	faults->by_time = faults->last_total == 0;
	overload_sampling_init(&faults->overload_sampling, &limits, now_ns, read_total(faults, now_ns));
	pthread_mutex_init(&faults->lock, NULL);
	open_all(faults, true);
	r = faults->error;
	if (r < 0) {
		perf_events_refusal(r, reason);
		stack_recorder_faults_close(faults);
		return r;
	}
	*ret = faults;
	return 0;
}

/* NULL is fine. */
static void stack_recorder_faults_close(struct stack_recorder_faults *faults)
{
	if (faults == NULL)
		return;
	for (unsigned i = 0; i < faults->options.cpus; i++)
		if (faults->cpus[i].fd >= 0)
			close(faults->cpus[i].fd);
	pthread_mutex_destroy(&faults->lock);
	free(faults);
}

/* ---- the thread ---- */

/*
 * How long poll(2) may wait at most. Milliseconds, no more than most. For the recorder's thread, as
 * the next.
 */
static int stack_recorder_faults_wait_ms(struct stack_recorder_faults *faults, int most)
{
	uint64_t next_ns, now_ns = now(), wait_ms = 0;

	pthread_mutex_lock(&faults->lock);
	next_ns = overload_sampling_next_ns(&faults->overload_sampling);
	pthread_mutex_unlock(&faults->lock);
	if (next_ns > now_ns)
		wait_ms = (next_ns - now_ns) / NS_PER_MS + 1;
	return wait_ms < (uint64_t)most ? (int)wait_ms : most;
}

/*
 * Of the ring that had most of them since the slot began; those of a shorter period count for less.
 */
static uint64_t most_samples(const struct stack_recorder_faults *faults)
{
	size_t up_to = (size_t)faults->overload_sampling.options.most * COUNT_MAX;
	uint64_t most = 0;

	for (unsigned i = 0; i < faults->options.cpus; i++) {
		uint64_t count = perf_ring_count(&faults->options.rings[i].ring, faults->cpus[i].head, up_to);

		count = count * faults->cpus[i].period / faults->period;
		most = count > most ? count : most;
	}
	return most;
}

static void begin_slot(struct stack_recorder_faults *faults)
{
	for (unsigned i = 0; i < faults->options.cpus; i++)
		faults->cpus[i].head = perf_ring_head(&faults->options.rings[i].ring);
}

/*
 * Where a tenth of a second was quiet after all: periods that are not what they should be have had
 * their time.
 */
static void calm_down(struct stack_recorder_faults *faults)
{
	for (unsigned i = 0; of_everybody(faults) && i < faults->options.cpus; i++)
		if (faults->cpus[i].period != faults->period)
			close_event(&faults->cpus[i]);
	open_all(faults, true);
}

static void faults_stop(struct stack_recorder_faults *faults, struct thread_events *threads, uint64_t samples)
{
	uint64_t now_ns;

	switch_threads(faults, threads, false);
	pthread_mutex_lock(&faults->lock);
	for (unsigned i = 0; i < faults->options.cpus; i++)
		close_event(&faults->cpus[i]);
	now_ns = now();
	overload_sampling_stop(&faults->overload_sampling, now_ns, read_total(faults, now_ns), samples);
	pthread_mutex_unlock(&faults->lock);
}

/* samples: of the slot that is over. */
static void begin(struct stack_recorder_faults *faults, struct thread_events *threads, uint64_t samples)
{
	uint64_t now_ns = now();
	bool was_on = faults->overload_sampling.on;

	pthread_mutex_lock(&faults->lock);
	if (was_on)
		calm_down(faults);
	begin_slot(faults);
	overload_sampling_begin(&faults->overload_sampling, now_ns, read_total(faults, now_ns), samples);
	open_all(faults, false);
	pthread_mutex_unlock(&faults->lock);
	if (!was_on)
		switch_threads(faults, threads, true);
}

/*
 * Looks at the rings and switches off or on what is to be. threads: whose events those of followed
 * threads are; else NULL.
 */
/* Only this thread switches: what it reads without the lock nobody changes. */
static void stack_recorder_faults_look(struct stack_recorder_faults *faults, struct thread_events *threads)
{
	uint64_t now_ns = now(), samples;

	if (!faults->overload_sampling.on) {
		if (now_ns >= faults->overload_sampling.next_ns)
			begin(faults, threads, 0);
		return;
	}
	samples = most_samples(faults);
	switch (overload_sampling_judge(&faults->overload_sampling, now_ns, samples)) {
	case OVERLOAD_SAMPLING_STOP:
		faults_stop(faults, threads, samples);
		break;
	case OVERLOAD_SAMPLING_SLOT:
		if (samples > 0 || faults->overload_sampling.watchful || faults->error < 0)
			begin(faults, threads, samples);
		break;
	case OVERLOAD_SAMPLING_GO_ON:
		break;
	}
}

/* ---- who looks at the rings ---- */

void stack_recorder_faults_settle(struct stack_recorder_faults *faults)
{
	uint64_t now_ns;

	pthread_mutex_lock(&faults->lock);
	now_ns = now();
	overload_sampling_settle(&faults->overload_sampling, now_ns, read_total(faults, now_ns));
	pthread_mutex_unlock(&faults->lock);
}

/* What a sample of this ring and time stands for by itself. */
static uint64_t each_of(const struct stack_recorder_faults *faults, unsigned ring, uint64_t time_ns)
{
	const struct cpu *cpu = &faults->cpus[ring];

	for (uint64_t back = 0; back < cpu->count && back < STRETCHES; back++) {
		const struct stretch *stretch = &cpu->stretches[(cpu->count - 1 - back) % STRETCHES];

		if (stretch->from_ns <= time_ns)
			return stretch->each;
	}
	return faults->period;
}

uint64_t stack_recorder_faults_weigh(struct stack_recorder_faults *faults, unsigned ring, uint64_t time_ns)
{
	uint64_t weight;

	pthread_mutex_lock(&faults->lock);
	weight = overload_sampling_weigh(&faults->overload_sampling, time_ns, each_of(faults, ring, time_ns));
	pthread_mutex_unlock(&faults->lock);
	return weight;
}

void stack_recorder_faults_sum_up(struct stack_recorder_faults *faults, uint64_t from_ns, uint64_t to_ns,
				  struct overload_sampling_summary *ret)
{
	pthread_mutex_lock(&faults->lock);
	overload_sampling_sum_up(&faults->overload_sampling, from_ns, to_ns, ret);
	pthread_mutex_unlock(&faults->lock);
}

/* Why there are no events on some CPU, which should have some: -errno; 0: there are. Any thread. */
static int stack_recorder_faults_error(struct stack_recorder_faults *faults)
{
	int error;

	pthread_mutex_lock(&faults->lock);
	error = faults->error;
	pthread_mutex_unlock(&faults->lock);
	return error;
}

/*
 * stack recorder_events.c: from what is asked for to what there is.
 *
 * 	try everybody's ── allowed ──────────────────────────▶ everybody's; followed ones if they have
 *  stacks
 * 	       │ not allowed
 * 	       └──▶ try our own thread ── allowed ──────────▶ followed ones only
 * 	                    │ not, not even without the kernel
 * 	                    └──▶ that is the end
 *
 * What a trial shows (no cycles here, no build ids, no kernel) is settled before anything is
 * planned. If the kernel has no room for the rings of a plan the next smaller one is tried, and all
 * rings are opened anew.
 */

#define DEFAULT_FREQUENCY 99
#define DEFAULT_STACK_BYTES 8192
#define STACK_BYTES_MIN 1024
#define STACK_BYTES_MAX 32768
#define CPUS_MAX 8192
#define US ((pid_t)0)
#define EVERYBODY ((pid_t)-1)

static bool is_refusal(int error)
{
	return error == -EACCES || error == -EPERM;
}

/* Adds to status.limits, as much as there is room for. */
__attribute__((format(printf, 2, 3))) static void say(struct stack_recorder *recorder, const char *format, ...)
{
	char *limits = recorder->status.limits;
	size_t len = strlen(limits);
	va_list arguments;

	if (len > 0 && len < STACK_RECORDER_REASON_MAX - 2) {
		memcpy(limits + len, "; ", 3);
		len += 2;
	}
	va_start(arguments, format);
	vsnprintf(limits + len, STACK_RECORDER_REASON_MAX - len, format, arguments);
	va_end(arguments);
}

static unsigned configured_cpus(void)
{
	long configured = sysconf(_SC_NPROCESSORS_CONF);

	return configured > 0 && configured <= CPUS_MAX ? (unsigned)configured : CPUS_MAX;
}

/* ---- what is possible ---- */

/* Opens one on the first CPU that is online, and closes it again. 0 or -errno. */
static int probe(const struct perf_events_wanted *wanted, pid_t tid)
{
	int fd = -ENODEV;

	for (unsigned cpu = 0; fd == -ENODEV && cpu < configured_cpus(); cpu++)
		fd = perf_events_event(wanted, tid, cpu);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

/* The same, giving up on what this machine does not have; of a thread, also on the kernel. */
static int settle(struct perf_events_wanted *wanted, pid_t tid)
{
	int r = probe(wanted, tid);

	if (wanted->cycles && (r == -ENOENT || r == -EOPNOTSUPP || r == -EINVAL || r == -ENODEV)) {
		wanted->cycles = false;
		r = probe(wanted, tid);
	}
	if (wanted->build_ids && r == -EINVAL) {
		wanted->build_ids = false;
		r = probe(wanted, tid);
	}
	if (!wanted->user_only && tid != EVERYBODY && is_refusal(r)) {
		wanted->user_only = true;
		r = settle(wanted, tid);
	}
	return r;
}

static void want(struct stack_recorder *recorder, enum stack_file_stream_kind kind, enum perf_events_kind event,
		 const struct perf_events_wanted *like)
{
	struct stack_recorder_kind *entry = &recorder->kinds[kind];

	entry->on = true;
	entry->wanted = *like;
	entry->wanted.kind = event;
	if (event != PERF_EVENTS_CPU)
		entry->wanted.cycles = false;
	if (event == PERF_EVENTS_SIDE)
		entry->wanted.stack_bytes = 0;
	entry->followed = kind == STACK_FILE_CPU_FOLLOWED || kind == STACK_FILE_FAULTS_FOLLOWED ||
			  (kind == STACK_FILE_BOOK && !recorder->status.everybody);
	entry->apart = entry->followed || kind == STACK_FILE_FAULTS;
	if (event == PERF_EVENTS_FAULTS)
		entry->wanted.wake_samples = stack_recorder_faults_limits(perf_events_period(&entry->wanted)).most;
	entry->format = entry->written = perf_events_format(&entry->wanted);
	entry->written.sample_type |= PERF_SAMPLE_PERIOD;
}

/*
 * Whether everybody's events are allowed; if not, whether those of our own are. 0; -errno and then
 * reason.
 */
static int ask_kernel(struct stack_recorder *recorder, const struct stack_recorder_options *options,
		      struct perf_events_wanted *wanted, char *reason)
{
	int r = -EPERM;

	if (!options->followed_only) {
		r = settle(wanted, EVERYBODY);
		if (r < 0)
			perf_events_refusal(r, reason);
		else
			recorder->status.everybody = true;
		if (!is_refusal(r))
			return r;
	}
	if (options->followed_only) {
		r = settle(wanted, US);
		return r < 0 ? perf_events_refusal(r, reason) : 0;
	}
	return settle(wanted, US) < 0 ? r : 0;
}

static uint32_t stack_bytes(const struct stack_recorder_options *options)
{
	uint32_t bytes = options->stack_bytes != 0 ? options->stack_bytes : DEFAULT_STACK_BYTES;

	if (bytes > STACK_BYTES_MAX)
		return STACK_BYTES_MAX;
	return bytes < STACK_BYTES_MIN ? STACK_BYTES_MIN : bytes / 8 * 8;
}

/* Whether followed events can have what everybody's cannot: registers and stack. */
static bool can_dwarf(struct stack_recorder *recorder, const struct stack_recorder_options *options,
		      const struct perf_events_wanted *wanted)
{
	struct perf_events_wanted stacks = *wanted;
	int r;

	if (!options->dwarf)
		return false;
	if (!perf_events_can_dwarf()) {
		say(recorder, "no stacks to unwind: this machine's registers are not known");
		return false;
	}
	stacks.stack_bytes = stack_bytes(options);
	r = probe(&stacks, US);
	if (r < 0)
		say(recorder, "no stacks to unwind: perf_event_open: %s", strerror(-r));
	return r == 0;
}

static void want_all(struct stack_recorder *recorder, const struct stack_recorder_options *options,
		     const struct perf_events_wanted *wanted, const struct stack_recorder_plan *plan)
{
	static const enum perf_events_kind events[STACK_FILE_STREAM_KINDS] = {
		[STACK_FILE_BOOK] = PERF_EVENTS_SIDE,
		[STACK_FILE_CPU] = PERF_EVENTS_CPU,
		[STACK_FILE_CPU_FOLLOWED] = PERF_EVENTS_CPU,
		[STACK_FILE_FAULTS] = PERF_EVENTS_FAULTS,
		[STACK_FILE_FAULTS_FOLLOWED] = PERF_EVENTS_FAULTS,
	};

	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++) {
		struct perf_events_wanted like = *wanted;

		recorder->kinds[kind] = (struct stack_recorder_kind){ .ring_bytes = plan->ring_bytes[kind] };
		if (plan->ring_bytes[kind] == 0)
			continue;
		if (kind != STACK_FILE_CPU && plan->dwarf)
			like.stack_bytes = stack_bytes(options);
		want(recorder, (enum stack_file_stream_kind)kind, events[kind], &like);
	}
}

/* ---- rings ---- */

static void close_cpu(struct stack_recorder *recorder, unsigned index)
{
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		if (recorder->kinds[kind].rings != NULL)
			perf_events_close(&recorder->kinds[kind].rings[index]);
}

/* What was opened, or a part of it. */
static void stack_recorder_close_events(struct stack_recorder *recorder)
{
	stack_recorder_faults_close(recorder->faults);
	recorder->faults = NULL;
	for (unsigned i = 0; i < recorder->status.cpus; i++)
		close_cpu(recorder, i);
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++) {
		free(recorder->kinds[kind].rings);
		recorder->kinds[kind].rings = NULL;
	}
	recorder->status.cpus = recorder->status.cpus_missing = 0;
	recorder->status.memory_bytes = 0;
}

static int open_ring(const struct stack_recorder_kind *kind, uint32_t cpu, struct perf_events *ret, char *reason)
{
	if (kind->apart)
		return perf_events_open_ring(&kind->wanted, cpu, kind->ring_bytes, ret, reason);
	return perf_events_open(&kind->wanted, cpu, kind->ring_bytes, ret, reason);
}

static int open_cpu(struct stack_recorder *recorder, uint32_t cpu, char *reason)
{
	struct stack_recorder_status *status = &recorder->status;
	uint64_t bytes = 0;
	int r = perf_events_cpu_is_online(cpu) ? 0 : -ENODEV;

	for (int kind = 0; r == 0 && kind < STACK_FILE_STREAM_KINDS; kind++) {
		struct stack_recorder_kind *entry = &recorder->kinds[kind];

		if (!entry->on)
			continue;
		r = open_ring(entry, cpu, &entry->rings[status->cpus], reason);
		bytes += r == 0 ? entry->rings[status->cpus].map_bytes : 0;
	}
	if (r < 0)
		close_cpu(recorder, status->cpus);
	if (r == -ENODEV) {
		status->cpus_missing++;
		return 0;
	}
	if (r < 0)
		return r;
	status->cpus++;
	status->memory_bytes += bytes;
	return 0;
}

static int open_rings(struct stack_recorder *recorder, char *reason)
{
	unsigned cpus = configured_cpus();
	char why[STACK_RECORDER_REASON_MAX] = "";
	int r = 0;

	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++) {
		struct stack_recorder_kind *entry = &recorder->kinds[kind];

		if (!entry->on)
			continue;
		entry->rings = calloc(cpus, sizeof(*entry->rings));
		if (entry->rings == NULL)
			return -ENOMEM;
		for (unsigned i = 0; i < cpus; i++)
			entry->rings[i] = PERF_EVENTS_NONE;
	}
	for (unsigned cpu = 0; r == 0 && cpu < cpus; cpu++)
		r = open_cpu(recorder, cpu, why);
	if (r == 0 && recorder->status.cpus == 0) {
		snprintf(why, sizeof(why), "no CPU could be sampled");
		r = -ENODEV;
	}
	if (r < 0)
		memcpy(reason, why, sizeof(why));
	return r;
}

static int open_faults(struct stack_recorder *recorder, char *reason)
{
	enum stack_file_stream_kind kind =
		recorder->kinds[STACK_FILE_FAULTS].on ? STACK_FILE_FAULTS : STACK_FILE_FAULTS_FOLLOWED;
	struct stack_recorder_kind *entry = &recorder->kinds[kind];
	struct stack_recorder_faults_options options = {
		.kind = kind,
		.wanted = &entry->wanted,
		.rings = entry->rings,
		.cpus = recorder->status.cpus,
		.proc_fd = recorder->proc_fd,
	};

	return entry->on ? stack_recorder_faults_open(&options, &recorder->faults, reason) : 0;
}

/* The largest plan that the kernel has room for. */
static int open_plan(struct stack_recorder *recorder, struct stack_recorder_needs *needs,
		     const struct perf_events_wanted *wanted, struct stack_recorder_plan *plan, char *reason)
{
	char why[STACK_RECORDER_REASON_MAX];
	int r = stack_recorder_plan(needs, plan, reason);

	while (r == 0) {
		want_all(recorder, needs->options, wanted, plan);
		r = open_rings(recorder, why);
		if (r == 0)
			r = open_faults(recorder, why);
		if (r == 0)
			return 0;
		stack_recorder_close_events(recorder);
		if (!is_refusal(r) || strncmp(why, "mmap", 4) != 0)
			break;
		needs->most = stack_recorder_plan_bytes(plan) * needs->cpus - 1;
		if (stack_recorder_plan(needs, plan, reason) < 0)
			break; /* with the kernel's own words */
		r = 0;
	}
	if (r < 0 && r != -ENOSPC)
		memcpy(reason, why, sizeof(why));
	return r;
}

static void describe(struct stack_recorder *recorder, const struct stack_recorder_options *options,
		     const struct perf_events_wanted *wanted, const struct stack_recorder_needs *needs,
		     const struct stack_recorder_plan *plan)
{
	struct stack_recorder_status *status = &recorder->status;

	status->dwarf = plan->dwarf;
	status->kernel = !wanted->user_only;
	status->faults = !options->without_faults;
	status->cycles = wanted->cycles;
	status->build_ids = recorder->kinds[STACK_FILE_BOOK].wanted.build_ids;
	status->ring_bytes = stack_recorder_plan_bytes(plan);
	if (options->cycles && !wanted->cycles)
		say(recorder, "samples by the clock: the hardware has no cycles to count here");
	if (needs->dwarf && !plan->dwarf)
		say(recorder, "no stacks to unwind: no memory for a second of them%s",
		    needs->most != 0 ? " (kernel.perf_event_mlock_kb, RLIMIT_MEMLOCK)" : "");
}

/*
 * Finds out what is allowed, plans, and opens rings and everybody's events. 0; -errno and then
 * reason.
 */
static int stack_recorder_open_events(struct stack_recorder *recorder, const struct stack_recorder_options *options,
				      char *reason)
{
	struct perf_events_wanted wanted = { .kind = PERF_EVENTS_CPU, .cycles = options->cycles };
	struct perf_events_wanted side = { .kind = PERF_EVENTS_SIDE, .build_ids = true };
	struct stack_recorder_needs needs = { .options = options };
	struct clock clock = real_clock();
	struct stack_recorder_plan plan;
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	int r;

	wanted.frequency = perf_events_frequency(options->frequency != 0 ? options->frequency : DEFAULT_FREQUENCY);
	recorder->status.frequency = needs.frequency = wanted.frequency;
	r = ask_kernel(recorder, options, &wanted, reason);
	if (r < 0)
		return r;
	if (settle(&side, recorder->status.everybody ? EVERYBODY : US) == 0)
		wanted.build_ids = side.build_ids;
	needs.cpus = online > 0 ? (unsigned)online : configured_cpus();
	needs.everybody = recorder->status.everybody;
	needs.dwarf = can_dwarf(recorder, options, &wanted);
	recorder->opened_busy_ns = stack_recorder_busy_now(recorder->proc_fd);
	recorder->opened_ns = clock_mono(&clock).ns;
	r = open_plan(recorder, &needs, &wanted, &plan, reason);
	if (r == 0)
		describe(recorder, options, &wanted, &needs, &plan);
	return r;
}

/*
 * stack_recorder_plan.c: a row of plans, each smaller than the one before; the first that fits is
 * taken.
 *
 * 	as long as asked for ── stacks ever shorter, page faults' first ── chains half, a quarter ── no
 *  stacks, chains as asked for ── ever shorter
 *
 * Stacks are a hundred times the size of a chain and the first that gives way, but for less than a
 * second of a busy CPU they are not worth what the chains would have to give. Rings of page faults
 * are half of those of CPU samples: the kernel takes fewer of them. There is one ring of them for
 * each CPU, with stacks where there are stacks: of everybody, if everybody may be sampled
 * (stack_recorder_faults.c).
 */

#define DEFAULT_MEMORY_BYTES (64ULL << 20)
#define DEFAULT_BEFORE_NS (15 * NS_PER_S)

#define SLACK_NS (5 * NS_PER_S)      /* from the spike to the question */
#define CHAIN_SAMPLE_BYTES 320       /* of forty frames */
#define STACK_SAMPLE_BYTES 400       /* a chain and registers, beside the stack */
#define RING_BYTES_MIN (64ULL << 10) /* a second of deep chains */
#define RING_BYTES_MAX (1ULL << 30)
#define SIDE_BYTES (64ULL << 10) /* eighty short programs, and it is emptied when half full */
#define CHAIN_HALVINGS 2         /* that chains put up with for the sake of stacks */

/* What a plan of the row is made from. */
struct sizes {
	uint64_t chains, chain_faults, stacks, stack_faults;
};

uint64_t stack_recorder_plan_memory(const struct stack_recorder_options *options)
{
	return options->max_memory_bytes != 0 ? options->max_memory_bytes : DEFAULT_MEMORY_BYTES;
}

uint64_t stack_recorder_plan_bytes(const struct stack_recorder_plan *plan)
{
	uint64_t sum = 0;

	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		sum += plan->ring_bytes[kind];
	return sum;
}

static uint64_t round_up(uint64_t bytes, uint64_t least)
{
	uint64_t power = least;

	while (power < bytes && power < RING_BYTES_MAX)
		power *= 2;
	return power;
}

/* To the power of two that is nearer by its ratio: stacks are too large to round them up always. */
static uint64_t round_near(uint64_t bytes, uint64_t least)
{
	uint64_t power = round_up(bytes, least);

	return power > least && bytes < power / 10 * 7 ? power / 2 : power;
}

static uint64_t half(uint64_t bytes, uint64_t least)
{
	return bytes / 2 > least ? bytes / 2 : least;
}

/* Bytes of samples in span_ns. */
static uint64_t samples(const struct stack_recorder_needs *needs, uint64_t span_ns, uint64_t sample_bytes)
{
	return (uint64_t)((unsigned __int128)span_ns * needs->frequency * sample_bytes / NS_PER_S);
}

static uint64_t span_ns(const struct stack_recorder_needs *needs)
{
	uint64_t before_ns = needs->options->before_ns != 0 ? needs->options->before_ns : DEFAULT_BEFORE_NS;

	return before_ns < UINT64_MAX - SLACK_NS ? before_ns + SLACK_NS : before_ns;
}

static uint64_t stack_sample_bytes(const struct stack_recorder_needs *needs)
{
	uint32_t stack_bytes = needs->options->stack_bytes != 0 ? needs->options->stack_bytes : DEFAULT_STACK_BYTES;

	return stack_bytes + STACK_SAMPLE_BYTES;
}

/* Those of everybody, or of followed threads without stacks. */
static struct sizes chains_as_asked_for(const struct stack_recorder_needs *needs)
{
	uint64_t asked = needs->options->ring_bytes != 0 ? needs->options->ring_bytes
							 : samples(needs, span_ns(needs), CHAIN_SAMPLE_BYTES);
	uint64_t chains = round_up(asked, RING_BYTES_MIN);

	return (struct sizes){ .chains = chains, .chain_faults = half(chains, RING_BYTES_MIN) };
}

static struct stack_recorder_plan plan_of(const struct stack_recorder_needs *needs, const struct sizes *sizes)
{
	struct stack_recorder_plan plan = { .ring_bytes[STACK_FILE_BOOK] = SIDE_BYTES, .dwarf = sizes->stacks > 0 };
	bool faults = !needs->options->without_faults;

	if (needs->everybody)
		plan.ring_bytes[STACK_FILE_CPU] = sizes->chains;
	if (plan.dwarf)
		plan.ring_bytes[STACK_FILE_CPU_FOLLOWED] = sizes->stacks;
	else if (!needs->everybody)
		plan.ring_bytes[STACK_FILE_CPU_FOLLOWED] = sizes->chains;
	if (faults)
		plan.ring_bytes[needs->everybody ? STACK_FILE_FAULTS : STACK_FILE_FAULTS_FOLLOWED] =
			plan.dwarf ? sizes->stack_faults : sizes->chain_faults;
	return plan;
}

static bool fits(const struct stack_recorder_needs *needs, const struct sizes *sizes, uint64_t most,
		 struct stack_recorder_plan *ret)
{
	*ret = plan_of(needs, sizes);
	return stack_recorder_plan_bytes(ret) <= most / needs->cpus;
}

static void halve_chains(struct sizes *sizes)
{
	sizes->chains = half(sizes->chains, RING_BYTES_MIN);
	sizes->chain_faults = half(sizes->chain_faults, RING_BYTES_MIN);
}

static bool fits_with_stacks(const struct stack_recorder_needs *needs, uint64_t most, struct stack_recorder_plan *ret)
{
	struct sizes sizes = chains_as_asked_for(needs);
	uint64_t least = round_up(samples(needs, NS_PER_S, stack_sample_bytes(needs)), RING_BYTES_MIN);

	sizes.stacks = round_near(samples(needs, span_ns(needs), stack_sample_bytes(needs)), least);
	sizes.stack_faults = half(sizes.stacks, least / 2);
	for (;;) {
		if (fits(needs, &sizes, most, ret))
			return true;
		if (sizes.stacks == least && sizes.stack_faults == least / 2)
			break;
		if (sizes.stack_faults > sizes.stacks / 4 && sizes.stack_faults > least / 2)
			sizes.stack_faults /= 2;
		else
			sizes.stacks = half(sizes.stacks, least);
	}
	for (int i = 0; needs->everybody && i < CHAIN_HALVINGS; i++) {
		halve_chains(&sizes);
		if (fits(needs, &sizes, most, ret))
			return true;
	}
	return false;
}

int stack_recorder_plan(const struct stack_recorder_needs *needs, struct stack_recorder_plan *ret, char *reason)
{
	uint64_t most = needs->most != 0 ? needs->most : stack_recorder_plan_memory(needs->options) / 4 * 3;
	struct sizes sizes = chains_as_asked_for(needs);
	struct stack_recorder_plan plan;

	if (needs->dwarf && fits_with_stacks(needs, most, ret))
		return 0;
	while (!fits(needs, &sizes, most, &plan)) {
		if (sizes.chains == RING_BYTES_MIN) {
			uint64_t least = needs->cpus * stack_recorder_plan_bytes(&plan);

			snprintf(reason, STACK_RECORDER_REASON_MAX,
				 "the smallest rings of %u CPUs take %llu KiB, and %llu KiB are allowed them",
				 needs->cpus, (unsigned long long)(least >> 10), (unsigned long long)(most >> 10));
			return -ENOSPC;
		}
		halve_chains(&sizes);
	}
	*ret = plan;
	return 0;
}

/*
 * stack recorder_cycles.c: how many cycles a second of a busy CPU has. Frequencies change: what is
 * asked for is the mean since the events were opened, of all CPUs, so that samples that say cycles
 * can be added up to CPU time.
 *
 * An event of a CPU counts for as long as that is online and does not know for how long it was
 * busy: /proc/stat does. One of a thread knows.
 */

#define LEAST_NS (100 * NS_PER_MS) /* ticks of /proc/stat are 10 ms long */

/*
 * "cpu  user nice system idle iowait irq softirq steal guest guest_nice": the guests' are in user
 *       and nice.
 */
uint64_t stack_recorder_busy_ns(const char *text, size_t len, long ticks_per_second)
{
	static const bool is_busy[] = { true, true, true, false, false, true, true };
	uint64_t ticks = 0;
	const char *at = text + 4;

	if (len < 5 || memcmp(text, "cpu ", 4) != 0 || memchr(text, '\n', len) == NULL || ticks_per_second <= 0)
		return 0;
	for (size_t i = 0; i < sizeof(is_busy) / sizeof(is_busy[0]); i++) {
		char *end;
		uint64_t field = strtoull(at, &end, 10);

		if (end == at)
			return 0;
		ticks += is_busy[i] ? field : 0;
		at = end;
	}
	return ticks * (NS_PER_S / (uint64_t)ticks_per_second);
}

static uint64_t stack_recorder_busy_now(int proc_fd)
{
	char text[512];
	ssize_t len = proc_read_file(proc_fd, 0, "stat", text, sizeof(text));

	return len > 0 ? stack_recorder_busy_ns(text, (size_t)len, sysconf(_SC_CLK_TCK)) : 0;
}

uint64_t stack_recorder_cycles_per_second(uint64_t cycles, uint64_t busy_ns)
{
	return busy_ns >= LEAST_NS ? (uint64_t)((unsigned __int128)cycles * NS_PER_S / busy_ns) : 0;
}

/* By everybody's events. */
static uint64_t units_of_machine(struct stack_recorder *recorder)
{
	uint64_t cycles = 0, unused = 0, busy_ns = stack_recorder_busy_now(recorder->proc_fd);

	for (unsigned i = 0; i < recorder->status.cpus; i++)
		if (perf_events_count(recorder->kinds[STACK_FILE_CPU].rings[i].fd, &cycles, &unused) < 0)
			return 0;
	if (recorder->opened_busy_ns == 0 || busy_ns < recorder->opened_busy_ns)
		return 0;
	return stack_recorder_cycles_per_second(cycles, busy_ns - recorder->opened_busy_ns);
}

uint64_t stack_recorder_units(struct stack_recorder *recorder, enum stack_file_stream_kind kind)
{
	uint64_t units;

	if (recorder->kinds[kind].wanted.kind != PERF_EVENTS_CPU)
		return 0;
	if (!recorder->kinds[kind].wanted.cycles)
		return NS_PER_S;
	if (recorder->status.everybody)
		return units_of_machine(recorder);
	pthread_mutex_lock(&recorder->lock);
	units = recorder->followed_units;
	pthread_mutex_unlock(&recorder->lock);
	return units;
}

/*
 * stack recorder_seed.c: processes that run since before the recorder, looked up in /proc when a
 * sample has hit them.
 *
 * What is read is of now. First the text is read, then the side rings are emptied, then the book is
 * told: an execve(2) before the reading is in the book by then and makes it refuse the text for
 * what was before.
 */

#define MAPS_BYTES_MAX ((size_t)8 << 20) /* 65,530 mappings, the kernel's limit, of paths of average length */

static void read_comm(int proc_fd, const char *name, char comm[32])
{
	struct buffer text = { .max = 31 };

	comm[0] = '\0';
	if (whole_file_read(proc_fd, name, &text) == 0 && text.len > 0) {
		memcpy(comm, text.data, text.len);
		comm[text.len] = '\0';
		comm[strcspn(comm, "\n")] = '\0';
	}
	buffer_release(&text);
}

static bool knows(struct stack_recorder *recorder, uint32_t pid, uint64_t time_ns, uint32_t *ret_parent)
{
	bool known;

	pthread_mutex_lock(&recorder->lock);
	known = mapping_history_knows(recorder->book, pid, time_ns, ret_parent);
	pthread_mutex_unlock(&recorder->lock);
	return known;
}

static void seed(struct stack_recorder *recorder, uint32_t pid)
{
	struct buffer maps = { .max = MAPS_BYTES_MAX };
	struct clock clock = real_clock();
	uint64_t now_ns = clock_mono(&clock).ns;
	char name[48], comm[32];

	snprintf(name, sizeof(name), "%u/maps", pid);
	if (whole_file_read(recorder->proc_fd, name, &maps) == 0) {
		snprintf(name, sizeof(name), "%u/comm", pid);
		read_comm(recorder->proc_fd, name, comm);
		stack_recorder_drain(recorder);
		pthread_mutex_lock(&recorder->lock);
		mapping_history_seed(recorder->book, pid, comm[0] != '\0' ? comm : NULL, maps.data, maps.len, now_ns);
		pthread_mutex_unlock(&recorder->lock);
	}
	buffer_release(&maps);
}

static void look_up_thread(struct stack_recorder *recorder, const struct stack_recorder_hit *hit)
{
	char name[64], comm[32];
	bool known;

	pthread_mutex_lock(&recorder->lock);
	known = mapping_history_knows_thread(recorder->book, hit->pid, hit->tid, hit->time_ns);
	pthread_mutex_unlock(&recorder->lock);
	if (known)
		return;
	snprintf(name, sizeof(name), "%u/task/%u/comm", hit->pid, hit->tid);
	read_comm(recorder->proc_fd, name, comm);
	if (comm[0] == '\0')
		return;
	pthread_mutex_lock(&recorder->lock);
	mapping_history_seed_thread(recorder->book, hit->pid, hit->tid, comm);
	pthread_mutex_unlock(&recorder->lock);
}

void stack_recorder_look_up(struct stack_recorder *recorder, const struct stack_recorder_hit *hits, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t parent;

		if (hits[i].pid == 0)
			continue;
		if ((i == 0 || hits[i - 1].pid != hits[i].pid) &&
		    !knows(recorder, hits[i].pid, hits[i].time_ns, &parent)) {
			seed(recorder, hits[i].pid);
			if (!knows(recorder, hits[i].pid, hits[i].time_ns, &parent) && parent != 0)
				seed(recorder, parent);
		}
		look_up_thread(recorder, &hits[i]);
	}
}

/*
 * stack_recorder_follow.c: between whoever says what is to be followed, the side rings that tell of
 * forks, and the thread that opens the events.
 *
 * Opening the events of hundreds of threads takes a while: it is done without the lock, by the
 * thread alone. Notes wait for it in a row.
 */

#define PROCESSES_MAX 256
#define NOTES_MAX 65536 /* a second of a machine that does nothing but fork; beyond it, some are counted twice */

/* What side rings told of beginnings and ends, for the thread. Under the lock. */
static void stack_recorder_note(struct stack_recorder *recorder, const struct perf_record *record)
{
	bool begins = record->type == PERF_RECORD_FORK, ends = record->type == PERF_RECORD_EXIT;

	if (!recorder->take_notes || (!begins && !(ends && record->pid == record->tid)))
		return;
	if (recorder->note_count == recorder->note_cap) {
		size_t cap = recorder->note_cap == 0 ? 64 : 2 * recorder->note_cap;
		struct thread_events_note *notes = NULL;

		if (cap <= NOTES_MAX)
			notes = reallocarray(recorder->notes, cap, sizeof(*notes));
		if (notes == NULL) {
			recorder->side_lost++;
			return;
		}
		recorder->notes = notes;
		recorder->note_cap = cap;
	}
	recorder->notes[recorder->note_count++] = (struct thread_events_note){ .time_ns = record->time_ns,
									       .pid = record->pid,
									       .tid = record->tid,
									       .ppid = record->fork.ppid,
									       .ptid = record->fork.ptid,
									       .ended = ends };
}

static void hand_on_notes(struct stack_recorder *recorder)
{
	AUTO_FREE struct thread_events_note *notes = NULL;
	size_t count;

	pthread_mutex_lock(&recorder->lock);
	count = recorder->note_count;
	if (count > 0) {
		notes = TAKE(recorder->notes);
		recorder->note_count = recorder->note_cap = 0;
	}
	pthread_mutex_unlock(&recorder->lock);
	for (size_t i = 0; i < count; i++)
		thread_events_note(recorder->threads, &notes[i]);
}

static void catch_up(void *ctx)
{
	stack_recorder_drain(ctx);
	hand_on_notes(ctx);
}

/* While it still runs: what it was called and had mapped is wanted when it does not. */
static void opened(void *ctx, uint32_t pid, const uint32_t *tids, size_t count)
{
	struct stack_recorder *recorder = ctx;
	struct clock clock = real_clock();
	uint64_t now_ns = clock_mono(&clock).ns;
	AUTO_FREE struct stack_recorder_hit *hits = calloc(count, sizeof(*hits));

	for (size_t i = 0; hits != NULL && i < count; i++)
		hits[i] = (struct stack_recorder_hit){ .pid = pid, .tid = tids[i], .time_ns = now_ns };
	if (hits != NULL)
		stack_recorder_look_up(recorder, hits, count);
}

static void tell(struct stack_recorder *recorder)
{
	struct thread_events_status followed;

	thread_events_status(recorder->threads, &followed);
	pthread_mutex_lock(&recorder->lock);
	recorder->followed = followed;
	recorder->take_notes = followed.threads > 0;
	pthread_mutex_unlock(&recorder->lock);
}

/* Where nobody else's events tell. */
static void tell_units(struct stack_recorder *recorder)
{
	uint64_t cycles = 0, running_ns = 0;

	for (size_t i = 0; i < recorder->output_count; i++)
		if (recorder->outputs[i].wanted->cycles && !recorder->status.everybody)
			thread_events_count(recorder->threads, i, &cycles, &running_ns);
	pthread_mutex_lock(&recorder->lock);
	recorder->followed_units = stack_recorder_cycles_per_second(cycles, running_ns);
	pthread_mutex_unlock(&recorder->lock);
}

/*
 * Of the thread, each time it wakes: follows another set, if there is one, and leaves those that
 * have exited. look: at all of them.
 */
static void stack_recorder_reconcile(struct stack_recorder *recorder, bool look)
{
	AUTO_FREE uint32_t *pids = NULL;
	size_t count = 0;
	bool changed;

	if (recorder->threads == NULL)
		return;
	pthread_mutex_lock(&recorder->lock);
	changed = recorder->follow_changed;
	if (changed && recorder->follow_count > 0) {
		pids = malloc(recorder->follow_count * sizeof(*pids));
		if (pids != NULL)
			memcpy(pids, recorder->follow, recorder->follow_count * sizeof(*pids));
		count = recorder->follow_count;
		recorder->take_notes = true;
	}
	if (changed && (count == 0 || pids != NULL))
		recorder->follow_changed = false;
	else
		changed = false; /* no memory: another time */
	pthread_mutex_unlock(&recorder->lock);
	hand_on_notes(recorder);
	if (changed)
		thread_events_follow(recorder->threads, pids, count);
	thread_events_sweep(recorder->threads, look);
	tell(recorder);
	if (changed || look)
		tell_units(recorder);
}

int stack_recorder_follow(struct stack_recorder *recorder, const uint32_t *pids, size_t count)
{
	AUTO_FREE uint32_t *copy = NULL;
	uint64_t one = 1;
	bool same;

	if (recorder->threads == NULL)
		return 0;
	if (count > 0) {
		copy = malloc(count * sizeof(*copy));
		if (copy == NULL)
			return -ENOMEM;
		memcpy(copy, pids, count * sizeof(*copy));
	}
	pthread_mutex_lock(&recorder->lock);
	same = count == recorder->follow_count &&
	       (count == 0 || memcmp(copy, recorder->follow, count * sizeof(*copy)) == 0);
	if (!same) {
		free(recorder->follow);
		recorder->follow = TAKE(copy);
		recorder->follow_count = count;
		recorder->follow_changed = true;
	}
	pthread_mutex_unlock(&recorder->lock);
	while (!same && write(recorder->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	return 0;
}

/* Ready to follow, if anything can be. 0 or -ENOMEM. */
static int stack_recorder_open_follow(struct stack_recorder *recorder)
{
	struct rlimit limit = { .rlim_cur = 1024 };
	struct thread_events_options options = { .proc_fd = recorder->proc_fd,
						 .outputs = recorder->outputs,
						 .cpus = recorder->status.cpus,
						 .max_processes = PROCESSES_MAX,
						 .clock = real_clock(),
						 .catch_up = catch_up,
						 .opened = opened,
						 .ctx = recorder };

	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		if (recorder->kinds[kind].on && recorder->kinds[kind].followed)
			recorder->outputs[recorder->output_count++] =
				(struct thread_events_output){ &recorder->kinds[kind].wanted,
							       recorder->kinds[kind].rings };
	if (recorder->output_count == 0)
		return 0;
	getrlimit(RLIMIT_NOFILE, &limit);
	options.max_events = thread_events_max_events(limit.rlim_cur);
	options.output_count = recorder->output_count;
	return thread_events_new(&options, &recorder->threads);
}

static void stack_recorder_close_follow(struct stack_recorder *recorder)
{
	thread_events_free(recorder->threads);
	free(recorder->follow);
	free(recorder->notes);
}

#define WAKE_MS 1000
#define MOMENT_NS (100 * NS_PER_US) /* from a record's time to its being in the ring, at most and by far */
#define LOOK_WAKES 10               /* of these, one looks at all that is followed: an end may not have been told */

/* ---- from the side rings into the book ---- */

static int take_side(void *ctx, const struct perf_event_header *record, size_t len)
{
	struct stack_recorder *recorder = ctx;
	struct perf_record_format format = STACK_RECORDER_FORMAT;
	struct perf_record decoded;

	if (perf_record_decode(&format, record, len, &decoded) < 0)
		return 0;
	if (decoded.type == PERF_RECORD_LOST)
		recorder->side_lost += decoded.lost.count;
	else if (perf_merge_add(&recorder->pending, record, len, decoded.time_ns) < 0)
		recorder->side_lost++;
	return 0;
}

static void feed(struct stack_recorder *recorder, uint64_t until_ns)
{
	struct perf_record_format format = STACK_RECORDER_FORMAT;
	struct perf_merge swap;
	struct perf_record decoded;

	perf_merge_sort(&recorder->pending);
	for (size_t i = 0; i < recorder->pending.count; i++) {
		uint64_t time_ns = recorder->pending.entries[i].time_ns;
		size_t size;
		const void *record = perf_merge_record(&recorder->pending, i, &size);

		if (time_ns > until_ns) {
			if (perf_merge_add(&recorder->kept, record, size, time_ns) < 0)
				recorder->side_lost++;
		} else if (perf_record_decode(&format, record, size, &decoded) == 0) {
			mapping_history_feed(recorder->book, &decoded);
			stack_recorder_note(recorder, &decoded);
		}
	}
	perf_merge_clear(&recorder->pending);
	swap = recorder->pending;
	recorder->pending = recorder->kept;
	recorder->kept = swap;
}

void stack_recorder_drain(struct stack_recorder *recorder)
{
	struct clock clock = real_clock();
	uint64_t now_ns;

	pthread_mutex_lock(&recorder->lock);
	now_ns = clock_mono(&clock).ns;
	for (unsigned i = 0; i < recorder->status.cpus; i++)
		if (perf_ring_drain(&recorder->kinds[STACK_FILE_BOOK].rings[i].ring, recorder->scratch, take_side,
				    recorder) < 0)
			recorder->side_lost++;
	feed(recorder, now_ns - MOMENT_NS);
	mapping_history_expire(recorder->book, now_ns);
	pthread_mutex_unlock(&recorder->lock);
}

/* What woke the thread: that it shall end, or another set to follow. True: the former. */
static bool woken(struct stack_recorder *recorder)
{
	uint64_t count;
	bool stopping;

	while (read(recorder->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	pthread_mutex_lock(&recorder->lock);
	stopping = recorder->stopping;
	pthread_mutex_unlock(&recorder->lock);
	return stopping;
}

/*
 * All that the thread waits for: in `watched`, which has room for it, what wakes it, the side
 * rings, and those of page faults. Their number.
 */
static nfds_t judged_target(const struct stack_recorder *recorder, struct pollfd *watched)
{
	nfds_t count = 0;

	watched[count++] = (struct pollfd){ .fd = recorder->wake_fd, .events = POLLIN };
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++) {
		const struct stack_recorder_kind *entry = &recorder->kinds[kind];
		bool faults = kind == STACK_FILE_FAULTS || kind == STACK_FILE_FAULTS_FOLLOWED;

		for (unsigned i = 0; (kind == STACK_FILE_BOOK || faults) && entry->on && i < recorder->status.cpus; i++)
			watched[count++] = (struct pollfd){ .fd = entry->rings[i].fd, .events = POLLIN };
	}
	return count;
}

/*
 * Whether a side ring is among what woke the thread. A CPU that went offline would wake it for
 * ever.
 */
static bool side_woke(struct pollfd *watched, nfds_t count, unsigned cpus)
{
	bool side = false;

	for (nfds_t i = 1; i < count; i++) {
		side |= i <= cpus && watched[i].revents != 0;
		if (watched[i].revents & (POLLHUP | POLLERR | POLLNVAL))
			watched[i].fd = -1;
	}
	return side;
}

/* True: the thread shall end. */
static bool wait_for_work(struct stack_recorder *recorder, struct pollfd *watched, nfds_t count)
{
	struct clock clock = real_clock();
	uint64_t until_ns = clock_mono(&clock).ns + WAKE_MS * NS_PER_MS, now_ns = 0;
	bool work = false;

	while (!work && (now_ns = clock_mono(&clock).ns) < until_ns) {
		int wait_ms = (int)((until_ns - now_ns) / NS_PER_MS) + 1, r;

		if (recorder->faults != NULL)
			wait_ms = stack_recorder_faults_wait_ms(recorder->faults, wait_ms);
		r = poll(watched, count, wait_ms);
		if (r > 0 && watched[0].revents != 0 && woken(recorder))
			return true;
		work = r > 0 && (watched[0].revents != 0 || side_woke(watched, count, recorder->status.cpus));
		if (recorder->faults != NULL)
			stack_recorder_faults_look(recorder->faults, recorder->threads);
	}
	return false;
}

static void *run(void *argument)
{
	struct stack_recorder *recorder = argument;
	AUTO_FREE struct pollfd *fds = calloc(1 + 2 * (size_t)recorder->status.cpus, sizeof(*fds));
	struct pollfd only = { .fd = recorder->wake_fd, .events = POLLIN };
	struct pollfd *watched = fds != NULL ? fds : &only;
	nfds_t count = fds != NULL ? judged_target(recorder, watched) : 1;

	for (unsigned wakes = 1; !wait_for_work(recorder, watched, count); wakes++) {
		stack_recorder_drain(recorder);
		stack_recorder_reconcile(recorder, wakes % LOOK_WAKES == 0);
		pthread_mutex_lock(&recorder->lock);
		recorder->side_wakeups++;
		pthread_mutex_unlock(&recorder->lock);
	}
	return NULL;
}

/* ---- opening ---- */

static int open_rest(struct stack_recorder *recorder, const struct stack_recorder_options *options)
{
	struct mapping_history_limits limits = { .max_bytes = stack_recorder_plan_memory(options) / 4 };

	recorder->proc_fd = options->proc_fd;
	if (recorder->proc_fd == 0) {
		recorder->proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (recorder->proc_fd < 0)
			return -errno;
		recorder->proc_owned = true;
	}
	recorder->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (recorder->wake_fd < 0)
		return -errno;
	recorder->scratch = malloc(PERF_RECORD_SIZE_MAX);
	if (recorder->scratch == NULL)
		return -ENOMEM;
	return mapping_history_new(&limits, &recorder->book);
}

static int start(struct stack_recorder *recorder)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&recorder->thread, NULL, run, recorder);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r != 0)
		return -r;
	recorder->running = true;
	pthread_setname_np(recorder->thread, "stacks");
	return 0;
}

int stack_recorder_open(const struct stack_recorder_options *options, struct stack_recorder **ret, char *reason)
{
	AUTO(stack_recorder_closep) struct stack_recorder *recorder = calloc(1, sizeof(*recorder));
	int r;

	reason[0] = '\0';
	r = recorder != NULL ? 0 : -ENOMEM;
	if (r == 0) {
		recorder->proc_fd = recorder->wake_fd = -1;
		pthread_mutex_init(&recorder->lock, NULL);
		r = open_rest(recorder, options);
	}
	if (r == 0)
		r = stack_recorder_open_events(recorder, options, reason);
	if (r == 0)
		r = stack_recorder_open_follow(recorder);
	if (r == 0)
		r = start(recorder);
	if (r < 0) {
		if (reason[0] == '\0')
			snprintf(reason, STACK_RECORDER_REASON_MAX, "%s", strerror(-r));
		return r;
	}
	*ret = TAKE(recorder);
	return 0;
}

static void stop(struct stack_recorder *recorder)
{
	uint64_t one = 1;

	if (!recorder->running)
		return;
	pthread_mutex_lock(&recorder->lock);
	recorder->stopping = true;
	pthread_mutex_unlock(&recorder->lock);
	while (write(recorder->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	pthread_join(recorder->thread, NULL);
}

void stack_recorder_close(struct stack_recorder *recorder)
{
	if (recorder == NULL)
		return;
	stop(recorder);
	stack_recorder_close_follow(recorder);
	stack_recorder_close_events(recorder);
	if (recorder->proc_owned)
		close(recorder->proc_fd);
	if (recorder->wake_fd >= 0)
		close(recorder->wake_fd);
	perf_merge_release(&recorder->pending);
	perf_merge_release(&recorder->kept);
	mapping_history_free(recorder->book);
	pthread_mutex_destroy(&recorder->lock);
	free(recorder->scratch);
	free(recorder);
}

void stack_recorder_status(struct stack_recorder *recorder, struct stack_recorder_status *ret)
{
	pthread_mutex_lock(&recorder->lock);
	*ret = recorder->status;
	ret->opened_ns = recorder->opened_ns;
	ret->side_lost = recorder->side_lost;
	ret->side_wakeups = recorder->side_wakeups;
	ret->followed_processes = recorder->followed.processes;
	ret->followed_threads = recorder->followed.threads;
	ret->not_followed = recorder->followed.not_followed;
	ret->faults_error = recorder->faults != NULL ? stack_recorder_faults_error(recorder->faults) : 0;
	mapping_history_stats(recorder->book, &ret->book);
	pthread_mutex_unlock(&recorder->lock);
}
