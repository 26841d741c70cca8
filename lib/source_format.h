/*
 * source_format.h: what an entry of a source is made of. Its first two cache lines, which are neighbours, are all that a look at an idle process
 * touches; what is read is kept behind them.
 *
 * Only for the source's own modules: callers use source.h.
 */
#ifndef SPIKEWATCH_SOURCE_FORMAT_H
#define SPIKEWATCH_SOURCE_FORMAT_H

#include "clock.h"
#include "gate.h"
#include "idlepace.h"
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
	/* Of looks. */
	_Alignas(SOURCE_CACHE_LINE) mono_t changed; /* when a look last saw that it had changed */
	mono_t before;  /* of a process: when the look before the last one was, if a fill came between them; else 0 */
	mono_t shown;   /* `at` when it was last in source_seen */
	uint32_t fill;  /* the number of the fill in which it was last looked at */
	uint32_t index; /* in source->entries */
	struct group *member_of;  /* of a member */
	_Atomic uint64_t idle_ns; /* the longest pause of this one */

	/* The second cache line ends within the gate. */
	_Alignas(SOURCE_CACHE_LINE) uint8_t kind; /* enum entry_kind */
	uint8_t status;                           /* enum source_status */
	bool fresh;                               /* nobody was told of it yet */
	bool whole;                               /* of a member: counts from its beginning */
	bool blind;              /* the last look could not read it: `at` and all that is known are older */
	_Atomic bool limits_set; /* new limits to take over */
	mono_t at;
	struct gate gate; /* of a process */

	struct sample sample;
	struct sum_part part;        /* of a member: what is in the sum */
	struct group *group;         /* of a group */
	struct cgroup_files *cgroup; /* of a cgroup */
	uint64_t cgroup_due_ns;
	uint32_t listed_index; /* in source->listed */
	_Atomic uint64_t cpu_limit;
	_Atomic uint64_t memory_limit;
	void *user;
};

_Static_assert(offsetof(struct source_entry, gate.asked) < 2 * SOURCE_CACHE_LINE,
	       "an idle process needs two cache lines");

/* SOURCE_LISTS arrays of `capacity`, and behind them one of as many uint32_t. */
#define SOURCE_LISTS 5
struct source_room {
	uint32_t capacity;
	struct source_entry *slots[];
};

struct source {
	struct gate_options gate;
	struct idlepace pace;
	uint64_t idle_grid_ns;
	uint64_t cgroup_interval_ns;
	struct clock clock;
	mono_t looked_at; /* when idle processes are being looked at */
	uint32_t looks;   /* since that was asked */
	uint64_t skipped_reads, saved_looks, failed_reads;
	struct source_room *room;
	struct source_entry **entries; /* in the room: everything inside */
	struct source_entry **listed;  /* all but members */
	struct source_entry **gone;    /* members, as of the last fill */
	struct source_entry **seen;    /* as of the last fill; during it, what is due */
	struct source_entry **groups;
	uint32_t *due;     /* of each of entries */
	uint32_t capacity; /* the room's; less after source_retune if more were inside */
	uint32_t count;
	uint32_t listed_count;
	uint32_t gone_count;
	uint32_t seen_count;
	uint32_t group_count;
	uint32_t process_count;
	uint32_t fills;
	uint32_t step; /* of the last fill */
	mono_t origin; /* step 0 */
	mono_t filled; /* the last fill */
	bool roused;   /* the next or present fill is for all */
};

/* Of all entries, in the next fill. */
static inline void source_all_due(struct source *source)
{
	for (uint32_t i = 0; i < source->count; i++)
		source->due[i] = source->step;
}

#endif
