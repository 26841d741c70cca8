/* htmltext.h: text of strangers inside of HTML and of JSON inside of HTML. Pure. */
#ifndef SPIKEWATCH_HTMLTEXT_H
#define SPIKEWATCH_HTMLTEXT_H

#include "sink.h"

#include <stddef.h>

/*
 * Writes text so that a browser shows it as it is, between tags or in a quoted attribute: what HTML gives a meaning is escaped; control
 * characters, bytes that are not UTF-8, and characters that are invisible or change the direction of others become \xNN or \u{NNNN}.
 * 0 or what the sink returned.
 */
int htmltext_write(const struct sink *sink, const char *text, size_t len);

/* Writes through to another sink, with every "<" of JSON as \u003c, so that no tag can begin in it. inner must outlive it. */
struct sink htmltext_json(const struct sink *inner);

#endif
