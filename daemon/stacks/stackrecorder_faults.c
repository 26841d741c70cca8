/*
 * stackrecorder_faults.c: an event of page faults costs at each fault, whether it is sampled or not: some 60 ns with registers and stack, where a
 * fault takes one to two microseconds (x86-64 in a virtual machine, Linux 6.18). A program that does nothing but touch new memory is slowed by three to
 * five in a hundred. So no CPU counts more than FAULTS_PER_SECOND of them on an average, and FAULTS_PER_BURST at once (lib/thinning.h): 320 MB, then the
 * events are closed for most of each tenth of a second. That is 3 ms of each second, 8 of the first, and programs that touch memory slowly, or a
 * lot of it at once, have all of it counted.
 *
 *	ring woke (four samples) ──▶ count them since the slot began ──▶ too many: close │ read the clock and /proc/vmstat
 *	                                                                    later: open  │ the same
 *
 * Closed, and not disabled: the kernel patches its fault handler when the first such event of the machine is opened and the last is closed. While
 * there is one, even a disabled one, 20 ns are gone at each fault, of every CPU: that alone is one to two in a hundred. So all CPUs' events are closed
 * and opened together, and one is not counted because of its neighbour for a while; two system calls for each, 20 us on two CPUs, at most twenty times
 * a second. The rings stay: they belong to events that count nothing. A new event begins its period anew, and on a CPU that has few faults would never
 * come to its end: lib/phase.h.
 *
 * Those of followed threads, which is all there is without the privilege, are inherited by whatever these start and cannot be opened anew without
 * losing some. They are disabled, and the 20 ns remain.
 *
 * Rejected: two events for each fault of who is followed, everybody's with a call chain and its own with registers and stack, which costs twice; there is
 * one now, with stacks of everybody. PERF_EVENT_IOC_REFRESH, by which an event disables itself after so many samples: exact, but disabled only,
 * and not for inherited ones. A longer period: it is not the samples that cost. Stacks of CPU samples that hit the fault handler, which cost nothing: 99
 * a second, a third of them of the handler, and no way to tell how many faults each stands for. The tracepoints of faults: they cost more.
 */
#include "stackrecorder_faults.h"

#include "phase.h"
#include "procread.h"
#include "realclock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

struct stackrecorder_faults {
	struct stackrecorder_faults_options options;
	struct perfevents_wanted wanted; /* of one opening */
	uint64_t period;
	bool by_time; /* there is no total: the time is taken for it */
	uint64_t last_total;
	pthread_mutex_t lock; /* of all below */
	struct thinning thinning;
	int error;
	struct cpu cpus[];
};

/* ---- the total ---- */

bool stackrecorder_faults_total(const char *text, size_t len, uint64_t *ret)
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
static uint64_t read_total(struct stackrecorder_faults *faults, uint64_t now_ns)
{
	char text[16384]; /* a third of it is used */
	ssize_t len;

	if (faults->by_time)
		return now_ns;
	len = procread_file(faults->options.proc_fd, 0, "vmstat", text, sizeof(text));
	if (len > 0)
		stackrecorder_faults_total(text, (size_t)len, &faults->last_total);
	return faults->last_total;
}

static uint64_t now(void)
{
	struct clock clock = realclock();

	return clock_mono(&clock).ns;
}

/* ---- the events ---- */

static bool of_everybody(const struct stackrecorder_faults *faults)
{
	return faults->options.kind == STACKFILE_FAULTS;
}

/* each: what is known of it by now. */
static void begin_stretch(struct cpu *cpu, uint64_t now_ns)
{
	cpu->stretches[cpu->count++ % STRETCHES] = (struct stretch){ now_ns, cpu->period };
}

static int open_event(struct stackrecorder_faults *faults, unsigned ring, uint64_t period)
{
	struct cpu *cpu = &faults->cpus[ring];
	uint64_t now_ns = now();

	faults->wanted.fault_period = cpu->period = period;
	cpu->fd = perfevents_follow(&faults->wanted, -1, &faults->options.rings[ring]);
	if (cpu->fd >= 0)
		begin_stretch(cpu, now_ns);
	return cpu->fd < 0 && cpu->fd != -ENODEV ? cpu->fd : 0;
}

/* Disabled first: a child that was forked a moment ago has the descriptor, too, until it is another program. */
static void close_event(struct cpu *cpu)
{
	uint64_t counted = 0, unused = 0, each;

	if (cpu->fd < 0)
		return;
	perfevents_switch(cpu->fd, false);
	perfevents_count(cpu->fd, &counted, &unused);
	close(cpu->fd);
	cpu->fd = -1;
	each = phase_end(&cpu->phase, cpu->period, counted);
	if (each != 0)
		cpu->stretches[(cpu->count - 1) % STRETCHES].each = each;
}

/* Those that are closed. calm: for long, so with the period as it should be. */
static void open_all(struct stackrecorder_faults *faults, bool calm)
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
static void switch_threads(const struct stackrecorder_faults *faults, struct perfthreads *threads, bool on)
{
	if (!of_everybody(faults) && threads != NULL)
		perfthreads_switch(threads, PERFEVENTS_FAULTS, on);
}

/* ---- opening ---- */

struct thinning_options stackrecorder_faults_limits(uint64_t period)
{
	uint64_t most = (FAULTS_PER_SLOT + period / 2) / period;

	most += most == 0;
	return (struct thinning_options){ .slot_ns = most * period * (NS_PER_S / FAULTS_PER_SECOND),
					  .most = (uint32_t)most,
					  .burst = (uint32_t)((FAULTS_PER_BURST + period / 2) / period),
					  .seed = (uint32_t)getpid() };
}

int stackrecorder_faults_open(const struct stackrecorder_faults_options *options, struct stackrecorder_faults **ret,
			      char *reason)
{
	struct stackrecorder_faults *faults = calloc(1, sizeof(*faults) + options->cpus * sizeof(struct cpu));
	struct thinning_options limits;
	uint64_t now_ns = now();
	int r;

	if (faults == NULL)
		return -ENOMEM;
	faults->options = *options;
	faults->wanted = *options->wanted;
	faults->period = perfevents_period(options->wanted);
	limits = stackrecorder_faults_limits(faults->period);
	for (unsigned i = 0; i < options->cpus; i++) {
		faults->cpus[i].fd = -1;
		faults->cpus[i].period = faults->cpus[i].phase.period = faults->period;
		faults->cpus[i].head = perfring_head(&options->rings[i].ring);
	}
	read_total(faults, now_ns);
	faults->by_time = faults->last_total == 0;
	thinning_init(&faults->thinning, &limits, now_ns, read_total(faults, now_ns));
	pthread_mutex_init(&faults->lock, NULL);
	open_all(faults, true);
	r = faults->error;
	if (r < 0) {
		perfevents_refusal(r, reason);
		stackrecorder_faults_close(faults);
		return r;
	}
	*ret = faults;
	return 0;
}

void stackrecorder_faults_close(struct stackrecorder_faults *faults)
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

int stackrecorder_faults_wait_ms(struct stackrecorder_faults *faults, int most)
{
	uint64_t next_ns, now_ns = now(), wait_ms = 0;

	pthread_mutex_lock(&faults->lock);
	next_ns = thinning_next_ns(&faults->thinning);
	pthread_mutex_unlock(&faults->lock);
	if (next_ns > now_ns)
		wait_ms = (next_ns - now_ns) / NS_PER_MS + 1;
	return wait_ms < (uint64_t)most ? (int)wait_ms : most;
}

/* Of the ring that had most of them since the slot began; those of a shorter period count for less. */
static uint64_t most_samples(const struct stackrecorder_faults *faults)
{
	size_t up_to = (size_t)faults->thinning.options.most * COUNT_MAX;
	uint64_t most = 0;

	for (unsigned i = 0; i < faults->options.cpus; i++) {
		uint64_t count = perfring_count(&faults->options.rings[i].ring, faults->cpus[i].head, up_to);

		count = count * faults->cpus[i].period / faults->period;
		most = count > most ? count : most;
	}
	return most;
}

static void begin_slot(struct stackrecorder_faults *faults)
{
	for (unsigned i = 0; i < faults->options.cpus; i++)
		faults->cpus[i].head = perfring_head(&faults->options.rings[i].ring);
}

/* Where a tenth of a second was quiet after all: periods that are not what they should be have had their time. */
static void calm_down(struct stackrecorder_faults *faults)
{
	for (unsigned i = 0; of_everybody(faults) && i < faults->options.cpus; i++)
		if (faults->cpus[i].period != faults->period)
			close_event(&faults->cpus[i]);
	open_all(faults, true);
}

static void stop(struct stackrecorder_faults *faults, struct perfthreads *threads, uint64_t samples)
{
	uint64_t now_ns;

	switch_threads(faults, threads, false);
	pthread_mutex_lock(&faults->lock);
	for (unsigned i = 0; i < faults->options.cpus; i++)
		close_event(&faults->cpus[i]);
	now_ns = now();
	thinning_stop(&faults->thinning, now_ns, read_total(faults, now_ns), samples);
	pthread_mutex_unlock(&faults->lock);
}

/* samples: of the slot that is over. */
static void begin(struct stackrecorder_faults *faults, struct perfthreads *threads, uint64_t samples)
{
	uint64_t now_ns = now();
	bool was_on = faults->thinning.on;

	pthread_mutex_lock(&faults->lock);
	if (was_on)
		calm_down(faults);
	begin_slot(faults);
	thinning_begin(&faults->thinning, now_ns, read_total(faults, now_ns), samples);
	open_all(faults, false);
	pthread_mutex_unlock(&faults->lock);
	if (!was_on)
		switch_threads(faults, threads, true);
}

/* Only this thread switches: what it reads without the lock nobody changes. */
void stackrecorder_faults_look(struct stackrecorder_faults *faults, struct perfthreads *threads)
{
	uint64_t now_ns = now(), samples;

	if (!faults->thinning.on) {
		if (now_ns >= faults->thinning.next_ns)
			begin(faults, threads, 0);
		return;
	}
	samples = most_samples(faults);
	switch (thinning_judge(&faults->thinning, now_ns, samples)) {
	case THINNING_STOP:
		stop(faults, threads, samples);
		break;
	case THINNING_SLOT:
		if (samples > 0 || faults->thinning.watchful || faults->error < 0)
			begin(faults, threads, samples);
		break;
	case THINNING_GO_ON:
		break;
	}
}

/* ---- who looks at the rings ---- */

void stackrecorder_faults_settle(struct stackrecorder_faults *faults)
{
	uint64_t now_ns;

	pthread_mutex_lock(&faults->lock);
	now_ns = now();
	thinning_settle(&faults->thinning, now_ns, read_total(faults, now_ns));
	pthread_mutex_unlock(&faults->lock);
}

/* What a sample of this ring and time stands for by itself. */
static uint64_t each_of(const struct stackrecorder_faults *faults, unsigned ring, uint64_t time_ns)
{
	const struct cpu *cpu = &faults->cpus[ring];

	for (uint64_t back = 0; back < cpu->count && back < STRETCHES; back++) {
		const struct stretch *stretch = &cpu->stretches[(cpu->count - 1 - back) % STRETCHES];

		if (stretch->from_ns <= time_ns)
			return stretch->each;
	}
	return faults->period;
}

uint64_t stackrecorder_faults_weigh(struct stackrecorder_faults *faults, unsigned ring, uint64_t time_ns)
{
	uint64_t weight;

	pthread_mutex_lock(&faults->lock);
	weight = thinning_weigh(&faults->thinning, time_ns, each_of(faults, ring, time_ns));
	pthread_mutex_unlock(&faults->lock);
	return weight;
}

void stackrecorder_faults_sum_up(struct stackrecorder_faults *faults, uint64_t from_ns, uint64_t to_ns,
				 struct thinning_summary *ret)
{
	pthread_mutex_lock(&faults->lock);
	thinning_sum_up(&faults->thinning, from_ns, to_ns, ret);
	pthread_mutex_unlock(&faults->lock);
}

int stackrecorder_faults_error(struct stackrecorder_faults *faults)
{
	int error;

	pthread_mutex_lock(&faults->lock);
	error = faults->error;
	pthread_mutex_unlock(&faults->lock);
	return error;
}
