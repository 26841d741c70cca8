/*
 * output.h: what commands print: strings of strangers made harmless, JSON on stdout. Errors of stdout stay in it and are
 * reported once, when the program ends (main.c).
 */
#ifndef SPIKEWATCH_OUTPUT_H
#define SPIKEWATCH_OUTPUT_H

#include "json.h"
#include "sink.h"

#include <stdio.h>

/* Prints text with everything escaped that is not plain printable text. Returns the bytes printed. */
size_t output_escaped(FILE *file, const char *text);

/* The same of len bytes, that need no NUL. */
size_t output_escaped_len(FILE *file, const char *text, size_t len);

/* Writes to file, which stays the caller's and must outlive the sink. */
struct sink output_sink(FILE *file);

/* A pretty-printing JSON writer on stdout. 0 or -ENOMEM. */
int output_json_new(struct json_writer **ret);

/* Ends the document. For AUTO. */
void output_json_release(struct json_writer **json);

/* Says so on stderr. Returns EXIT_TROUBLE. */
int output_no_memory(void);

/* How many characters of UTF-8 there are in len bytes. */
size_t output_characters(const char *text, size_t len);

/* Prints text in lines no wider than width (in characters), broken at spaces where there are any. */
void output_wrap(const char *text, size_t width, FILE *file);

#endif
