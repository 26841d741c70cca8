/*
 * config_section.c: the sections: a table of their keys, and what must agree between them.
 *
 * Each value's origin is kept, so that a contradiction is shown where it was written, be it in another file. A default
 * never contradicts: where it can, it gives way to what was written.
 */
#include "config_section.h"

#include "clock.h"
#include "config_labels.h"
#include "scope.h"
#include "units.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define KIB 1024ULL
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)
#define US NS_PER_US
#define MS NS_PER_MS
#define S NS_PER_S
#define MINUTE (60 * S)
#define HOUR (60 * MINUTE)
#define DAY (24 * HOUR)

static const char *const discovery_choices[] = { "auto", "rescan", NULL };
static const char *const wait_choices[] = { "sleep", "yield", "spin", NULL };
static const char *const stacks_choices[] = { "off", "frame-pointers", "dwarf", NULL };
static const char *const clock_choices[] = { "cpu", "cycles", NULL };

/* LIVE, RESTART: what a change of the key takes. */
// clang-format off
#define OTHER(s, k)                { .section = s, .key = k, .change = CONFIG_CHANGE_LIVE }
#define ROW(s, k, how, type, member, ...)                                                                              \
	CONFIG_ROW(s, k, type, struct config, member, .change = CONFIG_CHANGE_##how, __VA_ARGS__)
#define RANGE(s, k, how, type, member, initially, least, ...)                                                          \
	ROW(s, k, how, type, member, .initial = initially, .min = least, .max = __VA_ARGS__)
#define PATH(s, k, how, member, ...)          ROW(s, k, how, PATH, member, .text = __VA_ARGS__)
#define LISTEN(s, k, how, member, value)      ROW(s, k, how, LISTEN, member, .text = value)
#define BOOL(s, k, how, member, value)        ROW(s, k, how, BOOL, member, .initial = value)
#define CHOICE(s, k, how, member, value, names) ROW(s, k, how, CHOICE, member, .initial = value, .choices = names)
#define DURATION(s, k, how, member, ...)      RANGE(s, k, how, DURATION, member, __VA_ARGS__)
#define BYTES(s, k, how, member, ...)         RANGE(s, k, how, BYTES, member, __VA_ARGS__)
#define COUNT(s, k, how, member, ...)         RANGE(s, k, how, COUNT, member, __VA_ARGS__)
#define PERCENT(s, k, how, member, ...)       RANGE(s, k, how, PERCENT, member, __VA_ARGS__)
// clang-format on

/*
 * interval         10 ms catches peaks of 20 ms, at 1 to 3 % of a core for hundreds of processes. Below 100 us one pass
 *                  over a few targets takes longer than the interval; above 10 s it is monitoring.
 * idle_interval    A tenth of the looks at what does nothing, and what wakes is seen before anybody could have reacted to it.
 * heartbeat        A page of the ring is filled in seconds: a target should be in each.
 * cgroup_interval  cgroup files cost three times what a process does, and on large trees the kernel sums up first.
 * fds_interval     Counting descriptors lists a directory: 200 ns for each.
 * limits_interval  Limits change when somebody changes them: two seconds late is soon enough.
 * cpu_budget       What a recorder may take from a machine in distress.
 * ring.size        Minutes of a hundred busy processes; page_size: a tick of sixty at their fattest.
 * before, after    What led to a spike is in its last half minute; how it ends, in the next ten seconds.
 * max_size         Little beside a small disk; max_incident_size: what sixteen of them leave room for.
 * min_free         A full disk is an incident of its own.
 * textfile_interval  What is collected from it is collected every 15 to 60 s.
 * metrics.max_targets  Twenty series each make ten thousand: what a server takes from one machine without complaint.
 * stacks.frequency  99 and not 100, so as not to march in step with what a program does a hundred times a second.
 * stacks.clock      Of the hardware's counters others want their share; the kernel's clock is there in virtual machines too.
 * stacks.stack_size  Forty to a hundred calls deep. stacks.max_memory: half a minute of two CPUs that are busy with what is watched.
 *
 * What only a restart changes: the number of threads, since a target stays with its own; the rings and the state, which are mapped and locked by then, and where everything is read
 * from or written to, because descriptors below it are open.
 */
// clang-format off
const struct config_field config_section_fields[] = {
	OTHER(   "",         "sampling"),
	OTHER(   "",         "ring"),
	OTHER(   "",         "incidents"),
	OTHER(   "",         "metrics"),
	OTHER(   "",         "stacks"),
	PATH(    "",         "state_file",        RESTART, state_file,                   ""),
	PATH(    "",         "proc_root",         RESTART, proc_root,                    "/proc"),
	PATH(    "",         "cgroup_root",       RESTART, cgroup_root,                  ""),
	PATH(    "",         "runtime_root",      RESTART, runtime_root,                 "/"),
	OTHER(   "",         "targets"),
	OTHER(   "",         "rules"),
	DURATION("sampling", "interval",          LIVE,    sampling.interval_ns,         10 * MS,   100 * US, 10 * S),
	DURATION("sampling", "idle_interval",     LIVE,    sampling.idle_interval_ns,    100 * MS,  0,        MINUTE),
	DURATION("sampling", "heartbeat",         LIVE,    sampling.heartbeat_ns,        S,         10 * MS,  HOUR),
	DURATION("sampling", "cgroup_interval",   LIVE,    sampling.cgroup_interval_ns,  100 * MS,  MS,       MINUTE),
	DURATION("sampling", "peak_interval",     LIVE,    sampling.peak_interval_ns,    100 * MS,  MS,       MINUTE),
	DURATION("sampling", "fds_interval",      LIVE,    sampling.fds_interval_ns,     S,         100 * MS, HOUR, .zero = true),
	DURATION("sampling", "limits_interval",   LIVE,    sampling.limits_interval_ns,  2 * S,     100 * MS, HOUR),
	DURATION("sampling", "rescan_interval",   LIVE,    sampling.rescan_interval_ns,  S,         100 * MS, HOUR),
	CHOICE(  "sampling", "discovery",         LIVE,    sampling.discovery,           CONFIG_DISCOVERY_AUTO, discovery_choices),
	CHOICE(  "sampling", "wait",              LIVE,    sampling.wait,                CONFIG_WAIT_SLEEP, wait_choices),
	BOOL(    "sampling", "reset_peaks",       LIVE,    sampling.reset_peaks,         false),
	PERCENT( "sampling", "cpu_budget",        LIVE,    sampling.cpu_budget_percent,  10,        1,        1600),
	COUNT(   "sampling", "threads",           RESTART, sampling.threads,             0,         0,        16),
	COUNT(   "sampling", "max_targets",       LIVE,    sampling.max_targets,         10000,     1,        100000),
	PATH(    "ring",     "path",              RESTART, ring.path,                    ""),
	BYTES(   "ring",     "size",              RESTART, ring.size_bytes,              16 * MIB,  16 * KIB, 16 * GIB),
	BYTES(   "ring",     "page_size",         RESTART, ring.page_bytes,              64 * KIB,  4 * KIB,  MIB),
	BOOL(    "ring",     "lock",              RESTART, ring.lock,                    true),
	PATH(    "incidents", "directory",         RESTART, incidents.directory,          ""),
	DURATION("incidents", "before",            LIVE,    incidents.before_ns,          30 * S,    0,        HOUR),
	DURATION("incidents", "after",             LIVE,    incidents.after_ns,           10 * S,    0,        HOUR),
	BYTES(   "incidents", "max_incident_size", LIVE,    incidents.max_incident_bytes, 64 * MIB,  MIB,      TIB),
	BYTES(   "incidents", "max_size",          LIVE,    incidents.max_bytes,          GIB,       MIB,      1024 * TIB),
	COUNT(   "incidents", "max_count",         LIVE,    incidents.max_count,          200,       1,        1000000),
	DURATION("incidents", "max_age",           LIVE,    incidents.max_age_ns,         30 * DAY,  MINUTE,   3650 * DAY),
	BYTES(   "incidents", "min_free",          LIVE,    incidents.min_free_bytes,     256 * MIB, 0,        1024 * TIB),
	OTHER(   "incidents", "captures"),
	LISTEN(  "metrics",  "listen",            LIVE,    metrics.listen,               ""),
	PATH(    "metrics",  "textfile",          LIVE,    metrics.textfile,             "", .suffix = ".prom"),
	DURATION("metrics",  "textfile_interval", LIVE,    metrics.textfile_interval_ns, 15 * S,   S,        HOUR),
	COUNT(   "metrics",  "max_targets",       LIVE,    metrics.max_targets,          500,      1,        10000),
	OTHER(   "metrics",  "container_labels"),
	CHOICE(  "stacks",   "mode",              RESTART, stacks.mode,                  CONFIG_STACKS_DWARF, stacks_choices),
	CHOICE(  "stacks",   "clock",             RESTART, stacks.clock,                 CONFIG_CLOCK_CPU, clock_choices),
	BOOL(    "stacks",   "page_faults",       RESTART, stacks.page_faults,           true),
	COUNT(   "stacks",   "frequency",         RESTART, stacks.frequency,             99,       1,        1000),
	BYTES(   "stacks",   "stack_size",        RESTART, stacks.stack_bytes,           8 * KIB,  KIB,      32 * KIB),
	BYTES(   "stacks",   "ring_size",         RESTART, stacks.ring_bytes,            0,        64 * KIB, 64 * MIB, .zero = true),
	BYTES(   "stacks",   "max_memory",        RESTART, stacks.max_memory_bytes,      64 * MIB, MIB,      16 * GIB),
};
// clang-format on
const size_t config_section_field_count = ARRAY_LEN(config_section_fields);
_Static_assert(ARRAY_LEN(config_section_fields) <= CONFIG_SECTION_FIELDS_MAX, "an origin for each");

static int read_captures(const struct config_scope *scope, const struct json_node *node, struct config *config)
{
	const char *names[8] = { NULL };
	struct config_scope within = *scope;
	unsigned captures = 0;
	size_t index = 0;
	char shown[CONFIG_SHOWN];

	for (unsigned bit = 0; bit + 1 < ARRAY_LEN(names); bit++)
		names[bit] = config_capture_name((enum config_capture)(1u << bit));
	if (node->type != JSON_ARRAY)
		return config_refuse_value(scope, node, "expected an array of names such as [\"samples\"], found %s",
					   config_found(node, shown));
	for (const struct json_node *name = node->first; name != NULL; name = name->next) {
		unsigned bit;
		int r;

		snprintf(within.path, sizeof(within.path), "incidents.captures[%zu]", index++);
		r = config_read_choice(&within, name, names, &bit);

		if (r < 0)
			return r;
		captures |= 1u << bit;
	}
	config->incidents.captures = captures;
	return 0;
}

/* "stacks": "off" is short for "stacks": { "mode": "off" }. */
static int apply_stacks(const struct config_scope *within, const struct json_node *section, struct config_merge *merge)
{
	struct json_node mode = *section, object = *section;

	if (section->type == JSON_STRING) {
		mode.key = "mode";
		mode.key_len = strlen(mode.key);
		mode.next = NULL;
		object.type = JSON_OBJECT;
		object.first = &mode;
	}
	return config_field_apply(within, config_section_fields, config_section_field_count, "stacks", &object,
				  merge->config, merge->origins);
}

int config_section_apply(const struct config_scope *scope, const struct json_node *root, struct config_merge *merge)
{
	static const char *const sections[] = { "sampling", "ring", "incidents", "metrics", "stacks" };
	struct config_scope within = *scope;
	int r = config_field_apply(scope, config_section_fields, config_section_field_count, "", root, merge->config,
				   merge->origins);

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(sections); i++) {
		const struct json_node *section = json_member(root, sections[i]);

		if (section == NULL)
			continue;
		snprintf(within.path, sizeof(within.path), "%s", sections[i]);
		r = strcmp(sections[i], "stacks") == 0
			    ? apply_stacks(&within, section, merge)
			    : config_field_apply(&within, config_section_fields, config_section_field_count,
						 sections[i], section, merge->config, merge->origins);
		if (r == 0 && json_member(section, "captures") != NULL)
			r = read_captures(&within, json_member(section, "captures"), merge->config);
		if (r == 0 && json_member(section, "container_labels") != NULL)
			r = config_labels_read_metrics(&within, json_member(section, "container_labels"),
						       &merge->config->metrics);
	}
	return r;
}

/* ---- what must agree between sections ---- */

static const struct config_origin *origin_of(const struct config_merge *merge, size_t offset)
{
	size_t i = 0;

	while (config_section_fields[i].size == 0 || config_section_fields[i].offset != offset)
		i++;
	return &merge->origins[i];
}

/* Refuses the value at offset, or the other one if that is a default. */
__attribute__((format(printf, 4, 5))) static int contradicts(const struct config_merge *merge, size_t offset,
							     size_t other, const char *format, ...)
{
	bool use_other = origin_of(merge, offset)->place.line == 0;
	const struct config_origin *origin = origin_of(merge, use_other ? other : offset);
	const struct config_field *field = &config_section_fields[origin - merge->origins];
	struct config_scope scope = { .file = origin->file, .err = merge->err };
	char message[200];
	va_list args;

	va_start(args, format);
	vsnprintf(message, sizeof(message), format, args);
	va_end(args);
	snprintf(scope.path, sizeof(scope.path), "%s", field->section);
	return config_refuse(&scope, origin->place, field->key, "%s", message);
}

/* Nothing is read more often than the sampler ticks. */
static int check_interval(const struct config_merge *merge, size_t offset)
{
	struct config *config = merge->config;
	uint64_t *value = (uint64_t *)(void *)((char *)config + offset);
	const struct config_origin *origin = origin_of(merge, offset);
	char shown[UNITS_TEXT_MAX], interval[UNITS_TEXT_MAX];

	if (*value >= config->sampling.interval_ns ||
	    (*value == 0 && offset == offsetof(struct config, sampling.fds_interval_ns)))
		return 0;
	if (origin->place.line == 0) {
		*value = config->sampling.interval_ns;
		return 0;
	}
	return contradicts(merge, offset, offset, "shorter than sampling.interval: expected at least %s, found %s",
			   units_format_duration(interval, sizeof(interval), config->sampling.interval_ns),
			   units_format_duration(shown, sizeof(shown), *value));
}

static int check_sampling(const struct config_merge *merge)
{
	static const size_t offsets[] = {
		offsetof(struct config, sampling.heartbeat_ns),
		offsetof(struct config, sampling.cgroup_interval_ns),
		offsetof(struct config, sampling.peak_interval_ns),
		offsetof(struct config, sampling.fds_interval_ns),
		offsetof(struct config, sampling.limits_interval_ns),
		offsetof(struct config, sampling.rescan_interval_ns),
	};
	int r = 0;

	for (size_t i = 0; r == 0 && i < ARRAY_LEN(offsets); i++)
		r = check_interval(merge, offsets[i]);
	return r;
}

static int check_ring(const struct config_merge *merge)
{
	const struct config_ring *ring = &merge->config->ring;
	size_t size = offsetof(struct config, ring.size_bytes);
	size_t page = offsetof(struct config, ring.page_bytes);
	char shown[UNITS_TEXT_MAX];

	if ((ring->page_bytes & (ring->page_bytes - 1)) != 0)
		return contradicts(merge, page, page, "expected a power of two such as \"64KiB\", found %s",
				   units_format_bytes(shown, sizeof(shown), ring->page_bytes));
	if (ring->size_bytes < 4ULL * ring->page_bytes)
		return contradicts(merge, size, page, "the ring needs four pages: expected ring.size of at least %s",
				   units_format_bytes(shown, sizeof(shown), 4ULL * ring->page_bytes));
	return 0;
}

static int check_incidents(const struct config_merge *merge)
{
	struct config_incidents *incidents = &merge->config->incidents;
	size_t one = offsetof(struct config, incidents.max_incident_bytes);
	size_t all = offsetof(struct config, incidents.max_bytes);
	char shown[UNITS_TEXT_MAX];

	if (incidents->before_ns + incidents->after_ns == 0)
		return contradicts(merge, offsetof(struct config, incidents.before_ns),
				   offsetof(struct config, incidents.after_ns),
				   "incidents would hold nothing: expected \"before\" or \"after\" above 0");
	if (incidents->max_incident_bytes <= incidents->max_bytes)
		return 0;
	if (origin_of(merge, one)->place.line == 0) {
		incidents->max_incident_bytes = incidents->max_bytes;
		return 0;
	}
	return contradicts(merge, one, all, "more than all incidents may take: expected at most incidents.max_size, %s",
			   units_format_bytes(shown, sizeof(shown), incidents->max_bytes));
}

int config_section_agree(const struct config_merge *merge)
{
	int r = check_sampling(merge);

	if (r == 0)
		r = check_ring(merge);
	return r == 0 ? check_incidents(merge) : r;
}

void config_section_defaults(struct config *config)
{
	config_field_defaults(config_section_fields, config_section_field_count, config);
	config->incidents.captures = CONFIG_CAPTURE_ALL;
}
