/*
 * workload_demo.c: a program worth watching: short and long bursts of CPU and a balloon of memory
 * that is gone within 50 ms, with silence between them. Says what it does and when, so that what a
 * recorder saw can be held against what was done.
 *
 *   idle, 300 ms of CPU, idle, 3 s of CPU in a thread called hot-loop, idle, ~300 MiB for less than
 *   50 ms, idle, end
 *
 * The balloon is 300 MiB where the machine is fast enough; touching memory costs 0.05-0.5 ms per
 * MiB, and one that took 80 ms would not be what it claims to be. So it stops growing when its time
 * is up and says how large it was.
 *
 * Usage: workload_demo [--scale FACTOR]   FACTOR stretches the idle and CPU phases, not the
 * balloon; default 1
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024.0 * 1024.0)
#define BALLOON_BYTES ((size_t)300 << 20)
#define PIECE_BYTES ((size_t)2 << 20)
#define BALLOON_MS_MAX 50.0
#define BALLOON_MS_AIM 36.0 /* taking; leaves room for giving back, and for a preemption or two */

static double now_s(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* One line: UTC time to the millisecond, seconds since the first line, what happens. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	static double start;
	struct timespec wall;
	struct tm utc;
	char text[32];
	va_list args;

	if (start == 0)
		start = now_s(CLOCK_MONOTONIC);
	clock_gettime(CLOCK_REALTIME, &wall);
	gmtime_r(&wall.tv_sec, &utc);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
	printf("%s.%03ldZ %+8.3f s  ", text, wall.tv_nsec / 1000000, now_s(CLOCK_MONOTONIC) - start);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
}

static void idle(double seconds)
{
	struct timespec left = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };

	say("idle for %.2f s", seconds);
	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		continue;
}

/* Burns CPU until so much time has passed; the result keeps the compiler from dropping the loop. */
static uint64_t burn(double seconds)
{
	double end = now_s(CLOCK_MONOTONIC) + seconds;
	volatile uint64_t state = 88172645463325252ULL;

	while (now_s(CLOCK_MONOTONIC) < end) {
		for (int i = 0; i < 20000; i++) {
			uint64_t next = state;

			next ^= next << 13;
			next ^= next >> 7;
			state = next ^ (next << 17);
		}
	}
	return state;
}

static void burst(const char *who, double seconds)
{
	double cpu = now_s(CLOCK_THREAD_CPUTIME_ID), wall = now_s(CLOCK_MONOTONIC);

	say("CPU burst of %.2f s begins (%s)", seconds, who);
	burn(seconds);
	say("CPU burst ends: %.3f s of CPU time in %.3f s", now_s(CLOCK_THREAD_CPUTIME_ID) - cpu,
	    now_s(CLOCK_MONOTONIC) - wall);
}

static void *hot_loop(void *seconds)
{
	pthread_setname_np(pthread_self(), "hot-loop");
	burst("thread hot-loop", *(double *)seconds);
	return NULL;
}

static int burst_in_thread(double seconds)
{
	pthread_t thread;
	int rc = pthread_create(&thread, NULL, hot_loop, &seconds);

	if (rc != 0)
		return -rc;
	return -pthread_join(thread, NULL);
}

/*
 * Takes memory piece by piece, every page of it touched, until it is BALLOON_MIB or the time is up,
 * and gives it all back. *ret_ms: from start to end. The MiB that were taken, negative: failed.
 */
static double balloon(double *ret_ms)
{
	double start = now_s(CLOCK_MONOTONIC);
	size_t taken = 0;
	char *memory = mmap(NULL, BALLOON_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return -1;
	/* Huge pages where they are allowed: six times faster to take, and to give back. */
	madvise(memory, BALLOON_BYTES, MADV_HUGEPAGE);
	while (taken < BALLOON_BYTES && (now_s(CLOCK_MONOTONIC) - start) * 1e3 < BALLOON_MS_AIM) {
		for (size_t i = 0; i < PIECE_BYTES; i += 4096)
			memory[taken + i] = 1;
		taken += PIECE_BYTES;
	}
	munmap(memory, BALLOON_BYTES);
	*ret_ms = (now_s(CLOCK_MONOTONIC) - start) * 1e3;
	return (double)taken / MIB;
}

/*
 * In a virtual machine the first touch of a page is many times slower than the next, because the
 * host has to find memory too. A child takes and frees the memory once, just before, so that the
 * real balloon finds it warm. It goes by another name, so that a rule on this program
 * takes it for a part of it.
 */
static void rehearse(void)
{
	pid_t child;

	say("rehearsal of the memory burst in a child");
	child = fork();
	if (child == 0) {
		void *memory = mmap(NULL, BALLOON_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		prctl(PR_SET_NAME, "rehearsal");
		if (memory != MAP_FAILED)
			memset(memory, 1, BALLOON_BYTES);
		_exit(0);
	}
	if (child > 0)
		waitpid(child, NULL, 0);
}

static int memory_phase(void)
{
	double ms = 0, mib;

	rehearse();
	say("memory burst begins");
	mib = balloon(&ms);
	if (mib < 0) {
		say("memory burst failed: %s", strerror(errno));
		return -1;
	}
	say("memory burst ends: %.0f MiB taken and released in %.1f ms%s", mib, ms,
	    ms > BALLOON_MS_MAX ? " (longer than intended: the machine is busy)" : "");
	return 0;
}

static int scale_of(int argc, char **argv, double *ret)
{
	char *end;

	*ret = 1;
	if (argc == 1)
		return 0;
	if (argc != 3 || strcmp(argv[1], "--scale") != 0)
		return -EINVAL;
	*ret = strtod(argv[2], &end);
	return *end == '\0' && end != argv[2] && *ret > 0 && *ret <= 1000 ? 0 : -EINVAL;
}

int main(int argc, char **argv)
{
	double scale;

	if (scale_of(argc, argv, &scale) < 0) {
		fprintf(stderr, "usage: %s [--scale FACTOR]   (0 < FACTOR <= 1000)\n", argv[0]);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);

	say("pid %d, scale %g", (int)getpid(), scale);
	idle(3 * scale);
	burst("main thread", 0.3 * scale);
	idle(4 * scale);
	if (burst_in_thread(3 * scale) < 0)
		return 1;
	idle(2 * scale);
	if (memory_phase() < 0)
		return 1;
	idle(2 * scale);
	say("done");
	return 0;
}
