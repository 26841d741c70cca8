/*
 * kallsyms.h: reading /proc/kallsyms (proc(5)): "ffffffff81000000 T _text", or with a module "ffffffffc0401000 t helper\t[nf_tables]".
 */
#ifndef SPIKEWATCH_KALLSYMS_H
#define SPIKEWATCH_KALLSYMS_H

#include "symtable.h"

/* No function of the kernel is longer: an open symbol before a hole ends there. */
#define KALLSYMS_FUNCTION_MAX (1u << 20)

/*
 * Reads text into an empty table and seals it. Only text symbols (t, T, w, W, i) have names; of the others only where they are is kept,
 * because a function ends there. A reader without rights is shown addresses of zero: they are left out, so the table is then empty. The
 * names of functions in modules are "helper\t[nf_tables]", as in the text, into which they point. 0 or -ENOMEM.
 */
int kallsyms_parse(const char *text, size_t len, struct symtable *table);

#endif
