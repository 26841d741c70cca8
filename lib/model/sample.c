/*
 * sample.c: the table of fields as data, and verdicts on the sampler: ratios of differences between
 * two states of its counters. The thresholds are those at which gVisor's profiling metrics warn.
 */
#include "lib/model/sample.h"

#include <assert.h>
#include <stdio.h>

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
	[VERDICT_CAPTURE_RATE] = {
		.threshold = CAPTURE_RATE_MIN,
		.what = "capture rate",
		.cause = "Slots passed while the sampler waited for a CPU, for a slow reader, or was still collecting.",
		.remedy = "Lengthen sampling.interval, watch fewer targets, or give the daemon a "
			"higher CPU weight or priority.",
	},
	[VERDICT_SLEEP_ERROR] = {
		.threshold = SLEEP_ERROR_MAX,
		.what = "mean sleep timing error",
		.cause = "The sampler is woken late: the CPUs are busy or throttled, or the "
			"interval is as short as the timer is exact.",
		.remedy = "Lengthen sampling.interval, set sampling.wait to \"spin\", or give the daemon a "
			  "higher CPU weight or priority.",
	},
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

void stats_verdicts(const struct stats *now, const struct stats *since, struct verdict ret[VERDICT_KINDS])
{
	uint64_t slots = grown(now->total_slots, since->total_slots);
	uint64_t snapshots = grown(now->total_snapshots, since->total_snapshots);
	uint64_t sleep_error = grown(now->total_sleep_timing_error, since->total_sleep_timing_error);
	uint64_t collection = grown(now->total_collection_timing_error, since->total_collection_timing_error);
	uint64_t backoff = grown(now->total_backoff_sleep, since->total_backoff_sleep);
	double intervals = (double)snapshots * (double)now->collection_rate;

	for (unsigned kind = 0; kind < VERDICT_KINDS; kind++)
		ret[kind] = verdicts[kind];

	ret[VERDICT_CAPTURE_RATE].ratio = slots > 0 ? ratio(snapshots, (double)slots) : 1;
	ret[VERDICT_SLEEP_ERROR].ratio = ratio(sleep_error, intervals);
	ret[VERDICT_COLLECTION].ratio = ratio(collection, intervals);
	ret[VERDICT_BACKOFF].ratio = ratio(backoff, run_ns(now, since));

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
