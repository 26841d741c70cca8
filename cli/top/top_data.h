/*
 * top_data.h: what spikewatch top looks at: the ring of a daemon (top_feed.h), what is in it
 * (top_table.h) and what the rules make of it (top_rules.h), found, read and kept together.
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
 * top_table.h: what spikewatch top knows of each target: how it is now, its last minute second by
 * second, its peaks, and what the rules that look at it wait for. Fed with the events of a ring, in
 * their order. Pure; {0} is empty and legal.
 *
 * Cost: a sample is a look-up (logarithmic) and a few comparisons; memory is about 1 KiB for each
 * target, and bounded.
 */

#define TOP_TABLE_SECONDS 60u

/* More are not told apart: they are counted in left_out. */
#define TOP_TABLE_TARGETS_MAX 65536u

/* Of a target; those that wait for something only. More are counted. */
#define TOP_TABLE_WAITING_MAX 4u

enum top_table_order {
	TOP_TABLE_BY_CPU,
	TOP_TABLE_BY_MEMORY,
	TOP_TABLE_BY_DISTANCE,
	TOP_TABLE_BY_NAME,
	TOP_TABLE_ORDERS
};

enum top_table_wait { TOP_TABLE_CALM, TOP_TABLE_PENDING, TOP_TABLE_COOLING };

/* What one rule thinks of one target. */
struct top_table_verdict {
	const char *rule; /* must live until the next top_table_judge_begin */
	enum top_table_wait wait;
	bool fired;            /* its last window fired */
	bool has_nearness;     /* it has a threshold */
	double nearness;       /* distance to it as a part of it: 1 far, 0 there, negative beyond */
	uint64_t for_ns;       /* PENDING: for so long already ... */
	uint64_t for_whole_ns; /* ... of so long */
	uint64_t left_ns;      /* COOLING */
};

struct top_table_mark {
	mono_t at;
	uint64_t cpu_ns;
};

/* To read, up to `marks`; the rest is this module's. */
struct top_table_row {
	uint32_t id;
	enum target_kind kind;
	char *name; /* may hold any byte */
	bool gone;
	double cpu_cores; /* over the last second or two, as of top_table_view; NAN: not known */
	double cpu_peak;  /* NAN: none yet */
	bool has_memory;
	uint64_t memory_bytes;
	uint64_t memory_peak_bytes;
	double nearness;     /* of the nearest rule; infinite: none has a threshold */
	const char *nearest; /* its name; NULL: no rule was heard of */
	struct top_table_verdict waiting[TOP_TABLE_WAITING_MAX];
	size_t waiting_count;             /* may be more than fit */
	unsigned pending, cooling, fired; /* rules */

	struct top_table_mark marks[2]; /* where the second before this one began, and this one */
	struct top_table_mark window;
	bool seen, has_cpu; /* the next two are known */
	mono_t at;
	uint32_t line; /* of writer_clocks.h: whose ticks say that it stood still */
	struct sample sample;
	mono_t gone_at;
	uint64_t second; /* of the clock: the last that the two below have */
	float cpu[TOP_TABLE_SECONDS], memory[TOP_TABLE_SECONDS];
};

struct top_table {
	uint64_t
		idle_ns; /* the longest pause between two looks at a process, as of the last tick; the caller sets it. 0: none */
	uint64_t cgroup_read_ns;        /* how often cgroups are looked at; the caller sets it. 0: every tick */
	mono_t now;                     /* the last tick */
	uint32_t line;                  /* of writer_clocks.h: whose ticks come */
	mono_t nows[WRITER_CLOCKS_MAX]; /* the last tick of each */
	bool ticked;
	uint64_t left_out;
	struct top_table_row **row; /* by id */
	size_t count, cap;
	struct top_table_row **view;
	size_t view_cap;
};

/* What to show. {0}: all, by CPU. */
struct top_table_wish {
	enum top_table_order order;
	bool reverse;
	const char *filter; /* part of a name, case ignored, or a pattern with * or ?; NULL or "": all */
};

struct top_table_list {
	struct top_table_row *const *row; /* valid until the next call of anything */
	size_t count;
};

/* A description. 0 or -ENOMEM: the target is as unknown, or has the name, that it had before. */
int top_table_target(struct top_table *table, const struct target *target);

/* A look at a target. Unknown ids are ignored. */
void top_table_sample(struct top_table *table, uint32_t id, mono_t at, const struct sample *sample);

/* It ended. */
void top_table_gone(struct top_table *table, uint32_t id, mono_t at);

/* Samples are missing: no window reaches over this, and the seconds in between are not known. */
void top_table_gap(struct top_table *table);

/* All samples up to now were delivered; targets without one were seen unchanged. */
void top_table_tick(struct top_table *table, mono_t now);

/*
 * Whose samples and ticks come from now on (ring.h); a tick says nothing of targets that another
 * one looks at.
 */
void top_table_writer(struct top_table *table, uint32_t writer);

/* The last minute is about to be delivered once more: all but names and peaks is forgotten. */
void top_table_rewind(struct top_table *table);

/*
 * What rules think, all of it: begin forgets what was said before, then one call for each. Unknown
 * ids are ignored.
 */
void top_table_judge_begin(struct top_table *table);
void top_table_judge(struct top_table *table, uint32_t id, const struct top_table_verdict *verdict);

/* Those that are wanted, sorted; what has no value comes last in either direction. 0 or -ENOMEM. */
int top_table_view(struct top_table *table, const struct top_table_wish *wish, struct top_table_list *ret);

enum top_table_series { TOP_TABLE_CPU_CORES, TOP_TABLE_MEMORY_BYTES };

/*
 * The last minute in count cells, oldest first: the highest value in each; NAN: not known. count: 1
 * .. TOP_TABLE_SECONDS.
 */
void top_table_history(const struct top_table *table, const struct top_table_row *row, enum top_table_series series,
		       double *ret, size_t count);

/* Frees. */
void top_table_release(struct top_table *table);

/*
 * top_rules.h: what the rules of a configuration think of the targets in a ring, found out without
 * asking the daemon: its own engine (evaluator.h) is fed with the same samples, and with what the
 * daemon's state file remembers from before.
 *
 * It differs from what the daemon thinks where the daemon knows more: a configuration that was
 * changed and not yet loaded, averages over more than the ring still holds, disk budgets.
 */

struct top_rules;

/*
 * top_feed.h: the ring of a daemon, followed for as long as anybody looks: mapped read-only, from a
 * while ago on into the present, and into the next ring when the daemon was started anew. The
 * daemon does not know that there is a reader.
 */

enum top_feed_state {
	TOP_FEED_ABSENT,  /* there is no ring, see error */
	TOP_FEED_LIVE,    /* its daemon writes it */
	TOP_FEED_SILENT,  /* its daemon is there, and has not written for a while */
	TOP_FEED_STOPPED, /* its daemon has ended in good order */
	TOP_FEED_KILLED,  /* its daemon is not there any more, and did not say goodbye */
};

struct top_feed {
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
enum top_feed_state top_feed_state(const struct top_feed *feed, mono_t now, ring_alive *alive);

/* What the ring says of itself. It must be attached. */
void top_feed_info(const struct top_feed *feed, struct ring_info *ret);

#define TOP_WATCH_PLACES 3

/* Room for a note. */
#define TOP_WATCH_NOTE_MAX (CONFIG_FILE_MESSAGE_MAX + 256)

struct top_watch {
	/* To read. */
	struct top_feed feed;
	struct top_table table;
	struct top_rules *rules; /* NULL: none */
	char bad_config
		[CONFIG_FILE_MESSAGE_MAX]; /* why there are none, or why they are still those from before; or "" */
	wall_t since;                      /* of the peaks: the first tick that was read */
	char place[TOP_WATCH_PLACES][PATHS_MAX]; /* where rings may be */
	int place_error[TOP_WATCH_PLACES];       /* of the last look */
	size_t places;
	/* The rest is this module's. */
	const char *config_given;
	char config_path[PATHS_MAX];
	struct config_file file;
	uint64_t signature; /* of the configuration when it was read */
	struct metric_machine machine;
	mono_t looked;
	bool has_looked;
};

/*
 * ring: NULL: the daemon's of whoever asks, then the system's. config: NULL: the one that the
 * daemon was started with, as far as can be seen. Both are borrowed. 0; -errno with message
 * (CONFIG_FILE_MESSAGE_MAX bytes). watch must stay where it is.
 */
int top_watch_init(struct top_watch *watch, const char *ring, const char *config, char *message);

/* Frees. {0} is fine. */
void top_watch_release(struct top_watch *watch);

/*
 * Reads all there is, and lets the rules judge it. Once a second it looks whether there is another
 * ring, or another configuration. now: of the monotonic clock. 0 or -ENOMEM; feed says whether
 * there is a ring.
 */
int top_watch_update(struct top_watch *watch, mono_t now);

/*
 * Why there is no ring, and what to do about it: lines, each after `prefix`. The code to exit with.
 */
int top_watch_explain(const struct top_watch *watch, const char *prefix, FILE *file);

/*
 * What a person should know besides the figures, one line each: note number `index` into buf
 * (TOP_WATCH_NOTE_MAX bytes). False: there are no more.
 */
bool top_watch_note(const struct top_watch *watch, mono_t now, size_t index, char *buf);

#endif
