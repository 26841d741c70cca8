/*
 * top.c: spikewatch top: tables on a screen, or one after the other as text. While it is paused the
 * ring is not read: what is written meanwhile is read afterwards, as far as the ring still holds
 * it.
 *
 * One table of columns says in which order they are dropped when the line is short, and how they
 * grow when it is long. Names are cut, figures never.
 */
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/base/plot.h"
#include "cli/top/top_data.h"
#include "daemon/engine/base/clocks.h"
#include "lib/base/base.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/config/config.h"
#include "lib/model/sample.h"
#include "lib/ring/ring.h"

#include <curses.h>
#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

/* <term.h> defines a macro for each capability of a terminal. */
#undef columns
#undef lines

enum top_text_column {
	TOP_TEXT_TARGET,
	TOP_TEXT_CPU,
	TOP_TEXT_CPU_MINUTE,
	TOP_TEXT_CPU_PEAK,
	TOP_TEXT_MEMORY,
	TOP_TEXT_MEMORY_MINUTE,
	TOP_TEXT_MEMORY_PEAK,
	TOP_TEXT_DISTANCE,
	TOP_TEXT_RULES,
	TOP_TEXT_COLUMNS
};

struct top_text {
	bool utf8;
	size_t width[TOP_TEXT_COLUMNS]; /* in characters; 0: not shown */
};

/* A line never needs more bytes. */
#define TOP_TEXT_LINE_MAX 4096

/* Lines on the screen or on standard output. Starts with width and utf8 set, the rest zeroed. */
struct top_page {
	struct top_screen *screen; /* NULL: standard output */
	size_t line;               /* the next */
	size_t width;              /* of a line, in characters; 0: unlimited */
	bool utf8;
};

/* The longest name shown if the width is unlimited. */
#define TOP_TEXT_NAME_MAX 256

/* ---- the table as text ---- */

#define CELL_MAX 1024
#define SPARK_MIN 10
#define SPARK_WIDE 20 /* if the width is unlimited */
#define NAME_MIN 12
#define RULES_MIN 18
#define RULES_MAX 60

struct column {
	const char *head;
	unsigned order; /* in which they are given room */
	size_t width;
	bool left; /* text; figures stand to the right */
};

static const struct column columns[TOP_TEXT_COLUMNS] = {
	[TOP_TEXT_TARGET] = { "TARGET", 0, NAME_MIN, true },
	[TOP_TEXT_CPU] = { "CPU", 1, 7, false },
	[TOP_TEXT_CPU_MINUTE] = { "LAST MINUTE", 4, SPARK_MIN, true },
	[TOP_TEXT_CPU_PEAK] = { "PEAK", 6, 7, false },
	[TOP_TEXT_MEMORY] = { "MEMORY", 2, 9, false },
	[TOP_TEXT_MEMORY_MINUTE] = { "LAST MINUTE", 8, SPARK_MIN, true },
	[TOP_TEXT_MEMORY_PEAK] = { "PEAK", 7, 9, false },
	[TOP_TEXT_DISTANCE] = { "DIST", 3, 5, false },
	[TOP_TEXT_RULES] = { "RULES", 5, RULES_MIN, true },
};

/* Widths that divide a minute evenly. */
static const size_t sparks[] = { 10, 12, 15, 20, 30, 60 };

/* ---- names ---- */

/* The next character of printable text: its bytes and the columns it takes. */
static size_t next_character(const char *text, size_t *ret_wide)
{
	mbstate_t state = { 0 };
	wchar_t wide;
	size_t len = mbrtowc(&wide, text, strlen(text), &state);
	int columns_taken;

	*ret_wide = 1;
	if (len == 0 || len > strlen(text))
		return 1;
	columns_taken = wcwidth(wide);
	*ret_wide = columns_taken < 0 ? 1 : (size_t)columns_taken;
	return len;
}

static size_t text_columns(const char *text)
{
	size_t total = 0, wide;

	for (size_t at = 0; text[at];) {
		at += next_character(text + at, &wide);
		total += wide;
	}
	return total;
}

/* Only ASCII in other locales than UTF-8. */
static void make_printable(const char *text, bool utf8, char *out, size_t cap)
{
	text_escape(out, cap, text, strlen(text));
	for (char *at = out; !utf8 && *at; at++)
		if ((unsigned char)*at >= 0x80)
			*at = '?';
}

/* Bytes of the longest beginning of text that takes at most width columns. */
static size_t prefix_len(const char *text, size_t width, size_t *ret_wide)
{
	size_t at = 0, total = 0, wide;

	while (text[at]) {
		size_t len = next_character(text + at, &wide);

		if (total + wide > width)
			break;
		total += wide;
		at += len;
	}
	*ret_wide = total;
	return at;
}

/* Printable, in at most width characters: cut at its end or, tail, at its front. The width. */
static size_t top_text_fit(const char *text, size_t width, bool utf8, bool tail, char *out)
{
	char printable[CELL_MAX];
	size_t whole, total, len, wide;

	make_printable(text, utf8, printable, sizeof(printable));
	whole = text_columns(printable);
	if (whole <= width) {
		snprintf(out, TOP_TEXT_LINE_MAX, "%s", printable);
		return whole;
	}
	if (width < 3) {
		len = prefix_len(printable, width, &total);
		snprintf(out, TOP_TEXT_LINE_MAX, "%.*s", (int)len, printable);
		return total;
	}
	if (!tail) {
		len = prefix_len(printable, width - 2, &total);
		snprintf(out, TOP_TEXT_LINE_MAX, "%.*s..", (int)len, printable);
		return total + 2;
	}
	len = 0;
	for (total = whole; total > width - 2; total -= wide)
		len += next_character(printable + len, &wide);
	snprintf(out, TOP_TEXT_LINE_MAX, "..%s", printable + len);
	return total + 2;
}

/* Characters of the longest name. */
static size_t top_text_longest(const struct top_table_list *list, bool utf8)
{
	char printable[CELL_MAX];
	size_t longest = 0;

	for (size_t i = 0; i < list->count; i++) {
		make_printable(list->row[i]->name, utf8, printable, sizeof(printable));
		if (text_columns(printable) > longest)
			longest = text_columns(printable);
	}
	return longest;
}

/* ---- columns ---- */

/* Gives `column` up to `most` characters of what is left; returns what then is left. */
static size_t grow(struct top_text *text, enum top_text_column column, size_t most, size_t left)
{
	size_t width = text->width[column], more = most > width ? most - width : 0;

	if (width == 0)
		return left;
	more = more < left ? more : left;
	text->width[column] += more;
	return left - more;
}

/* As far as there is room for the next width a minute can be cut into. */
static size_t grow_spark(struct top_text *text, enum top_text_column column, size_t most, size_t left)
{
	for (size_t i = 0; i < ARRAY_LEN(sparks); i++) {
		size_t width = text->width[column];

		if (width > 0 && sparks[i] > width && sparks[i] <= most && sparks[i] - width <= left) {
			left -= sparks[i] - width;
			text->width[column] = sparks[i];
		}
	}
	return left;
}

static void plan_endless(size_t longest, struct top_text *text)
{
	for (size_t i = 0; i < TOP_TEXT_COLUMNS; i++)
		text->width[i] = columns[i].width;
	text->width[TOP_TEXT_TARGET] = longest > NAME_MIN ? longest : NAME_MIN;
	text->width[TOP_TEXT_CPU_MINUTE] = text->width[TOP_TEXT_MEMORY_MINUTE] = SPARK_WIDE;
	text->width[TOP_TEXT_RULES] = CELL_MAX;
}

/* The columns that fit into width characters (0: all). longest: of the names. */
static void top_text_plan(size_t width, bool utf8, size_t longest, struct top_text *ret)
{
	struct top_text text = { .utf8 = utf8 };
	size_t left = width;

	if (width == 0) {
		plan_endless(longest < TOP_TEXT_NAME_MAX ? longest : TOP_TEXT_NAME_MAX, &text);
		*ret = text;
		return;
	}
	text.width[TOP_TEXT_TARGET] = width < NAME_MIN ? width : NAME_MIN;
	left -= text.width[TOP_TEXT_TARGET];
	for (unsigned order = 1; order < TOP_TEXT_COLUMNS; order++) {
		for (size_t i = 0; i < TOP_TEXT_COLUMNS; i++) {
			if (columns[i].order != order || left < columns[i].width + 1)
				continue;
			text.width[i] = columns[i].width;
			left -= columns[i].width + 1;
		}
	}
	left = grow(&text, TOP_TEXT_TARGET, longest < 32 ? longest : 32, left);
	left = grow_spark(&text, TOP_TEXT_CPU_MINUTE, 20, left);
	left = grow_spark(&text, TOP_TEXT_MEMORY_MINUTE, 20, left);
	left = grow(&text, TOP_TEXT_RULES, 36, left);
	left = grow(&text, TOP_TEXT_TARGET, longest, left);
	left = grow_spark(&text, TOP_TEXT_CPU_MINUTE, 60, left);
	left = grow_spark(&text, TOP_TEXT_MEMORY_MINUTE, 60, left);
	grow(&text, TOP_TEXT_RULES, RULES_MAX, left);
	*ret = text;
}

/* ---- cells ---- */

/* A character for each value, from bottom to top of the range; what is not known is a space, a hole is dotted. */
static void top_text_spark(const double *values, size_t count, double bottom, double top, bool utf8, char *out,
			   size_t cap)
{
	static const char *const blocks[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const ascii[] = { "_", ".", ":", "-", "=", "+", "*", "#" };
	size_t levels = ARRAY_LEN(blocks), len = 0;

	*out = '\0';
	for (size_t i = 0; i < count && len + 4 <= cap; i++) {
		double part = top > bottom ? (values[i] - bottom) / (top - bottom) : 0;
		size_t level = part <= 0 ? 0 : part >= 1 ? levels - 1 : (size_t)(part * (double)levels);
		const char *mark = isnan(values[i]) ? " " : (utf8 ? blocks : ascii)[level];

		if (isinf(values[i]) && values[i] < 0)
			mark = utf8 ? "·" : "?";
		len += (size_t)snprintf(out + len, cap - len, "%s", mark);
	}
}

/* Scaled from 0 to the highest of the minute, at least a tenth of a core. */
static void put_cpu_minute(const struct top_table *table, const struct top_table_row *row, size_t width, bool utf8,
			   char *out)
{
	double values[TOP_TABLE_SECONDS], top = 0.1;

	top_table_history(table, row, TOP_TABLE_CPU_CORES, values, width);
	for (size_t i = 0; i < width; i++)
		top = values[i] > top ? values[i] : top;
	top_text_spark(values, width, 0, top, utf8, out, CELL_MAX);
}

/* Scaled from the lowest of the minute to the highest, at least a tenth of that. */
static void put_memory_minute(const struct top_table *table, const struct top_table_row *row, size_t width, bool utf8,
			      char *out)
{
	double values[TOP_TABLE_SECONDS], top = 0, bottom = INFINITY;

	top_table_history(table, row, TOP_TABLE_MEMORY_BYTES, values, width);
	for (size_t i = 0; i < width; i++) {
		top = values[i] > top ? values[i] : top;
		bottom = values[i] >= 0 && values[i] < bottom ? values[i] : bottom;
	}
	if (bottom + top / 10 > top)
		top = bottom + top / 10;
	top_text_spark(values, width, bottom, top, utf8, out, CELL_MAX);
}

static void put_cores(double cores, char *out)
{
	units_format(out, CELL_MAX, UNIT_PERCENT, 100 * cores, UNITS_NARROW);
}

static void put_bytes(bool known, uint64_t bytes, char *out)
{
	if (known)
		units_format_bytes(out, UNITS_TEXT_MAX, bytes);
	else
		snprintf(out, CELL_MAX, "-");
}

static void put_distance(const struct top_table_row *row, char *out)
{
	double percent = 100 * row->nearness;

	if (!isfinite(percent))
		snprintf(out, CELL_MAX, "-");
	else if (percent < -999.5)
		snprintf(out, CELL_MAX, "%.0fx", percent > -99900 ? percent / 100 : -999);
	else
		snprintf(out, CELL_MAX, "%.0f%%", percent == 0 ? 0 : percent);
}

static size_t put_waiting(const struct top_table_verdict *verdict, char *out, size_t cap)
{
	char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];
	int len;

	if (verdict->wait == TOP_TABLE_PENDING)
		len = snprintf(out, cap, "%.100s pending %s of %s", verdict->rule,
			       units_format_duration(a, sizeof(a), verdict->for_ns),
			       units_format_duration(b, sizeof(b), verdict->for_whole_ns));
	else
		len = snprintf(
			out, cap, "%.100s cooling %s", verdict->rule,
			units_format_duration(a, sizeof(a), (verdict->left_ns + NS_PER_S - 1) / NS_PER_S * NS_PER_S));
	return len < 0 ? 0 : (size_t)len < cap ? (size_t)len : cap - 1;
}

/* The rules that are pending or cooling down, else the name of the nearest. */
static void put_rules(const struct top_table_row *row, char *out)
{
	size_t kept = row->waiting_count < TOP_TABLE_WAITING_MAX ? row->waiting_count : TOP_TABLE_WAITING_MAX, len = 0;

	if (row->gone) {
		snprintf(out, CELL_MAX, "(ended)");
		return;
	}
	for (size_t i = 0; i < kept; i++) {
		if (i > 0)
			len += (size_t)snprintf(out + len, CELL_MAX - len, ", ");
		len += put_waiting(&row->waiting[i], out + len, CELL_MAX - len - 2);
	}
	if (kept < row->waiting_count)
		snprintf(out + len, CELL_MAX - len, ", +%zu", row->waiting_count - kept);
	if (kept == 0)
		snprintf(out, CELL_MAX, "%s", row->nearest ? row->nearest : "-");
}

static void put_cell(const struct top_text *text, const struct top_table *table, const struct top_table_row *row,
		     enum top_text_column column, char out[CELL_MAX])
{
	switch (column) {
	case TOP_TEXT_TARGET:
		snprintf(out, CELL_MAX, "%s", row->name);
		break;
	case TOP_TEXT_CPU:
		put_cores(row->cpu_cores, out);
		break;
	case TOP_TEXT_CPU_MINUTE:
		put_cpu_minute(table, row, text->width[column], text->utf8, out);
		break;
	case TOP_TEXT_CPU_PEAK:
		put_cores(row->cpu_peak, out);
		break;
	case TOP_TEXT_MEMORY:
		put_bytes(row->has_memory && !row->gone, row->memory_bytes, out);
		break;
	case TOP_TEXT_MEMORY_MINUTE:
		put_memory_minute(table, row, text->width[column], text->utf8, out);
		break;
	case TOP_TEXT_MEMORY_PEAK:
		put_bytes(row->memory_peak_bytes > 0, row->memory_peak_bytes, out);
		break;
	case TOP_TEXT_DISTANCE:
		put_distance(row, out);
		break;
	case TOP_TEXT_RULES:
		put_rules(row, out);
		break;
	case TOP_TEXT_COLUMNS:
		break;
	}
}

/* ---- lines ---- */

static size_t append_cell(const struct top_text *text, enum top_text_column column, const char *cell, char *line,
			  size_t len)
{
	char fitted[TOP_TEXT_LINE_MAX];
	size_t width = text->width[column];
	bool last = true;
	size_t wide = top_text_fit(cell, width, text->utf8, column == TOP_TEXT_TARGET, fitted);
	int space = wide < width ? (int)(width - wide) : 0;
	int written;

	for (size_t i = (size_t)column + 1; i < TOP_TEXT_COLUMNS; i++)
		last = last && text->width[i] == 0;
	if (columns[column].left)
		written = snprintf(line + len, TOP_TEXT_LINE_MAX - len, "%s%s%*s", len > 0 ? " " : "", fitted,
				   last ? 0 : space, "");
	else
		written =
			snprintf(line + len, TOP_TEXT_LINE_MAX - len, "%s%*s%s", len > 0 ? " " : "", space, "", fitted);
	if (written < 0)
		return len;
	return len + (size_t)written < TOP_TEXT_LINE_MAX ? len + (size_t)written : TOP_TEXT_LINE_MAX - 1;
}

/* The heads of the columns. Returns line (TOP_TEXT_LINE_MAX bytes). */
static const char *top_text_heads(const struct top_text *text, char *line)
{
	size_t len = 0;

	*line = '\0';
	for (size_t i = 0; i < TOP_TEXT_COLUMNS; i++) {
		const char *head = columns[i].head;

		if (strlen(head) > text->width[i] && i != TOP_TEXT_TARGET && text->width[i] > 0)
			head = "MINUTE";
		if (text->width[i] > 0)
			len = append_cell(text, (enum top_text_column)i, head, line, len);
	}
	return line;
}

static const char *top_text_row(const struct top_text *text, const struct top_table *table,
				const struct top_table_row *row, char *line)
{
	char cell[CELL_MAX];
	size_t len = 0;

	*line = '\0';
	for (size_t i = 0; i < TOP_TEXT_COLUMNS; i++) {
		if (text->width[i] == 0)
			continue;
		put_cell(text, table, row, (enum top_text_column)i, cell);
		len = append_cell(text, (enum top_text_column)i, cell, line, len);
	}
	return line;
}

/* ---- the screen ---- */

/*
 * A terminal whose lines are rewritten in place, and its keyboard: a little of curses. While it is
 * open, SIGINT, SIGTERM and SIGHUP come as a key, and SIGWINCH as another. Signals are blocked except
 * in ppoll(2), so that none is missed between the check and the wait. curses has handlers for SIGTSTP
 * and for SIGWINCH, after which the next read returns KEY_RESIZE.
 *
 * initscr() ends the program when the terminal is unknown; newterm() does not. A terminal whose
 * cursor cannot be moved ("dumb") is not supported.
 */

enum top_screen_look {
	TOP_SCREEN_PLAIN,
	TOP_SCREEN_BRIGHT,  /* a title */
	TOP_SCREEN_HEAD,    /* the heads of columns: reversed, over the whole width */
	TOP_SCREEN_ALARM,   /* red */
	TOP_SCREEN_WAITING, /* yellow */
	TOP_SCREEN_FAINT,
};

/* Other keys are what they type, as a character of ASCII or a byte of UTF-8. */
enum top_screen_key {
	TOP_SCREEN_NOTHING = -1, /* no key in time */
	TOP_SCREEN_END = -2,     /* a signal, or the terminal was closed */
	TOP_SCREEN_RESIZED = -3, /* or Ctrl-L: everything is to be drawn again */
	TOP_SCREEN_UP = -4,
	TOP_SCREEN_DOWN = -5,
	TOP_SCREEN_PAGE_UP = -6,
	TOP_SCREEN_PAGE_DOWN = -7,
	TOP_SCREEN_FIRST = -8,
	TOP_SCREEN_LAST = -9,
	TOP_SCREEN_BACKSPACE = -10,
	TOP_SCREEN_ENTER = -11,
	TOP_SCREEN_ESCAPE = -12,
	TOP_SCREEN_OTHER = -13, /* none of these */
};

struct top_screen {
	SCREEN *screen;
	bool colors;
	unsigned misses;             /* in a row: readable, and nothing to be read */
	sigset_t before;             /* what was blocked */
	struct sigaction actions[3]; /* what was done */
};

/* After so many reads in a row of input that is ready and cannot be read, it counts as closed. */
#define MISSES_MAX 100

static const int endings[] = { SIGINT, SIGTERM, SIGHUP };

static volatile sig_atomic_t ended;

static void on_ending(int number)
{
	(void)number;
	ended = 1;
}

/* Whether standard input and output are one, and of a kind ($TERM) whose cursor can be moved. */
static bool top_screen_possible(void)
{
	const char *term = getenv("TERM");
	int error;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !term || !*term)
		return false;
	if (setupterm(term, STDOUT_FILENO, &error) != OK)
		return false;

	bool movable = cursor_address && clear_screen;

	/* newterm() reads it again. */
	del_curterm(cur_term);
	return movable;
}

static void take_signals(struct top_screen *screen)
{
	struct sigaction action = { .sa_handler = on_ending };
	sigset_t blocked;

	ended = 0;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGWINCH);
	for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
		sigaction(endings[i], &action, &screen->actions[i]);
		sigaddset(&blocked, endings[i]);
	}
	sigprocmask(SIG_BLOCK, &blocked, &screen->before);
}

static void give_signals_back(const struct top_screen *screen)
{
	for (size_t i = 0; i < ARRAY_LEN(endings); i++)
		sigaction(endings[i], &screen->actions[i], NULL);
	sigprocmask(SIG_SETMASK, &screen->before, NULL);
}

static void prepare_colors(struct top_screen *screen, bool color)
{
	screen->colors = color && has_colors() && start_color() == OK && use_default_colors() == OK;
	if (!screen->colors)
		return;
	init_pair(1, COLOR_RED, -1);
	init_pair(2, COLOR_YELLOW, -1);
}

/* curses prefers $LINES and $COLUMNS, which do not change with the terminal. */
static void fit_terminal(void)
{
	struct winsize size;

	if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0 &&
	    is_term_resized(size.ws_row, size.ws_col))
		resize_term(size.ws_row, size.ws_col);
}

/* At most one is open. color: if the terminal has any. 0; -ENOMEM; -ENOTTY: it is not possible. */
static int top_screen_open(bool color, struct top_screen **ret)
{
	struct top_screen *screen;

	if (!top_screen_possible())
		return -ENOTTY;
	screen = calloc(1, sizeof(*screen));
	if (!screen)
		return -ENOMEM;

	/* Before curses installs handlers for signals without one. */
	take_signals(screen);
	screen->screen = newterm(NULL, stdout, stdin);
	if (!screen->screen) {
		give_signals_back(screen);
		free(screen);
		return -ENOTTY;
	}
	cbreak();
	noecho();
	nonl();
	set_escdelay(50);
	keypad(stdscr, TRUE);
	nodelay(stdscr, TRUE);
	curs_set(0);
	fit_terminal();
	prepare_colors(screen, color);
	*ret = screen;
	return 0;
}

/* Restores the terminal. NULL is fine. */
static void top_screen_close(struct top_screen *screen)
{
	if (!screen)
		return;

	curs_set(1);
	endwin();
	delscreen(screen->screen);
	give_signals_back(screen);
	free(screen);
}

/* In characters, as it is now. */
static void top_screen_size(const struct top_screen *screen, size_t *ret_lines, size_t *ret_columns)
{
	(void)screen;
	*ret_lines = LINES > 0 ? (size_t)LINES : 1;
	*ret_columns = COLS > 0 ? (size_t)COLS : 1;
}

static attr_t attributes(const struct top_screen *screen, enum top_screen_look look)
{
	switch (look) {
	case TOP_SCREEN_PLAIN:
		break;
	case TOP_SCREEN_BRIGHT:
		return A_BOLD;
	case TOP_SCREEN_HEAD:
		return A_REVERSE;
	case TOP_SCREEN_ALARM:
		return screen->colors ? A_BOLD | (attr_t)COLOR_PAIR(1) : A_BOLD;
	case TOP_SCREEN_WAITING:
		return screen->colors ? (attr_t)COLOR_PAIR(2) : A_NORMAL;
	case TOP_SCREEN_FAINT:
		return A_DIM;
	}
	return A_NORMAL;
}

/*
 * Replaces line `line` (from 0) by text, which must be printable; a line that is not on the screen
 * is ignored.
 */
static void top_screen_put(struct top_screen *screen, size_t line, enum top_screen_look look, const char *text)
{
	attr_t attribute = attributes(screen, look);

	if (line >= (size_t)LINES || move((int)line, 0) == ERR)
		return;
	clrtoeol();
	attr_set(attribute, (short)PAIR_NUMBER(attribute), NULL);
	addnstr(text, -1);
	/* A text as wide as the screen has moved the cursor to the next line. */
	if (look == TOP_SCREEN_HEAD && getcury(stdscr) == (int)line)
		hline(' ' | attribute, COLS - getcurx(stdscr));
	attr_set(A_NORMAL, 0, NULL);
}

/* Clears all lines from `line` on, and shows what was put. */
static void top_screen_show(struct top_screen *screen, size_t line)
{
	(void)screen;
	if (line < (size_t)LINES && move((int)line, 0) != ERR)
		clrtobot();
	refresh();
}

/* Ctrl-L */
#define REPAINT '\f'

static int translate(int key)
{
	static const struct {
		int curses, ours;
	} keys[] = {
		{ KEY_UP, TOP_SCREEN_UP },
		{ KEY_DOWN, TOP_SCREEN_DOWN },
		{ KEY_PPAGE, TOP_SCREEN_PAGE_UP },
		{ KEY_NPAGE, TOP_SCREEN_PAGE_DOWN },
		{ KEY_HOME, TOP_SCREEN_FIRST },
		{ KEY_END, TOP_SCREEN_LAST },
		{ KEY_BACKSPACE, TOP_SCREEN_BACKSPACE },
		{ 0x7f, TOP_SCREEN_BACKSPACE },
		{ '\b', TOP_SCREEN_BACKSPACE },
		{ KEY_ENTER, TOP_SCREEN_ENTER },
		{ '\r', TOP_SCREEN_ENTER },
		{ '\n', TOP_SCREEN_ENTER },
		{ 0x1b, TOP_SCREEN_ESCAPE },
		{ KEY_RESIZE, TOP_SCREEN_RESIZED },
		{ REPAINT, TOP_SCREEN_RESIZED },
	};

	/* Terminals differ in what they do with their text when they are resized. */
	if (key == KEY_RESIZE || key == REPAINT) {
		fit_terminal();
		clearok(stdscr, TRUE);
	}
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (keys[i].curses == key)
			return keys[i].ours;
	return key >= ' ' && key < 0x100 ? key : TOP_SCREEN_OTHER;
}

/* Waits for a key, at most for wait_ns. */
static int top_screen_key(struct top_screen *screen, uint64_t wait_ns)
{
	struct pollfd keyboard = { .fd = STDIN_FILENO, .events = POLLIN };
	struct timespec wait = { .tv_sec = (time_t)(wait_ns / NS_PER_S), .tv_nsec = (long)(wait_ns % NS_PER_S) };
	int ready, key = ended ? ERR : getch();

	/* curses may have read more than one key. */
	if (key != ERR)
		return translate(key);
	if (ended)
		return TOP_SCREEN_END;
	ready = ppoll(&keyboard, 1, &wait, &screen->before);
	if (ended || (ready < 0 && errno != EINTR) || (keyboard.revents & (POLLHUP | POLLERR | POLLNVAL)))
		return TOP_SCREEN_END;
	key = getch();
	screen->misses = key == ERR && ready > 0 ? screen->misses + 1 : 0;
	if (key != ERR)
		return translate(key);
	return screen->misses < MISSES_MAX ? TOP_SCREEN_NOTHING : TOP_SCREEN_END;
}

/* ---- pages ---- */

static const char *const top_page_orders[TOP_TABLE_ORDERS] = {
	[TOP_TABLE_BY_CPU] = "cpu",
	[TOP_TABLE_BY_MEMORY] = "memory",
	[TOP_TABLE_BY_DISTANCE] = "distance",
	[TOP_TABLE_BY_NAME] = "name",
};

static void put_line(struct top_page *page, enum top_screen_look look, const char *text)
{
	if (page->screen)
		top_screen_put(page->screen, page->line, look, text);
	else
		puts(text);
	page->line++;
}

/* A line of text, made printable, and cut to the width. */
static void top_page_text(struct top_page *page, enum top_screen_look look, const char *text)
{
	char line[TOP_TEXT_LINE_MAX];

	top_text_fit(text, page->width ? page->width : SIZE_MAX, page->utf8, false, line);
	put_line(page, look, line);
}

static const char *time_of_day(wall_t wall, char buf[16])
{
	time_t seconds = (time_t)(wall.ns / NS_PER_S);
	struct tm parts;

	if (wall.ns == 0 || !localtime_r(&seconds, &parts) || strftime(buf, 16, "%H:%M:%S", &parts) == 0)
		snprintf(buf, 16, "--:--:--");
	return buf;
}

static void count_waiting(const struct top_table *table, unsigned *ret_pending, unsigned *ret_cooling)
{
	*ret_pending = *ret_cooling = 0;
	for (size_t i = 0; i < table->count; i++) {
		*ret_pending += table->row[i]->pending;
		*ret_cooling += table->row[i]->cooling;
	}
}

static void top_page_title(struct top_page *page, const struct top_watch *watch, const struct top_table_wish *wish,
			   size_t shown)
{
	char text[512], now[16], since[16], interval[UNITS_TEXT_MAX] = "-", of[32] = "";
	unsigned pending, cooling;

	if (watch->feed.ring)
		units_format_duration(interval, sizeof(interval), ring_interval_ns(watch->feed.ring));
	count_waiting(&watch->table, &pending, &cooling);
	if (shown != watch->table.count)
		snprintf(of, sizeof(of), " of %zu", watch->table.count);
	snprintf(text, sizeof(text),
		 "%s  %zu%s target%s  rules: %u pending, %u cooling  by %s%s  every %s  peaks since %s",
		 time_of_day(watch->feed.wall, now), shown, of, watch->table.count == 1 ? "" : "s", pending, cooling,
		 top_page_orders[wish->order], wish->reverse ? ", reversed" : "", interval,
		 time_of_day(watch->since, since));
	top_page_text(page, TOP_SCREEN_BRIGHT, text);
}

static void top_page_notes(struct top_page *page, const struct top_watch *watch, mono_t now)
{
	char note[TOP_WATCH_NOTE_MAX], text[TOP_WATCH_NOTE_MAX + 8];

	for (size_t i = 0; top_watch_note(watch, now, i, note); i++) {
		snprintf(text, sizeof(text), "! %s", note);
		top_page_text(page, TOP_SCREEN_ALARM, text);
	}
}

static enum top_screen_look look_of(const struct top_table_row *row)
{
	if (row->gone)
		return TOP_SCREEN_FAINT;
	if (row->pending > 0 || row->fired > 0)
		return TOP_SCREEN_ALARM;
	return row->cooling > 0 ? TOP_SCREEN_WAITING : TOP_SCREEN_PLAIN;
}

/* The heads of the columns and, of list, the rows from `first` on, at most `most`. */
static void top_page_rows(struct top_page *page, const struct top_table *table, const struct top_table_list *list,
			  size_t first, size_t most)
{
	char line[TOP_TEXT_LINE_MAX];
	struct top_text text;

	top_text_plan(page->width, page->utf8, top_text_longest(list, page->utf8), &text);
	put_line(page, TOP_SCREEN_HEAD, top_text_heads(&text, line));
	for (size_t i = first; i < list->count && i - first < most; i++) {
		top_text_row(&text, table, list->row[i], line);
		put_line(page, look_of(list->row[i]), line);
	}
}

#define INTERVAL_MIN_NS (100 * NS_PER_MS)
#define INTERVAL_MAX_NS (3600 * NS_PER_S)

/* The ring is read at least this often, or a fast daemon would overwrite it. */
#define READ_INTERVAL_NS NS_PER_S

#define FILTER_MAX 64

struct top {
	struct top_watch watch;
	struct top_table_wish wish;
	struct plot_style style;
	struct clock clock;
	uint64_t interval_ns, frames, rows; /* 0: no limit */
	bool limited;                       /* frames is one */
	/* The screen. */
	struct top_screen *screen;
	size_t first; /* row at the top */
	size_t page;  /* rows that fit */
	bool paused, typing, help, over;
	char filter[FILTER_MAX];
};

static void put_filter(const struct top *top, struct top_page *page)
{
	char text[FILTER_MAX + 8];

	if (!top->typing && !*top->filter)
		return;
	snprintf(text, sizeof(text), "/%s%s", top->filter, top->typing ? "_" : "");
	top_page_text(page, TOP_SCREEN_WAITING, text);
}

static int no_memory(int rc)
{
	return rc == -ENOMEM ? output_no_memory() : EXIT_TROUBLE;
}

/* ---- text ---- */

/* A page on stdout. -1: continue, else the code to exit with. */
static int print_page(struct top *top)
{
	struct top_page page = { .width = top->style.width, .utf8 = top->style.utf8 };
	struct top_table_list list;
	int r = top_table_view(&top->watch.table, &top->wish, &list);

	if (r < 0)
		return no_memory(r);
	top_page_title(&page, &top->watch, &top->wish, list.count);
	top_page_notes(&page, &top->watch, clock_mono(&top->clock));
	top_page_rows(&page, &top->watch.table, &list, 0, top->rows ? top->rows : SIZE_MAX);
	fflush(stdout);
	return ferror(stdout) ? EXIT_TROUBLE : -1;
}

/* Until the next page is due, the ring is read. 0 or -ENOMEM. */
static int wait_and_read(struct top *top, mono_t due)
{
	int r = 0;

	for (mono_t now = clock_mono(&top->clock); r == 0 && mono_diff(due, now) > 0; now = clock_mono(&top->clock)) {
		uint64_t left = (uint64_t)mono_diff(due, now);

		real_clock_sleep_until(mono_add(now, left < READ_INTERVAL_NS ? left : READ_INTERVAL_NS));
		r = top_watch_update(&top->watch, clock_mono(&top->clock));
	}
	return r;
}

static int run_plain(struct top *top)
{
	mono_t due = clock_mono(&top->clock);

	for (uint64_t frame = 0; !top->limited || frame < top->frames; frame++) {
		int r = frame > 0 ? wait_and_read(top, due) : 0, code;

		if (r < 0)
			return no_memory(r);
		if (frame > 0)
			putchar('\n');
		code = print_page(top);
		if (code >= 0)
			return code;
		due = mono_add(clock_mono(&top->clock), top->interval_ns);
	}
	return EXIT_OK;
}

/* ---- screen ---- */

static const char *const help[] = {
	"c m d n    sort by CPU, memory, distance to firing, name",
	"r          the other way round",
	"/          filter by name; * and ? stand for anything",
	"           Enter keeps it, Escape drops it",
	"arrows     scroll; PgUp, PgDn, Home, End",
	"p, space   pause, go on",
	"q          quit",
	"",
	"CPU: percent of one core, over the last second.",
	"PEAK: the most over 100 ms, the most memory.",
	"LAST MINUTE: highest of each part of it; CPU from",
	"nothing, memory from the lowest of the minute.",
	"DIST: how far below its threshold the nearest rule",
	"is, in percent of it; below 0 it is beyond.",
	"RULES: pending and cooling ones, else the nearest.",
};

static void draw_help(struct top_page *page)
{
	for (size_t i = 0; i < ARRAY_LEN(help); i++)
		top_page_text(page, TOP_SCREEN_PLAIN, help[i]);
}

static int draw_screen(struct top *top)
{
	struct top_page page = { .screen = top->screen, .utf8 = top->style.utf8 };
	struct top_table_list list;
	size_t lines;
	int r;

	top_screen_size(top->screen, &lines, &page.width);
	top->wish.filter = top->filter;
	r = top_table_view(&top->watch.table, &top->wish, &list);
	if (r < 0)
		return r;
	top_page_title(&page, &top->watch, &top->wish, list.count);
	if (top->paused)
		top_page_text(&page, TOP_SCREEN_WAITING, "paused; p goes on");
	top_page_notes(&page, &top->watch, clock_mono(&top->clock));
	put_filter(top, &page);
	if (top->help) {
		draw_help(&page);
	} else {
		top->page = lines > page.line + 1 ? lines - page.line - 1 : 1;
		if (top->rows && top->rows < top->page)
			top->page = (size_t)top->rows;
		if (top->first + top->page > list.count)
			top->first = list.count > top->page ? list.count - top->page : 0;
		top_page_rows(&page, &top->watch.table, &list, top->first, top->page);
	}
	top_screen_show(top->screen, page.line);
	return 0;
}

static void type_key(struct top *top, int key)
{
	size_t len = strlen(top->filter);

	if (key == TOP_SCREEN_ENTER || key == TOP_SCREEN_ESCAPE)
		top->typing = false;
	if (key == TOP_SCREEN_ESCAPE)
		*top->filter = '\0';
	/* A character of several bytes goes as a whole. */
	if (key == TOP_SCREEN_BACKSPACE && len > 0) {
		while (len > 1 && ((unsigned char)top->filter[len - 1] & 0xC0) == 0x80)
			len--;
		top->filter[len - 1] = '\0';
	}
	if (key >= ' ' && len + 1 < FILTER_MAX) {
		top->filter[len] = (char)key;
		top->filter[len + 1] = '\0';
	}
	top->first = 0;
}

static void sort_key(struct top *top, enum top_table_order order)
{
	top->wish.order = order;
	top->wish.reverse = false;
	top->first = 0;
}

static void scroll_key(struct top *top, int key)
{
	size_t step = key == TOP_SCREEN_UP || key == TOP_SCREEN_DOWN ? 1 : top->page;

	/* draw_screen keeps it within the table. */
	if (key == TOP_SCREEN_DOWN || key == TOP_SCREEN_PAGE_DOWN)
		top->first += step;
	else if (key == TOP_SCREEN_UP || key == TOP_SCREEN_PAGE_UP)
		top->first -= step < top->first ? step : top->first;
	else
		top->first = key == TOP_SCREEN_LAST ? SIZE_MAX / 2 : 0;
}

static void handle_key(struct top *top, int key)
{
	bool was_help = top->help;

	if (key == TOP_SCREEN_END || (key == 'q' && !top->typing)) {
		top->over = true;
		return;
	}
	if (key == TOP_SCREEN_NOTHING || key == TOP_SCREEN_RESIZED)
		return;
	if (top->typing) {
		type_key(top, key);
		return;
	}
	top->help = false;
	switch (key) {
	case 'c':
		sort_key(top, TOP_TABLE_BY_CPU);
		break;
	case 'm':
		sort_key(top, TOP_TABLE_BY_MEMORY);
		break;
	case 'd':
		sort_key(top, TOP_TABLE_BY_DISTANCE);
		break;
	case 'n':
		sort_key(top, TOP_TABLE_BY_NAME);
		break;
	case 'r':
		top->wish.reverse = !top->wish.reverse;
		break;
	case '/':
		top->typing = true;
		break;
	case 'p':
	case ' ':
		top->paused = !top->paused;
		break;
	case 'h':
	case '?':
		top->help = !was_help;
		break;
	case TOP_SCREEN_ESCAPE:
		*top->filter = '\0';
		break;
	case TOP_SCREEN_UP:
	case TOP_SCREEN_DOWN:
	case TOP_SCREEN_PAGE_UP:
	case TOP_SCREEN_PAGE_DOWN:
	case TOP_SCREEN_FIRST:
	case TOP_SCREEN_LAST:
		scroll_key(top, key);
		break;
	}
}

/* Keys until the next page is due; each is seen at once. 0 or -ENOMEM. */
static int wait_for_keys(struct top *top, mono_t due)
{
	mono_t read = clock_mono(&top->clock);
	int r = 0;

	for (mono_t now = read; r == 0 && !top->over && mono_diff(due, now) > 0; now = clock_mono(&top->clock)) {
		uint64_t left = (uint64_t)mono_diff(due, now);
		int key = top_screen_key(top->screen, left < READ_INTERVAL_NS ? left : READ_INTERVAL_NS);

		handle_key(top, key);
		now = clock_mono(&top->clock);
		if (!top->paused && mono_diff(now, read) >= (int64_t)READ_INTERVAL_NS) {
			r = top_watch_update(&top->watch, now);
			read = now;
		}
		if (r == 0 && key != TOP_SCREEN_NOTHING && !top->over)
			r = draw_screen(top);
	}
	return r;
}

static int show_screen(struct top *top)
{
	int r = 0;

	for (uint64_t frame = 0; r == 0 && !top->over && (!top->limited || frame < top->frames); frame++) {
		r = top->paused ? 0 : top_watch_update(&top->watch, clock_mono(&top->clock));
		if (r == 0)
			r = draw_screen(top);
		if (r == 0)
			r = wait_for_keys(top, mono_add(clock_mono(&top->clock), top->interval_ns));
	}
	return r;
}

static int run_screen(struct top *top)
{
	int r = top_screen_open(top->style.color, &top->screen);

	if (r == -ENOTTY)
		return run_plain(top);
	if (r < 0)
		return no_memory(r);
	snprintf(top->filter, sizeof(top->filter), "%s", top->wish.filter ? top->wish.filter : "");
	r = show_screen(top);
	top_screen_close(top->screen);
	return r < 0 ? no_memory(r) : EXIT_OK;
}

/* ---- command ---- */

/* -1: continue, else the code to exit with. */
static int choose_order(const char *name, enum top_table_order *ret)
{
	const char *nearest;

	for (size_t i = 0; i < TOP_TABLE_ORDERS; i++)
		if (strcmp(top_page_orders[i], name) == 0) {
			*ret = (enum top_table_order)i;
			return -1;
		}
	nearest = options_nearest(name, top_page_orders, TOP_TABLE_ORDERS);
	fprintf(stderr, "spikewatch top: --sort: \"");
	output_escaped(stderr, name);
	fprintf(stderr, "\" is none of cpu, memory, distance, name");
	fprintf(stderr, nearest ? "; did you mean %s?\n" : "%s\n", nearest ? nearest : "");
	return EXIT_USAGE;
}

static int run(struct top *top, const char *ring, const char *config, bool plain)
{
	char message[CONFIG_FILE_MESSAGE_MAX];
	int r = top_watch_init(&top->watch, ring, config, message);

	if (r < 0) {
		output_complain("spikewatch top", message, NULL);
		return r == -EINVAL ? EXIT_USAGE : EXIT_TROUBLE;
	}
	r = top_watch_update(&top->watch, clock_mono(&top->clock));
	if (r < 0)
		return no_memory(r);
	if (!top->watch.feed.ring)
		return top_watch_explain(&top->watch, "spikewatch top: ", stderr);

	plot_style_detect(stdout, &top->style);
	/* Nothing is cut in a file or a pipe. */
	if (!isatty(STDOUT_FILENO) && !getenv("COLUMNS"))
		top->style.width = 0;
	r = plain ? run_plain(top) : run_screen(top);
	/* The table of --once lacks the rules, as it says. */
	return r == EXIT_OK && plain && *top->watch.bad_config ? EXIT_TROUBLE : r;
}

static void release(struct top *top)
{
	top_watch_release(&top->watch);
}

int top_command(int argc, char **argv)
{
	const char *ring = NULL, *config = NULL, *sort = "cpu";
	bool once = false;
	AUTO(release) struct top top = { .clock = real_clock(), .interval_ns = NS_PER_S };
	uint64_t count = UINT64_MAX;
	const struct option_spec options[] = {
		{ 0, "once", OPTION_FLAG, NULL, "print one table as text, and end", &once },
		{ 0, "sort", OPTION_TEXT, "KEY", "cpu, memory, distance or name (cpu)", &sort },
		{ 'r', "reverse", OPTION_FLAG, NULL, "sort the other way round", &top.wish.reverse },
		{ 0, "filter", OPTION_TEXT, "TEXT", "targets with it in their name; may hold * and ?",
		  &top.wish.filter },
		{ 'i', "interval", OPTION_DURATION, "TIME", "between two tables: 100ms to 1h (1s)", &top.interval_ns },
		{ 0, "count", OPTION_NUMBER, "N", "end after so many tables", &count },
		{ 'n', "rows", OPTION_NUMBER, "N", "at most so many targets", &top.rows },
		{ 0, "ring", OPTION_TEXT, "FILE", "the daemon's ring; see below", &ring },
		{ 'c', "config", OPTION_TEXT, "FILE", "the daemon's configuration, for rules and ring", &config },
	};
	const struct options_usage usage = {
		.command = "spikewatch top",
		.summary = "Shows targets live, straight from the ring: the daemon is not asked and not slowed down.",
		.description = "The ring is by default that of your own daemon, else /run/spikewatch/ring;\n"
			       "the configuration is what the daemon's command line says. On a screen: ? for help.\n"
			       "Where there is no screen (a pipe, TERM=dumb), one text table after the other.",
		.example = "spikewatch top --once --sort distance -n 5",
		.exits = "0 shown, 1 no ring or not allowed, 2 wrong usage or a file that is not a ring",
		.options = options,
		.option_count = ARRAY_LEN(options),
	};
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	code = choose_order(sort, &top.wish.order);
	if (code >= 0)
		return code;
	if (top.interval_ns < INTERVAL_MIN_NS || top.interval_ns > INTERVAL_MAX_NS)
		return options_wrong(usage.command, "--interval: from 100ms to 1h");
	if (count == 0)
		return options_wrong(usage.command, "--count: at least 1");
	top.limited = once || count != UINT64_MAX;
	top.frames = once ? 1 : count;
	return run(&top, ring, config, once);
}
