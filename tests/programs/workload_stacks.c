/*
 * workload_stacks.c: programs whose stacks are known. Stops itself first, so that the test
 * can get ready; goes on with SIGCONT; prints "done" and sleeps until it is killed, unless it is told
 * to exit. Built like everything else, without frame pointers where the compiler does without.
 *
 * usage: workload_stacks burst CPU_MS       burn_burst
 *                        shares CPU_MS      seven parts of it in burn_seventy, three in burn_thirty
 *                        threads CPU_MS     fifty threads, of which "hot" burns
 *                        recursion CPU_MS   twenty levels of one function above the one that burns
 *                        qsort CPU_MS       libc calls back into a comparison that burns
 *                        library CPU_MS FILE   burn_in_library of a shared library that is loaded only then
 *                        exit CPU_MS        burns, and has exited a moment later
 *                        memory MIB         grow_three touches three parts of it, grow_one one, within some
 *                                           two seconds
 *                        flood MIB          the same, as fast as it can, and keeps it
 *                        huge MIB           the same, but grow_three touches huge pages
 *                        compiled CPU_MS    code made at run time, with a perf map
 *                        children CPU_MS    burns in children that live 100 ms each
 *                        crowd CPU_MS       200 children burn a part of it each, and stay
 *                        brief CPU_MS       the same, but they live for 20 to 300 ms
 */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Not inlined, not merged with its twins, and not left by a jump: each call is a frame. */
#define FRAME __attribute__((noinline, noclone, noipa))
#define AFTER_CALL() __asm__ volatile("" ::: "memory")

#define ROUNDS 200000

static volatile uint64_t sum;

static uint64_t cpu_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);

	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t wanted_ms;

static void spin(void)
{
	for (int i = 0; i < ROUNDS; i++)
		sum = sum * 6364136223846793005u + (uint64_t)i;
}

/* ---- shares ---- */

/* These are found by their frame pointers, too. */
#define BURNER(name, seed) \
	FRAME __attribute__((optimize("no-omit-frame-pointer"))) static void name(long rounds) \
	{ \
		volatile uint64_t own = seed; \
		for (long i = 0; i < rounds; i++) \
			own = own * 6364136223846793005u + (uint64_t)i; \
	}

BURNER(burn_burst, 1)
BURNER(burn_seventy, 2)
BURNER(burn_thirty, 3)

static void run_burst(void)
{
	uint64_t began = cpu_ms();

	while (cpu_ms() - began < wanted_ms)
		burn_burst(100000);
}

/* For so long by turns that differ: equal ones may keep time with the sampling. */
static void run_shares(void)
{
	uint64_t began = cpu_ms(), random = 1;

	while (cpu_ms() - began < wanted_ms) {
		random = random * 6364136223846793005u + 1442695040888963407u;

		long length = 50000 + (long)(random >> 47);

		burn_seventy(7 * length);
		burn_thirty(3 * length);
	}
}

/* ---- threads ---- */

FRAME static void burn_hot(void)
{
	uint64_t began = cpu_ms();

	while (cpu_ms() - began < wanted_ms)
		spin();
	AFTER_CALL();
}

FRAME static void *sleep_cold(void *unused)
{
	(void)unused;
	for (;;)
		pause();

	return NULL;
}

FRAME static void *be_hot(void *unused)
{
	(void)unused;
	burn_hot();
	AFTER_CALL();

	return NULL;
}

static void run_threads(void)
{
	pthread_t thread, hot;

	for (int i = 0; i < 49; i++)
		pthread_create(&thread, NULL, sleep_cold, NULL);
	pthread_create(&hot, NULL, be_hot, NULL);
	pthread_setname_np(hot, "hot");
	pthread_join(hot, NULL);
}

/* ---- recursion ---- */

FRAME static void burn_leaf(void)
{
	spin();
	AFTER_CALL();
}

FRAME static void go_deeper(int levels)
{
	if (levels > 1)
		go_deeper(levels - 1);
	else
		burn_leaf();
	AFTER_CALL();
}

static void run_recursion(void)
{
	uint64_t began = cpu_ms();

	while (cpu_ms() - began < wanted_ms)
		go_deeper(20);
}

/* ---- called back by libc ---- */

FRAME static int compare_slowly(const void *left, const void *right)
{
	const int *a = left, *b = right;

	for (int i = 0; i < 2000; i++)
		sum = sum * 6364136223846793005u + (uint64_t)i;

	return *a < *b ? -1 : *a > *b;
}

FRAME static void sort_all(int *numbers, size_t count)
{
	qsort(numbers, count, sizeof(*numbers), compare_slowly);
	AFTER_CALL();
}

static void run_qsort(void)
{
	uint64_t began = cpu_ms();
	int numbers[512];

	while (cpu_ms() - began < wanted_ms) {
		for (int i = 0; i < 512; i++)
			numbers[i] = i * 7919 % 512;
		sort_all(numbers, 512);
	}
}

/* ---- a library ---- */

static void run_library(const char *file)
{
	void *library = dlopen(file, RTLD_NOW);
	void (*burn)(void) = library ? (void (*)(void))(uintptr_t)dlsym(library, "burn_in_library") : NULL;
	uint64_t began = cpu_ms();

	if (!burn) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	while (cpu_ms() - began < wanted_ms)
		burn();
}

/* ---- the end ---- */

FRAME static void burn_and_go(void)
{
	uint64_t began = cpu_ms();

	while (cpu_ms() - began < wanted_ms)
		spin();
	AFTER_CALL();
}

FRAME static void burn_in_child(void)
{
	uint64_t began = cpu_ms();

	while (cpu_ms() - began < 100)
		spin();
	AFTER_CALL();
}

static void run_children(void)
{
	for (uint64_t done = 0; done < wanted_ms; done += 100) {
		pid_t child = fork();

		if (child == 0) {
			burn_in_child();
			_exit(0);
		}
		waitpid(child, NULL, 0);
	}
}

#define CROWD 200
#define SHORTEST_MS 20
#define LONGEST_MS 300
#define AT_ONCE 20 /* of those that go */

FRAME static void burn_in_crowd(void)
{
	uint64_t began = cpu_ms();

	while (cpu_ms() - began < wanted_ms / CROWD)
		spin();
	AFTER_CALL();
}

static void nap_ms(unsigned ms)
{
	nanosleep(&(struct timespec){ .tv_nsec = (long)ms * 1000000 }, NULL);
}

/* Burns in the middle of its life. Those that stay say on done that they have. */
static _Noreturn void be_of_crowd(unsigned number, bool stays, int done)
{
	unsigned half_ms = (SHORTEST_MS + number * (LONGEST_MS - SHORTEST_MS) / CROWD) / 2;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	nap_ms(half_ms);
	burn_in_crowd();
	if (stays && write(done, "", 1) == 1)
		pause();
	nap_ms(half_ms);
	_exit(0);
}

static void run_crowd(bool stays)
{
	unsigned running = 0;
	int done[2];
	char byte;

	if (pipe(done) < 0)
		exit(1);
	for (unsigned i = 0; i < CROWD; i++, running++) {
		if (!stays && running == AT_ONCE && wait(NULL) > 0)
			running--;
		if (fork() == 0)
			be_of_crowd(i, stays, done[1]);
	}
	while (running > 0 && (stays ? read(done[0], &byte, 1) : wait(NULL)) > 0)
		running--;
}

/* ---- memory ---- */

FRAME static void grow_three(unsigned char *at, size_t bytes)
{
	memset(at, 3, bytes);
	AFTER_CALL();
}

FRAME static void grow_one(unsigned char *at, size_t bytes)
{
	memset(at, 1, bytes);
	AFTER_CALL();
}

/* In steps that differ in size, so that they do not keep time with the sampling. */
static void run_memory(size_t mib, long nap_ns)
{
	size_t total = mib << 20, at = 0;
	unsigned char *memory = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		exit(1);
	madvise(memory, total, MADV_NOHUGEPAGE);
	for (size_t step = 64 << 10; at + 4 * step <= total;
	     step = (step * 7 / 5) % (768 << 10) / 4096 * 4096 + (64 << 10)) {
		grow_three(memory + at, 3 * step);
		grow_one(memory + at + 3 * step, step);
		at += 4 * step;
		if (nap_ns > 0)
			nanosleep(&(struct timespec){ .tv_nsec = nap_ns }, NULL);
	}
}

/* In three steps. Reserves more than it touches: huge pages are aligned. */
static void run_huge(size_t mib)
{
	const size_t huge = 2 << 20, total = mib << 20, step = total / 12 / huge * huge;
	unsigned char *three = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned char *one = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (three == MAP_FAILED || one == MAP_FAILED)
		exit(1);
	madvise(three, total, MADV_HUGEPAGE);
	madvise(one, total, MADV_NOHUGEPAGE);
	three += huge - (uintptr_t)three % huge;
	for (int i = 0; i < 3; i++, three += 3 * step, one += step) {
		grow_three(three, 3 * step);
		grow_one(one, step);
	}
}

/* ---- compiled at run time ---- */

static void run_compiled(void)
{
#ifdef __x86_64__
	/* push %rbp; mov %rsp,%rbp; mov $1<<20,%ecx; 1: dec %ecx; jnz 1b; pop %rbp; ret */
	static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xb9, 0x00, 0x00, 0x10,
					      0x00, 0xff, 0xc9, 0x75, 0xfc, 0x5d, 0xc3 };
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t began = cpu_ms();
	char path[64];
	FILE *map;

	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	map = fopen(path, "we");
	if (page == MAP_FAILED || map == NULL)
		exit(1);
	memcpy(page, code, sizeof(code));
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
	fprintf(map, "%lx %zx burn_compiled\n", (unsigned long)(uintptr_t)page, sizeof(code));
	fclose(map);
	while (cpu_ms() - began < wanted_ms)
		((void (*)(void))(uintptr_t)page)();
#endif
}

int main(int argc, char **argv)
{
	const char *what = argc > 2 ? argv[1] : "";

	wanted_ms = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	raise(SIGSTOP);
	if (strcmp(what, "burst") == 0)
		run_burst();
	else if (strcmp(what, "shares") == 0)
		run_shares();
	else if (strcmp(what, "threads") == 0)
		run_threads();
	else if (strcmp(what, "recursion") == 0)
		run_recursion();
	else if (strcmp(what, "qsort") == 0)
		run_qsort();
	else if (strcmp(what, "library") == 0 && argc > 3)
		run_library(argv[3]);
	else if (strcmp(what, "memory") == 0)
		run_memory(wanted_ms, 2000000);
	else if (strcmp(what, "flood") == 0)
		run_memory(wanted_ms, 0);
	else if (strcmp(what, "huge") == 0)
		run_huge(wanted_ms);
	else if (strcmp(what, "compiled") == 0)
		run_compiled();
	else if (strcmp(what, "children") == 0)
		run_children();
	else if (strcmp(what, "crowd") == 0 || strcmp(what, "brief") == 0)
		run_crowd(*what == 'c');
	else if (strcmp(what, "exit") == 0)
		burn_and_go();
	else
		return 64;
	printf("done\n");
	fflush(stdout);
	while (strcmp(what, "exit") != 0)
		pause();

	return 0;
}
