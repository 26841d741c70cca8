/*
 * Whatever the table is: each row is of something, names are within the text and hold neither tabs
 * nor newlines, and the walk ends.
 */
#include "lib/profile/stack_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_name(const struct text_part *name, const char *text, size_t size)
{
	if (name->len == 0)
		return;
	if (name->at < text || name->at + name->len > text + size || memchr(name->at, '\t', name->len) ||
	    memchr(name->at, '\n', name->len))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct function_rows rows;
	struct function_rows_row row;
	size_t count = 0;

	if (!function_rows_start(&rows, text, size))
		return 0;
	if (rows.unit != FUNCTION_TABLE_IN_SAMPLES && rows.unit != FUNCTION_TABLE_IN_BYTES)
		abort();
	while (function_rows_next(&rows, &row)) {
		if ((row.function.len == 0 && row.thread.len == 0 && row.tid == 0) || ++count > size)
			abort();
		check_name(&row.function, text, size);
		check_name(&row.module, text, size);
		check_name(&row.thread, text, size);
		check_name(&row.process, text, size);
	}
	return 0;
}
