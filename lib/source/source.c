/*
 * source.c: one array of what is read, one loop over what is due.
 *
 * All arrays are in one room, which is exchanged for another when the capacity changes; nothing
 * else is allocated after the start.
 *
 * Threads. The owner thread fills. The control thread makes and frees entries and opens files; what
 * it has for an entry that is in a source (limits, files, exit usage) it leaves in atomic words of
 * the entry and then sets a flag in its first cache lines, where the next fill sees it in passing.
 *
 * When each entry is due is in an array of its own, four bytes an entry, and the soonest of each sixteen
 * neighbours in another: of those that are not due a fill touches no more than the latter. Points in
 * time are steps of 65 us since the first fill, rounded down: an entry may be read so much too early,
 * never too late.
 *
 * Of a process that sleeps a fill touches 16 bytes (quick_look), which say what its clock showed and
 * until when that is all there is to be known: with a thousand processes the kernel's own records fill
 * the caches, and each line that is touched here drives one of those out. Only where the clock has moved,
 * or something else is due, is the entry itself looked at. When quick looks were, is noted once for
 * sixteen neighbours and taken into the entry when it leaves them (end_quick). What the control thread
 * sets in an entry therefore sets a flag of the source, too: the next fill then looks at all entries.
 *
 * A group is a sum that is changed by differences whenever a member changed, so its cost is that of
 * the members that changed. A counter contributes the growth of the highest value seen: the
 * kernel's CPU counters step back by a little at times, and catching up must not be counted again.
 *
 * Rejected: reading each kind through a table of functions (an indirect call for each of thousands
 * of looks that cost 200 ns); the time of a pass as the time of its reads (hundreds of them take
 * long enough to fake spikes); a timing wheel, which finds what is due without a look at the rest:
 * but these looks cost 0.3 ns each, and entries come, go, wake and change their place in the array.
 */
#include "lib/source/source.h"

#include "lib/cgroup/cgroup.h"
#include "lib/cgroup/cgroup_mounts.h"
#include "lib/model/pacing.h"
#include "lib/source/cpu_accounts.h"
#include "lib/source/process.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE_CACHE_LINE 64

/* Not in a source, or not listed. */
#define SOURCE_NO_INDEX UINT32_MAX

enum entry_kind { ENTRY_PROCESS, ENTRY_CGROUP, ENTRY_GROUP };

/*
 * Members that are gone and not yet removed are in `members` of the group, and no longer in the
 * sum.
 */
struct source_group {
	struct sum sum;
	uint32_t members;
	uint64_t ahead[SUM_COUNTERS];              /* the control thread's: counted, and to be made up for */
	_Atomic bool has_exit_usage;               /* there is something to be added */
	_Atomic uint64_t exit_usage[SUM_COUNTERS]; /* by the control thread */
	_Atomic uint64_t estimated;                /* the same: CPU_ESTIMATED */
	_Atomic uint64_t late_ns;                  /* the same: CPU_LATE, of what is to be added */
};

/*
 * A cgroup whose usage counter stands still has not run, and is asked nothing else but at heartbeats. It
 * is settled when it was read once more after that and found as before: what grows although nothing runs
 * (pressure) is read as long as it does.
 */
struct source_cgroup {
	struct cgroup_files files;
	uint64_t due_ns;       /* the next look */
	uint64_t heartbeat_ns; /* when to read it although it stands still */
	uint64_t read_cpu_ns;  /* the usage as of the last reading */
	uint64_t told_cpu_ns;  /* the last that its account said */
	uint8_t doublings;     /* of the heartbeat */
	bool settled;
	bool was_followed;     /* ever: a file may be behind its account */
	_Atomic uint32_t runs; /* how often it was found changed; written by the owner of the source */
};

struct source_entry {
	/* Of looks. */
	_Alignas(SOURCE_CACHE_LINE) mono_t changed; /* when a look last saw that it had changed */
	mono_t before;  /* of a process: when the look before the last one was, if a fill came between them; else 0 */
	mono_t shown;   /* `at` when it was last in source_seen */
	uint32_t fill;  /* the number of the fill in which it was last looked at */
	uint32_t index; /* in source->entries */
	struct source_group *member_of; /* of a member */
	_Atomic uint64_t idle_ns;       /* the longest pause of this one */
	_Atomic(struct source_gate *) gate;
	uint32_t gate_moves; /* as of the last look that asked it; 0: none since there is a gate */
	uint32_t gate_due;   /* in steps: when a process is asked whatever the gate says */

	/* The second cache line ends within the reader. */
	_Alignas(SOURCE_CACHE_LINE) uint8_t kind; /* enum entry_kind */
	uint8_t status;                           /* enum source_status */
	bool fresh : 1;                           /* not in source_seen yet */
	bool whole : 1;                           /* of a member: counts from its beginning */
	bool many_threads : 1;                    /* of a process: what a look takes is measured */
	bool unreadable : 1; /* the last look could not read it: `at` and all that is known are older */
	bool is_followed : 1;
	_Atomic bool limits_set;      /* new limits to take over */
	_Atomic bool account_named;   /* `account` is new */
	mono_t at;                    /* but see source_entry_at */
	struct process_reader reader; /* of a process */

	/* These end, with the sample, in the last line that a look at a process touches which ran. */
	void *user;
	struct source_entry *next_followed; /* with the same account: a process may be several targets */
	uint32_t followed;                  /* of one that is followed: the account */
	uint32_t past_fill;                 /* the number of the last fill in which it ran, of those of what is past */
	uint64_t past_cpu_ns, past_wait_ns; /* in that fill */
	struct source_entry *next_past;
	struct sample sample;
	struct sum_part part;            /* of a member: what is in the sum */
	struct source_group *group;      /* of a group */
	struct source_cgroup *cgroup;    /* of a cgroup */
	_Atomic uint32_t account;        /* that the control thread has named */
	uint32_t look_ns;                /* of a process of many threads: what a look takes, as a rule */
	uint32_t listed_index;           /* in source->listed */
	struct source_gate *gate_hold;   /* the control thread's: what it ever was behind */
	_Atomic(struct source *) inside; /* NULL: in none */
	_Atomic uint64_t cpu_limit;
	_Atomic uint64_t memory_limit;
};

/* Read by the source that used it first; to others it is always open. */
struct source_gate {
	struct cgroup_files files;
	uint32_t holders; /* the control thread's */
	_Atomic(const struct source *) owner;
	uint64_t usage_ns;
	uint32_t moves; /* how often it was found to have moved, from 1 on */
	uint32_t fill;  /* the last that read it */
	mono_t at;      /* then */
};

/* All that is needed of a process whose clock stands still. */
struct quick_look {
	uint64_t cpu_ns; /* what the clock says */
	clockid_t clock; /* 0: the entry has to be looked at */
	uint32_t until;  /* in steps: from then on, too */
};

/* So many neighbours have one time of their quick looks (it takes some 3 us), and one when the first is due. */
#define QUICK_NEIGHBOURS 16

/*
 * SOURCE_LISTS arrays of `capacity` pointers; behind them as many quick looks, their times in this fill and
 * in the one before, as many uint32_t, and one of these for each QUICK_NEIGHBOURS.
 */
#define SOURCE_LISTS 5
struct source_room {
	uint32_t capacity;
	struct source_entry *slots[];
};

/* Accounts that have changed are gone through in batches, see note_owners. */
#define NOTED_AT_ONCE 64

struct source {
	struct process_reader_options reader_options;
	struct idle_backoff pace; /* as if there were back-off from all */
	enum source_backoff backoff;
	uint64_t costly_pause_ns[2]; /* the longest from costly processes, in this span and in the one before */
	mono_t costly_since;         /* this span */
	uint64_t idle_grid_ns;
	uint64_t cgroup_interval_ns;
	uint64_t shown_ns; /* after so long an entry is shown although it has not changed */
	struct clock clock;
	mono_t looked_at; /* when idle processes are being looked at */
	uint32_t looks;   /* since that was asked */
	uint64_t all_looks, gated_looks, skipped_reads, saved_looks, failed_reads;
	struct source_room *room;
	struct source_entry **entries; /* in the room: everything inside */
	struct source_entry **listed;  /* all but members */
	struct source_entry **gone;    /* members, as of the last fill */
	struct source_entry **seen;    /* as of the last fill */
	struct source_entry **groups;
	struct quick_look *quick; /* of each of entries */
	mono_t *quick_at[2];      /* of QUICK_NEIGHBOURS of them, in fills of even and odd numbers */
	_Atomic bool asked;       /* the control thread has set something in an entry */
	uint32_t *due;            /* of each of entries */
	uint32_t *soonest;        /* of QUICK_NEIGHBOURS of them, or earlier */
	struct {
		const struct cpu_accounts *shared; /* NULL: there are none */
		struct cpu_accounts_reader *reader;
		struct source_entry **owners; /* of each account; NULL: none is followed */
		uint32_t noted[NOTED_AT_ONCE], noted_count;
		uint32_t count, processes; /* of entries that are followed; of those that are processes */
		uint32_t looks;            /* at them, in this fill */
		mono_t at, before;         /* when the accounts were read, for this fill and the one before */
		mono_t again;              /* the same, the last time: in the middle of a fill that takes long */
		uint64_t overruns;
		struct source_entry *past; /* what ran in the tick that is put together */
		uint64_t calm_use_ns;      /* in this fill */
		bool remembered, hot;      /* since the last fill at the latest; see enum source_calm */
	} accounts;
	uint32_t capacity; /* the room's; less after source_retune if more were inside */
	uint32_t count;
	uint32_t listed_count;
	uint32_t gone_count;
	uint32_t seen_count;
	uint32_t group_count;
	uint32_t process_count;
	uint32_t fills;
	uint32_t step; /* of the last fill */
	mono_t origin; /* step 0 */
	mono_t filled; /* the last fill */
	bool all_due;  /* the next or present fill is for all */
};

/* The entry is looked at itself from now on. last: the number of the last fill that looked at it. */
static void end_quick(struct source *source, uint32_t i, uint32_t last)
{
	struct source_entry *entry = source->entries[i];

	if (source->quick[i].clock != 0 && entry->fill != last) {
		entry->at = source->quick_at[last % 2][i / QUICK_NEIGHBOURS];
		entry->fill = last;
	}
	source->quick[i].clock = 0;
}

/* Between two fills; last is as of the one to come. */
static void end_all_quick(struct source *source, uint32_t last)
{
	for (uint32_t i = 0; i < source->count; i++)
		end_quick(source, i, last);
}

/* The control thread: something was set in the entry that a quick look would not see. */
static void call_attention(struct source_entry *entry)
{
	struct source *source = atomic_load_explicit(&entry->inside, memory_order_acquire);

	if (source)
		atomic_store_explicit(&source->asked, true, memory_order_release);
}

static void set_due(struct source *source, uint32_t i, uint32_t step)
{
	uint32_t *soonest = &source->soonest[i / QUICK_NEIGHBOURS];

	source->due[i] = step;
	if ((int32_t)(step - *soonest) < 0)
		*soonest = step;
}

static void fetch(const struct source_entry *entry)
{
	__builtin_prefetch(&entry->changed, 1);
	__builtin_prefetch(&entry->kind, 1);
}

/* All that a look at a process touches which has run. */
static void fetch_whole(const struct source_entry *entry)
{
	for (const char *line = (const char *)entry; line < (const char *)&entry->part; line += SOURCE_CACHE_LINE)
		__builtin_prefetch(line, 1);
}

/* Of all entries, in the next fill. */
static inline void source_all_due(struct source *source)
{
	for (uint32_t i = 0; i < source->count; i++)
		set_due(source, i, source->step);
}

#define COUNTERS SUM_COUNTERS

static const uint8_t fields[SUM_FIELDS] = {
	SAMPLE_CPU,      SAMPLE_CPU_USER, SAMPLE_CPU_SYSTEM, SAMPLE_MINOR_FAULTS, SAMPLE_MAJOR_FAULTS,
	SAMPLE_CPU_WAIT, SAMPLE_MEMORY,   SAMPLE_THREADS,    SAMPLE_FDS,
};

static uint64_t counter_of(const struct sample *sample, int i)
{
	return sample_has(sample, (enum sample_field)fields[i]) ? sample->value[fields[i]] : 0;
}

void sum_keep(struct sum_counters *kept, const struct sample *sample)
{
	for (int i = 0; i < COUNTERS; i++)
		kept->value[i] = counter_of(sample, i);
	kept->mask = sample->mask;
}

void sum_kept(const struct sum_counters *kept, struct sample *ret)
{
	for (int i = 0; i < COUNTERS; i++)
		if (kept->mask >> fields[i] & 1)
			sample_set(ret, (enum sample_field)fields[i], kept->value[i]);
}

/*
 * Before sum_join with begun: *part's counters count from *since; those that it has not, from *now.
 * A part of {0} counts from 0.
 */
static void sum_begin(struct sum_part *part, const struct sample *since, const struct sample *now)
{
	for (int i = 0; i < COUNTERS; i++)
		part->value[i] = counter_of(sample_has(since, (enum sample_field)fields[i]) ? since : now, i);
}

static void sum_update(struct sum *sum, struct sum_part *part, const struct sample *now)
{
	for (int i = 0; i < SUM_FIELDS; i++) {
		uint32_t had = part->mask >> fields[i] & 1;
		uint32_t has = now->mask >> fields[i] & 1;
		uint64_t value = has ? now->value[fields[i]] : 0;

		if (i < COUNTERS && value < part->value[i])
			value = part->value[i];
		sum->value[i] += value - part->value[i];
		sum->have[i] += has - had;
		part->value[i] = value;
	}
	part->mask = now->mask;
	sum->seen |= now->mask;
	sum->changed = true;
}

/*
 * The part belongs to the sum until it leaves. begun: its counters count from what they are in
 * *part already, and not from *now.
 */
static void sum_join(struct sum *sum, struct sum_part *part, const struct sample *now, bool begun)
{
	for (int i = 0; i < COUNTERS && !begun; i++)
		part->value[i] = counter_of(now, i);
	for (int i = COUNTERS; i < SUM_FIELDS; i++)
		part->value[i] = 0;
	part->mask = 0;
	sum->members++;
	sum_update(sum, part, now);
}

static void sum_leave(struct sum *sum, struct sum_part *part)
{
	static const struct sample nothing = { 0 };

	sum_update(sum, part, &nothing);
	sum->members--;
}

/* Adds to the counters the usage of a process that is no member (any more). */
static void sum_add_usage(struct sum *sum, const uint64_t counters[SUM_COUNTERS])
{
	for (int i = 0; i < COUNTERS; i++) {
		sum->value[i] += counters[i];
		if (counters[i] > 0)
			sum->seen |= 1u << fields[i];
	}
	sum->changed = true;
}

/* Sets the fields above and PROCESSES in *ret, all others become unavailable. */
static void sum_sample(struct sum *sum, struct sample *ret)
{
	ret->mask = 0;
	for (int i = 0; i < SUM_FIELDS; i++) {
		bool seen = sum->seen >> fields[i] & 1;

		if (seen && (i < COUNTERS || sum->have[i] == sum->members))
			sample_set(ret, (enum sample_field)fields[i], sum->value[i]);
	}
	sample_set(ret, SAMPLE_PROCESSES, sum->members);
	sum->changed = false;
}

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

static int new_process(const struct process_reader_target *process, void *user, struct source_entry **ret)
{
	struct source_entry *entry;

	int r = new_entry(ENTRY_PROCESS, user, &entry);
	if (r < 0)
		return r;

	r = process_reader_init(&entry->reader, process, &entry->sample);
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
	struct process_reader_target process = { procfd, pid, start_ticks, with_cpu_clock, .closed = false };

	return new_process(&process, user, ret);
}

int source_entry_process_closed(int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock, void *user,
				struct source_entry **ret)
{
	struct process_reader_target process = { procfd, pid, start_ticks, with_cpu_clock, .closed = true };

	return new_process(&process, user, ret);
}

int source_entry_cgroup(const struct cgroup_mounts *mounts, const char *path, void *user, struct source_entry **ret)
{
	AUTO(source_entry_freep) struct source_entry *entry = NULL;
	AUTO_FREE struct source_cgroup *cgroup = NULL;

	int r = new_entry(ENTRY_CGROUP, user, &entry);
	if (r < 0)
		return r;

	cgroup = calloc(1, sizeof(*cgroup));
	if (!cgroup)
		return -ENOMEM;

	r = cgroup_files_init(&cgroup->files, mounts, path);
	if (r < 0)
		return r;

	entry->cgroup = TAKE(cgroup);
	*ret = TAKE(entry);
	return 0;
}

int source_gate_new(const struct cgroup_mounts *mounts, const char *path, struct source_gate **ret)
{
	AUTO_FREE struct source_gate *gate = calloc(1, sizeof(*gate));
	if (!gate)
		return -ENOMEM;

	int r = cgroup_files_init_usage(&gate->files, mounts, path);
	if (r < 0)
		return r;

	gate->holders = 1;
	*ret = TAKE(gate);
	return 0;
}

void source_gate_drop(struct source_gate *gate)
{
	if (!gate || --gate->holders > 0)
		return;

	cgroup_files_release(&gate->files);
	free(gate);
}

void source_entry_set_gate(struct source_entry *entry, struct source_gate *gate)
{
	if (gate && entry->gate_hold)
		return;

	if (gate) {
		entry->gate_hold = gate;
		gate->holders++;
	}
	atomic_store_explicit(&entry->gate, gate, memory_order_release);
	call_attention(entry);
}

int source_entry_group(void *user, struct source_entry **ret)
{
	AUTO(source_entry_freep) struct source_entry *entry = NULL;

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
		process_reader_release(&entry->reader);
	if (entry->cgroup)
		cgroup_files_release(&entry->cgroup->files);
	source_gate_drop(entry->gate_hold);
	free(entry->cgroup);
	free(entry->group);
	free(entry);
}

/*
 * The flag is set after the values: a reader that sees it sees them, or newer ones that set it
 * again.
 */
void source_entry_set_limits(struct source_entry *entry, uint64_t cpu_limit, uint64_t memory_limit)
{
	if (atomic_load_explicit(&entry->cpu_limit, memory_order_relaxed) == cpu_limit &&
	    atomic_load_explicit(&entry->memory_limit, memory_order_relaxed) == memory_limit)
		return;

	atomic_store_explicit(&entry->cpu_limit, cpu_limit, memory_order_relaxed);
	atomic_store_explicit(&entry->memory_limit, memory_limit, memory_order_relaxed);
	atomic_store_explicit(&entry->limits_set, true, memory_order_release);
	call_attention(entry);
}

void source_entry_count_whole(struct source_entry *entry, const struct sample *since)
{
	if (since != NULL)
		sum_begin(&entry->part, since, &entry->sample);
	entry->whole = true;
}

/* What is to be added of it; less than was counted: that is made up for by the next ones. */
static uint64_t exit_usage(uint64_t *ahead, uint64_t counted, uint64_t end, bool shared)
{
	uint64_t more = end > counted ? end - counted : 0, made_up = more < *ahead ? more : *ahead;

	*ahead -= made_up;
	if (shared && end < counted)
		*ahead += counted - end;

	return more - made_up;
}

/* Only this thread makes it more. */
static void note_lateness(struct source_group *group, const struct sample *end)
{
	if (sample_has(end, SAMPLE_CPU_LATE) &&
	    end->value[SAMPLE_CPU_LATE] > atomic_load_explicit(&group->late_ns, memory_order_relaxed))
		atomic_store_explicit(&group->late_ns, end->value[SAMPLE_CPU_LATE], memory_order_relaxed);
}

/*
 * A fill may come between any two lines: the lateness is noted before and after the counters, so that no row has
 * these without it. One more row may say it.
 */
void source_entry_add_exit_usage(struct source_entry *group, const struct source_entry *member,
				 const struct sample *end, enum source_end known)
{
	assert(group->kind == ENTRY_GROUP);

	note_lateness(group->group, end);
	for (int i = 0; i < SUM_COUNTERS; i++) {
		uint64_t counted = member ? member->part.value[i] : 0, end_value = counter_of(end, i);
		bool is_shared =
			known == SOURCE_END_SHARED && (fields[i] == SAMPLE_CPU || fields[i] == SAMPLE_CPU_USER);

		if (sample_has(end, (enum sample_field)fields[i]))
			atomic_fetch_add_explicit(&group->group->exit_usage[i],
						  exit_usage(&group->group->ahead[i], counted, end_value, is_shared),
						  memory_order_release);
	}
	if (known == SOURCE_END_ESTIMATED || known == SOURCE_END_SHARED)
		atomic_fetch_add_explicit(&group->group->estimated, 1, memory_order_relaxed);
	note_lateness(group->group, end);
	atomic_store_explicit(&group->group->has_exit_usage, true, memory_order_release);
}

/* Those that say which files are needed. */
static struct process_reader_options files_options(const struct source_options *wanted)
{
	return (struct process_reader_options){
		.peak_interval_ns = wanted->peak_interval_ns,
		.fds_interval_ns = wanted->fds_interval_ns,
		.reset_peaks = wanted->reset_peaks,
	};
}

int source_entry_reopen(struct source_entry *entry, int procfd, int32_t pid, uint64_t start_ticks,
			const struct source_options *wanted)
{
	assert(entry->kind == ENTRY_PROCESS);

	struct process_reader_options options = files_options(wanted);
	int r = process_reader_reopen(&entry->reader, procfd, pid, start_ticks, &options);

	call_attention(entry);
	return r;
}

int source_entry_open_files(struct source_entry *entry, const struct source_options *wanted)
{
	assert(entry->kind == ENTRY_PROCESS);

	struct process_reader_options options = files_options(wanted);
	int r = process_reader_open(&entry->reader, &options);

	call_attention(entry);
	return r;
}

void source_entry_close_files(struct source_entry *entry)
{
	assert(entry->kind == ENTRY_PROCESS);

	process_reader_close(&entry->reader);
	call_attention(entry);
}

bool source_entry_is_closed(const struct source_entry *entry)
{
	return entry->kind == ENTRY_PROCESS && process_reader_is_closed(&entry->reader);
}

uint32_t source_entry_runs(const struct source_entry *entry)
{
	return entry->kind == ENTRY_CGROUP ? atomic_load_explicit(&entry->cgroup->runs, memory_order_relaxed)
					   : process_reader_runs(&entry->reader);
}

void source_entry_need(struct source_entry *entry, bool peak, bool fds)
{
	assert(entry->kind == ENTRY_PROCESS);

	process_reader_need(&entry->reader, peak, fds);
}

void source_entry_set_idle(struct source_entry *entry, uint64_t idle_ns)
{
	atomic_store_explicit(&entry->idle_ns, idle_ns, memory_order_relaxed);
}

static size_t quick_times(uint32_t capacity)
{
	return ((size_t)capacity + QUICK_NEIGHBOURS - 1) / QUICK_NEIGHBOURS;
}

void source_entry_follow(struct source_entry *entry, uint32_t account)
{
	assert(entry->kind != ENTRY_GROUP);

	atomic_store_explicit(&entry->account, account, memory_order_relaxed);
	atomic_store_explicit(&entry->account_named, true, memory_order_release);
	call_attention(entry);
}

int source_room_new(uint32_t capacity, struct source_room **ret)
{
	size_t each = SOURCE_LISTS * sizeof(struct source_entry *) + sizeof(struct quick_look) + sizeof(uint32_t);
	size_t times = quick_times(capacity) * (2 * sizeof(mono_t) + sizeof(uint32_t));
	struct source_room *room = calloc(1, sizeof(*room) + capacity * each + times);
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

/*
 * A look at an idle process takes 200 ns, asking for the time 20: one answer stands for so many
 * looks in a row, some 3 us.
 */
#define LOOKS_PER_TIME 16

/*
 * The CPU clock of a process is the sum of its threads', which the kernel adds up: 10 ns for each, up
 * to 300 if nothing is in the caches. From so many on the clock is asked before and after.
 */
#define MANY_THREADS 64

/*
 * Looks at one process that sleeps take at most this part of a core, if back-off may help it: 0.2 %;
 * at one of 2,000 threads 20 us to 0.6 ms each.
 */
#define COSTLY_SHARE 500
#define COSTLY_IDLE_INTERVALS 2
#define LOOK_NS_MAX (10 * (int64_t)NS_PER_MS)

/* So long a process is believed to be in the cgroup that it was in. */
#define GATE_TRUST_NS NS_PER_S

/*
 * Of a due time. They are compared by difference, which holds for 2^31 of them (39 h): see
 * begin_fill.
 */
#define STEP_SHIFT 16
#define FILLS_APART_MAX_NS (3600 * NS_PER_S)

/*
 * In so many parts of their interval cgroups are read, in an order that is even however many there are;
 * see process.c for how often heartbeats double.
 */
#define CGROUP_PHASES 64
#define CGROUP_PHASE_STEP 39
#define CGROUP_DOUBLINGS_MAX 3

/*
 * Entries that stand beside each other were as a rule made one after the other and are near each
 * other in memory: so many are looked at together.
 */
#define NEIGHBOURS 8

/* In so many parts of a heartbeat what does not change is shown. */
#define SHOW_TURNS 64

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

/* An account has what a process used until its end. */
static void count_to_end(struct source_entry *entry)
{
	sample_set(&entry->sample, SAMPLE_CPU, entry->reader.cpu_ns);
	if (entry->member_of)
		sum_update(&entry->member_of->sum, &entry->part, &entry->sample);
}

/* Its account says so: it is followed. */
static bool has_ended(const struct source *source, const struct source_entry *entry)
{
	return __atomic_load_n(&source->accounts.shared->accounts[entry->followed].exited, __ATOMIC_ACQUIRE) != 0;
}

/*
 * Its CPU time was asked for just before, and the row is of that moment: reading may take its time, or be
 * interrupted, and what was used meanwhile would seem to be used in what comes then. Without a clock it is in the
 * files.
 */
static void read_process(struct source *source, struct source_entry *entry, mono_t now)
{
	struct sample before = entry->sample;
	bool in_files = entry->reader.process.clock == 0;
	mono_t at = entry->is_followed || in_files ? source->looked_at : clock_mono(&source->clock);

	int r = process_reader_read(&entry->reader, &source->reader_options, now, &entry->sample);
	if (in_files)
		at = clock_mono(&source->clock);
	if (r >= 0 && entry->reader.by_id && (!entry->is_followed || has_ended(source, entry))) {
		entry->sample = before; /* another process may have its id */
		entry->status = SOURCE_SAME;
		entry->unreadable = true;
		return;
	}
	if (r < 0)
		entry->sample = before; /* not what was partly read when it ended */
	if (r < 0 && r != -ESRCH) {
		source->failed_reads++;
		entry->status = SOURCE_SAME;
		entry->unreadable = true;
		entry->changed = at; /* perhaps */
		return;
	}

	put_limits(entry);
	entry->at = at;
	if (r == -ESRCH) {
		if (entry->is_followed)
			count_to_end(entry);
		mark_gone(entry);
		return;
	}

	entry->status = is_changed(entry, &before) ? SOURCE_CHANGED : SOURCE_SAME;
	entry->fresh = false;
	entry->many_threads = entry->sample.value[SAMPLE_THREADS] >= MANY_THREADS;
	if (entry->status == SOURCE_CHANGED && entry->member_of)
		sum_update(&entry->member_of->sum, &entry->part, &entry->sample);
}

static mono_t time_of_look(struct source *source)
{
	if (source->looks++ % LOOKS_PER_TIME == 0)
		source->looked_at = clock_mono(&source->clock);
	return source->looked_at;
}

/* Only its CPU time is new, and what the control thread has set. */
static void take_clock(struct source *source, struct source_entry *entry)
{
	process_reader_take_clock(&entry->reader, &entry->sample);
	entry->at = entry->is_followed ? source->looked_at : clock_mono(&source->clock);
	if (entry->fresh || has_new_limits(entry))
		put_limits(entry);
	entry->status = SOURCE_CHANGED;
	entry->fresh = false;
	if (entry->member_of)
		sum_update(&entry->member_of->sum, &entry->part, &entry->sample);
}

static uint64_t idle_of(const struct source *source, const struct source_entry *entry)
{
	uint64_t idle_ns = atomic_load_explicit(&entry->idle_ns, memory_order_relaxed);

	return idle_ns < source->pace.idle_ns ? idle_ns : source->pace.idle_ns;
}

/* For how long the files of a process may be left unread after it ran. */
static uint64_t defer_of(const struct source *source, const struct source_entry *entry)
{
	uint64_t idle_ns = idle_of(source, entry);

	return idle_ns > source->pace.interval_ns ? idle_ns : 0;
}

/* One look that was interrupted says little about the next. */
static void note_cost(struct source_entry *entry, int64_t took_ns)
{
	int64_t before_ns = entry->look_ns;
	int64_t most_ns = before_ns > 0 ? 2 * before_ns : LOOK_NS_MAX;

	took_ns = took_ns < most_ns ? took_ns : most_ns;
	entry->look_ns = (uint32_t)(before_ns > 0 ? (7 * before_ns + took_ns) / 8 : took_ns);
}

/*
 * How much CPU time a process may use before its files are read again: a fiftieth of a core, so
 * what uses more is read in every fill, and at most what it takes to touch a megabyte or a huge
 * page of new memory: 0.4 to 1.1 MiB with pages of 4 KiB, 1 to 2 MiB with huge ones.
 */
#define UNREAD_SHARE 50
#define UNREAD_MAX_NS (200 * NS_PER_US)

/* ---- accounts ---- */

/* In steps, rounded down. */
static uint32_t step_of(const struct source *source, uint64_t ns)
{
	return (uint32_t)((ns - source->origin.ns) >> STEP_SHIFT);
}

static void unfollow(struct source *source, struct source_entry *entry)
{
	if (!entry->is_followed)
		return;

	struct source_entry **at = &source->accounts.owners[entry->followed];

	while (*at != entry)
		at = &(*at)->next_followed;
	*at = entry->next_followed;
	source->accounts.count--;
	source->accounts.processes -= entry->kind == ENTRY_PROCESS;
	entry->is_followed = false;
}

/* Takes over what the control thread has named; while the accounts are off, when they are on again. */
static void choose_account(struct source *source, struct source_entry *entry)
{
	if (!atomic_load_explicit(&entry->account_named, memory_order_relaxed) || source->accounts.at.ns == 0)
		return;

	atomic_exchange_explicit(&entry->account_named, false, memory_order_acquire);
	unfollow(source, entry);

	uint32_t account = atomic_load_explicit(&entry->account, memory_order_relaxed);

	if (account >= source->accounts.shared->capacity + source->accounts.shared->group_capacity ||
	    (entry->kind == ENTRY_PROCESS && entry->reader.process.clock == 0))
		return;
	if (entry->cgroup)
		entry->cgroup->was_followed = true;
	entry->reader.read_changes = UINT64_MAX;
	entry->is_followed = true;
	entry->followed = account;
	entry->next_followed = source->accounts.owners[account];
	source->accounts.owners[account] = entry;
	source->accounts.count++;
	source->accounts.processes += entry->kind == ENTRY_PROCESS;
}

/*
 * What ran is due. None of what a look needs of it was used since it ran the last time, and much else was: memory is
 * asked for all of it at once, in as many steps as there are pointers on the way (see fetch_due).
 */
static void note_owners(struct source *source)
{
	struct source_entry **owners = source->accounts.owners;
	const uint32_t *noted = source->accounts.noted, count = source->accounts.noted_count;

	for (uint32_t i = 0; i < count; i++)
		if (owners[noted[i]]) {
			__builtin_prefetch(&owners[noted[i]]->index, 1);
			__builtin_prefetch(&owners[noted[i]]->next_followed, 1);
		}
	for (uint32_t i = 0; i < count; i++)
		for (struct source_entry *entry = owners[noted[i]]; entry; entry = entry->next_followed)
			set_due(source, entry->index, source->step);
	source->accounts.noted_count = 0;
}

static void note_account(void *ctx, uint32_t account)
{
	struct source *source = ctx;

	__builtin_prefetch(&source->accounts.owners[account]);
	source->accounts.noted[source->accounts.noted_count++] = account;
	if (source->accounts.noted_count == NOTED_AT_ONCE)
		note_owners(source);
}

/* Of what began to run since they were read nothing is known: so long may pass. */
#define ACCOUNTS_OLD_NS NS_PER_MS

static void read_accounts_now(struct source *source, mono_t now)
{
	bool whole = cpu_accounts_reader_begin(source->accounts.reader, note_account, source);

	source->accounts.again = now;
	note_owners(source);
	if (whole)
		return;
	source->accounts.overruns++;
	source_all_due(source);
}

/* What ran since the last fill is due in this one. */
static void read_accounts(struct source *source)
{
	bool on = source->accounts.shared && atomic_load_explicit(&source->accounts.shared->on, memory_order_acquire);

	source->accounts.looks = 0;
	source->accounts.before = source->accounts.at;
	source->accounts.at = (mono_t){ 0 };
	if (!on) {
		for (uint32_t i = 0; source->accounts.count > 0 && i < source->count; i++) {
			unfollow(source, source->entries[i]);
			set_due(source, i, source->step);
		}
		return;
	}

	source->accounts.at = clock_mono(&source->clock);
	read_accounts_now(source, source->accounts.at);
}

/*
 * What its account says, as of looked_at: exactly of a process that runs; of others, whose account
 * stands still, that time may be as old as LOOKS_PER_TIME looks. False: it is not to be believed any
 * more, and the process is not followed. What is not known is unreadable this time.
 */
static bool ask_account(struct source *source, struct source_entry *entry, struct process_told *ret)
{
	struct cpu_accounts_use use;
	mono_t at = time_of_look(source);

	if (mono_diff(at, source->accounts.again) > (int64_t)ACCOUNTS_OLD_NS)
		read_accounts_now(source, at);
	cpu_accounts_reader_use(source->accounts.reader, entry->followed, at, &use);
	if (use.runs) {
		source->looked_at = clock_mono(&source->clock);
		cpu_accounts_reader_use(source->accounts.reader, entry->followed, source->looked_at, &use);
		if (!use.runs) /* it has ended meanwhile */
			source->looked_at = clock_mono(&source->clock);
	}
	entry->unreadable = use.unknown && !use.lost;
	*ret = (struct process_told){ .cpu_ns = use.cpu_ns,
				      .wait_ns = use.wait_ns,
				      .changes = use.changes,
				      .reclaimed = atomic_load_explicit(&source->accounts.shared->reclaimed,
									memory_order_relaxed),
				      .runs = use.runs && use.going_ns > UNREAD_MAX_NS,
				      .ended = use.ended };
	if (use.lost)
		unfollow(source, entry);
	else
		source->accounts.looks++;
	return !use.lost;
}

/* What uses more between two fills is hot, and more than this part of the time, from which on its files are read. */
#define CALM_USE_MAX_NS NS_PER_MS
#define CALM_USE_SHARE 50

static void note_use(struct source *source, uint64_t before_ns, uint64_t now_ns)
{
	if (now_ns > before_ns + source->accounts.calm_use_ns)
		source->accounts.hot = true;
}

/*
 * The next look at a process that is followed, if it does not run: when it is to be read or shown; in the
 * next fill, if it was not seen standing still yet, or has ended.
 */
static uint32_t followed_due(const struct source *source, const struct source_entry *entry)
{
	const struct process_reader *reader = &entry->reader;
	uint64_t show_ns = entry->member_of ? UINT64_MAX : entry->shown.ns + source->shown_ns;

	if (!reader->settled || entry->unreadable || source->reader_options.read_always || has_ended(source, entry))
		return source->step;
	return step_of(source, reader->due_ns < show_ns ? reader->due_ns : show_ns);
}

static enum process_reader_due look_at_process(struct source *source, struct source_entry *entry, mono_t now)
{
	uint64_t defer_ns = defer_of(source, entry);
	struct process_told told;

	choose_account(source, entry);
	if (entry->is_followed && ask_account(source, entry, &told)) {
		if (entry->unreadable)
			return PROCESS_READER_NOTHING;
		note_use(source, entry->reader.cpu_ns, told.cpu_ns);
		return process_reader_look(&entry->reader, &source->reader_options, now, defer_ns, &told);
	}
	if (!entry->many_threads)
		return process_reader_look(&entry->reader, &source->reader_options, now, defer_ns, NULL);

	mono_t before = clock_mono(&source->clock);
	enum process_reader_due due = process_reader_look(&entry->reader, &source->reader_options, now, defer_ns, NULL);

	note_cost(entry, mono_diff(clock_mono(&source->clock), before));
	return due;
}

static void read_gate(struct source *source, struct source_gate *gate)
{
	uint64_t usage_ns = 0;
	int r = cgroup_files_usage(&gate->files, &usage_ns);

	gate->moves += r < 0 || usage_ns != gate->usage_ns || gate->moves == 0;
	gate->usage_ns = usage_ns;
	gate->fill = source->fills;
	gate->at = clock_mono(&source->clock);
}

/* As of this fill; NULL: there is none, or it is another thread's. */
static struct source_gate *gate_of(struct source *source, const struct source_entry *entry)
{
	struct source_gate *gate = atomic_load_explicit(&entry->gate, memory_order_acquire);
	const struct source *owner = NULL;

	if (!gate)
		return NULL;
	if (atomic_load_explicit(&gate->owner, memory_order_relaxed) != source &&
	    !atomic_compare_exchange_strong(&gate->owner, &owner, source))
		return NULL;
	if (gate->fill != source->fills)
		read_gate(source, gate);
	return gate;
}

/* Whether a process need not be asked: nothing in its cgroup has run since it was, and nothing is due. */
static bool is_behind_closed_gate(const struct source *source, const struct source_entry *entry,
				  const struct source_gate *gate, mono_t now)
{
	const struct process_reader *reader = &entry->reader;

	return gate->moves == entry->gate_moves && (int32_t)(source->step - entry->gate_due) < 0 && !source->all_due &&
	       reader->settled && !reader->unread && now.ns < reader->due_ns &&
	       atomic_load_explicit(&reader->asked, memory_order_relaxed) == 0 && !entry->fresh &&
	       !has_new_limits(entry) && !source->reader_options.read_always;
}

/*
 * It ran although its cgroup has not: it is in another one by now. What it used may be as old as the last
 * look that asked it. Not if the cgroup ran in the last moment, too.
 */
static bool has_left_gate(struct source *source, const struct source_entry *entry, struct source_gate *gate)
{
	if (!entry->reader.ran || gate->moves != entry->gate_moves)
		return false;
	read_gate(source, gate);
	return gate->moves == entry->gate_moves;
}

static void fill_process(struct source *source, struct source_entry *entry, mono_t now)
{
	enum process_reader_due due = look_at_process(source, entry, now);

	if (entry->unreadable) {
		entry->status = SOURCE_SAME;
		return;
	}
	if (due == PROCESS_READER_FILES) {
		read_process(source, entry, now);
		source->looks = 0; /* a read takes long enough to ask again */
		return;
	}

	source->skipped_reads++;
	if (due == PROCESS_READER_CLOCK) {
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

/* The next look: half a tick before the one that is meant, which may come a little early. */
static uint64_t next_look_ns(const struct source *source, mono_t now)
{
	uint64_t early_ns = source->pace.interval_ns / 2;

	return now.ns + source->cgroup_interval_ns - (early_ns < source->cgroup_interval_ns / 2 ? early_ns : 0);
}

/* The first pause is a part of the interval: cgroups that came together are read in different ticks. */
static uint64_t first_look_ns(const struct source *source, const struct source_entry *entry, mono_t now)
{
	return next_look_ns(source, now) -
	       source->cgroup_interval_ns / CGROUP_PHASES * (entry->index * CGROUP_PHASE_STEP % CGROUP_PHASES);
}

/*
 * What its account says, in the sample. Such a cgroup is looked at in each fill in which it ran. False: it has
 * none, or one that is not to be believed any more.
 */
static bool ask_group(struct source *source, struct source_entry *entry)
{
	struct cpu_accounts_use use;

	choose_account(source, entry);
	if (!entry->is_followed)
		return false;

	source->looked_at = clock_mono(&source->clock);
	cpu_accounts_reader_use(source->accounts.reader, entry->followed, source->looked_at, &use);
	if (use.lost)
		unfollow(source, entry);
	if (use.unknown)
		return false;
	if (!sample_has(&entry->sample, SAMPLE_FILES_READ))
		sample_set(&entry->sample, SAMPLE_FILES_READ, entry->at.ns);
	note_use(source, entry->cgroup->told_cpu_ns, use.cpu_ns);
	entry->cgroup->told_cpu_ns = use.cpu_ns;
	if (!sample_has(&entry->sample, SAMPLE_CPU) || use.cpu_ns > entry->sample.value[SAMPLE_CPU])
		sample_set(&entry->sample, SAMPLE_CPU, use.cpu_ns);
	return true;
}

/*
 * Whether nothing needs to be read of it: it has not run, and what it was when that was first seen is known.
 * told: the usage in the sample is of now.
 */
static bool cgroup_is_still(struct source *source, struct source_entry *entry, mono_t now, bool told)
{
	const struct source_cgroup *cgroup = entry->cgroup;
	const struct source_gate *gate = told ? NULL : gate_of(source, entry);
	bool closed = gate && gate->moves == entry->gate_moves;
	uint64_t usage_ns;

	entry->gate_moves = gate ? gate->moves : 0;
	if (!cgroup->settled || now.ns >= cgroup->heartbeat_ns || source->reader_options.read_always)
		return false;
	if (closed)
		return true;
	if (told)
		return entry->sample.value[SAMPLE_CPU] == cgroup->read_cpu_ns;
	return cgroup_files_usage(&cgroup->files, &usage_ns) == 0 && sample_has(&entry->sample, SAMPLE_CPU) &&
	       usage_ns == entry->sample.value[SAMPLE_CPU];
}

/* Its heartbeats are 1, 2, 4 and then 8 apart while they find nothing. */
static void note_cgroup_reading(const struct source *source, struct source_entry *entry, mono_t now, bool changed)
{
	struct source_cgroup *cgroup = entry->cgroup;
	uint64_t beat_ns = source->reader_options.heartbeat_ns;

	if (changed || !cgroup->settled)
		cgroup->doublings = 0;
	else if (cgroup->doublings < CGROUP_DOUBLINGS_MAX)
		cgroup->doublings++;
	cgroup->settled = !changed;
	if (changed)
		atomic_store_explicit(&cgroup->runs, cgroup->runs + 1, memory_order_relaxed);
	cgroup->heartbeat_ns = now.ns + (beat_ns << cgroup->doublings);
}

/* 0; as cgroup_files_read. */
static int read_cgroup(struct source *source, struct source_entry *entry)
{
	struct source_cgroup *cgroup = entry->cgroup;
	bool had = sample_has(&entry->sample, SAMPLE_CPU);
	uint64_t cpu_ns = entry->sample.value[SAMPLE_CPU], read_ns = entry->sample.value[SAMPLE_FILES_READ];
	int r = cgroup_files_read(&cgroup->files, &entry->sample); /* the sample has nothing else then */

	if (entry->is_followed)
		sample_set(&entry->sample, SAMPLE_FILES_READ, read_ns);

	if (source->reader_options.reset_peaks)
		cgroup_files_reset_peak(&cgroup->files);
	if (cgroup->was_followed && had && (entry->is_followed || cpu_ns > entry->sample.value[SAMPLE_CPU]))
		sample_set(&entry->sample, SAMPLE_CPU, cpu_ns);
	cgroup->read_cpu_ns = entry->sample.value[SAMPLE_CPU];
	return r;
}

static void fill_cgroup(struct source *source, struct source_entry *entry, mono_t now)
{
	struct source_cgroup *cgroup = entry->cgroup;
	struct sample before = entry->sample;
	bool told = ask_group(source, entry), ran = told && is_changed(entry, &before);
	bool due = now.ns >= cgroup->due_ns, read = due && !cgroup_is_still(source, entry, now, told);
	int r = 0;

	entry->status = SOURCE_SAME;
	if (!due && !ran && !has_new_limits(entry))
		return;

	if (read)
		r = read_cgroup(source, entry);
	if (due || ran)
		entry->at = clock_mono(&source->clock);
	if (due)
		cgroup->due_ns = entry->fresh ? first_look_ns(source, entry, now) : next_look_ns(source, now);
	put_limits(entry);
	if (!entry->is_followed)
		sample_unset(&entry->sample, SAMPLE_FILES_READ);
	if (r == -ENOENT) {
		mark_gone(entry);
		return;
	}

	source->failed_reads += r < 0;
	entry->status = is_changed(entry, &before) ? SOURCE_CHANGED : SOURCE_SAME;
	if (read && entry->is_followed && entry->status == SOURCE_CHANGED)
		sample_set(&entry->sample, SAMPLE_FILES_READ, entry->at.ns);
	entry->fresh = false;
	if (read)
		note_cgroup_reading(source, entry, now, r < 0 || entry->status == SOURCE_CHANGED);
}

/* What is added after the flag was cleared sets it again. Returns CPU_LATE; 0: it is unavailable. */
static uint64_t take_exit_usage(struct source_group *group)
{
	uint64_t counters[SUM_COUNTERS];

	if (!atomic_load_explicit(&group->has_exit_usage, memory_order_relaxed))
		return 0;

	atomic_exchange_explicit(&group->has_exit_usage, false, memory_order_acquire);
	for (int i = 0; i < SUM_COUNTERS; i++)
		counters[i] = atomic_exchange_explicit(&group->exit_usage[i], 0, memory_order_acquire);
	sum_add_usage(&group->sum, counters);
	return atomic_exchange_explicit(&group->late_ns, 0, memory_order_relaxed);
}

static bool to_be_shown(const struct source *source, const struct source_entry *entry)
{
	if (entry->unreadable)
		return false;
	return entry->status != SOURCE_SAME || source->all_due ||
	       mono_diff(entry->at, entry->shown) >= (int64_t)(source->shown_ns - source->pace.interval_ns / 2);
}

/*
 * Those that do not change are shown in turn, although they came, were asked for, or began to stand still all at once,
 * also after a heartbeat of another length: the next time at a moment of its own, up to three quarters sooner. What
 * would have to wait for longer than a heartbeat comes there in two steps.
 */
static mono_t shown_at(const struct source *source, const struct source_entry *entry)
{
	uint64_t beat_ns = source->shown_ns, turn_ns = beat_ns / SHOW_TURNS * (entry->index % SHOW_TURNS);
	uint64_t soonest_ns = entry->at.ns + beat_ns / 4, late_ns = (soonest_ns + beat_ns - turn_ns) % beat_ns;
	uint64_t wait_ns = beat_ns / 4 + (late_ns > 0 ? beat_ns - late_ns : 0);

	if (wait_ns > beat_ns)
		wait_ns = beat_ns / 4 * 3;
	return beat_ns - wait_ns < entry->at.ns ? mono_sub(entry->at, beat_ns - wait_ns) : entry->at;
}

static void show(struct source *source, struct source_entry *entry)
{
	if (entry->unreadable && source->all_due)
		entry->shown = (mono_t){ 0 }; /* as soon as it can be read */
	if (!to_be_shown(source, entry))
		return;

	bool still = source->all_due || entry->shown.ns == 0 || entry->status == SOURCE_SAME;

	entry->shown = still ? shown_at(source, entry) : entry->at;
	source->seen[source->seen_count++] = entry;
}

static void sum_group(struct source_entry *entry, uint64_t late_ns)
{
	uint64_t estimated;

	sum_sample(&entry->group->sum, &entry->sample);
	estimated = atomic_load_explicit(&entry->group->estimated, memory_order_relaxed);
	if (estimated > 0)
		sample_set(&entry->sample, SAMPLE_CPU_ESTIMATED, estimated);
	if (late_ns > 0)
		sample_set(&entry->sample, SAMPLE_CPU_LATE, late_ns);
	put_limits(entry);
	entry->fresh = false;
	entry->status = SOURCE_CHANGED;
}

static void fill_group(struct source *source, struct source_entry *entry, mono_t at)
{
	bool was_late = sample_has(&entry->sample, SAMPLE_CPU_LATE);
	bool ended = atomic_load_explicit(&entry->group->has_exit_usage, memory_order_relaxed);
	uint64_t late_ns = take_exit_usage(entry->group);

	entry->at = at;
	entry->status = SOURCE_SAME;
	source->accounts.hot |= ended; /* when that was used is not known afterwards */
	if (entry->group->sum.changed || entry->fresh || has_new_limits(entry) || was_late)
		sum_group(entry, late_ns);
}

/*
 * What members used that have ended is for the next fill. If that was the last one, and took longer than until then, a
 * member that ran is in the next tick.
 */
static void fill_group_past(struct source_entry *entry, mono_t at)
{
	entry->status = SOURCE_SAME;
	if (mono_diff(at, entry->at) <= 0)
		return;
	entry->at = at;
	if (entry->group->sum.changed)
		sum_group(entry, 0);
}

/* Sums are complete once every member was read, wherever it stands. */
static void fill_groups(struct source *source, mono_t at)
{
	for (uint32_t i = 0; i < source->group_count; i++) {
		fill_group(source, source->groups[i], at);
		show(source, source->groups[i]);
	}
}

/* Of a step that is near the present one: its beginning. */
static mono_t source_time(const struct source *source, uint32_t step)
{
	int64_t steps = (int32_t)(step - source->step);

	return (mono_t){ (uint64_t)((int64_t)source->filled.ns + steps * (1 << STEP_SHIFT)) };
}

/* The longest pause of a process, also if it is short of an interval. */
static uint64_t pause_of(struct source *source, const struct source_entry *entry)
{
	uint64_t idle_ns = idle_of(source, entry), all_ns = source->backoff == SOURCE_BACKOFF_ALL ? idle_ns : 0;
	uint64_t costly_ns = entry->many_threads ? (uint64_t)entry->look_ns * COSTLY_SHARE : 0;

	if (source->backoff == SOURCE_BACKOFF_NONE || costly_ns <= source->pace.interval_ns)
		return all_ns;
	if (costly_ns > COSTLY_IDLE_INTERVALS * idle_ns)
		costly_ns = COSTLY_IDLE_INTERVALS * idle_ns;
	if (costly_ns > source->costly_pause_ns[0])
		source->costly_pause_ns[0] = costly_ns;
	return costly_ns > all_ns ? costly_ns : all_ns;
}

static uint32_t process_due(struct source *source, const struct source_entry *entry, mono_t now)
{
	if (entry->is_followed)
		return followed_due(source, entry);

	int64_t still_ns = mono_diff(now, entry->changed);
	struct idle_backoff pace = { .interval_ns = source->pace.interval_ns, .idle_ns = pause_of(source, entry) };

	uint64_t wait_ns = idle_backoff_wait_ns(&pace, still_ns > 0 ? (uint64_t)still_ns : 0, source->fills,
						entry->index / NEIGHBOURS);

	if (entry->reader.unread && entry->reader.due_ns < now.ns + wait_ns)
		wait_ns = entry->reader.due_ns > now.ns ? entry->reader.due_ns - now.ns : 0;
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

	return step_of(source, entry->cgroup->due_ns < soonest_ns ? entry->cgroup->due_ns : soonest_ns);
}

/* What is gone is met again in every fill until it is removed. */
static uint32_t next_due(struct source *source, const struct source_entry *entry, mono_t now)
{
	if (entry->status == SOURCE_GONE)
		return source->step;
	if (entry->kind == ENTRY_PROCESS)
		return process_due(source, entry, now);
	return entry->kind == ENTRY_CGROUP ? cgroup_due(source, entry, now) : source->step + NEVER_STEPS;
}

/*
 * It was seen as it is; one that could not be read was not: it was still as before when it was seen
 * last, as after a pause.
 */
static void note_look(const struct source *source, struct source_entry *entry, mono_t before)
{
	entry->before = entry->fill + 1 != source->fills ? before : (mono_t){ 0 };
	entry->fill = source->fills;
	if (entry->status == SOURCE_CHANGED || source->all_due)
		entry->changed = entry->at;
}

/* *before: when it was last looked at for certain. */
static void look_behind_gate(struct source *source, struct source_entry *entry, mono_t now, mono_t *before)
{
	struct source_gate *gate = entry->is_followed ? NULL : gate_of(source, entry);

	if (gate && is_behind_closed_gate(source, entry, gate, now)) {
		source->skipped_reads++;
		source->gated_looks++;
		entry->at = gate->at;
		entry->status = SOURCE_SAME;
		return;
	}

	fill_process(source, entry, now);
	if (!gate)
		return;
	if (has_left_gate(source, entry, gate)) {
		atomic_store_explicit(&entry->gate, NULL, memory_order_relaxed);
		*before = mono_sub(source_time(source, entry->gate_due), GATE_TRUST_NS);
		entry->fill = 0;
		return;
	}
	entry->gate_moves = gate->moves;
	entry->gate_due = step_of(source, now.ns + GATE_TRUST_NS);
}

/* As long as its clock stands still there is nothing else to look at, and no pause between two looks. */
static bool may_be_quick(const struct source *source, const struct source_entry *entry)
{
	const struct process_reader *reader = &entry->reader;

	return entry->kind == ENTRY_PROCESS && !entry->is_followed && entry->status == SOURCE_SAME &&
	       !entry->unreadable && !entry->fresh && reader->process.clock != 0 && reader->settled &&
	       !reader->unread && !entry->many_threads && source->backoff != SOURCE_BACKOFF_ALL &&
	       !source->reader_options.read_always && !atomic_load_explicit(&entry->gate, memory_order_relaxed);
}

static void begin_quick(struct source *source, const struct source_entry *entry, mono_t now)
{
	uint64_t until_ns = entry->reader.due_ns, shown_ns = entry->shown.ns + source->shown_ns;

	if (!entry->member_of && shown_ns < until_ns)
		until_ns = shown_ns;
	if (until_ns <= now.ns)
		return;
	source->quick[entry->index] = (struct quick_look){
		.cpu_ns = entry->reader.cpu_ns,
		.clock = entry->reader.process.clock,
		.until = step_of(source, until_ns),
	};
}

/* Whether entry i needs no more than this. */
static bool look_quickly(struct source *source, uint32_t i, mono_t *at)
{
	const struct quick_look *quick = &source->quick[i];

	if (quick->clock == 0 || (int32_t)(source->step - quick->until) >= 0 || source->all_due)
		return false;
	if (at->ns == 0)
		*at = clock_mono(&source->clock);
	return process_clock_stands(quick->clock, quick->cpu_ns);
}

/*
 * Before this fill. What did not run is not looked at: it was as before when the accounts were read, if they said so.
 */
static mono_t last_known(const struct source_entry *entry, mono_t read)
{
	return entry->is_followed && !entry->unreadable && mono_diff(read, entry->at) > 0 ? read : entry->at;
}

static void look(struct source *source, struct source_entry *entry, mono_t now)
{
	end_quick(source, entry->index, source->fills - 1);

	mono_t before = last_known(entry, source->accounts.before);

	entry->unreadable = false;
	if (entry->status != SOURCE_GONE && entry->kind == ENTRY_PROCESS)
		look_behind_gate(source, entry, now, &before);
	else if (entry->status != SOURCE_GONE && entry->kind == ENTRY_CGROUP)
		fill_cgroup(source, entry, now);
	if (!entry->unreadable)
		note_look(source, entry, before);
	source->due[entry->index] = next_due(source, entry, now);
	if (entry->status == SOURCE_GONE && entry->member_of)
		source->gone[source->gone_count++] = entry;
	if (!entry->member_of && entry->kind != ENTRY_GROUP)
		show(source, entry);
	if (may_be_quick(source, entry))
		begin_quick(source, entry, now);
}

/* No pause lasts as long as a span: each of them is met again in it. */
static void begin_span(struct source *source, mono_t now)
{
	if (mono_diff(now, source->costly_since) < (int64_t)(2 * COSTLY_IDLE_INTERVALS * source->pace.idle_ns))
		return;
	source->costly_pause_ns[1] = source->costly_pause_ns[0];
	source->costly_pause_ns[0] = 0;
	source->costly_since = now;
}

static void begin_fill(struct source *source, mono_t now)
{
	bool first = source->fills++ == 0;
	bool lost = first || mono_diff(now, source->filled) > (int64_t)FILLS_APART_MAX_NS;

	if (first)
		source->origin = now;
	source->accounts.calm_use_ns = first ? 0 : (uint64_t)mono_diff(now, source->filled) / CALM_USE_SHARE;
	if (source->accounts.calm_use_ns < CALM_USE_MAX_NS)
		source->accounts.calm_use_ns = CALM_USE_MAX_NS;
	source->filled = now;
	source->step = step_of(source, now.ns);
	if (lost)
		source_all_due(source);
	if (lost || atomic_load_explicit(&source->asked, memory_order_relaxed)) {
		atomic_exchange_explicit(&source->asked, false, memory_order_acquire);
		end_all_quick(source, source->fills - 1);
		if (source->accounts.count > 0)
			source_all_due(source);
	}
	begin_span(source, now);
	source->accounts.hot = false;
	source->gone_count = 0;
	source->seen_count = 0;
	source->looks = 0;
}

static bool has_come(const struct source *source, uint32_t step)
{
	return (int32_t)(source->step - step) >= 0;
}

static uint32_t soonest_of(const struct source *source, uint32_t first, uint32_t end)
{
	uint32_t soonest = source->due[first];

	for (uint32_t i = first + 1; i < end; i++)
		if ((int32_t)(source->due[i] - soonest) < 0)
			soonest = source->due[i];
	return soonest;
}

static bool are_due(const struct source *source, uint32_t first)
{
	return has_come(source, source->soonest[first / QUICK_NEIGHBOURS]);
}

static uint32_t end_of_neighbours(const struct source *source, uint32_t first)
{
	return source->count - first < QUICK_NEIGHBOURS ? source->count : first + QUICK_NEIGHBOURS;
}

/* Where accounts say what ran, what is due is looked at itself, and far from what was looked at before. */
static void fetch_due(const struct source *source)
{
	for (uint32_t first = 0; first < source->count; first += QUICK_NEIGHBOURS)
		if (are_due(source, first)) {
			__builtin_prefetch(&source->due[first], 1);
			__builtin_prefetch(&source->entries[first]);
			__builtin_prefetch(&source->entries[first + QUICK_NEIGHBOURS / 2]);
		}
	for (uint32_t first = 0; first < source->count; first += QUICK_NEIGHBOURS)
		for (uint32_t i = first; are_due(source, first) && i < end_of_neighbours(source, first); i++)
			if (has_come(source, source->due[i])) {
				fetch_whole(source->entries[i]);
				__builtin_prefetch(&source->quick[i], 1);
			}
}

/* Those from first to end, which have one time of their quick looks. Returns how many processes were due. */
static uint32_t look_at_neighbours(struct source *source, uint32_t first, uint32_t end, mono_t now)
{
	mono_t *at = &source->quick_at[source->fills % 2][first / QUICK_NEIGHBOURS];
	uint32_t processes = 0;

	*at = (mono_t){ 0 };
	for (uint32_t i = first; i < end; i++) {
		if (!has_come(source, source->due[i]))
			continue;
		if (look_quickly(source, i, at)) {
			source->skipped_reads++;
			processes++;
			continue;
		}
		if (i + 1 < end && source->quick[i + 1].clock == 0)
			fetch(source->entries[i + 1]);
		look(source, source->entries[i], now);
		processes += source->entries[i]->kind == ENTRY_PROCESS;
	}
	source->soonest[first / QUICK_NEIGHBOURS] = soonest_of(source, first, end);
	return processes;
}

void source_fill(struct source *source, mono_t now)
{
	uint32_t processes = 0;

	begin_fill(source, now);
	read_accounts(source);
	if (source->accounts.count > 0)
		fetch_due(source);
	for (uint32_t i = 0; i < source->count; i += QUICK_NEIGHBOURS)
		if (are_due(source, i))
			processes += look_at_neighbours(source, i, end_of_neighbours(source, i), now);
	source->all_looks += processes;
	/* Those that are followed are not looked at because they have not run: backing off saves nothing. */
	source->saved_looks +=
		(source->process_count - source->accounts.processes) - (processes - source->accounts.looks);
	if (source->group_count > 0)
		fill_groups(source, clock_mono(&source->clock));
	source->all_due = false;
}

/* ---- ticks afterwards ---- */

bool source_remember(struct source *source, bool wanted)
{
	const struct cpu_accounts *shared = source->accounts.shared;

	source->accounts.remembered = false;
	if (!shared || (wanted && !atomic_load_explicit(&shared->on, memory_order_acquire)))
		return false;
	__atomic_store_n(&shared->words->runs_wanted, wanted, __ATOMIC_RELEASE);
	source->accounts.remembered = wanted;
	return true;
}

/* What ran before its last look is in the sample already. */
static void note_past(void *ctx, const struct cpu_accounts_part *part)
{
	struct source *source = ctx;

	for (struct source_entry *entry = source->accounts.owners[part->account]; entry; entry = entry->next_followed) {
		uint64_t from_ns = part->from.ns > entry->at.ns ? part->from.ns : entry->at.ns;

		if (entry->fresh || entry->status == SOURCE_GONE || from_ns >= part->to.ns)
			continue;
		if (entry->past_fill != source->fills) {
			entry->past_fill = source->fills;
			entry->past_cpu_ns = entry->past_wait_ns = 0;
			entry->next_past = source->accounts.past;
			source->accounts.past = entry;
		}
		entry->past_cpu_ns += part->to.ns - from_ns;
		entry->past_wait_ns += part->wait_ns;
	}
}

static void end_past(struct source *source, struct source_entry *entry, mono_t at)
{
	mono_t read = source->accounts.at, before = last_known(entry, mono_diff(at, read) > 0 ? read : entry->at);

	if (entry->kind == ENTRY_PROCESS)
		process_reader_take_past(&entry->reader, entry->past_cpu_ns, entry->past_wait_ns, &entry->sample);
	else
		sample_set(&entry->sample, SAMPLE_CPU, entry->sample.value[SAMPLE_CPU] + entry->past_cpu_ns);
	entry->at = at;
	entry->status = SOURCE_CHANGED;
	if (entry->member_of)
		sum_update(&entry->member_of->sum, &entry->part, &entry->sample);
	note_look(source, entry, before);
	if (!entry->member_of)
		show(source, entry);
}

bool source_fill_past(struct source *source, mono_t at)
{
	if (!source->accounts.remembered || source->accounts.at.ns == 0 ||
	    !atomic_load_explicit(&source->accounts.shared->on, memory_order_acquire))
		return false;

	source->fills++;
	source->filled = at;
	source->step = step_of(source, at.ns);
	source->gone_count = source->seen_count = 0;
	source->accounts.past = NULL;
	if (!cpu_accounts_reader_ran_until(source->accounts.reader, at, note_past, source))
		return false;
	for (struct source_entry *entry = source->accounts.past; entry; entry = entry->next_past)
		end_past(source, entry, at);
	source->accounts.at = at;
	for (uint32_t i = 0; i < source->group_count; i++) {
		fill_group_past(source->groups[i], at);
		show(source, source->groups[i]);
	}
	return true;
}

#define DEFAULT_HEARTBEAT_NS NS_PER_S

/* ---- owner thread ---- */

static void move_into(struct source *source, struct source_room *room)
{
	struct source_entry **entries = room->slots;
	struct source_entry **listed = entries + room->capacity;
	struct source_entry **groups = listed + room->capacity;
	struct source_entry **gone = groups + room->capacity;
	struct quick_look *quick = (struct quick_look *)(void *)(room->slots + (size_t)SOURCE_LISTS * room->capacity);
	mono_t *quick_at = (mono_t *)(void *)(quick + room->capacity);
	uint32_t *due = (uint32_t *)(void *)(quick_at + 2 * quick_times(room->capacity));
	uint32_t *soonest = due + room->capacity;

	if (source->count > 0) {
		end_all_quick(source, source->fills);
		memcpy(entries, source->entries, source->count * sizeof(struct source_entry *));
		memcpy(listed, source->listed, source->listed_count * sizeof(struct source_entry *));
		memcpy(groups, source->groups, source->group_count * sizeof(struct source_entry *));
		memcpy(due, source->due, source->count * sizeof(due[0]));
		memcpy(soonest, source->soonest, quick_times(source->count) * sizeof(soonest[0]));
	}
	source->room = room;
	source->entries = entries;
	source->listed = listed;
	source->groups = groups;
	source->quick = quick;
	source->quick_at[0] = quick_at;
	source->quick_at[1] = quick_at + quick_times(room->capacity);
	source->due = due;
	source->soonest = soonest;
	source->gone = gone;
	source->gone_count = 0;
	source->seen = gone + room->capacity;
	source->seen_count = 0;
}

static void set_unread_max(struct source *source)
{
	uint64_t share_ns = source->pace.interval_ns / UNREAD_SHARE;

	source->reader_options.unread_max_ns = share_ns < UNREAD_MAX_NS ? share_ns : UNREAD_MAX_NS;
}

static void set_options(struct source *source, const struct source_options *options)
{
	source->reader_options = (struct process_reader_options){
		.heartbeat_ns = options->heartbeat_ns != 0 ? options->heartbeat_ns : DEFAULT_HEARTBEAT_NS,
		.peak_interval_ns = options->peak_interval_ns,
		.fds_interval_ns = options->fds_interval_ns,
		.reset_peaks = options->reset_peaks,
		.reset_peak = options->reset_peak,
		.read_always = options->read_always,
	};
	source->pace = (struct idle_backoff){
		.interval_ns = options->interval_ns,
		.idle_ns = options->read_always ? 0 : options->idle_interval_ns,
	};
	set_unread_max(source);
	source->backoff = options->backoff;
	source->idle_grid_ns = options->idle_grid_ns;
	source->cgroup_interval_ns = options->cgroup_interval_ns;
	source->shown_ns = source->reader_options.heartbeat_ns;
	source->capacity = options->capacity;
}

static void hold_tables(const struct source *source, void (*hold)(void *block))
{
	const struct cpu_accounts *shared = source->accounts.shared;

	hold(source->room);
	if (!shared)
		return;
	hold(source->accounts.owners);
	hold(source->accounts.reader);
	hold(shared->base_ns);
	hold(shared->groups);
}

static int open_accounts(struct source *source, const struct cpu_accounts *accounts)
{
	if (!accounts)
		return 0;

	source->accounts.owners =
		calloc((size_t)accounts->capacity + accounts->group_capacity, sizeof(struct source_entry *));
	if (!source->accounts.owners)
		return -ENOMEM;

	source->accounts.shared = accounts;
	return cpu_accounts_reader_new(accounts, &source->accounts.reader);
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
	r = open_accounts(source, options->accounts);
	if (r < 0) {
		source_free(source);
		return r;
	}
	if (options->hold)
		hold_tables(source, options->hold);
	*ret = source;
	return 0;
}

void source_free(struct source *source)
{
	if (!source)
		return;

	for (uint32_t i = 0; i < source->count; i++) {
		source->entries[i]->index = SOURCE_NO_INDEX;
		atomic_store_explicit(&source->entries[i]->inside, NULL, memory_order_relaxed);
	}
	source_room_free(source->room);
	cpu_accounts_reader_free(source->accounts.reader);
	free(source->accounts.owners);
	free(source);
}

static void retune_entry(struct source *source, struct source_entry *entry, const struct process_reader_options *before,
			 mono_t now)
{
	if (entry->kind == ENTRY_CGROUP && first_look_ns(source, entry, now) < entry->cgroup->due_ns)
		entry->cgroup->due_ns = first_look_ns(source, entry, now);
	if (entry->kind != ENTRY_PROCESS || entry->status == SOURCE_GONE ||
	    !process_reader_retune(&entry->reader, before, &source->reader_options, now, &entry->sample))
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

void source_set_heartbeat(struct source *source, uint64_t heartbeat_ns)
{
	if (heartbeat_ns < source->shown_ns) {
		end_all_quick(source, source->fills);
		source_all_due(source);
	}
	source->shown_ns = heartbeat_ns;
}

void source_set_backoff(struct source *source, enum source_backoff backoff)
{
	if (backoff < source->backoff)
		source_all_due(source);
	if (backoff != source->backoff)
		end_all_quick(source, source->fills);
	if (backoff == SOURCE_BACKOFF_NONE)
		source->costly_pause_ns[0] = source->costly_pause_ns[1] = 0;
	source->backoff = backoff;
}

uint64_t source_longest_pause(const struct source *source)
{
	uint64_t longest_ns = source->backoff == SOURCE_BACKOFF_ALL ? source->pace.idle_ns : 0;

	for (int i = 0; i < 2; i++)
		if (source->costly_pause_ns[i] > longest_ns)
			longest_ns = source->costly_pause_ns[i];
	return longest_ns > source->pace.interval_ns ? longest_ns : 0;
}

void source_read_all_now(struct source *source)
{
	source->all_due = true;
	source_all_due(source);
}

struct source_room *source_retune(struct source *source, const struct source_options *options, mono_t now,
				  struct source_room *room)
{
	struct process_reader_options before = source->reader_options;

	end_all_quick(source, source->fills);
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
		process_reader_start(&entry->reader, &source->reader_options, source->count);
	entry->index = source->count;
	entry->fill = source->fills;
	entry->at = entry->shown = (mono_t){ 0 };
	set_due(source, source->count, source->step);
	source->quick[source->count].clock = 0;
	source->entries[source->count++] = entry;
	atomic_store_explicit(&entry->inside, source, memory_order_release);
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

	end_quick(source, entry->index, source->fills);
	end_quick(source, source->count - 1, source->fills);
	atomic_store_explicit(&entry->inside, NULL, memory_order_relaxed);
	unfollow(source, entry);

	struct source_entry *last = source->entries[--source->count];
	source->entries[entry->index] = last;
	set_due(source, entry->index, source->due[source->count]);
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

static uint64_t remembered_runs(const struct source *source)
{
	const struct cpu_accounts *shared = source->accounts.shared;
	uint64_t sum = 0;

	for (uint32_t cpu = 0; source->accounts.remembered && cpu < shared->cpus; cpu++)
		sum += __atomic_load_n(&shared->runs[cpu].logged, __ATOMIC_RELAXED);
	return sum;
}

static enum source_calm calm_of(const struct source *source)
{
	if (source->accounts.at.ns == 0 || source->accounts.hot)
		return SOURCE_HOT;
	return source->accounts.count + source->group_count == source->count ? SOURCE_CALM : SOURCE_PARTLY_FOLLOWED;
}

void source_counters(const struct source *source, struct source_counters *ret)
{
	*ret = (struct source_counters){
		.followed = source->accounts.processes,
		.overruns = source->accounts.overruns,
		.looks = source->all_looks,
		.gated_looks = source->gated_looks,
		.skipped_reads = source->skipped_reads,
		.saved_looks = source->saved_looks,
		.failed_reads = source->failed_reads,
		.calm = calm_of(source),
		.remembered = remembered_runs(source),
	};
}

enum source_status source_entry_status(const struct source_entry *entry)
{
	return (enum source_status)entry->status;
}

mono_t source_entry_at(const struct source_entry *entry)
{
	const struct source *source = atomic_load_explicit(&entry->inside, memory_order_relaxed);

	if (!source || source->quick[entry->index].clock == 0 || entry->fill == source->fills)
		return entry->at;

	return source->quick_at[source->fills % 2][entry->index / QUICK_NEIGHBOURS];
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
