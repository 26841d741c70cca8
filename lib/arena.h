/*
 * arena.h: memory that is given back all at once: many small pieces, one owner, one release.
 */
#ifndef SPIKEWATCH_ARENA_H
#define SPIKEWATCH_ARENA_H

#include <stddef.h>

struct arena_chunk;

/* {0} is empty and legal. */
struct arena {
	struct arena_chunk *chunks; /* newest first */
};

/* size zeroed bytes, aligned for any type, valid until the release. NULL when memory is short. */
void *arena_alloc(struct arena *arena, size_t size);

/* A copy of len bytes with a NUL behind them; NULL when memory is short. */
char *arena_copy(struct arena *arena, const char *text, size_t len);

/* Frees everything; the arena is empty and usable again. */
void arena_release(struct arena *arena);

#endif
