/*
 * bench_hold.c: for how long a program is held up by being watched: one with a large mapping, of
 * which a thread maps, touches and unmaps a little memory in turn and notes the longest time that
 * took. Alone; while it is found and its baselines are read; while it burns, alone; and while
 * that fires a rule and evidence of it is written, smaps.tsv included, and once more afterwards.
 *
 * The program has a CPU of its own, so that what it waits for is a lock.
 */
#include "bench_spikewatch.h"
#include "lib/base/base.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define LARGE_BYTES (5ULL << 30)
#define SMALL_BYTES (64u << 10)
#define PAGE 4096u
#define PHASE_NS (4 * NS_PER_S)
#define LONGEST_MS 5

static const char rest[] =
	"\"targets\": [ { \"name\": \"held\", \"comm\": \"bench_held\", \"per\": \"process\", \"again\": \"1s\" } ],"
	"  \"rules\": ["
	"    { \"name\": \"burst\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"100ms\", \"percent\": "
	"\"60%\","
	"      \"warmup\": 1, \"cooldown\": \"1m\" } ]";

/* Shared with the program. */
struct program {
	pid_t pid;
	_Atomic bool ready, burning;
	_Atomic uint64_t longest_ns;
};

static long preemptions(void)
{
	struct rusage usage;

	bench_need(getrusage(RUSAGE_THREAD, &usage) == 0, "getrusage");
	return usage.ru_nivcsw;
}

/* A turn in which another program got the CPU says nothing of locks. */
static void map_and_touch(struct program *program)
{
	long preempted = preemptions();
	uint64_t from = bench_now(), took;
	volatile char *memory = mmap(NULL, SMALL_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	bench_need(memory != MAP_FAILED, "mmap");
	memory[0] = 1;
	munmap((void *)memory, SMALL_BYTES);
	took = bench_now() - from;
	if (preemptions() == preempted && took > atomic_load(&program->longest_ns))
		atomic_store(&program->longest_ns, took);
}

static void run(struct program *program, uint64_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	bench_need(memory != MAP_FAILED, "mmap");
	madvise(memory, bytes, MADV_NOHUGEPAGE);
	for (uint64_t at = 0; at < bytes; at += PAGE)
		memory[at] = 1;
	atomic_store(&program->ready, true);
	for (;;) {
		map_and_touch(program);
		if (!atomic_load(&program->burning))
			bench_sleep(100 * NS_PER_US);
	}
}

static struct program *start_program(uint64_t bytes, unsigned cpu)
{
	struct program *program =
		mmap(NULL, sizeof(*program), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	pid_t pid;

	bench_need(program != MAP_FAILED, "shared memory");
	pid = fork();
	bench_need(pid >= 0, "fork");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "bench_held");
		bench_pin(cpu);
		run(program, bytes);
	}
	program->pid = pid;
	while (!atomic_load(&program->ready))
		bench_sleep(NS_PER_MS);
	return program;
}

/* Half of what is available, if that is less. */
static uint64_t choose_bytes(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	unsigned long long kib = 0;
	char line[256];

	bench_need(file, "/proc/meminfo");
	while (fgets(line, sizeof(line), file) && sscanf(line, "MemAvailable: %llu kB", &kib) != 1)
		continue;
	fclose(file);
	return kib * 512 < LARGE_BYTES ? kib * 512 / PAGE * PAGE : LARGE_BYTES;
}

static double longest_ms(struct program *program)
{
	bench_sleep(PHASE_NS);
	return (double)atomic_exchange(&program->longest_ns, 0) / (double)NS_PER_MS;
}

static void report(const char *what, double measured, double alone)
{
	bench_report((struct bench_row){ what, "ms", measured, alone, BENCH_AT_MOST, LONGEST_MS });
}

int main(void)
{
	struct bench_spikewatch daemon = { 0 };
	unsigned own_cpu = bench_nth_cpu(0), cpu = bench_nth_cpu(1);
	struct program *program;
	double idle, busy, baselines, incident;
	uint64_t bytes = choose_bytes(), fired;
	char what[100];

	bench_pin(own_cpu);
	bench_spikewatch_make(&daemon, NULL, NULL);
	bench_spikewatch_configure(&daemon, "10ms", rest);
	program = start_program(bytes, cpu);
	atomic_store(&program->longest_ns, 0);
	idle = longest_ms(program);
	atomic_store(&program->burning, true);
	busy = longest_ms(program);
	atomic_store(&program->burning, false);

	bench_spikewatch_start(&daemon);
	baselines = longest_ms(program);
	atomic_store(&program->burning, true);
	fired = bench_spikewatch_hear(&daemon, "rule burst fired", bench_now() + 2 * NS_PER_S);
	bench_need(fired != 0, "the rule fires");
	incident = longest_ms(program);
	bench_need(bench_spikewatch_hear(&daemon, "incident", bench_now() + 10 * NS_PER_S), "an incident");
	bench_spikewatch_end(&daemon);

	snprintf(what, sizeof(what), "longest mmap, first touch, munmap; %.1f GiB in one mapping: found",
		 (double)bytes / (double)(1u << 30));
	report(what, baselines, idle);
	report("  in an incident and its second snapshot", incident, busy);
	kill(program->pid, SIGKILL);
	waitpid(program->pid, NULL, 0);
	return EXIT_SUCCESS;
}
