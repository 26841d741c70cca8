/*
 * ring_cursor.c: from pages to events.
 *
 * ring_follow.c finds the ticks; here their records are applied to the states of the targets and delivered one by one.
 * A record is consumed by the call that delivers it, so a call that runs out of memory can be made again.
 *
 * A tick is applied without events (`quiet`) when it is before `since`, when part of it was lost (its key records are
 * needed by those behind it in the page), and while a cursor that starts at the newest tick collects its states.
 *
 * A reader that starts in the middle may meet a sample whose description comes later in the ring. It then looks ahead
 * through the ring once and takes all the descriptions it finds.
 */
#include "ring.h"
#include "ring_copy.h"
#include "ring_follow.h"
#include "ring_format.h"
#include "ring_states.h"
#include "scope.h"

#include <assert.h>
#include <errno.h>

/* Internal condition: nothing to deliver yet, go on. */
#define AGAIN 100

struct ring_cursor {
	struct ring_follow follow;

	struct ring_copy *current; /* the page with the rest of the tick being delivered; NULL: none */
	bool more;                 /* that tick goes on in another page */
	bool quiet;                /* that tick is applied without events */
	uint64_t number;
	uint32_t writer;
	mono_t time;

	uint32_t only;  /* records of other targets are passed over; 0: none is */
	mono_t since;   /* ticks before this are quiet */
	bool silent;    /* all are */
	bool preloaded; /* the states are to be delivered before anything else, */
	size_t walk;    /* from this slot on */

	struct ring_states states;
	uint64_t expire_at; /* the states are swept when the oldest page being read gets there */
	bool learned;       /* the ring ahead was searched for descriptions */
	uint32_t gone;      /* to be forgotten by the next call; 0: none */
};

/* Forgets, once per length of the ring, the targets that no page in the ring mentions any more. */
static void expire(struct ring_cursor *cursor)
{
	const struct ring_follow *follow = &cursor->follow;
	uint32_t pages = follow->ring->page_count;
	uint64_t reading = follow->count > 0 ? follow->pages[0]->seq : follow->next;

	if (reading < cursor->expire_at)
		return;

	cursor->expire_at = reading + pages;
	ring_states_expire(&cursor->states, reading > pages ? reading - pages : 0);
}

static int report_loss(struct ring_cursor *cursor, struct ring_event *ret)
{
	bool lapped = cursor->follow.lost != 0;
	uint64_t *pages = lapped ? &cursor->follow.lost : &cursor->follow.damaged;

	*ret = (struct ring_event){
		.type = lapped ? RING_EVENT_LAPPED : RING_EVENT_DAMAGED,
		.time = cursor->time,
		.tick = cursor->number,
		.lost_pages = *pages,
	};
	*pages = 0;
	if (lapped)
		cursor->learned = false;
	return cursor->silent ? AGAIN : 0;
}

/* Begins the next tick. */
static int next_tick(struct ring_cursor *cursor, struct ring_event *ret)
{
	struct ring_copy *copy;

	expire(cursor);
	int rc = ring_follow_find(&cursor->follow, &copy);
	if (rc == RING_FOLLOW_LOSS)
		return report_loss(cursor, ret);
	if (rc != 0)
		return rc;

	int whole = ring_follow_gather(&cursor->follow, copy);
	if (whole < 0)
		return whole;

	const uint64_t *record = &copy->payload[copy->parsed / 8];
	cursor->current = copy;
	cursor->more = whole && (ring_head_flags(record[0]) & RING_TICK_MORE) != 0;
	cursor->number = record[1];
	cursor->writer = copy->writer;
	cursor->time = (mono_t){ record[2] };
	cursor->quiet = !whole || cursor->silent || cursor->time.ns < cursor->since.ns;
	copy->parsed += ring_head_size(record[0]);
	if (cursor->quiet)
		return AGAIN;

	*ret = (struct ring_event){
		.type = RING_EVENT_TICK,
		.time = cursor->time,
		.wall = { record[3] },
		.tick = cursor->number,
		.writer = cursor->writer,
	};
	ret->idle_ns = ring_head_id(record[0]) * NS_PER_US;
	return 0;
}

/* The part of a tick in one page is delivered: goes on in the next one or ends the tick. */
static int next_part(struct ring_cursor *cursor, struct ring_event *ret)
{
	if (cursor->more) {
		struct ring_copy *copy = ring_follow_part(&cursor->follow, cursor->current);
		assert(copy != NULL && copy->parsed == 0);

		cursor->current = copy;
		cursor->more = (ring_follow_flags(copy, 0) & RING_TICK_MORE) != 0;
		copy->parsed = ring_head_size(ring_copy_head(copy, 0));
		return AGAIN;
	}

	cursor->current = NULL;
	if (cursor->quiet)
		return AGAIN;

	*ret = (struct ring_event){
		.type = RING_EVENT_TICK_END, .time = cursor->time, .tick = cursor->number, .writer = cursor->writer
	};
	return 0;
}

static void mark_damaged(struct ring_cursor *cursor)
{
	if (cursor->follow.damaged == 0)
		cursor->follow.damaged = 1;
}

/* Takes the descriptions in copy that are not known yet. 0 or -ENOMEM. */
static int learn_from(void *ctx, const struct ring_copy *copy)
{
	struct ring_cursor *cursor = ctx;

	for (uint32_t at = 0; at < copy->have; at += ring_head_size(ring_copy_head(copy, at))) {
		const uint64_t *record = &copy->payload[at / 8];
		struct target target;
		if (ring_head_type(record[0]) != RING_TARGET ||
		    target_decode(&record[2], (uint32_t)record[1], &target) != 0)
			continue;

		struct ring_state *state = ring_states_touch(&cursor->states, ring_head_id(record[0]), copy->seq);
		if (state == NULL ||
		    (state->description == NULL && ring_state_describe(state, &record[2], (uint32_t)record[1]) < 0))
			return -ENOMEM;
		state->writer = copy->writer;
	}
	return 0;
}

/* Makes *ret the description of a target. 0; AGAIN if it is no description. */
static int announce(struct ring_state *state, struct ring_event *ret, const struct ring_cursor *cursor)
{
	struct target target;

	if (target_decode(state->description, state->description_len, &target) != 0)
		return AGAIN;

	target.id = state->id;
	state->announced = true;
	*ret = (struct ring_event){
		.type = RING_EVENT_TARGET,
		.time = cursor->time,
		.tick = cursor->number,
		.writer = state->writer,
		.id = state->id,
		.target = target,
	};
	return 0;
}

/* Delivers the description of a target unless that was done. 0: it is in *ret; AGAIN: go on; -ENOMEM. */
static int announce_first(struct ring_cursor *cursor, struct ring_state *state, struct ring_event *ret)
{
	if (cursor->quiet || state->announced)
		return AGAIN;

	/* For one target that would cost as much as all the rest. */
	if (state->description == NULL && !cursor->learned && cursor->only == 0) {
		int rc = ring_follow_ahead(&cursor->follow, learn_from, cursor);
		if (rc < 0)
			return rc;
		cursor->learned = true;
	}
	return state->description != NULL ? announce(state, ret, cursor) : AGAIN;
}

static mono_t record_time(const struct ring_cursor *cursor, const uint64_t *record)
{
	int64_t offset = (int32_t)(uint32_t)(record[1] >> 32);
	int64_t unit = (ring_head_flags(record[0]) & RING_OFFSET_COARSE) != 0 ? (int64_t)NS_PER_US : 1;

	return (mono_t){ cursor->time.ns + (uint64_t)(offset * unit) };
}

/* Applies a SAMPLE record. Fields that a newer writer knows and we do not come last and are left out. */
static uint32_t apply_fields(struct sample *sample, const uint64_t *record)
{
	uint32_t mask = (uint32_t)record[1] & (uint32_t)((1ULL << SAMPLE_FIELDS) - 1);
	const uint64_t *value = &record[2];

	for (uint32_t rest = mask; rest != 0; rest &= rest - 1)
		sample->value[__builtin_ctz(rest)] = *value++;
	if ((ring_head_flags(record[0]) & RING_SAMPLE_KEY) != 0)
		sample->mask = mask;
	return mask;
}

/* Field by field: clearing all of the event would cost more than everything else done for a sample. */
static void deliver_sample(const struct ring_cursor *cursor, const struct ring_state *state, uint32_t changed,
			   struct ring_event *ret)
{
	ret->type = RING_EVENT_SAMPLE;
	ret->time = state->at;
	ret->tick = cursor->number;
	ret->writer = state->writer;
	ret->id = state->id;
	ret->sample = &state->sample;
	ret->changed = changed;
}

static int next_sample(struct ring_cursor *cursor, const uint64_t *record, struct ring_event *ret)
{
	struct ring_copy *copy = cursor->current;
	bool key = (ring_head_flags(record[0]) & RING_SAMPLE_KEY) != 0;
	struct ring_state *state = ring_states_touch(&cursor->states, ring_head_id(record[0]), copy->seq);
	if (state == NULL)
		return -ENOMEM;

	if (!key && state->key_page != copy->seq + 1) {
		mark_damaged(cursor);
		copy->parsed += ring_head_size(record[0]);
		return AGAIN;
	}

	int rc = announce_first(cursor, state, ret);
	if (rc != AGAIN)
		return rc;

	uint32_t changed = apply_fields(&state->sample, record);
	state->writer = copy->writer;
	state->key_page = copy->seq + 1;
	state->at = record_time(cursor, record);
	copy->parsed += ring_head_size(record[0]);
	if (cursor->quiet)
		return AGAIN;

	deliver_sample(cursor, state, changed & state->sample.mask, ret);
	return 0;
}

static int next_target(struct ring_cursor *cursor, const uint64_t *record, struct ring_event *ret)
{
	struct ring_copy *copy = cursor->current;
	struct target target;

	if (target_decode(&record[2], (uint32_t)record[1], &target) != 0) {
		mark_damaged(cursor);
		copy->parsed += ring_head_size(record[0]);
		return AGAIN;
	}

	struct ring_state *state = ring_states_touch(&cursor->states, ring_head_id(record[0]), copy->seq);
	if (state == NULL)
		return -ENOMEM;

	int rc = ring_state_describe(state, &record[2], (uint32_t)record[1]);
	if (rc < 0)
		return rc;

	if (rc > 0)
		state->announced = false;
	state->writer = copy->writer;
	copy->parsed += ring_head_size(record[0]);
	return cursor->quiet || state->announced ? AGAIN : announce(state, ret, cursor);
}

static int next_gone(struct ring_cursor *cursor, const uint64_t *record, struct ring_event *ret)
{
	uint32_t id = ring_head_id(record[0]);
	struct ring_state *state = ring_states_find(&cursor->states, id);

	if (state != NULL) {
		int rc = announce_first(cursor, state, ret);
		if (rc != AGAIN)
			return rc;
	}
	cursor->current->parsed += ring_head_size(record[0]);
	if (cursor->quiet) {
		ring_states_drop(&cursor->states, id);
		return AGAIN;
	}

	*ret = (struct ring_event){
		.type = RING_EVENT_GONE,
		.time = record_time(cursor, record),
		.tick = cursor->number,
		.writer = cursor->writer,
		.id = id,
		.reason = (enum ring_gone_reason)(uint32_t)record[1],
	};
	if (!ring_cursor_target(cursor, id, &ret->target))
		ret->target = (struct target){ 0 };
	cursor->gone = id;
	return 0;
}

/* Passes over the records of other targets, up to the end of the page or of the tick. */
static void pass_over(const struct ring_cursor *cursor, struct ring_copy *copy)
{
	while (copy->parsed < copy->have) {
		uint64_t head = ring_copy_head(copy, copy->parsed);
		if (ring_head_type(head) == RING_TICK || ring_head_id(head) == cursor->only)
			return;

		copy->parsed += ring_head_size(head);
	}
}

/* Delivers the next record of the tick. */
static int next_record(struct ring_cursor *cursor, struct ring_event *ret)
{
	struct ring_copy *copy = cursor->current;
	if (cursor->only != 0)
		pass_over(cursor, copy);
	if (copy->parsed == copy->have)
		return next_part(cursor, ret);

	const uint64_t *record = &copy->payload[copy->parsed / 8];
	switch (ring_head_type(record[0])) {
	case RING_TICK:
		return next_part(cursor, ret);
	case RING_SAMPLE:
		return next_sample(cursor, record, ret);
	case RING_TARGET:
		return next_target(cursor, record, ret);
	case RING_GONE:
		return next_gone(cursor, record, ret);
	default:
		copy->parsed += ring_head_size(record[0]);
		return AGAIN;
	}
}

/* Delivers what a cursor that starts at the newest tick knows: each target's description, then its sample. */
static int next_preloaded(struct ring_cursor *cursor, struct ring_event *ret)
{
	size_t walk = cursor->walk;
	struct ring_state *state = ring_states_walk(&cursor->states, &walk);

	if (state == NULL) {
		cursor->preloaded = false;
		return AGAIN;
	}
	if (!state->announced && state->description != NULL && announce(state, ret, cursor) == 0)
		return 0;

	cursor->walk = walk;
	if (state->key_page == 0)
		return AGAIN;

	deliver_sample(cursor, state, state->sample.mask, ret);
	return 0;
}

int ring_cursor_next(struct ring_cursor *cursor, struct ring_event *ret)
{
	int rc;

	if (cursor->gone != 0)
		ring_states_drop(&cursor->states, cursor->gone);
	cursor->gone = 0;

	do {
		if (cursor->preloaded)
			rc = next_preloaded(cursor, ret);
		else if (cursor->current != NULL)
			rc = next_record(cursor, ret);
		else
			rc = next_tick(cursor, ret);
	} while (rc == AGAIN);

	return rc;
}

/* Reads all there is for the states alone. 0 or -ENOMEM. */
static int preload(struct ring_cursor *cursor)
{
	struct ring_event event;
	int rc;

	cursor->silent = true;
	do {
		rc = ring_cursor_next(cursor, &event);
	} while (rc == 0);
	cursor->silent = false;
	cursor->preloaded = true;
	return rc < 0 ? rc : 0;
}

static void cursor_release(struct ring_cursor **cursor)
{
	ring_cursor_free(*cursor);
}

int ring_cursor_new(const struct ring *ring, enum ring_start start, struct ring_cursor **ret)
{
	AUTO(cursor_release) struct ring_cursor *cursor = calloc(1, sizeof(*cursor));
	if (cursor == NULL)
		return -ENOMEM;

	int rc = ring_follow_init(&cursor->follow, ring);
	if (rc == 0 && start == RING_NEWEST)
		rc = preload(cursor);
	if (rc < 0)
		return rc;

	*ret = TAKE(cursor);
	return 0;
}

int ring_cursor_new_blocking(struct ring *ring, int32_t pid, uint64_t start_ticks, ring_alive *alive,
			     struct ring_cursor **ret)
{
	assert(ring->writable && pid > 0);

	AUTO(cursor_release) struct ring_cursor *cursor = NULL;
	int rc = ring_cursor_new(ring, RING_OLDEST, &cursor);
	if (rc == 0)
		rc = ring_follow_attach(&cursor->follow, ring, ring_reader_word(pid, start_ticks), alive);
	if (rc != 0)
		return rc;

	*ret = TAKE(cursor);
	return 0;
}

void ring_cursor_free(struct ring_cursor *cursor)
{
	if (cursor == NULL)
		return;

	ring_follow_release(&cursor->follow);
	ring_states_release(&cursor->states);
	free(cursor);
}

int ring_cursor_seek(struct ring_cursor *cursor, mono_t since)
{
	cursor->since = since;
	if (cursor->follow.count == 0)
		ring_follow_skip(&cursor->follow, since.ns);
	return 0;
}

void ring_cursor_only(struct ring_cursor *cursor, uint32_t id)
{
	cursor->only = id;
}

bool ring_cursor_target(const struct ring_cursor *cursor, uint32_t id, struct target *ret)
{
	const struct ring_state *state = ring_states_find(&cursor->states, id);

	if (state == NULL || state->description == NULL ||
	    target_decode(state->description, state->description_len, ret) != 0)
		return false;

	ret->id = id;
	return true;
}
