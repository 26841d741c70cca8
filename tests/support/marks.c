/*
 * marks.c: Check writes to a file at each assertion that holds, so that it can say after which one a
 * test crashed. Where something is held against tens of thousands of inputs that was three to twenty
 * times the work itself. One mark each millisecond is written, and a crash is reported after that one.
 * An assertion that fails names its own place as before.
 */
#include <check.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#define APART_NS 1000000

/* The linker puts it in place of Check's (Makefile). */
void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);

void __wrap__mark_point(const char *file, int line)
{
	static _Atomic uint64_t marked_ns;
	struct timespec now;
	uint64_t now_ns;

	clock_gettime(CLOCK_MONOTONIC, &now);
	now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	if (now_ns - atomic_load_explicit(&marked_ns, memory_order_relaxed) < APART_NS)
		return;
	atomic_store_explicit(&marked_ns, now_ns, memory_order_relaxed);
	__real__mark_point(file, line);
}
