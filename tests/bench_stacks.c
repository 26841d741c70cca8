/*
 * bench_stacks.c: what recording call stacks costs: a program that computes and one that touches new memory, not recorded, recorded by frame pointers and
 * with registers and stack, in turns; the recorder while nothing happens; its memory; and how long it takes to secure what the rings hold and to give it names.
 *
 * What a program is slowed down by is in its own CPU time: the kernel samples in the interrupt of the thread that it interrupts.
 */
#include "bench.h"
#include "realclock.h"
#include "stackcapture.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 120
#define COMPUTE_LOOPS 15000000u
#define FAULT_BYTES ((size_t)64 << 20)
#define IDLE_THREADS 50
#define IDLE_NS (5 * NS_PER_S)

enum how { NOT, FRAME_POINTERS, DWARF, HOWS };

static const char *const how_names[HOWS] = { "", "by frame pointers", "with registers and stack" };

/* ---- the program ---- */

static volatile uint64_t sum;

static void compute(void)
{
	for (unsigned i = 0; i < COMPUTE_LOOPS; i++)
		sum = sum * 6364136223846793005u + i;
}

static void touch(void)
{
	unsigned char *memory = mmap(NULL, FAULT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	bench_need(memory != MAP_FAILED, "mmap");
	madvise(memory, FAULT_BYTES, MADV_NOHUGEPAGE);
	for (size_t at = 0; at < FAULT_BYTES; at += 4096)
		memory[at] = 1;
	munmap(memory, FAULT_BYTES);
}

struct program {
	pid_t pid;
	int ask, answer;
};

static struct program start_program(void)
{
	int ask[2], answer[2];
	struct program program;

	bench_need(pipe2(ask, O_CLOEXEC) == 0 && pipe2(answer, O_CLOEXEC) == 0, "pipe");
	program.pid = fork();
	bench_need(program.pid >= 0, "fork");
	if (program.pid == 0) {
		char what;

		close(ask[1]);
		while (read(ask[0], &what, 1) == 1) {
			uint64_t from = bench_cpu(), took;

			what == 'c' ? compute() : touch();
			took = bench_cpu() - from;
			if (write(answer[1], &took, sizeof(took)) != sizeof(took))
				break;
		}
		_exit(0);
	}
	close(ask[0]);
	close(answer[1]);
	program.ask = ask[1];
	program.answer = answer[0];
	return program;
}

/* CPU time that it took. */
static double run(const struct program *program, char what)
{
	uint64_t took;

	bench_need(write(program->ask, &what, 1) == 1 && read(program->answer, &took, sizeof(took)) == sizeof(took),
		   "the program");
	return (double)took;
}

static void end_program(const struct program *program)
{
	close(program->ask);
	waitpid(program->pid, NULL, 0);
	close(program->answer);
}

/* ---- the recorder ---- */

static struct stackrecorder *start_recorder(enum how how, uint32_t pid)
{
	struct stackrecorder_options options = { .dwarf = how == DWARF };
	struct stackrecorder *recorder;
	struct stackrecorder_status status = { 0 };
	char reason[STACKRECORDER_REASON_MAX];

	if (how == NOT)
		return NULL;
	if (stackrecorder_open(&options, &recorder, reason) < 0) {
		printf("stacks cannot be recorded here: %s FAILED\n", reason);
		exit(EXIT_FAILURE);
	}
	if (how == DWARF)
		bench_need(stackrecorder_follow(recorder, &pid, 1) == 0, "stackrecorder_follow");
	for (int i = 0; how == DWARF && i < 1000 && status.followed_threads == 0; i++) {
		bench_sleep(NS_PER_MS);
		stackrecorder_status(recorder, &status);
	}
	return recorder;
}

/*
 * Each round all ways, another one first each time. What is compared is the lower tenth of each: neighbours, and the host of a virtual machine, make a run of
 * fifty milliseconds slower by more than what is looked for, but not every run, while samples are in every one of them.
 */
static void measure_slowdown(const struct program *program, char what, const char *name)
{
	static double took[HOWS][ROUNDS];
	char row[80];

	run(program, what);
	for (int round = 0; round < ROUNDS; round++) {
		for (int turn = 0; turn < HOWS; turn++) {
			enum how how = (enum how)((round + turn) % HOWS);
			struct stackrecorder *recorder = start_recorder(how, (uint32_t)program->pid);

			took[how][round] = run(program, what) / 1e6;
			stackrecorder_close(recorder);
		}
	}
	for (enum how how = NOT; how < HOWS; how++)
		qsort(took[how], ROUNDS, sizeof(took[how][0]), bench_compare);
	for (enum how how = FRAME_POINTERS; how < HOWS; how++) {
		snprintf(row, sizeof(row), "%s, recorded %s", name, how_names[how]);
		bench_report((struct bench_row){ .what = row,
						 .unit = "ms",
						 .measured = took[how][ROUNDS / 10],
						 .against = took[NOT][ROUNDS / 10],
						 .limit = BENCH_RATIO_AT_MOST,
						 .budget = 1.01 });
	}
}

static void *sleep_on(void *unused)
{
	pause();
	return unused;
}

/* The recorder's thread beside a process of many threads that sleep. */
static void measure_idle(void)
{
	pid_t sleeper = fork();
	struct stackrecorder_status status;
	struct stackrecorder *recorder;
	uint64_t cpu;

	bench_need(sleeper >= 0, "fork");
	if (sleeper == 0) {
		pthread_t thread;

		for (int i = 1; i < IDLE_THREADS; i++)
			pthread_create(&thread, NULL, sleep_on, NULL);
		pause();
		_exit(0);
	}
	bench_sleep(NS_PER_S / 2);
	recorder = start_recorder(DWARF, (uint32_t)sleeper);
	cpu = bench_clock(CLOCK_PROCESS_CPUTIME_ID);
	bench_sleep(IDLE_NS);
	cpu = bench_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	stackrecorder_status(recorder, &status);
	bench_report((struct bench_row){ .what = "stacks: CPU while nothing happens, 50 threads followed",
					 .unit = "us/s",
					 .measured = (double)cpu / 1e3 / ((double)IDLE_NS / 1e9),
					 .limit = BENCH_NO_LIMIT });
	bench_report((struct bench_row){ .what = "stacks: memory of all rings",
					 .unit = "MiB",
					 .measured = (double)status.memory_bytes / (1 << 20),
					 .limit = BENCH_AT_MOST,
					 .budget = 64 });
	stackrecorder_close(recorder);
	kill(sleeper, SIGKILL);
	waitpid(sleeper, NULL, 0);
}

/* ---- an incident ---- */

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
	(void)st;
	(void)kind;
	(void)where;
	return remove(path);
}

/* The rings hold ten seconds of a CPU that was busy. */
static void measure_incident(const struct program *program)
{
	struct clock clock = realclock();
	struct stackrecorder *recorder = start_recorder(DWARF, (uint32_t)program->pid);
	char symbolizer[1024], dir[] = "/tmp/spikewatch-bench.XXXXXX";
	struct incident info;
	struct stackcapture *capture;
	uint64_t from = bench_now(), secured, written;

	bench_need(symbolizer_find(symbolizer, sizeof(symbolizer)), "spikewatch-symbolize");
	bench_need(mkdtemp(dir) != NULL, "mkdtemp");
	while (bench_now() < from + 10 * NS_PER_S)
		run(program, 'c');

	int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	    procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stackcapture_options options = {
		.recorder = recorder,
		.procfd = procfd,
		.symbolizer = symbolizer,
		.before_ns = 30 * NS_PER_S,
		.fired = clock_mono(&clock),
		.wall = clock_wall(&clock),
	};

	incident_init(&info, "0");
	from = bench_now();
	capture = stackcapture_secure(&options, &info);
	secured = bench_now() - from;
	bench_need(capture != NULL, "the rings");
	from = bench_now();
	stackcapture_write(capture, &(struct stackcapture_focus){ .count = 0 }, dirfd, NULL, &info);
	written = bench_now() - from;
	bench_report((struct bench_row){ .what = "stacks: from the firing to what the rings hold being secured",
					 .unit = "ms",
					 .measured = (double)secured / 1e6,
					 .limit = BENCH_NO_LIMIT });
	bench_report((struct bench_row){ .what = "stacks: from the end of the incident to profiles with names",
					 .unit = "ms",
					 .measured = (double)written / 1e6,
					 .limit = BENCH_NO_LIMIT });
	close(dirfd);
	close(procfd);
	nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	stackrecorder_close(recorder);
}

int main(void)
{
	struct program program = start_program();

	measure_slowdown(&program, 'c', "a program that computes");
	measure_slowdown(&program, 'f', "a program that touches new memory");
	measure_idle();
	measure_incident(&program);
	end_program(&program);
	return EXIT_SUCCESS;
}
