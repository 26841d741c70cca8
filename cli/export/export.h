/*
 * export.h: what each form of spikewatch export is given to write.
 */
#ifndef SPIKEWATCH_CLI_EXPORT_EXPORT_H
#define SPIKEWATCH_CLI_EXPORT_EXPORT_H

#include "lib/base/io.h"
#include "lib/incident/incident.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct exporting {
	int fd; /* of the incident's directory */
	const struct incident *incident;
	FILE *out;        /* errors stay in it, and are reported by the caller */
	struct sink sink; /* writes to out */
	bool memory;      /* profiles: of memory, not of CPU */
};

/*
 * Positive return of the function of each form: the incident does not have what it is made of;
 * explained on stderr. Else 0; -ENOMEM; -errno.
 */
enum { EXPORTING_NOTHING = 1 };

/*
 * A target that does not run has no row until its heartbeat, so the CPU time used over a pause of
 * since_ns was used shortly before its end: over *ret_ns, which is interval_ns (of the sampler), or
 * as long as one core needs for cpu_ns. False: it may have run all the time.
 */
static inline bool export_ran_ns(int64_t since_ns, uint64_t cpu_ns, uint64_t interval_ns, int64_t *ret_ns)
{
	uint64_t ran_ns = cpu_ns > interval_ns ? cpu_ns : interval_ns;

	if (interval_ns == 0 || since_ns <= 0 || (uint64_t)since_ns <= 2 * ran_ns)
		return false;
	*ret_ns = (int64_t)ran_ns;
	return true;
}

#endif
