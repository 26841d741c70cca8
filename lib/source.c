/*
 * source.c: one array of what is read, one loop over it.
 *
 * An entry's first cache line (source_format.h) is all that a look at an idle process touches; the next entry's is fetched while the
 * kernel answers for this one.
 *
 * A group is a sum (sum.h) that is moved whenever a member changed, so its cost is that of the members that moved.
 *
 * Rejected: reading each kind through a table of functions (an indirect call for each of thousands of looks that cost
 * 200 ns); the time of a pass as the time of its reads (hundreds of them take long enough to fake spikes).
 */
#include "source.h"

#include "cgroup.h"
#include "source_format.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_HEARTBEAT_NS NS_PER_S

/* A look at an idle process takes 200 ns, asking for the time 20: one answer stands for so many looks in a row, some 3 us. */
#define LOOKS_PER_TIME 16

struct source {
	struct gate_options gate;
	uint64_t cgroup_interval_ns;
	struct clock clock;
	mono_t looked_at; /* when idle processes are being looked at */
	uint32_t looks;   /* since that was asked */
	struct source_counters counters;
	struct source_room *room;
	struct source_entry **entries; /* in the room: everything inside */
	struct source_entry **listed;  /* all but members */
	struct source_entry **gone;    /* members, as of the last fill */
	uint32_t capacity;             /* the room's; less after source_retune if more were inside */
	uint32_t count;
	uint32_t listed_count;
	uint32_t gone_count;
	uint32_t group_count;
};

/* ---- owner thread ---- */

static void move_into(struct source *source, struct source_room *room)
{
	struct source_entry **entries = room->slots;
	struct source_entry **listed = entries + room->capacity;

	if (source->count > 0) {
		memcpy(entries, source->entries, source->count * sizeof(struct source_entry *));
		memcpy(listed, source->listed, source->listed_count * sizeof(struct source_entry *));
	}
	source->room = room;
	source->entries = entries;
	source->listed = listed;
	source->gone = listed + room->capacity;
	source->gone_count = 0;
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

struct source_room *source_retune(struct source *source, const struct source_options *options, mono_t now,
				  struct source_room *room)
{
	struct gate_options before = source->gate;

	set_options(source, options);
	for (uint32_t i = 0; i < source->count; i++)
		retune_entry(source, source->entries[i], &before, now);
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
	source->entries[source->count++] = entry;
	source->group_count += entry->kind == ENTRY_GROUP;
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

void source_remove(struct source *source, struct source_entry *entry)
{
	assert(entry->index < source->count && source->entries[entry->index] == entry);
	assert(!entry->group || entry->group->members == 0);

	struct source_entry *last = source->entries[--source->count];
	source->entries[entry->index] = last;
	last->index = entry->index;
	entry->index = SOURCE_NO_INDEX;
	source->group_count -= entry->kind == ENTRY_GROUP;
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

/* ---- the tick ---- */

static void put_limit(struct sample *sample, enum sample_field field, uint64_t limit)
{
	if (limit == UINT64_MAX)
		sample_unset(sample, field);
	else
		sample_set(sample, field, limit);
}

static void put_limits(struct source_entry *entry)
{
	atomic_exchange_explicit(&entry->limits_set, false, memory_order_acquire);
	put_limit(&entry->sample, SAMPLE_CPU_LIMIT, atomic_load_explicit(&entry->cpu_limit, memory_order_relaxed));
	put_limit(&entry->sample, SAMPLE_MEMORY_LIMIT,
		  atomic_load_explicit(&entry->memory_limit, memory_order_relaxed));
}

static bool has_new_limits(const struct source_entry *entry)
{
	return atomic_load_explicit(&entry->limits_set, memory_order_relaxed);
}

/* Values of fields that are unavailable take part: they change only when they are written. */
static bool is_changed(const struct source_entry *entry, const struct sample *before)
{
	return entry->fresh || memcmp(&entry->sample, before, sizeof(*before)) != 0;
}

static void mark_gone(struct source_entry *entry)
{
	entry->status = SOURCE_GONE;
	if (entry->member_of)
		sum_leave(&entry->member_of->sum, &entry->part);
}

static void read_process(struct source *source, struct source_entry *entry, mono_t now)
{
	struct sample before = entry->sample;

	int r = gate_read(&entry->gate, &source->gate, now, &entry->sample);
	put_limits(entry);
	entry->at = clock_mono(&source->clock);
	if (r == -ESRCH) {
		mark_gone(entry);
		return;
	}
	if (r < 0) {
		source->counters.failed_reads++;
		entry->status = SOURCE_SAME;
		return;
	}

	entry->status = is_changed(entry, &before) ? SOURCE_CHANGED : SOURCE_SAME;
	entry->fresh = false;
	if (entry->status == SOURCE_CHANGED && entry->member_of)
		sum_update(&entry->member_of->sum, &entry->part, &entry->sample);
}

static mono_t time_of_look(struct source *source)
{
	if (source->looks++ % LOOKS_PER_TIME == 0)
		source->looked_at = clock_mono(&source->clock);

	return source->looked_at;
}

static void fill_process(struct source *source, struct source_entry *entry, mono_t now)
{
	if (gate_look(&entry->gate, &source->gate, now)) {
		read_process(source, entry, now);
		source->looks = 0; /* a read takes long enough to ask again */
		return;
	}

	source->counters.skipped_reads++;
	entry->at = time_of_look(source);
	entry->status = SOURCE_SAME;
	if (has_new_limits(entry) || entry->fresh) {
		put_limits(entry);
		entry->fresh = false;
		entry->status = SOURCE_CHANGED;
	}
}

static void fill_cgroup(struct source *source, struct source_entry *entry, mono_t now)
{
	entry->status = SOURCE_SAME;
	if (now.ns < entry->cgroup_due_ns && !has_new_limits(entry))
		return;

	struct sample before = entry->sample;
	int r = cgroup_files_read(entry->cgroup, &entry->sample);
	if (source->gate.reset_peaks)
		cgroup_files_reset_peak(entry->cgroup);
	entry->at = clock_mono(&source->clock);
	put_limits(entry);
	if (r == -ENOENT) {
		mark_gone(entry);
		return;
	}

	source->counters.failed_reads += r < 0;
	entry->cgroup_due_ns = now.ns + source->cgroup_interval_ns;
	entry->status = is_changed(entry, &before) ? SOURCE_CHANGED : SOURCE_SAME;
	entry->fresh = false;
}

/* What is added after the flag was cleared raises it again. */
static void take_credit(struct group *group)
{
	uint64_t counters[SUM_COUNTERS];

	if (!atomic_load_explicit(&group->credited, memory_order_relaxed))
		return;

	atomic_exchange_explicit(&group->credited, false, memory_order_acquire);
	for (int i = 0; i < SUM_COUNTERS; i++)
		counters[i] = atomic_exchange_explicit(&group->credit[i], 0, memory_order_relaxed);
	sum_credit(&group->sum, counters);
}

static void fill_group(struct source_entry *entry, mono_t at)
{
	struct sum *sum = &entry->group->sum;

	take_credit(entry->group);
	entry->at = at;
	entry->status = SOURCE_SAME;
	if (!sum->changed && !entry->fresh && !has_new_limits(entry))
		return;

	sum_sample(sum, &entry->sample);
	put_limits(entry);
	entry->fresh = false;
	entry->status = SOURCE_CHANGED;
}

/* Sums are complete once every member was read, wherever it stands. */
static void fill_groups(struct source *source)
{
	if (source->group_count == 0)
		return;

	mono_t at = clock_mono(&source->clock);
	for (uint32_t i = 0; i < source->listed_count; i++) {
		if (source->listed[i]->kind == ENTRY_GROUP)
			fill_group(source->listed[i], at);
	}
}

void source_fill(struct source *source, mono_t now)
{
	source->gone_count = 0;
	source->looks = 0;
	for (uint32_t i = 0; i < source->count; i++) {
		struct source_entry *entry = source->entries[i];

		if (i + 1 < source->count)
			__builtin_prefetch(source->entries[i + 1], 1);
		if (entry->status != SOURCE_GONE && entry->kind == ENTRY_PROCESS)
			fill_process(source, entry, now);
		else if (entry->status != SOURCE_GONE && entry->kind == ENTRY_CGROUP)
			fill_cgroup(source, entry, now);
		if (entry->status == SOURCE_GONE && entry->member_of)
			source->gone[source->gone_count++] = entry;
	}
	fill_groups(source);
}

struct source_entry *const *source_entries(const struct source *source, size_t *ret_count)
{
	*ret_count = source->listed_count;
	return source->listed;
}

struct source_entry *const *source_gone_members(const struct source *source, size_t *ret_count)
{
	*ret_count = source->gone_count;
	return source->gone;
}

void source_counters(const struct source *source, struct source_counters *ret)
{
	*ret = source->counters;
}

enum source_status source_entry_status(const struct source_entry *entry)
{
	return (enum source_status)entry->status;
}

mono_t source_entry_at(const struct source_entry *entry)
{
	return entry->at;
}

const struct sample *source_entry_sample(const struct source_entry *entry)
{
	return &entry->sample;
}

void *source_entry_user(const struct source_entry *entry)
{
	return entry->user;
}
