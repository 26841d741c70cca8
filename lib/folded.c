/*
 * folded.c: a line is made in a buffer, frame by frame, and then becomes a member of a set, whose number is the place
 * of its count.
 *
 * The space needs no escaping: readers take the number after the last one.
 */
#include "folded.h"

#include "intern.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a name that are escaped at a time. */
#define PIECE 256

#define OTHER "(other);(other)"

struct folded {
	struct intern lines;
	struct intern_budget budget;
	uint64_t *counts; /* by number of the line, less 1 */
	uint32_t cap;
	uint64_t other;     /* counts of what did not fit */
	struct buffer line; /* the one that is made */
	int error;          /* the first one; 0: none */
};

int folded_new(size_t bytes_max, struct folded **ret)
{
	struct folded *folded = calloc(1, sizeof(*folded));

	if (!folded)
		return -ENOMEM;

	folded->budget.max_bytes = bytes_max;
	*ret = folded;
	return 0;
}

void folded_free(struct folded *folded)
{
	if (!folded)
		return;

	intern_release(&folded->lines);
	buffer_release(&folded->line);
	free(folded->counts);
	free(folded);
}

static void put(struct folded *folded, const char *text, size_t len)
{
	if (folded->error == 0)
		folded->error = buffer_append(&folded->line, text, len);
}

/* All of it but the semicolons; len bytes of printable text. */
static void put_printable(struct folded *folded, const char *text, size_t len)
{
	while (len > 0) {
		const char *semicolon = memchr(text, ';', len);
		size_t run = semicolon ? (size_t)(semicolon - text) : len;

		put(folded, text, run);
		if (semicolon) {
			put(folded, "\\x3b", 4);
			run++;
		}
		text += run;
		len -= run;
	}
}

/* Names end where a character of UTF-8 does, so that none is taken for two broken halves. */
static size_t piece_of(const char *name, size_t len)
{
	size_t take = len < PIECE ? len : PIECE, back = 0;

	while (take < len && back < 3 && ((unsigned char)name[take - back] & 0xC0) == 0x80)
		back++;
	return take - back;
}

int folded_push(struct folded *folded, const char *name)
{
	char printable[4 * PIECE + 1];
	size_t len = strlen(name);

	if (folded->line.len > 0)
		put(folded, ";", 1);
	if (len == 0)
		put(folded, "?", 1);
	while (len > 0) {
		size_t piece = piece_of(name, len);

		put_printable(folded, printable, text_escape(printable, sizeof(printable), name, piece));
		name += piece;
		len -= piece;
	}
	return folded->error;
}

/* Room for the count of a line of this number. */
static int reserve(struct folded *folded, uint32_t number)
{
	uint32_t cap = folded->cap ? folded->cap * 2 : 64;
	uint64_t *counts;

	if (number <= folded->cap)
		return 0;
	counts = reallocarray(folded->counts, cap, sizeof(*counts));
	if (!counts)
		return -ENOMEM;

	memset(counts + folded->cap, 0, (cap - folded->cap) * sizeof(*counts));
	folded->counts = counts;
	folded->cap = cap;
	return 0;
}

void folded_other(struct folded *folded, uint64_t count)
{
	folded->other += count;
}

/* The line is whole. 0; INTERN_FULL; -ENOMEM. */
static int count_line(struct folded *folded, uint64_t count)
{
	uint32_t number;
	int rc = intern_put(&folded->lines, &folded->budget, folded->line.data, folded->line.len, &number);

	if (rc == 0)
		rc = reserve(folded, number);
	if (rc == 0)
		folded->counts[number - 1] += count;
	return rc;
}

int folded_count(struct folded *folded, uint64_t count)
{
	int rc = folded->error;

	if (rc == 0 && folded->line.len > 0)
		rc = count_line(folded, count);
	if (rc == INTERN_FULL)
		folded_other(folded, count);
	folded->error = rc < 0 ? rc : 0;
	folded->line.len = 0;
	return folded->error;
}

static int by_line(const void *a, const void *b, void *ctx)
{
	const struct intern *lines = ctx;

	return strcmp(intern_text(lines, *(const uint32_t *)a), intern_text(lines, *(const uint32_t *)b));
}

static int write_line(const struct sink *sink, const void *line, size_t len, uint64_t count)
{
	char number[TEXT_NUMBER_ROOM + 2] = " ", *end = text_put_u64(number + 1, count);
	int rc = sink_write(sink, line, len);

	*end++ = '\n';
	return rc == 0 ? sink_write(sink, number, (size_t)(end - number)) : rc;
}

int folded_write(const struct folded *folded, const struct sink *sink)
{
	uint32_t count = folded->lines.count;
	AUTO_FREE uint32_t *order = malloc((count + 1) * sizeof(*order));
	int rc = folded->error;

	if (rc < 0)
		return rc;
	if (!order)
		return -ENOMEM;

	for (uint32_t i = 0; i < count; i++)
		order[i] = i + 1;
	qsort_r(order, count, sizeof(*order), by_line, (void *)&folded->lines);
	if (folded->other > 0)
		rc = write_line(sink, OTHER, strlen(OTHER), folded->other);
	for (uint32_t i = 0; i < count && rc == 0; i++) {
		size_t len;
		const void *line = intern_get(&folded->lines, order[i], &len);

		rc = write_line(sink, line, len, folded->counts[order[i] - 1]);
	}
	return rc;
}
