/* roster_query.h: what others ask about a target by its id. */
#ifndef SPIKEWATCH_ROSTER_QUERY_H
#define SPIKEWATCH_ROSTER_QUERY_H

#include "roster.h"

/* At most cap pids of a target: its own, or its members'; 0 for a cgroup. How many. */
size_t roster_query_pids(struct roster *roster, uint32_t id, int32_t *pids, size_t cap);

/* False: there is no such target. */
bool roster_query_limits(struct roster *roster, uint32_t id, struct cglimits *ret);

#endif
