/*
 * capture.h: evidence beside the samples: one capture writes one file into the directory of an incident. Nothing here
 * stops an incident: what is not possible is said in the capture's record, and the next one is tried.
 *
 * Everything that comes from a watched process is escaped: no control character reaches whoever prints the file. Every
 * file is bounded (CAPTURE_BYTES_MAX); what was cut says so in its last line and in the record.
 */
#ifndef SPIKEWATCH_CAPTURE_H
#define SPIKEWATCH_CAPTURE_H

#include "busy_snapshot.h"
#include "cgmount.h"
#include "clock.h"
#include "config.h"
#include "incident.h"
#include "cglimits.h"
#include "maps_snapshot.h"
#include "slice.h"
#include "target.h"
#include "thread_snapshot.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CAPTURE_BYTES_MAX (1u << 20) /* of one file, samples.tsv excepted */
#define CAPTURE_MEMBERS_MAX 8        /* processes of a group or a cgroup that are looked at: its busiest */

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
	const struct cglimits *limits; /* effective ones, of the target */
	const struct capture_member *members;
	size_t member_count;              /* at most CAPTURE_MEMBERS_MAX are looked at */
	const struct busy_snapshot *busy; /* a scan of /proc some seconds ago; NULL: none */
	const struct slice *slice;        /* CONFIG_CAPTURE_SAMPLES */
	wall_t slice_start;               /* the wall clock at slice_start(slice) */
	mono_t fired;                     /* records say how long after it they were taken; 0: they do not */
	bool again;                       /* the second look: other names, and records that say which they repeat */
};

/*
 * Runs the capture `which` (one bit) and writes its file into dirfd. Always fills *ret. 0: ok or skipped, *ret says
 * which; -errno: it failed, *ret says why, and no file of that name is left. SAMPLES may be large; SMAPS holds up the
 * watched process: run it last.
 */
int capture_run(const struct capture_context *context, enum config_capture which, int dirfd,
		struct incident_capture *ret);

/*
 * Runs all captures in the set, light ones first, and adds each to the incident. Returns how many failed.
 */
unsigned capture_run_all(const struct capture_context *context, unsigned set, int dirfd, struct incident *incident);

/* Adds to the incident that none of the captures in the set was run, and why: -errno. */
void capture_fail_all(unsigned set, int error, struct incident *incident);

/* Those that a second look takes: what changes within seconds. */
#define CAPTURE_AGAIN (CONFIG_CAPTURE_THREADS | CONFIG_CAPTURE_STATUS | CONFIG_CAPTURE_SMAPS)

/* Adds to the incident that the second look was not taken, and why. */
void capture_skip_again(unsigned set, const char *why, struct incident *incident);

/* How many bytes samples.tsv will have. 0; -ENOMEM. Costs as much as writing it without a disk. */
int capture_samples_bytes(const struct capture_context *context, uint64_t *ret_bytes);

/*
 * The processes of a cgroup that used most CPU since `busy` (NULL: since they started), busiest first, at most cap.
 * For a group pass its pids, for a cgroup target none: they are read from cgroup.procs of it and the cgroups below it.
 * Returns how many were stored in ret.
 */
size_t capture_busiest(const struct capture_context *context, const int32_t *pids, size_t pid_count,
		       struct capture_member *ret, size_t cap);

#endif
