/*
 * target table_rig.h: a target table over a /proc made of files, so that pids can be used again at
 * will. The sampler's ticks are taken in the test's thread.
 */
#ifndef SPIKEWATCH_TESTS_TARGET_TABLE_RIG_H
#define SPIKEWATCH_TESTS_TARGET_TABLE_RIG_H

#include "daemon/engine/targets/target_table.h"
#include "scene.h"
#include "daemon/engine/kernel/kernel_accounts.h"
#include "daemon/engine/sampling/sampler.h"
#include "samplers_tick.h"
#include "skip.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"

#include <errno.h>
#include <sched.h>
#include <sys/stat.h>

struct target_table_rig {
	char root[64];
	int procfd;
	struct config *config;
	struct cgroup_mounts *mounts;
	struct ring *ring;
	struct samplers *samplers;
	struct target_table *table;
	struct target_table_options options;
	struct kernel_accounts *accounts; /* or NULL */
};

static inline void target_table_rig_setup(struct target_table_rig *rig)
{
	scene_directory(rig->root);
	rig->procfd = open(rig->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(cgroup_mounts_new(rig->root, "tests/data/cgroup/v1", &rig->mounts), 0);
	rig->config = NULL;
	rig->ring = NULL;
	rig->samplers = NULL;
	rig->table = NULL;
	rig->accounts = NULL;
}

static inline void target_table_rig_teardown(struct target_table_rig *rig)
{
	samplers_free(rig->samplers);
	target_table_free(rig->table);
	kernel_accounts_close(rig->accounts);
	ring_free(rig->ring);
	config_free(rig->config);
	cgroup_mounts_free(rig->mounts);
	close(rig->procfd);
	scene_remove(rig->root);
}

static inline void make_sampler(struct target_table_rig *rig, uint32_t capacity)
{
	struct ring_options ring_options = { .size_bytes = 1 << 20, .page_bytes = 16384 };
	struct sampler_options sampler_options = { .source = { .capacity = capacity, .interval_ns = NS_PER_MS } };

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &rig->ring), 0);
	ck_assert_int_eq(samplers_new(&sampler_options, 1, rig->ring, &rig->samplers), 0);
	rig->options = (struct target_table_options){
		.config = rig->config,
		.samplers = rig->samplers,
		.mounts = rig->mounts,
		.machine = { .cores = 4, .memory_bytes = 8ull << 30 },
		.procfd = rig->procfd,
		.accounts = rig->accounts,
	};
}

static inline void make(struct target_table_rig *rig, uint32_t capacity, const char *text)
{
	rig->config = scene_config("%s", text);
	make_sampler(rig, capacity);
	ck_assert_int_eq(target_table_new(&rig->options, &rig->table), 0);
}

/* A process as files. */
static inline void appear(struct target_table_rig *rig, int pid, uint64_t start, const char *cgroup)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%d", rig->root, pid);
	ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	snprintf(path, sizeof(path), "%s/%d/stat", rig->root, pid);
	scene_write(path, "%d (app) S 1 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 %llu 1000000 100 0\n", pid,
		    (unsigned long long)start);
	snprintf(path, sizeof(path), "%s/%d/statm", rig->root, pid);
	scene_write(path, "200 100 50 1 0 60 0\n");
	snprintf(path, sizeof(path), "%s/%d/cgroup", rig->root, pid);
	scene_write(path, "4:cpu,cpuacct:%s\n3:memory:%s\n", cgroup, cgroup);
}

static inline int meet(struct target_table_rig *rig, size_t entry, int pid, uint64_t start, uint64_t scan)
{
	struct process_observation seen = {
		.pid = pid, .start_ticks = start, .comm = "app", .cmdline = "app -x", .cgroup = "/"
	};

	return target_table_process(rig->table, entry, &seen, scan);
}

static inline struct target_table_counts counts(struct target_table_rig *rig)
{
	struct target_table_counts counts;

	target_table_counts(rig->table, &counts);

	return counts;
}

/* A tick, and what came back is freed. */
static inline void settle(struct target_table_rig *rig)
{
	samplers_tick(rig->samplers);
	target_table_collect(rig->table);
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

static inline struct target_table_target *find(struct target_table_rig *rig, const char *key)
{
	struct lookup lookup = { .key = key };

	target_table_visit(rig->table, look, &lookup);

	return lookup.found;
}

static inline struct cgroup_limits limits_of(struct target_table_rig *rig, const char *key)
{
	struct cgroup_limits limits;

	ck_assert(target_table_query_limits(rig->table, find(rig, key)->what.id, &limits));

	return limits;
}

/* All slices of a refresh. */
static inline void refresh_limits(struct target_table_rig *rig, mono_t now)
{
	unsigned part = 0;

	while (target_table_refresh_some_limits(rig->table, now, &part))
		continue;
}

static inline size_t visited(struct target_table_rig *rig)
{
	struct lookup lookup = { 0 };

	target_table_visit(rig->table, look, &lookup);

	return lookup.visited;
}

/*
 * Real accounts, for a real process. In a network namespace of its own, where the name of the one that counts on
 * a machine is free; the test ends in it. NULL: there are none.
 */
static inline struct kernel_accounts *accounts_here(int procfd)
{
	struct kernel_accounts_options options = { .procfd = procfd, .capacity = 64 };
	char reason[KERNEL_ACCOUNTS_REASON_MAX];
	struct kernel_accounts *accounts = NULL;

	if (unshare(CLONE_NEWNET) < 0)
		skip_because("a network namespace: %s", strerror(errno));
	else if (kernel_accounts_open(&options, &accounts, reason) < 0)
		skip_because("%s", reason);

	return accounts;
}

#endif
