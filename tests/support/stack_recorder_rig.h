/*
 * stack recorder_rig.h: a recorder, children that burn CPU time under it, and a look at what a
 * snapshot says of them.
 */
#ifndef SPIKEWATCH_STACK_RECORDER_RIG_H
#define SPIKEWATCH_STACK_RECORDER_RIG_H

#include "lib/base/base.h"
#include "daemon/engine/base/clocks.h"
#include "daemon/engine/stacks/stack_recorder.h"
#include "lib/proc/perf.h"
#include "lib/profile/stack_file.h"
#include "skip.h"

#include <check.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_NS (60 * NS_PER_S) /* for what takes half a second on an idle machine */

struct stack_recorder_rig {
	struct stack_recorder *recorder;
	struct stack_recorder_snapshot snapshot;
};

static inline uint64_t now_ns(void)
{
	struct clock clock = real_clock();

	return clock_mono(&clock).ns;
}

static inline bool begin_with(struct stack_recorder_rig *rig, const struct stack_recorder_options *options)
{
	char reason[STACK_RECORDER_REASON_MAX];
	int r = stack_recorder_open(options, &rig->recorder, reason);

	if (r == 0)
		return true;
	ck_assert_str_ne(reason, "");
	return skip_because("%s", reason);
}

/* False: not allowed here. */
static inline bool begin(struct stack_recorder_rig *rig)
{
	struct stack_recorder_status status;

	if (!begin_with(rig, &(struct stack_recorder_options){ 0 }))
		return false;
	stack_recorder_status(rig->recorder, &status);
	if (status.system_wide)
		return true;
	stack_recorder_close(rig->recorder);
	return skip_because("system-wide perf events are not allowed");
}

static inline void end(struct stack_recorder_rig *rig)
{
	stack_recorder_snapshot_release(&rig->snapshot);
	stack_recorder_close(rig->recorder);
	rig->recorder = NULL;
}

__attribute__((noinline, noclone, unused)) static void burn_here(volatile uint64_t *counter)
{
	for (int i = 0; i < 1000000; i++)
		++*counter;
}

/* A child that burns until it is killed; pages of its code are this program's. */
static inline pid_t burning_child(void)
{
	pid_t pid = fork();
	volatile uint64_t counter = 0;

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	prctl(PR_SET_NAME, "burning;child");
	for (;;)
		burn_here(&counter);
}

/* It is sampled no more, and not while it ends: its stack is not to be had then. */
static inline void stop_child(pid_t pid)
{
	kill(pid, SIGSTOP);
	ck_assert_int_eq(waitpid(pid, NULL, WUNTRACED), pid);
}

static inline void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* CPU time of a process until now. */
static inline uint64_t cpu_of(pid_t pid)
{
	clockid_t clock;
	struct timespec time;

	ck_assert_int_eq(clock_getcpuclockid(pid, &clock), 0);
	ck_assert_int_eq(clock_gettime(clock, &time), 0);
	return (uint64_t)time.tv_sec * NS_PER_S + (uint64_t)time.tv_nsec;
}

static inline void wait_until_it_burned(pid_t pid, uint64_t cpu_ns)
{
	uint64_t deadline = now_ns() + WAIT_NS, until = cpu_of(pid) + cpu_ns;

	while (cpu_of(pid) < until) {
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(10000);
	}
}

struct seen {
	unsigned samples, in_function, with_stack, with_kernel, comms, maps, tids;
	uint32_t last_tid;
	uint64_t period, first_ns, last_ns, time_ns;
	uint64_t start, end; /* of the mapping that has burn_here */
	char comm[32];
};

static inline const struct stack_recorder_stream *stream_of(struct stack_recorder_rig *rig,
							    enum stack_file_stream_kind kind)
{
	for (size_t i = 0; i < rig->snapshot.stream_count; i++)
		if (rig->snapshot.streams[i].head.kind == (uint32_t)kind)
			return &rig->snapshot.streams[i];
	return NULL;
}

static inline void look_at_sample(const struct perf_record *record, struct seen *seen)
{
	bool here = false, kernel = false;

	seen->samples++;
	seen->period += record->sample.period;
	seen->first_ns = seen->first_ns == 0 ? record->time_ns : seen->first_ns;
	seen->last_ns = record->time_ns;
	seen->tids += record->tid != seen->last_tid;
	seen->last_tid = record->tid;
	for (size_t i = 0; i < record->sample.chain_len; i++) {
		here |= record->sample.chain[i] >= seen->start && record->sample.chain[i] < seen->end;
		kernel |= record->sample.chain[i] == PERF_CONTEXT_KERNEL;
	}
	seen->in_function += here;
	seen->with_kernel += kernel;
	seen->with_stack += record->sample.stack_bytes > 0 && record->sample.regs_len == 20;
}

static inline void look_at(const struct perf_record *record, struct seen *seen)
{
	uint64_t function = (uint64_t)(uintptr_t)burn_here;

	if (record->type == PERF_RECORD_COMM && record->tid == record->pid) {
		seen->comms++;
		snprintf(seen->comm, sizeof(seen->comm), "%s", record->comm.name);
	} else if (record->type == PERF_RECORD_MMAP2) {
		seen->maps++;
		if (function >= record->mmap.start && function < record->mmap.start + record->mmap.len) {
			seen->start = record->mmap.start;
			seen->end = record->mmap.start + record->mmap.len;
		}
	} else if (record->type == PERF_RECORD_SAMPLE) {
		look_at_sample(record, seen);
	}
}

static inline void look_through(const struct stack_recorder_stream *stream, pid_t pid, struct seen *seen)
{
	const struct perf_record_format format = { stream->head.sample_type, stream->head.regs_user };
	struct perf_record record;
	uint64_t time_ns = 0;

	ck_assert_uint_eq(stream->head.record_bytes, stream->records.len);
	for (size_t at = 0; at < stream->records.len; at += record.size) {
		if (perf_record_decode(&format, stream->records.data + at, stream->records.len - at, &record) < 0 ||
		    record.time_ns < time_ns)
			ck_abort_msg("a record at %zu that cannot be read, or is out of order", at);
		time_ns = record.time_ns;
		if (record.pid == (uint32_t)pid)
			look_at(&record, seen);
	}
}

/* What the records say of pid: those of the book, and samples of this kind. */
static inline struct seen look_in(struct stack_recorder_rig *rig, enum stack_file_stream_kind kind, pid_t pid)
{
	struct seen seen = { 0 };

	ck_assert_uint_eq(rig->snapshot.streams[0].head.kind, STACK_FILE_SIDEBAND);
	look_through(&rig->snapshot.streams[0], pid, &seen);
	if (stream_of(rig, kind) != NULL)
		look_through(stream_of(rig, kind), pid, &seen);
	return seen;
}

static inline struct seen look(struct stack_recorder_rig *rig, pid_t pid)
{
	return look_in(rig, STACK_FILE_CPU, pid);
}

static inline struct stack_recorder_status status_now(struct stack_recorder_rig *rig)
{
	struct stack_recorder_status status;

	stack_recorder_status(rig->recorder, &status);
	return status;
}

static inline void wait_until_followed(struct stack_recorder_rig *rig, unsigned processes)
{
	uint64_t deadline = now_ns() + WAIT_NS;

	while (status_now(rig).followed_processes != processes) {
		ck_assert_uint_lt(now_ns(), deadline);
		usleep(5000);
	}
}

static inline void follow_one(struct stack_recorder_rig *rig, pid_t pid)
{
	uint32_t one = (uint32_t)pid;

	ck_assert_int_eq(stack_recorder_follow(rig->recorder, &one, 1), 0);
	wait_until_followed(rig, 1);
}

#endif
