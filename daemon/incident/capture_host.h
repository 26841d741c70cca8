/*
 * capture_host.h: captures that look around the target: its cgroups, the machine. Each adds to text. Returns as
 * capture_process.h.
 */
#ifndef SPIKEWATCH_CAPTURE_HOST_H
#define SPIKEWATCH_CAPTURE_HOST_H

#include "capture.h"
#include "capture_text.h"

/* cgroup.txt: the files of the target's cgroups in every hierarchy. -ENOENT: there are no cgroups. */
int capture_host_cgroup(const struct capture_context *context, struct capture_text *text);

/* system.txt: load, memory, pressure, the busiest processes of the machine. */
int capture_host_system(const struct capture_context *context, struct capture_text *text);

#endif
