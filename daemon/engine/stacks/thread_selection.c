/*
 * thread_selection.c: two lists of watched processes, as of the last whole scan and as of the
 * running one. The difference of their CPU times says which are busy.
 *
 * Where there are more than THREAD_SELECTION_MAX, a selected process is replaced only by one that
 * is clearly busier: opening events for all threads of a process is expensive, and what its rings
 * hold of the past would be lost.
 */
#include "daemon/engine/stacks/thread_selection.h"

#include "lib/base/map.h"

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
	size_t count, cap;
};

struct thread_selection {
	struct list last, now; /* last is ascending by pid */
	uint32_t set[THREAD_SELECTION_MAX];
	uint64_t starts[THREAD_SELECTION_MAX]; /* of the processes in the set: another one may get its number */
	size_t count;
};

int thread_selection_new(struct thread_selection **ret)
{
	struct thread_selection *selection = calloc(1, sizeof(*selection));

	if (selection == NULL)
		return -ENOMEM;
	*ret = selection;
	return 0;
}

void thread_selection_free(struct thread_selection *selection)
{
	if (selection == NULL)
		return;
	free(selection->last.rows);
	free(selection->now.rows);
	free(selection);
}

void thread_selection_begin(struct thread_selection *selection)
{
	if (selection == NULL)
		return;
	selection->now.count = 0;
}

static int by_pid(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;

	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/* As of the last scan; NULL: it was not there, or another process had its number. */
static const struct candidate *find_in_last_scan(const struct list *list, const struct procfs_stat *stat)
{
	struct candidate key = { .pid = (uint32_t)stat->pid };
	const struct candidate *found =
		list->count > 0 ? bsearch(&key, list->rows, list->count, sizeof(key), by_pid) : NULL;

	return found != NULL && found->start_ticks == stat->start_ticks ? found : NULL;
}

/* False: there is no room. */
static bool has_room(struct list *list)
{
	return list->count < THREAD_SELECTION_CANDIDATES_MAX &&
	       vector_reserve(&list->rows, &list->cap, list->count + 1, sizeof(*list->rows)) == 0;
}

void thread_selection_met(struct thread_selection *selection, const struct procfs_stat *stat, bool watched)
{
	const struct candidate *before = selection != NULL ? find_in_last_scan(&selection->last, stat) : NULL;
	uint64_t cpu_ticks = stat->user_ticks + stat->system_ticks;

	if (selection == NULL || (!watched && before == NULL) || !has_room(&selection->now))
		return;
	selection->now.rows[selection->now.count++] = (struct candidate){
		.pid = (uint32_t)stat->pid,
		.start_ticks = stat->start_ticks,
		.cpu_ticks = cpu_ticks,
		.used_ticks = before != NULL && cpu_ticks > before->cpu_ticks ? cpu_ticks - before->cpu_ticks : 0,
		.followed = before != NULL && before->followed,
	};
}

/* Twice as busy, and a tick more, is clearly busier. */
static uint64_t candidate_weight(const struct candidate *candidate)
{
	return candidate->followed ? 2 * candidate->used_ticks + 1 : candidate->used_ticks;
}

static int by_weight(const void *left, const void *right)
{
	const struct candidate *a = left, *b = right;
	uint64_t of_a = candidate_weight(a), of_b = candidate_weight(b);

	return of_a > of_b ? -1 : of_a < of_b ? 1 : by_pid(a, b);
}

/* Marks those that are to be followed; the list is ascending by pid then. */
static void choose_followed(struct list *list)
{
	if (list->count > THREAD_SELECTION_MAX)
		qsort(list->rows, list->count, sizeof(*list->rows), by_weight);
	for (size_t i = 0; i < list->count; i++)
		list->rows[i].followed = i < THREAD_SELECTION_MAX;
	if (list->count > 0)
		qsort(list->rows, list->count, sizeof(*list->rows), by_pid);
}

/* True: it is another one than before. */
static bool make_set(struct thread_selection *selection, const struct list *list)
{
	size_t count = 0;
	bool changed = false;

	for (size_t i = 0; i < list->count; i++) {
		const struct candidate *row = &list->rows[i];

		if (!row->followed)
			continue;
		changed |= count >= selection->count || selection->set[count] != row->pid ||
			   selection->starts[count] != row->start_ticks;
		selection->set[count] = row->pid;
		selection->starts[count++] = row->start_ticks;
	}
	changed |= count != selection->count;
	selection->count = count;
	return changed;
}

bool thread_selection_end(struct thread_selection *selection, const uint32_t **ret_pids, size_t *ret_count)
{
	struct list last;

	if (selection == NULL)
		return false;
	last = selection->last;
	choose_followed(&selection->now);
	selection->last = selection->now;
	selection->now = last;
	if (!make_set(selection, &selection->last))
		return false;
	*ret_pids = selection->set;
	*ret_count = selection->count;
	return true;
}

void thread_selection_forget(struct thread_selection *selection)
{
	if (selection == NULL)
		return;
	selection->last.count = 0;
}
