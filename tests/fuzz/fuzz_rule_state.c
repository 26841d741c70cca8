/*
 * fuzz_rule_state.c: any bytes as a state file: refused with a reason and without effect, or believed,
 * and then what is written is read back as the same.
 */
#include "lib/evaluator/rule_state.c"
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

static struct rule_state *memo_of_boot(const char *boot_id)
{
	struct rule_state *rule_state;

	if (rule_state_new(boot_id, &rule_state) < 0)
		exit(1);
	return rule_state;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rule_state *rule_state = memo_of_boot("boot");
	struct rule_state *again = memo_of_boot("boot");
	struct buffer first = { 0 }, second = { 0 };
	char error[64] = "";

	if (rule_state_parse(rule_state, (const char *)data, size, error, sizeof(error)) < 0) {
		require(error[0] != '\0' && memchr(error, '\0', sizeof(error)));
		require(rule_state->table.map.count == 0);
	} else {
		require(rule_state_write(rule_state, sink_buffer(&first)) == 0);
		require(rule_state_parse(again, first.data, first.len, error, sizeof(error)) == 0);
		require(rule_state_write(again, sink_buffer(&second)) == 0);
		require(first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
	}

	buffer_release(&first);
	buffer_release(&second);
	rule_state_free(rule_state);
	rule_state_free(again);
	return 0;
}
