/*
 * session.h: what records: ring, samplers, discovery and stacks, assembled by a configuration. The
 * daemon and `spikewatch trap` add rules and incidents (dispatcher.h), `spikewatch record` a
 * stream.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_SESSION_SESSION_H
#define SPIKEWATCH_DAEMON_ENGINE_SESSION_SESSION_H

#include "lib/config/config.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"

struct session;

/*
 * Opens everything, without starting a thread. config must outlive the session. ring_path: the
 * ring's file (an old one is replaced), or NULL: memory without a name. 0; -errno (logged).
 */
int session_open(const struct config *config, const char *ring_path, struct session **ret);

/*
 * Starts discovery alone: the targets that its first scan finds (discovery_progress) before
 * session_start are there from the first tick on. 0 or -errno (logged).
 */
int session_seek(struct session *session);

/*
 * session_open, and the first scan in the calling thread, which may wait for /proc. Returns as
 * session_open.
 */
int session_new(const struct config *config, const char *ring_path, struct session **ret);

/* Starts the sampler threads, and discovery unless it runs. 0 or -errno (logged). */
int session_start(struct session *session);

/*
 * Replaces the configuration while everything runs: samplers_retune and discovery_reload. What
 * only a restart can change (ring.*, proc_root, cgroup_root, sampling.threads and source) must be equal in
 * both. 0: config is in force and must outlive the session, and the one before is no longer used.
 * DISCOVERY_FOLLOWS: the same, but discovery still uses the one before: see discovery_reload.
 * -ENOMEM, -errno: the one before is still in force. Nothing is logged. Only the thread that made
 * the session.
 */
int session_reload(struct session *session, const struct config *config);

/*
 * Stops the threads, the samplers first: nothing is added to the ring after this. Harmless if they
 * do not run. False: see session_free.
 */
bool session_stop(struct session *session);

/*
 * Stops, marks the ring as ended in good order, frees all. NULL is fine. False: discovery is
 * blocked in a read of /proc and may continue (discovery_stop): nothing was freed, the
 * configuration is still in use and must not be freed either, and the process should end.
 */
bool session_free(struct session *session);

/* What a session consists of. */
struct session_parts {
	struct ring *ring;
	struct samplers *samplers;
	struct discovery *discovery;
	struct label_cache *labels;
	const struct cgroup_mounts *mounts;
	const struct metric_machine *machine;
	int procfd;
	struct stack_recorder *stacks; /* NULL: there is none */
	/*
	 * Why there are no stacks: "" if they are not configured. With stacks: why processes of other
	 * users have none: "" if they have.
	 */
	const char *stacks_off;
	/*
	 * Of CPU time; NULL: files alone, for the reason accounts_off: "" if that is what is configured.
	 * Their state says if they are on; accounts_off, why they were not at the start.
	 */
	struct kernel_accounts *accounts;
	const char *accounts_off;
	const char *symbolizer; /* the path of spikewatch-symbolize, if there are stacks */
};

/* They stay the session's, and are the same until it ends. */
struct session_parts session_parts(const struct session *session);

#endif
