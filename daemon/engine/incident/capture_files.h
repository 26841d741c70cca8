/*
 * capture_process.h: captures that look at the processes of a target. Each adds to text. 0; -ESRCH:
 * all of them are gone, or there is none; -EACCES, -EPERM, -ENOENT, ...: no process could be looked
 * at, for this reason.
 */
/*
 * capture_host.h: captures that look around the target: its cgroups, the machine. Each adds to
 * text. Returns as capture_process.h.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_CAPTURE_FILES_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_CAPTURE_FILES_H

#include "daemon/engine/incident/capture.h"

/* threads.tsv: CPU of each thread over about the last second, busiest first. */
int capture_process_threads(const struct capture_context *context, struct capture_text *text);

/* status.txt: arguments and /proc/<pid>/status. */
int capture_process_status(const struct capture_context *context, struct capture_text *text);

/* limits.txt: effective limits and where they come from; /proc/<pid>/limits. */
int capture_process_limits(const struct capture_context *context, struct capture_text *text);

/* smaps.tsv: memory by what is mapped, what grew most first. */
int capture_process_smaps(const struct capture_context *context, struct capture_text *text);

/*
 * cgroup.txt: the files of the target's cgroups in every hierarchy. -ENOENT: there are no cgroups.
 */
int capture_host_cgroup(const struct capture_context *context, struct capture_text *text);

/* system.txt: load, memory, pressure, the busiest processes of the machine. */
int capture_host_system(const struct capture_context *context, struct capture_text *text);

#endif
