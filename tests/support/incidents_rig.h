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

static char directory[64], spool_at[128];
static struct scene_log log_file;
static struct config *config;
static struct actor actor;
static struct session *session;
static struct rule_state *rule_state;
static struct spool *spool;
static struct incidents *incidents;
static struct evaluator *evaluator;
static struct dispatcher *dispatcher;
static struct clock the_clock;
static const char *before_text, *after_text; /* the window of incidents */

static inline void setup(void)
{
	the_clock = real_clock();
	before_text = "500ms";
	after_text = "300ms";
	log_file = scene_log_catch();
	scene_directory(directory);
	snprintf(spool_at, sizeof(spool_at), "%s/incidents", directory);
	actor = actor_start("scene-burner");
}

static inline void teardown(void)
{
	dispatcher_close(dispatcher);
	rule_state_free(rule_state);
	session_free(session);
	spool_free(spool);
	config_free(config);
	scene_remove(directory);
	scene_log_release(&log_file);
}

static inline void build_rules(void)
{
	struct dispatcher_options options = {
		.config = config, .session = session, .spool = spool, .rule_state = rule_state, .check_disk = true
	};

	ck_assert_int_eq(dispatcher_open(&options, &dispatcher), 0);
	evaluator = dispatcher_evaluator(dispatcher);
	incidents = dispatcher_incidents(dispatcher);
}

static inline uint64_t ticks(void)
{
	struct ring_info info = { 0 };

	ring_info(session_ring(session), &info);

	return info.ticks;
}

/* Everything is running when this returns. */
static inline void start(const char *min_free, const char *rules)
{
	config = scene_config(
		"{\"sampling\": {\"interval\": \"2ms\", \"rescan_interval\": \"100ms\", \"cpu_budget\": \"100%%\"},"
		"\"ring\": {\"size\": \"4MiB\", \"lock\": false}, \"stacks\": \"off\","
		"\"incidents\": {\"before\": \"%s\", \"after\": \"%s\", \"min_free\": \"%s\"},"
		"\"targets\": [{\"name\": \"burner\", \"pid\": %d}], \"rules\": [%s]}",
		before_text, after_text, min_free, actor.pid, rules);

	struct retention_limits limits = { .min_free_bytes = config->incidents.min_free_bytes };

	ck_assert_int_eq(spool_open(spool_at, &limits, &spool, NULL), 0);
	ck_assert_int_eq(session_new(config, NULL, &session), 0);
	ck_assert_int_eq(rule_state_new("", &rule_state), 0);
	build_rules();
	ck_assert_int_eq(session_start(session), 0);
	scene_wait_for(ticks() > 0);
}

/* A fifth of a core is little, for a machine that has other things to do. */
#define RULE(name, window) \
	"{\"name\": \"" name "\", \"metric\": \"cpu\", \"of\": \"core\", \"window\": \"" window \
	"\", \"percent\": \"20%\", \"warmup\": 1, \"cooldown\": \"1h\"}"

static inline struct incidents_counts poll_once(void)
{
	struct incidents_counts counts;

	ck_assert_int_eq(dispatcher_poll(dispatcher, clock_mono(&the_clock)), 0);
	incidents_counts(incidents, &counts);

	return counts;
}

/* What happens before the spike: enough for the whole window before it. */
static inline void let_pass(uint64_t ns)
{
	mono_t until = mono_add(clock_mono(&the_clock), ns);

	while (mono_diff(until, clock_mono(&the_clock)) > 0) {
		poll_once();
		scene_nap();
	}
}

/* Stops everything. */
static inline void stop(void)
{
	session_stop(session);
	poll_once();
	incidents_finish(incidents);
}

/* How many directories are there; the last one's path in ret. Temporary ones count too. */
static inline size_t count_directories(char ret[400])
{
	DIR *dir = opendir(spool_at);
	size_t count = 0;

	for (struct dirent *item; dir && (item = readdir(dir));) {
		if (item->d_name[0] == '.')
			continue;
		snprintf(ret, 400, "%s/%s", spool_at, item->d_name);
		count++;
	}
	if (dir)
		closedir(dir);

	return count;
}

/* The only incident; it must be whole. */
static inline void read_incident(char path[400], struct incident *ret)
{
	ck_assert_uint_eq(count_directories(path), 1);
	int dirfd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	ck_assert_int_eq(manifest_verify(dirfd, NULL, NULL), 0);
	ck_assert_int_eq(incident_json_read(dirfd, ret), 0);
	close(dirfd);
	const char *slash = strrchr(path, '/');

	ck_assert_str_eq(ret->id, slash + 1);
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
