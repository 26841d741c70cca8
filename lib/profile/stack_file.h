/*
 * stack_file.h: stacks on their way to spikewatch-symbolize, in one flat file, native byte order:
 *
 *   struct stack_file_head
 *   struct stack_file_stream   x head.streams
 *   struct stack_file_binary   x head.binaries
 *   struct stack_file_process  x head.processes
 *   struct target_member       x head.members
 *   texts                     head.string_bytes (a multiple of 8), each terminated: paths, cgroups
 *   perf records              of each stream in turn, its record_bytes of them, ordered by time, as
 *   the kernel lays them out with sample_id_all
 *
 * Nothing in the file is trusted before stack_file_parse has checked it, and records only by
 * perf_record_decode.
 */
#ifndef SPIKEWATCH_LIB_PROFILE_STACK_FILE_H
#define SPIKEWATCH_LIB_PROFILE_STACK_FILE_H

#include "lib/base/io.h"
#include "lib/model/target.h"
#include "lib/proc/perf.h"

/*
 * A symboliser that was started early gets descriptors later, by messages (SOCK_SEQPACKET, SCM_RIGHTS)
 * of at most so many, whose bytes are the number of each as an int: what the stack file calls it, or what
 * it would be in one that is started for all at once. The last is 0, the stack file itself.
 */
#define STACK_FILE_DESCRIPTORS_AT_ONCE 64

enum stack_file_kind {
	STACK_FILE_ELF,      /* a mapped file: belongs to the MMAP2 records with the same path and the same `file` */
	STACK_FILE_PERF_MAP, /* /tmp/perf-<pid>.map of process `pid` */
	STACK_FILE_KALLSYMS, /* /proc/kallsyms */
	STACK_FILE_KINDS,
};

/*
 * What the records of a stream are. Where a thread was sampled by events of its own, those samples
 * count and not the system-wide ones of the same time.
 */
enum stack_file_stream_kind {
	STACK_FILE_SIDEBAND,     /* FORK, COMM, MMAP2 and EXIT as mapping_history_write describes: of all streams */
	STACK_FILE_CPU,          /* SAMPLE and LOST: what ran on a CPU */
	STACK_FILE_CPU_FOLLOWED, /* the same, by events on the threads of watched processes */
	STACK_FILE_FAULTS,       /* SAMPLE and LOST: page faults, by first touch of memory */
	STACK_FILE_FAULTS_FOLLOWED,
	STACK_FILE_STREAM_KINDS,
};

/*
 * Of the period of a sample of page faults: it is no fault, but so many pages that came with others
 * beyond the one page of each.
 */
#define STACK_FILE_LARGE_PAGES (1ULL << 63)

struct stack_file_stream {
	uint32_t kind;             /* enum stack_file_stream_kind; each at most once */
	uint32_t stack_bytes;      /* attr.sample_stack_user; 0 without PERF_SAMPLE_STACK_USER */
	uint64_t sample_type;      /* perf_record_format */
	uint64_t regs_user;        /* perf_record_format */
	uint64_t units_per_second; /* of CPU time, in which a sample says its period: 1e9, or cycles. Of faults: 0 */
	uint64_t covered_ns;       /* some CPU's ring held nothing older: it was overwritten; >= head.from_ns */
	uint64_t lost;             /* samples that the kernel dropped (PERF_RECORD_LOST) */
	uint64_t record_bytes;     /* a multiple of 8 */
};

struct stack_file_head {
	char magic[8];
	uint32_t version;
	uint32_t head_bytes; /* sizeof(struct stack_file_head) */
	uint32_t page_bytes; /* of memory */
	uint32_t string_bytes;
	uint32_t streams;
	uint32_t binaries;
	uint32_t processes;
	uint32_t members;
	uint32_t everyone;       /* 1: all processes are part of the target, whatever members says */
	uint32_t frequency;      /* samples a second of a CPU that is busy */
	uint64_t fired_mono_ns;  /* when the rule fired */
	uint64_t fired_wall_ns;  /* the same moment, CLOCK_REALTIME */
	uint64_t from_ns, to_ns; /* what was asked for, CLOCK_MONOTONIC as all times of records */
};

/* What is known of a process beside its records. */
struct stack_file_process {
	uint32_t pid;
	uint32_t cgroup_offset; /* into the texts */
	uint32_t cgroup_len;    /* without its terminator */
	uint32_t reserved;
};

struct stack_file_binary {
	int32_t fd;           /* in the child, >= 3; -1: could not be opened, and is here for its build id */
	uint32_t kind;        /* enum stack_file_kind */
	uint32_t pid;         /* STACK_FILE_PERF_MAP; of others, one process that has it mapped */
	uint32_t path_offset; /* into the paths */
	uint32_t path_len;    /* without its terminator */
	uint32_t reserved;
	struct perf_record_file file; /* of STACK_FILE_ELF: bit by bit what the MMAP2 records have */
};

_Static_assert(sizeof(struct stack_file_head) == 80, "no holes");
_Static_assert(sizeof(struct target_member) == 24, "no holes");
_Static_assert(sizeof(struct stack_file_stream) == 56, "no holes");
_Static_assert(sizeof(struct stack_file_process) == 16, "no holes");
_Static_assert(sizeof(struct stack_file_binary) == 72, "no holes");

/* A binary to write: as in the file, with its path beside it. */
struct stack_file_entry {
	struct stack_file_binary binary; /* path_offset and path_len are filled in by stack_file_write */
	const char *path;
};

struct stack_file_records {
	struct stack_file_stream stream; /* record_bytes is filled in by stack_file_write */
	const void *records;
	size_t record_bytes;
	int (*unpack)(const void *records, const struct sink *sink); /* writes record_bytes; NULL: they are there */
	const void *more; /* those that come after them; NULL with more_bytes 0: there are none */
	size_t more_bytes;
};

struct stack_file_cgroup {
	uint32_t pid;
	const char *path;
};

/*
 * What is written. head: magic, version, head_bytes, string_bytes, streams, binaries, processes and
 * members are filled in.
 */
struct stack_file_content {
	struct stack_file_head head;
	const struct stack_file_records *streams;
	size_t stream_count;
	const struct stack_file_entry *entries;
	size_t entry_count;
	const struct stack_file_cgroup *cgroups; /* ascending by pid */
	size_t cgroup_count;
	const struct target_member *members; /* ascending by pid, which may be there more than once */
	size_t member_count;
};

/* A file that was checked: everything points into it. */
struct stack_file {
	const struct stack_file_head *head;
	const struct stack_file_stream *streams;    /* head->streams of them; kinds are known and different */
	const struct stack_file_binary *binaries;   /* head->binaries of them; each path_offset and path_len hold */
	const struct stack_file_process *processes; /* head->processes of them, ascending by pid; texts hold */
	const struct target_member *members;        /* head->members of them, ascending by pid */
	const char *strings;
	const uint8_t *records[STACK_FILE_STREAM_KINDS]; /* of streams[i], aligned to PERF_RECORD_ALIGN */
};

/* Writes the file. 0 or what the sink returned; -EOVERFLOW: more paths than 4 GiB. */
int stack_file_write(const struct stack_file_content *content, const struct sink *sink);

/*
 * Checks that data, 8-aligned, is such a file of exactly len bytes and that its tables are inside
 * it and its paths end. 0; -EBADMSG; -EPROTONOSUPPORT: another version.
 */
int stack_file_parse(const void *data, size_t len, struct stack_file *ret);

/* Whether a process was part of the target at time_ns. */
bool stack_file_is_member(const struct stack_file *file, uint32_t pid, uint64_t time_ns);

#endif
