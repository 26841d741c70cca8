/*
 * stack_text.c: three formats.
 *
 * Folded stacks: a line is made in a buffer, frame by frame, and then becomes a member of a set,
 * whose number is the index of its count. The space needs no escaping: readers take the number
 * after the last one. Comparing two texts: lines become stacks with a count, are sorted, and one
 * walk over both puts equal ones beside each other.
 *
 * Writing the table of functions: a tally for each function, found by number. It remembers the last
 * stack that it was counted for (recursion), and, as stacks come thread by thread, the counts of
 * the current thread and of the best one before it: a table of functions times threads, whose size
 * an untrusted process could choose, is not needed. Threads are rows without a function at the end
 * of the same table rather than a table of their own: a reader that looks for functions skips them,
 * and an incident has one file less.
 *
 * Reading it: line by line, cell by cell, in place. A line ends with a newline: the rest of a file
 * that was cut in the middle of one is no row.
 */
#include "lib/profile/stack_text.h"

#include "lib/base/map.h"
#include "lib/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the remarks about those that are left out end with, "# 3 more functions". */
#define FUNCTION_TABLE_MORE_FUNCTIONS " more functions"
#define FUNCTION_TABLE_MORE_THREADS " more threads"

/* ---- folded stacks ---- */

/* Bytes of a name that are escaped at a time. */
#define PIECE 256

#define OTHER "(other);(other)"

struct folded {
	struct intern lines;
	struct intern_budget budget;
	uint64_t *counts; /* by number of the line, less 1 */
	size_t cap;
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

static void folded_put(struct folded *folded, const char *text, size_t len)
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

		folded_put(folded, text, run);
		if (semicolon) {
			folded_put(folded, "\\x3b", 4);
			run++;
		}
		text += run;
		len -= run;
	}
}

/* Names end where a character of UTF-8 does, so that none is taken for two broken halves. */
static size_t utf8_piece(const char *name, size_t len)
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
		folded_put(folded, ";", 1);
	if (len == 0)
		folded_put(folded, "?", 1);
	while (len > 0) {
		size_t piece = utf8_piece(name, len);

		put_printable(folded, printable, text_escape(printable, sizeof(printable), name, piece));
		name += piece;
		len -= piece;
	}
	return folded->error;
}

void folded_other(struct folded *folded, uint64_t count)
{
	folded->other += count;
}

/* The line is whole. 0; INTERN_FULL; -ENOMEM. */
static int count_line(struct folded *folded, uint64_t count)
{
	uint32_t number, known = folded->lines.count;
	int rc = vector_reserve(&folded->counts, &folded->cap, (size_t)known + 1, sizeof(*folded->counts));

	if (rc == 0)
		rc = intern_put(&folded->lines, &folded->budget, folded->line.data, folded->line.len, &number);
	if (rc != 0)
		return rc;
	if (folded->lines.count > known)
		folded->counts[known] = 0;
	folded->counts[number - 1] += count;
	return 0;
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

/* ---- comparing two texts of folded stacks ---- */

struct stack {
	const char *at;
	size_t len;
	uint64_t count;
};

struct stacks {
	struct stack *stack;
	size_t count;
	uint64_t sum;
};

static void release_stacks(struct stacks *stacks)
{
	free(stacks->stack);
}

static uint64_t add_up(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

/* "a;b 12". */
static bool read_line(const char *at, const char *end, struct stack *ret)
{
	const char *space = at < end ? memrchr(at, ' ', (size_t)(end - at)) : NULL;

	if (!space || space == at || text_parse_u64(space + 1, end, &ret->count) != end)
		return false;
	ret->at = at;
	ret->len = (size_t)(space - at);
	return true;
}

/* The next line that is not empty, from *at on, which moves. */
static bool folded_diff_next_line(const char **at, const char *end, const char **ret_from, const char **ret_to)
{
	while (*at < end) {
		const char *newline = memchr(*at, '\n', (size_t)(end - *at));

		*ret_from = *at;
		*ret_to = newline ? newline : end;
		*at = *ret_to + 1;
		if (*ret_to > *ret_from)
			return true;
	}
	return false;
}

bool folded_diff_check(const struct buffer *text, uint64_t *ret_sum)
{
	const char *at = text->data, *from, *to;
	struct stack stack;
	uint64_t sum = 0;

	while (text->len > 0 && folded_diff_next_line(&at, text->data + text->len, &from, &to)) {
		if (!read_line(from, to, &stack))
			return false;
		sum = add_up(sum, stack.count);
	}
	*ret_sum = sum;
	return true;
}

static int compare_stacks(const void *a, const void *b)
{
	const struct stack *left = a, *right = b;
	int order = memcmp(left->at, right->at, left->len < right->len ? left->len : right->len);

	return order != 0 ? order : (left->len > right->len) - (left->len < right->len);
}

static int read_stacks(const struct buffer *text, struct stacks *ret)
{
	const char *at = text->data, *end = text->data + text->len, *from, *to;
	size_t lines = 1;

	for (size_t i = 0; i < text->len; i++)
		lines += text->data[i] == '\n';
	ret->stack = calloc(lines, sizeof(*ret->stack));
	if (!ret->stack)
		return -ENOMEM;
	while (text->len > 0 && folded_diff_next_line(&at, end, &from, &to)) {
		if (!read_line(from, to, &ret->stack[ret->count]))
			continue;
		ret->sum = add_up(ret->sum, ret->stack[ret->count++].count);
	}
	qsort(ret->stack, ret->count, sizeof(*ret->stack), compare_stacks);
	return 0;
}

/* The next stack, with what all of its lines count; equals are beside each other. */
static bool take_stack(const struct stacks *stacks, size_t *place, struct stack *ret)
{
	if (*place == stacks->count)
		return false;
	*ret = stacks->stack[(*place)++];
	while (*place < stacks->count && compare_stacks(ret, &stacks->stack[*place]) == 0)
		ret->count = add_up(ret->count, stacks->stack[(*place)++].count);
	return true;
}

static int write_pair(const struct stack *stack, uint64_t first, uint64_t second, const struct sink *sink)
{
	AUTO(buffer_release) struct buffer line = { 0 };
	char counts[64];
	int len = snprintf(counts, sizeof(counts), " %" PRIu64 " %" PRIu64 "\n", first, second);
	int rc = clean_text_append(&line, stack->at, stack->len);

	if (rc == 0)
		rc = buffer_append(&line, counts, (size_t)len);
	return rc == 0 ? sink_write(sink, line.data, line.len) : rc;
}

/* Two walks, side by side. */
struct pair {
	struct stacks side[2];
	size_t place[2];
	struct stack at[2];
	bool there[2];
};

static int write_next_pair(struct pair *pair, double factor, const struct sink *sink)
{
	int order = !pair->there[0] ? 1 : !pair->there[1] ? -1 : compare_stacks(&pair->at[0], &pair->at[1]);
	struct stack stack = pair->at[order > 0];
	uint64_t count[2] = { order <= 0 ? pair->at[0].count : 0, order >= 0 ? pair->at[1].count : 0 };
	double scaled = (double)count[0] * factor + 0.5;
	int rc;

	if (factor > 0)
		count[0] = scaled < 0x1p63 ? (uint64_t)scaled : (uint64_t)1 << 63;
	rc = count[0] > 0 || count[1] > 0 ? write_pair(&stack, count[0], count[1], sink) : 0;
	if (order <= 0)
		pair->there[0] = take_stack(&pair->side[0], &pair->place[0], &pair->at[0]);
	if (order >= 0)
		pair->there[1] = take_stack(&pair->side[1], &pair->place[1], &pair->at[1]);
	return rc;
}

static void release_pair(struct pair *pair)
{
	release_stacks(&pair->side[0]);
	release_stacks(&pair->side[1]);
}

int folded_diff_write(const struct buffer *first, const struct buffer *second, bool scale, const struct sink *sink)
{
	AUTO(release_pair) struct pair pair = { 0 };
	double factor = 0; /* 0: as they are */
	int rc = read_stacks(first, &pair.side[0]);

	if (rc == 0)
		rc = read_stacks(second, &pair.side[1]);
	if (rc < 0)
		return rc;
	if (scale && pair.side[0].sum > 0 && pair.side[1].sum > 0)
		factor = (double)pair.side[1].sum / (double)pair.side[0].sum;
	for (unsigned i = 0; i < 2; i++)
		pair.there[i] = take_stack(&pair.side[i], &pair.place[i], &pair.at[i]);
	while (rc == 0 && (pair.there[0] || pair.there[1]))
		rc = write_next_pair(&pair, factor, sink);
	return rc;
}

/* ---- the table of functions ---- */

/* Longer names are cut. */
#define NAME_MAX_BYTES 1024

/* What one thread did. */
struct part {
	uint32_t thread; /* 0: none */
	uint64_t amount[FUNCTION_TABLE_PHASES];
};

struct tally {
	uint64_t self[FUNCTION_TABLE_PHASES], total[FUNCTION_TABLE_PHASES];
	uint64_t beside; /* during: CPU time, or faults */
	uint64_t stack;  /* the last one it was counted for */
	struct part now, best;
};

/* Of threads there is no more than self and beside. */
struct tallies {
	struct tally *tally; /* by number, less 1 */
	size_t cap;
};

/* Followed by the name, NUL, the process. */
struct thread_key {
	int32_t pid, tid;
};

struct function_table {
	enum function_table_unit unit;
	struct intern functions; /* name, NUL, module */
	struct intern threads;   /* struct thread_key */
	struct intern_budget budget;
	struct buffer key;
	struct tallies of_functions, of_threads;
	uint64_t stacks;
	uint64_t sum[FUNCTION_TABLE_PHASES];
};

static const struct {
	const char *header, *sums;
} forms[] = {
	[FUNCTION_TABLE_IN_SAMPLES] = { FUNCTION_TABLE_HEADER, FUNCTION_TABLE_SAMPLES },
	[FUNCTION_TABLE_IN_BYTES] = { FUNCTION_TABLE_HEADER_BYTES, FUNCTION_TABLE_BYTES },
};

int function_table_new(enum function_table_unit unit, struct function_table **ret)
{
	struct function_table *table = calloc(1, sizeof(*table));

	if (!table)
		return -ENOMEM;

	table->unit = unit;
	*ret = table;
	return 0;
}

void function_table_free(struct function_table *table)
{
	if (!table)
		return;

	intern_release(&table->functions);
	intern_release(&table->threads);
	buffer_release(&table->key);
	free(table->of_functions.tally);
	free(table->of_threads.tally);
	free(table);
}

/* Two names, the first of them ends with a NUL. */
static int append_names(struct buffer *key, const char *first, const char *second)
{
	int rc = buffer_append(key, first, strnlen(first, NAME_MAX_BYTES));

	if (rc == 0)
		rc = buffer_append(key, "", 1);
	return rc == 0 ? buffer_append(key, second, strnlen(second, NAME_MAX_BYTES)) : rc;
}

/* The number of table->key in a set, with a tally of its own. */
static int put_tallied(struct function_table *table, struct intern *set, struct tallies *tallies, uint32_t *ret)
{
	uint32_t known = set->count;
	int rc = vector_reserve(&tallies->tally, &tallies->cap, (size_t)known + 1, sizeof(*tallies->tally));

	if (rc == 0)
		rc = intern_put(set, &table->budget, table->key.data, table->key.len, ret);
	if (set->count > known)
		tallies->tally[known] = (struct tally){ 0 };
	return rc;
}

int function_table_function(struct function_table *table, const char *name, const char *module, uint32_t *ret)
{
	int rc;

	table->key.len = 0;
	rc = append_names(&table->key, name, module);
	return rc == 0 ? put_tallied(table, &table->functions, &table->of_functions, ret) : rc;
}

int function_table_thread(struct function_table *table, const struct function_table_thread *thread, uint32_t *ret)
{
	const struct thread_key key = { thread->pid, thread->tid };
	int rc;

	table->key.len = 0;
	rc = buffer_append(&table->key, &key, sizeof(key));
	if (rc == 0)
		rc = append_names(&table->key, thread->name, thread->process);
	return rc == 0 ? put_tallied(table, &table->threads, &table->of_threads, ret) : rc;
}

/* ---- counting ---- */

static bool part_is_more(const struct part *a, const struct part *b)
{
	if (a->amount[FUNCTION_TABLE_DURING] != b->amount[FUNCTION_TABLE_DURING])
		return a->amount[FUNCTION_TABLE_DURING] > b->amount[FUNCTION_TABLE_DURING];
	return a->amount[FUNCTION_TABLE_BEFORE] > b->amount[FUNCTION_TABLE_BEFORE];
}

/* The best thread, the one that is being added included. */
static const struct part *top_of(const struct tally *tally)
{
	return part_is_more(&tally->now, &tally->best) ? &tally->now : &tally->best;
}

/* What the table counts. */
static const uint64_t *table_amounts(const struct function_table *table, const struct function_table_stack *stack)
{
	return table->unit == FUNCTION_TABLE_IN_BYTES ? stack->weight : stack->samples;
}

static void count_self(const struct function_table *table, struct tally *tally,
		       const struct function_table_stack *stack)
{
	const uint64_t *amount = table_amounts(table, stack);

	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++)
		tally->self[p] += amount[p];
	tally->beside +=
		(table->unit == FUNCTION_TABLE_IN_BYTES ? stack->samples : stack->weight)[FUNCTION_TABLE_DURING];
}

static void count_total(struct tally *tally, const struct function_table_stack *stack, const uint64_t *amount)
{
	if (tally->now.thread != stack->thread) {
		tally->best = *top_of(tally);
		tally->now = (struct part){ .thread = stack->thread };
	}
	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++) {
		tally->total[p] += amount[p];
		tally->now.amount[p] += amount[p];
	}
}

int function_table_add(struct function_table *table, const struct function_table_stack *stack)
{
	if (stack->thread == 0 || stack->thread > table->threads.count)
		return -EINVAL;
	for (size_t i = 0; i < stack->count; i++)
		if (stack->functions[i] == 0 || stack->functions[i] > table->functions.count)
			return -EINVAL;

	table->stacks++;
	for (size_t i = 0; i < stack->count; i++) {
		struct tally *tally = &table->of_functions.tally[stack->functions[i] - 1];

		if (tally->stack == table->stacks)
			continue;
		tally->stack = table->stacks;
		count_total(tally, stack, table_amounts(table, stack));
	}
	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++)
		table->sum[p] += table_amounts(table, stack)[p];
	if (stack->count > 0)
		count_self(table, &table->of_functions.tally[stack->functions[0] - 1], stack);
	count_self(table, &table->of_threads.tally[stack->thread - 1], stack);
	return 0;
}

/* ---- writing ---- */

static int descending(uint64_t a, uint64_t b)
{
	return a < b ? 1 : -(a > b);
}

/*
 * CPU: by self, then by total. New memory is touched by memcpy(3) and its like wherever it came
 * from: there callers count as much.
 */
static int compare_heat(const struct function_table *table, const struct tally *x, const struct tally *y)
{
	bool callers = table->unit == FUNCTION_TABLE_IN_BYTES;
	int rc = 0;

	for (int phase = FUNCTION_TABLE_DURING; rc == 0 && phase >= FUNCTION_TABLE_BEFORE; phase--) {
		rc = descending(x->self[phase] + (callers ? x->total[phase] : 0),
				y->self[phase] + (callers ? y->total[phase] : 0));
		if (rc == 0)
			rc = descending(x->total[phase], y->total[phase]);
	}
	return rc;
}

static int by_heat(const void *a, const void *b, void *ctx)
{
	const struct function_table *table = ctx;
	uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
	int rc = compare_heat(table, &table->of_functions.tally[first - 1], &table->of_functions.tally[second - 1]);

	if (rc == 0)
		rc = strcmp(intern_text(&table->functions, first), intern_text(&table->functions, second));
	return rc != 0 ? rc : (first > second) - (first < second);
}

/* Returns the name of the thread, behind whose NUL is that of the process. */
static const char *thread_of(const struct function_table *table, uint32_t number, struct thread_key *ret)
{
	size_t len;
	const char *key = intern_get(&table->threads, number, &len);

	memcpy(ret, key, sizeof(*ret));
	return key + sizeof(*ret);
}

static int by_thread_heat(const void *a, const void *b, void *ctx)
{
	const struct function_table *table = ctx;
	uint32_t first = *(const uint32_t *)a, second = *(const uint32_t *)b;
	struct thread_key x, y;
	int rc = compare_heat(table, &table->of_threads.tally[first - 1], &table->of_threads.tally[second - 1]);

	thread_of(table, first, &x);
	thread_of(table, second, &y);
	if (rc == 0)
		rc = (x.tid > y.tid) - (x.tid < y.tid);
	return rc != 0 ? rc : (first > second) - (first < second);
}

/* An untrusted name, then end. */
static int write_name(const struct sink *sink, const char *name, const char *end)
{
	char printable[4 * NAME_MAX_BYTES + 1];
	int rc = sink_write(sink, printable, text_escape(printable, sizeof(printable), name, strlen(name)));

	return rc == 0 ? sink_write(sink, end, strlen(end)) : rc;
}

/* self, total, and what is beside them: milliseconds have three digits of their own. */
static int write_numbers(const struct function_table *table, const struct tally *tally, const uint64_t *total,
			 const struct sink *sink)
{
	char text[256];
	int used = snprintf(text, sizeof(text), "%ju\t%ju\t%ju\t%ju\t", (uintmax_t)tally->self[FUNCTION_TABLE_BEFORE],
			    (uintmax_t)total[FUNCTION_TABLE_BEFORE], (uintmax_t)tally->self[FUNCTION_TABLE_DURING],
			    (uintmax_t)total[FUNCTION_TABLE_DURING]);

	if (table->unit == FUNCTION_TABLE_IN_BYTES)
		snprintf(text + used, sizeof(text) - (size_t)used, "%ju\t", (uintmax_t)tally->beside);
	else
		snprintf(text + used, sizeof(text) - (size_t)used, "%ju.%03ju\t", (uintmax_t)tally->beside / 1000000,
			 (uintmax_t)tally->beside / 1000 % 1000);
	return sink_write(sink, text, strlen(text));
}

/* The cells of a thread, 0 of none, and the end of the line. */
static int write_thread(const struct function_table *table, uint32_t number, uint64_t amount, const struct sink *sink)
{
	struct thread_key key = { 0 };
	const char *name = number ? thread_of(table, number, &key) : "",
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
static enum function_table_phase phase_of(const uint64_t total[static FUNCTION_TABLE_PHASES])
{
	return total[FUNCTION_TABLE_DURING] > 0 ? FUNCTION_TABLE_DURING : FUNCTION_TABLE_BEFORE;
}

static int write_function_row(const struct function_table *table, uint32_t number, const struct sink *sink)
{
	const struct tally *tally = &table->of_functions.tally[number - 1];
	const struct part *top = top_of(tally);
	const char *name = intern_text(&table->functions, number);
	int rc = write_name(sink, name, "\t");

	if (rc == 0)
		rc = write_name(sink, name + strlen(name) + 1, "\t");
	if (rc == 0)
		rc = write_numbers(table, tally, tally->total, sink);
	return rc == 0 ? write_thread(table, top->thread, top->amount[phase_of(tally->total)], sink) : rc;
}

static int write_thread_row(const struct function_table *table, uint32_t number, const struct sink *sink)
{
	const struct tally *tally = &table->of_threads.tally[number - 1];
	int rc = sink_write(sink, "\t\t", 2);

	if (rc == 0)
		rc = write_numbers(table, tally, tally->self, sink);
	return rc == 0 ? write_thread(table, number, tally->self[phase_of(tally->self)], sink) : rc;
}

static int write_head(const struct function_table *table, const struct sink *sink)
{
	char text[sizeof(FUNCTION_TABLE_HEADER_BYTES) + 100];

	snprintf(text, sizeof(text), "%s\n%s %ju, %ju\n", forms[table->unit].header, forms[table->unit].sums,
		 (uintmax_t)table->sum[FUNCTION_TABLE_BEFORE], (uintmax_t)table->sum[FUNCTION_TABLE_DURING]);
	return sink_write(sink, text, strlen(text));
}

static int write_left_out(uint32_t left_out, const char *remark, const struct sink *sink)
{
	char text[64];

	snprintf(text, sizeof(text), "# %u%s\n", left_out, remark);
	return left_out > 0 ? sink_write(sink, text, strlen(text)) : 0;
}

/* What was given a number may be on no stack that was counted. */
static bool was_seen(const struct tally *tally)
{
	return tally->total[FUNCTION_TABLE_BEFORE] + tally->total[FUNCTION_TABLE_DURING] +
		       tally->self[FUNCTION_TABLE_BEFORE] + tally->self[FUNCTION_TABLE_DURING] >
	       0;
}

/* One of the two parts of the table. */
struct part_of_table {
	const struct tallies *tallies;
	uint32_t count, rows_max;
	const char *remark; /* of the remark about those left out */
	int (*compare)(const void *a, const void *b, void *table);
	int (*write_row)(const struct function_table *table, uint32_t number, const struct sink *sink);
};

/* Rows as far as there is room; *ret: how many. */
static int write_rows(const struct function_table *table, const struct part_of_table *part,
		      const uint32_t order[static 1], uint32_t *ret, const struct sink *sink)
{
	AUTO(buffer_release) struct buffer row = { 0 };
	const struct sink to_row = sink_buffer(&row);
	size_t used = 0;
	int rc = 0;

	for (uint32_t i = 0; i < *ret && rc == 0; i++) {
		row.len = 0;
		rc = part->write_row(table, order[i], &to_row);
		used += row.len;
		if (rc == 0 && used > FUNCTION_TABLE_PART_BYTES_MAX)
			*ret = i;
		else if (rc == 0)
			rc = sink_write(sink, row.data, row.len);
	}
	return rc;
}

static int write_part(const struct function_table *table, const struct part_of_table *part, const struct sink *sink)
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
	qsort_r(order, count, sizeof(*order), part->compare, (void *)table);
	rc = write_rows(table, part, order, &shown, sink);
	return rc == 0 ? write_left_out(count - shown, part->remark, sink) : rc;
}

int function_table_write(const struct function_table *table, const struct sink *sink)
{
	const struct part_of_table functions = {
		&table->of_functions,
		table->functions.count,
		FUNCTION_TABLE_ROWS_MAX,
		FUNCTION_TABLE_MORE_FUNCTIONS,
		by_heat,
		write_function_row,
	};
	const struct part_of_table threads = {
		&table->of_threads,          table->threads.count, FUNCTION_TABLE_THREADS_MAX,
		FUNCTION_TABLE_MORE_THREADS, by_thread_heat,       write_thread_row,
	};
	int rc = write_head(table, sink);

	if (rc == 0)
		rc = write_part(table, &functions, sink);
	return rc == 0 ? write_part(table, &threads, sink) : rc;
}

/* ---- reading the table of functions ---- */

enum cell_kind { CELL_NAME, CELL_COUNT, CELL_MS, CELL_ID };

#define COLUMN(name, kind, member) \
	{ \
		name, kind, offsetof(struct function_rows_row, member) \
	}

static const struct column {
	const char *name;
	enum cell_kind kind;
	size_t at; /* in struct function_rows_row */
} columns[] = {
	COLUMN("function", CELL_NAME, function), /* the first: a table needs it */
	COLUMN("module", CELL_NAME, module),
	COLUMN("self_before", CELL_COUNT, self[FUNCTION_TABLE_BEFORE]),
	COLUMN("total_before", CELL_COUNT, total[FUNCTION_TABLE_BEFORE]),
	COLUMN("self_during", CELL_COUNT, self[FUNCTION_TABLE_DURING]),
	COLUMN("total_during", CELL_COUNT, total[FUNCTION_TABLE_DURING]),
	COLUMN("self_during_ms", CELL_MS, self_ns),
	COLUMN("self_during_faults", CELL_COUNT, self_faults),
	COLUMN("top_thread", CELL_NAME, thread),
	COLUMN("top_tid", CELL_ID, tid),
	COLUMN("top_samples", CELL_COUNT, top_amount),
	COLUMN("top_bytes", CELL_COUNT, top_amount),
	COLUMN("top_process", CELL_NAME, process),
	COLUMN("top_pid", CELL_ID, pid),
};

/* The remark below the header says the unit. */
static const char *const sums[] = {
	[FUNCTION_TABLE_IN_SAMPLES] = FUNCTION_TABLE_SAMPLES " ",
	[FUNCTION_TABLE_IN_BYTES] = FUNCTION_TABLE_BYTES " ",
};

static bool next_line(struct function_rows *rows, struct function_rows_name *ret)
{
	const char *newline = rows->at < rows->end ? memchr(rows->at, '\n', (size_t)(rows->end - rows->at)) : NULL;

	if (!newline)
		return false;
	*ret = (struct function_rows_name){ rows->at, (size_t)(newline - rows->at) };
	rows->at = newline + 1;
	return true;
}

/* Cuts the first cell off the line. False: there is none left. */
static bool next_cell(struct function_rows_name *line, struct function_rows_name *ret)
{
	const char *tab;

	if (!line->text)
		return false;
	tab = line->len > 0 ? memchr(line->text, '\t', line->len) : NULL;
	*ret = *line;
	if (tab) {
		ret->len = (size_t)(tab - line->text);
		line->text = tab + 1;
		line->len -= ret->len + 1;
	} else {
		line->text = NULL;
	}
	return true;
}

static bool cell_is(const struct function_rows_name *cell, const char *name)
{
	return cell->len == strlen(name) && memcmp(cell->text, name, cell->len) == 0;
}

/* ---- numbers ---- */

static bool parse_count(const struct function_rows_name *cell, uint64_t *ret)
{
	const char *end = cell->text + cell->len;

	return text_parse_u64(cell->text, end, ret) == end;
}

/* "40.125": digits, and up to six of them behind a point. */
static bool parse_ms(const struct function_rows_name *cell, uint64_t *ret_ns)
{
	const char *end = cell->text + cell->len, *at;
	uint64_t whole, part = 0, scale = 1000000;

	at = text_parse_u64(cell->text, end, &whole);
	if (!at || whole > UINT64_MAX / 1000000 - 1)
		return false;
	if (at < end && *at == '.')
		for (at++; at < end && *at >= '0' && *at <= '9' && scale > 1; at++) {
			scale /= 10;
			part += (uint64_t)(*at - '0') * scale;
		}
	*ret_ns = whole * 1000000 + part;
	return at == end;
}

static bool parse_id(const struct function_rows_name *cell, int64_t *ret)
{
	bool minus = cell->len > 0 && *cell->text == '-';
	struct function_rows_name digits = { cell->text + minus, cell->len - minus };
	uint64_t value;

	if (!parse_count(&digits, &value) || value > INT32_MAX)
		return false;
	*ret = minus ? -(int64_t)value : (int64_t)value;
	return true;
}

static bool take_cell(const struct column *column, const struct function_rows_name *cell, struct function_rows_row *row)
{
	void *to = (char *)row + column->at;

	switch (column->kind) {
	case CELL_COUNT:
		return parse_count(cell, to);
	case CELL_MS:
		return parse_ms(cell, to);
	case CELL_ID:
		return parse_id(cell, to);
	case CELL_NAME:
		*(struct function_rows_name *)to = *cell;
	}
	return true;
}

/* ---- the table ---- */

static bool read_header(struct function_rows *rows, struct function_rows_name line)
{
	struct function_rows_name cell;
	bool found = false;

	while (rows->column_count < ARRAY_LEN(rows->columns) && next_cell(&line, &cell)) {
		unsigned char *number = &rows->columns[rows->column_count++];

		for (size_t i = 0; i < ARRAY_LEN(columns); i++)
			if (cell_is(&cell, columns[i].name))
				*number = (unsigned char)(i + 1);
		found |= *number == 1;
	}
	return found;
}

/* "# samples before, during: 31, 66", "# bytes before, during: 8192, 4096" */
static bool read_sums(const struct function_rows_name *line, const char *prefix,
		      uint64_t ret[static FUNCTION_TABLE_PHASES])
{
	const char *end = line->text + line->len, *at = line->text + strlen(prefix);
	uint64_t before, during;

	if (line->len < strlen(prefix) || memcmp(line->text, prefix, strlen(prefix)) != 0)
		return false;
	at = text_parse_u64(at, end, &before);
	if (!at || end - at < 2 || at[0] != ',' || at[1] != ' ' || text_parse_u64(at + 2, end, &during) != end)
		return false;

	ret[FUNCTION_TABLE_BEFORE] = before;
	ret[FUNCTION_TABLE_DURING] = during;
	return true;
}

static bool read_remark(struct function_rows *rows, const struct function_rows_name *line)
{
	for (unsigned unit = 0; unit < ARRAY_LEN(sums); unit++)
		if (read_sums(line, sums[unit], rows->sum)) {
			rows->unit = (enum function_table_unit)unit;
			return true;
		}
	return false;
}

/* "# 3 more functions" */
static bool read_more(const struct function_rows_name *line, const char *remark, uint64_t *ret)
{
	const char *end = line->text + line->len, *at = line->len > 2 ? text_parse_u64(line->text + 2, end, ret) : NULL;

	return at && line->text[1] == ' ' && (size_t)(end - at) == strlen(remark) &&
	       memcmp(at, remark, strlen(remark)) == 0;
}

static void read_left_out(struct function_rows *rows, const struct function_rows_name *line)
{
	uint64_t more;

	if (read_more(line, FUNCTION_TABLE_MORE_FUNCTIONS, &more))
		rows->more_functions = more;
	else if (read_more(line, FUNCTION_TABLE_MORE_THREADS, &more))
		rows->more_threads = more;
}

bool function_rows_start(struct function_rows *rows, const char *text, size_t len)
{
	struct function_rows_name line;
	const char *first;

	*rows = (struct function_rows){ .at = text, .end = text + len };
	if (!next_line(rows, &line) || !read_header(rows, line))
		return false;
	first = rows->at;
	if (next_line(rows, &line) && !read_remark(rows, &line))
		rows->at = first;
	return true;
}

bool function_rows_next(struct function_rows *rows, struct function_rows_row *ret)
{
	struct function_rows_name line, cell;

	while (next_line(rows, &line)) {
		struct function_rows_row row = { 0 };
		bool is_remark = line.len > 0 && *line.text == '#', good = line.len > 0 && !is_remark;

		if (is_remark)
			read_left_out(rows, &line);
		for (size_t c = 0; good && c < rows->column_count && next_cell(&line, &cell); c++)
			if (rows->columns[c] > 0)
				good = take_cell(&columns[rows->columns[c] - 1], &cell, &row);
		if (good && (row.function.len > 0 || row.thread.len > 0 || row.tid != 0)) {
			*ret = row;
			return true;
		}
	}
	return false;
}
