/*
 * top_data.h: the data of spikewatch top: the ring of a daemon is found, mapped read-only and
 * followed, also into the ring of a daemon that is started later; a table has the last minute of
 * each target; the rules of the daemon's configuration are evaluated on the same samples. The
 * daemon is not asked, and does not know that there is a reader.
 *
 * What is shown differs from what the daemon decides where the daemon knows more: a configuration
 * that was changed and not yet loaded, averages over more than the ring still holds, free disk
 * space.
 */
#ifndef SPIKEWATCH_CLI_TOP_TOP_DATA_H
#define SPIKEWATCH_CLI_TOP_TOP_DATA_H

#include "daemon/engine/base/paths.h"
#include "lib/base/base.h"
#include "lib/base/units.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/rules/metric.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define TOP_TABLE_SECONDS 60u

/* Rules of a target that are pending or cooling down; further ones are counted. */
#define TOP_TABLE_WAITING_MAX 4u

enum top_table_order {
	TOP_TABLE_BY_CPU,
	TOP_TABLE_BY_MEMORY,
	TOP_TABLE_BY_DISTANCE,
	TOP_TABLE_BY_NAME,
	TOP_TABLE_ORDERS
};

enum top_table_wait { TOP_TABLE_CALM, TOP_TABLE_PENDING, TOP_TABLE_COOLING };

/* The state of one rule on one target. */
struct top_table_verdict {
	const char *rule; /* valid until the next top_watch_update */
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

/* One rule on one target, in words and figures. */
struct top_table_rule {
	struct top_table_verdict verdict;
	enum unit_kind unit;
	double value, threshold; /* NAN: there is none */
	const char *reason;      /* why it did not fire; "": not judged yet. Static text */
	uint64_t firings;
};

/* About 1 KiB. To be read, up to `marks`; the rest is private. */
struct top_table_row {
	uint32_t id;
	enum target_kind kind;
	char *name;    /* may hold any byte */
	void *encoded; /* target_encode, of encoded_len bytes; NULL: none */
	size_t encoded_len;
	bool gone;
	double cpu_cores; /* over the last second or two, as of top_table_view; NAN: not known */
	double cpu_peak;  /* NAN: none yet */
	bool has_memory;
	uint64_t memory_bytes;
	uint64_t memory_peak_bytes;
	double nearness;     /* of the nearest rule; infinite: none has a threshold */
	const char *nearest; /* its name; NULL: no rule */
	struct top_table_verdict waiting[TOP_TABLE_WAITING_MAX];
	size_t waiting_count;             /* may exceed TOP_TABLE_WAITING_MAX */
	unsigned pending, cooling, fired; /* rules */

	struct top_table_mark marks[2]; /* where the second before this one began, and this one */
	struct top_table_mark window;
	bool seen, has_cpu; /* the next two are known */
	mono_t at;
	uint32_t line; /* writer_clocks_of: whose ticks say that it did not change */
	struct sample sample;
	mono_t gone_at;
	uint64_t second; /* of the clock: the last that the two below have */
	float cpu[TOP_TABLE_SECONDS], memory[TOP_TABLE_SECONDS];
};

struct top_table {
	uint64_t idle_ns;               /* longest interval of idle processes, as of the last tick; 0: none */
	uint64_t cgroup_read_ns;        /* interval of cgroups; 0: every tick */
	mono_t now;                     /* the last tick */
	uint32_t line;                  /* writer_clocks_of: whose ticks come */
	mono_t nows[WRITER_CLOCKS_MAX]; /* the last tick of each */
	bool ticked;
	uint64_t hole[WRITER_CLOCKS_MAX][TOP_TABLE_SECONDS]; /* a second of the clock, less than half sampled; + 1 */
	struct sampling_hole last_hole; /* of half a second or more, or a suspend; to 0: none yet */
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

/*
 * Those that the filter matches, sorted; what has no value comes last in either direction. 0 or
 * -ENOMEM.
 */
int top_table_view(struct top_table *table, const struct top_table_wish *wish, struct top_table_list *ret);

enum top_table_series { TOP_TABLE_CPU_CORES, TOP_TABLE_MEMORY_BYTES };

/* The value of a cell that lies in a hole of the sampling. */
#define TOP_TABLE_HOLE (-INFINITY)

/*
 * The last minute in count cells, oldest first: the highest value in each; NAN: not known. count: 1
 * .. TOP_TABLE_SECONDS.
 */
void top_table_history(const struct top_table *table, const struct top_table_row *row, enum top_table_series series,
		       double *ret, size_t count);

struct top_rules;

struct top_feed {
	const char *path; /* of the ring; borrowed */
	int error;        /* why there is no ring, negative */
	mono_t tick;
	wall_t wall;
	uint64_t lost_pages;    /* of this ring; overtaken by the daemon */
	uint64_t damaged_pages; /* of this ring */
	struct ring *ring;      /* NULL: there is none. The rest is private */
	struct ring_cursor *cursor;
	bool has_file;
	dev_t dev;
	ino_t ino;
};

#define TOP_WATCH_PLACES 3

/* Room for a note. */
#define TOP_WATCH_NOTE_MAX (CONFIG_FILE_MESSAGE_MAX + 256)

struct top_watch {
	struct top_feed feed;
	struct top_table table;
	struct top_rules *rules;                  /* NULL: none */
	char bad_config[CONFIG_FILE_MESSAGE_MAX]; /* why there are no rules, or still the previous ones; "" */
	wall_t since;                             /* of the peaks: the first tick that was read */
	char incidents[PATHS_MAX];                /* where the daemon writes them; "": its configuration is not known */
	char place[TOP_WATCH_PLACES][PATHS_MAX];  /* where rings may be */
	int place_error[TOP_WATCH_PLACES];        /* of the last attempt */
	size_t places;
	/* Private. */
	const char *config_given;
	char config_path[PATHS_MAX];
	struct config_file file;
	uint64_t signature; /* of the configuration when it was read */
	struct metric_machine machine;
	mono_t checked;
	bool has_checked;
};

/*
 * ring: NULL: that of the caller's daemon, then the system's. config: NULL: the one on the command
 * line of the daemon, as far as it can be seen. Both are borrowed. 0; -errno with message
 * (CONFIG_FILE_MESSAGE_MAX bytes). watch must stay where it is.
 */
int top_watch_init(struct top_watch *watch, const char *ring, const char *config, char *message);

/* Frees. {0} is fine. */
void top_watch_release(struct top_watch *watch);

/*
 * Reads what is new in the ring, and evaluates the rules. Once a second it checks whether the ring
 * or the configuration was replaced. now: of the monotonic clock. 0 or -ENOMEM; feed says whether
 * there is a ring.
 */
int top_watch_update(struct top_watch *watch, mono_t now);

/*
 * The rules on one target, those that are nearest to firing first: at most cap into ret, valid until
 * the next top_watch_update. How many there are.
 */
size_t top_watch_rules(const struct top_watch *watch, uint32_t id, struct top_table_rule *ret, size_t cap);

/*
 * Why there is no ring, and what to do about it: lines, each after `prefix`. The code to exit with.
 */
int top_watch_explain(const struct top_watch *watch, const char *prefix, FILE *file);

/* Warnings, one line each: number `index` into buf (TOP_WATCH_NOTE_MAX bytes). False: no more. */
bool top_watch_note(const struct top_watch *watch, mono_t now, size_t index, char *buf);

#endif
