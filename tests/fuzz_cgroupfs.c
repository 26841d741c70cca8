/* fuzz_cgroupfs.c: every parser of cgroupfs.h sees every input. */
#include "lib/cgroup/cgroup.h"
#include "lib/model/sample.h"

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *buf = (const char *)data;
	struct cgroupfs_memory_stat memory;
	struct sample sample = { 0 };
	uint64_t number;
	uint64_t period_us;
	uint32_t cpus;

	if (cgroupfs_number_parse(buf, size, &number) == 0 && cgroupfs_limit_parse(buf, size, &period_us) == 0)
		assert(number == period_us || period_us == UINT64_MAX);
	if (cgroupfs_cpu_max_parse(buf, size, &number, &period_us) == 0)
		assert(period_us > 0);
	if (cgroupfs_cpus_parse(buf, size, &cpus) == 0)
		assert(cpus <= 65536);
	if (cgroupfs_pressure_parse(buf, size, &number) == 0)
		assert(number % 1000 == 0);
	cgroupfs_cpu_stat_parse(buf, size, &sample);
	cgroupfs_cpuacct_stat_parse(buf, size, 10000000, &sample);
	cgroupfs_memory_stat_parse(buf, size, &memory);
	assert(sample.mask < 1u << SAMPLE_FIELDS);

	return 0;
}
