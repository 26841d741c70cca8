/*
 * stack_text.c: comparing two texts of folded stacks: lines become stacks with a count, are sorted,
 * and one walk over both puts equal ones beside each other. The number is what follows the last
 * space.
 *
 * Reading the table of functions: line by line, cell by cell, in place. A line ends with a newline:
 * the rest of a file that was cut in the middle of one is no row.
 */
#include "lib/profile/stack_text.h"

#include "lib/base/base.h"
#include "lib/base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- comparing two texts of folded stacks ---- */

struct stack {
	struct text_part name;
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
static bool read_line(const struct text_part *line, struct stack *ret)
{
	const char *end = line->at + line->len, *space = memrchr(line->at, ' ', line->len);

	if (!space || space == line->at || text_parse_u64(space + 1, end, &ret->count) != end)
		return false;
	ret->name = (struct text_part){ line->at, (size_t)(space - line->at) };
	return true;
}

bool folded_diff_check(const struct buffer *text, uint64_t *ret_sum)
{
	struct text_part rest = { text->data, text->len }, line;
	struct stack stack;
	uint64_t sum = 0;

	while (text_cut(&rest, '\n', &line)) {
		if (line.len == 0)
			continue;
		if (!read_line(&line, &stack))
			return false;
		sum = add_up(sum, stack.count);
	}
	*ret_sum = sum;
	return true;
}

static int compare_stacks(const void *a, const void *b)
{
	const struct stack *left = a, *right = b;

	return text_part_compare(&left->name, &right->name);
}

static int read_stacks(const struct buffer *text, struct stacks *ret)
{
	struct text_part rest = { text->data, text->len }, line;
	size_t lines = 1;

	for (size_t i = 0; i < text->len; i++)
		lines += text->data[i] == '\n';
	ret->stack = calloc(lines, sizeof(*ret->stack));
	if (!ret->stack)
		return -ENOMEM;
	while (text_cut(&rest, '\n', &line)) {
		if (line.len == 0 || !read_line(&line, &ret->stack[ret->count]))
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
	int rc = clean_text_append(&line, stack->name.at, stack->name.len);

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

static const char *const own_sums[] = {
	[FUNCTION_TABLE_IN_SAMPLES] = FUNCTION_TABLE_OWN_SAMPLES " ",
	[FUNCTION_TABLE_IN_BYTES] = FUNCTION_TABLE_OWN_BYTES " ",
};

/* A last line without newline was cut, and is left out. */
static bool next_line(struct function_rows *rows, struct text_part *ret)
{
	return text_cut(&rows->rest, '\n', ret) && rows->rest.at != NULL;
}

static bool parse_count(const struct text_part *cell, uint64_t *ret)
{
	const char *end = cell->at + cell->len;

	return text_parse_u64(cell->at, end, ret) == end;
}

/* "40.125": digits, and up to six of them behind a point. */
static bool parse_ms(const struct text_part *cell, uint64_t *ret_ns)
{
	const char *end = cell->at + cell->len, *at;
	uint64_t whole, part = 0, scale = 1000000;

	at = text_parse_u64(cell->at, end, &whole);
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

static bool parse_id(const struct text_part *cell, int64_t *ret)
{
	bool minus = cell->len > 0 && *cell->at == '-';
	struct text_part digits = { cell->at + minus, cell->len - minus };
	uint64_t value;

	if (!parse_count(&digits, &value) || value > INT32_MAX)
		return false;
	*ret = minus ? -(int64_t)value : (int64_t)value;
	return true;
}

static bool take_cell(const struct column *column, const struct text_part *cell, struct function_rows_row *row)
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
		*(struct text_part *)to = *cell;
	}
	return true;
}

static bool read_header(struct function_rows *rows, struct text_part line)
{
	struct text_part cell;
	bool found = false;

	while (rows->column_count < ARRAY_LEN(rows->columns) && text_cut(&line, '\t', &cell)) {
		unsigned char *number = &rows->columns[rows->column_count++];

		for (size_t i = 0; i < ARRAY_LEN(columns); i++)
			if (text_part_is(&cell, columns[i].name))
				*number = (unsigned char)(i + 1);
		found |= *number == 1;
	}
	return found;
}

/* "# samples before, during: 31, 66", "# bytes before, during: 8192, 4096" */
static bool read_sums(const struct text_part *line, const char *prefix, uint64_t ret[static FUNCTION_TABLE_PHASES])
{
	const char *end = line->at + line->len, *at = line->at + strlen(prefix);
	uint64_t before, during;

	if (line->len < strlen(prefix) || memcmp(line->at, prefix, strlen(prefix)) != 0)
		return false;
	at = text_parse_u64(at, end, &before);
	if (!at || end - at < 2 || at[0] != ',' || at[1] != ' ' || text_parse_u64(at + 2, end, &during) != end)
		return false;

	ret[FUNCTION_TABLE_BEFORE] = before;
	ret[FUNCTION_TABLE_DURING] = during;
	return true;
}

static bool read_remark(struct function_rows *rows, const struct text_part *line)
{
	for (unsigned unit = 0; unit < ARRAY_LEN(sums); unit++)
		if (read_sums(line, sums[unit], rows->sum)) {
			rows->unit = (enum function_table_unit)unit;
			return true;
		}
	return false;
}

/* "# 3 more functions" */
static bool read_more(const struct text_part *line, const char *remark, uint64_t *ret)
{
	const char *end = line->at + line->len, *at = line->len > 2 ? text_parse_u64(line->at + 2, end, ret) : NULL;

	return at && line->at[1] == ' ' && (size_t)(end - at) == strlen(remark) &&
	       memcmp(at, remark, strlen(remark)) == 0;
}

static void read_left_out(struct function_rows *rows, const struct text_part *line)
{
	uint64_t more;

	if (read_more(line, FUNCTION_TABLE_MORE_FUNCTIONS, &more))
		rows->more_functions = more;
	else if (read_more(line, FUNCTION_TABLE_MORE_THREADS, &more))
		rows->more_threads = more;
}

bool function_rows_start(struct function_rows *rows, const char *text, size_t len)
{
	struct text_part line, first;

	*rows = (struct function_rows){ .rest = { text, len } };
	if (!next_line(rows, &line) || !read_header(rows, line))
		return false;
	first = rows->rest;
	if (!next_line(rows, &line) || !read_remark(rows, &line)) {
		rows->rest = first;
		return true;
	}
	first = rows->rest;
	rows->has_own = next_line(rows, &line) && read_sums(&line, own_sums[rows->unit], rows->own);
	if (!rows->has_own)
		rows->rest = first;
	return true;
}

bool function_rows_next(struct function_rows *rows, struct function_rows_row *ret)
{
	struct text_part line, cell;

	while (next_line(rows, &line)) {
		struct function_rows_row row = { 0 };
		bool is_remark = line.len > 0 && *line.at == '#', good = line.len > 0 && !is_remark;

		if (is_remark)
			read_left_out(rows, &line);
		for (size_t c = 0; good && c < rows->column_count && text_cut(&line, '\t', &cell); c++)
			if (rows->columns[c] > 0)
				good = take_cell(&columns[rows->columns[c] - 1], &cell, &row);
		if (good && (row.function.len > 0 || row.thread.len > 0 || row.tid != 0)) {
			*ret = row;
			return true;
		}
	}
	return false;
}
