/* procread.h: small files below /proc/<pid>, opened, read and closed: the cold path's way to read. */
#ifndef SPIKEWATCH_PROCREAD_H
#define SPIKEWATCH_PROCREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Reads <procfd>/<pid>/<name> up to cap - 1 bytes and terminates them. pid 0: <procfd>/<name>. The length; -ESRCH: the process is gone;
 * -errno.
 */
ssize_t procread_file(int procfd, int32_t pid, const char *name, char *buf, size_t cap);

/* The same for a symbolic link's target; a trailing " (deleted)" is taken off. */
ssize_t procread_link(int procfd, int32_t pid, const char *name, char *buf, size_t cap);

/* The arguments of a process, joined by spaces; "" for kernel threads. What does not fit is cut at a character. Returns as procread_file. */
ssize_t procread_cmdline(int procfd, int32_t pid, char *buf, size_t cap);

/* The name of a directory of /proc as a pid; 0: it is something else. */
int32_t procread_pid_of(const char *name);

/* The pid that a pid file says; 0: there is no such file, or it says none. */
int32_t procread_pidfile(const char *path);

/* Whether a process of this pid namespace with this start time runs; start_ticks 0: whichever has the pid. A ring_alive. */
bool procread_is_alive(int32_t pid, uint64_t start_ticks);

#endif
