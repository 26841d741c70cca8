/*
 * belowroot.c: files are opened with RESOLVE_IN_ROOT (openat2(2), Linux 5.6): below "/host" a link to /data is one to /host/data. Before Linux 5.6 that is
 * right only where the root is "/", and links are not followed below another.
 */
#include "belowroot.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

int belowroot_open(int rootfd, const char *path, int flags)
{
	struct open_how how = {
		.flags = (unsigned)flags | O_CLOEXEC,
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, rootfd, path, &how, sizeof how);

	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = openat(rootfd, path, flags | O_CLOEXEC | O_NOFOLLOW);

	return fd < 0 ? -errno : fd;
}
