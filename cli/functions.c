/*
 * functions.c: two rankings from one walk over the file, one for each phase, shown as one table: a function that was
 * not there before the spike, or is not any more, has its zeros side by side with the others' numbers.
 */
#include "functions.h"

#include "hotrows.h"
#include "incidentload.h"
#include "output.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <string.h>

#define WIDTH_MIN 70
#define WIDE 100         /* from here on there is room for long names */
#define NUMBERS_WIDTH 30 /* four shares and what is between them */
#define SHARE_MAX 999.9  /* a file that lies may have more samples in a function than in all */

/* Rows of the text, the hottest of a phase first. */
struct ranking {
	struct hotrows_row row[FUNCTIONS_SHOWN];
	size_t count;
};

static uint64_t heat(const struct hotrows_row *row, enum hotlist_phase phase)
{
	return row->self[phase] + row->total[phase];
}

static void rank(struct ranking *ranking, enum hotlist_phase phase, const struct hotrows_row *row)
{
	size_t at = ranking->count;

	if (heat(row, phase) == 0)
		return;
	while (at > 0 && heat(&ranking->row[at - 1], phase) < heat(row, phase))
		at--;
	if (at == FUNCTIONS_SHOWN)
		return;
	if (ranking->count < FUNCTIONS_SHOWN)
		ranking->count++;
	memmove(&ranking->row[at + 1], &ranking->row[at], (ranking->count - at - 1) * sizeof(*row));
	ranking->row[at] = *row;
}

/* Escapes, but for the backslash: it was escaped when it was written. text_escape writes one as \x5c, and nothing else so. */
static void copy_name(char ret[static FUNCTIONS_NAME_MAX], const struct hotrows_name *name)
{
	size_t used = text_escape(ret, FUNCTIONS_NAME_MAX, name->len ? name->text : "", name->len), to = 0;

	for (size_t from = 0; from < used; to++) {
		bool backslash = strncmp(ret + from, "\\x5c", 4) == 0;

		ret[to] = ret[from];
		from += backslash ? 4 : 1;
	}
	ret[to] = '\0';
}

static void take(struct functions *functions, const struct hotrows_row *from)
{
	struct functions_row *row = &functions->row[functions->count++];

	copy_name(row->function, &from->function);
	copy_name(row->module, &from->module);
	copy_name(row->thread, &from->thread);
	row->tid = from->tid;
	row->self_ns = from->self_ns;
	row->top_samples = from->top_amount;
	memcpy(row->self, from->self, sizeof(row->self));
	memcpy(row->total, from->total, sizeof(row->total));
}

/* Rows of one text are the same if they are in the same place. */
static bool has(const struct ranking *ranking, const struct hotrows_row *row)
{
	for (size_t i = 0; i < ranking->count; i++)
		if (ranking->row[i].function.text == row->function.text)
			return true;
	return false;
}

static void choose(const char *text, size_t len, struct functions *ret)
{
	struct ranking before = { .count = 0 }, during = { .count = 0 };
	struct hotrows rows;
	struct hotrows_row row;

	ret->there = hotrows_start(&rows, text, len);
	if (!ret->there)
		return;
	memcpy(ret->samples, rows.sum, sizeof(ret->samples));
	while (hotrows_next(&rows, &row)) {
		if (row.function.len == 0)
			continue;
		rank(&before, HOTLIST_BEFORE, &row);
		rank(&during, HOTLIST_DURING, &row);
	}
	for (size_t i = 0; i < during.count; i++)
		take(ret, &during.row[i]);
	for (size_t i = 0; i < before.count; i++)
		if (!has(&during, &before.row[i]))
			take(ret, &before.row[i]);
}

int functions_load(int incidentfd, struct functions *ret)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENTLOAD_CAPTURE_MAX };
	int rc = incidentload_capture(incidentfd, FUNCTIONS_FILE, &text);

	*ret = (struct functions){ .there = false };
	if (rc == 0 && text.len > 0)
		choose(text.data, text.len, ret);
	return rc == -ENOMEM ? rc : 0;
}

/* ---- text ---- */

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
	ret->module = slash && slash[1] ? slash + 1 : row->module;
	ret->thread[0] = '\0';
	if (!row->thread[0])
		return;
	used = (size_t)snprintf(ret->thread, sizeof(ret->thread), row->tid ? "%s/%jd" : "%s", row->thread,
				(intmax_t)row->tid);
	if (row->top_samples < all && used < sizeof(ret->thread))
		snprintf(ret->thread + used, sizeof(ret->thread) - used, ", %.0f %%",
			 100 * (double)row->top_samples / (double)all);
}

/* The widest of a column, but no more than max. */
static size_t widen(size_t width, const char *text, size_t max)
{
	size_t have = output_characters(text, strlen(text));

	have = have > width ? have : width;
	return have < max ? have : max;
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

static void print_share(uint64_t part, uint64_t all, FILE *file)
{
	double share = all > 0 ? 100 * (double)part / (double)all : 0;

	if (all > 0)
		fprintf(file, "%6.1f", share < SHARE_MAX ? share : SHARE_MAX);
	else
		fputs("     -", file);
}

static void print_numbers(const struct functions *functions, const struct functions_row *row, FILE *file)
{
	for (unsigned p = 0; p < HOTLIST_PHASES; p++) {
		print_share(row->self[p], functions->samples[p], file);
		fputc(' ', file);
		print_share(row->total[p], functions->samples[p], file);
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
	left = (line < WIDTH_MIN ? WIDTH_MIN : line) - NUMBERS_WIDTH - 4 - ret[1];
	/* Of narrow lines the thread gives way to the function, but not altogether. */
	if (left < 16 + ret[2])
		ret[2] = left - 16 > 8 ? left - 16 : 8;
	if (ret[0] > left - ret[2])
		ret[0] = left - ret[2];
}

void functions_print(const struct functions *functions, const struct plot_style *style, FILE *file)
{
	const struct cells head = { "function", "module", "busiest thread" };
	struct cells cells;
	size_t width[3];
	char title[160];

	if (functions->count == 0)
		return;
	snprintf(title, sizeof(title),
		 "Hottest functions (percent of the samples: %ju before the spike, %ju during it)",
		 (uintmax_t)functions->samples[HOTLIST_BEFORE], (uintmax_t)functions->samples[HOTLIST_DURING]);
	fputc('\n', file);
	output_wrap(title, style->width > WIDTH_MIN ? style->width : WIDTH_MIN, file);
	measure(functions, style->width, &head, width);
	fprintf(file, "%13s  %13s\n%6s %6s  %6s %6s  ", "before", "during", "self", "total", "self", "total");
	print_names(&head, width, file);
	for (size_t i = 0; i < functions->count; i++) {
		print_numbers(functions, &functions->row[i], file);
		make_cells(&functions->row[i], &cells);
		print_names(&cells, width, file);
	}
}

/* ---- JSON ---- */

static void put_number(struct json_writer *json, const char *key, uint64_t value)
{
	json_key(json, key);
	json_u64(json, value);
}

static void put_row(struct json_writer *json, const struct functions_row *row)
{
	json_begin_object(json);
	output_json_text(json, "function", row->function);
	output_json_text(json, "module", row->module);
	put_number(json, "self_before", row->self[HOTLIST_BEFORE]);
	put_number(json, "total_before", row->total[HOTLIST_BEFORE]);
	put_number(json, "self_during", row->self[HOTLIST_DURING]);
	put_number(json, "total_during", row->total[HOTLIST_DURING]);
	put_number(json, "self_during_ns", row->self_ns);
	output_json_text(json, "top_thread", row->thread);
	json_key(json, "top_tid");
	json_i64(json, row->tid);
	put_number(json, "top_samples", row->top_samples);
	json_end_object(json);
}

void functions_json(const struct functions *functions, struct json_writer *json)
{
	json_key(json, "functions");
	if (!functions->there) {
		json_null(json);
		return;
	}
	json_begin_object(json);
	put_number(json, "samples_before", functions->samples[HOTLIST_BEFORE]);
	put_number(json, "samples_during", functions->samples[HOTLIST_DURING]);
	json_key(json, "hottest");
	json_begin_array(json);
	for (size_t i = 0; i < functions->count; i++)
		put_row(json, &functions->row[i]);
	json_end_array(json);
	json_end_object(json);
}
