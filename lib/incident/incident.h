/*
 * incident.h: an incident as a value (what fired and why, what was captured) and as incident.json,
 * whose keys docs/incident.md describes.
 *
 * It holds no pointers and is copied by assignment. Strings are NUL-terminated, cut to their room
 * by incident_text, and may contain any other byte: escape them for printing.
 */
#ifndef SPIKEWATCH_LIB_INCIDENT_INCIDENT_H
#define SPIKEWATCH_LIB_INCIDENT_INCIDENT_H

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/cgroup/cgroup.h"
#include "lib/incident/sample_window.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INCIDENT_SAMPLES_FILE "samples.tsv"

#define INCIDENT_NAME_MAX 127 /* of a directory, the NUL excluded */
#define INCIDENT_CAPTURES_MAX 48
#define INCIDENT_MERGED_MAX 32 /* later firings that are listed; merged_total counts them all */

/* Severity of a requested incident, which has no value: retention rarely removes it for others. */
#define INCIDENT_MANUAL_SEVERITY 10.0

/* Name of the rule of a requested incident, and of the target of one of all targets. */
#define INCIDENT_MANUAL_RULE "manual"
#define INCIDENT_EVERYTHING "all"

/* Name of the rule of a recovered one, which is of all targets. */
#define INCIDENT_RECOVERED_RULE "recovered"

/* Why something is missing from the incident of a daemon that was killed. */
#define INCIDENT_KILLED "the daemon was killed"

/* The same of a storm, its owner, and the file with a row for each rule and target. */
#define INCIDENT_STORM_RULE "storm"
#define INCIDENT_STORM_TARGET "many"
#define INCIDENT_STORM_FILE "storm.tsv"

enum incident_kind {
	INCIDENT_RULE,      /* a rule fired */
	INCIDENT_MANUAL,    /* requested */
	INCIDENT_RECOVERED, /* saved from the ring of a daemon that was killed */
	INCIDENT_STORM,     /* counts firings that opened none of their own: merged_total of them */
};

enum incident_capture_status {
	INCIDENT_CAPTURE_OK,
	INCIDENT_CAPTURE_SKIPPED, /* not possible: the target has exited, no permission, ... */
	INCIDENT_CAPTURE_FAILED,  /* an error: disk, memory */
};

/* One piece of evidence. */
struct incident_capture {
	char name[32]; /* "threads"; "run-<name>" of a command; INCIDENT_LEFT_FILE: a file that a command has left */
	char file[64]; /* "threads.tsv"; "" if there is none */
	uint64_t bytes;
	enum incident_capture_status status;
	char why[160];     /* "" if ok and whole */
	char again_of[32]; /* the capture that this one repeats later; "" if it is the first */
	bool has_at;
	int64_t at_ns; /* when it began, since the firing */
	/* Of a command: */
	bool has_duration, has_exit, has_signal;
	uint64_t duration_ns; /* if it was started */
	int32_t exit_status;  /* if it has exited */
	int32_t signal;       /* if that has ended it */
};

#define INCIDENT_RUN_PREFIX "run-"
#define INCIDENT_LEFT_FILE "file"

/* Another firing on the same target, or another request, while this incident was open. */
struct incident_firing {
	enum incident_kind kind; /* RULE or MANUAL */
	wall_t wall;
	char rule[64];
	bool has_value;
	double value;
};

struct incident_rule {
	char name[64];
	char metric[32];
	char unit[16]; /* of value, average and thresholds: units_name */
	char of[16];   /* "limit", "core", "machine"; "" if the metric is no percentage */
	uint64_t window_ns;
	struct trigger_rule thresholds;
	char reason[32]; /* trigger_reason_name */
	bool has_value, has_average;
	double value;
	double average;
	double severity; /* incident_severity */
	uint64_t fired;  /* firings of this rule on this target so far, this one included */
	uint32_t count;  /* of them in the current count period */
};

#define INCIDENT_OWNER_MAX 64

/* From their exit records and what their parents have waited for; as far as they were looked at. */
#define INCIDENT_ENDED_ESTIMATED "estimated"
#define INCIDENT_ENDED_SEEN "seen"

struct incident_target {
	enum target_kind kind;
	int32_t pid;
	uint64_t start_ticks;
	char entry[128];
	char name[256];
	char key[256];
	char comm[64];
	char cmdline[TARGET_ENCODED_MAX];
	char cgroup[512];
	char owner[INCIDENT_OWNER_MAX]; /* whose share of limits it takes: "uid 1000", "service nginx", "root"; "" */
};

/* The unit of systemd that the target is, or is in, as it was when the rule fired. */
struct incident_unit {
	char name[256];
	char state[24];         /* "active", "deactivating", ... */
	char invocation_id[33]; /* hexadecimal; "": not known */
	bool has_main_pid, has_restarts, has_running;
	uint32_t main_pid;
	uint32_t restarts;   /* by Restart= */
	uint64_t running_ns; /* since it was started, until the firing */
};

/* What recording it cost the machine. */
struct incident_cost {
	char cpu_time_source[8]; /* of processes: "kernel", "files"; "": not known, of an older version */
	uint64_t interval_ns;    /* between two ticks, at the firing */
	uint64_t idle_ns;        /* the longest time between two reads of a process, then; 0: none */
	double cpu_percent;      /* of one core: the sampler thread since it started */
	uint64_t mean_sleep_error_ns;
	uint64_t mean_collection_ns;
	uint64_t missed_slots;
};

struct incident {
	char id[INCIDENT_NAME_MAX + 1]; /* name of the directory */
	uint32_t format;
	char version[32];
	enum incident_kind kind;
	char hostname[128];
	char kernel[128];
	char boot_id[40];
	wall_t wall; /* of the firing: the end of the window */
	mono_t mono;
	mono_t window_from, window_to;
	uint64_t window_unsampled_ns; /* of the window: in holes of the sampling */
	struct incident_rule rule;
	struct incident_target target;
	bool has_container;
	struct container container; /* that the target is, or is in */
	struct labels labels;       /* of that container; its own member of this is not used */
	bool has_unit;
	struct incident_unit unit;
	struct cgroup_limits limits;
	struct sample_window_coverage coverage;
	struct sample_window_peaks peaks;
	/*
	 * Of a group whose members ended in the window, if their CPU time in its sum is not exact:
	 * INCIDENT_ENDED_..., "" else; and by how much it may be too low for each of their parents.
	 */
	char ended_cpu[12];
	bool has_ended_cpu_lack;
	uint64_t ended_cpu_lack_ns;
	double peak_cpu_percent; /* peaks.cpu_cores of the effective CPU limit; only with peaks.has_cpu */
	struct incident_cost cost;
	uint64_t merged_total;
	size_t merged_count;
	struct incident_firing merged[INCIDENT_MERGED_MAX];
	size_t capture_count;
	struct incident_capture captures[INCIDENT_CAPTURES_MAX];
};

/* Everything unknown, no captures; format and version set. Comes first. */
void incident_init(struct incident *incident, const char *version);

/* Copies text into room of cap > 0 bytes, cut at a UTF-8 character. NULL counts as "". */
void incident_text(char *ret, size_t cap, const char *text);

/* Copies the target; strings are cut to their room. */
void incident_set_target(struct incident *incident, const struct target *target);

/* Whether it is of all targets: then its target has no kind. */
static inline bool incident_of_everything(const struct incident *incident)
{
	return incident->kind != INCIDENT_RULE && (unsigned)incident->target.kind == 0;
}

/* Merges a firing; the list keeps the first INCIDENT_MERGED_MAX - 1 and the last. */
void incident_merge(struct incident *incident, const struct incident_firing *firing);

/* Dropped beyond INCIDENT_CAPTURES_MAX. */
static inline void incident_add_capture(struct incident *incident, const struct incident_capture *capture)
{
	if (incident->capture_count < INCIDENT_CAPTURES_MAX)
		incident->captures[incident->capture_count++] = *capture;
}

/* Sets status and why of a capture without a file. */
void incident_capture_without_file(struct incident_capture *capture, enum incident_capture_status status,
				   const char *why);

/*
 * The value divided by the threshold that it exceeded (by rule.reason), of one that it was below the
 * other way round, up to 10; finite and not negative; 0 without a value or threshold.
 */
double incident_severity(const struct incident_rule *rule);

/* "rule", "manual", "recovered", "storm" / "ok", "skipped", "failed". */
const char *incident_kind_name(enum incident_kind kind);
const char *incident_capture_status_name(enum incident_capture_status status);

/*
 * "20261120T031502.123Z-<target>-<rule>": the name of an incident's directory but for the "-<n>"
 * that makes it unique. Every byte of target and rule but A-Z a-z 0-9 _ . - becomes "_"; both are
 * cut. cap > INCIDENT_NAME_MAX.
 */
void incident_stem(wall_t wall, const char *target, const char *rule, char *ret, size_t cap);

/* Whether name has the form of an incident's directory: time, dash, allowed bytes, dash, number. */
bool incident_name_ok(const char *name);

/* The time of firing in the name, to the millisecond; 0 if there is none. */
wall_t incident_name_wall(const char *name);

#define INCIDENT_FILE "incident.json"
#define INCIDENT_BYTES_MAX 524288 /* larger ones are not read; the largest possible has a third of it */

/* Writes incident.json: pretty-printed, keys in a fixed order. 0, -ENOMEM or the sink's error. */
int incident_json_write(const struct incident *incident, struct sink sink);

/*
 * Reads incident.json in dirfd. Unknown keys are ignored, missing ones are as after incident_init,
 * list elements that do not fit are dropped. 0; -ENOMEM; -EBADMSG: not a regular file, not JSON,
 * not an incident, or a value of the wrong type; -EFBIG; -EPROTONOSUPPORT: a later format; -errno
 * of opening and reading.
 */
int incident_json_read(int dirfd, struct incident *ret);

#endif
