/*
 * foreign.h: what another user can make wait, read by a child process that may be left behind.
 *
 * A file on a file system that does not answer (FUSE, NFS) holds the process that opens, reads or
 * even closes it, and no signal ends that. The same goes for /proc/PID/cmdline, maps, smaps and
 * pagemap, which wait for the mmap lock of the process; there a signal helps. So no thread of this
 * process touches any of these; see "What may wait" in docs/ARCHITECTURE.md for the files.
 *
 * Each lane has a child, which is started when it is first needed, answers one request at a time
 * and ends with this process. One that does not answer in time is killed; if it cannot be, it is
 * left behind, and counted. A user whose file did that is refused for a while, which grows each
 * time, and one whose files together took longer than one may take until some time has passed, so
 * that one user cannot use up the time of others. After foreign_begin what a recorder that was killed
 * has left behind is counted, too.
 *
 * All functions may be called by any thread. Requests of a lane wait for each other, those of
 * different lanes do not. Results beyond -errno:
 *
 * 	-ETIMEDOUT  it did not answer in time
 * 	-EBUSY      refused: other files of that user do not answer or are slow, or too many children
 * 	            are left behind
 * 	-EAGAIN     no child could be started
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_BASE_FOREIGN_H
#define SPIKEWATCH_DAEMON_ENGINE_BASE_FOREIGN_H

#include "lib/base/base.h"
#include "lib/base/io.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* By the thread that asks. */
enum foreign_lane {
	FOREIGN_DISCOVERY,
	FOREIGN_STACKS,
	FOREIGN_INCIDENTS,
	FOREIGN_PEAKS,
	FOREIGN_LANES,
};

/* How long one request may take. The answer is in memory within microseconds, or does not come. */
#define FOREIGN_PATIENCE_NS (2 * NS_PER_S)
/* The same of foreign_read on FOREIGN_DISCOVERY: new processes and ends wait meanwhile, and it is tried again. */
#define FOREIGN_PATIENCE_SHORT_NS (100 * NS_PER_MS)

/* Children that are left behind: on account of one user; of users from 1000 up; in all. */
#define FOREIGN_LEFT_PER_USER 2u
#define FOREIGN_LEFT_OF_USERS 12u
#define FOREIGN_LEFT_MAX 16u

/*
 * Before anything is asked, by a recorder whose ring (it holds RING.lock) others come after: its children
 * hold locks on a file beside the ring, by which the next one knows which are left behind, and of
 * whom. Without, as without a place for that file, it counts its own. Takes 0.1 s if some are. Logs.
 */
void foreign_begin(const char *ring);

/*
 * Reads <dirfd>/<pid>/<path>, with pid 0 <dirfd>/<path>, up to cap - 1 bytes, and terminates them.
 * A link is followed only with pid 0. The length; -ESRCH: the process is gone; -errno; see above.
 */
ssize_t foreign_read(enum foreign_lane lane, int dirfd, int32_t pid, const char *path, char *buf, size_t cap);

/*
 * The arguments of a process, joined by spaces. What does not fit is cut at a character. Returns as
 * foreign_read; -ENODATA: it has none now, as kernel threads, and processes while they end or execute.
 */
ssize_t foreign_cmdline(enum foreign_lane lane, int procfd, int32_t pid, char *buf, size_t cap);

/*
 * The pid that a pid file says; 0: there is no such file, or it says none; -ETIMEDOUT, -EBUSY: see
 * above.
 */
int32_t foreign_pidfile(enum foreign_lane lane, const char *path);

/*
 * What a child does for foreign_call: writes its result to `to`. dirfd is its own copy. 0 or
 * -errno.
 */
typedef int foreign_function(int dirfd, const void *argument, size_t len, const struct sink *to);

/*
 * Has a child call function, with argument (at most FOREIGN_ARGUMENT_MAX bytes): what takes more
 * than one read. pid, path: what it will read, as for foreign_read; with pid 0 path is a name for
 * it, which begins with a slash. Its result, up to cap bytes, in
 * buf. The length; what function returned; -EIO: a longer one; see above.
 */
ssize_t foreign_call(enum foreign_lane lane, int dirfd, int32_t pid, const char *path, foreign_function *function,
		     const void *argument, size_t len, void *buf, size_t cap);

#define FOREIGN_ARGUMENT_MAX 512

/*
 * A regular file <procfd>/<path>, for reading: itself where its file system is one of this
 * machine's own, which cannot wait for a process; else a copy in memory. pid: of its process. flags:
 * O_NOFOLLOW or 0; O_DIRECTORY: a directory (O_PATH) of such a file system or of the kernel's.
 * *copy_room: how many bytes a copy may have; what one takes is taken off. *ret_status: of the file
 * itself. The descriptor, with which nothing waits; -EINVAL: not a regular file; -EXDEV: a process may
 * answer for the directory; -EWOULDBLOCK: leased (F_SETLEASE); -EFBIG: too large for a copy; -errno;
 * see above.
 */
int foreign_open(enum foreign_lane lane, int procfd, int32_t pid, const char *path, int flags, size_t *copy_room,
		 struct stat *ret_status);

/*
 * Starts what foreign_reset_peak needs, unless it runs: a thread. 0 or -errno. For one thread at a
 * time.
 */
int foreign_peaks_begin(void);

/*
 * Has "5" written to an open /proc/PID/clear_refs, soon: the high-water mark of its memory starts
 * again. Never waits and allocates nothing, for samplers; fd stays the caller's. Where too many wait,
 * because a process keeps its mmap lock, it is not done: the mark stays, and stays true.
 */
void foreign_reset_peak(int fd);

/* Of an error of these functions: what to tell. Static. */
const char *foreign_error(int error);

/* Since the start of this process. */
struct foreign_counts {
	unsigned left;    /* children that are left behind now, of those before us too */
	uint64_t hung;    /* requests that got no answer in time */
	uint64_t refused; /* requests that were not tried */
};

/* At this moment. */
struct foreign_counts foreign_counts(void);

#endif
