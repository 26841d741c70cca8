/*
 * ring.c: the file, its header and its mapping.
 *
 * A ring is completed under a temporary name and then renamed: an incomplete one is never visible,
 * and an old one stays valid where it is mapped. All blocks are allocated here, so that a full file
 * system is an error and not a SIGBUS in the middle of a tick. The size never changes after that.
 *
 * The part of the header that never changes has a checksum; geometry is taken from it once and kept
 * in private memory, because other processes may write to the mapping. The interval and the
 * heartbeat in force are words of the live part: changing those under the checksum would make the
 * header invalid for a moment, and a reader that opens the ring just then would be refused.
 */
#include "lib/ring/ring.h"
#include "lib/ring/ring_format.h"

#include "lib/base/base.h"
#include "lib/base/compress.h"
#include "lib/model/sample.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define RING_VERSION 1u
#define RING_ENDIAN 0x01020304u

#define RING_SIZE_DEFAULT (16u << 20)
#define RING_PAGE_DEFAULT (64u << 10)
#define RING_PAGE_MIN (4u << 10)
#define RING_PAGE_MAX (1u << 20)
#define RING_PAGES_MIN 4u
#define RING_MODE_DEFAULT 0640u

/* Longest name of a ring, with what is appended to it while it is made. */
#define RING_NAME_MAX 4096

/* A reader that finds the counters changed this often gives up: such a file is not written by a ring. */
#define RING_STATS_TRIES 1000

struct geometry {
	size_t size_bytes;
	uint32_t page_bytes;
	uint32_t page_count;
};

static bool page_bytes_valid(uint32_t bytes)
{
	return bytes >= RING_PAGE_MIN && bytes <= RING_PAGE_MAX && (bytes & (bytes - 1)) == 0;
}

static int geometry_of(const struct ring_options *options, struct geometry *ret)
{
	uint64_t size = options->size_bytes != 0 ? options->size_bytes : RING_SIZE_DEFAULT;
	uint32_t page = options->page_bytes != 0 ? options->page_bytes : RING_PAGE_DEFAULT;

	if (!page_bytes_valid(page) || size < (uint64_t)RING_PAGES_MIN * page || size > INT64_MAX)
		return -EINVAL;

	uint64_t count = (size - RING_HEADER_BYTES) / page;
	if (count > UINT32_MAX)
		return -EINVAL;
	/* Of the least size the header is not taken off. */
	if (count < RING_PAGES_MIN)
		count = RING_PAGES_MIN;

	ret->page_bytes = page;
	ret->page_count = (uint32_t)count;
	ret->size_bytes = RING_HEADER_BYTES + (size_t)count * page;
	return 0;
}

static uint32_t header_sum(const struct ring_header *header)
{
	return checksum_crc32(CHECKSUM_CRC32_EMPTY, header, offsetof(struct ring_header, crc));
}

static void header_fill(struct ring_header *header, const struct ring_options *options, const struct geometry *geometry)
{
	header->magic = RING_MAGIC;
	header->version = RING_VERSION;
	header->endian = RING_ENDIAN;
	header->header_bytes = RING_HEADER_BYTES;
	header->page_header_bytes = sizeof(struct ring_page);
	header->page_bytes = geometry->page_bytes;
	header->page_count = geometry->page_count;
	header->interval_ns = options->interval_ns;
	header->heartbeat_ns = options->heartbeat_ns != 0 ? options->heartbeat_ns : NS_PER_S;
	memcpy(header->boot_id, options->boot_id, sizeof(header->boot_id));
	header->pid = options->pid;
	header->sample_fields = SAMPLE_FIELDS;
	header->start_ticks = options->start_ticks;
	header->stats_count = sizeof(struct stats) / 8;
	header->crc = header_sum(header);
}

static uint64_t file_bytes(const struct ring_header *header)
{
	return RING_HEADER_BYTES + (uint64_t)header->page_count * header->page_bytes;
}

static bool header_valid(const struct ring_header *header)
{
	return header->magic == RING_MAGIC && header->endian == RING_ENDIAN && header->version == RING_VERSION &&
	       header->header_bytes == RING_HEADER_BYTES && header->page_header_bytes == sizeof(struct ring_page) &&
	       page_bytes_valid(header->page_bytes) && header->page_count >= RING_PAGES_MIN &&
	       header->crc == header_sum(header);
}

/* Maps fd and makes the object; the header is not checked yet. */
static int map(int fd, size_t size_bytes, bool writable, struct ring **ret)
{
	AUTO_FREE struct ring *ring = calloc(1, sizeof(*ring));
	if (ring == NULL)
		return -ENOMEM;

	void *at = mmap(NULL, size_bytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (at == MAP_FAILED)
		return -errno;

	ring->header = at;
	ring->size_bytes = size_bytes;
	ring->writable = writable;
	*ret = TAKE(ring);
	return 0;
}

static void geometry_apply(struct ring *ring, uint32_t page_bytes, uint32_t page_count)
{
	ring->page_bytes = page_bytes;
	ring->page_count = page_count;
	ring->payload_bytes = page_bytes - (uint32_t)sizeof(struct ring_page);
}

/* Gives an empty file its blocks and its header. */
static int make(int fd, const struct ring_options *options, struct ring **ret)
{
	struct geometry geometry;
	int rc = geometry_of(options, &geometry);
	if (rc < 0)
		return rc;

	rc = posix_fallocate(fd, 0, (off_t)geometry.size_bytes);
	if (rc != 0)
		return -rc;

	rc = map(fd, geometry.size_bytes, true, ret);
	if (rc < 0)
		return rc;

	header_fill((*ret)->header, options, &geometry);
	geometry_apply(*ret, geometry.page_bytes, geometry.page_count);
	return 0;
}

int ring_create(int dirfd, const char *name, const struct ring_options *options, struct ring **ret)
{
	char temporary[RING_NAME_MAX];
	int len = snprintf(temporary, sizeof(temporary), "%s.new", name);
	if (len < 0 || (size_t)len >= sizeof(temporary))
		return -ENAMETOOLONG;

	/* Of a creator that was killed here. */
	if (unlinkat(dirfd, temporary, 0) < 0 && errno != ENOENT)
		return -errno;

	AUTO_CLOSE int fd = openat(dirfd, temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, RING_MODE_DEFAULT);
	if (fd < 0)
		return -errno;

	AUTO(ring_freep) struct ring *ring = NULL;
	int rc = make(fd, options, &ring);
	if (rc == 0 && options->mode != 0 && fchmod(fd, options->mode) < 0)
		rc = -errno;
	if (rc == 0 && renameat(dirfd, temporary, dirfd, name) < 0)
		rc = -errno;
	if (rc < 0) {
		unlinkat(dirfd, temporary, 0);
		return rc;
	}

	*ret = TAKE(ring);
	return 0;
}

int ring_create_anonymous(const struct ring_options *options, struct ring **ret)
{
	AUTO_CLOSE int fd = memfd_create("spikewatch-ring", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;

	return make(fd, options, ret);
}

int ring_open(int dirfd, const char *name, bool writable, struct ring **ret)
{
	/* Not blocking: the name may be that of a FIFO. */
	AUTO_CLOSE int fd = openat(dirfd, name, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;

	struct stat st;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)(RING_HEADER_BYTES + RING_PAGES_MIN * RING_PAGE_MIN))
		return -EBADMSG;

	AUTO(ring_freep) struct ring *ring = NULL;
	int rc = map(fd, (size_t)st.st_size, writable, &ring);
	if (rc < 0)
		return rc;

	struct ring_header header;
	memcpy(&header, ring->header, offsetof(struct ring_header, unused0));
	if (!header_valid(&header) || file_bytes(&header) != (uint64_t)st.st_size)
		return -EBADMSG;

	geometry_apply(ring, header.page_bytes, header.page_count);
	*ret = TAKE(ring);
	return 0;
}

int ring_lock(struct ring *ring)
{
	return mlock(ring->header, ring->size_bytes) < 0 ? -errno : 0;
}

void ring_set_unwritten(struct ring *ring, mono_t from, double severity)
{
	uint64_t bits;

	memcpy(&bits, &severity, sizeof(bits));
	ring_store(&ring->header->unwritten_severity, bits);
	ring_store(&ring->header->unwritten_from, from.ns);
}

/* A file may say anything. */
static double finite_severity(uint64_t bits)
{
	double severity;

	memcpy(&severity, &bits, sizeof(severity));
	return isfinite(severity) ? severity : 0;
}

void ring_finish(struct ring *ring)
{
	ring_store_release(&ring->header->clean, 1);
}

void ring_free(struct ring *ring)
{
	if (ring == NULL)
		return;

	munmap(ring->header, ring->size_bytes);
	free(ring);
}

uint64_t ring_interval_ns(const struct ring *ring)
{
	uint64_t live = ring_load(&ring->header->interval_live);

	return live != 0 ? live : ring->header->interval_ns;
}

void ring_info(const struct ring *ring, struct ring_info *ret)
{
	const struct ring_header *header = ring->header;

	*ret = (struct ring_info){
		.size_bytes = ring->size_bytes,
		.page_bytes = ring->page_bytes,
		.page_count = ring->page_count,
		.heartbeat_ns = ring_heartbeat_ns(ring),
		.longest_heartbeat_ns = ring_longest_heartbeat_ns(ring),
		.idle_ns = ring_load(&ring->header->idle_live),
		.pid = header->pid,
		.start_ticks = header->start_ticks,
		.clean = ring_load_acquire(&header->clean) == 1,
		.next_seq = ring_load_acquire(&header->next_seq),
		.last_tick = { ring_load_acquire(&header->last_tick) },
		.ticks = ring_load_acquire(&header->ticks),
		.writers = ring_load(&header->writers),
		.unwritten_from = { ring_load(&header->unwritten_from) },
		.unwritten_severity = finite_severity(ring_load(&header->unwritten_severity)),
	};
	memcpy(ret->boot_id, header->boot_id, sizeof(ret->boot_id));
}

int ring_stats(const struct ring *ring, struct stats *ret)
{
	const struct ring_header *header = ring->header;
	uint64_t words[sizeof(struct stats) / 8] = { 0 };
	size_t count = header->stats_count < ARRAY_LEN(words) ? header->stats_count : ARRAY_LEN(words);

	for (int i = 0; i < RING_STATS_TRIES; i++) {
		uint64_t version = ring_load_acquire(&header->stats_version);
		for (size_t k = 0; k < count; k++)
			words[k] = ring_load(&header->stats[version & 1][k]);

		ring_fence_acquire();
		if (ring_load(&header->stats_version) == version) {
			memcpy(ret, words, sizeof(*ret));
			return 0;
		}
	}
	return -EAGAIN;
}

bool ring_evict_reader(struct ring *ring, ring_alive *alive)
{
	uint64_t owner = ring_load_acquire(&ring->header->reader_owner);

	return owner != 0 && ring_reader_dead(owner, alive) && ring_swap(&ring->header->reader_owner, owner, 0);
}

/* ---- a ring that a killed daemon left ----
 *
 * A mapping cannot report that a byte cannot be read, read(2) can. So the file is read once, and if
 * that fails it is copied, block by block, into a memfd, which is opened through /proc/self/fd.
 */

/* A larger size in the header is rejected if the file is shorter. */
#define DAMAGED_BYTES_MAX ((uint64_t)4 << 30)

#define BLOCK_BYTES 65536
#define SECTOR_BYTES 4096 /* if a block cannot be read as a whole */

struct salvage {
	int from;
	int to; /* -1: only read */
	uint64_t size;
	struct ring_damage damage;
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
static int salvage_piece(struct salvage *salvage, size_t len, uint64_t offset)
{
	ssize_t got = read_at(salvage->from, salvage->block, len, offset);

	if (got < 0 && len > SECTOR_BYTES) {
		for (size_t at = 0; at < len; at += SECTOR_BYTES) {
			int rc = salvage_piece(salvage, len - at < SECTOR_BYTES ? len - at : SECTOR_BYTES, offset + at);

			if (rc < 0)
				return rc;
		}
		return 0;
	}
	if (got < 0) {
		salvage->damage.unreadable_bytes += len;
		return 0;
	}
	salvage->damage.missing_bytes += len - (size_t)got;
	for (size_t put = 0; salvage->to >= 0 && put < (size_t)got;) {
		ssize_t n = pwrite(salvage->to, salvage->block + put, (size_t)got - put, (off_t)(offset + put));

		if (n < 0)
			return -errno;
		put += (size_t)n;
	}
	return 0;
}

static int salvage_file(struct salvage *salvage)
{
	salvage->damage = (struct ring_damage){ 0 };
	for (uint64_t at = 0; at < salvage->size; at += BLOCK_BYTES) {
		uint64_t left = salvage->size - at;
		int rc = salvage_piece(salvage, left < BLOCK_BYTES ? (size_t)left : BLOCK_BYTES, at);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int open_salvaged(struct salvage *salvage, struct ring **ret)
{
	AUTO_CLOSE int fd = memfd_create("spikewatch-ring", MFD_CLOEXEC);
	char name[40];
	int rc;

	if (fd < 0 || ftruncate(fd, (off_t)salvage->size) < 0)
		return -errno;
	salvage->to = fd;
	rc = salvage_file(salvage);
	if (rc < 0)
		return rc;
	snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
	return ring_open(AT_FDCWD, name, false, ret);
}

/* The size that its header says. */
static int find_salvage_size(struct salvage *salvage)
{
	struct ring_header header;
	struct stat st;
	ssize_t got;

	if (fstat(salvage->from, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EBADMSG;
	got = read_at(salvage->from, (char *)&header, sizeof(header), 0);
	if (got < 0)
		return (int)got;
	if ((size_t)got < sizeof(header) || !header_valid(&header))
		return -EBADMSG;
	salvage->size = file_bytes(&header);
	if ((uint64_t)st.st_size > salvage->size)
		return -EBADMSG;
	return (uint64_t)st.st_size < salvage->size && salvage->size > DAMAGED_BYTES_MAX ? -EBADMSG : 0;
}

int ring_open_damaged(const char *path, struct ring **ret, struct ring_damage *ret_damage)
{
	AUTO_FREE struct salvage *salvage = calloc(1, sizeof(*salvage));
	/* Not blocking: the name may lead to a FIFO. */
	AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int rc;

	if (fd < 0)
		return -errno;
	if (!salvage)
		return -ENOMEM;
	salvage->from = fd;
	salvage->to = -1;
	rc = find_salvage_size(salvage);
	if (rc == 0)
		rc = salvage_file(salvage);
	if (rc < 0)
		return rc;
	if (salvage->damage.missing_bytes == 0 && salvage->damage.unreadable_bytes == 0)
		rc = ring_open(AT_FDCWD, path, false, ret);
	else
		rc = open_salvaged(salvage, ret);
	if (rc == 0)
		*ret_damage = salvage->damage;
	return rc;
}
