/*
 * addressbook_space.c: mappings in the order they came. munmap(2) is not reported, so a mapping holds until others cover it; the newest of those
 * that hold an address is the one. What is covered stays for those who ask about the past, or who were forked before.
 *
 * A program that makes code while it runs maps the same pages again and again (each mprotect(2) is reported): the same range of the same file is
 * the same mapping.
 */
#include "addressbook_space.h"

#include <string.h>

#define MAPPINGS_FIRST 8

struct addressbook_space *addressbook_space_new(struct addressbook_files *files)
{
	struct addressbook_space *space = addressbook_purse_resize(&files->purse, NULL, 0, sizeof(*space));

	if (space != NULL)
		*space = (struct addressbook_space){ .references = 1 };
	return space;
}

void addressbook_space_put(struct addressbook_files *files, struct addressbook_space *space)
{
	if (space == NULL || --space->references > 0)
		return;
	for (size_t i = 0; i < space->count; i++)
		addressbook_file_put(files, space->mappings[i].file);
	addressbook_purse_free(&files->purse, space->mappings, space->cap * sizeof(*space->mappings));
	addressbook_purse_free(&files->purse, space, sizeof(*space));
}

static bool reserve(struct addressbook_space *space, struct addressbook_files *files, size_t cap)
{
	struct addressbook_mapping *mappings;

	if (cap <= space->cap)
		return true;
	mappings = addressbook_purse_resize(&files->purse, space->mappings, space->cap * sizeof(*mappings),
					    cap * sizeof(*mappings));
	if (mappings == NULL)
		return false;
	space->mappings = mappings;
	space->cap = cap;
	return true;
}

static bool grow(struct addressbook_space *space, struct addressbook_files *files)
{
	if (space->count < space->cap)
		return true;
	return reserve(space, files, space->cap == 0 ? MAPPINGS_FIRST : 2 * space->cap);
}

/* Frees an eighth of max at once, so that it is not done each time. */
static uint64_t thin_out(struct addressbook_space *space, struct addressbook_files *files, size_t max)
{
	size_t excess = space->count - (max - max / 8 - 1), kept = 0, covered = 0;
	uint64_t dropped = 0;

	for (size_t i = 0; i < space->count; i++)
		covered += space->mappings[i].until_ns != UINT64_MAX;
	for (size_t i = 0; i < space->count; i++) {
		struct addressbook_mapping *mapping = &space->mappings[i];
		bool is_covered = mapping->until_ns != UINT64_MAX;

		if (excess > 0 && (is_covered || excess > covered)) {
			excess--;
			covered -= is_covered;
			dropped += !is_covered;
			addressbook_file_put(files, mapping->file);
			continue;
		}
		covered -= is_covered;
		space->mappings[kept++] = *mapping;
	}
	space->count = kept;
	return dropped;
}

/* What shares addresses with it from now on shows it; what it covers is no more. True: it is there already, and on top. */
static bool cover(struct addressbook_space *space, const struct addressbook_mapping *by)
{
	for (size_t i = space->count; i-- > 0;) {
		struct addressbook_mapping *mapping = &space->mappings[i];

		if (mapping->until_ns != UINT64_MAX || mapping->end <= by->start || mapping->start >= by->end)
			continue;
		if (mapping->start == by->start && mapping->end == by->end && mapping->offset == by->offset &&
		    mapping->file == by->file)
			return true;
		break;
	}
	for (size_t i = 0; i < space->count; i++) {
		struct addressbook_mapping *mapping = &space->mappings[i];

		if (mapping->until_ns == UINT64_MAX && mapping->start >= by->start && mapping->end <= by->end)
			mapping->until_ns = by->since_ns;
	}
	return false;
}

static bool mapping_of(struct addressbook_files *files, const struct perfrecord_mmap *mmap, uint64_t since_ns,
		       struct addressbook_mapping *ret)
{
	*ret = (struct addressbook_mapping){ .start = mmap->start,
					     .end = mmap->start + mmap->len,
					     .offset = mmap->offset,
					     .since_ns = since_ns,
					     .until_ns = UINT64_MAX,
					     .file = addressbook_file_get(files, mmap),
					     .prot = mmap->prot,
					     .flags = mmap->flags };
	return ret->file != NULL;
}

bool addressbook_space_map(struct addressbook_space *space, struct addressbook_files *files,
			   const struct perfrecord_mmap *mmap, uint64_t since_ns, size_t max, uint64_t *dropped)
{
	struct addressbook_mapping mapping;

	if (space->count >= max)
		*dropped += thin_out(space, files, max);
	if (!grow(space, files) || !mapping_of(files, mmap, since_ns, &mapping))
		return false;
	if (cover(space, &mapping)) {
		addressbook_file_put(files, mapping.file);
		return true;
	}
	space->mappings[space->count++] = mapping;
	return true;
}

bool addressbook_space_seed(struct addressbook_space *space, struct addressbook_files *files,
			    const struct perfrecord_mmap *mmap, size_t max)
{
	struct addressbook_mapping mapping;
	size_t first = 0;

	for (size_t i = 0; i < space->count; i++) {
		const struct addressbook_mapping *there = &space->mappings[i];

		if (there->start == mmap->start && there->end == mmap->start + mmap->len &&
		    there->offset == mmap->offset && there->until_ns == UINT64_MAX)
			return true;
		first += there->since_ns == 0;
	}
	if (space->count >= max || !grow(space, files) || !mapping_of(files, mmap, 0, &mapping))
		return false;
	memmove(space->mappings + first + 1, space->mappings + first, (space->count - first) * sizeof(mapping));
	space->mappings[first] = mapping;
	space->count++;
	return true;
}

struct addressbook_space *addressbook_space_copy(const struct addressbook_space *from, struct addressbook_files *files,
						 uint64_t at_ns)
{
	struct addressbook_space *copy = addressbook_space_new(files);
	size_t count = 0;

	for (size_t i = 0; i < from->count; i++)
		count += from->mappings[i].since_ns <= at_ns && from->mappings[i].until_ns > at_ns;
	if (copy == NULL || !reserve(copy, files, count + 1)) {
		addressbook_space_put(files, copy);
		return NULL;
	}
	copy->known = from->known;
	for (size_t i = 0; i < from->count; i++) {
		const struct addressbook_mapping *mapping = &from->mappings[i];

		if (mapping->since_ns > at_ns || mapping->until_ns <= at_ns)
			continue;
		copy->mappings[copy->count] = *mapping;
		copy->mappings[copy->count].until_ns = UINT64_MAX;
		addressbook_file_again(mapping->file);
		copy->count++;
	}
	return copy;
}

const struct addressbook_mapping *addressbook_space_find(const struct addressbook_space *space, uint64_t address,
							 uint64_t at_ns)
{
	for (size_t i = space->count; i-- > 0;) {
		const struct addressbook_mapping *mapping = &space->mappings[i];

		if (address >= mapping->start && address < mapping->end && mapping->since_ns <= at_ns)
			return mapping;
	}
	return NULL;
}
