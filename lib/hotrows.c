/*
 * hotrows.c: line by line, cell by cell, in place. A line ends with a newline: the rest of a file that was cut in the
 * middle of one is no row.
 */
#include "hotrows.h"

#include "scope.h"
#include "text.h"

#include <string.h>

enum column {
	COLUMN_OTHER,
	COLUMN_FUNCTION,
	COLUMN_MODULE,
	COLUMN_SELF_BEFORE,
	COLUMN_TOTAL_BEFORE,
	COLUMN_SELF_DURING,
	COLUMN_TOTAL_DURING,
	COLUMN_SELF_DURING_MS,
	COLUMN_SELF_DURING_FAULTS,
	COLUMN_TOP_THREAD,
	COLUMN_TOP_TID,
	COLUMN_TOP_AMOUNT,
	COLUMN_TOP_PROCESS,
	COLUMN_TOP_PID,
};

static const struct {
	const char *name;
	enum column column;
} names[] = {
	{ "function", COLUMN_FUNCTION },
	{ "module", COLUMN_MODULE },
	{ "self_before", COLUMN_SELF_BEFORE },
	{ "total_before", COLUMN_TOTAL_BEFORE },
	{ "self_during", COLUMN_SELF_DURING },
	{ "total_during", COLUMN_TOTAL_DURING },
	{ "self_during_ms", COLUMN_SELF_DURING_MS },
	{ "self_during_faults", COLUMN_SELF_DURING_FAULTS },
	{ "top_thread", COLUMN_TOP_THREAD },
	{ "top_tid", COLUMN_TOP_TID },
	{ "top_samples", COLUMN_TOP_AMOUNT },
	{ "top_bytes", COLUMN_TOP_AMOUNT },
	{ "top_process", COLUMN_TOP_PROCESS },
	{ "top_pid", COLUMN_TOP_PID },
};

/* The remark below the header says the unit. */
static const char *const sums[] = {
	[HOTLIST_IN_SAMPLES] = HOTLIST_SAMPLES " ",
	[HOTLIST_IN_BYTES] = HOTLIST_BYTES " ",
};

static bool next_line(struct hotrows *rows, struct hotrows_name *ret)
{
	const char *newline = rows->at < rows->end ? memchr(rows->at, '\n', (size_t)(rows->end - rows->at)) : NULL;

	if (!newline)
		return false;
	*ret = (struct hotrows_name){ rows->at, (size_t)(newline - rows->at) };
	rows->at = newline + 1;
	return true;
}

/* Cuts the first cell off the line. False: there is none left. */
static bool next_cell(struct hotrows_name *line, struct hotrows_name *ret)
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

static bool is(const struct hotrows_name *cell, const char *name)
{
	return cell->len == strlen(name) && memcmp(cell->text, name, cell->len) == 0;
}

/* ---- numbers ---- */

static bool parse_count(const struct hotrows_name *cell, uint64_t *ret)
{
	const char *end = cell->text + cell->len;

	return text_parse_u64(cell->text, end, ret) == end;
}

/* "40.125": digits, and up to six of them behind a point. */
static bool parse_ms(const struct hotrows_name *cell, uint64_t *ret_ns)
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

static bool parse_id(const struct hotrows_name *cell, int64_t *ret)
{
	bool minus = cell->len > 0 && *cell->text == '-';
	struct hotrows_name digits = { cell->text + minus, cell->len - minus };
	uint64_t value;

	if (!parse_count(&digits, &value) || value > INT32_MAX)
		return false;
	*ret = minus ? -(int64_t)value : (int64_t)value;
	return true;
}

static bool take_cell(enum column column, const struct hotrows_name *cell, struct hotrows_row *row)
{
	switch (column) {
	case COLUMN_FUNCTION:
		row->function = *cell;
		return true;
	case COLUMN_MODULE:
		row->module = *cell;
		return true;
	case COLUMN_TOP_THREAD:
		row->thread = *cell;
		return true;
	case COLUMN_TOP_PROCESS:
		row->process = *cell;
		return true;
	case COLUMN_SELF_BEFORE:
		return parse_count(cell, &row->self[HOTLIST_BEFORE]);
	case COLUMN_TOTAL_BEFORE:
		return parse_count(cell, &row->total[HOTLIST_BEFORE]);
	case COLUMN_SELF_DURING:
		return parse_count(cell, &row->self[HOTLIST_DURING]);
	case COLUMN_TOTAL_DURING:
		return parse_count(cell, &row->total[HOTLIST_DURING]);
	case COLUMN_SELF_DURING_MS:
		return parse_ms(cell, &row->self_ns);
	case COLUMN_SELF_DURING_FAULTS:
		return parse_count(cell, &row->self_faults);
	case COLUMN_TOP_TID:
		return parse_id(cell, &row->tid);
	case COLUMN_TOP_PID:
		return parse_id(cell, &row->pid);
	case COLUMN_TOP_AMOUNT:
		return parse_count(cell, &row->top_amount);
	case COLUMN_OTHER:
		return true;
	}
	return true;
}

/* ---- the table ---- */

static bool read_header(struct hotrows *rows, struct hotrows_name line)
{
	struct hotrows_name cell;
	bool found = false;

	while (rows->column_count < ARRAY_LEN(rows->columns) && next_cell(&line, &cell)) {
		unsigned char *column = &rows->columns[rows->column_count++];

		for (size_t i = 0; i < ARRAY_LEN(names); i++)
			if (is(&cell, names[i].name))
				*column = (unsigned char)names[i].column;
		found |= *column == COLUMN_FUNCTION;
	}
	return found;
}

/* "# samples before, during: 31, 66", "# bytes before, during: 8192, 4096" */
static bool read_sums(const struct hotrows_name *line, const char *prefix, uint64_t ret[static HOTLIST_PHASES])
{
	const char *end = line->text + line->len, *at = line->text + strlen(prefix);
	uint64_t before, during;

	if (line->len < strlen(prefix) || memcmp(line->text, prefix, strlen(prefix)) != 0)
		return false;
	at = text_parse_u64(at, end, &before);
	if (!at || end - at < 2 || at[0] != ',' || at[1] != ' ' || text_parse_u64(at + 2, end, &during) != end)
		return false;

	ret[HOTLIST_BEFORE] = before;
	ret[HOTLIST_DURING] = during;
	return true;
}

static bool read_remark(struct hotrows *rows, const struct hotrows_name *line)
{
	for (unsigned unit = 0; unit < ARRAY_LEN(sums); unit++)
		if (read_sums(line, sums[unit], rows->sum)) {
			rows->unit = (enum hotlist_unit)unit;
			return true;
		}
	return false;
}

/* "# 3 more functions" */
static bool read_more(const struct hotrows_name *line, const char *rest, uint64_t *ret)
{
	const char *end = line->text + line->len, *at = line->len > 2 ? text_parse_u64(line->text + 2, end, ret) : NULL;

	return at && line->text[1] == ' ' && (size_t)(end - at) == strlen(rest) && memcmp(at, rest, strlen(rest)) == 0;
}

static void read_left_out(struct hotrows *rows, const struct hotrows_name *line)
{
	uint64_t more;

	if (read_more(line, HOTLIST_MORE_FUNCTIONS, &more))
		rows->more_functions = more;
	else if (read_more(line, HOTLIST_MORE_THREADS, &more))
		rows->more_threads = more;
}

bool hotrows_start(struct hotrows *rows, const char *text, size_t len)
{
	struct hotrows_name line;
	const char *first;

	*rows = (struct hotrows){ .at = text, .end = text + len };
	if (!next_line(rows, &line) || !read_header(rows, line))
		return false;
	first = rows->at;
	if (next_line(rows, &line) && !read_remark(rows, &line))
		rows->at = first;
	return true;
}

bool hotrows_next(struct hotrows *rows, struct hotrows_row *ret)
{
	struct hotrows_name line, cell;

	while (next_line(rows, &line)) {
		struct hotrows_row row = { 0 };
		bool remark = line.len > 0 && *line.text == '#', good = line.len > 0 && !remark;

		if (remark)
			read_left_out(rows, &line);
		for (size_t c = 0; good && c < rows->column_count && next_cell(&line, &cell); c++)
			good = take_cell((enum column)rows->columns[c], &cell, &row);
		if (good && (row.function.len > 0 || row.thread.len > 0 || row.tid != 0)) {
			*ret = row;
			return true;
		}
	}
	return false;
}
