/*
 * sample.c: the table of fields as data, and verdicts on the sampler: ratios of differences between
 * two states of its counters. The thresholds are those at which gVisor's profiling metrics warn.
 */
#include "lib/model/sample.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const struct sample_field_info fields[SAMPLE_FIELDS] = {
#define X(identifier, name, unit, kind, source) [SAMPLE_##identifier] = { name, unit, SAMPLE_##kind, source },
	SAMPLE_FIELD_TABLE(X)
#undef X
};

const struct sample_field_info *sample_field_info(enum sample_field field)
{
	assert(field < SAMPLE_FIELDS);
	return &fields[field];
}

const char *sample_kind_name(enum sample_kind kind)
{
	static const char *const names[] = {
		[SAMPLE_COUNTER] = "counter",
		[SAMPLE_GAUGE] = "gauge",
		[SAMPLE_LIMIT] = "limit",
	};
	return names[kind];
}

/*
 * What one of each hundred slots holds may be missing before figures over short windows start to
 * lie.
 */
#define CAPTURE_RATE_MIN 0.99
/* A tenth of an interval of error is a tenth of error in the rate over one interval. */
#define SLEEP_ERROR_MAX 0.10
/* Samples of one tick lie this far apart, and as much CPU of the sampler's core goes into them. */
#define COLLECTION_MAX 0.10
/*
 * A twentieth of the run spent waiting for a reader is a reader that does not keep up, not one that
 * hiccups.
 */
#define BACKOFF_MAX 0.05

static const struct verdict verdicts[VERDICT_KINDS] = {
	[VERDICT_CAPTURE_RATE] = { .threshold = CAPTURE_RATE_MIN, .what = "capture rate" },
	[VERDICT_SLEEP_ERROR] = { .threshold = SLEEP_ERROR_MAX, .what = "mean sleep timing error" },
	[VERDICT_COLLECTION] = {
		.threshold = COLLECTION_MAX,
		.what = "mean collection time",
		.cause = "Reading all targets takes a large part of the interval: there are "
			"many of them, or many of them are busy.",
		.remedy = "Lengthen sampling.interval or sampling.cgroup_interval, or watch fewer targets.",
	},
	[VERDICT_BACKOFF] = {
		.threshold = BACKOFF_MAX,
		.what = "time in backoff",
		.cause = "A blocking reader, such as a recording, does not keep up: what it "
			"writes to is slow or stopped.",
		.remedy = "Record to a faster place, enlarge ring.size, or lengthen sampling.interval.",
	},
};

/* Why slots are missed, or wake-ups late. */
enum lateness {
	LATE_QUOTA,
	LATE_STOLEN,
	LATE_STOPPED,
	LATE_READER,
	LATE_BUSY,
	LATE_BUSY_REAL_TIME,
	LATE_RUNNING,
	LATE_TIMER,
	LATE_UNKNOWN,
	LATENESSES
};

static const struct {
	const char *cause, *remedy;
} latenesses[LATENESSES] = {
	[LATE_QUOTA] = { "The CPU quota of its cgroup is used up, and the kernel stopped the sampler with it.",
			 "Raise the quota (CPUQuota=, cpu.max, the container's limit), lengthen sampling.interval, or "
			 "watch fewer targets." },
	[LATE_STOLEN] = { "The hypervisor gave the CPUs to other virtual machines (steal).",
			  "Give this machine CPUs of its own, or see that its host is not short of them." },
	[LATE_STOPPED] = { "The sampler neither ran nor waited for a CPU: the process was stopped (SIGSTOP, a "
			   "debugger, "
			   "a frozen cgroup), or the virtual machine was.",
			   "See what stops it." },
	[LATE_READER] = { "A blocking reader, such as a recording, does not keep up: what it writes to is slow or "
			  "stopped.",
			  "Record to a faster place, enlarge ring.size, or lengthen sampling.interval." },
	[LATE_BUSY] = { "The CPUs are busy: the sampler was ready to run, and waited for one.",
			"Let it have real-time priority: LimitRTPRIO=1 in the unit, CAP_SYS_NICE in a container, "
			"and sampling.scheduling \"auto\"; or give it a higher CPU weight. Spinning does not help." },
	[LATE_BUSY_REAL_TIME] = { "The sampler has real-time priority, and waited for a CPU all the same: other "
				  "real-time "
				  "threads or the kernel itself are busy, or the CPU time of real-time threads is "
				  "limited.",
				  "Look for processes with real-time priority, and at kernel.sched_rt_runtime_us and "
				  "cpu.rt_runtime_us; lengthen sampling.interval." },
	[LATE_RUNNING] = { "Reading all targets takes longer than the interval: there are many of them, or many of "
			   "them are busy.",
			   "Lengthen sampling.interval or sampling.cgroup_interval, or watch fewer targets." },
	[LATE_TIMER] = { "The interval is as short as the timer is exact: a CPU that sleeps takes tens of microseconds "
			 "to wake up.",
			 "Lengthen sampling.interval or, on a machine with a CPU to spare, set sampling.wait to "
			 "\"spin\"." },
	[LATE_UNKNOWN] = { "The sampler waited for a CPU or for a slow reader, was stopped, or was still collecting.",
			   "Lengthen sampling.interval, watch fewer targets, or give the daemon a higher CPU weight or "
			   "priority." },
};

static uint64_t merge_SUM(uint64_t a, uint64_t b)
{
	return a + b;
}

static uint64_t merge_MOST(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t merge_FIRST(uint64_t a, uint64_t b)
{
	return b > 0 && (a == 0 || b < a) ? b : a;
}

void stats_merge(struct stats *sum, const struct stats *other)
{
#define X(name, kind, meaning) sum->name = merge_##kind(sum->name, other->name);
	STATS_FIELD_TABLE(X)
#undef X
}

/* later - earlier; 0 if the counter was started anew in between. */
static uint64_t grown(uint64_t later, uint64_t earlier)
{
	return later > earlier ? later - earlier : 0;
}

static double ratio(uint64_t part, double whole)
{
	return whole > 0 ? (double)part / whole : 0;
}

/* Of all threads together. Each slot stands for one interval, the first one too. */
static double run_ns(const struct stats *now, const struct stats *since)
{
	double threads = now->threads > 1 ? (double)now->threads : 1;

	if (since->total_slots > 0)
		return threads * (double)grown(now->cheap_last_collection_nanos, since->cheap_last_collection_nanos);
	return threads *
	       (double)(grown(now->cheap_last_collection_nanos, now->cheap_start_nanos) + now->collection_rate);
}

/* The largest of times[LATENESSES] is the cause. */
static void name_cause(const uint64_t times[LATENESSES], struct verdict *verdict)
{
	enum lateness most = LATE_UNKNOWN;

	for (enum lateness why = 0; why < LATENESSES; why++)
		if (times[why] > times[most])
			most = why;
	verdict->cause = latenesses[most].cause;
	verdict->cause_ns = times[most];
	verdict->remedy = latenesses[most].remedy;
}

/* As much of *time as there is, up to most. */
static uint64_t take_from(uint64_t *time, uint64_t most)
{
	uint64_t taken = *time < most ? *time : most;

	*time -= taken;
	return taken;
}

/*
 * How much of lost_ns each cause explains, if the thread waited so long for a CPU. A thread that a
 * quota stops is ready to run; whether that is a wait for a CPU depends on the kernel's version.
 */
static void explain(const struct stats *now, const struct stats *since, uint64_t lost_ns, uint64_t waited_ns,
		    uint64_t ret[LATENESSES])
{
	uint64_t quota_ns = grown(now->throttled, since->throttled);
	uint64_t stopped_ns = grown(now->stopped, since->stopped);
	uint64_t reader_ns = grown(now->total_backoff_sleep, since->total_backoff_sleep);

	memset(ret, 0, LATENESSES * sizeof *ret);
	ret[LATE_QUOTA] = take_from(&waited_ns, quota_ns);
	ret[LATE_QUOTA] += take_from(&stopped_ns, quota_ns - ret[LATE_QUOTA]);
	take_from(&lost_ns, ret[LATE_QUOTA]);
	ret[LATE_STOLEN] = take_from(&stopped_ns, grown(now->stolen, since->stolen));
	take_from(&lost_ns, ret[LATE_STOLEN]);
	ret[LATE_STOPPED] = take_from(&lost_ns, stopped_ns);
	ret[now->real_time > 0 ? LATE_BUSY_REAL_TIME : LATE_BUSY] = take_from(&lost_ns, waited_ns);
	ret[LATE_READER] = take_from(&lost_ns, reader_ns);
	ret[now->run_delay > 0 ? LATE_RUNNING : LATE_UNKNOWN] = lost_ns;
}

void stats_verdicts(const struct stats *now, const struct stats *since, struct verdict ret[VERDICT_KINDS])
{
	uint64_t slots = grown(now->total_slots, since->total_slots);
	uint64_t snapshots = grown(now->total_snapshots, since->total_snapshots);
	uint64_t missed_ns = grown(now->missed_time, since->missed_time);
	uint64_t sleep_error = grown(now->total_sleep_timing_error, since->total_sleep_timing_error);
	uint64_t collection = grown(now->total_collection_timing_error, since->total_collection_timing_error);
	uint64_t backoff = grown(now->total_backoff_sleep, since->total_backoff_sleep);
	double intervals = (double)snapshots * (double)now->collection_rate;
	uint64_t times[LATENESSES];

	for (unsigned kind = 0; kind < VERDICT_KINDS; kind++)
		ret[kind] = verdicts[kind];

	ret[VERDICT_CAPTURE_RATE].ratio = slots > 0 ? ratio(snapshots, (double)slots) : 1;
	ret[VERDICT_SLEEP_ERROR].ratio = ratio(sleep_error, intervals);
	ret[VERDICT_COLLECTION].ratio = ratio(collection, intervals);
	ret[VERDICT_BACKOFF].ratio = ratio(backoff, run_ns(now, since));

	explain(now, since, missed_ns, grown(now->starved, since->starved), times);
	name_cause(times, &ret[VERDICT_CAPTURE_RATE]);
	explain(now, since, sleep_error, grown(now->run_delay, since->run_delay), times);
	times[LATE_TIMER] = times[LATE_RUNNING];
	times[LATE_RUNNING] = 0;
	name_cause(times, &ret[VERDICT_SLEEP_ERROR]);

	for (unsigned kind = 0; kind < VERDICT_KINDS && slots > 0; kind++)
		ret[kind].bad = kind == VERDICT_CAPTURE_RATE ? ret[kind].ratio < ret[kind].threshold
							     : ret[kind].ratio > ret[kind].threshold;
}

size_t stats_to_json(const struct stats *stats, char *buf, size_t cap)
{
	static const char *const names[] = {
#define X(name, kind, meaning) #name,
		STATS_FIELD_TABLE(X)
#undef X
	};
	const uint64_t values[] = {
#define X(name, kind, meaning) stats->name,
		STATS_FIELD_TABLE(X)
#undef X
	};
	size_t len = 0;

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		int n = snprintf(buf + len, cap - len, "%c\"%s\":%llu", i == 0 ? '{' : ',', names[i],
				 (unsigned long long)values[i]);

		if (n < 0 || (size_t)n >= cap - len)
			return 0;
		len += (size_t)n;
	}
	if (cap - len < 2)
		return 0;

	buf[len] = '}';
	buf[len + 1] = '\0';
	return len + 1;
}
