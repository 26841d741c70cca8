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
#include <stdatomic.h>
#include <unistd.h>

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
	for (int i = 0; i < PROCESS_EXTRAS; i++)
		atomic_init(&gate->reopened[i], -1);

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

/* Leaves fd for the owner, in the place of one that it did not take over. */
static void offer(struct gate *gate, int extra, int fd)
{
	int before = atomic_exchange_explicit(&gate->reopened[extra], fd, memory_order_relaxed);

	if (before >= 0)
		close(before);
}

void gate_release(struct gate *gate)
{
	for (int i = 0; i < PROCESS_EXTRAS; i++)
		offer(gate, i, -1);
	process_release(&gate->process);
}

static uint64_t own_heartbeat(const struct gate *gate, const struct gate_options *options)
{
	return options->heartbeat_ns - options->heartbeat_ns / 4 / SPREAD_STEPS * gate->spread;
}

void gate_arm(struct gate *gate, const struct gate_options *options, uint32_t spread)
{
	uint8_t owed = owed_after_running(options);
	bool peak = owed & OWES_PEAK;

	process_drop(&gate->process, !peak, !peak || !options->reset_peaks, !(owed & OWES_FDS));
	gate->spread = (uint8_t)(spread % SPREAD_STEPS);
	gate->heartbeat_ns = own_heartbeat(gate, options);
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

/* When it is due that was due at due_ns and now has this interval. */
static uint64_t sooner(uint64_t due_ns, mono_t now, uint64_t interval_ns)
{
	uint64_t limit_ns = interval_ns < UINT64_MAX - now.ns ? now.ns + interval_ns : UINT64_MAX;

	return due_ns < limit_ns ? due_ns : limit_ns;
}

/*
 * What is read for the first time waits for the heartbeat, even if the process runs: the heartbeats are spread, and thousands of
 * first readings in one tick would be felt.
 */
bool gate_retune(struct gate *gate, const struct gate_options *before, const struct gate_options *options, mono_t now,
		 struct sample *sample)
{
	uint8_t wanted = owed_after_running(options);
	uint8_t added = wanted & (uint8_t)~owed_after_running(before);
	uint32_t mask = sample->mask;

	gate->heartbeat_ns = own_heartbeat(gate, options);
	gate->due_ns = sooner(gate->due_ns, now, gate->heartbeat_ns);
	gate->peak_due_ns =
		added & OWES_PEAK ? gate->due_ns : sooner(gate->peak_due_ns, now, options->peak_interval_ns);
	gate->fds_due_ns = added & OWES_FDS ? gate->due_ns : sooner(gate->fds_due_ns, now, options->fds_interval_ns);
	gate->owed = (gate->owed & wanted) | added;

	uint64_t due_ns = next_due(gate, now);

	gate->due_ns = due_ns < gate->due_ns ? due_ns : gate->due_ns;
	if (!(wanted & OWES_PEAK))
		sample_unset(sample, SAMPLE_MEMORY_PEAK);
	if (!(wanted & OWES_FDS))
		sample_unset(sample, SAMPLE_FDS);

	return sample->mask != mask;
}

int gate_reopen(struct gate *gate, int procfd, int32_t pid, uint64_t start_ticks, const struct gate_options *options)
{
	uint8_t needed = owed_after_running(options);
	unsigned peak = (needed & OWES_PEAK) != 0;
	unsigned fds = (needed & OWES_FDS) != 0;
	int extras[PROCESS_EXTRAS];

	int r = process_reopen(procfd, pid, start_ticks,
			       peak << PROCESS_STATUS | (peak & options->reset_peaks) << PROCESS_CLEAR_REFS |
				       fds << PROCESS_FDS,
			       extras);
	if (r < 0)
		return r;

	for (int i = 0; i < PROCESS_EXTRAS; i++)
		offer(gate, i, extras[i]);
	atomic_store_explicit(&gate->adopt, true, memory_order_release);

	return 0;
}

/* What is offered after the flag was cleared raises it again. */
static void adopt(struct gate *gate, const struct gate_options *options)
{
	int extras[PROCESS_EXTRAS];

	atomic_exchange_explicit(&gate->adopt, false, memory_order_acquire);
	for (int i = 0; i < PROCESS_EXTRAS; i++)
		extras[i] = atomic_exchange_explicit(&gate->reopened[i], -1, memory_order_relaxed);
	process_adopt(&gate->process, extras);
	gate->owed = owed_after_running(options);
	gate->peak_due_ns = 0;
	gate->fds_due_ns = 0;
	gate->settled = false;
}

bool gate_look(struct gate *gate, const struct gate_options *options, mono_t now)
{
	uint64_t cpu_ns = gate->cpu_ns;

	if (atomic_load_explicit(&gate->adopt, memory_order_relaxed))
		adopt(gate, options);
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
