/*
 * debugfiles.c: a pair of sockets that keep messages apart. A question is the bytes of a build id, the answer a byte with, perhaps, a
 * descriptor (SCM_RIGHTS). Of a build id only its hexadecimal digits get into the path, so that who asks cannot reach another file than one
 * of those that are there for everybody to read.
 */
#include "debugfiles.h"

#include "sandbox.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* sha1: 20 bytes, which is what all linkers write unless told otherwise; others up to this. */
#define BUILD_ID_MAX 32

union control {
	struct cmsghdr head;
	char room[CMSG_SPACE(sizeof(int))];
};

/* "ab/cdef.debug" */
static void path_of(const uint8_t *build_id, size_t len, char ret[2 * BUILD_ID_MAX + sizeof("/.debug")])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < len; i++) {
		*ret++ = digits[build_id[i] >> 4];
		*ret++ = digits[build_id[i] & 15];
		if (i == 0)
			*ret++ = '/';
	}
	memcpy(ret, ".debug", sizeof(".debug"));
}

static int open_file(int directory, const uint8_t *build_id, size_t len)
{
	char path[2 * BUILD_ID_MAX + sizeof("/.debug")];
	struct stat st;

	if (len < 2 || len > BUILD_ID_MAX)
		return -1;
	path_of(build_id, len, path);

	AUTO_CLOSE int fd = openat(directory, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? TAKE_FD(fd) : -1;
}

static bool answer(int to, int fd)
{
	char found = fd >= 0;
	union control control = { .room = { 0 } };
	struct iovec byte = { .iov_base = &found, .iov_len = 1 };
	struct msghdr message = { .msg_iov = &byte, .msg_iovlen = 1 };

	if (found) {
		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
		control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)),
						 .cmsg_level = SOL_SOCKET,
						 .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
	}

	return sendmsg(to, &message, MSG_NOSIGNAL) == 1;
}

/* Until nobody can ask any more. Never returns. */
static void serve(int directory, int socket)
{
	uint8_t build_id[BUILD_ID_MAX];
	ssize_t len;

	while ((len = recv(socket, build_id, sizeof(build_id), 0)) > 0) {
		AUTO_CLOSE int fd = open_file(directory, build_id, (size_t)len);

		if (!answer(socket, fd))
			break;
	}
	_exit(0);
}

/* The two descriptors become 0 and 1, and all others are closed. */
static void keep_two(int *directory, int *socket)
{
	int high_directory = fcntl(*directory, F_DUPFD, 2), high_socket = fcntl(*socket, F_DUPFD, 2);

	if (high_directory < 0 || high_socket < 0 || dup2(high_directory, 0) < 0 || dup2(high_socket, 1) < 0 ||
	    syscall(SYS_close_range, 2, ~0u, 0) < 0)
		_exit(1);
	*directory = 0;
	*socket = 1;
}

int debugfiles_start(const char *directory, int *ret_fd)
{
	AUTO_CLOSE int dir = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int pair[2];

	if (dir < 0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;

	AUTO_CLOSE int ours = pair[0];
	AUTO_CLOSE int its = pair[1];
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		keep_two(&dir, &its);
		if (sandbox_drop_privileges() < 0)
			_exit(1);
		serve(dir, its);
	}
	*ret_fd = TAKE_FD(ours);

	return 0;
}

int debugfiles_ask(int fd, const uint8_t *build_id, size_t len)
{
	uint8_t question[BUILD_ID_MAX];
	struct iovec bytes = { .iov_base = question, .iov_len = len };
	struct msghdr message = { .msg_iov = &bytes, .msg_iovlen = 1 };
	union control control = { .room = { 0 } };
	int found;

	if (len > sizeof(question))
		return -1;
	memcpy(question, build_id, len);
	if (sendmsg(fd, &message, MSG_NOSIGNAL) != (ssize_t)len)
		return -1;
	bytes.iov_len = 1;
	message.msg_control = control.room;
	message.msg_controllen = sizeof(control.room);
	if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != 1 || message.msg_controllen < CMSG_LEN(sizeof(int)) ||
	    control.head.cmsg_type != SCM_RIGHTS)
		return -1;
	memcpy(&found, CMSG_DATA(&control.head), sizeof(found));

	return found;
}
