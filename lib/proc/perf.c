/*
 * perf.c: records, and both kinds of ring by the kernel's free-running data_head.
 *
 * A cursor walks over one record's bytes: each read takes a word off the front or fails, and the
 * failure is sticky; what is left after the trailer was cut off the end is the body. A record whose
 * words do not add up is refused as a whole: a ring that was overwritten under its reader looks
 * like that. Layout, all in words of 8 bytes:
 *   head     type 32, misc 16, size 16
 *   SAMPLE   ip | pid tid | time | cpu res | period | nr ips[nr] | abi regs[] | size stack[size]
 *            dyn_size | cgroup, each if asked for
 *   MMAP2    pid tid | addr | len | pgoff | maj min ino gen, or size 8 res 24 build_id[20] | prot
 *            flags | filename
 *   COMM     pid tid | comm         FORK, EXIT  pid ppid | tid ptid | time        LOST  id | lost
 *            LOST_SAMPLES  lost          CGROUP  id | path
 *   trailer of all but SAMPLE: pid tid | time | cpu res, those that samples have
 *
 * Overwriting ring: the kernel writes towards lower addresses, so data_head is the newest record
 * and older ones follow, up to one ring's length further on, where the oldest is cut by the newest:
 *
 *     head                                   head + size
 *      │ newest │ older │ ...  │ oldest, cut │
 *
 * It is copied first (two pieces, where it wraps) and walked afterwards, so that it is paused no
 * longer than that. If head has moved down by n bytes when the copy is done, its last n bytes may
 * be newer than their surroundings: they are left out. A ring that has not wrapped is copied as far
 * as it was written.
 *
 * Forward ring: data_tail is the reader's; the kernel does not write beyond it by more than the
 * ring's size. A record that wraps is assembled in the caller's scratch.
 */
#include "lib/proc/perf.h"

#include "lib/base/base.h"
#include "lib/base/map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct cursor {
	const uint8_t *at;
	size_t left;
	bool failed; /* sticky */
};

static uint64_t take_word(struct cursor *cursor)
{
	uint64_t word;

	if (cursor->left < sizeof(word)) {
		cursor->failed = true;
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

/* count words, in place; NULL: there are fewer. */
static const uint64_t *take_words(struct cursor *cursor, uint64_t count)
{
	const uint64_t *words = (const void *)cursor->at;

	if (count > cursor->left / sizeof(*words)) {
		cursor->failed = true;
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
		cursor->failed = true;
	sample->stack_bytes = (size_t)filled;
}

/* A size of 32 bits and as many bytes, together whole words. */
static void decode_raw(struct cursor *cursor, struct perf_record_sample *sample)
{
	const uint8_t *at = cursor->at;
	uint32_t size = 0;

	if (cursor->left >= sizeof(size))
		memcpy(&size, at, sizeof(size));
	if ((sizeof(size) + size) % 8 != 0 || !take_words(cursor, (sizeof(size) + size) / 8)) {
		cursor->failed = true;
		return;
	}
	if (size > sizeof(size)) { /* else only padding */
		sample->raw = at + sizeof(size);
		sample->raw_bytes = size;
	}
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
	if (type & PERF_SAMPLE_RAW)
		decode_raw(cursor, sample);
	if (type & PERF_SAMPLE_REGS_USER) {
		sample->regs_abi = take_word(cursor);
		sample->regs_len = sample->regs_abi == PERF_SAMPLE_REGS_ABI_NONE
					   ? 0
					   : (size_t)__builtin_popcountll(format->regs_user);
		sample->regs = sample->regs_len > 0 ? take_words(cursor, sample->regs_len) : NULL;
	}
	if (type & PERF_SAMPLE_STACK_USER)
		decode_stack(cursor, sample);
	if (type & PERF_SAMPLE_CGROUP)
		sample->cgroup = take_word(cursor);
}

/* The text that is the rest of the body. */
static const char *take_text(struct cursor *cursor, size_t *ret_len)
{
	const char *text = (const char *)cursor->at;

	*ret_len = strnlen(text, cursor->left);
	if (*ret_len == cursor->left)
		cursor->failed = true;
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
		cursor->failed = true;
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
		cursor->failed = true;
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
	case PERF_RECORD_CGROUP:
		ret->cgroup.id = take_word(cursor);
		ret->cgroup.path = take_text(cursor, &ret->cgroup.path_len);
		break;
	default:
		break;
	}
}

/* Cuts the trailer off the end. Before the body, whose pid and tid prevail. */
static void decode_trailer(const struct perf_record_format *format, struct cursor *cursor, struct perf_record *ret)
{
	uint64_t type = format->sample_type & (PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU);
	size_t len = 8 * (size_t)__builtin_popcountll(type);
	struct cursor trailer = { .left = len };
	uint32_t unused;

	if (cursor->left < len) {
		cursor->failed = true;
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
	if (cursor.failed)
		return -EBADMSG;
	*ret = record;
	return 0;
}

/* ---- encoding ---- */

struct encoder {
	uint8_t *at;
	size_t left, used;
	bool full; /* sticky */
};

static void encode_bytes(struct encoder *encoder, const void *data, size_t len)
{
	if (encoder->full || len > encoder->left) {
		encoder->full = true;
		return;
	}
	if (len > 0)
		memcpy(encoder->at, data, len);
	encoder->at += len;
	encoder->left -= len;
	encoder->used += len;
}

static void encode_word(struct encoder *encoder, uint64_t word)
{
	encode_bytes(encoder, &word, sizeof(word));
}

static void encode_pair(struct encoder *encoder, uint32_t first, uint32_t second)
{
	uint32_t pair[2] = { first, second };

	encode_bytes(encoder, pair, sizeof(pair));
}

static void encode_zeroes(struct encoder *encoder, size_t len)
{
	static const uint8_t zeroes[8];

	encode_bytes(encoder, zeroes, len);
}

/* Terminated, and padded to a word. */
static void encode_text(struct encoder *encoder, const char *text, size_t len)
{
	encode_bytes(encoder, text, len);
	encode_zeroes(encoder, 8 - len % 8);
}

static void encode_stack(struct encoder *encoder, const struct perf_record_sample *sample)
{
	size_t size = sample->stack != NULL ? (sample->stack_bytes + 7) / 8 * 8 : 0;

	if (sample->stack != NULL && sample->stack_bytes > PERF_RECORD_SIZE_MAX)
		encoder->full = true;
	encode_word(encoder, size);
	if (size == 0 || encoder->full)
		return;
	encode_bytes(encoder, sample->stack, sample->stack_bytes);
	encode_zeroes(encoder, size - sample->stack_bytes);
	encode_word(encoder, sample->stack_bytes);
}

static int encode_sample(const struct perf_record_format *format, struct encoder *encoder,
			 const struct perf_record *record)
{
	size_t regs = (size_t)__builtin_popcountll(format->regs_user);

	encode_word(encoder, record->sample.ip);
	encode_pair(encoder, record->pid, record->tid);
	encode_word(encoder, record->time_ns);
	encode_pair(encoder, record->cpu, 0);
	encode_word(encoder, record->sample.period);
	encode_word(encoder, record->sample.chain_len);
	if (record->sample.chain_len > PERF_RECORD_SIZE_MAX)
		encoder->full = true;
	encode_bytes(encoder, record->sample.chain, record->sample.chain_len * sizeof(uint64_t));
	if (format->sample_type & PERF_SAMPLE_REGS_USER) {
		encode_word(encoder, record->sample.regs_abi);
		if (record->sample.regs_abi != PERF_SAMPLE_REGS_ABI_NONE) {
			if (record->sample.regs_len != regs)
				return -EINVAL;
			encode_bytes(encoder, record->sample.regs, regs * sizeof(uint64_t));
		}
	}
	if (format->sample_type & PERF_SAMPLE_STACK_USER)
		encode_stack(encoder, &record->sample);
	if (format->sample_type & PERF_SAMPLE_CGROUP)
		encode_word(encoder, record->sample.cgroup);
	return 0;
}

static void encode_mmap(struct encoder *encoder, const struct perf_record *record)
{
	const struct perf_record_file *file = &record->mmap.file;
	uint8_t build_id[24] = { (uint8_t)file->build_id_len };

	encode_pair(encoder, record->pid, record->tid);
	encode_word(encoder, record->mmap.start);
	encode_word(encoder, record->mmap.len);
	encode_word(encoder, record->mmap.offset);
	if (file->build_id_len > 0) {
		memcpy(build_id + 4, file->build_id, PERF_RECORD_BUILD_ID_MAX);
		encode_bytes(encoder, build_id, sizeof(build_id));
	} else {
		encode_pair(encoder, file->major, file->minor);
		encode_word(encoder, file->inode);
		encode_word(encoder, file->inode_generation);
	}
	encode_pair(encoder, record->mmap.prot, record->mmap.flags);
	encode_text(encoder, record->mmap.path, record->mmap.path_len);
}

/* misc says how the body is to be decoded. */
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

static int encode_body(const struct perf_record_format *format, struct encoder *encoder,
		       const struct perf_record *record)
{
	switch (record->type) {
	case PERF_RECORD_SAMPLE:
		return encode_sample(format, encoder, record);
	case PERF_RECORD_MMAP2:
		encode_mmap(encoder, record);
		return 0;
	case PERF_RECORD_COMM:
		encode_pair(encoder, record->pid, record->tid);
		encode_text(encoder, record->comm.name, record->comm.name_len);
		return 0;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT:
		encode_pair(encoder, record->pid, record->fork.ppid);
		encode_pair(encoder, record->tid, record->fork.ptid);
		encode_word(encoder, record->time_ns);
		return 0;
	case PERF_RECORD_LOST:
		encode_word(encoder, 0);
		encode_word(encoder, record->lost.count);
		return 0;
	default:
		return -EINVAL;
	}
}

int perf_record_encode(const struct perf_record_format *format, const struct perf_record *record, void *buf, size_t cap,
		       size_t *ret_size)
{
	struct perf_event_header head = { .type = record->type, .misc = encode_misc(record) };
	struct encoder encoder = { .at = buf, .left = cap < PERF_RECORD_SIZE_MAX ? cap : PERF_RECORD_SIZE_MAX };
	int r;

	if ((format->sample_type | PERF_RECORD_FRAME_POINTERS) != format->sample_type ||
	    (format->sample_type & ~(PERF_RECORD_SAMPLE_TYPES & ~(uint64_t)PERF_SAMPLE_RAW)))
		return -EINVAL;
	encode_bytes(&encoder, &head, sizeof(head));
	r = encode_body(format, &encoder, record);
	if (r < 0)
		return r;
	if (record->type != PERF_RECORD_SAMPLE) {
		encode_pair(&encoder, record->pid, record->tid);
		encode_word(&encoder, record->time_ns);
		encode_pair(&encoder, record->cpu, 0);
	}
	if (encoder.full)
		return -ENOSPC;
	head.size = (uint16_t)encoder.used;
	memcpy(buf, &head, sizeof(head));
	*ret_size = encoder.used;
	return 0;
}

/*
 * As large as two records can be, less what malloc(3) and the counts take: whole pages in a map of
 * its own. Pages behind the last record are never touched, and so take no memory.
 */
#define CHUNK_BYTES ((128u << 10) - 64)

_Static_assert(CHUNK_BYTES >= PERF_RECORD_SIZE_MAX && CHUNK_BYTES % PERF_RECORD_ALIGN == 0, "no record fits");

struct perf_merge_chunk {
	size_t used;    /* bytes */
	size_t records; /* that have not been written */
	_Alignas(PERF_RECORD_ALIGN) uint8_t data[CHUNK_BYTES];
};

/* One that has room for size bytes; NULL when memory is short. */
static struct perf_merge_chunk *chunk_with_room(struct perf_merge *merge, size_t size)
{
	struct perf_merge_chunk *chunk = merge->chunk_count > 0 ? merge->chunks[merge->chunk_count - 1] : NULL;

	/* It was cleared. */
	if (chunk != NULL && merge->count == 0)
		chunk->used = chunk->records = 0;
	if (chunk != NULL && size <= CHUNK_BYTES - chunk->used)
		return chunk;
	if (vector_reserve(&merge->chunks, &merge->chunk_cap, merge->chunk_count + 1,
			   sizeof(struct perf_merge_chunk *)) < 0)
		return NULL;
	chunk = malloc(sizeof(*chunk));
	if (chunk == NULL)
		return NULL;
	chunk->used = chunk->records = 0;
	merge->chunks[merge->chunk_count++] = chunk;
	return chunk;
}

int perf_merge_add(struct perf_merge *merge, const void *record, size_t size, uint64_t time_ns)
{
	struct perf_merge_chunk *chunk;

	assert(size % PERF_RECORD_ALIGN == 0 && size <= PERF_RECORD_SIZE_MAX);
	if (merge->max_bytes > 0 && (merge->bytes > merge->max_bytes || size > merge->max_bytes - merge->bytes))
		return -EFBIG;
	if (vector_reserve(&merge->entries, &merge->cap, merge->count + 1, sizeof(*merge->entries)) < 0)
		return -ENOMEM;
	chunk = chunk_with_room(merge, size);
	if (chunk == NULL)
		return -ENOMEM;
	memcpy(chunk->data + chunk->used, record, size);
	merge->entries[merge->count++] =
		(struct perf_merge_entry){ time_ns, (merge->chunk_count - 1) * CHUNK_BYTES + chunk->used };
	chunk->used += size;
	chunk->records++;
	merge->bytes += size;
	return 0;
}

static int compare_entries(const void *left, const void *right)
{
	const struct perf_merge_entry *a = left, *b = right;

	if (a->time_ns != b->time_ns)
		return a->time_ns < b->time_ns ? -1 : 1;
	return a->at < b->at ? -1 : a->at > b->at;
}

void perf_merge_sort(struct perf_merge *merge)
{
	if (merge->count > 0)
		qsort(merge->entries, merge->count, sizeof(*merge->entries), compare_entries);
}

const void *perf_merge_record(const struct perf_merge *merge, size_t index, size_t *ret_size)
{
	size_t at = merge->entries[index].at;
	const uint8_t *record = merge->chunks[at / CHUNK_BYTES]->data + at % CHUNK_BYTES;
	struct perf_event_header header;

	memcpy(&header, record, sizeof(header));
	*ret_size = header.size;
	return record;
}

/*
 * The records of each ring come in the order of their times or backwards, so that chunks are
 * written out one after the other for each of the rings, and not all at the end.
 */
int perf_merge_write(struct perf_merge *merge, const struct sink *sink)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < merge->count; i++) {
		struct perf_merge_chunk **chunk = &merge->chunks[merge->entries[i].at / CHUNK_BYTES];
		size_t size;
		const void *record = perf_merge_record(merge, i, &size);

		r = sink_write(sink, record, size);
		if (--(*chunk)->records == 0)
			free(TAKE(*chunk));
	}
	perf_merge_release(merge);
	return r;
}

void perf_merge_release(struct perf_merge *merge)
{
	while (merge->chunk_count > 0)
		free(merge->chunks[--merge->chunk_count]);
	free(merge->chunks);
	free(merge->entries);
	*merge = (struct perf_merge){ .max_bytes = merge->max_bytes };
}

int perf_ring_init(struct perf_ring *ring, void *base, size_t map_bytes, size_t page_bytes)
{
	size_t size = map_bytes - page_bytes;

	if (map_bytes <= page_bytes || page_bytes < sizeof(struct perf_event_mmap_page) || (size & (size - 1)) != 0)
		return -EINVAL;
	*ring = (struct perf_ring){ base, (const uint8_t *)base + page_bytes, size };
	return 0;
}

/* Acquire: all that the kernel wrote before it published head is visible. */
/* len bytes from the free-running position on, in two pieces where the ring wraps. */
static void copy_out(const struct perf_ring *ring, uint64_t position, void *buf, size_t len)
{
	size_t at = (size_t)(position & (ring->size - 1));
	size_t first = len < ring->size - at ? len : ring->size - at;

	memcpy(buf, ring->data + at, first);
	memcpy((uint8_t *)buf + first, ring->data, len - first);
}

/* How many of the ring's bytes from the walk's beginning on were not overwritten since. */
static size_t still_there(const struct perf_ring *ring, const struct perf_ring_walk *walk)
{
	uint64_t written = 0 - walk->head, moved = walk->head - perf_ring_head(ring);
	size_t end = written < ring->size ? (size_t)written : ring->size, unused = ring->size - end;

	/* The part that was never written goes first. */
	moved -= moved < unused ? moved : unused;
	return end - (moved < end ? (size_t)moved : end);
}

/* Whole records at the beginning of len bytes. *ret_torn: they end at an invalid one. */
static size_t whole_records(const uint8_t *bytes, size_t len, bool *ret_torn)
{
	size_t at = 0;

	while (len - at >= sizeof(struct perf_event_header)) {
		struct perf_event_header header;

		memcpy(&header, bytes + at, sizeof(header));
		if (header.type == 0 && header.size == 0)
			break;
		*ret_torn = header.size < sizeof(header) || header.size % PERF_RECORD_ALIGN != 0;
		if (*ret_torn || header.size > len - at)
			break;
		at += header.size;
	}
	return at;
}

size_t perf_ring_snapshot(const struct perf_ring *ring, struct perf_ring_walk *walk, void *buf, size_t cap)
{
	size_t end, len;

	if (!walk->begun)
		*walk = (struct perf_ring_walk){ .head = perf_ring_head(ring), .begun = true };
	end = still_there(ring, walk);
	if (walk->ended || end <= walk->at)
		return 0;

	len = end - walk->at < cap ? end - walk->at : cap;
	copy_out(ring, walk->head + walk->at, buf, len);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	end = still_there(ring, walk);
	if (end <= walk->at)
		return 0;

	len = whole_records(buf, end - walk->at < len ? end - walk->at : len, &walk->torn);
	walk->at += len;
	walk->ended = walk->torn || len == 0;
	return len;
}

/* How many records `written` bytes had, if all were like the `count` of len bytes still there. */
static size_t estimate_count(uint64_t written, size_t count, uint64_t len, size_t most)
{
	double all = (double)count * (double)written / (double)len;

	return all < (double)most ? (size_t)all : most;
}

/* The far end of the ring may be overwritten meanwhile: counting ends at an invalid record. */
size_t perf_ring_count(const struct perf_ring *ring, uint64_t since, size_t most)
{
	uint64_t head = perf_ring_head(ring), written = since - head, len = 0;
	size_t count = 0;

	while (len != written && count < most) {
		struct perf_event_header header;

		memcpy(&header, ring->data + (size_t)((head + len) & (ring->size - 1)),
		       sizeof(header)); /* aligned: does not wrap */
		if (header.size < sizeof(header) || header.size % PERF_RECORD_ALIGN != 0 ||
		    header.size > ring->size - len || header.size > written - len)
			return written > ring->size && count > 0 ? estimate_count(written, count, len, most) : most;
		len += header.size;
		count++;
	}
	return count;
}

/* The record at tail: in the ring, or assembled in scratch. NULL: invalid. */
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
	uint64_t head = perf_ring_head(ring), tail = ring->page->data_tail;
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
