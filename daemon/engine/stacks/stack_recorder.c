/*
 * stack_recorder.c: opening and closing the events, the thread that empties the side-band rings,
 * and snapshots of what the rings hold.
 *
 * The thread wakes once a second, when a side-band ring is half full, and more often while page
 * faults come fast. It owns the per-thread events; the mapping history, and what the thread and the
 * callers tell each other, is under one lock; the page fault events have a lock of their own.
 *
 * Rejected: reading /proc of all processes at start, which costs a second on a large machine, for
 * processes that no sample may ever hit. Those that are hit are looked up when a snapshot is taken.
 */
#include "daemon/engine/stacks/stack_recorder.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/perf_events.h"
#include "daemon/engine/base/foreign.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/stacks/thread_events.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/proc/procfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* All events of a kind; those of STACK_FILE_SIDEBAND are the side-band rings. Constant. */
struct event_kind {
	bool on;
	bool followed; /* by events on threads; else system-wide */
	bool apart;    /* its rings have no event of their own: per-thread events or page faults write to them */
	struct perf_events_wanted wanted;
	struct perf_record_format format;  /* of the rings */
	struct perf_record_format written; /* of snapshots: always with a period */
	uint64_t ring_bytes;
	struct perf_events *rings; /* one for each CPU */
};

/* A thread that samples hit. */
struct thread_hit {
	uint32_t pid, tid;
	uint64_t time_ns; /* of its first sample */
	uint32_t stacks;  /* how many of its samples have them; more of what is followed */
	uint64_t cgroup;  /* of that sample */
};

/* A cgroup that was made while it was recorded. */
struct made_cgroup {
	uint64_t id;
	char *path;
};

#define MADE_CGROUPS_MAX 4096u /* the newest */

struct stack_recorder {
	struct stack_recorder_status status; /* as it was opened; the rest is filled in when asked for */
	struct event_kind kinds[STACK_FILE_STREAM_KINDS];
	int proc_fd;
	bool proc_owned;
	int cgroup_fd; /* of the v2 hierarchy, which samples name cgroups of; -1: they do not */
	uint64_t opened_ns;
	uint64_t opened_busy_ns; /* of all CPUs since boot, at opened_ns; 0: unknown */
	int wake_fd;
	struct fault_events *faults; /* NULL: there are no samples of them */
	pthread_t thread;
	bool running;

	/* of the thread */
	struct thread_events *threads; /* NULL: nothing can be followed, or need not be */
	struct thread_events_output outputs[STACK_FILE_STREAM_KINDS];
	size_t output_count;

	pthread_mutex_t lock; /* of all below, and of emptying the side-band rings */
	bool stopping, follow_changed;
	uint32_t *follow; /* what stack_recorder_follow was given last, in its order */
	size_t follow_count;
	struct thread_events_status followed;
	uint64_t followed_units; /* units_per_second of those */
	struct thread_events_note *notes;
	size_t note_count, note_cap;
	bool take_notes;
	struct mapping_history *history;
	uint64_t keep_ns;                /* how far back the history reaches */
	struct perf_merge pending, kept; /* side-band records that are not in the history yet */
	void *scratch;
	uint64_t side_lost, side_wakeups;
	struct made_cgroup *made; /* MADE_CGROUPS_MAX, the next one at made_count modulo that; NULL: none yet */
	size_t made_count;
};

static uint64_t monotonic_ns(void)
{
	struct clock clock = real_clock();

	return clock_mono(&clock).ns;
}

/* ---- samples of memory that comes in pages larger than the smallest ----
 *
 * An event of page faults counts a fault once, whatever it brings: one of a huge page brings 512
 * small ones. So there is also a BPF program at the tracepoint mm_page_alloc, which has the size of
 * what is allocated. In place of a sample at each allocation it adds up, for each CPU, the pages
 * beyond the first of each allocation for user memory (the first is what the event of page faults
 * counts), and takes a sample with the sum when that is large enough and the last one is not too
 * recent:
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
struct large_account {
	uint64_t pages;
	uint64_t sampled_ns;
	uint64_t samples;
};

struct large_pages {
	int events_map, accounts_map, program, link;
	const volatile struct large_account *accounts; /* the map, read-only */
	size_t accounts_bytes;
};

static int bpf(enum bpf_cmd command, union bpf_attr *attr)
{
	int r = (int)syscall(SYS_bpf, command, attr, sizeof(*attr));

	return r < 0 ? -errno : r;
}

static int create_bpf_map(enum bpf_map_type type, uint32_t value_size, uint32_t entries, uint32_t flags)
{
	union bpf_attr attr = { .map_type = type,
				.key_size = sizeof(uint32_t),
				.value_size = value_size,
				.max_entries = entries,
				.map_flags = flags };

	return bpf(BPF_MAP_CREATE, &attr);
}

static void close_if_open(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* NULL is fine. */
static void large_pages_close(struct large_pages *large)
{
	if (!large)
		return;
	close_if_open(large->link);
	close_if_open(large->program);
	if (large->accounts)
		munmap((void *)large->accounts, large->accounts_bytes);
	close_if_open(large->events_map);
	close_if_open(large->accounts_map);
	free(large);
}

/*
 * While it is on, each allocation of a page takes 50 ns more, on every CPU. It is on after
 * large_pages_open. 0 or -errno; nothing if it is so already.
 */
static int large_pages_switch(struct large_pages *large, bool on)
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

/* How many samples were written to the ring of this CPU, ever. */
static uint64_t large_pages_samples(const struct large_pages *large, uint32_t cpu)
{
	return (cpu + 1) * sizeof(struct large_account) <= large->accounts_bytes ? large->accounts[cpu].samples : 0;
}

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

static int load_large_pages_program(const struct large_pages *large)
{
	enum { PAGES = offsetof(struct large_account, pages), SAMPLED = offsetof(struct large_account, sampled_ns) };
	enum { SAMPLES = offsetof(struct large_account, samples) };
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

/* One of `entries` for each CPU, numbered as the kernel does. */
static int create_large_pages_maps(struct large_pages *large, uint32_t entries)
{
	void *mapped;

	large->events_map = create_bpf_map(BPF_MAP_TYPE_PERF_EVENT_ARRAY, sizeof(uint32_t), entries, 0);
	if (large->events_map < 0)
		return large->events_map;
	large->accounts_map = create_bpf_map(BPF_MAP_TYPE_ARRAY, sizeof(struct large_account), entries, BPF_F_MMAPABLE);
	if (large->accounts_map < 0)
		return large->accounts_map;
	large->accounts_bytes = entries * sizeof(struct large_account);
	mapped = mmap(NULL, large->accounts_bytes, PROT_READ, MAP_SHARED, large->accounts_map, 0);
	if (mapped == MAP_FAILED)
		return -errno;
	large->accounts = mapped;
	return 0;
}

/* The event through which samples of a CPU get into its ring. The map keeps it open. */
static int open_large_pages_event(struct large_pages *large, const struct perf_events_wanted *wanted,
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

static int open_large_pages_events(struct large_pages *large, const struct perf_events_wanted *wanted,
				   const struct perf_events *rings, unsigned cpus)
{
	uint32_t entries = 0;
	int r;

	for (unsigned i = 0; i < cpus; i++)
		entries = rings[i].cpu >= entries ? rings[i].cpu + 1 : entries;
	r = create_large_pages_maps(large, entries);
	for (unsigned i = 0; r == 0 && i < cpus; i++)
		r = open_large_pages_event(large, wanted, &rings[i]);
	if (r < 0)
		return r;
	large->program = load_large_pages_program(large);
	return large->program < 0 ? large->program : large_pages_switch(large, true);
}

/*
 * Begins to write samples of PERF_EVENTS_LARGE_PAGES into rings that are opened for page faults
 * with `large_pages`, cpus of them, borrowed. wanted: of those. Takes CAP_BPF and CAP_PERFMON
 * (Linux 5.8; before, CAP_SYS_ADMIN). 0; -ENOMEM; -errno, and then reason, of
 * PERF_EVENTS_REASON_MAX bytes, is a message. *ret is the caller's: large_pages_close.
 */
static int large_pages_open(const struct perf_events_wanted *wanted, const struct perf_events *rings, unsigned cpus,
			    struct large_pages **ret, char *reason)
{
	struct large_pages *large = calloc(1, sizeof(*large));
	int r;

	if (!large)
		return -ENOMEM;
	large->events_map = large->accounts_map = large->program = large->link = -1;
	r = open_large_pages_events(large, wanted, rings, cpus);
	if (r < 0) {
		snprintf(reason, PERF_EVENTS_REASON_MAX, "bpf: %s", strerrordesc_np(-r));
		large_pages_close(large);
		return r;
	}
	*ret = large;
	return 0;
}

/* ---- page faults ----
 *
 * An event of page faults costs at each fault, sampled or not: some 60 ns with registers and stack,
 * where a fault takes one to two microseconds (x86-64 in a virtual machine, Linux 6.18): three to
 * five percent of a program that only touches new memory. So no CPU counts more than
 * FAULTS_PER_SECOND on average, and FAULTS_PER_BURST (320 MB) at once (overload_sampling,
 * lib/model/pacing.h); then the events are closed for most of each tenth of a second. That costs 3
 * ms of each second, 8 of the first.
 *
 *   ring woke (four samples) ──▶ count them since the slot began ──▶ too many: close │ read the
 *   clock and /proc/vmstat                                              later: open  │ the same
 *
 * Closed, not disabled: while there is one such event on the machine, even a disabled one, the
 * kernel's patched fault handler costs each fault of every CPU 20 ns more: one to two percent. So
 * the events of all CPUs are closed and opened together, 20 us on two CPUs, at most twenty times a
 * second. The rings stay: they belong to events that count nothing. A new event begins its period
 * anew, and on a CPU with few faults would never complete it: struct sampling_period
 * (lib/model/pacing.h) corrects that. Per-thread events are inherited by child processes and cannot
 * be reopened without losing those: they are disabled, and the 20 ns remain.
 *
 * Rejected: a system-wide event beside the one of a followed process, which cost twice.
 * PERF_EVENT_IOC_REFRESH: exact, but it only disables, and not inherited events. A longer period:
 * the samples are not what costs. Stacks of CPU samples that hit the fault handler: 99 a second,
 * and no way to tell how many faults each stands for. Tracepoints of faults: they cost more.
 */

/* 64 ns each: a quarter of a percent of a CPU, and three quarters in the first second. */
#define FAULTS_PER_SECOND 40000u
#define FAULTS_PER_SLOT 4000u
#define FAULTS_PER_BURST 80000u

/* Samples of large pages cost each small one 50 ns: five percent, for so long. */
#define LARGE_PAGES_OVERLOAD_NS (2 * NS_PER_S)

/* Slots that are counted back in a ring, if the thread was not scheduled in time. */
#define COUNT_MAX 64u

/* Openings that are remembered of a ring: twenty seconds and more. */
#define STRETCHES 256u

/* From one opening of the events to the next. */
struct stretch {
	uint64_t from_ns;
	uint64_t each; /* faults that a sample stands for */
};

struct cpu {
	int fd;          /* the system-wide event; -1: closed, or there is none */
	uint64_t period; /* of fd */
	struct sampling_period phase;
	uint64_t head;  /* of the ring when the slot began */
	uint64_t large; /* samples of large pages then */
	struct stretch stretches[STRETCHES];
	uint64_t count; /* of them, ever */
};

struct fault_events {
	bool system_wide;                /* else per-thread */
	const struct perf_events *rings; /* borrowed; one for each CPU */
	unsigned cpu_count;
	int proc_fd;                      /* borrowed */
	struct perf_events_wanted wanted; /* of one opening */
	uint64_t period;
	bool by_time; /* /proc/vmstat has no total: the time is taken for it */
	uint64_t last_total;
	pthread_mutex_t lock; /* of all below; only the recorder's thread writes, and reads without it */
	struct overload_sampling overload_sampling;
	int error;
	struct large_pages *large;  /* NULL: not sampled; of the thread */
	uint64_t overload_since_ns; /* 0: there is none; of the thread */
	uint64_t large_off_ns;      /* when their samples were last seen to be off; 0: never */
	struct cpu cpus[];
};

/* The page faults of all CPUs since boot, in the text of /proc/vmstat. False: it does not say. */
static bool parse_vmstat_faults(const char *text, size_t len, uint64_t *ret)
{
	static const char name[] = "\npgfault ";
	const char *at = memmem(text, len, name, sizeof(name) - 1);
	const char *end = text + len;
	uint64_t total;

	if (at == NULL)
		return false;
	at = text_parse_u64(at + sizeof(name) - 1, end, &total);
	if (at == NULL || at == end || *at != '\n')
		return false;
	*ret = total;
	return true;
}

/* Takes some 30 us. */
static uint64_t read_fault_total(struct fault_events *faults, uint64_t now_ns)
{
	char text[16384]; /* a third of it is used */
	ssize_t len;

	if (faults->by_time)
		return now_ns;
	len = proc_read_file(faults->proc_fd, 0, "vmstat", text, sizeof(text));
	if (len > 0)
		parse_vmstat_faults(text, (size_t)len, &faults->last_total);
	return faults->last_total;
}

static void begin_stretch(struct cpu *cpu, uint64_t now_ns)
{
	cpu->stretches[cpu->count++ % STRETCHES] = (struct stretch){ now_ns, cpu->period };
}

static int open_fault_event(struct fault_events *faults, unsigned ring, uint64_t period)
{
	struct cpu *cpu = &faults->cpus[ring];
	uint64_t now_ns = monotonic_ns();

	faults->wanted.fault_period = cpu->period = period;
	cpu->fd = perf_events_follow(&faults->wanted, -1, &faults->rings[ring]);
	if (cpu->fd >= 0)
		begin_stretch(cpu, now_ns);
	return cpu->fd < 0 && cpu->fd != -ENODEV ? cpu->fd : 0;
}

/* Disabled first: a child forked a moment ago also has the descriptor until its execve(2). */
static void close_fault_event(struct cpu *cpu)
{
	uint64_t counted = 0, unused = 0, each;

	if (cpu->fd < 0)
		return;
	perf_events_switch(cpu->fd, false);
	perf_events_count(cpu->fd, &counted, &unused);
	close(cpu->fd);
	cpu->fd = -1;
	each = sampling_period_end(&cpu->phase, cpu->period, counted);
	if (each != 0)
		cpu->stretches[(cpu->count - 1) % STRETCHES].each = each;
}

/* Opens those that are closed; calm (no overload for a while): with the regular period. */
static void open_fault_events(struct fault_events *faults, bool calm)
{
	faults->error = 0;
	for (unsigned i = 0; faults->system_wide && i < faults->cpu_count; i++) {
		struct cpu *cpu = &faults->cpus[i];
		int r = 0;

		if (cpu->fd < 0)
			r = open_fault_event(faults, i, calm ? faults->period : sampling_period_next(&cpu->phase));
		if (r < 0)
			faults->error = r;
	}
}

/* Without the lock: it takes as long as there are threads. */
static void switch_thread_events(const struct fault_events *faults, struct thread_events *threads, bool on)
{
	if (!faults->system_wide && threads != NULL)
		thread_events_switch(threads, PERF_EVENTS_FAULTS, on);
}

/* Samples after which a ring wakes the thread, and the time in which they may come. */
static struct overload_sampling_options fault_events_limits(uint64_t period)
{
	uint64_t most = (FAULTS_PER_SLOT + period / 2) / period;

	most += most == 0;
	return (struct overload_sampling_options){ .slot_ns = most * period * (NS_PER_S / FAULTS_PER_SECOND),
						   .most = (uint32_t)most,
						   .burst = (uint32_t)((FAULTS_PER_BURST + period / 2) / period),
						   .seed = (uint32_t)getpid() };
}

static void note_ring_heads(struct fault_events *faults)
{
	for (unsigned i = 0; i < faults->cpu_count; i++) {
		struct cpu *cpu = &faults->cpus[i];

		cpu->head = perf_ring_head(&faults->rings[i].ring);
		cpu->large = faults->large ? large_pages_samples(faults->large, faults->rings[i].cpu) : 0;
	}
}

/* NULL is fine. */
static void fault_events_close(struct fault_events *faults)
{
	if (faults == NULL)
		return;
	large_pages_close(faults->large);
	for (unsigned i = 0; i < faults->cpu_count; i++)
		if (faults->cpus[i].fd >= 0)
			close(faults->cpus[i].fd);
	pthread_mutex_destroy(&faults->lock);
	free(faults);
}

/*
 * For the rings of this kind; opens the events if they are system-wide. 0; -ENOMEM; -errno, and
 * then reason, of PERF_EVENTS_REASON_MAX bytes, is a message. *ret is the caller's:
 * fault_events_close.
 */
static int fault_events_open(const struct stack_recorder *recorder, enum stack_file_stream_kind kind,
			     struct fault_events **ret, char *reason)
{
	unsigned cpus = recorder->status.cpus;
	struct fault_events *faults = calloc(1, sizeof(*faults) + cpus * sizeof(struct cpu));
	struct overload_sampling_options limits;
	uint64_t now_ns = monotonic_ns();
	int r;

	if (faults == NULL)
		return -ENOMEM;
	faults->system_wide = kind == STACK_FILE_FAULTS;
	faults->rings = recorder->kinds[kind].rings;
	faults->cpu_count = cpus;
	faults->proc_fd = recorder->proc_fd;
	faults->wanted = recorder->kinds[kind].wanted;
	faults->period = perf_events_period(&faults->wanted);
	limits = fault_events_limits(faults->period);
	for (unsigned i = 0; i < cpus; i++) {
		faults->cpus[i].fd = -1;
		faults->cpus[i].period = faults->cpus[i].phase.period = faults->period;
	}
	note_ring_heads(faults);
	read_fault_total(faults, now_ns);
	faults->by_time = faults->last_total == 0;
	overload_sampling_init(&faults->overload_sampling, &limits, now_ns, read_fault_total(faults, now_ns));
	pthread_mutex_init(&faults->lock, NULL);
	open_fault_events(faults, true);
	r = faults->error;
	if (r < 0) {
		perf_events_refusal(r, reason);
		fault_events_close(faults);
		return r;
	}
	*ret = faults;
	return 0;
}

/* How long the thread may wait in poll(2), at most `most` milliseconds. */
static int fault_events_wait_ms(struct fault_events *faults, int most)
{
	uint64_t next_ns, now_ns = monotonic_ns(), wait_ms = 0;

	pthread_mutex_lock(&faults->lock);
	next_ns = overload_sampling_next_ns(&faults->overload_sampling);
	pthread_mutex_unlock(&faults->lock);
	if (next_ns > now_ns)
		wait_ms = (next_ns - now_ns) / NS_PER_MS + 1;
	return wait_ms < (uint64_t)most ? (int)wait_ms : most;
}

/* Samples since the slot began, of the ring that has most, in units of the regular period. */
static uint64_t most_fault_samples(const struct fault_events *faults)
{
	size_t up_to = (size_t)faults->overload_sampling.options.most * COUNT_MAX;
	uint64_t most = 0;

	for (unsigned i = 0; i < faults->cpu_count; i++) {
		uint64_t count = perf_ring_count(&faults->rings[i].ring, faults->cpus[i].head, up_to);
		uint64_t large =
			faults->large ? large_pages_samples(faults->large, faults->rings[i].cpu) - faults->cpus[i].large
				      : 0;

		count = count > large ? count - large : 0;
		count = count * faults->cpus[i].period / faults->period;
		most = count > most ? count : most;
	}
	return most;
}

/* After a quiet slot: events with another than the regular period are opened anew. */
static void restore_periods(struct fault_events *faults)
{
	for (unsigned i = 0; faults->system_wide && i < faults->cpu_count; i++)
		if (faults->cpus[i].period != faults->period)
			close_fault_event(&faults->cpus[i]);
	open_fault_events(faults, true);
}

static void fault_events_stop(struct fault_events *faults, struct thread_events *threads, uint64_t samples)
{
	uint64_t now_ns;

	switch_thread_events(faults, threads, false);
	pthread_mutex_lock(&faults->lock);
	for (unsigned i = 0; i < faults->cpu_count; i++)
		close_fault_event(&faults->cpus[i]);
	now_ns = monotonic_ns();
	overload_sampling_stop(&faults->overload_sampling, now_ns, read_fault_total(faults, now_ns), samples);
	pthread_mutex_unlock(&faults->lock);
}

/* A slot begins; samples: of the one that is over. */
static void fault_events_begin(struct fault_events *faults, struct thread_events *threads, uint64_t samples)
{
	uint64_t now_ns = monotonic_ns();
	bool was_on = faults->overload_sampling.on;

	pthread_mutex_lock(&faults->lock);
	if (was_on)
		restore_periods(faults);
	note_ring_heads(faults);
	overload_sampling_begin(&faults->overload_sampling, now_ns, read_fault_total(faults, now_ns), samples);
	open_fault_events(faults, false);
	pthread_mutex_unlock(&faults->lock);
	if (!was_on)
		switch_thread_events(faults, threads, true);
}

/*
 * A program that only touches small pages pays for samples of large ones, too: after a while of
 * that they are off until there are fewer faults.
 */
static void switch_large_pages(struct fault_events *faults, uint64_t now_ns)
{
	if (faults->large == NULL)
		return;
	if (!faults->overload_sampling.watchful) {
		faults->overload_since_ns = 0;
		large_pages_switch(faults->large, true);
		return;
	}
	if (faults->overload_since_ns == 0)
		faults->overload_since_ns = now_ns;
	if (now_ns - faults->overload_since_ns < LARGE_PAGES_OVERLOAD_NS)
		return;
	large_pages_switch(faults->large, false);
	pthread_mutex_lock(&faults->lock);
	faults->large_off_ns = now_ns;
	pthread_mutex_unlock(&faults->lock);
}

/* Closes or opens the events. threads: NULL unless there are per-thread ones. */
static void fault_events_look(struct fault_events *faults, struct thread_events *threads)
{
	uint64_t now_ns = monotonic_ns(), samples;

	switch_large_pages(faults, now_ns);
	if (!faults->overload_sampling.on) {
		if (now_ns >= faults->overload_sampling.next_ns)
			fault_events_begin(faults, threads, 0);
		return;
	}
	samples = most_fault_samples(faults);
	switch (overload_sampling_judge(&faults->overload_sampling, now_ns, samples)) {
	case OVERLOAD_SAMPLING_STOP:
		fault_events_stop(faults, threads, samples);
		break;
	case OVERLOAD_SAMPLING_SLOT:
		if (samples > 0 || faults->overload_sampling.watchful || faults->error < 0)
			fault_events_begin(faults, threads, samples);
		break;
	case OVERLOAD_SAMPLING_GO_ON:
		break;
	}
}

/* What a sample of this ring and time stands for, before faults that were not counted are added. */
static uint64_t stretch_weight(const struct fault_events *faults, unsigned ring, uint64_t time_ns)
{
	const struct cpu *cpu = &faults->cpus[ring];

	for (uint64_t back = 0; back < cpu->count && back < STRETCHES; back++) {
		const struct stretch *stretch = &cpu->stretches[(cpu->count - 1 - back) % STRETCHES];

		if (stretch->from_ns <= time_ns)
			return stretch->each;
	}
	return faults->period;
}

/* How many page faults a sample of time_ns in the ring of this number stands for. */
static uint64_t fault_weight(struct fault_events *faults, unsigned ring, uint64_t time_ns)
{
	uint64_t weight;

	pthread_mutex_lock(&faults->lock);
	weight = overload_sampling_weigh(&faults->overload_sampling, time_ns, stretch_weight(faults, ring, time_ns));
	pthread_mutex_unlock(&faults->lock);
	return weight;
}

/*
 * Page faults from from_ns to to_ns: how many were counted, of how many. From now on samples until
 * now have their final weight.
 */
static void sum_up_faults(struct fault_events *faults, uint64_t from_ns, uint64_t to_ns,
			  struct overload_sampling_summary *ret)
{
	uint64_t now_ns;

	pthread_mutex_lock(&faults->lock);
	now_ns = monotonic_ns();
	overload_sampling_settle(&faults->overload_sampling, now_ns, read_fault_total(faults, now_ns));
	overload_sampling_sum_up(&faults->overload_sampling, from_ns, to_ns, ret);
	pthread_mutex_unlock(&faults->lock);
}

/* Why there are no events on some CPU that should have one: -errno; 0: there are. Any thread. */
static int fault_events_error(struct fault_events *faults, uint64_t *ret_large_off_ns)
{
	int error;

	pthread_mutex_lock(&faults->lock);
	error = faults->error;
	*ret_large_off_ns = faults->large_off_ns;
	pthread_mutex_unlock(&faults->lock);
	return error;
}

/* ---- the size of the rings ----
 *
 * The first plan that fits is taken:
 *
 *   as long as asked for ── stacks ever shorter, page faults' first ── chains half, a quarter ──
 *   no stacks, chains as asked for ── ever shorter
 *
 * Stacks are a hundred times the size of a chain and are reduced first, but for less than a second
 * of a busy CPU they are not worth what the chains would lose. Rings of page faults, one for each
 * CPU, are half of those of CPU samples: there are fewer of them.
 */

#define DEFAULT_STACK_BYTES 8192
#define DEFAULT_MEMORY_BYTES (64ULL << 20)
#define DEFAULT_BEFORE_NS (15 * NS_PER_S)

#define SLACK_NS (5 * NS_PER_S) /* from the spike to the snapshot */
/* The snapshot of what came after a firing is taken when that is over and other incidents are written. */
#define KEEP_SLACK_NS (30 * NS_PER_S)
#define CHAIN_SAMPLE_BYTES 320       /* of forty frames */
#define STACK_SAMPLE_BYTES 400       /* a chain and registers, beside the stack */
#define RING_BYTES_MIN (64ULL << 10) /* a second of deep chains */
#define RING_BYTES_MAX (1ULL << 30)
#define SIDE_BYTES (64ULL << 10) /* eighty short programs, and it is emptied when half full */
#define CHAIN_HALVINGS 2         /* of chains, before there are no stacks */

struct ring_plan {
	uint64_t ring_bytes[STACK_FILE_STREAM_KINDS]; /* of each CPU, powers of two; 0: none */
	bool dwarf;                                   /* there is room for stacks */
};

struct ring_needs {
	const struct stack_recorder_options *options;
	unsigned cpus;
	uint32_t frequency;
	bool system_wide; /* per-thread events only for dwarf */
	bool dwarf;       /* asked for, and possible here */
	uint64_t most;    /* bytes of all CPUs; 0: three quarters of options->max_memory_bytes */
};

/* The ring sizes that a plan of the row is made from. */
struct sizes {
	uint64_t chains, chain_faults, stacks, stack_faults;
};

/* The most memory that the recorder may take. */
static uint64_t plan_memory(const struct stack_recorder_options *options)
{
	return options->max_memory_bytes != 0 ? options->max_memory_bytes : DEFAULT_MEMORY_BYTES;
}

/* All rings of a CPU together. */
static uint64_t plan_bytes(const struct ring_plan *plan)
{
	uint64_t sum = 0;

	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		sum += plan->ring_bytes[kind];
	return sum;
}

static uint64_t round_up(uint64_t bytes, uint64_t least)
{
	uint64_t power = least;

	while (power < bytes && power < RING_BYTES_MAX)
		power *= 2;
	return power;
}

/* To the power of two that is nearer by its ratio: stacks are too large to be always rounded up. */
static uint64_t round_near(uint64_t bytes, uint64_t least)
{
	uint64_t power = round_up(bytes, least);

	return power > least && bytes < power / 10 * 7 ? power / 2 : power;
}

static uint64_t halve(uint64_t bytes, uint64_t least)
{
	return bytes / 2 > least ? bytes / 2 : least;
}

static uint64_t sample_bytes(const struct ring_needs *needs, uint64_t span_ns, uint64_t sample_bytes)
{
	return (uint64_t)((unsigned __int128)span_ns * needs->frequency * sample_bytes / NS_PER_S);
}

static uint64_t span_ns(const struct ring_needs *needs)
{
	uint64_t before_ns = needs->options->before_ns != 0 ? needs->options->before_ns : DEFAULT_BEFORE_NS;

	return before_ns < UINT64_MAX - SLACK_NS ? before_ns + SLACK_NS : before_ns;
}

static uint64_t stack_sample_bytes(const struct ring_needs *needs)
{
	uint32_t stack_bytes = needs->options->stack_bytes != 0 ? needs->options->stack_bytes : DEFAULT_STACK_BYTES;

	return stack_bytes + STACK_SAMPLE_BYTES;
}

/* Of rings without stacks. */
static struct sizes chains_as_asked_for(const struct ring_needs *needs)
{
	uint64_t asked = needs->options->ring_bytes != 0 ? needs->options->ring_bytes
							 : sample_bytes(needs, span_ns(needs), CHAIN_SAMPLE_BYTES);
	uint64_t chains = round_up(asked, RING_BYTES_MIN);

	return (struct sizes){ .chains = chains, .chain_faults = halve(chains, RING_BYTES_MIN) };
}

static struct ring_plan plan_of(const struct ring_needs *needs, const struct sizes *sizes)
{
	struct ring_plan plan = { .ring_bytes[STACK_FILE_SIDEBAND] = SIDE_BYTES, .dwarf = sizes->stacks > 0 };
	bool faults = !needs->options->without_faults;

	if (needs->system_wide)
		plan.ring_bytes[STACK_FILE_CPU] = sizes->chains;
	if (plan.dwarf)
		plan.ring_bytes[STACK_FILE_CPU_FOLLOWED] = sizes->stacks;
	else if (!needs->system_wide)
		plan.ring_bytes[STACK_FILE_CPU_FOLLOWED] = sizes->chains;
	if (faults)
		plan.ring_bytes[needs->system_wide ? STACK_FILE_FAULTS : STACK_FILE_FAULTS_FOLLOWED] =
			plan.dwarf ? sizes->stack_faults : sizes->chain_faults;
	return plan;
}

static bool plan_fits(const struct ring_needs *needs, const struct sizes *sizes, uint64_t most, struct ring_plan *ret)
{
	*ret = plan_of(needs, sizes);
	return plan_bytes(ret) <= most / needs->cpus;
}

static void halve_chains(struct sizes *sizes)
{
	sizes->chains = halve(sizes->chains, RING_BYTES_MIN);
	sizes->chain_faults = halve(sizes->chain_faults, RING_BYTES_MIN);
}

static bool plan_fits_with_stacks(const struct ring_needs *needs, uint64_t most, struct ring_plan *ret)
{
	struct sizes sizes = chains_as_asked_for(needs);
	uint64_t least = round_up(sample_bytes(needs, NS_PER_S, stack_sample_bytes(needs)), RING_BYTES_MIN);

	sizes.stacks = round_near(sample_bytes(needs, span_ns(needs), stack_sample_bytes(needs)), least);
	sizes.stack_faults = halve(sizes.stacks, least / 2);
	for (;;) {
		if (plan_fits(needs, &sizes, most, ret))
			return true;
		if (sizes.stacks == least && sizes.stack_faults == least / 2)
			break;
		if (sizes.stack_faults > sizes.stacks / 4 && sizes.stack_faults > least / 2)
			sizes.stack_faults /= 2;
		else
			sizes.stacks = halve(sizes.stacks, least);
	}
	for (int i = 0; needs->system_wide && i < CHAIN_HALVINGS; i++) {
		halve_chains(&sizes);
		if (plan_fits(needs, &sizes, most, ret))
			return true;
	}
	return false;
}

/*
 * The largest rings that fit. 0; -ENOSPC: not even the smallest do, and then reason is a message.
 * If the kernel has no room for a plan, the next one is asked for with needs->most one less than it
 * took.
 */
static int plan_rings(const struct ring_needs *needs, struct ring_plan *ret, char *reason)
{
	uint64_t most = needs->most != 0 ? needs->most : plan_memory(needs->options) / 4 * 3;
	struct sizes sizes = chains_as_asked_for(needs);
	struct ring_plan plan;

	if (needs->dwarf && plan_fits_with_stacks(needs, most, ret))
		return 0;
	while (!plan_fits(needs, &sizes, most, &plan)) {
		if (sizes.chains == RING_BYTES_MIN) {
			uint64_t least = needs->cpus * plan_bytes(&plan);

			snprintf(reason, STACK_RECORDER_REASON_MAX,
				 "the smallest rings of %u CPUs take %llu KiB, and %llu KiB are allowed them",
				 needs->cpus, (unsigned long long)(least >> 10), (unsigned long long)(most >> 10));
			return -ENOSPC;
		}
		halve_chains(&sizes);
	}
	*ret = plan;
	return 0;
}

/* ---- cycles as time ----
 *
 * Samples that count cycles are added up to CPU time by the mean number of cycles of a busy second
 * since the events were opened, over all CPUs. An event of a CPU does not know for how long that
 * was busy: /proc/stat does. An event of a thread knows.
 */

#define LEAST_NS (100 * NS_PER_MS) /* ticks of /proc/stat are 10 ms long */

/*
 * How long all CPUs together were busy since boot, from /proc/stat; 0: not known. "cpu  user nice
 * system idle iowait irq softirq steal guest guest_nice": user and nice include the guests'.
 */
static uint64_t parse_stat_busy_ns(const char *text, size_t len, long ticks_per_second)
{
	static const bool is_busy[] = { true, true, true, false, false, true, true };
	uint64_t ticks = 0;
	const char *at = text + 4;

	if (len < 5 || memcmp(text, "cpu ", 4) != 0 || memchr(text, '\n', len) == NULL || ticks_per_second <= 0)
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(is_busy); i++) {
		char *end;
		uint64_t field = strtoull(at, &end, 10);

		if (end == at)
			return 0;
		ticks += is_busy[i] ? field : 0;
		at = end;
	}
	return ticks * (NS_PER_S / (uint64_t)ticks_per_second);
}

static uint64_t read_busy_ns(int proc_fd)
{
	char text[512];
	ssize_t len = proc_read_file(proc_fd, 0, "stat", text, sizeof(text));

	return len > 0 ? parse_stat_busy_ns(text, (size_t)len, sysconf(_SC_CLK_TCK)) : 0;
}

/* 0: busy_ns is too short to say. */
static uint64_t cycles_per_second(uint64_t cycles, uint64_t busy_ns)
{
	return busy_ns >= LEAST_NS ? (uint64_t)((unsigned __int128)cycles * NS_PER_S / busy_ns) : 0;
}

/* Cycles per second by the system-wide events; 0: not known. */
static uint64_t units_of_machine(struct stack_recorder *recorder)
{
	uint64_t cycles = 0, unused = 0, busy_ns = read_busy_ns(recorder->proc_fd);

	for (unsigned i = 0; i < recorder->status.cpus; i++)
		if (perf_events_count(recorder->kinds[STACK_FILE_CPU].rings[i].fd, &cycles, &unused) < 0)
			return 0;
	if (recorder->opened_busy_ns == 0 || busy_ns < recorder->opened_busy_ns)
		return 0;
	return cycles_per_second(cycles, busy_ns - recorder->opened_busy_ns);
}

/* The units_per_second of a kind's samples. Takes the lock. */
static uint64_t units_of_kind(struct stack_recorder *recorder, enum stack_file_stream_kind kind)
{
	uint64_t units;

	if (recorder->kinds[kind].wanted.kind != PERF_EVENTS_CPU)
		return 0;
	if (!recorder->kinds[kind].wanted.cycles)
		return NS_PER_S;
	if (recorder->status.system_wide)
		return units_of_machine(recorder);
	pthread_mutex_lock(&recorder->lock);
	units = recorder->followed_units;
	pthread_mutex_unlock(&recorder->lock);
	return units;
}

/* ---- opening the events ----
 *
 *   try system-wide events ── allowed ──────────────────────▶ system-wide; per-thread ones if they
 *          │ not allowed                                         have stacks
 *          └──▶ try our own thread ── allowed ──────────────▶ per-thread events only
 *                       │ not allowed, not even without the kernel
 *                       └──▶ error
 *
 * What is not available (cycles, build ids, the kernel's part) is settled before rings are planned.
 * If the kernel has no room for a plan, the next smaller one is tried with all rings opened anew.
 */

#define DEFAULT_FREQUENCY 99
#define STACK_BYTES_MIN 1024
#define STACK_BYTES_MAX 32768
#define OWN_THREAD ((pid_t)0)
#define ALL_THREADS ((pid_t)-1)

static bool is_refusal(int error)
{
	return error == -EACCES || error == -EPERM;
}

/* Adds to status.limits, as much as there is room for. */
__attribute__((format(printf, 2, 3))) static void add_limit(struct stack_recorder *recorder, const char *format, ...)
{
	char *limits = recorder->status.limits;
	size_t len = strlen(limits);
	va_list arguments;

	if (len > 0 && len < STACK_RECORDER_REASON_MAX - 2) {
		memcpy(limits + len, "; ", 3);
		len += 2;
	}
	va_start(arguments, format);
	vsnprintf(limits + len, STACK_RECORDER_REASON_MAX - len, format, arguments);
	va_end(arguments);
}

/* Opens an event on the first CPU that is online, and closes it again. 0 or -errno. */
static int probe_event(const struct perf_events_wanted *wanted, pid_t tid)
{
	struct proc_cpus possible;
	int fd = -ENODEV;

	proc_read_cpus(PROC_CPUS_POSSIBLE, &possible);
	for (unsigned cpu = 0; fd == -ENODEV && cpu < possible.end; cpu++)
		fd = perf_events_event(wanted, tid, cpu);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

/* Clears in wanted what this machine does not have; for a thread, if need be, the kernel's part. */
static int settle_wanted(struct perf_events_wanted *wanted, pid_t tid)
{
	int r = probe_event(wanted, tid);

	if (wanted->cgroups && r == -EINVAL) {
		wanted->cgroups = false;
		r = probe_event(wanted, tid);
	}
	if (wanted->cycles && (r == -ENOENT || r == -EOPNOTSUPP || r == -EINVAL || r == -ENODEV)) {
		wanted->cycles = false;
		r = probe_event(wanted, tid);
	}
	if (wanted->build_ids && r == -EINVAL) {
		wanted->build_ids = false;
		r = probe_event(wanted, tid);
	}
	if (!wanted->user_only && tid != ALL_THREADS && is_refusal(r)) {
		wanted->user_only = true;
		r = settle_wanted(wanted, tid);
	}
	return r;
}

static void want_kind(struct stack_recorder *recorder, enum stack_file_stream_kind kind, enum perf_events_kind event,
		      const struct perf_events_wanted *like)
{
	struct event_kind *entry = &recorder->kinds[kind];

	entry->on = true;
	entry->wanted = *like;
	entry->wanted.kind = event;
	if (event != PERF_EVENTS_CPU)
		entry->wanted.cycles = false;
	if (event == PERF_EVENTS_SIDE)
		entry->wanted.stack_bytes = 0;
	entry->followed = kind == STACK_FILE_CPU_FOLLOWED || kind == STACK_FILE_FAULTS_FOLLOWED ||
			  (kind == STACK_FILE_SIDEBAND && !recorder->status.system_wide);
	entry->apart = entry->followed || kind == STACK_FILE_FAULTS;
	if (event == PERF_EVENTS_FAULTS)
		entry->wanted.wake_samples = fault_events_limits(perf_events_period(&entry->wanted)).most;
	entry->wanted.large_pages = kind == STACK_FILE_FAULTS;
	entry->format = entry->written = perf_events_format(&entry->wanted);
	entry->written.sample_type |= PERF_SAMPLE_PERIOD;
	entry->written.sample_type &= ~(uint64_t)PERF_SAMPLE_RAW;
}

/* Tries system-wide events, then those of our own threads. 0; -errno and then reason. */
static int find_privilege(struct stack_recorder *recorder, const struct stack_recorder_options *options,
			  struct perf_events_wanted *wanted, char *reason)
{
	int r = settle_wanted(wanted, options->followed_only ? OWN_THREAD : ALL_THREADS);

	if (r < 0)
		perf_events_refusal(r, reason);
	recorder->status.system_wide = r == 0 && !options->followed_only;
	if (options->followed_only || !is_refusal(r))
		return r;
	return settle_wanted(wanted, OWN_THREAD) < 0 ? r : 0;
}

static uint32_t stack_bytes(const struct stack_recorder_options *options)
{
	uint32_t bytes = options->stack_bytes != 0 ? options->stack_bytes : DEFAULT_STACK_BYTES;

	if (bytes > STACK_BYTES_MAX)
		return STACK_BYTES_MAX;
	return bytes < STACK_BYTES_MIN ? STACK_BYTES_MIN : bytes / 8 * 8;
}

/* Whether there can be samples with registers and stack. */
static bool can_dwarf(struct stack_recorder *recorder, const struct stack_recorder_options *options,
		      const struct perf_events_wanted *wanted)
{
	struct perf_events_wanted stacks = *wanted;
	int r;

	if (!options->dwarf)
		return false;
	if (!perf_events_can_dwarf()) {
		add_limit(recorder, "no stacks to unwind: this machine's registers are not known");
		return false;
	}
	stacks.stack_bytes = stack_bytes(options);
	r = probe_event(&stacks, OWN_THREAD);
	if (r < 0)
		add_limit(recorder, "no stacks to unwind: perf_event_open: %s", strerror(-r));
	return r == 0;
}

static void want_kinds(struct stack_recorder *recorder, const struct stack_recorder_options *options,
		       const struct perf_events_wanted *wanted, const struct ring_plan *plan)
{
	static const enum perf_events_kind events[STACK_FILE_STREAM_KINDS] = {
		[STACK_FILE_SIDEBAND] = PERF_EVENTS_SIDE,          [STACK_FILE_CPU] = PERF_EVENTS_CPU,
		[STACK_FILE_CPU_FOLLOWED] = PERF_EVENTS_CPU,       [STACK_FILE_FAULTS] = PERF_EVENTS_FAULTS,
		[STACK_FILE_FAULTS_FOLLOWED] = PERF_EVENTS_FAULTS,
	};

	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++) {
		struct perf_events_wanted like = *wanted;

		recorder->kinds[kind] = (struct event_kind){ .ring_bytes = plan->ring_bytes[kind] };
		if (plan->ring_bytes[kind] == 0)
			continue;
		if (kind != STACK_FILE_CPU && plan->dwarf)
			like.stack_bytes = stack_bytes(options);
		want_kind(recorder, (enum stack_file_stream_kind)kind, events[kind], &like);
	}
}

static void close_cpu(struct stack_recorder *recorder, unsigned index)
{
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		if (recorder->kinds[kind].rings != NULL)
			perf_events_close(&recorder->kinds[kind].rings[index]);
}

/* Closes what was opened, if only a part of it. */
static void close_events(struct stack_recorder *recorder)
{
	fault_events_close(recorder->faults);
	recorder->faults = NULL;
	for (unsigned i = 0; i < recorder->status.cpus; i++)
		close_cpu(recorder, i);
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++) {
		free(recorder->kinds[kind].rings);
		recorder->kinds[kind].rings = NULL;
	}
	recorder->status.cpus = recorder->status.cpus_missing = 0;
	recorder->status.memory_bytes = 0;
}

static int open_ring(const struct event_kind *kind, uint32_t cpu, struct perf_events *ret, char *reason)
{
	if (kind->apart)
		return perf_events_open_ring(&kind->wanted, cpu, kind->ring_bytes, ret, reason);
	return perf_events_open(&kind->wanted, cpu, kind->ring_bytes, ret, reason);
}

/* Those that are not online have their place, and are counted. */
static int open_cpu(struct stack_recorder *recorder, uint32_t cpu, bool online, char *reason)
{
	struct stack_recorder_status *status = &recorder->status;
	uint64_t bytes = 0;
	int r = online ? 0 : -ENODEV;

	for (int kind = 0; r == 0 && kind < STACK_FILE_STREAM_KINDS; kind++) {
		struct event_kind *entry = &recorder->kinds[kind];

		if (!entry->on)
			continue;
		r = open_ring(entry, cpu, &entry->rings[status->cpus], reason);
		bytes += r == 0 ? entry->rings[status->cpus].map_bytes : 0;
	}
	if (r < 0)
		close_cpu(recorder, status->cpus);
	if (r == -ENODEV) {
		status->cpus_missing++;
		return 0;
	}
	if (r < 0)
		return r;
	status->cpus++;
	status->memory_bytes += bytes;
	return 0;
}

static int open_rings(struct stack_recorder *recorder, char *reason)
{
	struct proc_cpus possible, online;
	char why[STACK_RECORDER_REASON_MAX] = "";
	int r = 0;

	proc_read_cpus(PROC_CPUS_POSSIBLE, &possible);
	proc_read_cpus(PROC_CPUS_ONLINE, &online);

	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++) {
		struct event_kind *entry = &recorder->kinds[kind];

		if (!entry->on)
			continue;
		entry->rings = calloc(possible.end, sizeof(*entry->rings));
		if (entry->rings == NULL)
			return -ENOMEM;
		for (unsigned i = 0; i < possible.end; i++)
			entry->rings[i] = PERF_EVENTS_NONE;
	}
	for (unsigned cpu = 0; r == 0 && cpu < possible.end; cpu++)
		r = open_cpu(recorder, cpu, proc_cpus_has(&online, cpu), why);
	if (r == 0 && recorder->status.cpus == 0) {
		snprintf(why, sizeof(why), "no CPU could be sampled");
		r = -ENODEV;
	}
	if (r < 0)
		memcpy(reason, why, sizeof(why));
	return r;
}

static int open_faults(struct stack_recorder *recorder, char *reason)
{
	enum stack_file_stream_kind kind =
		recorder->kinds[STACK_FILE_FAULTS].on ? STACK_FILE_FAULTS : STACK_FILE_FAULTS_FOLLOWED;

	return recorder->kinds[kind].on ? fault_events_open(recorder, kind, &recorder->faults, reason) : 0;
}

/* 0, and if they cannot be had the status says why; -ENOMEM. */
static int open_large_pages(struct stack_recorder *recorder)
{
	struct fault_events *faults = recorder->faults;
	char *why = recorder->status.large_pages;
	int r = 0;

	if (faults == NULL)
		return 0;
	if (!faults->system_wide)
		snprintf(why, STACK_RECORDER_REASON_MAX, "page faults are not sampled system-wide");
	else
		r = large_pages_open(&faults->wanted, faults->rings, faults->cpu_count, &faults->large, why);
	note_ring_heads(faults);
	return r == -ENOMEM ? r : 0;
}

/* The largest plan that the kernel has room for. */
static int open_plan(struct stack_recorder *recorder, struct ring_needs *needs, const struct perf_events_wanted *wanted,
		     struct ring_plan *plan, char *reason)
{
	char why[STACK_RECORDER_REASON_MAX];
	int r = plan_rings(needs, plan, reason);

	while (r == 0) {
		want_kinds(recorder, needs->options, wanted, plan);
		r = open_rings(recorder, why);
		if (r == 0)
			r = open_faults(recorder, why);
		if (r == 0)
			return 0;
		close_events(recorder);
		if (!is_refusal(r) || strncmp(why, "mmap", 4) != 0)
			break;
		needs->most = plan_bytes(plan) * needs->cpus - 1;
		if (plan_rings(needs, plan, reason) < 0)
			break; /* with the kernel's error */
		r = 0;
	}
	if (r < 0 && r != -ENOSPC)
		memcpy(reason, why, sizeof(why));
	return r;
}

static void describe_status(struct stack_recorder *recorder, const struct stack_recorder_options *options,
			    const struct perf_events_wanted *wanted, const struct ring_needs *needs,
			    const struct ring_plan *plan)
{
	struct stack_recorder_status *status = &recorder->status;

	status->dwarf = plan->dwarf;
	status->kernel = !wanted->user_only;
	status->faults = !options->without_faults;
	status->cycles = wanted->cycles;
	status->build_ids = recorder->kinds[STACK_FILE_SIDEBAND].wanted.build_ids;
	status->ring_bytes = plan_bytes(plan);
	if (options->cycles && !wanted->cycles)
		add_limit(recorder, "samples by the clock: the hardware has no cycles to count here");
	if (needs->dwarf && !plan->dwarf)
		add_limit(recorder, "no stacks to unwind: no memory for a second of them%s",
			  needs->most != 0 ? " (kernel.perf_event_mlock_kb, RLIMIT_MEMLOCK)" : "");
}

/* 0; -errno and then reason. */
static int open_events(struct stack_recorder *recorder, const struct stack_recorder_options *options, char *reason)
{
	const bool cgroups = recorder->cgroup_fd >= 0;
	struct perf_events_wanted wanted = { .kind = PERF_EVENTS_CPU, .cycles = options->cycles, .cgroups = cgroups };
	struct perf_events_wanted side = { .kind = PERF_EVENTS_SIDE, .build_ids = true, .cgroups = cgroups };
	struct ring_needs needs = { .options = options };
	struct ring_plan plan;
	struct proc_cpus online;
	int r;

	wanted.frequency = perf_events_frequency(options->frequency != 0 ? options->frequency : DEFAULT_FREQUENCY);
	recorder->status.frequency = needs.frequency = wanted.frequency;
	r = find_privilege(recorder, options, &wanted, reason);
	if (r < 0)
		return r;
	if (settle_wanted(&side, recorder->status.system_wide ? ALL_THREADS : OWN_THREAD) == 0)
		wanted.build_ids = side.build_ids;
	proc_read_cpus(PROC_CPUS_ONLINE, &online);
	needs.cpus = online.count;
	needs.system_wide = recorder->status.system_wide;
	needs.dwarf = can_dwarf(recorder, options, &wanted);
	recorder->opened_busy_ns = read_busy_ns(recorder->proc_fd);
	recorder->opened_ns = monotonic_ns();
	r = open_plan(recorder, &needs, &wanted, &plan, reason);
	if (r < 0)
		return r;
	describe_status(recorder, options, &wanted, &needs, &plan);
	return open_large_pages(recorder);
}

/* ---- from the side-band rings into the history ----
 *
 * A process forks on one CPU and its child runs on another: records are sorted by time over all
 * rings before the history sees them, and those of the last MOMENT_NS wait, since an older one may
 * not have been written yet.
 */

#define MOMENT_NS (100 * NS_PER_US) /* from a record's time to its being in the ring, at most and by far */
#define NOTES_MAX 65536 /* a second of a machine that does nothing but fork; beyond it, some are counted twice */

/* Keeps what the side-band rings report of forks and exits, for thread_events. Under the lock. */
static void add_note(struct stack_recorder *recorder, const struct perf_record *record)
{
	bool begins = record->type == PERF_RECORD_FORK, ends = record->type == PERF_RECORD_EXIT;

	if (!recorder->take_notes || (!begins && !(ends && record->pid == record->tid)))
		return;
	if (recorder->note_count == NOTES_MAX ||
	    vector_reserve(&recorder->notes, &recorder->note_cap, recorder->note_count + 1, sizeof(*recorder->notes)) <
		    0) {
		recorder->side_lost++;
		return;
	}
	recorder->notes[recorder->note_count++] = (struct thread_events_note){ .time_ns = record->time_ns,
									       .pid = record->pid,
									       .tid = record->tid,
									       .ppid = record->fork.ppid,
									       .ptid = record->fork.ptid,
									       .ended = ends };
}

/* It may be gone when it is asked for. Under the lock. */
static void note_made_cgroup(struct stack_recorder *recorder, const struct perf_record *record)
{
	struct made_cgroup *made;

	if (recorder->made == NULL)
		recorder->made = calloc(MADE_CGROUPS_MAX, sizeof(*recorder->made));
	if (recorder->made == NULL)
		return;
	made = &recorder->made[recorder->made_count++ % MADE_CGROUPS_MAX];
	free(made->path);
	*made = (struct made_cgroup){ record->cgroup.id, strndup(record->cgroup.path, record->cgroup.path_len) };
}

static int take_sideband(void *ctx, const struct perf_event_header *record, size_t len)
{
	struct stack_recorder *recorder = ctx;
	struct perf_record decoded;

	if (perf_record_decode(&PERF_RECORD_PLAIN, record, len, &decoded) < 0)
		return 0;
	if (decoded.type == PERF_RECORD_LOST)
		recorder->side_lost += decoded.lost.count;
	else if (decoded.type == PERF_RECORD_CGROUP)
		note_made_cgroup(recorder, &decoded);
	else if (perf_merge_add(&recorder->pending, record, len, decoded.time_ns) < 0)
		recorder->side_lost++;
	return 0;
}

static void feed_history(struct stack_recorder *recorder, uint64_t until_ns)
{
	struct perf_merge swap;
	struct perf_record decoded;

	perf_merge_sort(&recorder->pending);
	for (size_t i = 0; i < recorder->pending.count; i++) {
		uint64_t time_ns = recorder->pending.entries[i].time_ns;
		size_t size;
		const void *record = perf_merge_record(&recorder->pending, i, &size);

		if (time_ns > until_ns) {
			if (perf_merge_add(&recorder->kept, record, size, time_ns) < 0)
				recorder->side_lost++;
		} else if (perf_record_decode(&PERF_RECORD_PLAIN, record, size, &decoded) == 0) {
			mapping_history_feed(recorder->history, &decoded);
			add_note(recorder, &decoded);
		}
	}
	perf_merge_clear(&recorder->pending);
	swap = recorder->pending;
	recorder->pending = recorder->kept;
	recorder->kept = swap;
}

/* Takes the lock. */
static void drain_sideband(struct stack_recorder *recorder)
{
	uint64_t now_ns;

	pthread_mutex_lock(&recorder->lock);
	now_ns = monotonic_ns();
	for (unsigned i = 0; i < recorder->status.cpus; i++)
		if (perf_ring_drain(&recorder->kinds[STACK_FILE_SIDEBAND].rings[i].ring, recorder->scratch,
				    take_sideband, recorder) < 0)
			recorder->side_lost++;
	feed_history(recorder, now_ns - MOMENT_NS);
	mapping_history_expire(recorder->history, now_ns > recorder->keep_ns ? now_ns - recorder->keep_ns : 0);
	pthread_mutex_unlock(&recorder->lock);
}

/* ---- processes that run since before the recorder ----
 *
 * Looked up in /proc when a sample has hit them: the text is read, then the side-band rings are
 * emptied, then the history is seeded. An execve(2) before the reading is in the history by then,
 * which then does not take the text for what was mapped before.
 */

#define MAPS_BYTES_MAX ((size_t)8 << 20) /* 65,530 mappings, the kernel's limit, of paths of average length */

static void read_comm(int proc_fd, const char *name, char comm[32])
{
	struct buffer text = { .max = 31 };

	comm[0] = '\0';
	if (whole_file_read(proc_fd, name, &text) == 0 && text.len > 0) {
		memcpy(comm, text.data, text.len);
		comm[text.len] = '\0';
		comm[strcspn(comm, "\n")] = '\0';
	}
	buffer_release(&text);
}

static bool history_knows(struct stack_recorder *recorder, uint32_t pid, uint64_t time_ns, uint32_t *ret_parent)
{
	bool known;

	pthread_mutex_lock(&recorder->lock);
	known = mapping_history_knows(recorder->history, pid, time_ns, ret_parent);
	pthread_mutex_unlock(&recorder->lock);
	return known;
}

static void seed_process(struct stack_recorder *recorder, uint32_t pid)
{
	AUTO_FREE char *maps = malloc(MAPS_BYTES_MAX + 1); /* of which only what is read is ever in memory */
	uint64_t now_ns = monotonic_ns();
	char name[48], comm[32];
	ssize_t len =
		maps ? foreign_read(FOREIGN_STACKS, recorder->proc_fd, (int32_t)pid, "maps", maps, MAPS_BYTES_MAX + 1)
		     : -ENOMEM;

	if (len < 0)
		return;
	snprintf(name, sizeof(name), "%u/comm", pid);
	read_comm(recorder->proc_fd, name, comm);
	drain_sideband(recorder);
	pthread_mutex_lock(&recorder->lock);
	mapping_history_seed(recorder->history, pid, comm[0] != '\0' ? comm : NULL, maps, (size_t)len, now_ns);
	pthread_mutex_unlock(&recorder->lock);
}

static void look_up_thread(struct stack_recorder *recorder, const struct thread_hit *hit)
{
	char name[64], comm[32];
	bool known;

	pthread_mutex_lock(&recorder->lock);
	known = mapping_history_knows_thread(recorder->history, hit->pid, hit->tid, hit->time_ns);
	pthread_mutex_unlock(&recorder->lock);
	if (known)
		return;
	snprintf(name, sizeof(name), "%u/task/%u/comm", hit->pid, hit->tid);
	read_comm(recorder->proc_fd, name, comm);
	if (comm[0] == '\0')
		return;
	pthread_mutex_lock(&recorder->lock);
	mapping_history_seed_thread(recorder->history, hit->pid, hit->tid, comm);
	pthread_mutex_unlock(&recorder->lock);
}

/*
 * Looks up in /proc what the history does not know of these threads, sorted by pid, and of the
 * processes they were forked from.
 */
static void look_up_processes(struct stack_recorder *recorder, const struct thread_hit *hits, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t parent;

		if (hits[i].pid == 0)
			continue;
		if ((i == 0 || hits[i - 1].pid != hits[i].pid) &&
		    !history_knows(recorder, hits[i].pid, hits[i].time_ns, &parent)) {
			seed_process(recorder, hits[i].pid);
			if (!history_knows(recorder, hits[i].pid, hits[i].time_ns, &parent) && parent != 0)
				seed_process(recorder, parent);
		}
		look_up_thread(recorder, &hits[i]);
	}
}

/* ---- per-thread events of followed processes ----
 *
 * The recorder's thread opens them without the lock, since hundreds take a while. Forks that the
 * side-band rings report meanwhile wait as notes.
 */

#define PROCESSES_MAX 256
#define EVENTS_MAX 4096

static void hand_on_notes(struct stack_recorder *recorder)
{
	AUTO_FREE struct thread_events_note *notes = NULL;
	size_t count;

	pthread_mutex_lock(&recorder->lock);
	count = recorder->note_count;
	if (count > 0) {
		notes = TAKE(recorder->notes);
		recorder->note_count = recorder->note_cap = 0;
	}
	pthread_mutex_unlock(&recorder->lock);
	for (size_t i = 0; i < count; i++)
		thread_events_note(recorder->threads, &notes[i]);
}

static void on_catch_up(void *ctx)
{
	drain_sideband(ctx);
	hand_on_notes(ctx);
}

/* While it still runs: its names and mappings are wanted after it has exited, too. */
static void on_followed(void *ctx, uint32_t pid, const uint32_t *tids, size_t count)
{
	struct stack_recorder *recorder = ctx;
	uint64_t now_ns = monotonic_ns();
	AUTO_FREE struct thread_hit *hits = calloc(count, sizeof(*hits));

	for (size_t i = 0; hits != NULL && i < count; i++)
		hits[i] = (struct thread_hit){ .pid = pid, .tid = tids[i], .time_ns = now_ns };
	if (hits != NULL)
		look_up_processes(recorder, hits, count);
}

static void publish_followed(struct stack_recorder *recorder)
{
	struct thread_events_status followed;

	thread_events_status(recorder->threads, &followed);
	pthread_mutex_lock(&recorder->lock);
	recorder->followed = followed;
	recorder->take_notes = followed.threads > 0;
	pthread_mutex_unlock(&recorder->lock);
}

/* Cycles per second by the per-thread events, where there are no system-wide ones. */
static void publish_units(struct stack_recorder *recorder)
{
	uint64_t cycles = 0, running_ns = 0;

	for (size_t i = 0; i < recorder->output_count; i++)
		if (recorder->outputs[i].wanted->cycles && !recorder->status.system_wide)
			thread_events_count(recorder->threads, i, &cycles, &running_ns);
	pthread_mutex_lock(&recorder->lock);
	recorder->followed_units = cycles_per_second(cycles, running_ns);
	pthread_mutex_unlock(&recorder->lock);
}

/* Follows another set, if there is one, and closes events of exited processes; look: checks all. */
static void reconcile_followed(struct stack_recorder *recorder, bool look)
{
	AUTO_FREE uint32_t *pids = NULL;
	size_t count = 0;
	bool changed;

	if (recorder->threads == NULL)
		return;
	pthread_mutex_lock(&recorder->lock);
	changed = recorder->follow_changed;
	if (changed && recorder->follow_count > 0) {
		pids = malloc(recorder->follow_count * sizeof(*pids));
		if (pids != NULL)
			memcpy(pids, recorder->follow, recorder->follow_count * sizeof(*pids));
		count = recorder->follow_count;
		recorder->take_notes = true;
	}
	if (changed && (count == 0 || pids != NULL))
		recorder->follow_changed = false;
	else
		changed = false; /* no memory: tried again next time */
	pthread_mutex_unlock(&recorder->lock);
	hand_on_notes(recorder);
	if (changed)
		thread_events_follow(recorder->threads, pids, count);
	thread_events_sweep(recorder->threads, look);
	publish_followed(recorder);
	if (changed || look)
		publish_units(recorder);
}

static void wake_thread(const struct stack_recorder *recorder)
{
	const uint64_t one = 1;

	while (write(recorder->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

int stack_recorder_follow(struct stack_recorder *recorder, const uint32_t *pids, size_t count)
{
	AUTO_FREE uint32_t *copy = NULL;
	bool same;

	if (recorder->threads == NULL)
		return 0;
	if (count > 0) {
		copy = malloc(count * sizeof(*copy));
		if (copy == NULL)
			return -ENOMEM;
		memcpy(copy, pids, count * sizeof(*copy));
	}
	pthread_mutex_lock(&recorder->lock);
	same = count == recorder->follow_count &&
	       (count == 0 || memcmp(copy, recorder->follow, count * sizeof(*copy)) == 0);
	if (!same) {
		free(recorder->follow);
		recorder->follow = TAKE(copy);
		recorder->follow_count = count;
		recorder->follow_changed = true;
	}
	pthread_mutex_unlock(&recorder->lock);
	if (!same)
		wake_thread(recorder);
	return 0;
}

/* How many descriptors may be events if RLIMIT_NOFILE is nofile: a quarter, at most EVENTS_MAX. */
static unsigned events_allowed(uint64_t nofile)
{
	return nofile / 4 < EVENTS_MAX ? (unsigned)(nofile / 4) : EVENTS_MAX;
}

/* Ready to follow, if anything can be. 0 or -ENOMEM. */
static int open_follow(struct stack_recorder *recorder)
{
	struct rlimit limit = { .rlim_cur = 1024 };
	struct thread_events_options options = { .proc_fd = recorder->proc_fd,
						 .outputs = recorder->outputs,
						 .cpus = recorder->status.cpus,
						 .max_processes = PROCESSES_MAX,
						 .clock = real_clock(),
						 .catch_up = on_catch_up,
						 .opened = on_followed,
						 .ctx = recorder };

	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		if (recorder->kinds[kind].on && recorder->kinds[kind].followed)
			recorder->outputs[recorder->output_count++] =
				(struct thread_events_output){ &recorder->kinds[kind].wanted,
							       recorder->kinds[kind].rings };
	if (recorder->output_count == 0)
		return 0;
	getrlimit(RLIMIT_NOFILE, &limit);
	options.max_events = events_allowed(limit.rlim_cur);
	options.output_count = recorder->output_count;
	return thread_events_new(&options, &recorder->threads);
}

static void close_follow(struct stack_recorder *recorder)
{
	thread_events_free(recorder->threads);
	free(recorder->follow);
	free(recorder->notes);
}

#define WAKE_MS 1000
#define LOOK_WAKES 10 /* of these, one checks all followed processes: an EXIT record may have been lost */

static bool is_stopping(struct stack_recorder *recorder)
{
	bool stopping;

	pthread_mutex_lock(&recorder->lock);
	stopping = recorder->stopping;
	pthread_mutex_unlock(&recorder->lock);
	return stopping;
}

/* Reads the eventfd. True: the thread shall end; else there is another set to follow. */
static bool woken_to_stop(struct stack_recorder *recorder)
{
	uint64_t count;

	while (read(recorder->wake_fd, &count, sizeof(count)) < 0 && errno == EINTR)
		;
	return is_stopping(recorder);
}

/* What the thread polls: the eventfd, the side-band rings, the rings of page faults. */
static nfds_t list_pollfds(const struct stack_recorder *recorder, struct pollfd *watched)
{
	nfds_t count = 0;

	watched[count++] = (struct pollfd){ .fd = recorder->wake_fd, .events = POLLIN };
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++) {
		const struct event_kind *entry = &recorder->kinds[kind];
		bool faults = kind == STACK_FILE_FAULTS || kind == STACK_FILE_FAULTS_FOLLOWED;

		for (unsigned i = 0; (kind == STACK_FILE_SIDEBAND || faults) && entry->on && i < recorder->status.cpus;
		     i++)
			watched[count++] = (struct pollfd){ .fd = entry->rings[i].fd, .events = POLLIN };
	}
	return count;
}

/* Whether a side-band ring woke the thread. Rings of a CPU that went offline are not polled again. */
static bool sideband_woke(struct pollfd *watched, nfds_t count, unsigned cpus)
{
	bool side = false;

	for (nfds_t i = 1; i < count; i++) {
		side |= i <= cpus && watched[i].revents != 0;
		if (watched[i].revents & (POLLHUP | POLLERR | POLLNVAL))
			watched[i].fd = -1;
	}
	return side;
}

/* True: the thread shall end. */
static bool wait_for_work(struct stack_recorder *recorder, struct pollfd *watched, nfds_t count)
{
	uint64_t until_ns = monotonic_ns() + WAKE_MS * NS_PER_MS, now_ns = 0;
	bool work = false;

	while (!work && (now_ns = monotonic_ns()) < until_ns) {
		int wait_ms = (int)((until_ns - now_ns) / NS_PER_MS) + 1, r;

		if (recorder->faults != NULL)
			wait_ms = fault_events_wait_ms(recorder->faults, wait_ms);
		r = poll(watched, count, wait_ms);
		if (r > 0 && watched[0].revents != 0 && woken_to_stop(recorder))
			return true;
		work = r > 0 && (watched[0].revents != 0 || sideband_woke(watched, count, recorder->status.cpus));
		if (recorder->faults != NULL)
			fault_events_look(recorder->faults, recorder->threads);
	}
	return is_stopping(recorder); /* it may not have been possible to wake it */
}

static void *recorder_thread(void *argument)
{
	struct stack_recorder *recorder = argument;
	AUTO_FREE struct pollfd *fds = calloc(1 + 2 * (size_t)recorder->status.cpus, sizeof(*fds));
	struct pollfd only = { .fd = recorder->wake_fd, .events = POLLIN };
	struct pollfd *watched = fds != NULL ? fds : &only;
	nfds_t count = fds != NULL ? list_pollfds(recorder, watched) : 1;

	for (unsigned wakes = 1; !wait_for_work(recorder, watched, count); wakes++) {
		drain_sideband(recorder);
		reconcile_followed(recorder, wakes % LOOK_WAKES == 0);
		pthread_mutex_lock(&recorder->lock);
		recorder->side_wakeups++;
		pthread_mutex_unlock(&recorder->lock);
	}
	return NULL;
}

/* ---- a snapshot: what the rings hold of a span of time ----
 *
 * 	each kind, each CPU: (pause, copy, resume)* │ keep what is of the span │ look up what was hit │
 * 	side-band records of those processes │ their files
 *
 * A ring is copied in pieces, the newest first, and paused only for each, into memory that was
 * touched before; what it gets between two of them costs the oldest at most. Samples take three
 * quarters of what is allowed at most, so that there is room for the side-band records. Call chains
 * go first, they are small; of what is left, each ring may fill an equal part. Of stacks only what
 * the kernel could read is kept, not the room behind it. Where samples do not say their period, it
 * is put in: of page faults, what one stands for by now.
 *
 * Files are sorted, as not all of them will be opened. One that no chain went through counts by the
 * stacks that may lead into it. An address is looked up once per page and lifetime of a process, in
 * a cache that forgets what collides. The history is locked for one sample at a time, so that the
 * thread of the side-band rings never waits long.
 *
 * Cgroups are those that samples name, by inode (PERF_SAMPLE_CGROUP): of the hierarchy of the
 * perf_event controller, which is v2 unless it is mounted as v1. Others are read while the processes
 * run; one that has ended was most likely in that of its parent, which is where fork(2) puts it. With
 * both hierarchies mounted ("hybrid") the cpu controller may be in either: where it is not in v2, all
 * processes are in the root of that.
 */

#define SNAPSHOT_BYTES ((size_t)64 << 20)
#define SIDEBAND_RECORD_MAX 16384 /* a path of 4,096 and what is around it */
#define CGROUP_TEXT_MAX 16384     /* a dozen hierarchies, of paths of up to PATH_MAX in one or two of them */
#define CGROUP_PATH_MAX 4097

/* What a followed thread's stack counts when files are sorted: there may be hundreds of others. */
#define FOLLOWED_STACK 16u

/* The order in which kinds get what room there is. */
static const enum stack_file_stream_kind kinds_in_order[] = { STACK_FILE_CPU, STACK_FILE_CPU_FOLLOWED,
							      STACK_FILE_FAULTS, STACK_FILE_FAULTS_FOLLOWED };

/* ---- a snapshot: cgroups ---- */

/* Whether a list like "cpu,cpuacct" has this name. */
static bool has_controller(const struct procfs_cgroup *line, const char *name)
{
	size_t name_len = strlen(name), at = 0;

	while (at < line->controllers_len) {
		const char *item = line->controllers + at;
		const char *comma = memchr(item, ',', line->controllers_len - at);
		size_t len = comma != NULL ? (size_t)(comma - item) : line->controllers_len - at;

		if (len == name_len && memcmp(item, name, len) == 0)
			return true;
		at += len + 1;
	}
	return false;
}

/*
 * The cgroup that stands for a process, in the text of /proc/<pid>/cgroup: that of the v2
 * hierarchy, unless there is none or it is the root; else the cpu controller's, else "/".
 * Terminated. False: no cgroups, or longer than cap.
 */
static bool parse_cgroup(const char *text, size_t len, char *path, size_t cap)
{
	struct procfs_cgroup line, best = { .path_len = 0 };
	size_t offset = 0;

	while (procfs_cgroup_next(text, len, &offset, &line) > 0) {
		bool unified = line.controllers_len == 0;

		if (unified && line.path_len > 1) {
			best = line;
			break;
		}
		/* That of the cpu controller goes before the root of v2, whichever comes first. */
		if (has_controller(&line, "cpu") || (unified && best.path_len == 0))
			best = line;
	}
	if (best.path_len == 0 || best.path_len >= cap)
		return false;
	memcpy(path, best.path, best.path_len);
	path[best.path_len] = '\0';
	return true;
}

/* How far the process that one was forked from is looked for, among those that have ended. */
#define ANCESTORS_MAX 32u

/* Whether the cgroups of a process are the roots of all hierarchies. */
static bool is_in_roots(const char *text, size_t len)
{
	struct procfs_cgroup line;
	size_t offset = 0;

	while (procfs_cgroup_next(text, len, &offset, &line) > 0)
		if (line.path_len > 1)
			return false;
	return true;
}

static bool is_exiting(struct stack_recorder *recorder, uint32_t pid)
{
	char text[1024];
	ssize_t len = proc_read_file(recorder->proc_fd, (int32_t)pid, "stat", text, sizeof(text));
	struct procfs_stat stat;

	return len < 0 || procfs_stat_parse(text, (size_t)len, &stat) < 0 || stat.exiting;
}

/*
 * The text of /proc/<pid>/cgroup; of a process that has ended, of the nearest process before it
 * that runs. Its length; 0: not known.
 */
static size_t read_cgroups(struct stack_recorder *recorder, uint32_t pid, uint64_t time_ns, char *text, size_t cap)
{
	for (unsigned i = 0; pid != 0 && i < ANCESTORS_MAX; i++) {
		ssize_t len = proc_read_file(recorder->proc_fd, (int32_t)pid, "cgroup", text, cap);

		/* Of a process that is exiting, v1 hierarchies say "/". */
		if (len > 0 && (!is_in_roots(text, (size_t)len) || !is_exiting(recorder, pid)))
			return (size_t)len;
		pthread_mutex_lock(&recorder->lock);
		pid = mapping_history_origin(recorder->history, pid, time_ns).parent;
		pthread_mutex_unlock(&recorder->lock);
	}
	return 0;
}

/* Whether the path is this cgroup's, or of one below it. */
static bool is_at_or_below(const char *path, size_t len, const char *cgroup)
{
	size_t cgroup_len = strlen(cgroup);

	return len >= cgroup_len && memcmp(path, cgroup, cgroup_len) == 0 &&
	       (len == cgroup_len || path[cgroup_len] == '/' || cgroup_len == 1);
}

/* Whether a line of /proc/<pid>/cgroup has this cgroup, or one below it. */
static bool has_cgroup(const char *text, size_t len, const char *cgroup)
{
	struct procfs_cgroup line;
	size_t offset = 0;

	while (procfs_cgroup_next(text, len, &offset, &line) > 0)
		if (is_at_or_below(line.path, line.path_len, cgroup))
			return true;
	return false;
}

/* Inodes of cgroups; {0} is empty. */
struct cgroup_ids {
	uint64_t *all;
	size_t count, cap;
};

#define CGROUP_IDS_MAX 65536u
#define CGROUP_DEPTH_MAX 32

static int add_cgroup_id(struct cgroup_ids *ids, uint64_t id)
{
	if (ids->count == CGROUP_IDS_MAX)
		return 0;
	if (vector_reserve(&ids->all, &ids->cap, ids->count + 1, sizeof(*ids->all)) < 0)
		return -ENOMEM;
	ids->all[ids->count++] = id;
	return 0;
}

/* Of the directory and those below it; what is gone or may not be read is left out. 0 or -ENOMEM. */
static int add_cgroups_of(struct cgroup_ids *ids, int parent, const char *name, int depth)
{
	int fd = open_beneath(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, true), r = 0;
	DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
	struct stat st;

	if (directory == NULL) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	if (fstat(fd, &st) == 0)
		r = add_cgroup_id(ids, st.st_ino);
	for (struct dirent *item; r == 0 && depth < CGROUP_DEPTH_MAX && (item = readdir(directory)) != NULL;)
		if (item->d_type == DT_DIR && strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
			r = add_cgroups_of(ids, fd, item->d_name, depth + 1);
	closedir(directory);
	return r;
}

static int compare_ids(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return *a < *b ? -1 : *a > *b;
}

/*
 * This cgroup and those below it: those that are there, and those that records of their making name,
 * of which there are the newest MADE_CGROUPS_MAX since the recorder began: they may be gone.
 */
static int find_cgroup_ids(struct stack_recorder *recorder, const char *cgroup, struct cgroup_ids *ids)
{
	int r = add_cgroups_of(ids, recorder->cgroup_fd, cgroup[1] != '\0' ? cgroup + 1 : ".", 0);

	pthread_mutex_lock(&recorder->lock);
	for (size_t i = 0; r == 0 && i < MADE_CGROUPS_MAX && i < recorder->made_count; i++) {
		const struct made_cgroup *made = &recorder->made[i];

		if (made->path != NULL && is_at_or_below(made->path, strlen(made->path), cgroup))
			r = add_cgroup_id(ids, made->id);
	}
	pthread_mutex_unlock(&recorder->lock);
	qsort(ids->all, ids->count, sizeof(*ids->all), compare_ids);
	return r;
}

/* Whether samples of the process say that it was in one of these. places: from the first of it on. */
static bool was_in(const struct cgroup_ids *ids, const struct stack_recorder_place *places, size_t count, uint32_t pid)
{
	for (size_t i = 0; i < count && places[i].pid == pid; i++)
		if (ids->count > 0 &&
		    bsearch(&places[i].cgroup, ids->all, ids->count, sizeof(*ids->all), compare_ids) != NULL)
			return true;
	return false;
}

int stack_recorder_find_inside(struct stack_recorder *recorder, const char *cgroup,
			       struct stack_recorder_snapshot *snapshot)
{
	AUTO_FREE char *text = malloc(CGROUP_TEXT_MAX);
	struct cgroup_ids ids = { 0 };
	size_t place = 0;
	int r = 0;

	snapshot->inside = calloc(snapshot->pid_count + 1, sizeof(*snapshot->inside));
	if (text == NULL || snapshot->inside == NULL)
		return -ENOMEM;
	if (snapshot->place_count > 0)
		r = find_cgroup_ids(recorder, cgroup, &ids);
	for (size_t i = 0; r == 0 && i < snapshot->pid_count; i++) {
		uint32_t pid = snapshot->pids[i];

		while (place < snapshot->place_count && snapshot->places[place].pid < pid)
			place++;
		snapshot->inside[i] = was_in(&ids, snapshot->places + place, snapshot->place_count - place, pid);
		if (!snapshot->inside[i])
			snapshot->inside[i] = has_cgroup(
				text, read_cgroups(recorder, pid, snapshot->to_ns, text, CGROUP_TEXT_MAX), cgroup);
	}
	free(ids.all);
	return r;
}

/*
 * The cgroups of snapshot->pids; their paths are appended to snapshot->paths and
 * are resolved by settle_cgroups, when that does not grow any more. 0 or -ENOMEM.
 */
static int look_up_cgroups(struct stack_recorder *recorder, struct stack_recorder_snapshot *snapshot)
{
	char text[CGROUP_TEXT_MAX], path[CGROUP_PATH_MAX];
	int r = 0;

	snapshot->cgroups = calloc(snapshot->pid_count + 1, sizeof(*snapshot->cgroups));
	if (snapshot->cgroups == NULL)
		return -ENOMEM;
	for (size_t i = 0; r == 0 && i < snapshot->pid_count; i++) {
		uint32_t pid = snapshot->pids[i];
		size_t len = read_cgroups(recorder, pid, snapshot->to_ns, text, sizeof(text));

		if (len == 0 || !parse_cgroup(text, len, path, sizeof(path)))
			continue;
		r = buffer_append(&snapshot->paths, path, strlen(path) + 1);
		if (r == 0)
			snapshot->cgroups[snapshot->cgroup_count++] = (struct stack_file_cgroup){ .pid = pid };
	}
	return r;
}

/* Their paths are the first texts, in this order. */
static void settle_cgroups(struct stack_recorder_snapshot *snapshot)
{
	const char *at = snapshot->paths.data;

	for (size_t i = 0; i < snapshot->cgroup_count; i++) {
		snapshot->cgroups[i].path = at;
		at += strlen(at) + 1;
	}
}

/* ---- a snapshot: files ---- */

#define CACHE_ENTRIES 4096

/* A file, as long as files are counted. */
struct tallied_file {
	struct map_node node;
	struct stack_recorder_file file;
	size_t path; /* offset in snapshot->paths, which moves while it grows */
	bool running;
};

/* What an address came to. */
struct cached {
	uint64_t page, began_ns;
	uint32_t pid; /* 0: empty */
	struct tallied_file *file;
};

struct file_tally {
	struct stack_recorder *recorder;
	struct stack_recorder_snapshot *snapshot;
	struct cached cache[CACHE_ENTRIES];
	struct map map;
	struct arena arena;
	struct tallied_file **files; /* in the order in which they came */
	size_t count, cap;
};

static bool is_file(const char *path)
{
	return path[0] == '/' && strncmp(path, "//", 2) != 0 && strcmp(path, "/anon_hugepage") != 0;
}

static struct tallied_file *tally_find(const struct file_tally *tally, const struct mapping_history_place *place,
				       uint64_t hash)
{
	for (struct map_node *node = map_first(&tally->map, hash); node != NULL; node = map_next(node)) {
		struct tallied_file *file = MAP_ENTRY(node, struct tallied_file, node);

		if (perf_record_file_same(&file->file.file, &place->file) &&
		    strcmp(tally->snapshot->paths.data + file->path, place->path) == 0)
			return file;
	}
	return NULL;
}

/* 0 or -ENOMEM. */
static int tally_add(struct file_tally *tally, const struct mapping_history_place *place, uint64_t hash,
		     struct tallied_file **ret)
{
	struct buffer *paths = &tally->snapshot->paths;
	struct tallied_file *file = arena_alloc(&tally->arena, sizeof(*file));
	size_t path = paths->len;
	int r = file != NULL ? map_reserve(&tally->map, tally->count + 1) : -ENOMEM;

	if (r == 0)
		r = vector_reserve(&tally->files, &tally->cap, tally->count + 1, sizeof(struct tallied_file *));
	if (r == 0)
		r = buffer_append(paths, place->path, strlen(place->path) + 1);
	if (r < 0)
		return r;
	file->file.file = place->file;
	file->path = path;
	map_insert(&tally->map, &file->node, hash);
	tally->files[tally->count++] = file;
	*ret = file;
	return 0;
}

/* The file of a mapping of pid, found or added. 0 or -ENOMEM. */
static int tally_file(struct file_tally *tally, uint32_t pid, const struct mapping_history_place *place,
		      struct tallied_file **ret)
{
	uint64_t hash = map_hash(place->path, strlen(place->path));
	struct tallied_file *file = tally_find(tally, place, hash);
	int r = file == NULL ? tally_add(tally, place, hash, &file) : 0;

	if (r < 0)
		return r;
	if (file->file.pid == 0 || (place->running && !file->running)) {
		file->file.pid = pid;
		file->file.start = place->start;
		file->file.end = place->end;
		file->running = place->running;
	}
	*ret = file;
	return 0;
}

static int count_frame(struct file_tally *tally, const struct perf_record *sample, uint64_t began_ns, uint64_t address)
{
	uint64_t page = address >> 12;
	struct cached *cached = &tally->cache[(page ^ sample->pid * 2654435761u) % CACHE_ENTRIES];

	if (cached->pid != sample->pid || cached->page != page || cached->began_ns != began_ns) {
		struct mapping_history_place place;
		struct tallied_file *file = NULL;
		int r = 0;

		if (mapping_history_find(tally->recorder->history, sample->pid, sample->time_ns, address, &place) &&
		    is_file(place.path))
			r = tally_file(tally, sample->pid, &place, &file);
		if (r < 0)
			return r;
		*cached = (struct cached){ page, began_ns, sample->pid, file };
	}
	if (cached->file != NULL)
		cached->file->file.frames++;
	return 0;
}

static int count_sample(struct file_tally *tally, const struct perf_record *sample)
{
	bool user = false;
	uint64_t began_ns;
	int r = 0;

	pthread_mutex_lock(&tally->recorder->lock);
	began_ns = mapping_history_origin(tally->recorder->history, sample->pid, sample->time_ns).began_ns;
	for (size_t i = 0; r == 0 && i < sample->sample.chain_len; i++) {
		uint64_t address = sample->sample.chain[i];

		if (address >= PERF_CONTEXT_MAX)
			user = address == PERF_CONTEXT_USER;
		else if (user)
			r = count_frame(tally, sample, began_ns, address);
	}
	pthread_mutex_unlock(&tally->recorder->lock);
	return r;
}

/* Counts what files the user frames of samples were in. 0 or -ENOMEM. */
static int tally_samples(struct file_tally *tally, const struct perf_record_format *format,
			 const struct perf_merge *merge)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < merge->count; i++) {
		struct perf_record record;
		size_t size;
		const void *bytes = perf_merge_record(merge, i, &size);

		if (perf_record_decode(format, bytes, size, &record) == 0 && record.type == PERF_RECORD_SAMPLE &&
		    record.pid != 0)
			r = count_sample(tally, &record);
	}
	return r;
}

/* Adds the file of an MMAP2 record, of a process with so many stacks. 0 or -ENOMEM. */
static int tally_mapping(struct file_tally *tally, const struct perf_record *record, uint64_t stacks)
{
	struct mapping_history_place place;
	struct tallied_file *file = NULL;
	int r = 0;

	pthread_mutex_lock(&tally->recorder->lock);
	if (is_file(record->mmap.path) &&
	    mapping_history_find(tally->recorder->history, record->pid, record->time_ns, record->mmap.start, &place) &&
	    is_file(place.path))
		r = tally_file(tally, record->pid, &place, &file);
	pthread_mutex_unlock(&tally->recorder->lock);
	if (file != NULL)
		file->file.stacks += stacks;
	return r;
}

static int by_use(const void *left, const void *right)
{
	const struct stack_recorder_file *a = left, *b = right;
	uint64_t first = a->frames + a->stacks, second = b->frames + b->stacks;

	return first > second ? -1 : first < second;
}

/* Fills in snapshot->files, sorted: snapshot->paths must not grow any more. 0 or -ENOMEM. */
static int tally_finish(struct file_tally *tally)
{
	struct stack_recorder_snapshot *snapshot = tally->snapshot;

	snapshot->files = calloc(tally->count + 1, sizeof(*snapshot->files));
	if (snapshot->files == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < tally->count; i++) {
		snapshot->files[i] = tally->files[i]->file;
		snapshot->files[i].path = snapshot->paths.data + tally->files[i]->path;
	}
	snapshot->file_count = tally->count;
	qsort(snapshot->files, snapshot->file_count, sizeof(*snapshot->files), by_use);
	return 0;
}

static void tally_free(struct file_tally **tally)
{
	if (*tally == NULL)
		return;
	map_release(&(*tally)->map);
	arena_release(&(*tally)->arena);
	free((*tally)->files);
	free(*tally);
}

/* Of a ring, at once: of a whole one it was most of what the daemon took in a storm. */
#define PIECE_BYTES (256u << 10)
_Static_assert(PIECE_BYTES >= PERF_RECORD_SIZE_MAX, "a record fits");

/* A record may be older than one that the ring got before it by no more than this, by far. */
#define DISORDER_NS (100 * NS_PER_MS)

struct ring_capture {
	struct stack_recorder *recorder;
	struct stack_recorder_snapshot *snapshot;
	struct perf_merge merges[STACK_FILE_STREAM_KINDS];
	struct stack_recorder_stream streams[STACK_FILE_STREAM_KINDS];
	struct thread_hit *hits;
	size_t hit_count, hit_cap;
	uint8_t *copy; /* of a piece of a ring */
	unsigned ring; /* its number */
	void *scratch; /* of one record */
};

/* ---- a snapshot: samples ---- */

static int add_hit(struct ring_capture *capture, const struct perf_record *sample, uint32_t stacks)
{
	if (vector_reserve(&capture->hits, &capture->hit_cap, capture->hit_count + 1, sizeof(*capture->hits)) < 0)
		return -ENOMEM;
	capture->hits[capture->hit_count++] =
		(struct thread_hit){ sample->pid, sample->tid, sample->time_ns, stacks, sample->sample.cgroup };
	return 0;
}

/*
 * The record as it is kept, of *ret_size bytes: in the scratch, or where it is. NULL: it grew
 * beyond what a record can be.
 */
static const void *rewrite_sample(struct ring_capture *capture, enum stack_file_stream_kind kind, const void *bytes,
				  const struct perf_record *record, size_t *ret_size)
{
	const struct event_kind *entry = &capture->recorder->kinds[kind];
	uint64_t period = perf_events_period(&entry->wanted);
	struct perf_record copy = *record;

	*ret_size = record->size;
	if (record->type != PERF_RECORD_SAMPLE || (period == 0 && entry->wanted.stack_bytes == 0))
		return bytes;
	if (record->sample.raw_bytes >= sizeof(copy.sample.period)) {
		memcpy(&copy.sample.period, record->sample.raw, sizeof(copy.sample.period));
		copy.sample.period |= STACK_FILE_LARGE_PAGES;
	} else if (period != 0) {
		copy.sample.period = fault_weight(capture->recorder->faults, capture->ring, record->time_ns);
	}
	if (perf_record_encode(&entry->written, &copy, capture->scratch, PERF_RECORD_SIZE_MAX, ret_size) < 0)
		return NULL;
	return capture->scratch;
}

static uint32_t stacks_of_sample(const struct ring_capture *capture, enum stack_file_stream_kind kind)
{
	if (capture->recorder->kinds[kind].wanted.stack_bytes == 0)
		return 0;
	return kind == STACK_FILE_CPU_FOLLOWED || kind == STACK_FILE_FAULTS_FOLLOWED ? FOLLOWED_STACK : 1;
}

/*
 * Large pages that the kernel makes of small ones (khugepaged) are no new memory. Its threads have
 * no part of a call chain in user mode.
 */
static bool is_of_kernel_thread(const struct perf_record_sample *sample)
{
	for (size_t i = 0; i < sample->chain_len; i++)
		if (sample->chain[i] == (uint64_t)PERF_CONTEXT_USER)
			return false;
	return sample->raw_bytes > 0;
}

/* 0 or -ENOMEM. */
static int keep_record(struct ring_capture *capture, enum stack_file_stream_kind kind, const void *bytes,
		       const struct perf_record *record)
{
	struct stack_recorder_snapshot *snapshot = capture->snapshot;
	struct stack_recorder_stream *stream = &capture->streams[kind];
	size_t size;
	int r;

	if (record->time_ns < snapshot->from_ns || record->time_ns > snapshot->to_ns)
		return 0;
	if (record->type != PERF_RECORD_SAMPLE && record->type != PERF_RECORD_LOST)
		return 0;
	if (record->type == PERF_RECORD_SAMPLE && is_of_kernel_thread(&record->sample))
		return 0;
	bytes = rewrite_sample(capture, kind, bytes, record, &size);
	r = bytes != NULL ? perf_merge_add(&capture->merges[kind], bytes, size, record->time_ns) : -EFBIG;
	if (r == -EFBIG) {
		stream->left_out += size;
		return 0;
	}
	if (r < 0)
		return r;
	if (record->type == PERF_RECORD_LOST) {
		stream->head.lost += record->lost.count;
		return 0;
	}
	stream->samples++;
	return add_hit(capture, record, stacks_of_sample(capture, kind));
}

/* Newest first. *ret_oldest_ns: the last time that was seen. */
static int keep_piece(struct ring_capture *capture, enum stack_file_stream_kind kind, size_t len,
		      uint64_t *ret_oldest_ns)
{
	const struct perf_record_format *format = &capture->recorder->kinds[kind].format;
	const uint8_t *bytes = capture->copy;
	int r = 0;

	for (size_t at = 0; r == 0 && at < len;) {
		struct perf_event_header header;
		struct perf_record record;

		memcpy(&header, bytes + at, sizeof(header));
		if (perf_record_decode(format, bytes + at, len - at, &record) < 0) {
			capture->streams[kind].left_out += header.size;
		} else {
			*ret_oldest_ns = record.time_ns;
			r = keep_record(capture, kind, bytes + at, &record);
		}
		at += header.size;
	}
	return r;
}

/* The length of the next piece of the ring, which is paused meanwhile. */
static size_t copy_piece(struct ring_capture *capture, struct stack_recorder_stream *stream,
			 const struct perf_events *events, struct perf_ring_walk *walk)
{
	struct clock clock = real_clock();
	uint64_t before_ns = clock_mono(&clock).ns, paused_ns;
	bool paused = perf_events_pause(events, true) == 0;
	size_t len = perf_ring_snapshot(&events->ring, walk, capture->copy, PIECE_BYTES);

	if (paused)
		perf_events_pause(events, false);
	paused_ns = clock_mono(&clock).ns - before_ns;
	if (paused && paused_ns > stream->paused_ns)
		stream->paused_ns = paused_ns;
	return len;
}

static int read_ring(struct ring_capture *capture, enum stack_file_stream_kind kind, const struct perf_events *events)
{
	struct stack_recorder_stream *stream = &capture->streams[kind];
	uint64_t oldest_ns = capture->snapshot->to_ns, covered_ns, from_ns = capture->snapshot->from_ns;
	struct perf_ring_walk walk = { 0 };
	size_t len;
	int r = 0;

	while (r == 0 && oldest_ns + DISORDER_NS > from_ns && (len = copy_piece(capture, stream, events, &walk)) > 0)
		r = keep_piece(capture, kind, len, &oldest_ns);
	stream->rings++;
	stream->torn += walk.torn;
	covered_ns = perf_ring_came_round(&events->ring) || walk.torn ? oldest_ns : capture->recorder->opened_ns;
	if (covered_ns > stream->head.covered_ns)
		stream->head.covered_ns = covered_ns;
	return r;
}

/* *left: bytes that records may still take. */
static int read_kind(struct ring_capture *capture, enum stack_file_stream_kind kind, size_t *left)
{
	const struct event_kind *entry = &capture->recorder->kinds[kind];
	struct perf_merge *merge = &capture->merges[kind];
	unsigned cpus = capture->recorder->status.cpus;
	int r = 0;

	if (!entry->on)
		return 0;
	capture->streams[kind].head = (struct stack_file_stream){ .kind = kind,
								  .stack_bytes = entry->wanted.stack_bytes,
								  .sample_type = entry->written.sample_type,
								  .regs_user = entry->written.regs_user,
								  .covered_ns = capture->snapshot->from_ns };
	for (unsigned i = 0; r == 0 && i < cpus; i++) {
		size_t before = merge->bytes;

		merge->max_bytes = before + *left / (cpus - i);
		/* 0 would be no limit. */
		merge->max_bytes += merge->max_bytes == 0;
		capture->ring = i;
		r = read_ring(capture, kind, &entry->rings[i]);
		*left -= merge->bytes - before;
	}
	perf_merge_sort(merge);
	capture->streams[kind].head.units_per_second = units_of_kind(capture->recorder, kind);
	return r;
}

static int read_kinds(struct ring_capture *capture, size_t max_bytes, size_t *left)
{
	size_t of_samples = max_bytes / 4 * 3;
	int r = 0;

	capture->copy = malloc(PIECE_BYTES);
	capture->scratch = malloc(PERF_RECORD_SIZE_MAX);
	if (capture->copy == NULL || capture->scratch == NULL)
		return -ENOMEM;
	memset(capture->copy, 0xff, PIECE_BYTES); /* no page of it is missing while a ring is paused */
	*left = max_bytes - of_samples;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(kinds_in_order); i++)
		r = read_kind(capture, kinds_in_order[i], &of_samples);
	*left += of_samples;
	free(TAKE(capture->copy));
	return r;
}

/* ---- a snapshot: threads that were hit ---- */

static int compare_hits(const void *left, const void *right)
{
	const struct thread_hit *a = left, *b = right;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

static int compare_places(const void *left, const void *right)
{
	const struct stack_recorder_place *a = left, *b = right;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return a->cgroup < b->cgroup ? -1 : a->cgroup > b->cgroup;
}

/* 0 or -ENOMEM. */
static int list_places(struct ring_capture *capture)
{
	struct stack_recorder_snapshot *snapshot = capture->snapshot;
	struct stack_recorder_place *places = calloc(capture->hit_count + 1, sizeof(*places));
	size_t count = 0;

	if (places == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < capture->hit_count; i++)
		if (capture->hits[i].cgroup != 0)
			places[count++] =
				(struct stack_recorder_place){ capture->hits[i].pid, capture->hits[i].cgroup };
	qsort(places, count, sizeof(*places), compare_places);
	for (size_t i = 0; i < count; i++)
		if (i == 0 || compare_places(&places[i - 1], &places[i]) != 0)
			places[snapshot->place_count++] = places[i];
	snapshot->places = places;
	return 0;
}

/* Merges the hits of each thread, sorts them by pid, and lists the pids and their cgroups. */
static int sum_up_hits(struct ring_capture *capture)
{
	struct stack_recorder_snapshot *snapshot = capture->snapshot;
	struct thread_hit *hits = capture->hits;
	size_t count = 0;

	if (capture->hit_count == 0)
		return 0;
	if (list_places(capture) < 0)
		return -ENOMEM;
	qsort(hits, capture->hit_count, sizeof(*hits), compare_hits);
	for (size_t i = 0; i < capture->hit_count; i++) {
		if (count == 0 || hits[count - 1].pid != hits[i].pid || hits[count - 1].tid != hits[i].tid)
			hits[count++] = hits[i];
		else
			hits[count - 1].stacks += hits[i].stacks;
	}
	capture->hit_count = count;
	snapshot->pids = calloc(count, sizeof(*snapshot->pids));
	if (snapshot->pids == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (hits[i].pid != 0 && (i == 0 || hits[i - 1].pid != hits[i].pid))
			snapshot->pids[snapshot->pid_count++] = hits[i].pid;
	return 0;
}

/* ---- a snapshot: side-band records ---- */

/* For mapping_history_write. */
static int keep_sideband(void *ctx, const void *data, size_t len)
{
	struct ring_capture *capture = ctx;
	_Alignas(PERF_RECORD_ALIGN) uint8_t aligned[SIDEBAND_RECORD_MAX];
	struct perf_record record;
	int r;

	if (len > sizeof(aligned))
		return -EMSGSIZE;
	memcpy(aligned, data, len);
	if (perf_record_decode(&PERF_RECORD_PLAIN, aligned, len, &record) < 0)
		return -EBADMSG;
	r = perf_merge_add(&capture->merges[STACK_FILE_SIDEBAND], aligned, len, record.time_ns);
	if (r == -EFBIG)
		capture->streams[STACK_FILE_SIDEBAND].left_out += len;
	return r == -EFBIG ? 0 : r;
}

/* What the history has of each process; locked for one at a time. */
static int read_sideband(struct ring_capture *capture, size_t left)
{
	struct stack_recorder_snapshot *snapshot = capture->snapshot;
	struct stack_recorder *recorder = capture->recorder;
	const struct sink sink = { keep_sideband, capture };
	size_t hit = 0;
	int r = 0;

	capture->merges[STACK_FILE_SIDEBAND].max_bytes = left + (left == 0);
	capture->streams[STACK_FILE_SIDEBAND].head = (struct stack_file_stream){
		.kind = STACK_FILE_SIDEBAND, .sample_type = PERF_RECORD_FRAME_POINTERS, .covered_ns = snapshot->from_ns
	};
	for (size_t i = 0; r == 0 && i < snapshot->pid_count; i++) {
		uint32_t pid = snapshot->pids[i], parent;

		while (capture->hits[hit].pid != pid)
			hit++;
		pthread_mutex_lock(&recorder->lock);
		snapshot->unmapped +=
			!mapping_history_knows(recorder->history, pid, capture->hits[hit].time_ns, &parent);
		r = mapping_history_write(recorder->history, pid, snapshot->from_ns, snapshot->to_ns, &sink);
		pthread_mutex_unlock(&recorder->lock);
	}
	perf_merge_sort(&capture->merges[STACK_FILE_SIDEBAND]);
	return r;
}

/* ---- a snapshot: files, from mappings ---- */

/* Of all its threads. */
static uint64_t stacks_of_process(const struct ring_capture *capture, uint32_t pid)
{
	size_t low = 0, high = capture->hit_count;
	uint64_t stacks = 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (capture->hits[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	for (; low < capture->hit_count && capture->hits[low].pid == pid; low++)
		stacks += capture->hits[low].stacks;
	return stacks;
}

/* Unwinding a stack meets modules that no chain went through. */
static int tally_mappings(struct ring_capture *capture, struct file_tally *tally)
{
	const struct perf_merge *sideband = &capture->merges[STACK_FILE_SIDEBAND];
	int r = 0;

	for (size_t i = 0; r == 0 && i < sideband->count; i++) {
		struct perf_record record;
		size_t size;
		const void *bytes = perf_merge_record(sideband, i, &size);

		if (perf_record_decode(&PERF_RECORD_PLAIN, bytes, size, &record) < 0 ||
		    record.type != PERF_RECORD_MMAP2)
			continue;

		uint64_t stacks = stacks_of_process(capture, record.pid);

		if (stacks > 0)
			r = tally_mapping(tally, &record, stacks);
	}
	return r;
}

static int tally_files(struct ring_capture *capture)
{
	AUTO(tally_free) struct file_tally *tally = calloc(1, sizeof(*tally));
	int r = 0;

	if (tally == NULL)
		return -ENOMEM;
	tally->recorder = capture->recorder;
	tally->snapshot = capture->snapshot;
	for (size_t i = 0; r == 0 && i < ARRAY_LEN(kinds_in_order); i++)
		r = tally_samples(tally, &capture->recorder->kinds[kinds_in_order[i]].written,
				  &capture->merges[kinds_in_order[i]]);
	if (r == 0)
		r = tally_mappings(capture, tally);
	return r == 0 ? tally_finish(tally) : r;
}

/* ---- a snapshot: all of it ---- */

/* The records of a kind go into the snapshot, and are freed here: the pages of one take the place of the other's. */
static int hand_over_kind(struct ring_capture *capture, enum stack_file_stream_kind kind)
{
	struct stack_recorder_stream *stream = &capture->snapshot->streams[capture->snapshot->stream_count++];
	const struct sink sink = sink_buffer(&stream->records);
	int r;

	*stream = capture->streams[kind];
	r = buffer_fit(&stream->records, capture->merges[kind].bytes);
	if (r == 0)
		r = perf_merge_write(&capture->merges[kind], &sink);
	stream->head.record_bytes = stream->records.len;
	return r;
}

static int capture_all(struct ring_capture *capture, size_t max_bytes)
{
	struct stack_recorder *recorder = capture->recorder;
	struct stack_recorder_snapshot *snapshot = capture->snapshot;
	size_t left;
	int r;

	if (recorder->faults != NULL)
		sum_up_faults(recorder->faults, snapshot->from_ns, snapshot->to_ns, &snapshot->faults);
	r = read_kinds(capture, max_bytes, &left);
	if (r == 0)
		r = sum_up_hits(capture);
	if (r < 0)
		return r;
	drain_sideband(recorder);
	look_up_processes(recorder, capture->hits, capture->hit_count);
	r = look_up_cgroups(recorder, snapshot);
	if (r == 0)
		r = read_sideband(capture, left);
	if (r == 0)
		r = tally_files(capture);
	if (r < 0)
		return r;
	settle_cgroups(snapshot);
	for (int kind = 0; r == 0 && kind < STACK_FILE_STREAM_KINDS; kind++)
		if (recorder->kinds[kind].on)
			r = hand_over_kind(capture, (enum stack_file_stream_kind)kind);
	return r;
}

int stack_recorder_snapshot(struct stack_recorder *recorder, uint64_t from_ns, uint64_t to_ns, size_t max_bytes,
			    struct stack_recorder_snapshot *ret)
{
	struct clock clock = real_clock();
	uint64_t now_ns = clock_mono(&clock).ns;
	struct stack_recorder_snapshot snapshot = { .from_ns = from_ns, .to_ns = to_ns < now_ns ? to_ns : now_ns };
	struct ring_capture capture = { .recorder = recorder, .snapshot = &snapshot };
	int r;

	r = capture_all(&capture, max_bytes != 0 ? max_bytes : SNAPSHOT_BYTES);
	for (int kind = 0; kind < STACK_FILE_STREAM_KINDS; kind++)
		perf_merge_release(&capture.merges[kind]);
	free(capture.hits);
	free(capture.copy);
	free(capture.scratch);
	if (r < 0) {
		stack_recorder_snapshot_release(&snapshot);
		return r;
	}
	*ret = snapshot;
	return 0;
}

void stack_recorder_snapshot_release(struct stack_recorder_snapshot *snapshot)
{
	for (size_t i = 0; i < snapshot->stream_count; i++)
		buffer_release(&snapshot->streams[i].records);
	buffer_release(&snapshot->paths);
	free(snapshot->files);
	free(snapshot->pids);
	free(snapshot->inside);
	free(snapshot->places);
	free(snapshot->cgroups);
	*snapshot = (struct stack_recorder_snapshot){ 0 };
}

/* ---- opening ---- */

/* Whether the perf_event controller has a v1 hierarchy, whose inodes say nothing of v2. */
static bool is_perf_event_v1(struct stack_recorder *recorder)
{
	AUTO_FREE char *text = malloc(CGROUP_TEXT_MAX);
	ssize_t len = text ? proc_read_file(recorder->proc_fd, 1, "cgroup", text, CGROUP_TEXT_MAX) : -ENOMEM;
	struct procfs_cgroup line;
	size_t offset = 0;

	while (len > 0 && procfs_cgroup_next(text, (size_t)len, &offset, &line) > 0)
		if (has_controller(&line, "perf_event"))
			return true;
	return len <= 0;
}

static int open_resources(struct stack_recorder *recorder, const struct stack_recorder_options *options)
{
	struct mapping_history_limits limits = { .max_bytes = plan_memory(options) / 8 };

	recorder->proc_fd = options->proc_fd;
	if (recorder->proc_fd == 0) {
		recorder->proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (recorder->proc_fd < 0)
			return -errno;
		recorder->proc_owned = true;
	}
	if (options->cgroup_root != NULL && !is_perf_event_v1(recorder))
		recorder->cgroup_fd = open(options->cgroup_root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	recorder->wake_fd = eventfd(0, EFD_CLOEXEC);
	if (recorder->wake_fd < 0)
		return -errno;
	recorder->scratch = malloc(PERF_RECORD_SIZE_MAX);
	if (recorder->scratch == NULL)
		return -ENOMEM;
	return mapping_history_new(&limits, &recorder->history);
}

static int start_thread(struct stack_recorder *recorder)
{
	int r = thread_start(&recorder->thread, recorder_thread, recorder);

	if (r < 0)
		return r;
	recorder->running = true;
	pthread_setname_np(recorder->thread, "stacks");
	return 0;
}

int stack_recorder_open(const struct stack_recorder_options *options, struct stack_recorder **ret, char *reason)
{
	AUTO(stack_recorder_closep) struct stack_recorder *recorder = calloc(1, sizeof(*recorder));
	int r;

	reason[0] = '\0';
	r = recorder != NULL ? 0 : -ENOMEM;
	if (r == 0) {
		recorder->proc_fd = recorder->wake_fd = recorder->cgroup_fd = -1;
		pthread_mutex_init(&recorder->lock, NULL);
		stack_recorder_keep(recorder, DEFAULT_BEFORE_NS, DEFAULT_BEFORE_NS);
		r = open_resources(recorder, options);
	}
	if (r == 0)
		r = open_events(recorder, options, reason);
	if (r == 0)
		r = open_follow(recorder);
	if (r == 0)
		r = start_thread(recorder);
	if (r < 0) {
		if (reason[0] == '\0')
			snprintf(reason, STACK_RECORDER_REASON_MAX, "%s", strerror(-r));
		return r;
	}
	*ret = TAKE(recorder);
	return 0;
}

static void stop_thread(struct stack_recorder *recorder)
{
	if (!recorder->running)
		return;
	pthread_mutex_lock(&recorder->lock);
	recorder->stopping = true;
	pthread_mutex_unlock(&recorder->lock);
	wake_thread(recorder);
	pthread_join(recorder->thread, NULL);
}

void stack_recorder_close(struct stack_recorder *recorder)
{
	if (recorder == NULL)
		return;
	stop_thread(recorder);
	close_follow(recorder);
	close_events(recorder);
	if (recorder->proc_owned)
		close(recorder->proc_fd);
	if (recorder->wake_fd >= 0)
		close(recorder->wake_fd);
	if (recorder->cgroup_fd >= 0)
		close(recorder->cgroup_fd);
	for (size_t i = 0; recorder->made != NULL && i < MADE_CGROUPS_MAX; i++)
		free(recorder->made[i].path);
	free(recorder->made);
	perf_merge_release(&recorder->pending);
	perf_merge_release(&recorder->kept);
	mapping_history_free(recorder->history);
	pthread_mutex_destroy(&recorder->lock);
	free(recorder->scratch);
	free(recorder);
}

void stack_recorder_keep(struct stack_recorder *recorder, uint64_t before_ns, uint64_t after_ns)
{
	pthread_mutex_lock(&recorder->lock);
	if (__builtin_add_overflow(before_ns, after_ns, &recorder->keep_ns) ||
	    __builtin_add_overflow(recorder->keep_ns, KEEP_SLACK_NS, &recorder->keep_ns))
		recorder->keep_ns = UINT64_MAX;
	pthread_mutex_unlock(&recorder->lock);
}

void stack_recorder_status(struct stack_recorder *recorder, struct stack_recorder_status *ret)
{
	pthread_mutex_lock(&recorder->lock);
	*ret = recorder->status;
	ret->opened_ns = recorder->opened_ns;
	ret->side_lost = recorder->side_lost;
	ret->side_wakeups = recorder->side_wakeups;
	ret->followed_processes = recorder->followed.processes;
	ret->followed_threads = recorder->followed.threads;
	ret->not_followed = recorder->followed.not_followed;
	if (recorder->faults != NULL)
		ret->faults_error = fault_events_error(recorder->faults, &ret->large_pages_off_ns);
	mapping_history_stats(recorder->history, &ret->history);
	pthread_mutex_unlock(&recorder->lock);
}
