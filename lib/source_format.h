/*
 * source_format.h: what an entry of a source is made of. Its first cache line is all that a look at an idle process touches; what is read is
 * kept behind it.
 *
 * Only for the source's own modules: callers use source.h.
 */
#ifndef SPIKEWATCH_SOURCE_FORMAT_H
#define SPIKEWATCH_SOURCE_FORMAT_H

#include "clock.h"
#include "gate.h"
#include "sample.h"
#include "sum.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOURCE_CACHE_LINE 64

/* Not in a source, or not listed. */
#define SOURCE_NO_INDEX UINT32_MAX

enum entry_kind { ENTRY_PROCESS, ENTRY_CGROUP, ENTRY_GROUP };

/* Members that are gone and not yet removed are in `members` of the group, and no longer in the sum. */
struct group {
	struct sum sum;
	uint32_t members;
	_Atomic bool credited;                 /* there is something to be added */
	_Atomic uint64_t credit[SUM_COUNTERS]; /* by the cold side */
};

struct source_entry {
	/* The first cache line ends within the gate. */
	_Alignas(SOURCE_CACHE_LINE) uint8_t kind; /* enum entry_kind */
	uint8_t status;                           /* enum source_status */
	bool fresh;                               /* nobody was told of it yet */
	bool whole;                               /* of a member: counts from its beginning */
	_Atomic bool limits_set;                  /* new limits to take over */
	mono_t at;
	struct gate gate; /* of a process */

	struct sample sample;
	struct sum_part part;        /* of a member: what is in the sum */
	struct group *member_of;     /* of a member */
	struct group *group;         /* of a group */
	struct cgroup_files *cgroup; /* of a cgroup */
	uint64_t cgroup_due_ns;
	uint32_t index;        /* in source->entries */
	uint32_t listed_index; /* in source->listed */
	_Atomic uint64_t cpu_limit;
	_Atomic uint64_t memory_limit;
	void *user;
};

_Static_assert(offsetof(struct source_entry, gate.asked) < SOURCE_CACHE_LINE, "an idle process needs one cache line");

/* Three arrays of `capacity`. */
struct source_room {
	uint32_t capacity;
	struct source_entry *slots[];
};

#endif
