/*
 * rest.h: when a source of news may be heard again. What comes alone is heard at once, and so is what comes next; what comes thick and fast, only every
 * gap_ns. While nothing comes there is no rest to be waited for: whoever polls sleeps.
 *
 * Pure; time is an argument. {0}: nothing was heard yet.
 */
#ifndef SPIKEWATCH_REST_H
#define SPIKEWATCH_REST_H

#include "clock.h"

#include <stdbool.h>

struct rest {
	mono_t found; /* when there was something last */
	mono_t until; /* it is not heard before */
};

/* Something was heard: the second time within gap_ns it rests as long. */
void rest_found(struct rest *rest, uint64_t gap_ns, mono_t now);

/* Whether it may be heard. */
bool rest_is_over(const struct rest *rest, mono_t now);

#endif
