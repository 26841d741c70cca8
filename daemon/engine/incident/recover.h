/* recover.h: the ring of a daemon that was killed becomes an incident before it is replaced. */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_RECOVER_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_RECOVER_H

#include "daemon/engine/incident/spool.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/incident/incident.h"
#include "lib/ring/ring.h"

/* Holes that are listed; further ones are added to the last. */
#define RECOVER_HOLES_MAX 16

/* Ticks that are missing. */
struct recover_hole {
	wall_t from, to; /* the ticks before and after it; from 0: it is at the beginning */
	uint64_t ticks;  /* missing, as far as their numbers say */
	uint64_t pages;  /* lost or damaged */
};

/* What was saved, and what was not. */
struct recover_report {
	char name[INCIDENT_NAME_MAX + 1]; /* of the incident; "": the ring held no sample */
	mono_t from, to;                  /* first and last tick */
	wall_t from_wall, to_wall;
	uint64_t interval_ns;   /* of the sampler */
	uint64_t ticks, slots;  /* taken; that should have been, at that interval */
	uint64_t targets, gone; /* seen; of them ended */
	uint64_t samples;
	uint64_t lost_pages;
	double severity;   /* that of the worst incident that was open then, at least 1 */
	size_t hole_count; /* what is missing of the ring */
	struct recover_hole holes[RECOVER_HOLES_MAX];
	struct sample_window_coverage sampling; /* holes: what the sampler missed */
};

/*
 * Seals the last before_ns (0: all) of what the ring holds, all targets, as an incident of kind
 * "recovered". The ring may be one that is being written: then it ends with the last tick there was
 * when this was called. 0 and *ret (an empty name: there was no sample); -ENOMEM; -errno of the spool
 * or the disk.
 */
int recover_save(const struct ring *ring, uint64_t before_ns, struct spool *spool, struct recover_report *ret);

/*
 * At the start of a daemon, which holds the lock of the ring: if there is a ring file whose writer did
 * not end it, its last `before` window, with those of incidents that were not on the disk, all targets,
 * is sealed as an incident of kind "recovered", unless there is one already or it has no sample, and
 * the file is removed; then drafts in the directory `incidents` are sealed or removed (spool_wait). It
 * may be killed at any step: the next start goes on with it. It is waited for for five seconds at most;
 * a thread goes on with it, to which the spool of the caller is another one. When this returns nothing
 * is called `ring` that is not saved. Logs what it did; an error never stops the start: a ring that
 * cannot be read is renamed to its name with ".damaged".
 */
void recover_begin(const char *ring, const char *incidents, const struct config *config);

#endif
