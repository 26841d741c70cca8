/*
 * columns.h: samples and targets as a stream says them: one column per field of a sample, a target as one object.
 * Whoever writes samples into a stream (the slice of an incident, a recording) goes through here, so that all read
 * alike.
 */
#ifndef SPIKEWATCH_COLUMNS_H
#define SPIKEWATCH_COLUMNS_H

#include "sample.h"
#include "sink.h"
#include "stream.h"
#include "target.h"

/*
 * The columns of a stream of samples: column i is field i, so that the mask and values of a sample are those of a row.
 * All text is static.
 */
void columns_of_samples(struct stream_column ret[static SAMPLE_FIELDS]);

/*
 * Appends a target as one JSON object on one line, without newline and without tab: what stream_target takes. Bytes of
 * its strings that are no UTF-8, or that would act on a terminal, are replaced by U+FFFD. writer: the number of who looks at it
 * (ring.h); that of the first, 0, is not said. 0, -ENOMEM, -EFBIG beyond buffer->max.
 */
int columns_target_json(const struct target *target, uint32_t writer, struct buffer *buffer);

#endif
