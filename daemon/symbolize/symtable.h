/*
 * symtable.h: which function an address is in: ranges of addresses with names, from an ELF file,
 * /proc/kallsyms or a perf map.
 *
 * No name is better than a wrong one. A symbol with a size covers just that size. An open one,
 * whose size is unknown, reaches to the next symbol of any kind, and never beyond the end that was
 * given with it. An address that no symbol covers has no name: there is no "nearest".
 */
#ifndef SPIKEWATCH_DAEMON_SYMBOLIZE_SYMTABLE_H
#define SPIKEWATCH_DAEMON_SYMBOLIZE_SYMTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symtable_symbol {
	uint64_t start, end; /* [start, end) */
	const char *name;    /* not terminated; stays the caller's and must outlive the table */
	uint32_t len;        /* of the name. 0: no name; it only ends an open symbol before it */
	uint32_t rank;       /* the higher is preferred, see symtable_seal */
	bool open;           /* ends where the next symbol starts, at `end` at the latest */
};

/* Which of several symbols that cover the same address is preferred. */
enum symtable_order {
	SYMTABLE_INNERMOST, /* the one that starts last; of those, by rank; of those, the shorter name, then by bytes */
	SYMTABLE_LATEST,    /* by rank alone: the rank is when it was written, and code has been moved meanwhile */
};

/* {0} is empty and legal. */
struct symtable {
	struct symtable_symbol *symbols;
	uint64_t *reach; /* the highest end of symbols[0 .. i] */
	size_t count, cap;
	enum symtable_order order;
	uint64_t dropped; /* did not fit */
};

/*
 * Adds one; empty ones (end <= start) are left out. 0 or -ENOMEM. Beyond SYMTABLE_MAX it is dropped
 * and counted.
 */
int symtable_add(struct symtable *table, const struct symtable_symbol *symbol);

/*
 * Sorts, and gives open symbols their end. To be called once, after the last symbol. 0 or -ENOMEM.
 * n log n.
 */
int symtable_seal(struct symtable *table, enum symtable_order order);

/* The symbol that address is in; NULL: none is known. Only of a sealed table. log n. */
const struct symtable_symbol *symtable_find(const struct symtable *table, uint64_t address);

/* Frees the memory; the table is empty and usable again. */
void symtable_release(struct symtable *table);

/*
 * Perf maps are what just-in-time compilers write to /tmp/perf-<pid>.map (Linux,
 * tools/perf/Documentation/jit-interface.txt): a line for each function that was compiled, "START
 * SIZE name", numbers in hexadecimal, the name is the rest of the line. The file belongs to the
 * process and is not trusted.
 */

struct perf_map_counts {
	uint64_t lines;  /* that were functions */
	uint64_t broken; /* that were not; they are skipped */
};

/*
 * Reads text into an empty table and seals it: where functions overlap the later line holds,
 * because memory is compiled into again. The last line counts even without its end, unless it was
 * cut within the numbers. Names point into text, which must outlive the table. ret_counts may be
 * NULL. 0 or -ENOMEM.
 */
int perf_map_parse(const char *text, size_t len, struct symtable *table, struct perf_map_counts *ret_counts);

/* No function of the kernel is longer: an open symbol before a hole ends there. */
#define KALLSYMS_FUNCTION_MAX (1u << 20)

/*
 * Reads /proc/kallsyms (proc(5)) into an empty table and seals it: "ffffffff81000000 T _text", or
 * with a module "ffffffffc0401000 t helper\t[nf_tables]", whose name is then "helper\t[nf_tables]".
 * Only text symbols (t, T, w, W, i) have names; the others end a function. A reader without
 * privileges is shown addresses of zero: they are left out, so the table is then empty. Names point
 * into the text. 0 or -ENOMEM.
 */
int kallsyms_parse(const char *text, size_t len, struct symtable *table);

#endif
