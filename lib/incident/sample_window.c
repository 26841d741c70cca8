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

#include <errno.h>
#include <stdio.h>

/* Holes that are listed; further ones are added to the last. */
#define SAMPLE_WINDOW_GAPS_MAX 64

#define DEFAULT_MAX_BYTES (8u << 20)
#define CHUNK_BYTES 16384u /* small enough to waste little on a target that hardly changes */
/* Time, two masks and every field, at the longest encoding of each. */
#define RECORD_MAX (10 + 5 + 5 + 10 * SAMPLE_FIELDS)

struct chunk {
	struct chunk *next;
	size_t len;
	uint8_t data[CHUNK_BYTES - 2 * sizeof(void *)];
};

_Static_assert(sizeof(struct chunk) == CHUNK_BYTES, "a chunk is what it says");

/* What the next record is a difference to. */
struct state {
	uint64_t time_ns;
	struct sample sample;
};

struct sample_window {
	struct sample_window_options options;
	mono_t from, to;
	struct chunk *first, *last;
	size_t chunk_count;
	struct state state;
	uint64_t samples, dropped;
	uint64_t ticks;
	mono_t first_tick, last_tick;
	struct sample_window_gap gap[SAMPLE_WINDOW_GAPS_MAX];
	size_t gap_count;
	uint64_t gaps;
	bool gone;
	mono_t gone_at;
};

/* A place in the records; state is that of the record before. */
struct cursor {
	const struct chunk *chunk;
	size_t offset;
	struct state state;
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

static struct cursor first_record(const struct sample_window *sample_window)
{
	return (struct cursor){ .chunk = sample_window->first, .state = { .time_ns = sample_window->from.ns } };
}

/* Decodes the next record into cursor->state. False at the end. */
static bool next_record(struct cursor *cursor)
{
	uint32_t changed;

	if (cursor->chunk && cursor->offset == cursor->chunk->len) {
		cursor->chunk = cursor->chunk->next;
		cursor->offset = 0;
	}
	if (!cursor->chunk)
		return false;

	cursor->state.time_ns += unzigzag(get_varint(cursor));
	cursor->state.sample.mask = (uint32_t)get_varint(cursor);
	changed = (uint32_t)get_varint(cursor);
	for (unsigned f = 0; f < SAMPLE_FIELDS; f++)
		if (changed >> f & 1u)
			cursor->state.sample.value[f] += unzigzag(get_varint(cursor));
	return true;
}

/* ---- the object ---- */

int sample_window_new(const struct sample_window_options *options, struct sample_window **ret)
{
	struct sample_window *sample_window = calloc(1, sizeof(*sample_window));

	if (!sample_window)
		return -ENOMEM;

	sample_window->options = *options;
	if (sample_window->options.max_bytes == 0)
		sample_window->options.max_bytes = DEFAULT_MAX_BYTES;
	sample_window->from = mono_sub(options->fired, options->before_ns);
	sample_window->to = mono_add(options->fired, options->after_ns);
	sample_window->state.time_ns = sample_window->from.ns;
	*ret = sample_window;
	return 0;
}

void sample_window_free(struct sample_window *sample_window)
{
	if (!sample_window)
		return;
	while (sample_window->first) {
		struct chunk *chunk = sample_window->first;

		sample_window->first = chunk->next;
		free(chunk);
	}
	free(sample_window);
}

static bool in_window(const struct sample_window *sample_window, mono_t at)
{
	return mono_diff(at, sample_window->from) >= 0 && mono_diff(sample_window->to, at) >= 0;
}

void sample_window_tick(struct sample_window *sample_window, mono_t at)
{
	if (!in_window(sample_window, at))
		return;
	if (sample_window->ticks == 0)
		sample_window->first_tick = at;
	sample_window->last_tick = at;
	sample_window->ticks++;
}

/* A chunk with room for one more record; NULL at the limit or without memory. */
static struct chunk *chunk_with_room(struct sample_window *sample_window)
{
	struct chunk *chunk = sample_window->last;

	if (chunk && sizeof(chunk->data) - chunk->len >= RECORD_MAX)
		return chunk;
	if ((sample_window->chunk_count + 1) * sizeof(*chunk) > sample_window->options.max_bytes)
		return NULL;
	chunk = malloc(sizeof(*chunk));
	if (!chunk)
		return NULL;

	chunk->next = NULL;
	chunk->len = 0;
	if (sample_window->last)
		sample_window->last->next = chunk;
	else
		sample_window->first = chunk;
	sample_window->last = chunk;
	sample_window->chunk_count++;
	return chunk;
}

void sample_window_add(struct sample_window *sample_window, mono_t at, const struct sample *sample)
{
	struct chunk *chunk;

	if (!in_window(sample_window, at))
		return;
	chunk = chunk_with_room(sample_window);
	if (!chunk) {
		sample_window->dropped++;
		return;
	}
	chunk->len += encode_record(chunk->data + chunk->len, &sample_window->state, at, sample);
	sample_window->samples++;
}

void sample_window_gap(struct sample_window *sample_window, mono_t at, uint64_t lost_pages)
{
	if (!in_window(sample_window, at))
		return;
	sample_window->gaps++;
	if (sample_window->gap_count == SAMPLE_WINDOW_GAPS_MAX)
		sample_window->gap[SAMPLE_WINDOW_GAPS_MAX - 1].lost_pages += lost_pages;
	else
		sample_window->gap[sample_window->gap_count++] = (struct sample_window_gap){ at, lost_pages };
}

void sample_window_gone(struct sample_window *sample_window, mono_t at)
{
	if (!in_window(sample_window, at))
		return;
	sample_window->gone = true;
	sample_window->gone_at = at;
}

bool sample_window_done(const struct sample_window *sample_window, mono_t now)
{
	return mono_diff(now, sample_window->to) > 0;
}

mono_t sample_window_start(const struct sample_window *sample_window)
{
	return sample_window->from;
}

/* ---- coverage and peaks ---- */

void sample_window_coverage(const struct sample_window *sample_window, uint64_t interval_ns,
			    struct sample_window_coverage *ret)
{
	struct sample_window_coverage coverage = {
		.want_before_ns = sample_window->options.before_ns,
		.want_after_ns = sample_window->options.after_ns,
		.ticks_expected = (sample_window->options.before_ns + sample_window->options.after_ns) / interval_ns,
		.ticks_got = sample_window->ticks,
		.samples = sample_window->samples,
		.samples_dropped = sample_window->dropped,
		.gaps = sample_window->gaps,
		.gone = sample_window->gone,
	};

	if (sample_window->ticks > 0) {
		double slots =
			(double)mono_diff(sample_window->last_tick, sample_window->first_tick) / (double)interval_ns +
			1;
		double rate = (double)sample_window->ticks / slots;

		coverage.got_from_ns = mono_diff(sample_window->first_tick, sample_window->options.fired);
		coverage.got_to_ns = mono_diff(sample_window->last_tick, sample_window->options.fired);
		coverage.capture_rate = rate < 1 ? rate : 1;
	}
	for (size_t i = 0; i < sample_window->gap_count; i++)
		coverage.lost_pages += sample_window->gap[i].lost_pages;
	if (sample_window->gone)
		coverage.gone_ns = mono_diff(sample_window->gone_at, sample_window->options.fired);
	*ret = coverage;
}

/*
 * Moves trail forward as far as it stays at least the window behind lead. False: there is no such
 * record.
 */
static bool advance_trail(struct cursor *trail, bool *valid, uint64_t lead_ns, uint64_t window_ns)
{
	struct cursor ahead = *trail;

	while (next_record(&ahead) && (int64_t)(lead_ns - ahead.state.time_ns) >= (int64_t)window_ns) {
		*trail = ahead;
		*valid = true;
	}
	return *valid;
}

static void cpu_peak(const struct sample_window *sample_window, struct sample_window_peaks *peaks)
{
	struct cursor lead = first_record(sample_window), trail = first_record(sample_window);
	bool valid = false;

	while (next_record(&lead)) {
		const struct sample *now = &lead.state.sample, *then = &trail.state.sample;
		double cores;

		if (!advance_trail(&trail, &valid, lead.state.time_ns, peaks->cpu_window_ns))
			continue;
		if (!sample_has(now, SAMPLE_CPU) || !sample_has(then, SAMPLE_CPU) ||
		    now->value[SAMPLE_CPU] < then->value[SAMPLE_CPU])
			continue;
		cores = (double)(now->value[SAMPLE_CPU] - then->value[SAMPLE_CPU]) /
			(double)(lead.state.time_ns - trail.state.time_ns);
		if (!peaks->has_cpu || cores > peaks->cpu_cores)
			peaks->cpu_cores = cores;
		peaks->has_cpu = true;
	}
}

static void memory_peaks(const struct sample_window *sample_window, struct sample_window_peaks *peaks)
{
	struct cursor cursor = first_record(sample_window);
	bool marked = false;
	uint64_t mark = 0, rose_to = 0;

	while (next_record(&cursor)) {
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

void sample_window_peaks(const struct sample_window *sample_window, uint64_t cpu_window_ns,
			 struct sample_window_peaks *ret)
{
	struct sample_window_peaks peaks = { .cpu_window_ns = cpu_window_ns > 0 ? cpu_window_ns : 1 };

	cpu_peak(sample_window, &peaks);
	memory_peaks(sample_window, &peaks);
	*ret = peaks;
}

/* Calls sample for each in order, until it returns non-zero, which is returned. */
static int sample_window_visit(const struct sample_window *sample_window,
			       int (*visit)(void *ctx, mono_t at, const struct sample *sample), void *ctx)
{
	struct cursor cursor = first_record(sample_window);

	while (next_record(&cursor)) {
		struct sample sample = cursor.state.sample;
		int r;

		r = visit(ctx, (mono_t){ cursor.state.time_ns }, &sample);
		if (r != 0)
			return r;
	}
	return 0;
}

/* ---- the stream ---- */

struct output {
	const struct sample_window *sample_window;
	struct stream_writer *writer;
	uint32_t target;
	mono_t start;
	size_t gap; /* the next one to be noted */
};

static uint64_t since_start(const struct output *output, mono_t at)
{
	int64_t ns = mono_diff(at, output->start);

	return ns > 0 ? (uint64_t)ns : 0;
}

/* Notes the holes that end no later than at. */
static int note_gaps(struct output *output, mono_t at)
{
	const struct sample_window *sample_window = output->sample_window;

	for (; output->gap < sample_window->gap_count; output->gap++) {
		const struct sample_window_gap *gap = &sample_window->gap[output->gap];
		char json[96];
		int len, r;

		if (mono_diff(gap->at, at) > 0)
			return 0;
		len = snprintf(json, sizeof(json), "{\"time_ns\":%ju,\"lost_pages\":%ju}",
			       (uintmax_t)since_start(output, gap->at), (uintmax_t)gap->lost_pages);
		r = stream_note(output->writer, "GAP", json, (size_t)len);
		if (r < 0)
			return r;
	}
	return 0;
}

static int write_row(void *ctx, mono_t at, const struct sample *sample)
{
	struct output *output = ctx;
	int r;

	r = note_gaps(output, at);
	if (r < 0)
		return r;
	return stream_row(output->writer, since_start(output, at), output->target, sample->value, sample->mask);
}

int sample_window_write(const struct sample_window *sample_window, struct stream_writer *writer, uint32_t target,
			mono_t start)
{
	struct output output = { sample_window, writer, target, start, 0 };
	char json[96];
	int len, r;

	r = sample_window_visit(sample_window, write_row, &output);
	if (r < 0)
		return r;
	r = note_gaps(&output, sample_window->to);
	if (r < 0 || !sample_window->gone)
		return r;
	len = snprintf(json, sizeof(json), "{\"time_ns\":%ju,\"target\":%u}",
		       (uintmax_t)since_start(&output, sample_window->gone_at), target);
	return stream_note(writer, "GONE", json, (size_t)len);
}
