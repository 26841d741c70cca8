/*
 * toppage.h: one page of spikewatch top, line by line, onto a screen or onto standard output.
 */
#ifndef SPIKEWATCH_TOPPAGE_H
#define SPIKEWATCH_TOPPAGE_H

#include "topscreen.h"
#include "toptable.h"
#include "topwatch.h"

#include <stdbool.h>
#include <stddef.h>

/* {0} with width and utf8 set is the right start of a page on standard output, whose errors stay there. */
struct toppage {
	struct topscreen *screen; /* NULL: standard output */
	size_t line;              /* how many there are */
	size_t width;             /* of a line, in characters; 0: endless */
	bool utf8;
};

/* The orders as people write them. */
extern const char *const toppage_orders[TOPTABLE_ORDERS];

/* A line of text, made harmless, and cut where the page ends. */
void toppage_text(struct toppage *page, enum topscreen_look look, const char *text);

/* When, how many of the targets are shown, what their rules wait for, since when there are peaks. */
void toppage_title(struct toppage *page, const struct topwatch *watch, const struct toptable_wish *wish, size_t shown);

/* What a person should know besides: topwatch_note. now: of the monotonic clock. */
void toppage_notes(struct toppage *page, const struct topwatch *watch, mono_t now);

/* The heads of the columns and, of list, the rows from `first` on, at most `most`. */
void toppage_rows(struct toppage *page, const struct toptable *table, const struct toptable_list *list, size_t first,
		  size_t most);

#endif
