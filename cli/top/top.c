/*
 * top.c: spikewatch top: pages on a screen, or one after the other as text. While it is paused the ring is not read: what comes meanwhile is
 * there afterwards, for as long as the ring lasts.
 */
#include "commands.h"

#include "options.h"
#include "output.h"
#include "plot.h"
#include "realclock.h"
#include "scope.h"
#include "toppage.h"
#include "topscreen.h"
#include "topwatch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INTERVAL_MIN_NS (100 * NS_PER_MS)
#define INTERVAL_MAX_NS (3600 * NS_PER_S)

/* The ring is read at least this often, or a fast daemon would overtake us. */
#define READ_INTERVAL_NS NS_PER_S

#define FILTER_MAX 64

struct top {
	struct topwatch watch;
	struct toptable_wish wish;
	struct plot_style style;
	struct clock clock;
	uint64_t interval_ns, frames, rows; /* 0: no limit */
	bool limited;                       /* frames is one */
	/* The screen. */
	struct topscreen *screen;
	size_t first; /* row at the top */
	size_t page;  /* rows that fit */
	bool paused, typing, help, over;
	char filter[FILTER_MAX];
};

/* What was typed. */
static void put_filter(const struct top *top, struct toppage *page)
{
	char text[FILTER_MAX + 8];

	if (!top->typing && !*top->filter)
		return;
	snprintf(text, sizeof(text), "/%s%s", top->filter, top->typing ? "_" : "");
	toppage_text(page, TOPSCREEN_WAITING, text);
}

static int no_memory(int rc)
{
	return rc == -ENOMEM ? output_no_memory() : EXIT_TROUBLE;
}

/* ---- plain ---- */

/* A page on stdout. -1: go on, else the code to exit with. */
static int print_page(struct top *top)
{
	struct toppage page = { .width = top->style.width, .utf8 = top->style.utf8 };
	struct toptable_list list;
	int r = toptable_view(&top->watch.table, &top->wish, &list);

	if (r < 0)
		return no_memory(r);
	toppage_title(&page, &top->watch, &top->wish, list.count);
	toppage_notes(&page, &top->watch, clock_mono(&top->clock));
	toppage_rows(&page, &top->watch.table, &list, 0, top->rows ? top->rows : SIZE_MAX);
	fflush(stdout);
	return ferror(stdout) ? EXIT_TROUBLE : -1;
}

/* Until the next page is due, the ring is read. 0 or -ENOMEM. */
static int wait_and_read(struct top *top, mono_t due)
{
	int r = 0;

	for (mono_t now = clock_mono(&top->clock); r == 0 && mono_diff(due, now) > 0; now = clock_mono(&top->clock)) {
		uint64_t left = (uint64_t)mono_diff(due, now);

		realclock_sleep_until(mono_add(now, left < READ_INTERVAL_NS ? left : READ_INTERVAL_NS));
		r = topwatch_update(&top->watch, clock_mono(&top->clock));
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
	"RULES: who is pending or cooling, else the nearest.",
};

static void draw_help(struct toppage *page)
{
	for (size_t i = 0; i < ARRAY_LEN(help); i++)
		toppage_text(page, TOPSCREEN_PLAIN, help[i]);
}

static int draw(struct top *top)
{
	struct toppage page = { .screen = top->screen, .utf8 = top->style.utf8 };
	struct toptable_list list;
	size_t lines;
	int r;

	topscreen_size(top->screen, &lines, &page.width);
	top->wish.filter = top->filter;
	r = toptable_view(&top->watch.table, &top->wish, &list);
	if (r < 0)
		return r;
	toppage_title(&page, &top->watch, &top->wish, list.count);
	if (top->paused)
		toppage_text(&page, TOPSCREEN_WAITING, "paused; p goes on");
	toppage_notes(&page, &top->watch, clock_mono(&top->clock));
	put_filter(top, &page);
	if (top->help) {
		draw_help(&page);
	} else {
		top->page = lines > page.line + 1 ? lines - page.line - 1 : 1;
		if (top->rows && top->rows < top->page)
			top->page = (size_t)top->rows;
		if (top->first + top->page > list.count)
			top->first = list.count > top->page ? list.count - top->page : 0;
		toppage_rows(&page, &top->watch.table, &list, top->first, top->page);
	}
	topscreen_show(top->screen, page.line);
	return 0;
}

static void type_key(struct top *top, int key)
{
	size_t len = strlen(top->filter);

	if (key == TOPSCREEN_ENTER || key == TOPSCREEN_ESCAPE)
		top->typing = false;
	if (key == TOPSCREEN_ESCAPE)
		*top->filter = '\0';
	/* A character of several bytes goes as a whole. */
	if (key == TOPSCREEN_BACKSPACE && len > 0) {
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

static void sort_key(struct top *top, enum toptable_order order)
{
	top->wish.order = order;
	top->wish.reverse = false;
	top->first = 0;
}

static void scroll_key(struct top *top, int key)
{
	size_t step = key == TOPSCREEN_UP || key == TOPSCREEN_DOWN ? 1 : top->page;

	/* Beyond the end is put right when it is drawn. */
	if (key == TOPSCREEN_DOWN || key == TOPSCREEN_PAGE_DOWN)
		top->first += step;
	else if (key == TOPSCREEN_UP || key == TOPSCREEN_PAGE_UP)
		top->first -= step < top->first ? step : top->first;
	else
		top->first = key == TOPSCREEN_LAST ? SIZE_MAX / 2 : 0;
}

static void obey(struct top *top, int key)
{
	bool was_help = top->help;

	if (key == TOPSCREEN_END || (key == 'q' && !top->typing)) {
		top->over = true;
		return;
	}
	if (key == TOPSCREEN_NOTHING || key == TOPSCREEN_RESIZED)
		return;
	if (top->typing) {
		type_key(top, key);
		return;
	}
	top->help = false;
	switch (key) {
	case 'c':
		sort_key(top, TOPTABLE_BY_CPU);
		break;
	case 'm':
		sort_key(top, TOPTABLE_BY_MEMORY);
		break;
	case 'd':
		sort_key(top, TOPTABLE_BY_DISTANCE);
		break;
	case 'n':
		sort_key(top, TOPTABLE_BY_NAME);
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
	case TOPSCREEN_ESCAPE:
		*top->filter = '\0';
		break;
	case TOPSCREEN_UP:
	case TOPSCREEN_DOWN:
	case TOPSCREEN_PAGE_UP:
	case TOPSCREEN_PAGE_DOWN:
	case TOPSCREEN_FIRST:
	case TOPSCREEN_LAST:
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
		int key = topscreen_key(top->screen, left < READ_INTERVAL_NS ? left : READ_INTERVAL_NS);

		obey(top, key);
		now = clock_mono(&top->clock);
		if (!top->paused && mono_diff(now, read) >= (int64_t)READ_INTERVAL_NS) {
			r = topwatch_update(&top->watch, now);
			read = now;
		}
		if (r == 0 && key != TOPSCREEN_NOTHING && !top->over)
			r = draw(top);
	}
	return r;
}

static int show_screen(struct top *top)
{
	int r = 0;

	for (uint64_t frame = 0; r == 0 && !top->over && (!top->limited || frame < top->frames); frame++) {
		r = top->paused ? 0 : topwatch_update(&top->watch, clock_mono(&top->clock));
		if (r == 0)
			r = draw(top);
		if (r == 0)
			r = wait_for_keys(top, mono_add(clock_mono(&top->clock), top->interval_ns));
	}
	return r;
}

static int run_screen(struct top *top)
{
	int r = topscreen_open(top->style.color, &top->screen);

	if (r == -ENOTTY)
		return run_plain(top);
	if (r < 0)
		return no_memory(r);
	snprintf(top->filter, sizeof(top->filter), "%s", top->wish.filter ? top->wish.filter : "");
	r = show_screen(top);
	topscreen_close(top->screen);
	return r < 0 ? no_memory(r) : EXIT_OK;
}

/* ---- command ---- */

static int wrong(const char *message)
{
	fprintf(stderr, "spikewatch top: %s\nTry 'spikewatch top --help'.\n", message);
	return EXIT_USAGE;
}

/* -1: go on, else the code to exit with. */
static int choose_order(const char *name, enum toptable_order *ret)
{
	const char *nearest;

	for (size_t i = 0; i < TOPTABLE_ORDERS; i++)
		if (strcmp(toppage_orders[i], name) == 0) {
			*ret = (enum toptable_order)i;
			return -1;
		}
	nearest = options_nearest(name, toppage_orders, TOPTABLE_ORDERS);
	fprintf(stderr, "spikewatch top: --sort: \"");
	output_escaped(stderr, name);
	fprintf(stderr, "\" is none of cpu, memory, distance, name");
	fprintf(stderr, nearest ? "; did you mean %s?\n" : "%s\n", nearest ? nearest : "");
	return EXIT_USAGE;
}

static int run(struct top *top, const char *ring, const char *config, bool plain)
{
	char message[CONFIGFILE_MESSAGE_MAX];
	int r = topwatch_init(&top->watch, ring, config, message);

	if (r < 0) {
		fprintf(stderr, "spikewatch top: ");
		output_escaped(stderr, message);
		fputc('\n', stderr);
		return r == -EINVAL ? EXIT_USAGE : EXIT_TROUBLE;
	}
	r = topwatch_update(&top->watch, clock_mono(&top->clock));
	if (r < 0)
		return no_memory(r);
	if (!top->watch.feed.ring)
		return topwatch_explain(&top->watch, "spikewatch top: ", stderr);

	plot_style_detect(stdout, &top->style);
	/* For programs nothing is cut. */
	if (!isatty(STDOUT_FILENO) && !getenv("COLUMNS"))
		top->style.width = 0;
	return plain ? run_plain(top) : run_screen(top);
}

static void release(struct top *top)
{
	topwatch_release(&top->watch);
}

int top_command(int argc, char **argv)
{
	const char *ring = NULL, *config = NULL, *sort = "cpu";
	bool once = false;
	AUTO(release) struct top top = { .clock = realclock(), .interval_ns = NS_PER_S };
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
		.description = "The ring is by default that of the daemon of whoever asks, else /run/spikewatch/ring;\n"
			       "the configuration is what the daemon's command line says. On a screen: ? for help.\n"
			       "Where there is no screen (a pipe, TERM=dumb), one text table after the other.",
		.example = "spikewatch top --once --sort distance -n 5",
		.exits = "0 shown, 1 no ring or not allowed, 2 wrong usage or a file that is no ring",
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
		return wrong("--interval: from 100ms to 1h");
	if (count == 0)
		return wrong("--count: at least 1");
	top.limited = once || count != UINT64_MAX;
	top.frames = once ? 1 : count;
	return run(&top, ring, config, once);
}
