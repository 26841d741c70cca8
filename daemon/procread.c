/* procread.c: a process that vanishes between two steps answers ENOENT or ESRCH; both become -ESRCH here, and only here. */
#include "procread.h"

#include "fdread.h"
#include "procfs.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int gone_or(int error, int32_t pid)
{
	return pid && (error == ENOENT || error == ESRCH) ? -ESRCH : -error;
}

static void build_path(char *path, size_t cap, int32_t pid, const char *name)
{
	if (pid)
		snprintf(path, cap, "%d/%s", pid, name);
	else
		snprintf(path, cap, "%s", name);
}

ssize_t procread_file(int procfd, int32_t pid, const char *name, char *buf, size_t cap)
{
	char path[64];

	build_path(path, sizeof path, pid, name);
	AUTO_CLOSE int fd = openat(procfd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return gone_or(errno, pid);

	ssize_t len = fdread_all(fd, buf, cap - 1);

	if (len < 0)
		return gone_or((int)-len, pid);
	buf[len] = '\0';

	return len;
}

ssize_t procread_link(int procfd, int32_t pid, const char *name, char *buf, size_t cap)
{
	static const char deleted[] = " (deleted)";
	const size_t deleted_len = sizeof deleted - 1;
	char path[64];

	build_path(path, sizeof path, pid, name);

	ssize_t len = readlinkat(procfd, path, buf, cap - 1);

	if (len < 0)
		return gone_or(errno, pid);

	if ((size_t)len > deleted_len && memcmp(buf + len - deleted_len, deleted, deleted_len) == 0)
		len -= (ssize_t)deleted_len;
	buf[len] = '\0';

	return len;
}

/* The length of a text that was cut at len without the beginning of a character of UTF-8 at its end. */
static ssize_t whole_characters(const char *text, ssize_t len)
{
	uint32_t code;

	for (ssize_t last = 1; last <= 3 && last <= len; last++) {
		const char *at = text + len - last;

		if (((unsigned char)*at & 0xc0) == 0xc0)
			return text_decode(at, (size_t)last, &code) == 0 ? len - last : len;
		if (((unsigned char)*at & 0xc0) != 0x80)
			return len;
	}

	return len;
}

ssize_t procread_cmdline(int procfd, int32_t pid, char *buf, size_t cap)
{
	ssize_t len = procread_file(procfd, pid, "cmdline", buf, cap);

	if (len > 0 && (size_t)len == cap - 1)
		len = whole_characters(buf, len);
	while (len > 0 && buf[len - 1] == '\0')
		len--;
	for (ssize_t i = 0; i < len; i++)
		if (buf[i] == '\0')
			buf[i] = ' ';
	if (len >= 0)
		buf[len] = '\0';

	return len;
}

int32_t procread_pid_of(const char *name)
{
	int64_t pid = 0;

	for (; *name; name++) {
		if (*name < '0' || *name > '9' || pid > INT32_MAX / 10)
			return 0;
		pid = pid * 10 + (*name - '0');
	}

	return pid <= INT32_MAX ? (int32_t)pid : 0;
}

int32_t procread_pidfile(const char *path)
{
	char text[32] = "";
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	long pid = len > 0 ? strtol(text, NULL, 10) : 0;

	return pid > 0 && pid <= INT32_MAX ? (int32_t)pid : 0;
}

bool procread_is_alive(int32_t pid, uint64_t start_ticks)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char text[1024];
	struct procfs_stat stat;
	ssize_t len = procfd < 0 ? -errno : procread_file(procfd, pid, "stat", text, sizeof text);

	if (len < 0)
		return len != -ESRCH; /* whoever cannot be looked at may well live */

	return procfs_stat_parse(text, (size_t)len, &stat) == 0 &&
	       (start_ticks == 0 || stat.start_ticks == start_ticks);
}
