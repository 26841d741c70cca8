/*
 * thread_snapshot.c: /proc/<pid>/task/<tid>/stat and schedstat of every thread.
 *
 * stat counts in ticks of 10 ms, so over a second it tells one percent from two and nothing below; schedstat has
 * nanoseconds but no split into user and system. Both are read; where schedstat is missing (a kernel without it),
 * stat's sum stands in.
 *
 * A baseline keeps two snapshots, because the younger may be some milliseconds old when a rule fires, and the work of
 * milliseconds says little.
 */
#include "thread_snapshot.h"
#include "dirlist.h"
#include "piddir.h"
#include "procfs.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define STAT_MAX 1024
#define FIRST_ROOM \
	2 /* threads; doubled as needed: most processes have one, and each that is watched keeps a snapshot */
#define NAME_DIGITS 10

struct building {
	int piddir;
	uint64_t ns_per_tick;
	size_t room;
	struct thread_snapshot *snapshot;
};

static int grow(struct building *building)
{
	size_t room = building->room ? 2 * building->room : FIRST_ROOM;
	struct thread_snapshot *snapshot;

	if (building->snapshot && building->snapshot->count < building->room)
		return 0;
	snapshot = realloc(building->snapshot, sizeof(*snapshot) + room * sizeof(snapshot->records[0]));
	if (!snapshot)
		return -ENOMEM;
	if (!building->snapshot)
		*snapshot = (struct thread_snapshot){ 0 };
	building->snapshot = snapshot;
	building->room = room;
	return 0;
}

/*
 * schedstat: "284934343 5734343 1204": ns on a CPU, ns waiting for one, time slices (since 2.6.9, CONFIG_SCHED_INFO).
 */
static uint64_t read_cpu(const struct building *building, int32_t tid, uint64_t otherwise)
{
	char path[48], text[128];
	uint64_t cpu_ns;
	ssize_t len;

	snprintf(path, sizeof(path), "task/%d/schedstat", tid);
	len = piddir_read(building->piddir, path, text, sizeof(text));
	if (len <= 0 || !text_parse_u64(text, text + len, &cpu_ns))
		return otherwise;
	/* A kernel with the file but without the accounting says 0 for ever. */
	return cpu_ns > 0 ? cpu_ns : otherwise;
}

/* 0; -ESRCH: the thread is gone; -EBADMSG; -errno. */
static int read_thread(const struct building *building, int32_t tid, struct thread_record *ret)
{
	char path[48], text[STAT_MAX];
	struct procfs_stat stat;
	ssize_t len;
	size_t name_len;

	snprintf(path, sizeof(path), "task/%d/stat", tid);
	len = piddir_read(building->piddir, path, text, sizeof(text));
	if (len < 0)
		return (int)len;
	if (procfs_stat_parse(text, (size_t)len, &stat) < 0)
		return -EBADMSG;

	*ret = (struct thread_record){
		.tid = tid,
		.state = stat.state,
		.start_ticks = stat.start_ticks,
		.user_ns = stat.user_ticks * building->ns_per_tick,
		.system_ns = stat.system_ticks * building->ns_per_tick,
	};
	name_len = stat.comm_len < sizeof(ret->name) ? stat.comm_len : sizeof(ret->name) - 1;
	memcpy(ret->name, stat.comm, name_len);
	ret->cpu_ns = read_cpu(building, tid, ret->user_ns + ret->system_ns);
	return 0;
}

static int visit_task(void *ctx, const char *name)
{
	struct building *building = ctx;
	struct thread_record record;
	size_t len = strlen(name);
	uint64_t tid;
	int r;

	if (len > NAME_DIGITS || text_parse_u64(name, name + len, &tid) != name + len || tid > INT32_MAX)
		return 0;
	if (building->snapshot->count == THREAD_SNAPSHOT_MAX) {
		building->snapshot->unlisted++;
		return 0;
	}
	r = read_thread(building, (int32_t)tid, &record);
	if (r == -ESRCH || r == -EBADMSG)
		return 0; /* it ended meanwhile; the others did not */
	if (r < 0)
		return r;
	r = grow(building);
	if (r < 0)
		return r;
	building->snapshot->records[building->snapshot->count++] = record;
	return 0;
}

static int compare_tid(const void *a, const void *b)
{
	const struct thread_record *left = a, *right = b;

	return (left->tid > right->tid) - (left->tid < right->tid);
}

static int read_tasks(struct building *building)
{
	AUTO_CLOSE int tasks = openat(building->piddir, "task", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int r;

	if (tasks < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	r = dirlist_each(tasks, visit_task, building);
	if (r < 0)
		return r == -ENOENT ? -ESRCH : r;
	return building->snapshot->count == 0 ? -ESRCH : 0;
}

int thread_snapshot_take(int procfd, int32_t pid, uint64_t start_ticks, mono_t now, struct thread_snapshot **ret)
{
	AUTO_CLOSE int piddir = -1;
	struct building building = { .ns_per_tick = NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK) };
	int r;

	r = piddir_open(procfd, pid, start_ticks, &piddir);
	if (r < 0)
		return r;
	r = grow(&building);
	if (r < 0)
		return r;

	building.piddir = piddir;
	r = read_tasks(&building);
	if (r < 0) {
		free(building.snapshot);
		return r;
	}
	building.snapshot->taken = now;
	building.snapshot->valid_until = now;
	qsort(building.snapshot->records, building.snapshot->count, sizeof(struct thread_record), compare_tid);
	*ret = building.snapshot;
	return 0;
}

const struct thread_record *thread_snapshot_find(const struct thread_snapshot *snapshot,
						 const struct thread_record *thread)
{
	const struct thread_record *found =
		bsearch(thread, snapshot->records, snapshot->count, sizeof(*thread), compare_tid);

	return found && found->start_ticks == thread->start_ticks ? found : NULL;
}

/* ---- baselines ---- */

void thread_baseline_add(struct thread_baseline *baseline, struct thread_snapshot *snapshot)
{
	free(baseline->older);
	baseline->older = baseline->newer;
	baseline->newer = snapshot;
}

void thread_baseline_still(struct thread_baseline *baseline, mono_t now)
{
	if (baseline->newer && mono_diff(now, baseline->newer->valid_until) > 0)
		baseline->newer->valid_until = now;
}

static bool old_enough(const struct thread_snapshot *snapshot, mono_t latest)
{
	return snapshot && mono_diff(latest, snapshot->taken) >= 0;
}

const struct thread_snapshot *thread_baseline_pick(const struct thread_baseline *baseline, mono_t now,
						   uint64_t min_age_ns, mono_t *ret_at)
{
	mono_t latest = mono_sub(now, min_age_ns);
	const struct thread_snapshot *found = NULL;

	if (old_enough(baseline->newer, latest))
		found = baseline->newer;
	else
		found = baseline->older ? baseline->older : baseline->newer;
	if (!found)
		return NULL;

	/* It stands for any moment in [taken, valid_until]: the one nearest to what was asked for. */
	*ret_at = found->taken;
	if (old_enough(found, latest))
		*ret_at = mono_diff(found->valid_until, latest) > 0 ? latest : found->valid_until;
	return found;
}

void thread_baseline_release(struct thread_baseline *baseline)
{
	free(baseline->older);
	free(baseline->newer);
	*baseline = (struct thread_baseline){ 0 };
}
