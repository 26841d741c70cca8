/*
 * mapping_history.c: a hash table of tasks (open addressing, never shrunk), each with its name, and
 * of processes the mappings: an array that is sorted and free of overlaps. After a fork both
 * processes point to one array, which counts them; who changes it copies it first.
 *
 * A task that has ended is only marked: samples of its last moments come with it, and its other
 * threads may still run. When the table is full, those that are marked are thrown out.
 */
#include "lib/proc/mapping_history.h"

#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/map.h"
#include "lib/proc/perf.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAPPING_HISTORY_PATH_MAX 4096 /* of longer ones nothing is kept */

/* Bytes on the heap. */
struct mapping_history_purse {
	size_t used, max;
};

struct mapping_history_file {
	struct mapping_history_file *next;
	uint32_t hash, references;
	struct perf_record_file file;
	size_t path_len;
	char path[];
};

#define MAPPING_HISTORY_FILE_BUCKETS 1024

struct mapping_history_files {
	struct mapping_history_file *buckets[MAPPING_HISTORY_FILE_BUCKETS];
	struct mapping_history_purse memory_budget;
};

struct mapping_history_mapping {
	uint64_t start, end, offset;
	uint64_t since_ns;
	uint64_t until_ns; /* another covers all of it from then on; UINT64_MAX: none does */
	struct mapping_history_file *file;
	uint32_t prot, flags;
};

struct mapping_history_space {
	uint32_t references;
	bool known;                               /* since its beginning: nothing is missing */
	struct mapping_history_mapping *mappings; /* ascending since_ns */
	size_t count, cap;
};

#define MAPPING_HISTORY_COMM_MAX 16 /* TASK_COMM_LEN */
#define MAPPING_HISTORY_BUCKETS 4096

enum mapping_history_begun {
	MAPPING_HISTORY_FOUND, /* it was there */
	MAPPING_HISTORY_FORKED,
	MAPPING_HISTORY_EXECED,
};

struct mapping_history_name {
	uint64_t since_ns;
	uint32_t tid;
	char comm[MAPPING_HISTORY_COMM_MAX];
};

struct mapping_history_life {
	struct mapping_history_life *next;            /* in the bucket; of one pid, the newest first */
	struct mapping_history_life *earlier, *later; /* among those that have ended */
	uint32_t pid, parent;                         /* parent 0: unknown */
	enum mapping_history_begun begun;
	bool ended, exited;
	uint64_t from_ns, to_ns; /* to_ns UINT64_MAX until it ended */
	uint64_t shown_ns;       /* the space is the parent's, as it was then; UINT64_MAX: it is its own */
	struct mapping_history_space *space;
	struct mapping_history_name *names; /* ascending since_ns */
	size_t name_count, name_cap;
};

struct mapping_history {
	struct mapping_history_limits limits;
	struct mapping_history_stats stats;
	struct mapping_history_files files;
	struct mapping_history_life *buckets[MAPPING_HISTORY_BUCKETS];
	struct mapping_history_life *oldest_ended, *newest_ended;
};

#define MAPPING_HISTORY_MAPS_PATH_MAX 4096

/* The path of the line at hand. */
struct mapping_history_maps {
	const char *text;
	size_t len, at;
	char path[MAPPING_HISTORY_MAPS_PATH_MAX];
};

static void *mapping_history_purse_resize(struct mapping_history_purse *memory_budget, void *old, size_t old_bytes,
					  size_t new_bytes);
static void mapping_history_purse_free(struct mapping_history_purse *memory_budget, void *memory, size_t bytes);
static struct mapping_history_file *mapping_history_file_get(struct mapping_history_files *files,
							     const struct perf_record_mmap *mmap);
static struct mapping_history_file *mapping_history_file_again(struct mapping_history_file *file);
static void mapping_history_file_put(struct mapping_history_files *files, struct mapping_history_file *file);
static struct mapping_history_space *mapping_history_space_new(struct mapping_history_files *files);
static void mapping_history_space_put(struct mapping_history_files *files, struct mapping_history_space *space);
static struct mapping_history_space *mapping_history_space_copy(const struct mapping_history_space *from,
								struct mapping_history_files *files, uint64_t at_ns);
static void mapping_history_life_end(struct mapping_history *book, struct mapping_history_life *life, uint64_t to_ns,
				     bool exited);
static void mapping_history_life_make_room(struct mapping_history *book, size_t bytes);
static const struct mapping_history_name *mapping_history_life_name_at(const struct mapping_history_life *life,
								       uint32_t tid, uint64_t time_ns);

/*
 * mapping_history_life.c: lives hang in chains by pid, the newest of a pid first, and, once they
 * have ended, in a list by the time they did, from which the oldest are freed.
 */

static struct mapping_history_life **bucket_of(struct mapping_history *book, uint32_t pid)
{
	return &book->buckets[pid % MAPPING_HISTORY_BUCKETS];
}

/* The life that pid was in at time_ns, or the newest for UINT64_MAX; NULL: none began before. */
static struct mapping_history_life *mapping_history_life_at(const struct mapping_history *book, uint32_t pid,
							    uint64_t time_ns)
{
	struct mapping_history_life *life = book->buckets[pid % MAPPING_HISTORY_BUCKETS];

	while (life != NULL && (life->pid != pid || life->from_ns > time_ns))
		life = life->next;
	return life;
}

/*
 * A new life of pid from from_ns on; one that was not over ends. space is taken over (NULL: a new
 * one, empty), and shown as of shown_ns. NULL: no room, or there is one that began later; space is
 * given back.
 */
static struct mapping_history_life *mapping_history_life_begin(struct mapping_history *book, uint32_t pid,
							       uint64_t from_ns, struct mapping_history_space *space,
							       uint64_t shown_ns)
{
	struct mapping_history_life *before = mapping_history_life_at(book, pid, UINT64_MAX), *life = NULL;

	bool late = before != NULL && before->from_ns > from_ns;

	if (before != NULL && !late)
		mapping_history_life_end(book, before, from_ns, false);
	mapping_history_life_make_room(book, 0);
	if (space == NULL)
		space = mapping_history_space_new(&book->files);
	if (space != NULL && !late && book->stats.lives < book->limits.max_lives)
		life = mapping_history_purse_resize(&book->files.memory_budget, NULL, 0, sizeof(*life));
	if (life == NULL) {
		mapping_history_space_put(&book->files, space);
		book->stats.dropped++;
		return NULL;
	}
	*life = (struct mapping_history_life){ .next = *bucket_of(book, pid),
					       .pid = pid,
					       .from_ns = from_ns,
					       .to_ns = UINT64_MAX,
					       .shown_ns = shown_ns,
					       .space = space };
	*bucket_of(book, pid) = life;
	book->stats.lives++;
	return life;
}

/* Ends it, at to_ns, unless it has. */
static void mapping_history_life_end(struct mapping_history *book, struct mapping_history_life *life, uint64_t to_ns,
				     bool exited)
{
	if (life->ended)
		return;
	life->ended = true;
	life->exited = exited;
	life->to_ns = to_ns;
	life->earlier = book->newest_ended;
	if (book->newest_ended != NULL)
		book->newest_ended->later = life;
	else
		book->oldest_ended = life;
	book->newest_ended = life;
}

static void unlink_ended(struct mapping_history *book, struct mapping_history_life *life)
{
	if (life->earlier != NULL)
		life->earlier->later = life->later;
	else
		book->oldest_ended = life->later;
	if (life->later != NULL)
		life->later->earlier = life->earlier;
	else
		book->newest_ended = life->earlier;
}

/* Forgets and frees it. */
static void mapping_history_life_forget(struct mapping_history *book, struct mapping_history_life *life)
{
	struct mapping_history_life **link = bucket_of(book, life->pid);

	while (*link != life)
		link = &(*link)->next;
	*link = life->next;
	if (life->ended)
		unlink_ended(book, life);
	mapping_history_space_put(&book->files, life->space);
	mapping_history_purse_free(&book->files.memory_budget, life->names, life->name_cap * sizeof(*life->names));
	mapping_history_purse_free(&book->files.memory_budget, life, sizeof(*life));
	book->stats.lives--;
}

/*
 * Frees ended lives, oldest first, until bytes more and one life more can be had, or none is left.
 */
static void mapping_history_life_make_room(struct mapping_history *book, size_t bytes)
{
	const struct mapping_history_purse *memory_budget = &book->files.memory_budget;

	bytes += sizeof(struct mapping_history_life) + sizeof(struct mapping_history_space);
	while (book->oldest_ended != NULL &&
	       (memory_budget->max - memory_budget->used < bytes || book->stats.lives >= book->limits.max_lives)) {
		mapping_history_life_forget(book, book->oldest_ended);
		book->stats.evicted++;
	}
}

/* Makes the space its own, before something is mapped in it. False: no room. */
static bool mapping_history_life_own(struct mapping_history *book, struct mapping_history_life *life)
{
	struct mapping_history_space *copy;

	if (life->shown_ns == UINT64_MAX)
		return true;
	copy = mapping_history_space_copy(life->space, &book->files, life->shown_ns);
	if (copy == NULL)
		return false;
	mapping_history_space_put(&book->files, life->space);
	life->space = copy;
	life->shown_ns = UINT64_MAX;
	return true;
}

/* Of as many as there may be, the oldest eighth goes. */
static void lifetime_thin_out(struct mapping_history *book, struct mapping_history_life *life)
{
	size_t gone = book->limits.max_names / 8 + 1;

	if (life->name_count < book->limits.max_names)
		return;
	memmove(life->names, life->names + gone, (life->name_count - gone) * sizeof(*life->names));
	life->name_count -= gone;
	book->stats.dropped += gone;
}

/* A thread of it is called so from since_ns on. len bytes, cut where the kernel would. */
static void mapping_history_life_name(struct mapping_history *book, struct mapping_history_life *life,
				      const struct mapping_history_name *name)
{
	const struct mapping_history_name *last = mapping_history_life_name_at(life, name->tid, UINT64_MAX);
	size_t cap = life->name_cap == 0 ? 1 : 2 * life->name_cap, at;

	if (last != NULL && memcmp(last->comm, name->comm, sizeof(name->comm)) == 0)
		return;
	lifetime_thin_out(book, life);
	if (life->name_count == life->name_cap) {
		struct mapping_history_name *names = mapping_history_purse_resize(
			&book->files.memory_budget, life->names, life->name_cap * sizeof(*names), cap * sizeof(*names));

		if (names == NULL) {
			book->stats.dropped++;
			return;
		}
		life->names = names;
		life->name_cap = cap;
	}
	for (at = life->name_count; at > 0 && life->names[at - 1].since_ns > name->since_ns; at--)
		life->names[at] = life->names[at - 1];
	life->names[at] = *name;
	life->name_count++;
}

/* The name with len bytes of text, cut and terminated. */
static struct mapping_history_name mapping_history_life_name_of(uint32_t tid, uint64_t since_ns, const char *text,
								size_t len)
{
	struct mapping_history_name name = { .tid = tid, .since_ns = since_ns };

	memcpy(name.comm, text, len < MAPPING_HISTORY_COMM_MAX - 1 ? len : MAPPING_HISTORY_COMM_MAX - 1);
	return name;
}

/* The last name of tid at time_ns; NULL: none is known. */
static const struct mapping_history_name *mapping_history_life_name_at(const struct mapping_history_life *life,
								       uint32_t tid, uint64_t time_ns)
{
	for (size_t i = life->name_count; i-- > 0;)
		if (life->names[i].tid == tid && life->names[i].since_ns <= time_ns)
			return &life->names[i];
	return NULL;
}

/*
 * mapping_history_maps.c: proc_pid_maps(5).
 *
 * 	7f2c9a5b1000-7f2c9a709000 r-xp 00028000 fd:01 1835432
 *  /usr/lib/x86_64-linux-gnu/libc.so.6
 *
 * The kernel writes a newline in a path as \012, and nothing else differently. What is mapped from
 * no file has no path; perf's records call it "//anon".
 */

struct line {
	const char *at, *end;
};

/* A number and the one character after it. */
static bool take_number(struct line *line, unsigned base, char after, uint64_t *ret)
{
	const char *from = line->at;
	uint64_t value = 0;

	for (; line->at < line->end; line->at++) {
		unsigned char c = (unsigned char)*line->at;
		unsigned digit = c >= '0' && c <= '9' ? c - (unsigned)'0' : c >= 'a' && c <= 'f' ? c - 'a' + 10u : 16;

		if (digit >= base)
			break;
		if (value > (UINT64_MAX - digit) / base)
			return false;
		value = value * base + digit;
	}
	*ret = value;
	return line->at > from && line->at < line->end && *line->at++ == after;
}

static bool take_permissions(struct line *line, struct perf_record_mmap *ret)
{
	if (line->end - line->at < 5 || line->at[4] != ' ')
		return false;
	ret->prot = (line->at[0] == 'r' ? PROT_READ : 0u) | (line->at[1] == 'w' ? PROT_WRITE : 0u) |
		    (line->at[2] == 'x' ? PROT_EXEC : 0u);
	ret->flags = line->at[3] == 's' ? MAP_SHARED : MAP_PRIVATE;
	line->at += 5;
	return true;
}

static bool take_path(struct line *line, char path[MAPPING_HISTORY_MAPS_PATH_MAX], size_t *ret_len)
{
	size_t len = 0;

	while (line->at < line->end && *line->at == ' ')
		line->at++;
	while (line->at < line->end && len < MAPPING_HISTORY_MAPS_PATH_MAX) {
		if (line->end - line->at >= 4 && memcmp(line->at, "\\012", 4) == 0) {
			path[len++] = '\n';
			line->at += 4;
		} else {
			path[len++] = *line->at++;
		}
	}
	if (len == MAPPING_HISTORY_MAPS_PATH_MAX || memchr(path, '\0', len) != NULL)
		return false;
	path[len] = '\0';
	*ret_len = len;
	return true;
}

static bool read_line(struct line *line, char path[MAPPING_HISTORY_MAPS_PATH_MAX], struct perf_record_mmap *ret)
{
	uint64_t end, major, minor;

	memset(ret, 0, sizeof(*ret));
	if (!take_number(line, 16, '-', &ret->start) || !take_number(line, 16, ' ', &end) || end <= ret->start ||
	    !take_permissions(line, ret) || !take_number(line, 16, ' ', &ret->offset) ||
	    !take_number(line, 16, ':', &major) || !take_number(line, 16, ' ', &minor) ||
	    !take_number(line, 10, ' ', &ret->file.inode) || !take_path(line, path, &ret->path_len))
		return false;
	ret->len = end - ret->start;
	ret->file.major = (uint32_t)major;
	ret->file.minor = (uint32_t)minor;
	if (ret->path_len == 0) {
		memcpy(path, "//anon", sizeof("//anon"));
		ret->path_len = strlen(path);
	}
	ret->path = path;
	return true;
}

/*
 * The next line that says x. Lines that cannot be read are skipped, those whose path is too long
 * too. False: the end. ret->path is in maps, until the next call.
 */
static bool mapping_history_maps_next(struct mapping_history_maps *maps, struct perf_record_mmap *ret)
{
	while (maps->at < maps->len) {
		const char *from = maps->text + maps->at;
		const char *newline = memchr(from, '\n', maps->len - maps->at);
		struct line line = { from, newline != NULL ? newline : maps->text + maps->len };
		struct perf_record_mmap mmap;

		maps->at = (size_t)(line.end - maps->text) + (newline != NULL);
		if (read_line(&line, maps->path, &mmap) && (mmap.prot & PROT_EXEC)) {
			*ret = mmap;
			return true;
		}
	}
	return false;
}

/*
 * mapping_history_space.c: mappings in the order they came. munmap(2) is not reported, so a mapping
 * holds until others cover it; the newest of those that hold an address is the one. What is covered
 * stays for those who ask about the past, or who were forked before.
 *
 * A program that makes code while it runs maps the same pages again and again (each mprotect(2) is
 * reported): the same range of the same file is the same mapping.
 */

#define MAPPINGS_FIRST 8

/* Empty, with one reference. NULL: no room. */
static struct mapping_history_space *mapping_history_space_new(struct mapping_history_files *files)
{
	struct mapping_history_space *space =
		mapping_history_purse_resize(&files->memory_budget, NULL, 0, sizeof(*space));

	if (space != NULL)
		*space = (struct mapping_history_space){ .references = 1 };
	return space;
}

/* One reference less; the last one frees it. NULL is fine. */
static void mapping_history_space_put(struct mapping_history_files *files, struct mapping_history_space *space)
{
	if (space == NULL || --space->references > 0)
		return;
	for (size_t i = 0; i < space->count; i++)
		mapping_history_file_put(files, space->mappings[i].file);
	mapping_history_purse_free(&files->memory_budget, space->mappings, space->cap * sizeof(*space->mappings));
	mapping_history_purse_free(&files->memory_budget, space, sizeof(*space));
}

static bool reserve(struct mapping_history_space *space, struct mapping_history_files *files, size_t cap)
{
	struct mapping_history_mapping *mappings;

	if (cap <= space->cap)
		return true;
	mappings = mapping_history_purse_resize(&files->memory_budget, space->mappings, space->cap * sizeof(*mappings),
						cap * sizeof(*mappings));
	if (mappings == NULL)
		return false;
	space->mappings = mappings;
	space->cap = cap;
	return true;
}

static bool grow(struct mapping_history_space *space, struct mapping_history_files *files)
{
	if (space->count < space->cap)
		return true;
	return reserve(space, files, space->cap == 0 ? MAPPINGS_FIRST : 2 * space->cap);
}

/* Frees an eighth of max at once, so that it is not done each time. */
static uint64_t thin_out(struct mapping_history_space *space, struct mapping_history_files *files, size_t max)
{
	size_t excess = space->count - (max - max / 8 - 1), kept = 0, covered = 0;
	uint64_t dropped = 0;

	for (size_t i = 0; i < space->count; i++)
		covered += space->mappings[i].until_ns != UINT64_MAX;
	for (size_t i = 0; i < space->count; i++) {
		struct mapping_history_mapping *mapping = &space->mappings[i];
		bool is_covered = mapping->until_ns != UINT64_MAX;

		if (excess > 0 && (is_covered || excess > covered)) {
			excess--;
			covered -= is_covered;
			dropped += !is_covered;
			mapping_history_file_put(files, mapping->file);
			continue;
		}
		covered -= is_covered;
		space->mappings[kept++] = *mapping;
	}
	space->count = kept;
	return dropped;
}

/*
 * What shares addresses with it from now on shows it; what it covers is no more. True: it is there
 * already, and on top.
 */
static bool cover(struct mapping_history_space *space, const struct mapping_history_mapping *by)
{
	for (size_t i = space->count; i-- > 0;) {
		struct mapping_history_mapping *mapping = &space->mappings[i];

		if (mapping->until_ns != UINT64_MAX || mapping->end <= by->start || mapping->start >= by->end)
			continue;
		if (mapping->start == by->start && mapping->end == by->end && mapping->offset == by->offset &&
		    mapping->file == by->file)
			return true;
		break;
	}
	for (size_t i = 0; i < space->count; i++) {
		struct mapping_history_mapping *mapping = &space->mappings[i];

		if (mapping->until_ns == UINT64_MAX && mapping->start >= by->start && mapping->end <= by->end)
			mapping->until_ns = by->since_ns;
	}
	return false;
}

static bool mapping_of(struct mapping_history_files *files, const struct perf_record_mmap *mmap, uint64_t since_ns,
		       struct mapping_history_mapping *ret)
{
	*ret = (struct mapping_history_mapping){ .start = mmap->start,
						 .end = mmap->start + mmap->len,
						 .offset = mmap->offset,
						 .since_ns = since_ns,
						 .until_ns = UINT64_MAX,
						 .file = mapping_history_file_get(files, mmap),
						 .prot = mmap->prot,
						 .flags = mmap->flags };
	return ret->file != NULL;
}

/*
 * Adds a mapping that came about at since_ns. Of more than max the oldest go: those that are
 * covered, or else any; *dropped counts the latter. False: no room.
 */
static bool mapping_history_space_map(struct mapping_history_space *space, struct mapping_history_files *files,
				      const struct perf_record_mmap *mmap, uint64_t since_ns, size_t max,
				      uint64_t *dropped)
{
	struct mapping_history_mapping mapping;

	if (space->count >= max)
		*dropped += thin_out(space, files, max);
	if (!grow(space, files) || !mapping_of(files, mmap, since_ns, &mapping))
		return false;
	if (cover(space, &mapping)) {
		mapping_history_file_put(files, mapping.file);
		return true;
	}
	space->mappings[space->count++] = mapping;
	return true;
}

/*
 * Adds one that was there before all others, unless the same is there. False: no room, or as many
 * as max.
 */
static bool mapping_history_space_seed(struct mapping_history_space *space, struct mapping_history_files *files,
				       const struct perf_record_mmap *mmap, size_t max)
{
	struct mapping_history_mapping mapping;
	size_t first = 0;

	for (size_t i = 0; i < space->count; i++) {
		const struct mapping_history_mapping *there = &space->mappings[i];

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

/* A copy of what from shows at at_ns, with one reference. NULL: no room. */
static struct mapping_history_space *mapping_history_space_copy(const struct mapping_history_space *from,
								struct mapping_history_files *files, uint64_t at_ns)
{
	struct mapping_history_space *copy = mapping_history_space_new(files);
	size_t count = 0;

	for (size_t i = 0; i < from->count; i++)
		count += from->mappings[i].since_ns <= at_ns && from->mappings[i].until_ns > at_ns;
	if (copy == NULL || !reserve(copy, files, count + 1)) {
		mapping_history_space_put(files, copy);
		return NULL;
	}
	copy->known = from->known;
	for (size_t i = 0; i < from->count; i++) {
		const struct mapping_history_mapping *mapping = &from->mappings[i];

		if (mapping->since_ns > at_ns || mapping->until_ns <= at_ns)
			continue;
		copy->mappings[copy->count] = *mapping;
		copy->mappings[copy->count].until_ns = UINT64_MAX;
		mapping_history_file_again(mapping->file);
		copy->count++;
	}
	return copy;
}

/* The newest mapping of address at at_ns; NULL: none. */
static const struct mapping_history_mapping *mapping_history_space_find(const struct mapping_history_space *space,
									uint64_t address, uint64_t at_ns)
{
	for (size_t i = space->count; i-- > 0;) {
		const struct mapping_history_mapping *mapping = &space->mappings[i];

		if (address >= mapping->start && address < mapping->end && mapping->since_ns <= at_ns)
			return mapping;
	}
	return NULL;
}

/*
 * mapping_history_file.c: a table of chains. Processes of one program share all their files, so
 * what a mapping costs is its addresses.
 */

/*
 * Like realloc(3) from old_bytes to new_bytes, paid. NULL: too dear, or no memory; then what was
 * there still is.
 */
static void *mapping_history_purse_resize(struct mapping_history_purse *memory_budget, void *old, size_t old_bytes,
					  size_t new_bytes)
{
	void *memory;

	if (new_bytes > old_bytes && new_bytes - old_bytes > memory_budget->max - memory_budget->used)
		return NULL;
	memory = realloc(old, new_bytes);
	if (memory != NULL)
		memory_budget->used += new_bytes - old_bytes;
	return memory;
}

/* Frees what took this many bytes. NULL is fine. */
static void mapping_history_purse_free(struct mapping_history_purse *memory_budget, void *memory, size_t bytes)
{
	if (memory == NULL)
		return;
	assert(memory_budget->used >= bytes);
	memory_budget->used -= bytes;
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

/* One more reference to this file. NULL: no room, or too long a path. */
static struct mapping_history_file *mapping_history_file_get(struct mapping_history_files *files,
							     const struct perf_record_mmap *mmap)
{
	uint32_t hash =
		hash_bytes(hash_bytes(2166136261u, mmap->path, mmap->path_len), &mmap->file, sizeof(mmap->file));
	struct mapping_history_file **bucket = &files->buckets[hash % MAPPING_HISTORY_FILE_BUCKETS];
	struct mapping_history_file *file;

	for (file = *bucket; file != NULL; file = file->next)
		if (file->hash == hash && file->path_len == mmap->path_len &&
		    memcmp(file->path, mmap->path, mmap->path_len) == 0 &&
		    perf_record_file_same(&file->file, &mmap->file))
			return mapping_history_file_again(file);
	if (mmap->path_len > MAPPING_HISTORY_PATH_MAX)
		return NULL;
	file = mapping_history_purse_resize(&files->memory_budget, NULL, 0, sizeof(*file) + mmap->path_len + 1);
	if (file == NULL)
		return NULL;
	*file = (struct mapping_history_file){
		.next = *bucket, .hash = hash, .references = 1, .file = mmap->file, .path_len = mmap->path_len
	};
	memcpy(file->path, mmap->path, mmap->path_len);
	file->path[mmap->path_len] = '\0';
	*bucket = file;
	return file;
}

/* Another reference to a file at hand. */
static struct mapping_history_file *mapping_history_file_again(struct mapping_history_file *file)
{
	file->references++;
	return file;
}

/* One reference less; the last one frees it. */
static void mapping_history_file_put(struct mapping_history_files *files, struct mapping_history_file *file)
{
	struct mapping_history_file **link = &files->buckets[file->hash % MAPPING_HISTORY_FILE_BUCKETS];

	if (--file->references > 0)
		return;
	while (*link != file)
		link = &(*link)->next;
	*link = file->next;
	mapping_history_purse_free(&files->memory_budget, file, sizeof(*file) + file->path_len + 1);
}

/*
 * mapping_history_write.c: lives as records. A life's mappings and names are each in the order of
 * time: they are merged on the way out. What a life began with carries the time of its beginning.
 */

#define RECORD_MAX 8192 /* a path of 4,096 and what is around it */

static int write_record(const struct perf_record *record, const struct sink *sink)
{
	_Alignas(PERF_RECORD_ALIGN) char buf[RECORD_MAX];
	size_t len;
	int r = perf_record_encode(record, buf, sizeof(buf), &len);

	return r < 0 ? r : sink_write(sink, buf, len);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static int write_name(const struct mapping_history_life *life, const struct mapping_history_name *name, bool exec,
		      const struct sink *sink)
{
	struct perf_record record = { .type = PERF_RECORD_COMM,
				      .pid = life->pid,
				      .tid = name->tid,
				      .time_ns = later(name->since_ns, life->from_ns) };

	record.comm.name = name->comm;
	record.comm.name_len = strlen(name->comm);
	record.comm.exec = exec;
	return write_record(&record, sink);
}

static int write_mapping(const struct mapping_history_life *life, const struct mapping_history_mapping *mapping,
			 const struct sink *sink)
{
	struct perf_record record = { .type = PERF_RECORD_MMAP2,
				      .misc = PERF_RECORD_MISC_USER,
				      .pid = life->pid,
				      .tid = life->pid,
				      .time_ns = later(mapping->since_ns, life->from_ns) };

	record.mmap = (struct perf_record_mmap){ .start = mapping->start,
						 .len = mapping->end - mapping->start,
						 .offset = mapping->offset,
						 .file = mapping->file->file,
						 .prot = mapping->prot,
						 .flags = mapping->flags,
						 .path = mapping->file->path,
						 .path_len = mapping->file->path_len };
	return write_record(&record, sink);
}

static int write_task(const struct mapping_history_life *life, uint32_t type, uint64_t time_ns, const struct sink *sink)
{
	struct perf_record record = { .type = type, .pid = life->pid, .tid = life->pid, .time_ns = time_ns };

	record.fork.ppid = life->parent;
	record.fork.ptid = life->parent;
	return write_record(&record, sink);
}

/* The first record: it says that what was before is gone. */
static int write_beginning(const struct mapping_history_life *life, size_t *name, const struct sink *sink)
{
	struct mapping_history_name nameless = { .tid = life->pid };

	if (life->begun == MAPPING_HISTORY_FORKED)
		return write_task(life, PERF_RECORD_FORK, life->from_ns, sink);
	if (life->begun != MAPPING_HISTORY_EXECED)
		return 0;
	if (life->name_count > 0 && life->names[0].tid == life->pid && life->names[0].since_ns == life->from_ns)
		return write_name(life, &life->names[(*name)++], true, sink);
	return write_name(life, &nameless, true, sink);
}

static bool shown(const struct mapping_history_life *life, const struct mapping_history_mapping *mapping,
		  uint64_t from_ns, uint64_t to_ns)
{
	if (mapping->since_ns > to_ns || mapping->since_ns > life->shown_ns)
		return false;
	return life->shown_ns == UINT64_MAX ? mapping->until_ns > from_ns : mapping->until_ns > life->shown_ns;
}

/* Names before mappings of the same time. */
static bool name_is_next(const struct mapping_history_life *life, size_t name, size_t mapping)
{
	if (name == life->name_count || mapping == life->space->count)
		return name < life->name_count;
	return later(life->names[name].since_ns, life->from_ns) <=
	       later(life->space->mappings[mapping].since_ns, life->from_ns);
}

static int write_life(const struct mapping_history_life *life, uint64_t from_ns, uint64_t to_ns,
		      const struct sink *sink)
{
	const struct mapping_history_space *space = life->space;
	size_t name = 0, mapping = 0;
	int r = write_beginning(life, &name, sink);

	while (r == 0 && (name < life->name_count || mapping < space->count)) {
		if (name_is_next(life, name, mapping)) {
			r = life->names[name].since_ns <= to_ns ? write_name(life, &life->names[name], false, sink) : 0;
			name++;
			continue;
		}
		if (shown(life, &space->mappings[mapping], from_ns, to_ns))
			r = write_mapping(life, &space->mappings[mapping], sink);
		mapping++;
	}
	if (r == 0 && life->exited && life->to_ns <= to_ns)
		r = write_task(life, PERF_RECORD_EXIT, life->to_ns, sink);
	return r;
}

/* From the oldest that reaches into the span to the newest: each is found from the one after it. */
static int write_process(const struct mapping_history *book, uint32_t pid, uint64_t from_ns, uint64_t to_ns,
			 const struct sink *sink)
{
	uint64_t before = to_ns, done = 0;
	const struct mapping_history_life *life = mapping_history_life_at(book, pid, from_ns);
	bool more = true; /* nothing begins after the last moment that there is */
	int r = 0;

	if (life != NULL) {
		r = write_life(life, from_ns, to_ns, sink);
		more = life->from_ns < UINT64_MAX;
		done = life->from_ns + 1;
	}
	while (r == 0 && more) {
		const struct mapping_history_life *next = NULL;

		for (life = mapping_history_life_at(book, pid, before); life != NULL && life->from_ns >= done;
		     life = life->from_ns > 0 ? mapping_history_life_at(book, pid, life->from_ns - 1) : NULL)
			next = life;
		if (next == NULL)
			break;
		r = write_life(next, from_ns, to_ns, sink);
		more = next->from_ns < UINT64_MAX;
		done = next->from_ns + 1;
	}
	return r;
}

int mapping_history_write(const struct mapping_history *book, const uint32_t *pids, size_t count, uint64_t from_ns,
			  uint64_t to_ns, const struct sink *sink)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++)
		r = write_process(book, pids[i], from_ns, to_ns, sink);
	return r;
}

/*
 * mapping_history.c: what each record does to the lives.
 *
 * 	            COMM (exec)                 COMM (exec)
 * 	  (found) ───────────────▶ (execed) ◀─────────────── (forked) ◀── FORK of another process
 * 	     │ EXIT                   │ EXIT                     │ EXIT
 * 	     └────────────────────────┴──────────▶ (ended) ◀─────┘          freed keep_ns later, or when room
 *       is needed
 *
 * A forked life borrows its parent's address space, as it was at that time, and copies it when it
 * maps something itself: most of them call execve(2) at once. An address space is known if it began
 * with an execve(2), or was seeded; one that was found is not, and neither is what was forked from
 * it until it is seeded.
 *
 * A life does not end for those who ask: of a process whose first thread has exited, others may run
 * on.
 */

#define DEFAULT_LIVES 65536
#define DEFAULT_BYTES ((size_t)16 << 20)
#define DEFAULT_MAPPINGS 4096
#define DEFAULT_NAMES 1024
#define DEFAULT_KEEP_NS 120000000000ULL
#define ROOM_BYTES 16384 /* what a record takes: a path, and an array that grows; more is found room for, or not */

int mapping_history_new(const struct mapping_history_limits *limits, struct mapping_history **ret)
{
	struct mapping_history *book = calloc(1, sizeof(*book));

	if (book == NULL)
		return -ENOMEM;
	book->limits = *limits;
	if (book->limits.max_lives == 0)
		book->limits.max_lives = DEFAULT_LIVES;
	if (book->limits.max_bytes == 0)
		book->limits.max_bytes = DEFAULT_BYTES;
	if (book->limits.max_mappings == 0)
		book->limits.max_mappings = DEFAULT_MAPPINGS;
	if (book->limits.max_names == 0)
		book->limits.max_names = DEFAULT_NAMES;
	if (book->limits.keep_ns == 0)
		book->limits.keep_ns = DEFAULT_KEEP_NS;
	book->files.memory_budget.max = book->limits.max_bytes;
	*ret = book;
	return 0;
}

void mapping_history_free(struct mapping_history *book)
{
	if (book == NULL)
		return;
	for (size_t i = 0; i < MAPPING_HISTORY_BUCKETS; i++)
		while (book->buckets[i] != NULL)
			mapping_history_life_forget(book, book->buckets[i]);
	free(book);
}

/* The newest life of pid; one that was found, of old, if there is none. NULL: no room. */
static struct mapping_history_life *lifetime_of(struct mapping_history *book, uint32_t pid)
{
	struct mapping_history_life *life = mapping_history_life_at(book, pid, UINT64_MAX);

	return life != NULL ? life : mapping_history_life_begin(book, pid, 0, NULL, UINT64_MAX);
}

/* What a child is called at first: what the thread is that made it. */
static struct mapping_history_name name_of_child(const struct mapping_history_life *parent,
						 const struct perf_record *record)
{
	const struct mapping_history_name *name =
		mapping_history_life_name_at(parent, record->fork.ptid, record->time_ns);

	if (name == NULL)
		name = mapping_history_life_name_at(parent, parent->pid, record->time_ns);
	return mapping_history_life_name_of(record->pid, record->time_ns, name != NULL ? name->comm : "",
					    name != NULL ? strlen(name->comm) : 0);
}

static void feed_fork(struct mapping_history *book, const struct perf_record *record)
{
	struct mapping_history_life *parent, *life;
	struct mapping_history_name name;

	if (record->pid == record->fork.ppid)
		return;
	parent = lifetime_of(book, record->fork.ppid);
	if (parent == NULL)
		return;
	name = name_of_child(parent, record);
	parent->space->references++;
	life = mapping_history_life_begin(book, record->pid, record->time_ns, parent->space,
					  parent->shown_ns < record->time_ns ? parent->shown_ns : record->time_ns);
	if (life == NULL)
		return;
	life->begun = MAPPING_HISTORY_FORKED;
	life->parent = record->fork.ppid;
	if (name.comm[0] != '\0')
		mapping_history_life_name(book, life, &name);
}

static void feed_comm(struct mapping_history *book, const struct perf_record *record)
{
	struct mapping_history_name name =
		mapping_history_life_name_of(record->tid, record->time_ns, record->comm.name, record->comm.name_len);
	struct mapping_history_life *life;

	if (record->comm.exec) {
		uint32_t parent;

		life = mapping_history_life_at(book, record->pid, UINT64_MAX);
		parent = life != NULL ? life->parent : 0;
		life = mapping_history_life_begin(book, record->pid, record->time_ns, NULL, UINT64_MAX);
		if (life == NULL)
			return;
		life->begun = MAPPING_HISTORY_EXECED;
		life->parent = parent;
		life->space->known = true;
		name.tid = record->pid;
	} else {
		life = lifetime_of(book, record->pid);
	}
	if (life != NULL)
		mapping_history_life_name(book, life, &name);
}

static void feed_mmap(struct mapping_history *book, const struct perf_record *record)
{
	struct mapping_history_life *life = lifetime_of(book, record->pid);

	if (life == NULL)
		return;
	if (!mapping_history_life_own(book, life) ||
	    !mapping_history_space_map(life->space, &book->files, &record->mmap, record->time_ns,
				       book->limits.max_mappings, &book->stats.dropped))
		book->stats.dropped++;
}

void mapping_history_feed(struct mapping_history *book, const struct perf_record *record)
{
	struct mapping_history_life *life;

	mapping_history_life_make_room(book, ROOM_BYTES);
	switch (record->type) {
	case PERF_RECORD_FORK:
		feed_fork(book, record);
		break;
	case PERF_RECORD_COMM:
		feed_comm(book, record);
		break;
	case PERF_RECORD_MMAP2:
		feed_mmap(book, record);
		break;
	case PERF_RECORD_EXIT:
		life = mapping_history_life_at(book, record->pid, record->time_ns);
		if (life != NULL && record->pid == record->tid)
			mapping_history_life_end(book, life, record->time_ns, true);
		break;
	default:
		break;
	}
}

bool mapping_history_knows(const struct mapping_history *book, uint32_t pid, uint64_t time_ns, uint32_t *ret_parent)
{
	const struct mapping_history_life *life = mapping_history_life_at(book, pid, time_ns);

	*ret_parent = life != NULL && life->shown_ns != UINT64_MAX ? life->parent : 0;
	return life != NULL && life->space->known;
}

/*
 * The life that a look at the process at now_ns tells of; NULL: none, or nothing that is not known.
 */
static struct mapping_history_life *lifetime_to_seed(struct mapping_history *book, uint32_t pid, uint64_t now_ns)
{
	struct mapping_history_life *life = lifetime_of(book, pid);

	if (life == NULL || life->space->known || life->exited || life->from_ns > now_ns)
		return NULL;
	return mapping_history_life_own(book, life) ? life : NULL;
}

void mapping_history_seed(struct mapping_history *book, uint32_t pid, const char *comm, const char *maps, size_t len,
			  uint64_t now_ns)
{
	struct mapping_history_maps lines = { .text = maps, .len = len };
	struct mapping_history_life *life = lifetime_to_seed(book, pid, now_ns);
	struct perf_record_mmap mmap;

	if (life == NULL)
		return;
	life->space->known = true;
	while (mapping_history_maps_next(&lines, &mmap))
		if (!mapping_history_space_seed(life->space, &book->files, &mmap, book->limits.max_mappings))
			book->stats.dropped++;
	if (comm != NULL)
		mapping_history_seed_thread(book, pid, pid, comm);
}

void mapping_history_seed_thread(struct mapping_history *book, uint32_t pid, uint32_t tid, const char *comm)
{
	struct mapping_history_life *life = lifetime_of(book, pid);
	struct mapping_history_name name;

	if (life == NULL || mapping_history_life_name_at(life, tid, UINT64_MAX) != NULL)
		return;
	name = mapping_history_life_name_of(tid, life->from_ns, comm, strlen(comm));
	mapping_history_life_name(book, life, &name);
}

bool mapping_history_knows_thread(const struct mapping_history *book, uint32_t pid, uint32_t tid, uint64_t time_ns)
{
	const struct mapping_history_life *life = mapping_history_life_at(book, pid, time_ns);

	return life != NULL && mapping_history_life_name_at(life, tid, time_ns) != NULL;
}

uint64_t mapping_history_began(const struct mapping_history *book, uint32_t pid, uint64_t time_ns)
{
	const struct mapping_history_life *life = mapping_history_life_at(book, pid, time_ns);

	return life != NULL ? life->from_ns : 0;
}

bool mapping_history_find(const struct mapping_history *book, uint32_t pid, uint64_t time_ns, uint64_t address,
			  struct mapping_history_place *ret)
{
	const struct mapping_history_life *life = mapping_history_life_at(book, pid, time_ns);
	const struct mapping_history_mapping *mapping;

	if (life == NULL)
		return false;
	mapping = mapping_history_space_find(life->space, address, time_ns < life->shown_ns ? time_ns : life->shown_ns);
	if (mapping == NULL)
		return false;
	*ret = (struct mapping_history_place){
		.start = mapping->start,
		.end = mapping->end,
		.offset = mapping->offset,
		.file = mapping->file->file,
		.path = mapping->file->path,
		.running = !life->ended,
	};
	return true;
}

void mapping_history_expire(struct mapping_history *book, uint64_t now_ns)
{
	while (book->oldest_ended != NULL && book->oldest_ended->to_ns < now_ns &&
	       now_ns - book->oldest_ended->to_ns > book->limits.keep_ns)
		mapping_history_life_forget(book, book->oldest_ended);
}

void mapping_history_stats(const struct mapping_history *book, struct mapping_history_stats *ret)
{
	*ret = book->stats;
	ret->bytes = book->files.memory_budget.used;
	ret->mappings = 0;
	for (size_t i = 0; i < MAPPING_HISTORY_BUCKETS; i++)
		for (const struct mapping_history_life *life = book->buckets[i]; life != NULL; life = life->next)
			ret->mappings += life->shown_ns == UINT64_MAX ? life->space->count : 0;
}
