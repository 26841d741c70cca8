/*
 * symbolizer.h: starting spikewatch-symbolize, and ending it when it takes too long. It reads files of strangers: what goes wrong there ends
 * that process and nothing else. The worker's.
 */
#ifndef SPIKEWATCH_SYMBOLIZER_H
#define SPIKEWATCH_SYMBOLIZER_H

#include "clock.h"
#include "stackparcel.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What it writes: the name of the capture in the incident, and of the file. */
#define SYMBOLIZER_OUTPUTS 6
extern const struct symbolizer_output {
	const char *name, *file, *option;
} symbolizer_outputs[SYMBOLIZER_OUTPUTS];

/* What it may take, by the clock. */
#define SYMBOLIZER_PATIENCE_NS (30 * NS_PER_S)

/* Processes that the tables of functions are about. */
#define SYMBOLIZER_FOCUS_MAX 64

/* What its starter does while it runs. */
struct symbolizer_waiting {
	/* Called ten times a second: there may be other work. False: it is ended now, the daemon is being stopped. */
	bool (*go_on)(void *ctx);
	void *ctx;
};

struct symbolizer_job {
	const char *program;
	int stackfile; /* at its beginning */
	const struct stackparcel *parcel;
	int outputs[SYMBOLIZER_OUTPUTS];
	uint64_t spike_from_ns;
	const int32_t *focus;
	size_t focus_count;                       /* at most SYMBOLIZER_FOCUS_MAX; 0: about everybody */
	bool raw;                                 /* it is not to read any file: no names */
	const struct symbolizer_waiting *waiting; /* NULL: nothing */
};

/* 0; -errno: it was not started; 1: it failed, and why, of cap bytes, says how. What was written by then is there. */
int symbolizer_run(const struct symbolizer_job *job, char *why, size_t cap);

/* The program that belongs to this one: beside it, or where it is installed. False: there is none. ret: cap bytes. */
bool symbolizer_find(char *ret, size_t cap);

#endif
