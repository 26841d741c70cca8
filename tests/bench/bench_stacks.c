/*
 * bench_stacks.c: what recording call stacks costs: a program that computes and one that touches
 * new memory, not recorded, recorded by frame pointers and with registers and stack, in turns; the
 * recorder while nothing happens; its memory; and how long it takes to secure what the rings hold
 * and to give it names.
 *
 * What a program is slowed down by is in its own CPU time: the kernel samples in the interrupt of
 * the thread that it interrupts.
 */
#include "bench.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/stacks/stack_capture.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/base/base.h"
#include "lib/incident/incident.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 20
#define COMPUTE_LOOPS 15000000u
#define TOUCH_BYTES ((size_t)64 << 20)
#define TOUCHES 8
#define CHURN_BYTES ((size_t)256 << 10)
#define CHURNS 2048
#define PART_LOOPS 200000u
#define IDLE_THREADS 50
#define IDLE_NS (5 * NS_PER_S)

enum how { NOT, NOT_AGAIN, FRAME_POINTERS, DWARF, HOWS };

static const char *const how_names[HOWS] = { "", "not recorded", "recorded by frame pointers",
					     "recorded with registers and stack" };

/* ---- the program ---- */

static volatile uint64_t sum;

static void compute(void)
{
	for (unsigned i = 0; i < COMPUTE_LOOPS; i++)
		sum = sum * 6364136223846793005u + i;
}

/* New memory, written to page by page and given back. loops: of computing for each 64 KiB of it. */
static void touch(size_t bytes, int advice, unsigned loops)
{
	unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	bench_need(memory != MAP_FAILED, "mmap");
	madvise(memory, bytes, advice);
	for (size_t at = 0; at < bytes; at += 4096) {
		memory[at] = 1;
		for (unsigned i = 0; at % 65536 == 0 && i < loops; i++)
			sum = sum * 6364136223846793005u + i;
	}
	munmap(memory, bytes);
}

static void touch_flat_out(void)
{
	for (int i = 0; i < TOUCHES; i++)
		touch(TOUCH_BYTES, MADV_NOHUGEPAGE, 0);
}

static void touch_huge_pages(void)
{
	for (int i = 0; i < TOUCHES; i++)
		touch(TOUCH_BYTES, MADV_HUGEPAGE, 0);
}

static void touch_in_passing(void)
{
	for (int i = 0; i < TOUCHES / 4; i++)
		touch(TOUCH_BYTES, MADV_NOHUGEPAGE, PART_LOOPS);
}

static void churn(void)
{
	for (int i = 0; i < CHURNS; i++)
		touch(CHURN_BYTES, MADV_NOHUGEPAGE, 0);
}

static const struct kind {
	const char *name;
	void (*work)(void);
	bool faults; /* two runs differ by more than what is looked for: bench_faults.c has it in parts */
} kinds[] = {
	{ "a program that computes", compute, false },
	{ "a program that touches new memory", touch_flat_out, true },
	{ "one that maps and unmaps 256 KiB all the time", churn, true },
	{ "one that touches memory and computes", touch_in_passing, true },
	{ "one that touches huge pages", touch_huge_pages, true },
};

#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

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

			kinds[(unsigned char)what].work();
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
static double run(const struct program *program, unsigned kind)
{
	uint64_t took;
	char what = (char)kind;

	bench_need(write(program->ask, &what, 1) == 1 && read(program->answer, &took, sizeof(took)) == sizeof(took),
		   "the program");
	return (double)took;
}

static uint64_t faults_of(pid_t pid)
{
	char path[64];
	unsigned long long faults = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	bench_need(file != NULL && fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %llu", &faults) == 1, path);
	fclose(file);
	return faults;
}

static void end_program(const struct program *program)
{
	close(program->ask);
	waitpid(program->pid, NULL, 0);
	close(program->answer);
}

/* ---- the recorder ---- */

static struct stack_recorder *start_recorder(enum how how, uint32_t pid)
{
	struct stack_recorder_options options = { .dwarf = how == DWARF };
	struct stack_recorder *recorder;
	struct stack_recorder_status status = { 0 };
	char reason[STACK_RECORDER_REASON_MAX];

	if (how == NOT || how == NOT_AGAIN)
		return NULL;
	if (stack_recorder_open(&options, &recorder, reason) < 0) {
		printf("stacks cannot be recorded here: %s FAILED\n", reason);
		exit(EXIT_FAILURE);
	}
	if (how == DWARF)
		bench_need(stack_recorder_follow(recorder, &pid, 1) == 0, "stackrecorder_follow");
	for (int i = 0; how == DWARF && i < 1000 && status.followed_threads == 0; i++) {
		bench_sleep(NS_PER_MS);
		stack_recorder_status(recorder, &status);
	}
	return recorder;
}

/*
 * Each round all ways, another one first each time; not recorded twice, to show what can be told
 * apart. What is compared is the lower tenth of each: neighbours, and the host of a virtual
 * machine, make a run slower by more than what is looked for, but not every run, while samples are
 * in every one of them. A run is some tenths of a second long: page faults are counted for a part
 * of each tenth. The one before it is not counted: recording goes on for days, and the rings have
 * just been made, of memory that the program then does not find where it did.
 */
static void measure_slowdown(const struct program *program, unsigned kind)
{
	static double took[HOWS][ROUNDS];
	uint64_t faults_before, faults;
	char row[80];

	faults_before = faults_of(program->pid);
	run(program, kind);
	faults = faults_of(program->pid) - faults_before;
	for (int round = 0; round < ROUNDS; round++) {
		for (int turn = 0; turn < HOWS; turn++) {
			enum how how = (enum how)((round + turn) % HOWS);
			struct stack_recorder *recorder = start_recorder(how, (uint32_t)program->pid);

			run(program, kind);
			took[how][round] = run(program, kind) / 1e6;
			stack_recorder_close(recorder);
		}
	}
	for (enum how how = NOT; how < HOWS; how++)
		qsort(took[how], ROUNDS, sizeof(took[how][0]), bench_compare);
	printf("%s: %.0f page faults in a second of its CPU time\n", kinds[kind].name,
	       (double)faults * 1e3 / took[NOT][ROUNDS / 10]);
	for (enum how how = NOT_AGAIN; how < HOWS; how++) {
		snprintf(row, sizeof(row), "  %s", how_names[how]);
		bench_report((struct bench_row){ .what = row,
						 .unit = "ms",
						 .measured = took[how][ROUNDS / 10],
						 .against = took[NOT][ROUNDS / 10],
						 .limit = how == NOT_AGAIN || kinds[kind].faults ? BENCH_NO_LIMIT
												 : BENCH_RATIO_AT_MOST,
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
	struct stack_recorder_status status;
	struct stack_recorder *recorder;
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
	stack_recorder_status(recorder, &status);
	bench_report((struct bench_row){ .what = "stacks: CPU while nothing happens, 50 threads followed",
					 .unit = "us/s",
					 .measured = (double)cpu / 1e3 / ((double)IDLE_NS / 1e9),
					 .limit = BENCH_NO_LIMIT });
	bench_report((struct bench_row){ .what = "stacks: memory of all rings",
					 .unit = "MiB",
					 .measured = (double)status.memory_bytes / (1 << 20),
					 .limit = BENCH_AT_MOST,
					 .budget = 64 });
	stack_recorder_close(recorder);
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
	struct clock clock = real_clock();
	struct stack_recorder *recorder = start_recorder(DWARF, (uint32_t)program->pid);
	char symbolizer[1024], dir[] = "/tmp/spikewatch-bench.XXXXXX";
	struct incident info;
	struct stack_capture *capture;
	uint64_t from = bench_now(), secured, written;

	bench_need(symbolizer_find(symbolizer, sizeof(symbolizer)), "spikewatch-symbolize");
	bench_need(mkdtemp(dir) != NULL, "mkdtemp");
	while (bench_now() < from + 10 * NS_PER_S)
		run(program, 0);

	int dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	    procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct stack_capture_options options = {
		.recorder = recorder,
		.procfd = procfd,
		.symbolizer = symbolizer,
		.before_ns = 30 * NS_PER_S,
		.fired = clock_mono(&clock),
		.wall = clock_wall(&clock),
	};

	incident_init(&info, "0");
	from = bench_now();
	capture = stack_capture_secure(&options, &info);
	secured = bench_now() - from;
	bench_need(capture != NULL, "the rings");
	from = bench_now();
	stack_capture_write(capture, &(struct stack_capture_members){ .everyone = true }, dirfd, NULL, &info);
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
	stack_recorder_close(recorder);
}

int main(void)
{
	struct program program = start_program();

	for (unsigned kind = 0; kind < KINDS; kind++)
		measure_slowdown(&program, kind);
	measure_idle();
	measure_incident(&program);
	end_program(&program);
	return EXIT_SUCCESS;
}
