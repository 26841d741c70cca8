/*
 * topfeed.h: the ring of a daemon, followed for as long as anybody looks: mapped read-only, from a while ago on into the present, and into
 * the next ring when the daemon was started anew. The daemon does not know that there is a reader.
 */
#ifndef SPIKEWATCH_TOPFEED_H
#define SPIKEWATCH_TOPFEED_H

#include "ring.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum topfeed_state {
	TOPFEED_ABSENT,  /* there is no ring, see error */
	TOPFEED_LIVE,    /* its daemon writes it */
	TOPFEED_SILENT,  /* its daemon is there, and has not written for a while */
	TOPFEED_STOPPED, /* its daemon has ended in good order */
	TOPFEED_KILLED,  /* its daemon is not there any more, and did not say goodbye */
};

struct topfeed {
	const char *path; /* of the ring; the caller's */
	/* To read. */
	int error; /* ABSENT: why, negative */
	mono_t tick;
	wall_t wall;
	uint64_t lost_pages;    /* of this ring; overtaken by the daemon */
	uint64_t damaged_pages; /* of this ring */
	/* The rest is this module's. */
	struct ring *ring;
	struct ring_cursor *cursor;
	bool has_file;
	dev_t dev;
	ino_t ino;
};

enum { TOPFEED_ATTACHED = 1 };

/* path set, the rest zeroed, is the right start. Lets go of the ring; may be attached again. */
void topfeed_release(struct topfeed *feed);

/*
 * Maps the ring that is at path now, to be read from `back_ns` before its last tick on. What was attached stays so if it fails. 0; -ENOMEM;
 * -EBADMSG: it is no ring, or one of another version; -errno.
 */
int topfeed_attach(struct topfeed *feed, uint64_t back_ns);

/* Whether another file than the attached one is at path now: a daemon has started since. */
bool topfeed_replaced(const struct topfeed *feed);

/* Delivers what is new until take returns non-zero; 0, that, or -ENOMEM. */
int topfeed_poll(struct topfeed *feed, int (*take)(void *ctx, const struct ring_event *event), void *ctx);

/* How it is. now: of the monotonic clock. alive: whether a process lives. */
enum topfeed_state topfeed_state(const struct topfeed *feed, mono_t now, ring_alive *alive);

/* What the ring says of itself. It must be attached. */
void topfeed_info(const struct topfeed *feed, struct ring_info *ret);

#endif
