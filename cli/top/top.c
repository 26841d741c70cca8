/*
 * top.c: spikewatch top: tables on a screen, or one after the other as text. While it is paused the
 * ring is not read: what is written meanwhile is read afterwards, as far as the ring still holds
 * it.
 *
 * One table of columns says in which order they are dropped when the line is short, and how they
 * grow when it is long. Names are cut, figures never.
 *
 * On a screen there are views: the list of targets, one target, the list of incidents, one incident.
 * All but the first list are lines that are made anew when they are drawn, and can be scrolled, so
 * whatever does not fit is a key away and nothing in them is cut.
 */
#include "cli/base/client.h"
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/base/plot.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/story.h"
#include "cli/incident/view.h"
#include "cli/top/top_data.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/base.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/config/config.h"
#include "lib/proc/procfs.h"
#include "lib/config/selection.h"
#include "lib/model/sample.h"
#include "lib/ring/ring.h"

#include <curses.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
	struct output_names names;      /* of the targets on the page, printable */
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
	bool terse; /* the screen is so low that what is too long is cut */
};

/* The longest name shown if the width is unlimited. */
#define TOP_TEXT_NAME_MAX 256

/* ---- the table as text ---- */

#define CELL_MAX 1024
#define SPARK_MIN 10
#define SPARK_WIDE 20 /* if the width is unlimited */
#define NAME_MIN 12
#define NAME_WIDE 40
#define OPTIONAL_COLUMNS 4 /* their order begins there */
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

/* Printable, in at most width columns: what is longer is cut at its end. The columns it takes. */
static size_t top_text_fit(const char *text, size_t width, bool utf8, char *out)
{
	char printable[CELL_MAX];
	size_t whole, total, len;

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
	len = prefix_len(printable, width - 2, &total);
	snprintf(out, TOP_TEXT_LINE_MAX, "%.*s..", (int)len, printable);
	return total + 2;
}

/* A name that is too long: cut in the middle, so that it stays apart from the others on the page. */
static void cut_name(const char *name, size_t width, const struct top_text *text, char ret[CELL_MAX])
{
	AUTO_FREE char *cut = NULL;
	size_t len;
	FILE *file;

	make_printable(name, text->utf8, ret, CELL_MAX);
	if (width < 3 || text_columns(ret) <= width)
		return;
	file = open_memstream(&cut, &len);
	if (!file)
		return;
	output_fit_among(ret, &text->names, width, OUTPUT_CUT_DOTS, file);
	if (fclose(file) == 0)
		snprintf(ret, CELL_MAX, "%s", cut);
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
		/* A whole name comes before what can be read when the target is opened. */
		if (order == OPTIONAL_COLUMNS)
			left = grow(&text, TOP_TEXT_TARGET, longest < NAME_WIDE ? longest : NAME_WIDE, left);
		for (size_t i = 0; i < TOP_TEXT_COLUMNS; i++) {
			if (columns[i].order != order || left < columns[i].width + 1)
				continue;
			text.width[i] = columns[i].width;
			left -= columns[i].width + 1;
		}
	}
	left = grow_spark(&text, TOP_TEXT_CPU_MINUTE, 12, left);
	left = grow(&text, TOP_TEXT_RULES, 30, left);
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
	units_format(out, UNITS_TEXT_MAX, UNIT_PERCENT, 100 * cores, UNITS_NARROW);
}

/* ~: what processes that ended had used is not known exactly. */
static void put_used(const struct top_table_row *row, double cores, char *out)
{
	bool estimated = sample_has(&row->sample, SAMPLE_CPU_ESTIMATED) && isfinite(cores);

	*out = '~';
	put_cores(cores, estimated ? out + 1 : out);
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

/* brief: without times, which are in the view of the target. */
static size_t put_waiting(const struct top_table_verdict *verdict, bool brief, char *out, size_t cap)
{
	char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];
	int len;

	if (brief)
		len = snprintf(out, cap, "%.100s %s", verdict->rule,
			       verdict->wait == TOP_TABLE_PENDING ? "pending" : "cooling");
	else if (verdict->wait == TOP_TABLE_PENDING)
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
static void put_rules(const struct top_table_row *row, bool brief, char *out)
{
	size_t kept = row->waiting_count < TOP_TABLE_WAITING_MAX ? row->waiting_count : TOP_TABLE_WAITING_MAX, len = 0;

	if (row->gone) {
		snprintf(out, CELL_MAX, "(ended)");
		return;
	}
	for (size_t i = 0; i < kept; i++) {
		if (i > 0)
			len += (size_t)snprintf(out + len, CELL_MAX - len, ", ");
		len += put_waiting(&row->waiting[i], brief, out + len, CELL_MAX - len - 2);
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
		cut_name(row->name, text->width[column], text, out);
		break;
	case TOP_TEXT_CPU:
		put_used(row, row->cpu_cores, out);
		break;
	case TOP_TEXT_CPU_MINUTE:
		put_cpu_minute(table, row, text->width[column], text->utf8, out);
		break;
	case TOP_TEXT_CPU_PEAK:
		put_used(row, row->cpu_peak, out);
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
		put_rules(row, false, out);
		if (text_columns(out) > text->width[column])
			put_rules(row, true, out);
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
	size_t wide = top_text_fit(cell, width, text->utf8, fitted);
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
	TOP_SCREEN_CHOSEN, /* the line that Enter opens: over the whole width */
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
	init_pair(3, COLOR_BLACK, COLOR_CYAN);
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
	case TOP_SCREEN_CHOSEN:
		return screen->colors ? (attr_t)COLOR_PAIR(3) : A_STANDOUT;
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
	if ((look == TOP_SCREEN_HEAD || look == TOP_SCREEN_CHOSEN) && getcury(stdscr) == (int)line)
		hline(' ' | attribute, COLS - getcurx(stdscr));
	attr_set(A_NORMAL, 0, NULL);
}

/* Clears all lines from `line` on. */
static void top_screen_clear(size_t line)
{
	if (line < (size_t)LINES && move((int)line, 0) != ERR)
		clrtobot();
}

/* Shows what was put. */
static void top_screen_show(struct top_screen *screen)
{
	(void)screen;
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

	top_text_fit(text, page->width ? page->width : SIZE_MAX, page->utf8, line);
	put_line(page, look, line);
}

/* Bytes of the first of the lines that text is broken into: at a space, if there is one in its second half. */
static size_t first_line(const char *text, size_t width)
{
	size_t wide, len = prefix_len(text, width, &wide), at = len;

	if (!text[len])
		return len;
	while (at > len / 2 && text[at] != ' ')
		at--;
	return at > len / 2 ? at : len > 0 ? len : strlen(text);
}

/* As many lines as it takes, those after the first indented by two; without a width one. */
static void top_page_wrap(struct top_page *page, enum top_screen_look look, const char *text)
{
	char printable[2 * TOP_TEXT_LINE_MAX], line[TOP_TEXT_LINE_MAX];
	size_t width = page->width ? page->width : SIZE_MAX;
	const char *at = printable;

	if (page->terse) {
		top_page_text(page, look, text);
		return;
	}
	make_printable(text, page->utf8, printable, sizeof(printable));
	for (const char *indent = ""; *at; indent = width > 20 ? "  " : "") {
		size_t len = first_line(at, width - strlen(indent));

		snprintf(line, sizeof(line), "%s%.*s", indent, (int)len, at);
		put_line(page, look, line);
		at += len;
		at += strspn(at, " ");
	}
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
	char rest[2][UNITS_TEXT_MAX + 16]; /* left out where there is no room */
	unsigned pending, cooling;

	if (watch->feed.ring)
		units_format_duration(interval, sizeof(interval), ring_interval_ns(watch->feed.ring));
	count_waiting(&watch->table, &pending, &cooling);
	if (shown != watch->table.count)
		snprintf(of, sizeof(of), " of %zu", watch->table.count);
	snprintf(text, sizeof(text), "%s  %zu%s target%s  %u pending, %u cooling  by %s%s",
		 time_of_day(watch->feed.wall, now), shown, of, watch->table.count == 1 ? "" : "s", pending, cooling,
		 top_page_orders[wish->order], wish->reverse ? ", reversed" : "");
	snprintf(rest[0], sizeof(rest[0]), "  every %s", interval);
	snprintf(rest[1], sizeof(rest[1]), "  since %s", time_of_day(watch->since, since)); /* that of the peaks */
	for (size_t i = 0; i < ARRAY_LEN(rest); i++)
		if (page->width == 0 || strlen(text) + strlen(rest[i]) <= page->width)
			snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s", rest[i]);
	top_page_wrap(page, TOP_SCREEN_BRIGHT, text);
}

static void top_page_notes(struct top_page *page, const struct top_watch *watch, mono_t now)
{
	char note[TOP_WATCH_NOTE_MAX], text[TOP_WATCH_NOTE_MAX + 8];

	for (size_t i = 0; top_watch_note(watch, now, i, note); i++) {
		snprintf(text, sizeof(text), "! %s", note);
		top_page_wrap(page, TOP_SCREEN_ALARM, text);
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

#define NONE_CHOSEN SIZE_MAX

/* The heads of the columns and, of list, the rows from `first` on, at most `most`. */
static void top_page_rows(struct top_page *page, const struct top_table *table, const struct top_table_list *list,
			  size_t first, size_t most, size_t chosen)
{
	size_t left = first < list->count ? list->count - first : 0, count = left < most ? left : most;
	AUTO_FREE char *room = malloc(count * CELL_MAX + 1);
	AUTO_FREE const char **names = calloc(count + 1, sizeof(*names));
	char line[TOP_TEXT_LINE_MAX];
	struct top_text text;

	top_text_plan(page->width, page->utf8, top_text_longest(list, page->utf8), &text);
	for (size_t i = 0; room && names && i < count; i++) {
		names[i] = room + i * CELL_MAX;
		make_printable(list->row[first + i]->name, page->utf8, room + i * CELL_MAX, CELL_MAX);
	}
	if (room && names)
		text.names = (struct output_names){ names, count };
	put_line(page, TOP_SCREEN_HEAD, top_text_heads(&text, line));
	for (size_t i = first; i < list->count && i - first < most; i++) {
		top_text_row(&text, table, list->row[i], line);
		put_line(page, i == chosen ? TOP_SCREEN_CHOSEN : look_of(list->row[i]), line);
	}
}

#define INTERVAL_MIN_NS (100 * NS_PER_MS)
#define INTERVAL_MAX_NS (3600 * NS_PER_S)

/* The ring is read at least this often, or a fast daemon would overwrite it. */
#define READ_INTERVAL_NS NS_PER_S

#define FILTER_MAX 64

enum top_view { TOP_VIEW_TARGETS, TOP_VIEW_TARGET, TOP_VIEW_INCIDENTS, TOP_VIEW_INCIDENT };

/* A thread of a process, or a process of a cgroup. */
struct top_task {
	int32_t id;
	char name[20];
	char state;
	uint64_t cpu_ns;
	double cores; /* since the look before; NAN: not known */
};

#define TASKS_MAX 2048

/* Of the target that is open, by id. */
struct top_tasks {
	struct top_task *task;
	size_t count, cap;
	mono_t at;       /* 0: not looked yet */
	const char *why; /* why there are none; NULL: there are */
	bool are_threads, cut;
};

struct top_incidents {
	char directory[INCIDENT_LOAD_PATH_MAX];
	struct incident_load_names names; /* those that the filter lets pass */
	int error;
	char open[INCIDENT_NAME_MAX + 1]; /* the one that is shown */
	bool full;
};

struct top {
	struct top_watch watch;
	struct top_table_wish wish;
	struct plot_style style;
	struct clock clock;
	uint64_t interval_ns, frames, rows; /* 0: no limit */
	bool limited;                       /* frames is one */
	/* The screen. */
	struct top_screen *screen;
	enum top_view view;
	bool from_target; /* the incidents were asked for in the view of a target */
	size_t first;     /* row at the top */
	size_t page;      /* rows that fit */
	uint32_t *list;   /* ids in the list as it was drawn last */
	size_t list_count, list_cap;
	uint32_t chosen_id; /* 0: the first */
	size_t chosen;      /* the place in the list, or of an incident in its own */
	uint32_t target;    /* that is open */
	char target_name[256];
	struct top_tasks tasks;
	struct top_incidents incidents;
	struct buffer lines; /* of a view: a character for the look, text, newline */
	struct buffer shown; /* the incident that is shown, as text of shown_width */
	size_t shown_width;
	bool paused, typing, help, over;
	bool asking;                                     /* whether to trigger; of target_name, "": of all */
	char message[600];                               /* at the end, until a key is pressed */
	char filter[FILTER_MAX], filters[2][FILTER_MAX]; /* in force; kept of targets, of incidents */
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
	top_page_rows(&page, &top->watch.table, &list, 0, top->rows ? top->rows : SIZE_MAX, NONE_CHOSEN);
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

/* ---- views made of lines ---- */

static const char *const help[] = {
	"up, down   choose; PgUp, PgDn, Home, End",
	"Enter      open the target: threads, rules, command line",
	"i          incidents; Enter shows one, f all of it",
	"t          trigger an incident of the target, asked first",
	"/          search by name; * and ? stand for anything",
	"           Enter keeps it, Escape drops it",
	"c m d n    sort by CPU, memory, distance to firing, name",
	"r          the other way round",
	"p, space   pause, go on",
	"Escape, q  back; q in the list of targets quits",
	"",
	"CPU: percent of one core, over the last second.",
	"PEAK: the most over 100 ms, the most memory.",
	"LAST MINUTE: highest of each part of it; CPU from",
	"nothing, memory from the lowest of the minute.",
	"DIST: how far below its threshold the nearest rule",
	"is, in percent of it; below 0 it is beyond.",
	"RULES: pending and cooling ones, else the nearest.",
};

/* Appends a line of printable text as lines that fit the width. What there is no memory for is missing. */
static void add_printable(struct top *top, size_t width, enum top_screen_look look, const char *at)
{
	const char *indent = "";
	char head = (char)('a' + look);

	do {
		size_t len = first_line(at, width > strlen(indent) ? width - strlen(indent) : 1);

		if (buffer_append(&top->lines, &head, 1) < 0 ||
		    buffer_append(&top->lines, indent, strlen(indent)) < 0 || buffer_append(&top->lines, at, len) < 0 ||
		    buffer_append(&top->lines, "\n", 1) < 0)
			return;
		at += len;
		at += strspn(at, " ");
		indent = width > 20 ? "  " : "";
	} while (*at);
}

/* The same of any text. */
static void add_wrapped(struct top *top, size_t width, enum top_screen_look look, const char *text)
{
	char printable[2 * TOP_TEXT_LINE_MAX];

	make_printable(text, top->style.utf8, printable, sizeof(printable));
	add_printable(top, width, look, printable);
}

__attribute__((format(printf, 4, 5))) static void add_line(struct top *top, size_t width, enum top_screen_look look,
							   const char *format, ...)
{
	char text[TOP_TEXT_LINE_MAX];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	add_wrapped(top, width, look, text);
}

static size_t count_lines(const struct buffer *lines)
{
	size_t count = 0;

	for (size_t i = 0; i < lines->len; i++)
		count += lines->data[i] == '\n';
	return count;
}

/* The lines from top->first on, as many as there is room for above `foot` more. */
static void put_lines(struct top *top, struct top_page *page, size_t lines, size_t foot)
{
	size_t count = count_lines(&top->lines), number = 0;
	const char *end = top->lines.data + top->lines.len;

	top->page = lines > page->line + foot ? lines - page->line - foot : 1;
	if (top->first + top->page > count)
		top->first = count > top->page ? count - top->page : 0;
	for (const char *at = top->lines.data; at && at < end; number++) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		char line[TOP_TEXT_LINE_MAX];

		snprintf(line, sizeof(line), "%.*s", (int)(stop - at - 1), at + 1);
		if (number >= top->first && number < top->first + top->page)
			put_line(page, (enum top_screen_look)(*at - 'a'), line);
		at = stop + 1;
	}
}

/* ---- one target ---- */

static struct top_table_row *row_of(const struct top *top, uint32_t id)
{
	for (size_t i = 0; i < top->watch.table.count; i++)
		if (top->watch.table.row[i]->id == id)
			return top->watch.table.row[i];
	return NULL;
}

static int by_id(const void *a, const void *b)
{
	const struct top_task *x = a, *y = b;

	return (x->id > y->id) - (x->id < y->id);
}

/* What it used: to the nanosecond where the kernel says so, else by ticks. */
static uint64_t task_cpu_ns(int pid_directory, const char *prefix, const struct procfs_stat *stat)
{
	char path[40], text[96];
	uint64_t ns = 0;
	ssize_t len;

	snprintf(path, sizeof(path), "%sschedstat", prefix);
	len = pid_directory_read(pid_directory, path, text, sizeof(text));
	if (len > 0 && text_parse_u64(text, text + len, &ns))
		return ns;
	return (stat->user_ticks + stat->system_ticks) * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK));
}

/* Adds what prefix ("task/12/", "") in the directory of a process is. 0 or -ENOMEM. */
static int add_task(struct top_tasks *tasks, int pid_directory, int32_t id, const char *prefix)
{
	char path[40], text[1024];
	struct procfs_stat stat;
	struct top_task task = { .id = id, .cores = NAN };
	ssize_t len;

	snprintf(path, sizeof(path), "%sstat", prefix);
	len = pid_directory_read(pid_directory, path, text, sizeof(text));
	if (len <= 0 || procfs_stat_parse(text, (size_t)len, &stat) < 0)
		return 0;
	snprintf(task.name, sizeof(task.name), "%.*s", (int)stat.comm_len, stat.comm);
	task.state = stat.state;
	task.cpu_ns = task_cpu_ns(pid_directory, prefix, &stat);
	if (vector_reserve(&tasks->task, &tasks->cap, tasks->count + 1, sizeof(*tasks->task)) < 0)
		return -ENOMEM;
	tasks->task[tasks->count++] = task;
	return 0;
}

static int add_threads(struct top_tasks *tasks, int procfd, const struct target *target)
{
	AUTO_CLOSE int pidfd = -1;
	int taskfd, r = pid_directory_open(procfd, target->pid, target->start_ticks, &pidfd);
	DIR *dir;

	if (r < 0)
		return r;
	taskfd = openat(pidfd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = taskfd < 0 ? NULL : fdopendir(taskfd);
	if (!dir)
		return -errno;
	for (struct dirent *item; r == 0 && (item = readdir(dir));) {
		int32_t id = proc_read_pid_of(item->d_name);
		char prefix[24];

		snprintf(prefix, sizeof(prefix), "task/%d/", id);
		tasks->cut = tasks->count >= TASKS_MAX;
		if (id && !tasks->cut)
			r = add_task(tasks, pidfd, id, prefix);
	}
	closedir(dir);
	return r;
}

/* Of one cgroup.procs, and those below it. */
static int add_members(struct top_tasks *tasks, int procfd, int cgroupfd, unsigned depth)
{
	FILE *file = NULL;
	DIR *dir = NULL;
	int fd = openat(cgroupfd, "cgroup.procs", O_RDONLY | O_CLOEXEC), r = 0;
	char line[32];

	if (fd < 0) /* no cgroup: a directory of hierarchies */
		return 0;
	file = fdopen(fd, "re");
	while (r == 0 && file && fgets(line, sizeof(line), file)) {
		AUTO_CLOSE int pidfd = -1;
		int32_t pid = (int32_t)strtol(line, NULL, 10);

		tasks->cut |= tasks->count >= TASKS_MAX;
		if (!tasks->cut && pid > 0 && pid_directory_open(procfd, pid, 0, &pidfd) == 0)
			r = add_task(tasks, pidfd, pid, "");
	}
	if (file)
		fclose(file);
	fd = depth > 0 ? openat(cgroupfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	dir = fd < 0 ? NULL : fdopendir(fd);
	for (struct dirent *item; r == 0 && dir && !tasks->cut && (item = readdir(dir));) {
		AUTO_CLOSE int below = -1;

		if (item->d_type != DT_DIR || item->d_name[0] == '.')
			continue;
		below = openat(cgroupfd, item->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (below >= 0)
			r = add_members(tasks, procfd, below, depth - 1);
	}
	if (dir)
		closedir(dir);
	return r;
}

#define CGROUP_DEPTH_MAX 8

/* In the first hierarchy that has it. */
static int add_processes(struct top_tasks *tasks, int procfd, const struct target *target)
{
	static const char *const roots[] = { "", "/unified", "/systemd", "/cpu", "/cpu,cpuacct", "/memory" };

	for (size_t i = 0; i < ARRAY_LEN(roots); i++) {
		char path[PATH_MAX];
		AUTO_CLOSE int fd = -1;
		int r;

		snprintf(path, sizeof(path), "/sys/fs/cgroup%s%s", roots[i], target->cgroup);
		fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		r = fd < 0 ? 0 : add_members(tasks, procfd, fd, CGROUP_DEPTH_MAX);
		if (r < 0 || tasks->count > 0)
			return r;
	}
	return -ENOENT;
}

/* Asks the daemon of this ring quietly: what goes wrong is in message, on one line. The code to exit with. */
static int ask_quietly(const struct top *top, const char *command, const char *request, struct json_document **ret,
		       char *message, size_t cap)
{
	AUTO_CLOSE int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
	AUTO_CLOSE int said = memfd_create("message", MFD_CLOEXEC);
	const char *slash = top->watch.feed.path ? strrchr(top->watch.feed.path, '/') : NULL;
	char socket[PATHS_MAX + 16];
	struct ask ask = { .command = command, .socket = socket, .request = request, .patience_s = 2 };
	ssize_t len;
	int code;

	if (before < 0 || said < 0)
		return EXIT_TROUBLE;
	snprintf(socket, sizeof(socket), "%.*s/control", slash ? (int)(slash - top->watch.feed.path) : 1,
		 slash ? top->watch.feed.path : ".");
	fflush(stderr);
	dup2(said, STDERR_FILENO);
	code = ask_daemon(&ask, ret);
	fflush(stderr);
	dup2(before, STDERR_FILENO);
	len = pread(said, message, cap - 1, 0);
	message[len > 0 ? len : 0] = '\0';
	for (char *at = message; *at; at++)
		*at = *at == '\n' ? ' ' : *at;
	return code;
}

/*
 * The daemon alone knows which processes a group has. The name of a group is that of its entry, so it
 * is no pattern. 0; -ENODATA: the daemon does not say; -ENOMEM.
 */
static int add_group(const struct top *top, struct top_tasks *tasks, int procfd, const char *name)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	const struct json_node *targets, *pids = NULL;
	char line[STATUS_QUERY_LINE_MAX] = "status ", message[512];
	struct status_query query = { .target = name };
	int r = 0;

	if (status_query_format(&query, line + strlen(line), sizeof(line) - strlen(line)) < 0 ||
	    ask_quietly(top, "spikewatch status", line, &document, message, sizeof(message)) != EXIT_OK)
		return -ENODATA;
	targets = json_member(json_root(document), "targets");
	for (const struct json_node *item = targets ? targets->first : NULL; item; item = item->next)
		if (strcmp(answer_text(item, "name"), name) == 0 && strcmp(answer_text(item, "kind"), "group") == 0)
			pids = json_member(item, "pids");
	if (!pids)
		return -ENODATA;
	for (const struct json_node *item = pids->first; r == 0 && item; item = item->next) {
		AUTO_CLOSE int pidfd = -1;

		tasks->cut = tasks->count >= TASKS_MAX;
		if (!tasks->cut && item->type == JSON_NUMBER &&
		    pid_directory_open(procfd, (int32_t)item->number, 0, &pidfd) == 0)
			r = add_task(tasks, pidfd, (int32_t)item->number, "");
	}
	return r;
}

static const char *why_no_tasks(int error)
{
	if (error == -ENODATA)
		return "the processes of a group: spikewatchd did not say which these are";
	if (error == -ESRCH || error == -ENOENT)
		return "none is left, or none can be seen from here";
	return strerror(-error);
}

/* CPU of each since the look before. 0 or -ENOMEM. */
static int look_at_tasks(struct top *top, const struct target *target, mono_t now)
{
	struct top_tasks next = { .at = now, .are_threads = target->kind == TARGET_PROCESS };
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	double passed = (double)mono_diff(now, top->tasks.at);
	int r = target->kind == TARGET_PROCESS  ? add_threads(&next, procfd, target)
		: target->kind == TARGET_CGROUP ? add_processes(&next, procfd, target)
						: add_group(top, &next, procfd, top->target_name);

	if (r < 0 || next.count == 0)
		next.why = why_no_tasks(r < 0 ? r : -ESRCH);
	qsort(next.task, next.count, sizeof(*next.task), by_id);
	for (size_t i = 0; i < next.count && top->tasks.count > 0; i++) {
		const struct top_task *before =
			bsearch(&next.task[i], top->tasks.task, top->tasks.count, sizeof(*before), by_id);

		if (before && next.task[i].cpu_ns >= before->cpu_ns && passed > 0)
			next.task[i].cores = (double)(next.task[i].cpu_ns - before->cpu_ns) / passed;
	}
	free(top->tasks.task);
	top->tasks = next;
	return r == -ENOMEM ? r : 0;
}

static void add_spark(struct top *top, size_t width, const struct top_table_row *row, bool cpu)
{
	char spark[CELL_MAX], now[CELL_MAX], peak[CELL_MAX], head[80];
	size_t cells = 0;

	if (cpu) {
		put_used(row, row->cpu_cores, now);
		put_used(row, row->cpu_peak, peak);
	} else {
		put_bytes(row->has_memory && !row->gone, row->memory_bytes, now);
		put_bytes(row->memory_peak_bytes > 0, row->memory_peak_bytes, peak);
	}
	snprintf(head, sizeof(head), "%-6s %10.20s  peak %10.20s  ", cpu ? "CPU" : "memory", now, peak);
	for (size_t i = 0; i < ARRAY_LEN(sparks); i++)
		if (strlen(head) + sparks[i] <= width)
			cells = sparks[i];
	if (cells > 0)
		(cpu ? put_cpu_minute : put_memory_minute)(&top->watch.table, row, cells, top->style.utf8, spark);
	add_line(top, width, TOP_SCREEN_PLAIN, "%s%s", head, cells > 0 ? spark : "");
}

static void add_figure(const struct sample *sample, enum sample_field field, const char *name, char *line, size_t cap)
{
	size_t len = strlen(line);

	if (sample_has(sample, field))
		snprintf(line + len, cap - len, "%s%ju %s", len > 0 ? ", " : "", (uintmax_t)sample->value[field], name);
}

/* At the top; a longer command line is at the end of the page once more. */
#define COMMAND_LINES 3

static void add_description(struct top *top, size_t width, const struct top_table_row *row, const struct target *target)
{
	char line[512] = "", limit[UNITS_TEXT_MAX];
	const struct sample *sample = &row->sample;

	if (target->kind == TARGET_PROCESS)
		add_line(top, width, TOP_SCREEN_BRIGHT, "%s: process %d, of entry %s%s", row->name, target->pid,
			 target->entry, row->gone ? " (ended)" : "");
	else
		add_line(top, width, TOP_SCREEN_BRIGHT, "%s: a %s, of entry %s%s", row->name,
			 target_kind_name(target->kind), target->entry, row->gone ? " (gone)" : "");
	if (strlen(target->cmdline) > COMMAND_LINES * width)
		add_line(top, width, TOP_SCREEN_PLAIN, "%.*s (all of it is below)", (int)(COMMAND_LINES * width) - 40,
			 target->cmdline);
	else if (*target->cmdline)
		add_line(top, width, TOP_SCREEN_PLAIN, "%s", target->cmdline);
	else if (*target->comm)
		add_line(top, width, TOP_SCREEN_PLAIN, "[%s]", target->comm);
	if (*target->cgroup && strcmp(target->cgroup, row->name) != 0)
		add_line(top, width, TOP_SCREEN_FAINT, "in %s", target->cgroup);
	add_figure(sample, SAMPLE_THREADS, "threads", line, sizeof(line));
	add_figure(sample, SAMPLE_PROCESSES, "processes", line, sizeof(line));
	add_figure(sample, SAMPLE_PIDS, "tasks", line, sizeof(line));
	add_figure(sample, SAMPLE_FDS, "descriptors", line, sizeof(line));
	if (sample_has(sample, SAMPLE_CPU_LIMIT) && sample->value[SAMPLE_CPU_LIMIT] != UINT64_MAX)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), "%smay use %.4g cores", *line ? ", " : "",
			 (double)sample->value[SAMPLE_CPU_LIMIT] / 1e9);
	if (sample_has(sample, SAMPLE_MEMORY_LIMIT) && sample->value[SAMPLE_MEMORY_LIMIT] != UINT64_MAX)
		snprintf(line + strlen(line), sizeof(line) - strlen(line), "%sup to %s of memory", *line ? ", " : "",
			 units_format_bytes(limit, sizeof(limit), sample->value[SAMPLE_MEMORY_LIMIT]));
	if (*line)
		add_line(top, width, TOP_SCREEN_FAINT, "%s", line);
	if (sample_has(sample, SAMPLE_CPU_ESTIMATED))
		add_line(top, width, TOP_SCREEN_FAINT,
			 "~ an estimate: what %ju processes that ended had used is not known exactly",
			 (uintmax_t)sample->value[SAMPLE_CPU_ESTIMATED]);
}

static void say_rule_state(const struct top_table_rule *rule, char *out, size_t cap)
{
	char a[UNITS_TEXT_MAX], b[UNITS_TEXT_MAX];
	const struct top_table_verdict *verdict = &rule->verdict;

	if (verdict->wait == TOP_TABLE_PENDING)
		snprintf(out, cap, "pending %s of %s", units_format_duration(a, sizeof(a), verdict->for_ns),
			 units_format_duration(b, sizeof(b), verdict->for_whole_ns));
	else if (verdict->wait == TOP_TABLE_COOLING)
		snprintf(out, cap, "cooling %s",
			 units_format_duration(a, sizeof(a), (verdict->left_ns + NS_PER_S - 1) / NS_PER_S * NS_PER_S));
	else
		snprintf(out, cap, "%s", verdict->fired ? "fires" : *rule->reason ? rule->reason : "not judged yet");
	if (rule->firings > 0)
		snprintf(out + strlen(out), cap - strlen(out), ", fired %ju x", (uintmax_t)rule->firings);
}

#define RULES_SHOWN 64

static void add_rules(struct top *top, size_t width)
{
	AUTO_FREE struct top_table_rule *rules = calloc(RULES_SHOWN, sizeof(*rules));
	size_t count = rules ? top_watch_rules(&top->watch, top->target, rules, RULES_SHOWN) : 0, name = 4;

	for (size_t i = 0; i < count && i < RULES_SHOWN; i++)
		if (strlen(rules[i].verdict.rule) > name)
			name = strlen(rules[i].verdict.rule);
	add_line(top, width, TOP_SCREEN_HEAD, "%-*s %10s %10s %5s  %s", (int)name, "RULE", "VALUE", "THRESHOLD", "DIST",
		 "STATE");
	if (count == 0)
		add_line(top, width, TOP_SCREEN_FAINT, "%s", top->watch.rules ? "none looks at it" : "not known here");
	for (size_t i = 0; i < count && i < RULES_SHOWN; i++) {
		const struct top_table_rule *rule = &rules[i];
		const struct top_table_verdict *verdict = &rule->verdict;
		struct top_table_row distance = { .nearness = verdict->has_nearness ? verdict->nearness : INFINITY };
		char value[UNITS_TEXT_MAX] = "-", threshold[UNITS_TEXT_MAX] = "-", dist[CELL_MAX], state[160];

		if (!isnan(rule->value))
			units_format(value, sizeof(value), rule->unit, rule->value, UNITS_READING);
		if (!isnan(rule->threshold))
			units_format(threshold, sizeof(threshold), rule->unit, rule->threshold, UNITS_READING);
		put_distance(&distance, dist);
		say_rule_state(rule, state, sizeof(state));
		add_line(top, width,
			 verdict->wait == TOP_TABLE_PENDING || verdict->fired ? TOP_SCREEN_ALARM
			 : verdict->wait == TOP_TABLE_COOLING                 ? TOP_SCREEN_WAITING
									      : TOP_SCREEN_PLAIN,
			 "%-*s %10s %10s %5s  %s", (int)name, verdict->rule, value, threshold, dist, state);
	}
}

/* Busiest first; what is not known yet comes as idle. */
static int by_cores(const void *a, const void *b)
{
	const struct top_task *x = *(const struct top_task *const *)a, *y = *(const struct top_task *const *)b;
	double cx = isnan(x->cores) ? 0 : x->cores, cy = isnan(y->cores) ? 0 : y->cores;

	if (cx != cy)
		return cx > cy ? -1 : 1;
	if (x->cpu_ns != y->cpu_ns)
		return x->cpu_ns > y->cpu_ns ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static void add_tasks(struct top *top, size_t width)
{
	const struct top_tasks *tasks = &top->tasks;
	AUTO_FREE const struct top_task **order = calloc(tasks->count + 1, sizeof(*order));

	add_line(top, width, TOP_SCREEN_HEAD, "%-8s %-19s %8s %11s  %s", tasks->are_threads ? "THREAD" : "PROCESS",
		 "NAME", "CPU", "CPU IN ALL", "STATE");
	if (tasks->why)
		add_line(top, width, TOP_SCREEN_FAINT, "%s", tasks->why);
	for (size_t i = 0; order && i < tasks->count; i++)
		order[i] = &tasks->task[i];
	if (order && tasks->count > 0)
		qsort(order, tasks->count, sizeof(struct top_task *), by_cores);
	for (size_t i = 0; order && i < tasks->count; i++) {
		char cores[CELL_MAX] = "-", whole[UNITS_TEXT_MAX];

		if (!isnan(order[i]->cores))
			put_cores(order[i]->cores, cores);
		add_line(top, width, TOP_SCREEN_PLAIN, "%-8d %-19s %8s %11s  %c", order[i]->id, order[i]->name, cores,
			 units_format_duration(whole, sizeof(whole), order[i]->cpu_ns), order[i]->state);
	}
	if (tasks->cut)
		add_line(top, width, TOP_SCREEN_FAINT, "and more than %d others", TASKS_MAX);
}

/* 0 or -ENOMEM. */
static int make_target(struct top *top, size_t width)
{
	const struct top_table_row *row = row_of(top, top->target);
	mono_t now = clock_mono(&top->clock);
	struct target target;
	int r = 0;

	if (!row || !row->encoded || target_decode(row->encoded, row->encoded_len, &target) < 0) {
		add_line(top, width, TOP_SCREEN_FAINT, "%s has ended.", top->target_name);
		return 0;
	}
	if (!top->paused && (top->tasks.at.ns == 0 || mono_diff(now, top->tasks.at) >= (int64_t)(NS_PER_S / 2)))
		r = look_at_tasks(top, &target, now);
	add_description(top, width, row, &target);
	add_line(top, width, TOP_SCREEN_PLAIN, "%s", "");
	add_spark(top, width, row, true);
	add_spark(top, width, row, false);
	add_line(top, width, TOP_SCREEN_PLAIN, "%s", "");
	add_rules(top, width);
	add_line(top, width, TOP_SCREEN_PLAIN, "%s", "");
	add_tasks(top, width);
	if (strlen(target.cmdline) > COMMAND_LINES * width) {
		add_line(top, width, TOP_SCREEN_HEAD, "COMMAND LINE");
		add_line(top, width, TOP_SCREEN_PLAIN, "%s", target.cmdline);
	}
	return r;
}

/* ---- incidents ---- */

static bool incident_passes(const char *name, const char *filter)
{
	if (!*filter)
		return true;
	return strpbrk(filter, "*?") ? fnmatch(filter, name, FNM_CASEFOLD) == 0 : strcasestr(name, filter) != NULL;
}

/* The names, newest first, of the directory of this daemon or else of this user. */
static void list_incidents(struct top *top)
{
	struct top_incidents *incidents = &top->incidents;
	struct incident_load_names *names = &incidents->names;
	AUTO_CLOSE int fd = -1;
	size_t kept = 0;

	incident_load_names_release(names);
	if (*top->watch.incidents)
		snprintf(incidents->directory, sizeof(incidents->directory), "%s", top->watch.incidents);
	else
		incident_load_directory(NULL, incidents->directory, sizeof(incidents->directory));
	fd = open(incidents->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	incidents->error = fd < 0 ? -errno : incident_load_list(fd, names);
	if (incidents->error < 0)
		return;
	for (size_t i = 0; i < names->count; i++)
		if (incident_passes(names->name[i], top->filter))
			memmove(names->name[kept++], names->name[i], sizeof(names->name[i]));
	names->count = kept;
	for (size_t i = 0; i < kept / 2; i++) {
		char other[INCIDENT_NAME_MAX + 1];

		memcpy(other, names->name[i], sizeof(other));
		memcpy(names->name[i], names->name[kept - 1 - i], sizeof(other));
		memcpy(names->name[kept - 1 - i], other, sizeof(other));
	}
}

/* "11:45:01" of today, else "20 Nov 11:45". */
static void short_time(wall_t wall, wall_t now, char ret[24])
{
	time_t seconds = (time_t)(wall.ns / NS_PER_S), today = (time_t)(now.ns / NS_PER_S);
	struct tm then, parts;

	if (!localtime_r(&seconds, &then) || !localtime_r(&today, &parts) ||
	    strftime(ret, 24,
		     then.tm_yday == parts.tm_yday && then.tm_year == parts.tm_year ? "%H:%M:%S" : "%e %b %H:%M",
		     &then) == 0)
		snprintf(ret, 24, "?");
}

/* One line of the list; one that is too long goes on in a second line. */
static void add_incident(struct top *top, size_t width, int dirfd, const char *name, bool chosen)
{
	AUTO_CLOSE int fd = incident_load_open(dirfd, name);
	struct incident_load_glance glance = { .damaged = true };
	char when[24], target[1100], value[160] = "?";
	AUTO_FREE struct incident *incident = calloc(1, sizeof(*incident));

	if (!incident)
		return;
	if (fd >= 0)
		incident_load_glance(fd, incident, &glance);
	short_time(incident_name_wall(name), clock_wall(&top->clock), when);
	text_escape(target, sizeof(target), incident->target.name, strlen(incident->target.name));
	if (incident->kind == INCIDENT_MANUAL)
		snprintf(value, sizeof(value), "asked for by hand");
	else if (incident->kind == INCIDENT_STORM)
		snprintf(value, sizeof(value), "%ju firings", (uintmax_t)incident->merged_total);
	else if (glance.readable)
		story_comparison(&incident->rule, value, sizeof(value));
	add_line(top, width,
		 chosen           ? TOP_SCREEN_CHOSEN
		 : glance.damaged ? TOP_SCREEN_ALARM
				  : TOP_SCREEN_PLAIN,
		 "%-12s  %-18s  %-14s  %s%s", when, glance.readable ? target : name,
		 *incident->rule.name ? incident->rule.name : incident_kind_name(incident->kind), value,
		 glance.damaged ? "  DAMAGED" : "");
}

/* Only those near the chosen one are read: there may be thousands. */
static void make_incidents(struct top *top, size_t width, size_t lines)
{
	struct top_incidents *incidents = &top->incidents;
	AUTO_CLOSE int fd = -1;
	size_t from;

	list_incidents(top);
	add_line(top, width, TOP_SCREEN_BRIGHT, "%zu incidents in %s", incidents->names.count, incidents->directory);
	if (incidents->error < 0)
		add_line(top, width, TOP_SCREEN_ALARM, "! %s", strerror(-incidents->error));
	add_line(top, width, TOP_SCREEN_HEAD, "%-12s  %-18s  %-14s  %s", "TIME", "TARGET", "RULE", "VALUE");
	fd = open(incidents->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (top->chosen >= incidents->names.count)
		top->chosen = incidents->names.count > 0 ? incidents->names.count - 1 : 0;
	from = top->chosen >= lines ? top->chosen - lines + 1 : 0;
	for (size_t i = from; fd >= 0 && i < incidents->names.count && i < from + lines; i++)
		add_incident(top, width, fd, incidents->names.name[i], i == top->chosen);
	top->first = 0;
}

/* The text of an incident, as spikewatch show has it. 0 or -ENOMEM. */
static int render_incident(struct top *top, size_t width, size_t lines)
{
	struct plot_style style = { .utf8 = top->style.utf8,
				    .width = (unsigned)(width < 40 ? 40 : width),
				    .lines = (unsigned)lines };
	AUTO_CLOSE int dirfd = open(top->incidents.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	AUTO_CLOSE int fd = dirfd < 0 ? -1 : incident_load_open(dirfd, top->incidents.open);
	AUTO_FREE struct view *view = calloc(1, sizeof(*view));
	AUTO_FREE char *text = NULL;
	size_t len = 0;
	FILE *file;
	int r;

	buffer_release(&top->shown);
	top->shown_width = width;
	if (!view)
		return -ENOMEM;
	if (fd < 0)
		return buffer_append(&top->shown, "It was removed.\n", 16);
	r = view_load(fd, view);
	if (r < 0)
		return r;
	file = open_memstream(&text, &len);
	if (file) {
		r = top->incidents.full ? view_text(view, fd, &style, file) : view_brief(view, &style, file);
		fclose(file);
	}
	incident_samples_release(&view->samples);
	return !file ? -ENOMEM : r < 0 ? r : buffer_append(&top->shown, text, len);
}

static int make_incident(struct top *top, size_t width, size_t lines)
{
	int r = top->shown_width == width ? 0 : render_incident(top, width, lines);
	struct text_part rest = { top->shown.data, top->shown.len }, line;

	while (r == 0 && text_cut(&rest, '\n', &line)) {
		char text[TOP_TEXT_LINE_MAX];

		snprintf(text, sizeof(text), "%.*s", (int)line.len, line.at);
		if (rest.at || *text)
			add_printable(top, width, TOP_SCREEN_PLAIN, text);
	}
	return r;
}

/* ---- trigger ---- */

static void trigger(struct top *top)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	char line[320], length[UNITS_TEXT_MAX];
	const struct json_node *given;

	snprintf(line, sizeof(line), "trigger%s%s", *top->target_name ? " " : "", top->target_name);
	if (strchr(line, '\n') ||
	    ask_quietly(top, "trigger", line, &document, top->message, sizeof(top->message)) != EXIT_OK)
		return;
	given = json_member(json_root(document), "trigger");
	if (!given || json_member(json_root(document), "error"))
		snprintf(top->message, sizeof(top->message), "refused: %s", answer_text(json_root(document), "error"));
	else
		snprintf(top->message, sizeof(top->message), "%s %s; sealed in %s (i lists it then)",
			 strcmp(answer_text(given, "answer"), "merged") == 0 ? "added to" : "recording",
			 answer_text(given, "stem"),
			 units_format_duration(length, sizeof(length), answer_whole(given, "sealed_in_ns")));
}

/* ---- the screen as a whole ---- */

static const char *const feet[] = {
	[TOP_VIEW_TARGETS] = "Enter opens  i incidents  t trigger  / search  ? help  q quits",
	[TOP_VIEW_TARGET] = "arrows scroll  i incidents  t trigger  ? help  Esc back",
	[TOP_VIEW_INCIDENTS] = "Enter shows  / search  ? help  Esc back",
	[TOP_VIEW_INCIDENT] = "arrows scroll  f all of it, or what matters  ? help  Esc back",
};

static void put_question(const struct top *top, struct top_page *page)
{
	char text[400];

	if (*top->target_name)
		snprintf(text, sizeof(text),
			 "Record an incident of %s now? y: yes; a: of all targets; any other key: no",
			 top->target_name);
	else
		snprintf(text, sizeof(text), "Record an incident of all targets now? y: yes; any other key: no");
	top_page_wrap(page, TOP_SCREEN_WAITING, text);
}

static void put_foot_at(const struct top *top, struct top_page *page)
{
	if (top->asking)
		put_question(top, page);
	else if (*top->message)
		top_page_wrap(page, TOP_SCREEN_WAITING, top->message);
	else
		top_page_text(page, TOP_SCREEN_FAINT, feet[top->view]);
}

/* In the last lines: how many it takes is counted below the screen. */
static void put_foot(const struct top *top, struct top_page *page, size_t lines)
{
	page->line = lines;
	put_foot_at(top, page);
	page->line = 2 * lines > page->line ? 2 * lines - page->line : 0;
	put_foot_at(top, page);
}

/* Remembers which row is where, for keys, and finds the chosen one again. 0 or -ENOMEM. */
static int remember_list(struct top *top, const struct top_table_list *list)
{
	bool found = false;

	if (vector_reserve(&top->list, &top->list_cap, list->count + 1, sizeof(*top->list)) < 0)
		return -ENOMEM;
	top->list_count = list->count;
	for (size_t i = 0; i < list->count; i++) {
		top->list[i] = list->row[i]->id;
		if (top->chosen_id == top->list[i]) {
			top->chosen = i;
			found = true;
		}
	}
	if (!found && top->chosen_id) /* it has gone: what took its place */
		top->chosen_id = top->chosen < list->count ? top->list[top->chosen] : 0;
	if (!top->chosen_id || list->count == 0)
		top->chosen = 0;
	return 0;
}

static int draw_targets(struct top *top, struct top_page *page, size_t lines)
{
	struct top_table_list list;
	int r;

	top->wish.filter = top->filter;
	r = top_table_view(&top->watch.table, &top->wish, &list);
	if (r == 0)
		r = remember_list(top, &list);
	if (r < 0)
		return r;
	top_page_title(page, &top->watch, &top->wish, list.count);
	if (top->paused)
		top_page_text(page, TOP_SCREEN_WAITING, "paused; p goes on");
	top_page_notes(page, &top->watch, clock_mono(&top->clock));
	put_filter(top, page);
	top->page = lines > page->line + 2 ? lines - page->line - 2 : 1;
	if (top->rows && top->rows < top->page)
		top->page = (size_t)top->rows;
	if (top->chosen < top->first)
		top->first = top->chosen;
	if (top->chosen >= top->first + top->page)
		top->first = top->chosen - top->page + 1;
	if (top->first + top->page > list.count)
		top->first = list.count > top->page ? list.count - top->page : 0;
	top_page_rows(page, &top->watch.table, &list, top->first, top->page,
		      top->chosen_id ? top->chosen : NONE_CHOSEN);
	return 0;
}

static int draw_lines(struct top *top, struct top_page *page, size_t lines)
{
	int r = 0;

	top->lines.len = 0;
	if (top->view == TOP_VIEW_INCIDENTS)
		put_filter(top, page);
	if (top->help)
		for (size_t i = 0; i < ARRAY_LEN(help); i++)
			add_wrapped(top, page->width, TOP_SCREEN_PLAIN, help[i]);
	else if (top->view == TOP_VIEW_TARGET)
		r = make_target(top, page->width);
	else if (top->view == TOP_VIEW_INCIDENTS)
		make_incidents(top, page->width, lines > 4 ? lines - 4 : 1);
	else
		r = make_incident(top, page->width, lines > 1 ? lines - 1 : 1);
	put_lines(top, page, lines, 1);
	return r;
}

/* Below that lines are for the table. */
#define TERSE_LINES 12

static int draw_screen(struct top *top)
{
	struct top_page page = { .screen = top->screen, .utf8 = top->style.utf8 };
	size_t lines;
	int r;

	top_screen_size(top->screen, &lines, &page.width);
	page.terse = lines < TERSE_LINES;
	r = top->view == TOP_VIEW_TARGETS && !top->help ? draw_targets(top, &page, lines)
							: draw_lines(top, &page, lines);
	if (r < 0)
		return r;
	top_screen_clear(page.line);
	if (lines > 2)
		put_foot(top, &page, lines);
	top_screen_show(top->screen);
	return 0;
}

/* ---- keys ---- */

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
	top->first = top->chosen = 0;
	top->chosen_id = 0;
}

/* Targets and incidents have filters of their own. */
static void go_to(struct top *top, enum top_view view)
{
	bool were_incidents = top->view >= TOP_VIEW_INCIDENTS, incidents = view >= TOP_VIEW_INCIDENTS;

	if (were_incidents != incidents) {
		memcpy(top->filters[were_incidents], top->filter, FILTER_MAX);
		memcpy(top->filter, top->filters[incidents], FILTER_MAX);
	}
	if (view == TOP_VIEW_INCIDENTS && top->view != TOP_VIEW_INCIDENT)
		top->chosen = 0;
	top->view = view;
	top->first = 0;
}

static void go_back(struct top *top)
{
	if (top->view == TOP_VIEW_INCIDENT)
		go_to(top, TOP_VIEW_INCIDENTS);
	else if (top->view == TOP_VIEW_INCIDENTS && top->from_target)
		go_to(top, TOP_VIEW_TARGET);
	else
		go_to(top, TOP_VIEW_TARGETS);
}

/* The target that a key means: the one that is open, or chosen. Sets target_name. */
static void take_target(struct top *top)
{
	uint32_t id = top->view == TOP_VIEW_TARGET ? top->target
		      : top->list_count == 0       ? 0
						   : top->list[top->chosen_id ? top->chosen : 0];
	const struct top_table_row *row = id ? row_of(top, id) : NULL;

	top->target = id;
	snprintf(top->target_name, sizeof(top->target_name), "%s", row ? row->name : "");
}

static void open_chosen(struct top *top)
{
	if (top->view == TOP_VIEW_TARGETS && top->list_count > 0) {
		take_target(top);
		top->tasks.at = (mono_t){ 0 };
		top->tasks.count = 0;
		top->from_target = true;
		go_to(top, TOP_VIEW_TARGET);
	} else if (top->view == TOP_VIEW_INCIDENTS && top->chosen < top->incidents.names.count) {
		memcpy(top->incidents.open, top->incidents.names.name[top->chosen], sizeof(top->incidents.open));
		top->incidents.full = false;
		top->shown_width = 0;
		go_to(top, TOP_VIEW_INCIDENT);
	}
}

static void sort_key(struct top *top, enum top_table_order order)
{
	top->wish.order = order;
	top->wish.reverse = false;
	top->first = top->chosen = 0;
	top->chosen_id = 0;
}

/* Lines scroll; in a list the chosen one moves. draw_screen keeps both within. */
static void scroll_key(struct top *top, int key)
{
	bool list = (top->view == TOP_VIEW_TARGETS || top->view == TOP_VIEW_INCIDENTS) && !top->help;
	size_t count = top->view == TOP_VIEW_TARGETS ? top->list_count : top->incidents.names.count;
	size_t *at = list ? &top->chosen : &top->first, last = list ? count - (count > 0) : SIZE_MAX / 2;
	size_t step = key == TOP_SCREEN_UP || key == TOP_SCREEN_DOWN ? 1 : top->page;

	if (key == TOP_SCREEN_DOWN || key == TOP_SCREEN_PAGE_DOWN)
		*at = *at + step < last ? *at + step : last;
	else if (key == TOP_SCREEN_UP || key == TOP_SCREEN_PAGE_UP)
		*at -= step < *at ? step : *at;
	else
		*at = key == TOP_SCREEN_LAST ? last : 0;
	if (list && top->view == TOP_VIEW_TARGETS)
		top->chosen_id = *at < count ? top->list[*at] : 0;
}

static void answer_key(struct top *top, int key)
{
	top->asking = false;
	if (key == 'a')
		*top->target_name = '\0';
	if (key == 'y' || key == 'a')
		trigger(top);
}

/* Keys of the list of targets. */
static void table_key(struct top *top, int key)
{
	if (key == 'c')
		sort_key(top, TOP_TABLE_BY_CPU);
	else if (key == 'm')
		sort_key(top, TOP_TABLE_BY_MEMORY);
	else if (key == 'd')
		sort_key(top, TOP_TABLE_BY_DISTANCE);
	else if (key == 'n')
		sort_key(top, TOP_TABLE_BY_NAME);
	else if (key == 'r')
		top->wish.reverse = !top->wish.reverse;
}

static void view_key(struct top *top, int key)
{
	switch (key) {
	case '/':
		top->typing = top->view == TOP_VIEW_TARGETS || top->view == TOP_VIEW_INCIDENTS;
		break;
	case 'i':
		if (top->view < TOP_VIEW_INCIDENTS) {
			top->from_target = top->view == TOP_VIEW_TARGET;
			go_to(top, TOP_VIEW_INCIDENTS);
		}
		break;
	case 't':
		if (top->view < TOP_VIEW_INCIDENTS) {
			take_target(top);
			top->asking = true;
		}
		break;
	case 'f':
		top->incidents.full = !top->incidents.full;
		top->shown_width = 0;
		top->first = 0;
		break;
	case 'p':
	case ' ':
		top->paused = !top->paused;
		break;
	case TOP_SCREEN_ENTER:
		open_chosen(top);
		break;
	default:
		if (top->view == TOP_VIEW_TARGETS)
			table_key(top, key);
	}
}

static void back_key(struct top *top, int key)
{
	if (top->help)
		top->help = false;
	else if (key == TOP_SCREEN_ESCAPE && *top->filter &&
		 (top->view == TOP_VIEW_TARGETS || top->view == TOP_VIEW_INCIDENTS))
		*top->filter = '\0';
	else if (top->view != TOP_VIEW_TARGETS)
		go_back(top);
	else if (key == 'q')
		top->over = true;
}

static void handle_key(struct top *top, int key)
{
	if (key == TOP_SCREEN_END) {
		top->over = true;
		return;
	}
	if (key == TOP_SCREEN_NOTHING || key == TOP_SCREEN_RESIZED)
		return;
	*top->message = '\0';
	if (top->asking)
		answer_key(top, key);
	else if (top->typing)
		type_key(top, key);
	else if (key == TOP_SCREEN_ESCAPE || key == 'q')
		back_key(top, key);
	else if (key == 'h' || key == '?')
		top->help = !top->help;
	else if (key <= TOP_SCREEN_UP && key >= TOP_SCREEN_LAST)
		scroll_key(top, key);
	else if (!top->help)
		view_key(top, key);
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
	top->screen = NULL;
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
	incident_load_names_release(&top->incidents.names);
	free(top->tasks.task);
	free(top->list);
	buffer_release(&top->lines);
	buffer_release(&top->shown);
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
