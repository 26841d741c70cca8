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

/* 0 or -ENOMEM. */
int folded_new(struct folded **ret);

/* NULL is fine. */
void folded_free(struct folded *folded);

/* Adds a frame to the stack, the root first. 0 or -ENOMEM, which stays. */
int folded_push(struct folded *folded, const char *name);

/* Counts the stack and begins another one. A stack without frames counts for nobody. 0 or -ENOMEM, which stays. */
int folded_count(struct folded *folded, uint64_t count);

/* Writes all stacks counted. 0; -ENOMEM; what sink returns. */
int folded_write(const struct folded *folded, const struct sink *sink);

#endif
