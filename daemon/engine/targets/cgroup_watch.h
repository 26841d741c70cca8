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

/*
 * Visits every cgroup until visit returns non-zero, which is returned. With a watch (it may be
 * NULL) new cgroups in those that were met are reported from now on, and others are no longer
 * watched; a walk that was given up is begun again. While the watch is complete it stays as it is.
 */
int cgroup_watch_walk(struct cgroup_watch *watch, const struct cgroup_mounts *mounts,
		      int (*visit)(void *ctx, const char *path), void *ctx);

/*
 * Reads events; never blocks. A new cgroup is handed to visit after 5 ms, in which its directories
 * are made in all hierarchies. False: an event was lost, and only a walk finds what it named.
 */
bool cgroup_watch_read(struct cgroup_watch *watch, mono_t now, void (*visit)(void *ctx, const char *path), void *ctx);

struct cgroup_watch_state {
	int fd;        /* for poll(2) */
	bool complete; /* all new cgroups are reported: no event was lost, every directory is watched */
	bool waiting;  /* the next new cgroup will be handed out at `due` */
	mono_t due;
	uint64_t events; /* read, ever */
};

/* As of now. */
struct cgroup_watch_state cgroup_watch_state(const struct cgroup_watch *watch);

#endif
