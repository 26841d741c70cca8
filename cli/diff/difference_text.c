/*
 * difference_text.c: each table is A, B and the change, side by side, then names. On narrow lines only the change stays. What is on one side
 * only has a dash on the other, and the side's label in the column "only".
 */
#include "difference.h"

#include "contrastload.h"
#include "output.h"
#include "scope.h"
#include "units.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define WIDTH_MIN 40
#define WIDTH_FULL 72
#define SHARE_MAX 999.9 /* a file that lies may have more samples in a function than in all */
#define NAME_MIN 8

enum cell { CELL_SHARE, CELL_CPU, CELL_COUNT, CELL_BYTES };

/* A number of each side, and by how much it has changed. */
struct column {
	const char *head;
	enum cell cell;
	int measure; /* -1: both together */
};

#define COLUMNS_MAX 2

static const struct form {
	const char *title, *of, *name, *place;
	size_t columns;
	struct column column[COLUMNS_MAX];
} forms[DIFFERENCE_TABLES] = {
	[DIFFERENCE_FUNCTIONS] = { "Functions",
				   "percent of the CPU samples",
				   "function",
				   "module",
				   2,
				   { { "self", CELL_SHARE, 0 }, { "total", CELL_SHARE, 1 } } },
	[DIFFERENCE_STACK_THREADS] = { "Threads by their stacks",
				       "percent of the CPU samples",
				       "thread",
				       "process",
				       1,
				       { { "", CELL_SHARE, 0 } } },
	[DIFFERENCE_MEMORY_FUNCTIONS] = { "Functions that touched new memory",
					  "percent of the bytes",
					  "function",
					  "module",
					  2,
					  { { "self", CELL_SHARE, 0 }, { "total", CELL_SHARE, 1 } } },
	[DIFFERENCE_MEMORY_THREADS] = { "Threads that touched new memory",
					"percent of the bytes",
					"thread",
					"process",
					1,
					{ { "", CELL_SHARE, 0 } } },
	[DIFFERENCE_THREADS] = { "Threads by name",
				 "CPU in percent of one core, within about a second; n: how many",
				 "thread",
				 NULL,
				 2,
				 { { "cpu", CELL_CPU, 0 }, { "n", CELL_COUNT, 1 } } },
	[DIFFERENCE_MAPPINGS] = { "Mappings",
				  "resident and swapped",
				  "mapping",
				  "permissions",
				  1,
				  { { "", CELL_BYTES, -1 } } },
};

/* Of a number, and of a change, which has a sign. */
static int cell_width(enum cell cell, bool change)
{
	static const int widths[] = { [CELL_SHARE] = 6, [CELL_CPU] = 6, [CELL_COUNT] = 4, [CELL_BYTES] = 9 };

	return widths[cell] + (change ? 1 : 0);
}

static int group_width(const struct form *form, bool change)
{
	int width = -1;

	for (size_t i = 0; i < form->columns; i++)
		width += 1 + cell_width(form->column[i].cell, change);
	return width;
}

static double cap(double value, double most)
{
	return value > most ? most : value < -most ? -most : value;
}

static void print_number(enum cell cell, double value, bool change, FILE *file)
{
	const char *sign = change && value > 0 ? "+" : change && value < 0 ? "-" : "";
	char number[64], text[72];

	/* The sign of what reads 0.0 would be a lie. */
	if (cell == CELL_CPU)
		value /= CONTRASTLOAD_PERCENT;
	if ((cell == CELL_SHARE || cell == CELL_CPU) && fabs(value) < 0.05)
		sign = "";
	if (cell == CELL_SHARE)
		snprintf(number, sizeof(number), "%.1f", fabs(cap(value, SHARE_MAX)));
	else if (cell == CELL_CPU)
		snprintf(number, sizeof(number), fabs(value) < 9999 ? "%.1f" : "%.0f", fabs(cap(value, 9999999)));
	else if (cell == CELL_COUNT)
		snprintf(number, sizeof(number), "%.0f", fabs(value));
	else
		units_format_bytes(number, sizeof(number), value < 0 ? (uint64_t)-value : (uint64_t)value);
	snprintf(text, sizeof(text), "%s%s", sign, number);
	fprintf(file, "%*s", cell_width(cell, change), text);
}

static double side_value(const struct contrast *contrast, const struct contrast_row *row, enum contrast_side side,
			 int measure)
{
	if (measure >= 0)
		return contrast_value(contrast, row, side, (unsigned)measure);
	return contrast_value(contrast, row, side, 0) + contrast_value(contrast, row, side, 1);
}

static void print_side(const struct form *form, const struct contrast *contrast, const struct contrast_row *row,
		       enum contrast_side side, FILE *file)
{
	for (size_t i = 0; i < form->columns; i++) {
		const struct column *column = &form->column[i];

		if (i > 0)
			fputc(' ', file);
		if (row->there[side])
			print_number(column->cell, side_value(contrast, row, side, column->measure), false, file);
		else
			fprintf(file, "%*s", cell_width(column->cell, false), "-");
	}
	fputs("  ", file);
}

static void print_change(const struct form *form, const struct contrast *contrast, const struct contrast_row *row,
			 FILE *file)
{
	for (size_t i = 0; i < form->columns; i++) {
		int measure = form->column[i].measure;

		if (i > 0)
			fputc(' ', file);
		print_number(form->column[i].cell,
			     side_value(contrast, row, CONTRAST_B, measure) -
				     side_value(contrast, row, CONTRAST_A, measure),
			     true, file);
	}
	fputs("  ", file);
}

/* ---- names ---- */

/* The bytes of the first so many characters. */
static size_t bytes_of(const char *text, size_t characters)
{
	size_t len = 0;

	for (; text[len]; len++)
		if (((unsigned char)text[len] & 0xC0) != 0x80 && characters-- == 0)
			break;
	return len;
}

/* At most width characters, filled up unless it is the last; what is longer ends with two dots, a path begins with them. */
static void print_text(const char *text, size_t width, bool last, FILE *file)
{
	size_t have = output_characters(text, strlen(text));

	if (have <= width) {
		fprintf(file, "%s%*s", text, last ? 0 : (int)(width - have), "");
	} else if (text[0] == '/') {
		fputs("..", file);
		fputs(text + bytes_of(text, have - width + 2), file);
	} else {
		fwrite(text, 1, bytes_of(text, width - 2), file);
		fputs("..", file);
	}
}

/* A module is called by its file. */
static const char *place_of(enum difference_table table, const struct contrast_row *row)
{
	const char *slash = strrchr(row->place, '/');
	bool module = table == DIFFERENCE_FUNCTIONS || table == DIFFERENCE_MEMORY_FUNCTIONS;

	return module && slash && slash[1] ? slash + 1 : row->place;
}

static const char *name_of(const struct contrast_row *row)
{
	return row->name[0] ? row->name : "?";
}

/* ---- a table ---- */

/* What is printed, and where. */
struct page {
	const struct difference *difference;
	enum difference_table table;
	const struct form *form;
	const struct contrast *contrast;
	size_t head, tail; /* of the rows */
	size_t width, only_width, name_width, place_width;
	bool full;
	FILE *file;
};

/* Those that have grown, and then those that have shrunk: of both what has changed most is first. */
static const struct contrast_row *row_of(const struct page *page, size_t i)
{
	return &page->contrast->rows[i < page->head ? i : page->contrast->count - 1 - (i - page->head)];
}

static size_t widen(size_t width, const char *text)
{
	size_t have = output_characters(text, strlen(text));

	return have > width ? have : width;
}

/* 0: everything is on both sides, and the column is not there. */
static size_t only_width(const struct page *page)
{
	size_t width = 0;

	for (size_t i = 0; i < page->head + page->tail; i++)
		for (unsigned side = 0; side < CONTRAST_SIDES; side++)
			if (!row_of(page, i)->there[1 - side])
				width = widen(width > 0 ? width : strlen("only"),
					      difference_label(page->difference, page->table, side));
	return width;
}

/* Names have what the numbers leave; of that, the place no more than two fifths. */
static void measure(struct page *page)
{
	size_t name = strlen(page->form->name), place = page->form->place ? strlen(page->form->place) : 0;
	size_t numbers = (size_t)group_width(page->form, true) + 2, left;

	page->only_width = only_width(page);
	if (page->full)
		numbers += 2 * ((size_t)group_width(page->form, false) + 2);
	for (size_t i = 0; i < page->head + page->tail; i++) {
		name = widen(name, name_of(row_of(page, i)));
		place = page->form->place ? widen(place, place_of(page->table, row_of(page, i))) : 0;
	}
	left = page->width - numbers - (page->only_width > 0 ? page->only_width + 2 : 0);
	if (!page->full || !page->form->place || left < 2 * NAME_MIN + 2)
		place = 0;
	if (place > 0 && name + 2 + place > left && place > left * 2 / 5)
		place = left * 2 / 5;
	page->place_width = place;
	left -= place > 0 ? place + 2 : 0;
	page->name_width = name < left ? name : left;
}

static void print_names(const struct page *page, const char *only, const char *name, const char *place)
{
	if (page->only_width > 0) {
		print_text(only, page->only_width, false, page->file);
		fputs("  ", page->file);
	}
	print_text(name, page->name_width, page->place_width == 0 || !*place, page->file);
	if (page->place_width > 0 && *place) {
		fputs("  ", page->file);
		print_text(place, page->place_width, true, page->file);
	}
	fputc('\n', page->file);
}

static void print_heads(const struct page *page, bool change)
{
	for (size_t i = 0; i < page->form->columns; i++) {
		const struct column *column = &page->form->column[i];

		fprintf(page->file, "%s%*s", i > 0 ? " " : "", cell_width(column->cell, change), column->head);
	}
	fputs("  ", page->file);
}

/* Labels of the groups; below them, if a group has more than one number, those of the numbers. */
static void print_header(const struct page *page)
{
	const struct form *form = page->form;
	const char *place = form->place ? form->place : "";
	bool second = form->columns > 1;

	for (unsigned side = 0; page->full && side < CONTRAST_SIDES; side++)
		fprintf(page->file, "%*s  ", group_width(form, false),
			difference_label(page->difference, page->table, side));
	fprintf(page->file, "%*s", group_width(form, true), "change");
	if (!second) {
		fputs("  ", page->file);
		print_names(page, "only", form->name, place);
		return;
	}
	fputc('\n', page->file);
	for (unsigned side = 0; page->full && side < CONTRAST_SIDES; side++)
		print_heads(page, false);
	print_heads(page, true);
	print_names(page, "only", form->name, place);
}

static void print_row(const struct page *page, const struct contrast_row *row)
{
	const char *only = "";

	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		if (page->full)
			print_side(page->form, page->contrast, row, side, page->file);
		if (!row->there[1 - side])
			only = difference_label(page->difference, page->table, side);
	}
	print_change(page->form, page->contrast, row, page->file);
	print_names(page, only, name_of(row), place_of(page->table, row));
}

/* "Functions (percent of the CPU samples; A: 990, B: 76)" */
static void print_title(const struct page *page)
{
	char text[300], amount[CONTRAST_SIDES][40];

	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		uint64_t sum = page->contrast->sum[side];

		if (difference_of_memory(page->table))
			units_format_bytes(amount[side], sizeof(amount[side]), sum);
		else
			snprintf(amount[side], sizeof(amount[side]), "%" PRIu64, sum);
	}
	if (page->contrast->shares)
		snprintf(text, sizeof(text), "%s (%s; %s: %s, %s: %s)", page->form->title, page->form->of,
			 difference_label(page->difference, page->table, CONTRAST_A), amount[CONTRAST_A],
			 difference_label(page->difference, page->table, CONTRAST_B), amount[CONTRAST_B]);
	else
		snprintf(text, sizeof(text), "%s (%s)", page->form->title, page->form->of);
	fputc('\n', page->file);
	output_wrap(text, page->width, page->file);
}

static void print_table(const struct difference *difference, enum difference_table table, size_t rows, size_t width,
			FILE *file)
{
	struct page page = { .difference = difference,
			     .table = table,
			     .form = &forms[table],
			     .contrast = &difference->table[table],
			     .width = width,
			     .full = width >= WIDTH_FULL,
			     .file = file };
	size_t changed;

	if (!contrast_ready(page.contrast))
		return;
	changed = contrast_choose(page.contrast, rows, &page.head, &page.tail);
	print_title(&page);
	if (changed == 0) {
		fputs(page.contrast->count > 0 ? "  nothing has changed\n" : "  there are none\n", file);
		return;
	}
	measure(&page);
	if (page.head + page.tail > 0)
		print_header(&page);
	for (size_t i = 0; i < page.head + page.tail; i++)
		print_row(&page, row_of(&page, i));
	if (changed > page.head + page.tail)
		fprintf(file, "  ... and %zu more\n", changed - page.head - page.tail);
}

static int print_head(const struct difference *difference, size_t width, FILE *file)
{
	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		AUTO_FREE char *line = NULL;
		AUTO_FREE char *whole = NULL;
		const char *label = !difference->one     ? (side == CONTRAST_A ? "A" : "B")
				    : side == CONTRAST_A ? "Incident"
							 : "Compared";

		if (difference_headline(difference, side, &line) < 0 || asprintf(&whole, "%s: %s", label, line) < 0)
			return -ENOMEM;
		output_wrap(whole, width, file);
	}
	return 0;
}

int difference_print(const struct difference *difference, bool memory_first, size_t rows, size_t width, FILE *file)
{
	size_t line = width > WIDTH_MIN ? width : WIDTH_MIN;
	int rc = print_head(difference, line, file);

	if (rc < 0)
		return rc;
	for (unsigned memory = 0; memory < 2; memory++)
		for (unsigned i = 0; i < DIFFERENCE_THREADS; i++)
			if (difference_of_memory(i) == ((memory == 1) != memory_first))
				print_table(difference, i, rows, line, file);
	for (unsigned i = DIFFERENCE_THREADS; i < DIFFERENCE_TABLES; i++)
		print_table(difference, i, rows, line, file);
	if (difference->notes > 0)
		fputc('\n', file);
	for (size_t i = 0; i < difference->notes; i++) {
		AUTO_FREE char *text = NULL;

		if (asprintf(&text, "Note: %s.", difference->note[i]) < 0)
			return -ENOMEM;
		output_wrap(text, line, file);
	}
	return 0;
}
