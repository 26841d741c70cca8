/*
 * list.c: spikewatch list. Incidents are read one after the other and printed at once, so memory does not grow with their
 * number. Columns have a width of their own, therefore; on a terminal that is too narrow for all there are those that the
 * id does not say already.
 */
#include "commands.h"
#include "incidentfilter.h"
#include "incidentload.h"
#include "incidentpick.h"
#include "json.h"
#include "jsonmember.h"
#include "moment.h"
#include "options.h"
#include "output.h"
#include "plot.h"
#include "scope.h"
#include "story.h"
#include "unsealed.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* With an id of usual length. Narrower terminals have short rows. */
#define FULL_WIDTH 140

static void pad(size_t printed, size_t width)
{
	printf("%*s", printed < width ? (int)(width - printed) + 2 : 2, "");
}

static const char *value_text(const struct incident *incident, char *buf, size_t cap)
{
	return incident->kind == INCIDENT_MANUAL ? "asked for by hand" : story_comparison(&incident->rule, buf, cap);
}

static const char *time_text(const struct incident *incident, const struct incidentload_glance *glance, char *buf,
			     size_t cap)
{
	return glance->readable ? story_time(incident->wall, false, buf, cap) : "?";
}

static void print_full(const struct incident *incident, const struct incidentload_glance *glance)
{
	char text[160];
	const char *target = incident->target.name[0] ? incident->target.name : "?";
	const char *rule = incident->rule.name[0] ? incident->rule.name : incident_kind_name(incident->kind);

	printf("%-24s  ", time_text(incident, glance, text, sizeof(text)));
	pad(output_escaped(stdout, target), 18);
	pad(output_escaped(stdout, glance->readable ? rule : "?"), 16);
	printf("%-24s  ", value_text(incident, text, sizeof(text)));
	printf("%8s  ", plot_value(PLOT_BYTES, (double)glance->bytes, text, sizeof(text)));
}

/* The time without its zone; the id has target and rule. */
static void print_short(const struct incident *incident, const struct incidentload_glance *glance)
{
	char text[160];

	printf("%-19.19s  ", time_text(incident, glance, text, sizeof(text)));
	printf("%-19s  ", value_text(incident, text, sizeof(text)));
}

static void print_row(const char *id, const struct incident *incident, const struct incidentload_glance *glance,
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
	putchar('\n');
}

static void print_header(bool narrow)
{
	if (narrow)
		printf("%-19s  %-19s  %s\n", "TIME", "VALUE", "ID");
	else
		printf("%-24s  %-18s  %-16s  %-24s  %8s  %s\n", "TIME", "TARGET", "RULE", "VALUE", "SIZE", "ID");
}

/* What goes to a file or a program has all columns. */
static bool is_narrow(void)
{
	struct plot_style style;

	plot_style_detect(stdout, &style);
	return isatty(STDOUT_FILENO) && style.width < FULL_WIDTH;
}

static void put_number(struct json_writer *json, const char *key, bool has, double value)
{
	json_key(json, key);
	if (has)
		json_double(json, value);
	else
		json_null(json);
}

static void put_row(struct json_writer *json, const char *id, const struct incident *incident,
		    const struct incidentload_glance *glance)
{
	double threshold = 0;
	bool has_threshold = story_threshold(&incident->rule, &threshold);

	json_begin_object(json);
	jsonmember_text(json, "id", id);
	json_key(json, "time_ns");
	json_u64(json, incident->wall.ns);
	jsonmember_text(json, "kind", incident_kind_name(incident->kind));
	jsonmember_text(json, "target", incident->target.name);
	jsonmember_text(json, "rule", incident->rule.name);
	jsonmember_text(json, "metric", incident->rule.metric);
	jsonmember_text(json, "unit", incident->rule.unit);
	put_number(json, "value", incident->rule.has_value, incident->rule.value);
	put_number(json, "threshold", has_threshold, threshold);
	json_key(json, "bytes");
	json_u64(json, glance->bytes);
	jsonmember_bool(json, "open", glance->open);
	json_key(json, "damaged");
	json_bool(json, glance->damaged);
	if (glance->damaged)
		jsonmember_text(json, "why", glance->why);
	json_end_object(json);
}

/* Where rows go. */
struct listing {
	int dirfd;
	const struct incidentfilter *filter;
	struct json_writer *json; /* NULL: text */
	bool narrow;
	size_t shown;
};

static void list_row(struct listing *listing, const char *id, const struct incident *incident,
		     const struct incidentload_glance *glance)
{
	if (!listing->json && listing->shown == 0)
		print_header(listing->narrow);
	listing->shown++;
	if (listing->json)
		put_row(listing->json, id, incident, glance);
	else
		print_row(id, incident, glance, listing->narrow);
}

static void list_one(struct listing *listing, const char *id)
{
	AUTO_CLOSE int fd = incidentload_open(listing->dirfd, id);
	struct incidentload_glance glance;
	struct incident incident;

	/* The daemon may have removed it since it was listed. */
	if (fd < 0)
		return;
	incidentload_glance(fd, &incident, &glance);
	list_row(listing, id, &incident, &glance);
}

static int list_open(void *ctx, const char *id)
{
	struct listing *listing = ctx;
	AUTO_CLOSE int fd = unsealed_open(listing->dirfd, id);
	struct incidentload_glance glance;
	struct incident incident;

	if (fd < 0 || !incidentfilter_name(listing->filter, id))
		return 0;
	incidentload_glance(fd, &incident, &glance);
	if (glance.open && incidentfilter_content(listing->filter, &incident))
		list_row(listing, id, &incident, &glance);
	return 0;
}

static int complain(const char *directory, int rc)
{
	fprintf(stderr, "spikewatch list: ");
	output_escaped(stderr, directory);
	fprintf(stderr, ": %s\n", strerror(-rc));
	return EXIT_TROUBLE;
}

static void list_all(struct listing *listing, const struct incidentload_names *names, const char *directory)
{
	if (listing->json)
		json_begin_array(listing->json);
	for (size_t i = 0; i < names->count; i++)
		list_one(listing, names->name[i]);
	if (listing->dirfd >= 0)
		unsealed_each(listing->dirfd, list_open, listing);
	if (listing->json) {
		json_end_array(listing->json);
	} else if (listing->shown == 0) {
		printf(names->cap > 0 ? "No incident in " : "There are no incidents in ");
		output_escaped(stdout, directory);
		printf(names->cap > 0        ? " matches.\n"
		       : listing->dirfd >= 0 ? ".\n"
					     : ": there is no such directory.\n");
	}
	if (names->cut)
		fprintf(stderr, "spikewatch list: there are more than %d incidents; the rest is not listed.\n",
			INCIDENTLOAD_NAMES_MAX);
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

/* The code to exit with. */
static int list(const char *option, const struct incidentfilter *filter, bool json_wanted)
{
	AUTO(incidentload_names_release) struct incidentload_names names = { 0 };
	AUTO(output_json_release) struct json_writer *json = NULL;
	AUTO_CLOSE int dirfd = -1;
	char directory[INCIDENTLOAD_PATH_MAX];
	size_t hidden;
	int rc = incidentpick_directory("spikewatch list", option, directory, sizeof(directory));

	if (rc < 0)
		return EXIT_TROUBLE;
	dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* A directory that nobody named and that is not there yet holds no incidents. */
	if (dirfd < 0 && (errno != ENOENT || option))
		return complain(directory, -errno);
	rc = dirfd >= 0 ? incidentload_list(dirfd, &names) : 0;
	if (rc < 0)
		return complain(directory, rc);
	if (json_wanted && output_json_new(&json) < 0)
		return output_no_memory();

	hidden = incidentpick_hidden("spikewatch list", dirfd, &names);
	incidentfilter_apply(filter, dirfd, &names);
	list_all(&(struct listing){ .dirfd = dirfd, .filter = filter, .json = json, .narrow = is_narrow() }, &names,
		 directory);
	return hidden ? EXIT_TROUBLE : EXIT_OK;
}

int list_command(int argc, char **argv)
{
	const char *directory = NULL, *since = NULL, *until = NULL;
	struct incidentfilter filter = { 0 };
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
			"DIR is by default $SPIKEWATCH_DIR, else /var/lib/spikewatch/incidents if it can be read,\n"
			"else ~/.local/state/spikewatch/incidents ($XDG_STATE_HOME). What is still being written\n"
			"comes last and says so; what is damaged is marked: only sizes are checked here, see\n"
			"spikewatch verify.",
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
