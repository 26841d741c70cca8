/*
 * cgroup_watch.h: new cgroups, by inotify(7) on the directories of the hierarchies, so that entries
 * that select them by path have them at once. Removed ones are not reported: reading them fails.
 *
 * For one thread.
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
void cgroup_watch_free(struct cgroup_watch *watch);

/* For poll(2). */
int cgroup_watch_fd(const struct cgroup_watch *watch);

/* Whether all new cgroups are reported: no event was lost, and every directory is watched. */
bool cgroup_watch_is_complete(const struct cgroup_watch *watch);

/*
 * A walk over all cgroups begins; meets a cgroup; is over. New cgroups in those that it met are
 * reported from now on, and others are no longer watched. Does nothing while the watch is complete.
 * A walk that was given up is begun again.
 */
void cgroup_watch_begin(struct cgroup_watch *watch);
void cgroup_watch_add(struct cgroup_watch *watch, const char *path);
void cgroup_watch_end(struct cgroup_watch *watch);

/*
 * Reads events; never blocks. A new cgroup is handed to visit after 5 ms, in which its directories
 * are made in all hierarchies. False: an event was lost, and only a walk finds what it named.
 */
bool cgroup_watch_read(struct cgroup_watch *watch, mono_t now, void (*visit)(void *ctx, const char *path), void *ctx);

/* Events read, ever. */
uint64_t cgroup_watch_events(const struct cgroup_watch *watch);

/* When the next one will be handed out. False: none waits. */
bool cgroup_watch_next(const struct cgroup_watch *watch, mono_t *ret);

#endif
