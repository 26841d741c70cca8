/*
 * incident_request.h: what an incident is to record. Made by the event loop, constant from
 * incident_worker_open on; the event loop and the incident worker both read it. It holds a copy of
 * all it needs of the configuration, so a reload has nothing to wait for.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_INCIDENT_REQUEST_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_INCIDENT_REQUEST_H

#include "lib/base/base.h"
#include "lib/incident/incident.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stdint.h>

struct hook_plan;

/* The configuration in force when the incident was opened. */
struct incident_settings {
	uint64_t before_ns, after_ns;
	uint64_t interval_ns;        /* ring_interval_ns at the firing */
	uint64_t max_incident_bytes; /* of all files */
	uint64_t max_samples_bytes;  /* of samples.tsv, in an incident of all targets */
	unsigned captures;           /* CONFIG_CAPTURE_... */
	uint64_t again_ns;           /* from the first snapshot of the processes to the second; 0: there is none */
};

struct incident_request {
	unsigned char encoded[TARGET_ENCODED_MAX];
	struct target target; /* strings point into encoded */
	bool everything;      /* of all targets: target has a name only */
	mono_t fired;
	wall_t wall;    /* of fired */
	uint64_t owner; /* the user whose turn at the worker it takes, a hash; 0: root's, or a system service's */
	struct incident_settings settings;
	struct hook_plan *hooks; /* the commands to be run; NULL: none */
	struct incident info;    /* as of the firing; the worker adds to its captures what it takes */
};

#endif
