/*
 * evidence.c: the scene of an incident. Which processes are looked at follows from the target: itself, the busiest of the group or cgroup,
 * the busiest of all that are watched.
 */
#include "evidence.h"

#include "capture.h"
#include "ring.h"
#include "scope.h"

#include <errno.h>

/* Processes that are considered before the busiest are chosen. */
#define PIDS_MAX 4096u

/* Everything a capture looks at, gathered for one incident. */
struct scene {
	struct capture_context context;
	struct cglimits limits;
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

static void release_cursor(struct ring_cursor **cursor)
{
	ring_cursor_free(*cursor);
}

/* The processes that are watched, by themselves or in a group: the ring knows the targets. */
static size_t watched_pids(struct session *session, int32_t *pids, size_t cap)
{
	AUTO(release_cursor) struct ring_cursor *cursor = NULL;
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
static size_t recall_members(struct scene *scene, const struct collector_incident *incident)
{
	for (size_t i = 0; i < incident->member_count; i++)
		scene->members[i] = (struct capture_member){ .pid = incident->members[i].pid,
							     .start_ticks = incident->members[i].start_ticks };

	return incident->member_count;
}

static size_t choose_members(struct session *session, struct scene *scene, const struct collector_incident *incident)
{
	const struct target *target = &incident->target;
	AUTO_FREE int32_t *pids = NULL;
	size_t count;

	if (incident->slice && target->kind == TARGET_PROCESS) {
		scene->members[0] = (struct capture_member){ .pid = target->pid, .start_ticks = target->start_ticks };
		return 1;
	}
	if (incident->slice && target->kind == TARGET_CGROUP)
		return capture_busiest(&scene->context, NULL, 0, scene->members, CAPTURE_MEMBERS_MAX);

	pids = malloc(PIDS_MAX * sizeof *pids);
	if (!pids)
		return 0;

	count = incident->slice ? discovery_pids(session_discovery(session), target->id, pids, PIDS_MAX)
				: watched_pids(session, pids, PIDS_MAX);

	return count ? capture_busiest(&scene->context, pids, count, scene->members, CAPTURE_MEMBERS_MAX) : 0;
}

static void build_scene(struct session *session, const struct clock *clock, const struct collector_incident *incident,
			bool again, struct scene *scene)
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

unsigned evidence_captures(const struct collector_incident *incident)
{
	unsigned captures = incident->settings.captures & ~(unsigned)CONFIG_CAPTURE_SAMPLES;

	/* Of many processes at once, what holds up none of them. */
	if (!incident->slice)
		captures &= CONFIG_CAPTURE_THREADS | CONFIG_CAPTURE_STATUS | CONFIG_CAPTURE_SYSTEM;

	return captures;
}

unsigned evidence_again_captures(const struct collector_incident *incident)
{
	return evidence_captures(incident) & CAPTURE_AGAIN;
}

static void remember_members(const struct scene *scene, struct collector_incident *incident)
{
	incident->member_count = scene->context.member_count;
	for (size_t i = 0; i < incident->member_count; i++)
		incident->members[i] =
			(struct collector_member){ scene->members[i].pid, scene->members[i].start_ticks };
}

static void collect(struct session *session, const struct clock *clock, struct collector_incident *incident, bool again)
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

void evidence_collect(struct session *session, const struct clock *clock, struct collector_incident *incident)
{
	collect(session, clock, incident, false);
	incident->captured = clock_mono(clock);
}

void evidence_again(struct session *session, const struct clock *clock, struct collector_incident *incident)
{
	collect(session, clock, incident, true);
}
