/*
 * fuzz_memo.c: any bytes as a state file: refused with a reason and without effect, or believed, and then what is written
 * is read back as the same.
 */
#include "lib/evaluator/rule_state.h"
#include "lib/base/io.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
	if (!condition)
		abort();
}

static struct memo *memo_of_boot(const char *boot_id)
{
	struct memo *memo;

	if (memo_new(boot_id, &memo) < 0)
		exit(1);
	return memo;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memo *memo = memo_of_boot("boot");
	struct memo *again = memo_of_boot("boot");
	struct buffer first = { 0 }, second = { 0 };
	char error[64] = "";

	if (memo_parse(memo, (const char *)data, size, error, sizeof(error)) < 0) {
		require(error[0] != '\0' && memchr(error, '\0', sizeof(error)));
		require(memo_count(memo) == 0);
	} else {
		require(memo_write(memo, sink_buffer(&first)) == 0);
		require(memo_parse(again, first.data, first.len, error, sizeof(error)) == 0);
		require(memo_write(again, sink_buffer(&second)) == 0);
		require(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
	}

	buffer_release(&first);
	buffer_release(&second);
	memo_free(memo);
	memo_free(again);
	return 0;
}
