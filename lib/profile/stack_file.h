/*
 * stack_file.h: stacks on their way to spikewatch-symbolize, in one flat file, native byte order:
 *
 *   struct stackfile_head
 *   struct stackfile_stream   x head.streams
 *   struct stackfile_binary   x head.binaries
 *   struct stackfile_process  x head.processes
 *   texts                     head.string_bytes (a multiple of 8), each terminated: paths, cgroups
 *   perf records              of each stream in turn, its record_bytes of them, ordered by time, as the kernel lays them out with sample_id_all
 *
 * Nothing in the file is believed before stackfile_parse has seen it, and records only by perfrecord_decode.
 */
#ifndef SPIKEWATCH_LIB_PROFILE_STACK_FILE_H
#define SPIKEWATCH_LIB_PROFILE_STACK_FILE_H

#include "lib/base/io.h"
#include "lib/proc/perf.h"

enum stackfile_kind {
	STACKFILE_ELF,      /* a mapped file: belongs to the MMAP2 records with the same path and the same `file` */
	STACKFILE_PERF_MAP, /* /tmp/perf-<pid>.map of process `pid` */
	STACKFILE_KALLSYMS, /* /proc/kallsyms */
	STACKFILE_KINDS,
};

/*
 * What the records of a stream are. Where a thread was sampled by events of its own, those count and the samples that everybody's events took of it
 * in the same time do not.
 */
enum stackfile_stream_kind {
	STACKFILE_BOOK,         /* FORK, COMM, MMAP2 and EXIT, as addressbook_write describes: of all streams */
	STACKFILE_CPU,          /* SAMPLE and LOST: who was on a CPU */
	STACKFILE_CPU_FOLLOWED, /* the same, by events on the threads of watched processes */
	STACKFILE_FAULTS,       /* SAMPLE and LOST: who touched memory that was not there */
	STACKFILE_FAULTS_FOLLOWED,
	STACKFILE_STREAM_KINDS,
};

struct stackfile_stream {
	uint32_t kind;             /* enum stackfile_stream_kind; each at most once */
	uint32_t stack_bytes;      /* attr.sample_stack_user; 0 without PERF_SAMPLE_STACK_USER */
	uint64_t sample_type;      /* perfrecord_format */
	uint64_t regs_user;        /* perfrecord_format */
	uint64_t units_per_second; /* of CPU time, in which a sample says its period: 1e9, or cycles. Of faults: 0 */
	uint64_t
		covered_ns; /* nothing older than this was found on some CPU's ring: it had been overwritten; >= head.from_ns */
	uint64_t lost;         /* samples that the kernel says it dropped */
	uint64_t record_bytes; /* a multiple of 8 */
};

struct stackfile_head {
	char magic[8];
	uint32_t version;
	uint32_t head_bytes; /* sizeof(struct stackfile_head) */
	uint32_t page_bytes; /* of memory */
	uint32_t string_bytes;
	uint32_t streams;
	uint32_t binaries;
	uint32_t processes;
	uint32_t frequency;      /* samples a second of a CPU that is busy */
	uint64_t fired_mono_ns;  /* the firing; before and during are told apart by it */
	uint64_t fired_wall_ns;  /* the same moment, CLOCK_REALTIME */
	uint64_t from_ns, to_ns; /* what was asked for, CLOCK_MONOTONIC as all times of records */
};

/* What is known of a process beside its records. */
struct stackfile_process {
	uint32_t pid;
	uint32_t cgroup_offset; /* into the texts */
	uint32_t cgroup_len;    /* without its terminator */
	uint32_t reserved;
};

struct stackfile_binary {
	int32_t fd;           /* in the child, >= 3; -1: could not be opened, and is here for its build id */
	uint32_t kind;        /* enum stackfile_kind */
	uint32_t pid;         /* STACKFILE_PERF_MAP; of others, one process that has it mapped */
	uint32_t path_offset; /* into the paths */
	uint32_t path_len;    /* without its terminator */
	uint32_t reserved;
	struct perfrecord_file file; /* of STACKFILE_ELF: bit by bit what the MMAP2 records have */
};

_Static_assert(sizeof(struct stackfile_head) == 72, "no holes");
_Static_assert(sizeof(struct stackfile_stream) == 56, "no holes");
_Static_assert(sizeof(struct stackfile_process) == 16, "no holes");
_Static_assert(sizeof(struct stackfile_binary) == 72, "no holes");

/* A binary to write: as in the file, with its path beside it. */
struct stackfile_entry {
	struct stackfile_binary binary; /* path_offset and path_len are filled in by stackfile_write */
	const char *path;
};

struct stackfile_records {
	struct stackfile_stream stream; /* record_bytes is filled in by stackfile_write */
	const void *records;
	size_t record_bytes;
	const void *more; /* those that come after them; NULL with more_bytes 0: there are none */
	size_t more_bytes;
};

struct stackfile_cgroup {
	uint32_t pid;
	const char *path;
};

/* What is written. head: magic, version, head_bytes, string_bytes, streams, binaries and processes are filled in. */
struct stackfile_content {
	struct stackfile_head head;
	const struct stackfile_records *streams;
	size_t stream_count;
	const struct stackfile_entry *entries;
	size_t entry_count;
	const struct stackfile_cgroup *cgroups; /* ascending by pid */
	size_t cgroup_count;
};

/* A file that was checked: everything points into it. */
struct stackfile {
	const struct stackfile_head *head;
	const struct stackfile_stream *streams;    /* head->streams of them; kinds are known and different */
	const struct stackfile_binary *binaries;   /* head->binaries of them; each path_offset and path_len hold */
	const struct stackfile_process *processes; /* head->processes of them, ascending by pid; texts hold */
	const char *strings;
	const uint8_t *records[STACKFILE_STREAM_KINDS]; /* of streams[i], aligned to PERFRECORD_ALIGN */
};

/* Writes the file. 0 or what the sink returned; -EOVERFLOW: more paths than 4 GiB. */
int stackfile_write(const struct stackfile_content *content, const struct sink *sink);

/*
 * Checks that data, 8-aligned, is such a file of exactly len bytes and that its tables are inside it and its paths end.
 * 0; -EBADMSG; -EPROTONOSUPPORT: another version.
 */
int stackfile_parse(const void *data, size_t len, struct stackfile *ret);

#endif
