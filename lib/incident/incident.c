/*
 * incident.c: the value, its names, and incident.json.
 *
 * Strings are cut at a UTF-8 character to fit plain arrays, so that filling in an incident cannot
 * fail while the machine is short of memory.
 *
 * One table has the place in struct incident and the type of every key of incident.json; writing
 * and reading both walk it. Only the two lists (merged firings, captures), the labels, the summary
 * and times as text are code. Units are in the names of the keys, those of value, average and
 * thresholds in "unit".
 *
 * A file may come from another machine or version: strings are cut to their room, numbers must fit
 * their type exactly, null means unknown, unknown keys and words are ignored. They need not be
 * kept, because no program rewrites an incident.
 */
#include "lib/incident/incident.h"

#include "lib/base/json.h"
#include "lib/base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define INCIDENT_FORMAT 1 /* raised when an older reader would misunderstand; new keys do not raise it */

enum incident_field_type {
	INCIDENT_TEXT, /* an array of char */
	INCIDENT_FLAG, /* bool */
	INCIDENT_U32,
	INCIDENT_U64,
	INCIDENT_LIMIT, /* uint64_t; UINT64_MAX is null */
	INCIDENT_I32,
	INCIDENT_I64,
	INCIDENT_REAL, /* double */
	INCIDENT_NAME, /* an enumeration */
};

#define INCIDENT_ALWAYS SIZE_MAX
#define INCIDENT_NAMES_MAX 8 /* no enumeration here has more values */

struct incident_field {
	const char *key;
	enum incident_field_type type;
	size_t offset; /* in the struct of its part */
	size_t room;   /* TEXT: bytes, the NUL included */
	size_t has;    /* offset of the bool without which there is no value; INCIDENT_ALWAYS: none */
	bool sparse;   /* without a value (TEXT: if it is "") there is no key either; else it is null */
	const char *(*name)(unsigned value); /* NAME: the word for a value, NULL beyond them */
};

/* The objects of the file. All but the last two are parts of struct incident. */
enum incident_part {
	INCIDENT_PART_TOP, /* keys of the outermost object */
	INCIDENT_PART_TIME,
	INCIDENT_PART_RULE, /* from here to MACHINE an object holds nothing but the fields of the table */
	INCIDENT_PART_TARGET,
	INCIDENT_PART_CONTAINER, /* not there without one */
	INCIDENT_PART_UNIT,      /* not there without one */
	INCIDENT_PART_LIMITS,
	INCIDENT_PART_COVERAGE,
	INCIDENT_PART_PEAKS,
	INCIDENT_PART_COST,
	INCIDENT_PART_MACHINE,
	INCIDENT_PART_FIRING,  /* an item of "merged": struct incident_firing */
	INCIDENT_PART_CAPTURE, /* an item of "captures": struct incident_capture */
};

struct incident_fields {
	const char *key; /* of the object; NULL if it is the outermost or an item of a list */
	const struct incident_field *fields;
	size_t count;
	size_t has; /* offset of the bool without which there is no such object; INCIDENT_ALWAYS: none */
};

/* ---- the table: rows in the order of the file ---- */

static const char *kind_name(unsigned value)
{
	return value <= INCIDENT_STORM ? incident_kind_name(value) : NULL;
}

static const char *target_name(unsigned value)
{
	return value >= TARGET_PROCESS && value <= TARGET_GROUP ? target_kind_name(value) : NULL;
}

static const char *status_name(unsigned value)
{
	return value <= INCIDENT_CAPTURE_FAILED ? incident_capture_status_name(value) : NULL;
}

static const char *usual_name(unsigned value)
{
	return value <= TRIGGER_USUAL_HIGHEST ? trigger_usual_name(value) : NULL;
}

static const char *rearm_name(unsigned value)
{
	return value <= TRIGGER_REARM_HIGH_WATER ? trigger_rearm_name(value) : NULL;
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
	PLAIN("window_unsampled_ns",      INCIDENT_U64, incident, window_unsampled_ns),
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
	WORD("usual",              incident, rule.thresholds.usual, usual_name),
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
	SPARSE_STRING("owner",   incident, target.owner),
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
	PLAIN("holes",           INCIDENT_U64, incident, coverage.holes),
	PLAIN("onset_late_ns",   INCIDENT_U64, incident, coverage.onset_late_ns),
	PLAIN("cpu_late_ns",     INCIDENT_U64, incident, coverage.cpu_late_ns),
	PLAIN("missed_slots",    INCIDENT_U64, incident, coverage.missed_slots),
	PLAIN("unsampled_ns",    INCIDENT_U64, incident, coverage.unsampled_ns),
	PLAIN("longest_hole_ns", INCIDENT_U64, incident, coverage.longest_hole_ns),
	PLAIN("suspends",        INCIDENT_U64, incident, coverage.suspends),
	PLAIN("suspended_ns",    INCIDENT_U64, incident, coverage.suspended_ns),
	MAYBE("target_gone_ns",  INCIDENT_I64, incident, coverage.gone_ns, coverage.gone),
	SPARSE_STRING("ended_cpu", incident, ended_cpu),
	SPARSE("ended_cpu_lack_ns", INCIDENT_U64, incident, ended_cpu_lack_ns, has_ended_cpu_lack),
};

static const struct incident_field peaks_fields[] = {
	MAYBE("cpu_cores",         INCIDENT_REAL, incident, peaks.cpu_cores, peaks.has_cpu),
	MAYBE("cpu_percent",       INCIDENT_REAL, incident, peak_cpu_percent, peaks.has_cpu),
	PLAIN("cpu_window_ns",      INCIDENT_U64, incident, peaks.cpu_window_ns),
	MAYBE("memory_bytes",       INCIDENT_U64, incident, peaks.memory_bytes, peaks.has_memory),
	MAYBE("memory_peak_bytes",  INCIDENT_U64, incident, peaks.memory_peak_bytes, peaks.has_memory_peak),
};

static const struct incident_field cost_fields[] = {
	SPARSE_STRING("cpu_time_source", incident, cost.cpu_time_source),
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
	[INCIDENT_PART_CONTAINER] = { "container", container_fields, ARRAY_LEN(container_fields),
				      offsetof(struct incident, has_container) },
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

/* ---- writing ---- */

static void put_field(struct json_writer *writer, const struct incident_field *field, const void *base)
{
	const char *at = (const char *)base + field->offset;
	const char *name;
	unsigned word;

	bool has = field->has == INCIDENT_ALWAYS || *((const bool *)base + field->has);

	if (field->sparse && (!has || (field->type == INCIDENT_TEXT && *at == '\0')))
		return;
	json_key(writer, field->key);
	if (!has) {
		json_null(writer);
		return;
	}
	switch (field->type) {
	case INCIDENT_TEXT:
		printable_json(writer, at);
		break;
	case INCIDENT_FLAG:
		json_bool(writer, *(const bool *)at);
		break;
	case INCIDENT_U32:
		json_u64(writer, *(const uint32_t *)at);
		break;
	case INCIDENT_LIMIT:
		if (*(const uint64_t *)at == UINT64_MAX) {
			json_null(writer);
			break;
		}
		/* fall through */
	case INCIDENT_U64:
		json_u64(writer, *(const uint64_t *)at);
		break;
	case INCIDENT_I32:
		json_i64(writer, *(const int32_t *)at);
		break;
	case INCIDENT_I64:
		json_i64(writer, *(const int64_t *)at);
		break;
	case INCIDENT_REAL:
		json_double(writer, *(const double *)at);
		break;
	case INCIDENT_NAME:
		memcpy(&word, at, sizeof(word));
		name = field->name(word);
		if (name)
			json_string(writer, name);
		else
			json_null(writer);
		break;
	}
}

static void put_fields(struct json_writer *writer, const struct incident_fields *part, const void *base)
{
	for (size_t i = 0; i < part->count; i++)
		put_field(writer, &part->fields[i], base);
}

/* Larger values are not formatted with a unit for people. */
#define VALUE_MAX 1e18

/* "76.8%", "181 MiB"; the plain number if the unit is unknown or the value out of range. */
static const char *value_text(const struct incident_rule *rule, double value, char *buf, size_t cap)
{
	enum unit_kind unit = units_by_name(rule->unit);

	if (unit != UNIT_NUMBER && value >= 0 && value < VALUE_MAX)
		return units_format(buf, cap, unit, value, UNITS_READING);
	snprintf(buf, cap, "%.6g %s", value, rule->unit);
	return buf;
}

/* One sentence for people; not read back. */
static void put_summary(struct json_writer *writer, const struct incident *incident)
{
	const struct incident_rule *rule = &incident->rule;
	char text[512], value[64];
	int len;

	if (incident->kind == INCIDENT_MANUAL)
		len = snprintf(text, sizeof(text), "asked for by hand: %s", incident->target.name);
	else if (incident->kind == INCIDENT_STORM)
		len = snprintf(text, sizeof(text), "%ju firings opened no incident of their own",
			       (uintmax_t)incident->merged_total);
	else if (incident->kind != INCIDENT_RULE)
		len = snprintf(text, sizeof(text), "%s incident of %s", incident_kind_name(incident->kind),
			       incident->target.name);
	else
		len = snprintf(text, sizeof(text), "rule %s fired on %s: %s was %s (%s)", rule->name,
			       incident->target.name, rule->metric, value_text(rule, rule->value, value, sizeof(value)),
			       rule->reason);
	if (incident->kind == INCIDENT_RULE && len > 0 && rule->thresholds.has_percent && (size_t)len < sizeof(text))
		snprintf(text + len, sizeof(text) - (size_t)len, ", threshold %s",
			 value_text(rule, rule->thresholds.percent, value, sizeof(value)));
	json_key(writer, "summary");
	printable_json(writer, text);
}

/* "2026-11-20T03:15:02.123456789Z" */
static void put_utc(struct json_writer *writer, wall_t wall)
{
	time_t seconds = (time_t)(wall.ns / NS_PER_S);
	char when[32] = "", text[48];
	struct tm utc = { 0 };

	gmtime_r(&seconds, &utc);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &utc);
	snprintf(text, sizeof(text), "%s.%09juZ", when, (uintmax_t)(wall.ns % NS_PER_S));
	json_key(writer, "utc");
	json_string(writer, text);
}

/* Of the target, behind its fields. */
static void put_labels(struct json_writer *writer, const struct labels *labels)
{
	if (labels->count == 0 && labels->left_out == 0)
		return;
	labels_json(writer, "labels", labels);
	if (labels->left_out > 0)
		json_member_u64(writer, "labels_left_out", labels->left_out);
}

static void put_part(struct json_writer *writer, const struct incident_fields *part, const struct incident *base)
{
	if (part->has != INCIDENT_ALWAYS && !*((const bool *)base + part->has))
		return;
	json_key(writer, part->key);
	json_begin_object(writer);
	put_fields(writer, part, base);
	if (part == &parts[INCIDENT_PART_TARGET])
		put_labels(writer, &base->labels);
	json_end_object(writer);
}

static void put_lists(struct json_writer *writer, const struct incident *incident)
{
	json_key(writer, "merged_total");
	json_u64(writer, incident->merged_total);
	json_key(writer, "merged");
	json_begin_array(writer);
	for (size_t i = 0; i < incident->merged_count; i++) {
		json_begin_object(writer);
		put_utc(writer, incident->merged[i].wall);
		put_fields(writer, &parts[INCIDENT_PART_FIRING], &incident->merged[i]);
		json_end_object(writer);
	}
	json_end_array(writer);

	json_key(writer, "captures");
	json_begin_array(writer);
	for (size_t i = 0; i < incident->capture_count; i++) {
		json_begin_object(writer);
		put_fields(writer, &parts[INCIDENT_PART_CAPTURE], &incident->captures[i]);
		json_end_object(writer);
	}
	json_end_array(writer);
}

int incident_json_write(const struct incident *incident, struct sink sink)
{
	struct json_writer *writer;
	int r;

	r = json_writer_new(sink, true, &writer);
	if (r < 0)
		return r;

	json_begin_object(writer);
	put_fields(writer, &parts[INCIDENT_PART_TOP], incident);
	put_summary(writer, incident);
	json_key(writer, parts[INCIDENT_PART_TIME].key);
	json_begin_object(writer);
	put_utc(writer, incident->wall);
	put_fields(writer, &parts[INCIDENT_PART_TIME], incident);
	json_end_object(writer);
	for (unsigned i = INCIDENT_PART_RULE; i <= INCIDENT_PART_MACHINE; i++)
		put_part(writer, &parts[i], incident);
	put_lists(writer, incident);
	json_end_object(writer);
	return json_writer_close(writer); /* the first error of all of the above */
}

/* ---- reading ---- */

/* A whole number as written, exactly: no fraction, no exponent. */
static bool read_whole(const struct json_node *node, bool *ret_negative, uint64_t *ret)
{
	const char *at = node->text, *end = at + node->text_len;

	*ret_negative = at < end && *at == '-';
	return text_parse_u64(at + *ret_negative, end, ret) == end;
}

static int take_whole(const struct json_node *node, enum incident_field_type type, void *at)
{
	bool negative;
	uint64_t value;

	if (node->type != JSON_NUMBER || !read_whole(node, &negative, &value))
		return -EBADMSG;
	if (type == INCIDENT_U64 || type == INCIDENT_LIMIT || type == INCIDENT_U32) {
		if (negative || (type == INCIDENT_U32 && value > UINT32_MAX))
			return -EBADMSG;
		if (type == INCIDENT_U32)
			*(uint32_t *)at = (uint32_t)value;
		else
			*(uint64_t *)at = value;
		return 0;
	}
	if (value > (uint64_t)(type == INCIDENT_I32 ? INT32_MAX : INT64_MAX))
		return -EBADMSG;
	if (type == INCIDENT_I32)
		*(int32_t *)at = negative ? -(int32_t)value : (int32_t)value;
	else
		*(int64_t *)at = negative ? -(int64_t)value : (int64_t)value;
	return 0;
}

/* An unknown word (of a later version) leaves the value as it was. */
static int take_name(const struct json_node *node, const struct incident_field *field, void *at)
{
	if (node->type != JSON_STRING)
		return -EBADMSG;
	for (unsigned value = 0; value < INCIDENT_NAMES_MAX; value++) {
		const char *name = field->name(value);

		if (name && strcmp(name, node->text) == 0)
			memcpy(at, &value, sizeof(value));
	}
	return 0;
}

static int take_value(const struct json_node *node, const struct incident_field *field, void *at)
{
	switch (field->type) {
	case INCIDENT_TEXT:
		if (node->type != JSON_STRING)
			return -EBADMSG;
		incident_text(at, field->room, node->text);
		return 0;
	case INCIDENT_FLAG:
		if (node->type != JSON_BOOL)
			return -EBADMSG;
		*(bool *)at = node->boolean;
		return 0;
	case INCIDENT_REAL:
		if (node->type != JSON_NUMBER || !isfinite(node->number))
			return -EBADMSG;
		*(double *)at = node->number;
		return 0;
	case INCIDENT_NAME:
		return take_name(node, field, at);
	default:
		return take_whole(node, field->type, at);
	}
}

static int take_fields(const struct json_node *object, const struct incident_fields *part, void *base)
{
	if (object->type != JSON_OBJECT)
		return -EBADMSG;
	for (size_t i = 0; i < part->count; i++) {
		const struct incident_field *field = &part->fields[i];
		const struct json_node *node = json_member(object, field->key);
		int r;

		if (!node || node->type == JSON_NULL)
			continue;
		r = take_value(node, field, (char *)base + field->offset);
		if (r < 0)
			return r;
		if (field->has != INCIDENT_ALWAYS)
			*((bool *)base + field->has) = true;
	}
	return 0;
}

/* Reads at most max items, each of size bytes. */
static int take_list(const struct json_node *list, const struct incident_fields *part, void *items, size_t size,
		     size_t max, size_t *ret_count)
{
	size_t count = 0;

	if (!list)
		return 0;
	if (list->type != JSON_ARRAY)
		return -EBADMSG;
	for (const struct json_node *node = list->first; node && count < max; node = node->next) {
		int r = take_fields(node, part, (char *)items + count * size);

		if (r < 0)
			return r;
		count++;
	}
	*ret_count = count;
	return 0;
}

/* Ignores members that are no labels. */
static void take_labels(const struct json_node *target, struct labels *ret)
{
	const struct json_node *object = json_member(target, "labels");
	const struct json_node *left_out = json_member(target, "labels_left_out");
	uint64_t more = 0;

	for (const struct json_node *node = object ? object->first : NULL; node; node = node->next)
		if (node->type == JSON_STRING && node->key)
			labels_add(ret, node->key, node->key_len, node->text, node->text_len);
	if (left_out && take_whole(left_out, INCIDENT_U64, &more) == 0 && more <= UINT32_MAX - ret->left_out)
		ret->left_out += (uint32_t)more;
}

static int take_part(const struct json_node *root, const struct incident_fields *part, struct incident *incident)
{
	const struct json_node *node = json_member(root, part->key);

	if (!node || node->type == JSON_NULL)
		return 0;
	if (part == &parts[INCIDENT_PART_TARGET])
		take_labels(node, &incident->labels);
	if (part->has != INCIDENT_ALWAYS)
		*((bool *)incident + part->has) = true;
	return take_fields(node, part, incident);
}

static int take_incident(const struct json_node *root, struct incident *incident)
{
	const struct json_node *total = json_member(root, "merged_total");
	int r;

	r = take_fields(root, &parts[INCIDENT_PART_TOP], incident);
	if (r == 0)
		r = take_part(root, &parts[INCIDENT_PART_TIME], incident);
	for (unsigned i = INCIDENT_PART_RULE; r == 0 && i <= INCIDENT_PART_MACHINE; i++)
		r = take_part(root, &parts[i], incident);
	if (r == 0 && total)
		r = take_whole(total, INCIDENT_U64, &incident->merged_total);
	if (r == 0)
		r = take_list(json_member(root, "merged"), &parts[INCIDENT_PART_FIRING], incident->merged,
			      sizeof(incident->merged[0]), INCIDENT_MERGED_MAX, &incident->merged_count);
	if (r == 0)
		r = take_list(json_member(root, "captures"), &parts[INCIDENT_PART_CAPTURE], incident->captures,
			      sizeof(incident->captures[0]), INCIDENT_CAPTURES_MAX, &incident->capture_count);
	return r;
}

static int incident_json_parse(const char *text, size_t len, struct incident *ret)
{
	const struct json_limits limits = { .size_bytes = INCIDENT_BYTES_MAX };
	AUTO(json_document_freep) struct json_document *document = NULL;
	AUTO_FREE struct incident *incident = calloc(1, sizeof(*incident));
	const struct json_node *marker;
	uint32_t format = 0;
	int r;

	if (!incident)
		return -ENOMEM;
	r = json_parse(text, len, &limits, &document, NULL);
	if (r < 0)
		return r == -ELOOP ? -EBADMSG : r;
	marker = json_member(json_root(document), parts[INCIDENT_PART_TOP].fields[0].key);
	if (!marker || take_whole(marker, INCIDENT_U32, &format) < 0 || format == 0)
		return -EBADMSG;
	if (format > INCIDENT_FORMAT)
		return -EPROTONOSUPPORT;

	incident_init(incident, "");
	r = take_incident(json_root(document), incident);
	if (r < 0)
		return r;
	*ret = *incident;
	return 0;
}

int incident_json_read(int dirfd, struct incident *ret)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENT_BYTES_MAX };
	int r = whole_file_read(dirfd, INCIDENT_FILE, &text);

	if (r == -EINVAL || r == -ELOOP)
		return -EBADMSG;
	return r < 0 ? r : incident_json_parse(text.len ? text.data : "", text.len, ret);
}

void incident_init(struct incident *incident, const char *version)
{
	memset(incident, 0, offsetof(struct incident, captures)); /* there are none: their room stays untouched */
	incident->format = INCIDENT_FORMAT;
	incident_text(incident->version, sizeof(incident->version), version);
	incident->limits.cpu = UINT64_MAX;
	incident->limits.memory_bytes = UINT64_MAX;
}

void incident_text(char *ret, size_t cap, const char *text)
{
	size_t len = text ? strnlen(text, cap) : 0;

	if (len == cap) {
		len--;
		while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80)
			len--;
	}
	if (len > 0)
		memcpy(ret, text, len);
	ret[len] = '\0';
}

void incident_set_target(struct incident *incident, const struct target *target)
{
	struct incident_target *to = &incident->target;

	to->kind = target->kind;
	to->pid = target->pid;
	to->start_ticks = target->start_ticks;
	incident_text(to->entry, sizeof(to->entry), target->entry);
	incident_text(to->name, sizeof(to->name), target->name);
	incident_text(to->key, sizeof(to->key), target->key);
	incident_text(to->comm, sizeof(to->comm), target->comm);
	incident_text(to->cmdline, sizeof(to->cmdline), target->cmdline);
	incident_text(to->cgroup, sizeof(to->cgroup), target->cgroup);
	incident->has_container = container_unpack(target->container, &incident->container);
}

void incident_merge(struct incident *incident, const struct incident_firing *firing)
{
	incident->merged_total++;
	if (incident->merged_count < INCIDENT_MERGED_MAX)
		incident->merged_count++;
	incident->merged[incident->merged_count - 1] = *firing;
}

void incident_capture_without_file(struct incident_capture *capture, enum incident_capture_status status,
				   const char *why)
{
	capture->status = status;
	capture->file[0] = '\0';
	capture->bytes = 0;
	incident_text(capture->why, sizeof(capture->why), why);
}

#define BELOW_SEVERITY_MAX 10.0

double incident_severity(const struct incident_rule *rule)
{
	double threshold, severity;

	if (!rule->has_value)
		return 0;
	/* As far below as another is above; of nothing at all it would be without end. */
	if (strcmp(rule->reason, trigger_reason_name(TRIGGER_BELOW_PERCENT)) == 0) {
		severity = rule->value > 0 ? rule->thresholds.percent / rule->value : BELOW_SEVERITY_MAX;
		return severity > 0 && severity < BELOW_SEVERITY_MAX ? severity : BELOW_SEVERITY_MAX;
	}
	if (strcmp(rule->reason, trigger_reason_name(TRIGGER_ABOVE_PERCENT)) == 0)
		threshold = rule->thresholds.percent;
	else if (strcmp(rule->reason, trigger_reason_name(TRIGGER_ABOVE_AVERAGE)) == 0 && rule->has_average)
		threshold = rule->average * (100 + rule->thresholds.delta) / 100;
	else
		return 0;
	/* A threshold of 0 counts as just reached. */
	severity = threshold > 0 ? rule->value / threshold : 1;
	return isfinite(severity) && severity > 0 ? severity : 0;
}

const char *incident_kind_name(enum incident_kind kind)
{
	static const char *const names[] = {
		[INCIDENT_RULE] = "rule",
		[INCIDENT_MANUAL] = "manual",
		[INCIDENT_RECOVERED] = "recovered",
		[INCIDENT_STORM] = "storm",
	};

	return names[kind];
}

const char *incident_capture_status_name(enum incident_capture_status status)
{
	static const char *const names[] = { [INCIDENT_CAPTURE_OK] = "ok",
					     [INCIDENT_CAPTURE_SKIPPED] = "skipped",
					     [INCIDENT_CAPTURE_FAILED] = "failed" };

	return names[status];
}

/* ---- names ---- */

#define NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
#define STEM_PART 48 /* bytes of target and of rule: with time and number within INCIDENT_NAME_MAX */
#define TIME_PATTERN "########T######.###Z-"

static void clean_name_part(const char *text, char ret[static STEM_PART + 1])
{
	size_t len = strnlen(text, STEM_PART);

	for (size_t i = 0; i < len; i++)
		ret[i] = strchr(NAME_BYTES, text[i]) ? text[i] : '_';
	ret[len] = '\0';
}

void incident_stem(wall_t wall, const char *target, const char *rule, char *ret, size_t cap)
{
	time_t seconds = (time_t)(wall.ns / NS_PER_S);
	char when[32] = "", safe_target[STEM_PART + 1], safe_rule[STEM_PART + 1];
	struct tm utc = { 0 };

	gmtime_r(&seconds, &utc);
	strftime(when, sizeof(when), "%Y%m%dT%H%M%S", &utc);
	clean_name_part(target, safe_target);
	clean_name_part(rule, safe_rule);
	snprintf(ret, cap, "%s.%03uZ-%s-%s", when, (unsigned)(wall.ns % NS_PER_S / NS_PER_MS), safe_target, safe_rule);
}

bool incident_name_ok(const char *name)
{
	size_t len = strnlen(name, INCIDENT_NAME_MAX + 1), at = 0;

	for (const char *p = TIME_PATTERN; *p; p++, at++)
		if (*p == '#' ? !isdigit((unsigned char)name[at]) : name[at] != *p)
			return false;
	if (len > INCIDENT_NAME_MAX || strspn(name, NAME_BYTES) != len || !isdigit((unsigned char)name[len - 1]))
		return false;
	while (isdigit((unsigned char)name[len - 1]))
		len--;
	return len > at && name[len - 1] == '-';
}

wall_t incident_name_wall(const char *name)
{
	struct tm utc = { 0 };
	unsigned milliseconds = 0;
	time_t seconds;

	if (sscanf(name, "%4d%2d%2dT%2d%2d%2d.%3u", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour, &utc.tm_min,
		   &utc.tm_sec, &milliseconds) != 7)
		return (wall_t){ 0 };
	utc.tm_year -= 1900;
	utc.tm_mon -= 1;
	seconds = timegm(&utc);
	return (wall_t){ seconds < 0 ? 0 : (uint64_t)seconds * NS_PER_S + milliseconds * NS_PER_MS };
}
