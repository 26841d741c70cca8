/*
 * bench_faults.c: what counting page faults costs a program that does nothing but touch new memory,
 * in its parts, because the whole is less than what neighbours and the host of a virtual machine
 * make of any run (bench_stacks.c): what an event costs at each fault, what it costs a program that
 * the events are opened and closed while it runs, and how many of its faults the recorder counts.
 *
 * Of the first two there are differences of two turns that follow one another, a few milliseconds
 * each, in either order; and of fifteen hundred of them the median.
 */
#include "bench.h"
#include "lib/base/base.h"
#include "daemon/engine/base/perf_events.h"
#include "daemon/engine/stacks/stack_recorder.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAIRS 1500
#define PAGE 4096u
#define FREQUENCY 99u
#define FAULTS 2022u /* of a turn: two samples by this frequency */
#define MEMORY_BYTES ((size_t)FAULTS * PAGE)
#define STACK_BYTES 8192u
#define RING_BYTES ((size_t)1 << 20)
#define CPUS_MAX 1024u
#define US_PER_S 1e6

/* ---- the events ---- */

static struct perf_events_wanted wanted = { .kind = PERF_EVENTS_FAULTS, .frequency = FREQUENCY };
static struct perf_events rings[CPUS_MAX];
static int events[CPUS_MAX];
static unsigned cpus;

static void open_rings(uint32_t stack_bytes)
{
	char reason[PERF_EVENTS_REASON_MAX];

	wanted.stack_bytes = stack_bytes;
	cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
	bench_need(cpus <= CPUS_MAX, "too many CPUs");
	for (unsigned i = 0; i < cpus; i++) {
		if (perf_events_open_ring(&wanted, i, RING_BYTES, &rings[i], reason) == 0)
			continue;
		printf("page faults cannot be counted here: %s FAILED\n", reason);
		exit(EXIT_FAILURE);
	}
}

static void close_rings(void)
{
	for (unsigned i = 0; i < cpus; i++)
		perf_events_close(&rings[i]);
}

static void open_events(void)
{
	for (unsigned i = 0; i < cpus; i++) {
		events[i] = perf_events_follow(&wanted, -1, &rings[i]);
		bench_need(events[i] >= 0, "perf_event_open");
	}
}

static void disable_events(void)
{
	for (unsigned i = 0; i < cpus; i++)
		bench_need(perf_events_switch(events[i], false) == 0, "PERF_EVENT_IOC_DISABLE");
}

static void close_events(void)
{
	for (unsigned i = 0; i < cpus; i++)
		close(events[i]);
}

/* ---- the program ---- */

static unsigned char *reserve(void)
{
	unsigned char *memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	bench_need(memory != MAP_FAILED, "mmap");
	madvise(memory, MEMORY_BYTES, MADV_NOHUGEPAGE);
	return memory;
}

/* ns */
static double touch(unsigned char *memory)
{
	uint64_t from = bench_cpu();

	for (size_t at = 0; at < MEMORY_BYTES; at += PAGE)
		memory[at] = 1;
	from = bench_cpu() - from;
	madvise(memory, MEMORY_BYTES, MADV_DONTNEED);
	return (double)from;
}

static double median(double *values)
{
	qsort(values, PAIRS, sizeof(values[0]), bench_compare);
	return values[PAIRS / 2];
}

/* ---- the parts ---- */

enum state { CLOSED, DISABLED, COUNTING };

/* With events in this state. Whichever it is, the same has been done just before. */
static double touch_with(enum state state, unsigned char *memory)
{
	double took;

	open_events();
	if (state != COUNTING)
		disable_events();
	if (state == CLOSED)
		close_events();
	took = touch(memory);
	if (state != CLOSED)
		close_events();
	return took;
}

/* ns more at each fault than with events that are closed; *fault: what it takes with those. */
static double cost_of(enum state state, unsigned char *memory, double *fault)
{
	static double took[2][PAIRS], more[PAIRS];

	for (int i = 0; i < PAIRS; i++) {
		for (int turn = 0; turn < 2; turn++) {
			int with = (i + turn) % 2;

			took[with][i] = touch_with(with ? state : CLOSED, memory);
		}
		more[i] = took[1][i] - took[0][i];
	}
	*fault = median(took[0]) / FAULTS;
	return median(more) / FAULTS;
}

enum order { NOTHING, SWITCH, END };

static _Atomic enum order order;

/* Keeps the other CPU busy in either case. */
static void *obey(void *unused)
{
	enum order now;

	while ((now = atomic_load(&order)) != END) {
		if (now != SWITCH)
			continue;
		open_events();
		disable_events();
		close_events();
		atomic_store(&order, NOTHING);
	}
	return unused;
}

/* Of a program that runs while another thread opens and closes all events once: ns. */
static double cost_of_switching(unsigned char *memory)
{
	static double more[PAIRS];
	pthread_t thread;

	atomic_store(&order, NOTHING);
	bench_need(pthread_create(&thread, NULL, obey, NULL) == 0, "pthread_create");
	for (int i = 0; i < PAIRS; i++) {
		double took[2];

		for (int turn = 0; turn < 2; turn++) {
			int with = (i + turn) % 2;

			atomic_store(&order, with ? SWITCH : NOTHING);
			took[with] = touch(memory);
			while (atomic_load(&order) == SWITCH)
				;
		}
		more[i] = took[1] - took[0];
	}
	atomic_store(&order, END);
	pthread_join(thread, NULL);
	return median(more);
}

struct flood {
	double faults, counted; /* of one second of the program's CPU time */
};

static double seconds(struct timeval time)
{
	return (double)time.tv_sec + (double)time.tv_usec / US_PER_S;
}

static void flood(uint64_t end_ns)
{
	unsigned char *memory = reserve();

	while (bench_now() < end_ns)
		touch(memory);
	_exit(EXIT_SUCCESS);
}

/* A program that touches new memory for so long, after the recorder had a calm second. */
static struct flood measure_flood(uint64_t ns)
{
	struct stack_recorder_options options = { .frequency = FREQUENCY, .dwarf = true };
	struct stack_recorder_snapshot snapshot = { 0 };
	struct stack_recorder *recorder;
	struct rusage usage;
	char reason[STACK_RECORDER_REASON_MAX];
	uint64_t from;
	double share, per_second;
	pid_t child;

	bench_need(stack_recorder_open(&options, &recorder, reason) == 0, "stackrecorder_open");
	bench_sleep(NS_PER_S);
	from = bench_now();
	child = fork();
	bench_need(child >= 0, "fork");
	if (child == 0)
		flood(from + ns);
	bench_need(wait4(child, NULL, 0, &usage) == child, "wait4");
	bench_need(stack_recorder_snapshot(recorder, from, UINT64_MAX, 0, &snapshot) == 0, "stackrecorder_snapshot");
	bench_need(snapshot.faults.all > 0, "no faults");
	share = (double)snapshot.faults.counted / (double)snapshot.faults.all;
	per_second = (double)usage.ru_minflt / (seconds(usage.ru_utime) + seconds(usage.ru_stime));
	stack_recorder_snapshot_release(&snapshot);
	stack_recorder_close(recorder);
	return (struct flood){ per_second, share * per_second };
}

/* ---- the rows ---- */

static double report_cost(const char *what, enum state state, unsigned char *memory)
{
	double fault, cost = cost_of(state, memory, &fault);

	bench_report((struct bench_row){ .what = what, .unit = "ns", .measured = fault + cost, .against = fault });
	return cost;
}

/*
 * Of a second of the program's CPU time: those that are counted, and closing and opening in every
 * slot.
 */
static void report_flood(const char *what, uint64_t ns, double cost, double switching_ns)
{
	struct flood flood = measure_flood(ns);
	char row[100];

	snprintf(row, sizeof(row), "page faults: %s, %.0f of %.0f counted", what, flood.counted, flood.faults);
	bench_report((struct bench_row){ .what = row,
					 .unit = "us",
					 .measured = US_PER_S + (flood.counted * cost + 10 * switching_ns) / 1e3,
					 .against = US_PER_S,
					 .limit = BENCH_RATIO_AT_MOST,
					 .budget = 1.01 });
}

int main(void)
{
	unsigned char *memory = reserve();
	double cost, switching;

	open_rings(0);
	report_cost("page faults: one, event by frame pointers (against: none)", COUNTING, memory);
	close_rings();
	open_rings(STACK_BYTES);
	report_cost("page faults: one, event that is disabled (against: none)", DISABLED, memory);
	cost = report_cost("page faults: one, event with registers and stack (against: none)", COUNTING, memory);
	switching = cost_of_switching(memory);
	close_rings();
	bench_report((struct bench_row){ .what = "page faults: opening and closing, while a program runs",
					 .unit = "us",
					 .measured = switching / 1e3 });
	report_flood("a first second", NS_PER_S, cost, switching);
	report_flood("ten seconds", 10 * NS_PER_S, cost, switching);
	return EXIT_SUCCESS;
}
