/*
 * hotlist.h: which functions, and which threads, used the CPU or touched new memory, before the spike and during it, as
 * a table: functions.tsv and memory-functions.tsv. Pure.
 *
 * "self" counts what was sampled in the function, "total" that with it anywhere on the stack, once for each stack
 * however often it called itself. Both are in the unit of the list: samples of the CPU, or bytes of memory.
 */
#ifndef SPIKEWATCH_HOTLIST_H
#define SPIKEWATCH_HOTLIST_H

#include "sink.h"

#include <stddef.h>
#include <stdint.h>

/* The header lines of the tables, without the newline. */
#define HOTLIST_HEADER_OF(beside, top) \
	"function\tmodule\tself_before\ttotal_before\tself_during\ttotal_during\t" beside \
	"\ttop_thread\ttop_tid\t" top "\ttop_process\ttop_pid"
#define HOTLIST_HEADER HOTLIST_HEADER_OF("self_during_ms", "top_samples")
#define HOTLIST_HEADER_BYTES HOTLIST_HEADER_OF("self_during_faults", "top_bytes")

/* The line below the header: a remark with the unit and the sum of all stacks, "# samples before, during: 31, 66". */
#define HOTLIST_SAMPLES "# samples before, during:"
#define HOTLIST_BYTES "# bytes before, during:"

/* The module of what is no function but a process of its name, of which the incident is not: its stacks are not shown. */
#define HOTLIST_NEIGHBOUR "(another process)"

/*
 * More functions, and more threads, are not written. The bytes are those of each of the two: readers look at the first
 * MiB of a file, and long names must not push the threads, which come last, out of it.
 */
#define HOTLIST_ROWS_MAX 2000
#define HOTLIST_THREADS_MAX 200
#define HOTLIST_PART_BYTES_MAX ((size_t)400 << 10)

/* What the remarks about those that are left out end with, "# 3 more functions". */
#define HOTLIST_MORE_FUNCTIONS " more functions"
#define HOTLIST_MORE_THREADS " more threads"

enum hotlist_phase { HOTLIST_BEFORE, HOTLIST_DURING, HOTLIST_PHASES };

/* What the numbers of a table are. */
enum hotlist_unit { HOTLIST_IN_SAMPLES, HOTLIST_IN_BYTES };

struct hotlist;

struct hotlist_thread {
	int32_t pid, tid;
	const char *process, *name;
};

/* One stack of one thread, with how often it was seen. */
struct hotlist_stack {
	const uint32_t *functions; /* leaf first */
	size_t count;
	uint32_t thread;
	uint64_t samples[HOTLIST_PHASES]; /* or page faults */
	uint64_t weight[HOTLIST_PHASES];  /* ns of CPU time, or bytes of memory */
};

/* 0 or -ENOMEM. */
int hotlist_new(enum hotlist_unit unit, struct hotlist **ret);

/* NULL is fine. */
void hotlist_free(struct hotlist *list);

/* The number of a function, or of a thread, from 1 on; the same for the same. 0 or -ENOMEM. */
int hotlist_function(struct hotlist *list, const char *name, const char *module, uint32_t *ret);
int hotlist_thread(struct hotlist *list, const struct hotlist_thread *thread, uint32_t *ret);

/*
 * Counts a stack. All stacks of a thread must come one after the other, or top_thread may not be the top one. 0;
 * -EINVAL: a number that was not given; -ENOMEM. Nothing has changed then.
 */
int hotlist_add(struct hotlist *list, const struct hotlist_stack *stack);

/*
 * Writes the header, the remark with the sums, a line for each function, sorted by self plus total during the spike, then
 * before it, then by name; and a line for each thread that was seen, sorted alike, whose function and module are empty
 * and whose total is its self. Names are escaped (text_escape). self_during_ms: CPU time, self_during_faults: pages that
 * were touched for the first time. top_thread, top_tid, top_process, top_pid and top_samples or top_bytes: the thread in
 * which the function was seen most, during the spike, or before it if it was not seen during it; of a thread itself. At
 * each limit a remark says how many are left out. 0; -ENOMEM; what sink returns.
 */
int hotlist_write(const struct hotlist *list, const struct sink *sink);

#endif
