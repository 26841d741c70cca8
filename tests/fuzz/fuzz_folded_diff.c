/*
 * Two texts with a NUL between them: what passes the check becomes lines with the same sums, none
 * with two counts of 0, and with nothing in them that acts on a terminal.
 */
#include "lib/profile/stack_text.h"
#include "lib/base/io.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t add_up(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* The two counts at the end of a line; returns where the first begins. */
static const char *counts(const char *line, const char *end, uint64_t ret[static 2])
{
	const char *second = memrchr(line, ' ', (size_t)(end - line));
	const char *first = second ? memrchr(line, ' ', (size_t)(second - line)) : NULL;

	if (!first || first == line)
		abort();
	ret[0] = strtoull(first + 1, NULL, 10);
	ret[1] = strtoull(second + 1, NULL, 10);
	if (ret[0] == 0 && ret[1] == 0)
		abort();
	return first;
}

static void check_lines(const struct buffer *out, uint64_t ret_sum[static 2])
{
	const char *end = out->data ? out->data + out->len : NULL;

	for (const char *line = out->data, *newline; line && line < end; line = newline + 1) {
		uint64_t count[2];

		newline = memchr(line, '\n', (size_t)(end - line));
		if (!newline)
			abort();
		for (const char *at = line; at < newline; at++)
			if ((unsigned char)*at < ' ' || *at == 0x7f)
				abort();
		counts(line, newline, count);
		for (int i = 0; i < 2; i++)
			ret_sum[i] = add_up(ret_sum[i], count[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *nul = size > 0 ? memchr(data, '\0', size) : NULL;
	size_t len = nul ? (size_t)(nul - data) : size;
	/* They are not written to. */
	struct buffer first = { .data = (char *)(uintptr_t)data, .len = len };
	struct buffer second = { .data = (char *)(uintptr_t)data + len + (nul ? 1 : 0),
				 .len = nul ? size - len - 1 : 0 };
	struct buffer out = { 0 };
	struct sink sink = sink_buffer(&out);
	uint64_t sum[2], seen[2] = { 0, 0 };

	if (!folded_diff_check(&first, &sum[0]) || !folded_diff_check(&second, &sum[1]))
		return 0;
	if (folded_diff_write(&first, &second, false, &sink) != 0)
		abort();
	check_lines(&out, seen);
	if (seen[0] != sum[0] || seen[1] != sum[1])
		abort();
	if (folded_diff_write(&first, &second, true, &sink) != 0)
		abort();
	buffer_release(&out);
	return 0;
}
