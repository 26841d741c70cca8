/*
 * What is taken as a question can be written, unless that is longer, and is read again as the same.
 */
#include "lib/config/selection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct status_query_line asked, again;
	char line[STATUS_QUERY_LINE_MAX + 2] = "", text[STATUS_QUERY_LINE_MAX], back[STATUS_QUERY_LINE_MAX];
	int r;

	memcpy(line, data, size < sizeof(line) ? size : sizeof(line) - 1);
	if (status_query_parse(line, &asked) != 0)
		return 0;
	(void)status_query_wants(&asked.query, "a target", "an entry", "a rule");
	r = status_query_format(&asked.query, text, sizeof(text));
	if (r == -E2BIG)
		return 0;
	if (r != 0 || status_query_parse(text, &again) != 0 ||
	    status_query_format(&again.query, back, sizeof(back)) != 0 || strcmp(text, back) != 0)
		abort();

	return 0;
}
