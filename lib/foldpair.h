/*
 * foldpair.h: two texts of folded stacks ("process;root;...;leaf count") as one with two counts a line, as difffolded.pl makes them and
 * flamegraph.pl draws them: that of the first, then that of the second. Pure.
 */
#ifndef SPIKEWATCH_FOLDPAIR_H
#define SPIKEWATCH_FOLDPAIR_H

#include "sink.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether each line that is not empty ends with a count: else it is no such text. Sets *ret_sum to the sum of the counts. */
bool foldpair_check(const struct buffer *text, uint64_t *ret_sum);

/*
 * Both have passed the check. A stack that is on one side only has 0 on the other. scale: the counts of the first are multiplied so that both
 * have the same sum (difffolded.pl -n). Sorted; made safe to print. 0; -ENOMEM; what the sink returned.
 */
int foldpair_write(const struct buffer *first, const struct buffer *second, bool scale, const struct sink *sink);

#endif
