/*
 * cleantext.h: text that was escaped when it was written, of files that somebody may have changed since: made safe to print, and the same as
 * it was if nobody has. Pure.
 */
#ifndef SPIKEWATCH_CLEANTEXT_H
#define SPIKEWATCH_CLEANTEXT_H

#include "sink.h"

#include <stddef.h>

/*
 * Appends len bytes of text as text_escape has them, but leaves backslashes alone: they were escaped once, and must not be again. 0; -ENOMEM;
 * -EFBIG beyond buffer->max.
 */
int cleantext_append(struct buffer *buffer, const char *text, size_t len);

#endif
