/*
 * diskroom.c: what one incident may need is estimated from its settings, and compared with what the file system has left.
 *
 * Limits are kept after an incident. When there is no room for one there is none after which to keep them: what this daemon itself has written
 * would silence it for ever. So room is made here too; once a minute, because every directory is read for it.
 */
#include "diskroom.h"

#include "log.h"

/* A row of samples is about so long. */
#define ROW_BYTES 200u

/* How long an answer is believed. */
#define BELIEVE_NS NS_PER_S

#define MAKE_AGAIN_NS (60 * NS_PER_S)

static uint64_t expected_bytes(const struct config *config)
{
	uint64_t rows = (config->incidents.before_ns + config->incidents.after_ns) / config->sampling.interval_ns;
	uint64_t bytes = rows * ROW_BYTES + DISKROOM_CAPTURES_BYTES;

	return bytes < config->incidents.max_incident_bytes ? bytes : config->incidents.max_incident_bytes;
}

static void say(const struct diskroom *room, bool ok)
{
	if (!ok && !room->is_short)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_DISK_SHORT, .state = "begin" },
			  "too little disk space for incidents: rules do not fire until there is more");
	else if (ok && room->is_short)
		log_about(LOG_NOTICE, &(struct log_about){ .message = MESSAGE_DISK_SHORT, .state = "end" },
			  "there is disk space for incidents again");
}

bool diskroom_ok(struct diskroom *room, const struct config *config, mono_t now)
{
	if (room->asked.ns && mono_diff(now, room->asked) < (int64_t)BELIEVE_NS)
		return !room->is_short;

	bool ok = spool_predict_ok(room->spool, expected_bytes(config));

	say(room, ok);
	if (!ok && (!room->is_short || mono_diff(now, room->made) > (int64_t)MAKE_AGAIN_NS)) {
		room->made = now;
		collector_enforce(room->collector);
	}
	room->is_short = !ok;
	room->asked = now;

	return ok;
}

void diskroom_forget(struct diskroom *room)
{
	room->asked = (mono_t){ 0 };
}
