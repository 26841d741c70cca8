/*
 * sample_stream.h: a target's declaration in a stream, as lib/columns.h writes it, back into a
 * target. Nothing in it is trusted.
 */
#ifndef SPIKEWATCH_LIB_STREAM_SAMPLE_STREAM_H
#define SPIKEWATCH_LIB_STREAM_SAMPLE_STREAM_H

#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/stream/stream.h"

#include <stdint.h>

/*
 * columns.h: samples and targets as a stream says them: one column per field of a sample, a target
 * as one object. Whoever writes samples into a stream (the slice of an incident, a recording) goes
 * through here, so that all read alike.
 */

/*
 * The columns of a stream of samples: column i is field i, so that the mask and values of a sample
 * are those of a row. All text is static.
 */
void columns_of_samples(struct stream_column ret[static SAMPLE_FIELDS]);

/*
 * Appends a target as one JSON object on one line, without newline and without tab: what
 * stream_target takes. Bytes of its strings that are no UTF-8, or that would act on a terminal, are
 * replaced by U+FFFD. writer: the number of who looks at it (ring.h); that of the first, 0, is not
 * said. 0, -ENOMEM, -EFBIG beyond buffer->max.
 */
int columns_target_json(const struct target *target, uint32_t writer, struct buffer *buffer);

/*
 * The target that an object says. What is missing or of the wrong type is empty, 0 or, for the
 * kind, a process. Strings belong to the document.
 */
struct target target_json_read(const struct json_node *object, uint32_t id);

/* A member that is a number from 0 to max, else 0. */
double target_json_number(const struct json_node *object, const char *key, double max);

#endif
