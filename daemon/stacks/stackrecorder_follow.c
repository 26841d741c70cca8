/*
 * stackrecorder_follow.c: between whoever says what is to be followed, the side rings that tell of forks, and the thread that opens the events.
 *
 * Opening the events of hundreds of threads takes a while: it is done without the lock, by the thread alone. Notes wait for it in a row.
 */
#include "stackrecorder_inside.h"

#include "realclock.h"
#include "scope.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define PROCESSES_MAX 256
#define NOTES_MAX 65536 /* a second of a machine that does nothing but fork; beyond it, some are counted twice */

void stackrecorder_note(struct stackrecorder *recorder, const struct perfrecord *record)
{
	bool begins = record->type == PERF_RECORD_FORK, ends = record->type == PERF_RECORD_EXIT;

	if (!recorder->take_notes || (!begins && !(ends && record->pid == record->tid)))
		return;
	if (recorder->note_count == recorder->note_cap) {
		size_t cap = recorder->note_cap == 0 ? 64 : 2 * recorder->note_cap;
		struct perfthreads_note *notes = NULL;

		if (cap <= NOTES_MAX)
			notes = reallocarray(recorder->notes, cap, sizeof(*notes));
		if (notes == NULL) {
			recorder->side_lost++;
			return;
		}
		recorder->notes = notes;
		recorder->note_cap = cap;
	}
	recorder->notes[recorder->note_count++] = (struct perfthreads_note){ .time_ns = record->time_ns,
									     .pid = record->pid,
									     .tid = record->tid,
									     .ppid = record->fork.ppid,
									     .ptid = record->fork.ptid,
									     .ended = ends };
}

static void hand_on_notes(struct stackrecorder *recorder)
{
	AUTO_FREE struct perfthreads_note *notes = NULL;
	size_t count;

	pthread_mutex_lock(&recorder->lock);
	count = recorder->note_count;
	if (count > 0) {
		notes = TAKE(recorder->notes);
		recorder->note_count = recorder->note_cap = 0;
	}
	pthread_mutex_unlock(&recorder->lock);
	for (size_t i = 0; i < count; i++)
		perfthreads_note(recorder->threads, &notes[i]);
}

static void catch_up(void *ctx)
{
	stackrecorder_drain(ctx);
	hand_on_notes(ctx);
}

/* While it still runs: what it was called and had mapped is wanted when it does not. */
static void opened(void *ctx, uint32_t pid, const uint32_t *tids, size_t count)
{
	struct stackrecorder *recorder = ctx;
	struct clock clock = realclock();
	uint64_t now_ns = clock_mono(&clock).ns;
	AUTO_FREE struct stackrecorder_hit *hits = calloc(count, sizeof(*hits));

	for (size_t i = 0; hits != NULL && i < count; i++)
		hits[i] = (struct stackrecorder_hit){ .pid = pid, .tid = tids[i], .time_ns = now_ns };
	if (hits != NULL)
		stackrecorder_look_up(recorder, hits, count);
}

static void tell(struct stackrecorder *recorder)
{
	struct perfthreads_status followed;

	perfthreads_status(recorder->threads, &followed);
	pthread_mutex_lock(&recorder->lock);
	recorder->followed = followed;
	recorder->take_notes = followed.threads > 0;
	pthread_mutex_unlock(&recorder->lock);
}

/* Where nobody else's events tell. */
static void tell_units(struct stackrecorder *recorder)
{
	uint64_t cycles = 0, running_ns = 0;

	for (size_t i = 0; i < recorder->output_count; i++)
		if (recorder->outputs[i].wanted->cycles && !recorder->status.everybody)
			perfthreads_count(recorder->threads, i, &cycles, &running_ns);
	pthread_mutex_lock(&recorder->lock);
	recorder->followed_units = stackrecorder_cycles_per_second(cycles, running_ns);
	pthread_mutex_unlock(&recorder->lock);
}

void stackrecorder_reconcile(struct stackrecorder *recorder, bool look)
{
	AUTO_FREE uint32_t *pids = NULL;
	size_t count = 0;
	bool changed;

	if (recorder->threads == NULL)
		return;
	pthread_mutex_lock(&recorder->lock);
	changed = recorder->follow_changed;
	if (changed && recorder->follow_count > 0) {
		pids = malloc(recorder->follow_count * sizeof(*pids));
		if (pids != NULL)
			memcpy(pids, recorder->follow, recorder->follow_count * sizeof(*pids));
		count = recorder->follow_count;
		recorder->take_notes = true;
	}
	if (changed && (count == 0 || pids != NULL))
		recorder->follow_changed = false;
	else
		changed = false; /* no memory: another time */
	pthread_mutex_unlock(&recorder->lock);
	hand_on_notes(recorder);
	if (changed)
		perfthreads_follow(recorder->threads, pids, count);
	perfthreads_sweep(recorder->threads, look);
	tell(recorder);
	if (changed || look)
		tell_units(recorder);
}

int stackrecorder_follow(struct stackrecorder *recorder, const uint32_t *pids, size_t count)
{
	AUTO_FREE uint32_t *copy = NULL;
	uint64_t one = 1;
	bool same;

	if (recorder->threads == NULL)
		return 0;
	if (count > 0) {
		copy = malloc(count * sizeof(*copy));
		if (copy == NULL)
			return -ENOMEM;
		memcpy(copy, pids, count * sizeof(*copy));
	}
	pthread_mutex_lock(&recorder->lock);
	same = count == recorder->follow_count &&
	       (count == 0 || memcmp(copy, recorder->follow, count * sizeof(*copy)) == 0);
	if (!same) {
		free(recorder->follow);
		recorder->follow = TAKE(copy);
		recorder->follow_count = count;
		recorder->follow_changed = true;
	}
	pthread_mutex_unlock(&recorder->lock);
	while (!same && write(recorder->wake_fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
	return 0;
}

int stackrecorder_open_follow(struct stackrecorder *recorder)
{
	struct rlimit limit = { .rlim_cur = 1024 };
	struct perfthreads_options options = { .proc_fd = recorder->proc_fd,
					       .outputs = recorder->outputs,
					       .cpus = recorder->status.cpus,
					       .max_processes = PROCESSES_MAX,
					       .clock = realclock(),
					       .catch_up = catch_up,
					       .opened = opened,
					       .ctx = recorder };

	for (int kind = 0; kind < STACKFILE_STREAM_KINDS; kind++)
		if (recorder->kinds[kind].on && recorder->kinds[kind].followed)
			recorder->outputs[recorder->output_count++] =
				(struct perfthreads_output){ &recorder->kinds[kind].wanted,
							     recorder->kinds[kind].rings };
	if (recorder->output_count == 0)
		return 0;
	getrlimit(RLIMIT_NOFILE, &limit);
	options.max_events = perfthreads_max_events(limit.rlim_cur);
	options.output_count = recorder->output_count;
	return perfthreads_new(&options, &recorder->threads);
}

void stackrecorder_close_follow(struct stackrecorder *recorder)
{
	perfthreads_free(recorder->threads);
	free(recorder->follow);
	free(recorder->notes);
}
