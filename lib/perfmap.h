/*
 * perfmap.h: reading what just-in-time compilers write to /tmp/perf-<pid>.map (Linux, tools/perf/Documentation/jit-interface.txt):
 * a line for each function that was compiled, "START SIZE name", numbers in hexadecimal, the name is the rest of the line.
 * The file belongs to the process: nothing in it is believed further than that its functions are called so.
 */
#ifndef SPIKEWATCH_PERFMAP_H
#define SPIKEWATCH_PERFMAP_H

#include "symtable.h"

struct perfmap_counts {
	uint64_t lines;  /* that were functions */
	uint64_t broken; /* that were not; they are skipped */
};

/*
 * Reads text into an empty table and seals it: where functions overlap the later line holds, because memory is compiled into again.
 * The last line counts even without its end, unless it was cut within the numbers. Names point into text, which must outlive the table.
 * ret_counts may be NULL. 0 or -ENOMEM.
 */
int perfmap_parse(const char *text, size_t len, struct symtable *table, struct perfmap_counts *ret_counts);

#endif
