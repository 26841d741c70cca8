/* exportrows.h: the samples of an incident as tables for other programs. */
#ifndef SPIKEWATCH_EXPORTROWS_H
#define SPIKEWATCH_EXPORTROWS_H

#include "exporting.h"

/*
 * Each writes all samples. 0; EXPORTING_NOTHING: there are none; -ENOMEM; -errno.
 *
 * csv: RFC 4180, a header with units; a text that a spreadsheet would take for a formula gets an apostrophe before it.
 * json: one object with columns, rows as arrays, and targets.
 * gvisor: the stream that gVisor's tools read, of the first RECORDER_GVISOR_TARGETS targets.
 */
int exportrows_csv(const struct exporting *exporting);
int exportrows_json(const struct exporting *exporting);
int exportrows_gvisor(const struct exporting *exporting);

/*
 * A target that does not run has no row until its heartbeat, so what it used over a pause of since_ns it used shortly before its end: over
 * *ret_ns, which is interval_ns (of the sampler), or as long as one core needs for cpu_ns. False: it ran all the time, as far as one can
 * tell.
 */
bool exportrows_ran_ns(int64_t since_ns, uint64_t cpu_ns, uint64_t interval_ns, int64_t *ret_ns);

#endif
