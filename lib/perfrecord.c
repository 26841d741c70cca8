/*
 * perfrecord.c: a cursor over one record's bytes. Each read takes a word off the front or says no; what is left after the trailer was cut off
 * the end is the body. A record whose words do not add up is refused as a whole: a ring that was overwritten under its reader looks like that.
 *
 * Layout (perf_event_open(2)), all in words of 8 bytes:
 *   head     type 32, misc 16, size 16
 *   SAMPLE   ip | pid tid | time | cpu res | period | nr ips[nr] | abi regs[] | size stack[size] dyn_size, each if asked for
 *   MMAP2    pid tid | addr | len | pgoff | maj min ino gen, or size 8 res 24 build_id[20] | prot flags | filename
 *   COMM     pid tid | comm         FORK, EXIT  pid ppid | tid ptid | time        LOST  id | lost      LOST_SAMPLES  lost
 *   trailer of all but SAMPLE: pid tid | time | cpu res, those that samples have
 */
#include "perfrecord.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct cursor {
	const uint8_t *at;
	size_t left;
	bool short_of; /* sticky: a word was not there */
};

static uint64_t take(struct cursor *cursor)
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
	uint64_t word = take(cursor);

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

static void decode_stack(struct cursor *cursor, struct perfrecord_sample *sample)
{
	uint64_t size = take(cursor), filled;

	if (size == 0)
		return;
	sample->stack = (const uint8_t *)take_words(cursor, size / 8);
	filled = take(cursor);
	if (size % 8 != 0 || filled > size)
		cursor->short_of = true;
	sample->stack_bytes = (size_t)filled;
}

static void decode_sample(const struct perfrecord_format *format, struct cursor *cursor, struct perfrecord *ret)
{
	uint64_t type = format->sample_type;
	struct perfrecord_sample *sample = &ret->sample;
	uint32_t unused;

	if (type & PERF_SAMPLE_IP)
		sample->ip = take(cursor);
	if (type & PERF_SAMPLE_TID)
		take_pair(cursor, &ret->pid, &ret->tid);
	if (type & PERF_SAMPLE_TIME)
		ret->time_ns = take(cursor);
	if (type & PERF_SAMPLE_CPU)
		take_pair(cursor, &ret->cpu, &unused);
	if (type & PERF_SAMPLE_PERIOD)
		sample->period = take(cursor);
	if (type & PERF_SAMPLE_CALLCHAIN) {
		sample->chain_len = take(cursor);
		sample->chain = take_words(cursor, sample->chain_len);
	}
	if (type & PERF_SAMPLE_REGS_USER) {
		sample->regs_abi = take(cursor);
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

static void decode_file(struct cursor *cursor, bool has_build_id, struct perfrecord_file *ret)
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
	} else if (bytes[0] > PERFRECORD_BUILD_ID_MAX) {
		cursor->short_of = true;
	} else {
		ret->build_id_len = bytes[0];
		memcpy(ret->build_id, bytes + 4, ret->build_id_len);
	}
}

static void decode_mmap(struct cursor *cursor, struct perfrecord *ret)
{
	struct perfrecord_mmap *mmap = &ret->mmap;

	take_pair(cursor, &ret->pid, &ret->tid);
	mmap->start = take(cursor);
	mmap->len = take(cursor);
	mmap->offset = take(cursor);
	decode_file(cursor, (ret->misc & PERF_RECORD_MISC_MMAP_BUILD_ID) != 0, &mmap->file);
	take_pair(cursor, &mmap->prot, &mmap->flags);
	mmap->path = take_text(cursor, &mmap->path_len);
	if (mmap->start + mmap->len < mmap->start)
		cursor->short_of = true;
}

static void decode_body(struct cursor *cursor, struct perfrecord *ret)
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
		take(cursor);
		break;
	case PERF_RECORD_LOST:
		take(cursor);
		ret->lost.count = take(cursor);
		break;
	case PERF_RECORD_LOST_SAMPLES:
		ret->lost.count = take(cursor);
		break;
	default:
		break;
	}
}

/* Cuts the trailer off the end. Before the body, which knows pid and tid better. */
static void decode_trailer(const struct perfrecord_format *format, struct cursor *cursor, struct perfrecord *ret)
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
		ret->time_ns = take(&trailer);
	if (type & PERF_SAMPLE_CPU)
		take_pair(&trailer, &ret->cpu, &unused);
}

int perfrecord_decode(const struct perfrecord_format *format, const void *data, size_t len, struct perfrecord *ret)
{
	struct perf_event_header head;
	struct perfrecord record;
	struct cursor cursor;

	assert((uintptr_t)data % PERFRECORD_ALIGN == 0);
	if (format->sample_type & ~PERFRECORD_SAMPLE_TYPES)
		return -EINVAL;
	if (len < sizeof(head))
		return -EBADMSG;
	memcpy(&head, data, sizeof(head));
	if (head.size < sizeof(head) || head.size > len || head.size % PERFRECORD_ALIGN != 0)
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

static void encode_stack(struct pen *pen, const struct perfrecord_sample *sample)
{
	size_t size = sample->stack != NULL ? (sample->stack_bytes + 7) / 8 * 8 : 0;

	if (sample->stack != NULL && sample->stack_bytes > PERFRECORD_SIZE_MAX)
		pen->full = true;
	put_word(pen, size);
	if (size == 0 || pen->full)
		return;
	put(pen, sample->stack, sample->stack_bytes);
	put_zeroes(pen, size - sample->stack_bytes);
	put_word(pen, sample->stack_bytes);
}

static int encode_sample(const struct perfrecord_format *format, struct pen *pen, const struct perfrecord *record)
{
	size_t regs = (size_t)__builtin_popcountll(format->regs_user);

	put_word(pen, record->sample.ip);
	put_pair(pen, record->pid, record->tid);
	put_word(pen, record->time_ns);
	put_pair(pen, record->cpu, 0);
	put_word(pen, record->sample.period);
	put_word(pen, record->sample.chain_len);
	if (record->sample.chain_len > PERFRECORD_SIZE_MAX)
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

static void encode_mmap(struct pen *pen, const struct perfrecord *record)
{
	const struct perfrecord_file *file = &record->mmap.file;
	uint8_t build_id[24] = { (uint8_t)file->build_id_len };

	put_pair(pen, record->pid, record->tid);
	put_word(pen, record->mmap.start);
	put_word(pen, record->mmap.len);
	put_word(pen, record->mmap.offset);
	if (file->build_id_len > 0) {
		memcpy(build_id + 4, file->build_id, PERFRECORD_BUILD_ID_MAX);
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
static uint16_t encode_misc(const struct perfrecord *record)
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

static int encode_body(const struct perfrecord_format *format, struct pen *pen, const struct perfrecord *record)
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

int perfrecord_encode_as(const struct perfrecord_format *format, const struct perfrecord *record, void *buf, size_t cap,
			 size_t *ret_size)
{
	struct perf_event_header head = { .type = record->type, .misc = encode_misc(record) };
	struct pen pen = { .at = buf, .left = cap < PERFRECORD_SIZE_MAX ? cap : PERFRECORD_SIZE_MAX };
	int r;

	if ((format->sample_type | PERFRECORD_FRAME_POINTERS) != format->sample_type ||
	    (format->sample_type & ~PERFRECORD_SAMPLE_TYPES))
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

int perfrecord_encode(const struct perfrecord *record, void *buf, size_t cap, size_t *ret_size)
{
	const struct perfrecord_format format = { .sample_type = PERFRECORD_FRAME_POINTERS };

	return perfrecord_encode_as(&format, record, buf, cap, ret_size);
}

bool perfrecord_file_same(const struct perfrecord_file *a, const struct perfrecord_file *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}
