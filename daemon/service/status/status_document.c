/*
 * status_document.c: a JSON writer that is kept between the pieces, and a list of the ids that are
 * still to come.
 *
 *                                 ┌─── all were visited ──▶ the nearest ─┐
 *   the head ──▶ nearest? ── yes ─┘                                      ├──▶ the end
 *      │             └────── no ──────────────────────────▶ all ids ─────┘
 *      └── brief ──────────────────────────────────────────────────────────▶
 *
 * The list has ids and not places in the evaluator, which are reused; an id that is unknown at its
 * turn has ended. The configuration, and the rules with it, may be replaced between two pieces:
 * only numbers are kept from one to the next. Everything is read in the main thread.
 *
 * A row is begun only if the longest possible one fits: whole rules are left out, and the document
 * is valid in every case.
 *
 * Rejected: a copy of everything at the beginning. It would be of one moment, but take 4 KB for
 * each target and stop the loop for milliseconds.
 */
#include "daemon/service/status/status_document.h"

#include "daemon/engine/base/foreign.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/paths.h"
#include "daemon/engine/dispatch/dispatcher.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/incident/notify.h"
#include "daemon/engine/kernel/kernel_accounts.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/engine/targets/process_events.h"
#include "daemon/engine/targets/unit_bus.h"
#include "daemon/service/health/health.h"
#include "daemon/service/minutes/minute_log.h"
#include "lib/base/json.h"
#include "lib/config/config.h"
#include "lib/config/selection.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"
#include "lib/source/source.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Units in each list; further ones are only counted. */
#define STATUS_UNITS_MAX 256u

/* Size of the document; rules on targets beyond it are left out and counted. */
#define STATUS_ANSWER_MAX (64u << 20)

#define STATUS_ANSWER_LOOKS 256

/* ---- units: visited under discovery's lock, and written to memory ---- */

struct units {
	struct json_writer *json;
	unsigned count;
};

static void put_missing(void *ctx, const char *name, const char *why)
{
	struct units *units = ctx;

	if (units->count++ >= STATUS_UNITS_MAX)
		return;
	json_begin_object(units->json);
	json_member_text(units->json, "name", name);
	json_member_text(units->json, "why", why);
	json_end_object(units->json);
}

static void put_unit(void *ctx, const struct unit_report *unit)
{
	const struct unit_facts *facts = &unit->facts;
	struct units *units = ctx;
	struct json_writer *json = units->json;

	if (units->count++ >= STATUS_UNITS_MAX)
		return;
	json_begin_object(json);
	json_member_text(json, "name", unit->name);
	json_member_text(json, "cgroup", unit->cgroup);
	json_member_text(json, "state", facts->active_state);
	json_member_text(json, "sub_state", facts->sub_state);
	json_member_text(json, "invocation_id", facts->invocation_id);
	if (facts->has_main_pid)
		json_member_u64(json, "main_pid", facts->main_pid);
	if (facts->has_restarts)
		json_member_u64(json, "restarts", facts->restarts);
	if (facts->started_ns)
		json_member_u64(json, "started_monotonic_ns", facts->started_ns);
	json_end_object(json);
}

static void put_unit_list(struct json_writer *json, struct discovery *discovery, const char *key, bool missing)
{
	struct units units = { .json = json };
	const struct unit_visitor visitor = {
		.unit = missing ? NULL : put_unit,
		.missing = missing ? put_missing : NULL,
		.ctx = &units,
	};

	json_member_array(json, key);
	discovery_visit_units(discovery, &visitor);
	json_end_array(json);
}

/* Writes the member "units" into the object that is open. */
static void put_units(struct json_writer *json, struct discovery *discovery)
{
	struct discovery_state found;

	discovery_state(discovery, &found);
	json_member_object(json, "units");
	json_member_bool(json, "wanted", found.units_wanted);
	json_member_text(json, "source", found.units.connected ? "systemd" : "cgroups");
	json_member_text(json, "why", found.units.why);
	json_member_u64(json, "known", found.units.units);
	json_member_u64(json, "left_out", found.units.left_out);
	json_member_u64(json, "restarts", found.units.restarts);
	json_member_u64(json, "connects", found.units.connects);
	json_member_u64(json, "signals", found.units.signals);
	json_member_u64(json, "asked", found.units.asked);
	json_member_u64(json, "delays", found.units.delays);
	put_unit_list(json, discovery, "missing", true);
	put_unit_list(json, discovery, "list", false);
	json_end_object(json);
}

/* ---- the head ---- */

/* The JSON writer makes null of NAN: not known, not configured. */
static double or_null(bool has, double value)
{
	return has ? value : NAN;
}

static void put_lacks(struct json_writer *json, const struct privileges *privileges)
{
	json_member_array(json, "lacks");
	for (size_t i = 0; i < privileges->count; i++) {
		json_begin_object(json);
		json_member_text(json, "needs", privileges->lacks[i].needs);
		json_member_text(json, "off", privileges->lacks[i].off);
		json_end_object(json);
	}
	json_end_array(json);
}

static void put_daemon(struct json_writer *json, const struct overview *overview, const struct vitals *vitals)
{
	struct samplers_state samplers = samplers_state(session_parts(overview->session).samplers);

	json_member_object(json, "daemon");
	json_member_text(json, "version", SPIKEWATCH_VERSION);
	json_member_u64(json, "pid", (uint64_t)getpid());
	json_member_u64(json, "uptime_ns", (uint64_t)mono_diff(overview->now, overview->started));
	json_member_u64(json, "interval_ns", overview->config->sampling.interval_ns);
	json_member_u64(json, "slowdown", samplers.slowdown);
	json_member_double(
		json, "backing_off_ns",
		or_null(samplers.back_off_since.ns != 0, (double)mono_diff(overview->now, samplers.back_off_since)));
	json_member_double(json, "cpu_percent", 100 * samplers.cpu_share);
	json_member_u64(json, "memory_bytes", vitals->resident_bytes);
	json_member_u64(json, "open_fds", vitals->open_fds);
	json_member_text(json, "incident_directory", overview->paths->incidents);
	put_lacks(json, overview->privileges);
	json_end_object(json);
}

static void put_jumps(struct json_writer *json, const char *key, const struct health_jumps *jumps)
{
	json_member_object(json, key);
	json_member_u64(json, "times", jumps->times);
	json_member_double(json, "last_ns", or_null(jumps->times > 0, (double)jumps->last_ns));
	json_end_object(json);
}

static void put_health(struct json_writer *json, const struct health *health)
{
	struct foreign_counts foreign = foreign_counts();

	json_member_object(json, "health");
	put_jumps(json, "clock_steps", &health->steps);
	put_jumps(json, "suspends", &health->suspends);
	json_member_u64(json, "lost_log_entries", log_lost());
	json_member_u64(json, "readers_left_behind", foreign.left);
	json_member_u64(json, "unanswered_reads", foreign.hung);
	json_member_u64(json, "refused_reads", foreign.refused);
	json_member_array(json, "silent_threads");
	for (size_t i = 0; i < health->thread_count; i++) {
		if (health->threads[i].silent_ns == 0)
			continue;
		json_begin_object(json);
		json_member_text(json, "thread", health->threads[i].name);
		json_member_u64(json, "silent_ns", health->threads[i].silent_ns);
		if (health->reading && strcmp(health->threads[i].name, "discovery") == 0)
			json_member_u64(json, "pid", (uint64_t)health->reading);
		json_end_object(json);
	}
	json_end_array(json);
	json_end_object(json);
}

static void put_verdicts(struct json_writer *json, const struct health *health, const struct verdict *verdicts)
{
	json_member_array(json, "verdicts");
	for (int i = 0; i < VERDICT_KINDS; i++) {
		json_begin_object(json);
		json_member_text(json, "what", verdicts[i].what);
		json_member_double(json, "ratio", verdicts[i].ratio);
		json_member_double(json, "threshold", verdicts[i].threshold);
		json_member_bool(json, "bad", verdicts[i].bad);
		json_member_bool(json, "bad_now", health->bad[i]);
		json_member_u64(json, "episodes", health->episodes[i]);
		if (verdicts[i].bad || health->bad[i]) {
			json_member_text(json, "cause", verdicts[i].cause);
			json_member_u64(json, "cause_ns", verdicts[i].cause_ns);
			json_member_text(json, "remedy", verdicts[i].remedy);
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
	struct samplers_state state = samplers_state(session_parts(overview->session).samplers);

	ring_info(session_parts(overview->session).ring, &info);
	ring_stats(session_parts(overview->session).ring, &stats);
	stats_verdicts(&stats, &nothing, verdicts);
	json_member_object(json, "sampler");
	json_member_u64(json, "threads", state.threads);
	json_member_double(json, "capture_percent", 100 * verdicts[VERDICT_CAPTURE_RATE].ratio);
	json_member_double(json, "mean_sleep_error_ns", mean(stats.total_sleep_timing_error, stats_woken(&stats)));
	json_member_double(json, "mean_collection_ns",
			   mean(stats.total_collection_timing_error, stats.total_snapshots));
	json_member_u64(json, "interval_ns", stats.collection_rate);
	json_member_u64(json, "idle_interval_ns", info.idle_ns);
	json_member_u64(json, "saved_looks", stats.saved_looks);
	json_member_u64(json, "snapshots", stats.total_snapshots);
	json_member_u64(json, "past_snapshots", stats.past_snapshots);
	json_member_u64(json, "missed_slots", stats.missed_slots);
	json_member_u64(json, "backoff_ns", stats.total_backoff_sleep);
	json_member_u64(json, "backoff_sleeps", stats.num_backoff_sleeps);
	json_member_u64(json, "lost_records", stats.lost_records);
	json_member_u64(json, "failed_reads", stats.failed_reads);
	json_member_u64(json, "cpu_ns", stats.own_cpu);
	json_member_text(json, "scheduling", scheduling_class_name(state.class));
	json_member_text(json, "scheduling_why", scheduling_reason_text(state.reason));
	json_member_u64(json, "run_delay_ns", stats.run_delay);
	json_member_u64(json, "starved_ns", stats.starved);
	json_member_u64(json, "stopped_ns", stats.stopped);
	json_member_u64(json, "throttled_ns", stats.throttled);
	json_member_u64(json, "stolen_ns", stats.stolen);
	put_verdicts(json, overview->health, verdicts);
	json_end_object(json);
}

static uint64_t fine_rules(const struct config *config)
{
	uint64_t count = 0;

	for (size_t i = 0; i < config->rule_count; i++)
		count += config->rules[i].is_fine;
	return count;
}

static void put_source(struct json_writer *json, const struct overview *overview)
{
	static const char *const wanted[] = { "auto", "kernel", "files" };
	struct session_parts parts = session_parts(overview->session);
	struct kernel_accounts_state state = { .on = false };

	snprintf(state.reason, sizeof state.reason, "%s", parts.accounts_off);
	if (parts.accounts)
		kernel_accounts_state(parts.accounts, &state);
	json_member_object(json, "cpu_time");
	json_member_text(json, "wanted", wanted[overview->config->sampling.source]);
	json_member_text(json, "source", state.on ? "kernel" : "files");
	json_member_text(json, "why", state.reason);
	json_member_u64(json, "coarse_rules", state.on ? 0 : fine_rules(overview->config));
	if (parts.accounts) {
		json_member_u64(json, "watched", state.watched);
		json_member_u64(json, "capacity", state.capacity);
		json_member_u64(json, "refused", state.refused);
		json_member_u64(json, "missed_runs", state.missed);
		json_member_u64(json, "lost_events", state.lost);
		json_member_u64(json, "compared", state.compared);
		json_member_u64(json, "corrected", state.corrected);
		json_member_u64(json, "detached", state.detached);
		json_member_u64(json, "switches_per_second", state.switches_per_s);
		json_member_u64(json, "cgroups", state.groups);
		json_member_u64(json, "cgroups_capacity", state.group_capacity);
		json_member_u64(json, "cgroups_refused", state.groups_refused);
		json_member_u64(json, "cgroups_compared", state.groups_compared);
		json_member_u64(json, "cgroups_corrected", state.groups_corrected);
		json_member_u64(json, "cgroups_given_up", state.groups_given_up);
	}
	json_end_object(json);
}

static void put_ring(struct json_writer *json, const struct overview *overview, const struct vitals *vitals)
{
	struct ring *ring = session_parts(overview->session).ring;
	struct dispatcher_counts watched;
	struct ring_info info;

	ring_info(ring, &info);
	dispatcher_counts(overview->dispatcher, &watched);
	json_member_object(json, "ring");
	json_member_text(json, "path", overview->paths->ring);
	json_member_u64(json, "size_bytes", info.size_bytes);
	json_member_u64(json, "history_ns", vitals->history_ns);
	json_member_u64(json, "ticks", info.ticks);
	json_member_u64(json, "unjudged_pages", watched.lost_pages);
	json_member_u64(json, "damaged_pages", watched.damaged_pages);
	json_end_object(json);
}

static void put_stacks(struct json_writer *json, const struct overview *overview)
{
	struct stack_recorder *recorder = session_parts(overview->session).stacks;
	struct stack_recorder_status status;

	json_member_object(json, "stacks");
	json_member_bool(json, "recorded", recorder != NULL);
	if (recorder) {
		stack_recorder_status(recorder, &status);
		json_member_bool(json, "everybody", status.system_wide);
		json_member_bool(json, "dwarf", status.dwarf);
		json_member_bool(json, "kernel", status.kernel);
		json_member_bool(json, "page_faults", status.faults);
		json_member_bool(json, "cycles", status.cycles);
		json_member_text(json, "limits", status.limits);
		json_member_u64(json, "followed_processes", status.followed_processes);
		json_member_u64(json, "followed_threads", status.followed_threads);
		json_member_u64(json, "not_followed", status.not_followed);
		json_member_u64(json, "cpus", status.cpus);
		json_member_u64(json, "frequency", status.frequency);
		json_member_u64(json, "memory_bytes", status.memory_bytes);
		json_member_u64(json, "lost_mappings", status.side_lost + status.history.dropped);
		json_member_u64(json, "mappings_bytes", status.history.bytes);
		json_member_u64(json, "forgotten_processes", status.history.evicted);
	}
	if (!session_parts(overview->session).stacks || *session_parts(overview->session).stacks_off)
		json_member_text(json, "why", session_parts(overview->session).stacks_off);
	json_end_object(json);
}

static void put_process_events(struct json_writer *json, const struct discovery_state *found)
{
	static const char *const sources[] = {
		[PROCESS_EVENTS_NONE] = "rescan",
		[PROCESS_EVENTS_CONNECTOR] = "connector",
		[PROCESS_EVENTS_PERF] = "perf",
		[PROCESS_EVENTS_KERNEL] = "kernel",
	};

	json_member_text(json, "source", sources[found->source]);
	if (found->source_why[0])
		json_member_text(json, "source_why", found->source_why);
	json_member_bool(json, "exit_records", found->exit_totals);
	json_member_u64(json, "events", found->events);
	json_member_u64(json, "overruns", found->overruns);
	json_member_u64(json, "cgroups_heard", found->cgroups_heard);
	json_member_u64(json, "looks", found->looks);
	json_member_u64(json, "missed", found->missed + found->dropped);
	json_member_u64(json, "credited", found->credited);
	json_member_u64(json, "late", found->late);
	json_member_u64(json, "storms", found->storms);
}

static void put_unmatched(struct json_writer *json, const struct target_table_counts *counts, mono_t now)
{
	json_member_u64(json, "unmatched_entries", counts->unmatched_entries);
	json_member_array(json, "unmatched");
	for (size_t i = 0; i < counts->unmatched_entries && i < TARGET_TABLE_UNMATCHED_MAX; i++) {
		int64_t since_ns = mono_diff(now, counts->unmatched[i].since);

		json_begin_object(json);
		json_member_text(json, "entry", counts->unmatched[i].entry);
		json_member_u64(json, "since_ns", since_ns > 0 ? (uint64_t)since_ns : 0);
		json_end_object(json);
	}
	json_end_array(json);
}

static void put_discovery(struct json_writer *json, const struct overview *overview)
{
	struct discovery_state found;

	discovery_state(session_parts(overview->session).discovery, &found);
	json_member_object(json, "discovery");
	json_member_u64(json, "targets", found.target_table.targets);
	json_member_u64(json, "members", found.target_table.members);
	json_member_u64(json, "processes", found.processes);
	json_member_u64(json, "warm", found.target_table.processes - found.target_table.cold);
	json_member_u64(json, "cold", found.target_table.cold);
	json_member_u64(json, "scans", found.scans);
	json_member_u64(json, "last_scan_ns", found.last_scan_ns);
	json_member_u64(json, "scan_interval_ns", found.scan_interval_ns);
	json_member_u64(json, "unchanged", found.unchanged);
	json_member_u64(json, "unreadable", found.unreadable);
	json_member_u64(json, "refused", found.target_table.refused);
	json_member_u64(json, "failed", found.target_table.failed);
	if (found.target_table.failed)
		json_member_text(json, "failed_why", strerror(-found.target_table.last_error));
	json_member_u64(json, "unlabelled", found.unlabelled);
	if (found.unlabelled)
		json_member_text(json, "unlabelled_why", found.unlabelled_why);
	if (found.error)
		json_member_text(json, "unfinished_why", strerror(-found.error));
	put_unmatched(json, &found.target_table, overview->now);
	put_process_events(json, &found);
	json_end_object(json);
}

/* Of `spikewatch history`. */
static void put_history(struct json_writer *json, const struct overview *overview)
{
	struct minute_log_state state;

	if (!overview->minute_log)
		return;
	minute_log_state(overview->minute_log, &state);
	json_member_object(json, "history");
	json_member_bool(json, "enabled", state.enabled);
	json_member_text(json, "directory", overview->paths->history);
	json_member_u64(json, "bytes", state.bytes);
	json_member_u64(json, "files", state.files);
	json_member_u64(json, "written", state.written);
	json_member_u64(json, "waiting", state.waiting);
	json_member_u64(json, "lost", state.lost);
	json_member_u64(json, "torn_bytes", state.torn_bytes);
	json_member_u64(json, "removed", state.removed);
	if (state.error)
		json_member_text(json, "why", strerror(-state.error));
	json_end_object(json);
}

static void put_storm(struct json_writer *json, const struct incidents_counts *counts, mono_t now)
{
	json_member_object(json, "storm");
	json_member_u64(json, "firings", counts->storm_firings);
	json_member_u64(json, "rules_and_targets", counts->storm_rows);
	if (counts->storm_firings)
		json_member_i64(json, "since_ns", mono_diff(now, counts->storm_since));
	json_end_object(json);
}

/* What became of the notifications of each entry. */
static void put_notify(struct json_writer *json, const struct config *config, struct notifier *notifier)
{
	json_member_array(json, "notify");
	for (size_t i = 0; i < config->notify_count; i++) {
		struct notify_counts counts;

		notifier_counts(notifier, config->notifies[i].name, &counts);
		json_begin_object(json);
		json_member_text(json, "name", config->notifies[i].name);
		json_member_u64(json, "sent", counts.sent);
		json_member_u64(json, "retried", counts.retried);
		json_member_u64(json, "failed", counts.failed);
		json_member_u64(json, "limited", counts.limited);
		json_member_u64(json, "dropped", counts.dropped);
		json_member_u64(json, "pending", counts.pending);
		json_member_bool(json, "failing", counts.failing);
		json_member_text(json, "why", counts.why);
		json_end_object(json);
	}
	json_end_array(json);
}

static void put_incidents(struct json_writer *json, const struct overview *overview)
{
	struct incidents_counts counts;

	incidents_counts(overview->incidents, &counts);
	json_member_object(json, "incidents");
	json_member_u64(json, "opened", counts.opened);
	json_member_u64(json, "sealed", counts.sealed);
	json_member_u64(json, "merged", counts.merged);
	json_member_u64(json, "failed", counts.failed);
	json_member_u64(json, "refused", counts.refused);
	json_member_u64(json, "open", counts.open);
	json_member_u64(json, "pending", counts.pending);
	json_member_u64(json, "captures_unsaved", counts.captures_unsaved);
	json_member_u64(json, "captures_unsaved_bytes", counts.captures_unsaved_bytes);
	put_storm(json, &counts, overview->now);
	put_notify(json, overview->config, counts.notifier);
	json_member_bool(json, "disk_short", incidents_disk_is_short(overview->incidents));
	json_member_bool(json, "memory_unsaved", overview->state_file && state_file_is_failing(overview->state_file));
	json_end_object(json);
}

/* ---- rules and targets ---- */

static void put_thresholds(struct json_writer *json, const struct config_rule *rule)
{
	const struct trigger_rule *trigger = &rule->trigger;

	json_member_double(json, "percent", or_null(trigger->has_percent, trigger->percent));
	json_member_double(json, "delta_percent", or_null(trigger->has_delta, trigger->delta));
	json_member_text(json, "usual", trigger_usual_name(trigger->usual));
	json_member_double(json, "minimum", or_null(trigger->has_minimum, trigger->minimum));
	json_member_double(json, "maximum", or_null(trigger->has_maximum, trigger->maximum));
	json_member_u64(json, "window_ns", rule->window_ns);
	json_member_u64(json, "warmup", trigger->warmup);
	json_member_u64(json, "for_ns", trigger->for_ns);
	json_member_u64(json, "cooldown_ns", trigger->cooldown_ns);
	json_member_u64(json, "count_limit", trigger->count);
}

static void put_decision(struct json_writer *json, const struct trigger_decision *decision)
{
	json_member_bool(json, "available", decision->available);
	json_member_double(json, "value", or_null(decision->available, decision->value));
	json_member_double(json, "average", or_null(decision->has_average, decision->average));
	json_member_double(json, "threshold", or_null(decision->has_distance, decision->value + decision->distance));
	json_member_double(json, "distance", or_null(decision->has_distance, decision->distance));
	json_member_text(json, "reason", trigger_reason_name(decision->reason));
	json_member_text(json, "phase", trigger_phase_name(decision->phase));
	json_member_bool(json, "candidate", decision->candidate);
	json_member_bool(json, "fires", decision->fires);
	json_member_u64(json, "pending_ns", decision->pending_ns);
	json_member_u64(json, "cooldown_left_ns", decision->cooldown_left_ns);
}

/* Reasons that never occurred are left out. */
static void put_reasons(struct json_writer *json, const uint32_t *reasons)
{
	json_member_object(json, "reasons");
	for (enum trigger_reason reason = 0; reason < TRIGGER_REASONS; reason++)
		if (reasons[reason] > 0)
			json_member_u64(json, trigger_reason_name(reason), reasons[reason]);
	json_end_object(json);
}

/* The last one that no window caught; nothing if there was none. */
static void put_burst(struct json_writer *json, const struct evaluator_status *row, mono_t now)
{
	const struct trigger_burst *burst = &row->burst;
	int64_t ago_ns = mono_diff(now, burst->end);

	if (burst->length_ns == 0)
		return;

	json_member_object(json, "burst");
	json_member_u64(json, "ended_ago_ns", ago_ns > 0 ? (uint64_t)ago_ns : 0);
	json_member_u64(json, "length_ns", burst->length_ns);
	json_member_double(json, "value", burst->value);
	json_member_double(json, "best_window", burst->best);
	json_member_text(json, "why", burst->badly_placed ? "badly-placed" : "too-short");
	json_end_object(json);
}

static void put_rule(struct json_writer *json, const struct evaluator_status *row, mono_t now)
{
	json_begin_object(json);
	json_member_text(json, "rule", row->rule->name);
	json_member_text(json, "metric", metric_name(row->rule->metric));
	json_member_text(json, "of", metric_of_name(row->rule->of));
	json_member_text(json, "unit", units_name(metric_unit(row->rule->metric)));
	if (row->decision)
		put_decision(json, row->decision);
	put_thresholds(json, row->rule);
	put_burst(json, row, now);
	json_member_u64(json, "fired", row->memory->fired);
	json_member_u64(json, "count", row->memory->count);
	json_member_double(json, "high_water", or_null(row->memory->fired > 0, row->memory->high_water));
	put_reasons(json, row->reasons);
	json_end_object(json);
}

static void put_container(struct json_writer *json, const char *packed)
{
	struct container container;

	if (!container_unpack(packed, &container))
		return;

	json_member_object(json, "container");
	json_member_text(json, "runtime", container_runtime_name(container.runtime));
	json_member_text(json, "id", container.id);
	json_member_text(json, "name", container.name);
	if (container.pod[0] != '\0') {
		json_member_text(json, "namespace", container.space);
		json_member_text(json, "pod", container.pod);
	}
	json_member_text(json, "image", container.image);
	json_end_object(json);
}

static void put_labels(struct json_writer *json, const struct overview *overview, const struct target *target)
{
	struct labels labels;

	if (!target->container || !*target->container ||
	    !label_cache_get(session_parts(overview->session).labels, target->cgroup, &labels))
		return;

	labels_json(json, "labels", &labels);
	if (labels.left_out > 0)
		json_member_u64(json, "labels_left_out", labels.left_out);
}

#define PIDS_SHOWN 256u

/* Of a group, if it was asked for: other documents would be full of them. */
static void put_pids(struct json_writer *json, const struct overview *overview, const struct target *target)
{
	int32_t pids[PIDS_SHOWN];
	size_t count = discovery_pids(session_parts(overview->session).discovery, target->id, pids, PIDS_SHOWN);

	json_member_array(json, "pids");
	for (size_t i = 0; i < count; i++)
		json_u64(json, (uint64_t)pids[i]);
	json_end_array(json);
}

/* The object of a target, up to the array of its rules. */
static void begin_target(struct json_writer *json, const struct overview *overview, const struct evaluator_status *row,
			 bool asked_for)
{
	const struct target *target = row->target;

	json_begin_object(json);
	json_member_text(json, "name", target->name);
	json_member_text(json, "kind", target_kind_name(target->kind));
	json_member_text(json, "entry", target->entry);
	if (target->kind == TARGET_PROCESS)
		json_member_u64(json, "pid", (uint64_t)target->pid);
	if (target->kind == TARGET_GROUP && asked_for)
		put_pids(json, overview, target);
	json_member_u64(json, "at_uptime_ns", (uint64_t)mono_diff(overview->now, overview->started));
	if (row->sample && sample_has(row->sample, SAMPLE_CPU_ESTIMATED))
		json_member_u64(json, "cpu_estimated", row->sample->value[SAMPLE_CPU_ESTIMATED]);
	put_container(json, target->container);
	put_labels(json, overview, target);
	json_member_array(json, "rules");
}

/* ---- the answer ---- */

/*
 * More than a target, a rule on it, the end of the document and the writer's buffer take together.
 */
#define ROW_MAX (64u << 10)

enum answer_phase { ANSWER_HEAD, ANSWER_PICKING, ANSWER_TARGETS, ANSWER_END };

/* A rule on a target that is among the nearest to firing so far. */
struct pick {
	double nearness;
	size_t place;  /* of the target in the list */
	uint32_t pair; /* index of the rule on it */
};

struct status_answer {
	struct status_answer_options options;
	struct status_query_line asked;
	struct json_writer *json;
	struct buffer *out; /* of the piece that is being made; NULL between pieces */
	uint64_t written;   /* bytes, of all pieces */
	int error;          /* of writing; sticky */
	enum answer_phase phase;
	uint32_t *ids;
	size_t id_count;
	struct pick *picks; /* while picking nearest first, then in the order of the list; NULL: all are wanted */
	size_t pick_count;
	size_t at; /* the next place in the list, or among the picks */
	uint64_t farther, left_out;
};

/* One target's turn. */
struct turn {
	struct status_answer *answer;
	const struct overview *overview;
	size_t place;
	uint32_t pair;            /* of the rule that is looked at */
	const struct pick *picks; /* of this target; NULL: all its rules are wanted */
	size_t pick_count;
	bool begun;
};

static int write_piece(void *ctx, const void *data, size_t len)
{
	struct status_answer *answer = ctx;

	answer->written += len;
	if (answer->out && answer->error == 0)
		answer->error = buffer_append(answer->out, data, len);

	return answer->error;
}

static bool is_wanted(const struct status_answer *answer, const struct evaluator_status *row)
{
	return status_query_wants(&answer->asked.query, row->target->name, row->target->entry, row->rule->name);
}

/* ---- the nearest ---- */

/* The distance to firing as a part of the threshold: what `spikewatch status` sorts by. */
static double nearness_of(const struct trigger_decision *decision)
{
	double threshold, nearness;

	if (!decision || !decision->has_distance)
		return INFINITY;

	threshold = decision->value + decision->distance;
	nearness = threshold > 0 ? decision->distance / threshold : decision->distance;

	return isfinite(nearness) ? nearness : INFINITY;
}

/*
 * Of equally near ones the first is kept. A row that is not among the nearest costs one comparison.
 */
static void pick_nearest(struct status_answer *answer, const struct pick *candidate)
{
	size_t max = answer->asked.query.nearest, at = answer->pick_count;

	if (at == max) {
		answer->farther++;
		if (answer->picks[--at].nearness <= candidate->nearness)
			return;
	} else {
		answer->pick_count++;
	}
	for (; at > 0 && answer->picks[at - 1].nearness > candidate->nearness; at--)
		answer->picks[at] = answer->picks[at - 1];
	answer->picks[at] = *candidate;
}

static int look_at_rule(void *ctx, const struct evaluator_status *row)
{
	struct turn *turn = ctx;
	struct pick candidate = { nearness_of(row->decision), turn->place, turn->pair++ };

	if (is_wanted(turn->answer, row))
		pick_nearest(turn->answer, &candidate);

	return 0;
}

static int by_place(const void *a, const void *b)
{
	const struct pick *left = a, *right = b;

	if (left->place != right->place)
		return left->place < right->place ? -1 : 1;

	return left->pair < right->pair ? -1 : left->pair > right->pair;
}

static bool is_picked(const struct turn *turn, uint32_t pair)
{
	for (size_t i = 0; i < turn->pick_count; i++)
		if (turn->picks[i].pair == pair)
			return true;

	return turn->picks == NULL;
}

/* ---- pieces ---- */

static bool has_room(const struct status_answer *answer)
{
	const struct buffer *out = answer->out;

	return answer->written + ROW_MAX <= answer->options.max_bytes &&
	       (out->max == 0 || out->len + ROW_MAX <= out->max);
}

static int show_rule(void *ctx, const struct evaluator_status *row)
{
	struct turn *turn = ctx;
	struct status_answer *answer = turn->answer;

	if (!is_picked(turn, turn->pair++) || !is_wanted(answer, row))
		return 0;
	if (!has_room(answer)) {
		answer->left_out++;
		return 0;
	}

	if (!turn->begun)
		begin_target(answer->json, turn->overview, row, answer->asked.query.target != NULL);
	turn->begun = true;
	put_rule(answer->json, row, turn->overview->now);

	return 0;
}

static void put_head(struct status_answer *answer, const struct overview *overview)
{
	struct json_writer *json = answer->json;
	struct vitals vitals;

	vitals_read(session_parts(overview->session).ring, &vitals);
	json_begin_object(json);
	put_daemon(json, overview, &vitals);
	put_health(json, overview->health);
	put_sampler(json, overview);
	put_source(json, overview);
	put_ring(json, overview, &vitals);
	put_stacks(json, overview);
	put_discovery(json, overview);
	put_units(json, session_parts(overview->session).discovery);
	put_incidents(json, overview);
	put_history(json, overview);
	answer->phase = ANSWER_END;
	if (answer->asked.query.brief)
		return;

	json_member_array(json, "targets");
	answer->phase = answer->picks && answer->id_count > 0 ? ANSWER_PICKING : ANSWER_TARGETS;
}

static void visit_target(struct turn *turn, int (*visitor)(void *ctx, const struct evaluator_status *row))
{
	uint32_t id = turn->answer->ids[turn->place];

	evaluator_visit_one(turn->overview->evaluator, id, visitor, turn);
	if (!turn->begun)
		return;
	json_end_array(turn->answer->json);
	json_end_object(turn->answer->json);
}

static void look_at_next(struct status_answer *answer, const struct overview *overview)
{
	visit_target(&(struct turn){ .answer = answer, .overview = overview, .place = answer->at++ }, look_at_rule);
	if (answer->at < answer->id_count)
		return;

	qsort(answer->picks, answer->pick_count, sizeof(*answer->picks), by_place);
	answer->phase = ANSWER_TARGETS;
	answer->at = 0;
}

/* All picks of one target at once. */
static void show_next_picked(struct status_answer *answer, const struct overview *overview)
{
	const struct pick *picks = &answer->picks[answer->at];
	struct turn turn = { .answer = answer, .overview = overview, .place = picks->place, .picks = picks };

	while (answer->at < answer->pick_count && answer->picks[answer->at].place == turn.place) {
		answer->at++;
		turn.pick_count++;
	}
	visit_target(&turn, show_rule);
}

static void show_next(struct status_answer *answer, const struct overview *overview)
{
	if (answer->at == (answer->picks ? answer->pick_count : answer->id_count))
		answer->phase = ANSWER_END;
	else if (answer->picks)
		show_next_picked(answer, overview);
	else
		visit_target(&(struct turn){ .answer = answer, .overview = overview, .place = answer->at++ },
			     show_rule);
}

/* Some of the targets. */
static void put_piece(struct status_answer *answer, const struct overview *overview)
{
	const struct clock *clock = &answer->options.clock;
	mono_t until = mono_add(clock_mono(clock), STATUS_ANSWER_PIECE_NS);
	size_t end = answer->out->len + STATUS_ANSWER_PIECE;

	for (int i = 0; i < STATUS_ANSWER_LOOKS && answer->phase != ANSWER_END && answer->out->len < end; i++) {
		if (i > 0 && mono_diff(clock_mono(clock), until) >= 0)
			break;
		if (answer->phase == ANSWER_PICKING)
			look_at_next(answer, overview);
		else
			show_next(answer, overview);
	}
	if (answer->phase != ANSWER_END)
		return;

	json_end_array(answer->json);
	json_member_u64(answer->json, "farther", answer->farther);
	json_member_u64(answer->json, "left_out", answer->left_out);
}

static int end_document(struct status_answer *answer)
{
	struct json_writer *json = TAKE(answer->json);

	json_end_object(json);

	return json_writer_close(json);
}

int status_answer_more(struct status_answer *answer, struct buffer *ret)
{
	struct overview overview;
	int r = 1;

	answer->options.overview(answer->options.ctx, &overview);
	answer->out = ret;
	if (answer->phase == ANSWER_HEAD)
		put_head(answer, &overview);
	else
		put_piece(answer, &overview);
	if (answer->phase == ANSWER_END)
		r = end_document(answer);
	answer->out = NULL;

	return answer->error < 0 ? answer->error : r;
}

/* Counts the ids and, if there is room, keeps them. */
static int list_id(void *ctx, const struct evaluator_sight *sight)
{
	struct status_answer *answer = ctx;

	if (answer->ids)
		answer->ids[answer->id_count] = sight->target->id;
	answer->id_count++;

	return 0;
}

/* All memory that does not depend on what is written. */
static int prepare(struct status_answer *answer)
{
	uint64_t nearest = answer->asked.query.nearest;
	struct overview overview;

	answer->options.overview(answer->options.ctx, &overview);
	evaluator_visit_targets(overview.evaluator, list_id, answer);
	answer->ids = calloc(answer->id_count + 1, sizeof(*answer->ids));
	if (!answer->ids)
		return -ENOMEM;

	answer->id_count = 0;
	evaluator_visit_targets(overview.evaluator, list_id, answer);
	answer->picks = nearest ? calloc(nearest, sizeof(*answer->picks)) : NULL;
	if (nearest && !answer->picks)
		return -ENOMEM;

	return json_writer_new((struct sink){ write_piece, answer }, false, &answer->json);
}

int status_answer_new(const struct status_answer_options *options, const char *words, struct status_answer **ret)
{
	AUTO(status_answer_freep) struct status_answer *answer = calloc(1, sizeof(*answer));
	int r;

	if (!answer)
		return -ENOMEM;

	answer->options = *options;
	if (answer->options.max_bytes == 0)
		answer->options.max_bytes = STATUS_ANSWER_MAX;
	r = status_query_parse(words, &answer->asked);
	if (r == 0)
		r = prepare(answer);
	if (r < 0)
		return r;

	*ret = TAKE(answer);
	return 0;
}

void status_answer_free(struct status_answer *answer)
{
	if (!answer)
		return;

	json_writer_close(answer->json);
	free(answer->picks);
	free(answer->ids);
	free(answer);
}
