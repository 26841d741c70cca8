/* failing.c: counts what is not said, and says it with the next. */
#include "failing.h"

#include "log.h"

#include <string.h>

/* How often the same trouble is said. */
#define SAY_AGAIN_NS (60 * NS_PER_S)

void failing_say(struct failing *failing, const struct incident *info, int error, mono_t now)
{
	struct log_about about = {
		.message = MESSAGE_INCIDENT_FAILED,
		.state = failing->error ? "change" : "begin",
		.rule = info->rule.name,
		.target = info->target.name,
		.error = error,
	};

	failing->lost++;
	failing->unsaid++;
	if (failing->error == error && mono_diff(now, failing->said) < (int64_t)SAY_AGAIN_NS)
		return;

	about.count = failing->unsaid;
	log_about(LOG_ERR, &about, "incident of rule %s on %s could not be written: %s", info->rule.name,
		  info->target.name, strerror(-error));
	failing->error = error;
	failing->said = now;
	failing->unsaid = 0;
}

void failing_sealed(struct failing *failing, const struct incident *info)
{
	struct log_about about = {
		.message = MESSAGE_INCIDENT_SEALED,
		.rule = info->rule.name,
		.target = info->target.name,
		.incident = info->id,
	};
	struct log_about end = { .message = MESSAGE_INCIDENT_FAILED, .state = "end", .count = failing->lost };

	if (failing->error)
		log_about(LOG_NOTICE, &end, "incidents can be written again; %llu could not",
			  (unsigned long long)failing->lost);
	*failing = (struct failing){ 0 };
	log_about(LOG_NOTICE, &about, "sealed incident %s", info->id);
}
