/* foxmeta.h: the head of a profile of the Firefox Profiler: what it is of, in which version of the format, and how to show it. */
#ifndef SPIKEWATCH_FOXMETA_H
#define SPIKEWATCH_FOXMETA_H

#include "incident.h"
#include "json.h"

#include <stdbool.h>

/*
 * Of the processed profile format: src/types/profile.ts and docs-developer/CHANGELOG-formats.md of github.com/firefox-devtools/profiler. A
 * viewer takes this version and older ones.
 */
#define FOXMETA_VERSION 70

/* The name of the markers that are described here, the "type" of their data; their fields are what, rule, value and unit. */
#define FOXMETA_MARKER "spikewatch"

struct foxmeta {
	const struct incident *incident;
	bool has_stacks;
	int64_t zero_ns, end_ns; /* since the firing */
	uint64_t interval_ns;
};

/* The member "meta". Its categories are those of enum foxstacks_category. Errors stay in the writer. */
void foxmeta_put(const struct foxmeta *meta, struct json_writer *json);

#endif
