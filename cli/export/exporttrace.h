/* exporttrace.h: the samples of an incident as a trace of events that Perfetto and chrome://tracing open. */
#ifndef SPIKEWATCH_EXPORTTRACE_H
#define SPIKEWATCH_EXPORTTRACE_H

#include "exporting.h"

/*
 * Writes the JSON form of the Trace Event Format: counters ("C") of each target, what it was before, in the window of the rule and after
 * ("X"), the firing ("i"), and names ("M"). 0; EXPORTING_NOTHING: there are no samples; -ENOMEM; -errno.
 */
int exporttrace_write(const struct exporting *exporting);

#endif
