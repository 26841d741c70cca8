/*
 * functions_text.c: the rows of functions.c as text. One layout for both units: a share of the samples and a size take as
 * much room. On narrow lines what was seen in the function itself, its module and its thread give way to its name.
 */
#include "functions.h"

#include "output.h"
#include "scope.h"
#include "text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define WIDTH_FULL 70   /* below that only what was seen with the function on the stack, and its name */
#define WIDE 100        /* from here on there is room for long names */
#define SHARE_MAX 999.9 /* a file that lies may have more samples in a function than in all */

/* Numbers and what is behind them. */
#define AMOUNT_WIDTH 6
#define NUMBERS_WIDTH (2 * (AMOUNT_WIDTH + 1 + AMOUNT_WIDTH + 2))
#define NARROW_WIDTH (AMOUNT_WIDTH + 1 + AMOUNT_WIDTH + 2)
#define TID_WIDTH 7

/* The incident's captures that are of these stacks. */
#define CAPTURES 3

static const struct {
	const char *title, *of, *threads;
	const char *captures[CAPTURES];
} forms[] = {
	[HOTLIST_IN_SAMPLES] = {
		.title = "Hottest functions",
		.of = "percent of the samples",
		.threads = "Threads that used the CPU (percent of the samples)",
		.captures = { "stacks", "stacks-folded", "functions" },
	},
	[HOTLIST_IN_BYTES] = {
		.title = "What made memory grow",
		.of = "bytes touched for the first time",
		.threads = "Threads that touched new memory (bytes)",
		.captures = { "memory-stacks", "memory-folded", "memory-functions" },
	},
};

/* ---- cells ---- */

/* "990", "120.5 MiB" */
static const char *amount_text(enum hotlist_unit unit, uint64_t amount, char *buf, size_t cap)
{
	if (unit == HOTLIST_IN_BYTES)
		return plot_value(PLOT_BYTES, (double)amount, buf, cap);
	snprintf(buf, cap, "%" PRIu64, amount);
	return buf;
}

/* "512", "1.5K", "120.5M": as wide as a share. */
static void print_size(uint64_t bytes, FILE *file)
{
	static const char units[] = "KMGTPE";
	double value = (double)bytes;
	size_t unit = 0;

	if (bytes < 1000) {
		fprintf(file, "%*" PRIu64, AMOUNT_WIDTH, bytes);
		return;
	}
	for (value /= 1024; value >= 999.95 && unit + 2 < sizeof(units); unit++)
		value /= 1024;
	fprintf(file, "%*.1f%c", AMOUNT_WIDTH - 1, value, units[unit]);
}

static void print_share(uint64_t part, uint64_t all, FILE *file)
{
	double share = all > 0 ? 100 * (double)part / (double)all : 0;

	if (all > 0)
		fprintf(file, "%*.1f", AMOUNT_WIDTH, share < SHARE_MAX ? share : SHARE_MAX);
	else
		fprintf(file, "%*s", AMOUNT_WIDTH, "-");
}

static void print_amount(const struct functions *functions, uint64_t amount, enum hotlist_phase phase, FILE *file)
{
	if (functions->unit == HOTLIST_IN_BYTES)
		print_size(amount, file);
	else
		print_share(amount, functions->sum[phase], file);
}

/* Before and during, of what is in the row. */
static void print_pair(const struct functions *functions, const uint64_t amount[static HOTLIST_PHASES], FILE *file)
{
	print_amount(functions, amount[HOTLIST_BEFORE], HOTLIST_BEFORE, file);
	fputc(' ', file);
	print_amount(functions, amount[HOTLIST_DURING], HOTLIST_DURING, file);
	fputs("  ", file);
}

/* Cuts at a character, or pads. */
static void print_text(const char *text, size_t width, bool last, FILE *file)
{
	size_t have = output_characters(text, strlen(text)), room = have > width ? width - 2 : width, shown = 0;

	for (; *text && (shown < room || ((unsigned char)*text & 0xC0) == 0x80); text++) {
		shown += ((unsigned char)text[1] & 0xC0) != 0x80;
		fputc(*text, file);
	}
	if (have > width)
		fputs("..", file);
	else if (!last)
		fprintf(file, "%*s", (int)(width - have), "");
}

/* ---- functions ---- */

/* What stands in the columns of text. */
struct cells {
	const char *function, *module;
	char thread[FUNCTIONS_NAME_MAX + 64];
};

static void make_cells(const struct functions_row *row, struct cells *ret)
{
	const char *slash = strrchr(row->module, '/');
	uint64_t all = row->total[row->total[HOTLIST_DURING] > 0 ? HOTLIST_DURING : HOTLIST_BEFORE];
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
static size_t widen(size_t width, const char *text, size_t max)
{
	size_t have = output_characters(text, strlen(text));

	have = have > width ? have : width;
	return have < max ? have : max;
}

static void print_numbers(const struct functions *functions, const struct functions_row *row, FILE *file)
{
	for (unsigned p = 0; p < HOTLIST_PHASES; p++) {
		print_amount(functions, row->self[p], p, file);
		fputc(' ', file);
		print_amount(functions, row->total[p], p, file);
		fputs("  ", file);
	}
}

static void print_names(const struct cells *cells, const size_t width[static 3], FILE *file)
{
	print_text(cells->function, width[0], false, file);
	fputs("  ", file);
	print_text(cells->module, width[1], false, file);
	fputs("  ", file);
	print_text(cells->thread, width[2], true, file);
	fputc('\n', file);
}

/* Of function, module and thread. */
static void measure(const struct functions *functions, size_t line, const struct cells *head, size_t ret[static 3])
{
	size_t left;

	ret[0] = widen(0, head->function, FUNCTIONS_NAME_MAX);
	ret[1] = widen(0, head->module, FUNCTIONS_NAME_MAX);
	ret[2] = widen(0, head->thread, FUNCTIONS_NAME_MAX);
	for (size_t i = 0; i < functions->count; i++) {
		struct cells cells;

		make_cells(&functions->row[i], &cells);
		ret[0] = widen(ret[0], cells.function, FUNCTIONS_NAME_MAX);
		ret[1] = widen(ret[1], cells.module, line < WIDE ? 12 : 24);
		ret[2] = widen(ret[2], cells.thread, line < WIDE ? 18 : 30);
	}
	left = line - NUMBERS_WIDTH - 4 - ret[1];
	/* Of narrow lines the thread gives way to the function, but not altogether. */
	if (left < 16 + ret[2])
		ret[2] = left - 16 > 8 ? left - 16 : 8;
	if (ret[0] > left - ret[2])
		ret[0] = left - ret[2];
}

/* Above the first of them. */
static void print_heading(const struct functions *functions, size_t i, FILE *file)
{
	if (functions->row[i].neighbour && (i == 0 || !functions->row[i - 1].neighbour))
		fputs("other processes:\n", file);
}

static void print_full(const struct functions *functions, size_t line, FILE *file)
{
	const struct cells head = { "function", "module", "busiest thread" };
	struct cells cells;
	size_t width[3];

	measure(functions, line, &head, width);
	fprintf(file, "%13s  %13s\n%6s %6s  %6s %6s  ", "before", "during", "self", "total", "self", "total");
	print_names(&head, width, file);
	for (size_t i = 0; i < functions->count; i++) {
		print_heading(functions, i, file);
		print_numbers(functions, &functions->row[i], file);
		make_cells(&functions->row[i], &cells);
		print_names(&cells, width, file);
	}
}

static void print_narrow(const struct functions *functions, size_t line, FILE *file)
{
	fprintf(file, "%6s %6s  function\n", "before", "during");
	for (size_t i = 0; i < functions->count; i++) {
		print_heading(functions, i, file);
		print_pair(functions, functions->row[i].total, file);
		print_text(functions->row[i].function, line - NARROW_WIDTH, true, file);
		fputc('\n', file);
	}
}

/* ---- threads ---- */

/* "postgres/812" */
static const char *process_text(const struct functions_row *row, char *buf, size_t cap)
{
	snprintf(buf, cap, row->pid ? "%s/%jd" : "%s", row->process, (intmax_t)row->pid);
	return buf;
}

static void print_threads(const struct functions *functions, size_t line, FILE *file)
{
	size_t left = line - NARROW_WIDTH - TID_WIDTH - 2, width = strlen("thread");
	bool with_process = line >= WIDTH_FULL;

	if (functions->thread_count == 0)
		return;
	for (size_t i = 0; i < functions->thread_count; i++)
		width = widen(width, functions->thread[i].thread, with_process ? left / 2 : left);
	fputc('\n', file);
	output_wrap(forms[functions->unit].threads, line, file);
	fprintf(file, "%6s %6s  %*s  ", "before", "during", TID_WIDTH, "tid");
	print_text("thread", width, !with_process, file);
	fputs(with_process ? "  process\n" : "\n", file);
	for (size_t i = 0; i < functions->thread_count; i++) {
		const struct functions_row *row = &functions->thread[i];
		char process[FUNCTIONS_NAME_MAX + 32];

		print_pair(functions, row->self, file);
		fprintf(file, "%*jd  ", TID_WIDTH, (intmax_t)row->tid);
		print_text(row->thread[0] ? row->thread : "?", width, !with_process, file);
		if (with_process) {
			fputs("  ", file);
			print_text(process_text(row, process, sizeof(process)), left - width - 2, true, file);
		}
		fputc('\n', file);
	}
}

/* ---- what was lost ---- */

/* A sentence that is made: "Lost or left out: a; b; c". What does not fit is cut. */
struct losses {
	char text[2500];
	size_t len, count;
};

__attribute__((format(printf, 2, 3))) static void lose(struct losses *losses, const char *format, ...)
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

static void lose_amount(struct losses *losses, enum hotlist_unit unit, const uint64_t amount[static HOTLIST_PHASES],
			const char *what)
{
	uint64_t sum = amount[HOTLIST_BEFORE] + amount[HOTLIST_DURING];
	const char *noun = unit == HOTLIST_IN_BYTES ? "" : sum == 1 ? " sample" : " samples";
	char text[64];

	if (amount[HOTLIST_BEFORE] > 0 || amount[HOTLIST_DURING] > 0)
		lose(losses, "%s%s %s", amount_text(unit, sum, text, sizeof(text)), noun, what);
}

/* What the daemon said of the file. */
static void lose_capture(struct losses *losses, const struct incident_capture *capture)
{
	char why[4 * sizeof(capture->why) + 1];

	text_escape(why, sizeof(why), capture->why, strlen(capture->why));
	if (capture->status != INCIDENT_CAPTURE_OK)
		lose(losses, "%s %s%s%s", capture->name, incident_capture_status_name(capture->status),
		     why[0] ? ": " : "", why);
	else if (why[0])
		lose(losses, "%s", why);
}

static void print_losses(const struct functions *functions, const struct incident *incident, size_t line, FILE *file)
{
	struct losses losses = { .len = 0 };
	enum hotlist_unit unit = functions->unit;
	const char *const *captures = forms[unit].captures;

	for (size_t i = 0; i < incident->capture_count; i++)
		for (size_t c = 0; c < CAPTURES; c++)
			if (strcmp(incident->captures[i].name, captures[c]) == 0)
				lose_capture(&losses, &incident->captures[i]);
	lose_amount(&losses, unit, functions->other, "of stacks for which there was no room");
	lose_amount(&losses, unit, functions->no_stack, "without a stack");
	if (functions->more_functions > 0)
		lose(&losses, "%" PRIu64 " more %s", functions->more_functions,
		     functions->more_functions == 1 ? "function" : "functions");
	if (functions->more_threads > 0)
		lose(&losses, "%" PRIu64 " more %s", functions->more_threads,
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
	enum hotlist_unit unit = functions->unit;
	char title[200], before[64], during[64];

	if (functions->count == 0)
		return;
	fputc('\n', file);
	snprintf(title, sizeof(title), "%s (%s: %s before the spike, %s during it)", forms[unit].title, forms[unit].of,
		 amount_text(unit, functions->sum[HOTLIST_BEFORE], before, sizeof(before)),
		 amount_text(unit, functions->sum[HOTLIST_DURING], during, sizeof(during)));
	output_wrap(title, line, file);
	if (line < WIDTH_FULL)
		print_narrow(functions, line, file);
	else
		print_full(functions, line, file);
	print_threads(functions, line, file);
	print_losses(functions, incident, line, file);
}
