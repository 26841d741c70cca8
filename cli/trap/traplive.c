/*
 * traplive.c: one line, never wider than the terminal, so that it never wraps. If the terminal became narrower since, it has wrapped what
 * stands there by itself: then the lines above are erased too.
 */
#include "traplive.h"

#include "clock.h"
#include "output.h"
#include "text.h"
#include "units.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define WIDTH_DEFAULT 80

void traplive_detect(struct traplive *live, FILE *file)
{
	const char *term = getenv("TERM");

	*live = (struct traplive){
		.file = file,
		.on = isatty(fileno(file)) && term && *term && strcmp(term, "dumb") != 0,
	};
}

/* ---- the text ---- */

__attribute__((format(printf, 3, 4))) static void add(char *buf, size_t cap, const char *format, ...)
{
	size_t len = strlen(buf);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(buf + len, cap - len, format, arguments);
	va_end(arguments);
}

/* A tenth of a second is what can be read. */
static const char *seconds(uint64_t ns, char *buf, size_t cap)
{
	if (ns >= 60 * NS_PER_S)
		return units_format_duration(buf, cap, ns / NS_PER_S * NS_PER_S);
	snprintf(buf, cap, "%.1f s", (double)(ns / (NS_PER_S / 10)) / 10);

	return buf;
}

static void add_values(const struct trapplan *plan, const struct trapsession_view *view, char *buf, size_t cap)
{
	char value[UNITS_TEXT_MAX], name[4 * sizeof view->name + 1];

	text_escape(name, sizeof name, view->name, strlen(view->name));
	add(buf, cap, "%s", name);
	if (view->has_cpu)
		add(buf, cap, " CPU %.0f%%", view->cpu_percent);
	if (view->has_cpu && plan->cpu_percent > 0)
		add(buf, cap, " of %s", units_format_percent(value, sizeof value, plan->cpu_percent));
	if (view->has_memory)
		add(buf, cap, "%s memory %s", view->has_cpu ? "," : "",
		    units_format_bytes(value, sizeof value, view->memory_bytes));
	if (view->has_memory && plan->memory_bytes)
		add(buf, cap, " of %s", units_format_bytes(value, sizeof value, plan->memory_bytes));
	if (view->targets > 1)
		add(buf, cap, plan->tree ? ", of %zu processes" : "; the nearest of %zu", view->targets);
}

const char *traplive_text(const struct trapplan *plan, const struct trapsession_view *view, uint64_t waited_ns,
			  uint64_t wanted, char *buf, size_t cap)
{
	char time[UNITS_TEXT_MAX], name[64];

	buf[0] = '\0';
	add(buf, cap, "%s: ", seconds(waited_ns, time, sizeof time));
	if (wanted > 1)
		add(buf, cap, "caught %llu of %llu; ", (unsigned long long)view->caught, (unsigned long long)wanted);
	if (view->open)
		add(buf, cap, "recording %s more; ", seconds(view->open_ns, time, sizeof time));
	if (view->targets == 0 && plan->comm) {
		text_escape(name, sizeof name, plan->comm, strlen(plan->comm));
		add(buf, cap, "no process is called %s yet", name);
	} else if (view->name[0]) {
		add_values(plan, view, buf, cap);
	}
	if (view->disarmed && !view->open)
		add(buf, cap, "; has to come down first");
	else if (view->pending_ns && !view->open)
		add(buf, cap, "; over for %s", seconds(view->pending_ns, time, sizeof time));

	return buf;
}

/* ---- the terminal ---- */

static size_t width_of(FILE *file)
{
	struct winsize size;

	return ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : WIDTH_DEFAULT;
}

/* Bytes of the first so many characters. */
static size_t cut(const char *text, size_t characters)
{
	size_t len = 0;

	for (size_t seen = 0; text[len]; len++) {
		seen += ((unsigned char)text[len] & 0xc0) != 0x80;
		if (seen > characters)
			break;
	}

	return len;
}

/* To the first column of where the line begins, with nothing behind it. */
static void go_back(struct traplive *live, size_t width)
{
	size_t above = live->shown > width ? (live->shown - 1) / width : 0;

	if (above)
		fprintf(live->file, "\033[%zuA", above);
	fprintf(live->file, "\r\033[J");
	live->shown = 0;
}

void traplive_draw(struct traplive *live, const char *text)
{
	if (!live->on)
		return;

	size_t width = width_of(live->file), len = cut(text, width - 1);

	go_back(live, width);
	fprintf(live->file, "%.*s", (int)len, text);
	live->shown = output_characters(text, len);
	fflush(live->file);
}

void traplive_erase(struct traplive *live)
{
	if (!live->on || !live->shown)
		return;

	go_back(live, width_of(live->file));
	fflush(live->file);
}
