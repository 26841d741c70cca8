/*
 * incident_fields.c: the table. Rows stand in the order of the file. The values of thresholds are those of the rule
 * after its configuration was checked; units are in the names of the keys, and those of value, average and thresholds
 * in "unit".
 */
#include "incident_fields.h"
#include "scope.h"

static const char *kind_name(unsigned value)
{
	return value <= INCIDENT_RECOVERED ? incident_kind_name(value) : NULL;
}

static const char *target_name(unsigned value)
{
	return value >= TARGET_PROCESS && value <= TARGET_GROUP ? target_kind_name(value) : NULL;
}

static const char *status_name(unsigned value)
{
	return value <= INCIDENT_CAPTURE_FAILED ? incident_capture_status_name(value) : NULL;
}

/* As the configuration writes them. */
static const char *rearm_name(unsigned value)
{
	static const char *const names[] = {
		[TRIGGER_REARM_COOLDOWN] = "cooldown",
		[TRIGGER_REARM_BELOW] = "below",
		[TRIGGER_REARM_HIGH_WATER] = "high-water",
	};

	return value < ARRAY_LEN(names) ? names[value] : NULL;
}

/* clang-format off */
#define PLAIN(k, t, s, m)     { .key = k, .type = t, .offset = offsetof(struct s, m), .has = INCIDENT_ALWAYS }
#define STRING(k, s, m)       { .key = k, .type = INCIDENT_TEXT, .offset = offsetof(struct s, m), \
				.room = sizeof(((struct s *)NULL)->m), .has = INCIDENT_ALWAYS }
#define MAYBE(k, t, s, m, h)  { .key = k, .type = t, .offset = offsetof(struct s, m), .has = offsetof(struct s, h) }
#define WORD(k, s, m, w)      { .key = k, .type = INCIDENT_NAME, .offset = offsetof(struct s, m), \
				.has = INCIDENT_ALWAYS, .name = w }
#define SPARSE(k, t, s, m, h) { .key = k, .type = t, .offset = offsetof(struct s, m), .has = offsetof(struct s, h), \
				.sparse = true }
#define SPARSE_STRING(k, s, m) { .key = k, .type = INCIDENT_TEXT, .offset = offsetof(struct s, m), \
				.room = sizeof(((struct s *)NULL)->m), .has = INCIDENT_ALWAYS, .sparse = true }

static const struct incident_field top_fields[] = {
	PLAIN("spikewatch_incident", INCIDENT_U32, incident, format),
	STRING("version",    incident, version),
	STRING("id",         incident, id),
	WORD("kind",         incident, kind, kind_name),
};

static const struct incident_field time_fields[] = {
	PLAIN("wall_ns",                  INCIDENT_U64, incident, wall.ns),
	PLAIN("monotonic_ns",             INCIDENT_U64, incident, mono.ns),
	PLAIN("window_from_monotonic_ns", INCIDENT_U64, incident, window_from.ns),
	PLAIN("window_to_monotonic_ns",   INCIDENT_U64, incident, window_to.ns),
};

static const struct incident_field machine_fields[] = {
	STRING("hostname", incident, hostname),
	STRING("kernel",   incident, kernel),
	STRING("boot_id",  incident, boot_id),
};

static const struct incident_field rule_fields[] = {
	STRING("name",             incident, rule.name),
	STRING("metric",           incident, rule.metric),
	STRING("of",               incident, rule.of),
	STRING("unit",             incident, rule.unit),
	STRING("reason",           incident, rule.reason),
	MAYBE("value",       INCIDENT_REAL, incident, rule.value, rule.has_value),
	MAYBE("average",     INCIDENT_REAL, incident, rule.average, rule.has_average),
	MAYBE("threshold",   INCIDENT_REAL, incident, rule.thresholds.percent, rule.thresholds.has_percent),
	MAYBE("delta_percent", INCIDENT_REAL, incident, rule.thresholds.delta, rule.thresholds.has_delta),
	MAYBE("minimum",     INCIDENT_REAL, incident, rule.thresholds.minimum, rule.thresholds.has_minimum),
	MAYBE("maximum",     INCIDENT_REAL, incident, rule.thresholds.maximum, rule.thresholds.has_maximum),
	PLAIN("severity",    INCIDENT_REAL, incident, rule.severity),
	PLAIN("window_ns",    INCIDENT_U64, incident, rule.window_ns),
	PLAIN("for_ns",       INCIDENT_U64, incident, rule.thresholds.for_ns),
	PLAIN("warmup_windows", INCIDENT_U32, incident, rule.thresholds.warmup),
	PLAIN("history_windows", INCIDENT_U32, incident, rule.thresholds.history),
	PLAIN("cooldown_ns",  INCIDENT_U64, incident, rule.thresholds.cooldown_ns),
	WORD("rearm",              incident, rule.thresholds.rearm, rearm_name),
	PLAIN("count_limit",  INCIDENT_U32, incident, rule.thresholds.count),
	PLAIN("count_period_ns", INCIDENT_U64, incident, rule.thresholds.count_period_ns),
	PLAIN("count",        INCIDENT_U32, incident, rule.count),
	PLAIN("fired",        INCIDENT_U64, incident, rule.fired),
};

static const struct incident_field target_fields[] = {
	WORD("kind",             incident, target.kind, target_name),
	STRING("name",           incident, target.name),
	STRING("entry",          incident, target.entry),
	STRING("key",            incident, target.key),
	PLAIN("pid",        INCIDENT_I32, incident, target.pid),
	PLAIN("start_ticks", INCIDENT_U64, incident, target.start_ticks),
	STRING("comm",           incident, target.comm),
	STRING("cmdline",        incident, target.cmdline),
	STRING("cgroup",         incident, target.cgroup),
};

static const char *runtime_name(unsigned value)
{
	return value < CONTAINER_RUNTIMES ? container_runtime_name(value) : NULL;
}

static const struct incident_field container_fields[] = {
	WORD("runtime",                incident, container.runtime, runtime_name),
	STRING("id",                   incident, container.id),
	SPARSE_STRING("name",          incident, container.name),
	SPARSE_STRING("namespace",     incident, container.space),
	SPARSE_STRING("pod",           incident, container.pod),
	SPARSE_STRING("image",         incident, container.image),
};

static const struct incident_field unit_fields[] = {
	STRING("name",                 incident, unit.name),
	STRING("state",                incident, unit.state),
	STRING("invocation_id",        incident, unit.invocation_id),
	SPARSE("main_pid",   INCIDENT_U32, incident, unit.main_pid, unit.has_main_pid),
	SPARSE("restarts",   INCIDENT_U32, incident, unit.restarts, unit.has_restarts),
	SPARSE("running_ns", INCIDENT_U64, incident, unit.running_ns, unit.has_running),
};

static const struct incident_field limits_fields[] = {
	PLAIN("cpu_ns_per_second", INCIDENT_LIMIT, incident, limits.cpu),
	PLAIN("cpu_is_machine",  INCIDENT_FLAG, incident, limits.cpu_is_machine),
	STRING("cpu_from",             incident, limits.cpu_from),
	PLAIN("memory_bytes",   INCIDENT_LIMIT, incident, limits.memory_bytes),
	PLAIN("memory_is_machine", INCIDENT_FLAG, incident, limits.memory_is_machine),
	STRING("memory_from",          incident, limits.memory_from),
};

static const struct incident_field coverage_fields[] = {
	PLAIN("want_before_ns",  INCIDENT_U64, incident, coverage.want_before_ns),
	PLAIN("want_after_ns",   INCIDENT_U64, incident, coverage.want_after_ns),
	PLAIN("got_from_ns",     INCIDENT_I64, incident, coverage.got_from_ns),
	PLAIN("got_to_ns",       INCIDENT_I64, incident, coverage.got_to_ns),
	PLAIN("ticks_expected",  INCIDENT_U64, incident, coverage.ticks_expected),
	PLAIN("ticks_got",       INCIDENT_U64, incident, coverage.ticks_got),
	PLAIN("capture_rate",   INCIDENT_REAL, incident, coverage.capture_rate),
	PLAIN("samples",         INCIDENT_U64, incident, coverage.samples),
	PLAIN("samples_dropped", INCIDENT_U64, incident, coverage.samples_dropped),
	PLAIN("gaps",            INCIDENT_U64, incident, coverage.gaps),
	PLAIN("lost_pages",      INCIDENT_U64, incident, coverage.lost_pages),
	MAYBE("target_gone_ns",  INCIDENT_I64, incident, coverage.gone_ns, coverage.gone),
};

static const struct incident_field peaks_fields[] = {
	MAYBE("cpu_cores",         INCIDENT_REAL, incident, peaks.cpu_cores, peaks.has_cpu),
	MAYBE("cpu_percent",       INCIDENT_REAL, incident, peak_cpu_percent, peaks.has_cpu),
	PLAIN("cpu_window_ns",      INCIDENT_U64, incident, peaks.cpu_window_ns),
	MAYBE("memory_bytes",       INCIDENT_U64, incident, peaks.memory_bytes, peaks.has_memory),
	MAYBE("memory_peak_bytes",  INCIDENT_U64, incident, peaks.memory_peak_bytes, peaks.has_memory_peak),
};

static const struct incident_field cost_fields[] = {
	PLAIN("interval_ns",         INCIDENT_U64, incident, cost.interval_ns),
	PLAIN("idle_interval_ns",    INCIDENT_U64, incident, cost.idle_ns),
	PLAIN("sampler_cpu_percent", INCIDENT_REAL, incident, cost.cpu_percent),
	PLAIN("mean_sleep_error_ns", INCIDENT_U64, incident, cost.mean_sleep_error_ns),
	PLAIN("mean_collection_ns",  INCIDENT_U64, incident, cost.mean_collection_ns),
	PLAIN("missed_slots",        INCIDENT_U64, incident, cost.missed_slots),
};

static const struct incident_field firing_fields[] = {
	WORD("kind",          incident_firing, kind, kind_name),
	PLAIN("wall_ns", INCIDENT_U64, incident_firing, wall.ns),
	STRING("rule",        incident_firing, rule),
	MAYBE("value",  INCIDENT_REAL, incident_firing, value, has_value),
};

static const struct incident_field capture_fields[] = {
	STRING("name",      incident_capture, name),
	STRING("file",      incident_capture, file),
	PLAIN("bytes", INCIDENT_U64, incident_capture, bytes),
	WORD("status",      incident_capture, status, status_name),
	STRING("why",       incident_capture, why),
	SPARSE_STRING("again_of",   incident_capture, again_of),
	SPARSE("at_ns",       INCIDENT_I64, incident_capture, at_ns, has_at),
	SPARSE("duration_ns", INCIDENT_U64, incident_capture, duration_ns, has_duration),
	SPARSE("exit_status", INCIDENT_I32, incident_capture, exit_status, has_exit),
	SPARSE("signal",      INCIDENT_I32, incident_capture, signal, has_signal),
};

#define PART(k, f) { k, f, ARRAY_LEN(f), INCIDENT_ALWAYS }
static const struct incident_fields parts[] = {
	[INCIDENT_PART_TOP] = PART(NULL, top_fields),
	[INCIDENT_PART_TIME] = PART("time", time_fields),
	[INCIDENT_PART_RULE] = PART("rule", rule_fields),
	[INCIDENT_PART_TARGET] = PART("target", target_fields),
	[INCIDENT_PART_CONTAINER] = { "container", container_fields, ARRAY_LEN(container_fields), offsetof(struct incident, has_container) },
	[INCIDENT_PART_UNIT] = { "unit", unit_fields, ARRAY_LEN(unit_fields), offsetof(struct incident, has_unit) },
	[INCIDENT_PART_LIMITS] = PART("limits", limits_fields),
	[INCIDENT_PART_COVERAGE] = PART("coverage", coverage_fields),
	[INCIDENT_PART_PEAKS] = PART("peaks", peaks_fields),
	[INCIDENT_PART_COST] = PART("cost", cost_fields),
	[INCIDENT_PART_MACHINE] = PART("machine", machine_fields),
	[INCIDENT_PART_FIRING] = PART(NULL, firing_fields),
	[INCIDENT_PART_CAPTURE] = PART(NULL, capture_fields),
};
/* clang-format on */

_Static_assert(sizeof(enum incident_kind) == sizeof(unsigned), "fields of type NAME are copied as unsigned");

const struct incident_fields *incident_fields(enum incident_part part)
{
	return &parts[part];
}
