/* base64.h: bytes as letters of RFC 4648, section 4, in lines, and back. Pure. */
#ifndef SPIKEWATCH_BASE64_H
#define SPIKEWATCH_BASE64_H

#include "sink.h"

#include <stddef.h>

/* Of a line, without its newline. */
#define BASE64_LINE 76

/* Writes data in lines, each with a newline; of no bytes nothing. 0 or what the sink returned. */
int base64_write(const struct sink *sink, const void *data, size_t len);

/*
 * Appends what text stands for; white space is passed over. 0; -EBADMSG: other letters, padding at the wrong place, or bits that the
 * padding leaves unused are not zero; -ENOMEM; -EFBIG beyond buffer->max. After an error a part may have been appended.
 */
int base64_read(const char *text, size_t len, struct buffer *buffer);

#endif
