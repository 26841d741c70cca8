/*
 * incidents.h: from "a rule fired" to a sealed directory. The event loop opens, feeds and closes
 * incidents; a worker thread collects evidence and writes, so rules and sampling are not delayed.
 *
 *      fire            worker: open                  `after` is over        worker: seal
 *     -----> OPEN -+-> stacks, captures, commands -+--> handed over --> samples, incident.json,
 *                  +-> window: the past from the   |                    MANIFEST, rename
 *                      ring, then every tick;    --+
 *                      firings of the same
 *                      target are merged
 *
 * incidents_trigger requests one of a target, as if a rule had fired, or of all targets: their
 * samples then go from the ring straight into the draft until `after` is over.
 *
 * Bounded: in number, memory and descriptors. A firing beyond the bounds is counted in a storm, and
 * as soon as there is room again the next one opens an incident.
 *
 * All functions belong to the event loop.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_INCIDENT_INCIDENTS_H
#define SPIKEWATCH_DAEMON_ENGINE_INCIDENT_INCIDENTS_H

#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/incident/incident.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct incidents;
struct notifier;

/* Open at once; further firings are refused, which is logged. Each holds its window in memory. */
#define INCIDENTS_OPEN_MAX 16u

/*
 * Open or not yet sealed: so many directories (each some descriptors) a slow disk can hold up. All
 * their windows together have so much memory; when three quarters are taken none is opened.
 */
#define INCIDENTS_PENDING_MAX 32u
#define INCIDENTS_WINDOWS_BYTES ((size_t)32 << 20)

/*
 * Firings that open none are counted in a storm, by rule and target: an incident of its own kind
 * (incident.h), sealed when none was refused for so long, at the latest so long after the first;
 * two storms are recorded within that time only when the daemon stops. Beyond so many rows what
 * comes is one row.
 */
#define INCIDENTS_STORM_CALM_NS (30 * NS_PER_S)
#define INCIDENTS_STORM_MAX_NS (600 * NS_PER_S)
#define INCIDENTS_STORM_ROWS_MAX 1024u

struct incidents_options {
	const struct config *config;
	struct session *session;
	const struct rule_state *rule_state; /* for how often a rule has fired */
	struct spool *spool;                 /* the worker's once incidents_new was called, but for what spool.h says */
};

/* What became of a request. */
enum incidents_answer {
	INCIDENTS_OPENED,
	INCIDENTS_MERGED, /* into the one that is open, whether of a rule or of a request */
	INCIDENTS_REFUSED,
};

/* The answer to a request. */
struct incidents_ticket {
	enum incidents_answer answer;
	const char *why;       /* REFUSED: static text, "too many are open"; else "" */
	const char *directory; /* where it will be; as long as the spool lives */
	uint64_t sealed_in_ns; /* until nothing more is recorded; writing takes a moment longer. REFUSED: 0 */
	char stem[INCIDENT_NAME_MAX + 1]; /* it will be called "<stem>-<n>", n almost always 1. REFUSED: "" */
};

struct incidents_counts {
	struct notifier *notifier; /* for notifier_counts */
	uint64_t opened, sealed, merged;
	uint64_t failed;  /* could not be written */
	uint64_t refused; /* firings, which a storm counts, and requests: too many open, no memory, no room */
	uint64_t manual;  /* requests by hand, whatever became of them */
	uint64_t removed; /* by the limits of retention */
	size_t open;
	size_t pending; /* open, or over and not yet sealed */
	mono_t ends;    /* when the window of the next one that is open is over; 0: none is */
	uint64_t captures_unsaved, captures_unsaved_bytes; /* taken, and not on the disk yet */
	/* Of the storm that is not recorded yet; 0: there is none. */
	uint64_t storm_firings;
	uint64_t storm_rows; /* rules and targets */
	mono_t storm_since;
};

/* Starts the worker. 0; -ENOMEM; -errno. */
int incidents_new(const struct incidents_options *options, struct incidents **ret);

/* Finishes. Returns as incidents_finish. NULL is fine: true. */
bool incidents_free(struct incidents *incidents);

/*
 * A rule fired: opens an incident, its past copied when this returns, or merges into the one that
 * is open for this target. A refusal is logged, and counted in a storm.
 */
enum incidents_answer incidents_fire(struct incidents *incidents, const struct evaluator_firing *firing);

/*
 * Requests an incident of this target or (NULL) of all; merged if one of the same is open. The past
 * of a target is copied when this returns, that of all targets as the worker's next job; what the
 * sampler overwrites until then is counted as missing. target is copied. 0; *ret is always set.
 */
int incidents_trigger(struct incidents *incidents, const struct target *target, struct incidents_ticket *ret);

/*
 * Replaces the configuration, which must outlive incidents or the next reload; the old one is no
 * longer used. Open incidents keep their settings; retention uses the new limits the next time.
 */
void incidents_reload(struct incidents *incidents, const struct config *config);

/*
 * When the worker's present job began; 0: it is idle. A job of minutes is blocked in a read or
 * write.
 */
mono_t incidents_busy_since(const struct incidents *incidents);

/*
 * Whether there is too little disk space for one more: looked for each second of incidents_poll, by
 * the worker, which then removes old incidents, if that would be enough.
 */
bool incidents_disk_is_short(const struct incidents *incidents);

/* The ring's events, in order. */
void incidents_tick(struct incidents *incidents, mono_t at, uint64_t idle_ns, uint32_t writer);
void incidents_hole(struct incidents *incidents, const struct sampling_hole *hole);
void incidents_sample(struct incidents *incidents, uint32_t id, mono_t at, const struct sample *sample);
void incidents_gone(struct incidents *incidents, uint32_t id, mono_t at);
void incidents_gap(struct incidents *incidents, mono_t at, uint64_t lost_pages);

/* Hands over to the worker the incidents whose window is over. */
void incidents_poll(struct incidents *incidents, mono_t now);

/*
 * Hands over all incidents with what they have, and waits until they are written. False: the worker
 * is stuck (incident_worker_stop), and session and spool must not be freed.
 */
bool incidents_finish(struct incidents *incidents);

/* Whether an incident of the target with this key is open: firings on it are merged. */
bool incidents_is_open(const struct incidents *incidents, const char *key);

/* Totals so far. */
void incidents_counts(struct incidents *incidents, struct incidents_counts *ret);

#endif
