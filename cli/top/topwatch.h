/*
 * topwatch.h: what spikewatch top looks at: the ring of a daemon (topfeed.h), what is in it (toptable.h) and what the rules make of it
 * (toprules.h), found, read and kept together.
 */
#ifndef SPIKEWATCH_TOPWATCH_H
#define SPIKEWATCH_TOPWATCH_H

#include "configfile.h"
#include "metric.h"
#include "paths.h"
#include "topfeed.h"
#include "toprules.h"
#include "toptable.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define TOPWATCH_PLACES 3

/* Room for a note. */
#define TOPWATCH_NOTE_MAX (CONFIGFILE_MESSAGE_MAX + 256)

struct topwatch {
	/* To read. */
	struct topfeed feed;
	struct toptable table;
	struct toprules *rules; /* NULL: none */
	char bad_config
		[CONFIGFILE_MESSAGE_MAX];       /* why there are none, or why they are still those from before; or "" */
	wall_t since;                           /* of the peaks: the first tick that was read */
	char place[TOPWATCH_PLACES][PATHS_MAX]; /* where rings may be */
	int place_error[TOPWATCH_PLACES];       /* of the last look */
	size_t places;
	/* The rest is this module's. */
	const char *config_given;
	char config_path[PATHS_MAX];
	struct configfile file;
	uint64_t signature; /* of the configuration when it was read */
	struct metric_machine machine;
	mono_t looked;
	bool has_looked;
};

/*
 * ring: NULL: the daemon's of whoever asks, then the system's. config: NULL: the one that the daemon was started with, as far as can be seen. Both are
 * borrowed. 0; -errno with message (CONFIGFILE_MESSAGE_MAX bytes). watch must stay where it is.
 */
int topwatch_init(struct topwatch *watch, const char *ring, const char *config, char *message);

/* Frees. {0} is fine. */
void topwatch_release(struct topwatch *watch);

/*
 * Reads all there is, and lets the rules judge it. Once a second it looks whether there is another ring, or another configuration. now: of the
 * monotonic clock. 0 or -ENOMEM; feed says whether there is a ring.
 */
int topwatch_update(struct topwatch *watch, mono_t now);

/* Why there is no ring, and what to do about it: lines, each after `prefix`. The code to exit with. */
int topwatch_explain(const struct topwatch *watch, const char *prefix, FILE *file);

/*
 * What a person should know besides the figures, one line each: note number `index` into buf (TOPWATCH_NOTE_MAX bytes). False: there are no more.
 */
bool topwatch_note(const struct topwatch *watch, mono_t now, size_t index, char *buf);

#endif
