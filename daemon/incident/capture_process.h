/*
 * capture_process.h: captures that look at the processes of a target. Each adds to text. 0; -ESRCH: all of them are
 * gone, or there is none; -EACCES, -EPERM, -ENOENT, ...: no process could be looked at, for this reason.
 */
#ifndef SPIKEWATCH_CAPTURE_PROCESS_H
#define SPIKEWATCH_CAPTURE_PROCESS_H

#include "capture.h"
#include "capture_text.h"

/* threads.tsv: CPU of each thread over about the last second, busiest first. */
int capture_process_threads(const struct capture_context *context, struct capture_text *text);

/* status.txt: arguments and /proc/<pid>/status. */
int capture_process_status(const struct capture_context *context, struct capture_text *text);

/* limits.txt: effective limits and where they come from; /proc/<pid>/limits. */
int capture_process_limits(const struct capture_context *context, struct capture_text *text);

/* smaps.tsv: memory by what is mapped, what grew most first. */
int capture_process_smaps(const struct capture_context *context, struct capture_text *text);

#endif
