/*
 * show.c: spikewatch show: what happened in words first, then in pictures, then in numbers.
 *
 * Everything is loaded before the first line is printed. Parts that are missing are left out and named: an incident that has lost its
 * samples still says what fired.
 */
#include "commands.h"
#include "incident_json.h"
#include "incidentload.h"
#include "options.h"
#include "output.h"
#include "plot.h"
#include "view.h"
#include "scope.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* Explains on stderr. Always negative. */
static int refuse(const char *what, const char *why)
{
	fprintf(stderr, "spikewatch show: ");
	output_escaped(stderr, what);
	fprintf(stderr, ": %s\n", why);
	return -EINVAL;
}

/* By its id. fd, or negative after an explanation. */
static int open_by_id(const char *directory, const char *query)
{
	AUTO(incidentload_names_release) struct incidentload_names names = { 0 };
	AUTO_CLOSE int dirfd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	const char *name;
	int fd, rc = dirfd >= 0 ? incidentload_list(dirfd, &names) : -errno;

	if (rc < 0)
		return refuse(directory, strerror(-rc));
	rc = incidentload_find(&names, query, &name);
	if (rc == INCIDENTLOAD_NONE)
		return refuse(query, "no incident is called so; see spikewatch list");
	if (rc == INCIDENTLOAD_MANY) {
		refuse(query, "more than one incident is called so; the newest of them is");
		fprintf(stderr, "  %s\n", name);
		return -EEXIST;
	}
	fd = incidentload_open(dirfd, name);
	return fd >= 0 ? fd : refuse(query, strerror(-fd));
}

/* An id, or a path: whatever has a slash. */
static int open_incident(const char *option, const char *query)
{
	char directory[INCIDENTLOAD_PATH_MAX];
	int rc;

	if (strchr(query, '/') || strcmp(query, ".") == 0) {
		rc = incidentload_open(AT_FDCWD, strcmp(query, ".") == 0 ? "./" : query);
		return rc >= 0 ? rc : refuse(query, strerror(-rc));
	}
	rc = incidentload_directory(option, directory, sizeof(directory));
	if (rc < 0)
		return refuse("the directory of incidents", strerror(-rc));
	return open_by_id(directory, query);
}

static int show(int fd, bool json)
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
	if (json)
		rc = view_json(view, &style);
	else
		rc = view_text(view, fd, &style, stdout);
	if (rc == 0)
		rc = view->glance.damaged ? EXIT_TROUBLE : EXIT_OK;
	else
		rc = output_no_memory();
	incidentload_samples_release(&view->samples);
	return rc;
}

int show_command(int argc, char **argv)
{
	const char *directory = NULL;
	bool json = false;
	const struct option_spec options[] = {
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are; see spikewatch list --help", &directory },
		{ 0, "json", OPTION_FLAG, NULL, "the incident, its summary and its series as JSON", &json },
	};
	const struct options_usage usage = {
		.command = "spikewatch show",
		.operands = "ID|PATH",
		.summary = "Shows one incident: in words, pictures and numbers.",
		.description = "ID is the name of an incident, its beginning, or any part of it that no other has;\n"
			       "\"last\" is the newest. What has a slash is the path of an incident's directory.\n"
			       "NO_COLOR and COLUMNS are honoured; pictures are ASCII where the locale is not UTF-8.",
		.example = "spikewatch show last\nspikewatch show ./20261120T031502.123Z-postgres_812-cpu-high-1",
		.exits = "0 shown, 1 not found, or shown but damaged, 2 wrong usage, or none of ours",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 1,
	};
	AUTO_CLOSE int fd = -1;
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	fd = open_incident(directory, argv[first]);
	if (fd < 0)
		return EXIT_TROUBLE;
	if (faccessat(fd, INCIDENT_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		refuse(argv[first], "no incident: there is no " INCIDENT_FILE " in it");
		return EXIT_USAGE;
	}
	return show(fd, json);
}
