/*
 * capture_text.h: the text of a capture while it is put together: bounded, escaped, and written to a file at the end.
 */
#ifndef SPIKEWATCH_CAPTURE_TEXT_H
#define SPIKEWATCH_CAPTURE_TEXT_H

#include "sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* {.buffer.max = ...} is ready for use. After the limit or without memory whatever is added is dropped. */
struct capture_text {
	struct buffer buffer;
	bool cut;  /* something was dropped because of the limit */
	int error; /* -ENOMEM; or why something of it could not be read, set by who adds: nothing is saved */
};

/* Adds our own words. What is formatted must be printable already and short (up to 1,000 bytes). */
void capture_text_say(struct capture_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds strangers' bytes on one line: everything that is no printable character becomes \xNN. */
void capture_text_word(struct capture_text *text, const char *data, size_t len);

/* Adds strangers' lines: the same, but newlines and tabs stay; ends with a newline. */
void capture_text_lines(struct capture_text *text, const char *data, size_t len);

/* Writes a new file in dirfd. 0 and *ret_bytes; text->error; -errno, and then there is no such file. */
int capture_text_save(struct capture_text *text, int dirfd, const char *name, uint64_t *ret_bytes);

/* Frees the text. */
void capture_text_release(struct capture_text *text);

#endif
