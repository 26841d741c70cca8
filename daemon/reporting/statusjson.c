/*
 * statusjson.c: read in the main thread, where rules and incidents live, between two looks at the ring; from the other threads comes
 * what they give away to any thread.
 *
 * A target says when it was looked at: with thousands of them that is not when the document was begun.
 */
#include "statusjson.h"

#include "incident.h"
#include "json.h"
#include "jsonmember.h"
#include "log.h"
#include "scope.h"
#include "statusunits.h"
#include "vitals.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* NAN, which is no number, is how JSON's null is said: not known, not configured. */
static double or_null(bool has, double value)
{
	return has ? value : NAN;
}

/* ---- the process ---- */

static void put_lacks(struct json_writer *json, const struct privileges *privileges)
{
	json_key(json, "lacks");
	json_begin_array(json);
	for (size_t i = 0; i < privileges->count; i++) {
		json_begin_object(json);
		jsonmember_text(json, "needs", privileges->lacks[i].needs);
		jsonmember_text(json, "off", privileges->lacks[i].off);
		json_end_object(json);
	}
	json_end_array(json);
}

static void put_daemon(struct json_writer *json, const struct overview *overview, const struct vitals *vitals)
{
	struct samplers *samplers = session_samplers(overview->session);

	jsonmember_object(json, "daemon");
	jsonmember_text(json, "version", SPIKEWATCH_VERSION);
	jsonmember_u64(json, "pid", (uint64_t)getpid());
	jsonmember_u64(json, "uptime_ns", (uint64_t)mono_diff(overview->now, overview->started));
	jsonmember_u64(json, "interval_ns", overview->config->sampling.interval_ns);
	jsonmember_u64(json, "slowdown", samplers_slowdown(samplers));
	jsonmember_double(json, "cpu_percent", 100 * samplers_cpu_share(samplers));
	jsonmember_u64(json, "memory_bytes", vitals->resident_bytes);
	jsonmember_u64(json, "open_fds", vitals->open_fds);
	jsonmember_text(json, "incident_directory", overview->paths->incidents);
	put_lacks(json, overview->privileges);
	json_end_object(json);
}

/* ---- what is wrong, or was ---- */

static void put_jumps(struct json_writer *json, const char *key, const struct health_jumps *jumps)
{
	jsonmember_object(json, key);
	jsonmember_u64(json, "times", jumps->times);
	jsonmember_double(json, "last_ns", or_null(jumps->times > 0, (double)jumps->last_ns));
	json_end_object(json);
}

static void put_health(struct json_writer *json, const struct health *health)
{
	jsonmember_object(json, "health");
	put_jumps(json, "clock_steps", &health->steps);
	put_jumps(json, "suspends", &health->suspends);
	jsonmember_u64(json, "lost_log_entries", log_lost());
	json_key(json, "silent_threads");
	json_begin_array(json);
	for (size_t i = 0; i < health->thread_count; i++) {
		if (health->threads[i].silent_ns == 0)
			continue;
		json_begin_object(json);
		jsonmember_text(json, "thread", health->threads[i].name);
		jsonmember_u64(json, "silent_ns", health->threads[i].silent_ns);
		if (health->reading && strcmp(health->threads[i].name, "discovery") == 0)
			jsonmember_u64(json, "pid", (uint64_t)health->reading);
		json_end_object(json);
	}
	json_end_array(json);
	json_end_object(json);
}

/* ---- the sampler, the ring ---- */

static void put_verdicts(struct json_writer *json, const struct health *health, const struct verdict *verdicts)
{
	json_key(json, "verdicts");
	json_begin_array(json);
	for (int i = 0; i < VERDICT_KINDS; i++) {
		json_begin_object(json);
		jsonmember_text(json, "what", verdicts[i].what);
		jsonmember_double(json, "ratio", verdicts[i].ratio);
		jsonmember_double(json, "threshold", verdicts[i].threshold);
		jsonmember_bool(json, "bad", verdicts[i].bad);
		jsonmember_bool(json, "bad_now", health->bad[i]);
		jsonmember_u64(json, "episodes", health->episodes[i]);
		if (verdicts[i].bad || health->bad[i]) {
			jsonmember_text(json, "cause", verdicts[i].cause);
			jsonmember_text(json, "remedy", verdicts[i].remedy);
		}
		json_end_object(json);
	}
	json_end_array(json);
}

static double mean(uint64_t sum, uint64_t count)
{
	return or_null(count > 0, (double)sum / (double)(count > 0 ? count : 1));
}

static void put_sampler(struct json_writer *json, const struct overview *overview)
{
	static const struct stats nothing;
	struct verdict verdicts[VERDICT_KINDS];
	struct stats stats = { 0 };
	struct ring_info info;

	ring_info(session_ring(overview->session), &info);
	ring_stats(session_ring(overview->session), &stats);
	stats_verdicts(&stats, &nothing, verdicts);
	jsonmember_object(json, "sampler");
	jsonmember_u64(json, "threads", samplers_count(session_samplers(overview->session)));
	jsonmember_double(json, "capture_percent", 100 * verdicts[VERDICT_CAPTURE_RATE].ratio);
	jsonmember_double(json, "mean_sleep_error_ns", mean(stats.total_sleep_timing_error, stats.total_snapshots));
	jsonmember_double(json, "mean_collection_ns", mean(stats.total_collection_timing_error, stats.total_snapshots));
	jsonmember_u64(json, "interval_ns", stats.collection_rate);
	jsonmember_u64(json, "idle_interval_ns", info.idle_ns);
	jsonmember_u64(json, "saved_looks", stats.saved_looks);
	jsonmember_u64(json, "snapshots", stats.total_snapshots);
	jsonmember_u64(json, "missed_slots", stats.missed_slots);
	jsonmember_u64(json, "backoff_ns", stats.total_backoff_sleep);
	jsonmember_u64(json, "backoff_sleeps", stats.num_backoff_sleeps);
	jsonmember_u64(json, "lost_records", stats.lost_records);
	jsonmember_u64(json, "failed_reads", stats.failed_reads);
	jsonmember_u64(json, "cpu_ns", stats.own_cpu);
	put_verdicts(json, overview->health, verdicts);
	json_end_object(json);
}

static void put_ring(struct json_writer *json, const struct overview *overview, const struct vitals *vitals)
{
	struct ring *ring = session_ring(overview->session);
	struct watcher_counts watched;
	struct ring_info info;

	ring_info(ring, &info);
	watcher_counts(overview->watcher, &watched);
	jsonmember_object(json, "ring");
	jsonmember_text(json, "path", overview->paths->ring);
	jsonmember_u64(json, "size_bytes", info.size_bytes);
	jsonmember_u64(json, "history_ns", vitals->history_ns);
	jsonmember_u64(json, "ticks", info.ticks);
	jsonmember_u64(json, "unjudged_pages", watched.lost_pages);
	jsonmember_u64(json, "damaged_pages", watched.damaged_pages);
	json_end_object(json);
}

static void put_stacks(struct json_writer *json, const struct overview *overview)
{
	struct stackrecorder *recorder = session_stacks(overview->session);
	struct stackrecorder_status status;

	jsonmember_object(json, "stacks");
	jsonmember_bool(json, "recorded", recorder != NULL);
	if (recorder) {
		stackrecorder_status(recorder, &status);
		jsonmember_bool(json, "everybody", status.everybody);
		jsonmember_bool(json, "dwarf", status.dwarf);
		jsonmember_bool(json, "kernel", status.kernel);
		jsonmember_bool(json, "page_faults", status.faults);
		jsonmember_bool(json, "cycles", status.cycles);
		jsonmember_text(json, "limits", status.limits);
		jsonmember_u64(json, "followed_processes", status.followed_processes);
		jsonmember_u64(json, "followed_threads", status.followed_threads);
		jsonmember_u64(json, "not_followed", status.not_followed);
		jsonmember_u64(json, "cpus", status.cpus);
		jsonmember_u64(json, "frequency", status.frequency);
		jsonmember_u64(json, "memory_bytes", status.memory_bytes);
		jsonmember_u64(json, "lost_mappings", status.side_lost);
	}
	if (!session_stacks(overview->session) || *session_stacks_off(overview->session))
		jsonmember_text(json, "why", session_stacks_off(overview->session));
	json_end_object(json);
}

/* ---- what is found, what was kept ---- */

static void put_news(struct json_writer *json, const struct discovery_state *found)
{
	jsonmember_text(json, "source", proclistener_name(found->source));
	if (found->source_why[0])
		jsonmember_text(json, "source_why", found->source_why);
	jsonmember_bool(json, "exit_records", found->exit_totals);
	jsonmember_u64(json, "events", found->events);
	jsonmember_u64(json, "overruns", found->overruns);
	jsonmember_u64(json, "cgroups_heard", found->cgroups_heard);
	jsonmember_u64(json, "looks", found->looks);
	jsonmember_u64(json, "missed", found->missed + found->dropped);
	jsonmember_u64(json, "credited", found->credited);
	jsonmember_u64(json, "late", found->late);
	jsonmember_u64(json, "storms", found->storms);
}

static void put_discovery(struct json_writer *json, const struct overview *overview)
{
	struct discovery_state found;

	discovery_state(session_discovery(overview->session), &found);
	jsonmember_object(json, "discovery");
	jsonmember_u64(json, "targets", found.roster.targets);
	jsonmember_u64(json, "members", found.roster.members);
	jsonmember_u64(json, "processes", found.processes);
	jsonmember_u64(json, "warm", found.roster.processes - found.roster.cold);
	jsonmember_u64(json, "cold", found.roster.cold);
	jsonmember_u64(json, "scans", found.scans);
	jsonmember_u64(json, "last_scan_ns", found.last_scan_ns);
	jsonmember_u64(json, "scan_interval_ns", found.scan_interval_ns);
	jsonmember_u64(json, "unchanged", found.unchanged);
	jsonmember_u64(json, "unreadable", found.unreadable);
	jsonmember_u64(json, "refused", found.roster.refused);
	jsonmember_u64(json, "failed", found.roster.failed);
	if (found.roster.failed)
		jsonmember_text(json, "failed_why", strerror(-found.roster.last_error));
	jsonmember_u64(json, "unlabelled", found.unlabelled);
	if (found.unlabelled)
		jsonmember_text(json, "unlabelled_why", found.unlabelled_why);
	if (found.error)
		jsonmember_text(json, "unfinished_why", strerror(-found.error));
	put_news(json, &found);
	json_end_object(json);
}

static void put_incidents(struct json_writer *json, const struct overview *overview)
{
	struct incidents_counts counts;

	incidents_counts(overview->incidents, &counts);
	jsonmember_object(json, "incidents");
	jsonmember_u64(json, "opened", counts.opened);
	jsonmember_u64(json, "sealed", counts.sealed);
	jsonmember_u64(json, "merged", counts.merged);
	jsonmember_u64(json, "failed", counts.failed);
	jsonmember_u64(json, "refused", counts.refused);
	jsonmember_u64(json, "open", counts.open);
	jsonmember_bool(json, "disk_short", incidents_disk_is_short(overview->incidents));
	jsonmember_bool(json, "memory_unsaved", overview->memofile && memofile_is_failing(overview->memofile));
	json_end_object(json);
}

/* ---- rules ---- */

static void put_thresholds(struct json_writer *json, const struct config_rule *rule)
{
	const struct trigger_rule *trigger = &rule->trigger;

	jsonmember_double(json, "percent", or_null(trigger->has_percent, trigger->percent));
	jsonmember_double(json, "delta_percent", or_null(trigger->has_delta, trigger->delta));
	jsonmember_double(json, "minimum", or_null(trigger->has_minimum, trigger->minimum));
	jsonmember_double(json, "maximum", or_null(trigger->has_maximum, trigger->maximum));
	jsonmember_u64(json, "window_ns", rule->window_ns);
	jsonmember_u64(json, "warmup", trigger->warmup);
	jsonmember_u64(json, "for_ns", trigger->for_ns);
	jsonmember_u64(json, "cooldown_ns", trigger->cooldown_ns);
	jsonmember_u64(json, "count_limit", trigger->count);
}

static void put_decision(struct json_writer *json, const struct trigger_decision *decision)
{
	jsonmember_bool(json, "available", decision->available);
	jsonmember_double(json, "value", or_null(decision->available, decision->value));
	jsonmember_double(json, "average", or_null(decision->has_average, decision->average));
	jsonmember_double(json, "threshold", or_null(decision->has_distance, decision->value + decision->distance));
	jsonmember_double(json, "distance", or_null(decision->has_distance, decision->distance));
	jsonmember_text(json, "reason", trigger_reason_name(decision->reason));
	jsonmember_text(json, "phase", trigger_phase_name(decision->phase));
	jsonmember_bool(json, "candidate", decision->candidate);
	jsonmember_bool(json, "fires", decision->fires);
	jsonmember_u64(json, "pending_ns", decision->pending_ns);
	jsonmember_u64(json, "cooldown_left_ns", decision->cooldown_left_ns);
}

/* Those that were never given are left out. */
static void put_reasons(struct json_writer *json, const uint32_t *reasons)
{
	jsonmember_object(json, "reasons");
	for (enum trigger_reason reason = 0; reason < TRIGGER_REASONS; reason++)
		if (reasons[reason] > 0)
			jsonmember_u64(json, trigger_reason_name(reason), reasons[reason]);
	json_end_object(json);
}

void statusjson_put_rule(struct json_writer *json, const struct evaluator_status *row)
{
	json_begin_object(json);
	jsonmember_text(json, "rule", row->rule->name);
	jsonmember_text(json, "metric", metric_name(row->rule->metric));
	jsonmember_text(json, "of", metric_of_name(row->rule->of));
	jsonmember_text(json, "unit", incident_unit_name(metric_unit(row->rule->metric)));
	if (row->decision)
		put_decision(json, row->decision);
	put_thresholds(json, row->rule);
	jsonmember_u64(json, "fired", row->memory->fired);
	jsonmember_u64(json, "count", row->memory->count);
	jsonmember_double(json, "high_water", or_null(row->memory->fired > 0, row->memory->high_water));
	put_reasons(json, row->reasons);
	json_end_object(json);
}

/* ---- targets ---- */

static void put_container(struct json_writer *json, const char *packed)
{
	struct container container;

	if (!container_unpack(packed, &container))
		return;

	jsonmember_object(json, "container");
	jsonmember_text(json, "runtime", container_runtime_name(container.runtime));
	jsonmember_text(json, "id", container.id);
	jsonmember_text(json, "name", container.name);
	if (container.pod[0] != '\0') {
		jsonmember_text(json, "namespace", container.space);
		jsonmember_text(json, "pod", container.pod);
	}
	jsonmember_text(json, "image", container.image);
	json_end_object(json);
}

static void put_labels(struct json_writer *json, const struct overview *overview, const struct target *target)
{
	struct labels labels;

	if (!target->container || !*target->container ||
	    !labelbook_get(session_labels(overview->session), target->cgroup, &labels))
		return;

	jsonmember_labels(json, "labels", &labels);
	if (labels.left_out > 0)
		jsonmember_u64(json, "labels_left_out", labels.left_out);
}

void statusjson_begin_target(struct json_writer *json, const struct overview *overview, const struct target *target)
{
	json_begin_object(json);
	jsonmember_text(json, "name", target->name);
	jsonmember_text(json, "kind", target_kind_name(target->kind));
	jsonmember_text(json, "entry", target->entry);
	if (target->kind == TARGET_PROCESS)
		jsonmember_u64(json, "pid", (uint64_t)target->pid);
	jsonmember_u64(json, "at_uptime_ns", (uint64_t)mono_diff(overview->now, overview->started));
	put_container(json, target->container);
	put_labels(json, overview, target);
	json_key(json, "rules");
	json_begin_array(json);
}

void statusjson_end_target(struct json_writer *json)
{
	json_end_array(json);
	json_end_object(json);
}

/* ---- the whole ---- */

void statusjson_put_head(struct json_writer *json, const struct overview *overview)
{
	struct vitals vitals;

	vitals_read(session_ring(overview->session), &vitals);
	put_daemon(json, overview, &vitals);
	put_health(json, overview->health);
	put_sampler(json, overview);
	put_ring(json, overview, &vitals);
	put_stacks(json, overview);
	put_discovery(json, overview);
	statusunits_put(json, session_discovery(overview->session));
	put_incidents(json, overview);
}
