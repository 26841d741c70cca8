/*
 * exposition.h: how the daemon and its targets are, as metrics. What there is: families.h,
 * docs/metrics.md. Belongs to the main thread.
 *
 * It remembers a little from page to page, because what is summed must not count backwards when one
 * of the sum ends.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_METRICS_EXPOSITION_H
#define SPIKEWATCH_DAEMON_SERVICE_METRICS_EXPOSITION_H

#include "daemon/engine/incident/incidents.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/unit_bus.h"
#include "daemon/service/health/overview.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/config/config.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * openmetrics.h: figures as text that a metrics server reads: families of samples with labels, in
 * the two forms that are in use, OpenMetrics 1.0 and the text format 0.0.4 of Prometheus. Pure:
 * onto a sink.
 *
 * 	openmetrics_init ─▶ { openmetrics_family ─▶ { openmetrics_u64, _ns, _double } } ─▶
 *  openmetrics_finish
 *
 * What they differ in is this module's: the name in the lines about a counter, units, the mark of
 * the end. The writer is sticky: the first error is returned by every later call.
 */

enum openmetrics_form {
	OPENMETRICS_0_0_4, /* Prometheus' own; what whoever does not ask for more gets */
	OPENMETRICS_1_0,
};

enum openmetrics_kind {
	OPENMETRICS_COUNTER, /* its samples are called NAME_total */
	OPENMETRICS_GAUGE,
	OPENMETRICS_INFO, /* NAME_info, of value 1: the labels are what it says */
};

/* name, unit, help: plain ASCII of our own, without quotes, backslashes and newlines. */
struct openmetrics_family {
	const char *name; /* without _total or _info; ends in _UNIT if there is a unit */
	enum openmetrics_kind kind;
	const char *unit; /* "seconds", "bytes", "ratio"; "": none */
	const char *help;
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

/* The caller's storage; its members are this module's. */
struct openmetrics {
	struct sink sink;
	enum openmetrics_form form;
	const struct openmetrics_family *family;
	bool begun; /* the lines about the family are written */
	int error;
};

/* The media type of a form; static text. */
const char *openmetrics_type(enum openmetrics_form form);

/*
 * The form that a client prefers by its Accept header (RFC 9110, 12.5.1): OpenMetrics only if it
 * names it, and likes it no less than plain text. NULL, and whatever makes no sense, is 0.0.4.
 */
enum openmetrics_form openmetrics_negotiate(const char *accept);

/* Begins a page. Nothing is written yet, and nothing is to be released. */
void openmetrics_init(struct openmetrics *writer, struct sink sink, enum openmetrics_form form);

/*
 * What follows belongs to family, which must live until the next one. Nothing is written of a
 * family without samples.
 */
void openmetrics_family(struct openmetrics *writer, const struct openmetrics_family *family);

/*
 * A sample. ns: nanoseconds, written as seconds, exactly. labels may be NULL. 0 or the first error
 * of the sink.
 */
int openmetrics_u64(struct openmetrics *writer, const struct openmetrics_labels *labels, uint64_t value);
int openmetrics_ns(struct openmetrics *writer, const struct openmetrics_labels *labels, uint64_t value);
int openmetrics_double(struct openmetrics *writer, const struct openmetrics_labels *labels, double value);

/* The end. 0 or the first error. */
int openmetrics_finish(struct openmetrics *writer);

/*
 * Appends count labels to ret as they stand in a sample: NAME="VALUE",... In values control
 * characters and bytes that are not UTF-8 become U+FFFD. 0; -ENOMEM; -EFBIG.
 */
int openmetrics_block(const struct openmetrics_label *labels, size_t count, struct buffer *ret);

/*
 * label_names.h: what labels of containers are called in metrics: as kube-state-metrics calls those
 * of pods, so that both can be joined. Pure.
 */

/*
 * "label_", a key in which an underscore stands before every second byte at most, and
 * "_conflict16".
 */
#define LABEL_NAMES_ROOM (6 + 2 * LABELS_KEY_MAX + 11 + 1)

struct label_names {
	const char *const *keys;
	size_t count;
	char names[CONFIG_LABELS_MAX][LABEL_NAMES_ROOM];
};

/*
 * "app.kubernetes.io/partOf" is label_app_kubernetes_io_part_of: what is no letter or digit becomes
 * "_", and one comes before a capital that follows a small letter or a digit. Those that would be
 * called the same are label_x_conflict1, label_x_conflict2, in the order of the keys. At most
 * CONFIG_LABELS_MAX keys, which must outlive *ret.
 */
void label_names_make(const char *const *keys, size_t count, struct label_names *ret);

/*
 * families.h: every family of metrics there is: the one table from which they are written
 * (exposition.h) and against which docs/metrics.md is held.
 *
 * Names follow the conventions of Prometheus: base units, which end the name; what only grows is a
 * counter, whose samples end in _total. A family once published keeps its name and meaning.
 */

/* The labels of everything that is said of a target. */
#define METRIC_FAMILIES_TARGET "target, entry, kind"

// clang-format off
/*
 * identifier           name                                  kind     unit       labels       what
 *                      it is
 */
#define METRIC_FAMILIES_TABLE(X)                                                                                                                     \
	X(BUILD,               "spikewatch_build",                     INFO,    "",        "version",   "Version of spikewatchd.")                       \
	X(START_TIME,          "spikewatch_start_time_seconds",        GAUGE,   "seconds", "",          "When the daemon started, since 1970.")          \
	X(PROCESS_CPU,         "spikewatch_process_cpu_seconds",       COUNTER, "seconds", "",          "CPU time of the daemon, all threads.")          \
	X(PROCESS_RESIDENT,    "spikewatch_process_resident_memory_bytes", GAUGE, "bytes", "",          "Resident memory of the daemon, the ring included.") \
	X(PROCESS_FDS,         "spikewatch_process_open_fds",          GAUGE,   "",        "",          "Open descriptors of the daemon.")               \
	X(INTERVAL,            "spikewatch_sampling_interval_seconds", GAUGE,   "seconds", "",          "Sampling interval as configured.")              \
	X(SLOWDOWN,            "spikewatch_sampling_slowdown_ratio",   GAUGE,   "ratio",   "",          "Interval in force by interval configured: above 1 while the CPU budget is exceeded.") \
	X(CPU_SHARE,           "spikewatch_sampling_budgeted_cpu_ratio", GAUGE, "ratio",   "",          "CPU use that counts against the budget in the last whole second, of one core.") \
	X(SNAPSHOTS,           "spikewatch_sampler_snapshots",         COUNTER, "",        "",          "Ticks taken.")                                  \
	X(SLOTS,               "spikewatch_sampler_slots",             COUNTER, "",        "",          "Slots that elapsed on the clock, taken or not.") \
	X(MISSED_SLOTS,        "spikewatch_sampler_missed_slots",      COUNTER, "",        "",          "Slots that were skipped because they had passed.") \
	X(CAPTURE,             "spikewatch_sampler_capture_ratio",     GAUGE,   "ratio",   "",          "Slots that were taken, of those that elapsed, over the whole run.") \
	X(SLEEP_ERROR,         "spikewatch_sampler_sleep_error_seconds", COUNTER, "seconds", "",        "Sum of how far wake-ups were off their deadline.") \
	X(COLLECTION,          "spikewatch_sampler_collection_seconds", COUNTER, "seconds", "",         "Time spent reading targets.")                   \
	X(BACKOFF,             "spikewatch_sampler_backoff_seconds",   COUNTER, "seconds", "",          "Time slept because a blocking reader held the ring.") \
	X(BACKOFFS,            "spikewatch_sampler_backoffs",          COUNTER, "",        "",          "Such sleeps.")                                  \
	X(LOST_RECORDS,        "spikewatch_sampler_lost_records",      COUNTER, "",        "",          "Records that did not fit because no page was free.") \
	X(FAILED_READS,        "spikewatch_sampler_failed_reads",      COUNTER, "",        "",          "Reads that failed although the target exists.") \
	X(SKIPPED_READS,       "spikewatch_sampler_skipped_reads",     COUNTER, "",        "",          "Reads saved because a target had not run, or hardly.")     \
	X(SAVED_LOOKS,         "spikewatch_sampler_saved_looks",       COUNTER, "",        "",          "Looks at processes that were idle, saved by taking them less often.") \
	X(GONE_TARGETS,        "spikewatch_sampler_gone_targets",      COUNTER, "",        "",          "Targets that vanished.")                        \
	X(RECORDS,             "spikewatch_sampler_records",           COUNTER, "",        "",          "Records written to the ring.")                  \
	X(RECORDED,            "spikewatch_sampler_recorded_bytes",    COUNTER, "bytes",   "",          "Bytes written to the ring.")                    \
	X(SAMPLER_CPU,         "spikewatch_sampler_cpu_seconds",       COUNTER, "seconds", "",          "CPU time of the sampler threads.")              \
	X(SAMPLER_THREADS,     "spikewatch_sampler_threads",           GAUGE,   "",        "",          "Sampler threads; the figures above are sums over them.") \
	X(VERDICT_RATIO,       "spikewatch_sampler_verdict_ratio",     GAUGE,   "ratio",   "verdict",   "What is judged, over the whole run.")           \
	X(VERDICT_THRESHOLD,   "spikewatch_sampler_verdict_threshold_ratio", GAUGE, "ratio", "verdict", "What it is held against: the capture rate should be above, the others below.") \
	X(VERDICT_BAD,         "spikewatch_sampler_verdict_bad",       GAUGE,   "",        "verdict",   "1 if it was bad in the last ten seconds, else 0.") \
	X(VERDICT_EPISODES,    "spikewatch_sampler_verdict_episodes",  COUNTER, "",        "verdict",   "Times that it became bad.")                     \
	X(RING_SIZE,           "spikewatch_ring_size_bytes",           GAUGE,   "bytes",   "",          "Size of the ring.")                             \
	X(RING_HISTORY,        "spikewatch_ring_history_seconds",      GAUGE,   "seconds", "",          "From the oldest tick in the ring to the newest.") \
	X(RING_TICKS,          "spikewatch_ring_ticks",                COUNTER, "",        "",          "Ticks published in the ring.")                  \
	X(UNJUDGED_PAGES,      "spikewatch_ring_unjudged_pages",       COUNTER, "",        "",          "Pages that were overwritten before the rules saw them.") \
	X(DAMAGED_PAGES,       "spikewatch_ring_damaged_pages",        COUNTER, "",        "",          "Pages that were skipped because they are damaged.") \
	X(TARGETS,             "spikewatch_discovery_targets",         GAUGE,   "",        "",          "Targets watched, members of groups not counted.") \
	X(MEMBERS,             "spikewatch_discovery_members",         GAUGE,   "",        "",          "Processes that are summed in groups.")          \
	X(PROCESSES,           "spikewatch_discovery_processes",       GAUGE,   "",        "",          "Processes on the host as of the last scan.")    \
	X(WARM,                "spikewatch_discovery_warm_processes",  GAUGE,   "",        "",          "Watched processes that are read through descriptors of their own.") \
	X(COLD,                "spikewatch_discovery_cold_processes",  GAUGE,   "",        "",          "Watched processes without descriptors: there are too few for all.") \
	X(UNREADABLE,          "spikewatch_discovery_unreadable_processes", GAUGE, "",     "",          "Of them hidden from the daemon.")               \
	X(REFUSED_TARGETS,     "spikewatch_discovery_refused_targets", GAUGE,   "",        "",          "Targets beyond max_targets in the last scan.")  \
	X(FAILED_TARGETS,      "spikewatch_discovery_failed_targets",  GAUGE,   "",        "",          "Targets that could not be opened in the last scan.") \
	X(FOUND_TARGETS,       "spikewatch_discovery_found_targets",   COUNTER, "",        "",          "Targets and members found.")                    \
	X(LEFT_TARGETS,        "spikewatch_discovery_left_targets",    COUNTER, "",        "",          "Targets and members that ended or are watched no more.") \
	X(SCANS,               "spikewatch_discovery_scans",           COUNTER, "",        "",          "Scans for targets.")                            \
	X(LAST_SCAN,           "spikewatch_discovery_last_scan_seconds", GAUGE, "seconds", "",          "How long the last scan took.")                  \
	X(UNFINISHED,          "spikewatch_discovery_unfinished",      GAUGE,   "",        "",          "1 if the last scan could not be finished, else 0.") \
	X(LISTENING,           "spikewatch_discovery_listening",       GAUGE,   "",        "",          "1 if the kernel tells of processes between scans, else 0.") \
	X(EVENTS,              "spikewatch_discovery_events",          COUNTER, "",        "",          "News of processes from the kernel.")            \
	X(OVERRUNS,            "spikewatch_discovery_overruns",        COUNTER, "",        "",          "Times that news were lost; each is followed by a scan.") \
	X(MISSED,              "spikewatch_discovery_missed_processes", COUNTER, "",       "",          "Processes that came and went before they were looked at.") \
	X(CREDITED,            "spikewatch_discovery_credited_processes", COUNTER, "",     "",          "Of them counted in a group by their exit records.") \
	X(LATE,                "spikewatch_discovery_late_processes",  COUNTER, "",        "",          "Processes that were looked at late, or left to a scan, because looking had taken its share of a core.") \
	X(STORMS,              "spikewatch_discovery_storms",          COUNTER, "",        "",          "Seconds after which processes that still waited for that were left to a scan.") \
	X(INCIDENTS_OPENED,    "spikewatch_incidents_opened",          COUNTER, "",        "",          "Incidents begun.")                              \
	X(INCIDENTS_SEALED,    "spikewatch_incidents_sealed",          COUNTER, "",        "",          "Incidents written completely.")                 \
	X(INCIDENTS_MERGED,    "spikewatch_incidents_merged",          COUNTER, "",        "",          "Firings that became part of an open incident.") \
	X(INCIDENTS_FAILED,    "spikewatch_incidents_failed",          COUNTER, "",        "",          "Incidents that could not be written.")          \
	X(INCIDENTS_REFUSED,   "spikewatch_incidents_refused",         COUNTER, "",        "",          "Firings and requests for which no incident could be begun.") \
	X(INCIDENTS_MANUAL,    "spikewatch_incidents_requested",       COUNTER, "",        "",          "Incidents that were asked for by hand, whatever became of them.") \
	X(INCIDENTS_REMOVED,   "spikewatch_incidents_removed",         COUNTER, "",        "",          "Incidents removed by the limits of bytes, count and age.") \
	X(INCIDENTS_OPEN,      "spikewatch_incidents_open",            GAUGE,   "",        "",          "Incidents being recorded or written.")          \
	X(RULE_WINDOWS,        "spikewatch_rule_windows",              COUNTER, "",        "rule",      "Windows judged.")                               \
	X(RULE_UNAVAILABLE,    "spikewatch_rule_unavailable",          COUNTER, "",        "rule",      "Windows of them without a value.")              \
	X(RULE_SUPPRESSED,     "spikewatch_rule_suppressed",           COUNTER, "",        "rule, reason", "Windows above a threshold in which the rule did not fire, by why.") \
	X(RULE_FIRINGS,        "spikewatch_rule_firings",              COUNTER, "",        "rule",      "Windows in which the rule fired.")              \
	X(RULE_INCIDENTS,      "spikewatch_rule_incidents",            COUNTER, "",        "rule",      "Firings that began an incident.")               \
	X(TARGET_INFO,         "spikewatch_target",                    INFO,    "",        METRIC_FAMILIES_TARGET ", label_...", "Labels of its container that metrics.container_labels names.") \
	X(TARGET_CPU,          "spikewatch_target_cpu_seconds",        COUNTER, "seconds", METRIC_FAMILIES_TARGET, "CPU time used.")                            \
	X(TARGET_CPU_MODE,     "spikewatch_target_cpu_mode_seconds",   COUNTER, "seconds", METRIC_FAMILIES_TARGET ", mode", "CPU time used, by mode; coarser than the total.") \
	X(TARGET_MEMORY,       "spikewatch_target_memory_bytes",       GAUGE,   "bytes",   METRIC_FAMILIES_TARGET, "Memory used: resident of a process, charged to a cgroup.") \
	X(TARGET_PEAK,         "spikewatch_target_memory_peak_bytes",  GAUGE,   "bytes",   METRIC_FAMILIES_TARGET, "High-water mark of memory.")                \
	X(TARGET_WORKING_SET,  "spikewatch_target_working_set_bytes",  GAUGE,   "bytes",   METRIC_FAMILIES_TARGET, "Memory of a cgroup without inactive file cache.") \
	X(TARGET_CPU_LIMIT,    "spikewatch_target_cpu_limit_cores",    GAUGE,   "",        METRIC_FAMILIES_TARGET, "Effective CPU limit, in cores.")            \
	X(TARGET_MEMORY_LIMIT, "spikewatch_target_memory_limit_bytes", GAUGE,   "bytes",   METRIC_FAMILIES_TARGET, "Effective memory limit.")                   \
	X(TARGET_MEMORY_RATIO, "spikewatch_target_memory_limit_used_ratio", GAUGE, "ratio", METRIC_FAMILIES_TARGET, "Memory used, of the effective limit.")    \
	X(TARGET_THREADS,      "spikewatch_target_threads",            GAUGE,   "",        METRIC_FAMILIES_TARGET, "Threads.")                                  \
	X(TARGET_FDS,          "spikewatch_target_open_fds",           GAUGE,   "",        METRIC_FAMILIES_TARGET, "Open descriptors.")                         \
	X(TARGET_TASKS,        "spikewatch_target_tasks",              GAUGE,   "",        METRIC_FAMILIES_TARGET, "Tasks in a cgroup.")                        \
	X(TARGET_PROCESSES,    "spikewatch_target_processes",          GAUGE,   "",        METRIC_FAMILIES_TARGET, "Processes summed in a group.")              \
	X(TARGET_FAULTS,       "spikewatch_target_page_faults",        COUNTER, "",        METRIC_FAMILIES_TARGET ", type", "Page faults.")                    \
	X(TARGET_PERIODS,      "spikewatch_target_cpu_periods",        COUNTER, "",        METRIC_FAMILIES_TARGET, "CPU quota periods that elapsed.")           \
	X(TARGET_THROTTLED_PERIODS, "spikewatch_target_cpu_throttled_periods", COUNTER, "", METRIC_FAMILIES_TARGET, "CPU quota periods in which the cgroup was throttled.") \
	X(TARGET_THROTTLED,    "spikewatch_target_cpu_throttled_seconds", COUNTER, "seconds", METRIC_FAMILIES_TARGET, "Time throttled, all CPUs.")            \
	X(TARGET_PRESSURE,     "spikewatch_target_pressure_waiting_seconds", COUNTER, "seconds", METRIC_FAMILIES_TARGET ", resource", "Time in which some task waited for a resource.") \
	X(SUMMED,              "spikewatch_summed_targets",            GAUGE,   "",        "entry",     "Targets that have no series of their own: they are summed in the target other.")

enum family {
#define X(identifier, name, kind, unit, labels, help) FAMILY_##identifier,
	METRIC_FAMILIES_TABLE(X)
#undef X
	FAMILIES
};
// clang-format on

/* Never fails for family < FAMILIES; static. */
const struct openmetrics_family *metric_families_info(enum family family);

/* The names of its labels, separated by ", "; static text. */
const char *metric_families_labels(enum family family);

struct exposition;

/* started: when the daemon was. 0 or -ENOMEM. */
int exposition_new(wall_t started, struct exposition **ret);

/* NULL is fine. */
void exposition_free(struct exposition *exposition);

/*
 * Appends a page to ret. 0; -ENOMEM; -EFBIG: beyond ret->max, and then what was appended is of no
 * use. Three microseconds per target that has series of its own, less than half of one for each of
 * the others.
 */
int exposition_write(struct exposition *exposition, const struct overview *overview, enum openmetrics_form form,
		     struct buffer *ret);

#endif
