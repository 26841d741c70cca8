/*
 * top_screen.h: a terminal whose lines are rewritten in place, and its keyboard. The only module
 * that uses curses. While it is open, SIGINT, SIGTERM and SIGHUP come as a key, and SIGWINCH as
 * another; top_screen_close restores the terminal.
 */
#ifndef SPIKEWATCH_CLI_TOP_TOP_SCREEN_H
#define SPIKEWATCH_CLI_TOP_TOP_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct top_screen;

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

/* At most one is open. color: if the terminal has any. 0; -ENOMEM; -ENOTTY: it is not possible. */
int top_screen_open(bool color, struct top_screen **ret);

/* NULL is fine. */
void top_screen_close(struct top_screen *screen);

/* In characters, as it is now. */
void top_screen_size(const struct top_screen *screen, size_t *ret_lines, size_t *ret_columns);

/*
 * Replaces line `line` (from 0) by text, which must be printable; a line that is not on the screen
 * is ignored.
 */
void top_screen_put(struct top_screen *screen, size_t line, enum top_screen_look look, const char *text);

/* Clears all lines from `line` on, and shows what was put. */
void top_screen_show(struct top_screen *screen, size_t line);

/* Waits for a key, at most for wait_ns. */
int top_screen_key(struct top_screen *screen, uint64_t wait_ns);

#endif
