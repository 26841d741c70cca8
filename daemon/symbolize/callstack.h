/*
 * callstack.h: from a sample's addresses to frames of a profile.
 *
 *	address ─▶ mapping of its process at that moment ─▶ file (modules.h) ─▶ functions ─▶ frame of the profile
 *	             └── no file, or none that is readable ─▶ perf map of the process ──────────┘
 */
#ifndef SPIKEWATCH_CALLSTACK_H
#define SPIKEWATCH_CALLSTACK_H

#include "addressspace.h"
#include "modules.h"
#include "pairmap.h"
#include "stackprofile.h"
#include "symbolize.h"

/* The outermost frame of a stack that is deeper than what was copied of it. */
#define CALLSTACK_CUT "[stack cut]"

/* All must outlive what is made of them. */
struct callstack_sources {
	const struct addressspaces *spaces;
	struct modules *modules;
	struct symbolize_counts *counts;
};

/* One for each profile. */
struct callstack {
	struct callstack_sources sources;
	struct stackprofile *profile;
	struct pairmap frames; /* see callstack.c -> frame << 2 | its file was replaced << 1 | has a name */
};

/* Empty; the profile too must outlive it. */
void callstack_init(struct callstack *stack, const struct callstack_sources *sources, struct stackprofile *profile);

/* Frees its memory. {0} is fine. */
void callstack_release(struct callstack *stack);

/*
 * The frames of a sample, of a stream of this format, innermost first, at most STACKPROFILE_FRAMES_MAX: the kernel's part, and of the process
 * what unwind.h finds. Counts them. 0 or -ENOMEM.
 */
int callstack_frames(struct callstack *stack, const struct perfrecord_format *format, const struct perfrecord *record,
		     uint32_t *ret, size_t *ret_count);

#endif
