/*
 * report.c: spikewatch report: one page that holds the incident, draws it, and gives its files back.
 *
 * The page is written under a temporary name beside its own and renamed: a page that is there is whole.
 */
#include "commands.h"
#include "incidentpick.h"
#include "options.h"
#include "output.h"
#include "plot.h"
#include "reporthtml.h"
#include "reportpage.h"
#include "scope.h"
#include "view.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* A page with a core dump in it would not be opened by any browser. */
#define FILE_BYTES_MAX ((uint64_t)32 << 20)
#define TMP_SUFFIX ".tmp"

/* What is written. */
struct job {
	struct view view;
	int incidentfd;
	uint64_t file_bytes_max;
	struct reportdata_files left_out;
};

static int put_page(struct job *job, const struct sink *sink)
{
	return reporthtml_write(&job->view, job->incidentfd, job->file_bytes_max, sink, &job->left_out);
}

/* A file that is there and is no plain one (a terminal, a pipe) cannot be replaced, only written. */
static bool replaceable(const char *path)
{
	struct stat st;

	return stat(path, &st) < 0 || S_ISREG(st.st_mode);
}

static int write_through(const char *path, struct job *job)
{
	AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
	struct sink sink = sink_fd(&fd);

	return fd < 0 ? -errno : put_page(job, &sink);
}

static int write_beside(const char *temporary, struct job *job)
{
	AUTO_CLOSE int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
	struct sink sink = sink_fd(&fd);
	int rc = fd < 0 ? -errno : put_page(job, &sink);

	if (rc == 0 && close(TAKE_FD(fd)) < 0)
		rc = -errno;
	return rc;
}

/* 0 or -errno. */
static int write_report(const char *path, struct job *job)
{
	struct sink out = output_sink();
	char temporary[PATH_MAX];
	int rc;

	if (strcmp(path, "-") == 0)
		return put_page(job, &out);
	if (!replaceable(path))
		return write_through(path, job);
	if (snprintf(temporary, sizeof(temporary), "%s" TMP_SUFFIX, path) >= (int)sizeof(temporary))
		return -ENAMETOOLONG;
	rc = write_beside(temporary, job);
	if (rc == 0 && rename(temporary, path) < 0)
		rc = -errno;
	if (rc < 0)
		unlink(temporary);
	return rc;
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

static int fail(const char *path, int error)
{
	if (ferror(stdout)) /* which is said when the program ends */
		return EXIT_TROUBLE;
	fputs("spikewatch report: ", stderr);
	output_escaped(stderr, path);
	fprintf(stderr, ": %s\n", strerror(-error));
	return EXIT_TROUBLE;
}

static int report(int fd, const char *path, uint64_t file_bytes_max)
{
	AUTO_FREE struct job *job = calloc(1, sizeof(*job));
	char named[INCIDENT_NAME_MAX + sizeof("incident.html")];
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
	rc = write_report(path, job);
	incidentload_samples_release(&job->view.samples);
	if (rc < 0)
		return rc == -ENOMEM ? output_no_memory() : fail(path, rc);
	say_where(path, &job->left_out);
	return job->view.glance.damaged ? EXIT_TROUBLE : EXIT_OK;
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
