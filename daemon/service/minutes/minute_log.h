/*
 * minute_log.h: what the daemon keeps of each minute for `spikewatch history`: sums and peaks per
 * target, from the events of the ring, and the files that they go to. Summing is done by the event
 * loop; a thread of its own writes (file_writer.h), so that a slow disk delays nothing else.
 */
#ifndef SPIKEWATCH_DAEMON_SERVICE_MINUTES_MINUTE_LOG_H
#define SPIKEWATCH_DAEMON_SERVICE_MINUTES_MINUTE_LOG_H

#include "lib/config/config.h"
#include "lib/ring/ring.h"

#include <stdbool.h>
#include <stdint.h>

struct minute_log;

/* Since the daemon started, but for bytes and files. */
struct minute_log_state {
	bool enabled;
	int error;      /* -errno of the last write; 0: it succeeded, or there was none */
	uint64_t bytes; /* of all files; 0 before the first minute was written */
	uint64_t files;
	uint64_t written;    /* minutes */
	uint64_t lost;       /* minutes that could not be written and are no longer kept for another try */
	uint64_t waiting;    /* minutes that could not be written yet */
	uint64_t torn_bytes; /* cut off a file that a killed daemon had left */
	uint64_t removed;    /* files, by the limits */
};

/*
 * Starts the thread. directory: where the files go, made if need be with the first minute; copied. 0;
 * -ENOMEM; -errno.
 */
int minute_log_open(const char *directory, const struct config *config, struct minute_log **ret);

/* The next event of the ring. Memory that cannot be had costs a target its row. */
void minute_log_event(struct minute_log *log, const struct ring_event *event);

/* An incident was opened, of the target with this id or (0) of all. id: as `spikewatch show` takes it. */
void minute_log_incident(struct minute_log *log, uint32_t target, const char *id);

/* Puts the limits of another configuration in force; enabled: from the next event on. */
void minute_log_reload(struct minute_log *log, const struct config *config);

/* As it is at this moment; the thread's figures may be a step ahead of each other. */
void minute_log_state(const struct minute_log *log, struct minute_log_state *ret);

/*
 * Writes the minute that has begun, and frees. Does not wait for a disk that blocks beyond `until`; what
 * could not be written is logged. NULL is fine.
 */
void minute_log_close(struct minute_log *log, mono_t until);

#endif
