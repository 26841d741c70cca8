/*
 * plot.h: a time series as a picture of text: bars of what was seen in each column of time, with
 * lines for threshold and limit, and the trigger marked on the time axis.
 *
 * Pure but for plot_style_detect, which reads terminal and environment.
 */
#ifndef SPIKEWATCH_CLI_BASE_PLOT_H
#define SPIKEWATCH_CLI_BASE_PLOT_H

#include "lib/base/units.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* How it may be drawn. */
struct plot_style {
	bool utf8;      /* block characters; else ASCII */
	bool color;     /* ANSI colours */
	unsigned width; /* of a line, in characters */
	unsigned lines; /* of a screen */
};

/* A level drawn across the picture: a threshold, a limit. */
struct plot_level {
	const char *name; /* trusted text */
	double value;
};

#define PLOT_LEVELS_MAX 3

struct plot {
	const char *title; /* trusted text, one line */
	enum unit_kind unit;
	const double *peak;  /* one per column; NAN: nothing is known there, shown as a gap */
	const double *mean;  /* as peak, or NULL: only peaks are drawn */
	const bool *hole;    /* columns that were not looked at: drawn as such, whatever the others say. Or NULL */
	const char *hole_is; /* what the legend says of them, trusted text */
	size_t columns;      /* plot_columns() or fewer */
	double from_s, to_s; /* time of the left and right edge; the trigger is at 0 */
	bool trigger;        /* there was one: mark 0 */
	struct plot_level level[PLOT_LEVELS_MAX];
	size_t levels;
	double most;   /* no value can be higher: the picture ends there at the latest; 0: not known */
	double grain;  /* a share of a value that is an artefact of measuring: the scale does not grow for it */
	unsigned rows; /* 0: 8 */
	bool terse;    /* the legend has levels and holes only, and stands behind the title if it fits */
};

#define PLOT_WIDTH_DEFAULT 80
#define PLOT_WIDTH_MIN 30
#define PLOT_WIDTH_MAX 400
#define PLOT_LINES_DEFAULT 24
#define PLOT_LINES_MAX 200

/*
 * What suits file: characters by the locale (LC_CTYPE must be set), width by $COLUMNS and lines by
 * $LINES, else the terminal, else 80 by 24; colour on terminals unless $NO_COLOR is set or $TERM is
 * dumb.
 */
void plot_style_detect(FILE *file, struct plot_style *ret);

/* How many columns of data fit. At least 8. */
size_t plot_columns(const struct plot_style *style);

/*
 * Draws. Errors stay in file, as with every stdio call. Values below zero count as zero, infinite
 * ones as gaps.
 */
void plot_draw(const struct plot *plot, const struct plot_style *style, FILE *file);

#endif
