/*
 * proc_read.h: files of processes below a /proc, for everything but samples, those that no process
 * can make wait (others: foreign.h); and the reserve of file descriptors that targets do not get,
 * so that a daemon that watches all it can still answers queries and writes incidents.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_PROC_READ_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_PROC_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Reads <procfd>/<pid>/<name> up to cap - 1 bytes and terminates them. pid 0: <procfd>/<name>. The
 * length; -ESRCH: the process is gone; -errno.
 */
ssize_t proc_read_file(int procfd, int32_t pid, const char *name, char *buf, size_t cap);

/* Its first line, without the newline; "" on failure. Returns as proc_read_file. */
ssize_t proc_read_line(int procfd, int32_t pid, const char *name, char *buf, size_t cap);

/* The same for a symbolic link's target; a trailing " (deleted)" is taken off. */
ssize_t proc_read_link(int procfd, int32_t pid, const char *name, char *buf, size_t cap);

/*
 * Its real user, which a set-user-id program or an undumpable one has of those who started it (its
 * directory is then root's). PROC_READ_NO_UID: not known, it is gone.
 */
uid_t proc_read_uid(int procfd, int32_t pid);

#define PROC_READ_NO_UID ((uid_t)-1)

/* The name of a directory of /proc as a pid; 0: it is something else. */
int32_t proc_read_pid_of(const char *name);

/*
 * Whether a process of this pid namespace with this start time runs; start_ticks 0: whichever has
 * the pid. A ring_alive.
 */
bool proc_read_is_alive(int32_t pid, uint64_t start_ticks);

#define PROC_CPUS_MAX 8192u

/* CPUs, by number. */
struct proc_cpus {
	uint32_t count;
	uint32_t end; /* the highest number + 1 */
	uint64_t bits[PROC_CPUS_MAX / 64];
};

static inline bool proc_cpus_has(const struct proc_cpus *cpus, uint32_t cpu)
{
	return cpu < cpus->end && cpus->bits[cpu / 64] >> cpu % 64 & 1;
}

enum proc_cpus_kind {
	PROC_CPUS_POSSIBLE, /* numbers that a CPU may ever have */
	PROC_CPUS_ONLINE,   /* of the machine, whatever cgroup this process is in */
	PROC_CPUS_OWN,      /* on which the calling thread may run now */
};

/*
 * Where /proc does not say which are possible or online, the former are as many as the kernel's
 * masks have bits, a little more, and the latter the own ones. At least one. Never waits.
 */
void proc_read_cpus(enum proc_cpus_kind kind, struct proc_cpus *ret);

/*
 * A process through a descriptor of its directory: when it is gone every read fails, and never
 * reads another process that got the same pid.
 */

/*
 * Opens <procfd>/<pid>. start_ticks: 0, or the start time the process must have. *ret is the
 * caller's to close. 0; -ESRCH: no such process, or another one by now; -errno.
 */
int pid_directory_open(int procfd, int32_t pid, uint64_t start_ticks, int *ret);

/* Opens the file path for reading. The descriptor; negative as pid_directory_read. */
int pid_directory_file(int pid_directory, const char *path);

/*
 * Reads the file path ("status", "task/12/stat") up to cap - 1 bytes and terminates them. The
 * length; -ESRCH: the process (or that task) is gone; -ENOENT: it lives, but has no such file;
 * -errno.
 */
ssize_t pid_directory_read(int pid_directory, const char *path, char *buf, size_t cap);

/*
 * 16 open incidents hold two each, 16 clients of the control socket one, as many clients of the
 * metrics are allowed for, a walk down the cgroup tree takes up to 34; up to 6 are open while a
 * process is read that has none of its own; captures, the state file and what a reload reads come
 * on top. Under a limit that is very low: a quarter of it.
 */
#define DESCRIPTORS_RESERVED 128u

/* What a process that is watched keeps open at most. */
#define DESCRIPTORS_PER_PROCESS 5u

/*
 * Whether no target may be opened any more, which takes up to 16 descriptors: what is left is
 * reserved. fd: any open one. Costs three system calls; if there are few left up to 35.
 */
bool descriptors_short(int fd);

#endif
