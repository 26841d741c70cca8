/* roster_target.h: makes and frees what the roster watches, and finds it by what it is. */
#ifndef SPIKEWATCH_ROSTER_TARGET_H
#define SPIKEWATCH_ROSTER_TARGET_H

#include "roster.h"
#include "roster_entry.h"

/* A power of two; chains stay short up to the 10,000 targets of the default. */
#define ROSTER_BUCKETS 4096u

struct roster_table {
	struct roster_target *buckets[ROSTER_BUCKETS];
	struct roster_target *pids[ROSTER_BUCKETS]; /* processes, by pid */
};

/* Copies what and its strings, and holds entry, whose name it takes; nothing is open yet. NULL: no memory. */
struct roster_target *roster_target_new(struct roster_entry *entry, const struct target *what);

/* A process that was met for an entry, which is config in the configuration; a cgroup. container: that it is in, or NULL. The id is still to come. NULL: no memory. */
struct roster_target *roster_target_process(struct roster_entry *entry, const struct config_target *config,
					    const struct roster_sighting *seen, const struct container *container);
struct roster_target *roster_target_cgroup(struct roster_entry *entry, const struct config_target *config,
					   const char *path, const struct container *container);

/* Puts other texts in the place of comm, cmdline, cgroup and container (NULL: none) of a description. False: no memory, nothing changed. */
bool roster_target_rename(struct target *what, const struct roster_sighting *seen, const struct container *container);

/* Another container, and name of a target, in the place of what they were. False: no memory, nothing changed. */
bool roster_target_recontain(struct target *what, const char *name, const struct container *container);

/*
 * Whether who has the pid is called as was seen: a start time is a hundredth of a second, in which another process may have got it. Asked when its
 * files are open; one of the same name is of the same entries. True also if it has ended, or that cannot be told. A file is read.
 */
bool roster_target_is_called(int procfd, const struct roster_sighting *seen);

/* Must be in no table, and not lent. */
void roster_target_free(struct roster_target *target);

/* Those of an entry; NULL: not there. A process is (pid, start_ticks); one that is leaving is not there any more. */
struct roster_target *roster_table_process(const struct roster_table *table, const struct roster_entry *entry,
					   int32_t pid, uint64_t start_ticks);
struct roster_target *roster_table_cgroup(const struct roster_table *table, const struct roster_entry *entry,
					  const char *path);

/* Processes with that pid, of all entries, also leaving ones: the first, or the one after `after`. NULL: no more. */
struct roster_target *roster_table_pid(const struct roster_table *table, int32_t pid,
				       const struct roster_target *after);

/* It stays its owner's until roster_table_clear. Must not be there yet. */
void roster_table_enter(struct roster_table *table, struct roster_target *target);

/* It must be there. */
void roster_table_remove(struct roster_table *table, struct roster_target *target);

/* Frees all that is inside. */
void roster_table_clear(struct roster_table *table);

/* As roster_visit. */
int roster_table_visit(const struct roster_table *table, int (*visit)(void *ctx, struct roster_target *target),
		       void *ctx);

#endif
