/*
 * busy_snapshot.c: three numbers per process in one growing array. The kernel lists /proc by ascending pid, so sorting
 * an array that is in order already is the rule.
 */
#include "busy_snapshot.h"
#include "dirlist.h"
#include "piddir.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 256
#define STAT_MAX 1024

void busy_snapshot_begin(struct busy_snapshot *snapshot, mono_t now)
{
	snapshot->taken = now;
	snapshot->count = 0;
	snapshot->left_out = 0;
}

static int reserve(struct busy_snapshot *snapshot, size_t room)
{
	struct busy_record *records;

	if (room <= snapshot->room)
		return 0;
	records = realloc(snapshot->records, room * sizeof(*records));
	if (!records)
		return -ENOMEM;
	snapshot->records = records;
	snapshot->room = room;
	return 0;
}

int busy_snapshot_add(struct busy_snapshot *snapshot, const struct procfs_stat *stat)
{
	int r = 0;

	if (snapshot->count == BUSY_SNAPSHOT_MAX) {
		snapshot->left_out++;
		return 0;
	}
	if (snapshot->count == snapshot->room)
		r = reserve(snapshot, snapshot->room ? 2 * snapshot->room : FIRST_ROOM);
	if (r < 0) {
		snapshot->left_out++;
		return r;
	}
	snapshot->records[snapshot->count++] =
		(struct busy_record){ stat->pid, stat->start_ticks, stat->user_ticks + stat->system_ticks };
	return 0;
}

static int compare_pid(const void *a, const void *b)
{
	const struct busy_record *left = a, *right = b;

	return (left->pid > right->pid) - (left->pid < right->pid);
}

/* A crowd that has gone leaves no room behind: what is four times too large is made half as large, in every scan. */
static void shrink(struct busy_snapshot *snapshot)
{
	size_t room = snapshot->room / 2;

	if (room < FIRST_ROOM || snapshot->count > room / 2)
		return;

	struct busy_record *records = realloc(snapshot->records, room * sizeof(*records));

	if (!records)
		return;

	snapshot->records = records;
	snapshot->room = room;
}

void busy_snapshot_end(struct busy_snapshot *snapshot)
{
	shrink(snapshot);
	if (snapshot->count > 1)
		qsort(snapshot->records, snapshot->count, sizeof(snapshot->records[0]), compare_pid);
}

void busy_snapshot_release(struct busy_snapshot *snapshot)
{
	free(snapshot->records);
	*snapshot = (struct busy_snapshot){ 0 };
}

const struct busy_record *busy_snapshot_find(const struct busy_snapshot *snapshot, int32_t pid, uint64_t start_ticks)
{
	struct busy_record key = { .pid = pid };
	const struct busy_record *found;

	if (snapshot->count == 0)
		return NULL;
	found = bsearch(&key, snapshot->records, snapshot->count, sizeof(key), compare_pid);
	return found && found->start_ticks == start_ticks ? found : NULL;
}

int busy_snapshot_copy(struct busy_snapshot *to, const struct busy_snapshot *from)
{
	int r;

	busy_snapshot_begin(to, from->taken);
	r = reserve(to, from->count);
	if (r < 0)
		return r;
	if (from->count > 0)
		memcpy(to->records, from->records, from->count * sizeof(from->records[0]));
	to->count = from->count;
	to->left_out = from->left_out;
	return 0;
}

/* ---- a scan ---- */

struct scan {
	int procfd;
	int (*visit)(void *ctx, const struct procfs_stat *stat);
	void *ctx;
};

/* Processes that are gone, hidden or odd are passed over. */
static int visit_process(void *ctx, const char *name)
{
	const struct scan *scan = ctx;
	char path[32], text[STAT_MAX];
	struct procfs_stat stat;
	size_t len = strlen(name);
	uint64_t pid;
	ssize_t n;

	if (len > 10 || text_parse_u64(name, name + len, &pid) != name + len)
		return 0;
	snprintf(path, sizeof(path), "%s/stat", name);
	n = piddir_read(scan->procfd, path, text, sizeof(text));
	if (n < 0 || procfs_stat_parse(text, (size_t)n, &stat) < 0)
		return n == -ENOMEM || n == -EMFILE || n == -ENFILE ? (int)n : 0;
	return scan->visit(scan->ctx, &stat);
}

int busy_snapshot_scan(int procfd, int (*visit)(void *ctx, const struct procfs_stat *stat), void *ctx)
{
	struct scan scan = { procfd, visit, ctx };

	return dirlist_each(procfd, visit_process, &scan);
}
