/*
 * reportpage.h: the page of a report without what is particular to one: style, program and licences, made from cli/report/ when Spikewatch
 * was built. A build without npm has none.
 */
#ifndef SPIKEWATCH_REPORTPAGE_H
#define SPIKEWATCH_REPORTPAGE_H

#include "sink.h"

#include <stdbool.h>

/* What stands between the parts of the page, in this order. */
enum reportpage_part {
	REPORTPAGE_TITLE, /* before the title */
	REPORTPAGE_STORY, /* before the words */
	REPORTPAGE_DATA,  /* before the data and the files */
	REPORTPAGE_END,   /* all that follows */
	REPORTPAGE_PARTS,
};

/* Is there a page. */
bool reportpage_built(void);

/* Writes a part. 0 or what the sink returned. */
int reportpage_write(enum reportpage_part part, const struct sink *sink);

#endif
