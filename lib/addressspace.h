/*
 * addressspace.h: what is mapped where in each of many processes, kept up to date by what happens to them, in the order in which it
 * happens. Bounded: what does not fit is dropped and counted, and an address in it is then not found.
 *
 * The kernel tells of mappings that are made, not of those that are removed: a mapping stays until another takes its place, its process
 * starts another program or ends.
 */
#ifndef SPIKEWATCH_ADDRESSSPACE_H
#define SPIKEWATCH_ADDRESSSPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ADDRESSSPACE_BUILD_ID_MAX 20

struct addressspace_mapping {
	uint64_t start, end;   /* [start, end) */
	uint64_t offset_bytes; /* in the file, of start */
	uint64_t inode;        /* 0: no file */
	uint32_t major, minor; /* of the file system's device */
	uint32_t build_id_len; /* 0: not known */
	uint8_t build_id[ADDRESSSPACE_BUILD_ID_MAX];
	const char *path; /* terminated; "[vdso]", "//anon" and such are not files */
};

/* Zero means the default. */
struct addressspaces_limits {
	size_t processes; /* 65536 */
	size_t mappings;  /* of all processes, shared ones once. 1048576 */
};

struct addressspaces;

/* 0 or -ENOMEM. */
int addressspaces_new(const struct addressspaces_limits *limits, struct addressspaces **ret);
void addressspaces_free(struct addressspaces *spaces);

/* Something is mapped into process pid, over what was there. *mapping is copied, with its path. 0 or -ENOMEM. */
int addressspaces_map(struct addressspaces *spaces, uint32_t pid, const struct addressspace_mapping *mapping);

/* Process pid begins as a copy of its parent, which costs next to nothing until one of them maps something. 0 or -ENOMEM. */
int addressspaces_fork(struct addressspaces *spaces, uint32_t pid, uint32_t parent_pid);

/* Process pid starts another program: nothing is mapped. */
void addressspaces_exec(struct addressspaces *spaces, uint32_t pid);

/* Process pid has ended. */
void addressspaces_exit(struct addressspaces *spaces, uint32_t pid);

/* What is mapped at address; NULL: not known. Valid until the next change. */
const struct addressspace_mapping *addressspaces_find(const struct addressspaces *spaces, uint32_t pid,
						      uint64_t address);

/* Mappings and processes that did not fit. */
uint64_t addressspaces_dropped(const struct addressspaces *spaces);

#endif
