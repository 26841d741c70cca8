/*
 * proc_read.c: files of processes, and the reserve of descriptors.
 *
 * A process that ends between two steps causes ENOENT or ESRCH; both become -ESRCH here, and only
 * here. A descriptor of /proc/PID stays bound to that very process: once it is gone openat(2) fails
 * with ENOENT and read(2) with ESRCH; a file that this kernel lacks fails with ENOENT too. Which of
 * them it is, is decided by stat, which every process has.
 *
 * The reserve: the kernel allocates the lowest free descriptor. So the reserve is the highest
 * numbers, with a zone below it: as long as one of the first numbers of the zone is free, what is
 * opened now ends within the zone. Once those are taken there may still be holes below, of targets
 * that have left: then as many numbers as a target takes at most must be free below the reserve,
 * which takes longer to find out. Rejected: the lowest free number (opening leaves holes, and what
 * is beyond one may be anywhere); counting /proc/self/fd (milliseconds for ten thousand); counts of
 * our own (they would have to know what every library opens).
 *
 * Which CPUs there are is read from the heads of two tables of /proc. Rejected:
 * /sys/devices/system/cpu, and with it sysconf(3): lxcfs, a process, may answer for it, and then
 * with what a container may use, while rings and accounts are for all.
 */
#include "daemon/engine/base/proc_read.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/proc/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static int gone_or(int error, int32_t pid)
{
	return pid && (error == ENOENT || error == ESRCH) ? -ESRCH : -error;
}

static void build_path(char *path, size_t cap, int32_t pid, const char *name)
{
	if (pid)
		snprintf(path, cap, "%d/%s", pid, name);
	else
		snprintf(path, cap, "%s", name);
}

/*
 * What is mounted over a file of /proc, or in /proc/PID, whose directories are its user's, is not
 * entered. Service managers and runtimes mount /proc/sys once more, to be read only.
 */
static int open_file(int dirfd, const char *path, int flags)
{
	int fd;

	if (path[0] != '/' && strncmp(path, "sys/", 4) != 0)
		return open_beneath(dirfd, path, flags, true);

	fd = openat(dirfd, path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

ssize_t proc_read_file(int procfd, int32_t pid, const char *name, char *buf, size_t cap)
{
	char path[64];

	build_path(path, sizeof path, pid, name);
	AUTO_CLOSE int fd = open_file(procfd, path, O_RDONLY | O_NOFOLLOW);

	if (fd < 0)
		return gone_or(-fd, pid);

	ssize_t len = fd_read_all(fd, buf, cap - 1);

	if (len < 0)
		return gone_or((int)-len, pid);
	buf[len] = '\0';

	return len;
}

ssize_t proc_read_line(int procfd, int32_t pid, const char *name, char *buf, size_t cap)
{
	ssize_t len = proc_read_file(procfd, pid, name, buf, cap);

	buf[len > 0 ? strcspn(buf, "\n") : 0] = '\0';

	return len;
}

uid_t proc_read_uid(int procfd, int32_t pid)
{
	char text[4096];
	const char *line =
		proc_read_file(procfd, pid, "status", text, sizeof text) > 0 ? strstr(text, "\nUid:\t") : NULL;
	unsigned uid;

	/* "Uid:\t1000\t0\t0\t0": real, effective, saved, of the file system. Names above have no newline. */
	return line && sscanf(line, "\nUid:\t%u", &uid) == 1 ? uid : PROC_READ_NO_UID;
}

ssize_t proc_read_link(int procfd, int32_t pid, const char *name, char *buf, size_t cap)
{
	static const char deleted[] = " (deleted)";
	const size_t deleted_len = sizeof deleted - 1;
	char path[64];

	build_path(path, sizeof path, pid, name);
	AUTO_CLOSE int fd = open_file(procfd, path, O_PATH | O_NOFOLLOW);
	ssize_t len = fd < 0 ? fd : readlinkat(fd, "", buf, cap - 1);

	if (len < 0)
		return gone_or(fd < 0 ? -fd : errno, pid);

	if ((size_t)len > deleted_len && memcmp(buf + len - deleted_len, deleted, deleted_len) == 0)
		len -= (ssize_t)deleted_len;
	buf[len] = '\0';

	return len;
}

int32_t proc_read_pid_of(const char *name)
{
	int64_t pid = 0;

	for (; *name; name++) {
		if (*name < '0' || *name > '9' || pid > INT32_MAX / 10)
			return 0;
		pid = pid * 10 + (*name - '0');
	}

	return pid <= INT32_MAX ? (int32_t)pid : 0;
}

static void add_cpu(struct proc_cpus *cpus, uint32_t cpu)
{
	if (cpu >= PROC_CPUS_MAX || proc_cpus_has(cpus, cpu))
		return;

	cpus->bits[cpu / 64] |= 1ULL << cpu % 64;
	cpus->count++;
	if (cpu >= cpus->end)
		cpus->end = cpu + 1;
}

/* The head of a table with a column for each CPU, of any length: "     CPU0       CPU1       \n" */
static void read_table_head(int procfd, const char *path, struct proc_cpus *cpus)
{
	AUTO_CLOSE int fd = procfd < 0 ? -EBADF : open_file(procfd, path, O_RDONLY | O_NOFOLLOW);
	char buf[4096];
	uint32_t cpu = 0;
	bool in_number = false;
	ssize_t len;

	while (fd >= 0 && (len = read(fd, buf, sizeof(buf))) > 0) {
		for (ssize_t i = 0; i < len; i++) {
			bool digit = buf[i] >= '0' && buf[i] <= '9';

			if (digit && cpu < PROC_CPUS_MAX)
				cpu = cpu * 10 + (uint32_t)(buf[i] - '0');
			else if (!digit && in_number)
				add_cpu(cpus, cpu), cpu = 0;
			in_number = digit;
			if (buf[i] == '\n')
				return;
		}
	}
}

void proc_read_cpus(enum proc_cpus_kind kind, struct proc_cpus *ret)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	unsigned long mask[PROC_CPUS_MAX / (8 * sizeof(unsigned long))] = { 0 };

	*ret = (struct proc_cpus){ 0 };
	if (kind != PROC_CPUS_OWN) /* show_softirqs() has all that are possible, show_interrupts() those online */
		read_table_head(procfd, kind == PROC_CPUS_POSSIBLE ? "softirqs" : "interrupts", ret);
	if (ret->count > 0)
		return;

	/* The system call, unlike its function in the library, says how long the kernel's masks are. */
	long bytes = syscall(SYS_sched_getaffinity, 0, sizeof(mask), mask);

	for (uint32_t cpu = 0; bytes > 0 && cpu < 8 * (uint32_t)bytes; cpu++)
		if (kind == PROC_CPUS_POSSIBLE || mask[cpu / (8 * sizeof(mask[0]))] >> cpu % (8 * sizeof(mask[0])) & 1)
			add_cpu(ret, cpu);
	if (ret->count == 0)
		add_cpu(ret, 0);
}

bool proc_read_is_alive(int32_t pid, uint64_t start_ticks)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char text[1024];
	struct procfs_stat stat;
	ssize_t len = procfd < 0 ? -errno : proc_read_file(procfd, pid, "stat", text, sizeof text);

	if (len < 0)
		return len != -ESRCH; /* one that may not be read may well live */

	return procfs_stat_parse(text, (size_t)len, &stat) == 0 &&
	       (start_ticks == 0 || stat.start_ticks == start_ticks);
}

#define STAT_MAX 1024 /* 52 numbers and a name of 64 bytes at most */

int pid_directory_file(int pid_directory, const char *path)
{
	char other[32] = "stat";
	int fd = open_file(pid_directory, path, O_RDONLY | O_NOFOLLOW);
	const char *slash = strrchr(path, '/');

	if (fd != -ENOENT)
		return fd;
	if (slash && (size_t)(slash - path) < sizeof(other) - sizeof("/stat"))
		snprintf(other, sizeof(other), "%.*s/stat", (int)(slash - path), path);

	AUTO_CLOSE int place = open_file(pid_directory, other, O_PATH);

	return place >= 0 ? -ENOENT : -ESRCH;
}

ssize_t pid_directory_read(int pid_directory, const char *path, char *buf, size_t cap)
{
	AUTO_CLOSE int fd = pid_directory_file(pid_directory, path);
	ssize_t len = fd < 0 ? fd : fd_read_all(fd, buf, cap - 1);

	if (len >= 0)
		buf[len] = '\0';
	return len;
}

int pid_directory_open(int procfd, int32_t pid, uint64_t start_ticks, int *ret)
{
	char name[16], text[STAT_MAX];
	AUTO_CLOSE int fd = -1;
	struct procfs_stat stat;
	ssize_t len;

	snprintf(name, sizeof(name), "%d", pid);
	fd = open_file(procfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	if (fd < 0)
		return fd == -ENOENT ? -ESRCH : fd;
	if (start_ticks == 0) {
		*ret = TAKE_FD(fd);
		return 0;
	}

	len = pid_directory_read(fd, "stat", text, sizeof(text));
	if (len < 0)
		return (int)len;
	if (procfs_stat_parse(text, (size_t)len, &stat) < 0 || stat.start_ticks != start_ticks)
		return -ESRCH;
	*ret = TAKE_FD(fd);
	return 0;
}

/* What a target takes while it is opened. */
#define TARGET_MAX 16u

/* The zone: what a target takes at most, and some numbers that may be in use (inherited ones). */
#define ZONE 32u

static rlim_t at_most(rlim_t value, rlim_t most)
{
	return value < most ? value : most;
}

/* The lowest free number from `from` on; -1: none. */
static int free_from(int fd, rlim_t from)
{
	int free_one = fcntl(fd, F_DUPFD_CLOEXEC, (int)from);

	if (free_one >= 0)
		close(free_one);

	return free_one;
}

/* Whether a target finds all it takes below end. */
static bool has_holes(int fd, rlim_t end)
{
	rlim_t from = 0;

	for (unsigned i = 0; i < TARGET_MAX && from < end; i++) {
		int free_one = free_from(fd, from);

		from = free_one < 0 ? end : (rlim_t)free_one + 1;
	}

	return from < end;
}

bool descriptors_short(int fd)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY)
		return false;

	rlim_t zone = at_most(ZONE, limit.rlim_cur / 4);
	rlim_t first = limit.rlim_cur - at_most(DESCRIPTORS_RESERVED, limit.rlim_cur / 4) - zone;
	int free_one = free_from(fd, first);

	if (free_one >= 0 && (rlim_t)free_one < first + zone / 4)
		return false;

	return !has_holes(fd, first + zone / 4);
}
