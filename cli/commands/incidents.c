/*
 * incidents.c: spikewatch list, show, verify and prune: the commands on directories of incidents.
 *
 * list reads and prints one incident after the other, so that memory does not grow with their
 * number; therefore columns have fixed widths. show loads everything before it prints the first
 * line; what is missing is left out and named. verify collects its findings, so that the verdict
 * comes first. prune is the daemon's retention (spool.h); a dry run does not open a spool, because
 * that would seal or remove what dead writers have left.
 */
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/base/plot.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/story.h"
#include "cli/incident/view.h"
#include "daemon/engine/incident/spool.h"
#include "lib/base/base.h"
#include "lib/base/json.h"
#include "lib/base/units.h"
#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"
#include "lib/incident/sample_window.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"
#include "lib/stream/sample_stream.h"
#include "lib/stream/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int cannot_use(const char *command, const char *directory, int error)
{
	output_complain(command, directory, strerror(-error));
	return EXIT_TROUBLE;
}

/* ---- filters of list ---- */

/* Which incidents are listed. {0} lets all pass. */
struct incident_filter {
	wall_t since, until; /* [since, until); 0: no such bound. Of the firing, to the millisecond */
	const char *target;  /* wildcards (fnmatch(3)); of its name, or of its entry in the configuration */
	const char *rule;    /* wildcards; of the rule, or "manual", "recovered" */
	size_t limit;        /* the newest so many; 0: no limit */
};

/* By what the name alone tells; if it does not pass, there is no need to read the incident. */
static bool incident_filter_name(const struct incident_filter *filter, const char *name)
{
	wall_t wall = incident_name_wall(name);
	uint64_t until_ns = filter->until.ns;

	/* Names are cut to milliseconds: an incident of since's own millisecond may be younger. */
	if (filter->since.ns && wall.ns / NS_PER_MS < filter->since.ns / NS_PER_MS)
		return false;
	return until_ns == 0 || wall.ns < until_ns;
}

/* By the rest. An incident that cannot be read passes if target and rule are not asked for. */
static bool incident_filter_content(const struct incident_filter *filter, const struct incident *incident)
{
	const char *rule = incident->rule.name[0] ? incident->rule.name : incident_kind_name(incident->kind);

	if (filter->target && fnmatch(filter->target, incident->target.name, 0) != 0 &&
	    (incident->target.entry[0] == '\0' || fnmatch(filter->target, incident->target.entry, 0) != 0))
		return false;
	return !filter->rule || fnmatch(filter->rule, rule, 0) == 0;
}

static bool filter_passes(const struct incident_filter *filter, int dirfd, const char *name)
{
	AUTO_CLOSE int fd = -1;
	struct incident incident;

	if (!incident_filter_name(filter, name))
		return false;
	if (!filter->target && !filter->rule)
		return true;
	fd = incident_load_open(dirfd, name);
	return output_incomplete(name, fd) >= 0 && output_incomplete(name, incident_json_read(fd, &incident)) == 0 &&
	       incident_filter_content(filter, &incident);
}

/*
 * Keeps the names that pass. Incidents are read only if target or rule is asked for, the newest
 * first and no more than limit needs. Those that are gone meanwhile do not pass.
 */
static void incident_filter_apply(const struct incident_filter *filter, int dirfd, struct incident_load_names *names)
{
	size_t at = names->count, wanted = filter->limit ? filter->limit : names->count;

	for (size_t i = names->count; i > 0 && names->count - at < wanted; i--) {
		if (!filter_passes(filter, dirfd, names->name[i - 1]))
			continue;
		at--;
		if (at != i - 1)
			memcpy(names->name[at], names->name[i - 1], sizeof(names->name[at]));
	}
	if (names->count > at && at > 0)
		memmove(names->name[0], names->name[at], (names->count - at) * sizeof(names->name[0]));
	names->count -= at;
}

/* ---- list ---- */

/* With an id of usual length. Narrower terminals get only the columns that the id does not have. */
#define FULL_WIDTH 140

static void pad(size_t printed, size_t width)
{
	printf("%*s", printed < width ? (int)(width - printed) + 2 : 2, "");
}

static const char *value_text(const struct incident *incident, char *buf, size_t cap)
{
	if (incident->kind == INCIDENT_STORM) {
		snprintf(buf, cap, "%ju firings", (uintmax_t)incident->merged_total);
		return buf;
	}
	return incident->kind == INCIDENT_MANUAL ? "asked for by hand" : story_comparison(&incident->rule, buf, cap);
}

static const char *time_text(const struct incident *incident, const struct incident_load_glance *glance, char *buf,
			     size_t cap)
{
	return glance->readable ? story_time(incident->wall, false, buf, cap) : "?";
}

static void print_full(const struct incident *incident, const struct incident_load_glance *glance)
{
	char text[160];
	const char *target = incident->target.name[0] ? incident->target.name : "?";
	const char *rule = incident->rule.name[0] ? incident->rule.name : incident_kind_name(incident->kind);

	printf("%-24s  ", time_text(incident, glance, text, sizeof(text)));
	pad(output_escaped(stdout, target), 18);
	pad(output_escaped(stdout, glance->readable ? rule : "?"), 16);
	printf("%-24s  ", value_text(incident, text, sizeof(text)));
	printf("%8s  ", units_format(text, sizeof(text), UNIT_BYTES, (double)glance->bytes, UNITS_COLUMN));
}

/* The time without its zone; the id has target and rule. */
static void print_short(const struct incident *incident, const struct incident_load_glance *glance)
{
	char text[160];

	printf("%-19.19s  ", time_text(incident, glance, text, sizeof(text)));
	printf("%-19s  ", value_text(incident, text, sizeof(text)));
}

static void print_row(const char *id, const struct incident *incident, const struct incident_load_glance *glance,
		      bool narrow)
{
	if (narrow)
		print_short(incident, glance);
	else
		print_full(incident, glance);
	output_escaped(stdout, id);
	if (glance->open)
		printf("  (being written)");
	if (glance->damaged)
		printf("  DAMAGED: %s", glance->why);
	if (glance->gone)
		printf("  LOST: its samples, in an incident that is not there");
	putchar('\n');
}

static void print_header(bool narrow)
{
	if (narrow)
		printf("%-19s  %-19s  %s\n", "TIME", "VALUE", "ID");
	else
		printf("%-24s  %-18s  %-16s  %-24s  %8s  %s\n", "TIME", "TARGET", "RULE", "VALUE", "SIZE", "ID");
}

/* Files and pipes get all columns. */
static bool is_narrow(void)
{
	struct plot_style style;

	plot_style_detect(stdout, &style);
	return isatty(STDOUT_FILENO) && style.width < FULL_WIDTH;
}

static void put_row(struct json_writer *json, const char *directory, const char *id, const struct incident *incident,
		    const struct incident_load_glance *glance)
{
	double threshold = 0;
	bool has_threshold = story_threshold(&incident->rule, &threshold);

	json_begin_object(json);
	json_member_text(json, "id", id);
	json_member_text(json, "directory", directory);
	json_member_u64(json, "time_ns", incident->wall.ns);
	json_member_text(json, "kind", incident_kind_name(incident->kind));
	json_member_text(json, "target", incident->target.name);
	json_member_text(json, "rule", incident->rule.name);
	json_member_text(json, "metric", incident->rule.metric);
	json_member_text(json, "unit", incident->rule.unit);
	json_member_double(json, "value", incident->rule.has_value ? incident->rule.value : NAN); /* null */
	json_member_double(json, "threshold", has_threshold ? threshold : NAN);
	json_member_u64(json, "bytes", glance->bytes);
	json_member_bool(json, "open", glance->open);
	json_member_bool(json, "damaged", glance->damaged);
	if (glance->damaged)
		json_member_text(json, "why", glance->why);
	json_member_bool(json, "samples_gone", glance->gone);
	json_end_object(json);
}

struct listing {
	int dirfd;
	const struct incident_filter *filter;
	struct json_writer *json; /* NULL: text */
	bool narrow;
	bool several; /* directories are listed, each with its name above */
	const char *directory;
	size_t shown;
};

static void list_row(struct listing *listing, const char *id, const struct incident *incident,
		     const struct incident_load_glance *glance)
{
	if (!listing->json && listing->shown == 0) {
		if (listing->several) {
			output_escaped(stdout, listing->directory);
			printf(":\n");
		}
		print_header(listing->narrow);
	}
	listing->shown++;
	if (listing->json)
		put_row(listing->json, listing->directory, id, incident, glance);
	else
		print_row(id, incident, glance, listing->narrow);
}

static void list_one(struct listing *listing, const char *id)
{
	AUTO_CLOSE int fd = incident_load_open(listing->dirfd, id);
	struct incident_load_glance glance;
	struct incident incident;

	/* -ENOENT: the daemon has removed it since it was listed. */
	if (output_incomplete(id, fd) < 0)
		return;
	incident_load_glance(fd, &incident, &glance);
	list_row(listing, id, &incident, &glance);
}

static int list_open(void *ctx, const char *id)
{
	struct listing *listing = ctx;
	AUTO_CLOSE int fd = unsealed_open(listing->dirfd, id);
	struct incident_load_glance glance;
	struct incident incident;

	if (output_incomplete(id, fd) < 0 || !incident_filter_name(listing->filter, id))
		return 0;
	incident_load_glance(fd, &incident, &glance);
	if (glance.open && incident_filter_content(listing->filter, &incident))
		list_row(listing, id, &incident, &glance);
	return 0;
}

static void list_all(struct listing *listing, const struct incident_load_names *names, const char *directory)
{
	listing->directory = directory;
	for (size_t i = 0; i < names->count; i++)
		list_one(listing, names->name[i]);
	if (listing->dirfd >= 0)
		output_incomplete(directory, unsealed_each(listing->dirfd, list_open, listing));
	if (!listing->json && listing->shown == 0) {
		printf(names->cap > 0 ? "No incident in " : "There are no incidents in ");
		output_escaped(stdout, directory);
		printf(names->cap > 0        ? " matches.\n"
		       : listing->dirfd >= 0 ? ".\n"
					     : ": there is no such directory.\n");
	}
	if (names->cut)
		fprintf(stderr, "spikewatch list: there are more than %d incidents; the rest is not listed.\n",
			INCIDENT_LOAD_NAMES_MAX);
}

/* A moment, if there is a text. 0; -EINVAL after an explanation. */
static int read_moment(const char *option, const char *text, wall_t now, wall_t *ret)
{
	int rc = text ? moment_parse(text, now, ret) : 0;

	if (rc == 0)
		return 0;
	fprintf(stderr, "spikewatch list: %s: \"", option);
	output_escaped(stderr, text);
	fprintf(stderr, "\" is no time; " MOMENT_EXPECTED "\nTry 'spikewatch list --help'.\n");
	return -EINVAL;
}

/* Of one directory; the next one stands below an empty line. The code to exit with. */
static int list_directory(const char *directory, bool must_be_there, struct listing *listing)
{
	AUTO(incident_load_names_release) struct incident_load_names names = { 0 };
	AUTO_CLOSE int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	size_t hidden;
	int rc;

	if (dirfd < 0 && (errno != ENOENT || must_be_there))
		return cannot_use("spikewatch list", directory, -errno);
	rc = dirfd >= 0 ? incident_load_list(dirfd, &names) : 0;
	if (rc < 0)
		return cannot_use("spikewatch list", directory, rc);
	hidden = incident_pick_hidden("spikewatch list", dirfd, &names);
	incident_filter_apply(listing->filter, dirfd, &names);
	listing->dirfd = dirfd;
	list_all(listing, &names, directory);
	return hidden ? EXIT_TROUBLE : EXIT_OK;
}

/* The code to exit with. */
static int list(const char *option, const struct incident_filter *filter, bool json_wanted)
{
	AUTO(json_writer_closep) struct json_writer *json = NULL;
	struct listing listing = { .filter = filter, .narrow = is_narrow() };
	struct incident_load_places places;
	int code = EXIT_OK;

	if (incident_load_places(option, &places) < 0)
		return incident_pick_directory("spikewatch list", option, places.path[0], sizeof(places.path[0])) < 0
			       ? EXIT_TROUBLE
			       : EXIT_OK;
	if (json_wanted && output_json_new(&json) < 0)
		return output_no_memory();

	/* What is one's own may be all that one wants; if there is nothing, all is hidden. */
	if (places.hidden) {
		fputs("spikewatch list: " INCIDENT_LOAD_HIDDEN, stderr);
		code = access(places.path[0], F_OK) < 0 ? EXIT_TROUBLE : EXIT_OK;
	}
	listing.json = json;
	listing.several = places.count > 1;
	if (json)
		json_begin_array(json);
	for (size_t i = 0; i < places.count; i++) {
		int rc;

		if (i > 0 && !json)
			putchar('\n');
		listing.shown = 0;
		/* The default directory may not exist yet. */
		rc = list_directory(places.path[i], option != NULL, &listing);
		code = rc != EXIT_OK ? rc : code;
	}
	if (json)
		json_end_array(json);
	return code;
}

int list_command(int argc, char **argv)
{
	const char *directory = NULL, *since = NULL, *until = NULL;
	struct incident_filter filter = { 0 };
	uint64_t limit = 0;
	bool json = false;
	const struct option_spec options[] = {
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are; see below", &directory },
		{ 0, "since", OPTION_TEXT, "TIME", "that fired then or later: 2h, yesterday, 2026-11-20", &since },
		{ 0, "until", OPTION_TEXT, "TIME", "that fired before then", &until },
		{ 't', "target", OPTION_TEXT, "NAME", "of targets or entries called so; * and ? match anything",
		  &filter.target },
		{ 'r', "rule", OPTION_TEXT, "NAME", "of rules called so; also manual and recovered", &filter.rule },
		{ 'n', "limit", OPTION_NUMBER, "COUNT", "the newest so many; 0, the default: all", &limit },
		{ 0, "json", OPTION_FLAG, NULL, "as a JSON array", &json },
	};
	const struct options_usage usage = {
		.command = "spikewatch list",
		.summary = "Lists incidents, newest last.",
		.description =
			"DIR is by default $SPIKEWATCH_DIR, else /var/lib/spikewatch/incidents and\n"
			"~/.local/state/spikewatch/incidents ($XDG_STATE_HOME), as far as they are there. What is\n"
			"still being written comes last and says so; what is damaged is marked: only sizes are\n"
			"checked here, see spikewatch verify.",
		.example = "spikewatch list --since yesterday --target 'db*'\n"
			   "spikewatch list --json | jq -r '.[] | select(.damaged) | .id'",
		.exits = "0 listed (perhaps none), 1 the directory or some of it cannot be read, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
	};
	wall_t now = { (uint64_t)time(NULL) * NS_PER_S };
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	filter.limit = limit;
	if (read_moment("--since", since, now, &filter.since) < 0 ||
	    read_moment("--until", until, now, &filter.until) < 0)
		return EXIT_USAGE;
	return list(directory, &filter, json);
}

/* ---- show ---- */

static int show(int fd, bool json, bool full)
{
	AUTO_FREE struct view *view = calloc(1, sizeof(*view));
	struct plot_style style;
	int rc;

	if (!view)
		return output_no_memory();
	rc = view_load(fd, view);
	if (rc < 0)
		return output_no_memory();
	plot_style_detect(stdout, &style);
	if (full && !json)
		output_page();
	if (json)
		rc = view_json(view, &style);
	else if (full)
		rc = view_text(view, fd, &style, stdout);
	else
		rc = view_brief(view, &style, stdout);
	if (rc == 0)
		rc = view->glance.damaged ? EXIT_TROUBLE : EXIT_OK;
	else
		rc = output_no_memory();
	incident_samples_release(&view->samples);
	return rc;
}

int show_command(int argc, char **argv)
{
	const char *directory = NULL;
	bool json = false, full = false;
	const struct option_spec options[] = {
		OPTION_DIRECTORY(&directory),
		{ 'f', "full", OPTION_FLAG, NULL, "all that there is, by $PAGER on a terminal", &full },
		{ 0, "json", OPTION_FLAG, NULL, "the incident, its summary and its series as JSON", &json },
	};
	const struct options_usage usage = {
		.command = "spikewatch show",
		.operands = "ID|PATH",
		.summary = "Shows one incident: in words, pictures and numbers.",
		.description = INCIDENT_PICK_HELP
		"\n"
		"Without --full: what fits the screen. NO_COLOR, COLUMNS and LINES are honoured;\n"
		"pictures are ASCII where the locale is not UTF-8.",
		.example = "spikewatch show last\nspikewatch show --full last\nspikewatch show "
			   "./20261120T031502.123Z-postgres_812-cpu-high-1",
		.exits = "0 shown, also as far as it is written, 1 not found, or shown but damaged,\n"
			 "2 wrong usage, or not an incident",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 1,
	};
	AUTO_CLOSE int fd = -1;
	int first, rc, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	rc = incident_pick_any(usage.command, directory, argv[first], &fd);
	if (rc != 0)
		return rc == INCIDENT_PICK_FOREIGN ? EXIT_USAGE : EXIT_TROUBLE;
	return show(fd, json, full);
}

/* ---- verify ---- */

/* Further findings are counted. */
#define FINDINGS_MAX 100

struct finding {
	uint64_t line; /* 0: of the whole */
	uint64_t rows_lost;
	char what[200]; /* may hold any bytes */
};

/* About one path. */
struct verification {
	const char *path;
	const char *kind; /* "incident", "stream", NULL: unknown */
	int code;         /* enum options_exit */
	bool open;        /* still being written: no more and no less is known */
	bool has_report;
	struct stream_reader_report report;
	struct sample_window_coverage coverage; /* gaps and holes that the stream tells of */
	struct finding findings[FINDINGS_MAX];
	uint64_t finding_count; /* may exceed what is kept */
	bool incomplete;        /* it was sealed without all of its samples, and says so in: */
	struct incident incident;
	enum incident_load_rest rest[INCIDENT_CAPTURES_MAX]; /* of what its captures lack */
};

__attribute__((format(printf, 4, 5))) static void add_finding(struct verification *verification, uint64_t line,
							      uint64_t rows_lost, const char *format, ...)
{
	struct finding *finding;
	va_list args;

	if (verification->code == EXIT_OK)
		verification->code = EXIT_TROUBLE;
	if (verification->finding_count++ >= FINDINGS_MAX)
		return;
	finding = &verification->findings[verification->finding_count - 1];
	finding->line = line;
	finding->rows_lost = rows_lost;
	va_start(args, format);
	vsnprintf(finding->what, sizeof(finding->what), format, args);
	va_end(args);
}

static void not_ours(struct verification *verification, const char *why)
{
	verification->code = EXIT_USAGE;
	add_finding(verification, 0, 0, "%s", why);
}

static int on_damage(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	add_finding(ctx, line, rows_lost, "%s", why);
	return 0;
}

/* The file is whole without what was never sampled; what was lost in the ring is told, too. */
static int on_note(void *ctx, const char *kind, const char *json, size_t len)
{
	struct verification *verification = ctx;
	struct sample_hole hole;
	int r = strcmp(kind, "GAP") == 0 ? sample_stream_hole_read(json, len, &hole) : -EINVAL;

	if (r == 0)
		sample_window_cover_hole(&(struct sampling_hole){ { hole.from_ns },
								  { hole.to_ns },
								  hole.missed_slots,
								  hole.writer == 0 ? hole.suspended_ns : 0 },
					 &verification->coverage, NULL);
	else if (r == SAMPLE_STREAM_LOSS)
		verification->coverage.gaps++;
	return r == -ENOMEM ? r : 0;
}

static void verify_stream(struct verification *verification, int fd, const char *name)
{
	struct stream_reader_events events = { .note = on_note, .damage = on_damage, .ctx = verification };
	AUTO(stream_reader_freep) struct stream_reader *stream_reader = NULL;
	struct stream_reader_report *report = &verification->report;
	int rc;

	rc = stream_reader_new(&events, &stream_reader);
	if (rc == 0)
		rc = stream_read_fd(stream_reader, fd, UINT64_MAX);
	if (rc < 0)
		add_finding(verification, 0, 0, "%s cannot be read to its end: %s", name, strerror(-rc));
	if (!stream_reader || stream_reader_finish(stream_reader, report) < 0)
		return;
	verification->has_report = true;
	if (!report->ours)
		return;
	if (!report->complete)
		add_finding(verification, 0, 0, "%s has no closing checksum: it was cut off, or is still being written",
			    name);
	else if (!report->checksum_ok)
		add_finding(verification, 0, 0, "%s: the closing checksum does not agree", name);
	else if (!stream_reader_whole(report) && verification->finding_count == 0)
		add_finding(verification, 0, 0, "%s is not whole", name);
}

static void verify_file(struct verification *verification, int fd)
{
	verification->kind = "stream";
	verify_stream(verification, fd, "the stream");
	if (verification->has_report && !verification->report.ours)
		not_ours(verification, "there is no line of ours in it");
}

static void on_fault(void *ctx, const char *name, enum manifest_fault fault)
{
	add_finding(ctx, 0, 0, "%s: %s", name, manifest_fault_name(fault));
}

static void verify_manifest(struct verification *verification, int fd)
{
	int rc = manifest_verify(fd, on_fault, verification);

	if (rc == -ENOENT)
		add_finding(verification, 0, 0, MANIFEST_NAME " is missing: the incident was never sealed");
	else if (rc == -EPROTONOSUPPORT)
		add_finding(verification, 0, 0, MANIFEST_NAME " is of a later version of spikewatch");
	else if (rc == -EBADMSG)
		add_finding(verification, 0, 0, MANIFEST_NAME " is damaged");
	else if (rc < 0)
		add_finding(verification, 0, 0, MANIFEST_NAME ": %s", strerror(-rc));
}

/* What was to be in the incident and is not, or not all of it. What could not be had is no loss. */
static bool is_missing(const struct incident_capture *capture)
{
	return capture->status == INCIDENT_CAPTURE_FAILED;
}

static void verify_description(struct verification *verification, int fd)
{
	struct incident *incident = &verification->incident;
	int rc = incident_json_read(fd, incident);

	for (size_t i = 0; rc == 0 && i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];

		verification->incomplete |= is_missing(capture) && strcmp(capture->name, "samples") == 0;
		verification->rest[i] = incident_load_rest(fd, capture);
	}
	if (rc == -EPROTONOSUPPORT)
		add_finding(verification, 0, 0, INCIDENT_FILE " is of a later version of spikewatch");
	else if (rc == -EBADMSG || rc == -EFBIG)
		add_finding(verification, 0, 0, INCIDENT_FILE " is damaged");
	else if (rc < 0)
		add_finding(verification, 0, 0, INCIDENT_FILE ": %s", strerror(-rc));
}

static void verify_samples(struct verification *verification, int fd)
{
	AUTO_CLOSE int file = incident_load_open_file(fd, INCIDENT_SAMPLES_FILE);

	/* Not every incident has samples; MANIFEST says which should. */
	if (file == -ENOENT)
		return;
	if (file < 0)
		add_finding(verification, 0, 0, INCIDENT_SAMPLES_FILE ": %s",
			    file == -EBADMSG ? "is no plain file" : strerror(-file));
	else
		verify_stream(verification, file, INCIDENT_SAMPLES_FILE);
	if (verification->has_report && !verification->report.ours)
		add_finding(verification, 0, 0, INCIDENT_SAMPLES_FILE " holds no line of a stream");
}

static void find_open(struct verification *verification, int fd)
{
	struct incident incident;
	char time[64];

	if (incident_json_read(fd, &incident) < 0)
		add_finding(verification, 0, 0, "it has no description yet");
	else
		add_finding(verification, 0, 0, "it fired %s; what it holds can be checked when it is sealed",
			    story_time(incident.wall, false, time, sizeof(time)));
}

static void verify_incident(struct verification *verification, int fd)
{
	if (faccessat(fd, MANIFEST_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
	    faccessat(fd, INCIDENT_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		not_ours(verification, "the directory holds neither " INCIDENT_FILE " nor " MANIFEST_NAME);
		return;
	}
	verification->kind = "incident";
	verification->open = unsealed_is_written(fd);
	if (verification->open) {
		find_open(verification, fd);
		return;
	}
	verify_manifest(verification, fd);
	verify_description(verification, fd);
	verify_samples(verification, fd);
}

static void verify_path(struct verification *verification, const char *path)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;

	*verification = (struct verification){ .path = path };
	if (strcmp(path, "-") == 0) {
		verify_file(verification, STDIN_FILENO);
		return;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 && errno == ENOENT && !strchr(path, '/')) {
		if (incident_pick_any("spikewatch verify", NULL, path, &fd) != 0)
			not_ours(verification, "there is no such file, and no such incident");
		else
			verify_incident(verification, fd);
		return;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		not_ours(verification, strerror(errno));
	else if (S_ISDIR(st.st_mode))
		verify_incident(verification, fd);
	else
		verify_file(verification, fd);
}

static const char *verdict_name(const struct verification *verification)
{
	if (verification->open)
		return "being written";
	if (verification->code != EXIT_OK)
		return verification->code == EXIT_TROUBLE ? "damaged" : "not ours";
	return verification->incomplete ? "incomplete" : "whole";
}

static void print_findings(const struct verification *verification)
{
	for (uint64_t i = 0; i < verification->finding_count && i < FINDINGS_MAX; i++) {
		const struct finding *finding = &verification->findings[i];

		printf("  ");
		if (finding->line)
			printf("line %ju: ", (uintmax_t)finding->line);
		output_escaped(stdout, finding->what);
		if (finding->rows_lost)
			printf(" (%ju %s lost)", (uintmax_t)finding->rows_lost,
			       finding->rows_lost == 1 ? "row" : "rows");
		putchar('\n');
	}
	if (verification->finding_count > FINDINGS_MAX)
		printf("  and %ju more\n", (uintmax_t)(verification->finding_count - FINDINGS_MAX));
}

/* What an incident that was sealed without all of its samples says of that, and what else it lacks. */
static void print_missing(const struct verification *verification)
{
	const struct incident *incident = &verification->incident;

	if (!verification->incomplete)
		return;
	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];

		if (!is_missing(capture))
			continue;
		printf("  %s: ", capture->file[0] ? "not all" : "missing");
		output_escaped(stdout, capture->file[0] ? capture->file : capture->name);
		printf(": ");
		output_escaped(stdout, capture->why);
		if (verification->rest[i] == INCIDENT_REST_GONE)
			printf(INCIDENT_LOAD_GONE);
		putchar('\n');
	}
}

static void print_holes(const struct sample_window_coverage *coverage)
{
	uint64_t lost = coverage->gaps - coverage->holes;
	char text[192];

	if (story_holes(coverage, 0, text, sizeof(text)))
		printf("; but %s", text);
	if (lost > 0)
		printf("; but %ju %s of samples did not get into it", (uintmax_t)lost,
		       lost == 1 ? "stretch" : "stretches");
}

static void print_text(const struct verification *verification)
{
	const struct stream_reader_report *report = &verification->report;

	output_escaped(stdout, verification->path);
	printf(": %s", verdict_name(verification));
	if (verification->has_report && report->ours) {
		printf(", %ju %s", (uintmax_t)report->rows, report->rows == 1 ? "row" : "rows");
		if (verification->code != EXIT_OK)
			printf(" recovered, %ju known to be lost, %ju damaged lines", (uintmax_t)report->rows_lost,
			       (uintmax_t)report->damaged_lines);
		if (report->rows_unchecked)
			printf(", %ju rows not covered by a CRC", (uintmax_t)report->rows_unchecked);
		if (report->foreign_lines)
			printf(", %ju foreign lines skipped", (uintmax_t)report->foreign_lines);
	}
	print_holes(&verification->coverage);
	if (verification->incomplete && verification->code == EXIT_OK)
		printf("; what is there is whole");
	putchar('\n');
	print_findings(verification);
	print_missing(verification);
}

static void put_report(struct json_writer *json, const struct stream_reader_report *report)
{
	json_member_u64(json, "lines", report->lines);
	json_member_u64(json, "rows", report->rows);
	json_member_u64(json, "rows_lost", report->rows_lost);
	json_member_u64(json, "damaged_lines", report->damaged_lines);
	json_member_u64(json, "foreign_lines", report->foreign_lines);
	json_member_u64(json, "crc_differs", report->crc_differs);
	json_member_u64(json, "rows_unchecked", report->rows_unchecked);
	json_member_bool(json, "complete", report->complete);
	json_member_bool(json, "checksum_ok", report->checksum_ok);
}

static void put_findings(struct json_writer *json, const struct verification *verification)
{
	json_member_array(json, "findings");
	for (uint64_t i = 0; i < verification->finding_count && i < FINDINGS_MAX; i++) {
		json_begin_object(json);
		if (verification->findings[i].line)
			json_member_u64(json, "line", verification->findings[i].line);
		if (verification->findings[i].rows_lost)
			json_member_u64(json, "rows_lost", verification->findings[i].rows_lost);
		json_member_text(json, "what", verification->findings[i].what);
		json_end_object(json);
	}
	json_end_array(json);
	json_member_u64(json, "findings_total", verification->finding_count);
}

static void put_missing(struct json_writer *json, const struct verification *verification)
{
	const struct incident *incident = &verification->incident;

	json_member_array(json, "missing");
	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];

		if (!is_missing(capture))
			continue;
		json_begin_object(json);
		json_member_text(json, "name", capture->name);
		json_member_text(json, "file", capture->file);
		json_member_text(json, "why", capture->why);
		if (verification->rest[i] != INCIDENT_REST_NOWHERE)
			json_member_bool(json, "rest_is_there", verification->rest[i] == INCIDENT_REST_THERE);
		json_end_object(json);
	}
	json_end_array(json);
}

static void put_json(struct json_writer *json, const struct verification *verification)
{
	json_begin_object(json);
	json_member_text(json, "path", verification->path);
	if (verification->kind)
		json_member_text(json, "kind", verification->kind);
	else
		json_member_null(json, "kind");
	json_member_text(json, "verdict", verdict_name(verification));
	if (verification->has_report) {
		put_report(json, &verification->report);
		json_member_u64(json, "gaps", verification->coverage.gaps);
		json_member_u64(json, "holes", verification->coverage.holes);
		json_member_u64(json, "missed_slots", verification->coverage.missed_slots);
		json_member_u64(json, "unsampled_ns", verification->coverage.unsampled_ns);
		json_member_u64(json, "longest_hole_ns", verification->coverage.longest_hole_ns);
		json_member_u64(json, "suspends", verification->coverage.suspends);
		json_member_u64(json, "suspended_ns", verification->coverage.suspended_ns);
	}
	put_findings(json, verification);
	if (verification->incomplete)
		put_missing(json, verification);
	json_end_object(json);
}

int verify_command(int argc, char **argv)
{
	bool json_wanted = false, quiet = false;
	const struct option_spec options[] = {
		{ 0, "json", OPTION_FLAG, NULL, "the verdicts as a JSON array", &json_wanted },
		{ 'q', "quiet", OPTION_FLAG, NULL, "print nothing; only set the exit code", &quiet },
	};
	const struct options_usage usage = {
		.command = "spikewatch verify",
		.operands = "PATH...",
		.summary = "Checks whether incidents and streams are whole, and if not, what was lost.",
		.description =
			"PATH is the directory of an incident, a file that holds a stream (a log in which it is\n"
			"mixed with other lines too), or - for the standard input. Without a slash, and if there\n"
			"is no such file, it is the id of an incident as spikewatch show takes it: \"last\" too.",
		.example = "spikewatch verify /var/lib/spikewatch/incidents/*\n"
			   "journalctl -o cat -u my.service | spikewatch verify -",
		.exits = "0 nothing is damaged (of one that lost something before it was sealed the verdict is\n"
			 "\"incomplete\", with the reason), 1 something is damaged or still being written, 2 not a\n"
			 "file of spikewatch",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = -1,
	};
	AUTO_FREE struct verification *verification = malloc(sizeof(*verification));
	AUTO(json_writer_closep) struct json_writer *json = NULL;
	int first, code = options_start(&usage, argc, argv, &first), worst = EXIT_OK;

	if (code >= 0)
		return code;
	if (!verification || (json_wanted && !quiet && output_json_new(&json) < 0))
		return output_no_memory();

	if (json)
		json_begin_array(json);
	for (int i = first; i < argc; i++) {
		verify_path(verification, argv[i]);
		if (verification->code > worst)
			worst = verification->code;
		if (json)
			put_json(json, verification);
		else if (!quiet)
			print_text(verification);
	}
	if (json)
		json_end_array(json);
	return worst;
}

/* ---- prune ---- */

struct pruning {
	bool dry;
	struct json_writer *json; /* NULL: text */
	size_t count;
	uint64_t bytes;
};

/* For spool_enforce. */
static void on_removed(void *ctx, const struct retention_entry *entry, enum retention_reason why)
{
	struct pruning *pruning = ctx;
	char size[UNITS_TEXT_MAX];

	pruning->count++;
	pruning->bytes += entry->bytes;
	if (!pruning->json) {
		printf("%s  %9s  %-5s  %s\n", pruning->dry ? "would remove" : "removed",
		       units_format_bytes(size, sizeof(size), entry->bytes), retention_reason_name(why), entry->name);
		return;
	}
	json_begin_object(pruning->json);
	json_member_text(pruning->json, "id", entry->name);
	json_member_u64(pruning->json, "bytes", entry->bytes);
	json_member_double(pruning->json, "severity", entry->severity);
	json_member_text(pruning->json, "reason", retention_reason_name(why));
	json_end_object(pruning->json);
}

/* 0 or -errno. */
static int prune_dry_run(const char *directory, const struct retention_limits *limits, wall_t now,
			 struct pruning *pruning)
{
	AUTO_CLOSE int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_FREE struct retention_entry *entries = NULL;
	AUTO_FREE enum retention_reason *reasons = NULL;
	size_t count;
	int unread, rc = dirfd >= 0 ? spool_list_at(dirfd, &entries, &count, &unread) : -errno;

	if (rc < 0 || count == 0)
		return rc < 0 ? rc : unread;
	reasons = calloc(count, sizeof(*reasons));
	if (!reasons)
		return -ENOMEM;
	retention_age_by_names(entries, count, now);
	retention_choose(limits, UINT64_MAX, entries, reasons, count);
	for (size_t i = 0; i < count; i++)
		if (reasons[i] != RETENTION_KEEP)
			on_removed(pruning, &entries[i], reasons[i]);
	return unread;
}

/*
 * A directory that is not there is not made. 0 or -errno: the first failure, after all that could
 * be removed is gone.
 */
static int prune(const char *directory, const struct retention_limits *limits, wall_t now, struct pruning *pruning)
{
	AUTO(spool_freep) struct spool *spool = NULL;
	struct stat st;
	size_t before;
	int rc;

	if (stat(directory, &st) < 0)
		return -errno;
	rc = spool_open(directory, limits, &spool, &(size_t){ 0 });
	if (rc < 0)
		return rc;
	/* The spool looks at SPOOL_ENTRIES_MAX incidents at a time. */
	do {
		before = pruning->count;
		rc = spool_enforce(spool, (struct spool_now){ .wall = now }, on_removed, pruning);
	} while (rc == 0 && pruning->count > before);
	return rc;
}

/* Whether there are incidents that cannot be read, which is printed. */
static bool has_hidden(const char *directory)
{
	AUTO(incident_load_names_release) struct incident_load_names names = { 0 };
	AUTO_CLOSE int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return dirfd >= 0 && incident_load_list(dirfd, &names) == 0 &&
	       incident_pick_hidden("spikewatch prune", dirfd, &names) > 0;
}

static void print_summary(const struct pruning *pruning, const char *directory)
{
	char size[UNITS_TEXT_MAX];

	if (pruning->count == 0) {
		printf("Nothing in ");
		output_escaped(stdout, directory);
		printf(" is beyond these limits.\n");
		return;
	}
	printf("%s %zu incident%s, %s.\n", pruning->dry ? "Would remove" : "Removed", pruning->count,
	       pruning->count == 1 ? "" : "s", units_format_bytes(size, sizeof(size), pruning->bytes));
}

static int prune_directory(const char *option, const struct retention_limits *limits, bool dry, bool json)
{
	AUTO(json_writer_closep) struct json_writer *writer = NULL;
	struct pruning pruning = { .dry = dry };
	char directory[INCIDENT_LOAD_PATH_MAX];
	wall_t now = { (uint64_t)time(NULL) * NS_PER_S };
	int rc = incident_pick_directory("spikewatch prune", option, directory, sizeof(directory));

	if (rc < 0)
		return EXIT_TROUBLE;
	if (json) {
		if (output_json_new(&writer) < 0)
			return output_no_memory();
		pruning.json = writer;
		json_begin_array(writer);
	}
	rc = dry ? prune_dry_run(directory, limits, now, &pruning) : prune(directory, limits, now, &pruning);
	if (json)
		json_end_array(writer);
	if (has_hidden(directory))
		return EXIT_TROUBLE;
	/* The default directory may not exist yet. */
	if (rc < 0 && (rc != -ENOENT || option))
		return cannot_use("spikewatch prune", directory, rc);
	if (!json)
		print_summary(&pruning, directory);
	return EXIT_OK;
}

int prune_command(int argc, char **argv)
{
	const char *directory = NULL;
	uint64_t older_ns = 0, keep = 0, max_bytes = 0;
	bool dry = false, json = false;
	const struct option_spec options[] = {
		{ 0, "older-than", OPTION_DURATION, "TIME", "remove what fired longer ago: 30d", &older_ns },
		{ 0, "keep", OPTION_NUMBER, "COUNT", "keep at most so many", &keep },
		{ 0, "max-size", OPTION_SIZE, "SIZE", "keep at most so many bytes of disk: 1GiB", &max_bytes },
		{ 0, "dry-run", OPTION_FLAG, NULL, "remove nothing, print what would be removed", &dry },
		OPTION_DIRECTORY(&directory),
		{ 0, "json", OPTION_FLAG, NULL, "what was removed as a JSON array", &json },
	};
	const struct options_usage usage = {
		.command = "spikewatch prune",
		.summary = "Removes incidents, by the same rules as the daemon.",
		.description =
			"What is too old goes first. For number and size the mildest go, not the oldest: severity\n"
			"is in incident.json; of equals the oldest. What is being written is never touched.",
		.example = "spikewatch prune --older-than 30d --max-size 1GiB --dry-run",
		.exits = "0 done (perhaps nothing to do), 1 something could not be removed or read, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
	};
	struct retention_limits limits;
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	if (older_ns == 0 && keep == 0 && max_bytes == 0)
		return options_wrong(usage.command,
				     "no limit is given: --older-than, --keep or --max-size, of more than 0");
	if (keep > UINT32_MAX)
		return options_wrong(usage.command, "--keep: too many");
	limits = (struct retention_limits){ .max_age_ns = older_ns,
					    .max_count = (uint32_t)keep,
					    .max_bytes = max_bytes };
	return prune_directory(directory, &limits, dry, json);
}
