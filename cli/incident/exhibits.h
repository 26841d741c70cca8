/*
 * exhibits.h: the parts of `spikewatch show` about what was captured: the list of it, and what two looks at the memory say together.
 */
#ifndef SPIKEWATCH_EXHIBITS_H
#define SPIKEWATCH_EXHIBITS_H

#include "incident.h"

#include <stddef.h>
#include <stdio.h>

/* What has grown and shrunk between the two looks at its memory, at most `rows` lines of that width; nothing if there were no two. */
void exhibits_growth(const struct incident *incident, int incidentfd, size_t rows, size_t width, FILE *file);

/* Each capture with its file, its size, and what became of it. */
void exhibits_list(const struct incident *incident, FILE *file);

#endif
