/*
 * stack_text.h: the texts that stack_profile_write_folded and stack_profile_write_functions write,
 * read again: comparing two texts of folded stacks, and the table of functions. Pure.
 */
#ifndef SPIKEWATCH_LIB_PROFILE_STACK_TEXT_H
#define SPIKEWATCH_LIB_PROFILE_STACK_TEXT_H

#include "lib/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Two texts of folded stacks as one with two counts a line, as difffolded.pl writes and
 * flamegraph.pl draws them: that of the first, then that of the second.
 */

/*
 * Whether each line that is not empty ends with a count: else it is no such text. Sets *ret_sum to
 * the sum of the counts.
 */
bool folded_diff_check(const struct buffer *text, uint64_t *ret_sum);

/*
 * Both have passed the check. A stack that is on one side only has 0 on the other. scale: the
 * counts of the first are multiplied so that both have the same sum (difffolded.pl -n). Sorted;
 * made safe to print. 0; -ENOMEM; what the sink returned.
 */
int folded_diff_write(const struct buffer *first, const struct buffer *second, bool scale, const struct sink *sink);

/*
 * The table of functions, functions.tsv and memory-functions.tsv: which functions, and which
 * threads, used the CPU or touched new memory, before the spike and during it.
 *
 * "self" counts what was sampled in the function, "total" that with it anywhere on the stack, once
 * for each stack also in recursions. Both are in the unit of the table: samples, or bytes of
 * memory. self_during_ms: CPU time; self_during_faults: pages that were touched for the first time.
 * top_thread, top_tid, top_process, top_pid, and top_samples or top_bytes: the thread in which the
 * function was seen most, during the spike, or before it if it was not seen during it.
 *
 * After the functions come the threads: lines without function, whose total is their self, and
 * without module, unless they are another process's. Both parts are sorted by self during the spike
 * (of memory by self plus total), then before it, then by name, and end with a remark if rows are
 * left out. Names are escaped (text_escape).
 */

/* The header lines of the tables, without the newline. */
#define FUNCTION_TABLE_HEADER_OF(beside, top) \
	"function\tmodule\tself_before\ttotal_before\tself_during\ttotal_during\t" beside \
	"\ttop_thread\ttop_tid\t" top "\ttop_process\ttop_pid"
#define FUNCTION_TABLE_HEADER FUNCTION_TABLE_HEADER_OF("self_during_ms", "top_samples")
#define FUNCTION_TABLE_HEADER_BYTES FUNCTION_TABLE_HEADER_OF("self_during_faults", "top_bytes")

/*
 * The line below the header: a remark with the unit and the sum of all stacks, "# samples before,
 * during: 31, 66".
 */
#define FUNCTION_TABLE_SAMPLES "# samples before, during:"
#define FUNCTION_TABLE_BYTES "# bytes before, during:"

/* The next line, if there are other processes: the same without them. */
#define FUNCTION_TABLE_OWN_SAMPLES "# own samples before, during:"
#define FUNCTION_TABLE_OWN_BYTES "# own bytes before, during:"

/* What the remarks about rows that are left out end with, "# 3 more functions". */
#define FUNCTION_TABLE_MORE_FUNCTIONS " more functions"
#define FUNCTION_TABLE_MORE_THREADS " more threads"

/* The module of a row that is a process outside of the incident; its functions are not shown. */
#define FUNCTION_TABLE_NEIGHBOUR "(another process)"

enum function_table_phase { FUNCTION_TABLE_BEFORE, FUNCTION_TABLE_DURING, FUNCTION_TABLE_PHASES };

/* What the numbers of a table are. */
enum function_table_unit { FUNCTION_TABLE_IN_SAMPLES, FUNCTION_TABLE_IN_BYTES };

/*
 * A column that is not there is empty, or 0. Numbers are in the unit of the table. Names are parts
 * of the text, as text_escape wrote them, but not trusted.
 */
struct function_rows_row {
	struct text_part function; /* empty: the row is of a thread */
	struct text_part module, thread, process;
	uint64_t self[FUNCTION_TABLE_PHASES], total[FUNCTION_TABLE_PHASES];
	uint64_t self_ns;     /* during; of samples */
	uint64_t self_faults; /* during; of bytes */
	int64_t tid, pid;     /* of the top thread */
	uint64_t top_amount;  /* of it */
};

/*
 * Reads the table. Columns are found by their names in the header, so more of them, or another
 * order, are no error. The text must outlive it and is not trusted.
 */
struct function_rows {
	struct text_part rest;
	unsigned char columns[16]; /* which known one each of them is, from 1; 0: none */
	size_t column_count;
	enum function_table_unit unit;
	uint64_t sum[FUNCTION_TABLE_PHASES];   /* of all functions; 0, 0 if it does not say so */
	uint64_t own[FUNCTION_TABLE_PHASES];   /* of them those of the incident, */
	bool has_own;                          /* if it says so */
	uint64_t more_functions, more_threads; /* left out, as far as remarks before this row say so */
};

/* Reads the header and the remark below it. False: this is no such table. */
bool function_rows_start(struct function_rows *rows, const char *text, size_t len);

/*
 * The next row, of a function or of a thread; remarks, and rows that name neither or have invalid
 * numbers, are skipped. False: the end.
 */
bool function_rows_next(struct function_rows *rows, struct function_rows_row *ret);

#endif
