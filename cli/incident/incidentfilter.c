/*
 * incidentfilter.c: names are sorted by time, so the newest are the last; those that pass are gathered at the end of the list, from the
 * back, and moved to the front once they are all there.
 */
#include "incidentfilter.h"

#include "incident_json.h"
#include "scope.h"

#include <fnmatch.h>
#include <string.h>

bool incidentfilter_name(const struct incidentfilter *filter, const char *name)
{
	wall_t wall = incident_name_wall(name);
	uint64_t until_ns = filter->until.ns;

	/* The name is cut to milliseconds: what fired within the one that since is in may be younger than since. */
	if (filter->since.ns && wall.ns / NS_PER_MS < filter->since.ns / NS_PER_MS)
		return false;
	return until_ns == 0 || wall.ns < until_ns;
}

static bool matches(const char *pattern, const char *text)
{
	return fnmatch(pattern, text, 0) == 0;
}

bool incidentfilter_content(const struct incidentfilter *filter, const struct incident *incident)
{
	const char *rule = incident->rule.name[0] ? incident->rule.name : incident_kind_name(incident->kind);

	if (filter->target && !matches(filter->target, incident->target.name) &&
	    (incident->target.entry[0] == '\0' || !matches(filter->target, incident->target.entry)))
		return false;
	return !filter->rule || matches(filter->rule, rule);
}

static bool passes(const struct incidentfilter *filter, int dirfd, const char *name)
{
	AUTO_CLOSE int fd = -1;
	struct incident incident;

	if (!incidentfilter_name(filter, name))
		return false;
	if (!filter->target && !filter->rule)
		return true;
	fd = incidentload_open(dirfd, name);
	return fd >= 0 && incident_json_read(fd, &incident) == 0 && incidentfilter_content(filter, &incident);
}

void incidentfilter_apply(const struct incidentfilter *filter, int dirfd, struct incidentload_names *names)
{
	size_t at = names->count, wanted = filter->limit ? filter->limit : names->count;

	for (size_t i = names->count; i > 0 && names->count - at < wanted; i--) {
		if (!passes(filter, dirfd, names->name[i - 1]))
			continue;
		at--;
		if (at != i - 1)
			memcpy(names->name[at], names->name[i - 1], sizeof(names->name[at]));
	}
	if (names->count > at && at > 0)
		memmove(names->name[0], names->name[at], (names->count - at) * sizeof(names->name[0]));
	names->count -= at;
}
