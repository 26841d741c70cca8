/*
 * procfs.h: parsers of the files below /proc/<pid>. Pure: a buffer in, values out. Source: proc(5).
 *
 * Every parser takes any bytes. What is cut short is reported, never guessed: a number counts only when the byte that ends
 * it is there too.
 */
#ifndef SPIKEWATCH_PROCFS_H
#define SPIKEWATCH_PROCFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The fields of stat that are used here. comm points into the buffer and is not NUL-terminated; it may hold any byte. */
struct procfs_stat {
	int32_t pid;
	int32_t parent_pid;
	const char *comm;
	size_t comm_len;
	char state; /* R S D Z T t W X I ... */
	bool exiting; /* its main thread has ended or is about to: it says nothing new of itself, and a zombie is one too */
	uint64_t minor_faults;
	uint64_t major_faults;
	uint64_t user_ticks;   /* clock ticks, sysconf(_SC_CLK_TCK) in a second */
	uint64_t system_ticks; /* clock ticks */
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
 * Where the arguments of the process begin in its memory (arg_start of /proc/<pid>/stat, Linux 3.5), another place after each execution where addresses are
 * random. 0: not there, or hidden from the reader.
 */
uint64_t procfs_stat_arguments(const char *buf, size_t len);

/* /proc/<pid>/statm: resident pages; a number that is negative for a moment is 0. 0 or -EBADMSG. */
int procfs_statm_parse(const char *buf, size_t len, uint64_t *ret_resident_pages);

/*
 * The line "<name>:  <number> kB" of /proc/<pid>/status or /proc/meminfo, in bytes. 0; -ENODATA: there is no such whole line
 * (kernel threads have no Vm lines).
 */
int procfs_kb_parse(const char *buf, size_t len, const char *name, uint64_t *ret_bytes);

/*
 * The next line of /proc/<pid>/cgroup at *offset, which moves behind it. 1 and *ret; 0 at the end. Lines that are not of the
 * format, or not whole, are skipped.
 */
int procfs_cgroup_next(const char *buf, size_t len, size_t *offset, struct procfs_cgroup *ret);

#endif
