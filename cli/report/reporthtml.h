/*
 * reporthtml.h: an incident as a page of HTML: the page's fixed parts (reportpage.h), its files (reportfile.h) and what is drawn
 * (reportdata.h). Without the fixed parts, in a build that has none, the rest is the same.
 */
#ifndef SPIKEWATCH_REPORTHTML_H
#define SPIKEWATCH_REPORTHTML_H

#include "reportdata.h"
#include "sink.h"
#include "view.h"

#include <stdint.h>

/*
 * view: loaded from incidentfd. Files of more than file_bytes_max, and what is no plain file, are left out: *ret, which is always set but when
 * memory runs out, says which. 0; -ENOMEM; -errno; what the sink returned.
 */
int reporthtml_write(const struct view *view, int incidentfd, uint64_t file_bytes_max, const struct sink *sink,
		     struct reportdata_files *ret);

#endif
