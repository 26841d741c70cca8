/*
 * bench_kernel.c: both sources of CPU time side by side, as the daemon uses them, all of it included, beside
 * a bare loop that wakes up as often; and what the one in the kernel costs each switch, by a byte that goes
 * back and forth between two processes.
 *
 * Arguments choose parts, since all of them take longer than a minute and a half:
 *
 * 	switches          the byte
 * 	COUNT@HERTZ       so many processes, of which one in a hundred runs for 20 us every 10 ms
 * 	COUNT@HERTZ:idle  none of which runs
 *
 * CPU time of other programs beside these (pidstat, top): bench_peers.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"
#include "daemon/engine/kernel/kernel_accounts.h"
#include "lib/base/base.h"

#define FLOOR_NS (3 * NS_PER_S / 2)
#define SETTLE_NS (11 * NS_PER_S) /* what is new is asked for its cgroup for 10 s */
#define SETTLE_EACH_NS (NS_PER_MS / 2)
#define MEASURE_NS (4 * NS_PER_S)
#define ROUND_TRIPS 20000
#define ROUNDS 7

/* All of the daemon included, of 1,000 processes at 100 Hz of which 1 % run. */
#define SAMPLE_BUDGET_NS 40

static unsigned own_cpu, target_cpu;

struct cost {
	double percent, captured;
	bool known;
};

static void configure(struct bench_spikewatch *daemon, const char *source, unsigned hertz)
{
	const char *dir = daemon->dir;

	snprintf(daemon->text, sizeof daemon->text,
		 "{ \"sampling\": { \"interval\": \"%uus\", \"source\": \"%s\", \"cpu_budget\": \"90%%\", "
		 "\"max_targets\": 12000 },"
		 " \"stacks\": { \"mode\": \"off\" },"
		 " \"ring\": { \"path\": \"%s/ring\", \"size\": \"16MiB\", \"lock\": false },"
		 " \"incidents\": { \"directory\": \"%s/incidents\", \"min_free\": \"0\" },"
		 " \"state_file\": \"%s/state\","
		 " \"targets\": [ { \"name\": \"many\", \"comm\": \"bench_many\", \"per\": \"process\" } ],"
		 " \"rules\": [ { \"name\": \"cpu\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"1s\", "
		 "\"percent\": \"90%%\" },"
		 " { \"name\": \"memory\", \"metric\": \"memory\", \"window\": \"1s\", \"percent\": \"90%%\" } ] }",
		 1000000 / hertz, source, dir, dir, dir);
}

/* Of the whole daemon. Not known: this source cannot be had. */
static struct cost cost_with(struct bench_spikewatch *daemon, const char *source, size_t count, unsigned hertz)
{
	struct bench_meter from, to;

	configure(daemon, source, hertz);
	bench_spikewatch_begin(daemon);
	bench_need(bench_spikewatch_hear(daemon, "watching ", bench_now() + 60 * NS_PER_S), "the daemon watches");
	if (bench_spikewatch_hear(daemon, "not from the scheduler", bench_now() + NS_PER_S) != 0) {
		fprintf(stderr, "bench: %s\n", daemon->last);
		bench_spikewatch_end(daemon);
		return (struct cost){ .known = false };
	}
	bench_sleep(SETTLE_NS + count * SETTLE_EACH_NS);
	bench_spikewatch_meter(daemon, &from);
	bench_sleep(MEASURE_NS);
	bench_spikewatch_meter(daemon, &to);
	if (strcmp(source, "kernel") == 0)
		bench_report_threads(&from, &to, 0.005);
	bench_spikewatch_end(daemon);
	return (struct cost){ bench_meter_percent(&from, &to), bench_meter_captured(&from, &to), true };
}

/* Of a loop that does nothing but wake up and ask what time it is. */
static double bare_percent(unsigned hertz)
{
	uint64_t began = bench_now(), deadline = began, cpu = bench_cpu();

	prctl(PR_SET_TIMERSLACK, 1000ul);
	while (deadline < began + FLOOR_NS) {
		deadline += NS_PER_S / hertz;
		bench_sleep_until(deadline);
		bench_now();
	}
	return 100 * (double)(bench_cpu() - cpu) / (double)(bench_now() - began);
}

static void report_sources(struct bench_spikewatch *daemon, size_t count, unsigned hertz, bool busy)
{
	struct bench_targets many = { .count = count,
				      .busy = busy ? count / 100 : 0,
				      .manner = BENCH_TICKING,
				      .name = "bench_many",
				      .cpu = target_cpu };
	double ns_each = 1e7 / (double)count / hertz; /* of a percent of a core */
	char what[80];

	bench_targets_start(&many);

	double bare = bare_percent(hertz);
	struct cost kernel = cost_with(daemon, "kernel", count, hertz);
	struct cost files =
		kernel.known && count <= 1000 ? cost_with(daemon, "files", count, hertz) : (struct cost){ 0 };

	bench_targets_end(&many);
	if (!kernel.known)
		return;
	snprintf(what, sizeof what, "CPU from the kernel, %zu processes, %zu run, %u Hz%s", count, many.busy, hertz,
		 files.known ? " (files)" : "");
	if (files.known)
		bench_report((struct bench_row){ what, "%", kernel.percent, files.percent, BENCH_RATIO_AT_MOST, 1 });
	else
		bench_report((struct bench_row){ what, "%", kernel.percent, 0,
						 hertz == 100 ? BENCH_AT_MOST : BENCH_NO_LIMIT, 1 });
	bench_report((struct bench_row){ "  beside a bare loop that wakes up as often", "%", kernel.percent, bare,
					 BENCH_NO_LIMIT, 0 });
	bench_report((struct bench_row){
		"  of each sample", "ns", kernel.percent * ns_each, files.known ? files.percent * ns_each : 0,
		count == 1000 && hertz == 100 ? BENCH_AT_MOST : BENCH_NO_LIMIT, SAMPLE_BUDGET_NS });
	bench_report((struct bench_row){ "  captured", "%", kernel.captured, files.known ? files.captured : 0,
					 BENCH_AT_LEAST, 99.9 });
}

/* ns for each switch: a round trip is two. */
static double switch_ns(const int there[2], const int back[2])
{
	char byte = 0;
	uint64_t from = bench_now();

	for (unsigned i = 0; i < ROUND_TRIPS; i++)
		bench_need(write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1, "a pipe");
	return (double)(bench_now() - from) / ROUND_TRIPS / 2;
}

static void report_switches(void)
{
	struct kernel_accounts_options options = { .procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
						   .capacity = 100,
						   .at_any_cost = true };
	char reason[KERNEL_ACCOUNTS_REASON_MAX];
	double with[ROUNDS], without[ROUNDS];
	int there[2], back[2];

	bench_need(pipe(there) == 0 && pipe(back) == 0, "pipes");

	pid_t pid = fork();

	if (pid == 0) {
		char byte;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1)
			continue;
		_exit(0);
	}
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct kernel_accounts *accounts;
		uint32_t account;

		without[i] = switch_ns(there, back);
		if (kernel_accounts_open(&options, &accounts, reason) < 0) {
			fprintf(stderr, "bench: not from the kernel: %s\n", reason);
			break;
		}
		bench_need(kernel_accounts_watch(accounts, pid, 0, &account) == 0, "an account");
		with[i] = switch_ns(there, back);
		kernel_accounts_close(accounts);
		if (i == ROUNDS - 1)
			bench_report((struct bench_row){ "  each switch of the machine, more", "ns",
							 bench_median(with, ROUNDS) - bench_median(without, ROUNDS),
							 bench_median(without, ROUNDS), BENCH_AT_MOST, 300 });
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(options.procfd);
}

static void run_part(struct bench_spikewatch *daemon, const char *part)
{
	unsigned hertz = 100;
	size_t count = 1000;
	char how[8] = "";

	if (strcmp(part, "switches") == 0)
		report_switches();
	else if (sscanf(part, "%zu@%u:%7s", &count, &hertz, how) >= 2 && hertz > 0)
		report_sources(daemon, count, hertz, strcmp(how, "idle") != 0);
	else
		fprintf(stderr, "bench: no part is named %s\n", part);
}

int main(int argc, char **argv)
{
	static const char *const usual[] = { "switches", "100@100", "1000@100", "1000@1000", "10000@100" };
	struct bench_spikewatch daemon = { 0 };

	own_cpu = bench_nth_cpu(0);
	target_cpu = bench_nth_cpu(1);
	bench_raise_descriptors();
	bench_spikewatch_make(&daemon, NULL, NULL);
	bench_pin(own_cpu);
	for (int i = 1; i < argc; i++)
		run_part(&daemon, argv[i]);
	for (size_t i = 0; argc == 1 && i < ARRAY_LEN(usual); i++)
		run_part(&daemon, usual[i]);
	return 0;
}
