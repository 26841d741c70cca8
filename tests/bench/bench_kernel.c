/*
 * bench_kernel.c: both sources of CPU time side by side, everything that records included; and what the
 * one in the kernel costs each switch, by a byte that goes back and forth between two processes.
 */
#include "bench_spikewatch.h"
#include "bench_targets.h"
#include "daemon/engine/kernel/kernel_accounts.h"
#include "daemon/engine/session/session.h"
#include "lib/base/base.h"
#include "lib/config/config.h"

#define SETTLE_NS (2 * NS_PER_S)
#define MEASURE_NS (4 * NS_PER_S)
#define ROUND_TRIPS 20000
#define ROUNDS 7

static unsigned own_cpu, target_cpu;

/* Percent of a core, of the whole process; < 0: this source cannot be had. */
static double percent_with(const char *source_name, const char *interval)
{
	char text[512];
	struct config_source source = { "bench", text, 0 };
	struct config_error error;
	struct config *config;
	struct session *session;

	snprintf(text, sizeof text,
		 "{ \"sampling\": { \"interval\": \"%s\", \"source\": \"%s\", \"cpu_budget\": \"90%%\", "
		 "\"max_targets\": 12000 },"
		 " \"stacks\": { \"mode\": \"off\" }, \"ring\": { \"size\": \"16MiB\", \"lock\": false },"
		 " \"targets\": [ { \"name\": \"many\", \"comm\": \"bench_many\", \"per\": \"process\" } ], \"rules\": "
		 "[] }",
		 interval, source_name);
	source.len = strlen(text);
	if (config_parse(&source, 1, &config, &error) < 0) {
		fprintf(stderr, "bench: %s: %s\n", error.key, error.message);
		exit(EXIT_FAILURE);
	}
	bench_need(session_new(config, NULL, &session) == 0, "session");

	bool has = session_parts(session).accounts != NULL;
	double percent = -1;

	if (has || strcmp(source_name, "files") == 0) {
		bench_need(session_start(session) == 0, "session");
		bench_sleep(SETTLE_NS);

		uint64_t from = bench_now(), cpu = bench_clock(CLOCK_PROCESS_CPUTIME_ID);

		bench_sleep(MEASURE_NS);
		percent = 100 * (double)(bench_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (double)(bench_now() - from);
	} else {
		fprintf(stderr, "bench: not from the kernel: %s\n", session_parts(session).accounts_off);
	}
	session_stop(session);
	session_free(session);
	config_free(config);
	return percent;
}

static void report_sources(size_t count, unsigned hertz)
{
	struct bench_targets many = {
		.count = count, .busy = count / 100, .manner = BENCH_TICKING, .name = "bench_many", .cpu = target_cpu
	};
	const char *interval = hertz == 1000 ? "1ms" : "10ms";
	char what[80];

	bench_targets_start(&many);

	double files = percent_with("files", interval), kernel = percent_with("kernel", interval);

	bench_targets_end(&many);
	snprintf(what, sizeof what, "CPU from the kernel, %zu processes, %zu run, %u Hz (files)", count, many.busy,
		 hertz);
	if (kernel < 0)
		return;
	bench_report((struct bench_row){ what, "%", kernel, files, BENCH_RATIO_AT_MOST, 1 });
	bench_report((struct bench_row){ "  of each sample", "ns", kernel / 100 * 1e9 / (double)count / hertz,
					 files / 100 * 1e9 / (double)count / hertz,
					 count == 1000 ? BENCH_AT_MOST : BENCH_NO_LIMIT, 40 });
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

int main(void)
{
	own_cpu = bench_nth_cpu(0);
	target_cpu = bench_nth_cpu(1);
	bench_pin(own_cpu);
	bench_raise_descriptors();
	report_switches();
	report_sources(100, 100);
	report_sources(1000, 100);
	report_sources(1000, 1000);
	return 0;
}
