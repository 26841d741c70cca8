/*
 * perf.h: records of perf_event_open(2): from bytes and to bytes; put in the order of their times;
 * and the two ways to read the kernel's rings: a snapshot of one that overwrites its oldest
 * (attr.write_backward), and draining one that waits for its reader. Pure: works on any memory of
 * that layout. Nothing in it is trusted: sizes, counts and texts are compared with what is there.
 *
 * Source: perf_event_open(2), linux/perf_event.h.
 */
#ifndef SPIKEWATCH_LIB_PROC_PERF_H
#define SPIKEWATCH_LIB_PROC_PERF_H

#include "lib/base/io.h"

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The bits of sample_type that perf_record_decode can read. */
#define PERF_RECORD_SAMPLE_TYPES \
	((uint64_t)(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | \
		    PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_RAW | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER | \
		    PERF_SAMPLE_CGROUP))

/* What spikewatch samples with. */
#define PERF_RECORD_FRAME_POINTERS \
	((uint64_t)(PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD | \
		    PERF_SAMPLE_CALLCHAIN))

/* The same, with the registers and a copy of the stack to unwind from. */
#define PERF_RECORD_DWARF \
	(PERF_RECORD_FRAME_POINTERS | (uint64_t)PERF_SAMPLE_REGS_USER | (uint64_t)PERF_SAMPLE_STACK_USER)

/*
 * regs_user of x86-64: all but ds, es, fs and gs; from the lowest bit ax bx cx dx si di bp sp ip
 * flags cs ss r8 .. r15.
 */
#define PERF_RECORD_REGS_X86_64 0xff0fffULL

/* The size is 16 bits, a multiple of 8. */
#define PERF_RECORD_SIZE_MAX 65528u
#define PERF_RECORD_BUILD_ID_MAX 20u
#define PERF_RECORD_ALIGN 8u

/*
 * How the events were opened. sample_id_all is expected: every other record ends with what of it a
 * sample has.
 */
struct perf_record_format {
	uint64_t sample_type; /* PERF_SAMPLE_*, bits of PERF_RECORD_SAMPLE_TYPES */
	uint64_t regs_user;   /* attr.sample_regs_user, for PERF_SAMPLE_REGS_USER */
};

/* Of records without registers and stack, and of all that are not samples. */
#define PERF_RECORD_PLAIN ((const struct perf_record_format){ .sample_type = PERF_RECORD_FRAME_POINTERS })

/* Which file is mapped: by device and inode (build_id_len 0), or by build id. */
struct perf_record_file {
	uint32_t major, minor;
	uint64_t inode, inode_generation;
	uint8_t build_id[PERF_RECORD_BUILD_ID_MAX]; /* zeroes beyond build_id_len */
	uint32_t build_id_len;
};

/* Of PERF_RECORD_SAMPLE. */
struct perf_record_sample {
	uint64_t ip;
	uint64_t period;       /* ns, for the CPU clock */
	const uint64_t *chain; /* innermost first, with marks such as PERF_CONTEXT_USER (>= PERF_CONTEXT_MAX) */
	size_t chain_len;
	const uint8_t *raw;   /* what the event adds; NULL: nothing */
	size_t raw_bytes;     /* of raw, with padding */
	uint64_t regs_abi;    /* PERF_SAMPLE_REGS_ABI_*; NONE: no registers */
	const uint64_t *regs; /* one for each bit of regs_user, from the lowest; NULL without */
	size_t regs_len;
	const uint8_t *stack; /* a copy of the user stack from the stack pointer up; NULL without */
	size_t stack_bytes;   /* the part that was read */
	uint64_t cgroup;      /* of the perf_event controller's hierarchy, by inode; 0: not known */
};

/* Of PERF_RECORD_MMAP2. */
struct perf_record_mmap {
	uint64_t start, len, offset; /* offset in the file, bytes */
	struct perf_record_file file;
	uint32_t prot, flags;
	const char *path; /* terminated; "//anon", "[vdso]" and the like too */
	size_t path_len;
};

/* One record. Pointers are into the decoded bytes. */
struct perf_record {
	uint32_t type; /* PERF_RECORD_* */
	uint16_t misc;
	uint16_t size;     /* of the whole record, bytes */
	uint32_t pid, tid; /* from the body, or else the trailer */
	uint32_t cpu;
	uint64_t time_ns; /* 0 where the format has none */
	union {
		struct perf_record_sample sample;
		struct perf_record_mmap mmap;
		struct {
			const char *name; /* terminated */
			size_t name_len;
			bool exec; /* execve(2), not prctl(2) */
		} comm;
		struct {
			uint32_t ppid, ptid;
		} fork; /* and PERF_RECORD_EXIT. A new thread has pid == ppid */
		struct {
			uint64_t count;
		} lost; /* and PERF_RECORD_LOST_SAMPLES */
		struct {
			uint64_t id;      /* as in samples */
			const char *path; /* terminated */
			size_t path_len;
		} cgroup; /* that was made */
	};
};

/*
 * Reads the record at data, which is aligned to PERF_RECORD_ALIGN, of len bytes at most. Types
 * other than SAMPLE, MMAP2, COMM, FORK, EXIT, LOST, LOST_SAMPLES and CGROUP give type, misc, size and
 * the trailer, if there is one. 0: the next one is at data + ret->size. -EBADMSG: cut off, or its sizes
 * contradict each other; -EINVAL: the format asks for more than PERF_RECORD_SAMPLE_TYPES.
 */
int perf_record_decode(const struct perf_record_format *format, const void *data, size_t len, struct perf_record *ret);

/*
 * Encodes a SAMPLE, MMAP2, COMM, FORK, EXIT or LOST record as the kernel would with this format
 * (all of PERF_RECORD_FRAME_POINTERS at least) and sample_id_all into buf, 8-aligned. Of a stack,
 * what was read is written, padded to a word, without the room that the kernel leaves behind it.
 * record->size is ignored, *ret_size is what was written. 0; -ENOSPC: longer than cap, or than a
 * record can be; -EINVAL: another type or format, one with PERF_SAMPLE_RAW too, or not as many
 * registers as the format has.
 */
int perf_record_encode(const struct perf_record_format *format, const struct perf_record *record, void *buf, size_t cap,
		       size_t *ret_size);

/* Whether both identify the same file; two that are all zeroes are the same. */
static inline bool perf_record_file_same(const struct perf_record_file *a, const struct perf_record_file *b)
{
	return memcmp(a, b, sizeof(*a)) == 0;
}

/*
 * Records of many rings in the order of their times; of the same time, as they were added. They are
 * kept in chunks, so that nothing is copied as they become more, and a chunk is freed once all of
 * it has been written: there are megabytes of them just when many incidents are open.
 */
struct perf_merge_entry {
	uint64_t time_ns;
	size_t at; /* chunk and place in it: ascending in the order they were added */
};

struct perf_merge_chunk;

/* {0} is empty. */
struct perf_merge {
	size_t max_bytes; /* bounds bytes; 0: no limit */
	size_t bytes;     /* of all records */
	struct perf_merge_chunk **chunks;
	size_t chunk_count, chunk_cap;
	struct perf_merge_entry *entries;
	size_t count, cap;
};

/* Adds a copy of a record of size bytes, PERF_RECORD_SIZE_MAX at most. 0; -ENOMEM; -EFBIG: beyond max_bytes. */
int perf_merge_add(struct perf_merge *merge, const void *record, size_t size, uint64_t time_ns);

/* Puts them in order. */
void perf_merge_sort(struct perf_merge *merge);

/* The record of entry index, aligned to PERF_RECORD_ALIGN; *ret_size bytes. */
const void *perf_merge_record(const struct perf_merge *merge, size_t index, size_t *ret_size);

/* Writes all, in order, and frees them meanwhile: it is released then. 0 or what the sink returned. */
int perf_merge_write(struct perf_merge *merge, const struct sink *sink);

/* Frees it; empty and usable again, with the same limit. */
void perf_merge_release(struct perf_merge *merge);

/* Empty again; the memory stays for the next if it is little. */
static inline void perf_merge_clear(struct perf_merge *merge)
{
	if (merge->chunk_count > 1)
		perf_merge_release(merge);
	merge->count = merge->bytes = 0;
}

/* One mapping: the page of the kernel's, then `size` bytes. Not owned. */
struct perf_ring {
	struct perf_event_mmap_page *page;
	const uint8_t *data;
	size_t size; /* a power of two */
};

/*
 * base of map_bytes as mmap(2) gave it: a page of page_bytes and a power of two of them.
 * 0; -EINVAL: not of that shape.
 */
int perf_ring_init(struct perf_ring *ring, void *base, size_t map_bytes, size_t page_bytes);

/* A walk over what an overwriting ring holds, from the newest record to the oldest. {0} begins it. */
struct perf_ring_walk {
	uint64_t head; /* of the ring when it began */
	size_t at;     /* bytes from there that were copied */
	bool begun, ended;
	bool torn; /* it ended at an invalid record instead of at the ring's end */
};

/*
 * Copies the next whole records, as many as fit, into buf, which is aligned to PERF_RECORD_ALIGN; cap:
 * at least PERF_RECORD_SIZE_MAX or ring->size. Best while the ring's output is paused; what is written
 * during the walk, and what it may have overwritten, is left out. The length; 0: that was all.
 */
size_t perf_ring_snapshot(const struct perf_ring *ring, struct perf_ring_walk *walk, void *buf, size_t cap);

/* The position of an overwriting ring, for perf_ring_count. */
static inline uint64_t perf_ring_head(const struct perf_ring *ring)
{
	return __atomic_load_n(&ring->page->data_head, __ATOMIC_ACQUIRE);
}

/* Whether an overwriting ring has wrapped: if not, it holds everything since it was opened. */
static inline bool perf_ring_came_round(const struct perf_ring *ring)
{
	return 0 - perf_ring_head(ring) > ring->size;
}

/*
 * How many records were written to an overwriting ring since position `since`, at most `most`.
 * Those that are overwritten already are assumed to be as long as those that are not. Visits each
 * of them.
 */
size_t perf_ring_count(const struct perf_ring *ring, uint64_t since, size_t most);

/* Gets one record of len bytes, aligned. Anything but 0 ends perf_ring_drain and is its result. */
typedef int perf_ring_take(void *ctx, const struct perf_event_header *record, size_t len);

/*
 * Passes every record that is in a forward ring now to take, oldest first, and returns their room
 * to the kernel. scratch: PERF_RECORD_SIZE_MAX bytes, aligned, for those that wrap. 0; what take
 * returned (that record counts as taken); -EBADMSG: an invalid record: everything up to the
 * kernel's head was discarded.
 */
int perf_ring_drain(struct perf_ring *ring, void *scratch, perf_ring_take *take, void *ctx);

#endif
