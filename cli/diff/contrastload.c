/* contrastload.c: functions come through hotrows.h; the other files are tables with a header, whose columns are found by their names. */
#include "contrastload.h"

#include "cleantext.h"
#include "functions.h"
#include "hotrows.h"
#include "incidentload.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <string.h>

#define COLUMNS_MAX 4

static uint64_t add_up(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static int read_text(int incidentfd, const char *file, struct buffer *ret)
{
	ret->max = INCIDENTLOAD_CAPTURE_MAX;
	return incidentload_capture(incidentfd, file, ret);
}

/* ---- names ---- */

static int add_named(struct contrast *contrast, enum contrast_side side, const struct hotrows_name name[static 2],
		     const uint64_t amount[static CONTRAST_MEASURES])
{
	AUTO(buffer_release) struct buffer clean = { 0 };
	size_t name_len;
	struct contrast_key key;
	int rc = cleantext_append(&clean, name[0].text, name[0].len);

	name_len = clean.len;
	if (rc == 0)
		rc = cleantext_append(&clean, name[1].text, name[1].len);
	if (rc < 0)
		return rc;
	if (clean.len == 0)
		return contrast_add(contrast, side, &(struct contrast_key){ "", "", 0, 0 }, amount);
	key = (struct contrast_key){ clean.data, clean.data + name_len, name_len, clean.len - name_len };
	return contrast_add(contrast, side, &key, amount);
}

/* ---- functions ---- */

static uint64_t of_phases(const uint64_t amount[static HOTLIST_PHASES], unsigned phases)
{
	uint64_t sum = 0;

	for (unsigned p = 0; p < HOTLIST_PHASES; p++)
		if (phases >> p & 1u)
			sum = add_up(sum, amount[p]);
	return sum;
}

static int take_function(const struct hotrows_row *row, enum contrast_side side, unsigned phases,
			 struct contrast *functions, struct contrast *threads)
{
	const uint64_t amount[CONTRAST_MEASURES] = { of_phases(row->self, phases), of_phases(row->total, phases) };
	bool is_function = row->function.len > 0;

	if (amount[0] == 0 && amount[1] == 0)
		return 0;
	return is_function ? add_named(functions, side, (struct hotrows_name[]){ row->function, row->module }, amount)
			   : add_named(threads, side, (struct hotrows_name[]){ row->thread, row->process }, amount);
}

int contrastload_functions(int incidentfd, enum hotlist_unit unit, enum contrast_side side, unsigned phases,
			   struct contrast *functions, struct contrast *threads)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct hotrows rows;
	struct hotrows_row row;
	int rc = read_text(incidentfd, unit == HOTLIST_IN_BYTES ? FUNCTIONS_MEMORY_FILE : FUNCTIONS_FILE, &text);

	if (rc < 0)
		return rc;
	if (!hotrows_start(&rows, text.data ? text.data : "", text.len) || rows.unit != unit)
		return -EBADMSG;
	while (rc == 0 && hotrows_next(&rows, &row))
		rc = take_function(&row, side, phases, functions, threads);
	if (rc < 0)
		return rc;
	functions->known[side] = threads->known[side] = true;
	functions->sum[side] = threads->sum[side] = of_phases(rows.sum, phases);
	functions->left_out[side] = rows.more_functions;
	threads->left_out[side] = rows.more_threads;
	return 0;
}

/* ---- tables ---- */

/* A table on its way: which cell of a line is which column. */
struct table {
	const char *at, *end;
	const char *const *names; /* of the columns that are wanted; the first so many are needed */
	size_t count;
	size_t place[COLUMNS_MAX];
};

/* The next line that is no remark. A rest without newline is none: the file was cut there. */
static bool next_line(struct table *table, struct hotrows_name *ret)
{
	while (table->at < table->end) {
		const char *newline = memchr(table->at, '\n', (size_t)(table->end - table->at));

		if (!newline)
			return false;
		*ret = (struct hotrows_name){ table->at, (size_t)(newline - table->at) };
		table->at = newline + 1;
		if (ret->len > 0 && ret->text[0] != '#')
			return true;
	}
	return false;
}

static struct hotrows_name cell(const struct hotrows_name *line, size_t place)
{
	const char *at = line->text, *end = line->text + line->len;

	for (;; place--) {
		const char *tab = at < end ? memchr(at, '\t', (size_t)(end - at)) : NULL;
		const char *stop = tab ? tab : end;

		if (place == 0)
			return (struct hotrows_name){ at, (size_t)(stop - at) };
		if (!tab)
			return (struct hotrows_name){ "", 0 };
		at = tab + 1;
	}
}

static bool find_column(const struct hotrows_name *header, const char *name, size_t *ret)
{
	size_t place = 0, count = 1;

	for (size_t i = 0; i < header->len; i++)
		count += header->text[i] == '\t';
	for (; place < count; place++) {
		struct hotrows_name text = cell(header, place);

		if (text.len == strlen(name) && memcmp(text.text, name, text.len) == 0) {
			*ret = place;
			return true;
		}
	}
	return false;
}

/* False: it lacks a column. */
static bool start_table(struct table *table, const struct buffer *text)
{
	struct hotrows_name header;

	table->at = text->data ? text->data : "";
	table->end = table->at + text->len;
	if (!next_line(table, &header))
		return false;
	for (size_t i = 0; i < table->count; i++)
		if (!find_column(&header, table->names[i], &table->place[i]))
			return false;
	return true;
}

static bool next_row(struct table *table, struct hotrows_name ret[static COLUMNS_MAX])
{
	struct hotrows_name line;

	if (!next_line(table, &line))
		return false;
	for (size_t i = 0; i < table->count; i++)
		ret[i] = cell(&line, table->place[i]);
	return true;
}

/* "93.6": a thousandth is one. False: not known. */
static bool parse_percent(const struct hotrows_name *text, uint64_t *ret)
{
	const char *end = text->text + text->len, *at;
	uint64_t whole, part = 0, scale = 100;

	at = text_parse_u64(text->text, end, &whole);
	if (!at || whole > (uint64_t)1 << 40)
		return false;
	if (at < end && *at == '.')
		for (at++; at < end && *at >= '0' && *at <= '9'; at++, scale /= 10)
			part += (uint64_t)(*at - '0') * scale;
	*ret = whole * 1000 + part;
	return at == end;
}

int contrastload_threads(int incidentfd, const char *file, enum contrast_side side, struct contrast *threads)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct table table = { .names = (const char *const[]){ "name", "cpu_percent" }, .count = 2 };
	struct hotrows_name column[COLUMNS_MAX];
	int rc = read_text(incidentfd, file, &text);

	if (rc < 0)
		return rc;
	if (!start_table(&table, &text))
		return -EBADMSG;
	while (rc == 0 && next_row(&table, column)) {
		uint64_t amount[CONTRAST_MEASURES] = { 0, 1 };

		/* Without an earlier look it is empty: the thread counts, its CPU does not. */
		if (!parse_percent(&column[1], &amount[0]))
			threads->left_out[side]++;
		rc = add_named(threads, side, (struct hotrows_name[]){ column[0], { "", 0 } }, amount);
	}
	threads->known[side] = rc == 0;
	return rc;
}

static bool parse_bytes(const struct hotrows_name *text, uint64_t *ret)
{
	const char *end = text->text + text->len;

	/* Nobody has a sixteenth of all addresses: sums and differences then fit. */
	return text_parse_u64(text->text, end, ret) == end && *ret < (uint64_t)1 << 60;
}

int contrastload_mappings(int incidentfd, const char *file, enum contrast_side side, struct contrast *mappings)
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct table table = { .names = (const char *const[]){ "mapping", "permissions", "rss_bytes", "swap_bytes" },
			       .count = 4 };
	struct hotrows_name column[COLUMNS_MAX];
	int rc = read_text(incidentfd, file, &text);

	if (rc < 0)
		return rc;
	if (!start_table(&table, &text))
		return -EBADMSG;
	while (rc == 0 && next_row(&table, column)) {
		uint64_t amount[CONTRAST_MEASURES];

		if (parse_bytes(&column[2], &amount[0]) && parse_bytes(&column[3], &amount[1]))
			rc = add_named(mappings, side, column, amount);
		else
			mappings->left_out[side]++;
	}
	mappings->known[side] = rc == 0;
	return rc;
}
