/*
 * export.c: spikewatch export: an incident in a form that other programs read. Each form is a line in a table.
 */
#include "commands.h"
#include "exportfirefox.h"
#include "exporting.h"
#include "exportrows.h"
#include "exporttrace.h"
#include "incident_json.h"
#include "incidentload.h"
#include "incidentpick.h"
#include "options.h"
#include "outfile.h"
#include "output.h"
#include "restore.h"
#include "scope.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char command[] = "spikewatch export";

/* A file of the incident as it is. */
static int copy_file(const struct exporting *exporting, const char *name)
{
	AUTO_CLOSE int fd = incidentload_open_file(exporting->fd, name);
	char piece[16384];
	ssize_t len;

	if (fd == -ENOENT) {
		fprintf(stderr, "%s: the incident has no %s: no stacks were recorded\n", command, name);
		return EXPORTING_NOTHING;
	}
	if (fd < 0)
		return fd;
	while ((len = read(fd, piece, sizeof(piece))) != 0) {
		if (len < 0 && errno != EINTR)
			return -errno;
		if (len > 0 && fwrite(piece, 1, (size_t)len, exporting->out) != (size_t)len)
			return 0; /* the stream keeps the error */
	}
	return 0;
}

static int copy_pprof(const struct exporting *exporting)
{
	return copy_file(exporting, exporting->memory ? "memory.pb.gz" : "cpu.pb.gz");
}

static int copy_folded(const struct exporting *exporting)
{
	return copy_file(exporting, exporting->memory ? "memory.folded" : "cpu.folded");
}

static const struct form {
	const char *name;
	int (*write)(const struct exporting *exporting);
	bool binary;
	bool has_memory; /* --memory means something */
} forms[] = {
	{ "csv", exportrows_csv, false, false },         { "json", exportrows_json, false, false },
	{ "gvisor", exportrows_gvisor, false, false },   { "pprof", copy_pprof, true, true },
	{ "folded", copy_folded, false, true },          { "firefox", exportfirefox_write, false, true },
	{ "perfetto", exporttrace_write, false, false },
};

static int wrong(const char *name, const char *why)
{
	fprintf(stderr, "%s: %s %s\nTry '%s --help'.\n", command, name, why, command);
	return EXIT_USAGE;
}

static const struct form *find_form(const char *name)
{
	const char *names[ARRAY_LEN(forms)], *nearest;

	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		names[i] = forms[i].name;
		if (name && strcmp(name, forms[i].name) == 0)
			return &forms[i];
	}
	fprintf(stderr, "%s: ", command);
	if (name) {
		fprintf(stderr, "--format \"");
		output_escaped(stderr, name);
		fprintf(stderr, "\" is none; ");
	}
	nearest = name ? options_nearest(name, names, ARRAY_LEN(names)) : NULL;
	if (nearest)
		fprintf(stderr, "did you mean %s?", nearest);
	else
		fprintf(stderr, "--format is one of csv, json, gvisor, pprof, folded, firefox, perfetto");
	fprintf(stderr, "\nTry '%s --help'.\n", command);
	return NULL;
}

/* The code to exit with. */
static int write_form(const struct form *form, int fd, bool memory, FILE *out)
{
	AUTO_FREE struct incident *incident = malloc(sizeof(*incident));
	struct exporting exporting = {
		.fd = fd, .incident = incident, .out = out, .sink = output_sink(out), .memory = memory
	};
	int rc = incident ? incident_json_read(fd, incident) : -ENOMEM;

	if (rc < 0) {
		fprintf(stderr, "%s: " INCIDENT_FILE ": %s\n", command, rc == -EBADMSG ? "damaged" : strerror(-rc));
		return EXIT_TROUBLE;
	}
	rc = form->write(&exporting);
	if (rc == -ENOMEM)
		return output_no_memory();
	/* An error of the output is reported by who closes it. */
	if (rc < 0 && !ferror(out))
		fprintf(stderr, "%s: %s: %s\n", command, form->name, rc == -EBADMSG ? "damaged" : strerror(-rc));
	return rc == 0 ? EXIT_OK : EXIT_TROUBLE;
}

/* What is written where. */
struct job {
	const struct form *form;
	int fd;
	bool memory;
};

static int write_job(void *ctx, FILE *file, bool *keep)
{
	const struct job *job = ctx;

	(void)keep; /* of what failed nothing is */
	return write_form(job->form, job->fd, job->memory, file);
}

int export_command(int argc, char **argv)
{
	const char *directory = NULL, *format = NULL, *output = "-";
	bool memory = false;
	const struct option_spec options[] = {
		{ 'f', "format", OPTION_TEXT, "FORMAT",
		  "csv, json, gvisor: the samples; perfetto: the samples as a trace", &format },
		{ 0, "memory", OPTION_FLAG, NULL, "pprof, folded, firefox: of memory, not of CPU", &memory },
		{ 'o', "output", OPTION_TEXT, "FILE", "where to write; - for the standard output, the default",
		  &output },
		{ 'd', "directory", OPTION_TEXT, "DIR", "where incidents are; see spikewatch list --help", &directory },
	};
	const struct options_usage usage = {
		.command = command,
		.operands = "ID|PATH",
		.summary = "Writes an incident in a form that other programs read.",
		.description =
			"Also pprof, folded: the profile of stacks; firefox: it and the samples, for the Firefox\n"
			"Profiler (profiler.firefox.com, Load a profile from file).\n"
			"A page of spikewatch report, without a format, becomes the incident's directory "
			"again.\n" INCIDENTPICK_HELP,
		.example = "spikewatch export last --format firefox -o spike.json\n"
			   "spikewatch export last --format folded | flamegraph.pl > spike.svg",
		.exits = "0 written, 1 not found, or it does not have that, 2 wrong usage, or no incident",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 1,
	};
	AUTO_CLOSE int fd = -1;
	const struct form *form;
	int first, rc, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	/* A report has all of the incident in it. */
	if (!format && restore_is_page(argv[first]))
		return restore_page(command, argv[first], strcmp(output, "-") == 0 ? NULL : output);
	form = find_form(format);
	if (!form)
		return EXIT_USAGE;
	if (memory && !form->has_memory)
		return wrong(form->name, "is not of stacks: --memory is for pprof, folded and firefox");
	if (form->binary && strcmp(output, "-") == 0 && isatty(STDOUT_FILENO))
		return wrong(form->name, "is not for a terminal: --output FILE");
	rc = incidentpick(command, directory, argv[first], &fd);
	if (rc != 0)
		return rc == INCIDENTPICK_FOREIGN ? EXIT_USAGE : EXIT_TROUBLE;
	return outfile_write(&(struct outfile){
		.command = command,
		.path = output,
		.write = write_job,
		.ctx = &(struct job){ form, fd, memory },
	});
}
