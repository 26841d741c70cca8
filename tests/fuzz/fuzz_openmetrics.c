/*
 * The first line is an Accept header, the rest is the value of a label: whatever it is, what is
 * written is one line with the quotes that belong there, and shows no control characters.
 */
#include "daemon/service/metrics/exposition.c"

#include "lib/base/json.c"
#include "lib/base/io.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In a value: what ends it must be escaped. */
static void check_block(const struct buffer *block)
{
	if (block->len < 5 || memcmp(block->data, "a=\"", 3) != 0 || block->data[block->len - 1] != '"' ||
	    json_text_utf8(block->data, block->len) < block->len)
		abort();
	for (size_t i = 3; i < block->len - 1; i++) {
		unsigned char byte = (unsigned char)block->data[i];

		if (byte == '"' || byte < 0x20 || byte == 0x7f)
			abort();
		if (byte != '\\')
			continue;
		byte = (unsigned char)block->data[++i];
		if (i >= block->len - 1 || (byte != '"' && byte != '\\' && byte != 'n'))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	struct buffer block = { 0 };

	if (text == NULL)
		abort();
	if (size > 0)
		memcpy(text, data, size);
	text[size] = '\0';

	char *value = strchr(text, '\n');
	struct openmetrics_label label = { "a", value ? value + 1 : "x" };

	if (value)
		*value = '\0';
	if (openmetrics_negotiate(text) == OPENMETRICS_1_0 && !strcasestr(text, "application/openmetrics-text"))
		abort();
	if (*label.value) {
		if (openmetrics_block(&label, 1, &block) != 0)
			abort();
		check_block(&block);
	}
	buffer_release(&block);
	free(text);

	return 0;
}
