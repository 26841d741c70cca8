/*
 * unit_bus.h: what unitbus's files share: the connection (unitbus.c), what is told over it (unitbus_signals.c), lists
 * (unitbus_list.c), and questions about single units (unitbus_ask.c).
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_UNIT_BUS_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_UNIT_BUS_H

#include "lib/base/base.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <systemd/sd-bus.h>

/*
 * unittable.h: units of systemd as far as they matter here: their names, where their processes are, how they are. A value store: what is in it comes
 * from unitbus.h.
 *
 * systemd names the cgroup of a unit after it, so that match.h finds most by path. This table is for the others: a unit that is selected by an
 * alias (Names), and one whose cgroup had to be named otherwise ("_cpu.service").
 *
 * Belongs to one thread at a time.
 */

/* Units beyond are known by their cgroups' names only. Half a kilobyte each. */
#define UNITTABLE_MAX 8192u

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

/*
 * unitbus.h: what the machine's systemd says of the units that entries select: their names, where their processes are, how they are, and which do not
 * exist. Kept in a table (unittable.h) that is up to date within milliseconds. The only files that speak D-Bus (sd-bus): unitbus*.c.
 *
 * Never waits for an answer, and never for long for anything: what is to be done is done in portions, at most a fiftieth of a core. Where there is no
 * bus, or it does not answer, state says so, and it is tried again, more and more seldom, once a minute at last; the table
 * keeps what it had.
 *
 * Belongs to one thread at a time.
 */

#define UNITBUS_WHY_MAX 160

/* What is known of a unit that is selected by its very name. */
enum unitbus_answer {
	UNITBUS_UNANSWERED,
	UNITBUS_EXISTS,  /* though it may not run */
	UNITBUS_MISSING, /* there is none, or it cannot be started: why says which */
};

struct unitbus;

struct unitbus_options {
	/* The bus in the notation of D-Bus. NULL: the system bus and, for root, systemd's own socket where there is none. */
	const char *address;
	bool peer;           /* behind that address is systemd itself */
	uint64_t timeout_ns; /* of an answer; 0: 20 seconds, because a reload of all units takes its time */
	/* A unit was asked about. started: it runs anew since it was asked last. Called by unitbus_hear. */
	void (*changed)(void *ctx, const struct unit *unit, bool started);
	/* The answer is another one than before. why: "" unless MISSING. Called by unitbus_hear. */
	void (*answered)(void *ctx, const char *name, enum unitbus_answer before, enum unitbus_answer answer,
			 const char *why);
	void *ctx;
};

struct unitbus_state {
	bool connected;            /* and all that is wanted has been asked for once */
	char why[UNITBUS_WHY_MAX]; /* why not */
	uint64_t units;            /* known now */
	uint64_t left_out;         /* beyond UNITTABLE_MAX, or without memory, ever */
	uint64_t signals;          /* heard */
	uint64_t asked;            /* units, ever */
	uint64_t restarts;         /* of units, noticed */
	uint64_t connects;         /* ever */
	uint64_t delays;           /* seconds in which its share of a core was taken */
};

/* Nothing is wanted at first. 0 or -ENOMEM. */
int unitbus_new(const struct unitbus_options *options, struct unitbus **ret);

/* NULL is fine. */
void unitbus_free(struct unitbus *bus);

/*
 * From now on these are wanted: names of units, or globs, which are copied. None: the connection is closed. Units of names that are not wanted any
 * more go. 0; -ENOMEM: nothing has changed.
 */
int unitbus_want(struct unitbus *bus, const char *const *names, size_t count);

/* Does what there is to do. True: there was something. */
bool unitbus_hear(struct unitbus *bus, mono_t now);

/* When to do it again: if *ret is to be polled (true), or at *until, which is lessened. */
bool unitbus_await(struct unitbus *bus, mono_t now, struct pollfd *ret, mono_t *until);

/* What is known. It stays the bus's, and the same one. */
const struct unittable *unitbus_units(const struct unitbus *bus);

/* As of now. */
void unitbus_state(const struct unitbus *bus, struct unitbus_state *ret);

/* Every name without * that is wanted. */
void unitbus_visit(const struct unitbus *bus,
		   void (*visit)(void *ctx, const char *name, enum unitbus_answer answer, const char *why), void *ctx);

/* Units that are asked about at a time: what they wait for is in the bus's queues. */
#define UNITBUS_FETCHES 8

TAILQ_HEAD(unit_queue, unit);

/* A name or glob that an entry has. */
struct unitbus_wish {
	char *name;
	bool glob;
	enum unitbus_answer answer;
	char why[UNITBUS_WHY_MAX];
};

struct unitbus_fetch;

struct unitbus {
	struct unitbus_options options;
	sd_bus *connection; /* NULL: there is none */
	bool peer;
	struct unittable *table;
	struct unitbus_wish *wishes;
	size_t wish_count;
	struct unit_queue due, later; /* to be asked about: now; when their time has come, in its order */
	struct unitbus_fetch *fetches[UNITBUS_FETCHES];
	sd_bus_slot *list; /* the list that is waited for; NULL: none */
	size_t listed;     /* wishes that were */
	bool relist;       /* from the beginning */
	bool overfull;     /* there was no room for one: when there is, lists tell of it */
	uint64_t round;    /* of lists: units that were not in it are gone */
	struct unitbus_state state;
	mono_t now;       /* of this unitbus_hear */
	mono_t retry;     /* without a connection: when it is tried again */
	mono_t connected; /* since when there is this one */
	mono_t window;    /* of the budget, and what was taken of it */
	uint64_t spent_ns;
	unsigned failures; /* in a row */
	bool broken;       /* the connection is of no use; why says why */
};

/* The name in an object's path, if it may be one of a unit with processes that is wanted: room for UNIT_NAME_MAX. */
bool unitbus_object_name(const struct unitbus *bus, const char *object, char *ret);

/* May it be the name of a unit? */
bool unitbus_is_name(const char *name);

/* The interface of a unit's kind, by the name's suffix; NULL: units of that kind have no processes. */
const char *unitbus_interface(const char *name);

#endif
