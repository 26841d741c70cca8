/* traplive.h: the one line that `spikewatch trap` keeps up to date on a terminal while it waits. */
#ifndef SPIKEWATCH_TRAPLIVE_H
#define SPIKEWATCH_TRAPLIVE_H

#include "trapplan.h"
#include "trapsession.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRAPLIVE_TEXT_MAX 512

/* {file} with on set by traplive_detect; else all calls do nothing. */
struct traplive {
	FILE *file;
	bool on;
	size_t shown; /* columns that stand there */
};

/* On if file is a terminal that can go back in a line. */
void traplive_detect(struct traplive *live, FILE *file);

/*
 * "12 s: job-812 CPU 43% of 80%, memory 84 MiB". Into buf, which is returned; names are printable.
 */
const char *traplive_text(const struct trapplan *plan, const struct trapsession_view *view, uint64_t waited_ns,
			  uint64_t wanted, char *buf, size_t cap);

/* Puts text in the place of what stands there, cut to the width that the terminal has now. */
void traplive_draw(struct traplive *live, const char *text);

/* Nothing stands there any more: before anything else is printed, and at the end. */
void traplive_erase(struct traplive *live);

#endif
