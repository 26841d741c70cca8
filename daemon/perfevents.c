/*
 * perfevents.c: perf_event_open(2).
 *
 * A ring that is mapped for reading alone is one that the kernel overwrites; write_backward makes it walkable from the newest record. The CPU clock
 * is a timer of the kernel's (no counter of the processor: it is there in virtual machines too), and exclude_idle makes it pass over a CPU that has
 * nothing to do.
 *
 * The second event counts nothing (a "dummy") and exists for what comes along with it.
 */
#include "perfevents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A number of the kernel's. False: it cannot be read. */
static bool read_sysctl(const char *path, long *ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[32];
	ssize_t len;

	if (fd < 0)
		return false;
	len = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (len <= 0)
		return false;
	text[len] = '\0';
	*ret = strtol(text, NULL, 10);
	return true;
}

uint32_t perfevents_frequency(uint32_t wanted)
{
	long most;

	if (read_sysctl("/proc/sys/kernel/perf_event_max_sample_rate", &most) && most > 0 && most < wanted)
		return (uint32_t)most;
	return wanted;
}

/* "perf_event_open: Permission denied; kernel.perf_event_paranoid is 2", the latter where it may be the cause. */
static int refuse(const char *call, const char *name, int error, char *reason)
{
	char path[64];
	long value;

	snprintf(reason, PERFEVENTS_REASON_MAX, "%s: %s", call, strerror(error));
	snprintf(path, sizeof(path), "/proc/sys/kernel/%s", name);
	if ((error == EACCES || error == EPERM) && read_sysctl(path, &value))
		snprintf(reason, PERFEVENTS_REASON_MAX, "%s: %s; kernel.%s is %ld", call, strerror(error), name, value);
	return -error;
}

static int open_event(struct perf_event_attr *attr, uint32_t cpu)
{
	attr->size = sizeof(*attr);
	attr->type = PERF_TYPE_SOFTWARE;
	attr->sample_type = PERFRECORD_FRAME_POINTERS;
	attr->sample_id_all = 1;
	attr->use_clockid = 1;
	attr->clockid = CLOCK_MONOTONIC;
	attr->exclude_hv = 1;
	return (int)syscall(SYS_perf_event_open, attr, -1, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static int map_ring(struct perfevents *events, size_t ring_bytes, int prot, char *reason)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	events->map_bytes = ring_bytes + page;
	events->map = mmap(NULL, events->map_bytes, prot, MAP_SHARED, events->fd, 0);
	if (events->map == MAP_FAILED) {
		int error = errno;

		events->map = NULL;
		return refuse("mmap of a perf ring", "perf_event_mlock_kb", error, reason);
	}
	return perfring_init(&events->ring, events->map, events->map_bytes, page);
}

/* What was opened as fd, or errno. */
static int finish(int fd, uint32_t cpu, size_t ring_bytes, int prot, struct perfevents *ret, char *reason)
{
	struct perfevents events = { .fd = fd, .cpu = cpu };
	int r;

	if (fd < 0)
		return refuse("perf_event_open", "perf_event_paranoid", errno, reason);
	r = map_ring(&events, ring_bytes, prot, reason);
	if (r < 0) {
		perfevents_close(&events);
		return r;
	}
	*ret = events;
	return 0;
}

int perfevents_open_samples(uint32_t cpu, uint32_t frequency, size_t ring_bytes, struct perfevents *ret, char *reason)
{
	struct perf_event_attr attr = {
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.freq = 1,
		.sample_freq = frequency,
		.exclude_idle = 1,
		.write_backward = 1,
		/* Nobody waits for this ring: never wake. */
		.watermark = 1,
		.wakeup_watermark = UINT32_MAX,
	};

	return finish(open_event(&attr, cpu), cpu, ring_bytes, PROT_READ, ret, reason);
}

int perfevents_open_side(uint32_t cpu, size_t ring_bytes, bool *build_ids, struct perfevents *ret, char *reason)
{
	struct perf_event_attr attr = {
		.config = PERF_COUNT_SW_DUMMY,
		.sample_period = 1,
		.mmap = 1,
		.mmap2 = 1,
		.comm = 1,
		.comm_exec = 1,
		.task = 1,
		.build_id = *build_ids,
		.watermark = 1,
		.wakeup_watermark = (uint32_t)(ring_bytes / 2),
	};
	int fd = open_event(&attr, cpu);

	if (fd < 0 && errno == EINVAL && *build_ids) {
		attr.build_id = 0;
		fd = open_event(&attr, cpu);
		*build_ids = fd < 0;
	}
	return finish(fd, cpu, ring_bytes, PROT_READ | PROT_WRITE, ret, reason);
}

int perfevents_pause(const struct perfevents *events, bool pause)
{
	return ioctl(events->fd, PERF_EVENT_IOC_PAUSE_OUTPUT, pause ? 1 : 0) < 0 ? -errno : 0;
}

void perfevents_close(struct perfevents *events)
{
	if (events->map != NULL)
		munmap(events->map, events->map_bytes);
	if (events->fd >= 0)
		close(events->fd);
	*events = PERFEVENTS_NONE;
}
