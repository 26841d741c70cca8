/*
 * incidentfilter.h: which incidents a list is about: those of a time, a target, a rule; the newest of them.
 */
#ifndef SPIKEWATCH_INCIDENTFILTER_H
#define SPIKEWATCH_INCIDENTFILTER_H

#include "incidentload.h"

#include <stdbool.h>

/* {0} lets all pass. */
struct incidentfilter {
	wall_t since, until; /* [since, until); 0: no such bound. Of the firing, to the millisecond */
	const char *target;  /* wildcards (fnmatch(3)); of its name, or of its entry in the configuration */
	const char *rule;    /* wildcards; of the rule, or "manual", "recovered" */
	size_t limit;        /* the newest so many; 0: no limit */
};

/* Does what is known by the name alone pass? If not, there is no need to read the incident. */
bool incidentfilter_name(const struct incidentfilter *filter, const char *name);

/* Does the rest pass? An incident that cannot be read passes where nothing of its content is asked for. */
bool incidentfilter_content(const struct incidentfilter *filter, const struct incident *incident);

/*
 * Moves the names that pass to the front of names, in their order, and drops the others. Incidents are read only if target or rule is asked
 * for, the newest first and no more than it takes for limit. Those that are gone meanwhile do not pass.
 */
void incidentfilter_apply(const struct incidentfilter *filter, int dirfd, struct incidentload_names *names);

#endif
