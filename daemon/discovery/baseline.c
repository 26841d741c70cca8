/*
 * baseline.c: two busy snapshots, the last whole one and the one being built, and a hash table of watched processes.
 *
 * The kernel lists processes by pid. When a scan runs out of budget, the next one begins serving at the pid where it did, so that every
 * process gets its turn.
 */
#include "baseline.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024u

/* One thread costs 5 us: a scan spends at most 10 ms here. */
#define THREADS_PER_SCAN 2000u

/* smaps holds up the watched process while it is read: few at a time, and seldom. */
#define MAPS_PER_SCAN 2u
#define MAPS_INTERVAL_NS (60 * NS_PER_S)

struct known {
	struct known *next;
	int32_t pid;
	uint64_t start_ticks;
	uint64_t scan; /* the last that met it */
	struct thread_baseline threads;
	struct maps_snapshot *maps;
	mono_t maps_tried;
};

struct baseline {
	int procfd;
	bool with_maps;
	struct outside outside;
	struct busy_snapshot whole, growing;
	struct known *buckets[BUCKETS];
	size_t count;
	uint64_t scan;
	mono_t now;
	size_t threads_left, maps_left;
	int32_t serve_from; /* pids below were served by the scan before */
	int32_t starved;    /* the first pid that this scan could not serve */
};

int baseline_new(int procfd, bool with_maps, struct baseline **ret)
{
	struct baseline *baseline = calloc(1, sizeof *baseline);

	if (!baseline)
		return -ENOMEM;

	baseline->procfd = procfd;
	baseline->with_maps = with_maps;
	*ret = baseline;

	return 0;
}

static void free_known(struct known *known)
{
	thread_baseline_release(&known->threads);
	free(known->maps);
	free(known);
}

void baseline_free(struct baseline *baseline)
{
	if (!baseline)
		return;

	for (unsigned i = 0; i < BUCKETS; i++) {
		while (baseline->buckets[i]) {
			struct known *known = baseline->buckets[i];

			baseline->buckets[i] = known->next;
			free_known(known);
		}
	}
	busy_snapshot_release(&baseline->whole);
	busy_snapshot_release(&baseline->growing);
	free(baseline);
}

void baseline_set_outside(struct baseline *baseline, struct outside outside)
{
	baseline->outside = outside;
}

void baseline_set_maps(struct baseline *baseline, bool with_maps)
{
	baseline->with_maps = with_maps;
	for (unsigned i = 0; !with_maps && i < BUCKETS; i++) {
		for (struct known *known = baseline->buckets[i]; known; known = known->next) {
			free(known->maps);
			known->maps = NULL;
			known->maps_tried = (mono_t){ 0 };
		}
	}
}

/* ---- a scan ---- */

void baseline_scan_begin(struct baseline *baseline, mono_t now)
{
	baseline->scan++;
	baseline->now = now;
	baseline->threads_left = THREADS_PER_SCAN;
	baseline->maps_left = MAPS_PER_SCAN;
	baseline->starved = 0;
	busy_snapshot_begin(&baseline->growing, now);
}

bool baseline_met(struct baseline *baseline, const struct procfs_stat *stat)
{
	const struct busy_record *before = busy_snapshot_find(&baseline->whole, stat->pid, stat->start_ticks);

	busy_snapshot_add(&baseline->growing, stat); /* without memory it is left out, and counted there */

	return !before || before->cpu_ticks != stat->user_ticks + stat->system_ticks;
}

static struct known *find(const struct baseline *baseline, int32_t pid)
{
	struct known *known = baseline->buckets[(uint32_t)pid % BUCKETS];

	while (known && known->pid != pid)
		known = known->next;

	return known;
}

/* The entry of a process, new if need be; a reused pid starts afresh. NULL: no room. */
static struct known *find_or_add(struct baseline *baseline, const struct procfs_stat *stat)
{
	struct known *known = find(baseline, stat->pid);

	if (known && known->start_ticks != stat->start_ticks) {
		thread_baseline_release(&known->threads);
		free(known->maps);
		known->maps = NULL;
		known->maps_tried = (mono_t){ 0 };
		known->start_ticks = stat->start_ticks;
	}
	if (known || baseline->count == BASELINE_PROCESSES_MAX)
		return known;

	known = calloc(1, sizeof *known);
	if (!known)
		return NULL;

	known->pid = stat->pid;
	known->start_ticks = stat->start_ticks;
	known->next = baseline->buckets[(uint32_t)stat->pid % BUCKETS];
	baseline->buckets[(uint32_t)stat->pid % BUCKETS] = known;
	baseline->count++;

	return known;
}

static void take_threads(struct baseline *baseline, struct known *known, const struct procfs_stat *stat)
{
	struct thread_snapshot *snapshot;

	if (stat->pid < baseline->serve_from)
		return;
	if (baseline->threads_left < stat->threads && baseline->threads_left < THREADS_PER_SCAN) {
		if (!baseline->starved)
			baseline->starved = stat->pid;
		return;
	}

	outside_leave(&baseline->outside, stat->pid);

	int r = thread_snapshot_take(baseline->procfd, stat->pid, stat->start_ticks, baseline->now, &snapshot);

	outside_enter(&baseline->outside);
	if (r < 0)
		return; /* gone, or not ours to look at: captures will say so */

	thread_baseline_add(&known->threads, snapshot);
	baseline->threads_left -= stat->threads < baseline->threads_left ? stat->threads : baseline->threads_left;
}

static void take_maps(struct baseline *baseline, struct known *known)
{
	struct maps_snapshot *maps;

	if (!baseline->with_maps || baseline->maps_left == 0)
		return;
	if (known->maps_tried.ns && mono_diff(baseline->now, known->maps_tried) < (int64_t)MAPS_INTERVAL_NS)
		return;

	baseline->maps_left--;
	known->maps_tried = baseline->now;
	outside_leave(&baseline->outside, known->pid);

	int r = maps_snapshot_take(baseline->procfd, known->pid, known->start_ticks, baseline->now, &maps);

	outside_enter(&baseline->outside);
	if (r < 0)
		return;

	free(known->maps);
	known->maps = maps;
	if (!baseline->with_maps) { /* any more */
		free(known->maps);
		known->maps = NULL;
	}
}

void baseline_watched(struct baseline *baseline, const struct procfs_stat *stat, bool ran)
{
	struct known *known = find_or_add(baseline, stat);

	if (!known || known->scan == baseline->scan)
		return; /* no room, or watched by two entries */

	known->scan = baseline->scan;
	if (ran || !known->threads.newer)
		take_threads(baseline, known, stat);
	else
		thread_baseline_still(&known->threads, baseline->now);
	if (ran || !known->maps)
		take_maps(baseline, known);
}

void baseline_unchanged(struct baseline *baseline, const struct procfs_stat *stat)
{
	struct known *known = find(baseline, stat->pid);

	if (!known || known->start_ticks != stat->start_ticks)
		return;

	known->scan = baseline->scan;
	thread_baseline_still(&known->threads, baseline->now);
}

static bool maps_are_due(const struct baseline *baseline, const struct known *known)
{
	return !known->maps_tried.ns || mono_diff(baseline->now, known->maps_tried) >= (int64_t)MAPS_INTERVAL_NS;
}

bool baseline_owes(const struct baseline *baseline, int32_t pid)
{
	const struct known *known = find(baseline, pid);

	return known && (!known->threads.newer || (baseline->with_maps && baseline->maps_left > 0 && !known->maps &&
						   maps_are_due(baseline, known)));
}

void baseline_scan_end(struct baseline *baseline)
{
	struct busy_snapshot finished;

	busy_snapshot_end(&baseline->growing);
	finished = baseline->growing;
	baseline->growing = baseline->whole;
	baseline->whole = finished;
	baseline->serve_from = baseline->starved;

	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct known **at = &baseline->buckets[i]; *at;) {
			struct known *known = *at;

			if (known->scan == baseline->scan) {
				at = &known->next;
				continue;
			}
			*at = known->next;
			baseline->count--;
			free_known(known);
		}
	}
}

/* ---- copies ---- */

static void *copy_bytes(const void *data, size_t size)
{
	void *copy = data ? malloc(size) : NULL;

	if (copy)
		memcpy(copy, data, size);

	return copy;
}

static struct thread_snapshot *copy_threads(const struct thread_snapshot *snapshot)
{
	return copy_bytes(snapshot, snapshot ? sizeof *snapshot + snapshot->count * sizeof snapshot->records[0] : 0);
}

void baseline_copy(const struct baseline *baseline, int32_t pid, struct thread_baseline *ret_threads,
		   struct maps_snapshot **ret_maps)
{
	const struct known *known = find(baseline, pid);

	*ret_threads = (struct thread_baseline){ 0 };
	*ret_maps = NULL;
	if (!known)
		return;

	ret_threads->older = copy_threads(known->threads.older);
	ret_threads->newer = copy_threads(known->threads.newer);
	*ret_maps =
		copy_bytes(known->maps,
			   known->maps ? sizeof *known->maps + known->maps->count * sizeof known->maps->records[0] : 0);
}

int baseline_copy_busy(const struct baseline *baseline, struct busy_snapshot *ret)
{
	return busy_snapshot_copy(ret, &baseline->whole);
}
