/*
 * procfs.h: what the kernel reports of processes: parsers of the files below /proc/<pid> (proc(5)),
 * and of its messages about them as things happen: the proc connector's (fork, exec, comm, exit),
 * the exit records of taskstats, and perf records. Pure: a buffer in, values out; nothing in it is
 * trusted. What is cut short is reported, never guessed: a number counts only when the byte that
 * ends it is there too.
 *
 * Messages: only whole processes; what a single thread does is left out. Source: linux/cn_proc.h,
 * linux/taskstats.h, linux/genetlink.h; Documentation/accounting/taskstats.rst.
 */
#ifndef SPIKEWATCH_LIB_PROC_PROCFS_H
#define SPIKEWATCH_LIB_PROC_PROCFS_H

#include "lib/base/base.h"
#include "lib/proc/perf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * PF_EXITING and PF_KTHREAD of the kernel's linux/sched.h, which are in no public header. The first is
 * set before all else when a thread exits, and never cleared.
 */
#define PROCFS_FLAG_EXITING 0x4u
#define PROCFS_FLAG_KERNEL 0x200000u

/* Of stat. comm points into the buffer and is not NUL-terminated; it may hold any byte. */
struct procfs_stat {
	int32_t pid;
	int32_t parent_pid;
	const char *comm;
	size_t comm_len;
	char state;   /* R S D Z T t W X I ... */
	bool exiting; /* its main thread has ended or is about to (also a zombie): fields are final */
	bool kernel;  /* a thread of the kernel: it has no memory, and no arguments */
	uint64_t minor_faults;
	uint64_t major_faults;
	uint64_t user_ticks;   /* clock ticks, sysconf(_SC_CLK_TCK) in a second */
	uint64_t system_ticks; /* clock ticks */
	uint64_t waited_minor_faults;
	uint64_t waited_ticks; /* clock ticks; of children that it has waited for, with those of theirs */
	uint64_t threads;
	uint64_t start_ticks; /* clock ticks since boot */
};

/* One line of /proc/<pid>/cgroup. The strings point into the buffer. */
struct procfs_cgroup {
	const char *controllers; /* "cpu,cpuacct", "name=systemd", "" for v2 */
	size_t controllers_len;
	const char *path; /* "/system.slice/x"; "/../y" for what lies outside of the reader's cgroup namespace */
	size_t path_len;
};

/* /proc/<pid>/stat up to starttime. 0; -EBADMSG: no such line, or cut short. */
int procfs_stat_parse(const char *buf, size_t len, struct procfs_stat *ret);

/*
 * Where the arguments of the process begin in its memory (arg_start of /proc/<pid>/stat, Linux
 * 3.5), another place after each execution where addresses are random. 0: not there, or hidden from
 * the reader.
 */
uint64_t procfs_stat_arguments(const char *buf, size_t len);

/* /proc/<pid>/statm: resident pages; a number that is negative for a moment is 0. 0 or -EBADMSG. */
int procfs_statm_parse(const char *buf, size_t len, uint64_t *ret_resident_pages);

/*
 * The line "<name>:  <number> kB" of /proc/<pid>/status or /proc/meminfo, in bytes. 0; -ENODATA:
 * there is no such whole line (kernel threads have no Vm lines).
 */
int procfs_kb_parse(const char *buf, size_t len, const char *name, uint64_t *ret_bytes);

/*
 * The next line of /proc/<pid>/cgroup at *offset, which moves behind it. 1 and *ret; 0 at the end.
 * Lines that are not of the format, or not whole, are skipped.
 */
int procfs_cgroup_next(const char *buf, size_t len, size_t *offset, struct procfs_cgroup *ret);

enum procevent_kind {
	PROCEVENT_FORK,
	PROCEVENT_EXEC,
	PROCEVENT_COMM,
	PROCEVENT_MOVE,   /* it is in another cgroup */
	PROCEVENT_BURST,  /* of no process: something watched has run for a while */
	PROCEVENT_EXIT,   /* its main thread ended: usually the process */
	PROCEVENT_TOTALS, /* its last thread ends: all that it used */
};

/* Of PROCEVENT_TOTALS. */
struct procevent_totals {
	uint64_t cpu_ns, user_ns, system_ns; /* of all threads; the division is an estimate by ticks */
	uint64_t minor_faults, major_faults; /* 0 of a process that had several threads: not known */
	uint64_t elapsed_ns;                 /* since its last thread began, which is the process if it had no other */
	uint64_t start_ticks;                /* as in stat; 0: not known */
	mono_t ended;                        /* as of no time namespace; 0: not known */
	bool threads;                        /* it had several */
	bool exact;                          /* nothing is missing: as of the last moment that it ran */
	char comm[17];
};

struct procevent {
	enum procevent_kind kind;
	int32_t pid;
	int32_t ppid; /* of FORK and TOTALS */
	struct procevent_totals totals;
};

/* What a message was. */
enum proc_events_result {
	PROC_EVENTS_EVENT = 0,
	PROC_EVENTS_OTHER = 1,  /* nothing of interest, *ret untouched */
	PROC_EVENTS_ANSWER = 2, /* to listening, or an error of netlink's: *ret_error is 0 or -errno */
};

/*
 * One datagram of a NETLINK_CONNECTOR socket. enum proc_events_result; -EBADMSG: cut off or of
 * another shape. ret_error: set with PROC_EVENTS_ANSWER only.
 */
int proc_events_connector(const void *data, size_t len, struct procevent *ret, int *ret_error);

/*
 * The same for a NETLINK_GENERIC socket that is registered for exits of the taskstats family, whose
 * number is family.
 */
int proc_events_taskstats(const void *data, size_t len, uint16_t family, struct procevent *ret, int *ret_error);

/* A record of perf's. PROC_EVENTS_EVENT or PROC_EVENTS_OTHER. */
int proc_events_perf(const struct perf_record *record, struct procevent *ret);

/*
 * The number of a family in the answer to CTRL_CMD_GETFAMILY. 0; -ENOENT: there is no such family;
 * -errno as the kernel says; -EBADMSG.
 */
int proc_events_family(const void *data, size_t len, uint16_t *ret);

#endif
