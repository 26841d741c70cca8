/*
 * sandbox.h: gives up all that reading a stranger's file does not need, for good.
 */
#ifndef SPIKEWATCH_SANDBOX_H
#define SPIKEWATCH_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>

/* Zero means: without that limit. */
struct sandbox_limits {
	uint64_t address_space_bytes; /* not applied in a build with a sanitizer, which reserves terabytes */
	unsigned cpu_seconds;         /* then the process is killed (SIGXCPU) */
	unsigned wall_seconds;        /* then the process is killed (SIGALRM) */
	uint64_t file_bytes;          /* of each file that is written; then the process is killed (SIGXFSZ) */
};

/* Does a signal kill the process when it calls something it must not, rather than -EPERM? For tests and for those who are careful. */
enum sandbox_refusal {
	SANDBOX_REFUSES,
	SANDBOX_KILLS,
};

/*
 * From here on, and in what is started from here (nothing can be): no privileges and none to come (no_new_privs), no capabilities, no
 * supplementary groups, no core dump, no tracing by others of the same user, the limits, and only the system calls that reading and
 * writing of open descriptors and memory that is not executable take. Nothing can be opened: what is needed must be open before.
 * The process must have one thread. 0, or -errno: the sandbox is then not complete, and nothing foreign may be read.
 * -EPERM also when capabilities are left that may not be dropped.
 */
int sandbox_enter(const struct sandbox_limits *limits, enum sandbox_refusal refusal);

/* Of that, only what is about privileges: no_new_privs, capabilities, groups, tracing. 0 or -errno, as above. */
int sandbox_drop_privileges(void);

#endif
