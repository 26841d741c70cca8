/*
 * verify.c: spikewatch verify. An incident is checked against its MANIFEST, then read; a stream is read to its end. What is found is
 * collected first and printed afterwards, so that the verdict comes before its reasons and text and JSON say the same.
 */
#include "commands.h"
#include "incident_json.h"
#include "incidentload.h"
#include "incidentpick.h"
#include "json.h"
#include "jsonmember.h"
#include "manifest.h"
#include "options.h"
#include "output.h"
#include "salvage.h"
#include "scope.h"
#include "story.h"
#include "unsealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

/* A file with more damage than this is not described line by line. */
#define FINDINGS_MAX 100
#define READ_BYTES 65536

struct finding {
	uint64_t line; /* 0: of the whole */
	uint64_t rows_lost;
	char what[200]; /* may hold bytes of strangers */
};

/* About one path. */
struct verdict {
	const char *path;
	const char *kind; /* "incident", "stream", NULL: unknown */
	int code;         /* enum options_exit */
	bool open;        /* still being written: no more and no less is known */
	bool has_report;
	struct salvage_report report;
	struct finding findings[FINDINGS_MAX];
	uint64_t finding_count; /* may exceed what is kept */
};

__attribute__((format(printf, 4, 5))) static void find(struct verdict *verdict, uint64_t line, uint64_t rows_lost,
						       const char *format, ...)
{
	struct finding *finding;
	va_list args;

	if (verdict->code == EXIT_OK)
		verdict->code = EXIT_TROUBLE;
	if (verdict->finding_count++ >= FINDINGS_MAX)
		return;
	finding = &verdict->findings[verdict->finding_count - 1];
	finding->line = line;
	finding->rows_lost = rows_lost;
	va_start(args, format);
	vsnprintf(finding->what, sizeof(finding->what), format, args);
	va_end(args);
}

static void none_of_ours(struct verdict *verdict, const char *why)
{
	verdict->code = EXIT_USAGE;
	find(verdict, 0, 0, "%s", why);
}

/* ---- streams ---- */

static int on_damage(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	find(ctx, line, rows_lost, "%s", why);
	return 0;
}

static void free_salvage(struct salvage **salvage)
{
	salvage_free(*salvage);
}

/* 0 or -errno, -ENOMEM; everything up to an error was fed. */
static int feed(int fd, struct salvage *salvage)
{
	AUTO_FREE char *piece = malloc(READ_BYTES);

	if (!piece)
		return -ENOMEM;
	for (;;) {
		ssize_t len = read(fd, piece, READ_BYTES);
		int rc;

		if (len < 0 && errno == EINTR)
			continue;
		if (len <= 0)
			return len < 0 ? -errno : 0;
		rc = salvage_feed(salvage, piece, (size_t)len);
		if (rc < 0)
			return rc;
	}
}

static void verify_stream(struct verdict *verdict, int fd, const char *name)
{
	struct salvage_events events = { .damage = on_damage, .ctx = verdict };
	AUTO(free_salvage) struct salvage *salvage = NULL;
	struct salvage_report *report = &verdict->report;
	int rc;

	rc = salvage_new(&events, &salvage);
	if (rc == 0)
		rc = feed(fd, salvage);
	if (rc < 0)
		find(verdict, 0, 0, "%s cannot be read to its end: %s", name, strerror(-rc));
	if (!salvage || salvage_finish(salvage, report) < 0)
		return;
	verdict->has_report = true;
	if (!report->ours)
		return;
	if (!report->complete)
		find(verdict, 0, 0, "%s has no closing checksum: it was cut off, or is still being written", name);
	else if (!report->checksum_ok)
		find(verdict, 0, 0, "%s: the closing checksum does not agree", name);
	else if (!salvage_whole(report) && verdict->finding_count == 0)
		find(verdict, 0, 0, "%s is not whole", name);
}

static void verify_file(struct verdict *verdict, int fd)
{
	verdict->kind = "stream";
	verify_stream(verdict, fd, "the stream");
	if (verdict->has_report && !verdict->report.ours)
		none_of_ours(verdict, "there is no line of ours in it");
}

/* ---- incidents ---- */

static void on_fault(void *ctx, const char *name, enum manifest_fault fault)
{
	find(ctx, 0, 0, "%s: %s", name, manifest_fault_name(fault));
}

static void verify_manifest(struct verdict *verdict, int fd)
{
	int rc = manifest_verify(fd, on_fault, verdict);

	if (rc == -ENOENT)
		find(verdict, 0, 0, MANIFEST_NAME " is missing: the incident was never sealed");
	else if (rc == -EPROTONOSUPPORT)
		find(verdict, 0, 0, MANIFEST_NAME " is of a later version of spikewatch");
	else if (rc == -EBADMSG)
		find(verdict, 0, 0, MANIFEST_NAME " is damaged");
	else if (rc < 0)
		find(verdict, 0, 0, MANIFEST_NAME ": %s", strerror(-rc));
}

static void verify_description(struct verdict *verdict, int fd)
{
	struct incident incident;
	int rc = incident_json_read(fd, &incident);

	if (rc == -EPROTONOSUPPORT)
		find(verdict, 0, 0, INCIDENT_FILE " is of a later version of spikewatch");
	else if (rc == -EBADMSG || rc == -EFBIG)
		find(verdict, 0, 0, INCIDENT_FILE " is damaged");
	else if (rc < 0)
		find(verdict, 0, 0, INCIDENT_FILE ": %s", strerror(-rc));
}

static void verify_samples(struct verdict *verdict, int fd)
{
	AUTO_CLOSE int file = incidentload_open_file(fd, INCIDENT_SAMPLES_FILE);

	/* Not every incident has samples; one that should is missed by its MANIFEST. */
	if (file == -ENOENT)
		return;
	if (file < 0)
		find(verdict, 0, 0, INCIDENT_SAMPLES_FILE ": %s",
		     file == -EBADMSG ? "is no plain file" : strerror(-file));
	else
		verify_stream(verdict, file, INCIDENT_SAMPLES_FILE);
	if (verdict->has_report && !verdict->report.ours)
		find(verdict, 0, 0, INCIDENT_SAMPLES_FILE " holds no line of ours");
}

static void find_open(struct verdict *verdict, int fd)
{
	struct incident incident;
	char time[64];

	if (incident_json_read(fd, &incident) < 0)
		find(verdict, 0, 0, "nothing can be said of it yet");
	else
		find(verdict, 0, 0, "it fired %s; what it holds can be checked when it is sealed",
		     story_time(incident.wall, false, time, sizeof(time)));
}

static void verify_incident(struct verdict *verdict, int fd)
{
	if (faccessat(fd, MANIFEST_NAME, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
	    faccessat(fd, INCIDENT_FILE, F_OK, AT_SYMLINK_NOFOLLOW) < 0) {
		none_of_ours(verdict, "the directory holds neither " INCIDENT_FILE " nor " MANIFEST_NAME);
		return;
	}
	verdict->kind = "incident";
	verdict->open = unsealed_is_written(fd);
	if (verdict->open) {
		find_open(verdict, fd);
		return;
	}
	verify_manifest(verdict, fd);
	verify_description(verdict, fd);
	verify_samples(verdict, fd);
}

static void verify_path(struct verdict *verdict, const char *path)
{
	AUTO_CLOSE int fd = -1;
	struct stat st;

	*verdict = (struct verdict){ .path = path };
	if (strcmp(path, "-") == 0) {
		verify_file(verdict, STDIN_FILENO);
		return;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	if (fd < 0 && errno == ENOENT && !strchr(path, '/')) {
		if (incidentpick_any("spikewatch verify", NULL, path, &fd) != 0)
			none_of_ours(verdict, "there is no such file, and no such incident");
		else
			verify_incident(verdict, fd);
		return;
	}
	if (fd < 0 || fstat(fd, &st) < 0)
		none_of_ours(verdict, strerror(errno));
	else if (S_ISDIR(st.st_mode))
		verify_incident(verdict, fd);
	else
		verify_file(verdict, fd);
}

/* ---- telling ---- */

static const char *verdict_name(const struct verdict *verdict)
{
	if (verdict->open)
		return "being written";
	return verdict->code == EXIT_OK ? "whole" : verdict->code == EXIT_TROUBLE ? "damaged" : "not ours";
}

static void print_findings(const struct verdict *verdict)
{
	for (uint64_t i = 0; i < verdict->finding_count && i < FINDINGS_MAX; i++) {
		const struct finding *finding = &verdict->findings[i];

		printf("  ");
		if (finding->line)
			printf("line %ju: ", (uintmax_t)finding->line);
		output_escaped(stdout, finding->what);
		if (finding->rows_lost)
			printf(" (%ju %s lost)", (uintmax_t)finding->rows_lost,
			       finding->rows_lost == 1 ? "row" : "rows");
		putchar('\n');
	}
	if (verdict->finding_count > FINDINGS_MAX)
		printf("  and %ju more\n", (uintmax_t)(verdict->finding_count - FINDINGS_MAX));
}

static void print_text(const struct verdict *verdict)
{
	const struct salvage_report *report = &verdict->report;

	output_escaped(stdout, verdict->path);
	printf(": %s", verdict_name(verdict));
	if (verdict->has_report && report->ours) {
		printf(", %ju %s", (uintmax_t)report->rows, report->rows == 1 ? "row" : "rows");
		if (verdict->code != EXIT_OK)
			printf(" recovered, %ju known to be lost, %ju damaged lines", (uintmax_t)report->rows_lost,
			       (uintmax_t)report->damaged_lines);
		if (report->foreign_lines)
			printf(", %ju foreign lines skipped", (uintmax_t)report->foreign_lines);
	}
	putchar('\n');
	print_findings(verdict);
}

static void put_report(struct json_writer *json, const struct salvage_report *report)
{
	jsonmember_u64(json, "lines", report->lines);
	jsonmember_u64(json, "rows", report->rows);
	jsonmember_u64(json, "rows_lost", report->rows_lost);
	jsonmember_u64(json, "damaged_lines", report->damaged_lines);
	jsonmember_u64(json, "foreign_lines", report->foreign_lines);
	json_key(json, "complete");
	json_bool(json, report->complete);
	json_key(json, "checksum_ok");
	json_bool(json, report->checksum_ok);
}

static void put_findings(struct json_writer *json, const struct verdict *verdict)
{
	json_key(json, "findings");
	json_begin_array(json);
	for (uint64_t i = 0; i < verdict->finding_count && i < FINDINGS_MAX; i++) {
		json_begin_object(json);
		if (verdict->findings[i].line)
			jsonmember_u64(json, "line", verdict->findings[i].line);
		if (verdict->findings[i].rows_lost)
			jsonmember_u64(json, "rows_lost", verdict->findings[i].rows_lost);
		jsonmember_text(json, "what", verdict->findings[i].what);
		json_end_object(json);
	}
	json_end_array(json);
	jsonmember_u64(json, "findings_total", verdict->finding_count);
}

static void put_json(struct json_writer *json, const struct verdict *verdict)
{
	json_begin_object(json);
	jsonmember_text(json, "path", verdict->path);
	json_key(json, "kind");
	if (verdict->kind)
		json_string(json, verdict->kind);
	else
		json_null(json);
	jsonmember_text(json, "verdict", verdict_name(verdict));
	if (verdict->has_report)
		put_report(json, &verdict->report);
	put_findings(json, verdict);
	json_end_object(json);
}

int verify_command(int argc, char **argv)
{
	bool json_wanted = false, quiet = false;
	const struct option_spec options[] = {
		{ 0, "json", OPTION_FLAG, NULL, "the verdicts as a JSON array", &json_wanted },
		{ 'q', "quiet", OPTION_FLAG, NULL, "print nothing; the exit code says it", &quiet },
	};
	const struct options_usage usage = {
		.command = "spikewatch verify",
		.operands = "PATH...",
		.summary = "Says whether incidents and streams are whole, and if not, what was lost.",
		.description =
			"PATH is the directory of an incident, a file that holds a stream (a log in which it is\n"
			"mixed with other lines too), or - for the standard input. Without a slash, and if there\n"
			"is no such file, it is the id of an incident as spikewatch show takes it: \"last\" too.",
		.example = "spikewatch verify /var/lib/spikewatch/incidents/*\n"
			   "journalctl -o cat -u my.service | spikewatch verify -",
		.exits = "0 all whole, 1 something is damaged or still being written, 2 something is none of ours",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = -1,
	};
	AUTO_FREE struct verdict *verdict = malloc(sizeof(*verdict));
	AUTO(output_json_release) struct json_writer *json = NULL;
	int first, code = options_start(&usage, argc, argv, &first), worst = EXIT_OK;

	if (code >= 0)
		return code;
	if (!verdict || (json_wanted && !quiet && output_json_new(&json) < 0))
		return output_no_memory();

	if (json)
		json_begin_array(json);
	for (int i = first; i < argc; i++) {
		verify_path(verdict, argv[i]);
		if (verdict->code > worst)
			worst = verdict->code;
		if (json)
			put_json(json, verdict);
		else if (!quiet)
			print_text(verdict);
	}
	if (json)
		json_end_array(json);
	return worst;
}
