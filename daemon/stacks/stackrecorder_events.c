/*
 * stackrecorder_events.c: from what is asked for to what there is.
 *
 *	try everybody's ── allowed ──────────────────────────▶ everybody's; followed ones if they have stacks
 *	       │ not allowed
 *	       └──▶ try our own thread ── allowed ──────────▶ followed ones only
 *	                    │ not, not even without the kernel
 *	                    └──▶ that is the end
 *
 * What a trial shows (no cycles here, no build ids, no kernel) is settled before anything is planned. If the kernel has no room for the rings of a plan
 * the next smaller one is tried, and all rings are opened anew.
 */
#include "stackrecorder_inside.h"

#include "realclock.h"
#include "scope.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_FREQUENCY 99
#define DEFAULT_STACK_BYTES 8192
#define STACK_BYTES_MIN 1024
#define STACK_BYTES_MAX 32768
#define CPUS_MAX 8192
#define US ((pid_t)0)
#define EVERYBODY ((pid_t)-1)

static bool is_refusal(int error)
{
	return error == -EACCES || error == -EPERM;
}

/* Adds to status.limits, as much as there is room for. */
__attribute__((format(printf, 2, 3))) static void say(struct stackrecorder *recorder, const char *format, ...)
{
	char *limits = recorder->status.limits;
	size_t len = strlen(limits);
	va_list arguments;

	if (len > 0 && len < STACKRECORDER_REASON_MAX - 2) {
		memcpy(limits + len, "; ", 3);
		len += 2;
	}
	va_start(arguments, format);
	vsnprintf(limits + len, STACKRECORDER_REASON_MAX - len, format, arguments);
	va_end(arguments);
}

static unsigned configured_cpus(void)
{
	long configured = sysconf(_SC_NPROCESSORS_CONF);

	return configured > 0 && configured <= CPUS_MAX ? (unsigned)configured : CPUS_MAX;
}

/* ---- what is possible ---- */

/* Opens one on the first CPU that is online, and closes it again. 0 or -errno. */
static int probe(const struct perfevents_wanted *wanted, pid_t tid)
{
	int fd = -ENODEV;

	for (unsigned cpu = 0; fd == -ENODEV && cpu < configured_cpus(); cpu++)
		fd = perfevents_event(wanted, tid, cpu);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? fd : 0;
}

/* The same, giving up on what this machine does not have; of a thread, also on the kernel. */
static int settle(struct perfevents_wanted *wanted, pid_t tid)
{
	int r = probe(wanted, tid);

	if (wanted->cycles && (r == -ENOENT || r == -EOPNOTSUPP || r == -EINVAL || r == -ENODEV)) {
		wanted->cycles = false;
		r = probe(wanted, tid);
	}
	if (wanted->build_ids && r == -EINVAL) {
		wanted->build_ids = false;
		r = probe(wanted, tid);
	}
	if (!wanted->user_only && tid != EVERYBODY && is_refusal(r)) {
		wanted->user_only = true;
		r = settle(wanted, tid);
	}
	return r;
}

static void want(struct stackrecorder *recorder, enum stackfile_stream_kind kind, enum perfevents_kind event,
		 const struct perfevents_wanted *like)
{
	struct stackrecorder_kind *entry = &recorder->kinds[kind];

	entry->on = true;
	entry->wanted = *like;
	entry->wanted.kind = event;
	if (event != PERFEVENTS_CPU)
		entry->wanted.cycles = false;
	if (event == PERFEVENTS_SIDE)
		entry->wanted.stack_bytes = 0;
	entry->followed = kind == STACKFILE_CPU_FOLLOWED || kind == STACKFILE_FAULTS_FOLLOWED ||
			  (kind == STACKFILE_BOOK && !recorder->status.everybody);
	entry->apart = entry->followed || kind == STACKFILE_FAULTS;
	if (event == PERFEVENTS_FAULTS)
		entry->wanted.wake_samples = stackrecorder_faults_limits(perfevents_period(&entry->wanted)).most;
	entry->format = entry->written = perfevents_format(&entry->wanted);
	entry->written.sample_type |= PERF_SAMPLE_PERIOD;
}

/* Whether everybody's events are allowed; if not, whether those of our own are. 0; -errno and then reason. */
static int ask_kernel(struct stackrecorder *recorder, const struct stackrecorder_options *options,
		      struct perfevents_wanted *wanted, char *reason)
{
	int r = -EPERM;

	if (!options->followed_only) {
		r = settle(wanted, EVERYBODY);
		if (r < 0)
			perfevents_refusal(r, reason);
		else
			recorder->status.everybody = true;
		if (!is_refusal(r))
			return r;
	}
	if (options->followed_only) {
		r = settle(wanted, US);
		return r < 0 ? perfevents_refusal(r, reason) : 0;
	}
	return settle(wanted, US) < 0 ? r : 0;
}

static uint32_t stack_bytes(const struct stackrecorder_options *options)
{
	uint32_t bytes = options->stack_bytes != 0 ? options->stack_bytes : DEFAULT_STACK_BYTES;

	if (bytes > STACK_BYTES_MAX)
		return STACK_BYTES_MAX;
	return bytes < STACK_BYTES_MIN ? STACK_BYTES_MIN : bytes / 8 * 8;
}

/* Whether followed events can have what everybody's cannot: registers and stack. */
static bool can_dwarf(struct stackrecorder *recorder, const struct stackrecorder_options *options,
		      const struct perfevents_wanted *wanted)
{
	struct perfevents_wanted stacks = *wanted;
	int r;

	if (!options->dwarf)
		return false;
	if (!perfevents_can_dwarf()) {
		say(recorder, "no stacks to unwind: this machine's registers are not known");
		return false;
	}
	stacks.stack_bytes = stack_bytes(options);
	r = probe(&stacks, US);
	if (r < 0)
		say(recorder, "no stacks to unwind: perf_event_open: %s", strerror(-r));
	return r == 0;
}

static void want_all(struct stackrecorder *recorder, const struct stackrecorder_options *options,
		     const struct perfevents_wanted *wanted, const struct stackrecorder_plan *plan)
{
	static const enum perfevents_kind events[STACKFILE_STREAM_KINDS] = {
		[STACKFILE_BOOK] = PERFEVENTS_SIDE,
		[STACKFILE_CPU] = PERFEVENTS_CPU,
		[STACKFILE_CPU_FOLLOWED] = PERFEVENTS_CPU,
		[STACKFILE_FAULTS] = PERFEVENTS_FAULTS,
		[STACKFILE_FAULTS_FOLLOWED] = PERFEVENTS_FAULTS,
	};

	for (int kind = 0; kind < STACKFILE_STREAM_KINDS; kind++) {
		struct perfevents_wanted like = *wanted;

		recorder->kinds[kind] = (struct stackrecorder_kind){ .ring_bytes = plan->ring_bytes[kind] };
		if (plan->ring_bytes[kind] == 0)
			continue;
		if (kind != STACKFILE_CPU && plan->dwarf)
			like.stack_bytes = stack_bytes(options);
		want(recorder, (enum stackfile_stream_kind)kind, events[kind], &like);
	}
}

/* ---- rings ---- */

static void close_cpu(struct stackrecorder *recorder, unsigned index)
{
	for (int kind = 0; kind < STACKFILE_STREAM_KINDS; kind++)
		if (recorder->kinds[kind].rings != NULL)
			perfevents_close(&recorder->kinds[kind].rings[index]);
}

void stackrecorder_close_events(struct stackrecorder *recorder)
{
	stackrecorder_faults_close(recorder->faults);
	recorder->faults = NULL;
	for (unsigned i = 0; i < recorder->status.cpus; i++)
		close_cpu(recorder, i);
	for (int kind = 0; kind < STACKFILE_STREAM_KINDS; kind++) {
		free(recorder->kinds[kind].rings);
		recorder->kinds[kind].rings = NULL;
	}
	recorder->status.cpus = recorder->status.cpus_missing = 0;
	recorder->status.memory_bytes = 0;
}

static int open_ring(const struct stackrecorder_kind *kind, uint32_t cpu, struct perfevents *ret, char *reason)
{
	if (kind->apart)
		return perfevents_open_ring(&kind->wanted, cpu, kind->ring_bytes, ret, reason);
	return perfevents_open(&kind->wanted, cpu, kind->ring_bytes, ret, reason);
}

static int open_cpu(struct stackrecorder *recorder, uint32_t cpu, char *reason)
{
	struct stackrecorder_status *status = &recorder->status;
	uint64_t bytes = 0;
	int r = perfevents_cpu_is_online(cpu) ? 0 : -ENODEV;

	for (int kind = 0; r == 0 && kind < STACKFILE_STREAM_KINDS; kind++) {
		struct stackrecorder_kind *entry = &recorder->kinds[kind];

		if (!entry->on)
			continue;
		r = open_ring(entry, cpu, &entry->rings[status->cpus], reason);
		bytes += r == 0 ? entry->rings[status->cpus].map_bytes : 0;
	}
	if (r < 0)
		close_cpu(recorder, status->cpus);
	if (r == -ENODEV) {
		status->cpus_missing++;
		return 0;
	}
	if (r < 0)
		return r;
	status->cpus++;
	status->memory_bytes += bytes;
	return 0;
}

static int open_rings(struct stackrecorder *recorder, char *reason)
{
	unsigned cpus = configured_cpus();
	char why[STACKRECORDER_REASON_MAX] = "";
	int r = 0;

	for (int kind = 0; kind < STACKFILE_STREAM_KINDS; kind++) {
		struct stackrecorder_kind *entry = &recorder->kinds[kind];

		if (!entry->on)
			continue;
		entry->rings = calloc(cpus, sizeof(*entry->rings));
		if (entry->rings == NULL)
			return -ENOMEM;
		for (unsigned i = 0; i < cpus; i++)
			entry->rings[i] = PERFEVENTS_NONE;
	}
	for (unsigned cpu = 0; r == 0 && cpu < cpus; cpu++)
		r = open_cpu(recorder, cpu, why);
	if (r == 0 && recorder->status.cpus == 0) {
		snprintf(why, sizeof(why), "no CPU could be sampled");
		r = -ENODEV;
	}
	if (r < 0)
		memcpy(reason, why, sizeof(why));
	return r;
}

static int open_faults(struct stackrecorder *recorder, char *reason)
{
	enum stackfile_stream_kind kind =
		recorder->kinds[STACKFILE_FAULTS].on ? STACKFILE_FAULTS : STACKFILE_FAULTS_FOLLOWED;
	struct stackrecorder_kind *entry = &recorder->kinds[kind];
	struct stackrecorder_faults_options options = {
		.kind = kind,
		.wanted = &entry->wanted,
		.rings = entry->rings,
		.cpus = recorder->status.cpus,
		.proc_fd = recorder->proc_fd,
	};

	return entry->on ? stackrecorder_faults_open(&options, &recorder->faults, reason) : 0;
}

/* The largest plan that the kernel has room for. */
static int open_plan(struct stackrecorder *recorder, struct stackrecorder_needs *needs,
		     const struct perfevents_wanted *wanted, struct stackrecorder_plan *plan, char *reason)
{
	char why[STACKRECORDER_REASON_MAX];
	int r = stackrecorder_plan(needs, plan, reason);

	while (r == 0) {
		want_all(recorder, needs->options, wanted, plan);
		r = open_rings(recorder, why);
		if (r == 0)
			r = open_faults(recorder, why);
		if (r == 0)
			return 0;
		stackrecorder_close_events(recorder);
		if (!is_refusal(r) || strncmp(why, "mmap", 4) != 0)
			break;
		needs->most = stackrecorder_plan_bytes(plan) * needs->cpus - 1;
		if (stackrecorder_plan(needs, plan, reason) < 0)
			break; /* with the kernel's own words */
		r = 0;
	}
	if (r < 0 && r != -ENOSPC)
		memcpy(reason, why, sizeof(why));
	return r;
}

static void describe(struct stackrecorder *recorder, const struct stackrecorder_options *options,
		     const struct perfevents_wanted *wanted, const struct stackrecorder_needs *needs,
		     const struct stackrecorder_plan *plan)
{
	struct stackrecorder_status *status = &recorder->status;

	status->dwarf = plan->dwarf;
	status->kernel = !wanted->user_only;
	status->faults = !options->without_faults;
	status->cycles = wanted->cycles;
	status->build_ids = recorder->kinds[STACKFILE_BOOK].wanted.build_ids;
	status->ring_bytes = stackrecorder_plan_bytes(plan);
	if (options->cycles && !wanted->cycles)
		say(recorder, "samples by the clock: the hardware has no cycles to count here");
	if (needs->dwarf && !plan->dwarf)
		say(recorder, "no stacks to unwind: no memory for a second of them%s",
		    needs->most != 0 ? " (kernel.perf_event_mlock_kb, RLIMIT_MEMLOCK)" : "");
}

int stackrecorder_open_events(struct stackrecorder *recorder, const struct stackrecorder_options *options, char *reason)
{
	struct perfevents_wanted wanted = { .kind = PERFEVENTS_CPU, .cycles = options->cycles };
	struct perfevents_wanted side = { .kind = PERFEVENTS_SIDE, .build_ids = true };
	struct stackrecorder_needs needs = { .options = options };
	struct clock clock = realclock();
	struct stackrecorder_plan plan;
	long online = sysconf(_SC_NPROCESSORS_ONLN);
	int r;

	wanted.frequency = perfevents_frequency(options->frequency != 0 ? options->frequency : DEFAULT_FREQUENCY);
	recorder->status.frequency = needs.frequency = wanted.frequency;
	r = ask_kernel(recorder, options, &wanted, reason);
	if (r < 0)
		return r;
	if (settle(&side, recorder->status.everybody ? EVERYBODY : US) == 0)
		wanted.build_ids = side.build_ids;
	needs.cpus = online > 0 ? (unsigned)online : configured_cpus();
	needs.everybody = recorder->status.everybody;
	needs.dwarf = can_dwarf(recorder, options, &wanted);
	recorder->opened_busy_ns = stackrecorder_busy_now(recorder->proc_fd);
	recorder->opened_ns = clock_mono(&clock).ns;
	r = open_plan(recorder, &needs, &wanted, &plan, reason);
	if (r == 0)
		describe(recorder, options, &wanted, &needs, &plan);
	return r;
}
