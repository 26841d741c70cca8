/*
 * diff.c: spikewatch diff: two incidents, or what was earlier and what was later of one. Stacks are read again for --folded and --html: the tables
 * come from other, smaller files.
 */
#include "commands.h"
#include "differencehtml.h"
#include "foldpair.h"
#include "incidentpick.h"
#include "options.h"
#include "outfile.h"
#include "output.h"
#include "plot.h"
#include "reportpage.h"
#include "scope.h"
#include "stackfold.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ROWS_DEFAULT 10

static const char command[] = "spikewatch diff";

/* What is to be done. */
struct job {
	int fd[CONTRAST_SIDES]; /* the second is -1: there is one incident only */
	const char *name[CONTRAST_SIDES];
	enum difference_phase phase;
	bool memory, json, folded, html, scale;
	uint64_t rows;
};

static int wrong(const char *why)
{
	fprintf(stderr, "%s: %s\nTry '%s --help'.\n", command, why, command);
	return EXIT_USAGE;
}

/* ---- stacks ---- */

/* The stacks of both sides. */
struct sides {
	struct buffer text[CONTRAST_SIDES];
};

static void release_sides(struct sides *sides)
{
	for (size_t i = 0; i < CONTRAST_SIDES; i++)
		buffer_release(&sides->text[i]);
}

static int complain_file(const struct job *job, size_t side, const char *file, int rc)
{
	fprintf(stderr, "%s: ", command);
	output_escaped(stderr, job->name[job->fd[side] < 0 ? 0 : side]);
	fprintf(stderr, "/%s: %s\n", file,
		rc == -EBADMSG  ? "damaged"
		: rc == -ENOENT ? "not there: no stacks were recorded"
				: strerror(-rc));
	return rc;
}

/* Of profiles. -ENOENT: one has none, and nothing was said. Other errors are. */
static int read_profiles(const struct job *job, const struct difference *difference, bool memory, struct sides *ret)
{
	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		int fd = job->fd[side] < 0 ? job->fd[0] : job->fd[side];
		int rc = stackfold_read(fd, memory, difference_phases(difference, side), &ret->text[side]);

		if (rc == -ENOENT || rc == -ENOMEM)
			return rc;
		if (rc < 0)
			return complain_file(job, side, stackfold_profile(memory), rc);
	}
	return 0;
}

/* Of the folded files, which do not say when. */
static int read_folded(const struct job *job, bool memory, bool quiet, struct sides *ret)
{
	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		int rc = job->fd[side] < 0 ? -ENOENT : stackfold_read_folded(job->fd[side], memory, &ret->text[side]);

		if (rc == -ENOMEM || (rc == -ENOENT && quiet))
			return rc;
		if (rc < 0)
			return complain_file(job, side, stackfold_folded(memory), rc);
	}
	return 0;
}

/* 0; -ENOENT: a side has none; -ENOMEM; other errors were said. quiet: do not say -ENOENT. */
static int read_sides(const struct job *job, const struct difference *difference, bool memory, bool quiet,
		      struct sides *ret)
{
	int rc = read_profiles(job, difference, memory, ret);

	if (rc != -ENOENT)
		return rc;
	release_sides(ret);
	rc = read_folded(job, memory, quiet, ret);
	if (rc == 0 && difference->phase != DIFFERENCE_ALL)
		fprintf(stderr, "%s: not both have a %s: stacks are those of before and during together\n", command,
			stackfold_profile(memory));
	return rc;
}

static int write_folded(const struct job *job, const struct difference *difference, FILE *file)
{
	AUTO(release_sides) struct sides sides = { 0 };
	const struct sink sink = output_sink(file);
	int rc = read_sides(job, difference, job->memory, false, &sides);

	if (rc == 0)
		rc = foldpair_write(&sides.text[CONTRAST_A], &sides.text[CONTRAST_B], job->scale, &sink);
	if (rc == -ENOMEM)
		return output_no_memory();
	return rc == 0 ? EXIT_OK : EXIT_TROUBLE;
}

/* ---- the page ---- */

/* Into *ret. 0, also if there are none: *ret_there says so; -ENOMEM; other errors were said. */
static int pair_stacks(const struct job *job, const struct difference *difference, bool memory, struct buffer *ret,
		       bool *ret_there)
{
	AUTO(release_sides) struct sides sides = { 0 };
	struct sink sink = sink_buffer(ret);
	int rc = read_sides(job, difference, memory, true, &sides);

	*ret_there = rc == 0;
	if (rc == 0)
		return foldpair_write(&sides.text[CONTRAST_A], &sides.text[CONTRAST_B], false, &sink);
	return rc == -ENOENT ? 0 : rc;
}

/* 0 or -ENOMEM. Stacks that are damaged make the difference damaged. */
static int write_html(const struct job *job, struct difference *difference, FILE *file)
{
	AUTO(buffer_release) struct buffer cpu = { 0 };
	AUTO(buffer_release) struct buffer memory = { 0 };
	const struct sink sink = output_sink(file);
	struct differencehtml_stacks stacks;
	bool has_cpu = false, has_memory = false;
	int rc = pair_stacks(job, difference, false, &cpu, &has_cpu);

	difference->damaged |= rc < 0;
	if (rc != -ENOMEM)
		rc = pair_stacks(job, difference, true, &memory, &has_memory);
	if (rc == -ENOMEM)
		return rc;
	difference->damaged |= rc < 0;
	stacks = (struct differencehtml_stacks){ has_cpu ? &cpu : NULL, has_memory ? &memory : NULL };
	rc = differencehtml_write(difference, &stacks, &sink);
	return rc == -ENOMEM ? rc : 0; /* the stream keeps its errors */
}

/* ---- tables ---- */

static void close_json(struct json_writer **json)
{
	json_writer_close(*json);
}

/* 0 or -ENOMEM. */
static int write_json(const struct job *job, const struct difference *difference, FILE *file)
{
	AUTO(close_json) struct json_writer *json = NULL;
	int rc = json_writer_new(output_sink(file), true, &json);

	if (rc == 0) {
		json_begin_object(json);
		difference_json(difference, job->rows == UINT64_MAX ? DIFFERENCE_ROWS_ALL : (size_t)job->rows, json);
		json_end_object(json);
		rc = json_writer_close(TAKE(json));
	}
	return rc == -ENOMEM ? rc : 0;
}

/* 0 or -ENOMEM. */
static int write_text(const struct job *job, const struct difference *difference, FILE *file)
{
	struct plot_style style;

	plot_style_detect(file, &style);
	return difference_print(difference, job->memory, job->rows == UINT64_MAX ? ROWS_DEFAULT : (size_t)job->rows,
				style.width, file);
}

/* ---- all of it ---- */

static void free_difference(struct difference **difference)
{
	if (*difference)
		difference_release(*difference);
	free(*difference);
}

static int write_any(void *ctx, FILE *file, bool *keep)
{
	const struct job *job = ctx;
	AUTO(free_difference) struct difference *difference = calloc(1, sizeof(*difference));
	int rc;

	if (!difference)
		return output_no_memory();
	difference->phase = job->phase;
	if (job->folded) {
		difference->one = job->fd[1] < 0;
		return write_folded(job, difference, file);
	}
	if (difference_load(job->fd[0], job->fd[1], difference) < 0)
		return output_no_memory();
	rc = job->html   ? write_html(job, difference, file)
	     : job->json ? write_json(job, difference, file)
			 : write_text(job, difference, file);
	if (rc < 0)
		return output_no_memory();
	*keep = true;
	for (size_t i = 0; i < difference->notes && difference->damaged && (job->json || job->html); i++)
		fprintf(stderr, "%s: %s\n", command, difference->note[i]);
	return difference->damaged || !difference_any(difference) ? EXIT_TROUBLE : EXIT_OK;
}

static bool find_phase(const char *name, enum difference_phase *ret)
{
	const char *names[DIFFERENCE_PHASES], *nearest;

	for (unsigned i = 0; i < DIFFERENCE_PHASES; i++) {
		names[i] = difference_phase_name(i);
		if (strcmp(name, names[i]) == 0) {
			*ret = i;
			return true;
		}
	}
	nearest = options_nearest(name, names, DIFFERENCE_PHASES);
	fprintf(stderr, "%s: --phase \"", command);
	output_escaped(stderr, name);
	fprintf(stderr, "\" is none; %s%s\nTry '%s --help'.\n",
		nearest ? "did you mean " : "it is during, before or all", nearest ? nearest : "", command);
	return false;
}

/* -1: nothing is wrong. */
static int check(const struct job *job, const char *phase, const char *output, bool one)
{
	if (job->json + job->folded + job->html > 1)
		return wrong("only one of --json, --folded and --html");
	if (job->scale && !job->folded)
		return wrong("--normalize is for --folded");
	if (phase && one)
		return wrong("--phase is for two incidents: of one, before is compared with during");
	if (job->html && strcmp(output, "-") == 0 && isatty(STDOUT_FILENO))
		return wrong("--html is not for a terminal: --output FILE");
	return -1;
}

static int run(struct job *job, const char *directory, const char *output)
{
	AUTO_CLOSE int first = -1;
	AUTO_CLOSE int second = -1;
	struct outfile out = { .command = command, .path = output, .write = write_any, .ctx = job };
	int rc = incidentpick(command, directory, job->name[0], &first);

	if (rc == 0 && job->name[1])
		rc = incidentpick(command, directory, job->name[1], &second);
	if (rc != 0)
		return rc == INCIDENTPICK_FOREIGN ? EXIT_USAGE : EXIT_TROUBLE;
	if (job->html && !reportpage_built()) {
		fprintf(stderr, "%s: this spikewatch was built without reports, so --html is not there; the rest is\n",
			command);
		return EXIT_TROUBLE;
	}
	job->fd[0] = first;
	job->fd[1] = second;
	return outfile_write(&out);
}

int diff_command(int argc, char **argv)
{
	const char *directory = NULL, *output = "-", *phase = NULL;
	struct job job = { .rows = UINT64_MAX };
	const struct option_spec options[] = {
		{ 0, "phase", OPTION_TEXT, "PHASE", "stacks of two: during (the spike; default), before, all", &phase },
		{ 0, "memory", OPTION_FLAG, NULL, "stacks of memory first; with --folded no others", &job.memory },
		{ 'n', "rows", OPTION_NUMBER, "COUNT", "at most so many of each table; default 10", &job.rows },
		{ 0, "json", OPTION_FLAG, NULL, "as JSON; every row unless -n says otherwise", &job.json },
		{ 0, "folded", OPTION_FLAG, NULL, "stacks with two counts a line, for flamegraph.pl", &job.folded },
		{ 0, "normalize", OPTION_FLAG, NULL, "with --folded: scale A's counts to as many as B's", &job.scale },
		{ 0, "html", OPTION_FLAG, NULL, "as a page with flame graphs; needs --output", &job.html },
		{ 'o', "output", OPTION_TEXT, "FILE", "where to write; - for the standard output, the default",
		  &output },
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are; see spikewatch list --help", &directory },
	};
	const struct options_usage usage = {
		.command = command,
		.operands = "A [B]",
		.summary = "Says which functions, threads and mappings grew from incident A to B.",
		.description = "Of A alone: before its spike and during it, its first look and its second.\n"
			       "A and B are names of incidents, parts of them, \"last\", or paths with a slash.",
		.example = "spikewatch diff cpu-high-1 last\n"
			   "spikewatch diff cpu-high-1 last --folded | flamegraph.pl > diff.svg",
		.exits = "0 compared, 1 not found, damaged, or nothing to compare, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 2,
	};
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	job.name[0] = argv[first];
	job.name[1] = first + 1 < argc ? argv[first + 1] : NULL;
	code = check(&job, phase, output, !job.name[1]);
	if (code >= 0)
		return code;
	if (phase && !find_phase(phase, &job.phase))
		return EXIT_USAGE;
	return run(&job, directory, output);
}
