/*
 * plot.c: draws row by row from the top; every cell is decided by plot_cell alone, from its row,
 * its column and the scale.
 *
 * The scale is chosen so that every bar and every level fits and its quarters are round numbers;
 * what exceeds them by less than can be measured, or cannot be, ends at the top. A bar is solid up
 * to the mean of its column and shaded from there to the peak, so a burst shorter than a column is
 * seen and is not mistaken for one that filled it. A column of which nothing is known is blank and
 * interrupts the axis; a column of zeros does not. A column that was not looked at is dotted from
 * top to bottom.
 *
 * Braille would double the resolution, but cannot show two shades, and fonts disagree about it.
 */
#include "cli/base/plot.h"

#include "lib/base/base.h"

#include <langinfo.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LABEL_WIDTH 9 /* "1023.5 MiB" is shown as "1023 MiB" */
#define ROWS_DEFAULT 8
#define ROWS_MAX 40
#define LEVEL_FAR 1.5 /* times everything seen: such a level is not drawn */

/* The characters of a style. Steps go from the lowest filling of a cell to a full one. */
struct glyphs {
	const char *const *steps;
	int step_count;
	const char *shade, *hole, *trigger, *trigger_foot, *axis, *foot;
	const char *level[PLOT_LEVELS_MAX];
};

static const char *const utf8_steps[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
static const char *const ascii_steps[] = { ".", "#" };

static const struct glyphs utf8_glyphs = { utf8_steps, 8, "░", "·", "┊", "▲", "┤", "─", { "─", "╌", "┄" } };
static const struct glyphs ascii_glyphs = { ascii_steps, 2, ":", "?", "|", "^", "|", "-", { "-", "=", "~" } };

/* What plot_cell needs to know. */
struct canvas {
	const struct plot *plot;
	const struct plot_style *style;
	const struct glyphs *glyphs;
	FILE *file;
	unsigned rows;
	double top;            /* value at the upper edge */
	size_t trigger_column; /* columns: not in the picture */
};

enum ink { INK_NONE, INK_BAR, INK_SHADE, INK_HOLE, INK_LEVEL, INK_TRIGGER };

static bool known(double value)
{
	return isfinite(value);
}

/* A variable of the environment, else what the terminal says, else usual; within min and max. */
static unsigned screen_size(const char *variable, unsigned short terminal, unsigned usual, unsigned min, unsigned max)
{
	const char *text = getenv(variable);
	unsigned long size = text ? strtoul(text, NULL, 10) : 0;

	if (size == 0)
		size = terminal;
	if (size == 0)
		return usual;
	return size < min ? min : size > max ? max : (unsigned)size;
}

void plot_style_detect(FILE *file, struct plot_style *ret)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
	struct winsize size = { 0 };

	if (ioctl(fileno(file), TIOCGWINSZ, &size) < 0)
		size = (struct winsize){ 0 };

	ret->utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	ret->color = isatty(fileno(file)) && !(no_color && *no_color) && term && strcmp(term, "dumb") != 0;
	ret->width = screen_size("COLUMNS", size.ws_col, PLOT_WIDTH_DEFAULT, PLOT_WIDTH_MIN, PLOT_WIDTH_MAX);
	ret->lines = screen_size("LINES", size.ws_row, PLOT_LINES_DEFAULT, PLOT_LINES_DEFAULT / 2, PLOT_LINES_MAX);
}

size_t plot_columns(const struct plot_style *style)
{
	/* label, axis, and one column left free so that no terminal wraps */
	unsigned taken = LABEL_WIDTH + 3;

	return style->width < taken + 8 ? 8 : style->width - taken;
}

/*
 * A value at the axis, where the unit of cores is in the title and decimals of round numbers only
 * take room.
 */
static const char *axis_text(enum unit_kind unit, double value, char *buf, size_t cap)
{
	if (unit == UNIT_BYTES)
		return units_format(buf, cap, unit, value, UNITS_COLUMN);
	if (unit == UNIT_PERCENT)
		snprintf(buf, cap, "%.*f %%", value < 10 && value > 0 ? 1 : 0, value);
	else
		snprintf(buf, cap, "%.*f", unit == UNIT_CORES ? 2 : 0, value);
	return buf;
}

/*
 * The smallest number that holds value and whose half is round: few digits, for bytes 1 or 1.5
 * times a power of two.
 */
static double round_up(enum unit_kind unit, double value)
{
	static const double decimal[] = { 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10 };
	double power;

	/* Or the loops would take too long. */
	if (value < 1e-6 || value > 1e30)
		return value;
	if (unit == UNIT_BYTES) {
		for (power = 4096; power < value;)
			power *= power * 1.5 >= value ? 1.5 : 2;
		return power;
	}
	for (power = 1; power > value;)
		power /= 10;
	for (; power * 10 <= value;)
		power *= 10;
	for (size_t i = 0; i < ARRAY_LEN(decimal); i++) {
		if (decimal[i] * power >= value * (1 - 1e-9))
			return decimal[i] * power;
	}
	return value;
}

static double scale_top(const struct plot *plot)
{
	double top = 0;

	for (size_t i = 0; i < plot->columns; i++) {
		if (known(plot->peak[i]) && plot->peak[i] > top)
			top = plot->peak[i];
	}
	for (size_t i = 0; i < plot->levels; i++) {
		/*
		 * A limit far above everything seen would flatten the picture: it is named, not
		 * drawn.
		 */
		if (known(plot->level[i].value) && plot->level[i].value > top && plot->level[i].value < top * LEVEL_FAR)
			top = plot->level[i].value;
	}
	if (top <= 0)
		return plot->unit == UNIT_BYTES ? 4096 : 1;
	top = round_up(plot->unit, top * (1 - plot->grain));
	return plot->most > 0 && top > plot->most ? plot->most : top;
}

/* The row, 0 the lowest, in which a value ends; rows or more: above the picture. */
static unsigned row_of(const struct canvas *canvas, double value)
{
	double row = value / canvas->top * canvas->rows;

	if (row >= canvas->rows)
		return row > canvas->rows ? canvas->rows : canvas->rows - 1;
	return row > 0 ? (unsigned)row : 0;
}

/* How many steps (0 .. step_count) of the cell in this row a bar up to value fills. */
static int fill(const struct canvas *canvas, unsigned row, double value)
{
	int steps = canvas->glyphs->step_count;
	double cells = value / canvas->top * canvas->rows - row;

	if (cells >= 1)
		return steps;
	if (cells <= 0)
		return 0;
	/* At the bottom every value gets at least the lowest step. */
	return (int)(cells * steps + 0.5) + (row == 0 && cells * steps < 0.5);
}

/* Which level runs through this row, -1 none. */
static int level_in(const struct canvas *canvas, unsigned row)
{
	const struct plot *plot = canvas->plot;

	for (size_t i = 0; i < plot->levels && i < PLOT_LEVELS_MAX; i++) {
		if (known(plot->level[i].value) && row_of(canvas, plot->level[i].value) == row)
			return (int)i;
	}
	return -1;
}

static bool in_hole(const struct canvas *canvas, size_t column)
{
	return canvas->plot->hole && canvas->plot->hole[column];
}

static const char *plot_cell(const struct canvas *canvas, unsigned row, size_t column, enum ink *ret_ink)
{
	const struct glyphs *glyphs = canvas->glyphs;
	double peak = canvas->plot->peak[column];
	double mean = canvas->plot->mean ? canvas->plot->mean[column] : peak;
	bool hole = in_hole(canvas, column);
	int peak_fill = known(peak) && !hole ? fill(canvas, row, peak) : 0;
	int mean_fill = known(mean) && !hole ? fill(canvas, row, mean) : 0;
	int level = level_in(canvas, row);

	if (mean_fill > 0 && (mean_fill >= peak_fill || mean_fill * 2 >= glyphs->step_count)) {
		*ret_ink = INK_BAR;
		return glyphs->steps[mean_fill - 1];
	}
	if (peak_fill > 0) {
		*ret_ink = INK_SHADE;
		return peak_fill == glyphs->step_count ? glyphs->shade : glyphs->steps[peak_fill - 1];
	}
	if (column == canvas->trigger_column) {
		*ret_ink = INK_TRIGGER;
		return glyphs->trigger;
	}
	if (level >= 0) {
		*ret_ink = INK_LEVEL;
		return glyphs->level[level];
	}
	if (hole) {
		*ret_ink = INK_HOLE;
		return glyphs->hole;
	}
	*ret_ink = INK_NONE;
	return " ";
}

static void set_ink(const struct canvas *canvas, enum ink ink)
{
	static const char *const codes[] = {
		[INK_NONE] = "\033[0m",   [INK_BAR] = "\033[0;36m",   [INK_SHADE] = "\033[0;2;36m",
		[INK_HOLE] = "\033[0;2m", [INK_LEVEL] = "\033[0;33m", [INK_TRIGGER] = "\033[0;1;31m",
	};

	if (canvas->style->color)
		fputs(codes[ink], canvas->file);
}

static void draw_label(const struct canvas *canvas, unsigned row)
{
	unsigned rows = canvas->rows;
	char text[32] = "";
	int level = level_in(canvas, row);

	if (level >= 0)
		axis_text(canvas->plot->unit, canvas->plot->level[level].value, text, sizeof(text));
	else if (row == rows - 1)
		axis_text(canvas->plot->unit, canvas->top, text, sizeof(text));
	else if (rows >= 4 && row == rows / 2)
		axis_text(canvas->plot->unit, canvas->top / 2, text, sizeof(text));
	fprintf(canvas->file, "%*s %s", LABEL_WIDTH, text, canvas->glyphs->axis);
}

static void draw_row(const struct canvas *canvas, unsigned row)
{
	enum ink now = INK_NONE;

	draw_label(canvas, row);
	for (size_t column = 0; column < canvas->plot->columns; column++) {
		enum ink ink;
		const char *cell = plot_cell(canvas, row, column, &ink);

		if (ink != now)
			set_ink(canvas, ink);
		now = ink;
		fputs(cell, canvas->file);
	}
	if (now != INK_NONE)
		set_ink(canvas, INK_NONE);
	fputc('\n', canvas->file);
}

/* The axis: interrupted where nothing is known, the trigger marked. */
static void draw_axis(const struct canvas *canvas)
{
	const struct plot *plot = canvas->plot;
	const struct glyphs *glyphs = canvas->glyphs;

	fprintf(canvas->file, "%*s %s", LABEL_WIDTH, "0", glyphs->axis);
	for (size_t column = 0; column < plot->columns; column++) {
		if (column == canvas->trigger_column) {
			set_ink(canvas, INK_TRIGGER);
			fputs(glyphs->trigger_foot, canvas->file);
			set_ink(canvas, INK_NONE);
		} else {
			fputs(in_hole(canvas, column)     ? glyphs->hole
			      : known(plot->peak[column]) ? glyphs->foot
							  : " ",
			      canvas->file);
		}
	}
	fputc('\n', canvas->file);
}

static void place(char *line, size_t columns, size_t at, const char *text)
{
	size_t len = strlen(text);

	if (at + len > columns)
		at = columns > len ? columns - len : 0;
	if (len > columns)
		return;
	/* Numbers that would touch are left out: the later call is the less important one. */
	for (size_t i = at ? at - 1 : 0; i < columns && i <= at + len; i++) {
		if (line[i] != ' ')
			return;
	}
	memcpy(line + at, text, len);
}

static void draw_times(const struct canvas *canvas)
{
	const struct plot *plot = canvas->plot;
	char line[PLOT_WIDTH_MAX + 1], text[32];
	size_t columns = plot->columns < PLOT_WIDTH_MAX ? plot->columns : PLOT_WIDTH_MAX, end;

	memset(line, ' ', columns);
	if (canvas->trigger_column < columns)
		place(line, columns, canvas->trigger_column, "0");
	snprintf(text, sizeof(text), "%+.*f s", fabs(plot->from_s) < 10 ? 1 : 0, plot->from_s);
	place(line, columns, 0, text);
	snprintf(text, sizeof(text), "%+.*f s", fabs(plot->to_s) < 10 ? 1 : 0, plot->to_s);
	place(line, columns, columns, text);
	for (end = columns; end > 0 && line[end - 1] == ' ';)
		end--;
	fprintf(canvas->file, "%*s  %.*s\n", LABEL_WIDTH, "", (int)end, line);
}

/* An entry of the legend into buf. False: there is none of this number. */
static bool legend_entry(const struct canvas *canvas, size_t i, char *buf, size_t cap)
{
	const struct plot *plot = canvas->plot;
	char value[32];

	if (i < plot->levels && i < PLOT_LEVELS_MAX && known(plot->level[i].value))
		snprintf(buf, cap, "%s %s %s", canvas->glyphs->level[i], plot->level[i].name,
			 units_format(value, sizeof(value), plot->unit, plot->level[i].value, UNITS_COLUMN));
	else if (i == plot->levels && plot->mean && !plot->terse)
		snprintf(buf, cap, "%s peak within a column", canvas->glyphs->shade);
	else if (i == plot->levels + 1 && plot->hole && plot->hole_is)
		snprintf(buf, cap, "%s %s", canvas->glyphs->hole, plot->hole_is);
	else if (i == plot->levels + 2 && canvas->trigger_column < plot->columns && !plot->terse)
		snprintf(buf, cap, "%s trigger", canvas->glyphs->trigger_foot);
	else
		return false;
	return true;
}

/* Wrapped at the width. */
static void draw_legend(const struct canvas *canvas)
{
	size_t width = LABEL_WIDTH + 2 + canvas->plot->columns, used = 0;
	char text[128];

	for (size_t i = 0; i < canvas->plot->levels + 3; i++) {
		size_t len;

		if (!legend_entry(canvas, i, text, sizeof(text)))
			continue;
		len = strlen(text) + 3;
		if (used > 0 && used + len > width) {
			fputc('\n', canvas->file);
			used = 0;
		}
		fprintf(canvas->file, "%*s%s", used == 0 ? LABEL_WIDTH + 2 : 3, "", text);
		used += used == 0 ? LABEL_WIDTH + 2 + len - 3 : len;
	}
	if (used > 0)
		fputc('\n', canvas->file);
}

/* The title, and behind it as much of a terse legend as fits. */
static void draw_title(const struct canvas *canvas)
{
	size_t used = strlen(canvas->plot->title);
	char text[128];

	fputs(canvas->plot->title, canvas->file);
	for (size_t i = 0; canvas->plot->terse && i < canvas->plot->levels + 3; i++) {
		if (!legend_entry(canvas, i, text, sizeof(text)) || used + 3 + strlen(text) > canvas->style->width + 2)
			continue;
		fprintf(canvas->file, "   %s", text);
		used += 3 + strlen(text);
	}
	fputc('\n', canvas->file);
}

void plot_draw(const struct plot *plot, const struct plot_style *style, FILE *file)
{
	struct canvas canvas = {
		.plot = plot,
		.style = style,
		.glyphs = style->utf8 ? &utf8_glyphs : &ascii_glyphs,
		.file = file,
		.rows = plot->rows == 0         ? ROWS_DEFAULT
			: plot->rows > ROWS_MAX ? ROWS_MAX
						: plot->rows,
		.top = scale_top(plot),
		.trigger_column = plot->columns,
	};
	double span = plot->to_s - plot->from_s;

	if (plot->trigger && span > 0 && plot->from_s <= 0 && plot->to_s >= 0) {
		canvas.trigger_column = (size_t)(-plot->from_s / span * (double)plot->columns);
		if (canvas.trigger_column >= plot->columns && plot->columns > 0)
			canvas.trigger_column = plot->columns - 1;
	}

	draw_title(&canvas);
	for (unsigned row = canvas.rows; row-- > 0;)
		draw_row(&canvas, row);
	draw_axis(&canvas);
	draw_times(&canvas);
	if (!plot->terse)
		draw_legend(&canvas);
}
