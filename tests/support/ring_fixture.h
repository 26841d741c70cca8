/*
 * ring_fixture.h: targets whose every value follows from the tick and the target, so that a reader
 * can tell a wrong sample without knowing what was written.
 */
#ifndef SPIKEWATCH_TESTS_RING_FIXTURE_H
#define SPIKEWATCH_TESTS_RING_FIXTURE_H

#include "lib/ring/ring.h"
#include "lib/base/base.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"

#include <check.h>

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* One target as its writer sees it. */
struct fixture_target {
	struct ring_track track;
	char description[TARGET_ENCODED_MAX];
};

/* What a reader found. */
struct fixture_tally {
	uint64_t ticks;
	uint64_t ends;
	uint64_t samples;
	uint64_t targets;
	uint64_t gone;
	uint64_t lapped;     /* events */
	uint64_t lost_pages; /* of LAPPED */
	uint64_t damaged;    /* events */
	uint64_t holes;      /* events */
	uint64_t missed;     /* slots in them */
	uint64_t first_tick; /* number */
	uint64_t last_tick;  /* number */
	uint64_t wrong;      /* samples that fixture_sample() never makes */
	uint64_t nameless;   /* samples and ends whose description did not come before */
	uint64_t misnamed;   /* descriptions that fixture_target_init() never makes */
	uint64_t disordered; /* events outside of a tick, and ends without a beginning */
	struct {
		uint32_t id; /* 0: none */
		bool named;  /* as fixture_target_init did */
	} described[4096];   /* by id modulo their number: what a reader knows of a target */
	bool inside;         /* between TICK and TICK_END */
};

/* A ring of `pages` pages of 4 KiB. */
static inline struct ring *fixture_ring(uint32_t pages)
{
	const struct ring_options options = { .size_bytes = 4096 + (uint64_t)pages * 4096,
					      .page_bytes = 4096,
					      .interval_ns = NS_PER_MS };
	struct ring *ring = NULL;

	ck_assert_int_eq(ring_create_anonymous(&options, &ring), 0);
	return ring;
}

static inline void fixture_target_init(struct fixture_target *target, uint32_t id)
{
	char name[32];
	const struct target described = {
		.id = id,
		.kind = TARGET_PROCESS,
		.pid = (int32_t)id,
		.start_ticks = id * 3ULL,
		.entry = "entry",
		.name = name,
		.key = name,
		.comm = "comm",
		.cmdline = "comm --with arguments",
		.cgroup = "/a.slice/b.service",
	};

	*target = (struct fixture_target){ .track = { .id = id } };
	snprintf(name, sizeof(name), "target/%u", id);
	target->track.description_len =
		(uint32_t)target_encode(&described, target->description, sizeof(target->description));
	target->track.description = target->description;
}

static inline uint64_t fixture_mix(uint64_t value)
{
	value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15ULL;
	return value ^ (value >> 29);
}

/*
 * The sample of target id at time now: the values depend on both, and some fields on the target
 * only.
 */
static inline void fixture_sample(uint32_t id, mono_t now, struct sample *ret)
{
	*ret = (struct sample){ 0 };
	sample_set(ret, SAMPLE_CPU, fixture_mix(now.ns + id));
	sample_set(ret, SAMPLE_MEMORY, fixture_mix(id));
	sample_set(ret, SAMPLE_THREADS, fixture_mix(now.ns / NS_PER_MS / 4 + id));
	/* Comes and goes. */
	if (now.ns / NS_PER_MS / 8 % 2 == 0)
		sample_set(ret, SAMPLE_FDS, fixture_mix(id * 7ULL));
	sample_set(ret, SAMPLE_STATE, 'R');
}

static inline mono_t fixture_time(uint64_t tick)
{
	return (mono_t){ 5 * NS_PER_S + tick * NS_PER_MS };
}

static inline wall_t fixture_wall(uint64_t tick)
{
	return (wall_t){ 1700000000 * NS_PER_S + tick * NS_PER_MS };
}

/*
 * One tick with one put per target; the times are those of tick number `tick`. What ring_tick_begin
 * returned.
 */
static inline int fixture_tick(struct ring_writer *writer, struct fixture_target *targets, uint32_t count,
			       uint64_t tick)
{
	mono_t now = fixture_time(tick);
	int rc = ring_tick_begin(writer, now, fixture_wall(tick), 0);
	if (rc != 0)
		return rc;

	for (uint32_t i = 0; i < count; i++) {
		struct sample sample;
		mono_t at = mono_add(now, i);
		fixture_sample(targets[i].track.id, at, &sample);
		ring_put_sample(writer, &targets[i].track, at, &sample);
	}
	ring_tick_end(writer, NULL);
	return 0;
}

static inline bool fixture_named(const struct target *target, uint32_t id)
{
	char name[32];

	snprintf(name, sizeof(name), "target/%u", id);
	return target->id == id && target->pid == (int32_t)id && target->start_ticks == id * 3ULL &&
	       strcmp(target->name, name) == 0 && strcmp(target->cgroup, "/a.slice/b.service") == 0;
}

/* Unavailable fields have no value to compare. */
static inline bool fixture_same(const struct sample *a, const struct sample *b)
{
	bool equal = a->mask == b->mask;

	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		equal = equal && (!sample_has(b, f) || a->value[f] == b->value[f]);
	return equal;
}

/* Adds one event to the tally. */
static inline void fixture_judge(const struct ring_event *event, struct fixture_tally *tally)
{
	struct sample expected;

	switch (event->type) {
	case RING_EVENT_TICK:
		if (tally->ticks == 0)
			tally->first_tick = event->tick;
		tally->last_tick = event->tick;
		tally->ticks++;
		tally->disordered += tally->inside;
		tally->inside = true;
		break;
	case RING_EVENT_SAMPLE:
		fixture_sample(event->id, event->time, &expected);
		tally->samples++;
		tally->wrong += !fixture_same(event->sample, &expected);
		tally->nameless += tally->described[event->id % 4096].id != event->id;
		tally->misnamed +=
			tally->described[event->id % 4096].id == event->id && !tally->described[event->id % 4096].named;
		tally->disordered += !tally->inside;
		break;
	case RING_EVENT_TARGET:
		tally->targets++;
		tally->described[event->id % 4096].id = event->target.id;
		tally->described[event->id % 4096].named = fixture_named(&event->target, event->id);
		tally->misnamed += !fixture_named(&event->target, event->id);
		tally->disordered += !tally->inside;
		break;
	case RING_EVENT_GONE:
		tally->gone++;
		tally->nameless += event->target.id == 0;
		tally->misnamed += event->target.id != 0 && !fixture_named(&event->target, event->id);
		tally->described[event->id % 4096].id = 0; /* no sample may follow */
		tally->disordered += !tally->inside;
		break;
	case RING_EVENT_TICK_END:
		tally->ends++;
		tally->disordered += !tally->inside;
		tally->inside = false;
		break;
	case RING_EVENT_HOLE:
		tally->holes++;
		tally->missed += event->hole.missed_slots;
		tally->disordered += !tally->inside;
		break;
	case RING_EVENT_LAPPED:
		tally->lapped++;
		tally->lost_pages += event->lost_pages;
		tally->disordered += tally->inside;
		break;
	case RING_EVENT_DAMAGED:
		tally->damaged++;
		tally->disordered += tally->inside;
		break;
	}
}

/* Reads until nothing is left. What the last ring_cursor_next returned. */
static inline int fixture_drain(struct ring_cursor *cursor, struct fixture_tally *tally)
{
	struct ring_event event;
	int rc;

	while ((rc = ring_cursor_next(cursor, &event)) == 0)
		fixture_judge(&event, tally);
	return rc;
}

/* Opens a cursor, drains it, frees it. */
static inline void fixture_read(const struct ring *ring, enum ring_start start, struct fixture_tally *ret)
{
	struct ring_cursor *cursor = NULL;

	*ret = (struct fixture_tally){ 0 };
	ck_assert_int_eq(ring_cursor_new(ring, start, &cursor), 0);
	ck_assert_int_eq(fixture_drain(cursor, ret), RING_EMPTY);
	ring_cursor_free(cursor);
}

/* Fails the test unless everything in the tally is in order. */
static inline void fixture_check(const struct fixture_tally *tally)
{
	ck_assert_uint_eq(tally->wrong, 0);
	ck_assert_uint_eq(tally->nameless, 0);
	ck_assert_uint_eq(tally->misnamed, 0);
	ck_assert_uint_eq(tally->disordered, 0);
	ck_assert_uint_eq(tally->damaged, 0);
	ck_assert_uint_eq(tally->ends, tally->ticks);
}

#endif
