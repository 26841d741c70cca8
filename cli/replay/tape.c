/*
 * tape.c: lines of a stream to events. What ticks there were is found out by tapeclock.c; here is whom a row is of, and which rows are to be believed.
 *
 * A target that wakes has two rows, of its last look before and of this one: the former comes late, after rows of others. Other rows that come late
 * are passed over.
 */
#include "tape.h"

#include "checksum.h"
#include "json.h"
#include "pairmap.h"
#include "scope.h"
#include "tapeclock.h"
#include "targetjson.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Rows further from the start of their stream than that are nonsense, and would overflow arithmetic later. */
#define TIME_MAX_NS (3660ULL * 86400 * NS_PER_S)

/* A target of a stream. */
struct known {
	uint32_t id;       /* in the stream, and in events */
	uint32_t writer;   /* whose ticks it moves on with */
	uint32_t checksum; /* of its declaration */
	bool announced;    /* and not gone */
	bool is_column;    /* STREAM_GVISOR */
	uint64_t tick;     /* number of the last one with a row of it */
	mono_t at;         /* of its last row */
};

struct tape {
	struct tape_options options;
	struct salvage *salvage;
	struct tape_summary summary;
	/* The stream that is being read. */
	uint64_t streams;
	wall_t start;
	unsigned field[STREAM_COLUMNS_MAX];  /* which field of a sample a column is; SAMPLE_FIELDS: none we know */
	uint32_t column[STREAM_COLUMNS_MAX]; /* STREAM_GVISOR: whose; 0: nobody's */
	struct known *known;
	size_t known_count, known_cap;
	struct pairmap index; /* id -> place in known */
	struct tapeclock clock;
};

/* ---- events ---- */

static int hand_over(struct tape *tape, const struct ring_event *event)
{
	return tape->options.event(tape->options.ctx, event);
}

static int miss(struct tape *tape, uint64_t pages)
{
	struct ring_event event = tapeclock_event(&tape->clock, RING_EVENT_LAPPED, tape->clock.writer, 0);
	int r = tapeclock_end(&tape->clock);

	event.lost_pages = pages;
	tape->summary.gaps++;
	return r == 0 ? hand_over(tape, &event) : r;
}

/* ---- targets ---- */

static struct known *find(const struct tape *tape, uint32_t id)
{
	uint32_t at;

	return pairmap_get(&tape->index, id, 0, &at) ? &tape->known[at] : NULL;
}

/* *ret NULL: it is one too many. 0 or -ENOMEM. */
static int know(struct tape *tape, uint32_t id, struct known **ret)
{
	*ret = find(tape, id);
	if (*ret || tape->known_count == TAPE_TARGETS_MAX)
		return 0;
	if (tape->known_count == tape->known_cap) {
		size_t cap = tape->known_cap ? 2 * tape->known_cap : 16;
		struct known *grown = realloc(tape->known, cap * sizeof(*grown));

		if (!grown)
			return -ENOMEM;
		tape->known = grown;
		tape->known_cap = cap;
	}
	pairmap_put(&tape->index, id, 0, (uint32_t)tape->known_count);
	tape->known[tape->known_count] = (struct known){ .id = id };
	*ret = find(tape, id);
	if (!*ret)
		return -ENOMEM;
	tape->known_count++;
	return 0;
}

static int announce(struct tape *tape, struct known *known, const struct target *target)
{
	struct ring_event event = tapeclock_event(&tape->clock, RING_EVENT_TARGET, known->writer, known->id);

	event.target = *target;
	tape->summary.targets += !known->announced;
	known->announced = true;
	return hand_over(tape, &event);
}

static int lose_target(struct tape *tape, struct known *known)
{
	struct ring_event event = tapeclock_event(&tape->clock, RING_EVENT_GONE, known->writer, known->id);

	event.reason = RING_GONE_EXITED;
	if (!known->announced)
		return 0;
	known->announced = false;
	known->checksum = 0;
	known->at = (mono_t){ 0 };
	rowpace_lose(&tape->clock.pace, known->id);
	return hand_over(tape, &event);
}

static void free_document(struct json_document **document)
{
	json_document_free(*document);
}

static int on_target(void *ctx, uint32_t id, const char *json, size_t len)
{
	AUTO(free_document) struct json_document *document = NULL;
	uint32_t checksum = checksum_adler32(1, json, len);
	struct tape *tape = ctx;
	struct known *known;
	int r = know(tape, id, &known);

	if (r < 0 || !known || id == 0 || (known->announced && known->checksum == checksum))
		return r;
	r = json_parse(json, len, NULL, &document, NULL);
	if (r < 0)
		return r == -ENOMEM ? r : 0;

	struct target target = targetjson_read(json_root(document), id);

	known->checksum = checksum;
	known->writer = (uint32_t)targetjson_number(json_root(document), "writer", UINT32_MAX);
	return announce(tape, known, &target);
}

/* ---- rows ---- */

/* When a row was taken. False: at an absurd time. */
static bool time_of(const struct tape *tape, uint64_t time_ns, mono_t *ret)
{
	if (time_ns > TIME_MAX_NS || tape->start.ns > INT64_MAX / 2)
		return false;
	ret->ns = tape->start.ns + time_ns + (uint64_t)tape->options.mono_ahead_ns;
	return ret->ns < INT64_MAX;
}

static void take_values(const struct tape *tape, uint32_t owner, const uint64_t *values, uint32_t mask,
			struct sample *ret)
{
	for (unsigned c = 0; c < STREAM_COLUMNS_MAX; c++)
		if ((mask >> c & 1u) && tape->field[c] < SAMPLE_FIELDS && tape->column[c] == owner)
			sample_set(ret, (enum sample_field)tape->field[c], values[c]);
}

static int put_sample(struct tape *tape, const struct known *known, mono_t at, const struct sample *sample)
{
	struct ring_event event = tapeclock_event(&tape->clock, RING_EVENT_SAMPLE, known->writer, known->id);

	event.time = at;
	event.sample = sample;
	event.changed = sample->mask;
	tape->summary.samples++;
	return hand_over(tape, &event);
}

/*
 * A row of others may be later, by a pause of this one, which is no longer than a heartbeat. One of its own may not. known NULL: of all, in
 * STREAM_GVISOR, or of nobody.
 */
static bool is_late(struct tape *tape, const struct known *known, uint32_t id, mono_t at)
{
	const struct tapeclock_line *line = tapeclock_line(&tape->clock, known ? known->writer : 0);
	int64_t late_ns = mono_diff(line->tick, at);

	if (!line->started || late_ns <= (int64_t)(id ? tape->clock.pace.interval_ns : 0))
		return false;
	return !known || known->at.ns == 0 || mono_diff(known->at, at) > 0 ||
	       late_ns > (int64_t)tape->options.heartbeat_ns;
}

static int on_own_row(struct tape *tape, mono_t at, struct known *known, const uint64_t *values, uint32_t mask)
{
	const struct tapeclock_line *line;
	struct sample sample = { 0 };
	int r;

	if (!known || !known->announced) {
		tape->summary.nameless++;
		return 0;
	}
	line = tapeclock_line(&tape->clock, known->writer);
	if (!tape->options.interval_is_known)
		rowpace_row(&tape->clock.pace, known->id, at);
	r = tapeclock_reach(&tape->clock, known->writer, at, line->started && known->tick == line->number);
	if (r != 0)
		return r;
	known->at = at;
	if (mono_diff(line->tick, at) <= (int64_t)(tape->clock.pace.interval_ns / 2))
		known->tick = line->number;
	take_values(tape, 0, values, mask, &sample);
	return put_sample(tape, known, at, &sample);
}

static int on_gvisor_row(struct tape *tape, mono_t at, const uint64_t *values, uint32_t mask)
{
	int r = tapeclock_next(&tape->clock, 0, at);

	for (size_t i = 0; r == 0 && i < tape->known_count; i++) {
		struct sample sample = { 0 };

		take_values(tape, tape->known[i].id, values, mask, &sample);
		r = put_sample(tape, &tape->known[i], at, &sample);
	}
	return r;
}

static int on_row(void *ctx, uint64_t seq, uint64_t time_ns, uint32_t target, const uint64_t *values, uint32_t mask)
{
	struct tape *tape = ctx;
	struct known *known = target ? find(tape, target) : NULL;
	mono_t at;

	(void)seq;
	if (!time_of(tape, time_ns, &at) || is_late(tape, known, target, at)) {
		tape->summary.late++;
		return 0;
	}
	return target ? on_own_row(tape, at, known, values, mask) : on_gvisor_row(tape, at, values, mask);
}

/* ---- headers and remarks ---- */

static unsigned field_named(const char *name)
{
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		if (strcmp(name, sample_field_info((enum sample_field)f)->name) == 0)
			return f;
	return SAMPLE_FIELDS;
}

/* "/web/cpu": a column of target "web", which gets an id of its own. */
static int on_gvisor_column(struct tape *tape, size_t index, const char *name)
{
	const char *slash = strrchr(name, '/');
	AUTO_FREE char *owner = strndup(name + 1, (size_t)(slash - name) - (slash > name));
	struct known *known;
	uint32_t checksum;
	int r;

	if (!owner)
		return -ENOMEM;
	checksum = checksum_adler32(1, owner, strlen(owner));
	tape->field[index] = field_named(slash + 1);
	r = know(tape, checksum ? checksum : 1, &known);
	if (r < 0 || !known)
		return r;
	tape->column[index] = known->id;
	known->is_column = true;
	if (known->announced)
		return 0;

	const struct target target = {
		.id = known->id,
		.kind = TARGET_PROCESS,
		.entry = owner,
		.name = owner,
		.key = owner,
		.comm = "",
		.cmdline = "",
		.cgroup = "",
	};

	return announce(tape, known, &target);
}

static int on_column(void *ctx, size_t index, const char *name, const char *json)
{
	struct tape *tape = ctx;

	(void)json;
	if (index >= STREAM_COLUMNS_MAX)
		return 0;
	if (name[0] == '/')
		return on_gvisor_column(tape, index, name);
	tape->field[index] = field_named(name);
	tape->column[index] = 0;
	return 0;
}

/* Another stream: its targets are others (but those of columns, which come before the time), and nobody looked in between. */
static int on_start_time(void *ctx, wall_t start)
{
	struct tape *tape = ctx;
	int r = 0;

	tape->start = start;
	if (tape->streams++ == 0)
		return 0;

	r = miss(tape, 0);
	tapeclock_restart(&tape->clock);
	for (size_t i = 0; r == 0 && i < tape->known_count; i++)
		if (!tape->known[i].is_column)
			r = lose_target(tape, &tape->known[i]);
	return r;
}

static int on_note(void *ctx, const char *kind, const char *json, size_t len)
{
	AUTO(free_document) struct json_document *document = NULL;
	struct tape *tape = ctx;
	struct known *known;
	int r;

	if (strcmp(kind, "GAP") == 0)
		return miss(tape, 0);
	if (strcmp(kind, "GONE") != 0)
		return 0;
	r = json_parse(json, len, NULL, &document, NULL);
	if (r < 0)
		return r == -ENOMEM ? r : 0;
	known = find(tape, (uint32_t)targetjson_number(json_root(document), "target", UINT32_MAX));
	tape->summary.gone += known && known->announced;
	return known ? lose_target(tape, known) : 0;
}

static int on_damage(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	struct tape *tape = ctx;

	if (tape->options.trouble)
		tape->options.trouble(tape->options.ctx, line, rows_lost, why);
	return rows_lost > 0 ? miss(tape, 0) : 0;
}

/* ---- the object ---- */

/* Those of several writers overlap. */
void tape_summary_tick(struct tape_summary *summary, wall_t at)
{
	if (!summary->any || at.ns < summary->from.ns)
		summary->from = at;
	if (!summary->any || at.ns > summary->to.ns)
		summary->to = at;
	summary->any = true;
	summary->ticks++;
}

static void release(struct tape **tape)
{
	tape_free(*tape);
}

int tape_new(const struct tape_options *options, struct tape **ret)
{
	AUTO(release) struct tape *tape = calloc(1, sizeof(*tape));
	int r;

	if (!tape)
		return -ENOMEM;

	struct salvage_events events = {
		.column = on_column,
		.start_time = on_start_time,
		.target = on_target,
		.row = on_row,
		.note = on_note,
		.damage = on_damage,
		.ctx = tape,
	};

	tape->options = *options;
	tape->clock.options = &tape->options;
	tape->clock.summary = &tape->summary;
	tape->clock.pace.interval_ns = options->interval_ns;
	for (unsigned c = 0; c < STREAM_COLUMNS_MAX; c++)
		tape->field[c] = SAMPLE_FIELDS;
	r = salvage_new(&events, &tape->salvage);
	if (r < 0)
		return r;

	*ret = TAKE(tape);
	return 0;
}

int tape_feed(struct tape *tape, const char *data, size_t len)
{
	return salvage_feed(tape->salvage, data, len);
}

int tape_finish(struct tape *tape, struct tape_summary *ret)
{
	struct salvage_report report;
	int r = salvage_finish(tape->salvage, &report);

	if (r == 0)
		r = tapeclock_end(&tape->clock);
	tape->summary.report = report;
	*ret = tape->summary;
	return r;
}

void tape_free(struct tape *tape)
{
	if (!tape)
		return;

	salvage_free(tape->salvage);
	pairmap_release(&tape->index);
	free(tape->known);
	free(tape);
}
