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

/* What a reader of the ring has seen so far. */
struct sampler_rig_seen {
	uint64_t ticks, ends, described, samples;
	uint64_t gone[TARGETS_MAX + 1];
	enum ring_gone_reason reason;
	struct sample last[TARGETS_MAX + 1]; /* by id */
	uint64_t missed;                     /* slots, in RING_EVENT_HOLE */
	uint64_t holes;                      /* lapped, damaged, ticks whose number is not the next */
};

struct sampler_rig {
	struct ring *ring;
	struct samplers *samplers;
	struct ring_cursor *cursor;
	struct watched watched[TARGETS_MAX];
	int procfd;
	uint64_t heartbeat_ns;
	struct sampler_rig_seen seen;
};

/* Before each test: nothing is made yet. */
static inline void rig_begin(struct sampler_rig *rig)
{
	*rig = (struct sampler_rig){ .heartbeat_ns = 50 * NS_PER_MS };
	rig->procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(rig->procfd, 0);
}

static inline void rig_end(struct sampler_rig *rig)
{
	ring_cursor_free(rig->cursor);
	samplers_free(rig->samplers);
	for (int i = 0; i < TARGETS_MAX; i++)
		sampler_target_release(&rig->watched[i].sampled);
	ring_free(rig->ring);
	close(rig->procfd);
}

static inline void rig_make(struct sampler_rig *rig, uint64_t interval_ns, uint32_t capacity, uint64_t ring_bytes,
			    uint32_t page_bytes)
{
	struct ring_options ring_options = { .size_bytes = ring_bytes,
					     .page_bytes = page_bytes,
					     .heartbeat_ns = rig->heartbeat_ns };
	struct sampler_options options = {
		.source = { .capacity = capacity, .heartbeat_ns = rig->heartbeat_ns, .interval_ns = interval_ns }
	};

	ck_assert_int_eq(ring_create_anonymous(&ring_options, &rig->ring), 0);
	ck_assert_int_eq(samplers_new(&options, 1, rig->ring, &rig->samplers), 0);
}

/* Makes target number i + 1 of an entry that exists, and hands it over. */
static inline struct sampler_target *rig_add(struct sampler_rig *rig, int i, const char *name)
{
	struct watched *target = &rig->watched[i];

	target->what.id = (uint32_t)i + 1;
	target->what.entry = target->what.name = target->what.key = name;
	target->what.comm = target->what.cmdline = target->what.cgroup = "";
	ck_assert_int_eq(sampler_target_describe(&target->sampled, &target->what), 0);
	ck_assert(samplers_add(rig->samplers, &target->sampled));

	return &target->sampled;
}

static inline struct sampler_target *rig_add_process(struct sampler_rig *rig, int i, pid_t pid,
						     struct sampler_target *group)
{
	struct watched *target = &rig->watched[i];

	target->what.kind = TARGET_PROCESS;
	target->what.pid = pid;
	target->sampled.group = group;
	ck_assert_int_eq(source_entry_process(rig->procfd, pid, 0, true, &target->sampled, &target->sampled.entry), 0);

	return rig_add(rig, i, "process");
}

static inline struct sampler_target *rig_add_group(struct sampler_rig *rig, int i)
{
	rig->watched[i].what.kind = TARGET_GROUP;
	ck_assert_int_eq(source_entry_group(&rig->watched[i].sampled, &rig->watched[i].sampled.entry), 0);

	return rig_add(rig, i, "group");
}

static inline void rig_answers(struct sampler_rig *rig, const struct sampler_target *target, enum sampler_return why)
{
	struct sampler_target *returned = NULL;
	enum sampler_return got = 0;

	ck_assert(samplers_returned(rig->samplers, &returned, &got));
	ck_assert_ptr_eq(returned, target);
	ck_assert_int_eq(got, why);
}

static inline void rig_answers_no_more(struct sampler_rig *rig)
{
	struct sampler_target *returned;
	enum sampler_return why;

	ck_assert(!samplers_returned(rig->samplers, &returned, &why));
}

static inline void rig_note(struct sampler_rig *rig, const struct ring_event *event)
{
	switch (event->type) {
	case RING_EVENT_TICK:
		rig->seen.holes += event->tick != rig->seen.ticks++;
		break;
	case RING_EVENT_TICK_END:
		rig->seen.ends++;
		break;
	case RING_EVENT_TARGET:
		rig->seen.described++;
		break;
	case RING_EVENT_SAMPLE:
		rig->seen.samples++;
		rig->seen.last[event->id] = *event->sample;
		break;
	case RING_EVENT_GONE:
		rig->seen.gone[event->id]++;
		rig->seen.reason = event->reason;
		break;
	case RING_EVENT_HOLE:
		rig->seen.missed += event->hole.missed_slots;
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		rig->seen.holes++;
		break;
	}
}

static inline void rig_read_ring(struct sampler_rig *rig)
{
	struct ring_event event;
	int r;

	if (!rig->cursor)
		ck_assert_int_eq(ring_cursor_new(rig->ring, RING_OLDEST, &rig->cursor), 0);
	while ((r = ring_cursor_next(rig->cursor, &event)) == 0)
		rig_note(rig, &event);
	ck_assert_int_eq(r, RING_EMPTY);
}

static inline uint64_t rig_value(struct sampler_rig *rig, int i, enum sample_field field)
{
	ck_assert(sample_has(&rig->seen.last[i + 1], field));

	return rig->seen.last[i + 1].value[field];
}

static inline uint64_t rig_pages_claimed(struct sampler_rig *rig)
{
	struct ring_info info;

	ring_info(rig->ring, &info);

	return info.next_seq;
}

static inline uint64_t rig_backoff_sleeps(struct sampler_rig *rig)
{
	struct stats stats;

	ck_assert_int_eq(ring_stats(rig->ring, &stats), 0);

	return stats.num_backoff_sleeps;
}

#endif
