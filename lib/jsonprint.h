/*
 * jsonprint.h: what a JSON generator prints, on its way to a sink: gathered, tidied, with the first error kept.
 */
#ifndef SPIKEWATCH_JSONPRINT_H
#define SPIKEWATCH_JSONPRINT_H

#include "sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A page less malloc's head and the rest of a writer: an incident's page goes out in one or two writes. */
#define JSONPRINT_GATHER 3000

enum jsonprint_last { JSONPRINT_OTHER, JSONPRINT_BRACKET, JSONPRINT_BREAK, JSONPRINT_EMPTY };

/* {.sink = ...} is ready for use. */
struct jsonprint {
	struct sink sink;
	int error; /* the first, for ever: nothing is written any more */
	enum jsonprint_last last;
	size_t gathered;
	char gather[JSONPRINT_GATHER];
};

/* Takes what a generator prints, in its pieces: brackets, line breaks and indents come one by one. */
void jsonprint_put(struct jsonprint *print, const char *text, size_t len);

/* Hands on what was gathered. Returns the first error. */
int jsonprint_flush(struct jsonprint *print);

/* Room for any number, its NUL included. */
#define JSONPRINT_NUMBER 40

/*
 * A finite number as JSON: at most six decimals, fewer where zeros would follow; very large and very small ones with an
 * exponent. Returns the length.
 */
size_t jsonprint_number(char buf[JSONPRINT_NUMBER], double value);

/* A whole number, with a minus sign if it is negative. Returns the length. */
size_t jsonprint_whole(char buf[JSONPRINT_NUMBER], bool negative, uint64_t value);

/*
 * Text with U+FFFD for every byte that is no part of a UTF-8 character, for free(3). NULL when memory is short.
 */
char *jsonprint_clean(const char *text, size_t len, size_t *ret_len);

#endif
