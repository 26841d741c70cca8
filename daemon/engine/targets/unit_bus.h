/*
 * unit_bus.h: what unit bus's files share: the connection (unit_bus.c), what is told over it (unit
 * bus_signals.c), lists (unit_bus_list.c), and questions about single units (unit_bus_ask.c).
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_UNIT_BUS_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_UNIT_BUS_H

#include "lib/base/base.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <systemd/sd-bus.h>
#include <sys/queue.h>

/*
 * unit_table.h: units of systemd as far as they matter here: their names, where their processes
 * are, how they are. A value store: what is in it comes from unit_bus.h.
 *
 * systemd names the cgroup of a unit after it, so that match.h finds most by path. This table is
 * for the others: a unit that is selected by an alias (Names), and one whose cgroup had to be named
 * otherwise ("_cpu.service").
 *
 * Belongs to one thread at a time.
 */

/* Units beyond are known by their cgroups' names only. Half a kilobyte each. */
#define UNIT_TABLE_MAX 8192u

#define UNIT_NAME_MAX 255 /* of systemd, the NUL excluded */

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

struct unit_table;

/* 0 or -ENOMEM. */
int unit_table_new(struct unit_table **ret);

/* NULL is fine. */
void unit_table_free(struct unit_table *table);

/* Units in it. */
size_t unit_table_count(const struct unit_table *table);

/* NULL: there is none. */
struct unit *unit_table_find(const struct unit_table *table, const char *object);

/* Enters one that is not in it. 0; -ENOMEM; -ENOSPC: there are UNIT_TABLE_MAX. */
int unit_table_enter(struct unit_table *table, const char *object, struct unit **ret);

/* Frees it. */
void unit_table_remove(struct unit_table *table, struct unit *unit);

/* Names as in struct unit; they are copied. 0; -ENOMEM: nothing has changed. */
int unit_table_rename(struct unit_table *table, struct unit *unit, const char *names);

/*
 * Where its processes are now. "", or what is no path of a cgroup below the root: nowhere; then the
 * last place stays. 0; -ENOMEM: nothing has changed.
 */
int unit_table_place(struct unit_table *table, struct unit *unit, const char *cgroup);

/* The unit whose cgroup this is, or of the nearest one above it. NULL: none. */
const struct unit *unit_table_of(const struct unit_table *table, const char *cgroup);

/*
 * Whether a cgroup (below: or one above it) is that of a unit with a name that matches the glob,
 * although the cgroup's name does not say so. Costs nothing while there is no such unit.
 */
bool unit_table_matches(const struct unit_table *table, const char *glob, const char *cgroup, bool below);

/* Whether a unit has a name that matches. */
bool unit_is_called(const struct unit *unit, const char *glob);

/* Every one; visit may remove the one that it is handed. */
void unit_table_visit(const struct unit_table *table, void (*visit)(void *ctx, struct unit *unit), void *ctx);

/*
 * unit_bus.h: what the machine's systemd says of the units that entries select: their names, where
 * their processes are, how they are, and which do not exist. Kept in a table (unit_table.h) that is
 * up to date within milliseconds. The only files that speak D-Bus (sd-bus): unit bus*.c.
 *
 * Never waits for an answer, and never for long for anything: what is to be done is done in
 * portions, at most a fiftieth of a core. Where there is no bus, or it does not answer, state says
 * so, and it is tried again, more and more seldom, once a minute at last; the table keeps what it
 * had.
 *
 * Belongs to one thread at a time.
 */

#define UNIT_BUS_WHY_MAX 160

/* What is known of a unit that is selected by its very name. */
enum unit_bus_answer {
	UNIT_BUS_UNANSWERED,
	UNIT_BUS_EXISTS,  /* though it may not run */
	UNIT_BUS_MISSING, /* there is none, or it cannot be started: why says which */
};

struct unit_bus;

struct unit_bus_options {
	/*
	 * The bus in the notation of D-Bus. NULL: the system bus and, for root, systemd's own
	 * socket where there is none.
	 */
	const char *address;
	bool peer;           /* behind that address is systemd itself */
	uint64_t timeout_ns; /* of an answer; 0: 20 seconds, because a reload of all units takes its time */
	/*
	 * A unit was asked about. started: it runs anew since it was asked last. Called by
	 * unit_bus_read.
	 */
	void (*changed)(void *ctx, const struct unit *unit, bool started);
	/*
	 * The answer is another one than before. why: "" unless MISSING. Called by unit_bus_read.
	 */
	void (*answered)(void *ctx, const char *name, enum unit_bus_answer before, enum unit_bus_answer answer,
			 const char *why);
	void *ctx;
};

struct unit_bus_state {
	bool connected;             /* and all that is wanted has been asked for once */
	char why[UNIT_BUS_WHY_MAX]; /* why not */
	uint64_t units;             /* known now */
	uint64_t left_out;          /* beyond UNIT_TABLE_MAX, or without memory, ever */
	uint64_t signals;           /* heard */
	uint64_t asked;             /* units, ever */
	uint64_t restarts;          /* of units, noticed */
	uint64_t connects;          /* ever */
	uint64_t delays;            /* seconds in which its share of a core was taken */
};

/* Nothing is wanted at first. 0 or -ENOMEM. */
int unit_bus_new(const struct unit_bus_options *options, struct unit_bus **ret);

/* NULL is fine. */
void unit_bus_free(struct unit_bus *bus);

/*
 * From now on these are wanted: names of units, or globs, which are copied. None: the connection is
 * closed. Units of names that are not wanted any more go. 0; -ENOMEM: nothing has changed.
 */
int unit_bus_want(struct unit_bus *bus, const char *const *names, size_t count);

/* Does what there is to do. True: there was something. */
bool unit_bus_read(struct unit_bus *bus, mono_t now);

/* When to do it again: if *ret is to be polled (true), or at *until, which is lessened. */
bool unit_bus_await(struct unit_bus *bus, mono_t now, struct pollfd *ret, mono_t *until);

/* What is known. It stays the bus's, and the same one. */
const struct unit_table *unit_bus_units(const struct unit_bus *bus);

/* As of now. */
void unit_bus_state(const struct unit_bus *bus, struct unit_bus_state *ret);

/* Every name without * that is wanted. */
void unit_bus_visit(const struct unit_bus *bus,
		    void (*visit)(void *ctx, const char *name, enum unit_bus_answer answer, const char *why),
		    void *ctx);

/* Units that are asked about at a time: what they wait for is in the bus's queues. */
#define UNIT_BUS_FETCHES 8

TAILQ_HEAD(unit_queue, unit);

/* A name or glob that an entry has. */
struct unit_bus_wish {
	char *name;
	bool glob;
	enum unit_bus_answer answer;
	char why[UNIT_BUS_WHY_MAX];
};

struct unit_bus_fetch;

struct unit_bus {
	struct unit_bus_options options;
	sd_bus *connection; /* NULL: there is none */
	bool peer;
	struct unit_table *table;
	struct unit_bus_wish *wishes;
	size_t wish_count;
	struct unit_queue due, later; /* to be asked about: now; when their time has come, in its order */
	struct unit_bus_fetch *fetches[UNIT_BUS_FETCHES];
	sd_bus_slot *list; /* the list that is waited for; NULL: none */
	size_t listed;     /* wishes that were */
	bool relist;       /* from the beginning */
	bool overfull;     /* there was no room for one: when there is, lists tell of it */
	uint64_t round;    /* of lists: units that were not in it are gone */
	struct unit_bus_state state;
	mono_t now;       /* of this unit_bus_read */
	mono_t retry;     /* without a connection: when it is tried again */
	mono_t connected; /* since when there is this one */
	mono_t window;    /* of the budget, and what was taken of it */
	uint64_t spent_ns;
	unsigned failures; /* in a row */
	bool broken;       /* the connection is of no use; why says why */
};

/*
 * The name in an object's path, if it may be one of a unit with processes that is wanted: room for
 * UNIT_NAME_MAX.
 */
bool unit_bus_object_name(const struct unit_bus *bus, const char *object, char *ret);

/* May it be the name of a unit? */
bool unit_bus_is_name(const char *name);

/*
 * The interface of a unit's kind, by the name's suffix; NULL: units of that kind have no processes.
 */
const char *unit_bus_interface(const char *name);

#endif
