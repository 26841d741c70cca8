/*
 * openmetrics.c: the same samples in two forms.
 *
 *     OpenMetrics 1.0                                0.0.4
 *     # TYPE spikewatch_x_seconds counter            # HELP spikewatch_x_seconds_total Time spent.
 *     # UNIT spikewatch_x_seconds seconds            # TYPE spikewatch_x_seconds_total counter
 *     # HELP spikewatch_x_seconds Time spent.
 *     spikewatch_x_seconds_total{a="b"} 1.5          spikewatch_x_seconds_total{a="b"} 1.5
 *     # EOF
 *
 * A value is written with as few digits as give it back; nanoseconds never pass through a double, of which 2^53 ns are 104 days.
 *
 * Strings of strangers are made harmless in one place, put_value: what is left is valid UTF-8 that a terminal can be shown.
 */
#include "openmetrics.h"

#include "clock.h"
#include "jsontext.h"
#include "scope.h"
#include "text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* ---- what a client wants ---- */

/* A piece of the header. */
struct span {
	const char *at;
	size_t len;
};

static struct span trimmed(struct span span)
{
	while (span.len > 0 && (*span.at == ' ' || *span.at == '\t'))
		span.at++, span.len--;
	while (span.len > 0 && (span.at[span.len - 1] == ' ' || span.at[span.len - 1] == '\t'))
		span.len--;

	return span;
}

/* Takes what stands before the next `separator` off *rest. */
static struct span next_part(struct span *rest, char separator)
{
	const char *end = memchr(rest->at, separator, rest->len);
	size_t len = end ? (size_t)(end - rest->at) : rest->len;
	struct span part = { rest->at, len };

	rest->at += len + (end != NULL);
	rest->len -= len + (end != NULL);

	return trimmed(part);
}

static bool span_is(struct span span, const char *text)
{
	return span.len == strlen(text) && strncasecmp(span.at, text, span.len) == 0;
}

/* "0.75" as thousandths. What is no weight is 1000, as if it were not there. */
static unsigned read_weight(struct span span)
{
	unsigned weight = 0, scale = 1000;

	for (size_t i = 0; i < span.len && i < 5; i++) {
		if (i == 1 ? span.at[i] != '.' : span.at[i] < '0' || span.at[i] > '9')
			return 1000;
		if (i == 1)
			continue;
		weight += scale * (unsigned)(span.at[i] - '0');
		scale /= 10;
	}

	return span.len == 0 || span.len > 5 || weight > 1000 ? 1000 : weight;
}

enum openmetrics_form openmetrics_negotiate(const char *accept)
{
	struct span rest = { accept ? accept : "", accept ? strlen(accept) : 0 };
	unsigned plain = 0, open = 0;

	while (rest.len > 0) {
		struct span item = next_part(&rest, ','), type = next_part(&item, ';'), version = { "", 0 };
		unsigned weight = 1000;

		while (item.len > 0) {
			struct span parameter = next_part(&item, ';'), name = next_part(&parameter, '=');

			if (span_is(name, "q"))
				weight = read_weight(trimmed(parameter));
			if (span_is(name, "version"))
				version = trimmed(parameter);
		}
		if (span_is(type, "application/openmetrics-text") && (version.len == 0 || span_is(version, "1.0.0")))
			open = weight > open ? weight : open;
		if ((span_is(type, "text/plain") && (version.len == 0 || span_is(version, "0.0.4"))) ||
		    span_is(type, "text/*") || span_is(type, "*/*"))
			plain = weight > plain ? weight : plain;
	}

	return open > 0 && open >= plain ? OPENMETRICS_1_0 : OPENMETRICS_0_0_4;
}

const char *openmetrics_type(enum openmetrics_form form)
{
	return form == OPENMETRICS_1_0 ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
				       : "text/plain; version=0.0.4; charset=utf-8";
}

/* ---- writing ---- */

static void put_bytes(struct openmetrics *writer, const char *text, size_t len)
{
	if (writer->error == 0 && len > 0)
		writer->error = sink_write(&writer->sink, text, len);
}

static void put(struct openmetrics *writer, const char *text)
{
	put_bytes(writer, text, strlen(text));
}

/* How a character of len bytes is written if not as it is; NULL: as it is. */
static const char *written_as(const char *text, size_t len)
{
	uint32_t code = 0;

	if (len == 0)
		return REPLACEMENT;
	if (*text == '\n')
		return "\\n";
	if (*text == '"')
		return "\\\"";
	if (*text == '\\')
		return "\\\\";

	return text_decode(text, len, &code) == 0 || text_is_hidden(code) ? REPLACEMENT : NULL;
}

static void put_value(struct openmetrics *writer, const char *value)
{
	const char *end = value + strlen(value), *at = value;

	while (at < end) {
		size_t len = jsontext_character(at, (size_t)(end - at));
		const char *instead = written_as(at, len);

		if (instead) {
			put_bytes(writer, value, (size_t)(at - value));
			put(writer, instead);
		}
		at += len > 0 ? len : 1;
		if (instead)
			value = at;
	}
	put_bytes(writer, value, (size_t)(end - value));
}

static void put_label(struct openmetrics *writer, const struct openmetrics_label *label, bool first)
{
	put(writer, first ? "" : ",");
	put(writer, label->name);
	put(writer, "=\"");
	put_value(writer, label->value);
	put(writer, "\"");
}

static void put_labels(struct openmetrics *writer, const struct openmetrics_labels *labels)
{
	bool first = labels->block_len == 0;

	if (first && !labels->further[0].name)
		return;

	put(writer, "{");
	put_bytes(writer, labels->block, labels->block_len);
	for (size_t i = 0; i < ARRAY_LEN(labels->further) && labels->further[i].name; i++) {
		put_label(writer, &labels->further[i], first);
		first = false;
	}
	put(writer, "}");
}

/* "# WHAT NAME TEXT" */
static void put_about(struct openmetrics *writer, const char *what, const char *suffix, const char *text)
{
	put(writer, "# ");
	put(writer, what);
	put(writer, " ");
	put(writer, writer->family->name);
	put(writer, suffix);
	put(writer, " ");
	put(writer, text);
	put(writer, "\n");
}

static const char *suffix_of(enum openmetrics_kind kind)
{
	static const char *const suffixes[] = {
		[OPENMETRICS_COUNTER] = "_total",
		[OPENMETRICS_GAUGE] = "",
		[OPENMETRICS_INFO] = "_info",
	};

	return suffixes[kind];
}

/* 0.0.4 knows no info, and calls a family what its samples are called. */
static void begin_family(struct openmetrics *writer)
{
	static const char *const kinds[] = {
		[OPENMETRICS_COUNTER] = "counter",
		[OPENMETRICS_GAUGE] = "gauge",
		[OPENMETRICS_INFO] = "info",
	};
	const struct openmetrics_family *family = writer->family;

	if (writer->begun)
		return;

	writer->begun = true;
	if (writer->form == OPENMETRICS_0_0_4) {
		put_about(writer, "HELP", suffix_of(family->kind), family->help);
		put_about(writer, "TYPE", suffix_of(family->kind),
			  kinds[family->kind == OPENMETRICS_INFO ? OPENMETRICS_GAUGE : family->kind]);
		return;
	}
	put_about(writer, "TYPE", "", kinds[family->kind]);
	if (*family->unit)
		put_about(writer, "UNIT", "", family->unit);
	put_about(writer, "HELP", "", family->help);
}

static int put_sample(struct openmetrics *writer, const struct openmetrics_labels *labels, const char *value)
{
	begin_family(writer);
	put(writer, writer->family->name);
	put(writer, suffix_of(writer->family->kind));
	if (labels)
		put_labels(writer, labels);
	put(writer, " ");
	put(writer, value);
	put(writer, "\n");

	return writer->error;
}

int openmetrics_u64(struct openmetrics *writer, const struct openmetrics_labels *labels, uint64_t value)
{
	char text[TEXT_NUMBER_ROOM + 1];

	*text_put_u64(text, value) = '\0';

	return put_sample(writer, labels, text);
}

int openmetrics_ns(struct openmetrics *writer, const struct openmetrics_labels *labels, uint64_t value)
{
	char text[2 * TEXT_NUMBER_ROOM + 2];
	char *end = text_put_u64(text, value / NS_PER_S);
	uint64_t rest = value % NS_PER_S;

	if (rest > 0) {
		*end++ = '.';
		for (uint64_t unit = NS_PER_S / 10; rest > 0; rest %= unit, unit /= 10)
			*end++ = (char)('0' + rest / unit);
	}
	*end = '\0';

	return put_sample(writer, labels, text);
}

int openmetrics_double(struct openmetrics *writer, const struct openmetrics_labels *labels, double value)
{
	char text[40];

	if (isnan(value) || isinf(value))
		return put_sample(writer, labels, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");

	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, value);
		if (strtod(text, NULL) == value)
			break;
	}

	return put_sample(writer, labels, text);
}

/* ---- the whole ---- */

void openmetrics_init(struct openmetrics *writer, struct sink sink, enum openmetrics_form form)
{
	*writer = (struct openmetrics){ .sink = sink, .form = form };
}

void openmetrics_family(struct openmetrics *writer, const struct openmetrics_family *family)
{
	writer->family = family;
	writer->begun = false;
}

int openmetrics_finish(struct openmetrics *writer)
{
	if (writer->form == OPENMETRICS_1_0)
		put(writer, "# EOF\n");

	return writer->error;
}

int openmetrics_block(const struct openmetrics_label *labels, size_t count, struct buffer *ret)
{
	struct openmetrics writer;

	openmetrics_init(&writer, sink_buffer(ret), OPENMETRICS_0_0_4);
	for (size_t i = 0; i < count; i++)
		put_label(&writer, &labels[i], i == 0);

	return writer.error;
}
