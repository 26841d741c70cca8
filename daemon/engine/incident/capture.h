/*
 * capture.h: gathers what the captures of an incident look at (processes, baselines, limits) and
 * runs them. The worker's.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_CAPTURE_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_CAPTURE_H

#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_capture.h"
#include "daemon/engine/targets/baseline.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/incident/incident.h"
#include "lib/incident/sample_window.h"
#include "lib/model/target.h"
#include "lib/proc/perf.h"
#include "lib/ring/ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct incident_worker_incident;

/*
 * capture_text.h: the text of a capture while it is put together: bounded, escaped, and written to
 * a file at the end.
 */

/*
 * {.buffer.max = ...} is ready for use. After the limit or without memory whatever is added is
 * dropped.
 */
struct capture_text {
	struct buffer buffer;
	bool cut;  /* something was dropped because of the limit */
	int error; /* -ENOMEM; or why something of it could not be read, set by who adds: nothing is saved */
};

/* Adds our own words. What is formatted must be printable already and short (up to 1,000 bytes). */
void capture_text_say(struct capture_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Adds strangers' bytes on one line: everything that is no printable character becomes \xNN. */
void capture_text_word(struct capture_text *text, const char *data, size_t len);

/* Adds strangers' lines: the same, but newlines and tabs stay; ends with a newline. */
void capture_text_lines(struct capture_text *text, const char *data, size_t len);

/*
 * Writes a new file in dirfd. 0 and *ret_bytes; text->error; -errno, and then there is no such
 * file.
 */
int capture_text_save(struct capture_text *text, int dirfd, const char *name, uint64_t *ret_bytes);

/* Frees the text. */
void capture_text_release(struct capture_text *text);

/*
 * capture.h: evidence beside the samples: one capture writes one file into the directory of an
 * incident. Nothing here stops an incident: what is not possible is said in the capture's record,
 * and the next one is tried.
 *
 * Everything that comes from a watched process is escaped: no control character reaches whoever
 * prints the file. Every file is bounded (CAPTURE_BYTES_MAX); what was cut says so in its last line
 * and in the record.
 */

#define CAPTURE_MEMBERS_MAX 8 /* processes of a group or a cgroup that are looked at: its busiest */

/* A process to look at. Baselines: NULL or empty if there are none. */
struct capture_member {
	int32_t pid;
	uint64_t start_ticks; /* 0: not known */
	const struct thread_baseline *threads;
	const struct maps_snapshot *maps;
};

/* Everything stays the caller's and must outlive the call. */
struct capture_context {
	int procfd;
	const struct clock *clock;
	const struct cgroup_mounts *mounts; /* NULL: no cgroups */
	const struct target *target;
	const struct cgroup_limits *limits; /* effective ones, of the target */
	const struct capture_member *members;
	size_t member_count;                       /* at most CAPTURE_MEMBERS_MAX are looked at */
	const struct busy_snapshot *busy;          /* a scan of /proc some seconds ago; NULL: none */
	const struct sample_window *sample_window; /* CONFIG_CAPTURE_SAMPLES */
	wall_t sample_window_start;                /* the wall clock at sample_window_start(slice) */
	mono_t fired;                              /* records say how long after it they were taken; 0: they do not */
	bool again; /* the second look: other names, and records that say which they repeat */
};

/*
 * Runs the capture `which` (one bit) and writes its file into dirfd. Always fills *ret. 0: ok or
 * skipped, *ret says which; -errno: it failed, *ret says why, and no file of that name is left.
 * SAMPLES may be large; SMAPS holds up the watched process: run it last.
 */
int capture_run(const struct capture_context *context, enum config_capture which, int dirfd,
		struct incident_capture *ret);

/*
 * Runs all captures in the set, light ones first, and adds each to the incident. Returns how many
 * failed.
 */
unsigned capture_run_all(const struct capture_context *context, unsigned set, int dirfd, struct incident *incident);

/* Adds to the incident that none of the captures in the set was run, and why: -errno. */
void capture_fail_all(unsigned set, int error, struct incident *incident);

/* Adds to the incident that the second look was not taken, and why. */
void capture_skip_again(unsigned set, const char *why, struct incident *incident);

/* How many bytes samples.tsv will have. 0; -ENOMEM. Costs as much as writing it without a disk. */
int capture_samples_bytes(const struct capture_context *context, uint64_t *ret_bytes);

/*
 * The processes of a cgroup that used most CPU since `busy` (NULL: since they started), busiest
 * first, at most cap. For a group pass its pids, for a cgroup target none: they are read from
 * cgroup.procs of it and the cgroups below it. Returns how many were stored in ret.
 */
size_t capture_busiest(const struct capture_context *context, const int32_t *pids, size_t pid_count,
		       struct capture_member *ret, size_t cap);

/*
 * Runs all captures of the incident but its samples, into its draft; what became of each is added
 * to incident->evidence. Which processes were looked at is in incident->members, and when in
 * incident->captured. An incident of everything has those that look at the machine, and at the
 * busiest watched processes.
 */
void evidence_collect(struct session *session, const struct clock *clock, struct incident_worker_incident *incident);

/* Which captures evidence_collect runs. */
unsigned evidence_captures(const struct incident_worker_incident *incident);

/* The second look, at the processes of the first. */
void evidence_again(struct session *session, const struct clock *clock, struct incident_worker_incident *incident);

/* Which captures evidence_again runs. */
unsigned evidence_again_captures(const struct incident_worker_incident *incident);

#endif
