/*
 * process.c: descriptors below one /proc/<pid>, opened relative to the directory's own descriptor, so that they all belong to
 * the same process even when the pid is reused while they are being opened.
 *
 * All are opened when the process is met, because later, in the tick, nothing may be opened; what the options make useless
 * is closed again. A file that is not allowed (fd/ of other users, clear_refs) or not there (fixtures) is unavailable;
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

/* Opens what may be unavailable. 0 and *ret, which is -1 then; -errno only when the machine has no descriptors left. */
static int open_optional(int dir_fd, const char *name, int flags, int *ret)
{
	*ret = openat(dir_fd, name, flags | O_CLOEXEC);
	if (*ret < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
		return -errno;

	return 0;
}

static int open_files(struct process *process, int dir_fd)
{
	process->stat_fd = openat(dir_fd, "stat", O_RDONLY | O_CLOEXEC);
	if (process->stat_fd < 0)
		return map_errno(errno);

	int r = open_optional(dir_fd, "statm", O_RDONLY, &process->statm_fd);
	if (r == 0)
		r = open_optional(dir_fd, "status", O_RDONLY, &process->status_fd);
	if (r == 0)
		r = open_optional(dir_fd, "fd", O_RDONLY | O_DIRECTORY, &process->fds_fd);
	if (r == 0)
		r = open_optional(dir_fd, "clear_refs", O_WRONLY, &process->clear_refs_fd);

	return r;
}

static int check_identity(const struct process *process, uint64_t start_ticks)
{
	char buf[STAT_MAX];
	struct procfs_stat stat;

	ssize_t len = read_file(process->stat_fd, buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	int r = procfs_stat_parse(buf, (size_t)len, &stat);
	if (r < 0)
		return r;

	return start_ticks != 0 && stat.start_ticks != start_ticks ? -ESRCH : 0;
}

int process_init(struct process *process, int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock)
{
	char name[16];
	AUTO_CLOSE int dir_fd = -1;

	*process = (struct process){
		.stat_fd = -1,
		.statm_fd = -1,
		.status_fd = -1,
		.fds_fd = -1,
		.clear_refs_fd = -1,
	};
	/* As clock_getcpuclockid(3) makes it, which would ask the kernel once more: ~pid, CPUCLOCK_SCHED. */
	if (with_cpu_clock)
		process->clock = (clockid_t)(~(uint32_t)pid << 3 | 2);

	snprintf(name, sizeof(name), "%d", pid);
	dir_fd = openat(procfd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd < 0)
		return map_errno(errno);

	int r = open_files(process, dir_fd);
	if (r == 0)
		r = check_identity(process, start_ticks);
	if (r < 0)
		process_release(process);

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
	drop_fd(&process->stat_fd);
	drop_fd(&process->statm_fd);
	process_drop(process, true, true, true);
}

void process_drop(struct process *process, bool peak, bool reset, bool fds)
{
	if (peak)
		drop_fd(&process->status_fd);
	if (reset)
		drop_fd(&process->clear_refs_fd);
	if (fds)
		drop_fd(&process->fds_fd);
}

static int *extra_fd(struct process *process, enum process_extra extra)
{
	int *const fds[PROCESS_EXTRAS] = {
		[PROCESS_STATUS] = &process->status_fd,
		[PROCESS_CLEAR_REFS] = &process->clear_refs_fd,
		[PROCESS_FDS] = &process->fds_fd,
	};

	return fds[extra];
}

int process_reopen(int procfd, int32_t pid, uint64_t start_ticks, unsigned wanted, int ret[PROCESS_EXTRAS])
{
	struct process process;

	int r = process_init(&process, procfd, pid, start_ticks, false);
	if (r < 0)
		return r;

	for (unsigned i = 0; i < PROCESS_EXTRAS; i++) {
		int *fd = extra_fd(&process, (enum process_extra)i);

		ret[i] = -1;
		if (wanted >> i & 1) {
			ret[i] = *fd;
			*fd = -1;
		}
	}
	process_release(&process);

	return 0;
}

void process_adopt(struct process *process, const int extras[PROCESS_EXTRAS])
{
	for (unsigned i = 0; i < PROCESS_EXTRAS; i++) {
		int *own = extra_fd(process, (enum process_extra)i);
		int offered = extras[i];

		if (*own < 0)
			*own = offered;
		else
			drop_fd(&offered);
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

static int read_stat(const struct process *process, struct sample *sample)
{
	char buf[STAT_MAX];
	struct procfs_stat stat;

	ssize_t len = read_file(process->stat_fd, buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	int r = procfs_stat_parse(buf, (size_t)len, &stat);
	if (r < 0)
		return r;

	uint64_t ns_per_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK);
	uint64_t user_ns = stat.user_ticks * ns_per_tick;
	uint64_t system_ns = stat.system_ticks * ns_per_tick;
	sample_set(sample, SAMPLE_CPU, user_ns + system_ns);
	sample_set(sample, SAMPLE_CPU_USER, user_ns);
	sample_set(sample, SAMPLE_CPU_SYSTEM, system_ns);
	sample_set(sample, SAMPLE_THREADS, stat.threads);
	sample_set(sample, SAMPLE_MINOR_FAULTS, stat.minor_faults);
	sample_set(sample, SAMPLE_MAJOR_FAULTS, stat.major_faults);
	sample_set(sample, SAMPLE_STATE, (uint8_t)stat.state);
	return 0;
}

static int read_statm(const struct process *process, struct sample *sample)
{
	char buf[STATM_MAX];
	uint64_t resident_pages;

	if (process->statm_fd < 0)
		return 0;

	ssize_t len = read_file(process->statm_fd, buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	int r = procfs_statm_parse(buf, (size_t)len, &resident_pages);
	if (r < 0)
		return r;

	sample_set(sample, SAMPLE_MEMORY, resident_pages * (uint64_t)sysconf(_SC_PAGESIZE));
	return 0;
}

int process_read(const struct process *process, struct sample *sample)
{
	int r = read_stat(process, sample);

	return r < 0 ? r : read_statm(process, sample);
}

int process_read_peak(const struct process *process, bool reset, struct sample *sample)
{
	char buf[STATUS_MAX];
	uint64_t peak_bytes;

	if (process->status_fd < 0)
		return 0;

	ssize_t len = read_file(process->status_fd, buf, sizeof(buf));
	if (len < 0)
		return (int)len;

	if (procfs_kb_parse(buf, (size_t)len, "VmHWM", &peak_bytes) < 0) {
		sample_unset(sample, SAMPLE_MEMORY_PEAK);
		return 0;
	}
	sample_set(sample, SAMPLE_MEMORY_PEAK, peak_bytes);
	/* "5": the mark becomes the present RSS (Linux 4.0). Where it is refused the mark stays, and stays true. */
	if (reset && process->clear_refs_fd >= 0 && pwrite(process->clear_refs_fd, "5", 1, 0) < 0 && errno == ESRCH)
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

	if (process->fds_fd < 0)
		return 0;
	if (lseek(process->fds_fd, 0, SEEK_SET) < 0)
		return -errno;

	do {
		len = getdents64(process->fds_fd, buf, sizeof(buf));
		if (len < 0)
			return map_errno(errno);
		count += count_entries(buf, len);
	} while (len > 0 && count < FDS_COUNTED_MAX);

	sample_set(sample, SAMPLE_FDS, count < FDS_COUNTED_MAX ? count : FDS_COUNTED_MAX);
	return 0;
}
