/*
 * table.c: cuts the text into cells, makes each presentable, measures, prints. Everything is of fixed size: a cell that is
 * longer than its room is cut, and a file with more columns or rows than there is room for shows the first of them.
 */
#include "table.h"

#include "output.h"
#include "scope.h"
#include "text.h"
#include "units.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define CELL_MAX 128 /* bytes of a presentable cell */
#define TEXT_MIN 8   /* a text column that can not have so much is left out */

enum cell_kind { CELL_PLAIN, CELL_DURATION, CELL_SIZE, CELL_PERCENT };

struct table {
	size_t columns, rows;            /* rows: the header included */
	size_t order[TABLE_COLUMNS_MAX]; /* which column of the file is shown where */
	size_t shown;
	enum cell_kind kind[TABLE_COLUMNS_MAX];
	bool text[TABLE_COLUMNS_MAX];    /* not all of it is numbers */
	size_t width[TABLE_COLUMNS_MAX]; /* characters */
	char cell[TABLE_ROWS_MAX + 1][TABLE_COLUMNS_MAX][CELL_MAX];
};

static size_t characters(const char *text)
{
	return output_characters(text, strlen(text));
}

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), tail = strlen(end);

	return len > tail && strcmp(text + len - tail, end) == 0;
}

static enum cell_kind kind_of(const char *name)
{
	if (ends_with(name, "_ns"))
		return CELL_DURATION;
	if (ends_with(name, "_bytes"))
		return CELL_SIZE;
	return ends_with(name, "_percent") ? CELL_PERCENT : CELL_PLAIN;
}

/* The unit is in the cells. */
static void drop_unit(char *name)
{
	static const char *const units[] = { "_ns", "_bytes", "_percent" };

	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		if (ends_with(name, units[i])) {
			name[strlen(name) - strlen(units[i])] = '\0';
			return;
		}
	}
}

static bool is_number(const char *text)
{
	return *text && strspn(text, "0123456789.+-") == strlen(text);
}

/*
 * Escapes, but for the backslash: what was escaped when it was written must not be escaped again. text_escape writes one
 * as \x5c, and nothing else so.
 */
static size_t escape(char *out, size_t size, const char *data, size_t len)
{
	size_t used = text_escape(out, size, data, len), to = 0;

	for (size_t from = 0; from < used; to++) {
		bool backslash = strncmp(out + from, "\\x5c", 4) == 0;

		out[to] = out[from];
		from += backslash ? 4 : 1;
	}
	out[to] = '\0';
	return to;
}

/* A number of this kind with its unit, sign included; anything else is only escaped. */
static void present(enum cell_kind kind, const char *from, size_t len, char ret[static CELL_MAX])
{
	const char *digits = len > 0 && (*from == '-' || *from == '+') ? from + 1 : from;
	const char *end = from + len;
	char sign[2] = { digits > from ? *from : '\0', '\0' }, number[CELL_MAX - 8];
	uint64_t value;

	if ((kind != CELL_DURATION && kind != CELL_SIZE) || text_parse_u64(digits, end, &value) != end) {
		size_t used = escape(ret, CELL_MAX - 2, from, len);

		if (kind == CELL_PERCENT && is_number(ret))
			memcpy(ret + used, " %", 3);
		return;
	}
	if (kind == CELL_DURATION)
		units_format_duration(number, sizeof(number), value);
	else
		units_format_bytes(number, sizeof(number), value);
	snprintf(ret, CELL_MAX, "%s%s", sign, number);
}

/* The columns that were asked for; all of them if the file has none of those. */
static void choose(struct table *table, const char *columns)
{
	table->shown = 0;
	while (columns && *columns) {
		size_t len = strcspn(columns, " ");

		for (size_t c = 0; c < table->columns && table->shown < TABLE_COLUMNS_MAX; c++) {
			const char *name = table->cell[0][c];

			if (strlen(name) == len && memcmp(name, columns, len) == 0)
				table->order[table->shown++] = c;
		}
		columns += len + strspn(columns + len, " ");
	}
	for (size_t c = 0; table->shown == 0 && c < table->columns; c++)
		table->order[c] = c;
	if (table->shown == 0)
		table->shown = table->columns;
}

static void finish_header(struct table *table, const char *columns)
{
	choose(table, columns);
	for (size_t c = 0; c < table->columns; c++) {
		table->kind[c] = kind_of(table->cell[0][c]);
		drop_unit(table->cell[0][c]);
		table->width[c] = characters(table->cell[0][c]);
	}
}

static void add_row(struct table *table, const char *line, size_t len)
{
	const char *end = line + len;
	bool header = table->rows == 0;

	for (size_t c = 0; c < TABLE_COLUMNS_MAX && line <= end && (header || c < table->columns); c++) {
		const char *tab = memchr(line, '\t', (size_t)(end - line));
		char *cell = table->cell[table->rows][c];
		size_t wide;

		present(header ? CELL_PLAIN : table->kind[c], line, (size_t)((tab ? tab : end) - line), cell);
		if (header)
			table->columns = c + 1;
		else if (table->kind[c] == CELL_PLAIN && *cell && !is_number(cell))
			table->text[c] = true;
		wide = characters(cell);
		if (wide > table->width[c])
			table->width[c] = wide;
		line = tab ? tab + 1 : end + 1;
	}
	table->rows++;
}

/* Cuts text columns until the line fits, the widest first; then leaves out columns from the right. */
static void fit(struct table *table, size_t width)
{
	for (;;) {
		size_t total = 0, widest = TABLE_COLUMNS_MAX;

		for (size_t i = 0; i < table->shown; i++) {
			size_t c = table->order[i];

			total += table->width[c] + (i ? 2 : 0);
			if (table->text[c] && table->width[c] > TEXT_MIN &&
			    (widest == TABLE_COLUMNS_MAX || table->width[c] > table->width[widest]))
				widest = c;
		}
		if (total <= width)
			return;
		if (widest < TABLE_COLUMNS_MAX) {
			size_t over = total - width, room = table->width[widest] - TEXT_MIN;

			table->width[widest] -= over < room ? over : room;
		} else if (table->shown > 1) {
			table->shown--;
		} else {
			table->width[table->order[0]] = width;
			return;
		}
	}
}

/* The end of a text that has so many characters. */
static const char *last_characters(const char *text, size_t have, size_t wanted)
{
	for (; have > wanted; have--)
		do
			text++;
		while (((unsigned char)*text & 0xC0) == 0x80);
	return text;
}

/* Pads, or cuts at a character: a path at its front, because its end says more. */
static void print_cell(const char *text, size_t width, bool left, bool last, FILE *file)
{
	size_t have = characters(text), bytes = 0, shown = 0;

	if (!left && have < width)
		fprintf(file, "%*s", (int)(width - have), "");
	if (*text == '/' && have > width && width > 3) {
		fprintf(file, "..%s", last_characters(text, have, width - 2));
		return;
	}
	while (text[bytes]) {
		if (((unsigned char)text[bytes] & 0xC0) != 0x80 && shown++ == width)
			break;
		bytes++;
	}
	fwrite(text, 1, bytes, file);
	if (left && have < width && !last)
		fprintf(file, "%*s", (int)(width - have), "");
}

static void print_rows(const struct table *table, FILE *file)
{
	for (size_t r = 0; r < table->rows; r++) {
		for (size_t i = 0; i < table->shown; i++) {
			size_t c = table->order[i];
			bool last = i + 1 == table->shown;

			print_cell(table->cell[r][c], table->width[c], table->text[c], last, file);
			if (!last)
				fputs("  ", file);
		}
		fputc('\n', file);
	}
}

static void print_remark(const char *line, size_t len, size_t width, FILE *file)
{
	char shown[512] = "(";
	size_t used;

	while (len > 0 && (*line == '#' || *line == ' ')) {
		line++;
		len--;
	}
	used = 1 + escape(shown + 1, sizeof(shown) - 3, line, len);
	memcpy(shown + used, ")", 2);
	output_wrap(shown, width, file);
}

/* Calls itself no line at the end of the text. */
static bool next_line(const char **text, const char *end, const char **ret_line, size_t *ret_len)
{
	const char *newline;

	if (*text == end)
		return false;
	newline = memchr(*text, '\n', (size_t)(end - *text));
	*ret_line = *text;
	*ret_len = (size_t)((newline ? newline : end) - *text);
	*text = newline ? newline + 1 : end;
	return true;
}

size_t table_print(const char *text, size_t len, const char *columns, size_t rows, size_t width, FILE *file)
{
	AUTO_FREE struct table *table = calloc(1, sizeof(*table));
	const char *end = text + len, *at = text, *line;
	size_t line_len, total = 0;

	if (!table)
		return 0;
	if (rows > TABLE_ROWS_MAX)
		rows = TABLE_ROWS_MAX;
	while (next_line(&at, end, &line, &line_len)) {
		if (line_len == 0 || *line == '#')
			continue;
		if (table->rows <= rows)
			add_row(table, line, line_len);
		if (total++ == 0)
			finish_header(table, columns);
	}
	if (total == 0)
		return 0;

	fit(table, width);
	print_rows(table, file);
	if (total > table->rows)
		fprintf(file, "(%zu more)\n", total - table->rows);
	for (at = text; next_line(&at, end, &line, &line_len);) {
		if (line_len > 0 && *line == '#')
			print_remark(line, line_len, width, file);
	}
	return table->rows - 1;
}
