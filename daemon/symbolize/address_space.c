/*
 * address_space.c: a map of tasks, each with its name and, for a process, its mappings: an array
 * that is sorted and free of overlaps. After a fork both processes point to one array, which counts
 * them; a process that maps something copies it first.
 *
 * A task that has ended is only marked: the samples of its last moments have the same time, and its
 * other threads may still run. When there are too many tasks, marked ones are removed.
 *
 * Not lib/proc/mapping_history, which interprets the same four records: that answers for any moment
 * of the past, from unsorted mappings, bounded for each process, of which it forgets the oldest. Here
 * the present of a replay is asked for, for every frame of every sample, by binary search; a covered
 * file comes back as the part that is left; and nothing is forgotten silently.
 */
#include "daemon/symbolize/address_space.h"

#include "lib/base/base.h"
#include "lib/base/map.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TASKS_DEFAULT 131072u
#define MAPPINGS_DEFAULT 1048576u
#define TEXTS_DEFAULT ((size_t)16 << 20)
#define COMM_LEN 16

struct mappings {
	size_t users, count, cap;
	struct address_space_mapping all[];
};

struct task {
	struct map_node node; /* its hash is the id */
	bool ended;
	char name[COMM_LEN]; /* "": not known */
	struct mappings *mappings;
};

struct address_spaces {
	struct address_spaces_limits limits;
	struct map tasks;
	size_t mapping_count;
	uint64_t last_id;
	uint64_t dropped;
	struct intern paths;
	struct intern_budget budget;
};

int address_spaces_new(const struct address_spaces_limits *limits, struct address_spaces **ret)
{
	struct address_spaces *spaces = calloc(1, sizeof(*spaces));

	if (spaces == NULL)
		return -ENOMEM;
	spaces->limits.tasks = limits->tasks > 0 ? limits->tasks : TASKS_DEFAULT;
	spaces->limits.mappings = limits->mappings > 0 ? limits->mappings : MAPPINGS_DEFAULT;
	spaces->limits.texts = limits->texts > 0 ? limits->texts : TEXTS_DEFAULT;
	spaces->budget.max_bytes = spaces->limits.texts;
	*ret = spaces;
	return 0;
}

static void mappings_unref(struct address_spaces *spaces, struct task *task)
{
	struct mappings *mappings = TAKE(task->mappings);

	if (mappings == NULL || --mappings->users > 0)
		return;
	spaces->mapping_count -= mappings->count;
	free(mappings);
}

static void task_free(struct address_spaces *spaces, struct task *task)
{
	map_remove(&spaces->tasks, &task->node);
	mappings_unref(spaces, task);
	free(task);
}

void address_spaces_free(struct address_spaces *spaces)
{
	if (spaces == NULL)
		return;
	MAP_FOR_EACH(node, &spaces->tasks)
		task_free(spaces, MAP_ENTRY(node, struct task, node));
	map_release(&spaces->tasks);
	intern_release(&spaces->paths);
	free(spaces);
}

static struct task *task_find(const struct address_spaces *spaces, uint32_t id)
{
	struct map_node *node = map_first(&spaces->tasks, id);

	return node != NULL ? MAP_ENTRY(node, struct task, node) : NULL;
}

static void remove_ended(struct address_spaces *spaces)
{
	MAP_FOR_EACH(node, &spaces->tasks)
		if (MAP_ENTRY(node, struct task, node)->ended)
			task_free(spaces, MAP_ENTRY(node, struct task, node));
}

/* 0; -ENOMEM; -ENOSPC: there are too many. */
static int task_get(struct address_spaces *spaces, uint32_t id, struct task **ret)
{
	struct task *task = task_find(spaces, id);

	if (task == NULL) {
		if (spaces->tasks.count >= spaces->limits.tasks)
			remove_ended(spaces);
		if (spaces->tasks.count >= spaces->limits.tasks)
			return -ENOSPC;
		task = map_reserve(&spaces->tasks, spaces->tasks.count + 1) == 0 ? calloc(1, sizeof(*task)) : NULL;
		if (task == NULL)
			return -ENOMEM;
		map_insert(&spaces->tasks, &task->node, id);
	}
	*ret = task;
	return 0;
}

/* The index of the first mapping that ends behind address. */
static size_t ending_behind(const struct mappings *mappings, uint64_t address)
{
	size_t low = 0, high = mappings->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (mappings->all[middle].end <= address)
			low = middle + 1;
		else
			high = middle;
	}

	return low;
}

/* Makes room for two more in an array of the task's own. */
static int mappings_own(struct address_spaces *spaces, struct task *task)
{
	struct mappings *old = task->mappings, *own;
	size_t count = old != NULL ? old->count : 0;
	bool shared = old != NULL && old->users > 1;

	if (spaces->mapping_count + (shared ? count : 0) + 2 > spaces->limits.mappings)
		return -ENOSPC;
	if (old != NULL && !shared && old->cap >= count + 2)
		return 0;

	size_t cap = count + count / 2 + 8;

	own = realloc(shared ? NULL : old, sizeof(*own) + cap * sizeof(own->all[0]));
	if (own == NULL)
		return -ENOMEM;
	own->users = 1;
	own->count = count;
	own->cap = cap;
	if (shared) {
		memcpy(own->all, old->all, count * sizeof(own->all[0]));
		old->users--;
		spaces->mapping_count += count;
	}
	task->mappings = own;
	return 0;
}

/*
 * Puts `mapping` into the array, over what is there: of that at most a left part of the first and a
 * right part of the last stay.
 */
static void mappings_put(struct mappings *mappings, const struct address_space_mapping *mapping)
{
	struct address_space_mapping *all = mappings->all;
	size_t first = ending_behind(mappings, mapping->start), behind = first;
	struct address_space_mapping parts[3];
	size_t count = 0;

	while (behind < mappings->count && all[behind].start < mapping->end)
		behind++;
	if (behind > first && all[first].start < mapping->start) {
		parts[count] = all[first];
		parts[count++].end = mapping->start;
	}
	parts[count++] = *mapping;
	if (behind > first && all[behind - 1].end > mapping->end) {
		parts[count] = all[behind - 1];
		parts[count].offset_bytes += mapping->end - parts[count].start;
		parts[count++].start = mapping->end;
	}
	memmove(&all[first + count], &all[behind], (mappings->count - behind) * sizeof(*all));
	memcpy(&all[first], parts, count * sizeof(*all));
	mappings->count = mappings->count + count - (behind - first);
}

static int take_mmap(struct address_spaces *spaces, uint32_t pid, const struct perf_record_mmap *record)
{
	struct address_space_mapping mapping = {
		.start = record->start,
		.end = record->start + record->len,
		.offset_bytes = record->offset,
		.file = record->file,
	};
	struct task *task;
	uint32_t path;
	int r;

	if (mapping.end <= mapping.start)
		return 0;
	r = intern_put(&spaces->paths, &spaces->budget, record->path, record->path_len, &path);
	if (r != 0)
		return r < 0 ? r : -ENOSPC;
	mapping.path = intern_text(&spaces->paths, path);
	r = task_get(spaces, pid, &task);
	if (r == 0)
		r = mappings_own(spaces, task);
	if (r < 0)
		return r;

	size_t before = task->mappings->count;

	mapping.id = ++spaces->last_id;
	mappings_put(task->mappings, &mapping);
	spaces->mapping_count += task->mappings->count - before;
	return 0;
}

static int take_fork(struct address_spaces *spaces, const struct perf_record *record)
{
	struct task *task, *parent;
	int r = task_get(spaces, record->tid, &task);

	if (r < 0)
		return r;
	task->ended = false;
	parent = task_find(spaces, record->fork.ptid);
	parent = parent != NULL && parent->name[0] ? parent : task_find(spaces, record->fork.ppid);
	if (parent != NULL && parent != task)
		memcpy(task->name, parent->name, sizeof(task->name));
	if (record->pid == record->fork.ppid || record->pid != record->tid)
		return 0;

	struct task *origin = task_find(spaces, record->fork.ppid);

	mappings_unref(spaces, task);
	if (origin != NULL && origin->mappings != NULL) {
		task->mappings = origin->mappings;
		task->mappings->users++;
	}

	return 0;
}

static int take_comm(struct address_spaces *spaces, const struct perf_record *record)
{
	size_t len = record->comm.name_len < COMM_LEN ? record->comm.name_len : COMM_LEN - 1;
	struct task *task;
	int r;

	/* execve(2) leaves one thread, with the number of the process. */
	r = task_get(spaces, record->comm.exec ? record->pid : record->tid, &task);
	if (r < 0)
		return r;
	memset(task->name, 0, sizeof(task->name));
	memcpy(task->name, record->comm.name, len);
	if (record->comm.exec)
		mappings_unref(spaces, task);
	return 0;
}

static void take_exit(struct address_spaces *spaces, uint32_t tid)
{
	struct task *task = task_find(spaces, tid);

	if (task != NULL)
		task->ended = true;
}

int address_spaces_record(struct address_spaces *spaces, const struct perf_record *record)
{
	int r = 0;

	switch (record->type) {
	case PERF_RECORD_MMAP2:
		r = take_mmap(spaces, record->pid, &record->mmap);
		break;
	case PERF_RECORD_FORK:
		r = take_fork(spaces, record);
		break;
	case PERF_RECORD_COMM:
		r = take_comm(spaces, record);
		break;
	case PERF_RECORD_EXIT:
		take_exit(spaces, record->tid);
		break;
	}
	if (r != -ENOSPC)
		return r;
	spaces->dropped++;
	return 0;
}

const struct address_space_mapping *address_spaces_find(const struct address_spaces *spaces, uint32_t pid,
							uint64_t address)
{
	const struct task *task = task_find(spaces, pid);
	const struct mappings *mappings = task != NULL ? task->mappings : NULL;
	size_t i = mappings != NULL ? ending_behind(mappings, address) : 0;

	if (mappings == NULL || i == mappings->count || mappings->all[i].start > address)
		return NULL;
	return &mappings->all[i];
}

const char *address_spaces_name(const struct address_spaces *spaces, uint32_t tid)
{
	const struct task *task = task_find(spaces, tid);

	return task != NULL && task->name[0] ? task->name : NULL;
}

uint64_t address_spaces_dropped(const struct address_spaces *spaces)
{
	return spaces->dropped;
}
