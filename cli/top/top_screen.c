/*
 * top_screen.c: a little of curses: whole lines, some attributes, some keys.
 *
 * Signals are blocked except in ppoll(2), so that none is missed between the check and the wait.
 * curses has handlers for SIGTSTP and for SIGWINCH, after which the next read returns KEY_RESIZE.
 *
 * initscr() ends the program when the terminal is unknown; newterm() does not. A terminal whose
 * cursor cannot be moved ("dumb") is not supported.
 */
#include "cli/top/top_screen.h"

#include "lib/base/base.h"

#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <term.h>
#include <unistd.h>

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

int top_screen_open(bool color, struct top_screen **ret)
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

void top_screen_close(struct top_screen *screen)
{
	if (!screen)
		return;

	curs_set(1);
	endwin();
	delscreen(screen->screen);
	give_signals_back(screen);
	free(screen);
}

void top_screen_size(const struct top_screen *screen, size_t *ret_lines, size_t *ret_columns)
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

void top_screen_put(struct top_screen *screen, size_t line, enum top_screen_look look, const char *text)
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

void top_screen_show(struct top_screen *screen, size_t line)
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

int top_screen_key(struct top_screen *screen, uint64_t wait_ns)
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
