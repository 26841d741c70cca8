/*
 * addressbook_file.c: a table of chains. Processes of one program share all their files, so what a mapping costs is its addresses.
 */
#include "addressbook_file.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void *addressbook_purse_resize(struct addressbook_purse *purse, void *old, size_t old_bytes, size_t new_bytes)
{
	void *memory;

	if (new_bytes > old_bytes && new_bytes - old_bytes > purse->max - purse->used)
		return NULL;
	memory = realloc(old, new_bytes);
	if (memory != NULL)
		purse->used += new_bytes - old_bytes;
	return memory;
}

void addressbook_purse_free(struct addressbook_purse *purse, void *memory, size_t bytes)
{
	if (memory == NULL)
		return;
	assert(purse->used >= bytes);
	purse->used -= bytes;
	free(memory);
}

/* FNV-1a. */
static uint32_t hash_bytes(uint32_t hash, const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ bytes[i]) * 16777619u;
	return hash;
}

struct addressbook_file *addressbook_file_get(struct addressbook_files *files, const struct perfrecord_mmap *mmap)
{
	uint32_t hash =
		hash_bytes(hash_bytes(2166136261u, mmap->path, mmap->path_len), &mmap->file, sizeof(mmap->file));
	struct addressbook_file **bucket = &files->buckets[hash % ADDRESSBOOK_FILE_BUCKETS];
	struct addressbook_file *file;

	for (file = *bucket; file != NULL; file = file->next)
		if (file->hash == hash && file->path_len == mmap->path_len &&
		    memcmp(file->path, mmap->path, mmap->path_len) == 0 &&
		    perfrecord_file_same(&file->file, &mmap->file))
			return addressbook_file_again(file);
	if (mmap->path_len > ADDRESSBOOK_PATH_MAX)
		return NULL;
	file = addressbook_purse_resize(&files->purse, NULL, 0, sizeof(*file) + mmap->path_len + 1);
	if (file == NULL)
		return NULL;
	*file = (struct addressbook_file){
		.next = *bucket, .hash = hash, .references = 1, .file = mmap->file, .path_len = mmap->path_len
	};
	memcpy(file->path, mmap->path, mmap->path_len);
	file->path[mmap->path_len] = '\0';
	*bucket = file;
	return file;
}

struct addressbook_file *addressbook_file_again(struct addressbook_file *file)
{
	file->references++;
	return file;
}

void addressbook_file_put(struct addressbook_files *files, struct addressbook_file *file)
{
	struct addressbook_file **link = &files->buckets[file->hash % ADDRESSBOOK_FILE_BUCKETS];

	if (--file->references > 0)
		return;
	while (*link != file)
		link = &(*link)->next;
	*link = file->next;
	addressbook_purse_free(&files->purse, file, sizeof(*file) + file->path_len + 1);
}
