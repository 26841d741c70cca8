/*
 * stack_text.h: stacks as text: writing folded stacks, comparing two texts of them, and writing and
 * reading the table of functions. Pure.
 */
#ifndef SPIKEWATCH_LIB_PROFILE_STACK_TEXT_H
#define SPIKEWATCH_LIB_PROFILE_STACK_TEXT_H

#include "lib/base/base.h"
#include "lib/base/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Folded stacks: lines "process;root;...;leaf count", which flamegraph.pl, speedscope and inferno
 * read: the same stack is one line, lines are sorted by their bytes. A frame may have any name: it
 * is made printable (text_escape), and the semicolon becomes \x3b. Empty names become "?".
 */

struct folded;

/* bytes_max: of memory for the lines, and so of what is written; 0: no limit. 0 or -ENOMEM. */
int folded_new(size_t bytes_max, struct folded **ret);

/* NULL is fine. */
void folded_free(struct folded *folded);
CLEANUP(folded, free);

/* Adds a frame to the stack, the root first. 0 or -ENOMEM, which is sticky. */
int folded_push(struct folded *folded, const char *name);

/*
 * Counts the stack and begins another one. Without frames it is ignored. 0 or -ENOMEM, which is
 * sticky.
 */
int folded_count(struct folded *folded, uint64_t count);

/* Adds to the line "(other);(other)", as folded_count does beyond the limit. */
void folded_other(struct folded *folded, uint64_t count);

/* Writes all stacks counted; first the others, if there are any. 0; -ENOMEM; what sink returns. */
int folded_write(const struct folded *folded, const struct sink *sink);

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
 * memory.
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

/* The module of a row that is a process outside of the incident; its functions are not shown. */
#define FUNCTION_TABLE_NEIGHBOUR "(another process)"

/*
 * More functions, and more threads, are not written. The bytes are those of each of the two:
 * readers look at the first MiB of a file, and long names must not push the threads, which come
 * last, out of it.
 */
#define FUNCTION_TABLE_ROWS_MAX 2000
#define FUNCTION_TABLE_THREADS_MAX 200
#define FUNCTION_TABLE_PART_BYTES_MAX ((size_t)400 << 10)

enum function_table_phase { FUNCTION_TABLE_BEFORE, FUNCTION_TABLE_DURING, FUNCTION_TABLE_PHASES };

/* What the numbers of a table are. */
enum function_table_unit { FUNCTION_TABLE_IN_SAMPLES, FUNCTION_TABLE_IN_BYTES };

struct function_table;

struct function_table_thread {
	int32_t pid, tid;
	const char *process, *name;
};

/* One stack of one thread, with how often it was seen. */
struct function_table_stack {
	const uint32_t *functions; /* leaf first */
	size_t count;
	uint32_t thread;
	uint64_t samples[FUNCTION_TABLE_PHASES]; /* or page faults */
	uint64_t weight[FUNCTION_TABLE_PHASES];  /* ns of CPU time, or bytes of memory */
};

/* 0 or -ENOMEM. */
int function_table_new(enum function_table_unit unit, struct function_table **ret);

/* NULL is fine. */
void function_table_free(struct function_table *table);
CLEANUP(function_table, free);

/* The number of a function, or of a thread, from 1 on; the same for the same. 0 or -ENOMEM. */
int function_table_function(struct function_table *table, const char *name, const char *module, uint32_t *ret);
int function_table_thread(struct function_table *table, const struct function_table_thread *thread, uint32_t *ret);

/*
 * Counts a stack. All stacks of a thread must come one after the other, or top_thread may not be
 * the top one. 0; -EINVAL: a number that was not given; -ENOMEM. Nothing has changed then.
 */
int function_table_add(struct function_table *table, const struct function_table_stack *stack);

/*
 * Writes the header, the remark with the sums, a line for each function, sorted by self plus total
 * during the spike, then before it, then by name; and a line for each thread that was seen, sorted
 * alike, whose function and module are empty and whose total is its self. Names are escaped
 * (text_escape). self_during_ms: CPU time, self_during_faults: pages that were touched for the
 * first time. top_thread, top_tid, top_process, top_pid and top_samples or top_bytes: the thread in
 * which the function was seen most, during the spike, or before it if it was not seen during it; of
 * a thread itself. At each limit a remark says how many are left out. 0; -ENOMEM; what sink
 * returns.
 */
int function_table_write(const struct function_table *table, const struct sink *sink);

/* Bytes of the text, not terminated; as text_escape wrote them, but not trusted. */
struct function_rows_name {
	const char *text;
	size_t len;
};

/* A column that is not there is empty, or 0. Numbers are in the unit of the table. */
struct function_rows_row {
	struct function_rows_name function; /* empty: the row is of a thread */
	struct function_rows_name module, thread, process;
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
	const char *at, *end;
	unsigned char columns[16]; /* which known one each of them is, from 1; 0: none */
	size_t column_count;
	enum function_table_unit unit;
	uint64_t sum[FUNCTION_TABLE_PHASES];   /* of all functions; 0, 0 if it does not say so */
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
