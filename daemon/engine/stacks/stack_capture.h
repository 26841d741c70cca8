/*
 * stack_capture.h: the stacks of an incident, from the rings to its files: symbolizer_outputs.
 * Names are given by spikewatch-symbolize, a process of its own that has no rights and little time:
 * what goes wrong there costs the names, or the stacks, and never the incident. The worker's.
 *
 *     rule fires ─▶ stack_capture_secure: what the rings hold of the time before
 *     window over ─▶ stack_capture_write: what came since ─▶ one stack file, and the files it speaks of
 *     ─▶ symbolizer.h ─▶ files
 */
#ifndef SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_CAPTURE_H
#define SPIKEWATCH_DAEMON_ENGINE_STACKS_STACK_CAPTURE_H

#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/base/base.h"
#include "lib/incident/incident.h"
#include "lib/model/pacing.h"
#include "lib/profile/stack_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * stack_bundle.h: the files that an incident's stacks speak of, opened for the symboliser: those
 * that were mapped, the perf maps of just-in-time compilers, the kernel's symbols. The worker's.
 */

/* Files of mappings, those with most frames first; perf maps of processes on top. */
#define STACK_BUNDLE_FILES_MAX 256u
#define STACK_BUNDLE_PERF_MAPS_MAX 32u
#define STACK_BUNDLE_ENTRIES_MAX (STACK_BUNDLE_FILES_MAX + STACK_BUNDLE_PERF_MAPS_MAX + 1)

/* Zeroed is empty. Large: on the heap. */
struct stack_bundle {
	struct stack_file_entry entries[STACK_BUNDLE_ENTRIES_MAX]; /* paths are those of the snapshots, or in `names` */
	char names[STACK_BUNDLE_PERF_MAPS_MAX][64];
	size_t count, files, perf_maps;
};

/*
 * Opens what a snapshot speaks of, which must outlive the parcel, unless it is open already: up to
 * files_max files in all. What cannot be opened has the descriptor -1, and is tried again with the
 * next snapshot. procfd: the proc root.
 */
void stack_bundle_add(struct stack_bundle *parcel, int procfd, const struct stack_recorder_snapshot *snapshot,
		      size_t files_max);

/* Closes all. */
void stack_bundle_close(struct stack_bundle *parcel);

/*
 * symbolizer.h: starting spikewatch-symbolize, and ending it when it takes too long. It reads files
 * of strangers: what goes wrong there ends that process and nothing else. The worker's.
 */

/* What it writes: the name of the capture in the incident, and of the file. */
#define SYMBOLIZER_OUTPUTS 6
extern const struct symbolizer_output {
	const char *name, *file, *option;
} symbolizer_outputs[SYMBOLIZER_OUTPUTS];

/* Processes that the tables of functions are about. */
#define SYMBOLIZER_FOCUS_MAX 64

/* What its starter does while it runs. */
struct symbolizer_waiting {
	/*
	 * Called ten times a second: there may be other work. False: it is ended now, the daemon is
	 * being stopped.
	 */
	bool (*go_on)(void *ctx);
	void *ctx;
};

struct symbolizer_job {
	const char *program;
	int stack_file; /* at its beginning */
	const struct stack_bundle *parcel;
	int outputs[SYMBOLIZER_OUTPUTS];
	uint64_t spike_from_ns;
	const int32_t *focus;
	size_t focus_count;                       /* at most SYMBOLIZER_FOCUS_MAX; 0: about everybody */
	bool raw;                                 /* it is not to read any file: no names */
	const struct symbolizer_waiting *waiting; /* NULL: nothing */
};

/*
 * 0; -errno: it was not started; 1: it failed, and why, of cap bytes, says how. What was written by
 * then is there.
 */
int symbolizer_run(const struct symbolizer_job *job, char *why, size_t cap);

/*
 * The program that belongs to this one: beside it, or where it is installed. False: there is none.
 * ret: cap bytes.
 */
bool symbolizer_find(char *ret, size_t cap);

struct stack_capture;

struct stack_capture_options {
	struct stack_recorder *recorder;
	int procfd;             /* of the proc root */
	const char *symbolizer; /* path of the program */
	uint64_t before_ns;     /* how far back */
	uint64_t spike_from_ns; /* begin of the rule's window */
	mono_t fired;
	wall_t wall; /* of fired */
	/*
	 * What the captures that wait hold of the rings, in bytes: it is counted here, by all that
	 * share it. A look takes half of what is left of twice what the rings can hold; beyond it
	 * the oldest samples are left out, and the incident says so. NULL: as if there were no
	 * others.
	 */
	size_t *held;
};

/*
 * Reads the rings. Options are copied, what they point to must outlive the capture. NULL: they
 * could not be read, info says why.
 */
struct stack_capture *stack_capture_secure(const struct stack_capture_options *options, struct incident *info);

/* The incident's own processes: the tables of functions are about them. */
struct stack_capture_focus {
	int32_t pids[SYMBOLIZER_FOCUS_MAX];
	size_t count; /* 0: about everybody */
};

/*
 * Reads the rings once more, has names given and writes the files into the directory; what became
 * of it is added to info. Takes up to twice SYMBOLIZER_PATIENCE_NS: where files with names kill the
 * symboliser, it is run again without reading any. waiting: what to do meanwhile, or NULL. capture
 * is freed.
 */
void stack_capture_write(struct stack_capture *capture, const struct stack_capture_focus *focus, int dirfd,
			 const struct symbolizer_waiting *waiting, struct incident *info);

/*
 * "16.1 % of the page faults were counted, from -2.3 s on, and stand for all of them", by what both
 * looks say; or "". Times are since fired_ns.
 */
void stack_capture_faults_text(const struct overload_sampling_summary *first,
			       const struct overload_sampling_summary *second, uint64_t fired_ns, char *ret,
			       size_t cap);

/* NULL is fine. */
void stack_capture_free(struct stack_capture *capture);

#endif
