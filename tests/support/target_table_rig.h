/*
 * target table_rig.h: a target table over a /proc made of files, so that pids can be used again at
 * will. The sampler's ticks are taken in the test's thread.
 */
#ifndef SPIKEWATCH_TESTS_TARGET_TABLE_RIG_H
#define SPIKEWATCH_TESTS_TARGET_TABLE_RIG_H

#include "daemon/engine/targets/target_table.h"
#include "scene.h"
#include "daemon/engine/sampling/sampler.h"
#include "samplers_tick.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"

#include <errno.h>
#include <sys/stat.h>

static char root[64];
static int procfd;
static struct config *config;
static struct cgroup_mounts *mounts;
static struct ring *ring;
static struct samplers *samplers;
static struct target_table *target_table;
static struct target_table_options options;

static inline void setup(void)
{
	scene_directory(root);
	procfd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(cgroup_mounts_new(root, "tests/data/cgroup/v1", &mounts), 0);
	config = NULL;
	ring = NULL;
	samplers = NULL;
	target_table = NULL;
}

static inline void teardown(void)
{
	samplers_free(samplers);
	target_table_free(target_table);
	ring_free(ring);
	config_free(config);
	cgroup_mounts_free(mounts);
	close(procfd);
	scene_remove(root);
}

static inline void make_sampler(uint32_t capacity)
{
	struct ring_options ring_options = { .size_bytes = 1 << 20, .page_bytes = 16384 };
	struct sampler_options sampler_options = { .source = { .capacity = capacity, .interval_ns = NS_PER_MS } };

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &ring), 0);
	ck_assert_int_eq(samplers_new(&sampler_options, 1, ring, &samplers), 0);
	options = (struct target_table_options){
		.config = config,
		.samplers = samplers,
		.mounts = mounts,
		.machine = { .cores = 4, .memory_bytes = 8ull << 30 },
		.procfd = procfd,
	};
}

static inline void make(uint32_t capacity, const char *text)
{
	config = scene_config("%s", text);
	make_sampler(capacity);
	ck_assert_int_eq(target_table_new(&options, &target_table), 0);
}

/* A process as files. */
static inline void appear(int pid, uint64_t start, const char *cgroup)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%d", root, pid);
	ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	snprintf(path, sizeof(path), "%s/%d/stat", root, pid);
	scene_write(path, "%d (app) S 1 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 %llu 1000000 100 0\n", pid,
		    (unsigned long long)start);
	snprintf(path, sizeof(path), "%s/%d/statm", root, pid);
	scene_write(path, "200 100 50 1 0 60 0\n");
	snprintf(path, sizeof(path), "%s/%d/cgroup", root, pid);
	scene_write(path, "4:cpu,cpuacct:%s\n3:memory:%s\n", cgroup, cgroup);
}

static inline int meet(size_t entry, int pid, uint64_t start, uint64_t scan)
{
	struct process_observation seen = {
		.pid = pid, .start_ticks = start, .comm = "app", .cmdline = "app -x", .cgroup = "/"
	};

	return target_table_process(target_table, entry, &seen, scan);
}

static inline struct target_table_counts counts(void)
{
	struct target_table_counts counts;

	target_table_counts(target_table, &counts);

	return counts;
}

/* A tick, and what came back is freed. */
static inline void settle(void)
{
	samplers_tick(samplers);
	target_table_collect(target_table);
}

struct lookup {
	const char *key;
	struct target_table_target *found;
	size_t visited;
};

static inline int look(void *ctx, struct target_table_target *target)
{
	struct lookup *lookup = ctx;

	lookup->visited++;
	if (lookup->key && strcmp(target->what.key, lookup->key) == 0)
		lookup->found = target;

	return 0;
}

static inline struct target_table_target *find(const char *key)
{
	struct lookup lookup = { .key = key };

	target_table_visit(target_table, look, &lookup);

	return lookup.found;
}

static inline struct cgroup_limits limits_of(const char *key)
{
	struct cgroup_limits limits;

	ck_assert(target_table_query_limits(target_table, find(key)->what.id, &limits));

	return limits;
}

/* All slices of a refresh. */
static inline void refresh_limits(mono_t now)
{
	unsigned part = 0;

	while (target_table_refresh_some_limits(target_table, now, &part))
		continue;
}

static inline size_t visited(void)
{
	struct lookup lookup = { 0 };

	target_table_visit(target_table, look, &lookup);

	return lookup.visited;
}

#endif
