/*
 * intern.h: a bounded set of byte strings, each kept once and known by a number: 1, 2, 3 ... in the order in which they
 * came.
 *
 * Several sets may share a budget of memory. A set that has refused something because the budget was used up refuses
 * everything new from then on, so that what is in it does not depend on who happens to be short.
 */
#ifndef SPIKEWATCH_INTERN_H
#define SPIKEWATCH_INTERN_H

#include "arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* {0}: no limit. */
struct intern_budget {
	size_t used_bytes; /* asked for so far, tables included */
	size_t max_bytes;  /* 0: no limit */
	bool spent;        /* something was refused */
};

struct intern_entry;

/* {0} is empty and legal. Only count is to be read. */
struct intern {
	struct arena arena;
	struct intern_entry *entries; /* by number, less 1 */
	uint32_t count, cap;
	uint32_t *buckets;
	size_t bucket_count; /* a power of two, or 0 */
};

/* Positive returns. */
enum {
	INTERN_FULL = 1, /* it is not there, and there is no budget for it */
};

/*
 * Sets *ret to the number of the len bytes at data, which are copied if they are new: then count has grown. 0;
 * INTERN_FULL; -ENOMEM: nothing has changed. At most UINT32_MAX / 2 strings.
 */
int intern_put(struct intern *set, struct intern_budget *budget, const void *data, size_t len, uint32_t *ret);

/* The bytes of a number that intern_put gave, aligned for any type, with a NUL behind them; valid until the release. */
const void *intern_get(const struct intern *set, uint32_t number, size_t *ret_len);

/* The same of a string. */
const char *intern_text(const struct intern *set, uint32_t number);

/* Frees everything; the set is empty and usable again. The budget is not given back. */
void intern_release(struct intern *set);

#endif
