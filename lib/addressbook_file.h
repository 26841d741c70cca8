/*
 * addressbook_file.h: files that are mapped, each held once however many processes map it; and the purse that everything in an addressbook is
 * paid from.
 */
#ifndef SPIKEWATCH_ADDRESSBOOK_FILE_H
#define SPIKEWATCH_ADDRESSBOOK_FILE_H

#include "perfrecord.h"

#define ADDRESSBOOK_PATH_MAX 4096 /* of longer ones nothing is kept */

/* Bytes on the heap. */
struct addressbook_purse {
	size_t used, max;
};

/* Like realloc(3) from old_bytes to new_bytes, paid. NULL: too dear, or no memory; then what was there still is. */
void *addressbook_purse_resize(struct addressbook_purse *purse, void *old, size_t old_bytes, size_t new_bytes);

/* Frees what took this many bytes. NULL is fine. */
void addressbook_purse_free(struct addressbook_purse *purse, void *memory, size_t bytes);

struct addressbook_file {
	struct addressbook_file *next;
	uint32_t hash, references;
	struct perfrecord_file file;
	size_t path_len;
	char path[];
};

#define ADDRESSBOOK_FILE_BUCKETS 1024

struct addressbook_files {
	struct addressbook_file *buckets[ADDRESSBOOK_FILE_BUCKETS];
	struct addressbook_purse purse;
};

/* One more reference to this file. NULL: no room, or too long a path. */
struct addressbook_file *addressbook_file_get(struct addressbook_files *files, const struct perfrecord_mmap *mmap);

/* Another reference to a file at hand. */
struct addressbook_file *addressbook_file_again(struct addressbook_file *file);

/* One reference less; the last one frees it. */
void addressbook_file_put(struct addressbook_files *files, struct addressbook_file *file);

#endif
