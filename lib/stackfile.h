/*
 * stackfile.h: stacks on their way to spikewatch-symbolize, in one flat file, native byte order:
 *
 *   struct stackfile_head
 *   struct stackfile_binary  x head.binaries
 *   paths                    head.string_bytes (a multiple of 8), each terminated
 *   perf records             head.record_bytes, ordered by time, as the kernel lays them out with sample_id_all
 *
 * Records: FORK, COMM, MMAP2 and EXIT as addressbook_write describes, SAMPLE and LOST as the kernel wrote them. Nothing in
 * the file is believed before stackfile_parse has seen it, and records only by perfrecord_decode.
 */
#ifndef SPIKEWATCH_STACKFILE_H
#define SPIKEWATCH_STACKFILE_H

#include "perfrecord.h"
#include "sink.h"

#define STACKFILE_MAGIC "SPKSTACK" /* without its terminator */
#define STACKFILE_VERSION 1u

enum stackfile_kind {
	STACKFILE_ELF,      /* a mapped file: belongs to the MMAP2 records with the same path and the same `file` */
	STACKFILE_PERF_MAP, /* /tmp/perf-<pid>.map of process `pid` */
	STACKFILE_KALLSYMS, /* /proc/kallsyms */
	STACKFILE_KINDS,
};

struct stackfile_head {
	char magic[8];
	uint32_t version;
	uint32_t head_bytes;     /* sizeof(struct stackfile_head) */
	uint64_t sample_type;    /* perfrecord_format */
	uint64_t regs_user;      /* perfrecord_format */
	uint32_t stack_bytes;    /* attr.sample_stack_user; 0 without */
	uint32_t page_bytes;     /* of memory */
	uint64_t fired_mono_ns;  /* the firing; before and during are told apart by it */
	uint64_t fired_wall_ns;  /* the same moment, CLOCK_REALTIME */
	uint64_t from_ns, to_ns; /* what was asked for, CLOCK_MONOTONIC as all times of records */
	uint64_t
		covered_ns; /* >= from_ns; nothing older than this was found on some CPU's ring: it had been overwritten */
	uint64_t period_ns; /* between two samples of a CPU that is busy */
	uint64_t lost;      /* samples that the kernel says it dropped */
	uint64_t record_bytes;
	uint32_t string_bytes;
	uint32_t binaries;
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

_Static_assert(sizeof(struct stackfile_head) == 112, "no holes");
_Static_assert(sizeof(struct stackfile_binary) == 72, "no holes");

/* A binary to write: as in the file, with its path beside it. */
struct stackfile_entry {
	struct stackfile_binary binary; /* path_offset and path_len are filled in by stackfile_write */
	const char *path;
};

/* What is written. head: magic, version, head_bytes, record_bytes, string_bytes and binaries are filled in. */
struct stackfile_content {
	struct stackfile_head head;
	const struct stackfile_entry *entries;
	size_t entry_count;
	const void *records;
	size_t record_bytes;
};

/* A file that was checked: everything points into it. */
struct stackfile {
	const struct stackfile_head *head;
	const struct stackfile_binary *binaries; /* head->binaries of them; each path_offset and path_len hold */
	const char *strings;
	const uint8_t *records; /* aligned to PERFRECORD_ALIGN; head->record_bytes of them */
};

/* Writes the file. 0 or what the sink returned; -EOVERFLOW: more paths than 4 GiB. */
int stackfile_write(const struct stackfile_content *content, const struct sink *sink);

/*
 * Checks that data, 8-aligned, is such a file of exactly len bytes and that its tables are inside it and its paths end.
 * 0; -EBADMSG; -EPROTONOSUPPORT: another version.
 */
int stackfile_parse(const void *data, size_t len, struct stackfile *ret);

#endif
