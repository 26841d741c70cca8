/*
 * piddir.h: one process through a descriptor of its directory: when it is gone every read says so, and never answers
 * for another process that got the same pid.
 */
#ifndef SPIKEWATCH_PIDDIR_H
#define SPIKEWATCH_PIDDIR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Opens <procfd>/<pid>. start_ticks: 0, or the start time the process must have. *ret is the caller's to close. 0;
 * -ESRCH: no such process, or another one by now; -errno.
 */
int piddir_open(int procfd, int32_t pid, uint64_t start_ticks, int *ret);

/* Opens the file path for reading. The descriptor; negative as piddir_read. */
int piddir_file(int piddir, const char *path);

/*
 * Reads the file path ("status", "task/12/stat") up to cap - 1 bytes and terminates them. The length; -ESRCH: the
 * process (or that task) is gone; -ENOENT: it lives, but has no such file; -errno.
 */
ssize_t piddir_read(int piddir, const char *path, char *buf, size_t cap);

#endif
