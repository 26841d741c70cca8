/*
 * mapping_history.c: what each perf record does to the lifetimes of processes, and what is asked of
 * them later.
 *
 *               COMM (exec)                 COMM (exec)
 *     (found) ───────────────▶ (execed) ◀─────────────── (forked) ◀── FORK of another process
 *        │ EXIT                   │ EXIT                     │ EXIT
 *        └────────────────────────┴──────────▶ (ended) ◀────┘  freed when expired, or to make room
 *
 * Lifetimes: the map holds the newest lifetime of each pid, the older ones hang behind it. Those
 * that have ended are also in a list by the time of their end, from which the oldest are freed. An
 * ended lifetime is still found: when the first thread of a process has exited, others may run on.
 *
 * Address spaces: a forked process refers to the space of its parent, as it was at that time, and
 * copies it when it maps something itself; most call execve(2) at once. A space is known if it
 * began with an execve(2) or was seeded from /proc; one that was found is not, and neither is what
 * was forked from it until it is seeded.
 *
 * Mappings are kept in the order in which they came. munmap(2) is not reported, so a mapping holds
 * until others cover it, and of those that contain an address the newest counts. Covered ones stay
 * for questions about the past and for processes that were forked before. A program that generates
 * code maps the same pages again and again (each mprotect(2) is reported): the same range of the
 * same file is the same mapping. Files are shared by all mappings, so a mapping costs only its
 * addresses.
 *
 * All memory is accounted for in one budget, as the heap rounds it up. Most lifetimes are those of
 * children that end soon: one takes 144 bytes, with its name. They have blocks of their own, which
 * go back when all in them have ended: among other pieces of the heap, those that came and went
 * while thousands of children did would leave holes, more of them with each day.
 */
#include "lib/proc/mapping_history.h"

#include "lib/base/map.h"
#include "lib/base/text.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define DEFAULT_LIFETIMES 65536
#define DEFAULT_BYTES ((size_t)16 << 20)
#define DEFAULT_MAPPINGS 4096
#define DEFAULT_NAMES 1024

/* The hash tables do not grow: they are part of the fixed size. */
#define FILE_BUCKETS 1024
#define LIFETIME_BUCKETS 4096

#define PATH_MAX_BYTES 4096 /* mappings of longer paths are dropped */
#define COMM_MAX 16         /* TASK_COMM_LEN */
#define MAPPINGS_FIRST 8
#define BLOCK_BYTES (65536 - 2 * sizeof(size_t)) /* with what malloc(3) adds whole pages, which it maps and unmaps */
#define RECORD_MAX 8192                          /* a path of PATH_MAX_BYTES and what is around it */
#define ROOM_BYTES 16384                         /* made before each record: a path, and an array that grows */

/* Bytes on the heap. */
struct budget {
	size_t used, max;
};

struct file {
	struct map_node node;
	uint32_t references;
	struct perf_record_file file;
	size_t path_len;
	char path[];
};

struct files {
	struct map map;
	struct budget budget;
};

struct mapping {
	uint64_t start, end, offset;
	uint64_t since_ns;
	uint64_t until_ns; /* another covers all of it from then on; UINT64_MAX: none does */
	struct file *file;
	uint32_t prot, flags;
};

struct space {
	uint32_t references;
	bool known;               /* since its beginning: nothing is missing */
	struct mapping *mappings; /* ascending since_ns */
	size_t count, cap;
};

enum beginning { FOUND, FORKED, EXECED };

struct name {
	uint64_t since_ns;
	uint32_t tid;
	char comm[COMM_MAX];
};

/* What a process was between two of fork(2), execve(2) and exit. */
struct lifetime {
	struct map_node node;             /* if it is the newest of its pid */
	struct block *block;              /* that it lies in */
	struct lifetime *before;          /* the one of the same pid before it; if it is unused, another of the block */
	struct lifetime *earlier, *later; /* among those that have ended */
	uint32_t pid, parent;             /* parent 0: unknown */
	enum beginning beginning;
	bool ended, exited;
	uint64_t from_ns, to_ns; /* to_ns UINT64_MAX until it has ended */
	uint64_t shared_ns;      /* the space is the parent's as of then; UINT64_MAX: it is its own */
	struct space *space;
	struct name *names; /* ascending since_ns; &first until there are more */
	uint32_t name_count, name_cap;
	struct name first;
};

struct block {
	struct block *previous, *next; /* among those with room */
	struct lifetime *unused;
	size_t used;
	struct lifetime lifetimes[];
};

struct mapping_history {
	struct mapping_history_limits limits;
	struct mapping_history_stats stats;
	struct files files;
	struct map lifetimes;
	struct lifetime *oldest_ended, *newest_ended;
	struct block *with_room; /* the first is filled first, so that the others may empty */
	size_t block_bytes;
};

/* ---- memory ---- */

/* What malloc(3) of glibc takes for them: a word before, multiples of two words, four at least. */
static size_t heap_bytes(size_t bytes)
{
	size_t whole = (bytes + sizeof(size_t) + 15) & ~(size_t)15;

	return bytes == 0 ? 0 : whole < 32 ? 32 : whole;
}

/* realloc(3) from old_bytes to new_bytes within the budget. NULL: no room; old is untouched. */
static void *budget_realloc(struct budget *budget, void *old, size_t old_bytes, size_t new_bytes)
{
	size_t was = heap_bytes(old_bytes), is = heap_bytes(new_bytes);
	void *memory;

	if (is > was && is - was > budget->max - budget->used)
		return NULL;
	memory = realloc(old, new_bytes);
	if (memory != NULL)
		budget->used += is - was;
	return memory;
}

static void budget_free(struct budget *budget, void *memory, size_t bytes)
{
	if (memory == NULL)
		return;
	assert(budget->used >= heap_bytes(bytes));
	budget->used -= heap_bytes(bytes);
	free(memory);
}

/* ---- files ---- */

static uint64_t file_hash(const struct perf_record_mmap *mmap)
{
	return map_hash(mmap->path, mmap->path_len) ^ map_hash(&mmap->file, sizeof(mmap->file));
}

/* One more reference to the file of a mapping. NULL: no room, or too long a path. */
static struct file *file_ref(struct files *files, const struct perf_record_mmap *mmap)
{
	uint64_t hash = file_hash(mmap);
	struct file *file;

	for (struct map_node *node = map_first(&files->map, hash); node != NULL; node = map_next(node)) {
		file = MAP_ENTRY(node, struct file, node);
		if (file->path_len == mmap->path_len && memcmp(file->path, mmap->path, mmap->path_len) == 0 &&
		    perf_record_file_same(&file->file, &mmap->file)) {
			file->references++;
			return file;
		}
	}
	if (mmap->path_len > PATH_MAX_BYTES)
		return NULL;
	file = budget_realloc(&files->budget, NULL, 0, sizeof(*file) + mmap->path_len + 1);
	if (file == NULL)
		return NULL;
	*file = (struct file){ .references = 1, .file = mmap->file, .path_len = mmap->path_len };
	memcpy(file->path, mmap->path, mmap->path_len);
	file->path[mmap->path_len] = '\0';
	map_insert(&files->map, &file->node, hash);
	return file;
}

static void file_unref(struct files *files, struct file *file)
{
	if (--file->references > 0)
		return;
	map_remove(&files->map, &file->node);
	budget_free(&files->budget, file, sizeof(*file) + file->path_len + 1);
}

/* ---- address spaces ---- */

/* Empty, with one reference. NULL: no room. */
static struct space *space_new(struct files *files)
{
	struct space *space = budget_realloc(&files->budget, NULL, 0, sizeof(*space));

	if (space != NULL)
		*space = (struct space){ .references = 1 };
	return space;
}

/* NULL is fine. */
static void space_unref(struct files *files, struct space *space)
{
	if (space == NULL || --space->references > 0)
		return;
	for (size_t i = 0; i < space->count; i++)
		file_unref(files, space->mappings[i].file);
	budget_free(&files->budget, space->mappings, space->cap * sizeof(*space->mappings));
	budget_free(&files->budget, space, sizeof(*space));
}

static bool space_reserve(struct space *space, struct files *files, size_t cap)
{
	struct mapping *mappings;

	if (cap <= space->cap)
		return true;
	mappings = budget_realloc(&files->budget, space->mappings, space->cap * sizeof(*mappings),
				  cap * sizeof(*mappings));
	if (mappings == NULL)
		return false;
	space->mappings = mappings;
	space->cap = cap;
	return true;
}

/* Makes room for one more mapping. */
static bool space_grow(struct space *space, struct files *files)
{
	if (space->count < space->cap)
		return true;
	return space_reserve(space, files, space->cap == 0 ? MAPPINGS_FIRST : 2 * space->cap);
}

/* Frees an eighth of max: covered mappings, else the oldest. Returns how many of the latter. */
static uint64_t space_evict(struct space *space, struct files *files, size_t max)
{
	size_t excess = space->count - (max - max / 8 - 1), kept = 0, covered = 0;
	uint64_t dropped = 0;

	for (size_t i = 0; i < space->count; i++)
		covered += space->mappings[i].until_ns != UINT64_MAX;
	for (size_t i = 0; i < space->count; i++) {
		struct mapping *mapping = &space->mappings[i];
		bool is_covered = mapping->until_ns != UINT64_MAX;

		if (excess > 0 && (is_covered || excess > covered)) {
			excess--;
			covered -= is_covered;
			dropped += !is_covered;
			file_unref(files, mapping->file);
			continue;
		}
		covered -= is_covered;
		space->mappings[kept++] = *mapping;
	}
	space->count = kept;
	return dropped;
}

/* Marks what `by` covers. True: the same mapping is there, and is the newest at its addresses. */
static bool space_cover(struct space *space, const struct mapping *by)
{
	for (size_t i = space->count; i-- > 0;) {
		struct mapping *mapping = &space->mappings[i];

		if (mapping->until_ns != UINT64_MAX || mapping->end <= by->start || mapping->start >= by->end)
			continue;
		if (mapping->start == by->start && mapping->end == by->end && mapping->offset == by->offset &&
		    mapping->file == by->file)
			return true;
		break;
	}
	for (size_t i = 0; i < space->count; i++) {
		struct mapping *mapping = &space->mappings[i];

		if (mapping->until_ns == UINT64_MAX && mapping->start >= by->start && mapping->end <= by->end)
			mapping->until_ns = by->since_ns;
	}
	return false;
}

static bool mapping_of(struct files *files, const struct perf_record_mmap *mmap, uint64_t since_ns, struct mapping *ret)
{
	*ret = (struct mapping){ .start = mmap->start,
				 .end = mmap->start + mmap->len,
				 .offset = mmap->offset,
				 .since_ns = since_ns,
				 .until_ns = UINT64_MAX,
				 .file = file_ref(files, mmap),
				 .prot = mmap->prot,
				 .flags = mmap->flags };
	return ret->file != NULL;
}

/* Adds a mapping. *dropped counts uncovered ones that were freed to make room. False: no room. */
static bool space_map(struct space *space, struct files *files, const struct perf_record_mmap *mmap, uint64_t since_ns,
		      size_t max, uint64_t *dropped)
{
	struct mapping mapping;

	if (space->count >= max)
		*dropped += space_evict(space, files, max);
	if (!space_grow(space, files) || !mapping_of(files, mmap, since_ns, &mapping))
		return false;
	if (space_cover(space, &mapping)) {
		file_unref(files, mapping.file);
		return true;
	}
	space->mappings[space->count++] = mapping;
	return true;
}

/* Adds one that was there before all others, unless the same is there. False: no room. */
static bool space_seed(struct space *space, struct files *files, const struct perf_record_mmap *mmap, size_t max)
{
	struct mapping mapping;
	size_t first = 0;

	for (size_t i = 0; i < space->count; i++) {
		const struct mapping *there = &space->mappings[i];

		if (there->start == mmap->start && there->end == mmap->start + mmap->len &&
		    there->offset == mmap->offset && there->until_ns == UINT64_MAX)
			return true;
		first += there->since_ns == 0;
	}
	if (space->count >= max || !space_grow(space, files) || !mapping_of(files, mmap, 0, &mapping))
		return false;
	memmove(space->mappings + first + 1, space->mappings + first, (space->count - first) * sizeof(mapping));
	space->mappings[first] = mapping;
	space->count++;
	return true;
}

/* A copy of what was mapped at at_ns, with one reference. NULL: no room. */
static struct space *space_copy(const struct space *from, struct files *files, uint64_t at_ns)
{
	struct space *copy = space_new(files);
	size_t count = 0;

	for (size_t i = 0; i < from->count; i++)
		count += from->mappings[i].since_ns <= at_ns && from->mappings[i].until_ns > at_ns;
	if (copy == NULL || !space_reserve(copy, files, count + 1)) {
		space_unref(files, copy);
		return NULL;
	}
	copy->known = from->known;
	for (size_t i = 0; i < from->count; i++) {
		const struct mapping *mapping = &from->mappings[i];

		if (mapping->since_ns > at_ns || mapping->until_ns <= at_ns)
			continue;
		copy->mappings[copy->count] = *mapping;
		copy->mappings[copy->count++].until_ns = UINT64_MAX;
		mapping->file->references++;
	}
	return copy;
}

/* The newest mapping of address at at_ns; NULL: none. */
static const struct mapping *space_find(const struct space *space, uint64_t address, uint64_t at_ns)
{
	for (size_t i = space->count; i-- > 0;) {
		const struct mapping *mapping = &space->mappings[i];

		if (address >= mapping->start && address < mapping->end && mapping->since_ns <= at_ns)
			return mapping;
	}
	return NULL;
}

/* ---- names of threads ---- */

/* The name with len bytes of text, cut as the kernel does. */
static struct name name_of(uint32_t tid, uint64_t since_ns, const char *text, size_t len)
{
	struct name name = { .tid = tid, .since_ns = since_ns };

	memcpy(name.comm, text, len < COMM_MAX - 1 ? len : COMM_MAX - 1);
	return name;
}

/* The last name of tid at time_ns; NULL: none is known. */
static const struct name *lifetime_name_at(const struct lifetime *lifetime, uint32_t tid, uint64_t time_ns)
{
	for (size_t i = lifetime->name_count; i-- > 0;)
		if (lifetime->names[i].tid == tid && lifetime->names[i].since_ns <= time_ns)
			return &lifetime->names[i];
	return NULL;
}

/* Drops the oldest eighth of the names if there are as many as there may be. */
static void lifetime_evict_names(struct mapping_history *history, struct lifetime *lifetime)
{
	uint32_t gone = (uint32_t)(history->limits.max_names / 8 + 1);

	if (lifetime->name_count < history->limits.max_names)
		return;
	memmove(lifetime->names, lifetime->names + gone, (lifetime->name_count - gone) * sizeof(*lifetime->names));
	lifetime->name_count -= gone;
	history->stats.dropped += gone;
}

static void lifetime_free_names(struct mapping_history *history, struct lifetime *lifetime)
{
	if (lifetime->names != &lifetime->first)
		budget_free(&history->files.budget, lifetime->names, lifetime->name_cap * sizeof(struct name));
}

/* Makes room for twice as many. False: there is none. */
static bool lifetime_grow_names(struct mapping_history *history, struct lifetime *lifetime)
{
	size_t cap = 2 * (size_t)lifetime->name_cap;
	struct name *names = budget_realloc(&history->files.budget, NULL, 0, cap * sizeof(*names));

	if (names == NULL)
		return false;
	memcpy(names, lifetime->names, lifetime->name_count * sizeof(*names));
	lifetime_free_names(history, lifetime);
	lifetime->names = names;
	lifetime->name_cap = (uint32_t)cap;
	return true;
}

static void lifetime_add_name(struct mapping_history *history, struct lifetime *lifetime, const struct name *name)
{
	const struct name *last = lifetime_name_at(lifetime, name->tid, UINT64_MAX);
	size_t at;

	if (last != NULL && memcmp(last->comm, name->comm, sizeof(name->comm)) == 0)
		return;
	lifetime_evict_names(history, lifetime);
	if (lifetime->name_count == lifetime->name_cap && !lifetime_grow_names(history, lifetime)) {
		history->stats.dropped++;
		return;
	}
	for (at = lifetime->name_count; at > 0 && lifetime->names[at - 1].since_ns > name->since_ns; at--)
		lifetime->names[at] = lifetime->names[at - 1];
	lifetime->names[at] = *name;
	lifetime->name_count++;
}

/* ---- blocks of lifetimes ---- */

static void block_unlink(struct mapping_history *history, struct block *block)
{
	if (block->previous != NULL)
		block->previous->next = block->next;
	else
		history->with_room = block->next;
	if (block->next != NULL)
		block->next->previous = block->previous;
}

/* Behind the first one. */
static void block_link(struct mapping_history *history, struct block *block)
{
	block->previous = history->with_room;
	block->next = block->previous != NULL ? block->previous->next : NULL;
	if (block->next != NULL)
		block->next->previous = block;
	if (block->previous != NULL)
		block->previous->next = block;
	else
		history->with_room = block;
}

/* False: no room. */
static bool block_add(struct mapping_history *history)
{
	struct block *block = budget_realloc(&history->files.budget, NULL, 0, history->block_bytes);
	size_t count = (history->block_bytes - sizeof(*block)) / sizeof(*block->lifetimes);

	if (block == NULL)
		return false;
	*block = (struct block){ 0 };
	while (count-- > 0) {
		block->lifetimes[count] = (struct lifetime){ .block = block, .before = block->unused };
		block->unused = &block->lifetimes[count];
	}
	block_link(history, block);
	return true;
}

/* All but its block is for the caller to set. NULL: no room. */
static struct lifetime *lifetime_alloc(struct mapping_history *history)
{
	struct lifetime *lifetime;
	struct block *block;

	if (history->with_room == NULL && !block_add(history))
		return NULL;
	block = history->with_room;
	lifetime = block->unused;
	block->unused = lifetime->before;
	block->used++;
	if (block->unused == NULL)
		block_unlink(history, block);
	return lifetime;
}

static void lifetime_free(struct mapping_history *history, struct lifetime *lifetime)
{
	struct block *block = lifetime->block;
	bool was_full = block->unused == NULL;

	lifetime->before = block->unused;
	block->unused = lifetime;
	block->used--;
	if (was_full)
		block_link(history, block);
	if (block->used == 0) {
		block_unlink(history, block);
		budget_free(&history->files.budget, block, history->block_bytes);
	}
}

/* ---- lifetimes ---- */

static uint64_t pid_hash(uint32_t pid)
{
	return map_hash(&pid, sizeof(pid));
}

static struct lifetime *lifetime_newest(const struct mapping_history *history, uint32_t pid)
{
	for (struct map_node *node = map_first(&history->lifetimes, pid_hash(pid)); node != NULL; node = map_next(node))
		if (MAP_ENTRY(node, struct lifetime, node)->pid == pid)
			return MAP_ENTRY(node, struct lifetime, node);
	return NULL;
}

/* The lifetime of pid at time_ns; NULL: none began before. */
static struct lifetime *lifetime_at(const struct mapping_history *history, uint32_t pid, uint64_t time_ns)
{
	struct lifetime *lifetime = lifetime_newest(history, pid);

	while (lifetime != NULL && lifetime->from_ns > time_ns)
		lifetime = lifetime->before;
	return lifetime;
}

static void lifetime_end(struct mapping_history *history, struct lifetime *lifetime, uint64_t to_ns, bool exited)
{
	if (lifetime->ended)
		return;
	lifetime->ended = true;
	lifetime->exited = exited;
	lifetime->to_ns = to_ns;
	lifetime->earlier = history->newest_ended;
	if (history->newest_ended != NULL)
		history->newest_ended->later = lifetime;
	else
		history->oldest_ended = lifetime;
	history->newest_ended = lifetime;
}

static void unlink_ended(struct mapping_history *history, struct lifetime *lifetime)
{
	if (lifetime->earlier != NULL)
		lifetime->earlier->later = lifetime->later;
	else
		history->oldest_ended = lifetime->later;
	if (lifetime->later != NULL)
		lifetime->later->earlier = lifetime->earlier;
	else
		history->newest_ended = lifetime->earlier;
}

static void unlink_of_pid(struct mapping_history *history, struct lifetime *lifetime)
{
	struct lifetime *newer = lifetime_newest(history, lifetime->pid);

	if (newer == lifetime) {
		map_remove(&history->lifetimes, &lifetime->node);
		if (lifetime->before != NULL)
			map_insert(&history->lifetimes, &lifetime->before->node, pid_hash(lifetime->pid));
		return;
	}
	while (newer->before != lifetime)
		newer = newer->before;
	newer->before = lifetime->before;
}

static void lifetime_forget(struct mapping_history *history, struct lifetime *lifetime)
{
	unlink_of_pid(history, lifetime);
	if (lifetime->ended)
		unlink_ended(history, lifetime);
	space_unref(&history->files, lifetime->space);
	lifetime_free_names(history, lifetime);
	lifetime_free(history, lifetime);
	history->stats.lifetimes--;
}

/* For one more lifetime, and for bytes beside it. */
static bool has_room(const struct mapping_history *history, size_t bytes)
{
	const struct budget *budget = &history->files.budget;

	bytes += heap_bytes(sizeof(struct space));
	if (history->with_room == NULL)
		bytes += heap_bytes(history->block_bytes);
	return budget->max - budget->used >= bytes && history->stats.lifetimes < history->limits.max_lifetimes;
}

/* Frees ended lifetimes, oldest first, until there is. */
static void make_room(struct mapping_history *history, size_t bytes)
{
	while (history->oldest_ended != NULL && !has_room(history, bytes)) {
		lifetime_forget(history, history->oldest_ended);
		history->stats.evicted++;
	}
}

/*
 * A new lifetime of pid from from_ns on, which ends the one before. space is taken over (NULL: a
 * new one, empty) and counts as of shared_ns. NULL: no room, or there is one that began later.
 */
static struct lifetime *lifetime_begin(struct mapping_history *history, uint32_t pid, uint64_t from_ns,
				       struct space *space, uint64_t shared_ns)
{
	struct lifetime *before = lifetime_newest(history, pid), *lifetime = NULL;
	bool late = before != NULL && before->from_ns > from_ns;

	if (before != NULL && !late)
		lifetime_end(history, before, from_ns, false);
	make_room(history, 0);
	if (space == NULL)
		space = space_new(&history->files);
	if (space != NULL && !late && history->stats.lifetimes < history->limits.max_lifetimes)
		lifetime = lifetime_alloc(history);
	if (lifetime == NULL) {
		space_unref(&history->files, space);
		history->stats.dropped++;
		return NULL;
	}
	before = lifetime_newest(history, pid); /* it may have gone to make room */
	*lifetime = (struct lifetime){ .block = lifetime->block,
				       .before = before,
				       .pid = pid,
				       .from_ns = from_ns,
				       .to_ns = UINT64_MAX,
				       .shared_ns = shared_ns,
				       .space = space,
				       .names = &lifetime->first,
				       .name_cap = 1 };
	if (before != NULL)
		map_remove(&history->lifetimes, &before->node);
	map_insert(&history->lifetimes, &lifetime->node, pid_hash(pid));
	history->stats.lifetimes++;
	return lifetime;
}

/* The newest lifetime of pid; if there is none, one that was found running. NULL: no room. */
static struct lifetime *lifetime_of(struct mapping_history *history, uint32_t pid)
{
	struct lifetime *lifetime = lifetime_newest(history, pid);

	return lifetime != NULL ? lifetime : lifetime_begin(history, pid, 0, NULL, UINT64_MAX);
}

/* Gives it a space of its own, before something is mapped. False: no room. */
static bool lifetime_unshare(struct mapping_history *history, struct lifetime *lifetime)
{
	struct space *copy;

	if (lifetime->shared_ns == UINT64_MAX)
		return true;
	copy = space_copy(lifetime->space, &history->files, lifetime->shared_ns);
	if (copy == NULL)
		return false;
	space_unref(&history->files, lifetime->space);
	lifetime->space = copy;
	lifetime->shared_ns = UINT64_MAX;
	return true;
}

/* ---- /proc/<pid>/maps, proc_pid_maps(5) ----
 *
 *   7f2c9a5b1000-7f2c9a709000 r-xp 00028000 fd:01 1835432  /usr/lib/x86_64-linux-gnu/libc.so.6
 *
 * The kernel writes a newline in a path as \012, and escapes nothing else. An anonymous mapping has
 * no path here; perf's records call it "//anon".
 */

struct maps {
	const char *text;
	size_t len, at;
	char path[PATH_MAX_BYTES]; /* of the current line */
};

struct line {
	const char *at, *end;
};

/* Moves behind a number, which ended at number_end, and the one character after it. */
static bool step_behind(struct line *line, const char *number_end, char after)
{
	if (number_end == NULL || number_end == line->end || *number_end != after)
		return false;
	line->at = number_end + 1;
	return true;
}

static bool take_hex(struct line *line, char after, uint64_t *ret)
{
	return step_behind(line, text_parse_hex(line->at, line->end, ret), after);
}

static bool take_decimal(struct line *line, char after, uint64_t *ret)
{
	return step_behind(line, text_parse_u64(line->at, line->end, ret), after);
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

static bool take_path(struct line *line, char path[PATH_MAX_BYTES], size_t *ret_len)
{
	size_t len = 0;

	while (line->at < line->end && *line->at == ' ')
		line->at++;
	while (line->at < line->end && len < PATH_MAX_BYTES) {
		if (line->end - line->at >= 4 && memcmp(line->at, "\\012", 4) == 0) {
			path[len++] = '\n';
			line->at += 4;
		} else {
			path[len++] = *line->at++;
		}
	}
	if (len == PATH_MAX_BYTES || memchr(path, '\0', len) != NULL)
		return false;
	path[len] = '\0';
	*ret_len = len;
	return true;
}

static bool parse_maps_line(struct line *line, char path[PATH_MAX_BYTES], struct perf_record_mmap *ret)
{
	uint64_t end, major, minor;

	memset(ret, 0, sizeof(*ret));
	if (!take_hex(line, '-', &ret->start) || !take_hex(line, ' ', &end) || end <= ret->start ||
	    !take_permissions(line, ret) || !take_hex(line, ' ', &ret->offset) || !take_hex(line, ':', &major) ||
	    !take_hex(line, ' ', &minor) || !take_decimal(line, ' ', &ret->file.inode) ||
	    !take_path(line, path, &ret->path_len))
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
 * The next executable mapping; lines that cannot be parsed, or whose path is too long, are skipped.
 * False: the end. ret->path is in maps, until the next call.
 */
static bool maps_next(struct maps *maps, struct perf_record_mmap *ret)
{
	while (maps->at < maps->len) {
		const char *from = maps->text + maps->at;
		const char *newline = memchr(from, '\n', maps->len - maps->at);
		struct line line = { from, newline != NULL ? newline : maps->text + maps->len };
		struct perf_record_mmap mmap;

		maps->at = (size_t)(line.end - maps->text) + (newline != NULL);
		if (parse_maps_line(&line, maps->path, &mmap) && (mmap.prot & PROT_EXEC)) {
			*ret = mmap;
			return true;
		}
	}
	return false;
}

/* ---- lifetimes as records ----
 *
 * The mappings and the names of a lifetime are each in the order of time and are merged on the way
 * out. What it began with carries the time of its beginning.
 */

static int write_record(const struct perf_record *record, const struct sink *sink)
{
	_Alignas(PERF_RECORD_ALIGN) char buf[RECORD_MAX];
	size_t len;
	int r = perf_record_encode(&PERF_RECORD_PLAIN, record, buf, sizeof(buf), &len);

	return r < 0 ? r : sink_write(sink, buf, len);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static int write_name(const struct lifetime *lifetime, const struct name *name, bool exec, const struct sink *sink)
{
	struct perf_record record = { .type = PERF_RECORD_COMM,
				      .pid = lifetime->pid,
				      .tid = name->tid,
				      .time_ns = later(name->since_ns, lifetime->from_ns) };

	record.comm.name = name->comm;
	record.comm.name_len = strlen(name->comm);
	record.comm.exec = exec;
	return write_record(&record, sink);
}

static int write_mapping(const struct lifetime *lifetime, const struct mapping *mapping, const struct sink *sink)
{
	struct perf_record record = { .type = PERF_RECORD_MMAP2,
				      .misc = PERF_RECORD_MISC_USER,
				      .pid = lifetime->pid,
				      .tid = lifetime->pid,
				      .time_ns = later(mapping->since_ns, lifetime->from_ns) };

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

static int write_task(const struct lifetime *lifetime, uint32_t type, uint64_t time_ns, const struct sink *sink)
{
	struct perf_record record = { .type = type, .pid = lifetime->pid, .tid = lifetime->pid, .time_ns = time_ns };

	record.fork.ppid = record.fork.ptid = lifetime->parent;
	return write_record(&record, sink);
}

/* The first record: nothing from before holds. *name moves on if the first name is in it. */
static int write_beginning(const struct lifetime *lifetime, size_t *name, const struct sink *sink)
{
	struct name nameless = { .tid = lifetime->pid };

	if (lifetime->beginning == FORKED)
		return write_task(lifetime, PERF_RECORD_FORK, lifetime->from_ns, sink);
	if (lifetime->beginning != EXECED)
		return 0;
	if (lifetime->name_count > 0 && lifetime->names[0].tid == lifetime->pid &&
	    lifetime->names[0].since_ns == lifetime->from_ns)
		return write_name(lifetime, &lifetime->names[(*name)++], true, sink);
	return write_name(lifetime, &nameless, true, sink);
}

static bool is_mapped_between(const struct lifetime *lifetime, const struct mapping *mapping, uint64_t from_ns,
			      uint64_t to_ns)
{
	if (mapping->since_ns > to_ns || mapping->since_ns > lifetime->shared_ns)
		return false;
	return mapping->until_ns > (lifetime->shared_ns == UINT64_MAX ? from_ns : lifetime->shared_ns);
}

/* Names before mappings of the same time. */
static bool name_is_next(const struct lifetime *lifetime, size_t name, size_t mapping)
{
	if (name == lifetime->name_count || mapping == lifetime->space->count)
		return name < lifetime->name_count;
	return later(lifetime->names[name].since_ns, lifetime->from_ns) <=
	       later(lifetime->space->mappings[mapping].since_ns, lifetime->from_ns);
}

static int write_lifetime(const struct lifetime *lifetime, uint64_t from_ns, uint64_t to_ns, const struct sink *sink)
{
	const struct space *space = lifetime->space;
	size_t name = 0, mapping = 0;
	int r = write_beginning(lifetime, &name, sink);

	while (r == 0 && (name < lifetime->name_count || mapping < space->count)) {
		if (name_is_next(lifetime, name, mapping)) {
			if (lifetime->names[name].since_ns <= to_ns)
				r = write_name(lifetime, &lifetime->names[name], false, sink);
			name++;
			continue;
		}
		if (is_mapped_between(lifetime, &space->mappings[mapping], from_ns, to_ns))
			r = write_mapping(lifetime, &space->mappings[mapping], sink);
		mapping++;
	}
	if (r == 0 && lifetime->exited && lifetime->to_ns <= to_ns)
		r = write_task(lifetime, PERF_RECORD_EXIT, lifetime->to_ns, sink);
	return r;
}

/*
 * The first lifetime of pid that begins after `after` did (NULL: any) and until to_ns; of several
 * that begin at the same time the newest.
 */
static const struct lifetime *lifetime_after(const struct mapping_history *history, uint32_t pid,
					     const struct lifetime *after, uint64_t to_ns)
{
	const struct lifetime *first = NULL, *at = lifetime_at(history, pid, to_ns);

	for (; at != NULL && (after == NULL || at->from_ns > after->from_ns); at = at->before)
		if (first == NULL || at->from_ns < first->from_ns)
			first = at;
	return first;
}

/* From the lifetime that reaches into the span to the newest. */
int mapping_history_write(const struct mapping_history *history, uint32_t pid, uint64_t from_ns, uint64_t to_ns,
			  const struct sink *sink)
{
	const struct lifetime *lifetime = lifetime_at(history, pid, from_ns);
	int r = 0;

	if (lifetime == NULL)
		lifetime = lifetime_after(history, pid, NULL, to_ns);
	for (; r == 0 && lifetime != NULL; lifetime = lifetime_after(history, pid, lifetime, to_ns))
		r = write_lifetime(lifetime, from_ns, to_ns, sink);
	return r;
}

/* ---- records in ---- */

/* The first name of a child: that of the thread which made it. */
static struct name name_of_child(const struct lifetime *parent, const struct perf_record *record)
{
	const struct name *name = lifetime_name_at(parent, record->fork.ptid, record->time_ns);

	if (name == NULL)
		name = lifetime_name_at(parent, parent->pid, record->time_ns);
	return name_of(record->pid, record->time_ns, name != NULL ? name->comm : "",
		       name != NULL ? strlen(name->comm) : 0);
}

static void feed_fork(struct mapping_history *history, const struct perf_record *record)
{
	struct lifetime *parent, *child;
	struct name name;

	if (record->pid == record->fork.ppid)
		return;
	parent = lifetime_of(history, record->fork.ppid);
	if (parent == NULL)
		return;
	name = name_of_child(parent, record);
	parent->space->references++;
	child = lifetime_begin(history, record->pid, record->time_ns, parent->space,
			       parent->shared_ns < record->time_ns ? parent->shared_ns : record->time_ns);
	if (child == NULL)
		return;
	child->beginning = FORKED;
	child->parent = record->fork.ppid;
	if (name.comm[0] != '\0')
		lifetime_add_name(history, child, &name);
}

static struct lifetime *begin_by_exec(struct mapping_history *history, const struct perf_record *record)
{
	const struct lifetime *before = lifetime_newest(history, record->pid);
	uint32_t parent = before != NULL ? before->parent : 0;
	struct lifetime *lifetime = lifetime_begin(history, record->pid, record->time_ns, NULL, UINT64_MAX);

	if (lifetime != NULL) {
		lifetime->beginning = EXECED;
		lifetime->parent = parent;
		lifetime->space->known = true;
	}
	return lifetime;
}

/* execve(2) leaves one thread, whose number is that of the process. */
static void feed_comm(struct mapping_history *history, const struct perf_record *record)
{
	bool exec = record->comm.exec;
	struct name name =
		name_of(exec ? record->pid : record->tid, record->time_ns, record->comm.name, record->comm.name_len);
	struct lifetime *lifetime = exec ? begin_by_exec(history, record) : lifetime_of(history, record->pid);

	if (lifetime != NULL)
		lifetime_add_name(history, lifetime, &name);
}

static void feed_mmap(struct mapping_history *history, const struct perf_record *record)
{
	struct lifetime *lifetime = lifetime_of(history, record->pid);

	if (lifetime == NULL)
		return;
	if (!lifetime_unshare(history, lifetime) ||
	    !space_map(lifetime->space, &history->files, &record->mmap, record->time_ns, history->limits.max_mappings,
		       &history->stats.dropped))
		history->stats.dropped++;
}

static void feed_exit(struct mapping_history *history, const struct perf_record *record)
{
	struct lifetime *lifetime = lifetime_at(history, record->pid, record->time_ns);

	if (lifetime != NULL && record->pid == record->tid)
		lifetime_end(history, lifetime, record->time_ns, true);
}

void mapping_history_feed(struct mapping_history *history, const struct perf_record *record)
{
	make_room(history, ROOM_BYTES);
	switch (record->type) {
	case PERF_RECORD_FORK:
		feed_fork(history, record);
		break;
	case PERF_RECORD_COMM:
		feed_comm(history, record);
		break;
	case PERF_RECORD_MMAP2:
		feed_mmap(history, record);
		break;
	case PERF_RECORD_EXIT:
		feed_exit(history, record);
		break;
	default:
		break;
	}
}

/* ---- seeds from /proc ---- */

/* The lifetime that what /proc said at now_ns is about; NULL: none, or its mappings are known. */
static struct lifetime *lifetime_to_seed(struct mapping_history *history, uint32_t pid, uint64_t now_ns)
{
	struct lifetime *lifetime = lifetime_of(history, pid);

	if (lifetime == NULL || lifetime->space->known || lifetime->exited || lifetime->from_ns > now_ns)
		return NULL;
	return lifetime_unshare(history, lifetime) ? lifetime : NULL;
}

void mapping_history_seed(struct mapping_history *history, uint32_t pid, const char *comm, const char *text, size_t len,
			  uint64_t now_ns)
{
	struct maps maps = { .text = text, .len = len };
	struct lifetime *lifetime = lifetime_to_seed(history, pid, now_ns);
	struct perf_record_mmap mmap;

	if (lifetime == NULL)
		return;
	lifetime->space->known = true;
	while (maps_next(&maps, &mmap))
		if (!space_seed(lifetime->space, &history->files, &mmap, history->limits.max_mappings))
			history->stats.dropped++;
	if (comm != NULL)
		mapping_history_seed_thread(history, pid, pid, comm);
}

void mapping_history_seed_thread(struct mapping_history *history, uint32_t pid, uint32_t tid, const char *comm)
{
	struct lifetime *lifetime = lifetime_of(history, pid);
	struct name name;

	if (lifetime == NULL || lifetime_name_at(lifetime, tid, UINT64_MAX) != NULL)
		return;
	name = name_of(tid, lifetime->from_ns, comm, strlen(comm));
	lifetime_add_name(history, lifetime, &name);
}

/* ---- questions ---- */

bool mapping_history_knows(const struct mapping_history *history, uint32_t pid, uint64_t time_ns, uint32_t *ret_parent)
{
	const struct lifetime *lifetime = lifetime_at(history, pid, time_ns);

	*ret_parent = lifetime != NULL && lifetime->shared_ns != UINT64_MAX ? lifetime->parent : 0;
	return lifetime != NULL && lifetime->space->known;
}

bool mapping_history_knows_thread(const struct mapping_history *history, uint32_t pid, uint32_t tid, uint64_t time_ns)
{
	const struct lifetime *lifetime = lifetime_at(history, pid, time_ns);

	return lifetime != NULL && lifetime_name_at(lifetime, tid, time_ns) != NULL;
}

struct mapping_history_origin mapping_history_origin(const struct mapping_history *history, uint32_t pid,
						     uint64_t time_ns)
{
	const struct lifetime *lifetime = lifetime_at(history, pid, time_ns);
	struct mapping_history_origin origin = { 0 };

	if (lifetime != NULL)
		origin = (struct mapping_history_origin){ .parent = lifetime->parent, .began_ns = lifetime->from_ns };
	return origin;
}

bool mapping_history_find(const struct mapping_history *history, uint32_t pid, uint64_t time_ns, uint64_t address,
			  struct mapping_history_place *ret)
{
	const struct lifetime *lifetime = lifetime_at(history, pid, time_ns);
	const struct mapping *mapping;

	if (lifetime == NULL)
		return false;
	mapping = space_find(lifetime->space, address, time_ns < lifetime->shared_ns ? time_ns : lifetime->shared_ns);
	if (mapping == NULL)
		return false;
	*ret = (struct mapping_history_place){
		.start = mapping->start,
		.end = mapping->end,
		.offset = mapping->offset,
		.file = mapping->file->file,
		.path = mapping->file->path,
		.running = !lifetime->ended,
	};
	return true;
}

void mapping_history_expire(struct mapping_history *history, uint64_t before_ns)
{
	while (history->oldest_ended != NULL && history->oldest_ended->to_ns < before_ns)
		lifetime_forget(history, history->oldest_ended);
}

void mapping_history_stats(const struct mapping_history *history, struct mapping_history_stats *ret)
{
	*ret = history->stats;
	ret->bytes = history->files.budget.used;
	ret->mappings = 0;
	MAP_FOR_EACH(node, &history->lifetimes)
		for (const struct lifetime *lifetime = MAP_ENTRY(node, struct lifetime, node); lifetime != NULL;
		     lifetime = lifetime->before)
			ret->mappings += lifetime->shared_ns == UINT64_MAX ? lifetime->space->count : 0;
}

/* ---- beginning and end ---- */

static struct mapping_history_limits with_defaults(const struct mapping_history_limits *limits)
{
	return (struct mapping_history_limits){
		.max_lifetimes = limits->max_lifetimes != 0 ? limits->max_lifetimes : DEFAULT_LIFETIMES,
		.max_bytes = limits->max_bytes != 0 ? limits->max_bytes : DEFAULT_BYTES,
		.max_mappings = limits->max_mappings != 0 ? limits->max_mappings : DEFAULT_MAPPINGS,
		.max_names = limits->max_names != 0 ? limits->max_names : DEFAULT_NAMES,
	};
}

/* A small part of what there may be; with one lifetime at least. */
static size_t block_bytes(size_t max_bytes)
{
	size_t bytes = max_bytes / 16, least = sizeof(struct block) + sizeof(struct lifetime);

	return bytes > BLOCK_BYTES ? BLOCK_BYTES : bytes < least ? least : bytes;
}

int mapping_history_new(const struct mapping_history_limits *limits, struct mapping_history **ret)
{
	struct mapping_history *history = calloc(1, sizeof(*history));

	if (history == NULL)
		return -ENOMEM;
	history->limits = with_defaults(limits);
	history->files.budget.max = history->limits.max_bytes;
	history->block_bytes = block_bytes(history->limits.max_bytes);
	if (map_reserve(&history->files.map, FILE_BUCKETS) < 0 ||
	    map_reserve(&history->lifetimes, LIFETIME_BUCKETS) < 0) {
		mapping_history_free(history);
		return -ENOMEM;
	}
	*ret = history;
	return 0;
}

void mapping_history_free(struct mapping_history *history)
{
	struct map_node *node;

	if (history == NULL)
		return;
	while ((node = map_visit(&history->lifetimes, NULL)) != NULL)
		lifetime_forget(history, MAP_ENTRY(node, struct lifetime, node));
	map_release(&history->lifetimes);
	map_release(&history->files.map);
	free(history);
}
