/*
 * cglimits.c: climbs from a cgroup to the root of its hierarchy and keeps the smallest limit on the way. The machine is the
 * limit to begin with, so a limit that is missing, unreadable, zero, unlimited or larger than the machine changes nothing:
 * there is no error to handle and never a limit of zero.
 *
 * The root of a hierarchy as mounted may be somebody's cgroup (in a container), so "/" is looked at like the rest. A path
 * that leads outside of the reader's cgroup namespace ("/../x") has no directory here: it counts as not known.
 */
#include "cglimits.h"

#include "cgroupfs.h"
#include "clock.h"
#include "procfs.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define ONLINE_CPUS "/sys/devices/system/cpu/online"

/* Reads the beginning of a file. Length or -errno. */
static ssize_t read_file(int dir_fd, const char *name, char *buf, size_t cap)
{
	AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, buf, cap);

	return len < 0 ? -errno : len;
}

static int read_cpu_count(int dir_fd, const char *name, uint32_t *ret)
{
	char buf[4096];

	ssize_t len = read_file(dir_fd, name, buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	return cgroupfs_cpus_parse(buf, (size_t)len, ret);
}

int cglimits_machine(int procfd, const char *sys_cpu_online, struct metric_machine *ret)
{
	char buf[4096];
	uint32_t cpus = 0;
	uint64_t memory_bytes;
	bool real = !sys_cpu_online || sys_cpu_online[0] == '\0';

	int r = read_cpu_count(AT_FDCWD, real ? ONLINE_CPUS : sys_cpu_online, &cpus);
	if (r < 0 && !real)
		return r;
	if (r < 0 || cpus == 0) { /* no /sys here; one CPU is online, or this would not run */
		long online = sysconf(_SC_NPROCESSORS_ONLN);
		cpus = online > 0 ? (uint32_t)online : 1;
	}

	ssize_t len = read_file(procfd, "meminfo", buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	r = procfs_kb_parse(buf, (size_t)len, "MemTotal", &memory_bytes);
	if (r < 0)
		return r;

	*ret = (struct metric_machine){ .cores = cpus, .memory_bytes = memory_bytes };
	return 0;
}

/* v1: cpu.cfs_quota_us "-1" or "20000" and cpu.cfs_period_us "100000"; v2: cpu.max */
static bool read_quota(int dir_fd, bool v2, uint64_t *ret)
{
	char buf[64];
	uint64_t quota_us = 0;
	uint64_t period_us = 0;

	ssize_t len = read_file(dir_fd, v2 ? "cpu.max" : "cpu.cfs_quota_us", buf, sizeof(buf));
	if (len < 0)
		return false;

	if (v2) {
		if (cgroupfs_cpu_max_parse(buf, (size_t)len, &quota_us, &period_us) < 0)
			return false;
	} else {
		if (cgroupfs_limit_parse(buf, (size_t)len, &quota_us) < 0)
			return false;
		len = read_file(dir_fd, "cpu.cfs_period_us", buf, sizeof(buf));
		if (len < 0 || cgroupfs_number_parse(buf, (size_t)len, &period_us) < 0)
			return false;
	}
	if (period_us == 0 || quota_us > UINT64_MAX / NS_PER_S) /* the kernel allows a second at most */
		return false;

	*ret = quota_us * NS_PER_S / period_us;
	return true;
}

static bool read_cpuset(int dir_fd, bool v2, uint64_t *ret)
{
	uint32_t cpus;

	if (read_cpu_count(dir_fd, v2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus", &cpus) < 0)
		return false;

	*ret = cpus * NS_PER_S;
	return true;
}

static bool read_memory(int dir_fd, bool v2, uint64_t *ret)
{
	char buf[64];

	ssize_t len = read_file(dir_fd, v2 ? "memory.max" : "memory.limit_in_bytes", buf, sizeof(buf));

	return len > 0 && cgroupfs_limit_parse(buf, (size_t)len, ret) == 0;
}

/* One kind of limit on the way up. */
struct climb {
	enum cgroup_controller controller;
	bool (*read)(int dir_fd, bool v2, uint64_t *ret); /* false: no limit here */
};

static const struct climb quota = { CGROUP_CPU, read_quota };
static const struct climb cpuset = { CGROUP_CPUSET, read_cpuset };
static const struct climb memory = { CGROUP_MEMORY, read_memory };

/* Lowers *limit to the smallest on the way, and then says in from (of 256 bytes) where that is. */
static void climb(const struct climb *what, const struct cgroup_mounts *mounts, const char *path, uint64_t *limit,
		  char *from)
{
	char name[PATH_MAX];
	bool v2;
	const char *root = cgroup_mounts_controller(mounts, what->controller, &v2);
	if (!root || path[0] != '/' || strncmp(path, "/..", 3) == 0)
		return;

	size_t root_len = strlen(root);
	if ((size_t)snprintf(name, sizeof(name), "%s%s", root, strcmp(path, "/") == 0 ? "" : path) >= sizeof(name))
		return;

	while (true) {
		AUTO_CLOSE int dir_fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
		bool at_root = name[root_len] == '\0';
		uint64_t here;

		if (dir_fd >= 0 && what->read(dir_fd, v2, &here) && here > 0 && here < *limit) {
			*limit = here;
			snprintf(from, 256, "%s", at_root ? "/" : name + root_len);
		}
		if (at_root)
			return;
		*strrchr(name, '/') = '\0';
	}
}

static void begin_with_machine(const struct metric_machine *machine, struct cglimits *ret)
{
	*ret = (struct cglimits){
		.cpu = (uint64_t)(machine->cores * (double)NS_PER_S),
		.memory_bytes = machine->memory_bytes,
	};
	if (ret->cpu == 0)
		ret->cpu = UINT64_MAX;
	if (ret->memory_bytes == 0)
		ret->memory_bytes = UINT64_MAX;
}

static void say_whose(struct cglimits *limits)
{
	limits->cpu_is_machine = limits->cpu_from[0] == '\0';
	limits->memory_is_machine = limits->memory_from[0] == '\0';
}

void cglimits_of_cgroup(const struct cgroup_mounts *mounts, const struct metric_machine *machine, const char *path,
			struct cglimits *ret)
{
	begin_with_machine(machine, ret);
	climb(&quota, mounts, path, &ret->cpu, ret->cpu_from);
	climb(&cpuset, mounts, path, &ret->cpu, ret->cpu_from);
	climb(&memory, mounts, path, &ret->memory_bytes, ret->memory_from);
	say_whose(ret);
}

int cglimits_of_process(const struct cgroup_mounts *mounts, const struct metric_machine *machine, int procfd,
			int32_t pid, struct cglimits *ret)
{
	static const struct climb *const all[] = { &quota, &cpuset, &memory };
	struct cglimits limits;
	char path[PATH_MAX];

	begin_with_machine(machine, &limits);
	for (size_t i = 0; i < ARRAY_LEN(all); i++) {
		bool is_memory = all[i] == &memory;

		int r = cgroup_path_in(mounts, procfd, pid, all[i]->controller, path, sizeof(path));
		if (r == -ESRCH)
			return r;
		if (r == 0)
			climb(all[i], mounts, path, is_memory ? &limits.memory_bytes : &limits.cpu,
			      is_memory ? limits.memory_from : limits.cpu_from);
	}
	say_whose(&limits);

	*ret = limits;
	return 0;
}
