/*
 * stackcapture.h: the stacks of an incident, from the rings to its files: cpu.pb.gz, cpu.folded, functions.tsv. Names are given by
 * spikewatch-symbolize, a process of its own that has no rights and little time: what goes wrong there costs the names, or the stacks, and
 * never the incident. The worker's.
 *
 *     rule fires ─▶ stackcapture_secure: what the rings hold of the time before
 *     window over ─▶ stackcapture_write: what came since ─▶ one stackfile, and the files it speaks of ─▶ the symboliser ─▶ three files
 */
#ifndef SPIKEWATCH_STACKCAPTURE_H
#define SPIKEWATCH_STACKCAPTURE_H

#include "clock.h"
#include "incident.h"
#include "stackrecorder.h"

struct stackcapture;

struct stackcapture_options {
	struct stackrecorder *recorder;
	int procfd;             /* of the proc root */
	const char *symbolizer; /* path of the program */
	uint64_t before_ns;     /* how far back */
	uint64_t spike_from_ns; /* begin of the rule's window */
	mono_t fired;
	wall_t wall; /* of fired */
};

/*
 * Reads the rings. Options are copied, what they point to must outlive the capture. NULL: they could not be read, info says why.
 */
struct stackcapture *stackcapture_secure(const struct stackcapture_options *options, struct incident *info);

/* Processes that the table of functions is about: the incident's own. */
#define STACKCAPTURE_FOCUS_MAX 64

struct stackcapture_focus {
	int32_t pids[STACKCAPTURE_FOCUS_MAX];
	size_t count; /* 0: about everybody */
};

/*
 * Reads the rings once more, has names given and writes the files into the directory; what became of it is added to info. Takes
 * up to STACKCAPTURE_PATIENCE_NS. capture is freed.
 */
void stackcapture_write(struct stackcapture *capture, const struct stackcapture_focus *focus, int dirfd,
			struct incident *info);

/* What the symboliser may take, by the clock. */
#define STACKCAPTURE_PATIENCE_NS (30 * NS_PER_S)

/* NULL is fine. */
void stackcapture_free(struct stackcapture *capture);

/* The symboliser that belongs to this program: beside it, or where it is installed. False: there is none. ret: cap bytes. */
bool stackcapture_find_symbolizer(char *ret, size_t cap);

#endif
