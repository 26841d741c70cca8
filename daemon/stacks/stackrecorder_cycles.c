/*
 * stackrecorder_cycles.c: how many cycles a second of a busy CPU has. Frequencies change: what is asked for is the mean since the events were opened,
 * of all CPUs, so that samples that say cycles can be added up to CPU time.
 *
 * An event of a CPU counts for as long as that is online and does not know for how long it was busy: /proc/stat does. One of a thread knows.
 */
#include "stackrecorder_inside.h"

#include "procread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEAST_NS (100 * NS_PER_MS) /* ticks of /proc/stat are 10 ms long */

/* "cpu  user nice system idle iowait irq softirq steal guest guest_nice": the guests' are in user and nice. */
uint64_t stackrecorder_busy_ns(const char *text, size_t len, long ticks_per_second)
{
	static const bool is_busy[] = { true, true, true, false, false, true, true };
	uint64_t ticks = 0;
	const char *at = text + 4;

	if (len < 5 || memcmp(text, "cpu ", 4) != 0 || memchr(text, '\n', len) == NULL || ticks_per_second <= 0)
		return 0;
	for (size_t i = 0; i < sizeof(is_busy) / sizeof(is_busy[0]); i++) {
		char *end;
		uint64_t field = strtoull(at, &end, 10);

		if (end == at)
			return 0;
		ticks += is_busy[i] ? field : 0;
		at = end;
	}
	return ticks * (NS_PER_S / (uint64_t)ticks_per_second);
}

uint64_t stackrecorder_busy_now(int proc_fd)
{
	char text[512];
	ssize_t len = procread_file(proc_fd, 0, "stat", text, sizeof(text));

	return len > 0 ? stackrecorder_busy_ns(text, (size_t)len, sysconf(_SC_CLK_TCK)) : 0;
}

uint64_t stackrecorder_cycles_per_second(uint64_t cycles, uint64_t busy_ns)
{
	return busy_ns >= LEAST_NS ? (uint64_t)((unsigned __int128)cycles * NS_PER_S / busy_ns) : 0;
}

/* By everybody's events. */
static uint64_t units_of_machine(struct stackrecorder *recorder)
{
	uint64_t cycles = 0, unused = 0, busy_ns = stackrecorder_busy_now(recorder->proc_fd);

	for (unsigned i = 0; i < recorder->status.cpus; i++)
		if (perfevents_count(recorder->kinds[STACKFILE_CPU].rings[i].fd, &cycles, &unused) < 0)
			return 0;
	if (recorder->opened_busy_ns == 0 || busy_ns < recorder->opened_busy_ns)
		return 0;
	return stackrecorder_cycles_per_second(cycles, busy_ns - recorder->opened_busy_ns);
}

uint64_t stackrecorder_units(struct stackrecorder *recorder, enum stackfile_stream_kind kind)
{
	uint64_t units;

	if (recorder->kinds[kind].wanted.kind != PERFEVENTS_CPU)
		return 0;
	if (!recorder->kinds[kind].wanted.cycles)
		return NS_PER_S;
	if (recorder->status.everybody)
		return units_of_machine(recorder);
	pthread_mutex_lock(&recorder->lock);
	units = recorder->followed_units;
	pthread_mutex_unlock(&recorder->lock);
	return units;
}
