/*
 * toppage.c: lines, one below the other; how a line gets onto the page is the only difference between a screen and text.
 */
#include "toppage.h"

#include "toptext.h"
#include "units.h"

#include <stdio.h>
#include <time.h>

const char *const toppage_orders[TOPTABLE_ORDERS] = {
	[TOPTABLE_BY_CPU] = "cpu",
	[TOPTABLE_BY_MEMORY] = "memory",
	[TOPTABLE_BY_DISTANCE] = "distance",
	[TOPTABLE_BY_NAME] = "name",
};

static void put_line(struct toppage *page, enum topscreen_look look, const char *text)
{
	if (page->screen)
		topscreen_put(page->screen, page->line, look, text);
	else
		puts(text);
	page->line++;
}

void toppage_text(struct toppage *page, enum topscreen_look look, const char *text)
{
	char line[TOPTEXT_LINE_MAX];

	toptext_fit(text, page->width ? page->width : SIZE_MAX, page->utf8, false, line);
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

static void count_waiting(const struct toptable *table, unsigned *ret_pending, unsigned *ret_cooling)
{
	*ret_pending = *ret_cooling = 0;
	for (size_t i = 0; i < table->count; i++) {
		*ret_pending += table->row[i]->pending;
		*ret_cooling += table->row[i]->cooling;
	}
}

void toppage_title(struct toppage *page, const struct topwatch *watch, const struct toptable_wish *wish, size_t shown)
{
	char text[512], now[16], since[16], interval[UNITS_TEXT_MAX] = "-", of[32] = "";
	struct ring_info info;
	unsigned pending, cooling;

	if (watch->feed.ring) {
		topfeed_info(&watch->feed, &info);
		units_format_duration(interval, sizeof(interval), info.interval_ns);
	}
	count_waiting(&watch->table, &pending, &cooling);
	if (shown != watch->table.count)
		snprintf(of, sizeof(of), " of %zu", watch->table.count);
	snprintf(text, sizeof(text),
		 "%s  %zu%s target%s  rules: %u pending, %u cooling  by %s%s  every %s  peaks since %s",
		 time_of_day(watch->feed.wall, now), shown, of, watch->table.count == 1 ? "" : "s", pending, cooling,
		 toppage_orders[wish->order], wish->reverse ? ", reversed" : "", interval,
		 time_of_day(watch->since, since));
	toppage_text(page, TOPSCREEN_BRIGHT, text);
}

void toppage_notes(struct toppage *page, const struct topwatch *watch, mono_t now)
{
	char note[TOPWATCH_NOTE_MAX], text[TOPWATCH_NOTE_MAX + 8];

	for (size_t i = 0; topwatch_note(watch, now, i, note); i++) {
		snprintf(text, sizeof(text), "! %s", note);
		toppage_text(page, TOPSCREEN_ALARM, text);
	}
}

static enum topscreen_look look_of(const struct toptable_row *row)
{
	if (row->gone)
		return TOPSCREEN_FAINT;
	if (row->pending > 0 || row->fired > 0)
		return TOPSCREEN_ALARM;
	return row->cooling > 0 ? TOPSCREEN_WAITING : TOPSCREEN_PLAIN;
}

void toppage_rows(struct toppage *page, const struct toptable *table, const struct toptable_list *list, size_t first,
		  size_t most)
{
	char line[TOPTEXT_LINE_MAX];
	struct toptext text;

	toptext_plan(page->width, page->utf8, toptext_longest(list, page->utf8), &text);
	put_line(page, TOPSCREEN_HEAD, toptext_heads(&text, line));
	for (size_t i = first; i < list->count && i - first < most; i++) {
		toptext_row(&text, table, list->row[i], line);
		put_line(page, look_of(list->row[i]), line);
	}
}
