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
#ifndef SPIKEWATCH_UNITBUS_H
#define SPIKEWATCH_UNITBUS_H

#include "clock.h"
#include "unittable.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

#endif
