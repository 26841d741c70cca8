/*
 * discovery_rig.h: discovery with a sampler, a ring and baselines, over a /proc made of files or
 * over the real one.
 */
#ifndef SPIKEWATCH_TESTS_DISCOVERY_RIG_H
#define SPIKEWATCH_TESTS_DISCOVERY_RIG_H

#include "daemon/engine/targets/discovery.h"
#include "scene.h"
#include "daemon/engine/sampling/sampler.h"
#include "samplers_tick.h"
#include "daemon/engine/targets/baseline.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/target_table.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/proc/perf.h"
#include "lib/ring/ring.h"
#include "lib/source/source.h"

#include <errno.h>
#include <sys/stat.h>

struct discovery_rig {
	char root[64];
	int procfd;
	struct config *config;
	struct cgroup_mounts *mounts;
	struct ring *ring;
	struct samplers *samplers;
	struct containers *containers; /* NULL unless a test makes it */
	struct discovery *discovery;
};

static inline void discovery_rig_setup(struct discovery_rig *rig)
{
	scene_directory(rig->root);
	rig->procfd = -1;
	rig->config = NULL;
	rig->mounts = NULL;
	rig->ring = NULL;
	rig->samplers = NULL;
	rig->containers = NULL;
	rig->discovery = NULL;
}

static inline void discovery_rig_teardown(struct discovery_rig *rig)
{
	if (rig->discovery)
		discovery_stop(rig->discovery);
	samplers_free(rig->samplers);
	discovery_free(rig->discovery);
	containers_free(rig->containers);
	ring_free(rig->ring);
	config_free(rig->config);
	cgroup_mounts_free(rig->mounts);
	if (rig->procfd >= 0)
		close(rig->procfd);
	scene_remove(rig->root);
}

/* Takes over the configuration. cgroup_root: NULL: the machine's. */
static inline void make(struct discovery_rig *rig, const char *proc_root, const char *cgroup_root, struct config *made)
{
	struct ring_options ring_options = { .size_bytes = 1 << 20, .page_bytes = 16384 };
	struct sampler_options sampler_options = { .source = { .capacity = 64, .interval_ns = NS_PER_MS } };
	struct discovery_options options = { .target_table.machine = { .cores = 2, .memory_bytes = 1 << 30 } };

	rig->config = made;
	rig->procfd = open(proc_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(rig->procfd, 0);
	ck_assert_int_eq(cgroup_mounts_new(proc_root, cgroup_root, &rig->mounts), 0);
	ck_assert_int_eq(ring_create_anonymous(&ring_options, &rig->ring), 0);
	ck_assert_int_eq(samplers_new(&sampler_options, 1, rig->ring, &rig->samplers), 0);
	options.target_table.config = rig->config;
	options.target_table.samplers = rig->samplers;
	options.target_table.mounts = rig->mounts;
	options.target_table.containers = rig->containers;
	options.target_table.procfd = rig->procfd;
	options.target_table.own_proc = strcmp(proc_root, "/proc") == 0;
	ck_assert_int_eq(discovery_new(&options, &rig->discovery), 0);
}

/* A scan, and a tick in which the sampler takes and gives back what it was told. */
static inline struct discovery_state scan(struct discovery_rig *rig)
{
	struct discovery_state state;

	ck_assert_int_eq(discovery_scan(rig->discovery), 0);
	samplers_tick(rig->samplers);
	discovery_state(rig->discovery, &state);

	return state;
}

/* Two scans: what left is only counted when it is back. */
static inline size_t targets(struct discovery_rig *rig)
{
	scan(rig);

	return scan(rig).target_table.targets;
}

/* A process as files; cmdline: words separated by "|". */
static inline void appear(struct discovery_rig *rig, int pid, const char *comm, const char *cmdline, uint64_t start,
			  const char *cgroup)
{
	char path[128], words[256];
	size_t len = strlen(cmdline);

	snprintf(path, sizeof(path), "%s/%d", rig->root, pid);
	ck_assert(mkdir(path, 0700) == 0 || errno == EEXIST);
	snprintf(path, sizeof(path), "%s/%d/stat", rig->root, pid);
	scene_write(path, "%d (%s) S 1 1 1 0 -1 0 10 0 0 0 5 5 0 0 20 0 3 0 %llu 1000000 100 0\n", pid, comm,
		    (unsigned long long)start);
	snprintf(path, sizeof(path), "%s/%d/statm", rig->root, pid);
	scene_write(path, "200 100 50 1 0 60 0\n");
	snprintf(path, sizeof(path), "%s/%d/cgroup", rig->root, pid);
	scene_write(path, "4:cpu,cpuacct:%s\n3:memory:%s\n", cgroup, cgroup);
	snprintf(path, sizeof(path), "%s/%d/exe", rig->root, pid);
	unlink(path);
	snprintf(words, sizeof(words), "/opt/bin/%s (deleted)", comm);
	ck_assert_int_eq(symlink(words, path), 0);
	snprintf(path, sizeof(path), "%s/%d/cmdline", rig->root, pid);
	for (size_t i = 0; i <= len; i++)
		words[i] = cmdline[i] == '|' ? '\0' : cmdline[i];
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(fd, words, len + 1), (ssize_t)len + 1);
	close(fd);
}

static inline void vanish(struct discovery_rig *rig, int pid)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%d", rig->root, pid);
	scene_remove(path);
}

static inline void make_files(struct discovery_rig *rig, const char *entries)
{
	appear(rig, 10, "web", "web|--port|80", 500, "/system.slice/postgresql.service");
	appear(rig, 11, "web", "web|--port|81", 501, "/");
	appear(rig, 12, "a) b", "", 502, "/");
	make(rig, rig->root, "tests/data/cgroup/v1", scene_config("{\"targets\": [%s]}", entries));
}

#endif
