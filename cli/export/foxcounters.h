/*
 * foxcounters.h: the samples of an incident as counters of a profile of the Firefox Profiler: CPU and memory of each target.
 */
#ifndef SPIKEWATCH_FOXCOUNTERS_H
#define SPIKEWATCH_FOXCOUNTERS_H

#include "incident.h"
#include "json.h"
#include "samplewalk.h"

/* Rows beyond are left out, and cut says so. */
#define FOXCOUNTERS_ROWS_MAX ((size_t)4 << 20)

/* {0} is empty and legal. */
struct foxcounters {
	struct samplewalk walk; /* the targets */
	struct foxcounters_point *points;
	size_t count, cap;
	int64_t from_ns, to_ns; /* of the rows, since the firing; 0, 0 without any */
	bool cut;
};

/* Reads samples.tsv. 0; -ENOENT: there is none; -ENOMEM; -errno. *ret is to be released; on failure it is {0}. */
int foxcounters_load(int incidentfd, const struct incident *incident, struct foxcounters *ret);
void foxcounters_release(struct foxcounters *counters);

/* The pid of a target, as the profile has it: a text. Those that are no processes have one of their own. */
void foxcounters_pid(const struct foxcounters *counters, size_t target, char ret[static 32]);

/* The member "counters". The main thread of target i is thread i; times count from zero_ns, since the firing, on. */
void foxcounters_put(const struct foxcounters *counters, const struct incident *incident, int64_t zero_ns,
		     struct json_writer *json);

#endif
