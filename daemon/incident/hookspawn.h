/*
 * hookspawn.h: starts one program that knows nothing of the daemon: in a process group of its own, with /dev/null as its input, no other
 * descriptor but its output, signals and limits as a login has them. Whoever calls waits for it and ends it.
 */
#ifndef SPIKEWATCH_HOOKSPAWN_H
#define SPIKEWATCH_HOOKSPAWN_H

#include <stdint.h>
#include <sys/types.h>

struct hookspawn_options {
	char *const *words;       /* ends with NULL; the first is the program's path */
	char *const *environment; /* ends with NULL: all that it gets */
	int dirfd;                /* its working directory */
	int out;                  /* its output and its complaints; stays the caller's */
	uint64_t max_file_bytes;  /* no file that it writes grows beyond */
};

/*
 * 0: *ret is its pid, and the id of its group; it dies with the calling thread. -errno: it could not be started, nothing is left of it.
 * The caller is stopped until the program is there, the other threads are not; all signals should be blocked in it.
 */
int hookspawn(const struct hookspawn_options *options, pid_t *ret);

#endif
