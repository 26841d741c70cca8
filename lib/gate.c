/*
 * gate.c: the states of a process as it is seen through its clock:
 *
 *	          clock moved                  clock stands still, files read
 *	settled ---------------> unsettled --------------------------------> settled
 *	   ^ |                     ^  |
 *	   +-+ heartbeat           +--+ clock moved
 *
 * The files are read once more after the clock came to a stand, because the process may have run between the two reads.
 *
 * The high-water mark and the count of descriptors cost more and have intervals of their own. From when the process ran they
 * are owed until they were read after that, which may be while it stands still: then it cannot have changed them.
 */
#include "gate.h"

#include <errno.h>

/* Heartbeats drift apart by up to a quarter, in so many steps. */
#define SPREAD_STEPS 64

enum { OWES_PEAK = 1, OWES_FDS = 2 };

static uint8_t owed_after_running(const struct gate_options *options)
{
	return (uint8_t)((options->peak_interval_ns != UINT64_MAX ? OWES_PEAK : 0) |
			 (options->fds_interval_ns != 0 ? OWES_FDS : 0));
}

/* The clock's total is in nanoseconds, that of stat in ticks. */
static int read_files(const struct gate *gate, struct sample *sample)
{
	int r = process_read(&gate->process, sample);
	if (r == 0 && gate->process.clock != 0)
		sample_set(sample, SAMPLE_CPU, gate->cpu_ns);

	return r;
}

int gate_init(struct gate *gate, int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock,
	      struct sample *sample)
{
	*gate = (struct gate){ .settled = false };

	int r = process_init(&gate->process, procfd, pid, start_ticks, with_cpu_clock);
	if (r < 0)
		return r;

	if (with_cpu_clock)
		r = process_cpu(&gate->process, &gate->cpu_ns);
	if (r == 0)
		r = read_files(gate, sample);
	if (r < 0)
		gate_release(gate);

	return r;
}

void gate_release(struct gate *gate)
{
	process_release(&gate->process);
}

void gate_arm(struct gate *gate, const struct gate_options *options, uint32_t spread)
{
	uint8_t owed = owed_after_running(options);
	bool peak = owed & OWES_PEAK;

	process_drop(&gate->process, !peak, !peak || !options->reset_peaks, !(owed & OWES_FDS));
	gate->heartbeat_ns = options->heartbeat_ns - options->heartbeat_ns / 4 / SPREAD_STEPS * (spread % SPREAD_STEPS);
	gate->peak_due_ns = 0;
	gate->fds_due_ns = 0;
	gate->owed = owed;
	gate->settled = false;
}

/* Everything that is due. 0; -ESRCH; -errno. */
static int read_due(struct gate *gate, const struct gate_options *options, mono_t now, struct sample *sample)
{
	int r = read_files(gate, sample);

	if (r == 0 && (gate->owed & OWES_PEAK) && now.ns >= gate->peak_due_ns) {
		r = process_read_peak(&gate->process, options->reset_peaks, sample);
		gate->owed &= (uint8_t)~OWES_PEAK;
		gate->peak_due_ns = now.ns + options->peak_interval_ns;
	}
	if (r == 0 && (gate->owed & OWES_FDS) && now.ns >= gate->fds_due_ns) {
		r = process_read_fds(&gate->process, sample);
		gate->owed &= (uint8_t)~OWES_FDS;
		gate->fds_due_ns = now.ns + options->fds_interval_ns;
	}

	return r;
}

static uint64_t next_due(const struct gate *gate, mono_t now)
{
	uint64_t due_ns = now.ns + gate->heartbeat_ns;

	if ((gate->owed & OWES_PEAK) && gate->peak_due_ns < due_ns)
		due_ns = gate->peak_due_ns;
	if ((gate->owed & OWES_FDS) && gate->fds_due_ns < due_ns)
		due_ns = gate->fds_due_ns;

	return due_ns;
}

bool gate_look(struct gate *gate, const struct gate_options *options, mono_t now)
{
	uint64_t cpu_ns = gate->cpu_ns;

	gate->ran = true;
	if (gate->process.clock != 0) {
		if (process_cpu(&gate->process, &cpu_ns) < 0)
			gate->process.clock = 0; /* the files will say whether it is gone */
		else
			gate->ran = cpu_ns != gate->cpu_ns || options->ungated;
		gate->cpu_ns = cpu_ns;
	}

	return gate->ran || !gate->settled || now.ns >= gate->due_ns;
}

int gate_read(struct gate *gate, const struct gate_options *options, mono_t now, struct sample *sample)
{
	if (gate->ran)
		gate->owed |= owed_after_running(options);
	int r = read_due(gate, options, now, sample);
	gate->settled = r == 0 && !gate->ran;
	gate->due_ns = next_due(gate, now);

	return r;
}
