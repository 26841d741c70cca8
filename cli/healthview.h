/*
 * healthview.h: how the daemon is, in words.
 */
#ifndef SPIKEWATCH_HEALTHVIEW_H
#define SPIKEWATCH_HEALTHVIEW_H

#include "json.h"

#include <stddef.h>
#include <stdio.h>

/* root: of the daemon's answer. A few lines of at most width characters, and one paragraph for each thing that is wrong. */
void healthview_print(const struct json_node *root, size_t width, FILE *file);

#endif
