/* fuzz_cgroup_files.c: every parser of cgroup_files.h sees every input. */
#include "lib/cgroup/cgroup.c"
#include "lib/model/sample.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *buf = (const char *)data;
	struct cgroup_files_memory_stat memory;
	struct sample sample = { 0 };
	uint64_t number;
	uint64_t period_us;
	uint32_t cpus;

	if (cgroup_files_number_parse(buf, size, &number) == 0 && cgroup_files_limit_parse(buf, size, &period_us) == 0)
		assert(number == period_us || period_us == UINT64_MAX);
	if (cgroup_files_cpu_max_parse(buf, size, &number, &period_us) == 0)
		assert(period_us > 0);
	if (cgroup_files_cpus_parse(buf, size, &cpus) == 0)
		assert(cpus <= 65536);
	if (cgroup_files_pressure_parse(buf, size, &number) == 0)
		assert(number % 1000 == 0);
	cgroup_files_cpu_stat_parse(buf, size, &sample);
	cgroup_files_cpuacct_stat_parse(buf, size, 10000000, &sample);
	cgroup_files_memory_stat_parse(buf, size, &memory);
	assert(sample.mask < 1u << SAMPLE_FIELDS);

	return 0;
}
