/*
 * sampler_rig.h: a sampler on a ring in memory, targets that are processes of our own, and a reader
 * that keep account.
 */
#ifndef SPIKEWATCH_TESTS_SAMPLER_RIG_H
#define SPIKEWATCH_TESTS_SAMPLER_RIG_H

#include "children.h"
#include "lib/ring/ring.h"
#include "daemon/engine/sampling/sampler.h"
#include "scene.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/source/source.h"

#define TARGETS_MAX 100

/* One target as the cold side keeps it. */
struct watched {
	struct sampler_target sampled;
	struct target what;
};

static struct ring *ring;
static struct samplers *sampler;
static struct ring_cursor *cursor;
static struct watched watched[TARGETS_MAX];
static int procfd;
static uint64_t heartbeat_ns;

/* What a reader of the ring has seen so far. */
static struct {
	uint64_t ticks, ends, described, samples;
	uint64_t gone[TARGETS_MAX + 1];
	enum ring_gone_reason reason;
	struct sample last[TARGETS_MAX + 1]; /* by id */
	uint64_t missed;                     /* slots, in RING_EVENT_HOLE */
	uint64_t holes;                      /* lapped, damaged, ticks whose number is not the next */
} seen;

static inline void setup(void)
{
	procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(procfd, 0);
	heartbeat_ns = 50 * NS_PER_MS;
	memset(&seen, 0, sizeof(seen));
	memset(watched, 0, sizeof(watched));
	ring = NULL;
	sampler = NULL;
	cursor = NULL;
}

static inline void teardown(void)
{
	ring_cursor_free(cursor);
	samplers_free(sampler);
	for (int i = 0; i < TARGETS_MAX; i++)
		sampler_target_release(&watched[i].sampled);
	ring_free(ring);
	close(procfd);
}

static inline void make(uint64_t interval_ns, uint32_t capacity, uint64_t ring_bytes, uint32_t page_bytes)
{
	struct ring_options ring_options = { .size_bytes = ring_bytes,
					     .page_bytes = page_bytes,
					     .heartbeat_ns = heartbeat_ns };
	struct sampler_options options = {
		.source = { .capacity = capacity, .heartbeat_ns = heartbeat_ns, .interval_ns = interval_ns }
	};

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &ring), 0);
	ck_assert_int_eq(samplers_new(&options, 1, ring, &sampler), 0);
}

/* Makes target number i + 1 of an entry that exists, and hands it over. */
static inline struct sampler_target *add(int i, const char *name)
{
	struct watched *target = &watched[i];

	target->what.id = (uint32_t)i + 1;
	target->what.entry = target->what.name = target->what.key = name;
	target->what.comm = target->what.cmdline = target->what.cgroup = "";
	ck_assert_int_eq(sampler_target_describe(&target->sampled, &target->what), 0);
	ck_assert(samplers_add(sampler, &target->sampled));

	return &target->sampled;
}

static inline struct sampler_target *add_process(int i, pid_t pid, struct sampler_target *group)
{
	struct watched *target = &watched[i];

	target->what.kind = TARGET_PROCESS;
	target->what.pid = pid;
	target->sampled.group = group;
	ck_assert_int_eq(source_entry_process(procfd, pid, 0, true, &target->sampled, &target->sampled.entry), 0);

	return add(i, "process");
}

static inline struct sampler_target *add_group(int i)
{
	watched[i].what.kind = TARGET_GROUP;
	ck_assert_int_eq(source_entry_group(&watched[i].sampled, &watched[i].sampled.entry), 0);

	return add(i, "group");
}

static inline void answers(const struct sampler_target *target, enum sampler_return why)
{
	struct sampler_target *returned = NULL;
	enum sampler_return got = 0;

	ck_assert(samplers_returned(sampler, &returned, &got));
	ck_assert_ptr_eq(returned, target);
	ck_assert_int_eq(got, why);
}

static inline void answers_no_more(void)
{
	struct sampler_target *returned;
	enum sampler_return why;

	ck_assert(!samplers_returned(sampler, &returned, &why));
}

static inline void note(const struct ring_event *event)
{
	switch (event->type) {
	case RING_EVENT_TICK:
		seen.holes += event->tick != seen.ticks++;
		break;
	case RING_EVENT_TICK_END:
		seen.ends++;
		break;
	case RING_EVENT_TARGET:
		seen.described++;
		break;
	case RING_EVENT_SAMPLE:
		seen.samples++;
		seen.last[event->id] = *event->sample;
		break;
	case RING_EVENT_GONE:
		seen.gone[event->id]++;
		seen.reason = event->reason;
		break;
	case RING_EVENT_HOLE:
		seen.missed += event->hole.missed_slots;
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		seen.holes++;
		break;
	}
}

static inline void read_ring(void)
{
	struct ring_event event;
	int r;

	if (!cursor)
		ck_assert_int_eq(ring_cursor_new(ring, RING_OLDEST, &cursor), 0);
	while ((r = ring_cursor_next(cursor, &event)) == 0)
		note(&event);
	ck_assert_int_eq(r, RING_EMPTY);
}

static inline uint64_t value(int i, enum sample_field field)
{
	ck_assert(sample_has(&seen.last[i + 1], field));

	return seen.last[i + 1].value[field];
}

static inline uint64_t pages_claimed(void)
{
	struct ring_info info;

	ring_info(ring, &info);

	return info.next_seq;
}

static inline uint64_t backoff_sleeps(void)
{
	struct stats stats;

	ck_assert_int_eq(ring_stats(ring, &stats), 0);

	return stats.num_backoff_sleeps;
}

#endif
