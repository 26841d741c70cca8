/*
 * census.h: the processes of the host as a scan has looked at them, so that the next need not look again at those that have not run since: a process
 * that has not run is what it was. Pure but for its memory; what a CPU clock says is an argument.
 */
#ifndef SPIKEWATCH_CENSUS_H
#define SPIKEWATCH_CENSUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* More are looked at every time: 40 bytes each. */
#define CENSUS_MAX 65536u

/* A process is looked at in one of so many scans in any case: another one may have got its pid, and used as much to the nanosecond. */
#define CENSUS_TURNS 16u

struct census;

struct census_record {
	int32_t pid;   /* not 0 */
	uint32_t scan; /* census_begin's count: the last that met it */
	uint64_t start_ticks;
	uint64_t cpu_ticks; /* as its stat said */
	uint64_t cpu_ns;    /* as its clock said before stat was read */
	size_t watches;     /* the caller's: targets that it is */
};

/* 0 or -ENOMEM. */
int census_new(struct census **ret);

/* NULL is fine. */
void census_free(struct census *census);

/* A scan begins. */
void census_begin(struct census *census);

/* The scan is over: who was not met may be forgotten. */
void census_end(struct census *census);

/* Nobody is known any more: what is looked for is another thing. */
void census_clear(struct census *census);

/*
 * The scan meets pid, whose CPU clock says cpu_ns (0: nothing). NULL: it has to be looked at. Else it is as it was, and counts as met. Valid until the next
 * call.
 */
const struct census_record *census_meet(struct census *census, int32_t pid, uint64_t cpu_ns);

/* It was looked at, and there is nothing left to be done about it. Its scan is set here. Without memory it is looked at again. */
void census_enter(struct census *census, const struct census_record *record);

/* How many are known. */
size_t census_count(const struct census *census);

#endif
