/* fuzz_stack_file.c: any bytes as a stack file: refused, or all its tables are inside it. */
#include "lib/profile/stack_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct stack_file file;
	uint8_t *aligned = calloc(1, size > 0 ? size : 1);

	if (aligned == NULL)
		exit(1);
	if (size > 0)
		memcpy(aligned, data, size);
	if (stack_file_parse(aligned, size, &file) == 0) {
		const uint8_t *end = (const uint8_t *)file.strings + file.head->string_bytes;

		for (uint32_t i = 0; i < file.head->binaries; i++)
			if (strlen(file.strings + file.binaries[i].path_offset) != file.binaries[i].path_len)
				abort();
		for (uint32_t i = 0; i < file.head->processes; i++)
			if (strlen(file.strings + file.processes[i].cgroup_offset) != file.processes[i].cgroup_len ||
			    (i > 0 && file.processes[i].pid <= file.processes[i - 1].pid))
				abort();
		for (uint32_t i = 0; i < file.head->streams; end += file.streams[i++].record_bytes)
			if (file.records[i] != end || file.streams[i].kind >= STACK_FILE_STREAM_KINDS)
				abort();
		if (end != aligned + size)
			abort();
	}
	free(aligned);
	return 0;
}
