/*
 * addressbook_life.c: lives hang in chains by pid, the newest of a pid first, and, once they have ended, in a list by the time they did, from which
 * the oldest are freed.
 */
#include "addressbook_life.h"

#include <stdlib.h>
#include <string.h>

static struct addressbook_life **bucket_of(struct addressbook *book, uint32_t pid)
{
	return &book->buckets[pid % ADDRESSBOOK_BUCKETS];
}

struct addressbook_life *addressbook_life_at(const struct addressbook *book, uint32_t pid, uint64_t time_ns)
{
	struct addressbook_life *life = book->buckets[pid % ADDRESSBOOK_BUCKETS];

	while (life != NULL && (life->pid != pid || life->from_ns > time_ns))
		life = life->next;
	return life;
}

struct addressbook_life *addressbook_life_begin(struct addressbook *book, uint32_t pid, uint64_t from_ns,
						struct addressbook_space *space, uint64_t shown_ns)
{
	struct addressbook_life *before = addressbook_life_at(book, pid, UINT64_MAX), *life = NULL;

	bool late = before != NULL && before->from_ns > from_ns;

	if (before != NULL && !late)
		addressbook_life_end(book, before, from_ns, false);
	addressbook_life_make_room(book, 0);
	if (space == NULL)
		space = addressbook_space_new(&book->files);
	if (space != NULL && !late && book->stats.lives < book->limits.max_lives)
		life = addressbook_purse_resize(&book->files.purse, NULL, 0, sizeof(*life));
	if (life == NULL) {
		addressbook_space_put(&book->files, space);
		book->stats.dropped++;
		return NULL;
	}
	*life = (struct addressbook_life){ .next = *bucket_of(book, pid),
					   .pid = pid,
					   .from_ns = from_ns,
					   .to_ns = UINT64_MAX,
					   .shown_ns = shown_ns,
					   .space = space };
	*bucket_of(book, pid) = life;
	book->stats.lives++;
	return life;
}

void addressbook_life_end(struct addressbook *book, struct addressbook_life *life, uint64_t to_ns, bool exited)
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

static void unlink_ended(struct addressbook *book, struct addressbook_life *life)
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

void addressbook_life_forget(struct addressbook *book, struct addressbook_life *life)
{
	struct addressbook_life **link = bucket_of(book, life->pid);

	while (*link != life)
		link = &(*link)->next;
	*link = life->next;
	if (life->ended)
		unlink_ended(book, life);
	addressbook_space_put(&book->files, life->space);
	addressbook_purse_free(&book->files.purse, life->names, life->name_cap * sizeof(*life->names));
	addressbook_purse_free(&book->files.purse, life, sizeof(*life));
	book->stats.lives--;
}

void addressbook_life_make_room(struct addressbook *book, size_t bytes)
{
	const struct addressbook_purse *purse = &book->files.purse;

	bytes += sizeof(struct addressbook_life) + sizeof(struct addressbook_space);
	while (book->oldest_ended != NULL &&
	       (purse->max - purse->used < bytes || book->stats.lives >= book->limits.max_lives)) {
		addressbook_life_forget(book, book->oldest_ended);
		book->stats.evicted++;
	}
}

bool addressbook_life_own(struct addressbook *book, struct addressbook_life *life)
{
	struct addressbook_space *copy;

	if (life->shown_ns == UINT64_MAX)
		return true;
	copy = addressbook_space_copy(life->space, &book->files, life->shown_ns);
	if (copy == NULL)
		return false;
	addressbook_space_put(&book->files, life->space);
	life->space = copy;
	life->shown_ns = UINT64_MAX;
	return true;
}

/* Of as many as there may be, the oldest eighth goes. */
static void thin_out(struct addressbook *book, struct addressbook_life *life)
{
	size_t gone = book->limits.max_names / 8 + 1;

	if (life->name_count < book->limits.max_names)
		return;
	memmove(life->names, life->names + gone, (life->name_count - gone) * sizeof(*life->names));
	life->name_count -= gone;
	book->stats.dropped += gone;
}

void addressbook_life_name(struct addressbook *book, struct addressbook_life *life, const struct addressbook_name *name)
{
	const struct addressbook_name *last = addressbook_life_name_at(life, name->tid, UINT64_MAX);
	size_t cap = life->name_cap == 0 ? 1 : 2 * life->name_cap, at;

	if (last != NULL && memcmp(last->comm, name->comm, sizeof(name->comm)) == 0)
		return;
	thin_out(book, life);
	if (life->name_count == life->name_cap) {
		struct addressbook_name *names = addressbook_purse_resize(
			&book->files.purse, life->names, life->name_cap * sizeof(*names), cap * sizeof(*names));

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

struct addressbook_name addressbook_life_name_of(uint32_t tid, uint64_t since_ns, const char *text, size_t len)
{
	struct addressbook_name name = { .tid = tid, .since_ns = since_ns };

	memcpy(name.comm, text, len < ADDRESSBOOK_COMM_MAX - 1 ? len : ADDRESSBOOK_COMM_MAX - 1);
	return name;
}

const struct addressbook_name *addressbook_life_name_at(const struct addressbook_life *life, uint32_t tid,
							uint64_t time_ns)
{
	for (size_t i = life->name_count; i-- > 0;)
		if (life->names[i].tid == tid && life->names[i].since_ns <= time_ns)
			return &life->names[i];
	return NULL;
}
