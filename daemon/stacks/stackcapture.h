/*
 * stackcapture.h: the stacks of an incident, from the rings to its files: symbolizer_outputs. Names are given by spikewatch-symbolize, a process of
 * its own that has no rights and little time: what goes wrong there costs the names, or the stacks, and never the incident. The worker's.
 *
 *     rule fires ─▶ stackcapture_secure: what the rings hold of the time before
 *     window over ─▶ stackcapture_write: what came since ─▶ one stackfile, and the files it speaks of ─▶ symbolizer.h ─▶ files
 */
#ifndef SPIKEWATCH_STACKCAPTURE_H
#define SPIKEWATCH_STACKCAPTURE_H

#include "clock.h"
#include "incident.h"
#include "stackrecorder.h"
#include "symbolizer.h"

struct stackcapture;

struct stackcapture_options {
	struct stackrecorder *recorder;
	int procfd;             /* of the proc root */
	const char *symbolizer; /* path of the program */
	uint64_t before_ns;     /* how far back */
	uint64_t spike_from_ns; /* begin of the rule's window */
	mono_t fired;
	wall_t wall; /* of fired */
	/*
	 * What the captures that wait hold of the rings, in bytes: it is counted here, by all that share it. A look takes half of what is left of twice
	 * what the rings can hold; beyond it the oldest samples are left out, and the incident says so. NULL: as if there were no others.
	 */
	size_t *held;
};

/*
 * Reads the rings. Options are copied, what they point to must outlive the capture. NULL: they could not be read, info says why.
 */
struct stackcapture *stackcapture_secure(const struct stackcapture_options *options, struct incident *info);

/* The incident's own processes: the tables of functions are about them. */
struct stackcapture_focus {
	int32_t pids[SYMBOLIZER_FOCUS_MAX];
	size_t count; /* 0: about everybody */
};

/*
 * Reads the rings once more, has names given and writes the files into the directory; what became of it is added to info. Takes
 * up to twice SYMBOLIZER_PATIENCE_NS: where files with names kill the symboliser, it is run again without reading any. waiting: what to do meanwhile, or NULL. capture is freed.
 */
void stackcapture_write(struct stackcapture *capture, const struct stackcapture_focus *focus, int dirfd,
			const struct symbolizer_waiting *waiting, struct incident *info);

/* "16.1 % of the page faults were counted, from -2.3 s on, and stand for all of them", by what both looks say; or "". Times are since fired_ns. */
void stackcapture_faults_text(const struct thinning_summary *first, const struct thinning_summary *second,
			      uint64_t fired_ns, char *ret, size_t cap);

/* NULL is fine. */
void stackcapture_free(struct stackcapture *capture);

#endif
