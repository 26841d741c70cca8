/*
 * source.c: who is in a source, and what is in force. What a fill does is in source_fill.c.
 *
 * All arrays are in one room (source_format.h), which is exchanged for another when the capacity changes; nothing else is allocated after the start.
 */
#include "source.h"

#include "source_format.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_HEARTBEAT_NS NS_PER_S

/*
 * How much CPU time a process may use before its files are read again: a fiftieth of a core, so what uses more is read in every fill, and at most what
 * it takes to touch a megabyte or a huge page of new memory: 0.4 to 1.1 MiB with pages of 4 KiB, 1 to 2 MiB with huge ones.
 */
#define UNREAD_SHARE 50
#define UNREAD_MAX_NS (200 * NS_PER_US)

/* ---- owner thread ---- */

static void move_into(struct source *source, struct source_room *room)
{
	struct source_entry **entries = room->slots;
	struct source_entry **listed = entries + room->capacity;
	struct source_entry **groups = listed + room->capacity;
	struct source_entry **rest = groups + room->capacity;
	uint32_t *due = (uint32_t *)(void *)(room->slots + (size_t)SOURCE_LISTS * room->capacity);

	if (source->count > 0) {
		memcpy(entries, source->entries, source->count * sizeof(struct source_entry *));
		memcpy(listed, source->listed, source->listed_count * sizeof(struct source_entry *));
		memcpy(groups, source->groups, source->group_count * sizeof(struct source_entry *));
		memcpy(due, source->due, source->count * sizeof(due[0]));
	}
	source->room = room;
	source->entries = entries;
	source->listed = listed;
	source->groups = groups;
	source->due = due;
	source->gone = rest;
	source->gone_count = 0;
	source->seen = rest + room->capacity;
	source->seen_count = 0;
}

static void set_unread_max(struct source *source)
{
	uint64_t share_ns = source->pace.interval_ns / UNREAD_SHARE;

	source->gate.unread_max_ns = share_ns < UNREAD_MAX_NS ? share_ns : UNREAD_MAX_NS;
}

static void set_options(struct source *source, const struct source_options *options)
{
	source->gate = (struct gate_options){
		.heartbeat_ns = options->heartbeat_ns != 0 ? options->heartbeat_ns : DEFAULT_HEARTBEAT_NS,
		.peak_interval_ns = options->peak_interval_ns,
		.fds_interval_ns = options->fds_interval_ns,
		.reset_peaks = options->reset_peaks,
		.ungated = options->ungated,
	};
	source->pace = (struct idlepace){
		.interval_ns = options->interval_ns,
		.idle_ns = options->ungated ? 0 : options->idle_interval_ns,
	};
	set_unread_max(source);
	source->idle_grid_ns = options->idle_grid_ns;
	source->cgroup_interval_ns = options->cgroup_interval_ns;
	source->capacity = options->capacity;
}

int source_new(const struct source_options *options, const struct clock *clock, struct source **ret)
{
	struct source *source = calloc(1, sizeof(*source));
	if (!source)
		return -ENOMEM;

	struct source_room *room;
	int r = source_room_new(options->capacity, &room);
	if (r < 0) {
		free(source);
		return r;
	}

	set_options(source, options);
	source->clock = *clock;
	move_into(source, room);
	*ret = source;
	return 0;
}

void source_free(struct source *source)
{
	if (!source)
		return;

	for (uint32_t i = 0; i < source->count; i++)
		source->entries[i]->index = SOURCE_NO_INDEX;
	source_room_free(source->room);
	free(source);
}

static void retune_entry(struct source *source, struct source_entry *entry, const struct gate_options *before,
			 mono_t now)
{
	uint64_t cgroup_due_ns = now.ns + source->cgroup_interval_ns;

	if (entry->kind == ENTRY_CGROUP && cgroup_due_ns < entry->cgroup_due_ns)
		entry->cgroup_due_ns = cgroup_due_ns;
	if (entry->kind != ENTRY_PROCESS || entry->status == SOURCE_GONE ||
	    !gate_retune(&entry->gate, before, &source->gate, now, &entry->sample))
		return;

	entry->fresh = true;
	if (entry->member_of)
		sum_update(&entry->member_of->sum, &entry->part, &entry->sample);
}

void source_set_interval(struct source *source, uint64_t interval_ns)
{
	source->pace.interval_ns = interval_ns;
	set_unread_max(source);
}

void source_rouse(struct source *source)
{
	source->roused = true;
	source_all_due(source);
}

struct source_room *source_retune(struct source *source, const struct source_options *options, mono_t now,
				  struct source_room *room)
{
	struct gate_options before = source->gate;

	set_options(source, options);
	for (uint32_t i = 0; i < source->count; i++)
		retune_entry(source, source->entries[i], &before, now);
	source_all_due(source);
	if (source->count > room->capacity)
		return room;

	struct source_room *spent = source->room;

	move_into(source, room);
	return spent;
}

int source_add(struct source *source, struct source_entry *entry, struct source_entry *group)
{
	assert(entry->index == SOURCE_NO_INDEX);
	assert(!group || (group->kind == ENTRY_GROUP && entry->kind == ENTRY_PROCESS));

	if (source->count >= source->capacity)
		return -ENOSPC;

	entry->fresh = true;
	if (entry->kind == ENTRY_PROCESS)
		gate_arm(&entry->gate, &source->gate, source->count);
	entry->index = source->count;
	entry->fill = source->fills;
	entry->at = entry->shown = (mono_t){ 0 };
	source->due[source->count] = source->step;
	source->entries[source->count++] = entry;
	source->process_count += entry->kind == ENTRY_PROCESS;
	if (entry->kind == ENTRY_GROUP)
		source->groups[source->group_count++] = entry;
	if (group) {
		entry->member_of = group->group;
		entry->member_of->members++;
		sum_join(&entry->member_of->sum, &entry->part, &entry->sample, entry->whole);
	} else {
		entry->listed_index = source->listed_count;
		source->listed[source->listed_count++] = entry;
	}

	return 0;
}

static void forget_group(struct source *source, const struct source_entry *group)
{
	uint32_t i = 0;

	while (source->groups[i] != group)
		i++;
	source->groups[i] = source->groups[--source->group_count];
}

void source_remove(struct source *source, struct source_entry *entry)
{
	assert(entry->index < source->count && source->entries[entry->index] == entry);
	assert(!entry->group || entry->group->members == 0);

	struct source_entry *last = source->entries[--source->count];
	source->entries[entry->index] = last;
	source->due[entry->index] = source->due[source->count];
	last->index = entry->index;
	entry->index = SOURCE_NO_INDEX;
	source->process_count -= entry->kind == ENTRY_PROCESS;
	if (entry->kind == ENTRY_GROUP)
		forget_group(source, entry);
	if (entry->member_of) {
		if (entry->status != SOURCE_GONE)
			sum_leave(&entry->member_of->sum, &entry->part);
		entry->member_of->members--;
		entry->member_of = NULL;
	} else {
		last = source->listed[--source->listed_count];
		source->listed[entry->listed_index] = last;
		last->listed_index = entry->listed_index;
		entry->listed_index = SOURCE_NO_INDEX;
	}
}

/* ---- what is in it ---- */

struct source_entry *const *source_entries(const struct source *source, size_t *ret_count)
{
	*ret_count = source->listed_count;
	return source->listed;
}

struct source_entry *const *source_seen(const struct source *source, size_t *ret_count)
{
	*ret_count = source->seen_count;
	return source->seen;
}

struct source_entry *const *source_gone_members(const struct source *source, size_t *ret_count)
{
	*ret_count = source->gone_count;
	return source->gone;
}

void source_counters(const struct source *source, struct source_counters *ret)
{
	*ret = (struct source_counters){
		.skipped_reads = source->skipped_reads,
		.saved_looks = source->saved_looks,
		.failed_reads = source->failed_reads,
	};
}

enum source_status source_entry_status(const struct source_entry *entry)
{
	return (enum source_status)entry->status;
}

mono_t source_entry_at(const struct source_entry *entry)
{
	return entry->at;
}

bool source_entry_woke(const struct source_entry *entry, mono_t *ret_before)
{
	if (entry->kind != ENTRY_PROCESS || entry->status != SOURCE_CHANGED || entry->before.ns == 0)
		return false;

	*ret_before = entry->before;
	return true;
}

const struct sample *source_entry_sample(const struct source_entry *entry)
{
	return &entry->sample;
}

void *source_entry_user(const struct source_entry *entry)
{
	return entry->user;
}
