/*
 * hotlist.h: which functions used the CPU, before the spike and during it, as a table: functions.tsv. Pure.
 *
 * "self" counts samples that were taken in the function, "total" those in which it was anywhere on the stack, once for
 * each stack however often it called itself.
 */
#ifndef SPIKEWATCH_HOTLIST_H
#define SPIKEWATCH_HOTLIST_H

#include "sink.h"

#include <stddef.h>
#include <stdint.h>

/* The header line of the table, without the newline. */
#define HOTLIST_HEADER \
	"function\tmodule\tself_before\ttotal_before\tself_during\ttotal_during\tself_during_ms\t" \
	"top_thread\ttop_tid\ttop_samples"

/* The line below the header: a remark with the samples of all functions, "# samples before, during: 31, 66". */
#define HOTLIST_SAMPLES "# samples before, during:"

/* More functions are not written. */
#define HOTLIST_ROWS_MAX 2000

enum hotlist_phase { HOTLIST_BEFORE, HOTLIST_DURING, HOTLIST_PHASES };

struct hotlist;

/* One stack of one thread, with how often it was seen. */
struct hotlist_stack {
	const uint32_t *functions; /* leaf first */
	size_t count;
	uint32_t thread;
	uint64_t samples[HOTLIST_PHASES];
	uint64_t weight_ns[HOTLIST_PHASES];
};

/* 0 or -ENOMEM. */
int hotlist_new(struct hotlist **ret);

/* NULL is fine. */
void hotlist_free(struct hotlist *list);

/* The number of a function, or of a thread, from 1 on; the same for the same. 0 or -ENOMEM. */
int hotlist_function(struct hotlist *list, const char *name, const char *module, uint32_t *ret);
int hotlist_thread(struct hotlist *list, int32_t tid, const char *name, uint32_t *ret);

/*
 * Counts a stack. All stacks of a thread must come one after the other, or top_thread may not be the top one. 0;
 * -EINVAL: a number that was not given; -ENOMEM. Nothing has changed then.
 */
int hotlist_add(struct hotlist *list, const struct hotlist_stack *stack);

/*
 * Writes the header and a line for each function, sorted by self plus total during the spike, then before it, then by
 * name. Names are escaped (text_escape). top_thread, top_tid and top_samples: the thread in which the function was seen
 * most, during the spike, or before it if it was not seen during it. Beyond HOTLIST_ROWS_MAX a remark says how many are
 * left out; another one how many samples there are. 0; -ENOMEM; what sink returns.
 */
int hotlist_write(const struct hotlist *list, const struct sink *sink);

#endif
