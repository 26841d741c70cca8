/*
 * address_space.h: what is mapped where in each of many processes, and what its threads are called,
 * at the moment that a replay of perf records has reached. Bounded: what does not fit is dropped
 * and counted, and is then not found.
 *
 * The kernel reports mappings that are made, not those that are removed: a mapping stays until
 * another covers it, its process executes another program, or its pid is reused. The mappings of a
 * process that has ended stay while there is room.
 */
#ifndef SPIKEWATCH_DAEMON_SYMBOLIZE_ADDRESS_SPACE_H
#define SPIKEWATCH_DAEMON_SYMBOLIZE_ADDRESS_SPACE_H

#include "lib/proc/perf.h"

#include <stddef.h>
#include <stdint.h>

struct address_space_mapping {
	uint64_t start, end;   /* [start, end) */
	uint64_t offset_bytes; /* in the file, of start */
	uint64_t id;           /* the same for all parts and copies of what one record has mapped; never 0 */
	struct perf_record_file file;
	const char *path; /* "[vdso]", "//anon" and such are not files */
};

/* Zero means the default. */
struct address_spaces_limits {
	size_t tasks;    /* threads and processes: 131072 */
	size_t mappings; /* of all processes; those shared since a fork count once: 1048576 */
	size_t texts;    /* bytes of paths, each kept once: 16 MiB */
};

struct address_spaces;

/* 0 or -ENOMEM. */
int address_spaces_new(const struct address_spaces_limits *limits, struct address_spaces **ret);

/* NULL is fine. */
void address_spaces_free(struct address_spaces *spaces);

/*
 * Applies an MMAP2, COMM, FORK or EXIT record; others are ignored. 0; -ENOMEM: it was not applied.
 * A new process costs next to nothing until it maps something; a mapping costs time in proportion
 * to those of its process.
 */
int address_spaces_record(struct address_spaces *spaces, const struct perf_record *record);

/* What is mapped at address in process pid; NULL: not known. Valid until the next record. */
const struct address_space_mapping *address_spaces_find(const struct address_spaces *spaces, uint32_t pid,
							uint64_t address);

/*
 * What a thread, or the process pid itself as the thread of that number, is called; NULL: not
 * known. Valid until the next record.
 */
const char *address_spaces_name(const struct address_spaces *spaces, uint32_t tid);

/* Records that were dropped because a limit was reached. */
uint64_t address_spaces_dropped(const struct address_spaces *spaces);

#endif
