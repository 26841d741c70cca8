/* discovery_inside.h: what discovery's files share: its thread, its scans, and what it hears between them. All under the turnstile. */
#ifndef SPIKEWATCH_DISCOVERY_INSIDE_H
#define SPIKEWATCH_DISCOVERY_INSIDE_H

#include "allowance.h"
#include "census.h"
#include "cgroupwatch.h"
#include "condition.h"
#include "discovery.h"
#include "matcher.h"
#include "newcomers.h"
#include "rest.h"
#include "scanned.h"
#include "turnstile.h"
#include "unitbus.h"

#include <poll.h>
#include <pthread.h>

/* A scan may take one part in so many of a core, and what is looked at between scans as well. CPU time counts: on a busy machine it lasts longer. */
#define DISCOVERY_SHARE 50u

/* While there is somebody to hear from. */
struct discovery_news {
	struct proclistener *listener;
	struct newcomers *newcomers;
	struct scanned scanned;
	struct procevent events[4 * PROCLISTENER_BATCH];
	bool hearing; /* it is not heard while it is heard */
	bool more;    /* the last look found something */
	mono_t heard; /* when it was looked last */
	struct rest rest;
	struct allowance allowance;
	uint64_t charged_ns;      /* CPU time of the thread up to which it was taken of that, in the running look */
	mono_t behind_since;      /* since when somebody has been waiting for it: while state.held_off */
	uint64_t missed, dropped; /* by listeners before this one */
};

struct discovery {
	struct discovery_options options;
	const struct config *config;
	struct roster *roster;
	struct matcher *matcher;
	struct following *following; /* NULL: nobody asks */
	struct discovery_news *news; /* NULL: rescans only */
	struct cgroupwatch *cgroups; /* NULL: not asked for, or not possible */
	struct unitbus *units;       /* NULL: not asked for yet, or not possible */
	bool units_due;              /* other units are selected */
	struct rest units_rest;
	mono_t units_heard;          /* when it was looked last */
	struct condition units_lack; /* a bus to hear them from */
	uint64_t scan;
	uint64_t processes, unreadable, unchanged; /* in the running scan */
	struct census *census;
	mono_t limits_read;
	uint64_t limits_cpu_ns; /* what that took */
	mono_t scan_began;      /* the last whole one */
	mono_t scan_ended;      /* the last one */
	uint64_t found_before;  /* targets, when it began: those that came since are waiting for the next */
	bool limits_due;        /* whenever they were read */
	bool rescan;            /* the configuration is another one: what runs is given up, what is due is due now */
	bool again;             /* something was missed: the next scan is due as soon as one may be */
	struct rest cgroups_rest;
	mono_t heard;       /* when anything was listened to last */
	bool cgroups_tried; /* whether they were wanted when that was tried last */
	bool tuned,
		tuned_in; /* it was tried once; whether news were wanted then: what was refused is not tried again */
	struct discovery_state state;
	uint64_t scan_cpu_ns; /* what the last scan took, however long it waited for a CPU */
	_Atomic uint64_t pulse_ns;
	struct turnstile turn;
	int wake_fd;
	int first_fd;      /* see discovery_first_fd */
	_Atomic int first; /* see discovery_first */
	pthread_t thread;
	_Atomic int32_t reading; /* the process whose files are being read without the turnstile; 0: none */
	bool running;
	_Atomic bool stop; /* set without the turnstile, which a thread that hangs may hold */
	bool abandoned;    /* it did not come back from a read when it was to stop: it is left everything that it has */
};

/* ---- discovery.c ---- */

/* It lives: see discovery_pulse. Returns now. */
mono_t discovery_show_life(struct discovery *discovery);

/* Between two steps of a scan: everything may be different afterwards. 0; -ECANCELED: the scan is to be given up. */
int discovery_step_aside(struct discovery *discovery);

/* Where foreign files are read, by the thread that holds the turnstile: without it. */
struct outside discovery_outside(const struct discovery *discovery);

/* ---- discovery_scan.c ---- */

/* As discovery_scan, or -ECANCELED. */
int discovery_scan_locked(struct discovery *discovery);

/* Reads effective limits anew, if that is due: they may take as much as a scan. It steps aside. */
void discovery_refresh_limits(struct discovery *discovery, mono_t now);

/* Hands a cgroup to the entries that select it by its path. 0; -ENOMEM. */
int discovery_sight_cgroup(struct discovery *discovery, const char *path);

/* ---- discovery_match.c ---- */

struct discovery_meeting {
	bool changed; /* it was heard to begin, execute or change its name: it leaves what it is of no more, and is a new target if it is called something else */
	bool whole;   /* it has just begun: see roster_sighting */
	bool watched; /* out: it is of some entry */
	bool ended;   /* out: it has, before all of that was opened */
	size_t targets; /* out: it should be so many itself */
};

/*
 * Hands a process, of which all is known that the matcher needs, to every entry that it matches. One that joins an entry leaves those that it is of no
 * more; others are left to the sweep. 0; -ENOMEM, or out of descriptors.
 */
int discovery_match(struct discovery *discovery, struct scanned *scanned, struct discovery_meeting *meeting);

/* ---- discovery_ends.c ---- */

/* A process ended: PROCEVENT_EXIT or PROCEVENT_TOTALS. */
void discovery_take_end(struct discovery *discovery, const struct procevent *end, mono_t now);

/* ---- discovery_news.c ---- */

/* Begins or ceases to listen, as the configuration wants it. For the thread. */
void discovery_tune_in(struct discovery *discovery);
void discovery_tune_out(struct discovery *discovery);

/* Takes in what there is to be heard, unless it is resting from that. In passing: not if that was done just now. */
void discovery_hear(struct discovery *discovery, mono_t now);
void discovery_overhear(struct discovery *discovery, mono_t now);

/* What is to be polled until when: fds has room for DISCOVERY_FDS, *until is lessened. The number of fds. */
#define DISCOVERY_FDS 4
size_t discovery_await(const struct discovery *discovery, mono_t now, struct pollfd *fds, mono_t *until);

/* Fills in what discovery_state says of it. */
void discovery_news_state(const struct discovery *discovery, struct discovery_state *ret);

/* ---- discovery_units.c: what systemd says of units ---- */

/* Asks for other units, if others are selected now. For the thread, after a scan: what it found need not be said to be missing. */
void discovery_ask_for_units(struct discovery *discovery);

/* Takes in what there is to be heard of them. */
void discovery_hear_units(struct discovery *discovery, mono_t now);

/* As discovery_await, of one descriptor. */
size_t discovery_await_units(const struct discovery *discovery, mono_t now, struct pollfd *ret, mono_t *until);

/* Fills in what discovery_state says of them. */
void discovery_units_state(const struct discovery *discovery, struct discovery_state *ret);

#endif
