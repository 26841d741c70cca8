/* report.c: spikewatch report: one page that holds the incident, draws it, and gives its files back. */
#include "commands.h"
#include "incidentpick.h"
#include "options.h"
#include "outfile.h"
#include "output.h"
#include "plot.h"
#include "reporthtml.h"
#include "reportpage.h"
#include "scope.h"
#include "view.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A page with a core dump in it would not be opened by any browser. */
#define FILE_BYTES_MAX ((uint64_t)32 << 20)

/* What is written. */
struct job {
	struct view view;
	int incidentfd;
	uint64_t file_bytes_max;
	struct reportdata_files left_out;
};

/* A page that shows damage is kept. */
static int write_page(void *ctx, FILE *file, bool *keep)
{
	struct job *job = ctx;
	struct sink sink = output_sink(file);
	int rc = reporthtml_write(&job->view, job->incidentfd, job->file_bytes_max, &sink, &job->left_out);

	*keep = rc == 0;
	if (rc == 0)
		return job->view.glance.damaged ? EXIT_TROUBLE : EXIT_OK;
	if (ferror(file)) /* which is said of the file */
		return EXIT_TROUBLE;
	if (rc == -ENOMEM)
		return output_no_memory();
	fprintf(stderr, "spikewatch report: %s\n", strerror(-rc));
	return EXIT_TROUBLE;
}

/* Progress is for people who watch. */
static void say_where(const char *path, const struct reportdata_files *left_out)
{
	char size[64];
	struct stat st;

	if (strcmp(path, "-") == 0 || stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	fputs("Written: ", stdout);
	output_escaped(stdout, path);
	printf(", %s\n", plot_value(PLOT_BYTES, (double)st.st_size, size, sizeof(size)));
	for (size_t i = 0; i < left_out->absent_count; i++) {
		fputs("Not in it: ", stdout);
		output_escaped(stdout, left_out->absent[i].name);
		printf(": %s\n", left_out->absent[i].why);
	}
}

static int report(int fd, const char *path, uint64_t file_bytes_max)
{
	AUTO_FREE struct job *job = calloc(1, sizeof(*job));
	char named[INCIDENT_NAME_MAX + sizeof("incident.html")];
	struct outfile out;
	int rc;

	if (!job)
		return output_no_memory();
	job->incidentfd = fd;
	job->file_bytes_max = file_bytes_max;
	rc = view_load(fd, &job->view);
	if (rc < 0)
		return output_no_memory();
	if (!path) {
		/* An id that was tampered with must not lead elsewhere. */
		snprintf(named, sizeof(named), "%s.html",
			 incident_name_ok(job->view.incident.id) ? job->view.incident.id : "incident");
		path = named;
	}
	out = (struct outfile){ .command = "spikewatch report", .path = path, .write = write_page, .ctx = job };
	rc = outfile_write(&out);
	incidentload_samples_release(&job->view.samples);
	if (out.kept)
		say_where(path, &job->left_out);
	return rc;
}

static int refuse_unbuilt(void)
{
	fputs("spikewatch report: this spikewatch was built without reports: there was no npm then. Everything else "
	      "works;\n"
	      "spikewatch show says the same in text, and spikewatch export hands out its files.\n",
	      stderr);
	return EXIT_TROUBLE;
}

int report_command(int argc, char **argv)
{
	const char *directory = NULL, *path = NULL;
	uint64_t file_bytes_max = FILE_BYTES_MAX;
	const struct option_spec options[] = {
		{ 'o', "output", OPTION_TEXT, "FILE", "where to; default: ID.html, here; -: standard output", &path },
		{ 0, "max-file", OPTION_SIZE, "SIZE", "leave out larger files; default 32MiB", &file_bytes_max },
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are; see spikewatch list --help", &directory },
	};
	const struct options_usage usage = {
		.command = "spikewatch report",
		.operands = "ID|PATH",
		.summary = "Writes one incident as a page of HTML that opens anywhere, offline.",
		.description =
			INCIDENTPICK_HELP "\nThe page holds the incident's files; spikewatch export restores them.",
		.example = "spikewatch report last -o ticket-4711.html",
		.exits = "0 written, 1 not found, damaged (but written), or built without npm, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 1,
	};
	AUTO_CLOSE int fd = -1;
	int first, rc, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	if (!reportpage_built())
		return refuse_unbuilt();
	rc = incidentpick(usage.command, directory, argv[first], &fd);
	if (rc != 0)
		return rc == INCIDENTPICK_FOREIGN ? EXIT_USAGE : EXIT_TROUBLE;
	return report(fd, path, file_bytes_max);
}
