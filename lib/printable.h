/*
 * printable.h: strings of strangers as JSON that is safe to look at. JSON escapes the control characters below 0x20
 * itself, but lets the other hidden ones (text_is_hidden) through, which terminals obey.
 */
#ifndef SPIKEWATCH_PRINTABLE_H
#define SPIKEWATCH_PRINTABLE_H

#include "json.h"

/* Of a string with such characters no more than so many bytes are written: of a label's value (labels.h) all, which become half as many again at most. */
#define PRINTABLE_MAX 4096

/* json_string, with those characters replaced by U+FFFD. Returns as json_string. */
int printable_json(struct json_writer *writer, const char *text);

#endif
