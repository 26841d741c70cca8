/*
 * stackrecorder_snapshot.c: what the rings hold of a span of time.
 *
 *	each CPU: pause, copy, resume │ keep what is of the span │ look up who was hit │ the book's records of them │ sort
 *
 * Only the copy happens while a ring is held still, into memory that was touched before. Samples take three quarters of what is allowed at most, so
 * that there is room to say whose they are.
 */
#include "realclock.h"
#include "scope.h"
#include "stackrecorder_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_BYTES ((size_t)64 << 20)

struct picture {
	struct stackrecorder *recorder;
	struct stackrecorder_snapshot *snapshot;
	struct perfmerge merge;
	struct stackrecorder_hit *hits;
	size_t hit_count, hit_cap;
	void *copy; /* of one ring */
};

static int add_hit(struct picture *picture, const struct perfrecord *sample)
{
	if (picture->hit_count == picture->hit_cap) {
		size_t cap = picture->hit_cap == 0 ? 1024 : 2 * picture->hit_cap;
		struct stackrecorder_hit *hits = reallocarray(picture->hits, cap, sizeof(*hits));

		if (hits == NULL)
			return -ENOMEM;
		picture->hits = hits;
		picture->hit_cap = cap;
	}
	picture->hits[picture->hit_count++] = (struct stackrecorder_hit){ sample->pid, sample->tid, sample->time_ns };
	return 0;
}

/* 0 or -ENOMEM. */
static int keep(struct picture *picture, const void *bytes, const struct perfrecord *record)
{
	struct stackrecorder_snapshot *snapshot = picture->snapshot;
	int r;

	if (record->time_ns < snapshot->from_ns || record->time_ns > snapshot->to_ns)
		return 0;
	if (record->type != PERF_RECORD_SAMPLE && record->type != PERF_RECORD_LOST)
		return 0;
	r = perfmerge_add(&picture->merge, bytes, record->size, record->time_ns);
	if (r == -EFBIG) {
		snapshot->left_out += record->size;
		return 0;
	}
	if (r < 0)
		return r;
	if (record->type == PERF_RECORD_LOST) {
		snapshot->lost += record->lost.count;
		return 0;
	}
	snapshot->samples++;
	return add_hit(picture, record);
}

/* Newest first. *ret_oldest_ns: the last time that was seen. */
static int walk(struct picture *picture, size_t len, uint64_t *ret_oldest_ns)
{
	struct perfrecord_format format = STACKRECORDER_FORMAT;
	const uint8_t *bytes = picture->copy;
	int r = 0;

	for (size_t at = 0; r == 0 && at < len;) {
		struct perf_event_header header;
		struct perfrecord record;

		memcpy(&header, bytes + at, sizeof(header));
		if (perfrecord_decode(&format, bytes + at, len - at, &record) < 0) {
			picture->snapshot->left_out += header.size;
		} else {
			*ret_oldest_ns = record.time_ns;
			r = keep(picture, bytes + at, &record);
		}
		at += header.size;
	}
	return r;
}

static int read_ring(struct picture *picture, const struct perfevents *events)
{
	struct stackrecorder_snapshot *snapshot = picture->snapshot;
	struct clock clock = realclock();
	uint64_t oldest_ns = snapshot->to_ns, covered_ns, before_ns = clock_mono(&clock).ns, paused_ns;
	bool paused = perfevents_pause(events, true) == 0, torn, came_round;
	size_t len;
	int r;

	perfring_snapshot(&events->ring, picture->copy, &len, &torn);
	came_round = perfring_came_round(&events->ring);
	if (paused)
		perfevents_pause(events, false);
	paused_ns = clock_mono(&clock).ns - before_ns;
	if (paused && paused_ns > snapshot->paused_ns)
		snapshot->paused_ns = paused_ns;
	snapshot->cpus++;
	snapshot->torn += torn;
	r = walk(picture, len, &oldest_ns);
	covered_ns = came_round || torn ? oldest_ns : picture->recorder->opened_ns;
	if (covered_ns > snapshot->covered_ns)
		snapshot->covered_ns = covered_ns;
	return r;
}

static int compare_hits(const void *left, const void *right)
{
	const struct stackrecorder_hit *a = left, *b = right;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	return a->time_ns < b->time_ns ? -1 : a->time_ns > b->time_ns;
}

/* One hit per thread, its first, by pid; and the pids. */
static int sum_up_hits(struct picture *picture)
{
	struct stackrecorder_snapshot *snapshot = picture->snapshot;
	struct stackrecorder_hit *hits = picture->hits;
	size_t count = 0;

	if (picture->hit_count == 0)
		return 0;
	qsort(hits, picture->hit_count, sizeof(*hits), compare_hits);
	for (size_t i = 0; i < picture->hit_count; i++)
		if (count == 0 || hits[count - 1].pid != hits[i].pid || hits[count - 1].tid != hits[i].tid)
			hits[count++] = hits[i];
	picture->hit_count = count;
	snapshot->pids = calloc(count, sizeof(*snapshot->pids));
	if (snapshot->pids == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (hits[i].pid != 0 && (i == 0 || hits[i - 1].pid != hits[i].pid))
			snapshot->pids[snapshot->pid_count++] = hits[i].pid;
	return 0;
}

/* One record of the book's. */
static int take_book(void *ctx, const void *data, size_t len)
{
	struct picture *picture = ctx;
	struct perfrecord_format format = STACKRECORDER_FORMAT;
	_Alignas(PERFRECORD_ALIGN) uint8_t aligned[16384];
	struct perfrecord record;
	int r;

	if (len > sizeof(aligned))
		return -EMSGSIZE;
	memcpy(aligned, data, len);
	if (perfrecord_decode(&format, aligned, len, &record) < 0)
		return -EBADMSG;
	r = perfmerge_add(&picture->merge, aligned, len, record.time_ns);
	if (r == -EFBIG)
		picture->snapshot->left_out += len;
	return r == -EFBIG ? 0 : r;
}

/* What the book has of each process; locked for one at a time. */
static int add_book(struct picture *picture)
{
	struct stackrecorder_snapshot *snapshot = picture->snapshot;
	struct stackrecorder *recorder = picture->recorder;
	const struct sink sink = { take_book, picture };
	size_t hit = 0;
	int r = 0;

	for (size_t i = 0; r == 0 && i < snapshot->pid_count; i++) {
		uint32_t pid = snapshot->pids[i], parent;

		while (picture->hits[hit].pid != pid)
			hit++;
		pthread_mutex_lock(&recorder->lock);
		snapshot->unmapped += !addressbook_knows(recorder->book, pid, picture->hits[hit].time_ns, &parent);
		r = addressbook_write(recorder->book, &pid, 1, snapshot->from_ns, snapshot->to_ns, &sink);
		pthread_mutex_unlock(&recorder->lock);
	}
	return r;
}

static int take_picture(struct picture *picture, size_t max_bytes)
{
	struct stackrecorder *recorder = picture->recorder;
	const struct sink sink = sink_buffer(&picture->snapshot->records);
	int r = 0;

	picture->merge.bytes.max = max_bytes / 4 * 3;
	picture->copy = malloc(recorder->status.ring_bytes);
	if (picture->copy == NULL)
		return -ENOMEM;
	memset(picture->copy, 0xff, recorder->status.ring_bytes);
	for (unsigned i = 0; r == 0 && i < recorder->status.cpus; i++)
		r = read_ring(picture, &recorder->samples[i]);
	if (r == 0)
		r = sum_up_hits(picture);
	if (r < 0)
		return r;
	stackrecorder_drain(recorder);
	stackrecorder_look_up(recorder, picture->hits, picture->hit_count);
	perfmerge_sort(&picture->merge);
	r = stackrecorder_count_files(recorder, &picture->merge, picture->snapshot);
	picture->merge.bytes.max = max_bytes;
	if (r == 0)
		r = add_book(picture);
	perfmerge_sort(&picture->merge);
	return r == 0 ? perfmerge_write(&picture->merge, &sink) : r;
}

int stackrecorder_snapshot(struct stackrecorder *recorder, uint64_t from_ns, uint64_t to_ns, size_t max_bytes,
			   struct stackrecorder_snapshot *ret)
{
	struct clock clock = realclock();
	uint64_t now_ns = clock_mono(&clock).ns;
	struct stackrecorder_snapshot snapshot = { .from_ns = from_ns, .to_ns = to_ns < now_ns ? to_ns : now_ns };
	struct picture picture = { .recorder = recorder, .snapshot = &snapshot };
	int r;

	snapshot.covered_ns = from_ns;
	r = take_picture(&picture, max_bytes != 0 ? max_bytes : DEFAULT_BYTES);
	perfmerge_release(&picture.merge);
	free(picture.hits);
	free(picture.copy);
	if (r < 0) {
		stackrecorder_snapshot_release(&snapshot);
		return r;
	}
	*ret = snapshot;
	return 0;
}

void stackrecorder_snapshot_release(struct stackrecorder_snapshot *snapshot)
{
	buffer_release(&snapshot->records);
	buffer_release(&snapshot->paths);
	free(snapshot->files);
	free(snapshot->pids);
	*snapshot = (struct stackrecorder_snapshot){ 0 };
}
