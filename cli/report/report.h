/*
 * report.h: the page of HTML that spikewatch report writes, as far as other commands share it: the
 * fixed parts (style, program and licences, made from cli/report/ when Spikewatch is built; a build
 * without npm has none), what goes between them, and the incident's files, which spikewatch export
 * takes out of the page again, bit for bit.
 */
#ifndef SPIKEWATCH_CLI_REPORT_REPORT_H
#define SPIKEWATCH_CLI_REPORT_REPORT_H

#include "lib/base/io.h"
#include "lib/incident/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The member "format" of the data. */
#define REPORT_DATA_FORMAT 1

/* The program of the page looks for its data, one JSON object, here. */
#define REPORT_DATA_BEGIN "<script type=\"application/json\" id=\"report-data\">\n"

/* Whether this build has the fixed parts. */
bool report_page_built(void);

/*
 * Writes the page up to where embedded files and data go. title and words are plain
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

/* ---- embedded files ---- */

/*
 * A page holds, each on lines of its own and nothing else on them:
 *
 *     <script type="application/octet-stream;base64" data-spikewatch="begin" data-format="1"
 *     data-incident="ID"></script>
 *     <script type="application/octet-stream;base64" data-spikewatch="file" data-name="NAME"
 *     data-bytes="N" data-crc32="HHHHHHHH">
 *     base64 in lines
 *     </script>
 *     ... more files ...
 *     <script type="application/octet-stream;base64" data-spikewatch="end" data-files="N"></script>
 *
 * A browser neither runs nor shows a script of a type that it does not know. Nothing else in the
 * page can begin a line in this way, because all other text is escaped. Names are those that a
 * sealed directory may have (manifest_name_ok); the CRC-32 is that of MANIFEST.
 */

#define REPORT_FILE_INCIDENT_MAX 127 /* of the name of an incident, the NUL excluded */

/* Positive returns of report_file_next. */
enum {
	REPORT_FILE_END = 1, /* all files have been handed out */
};

/* Walks a text, which must stay. To be read: incident. */
struct report_file {
	const char *at, *end;
	uint64_t count;                              /* of the files handed out or found damaged */
	char incident[REPORT_FILE_INCIDENT_MAX + 1]; /* "" if not known; else of A-Z a-z 0-9 _ . -, no dot first */
};

/* A file in the page. */
struct report_file_entry {
	char name[MANIFEST_NAME_MAX + 1];
	uint64_t size_bytes;
	uint32_t crc32;
	const char *text; /* base64, within the page */
	size_t text_len;
};

/* 0; -ENOENT: the text has no such begin; -EPROTONOSUPPORT: of a later format. */
int report_file_start(struct report_file *files, const char *text, size_t len);

/*
 * The next file. 0 and *ret; REPORT_FILE_END; -EBADMSG: what is there is damaged, and the next call
 * goes on behind it; -ENODATA: the page ends too early, or its end speaks of another number of
 * files: it was cut or changed.
 */
int report_file_next(struct report_file *files, struct report_file_entry *ret);

/*
 * Appends the bytes of a file. 0; -EBADMSG: size or checksum are others; -ENOMEM; -EFBIG beyond
 * buffer->max.
 */
int report_file_get(const struct report_file_entry *entry, struct buffer *buffer);

#endif
