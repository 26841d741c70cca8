/*
 * source_entry.c: the cold side of a source: entries and rooms are made and freed here, files are opened here.
 *
 * What the cold side has to say of an entry that is in a source (limits, files) it leaves in atomic words of the entry and then raises
 * a flag in its first cache line, where the next fill sees it in passing.
 */
#include "source.h"

#include "cgroup.h"
#include "scope.h"
#include "source_format.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

static int new_entry(enum entry_kind kind, void *user, struct source_entry **ret)
{
	struct source_entry *entry = aligned_alloc(_Alignof(struct source_entry), sizeof(*entry));
	if (!entry)
		return -ENOMEM;

	*entry = (struct source_entry){
		.kind = (uint8_t)kind,
		.status = SOURCE_SAME,
		.index = SOURCE_NO_INDEX,
		.listed_index = SOURCE_NO_INDEX,
		.idle_ns = UINT64_MAX,
		.cpu_limit = UINT64_MAX,
		.memory_limit = UINT64_MAX,
		.user = user,
	};
	*ret = entry;
	return 0;
}

static int new_process(const struct gate_process *process, void *user, struct source_entry **ret)
{
	struct source_entry *entry;

	int r = new_entry(ENTRY_PROCESS, user, &entry);
	if (r < 0)
		return r;

	r = gate_init(&entry->gate, process, &entry->sample);
	if (r < 0) {
		free(entry);
		return r;
	}

	*ret = entry;
	return 0;
}

int source_entry_process(int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock, void *user,
			 struct source_entry **ret)
{
	struct gate_process process = { procfd, pid, start_ticks, with_cpu_clock, .cold = false };

	return new_process(&process, user, ret);
}

int source_entry_process_cold(int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock, void *user,
			      struct source_entry **ret)
{
	struct gate_process process = { procfd, pid, start_ticks, with_cpu_clock, .cold = true };

	return new_process(&process, user, ret);
}

static void free_entry(struct source_entry **entry)
{
	source_entry_free(*entry);
}

int source_entry_cgroup(const struct cgroup_mounts *mounts, const char *path, void *user, struct source_entry **ret)
{
	AUTO(free_entry) struct source_entry *entry = NULL;
	AUTO_FREE struct cgroup_files *files = NULL;

	int r = new_entry(ENTRY_CGROUP, user, &entry);
	if (r < 0)
		return r;

	files = calloc(1, sizeof(*files));
	if (!files)
		return -ENOMEM;

	r = cgroup_files_init(files, mounts, path);
	if (r < 0)
		return r;

	entry->cgroup = TAKE(files);
	*ret = TAKE(entry);
	return 0;
}

int source_entry_group(void *user, struct source_entry **ret)
{
	AUTO(free_entry) struct source_entry *entry = NULL;

	int r = new_entry(ENTRY_GROUP, user, &entry);
	if (r < 0)
		return r;

	entry->group = calloc(1, sizeof(*entry->group));
	if (!entry->group)
		return -ENOMEM;

	sample_set(&entry->sample, SAMPLE_PROCESSES, 0);
	*ret = TAKE(entry);
	return 0;
}

void source_entry_free(struct source_entry *entry)
{
	if (!entry)
		return;

	assert(entry->index == SOURCE_NO_INDEX);

	if (entry->kind == ENTRY_PROCESS)
		gate_release(&entry->gate);
	if (entry->cgroup)
		cgroup_files_release(entry->cgroup);
	free(entry->cgroup);
	free(entry->group);
	free(entry);
}

/* The flag is set after the values: whoever sees it sees them, or newer ones of which the flag will tell again. */
void source_entry_set_limits(struct source_entry *entry, uint64_t cpu_limit, uint64_t memory_limit)
{
	atomic_store_explicit(&entry->cpu_limit, cpu_limit, memory_order_relaxed);
	atomic_store_explicit(&entry->memory_limit, memory_limit, memory_order_relaxed);
	atomic_store_explicit(&entry->limits_set, true, memory_order_release);
}

void source_entry_set_whole(struct source_entry *entry)
{
	entry->whole = true;
}

void source_entry_set_since(struct source_entry *entry, const struct sample *since)
{
	sum_begin(&entry->part, since, &entry->sample);
	entry->whole = true;
}

void source_entry_credit(struct source_entry *group, const struct source_entry *member, const struct sample *end)
{
	static const struct sum_part nothing = { 0 };
	struct sum_part part = member ? member->part : nothing;
	struct sum sum = { 0 };

	assert(group->kind == ENTRY_GROUP);

	sum_update(&sum, &part, end);
	for (int i = 0; i < SUM_COUNTERS; i++)
		atomic_fetch_add_explicit(&group->group->credit[i], sum.value[i], memory_order_relaxed);
	atomic_store_explicit(&group->group->credited, true, memory_order_release);
}

/* Those that say which files are needed. */
static struct gate_options files_options(const struct source_options *wanted)
{
	return (struct gate_options){
		.peak_interval_ns = wanted->peak_interval_ns,
		.fds_interval_ns = wanted->fds_interval_ns,
		.reset_peaks = wanted->reset_peaks,
	};
}

int source_entry_reopen(struct source_entry *entry, int procfd, int32_t pid, uint64_t start_ticks,
			const struct source_options *wanted)
{
	assert(entry->kind == ENTRY_PROCESS);

	struct gate_options options = files_options(wanted);

	return gate_reopen(&entry->gate, procfd, pid, start_ticks, &options);
}

int source_entry_warm(struct source_entry *entry, const struct source_options *wanted)
{
	assert(entry->kind == ENTRY_PROCESS);

	struct gate_options options = files_options(wanted);

	return gate_warm(&entry->gate, &options);
}

void source_entry_chill(struct source_entry *entry)
{
	assert(entry->kind == ENTRY_PROCESS);

	gate_chill(&entry->gate);
}

bool source_entry_is_cold(const struct source_entry *entry)
{
	return entry->kind == ENTRY_PROCESS && gate_is_cold(&entry->gate);
}

uint32_t source_entry_runs(const struct source_entry *entry)
{
	return gate_runs(&entry->gate);
}

void source_entry_need(struct source_entry *entry, bool peak, bool fds)
{
	assert(entry->kind == ENTRY_PROCESS);

	gate_need(&entry->gate, peak, fds);
}

void source_entry_set_idle(struct source_entry *entry, uint64_t idle_ns)
{
	atomic_store_explicit(&entry->idle_ns, idle_ns, memory_order_relaxed);
}

int source_room_new(uint32_t capacity, struct source_room **ret)
{
	size_t each = SOURCE_LISTS * sizeof(struct source_entry *) + sizeof(uint32_t);
	struct source_room *room = calloc(1, sizeof(*room) + capacity * each);
	if (!room)
		return -ENOMEM;

	room->capacity = capacity;
	*ret = room;
	return 0;
}

void source_room_free(struct source_room *room)
{
	free(room);
}
