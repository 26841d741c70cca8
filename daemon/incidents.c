/*
 * incidents.c: the list of open incidents. Opening one secures its slice at once: the ring holds the past only for so long. From then
 * on the slice follows the same events as the rules do.
 */
#include "incidents.h"

#include "collector.h"
#include "log.h"
#include "metrictext.h"
#include "procread.h"
#include "realclock.h"
#include "scope.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* Memory for samples, as a part of what an incident may take on disk: their text is about so many times longer. */
#define SLICE_SHARE 8u

/* What captures other than samples take at most, for the prediction of disk space; a row of samples is about so long. */
#define CAPTURES_BYTES (2u << 20)
#define ROW_BYTES 200u

/* How long an answer about disk space is believed. */
#define DISK_CHECK_NS NS_PER_S

struct incidents {
	struct incidents_options options;
	struct collector *collector;
	struct collector_incident *open;
	struct incidents_counts counts;
	mono_t tick;
	mono_t disk_asked;
	bool disk_ok, refusing;
};

int incidents_new(const struct incidents_options *options, struct incidents **ret)
{
	struct incidents *incidents = calloc(1, sizeof *incidents);
	int r;

	if (!incidents)
		return -ENOMEM;

	incidents->options = *options;
	r = collector_new(options->config, options->session, options->spool, &incidents->collector);
	if (r < 0) {
		free(incidents);
		return r;
	}
	sampler_exempt(session_sampler(options->session), collector_cpu_clock(incidents->collector));
	*ret = incidents;

	return 0;
}

void incidents_free(struct incidents *incidents)
{
	if (!incidents)
		return;

	incidents_finish(incidents);
	collector_free(incidents->collector);
	free(incidents);
}

/* ---- what is known at the firing ---- */

static void describe_machine(const struct incidents *incidents, struct incident *info)
{
	struct utsname name;
	char boot_id[64];
	ssize_t len = procread_file(session_procfd(incidents->options.session), 0, "sys/kernel/random/boot_id", boot_id,
				    sizeof boot_id);

	if (uname(&name) == 0) {
		incident_text(info->hostname, sizeof info->hostname, name.nodename);
		incident_text(info->kernel, sizeof info->kernel, name.release);
	}
	if (len > 0) {
		boot_id[strcspn(boot_id, "\n")] = '\0';
		incident_text(info->boot_id, sizeof info->boot_id, boot_id);
	}
}

static void describe_rule(const struct incidents *incidents, const struct evaluator_firing *firing,
			  struct incident_rule *rule)
{
	const struct config_rule *configured = firing->rule;
	struct trigger_memory memory;

	incident_text(rule->name, sizeof rule->name, configured->name);
	incident_text(rule->metric, sizeof rule->metric, metric_name(configured->metric));
	incident_text(rule->unit, sizeof rule->unit, incident_unit_name(metric_unit(configured->metric)));
	if (configured->metric == METRIC_CPU || configured->metric == METRIC_MEMORY)
		incident_text(rule->of, sizeof rule->of, metric_of_name(configured->of));
	incident_text(rule->reason, sizeof rule->reason, trigger_reason_name(firing->decision->candidate_reason));
	rule->window_ns = configured->window_ns;
	rule->thresholds = *firing->effective;
	rule->has_value = firing->decision->available;
	rule->value = firing->decision->value;
	rule->has_average = firing->decision->has_average;
	rule->average = firing->decision->average;
	rule->severity = incident_severity(rule);
	if (memo_get(incidents->options.memo, configured->name, firing->target->key, &memory)) {
		rule->fired = memory.fired;
		rule->count = memory.count;
	}
}

static void describe_cost(const struct incidents *incidents, mono_t now, struct incident_cost *cost)
{
	struct stats stats;
	int64_t run;

	if (ring_stats(session_ring(incidents->options.session), &stats) < 0 || stats.total_snapshots == 0)
		return;

	run = mono_diff(now, (mono_t){ stats.cheap_start_nanos });
	cost->interval_ns = stats.collection_rate;
	cost->cpu_percent = run > 0 ? 100 * (double)stats.own_cpu / (double)run : 0;
	cost->mean_sleep_error_ns = stats.total_sleep_timing_error / stats.total_snapshots;
	cost->mean_collection_ns = stats.total_collection_timing_error / stats.total_snapshots;
	cost->missed_slots = stats.missed_slots;
}

static void describe(const struct incidents *incidents, const struct evaluator_firing *firing, struct incident *info)
{
	incident_init(info, SPIKEWATCH_VERSION);
	info->kind = INCIDENT_RULE;
	info->wall = firing->wall;
	info->mono = firing->to;
	info->window_from = firing->from;
	info->window_to = firing->to;
	describe_machine(incidents, info);
	describe_rule(incidents, firing, &info->rule);
	describe_cost(incidents, firing->to, &info->cost);
	incident_set_target(info, firing->target);
	if (!discovery_limits(session_discovery(incidents->options.session), firing->target->id, &info->limits)) {
		info->limits.cpu = firing->cpu_limit;
		info->limits.memory_bytes = firing->memory_limit;
	}
}

/* ---- the past ---- */

static void release_cursor(struct ring_cursor **cursor)
{
	ring_cursor_free(*cursor);
}

/* Reads the window before the firing from the ring, up to what is published now. */
static void secure_slice(const struct incidents *incidents, struct collector_incident *incident)
{
	const struct config *config = incidents->options.config;
	AUTO(release_cursor) struct ring_cursor *cursor = NULL;
	uint64_t back = config->incidents.before_ns +
			2 * config->sampling.heartbeat_ns; /* so that the state at its start is known */
	struct ring_event event;

	if (ring_cursor_new(session_ring(incidents->options.session), RING_OLDEST, &cursor) < 0)
		return;

	ring_cursor_seek(cursor, mono_sub(incident->fired, back));
	ring_cursor_only(cursor, incident->target.id);
	while (ring_cursor_next(cursor, &event) == 0) {
		if (event.type == RING_EVENT_TICK) {
			slice_tick(incident->slice, event.time);
			incident->followed = event.time;
		} else if (event.type == RING_EVENT_SAMPLE && event.id == incident->target.id) {
			slice_add(incident->slice, event.time, event.sample);
		} else if (event.type == RING_EVENT_GONE && event.id == incident->target.id) {
			slice_gone(incident->slice, event.time);
		} else if (event.type == RING_EVENT_LAPPED || event.type == RING_EVENT_DAMAGED) {
			slice_gap(incident->slice, incident->followed, event.lost_pages);
		}
	}
}

/* ---- opening ---- */

/* "98 % > 80 %", "98 %, average 12 %": the value against what made it a candidate. */
static void compare(const struct evaluator_firing *firing, char *buf, size_t cap)
{
	enum metric_unit unit = metric_unit(firing->rule->metric);
	const struct trigger_decision *decision = firing->decision;
	char value[32], other[32];

	metrictext_value(unit, decision->value, value, sizeof value);
	if (decision->candidate_reason == TRIGGER_ABOVE_AVERAGE)
		snprintf(buf, cap, "%s, more than %.0f %% above its average of %s", value, firing->effective->delta,
			 metrictext_value(unit, decision->average, other, sizeof other));
	else
		snprintf(buf, cap, "%s > %s", value,
			 metrictext_value(unit, firing->effective->percent, other, sizeof other));
}

static void say_fired(const struct evaluator_firing *firing, const char *what)
{
	struct log_about about = {
		.message = MESSAGE_RULE_FIRED,
		.rule = firing->rule->name,
		.target = firing->target->name,
	};
	char comparison[160];

	compare(firing, comparison, sizeof comparison);
	log_about(LOG_NOTICE, &about, "rule %s fired on %s: %s is %s%s", firing->rule->name, firing->target->name,
		  metric_name(firing->rule->metric), comparison, what);
}

static void merge(struct incidents *incidents, struct collector_incident *incident,
		  const struct evaluator_firing *firing)
{
	struct incident_firing more = {
		.wall = firing->wall,
		.has_value = firing->decision->available,
		.value = firing->decision->value,
	};

	incident_text(more.rule, sizeof more.rule, firing->rule->name);
	incident_merge(&incident->info, &more);
	incidents->counts.merged++;
	say_fired(firing, "; merged into the incident that is open");
}

static struct collector_incident *find_open(const struct incidents *incidents, const char *key)
{
	struct collector_incident *incident = incidents->open;

	while (incident && strcmp(incident->target.key, key) != 0)
		incident = incident->next;

	return incident;
}

static int new_incident(const struct incidents *incidents, const struct evaluator_firing *firing,
			struct collector_incident **ret)
{
	const struct config_incidents *config = &incidents->options.config->incidents;
	struct collector_incident *incident = calloc(1, sizeof *incident);
	struct slice_options options = {
		.fired = firing->to,
		.before_ns = config->before_ns,
		.after_ns = config->after_ns,
		.max_bytes = config->max_incident_bytes / SLICE_SHARE,
	};
	int r;

	if (!incident)
		return -ENOMEM;

	target_decode(incident->encoded, target_encode(firing->target, incident->encoded, sizeof incident->encoded),
		      &incident->target);
	incident->fired = firing->to;
	incident->wall = firing->wall;
	r = slice_new(&options, &incident->slice);
	if (r < 0) {
		collector_incident_free(incident);
		return r;
	}
	*ret = incident;

	return 0;
}

/* Refusals are said when they begin, not each time. */
static int refuse(struct incidents *incidents, const struct evaluator_firing *firing, const char *why)
{
	incidents->counts.refused++;
	if (!incidents->refusing)
		log_line(LOG_WARNING, "rule %s fired on %s, but no incident was opened: %s", firing->rule->name,
			 firing->target->name, why);
	incidents->refusing = true;

	return 0;
}

int incidents_fire(struct incidents *incidents, const struct evaluator_firing *firing)
{
	struct collector_incident *incident = find_open(incidents, firing->target->key);

	if (incident) {
		merge(incidents, incident, firing);
		return 0;
	}
	if (incidents->counts.open == INCIDENTS_OPEN_MAX)
		return refuse(incidents, firing, "too many are open");
	if (new_incident(incidents, firing, &incident) < 0)
		return refuse(incidents, firing, "no memory");

	/* First of all: the ring goes on, and describing may have to wait for a scan. */
	secure_slice(incidents, incident);
	describe(incidents, firing, &incident->info);
	incident->evidence = incident->info;
	incidents->refusing = false;
	incident->next = incidents->open;
	incidents->open = incident;
	incidents->counts.open++;
	incidents->counts.opened++;
	collector_capture(incidents->collector, incident);
	say_fired(firing, "");

	return 0;
}

bool incidents_disk_ok(struct incidents *incidents, mono_t now)
{
	const struct config *config = incidents->options.config;
	uint64_t rows, bytes;

	if (incidents->disk_asked.ns && mono_diff(now, incidents->disk_asked) < (int64_t)DISK_CHECK_NS)
		return incidents->disk_ok;

	rows = (config->incidents.before_ns + config->incidents.after_ns) / config->sampling.interval_ns;
	bytes = rows * ROW_BYTES + CAPTURES_BYTES;
	if (bytes > config->incidents.max_incident_bytes)
		bytes = config->incidents.max_incident_bytes;

	bool ok = spool_predict_ok(incidents->options.spool, bytes);

	if (!ok && (incidents->disk_ok || !incidents->disk_asked.ns))
		log_line(LOG_WARNING, "too little disk space for incidents: rules do not fire until there is more");
	else if (ok && !incidents->disk_ok && incidents->disk_asked.ns)
		log_line(LOG_NOTICE, "there is disk space for incidents again");
	incidents->disk_ok = ok;
	incidents->disk_asked = now;

	return ok;
}

/* ---- the present ---- */

void incidents_tick(struct incidents *incidents, mono_t at)
{
	incidents->tick = at;
	for (struct collector_incident *incident = incidents->open; incident; incident = incident->next)
		if (mono_diff(at, incident->followed) > 0)
			slice_tick(incident->slice, at);
}

/* Ticks that were read from the ring when the incident was opened come by once more: they are skipped. */
static bool is_new(const struct incidents *incidents, const struct collector_incident *incident)
{
	return mono_diff(incidents->tick, incident->followed) > 0;
}

void incidents_sample(struct incidents *incidents, uint32_t id, mono_t at, const struct sample *sample)
{
	for (struct collector_incident *incident = incidents->open; incident; incident = incident->next)
		if (incident->target.id == id && is_new(incidents, incident))
			slice_add(incident->slice, at, sample);
}

void incidents_gone(struct incidents *incidents, uint32_t id, mono_t at)
{
	for (struct collector_incident *incident = incidents->open; incident; incident = incident->next)
		if (incident->target.id == id)
			slice_gone(incident->slice, at);
}

void incidents_gap(struct incidents *incidents, mono_t at, uint64_t lost_pages)
{
	for (struct collector_incident *incident = incidents->open; incident; incident = incident->next)
		slice_gap(incident->slice, at, lost_pages);
}

/* ---- closing ---- */

static void close_incident(struct incidents *incidents, struct collector_incident **at)
{
	struct collector_incident *incident = *at;

	*at = incident->next;
	incident->next = NULL;
	incidents->counts.open--;
	collector_seal(incidents->collector, incident);
}

void incidents_poll(struct incidents *incidents, mono_t now)
{
	for (struct collector_incident **at = &incidents->open; *at;) {
		if (slice_done((*at)->slice, now))
			close_incident(incidents, at);
		else
			at = &(*at)->next;
	}
}

void incidents_finish(struct incidents *incidents)
{
	while (incidents->open)
		close_incident(incidents, &incidents->open);
	collector_stop(incidents->collector);
}

void incidents_counts(struct incidents *incidents, struct incidents_counts *ret)
{
	struct collector_counts collected;

	collector_counts(incidents->collector, &collected);
	*ret = incidents->counts;
	ret->sealed = collected.sealed;
	ret->failed = collected.failed;
}
