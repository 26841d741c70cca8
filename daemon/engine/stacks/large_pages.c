/*
 * large_pages.c: a BPF program at the tracepoint mm_page_alloc, which has the size of what is
 * allocated. In place of a sample at each allocation it adds up, for each CPU, the pages beyond the
 * first of each allocation for user memory (the first is what the event of page faults counts), and
 * takes a sample with the sum when that is large enough and the last one is not too recent:
 *
 *   order 0, or not for user memory ──▶ nothing
 *   else  pages += 2^order - 1;  pages >= PAGES_LEAST and GAP_NS since the last  ──▶ sample(pages); pages = 0
 *
 * The program is some thirty instructions, so it is written out here: no compiler for it, no
 * library and no type information of the kernel are needed.
 *
 * Rejected: a probe of the function that handles such faults, which is free at all others, but not
 * every kernel allows one. The same tracepoint by perf_event_open(2): it needs tracefs, and costs
 * each allocation twice as much. The addresses of sampled page faults: of 1.2 GB in huge pages 614
 * faults are seen, less than one sample. CPU samples in the fault handler: names of kernel functions
 * are not shown to everyone.
 */
#include "daemon/engine/stacks/large_pages.h"

#include "lib/base/base.h"

#include <errno.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * 4 MiB, as much as page faults of a busy CPU; at most 500 a second, of 4 us each: of a CPU that
 * does nothing but clear huge pages (12,000 a second) two thousandths.
 */
#define PAGES_LEAST 1024
#define GAP_NS (2 * NS_PER_MS)

/*
 * linux/gfp_types.h: __GFP_MOVABLE and __GFP_NOMEMALLOC, the same since Linux 4.1. Both are set for
 * transparent huge pages of any size. File pages that are read ahead in large pieces have the first
 * alone; the kernel's own memory does not have that.
 */
#define GFP_LARGE_PAGE (0x08 | 0x80000)

/* Of one CPU. The program writes it, on that CPU. */
struct account {
	uint64_t pages;
	uint64_t sampled_ns;
	uint64_t samples;
};

struct large_pages {
	int events_map, accounts_map, program, link;
	const volatile struct account *accounts; /* the map, read-only */
	size_t accounts_bytes;
};

static int bpf(enum bpf_cmd command, union bpf_attr *attr)
{
	int r = (int)syscall(SYS_bpf, command, attr, sizeof(*attr));

	return r < 0 ? -errno : r;
}

static int create_map(enum bpf_map_type type, uint32_t value_size, uint32_t entries, uint32_t flags)
{
	union bpf_attr attr = { .map_type = type,
				.key_size = sizeof(uint32_t),
				.value_size = value_size,
				.max_entries = entries,
				.map_flags = flags };

	return bpf(BPF_MAP_CREATE, &attr);
}

/* ---- the program ---- */

#define INSTRUCTION(op, dst, src, offset, value) \
	{ \
		.code = (op), .dst_reg = (dst), .src_reg = (src), .off = (offset), .imm = (value) \
	}
#define LOAD(dst, src, offset) INSTRUCTION(BPF_LDX | BPF_MEM | BPF_DW, dst, src, offset, 0)
#define STORE(dst, offset, src) INSTRUCTION(BPF_STX | BPF_MEM | BPF_DW, dst, src, offset, 0)
#define STORE_VALUE(dst, offset, value) INSTRUCTION(BPF_ST | BPF_MEM | BPF_DW, dst, 0, offset, value)
#define COPY(dst, src) INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0)
#define SET(dst, value) INSTRUCTION(BPF_ALU64 | BPF_MOV | BPF_K, dst, 0, 0, value)
#define SET_32(dst, value) INSTRUCTION(BPF_ALU | BPF_MOV | BPF_K, dst, 0, 0, value)
#define COMPUTE(op, dst, src) INSTRUCTION(BPF_ALU64 | (op) | BPF_X, dst, src, 0, 0)
#define COMPUTE_VALUE(op, dst, value) INSTRUCTION(BPF_ALU64 | (op) | BPF_K, dst, 0, 0, value)
#define END_IF(op, dst, value) INSTRUCTION(BPF_JMP | (op) | BPF_K, dst, 0, TO_END, value)
#define CALL(function) INSTRUCTION(BPF_JMP | BPF_CALL, 0, 0, 0, function)
#define MAP(dst, fd) INSTRUCTION(BPF_LD | BPF_DW | BPF_IMM, dst, BPF_PSEUDO_MAP_FD, 0, fd), INSTRUCTION(0, 0, 0, 0, 0)
#define EXIT INSTRUCTION(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)

enum { R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, FRAME };

#define TO_END INT16_MAX /* of a jump; replaced by how far it is */
#define END_LENGTH 2

static int load_program(const struct large_pages *large)
{
	enum { PAGES = offsetof(struct account, pages), SAMPLED = offsetof(struct account, sampled_ns) };
	enum { SAMPLES = offsetof(struct account, samples) };
	struct bpf_insn code[] = {
		/* The tracepoint's arguments: page, order, gfp flags, migrate type. */
		COPY(R6, R1),
		LOAD(R7, R6, 8),
		COMPUTE_VALUE(BPF_AND, R7, 31),
		END_IF(BPF_JEQ, R7, 0),
		LOAD(R2, R6, 16),
		COMPUTE_VALUE(BPF_AND, R2, GFP_LARGE_PAGE),
		END_IF(BPF_JNE, R2, GFP_LARGE_PAGE),
		/* r9 = the account of this CPU */
		CALL(BPF_FUNC_get_smp_processor_id),
		INSTRUCTION(BPF_STX | BPF_MEM | BPF_W, FRAME, R0, -4, 0),
		MAP(R1, large->accounts_map),
		COPY(R2, FRAME),
		COMPUTE_VALUE(BPF_ADD, R2, -4),
		CALL(BPF_FUNC_map_lookup_elem),
		END_IF(BPF_JEQ, R0, 0),
		COPY(R9, R0),
		/* r8 = its pages, with 2^order - 1 more */
		SET(R8, 1),
		COMPUTE(BPF_LSH, R8, R7),
		COMPUTE_VALUE(BPF_SUB, R8, 1),
		LOAD(R1, R9, PAGES),
		COMPUTE(BPF_ADD, R8, R1),
		STORE(R9, PAGES, R8),
		END_IF(BPF_JLT, R8, PAGES_LEAST),
		CALL(BPF_FUNC_ktime_get_ns),
		LOAD(R1, R9, SAMPLED),
		COPY(R2, R0),
		COMPUTE(BPF_SUB, R2, R1),
		END_IF(BPF_JLT, R2, GAP_NS),
		STORE(R9, SAMPLED, R0),
		STORE_VALUE(R9, PAGES, 0),
		LOAD(R1, R9, SAMPLES),
		COMPUTE_VALUE(BPF_ADD, R1, 1),
		STORE(R9, SAMPLES, R1),
		/* the sample, with r8 */
		STORE(FRAME, -16, R8),
		COPY(R1, R6),
		MAP(R2, large->events_map),
		SET_32(R3, -1), /* BPF_F_CURRENT_CPU */
		COPY(R4, FRAME),
		COMPUTE_VALUE(BPF_ADD, R4, -16),
		SET(R5, sizeof(uint64_t)),
		CALL(BPF_FUNC_perf_event_output),
		/* the end */
		SET(R0, 0),
		EXIT,
	};
	union bpf_attr attr = { .prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT,
				.insns = (uint64_t)(uintptr_t)code,
				.insn_cnt = ARRAY_LEN(code),
				.license = (uint64_t)(uintptr_t) "GPL" /* of the functions it calls */ };

	for (size_t i = 0; i < ARRAY_LEN(code); i++)
		if (code[i].off == TO_END)
			code[i].off = (int16_t)(ARRAY_LEN(code) - END_LENGTH - i - 1);
	return bpf(BPF_PROG_LOAD, &attr);
}

/* ---- opening ---- */

/* One of `entries` for each CPU, numbered as the kernel does. */
static int create_maps(struct large_pages *large, uint32_t entries)
{
	void *mapped;

	large->events_map = create_map(BPF_MAP_TYPE_PERF_EVENT_ARRAY, sizeof(uint32_t), entries, 0);
	if (large->events_map < 0)
		return large->events_map;
	large->accounts_map = create_map(BPF_MAP_TYPE_ARRAY, sizeof(struct account), entries, BPF_F_MMAPABLE);
	if (large->accounts_map < 0)
		return large->accounts_map;
	large->accounts_bytes = entries * sizeof(struct account);
	mapped = mmap(NULL, large->accounts_bytes, PROT_READ, MAP_SHARED, large->accounts_map, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	large->accounts = mapped;
	return 0;
}

/* The event through which samples of a CPU get into its ring. The map keeps it open. */
static int open_event(struct large_pages *large, const struct perf_events_wanted *wanted,
		      const struct perf_events *ring)
{
	struct perf_events_wanted output = *wanted;
	union bpf_attr attr = { .map_fd = (uint32_t)large->events_map };
	int fd, r;

	output.kind = PERF_EVENTS_LARGE_PAGES;
	fd = perf_events_follow(&output, -1, ring);
	if (fd < 0)
		return fd == -ENODEV ? 0 : fd; /* offline by now */
	attr.key = (uint64_t)(uintptr_t)&ring->cpu;
	attr.value = (uint64_t)(uintptr_t)&fd;
	r = bpf(BPF_MAP_UPDATE_ELEM, &attr);
	close(fd);
	return r < 0 ? r : 0;
}

static int open_all(struct large_pages *large, const struct perf_events_wanted *wanted, const struct perf_events *rings,
		    unsigned cpus)
{
	uint32_t entries = 0;
	int r;

	for (unsigned i = 0; i < cpus; i++)
		entries = rings[i].cpu >= entries ? rings[i].cpu + 1 : entries;
	r = create_maps(large, entries);
	for (unsigned i = 0; r == 0 && i < cpus; i++)
		r = open_event(large, wanted, &rings[i]);
	if (r < 0)
		return r;
	large->program = load_program(large);
	return large->program < 0 ? large->program : large_pages_switch(large, true);
}

int large_pages_open(const struct perf_events_wanted *wanted, const struct perf_events *rings, unsigned cpus,
		     struct large_pages **ret, char *reason)
{
	struct large_pages *large = calloc(1, sizeof(*large));
	int r;

	if (!large)
		return -ENOMEM;
	large->events_map = large->accounts_map = large->program = large->link = -1;
	r = open_all(large, wanted, rings, cpus);
	if (r < 0) {
		snprintf(reason, PERF_EVENTS_REASON_MAX, "bpf: %s", strerrordesc_np(-r));
		large_pages_close(large);
		return r;
	}
	*ret = large;
	return 0;
}

static void close_one(int fd)
{
	if (fd >= 0)
		close(fd);
}

void large_pages_close(struct large_pages *large)
{
	if (!large)
		return;
	close_one(large->link);
	close_one(large->program);
	if (large->accounts)
		munmap((void *)large->accounts, large->accounts_bytes);
	close_one(large->events_map);
	close_one(large->accounts_map);
	free(large);
}

int large_pages_switch(struct large_pages *large, bool on)
{
	union bpf_attr attr = { .raw_tracepoint = { .name = (uint64_t)(uintptr_t) "mm_page_alloc",
						    .prog_fd = (uint32_t)large->program } };

	if (on == (large->link >= 0))
		return 0;
	if (on) {
		int fd = bpf(BPF_RAW_TRACEPOINT_OPEN, &attr);

		if (fd >= 0)
			large->link = fd;
		return fd < 0 ? fd : 0;
	}
	close(large->link);
	large->link = -1;
	return 0;
}

uint64_t large_pages_samples(const struct large_pages *large, uint32_t cpu)
{
	return (cpu + 1) * sizeof(struct account) <= large->accounts_bytes ? large->accounts[cpu].samples : 0;
}
