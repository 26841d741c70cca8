/*
 * ring_file.c: a mapping cannot report that a byte cannot be read, read(2) can. So the file is read
 * once, and if that fails it is copied, block by block, into a memfd, which is opened through
 * /proc/self/fd.
 */
#include "cli/base/ring_file.h"

#include "lib/base/base.h"
#include "lib/ring/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* A larger size in the header is rejected if the file is shorter. */
#define RING_FILE_BYTES_MAX ((uint64_t)4 << 30)

#define HEAD_BYTES 4096 /* what ring_size wants */
#define BLOCK_BYTES 65536
#define SECTOR_BYTES 4096 /* if a block cannot be read as a whole */

struct walk {
	int from;
	int to; /* -1: only read */
	uint64_t size;
	struct ring_file_state state;
	char block[BLOCK_BYTES];
};

/* As many as there are, up to len. Bytes or -errno. */
static ssize_t read_at(int fd, char *data, size_t len, uint64_t offset)
{
	size_t got = 0;

	while (got < len) {
		ssize_t n = pread(fd, data + got, len - got, (off_t)(offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

/* Copies what can be read of a piece; the rest stays zero. 0; -errno of writing. */
static int read_piece(struct walk *walk, size_t len, uint64_t offset)
{
	ssize_t got = read_at(walk->from, walk->block, len, offset);

	if (got < 0 && len > SECTOR_BYTES) {
		for (size_t at = 0; at < len; at += SECTOR_BYTES) {
			int rc = read_piece(walk, len - at < SECTOR_BYTES ? len - at : SECTOR_BYTES, offset + at);

			if (rc < 0)
				return rc;
		}
		return 0;
	}
	if (got < 0) {
		walk->state.unreadable_bytes += len;
		return 0;
	}
	walk->state.missing_bytes += len - (size_t)got;
	for (size_t put = 0; walk->to >= 0 && put < (size_t)got;) {
		ssize_t n = pwrite(walk->to, walk->block + put, (size_t)got - put, (off_t)(offset + put));

		if (n < 0)
			return -errno;
		put += (size_t)n;
	}
	return 0;
}

static int read_file(struct walk *walk)
{
	walk->state = (struct ring_file_state){ 0 };
	for (uint64_t at = 0; at < walk->size; at += BLOCK_BYTES) {
		uint64_t left = walk->size - at;
		int rc = read_piece(walk, left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES, at);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int open_copy(struct walk *walk, struct ring **ret)
{
	AUTO_CLOSE int fd = memfd_create("spikewatch-ring", MFD_CLOEXEC);
	char name[40];
	int rc;

	if (fd < 0 || ftruncate(fd, (off_t)walk->size) < 0)
		return -errno;
	walk->to = fd;
	rc = read_file(walk);
	if (rc < 0)
		return rc;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	return ring_open(AT_FDCWD, name, false, ret);
}

/* The size that its header says. */
static int find_size(struct walk *walk)
{
	struct stat st;
	ssize_t got;

	if (fstat(walk->from, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	got = read_at(walk->from, walk->block, HEAD_BYTES, 0);
	if (got < 0)
		return (int)got;
	if (ring_size(walk->block, (size_t)got, &walk->size) < 0 || (uint64_t)st.st_size > walk->size)
		return -EBADMSG;
	return (uint64_t)st.st_size < walk->size && walk->size > RING_FILE_BYTES_MAX ? -EBADMSG : 0;
}

int ring_file_open(const char *path, struct ring **ret, struct ring_file_state *ret_state)
{
	AUTO_FREE struct walk *walk = calloc(1, sizeof(*walk));
	/* Not blocking: the name may lead to a FIFO. */
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int rc;

	if (fd < 0)
		return -errno;
	if (!walk)
		return -ENOMEM;
	walk->from = fd;
	walk->to = -1;
	rc = find_size(walk);
	if (rc == 0)
		rc = read_file(walk);
	if (rc < 0)
		return rc;
	if (walk->state.missing_bytes == 0 && walk->state.unreadable_bytes == 0)
		rc = ring_open(AT_FDCWD, path, false, ret);
	else
		rc = open_copy(walk, ret);
	if (rc == 0)
		*ret_state = walk->state;
	return rc;
}
