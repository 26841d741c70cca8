/*
 * top_screen.h: a terminal whose lines are rewritten in place, and its keyboard. The only module that knows curses.
 *
 * While it is open, SIGINT, SIGTERM and SIGHUP come as a key, and SIGWINCH as another; however it ends, close gives the terminal back as it was.
 */
#ifndef SPIKEWATCH_CLI_TOP_TOP_SCREEN_H
#define SPIKEWATCH_CLI_TOP_TOP_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct topscreen;

enum topscreen_look {
	TOPSCREEN_PLAIN,
	TOPSCREEN_BRIGHT,  /* a title */
	TOPSCREEN_HEAD,    /* the heads of columns: reversed, over the whole width */
	TOPSCREEN_ALARM,   /* red */
	TOPSCREEN_WAITING, /* yellow */
	TOPSCREEN_FAINT,
};

/* Other keys are what they type, as a character of ASCII or a byte of UTF-8. */
enum topscreen_key {
	TOPSCREEN_NOTHING = -1, /* the time is over */
	TOPSCREEN_END = -2,     /* a signal says so, or there is no terminal any more */
	TOPSCREEN_RESIZED = -3, /* or everything is to be drawn anew (Ctrl-L) */
	TOPSCREEN_UP = -4,
	TOPSCREEN_DOWN = -5,
	TOPSCREEN_PAGE_UP = -6,
	TOPSCREEN_PAGE_DOWN = -7,
	TOPSCREEN_FIRST = -8,
	TOPSCREEN_LAST = -9,
	TOPSCREEN_BACKSPACE = -10,
	TOPSCREEN_ENTER = -11,
	TOPSCREEN_ESCAPE = -12,
	TOPSCREEN_OTHER = -13, /* none of these */
};

/* At most one is open. color: if the terminal has any. 0; -ENOMEM; -ENOTTY: it is not possible. */
int topscreen_open(bool color, struct topscreen **ret);

/* NULL is fine. */
void topscreen_close(struct topscreen *screen);

/* In characters, as it is now. */
void topscreen_size(const struct topscreen *screen, size_t *ret_lines, size_t *ret_columns);

/* Makes line `line` (from 0) say text, and no more; one that is not on the screen is passed over. The characters must be printable. */
void topscreen_put(struct topscreen *screen, size_t line, enum topscreen_look look, const char *text);

/* Clears all lines from `line` on, and shows what was put. */
void topscreen_show(struct topscreen *screen, size_t line);

/* Waits for a key, at most for wait_ns. */
int topscreen_key(struct topscreen *screen, uint64_t wait_ns);

#endif
