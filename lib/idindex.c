/* idindex.c: sorted once, then searched by halves. A table indexed by the id would be as large as the largest. */
#include "idindex.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
	const struct idindex_place *left = a, *right = b;

	return left->id < right->id ? -1 : left->id > right->id;
}

int idindex_init(struct idindex *index, const void *things, uint32_t count, size_t size)
{
	struct idindex_place *places = calloc((size_t)count + 1, sizeof(*places));

	if (!places)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		memcpy(&places[i].id, (const char *)things + i * size, sizeof(places[i].id));
		places[i].at = i;
	}
	qsort(places, count, sizeof(*places), compare);
	for (uint32_t i = 0; i < count; i++) {
		if (places[i].id == 0 || (i > 0 && places[i].id == places[i - 1].id)) {
			free(places);
			return -EBADMSG;
		}
	}
	*index = (struct idindex){ places, count };
	return 0;
}

bool idindex_find(const struct idindex *index, uint64_t id, uint32_t *ret)
{
	const struct idindex_place key = { .id = id }, *found;

	found = index->count ? bsearch(&key, index->places, index->count, sizeof(key), compare) : NULL;
	if (found)
		*ret = found->at;
	return found != NULL;
}

void idindex_release(struct idindex *index)
{
	free(index->places);
	*index = (struct idindex){ 0 };
}
