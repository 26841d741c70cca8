/*
 * descriptors.h: file descriptors that targets do not get, so that a daemon that watches all it can still answers and writes incidents.
 */
#ifndef SPIKEWATCH_DESCRIPTORS_H
#define SPIKEWATCH_DESCRIPTORS_H

#include <stdbool.h>

/*
 * 16 open incidents hold two each, 16 clients of the control socket one, as many clients of the metrics are allowed for, a walk down the cgroup
 * tree takes up to 34; up to 6 are open while a process is read that has none of its own; captures, the state file and what a reload reads come on top. Under a limit that is very low: a quarter of it.
 */
#define DESCRIPTORS_RESERVED 128u

/* What a process that is watched keeps open at most. */
#define DESCRIPTORS_PER_PROCESS 5u

/*
 * Whether no target may be opened any more, which takes up to 16 descriptors: what is left is reserved. fd: any open one. Costs three
 * system calls; if there are few left up to 35.
 */
bool descriptors_short(int fd);

#endif
