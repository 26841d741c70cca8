/*
 * unittable.h: units of systemd as far as they matter here: their names, where their processes are, how they are. A value store: what is in it comes
 * from unitbus.h.
 *
 * systemd names the cgroup of a unit after it, so that match.h finds most by path. This table is for the others: a unit that is selected by an
 * alias (Names), and one whose cgroup had to be named otherwise ("_cpu.service").
 *
 * Belongs to one thread at a time.
 */
#ifndef SPIKEWATCH_UNITTABLE_H
#define SPIKEWATCH_UNITTABLE_H

#include "clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

/* Units beyond are known by their cgroups' names only. Half a kilobyte each. */
#define UNITTABLE_MAX 8192u

#define UNIT_NAME_MAX 255 /* of systemd, the NUL excluded */
#define UNIT_NAMES_MAX 32 /* of one unit; more are left out */

/* How a unit is, for whoever tells of it. Text that is not known is "". */
struct unit_facts {
	char load_state[24], active_state[24], sub_state[32];
	char invocation_id[33]; /* hexadecimal: another one with each start */
	bool has_main_pid, has_restarts;
	uint32_t main_pid;   /* 0: none at the moment */
	uint32_t restarts;   /* by Restart= since it was started by hand */
	uint64_t started_ns; /* when it left "inactive" last, on the monotonic clock; 0: not known */
};

struct unit {
	char *object; /* what the bus calls it: its identity */
	char *names;  /* one behind the other, each with its NUL, its own first, "" at the end; NULL: not known yet */
	char *cgroup; /* where its processes are, or were last; NULL: not known */
	bool unlike;  /* it has a name that its cgroup has not */
	struct unit_facts facts;
	/* The keeper's: */
	uint64_t seen;
	bool doubtful; /* it may be gone: that is asked first */
	bool is_due;   /* in a queue */
	bool again;    /* while it is asked something changed */
	void *asking;
	mono_t asked, due;
	TAILQ_ENTRY(unit) queue;
	/* The table's: */
	struct unit *next_object, *next_cgroup;
};

struct unittable;

/* 0 or -ENOMEM. */
int unittable_new(struct unittable **ret);

/* NULL is fine. */
void unittable_free(struct unittable *table);

/* Units in it. */
size_t unittable_count(const struct unittable *table);

/* NULL: there is none. */
struct unit *unittable_find(const struct unittable *table, const char *object);

/* Enters one that is not in it. 0; -ENOMEM; -ENOSPC: there are UNITTABLE_MAX. */
int unittable_enter(struct unittable *table, const char *object, struct unit **ret);

/* Frees it. */
void unittable_remove(struct unittable *table, struct unit *unit);

/* Names as in struct unit; they are copied. 0; -ENOMEM: nothing has changed. */
int unittable_rename(struct unittable *table, struct unit *unit, const char *names);

/*
 * Where its processes are now. "", or what is no path of a cgroup below the root: nowhere; then the last place stays. 0; -ENOMEM:
 * nothing has changed.
 */
int unittable_place(struct unittable *table, struct unit *unit, const char *cgroup);

/* The unit whose cgroup this is, or of the nearest one above it. NULL: none. */
const struct unit *unittable_of(const struct unittable *table, const char *cgroup);

/*
 * Whether a cgroup (below: or one above it) is that of a unit with a name that matches the glob, although the cgroup's name does not say so.
 * Costs nothing while there is no such unit.
 */
bool unittable_matches(const struct unittable *table, const char *glob, const char *cgroup, bool below);

/* Whether a unit has a name that matches. */
bool unit_is_called(const struct unit *unit, const char *glob);

/* Every one; visit may remove the one that it is handed. */
void unittable_visit(const struct unittable *table, void (*visit)(void *ctx, struct unit *unit), void *ctx);

#endif
