/*
 * arena.c: a list of chunks, filled from the front. What does not fit into the newest chunk opens another, so the
 * rest of that one is lost: at most one piece in ARENA_CHUNK bytes, which is cheaper than looking for a better fit.
 */
#include "arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Enough for a hundred nodes of a configuration, little enough to waste. */
#define ARENA_CHUNK 16384

struct arena_chunk {
	struct arena_chunk *next;
	size_t used;
	size_t cap;
	_Alignas(max_align_t) char data[];
};

void *arena_alloc(struct arena *arena, size_t size)
{
	const size_t align = _Alignof(max_align_t);
	struct arena_chunk *chunk = arena->chunks;

	if (size > SIZE_MAX / 2)
		return NULL;
	size = (size + align - 1) / align * align;
	if (chunk == NULL || chunk->cap - chunk->used < size) {
		size_t cap = size > ARENA_CHUNK ? size : ARENA_CHUNK;

		chunk = calloc(1, sizeof(*chunk) + cap);
		if (chunk == NULL)
			return NULL;
		chunk->cap = cap;
		chunk->next = arena->chunks;
		arena->chunks = chunk;
	}
	chunk->used += size;
	return chunk->data + chunk->used - size;
}

char *arena_copy(struct arena *arena, const char *text, size_t len)
{
	char *copy = arena_alloc(arena, len + 1);

	if (copy != NULL && len > 0)
		memcpy(copy, text, len);
	return copy;
}

void arena_release(struct arena *arena)
{
	while (arena->chunks != NULL) {
		struct arena_chunk *chunk = arena->chunks;

		arena->chunks = chunk->next;
		free(chunk);
	}
}
