/*
 * limitscache.h: effective limits of processes, remembered by the text of /proc/<pid>/cgroup: a thousand processes of ten services cost ten
 * walks up the tree, and one small file each.
 */
#ifndef SPIKEWATCH_LIMITSCACHE_H
#define SPIKEWATCH_LIMITSCACHE_H

#include "cglimits.h"

#include <stdint.h>

struct limitscache;

/* procfd and mounts must outlive it. 0 or -ENOMEM. */
int limitscache_new(int procfd, const struct cgroup_mounts *mounts, const struct metric_machine *machine,
		    struct limitscache **ret);

/* NULL is fine. */
void limitscache_free(struct limitscache *cache);

/* Forgets everything: limits may have changed. */
void limitscache_clear(struct limitscache *cache);

/* Valid until the next call. NULL: the process is gone. */
const struct cglimits *limitscache_of(struct limitscache *cache, int32_t pid);

#endif
