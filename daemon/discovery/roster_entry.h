/*
 * roster_entry.h: a target entry of the configuration as the roster knows it: it outlives the configuration as long as one of its targets has not
 * left, and over a reload it stays the same object as long as the configuration has the same entry.
 */
#ifndef SPIKEWATCH_ROSTER_ENTRY_H
#define SPIKEWATCH_ROSTER_ENTRY_H

#include "cglimits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct roster_target;

struct roster_entry {
	char *name;
	uint32_t number;             /* its own for life: targets are found by it */
	struct roster_target *group; /* the sum that is its target; NULL if its targets are others */
	struct cglimits limits;      /* of a group */
	struct cglimits merged;      /* of a group: what its members share, as far as they were asked */
	uint64_t merged_line;        /* the number of the last that was merged */
	bool dismissed;              /* the configuration has it no more: its targets leave */
	bool planned;                /* of a configuration that is not in force yet */
	size_t holders;
};

/* Copies name. The caller holds it. NULL: no memory. */
struct roster_entry *roster_entry_new(const char *name, uint32_t number);

/* One holder more; returns it. */
struct roster_entry *roster_entry_hold(struct roster_entry *entry);

/* One holder less; the last one frees it (not its group, which holds it). NULL is fine. */
void roster_entry_drop(struct roster_entry *entry);

#endif
