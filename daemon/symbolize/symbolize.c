/*
 * symbolize.c: the records are replayed in the order of their time (stackstreams.h): mappings, names, forks and ends of processes change what is
 * known (addressspace.h), a sample is looked up in what is known by then (callstack.h) and counts in the profile of its kind.
 */
#include "symbolize.h"

#include "addressspace.h"
#include "callstack.h"
#include "modules.h"
#include "scope.h"
#include "stackstreams.h"

#include <errno.h>
#include <string.h>

#define NS_PER_S 1000000000u

struct symbolizing {
	const struct stackfile *file;
	const struct symbolize_options *options;
	struct addressspaces *spaces;
	struct modules *modules;
	struct stackstreams *streams;
	struct stackprofile *profiles[SYMBOLIZE_PROFILES];
	struct callstack stacks[SYMBOLIZE_PROFILES];
	struct symbolize_counts *counts;
};

static enum stackprofile_quantity quantity_of(const struct stackfile_stream *stream)
{
	return stream->kind == STACKFILE_FAULTS || stream->kind == STACKFILE_FAULTS_FOLLOWED ? STACKPROFILE_MEMORY
											     : STACKPROFILE_CPU;
}

static uint64_t period_ns(const struct stackfile *file)
{
	return file->head->frequency > 0 ? NS_PER_S / file->head->frequency : 0;
}

static uint64_t saturated(unsigned __int128 value)
{
	return value > UINT64_MAX ? UINT64_MAX : (uint64_t)value;
}

/* How many samples or faults it stands for, and what they weigh. */
static void weigh(const struct symbolizing *job, const struct stackfile_stream *stream, uint64_t period,
		  struct stackprofile_sample *sample)
{
	if (quantity_of(stream) == STACKPROFILE_MEMORY) {
		sample->count = period > 0 ? period : 1;
		sample->weight = saturated((unsigned __int128)sample->count * job->file->head->page_bytes);
		return;
	}
	sample->count = 1;
	sample->weight = period > 0 && stream->units_per_second > 0
				 ? saturated((unsigned __int128)period * NS_PER_S / stream->units_per_second)
				 : period_ns(job->file);
}

/* NULL: not known. */
static const char *cgroup_of(const struct stackfile *file, uint32_t pid)
{
	size_t low = 0, high = file->head->processes;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (file->processes[middle].pid == pid)
			return file->strings + file->processes[middle].cgroup_offset;
		if (file->processes[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}

	return NULL;
}

static void count_sample(struct symbolize_counts *counts, enum stackprofile_quantity quantity,
			 const struct stackprofile_sample *sample)
{
	if (quantity == STACKPROFILE_MEMORY) {
		counts->samples_of_faults++;
		counts->faults += sample->count;
	} else {
		counts->samples++;
	}
	counts->samples_without_stack += sample->frame_count == 0;
}

static int take_sample(struct symbolizing *job, const struct stackfile_stream *stream, const struct perfrecord *record)
{
	enum stackprofile_quantity quantity = quantity_of(stream);
	const struct perfrecord_format format = { stream->sample_type, stream->regs_user };
	uint32_t frames[STACKPROFILE_FRAMES_MAX];
	struct stackprofile_sample sample = {
		.time_ns = record->time_ns,
		.pid = (int32_t)record->pid,
		.tid = (int32_t)record->tid,
		.process = addressspaces_name(job->spaces, record->pid),
		.thread = addressspaces_name(job->spaces, record->tid),
		.cgroup = cgroup_of(job->file, record->pid),
		.frames = frames,
	};
	int r;

	if (!stackstreams_counts(job->streams, record, stream)) {
		job->counts->samples_twice++;
		return 0;
	}
	r = callstack_frames(&job->stacks[quantity], &format, record, frames, &sample.frame_count);
	if (r < 0)
		return r;
	weigh(job, stream, record->sample.period, &sample);
	count_sample(job->counts, quantity, &sample);
	r = stackprofile_add(job->profiles[quantity], &sample);

	return r < 0 ? r : 0;
}

static int take_record(struct symbolizing *job, const struct stackfile_stream *stream, const struct perfrecord *record)
{
	switch (record->type) {
	case PERF_RECORD_SAMPLE:
		return stream->kind == STACKFILE_BOOK ? 0 : take_sample(job, stream, record);
	case PERF_RECORD_LOST:
	case PERF_RECORD_LOST_SAMPLES:
		job->counts->records_lost += record->lost.count;
		return 0;
	default:
		return stream->kind == STACKFILE_BOOK ? addressspaces_record(job->spaces, record) : 0;
	}
}

static int replay(struct symbolizing *job)
{
	const struct stackfile_stream *stream;
	struct perfrecord record;
	int r = 0;

	while (r == 0 && stackstreams_next(job->streams, &record, &stream))
		r = take_record(job, stream, &record);
	job->counts->records_broken = stackstreams_broken(job->streams);
	job->counts->records_left_out = addressspaces_dropped(job->spaces);

	return r;
}

/* From when on the samples of this kind are complete: everybody's, if there are any, else those of followed threads. */
static uint64_t covered_from(const struct stackfile *file, enum stackprofile_quantity quantity)
{
	uint64_t from_ns = file->head->from_ns, covered_ns = 0;
	uint32_t best = UINT32_MAX;

	for (uint32_t i = 0; i < file->head->streams; i++) {
		const struct stackfile_stream *stream = &file->streams[i];

		if (stream->kind == STACKFILE_BOOK || quantity_of(stream) != quantity || stream->kind > best)
			continue;
		best = stream->kind;
		covered_ns = stream->covered_ns;
	}

	return covered_ns > from_ns ? covered_ns : from_ns;
}

static int begin_profile(struct symbolizing *job, enum stackprofile_quantity quantity)
{
	const struct stackfile_head *head = job->file->head;
	const struct callstack_sources sources = { job->spaces, job->modules, job->counts };
	uint64_t spike_from_ns = job->options->spike_from_ns;
	struct stackprofile_options options = {
		.quantity = quantity,
		.fired_ns = head->fired_mono_ns,
		.wall_ns = head->fired_wall_ns,
		.from_ns = covered_from(job->file, quantity),
		.to_ns = head->to_ns,
		.spike_from_ns = spike_from_ns > 0 ? spike_from_ns : head->fired_mono_ns,
		.period_ns = quantity == STACKPROFILE_CPU ? period_ns(job->file) : 0,
		.focus = job->options->focus,
		.focus_count = job->options->focus_count,
	};
	int r = stackprofile_new(&options, &job->profiles[quantity]);

	callstack_init(&job->stacks[quantity], &sources, job->profiles[quantity]);

	return r;
}

static int work(struct symbolizing *job)
{
	int r = addressspaces_new(&(struct addressspaces_limits){ 0 }, &job->spaces);

	if (r == 0)
		r = stackstreams_new(job->file, &job->streams);
	for (int i = 0; i < SYMBOLIZE_PROFILES && r == 0; i++)
		r = begin_profile(job, (enum stackprofile_quantity)i);

	return r == 0 ? replay(job) : r;
}

int symbolize_run(const struct stackfile *file, const struct symbolize_options *options,
		  struct stackprofile *ret[SYMBOLIZE_PROFILES], struct symbolize_counts *ret_counts)
{
	struct symbolize_counts counts = { 0 };
	struct symbolizing job = { .file = file, .options = options, .counts = &counts };
	int r = modules_new(file, options, &counts, &job.modules);

	if (r == 0)
		r = work(&job);
	if (r == 0)
		*ret_counts = counts;
	for (int i = 0; i < SYMBOLIZE_PROFILES; i++) {
		if (r == 0)
			ret[i] = TAKE(job.profiles[i]);
		callstack_release(&job.stacks[i]);
		stackprofile_free(job.profiles[i]);
	}
	stackstreams_free(job.streams);
	addressspaces_free(job.spaces);
	modules_free(job.modules);

	return r;
}
