/*
 * incident.c: the value and its names. Strings are cut at a character on the way in, so that whatever holds one can be
 * a plain array: an incident is filled in while a machine may be short of memory, and nothing here can fail.
 */
#include "incident.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

void incident_init(struct incident *incident, const char *version)
{
	*incident = (struct incident){ .format = INCIDENT_FORMAT };
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

bool incident_of_everything(const struct incident *incident)
{
	return incident->kind != INCIDENT_RULE && (unsigned)incident->target.kind == 0;
}

void incident_merge(struct incident *incident, const struct incident_firing *firing)
{
	incident->merged_total++;
	if (incident->merged_count < INCIDENT_MERGED_MAX)
		incident->merged_count++;
	incident->merged[incident->merged_count - 1] = *firing;
}

void incident_add_capture(struct incident *incident, const struct incident_capture *capture)
{
	if (incident->capture_count < INCIDENT_CAPTURES_MAX)
		incident->captures[incident->capture_count++] = *capture;
}

double incident_severity(const struct incident_rule *rule)
{
	double threshold, severity;

	if (!rule->has_value)
		return 0;
	if (strcmp(rule->reason, trigger_reason_name(TRIGGER_ABOVE_PERCENT)) == 0)
		threshold = rule->thresholds.percent;
	else if (strcmp(rule->reason, trigger_reason_name(TRIGGER_ABOVE_AVERAGE)) == 0 && rule->has_average)
		threshold = rule->average * (100 + rule->thresholds.delta) / 100;
	else
		return 0;
	/* Anything is infinitely more than nothing; that says little, so it counts as just enough to fire. */
	severity = threshold > 0 ? rule->value / threshold : 1;
	return isfinite(severity) && severity > 0 ? severity : 0;
}

const char *incident_kind_name(enum incident_kind kind)
{
	static const char *const names[] = {
		[INCIDENT_RULE] = "rule", [INCIDENT_MANUAL] = "manual", [INCIDENT_RECOVERED] = "recovered"
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

const char *incident_unit_name(enum metric_unit unit)
{
	static const char *const names[] = {
		[METRIC_PERCENT] = "percent", [METRIC_CORES] = "cores",           [METRIC_BYTES] = "bytes",
		[METRIC_COUNT] = "count",     [METRIC_PER_SECOND] = "per_second",
	};

	return names[unit];
}

/* ---- names ---- */

#define NAME_BYTES "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-"
#define STEM_PART 48 /* bytes of target and of rule: with time and number within INCIDENT_NAME_MAX */
#define TIME_PATTERN "########T######.###Z-"

static void clean(const char *text, char ret[static STEM_PART + 1])
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
	clean(target, safe_target);
	clean(rule, safe_rule);
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
