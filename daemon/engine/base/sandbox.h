/*
 * sandbox.h: gives up, for good, every right that is not needed: for what parses an untrusted file,
 * for commands of the configuration, and for the recorder itself.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_SANDBOX_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_SANDBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Separate debug files for a process that may not open anything any more, and learns which ones it
 * needs only inside the sandbox: a second process stays outside, takes nothing but build ids, and
 * answers each with the descriptor of DIRECTORY/ab/cdef....debug, or that there is none.
 */

/* Where distributions install them. */
#define DEBUG_FILES_DIRECTORY "/usr/lib/debug/.build-id"

/*
 * Starts that process, with no privileges, for files below directory; it ends with ours. It keeps
 * none of the caller's descriptors. *ret_fd: its socket, the caller's. 0; -ENOENT: there is no such
 * directory, and no process; -errno.
 */
int debug_files_start(const char *directory, int *ret_fd);

/*
 * The debug file of a build id, or -1. fd: of debug_files_start. Takes sendmsg(2) and recvmsg(2),
 * and a descriptor to be free.
 */
int debug_files_ask(int fd, const uint8_t *build_id, size_t len);

/* Zero means: without that limit. What it is already is never raised. */
struct sandbox_limits {
	uint64_t address_space_bytes; /* not applied in a build with a sanitizer, which reserves terabytes */
	unsigned cpu_seconds;         /* then the process is killed (SIGXCPU) */
	unsigned wall_seconds;        /* sandbox_enter: then the process is killed (SIGALRM) */
	uint64_t file_bytes;          /* of each file that is written; then the process is killed (SIGXFSZ) */
	unsigned files;               /* numbers of descriptors */
};

/* Only the limits, and neither a core nor real-time priority. 0 or -errno. */
int sandbox_limit(const struct sandbox_limits *limits);

/* Whether a forbidden system call kills the process (SIGSYS), or fails with EPERM. */
enum sandbox_refusal {
	SANDBOX_REFUSES,
	SANDBOX_KILLS,
};

/*
 * For this process, which must have one thread: no_new_privs, no capabilities, no supplementary
 * groups, no processes, no core dump, no tracing by others of the same user, the limits, and only
 * the system calls that reading and writing of open descriptors and non-executable memory take:
 * what is needed must be open before. 0; -errno: the sandbox is not complete, and nothing untrusted
 * may be read; -EPERM also when capabilities are left that may not be dropped.
 */
int sandbox_enter(const struct sandbox_limits *limits, enum sandbox_refusal refusal);

/*
 * For this process before it executes a program that is to look at something: no_new_privs, no
 * capabilities in any set (the bounding set only if CAP_SETPCAP is there; without capabilities and
 * with no_new_privs nothing can be gained by it), the limits, and a filter that refuses tracing,
 * reading and writing of other processes' memory, namespaces, mounts, keys, BPF, perf events and
 * what changes the system. Returns as sandbox_enter.
 */
int sandbox_command(const struct sandbox_limits *limits);

/*
 * For the recorder, all threads of this process and those to come: no_new_privs, and only the system
 * calls that it uses; others fail with EPERM, those that are newer than this program with ENOSYS. It
 * cannot start processes after that (children_begin before), nor signal any but itself and child
 * (0: none). Without effect in a build with a sanitizer. 0; -errno: nothing is refused.
 */
int sandbox_recorder(pid_t child);

#endif
