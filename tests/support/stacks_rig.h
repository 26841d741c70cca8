/*
 * stacks_rig.h: a workload whose stacks are known, the real daemon, an incident, and what it says.
 * Without permission to use perf, or without the programs, the tests say so and pass.
 */
#ifndef SPIKEWATCH_TESTS_STACKS_RIG_H
#define SPIKEWATCH_TESTS_STACKS_RIG_H

#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"
#include "program.h"
#include "supervise.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/model/pacing.h"
#include "lib/model/target.h"

#include <limits.h>
#include <math.h>
#include <sys/stat.h>

struct stacks_rig {
	char directory[64];
	char spikewatchd[512], spikewatch[512], symbolizer[512];
	char workload[128], name[16];          /* under a unique name: stacks are system-wide */
	char config[128], out[128], said[128]; /* of the daemon; what the workload said; what a command said */
	struct program work, daemon;
	const char *selector;       /* of the target: "...", instead of its pid */
	const char *keys;           /* of it, beside that: ", ..." */
	const char *before, *after; /* how far an incident goes back, and how long it goes on */
	int asked;
	char incident[512];
};

static inline bool stacks_rig_perf_is_allowed(void)
{
	struct stack_recorder_options options = { 0 };
	char reason[STACK_RECORDER_REASON_MAX] = "";
	struct stack_recorder *recorder;

	if (stack_recorder_open(&options, &recorder, reason) < 0) {
		return skip_because("%s", reason);
	}
	stack_recorder_close(recorder);

	return true;
}

/* The workload under its other name; false: there is none. */
static inline bool stacks_rig_find_workload(struct stacks_rig *rig)
{
	char found[512], whole[PATH_MAX];

	snprintf(rig->name, sizeof(rig->name), "burner%d", getpid());
	snprintf(rig->workload, sizeof(rig->workload), "%s/%s", rig->directory, rig->name);

	return program_find("workload_stacks", found) && realpath(found, whole) && symlink(whole, rig->workload) == 0;
}

/* False: something is missing here, which was said. */
static inline bool stacks_rig_init(struct stacks_rig *rig)
{
	*rig = (struct stacks_rig){ .before = "60s", .after = "0s", .keys = "" };
	scene_directory(rig->directory);
	snprintf(rig->config, sizeof(rig->config), "%s/config.json", rig->directory);
	snprintf(rig->out, sizeof(rig->out), "%s/out", rig->directory);
	snprintf(rig->said, sizeof(rig->said), "%s/said", rig->directory);

	return program_find("spikewatchd", rig->spikewatchd) && program_find("spikewatch", rig->spikewatch) &&
	       program_find("spikewatch-symbolize", rig->symbolizer) && stacks_rig_find_workload(rig) &&
	       stacks_rig_perf_is_allowed();
}

static inline void stacks_rig_release(struct stacks_rig *rig)
{
	scene_remove(rig->directory);
}

/* A directory for what a program says. */
static inline const char *stacks_rig_place(struct stacks_rig *rig, const char *name, char path[128])
{
	snprintf(path, 128, "%s/%s", rig->directory, name);
	mkdir(path, 0755);

	return path;
}

/* Starts the workload; arguments[0] is its path. */
static inline void stacks_rig_start_work(struct stacks_rig *rig, const char *const *arguments)
{
	char place[128];
	int out = open(rig->out, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	rig->work = program_start(arguments, stacks_rig_place(rig, "work", place), out, 0);
	close(out);
	/* Where it says how code is called that it compiles while it runs. */
	snprintf(place, sizeof(place), "/tmp/perf-%d.map", rig->work.pid);
	supervise_note(place);
}

/* Waits until the workload has stopped itself. */
static inline void stacks_rig_until_stopped(struct stacks_rig *rig)
{
	siginfo_t info;

	scene_wait_for((info.si_pid = 0, waitid(P_PID, (id_t)rig->work.pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
						 info.si_pid == rig->work.pid));
}

/* Runs `spikewatch COMMAND... --socket ...`; what it said is in rig->said. Its exit code. */
static inline int stacks_rig_ask(struct stacks_rig *rig, const char *command, const char *option, const char *target)
{
	char control[128], place[128], name[32];
	const char *arguments[] = { rig->spikewatch, command, option, "--socket", control, target, NULL };
	int out = open(rig->said, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	snprintf(control, sizeof(control), "%s/control", rig->directory);
	snprintf(name, sizeof(name), "asked%d", rig->asked++);

	struct program program = program_start(arguments, stacks_rig_place(rig, name, place), out, 0);

	close(out);

	return program_wait(&program);
}

/* Or cannot: there is no room for stacks here. */
static inline bool stacks_rig_follows(struct stacks_rig *rig)
{
	return stacks_rig_ask(rig, "status", "--json", NULL) == 0 && scene_says(rig->said, "\"followed_processes\"") &&
	       (!scene_says(rig->said, "\"followed_processes\": 0") || scene_says(rig->said, "\"dwarf\": false"));
}

/*
 * Starts the daemon, which watches the workload as "work". stacks: the value of that section;
 * rules: the value of that list. Waits until it does, and, if the mode is one that follows, until
 * the workload has events of its own.
 */
static inline void stacks_rig_start_daemon(struct stacks_rig *rig, const char *stacks, const char *rules)
{
	const char *arguments[] = { rig->spikewatchd, "-c", rig->config, NULL };
	bool follows = strstr(stacks, "dwarf") != NULL;
	char pid[32];

	snprintf(pid, sizeof(pid), "\"pid\": %d", rig->work.pid);
	scene_write(rig->config,
		    "{\"ring\": {\"path\": \"%s/ring\", \"size\": \"4MiB\", \"lock\": false},\n"
		    "\"sampling\": {\"cpu_budget\": \"100%%\"}, \"stacks\": %s,\n"
		    "\"incidents\": {\"directory\": \"%s/incidents\", \"before\": \"%s\", \"after\": \"%s\",\n"
		    "\"min_free\": \"0B\", \"captures\": [\"samples\"]},\n"
		    "\"targets\": [{\"name\": \"work\", %s%s}], \"rules\": %s}\n",
		    rig->directory, stacks, rig->directory, rig->before, rig->after,
		    rig->selector ? rig->selector : pid, rig->keys, rules);
	rig->daemon = program_start(arguments, rig->directory, -1, 0);
	scene_wait_for(program_watches_one(&rig->daemon));
	if (follows)
		scene_wait_for(stacks_rig_follows(rig));
}

/*
 * Lets the workload go, and waits until it has done its work: a minute, on a machine that is busy.
 */
static inline void stacks_rig_work(struct stacks_rig *rig)
{
	kill(rig->work.pid, SIGCONT);
	for (int i = 0; i < 6 * SCENE_NAPS && !scene_says(rig->out, "done"); i++)
		scene_nap();
	ck_assert(scene_says(rig->out, "done"));
}

/* An incident now, of the workload. */
static inline void stacks_rig_trigger(struct stacks_rig *rig)
{
	ck_assert_int_eq(stacks_rig_ask(rig, "trigger", "--wait", "work"), 0);

	char *path = scene_read(rig->said);

	snprintf(rig->incident, sizeof(rig->incident), "%.*s", (int)strcspn(path, "\n"), path);
	free(path);
}

static inline void stacks_rig_end(struct stacks_rig *rig)
{
	if (rig->work.pid > 0) {
		kill(rig->work.pid, SIGKILL);
		program_wait(&rig->work);
	}
	kill(rig->daemon.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&rig->daemon), 0);
}

/* ---- what the incident says ---- */

/* A file of the incident, for free(3); NULL: there is none. */
static inline char *stacks_rig_file(const struct stacks_rig *rig, const char *name)
{
	char path[640];

	snprintf(path, sizeof(path), "%s/%s", rig->incident, name);

	return scene_read(path);
}

/* What a function has of the total: by itself, before and during; and with what it calls. */
struct stacks_rig_row {
	unsigned long self, total;
};

/* A row of functions.tsv or memory-functions.tsv; zeroes: there is none. */
static inline struct stacks_rig_row stacks_rig_function(const struct stacks_rig *rig, const char *file,
							const char *function)
{
	unsigned long self_before, total_before, self_during, total_during;
	struct stacks_rig_row row = { 0 };
	char start[128];
	char *text = stacks_rig_file(rig, file), *at;

	ck_assert_msg(text, "there is no %s", file);
	snprintf(start, sizeof(start), "\n%s\t", function);
	at = strstr(text, start);
	if (at) {
		ck_assert_int_eq(sscanf(at + strlen(start), "%*[^\t]\t%lu\t%lu\t%lu\t%lu", &self_before, &total_before,
					&self_during, &total_during),
				 4);
		row.self = self_before + self_during;
		row.total = total_before + total_during;
	}
	free(text);

	return row;
}

/* The sum of folded stacks that contain all of parts, in this order; parts end with NULL. */
static inline unsigned long stacks_rig_folded(const struct stacks_rig *rig, const char *file, const char *const *parts)
{
	char *text = stacks_rig_file(rig, file), *rest = text, *line;
	unsigned long sum = 0;

	ck_assert_msg(text, "there is no %s", file);
	while ((line = strsep(&rest, "\n")) && *line) {
		const char *at = line;

		for (const char *const *part = parts; at && *part; part++) {
			at = strstr(at, *part);
			at = at ? at + strlen(*part) : NULL;
		}
		if (at)
			sum += strtoul(strrchr(line, ' '), NULL, 10);
	}
	free(text);

	return sum;
}

/* Shows what there is, and fails. */
#define stacks_rig_give_up(rig, file, ...) \
	do { \
		char *text_ = stacks_rig_file(rig, file), *about_ = stacks_rig_file(rig, "incident.json"), \
		     *log_ = scene_read((rig)->daemon.err); \
		fprintf(stderr, "%s:\n%s\nincident.json:\n%s\nthe log:\n%s\n", file, text_ ? text_ : "", \
			about_ ? about_ : "", log_ ? log_ : ""); \
		free(text_); \
		free(about_); \
		free(log_); \
		ck_abort_msg(__VA_ARGS__); \
	} while (0)

#define STACKS_RIG_FOLDED(rig, file, ...) stacks_rig_folded(rig, file, (const char *const[]){ __VA_ARGS__, NULL })

#endif
