/*
 * phase.h: every so-many-th thing is a sample, although counting is broken off and begun anew all the time, and begins at zero each time. What was
 * counted after a stretch's last sample is remembered: the next stretch takes its first sample so much earlier. Pure.
 *
 *	uint64_t period = phase_period(&phase);  count, and sample every period-th; then, with what was counted:
 *	uint64_t each = phase_end(&phase, period, counted);
 */
#ifndef SPIKEWATCH_PHASE_H
#define SPIKEWATCH_PHASE_H

#include <stdint.h>

struct phase {
	uint64_t period;  /* not 0 */
	uint64_t carry;   /* counted, and not stood for by a sample yet */
	uint64_t counted; /* in the stretch before */
};

/* For a stretch that begins now: the period, or less. */
uint64_t phase_period(const struct phase *phase);

/* A stretch with such a period has ended. What each of its samples stands for; 0: it had none. */
uint64_t phase_end(struct phase *phase, uint64_t period, uint64_t counted);

#endif
