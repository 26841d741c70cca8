/*
 * export.h: what each form of spikewatch export is given to write.
 */
#ifndef SPIKEWATCH_CLI_EXPORT_EXPORT_H
#define SPIKEWATCH_CLI_EXPORT_EXPORT_H

#include "cli/incident/series.h"
#include "lib/base/io.h"
#include "lib/base/units.h"
#include "lib/incident/incident.h"
#include "lib/stream/stream.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* What a walk over the samples says of how whole they are. {0}: there was none. */
struct export_loss {
	bool known;
	struct stream_reader_report report;
	uint64_t dropped; /* as in struct sample_walk */
};

struct exporting {
	int fd; /* of the incident's directory */
	const struct incident *incident;
	FILE *out;                /* errors stay in it, and are reported by the caller */
	struct sink sink;         /* writes to out */
	bool memory;              /* profiles: of memory, not of CPU */
	bool machine;             /* profiles: of all processes, not of the target's alone */
	struct export_loss *loss; /* noted by each form of samples; the caller tells of it */
};

/* Of a walk that reached the end of the samples. */
static inline void export_note_loss(const struct exporting *exporting, const struct sample_walk *walk)
{
	*exporting->loss = (struct export_loss){ true, walk->report, walk->dropped };
}

/*
 * Positive return of the function of each form: the incident does not have what it is made of;
 * explained on stderr. Else 0; -ENOMEM; -errno.
 */
enum { EXPORTING_NOTHING = 1 };

/* A row of a target and the one before. */
struct export_step {
	const struct series_holes *holes; /* of all of the incident */
	uint32_t writer;                  /* of the target */
	uint64_t interval_ns;             /* of the sampler */
	int64_t from_ns, to_ns;           /* of the rows */
	uint64_t cpu_ns;                  /* used between them */
};

/*
 * A target that does not run has no row until its heartbeat, so the CPU time used over a pause was
 * used shortly before its end: over *ret_ns, which is the interval, or as long as one core needs for
 * it; after a hole at any time in that. False: it may have run all the time.
 */
bool export_ran_ns(const struct export_step *step, int64_t *ret_ns);

#define EXPORT_HOLE_NAME_MAX 96

/* What a hole of the sampling of an incident is called in a trace, whose last row is at last_ns. Returns buf. */
static inline const char *export_hole_name(const struct incident *incident, int64_t last_ns,
					   const struct series_hole *hole, char buf[EXPORT_HOLE_NAME_MAX])
{
	bool last = hole->to_ns > incident->coverage.got_to_ns && hole->to_ns > last_ns;
	char length[UNITS_TEXT_MAX];

	snprintf(buf, EXPORT_HOLE_NAME_MAX, "no samples%s",
		 last ? ", and none after: CPU is not known" : ": CPU is the average");
	if (hole->suspended_ns > 0)
		snprintf(buf, EXPORT_HOLE_NAME_MAX, "the machine was suspended for %s",
			 units_format_duration(length, sizeof(length), hole->suspended_ns));
	return buf;
}

/*
 * Writes a profile of the Firefox Profiler (profiler.firefox.com), in the processed profile format:
 * samples as counters, stacks as threads. Samples and stacks may each be missing. 0;
 * EXPORTING_NOTHING: both are; -EBADMSG: the profile of stacks is damaged; -ENOMEM; -errno.
 */
int export_firefox_write(const struct exporting *exporting);

#endif
