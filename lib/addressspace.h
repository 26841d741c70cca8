/*
 * addressspace.h: what is mapped where in each of many processes, and what its threads are called, kept up to date by perf records in the
 * order of their time. Bounded: what does not fit is dropped and counted, and is then not found.
 *
 * The kernel tells of mappings that are made, not of those that are removed: a mapping stays until another takes its place, its process
 * starts another program, or another process gets its number. Those of a process that has ended stay while there is room.
 */
#ifndef SPIKEWATCH_ADDRESSSPACE_H
#define SPIKEWATCH_ADDRESSSPACE_H

#include "perfrecord.h"

#include <stddef.h>
#include <stdint.h>

struct addressspace_mapping {
	uint64_t start, end;   /* [start, end) */
	uint64_t offset_bytes; /* in the file, of start */
	uint64_t id;           /* the same for all parts and copies of what one record has mapped; never 0 */
	struct perfrecord_file file;
	const char *path; /* "[vdso]", "//anon" and such are not files */
};

/* Zero means the default. */
struct addressspaces_limits {
	size_t tasks;    /* threads and processes: 131072 */
	size_t mappings; /* of all processes; of those that have shared all since a fork once: 1048576 */
	size_t texts;    /* bytes of paths, each kept once: 16 MiB */
};

struct addressspaces;

/* 0 or -ENOMEM. */
int addressspaces_new(const struct addressspaces_limits *limits, struct addressspaces **ret);

/* NULL is fine. */
void addressspaces_free(struct addressspaces *spaces);

/*
 * Takes notice of a MMAP2, COMM, FORK or EXIT record, which is copied; others are ignored. 0 or -ENOMEM: the record is not taken notice
 * of. A new process costs next to nothing until it maps something; a mapping costs time in proportion to those of its process.
 */
int addressspaces_record(struct addressspaces *spaces, const struct perfrecord *record);

/* What is mapped at address in process pid; NULL: not known. Valid until the next record. */
const struct addressspace_mapping *addressspaces_find(const struct addressspaces *spaces, uint32_t pid,
						      uint64_t address);

/* What a thread, or the process pid itself as the thread of that number, is called; NULL: not known. Valid until the next record. */
const char *addressspaces_name(const struct addressspaces *spaces, uint32_t tid);

/* Records that could not be taken notice of for want of room. */
uint64_t addressspaces_dropped(const struct addressspaces *spaces);

#endif
