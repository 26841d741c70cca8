/*
 * profiles.c: two readers of an incident's stacks.
 *
 * stack_fold makes a line of each sample of the profile; folded_diff adds up equal ones. Rejected:
 * the folded stacks of lib/profile, which escape: names in the profile are escaped already.
 *
 * functions makes a ranking for each phase in one walk over the file, and lists both: a function
 * that was seen in one phase only has zeros in the other. Other processes are ranked separately: on
 * a busy machine they would displace the functions of the incident's target.
 */
#include "cli/incident/profiles.h"

#include "cli/base/output.h"
#include "cli/incident/incident_load.h"
#include "lib/base/base.h"
#include "lib/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* ---- folded stacks ---- */

/* Larger files are not read. */
#define FILE_MAX ((size_t)256 << 20)

/* Of lines. */
#define LINES_MAX ((size_t)1 << 30)

struct folding {
	const struct pprof_read_profile *profile;
	struct buffer *lines;
	struct buffer name;
};

static void release_folding(struct folding *folding)
{
	buffer_release(&folding->name);
}

/* A semicolon, which separates frames, is escaped. */
static int put_frame_name(struct folding *folding)
{
	const char *at = folding->name.data, *end = at + folding->name.len;
	int rc = 0;

	while (at < end && rc == 0) {
		const char *semicolon = memchr(at, ';', (size_t)(end - at)), *stop = semicolon ? semicolon : end;

		rc = buffer_append(folding->lines, at, (size_t)(stop - at));
		if (semicolon && rc == 0)
			rc = buffer_append(folding->lines, "\\x3b", 4);
		at = stop + 1;
	}
	return rc;
}

static int push_frame(struct folding *folding, const char *open, const struct pprof_read_text *text, const char *close)
{
	struct buffer *name = &folding->name;
	int rc;

	name->len = 0;
	rc = buffer_append(name, open, strlen(open));
	if (rc == 0)
		rc = clean_text_append(name, text->at, text->len);
	if (rc == 0)
		rc = buffer_append(name, close, strlen(close));
	if (rc == 0 && name->len == 0)
		rc = buffer_append(name, "?", 1);
	if (rc == 0)
		rc = put_frame_name(folding);
	return rc == 0 ? buffer_append(folding->lines, ";", 1) : rc;
}

/* "[libc.so.6]", for a place in a file without symbols. */
static int push_mapping(struct folding *folding, uint32_t mapping)
{
	const struct pprof_read_profile *profile = folding->profile;
	struct pprof_read_text file = { "unknown", strlen("unknown") };
	const char *slash;

	if (mapping > 0 && profile->strings[profile->mappings[mapping - 1].file].len > 0)
		file = profile->strings[profile->mappings[mapping - 1].file];
	slash = memrchr(file.at, '/', file.len);
	if (slash)
		file = (struct pprof_read_text){ slash + 1, file.len - (size_t)(slash + 1 - file.at) };
	if (file.len > 0 && file.at[0] == '[')
		return push_frame(folding, "", &file, "");
	return push_frame(folding, "[", &file, "]");
}

static int push_location(struct folding *folding, const struct pprof_read_location *location)
{
	const struct pprof_read_profile *profile = folding->profile;
	int rc = 0;

	if (location->line_count == 0)
		return push_mapping(folding, location->mapping);
	/* The innermost of inlined functions is the first. */
	for (uint32_t n = location->line_count; n > 0 && rc == 0; n--) {
		uint32_t function = profile->lines[location->line_first + n - 1].function;

		rc = function ? push_frame(folding, "", &profile->strings[profile->functions[function - 1].name], "")
			      : push_mapping(folding, location->mapping);
	}
	return rc;
}

static int push_stack(struct folding *folding, const struct pprof_read_sample *sample, uint64_t count)
{
	static const struct pprof_read_text unnamed;
	const struct pprof_read_profile *profile = folding->profile;
	const struct pprof_read_label *process = pprof_read_label(profile, sample, "process");
	char text[32];
	int rc = push_frame(folding, "", process ? &profile->strings[process->text] : &unnamed, "");

	for (uint32_t i = sample->frame_count; i > 0 && rc == 0; i--)
		rc = push_location(folding, &profile->locations[profile->frames[sample->frame_first + i - 1]]);
	if (rc < 0)
		return rc;
	folding->lines->len--; /* the last semicolon */
	return buffer_append(folding->lines, text, (size_t)snprintf(text, sizeof(text), " %" PRIu64 "\n", count));
}

static bool has_label(const struct pprof_read_profile *profile, const struct pprof_read_sample *sample, const char *key,
		      const char *value)
{
	const struct pprof_read_label *label = pprof_read_label(profile, sample, key);
	const struct pprof_read_text *text = label ? &profile->strings[label->text] : NULL;

	return text && text->len == strlen(value) && memcmp(text->at, value, text->len) == 0;
}

enum function_table_phase stack_fold_phase(const struct pprof_read_profile *profile,
					   const struct pprof_read_sample *sample)
{
	return has_label(profile, sample, "phase", "before") ? FUNCTION_TABLE_BEFORE : FUNCTION_TABLE_DURING;
}

bool stack_fold_is_target(const struct pprof_read_profile *profile, const struct pprof_read_sample *sample)
{
	return !has_label(profile, sample, "target", "no");
}

int stack_fold_open(int incidentfd, bool memory, struct pprof_read **ret)
{
	AUTO(buffer_release) struct buffer bytes = { .max = FILE_MAX };
	int rc = incident_load_whole(incidentfd, stack_fold_profile(memory), &bytes);

	return rc < 0 ? rc : pprof_read_new(bytes.data, bytes.len, NULL, ret);
}

int stack_fold_read(int incidentfd, bool memory, unsigned phases, struct buffer *ret)
{
	AUTO(pprof_read_freep) struct pprof_read *reader = NULL;
	AUTO(release_folding) struct folding folding = { 0 };
	const struct pprof_read_profile *profile;
	int value, rc = stack_fold_open(incidentfd, memory, &reader);

	if (rc < 0)
		return rc;
	profile = pprof_read_profile(reader);
	folding.profile = profile;
	folding.lines = ret;
	ret->max = LINES_MAX;
	value = memory ? pprof_read_value(profile, "memory", "bytes") : pprof_read_value(profile, "samples", "count");
	if (value < 0)
		return -EBADMSG;
	for (uint32_t i = 0; i < profile->sample_count && rc == 0; i++) {
		const struct pprof_read_sample *sample = &profile->samples[i];

		if (sample->values[value] > 0 && (phases >> stack_fold_phase(profile, sample) & 1u) &&
		    (!(phases & STACK_FOLD_TARGET) || stack_fold_is_target(profile, sample)))
			rc = push_stack(&folding, sample, (uint64_t)sample->values[value]);
	}
	return rc;
}

int stack_fold_read_folded(int incidentfd, bool memory, struct buffer *ret)
{
	uint64_t sum;
	int rc;

	ret->max = FILE_MAX;
	rc = incident_load_whole(incidentfd, stack_fold_folded(memory), ret);
	return rc == 0 && !folded_diff_check(ret, &sum) ? -EBADMSG : rc;
}

/* ---- functions as text: narrow lines have only totals and the name ---- */

#define WIDTH_FULL 70   /* narrower lines have only totals and names */
#define WIDE 100        /* from here on there is room for long names */
#define SHARE_MAX 999.9 /* a damaged file may have more samples in a function than in all */

/* Numbers and the space after them. */
#define AMOUNT_WIDTH 6
#define NUMBERS_WIDTH (2 * (AMOUNT_WIDTH + 1 + AMOUNT_WIDTH + 2))
#define NARROW_WIDTH (AMOUNT_WIDTH + 1 + AMOUNT_WIDTH + 2)
#define TID_WIDTH 7

#define CAPTURES 3 /* that these stacks come from */

static const struct {
	const char *title, *of, *threads;
	const char *captures[CAPTURES];
} text_forms[] = {
	[FUNCTION_TABLE_IN_SAMPLES] = {
		.title = "Hottest functions",
		.of = "percent of its own samples",
		.threads = "Threads that used the CPU (percent of its own samples)",
		.captures = { "stacks", "stacks-folded", "functions" },
	},
	[FUNCTION_TABLE_IN_BYTES] = {
		.title = "What made memory grow",
		.of = "bytes that it touched for the first time",
		.threads = "Threads that touched new memory (bytes)",
		.captures = { "memory-stacks", "memory-folded", "memory-functions" },
	},
};

/* "990", "120.5 MiB" */
static const char *amount_text(enum function_table_unit unit, uint64_t amount, char *buf, size_t cap)
{
	if (unit == FUNCTION_TABLE_IN_BYTES)
		return units_format(buf, cap, UNIT_BYTES, (double)amount, UNITS_COLUMN);
	snprintf(buf, cap, "%" PRIu64, amount);
	return buf;
}

static void print_share(uint64_t part, uint64_t all, FILE *file)
{
	double share = all > 0 ? 100 * (double)part / (double)all : 0;

	if (all > 0)
		fprintf(file, "%*.1f", AMOUNT_WIDTH, share < SHARE_MAX ? share : SHARE_MAX);
	else
		fprintf(file, "%*s", AMOUNT_WIDTH, "-");
}

/* Of own rows the share of what is its own, of other processes that of all. */
static void print_amount(const struct functions *functions, const struct functions_row *row, uint64_t amount,
			 enum function_table_phase phase, FILE *file)
{
	char size[UNITS_TEXT_MAX];

	if (functions->unit == FUNCTION_TABLE_IN_BYTES)
		fprintf(file, "%*s", AMOUNT_WIDTH,
			units_format(size, sizeof(size), UNIT_BYTES, (double)amount, UNITS_NARROW));
	else
		print_share(amount, (row->neighbour ? functions->sum : functions->own)[phase], file);
}

static void print_pair(const struct functions *functions, const struct functions_row *row,
		       const uint64_t amount[static FUNCTION_TABLE_PHASES], FILE *file)
{
	print_amount(functions, row, amount[FUNCTION_TABLE_BEFORE], FUNCTION_TABLE_BEFORE, file);
	fputc(' ', file);
	print_amount(functions, row, amount[FUNCTION_TABLE_DURING], FUNCTION_TABLE_DURING, file);
	fputs("  ", file);
}

struct cells {
	const char *function, *module;
	char thread[FUNCTIONS_NAME_MAX + 64];
};

static void make_cells(const struct functions_row *row, struct cells *ret)
{
	const char *slash = strrchr(row->module, '/');
	uint64_t all =
		row->total[row->total[FUNCTION_TABLE_DURING] > 0 ? FUNCTION_TABLE_DURING : FUNCTION_TABLE_BEFORE];
	size_t used;

	ret->function = row->function;
	ret->module = row->neighbour ? "" : slash && slash[1] ? slash + 1 : row->module;
	ret->thread[0] = '\0';
	if (!row->thread[0])
		return;
	used = (size_t)snprintf(ret->thread, sizeof(ret->thread), row->tid ? "%s/%jd" : "%s", row->thread,
				(intmax_t)row->tid);
	if (row->top_amount < all && used < sizeof(ret->thread))
		snprintf(ret->thread + used, sizeof(ret->thread) - used, ", %.0f %%",
			 100 * (double)row->top_amount / (double)all);
}

/* The widest of a column, but no more than max. */
static size_t widest_of(size_t width, const char *text, size_t max)
{
	size_t have = output_characters(text, strlen(text));

	have = have > width ? have : width;
	return have < max ? have : max;
}

static void print_numbers(const struct functions *functions, const struct functions_row *row, FILE *file)
{
	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++) {
		print_amount(functions, row, row->self[p], p, file);
		fputc(' ', file);
		print_amount(functions, row, row->total[p], p, file);
		fputs("  ", file);
	}
}

static void print_names(const struct cells *cells, const struct output_names *names, const size_t width[static 3],
			FILE *file)
{
	output_fit_among(cells->function, names, width[0], OUTPUT_CUT_DOTS | OUTPUT_PAD_RIGHT, file);
	fputs("  ", file);
	output_fit(cells->module, width[1], OUTPUT_CUT_DOTS | OUTPUT_PAD_RIGHT, file);
	fputs("  ", file);
	output_fit(cells->thread, width[2], OUTPUT_CUT_DOTS, file);
	fputc('\n', file);
}

/* Those of the functions that are listed. */
struct listed {
	const char *name[ARRAY_LEN(((struct functions *)0)->row)];
	struct output_names names;
};

static const struct output_names *list_names(const struct functions_row *rows, size_t count, struct listed *ret)
{
	for (size_t i = 0; i < count; i++)
		ret->name[i] = rows[i].function;
	ret->names = (struct output_names){ ret->name, count };
	return &ret->names;
}

/* Of function, module and thread. */
static void measure_columns(const struct functions *functions, size_t line, const struct cells *head,
			    size_t ret[static 3])
{
	size_t left;

	ret[0] = widest_of(0, head->function, FUNCTIONS_NAME_MAX);
	ret[1] = widest_of(0, head->module, FUNCTIONS_NAME_MAX);
	ret[2] = widest_of(0, head->thread, FUNCTIONS_NAME_MAX);
	for (size_t i = 0; i < functions->count; i++) {
		struct cells cells;

		make_cells(&functions->row[i], &cells);
		ret[0] = widest_of(ret[0], cells.function, FUNCTIONS_NAME_MAX);
		ret[1] = widest_of(ret[1], cells.module, line < WIDE ? 12 : 24);
		ret[2] = widest_of(ret[2], cells.thread, line < WIDE ? 18 : 30);
	}
	left = line - NUMBERS_WIDTH - 4 - ret[1];
	/* On narrow lines the thread is cut before the function, but not completely. */
	if (left < 16 + ret[2])
		ret[2] = left - 16 > 8 ? left - 16 : 8;
	if (ret[0] > left - ret[2])
		ret[0] = left - ret[2];
}

/* Before the first row of another process. */
static void print_heading(const struct functions *functions, const struct functions_row *rows, size_t i, FILE *file)
{
	if (!rows[i].neighbour || (i > 0 && rows[i - 1].neighbour))
		return;
	fputs(functions->unit == FUNCTION_TABLE_IN_BYTES ? "other processes:\n" : "other processes (percent of all):\n",
	      file);
}

static void print_full(const struct functions *functions, size_t line, FILE *file)
{
	const struct cells head = { "function", "module", "busiest thread" };
	struct listed listed;
	const struct output_names *names = list_names(functions->row, functions->count, &listed);
	struct cells cells;
	size_t width[3];

	measure_columns(functions, line, &head, width);
	fprintf(file, "%13s  %13s\n%6s %6s  %6s %6s  ", "before", "during", "self", "total", "self", "total");
	print_names(&head, names, width, file);
	for (size_t i = 0; i < functions->count; i++) {
		print_heading(functions, functions->row, i, file);
		print_numbers(functions, &functions->row[i], file);
		make_cells(&functions->row[i], &cells);
		print_names(&cells, names, width, file);
	}
}

static void print_narrow(const struct functions *functions, size_t line, FILE *file)
{
	struct listed listed;
	const struct output_names *names = list_names(functions->row, functions->count, &listed);

	fprintf(file, "%6s %6s  function\n", "before", "during");
	for (size_t i = 0; i < functions->count; i++) {
		print_heading(functions, functions->row, i, file);
		print_pair(functions, &functions->row[i], functions->row[i].total, file);
		output_fit_among(functions->row[i].function, names, line - NARROW_WIDTH, OUTPUT_CUT_DOTS, file);
		fputc('\n', file);
	}
}

/* "postgres/812" */
static const char *process_text(const struct functions_row *row, char *buf, size_t cap)
{
	snprintf(buf, cap, row->pid ? "%s/%jd" : "%s", row->process, (intmax_t)row->pid);
	return buf;
}

/* Nothing for spikewatch itself, which is several. */
static void print_thread_id(const struct functions_row *row, int width, FILE *file)
{
	if (row->tid)
		fprintf(file, "%*jd  ", width, (intmax_t)row->tid);
	else
		fprintf(file, "%*s  ", width, "");
}

static void print_threads(const struct functions *functions, size_t line, FILE *file)
{
	size_t left = line - NARROW_WIDTH - TID_WIDTH - 2, width = strlen("thread");
	bool with_process = line >= WIDTH_FULL;
	unsigned fit = with_process ? OUTPUT_CUT_DOTS | OUTPUT_PAD_RIGHT : OUTPUT_CUT_DOTS;

	if (functions->thread_count == 0)
		return;
	for (size_t i = 0; i < functions->thread_count; i++)
		width = widest_of(width, functions->thread[i].thread, with_process ? left / 2 : left);
	fputc('\n', file);
	output_wrap(text_forms[functions->unit].threads, line, file);
	fprintf(file, "%6s %6s  %*s  ", "before", "during", TID_WIDTH, "tid");
	output_fit("thread", width, fit, file);
	fputs(with_process ? "  process\n" : "\n", file);
	for (size_t i = 0; i < functions->thread_count; i++) {
		const struct functions_row *row = &functions->thread[i];
		char process[FUNCTIONS_NAME_MAX + 32];

		print_heading(functions, functions->thread, i, file);
		print_pair(functions, row, row->self, file);
		print_thread_id(row, TID_WIDTH, file);
		output_fit(row->thread[0] ? row->thread : row->tid ? "?" : "", width, fit, file);
		if (with_process) {
			fputs("  ", file);
			output_fit(process_text(row, process, sizeof(process)), left - width - 2, OUTPUT_CUT_DOTS,
				   file);
		}
		fputc('\n', file);
	}
}

static void print_advice(const struct functions *functions, size_t width, FILE *file)
{
	if (functions->advice[0])
		output_wrap(functions->advice, width, file);
}

/* "Lost or left out: a; b; c"; cut if it does not fit. */
struct losses {
	char text[2500];
	size_t len, count;
};

__attribute__((format(printf, 2, 3))) static void add_loss(struct losses *losses, const char *format, ...)
{
	const char *lead = losses->count++ > 0 ? "; " : "Lost or left out: ";
	size_t room = sizeof(losses->text) - losses->len;
	va_list args;
	int len;

	if (room <= strlen(lead))
		return;
	memcpy(losses->text + losses->len, lead, strlen(lead) + 1);
	losses->len += strlen(lead);
	room -= strlen(lead);
	va_start(args, format);
	len = vsnprintf(losses->text + losses->len, room, format, args);
	va_end(args);
	losses->len += len < 0 ? 0 : (size_t)len < room ? (size_t)len : room - 1;
}

static void add_lost_amount(struct losses *losses, enum function_table_unit unit,
			    const uint64_t amount[static FUNCTION_TABLE_PHASES], const char *what)
{
	uint64_t sum = amount[FUNCTION_TABLE_BEFORE] + amount[FUNCTION_TABLE_DURING];
	const char *noun = unit == FUNCTION_TABLE_IN_BYTES ? "" : sum == 1 ? " sample" : " samples";
	char text[64];

	if (amount[FUNCTION_TABLE_BEFORE] > 0 || amount[FUNCTION_TABLE_DURING] > 0)
		add_loss(losses, "%s%s %s", amount_text(unit, sum, text, sizeof(text)), noun, what);
}

static void add_capture_loss(struct losses *losses, const struct incident_capture *capture)
{
	char why[4 * sizeof(capture->why) + 1];

	text_escape(why, sizeof(why), capture->why, strlen(capture->why));
	if (capture->status != INCIDENT_CAPTURE_OK)
		add_loss(losses, "%s %s%s%s", capture->name, incident_capture_status_name(capture->status),
			 why[0] ? ": " : "", why);
	else if (why[0])
		add_loss(losses, "%s", why);
}

static void print_losses(const struct functions *functions, const struct incident *incident, size_t line, FILE *file)
{
	struct losses losses = { .len = 0 };
	enum function_table_unit unit = functions->unit;
	const char *const *captures = text_forms[unit].captures;

	for (size_t i = 0; i < incident->capture_count; i++)
		for (size_t c = 0; c < CAPTURES; c++)
			if (strcmp(incident->captures[i].name, captures[c]) == 0)
				add_capture_loss(&losses, &incident->captures[i]);
	add_lost_amount(&losses, unit, functions->other, "of stacks for which there was no room");
	add_lost_amount(&losses, unit, functions->no_stack, "without a stack");
	if (functions->more_functions > 0)
		add_loss(&losses, "%" PRIu64 " more %s", functions->more_functions,
			 functions->more_functions == 1 ? "function" : "functions");
	if (functions->more_threads > 0)
		add_loss(&losses, "%" PRIu64 " more %s", functions->more_threads,
			 functions->more_threads == 1 ? "thread" : "threads");
	if (losses.count == 0)
		return;
	fputc('\n', file);
	output_wrap(losses.text, line, file);
}

void functions_print(const struct functions *functions, const struct incident *incident, const struct plot_style *style,
		     FILE *file)
{
	size_t line = style->width > FUNCTIONS_WIDTH_MIN ? style->width : FUNCTIONS_WIDTH_MIN;
	enum function_table_unit unit = functions->unit;
	char title[480], all[192] = "", before[64], during[64];

	if (functions->count == 0)
		return;
	fputc('\n', file);
	if (memcmp(functions->own, functions->sum, sizeof(functions->own)) != 0)
		snprintf(all, sizeof(all), "; of all processes %s and %s",
			 amount_text(unit, functions->sum[FUNCTION_TABLE_BEFORE], before, sizeof(before)),
			 amount_text(unit, functions->sum[FUNCTION_TABLE_DURING], during, sizeof(during)));
	snprintf(title, sizeof(title), "%s (%s: %s before the spike, %s during it%s)", text_forms[unit].title,
		 text_forms[unit].of, amount_text(unit, functions->own[FUNCTION_TABLE_BEFORE], before, sizeof(before)),
		 amount_text(unit, functions->own[FUNCTION_TABLE_DURING], during, sizeof(during)), all);
	output_wrap(title, line, file);
	if (line < WIDTH_FULL)
		print_narrow(functions, line, file);
	else
		print_full(functions, line, file);
	print_threads(functions, line, file);
	print_advice(functions, line, file);
	print_losses(functions, incident, line, file);
}

/* ---- the same, brief ---- */

#define BRIEF_WIDTH (3 * (AMOUNT_WIDTH + 1) + 1) /* of the numbers and the spaces after them */

/* Whether row is of the target and was seen during the spike. */
static bool is_brief(const struct functions_row *row)
{
	return !row->neighbour && row->total[FUNCTION_TABLE_DURING] > 0;
}

static void print_brief_functions(const struct functions *functions, const struct functions_row *rows, size_t count,
				  size_t wanted, size_t line, FILE *file)
{
	const struct cells head = { "function", "module", "busiest thread" };
	size_t width[3] = { 0, strlen(head.module), strlen(head.thread) }, left = line - BRIEF_WIDTH, printed = 0;
	struct listed listed;
	const struct output_names *names = list_names(rows, count, &listed);
	struct cells cells;

	for (size_t i = 0; i < count && i < wanted; i++) {
		make_cells(&rows[i], &cells);
		width[1] = widest_of(width[1], cells.module, left / 4);
		width[2] = widest_of(width[2], cells.thread, left / 3);
	}
	width[0] = left - width[1] - width[2] - 4;
	fprintf(file, "%*s %*s %*s  ", AMOUNT_WIDTH, "before", AMOUNT_WIDTH, "self", AMOUNT_WIDTH, "total");
	print_names(&head, names, width, file);
	for (size_t i = 0; i < count && printed < wanted; i++) {
		if (!is_brief(&rows[i]))
			continue;
		print_amount(functions, &rows[i], rows[i].self[FUNCTION_TABLE_BEFORE], FUNCTION_TABLE_BEFORE, file);
		fputc(' ', file);
		print_amount(functions, &rows[i], rows[i].self[FUNCTION_TABLE_DURING], FUNCTION_TABLE_DURING, file);
		fputc(' ', file);
		print_amount(functions, &rows[i], rows[i].total[FUNCTION_TABLE_DURING], FUNCTION_TABLE_DURING, file);
		fputs("  ", file);
		make_cells(&rows[i], &cells);
		print_names(&cells, names, width, file);
		printed++;
	}
}

void functions_print_brief(const struct functions *functions, size_t rows, size_t threads,
			   const struct plot_style *style, FILE *file)
{
	size_t line = style->width > WIDTH_FULL ? style->width : WIDTH_FULL, printed = 0;
	char process[FUNCTIONS_NAME_MAX + 32];

	if (functions->unit == FUNCTION_TABLE_IN_BYTES && functions->inner_count > 0)
		print_brief_functions(functions, functions->inner, functions->inner_count, rows, line, file);
	else if (functions->count > 0 && is_brief(&functions->row[0]))
		print_brief_functions(functions, functions->row, functions->count, rows, line, file);
	for (size_t i = 0; i < functions->thread_count && printed < threads; i++) {
		const struct functions_row *row = &functions->thread[i];

		if (!is_brief(row))
			continue;
		if (printed++ == 0)
			fprintf(file, "%*s %*s %*s  thread of process\n", AMOUNT_WIDTH, "before", AMOUNT_WIDTH,
				"during", AMOUNT_WIDTH, "tid");
		print_amount(functions, row, row->self[FUNCTION_TABLE_BEFORE], FUNCTION_TABLE_BEFORE, file);
		fputc(' ', file);
		print_amount(functions, row, row->self[FUNCTION_TABLE_DURING], FUNCTION_TABLE_DURING, file);
		fprintf(file, " %*jd  ", AMOUNT_WIDTH, (intmax_t)row->tid);
		output_fit(row->thread[0] ? row->thread : "?", 20, OUTPUT_CUT_DOTS, file);
		fputs(" of ", file);
		output_fit(process_text(row, process, sizeof(process)), line - BRIEF_WIDTH - 24, OUTPUT_CUT_DOTS, file);
		fputc('\n', file);
	}
	print_advice(functions, line, file);
}

/* ---- functions, ranked ---- */

#define ROWS_MAX 10

_Static_assert(FUNCTIONS_SHOWN <= ROWS_MAX && FUNCTIONS_THREADS_SHOWN <= ROWS_MAX, "all that is shown is ranked");

static const struct {
	const char *file, *key, *before, *during, *own_before, *own_during, *beside, *top;
} forms[] = {
	[FUNCTION_TABLE_IN_SAMPLES] = { FUNCTIONS_FILE, "functions", "samples_before", "samples_during",
					"own_samples_before", "own_samples_during", "self_during_ns", "top_samples" },
	[FUNCTION_TABLE_IN_BYTES] = { FUNCTIONS_MEMORY_FILE, "memory_functions", "bytes_before", "bytes_during",
				      "own_bytes_before", "own_bytes_during", "self_during_faults", "top_bytes" },
};

/* Rows of the text, the hottest first. */
struct ranking {
	struct function_rows_row row[ROWS_MAX];
	size_t count, max;
	enum function_table_phase phase;
	bool callers; /* totals count as much as self (see function_table in lib/profile) */
	bool tie;     /* equals are ranked by the other phase */
};

static uint64_t row_heat(const struct ranking *ranking, const struct function_rows_row *row,
			 enum function_table_phase phase)
{
	uint64_t sum = row->self[phase] + (ranking->callers ? row->total[phase] : 0);

	/* Only a damaged file overflows. */
	return sum < row->self[phase] ? UINT64_MAX : sum;
}

static int compare_heat(const struct ranking *ranking, const struct function_rows_row *a,
			const struct function_rows_row *b, enum function_table_phase phase)
{
	uint64_t of_a = row_heat(ranking, a, phase), of_b = row_heat(ranking, b, phase);

	if (of_a == of_b) {
		of_a = a->total[phase];
		of_b = b->total[phase];
	}
	return (of_a > of_b) - (of_a < of_b);
}

static bool is_hotter(const struct ranking *ranking, const struct function_rows_row *a,
		      const struct function_rows_row *b)
{
	int order = compare_heat(ranking, a, b, ranking->phase);

	if (order == 0 && ranking->tie)
		order = compare_heat(ranking, a, b, FUNCTION_TABLE_BEFORE);
	return order > 0;
}

/* Rows without samples are not ranked. */
static void rank_row(struct ranking *ranking, const struct function_rows_row *row)
{
	static const struct function_rows_row nothing;
	size_t at = ranking->count;

	if (!is_hotter(ranking, row, &nothing))
		return;
	while (at > 0 && is_hotter(ranking, row, &ranking->row[at - 1]))
		at--;
	if (at == ranking->max)
		return;
	if (ranking->count < ranking->max)
		ranking->count++;
	memmove(&ranking->row[at + 1], &ranking->row[at], (ranking->count - at - 1) * sizeof(*row));
	ranking->row[at] = *row;
}

/* Rows of one text are the same if they are in the same place. */
static bool is_ranked(const struct ranking *ranking, const struct function_rows_row *row)
{
	for (size_t i = 0; i < ranking->count; i++)
		if (ranking->row[i].function.at == row->function.at)
			return true;
	return false;
}

static void copy_name(char ret[static FUNCTIONS_NAME_MAX], const struct text_part *name)
{
	text_escape_again(ret, FUNCTIONS_NAME_MAX, name->len ? name->at : "", name->len);
}

static bool is_neighbour(const struct function_rows_row *row)
{
	return row->module.len == strlen(FUNCTION_TABLE_NEIGHBOUR) &&
	       memcmp(row->module.at, FUNCTION_TABLE_NEIGHBOUR, row->module.len) == 0;
}

static void copy_row(const struct function_rows_row *from, struct functions_row *row)
{
	copy_name(row->function, &from->function);
	copy_name(row->module, &from->module);
	copy_name(row->thread, &from->thread);
	copy_name(row->process, &from->process);
	row->neighbour = is_neighbour(from);
	row->tid = from->tid;
	row->pid = from->pid;
	row->self_ns = from->self_ns;
	row->self_faults = from->self_faults;
	row->top_amount = from->top_amount;
	memcpy(row->self, from->self, sizeof(row->self));
	memcpy(row->total, from->total, sizeof(row->total));
}

/* Names that the daemon makes up have no module. */
static bool has_made_up_name(const struct function_rows_row *row, const char *name)
{
	return row->module.len == 0 && row->function.len == strlen(name) &&
	       memcmp(row->function.at, name, row->function.len) == 0;
}

static void note_missing_stacks(const struct function_rows_row *row, struct functions *ret)
{
	if (has_made_up_name(row, "(other)"))
		memcpy(ret->other, row->self, sizeof(ret->other));
	else if (has_made_up_name(row, "[no stack]"))
		memcpy(ret->no_stack, row->self, sizeof(ret->no_stack));
}

/* ---- spikewatch's own processes ---- */

static const char itself_name[] = "spikewatch itself";

/* What its programs are called, as far as the kernel keeps names. */
static bool is_itself(const struct text_part *process)
{
	static const char *const names[] = { "spikewatchd", "spikewatch", "spikewatch-symb", "spikewatch-symbolize" };

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (process->len == strlen(names[i]) && memcmp(process->at, names[i], process->len) == 0)
			return true;
	return false;
}

static void add_to_itself(struct function_rows_row *itself, const struct function_rows_row *row)
{
	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++) {
		itself->self[p] += row->self[p];
		itself->total[p] += row->total[p];
	}
	itself->self_ns += row->self_ns;
	itself->self_faults += row->self_faults;
	itself->module = (struct text_part){ FUNCTION_TABLE_NEIGHBOUR, strlen(FUNCTION_TABLE_NEIGHBOUR) };
}

/* ---- functions without names ---- */

#define NAMELESS_MODULES 16 /* that are added up; later ones are not */

struct nameless {
	struct text_part module[NAMELESS_MODULES];
	uint64_t self[NAMELESS_MODULES];
	size_t count;
	bool of_java, of_node; /* whose runtimes write down what they compile, if asked to */
	bool of_named_python;  /* which was asked to */
	uint64_t python;       /* what runs below its interpreter */
};

/* Code that a program made itself while it ran. */
static bool is_made_at_run_time(const struct text_part *module)
{
	static const char anonymous[] = "[anon";

	return module->len >= sizeof(anonymous) - 1 && memcmp(module->at, anonymous, sizeof(anonymous) - 1) == 0;
}

static bool mentions(const struct text_part *text, const char *word)
{
	return text->len > 0 && memmem(text->at, text->len, word, strlen(word));
}

static void note_nameless(struct nameless *nameless, const struct function_rows_row *row)
{
	static const char python_frame[] = "_PyEval_EvalFrameDefault", python_name[] = "py::";
	size_t i = 0;

	if (text_part_is(&row->function, python_frame))
		nameless->python = row->total[FUNCTION_TABLE_DURING];
	if (row->function.len >= sizeof(python_name) - 1 &&
	    memcmp(row->function.at, python_name, sizeof(python_name) - 1) == 0)
		nameless->of_named_python = true;
	nameless->of_java = nameless->of_java || mentions(&row->module, "/libjvm.so");
	nameless->of_node =
		nameless->of_node || mentions(&row->module, "/libnode.so") || mentions(&row->module, "/node");
	/* "[libc.so.6+0x16e040]", "[anon]", "[unknown]"; but not "[kernel]", which keeps its names to itself. */
	if (row->function.len == 0 || row->function.at[0] != '[' || row->module.len == 0 ||
	    (row->module.at[0] == '[' && !is_made_at_run_time(&row->module)))
		return;
	while (i < nameless->count && text_part_compare(&nameless->module[i], &row->module) != 0)
		i++;
	if (i == NAMELESS_MODULES)
		return;
	nameless->count += i == nameless->count;
	nameless->module[i] = row->module;
	nameless->self[i] += row->self[FUNCTION_TABLE_DURING];
}

#define NAMELESS_PERCENT 20 /* less is not worth a line */

static double percent_of(uint64_t part, uint64_t whole)
{
	return part < whole ? 100 * (double)part / (double)whole : 100;
}

/* Of memory it says nothing: what first touches it is mostly a function of libc. */
static void advise(const struct nameless *nameless, struct functions *ret)
{
	const uint64_t own = ret->own[FUNCTION_TABLE_DURING];
	size_t most = 0;
	char file[FUNCTIONS_NAME_MAX];
	const char *slash;

	for (size_t i = 1; i < nameless->count; i++)
		if (nameless->self[i] > nameless->self[most])
			most = i;
	if (ret->unit == FUNCTION_TABLE_IN_BYTES || own == 0)
		return;
	if (!nameless->of_named_python && percent_of(nameless->python, own) >= NAMELESS_PERCENT) {
		snprintf(ret->advice, sizeof(ret->advice),
			 "%.0f %% in Python code without names; what helps: python3 -X perf (3.12 or newer)",
			 percent_of(nameless->python, own));
		return;
	}
	if (nameless->count == 0 || percent_of(nameless->self[most], own) < NAMELESS_PERCENT)
		return;
	copy_name(file, &nameless->module[most]);
	slash = strrchr(file, '/');
	snprintf(ret->advice, sizeof(ret->advice), "%.0f %% without names: %s%s", percent_of(nameless->self[most], own),
		 is_made_at_run_time(&nameless->module[most]) ? "made at run time; what helps: "
		 : slash && slash[1]                          ? slash + 1
							      : file,
		 !is_made_at_run_time(&nameless->module[most]) ? " is stripped; what helps: spikewatch report"
		 : nameless->of_java                           ? "jcmd PID Compiler.perfmap"
		 : nameless->of_node                           ? "node --perf-basic-prof"
							       : "a perf map, /tmp/perf-PID.map");
}

/* ---- the function that is named first ---- */

static bool begins_with(const struct text_part *name, const char *text, bool whole)
{
	size_t len = strlen(text);

	return name->len >= len && memcmp(name->at, text, len) == 0 && (name->len == len || !whole);
}

/* The C library's, which fill memory or fetch it for their caller. */
static bool is_filler(const struct text_part *name)
{
	static const char *const fillers[] = { "memset",        "memcpy",      "memmove",      "mempcpy",
					       "bzero",         "malloc",      "calloc",       "realloc",
					       "sysmalloc",     "_int_malloc", "_int_realloc", "posix_memalign",
					       "aligned_alloc", "memalign",    "valloc",       "pvalloc",
					       "__memset",      "__memcpy",    "__memmove",    "__mempcpy",
					       "__libc_",       "operator new" };
	static const size_t prefixes = 6;     /* as in is_beginning: "__memset_avx2_unaligned_erms" */
	static const char within[] = "__GI_"; /* as the C library calls its own: "__GI___libc_malloc" */
	struct text_part plain = *name;
	const char *version = memchr(name->at, '@', name->len); /* "memcpy@@GLIBC_2.14" */

	plain.len = version ? (size_t)(version - name->at) : name->len;
	if (begins_with(&plain, within, false))
		plain = (struct text_part){ plain.at + strlen(within), plain.len - strlen(within) };
	for (size_t i = 0; i < ARRAY_LEN(fillers); i++)
		if (begins_with(&plain, fillers[i], i < ARRAY_LEN(fillers) - prefixes))
			return true;
	return false;
}

/* How every program or thread begins. */
static bool is_beginning(const struct text_part *name)
{
	static const char *const beginnings[] = { "_start", "main", "start_thread", "clone", "clone3", "__libc_start" };
	static const size_t prefixes = 1; /* the last so many of them stand for all that begin so */

	for (size_t i = 0; i < ARRAY_LEN(beginnings); i++)
		if (begins_with(name, beginnings[i], i < ARRAY_LEN(beginnings) - prefixes))
			return true;
	return false;
}

#define TELLING 2

/*
 * How much a name says of where the time, or the memory, went: TELLING; less, as "[libfoo.so+0x1240]" and what
 * every program begins with; or of memory nothing, if others fill it there for the function that wanted it.
 */
static int telling_of(const struct text_part *name, bool memory)
{
	if (name->len == 0 || name->at[0] == '[' || is_beginning(name))
		return 1;
	return memory && is_filler(name) ? 0 : TELLING;
}

/*
 * Whether the row is of code that was made at run time and ran much itself: what calls it is the
 * machinery of a runtime, as "JavaCalls::call_helper", and says less.
 */
static bool is_run_time(const struct function_rows_row *row, uint64_t own)
{
	return is_made_at_run_time(&row->module) && row->self[FUNCTION_TABLE_DURING] > 0 &&
	       row->self[FUNCTION_TABLE_DURING] >= own / 5;
}

/* How deep: the fewer stacks it is on, the deeper. Of what is as deep as its callers run-time code comes first. */
static uint64_t shallowness(const struct function_rows_row *row, uint64_t own)
{
	uint64_t total = row->total[FUNCTION_TABLE_DURING];

	return is_run_time(row, own) ? total - total / 16 : total;
}

/* Whether row says more than the one chosen so far: half of all, with a telling name, and deeper. */
static bool is_lead(const struct function_rows_row *row, const struct function_rows_row *lead, uint64_t own,
		    bool memory)
{
	uint64_t total = row->total[FUNCTION_TABLE_DURING], least = lead->total[FUNCTION_TABLE_DURING];
	bool half = total > 0 && total >= own - own / 2, lead_half = least > 0 && least >= own - own / 2;

	if (row->module.len == 0)
		return false;
	if (half != lead_half)
		return half;
	int telling = is_run_time(row, own) ? TELLING : telling_of(&row->function, memory);
	int least_telling = is_run_time(lead, own) ? TELLING : telling_of(&lead->function, memory);

	if (half && telling != least_telling)
		return telling > least_telling;
	if (half && total != least)
		return shallowness(row, own) < shallowness(lead, own);
	return row->self[FUNCTION_TABLE_DURING] > lead->self[FUNCTION_TABLE_DURING];
}

/* Keeps the innermost of the functions with telling names that are on half of the stacks, that first. */
static void rank_inner(struct ranking *inner, const struct function_rows_row *row, uint64_t own)
{
	uint64_t total = row->total[FUNCTION_TABLE_DURING];
	size_t at = inner->count;

	if (row->module.len == 0 || telling_of(&row->function, inner->callers) < TELLING || total == 0 ||
	    total < own - own / 2)
		return;
	while (at > 0 && is_lead(row, &inner->row[at - 1], own, inner->callers))
		at--;
	if (at == inner->max)
		return;
	inner->count += inner->count < inner->max;
	memmove(&inner->row[at + 1], &inner->row[at], (inner->count - at - 1) * sizeof(*row));
	inner->row[at] = *row;
}

/* "node::Load(node::Data const**)" -> "node::Load". Arguments of templates stay. */
static void cut_arguments(char *name)
{
	static const char anonymous[] = "(anonymous namespace)", call[] = "operator";
	int templates = 0;

	for (char *at = name; *at; at++) {
		bool called =
			(size_t)(at - name) >= strlen(call) && strncmp(at - strlen(call), call, strlen(call)) == 0;

		templates += *at == '<' ? 1 : *at == '>' ? -1 : 0;
		if (*at != '(' || at == name || templates != 0 || called ||
		    strncmp(at, anonymous, strlen(anonymous)) == 0)
			continue;
		*at = '\0';
		return;
	}
}

static void subtract_neighbour(struct functions *ret, const struct function_rows_row *row)
{
	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++)
		ret->own[p] -= row->self[p] < ret->own[p] ? row->self[p] : ret->own[p];
}

/* What the headline names, and what it may say of names. */
static void keep_lead(const struct function_rows_row *lead, const struct ranking *inner,
		      const struct nameless *nameless, struct functions *ret)
{
	copy_row(lead, &ret->lead);
	cut_arguments(ret->lead.function);
	ret->lead_run_time = lead->function.len > 0 && lead->function.at[0] == '[' &&
			     is_run_time(lead, ret->own[FUNCTION_TABLE_DURING]);
	advise(nameless, ret);
	for (size_t i = 0; i < inner->count; i++)
		copy_row(&inner->row[i], &ret->inner[ret->inner_count++]);
}

static void choose_rows(const char *text, size_t len, struct functions *ret)
{
	bool callers = ret->unit == FUNCTION_TABLE_IN_BYTES;
	struct ranking before = { .max = FUNCTIONS_SHOWN, .phase = FUNCTION_TABLE_BEFORE, .callers = callers };
	struct ranking during = { .max = FUNCTIONS_SHOWN, .phase = FUNCTION_TABLE_DURING, .callers = callers };
	struct ranking neighbours = { .max = FUNCTIONS_NEIGHBOURS_SHOWN, .phase = FUNCTION_TABLE_DURING, .tie = true };
	struct ranking threads = { .max = FUNCTIONS_THREADS_SHOWN, .phase = FUNCTION_TABLE_DURING, .tie = true };
	struct ranking foreign = { .max = FUNCTIONS_NEIGHBOURS_SHOWN, .phase = FUNCTION_TABLE_DURING, .tie = true };
	struct ranking inner = { .max = FUNCTIONS_INNER_SHOWN, .callers = callers };
	struct function_rows_row row, lead = { 0 };
	struct function_rows_row itself = { .function = { itself_name, strlen(itself_name) } };
	struct function_rows_row own_threads = { .process = { itself_name, strlen(itself_name) } };
	struct nameless nameless = { .count = 0 };
	struct function_rows rows;

	ret->there = function_rows_start(&rows, text, len) && rows.unit == ret->unit;
	if (!ret->there)
		return;
	memcpy(ret->sum, rows.sum, sizeof(ret->sum));
	/* Where the file does not say it: what is left without the others. */
	memcpy(ret->own, rows.has_own ? rows.own : rows.sum, sizeof(ret->own));
	while (function_rows_next(&rows, &row)) {
		if (is_neighbour(&row) && is_itself(row.function.len > 0 ? &row.function : &row.process)) {
			if (row.function.len > 0 && !rows.has_own)
				subtract_neighbour(ret, &row);
			add_to_itself(row.function.len > 0 ? &itself : &own_threads, &row);
			continue;
		}
		if (row.function.len == 0) {
			rank_row(is_neighbour(&row) ? &foreign : &threads, &row);
			continue;
		}
		if (is_neighbour(&row)) {
			rank_row(&neighbours, &row);
			if (!rows.has_own)
				subtract_neighbour(ret, &row);
			continue;
		}
		if (is_lead(&row, &lead, ret->own[FUNCTION_TABLE_DURING], callers))
			lead = row;
		rank_inner(&inner, &row, ret->own[FUNCTION_TABLE_DURING]);
		note_nameless(&nameless, &row);
		rank_row(&before, &row);
		rank_row(&during, &row);
		note_missing_stacks(&row, ret);
	}
	rank_row(&neighbours, &itself);
	rank_row(&foreign, &own_threads);
	keep_lead(&lead, &inner, &nameless, ret);
	for (size_t i = 0; i < during.count; i++)
		copy_row(&during.row[i], &ret->row[ret->count++]);
	for (size_t i = 0; i < before.count; i++)
		if (!is_ranked(&during, &before.row[i]))
			copy_row(&before.row[i], &ret->row[ret->count++]);
	for (size_t i = 0; i < neighbours.count; i++)
		copy_row(&neighbours.row[i], &ret->row[ret->count++]);
	for (size_t i = 0; i < threads.count; i++)
		copy_row(&threads.row[i], &ret->thread[ret->thread_count++]);
	for (size_t i = 0; i < foreign.count; i++)
		copy_row(&foreign.row[i], &ret->thread[ret->thread_count++]);
	ret->more_functions = rows.more_functions;
	ret->more_threads = rows.more_threads;
}

int functions_load(int incidentfd, enum function_table_unit unit, struct functions *ret)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENT_LOAD_CAPTURE_MAX };
	int rc = incident_load_capture(incidentfd, forms[unit].file, &text);

	*ret = (struct functions){ .unit = unit };
	if (rc == 0 && text.len > 0)
		choose_rows(text.data, text.len, ret);
	return rc == -ENOMEM ? rc : 0;
}

static void put_function(struct json_writer *json, enum function_table_unit unit, const struct functions_row *row)
{
	json_begin_object(json);
	json_member_text(json, "function", row->function);
	json_member_text(json, "module", row->module);
	json_member_u64(json, "self_before", row->self[FUNCTION_TABLE_BEFORE]);
	json_member_u64(json, "total_before", row->total[FUNCTION_TABLE_BEFORE]);
	json_member_u64(json, "self_during", row->self[FUNCTION_TABLE_DURING]);
	json_member_u64(json, "total_during", row->total[FUNCTION_TABLE_DURING]);
	json_member_u64(json, forms[unit].beside, unit == FUNCTION_TABLE_IN_BYTES ? row->self_faults : row->self_ns);
	json_member_text(json, "top_thread", row->thread);
	json_member_i64(json, "top_tid", row->tid);
	json_member_u64(json, forms[unit].top, row->top_amount);
	json_member_text(json, "top_process", row->process);
	json_member_i64(json, "top_pid", row->pid);
	json_end_object(json);
}

static void put_thread(struct json_writer *json, enum function_table_unit unit, const struct functions_row *row)
{
	json_begin_object(json);
	json_member_text(json, "thread", row->thread);
	json_member_i64(json, "tid", row->tid);
	json_member_text(json, "process", row->process);
	json_member_i64(json, "pid", row->pid);
	json_member_bool(json, "own", !row->neighbour);
	json_member_u64(json, forms[unit].before, row->self[FUNCTION_TABLE_BEFORE]);
	json_member_u64(json, forms[unit].during, row->self[FUNCTION_TABLE_DURING]);
	json_end_object(json);
}

void functions_json(const struct functions *functions, struct json_writer *json)
{
	enum function_table_unit unit = functions->unit;

	json_key(json, forms[unit].key);
	if (!functions->there) {
		json_null(json);
		return;
	}
	json_begin_object(json);
	json_member_u64(json, forms[unit].before, functions->sum[FUNCTION_TABLE_BEFORE]);
	json_member_u64(json, forms[unit].during, functions->sum[FUNCTION_TABLE_DURING]);
	json_member_u64(json, forms[unit].own_before, functions->own[FUNCTION_TABLE_BEFORE]);
	json_member_u64(json, forms[unit].own_during, functions->own[FUNCTION_TABLE_DURING]);
	json_member_array(json, "hottest");
	for (size_t i = 0; i < functions->count; i++)
		put_function(json, unit, &functions->row[i]);
	json_end_array(json);
	json_member_array(json, "threads");
	for (size_t i = 0; i < functions->thread_count; i++)
		put_thread(json, unit, &functions->thread[i]);
	json_end_array(json);
	json_member_u64(json, "functions_left_out", functions->more_functions);
	json_member_u64(json, "threads_left_out", functions->more_threads);
	json_end_object(json);
}
