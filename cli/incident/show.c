/*
 * show.c: spikewatch show: what happened in words first, then in pictures, then in numbers.
 *
 * Everything is loaded before the first line is printed. Parts that are missing are left out and named: an incident that has lost its
 * samples still says what fired.
 */
#include "commands.h"
#include "incidentload.h"
#include "incidentpick.h"
#include "options.h"
#include "output.h"
#include "plot.h"
#include "view.h"
#include "scope.h"

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
		.description = INCIDENTPICK_HELP
		"\n"
		"NO_COLOR and COLUMNS are honoured; pictures are ASCII where the locale is not UTF-8.",
		.example = "spikewatch show last\nspikewatch show ./20261120T031502.123Z-postgres_812-cpu-high-1",
		.exits = "0 shown, also as far as it is written, 1 not found, or shown but damaged,\n"
			 "2 wrong usage, or none of ours",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 1,
	};
	AUTO_CLOSE int fd = -1;
	int first, rc, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	rc = incidentpick_any(usage.command, directory, argv[first], &fd);
	if (rc != 0)
		return rc == INCIDENTPICK_FOREIGN ? EXIT_USAGE : EXIT_TROUBLE;
	return show(fd, json);
}
