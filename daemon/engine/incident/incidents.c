/*
 * incidents.c: the list of open incidents. Opening one copies its past from the ring before the
 * ring is overwritten; from then on its window gets the same events as the rules. struct
 * open_incident belongs to the event loop, struct incident_work (incident_worker.c) to the worker;
 * struct incident_request is constant and both read it.
 *
 * Each second the worker checks free disk space against an estimate of the next incident's size.
 * Retention normally runs after each incident. While space is short none is opened, so retention is also started
 * here, once a minute: it reads every directory.
 */
#include "daemon/engine/incident/incidents.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/base/proc_read.h"
#include "daemon/engine/incident/hooks.h"
#include "daemon/engine/incident/notify.h"
#include "daemon/engine/incident/incident_request.h"
#include "daemon/engine/incident/incident_worker.h"
#include "daemon/engine/kernel/kernel_accounts.h"
#include "daemon/engine/incident/spool.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/engine/targets/unit_bus.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/evaluator/rule_state.h"
#include "lib/incident/sample_window.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* What captures other than samples take at most. */
#define CAPTURES_BYTES (2u << 20)

/* Samples as text are about this many times longer than in memory. */
#define SAMPLE_WINDOW_SHARE 8u

#define ROW_BYTES 200u /* of samples in a stream, about */

/* How often disk space is looked for; how often room is made while it is short. */
#define SPACE_CHECK_NS NS_PER_S
#define SPACE_MAKE_NS (60 * NS_PER_S)

/* How often the ring is copied for an incident of all targets, so that no pages are lost. */
#define FOLLOW_NS (500 * NS_PER_MS)

#define NO_WRITER UINT32_MAX

struct open_incident {
	struct open_incident *next;
	struct incident_request *request; /* the worker's after incident_worker_open; constant */
	struct incident_work *work;
	struct sample_window *window; /* NULL: of all targets */
	struct incident *info;        /* the request's, and what was merged since */
	uint32_t writer; /* of the ring, that samples the target: only its ticks count. NO_WRITER: not known */
	mono_t followed; /* the last tick in window; of all targets: of the last incident_worker_follow */
};

/* Whether there is disk space. */
struct free_space {
	mono_t checked; /* 0: never, or the settings have changed */
	mono_t made;    /* when room was last to be made, while there is too little */
	bool is_short;
};

/* So often incidents are removed for their age although none is sealed. */
#define ENFORCE_NS (3600 * NS_PER_S)

/* What is being told of the last incidents may take so long when the daemon stops. */
#define NOTIFY_STOP_NS (2 * NS_PER_S)

#define OWNERS_MAX 64
#define OWNER_UID_MIN 1000 /* smaller ones are the system's */

/* What an owner has of the limits. */
struct owner_share {
	char owner[INCIDENT_OWNER_MAX]; /* "": free */
	uint32_t open, in_hour;
};

/* Firings of one rule on one target that opened no incident. */
struct storm_row {
	uint64_t hash; /* of rule and key */
	char rule[64], key[128], name[128];
	char owner[INCIDENT_OWNER_MAX];
	const char *why;     /* the last; static */
	enum unit_kind unit; /* of value */
	uint64_t firings;
	uint64_t first_ns, last_ns; /* since the storm's first */
	bool has_value;
	double value, severity; /* the worst */
};

/* {0}: there is none. */
struct storm {
	struct storm_row *rows;
	size_t count, cap;
	struct storm_row others; /* beyond INCIDENTS_STORM_ROWS_MAX, or without memory */
	uint64_t firings;
	mono_t first, last;
	wall_t wall; /* of first */
};

struct incidents {
	struct incidents_options options;
	struct clock clock;
	struct incident_worker *worker;
	struct notifier *notifier;
	struct open_incident *open;
	struct incidents_counts counts;
	mono_t enforced; /* when the limits of the spool were last kept, besides after each incident */
	mono_t tick;     /* the last one */
	uint32_t writer; /* of that tick */
	struct free_space space;
	uint64_t refusing; /* refused since the last one was opened */
	mono_t hour;       /* began with the first incident that a rule opened in it */
	struct owner_share shares[OWNERS_MAX];
	uint64_t opened_by[INCIDENTS_PENDING_MAX]; /* hashes of owners, of the last ones that were opened */
	uint32_t in_hour;             /* incidents that rules have opened in that hour; 0: it has not begun */
	_Atomic size_t windows_bytes; /* of all windows that are not freed */
	struct storm storm;
	mono_t stormed; /* when one was recorded last; 0: never */
};

/* ---- disk space ---- */

/* What one more incident may take on disk. */
static uint64_t expected_bytes(const struct config *config)
{
	uint64_t rows = (config->incidents.before_ns + config->incidents.after_ns) / config->sampling.interval_ns;
	uint64_t bytes = rows * ROW_BYTES + CAPTURES_BYTES;

	return bytes < config->incidents.max_incident_bytes ? bytes : config->incidents.max_incident_bytes;
}

static void log_space(const struct free_space *space, bool ok)
{
	if (!ok && !space->is_short)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_DISK_SHORT, .state = "begin" },
			  "too little disk space for incidents: rules do not fire until there is more");
	else if (ok && space->is_short)
		log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_DISK_SHORT, .state = "end" },
			  "there is disk space for incidents again");
}

/* The worker looks: a disk that blocks does not hold up the rules. */
static void poll_space(struct incidents *incidents, mono_t now)
{
	struct free_space *space = &incidents->space;
	bool due = !space->checked.ns || mono_diff(now, space->checked) >= (int64_t)SPACE_CHECK_NS;
	bool ok = incident_worker_has_space(incidents->worker, due ? expected_bytes(incidents->options.config) : 0);

	if (due)
		space->checked = now;
	log_space(space, ok);
	if (!ok && (!space->is_short || mono_diff(now, space->made) > (int64_t)SPACE_MAKE_NS)) {
		space->made = now;
		incident_worker_enforce(incidents->worker);
	}
	space->is_short = !ok;
}

bool incidents_disk_is_short(const struct incidents *incidents)
{
	return incidents->space.is_short;
}

/* ---- describing it ---- */

static void describe_machine(const struct incidents *incidents, struct incident *info)
{
	struct utsname name;
	char boot_id[64];
	ssize_t len = proc_read_line(session_parts(incidents->options.session).procfd, 0, "sys/kernel/random/boot_id",
				     boot_id, sizeof boot_id);

	if (uname(&name) == 0) {
		incident_text(info->hostname, sizeof info->hostname, name.nodename);
		incident_text(info->kernel, sizeof info->kernel, name.release);
	}
	if (len > 0)
		incident_text(info->boot_id, sizeof info->boot_id, boot_id);
}

static void describe_rule(const struct incidents *incidents, const struct evaluator_firing *firing,
			  struct incident_rule *rule)
{
	const struct config_rule *configured = firing->rule;
	struct trigger_memory memory;

	incident_text(rule->name, sizeof rule->name, configured->name);
	incident_text(rule->metric, sizeof rule->metric, metric_name(configured->metric));
	incident_text(rule->unit, sizeof rule->unit, units_name(metric_unit(configured->metric)));
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
	if (rule_state_get(incidents->options.rule_state, configured->name, firing->target->key, &memory)) {
		rule->fired = memory.fired;
		rule->count = memory.count;
	}
}

static bool has_accounts(const struct incidents *incidents)
{
	struct session_parts parts = session_parts(incidents->options.session);

	return parts.accounts && atomic_load(&kernel_accounts_shared(parts.accounts)->on);
}

static void describe_cost(const struct incidents *incidents, mono_t now, struct incident_cost *cost)
{
	struct ring_info ring;
	struct stats stats;
	int64_t run;

	if (ring_stats(session_parts(incidents->options.session).ring, &stats) < 0 || stats.total_snapshots == 0)
		return;

	run = mono_diff(now, (mono_t){ stats.cheap_start_nanos });
	ring_info(session_parts(incidents->options.session).ring, &ring);
	snprintf(cost->cpu_time_source, sizeof cost->cpu_time_source, has_accounts(incidents) ? "kernel" : "files");
	cost->interval_ns = stats.collection_rate;
	cost->idle_ns = ring.idle_ns;
	cost->cpu_percent = run > 0 ? 100 * (double)stats.own_cpu / (double)run : 0;
	cost->mean_sleep_error_ns =
		stats.total_sleep_timing_error / (stats_woken(&stats) > 0 ? stats_woken(&stats) : 1);
	cost->mean_collection_ns = stats.total_collection_timing_error / stats.total_snapshots;
	cost->missed_slots = stats.missed_slots;
}

/* A group has no unit: its processes may be in several. */
static void describe_unit(const struct incidents *incidents, const struct target *target, struct incident *info)
{
	struct incident_unit *unit = &info->unit;
	struct unit_report report;

	if (!*target->cgroup ||
	    !discovery_unit(session_parts(incidents->options.session).discovery, target->cgroup, &report))
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

/*
 * The user whose slice the cgroup is in; 0: it is in none, or in root's. Only systemd's own: below
 * it, and in a service, anyone may make cgroups of any name.
 */
static uid_t uid_of_slice(const char *cgroup)
{
	unsigned uid = 0;
	int end = 0;

	return sscanf(cgroup, "/user.slice/user-%u.slice%n", &uid, &end) == 1 && end > 0 ? uid : 0;
}

/*
 * Whose share an incident takes: its user's; without a user of its own (root's, a group of
 * processes) its service's or cgroup's, or its entry's. A user's slice counts before the user of the
 * process: users have other ids too (subuid(5)), and start programs that take root's (su). Those
 * that are set-user-id keep the real one.
 */
static void find_owner(const struct incidents *incidents, const struct target *target,
		       char owner[static INCIDENT_OWNER_MAX])
{
	const char *slash = strrchr(target->cgroup, '/');
	uid_t uid = uid_of_slice(target->cgroup);

	if (uid < OWNER_UID_MIN && target->kind == TARGET_PROCESS)
		uid = proc_read_uid(session_parts(incidents->options.session).procfd, target->pid);
	if (uid > 0 && uid != PROC_READ_NO_UID)
		snprintf(owner, INCIDENT_OWNER_MAX, "uid %u", uid);
	else if (slash && slash[1])
		snprintf(owner, INCIDENT_OWNER_MAX, "cgroup %.50s", slash + 1);
	else
		snprintf(owner, INCIDENT_OWNER_MAX, target->kind == TARGET_GROUP ? "entry %.50s" : "root",
			 target->entry);
}

/* False: its limits are not known to discovery. */
static bool describe_target(const struct incidents *incidents, const struct target *target, struct incident *info)
{
	incident_set_target(info, target);
	find_owner(incidents, target, info->target.owner);
	describe_unit(incidents, target, info);
	if (info->has_container)
		label_cache_get(session_parts(incidents->options.session).labels, target->cgroup, &info->labels);

	return discovery_limits(session_parts(incidents->options.session).discovery, target->id, &info->limits);
}

static void describe_moment(const struct incidents *incidents, mono_t mono, wall_t wall, struct incident *info)
{
	incident_init(info, SPIKEWATCH_VERSION);
	info->mono = mono;
	info->wall = wall;
	info->window_from = mono;
	info->window_to = mono;
	describe_machine(incidents, info);
	describe_cost(incidents, mono, &info->cost);
}

/* What is not known to be limited is limited by the machine. */
static void limit_by_machine(const struct incidents *incidents, struct cgroup_limits *limits)
{
	const struct metric_machine *machine = session_parts(incidents->options.session).machine;

	if (limits->cpu == 0 || limits->cpu == UINT64_MAX) {
		limits->cpu = (uint64_t)(machine->cores * 1e9);
		limits->cpu_is_machine = true;
	}
	if (limits->memory_bytes == 0 || limits->memory_bytes == UINT64_MAX) {
		limits->memory_bytes = machine->memory_bytes;
		limits->memory_is_machine = true;
	}
}

/* Of a rule that fired. */
static void describe_firing(const struct incidents *incidents, const struct evaluator_firing *firing,
			    struct incident *ret)
{
	describe_moment(incidents, firing->to, firing->wall, ret);
	ret->kind = INCIDENT_RULE;
	ret->window_from = firing->from;
	ret->window_unsampled_ns = firing->unsampled_ns;
	describe_rule(incidents, firing, &ret->rule);
	if (!describe_target(incidents, firing->target, ret)) {
		ret->limits.cpu = firing->cpu_limit;
		ret->limits.memory_bytes = firing->memory_limit;
	}
	limit_by_machine(incidents, &ret->limits);
}

/* Of a request at that moment; target NULL: of all targets. */
static void describe_request(const struct incidents *incidents, const struct target *target, mono_t mono, wall_t wall,
			     struct incident *ret)
{
	describe_moment(incidents, mono, wall, ret);
	ret->kind = INCIDENT_MANUAL;
	incident_text(ret->rule.name, sizeof ret->rule.name, INCIDENT_MANUAL_RULE);
	ret->rule.severity = INCIDENT_MANUAL_SEVERITY;
	if (target) {
		describe_target(incidents, target, ret);
	} else {
		incident_text(ret->target.name, sizeof ret->target.name, INCIDENT_EVERYTHING);
		incident_text(ret->target.owner, sizeof ret->target.owner, "root");
	}
	limit_by_machine(incidents, &ret->limits);
}

/* ---- the past ---- */

/* Whether a tick of this writer counts. */
static bool is_of_writer(const struct open_incident *incident, uint32_t writer)
{
	return incident->writer == NO_WRITER || incident->writer == writer;
}

/* A cursor for what the ring has of the target since `back` before the firing. NULL: no memory. */
static struct ring_cursor *past_of(const struct incidents *incidents, const struct incident_request *request,
				   uint64_t back)
{
	struct ring_cursor *cursor;

	if (ring_cursor_new(session_parts(incidents->options.session).ring, RING_OLDEST, &cursor) < 0)
		return NULL;

	ring_cursor_seek(cursor, mono_sub(request->fired, back));
	ring_cursor_only(cursor, request->target.id);

	return cursor;
}

static uint32_t writer_of(const struct incidents *incidents, const struct incident_request *request, uint64_t back)
{
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = past_of(incidents, request, back);
	struct ring_event event;

	while (cursor && ring_cursor_next(cursor, &event) == 0)
		if (event.type == RING_EVENT_SAMPLE)
			return event.writer;

	return NO_WRITER;
}

static void add_past_sample(struct open_incident *incident, const struct ring_event *event)
{
	sample_window_add(incident->window, event->time, event->sample);
	if (incident->request->target.kind == TARGET_CGROUP)
		snprintf(incident->info->cost.cpu_time_source, sizeof incident->info->cost.cpu_time_source,
			 sample_has(event->sample, SAMPLE_FILES_READ) ? "kernel" : "files");
}

/* Copies the window before the firing from the ring, up to what is published now. */
static void copy_past(const struct incidents *incidents, struct open_incident *incident)
{
	const struct incident_request *request = incident->request;
	struct ring_info info;
	struct ring_event event;

	ring_info(session_parts(incidents->options.session).ring, &info);

	/* Two heartbeats more, so that the values at the start of the window are known. */
	uint64_t back = request->settings.before_ns + 2 * info.longest_heartbeat_ns;

	incident->writer = writer_of(incidents, request, back);
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = past_of(incidents, request, back);

	while (cursor && ring_cursor_next(cursor, &event) == 0) {
		if (event.type == RING_EVENT_TICK && is_of_writer(incident, event.writer)) {
			sample_window_tick(incident->window, event.time, event.idle_ns);
			incident->followed = event.time;
		} else if (event.type == RING_EVENT_HOLE && is_of_writer(incident, event.writer)) {
			sample_window_hole(incident->window, &event.hole);
		} else if (event.type == RING_EVENT_SAMPLE && event.id == request->target.id) {
			add_past_sample(incident, &event);
		} else if (event.type == RING_EVENT_GONE && event.id == request->target.id) {
			sample_window_gone(incident->window, event.time);
		} else if (event.type == RING_EVENT_LAPPED || event.type == RING_EVENT_DAMAGED) {
			sample_window_gap(incident->window, incident->followed, event.lost_pages);
		}
	}
}

/* ---- opening ---- */

/* "98 % > 80 %", "98 %, average 12 %": the value against what made it a candidate. */
static void format_comparison(const struct evaluator_firing *firing, char *buf, size_t cap)
{
	enum unit_kind unit = metric_unit(firing->rule->metric);
	const struct trigger_decision *decision = firing->decision;
	char value[32], other[32];

	units_format(value, sizeof value, unit, decision->value, UNITS_READING);
	if (decision->candidate_reason == TRIGGER_ABOVE_AVERAGE)
		snprintf(buf, cap, "%s, more than %.0f %% above its %s of %s", value, firing->effective->delta,
			 trigger_usual_name(firing->effective->usual),
			 units_format(other, sizeof other, unit, decision->average, UNITS_READING));
	else
		snprintf(buf, cap, "%s > %s", value,
			 units_format(other, sizeof other, unit, firing->effective->percent, UNITS_READING));
}

static void log_fired(const struct evaluator_firing *firing, const char *what)
{
	struct log_about about = {
		.message = MESSAGE_RULE_FIRED,
		.rule = firing->rule->name,
		.target = firing->target->name,
		.metric = metric_name(firing->rule->metric),
		.value = firing->decision->available ? &firing->decision->value : NULL,
	};
	char comparison[160];

	format_comparison(firing, comparison, sizeof comparison);
	log_about(LOG_NOTICE, &about, "rule %s fired on %s: %s is %s%s", firing->rule->name, firing->target->name,
		  metric_name(firing->rule->metric), comparison, what);
}

static void merge_firing(struct incidents *incidents, struct open_incident *incident,
			 const struct evaluator_firing *firing)
{
	struct incident_firing more = {
		.wall = firing->wall,
		.has_value = firing->decision->available,
		.value = firing->decision->value,
	};

	incident_text(more.rule, sizeof more.rule, firing->rule->name);
	incident_merge(incident->info, &more);
	incidents->counts.merged++;
	log_fired(firing, "; merged into the incident that is open");
}

/* Of the target with this key; NULL: of all targets. */
static struct open_incident *find_open(const struct incidents *incidents, const char *key)
{
	struct open_incident *incident = incidents->open;

	while (incident && (key ? incident->request->everything || strcmp(incident->request->target.key, key) != 0
				: !incident->request->everything))
		incident = incident->next;

	return incident;
}

static struct incident_settings settings_of(const struct config *config, const struct ring *ring)
{
	uint64_t most = config->incidents.max_incident_bytes;

	return (struct incident_settings){
		.before_ns = config->incidents.before_ns,
		.after_ns = config->incidents.after_ns,
		.interval_ns = ring_interval_ns(ring),
		.max_samples_bytes = most > 2 * (uint64_t)CAPTURES_BYTES ? most - CAPTURES_BYTES : most / 2,
		.captures = config->incidents.captures,
		.max_incident_bytes = most,
	};
}

/* Before incident_worker_open. */
static void free_unopened(struct open_incident *incident)
{
	sample_window_free(incident->window);
	free(incident->info);
	free(incident->request);
	free(incident);
}

/*
 * Captures are the end of an incident, and of a request, and few have many: in a map of its own
 * (malloc(3), M_MMAP_THRESHOLD) those that there are not take no memory.
 */
#define OWN_MAP_BYTES ((size_t)32 << 10)
_Static_assert(sizeof(struct incident_request) <= OWN_MAP_BYTES, "it has a map of its own without this");

/* What is used of it. */
static void copy_info(const struct incident *from, struct incident *ret)
{
	memcpy(ret, from, offsetof(struct incident, captures) + from->capture_count * sizeof *from->captures);
}

/* Of all targets if target is NULL: without a window. */
static int new_incident(struct incidents *incidents, const struct target *target, mono_t fired, wall_t wall,
			struct open_incident **ret)
{
	const struct config_incidents *config = &incidents->options.config->incidents;
	struct open_incident *incident = calloc(1, sizeof *incident);
	struct incident_request *request;
	struct sample_window_options window = {
		.fired = fired,
		.before_ns = config->before_ns,
		.after_ns = config->after_ns,
		.max_bytes = config->max_incident_bytes / SAMPLE_WINDOW_SHARE,
		.shared_bytes = &incidents->windows_bytes,
		.shared_max = INCIDENTS_WINDOWS_BYTES,
	};

	if (!incident)
		return -ENOMEM;

	request = incident->request = calloc(1, OWN_MAP_BYTES);
	incident->info = calloc(1, OWN_MAP_BYTES);
	if (!request || !incident->info || (target && sample_window_new(&window, &incident->window) < 0)) {
		free_unopened(incident);
		return -ENOMEM;
	}

	request->fired = fired;
	request->wall = wall;
	request->settings = settings_of(incidents->options.config, session_parts(incidents->options.session).ring);
	request->everything = !target;
	if (target)
		target_decode(request->encoded, target_encode(target, request->encoded, sizeof request->encoded),
			      &request->target);
	else
		request->target = (struct target){
			.entry = "", .name = INCIDENT_EVERYTHING, .key = "", .comm = "", .cmdline = "", .cgroup = ""
		};
	*ret = incident;

	return 0;
}

static const struct config_target *find_entry(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->target_count; i++)
		if (strcmp(config->targets[i].name, name) == 0)
			return &config->targets[i];

	return NULL;
}

/* The commands and the second snapshot that the target's entry wants. The rule must be set. */
static void plan_follow_ups(const struct config *config, struct incident_request *request)
{
	const struct config_target *entry = request->everything ? NULL : find_entry(config, request->target.entry);
	struct incident_capture failed = { .name = "run", .status = INCIDENT_CAPTURE_FAILED, .why = "no memory" };

	if (!entry)
		return;

	request->settings.again_ns = entry->again_ns;
	if (hook_plan_new(entry, request->info.rule.name, &request->hooks) < 0)
		incident_add_capture(&request->info, &failed);
}

/* ---- shares: no user takes the incidents of others ---- */

/* Of people: what root and system users run is not limited to a share. */
static bool is_limited(const char *owner)
{
	return strncmp(owner, "uid ", 4) == 0 && strtoul(owner + 4, NULL, 10) >= OWNER_UID_MIN;
}

/* Owners beyond OWNERS_MAX within an hour have one share together, the last. */
static struct owner_share *share_of(struct incidents *incidents, const char *owner)
{
	struct owner_share *shares = incidents->shares;
	size_t i = 0;

	while (i < OWNERS_MAX - 1 && *shares[i].owner && strcmp(shares[i].owner, owner) != 0)
		i++;
	if (i < OWNERS_MAX - 1)
		incident_text(shares[i].owner, sizeof shares[i].owner, owner);

	return &shares[i];
}

/* What is open is counted anew: an owner that shared the last place may have one of its own from now on. */
static void forget_hour(struct incidents *incidents)
{
	incidents->in_hour = 0;
	memset(incidents->shares, 0, sizeof incidents->shares);
	for (const struct open_incident *incident = incidents->open; incident; incident = incident->next)
		share_of(incidents, incident->info->target.owner)->open++;
}

/* Whether an owner has as much as is left of the limit: so each gets half of what is left. */
static bool has_its_share(const char *owner, size_t own, size_t all, size_t most)
{
	return is_limited(owner) && own >= most - all;
}

/* The owner's part of those that wait to be written: nearly in the order in which they were opened. */
static size_t pending_of(const struct incidents *incidents, const char *owner, size_t pending)
{
	uint64_t hash = map_hash(owner, strlen(owner));
	size_t own = 0;

	for (size_t i = 0; i < pending && i < INCIDENTS_PENDING_MAX; i++)
		own += incidents->opened_by[(incidents->counts.opened - 1 - i) % INCIDENTS_PENDING_MAX] == hash;
	return own;
}

/* Why no more may be opened; NULL: one may. */
static const char *why_refused(struct incidents *incidents, const char *owner)
{
	struct incidents_counts counts;
	const struct owner_share *share = share_of(incidents, owner);

	incidents_counts(incidents, &counts);
	if (counts.open >= INCIDENTS_OPEN_MAX)
		return "too many are open";
	if (counts.pending >= INCIDENTS_PENDING_MAX)
		return "too many wait to be written";
	if (incidents->windows_bytes > INCIDENTS_WINDOWS_BYTES / 4 * 3)
		return "those that are open have the memory that all may have";
	if (has_its_share(owner, share->open, counts.open, INCIDENTS_OPEN_MAX) ||
	    has_its_share(owner, pending_of(incidents, owner, counts.pending), counts.pending, INCIDENTS_PENDING_MAX))
		return "its user has its share of those that may be open";

	return NULL;
}

/* The same for a rule: many rules may fire on a busy machine, each within its own limits. */
static const char *why_rule_refused(struct incidents *incidents, const char *owner, mono_t now)
{
	uint32_t most = incidents->options.config->incidents.max_per_hour;

	if (mono_diff(now, incidents->hour) >= (int64_t)(3600 * NS_PER_S))
		forget_hour(incidents);
	if (most && incidents->in_hour >= most)
		return "there were incidents.max_per_hour within an hour";
	if (most && has_its_share(owner, share_of(incidents, owner)->in_hour, incidents->in_hour, most))
		return "its user has its share of incidents.max_per_hour";

	return why_refused(incidents, owner);
}

/* Logged when refusals begin and when they are over, not each time. */
static void refuse(struct incidents *incidents, const char *rule, const char *target, const char *why)
{
	struct log_about about = {
		.message = MESSAGE_INCIDENT_FAILED, .state = "begin", .rule = rule, .target = target
	};

	incidents->counts.refused++;
	if (incidents->refusing++ == 0)
		log_about(LOG_WARNING, &about,
			  "rule %s fired on %s, but no incident was opened: %s. What fires without one is counted",
			  rule, target, why);
}

/*
 * Opens it after it was described: the worker begins while this thread copies the past, which can take
 * longer than all before. -ENOMEM: it is freed.
 */
static int open_incident(struct incidents *incidents, struct open_incident *incident)
{
	const char *owner = incident->request->info.target.owner;
	struct log_about about = { .message = MESSAGE_INCIDENT_FAILED, .state = "end", .count = incidents->refusing };

	copy_info(&incident->request->info, incident->info);
	incident->request->owner = is_limited(owner) ? map_hash(owner, strlen(owner)) : 0;
	plan_follow_ups(incidents->options.config, incident->request);
	if (incident_worker_open(incidents->worker, incident->request, &incident->work) < 0) {
		incident->request = NULL;
		free_unopened(incident);
		return -ENOMEM;
	}

	if (incidents->refusing)
		log_about(LOG_NOTICE, &about, "incidents are opened again; %llu were not",
			  (unsigned long long)incidents->refusing);
	incidents->refusing = 0;
	incident->next = incidents->open;
	incidents->open = incident;
	incidents->counts.open++;
	incidents->opened_by[incidents->counts.opened++ % INCIDENTS_PENDING_MAX] =
		map_hash(incident->info->target.owner, strlen(incident->info->target.owner));
	share_of(incidents, incident->info->target.owner)->open++;

	return 0;
}

/* ---- the storm: firings without an incident of their own ---- */

static uint64_t row_hash(const char *rule, const char *key)
{
	return map_hash(rule, strlen(rule)) ^ map_hash(key, strlen(key)) * 31;
}

/* Its row, a new one if need be; the row of all others if there is no room. */
static struct storm_row *storm_row_of(struct storm *storm, const struct evaluator_firing *firing, const char *owner)
{
	uint64_t hash = row_hash(firing->rule->name, firing->target->key);
	struct storm_row *row = storm->rows;

	while (row < storm->rows + storm->count && (row->hash != hash || strcmp(row->rule, firing->rule->name) != 0 ||
						    strncmp(row->key, firing->target->key, sizeof row->key - 1) != 0))
		row++;
	if (row < storm->rows + storm->count)
		return row;
	if (storm->count == INCIDENTS_STORM_ROWS_MAX ||
	    vector_reserve(&storm->rows, &storm->cap, storm->count + 1, sizeof *storm->rows) < 0)
		return &storm->others;

	row = &storm->rows[storm->count++];
	*row = (struct storm_row){ .hash = hash };
	incident_text(row->rule, sizeof row->rule, firing->rule->name);
	incident_text(row->key, sizeof row->key, firing->target->key);
	incident_text(row->name, sizeof row->name, firing->target->name);
	incident_text(row->owner, sizeof row->owner, owner);

	return row;
}

static void storm_add(struct incidents *incidents, const struct evaluator_firing *firing, const char *owner,
		      const char *why)
{
	struct storm *storm = &incidents->storm;
	struct storm_row *row = storm_row_of(storm, firing, owner);
	struct incident_rule rule = { .has_value = false };
	uint64_t since_ns = 0; /* also of one sampled before the first: within a tick they fire in any order */

	describe_rule(incidents, firing, &rule);
	if (storm->firings++ == 0) {
		storm->first = storm->last = firing->to;
		storm->wall = firing->wall;
	}
	if (mono_diff(firing->to, storm->last) > 0)
		storm->last = firing->to;
	if (mono_diff(firing->to, storm->first) > 0)
		since_ns = (uint64_t)mono_diff(firing->to, storm->first);
	if (row->firings++ == 0)
		row->first_ns = since_ns;
	row->last_ns = since_ns;
	row->why = why;
	if (rule.has_value && (!row->has_value || rule.severity > row->severity)) {
		row->has_value = true;
		row->value = rule.value;
		row->severity = rule.severity;
		row->unit = metric_unit(firing->rule->metric);
	}
}

/* The worst first, then those that fired most. */
static int by_severity(const void *left, const void *right)
{
	const struct storm_row *a = left, *b = right;

	if (a->severity != b->severity)
		return a->severity > b->severity ? -1 : 1;
	return a->firings != b->firings ? (a->firings > b->firings ? -1 : 1) : 0;
}

static int write_row(struct buffer *text, const struct storm_row *row)
{
	char rule[4 * sizeof row->rule], name[4 * sizeof row->name], owner[4 * sizeof row->owner];
	char value[32] = "", worst[64] = "", line[2048];
	int len;

	text_escape(rule, sizeof rule, row->rule, strlen(row->rule));
	text_escape(name, sizeof name, row->name, strlen(row->name));
	text_escape(owner, sizeof owner, row->owner, strlen(row->owner));
	if (row->has_value) {
		snprintf(value, sizeof value, "%.6g", row->value);
		units_format(worst, sizeof worst, row->unit, row->value, UNITS_READING);
	}
	len = snprintf(line, sizeof line, "%ju\t%s\t%s\t%s\t%.2f\t%ju\t%ju\t%s\t%s\t%s\t%s\n", (uintmax_t)row->firings,
		       rule, name, worst, row->severity, (uintmax_t)row->first_ns, (uintmax_t)row->last_ns, value,
		       row->has_value ? units_name(row->unit) : "", owner, row->why);

	return buffer_append(text, line, (size_t)len);
}

static int write_storm(struct storm *storm, struct buffer *ret)
{
	static const char head[] =
		"firings\trule\ttarget\tworst\tseverity\tfirst_ns\tlast_ns\tvalue\tunit\towner\twhy\n";
	int r = buffer_append(ret, head, sizeof head - 1);

	qsort(storm->rows, storm->count, sizeof *storm->rows, by_severity);
	for (size_t i = 0; r == 0 && i < storm->count; i++)
		r = write_row(ret, &storm->rows[i]);
	if (r == 0 && storm->others.firings)
		r = write_row(ret, &storm->others);

	return r;
}

static void describe_storm(const struct incidents *incidents, struct incident *info)
{
	const struct storm *storm = &incidents->storm;
	double others = storm->others.severity;

	describe_moment(incidents, storm->first, storm->wall, info);
	info->kind = INCIDENT_STORM;
	info->window_to = storm->last;
	info->merged_total = storm->firings;
	incident_text(info->rule.name, sizeof info->rule.name, INCIDENT_STORM_RULE);
	incident_text(info->target.name, sizeof info->target.name, INCIDENT_STORM_TARGET);
	incident_text(info->target.owner, sizeof info->target.owner, INCIDENT_STORM_RULE);
	info->rule.severity = storm->count > 0 && storm->rows[0].severity > others ? storm->rows[0].severity : others;
}

static void log_storm(const struct storm *storm, const char *what)
{
	struct log_about about = { .message = MESSAGE_STORM, .count = storm->firings };
	double seconds = (double)mono_diff(storm->last, storm->first) / NS_PER_S;

	log_about(LOG_WARNING, &about,
		  "in %.0f s %ju firings of %zu rules and targets opened no incident of their own: %s", seconds,
		  (uintmax_t)storm->firings, storm->count + (storm->others.firings > 0), what);
}

/* NULL: nothing is to be told, or there is no memory. */
static struct notify_plan *plan_to_tell(const struct incidents *incidents, const struct incident *info)
{
	struct notify_plan *plan = NULL;

	notify_plan_new(incidents->options.config, info, &plan);

	return plan;
}

static void record_storm(struct incidents *incidents, mono_t now)
{
	struct incident *info = calloc(1, sizeof *info);
	struct storm *storm = &incidents->storm;
	AUTO(buffer_release) struct buffer text = { 0 };
	struct notify_plan *tell;
	char stem[INCIDENT_NAME_MAX + 1];
	int r = info ? write_storm(storm, &text) : -ENOMEM;

	if (r == 0) {
		describe_storm(incidents, info);
		incident_stem(info->wall, info->target.name, info->rule.name, stem, sizeof stem);
		tell = plan_to_tell(incidents, info);
		r = incident_worker_record(incidents->worker, TAKE(info), INCIDENT_STORM_FILE, &text, tell);
	}
	log_storm(storm, r < 0 ? "no memory to record them" : stem);
	if (r == 0)
		incidents->opened_by[incidents->counts.opened++ % INCIDENTS_PENDING_MAX] = 0;
	incidents->stormed = now;
	free(info);
	free(storm->rows);
	*storm = (struct storm){ 0 };
}

static void poll_storm(struct incidents *incidents, mono_t now)
{
	const struct storm *storm = &incidents->storm;
	bool spaced = !incidents->stormed.ns || mono_diff(now, incidents->stormed) >= (int64_t)INCIDENTS_STORM_MAX_NS;

	if (storm->firings && (mono_diff(now, storm->first) >= (int64_t)INCIDENTS_STORM_MAX_NS ||
			       (spaced && mono_diff(now, storm->last) >= (int64_t)INCIDENTS_STORM_CALM_NS)))
		record_storm(incidents, now);
}

enum incidents_answer incidents_fire(struct incidents *incidents, const struct evaluator_firing *firing)
{
	struct open_incident *incident = find_open(incidents, firing->target->key);
	char owner[INCIDENT_OWNER_MAX];
	const char *why;

	if (incident) {
		merge_firing(incidents, incident, firing);
		return INCIDENTS_MERGED;
	}
	find_owner(incidents, firing->target, owner);
	why = why_rule_refused(incidents, owner, firing->to);
	if (!why && new_incident(incidents, firing->target, firing->to, firing->wall, &incident) < 0)
		why = "no memory";
	if (!why) {
		describe_firing(incidents, firing, &incident->request->info);
		if (open_incident(incidents, incident) < 0)
			why = "no memory";
		else
			copy_past(incidents, incident);
	}
	if (why) {
		refuse(incidents, firing->rule->name, firing->target->name, why);
		storm_add(incidents, firing, owner, why);
		return INCIDENTS_REFUSED;
	}

	if (incidents->in_hour++ == 0)
		incidents->hour = firing->to;
	share_of(incidents, owner)->in_hour++;
	log_fired(firing, "");

	return INCIDENTS_OPENED;
}

/* ---- by hand ---- */

static void log_asked(const struct target *target, const char *what)
{
	const char *name = target ? target->name : "everything";
	struct log_about about = { .rule = INCIDENT_MANUAL_RULE,
				   .target = target ? target->name : INCIDENT_EVERYTHING };

	log_about(LOG_NOTICE, &about, "an incident of %s was asked for by hand%s%s", name, *what ? ": " : "", what);
}

static void merge_request(struct incidents *incidents, struct open_incident *incident, wall_t wall)
{
	struct incident_firing more = { .kind = INCIDENT_MANUAL, .wall = wall };

	incident_text(more.rule, sizeof more.rule, INCIDENT_MANUAL_RULE);
	incident_merge(incident->info, &more);
	if (incident->info->rule.severity < INCIDENT_MANUAL_SEVERITY)
		incident->info->rule.severity = INCIDENT_MANUAL_SEVERITY;
	incidents->counts.merged++;
}

static int give_ticket(const struct incidents *incidents, const struct open_incident *incident, mono_t now,
		       struct incidents_ticket *ret)
{
	const struct incident_request *request = incident->request;
	int64_t left = mono_diff(mono_add(request->fired, request->settings.after_ns), now);

	ret->sealed_in_ns = left > 0 ? (uint64_t)left : 0;
	ret->directory = spool_path(incidents->options.spool);
	incident_stem(request->wall, request->target.name, request->info.rule.name, ret->stem, sizeof ret->stem);

	return 0;
}

int incidents_trigger(struct incidents *incidents, const struct target *target, struct incidents_ticket *ret)
{
	struct open_incident *incident = find_open(incidents, target ? target->key : NULL);
	mono_t now = clock_mono(&incidents->clock);
	wall_t wall = clock_wall(&incidents->clock);
	char owner[INCIDENT_OWNER_MAX] = "root";
	const char *why;

	*ret = (struct incidents_ticket){ .why = "", .directory = spool_path(incidents->options.spool) };
	incidents->counts.manual++;
	if (incident) {
		merge_request(incidents, incident, wall);
		log_asked(target, "merged into the one that is open");
		ret->answer = INCIDENTS_MERGED;
		return give_ticket(incidents, incident, now, ret);
	}
	if (target)
		find_owner(incidents, target, owner);
	why = why_refused(incidents, owner);
	if (!why && incidents->space.is_short)
		why = "too little disk space";
	if (!why && new_incident(incidents, target, now, wall, &incident) < 0)
		why = "no memory";
	if (!why) {
		incident->followed = target ? (mono_t){ 0 } : now;
		describe_request(incidents, target, now, wall, &incident->request->info);
		if (open_incident(incidents, incident) < 0)
			why = "no memory";
		else if (target)
			copy_past(incidents, incident);
	}
	if (why) {
		incidents->counts.refused++;
		log_asked(target, why);
		ret->answer = INCIDENTS_REFUSED;
		ret->why = why;
		return 0;
	}

	log_asked(target, "");
	ret->answer = INCIDENTS_OPENED;

	return give_ticket(incidents, incident, now, ret);
}

/* ---- the ring's events ---- */

void incidents_tick(struct incidents *incidents, mono_t at, uint64_t idle_ns, uint32_t writer)
{
	incidents->tick = at;
	incidents->writer = writer;
	for (struct open_incident *incident = incidents->open; incident; incident = incident->next)
		if (incident->window && is_of_writer(incident, writer) && mono_diff(at, incident->followed) > 0)
			sample_window_tick(incident->window, at, idle_ns);
}

/* Ticks that copy_past has read come again here: they are skipped. */
static bool is_new(const struct incidents *incidents, const struct open_incident *incident)
{
	return mono_diff(incidents->tick, incident->followed) > 0;
}

void incidents_hole(struct incidents *incidents, const struct sampling_hole *hole)
{
	for (struct open_incident *incident = incidents->open; incident; incident = incident->next)
		if (incident->window && is_of_writer(incident, incidents->writer) && is_new(incidents, incident))
			sample_window_hole(incident->window, hole);
}

static bool is_of_target(const struct open_incident *incident, uint32_t id)
{
	return incident->window && incident->request->target.id == id;
}

void incidents_sample(struct incidents *incidents, uint32_t id, mono_t at, const struct sample *sample)
{
	for (struct open_incident *incident = incidents->open; incident; incident = incident->next)
		if (is_of_target(incident, id) && is_new(incidents, incident)) {
			incident->writer = incidents->writer;
			sample_window_add(incident->window, at, sample);
		}
}

void incidents_gone(struct incidents *incidents, uint32_t id, mono_t at)
{
	for (struct open_incident *incident = incidents->open; incident; incident = incident->next)
		if (is_of_target(incident, id))
			sample_window_gone(incident->window, at);
}

void incidents_gap(struct incidents *incidents, mono_t at, uint64_t lost_pages)
{
	for (struct open_incident *incident = incidents->open; incident; incident = incident->next)
		if (incident->window)
			sample_window_gap(incident->window, at, lost_pages);
}

/* ---- closing ---- */

static bool is_over(const struct open_incident *incident, mono_t now)
{
	const struct incident_request *request = incident->request;

	return incident->window ? sample_window_end(incident->window, now, request->settings.interval_ns)
				: mono_diff(now, mono_add(request->fired, request->settings.after_ns)) > 0;
}

static void follow_everything(struct incidents *incidents, struct open_incident *incident, mono_t now)
{
	if (incident->window || mono_diff(now, incident->followed) < (int64_t)FOLLOW_NS)
		return;

	incident->followed = now;
	incident_worker_follow(incidents->worker, incident->work);
}

static void close_incident(struct incidents *incidents, struct open_incident **at, bool over)
{
	struct open_incident *incident = *at;

	struct owner_share *share = share_of(incidents, incident->info->target.owner);

	*at = incident->next;
	incidents->counts.open--;
	share->open -= share->open > 0;
	incident_worker_seal(incidents->worker, incident->work, incident->window, over, incident->info,
			     plan_to_tell(incidents, incident->info));
	free(incident);
}

void incidents_poll(struct incidents *incidents, mono_t now)
{
	for (struct open_incident **at = &incidents->open; *at;) {
		if (is_over(*at, now)) {
			close_incident(incidents, at, true);
			continue;
		}
		follow_everything(incidents, *at, now);
		at = &(*at)->next;
	}
	poll_storm(incidents, now);
	poll_space(incidents, now);
	if (mono_diff(now, incidents->enforced) > (int64_t)ENFORCE_NS) {
		incidents->enforced = now;
		incident_worker_enforce(incidents->worker);
	}
}

bool incidents_finish(struct incidents *incidents)
{
	while (incidents->open)
		close_incident(incidents, &incidents->open, false);
	if (incidents->storm.firings)
		record_storm(incidents, clock_mono(&incidents->clock));

	return incident_worker_stop(incidents->worker);
}

/* ---- the object ---- */

int incidents_new(const struct incidents_options *options, struct incidents **ret)
{
	struct incidents *incidents = calloc(1, sizeof *incidents);
	int r;

	if (!incidents)
		return -ENOMEM;

	incidents->options = *options;
	incidents->clock = real_clock();
	r = notifier_new(&incidents->notifier);
	if (r == 0)
		r = incident_worker_new(options->session, options->spool, incidents->notifier,
					options->config->stuck_ns, &incidents->worker);
	if (r < 0) {
		notifier_free(incidents->notifier, 0);
		free(incidents);
		return r;
	}
	*ret = incidents;

	return 0;
}

bool incidents_free(struct incidents *incidents)
{
	bool ended = !incidents || incidents_finish(incidents);

	if (incidents)
		incident_worker_free(incidents->worker);
	if (incidents && ended)
		notifier_free(incidents->notifier, NOTIFY_STOP_NS);
	if (ended)
		free(incidents); /* or windows that the worker has still refer to it */

	return ended;
}

void incidents_reload(struct incidents *incidents, const struct config *config)
{
	struct retention_limits limits = retention_limits_of(config);

	incidents->options.config = config;
	incidents->space.checked = (mono_t){ 0 };
	spool_set_limits(incidents->options.spool, &limits);
}

mono_t incidents_busy_since(const struct incidents *incidents)
{
	return incident_worker_busy_since(incidents->worker);
}

bool incidents_is_open(const struct incidents *incidents, const char *key)
{
	return find_open(incidents, key) != NULL;
}

void incidents_counts(struct incidents *incidents, struct incidents_counts *ret)
{
	struct incident_worker_counts written = incident_worker_counts(incidents->worker);

	*ret = incidents->counts;
	ret->notifier = incidents->notifier;
	ret->sealed = written.sealed;
	ret->failed = written.failed;
	ret->removed = written.removed;
	ret->captures_unsaved = written.held;
	ret->captures_unsaved_bytes = written.held_bytes;
	ret->pending = (size_t)(ret->opened - ret->sealed - ret->failed);
	ret->storm_firings = incidents->storm.firings;
	ret->storm_rows = incidents->storm.count + (incidents->storm.others.firings > 0);
	ret->storm_since = incidents->storm.first;
	for (const struct open_incident *incident = incidents->open; incident; incident = incident->next) {
		mono_t end = mono_add(incident->request->fired, incident->request->settings.after_ns);

		if (ret->ends.ns == 0 || mono_diff(end, ret->ends) < 0)
			ret->ends = end;
	}
}
