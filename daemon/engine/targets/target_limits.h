/*
 * target_limits.h: effective limits, one line for all processes that are in the same cgroups: a thousand processes of ten services are ten lines. A
 * line is there as long as somebody holds it. Which line a process belongs to is one small file to read; what is in the lines is read
 * anew in parts, whoever holds them.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_TARGET_LIMITS_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_TARGET_LIMITS_H

#include "lib/cgroup/cgroup_limits.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/rules/metric.h"

#include <stdint.h>

struct limitscache;

/* To be read. */
struct limitscache_line {
	uint64_t cpu, memory_bytes; /* as in cglimits */
	uint32_t version;           /* another one if they are */
	uint64_t number;            /* of the line; never used again */
};

/* procfd and mounts must outlive it. 0 or -ENOMEM. */
int limitscache_new(int procfd, const struct cgroup_mounts *mounts, const struct metric_machine *machine,
		    struct limitscache **ret);

/* Lines that are still held are gone with it. NULL is fine. */
void limitscache_free(struct limitscache *cache);

/*
 * The line of a process, or of a cgroup by its path, takes the place of *line, which may be NULL, or be that very line. 0; -ENOMEM; of a process
 * -ESRCH, -errno too: *line stays.
 */
int limitscache_ask(struct limitscache *cache, int32_t pid, struct limitscache_line **line);
int limitscache_ask_cgroup(struct limitscache *cache, const char *path, struct limitscache_line **line);

/* NULL is fine. */
void limitscache_drop(struct limitscache *cache, struct limitscache_line *line);

/* All that is known of a line, as of its last reading. */
void limitscache_limits(const struct limitscache *cache, const struct limitscache_line *line, struct cglimits *ret);

/*
 * Reads anew what is in the lines, in LIMITSCACHE_PARTS parts, in their order; lines may come and go in between. Returns how many directories were
 * read: a dozen system calls each at most.
 */
#define LIMITSCACHE_LINE_PARTS 256u
#define LIMITSCACHE_PARTS (LIMITTREE_PARTS + LIMITSCACHE_LINE_PARTS)
size_t limitscache_refresh(struct limitscache *cache, unsigned part);

/* Lines, and directories that they are of. */
size_t limitscache_lines(const struct limitscache *cache);
size_t limitscache_directories(const struct limitscache *cache);

#endif
