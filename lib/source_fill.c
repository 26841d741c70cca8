/*
 * source_fill.c: one array of what is read, one loop over what is due.
 *
 * When each entry is due is in an array of its own, four bytes an entry: that is all that a fill touches of those that are not. Of an entry that is,
 * the first two cache lines (source_format.h); the next entry's are fetched while the kernel answers for this one.
 *
 * Points in time are there as steps of 65 us since the first fill, rounded down: an entry may be looked at so much too early, never too late.
 *
 * A group is a sum (sum.h) that is moved whenever a member changed, so its cost is that of the members that moved.
 *
 * Rejected: reading each kind through a table of functions (an indirect call for each of thousands of looks that cost
 * 200 ns); the time of a pass as the time of its reads (hundreds of them take long enough to fake spikes); a timing wheel, which
 * finds what is due without a look at the rest: but these looks cost 0.3 ns each, and entries come, go, wake and change
 * their place in the array.
 */
#include "source.h"

#include "cgroup.h"
#include "idlepace.h"
#include "source_format.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* A look at an idle process takes 200 ns, asking for the time 20: one answer stands for so many looks in a row, some 3 us. */
#define LOOKS_PER_TIME 16

/* Of a due time. They are compared by difference, which holds for 2^31 of them (39 h): see begin_fill. */
#define STEP_SHIFT 16
#define FILLS_APART_MAX_NS (3600 * NS_PER_S)

/* Entries that stand beside each other were as a rule made one after the other and are near each other in memory: so many are looked at together. */
#define NEIGHBOURS 8

/* Groups are in the array like all, but due on their own account. In steps: 19 h. */
#define NEVER_STEPS (1u << 30)

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
	mono_t at = clock_mono(&source->clock);
	if (r < 0)
		entry->sample = before; /* not what was read of it, by halves, when it ended */
	if (r < 0 && r != -ESRCH) {
		source->failed_reads++;
		entry->status = SOURCE_SAME;
		entry->blind = true;
		entry->changed = at; /* for all one knows */
		return;
	}

	put_limits(entry);
	entry->at = at;
	if (r == -ESRCH) {
		mark_gone(entry);
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

/* Its CPU time alone is new, and whatever the cold side has said. */
static void take_clock(struct source *source, struct source_entry *entry)
{
	gate_take_clock(&entry->gate, &entry->sample);
	entry->at = clock_mono(&source->clock);
	put_limits(entry);
	entry->status = SOURCE_CHANGED;
	entry->fresh = false;
	if (entry->member_of)
		sum_update(&entry->member_of->sum, &entry->part, &entry->sample);
}

/* For how long the files of a process may be left unread after it ran: while one that sleeps may be left without a look. */
static uint64_t patience_of(const struct source *source, const struct source_entry *entry)
{
	uint64_t idle_ns = atomic_load_explicit(&entry->idle_ns, memory_order_relaxed);

	if (idle_ns > source->pace.idle_ns)
		idle_ns = source->pace.idle_ns;

	return idle_ns > source->pace.interval_ns ? idle_ns : 0;
}

static void fill_process(struct source *source, struct source_entry *entry, mono_t now)
{
	enum gate_due due = gate_look(&entry->gate, &source->gate, now, patience_of(source, entry));
	if (due == GATE_FILES) {
		read_process(source, entry, now);
		source->looks = 0; /* a read takes long enough to ask again */
		return;
	}

	source->skipped_reads++;
	if (due == GATE_CLOCK) {
		take_clock(source, entry);
		return;
	}

	entry->at = time_of_look(source);
	entry->status = SOURCE_SAME;
	if (!has_new_limits(entry) && !entry->fresh)
		return;

	struct sample before = entry->sample;

	put_limits(entry); /* as a rule, new ones say what the old ones said */
	if (is_changed(entry, &before))
		entry->status = SOURCE_CHANGED;
	entry->fresh = false;
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

	source->failed_reads += r < 0;
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

static bool to_be_shown(const struct source *source, const struct source_entry *entry)
{
	if (entry->blind)
		return false;

	return entry->status != SOURCE_SAME || source->roused ||
	       mono_diff(entry->at, entry->shown) >= (int64_t)source->gate.heartbeat_ns;
}

static void show(struct source *source, struct source_entry *entry)
{
	if (entry->blind && source->roused)
		entry->shown = (mono_t){ 0 }; /* as soon as it can be read */
	if (!to_be_shown(source, entry))
		return;

	entry->shown = entry->at;
	source->seen[source->seen_count++] = entry;
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
	for (uint32_t i = 0; i < source->group_count; i++) {
		fill_group(source->groups[i], at);
		show(source, source->groups[i]);
	}
}

/* In steps, rounded down. */
static uint32_t step_of(const struct source *source, uint64_t ns)
{
	return (uint32_t)((ns - source->origin.ns) >> STEP_SHIFT);
}

static uint32_t process_due(const struct source *source, const struct source_entry *entry, mono_t now)
{
	int64_t still_ns = mono_diff(now, entry->changed);
	uint64_t idle_ns = atomic_load_explicit(&entry->idle_ns, memory_order_relaxed);
	struct idlepace pace = source->pace;

	if (idle_ns < pace.idle_ns)
		pace.idle_ns = idle_ns;

	uint64_t wait_ns = idlepace_wait_ns(&pace, still_ns > 0 ? (uint64_t)still_ns : 0, source->fills,
					    entry->index / NEIGHBOURS);

	if (entry->gate.unread && entry->gate.due_ns < now.ns + wait_ns)
		wait_ns = entry->gate.due_ns > now.ns ? entry->gate.due_ns - now.ns : 0;
	if (entry->member_of) {
		uint64_t grid_ns = source->idle_grid_ns;
		uint64_t left_ns = grid_ns > 0 ? grid_ns - now.ns % grid_ns : 0;

		wait_ns = left_ns < wait_ns ? left_ns : wait_ns;
	}

	return step_of(source, now.ns + wait_ns);
}

/* A cgroup is not only read, but also asked for new limits. */
static uint32_t cgroup_due(const struct source *source, const struct source_entry *entry, mono_t now)
{
	uint64_t soonest_ns = now.ns + source->pace.idle_ns;

	return step_of(source, entry->cgroup_due_ns < soonest_ns ? entry->cgroup_due_ns : soonest_ns);
}

/* What is gone is met again in every fill until it is removed. */
static uint32_t next_due(const struct source *source, const struct source_entry *entry, mono_t now)
{
	if (entry->status == SOURCE_GONE)
		return source->step;
	if (entry->kind == ENTRY_PROCESS)
		return process_due(source, entry, now);

	return entry->kind == ENTRY_CGROUP ? cgroup_due(source, entry, now) : source->step + NEVER_STEPS;
}

/* It was seen as it is; one that could not be read was not: it was still as before when it was seen last, as after a pause. */
static void note_look(const struct source *source, struct source_entry *entry, mono_t before)
{
	entry->before = entry->fill + 1 != source->fills ? before : (mono_t){ 0 };
	entry->fill = source->fills;
	if (entry->status == SOURCE_CHANGED || source->roused)
		entry->changed = entry->at;
}

static void look(struct source *source, struct source_entry *entry, mono_t now)
{
	mono_t before = entry->at;

	entry->blind = false;
	if (entry->status != SOURCE_GONE && entry->kind == ENTRY_PROCESS)
		fill_process(source, entry, now);
	else if (entry->status != SOURCE_GONE && entry->kind == ENTRY_CGROUP)
		fill_cgroup(source, entry, now);
	if (!entry->blind)
		note_look(source, entry, before);
	source->due[entry->index] = next_due(source, entry, now);
	if (entry->status == SOURCE_GONE && entry->member_of)
		source->gone[source->gone_count++] = entry;
}

static void begin_fill(struct source *source, mono_t now)
{
	bool first = source->fills++ == 0;
	bool lost = first || mono_diff(now, source->filled) > (int64_t)FILLS_APART_MAX_NS;

	if (first)
		source->origin = now;
	source->filled = now;
	source->step = step_of(source, now.ns);
	if (lost)
		source_all_due(source);
	source->gone_count = 0;
	source->seen_count = 0;
	source->looks = 0;
}

/* Into `seen`, which is overwritten from its beginning while it is worked off. */
static uint32_t find_due(struct source *source)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < source->count; i++)
		if ((int32_t)(source->step - source->due[i]) >= 0)
			source->seen[count++] = source->entries[i];

	return count;
}

static void fetch(const struct source_entry *entry)
{
	__builtin_prefetch(&entry->changed, 1);
	__builtin_prefetch(&entry->kind, 1);
}

void source_fill(struct source *source, mono_t now)
{
	uint32_t processes = 0;

	begin_fill(source, now);

	uint32_t count = find_due(source);
	for (uint32_t i = 0; i < count; i++) {
		struct source_entry *entry = source->seen[i];

		if (i + 1 < count)
			fetch(source->seen[i + 1]);
		look(source, entry, now);
		processes += entry->kind == ENTRY_PROCESS;
		if (!entry->member_of && entry->kind != ENTRY_GROUP)
			show(source, entry);
	}
	source->saved_looks += source->process_count - processes;
	fill_groups(source);
	source->roused = false;
}
