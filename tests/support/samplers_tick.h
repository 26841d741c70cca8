/* samplers_tick.h: samplers in the calling thread, for suites that say when a tick comes. */
#ifndef SPIKEWATCH_TESTS_SAMPLERS_TICK_H
#define SPIKEWATCH_TESTS_SAMPLERS_TICK_H

#include "daemon/engine/sampling/sampler.h"

/* One tick of each. The threads must not be running. In check_sampler.c. */
void samplers_tick(struct samplers *samplers);

#endif
