/*
 * recover.c: reads the ring twice: first to measure what it holds, which the incident's name and
 * description need, then to copy it to samples.tsv.
 *
 * Only the last `before` window is saved, which an incident would have held, and the time since the
 * earliest window of an incident that was not on the disk yet (ring_set_unwritten); of all targets,
 * because which of them mattered is not known. A ring without a sample (no target was found yet)
 * makes no incident.
 *
 * A start may be killed at any step of this. So the ring is removed last, after the incident was sealed
 * and told, and one whose samples are in an incident already is only removed. Drafts of the killed
 * daemon are sealed after its ring was saved, because they name the incident that has their samples.
 *
 * At a start all this is a thread's, because the disk may take minutes: it is waited for some seconds,
 * which is nearly always enough, and sampling begins then. So that the new ring does not take its place,
 * the old one gets another name first (ring.left), which it keeps until it was saved; there may be
 * several, of daemons that were killed before they had done that.
 */
#include "daemon/engine/incident/recover.h"

#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/log.h"
#include "daemon/engine/incident/ring_recorder.h"
#include "lib/base/io.h"
#include "lib/base/units.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/stream/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* An incident of all targets may be open for longer: it is on the disk as far as it had come. */
#define UNWRITTEN_MAX_NS (3600 * NS_PER_S)

/* ---- the first walk: what there is ---- */

struct survey {
	struct recover_report *report;
	uint64_t next_tick; /* the number that is expected */
	uint64_t pages;     /* lost since the last tick */
};

static void add_hole(struct recover_report *report, const struct recover_hole *hole)
{
	struct recover_hole *last = &report->holes[RECOVER_HOLES_MAX - 1];

	if (report->hole_count < RECOVER_HOLES_MAX) {
		report->holes[report->hole_count++] = *hole;
		return;
	}
	last->to = hole->to;
	last->ticks += hole->ticks;
	last->pages += hole->pages;
}

static void survey_tick(struct survey *survey, const struct ring_event *event)
{
	struct recover_report *report = survey->report;
	struct recover_hole hole = { .from = report->to_wall, .to = event->wall, .pages = survey->pages };

	if (report->ticks > 0 && event->tick > survey->next_tick)
		hole.ticks = event->tick - survey->next_tick;
	if (hole.ticks > 0 || hole.pages > 0)
		add_hole(report, &hole);
	survey->pages = 0;
	if (survey->next_tick <= event->tick)
		survey->next_tick = event->tick + 1;
	if (report->ticks++ == 0) {
		report->from = event->time;
		report->from_wall = event->wall;
	}
	/* Several writers' ticks overlap. */
	if (mono_diff(event->time, report->from) < 0) {
		report->from = event->time;
		report->from_wall = event->wall;
	}
	if (mono_diff(event->time, report->to) > 0) {
		report->to = event->time;
		report->to_wall = event->wall;
	}
}

static void survey_event(struct survey *survey, const struct ring_event *event)
{
	struct recover_report *report = survey->report;

	switch (event->type) {
	case RING_EVENT_TICK:
		survey_tick(survey, event);
		break;
	case RING_EVENT_SAMPLE:
		report->samples++;
		break;
	case RING_EVENT_TARGET:
		report->targets++;
		break;
	case RING_EVENT_GONE:
		report->gone++;
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		report->lost_pages += event->lost_pages;
		survey->pages += event->lost_pages;
		break;
	case RING_EVENT_HOLE:
	case RING_EVENT_TICK_END:
		break;
	}
}

/* Up to `until`: a ring that is being written has no end. */
static int survey_ring(const struct ring *ring, mono_t since, mono_t until, struct recover_report *ret)
{
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = NULL;
	struct survey survey = { .report = ret };
	struct ring_event event;
	int r = ring_cursor_new(ring, RING_OLDEST, &cursor);

	if (r < 0)
		return r;

	ring_cursor_seek(cursor, since);
	while ((r = ring_cursor_next(cursor, &event)) == 0) {
		if (event.type == RING_EVENT_TICK && mono_diff(event.time, until) > 0)
			break;
		survey_event(&survey, &event);
	}
	/* After the last tick that could be read. */
	if (survey.pages > 0)
		add_hole(ret, &(struct recover_hole){ .from = ret->to_wall, .pages = survey.pages });

	return r < 0 ? r : 0;
}

/* ---- the second walk: to the disk ---- */

static int close_recorder(struct recorder *recorder, const struct stats *stats, struct recover_report *report)
{
	struct recorder_counts counts;
	int r = recorder_close(recorder, stats, 0, &counts);

	/* A live writer may have overtaken this walk where it had not overtaken the first. */
	report->ticks = counts.ticks;
	report->samples = counts.rows;
	if (counts.coverage.lost_pages > report->lost_pages)
		report->lost_pages = counts.coverage.lost_pages;
	report->sampling = counts.coverage;

	return r;
}

static int write_samples(const struct ring *ring, mono_t since, struct recover_report *report, int dirfd)
{
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = NULL;
	AUTO_CLOSE int fd = openat(dirfd, INCIDENT_SAMPLES_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
	struct recorder_options options = {
		.format = STREAM_SPIKEWATCH, .start = report->from, .start_wall = report->from_wall, .until = report->to
	};
	struct recorder *recorder;
	struct stats stats = { 0 };
	int r;

	if (fd < 0)
		return -errno;

	r = ring_cursor_new(ring, RING_OLDEST, &cursor);
	if (r < 0)
		return r;

	ring_cursor_seek(cursor, since);
	ring_stats(ring, &stats);
	r = recorder_new(cursor, sink_fd(&fd), &options, &recorder);

	return r < 0 ? r : close_recorder(recorder, &stats, report);
}

/* ---- the incident ---- */

static void write_boot_id(const uint8_t id[16], char *ret, size_t cap)
{
	snprintf(ret, cap, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", id[0], id[1], id[2],
		 id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10], id[11], id[12], id[13], id[14], id[15]);
}

static void describe_recovered(const struct ring *ring, const struct recover_report *report, uint64_t before_ns,
			       struct incident *incident)
{
	struct ring_info info;
	struct utsname name;
	struct stats stats;

	ring_info(ring, &info);
	incident_init(incident, SPIKEWATCH_VERSION);
	incident->kind = INCIDENT_RECOVERED;
	incident->rule.severity = report->severity;
	incident->wall = report->to_wall;
	incident->mono = report->to;
	incident->window_from = report->from;
	incident->window_to = report->to;
	incident_text(incident->rule.name, sizeof incident->rule.name, INCIDENT_RECOVERED_RULE);
	incident_text(incident->target.name, sizeof incident->target.name, INCIDENT_EVERYTHING);
	incident->coverage = report->sampling;
	incident->coverage.want_before_ns = before_ns ? before_ns : (uint64_t)mono_diff(report->to, report->from);
	incident->coverage.got_from_ns = mono_diff(report->from, report->to);
	incident->coverage.ticks_got = report->ticks;
	incident->coverage.samples = report->samples;
	incident->coverage.ticks_expected = report->slots;
	incident->coverage.gaps = report->hole_count + report->sampling.holes;
	incident->coverage.lost_pages = report->lost_pages;
	incident->cost.interval_ns = ring_interval_ns(ring);
	incident->cost.idle_ns = info.idle_ns;
	if (ring_stats(ring, &stats) == 0 && stats.total_slots)
		incident->coverage.capture_rate = (double)stats.total_snapshots / (double)stats.total_slots;
	write_boot_id(info.boot_id, incident->boot_id, sizeof incident->boot_id);
	if (uname(&name) == 0) {
		incident_text(incident->hostname, sizeof incident->hostname, name.nodename);
		incident_text(incident->kernel, sizeof incident->kernel, name.release);
	}
}

static int seal_recovered(const struct ring *ring, mono_t since, uint64_t before_ns, struct spool_draft *draft,
			  struct recover_report *report)
{
	struct incident_capture samples = { .name = "samples", .file = INCIDENT_SAMPLES_FILE };
	struct incident incident;
	struct stat st;
	int r = write_samples(ring, since, report, spool_draft_parts(draft).dirfd);

	if (r == 0 && fstatat(spool_draft_parts(draft).dirfd, samples.file, &st, AT_SYMLINK_NOFOLLOW) < 0)
		r = -errno;
	if (r < 0 || report->samples == 0) {
		spool_abort(draft);
		*report->name = '\0';
		return r;
	}
	samples.bytes = (uint64_t)st.st_size;
	describe_recovered(ring, report, before_ns, &incident);
	incident_text(incident.id, sizeof incident.id, report->name);
	incident_add_capture(&incident, &samples);

	return spool_seal(draft, &incident);
}

/* The tick of the last sample; 0: there is none. -errno. */
static int find_last_sample(const struct ring *ring, mono_t until, mono_t *ret)
{
	AUTO(ring_cursor_freep) struct ring_cursor *cursor = NULL;
	struct ring_event event;
	mono_t tick = { 0 }, last = { 0 };
	int r = ring_cursor_new(ring, RING_OLDEST, &cursor);

	while (r == 0 && (r = ring_cursor_next(cursor, &event)) == 0) {
		if (event.type == RING_EVENT_TICK && mono_diff(event.time, until) > 0)
			break;
		if (event.type == RING_EVENT_TICK)
			tick = event.time;
		else if (event.type == RING_EVENT_SAMPLE)
			last = tick;
	}
	if (r < 0)
		return r;
	*ret = last;

	return 0;
}

static int survey(const struct ring *ring, uint64_t before_ns, mono_t *ret_since, struct recover_report *ret)
{
	struct recover_report report = { 0 };
	struct ring_info info;
	mono_t since, last = { 0 };
	int r;

	ring_info(ring, &info);
	since = before_ns ? mono_sub(info.last_tick, before_ns) : (mono_t){ 0 };
	report.interval_ns = ring_interval_ns(ring);
	/* As severe as the worst incident that was open; without any, as one that has just reached its threshold. */
	report.severity = info.unwritten_severity > 1 ? info.unwritten_severity : 1;
	r = survey_ring(ring, since, info.last_tick, &report);
	/* What sleeps has a sample now and then: the last one is how it was. */
	if (r == 0 && report.samples == 0)
		r = find_last_sample(ring, info.last_tick, &last);
	if (r == 0 && last.ns > 0 && mono_diff(last, since) < 0) {
		report = (struct recover_report){ .interval_ns = report.interval_ns, .severity = report.severity };
		since = last;
		r = survey_ring(ring, since, info.last_tick, &report);
	}
	if (r < 0)
		return r;
	if (report.ticks > 0 && report.interval_ns)
		report.slots = ((uint64_t)mono_diff(report.to, report.from) / report.interval_ns + 1) *
			       (info.writers > 1 ? info.writers : 1);
	*ret = report;
	*ret_since = since;

	return 0;
}

/* Without a sample there is no incident, and report->name is empty. */
static int save_surveyed(const struct ring *ring, mono_t since, uint64_t before_ns, struct spool *spool,
			 struct recover_report *report)
{
	struct spool_draft *draft;
	char stem[INCIDENT_NAME_MAX + 1];
	int r;

	if (report->samples == 0)
		return 0;
	incident_stem(report->to_wall, INCIDENT_EVERYTHING, INCIDENT_RECOVERED_RULE, stem, sizeof stem);
	r = spool_begin(spool, stem, &draft);
	if (r < 0)
		return r;
	incident_text(report->name, sizeof report->name, spool_draft_parts(draft).name);

	return seal_recovered(ring, since, before_ns, draft, report);
}

int recover_save(const struct ring *ring, uint64_t before_ns, struct spool *spool, struct recover_report *ret)
{
	struct recover_report report;
	mono_t since;
	int r = survey(ring, before_ns, &since, &report);

	if (r == 0)
		r = save_surveyed(ring, since, before_ns, spool, &report);
	if (r == 0)
		*ret = report;

	return r;
}

/* ---- the daemon's start ---- */

static void on_removed(void *ctx, const struct retention_entry *entry, enum retention_reason why)
{
	struct log_about about = { .message = MESSAGE_INCIDENT_REMOVED, .incident = entry->name };

	(void)ctx;
	log_about(LOG_INFO, &about, "removed incident %s (severity %.2f): limit of %s", entry->name, entry->severity,
		  retention_reason_name(why));
}

static void set_ring_aside(const char *path, int error)
{
	char aside[4096];

	snprintf(aside, sizeof aside, "%s.damaged", path);
	if (rename(path, aside) == 0)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_INCIDENT_FAILED, .error = error },
			  "the old ring cannot be read (%s): it is now %s", strerror(-error), aside);
}

/* What is saved: the last `before`, and the windows of incidents that were not written, as far as they are there. */
static uint64_t wanted_ns(const struct ring_info *info, uint64_t before_ns)
{
	int64_t unwritten_ns = mono_diff(info->last_tick, info->unwritten_from);

	if (before_ns == 0)
		before_ns = 1;
	if (info->unwritten_from.ns == 0 || unwritten_ns <= 0 || (uint64_t)unwritten_ns > UNWRITTEN_MAX_NS)
		return before_ns;
	return (uint64_t)unwritten_ns > before_ns ? (uint64_t)unwritten_ns : before_ns;
}

/* A daemon that is killed again and again before it seals an incident must not fill the disk. */
static void enforce_limits(struct spool *spool)
{
	int r = spool_enforce(spool, (struct spool_now){ 0 }, on_removed, NULL);

	if (r < 0)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_DISK_SHORT, .error = r },
			  "cannot keep the limits of the incident directory: %s", strerror(-r));
}

/* What becomes of a draft of a daemon that was killed. For spool_wait. */
static void log_draft(void *ctx, const struct spool_swept *swept)
{
	struct log_about about = { .incident = swept->name, .error = swept->error };

	(void)ctx;
	if (swept->error < 0) {
		about.message = MESSAGE_INCIDENT_FAILED;
		log_about(LOG_WARNING, &about,
			  "incident %s of a daemon that was killed could not be sealed, the next start tries it again: "
			  "%s",
			  swept->name, strerror(-swept->error));
	} else if (swept->adopted) {
		log_about(LOG_NOTICE, &about,
			  "incident %s of a daemon that was killed was sealed as far as it was written (severity %.2f)",
			  swept->name, swept->severity);
	} else {
		log_about(LOG_NOTICE, &about,
			  "incident %s of a daemon that was killed held nothing yet, or was being removed, and was "
			  "removed",
			  swept->name);
	}
}

/* Whether a start that was killed before it had removed the ring has saved it: in report->name. */
static bool was_saved(const struct ring *ring, struct spool *spool, struct recover_report *report)
{
	AUTO_FREE struct incident *like = calloc(1, sizeof *like);
	struct ring_info info;

	if (!like || report->samples == 0)
		return false;
	ring_info(ring, &info);
	write_boot_id(info.boot_id, like->boot_id, sizeof like->boot_id);
	like->window_from = report->from;
	like->window_to = report->to;

	return spool_find_recovered(spool, like, log_draft, NULL, report->name);
}

static void log_recovered(const struct recover_report *report)
{
	struct log_about about = { .message = MESSAGE_RING_RECOVERED, .incident = report->name };

	if (*report->name)
		log_about(LOG_NOTICE, &about, "the last daemon was killed: what its ring held is incident %s",
			  report->name);
	else
		log_line(LOG_NOTICE,
			 "the last daemon was killed: its ring held no sample (ticks: %ju, pages that are damaged: "
			 "%ju), and there is no incident of it",
			 (uintmax_t)report->ticks, (uintmax_t)report->lost_pages);
}

/*
 * If there is a ring whose writer did not end it, seals of it what is wanted, and removes it. An error
 * stops nothing: a ring that cannot be read is renamed to its name with ".damaged".
 */
static void recover_ring(const char *path, const struct config *config, struct spool *spool)
{
	AUTO(ring_freep) struct ring *ring = NULL;
	struct recover_report report;
	struct ring_info info;
	uint64_t before_ns;
	mono_t since;
	int r = ring_open(AT_FDCWD, path, false, &ring);

	if (r == -ENOENT)
		return;
	if (r < 0) {
		set_ring_aside(path, r);
		return;
	}

	ring_info(ring, &info);
	if (info.clean)
		return;

	before_ns = wanted_ns(&info, config->incidents.before_ns);
	r = survey(ring, before_ns, &since, &report);
	if (r == 0 && !was_saved(ring, spool, &report))
		r = save_surveyed(ring, since, before_ns, spool, &report);
	if (r < 0) {
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_INCIDENT_FAILED, .error = r },
			  "the last daemon was killed, and what its ring held could not be saved: %s", strerror(-r));
		return;
	}

	log_recovered(&report);
	unlink(path); /* or a daemon that fails later in its start would save it at each start */
	enforce_limits(spool);
}

/* So long a start waits for what a killed daemon has left to be sealed. */
#define PATIENCE_NS (5 * NS_PER_S)

/* How long what it has started is waited for: that ends within a second. */
#define ORPHANS_NS (2 * NS_PER_S)

#define LEFT_MAX 2 /* rings that were not saved yet */

struct recovery {
	char ring[PATH_MAX], incidents[PATH_MAX];
	struct config config; /* its limits of incidents alone */
};

static void name_left(const char *ring, unsigned i, char ret[static PATH_MAX])
{
	if (snprintf(ret, PATH_MAX, "%s.left%u", ring, i) >= PATH_MAX)
		*ret = '\0';
}

static void *run_recovery(void *argument)
{
	AUTO_FREE struct recovery *recovery = argument;
	struct retention_limits limits = retention_limits_of(&recovery->config);
	AUTO(spool_freep) struct spool *spool = NULL;
	const struct spool_swept *swept;
	char path[PATH_MAX];

	prctl(PR_SET_NAME, "recovery");
	if (spool_open(recovery->incidents, &limits, &spool, NULL) < 0)
		return NULL; /* another one was opened just now */
	for (unsigned i = 1; i <= LEFT_MAX; i++) {
		name_left(recovery->ring, i, path);
		recover_ring(path, &recovery->config, spool);
	}
	spool_wait(spool, ORPHANS_NS, log_draft, NULL);
	if (spool_swept(spool, &swept) > 0)
		enforce_limits(spool);

	return NULL;
}

/* A ring that was not ended gets the first such name that is free, or the last one. */
static void leave_ring_aside(const char *ring)
{
	char path[PATH_MAX] = "";

	for (unsigned i = 1; i <= LEFT_MAX && (i == 1 || access(path, F_OK) == 0); i++)
		name_left(ring, i, path);
	if (access(path, F_OK) == 0)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_INCIDENT_FAILED, .error = -EEXIST },
			  "the ring %s of a daemon that was killed was never saved, and is given up for that of the "
			  "last one",
			  path);
	if (rename(ring, path) < 0 && errno != ENOENT)
		log_about(LOG_WARNING, &(struct log_about){ .message = MESSAGE_INCIDENT_FAILED, .error = errno },
			  "the last daemon was killed, and what its ring held could not be saved: %s", strerror(errno));
}

static void look_at_ring(const char *path)
{
	AUTO(ring_freep) struct ring *ring = NULL;
	struct ring_info info;
	int r = ring_open(AT_FDCWD, path, false, &ring);

	if (r < 0 && r != -ENOENT)
		set_ring_aside(path, r);
	if (r < 0)
		return;
	ring_info(ring, &info);
	if (!info.clean)
		leave_ring_aside(path);
}

void recover_begin(const char *ring, const char *incidents, const struct config *config)
{
	struct recovery *recovery = calloc(1, sizeof *recovery);
	pthread_t thread;

	if (!recovery)
		return;
	snprintf(recovery->ring, sizeof recovery->ring, "%s", ring);
	snprintf(recovery->incidents, sizeof recovery->incidents, "%s", incidents);
	recovery->config.incidents = config->incidents;
	look_at_ring(ring);
	if (thread_start(&thread, run_recovery, recovery) < 0) {
		run_recovery(recovery);
		return;
	}
	if (thread_join_within(thread, PATIENCE_NS))
		return;
	pthread_detach(thread);
	log_line(LOG_WARNING,
		 "what a killed daemon has left is not saved after %g s, mostly for a slow disk: sampling begins "
		 "meanwhile",
		 (double)PATIENCE_NS / NS_PER_S);
}
