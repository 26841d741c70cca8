/*
 * sealing.c: fitting an incident onto the disk that there is.
 *
 * Captures are written when the rule fires, samples when the window is over: on a full disk the order of time is the wrong one. So room for
 * the samples is made by removing, in this order: old incidents (as far as retention wants that anyway), the captures from the largest
 * down; and when incident.json itself does not fit, the samples. Where removing all captures would not be enough for the samples, they
 * stay and the samples do not.
 *
 * What does not depend on the room that is left (a limit of the size of a file, an I/O error) costs what it hits, and nothing else.
 */
#include "sealing.h"

#include "capture.h"
#include "evidence.h"
#include "scope.h"
#include "strays.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

/* incident.json, MANIFEST, and the blocks that directories take. */
#define REST_BYTES 16384u

/* Room is given out in blocks of so many bytes. */
#define BLOCK_BYTES 4096u

static bool is_full(int error)
{
	return error == -ENOSPC || error == -EDQUOT;
}

/* ---- beginning ---- */

static struct incident_capture samples_record(void)
{
	struct incident_capture record = { .status = INCIDENT_CAPTURE_OK };

	incident_text(record.name, sizeof record.name, config_capture_name(CONFIG_CAPTURE_SAMPLES));
	incident_text(record.file, sizeof record.file, INCIDENT_SAMPLES_FILE);

	return record;
}

static void fail_record(struct incident_capture *record, const char *why)
{
	record->status = INCIDENT_CAPTURE_FAILED;
	record->file[0] = '\0';
	record->bytes = 0;
	incident_text(record->why, sizeof record->why, why);
}

static bool wants_samples(const struct collector_incident *incident)
{
	return incident->settings.captures & CONFIG_CAPTURE_SAMPLES;
}

static struct panorama_options panorama_of(const struct sealing *sealing, const struct collector_incident *incident)
{
	return (struct panorama_options){
		.ring = session_ring(sealing->session),
		.fired = incident->fired,
		.wall = incident->wall,
		.before_ns = incident->settings.before_ns,
		.after_ns = incident->settings.after_ns,
		.interval_ns = incident->settings.interval_ns,
		.max_bytes = incident->settings.max_bytes,
	};
}

static void open_panorama(const struct sealing *sealing, struct collector_incident *incident)
{
	struct panorama_options options = panorama_of(sealing, incident);

	incident->panorama_error = panorama_open(&options, spool_draft_dirfd(incident->draft), &incident->panorama);
}

void sealing_begin(const struct sealing *sealing, struct collector_incident *incident)
{
	char stem[INCIDENT_NAME_MAX + 1];

	incident_stem(incident->wall, incident->target.name, incident->info.rule.name, stem, sizeof stem);
	incident->error = spool_begin(sealing->spool, stem, &incident->draft);
	if (incident->error < 0)
		incident->draft = NULL;
	else if (!incident->slice && wants_samples(incident))
		open_panorama(sealing, incident);
}

/* The draft is gone, or never was: what was captured is lost, but samples may be written all the same. */
static void begin_again(const struct sealing *sealing, struct collector_incident *incident)
{
	int why = incident->draft ? -ENOENT : incident->error;

	panorama_abort(TAKE(incident->panorama));
	spool_abort(TAKE(incident->draft));
	incident->evidence.capture_count = 0;
	capture_fail_all(evidence_captures(incident), why ? why : -ENOMEM, &incident->evidence);
	if (incident->plan)
		hookplan_refuse(incident->plan, strerrordesc_np(why ? -why : ENOMEM), &incident->evidence);
	sealing_begin(sealing, incident);
}

/* ---- making room ---- */

static uint64_t free_bytes(int dirfd)
{
	struct statvfs fs;

	if (fstatvfs(dirfd, &fs) < 0)
		return 0;

	return (uint64_t)(geteuid() == 0 ? fs.f_bfree : fs.f_bavail) * fs.f_frsize;
}

static uint64_t captured_bytes(const struct incident *info)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < info->capture_count; i++)
		bytes += (info->captures[i].bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;

	return bytes;
}

/* Removes the largest file but the samples, and says so in its record. False: there is none. */
static bool drop_largest(struct collector_incident *incident, int error)
{
	struct incident_capture *largest = NULL;
	char why[96];

	for (size_t i = 0; i < incident->info.capture_count; i++) {
		struct incident_capture *capture = &incident->info.captures[i];

		if (*capture->file && strcmp(capture->file, INCIDENT_SAMPLES_FILE) != 0 &&
		    (!largest || capture->bytes > largest->bytes))
			largest = capture;
	}
	if (!largest || unlinkat(spool_draft_dirfd(incident->draft), largest->file, 0) < 0)
		return false;

	snprintf(why, sizeof why, "removed to make room for the rest: %s", strerrordesc_np(-error));
	fail_record(largest, why);

	return true;
}

/* The samples are what comes last. False: they are not there. */
static bool drop_samples(struct collector_incident *incident, int error)
{
	for (size_t i = 0; i < incident->info.capture_count; i++) {
		struct incident_capture *capture = &incident->info.captures[i];

		if (strcmp(capture->file, INCIDENT_SAMPLES_FILE) != 0)
			continue;
		if (unlinkat(spool_draft_dirfd(incident->draft), capture->file, 0) < 0)
			return false;
		fail_record(capture, strerrordesc_np(-error));
		return true;
	}

	return false;
}

static void enforce(const struct sealing *sealing)
{
	spool_enforce(sealing->spool, (wall_t){ 0 }, sealing->removed, sealing->ctx); /* by size: age is no hurry */
}

/* ---- samples ---- */

static struct capture_context context_of(const struct sealing *sealing, const struct collector_incident *incident)
{
	return (struct capture_context){
		.procfd = session_procfd(sealing->session),
		.clock = sealing->clock,
		.mounts = session_mounts(sealing->session),
		.target = &incident->target,
		.limits = &incident->info.limits,
		.slice = incident->slice,
		.slice_start = { incident->wall.ns -
				 (uint64_t)mono_diff(incident->fired, slice_start(incident->slice)) },
	};
}

/* Ends the file that was begun, or says why it was given up; the next time it begins anew, with what the ring still holds. */
static int write_panorama(const struct sealing *sealing, struct collector_incident *incident,
			  struct incident_capture *ret)
{
	int r = incident->panorama_error;

	*ret = samples_record();
	incident->panorama_error = 0;
	if (r == 0 && !incident->panorama) {
		open_panorama(sealing, incident);
		r = incident->panorama_error;
		incident->panorama_error = 0;
	}
	if (r == 0)
		r = panorama_close(TAKE(incident->panorama), &incident->info.coverage, &ret->bytes);
	if (r < 0)
		fail_record(ret, strerrordesc_np(-r));

	return r;
}

static int write_samples(const struct sealing *sealing, struct collector_incident *incident,
			 struct incident_capture *ret)
{
	struct capture_context context;

	if (!incident->slice)
		return write_panorama(sealing, incident, ret);

	context = context_of(sealing, incident);

	return capture_run(&context, CONFIG_CAPTURE_SAMPLES, spool_draft_dirfd(incident->draft), ret);
}

/* Whether removing all captures would do: how much the samples need can be known without writing them. */
static bool would_fit(const struct sealing *sealing, const struct collector_incident *incident)
{
	uint64_t needed;
	int r;

	if (incident->slice) {
		struct capture_context context = context_of(sealing, incident);

		r = capture_samples_bytes(&context, &needed);
	} else {
		struct panorama_options options = panorama_of(sealing, incident);

		r = panorama_bytes(&options, &needed);
	}

	return r < 0 ||
	       needed + REST_BYTES <= free_bytes(spool_draft_dirfd(incident->draft)) + captured_bytes(&incident->info);
}

static void add_samples(const struct sealing *sealing, struct collector_incident *incident)
{
	struct incident_capture record;
	int r = write_samples(sealing, incident, &record);

	if (is_full(r)) {
		enforce(sealing);
		r = write_samples(sealing, incident, &record);
	}
	if (is_full(r) && would_fit(sealing, incident)) {
		while (is_full(r) && drop_largest(incident, r))
			r = write_samples(sealing, incident, &record);
	}
	incident_add_capture(&incident->info, &record);
}

/* ---- what commands have left ---- */

/* Before the samples, so that on a full disk it makes room for them like other captures. */
static int settle_strays(const struct sealing *sealing, struct collector_incident *incident)
{
	uint64_t most = incident->settings.max_incident_bytes, taken = 0;
	int r;

	if (!incident->plan)
		return 0;

	if (wants_samples(incident)) {
		struct capture_context context = context_of(sealing, incident);

		r = capture_samples_bytes(&context, &taken);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < incident->info.capture_count; i++)
		taken += incident->info.captures[i].bytes;

	return strays_settle(spool_draft_dirfd(incident->draft), taken < most ? most - taken : 0, &incident->info);
}

/* ---- the end ---- */

static void describe_slice(struct collector_incident *incident)
{
	struct incident *info = &incident->info;
	uint64_t grain = info->rule.window_ns > 100 * NS_PER_MS ? info->rule.window_ns : 100 * NS_PER_MS;

	slice_coverage(incident->slice, incident->settings.interval_ns, &info->coverage);
	slice_peaks(incident->slice, grain, &info->peaks);
	if (info->peaks.has_cpu && info->limits.cpu && info->limits.cpu != UINT64_MAX)
		info->peak_cpu_percent = 100 * info->peaks.cpu_cores * 1e9 / (double)info->limits.cpu;
}

static int publish(struct collector_incident *incident)
{
	int r;

	do
		r = spool_write(incident->draft, &incident->info);
	while (is_full(r) && (drop_largest(incident, r) || drop_samples(incident, r)));
	if (r < 0) {
		spool_abort(TAKE(incident->draft));
		return r;
	}

	return spool_publish(TAKE(incident->draft));
}

int sealing_finish(const struct sealing *sealing, struct collector_incident *incident)
{
	int r;

	if (!incident->draft || spool_lost(incident->draft))
		begin_again(sealing, incident);
	if (!incident->draft)
		return incident->error;

	incident_text(incident->info.id, sizeof incident->info.id, spool_draft_name(incident->draft));
	for (size_t i = 0; i < incident->evidence.capture_count; i++)
		incident_add_capture(&incident->info, &incident->evidence.captures[i]);
	if (incident->slice)
		describe_slice(incident);
	r = settle_strays(sealing, incident);
	if (r < 0) {
		spool_abort(TAKE(incident->draft));
		return r;
	}
	if (wants_samples(incident))
		add_samples(sealing, incident);

	return publish(incident);
}
