/*
 * capture.c: the scene of an incident. Which processes are looked at follows from the target:
 * itself, the busiest of the group or cgroup, the busiest of all that are watched.
 */
#include "daemon/engine/incident/capture.h"
#include "daemon/engine/incident/capture_files.h"

#include "daemon/engine/incident/incident_worker.h"
#include "daemon/engine/incident/spool.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_capture.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/baseline.h"
#include "daemon/engine/targets/discovery.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/config/config.h"
#include "lib/incident/incident.h"
#include "lib/incident/sample_window.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/proc/perf.h"
#include "lib/ring/ring.h"
#include "lib/stream/sample_stream.h"
#include "lib/stream/stream.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CAPTURE_BYTES_MAX (1u << 20) /* of one file, samples.tsv excepted */

/* Those that a second look takes: what changes within seconds. */
#define CAPTURE_AGAIN (CONFIG_CAPTURE_THREADS | CONFIG_CAPTURE_STATUS | CONFIG_CAPTURE_SMAPS)

/*
 * capture.c: the table of captures, and what becomes of an error.
 *
 * A capture puts its text together in memory and writes it in one go: a file is there whole or not
 * at all, and a full disk costs one file, not the incident. Which errors are nobody's fault is
 * decided in one place, judge().
 */

struct capture {
	enum config_capture which;
	const char *file;
	const char *again; /* the second look; NULL: there is none */
	int (*collect)(const struct capture_context *context, struct capture_text *text); /* NULL: samples */
};

/*
 * In the order of the evidence: what costs nothing and vanishes first comes first, what holds up
 * the target last.
 */
static const struct capture capture_table[] = {
	{ CONFIG_CAPTURE_THREADS, "threads.tsv", "threads.again.tsv", capture_process_threads },
	{ CONFIG_CAPTURE_STATUS, "status.txt", "status.again.txt", capture_process_status },
	{ CONFIG_CAPTURE_LIMITS, "limits.txt", NULL, capture_process_limits },
	{ CONFIG_CAPTURE_CGROUP, "cgroup.txt", NULL, capture_host_cgroup },
	{ CONFIG_CAPTURE_SYSTEM, "system.txt", NULL, capture_host_system },
	{ CONFIG_CAPTURE_SAMPLES, INCIDENT_SAMPLES_FILE, NULL, NULL },
	{ CONFIG_CAPTURE_SMAPS, "smaps.tsv", "smaps.again.tsv", capture_process_smaps },
};

static const struct capture *find(enum config_capture which)
{
	for (size_t i = 0; i < ARRAY_LEN(capture_table); i++)
		if (capture_table[i].which == which)
			return &capture_table[i];
	return NULL;
}

/* ---- samples ---- */

static int write_stream(const struct capture_context *context, struct stream_writer *writer, uint32_t id)
{
	AUTO(buffer_release) struct buffer json = { 0 };
	int r;

	r = columns_target_json(context->target, 0, &json);
	if (r < 0)
		return r;
	r = stream_target(writer, id, json.data, json.len);
	if (r < 0)
		return r;
	return sample_window_write(context->sample_window, writer, id, sample_window_start(context->sample_window));
}

/* Writes samples.tsv into the sink. */
static int write_samples(const struct capture_context *context, struct sink sink)
{
	struct stream_column columns[SAMPLE_FIELDS];
	struct stream_options options = {
		.format = STREAM_SPIKEWATCH,
		.columns = columns,
		.column_count = SAMPLE_FIELDS,
		.start = context->sample_window_start,
	};
	struct stream_writer *writer;
	int r, close_r;

	columns_of_samples(columns);
	r = stream_writer_new(sink, &options, &writer);
	if (r < 0)
		return r;
	r = write_stream(context, writer, context->target->id ? context->target->id : 1);
	close_r = stream_close(writer);
	return r < 0 ? r : close_r;
}

static int count_bytes(void *ctx, const void *data, size_t len)
{
	uint64_t *bytes = ctx;

	(void)data;
	*bytes += len;
	return 0;
}

int capture_samples_bytes(const struct capture_context *context, uint64_t *ret_bytes)
{
	uint64_t bytes = 0;
	int r = write_samples(context, (struct sink){ .write = count_bytes, .ctx = &bytes });

	if (r == 0)
		*ret_bytes = bytes;
	return r;
}

static int run_samples(const struct capture_context *context, int dirfd, uint64_t *ret_bytes)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;
	int r;

	if (!context->sample_window)
		return -ENODATA;
	fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
	if (fd < 0)
		return -errno;
	r = write_samples(context, sink_fd(&fd));
	if (r == 0 && fstat(fd, &st) < 0)
		r = -errno;
	if (r < 0)
		unlinkat(dirfd, INCIDENT_SAMPLES_FILE, 0);
	else
		*ret_bytes = (uint64_t)st.st_size;
	return r;
}

/* ---- captures ---- */

/*
 * *ret_collected: could it look; if not, that is something else than not being able to write what
 * it saw.
 */
static int run_text(const struct capture_context *context, const struct capture *capture, int dirfd,
		    struct incident_capture *ret, bool *ret_collected)
{
	AUTO(capture_text_release) struct capture_text text = { .buffer.max = CAPTURE_BYTES_MAX };
	int r;

	r = capture->collect(context, &text);
	if (r < 0)
		return r;
	*ret_collected = true;
	r = capture_text_save(&text, dirfd, ret->file, &ret->bytes);
	if (r == 0 && text.cut)
		incident_text(ret->why, sizeof(ret->why), "cut: there was more");
	return r;
}

/* Sets status and why for an error. */
static int judge(struct incident_capture *ret, int error, bool collected)
{
	const char *why = NULL;

	if (!collected && error == -ESRCH)
		why = "target has exited";
	else if (!collected && (error == -EACCES || error == -EPERM))
		why = "not permitted";
	else if (!collected && error == -ENOENT)
		why = "not offered by this system";
	else if (!collected && error == -ENODATA)
		why = "nothing was recorded";

	ret->status = why ? INCIDENT_CAPTURE_SKIPPED : INCIDENT_CAPTURE_FAILED;
	ret->bytes = 0;
	ret->file[0] = '\0';
	incident_text(ret->why, sizeof(ret->why), why ? why : strerrordesc_np(-error));
	return why ? 0 : error;
}

/* What it is called, for its record. */
static void name_record(struct incident_capture *ret, const struct capture *capture, bool again)
{
	const char *name = config_capture_name(capture->which);

	incident_text(ret->name, sizeof(ret->name), name);
	incident_text(ret->file, sizeof(ret->file), again ? capture->again : capture->file);
	if (!again)
		return;
	snprintf(ret->name, sizeof(ret->name), "%s-again", name);
	incident_text(ret->again_of, sizeof(ret->again_of), name);
}

int capture_run(const struct capture_context *context, enum config_capture which, int dirfd,
		struct incident_capture *ret)
{
	const struct capture *capture = find(which);
	bool collected = false;
	int r;

	assert(capture && !(context->again && !capture->again));
	*ret = (struct incident_capture){ .status = INCIDENT_CAPTURE_OK, .has_at = context->fired.ns > 0 };
	name_record(ret, capture, context->again);
	if (ret->has_at)
		ret->at_ns = mono_diff(clock_mono(context->clock), context->fired);

	if (capture->collect)
		r = run_text(context, capture, dirfd, ret, &collected);
	else
		r = run_samples(context, dirfd, &ret->bytes);
	return r < 0 ? judge(ret, r, collected) : 0;
}

unsigned capture_run_all(const struct capture_context *context, unsigned set, int dirfd, struct incident *incident)
{
	unsigned failed = 0;

	for (size_t i = 0; i < ARRAY_LEN(capture_table); i++) {
		struct incident_capture record;

		if (!(set & capture_table[i].which))
			continue;
		if (capture_run(context, capture_table[i].which, dirfd, &record) < 0)
			failed++;
		incident_add_capture(incident, &record);
	}
	return failed;
}

void capture_fail_all(unsigned set, int error, struct incident *incident)
{
	for (size_t i = 0; i < ARRAY_LEN(capture_table); i++) {
		struct incident_capture record = { .status = INCIDENT_CAPTURE_FAILED };

		if (!(set & capture_table[i].which))
			continue;
		incident_text(record.name, sizeof(record.name), config_capture_name(capture_table[i].which));
		incident_text(record.why, sizeof(record.why), strerrordesc_np(-error));
		incident_add_capture(incident, &record);
	}
}

void capture_skip_again(unsigned set, const char *why, struct incident *incident)
{
	for (size_t i = 0; i < ARRAY_LEN(capture_table); i++) {
		struct incident_capture record = { .status = INCIDENT_CAPTURE_SKIPPED };

		if (!(set & capture_table[i].which))
			continue;
		name_record(&record, &capture_table[i], true);
		record.file[0] = '\0';
		incident_text(record.why, sizeof(record.why), why);
		incident_add_capture(incident, &record);
	}
}

/* Processes that are considered before the busiest are chosen. */
#define PIDS_MAX 4096u

/* Everything a capture looks at, gathered for one incident. */
struct scene {
	struct capture_context context;
	struct cgroup_limits limits;
	struct busy_snapshot busy;
	struct capture_member members[CAPTURE_MEMBERS_MAX];
	struct thread_baseline threads[CAPTURE_MEMBERS_MAX];
	struct maps_snapshot *maps[CAPTURE_MEMBERS_MAX];
};

static void release_scene(struct scene *scene)
{
	for (size_t i = 0; i < CAPTURE_MEMBERS_MAX; i++) {
		thread_baseline_release(&scene->threads[i]);
		free(scene->maps[i]);
	}
	busy_snapshot_release(&scene->busy);
}

/* The processes that are watched, by themselves or in a group: the ring knows the targets. */
static size_t watched_pids(struct session *session, int32_t *pids, size_t cap)
{
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = NULL;
	struct ring_event event;
	size_t count = 0;

	if (ring_cursor_new(session_ring(session), RING_NEWEST, &cursor) < 0)
		return 0;

	/* The targets that there are come before the first tick. */
	while (count < cap && ring_cursor_next(cursor, &event) == 0 && event.type != RING_EVENT_TICK) {
		if (event.type == RING_EVENT_TARGET && event.target.kind != TARGET_CGROUP)
			count += discovery_pids(session_discovery(session), event.target.id, pids + count, cap - count);
	}

	return count;
}

/* Those of the first look. */
static size_t recall_members(struct scene *scene, const struct incident_worker_incident *incident)
{
	for (size_t i = 0; i < incident->member_count; i++)
		scene->members[i] = (struct capture_member){ .pid = incident->members[i].pid,
							     .start_ticks = incident->members[i].start_ticks };

	return incident->member_count;
}

static size_t choose_members(struct session *session, struct scene *scene,
			     const struct incident_worker_incident *incident)
{
	const struct target *target = &incident->target;
	AUTO_FREE int32_t *pids = NULL;
	size_t count;

	if (incident->sample_window && target->kind == TARGET_PROCESS) {
		scene->members[0] = (struct capture_member){ .pid = target->pid, .start_ticks = target->start_ticks };
		return 1;
	}
	if (incident->sample_window && target->kind == TARGET_CGROUP)
		return capture_busiest(&scene->context, NULL, 0, scene->members, CAPTURE_MEMBERS_MAX);

	pids = malloc(PIDS_MAX * sizeof *pids);
	if (!pids)
		return 0;

	count = incident->sample_window ? discovery_pids(session_discovery(session), target->id, pids, PIDS_MAX)
					: watched_pids(session, pids, PIDS_MAX);

	return count ? capture_busiest(&scene->context, pids, count, scene->members, CAPTURE_MEMBERS_MAX) : 0;
}

static void build_scene(struct session *session, const struct clock *clock,
			const struct incident_worker_incident *incident, bool again, struct scene *scene)
{
	struct discovery *discovery = session_discovery(session);

	*scene = (struct scene){
		.limits = incident->info.limits,
		.context = {
			.procfd = session_procfd(session),
			.clock = clock,
			.mounts = session_mounts(session),
			.target = &incident->target,
			.limits = &scene->limits,
			.members = scene->members,
			.fired = incident->fired,
			.again = again,
		},
	};
	if (discovery_busy(discovery, &scene->busy) == 0)
		scene->context.busy = &scene->busy;
	scene->context.member_count =
		again ? recall_members(scene, incident) : choose_members(session, scene, incident);
	for (size_t i = 0; i < scene->context.member_count; i++) {
		discovery_baselines(discovery, scene->members[i].pid, &scene->threads[i], &scene->maps[i]);
		scene->members[i].threads = &scene->threads[i];
		scene->members[i].maps = scene->maps[i];
	}
}

unsigned evidence_captures(const struct incident_worker_incident *incident)
{
	unsigned captures = incident->settings.captures & ~(unsigned)CONFIG_CAPTURE_SAMPLES;

	/* Of many processes at once, what holds up none of them. */
	if (!incident->sample_window)
		captures &= CONFIG_CAPTURE_THREADS | CONFIG_CAPTURE_STATUS | CONFIG_CAPTURE_SYSTEM;

	return captures;
}

unsigned evidence_again_captures(const struct incident_worker_incident *incident)
{
	return evidence_captures(incident) & CAPTURE_AGAIN;
}

static void remember_members(const struct scene *scene, struct incident_worker_incident *incident)
{
	incident->member_count = scene->context.member_count;
	for (size_t i = 0; i < incident->member_count; i++)
		incident->members[i] =
			(struct incident_worker_member){ scene->members[i].pid, scene->members[i].start_ticks };
}

static void collect(struct session *session, const struct clock *clock, struct incident_worker_incident *incident,
		    bool again)
{
	unsigned captures = again ? evidence_again_captures(incident) : evidence_captures(incident);
	struct scene *scene = malloc(sizeof *scene);

	if (!scene && again)
		capture_skip_again(captures, "no memory", &incident->evidence);
	else if (!scene)
		capture_fail_all(captures, -ENOMEM, &incident->evidence);
	if (!scene)
		return;

	build_scene(session, clock, incident, again, scene);
	capture_run_all(&scene->context, captures, spool_draft_dirfd(incident->draft), &incident->evidence);
	if (!again)
		remember_members(scene, incident);
	release_scene(scene);
	free(scene);
}

void evidence_collect(struct session *session, const struct clock *clock, struct incident_worker_incident *incident)
{
	collect(session, clock, incident, false);
	incident->captured = clock_mono(clock);
}

void evidence_again(struct session *session, const struct clock *clock, struct incident_worker_incident *incident)
{
	collect(session, clock, incident, true);
}
