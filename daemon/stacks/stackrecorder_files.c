/*
 * stackrecorder_files.c: which files the frames were in, and which whoever unwinds stacks may meet.
 *
 * Not all of them will be opened. What no chain went through counts by the stacks that may lead into it: what is watched has many, and strangers that
 * touched some memory have one or two, but there are hundreds of them where a package is built, each with modules of its own.
 *
 * Stacks repeat: an address is looked up once per page and life of a process, by a cache that forgets what collides. The book is locked for one
 * sample at a time, so that the thread of the side rings is never held up for long.
 */
#include "stackrecorder_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CACHE_ENTRIES 4096
#define NO_FILE UINT32_MAX

struct cached {
	uint64_t page, began_ns;
	uint32_t pid, file; /* index, NO_FILE: none; pid 0: empty */
};

struct stackrecorder_tally {
	struct stackrecorder *recorder;
	struct stackrecorder_snapshot *snapshot;
	struct cached cache[CACHE_ENTRIES];
	size_t *offsets; /* of the paths: their buffer moves while it grows */
	bool *running;
	size_t cap;
};

static bool is_file(const char *path)
{
	return path[0] == '/' && strncmp(path, "//", 2) != 0 && strcmp(path, "/anon_hugepage") != 0;
}

static int grow(struct stackrecorder_tally *tally)
{
	size_t cap = tally->cap == 0 ? 64 : 2 * tally->cap;
	struct stackrecorder_file *files = reallocarray(tally->snapshot->files, cap, sizeof(*files));
	size_t *offsets;
	bool *running;

	if (files == NULL)
		return -ENOMEM;
	tally->snapshot->files = files;
	offsets = reallocarray(tally->offsets, cap, sizeof(*offsets));
	if (offsets == NULL)
		return -ENOMEM;
	tally->offsets = offsets;
	running = reallocarray(tally->running, cap, sizeof(*running));
	if (running == NULL)
		return -ENOMEM;
	tally->running = running;
	tally->cap = cap;
	return 0;
}

/* The file's index, found or added; -ENOMEM. */
static int index_of(struct stackrecorder_tally *tally, uint32_t pid, const struct addressbook_place *place,
		    uint32_t *ret)
{
	struct stackrecorder_snapshot *snapshot = tally->snapshot;
	size_t i = 0;
	int r = 0;

	while (i < snapshot->file_count && (!perfrecord_file_same(&snapshot->files[i].file, &place->file) ||
					    strcmp(snapshot->paths.data + tally->offsets[i], place->path) != 0))
		i++;
	if (i == tally->cap)
		r = grow(tally);
	if (r == 0 && i == snapshot->file_count) {
		tally->offsets[i] = snapshot->paths.len;
		r = buffer_append(&snapshot->paths, place->path, strlen(place->path) + 1);
		snapshot->files[i] = (struct stackrecorder_file){ .file = place->file };
		tally->running[i] = false;
	}
	if (r < 0)
		return r;
	if (i == snapshot->file_count || (place->running && !tally->running[i])) {
		snapshot->files[i].pid = pid;
		snapshot->files[i].start = place->start;
		snapshot->files[i].end = place->end;
		tally->running[i] = place->running;
	}
	snapshot->file_count += i == snapshot->file_count;
	*ret = (uint32_t)i;
	return 0;
}

static int count_frame(struct stackrecorder_tally *tally, const struct perfrecord *sample, uint64_t began_ns,
		       uint64_t address)
{
	uint64_t page = address >> 12;
	struct cached *cached = &tally->cache[(page ^ sample->pid * 2654435761u) % CACHE_ENTRIES];

	if (cached->pid != sample->pid || cached->page != page || cached->began_ns != began_ns) {
		struct addressbook_place place;
		uint32_t file = NO_FILE;
		int r = 0;

		if (addressbook_find(tally->recorder->book, sample->pid, sample->time_ns, address, &place) &&
		    is_file(place.path))
			r = index_of(tally, sample->pid, &place, &file);
		if (r < 0)
			return r;
		*cached = (struct cached){ page, began_ns, sample->pid, file };
	}
	if (cached->file != NO_FILE)
		tally->snapshot->files[cached->file].frames++;
	return 0;
}

static int count_sample(struct stackrecorder_tally *tally, const struct perfrecord *sample)
{
	bool user = false;
	uint64_t began_ns;
	int r = 0;

	pthread_mutex_lock(&tally->recorder->lock);
	began_ns = addressbook_began(tally->recorder->book, sample->pid, sample->time_ns);
	for (size_t i = 0; r == 0 && i < sample->sample.chain_len; i++) {
		uint64_t address = sample->sample.chain[i];

		if (address >= PERF_CONTEXT_MAX)
			user = address == PERF_CONTEXT_USER;
		else if (user)
			r = count_frame(tally, sample, began_ns, address);
	}
	pthread_mutex_unlock(&tally->recorder->lock);
	return r;
}

static int compare(const void *left, const void *right)
{
	const struct stackrecorder_file *a = left, *b = right;

	uint64_t first = a->frames + a->stacks, second = b->frames + b->stacks;

	return first > second ? -1 : first < second;
}

int stackrecorder_tally_samples(struct stackrecorder_tally *tally, const struct perfrecord_format *format,
				const struct perfmerge *merge)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < merge->count; i++) {
		struct perfrecord record;
		size_t size;
		const void *bytes = perfmerge_record(merge, i, &size);

		if (perfrecord_decode(format, bytes, size, &record) == 0 && record.type == PERF_RECORD_SAMPLE &&
		    record.pid != 0)
			r = count_sample(tally, &record);
	}
	return r;
}

int stackrecorder_tally_mapping(struct stackrecorder_tally *tally, const struct perfrecord *record, uint64_t stacks)
{
	struct addressbook_place place;
	uint32_t file = NO_FILE;
	int r = 0;

	pthread_mutex_lock(&tally->recorder->lock);
	if (is_file(record->mmap.path) &&
	    addressbook_find(tally->recorder->book, record->pid, record->time_ns, record->mmap.start, &place) &&
	    is_file(place.path))
		r = index_of(tally, record->pid, &place, &file);
	pthread_mutex_unlock(&tally->recorder->lock);
	if (r == 0 && file != NO_FILE)
		tally->snapshot->files[file].stacks += stacks;
	return r;
}

void stackrecorder_tally_finish(struct stackrecorder_tally *tally)
{
	struct stackrecorder_snapshot *snapshot = tally->snapshot;

	for (size_t i = 0; i < snapshot->file_count; i++)
		snapshot->files[i].path = snapshot->paths.data + tally->offsets[i];
	if (snapshot->file_count > 0)
		qsort(snapshot->files, snapshot->file_count, sizeof(*snapshot->files), compare);
}

int stackrecorder_tally_new(struct stackrecorder *recorder, struct stackrecorder_snapshot *snapshot,
			    struct stackrecorder_tally **ret)
{
	struct stackrecorder_tally *tally = calloc(1, sizeof(*tally));

	if (tally == NULL)
		return -ENOMEM;
	tally->recorder = recorder;
	tally->snapshot = snapshot;
	*ret = tally;
	return 0;
}

void stackrecorder_tally_free(struct stackrecorder_tally *tally)
{
	if (tally == NULL)
		return;
	free(tally->offsets);
	free(tally->running);
	free(tally);
}
