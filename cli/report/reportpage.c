/* reportpage.c: the only file that knows the bundle of uPlot, d3-flame-graph and the program around them: an array that the build writes. */
#include "reportpage.h"

#include "report/page.h"

#include <assert.h>
#include <stddef.h>

#define PART(bytes) \
	{ \
		bytes, sizeof(bytes) - 1 \
	}

/* Each array ends with a byte that does not count: none is empty. */
static const struct {
	const unsigned char *data;
	size_t len;
} parts[REPORTPAGE_PARTS] = {
	[REPORTPAGE_TITLE] = PART(report_page_0),
	[REPORTPAGE_STORY] = PART(report_page_1),
	[REPORTPAGE_DATA] = PART(report_page_2),
	[REPORTPAGE_END] = PART(report_page_3),
};

bool reportpage_built(void)
{
	return parts[REPORTPAGE_TITLE].len > 0;
}

int reportpage_write(enum reportpage_part part, const struct sink *sink)
{
	assert(part < REPORTPAGE_PARTS);
	return sink_write(sink, parts[part].data, parts[part].len);
}
