/* stackevidence.c: from what an incident is about to what its stacks are about. */
#include "stackevidence.h"

#include "scope.h"
#include "stackcapture.h"

void stackevidence_secure(struct session *session, size_t *held, struct collector_incident *incident)
{
	struct stackcapture_options options = {
		.recorder = session_stacks(session),
		.procfd = session_procfd(session),
		.symbolizer = session_symbolizer(session),
		.before_ns = incident->settings.before_ns,
		.spike_from_ns = incident->info.window_from.ns,
		.fired = incident->fired,
		.wall = incident->wall,
		.held = held,
	};

	if (options.recorder)
		incident->stacks = stackcapture_secure(&options, &incident->evidence);
}

/* Of everything: all processes are of interest. Of a cgroup: those that were busiest. */
static void choose_focus(struct session *session, const struct collector_incident *incident,
			 struct stackcapture_focus *ret)
{
	ret->count = 0;
	if (!incident->slice)
		return;
	if (incident->target.kind == TARGET_GROUP)
		ret->count = discovery_pids(session_discovery(session), incident->target.id, ret->pids,
					    SYMBOLIZER_FOCUS_MAX);
	for (size_t i = 0; ret->count == i && i < incident->member_count; i++)
		ret->pids[ret->count++] = incident->members[i].pid;
}

void stackevidence_write(struct session *session, const struct symbolizer_waiting *waiting,
			 struct collector_incident *incident)
{
	struct stackcapture_focus focus;

	if (!incident->stacks || !incident->draft)
		return;

	choose_focus(session, incident, &focus);
	stackcapture_write(TAKE(incident->stacks), &focus, spool_draft_dirfd(incident->draft), waiting,
			   &incident->evidence);
}
