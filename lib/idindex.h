/* idindex.h: where things are that have ids: any numbers but 0, each once. Pure. */
#ifndef SPIKEWATCH_IDINDEX_H
#define SPIKEWATCH_IDINDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct idindex_place {
	uint64_t id;
	uint32_t at;
};

/* {0} is empty and legal. */
struct idindex {
	struct idindex_place *places; /* sorted by id */
	uint32_t count;
};

/* Of count things of size bytes each, whose first member is a 64-bit id. 0; -ENOMEM; -EBADMSG: an id is 0, or there twice. */
int idindex_init(struct idindex *index, const void *things, uint32_t count, size_t size);

/* False: there is no such id. */
bool idindex_find(const struct idindex *index, uint64_t id, uint32_t *ret);

/* The index is empty then. {0} is fine. */
void idindex_release(struct idindex *index);

#endif
