/* collector_incident.c: what an incident brings along, and what it leaves. */
#include "collector.h"
#include "diskroom.h"

#include <stdlib.h>

void collector_incident_free(struct collector_incident *incident)
{
	if (!incident)
		return;

	slice_free(incident->slice);
	hookrun_free(incident->run);
	hookplan_free(incident->plan);
	panorama_abort(incident->panorama);
	spool_abort(incident->draft);
	stackcapture_free(incident->stacks);
	free(incident);
}

struct collector_settings collector_settings_of(const struct config *config)
{
	uint64_t most = config->incidents.max_incident_bytes;

	return (struct collector_settings){
		.before_ns = config->incidents.before_ns,
		.after_ns = config->incidents.after_ns,
		.interval_ns = config->sampling.interval_ns,
		.max_bytes = most > 2 * (uint64_t)DISKROOM_CAPTURES_BYTES ? most - DISKROOM_CAPTURES_BYTES : most / 2,
		.captures = config->incidents.captures,
		.max_incident_bytes = most,
	};
}
