/*
 * recover.c: spikewatch recover: does what a daemon does at its start with the ring of one that was
 * killed (daemon/engine/incident/recover.h), for any ring. The lock beside the ring tells whether
 * its daemon runs, and is held until the incident is sealed.
 */
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/story.h"
#include "daemon/engine/incident/recover.h"
#include "daemon/engine/incident/spool.h"
#include "lib/base/base.h"
#include "lib/base/json.h"
#include "lib/base/units.h"
#include "lib/ring/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>

static const char command[] = "spikewatch recover";

struct request {
	const char *ring;
	const char *directory; /* of -d */
	uint64_t before_ns;
	bool live, remove, json;
};

/* The result. */
struct outcome {
	struct recover_report report;
	struct ring_damage damage;
	bool clean;     /* the ring's daemon stopped in order */
	size_t adopted; /* unfinished incidents that were sealed on the way */
	char directory[INCIDENT_LOAD_PATH_MAX];
};

/* Prints an error. Returns code. */
static int refuse(const char *what, const char *why, int code)
{
	output_complain(command, what, why);
	return code;
}

/*
 * Keeps a daemon away. Without a lock file there was none, or this is a copy of its ring. 0 and
 * *ret, perhaps -1; else the code to exit with.
 */
static int take_lock(const char *ring, int *ret)
{
	char path[INCIDENT_LOAD_PATH_MAX];
	AUTO_CLOSE int fd = -1;
	int len = snprintf(path, sizeof(path), "%s.lock", ring);

	if (len < 0 || (size_t)len >= sizeof(path))
		return refuse(ring, strerror(ENAMETOOLONG), EXIT_TROUBLE);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 && errno == EACCES)
		return refuse(
			ring,
			"only root and the user of its daemon may tell whether that runs; --live recovers what the "
			"ring holds now",
			EXIT_TROUBLE);
	if (fd < 0 && errno != ENOENT && errno != ENOTDIR)
		return refuse(path, strerror(errno), EXIT_TROUBLE);
	if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0)
		return refuse(ring,
			      "a spikewatchd is writing it; --live recovers what it holds now, spikewatch trigger asks "
			      "for an incident",
			      EXIT_TROUBLE);
	*ret = TAKE_FD(fd);
	return 0;
}

static int open_ring(const struct request *request, struct ring **ret, struct ring_damage *ret_damage)
{
	int rc;

	*ret_damage = (struct ring_damage){ 0 };
	if (request->live)
		rc = ring_open(AT_FDCWD, request->ring, false, ret);
	else
		rc = ring_open_damaged(request->ring, ret, ret_damage);
	if (rc == -EBADMSG)
		return refuse(request->ring, "not a ring, one of another version, or one without its header",
			      EXIT_USAGE);
	return rc < 0 ? refuse(request->ring, strerror(-rc), EXIT_TROUBLE) : 0;
}

/* ---- the report ---- */

static void print_holes(const struct recover_report *report)
{
	char text[80];

	for (size_t i = 0; i < report->hole_count; i++) {
		const struct recover_hole *hole = &report->holes[i];

		printf("  ");
		if (hole->ticks)
			printf("%llu tick%s, ", (unsigned long long)hole->ticks, hole->ticks == 1 ? "" : "s");
		printf("%llu page%s", (unsigned long long)hole->pages, hole->pages == 1 ? "" : "s");
		if (hole->from.ns)
			printf(" after %s", story_time(hole->from, true, text, sizeof(text)));
		if (hole->to.ns)
			printf(" before %s", story_time(hole->to, true, text, sizeof(text)));
		putchar('\n');
	}
}

static void print_losses(const struct outcome *outcome)
{
	const struct recover_report *report = &outcome->report;
	const struct ring_damage *damage = &outcome->damage;
	char size[UNITS_TEXT_MAX];

	if (report->hole_count == 0 && report->lost_pages == 0 && damage->missing_bytes == 0 &&
	    damage->unreadable_bytes == 0) {
		printf("Nothing of what it held was lost.\n");
		return;
	}
	printf("Lost:\n");
	if (damage->missing_bytes)
		printf("  the file is too short by %s\n",
		       units_format_bytes(size, sizeof(size), damage->missing_bytes));
	if (damage->unreadable_bytes)
		printf("  %s of it cannot be read\n", units_format_bytes(size, sizeof(size), damage->unreadable_bytes));
	print_holes(report);
}

static void print_outcome(const struct request *request, const struct outcome *outcome)
{
	const struct recover_report *report = &outcome->report;
	char text[80], span[UNITS_TEXT_MAX], holes[192];

	printf("%llu ticks of %s, the last one at %s:\n%llu samples of %llu target%s, %llu of which had ended.\n",
	       (unsigned long long)report->ticks,
	       units_format_duration(span, sizeof(span), (uint64_t)mono_diff(report->to, report->from)),
	       story_time(report->to_wall, true, text, sizeof(text)), (unsigned long long)report->samples,
	       (unsigned long long)report->targets, report->targets == 1 ? "" : "s", (unsigned long long)report->gone);
	if (request->live)
		printf("The ring is still being written.\n");
	else
		printf("%s\n", outcome->clean ? "Its daemon stopped in order."
					      : "Its daemon was killed, or its machine went down.");
	print_losses(outcome);
	if (story_holes(&report->sampling, STORY_HOLE_NS, holes, sizeof(holes)))
		printf("Note: %s.\n", holes);
	if (outcome->adopted)
		printf("%zu incident%s that was being written then %s sealed as far as it had come.\n",
		       outcome->adopted, outcome->adopted == 1 ? "" : "s", outcome->adopted == 1 ? "was" : "were");
	output_escaped(stdout, outcome->directory);
	printf("/%s\n", report->name);
}

static void put_holes(struct json_writer *json, const struct recover_report *report)
{
	json_member_array(json, "holes");
	for (size_t i = 0; i < report->hole_count; i++) {
		json_begin_object(json);
		json_member_u64(json, "after_ns", report->holes[i].from.ns);
		json_member_u64(json, "before_ns", report->holes[i].to.ns);
		json_member_u64(json, "ticks", report->holes[i].ticks);
		json_member_u64(json, "pages", report->holes[i].pages);
		json_end_object(json);
	}
	json_end_array(json);
}

static void put_outcome(struct json_writer *json, const struct outcome *outcome)
{
	const struct recover_report *report = &outcome->report;

	json_begin_object(json);
	json_member_text(json, "id", report->name);
	json_member_text(json, "directory", outcome->directory);
	json_member_bool(json, "clean", outcome->clean);
	json_member_u64(json, "from_ns", report->from_wall.ns);
	json_member_u64(json, "to_ns", report->to_wall.ns);
	json_member_u64(json, "interval_ns", report->interval_ns);
	json_member_u64(json, "ticks", report->ticks);
	json_member_u64(json, "slots", report->slots);
	json_member_u64(json, "samples", report->samples);
	json_member_u64(json, "targets", report->targets);
	json_member_u64(json, "targets_gone", report->gone);
	json_member_u64(json, "lost_pages", report->lost_pages);
	json_member_u64(json, "missing_bytes", outcome->damage.missing_bytes);
	json_member_u64(json, "unreadable_bytes", outcome->damage.unreadable_bytes);
	put_holes(json, report);
	json_member_u64(json, "sampling_holes", report->sampling.holes);
	json_member_u64(json, "missed_slots", report->sampling.missed_slots);
	json_member_u64(json, "unsampled_ns", report->sampling.unsampled_ns);
	json_member_u64(json, "longest_hole_ns", report->sampling.longest_hole_ns);
	json_member_u64(json, "suspends", report->sampling.suspends);
	json_member_u64(json, "suspended_ns", report->sampling.suspended_ns);
	json_member_u64(json, "adopted", outcome->adopted);
	json_end_object(json);
}

/* 0, or the code to exit with. */
static int save_incident(const struct request *request, const struct ring *ring, struct outcome *outcome)
{
	const struct retention_limits limits = { 0 };
	AUTO(spool_freep) struct spool *spool = NULL;
	const struct spool_swept *swept;
	size_t count;
	int rc = incident_load_directory(request->directory, outcome->directory, sizeof(outcome->directory));

	if (rc < 0)
		return refuse("the directory of incidents", strerror(-rc), EXIT_TROUBLE);
	rc = spool_open(outcome->directory, &limits, &spool, NULL);
	if (rc < 0)
		return refuse(outcome->directory, strerror(-rc), EXIT_TROUBLE);
	rc = recover_save(ring, request->before_ns, spool, &outcome->report);
	spool_wait(spool, 0, NULL, NULL); /* behind it: drafts name the incident that has their samples */
	outcome->adopted = 0;
	count = spool_swept(spool, &swept);
	for (size_t i = 0; i < count && i < SPOOL_SWEPT_MAX; i++)
		outcome->adopted += swept[i].adopted;
	if (rc < 0)
		return refuse(outcome->directory, strerror(-rc), EXIT_TROUBLE);
	if (outcome->report.name[0] == '\0')
		return refuse(request->ring, "there is no sample in it that could be read: nothing was saved",
			      EXIT_TROUBLE);
	return 0;
}

static int report(const struct request *request, const struct outcome *outcome)
{
	AUTO(json_writer_closep) struct json_writer *json = NULL;

	if (!request->json) {
		print_outcome(request, outcome);
		return EXIT_OK;
	}
	if (output_json_new(&json) < 0)
		return output_no_memory();
	put_outcome(json, outcome);
	return EXIT_OK;
}

static int run(const struct request *request)
{
	AUTO(ring_freep) struct ring *ring = NULL;
	AUTO_FREE struct outcome *outcome = calloc(1, sizeof(*outcome));
	AUTO_CLOSE int lock = -1;
	struct ring_info info;
	int code = 0;

	if (!outcome)
		return output_no_memory();
	if (!request->live)
		code = take_lock(request->ring, &lock);
	if (code == 0)
		code = open_ring(request, &ring, &outcome->damage);
	if (code != 0)
		return code;
	ring_info(ring, &info);
	outcome->clean = info.clean;
	code = save_incident(request, ring, outcome);
	if (code != 0)
		return code;
	if (request->remove && unlink(request->ring) < 0)
		code = refuse(request->ring, strerror(errno), EXIT_TROUBLE);
	return code ? code : report(request, outcome);
}

int recover_command(int argc, char **argv)
{
	struct request request = { 0 };
	const struct option_spec options[] = {
		{ 'b', "before", OPTION_DURATION, "TIME", "only the last part, of this length (all of it)",
		  &request.before_ns },
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents go; see spikewatch list --help",
		  &request.directory },
		{ 0, "live", OPTION_FLAG, NULL, "of a ring whose daemon runs: what it holds now", &request.live },
		{ 0, "remove", OPTION_FLAG, NULL, "remove the ring when it is saved, or the next daemon saves it too",
		  &request.remove },
		{ 0, "json", OPTION_FLAG, NULL, "what was saved and what was lost as JSON", &request.json },
	};
	const struct options_usage usage = {
		.command = command,
		.operands = "RING",
		.summary = "Makes an incident of what a ring holds whose daemon was killed.",
		.description =
			"The daemon does the same at its start, with the last of its own ring. RING may be a copy,\n"
			"cut off or damaged in part: what can be read is saved, what was lost is named.",
		.example = "spikewatch recover /mnt/crashed/run/spikewatch/ring -d ./incidents",
		.exits = "0 saved, 1 nothing to save or it could not be done, 2 wrong usage, or no ring",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 1,
	};
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	if (request.live && request.remove)
		return refuse("--remove", "the ring of a daemon that runs is not removed", EXIT_USAGE);
	request.ring = argv[first];
	return run(&request);
}
