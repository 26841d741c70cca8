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
#ifndef SPIKEWATCH_REPORTFILE_H
#define SPIKEWATCH_REPORTFILE_H

#include "manifest.h"
#include "sink.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPORTFILE_FORMAT 1
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

#endif
