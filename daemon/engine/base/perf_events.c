/*
 * perf_events.c: perf_event_open(2).
 *
 * A ring that is mapped read-only is overwritten by the kernel; write_backward allows reading it
 * from the newest record. The CPU clock is a timer of the kernel (not a counter of the processor,
 * so virtual machines have it too), and exclude_idle skips idle CPUs.
 *
 * Every n-th page fault is sampled. Rejected: a frequency, which the kernel gets wrong for software
 * events: after a burst it assumes a period of millions, and it reports periods that it has not
 * counted. With a fixed period it must not be asked to report the period (PERF_SAMPLE_PERIOD makes
 * every fault a sample), so the reader of these samples adds it.
 *
 * Side events count nothing (a "dummy") and exist for the records that come with them. So does the
 * event that holds a ring for threads: threads come and go, it stays. It is disabled and of this
 * process; the kernel only requires that events written into its ring have the same CPU, clock and
 * direction.
 *
 * An event of a thread is inherited by the threads and processes that it starts, and theirs is
 * written into the same ring. An inherited event may have a ring only if it is bound to a CPU:
 * hence one for each CPU.
 */
#include "daemon/engine/base/perf_events.h"

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

/* False: it cannot be read. */
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

uint32_t perf_events_frequency(uint32_t wanted)
{
	long most;

	if (read_sysctl("/proc/sys/kernel/perf_event_max_sample_rate", &most) && most > 0 && most < wanted)
		return (uint32_t)most;
	return wanted;
}

/* Names the sysctl if it may be the cause. */
static int refuse(const char *call, const char *name, int error, char *reason)
{
	char path[64];
	long value;

	snprintf(reason, PERF_EVENTS_REASON_MAX, "%s: %s", call, strerror(error));
	snprintf(path, sizeof(path), "/proc/sys/kernel/%s", name);
	if ((error == EACCES || error == EPERM) && read_sysctl(path, &value))
		snprintf(reason, PERF_EVENTS_REASON_MAX, "%s: %s; kernel.%s is %ld", call, strerror(error), name,
			 value);
	return -error;
}

int perf_events_refusal(int error, char *reason)
{
	return refuse("perf_event_open", "perf_event_paranoid", -error, reason);
}

/* ---- what an event is ---- */

/* Faults per second at which `frequency` samples are taken: 400 MB/s of new memory, on each CPU. */
#define FAULTS_PER_SECOND 100000U

#if defined(__x86_64__)
#define REGS_USER PERF_RECORD_REGS_X86_64
#else
#define REGS_USER 0ULL /* the unwinder supports no other machine */
#endif

bool perf_events_can_dwarf(void)
{
	return REGS_USER != 0;
}

struct perf_record_format perf_events_format(const struct perf_events_wanted *wanted)
{
	struct perf_record_format format = { .sample_type = PERF_RECORD_FRAME_POINTERS };

	if (wanted->stack_bytes != 0)
		format = (struct perf_record_format){ .sample_type = PERF_RECORD_DWARF, .regs_user = REGS_USER };
	if (wanted->kind == PERF_EVENTS_FAULTS || wanted->kind == PERF_EVENTS_LARGE_PAGES)
		format.sample_type &= ~(uint64_t)PERF_SAMPLE_PERIOD;
	if (wanted->large_pages)
		format.sample_type |= PERF_SAMPLE_RAW;
	if (wanted->cgroups)
		format.sample_type |= PERF_SAMPLE_CGROUP;
	return format;
}

uint64_t perf_events_period(const struct perf_events_wanted *wanted)
{
	if (wanted->kind != PERF_EVENTS_FAULTS)
		return 0;
	return wanted->fault_period != 0 ? wanted->fault_period : (FAULTS_PER_SECOND / wanted->frequency) | 1;
}

static bool is_side(const struct perf_events_wanted *wanted)
{
	return wanted->kind == PERF_EVENTS_SIDE || wanted->kind == PERF_EVENTS_TASKS;
}

/* Common to all: the same clock and the same trailer. */
static struct perf_event_attr common(const struct perf_events_wanted *wanted)
{
	bool side = is_side(wanted);

	return (struct perf_event_attr){
		.size = sizeof(struct perf_event_attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_RECORD_FRAME_POINTERS,
		.sample_id_all = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC,
		.exclude_hv = 1,
		.exclude_kernel = side || wanted->user_only,
		.exclude_callchain_kernel = side || wanted->user_only,
		.write_backward = !side,
		.watermark = 1,
		/* Rings of samples are not polled: never wake. */
		.wakeup_watermark = UINT32_MAX,
	};
}

static struct perf_event_attr side_attr(const struct perf_events_wanted *wanted)
{
	struct perf_event_attr attr = common(wanted);

	attr.sample_period = 1;
	attr.mmap = wanted->kind == PERF_EVENTS_SIDE;
	attr.mmap2 = wanted->kind == PERF_EVENTS_SIDE;
	attr.comm = 1;
	attr.comm_exec = 1;
	attr.task = 1;
	attr.build_id = wanted->build_ids;
	attr.cgroup = wanted->cgroups;
	return attr;
}

static struct perf_event_attr sample_attr(const struct perf_events_wanted *wanted)
{
	struct perf_event_attr attr = common(wanted);
	struct perf_record_format format = perf_events_format(wanted);

	attr.sample_type = format.sample_type;
	attr.sample_regs_user = format.regs_user;
	attr.sample_stack_user = wanted->stack_bytes;
	if (wanted->kind == PERF_EVENTS_FAULTS) {
		attr.config = PERF_COUNT_SW_PAGE_FAULTS;
		attr.sample_period = perf_events_period(wanted);
		attr.read_format = PERF_FORMAT_TOTAL_TIME_RUNNING;
		if (wanted->wake_samples != 0) {
			attr.watermark = 0;
			attr.wakeup_events = wanted->wake_samples;
		}
		return attr;
	}
	if (wanted->kind == PERF_EVENTS_LARGE_PAGES) {
		attr.config = PERF_COUNT_SW_BPF_OUTPUT;
		attr.sample_period = 1;
		attr.exclude_callchain_kernel = 1; /* how it was allocated, as it always is */
		return attr;
	}
	attr.freq = 1;
	attr.sample_freq = wanted->frequency;
	if (wanted->cycles) {
		/* An idle CPU has no cycles; not every PMU driver supports exclude_idle. */
		attr.type = PERF_TYPE_HARDWARE;
		attr.config = PERF_COUNT_HW_CPU_CYCLES;
		attr.read_format = PERF_FORMAT_TOTAL_TIME_RUNNING;
	} else {
		attr.config = PERF_COUNT_SW_CPU_CLOCK;
		attr.exclude_idle = 1;
	}
	return attr;
}

static struct perf_event_attr attr_of(const struct perf_events_wanted *wanted)
{
	return is_side(wanted) ? side_attr(wanted) : sample_attr(wanted);
}

/* ---- opening ---- */

static int open_event(struct perf_event_attr *attr, pid_t tid, uint32_t cpu)
{
	int fd = (int)syscall(SYS_perf_event_open, attr, tid, (int)cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int perf_events_event(const struct perf_events_wanted *wanted, pid_t tid, uint32_t cpu)
{
	struct perf_event_attr attr = attr_of(wanted);

	attr.inherit = tid != -1;
	return open_event(&attr, tid, cpu);
}

static int map_ring(struct perf_events *events, size_t ring_bytes, int prot, char *reason)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	events->map_bytes = ring_bytes + page;
	events->map = mmap(NULL, events->map_bytes, prot, MAP_SHARED, events->fd, 0);
	if (events->map == MAP_FAILED) {
		int error = errno;

		events->map = NULL;
		return refuse("mmap of a perf ring", "perf_event_mlock_kb", error, reason);
	}
	return perf_ring_init(&events->ring, events->map, events->map_bytes, page);
}

static int open_with_ring(struct perf_event_attr *attr, pid_t tid, size_t ring_bytes, struct perf_events *events,
			  char *reason)
{
	int prot = attr->write_backward ? PROT_READ : PROT_READ | PROT_WRITE, r;

	if (!attr->write_backward)
		attr->wakeup_watermark = attr->mmap ? (uint32_t)(ring_bytes / 2) : 1;
	events->fd = open_event(attr, tid, events->cpu);
	if (events->fd < 0)
		return perf_events_refusal(events->fd, reason);
	r = map_ring(events, ring_bytes, prot, reason);
	if (r < 0)
		perf_events_close(events);
	return r;
}

int perf_events_open(const struct perf_events_wanted *wanted, uint32_t cpu, size_t ring_bytes, struct perf_events *ret,
		     char *reason)
{
	struct perf_event_attr attr = attr_of(wanted);
	struct perf_events events = { .fd = -1, .cpu = cpu };
	int r = open_with_ring(&attr, -1, ring_bytes, &events, reason);

	if (r == 0)
		*ret = events;
	return r;
}

int perf_events_open_ring(const struct perf_events_wanted *wanted, uint32_t cpu, size_t ring_bytes,
			  struct perf_events *ret, char *reason)
{
	struct perf_event_attr attr = common(wanted);
	struct perf_events events = { .fd = -1, .cpu = cpu };
	int r;

	attr.disabled = 1;
	attr.exclude_kernel = 1;
	attr.exclude_callchain_kernel = 1;
	r = open_with_ring(&attr, 0, ring_bytes, &events, reason);
	if (r == 0)
		*ret = events;
	return r;
}

int perf_events_follow(const struct perf_events_wanted *wanted, pid_t tid, const struct perf_events *ring)
{
	int fd = perf_events_event(wanted, tid, ring->cpu);

	if (fd >= 0 && ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, ring->fd) < 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	return fd;
}

int perf_events_count(int fd, uint64_t *count, uint64_t *running_ns)
{
	uint64_t words[2]; /* read_format: the count, the time */
	ssize_t len = read(fd, words, sizeof(words));

	if (len != (ssize_t)sizeof(words))
		return len < 0 ? -errno : -EBADMSG;
	*count += words[0];
	*running_ns += words[1];
	return 0;
}

int perf_events_pause(const struct perf_events *events, bool pause)
{
	return ioctl(events->fd, PERF_EVENT_IOC_PAUSE_OUTPUT, pause ? 1 : 0) < 0 ? -errno : 0;
}

void perf_events_close(struct perf_events *events)
{
	if (events->map != NULL)
		munmap(events->map, events->map_bytes);
	if (events->fd >= 0)
		close(events->fd);
	*events = PERF_EVENTS_NONE;
}
