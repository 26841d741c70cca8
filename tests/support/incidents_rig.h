/*
 * incidents_rig.h: session, rules, dispatcher and incidents, wired as the daemon wires them, around
 * one process that does as it is told. For suites about incidents: each has its own copy.
 */
#ifndef SPIKEWATCH_TESTS_INCIDENTS_RIG_H
#define SPIKEWATCH_TESTS_INCIDENTS_RIG_H

#include "lib/incident/incident.h"
#include "daemon/engine/incident/incidents.h"
#include "lib/incident/manifest.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/paths.h"
#include "scene.h"
#include "daemon/engine/dispatch/dispatcher.h"
#include "daemon/engine/incident/spool.h"
#include "daemon/engine/session/session.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/evaluator/rule_state.h"
#include "lib/ring/ring.h"

#include <dirent.h>
#include <errno.h>
#include <sys/file.h>
#include <sys/resource.h>

#define BEFORE (500 * NS_PER_MS)
#define AFTER (300 * NS_PER_MS)

struct incidents_rig {
	char directory[64], spool_at[128];
	struct scene_log log_file;
	struct config *config;
	struct actor actor;
	struct session *session;
	struct rule_state *rule_state;
	struct spool *spool;
	struct incidents *incidents;
	struct evaluator *evaluator;
	struct dispatcher *dispatcher;
	struct clock clock;
	const char *before_text, *after_text; /* the window of incidents */
};

static inline void incidents_rig_setup(struct incidents_rig *rig)
{
	rig->clock = real_clock();
	rig->before_text = "500ms";
	rig->after_text = "300ms";
	rig->log_file = scene_log_catch();
	scene_directory(rig->directory);
	snprintf(rig->spool_at, sizeof(rig->spool_at), "%s/incidents", rig->directory);
	rig->actor = actor_start("scene-burner");
}

static inline void incidents_rig_teardown(struct incidents_rig *rig)
{
	dispatcher_close(rig->dispatcher);
	rule_state_free(rig->rule_state);
	session_free(rig->session);
	spool_free(rig->spool);
	config_free(rig->config);
	scene_remove(rig->directory);
	scene_log_release(&rig->log_file);
}

static inline void build_rules(struct incidents_rig *rig)
{
	struct dispatcher_options options = { .config = rig->config,
					      .session = rig->session,
					      .spool = rig->spool,
					      .rule_state = rig->rule_state,
					      .check_disk = true };

	ck_assert_int_eq(dispatcher_open(&options, &rig->dispatcher), 0);
	rig->evaluator = dispatcher_evaluator(rig->dispatcher);
	rig->incidents = dispatcher_incidents(rig->dispatcher);
}

static inline uint64_t ticks(struct incidents_rig *rig)
{
	struct ring_info info = { 0 };

	ring_info(session_parts(rig->session).ring, &info);

	return info.ticks;
}

/* Everything is running when this returns. */
static inline void start(struct incidents_rig *rig, const char *min_free, const char *rules)
{
	rig->config = scene_config(
		"{\"sampling\": {\"interval\": \"2ms\", \"rescan_interval\": \"100ms\", \"cpu_budget\": \"100%%\"},"
		"\"ring\": {\"size\": \"4MiB\", \"lock\": false}, \"stacks\": \"off\","
		"\"incidents\": {\"before\": \"%s\", \"after\": \"%s\", \"min_free\": \"%s\"},"
		"\"targets\": [{\"name\": \"burner\", \"pid\": %d}], \"rules\": [%s]}",
		rig->before_text, rig->after_text, min_free, rig->actor.pid, rules);

	struct retention_limits limits = { .min_free_bytes = rig->config->incidents.min_free_bytes };

	ck_assert_int_eq(spool_open(rig->spool_at, &limits, &rig->spool, NULL), 0);
	ck_assert_int_eq(session_new(rig->config, NULL, &rig->session), 0);
	ck_assert_int_eq(rule_state_new("", &rig->rule_state), 0);
	build_rules(rig);
	ck_assert_int_eq(session_start(rig->session), 0);
	scene_wait_for(ticks(rig) > 0);
}

/* Locks the spool: the worker waits at its next draft, until the descriptor is closed, or ten seconds. */
static inline int incidents_rig_lock(const struct incidents_rig *rig)
{
	char path[160];
	int fd = -1;

	snprintf(path, sizeof(path), "%s/" PATHS_LOCK, rig->spool_at);
	ck_assert_int_eq(lock_file_take(AT_FDCWD, path, &fd), 0);
	return fd;
}

/* A fifth of a core is little, for a machine that has other things to do. */
#define RULE(name, window) \
	"{\"name\": \"" name "\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"" window \
	"\", \"percent\": \"20%\", \"warmup\": 1, \"cooldown\": \"1h\"}"

static inline struct incidents_counts poll_once(struct incidents_rig *rig)
{
	struct incidents_counts counts;

	ck_assert_int_eq(dispatcher_poll(rig->dispatcher, clock_mono(&rig->clock)), 0);
	incidents_counts(rig->incidents, &counts);

	return counts;
}

/* Whether what is watched has been sampled. */
static inline bool has_samples(struct incidents_rig *rig)
{
	struct stats stats;

	return ring_stats(session_parts(rig->session).ring, &stats) == 0 && stats.records > 0;
}

/*
 * What happens before the spike: enough for the whole window before it, and some ticks, which the sampler
 * may have had no CPU for meanwhile.
 */
static inline void let_pass(struct incidents_rig *rig, uint64_t ns)
{
	mono_t until = mono_add(clock_mono(&rig->clock), ns);
	uint64_t before = ticks(rig);

	for (int naps = 0; mono_diff(until, clock_mono(&rig->clock)) > 0 ||
			   (naps < SCENE_NAPS && (ticks(rig) < before + 10 || !has_samples(rig)));
	     naps++) {
		poll_once(rig);
		scene_nap();
	}
}

/* Stops everything. */
static inline void stop(struct incidents_rig *rig)
{
	session_stop(rig->session);
	poll_once(rig);
	incidents_finish(rig->incidents);
}

/* How many directories are there; the last one's path in ret. Temporary ones count too. */
static inline size_t count_directories(struct incidents_rig *rig, char ret[400])
{
	DIR *dir = opendir(rig->spool_at);
	size_t count = 0;

	for (struct dirent *item; dir && (item = readdir(dir));) {
		if (item->d_name[0] == '.')
			continue;
		snprintf(ret, 400, "%s/%s", rig->spool_at, item->d_name);
		count++;
	}
	if (dir)
		closedir(dir);

	return count;
}

/* The only incident; it must be whole. */
static inline void read_incident(struct incidents_rig *rig, char path[400], struct incident *ret)
{
	ck_assert_uint_eq(count_directories(rig, path), 1);
	int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(manifest_verify(dirfd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(dirfd, ret), 0);
	close(dirfd);
	const char *slash = strrchr(path, '/');

	ck_assert_str_eq(ret->id, slash + 1);
}

/* What a busy machine has missed of its window, as the incident says: so far it may be from what is expected. */
static inline int64_t missed_ns(const struct incident *incident)
{
	return (int64_t)(incident->coverage.missed_slots * 2 * NS_PER_MS);
}

static inline char *read_file(const char *path, const char *name)
{
	char file[500];

	snprintf(file, sizeof(file), "%s/%s", path, name);
	char *text = scene_read(file);

	ck_assert_msg(text != NULL, "%s", file);

	return text;
}

static inline enum incident_capture_status capture_of(const struct incident *incident, const char *name)
{
	for (size_t i = 0; i < incident->capture_count; i++)
		if (strcmp(incident->captures[i].name, name) == 0)
			return incident->captures[i].status;
	ck_abort_msg("no capture %s", name);
}

#endif
