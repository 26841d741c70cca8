/*
 * report.h: an incident as a page of HTML: the page's fixed parts (reportpage.h), its files (reportfile.h) and what is drawn
 * (reportdata.h). Without the fixed parts, in a build that has none, the rest is the same.
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
 * reportfile.h: files inside of an HTML page, and out of it again, bit for bit. What spikewatch report embeds and spikewatch export
 * restores. Pure.
 *
 * A page holds, each on lines of its own and nothing else on them:
 *
 *     <script type="application/octet-stream;base64" data-spikewatch="begin" data-format="1" data-incident="ID"></script>
 *     <script type="application/octet-stream;base64" data-spikewatch="file" data-name="NAME" data-bytes="N" data-crc32="HHHHHHHH">
 *     base64 in lines
 *     </script>
 *     ... more files ...
 *     <script type="application/octet-stream;base64" data-spikewatch="end" data-files="N"></script>
 *
 * A browser runs no script of a type that it does not know, and shows none. Whatever else is in the page cannot begin a line so: text of
 * strangers has no "<" there. Names are those that a sealed directory may have (manifest_name_ok); the CRC-32 is that of MANIFEST.
 */

#define REPORTFILE_INCIDENT_MAX 127 /* of the name of an incident, the NUL excluded */

/* Positive returns of reportfile_next. */
enum {
	REPORTFILE_END = 1, /* all files have been handed out */
};

/* ---- into a page ---- */

/* incident: its name; one that is not allowed is left empty. 0 or what the sink returned; so do the others. */
int reportfile_begin(const struct sink *sink, const char *incident);

/* name: one of manifest_name_ok, else -EINVAL. */
int reportfile_put(const struct sink *sink, const char *name, const void *data, size_t len);

/* count: of the files that were put. */
int reportfile_end(const struct sink *sink, uint64_t count);

/* ---- out of it ---- */

/* Walks a text, which must stay. To be read: incident. */
struct reportfile {
	const char *at, *end;
	uint64_t count;                             /* of the files handed out or found damaged */
	char incident[REPORTFILE_INCIDENT_MAX + 1]; /* "" if not known; else of A-Z a-z 0-9 _ . -, no dot first */
};

/* A file in the page. */
struct reportfile_entry {
	char name[MANIFEST_NAME_MAX + 1];
	uint64_t size_bytes;
	uint32_t crc32;
	const char *text; /* base64, within the page */
	size_t text_len;
};

/* 0; -ENOENT: the text has no such begin; -EPROTONOSUPPORT: of a later format. */
int reportfile_start(struct reportfile *files, const char *text, size_t len);

/*
 * The next file. 0 and *ret; REPORTFILE_END; -EBADMSG: what is there is damaged, and the next call goes on behind it;
 * -ENODATA: the page ends too early, or its end speaks of another number of files: it was cut or changed.
 */
int reportfile_next(struct reportfile *files, struct reportfile_entry *ret);

/* Appends the bytes of a file. 0; -EBADMSG: size or checksum are others; -ENOMEM; -EFBIG beyond buffer->max. */
int reportfile_get(const struct reportfile_entry *entry, struct buffer *buffer);

/* base64.h: bytes as letters of RFC 4648, section 4, in lines, and back. Pure. */

/* Of a line, without its newline. */
#define BASE64_LINE 76

/* Writes data in lines, each with a newline; of no bytes nothing. 0 or what the sink returned. */
int base64_write(const struct sink *sink, const void *data, size_t len);

/*
 * Appends what text stands for; white space is passed over. 0; -EBADMSG: other letters, padding at the wrong place, or bits that the
 * padding leaves unused are not zero; -ENOMEM; -EFBIG beyond buffer->max. After an error a part may have been appended.
 */
int base64_read(const char *text, size_t len, struct buffer *buffer);

/* htmltext.h: text of strangers inside of HTML and of JSON inside of HTML. Pure. */

/*
 * Writes text so that a browser shows it as it is, between tags or in a quoted attribute: what HTML gives a meaning is escaped; control
 * characters, bytes that are not UTF-8, and characters that are invisible or change the direction of others become \xNN or \u{NNNN}.
 * 0 or what the sink returned.
 */
int htmltext_write(const struct sink *sink, const char *text, size_t len);

/* Writes through to another sink, with every "<" of JSON as \u003c, so that no tag can begin in it. inner must outlive it. */
struct sink htmltext_json(const struct sink *inner);

/*
 * reportdata.h: what the page of a report draws, as one JSON object: docs/report.md describes it. What is in the embedded files (tables, stacks)
 * is not said twice.
 */

#define REPORTDATA_FORMAT 1

/* A file of the incident that the report does not hold. */
struct reportdata_absent {
	char name[64];
	uint64_t bytes;
	char why[96]; /* printable */
};

#define REPORTDATA_ABSENT_MAX 64

struct reportdata_files {
	struct reportdata_absent absent[REPORTDATA_ABSENT_MAX];
	size_t absent_count;
};

/*
 * reportpage.h: the page of a report without what is particular to one: style, program and licences, made from cli/report/ when Spikewatch
 * was built. A build without npm has none.
 */

/* What stands between the parts of the page, in this order. */
enum reportpage_part {
	REPORTPAGE_TITLE, /* before the title */
	REPORTPAGE_STORY, /* before the words */
	REPORTPAGE_DATA,  /* before the data and the files */
	REPORTPAGE_END,   /* all that follows */
	REPORTPAGE_PARTS,
};

/* Is there a page. */
bool reportpage_built(void);

/* Writes a part. 0 or what the sink returned. */
int reportpage_write(enum reportpage_part part, const struct sink *sink);

/*
 * view: loaded from incidentfd. Files of more than file_bytes_max, and what is no plain file, are left out: *ret, which is always set but when
 * memory runs out, says which. 0; -ENOMEM; -errno; what the sink returned.
 */
int reporthtml_write(const struct view *view, int incidentfd, uint64_t file_bytes_max, const struct sink *sink,
		     struct reportdata_files *ret);

#endif
