/* roster_list.h: the entries of one configuration, as the roster knows them; made beside the list that is in force. */
#ifndef SPIKEWATCH_ROSTER_LIST_H
#define SPIKEWATCH_ROSTER_LIST_H

#include "roster.h"
#include "roster_entry.h"

/* By index in config->targets. */
struct roster_list {
	struct roster_entry **entries;
	size_t count;
};

/* The last that were given away; they are never used again. */
struct roster_numbers {
	uint32_t target, entry;
};

/*
 * The entries of config: those that are equal to one of before (the list of options->config) are the same objects, others are new, with
 * their groups, and planned. 0; -ENOMEM: only numbers has changed.
 */
int roster_list_make(const struct roster_options *options, const struct roster_list *before,
		     const struct config *config, struct roster_numbers *numbers, struct roster_list *ret);

/* Lets go of the entries; groups of planned ones are freed. {0} is fine. */
void roster_list_release(struct roster_list *list);

#endif
