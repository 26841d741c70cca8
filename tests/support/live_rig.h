/*
 * live_rig.h: the real daemon over the machine as it is, hearing of processes in one way or
 * another; what its status says, and what its ring holds of processes that come and go.
 *
 * Nothing is held against a clock: what is summed up is waited for (live_wait_for), up to a time
 * that is all that a test has, and then it says what it waited for and how things stand.
 */
#ifndef SPIKEWATCH_TESTS_LIVE_RIG_H
#define SPIKEWATCH_TESTS_LIVE_RIG_H

#include "program.h"
#include "lib/ring/ring.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <sys/stat.h>

enum way { CONNECTOR, KERNEL, PERF, RESCAN, WAYS };

/* What one target came to. */
struct tally {
	char name[80];
	uint32_t id;
	unsigned described, samples, gone;
	uint64_t cpu_ns;  /* of the last sample, which is the highest, or it stepped back */
	uint64_t late_ns; /* the most that any says of itself */
	bool stepped_back;
};

#define TALLIES_MAX 1024

/*
 * All the waiting of a test ends so long after its beginning: before Check ends it, so that what it
 * waited for is said.
 */
#define LIVE_WAIT_NS (200 * NS_PER_S)

struct live_rig {
	char directory[64], workload[PATH_MAX], spikewatchd[512], spikewatch[512];
	char file[128]; /* what processes say when they are done */
	struct program server;
	struct ring *ring;
	struct ring_cursor *cursor;
	struct tally tallies[TALLIES_MAX];
	size_t tally_count;
	bool able;
	uint64_t began_ns;
	const char *further; /* sections of the configuration, each with a comma behind it */
	bool scans_often;    /* discovery scans each 0.1 s, if an entry needs it, also where events are heard */
};

static inline uint64_t live_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);

	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline void live_rig_setup(struct live_rig *rig)
{
	char found[512];

	rig->began_ns = live_now_ns();
	scene_directory(rig->directory);
	snprintf(rig->file, sizeof(rig->file), "%s/used", rig->directory);
	rig->server.pid = 0;
	rig->ring = NULL;
	rig->cursor = NULL;
	rig->tally_count = 0;
	rig->further = "";
	rig->scans_often = false;
	rig->able = program_find("workload_arrival", found) && realpath(found, rig->workload) &&
		    program_find("spikewatchd", rig->spikewatchd) && program_find("spikewatch", rig->spikewatch);
}

static inline void end_server(struct live_rig *rig)
{
	kill(rig->server.pid, SIGTERM);
	ck_assert_int_eq(program_wait(&rig->server), 0);
	rig->server.pid = 0;
}

static inline void live_rig_teardown(struct live_rig *rig)
{
	ring_cursor_free(rig->cursor);
	ring_free(rig->ring);
	if (rig->server.pid > 0)
		end_server(rig);
	scene_remove(rig->directory);
}

/* ---- the daemon ---- */

static inline const char *place(struct live_rig *rig, const char *name)
{
	static char paths[4][128];
	static unsigned next;
	char *path = paths[next++ % 4];

	snprintf(path, sizeof(paths[0]), "%s/%s", rig->directory, name);

	return path;
}

/* The answer to a request without privileges; for free(3). */
static inline char *status(struct live_rig *rig)
{
	const char *said = place(rig, "said"), *asked = place(rig, "asked");
	const char *arguments[] = { rig->spikewatch, "status", "--json", "--socket", place(rig, "control"), NULL };
	int out = open(said, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	mkdir(asked, 0755);

	struct program program = program_start(arguments, asked, out, 0);

	close(out);
	ck_assert_int_eq(program_wait(&program), 0);

	return scene_read(said);
}

/* ---- waiting ---- */

/* Says how things stand, and fails. */
static inline void live_give_up(struct live_rig *rig, const char *condition)
{
	char *log = scene_read(rig->server.err), *text = status(rig);

	fprintf(stderr, "waited in vain for: %s\nthe log: %s\nthe status: %s\n", condition, log ? log : "",
		text ? text : "");
	for (size_t i = 0; i < rig->tally_count && i < 20; i++)
		fprintf(stderr, "in the ring: %s, id %u, %u samples, gone %u, %ju us\n", rig->tallies[i].name,
			rig->tallies[i].id, rig->tallies[i].samples, rig->tallies[i].gone,
			(uintmax_t)rig->tallies[i].cpu_ns / 1000);
	free(log);
	free(text);
	ck_abort_msg("waited in vain for: %s", condition);
}

/* Between two looks at a status, which is a process of its own. */
static inline void live_nap(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 25000000 }, NULL);
}

#define live_wait_for(rig, condition) \
	do { \
		while (!(condition)) { \
			if (live_now_ns() - (rig)->began_ns > LIVE_WAIT_NS) \
				live_give_up(rig, #condition); \
			live_nap(); \
		} \
	} while (0)

/* A number of a section of the status. */
static inline uint64_t told(struct live_rig *rig, const char *section, const char *member)
{
	char *text = status(rig), key[48], *at;
	uint64_t value;

	snprintf(key, sizeof(key), "\"%s\": {", section);
	at = text ? strstr(text, key) : NULL;
	snprintf(key, sizeof(key), "\"%s\":", member);
	at = at ? strstr(at, key) : NULL;
	ck_assert_msg(at, "there is no %s of %s", member, section);
	value = strtoull(at + strlen(key), NULL, 10);
	free(text);

	return value;
}

static inline uint64_t counted(struct live_rig *rig, const char *member)
{
	return told(rig, "discovery", member);
}

static inline bool discovery_says(struct live_rig *rig, const char *part)
{
	char *text = status(rig);
	bool says = text && strstr(text, part);

	free(text);

	return says;
}

/* Whether it hears of processes by this source. */
static inline bool hears_by(struct live_rig *rig, const char *source)
{
	static const char key[] = "\"source\": \"";
	char *text = status(rig), *at = text ? strstr(text, "\"discovery\": {") : NULL;
	bool does;

	at = at ? strstr(at, key) : NULL;
	does = at && strncmp(at + strlen(key), source, strlen(source)) == 0;
	free(text);

	return does;
}

/*
 * In a network namespace of its own (apart) the connector says nothing, and perf's records are heard;
 * and the name of the one that counts in the kernel, an abstract socket, is free there: suites run beside
 * each other, and beside a daemon of this machine.
 */
static inline bool start_server(struct live_rig *rig, bool apart)
{
	const char *arguments[] = { rig->spikewatchd, "-c", place(rig, "config"), NULL };
	int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	if (apart && (own < 0 || unshare(CLONE_NEWNET) < 0)) {
		skip_because("a network namespace: %s", strerror(errno));
		close(own);
		return false;
	}
	rig->server = program_start(arguments, rig->directory, -1, 0);
	ck_assert(!apart || setns(own, CLONE_NEWNET) == 0);
	close(own);

	return true;
}

/* It had the scheduler's sums and went over to files: on a machine where switching costs more than it saves. */
static inline bool went_over_to_files(struct live_rig *rig)
{
	return scene_says(rig->server.err, "costs more than it saves");
}

/* Why it does not hear in this way, in its own words. */
static inline bool hears_otherwise(struct live_rig *rig, const char *source)
{
	static const char *const words[] = { "not from the scheduler", "not heard of" };
	char *log = scene_read(rig->server.err), *at = NULL;

	for (size_t i = 0; i < ARRAY_LEN(words) && !at; i++)
		at = log ? strstr(log, words[i]) : NULL;
	skip_because("%s is not to be had here: %.*s", source, at ? (int)strcspn(at, "\n") : 0, at ? at : "");
	free(log);

	return false;
}

/* True: it runs, and hears in this way. */
static inline bool start(struct live_rig *rig, enum way way, const char *targets, const char *rules)
{
	static const char *const sources[] = { "connector", "kernel", "perf", "rescan" };

	if (!rig->able)
		return false;
	if (geteuid() != 0)
		return skip_because("hearing of processes takes root");
	scene_write(
		place(rig, "config"),
		"{%s\"ring\": {\"path\": \"%s/ring\", \"size\": \"8MiB\", \"lock\": false}, \"stacks\": \"off\",\n"
		"\"sampling\": {\"cpu_budget\": \"100%%\", \"interval\": \"10ms\", \"rescan_interval\": \"%s\",\n"
		"\"source\": \"%s\", \"discovery\": \"%s\"}, \"incidents\": {\"directory\": \"%s/incidents\", "
		"\"min_free\": \"0B\",\n"
		"\"before\": \"1s\", \"after\": \"0s\", \"captures\": [\"samples\"]}, \"state_file\": \"%s/state\",\n"
		"\"history\": {\"enabled\": false},\n" /* its files would be open now and then */
		"\"targets\": [%s], \"rules\": [%s]}\n",
		rig->further, rig->directory, rig->scans_often || way == RESCAN ? "100ms" : "1h",
		way == KERNEL ? "kernel" : "files", way == RESCAN ? "rescan" : "auto", rig->directory, rig->directory,
		targets, rules);
	if (!start_server(rig, way == PERF || way == KERNEL))
		return false;
	live_wait_for(rig, scene_says(rig->server.err, "watching "));
	live_wait_for(rig, counted(rig, "scans") > 1); /* before it runs, and when it does */
	ck_assert_int_eq(ring_open(AT_FDCWD, place(rig, "ring"), false, &rig->ring), 0);
	ck_assert_int_eq(ring_cursor_new(rig->ring, RING_OLDEST, &rig->cursor), 0);
	if (hears_by(rig, sources[way]))
		return true;

	return hears_otherwise(rig, sources[way]);
}

/* ---- what is inexact ---- */

/*
 * What sums from files may have too much: of the last child, what its record lacks may have been added
 * before the sampler had counted it, and no further child makes up for it.
 */
#define LIVE_SURPLUS_NS (8 * NS_PER_MS)

/* Whether others wait for the CPUs, or did within the last ten seconds; where the kernel does not say it: no. */
static inline bool live_is_busy(void)
{
	FILE *file = fopen("/proc/pressure/cpu", "re");
	double percent = 0;

	if (!file)
		return false;
	if (fscanf(file, "some avg10=%lf", &percent) != 1)
		percent = 0;
	fclose(file);
	return percent >= 10;
}

/* The same of this much used, and a little for each child where others take the CPUs. */
static inline uint64_t live_surplus_ns(uint64_t used_ns)
{
	return LIVE_SURPLUS_NS + (live_is_busy() ? used_ns / 16 : 0);
}

/* ---- the ring ---- */

static inline struct tally *tally_of(struct live_rig *rig, uint32_t id)
{
	for (size_t i = rig->tally_count; i-- > 0;)
		if (rig->tallies[i].id == id)
			return &rig->tallies[i];

	return NULL;
}

static inline void take(struct live_rig *rig, const struct ring_event *event)
{
	struct tally *tally = event->id ? tally_of(rig, event->id) : NULL;

	if (event->type == RING_EVENT_TARGET && !tally && rig->tally_count < TALLIES_MAX) {
		tally = &rig->tallies[rig->tally_count++];
		*tally = (struct tally){ .id = event->id, .described = 1 };
		snprintf(tally->name, sizeof(tally->name), "%s", event->target.name);
	}
	if (event->type == RING_EVENT_GONE && tally)
		tally->gone++;
	if (event->type != RING_EVENT_SAMPLE || !tally)
		return;
	tally->samples++;
	if (sample_has(event->sample, SAMPLE_CPU_LATE) && event->sample->value[SAMPLE_CPU_LATE] > tally->late_ns)
		tally->late_ns = event->sample->value[SAMPLE_CPU_LATE];
	if (!sample_has(event->sample, SAMPLE_CPU))
		return;
	tally->stepped_back |= event->sample->value[SAMPLE_CPU] < tally->cpu_ns;
	tally->cpu_ns = event->sample->value[SAMPLE_CPU];
}

/* Of the target of this name that came last, as of now; of one that there is none of, nothing. */
static inline struct tally read_on(struct live_rig *rig, const char *name)
{
	struct ring_event event;

	while (ring_cursor_next(rig->cursor, &event) == 0) {
		ck_assert_int_ne(event.type, RING_EVENT_LAPPED);
		take(rig, &event);
	}
	for (size_t i = rig->tally_count; i-- > 0;)
		if (strcmp(rig->tallies[i].name, name) == 0)
			return rig->tallies[i];

	return (struct tally){ 0 };
}

/* ---- processes ---- */

/* The workload under another name, by which entries know it. */
static inline const char *program_called(struct live_rig *rig, const char *name)
{
	static char paths[2][128];
	static unsigned next;
	char *path = paths[next++ % 2];

	snprintf(path, sizeof(paths[0]), "%s/%s", rig->directory, name);
	ck_assert(symlink(rig->workload, path) == 0 || errno == EEXIST);

	return path;
}

/* A name that no other run of this test has at the same time. */
static inline const char *own(const char *name)
{
	static char names[4][32];
	static unsigned next;
	char *made = names[next++ % 4];

	snprintf(made, sizeof(names[0]), "%s%d", name, getpid() % 100000);

	return made;
}

static inline pid_t run(const char *const *arguments)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(arguments[0], (char *const *)(uintptr_t)arguments);
		_exit(126);
	}

	return pid;
}

static inline void await_stop(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
}

static inline void await_end(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
}

static inline uint64_t cpu_of(pid_t pid)
{
	struct timespec at;
	clockid_t clock;

	ck_assert_int_eq(clock_getcpuclockid(pid, &clock), 0);
	ck_assert_int_eq(clock_gettime(clock, &at), 0);

	return (uint64_t)at.tv_sec * NS_PER_S + (uint64_t)at.tv_nsec;
}

#endif
