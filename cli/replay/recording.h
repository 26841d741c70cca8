/*
 * recording.h: a source of samples (a recording, the standard input, an incident by path or name,
 * the file of a ring) as the events of a ring (lib/ring/ring.h). Nothing in it is trusted. Memory
 * does not grow with its length.
 *
 * A ring holds every tick, and its events are those that the daemon saw. A stream holds only the
 * samples, so ticks are made up: one where samples are, and between them one every interval for as
 * long as targets can have been idle. What a sample says, and when it was taken, is exact; when a
 * target that stood still was last read is known to one interval. Each writer has its own ticks, as
 * in a ring.
 */
#ifndef SPIKEWATCH_CLI_REPLAY_RECORDING_H
#define SPIKEWATCH_CLI_REPLAY_RECORDING_H

#include "lib/base/base.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/stream/stream.h"

#include <stdbool.h>
#include <stdint.h>

struct recording_options {
	/*
	 * Of a stream: between two ticks where samples do not say it, and how long a target that
	 * stands still has none. Both > 0.
	 */
	uint64_t interval_ns, heartbeat_ns;
	uint64_t idle_ns;       /* of a stream: the longest that a process is not read, by idle back-off; 0: none */
	bool interval_is_known; /* exactly; else a shorter one is found from the rows of targets that are busy */
	int64_t mono_ahead_ns;  /* of a stream: monotonic less wall clock; windows end at multiples of the former */
	int (*event)(void *ctx, const struct ring_event *event); /* a non-zero return ends the reading */
	/* line 0: of the whole, or of a page of a ring. why is static text. May be NULL. */
	void (*trouble)(void *ctx, uint64_t line, uint64_t rows_lost, const char *why);
	void *ctx;
};

struct recording_summary {
	bool any;        /* there were ticks: the next two are set */
	wall_t from, to; /* the earliest and the latest */
	uint64_t ticks, samples, targets, gone;
	uint64_t gaps;                      /* damage, lost rows or pages, GAP notes of those */
	uint64_t holes, unsampled_ns;       /* slots that the sampler had missed, in so many stretches */
	uint64_t suspends, suspended_ns;    /* of the machine; in none of the times above */
	uint64_t nameless;                  /* samples of targets that are not declared, or too many: dropped */
	uint64_t late;                      /* samples that came after later ones, or at absurd times: dropped */
	struct stream_reader_report report; /* of a stream, once it has ended */
};

#define REPLAY_SOURCE_MESSAGE_MAX 512

struct replay_source {
	const char *kind;    /* "recording", "incident", "ring" */
	char path[4096];     /* resolved; "-" is the standard input */
	bool rereadable;     /* it can be opened again */
	int fd;              /* -1: a ring */
	uint64_t size_bytes; /* 0: not known */
	struct ring *ring;
	/* Of an incident, as far as it says: */
	bool has_clock;
	int64_t mono_ahead_ns;
	mono_t first_tick, last_tick;  /* ns 0: not known */
	uint64_t interval_ns;          /* 0: not known */
	uint64_t idle_ns;              /* 0: none, or not known */
	struct metric_machine machine; /* cores, memory_bytes: 0: not known */
};

/*
 * operand: a path, "-", or the name of an incident in directory (as incident_load_find). 0: *ret is
 * to be closed; -EINVAL: not a source, or not there; -errno. Unless 0, message
 * (REPLAY_SOURCE_MESSAGE_MAX bytes) says why; it may hold any byte.
 */
int replay_source_open(const char *operand, const char *directory, struct replay_source *ret, char *message);
void replay_source_close(struct replay_source *source);

/*
 * What the source tells of its interval and clocks overrides options. progress may be NULL. 0;
 * -ENOMEM; -errno of reading; what event returned. *ret is always set.
 */
int replay_source_play(struct replay_source *source, const struct recording_options *options,
		       void (*progress)(void *ctx, uint64_t done_bytes, uint64_t size_bytes),
		       struct recording_summary *ret);

#endif
