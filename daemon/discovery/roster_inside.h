/* roster_inside.h: what the roster's files share: roster.c, roster_events.c, roster_tiers.c. */
#ifndef SPIKEWATCH_ROSTER_INSIDE_H
#define SPIKEWATCH_ROSTER_INSIDE_H

#include "limitscache.h"
#include "roster.h"
#include "roster_events.h"
#include "roster_list.h"
#include "roster_target.h"
#include "roster_tiers.h"

/* What the sampler gave back and is not freed yet: see roster_fetch. A millisecond's work, and more than a tick brings but in a storm. */
#define ROSTER_BACK_MAX 64u

struct roster_back {
	struct sampler_target *sampled;
	enum sampler_return why;
};

struct roster {
	struct roster_options options;
	struct roster_table table;
	struct roster_list list; /* of the configuration in force */
	struct roster_counts counts;
	uint64_t refused, failed; /* in the running scan */
	bool starved;             /* out of descriptors, in the running scan */
	bool owing;               /* the queue was full for a removal or a group */
	bool crowded;             /* the queue was full for anything, in the running scan */
	bool unopened;            /* targets were opened for less than is read now */
	uint32_t reading;         /* what they are opened for: counts the reloads that read more */
	struct roster_tiers tiers;
	struct roster_numbers numbers;
	struct limitscache *limits;
	struct roster_back back[ROSTER_BACK_MAX];
	size_t back_count;
	size_t ended; /* targets whose end was told and that are not back */
};

/* Asks the sampler for a target back. False: the queue is full. */
bool roster_ask_back(struct roster *roster, struct roster_target *target);

/* It is called something else now: see roster_describe. 0; -ENOMEM: it keeps its names. */
int roster_describe_anew(const struct roster *roster, struct roster_target *target, const struct roster_sighting *seen);

/* The container that a cgroup is, or is in. NULL: in none. Valid until the next is asked for. */
const struct container *roster_container_of(const struct roster *roster, const char *cgroup);

/* The sampler gave it back. */
void roster_take_back(struct roster *roster, struct roster_target *target, enum sampler_return why);

#endif
