/*
 * workload_functions.c: burns CPU in functions whose shares are known: burn_seventy takes seven parts and burn_thirty three, of as much CPU time
 * as is asked for; burn_burst some more before that. Then it sleeps until it is killed. Built like everything else, so with whatever frame pointers
 * the flags give: these functions call nobody, and their names are their own.
 *
 * usage: workload_functions BURST_MS RATIO_MS
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Not inlined, and not merged with its twins. */
#define BURNER(name, seed) \
	__attribute__((noinline, noclone, optimize("no-omit-frame-pointer"))) static uint64_t name(long rounds) \
	{ \
		volatile uint64_t sum = seed; \
		for (long i = 0; i < rounds; i++) \
			sum = sum * 6364136223846793005u + (uint64_t)i; \
		return sum; \
	}

BURNER(burn_burst, 1)
BURNER(burn_seventy, 2)
BURNER(burn_thirty, 3)

static uint64_t cpu_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);

	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int main(int argc, char **argv)
{
	uint64_t burst = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, ratio = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	uint64_t sum = 0, began = cpu_ms();

	while (cpu_ms() - began < burst)
		sum += burn_burst(100000);
	began = cpu_ms();
	while (cpu_ms() - began < ratio)
		sum += burn_seventy(700000) + burn_thirty(300000);
	printf("done %d\n", (int)(sum & 1));
	fflush(stdout);
	for (;;)
		pause();
}
