/*
 * report.h: an incident as a page of HTML: the page's fixed parts (report_page.h), its files
 * (report_file.h) and what is drawn (report_data.h). Without the fixed parts, in a build that has
 * none, the rest is the same.
 */
#ifndef SPIKEWATCH_CLI_REPORT_REPORT_H
#define SPIKEWATCH_CLI_REPORT_REPORT_H

#include "cli/incident/view.h"
#include "lib/base/io.h"
#include "lib/incident/incident.h"
#include "lib/incident/manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * report_file.h: files inside of an HTML page, and out of it again, bit for bit. What spikewatch
 * report embeds and spikewatch export restores. Pure.
 *
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
 * A browser runs no script of a type that it does not know, and shows none. Whatever else is in the
 * page cannot begin a line so: text of strangers has no "<" there. Names are those that a sealed
 * directory may have (manifest_name_ok); the CRC-32 is that of MANIFEST.
 */

#define REPORT_FILE_INCIDENT_MAX 127 /* of the name of an incident, the NUL excluded */

/* Positive returns of report_file_next. */
enum {
	REPORT_FILE_END = 1, /* all files have been handed out */
};

/* ---- into a page ---- */

/*
 * incident: its name; one that is not allowed is left empty. 0 or what the sink returned; so do the
 * others.
 */
int report_file_begin(const struct sink *sink, const char *incident);

/* name: one of manifest_name_ok, else -EINVAL. */
int report_file_put(const struct sink *sink, const char *name, const void *data, size_t len);

/* count: of the files that were put. */
int report_file_end(const struct sink *sink, uint64_t count);

/* ---- out of it ---- */

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

/* base64.h: bytes as letters of RFC 4648, section 4, in lines, and back. Pure. */

/* Of a line, without its newline. */
#define BASE64_LINE 76

/* Writes data in lines, each with a newline; of no bytes nothing. 0 or what the sink returned. */
int base64_write(const struct sink *sink, const void *data, size_t len);

/*
 * Appends what text stands for; white space is passed over. 0; -EBADMSG: other letters, padding at
 * the wrong place, or bits that the padding leaves unused are not zero; -ENOMEM; -EFBIG beyond
 * buffer->max. After an error a part may have been appended.
 */
int base64_read(const char *text, size_t len, struct buffer *buffer);

/* html_text.h: text of strangers inside of HTML and of JSON inside of HTML. Pure. */

/*
 * Writes text so that a browser shows it as it is, between tags or in a quoted attribute: what HTML
 * gives a meaning is escaped; control characters, bytes that are not UTF-8, and characters that are
 * invisible or change the direction of others become \xNN or \u{NNNN}. 0 or what the sink returned.
 */
int html_text_write(const struct sink *sink, const char *text, size_t len);

/*
 * Writes through to another sink, with every "<" of JSON as \u003c, so that no tag can begin in it.
 * inner must outlive it.
 */
struct sink html_text_json(const struct sink *inner);

/*
 * report_data.h: what the page of a report draws, as one JSON object: docs/report.md describes it.
 * What is in the embedded files (tables, stacks) is not said twice.
 */

#define REPORT_DATA_FORMAT 1

/* A file of the incident that the report does not hold. */
struct report_data_absent {
	char name[64];
	uint64_t bytes;
	char why[96]; /* printable */
};

#define REPORT_DATA_ABSENT_MAX 64

struct report_data_files {
	struct report_data_absent absent[REPORT_DATA_ABSENT_MAX];
	size_t absent_count;
};

/*
 * report_page.h: the page of a report without what is particular to one: style, program and
 * licences, made from cli/report/ when Spikewatch was built. A build without npm has none.
 */

/* What stands between the parts of the page, in this order. */
enum report_page_part {
	REPORT_PAGE_TITLE, /* before the title */
	REPORT_PAGE_STORY, /* before the words */
	REPORT_PAGE_DATA,  /* before the data and the files */
	REPORT_PAGE_END,   /* all that follows */
	REPORT_PAGE_PARTS,
};

/* Is there a page. */
bool report_page_built(void);

/* Writes a part. 0 or what the sink returned. */
int report_page_write(enum report_page_part part, const struct sink *sink);

/*
 * view: loaded from incidentfd. Files of more than file_bytes_max, and what is no plain file, are
 * left out: *ret, which is always set but when memory runs out, says which. 0; -ENOMEM; -errno;
 * what the sink returned.
 */
int report_html_write(const struct view *view, int incidentfd, uint64_t file_bytes_max, const struct sink *sink,
		      struct report_data_files *ret);

#endif
