/*
 * process.c: descriptors below one /proc/<pid>, opened relative to the directory's own descriptor, so that they all belong to
 * the same process even when the pid is reused while they are being opened.
 *
 * All are opened when the process is met, so that later, in the tick, nothing need be opened; what the options make useless
 * is closed again. Who has no descriptors to spare opens some in the tick nevertheless, and asks who it is that they belong to: the directory's
 * descriptor makes them all one process's, and the start time says which. A pid belongs to one process from its start to its end: if that
 * is the one that is meant, then it was also when its CPU clock was asked before.
 *
 * A file that is not allowed (fd/ of other users, clear_refs) or not there (fixtures) is unavailable;
 * running out of descriptors is not: that is the caller's to know.
 */
#include "process.h"

#include "clock.h"
#include "procfs.h"
#include "scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 52 numbers of up to 20 digits and a name of up to 64 bytes. */
#define STAT_MAX 2048
#define STATM_MAX 256
/* Usually 1.5 KiB; a process in more than a thousand supplementary groups has VmHWM beyond it: unavailable. */
#define STATUS_MAX 8192

#define FDS_COUNTED_MAX 65536

/* The one place where a vanished process is recognised: procfs says ESRCH, listing fd/ ENOENT, a CPU clock EINVAL. */
static int map_errno(int error)
{
	return error == ENOENT || error == EINVAL ? -ESRCH : -error;
}

/* Length or -errno. */
static ssize_t read_file(int fd, char *buf, size_t cap)
{
	ssize_t len = pread(fd, buf, cap, 0);

	return len < 0 ? map_errno(errno) : len;
}

static const struct {
	const char *name;
	int flags;
} files[PROCESS_FILES] = {
	[PROCESS_STAT] = { "stat", O_RDONLY },
	[PROCESS_STATM] = { "statm", O_RDONLY },
	[PROCESS_STATUS] = { "status", O_RDONLY },
	[PROCESS_CLEAR_REFS] = { "clear_refs", O_WRONLY },
	[PROCESS_FDS] = { "fd", O_RDONLY | O_DIRECTORY },
};

static void set_closed(struct process *process)
{
	process->clock = 0;
	for (int i = 0; i < PROCESS_FILES; i++)
		process->fd[i] = -1;
}

/* All but stat may be unavailable; a machine that has no descriptors left is another matter. 0 or -errno. */
static int open_files(struct process *process, int dir_fd, unsigned wanted)
{
	for (unsigned i = 0; i < PROCESS_FILES; i++) {
		if (!((wanted | 1u << PROCESS_STAT) >> i & 1))
			continue;
		process->fd[i] = openat(dir_fd, files[i].name, files[i].flags | O_CLOEXEC);
		if (process->fd[i] < 0 && (i == PROCESS_STAT || errno == EMFILE || errno == ENFILE || errno == ENOMEM))
			return map_errno(errno);
	}

	return 0;
}

int process_open(struct process *process, int procfd, int32_t pid, unsigned wanted)
{
	char name[16];
	AUTO_CLOSE int dir_fd = -1;

	set_closed(process);
	snprintf(name, sizeof(name), "%d", pid);
	dir_fd = openat(procfd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return map_errno(errno);

	int r = open_files(process, dir_fd, wanted);
	if (r < 0)
		process_release(process);

	return r;
}

/* 0 and *ret, which points into buf; -errno. */
static int read_stat(const struct process *process, char buf[STAT_MAX], struct procfs_stat *ret)
{
	ssize_t len = read_file(process->fd[PROCESS_STAT], buf, STAT_MAX);

	return len < 0 ? (int)len : procfs_stat_parse(buf, (size_t)len, ret);
}

int process_identify(const struct process *process, uint64_t *ret_start_ticks)
{
	char buf[STAT_MAX];
	struct procfs_stat stat;

	int r = read_stat(process, buf, &stat);
	if (r == 0)
		*ret_start_ticks = stat.start_ticks;

	return r;
}

int process_reopen(int procfd, int32_t pid, uint64_t start_ticks, unsigned wanted, struct process *ret)
{
	struct process process;
	uint64_t found_ticks;

	int r = process_open(&process, procfd, pid, wanted);
	if (r < 0)
		return r;

	r = process_identify(&process, &found_ticks);
	if (r == 0 && start_ticks != 0 && found_ticks != start_ticks)
		r = -ESRCH;
	if (r < 0) {
		process_release(&process);
		return r;
	}

	process_drop(&process, PROCESS_ALL & ~wanted);
	*ret = process;
	return 0;
}

void process_init_closed(struct process *process, int32_t pid, bool with_cpu_clock)
{
	set_closed(process);
	/* As clock_getcpuclockid(3) makes it, which would ask the kernel once more: ~pid, CPUCLOCK_SCHED. */
	if (with_cpu_clock)
		process->clock = (clockid_t)(~(uint32_t)pid << 3 | 2);
}

int process_init(struct process *process, int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock)
{
	struct process opened;

	process_init_closed(process, pid, with_cpu_clock);
	int r = process_reopen(procfd, pid, start_ticks, PROCESS_ALL, &opened);
	if (r == 0)
		process_adopt(process, opened.fd);

	return r;
}

static void drop_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void process_release(struct process *process)
{
	process_drop(process, PROCESS_ALL);
}

void process_drop(struct process *process, unsigned dropped)
{
	for (unsigned i = 0; i < PROCESS_FILES; i++)
		if (dropped >> i & 1)
			drop_fd(&process->fd[i]);
}

void process_adopt(struct process *process, const int offered[PROCESS_FILES])
{
	for (int i = 0; i < PROCESS_FILES; i++) {
		int fd = offered[i];

		if (process->fd[i] < 0)
			process->fd[i] = fd;
		else
			drop_fd(&fd);
	}
}

int process_cpu(const struct process *process, uint64_t *ret_ns)
{
	struct timespec ts;

	/* Not clock_gettime(3): its vDSO knows no such clock, and finding that out costs 10 ns of 200. */
	_Static_assert(sizeof(ts.tv_sec) == sizeof(long), "the call takes the kernel's timespec");
	if (syscall(SYS_clock_gettime, process->clock, &ts) < 0)
		return map_errno(errno);

	*ret_ns = (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
	return 0;
}

static void put_stat(const struct procfs_stat *stat, struct sample *sample)
{
	uint64_t ns_per_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	uint64_t user_ns = stat->user_ticks * ns_per_tick;
	uint64_t system_ns = stat->system_ticks * ns_per_tick;

	sample_set(sample, SAMPLE_CPU, user_ns + system_ns);
	sample_set(sample, SAMPLE_CPU_USER, user_ns);
	sample_set(sample, SAMPLE_CPU_SYSTEM, system_ns);
	sample_set(sample, SAMPLE_THREADS, stat->threads);
	sample_set(sample, SAMPLE_MINOR_FAULTS, stat->minor_faults);
	sample_set(sample, SAMPLE_MAJOR_FAULTS, stat->major_faults);
	sample_set(sample, SAMPLE_STATE, (uint8_t)stat->state);
}

static int read_statm(const struct process *process, struct sample *sample)
{
	char buf[STATM_MAX];
	uint64_t resident_pages;

	if (process->fd[PROCESS_STATM] < 0)
		return 0;

	ssize_t len = read_file(process->fd[PROCESS_STATM], buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	int r = procfs_statm_parse(buf, (size_t)len, &resident_pages);
	if (r < 0)
		return r;

	sample_set(sample, SAMPLE_MEMORY, resident_pages * (uint64_t)sysconf(_SC_PAGESIZE));
	return 0;
}

int process_read(const struct process *process, uint64_t start_ticks, struct sample *sample)
{
	char buf[STAT_MAX];
	struct procfs_stat stat;

	int r = read_stat(process, buf, &stat);
	if (r < 0)
		return r;
	if (start_ticks != 0 && stat.start_ticks != start_ticks)
		return -ESRCH;

	put_stat(&stat, sample);
	return read_statm(process, sample);
}

int process_read_peak(const struct process *process, bool reset, struct sample *sample)
{
	char buf[STATUS_MAX];
	uint64_t peak_bytes;

	if (process->fd[PROCESS_STATUS] < 0)
		return 0;

	ssize_t len = read_file(process->fd[PROCESS_STATUS], buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	if (procfs_kb_parse(buf, (size_t)len, "VmHWM", &peak_bytes) < 0) {
		sample_unset(sample, SAMPLE_MEMORY_PEAK);
		return 0;
	}
	sample_set(sample, SAMPLE_MEMORY_PEAK, peak_bytes);
	/* "5": the mark becomes the present RSS (Linux 4.0). Where it is refused the mark stays, and stays true. */
	if (reset && process->fd[PROCESS_CLEAR_REFS] >= 0 && pwrite(process->fd[PROCESS_CLEAR_REFS], "5", 1, 0) < 0 &&
	    errno == ESRCH)
		return -ESRCH;

	return 0;
}

/* Names of one getdents64(2) result that are not "." or "..". */
static uint64_t count_entries(const char *buf, ssize_t len)
{
	uint64_t count = 0;

	for (ssize_t offset = 0; offset < len;) {
		const struct dirent64 *item = (const void *)(buf + offset);

		count += item->d_name[0] != '.';
		offset += item->d_reclen;
	}

	return count;
}

int process_read_fds(const struct process *process, struct sample *sample)
{
	_Alignas(struct dirent64) char buf[8192];
	uint64_t count = 0;
	ssize_t len = 0;

	if (process->fd[PROCESS_FDS] < 0)
		return 0;
	if (lseek(process->fd[PROCESS_FDS], 0, SEEK_SET) < 0)
		return -errno;

	do {
		len = getdents64(process->fd[PROCESS_FDS], buf, sizeof(buf));
		if (len < 0)
			return map_errno(errno);
		count += count_entries(buf, len);
	} while (len > 0 && count < FDS_COUNTED_MAX);

	sample_set(sample, SAMPLE_FDS, count < FDS_COUNTED_MAX ? count : FDS_COUNTED_MAX);
	return 0;
}
