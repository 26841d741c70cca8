/*
 * export_firefox.h: an incident as a profile of the Firefox Profiler (profiler.firefox.com):
 * samples as counters, stacks as threads.
 */
#ifndef SPIKEWATCH_CLI_EXPORT_EXPORT_FIREFOX_H
#define SPIKEWATCH_CLI_EXPORT_EXPORT_FIREFOX_H

#include "cli/export/export.h"

/*
 * Writes the processed profile format. Samples and stacks may each be missing. 0;
 * EXPORTING_NOTHING: both are; -EBADMSG: the profile of stacks is damaged; -ENOMEM; -errno.
 */
int export_firefox_write(const struct exporting *exporting);

#endif
