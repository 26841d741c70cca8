/*
 * handedfds.c: the environment is asked once, because it must be unset for programs that are started later, and the answer then is a value
 * that several modules can take from in any order.
 *
 * Rejected: names of descriptors ($LISTEN_FDNAMES). They are right only if somebody wrote FileDescriptorName= into the unit, while the
 * kernel always knows what a socket is.
 */
#include "handedfds.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* The place for this descriptor; NULL: none. */
static int *place_of(struct handedfds *handed, int fd)
{
	if (sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) > 0)
		return &handed->control;
	if (sd_is_socket_inet(fd, AF_UNSPEC, SOCK_STREAM, 1, 0) > 0)
		return &handed->metrics;

	return NULL;
}

int handedfds_take(struct handedfds *ret)
{
	int count = sd_listen_fds(1); /* sets close-on-exec */

	*ret = (struct handedfds){ 0 };
	for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + count; fd++) {
		int *place = place_of(ret, fd);

		if (!place || *place > 0 || fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0) {
			close(fd);
			ret->unknown++;
			continue;
		}
		*place = fd;
	}

	return count < 0 ? count : 0;
}

void handedfds_release(struct handedfds *handed)
{
	if (handed->control > 0)
		close(handed->control);
	if (handed->metrics > 0)
		close(handed->metrics);
	*handed = (struct handedfds){ .unknown = handed->unknown };
}
