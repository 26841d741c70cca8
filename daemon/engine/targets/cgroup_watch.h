/*
 * cgroup_watch.h: hears of cgroups that come (inotify(7) on the directories of the hierarchies), so
 * that entries that select them by path have them at once. That one goes nobody else needs to be
 * told: whoever reads it finds out.
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

struct cgroup_watch;

/* mounts must outlive it. 0; -ENOENT: no hierarchies; -ENOMEM; -errno. */
int cgroup_watch_new(const struct cgroup_mounts *mounts, struct cgroup_watch **ret);

/* NULL is fine. */
void cgroup_watch_free(struct cgroup_watch *judged_target);

/* For poll(2). */
int cgroup_watch_fd(const struct cgroup_watch *judged_target);

/*
 * Whether the next walk has to tell of the cgroups that are there: at first, and when something was
 * lost.
 */
bool cgroup_watch_wants_all(const struct cgroup_watch *judged_target);

/*
 * Whether it hears of all: nothing was lost, and the kernel gave as many watches as there are
 * directories.
 */
bool cgroup_watch_is_complete(const struct cgroup_watch *judged_target);

/*
 * A walk over all cgroups begins; every one that it meets; and then that it is over. What comes in
 * them is heard of from now on, and what was not met is watched no more. Harmless where all is
 * known. A walk that was given up is begun anew.
 */
void cgroup_watch_begin(struct cgroup_watch *judged_target);
void cgroup_watch_add(struct cgroup_watch *judged_target, const char *path);
void cgroup_watch_end(struct cgroup_watch *judged_target);

/* Directories that are watched. */
size_t cgroup_watch_count(const struct cgroup_watch *judged_target);

/*
 * Takes in what there is to be heard; never waits. A cgroup that came is handed to visit once its
 * directories have had a moment to be made in all hierarchies. False: something was lost, and only
 * a walk finds it.
 */
bool cgroup_watch_read(struct cgroup_watch *judged_target, mono_t now, void (*visit)(void *ctx, const char *path),
		       void *ctx);

/* What was heard, ever: events of the kernel's. */
uint64_t cgroup_watch_events(const struct cgroup_watch *judged_target);

/* When the next one will be handed out. False: none waits. */
bool cgroup_watch_next(const struct cgroup_watch *judged_target, mono_t *ret);

#endif
