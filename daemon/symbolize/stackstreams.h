/*
 * stackstreams.h: the records of a stackfile's streams as one sequence in the order of time; and which samples count, where a thread was sampled
 * twice: by everybody's events and by events of its own.
 */
#ifndef SPIKEWATCH_STACKSTREAMS_H
#define SPIKEWATCH_STACKSTREAMS_H

#include "stackfile.h"

#include <stdbool.h>

struct stackstreams;

/* file must outlive it. Reads the samples of followed threads once. 0; -ENOMEM; -EINVAL: a stream of a format that perfrecord.h does not read. */
int stackstreams_new(const struct stackfile *file, struct stackstreams **ret);

/* NULL is fine. */
void stackstreams_free(struct stackstreams *streams);

/*
 * The next record, and which of file->streams it is of; of the same time the book's first, then in the order of their kinds. False: that was
 * all. A record that makes no sense ends its stream.
 */
bool stackstreams_next(struct stackstreams *streams, struct perfrecord *ret,
		       const struct stackfile_stream **ret_stream);

/*
 * Does this sample, of this stream, count? Not if it is everybody's and of a thread that has followed samples of the same kind before or at
 * the time, and at or after it: those count.
 */
bool stackstreams_counts(const struct stackstreams *streams, const struct perfrecord *sample,
			 const struct stackfile_stream *stream);

/* Streams that ended in the middle so far. */
uint64_t stackstreams_broken(const struct stackstreams *streams);

#endif
