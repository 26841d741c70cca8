/*
 * folded.h: stacks as lines "process;root;...;leaf count", which flamegraph.pl, speedscope and inferno read: the same
 * stack is one line, lines are sorted by their bytes. Pure.
 *
 * A frame may be called anything: it is made printable (text_escape), and the semicolon becomes \x3b. Empty names
 * become "?".
 */
#ifndef SPIKEWATCH_FOLDED_H
#define SPIKEWATCH_FOLDED_H

#include "sink.h"

#include <stddef.h>
#include <stdint.h>

struct folded;

/* bytes_max: of memory for the lines, and so of what is written; 0: no limit. 0 or -ENOMEM. */
int folded_new(size_t bytes_max, struct folded **ret);

/* NULL is fine. */
void folded_free(struct folded *folded);

/* Adds a frame to the stack, the root first. 0 or -ENOMEM, which stays. */
int folded_push(struct folded *folded, const char *name);

/* Counts the stack and begins another one. A stack without frames counts for nobody. 0 or -ENOMEM, which stays. */
int folded_count(struct folded *folded, uint64_t count);

/* Counts for the line of stacks for which there was no room, "(other);(other)", as folded_count does beyond the limit. */
void folded_other(struct folded *folded, uint64_t count);

/* Writes all stacks counted; first the others, if there are any. 0; -ENOMEM; what sink returns. */
int folded_write(const struct folded *folded, const struct sink *sink);

#endif
