/*
 * cglimits.c: a limit that is missing, unreadable, zero or unlimited is none: there is no error to handle, and never a limit of zero. Only who has
 * no descriptor left to look cannot say so.
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
static int read_quota(int dir_fd, bool v2, uint64_t *ret)
{
	char buf[64];
	uint64_t quota_us = 0, period_us = 0;
	ssize_t len = read_file(dir_fd, v2 ? "cpu.max" : "cpu.cfs_quota_us", buf, sizeof(buf));
	int r = len < 0 ? (int)len
		: v2    ? cgroupfs_cpu_max_parse(buf, (size_t)len, &quota_us, &period_us)
			: cgroupfs_limit_parse(buf, (size_t)len, &quota_us);

	if (r == 0 && !v2 && quota_us != UINT64_MAX) {
		len = read_file(dir_fd, "cpu.cfs_period_us", buf, sizeof(buf));
		r = len < 0 ? (int)len : cgroupfs_number_parse(buf, (size_t)len, &period_us);
	}
	if (r < 0)
		return r;
	if (period_us == 0 || quota_us > UINT64_MAX / NS_PER_S) /* the kernel allows a second at most */
		return -EBADMSG;

	*ret = quota_us * NS_PER_S / period_us;
	return 0;
}

static int read_cpuset(int dir_fd, bool v2, uint64_t *ret)
{
	uint32_t cpus;
	int r = read_cpu_count(dir_fd, v2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus", &cpus);

	if (r == 0)
		*ret = cpus * NS_PER_S;

	return r;
}

static int read_memory(int dir_fd, bool v2, uint64_t *ret)
{
	char buf[64];
	ssize_t len = read_file(dir_fd, v2 ? "memory.max" : "memory.limit_in_bytes", buf, sizeof(buf));

	return len < 0 ? (int)len : cgroupfs_limit_parse(buf, (size_t)len, ret);
}

static const struct {
	enum cgroup_controller controller;
	int (*read)(int dir_fd, bool v2, uint64_t *ret); /* 0; -errno: nothing is said there */
} kinds[CGLIMITS_KINDS] = {
	[CGLIMITS_QUOTA] = { CGROUP_CPU, read_quota },
	[CGLIMITS_CPUSET] = { CGROUP_CPUSET, read_cpuset },
	[CGLIMITS_MEMORY] = { CGROUP_MEMORY, read_memory },
};

enum cgroup_controller cglimits_controller(enum cglimits_kind kind)
{
	return kinds[kind].controller;
}

int cglimits_read(int dir_fd, enum cglimits_kind kind, bool v2, uint64_t *ret)
{
	uint64_t limit = UINT64_MAX;
	int r = kinds[kind].read(dir_fd, v2, &limit);

	if (r == -EMFILE || r == -ENFILE || r == -ENOMEM)
		return r;

	*ret = r < 0 || limit == 0 ? UINT64_MAX : limit;
	return 0;
}
