/*
 * salvage.h: reads a stream (stream.h) out of anything: skips what is not ours, reports and skips what is damaged, and
 * always says what was recovered and what was lost. Fed in pieces of any size; never keeps more than one line.
 */
#ifndef SPIKEWATCH_SALVAGE_H
#define SPIKEWATCH_SALVAGE_H

#include "clock.h"
#include "stream.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct salvage;

/* What is handed out; any may be NULL. Strings are valid during the call. A non-zero return stops and is returned. */
struct salvage_events {
	int (*column)(void *ctx, size_t index, const char *name, const char *json);
	int (*start_time)(void *ctx, wall_t start);
	int (*target)(void *ctx, uint32_t id, const char *json, size_t len);
	int (*row)(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask);
	int (*note)(void *ctx, const char *kind, const char *json, size_t len);
	int (*stats)(void *ctx, const char *json, size_t len);
	/* A line of ours that was thrown away, or rows that are missing: line counts from 1; why is static text. */
	int (*damage)(void *ctx, uint64_t line, uint64_t rows_lost, const char *why);
	void *ctx;
};

struct salvage_report {
	enum stream_format format;
	bool ours;              /* at least one line of ours was recognised */
	bool complete;          /* the closing checksum line was there */
	bool checksum_ok;       /* and it agrees */
	size_t columns;         /* known columns */
	uint64_t lines;         /* of the input */
	uint64_t foreign_lines; /* not ours, skipped; empty lines are not counted */
	uint64_t damaged_lines; /* carry our prefix but fail their checksum or make no sense */
	uint64_t rows;          /* recovered */
	uint64_t rows_lost;     /* known to be missing, by their numbers */
	uint64_t first_time_ns, last_time_ns;
};

/* Whole: ours, complete, checksum_ok, nothing damaged or lost. */
bool salvage_whole(const struct salvage_report *report);

/* 0 or -ENOMEM. *events is copied. */
int salvage_new(const struct salvage_events *events, struct salvage **ret);
/* 0; -ENOMEM; what an event returned. */
int salvage_feed(struct salvage *salvage, const char *data, size_t len);
/* The end of the input. As salvage_feed; *ret is always set. */
int salvage_finish(struct salvage *salvage, struct salvage_report *ret);
void salvage_free(struct salvage *salvage);

#endif
