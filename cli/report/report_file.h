/*
 * report_file.h: files embedded in an HTML page, and taken out of it again, bit for bit: what
 * spikewatch report embeds and spikewatch export restores. Pure.
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
 * A browser neither runs nor shows a script of a type that it does not know. Nothing else in the
 * page can begin a line in this way, because all other text is escaped. Names are those that a
 * sealed directory may have (manifest_name_ok); the CRC-32 is that of MANIFEST.
 */
#ifndef SPIKEWATCH_CLI_REPORT_REPORT_FILE_H
#define SPIKEWATCH_CLI_REPORT_REPORT_FILE_H

#include "lib/base/io.h"
#include "lib/incident/manifest.h"

#include <stddef.h>
#include <stdint.h>

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

#endif
