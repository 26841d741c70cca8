/*
 * sample_window.c: samples in memory, delta-encoded.
 *
 * A target sampled a thousand times a second changes in few fields by small amounts, so a record
 * holds the time and the changed fields as differences to the record before, as variable-length
 * integers: 10 to 20 bytes instead of 180. Records are in chunks that are never moved; a record
 * never crosses the end of its chunk. Reading decodes from the start, which is all that writing
 * and the peaks need (the latter with two cursors, one behind the other). The bytes are written
 * here only, so decoding does not check them.
 *
 * Rejected: a copy of the ring's pages, which hold all targets when one of a thousand is wanted;
 * dropping old samples when memory is short: the onset of the spike is in no other place.
 */
#include "lib/incident/sample_window.h"

#include "lib/stream/sample_stream.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>

#define GAPS_MAX 64 /* that are listed; further ones are added to the last */
#define DEFAULT_MAX_BYTES (8u << 20)
#define CHUNK_BYTES 16384u /* small enough to waste little on a target that hardly changes */
/* Instead of the mask of a sample: a hole. Its time is the end; length, missed slots, time suspended follow. */
#define HOLE_RECORD (1u << 31)
/* Time, two masks and every field, at the longest encoding of each. */
#define RECORD_MAX (10 + 5 + 5 + 10 * SAMPLE_FIELDS)

struct chunk {
	struct chunk *next;
	size_t len;
	uint8_t data[CHUNK_BYTES - 2 * sizeof(void *)];
};

_Static_assert(sizeof(struct chunk) == CHUNK_BYTES, "a chunk is what it says");
_Static_assert(SAMPLE_FIELDS < 32, "no sample has a mask with HOLE_RECORD");

/* What the next record is a difference to. */
struct state {
	uint64_t time_ns;
	struct sample sample;
};

/* The reader was overtaken, or pages were damaged. */
struct gap {
	mono_t at; /* of the first tick after it */
	uint64_t lost_pages;
};

/* A shorter hole at the end of a window is not told from a tick that comes a little late. */
#define END_NS (250 * NS_PER_MS)

struct sample_window {
	struct sample_window_options options;
	mono_t from, to;
	struct chunk *first, *last;
	size_t chunk_count;
	struct state state;
	struct sample_window_coverage coverage; /* the counters; what depends on the ticks is added on request */
	struct sample_window_span span;
	uint64_t idle_ns;       /* of the last tick */
	mono_t looked_at;       /* the last record, */
	uint64_t looked_cpu_ns; /* and the CPU time in it */
	struct gap gaps[GAPS_MAX];
	size_t gap_count;
};

/* A place in the records; state is that of the record before. */
struct cursor {
	const struct chunk *chunk;
	size_t offset;
	struct state state;
	bool is_hole; /* the record is the next, and no sample */
	struct sampling_hole hole;
};

/* ---- encoding ---- */

/* Small numbers of either sign become small unsigned ones: 0, -1, 1, -2 ... -> 0, 1, 2, 3 ... */
static uint64_t zigzag(uint64_t difference)
{
	return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}

static uint64_t unzigzag(uint64_t value)
{
	return value >> 1 ^ (0 - (value & 1));
}

/* Seven bits a byte, lowest first; the top bit says that more follow. */
static uint8_t *put_varint(uint8_t *at, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		*at++ = (uint8_t)(value | 0x80);
	*at++ = (uint8_t)value;
	return at;
}

static uint64_t get_varint(struct cursor *cursor)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = cursor->chunk->data[cursor->offset++];
		value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80);
	return value;
}

static size_t encode_record(uint8_t *record, struct state *state, mono_t at, const struct sample *sample)
{
	uint8_t *end = put_varint(record, zigzag(at.ns - state->time_ns));
	uint32_t changed = 0;

	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		if (sample_has(sample, f) && sample->value[f] != state->sample.value[f])
			changed |= 1u << f;
	end = put_varint(end, sample->mask);
	end = put_varint(end, changed);
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++) {
		if (!(changed >> f & 1u))
			continue;
		end = put_varint(end, zigzag(sample->value[f] - state->sample.value[f]));
		state->sample.value[f] = sample->value[f];
	}
	state->time_ns = at.ns;
	return (size_t)(end - record);
}

static size_t encode_hole(uint8_t *record, struct state *state, const struct sampling_hole *hole)
{
	uint8_t *end = put_varint(record, zigzag(hole->to.ns - state->time_ns));

	end = put_varint(end, HOLE_RECORD);
	end = put_varint(end, (uint64_t)mono_diff(hole->to, hole->from));
	end = put_varint(end, hole->missed_slots);
	end = put_varint(end, hole->suspended_ns);
	state->time_ns = hole->to.ns;
	return (size_t)(end - record);
}

static struct cursor first_record(const struct sample_window *window)
{
	return (struct cursor){ .chunk = window->first, .state = { .time_ns = window->from.ns } };
}

/* Decodes the next record into cursor->state or cursor->hole. False at the end. */
static bool next_record(struct cursor *cursor)
{
	uint32_t mask, changed;

	if (cursor->chunk && cursor->offset == cursor->chunk->len) {
		cursor->chunk = cursor->chunk->next;
		cursor->offset = 0;
	}
	if (!cursor->chunk)
		return false;

	cursor->state.time_ns += unzigzag(get_varint(cursor));
	mask = (uint32_t)get_varint(cursor);
	cursor->is_hole = mask == HOLE_RECORD;
	if (cursor->is_hole) {
		cursor->hole.to = (mono_t){ cursor->state.time_ns };
		cursor->hole.from = mono_sub(cursor->hole.to, get_varint(cursor));
		cursor->hole.missed_slots = get_varint(cursor);
		cursor->hole.suspended_ns = get_varint(cursor);
		return true;
	}
	cursor->state.sample.mask = mask;
	changed = (uint32_t)get_varint(cursor);
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		if (changed >> f & 1u)
			cursor->state.sample.value[f] += unzigzag(get_varint(cursor));
	return true;
}

static bool next_sample(struct cursor *cursor)
{
	while (next_record(cursor))
		if (!cursor->is_hole)
			return true;
	return false;
}

/* ---- the object ---- */

int sample_window_new(const struct sample_window_options *options, struct sample_window **ret)
{
	struct sample_window *window = calloc(1, sizeof(*window));

	if (!window)
		return -ENOMEM;

	window->options = *options;
	if (window->options.max_bytes == 0)
		window->options.max_bytes = DEFAULT_MAX_BYTES;
	window->from = mono_sub(options->fired, options->before_ns);
	window->to = mono_add(options->fired, options->after_ns);
	window->coverage.want_before_ns = options->before_ns;
	window->coverage.want_after_ns = options->after_ns;
	window->state.time_ns = window->from.ns;
	*ret = window;
	return 0;
}

void sample_window_free(struct sample_window *window)
{
	if (!window)
		return;
	while (window->first) {
		struct chunk *chunk = window->first;

		window->first = chunk->next;
		free(chunk);
	}
	if (window->options.shared_bytes)
		atomic_fetch_sub(window->options.shared_bytes, window->chunk_count * sizeof(struct chunk));
	free(window);
}

static bool in_window(const struct sample_window *window, mono_t at)
{
	return mono_diff(at, window->from) >= 0 && mono_diff(window->to, at) >= 0;
}

void sample_window_tick(struct sample_window *window, mono_t at, uint64_t idle_ns)
{
	if (!in_window(window, at))
		return;
	window->span.tick_ns = window->coverage.ticks_got > 0 ? (uint64_t)mono_diff(at, window->span.last) : 0;
	window->idle_ns = idle_ns;
	if (window->coverage.ticks_got++ == 0)
		window->span.first = at;
	window->span.last = at;
}

/* A chunk with room for one more record; NULL at a limit or without memory. */
static struct chunk *chunk_with_room(struct sample_window *window)
{
	_Atomic size_t *shared = window->options.shared_bytes;
	struct chunk *chunk = window->last;

	if (chunk && sizeof(chunk->data) - chunk->len >= RECORD_MAX)
		return chunk;
	if ((window->chunk_count + 1) * sizeof(*chunk) > window->options.max_bytes)
		return NULL;
	if (shared && atomic_fetch_add(shared, sizeof(*chunk)) + sizeof(*chunk) > window->options.shared_max) {
		atomic_fetch_sub(shared, sizeof(*chunk));
		return NULL;
	}
	chunk = malloc(sizeof(*chunk));
	if (!chunk) {
		if (shared)
			atomic_fetch_sub(shared, sizeof(*chunk));
		return NULL;
	}

	chunk->next = NULL;
	chunk->len = 0;
	if (window->last)
		window->last->next = chunk;
	else
		window->first = chunk;
	window->last = chunk;
	window->chunk_count++;
	return chunk;
}

/*
 * What ran after a pause has a record of the look before it: a longer time since a record is one in which
 * the target was looked at and found as it was.
 */
static void note_pause(struct sample_window *window, mono_t at, const struct sample *sample)
{
	uint64_t cpu_ns = sample_has(sample, SAMPLE_CPU) ? sample->value[SAMPLE_CPU] : 0;
	uint64_t pause_ns = window->looked_at.ns > 0 && mono_diff(at, window->looked_at) > 0
				    ? (uint64_t)mono_diff(at, window->looked_at)
				    : 0;
	uint64_t tick_ns = window->span.tick_ns;

	if (cpu_ns > window->looked_cpu_ns && window->idle_ns > 0 && pause_ns > tick_ns + tick_ns / 2 &&
	    pause_ns <= window->idle_ns + tick_ns && pause_ns > window->coverage.onset_late_ns)
		window->coverage.onset_late_ns = pause_ns;
	window->looked_at = at;
	window->looked_cpu_ns = cpu_ns;
}

void sample_window_add(struct sample_window *window, mono_t at, const struct sample *sample)
{
	struct chunk *chunk;

	if (!in_window(window, at))
		return;
	note_pause(window, at, sample);
	sample_window_cover_sample(sample, &window->coverage);
	chunk = chunk_with_room(window);
	if (!chunk) {
		window->coverage.samples_dropped++;
		return;
	}
	chunk->len += encode_record(chunk->data + chunk->len, &window->state, at, sample);
	window->coverage.samples++;
}

void sample_window_hole(struct sample_window *window, const struct sampling_hole *hole)
{
	struct chunk *chunk;

	struct sampling_hole inside = *hole;

	if (mono_diff(hole->to, window->from) <= 0 || mono_diff(window->to, hole->from) <= 0)
		return;
	if (mono_diff(window->from, hole->from) > 0)
		inside.from = window->from;
	if (mono_diff(hole->to, window->to) > 0)
		inside.to = window->to;
	sample_window_cover_hole(&inside, &window->coverage, &window->span);
	chunk = chunk_with_room(window);
	if (chunk)
		chunk->len += encode_hole(chunk->data + chunk->len, &window->state, hole);
}

void sample_window_gap(struct sample_window *window, mono_t at, uint64_t lost_pages)
{
	if (!in_window(window, at))
		return;
	window->coverage.gaps++;
	window->coverage.lost_pages += lost_pages;
	if (window->gap_count == GAPS_MAX)
		window->gaps[GAPS_MAX - 1].lost_pages += lost_pages;
	else
		window->gaps[window->gap_count++] = (struct gap){ at, lost_pages };
}

void sample_window_gone(struct sample_window *window, mono_t at)
{
	if (!in_window(window, at))
		return;
	window->coverage.gone = true;
	window->coverage.gone_ns = mono_diff(at, window->options.fired);
}

bool sample_window_end(struct sample_window *window, mono_t now, uint64_t interval_ns)
{
	struct sampling_hole hole;

	if (mono_diff(now, window->to) <= 0)
		return false;
	if (sample_window_ends_in_hole(&window->span, window->to, interval_ns, &hole))
		sample_window_hole(window, &hole);

	return true;
}

/* ---- coverage and peaks ---- */

void sample_window_cover_ticks(mono_t fired, const struct sample_window_span *span, uint64_t interval_ns,
			       struct sample_window_coverage *coverage)
{
	mono_t from = span->first, to = span->last;
	double slots, rate;

	coverage->ticks_expected = (coverage->want_before_ns + coverage->want_after_ns) / interval_ns;
	if (coverage->ticks_got == 0)
		return;
	if (span->first_hole.ns && mono_diff(from, span->first_hole) > 0)
		from = span->first_hole;
	if (mono_diff(span->last_hole, to) > 0)
		to = span->last_hole;
	slots = (double)mono_diff(to, from) / (double)interval_ns + 1;
	rate = (double)coverage->ticks_got / slots;
	coverage->got_from_ns = mono_diff(span->first, fired);
	coverage->got_to_ns = mono_diff(span->last, fired);
	coverage->capture_rate = rate < 1 ? rate : 1;
}

void sample_window_cover_hole(const struct sampling_hole *hole, struct sample_window_coverage *coverage,
			      struct sample_window_span *span)
{
	uint64_t length_ns = (uint64_t)mono_diff(hole->to, hole->from);

	coverage->suspends += hole->suspended_ns > 0;
	coverage->suspended_ns += hole->suspended_ns;
	if (hole->missed_slots == 0)
		return;
	coverage->gaps++;
	coverage->holes++;
	coverage->missed_slots += hole->missed_slots;
	coverage->unsampled_ns += sampling_hole_unsampled_ns(hole, (int64_t)length_ns);
	if (length_ns > coverage->longest_hole_ns)
		coverage->longest_hole_ns = length_ns;
	if (!span)
		return;
	if (span->first_hole.ns == 0 || mono_diff(span->first_hole, hole->from) > 0)
		span->first_hole = hole->from;
	if (mono_diff(hole->to, span->last_hole) > 0)
		span->last_hole = hole->to;
}

/* So long may be without ticks that come when due: two of a sampler that was slowed down. */
static uint64_t longest_end(const struct sample_window_span *span, uint64_t interval_ns)
{
	uint64_t longest_ns = 4 * interval_ns > END_NS ? 4 * interval_ns : END_NS;
	bool behind_hole = mono_diff(span->last, span->last_hole) < (int64_t)interval_ns;

	return behind_hole || longest_ns > 2 * span->tick_ns ? longest_ns : 2 * span->tick_ns;
}

bool sample_window_ends_in_hole(const struct sample_window_span *span, mono_t to, uint64_t interval_ns,
				struct sampling_hole *ret)
{
	if (span->last.ns == 0 || mono_diff(span->last_hole, to) >= 0 ||
	    mono_diff(to, span->last) <= (int64_t)longest_end(span, interval_ns))
		return false;
	*ret = (struct sampling_hole){ .from = span->last,
				       .to = to,
				       .missed_slots = (uint64_t)mono_diff(to, span->last) / interval_ns };

	return true;
}

void sample_window_coverage(const struct sample_window *window, uint64_t interval_ns,
			    struct sample_window_coverage *ret)
{
	*ret = window->coverage;
	sample_window_cover_ticks(window->options.fired, &window->span, interval_ns, ret);
}

/*
 * Moves trail forward as far as it stays at least the window behind lead. False: there is no such
 * record.
 */
static bool advance_trail(struct cursor *trail, bool *valid, uint64_t lead_ns, uint64_t window_ns)
{
	struct cursor ahead = *trail;

	while (next_sample(&ahead) && (int64_t)(lead_ns - ahead.state.time_ns) >= (int64_t)window_ns) {
		*trail = ahead;
		*valid = true;
	}
	return *valid;
}

/*
 * What the CPU counter was at a time from trail's record on and before the one behind that. What sleeps has a record
 * now and then, and one just before it runs again; within a hole nothing is known but the mean. False: it
 * stepped back, or there is none.
 */
static bool cpu_between(const struct cursor *trail, uint64_t at_ns, double *ret_ns)
{
	struct cursor next = *trail;
	const struct sample *from = &trail->state.sample, *to = &next.state.sample;

	if (!sample_has(from, SAMPLE_CPU))
		return false;
	*ret_ns = (double)from->value[SAMPLE_CPU];
	if (at_ns == trail->state.time_ns || !next_sample(&next))
		return true;
	if (!sample_has(to, SAMPLE_CPU) || to->value[SAMPLE_CPU] < from->value[SAMPLE_CPU])
		return false;
	*ret_ns += (double)(to->value[SAMPLE_CPU] - from->value[SAMPLE_CPU]) * (double)(at_ns - trail->state.time_ns) /
		   (double)(next.state.time_ns - trail->state.time_ns);
	return true;
}

static void cpu_peak(const struct sample_window *window, struct sample_window_peaks *peaks)
{
	struct cursor lead = first_record(window), trail = first_record(window);
	bool valid = false;

	while (next_sample(&lead)) {
		const struct sample *now = &lead.state.sample;
		double then_ns, cores;

		if (!advance_trail(&trail, &valid, lead.state.time_ns, peaks->cpu_window_ns))
			continue;
		if (!sample_has(now, SAMPLE_CPU) ||
		    !cpu_between(&trail, lead.state.time_ns - peaks->cpu_window_ns, &then_ns) ||
		    (double)now->value[SAMPLE_CPU] < then_ns)
			continue;
		cores = ((double)now->value[SAMPLE_CPU] - then_ns) / (double)peaks->cpu_window_ns;
		if (!peaks->has_cpu || cores > peaks->cpu_cores)
			peaks->cpu_cores = cores;
		peaks->has_cpu = true;
	}
}

static void memory_peaks(const struct sample_window *window, struct sample_window_peaks *peaks)
{
	struct cursor cursor = first_record(window);
	bool marked = false;
	uint64_t mark = 0, rose_to = 0;

	while (next_sample(&cursor)) {
		const struct sample *sample = &cursor.state.sample;

		if (sample_has(sample, SAMPLE_MEMORY)) {
			peaks->has_memory = true;
			if (sample->value[SAMPLE_MEMORY] > peaks->memory_bytes)
				peaks->memory_bytes = sample->value[SAMPLE_MEMORY];
		}
		if (!sample_has(sample, SAMPLE_MEMORY_PEAK))
			continue;
		if (marked && sample->value[SAMPLE_MEMORY_PEAK] > mark && sample->value[SAMPLE_MEMORY_PEAK] > rose_to)
			rose_to = sample->value[SAMPLE_MEMORY_PEAK];
		mark = sample->value[SAMPLE_MEMORY_PEAK];
		marked = true;
	}
	peaks->has_memory_peak = marked;
	peaks->memory_peak_bytes = rose_to > peaks->memory_bytes ? rose_to : peaks->memory_bytes;
}

void sample_window_peaks(const struct sample_window *window, uint64_t cpu_window_ns, struct sample_window_peaks *ret)
{
	struct sample_window_peaks peaks = { .cpu_window_ns = cpu_window_ns > 0 ? cpu_window_ns : 1 };

	cpu_peak(window, &peaks);
	memory_peaks(window, &peaks);
	*ret = peaks;
}

/* ---- the stream ---- */

/* Time in the stream. */
static uint64_t since(mono_t start, mono_t at)
{
	int64_t ns = mono_diff(at, start);

	return ns > 0 ? (uint64_t)ns : 0;
}

/* Notes the holes from *next on that end no later than at. */
static int note_gaps(const struct sample_window *window, struct stream_writer *writer, mono_t start, mono_t at,
		     size_t *next)
{
	for (; *next < window->gap_count && mono_diff(window->gaps[*next].at, at) <= 0; (*next)++) {
		const struct gap *gap = &window->gaps[*next];
		char json[96];
		int len = snprintf(json, sizeof(json), "{\"time_ns\":%ju,\"lost_pages\":%ju}",
				   (uintmax_t)since(start, gap->at), (uintmax_t)gap->lost_pages);
		int r = stream_note(writer, "GAP", json, (size_t)len);

		if (r < 0)
			return r;
	}
	return 0;
}

int sample_window_write(const struct sample_window *window, struct stream_writer *writer, uint32_t target)
{
	mono_t start = window->from;
	struct cursor cursor = first_record(window);
	const struct sample *sample = &cursor.state.sample;
	size_t gap = 0;
	char json[96];
	mono_t gone;
	int len, r;

	while (next_record(&cursor)) {
		mono_t at = { cursor.state.time_ns };

		r = note_gaps(window, writer, start, at, &gap);
		if (r == 0 && cursor.is_hole)
			r = sample_stream_hole(writer, &cursor.hole, 0, start);
		else if (r == 0)
			r = stream_row(writer, since(start, at), target, sample->value, sample->mask);
		if (r < 0)
			return r;
	}
	r = note_gaps(window, writer, start, window->to, &gap);
	if (r < 0 || !window->coverage.gone)
		return r;
	gone = (mono_t){ window->options.fired.ns + (uint64_t)window->coverage.gone_ns };
	len = snprintf(json, sizeof(json), "{\"time_ns\":%ju,\"target\":%u}", (uintmax_t)since(start, gone), target);
	return stream_note(writer, "GONE", json, (size_t)len);
}
