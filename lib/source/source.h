/*
 * source.h: reads all targets in one call. source_fill allocates nothing, logs nothing, locks
 * nothing, and opens nothing but files of processes that have none open.
 *
 * An entry is one thing that is read: a process, a cgroup, or a group, which is the sum of member
 * processes. Entries are made by the control thread, handed to the source by its owner thread
 * (source_add), taken out again by it (source_remove), and freed by the control thread. Between add
 * and remove only the owner thread touches an entry, except by the functions below that any thread
 * may call.
 *
 * Reading by need: a process whose CPU clock has not moved has not run; its files are read again
 * only at the heartbeat, which backs off (process.h). After it ran, its files are read until they
 * were read once with the clock standing still.
 *
 * A process that hardly runs is followed by its clock: CPU is new, and exact, in each fill; its
 * files are read when it has used a fiftieth of the interval since they were read (and at most 200
 * us), in every fill in which it ran as long as its memory changes, and at the latest
 * idle_interval_ns (or its own: source_entry_set_idle) after the first fill that saw it run. Not of
 * processes without a clock or without descriptors.
 *
 * A cgroup is looked at in its interval: its usage counter is read, and if that stands still nothing
 * else, but once more after it stopped and at heartbeats, which back off alike. Looks at cgroups are
 * spread over the fills.
 *
 * Entries behind a gate (source_gate_new) whose counter stands still count as looked at: they have not
 * run.
 *
 * High-water marks and descriptor counts are read at their own intervals if the process ran since,
 * at the latest one interval after it stopped running. The total of its CPU clock is CPU; without
 * the clock it is utime + stime.
 *
 * Of a process that has an account (source_entry_follow) all of this is so, but that nothing is asked:
 * the account says which processes ran, and only those are looked at.
 *
 * Every process is looked at in every fill, unless there is idle back-off (pacing.h): a process that
 * does not change is then looked at less and less often, and in every fill again from the first look
 * on that sees it change. What that look finds was used since the look before: source_entry_woke.
 * Members of groups are also looked at in the first fill at or after each multiple of idle_grid_ns:
 * as of those fills the sums are exact; in between they lack what members have begun to use since
 * they were last looked at. With SOURCE_BACKOFF_COSTLY there is back-off from those alone a look at
 * which costs much, because they have very many threads.
 *
 * Group sums never step back: a member's counters count from when its entry was made (or from its
 * beginning: source_entry_count_whole), and stay in the sum when it leaves, where what it used until
 * its end may be added (source_entry_add_exit_usage); gauges are the sum over living members and
 * available while every one of them has them. Limits, states and high-water marks of a group are
 * unavailable: the peak of a sum is not the sum of the peaks.
 */
#ifndef SPIKEWATCH_LIB_SOURCE_SOURCE_H
#define SPIKEWATCH_LIB_SOURCE_SOURCE_H

#include "lib/base/base.h"
#include "lib/model/sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * CPU, CPU_USER, CPU_SYSTEM, MINOR_FAULTS, MAJOR_FAULTS, CPU_WAIT, MEMORY, THREADS, FDS; the counters
 * are the first
 */
#define SUM_FIELDS 9
#define SUM_COUNTERS 6

/* The sum of samples of members; {0} has none. */
struct sum {
	uint64_t value[SUM_FIELDS];
	uint32_t have[SUM_FIELDS]; /* members that have the field now */
	uint32_t members;
	uint32_t seen; /* mask of the fields that any member ever had */
	bool changed;  /* since sum_sample */
};

/* What one member contributes. */
struct sum_part {
	uint64_t value[SUM_FIELDS]; /* also after it left; counters: the highest seen, gauges: the last */
	uint32_t mask;
};

/* Those fields of a sample that are counters of a sum, in a quarter of the room. */
struct sum_counters {
	uint64_t value[SUM_COUNTERS];
	uint32_t mask;
};

/* Of a sample, all counters that it has. */
void sum_keep(struct sum_counters *kept, const struct sample *sample);

/* Sets those that were kept in *ret. */
void sum_kept(const struct sum_counters *kept, struct sample *ret);

/* What is known of the CPU time of a process that ended. */
enum source_end {
	SOURCE_END_EXACT,
	SOURCE_END_ESTIMATED, /* it is one of CPU_ESTIMATED of the group */
	SOURCE_END_SHARED,    /* so is this; it has an equal part of what the ends of several lack */
	SOURCE_END_REST,      /* of such ends before: a part of what these lacked, and nothing else */
};

struct source;
struct source_entry;
struct source_room;
struct source_gate;
struct cgroup_mounts; /* cgroup_mount.h */
struct cpu_accounts;  /* cpu_accounts.h */

enum source_status {
	SOURCE_SAME,    /* nothing moved since the last fill; `at` says when that was seen, within a few us */
	SOURCE_CHANGED, /* sample was filled anew */
	SOURCE_GONE,    /* the process or cgroup no longer exists; sample is the last that was seen */
};

/* From which processes that do not change there is idle back-off. */
enum source_backoff { SOURCE_BACKOFF_NONE, SOURCE_BACKOFF_COSTLY, SOURCE_BACKOFF_ALL };

struct source_options {
	uint32_t capacity;           /* entries, members of groups included */
	uint64_t heartbeat_ns;       /* 0: 1 s */
	uint64_t cgroup_interval_ns; /* 0: every fill */
	uint64_t peak_interval_ns;   /* 0: every fill; UINT64_MAX: never */
	uint64_t fds_interval_ns;    /* 0: never */
	bool reset_peaks;            /* write 5 to clear_refs after reading VmHWM */
	void (*reset_peak)(int fd);  /* does that; NULL: the source itself, which then waits for the process */
	uint64_t interval_ns;        /* between two fills, for the next; see source_set_interval */
	/*
	 * The longest time between two looks at a process, by back-off (twice that at a costly one), and
	 * how long its files may be left unread. 0, or not above interval_ns: neither.
	 */
	uint64_t idle_interval_ns;
	enum source_backoff backoff;
	uint64_t idle_grid_ns; /* of members of groups, see above. 0: they are looked at in every fill */
	bool read_always;      /* read everything at every fill (for measuring) */
	/* NULL: there are none. Of one source only, and the same in all its options. */
	const struct cpu_accounts *accounts;
	/*
	 * Of the tables that fills touch, as source_new has them from malloc(3), and of those of the accounts: what
	 * is to be in memory. NULL: they are left alone. Entries are not among them.
	 */
	void (*hold)(void *block);
};

/* Whether ticks that are put together afterwards would say no less than fills, as the last source_fill found. */
enum source_calm {
	SOURCE_HOT,             /* something used so much CPU time that its files are worth reading in each tick */
	SOURCE_PARTLY_FOLLOWED, /* not everything has an account that is followed */
	SOURCE_CALM,
};

struct source_counters {
	uint64_t followed;      /* processes whose CPU time comes from an account, now */
	uint64_t overruns;      /* fills that looked at all of those because a log was too short */
	uint64_t looks;         /* at processes */
	uint64_t gated_looks;   /* of those: not asked, because their cgroup has not run */
	uint64_t skipped_reads; /* looks after which no file was read: saved by gating */
	uint64_t saved_looks;   /* saved by backing off */
	uint64_t failed_reads;  /* errors other than "gone" */
	enum source_calm calm;
	uint64_t remembered; /* runs, on all CPUs */
};

/* ---- control thread: may allocate, may open files ---- */

/*
 * Opens what is needed to read process pid below procfd (a descriptor of the proc root, which must
 * outlive the entry). start_ticks: 0, or the start time the process must have. with_cpu_clock: pid
 * is a pid of this pid namespace and procfd the real /proc, so that the CPU clock may be asked;
 * else everything is read from files every time. 0; -ESRCH: no such process, or another one by now;
 * -errno (-EMFILE ...), -ENOMEM.
 */
int source_entry_process(int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock, void *user,
			 struct source_entry **ret);

/*
 * The same of a process for which there are no descriptors: nothing stays open. It is looked at
 * like all others; what there is to be read is opened for that and closed again, in source_fill,
 * where up to 6 descriptors must be free. If its pid has come to belong to another process it is
 * gone.
 */
int source_entry_process_closed(int procfd, int32_t pid, uint64_t start_ticks, bool with_cpu_clock, void *user,
				struct source_entry **ret);

/*
 * Opens the files of a cgroup, whichever there are. path: below the hierarchies' roots. 0; -ENOENT:
 * no controller knows it; -errno.
 */
int source_entry_cgroup(const struct cgroup_mounts *mounts, const char *path, void *user, struct source_entry **ret);

/*
 * A gate: the usage counter of a cgroup, read once in a fill for all entries that are in it, at whatever
 * depth. While it stands still none of them has run, so none is asked. Control thread; a gate lives until
 * the caller and all its entries are freed. 0; -ENOENT; -errno.
 */
int source_gate_new(const struct cgroup_mounts *mounts, const char *path, struct source_gate **ret);
/* The caller's hold. NULL is fine. */
void source_gate_drop(struct source_gate *gate);

/*
 * The entry is in this cgroup. Once in the life of an entry; NULL: it is not any more. A process that was
 * moved without that is asked within a second, and then in every fill. Also while it is in a source.
 */
void source_entry_set_gate(struct source_entry *entry, struct source_gate *gate);

/* An empty group. */
int source_entry_group(void *user, struct source_entry **ret);

/* Closes and frees. Must not be in a source. NULL is fine. */
void source_entry_free(struct source_entry *entry);
CLEANUP(source_entry, free);

/*
 * A process that has just begun: as a member of a group it counts with all that it used before its
 * entry was made; or, if it was counted elsewhere until it had used `since`, with what is beyond.
 * since may be NULL. Before source_add.
 */
void source_entry_count_whole(struct source_entry *entry, const struct sample *since);

/*
 * What a process had used when it ended is added to a group. member: its entry, which was in that
 * group and is in the source no more: only what it has not counted is added; NULL: it never was a
 * member. Of one that is SOURCE_END_SHARED more than in *end may have been counted: so much less is added of
 * the next ones. Only the counters of a group (sum.h) are looked at, and CPU_LATE, which the sample of the
 * group has in that fill alone. One thread for each group; in the sum from the next fill on.
 */
void source_entry_add_exit_usage(struct source_entry *group, const struct source_entry *member,
				 const struct sample *end, enum source_end known);

/*
 * Effective limits, to be put into the samples from the next look on; UINT64_MAX: unavailable. Any
 * thread. cpu in ns/s.
 */
void source_entry_set_limits(struct source_entry *entry, uint64_t cpu_limit, uint64_t memory_limit);

/*
 * Opens what a process entry that is in a source needs for *wanted and may have been made without:
 * the high-water mark, its reset, the count of descriptors. The owner thread takes them over at its
 * next look and reads them then. Arguments as those of source_entry_process. 0; -ESRCH; -errno.
 */
int source_entry_reopen(struct source_entry *entry, int procfd, int32_t pid, uint64_t start_ticks,
			const struct source_options *wanted);

/*
 * Opens what a closed process needs for *wanted; it has it from the next fill on. As
 * source_entry_reopen, and one at a time with that. Of an entry that is in no source only before
 * source_add.
 */
int source_entry_open_files(struct source_entry *entry, const struct source_options *wanted);

/* A process gives up all descriptors in the next fill. Any thread. */
void source_entry_close_files(struct source_entry *entry);

/* Whether it is a process that has no descriptors, as of the last fill. Any thread. */
bool source_entry_is_closed(const struct source_entry *entry);

/*
 * How often a process was read after it had run; how often a cgroup was found changed. Modulo 2^32. Any
 * thread.
 */
uint32_t source_entry_runs(const struct source_entry *entry);

/*
 * What a rule needs is read at its own interval also of a closed process; otherwise once per
 * heartbeat at most. At first false. Any thread.
 */
void source_entry_need(struct source_entry *entry, bool peak, bool fds);

/*
 * A process is to be looked at, and read after it ran, at least so often, from its next look on;
 * idle_interval_ns counts where it is less. To begin with, that alone. Any thread.
 */
void source_entry_set_idle(struct source_entry *entry, uint64_t idle_ns);

/*
 * The CPU time of a process, or cgroup, comes from that account (CPU_ACCOUNT_NONE: from its clock, or file) from its
 * next look on; from its clock while the accounts are off, and once the account has lost a run (cpu_accounts.h).
 * It is looked at when the account says that it ran, and else at heartbeats; the other files of a cgroup are read at
 * its interval. Never steps back. Any thread.
 */
void source_entry_follow(struct source_entry *entry, uint32_t account);

/* Room for `capacity` entries, for source_retune; one block. 0 or -ENOMEM. */
int source_room_new(uint32_t capacity, struct source_room **ret);
/* NULL is fine. */
void source_room_free(struct source_room *room);

/* ---- owner thread ---- */

/* 0 or -ENOMEM. All memory is taken here. *clock is copied. */
int source_new(const struct source_options *options, const struct clock *clock, struct source **ret);
/* Entries still inside are not freed. NULL is fine. */
void source_free(struct source *source);

/*
 * Everything in *options is in force from the next fill on; what is no longer read becomes
 * unavailable, what is now read comes with the next reading of a process, at its heartbeat at the
 * latest. room: for options->capacity entries; if there are more inside they stay, and nothing is
 * added before there are fewer. Allocates and frees nothing: returns the room that is not needed
 * any more, the caller's to free. Not between a fill and the use of source_gone_members.
 */
struct source_room *source_retune(struct source *source, const struct source_options *options, mono_t now,
				  struct source_room *room);

/*
 * Adds an entry: to itself, or as a member of group (which must be in the source). A member is read
 * but not listed by source_entries. 0 or -ENOSPC.
 */
int source_add(struct source *source, struct source_entry *entry, struct source_entry *group);

/* Takes an entry out. A group must have no members left. The order of the others changes. */
void source_remove(struct source *source, struct source_entry *entry);

/* From now on there is so much time between two fills. */
void source_set_interval(struct source *source, uint64_t interval_ns);

/*
 * From now on, until source_retune, entries that have not changed are in source_seen every heartbeat_ns. When
 * and how often they are read stays as it was.
 */
void source_set_heartbeat(struct source *source, uint64_t heartbeat_ns);

/* From the next fill on. If there is less back-off than before, that fill looks at everything. */
void source_set_backoff(struct source *source, enum source_backoff backoff);

/* The longest time between two looks at a process, by back-off, as of the next fill; 0: none. */
uint64_t source_longest_pause(const struct source *source);

/*
 * In the next fill everything is looked at and is in source_seen, and from then on as often as if
 * it had changed: for readers that may have missed a change.
 */
void source_read_all_now(struct source *source);

/*
 * Looks at everything that is due. now: the tick. Afterwards at, status and sample of what is in
 * source_seen are current.
 */
void source_fill(struct source *source, mono_t now);

/*
 * Ticks afterwards, from what the accounts remember of when what ran. Where there are fewer fills than
 * ticks these are put together before the next source_fill:
 *
 *     source_remember(true) -- source_fill -- source_fill_past ... -- source_fill -- source_fill_past ...
 *
 * CPU and CPU_WAIT alone are of such a tick, all else is as of the last fill.
 */

/* From the next source_fill on. False: without accounts nothing is. */
bool source_remember(struct source *source, bool wanted);

/*
 * After source_remember and a fill: another one as of `at`, later than the last one and not later than the first call
 * since that. False: what ran is not known or was forgotten, and nothing is in source_seen.
 */
bool source_fill_past(struct source *source, mono_t at);

/*
 * Entries that are targets of their own and that the last fill has something to say of: what
 * changed, what is gone, and what was looked at and has not been in here for a heartbeat. Valid
 * until the next fill; what is removed meanwhile stays in it.
 */
struct source_entry *const *source_seen(const struct source *source, size_t *ret_count);

/*
 * Entries that are targets of their own (no members): processes, cgroups, groups. Valid until the
 * next add or remove. Gone entries stay, with SOURCE_GONE, until they are removed.
 */
struct source_entry *const *source_entries(const struct source *source, size_t *ret_count);

/*
 * Members that were found gone by the last fill: to be removed and freed. Valid until the next
 * fill, add or remove.
 */
struct source_entry *const *source_gone_members(const struct source *source, size_t *ret_count);

/* Since source_new. */
void source_counters(const struct source *source, struct source_counters *ret);

/*
 * As of the last look; before the first one SOURCE_SAME, and of a process the sample already holds
 * stat and statm.
 */
enum source_status source_entry_status(const struct source_entry *entry);
/* When it was last looked at: right after its reads. Of a cgroup: when its interval was last up. */
mono_t source_entry_at(const struct source_entry *entry);
/*
 * Of a process in source_seen that changed: true, and when it was looked at before, if that was not
 * in the fill before this one: it was still as source_seen had it last.
 */
bool source_entry_woke(const struct source_entry *entry, mono_t *ret_before);
/* Valid until the entry is freed; the next fill changes it in place. */
const struct sample *source_entry_sample(const struct source_entry *entry);
/* What it was made with. */
void *source_entry_user(const struct source_entry *entry);

#endif
