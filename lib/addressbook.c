/*
 * addressbook.c: what each record does to the lives.
 *
 *	            COMM (exec)                 COMM (exec)
 *	  (found) ───────────────▶ (execed) ◀─────────────── (forked) ◀── FORK of another process
 *	     │ EXIT                   │ EXIT                     │ EXIT
 *	     └────────────────────────┴──────────▶ (ended) ◀─────┘          freed keep_ns later, or when room is needed
 *
 * A forked life borrows its parent's address space, as it was at that time, and copies it when it maps something itself: most of them call
 * execve(2) at once. An address space is known if it began with an execve(2), or was seeded; one that was found is not, and neither is what was
 * forked from it until it is seeded.
 *
 * A life does not end for those who ask: of a process whose first thread has exited, others may run on.
 */
#include "addressbook.h"

#include "addressbook_life.h"
#include "addressbook_maps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_LIVES 65536
#define DEFAULT_BYTES ((size_t)16 << 20)
#define DEFAULT_MAPPINGS 4096
#define DEFAULT_NAMES 1024
#define DEFAULT_KEEP_NS 120000000000ULL
#define ROOM_BYTES 16384 /* what a record takes: a path, and an array that grows; more is found room for, or not */

int addressbook_new(const struct addressbook_limits *limits, struct addressbook **ret)
{
	struct addressbook *book = calloc(1, sizeof(*book));

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
	book->files.purse.max = book->limits.max_bytes;
	*ret = book;
	return 0;
}

void addressbook_free(struct addressbook *book)
{
	if (book == NULL)
		return;
	for (size_t i = 0; i < ADDRESSBOOK_BUCKETS; i++)
		while (book->buckets[i] != NULL)
			addressbook_life_forget(book, book->buckets[i]);
	free(book);
}

/* The newest life of pid; one that was found, of old, if there is none. NULL: no room. */
static struct addressbook_life *life_of(struct addressbook *book, uint32_t pid)
{
	struct addressbook_life *life = addressbook_life_at(book, pid, UINT64_MAX);

	return life != NULL ? life : addressbook_life_begin(book, pid, 0, NULL, UINT64_MAX);
}

/* What a child is called at first: what the thread is that made it. */
static struct addressbook_name name_of_child(const struct addressbook_life *parent, const struct perfrecord *record)
{
	const struct addressbook_name *name = addressbook_life_name_at(parent, record->fork.ptid, record->time_ns);

	if (name == NULL)
		name = addressbook_life_name_at(parent, parent->pid, record->time_ns);
	return addressbook_life_name_of(record->pid, record->time_ns, name != NULL ? name->comm : "",
					name != NULL ? strlen(name->comm) : 0);
}

static void feed_fork(struct addressbook *book, const struct perfrecord *record)
{
	struct addressbook_life *parent, *life;
	struct addressbook_name name;

	if (record->pid == record->fork.ppid)
		return;
	parent = life_of(book, record->fork.ppid);
	if (parent == NULL)
		return;
	name = name_of_child(parent, record);
	parent->space->references++;
	life = addressbook_life_begin(book, record->pid, record->time_ns, parent->space,
				      parent->shown_ns < record->time_ns ? parent->shown_ns : record->time_ns);
	if (life == NULL)
		return;
	life->begun = ADDRESSBOOK_FORKED;
	life->parent = record->fork.ppid;
	if (name.comm[0] != '\0')
		addressbook_life_name(book, life, &name);
}

static void feed_comm(struct addressbook *book, const struct perfrecord *record)
{
	struct addressbook_name name =
		addressbook_life_name_of(record->tid, record->time_ns, record->comm.name, record->comm.name_len);
	struct addressbook_life *life;

	if (record->comm.exec) {
		uint32_t parent;

		life = addressbook_life_at(book, record->pid, UINT64_MAX);
		parent = life != NULL ? life->parent : 0;
		life = addressbook_life_begin(book, record->pid, record->time_ns, NULL, UINT64_MAX);
		if (life == NULL)
			return;
		life->begun = ADDRESSBOOK_EXECED;
		life->parent = parent;
		life->space->known = true;
		name.tid = record->pid;
	} else {
		life = life_of(book, record->pid);
	}
	if (life != NULL)
		addressbook_life_name(book, life, &name);
}

static void feed_mmap(struct addressbook *book, const struct perfrecord *record)
{
	struct addressbook_life *life = life_of(book, record->pid);

	if (life == NULL)
		return;
	if (!addressbook_life_own(book, life) ||
	    !addressbook_space_map(life->space, &book->files, &record->mmap, record->time_ns, book->limits.max_mappings,
				   &book->stats.dropped))
		book->stats.dropped++;
}

void addressbook_feed(struct addressbook *book, const struct perfrecord *record)
{
	struct addressbook_life *life;

	addressbook_life_make_room(book, ROOM_BYTES);
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
		life = addressbook_life_at(book, record->pid, record->time_ns);
		if (life != NULL && record->pid == record->tid)
			addressbook_life_end(book, life, record->time_ns, true);
		break;
	default:
		break;
	}
}

bool addressbook_knows(const struct addressbook *book, uint32_t pid, uint64_t time_ns, uint32_t *ret_parent)
{
	const struct addressbook_life *life = addressbook_life_at(book, pid, time_ns);

	*ret_parent = life != NULL && life->shown_ns != UINT64_MAX ? life->parent : 0;
	return life != NULL && life->space->known;
}

/* The life that a look at the process at now_ns tells of; NULL: none, or nothing that is not known. */
static struct addressbook_life *life_to_seed(struct addressbook *book, uint32_t pid, uint64_t now_ns)
{
	struct addressbook_life *life = life_of(book, pid);

	if (life == NULL || life->space->known || life->exited || life->from_ns > now_ns)
		return NULL;
	return addressbook_life_own(book, life) ? life : NULL;
}

void addressbook_seed(struct addressbook *book, uint32_t pid, const char *comm, const char *maps, size_t len,
		      uint64_t now_ns)
{
	struct addressbook_maps lines = { .text = maps, .len = len };
	struct addressbook_life *life = life_to_seed(book, pid, now_ns);
	struct perfrecord_mmap mmap;

	if (life == NULL)
		return;
	life->space->known = true;
	while (addressbook_maps_next(&lines, &mmap))
		if (!addressbook_space_seed(life->space, &book->files, &mmap, book->limits.max_mappings))
			book->stats.dropped++;
	if (comm != NULL)
		addressbook_seed_thread(book, pid, pid, comm);
}

void addressbook_seed_thread(struct addressbook *book, uint32_t pid, uint32_t tid, const char *comm)
{
	struct addressbook_life *life = life_of(book, pid);
	struct addressbook_name name;

	if (life == NULL || addressbook_life_name_at(life, tid, UINT64_MAX) != NULL)
		return;
	name = addressbook_life_name_of(tid, life->from_ns, comm, strlen(comm));
	addressbook_life_name(book, life, &name);
}

bool addressbook_knows_thread(const struct addressbook *book, uint32_t pid, uint32_t tid, uint64_t time_ns)
{
	const struct addressbook_life *life = addressbook_life_at(book, pid, time_ns);

	return life != NULL && addressbook_life_name_at(life, tid, time_ns) != NULL;
}

uint64_t addressbook_began(const struct addressbook *book, uint32_t pid, uint64_t time_ns)
{
	const struct addressbook_life *life = addressbook_life_at(book, pid, time_ns);

	return life != NULL ? life->from_ns : 0;
}

bool addressbook_find(const struct addressbook *book, uint32_t pid, uint64_t time_ns, uint64_t address,
		      struct addressbook_place *ret)
{
	const struct addressbook_life *life = addressbook_life_at(book, pid, time_ns);
	const struct addressbook_mapping *mapping;

	if (life == NULL)
		return false;
	mapping = addressbook_space_find(life->space, address, time_ns < life->shown_ns ? time_ns : life->shown_ns);
	if (mapping == NULL)
		return false;
	*ret = (struct addressbook_place){
		.start = mapping->start,
		.end = mapping->end,
		.offset = mapping->offset,
		.file = mapping->file->file,
		.path = mapping->file->path,
		.running = !life->ended,
	};
	return true;
}

void addressbook_expire(struct addressbook *book, uint64_t now_ns)
{
	while (book->oldest_ended != NULL && book->oldest_ended->to_ns < now_ns &&
	       now_ns - book->oldest_ended->to_ns > book->limits.keep_ns)
		addressbook_life_forget(book, book->oldest_ended);
}

void addressbook_stats(const struct addressbook *book, struct addressbook_stats *ret)
{
	*ret = book->stats;
	ret->bytes = book->files.purse.used;
	ret->mappings = 0;
	for (size_t i = 0; i < ADDRESSBOOK_BUCKETS; i++)
		for (const struct addressbook_life *life = book->buckets[i]; life != NULL; life = life->next)
			ret->mappings += life->shown_ns == UINT64_MAX ? life->space->count : 0;
}
