/*
 * exposition.c: every family is written once, with all its samples together, as both forms want it.
 * What is a number in a structure of the daemon comes from a table, the rest from a function for
 * each part. From here down: the writer of the text forms, the names of container labels, the
 * families, the targets, the daemon itself.
 *
 * Series of targets: metrics.max_targets have series of their own, the others are summed for each
 * entry. Two visits of all targets:
 *
 *     1. ids ─▶ sorted ─▶ the highest id with series of its own: ids are given in the order of
 *        discovery, so the targets known longest keep their series
 *     2. each target: up to that id ─▶ its labels and its sample are copied ("own")
 *                     beyond it    ─▶ added to the sum of its entry; its counters are kept for the
 *                                     next page ("seen")
 *
 * Own ones are then sorted by labels: two of the same labels would be one series with two values,
 * so all but the first are summed too. Rejected: series for the busiest targets. They come and go
 * with the load, are stale when they are looked at, and rates over them are wrong.
 */
#include "daemon/service/metrics/exposition.h"

#include "daemon/engine/base/foreign.h"
#include "daemon/engine/dispatch/dispatcher.h"
#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/incident/notify.h"
#include "daemon/service/minutes/minute_log.h"
#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/discovery.h"
#include "daemon/engine/targets/process_events.h"
#include "daemon/engine/targets/unit_bus.h"
#include "daemon/service/health/health.h"
#include "lib/base/json.h"
#include "lib/base/text.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/trigger.h"
#include "lib/source/source.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- the text forms ----
 *
 *     OpenMetrics 1.0                                0.0.4
 *     # TYPE spikewatch_x_seconds counter            # HELP spikewatch_x_seconds_total Time spent.
 *     # UNIT spikewatch_x_seconds seconds            # TYPE spikewatch_x_seconds_total counter
 *     # HELP spikewatch_x_seconds Time spent.
 *     spikewatch_x_seconds_total{a="b"} 1.5          spikewatch_x_seconds_total{a="b"} 1.5
 *     # EOF
 *
 * A value is written with as few digits as give it back; nanoseconds never pass through a double,
 * which counts them exactly for 104 days only (2^53). Label values may hold any byte:
 * put_label_value makes them valid UTF-8 without control characters.
 */

enum openmetrics_kind {
	OPENMETRICS_COUNTER, /* its samples are called NAME_total */
	OPENMETRICS_GAUGE,
	OPENMETRICS_INFO, /* NAME_info, of value 1: the labels are the information */
};

/* Plain ASCII, without quotes, backslashes and newlines. */
struct openmetrics_family {
	const char *name; /* without _total or _info; ends in _UNIT if there is a unit */
	enum openmetrics_kind kind;
	const char *unit; /* "seconds", "bytes", "ratio"; "": none */
	const char *help;
	const char *labels; /* their names, separated by ", ": for the documentation's check */
};

/* value may hold any byte. */
struct openmetrics_label {
	const char *name, *value;
};

/* The labels of a sample: first what openmetrics_block has made, then these. {0}: none. */
struct openmetrics_labels {
	const char *block;
	size_t block_len;
	struct openmetrics_label further[2]; /* name NULL: none */
};

/*
 * openmetrics_init, { openmetrics_family, { openmetrics_u64, _ns, _double } }, openmetrics_finish
 */
struct openmetrics {
	struct sink sink;
	enum openmetrics_form form;
	const struct openmetrics_family *family;
	bool begun; /* the lines about the family are written */
	int error;  /* the first; returned by every later call */
};

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

static struct text_part trimmed(struct text_part span)
{
	while (span.len > 0 && (*span.at == ' ' || *span.at == '\t'))
		span.at++, span.len--;
	while (span.len > 0 && (span.at[span.len - 1] == ' ' || span.at[span.len - 1] == '\t'))
		span.len--;

	return span;
}

/* Takes what stands before the next `separator` off *rest. */
static struct text_part next_part(struct text_part *rest, char separator)
{
	struct text_part part = { "", 0 };

	text_cut(rest, separator, &part);

	return trimmed(part);
}

static bool span_is(struct text_part span, const char *text)
{
	return span.len == strlen(text) && strncasecmp(span.at, text, span.len) == 0;
}

/* "0.75" as thousandths. What is no weight is 1000, as if it were not there. */
static unsigned read_weight(struct text_part span)
{
	unsigned weight = 0, scale = 1000;

	for (size_t i = 0; i < span.len && i < 5; i++) {
		if (i == 1 ? span.at[i] != '.' : span.at[i] < '0' || span.at[i] > '9')
			return 1000;
		if (i == 1)
			continue;
		weight += scale * (unsigned)(span.at[i] - '0');
		scale /= 10;
	}

	return span.len == 0 || span.len > 5 || weight > 1000 ? 1000 : weight;
}

enum openmetrics_form openmetrics_negotiate(const char *accept)
{
	struct text_part rest = { accept ? accept : "", accept ? strlen(accept) : 0 };
	unsigned plain = 0, open = 0;

	while (rest.len > 0) {
		struct text_part item = next_part(&rest, ','), type = next_part(&item, ';'), version = { "", 0 };
		unsigned weight = 1000;

		while (item.len > 0) {
			struct text_part parameter = next_part(&item, ';'), name = next_part(&parameter, '=');

			if (span_is(name, "q"))
				weight = read_weight(trimmed(parameter));
			if (span_is(name, "version"))
				version = trimmed(parameter);
		}
		if (span_is(type, "application/openmetrics-text") && (version.len == 0 || span_is(version, "1.0.0")))
			open = weight > open ? weight : open;
		if ((span_is(type, "text/plain") && (version.len == 0 || span_is(version, "0.0.4"))) ||
		    span_is(type, "text/*") || span_is(type, "*/*"))
			plain = weight > plain ? weight : plain;
	}

	return open > 0 && open >= plain ? OPENMETRICS_1_0 : OPENMETRICS_0_0_4;
}

const char *openmetrics_type(enum openmetrics_form form)
{
	return form == OPENMETRICS_1_0 ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
				       : "text/plain; version=0.0.4; charset=utf-8";
}

static void put_bytes(struct openmetrics *writer, const char *text, size_t len)
{
	if (writer->error == 0 && len > 0)
		writer->error = sink_write(&writer->sink, text, len);
}

static void put(struct openmetrics *writer, const char *text)
{
	put_bytes(writer, text, strlen(text));
}

/* What replaces a character of len bytes; NULL: it is written as it is. */
static const char *written_as(const char *text, size_t len)
{
	uint32_t code = 0;

	if (len == 0)
		return REPLACEMENT;
	if (*text == '\n')
		return "\\n";
	if (*text == '"')
		return "\\\"";
	if (*text == '\\')
		return "\\\\";

	return text_decode(text, len, &code) == 0 || text_is_hidden(code) ? REPLACEMENT : NULL;
}

static void put_label_value(struct openmetrics *writer, const char *value)
{
	const char *end = value + strlen(value), *at = value;

	while (at < end) {
		size_t len = text_decode(at, (size_t)(end - at), NULL);
		const char *instead = written_as(at, len);

		if (instead) {
			put_bytes(writer, value, (size_t)(at - value));
			put(writer, instead);
		}
		at += len > 0 ? len : 1;
		if (instead)
			value = at;
	}
	put_bytes(writer, value, (size_t)(end - value));
}

static void put_label(struct openmetrics *writer, const struct openmetrics_label *label, bool first)
{
	put(writer, first ? "" : ",");
	put(writer, label->name);
	put(writer, "=\"");
	put_label_value(writer, label->value);
	put(writer, "\"");
}

static void put_labels(struct openmetrics *writer, const struct openmetrics_labels *labels)
{
	bool first = labels->block_len == 0;

	if (first && !labels->further[0].name)
		return;

	put(writer, "{");
	put_bytes(writer, labels->block, labels->block_len);
	for (size_t i = 0; i < ARRAY_LEN(labels->further) && labels->further[i].name; i++) {
		put_label(writer, &labels->further[i], first);
		first = false;
	}
	put(writer, "}");
}

/* "# WHAT NAME TEXT" */
static void put_about(struct openmetrics *writer, const char *what, const char *suffix, const char *text)
{
	put(writer, "# ");
	put(writer, what);
	put(writer, " ");
	put(writer, writer->family->name);
	put(writer, suffix);
	put(writer, " ");
	put(writer, text);
	put(writer, "\n");
}

static const char *suffix_of(enum openmetrics_kind kind)
{
	static const char *const suffixes[] = {
		[OPENMETRICS_COUNTER] = "_total",
		[OPENMETRICS_GAUGE] = "",
		[OPENMETRICS_INFO] = "_info",
	};

	return suffixes[kind];
}

/* 0.0.4 has no info, and names a family as its samples. */
static void begin_family(struct openmetrics *writer)
{
	static const char *const kinds[] = {
		[OPENMETRICS_COUNTER] = "counter",
		[OPENMETRICS_GAUGE] = "gauge",
		[OPENMETRICS_INFO] = "info",
	};
	const struct openmetrics_family *family = writer->family;

	if (writer->begun)
		return;

	writer->begun = true;
	if (writer->form == OPENMETRICS_0_0_4) {
		put_about(writer, "HELP", suffix_of(family->kind), family->help);
		put_about(writer, "TYPE", suffix_of(family->kind),
			  kinds[family->kind == OPENMETRICS_INFO ? OPENMETRICS_GAUGE : family->kind]);
		return;
	}
	put_about(writer, "TYPE", "", kinds[family->kind]);
	if (*family->unit)
		put_about(writer, "UNIT", "", family->unit);
	put_about(writer, "HELP", "", family->help);
}

static int put_sample(struct openmetrics *writer, const struct openmetrics_labels *labels, const char *value)
{
	begin_family(writer);
	put(writer, writer->family->name);
	put(writer, suffix_of(writer->family->kind));
	if (labels)
		put_labels(writer, labels);
	put(writer, " ");
	put(writer, value);
	put(writer, "\n");

	return writer->error;
}

/* Samples: labels may be NULL. 0 or the first error of the sink. */
static int openmetrics_u64(struct openmetrics *writer, const struct openmetrics_labels *labels, uint64_t value)
{
	char text[TEXT_NUMBER_ROOM + 1];

	*text_put_u64(text, value) = '\0';

	return put_sample(writer, labels, text);
}

/* Nanoseconds, written as seconds, exactly. */
static int openmetrics_ns(struct openmetrics *writer, const struct openmetrics_labels *labels, uint64_t value)
{
	char text[2 * TEXT_NUMBER_ROOM + 2];
	char *end = text_put_u64(text, value / NS_PER_S);
	uint64_t rest = value % NS_PER_S;

	if (rest > 0) {
		*end++ = '.';
		for (uint64_t unit = NS_PER_S / 10; rest > 0; rest %= unit, unit /= 10)
			*end++ = (char)('0' + rest / unit);
	}
	*end = '\0';

	return put_sample(writer, labels, text);
}

static int openmetrics_double(struct openmetrics *writer, const struct openmetrics_labels *labels, double value)
{
	char text[40];

	if (isnan(value) || isinf(value))
		return put_sample(writer, labels, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");

	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}

	return put_sample(writer, labels, text);
}

static void openmetrics_init(struct openmetrics *writer, struct sink sink, enum openmetrics_form form)
{
	*writer = (struct openmetrics){ .sink = sink, .form = form };
}

/* What follows belongs to family. Nothing is written of a family without samples. */
static void openmetrics_family(struct openmetrics *writer, const struct openmetrics_family *family)
{
	writer->family = family;
	writer->begun = false;
}

static int openmetrics_finish(struct openmetrics *writer)
{
	if (writer->form == OPENMETRICS_1_0)
		put(writer, "# EOF\n");

	return writer->error;
}

/* Appends labels as they stand in a sample: NAME="VALUE",... 0; -ENOMEM; -EFBIG. */
static int openmetrics_block(const struct openmetrics_label *labels, size_t count, struct buffer *ret)
{
	struct openmetrics writer;

	openmetrics_init(&writer, sink_buffer(ret), OPENMETRICS_0_0_4);
	for (size_t i = 0; i < count; i++)
		put_label(&writer, &labels[i], i == 0);

	return writer.error;
}

/* ---- container labels, with the names that kube-state-metrics gives those of pods ---- */

/* "label_", a key in which an underscore stands before every second byte at most, "_conflict16". */
#define LABEL_NAMES_ROOM (6 + 2 * LABELS_KEY_MAX + 11 + 1)

struct label_names {
	const char *const *keys;
	size_t count;
	char names[CONFIG_LABELS_MAX][LABEL_NAMES_ROOM];
};

static bool is_capital(char byte)
{
	return byte >= 'A' && byte <= 'Z';
}

static bool is_small_or_digit(char byte)
{
	return (byte >= 'a' && byte <= 'z') || (byte >= '0' && byte <= '9');
}

static void make_label_name(const char *key, char ret[LABEL_NAMES_ROOM])
{
	size_t len = (size_t)snprintf(ret, LABEL_NAMES_ROOM, "label_");

	for (char before = '_'; *key; before = *key++) {
		if (is_capital(*key) && is_small_or_digit(before))
			ret[len++] = '_';
		if (is_capital(*key))
			ret[len++] = (char)(*key - 'A' + 'a');
		else
			ret[len++] = is_small_or_digit(*key) ? *key : '_';
	}
	ret[len] = '\0';
}

/*
 * "app.kubernetes.io/partOf" is label_app_kubernetes_io_part_of: what is no letter or digit becomes
 * "_", and one comes before a capital that follows a small letter or a digit. Equal names become
 * label_x_conflict1, label_x_conflict2, in the order of the keys. At most CONFIG_LABELS_MAX keys,
 * which must outlive *ret.
 */
static void label_names_make(const char *const *keys, size_t count, struct label_names *ret)
{
	unsigned conflict[CONFIG_LABELS_MAX] = { 0 };

	ret->keys = keys;
	ret->count = count < CONFIG_LABELS_MAX ? count : CONFIG_LABELS_MAX;
	for (size_t i = 0; i < ret->count; i++)
		make_label_name(keys[i], ret->names[i]);
	for (size_t i = 0; i < ret->count; i++) {
		unsigned number = conflict[i];

		for (size_t k = i + 1; k < ret->count && number == 0; k++)
			if (strcmp(ret->names[i], ret->names[k]) == 0)
				conflict[i] = 1;
		for (size_t k = i + 1, next = 2; k < ret->count && conflict[i] == 1; k++)
			if (strcmp(ret->names[i], ret->names[k]) == 0)
				conflict[k] = (unsigned)next++;
	}
	for (size_t i = 0; i < ret->count; i++) {
		size_t len = strlen(ret->names[i]);

		if (conflict[i] > 0)
			snprintf(ret->names[i] + len, LABEL_NAMES_ROOM - len, "_conflict%u", conflict[i]);
	}
}

/* ---- labels of targets: not the image, or an upgrade would begin new series ---- */

#define OTHER "other"
#define BLOCK_MAX 6

/* target, entry, kind; in a container also container, in a pod namespace and pod. */
static int put_target_labels(const struct target *target, struct buffer *text)
{
	struct openmetrics_label labels[BLOCK_MAX] = {
		{ "target", target->name },
		{ "entry", target->entry },
		{ "kind", target_kind_name(target->kind) },
	};
	char name[CONTAINER_TEXT_MAX + 1];
	struct container container;
	size_t count = 3;

	if (container_unpack(target->container, &container)) {
		container_short(&container, name, sizeof name);
		labels[count++] = (struct openmetrics_label){ "container", name };
		if (container.pod[0] != '\0') {
			labels[count++] = (struct openmetrics_label){ "namespace", container.space };
			labels[count++] = (struct openmetrics_label){ "pod", container.pod };
		}
	}

	return openmetrics_block(labels, count, text);
}

/* Appends a comma and those of labels that are among names, if any. As openmetrics_block. */
static int put_container_labels(const struct labels *labels, const struct label_names *names, struct buffer *text)
{
	struct openmetrics_label found[CONFIG_LABELS_MAX];
	size_t count = 0;

	for (size_t i = 0; i < names->count; i++) {
		const char *value = labels_get(labels, names->keys[i]);

		if (value)
			found[count++] = (struct openmetrics_label){ names->names[i], value };
	}
	if (count == 0)
		return 0;

	int r = buffer_append(text, ",", 1);

	return r < 0 ? r : openmetrics_block(found, count, text);
}

/* Of the sum of an entry's other targets. */
static int put_sum_labels(const char *entry, struct buffer *text)
{
	const struct openmetrics_label labels[] = { { "target", OTHER }, { "entry", entry }, { "kind", OTHER } };

	return openmetrics_block(labels, ARRAY_LEN(labels), text);
}

/*
 * ---- families: every family of metrics; docs/metrics.md is tested against this table ----
 *
 * Names follow the conventions of Prometheus: base units, which end the name; what only grows is a
 * counter, whose samples end in _total. A family once published keeps its name and meaning.
 */

/* The labels of all families of targets. */
#define TARGET_LABELS "target, entry, kind"

// clang-format off
/* identifier, name, kind, unit, labels, help */
#define FAMILY_TABLE(X) \
	X(BUILD, "spikewatch_build", INFO, "", "version", "Version of spikewatchd.") \
	X(START_TIME, "spikewatch_start_time_seconds", GAUGE, "seconds", "", "When the daemon started, since 1970.") \
	X(PROCESS_CPU, "spikewatch_process_cpu_seconds", COUNTER, "seconds", \
	  "", "CPU time of the daemon, all threads.") \
	X(PROCESS_RESIDENT, "spikewatch_process_resident_memory_bytes", GAUGE, "bytes", \
	  "", "Resident memory of the daemon, the ring included.") \
	X(PROCESS_FDS, "spikewatch_process_open_fds", GAUGE, "", "", "Open descriptors of the daemon.") \
	X(INTERVAL, "spikewatch_sampling_interval_seconds", GAUGE, "seconds", \
	  "", "Sampling interval as configured.") \
	X(SLOWDOWN, "spikewatch_sampling_slowdown_ratio", GAUGE, "ratio", \
	  "", "Interval in force by interval configured: above 1 while the CPU budget is exceeded.") \
	X(CPU_SHARE, "spikewatch_sampling_budgeted_cpu_ratio", GAUGE, "ratio", \
	  "", "CPU use that counts against the budget in the last whole second, of one core.") \
	X(SNAPSHOTS, "spikewatch_sampler_snapshots", COUNTER, "", "", "Ticks taken.") \
	X(SLOTS, "spikewatch_sampler_slots", COUNTER, "", "", "Slots that elapsed on the clock, taken or not.") \
	X(MISSED_SLOTS, "spikewatch_sampler_missed_slots", COUNTER, "", \
	  "", "Slots that were skipped because they had passed.") \
	X(PAST_SNAPSHOTS, "spikewatch_sampler_past_snapshots", COUNTER, "", \
	  "", "Of the ticks taken, those that were slept through and put together afterwards.") \
	X(CAPTURE, "spikewatch_sampler_capture_ratio", GAUGE, "ratio", \
	  "", "Slots that were taken, of those that elapsed, over the whole run.") \
	X(SLEEP_ERROR, "spikewatch_sampler_sleep_error_seconds", COUNTER, "seconds", \
	  "", "Sum of how far wake-ups were off their deadline.") \
	X(COLLECTION, "spikewatch_sampler_collection_seconds", COUNTER, "seconds", \
	  "", "Time spent reading targets.") \
	X(BACKOFF, "spikewatch_sampler_backoff_seconds", COUNTER, "seconds", \
	  "", "Time slept because a blocking reader held the ring.") \
	X(BACKOFFS, "spikewatch_sampler_backoffs", COUNTER, "", "", "Such sleeps.") \
	X(LOST_RECORDS, "spikewatch_sampler_lost_records", COUNTER, "", \
	  "", "Records that did not fit because no page was free.") \
	X(FAILED_READS, "spikewatch_sampler_failed_reads", COUNTER, "", \
	  "", "Reads that failed although the target exists.") \
	X(SKIPPED_READS, "spikewatch_sampler_skipped_reads", COUNTER, "", \
	  "", "Reads saved because a target had not run, or hardly.") \
	X(SAVED_LOOKS, "spikewatch_sampler_saved_looks", COUNTER, "", \
	  "", "Looks at processes that were idle, saved by taking them less often.") \
	X(GONE_TARGETS, "spikewatch_sampler_gone_targets", COUNTER, "", "", "Targets that vanished.") \
	X(RECORDS, "spikewatch_sampler_records", COUNTER, "", "", "Records written to the ring.") \
	X(RECORDED, "spikewatch_sampler_recorded_bytes", COUNTER, "bytes", "", "Bytes written to the ring.") \
	X(SAMPLER_CPU, "spikewatch_sampler_cpu_seconds", COUNTER, "seconds", "", "CPU time of the sampler threads.") \
	X(RUN_DELAY, "spikewatch_sampler_run_delay_seconds", COUNTER, "seconds", \
	  "", "Time that the sampler threads waited for a CPU.") \
	X(STARVED, "spikewatch_sampler_starved_seconds", COUNTER, "seconds", \
	  "", "Of that, what made them miss slots.") \
	X(STOPPED, "spikewatch_sampler_stopped_seconds", COUNTER, "seconds", \
	  "", "Time of missed slots in which they neither ran nor waited for a CPU.") \
	X(THROTTLED_SELF, "spikewatch_sampler_throttled_seconds", COUNTER, "seconds", \
	  "", "Time that a CPU quota stopped the daemon's cgroup, of all CPUs.") \
	X(STOLEN, "spikewatch_sampler_stolen_seconds", COUNTER, "seconds", \
	  "", "Time that the hypervisor took CPUs away, of all CPUs.") \
	X(REAL_TIME, "spikewatch_sampler_real_time_threads", GAUGE, "", \
	  "", "Sampler threads that have real-time priority now.") \
	X(SAMPLER_THREADS, "spikewatch_sampler_threads", GAUGE, "", \
	  "", "Sampler threads; the figures above are sums over them.") \
	X(VERDICT_RATIO, "spikewatch_sampler_verdict_ratio", GAUGE, "ratio", \
	  "verdict", "What is judged, over the whole run.") \
	X(VERDICT_THRESHOLD, "spikewatch_sampler_verdict_threshold_ratio", GAUGE, "ratio", \
	  "verdict", "What it is held against: the capture rate should be above, the others below.") \
	X(VERDICT_BAD, "spikewatch_sampler_verdict_bad", GAUGE, "", \
	  "verdict", "1 if it was bad in the last ten seconds, else 0.") \
	X(VERDICT_EPISODES, "spikewatch_sampler_verdict_episodes", COUNTER, "", \
	  "verdict", "Times that it became bad.") \
	X(RING_SIZE, "spikewatch_ring_size_bytes", GAUGE, "bytes", "", "Size of the ring.") \
	X(RING_HISTORY, "spikewatch_ring_history_seconds", GAUGE, "seconds", \
	  "", "From the oldest tick in the ring to the newest.") \
	X(RING_TICKS, "spikewatch_ring_ticks", COUNTER, "", "", "Ticks published in the ring.") \
	X(UNJUDGED_PAGES, "spikewatch_ring_unjudged_pages", COUNTER, "", \
	  "", "Pages that were overwritten before the rules saw them.") \
	X(DAMAGED_PAGES, "spikewatch_ring_damaged_pages", COUNTER, "", \
	  "", "Pages that were skipped because they are damaged.") \
	X(TARGETS, "spikewatch_discovery_targets", GAUGE, "", "", "Targets watched, members of groups not counted.") \
	X(MEMBERS, "spikewatch_discovery_members", GAUGE, "", "", "Processes that are summed in groups.") \
	X(PROCESSES, "spikewatch_discovery_processes", GAUGE, "", "", "Processes on the host as of the last scan.") \
	X(WARM, "spikewatch_discovery_warm_processes", GAUGE, "", \
	  "", "Watched processes that are read through descriptors of their own.") \
	X(COLD, "spikewatch_discovery_cold_processes", GAUGE, "", \
	  "", "Watched processes without descriptors: there are too few for all.") \
	X(UNREADABLE, "spikewatch_discovery_unreadable_processes", GAUGE, "", "", "Of them hidden from the daemon.") \
	X(READERS_LEFT, "spikewatch_readers_left_behind", GAUGE, "", \
	  "", "Children that wait for a file that does not answer, and cannot be ended.") \
	X(UNANSWERED_READS, "spikewatch_unanswered_reads", COUNTER, "", \
	  "", "Files of watched programs that did not answer in time.") \
	X(REFUSED_READS, "spikewatch_refused_reads", COUNTER, "", \
	  "", "Files that were not tried, since others of their user do not answer.") \
	X(REFUSED_TARGETS, "spikewatch_discovery_refused_targets", GAUGE, "", \
	  "", "Targets beyond max_targets in the last scan.") \
	X(FAILED_TARGETS, "spikewatch_discovery_failed_targets", GAUGE, "", \
	  "", "Targets that could not be opened in the last scan.") \
	X(FOUND_TARGETS, "spikewatch_discovery_found_targets", COUNTER, "", "", "Targets and members found.") \
	X(LEFT_TARGETS, "spikewatch_discovery_left_targets", COUNTER, "", \
	  "", "Targets and members that ended or are watched no more.") \
	X(SCANS, "spikewatch_discovery_scans", COUNTER, "", "", "Scans for targets.") \
	X(LAST_SCAN, "spikewatch_discovery_last_scan_seconds", GAUGE, "seconds", "", "How long the last scan took.") \
	X(UNFINISHED, "spikewatch_discovery_unfinished", GAUGE, "", \
	  "", "1 if the last scan could not be finished, else 0.") \
	X(LISTENING, "spikewatch_discovery_listening", GAUGE, "", \
	  "", "1 if the kernel tells of processes between scans, else 0.") \
	X(EVENTS, "spikewatch_discovery_events", COUNTER, "", "", "News of processes from the kernel.") \
	X(OVERRUNS, "spikewatch_discovery_overruns", COUNTER, "", \
	  "", "Times that news were lost; each is followed by a scan.") \
	X(MISSED, "spikewatch_discovery_missed_processes", COUNTER, "", \
	  "", "Processes that came and went before they were looked at.") \
	X(CREDITED, "spikewatch_discovery_credited_processes", COUNTER, "", \
	  "", "Of them counted in a group by their exit records.") \
	X(LATE, "spikewatch_discovery_late_processes", COUNTER, "", \
	  "", "Processes that were looked at late, or left to a scan, because looking had taken its share of a core.") \
	X(STORMS, "spikewatch_discovery_storms", COUNTER, "", \
	  "", "Seconds after which processes that still waited for that were left to a scan.") \
	X(INCIDENTS_OPENED, "spikewatch_incidents_opened", COUNTER, "", "", "Incidents begun.") \
	X(INCIDENTS_SEALED, "spikewatch_incidents_sealed", COUNTER, "", "", "Incidents written completely.") \
	X(INCIDENTS_MERGED, "spikewatch_incidents_merged", COUNTER, "", \
	  "", "Firings that became part of an open incident.") \
	X(INCIDENTS_FAILED, "spikewatch_incidents_failed", COUNTER, "", "", "Incidents that could not be written.") \
	X(INCIDENTS_REFUSED, "spikewatch_incidents_refused", COUNTER, "", \
	  "", "Firings and requests for which no incident could be begun.") \
	X(INCIDENTS_MANUAL, "spikewatch_incidents_requested", COUNTER, "", \
	  "", "Incidents that were asked for by hand, whatever became of them.") \
	X(INCIDENTS_REMOVED, "spikewatch_incidents_removed", COUNTER, "", \
	  "", "Incidents removed by the limits of bytes, count and age.") \
	X(INCIDENTS_OPEN, "spikewatch_incidents_open", GAUGE, "", "", "Incidents being recorded.") \
	X(INCIDENTS_PENDING, "spikewatch_incidents_pending", GAUGE, "", "", "Incidents being recorded or written.") \
	X(STORM_FIRINGS, "spikewatch_incidents_storm_firings", GAUGE, "", \
	  "", "Firings that the storm which is not recorded yet has counted.") \
	X(NOTIFICATIONS_SENT, "spikewatch_notifications_sent", COUNTER, "", \
	  "way", "Incidents told of by an entry of notify.") \
	X(NOTIFICATIONS_RETRIED, "spikewatch_notifications_retried", COUNTER, "", \
	  "way", "Tries after the first, to tell of an incident.") \
	X(NOTIFICATIONS_FAILED, "spikewatch_notifications_failed", COUNTER, "", \
	  "way", "Incidents that were not told of: all tries failed, or too many waited.") \
	X(NOTIFICATIONS_LIMITED, "spikewatch_notifications_limited", COUNTER, "", \
	  "way", "Incidents that were not told of: max_per_hour.") \
	X(NOTIFICATIONS_PENDING, "spikewatch_notifications_pending", GAUGE, "", \
	  "way", "Incidents that are being told of.") \
	X(HISTORY_BYTES, "spikewatch_history_bytes", GAUGE, "bytes", "", "Of the files of the history.") \
	X(HISTORY_WRITTEN, "spikewatch_history_blocks_written", COUNTER, "", "", "Minutes of the history written.") \
	X(HISTORY_LOST, "spikewatch_history_blocks_lost", COUNTER, "", \
	  "", "Minutes of the history that could not be written and were given up.") \
	X(HISTORY_WAITING, "spikewatch_history_blocks_waiting", GAUGE, "", \
	  "", "Minutes of the history that are not written yet.") \
	X(RULE_WINDOWS, "spikewatch_rule_windows", COUNTER, "", "rule", "Windows judged.") \
	X(RULE_UNAVAILABLE, "spikewatch_rule_unavailable", COUNTER, "", "rule", "Windows of them without a value.") \
	X(RULE_SUPPRESSED, "spikewatch_rule_suppressed", COUNTER, "", \
	  "rule, reason", "Windows above a threshold in which the rule did not fire, by why.") \
	X(RULE_FIRINGS, "spikewatch_rule_firings", COUNTER, "", "rule", "Windows in which the rule fired.") \
	X(RULE_INCIDENTS, "spikewatch_rule_incidents", COUNTER, "", "rule", "Firings that began an incident.") \
	X(TARGET_INFO, "spikewatch_target", INFO, "", \
	  TARGET_LABELS ", label_...", "Labels of its container that metrics.container_labels names.") \
	X(TARGET_CPU, "spikewatch_target_cpu_seconds", COUNTER, "seconds", TARGET_LABELS, "CPU time used.") \
	X(TARGET_CPU_MODE, "spikewatch_target_cpu_mode_seconds", COUNTER, "seconds", \
	  TARGET_LABELS ", mode", "CPU time used, by mode; coarser than the total.") \
	X(TARGET_MEMORY, "spikewatch_target_memory_bytes", GAUGE, "bytes", \
	  TARGET_LABELS, "Memory used: resident of a process, charged to a cgroup.") \
	X(TARGET_PEAK, "spikewatch_target_memory_peak_bytes", GAUGE, "bytes", \
	  TARGET_LABELS, "High-water mark of memory.") \
	X(TARGET_WORKING_SET, "spikewatch_target_working_set_bytes", GAUGE, "bytes", \
	  TARGET_LABELS, "Memory of a cgroup without inactive file cache.") \
	X(TARGET_CPU_LIMIT, "spikewatch_target_cpu_limit_cores", GAUGE, "", \
	  TARGET_LABELS, "Effective CPU limit, in cores.") \
	X(TARGET_MEMORY_LIMIT, "spikewatch_target_memory_limit_bytes", GAUGE, "bytes", \
	  TARGET_LABELS, "Effective memory limit.") \
	X(TARGET_MEMORY_RATIO, "spikewatch_target_memory_limit_used_ratio", GAUGE, "ratio", \
	  TARGET_LABELS, "Memory used, of the effective limit.") \
	X(TARGET_THREADS, "spikewatch_target_threads", GAUGE, "", TARGET_LABELS, "Threads.") \
	X(TARGET_FDS, "spikewatch_target_open_fds", GAUGE, "", TARGET_LABELS, "Open descriptors.") \
	X(TARGET_TASKS, "spikewatch_target_tasks", GAUGE, "", TARGET_LABELS, "Tasks in a cgroup.") \
	X(TARGET_PROCESSES, "spikewatch_target_processes", GAUGE, "", TARGET_LABELS, "Processes summed in a group.") \
	X(TARGET_FAULTS, "spikewatch_target_page_faults", COUNTER, "", TARGET_LABELS ", type", "Page faults.") \
	X(TARGET_PERIODS, "spikewatch_target_cpu_periods", COUNTER, "", \
	  TARGET_LABELS, "CPU quota periods that elapsed.") \
	X(TARGET_THROTTLED_PERIODS, "spikewatch_target_cpu_throttled_periods", COUNTER, "", \
	  TARGET_LABELS, "CPU quota periods in which the cgroup was throttled.") \
	X(TARGET_THROTTLED, "spikewatch_target_cpu_throttled_seconds", COUNTER, "seconds", \
	  TARGET_LABELS, "Time throttled, all CPUs.") \
	X(TARGET_CPU_WAIT, "spikewatch_target_cpu_wait_seconds", COUNTER, "seconds", \
	  TARGET_LABELS, "Time in which threads could run and had no CPU.") \
	X(TARGET_CPU_ESTIMATED, "spikewatch_target_cpu_estimated_ends", COUNTER, "", \
	  TARGET_LABELS, "Processes of a group that ended and whose CPU time in its sum is an estimate.") \
	X(TARGET_PRESSURE, "spikewatch_target_pressure_waiting_seconds", COUNTER, "seconds", \
	  TARGET_LABELS ", resource", "Time in which some task waited for a resource.") \
	X(SUMMED, "spikewatch_summed_targets", GAUGE, "", \
	  "entry", "Targets that have no series of their own: they are summed in the target other.")
// clang-format on

enum family {
#define X(identifier, name, kind, unit, labels, help) FAMILY_##identifier,
	FAMILY_TABLE(X)
#undef X
		FAMILIES
};

static const struct openmetrics_family families[FAMILIES] = {
#define X(identifier, name, kind, unit, labels, help) { name, OPENMETRICS_##kind, unit, help, labels },
	FAMILY_TABLE(X)
#undef X
};

enum column_form { COLUMN_COUNT, COLUMN_TIME, COLUMN_CORES };

/* A field of samples as samples of a family; families of several fields follow each other. */
struct target_column {
	enum family family;
	enum sample_field field;
	enum column_form form;
	bool summed;
	struct openmetrics_label label; /* name NULL: none */
};

static const struct target_column target_columns[] = {
	{ FAMILY_TARGET_CPU, SAMPLE_CPU, COLUMN_TIME, true, { 0 } },
	{ FAMILY_TARGET_CPU_MODE, SAMPLE_CPU_USER, COLUMN_TIME, true, { "mode", "user" } },
	{ FAMILY_TARGET_CPU_MODE, SAMPLE_CPU_SYSTEM, COLUMN_TIME, true, { "mode", "system" } },
	{ FAMILY_TARGET_MEMORY, SAMPLE_MEMORY, COLUMN_COUNT, true, { 0 } },
	{ FAMILY_TARGET_PEAK, SAMPLE_MEMORY_PEAK, COLUMN_COUNT, false, { 0 } },
	{ FAMILY_TARGET_WORKING_SET, SAMPLE_WORKING_SET, COLUMN_COUNT, true, { 0 } },
	{ FAMILY_TARGET_CPU_LIMIT, SAMPLE_CPU_LIMIT, COLUMN_CORES, false, { 0 } },
	{ FAMILY_TARGET_MEMORY_LIMIT, SAMPLE_MEMORY_LIMIT, COLUMN_COUNT, false, { 0 } },
	{ FAMILY_TARGET_THREADS, SAMPLE_THREADS, COLUMN_COUNT, true, { 0 } },
	{ FAMILY_TARGET_FDS, SAMPLE_FDS, COLUMN_COUNT, true, { 0 } },
	{ FAMILY_TARGET_TASKS, SAMPLE_PIDS, COLUMN_COUNT, true, { 0 } },
	{ FAMILY_TARGET_PROCESSES, SAMPLE_PROCESSES, COLUMN_COUNT, true, { 0 } },
	{ FAMILY_TARGET_FAULTS, SAMPLE_MINOR_FAULTS, COLUMN_COUNT, true, { "type", "minor" } },
	{ FAMILY_TARGET_FAULTS, SAMPLE_MAJOR_FAULTS, COLUMN_COUNT, true, { "type", "major" } },
	{ FAMILY_TARGET_PERIODS, SAMPLE_PERIODS, COLUMN_COUNT, true, { 0 } },
	{ FAMILY_TARGET_THROTTLED_PERIODS, SAMPLE_THROTTLED_PERIODS, COLUMN_COUNT, true, { 0 } },
	{ FAMILY_TARGET_THROTTLED, SAMPLE_THROTTLED, COLUMN_TIME, true, { 0 } },
	{ FAMILY_TARGET_CPU_WAIT, SAMPLE_CPU_WAIT, COLUMN_TIME, true, { 0 } },
	{ FAMILY_TARGET_CPU_ESTIMATED, SAMPLE_CPU_ESTIMATED, COLUMN_COUNT, true, { 0 } },
	{ FAMILY_TARGET_PRESSURE, SAMPLE_CPU_PRESSURE, COLUMN_TIME, true, { "resource", "cpu" } },
	{ FAMILY_TARGET_PRESSURE, SAMPLE_MEMORY_PRESSURE, COLUMN_TIME, true, { "resource", "memory" } },
	{ FAMILY_TARGET_PRESSURE, SAMPLE_IO_PRESSURE, COLUMN_TIME, true, { "resource", "io" } },
};

/* ---- targets ---- */

/* A target with series of its own. */
struct own {
	uint32_t id;
	size_t entry;
	size_t at, len; /* its labels within the text */
	size_t more;    /* bytes after them: those of its container, for the family that has them */
	struct sample sample;
};

/* One that is summed, as the last page had it. */
struct seen {
	uint32_t id;
	struct sample sample;
};

/* The sum of an entry. */
struct entry_sum {
	char *entry;
	uint64_t members;
	struct sample total; /* counters go on from page to page, gauges begin anew; its mask only grows */
	bool ever;           /* has had a member: it keeps its series */
};

/* A buffer as an array. */
#define ITEMS(buffer, type) ((type *)(void *)(buffer)->data)
#define ITEM_COUNT(buffer, type) ((buffer)->len / sizeof(type))

struct target_series {
	struct entry_sum *sums;
	size_t sum_count;
	struct buffer ids, own, text; /* of the page being made; kept for their memory */
	struct buffer seen, before;   /* struct seen, the latter sorted by id */
	struct label_names names;     /* of the labels of containers */
	uint32_t last_own;            /* ids up to this have series of their own */
};

/* ---- sums ---- */

static void free_sums(struct entry_sum *sums, size_t count)
{
	for (size_t i = 0; sums && i < count; i++)
		free(sums[i].entry);
	free(sums);
}

static bool sums_match(const struct target_series *series, const struct config *config)
{
	bool match = series->sums && series->sum_count == config->target_count;

	for (size_t i = 0; match && i < config->target_count; i++)
		match = strcmp(series->sums[i].entry, config->targets[i].name) == 0;

	return match;
}

/* One for each entry, in the order of the configuration; counters of entries that stay are kept. */
static int renew_sums(struct target_series *series, const struct config *config)
{
	size_t count = config->target_count;
	struct entry_sum *sums;

	if (sums_match(series, config))
		return 0;

	sums = calloc(count + 1, sizeof(*sums));
	for (size_t i = 0; sums && i < count; i++) {
		sums[i].entry = strdup(config->targets[i].name);
		if (sums[i].entry == NULL) {
			free_sums(sums, i);
			return -ENOMEM;
		}
	}
	if (sums == NULL)
		return -ENOMEM;

	for (size_t i = 0; i < count; i++)
		for (size_t k = 0; k < series->sum_count; k++)
			if (strcmp(sums[i].entry, series->sums[k].entry) == 0) {
				sums[i].total = series->sums[k].total;
				sums[i].ever = series->sums[k].ever;
			}
	free_sums(series->sums, series->sum_count);
	series->sums = sums;
	series->sum_count = count;

	return 0;
}

/* Targets come more or less by entry: hint is the last result. sum_count: no such entry. */
static size_t entry_of(const struct target_series *series, const char *entry, size_t hint)
{
	if (hint < series->sum_count && strcmp(series->sums[hint].entry, entry) == 0)
		return hint;
	for (size_t i = 0; i < series->sum_count; i++)
		if (strcmp(series->sums[i].entry, entry) == 0)
			return i;

	return series->sum_count;
}

static void begin_sums(struct target_series *series)
{
	for (size_t i = 0; i < series->sum_count; i++) {
		struct entry_sum *sum = &series->sums[i];

		sum->members = 0;
		for (enum sample_field field = 0; field < SAMPLE_FIELDS; field++)
			if (sample_field_info(field)->kind != SAMPLE_COUNTER)
				sum->total.value[field] = 0;
	}
}

/* Of ids, or of struct seen, which begins with one. */
static int by_id(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

/* A counter that decreased has started again from 0. */
static uint64_t growth(const struct sample *before, const struct sample *now, enum sample_field field)
{
	if (!before || !sample_has(before, field))
		return 0;

	return now->value[field] >= before->value[field] ? now->value[field] - before->value[field] : now->value[field];
}

static const struct seen *find_seen(const struct buffer *before, const struct seen *key)
{
	size_t count = ITEM_COUNT(before, struct seen);

	return count > 0 ? bsearch(key, before->data, count, sizeof(*key), by_id) : NULL;
}

/* What could not be read keeps its value, or the whole counter would be added when it returns. */
static int add_to_sum(struct target_series *series, size_t entry, uint32_t id, const struct sample *sample)
{
	struct seen key = { .id = id, .sample = *sample };
	const struct seen *known = find_seen(&series->before, &key);
	struct entry_sum *sum = entry < series->sum_count ? &series->sums[entry] : NULL;
	int r;

	for (enum sample_field field = 0; known && field < SAMPLE_FIELDS; field++)
		if (!sample_has(sample, field) && sample_has(&known->sample, field))
			sample_set(&key.sample, field, known->sample.value[field]);
	r = buffer_append(&series->seen, &key, sizeof(key));
	if (r < 0 || sum == NULL)
		return r;

	sum->members++;
	sum->ever = true;
	sum->total.mask |= sample->mask;
	for (enum sample_field field = 0; field < SAMPLE_FIELDS; field++)
		if (sample_has(sample, field))
			sum->total.value[field] += sample_field_info(field)->kind == SAMPLE_COUNTER
							   ? growth(known ? &known->sample : NULL, sample, field)
							   : sample->value[field];

	return 0;
}

/* For the next page. */
static void keep_seen(struct target_series *series)
{
	struct buffer emptied = series->before;

	if (series->seen.len > 0)
		qsort(series->seen.data, ITEM_COUNT(&series->seen, struct seen), sizeof(struct seen), by_id);
	series->before = series->seen;
	series->seen = emptied;
	series->seen.len = 0;
}

/* ---- the targets with series of their own ---- */

static int take_id(void *ctx, const struct evaluator_sight *sight)
{
	struct buffer *ids = ctx;

	return buffer_append(ids, &sight->target->id, sizeof(sight->target->id));
}

static int choose_own(struct target_series *series, const struct overview *overview)
{
	size_t count, most = overview->config->metrics.max_targets;
	int r;

	series->ids.len = 0;
	r = evaluator_visit_targets(overview->evaluator, take_id, &series->ids);
	if (r < 0)
		return r;

	count = ITEM_COUNT(&series->ids, uint32_t);
	series->last_own = most > 0 ? UINT32_MAX : 0;
	if (count > most && most > 0) {
		qsort(series->ids.data, count, sizeof(uint32_t), by_id);
		series->last_own = ITEMS(&series->ids, uint32_t)[most - 1];
	}

	return 0;
}

/* ---- the second visit ---- */

struct visit {
	struct target_series *series;
	struct label_cache *labels;
	size_t entry;
};

static int take_labels(const struct visit *visit, const struct target *target)
{
	struct target_series *series = visit->series;
	struct labels labels;

	if (series->names.count == 0 || !target->container || !*target->container ||
	    !label_cache_get(visit->labels, target->cgroup, &labels))
		return 0;

	return put_container_labels(&labels, &series->names, &series->text);
}

static int take_own(const struct visit *visit, const struct evaluator_sight *sight)
{
	struct target_series *series = visit->series;
	const struct target *target = sight->target;
	struct own own = { .id = target->id, .entry = visit->entry, .at = series->text.len, .sample = *sight->sample };
	int r = put_target_labels(target, &series->text);

	own.len = series->text.len - own.at;
	if (r == 0)
		r = take_labels(visit, target);
	own.more = series->text.len - own.at - own.len;

	return r < 0 ? r : buffer_append(&series->own, &own, sizeof(own));
}

/*
 * A target without a sample now remains a member of its sum: what was read of it is kept for the
 * next page.
 */
static int take_target(void *ctx, const struct evaluator_sight *sight)
{
	static const struct sample nothing;
	struct visit *visit = ctx;
	struct target_series *series = visit->series;

	visit->entry = entry_of(series, sight->target->entry, visit->entry);
	if (sight->target->id > series->last_own)
		return add_to_sum(series, visit->entry, sight->target->id, sight->seen ? sight->sample : &nothing);

	return sight->seen ? take_own(visit, sight) : 0;
}

static int by_labels(const void *a, const void *b, void *ctx)
{
	const struct own *left = a, *right = b;
	const char *text = ctx;
	size_t len = left->len < right->len ? left->len : right->len;
	int order = memcmp(text + left->at, text + right->at, len);

	if (order == 0)
		order = (left->len > right->len) - (left->len < right->len);

	return order != 0 ? order : (left->id > right->id) - (left->id < right->id);
}

/* Sorts, and moves all but the first of the same labels into the sums. */
static int make_unique(struct target_series *series)
{
	struct own *own = ITEMS(&series->own, struct own);
	size_t count = ITEM_COUNT(&series->own, struct own), kept = 0;
	const char *text = series->text.data;

	if (count == 0)
		return 0;

	qsort_r(own, count, sizeof(*own), by_labels, series->text.data);
	for (size_t i = 0; i < count; i++) {
		bool same = kept > 0 && own[kept - 1].len == own[i].len &&
			    memcmp(text + own[kept - 1].at, text + own[i].at, own[i].len) == 0;
		int r = same ? add_to_sum(series, own[i].entry, own[i].id, &own[i].sample) : 0;

		if (r < 0)
			return r;
		if (!same)
			own[kept++] = own[i];
	}
	series->own.len = kept * sizeof(*own);

	return 0;
}

/* ---- families ---- */

static void put_value(struct openmetrics *out, const struct target_column *column,
		      const struct openmetrics_labels *labels, uint64_t value)
{
	if (column->form == COLUMN_COUNT)
		openmetrics_u64(out, labels, value);
	else
		openmetrics_ns(out, labels, value); /* 1e9 ns/s is one core */
}

/* Without a known limit there is no sample. */
static void put_column(struct openmetrics *out, const struct target_column *column,
		       const struct openmetrics_labels *block, const struct sample *sample)
{
	struct openmetrics_labels labels = *block;
	uint64_t value = sample->value[column->field];

	if (!sample_has(sample, column->field))
		return;
	if (sample_field_info(column->field)->kind == SAMPLE_LIMIT && value == UINT64_MAX)
		return;

	labels.further[0] = column->label;
	put_value(out, column, &labels, value);
}

static void put_ratio(struct openmetrics *out, const struct openmetrics_labels *labels, const struct sample *sample)
{
	uint64_t limit = sample->value[SAMPLE_MEMORY_LIMIT];

	if (sample_has(sample, SAMPLE_MEMORY) && sample_has(sample, SAMPLE_MEMORY_LIMIT) && limit != UINT64_MAX &&
	    limit > 0)
		openmetrics_double(out, labels, (double)sample->value[SAMPLE_MEMORY] / (double)limit);
}

static struct openmetrics_labels labels_of(const struct target_series *series, const struct own *own)
{
	return (struct openmetrics_labels){ .block = series->text.data + own->at, .block_len = own->len };
}

static void put_own(const struct target_series *series, struct openmetrics *out, const struct target_column *column)
{
	const struct own *own = ITEMS(&series->own, struct own);

	for (size_t i = 0; i < ITEM_COUNT(&series->own, struct own); i++) {
		struct openmetrics_labels labels = labels_of(series, &own[i]);

		if (column)
			put_column(out, column, &labels, &own[i].sample);
		else
			put_ratio(out, &labels, &own[i].sample);
	}
}

static void put_info(const struct target_series *series, struct openmetrics *out)
{
	const struct own *own = ITEMS(&series->own, struct own);

	openmetrics_family(out, &families[FAMILY_TARGET_INFO]);
	for (size_t i = 0; i < ITEM_COUNT(&series->own, struct own); i++) {
		struct openmetrics_labels labels = labels_of(series, &own[i]);

		labels.block_len += own[i].more;
		if (own[i].more > 0)
			openmetrics_u64(out, &labels, 1);
	}
}

static int put_sums(const struct target_series *series, struct openmetrics *out, const struct target_column *column)
{
	AUTO(buffer_release) struct buffer text = { 0 };

	for (size_t i = 0; column->summed && i < series->sum_count; i++) {
		const struct entry_sum *sum = &series->sums[i];
		int r = 0;

		if (!sum->ever)
			continue;
		text.len = 0;
		r = put_sum_labels(sum->entry, &text);
		if (r < 0)
			return r;
		put_column(out, column, &(struct openmetrics_labels){ .block = text.data, .block_len = text.len },
			   &sum->total);
	}

	return 0;
}

static int put_families(const struct target_series *series, struct openmetrics *out)
{
	put_info(series, out);
	for (size_t i = 0; i < ARRAY_LEN(target_columns); i++) {
		int r;

		if (i == 0 || target_columns[i].family != target_columns[i - 1].family)
			openmetrics_family(out, &families[target_columns[i].family]);
		put_own(series, out, &target_columns[i]);
		r = put_sums(series, out, &target_columns[i]);
		if (r < 0)
			return r;
	}
	openmetrics_family(out, &families[FAMILY_TARGET_MEMORY_RATIO]);
	put_own(series, out, NULL);

	openmetrics_family(out, &families[FAMILY_SUMMED]);
	for (size_t i = 0; i < series->sum_count; i++) {
		struct openmetrics_labels labels = { .further = { { "entry", series->sums[i].entry } } };

		openmetrics_u64(out, &labels, series->sums[i].members);
	}

	return 0;
}

/*
 * Writes the families of targets. 0; -ENOMEM (nothing of it is counted twice next time); the first
 * error of out.
 */
static int target_series_write(struct target_series *series, const struct overview *overview, struct openmetrics *out)
{
	const struct config_metrics *metrics = &overview->config->metrics;
	struct visit visit = { .series = series, .labels = session_parts(overview->session).labels };
	int r = renew_sums(series, overview->config);

	label_names_make(metrics->container_labels, metrics->container_label_count, &series->names);

	if (r == 0)
		r = choose_own(series, overview);
	if (r < 0)
		return r;

	begin_sums(series);
	series->own.len = series->text.len = series->seen.len = 0;
	r = evaluator_visit_targets(overview->evaluator, take_target, &visit);
	if (r == 0)
		r = make_unique(series);
	if (r == 0)
		r = put_families(series, out);
	keep_seen(series);

	return r;
}

static void target_series_release(struct target_series *series)
{
	free_sums(series->sums, series->sum_count);
	buffer_release(&series->ids);
	buffer_release(&series->own);
	buffer_release(&series->text);
	buffer_release(&series->seen);
	buffer_release(&series->before);
}

struct exposition {
	wall_t started;
	struct target_series series;
};

static void begin(struct openmetrics *out, enum family family)
{
	openmetrics_family(out, &families[family]);
}

static void put_u64(struct openmetrics *out, enum family family, uint64_t value)
{
	begin(out, family);
	openmetrics_u64(out, NULL, value);
}

static void put_ns(struct openmetrics *out, enum family family, uint64_t value)
{
	begin(out, family);
	openmetrics_ns(out, NULL, value);
}

static void put_double(struct openmetrics *out, enum family family, double value)
{
	begin(out, family);
	openmetrics_double(out, NULL, value);
}

static struct openmetrics_labels labelled(const char *name, const char *value)
{
	return (struct openmetrics_labels){ .further = { { name, value } } };
}

/* ---- the daemon: process, sampler, ring ---- */

static void put_daemon(struct openmetrics *out, const struct exposition *exposition, const struct overview *overview,
		       const struct vitals *vitals)
{
	struct openmetrics_labels version = labelled("version", SPIKEWATCH_VERSION);
	struct samplers_state samplers = samplers_state(session_parts(overview->session).samplers);

	begin(out, FAMILY_BUILD);
	openmetrics_u64(out, &version, 1);
	put_ns(out, FAMILY_START_TIME, exposition->started.ns);
	put_ns(out, FAMILY_PROCESS_CPU, vitals->cpu_ns);
	put_u64(out, FAMILY_PROCESS_RESIDENT, vitals->resident_bytes);
	put_u64(out, FAMILY_PROCESS_FDS, vitals->open_fds);
	put_ns(out, FAMILY_INTERVAL, overview->config->sampling.interval_ns);
	put_u64(out, FAMILY_SLOWDOWN, samplers.slowdown);
	put_double(out, FAMILY_CPU_SHARE, samplers.cpu_share);
}

/* Counters of the sampler. */
static const struct {
	enum family family;
	size_t offset;
} counters[] = {
	{ FAMILY_SNAPSHOTS, offsetof(struct stats, total_snapshots) },
	{ FAMILY_SLOTS, offsetof(struct stats, total_slots) },
	{ FAMILY_MISSED_SLOTS, offsetof(struct stats, missed_slots) },
	{ FAMILY_PAST_SNAPSHOTS, offsetof(struct stats, past_snapshots) },
	{ FAMILY_SLEEP_ERROR, offsetof(struct stats, total_sleep_timing_error) },
	{ FAMILY_COLLECTION, offsetof(struct stats, total_collection_timing_error) },
	{ FAMILY_BACKOFF, offsetof(struct stats, total_backoff_sleep) },
	{ FAMILY_BACKOFFS, offsetof(struct stats, num_backoff_sleeps) },
	{ FAMILY_LOST_RECORDS, offsetof(struct stats, lost_records) },
	{ FAMILY_FAILED_READS, offsetof(struct stats, failed_reads) },
	{ FAMILY_SKIPPED_READS, offsetof(struct stats, skipped_reads) },
	{ FAMILY_SAVED_LOOKS, offsetof(struct stats, saved_looks) },
	{ FAMILY_GONE_TARGETS, offsetof(struct stats, gone_targets) },
	{ FAMILY_RECORDS, offsetof(struct stats, records) },
	{ FAMILY_RECORDED, offsetof(struct stats, bytes) },
	{ FAMILY_SAMPLER_CPU, offsetof(struct stats, own_cpu) },
	{ FAMILY_RUN_DELAY, offsetof(struct stats, run_delay) },
	{ FAMILY_STARVED, offsetof(struct stats, starved) },
	{ FAMILY_STOPPED, offsetof(struct stats, stopped) },
	{ FAMILY_THROTTLED_SELF, offsetof(struct stats, throttled) },
	{ FAMILY_STOLEN, offsetof(struct stats, stolen) },
	{ FAMILY_REAL_TIME, offsetof(struct stats, real_time) },
	{ FAMILY_SAMPLER_THREADS, offsetof(struct stats, threads) },
};

/* Times are counted in nanoseconds; the family says which of them are times. */
static void put_counters(struct openmetrics *out, const struct stats *stats)
{
	for (size_t i = 0; i < ARRAY_LEN(counters); i++) {
		uint64_t value = *(const uint64_t *)(const void *)((const char *)stats + counters[i].offset);
		bool time = families[counters[i].family].unit[0] == 's';

		(time ? put_ns : put_u64)(out, counters[i].family, value);
	}
}

static void put_verdicts(struct openmetrics *out, const struct health *health, const struct verdict *verdicts)
{
	static const char *const names[VERDICT_KINDS] = {
		[VERDICT_CAPTURE_RATE] = "capture_rate",
		[VERDICT_SLEEP_ERROR] = "sleep_error",
		[VERDICT_COLLECTION] = "collection",
		[VERDICT_BACKOFF] = "backoff",
	};
	struct openmetrics_labels labels[VERDICT_KINDS];

	for (int i = 0; i < VERDICT_KINDS; i++)
		labels[i] = labelled("verdict", names[i]);
	begin(out, FAMILY_VERDICT_RATIO);
	for (int i = 0; i < VERDICT_KINDS; i++)
		openmetrics_double(out, &labels[i], verdicts[i].ratio);
	begin(out, FAMILY_VERDICT_THRESHOLD);
	for (int i = 0; i < VERDICT_KINDS; i++)
		openmetrics_double(out, &labels[i], verdicts[i].threshold);
	begin(out, FAMILY_VERDICT_BAD);
	for (int i = 0; i < VERDICT_KINDS; i++)
		openmetrics_u64(out, &labels[i], health->bad[i]);
	begin(out, FAMILY_VERDICT_EPISODES);
	for (int i = 0; i < VERDICT_KINDS; i++)
		openmetrics_u64(out, &labels[i], health->episodes[i]);
}

static void put_sampler(struct openmetrics *out, const struct overview *overview)
{
	static const struct stats nothing;
	struct verdict verdicts[VERDICT_KINDS];
	struct stats stats = { 0 };

	if (ring_stats(session_parts(overview->session).ring, &stats) < 0)
		return;

	stats_verdicts(&stats, &nothing, verdicts);
	put_counters(out, &stats);
	put_double(out, FAMILY_CAPTURE, verdicts[VERDICT_CAPTURE_RATE].ratio);
	put_verdicts(out, overview->health, verdicts);
}

static void put_ring(struct openmetrics *out, const struct overview *overview, const struct vitals *vitals)
{
	struct dispatcher_counts watched;
	struct ring_info info;

	ring_info(session_parts(overview->session).ring, &info);
	dispatcher_counts(overview->dispatcher, &watched);
	put_u64(out, FAMILY_RING_SIZE, info.size_bytes);
	put_ns(out, FAMILY_RING_HISTORY, vitals->history_ns);
	put_u64(out, FAMILY_RING_TICKS, info.ticks);
	put_u64(out, FAMILY_UNJUDGED_PAGES, watched.lost_pages);
	put_u64(out, FAMILY_DAMAGED_PAGES, watched.damaged_pages);
}

/* ---- discovery, incidents ---- */

static void put_discovery(struct openmetrics *out, const struct overview *overview)
{
	struct foreign_counts foreign = foreign_counts();
	struct discovery_state found;

	discovery_state(session_parts(overview->session).discovery, &found);
	put_u64(out, FAMILY_TARGETS, found.target_table.targets);
	put_u64(out, FAMILY_MEMBERS, found.target_table.members);
	put_u64(out, FAMILY_PROCESSES, found.processes);
	put_u64(out, FAMILY_WARM, found.target_table.processes - found.target_table.cold);
	put_u64(out, FAMILY_COLD, found.target_table.cold);
	put_u64(out, FAMILY_UNREADABLE, found.unreadable);
	put_u64(out, FAMILY_READERS_LEFT, foreign.left);
	put_u64(out, FAMILY_UNANSWERED_READS, foreign.hung);
	put_u64(out, FAMILY_REFUSED_READS, foreign.refused);
	put_u64(out, FAMILY_REFUSED_TARGETS, found.target_table.refused);
	put_u64(out, FAMILY_FAILED_TARGETS, found.target_table.failed);
	put_u64(out, FAMILY_FOUND_TARGETS, found.target_table.found);
	put_u64(out, FAMILY_LEFT_TARGETS, found.target_table.left);
	put_u64(out, FAMILY_SCANS, found.scans);
	put_ns(out, FAMILY_LAST_SCAN, found.last_scan_ns);
	put_u64(out, FAMILY_UNFINISHED, found.error != 0);
	put_u64(out, FAMILY_LISTENING, found.source != PROCESS_EVENTS_NONE);
	put_u64(out, FAMILY_EVENTS, found.events);
	put_u64(out, FAMILY_OVERRUNS, found.overruns);
	put_u64(out, FAMILY_MISSED, found.missed + found.dropped);
	put_u64(out, FAMILY_CREDITED, found.credited);
	put_u64(out, FAMILY_LATE, found.late);
	put_u64(out, FAMILY_STORMS, found.storms);
}

static void put_notifications(struct openmetrics *out, const struct config *config, struct notifier *notifier)
{
	static const enum family told[] = { FAMILY_NOTIFICATIONS_SENT, FAMILY_NOTIFICATIONS_RETRIED,
					    FAMILY_NOTIFICATIONS_FAILED, FAMILY_NOTIFICATIONS_LIMITED,
					    FAMILY_NOTIFICATIONS_PENDING };

	for (size_t family = 0; family < ARRAY_LEN(told); family++) {
		begin(out, told[family]);
		for (size_t i = 0; i < config->notify_count; i++) {
			struct openmetrics_labels labels = labelled("way", config->notifies[i].name);
			struct notify_counts counts;

			notifier_counts(notifier, config->notifies[i].name, &counts);
			const uint64_t values[] = { counts.sent, counts.retried, counts.failed + counts.dropped,
						    counts.limited, counts.pending };

			openmetrics_u64(out, &labels, values[family]);
		}
	}
}

static void put_incidents(struct openmetrics *out, const struct overview *overview)
{
	struct incidents_counts counts;

	incidents_counts(overview->incidents, &counts);
	put_u64(out, FAMILY_INCIDENTS_OPENED, counts.opened);
	put_u64(out, FAMILY_INCIDENTS_SEALED, counts.sealed);
	put_u64(out, FAMILY_INCIDENTS_MERGED, counts.merged);
	put_u64(out, FAMILY_INCIDENTS_FAILED, counts.failed);
	put_u64(out, FAMILY_INCIDENTS_REFUSED, counts.refused);
	put_u64(out, FAMILY_INCIDENTS_MANUAL, counts.manual);
	put_u64(out, FAMILY_INCIDENTS_REMOVED, counts.removed);
	put_u64(out, FAMILY_INCIDENTS_OPEN, counts.open);
	put_u64(out, FAMILY_INCIDENTS_PENDING, counts.pending);
	put_u64(out, FAMILY_STORM_FIRINGS, counts.storm_firings);
	put_notifications(out, overview->config, counts.notifier);
}

static void put_history(struct openmetrics *out, const struct minute_log *log)
{
	struct minute_log_state state = { 0 };

	if (log)
		minute_log_state(log, &state);
	put_u64(out, FAMILY_HISTORY_BYTES, state.bytes);
	put_u64(out, FAMILY_HISTORY_WRITTEN, state.written);
	put_u64(out, FAMILY_HISTORY_LOST, state.lost);
	put_u64(out, FAMILY_HISTORY_WAITING, state.waiting);
}

/* ---- rules ---- */

/* offset: of a uint64_t in struct rule_count. */
static void put_by_rule(struct openmetrics *out, const struct overview *overview, enum family family, size_t offset)
{
	const struct config *config = overview->config;

	begin(out, family);
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct rule_count *counts = rule_counts_of(overview->rule_counts, &config->rules[i]);
		struct openmetrics_labels labels = labelled("rule", config->rules[i].name);

		if (counts)
			openmetrics_u64(out, &labels, *(const uint64_t *)(const void *)((const char *)counts + offset));
	}
}

/* Reasons of candidates that did not fire; 0 for those that never occurred. */
static void put_suppressed(struct openmetrics *out, const struct overview *overview)
{
	const struct config *config = overview->config;

	begin(out, FAMILY_RULE_SUPPRESSED);
	for (size_t i = 0; i < config->rule_count; i++) {
		const struct rule_count *counts = rule_counts_of(overview->rule_counts, &config->rules[i]);
		struct openmetrics_labels labels = labelled("rule", config->rules[i].name);

		for (enum trigger_reason reason = TRIGGER_PENDING; counts && reason < TRIGGER_REASONS; reason++) {
			labels.further[1] = (struct openmetrics_label){ "reason", trigger_reason_name(reason) };
			openmetrics_u64(out, &labels, counts->reasons[reason]);
		}
	}
}

static void put_rules(struct openmetrics *out, const struct overview *overview)
{
	if (overview->rule_counts == NULL)
		return;

	put_by_rule(out, overview, FAMILY_RULE_WINDOWS, offsetof(struct rule_count, windows));
	put_by_rule(out, overview, FAMILY_RULE_UNAVAILABLE, offsetof(struct rule_count, reasons[TRIGGER_UNAVAILABLE]));
	put_suppressed(out, overview);
	put_by_rule(out, overview, FAMILY_RULE_FIRINGS, offsetof(struct rule_count, fired));
	put_by_rule(out, overview, FAMILY_RULE_INCIDENTS, offsetof(struct rule_count, opened));
}

int exposition_write(struct exposition *exposition, const struct overview *overview, enum openmetrics_form form,
		     struct buffer *ret)
{
	struct openmetrics out;
	struct vitals vitals;
	int r;

	vitals_read(session_parts(overview->session).ring, &vitals);
	openmetrics_init(&out, sink_buffer(ret), form);
	put_daemon(&out, exposition, overview, &vitals);
	put_sampler(&out, overview);
	put_ring(&out, overview, &vitals);
	put_discovery(&out, overview);
	put_incidents(&out, overview);
	put_history(&out, overview->minute_log);
	put_rules(&out, overview);
	r = target_series_write(&exposition->series, overview, &out);
	if (r < 0)
		return r;

	return openmetrics_finish(&out);
}

int exposition_new(wall_t started, struct exposition **ret)
{
	struct exposition *exposition = calloc(1, sizeof(*exposition));

	if (!exposition)
		return -ENOMEM;

	exposition->started = started;
	*ret = exposition;

	return 0;
}

void exposition_free(struct exposition *exposition)
{
	if (exposition)
		target_series_release(&exposition->series);
	free(exposition);
}
