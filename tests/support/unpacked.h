/*
 * unpacked.h: gzip undone, for tests of its writers.
 */
#ifndef SPIKEWATCH_TESTS_UNPACKED_H
#define SPIKEWATCH_TESTS_UNPACKED_H

#include "lib/base/io.h"

/*
 * Unpacks the one member that must be all there is, onto the end of ret. Asserts that it is whole.
 */
void unpacked(const struct buffer *gzip, struct buffer *ret);

#endif
