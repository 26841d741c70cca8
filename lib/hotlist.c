/*
 * hotlist.c: a tally for each function, found by number.
 *
 * Recursion: a tally remembers the last stack that it was counted for. The top thread: stacks come thread by thread, so
 * a tally holds the counts of the thread that is being added and of the best one before it; a table of functions times
 * threads, which strangers could make as large as they like, is not needed.
 *
 * Threads are rows without a function at the end of the same table rather than a table of their own: a reader that looks
 * for functions passes over them, and an incident has one file less.
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
	uint64_t amount[HOTLIST_PHASES];
};

struct tally {
	uint64_t self[HOTLIST_PHASES], total[HOTLIST_PHASES];
	uint64_t beside; /* during: CPU time, or faults */
	uint64_t stack;  /* the last one it was counted for */
	struct part now, best;
};

/* Of threads there is no more than self and beside. */
struct tallies {
	struct tally *tally; /* by number, less 1 */
	uint32_t cap;
};

/* Followed by the name, NUL, the process. */
struct thread_key {
	int32_t pid, tid;
};

struct hotlist {
	enum hotlist_unit unit;
	struct intern functions; /* name, NUL, module */
	struct intern threads;   /* struct thread_key */
	struct intern_budget budget;
	struct buffer key;
	struct tallies of_functions, of_threads;
	uint64_t stacks;
	uint64_t sum[HOTLIST_PHASES];
};

static const struct {
	const char *header, *sums;
} forms[] = {
	[HOTLIST_IN_SAMPLES] = { HOTLIST_HEADER, HOTLIST_SAMPLES },
	[HOTLIST_IN_BYTES] = { HOTLIST_HEADER_BYTES, HOTLIST_BYTES },
};

int hotlist_new(enum hotlist_unit unit, struct hotlist **ret)
{
	struct hotlist *list = calloc(1, sizeof(*list));

	if (!list)
		return -ENOMEM;

	list->unit = unit;
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
	free(list->of_functions.tally);
	free(list->of_threads.tally);
	free(list);
}

/* Room for one more than count. */
static int reserve(struct tallies *tallies, uint32_t count)
{
	uint32_t cap = tallies->cap ? tallies->cap * 2 : 64;
	struct tally *tally;

	if (count < tallies->cap)
		return 0;
	tally = reallocarray(tallies->tally, cap, sizeof(*tally));
	if (!tally)
		return -ENOMEM;

	memset(tally + tallies->cap, 0, (cap - tallies->cap) * sizeof(*tally));
	tallies->tally = tally;
	tallies->cap = cap;
	return 0;
}

/* Two names, the first of them ends with a NUL. */
static int append_names(struct buffer *key, const char *first, const char *second)
{
	int rc = buffer_append(key, first, strnlen(first, NAME_MAX_BYTES));

	if (rc == 0)
		rc = buffer_append(key, "", 1);
	return rc == 0 ? buffer_append(key, second, strnlen(second, NAME_MAX_BYTES)) : rc;
}

int hotlist_function(struct hotlist *list, const char *name, const char *module, uint32_t *ret)
{
	int rc = reserve(&list->of_functions, list->functions.count);

	list->key.len = 0;
	if (rc == 0)
		rc = append_names(&list->key, name, module);
	if (rc == 0)
		rc = intern_put(&list->functions, &list->budget, list->key.data, list->key.len, ret);
	return rc;
}

int hotlist_thread(struct hotlist *list, const struct hotlist_thread *thread, uint32_t *ret)
{
	const struct thread_key key = { thread->pid, thread->tid };
	int rc = reserve(&list->of_threads, list->threads.count);

	list->key.len = 0;
	if (rc == 0)
		rc = buffer_append(&list->key, &key, sizeof(key));
	if (rc == 0)
		rc = append_names(&list->key, thread->name, thread->process);
	if (rc == 0)
		rc = intern_put(&list->threads, &list->budget, list->key.data, list->key.len, ret);
	return rc;
}

/* ---- counting ---- */

static bool better(const struct part *a, const struct part *b)
{
	if (a->amount[HOTLIST_DURING] != b->amount[HOTLIST_DURING])
		return a->amount[HOTLIST_DURING] > b->amount[HOTLIST_DURING];
	return a->amount[HOTLIST_BEFORE] > b->amount[HOTLIST_BEFORE];
}

/* The best thread, the one that is being added included. */
static const struct part *top_of(const struct tally *tally)
{
	return better(&tally->now, &tally->best) ? &tally->now : &tally->best;
}

/* What the table counts. */
static const uint64_t *amounts(const struct hotlist *list, const struct hotlist_stack *stack)
{
	return list->unit == HOTLIST_IN_BYTES ? stack->weight : stack->samples;
}

static void count_self(const struct hotlist *list, struct tally *tally, const struct hotlist_stack *stack)
{
	const uint64_t *amount = amounts(list, stack);

	for (unsigned p = 0; p < HOTLIST_PHASES; p++)
		tally->self[p] += amount[p];
	tally->beside += (list->unit == HOTLIST_IN_BYTES ? stack->samples : stack->weight)[HOTLIST_DURING];
}

static void count_total(struct tally *tally, const struct hotlist_stack *stack, const uint64_t *amount)
{
	if (tally->now.thread != stack->thread) {
		tally->best = *top_of(tally);
		tally->now = (struct part){ .thread = stack->thread };
	}
	for (unsigned p = 0; p < HOTLIST_PHASES; p++) {
		tally->total[p] += amount[p];
		tally->now.amount[p] += amount[p];
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
		struct tally *tally = &list->of_functions.tally[stack->functions[i] - 1];

		if (tally->stack == list->stacks)
			continue;
		tally->stack = list->stacks;
		count_total(tally, stack, amounts(list, stack));
	}
	for (unsigned p = 0; p < HOTLIST_PHASES; p++)
		list->sum[p] += amounts(list, stack)[p];
	if (stack->count > 0)
		count_self(list, &list->of_functions.tally[stack->functions[0] - 1], stack);
	count_self(list, &list->of_threads.tally[stack->thread - 1], stack);
	return 0;
}

/* ---- writing ---- */

static int descending(uint64_t a, uint64_t b)
{
	return a < b ? 1 : -(a > b);
}

/*
 * Of the CPU, who burned it comes first, then who called that. New memory is touched by memcpy(3) and its like wherever it came from: there those who
 * called count as much.
 */
static int compare_heat(const struct hotlist *list, const struct tally *x, const struct tally *y)
{
	bool callers = list->unit == HOTLIST_IN_BYTES;
	int rc = 0;

	for (int phase = HOTLIST_DURING; rc == 0 && phase >= HOTLIST_BEFORE; phase--) {
		rc = descending(x->self[phase] + (callers ? x->total[phase] : 0),
				y->self[phase] + (callers ? y->total[phase] : 0));
		if (rc == 0)
			rc = descending(x->total[phase], y->total[phase]);
	}
	return rc;
}

static int by_heat(const void *a, const void *b, void *ctx)
{
	const struct hotlist *list = ctx;
	uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
	int rc = compare_heat(list, &list->of_functions.tally[first - 1], &list->of_functions.tally[second - 1]);

	if (rc == 0)
		rc = strcmp(intern_text(&list->functions, first), intern_text(&list->functions, second));
	return rc != 0 ? rc : (first > second) - (first < second);
}

/* Who it is; returns the name, behind whose NUL the process is. */
static const char *thread_of(const struct hotlist *list, uint32_t number, struct thread_key *ret)
{
	size_t len;
	const char *key = intern_get(&list->threads, number, &len);

	memcpy(ret, key, sizeof(*ret));
	return key + sizeof(*ret);
}

static int by_thread_heat(const void *a, const void *b, void *ctx)
{
	const struct hotlist *list = ctx;
	uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
	struct thread_key x, y;
	int rc = compare_heat(list, &list->of_threads.tally[first - 1], &list->of_threads.tally[second - 1]);

	thread_of(list, first, &x);
	thread_of(list, second, &y);
	if (rc == 0)
		rc = (x.tid > y.tid) - (x.tid < y.tid);
	return rc != 0 ? rc : (first > second) - (first < second);
}

/* A name of strangers, then end. */
static int write_name(const struct sink *sink, const char *name, const char *end)
{
	char printable[4 * NAME_MAX_BYTES + 1];
	int rc = sink_write(sink, printable, text_escape(printable, sizeof(printable), name, strlen(name)));

	return rc == 0 ? sink_write(sink, end, strlen(end)) : rc;
}

/* self, total, and what is beside them: milliseconds have three digits of their own. */
static int write_numbers(const struct hotlist *list, const struct tally *tally, const uint64_t *total,
			 const struct sink *sink)
{
	char text[256];
	int used = snprintf(text, sizeof(text), "%ju\t%ju\t%ju\t%ju\t", (uintmax_t)tally->self[HOTLIST_BEFORE],
			    (uintmax_t)total[HOTLIST_BEFORE], (uintmax_t)tally->self[HOTLIST_DURING],
			    (uintmax_t)total[HOTLIST_DURING]);

	if (list->unit == HOTLIST_IN_BYTES)
		snprintf(text + used, sizeof(text) - (size_t)used, "%ju\t", (uintmax_t)tally->beside);
	else
		snprintf(text + used, sizeof(text) - (size_t)used, "%ju.%03ju\t", (uintmax_t)tally->beside / 1000000,
			 (uintmax_t)tally->beside / 1000 % 1000);
	return sink_write(sink, text, strlen(text));
}

/* The cells of a thread, 0 of none, and the end of the line. */
static int write_thread(const struct hotlist *list, uint32_t number, uint64_t amount, const struct sink *sink)
{
	struct thread_key key = { 0 };
	const char *name = number ? thread_of(list, number, &key) : "",
		   *process = number ? name + strlen(name) + 1 : "";
	char text[64];
	int rc = write_name(sink, name, "\t");

	snprintf(text, sizeof(text), "%d\t%ju\t", (int)key.tid, (uintmax_t)amount);
	if (rc == 0)
		rc = sink_write(sink, text, strlen(text));
	if (rc == 0)
		rc = write_name(sink, process, "\t");
	snprintf(text, sizeof(text), "%d\n", (int)key.pid);
	return rc == 0 ? sink_write(sink, text, strlen(text)) : rc;
}

/* The phase by which the busiest thread is chosen. */
static enum hotlist_phase phase_of(const uint64_t total[static HOTLIST_PHASES])
{
	return total[HOTLIST_DURING] > 0 ? HOTLIST_DURING : HOTLIST_BEFORE;
}

static int write_function_row(const struct hotlist *list, uint32_t number, const struct sink *sink)
{
	const struct tally *tally = &list->of_functions.tally[number - 1];
	const struct part *top = top_of(tally);
	const char *name = intern_text(&list->functions, number);
	int rc = write_name(sink, name, "\t");

	if (rc == 0)
		rc = write_name(sink, name + strlen(name) + 1, "\t");
	if (rc == 0)
		rc = write_numbers(list, tally, tally->total, sink);
	return rc == 0 ? write_thread(list, top->thread, top->amount[phase_of(tally->total)], sink) : rc;
}

static int write_thread_row(const struct hotlist *list, uint32_t number, const struct sink *sink)
{
	const struct tally *tally = &list->of_threads.tally[number - 1];
	int rc = sink_write(sink, "\t\t", 2);

	if (rc == 0)
		rc = write_numbers(list, tally, tally->self, sink);
	return rc == 0 ? write_thread(list, number, tally->self[phase_of(tally->self)], sink) : rc;
}

static int write_head(const struct hotlist *list, const struct sink *sink)
{
	char text[sizeof(HOTLIST_HEADER_BYTES) + 100];

	snprintf(text, sizeof(text), "%s\n%s %ju, %ju\n", forms[list->unit].header, forms[list->unit].sums,
		 (uintmax_t)list->sum[HOTLIST_BEFORE], (uintmax_t)list->sum[HOTLIST_DURING]);
	return sink_write(sink, text, strlen(text));
}

static int write_rest(uint32_t left_out, const char *rest, const struct sink *sink)
{
	char text[64];

	snprintf(text, sizeof(text), "# %u%s\n", left_out, rest);
	return left_out > 0 ? sink_write(sink, text, strlen(text)) : 0;
}

/* What was given a number may be on no stack that was counted. */
static bool was_seen(const struct tally *tally)
{
	return tally->total[HOTLIST_BEFORE] + tally->total[HOTLIST_DURING] + tally->self[HOTLIST_BEFORE] +
		       tally->self[HOTLIST_DURING] >
	       0;
}

/* One of the two parts of the table. */
struct part_of_table {
	const struct tallies *tallies;
	uint32_t count, rows_max;
	const char *rest; /* of the remark about those left out */
	int (*compare)(const void *a, const void *b, void *list);
	int (*write_row)(const struct hotlist *list, uint32_t number, const struct sink *sink);
};

/* Rows as far as there is room; *ret: how many. */
static int write_rows(const struct hotlist *list, const struct part_of_table *part, const uint32_t order[static 1],
		      uint32_t *ret, const struct sink *sink)
{
	AUTO(buffer_release) struct buffer row = { 0 };
	const struct sink to_row = sink_buffer(&row);
	size_t used = 0;
	int rc = 0;

	for (uint32_t i = 0; i < *ret && rc == 0; i++) {
		row.len = 0;
		rc = part->write_row(list, order[i], &to_row);
		used += row.len;
		if (rc == 0 && used > HOTLIST_PART_BYTES_MAX)
			*ret = i;
		else if (rc == 0)
			rc = sink_write(sink, row.data, row.len);
	}
	return rc;
}

static int write_part(const struct hotlist *list, const struct part_of_table *part, const struct sink *sink)
{
	AUTO_FREE uint32_t *order = malloc(((size_t)part->count + 1) * sizeof(*order));
	uint32_t count = 0, shown;
	int rc;

	if (!order)
		return -ENOMEM;

	for (uint32_t i = 1; i <= part->count; i++)
		if (was_seen(&part->tallies->tally[i - 1]))
			order[count++] = i;
	shown = count < part->rows_max ? count : part->rows_max;
	qsort_r(order, count, sizeof(*order), part->compare, (void *)list);
	rc = write_rows(list, part, order, &shown, sink);
	return rc == 0 ? write_rest(count - shown, part->rest, sink) : rc;
}

int hotlist_write(const struct hotlist *list, const struct sink *sink)
{
	const struct part_of_table functions = {
		&list->of_functions, list->functions.count, HOTLIST_ROWS_MAX, HOTLIST_MORE_FUNCTIONS, by_heat,
		write_function_row,
	};
	const struct part_of_table threads = {
		&list->of_threads,    list->threads.count, HOTLIST_THREADS_MAX,
		HOTLIST_MORE_THREADS, by_thread_heat,      write_thread_row,
	};
	int rc = write_head(list, sink);

	if (rc == 0)
		rc = write_part(list, &functions, sink);
	return rc == 0 ? write_part(list, &threads, sink) : rc;
}
