/*
 * exposition.c: of the daemon itself: a table for what is a number in a structure, and a function for each part that is more. Targets:
 * exposition_targets.h.
 *
 * Each family is written once, with all its samples together, as both forms want it.
 */
#include "exposition.h"

#include "exposition_targets.h"
#include "families.h"
#include "scope.h"
#include "vitals.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

struct exposition {
	wall_t started;
	struct exposition_targets *targets;
};

static void begin(struct openmetrics *out, enum family family)
{
	openmetrics_family(out, families_info(family));
}

static void put_u64(struct openmetrics *out, enum family family, uint64_t value)
{
	begin(out, family);
	openmetrics_u64(out, NULL, value);
}

static void put_ns(struct openmetrics *out, enum family family, uint64_t value)
{
	begin(out, family);
	openmetrics_ns(out, NULL, value);
}

static void put_double(struct openmetrics *out, enum family family, double value)
{
	begin(out, family);
	openmetrics_double(out, NULL, value);
}

static struct openmetrics_labels labelled(const char *name, const char *value)
{
	return (struct openmetrics_labels){ .further = { { name, value } } };
}

/* ---- the process, the sampler, the ring ---- */

static void put_daemon(struct openmetrics *out, const struct exposition *exposition, const struct overview *overview,
		       const struct vitals *vitals)
{
	struct openmetrics_labels version = labelled("version", SPIKEWATCH_VERSION);
	const struct samplers *samplers = session_samplers(overview->session);

	begin(out, FAMILY_BUILD);
	openmetrics_u64(out, &version, 1);
	put_ns(out, FAMILY_START_TIME, exposition->started.ns);
	put_ns(out, FAMILY_PROCESS_CPU, vitals->cpu_ns);
	put_u64(out, FAMILY_PROCESS_RESIDENT, vitals->resident_bytes);
	put_u64(out, FAMILY_PROCESS_FDS, vitals->open_fds);
	put_ns(out, FAMILY_INTERVAL, overview->config->sampling.interval_ns);
	put_u64(out, FAMILY_SLOWDOWN, samplers_slowdown(samplers));
	put_double(out, FAMILY_CPU_SHARE, samplers_cpu_share(samplers));
}

/* What the sampler counts, as it stands in its counters. */
static const struct {
	enum family family;
	size_t offset;
} counters[] = {
	{ FAMILY_SNAPSHOTS, offsetof(struct stats, total_snapshots) },
	{ FAMILY_SLOTS, offsetof(struct stats, total_slots) },
	{ FAMILY_MISSED_SLOTS, offsetof(struct stats, missed_slots) },
	{ FAMILY_SLEEP_ERROR, offsetof(struct stats, total_sleep_timing_error) },
	{ FAMILY_COLLECTION, offsetof(struct stats, total_collection_timing_error) },
	{ FAMILY_BACKOFF, offsetof(struct stats, total_backoff_sleep) },
	{ FAMILY_BACKOFFS, offsetof(struct stats, num_backoff_sleeps) },
	{ FAMILY_LOST_RECORDS, offsetof(struct stats, lost_records) },
	{ FAMILY_FAILED_READS, offsetof(struct stats, failed_reads) },
	{ FAMILY_SKIPPED_READS, offsetof(struct stats, skipped_reads) },
	{ FAMILY_SAVED_LOOKS, offsetof(struct stats, saved_looks) },
	{ FAMILY_GONE_TARGETS, offsetof(struct stats, gone_targets) },
	{ FAMILY_RECORDS, offsetof(struct stats, records) },
	{ FAMILY_RECORDED, offsetof(struct stats, bytes) },
	{ FAMILY_SAMPLER_CPU, offsetof(struct stats, own_cpu) },
	{ FAMILY_SAMPLER_THREADS, offsetof(struct stats, threads) },
};

/* Times are counted in nanoseconds; the family says which of them are times. */
static void put_counters(struct openmetrics *out, const struct stats *stats)
{
	for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
		uint64_t value = *(const uint64_t *)(const void *)((const char *)stats + counters[i].offset);
		bool time = families_info(counters[i].family)->unit[0] == 's';

		(time ? put_ns : put_u64)(out, counters[i].family, value);
	}
}

static void put_verdicts(struct openmetrics *out, const struct health *health, const struct verdict *verdicts)
{
	static const char *const names[VERDICT_KINDS] = {
		[VERDICT_CAPTURE_RATE] = "capture_rate",
		[VERDICT_SLEEP_ERROR] = "sleep_error",
		[VERDICT_COLLECTION] = "collection",
		[VERDICT_BACKOFF] = "backoff",
	};
	struct openmetrics_labels labels[VERDICT_KINDS];

	for (int i = 0; i < VERDICT_KINDS; i++)
		labels[i] = labelled("verdict", names[i]);
	begin(out, FAMILY_VERDICT_RATIO);
	for (int i = 0; i < VERDICT_KINDS; i++)
		openmetrics_double(out, &labels[i], verdicts[i].ratio);
	begin(out, FAMILY_VERDICT_THRESHOLD);
	for (int i = 0; i < VERDICT_KINDS; i++)
		openmetrics_double(out, &labels[i], verdicts[i].threshold);
	begin(out, FAMILY_VERDICT_BAD);
	for (int i = 0; i < VERDICT_KINDS; i++)
		openmetrics_u64(out, &labels[i], health->bad[i]);
	begin(out, FAMILY_VERDICT_EPISODES);
	for (int i = 0; i < VERDICT_KINDS; i++)
		openmetrics_u64(out, &labels[i], health->episodes[i]);
}

static void put_sampler(struct openmetrics *out, const struct overview *overview)
{
	static const struct stats nothing;
	struct verdict verdicts[VERDICT_KINDS];
	struct stats stats = { 0 };

	if (ring_stats(session_ring(overview->session), &stats) < 0)
		return;

	stats_verdicts(&stats, &nothing, verdicts);
	put_counters(out, &stats);
	put_double(out, FAMILY_CAPTURE, verdicts[VERDICT_CAPTURE_RATE].ratio);
	put_verdicts(out, overview->health, verdicts);
}

static void put_ring(struct openmetrics *out, const struct overview *overview, const struct vitals *vitals)
{
	struct watcher_counts watched;
	struct ring_info info;

	ring_info(session_ring(overview->session), &info);
	watcher_counts(overview->watcher, &watched);
	put_u64(out, FAMILY_RING_SIZE, info.size_bytes);
	put_ns(out, FAMILY_RING_HISTORY, vitals->history_ns);
	put_u64(out, FAMILY_RING_TICKS, info.ticks);
	put_u64(out, FAMILY_UNJUDGED_PAGES, watched.lost_pages);
	put_u64(out, FAMILY_DAMAGED_PAGES, watched.damaged_pages);
}

/* ---- what is found, what was kept ---- */

static void put_discovery(struct openmetrics *out, const struct overview *overview)
{
	struct discovery_state found;

	discovery_state(session_discovery(overview->session), &found);
	put_u64(out, FAMILY_TARGETS, found.roster.targets);
	put_u64(out, FAMILY_MEMBERS, found.roster.members);
	put_u64(out, FAMILY_PROCESSES, found.processes);
	put_u64(out, FAMILY_WARM, found.roster.processes - found.roster.cold);
	put_u64(out, FAMILY_COLD, found.roster.cold);
	put_u64(out, FAMILY_UNREADABLE, found.unreadable);
	put_u64(out, FAMILY_REFUSED_TARGETS, found.roster.refused);
	put_u64(out, FAMILY_FAILED_TARGETS, found.roster.failed);
	put_u64(out, FAMILY_FOUND_TARGETS, found.roster.found);
	put_u64(out, FAMILY_LEFT_TARGETS, found.roster.left);
	put_u64(out, FAMILY_SCANS, found.scans);
	put_ns(out, FAMILY_LAST_SCAN, found.last_scan_ns);
	put_u64(out, FAMILY_UNFINISHED, found.error != 0);
	put_u64(out, FAMILY_LISTENING, found.source != PROCLISTENER_NONE);
	put_u64(out, FAMILY_EVENTS, found.events);
	put_u64(out, FAMILY_OVERRUNS, found.overruns);
	put_u64(out, FAMILY_MISSED, found.missed + found.dropped);
	put_u64(out, FAMILY_CREDITED, found.credited);
	put_u64(out, FAMILY_LATE, found.late);
	put_u64(out, FAMILY_STORMS, found.storms);
}

static void put_incidents(struct openmetrics *out, const struct overview *overview)
{
	struct incidents_counts counts;

	incidents_counts(overview->incidents, &counts);
	put_u64(out, FAMILY_INCIDENTS_OPENED, counts.opened);
	put_u64(out, FAMILY_INCIDENTS_SEALED, counts.sealed);
	put_u64(out, FAMILY_INCIDENTS_MERGED, counts.merged);
	put_u64(out, FAMILY_INCIDENTS_FAILED, counts.failed);
	put_u64(out, FAMILY_INCIDENTS_REFUSED, counts.refused);
	put_u64(out, FAMILY_INCIDENTS_MANUAL, counts.manual);
	put_u64(out, FAMILY_INCIDENTS_REMOVED, counts.removed);
	put_u64(out, FAMILY_INCIDENTS_OPEN, counts.open);
}

/* ---- rules ---- */

static uint64_t windows_of(const struct ruletally_counts *counts)
{
	return counts->windows;
}

static uint64_t unavailable_of(const struct ruletally_counts *counts)
{
	return counts->reasons[TRIGGER_UNAVAILABLE];
}

static uint64_t fired_of(const struct ruletally_counts *counts)
{
	return counts->fired;
}

static uint64_t opened_of(const struct ruletally_counts *counts)
{
	return counts->opened;
}

static void put_by_rule(struct openmetrics *out, const struct overview *overview, enum family family,
			uint64_t (*value_of)(const struct ruletally_counts *counts))
{
	const struct config *config = overview->config;

	begin(out, family);
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct ruletally_counts *counts = ruletally_counts(overview->tally, &config->rules[i]);
		struct openmetrics_labels labels = labelled("rule", config->rules[i].name);

		if (counts)
			openmetrics_u64(out, &labels, value_of(counts));
	}
}

/* Reasons of candidates that did not fire; those that never were given are 0. */
static void put_suppressed(struct openmetrics *out, const struct overview *overview)
{
	const struct config *config = overview->config;

	begin(out, FAMILY_RULE_SUPPRESSED);
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct ruletally_counts *counts = ruletally_counts(overview->tally, &config->rules[i]);
		struct openmetrics_labels labels = labelled("rule", config->rules[i].name);

		for (enum trigger_reason reason = TRIGGER_PENDING; counts && reason < TRIGGER_REASONS; reason++) {
			labels.further[1] = (struct openmetrics_label){ "reason", trigger_reason_name(reason) };
			openmetrics_u64(out, &labels, counts->reasons[reason]);
		}
	}
}

static void put_rules(struct openmetrics *out, const struct overview *overview)
{
	if (overview->tally == NULL)
		return;

	put_by_rule(out, overview, FAMILY_RULE_WINDOWS, windows_of);
	put_by_rule(out, overview, FAMILY_RULE_UNAVAILABLE, unavailable_of);
	put_suppressed(out, overview);
	put_by_rule(out, overview, FAMILY_RULE_FIRINGS, fired_of);
	put_by_rule(out, overview, FAMILY_RULE_INCIDENTS, opened_of);
}

/* ---- the whole ---- */

int exposition_write(struct exposition *exposition, const struct overview *overview, enum openmetrics_form form,
		     struct buffer *ret)
{
	struct openmetrics out;
	struct vitals vitals;
	int r;

	vitals_read(session_ring(overview->session), &vitals);
	openmetrics_init(&out, sink_buffer(ret), form);
	put_daemon(&out, exposition, overview, &vitals);
	put_sampler(&out, overview);
	put_ring(&out, overview, &vitals);
	put_discovery(&out, overview);
	put_incidents(&out, overview);
	put_rules(&out, overview);
	r = exposition_targets_write(exposition->targets, overview, &out);
	if (r < 0)
		return r;

	return openmetrics_finish(&out);
}

int exposition_new(wall_t started, struct exposition **ret)
{
	AUTO_FREE struct exposition *exposition = calloc(1, sizeof(*exposition));
	int r = exposition ? exposition_targets_new(&exposition->targets) : -ENOMEM;

	if (r < 0)
		return r;

	exposition->started = started;
	*ret = TAKE(exposition);

	return 0;
}

void exposition_free(struct exposition *exposition)
{
	if (exposition)
		exposition_targets_free(exposition->targets);
	free(exposition);
}
