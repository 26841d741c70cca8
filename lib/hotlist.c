/*
 * hotlist.c: a tally for each function, found by number.
 *
 * Recursion: a tally remembers the last stack that it was counted for. The top thread: stacks come thread by thread, so
 * a tally holds the counts of the thread that is being added and of the best one before it; a table of functions times
 * threads, which strangers could make as large as they like, is not needed.
 */
#include "hotlist.h"

#include "intern.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longer names are cut. */
#define NAME_MAX_BYTES 1024

/* What one thread did. */
struct part {
	uint32_t thread; /* 0: nobody */
	uint64_t samples[HOTLIST_PHASES];
};

struct tally {
	uint64_t self[HOTLIST_PHASES], total[HOTLIST_PHASES];
	uint64_t self_ns; /* during */
	uint64_t stack;   /* the last one it was counted for */
	struct part now, best;
};

struct hotlist {
	struct intern functions; /* name, NUL, module */
	struct intern threads;   /* tid, name */
	struct intern_budget budget;
	struct buffer key;
	struct tally *tallies; /* by number of the function, less 1 */
	uint32_t cap;
	uint64_t stacks;
	uint64_t samples[HOTLIST_PHASES];
};

int hotlist_new(struct hotlist **ret)
{
	struct hotlist *list = calloc(1, sizeof(*list));

	if (!list)
		return -ENOMEM;

	*ret = list;
	return 0;
}

void hotlist_free(struct hotlist *list)
{
	if (!list)
		return;

	intern_release(&list->functions);
	intern_release(&list->threads);
	buffer_release(&list->key);
	free(list->tallies);
	free(list);
}

/* Room for the tally of one more function. */
static int reserve(struct hotlist *list)
{
	uint32_t cap = list->cap ? list->cap * 2 : 64;
	struct tally *tallies;

	if (list->functions.count < list->cap)
		return 0;
	tallies = reallocarray(list->tallies, cap, sizeof(*tallies));
	if (!tallies)
		return -ENOMEM;

	memset(tallies + list->cap, 0, (cap - list->cap) * sizeof(*tallies));
	list->tallies = tallies;
	list->cap = cap;
	return 0;
}

int hotlist_function(struct hotlist *list, const char *name, const char *module, uint32_t *ret)
{
	int rc = reserve(list);

	list->key.len = 0;
	if (rc == 0)
		rc = buffer_append(&list->key, name, strnlen(name, NAME_MAX_BYTES));
	if (rc == 0)
		rc = buffer_append(&list->key, "", 1);
	if (rc == 0)
		rc = buffer_append(&list->key, module, strnlen(module, NAME_MAX_BYTES));
	if (rc == 0)
		rc = intern_put(&list->functions, &list->budget, list->key.data, list->key.len, ret);
	return rc;
}

int hotlist_thread(struct hotlist *list, int32_t tid, const char *name, uint32_t *ret)
{
	int rc;

	list->key.len = 0;
	rc = buffer_append(&list->key, &tid, sizeof(tid));
	if (rc == 0)
		rc = buffer_append(&list->key, name, strnlen(name, NAME_MAX_BYTES));
	if (rc == 0)
		rc = intern_put(&list->threads, &list->budget, list->key.data, list->key.len, ret);
	return rc;
}

/* ---- counting ---- */

static bool better(const struct part *a, const struct part *b)
{
	if (a->samples[HOTLIST_DURING] != b->samples[HOTLIST_DURING])
		return a->samples[HOTLIST_DURING] > b->samples[HOTLIST_DURING];
	return a->samples[HOTLIST_BEFORE] > b->samples[HOTLIST_BEFORE];
}

/* The best thread, the one that is being added included. */
static const struct part *top_of(const struct tally *tally)
{
	return better(&tally->now, &tally->best) ? &tally->now : &tally->best;
}

static void count_total(struct tally *tally, const struct hotlist_stack *stack)
{
	if (tally->now.thread != stack->thread) {
		tally->best = *top_of(tally);
		tally->now = (struct part){ .thread = stack->thread };
	}
	for (unsigned p = 0; p < HOTLIST_PHASES; p++) {
		tally->total[p] += stack->samples[p];
		tally->now.samples[p] += stack->samples[p];
	}
}

int hotlist_add(struct hotlist *list, const struct hotlist_stack *stack)
{
	if (stack->thread == 0 || stack->thread > list->threads.count)
		return -EINVAL;
	for (size_t i = 0; i < stack->count; i++)
		if (stack->functions[i] == 0 || stack->functions[i] > list->functions.count)
			return -EINVAL;

	list->stacks++;
	for (size_t i = 0; i < stack->count; i++) {
		struct tally *tally = &list->tallies[stack->functions[i] - 1];

		if (tally->stack == list->stacks)
			continue;
		tally->stack = list->stacks;
		count_total(tally, stack);
	}
	for (unsigned p = 0; p < HOTLIST_PHASES; p++) {
		list->samples[p] += stack->samples[p];
		if (stack->count > 0)
			list->tallies[stack->functions[0] - 1].self[p] += stack->samples[p];
	}
	if (stack->count > 0)
		list->tallies[stack->functions[0] - 1].self_ns += stack->weight_ns[HOTLIST_DURING];
	return 0;
}

/* ---- writing ---- */

static int descending(uint64_t a, uint64_t b)
{
	return a < b ? 1 : -(a > b);
}

static int by_heat(const void *a, const void *b, void *ctx)
{
	const struct hotlist *list = ctx;
	uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
	const struct tally *x = &list->tallies[first - 1], *y = &list->tallies[second - 1];
	int rc = descending(x->self[HOTLIST_DURING] + x->total[HOTLIST_DURING],
			    y->self[HOTLIST_DURING] + y->total[HOTLIST_DURING]);

	if (rc == 0)
		rc = descending(x->self[HOTLIST_BEFORE] + x->total[HOTLIST_BEFORE],
				y->self[HOTLIST_BEFORE] + y->total[HOTLIST_BEFORE]);
	if (rc == 0)
		rc = strcmp(intern_text(&list->functions, first), intern_text(&list->functions, second));
	return rc != 0 ? rc : (first > second) - (first < second);
}

/* A name of strangers, then end. */
static int write_name(const struct sink *sink, const char *name, const char *end)
{
	char printable[4 * NAME_MAX_BYTES + 1];
	int rc = sink_write(sink, printable, text_escape(printable, sizeof(printable), name, strlen(name)));

	return rc == 0 ? sink_write(sink, end, strlen(end)) : rc;
}

static int write_row(const struct hotlist *list, uint32_t number, const struct sink *sink)
{
	const struct tally *tally = &list->tallies[number - 1];
	const struct part *top = top_of(tally);
	const char *name = intern_text(&list->functions, number), *thread = NULL;
	char numbers[256];
	int32_t tid = 0;
	size_t len;
	int rc;

	if (top->thread != 0) {
		thread = intern_get(&list->threads, top->thread, &len);
		memcpy(&tid, thread, sizeof(tid));
		thread += sizeof(tid);
	}
	rc = write_name(sink, name, "\t");
	if (rc == 0)
		rc = write_name(sink, name + strlen(name) + 1, "\t");
	snprintf(numbers, sizeof(numbers), "%ju\t%ju\t%ju\t%ju\t%ju.%03ju\t", (uintmax_t)tally->self[HOTLIST_BEFORE],
		 (uintmax_t)tally->total[HOTLIST_BEFORE], (uintmax_t)tally->self[HOTLIST_DURING],
		 (uintmax_t)tally->total[HOTLIST_DURING], (uintmax_t)tally->self_ns / 1000000,
		 (uintmax_t)tally->self_ns / 1000 % 1000);
	if (rc == 0)
		rc = sink_write(sink, numbers, strlen(numbers));
	if (rc == 0)
		rc = write_name(sink, thread ? thread : "", "\t");
	snprintf(numbers, sizeof(numbers), "%d\t%ju\n", (int)tid,
		 (uintmax_t)top->samples[tally->total[HOTLIST_DURING] > 0 ? HOTLIST_DURING : HOTLIST_BEFORE]);
	return rc == 0 ? sink_write(sink, numbers, strlen(numbers)) : rc;
}

static int write_head(const struct hotlist *list, const struct sink *sink)
{
	char text[sizeof(HOTLIST_HEADER) + 100];

	snprintf(text, sizeof(text), HOTLIST_HEADER "\n" HOTLIST_SAMPLES " %ju, %ju\n",
		 (uintmax_t)list->samples[HOTLIST_BEFORE], (uintmax_t)list->samples[HOTLIST_DURING]);
	return sink_write(sink, text, strlen(text));
}

static int write_rest(uint32_t left_out, const struct sink *sink)
{
	char text[64];

	snprintf(text, sizeof(text), "# %u more functions\n", left_out);
	return left_out > 0 ? sink_write(sink, text, strlen(text)) : 0;
}

/* A function that was given a number may be on no stack that was counted. */
static bool was_seen(const struct hotlist *list, uint32_t function)
{
	const struct tally *tally = &list->tallies[function - 1];

	return tally->total[HOTLIST_BEFORE] + tally->total[HOTLIST_DURING] > 0;
}

int hotlist_write(const struct hotlist *list, const struct sink *sink)
{
	AUTO_FREE uint32_t *order = malloc(((size_t)list->functions.count + 1) * sizeof(*order));
	uint32_t count = 0, shown;
	int rc;

	if (!order)
		return -ENOMEM;

	for (uint32_t i = 1; i <= list->functions.count; i++)
		if (was_seen(list, i))
			order[count++] = i;
	shown = count < HOTLIST_ROWS_MAX ? count : HOTLIST_ROWS_MAX;
	qsort_r(order, count, sizeof(*order), by_heat, (void *)list);
	rc = write_head(list, sink);
	for (uint32_t i = 0; i < shown && rc == 0; i++)
		rc = write_row(list, order[i], sink);
	return rc == 0 ? write_rest(count - shown, sink) : rc;
}
