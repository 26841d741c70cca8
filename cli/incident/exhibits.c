/*
 * exhibits.c: what incident.json says of the captures is shown as it is; only the two looks at the memory are opened.
 */
#include "exhibits.h"

#include "growth.h"
#include "incidentload.h"
#include "output.h"
#include "plot.h"
#include "scope.h"
#include "table.h"
#include "units.h"

#include <string.h>

/* NULL: there is no such capture, or it has no file. */
static const struct incident_capture *find_capture(const struct incident *incident, const char *name)
{
	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];

		if (strcmp(capture->name, name) == 0 && capture->file[0] && !strchr(capture->file, '/'))
			return capture;
	}
	return NULL;
}

void exhibits_growth(const struct incident *incident, int incidentfd, size_t rows, size_t width, FILE *file)
{
	AUTO(buffer_release) struct buffer before = { .max = INCIDENTLOAD_CAPTURE_MAX };
	AUTO(buffer_release) struct buffer after = { .max = INCIDENTLOAD_CAPTURE_MAX };
	AUTO(buffer_release) struct buffer table = { 0 };
	const struct incident_capture *first = find_capture(incident, "smaps");
	const struct incident_capture *second = find_capture(incident, "smaps-again");
	char between[64] = "";
	size_t changes;

	if (!first || !second || incidentload_capture(incidentfd, first->file, &before) < 0 ||
	    incidentload_capture(incidentfd, second->file, &after) < 0 ||
	    growth_table(&before, &after, &table, &changes) < 0)
		return;
	if (first->has_at && second->has_at && second->at_ns > first->at_ns)
		units_format_duration(between, sizeof(between), (uint64_t)second->at_ns - (uint64_t)first->at_ns);
	fprintf(file, "\nBetween the two looks at its memory%s%s%s\n", *between ? " (" : "", between,
		*between ? " apart)" : "");
	if (changes == 0)
		fputs("  nothing has grown or shrunk\n", file);
	else
		table_print(table.data, table.len,
			    "rss_growth_bytes swap_growth_bytes rss_bytes permissions mapping pid remark", rows, width,
			    file);
}

/* What is particular to a command, and that it repeats another. */
static void print_run(const struct incident_capture *capture, FILE *file)
{
	char took[64];

	if (capture->has_exit)
		fprintf(file, ", exit status %d", capture->exit_status);
	if (capture->has_signal)
		fprintf(file, ", signal %d", capture->signal);
	if (capture->has_duration)
		fprintf(file, ", took %s", units_format_duration(took, sizeof(took), capture->duration_ns));
	if (capture->again_of[0]) {
		fputs(", again ", file);
		output_escaped(file, capture->again_of);
	}
}

void exhibits_list(const struct incident *incident, FILE *file)
{
	char size[64];

	if (incident->capture_count)
		fprintf(file, "\nEvidence\n");
	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];
		bool ok = capture->status == INCIDENT_CAPTURE_OK;

		fputs("  ", file);
		output_escaped(file, capture->file[0] ? capture->file : capture->name);
		if (capture->bytes || (ok && capture->file[0]))
			fprintf(file, ", %s", plot_value(PLOT_BYTES, (double)capture->bytes, size, sizeof(size)));
		print_run(capture, file);
		if (!ok)
			fprintf(file, ": %s", incident_capture_status_name(capture->status));
		if (capture->why[0]) {
			fputs(": ", file);
			output_escaped(file, capture->why);
		}
		fputc('\n', file);
	}
}
