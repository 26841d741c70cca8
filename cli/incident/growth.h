/*
 * growth.h: two looks at the memory of the same processes (smaps.tsv and smaps.again.tsv) as one table of what has changed between them.
 */
#ifndef SPIKEWATCH_GROWTH_H
#define SPIKEWATCH_GROWTH_H

#include "sink.h"

#include <stddef.h>

/*
 * Appends to ret a table with the columns rss_growth_bytes, swap_growth_bytes, rss_bytes (in the second look), permissions, mapping, pid,
 * remark ("new", "gone"), what changed most first; what has not changed is left out. Nothing in the texts is trusted: lines that are no
 * rows are passed over. 0; -ENOMEM. *ret_rows: how many there are.
 */
int growth_table(const struct buffer *first, const struct buffer *second, struct buffer *ret, size_t *ret_rows);

#endif
