/*
 * replaysource.h: what somebody names as a source of samples: a recording, the standard input, an incident by path or name, the file of a
 * ring. Opened for what it is, and played (tape.h). Nothing in it is trusted.
 */
#ifndef SPIKEWATCH_REPLAYSOURCE_H
#define SPIKEWATCH_REPLAYSOURCE_H

#include "metric.h"
#include "tape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum replaysource_kind { REPLAYSOURCE_STREAM, REPLAYSOURCE_INCIDENT, REPLAYSOURCE_RING };

#define REPLAYSOURCE_MESSAGE_MAX 512

struct replaysource {
	enum replaysource_kind kind;
	char path[4096];     /* what it turned out to be; "-" is the standard input */
	bool rereadable;     /* it can be opened once more */
	int fd;              /* -1: a ring */
	uint64_t size_bytes; /* 0: not known */
	struct ring *ring;
	/* Of an incident, as far as it says: */
	bool has_clock;
	int64_t mono_ahead_ns;
	uint64_t interval_ns;          /* 0: not known */
	uint64_t idle_ns;              /* 0: none, or not known */
	struct metric_machine machine; /* cores, memory_bytes: 0: not known */
};

/*
 * operand: a path, "-", or the name of an incident in directory (as incidentload_find). 0: *ret is to be closed; -EINVAL: none of ours,
 * or not there; -errno. Unless 0, message (REPLAYSOURCE_MESSAGE_MAX bytes) says why; it may hold bytes of strangers.
 */
int replaysource_open(const char *operand, const char *directory, struct replaysource *ret, char *message);
void replaysource_close(struct replaysource *source);

/* options: interval_ns and mono_ahead_ns are overruled by what the source knows. progress may be NULL. As tape_finish; -errno of reading. */
int replaysource_play(struct replaysource *source, const struct tape_options *options,
		      void (*progress)(void *ctx, uint64_t done_bytes, uint64_t size_bytes), struct tape_summary *ret);

/* "recording", "incident", "ring". */
const char *replaysource_kind_name(enum replaysource_kind kind);

#endif
