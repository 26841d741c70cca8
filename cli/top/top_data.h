/*
 * top_data.h: what spikewatch top looks at: the ring of a daemon (topfeed.h), what is in it (toptable.h) and what the rules make of it
 * (toprules.h), found, read and kept together.
 */
#ifndef SPIKEWATCH_CLI_TOP_TOP_DATA_H
#define SPIKEWATCH_CLI_TOP_TOP_DATA_H

#include "daemon/engine/base/paths.h"
#include "lib/base/base.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/*
 * toptable.h: what spikewatch top knows of each target: how it is now, its last minute second by second, its peaks, and what the rules that
 * look at it wait for. Fed with the events of a ring, in their order. Pure; {0} is empty and legal.
 *
 * Cost: a sample is a look-up (logarithmic) and a few comparisons; memory is about 1 KiB for each target, and bounded.
 */

#define TOPTABLE_SECONDS 60u

/* More are not told apart: they are counted in left_out. */
#define TOPTABLE_TARGETS_MAX 65536u

/* Of a target; those that wait for something only. More are counted. */
#define TOPTABLE_WAITING_MAX 4u

enum toptable_order { TOPTABLE_BY_CPU, TOPTABLE_BY_MEMORY, TOPTABLE_BY_DISTANCE, TOPTABLE_BY_NAME, TOPTABLE_ORDERS };

enum toptable_wait { TOPTABLE_CALM, TOPTABLE_PENDING, TOPTABLE_COOLING };

/* What one rule thinks of one target. */
struct toptable_verdict {
	const char *rule; /* must live until the next toptable_judge_begin */
	enum toptable_wait wait;
	bool fired;            /* its last window fired */
	bool has_nearness;     /* it has a threshold */
	double nearness;       /* distance to it as a part of it: 1 far, 0 there, negative beyond */
	uint64_t for_ns;       /* PENDING: for so long already ... */
	uint64_t for_whole_ns; /* ... of so long */
	uint64_t left_ns;      /* COOLING */
};

struct toptable_mark {
	mono_t at;
	uint64_t cpu_ns;
};

/* To read, up to `marks`; the rest is this module's. */
struct toptable_row {
	uint32_t id;
	enum target_kind kind;
	char *name; /* may hold any byte */
	bool gone;
	double cpu_cores; /* over the last second or two, as of toptable_view; NAN: not known */
	double cpu_peak;  /* NAN: none yet */
	bool has_memory;
	uint64_t memory_bytes;
	uint64_t memory_peak_bytes;
	double nearness;     /* of the nearest rule; infinite: none has a threshold */
	const char *nearest; /* its name; NULL: no rule was heard of */
	struct toptable_verdict waiting[TOPTABLE_WAITING_MAX];
	size_t waiting_count;             /* may be more than fit */
	unsigned pending, cooling, fired; /* rules */

	struct toptable_mark marks[2]; /* where the second before this one began, and this one */
	struct toptable_mark window;
	bool seen, has_cpu; /* the next two are known */
	mono_t at;
	uint32_t line; /* of timelines.h: whose ticks say that it stood still */
	struct sample sample;
	mono_t gone_at;
	uint64_t second; /* of the clock: the last that the two below have */
	float cpu[TOPTABLE_SECONDS], memory[TOPTABLE_SECONDS];
};

struct toptable {
	uint64_t
		idle_ns; /* the longest pause between two looks at a process, as of the last tick; the caller sets it. 0: none */
	uint64_t cgroup_read_ns;    /* how often cgroups are looked at; the caller sets it. 0: every tick */
	mono_t now;                 /* the last tick */
	uint32_t line;              /* of timelines.h: whose ticks come */
	mono_t nows[TIMELINES_MAX]; /* the last tick of each */
	bool ticked;
	uint64_t left_out;
	struct toptable_row **row; /* by id */
	size_t count, cap;
	struct toptable_row **view;
	size_t view_cap;
};

/* What to show. {0}: all, by CPU. */
struct toptable_wish {
	enum toptable_order order;
	bool reverse;
	const char *filter; /* part of a name, case ignored, or a pattern with * or ?; NULL or "": all */
};

struct toptable_list {
	struct toptable_row *const *row; /* valid until the next call of anything */
	size_t count;
};

/* A description. 0 or -ENOMEM: the target is as unknown, or has the name, that it had before. */
int toptable_target(struct toptable *table, const struct target *target);

/* A look at a target. Unknown ids are ignored. */
void toptable_sample(struct toptable *table, uint32_t id, mono_t at, const struct sample *sample);

/* It ended. */
void toptable_gone(struct toptable *table, uint32_t id, mono_t at);

/* Samples are missing: no window reaches over this, and the seconds in between are not known. */
void toptable_gap(struct toptable *table);

/* All samples up to now were delivered; targets without one were seen unchanged. */
void toptable_tick(struct toptable *table, mono_t now);

/* Whose samples and ticks come from now on (ring.h); a tick says nothing of targets that another one looks at. */
void toptable_writer(struct toptable *table, uint32_t writer);

/* The last minute is about to be delivered once more: all but names and peaks is forgotten. */
void toptable_rewind(struct toptable *table);

/* What rules think, all of it: begin forgets what was said before, then one call for each. Unknown ids are ignored. */
void toptable_judge_begin(struct toptable *table);
void toptable_judge(struct toptable *table, uint32_t id, const struct toptable_verdict *verdict);

/* Those that are wanted, sorted; what has no value comes last in either direction. 0 or -ENOMEM. */
int toptable_view(struct toptable *table, const struct toptable_wish *wish, struct toptable_list *ret);

enum toptable_series { TOPTABLE_CPU_CORES, TOPTABLE_MEMORY_BYTES };

/* The last minute in count cells, oldest first: the highest value in each; NAN: not known. count: 1 .. TOPTABLE_SECONDS. */
void toptable_history(const struct toptable *table, const struct toptable_row *row, enum toptable_series series,
		      double *ret, size_t count);

/* Frees. */
void toptable_release(struct toptable *table);

/*
 * toprules.h: what the rules of a configuration think of the targets in a ring, found out without asking the daemon: its own engine
 * (evaluator.h) is fed with the same samples, and with what the daemon's state file remembers from before.
 *
 * It differs from what the daemon thinks where the daemon knows more: a configuration that was changed and not yet loaded, averages over
 * more than the ring still holds, disk budgets.
 */

struct toprules;

/*
 * topfeed.h: the ring of a daemon, followed for as long as anybody looks: mapped read-only, from a while ago on into the present, and into
 * the next ring when the daemon was started anew. The daemon does not know that there is a reader.
 */

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

/* How it is. now: of the monotonic clock. alive: whether a process lives. */
enum topfeed_state topfeed_state(const struct topfeed *feed, mono_t now, ring_alive *alive);

/* What the ring says of itself. It must be attached. */
void topfeed_info(const struct topfeed *feed, struct ring_info *ret);

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
