/*
 * following.c: two lists, as of the last whole scan and as of the running one. The difference of CPU times between the two says who is busy.
 *
 * Where there are more than FOLLOWING_MAX, one that is followed already is exchanged only for one that is clearly busier: opening events for all its
 * threads has its price, and what its rings hold of the past would begin anew.
 */
#include "following.h"

#include <errno.h>
#include <stdlib.h>

struct candidate {
	uint64_t start_ticks, cpu_ticks;
	uint64_t used_ticks; /* since the scan before */
	uint32_t pid;
	bool followed;
};

struct list {
	struct candidate *rows;
	size_t count, room;
};

struct following {
	following_take *take;
	void *ctx;
	struct list last, now; /* last is ascending by pid */
	uint32_t set[FOLLOWING_MAX];
	uint64_t starts[FOLLOWING_MAX]; /* of the processes in the set: another one may get its number */
	size_t count;
};

int following_new(following_take *take, void *ctx, struct following **ret)
{
	struct following *following = calloc(1, sizeof(*following));

	if (following == NULL)
		return -ENOMEM;
	following->take = take;
	following->ctx = ctx;
	*ret = following;
	return 0;
}

void following_free(struct following *following)
{
	if (following == NULL)
		return;
	free(following->last.rows);
	free(following->now.rows);
	free(following);
}

void following_begin(struct following *following)
{
	if (following == NULL)
		return;
	following->now.count = 0;
}

static int by_pid(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* As of the last scan; NULL: it was not there, or another process had its number. */
static const struct candidate *recall(const struct list *list, const struct procfs_stat *stat)
{
	struct candidate key = { .pid = (uint32_t)stat->pid };
	const struct candidate *found =
		list->count > 0 ? bsearch(&key, list->rows, list->count, sizeof(key), by_pid) : NULL;

	return found != NULL && found->start_ticks == stat->start_ticks ? found : NULL;
}

/* False: there is no room. */
static bool has_room(struct list *list)
{
	size_t room = list->room == 0 ? 64 : 2 * list->room;
	struct candidate *rows;

	if (list->count < list->room)
		return true;
	if (list->count >= FOLLOWING_CANDIDATES_MAX)
		return false;
	rows = reallocarray(list->rows, room, sizeof(*rows));
	if (rows == NULL)
		return false;
	list->rows = rows;
	list->room = room;
	return true;
}

void following_met(struct following *following, const struct procfs_stat *stat, bool watched)
{
	const struct candidate *before = following != NULL ? recall(&following->last, stat) : NULL;
	uint64_t cpu_ticks = stat->user_ticks + stat->system_ticks;

	if (following == NULL || (!watched && before == NULL) || !has_room(&following->now))
		return;
	following->now.rows[following->now.count++] = (struct candidate){
		.pid = (uint32_t)stat->pid,
		.start_ticks = stat->start_ticks,
		.cpu_ticks = cpu_ticks,
		.used_ticks = before != NULL && cpu_ticks > before->cpu_ticks ? cpu_ticks - before->cpu_ticks : 0,
		.followed = before != NULL && before->followed,
	};
}

/* Twice as busy, and a tick more, is clearly busier. */
static uint64_t weight(const struct candidate *candidate)
{
	return candidate->followed ? 2 * candidate->used_ticks + 1 : candidate->used_ticks;
}

static int by_weight(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	uint64_t of_a = weight(a), of_b = weight(b);

	return of_a > of_b ? -1 : of_a < of_b ? 1 : by_pid(a, b);
}

/* Marks those that are to be followed; the list is ascending by pid then. */
static void choose(struct list *list)
{
	if (list->count > FOLLOWING_MAX)
		qsort(list->rows, list->count, sizeof(*list->rows), by_weight);
	for (size_t i = 0; i < list->count; i++)
		list->rows[i].followed = i < FOLLOWING_MAX;
	if (list->count > 0)
		qsort(list->rows, list->count, sizeof(*list->rows), by_pid);
}

/* True: it is another one than before. */
static bool make_set(struct following *following, const struct list *list)
{
	size_t count = 0;
	bool changed = false;

	for (size_t i = 0; i < list->count; i++) {
		const struct candidate *row = &list->rows[i];

		if (!row->followed)
			continue;
		changed |= count >= following->count || following->set[count] != row->pid ||
			   following->starts[count] != row->start_ticks;
		following->set[count] = row->pid;
		following->starts[count++] = row->start_ticks;
	}
	changed |= count != following->count;
	following->count = count;
	return changed;
}

void following_end(struct following *following)
{
	struct list last;

	if (following == NULL)
		return;
	last = following->last;
	choose(&following->now);
	following->last = following->now;
	following->now = last;
	if (make_set(following, &following->last))
		following->take(following->ctx, following->set, following->count);
}

void following_forget(struct following *following)
{
	if (following == NULL)
		return;
	following->last.count = 0;
}
