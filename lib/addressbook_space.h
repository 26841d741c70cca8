/*
 * addressbook_space.h: what was mapped in one address space, and since when. Shared by the process it belongs to and by those that were forked
 * from it and have mapped nothing since.
 */
#ifndef SPIKEWATCH_ADDRESSBOOK_SPACE_H
#define SPIKEWATCH_ADDRESSBOOK_SPACE_H

#include "addressbook_file.h"

struct addressbook_mapping {
	uint64_t start, end, offset;
	uint64_t since_ns;
	uint64_t until_ns; /* another covers all of it from then on; UINT64_MAX: none does */
	struct addressbook_file *file;
	uint32_t prot, flags;
};

struct addressbook_space {
	uint32_t references;
	bool known;                           /* since its beginning: nothing is missing */
	struct addressbook_mapping *mappings; /* ascending since_ns */
	size_t count, cap;
};

/* Empty, with one reference. NULL: no room. */
struct addressbook_space *addressbook_space_new(struct addressbook_files *files);

/* One reference less; the last one frees it. NULL is fine. */
void addressbook_space_put(struct addressbook_files *files, struct addressbook_space *space);

/*
 * Adds a mapping that came about at since_ns. Of more than max the oldest go: those that are covered, or else any; *dropped counts the latter.
 * False: no room.
 */
bool addressbook_space_map(struct addressbook_space *space, struct addressbook_files *files,
			   const struct perfrecord_mmap *mmap, uint64_t since_ns, size_t max, uint64_t *dropped);

/* Adds one that was there before all others, unless the same is there. False: no room, or as many as max. */
bool addressbook_space_seed(struct addressbook_space *space, struct addressbook_files *files,
			    const struct perfrecord_mmap *mmap, size_t max);

/* A copy of what from shows at at_ns, with one reference. NULL: no room. */
struct addressbook_space *addressbook_space_copy(const struct addressbook_space *from, struct addressbook_files *files,
						 uint64_t at_ns);

/* The newest mapping of address at at_ns; NULL: none. */
const struct addressbook_mapping *addressbook_space_find(const struct addressbook_space *space, uint64_t address,
							 uint64_t at_ns);

#endif
