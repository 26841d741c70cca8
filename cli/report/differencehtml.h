/*
 * differencehtml.h: a difference as a page of HTML: the fixed parts of the page of a report (reportpage.h) with another block of data in it, which
 * docs/diff.md describes.
 */
#ifndef SPIKEWATCH_DIFFERENCEHTML_H
#define SPIKEWATCH_DIFFERENCEHTML_H

#include "difference.h"
#include "sink.h"

/* Stacks with two counts a line, as foldpair_write has them; NULL: there are none. */
struct differencehtml_stacks {
	const struct buffer *cpu, *memory;
};

/* 0; -ENOMEM; what the sink returned. */
int differencehtml_write(const struct difference *difference, const struct differencehtml_stacks *stacks,
			 const struct sink *sink);

#endif
