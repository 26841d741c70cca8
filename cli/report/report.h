/*
 * report.h: the page of HTML that spikewatch report writes, as far as other pages share it: the
 * fixed parts (style, program and licences, made from cli/report/ when Spikewatch is built; a build
 * without npm has none) and what goes between them.
 */
#ifndef SPIKEWATCH_CLI_REPORT_REPORT_H
#define SPIKEWATCH_CLI_REPORT_REPORT_H

#include "lib/base/io.h"

#include <stdbool.h>

/* The member "format" of the data. */
#define REPORT_DATA_FORMAT 1

/* The program of the page looks for its data, one JSON object, here. */
#define REPORT_DATA_BEGIN "<script type=\"application/json\" id=\"report-data\">\n"

/* Whether this build has the fixed parts. */
bool report_page_built(void);

/*
 * Writes the page up to where embedded files (report_file.h) and data go. title and words are plain
 * text, escaped here. 0; what the sink returned.
 */
int report_page_begin(const struct sink *sink, const char *title, const char *words);

/* Ends the data and the page. 0 or what the sink returned. */
int report_page_end(const struct sink *sink);

/*
 * A sink for JSON inside of HTML: writes through to inner, which must outlive it, with every "<" as
 * \u003c, so that no tag can begin.
 */
struct sink report_json_sink(const struct sink *inner);

#endif
