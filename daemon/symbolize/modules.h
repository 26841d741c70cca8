/*
 * modules.h: the files that addresses are looked up in, each opened when it is first needed: those of a stackfile, the vDSO, perf maps and
 * the kernel's symbols.
 */
#ifndef SPIKEWATCH_MODULES_H
#define SPIKEWATCH_MODULES_H

#include "addressspace.h"
#include "elfframes.h"
#include "elfnames.h"
#include "symbolize.h"

struct modules;

enum module_state {
	MODULE_ABSENT,     /* was not handed over */
	MODULE_GOOD,       /* can be asked */
	MODULE_REPLACED,   /* is another file than was mapped */
	MODULE_UNREADABLE, /* cannot be understood */
};

/* All but counts must outlive it; counts too. Descriptors of the file and the vDSO are taken over. 0 or -ENOMEM. */
int modules_new(const struct stackfile *file, const struct symbolize_options *options, struct symbolize_counts *counts,
		struct modules **ret);

/* NULL is fine. */
void modules_free(struct modules *modules);

/* The file of a mapping, opened and compared if it was not yet; *ret_state says what came of it. NULL unless MODULE_GOOD. */
struct elfnames *modules_elf(struct modules *modules, const struct addressspace_mapping *mapping,
			     enum module_state *ret_state);

/* The unwinding tables of the same file: NULL unless MODULE_GOOD, and where it has none that can be read. */
struct elfframes *modules_frames(struct modules *modules, const struct addressspace_mapping *mapping,
				 enum module_state *ret_state);

/* The function of process pid's just-in-time compiler at address: length of its name, 0: not known. */
size_t modules_compiled(struct modules *modules, uint32_t pid, uint64_t address, const char **ret);

/* The function of the kernel at address: the same. */
size_t modules_kernel(struct modules *modules, uint64_t address, const char **ret);

#endif
