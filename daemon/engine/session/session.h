/*
 * session.h: the recording half of the daemon as one thing: ring, sampler, discovery, wired after a
 * configuration. The daemon adds rules and incidents to it; `spikewatch record` adds a stream.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_SESSION_SESSION_H
#define SPIKEWATCH_DAEMON_ENGINE_SESSION_SESSION_H

#include "daemon/engine/sampling/sampler.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "daemon/engine/targets/containers.h"
#include "daemon/engine/targets/discovery.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/config/config.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"

struct session;

/*
 * Opens everything. config must outlive the session. ring_path: the ring's file (an old one is
 * replaced), or NULL: memory without a name. 0; -errno: what failed has been logged.
 */
int session_open(const struct config *config, const char *ring_path, struct session **ret);

/*
 * Starts discovery alone: the targets that its first scan finds (discovery_first) before
 * session_start are there from the first tick on. 0 or -errno (logged).
 */
int session_seek(struct session *session);

/*
 * Both for whoever can wait: session_open, and the first scan in the calling thread. Returns as
 * session_open.
 */
int session_new(const struct config *config, const char *ring_path, struct session **ret);

/* Starts the sampler threads, and discovery unless it runs. 0 or -errno (logged). */
int session_start(struct session *session);

/*
 * The configuration is replaced while everything runs: the samplers are retuned (samplers_retune)
 * and discovery takes the new entries (discovery_reload). What only a restart can change (ring.*,
 * proc_root, cgroup_root, sampling.threads) must be equal in both: the caller has refused it. 0:
 * config is in force and must outlive the session; the one before is no longer referred to.
 * -ENOMEM, -errno: the one before is still in force. Nothing is logged. The thread that made the
 * session.
 */
int session_reload(struct session *session, const struct config *config);

/*
 * Stops both, the samplers first: after this the ring says no more. Harmless if they do not run.
 * False: see session_free.
 */
bool session_stop(struct session *session);

/*
 * Stops, marks the ring as ended in good order, frees all. NULL is fine. False: discovery hangs in
 * a read of /proc and may wake (discovery_stop): nothing was freed, the configuration is still
 * referred to and must not be freed either, and the process is to end.
 */
bool session_free(struct session *session);

/* Its parts: they stay the session's. */
struct ring *session_ring(struct session *session);
struct samplers *session_samplers(struct session *session);
struct discovery *session_discovery(struct session *session);
struct label_cache *session_labels(struct session *session);
const struct cgroup_mounts *session_mounts(const struct session *session);
const struct metric_machine *session_machine(const struct session *session);
int session_procfd(const struct session *session);

/*
 * NULL: there is none, and session_stacks_off says why: "" if the configuration does not want it.
 * If there is one, it says why there are no events of everybody's: "" if there are.
 */
struct stack_recorder *session_stacks(struct session *session);
const char *session_stacks_off(const struct session *session);

/* The program that gives names to stacks, if there are stacks. */
const char *session_symbolizer(const struct session *session);

#endif
