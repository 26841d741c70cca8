/*
 * bench_busy.c: does the sampler get a CPU where there is none to spare. The daemon at 100 Hz beside
 * processes that take all CPUs, each in a session of its own, as the shells of many users or
 * services are: what part of the slots it takes, and its longest hole. Held against itself without
 * real-time priority.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"

#define BUSY_TARGETS 200u
#define BUSY_NS (8 * NS_PER_S)
#define SETTLE_NS (2 * NS_PER_S) /* the first second of a process is busy in itself */

struct load {
	const char *what;
	unsigned count;
	uint64_t work_ns, rest_ns; /* rest_ns 0: never */
};

static const struct load loads[] = {
	{ "24 that work 5 ms and rest 1 ms", 24, 5 * NS_PER_MS, NS_PER_MS },
	{ "32 that spin", 32, NS_PER_S, 0 },
};

static void work(const struct load *load)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setsid();
	for (;;) {
		uint64_t until = bench_cpu() + load->work_ns;

		while (bench_cpu() < until)
			continue;
		if (load->rest_ns > 0)
			bench_sleep(load->rest_ns);
	}
}

static void configure(struct bench_spikewatch *daemon, const char *sampling)
{
	const char *dir = daemon->dir;
	int len = snprintf(daemon->text, sizeof daemon->text,
			   "{ \"sampling\": { %s }, \"stacks\": { \"mode\": \"off\" },"
			   "  \"ring\": { \"path\": \"%s/ring\", \"size\": \"64MiB\", \"lock\": false },"
			   "  \"incidents\": { \"directory\": \"%s/incidents\" }, \"state_file\": \"%s/state\","
			   "  \"targets\": [ { \"name\": \"bench\", \"comm\": \"bench_busy\", \"per\": \"process\" } ],"
			   "  \"rules\": [ { \"name\": \"never\", \"metric\": \"threads\", \"above\": 1000000 } ] }",
			   sampling, dir, dir, dir);

	bench_need(len > 0 && (size_t)len < sizeof daemon->text, "a configuration that fits");
}

/* ---- beside others ---- */

struct outcome {
	double captured_percent, longest_ms;
};

/* The longest time between two ticks in that time. */
static double longest_hole_ms(const struct ring *ring, uint64_t from_ns, uint64_t to_ns)
{
	struct ring_cursor *cursor;
	struct ring_event event;
	uint64_t last = 0, longest = 0;

	bench_need(ring_cursor_new(ring, RING_OLDEST, &cursor) == 0, "a cursor");
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type != RING_EVENT_TICK || event.time.ns < from_ns || event.time.ns > to_ns)
			continue;
		if (last > 0 && event.time.ns - last > longest)
			longest = event.time.ns - last;
		last = event.time.ns;
	}
	ring_cursor_free(cursor);
	return (double)longest / NS_PER_MS;
}

static struct outcome run_beside(struct bench_spikewatch *daemon, const struct load *load, const char *scheduling)
{
	struct bench_meter from, to;
	struct outcome outcome;
	pid_t pids[64];
	char sampling[80];

	for (unsigned i = 0; i < load->count; i++) {
		pids[i] = fork();
		bench_need(pids[i] >= 0, "fork");
		if (pids[i] == 0)
			work(load);
	}
	snprintf(sampling, sizeof sampling, "\"interval\": \"10ms\", \"scheduling\": \"%s\"", scheduling);
	configure(daemon, sampling);
	bench_spikewatch_start(daemon);
	bench_sleep(SETTLE_NS);
	bench_spikewatch_meter(daemon, &from);
	bench_sleep(BUSY_NS);
	bench_spikewatch_meter(daemon, &to);
	outcome.captured_percent = bench_meter_captured(&from, &to);
	outcome.longest_ms = longest_hole_ms(daemon->ring, from.at_ns, to.at_ns);
	bench_spikewatch_end(daemon);
	for (unsigned i = 0; i < load->count; i++) {
		kill(pids[i], SIGKILL);
		waitpid(pids[i], NULL, 0);
	}
	return outcome;
}

static void report_beside(struct bench_spikewatch *daemon, const struct load *load)
{
	struct outcome normal = run_beside(daemon, load, "normal"), ours = run_beside(daemon, load, "auto");
	char what[96];

	snprintf(what, sizeof what, "capture rate, 100 Hz, beside %s (against: normal)", load->what);
	bench_report(
		(struct bench_row){ what, "%", ours.captured_percent, normal.captured_percent, BENCH_AT_LEAST, 99.9 });
	bench_report((struct bench_row){ "  longest time between two ticks", "ms", ours.longest_ms, normal.longest_ms,
					 BENCH_AT_MOST, 15 });
}

int main(void)
{
	static struct bench_spikewatch daemon;
	struct bench_targets targets = { .count = BUSY_TARGETS, .cpu = bench_nth_cpu(1) };

	bench_raise_descriptors();
	bench_spikewatch_make(&daemon, NULL, NULL);
	bench_targets_start(&targets);
	for (size_t i = 0; i < ARRAY_LEN(loads); i++)
		report_beside(&daemon, &loads[i]);
	bench_targets_end(&targets);

	return 0;
}
