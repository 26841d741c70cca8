/*
 * fuzz_recorder_texts.c: any bytes as what the stack recorder reads of /proc: vmstat, stat, and
 * the cgroups of a process.
 */
#include "daemon/engine/stacks/stack_recorder.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), path[64];
	uint64_t faults;

	assert(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	(void)parse_vmstat_faults(text, size, &faults);
	(void)parse_stat_busy_ns(text, size, 100);
	if (parse_cgroup(text, size, path, sizeof(path)))
		assert(path[0] == '/' && memchr(path, '\0', sizeof(path)) != NULL);
	(void)is_in_roots(text, size);
	free(text);
	return 0;
}
