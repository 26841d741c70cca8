/* fuzz_procfs.c: every parser of procfs.h sees every input. */
#include "lib/proc/procfs.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_inside(const char *at, size_t len, const char *buf, size_t size)
{
	return at >= buf && len <= size && at <= buf + size - len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *buf = (const char *)data;
	struct procfs_stat stat;
	struct procfs_cgroup line;
	uint64_t number;
	size_t offset = 0;

	if (procfs_stat_parse(buf, size, &stat) == 0)
		assert(is_inside(stat.comm, stat.comm_len, buf, size) && stat.pid >= 0 && stat.parent_pid >= 0);
	(void)procfs_statm_parse(buf, size, &number);
	if (procfs_kb_parse(buf, size, "VmHWM", &number) == 0)
		assert(number % 1024 == 0);
	for (size_t before = 0; procfs_cgroup_next(buf, size, &offset, &line); before = offset) {
		assert(offset > before && offset <= size);
		assert(is_inside(line.controllers, line.controllers_len, buf, size));
		assert(is_inside(line.path, line.path_len, buf, size) && line.path[0] == '/');
	}

	return 0;
}
