/*
 * incidents.c: the list of open incidents. Opening one secures its slice at once: the ring holds
 * the past only for so long. From then on the slice follows the same events as the rules do.
 */
#include "daemon/engine/incident/incidents.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/incident/incident_worker.h"
#include "daemon/engine/incident/spool.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_capture.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/engine/targets/unit_bus.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/evaluator/rule_state.h"
#include "lib/incident/incident.h"
#include "lib/incident/sample_window.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/proc/perf.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* Set the first two, the rest to zero. */
struct free_space {
	struct spool *spool;
	struct incident_worker *incident_worker; /* who makes room */
	mono_t asked;                            /* 0: never, or the answer is not believed any more */
	mono_t made;                             /* when room was last to be made, while there is too little */
	bool is_short;
};

struct description {
	struct session *session;
	const struct rule_state *rule_state; /* for how often a rule has fired */
};

/*
 * free_space.c: what one incident may need is estimated from its settings, and compared with what
 * the file system has left.
 *
 * Limits are kept after an incident. When there is no room for one there is none after which to
 * keep them: what this daemon itself has written would silence it for ever. So room is made here
 * too; once a minute, because every directory is read for it.
 */

/* A row of samples is about so long. */
#define ROW_BYTES 200u

/* How long an answer is believed. */
#define BELIEVE_NS NS_PER_S

#define MAKE_AGAIN_NS (60 * NS_PER_S)

static uint64_t expected_bytes(const struct config *config)
{
	uint64_t rows = (config->incidents.before_ns + config->incidents.after_ns) / config->sampling.interval_ns;
	uint64_t bytes = rows * ROW_BYTES + FREE_SPACE_CAPTURES_BYTES;

	return bytes < config->incidents.max_incident_bytes ? bytes : config->incidents.max_incident_bytes;
}

static void say(const struct free_space *room, bool ok)
{
	if (!ok && !room->is_short)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_DISK_SHORT, .state = "begin" },
			  "too little disk space for incidents: rules do not fire until there is more");
	else if (ok && room->is_short)
		log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_DISK_SHORT, .state = "end" },
			  "there is disk space for incidents again");
}

/*
 * Room for one more, by these settings? Asked at most once a second, the answer is kept; says it
 * when that changes. When there is none, and each minute while there is none, the incident worker
 * is asked to keep the limits: what it can remove makes the answer another one.
 */
static bool free_space_ok(struct free_space *room, const struct config *config, mono_t now)
{
	if (room->asked.ns && mono_diff(now, room->asked) < (int64_t)BELIEVE_NS)
		return !room->is_short;

	bool ok = spool_predict_ok(room->spool, expected_bytes(config));

	say(room, ok);
	if (!ok && (!room->is_short || mono_diff(now, room->made) > (int64_t)MAKE_AGAIN_NS)) {
		room->made = now;
		incident_worker_enforce(room->incident_worker);
	}
	room->is_short = !ok;
	room->asked = now;

	return ok;
}

/* The next time it is asked anew. */
static void free_space_forget(struct free_space *room)
{
	room->asked = (mono_t){ 0 };
}

/*
 * description.c: a value is filled in from what is at hand: nothing here waits, but for a scan that
 * holds the target table's lock.
 */

static void describe_machine(const struct description *description, struct incident *info)
{
	struct utsname name;
	char boot_id[64];
	ssize_t len = proc_read_file(session_procfd(description->session), 0, "sys/kernel/random/boot_id", boot_id,
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
	if (rule_state_get(description->rule_state, configured->name, firing->target->key, &memory)) {
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
		label_cache_get(session_labels(description->session), target->cgroup, &info->labels);
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

/* Of a rule that fired. */
static void description_of_firing(const struct description *description, const struct evaluator_firing *firing,
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

/* Of a request by hand at that moment; target NULL: of everything. */
static void description_of_request(const struct description *description, const struct target *target, mono_t mono,
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

/*
 * Memory for samples, as a part of what an incident may take on disk: their text is about so many
 * times longer.
 */
#define SAMPLE_WINDOW_SHARE 8u

/* How often the worker is reminded of an incident of everything: the ring must not overtake it. */
#define FOLLOW_NS (500 * NS_PER_MS)

struct incidents {
	struct incidents_options options;
	struct clock clock;
	struct incident_worker *incident_worker;
	struct incident_worker_incident *open;
	struct incidents_counts counts;
	mono_t tick;     /* the last one, */
	uint32_t writer; /* and whose it was */
	struct free_space room;
	uint64_t refusing; /* so many since the last that was opened */
	mono_t hour;       /* it began with the first incident that a rule opened in it, */
	uint32_t in_hour;  /* and so many were opened so far; 0: none began yet */
};

int incidents_new(const struct incidents_options *options, struct incidents **ret)
{
	struct incidents *incidents = calloc(1, sizeof *incidents);
	int r;

	if (!incidents)
		return -ENOMEM;

	incidents->options = *options;
	incidents->clock = real_clock();
	r = incident_worker_new(options->session, options->spool, options->config->stuck_ns,
				&incidents->incident_worker);
	if (r < 0) {
		free(incidents);
		return r;
	}
	incidents->room = (struct free_space){ .spool = options->spool, .incident_worker = incidents->incident_worker };
	samplers_exempt(session_samplers(options->session), incident_worker_cpu_clock(incidents->incident_worker));
	*ret = incidents;

	return 0;
}

bool incidents_free(struct incidents *incidents)
{
	bool ended = !incidents || incidents_finish(incidents);

	if (incidents)
		incident_worker_free(incidents->incident_worker);
	free(incidents);

	return ended;
}

/* ---- the past ---- */

/* A cursor for what the ring says of the target since `back` before the firing. NULL: no memory. */
static struct ring_cursor *past_of(const struct incidents *incidents, const struct incident_worker_incident *incident,
				   uint64_t back)
{
	struct ring_cursor *cursor;

	if (ring_cursor_new(session_ring(incidents->options.session), RING_OLDEST, &cursor) < 0)
		return NULL;

	ring_cursor_seek(cursor, mono_sub(incident->fired, back));
	ring_cursor_only(cursor, incident->target.id);
	return cursor;
}

static uint32_t writer_of(const struct incidents *incidents, const struct incident_worker_incident *incident,
			  uint64_t back)
{
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = past_of(incidents, incident, back);
	struct ring_event event;

	while (cursor && ring_cursor_next(cursor, &event) == 0)
		if (event.type == RING_EVENT_SAMPLE)
			return event.writer;
	return INCIDENT_WORKER_NO_WRITER;
}

/* Reads the window before the firing from the ring, up to what is published now. */
static void secure_slice(const struct incidents *incidents, struct incident_worker_incident *incident)
{
	uint64_t back =
		incident->settings.before_ns +
		2 * incidents->options.config->sampling.heartbeat_ns; /* so that the state at its start is known */
	struct ring_event event;

	incident->writer = writer_of(incidents, incident, back);
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = past_of(incidents, incident, back);

	while (cursor && ring_cursor_next(cursor, &event) == 0) {
		if (event.type == RING_EVENT_TICK && incident_worker_incident_is_of(incident, event.writer)) {
			sample_window_tick(incident->sample_window, event.time);
			incident->followed = event.time;
		} else if (event.type == RING_EVENT_SAMPLE && event.id == incident->target.id) {
			sample_window_add(incident->sample_window, event.time, event.sample);
		} else if (event.type == RING_EVENT_GONE && event.id == incident->target.id) {
			sample_window_gone(incident->sample_window, event.time);
		} else if (event.type == RING_EVENT_LAPPED || event.type == RING_EVENT_DAMAGED) {
			sample_window_gap(incident->sample_window, incident->followed, event.lost_pages);
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

	metric_text_value(unit, decision->value, value, sizeof value);
	if (decision->candidate_reason == TRIGGER_ABOVE_AVERAGE)
		snprintf(buf, cap, "%s, more than %.0f %% above its average of %s", value, firing->effective->delta,
			 metric_text_value(unit, decision->average, other, sizeof other));
	else
		snprintf(buf, cap, "%s > %s", value,
			 metric_text_value(unit, firing->effective->percent, other, sizeof other));
}

static void say_fired(const struct evaluator_firing *firing, const char *what)
{
	struct log_about about = {
		.message = MESSAGE_RULE_FIRED,
		.rule = firing->rule->name,
		.target = firing->target->name,
		.metric = metric_name(firing->rule->metric),
		.value = firing->decision->available ? &firing->decision->value : NULL,
	};
	char comparison[160];

	compare(firing, comparison, sizeof comparison);
	log_about(LOG_NOTICE, &about, "rule %s fired on %s: %s is %s%s", firing->rule->name, firing->target->name,
		  metric_name(firing->rule->metric), comparison, what);
}

static void merge(struct incidents *incidents, struct incident_worker_incident *incident,
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

/* Of the target with this key; NULL: of everything. */
static struct incident_worker_incident *find_open(const struct incidents *incidents, const char *key)
{
	struct incident_worker_incident *incident = incidents->open;

	while (incident && (key ? !incident->sample_window || strcmp(incident->target.key, key) != 0
				: incident->sample_window != NULL))
		incident = incident->next;

	return incident;
}

/* Of everything if there is no target: without a slice. */
static int new_incident(const struct incidents *incidents, const struct target *target, mono_t fired, wall_t wall,
			struct incident_worker_incident **ret)
{
	const struct config_incidents *config = &incidents->options.config->incidents;
	struct incident_worker_incident *incident = calloc(1, sizeof *incident);
	struct sample_window_options options = {
		.fired = fired,
		.before_ns = config->before_ns,
		.after_ns = config->after_ns,
		.max_bytes = config->max_incident_bytes / SAMPLE_WINDOW_SHARE,
	};

	if (!incident)
		return -ENOMEM;

	incident->fired = fired;
	incident->wall = wall;
	incident->settings = incident_worker_settings_of(incidents->options.config);
	*ret = incident;
	if (!target) {
		incident->target = (struct target){
			.entry = "", .name = INCIDENT_EVERYTHING, .key = "", .comm = "", .cmdline = "", .cgroup = ""
		};
		return 0;
	}

	target_decode(incident->encoded, target_encode(target, incident->encoded, sizeof incident->encoded),
		      &incident->target);
	if (sample_window_new(&options, &incident->sample_window) < 0) {
		incident_worker_incident_free(incident);
		return -ENOMEM;
	}

	return 0;
}

/* NULL: there may be one more. */
static const char *why_not(const struct incidents *incidents)
{
	return incidents->counts.open == INCIDENTS_OPEN_MAX ? "too many are open" : NULL;
}

/* The same for rules, of which many may fire on a busy machine, each within its own limits. */
static const char *why_not_by_rule(struct incidents *incidents, mono_t now)
{
	uint32_t most = incidents->options.config->incidents.max_per_hour;

	if (mono_diff(now, incidents->hour) >= (int64_t)(3600 * NS_PER_S))
		incidents->in_hour = 0;
	if (most && incidents->in_hour >= most)
		return "there were incidents.max_per_hour within an hour";

	return why_not(incidents);
}

/* Refusals are said when they begin and when they are over, not each time. */
static void refuse(struct incidents *incidents, const char *rule, const char *target, const char *why)
{
	struct log_about about = {
		.message = MESSAGE_INCIDENT_FAILED, .state = "begin", .rule = rule, .target = target
	};

	incidents->counts.refused++;
	if (incidents->refusing++ == 0)
		log_about(LOG_WARNING, &about, "rule %s fired on %s, but no incident was opened: %s", rule, target,
			  why);
}

/* Its past is secured and it is described: from now on it is open. */
static void open_incident(struct incidents *incidents, struct incident_worker_incident *incident)
{
	struct log_about about = { .message = MESSAGE_INCIDENT_FAILED, .state = "end", .count = incidents->refusing };

	if (incidents->refusing)
		log_about(LOG_NOTICE, &about, "incidents are opened again; %llu were not",
			  (unsigned long long)incidents->refusing);
	incidents->refusing = 0;
	incident->evidence = incident->info;
	follow_up_plan(incident, incidents->options.config);
	incident->next = incidents->open;
	incidents->open = incident;
	incidents->counts.open++;
	incidents->counts.opened++;
	incident_worker_capture(incidents->incident_worker, incident);
}

static struct description description_of(const struct incidents *incidents)
{
	return (struct description){ .session = incidents->options.session,
				     .rule_state = incidents->options.rule_state };
}

int incidents_fire(struct incidents *incidents, const struct evaluator_firing *firing)
{
	struct incident_worker_incident *incident = find_open(incidents, firing->target->key);
	struct description description = description_of(incidents);
	const char *why = why_not_by_rule(incidents, firing->to);

	if (incident) {
		merge(incidents, incident, firing);
		return 0;
	}
	if (!why && new_incident(incidents, firing->target, firing->to, firing->wall, &incident) < 0)
		why = "no memory";
	if (why) {
		refuse(incidents, firing->rule->name, firing->target->name, why);
		return 0;
	}

	if (incidents->in_hour++ == 0)
		incidents->hour = firing->to;
	/* First of all: the ring goes on, and describing may have to wait for a scan. */
	secure_slice(incidents, incident);
	description_of_firing(&description, firing, &incident->info);
	open_incident(incidents, incident);
	say_fired(firing, "");

	return 0;
}

/* ---- by hand ---- */

static void say_asked(const struct target *target, const char *what)
{
	const char *name = target ? target->name : "everything";
	struct log_about about = { .rule = INCIDENT_MANUAL_RULE,
				   .target = target ? target->name : INCIDENT_EVERYTHING };

	log_about(LOG_NOTICE, &about, "an incident of %s was asked for by hand%s%s", name, *what ? ": " : "", what);
}

static void merge_request(struct incidents *incidents, struct incident_worker_incident *incident, wall_t wall)
{
	struct incident_firing more = { .kind = INCIDENT_MANUAL, .wall = wall };

	incident_text(more.rule, sizeof more.rule, INCIDENT_MANUAL_RULE);
	incident_merge(&incident->info, &more);
	if (incident->info.rule.severity < INCIDENT_MANUAL_SEVERITY)
		incident->info.rule.severity = INCIDENT_MANUAL_SEVERITY;
	incidents->counts.merged++;
}

static int give_ticket(const struct incidents *incidents, const struct incident_worker_incident *incident, mono_t now,
		       struct incidents_ticket *ret)
{
	int64_t left = mono_diff(mono_add(incident->fired, incident->settings.after_ns), now);

	ret->sealed_in_ns = left > 0 ? (uint64_t)left : 0;
	ret->directory = spool_path(incidents->options.spool);
	incident_stem(incident->wall, incident->target.name, incident->info.rule.name, ret->stem, sizeof ret->stem);

	return 0;
}

int incidents_trigger(struct incidents *incidents, const struct target *target, struct incidents_ticket *ret)
{
	struct incident_worker_incident *incident = find_open(incidents, target ? target->key : NULL);
	struct description description = description_of(incidents);
	mono_t now = clock_mono(&incidents->clock);
	wall_t wall = clock_wall(&incidents->clock);
	const char *why = why_not(incidents);

	*ret = (struct incidents_ticket){ .why = "", .directory = spool_path(incidents->options.spool) };
	incidents->counts.manual++;
	if (incident) {
		merge_request(incidents, incident, wall);
		say_asked(target, "merged into the one that is open");
		ret->answer = INCIDENTS_MERGED;
		return give_ticket(incidents, incident, now, ret);
	}
	if (!why && !incidents_disk_ok(incidents, now))
		why = "too little disk space";
	if (!why && new_incident(incidents, target, now, wall, &incident) < 0)
		why = "no memory";
	if (why) {
		incidents->counts.refused++;
		say_asked(target, why);
		ret->answer = INCIDENTS_REFUSED;
		ret->why = why;
		return 0;
	}

	if (incident->sample_window)
		secure_slice(incidents, incident);
	incident->followed = incident->sample_window ? incident->followed : now;
	description_of_request(&description, target, now, wall, &incident->info);
	open_incident(incidents, incident);
	say_asked(target, "");
	ret->answer = INCIDENTS_OPENED;

	return give_ticket(incidents, incident, now, ret);
}

/* ---- settings, state ---- */

void incidents_reload(struct incidents *incidents, const struct config *config)
{
	struct retention_limits limits = {
		.max_bytes = config->incidents.max_bytes,
		.max_count = config->incidents.max_count,
		.max_age_ns = config->incidents.max_age_ns,
		.min_free_bytes = config->incidents.min_free_bytes,
	};

	incidents->options.config = config;
	free_space_forget(&incidents->room); /* the answer may be another one now */
	spool_set_limits(incidents->options.spool, &limits);
}

mono_t incidents_busy_since(const struct incidents *incidents)
{
	return incident_worker_busy_since(incidents->incident_worker);
}

bool incidents_disk_ok(struct incidents *incidents, mono_t now)
{
	return free_space_ok(&incidents->room, incidents->options.config, now);
}

bool incidents_disk_is_short(const struct incidents *incidents)
{
	return incidents->room.is_short;
}

/* ---- the present ---- */

void incidents_tick(struct incidents *incidents, mono_t at, uint32_t writer)
{
	incidents->tick = at;
	incidents->writer = writer;
	for (struct incident_worker_incident *incident = incidents->open; incident; incident = incident->next)
		if (incident->sample_window && incident_worker_incident_is_of(incident, writer) &&
		    mono_diff(at, incident->followed) > 0)
			sample_window_tick(incident->sample_window, at);
}

/*
 * Ticks that were read from the ring when the incident was opened come by once more: they are
 * skipped.
 */
static bool is_new(const struct incidents *incidents, const struct incident_worker_incident *incident)
{
	return mono_diff(incidents->tick, incident->followed) > 0;
}

void incidents_sample(struct incidents *incidents, uint32_t id, mono_t at, const struct sample *sample)
{
	for (struct incident_worker_incident *incident = incidents->open; incident; incident = incident->next)
		if (incident->sample_window && incident->target.id == id && is_new(incidents, incident)) {
			incident->writer = incidents->writer;
			sample_window_add(incident->sample_window, at, sample);
		}
}

void incidents_gone(struct incidents *incidents, uint32_t id, mono_t at)
{
	for (struct incident_worker_incident *incident = incidents->open; incident; incident = incident->next)
		if (incident->sample_window && incident->target.id == id)
			sample_window_gone(incident->sample_window, at);
}

void incidents_gap(struct incidents *incidents, mono_t at, uint64_t lost_pages)
{
	for (struct incident_worker_incident *incident = incidents->open; incident; incident = incident->next)
		if (incident->sample_window)
			sample_window_gap(incident->sample_window, at, lost_pages);
}

/* ---- closing ---- */

static bool is_over(const struct incident_worker_incident *incident, mono_t now)
{
	return incident->sample_window ? sample_window_done(incident->sample_window, now)
				       : mono_diff(now, mono_add(incident->fired, incident->settings.after_ns)) > 0;
}

static void remind(struct incidents *incidents, struct incident_worker_incident *incident, mono_t now)
{
	if (incident->sample_window || mono_diff(now, incident->followed) < (int64_t)FOLLOW_NS)
		return;

	incident->followed = now;
	incident_worker_follow(incidents->incident_worker, incident);
}

static void close_incident(struct incidents *incidents, struct incident_worker_incident **at)
{
	struct incident_worker_incident *incident = *at;

	*at = incident->next;
	incident->next = NULL;
	incidents->counts.open--;
	incident_worker_seal(incidents->incident_worker, incident);
}

void incidents_poll(struct incidents *incidents, mono_t now)
{
	for (struct incident_worker_incident **at = &incidents->open; *at;) {
		if (is_over(*at, now)) {
			close_incident(incidents, at);
			continue;
		}
		remind(incidents, *at, now);
		at = &(*at)->next;
	}
}

bool incidents_finish(struct incidents *incidents)
{
	while (incidents->open)
		close_incident(incidents, &incidents->open);

	return incident_worker_stop(incidents->incident_worker);
}

bool incidents_is_open(const struct incidents *incidents, const char *key)
{
	return find_open(incidents, key) != NULL;
}

void incidents_counts(struct incidents *incidents, struct incidents_counts *ret)
{
	struct incident_worker_counts collected;

	incident_worker_counts(incidents->incident_worker, &collected);
	*ret = incidents->counts;
	ret->sealed = collected.sealed;
	ret->failed = collected.failed;
	ret->removed = collected.removed;
}
