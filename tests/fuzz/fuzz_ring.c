/*
 * A hostile ring. The input is either a whole file (it begins with the magic number) or, so that
 * the checksums do not stop everything at the door: a byte of flags, next_seq, then for each page
 * two bytes of length, its header and so many bytes of payload; with flag 1 checksums are made
 * right. Then everything is read in every way there is.
 */
#include "lib/base/compress.h"
#include "lib/ring/ring_reader.c"
#include "lib/ring/ring_format.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PAGES 4u
#define PAGE_BYTES 4096u

/* Far more than fits into such a ring. */
#define EVENTS_MAX 100000u

static volatile uint64_t consumed;

static void consume(const struct ring_event *event)
{
	if (event->type == RING_EVENT_SAMPLE) {
		for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
			consumed += sample_has(event->sample, f) ? event->sample->value[f] : 0;
	}
	if (event->type == RING_EVENT_TARGET)
		consumed += strlen(event->target.name) + strlen(event->target.cgroup) + strlen(event->target.cmdline);
}

/* Reads until nothing is left; what never ends is a bug. */
static void drain(struct ring_cursor *cursor)
{
	struct ring_event event;
	unsigned count = 0;
	bool inside = false;

	while (ring_cursor_next(cursor, &event) == 0) {
		consume(&event);
		if (event.type == RING_EVENT_TICK && inside)
			abort();
		inside = event.type == RING_EVENT_TICK || (inside && event.type != RING_EVENT_TICK_END);
		if (++count > EVENTS_MAX)
			abort();
	}
	if (inside)
		abort();
	ring_cursor_free(cursor);
}

static void read_everything(struct ring *ring, bool writable)
{
	struct ring_cursor *cursor;
	struct stats stats;
	struct ring_info info;
	struct target target;

	ring_info(ring, &info);
	ring_stats(ring, &stats);
	if (ring_cursor_new(ring, RING_OLDEST, &cursor) == 0)
		drain(cursor);
	if (ring_cursor_new(ring, RING_NEWEST, &cursor) == 0)
		drain(cursor);
	if (ring_cursor_new(ring, RING_OLDEST, &cursor) == 0) {
		ring_cursor_seek(cursor, info.last_tick);
		consumed += find_description(cursor, 1, &target);
		drain(cursor);
	}
	if (writable && ring_cursor_new_blocking(ring, 1, 1, NULL, &cursor) == 0)
		drain(cursor);
}

static void read_file(const uint8_t *data, size_t size)
{
	char path[64];
	struct ring *ring;
	AUTO_CLOSE int fd = memfd_create("fuzz", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (ring_open(AT_FDCWD, path, false, &ring) != 0)
		return;

	read_everything(ring, false);
	ring_free(ring);
}

/* Takes up to len bytes of the input; the rest is zero. */
static void take(const uint8_t **data, size_t *size, void *to, size_t len)
{
	size_t n = *size < len ? *size : len;

	memset(to, 0, len);
	if (n > 0)
		memcpy(to, *data, n);
	*data += n;
	*size -= n;
}

static void make_page(struct ring_page *page, const uint8_t **data, size_t *size, bool right)
{
	uint8_t length[2];
	take(data, size, length, sizeof(length));
	take(data, size, page, sizeof(*page));
	take(data, size, page->payload, ((length[0] | (size_t)length[1] << 8) % (PAGE_BYTES - sizeof(*page))));
	if (!right || page->used > PAGE_BYTES - sizeof(*page))
		return;

	uint64_t facts[RING_FACTS];
	ring_page_facts(page, (page->word >> 3) - 1, page->used, facts);
	uint32_t crc = checksum_crc32(CHECKSUM_CRC32_EMPTY, facts, sizeof(facts));
	page->crc = checksum_crc32(crc, page->payload, (size_t)page->used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint64_t magic = RING_MAGIC;
	const struct ring_options options = { .size_bytes = RING_HEADER_BYTES + PAGES * PAGE_BYTES,
					      .page_bytes = PAGE_BYTES };
	struct ring *ring;
	uint8_t flags;

	if (size >= sizeof(magic) && memcmp(data, &magic, sizeof(magic)) == 0) {
		read_file(data, size);
		return 0;
	}
	if (ring_create_anonymous(&options, &ring) != 0)
		abort();

	take(&data, &size, &flags, 1);
	take(&data, &size, &ring->header->next_seq, 8);
	for (uint64_t page = 0; page < PAGES; page++)
		make_page(ring_page(ring, page), &data, &size, (flags & 1) != 0);
	ring->header->last_tick = ring_page(ring, 1)->last_ns;
	read_everything(ring, true);
	ring_free(ring);
	return 0;
}
