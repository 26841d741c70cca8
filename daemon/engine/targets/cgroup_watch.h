/*
 * cgroup_watch.h: hears of cgroups that come (inotify(7) on the directories of the hierarchies), so that entries that select them by path have them at
 * once. That one goes nobody else needs to be told: whoever reads it finds out.
 *
 * Belongs to one thread.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_CGROUP_WATCH_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_CGROUP_WATCH_H

#include "lib/base/base.h"
#include "lib/cgroup/cgroup_mounts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cgroupwatch;

/* mounts must outlive it. 0; -ENOENT: no hierarchies; -ENOMEM; -errno. */
int cgroupwatch_new(const struct cgroup_mounts *mounts, struct cgroupwatch **ret);

/* NULL is fine. */
void cgroupwatch_free(struct cgroupwatch *watch);

/* For poll(2). */
int cgroupwatch_fd(const struct cgroupwatch *watch);

/* Whether the next walk has to tell of the cgroups that are there: at first, and when something was lost. */
bool cgroupwatch_wants_all(const struct cgroupwatch *watch);

/* Whether it hears of all: nothing was lost, and the kernel gave as many watches as there are directories. */
bool cgroupwatch_hears_all(const struct cgroupwatch *watch);

/*
 * A walk over all cgroups begins; every one that it meets; and then that it is over. What comes in them is heard of from now on, and what was not met is
 * watched no more. Harmless where all is known. A walk that was given up is begun anew.
 */
void cgroupwatch_begin(struct cgroupwatch *watch);
void cgroupwatch_add(struct cgroupwatch *watch, const char *path);
void cgroupwatch_has_all(struct cgroupwatch *watch);

/* Directories that are watched. */
size_t cgroupwatch_count(const struct cgroupwatch *watch);

/*
 * Takes in what there is to be heard; never waits. A cgroup that came is handed to visit once its directories have had a moment to be made in all
 * hierarchies. False: something was lost, and only a walk finds it.
 */
bool cgroupwatch_hear(struct cgroupwatch *watch, mono_t now, void (*visit)(void *ctx, const char *path), void *ctx);

/* What was heard, ever: events of the kernel's. */
uint64_t cgroupwatch_heard(const struct cgroupwatch *watch);

/* When the next one will be handed out. False: none waits. */
bool cgroupwatch_next(const struct cgroupwatch *watch, mono_t *ret);

#endif
