/*
 * toptable.h: what spikewatch top knows of each target: how it is now, its last minute second by second, its peaks, and what the rules that
 * look at it wait for. Fed with the events of a ring, in their order. Pure; {0} is empty and legal.
 *
 * Cost: a sample is a look-up (logarithmic) and a few comparisons; memory is about 1 KiB for each target, and bounded.
 */
#ifndef SPIKEWATCH_TOPTABLE_H
#define SPIKEWATCH_TOPTABLE_H

#include "clock.h"
#include "sample.h"
#include "target.h"
#include "timelines.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOPTABLE_SECONDS 60u

/* CPU is taken over at least so long: below, the grain of the kernel's accounting shows. */
#define TOPTABLE_WINDOW_NS 100000000

/* Whoever ended is still shown for so long. */
#define TOPTABLE_GONE_NS (10 * NS_PER_S)

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

#endif
