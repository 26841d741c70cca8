/* description.c: a value is filled in from what is at hand: nothing here waits, but for a scan that holds the roster's lock. */
#include "description.h"

#include "metrictext.h"
#include "procread.h"

#include <string.h>
#include <sys/utsname.h>

static void describe_machine(const struct description *description, struct incident *info)
{
	struct utsname name;
	char boot_id[64];
	ssize_t len = procread_file(session_procfd(description->session), 0, "sys/kernel/random/boot_id", boot_id,
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

static void describe_rule(const struct description *description, const struct evaluator_firing *firing,
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
	if (memo_get(description->memo, configured->name, firing->target->key, &memory)) {
		rule->fired = memory.fired;
		rule->count = memory.count;
	}
}

static void describe_cost(const struct description *description, mono_t now, struct incident_cost *cost)
{
	struct ring_info ring;
	struct stats stats;
	int64_t run;

	if (ring_stats(session_ring(description->session), &stats) < 0 || stats.total_snapshots == 0)
		return;

	run = mono_diff(now, (mono_t){ stats.cheap_start_nanos });
	ring_info(session_ring(description->session), &ring);
	cost->interval_ns = stats.collection_rate;
	cost->idle_ns = ring.idle_ns;
	cost->cpu_percent = run > 0 ? 100 * (double)stats.own_cpu / (double)run : 0;
	cost->mean_sleep_error_ns = stats.total_sleep_timing_error / stats.total_snapshots;
	cost->mean_collection_ns = stats.total_collection_timing_error / stats.total_snapshots;
	cost->missed_slots = stats.missed_slots;
}

/* Of a group there is none: its processes may be of many. */
static void describe_unit(const struct description *description, const struct target *target, struct incident *info)
{
	struct incident_unit *unit = &info->unit;
	struct unit_report report;

	if (!*target->cgroup || !discovery_unit(session_discovery(description->session), target->cgroup, &report))
		return;

	info->has_unit = true;
	incident_text(unit->name, sizeof unit->name, report.name);
	incident_text(unit->state, sizeof unit->state, report.facts.active_state);
	incident_text(unit->invocation_id, sizeof unit->invocation_id, report.facts.invocation_id);
	unit->has_main_pid = report.facts.has_main_pid && report.facts.main_pid != 0;
	unit->main_pid = report.facts.main_pid;
	unit->has_restarts = report.facts.has_restarts;
	unit->restarts = report.facts.restarts;
	unit->has_running = report.facts.started_ns != 0 && report.facts.started_ns <= info->mono.ns;
	unit->running_ns = unit->has_running ? info->mono.ns - report.facts.started_ns : 0;
}

static void describe_labels(const struct description *description, const struct target *target, struct incident *info)
{
	if (info->has_container)
		labelbook_get(session_labels(description->session), target->cgroup, &info->labels);
}

static void begin(const struct description *description, mono_t mono, wall_t wall, struct incident *info)
{
	incident_init(info, SPIKEWATCH_VERSION);
	info->mono = mono;
	info->wall = wall;
	info->window_from = mono;
	info->window_to = mono;
	describe_machine(description, info);
	describe_cost(description, mono, &info->cost);
}

void description_of_firing(const struct description *description, const struct evaluator_firing *firing,
			   struct incident *ret)
{
	begin(description, firing->to, firing->wall, ret);
	ret->kind = INCIDENT_RULE;
	ret->window_from = firing->from;
	describe_rule(description, firing, &ret->rule);
	incident_set_target(ret, firing->target);
	describe_unit(description, firing->target, ret);
	describe_labels(description, firing->target, ret);
	if (!discovery_limits(session_discovery(description->session), firing->target->id, &ret->limits)) {
		ret->limits.cpu = firing->cpu_limit;
		ret->limits.memory_bytes = firing->memory_limit;
	}
}

void description_of_request(const struct description *description, const struct target *target, mono_t mono,
			    wall_t wall, struct incident *ret)
{
	const struct metric_machine *machine = session_machine(description->session);

	begin(description, mono, wall, ret);
	ret->kind = INCIDENT_MANUAL;
	incident_text(ret->rule.name, sizeof ret->rule.name, INCIDENT_MANUAL_RULE);
	ret->rule.severity = INCIDENT_MANUAL_SEVERITY;
	if (target) {
		incident_set_target(ret, target);
		describe_unit(description, target, ret);
		describe_labels(description, target, ret);
		discovery_limits(session_discovery(description->session), target->id, &ret->limits);
		return;
	}

	incident_text(ret->target.name, sizeof ret->target.name, INCIDENT_EVERYTHING);
	ret->limits.cpu = (uint64_t)(machine->cores * 1e9);
	ret->limits.cpu_is_machine = true;
	ret->limits.memory_bytes = machine->memory_bytes;
	ret->limits.memory_is_machine = true;
}
