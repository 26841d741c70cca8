/*
 * sequel.c: glue between an incident, its entry in the configuration, the thread of hooks and the captures.
 */
#include "sequel.h"

#include "capture.h"
#include "evidence.h"
#include "log.h"
#include "scope.h"

#include <errno.h>
#include <string.h>

static const struct config_target *find_entry(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->target_count; i++)
		if (strcmp(config->targets[i].name, name) == 0)
			return &config->targets[i];

	return NULL;
}

void sequel_plan(struct collector_incident *incident, const struct config *config)
{
	const struct config_target *entry = incident->slice ? find_entry(config, incident->target.entry) : NULL;
	struct incident_capture failed = { .name = "run", .status = INCIDENT_CAPTURE_FAILED, .why = "no memory" };

	if (!entry)
		return;

	incident->settings.again_ns = entry->again_ns;
	if (hookplan_new(entry, incident->info.rule.name, &incident->plan) < 0)
		incident_add_capture(&incident->evidence, &failed);
}

/* ---- commands ---- */

bool sequel_run(const struct sequel *sequel, struct collector_incident *incident)
{
	const struct collector_member *looked_at = incident->member_count ? &incident->members[0] : NULL;
	struct hooks_scene scene = {
		.plan = incident->plan,
		.dirfd = spool_draft_dirfd(incident->draft),
		.procfd = session_procfd(sequel->session),
		.pid = looked_at ? looked_at->pid : 0,
		.start_ticks = looked_at ? looked_at->start_ticks : 0,
		.rule = incident->evidence.rule.name,
		.target = incident->target.name,
		.fired = incident->fired,
		.max_bytes = incident->settings.max_incident_bytes,
		.done = sequel->done,
		.ctx = incident,
	};
	int r;

	if (!incident->plan)
		return false;

	r = hooks_start(sequel->hooks, &scene, &incident->run);
	if (r < 0)
		hookplan_refuse(incident->plan, strerrordesc_np(-r), &incident->evidence);

	return r == 0;
}

static void say(const struct collector_incident *incident, const struct incident_capture *capture)
{
	struct log_about about = {
		.rule = incident->evidence.rule.name,
		.target = incident->target.name,
		.incident = spool_draft_name(incident->draft),
	};

	log_about(LOG_INFO, &about, "%s of incident %s: %s: %s", capture->name, spool_draft_name(incident->draft),
		  incident_capture_status_name(capture->status), capture->why);
}

void sequel_report(struct collector_incident *incident)
{
	size_t before = incident->evidence.capture_count;

	if (!incident->run)
		return;

	hookrun_report(incident->run, &incident->evidence);
	for (size_t i = before; i < incident->evidence.capture_count; i++)
		if (incident->evidence.captures[i].status != INCIDENT_CAPTURE_OK)
			say(incident, &incident->evidence.captures[i]);
	hookrun_free(TAKE(incident->run));
}

/* ---- the second look ---- */

mono_t sequel_again_at(const struct collector_incident *incident)
{
	if (incident->settings.again_ns == 0 || evidence_again_captures(incident) == 0)
		return (mono_t){ 0 };

	return mono_add(incident->captured, incident->settings.again_ns);
}

void sequel_again(const struct sequel *sequel, struct collector_incident *incident, const char *why)
{
	if (why)
		capture_skip_again(evidence_again_captures(incident), why, &incident->evidence);
	else
		evidence_again(sequel->session, sequel->clock, incident);
}
