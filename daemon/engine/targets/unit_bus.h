/*
 * unit_bus.h: what systemd says of the units that entries select: their names, where their
 * processes are, their state, and which do not exist; in a table that is up to date within
 * milliseconds. The only module that speaks D-Bus (sd-bus).
 *
 * systemd names the cgroup of a unit after it, so most are matched by path (selection.h). The table
 * is for the others: a unit that is selected by an alias (Names), and one whose cgroup had to be
 * named otherwise ("_cpu.service"); and for reports.
 *
 * Never waits for an answer, and never long for anything: work is done in portions, at most 1/50 of
 * a core. Where there is no bus, or it does not answer, unit_bus_state says so, and connecting is
 * tried again, with growing pauses, at last once a minute; the table stays as it was.
 *
 * For one thread at a time.
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_TARGETS_UNIT_BUS_H
#define SPIKEWATCH_DAEMON_ENGINE_TARGETS_UNIT_BUS_H

#include "lib/base/base.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Units beyond are known by the names of their cgroups only. Half a kilobyte each. */
#define UNIT_TABLE_MAX 8192u

#define UNIT_NAME_MAX 255 /* of systemd, the NUL excluded */

/* The state of a unit. Text that is not known is "". */
struct unit_facts {
	char load_state[24], active_state[24], sub_state[32];
	char invocation_id[33]; /* hexadecimal: another one with each start */
	bool has_main_pid, has_restarts;
	uint32_t main_pid;   /* 0: none at the moment */
	uint32_t restarts;   /* by Restart= since it was last started by hand */
	uint64_t started_ns; /* when it last left "inactive", on the monotonic clock; 0: not known */
};

struct unit {
	char *names;  /* one behind the other, each with its NUL, its own first, "" at the end; NULL: not known yet */
	char *cgroup; /* where its processes are, or were last; NULL: not known */
	bool unlike;  /* it has a name that its cgroup has not */
	struct unit_facts facts;
};

struct unit_table;

/* The unit whose cgroup this is, or else the nearest above it is. NULL: none. */
const struct unit *unit_table_of(const struct unit_table *table, const char *cgroup);

/*
 * Whether a cgroup (below: or one above it) is that of a unit with a name that matches the glob,
 * although the name of the cgroup does not. Costs nothing while there is no such unit.
 */
bool unit_table_matches(const struct unit_table *table, const char *glob, const char *cgroup, bool below);

#define UNIT_BUS_WHY_MAX 160

/* What systemd says of a unit that is selected by name, not by a glob. */
enum unit_bus_answer {
	UNIT_BUS_UNANSWERED,
	UNIT_BUS_EXISTS,  /* it need not be running */
	UNIT_BUS_MISSING, /* there is none, or it cannot be started; with a reason */
};

struct unit_bus;

struct unit_bus_options {
	/*
	 * D-Bus address. NULL: the system bus, and where there is none, for root, systemd's own
	 * socket.
	 */
	const char *address;
	bool peer;           /* systemd itself is at that address */
	uint64_t timeout_ns; /* of an answer; 0: 20 seconds, because a reload of all units takes its time */
	/*
	 * A unit was asked about. started: anew since it was last asked about. Called by
	 * unit_bus_read.
	 */
	void (*changed)(void *ctx, const struct unit *unit, bool started);
	/* The answer has changed. why: "" unless MISSING. Called by unit_bus_read. */
	void (*answered)(void *ctx, const char *name, enum unit_bus_answer before, enum unit_bus_answer answer,
			 const char *why);
	void *ctx;
};

struct unit_bus_state {
	bool connected;             /* and all that is wanted was asked for once */
	char why[UNIT_BUS_WHY_MAX]; /* why not */
	uint64_t units;             /* known now */
	uint64_t left_out;          /* beyond UNIT_TABLE_MAX, or without memory, ever */
	uint64_t signals;           /* received */
	uint64_t asked;             /* units, ever */
	uint64_t restarts;          /* of units, noticed */
	uint64_t connects;          /* ever */
	uint64_t delays;            /* seconds in which its CPU share was used up */
};

/* Nothing is wanted at first. *ret_table is owned by the bus. 0 or -ENOMEM. */
int unit_bus_new(const struct unit_bus_options *options, struct unit_bus **ret, const struct unit_table **ret_table);

/* NULL is fine. */
void unit_bus_free(struct unit_bus *bus);

/*
 * Wants these from now on: names of units, or globs, which are copied; none: closes the connection.
 * Units that are no longer wanted are removed. 0; -ENOMEM: nothing has changed.
 */
int unit_bus_want(struct unit_bus *bus, const char *const *names, size_t count);

/* Reads and asks what is due. True: there was a message. */
bool unit_bus_read(struct unit_bus *bus, mono_t now);

/*
 * When to do so again: if *ret, which is to be polled, is readable (true), or at *until, which is
 * lowered.
 */
bool unit_bus_await(struct unit_bus *bus, mono_t now, struct pollfd *ret, mono_t *until);

/* As of now. */
void unit_bus_state(const struct unit_bus *bus, struct unit_bus_state *ret);

/* Visits every wanted name that is no glob, then every unit. */
void unit_bus_visit(const struct unit_bus *bus,
		    void (*answer)(void *ctx, const char *name, enum unit_bus_answer answer, const char *why),
		    void (*unit)(void *ctx, struct unit *unit), void *ctx);

#endif
