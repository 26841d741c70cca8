/*
 * openmetrics.h: figures as text that a metrics server reads: families of samples with labels, in the two forms that are in use,
 * OpenMetrics 1.0 and the text format 0.0.4 of Prometheus. Pure: onto a sink.
 *
 *	openmetrics_init ─▶ { openmetrics_family ─▶ { openmetrics_u64, _ns, _double } } ─▶ openmetrics_finish
 *
 * What they differ in is this module's: the name in the lines about a counter, units, the mark of the end. The writer is sticky: the first
 * error is returned by every later call.
 */
#ifndef SPIKEWATCH_OPENMETRICS_H
#define SPIKEWATCH_OPENMETRICS_H

#include "sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum openmetrics_form {
	OPENMETRICS_0_0_4, /* Prometheus' own; what whoever does not ask for more gets */
	OPENMETRICS_1_0,
};

enum openmetrics_kind {
	OPENMETRICS_COUNTER, /* its samples are called NAME_total */
	OPENMETRICS_GAUGE,
	OPENMETRICS_INFO, /* NAME_info, of value 1: the labels are what it says */
};

/* name, unit, help: plain ASCII of our own, without quotes, backslashes and newlines. */
struct openmetrics_family {
	const char *name; /* without _total or _info; ends in _UNIT if there is a unit */
	enum openmetrics_kind kind;
	const char *unit; /* "seconds", "bytes", "ratio"; "": none */
	const char *help;
};

/* value may hold any byte. */
struct openmetrics_label {
	const char *name, *value;
};

/* The labels of a sample: first what openmetrics_block has made, then these. {0}: none. */
struct openmetrics_labels {
	const char *block;
	size_t block_len;
	struct openmetrics_label further[2]; /* name NULL: none */
};

/* The caller's storage; its members are this module's. */
struct openmetrics {
	struct sink sink;
	enum openmetrics_form form;
	const struct openmetrics_family *family;
	bool begun; /* the lines about the family are written */
	int error;
};

/* The media type of a form; static text. */
const char *openmetrics_type(enum openmetrics_form form);

/*
 * The form that a client prefers by its Accept header (RFC 9110, 12.5.1): OpenMetrics only if it names it, and likes it no less than plain
 * text. NULL, and whatever makes no sense, is 0.0.4.
 */
enum openmetrics_form openmetrics_negotiate(const char *accept);

/* Begins a page. Nothing is written yet, and nothing is to be released. */
void openmetrics_init(struct openmetrics *writer, struct sink sink, enum openmetrics_form form);

/* What follows belongs to family, which must live until the next one. Nothing is written of a family without samples. */
void openmetrics_family(struct openmetrics *writer, const struct openmetrics_family *family);

/* A sample. ns: nanoseconds, written as seconds, exactly. labels may be NULL. 0 or the first error of the sink. */
int openmetrics_u64(struct openmetrics *writer, const struct openmetrics_labels *labels, uint64_t value);
int openmetrics_ns(struct openmetrics *writer, const struct openmetrics_labels *labels, uint64_t value);
int openmetrics_double(struct openmetrics *writer, const struct openmetrics_labels *labels, double value);

/* The end. 0 or the first error. */
int openmetrics_finish(struct openmetrics *writer);

/*
 * Appends count labels to ret as they stand in a sample: NAME="VALUE",... In values control characters and bytes that are not UTF-8 become
 * U+FFFD. 0; -ENOMEM; -EFBIG.
 */
int openmetrics_block(const struct openmetrics_label *labels, size_t count, struct buffer *ret);

#endif
