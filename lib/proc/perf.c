/*
 * perf.c: both kinds of ring, by the kernel's free-running data_head.
 *
 * Overwriting ring: the kernel writes towards lower addresses, so data_head is the newest record
 * and older ones follow, up to one ring's length further on, where the oldest is cut by the newest:
 *
 *     head                                   head + size
 *      │ newest │ older │ ...  │ oldest, cut │
 *
 * The copy is taken whole first (two pieces, where the ring wraps) and walked afterwards, so that
 * the ring is still for no longer than that. If head has moved down by n bytes when the copy is
 * done, its last n bytes may be newer than their surroundings: they are left out. A ring that has
 * not come round is copied as far as it was written.
 *
 * Forward ring: data_tail is the reader's; the kernel does not write beyond it by more than the
 * ring's size. A record that wraps is put together in the caller's scratch.
 */
#include "lib/proc/perf.h"

#include "lib/base/io.h"

#include <assert.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * perf_record.c: a cursor over one record's bytes. Each read takes a word off the front or says no;
 * what is left after the trailer was cut off the end is the body. A record whose words do not add
 * up is refused as a whole: a ring that was overwritten under its reader looks like that.
 *
 * Layout (perf_event_open(2)), all in words of 8 bytes:
 *   head     type 32, misc 16, size 16
 *   SAMPLE   ip | pid tid | time | cpu res | period | nr ips[nr] | abi regs[] | size stack[size]
 *            dyn_size, each if asked for
 *   MMAP2    pid tid | addr | len | pgoff | maj min ino gen, or size 8 res 24 build_id[20] | prot
 *            flags | filename
 *   COMM     pid tid | comm         FORK, EXIT  pid ppid | tid ptid | time        LOST  id | lost
 *            LOST_SAMPLES  lost
 *   trailer of all but SAMPLE: pid tid | time | cpu res, those that samples have
 */

struct cursor {
	const uint8_t *at;
	size_t left;
	bool short_of; /* sticky: a word was not there */
};

static uint64_t take_word(struct cursor *cursor)
{
	uint64_t word;

	if (cursor->left < sizeof(word)) {
		cursor->short_of = true;
		return 0;
	}
	memcpy(&word, cursor->at, sizeof(word));
	cursor->at += sizeof(word);
	cursor->left -= sizeof(word);
	return word;
}

/* Two words of 32 bits. */
static void take_pair(struct cursor *cursor, uint32_t *first, uint32_t *second)
{
	uint32_t pair[2];
	uint64_t word = take_word(cursor);

	memcpy(pair, &word, sizeof(pair));
	*first = pair[0];
	*second = pair[1];
}

/* count words, where they are; NULL if they are not. */
static const uint64_t *take_words(struct cursor *cursor, uint64_t count)
{
	const uint64_t *words = (const void *)cursor->at;

	if (count > cursor->left / sizeof(*words)) {
		cursor->short_of = true;
		return NULL;
	}
	cursor->at += count * sizeof(*words);
	cursor->left -= count * sizeof(*words);
	return words;
}

static void decode_stack(struct cursor *cursor, struct perf_record_sample *sample)
{
	uint64_t size = take_word(cursor), filled;

	if (size == 0)
		return;
	sample->stack = (const uint8_t *)take_words(cursor, size / 8);
	filled = take_word(cursor);
	if (size % 8 != 0 || filled > size)
		cursor->short_of = true;
	sample->stack_bytes = (size_t)filled;
}

static void decode_sample(const struct perf_record_format *format, struct cursor *cursor, struct perf_record *ret)
{
	uint64_t type = format->sample_type;
	struct perf_record_sample *sample = &ret->sample;
	uint32_t unused;

	if (type & PERF_SAMPLE_IP)
		sample->ip = take_word(cursor);
	if (type & PERF_SAMPLE_TID)
		take_pair(cursor, &ret->pid, &ret->tid);
	if (type & PERF_SAMPLE_TIME)
		ret->time_ns = take_word(cursor);
	if (type & PERF_SAMPLE_CPU)
		take_pair(cursor, &ret->cpu, &unused);
	if (type & PERF_SAMPLE_PERIOD)
		sample->period = take_word(cursor);
	if (type & PERF_SAMPLE_CALLCHAIN) {
		sample->chain_len = take_word(cursor);
		sample->chain = take_words(cursor, sample->chain_len);
	}
	if (type & PERF_SAMPLE_REGS_USER) {
		sample->regs_abi = take_word(cursor);
		sample->regs_len = sample->regs_abi == PERF_SAMPLE_REGS_ABI_NONE
					   ? 0
					   : (size_t)__builtin_popcountll(format->regs_user);
		sample->regs = sample->regs_len > 0 ? take_words(cursor, sample->regs_len) : NULL;
	}
	if (type & PERF_SAMPLE_STACK_USER)
		decode_stack(cursor, sample);
}

/* The text that is the rest of the body. */
static const char *take_text(struct cursor *cursor, size_t *ret_len)
{
	const char *text = (const char *)cursor->at;

	*ret_len = strnlen(text, cursor->left);
	if (*ret_len == cursor->left)
		cursor->short_of = true;
	return text;
}

static void decode_file(struct cursor *cursor, bool has_build_id, struct perf_record_file *ret)
{
	const uint64_t *words = take_words(cursor, 3);
	const uint8_t *bytes = (const uint8_t *)words;

	if (words == NULL)
		return;
	if (!has_build_id) {
		memcpy(&ret->major, bytes, 4);
		memcpy(&ret->minor, bytes + 4, 4);
		memcpy(&ret->inode, bytes + 8, 8);
		memcpy(&ret->inode_generation, bytes + 16, 8);
	} else if (bytes[0] > PERF_RECORD_BUILD_ID_MAX) {
		cursor->short_of = true;
	} else {
		ret->build_id_len = bytes[0];
		memcpy(ret->build_id, bytes + 4, ret->build_id_len);
	}
}

static void decode_mmap(struct cursor *cursor, struct perf_record *ret)
{
	struct perf_record_mmap *mmap = &ret->mmap;

	take_pair(cursor, &ret->pid, &ret->tid);
	mmap->start = take_word(cursor);
	mmap->len = take_word(cursor);
	mmap->offset = take_word(cursor);
	decode_file(cursor, (ret->misc & PERF_RECORD_MISC_MMAP_BUILD_ID) != 0, &mmap->file);
	take_pair(cursor, &mmap->prot, &mmap->flags);
	mmap->path = take_text(cursor, &mmap->path_len);
	if (mmap->start + mmap->len < mmap->start)
		cursor->short_of = true;
}

static void decode_body(struct cursor *cursor, struct perf_record *ret)
{
	switch (ret->type) {
	case PERF_RECORD_MMAP2:
		decode_mmap(cursor, ret);
		break;
	case PERF_RECORD_COMM:
		take_pair(cursor, &ret->pid, &ret->tid);
		ret->comm.name = take_text(cursor, &ret->comm.name_len);
		ret->comm.exec = (ret->misc & PERF_RECORD_MISC_COMM_EXEC) != 0;
		break;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		take_pair(cursor, &ret->pid, &ret->fork.ppid);
		take_pair(cursor, &ret->tid, &ret->fork.ptid);
		take_word(cursor);
		break;
	case PERF_RECORD_LOST:
		take_word(cursor);
		ret->lost.count = take_word(cursor);
		break;
	case PERF_RECORD_LOST_SAMPLES:
		ret->lost.count = take_word(cursor);
		break;
	default:
		break;
	}
}

/* Cuts the trailer off the end. Before the body, which knows pid and tid better. */
static void decode_trailer(const struct perf_record_format *format, struct cursor *cursor, struct perf_record *ret)
{
	uint64_t type = format->sample_type & (PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU);
	size_t len = 8 * (size_t)__builtin_popcountll(type);
	struct cursor trailer = { .left = len };
	uint32_t unused;

	if (cursor->left < len) {
		cursor->short_of = true;
		return;
	}
	cursor->left -= len;
	trailer.at = cursor->at + cursor->left;
	if (type & PERF_SAMPLE_TID)
		take_pair(&trailer, &ret->pid, &ret->tid);
	if (type & PERF_SAMPLE_TIME)
		ret->time_ns = take_word(&trailer);
	if (type & PERF_SAMPLE_CPU)
		take_pair(&trailer, &ret->cpu, &unused);
}

int perf_record_decode(const struct perf_record_format *format, const void *data, size_t len, struct perf_record *ret)
{
	struct perf_event_header head;
	struct perf_record record;
	struct cursor cursor;

	assert((uintptr_t)data % PERF_RECORD_ALIGN == 0);
	if (format->sample_type & ~PERF_RECORD_SAMPLE_TYPES)
		return -EINVAL;
	if (len < sizeof(head))
		return -EBADMSG;
	memcpy(&head, data, sizeof(head));
	if (head.size < sizeof(head) || head.size > len || head.size % PERF_RECORD_ALIGN != 0)
		return -EBADMSG;

	memset(&record, 0, sizeof(record));
	record.type = head.type;
	record.misc = head.misc;
	record.size = head.size;
	cursor = (struct cursor){ (const uint8_t *)data + sizeof(head), head.size - sizeof(head), false };
	if (head.type == PERF_RECORD_SAMPLE) {
		decode_sample(format, &cursor, &record);
	} else {
		decode_trailer(format, &cursor, &record);
		decode_body(&cursor, &record);
	}
	if (cursor.short_of)
		return -EBADMSG;
	*ret = record;
	return 0;
}

/* ---- and back ---- */

struct pen {
	uint8_t *at;
	size_t left, used;
	bool full; /* sticky */
};

static void put(struct pen *pen, const void *data, size_t len)
{
	if (pen->full || len > pen->left) {
		pen->full = true;
		return;
	}
	if (len > 0)
		memcpy(pen->at, data, len);
	pen->at += len;
	pen->left -= len;
	pen->used += len;
}

static void put_word(struct pen *pen, uint64_t word)
{
	put(pen, &word, sizeof(word));
}

static void put_pair(struct pen *pen, uint32_t first, uint32_t second)
{
	uint32_t pair[2] = { first, second };

	put(pen, pair, sizeof(pair));
}

static void put_zeroes(struct pen *pen, size_t len)
{
	static const uint8_t zeroes[8];

	put(pen, zeroes, len);
}

/* Terminated, and padded to a word. */
static void put_text(struct pen *pen, const char *text, size_t len)
{
	put(pen, text, len);
	put_zeroes(pen, 8 - len % 8);
}

static void encode_stack(struct pen *pen, const struct perf_record_sample *sample)
{
	size_t size = sample->stack != NULL ? (sample->stack_bytes + 7) / 8 * 8 : 0;

	if (sample->stack != NULL && sample->stack_bytes > PERF_RECORD_SIZE_MAX)
		pen->full = true;
	put_word(pen, size);
	if (size == 0 || pen->full)
		return;
	put(pen, sample->stack, sample->stack_bytes);
	put_zeroes(pen, size - sample->stack_bytes);
	put_word(pen, sample->stack_bytes);
}

static int encode_sample(const struct perf_record_format *format, struct pen *pen, const struct perf_record *record)
{
	size_t regs = (size_t)__builtin_popcountll(format->regs_user);

	put_word(pen, record->sample.ip);
	put_pair(pen, record->pid, record->tid);
	put_word(pen, record->time_ns);
	put_pair(pen, record->cpu, 0);
	put_word(pen, record->sample.period);
	put_word(pen, record->sample.chain_len);
	if (record->sample.chain_len > PERF_RECORD_SIZE_MAX)
		pen->full = true;
	put(pen, record->sample.chain, record->sample.chain_len * sizeof(uint64_t));
	if (format->sample_type & PERF_SAMPLE_REGS_USER) {
		put_word(pen, record->sample.regs_abi);
		if (record->sample.regs_abi != PERF_SAMPLE_REGS_ABI_NONE) {
			if (record->sample.regs_len != regs)
				return -EINVAL;
			put(pen, record->sample.regs, regs * sizeof(uint64_t));
		}
	}
	if (format->sample_type & PERF_SAMPLE_STACK_USER)
		encode_stack(pen, &record->sample);
	return 0;
}

static void encode_mmap(struct pen *pen, const struct perf_record *record)
{
	const struct perf_record_file *file = &record->mmap.file;
	uint8_t build_id[24] = { (uint8_t)file->build_id_len };

	put_pair(pen, record->pid, record->tid);
	put_word(pen, record->mmap.start);
	put_word(pen, record->mmap.len);
	put_word(pen, record->mmap.offset);
	if (file->build_id_len > 0) {
		memcpy(build_id + 4, file->build_id, PERF_RECORD_BUILD_ID_MAX);
		put(pen, build_id, sizeof(build_id));
	} else {
		put_pair(pen, file->major, file->minor);
		put_word(pen, file->inode);
		put_word(pen, file->inode_generation);
	}
	put_pair(pen, record->mmap.prot, record->mmap.flags);
	put_text(pen, record->mmap.path, record->mmap.path_len);
}

/* The misc bits that say how the body is to be read. */
static uint16_t encode_misc(const struct perf_record *record)
{
	unsigned misc = record->misc;

	if (record->type == PERF_RECORD_MMAP2) {
		misc &= ~(unsigned)PERF_RECORD_MISC_MMAP_BUILD_ID;
		misc |= record->mmap.file.build_id_len > 0 ? (unsigned)PERF_RECORD_MISC_MMAP_BUILD_ID : 0;
	} else if (record->type == PERF_RECORD_COMM) {
		misc &= ~(unsigned)PERF_RECORD_MISC_COMM_EXEC;
		misc |= record->comm.exec ? (unsigned)PERF_RECORD_MISC_COMM_EXEC : 0;
	}
	return (uint16_t)misc;
}

static int encode_body(const struct perf_record_format *format, struct pen *pen, const struct perf_record *record)
{
	switch (record->type) {
	case PERF_RECORD_SAMPLE:
		return encode_sample(format, pen, record);
	case PERF_RECORD_MMAP2:
		encode_mmap(pen, record);
		return 0;
	case PERF_RECORD_COMM:
		put_pair(pen, record->pid, record->tid);
		put_text(pen, record->comm.name, record->comm.name_len);
		return 0;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		put_pair(pen, record->pid, record->fork.ppid);
		put_pair(pen, record->tid, record->fork.ptid);
		put_word(pen, record->time_ns);
		return 0;
	case PERF_RECORD_LOST:
		put_word(pen, 0);
		put_word(pen, record->lost.count);
		return 0;
	default:
		return -EINVAL;
	}
}

int perf_record_encode(const struct perf_record_format *format, const struct perf_record *record, void *buf, size_t cap,
		       size_t *ret_size)
{
	struct perf_event_header head = { .type = record->type, .misc = encode_misc(record) };
	struct pen pen = { .at = buf, .left = cap < PERF_RECORD_SIZE_MAX ? cap : PERF_RECORD_SIZE_MAX };
	int r;

	if ((format->sample_type | PERF_RECORD_FRAME_POINTERS) != format->sample_type ||
	    (format->sample_type & ~PERF_RECORD_SAMPLE_TYPES))
		return -EINVAL;
	put(&pen, &head, sizeof(head));
	r = encode_body(format, &pen, record);
	if (r < 0)
		return r;
	if (record->type != PERF_RECORD_SAMPLE) {
		put_pair(&pen, record->pid, record->tid);
		put_word(&pen, record->time_ns);
		put_pair(&pen, record->cpu, 0);
	}
	if (pen.full)
		return -ENOSPC;
	head.size = (uint16_t)pen.used;
	memcpy(buf, &head, sizeof(head));
	*ret_size = pen.used;
	return 0;
}

bool perf_record_file_same(const struct perf_record_file *a, const struct perf_record_file *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/*
 * perf_merge.c: the bytes as they came and beside them an index that is sorted. Records carry their
 * own size.
 */

int perf_merge_add(struct perf_merge *merge, const void *record, size_t size, uint64_t time_ns)
{
	size_t at = merge->bytes.len;
	int r;

	assert(size % PERF_RECORD_ALIGN == 0);
	if (merge->count == merge->cap) {
		size_t cap = merge->cap == 0 ? 64 : 2 * merge->cap;
		struct perf_merge_entry *entries = reallocarray(merge->entries, cap, sizeof(*entries));

		if (entries == NULL)
			return -ENOMEM;
		merge->entries = entries;
		merge->cap = cap;
	}
	r = buffer_append(&merge->bytes, record, size);
	if (r == 0)
		merge->entries[merge->count++] = (struct perf_merge_entry){ time_ns, at };
	return r;
}

static int compare(const void *left, const void *right)
{
	const struct perf_merge_entry *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	return a->at < b->at ? -1 : a->at > b->at;
}

void perf_merge_sort(struct perf_merge *merge)
{
	if (merge->count > 0)
		qsort(merge->entries, merge->count, sizeof(*merge->entries), compare);
}

const void *perf_merge_record(const struct perf_merge *merge, size_t index, size_t *ret_size)
{
	const char *record = merge->bytes.data + merge->entries[index].at;
	struct perf_event_header header;

	memcpy(&header, record, sizeof(header));
	*ret_size = header.size;
	return record;
}

int perf_merge_write(const struct perf_merge *merge, const struct sink *sink)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < merge->count; i++) {
		size_t size;
		const void *record = perf_merge_record(merge, i, &size);

		r = sink_write(sink, record, size);
	}
	return r;
}

void perf_merge_clear(struct perf_merge *merge)
{
	merge->count = 0;
	merge->bytes.len = 0;
}

void perf_merge_release(struct perf_merge *merge)
{
	buffer_release(&merge->bytes);
	free(merge->entries);
	merge->entries = NULL;
	merge->count = merge->cap = 0;
}

int perf_ring_init(struct perf_ring *ring, void *base, size_t map_bytes, size_t page_bytes)
{
	size_t size = map_bytes - page_bytes;

	if (map_bytes <= page_bytes || page_bytes < sizeof(struct perf_event_mmap_page) || (size & (size - 1)) != 0)
		return -EINVAL;
	*ring = (struct perf_ring){ base, (const uint8_t *)base + page_bytes, size };
	return 0;
}

/* What was published up to head is seen by whoever saw head. */
static uint64_t load_head(const struct perf_ring *ring)
{
	return __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
}

/* len bytes from the free-running position on, in two pieces where the ring wraps. */
static void copy_out(const struct perf_ring *ring, uint64_t position, void *buf, size_t len)
{
	size_t at = (size_t)(position & (ring->size - 1));
	size_t first = len < ring->size - at ? len : ring->size - at;

	memcpy(buf, ring->data + at, first);
	memcpy((uint8_t *)buf + first, ring->data, len - first);
}

void perf_ring_snapshot(const struct perf_ring *ring, void *buf, size_t *ret_len, bool *ret_torn)
{
	uint64_t head = load_head(ring), written = 0 - head, moved;
	size_t len = 0, end = written < ring->size ? (size_t)written : ring->size, unused = ring->size - end;
	bool torn = false;

	copy_out(ring, head, buf, end);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	moved = head - load_head(ring);
	/* What was never written gives way first. */
	moved -= moved < unused ? moved : unused;
	end -= moved < end ? (size_t)moved : end;
	while (end - len >= sizeof(struct perf_event_header)) {
		struct perf_event_header header;

		memcpy(&header, (const uint8_t *)buf + len, sizeof(header));
		if (header.type == 0 && header.size == 0)
			break;
		if (header.size < sizeof(header) || header.size % PERF_RECORD_ALIGN != 0) {
			torn = true;
			break;
		}
		if (header.size > end - len)
			break;
		len += header.size;
	}
	*ret_len = len;
	if (ret_torn != NULL)
		*ret_torn = torn;
}

bool perf_ring_came_round(const struct perf_ring *ring)
{
	return 0 - load_head(ring) > ring->size;
}

uint64_t perf_ring_head(const struct perf_ring *ring)
{
	return load_head(ring);
}

/*
 * How many there were in `written` bytes, if all were like the `count` of len bytes that are still
 * there.
 */
static size_t estimate(uint64_t written, size_t count, uint64_t len, size_t most)
{
	double all = (double)count * (double)written / (double)len;

	return all < (double)most ? (size_t)all : most;
}

/*
 * Near its end the ring may be written to meanwhile: what makes no sense there is only the end of
 * what can be counted.
 */
size_t perf_ring_count(const struct perf_ring *ring, uint64_t since, size_t most)
{
	uint64_t head = load_head(ring), written = since - head, len = 0;
	size_t count = 0;

	while (len != written && count < most) {
		struct perf_event_header header;

		memcpy(&header, ring->data + (size_t)((head + len) & (ring->size - 1)),
		       sizeof(header)); /* aligned: does not wrap */
		if (header.size < sizeof(header) || header.size % PERF_RECORD_ALIGN != 0 ||
		    header.size > ring->size - len || header.size > written - len)
			return written > ring->size && count > 0 ? estimate(written, count, len, most) : most;
		len += header.size;
		count++;
	}
	return count;
}

/* The record at tail, whole: in the ring, or put together in scratch. NULL: it makes no sense. */
static const struct perf_event_header *record_at(const struct perf_ring *ring, uint64_t tail, uint64_t head,
						 void *scratch)
{
	size_t at = (size_t)(tail & (ring->size - 1));
	struct perf_event_header header;

	if (at % PERF_RECORD_ALIGN != 0 || head - tail < sizeof(header))
		return NULL;
	memcpy(&header, ring->data + at, sizeof(header)); /* aligned: does not wrap */
	if (header.size < sizeof(header) || header.size % PERF_RECORD_ALIGN != 0 || header.size > head - tail)
		return NULL;
	if (header.size <= ring->size - at)
		return (const void *)(ring->data + at);
	copy_out(ring, tail, scratch, header.size);
	memcpy(scratch, &header, sizeof(header));
	return scratch;
}

int perf_ring_drain(struct perf_ring *ring, void *scratch, perf_ring_take *take, void *ctx)
{
	uint64_t head = load_head(ring), tail = ring->page->data_tail;
	int r = head - tail > ring->size ? -EBADMSG : 0;

	while (r == 0 && tail != head) {
		const struct perf_event_header *record = record_at(ring, tail, head, scratch);

		if (record == NULL) {
			r = -EBADMSG;
			break;
		}
		tail += record->size;
		r = take(ctx, record, record->size);
	}
	if (r == -EBADMSG)
		tail = head;
	__atomic_store_n(&ring->page->data_tail, tail, __ATOMIC_RELEASE);
	return r;
}
