/*
 * samplewalk.h: the samples of an incident, row after row, of all its targets. Nothing in the file is trusted: damaged lines are passed
 * over and counted.
 */
#ifndef SPIKEWATCH_SAMPLEWALK_H
#define SPIKEWATCH_SAMPLEWALK_H

#include "clock.h"
#include "salvage.h"
#include "sample.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of further targets are passed over and counted. */
#define SAMPLEWALK_TARGETS_MAX 20000

struct samplewalk_target {
	uint32_t id;    /* in the file */
	char name[256]; /* "": not known; may hold any byte */
	char kind[16];  /* "process", "cgroup", "group"; "": not known */
	int32_t pid;    /* 0: none */
	uint64_t rows;
};

struct samplewalk_row {
	size_t target; /* place in targets */
	int64_t at_ns; /* since the firing */
	bool gap;      /* samples of this target may be missing before this one */
	struct sample sample;
};

/* What was seen. */
struct samplewalk {
	struct samplewalk_target *targets; /* in the order in which they were met */
	size_t count, cap;
	uint64_t rows;
	uint64_t outside; /* rows at absurd times, or of too many targets: passed over */
	struct salvage_report report;
};

struct samplewalk_visit {
	/* May be NULL. Non-zero stops the walk and is returned. walk: so far. */
	int (*row)(void *ctx, const struct samplewalk *walk, const struct samplewalk_row *row);
	void *ctx;
};

/*
 * Reads samples.tsv of an incident that fired then. 0 and *ret, to be released; -ENOENT: there is none; -ENOMEM; -errno; what row
 * returned. *ret is set on success only.
 */
int samplewalk_run(int incidentfd, wall_t fired, const struct samplewalk_visit *visit, struct samplewalk *ret);

/* {0} is fine. */
void samplewalk_release(struct samplewalk *walk);

#endif
