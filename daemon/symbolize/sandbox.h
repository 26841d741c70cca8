/*
 * sandbox.h: gives up all that reading a stranger's file does not need, for good.
 */
#ifndef SPIKEWATCH_DAEMON_SYMBOLIZE_SANDBOX_H
#define SPIKEWATCH_DAEMON_SYMBOLIZE_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * debug_files.h: a way to separate debug files for a process that may open nothing any more. Which
 * ones it needs it learns only by reading strangers' files, when it already is in its sandbox: so a
 * second process stays outside, which knows nothing but build ids, and answers each with the
 * descriptor of DIRECTORY/ab/cdef....debug, or that there is none.
 */

/* Where distributions install them. */
#define DEBUG_FILES_DIRECTORY "/usr/lib/debug/.build-id"

/*
 * Starts that process, with no more rights than to open what anybody may, for files below
 * directory; it ends with us. Of the caller's descriptors it keeps none. *ret_fd: what to ask it
 * by, the caller's. 0; -ENOENT: there is no such directory, and no process; -errno.
 */
int debug_files_start(const char *directory, int *ret_fd);

/*
 * The debug file of a build id, or -1. fd: of debug_files_start. Takes sendmsg(2) and recvmsg(2),
 * and a descriptor to be free.
 */
int debug_files_ask(int fd, const uint8_t *build_id, size_t len);

/* Zero means: without that limit. */
struct sandbox_limits {
	uint64_t address_space_bytes; /* not applied in a build with a sanitizer, which reserves terabytes */
	unsigned cpu_seconds;         /* then the process is killed (SIGXCPU) */
	unsigned wall_seconds;        /* then the process is killed (SIGALRM) */
	uint64_t file_bytes;          /* of each file that is written; then the process is killed (SIGXFSZ) */
};

/*
 * Does a signal kill the process when it calls something it must not, rather than -EPERM? For tests
 * and for those who are careful.
 */
enum sandbox_refusal {
	SANDBOX_REFUSES,
	SANDBOX_KILLS,
};

/*
 * From here on, and in what is started from here (nothing can be): no privileges and none to come
 * (no_new_privs), no capabilities, no supplementary groups, no core dump, no tracing by others of
 * the same user, the limits, and only the system calls that reading and writing of open descriptors
 * and memory that is not executable take. Nothing can be opened: what is needed must be open
 * before. The process must have one thread. 0, or -errno: the sandbox is then not complete, and
 * nothing foreign may be read. -EPERM also when capabilities are left that may not be dropped.
 */
int sandbox_enter(const struct sandbox_limits *limits, enum sandbox_refusal refusal);

/*
 * Of that, only what is about privileges: no_new_privs, capabilities, groups, tracing. 0 or -errno,
 * as above.
 */
int sandbox_drop_privileges(void);

#endif
