/*
 * diff.c: spikewatch diff compares two incidents, or the earlier and the later part of one.
 *
 * Both sides are read into contrasts: tables with a row for each name and place, which holds the
 * numbers of side A and of side B. Six of them (functions, threads, mappings ...) make a
 * difference, which is written as text, as JSON, or as the JSON in a page of HTML. Only --folded
 * and --html read the stacks themselves.
 *
 * A missing file gives a note and no table. A damaged one also marks the whole difference as
 * damaged; the other tables are still compared.
 *
 * Ranks are computed from the amounts whenever they are needed: 100 times an amount below 2^46 is
 * exact, so equal shares are equal numbers.
 */
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "cli/base/plot.h"
#include "cli/incident/incident_load.h"
#include "cli/incident/profiles.h"
#include "cli/incident/story.h"
#include "cli/report/report.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/incident/incident.h"
#include "lib/profile/stack_text.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char command[] = "spikewatch diff";

/* ---- contrasts ---- */

enum contrast_side { CONTRAST_A, CONTRAST_B, CONTRAST_SIDES };

/* Numbers of one thing on one side: self and total, resident and swapped. */
#define CONTRAST_MEASURES 2

/* Shares that differ by less are equal: the change would be printed as 0.0. */
#define CONTRAST_POINTS_MIN 0.05

struct contrast_row {
	const char *name, *place;   /* within the contrast's keys */
	bool there[CONTRAST_SIDES]; /* else its amounts are 0 */
	uint64_t amount[CONTRAST_SIDES][CONTRAST_MEASURES];
};

/* {0} is empty and legal. */
struct contrast {
	bool shares;     /* amounts are compared as percent of their side's sum */
	unsigned ranked; /* rows are ranked by the growth of this many measures together; 0: 1 */

	bool known[CONTRAST_SIDES];        /* the side's file was read; unless both were, nothing is compared */
	uint64_t sum[CONTRAST_SIDES];      /* of everything, whether in a row or not; for shares */
	uint64_t left_out[CONTRAST_SIDES]; /* that are not in the rows */

	struct contrast_row *rows; /* a key's number is the place of its row, until rows are sorted */
	size_t count, cap;
	struct intern keys; /* name and place, with a NUL between them */
};

/* Neither holds a NUL, nor needs one at its end. */
struct contrast_key {
	const char *name, *place;
	size_t name_len, place_len;
};

static uint64_t add_saturating(uint64_t a, uint64_t b)
{
	return b > UINT64_MAX - a ? UINT64_MAX : a + b;
}

static int make_key(const struct contrast_key *key, struct buffer *ret)
{
	int rc = buffer_append(ret, key->name, key->name_len);

	if (rc == 0)
		rc = buffer_append(ret, "", 1);
	return rc == 0 ? buffer_append(ret, key->place, key->place_len) : rc;
}

/* Room for a row is made before its key, so there is no key without a row. */
static int find_row(struct contrast *contrast, const struct buffer *key, size_t name_len, struct contrast_row **ret)
{
	struct intern_budget budget = { 0 };
	uint32_t number;
	size_t len;
	int rc = vector_reserve(&contrast->rows, &contrast->cap, contrast->count + 1, sizeof(*contrast->rows));

	if (rc == 0)
		rc = intern_put(&contrast->keys, &budget, key->data, key->len, &number);
	if (rc != 0)
		return -ENOMEM;
	if (number > contrast->count) {
		struct contrast_row row = { 0 };

		row.name = intern_get(&contrast->keys, number, &len);
		row.place = row.name + name_len + 1;
		contrast->rows[contrast->count++] = row;
	}
	*ret = &contrast->rows[number - 1];
	return 0;
}

/* Adds amounts to a row, which is created if need be. Not after contrast_sort. 0 or -ENOMEM. */
static int contrast_add(struct contrast *contrast, enum contrast_side side, const struct contrast_key *key,
			const uint64_t amount[static CONTRAST_MEASURES])
{
	AUTO(buffer_release) struct buffer text = { 0 };
	struct contrast_row *row = NULL;
	int rc = make_key(key, &text);

	if (rc == 0)
		rc = find_row(contrast, &text, key->name_len, &row);
	if (rc < 0)
		return rc;
	row->there[side] = true;
	for (unsigned m = 0; m < CONTRAST_MEASURES; m++)
		row->amount[side][m] = add_saturating(row->amount[side][m], amount[m]);
	return 0;
}

static bool contrast_ready(const struct contrast *contrast)
{
	return contrast->known[CONTRAST_A] && contrast->known[CONTRAST_B];
}

/* Percent of the side's sum (0 if that is 0), or the amount. */
static double contrast_value(const struct contrast *contrast, const struct contrast_row *row, enum contrast_side side,
			     unsigned measure)
{
	double amount = (double)row->amount[side][measure], sum = (double)contrast->sum[side];

	if (!contrast->shares)
		return amount;
	return sum > 0 ? 100 * amount / sum : 0;
}

/* From A to B, in percentage points or in the unit of the amounts. */
static double contrast_growth(const struct contrast *contrast, const struct contrast_row *row, unsigned measure)
{
	return contrast_value(contrast, row, CONTRAST_B, measure) - contrast_value(contrast, row, CONTRAST_A, measure);
}

/* Growth of all ranked measures together. */
static double contrast_rank(const struct contrast *contrast, const struct contrast_row *row)
{
	unsigned ranked = contrast->ranked ? contrast->ranked : 1;
	double sum = 0;

	for (unsigned m = 0; m < ranked; m++)
		sum += contrast_growth(contrast, row, m);
	return sum;
}

static bool contrast_changed(const struct contrast *contrast, const struct contrast_row *row)
{
	double rank = fabs(contrast_rank(contrast, row));

	return contrast->shares ? rank >= CONTRAST_POINTS_MIN : rank > 0;
}

static int compare_rows(const void *a, const void *b, void *ctx)
{
	const struct contrast_row *left = a, *right = b;
	double x = contrast_rank(ctx, left), y = contrast_rank(ctx, right);
	int order;

	if (x < y || x > y)
		return x > y ? -1 : 1;
	order = strcmp(left->name, right->name);
	return order != 0 ? order : strcmp(left->place, right->place);
}

/* Largest growth first, largest decrease last; equals by name and place. */
static void contrast_sort(struct contrast *contrast)
{
	if (contrast->count > 0)
		qsort_r(contrast->rows, contrast->count, sizeof(*contrast->rows), compare_rows, contrast);
}

/*
 * Chooses the rows that have changed most, at most max: the first *ret_head and the last *ret_tail
 * of the sorted rows. Returns how many have changed in all.
 */
static size_t contrast_choose(const struct contrast *contrast, size_t max, size_t *ret_head, size_t *ret_tail)
{
	size_t head = 0, tail = 0, changed = 0;

	for (size_t i = 0; i < contrast->count; i++)
		changed += contrast_changed(contrast, &contrast->rows[i]);
	while (head + tail < max && head + tail < changed) {
		double grown = contrast_rank(contrast, &contrast->rows[head]);
		double shrunk = -contrast_rank(contrast, &contrast->rows[contrast->count - 1 - tail]);

		if (grown >= shrunk)
			head++;
		else
			tail++;
	}
	*ret_head = head;
	*ret_tail = tail;
	return changed;
}

static void contrast_release(struct contrast *contrast)
{
	intern_release(&contrast->keys);
	free(contrast->rows);
	*contrast = (struct contrast){ 0 };
}

/*
 * ---- files to contrasts ----
 *
 * Each loader returns 0; -ENOENT: there is no such file; -EBADMSG: it is damaged, or of another
 * kind; -ENOMEM; -errno.
 */

#define TABLE_COLUMNS_MAX 4

/* Amounts of CPU are thousandths of a percent, so that they are whole numbers. */
#define CPU_PERCENT 1000.0

static int add_named(struct contrast *contrast, enum contrast_side side, const struct text_part name[static 2],
		     const uint64_t amount[static CONTRAST_MEASURES])
{
	AUTO(buffer_release) struct buffer clean = { 0 };
	size_t name_len;
	struct contrast_key key;
	int rc = clean_text_append(&clean, name[0].at, name[0].len);

	name_len = clean.len;
	if (rc == 0)
		rc = clean_text_append(&clean, name[1].at, name[1].len);
	if (rc < 0)
		return rc;
	if (clean.len == 0)
		return contrast_add(contrast, side, &(struct contrast_key){ "", "", 0, 0 }, amount);
	key = (struct contrast_key){ clean.data, clean.data + name_len, name_len, clean.len - name_len };
	return contrast_add(contrast, side, &key, amount);
}

static uint64_t of_phases(const uint64_t amount[static FUNCTION_TABLE_PHASES], unsigned phases)
{
	uint64_t sum = 0;

	for (unsigned p = 0; p < FUNCTION_TABLE_PHASES; p++)
		if (phases >> p & 1u)
			sum = add_saturating(sum, amount[p]);
	return sum;
}

/* Of a process that the incident is not of. */
static bool is_neighbour(const struct function_rows_row *row)
{
	return text_part_is(&row->module, FUNCTION_TABLE_NEIGHBOUR);
}

static int take_function(const struct function_rows_row *row, enum contrast_side side, unsigned phases,
			 struct contrast *functions, struct contrast *threads)
{
	const uint64_t amount[CONTRAST_MEASURES] = { of_phases(row->self, phases), of_phases(row->total, phases) };
	bool is_function = row->function.len > 0;

	if (amount[0] == 0 && amount[1] == 0)
		return 0;
	return is_function ? add_named(functions, side, (struct text_part[]){ row->function, row->module }, amount)
			   : add_named(threads, side, (struct text_part[]){ row->thread, row->process }, amount);
}

/*
 * functions.tsv or memory-functions.tsv: functions by name and module, threads by name and process.
 * Rows without samples in these phases (bits, as stack_fold_read) are left out.
 */
static int load_functions(int incidentfd, enum function_table_unit unit, enum contrast_side side, unsigned phases,
			  struct contrast *functions, struct contrast *threads)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENT_LOAD_CAPTURE_MAX };
	bool own = phases & STACK_FOLD_TARGET;
	struct function_rows rows;
	struct function_rows_row row;
	uint64_t sum;
	int rc = incident_load_capture(incidentfd,
				       unit == FUNCTION_TABLE_IN_BYTES ? FUNCTIONS_MEMORY_FILE : FUNCTIONS_FILE, &text);

	if (rc < 0)
		return rc;
	if (!function_rows_start(&rows, text.data ? text.data : "", text.len) || rows.unit != unit)
		return -EBADMSG;
	/* Where the file does not say what is the target's: what is left without the others. */
	sum = of_phases(own && rows.has_own ? rows.own : rows.sum, phases);
	while (rc == 0 && function_rows_next(&rows, &row)) {
		if (!own || !is_neighbour(&row))
			rc = take_function(&row, side, phases, functions, threads);
		else if (!rows.has_own && row.function.len > 0)
			sum -= of_phases(row.self, phases) < sum ? of_phases(row.self, phases) : sum;
	}
	if (rc < 0)
		return rc;
	functions->known[side] = threads->known[side] = true;
	functions->sum[side] = threads->sum[side] = sum;
	functions->left_out[side] = rows.more_functions;
	threads->left_out[side] = rows.more_threads;
	return 0;
}

/* A table with a header, whose columns are found by name, read line by line. */
struct table {
	struct text_part rest;
	const char *const *names; /* of the columns that are wanted */
	size_t count;
	size_t place[TABLE_COLUMNS_MAX]; /* of each in a line */
};

/* The next line that is no remark. A last line without newline was cut, and is left out. */
static bool next_line(struct table *table, struct text_part *ret)
{
	while (text_cut(&table->rest, '\n', ret) && table->rest.at != NULL)
		if (ret->len > 0 && ret->at[0] != '#')
			return true;
	return false;
}

static struct text_part table_cell(const struct text_part *line, size_t place)
{
	struct text_part rest = *line, cell;

	while (text_cut(&rest, '\t', &cell))
		if (place-- == 0)
			return cell;
	return (struct text_part){ "", 0 };
}

static bool find_column(const struct text_part *header, const char *name, size_t *ret)
{
	struct text_part rest = *header, cell;

	for (*ret = 0; text_cut(&rest, '\t', &cell); ++*ret)
		if (text_part_is(&cell, name))
			return true;
	return false;
}

/* False: a column is missing. */
static bool start_table(struct table *table, const struct buffer *text)
{
	struct text_part header;

	table->rest = (struct text_part){ text->data, text->len };
	if (!next_line(table, &header))
		return false;
	for (size_t i = 0; i < table->count; i++)
		if (!find_column(&header, table->names[i], &table->place[i]))
			return false;
	return true;
}

static bool next_row(struct table *table, struct text_part ret[static TABLE_COLUMNS_MAX])
{
	struct text_part line;

	if (!next_line(table, &line))
		return false;
	for (size_t i = 0; i < table->count; i++)
		ret[i] = table_cell(&line, table->place[i]);
	return true;
}

/* "93.6", in thousandths. False: it is no such number. */
static bool parse_percent(const struct text_part *text, uint64_t *ret)
{
	const char *end = text->at + text->len, *at;
	uint64_t whole, part = 0, scale = 100;

	at = text_parse_u64(text->at, end, &whole);
	if (!at || whole > (uint64_t)1 << 40)
		return false;
	if (at < end && *at == '.')
		for (at++; at < end && *at >= '0' && *at <= '9'; at++, scale /= 10)
			part += (uint64_t)(*at - '0') * scale;
	*ret = whole * 1000 + part;
	return at == end;
}

/* threads.tsv or threads.again.tsv: by name; CPU (in 1/CPU_PERCENT of a percent) and number. */
static int load_threads(int incidentfd, const char *file, enum contrast_side side, struct contrast *threads)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENT_LOAD_CAPTURE_MAX };
	struct table table = { .names = (const char *const[]){ "name", "cpu_percent" }, .count = 2 };
	struct text_part column[TABLE_COLUMNS_MAX];
	int rc = incident_load_capture(incidentfd, file, &text);

	if (rc < 0)
		return rc;
	if (!start_table(&table, &text))
		return -EBADMSG;
	while (rc == 0 && next_row(&table, column)) {
		uint64_t amount[CONTRAST_MEASURES] = { 0, 1 };

		/* CPU is empty for a thread that was seen for the first time. */
		if (!parse_percent(&column[1], &amount[0]))
			threads->left_out[side]++;
		rc = add_named(threads, side, (struct text_part[]){ column[0], { "", 0 } }, amount);
	}
	threads->known[side] = rc == 0;
	return rc;
}

static bool parse_bytes(const struct text_part *text, uint64_t *ret)
{
	const char *end = text->at + text->len;

	/* So bounded, sums and differences do not overflow. */
	return text_parse_u64(text->at, end, ret) == end && *ret < (uint64_t)1 << 60;
}

/* smaps.tsv or smaps.again.tsv: by name and permissions; bytes resident and swapped. */
static int load_mappings(int incidentfd, const char *file, enum contrast_side side, struct contrast *mappings)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENT_LOAD_CAPTURE_MAX };
	struct table table = { .names = (const char *const[]){ "mapping", "permissions", "rss_bytes", "swap_bytes" },
			       .count = 4 };
	struct text_part column[TABLE_COLUMNS_MAX];
	int rc = incident_load_capture(incidentfd, file, &text);

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

/* ---- the difference of two incidents, or within one ---- */

/* The tables, CPU first. */
enum difference_table {
	DIFFERENCE_FUNCTIONS,
	DIFFERENCE_STACK_THREADS,
	DIFFERENCE_MEMORY_FUNCTIONS,
	DIFFERENCE_MEMORY_THREADS,
	DIFFERENCE_THREADS,
	DIFFERENCE_MAPPINGS,
	DIFFERENCE_TABLES,
};

/* Which time of the stacks of two incidents is compared. */
enum difference_phase { DIFFERENCE_DURING, DIFFERENCE_BEFORE, DIFFERENCE_ALL, DIFFERENCE_PHASES };

static const char *const phase_names[DIFFERENCE_PHASES] = { "during", "before", "all" };

#define DIFFERENCE_NOTES_MAX 16

/* Large: not for the stack. */
struct difference {
	bool one;     /* of one incident: side A is the earlier part, and incident[1] is not set */
	bool machine; /* stacks are those of all processes, not of the target alone */
	enum difference_phase phase;
	struct incident incident[CONTRAST_SIDES];
	struct contrast table[DIFFERENCE_TABLES];
	/* Sentences without a full stop, safe to print. */
	char note[DIFFERENCE_NOTES_MAX][320];
	size_t notes;
	bool damaged; /* something that should be there could not be read; a note says what */
};

/* Files of the first snapshot and of the second. */
static const char *const thread_files[] = { "threads.tsv", "threads.again.tsv" };
static const char *const mapping_files[] = { "smaps.tsv", "smaps.again.tsv" };

enum cell { CELL_NONE, CELL_SHARE, CELL_CPU, CELL_COUNT, CELL_BYTES };

/* As text: a number of each side, and by how much it has changed. */
struct column {
	const char *head;
	enum cell cell;
	int measure; /* -1: both together */
};

#define COLUMNS_MAX 2

/* Tables of stacks compare shares. */
static const struct form {
	const char *key, *title, *of, *name, *place;
	bool stacks, memory, functions;
	unsigned ranked;
	const char *measure[CONTRAST_MEASURES]; /* keys in JSON; NULL: not written */
	struct column column[COLUMNS_MAX];
} forms[DIFFERENCE_TABLES] = {
	[DIFFERENCE_FUNCTIONS] = {
		.key = "functions",
		.title = "Functions",
		.of = "CPU samples",
		.name = "function",
		.place = "module",
		.stacks = true,
		.functions = true,
		.ranked = 2,
		.measure = { "self", "total" },
		.column = { { "self", CELL_SHARE, 0 }, { "total", CELL_SHARE, 1 } },
	},
	[DIFFERENCE_STACK_THREADS] = {
		.key = "stack_threads",
		.title = "Threads by their stacks",
		.of = "CPU samples",
		.name = "thread",
		.place = "process",
		.stacks = true,
		.measure = { "self" },
		.column = { { "", CELL_SHARE, 0 } },
	},
	[DIFFERENCE_MEMORY_FUNCTIONS] = {
		.key = "memory_functions",
		.title = "Functions that touched new memory",
		.of = "bytes",
		.name = "function",
		.place = "module",
		.stacks = true,
		.memory = true,
		.functions = true,
		.ranked = 2,
		.measure = { "self", "total" },
		.column = { { "self", CELL_SHARE, 0 }, { "total", CELL_SHARE, 1 } },
	},
	[DIFFERENCE_MEMORY_THREADS] = {
		.key = "memory_threads",
		.title = "Threads that touched new memory",
		.of = "bytes",
		.name = "thread",
		.place = "process",
		.stacks = true,
		.memory = true,
		.measure = { "self" },
		.column = { { "", CELL_SHARE, 0 } },
	},
	[DIFFERENCE_THREADS] = {
		.key = "threads",
		.title = "Threads by name",
		.of = "CPU in percent of one core, within about a second; n: how many",
		.name = "thread",
		.measure = { "cpu_percent", "count" },
		.column = { { "cpu", CELL_CPU, 0 }, { "n", CELL_COUNT, 1 } },
	},
	[DIFFERENCE_MAPPINGS] = {
		.key = "mappings",
		.title = "Mappings",
		.of = "resident and swapped",
		.name = "mapping",
		.place = "permissions",
		.ranked = 2,
		.measure = { "rss_bytes", "swap_bytes" },
		.column = { { "", CELL_BYTES, -1 } },
	},
};

/* Which samples of stacks a side consists of, as stack_fold_read takes it. */
static unsigned phases_of(const struct difference *difference, enum contrast_side side)
{
	static const unsigned before = 1u << FUNCTION_TABLE_BEFORE, during = 1u << FUNCTION_TABLE_DURING;
	unsigned of = difference->machine ? 0 : STACK_FOLD_TARGET;

	if (difference->one)
		return of | (side == CONTRAST_A ? before : during);
	return of | (difference->phase == DIFFERENCE_ALL      ? before | during
		     : difference->phase == DIFFERENCE_BEFORE ? before
							      : during);
}

static const char *difference_label(const struct difference *difference, enum difference_table table,
				    enum contrast_side side)
{
	if (!difference->one)
		return side == CONTRAST_A ? "A" : "B";
	if (forms[table].stacks)
		return side == CONTRAST_A ? "before" : "during";
	return side == CONTRAST_A ? "first" : "second";
}

static bool difference_any(const struct difference *difference)
{
	for (size_t i = 0; i < DIFFERENCE_TABLES; i++)
		if (contrast_ready(&difference->table[i]))
			return true;
	return false;
}

/* ---- notes ---- */

/* Adds a note; damaged: so is the difference. The text is made safe to print. */
__attribute__((format(printf, 3, 4))) static void add_note(struct difference *difference, bool damaged,
							   const char *format, ...)
{
	char text[sizeof(difference->note[0])];
	va_list args;

	difference->damaged |= damaged;
	if (difference->notes == DIFFERENCE_NOTES_MAX)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	text_escape(difference->note[difference->notes++], sizeof(difference->note[0]), text, strlen(text));
}

static const char *side_subject(const struct difference *difference, enum contrast_side side)
{
	return difference->one ? "the incident" : side == CONTRAST_A ? "A" : "B";
}

/* The reason that incident.json gives for a file that was not written. */
static const char *why_absent(const struct incident *incident, const char *file)
{
	static const char *const names[][2] = {
		{ "functions.tsv", "functions" },
		{ "memory-functions.tsv", "memory-functions" },
		{ "threads.tsv", "threads" },
		{ "smaps.tsv", "smaps" },
		{ "threads.again.tsv", "threads-again" },
		{ "smaps.again.tsv", "smaps-again" },
	};

	for (size_t n = 0; n < ARRAY_LEN(names); n++)
		for (size_t i = 0; i < incident->capture_count; i++)
			if (strcmp(names[n][0], file) == 0 && strcmp(incident->captures[i].name, names[n][1]) == 0)
				return incident->captures[i].why;
	return "";
}

/*
 * Turns the error of a loader (rc) into a note, except for -ENOMEM, which is returned. absent: what
 * a missing file means; NULL: it is not mentioned.
 */
static int note_error(struct difference *difference, enum contrast_side side, const char *file, const char *absent,
		      int rc)
{
	enum contrast_side whose = difference->one ? CONTRAST_A : side;
	const char *why = why_absent(&difference->incident[whose], file);

	if (rc == -ENOMEM || rc == 0)
		return rc;
	if (rc != -ENOENT)
		add_note(difference, true, "%s: %s is %s", side_subject(difference, side), file,
			 rc == -EBADMSG ? "damaged" : strerror(-rc));
	else if (absent)
		add_note(difference, false, "%s has no %s: %s%s%s", side_subject(difference, side), file, absent,
			 why[0] ? ", " : "", why);
	return 0;
}

/* ---- loading ---- */

static int load_stacks(struct difference *difference, enum contrast_side side, int fd, enum function_table_unit unit)
{
	bool memory = unit == FUNCTION_TABLE_IN_BYTES;
	enum difference_table functions = memory ? DIFFERENCE_MEMORY_FUNCTIONS : DIFFERENCE_FUNCTIONS;
	enum difference_table threads = memory ? DIFFERENCE_MEMORY_THREADS : DIFFERENCE_STACK_THREADS;
	int rc = load_functions(fd, unit, side, phases_of(difference, side), &difference->table[functions],
				&difference->table[threads]);

	/* Both sides come from the same file: an error is noted once. */
	if (difference->one && side == CONTRAST_B && rc != -ENOMEM)
		return 0;
	return note_error(difference, side, memory ? "memory-functions.tsv" : "functions.tsv",
			  memory ? NULL : "its stacks cannot be compared", rc);
}

static bool has_stacks(const struct difference *difference)
{
	return contrast_ready(&difference->table[DIFFERENCE_FUNCTIONS]) ||
	       contrast_ready(&difference->table[DIFFERENCE_MEMORY_FUNCTIONS]);
}

static int load_side(struct difference *difference, enum contrast_side side, int fd)
{
	bool again = difference->one && side == CONTRAST_B, stacks;
	int rc = load_stacks(difference, side, fd, FUNCTION_TABLE_IN_SAMPLES);

	if (rc == 0)
		rc = load_stacks(difference, side, fd, FUNCTION_TABLE_IN_BYTES);
	stacks = has_stacks(difference);
	if (rc == 0)
		rc = note_error(difference, side, thread_files[again], again ? NULL : "its threads cannot be compared",
				load_threads(fd, thread_files[again], side, &difference->table[DIFFERENCE_THREADS]));
	if (rc == 0)
		rc = note_error(
			difference, side, mapping_files[again],
			!again   ? "its mappings cannot be compared"
			: stacks ? "there is no second snapshot, so only its stacks before and during can be compared"
				 : "there is no second snapshot",
			load_mappings(fd, mapping_files[again], side, &difference->table[DIFFERENCE_MAPPINGS]));
	return rc;
}

/* The kernel counts stacks and threads all the same. */
static void note_holes(struct difference *difference, enum contrast_side side)
{
	const struct sample_window_coverage *coverage = &difference->incident[side].coverage;
	char text[192];

	if (story_holes(coverage, STORY_HOLE_NS, text, sizeof(text)))
		add_note(difference, false, "%s: %s%s", side_subject(difference, side), text,
			 coverage->longest_hole_ns >= STORY_HOLE_NS ? "; the CPU used in it is known as a sum at most"
								    : "");
}

/* Of functions that have no names no table says more than how much they took. */
static int note_nameless(struct difference *difference, enum contrast_side side, int fd)
{
	AUTO_FREE struct functions *functions = malloc(sizeof(*functions));
	int rc = functions ? functions_load(fd, FUNCTION_TABLE_IN_SAMPLES, functions) : -ENOMEM;

	if (rc == 0 && functions->advice[0])
		add_note(difference, false, "%s: %s", side_subject(difference, side), functions->advice);
	return rc;
}

static void load_incident(struct difference *difference, enum contrast_side side, int fd)
{
	struct incident_load_glance seen;

	incident_load_glance(fd, &difference->incident[side], &seen);
	if (seen.damaged)
		add_note(difference, true, "%s is damaged: %s", side_subject(difference, side), seen.why);
	note_holes(difference, side);
}

static const char *plural_s(uint64_t count)
{
	return count == 1 ? "" : "s";
}

static void note_left_out(struct difference *difference, enum difference_table table, enum contrast_side side)
{
	const char *label = difference_label(difference, table, side);
	unsigned long long out = difference->table[table].left_out[side];

	if (out == 0)
		return;
	if (forms[table].stacks)
		add_note(difference, false, "%s leaves out %llu more %s%s%s", side_subject(difference, side), out,
			 forms[table].functions ? "function" : "thread", plural_s(out),
			 forms[table].memory ? " of memory" : "");
	else if (table == DIFFERENCE_THREADS)
		add_note(difference, false, "%s: the CPU of %llu thread%s is not known, and counts as 0", label, out,
			 plural_s(out));
	else
		add_note(difference, true, "%s: %llu line%s of %s %s damaged", label, out, plural_s(out),
			 mapping_files[difference->one && side == CONTRAST_B], out == 1 ? "is" : "are");
}

/* Notes what is missing from a table. */
static void note_gaps(struct difference *difference, enum difference_table table)
{
	const struct contrast *contrast = &difference->table[table];

	if (table == DIFFERENCE_MEMORY_FUNCTIONS && contrast->known[CONTRAST_A] != contrast->known[CONTRAST_B])
		add_note(difference, false, "only %s has stacks of memory: they cannot be compared",
			 contrast->known[CONTRAST_A] ? "A" : "B");
	for (unsigned side = 0; side < CONTRAST_SIDES && contrast_ready(contrast); side++) {
		if (!difference->one || side == CONTRAST_A || !forms[table].stacks)
			note_left_out(difference, table, side);
		if (forms[table].functions && contrast->sum[side] == 0)
			add_note(difference, false, "%s: nothing of that time was sampled%s, so all of it counts as 0",
				 difference_label(difference, table, side), forms[table].memory ? " of memory" : "");
	}
}

/*
 * second < 0: the earlier and the later part of the first are compared. *ret was zeroed, but for
 * phase, and is to be released in any case. 0 (the notes say what could not be read); -ENOMEM.
 */
static int difference_load(int first, int second, struct difference *ret)
{
	int rc;

	ret->one = second < 0;
	for (size_t i = 0; i < DIFFERENCE_TABLES; i++) {
		ret->table[i].shares = forms[i].stacks;
		ret->table[i].ranked = forms[i].ranked;
	}
	load_incident(ret, CONTRAST_A, first);
	if (!ret->one)
		load_incident(ret, CONTRAST_B, second);
	rc = load_side(ret, CONTRAST_A, first);
	if (rc == 0)
		rc = load_side(ret, CONTRAST_B, ret->one ? first : second);
	if (rc == 0)
		rc = note_nameless(ret, CONTRAST_A, first);
	if (rc == 0 && !ret->one)
		rc = note_nameless(ret, CONTRAST_B, second);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < DIFFERENCE_TABLES; i++)
		contrast_sort(&ret->table[i]);
	for (size_t i = 0; i < DIFFERENCE_TABLES; i++)
		note_gaps(ret, (enum difference_table)i);
	return 0;
}

/* ---- the head ---- */

/* The time between the two snapshots of the memory. False: not known. */
static bool time_between_snapshots(const struct incident *incident, char *buf, size_t cap)
{
	const struct incident_capture *snapshot[2] = { NULL, NULL };

	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];

		if (strcmp(capture->name, "smaps") == 0)
			snapshot[0] = capture;
		else if (strcmp(capture->name, "smaps-again") == 0)
			snapshot[1] = capture;
	}
	if (!snapshot[0] || !snapshot[1] || !snapshot[0]->has_at || !snapshot[1]->has_at ||
	    snapshot[1]->at_ns <= snapshot[0]->at_ns)
		return false;
	units_format_duration(buf, cap, (uint64_t)snapshot[1]->at_ns - (uint64_t)snapshot[0]->at_ns);
	return true;
}

static void tell_incident(const struct incident *incident, FILE *file)
{
	char text[512], comparison[128];

	text_escape(text, sizeof(text), incident->id, strlen(incident->id));
	fprintf(file, "%s: ", text[0] ? text : "an incident without a name");
	text_escape(text, sizeof(text), incident->rule.metric, strlen(incident->rule.metric));
	if (incident->kind == INCIDENT_RULE)
		fprintf(file, "%s %s", text, story_comparison(&incident->rule, comparison, sizeof(comparison)));
	else
		fputs(incident->kind == INCIDENT_MANUAL  ? "asked for by hand"
		      : incident->kind == INCIDENT_STORM ? "firings without an incident of their own"
							 : "saved from a ring",
		      file);
	text_escape(text, sizeof(text), incident->hostname, strlen(incident->hostname));
	if (text[0])
		fprintf(file, ", on %s", text);
}

static void tell_looks(const struct difference *difference, FILE *file)
{
	bool stacks = has_stacks(difference);
	bool snapshots = contrast_ready(&difference->table[DIFFERENCE_THREADS]) ||
			 contrast_ready(&difference->table[DIFFERENCE_MAPPINGS]);
	char between[64];

	fputs(stacks ? "its stacks before the spike and during it" : "", file);
	fputs(stacks && snapshots ? "; " : "", file);
	if (snapshots)
		fputs("its two snapshots of threads and memory", file);
	if (snapshots && time_between_snapshots(&difference->incident[CONTRAST_A], between, sizeof(between)))
		fprintf(file, ", %s apart", between);
	fputs(!stacks && !snapshots ? "nothing of it can be compared" : "", file);
}

/*
 * A line on the incident of that side; with one incident only, B's line says what is compared. *ret
 * is for free(3). 0 or -ENOMEM.
 */
static int difference_headline(const struct difference *difference, enum contrast_side side, char **ret)
{
	char *text = NULL;
	size_t len = 0;
	FILE *file = open_memstream(&text, &len);

	if (!file)
		return -ENOMEM;
	if (difference->one && side == CONTRAST_B)
		tell_looks(difference, file);
	else
		tell_incident(&difference->incident[side], file);
	if (fclose(file) != 0) {
		free(text);
		return -ENOMEM;
	}
	*ret = text;
	return 0;
}

/* ---- as JSON: a row that is missing on a side is null there, as is a missing table ---- */

#define ROWS_ALL SIZE_MAX

static const char *const side_keys[CONTRAST_SIDES] = { "a", "b" };

static double divisor_of(enum difference_table table, unsigned measure)
{
	return forms[table].column[measure].cell == CELL_CPU ? CPU_PERCENT : 1;
}

static void put_amount(struct json_writer *json, uint64_t amount, double divisor)
{
	if (divisor > 1)
		json_double(json, (double)amount / divisor);
	else
		json_u64(json, amount);
}

static void put_side(struct json_writer *json, enum difference_table table, const struct contrast_row *row,
		     enum contrast_side side)
{
	json_key(json, side_keys[side]);
	if (!row->there[side]) {
		json_null(json);
		return;
	}
	json_begin_object(json);
	for (unsigned m = 0; m < CONTRAST_MEASURES; m++) {
		if (!forms[table].measure[m])
			continue;
		json_key(json, forms[table].measure[m]);
		put_amount(json, row->amount[side][m], divisor_of(table, m));
	}
	json_end_object(json);
}

static void put_row(struct json_writer *json, enum difference_table table, const struct contrast *contrast,
		    const struct contrast_row *row)
{
	json_begin_object(json);
	json_member_text(json, forms[table].name, row->name);
	if (forms[table].place)
		json_member_text(json, forms[table].place, row->place);
	put_side(json, table, row, CONTRAST_A);
	put_side(json, table, row, CONTRAST_B);
	json_member_object(json, contrast->shares ? "growth_points" : "growth");
	for (unsigned m = 0; m < CONTRAST_MEASURES; m++) {
		if (!forms[table].measure[m])
			continue;
		json_member_double(json, forms[table].measure[m],
				   contrast_growth(contrast, row, m) / divisor_of(table, m));
	}
	json_end_object(json);
	json_end_object(json);
}

static void put_rows(struct json_writer *json, enum difference_table table, const struct contrast *contrast, size_t max)
{
	size_t head = contrast->count, tail = 0;

	if (max != ROWS_ALL)
		contrast_choose(contrast, max, &head, &tail);
	json_member_array(json, "rows");
	for (size_t i = 0; i < head; i++)
		put_row(json, table, contrast, &contrast->rows[i]);
	for (size_t i = contrast->count - tail; i < contrast->count; i++)
		put_row(json, table, contrast, &contrast->rows[i]);
	json_end_array(json);
}

static void put_counts(struct json_writer *json, const char *key, const uint64_t counts[static CONTRAST_SIDES])
{
	json_member_object(json, key);
	for (unsigned side = 0; side < CONTRAST_SIDES; side++)
		json_member_u64(json, side_keys[side], counts[side]);
	json_end_object(json);
}

static void put_table(struct json_writer *json, const struct difference *difference, enum difference_table table,
		      size_t rows)
{
	const struct contrast *contrast = &difference->table[table];

	json_key(json, forms[table].key);
	if (!contrast_ready(contrast)) {
		json_null(json);
		return;
	}
	json_begin_object(json);
	if (forms[table].stacks) {
		json_member_text(json, "unit", forms[table].memory ? "bytes" : "samples");
		put_counts(json, "all", contrast->sum);
	}
	put_counts(json, table == DIFFERENCE_THREADS ? "cpu_unknown" : "left_out", contrast->left_out);
	put_rows(json, table, contrast, rows);
	json_end_object(json);
}

static void put_incident(struct json_writer *json, const char *key, const struct incident *incident)
{
	json_member_object(json, key);
	json_member_text(json, "id", incident->id);
	json_member_text(json, "kind", incident_kind_name(incident->kind));
	json_member_u64(json, "time_ns", incident->wall.ns);
	json_member_text(json, "hostname", incident->hostname);
	json_member_text(json, "target", incident->target.name);
	json_member_text(json, "rule", incident->rule.name);
	json_end_object(json);
}

/* Members of the object that has begun. Errors stay in the writer. */
static void difference_json(const struct difference *difference, size_t rows, struct json_writer *json)
{
	put_incident(json, "a", &difference->incident[CONTRAST_A]);
	if (difference->one)
		json_member_null(json, "b");
	else
		put_incident(json, "b", &difference->incident[CONTRAST_B]);
	json_member_text(json, "phase", difference->one ? "before, during" : phase_names[difference->phase]);
	json_member_text(json, "processes", difference->machine ? "all" : "target");
	json_member_bool(json, "damaged", difference->damaged);
	json_member_array(json, "notes");
	for (size_t i = 0; i < difference->notes; i++)
		json_string(json, difference->note[i]);
	json_end_array(json);
	for (unsigned i = 0; i < DIFFERENCE_TABLES; i++)
		put_table(json, difference, i, rows);
}

/*
 * ---- as text ----
 *
 * Columns for A, B and the change (on narrow lines only the change), then names. A row that is on
 * one side only has a dash on the other, and the side's label in the column "only".
 */

#define WIDTH_MIN 40
#define WIDTH_FULL 72   /* narrower lines have no columns for A and B */
#define SHARE_MAX 999.9 /* a damaged file may have more samples in a function than in all */
#define NAME_MIN 8

/* Of a number, and of a change, which has a sign. */
static int cell_width(enum cell cell, bool change)
{
	static const int widths[] = { [CELL_SHARE] = 6, [CELL_CPU] = 6, [CELL_COUNT] = 4, [CELL_BYTES] = 9 };

	return widths[cell] + (change ? 1 : 0);
}

static bool has_column(const struct form *form, size_t i)
{
	return i < COLUMNS_MAX && form->column[i].cell != CELL_NONE;
}

static int group_width(const struct form *form, bool change)
{
	int width = -1;

	for (size_t i = 0; has_column(form, i); i++)
		width += 1 + cell_width(form->column[i].cell, change);
	return width;
}

static double clamp_to(double value, double most)
{
	return value > most ? most : value < -most ? -most : value;
}

static void print_number(enum cell cell, double value, bool change, FILE *file)
{
	const char *sign = change && value > 0 ? "+" : change && value < 0 ? "-" : "";
	char number[64], text[72];

	/* No sign for what is printed as 0.0. */
	if (cell == CELL_CPU)
		value /= CPU_PERCENT;
	if ((cell == CELL_SHARE || cell == CELL_CPU) && fabs(value) < 0.05)
		sign = "";
	if (cell == CELL_SHARE)
		snprintf(number, sizeof(number), "%.1f", fabs(clamp_to(value, SHARE_MAX)));
	else if (cell == CELL_CPU)
		snprintf(number, sizeof(number), fabs(value) < 9999 ? "%.1f" : "%.0f", fabs(clamp_to(value, 9999999)));
	else if (cell == CELL_COUNT)
		snprintf(number, sizeof(number), "%.0f", fabs(value));
	else
		units_format_bytes(number, sizeof(number), value < 0 ? (uint64_t)-value : (uint64_t)value);
	snprintf(text, sizeof(text), "%s%s", sign, number);
	fprintf(file, "%*s", cell_width(cell, change), text);
}

static double side_value(const struct contrast *contrast, const struct contrast_row *row, enum contrast_side side,
			 int measure)
{
	if (measure >= 0)
		return contrast_value(contrast, row, side, (unsigned)measure);
	return contrast_value(contrast, row, side, 0) + contrast_value(contrast, row, side, 1);
}

/* A table on its way to the screen. */
struct page {
	const struct difference *difference;
	enum difference_table table;
	const struct form *form;
	const struct contrast *contrast;
	size_t head, tail; /* of the rows */
	size_t width, only_width, name_width, place_width;
	const char **names; /* of the rows; NULL: no memory, and then equal ones may be cut alike */
	size_t name_count;
	bool full;
	FILE *file;
};

/* Of one side, or (side is CONTRAST_SIDES) the change. */
static void print_numbers(const struct page *page, const struct contrast_row *row, unsigned side)
{
	const struct contrast *contrast = page->contrast;
	bool change = side == CONTRAST_SIDES;

	for (size_t i = 0; has_column(page->form, i); i++) {
		const struct column *column = &page->form->column[i];
		double value = side_value(contrast, row, change ? CONTRAST_B : side, column->measure);

		if (change)
			value -= side_value(contrast, row, CONTRAST_A, column->measure);
		if (i > 0)
			fputc(' ', page->file);
		if (change || row->there[side])
			print_number(column->cell, value, change, page->file);
		else
			fprintf(page->file, "%*s", cell_width(column->cell, false), "-");
	}
	fputs("  ", page->file);
}

/* ---- names ---- */

/* Of a module's path, the file name. */
static const char *place_of(enum difference_table table, const struct contrast_row *row)
{
	const char *slash = strrchr(row->place, '/');

	return forms[table].functions && slash && slash[1] ? slash + 1 : row->place;
}

static const char *name_of(const struct contrast_row *row)
{
	return row->name[0] ? row->name : "?";
}

/* Rows that have grown, then rows that have shrunk, in each the largest change first. */
static const struct contrast_row *row_of(const struct page *page, size_t i)
{
	return &page->contrast->rows[i < page->head ? i : page->contrast->count - 1 - (i - page->head)];
}

static size_t widest_of(size_t width, const char *text)
{
	size_t have = output_characters(text, strlen(text));

	return have > width ? have : width;
}

/* 0: all rows are on both sides, and there is no such column. */
static size_t only_width(const struct page *page)
{
	size_t width = 0;

	for (size_t i = 0; i < page->head + page->tail; i++)
		for (unsigned side = 0; side < CONTRAST_SIDES; side++)
			if (!row_of(page, i)->there[1 - side])
				width = widest_of(width > 0 ? width : strlen("only"),
						  difference_label(page->difference, page->table, side));
	return width;
}

/* Names have what the numbers leave; of that, the place no more than two fifths. */
static void measure_columns(struct page *page)
{
	size_t name = strlen(page->form->name), place = page->form->place ? strlen(page->form->place) : 0;
	size_t numbers = (size_t)group_width(page->form, true) + 2, left;

	page->only_width = only_width(page);
	if (page->full)
		numbers += 2 * ((size_t)group_width(page->form, false) + 2);
	for (size_t i = 0; i < page->head + page->tail; i++) {
		name = widest_of(name, name_of(row_of(page, i)));
		place = page->form->place ? widest_of(place, place_of(page->table, row_of(page, i))) : 0;
	}
	left = page->width - numbers - (page->only_width > 0 ? page->only_width + 2 : 0);
	if (!page->full || !page->form->place || left < 2 * NAME_MIN + 2)
		place = 0;
	if (place > 0 && name + 2 + place > left && place > left * 2 / 5)
		place = left * 2 / 5;
	page->place_width = place;
	left -= place > 0 ? place + 2 : 0;
	page->name_width = name < left ? name : left;
}

static void print_names(const struct page *page, const char *only, const char *name, const char *place)
{
	const unsigned cut = OUTPUT_CUT_DOTS | OUTPUT_CUT_PATHS;
	bool has_place = page->place_width > 0 && *place;
	struct output_names names = { page->names, page->name_count };

	if (page->only_width > 0) {
		output_fit(only, page->only_width, cut | OUTPUT_PAD_RIGHT, page->file);
		fputs("  ", page->file);
	}
	output_fit_among(name, &names, page->name_width, has_place ? cut | OUTPUT_PAD_RIGHT : cut, page->file);
	if (has_place) {
		fputs("  ", page->file);
		output_fit(place, page->place_width, cut, page->file);
	}
	fputc('\n', page->file);
}

static void print_heads(const struct page *page, bool change)
{
	for (size_t i = 0; has_column(page->form, i); i++) {
		const struct column *column = &page->form->column[i];

		fprintf(page->file, "%s%*s", i > 0 ? " " : "", cell_width(column->cell, change), column->head);
	}
	fputs("  ", page->file);
}

/* Labels of the sides; below them, if a side has more than one number, those of the numbers. */
static void print_header(const struct page *page)
{
	const struct form *form = page->form;
	const char *place = form->place ? form->place : "";

	for (unsigned side = 0; page->full && side < CONTRAST_SIDES; side++)
		fprintf(page->file, "%*s  ", group_width(form, false),
			difference_label(page->difference, page->table, side));
	fprintf(page->file, "%*s", group_width(form, true), "change");
	if (has_column(form, 1)) {
		fputc('\n', page->file);
		for (unsigned side = 0; page->full && side < CONTRAST_SIDES; side++)
			print_heads(page, false);
		print_heads(page, true);
	} else {
		fputs("  ", page->file);
	}
	print_names(page, "only", form->name, place);
}

static void print_row(const struct page *page, const struct contrast_row *row)
{
	const char *only = "";

	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		if (page->full)
			print_numbers(page, row, side);
		if (!row->there[1 - side])
			only = difference_label(page->difference, page->table, side);
	}
	print_numbers(page, row, CONTRAST_SIDES);
	print_names(page, only, name_of(row), place_of(page->table, row));
}

/* "Functions (percent of its own CPU samples; A: 990, B: 76)" */
static void print_title(const struct page *page)
{
	char text[300], amount[CONTRAST_SIDES][40];

	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		uint64_t sum = page->contrast->sum[side];

		if (forms[page->table].memory)
			units_format_bytes(amount[side], sizeof(amount[side]), sum);
		else
			snprintf(amount[side], sizeof(amount[side]), "%" PRIu64, sum);
	}
	if (page->contrast->shares)
		snprintf(text, sizeof(text), "%s (percent of %s %s; %s: %s, %s: %s)", page->form->title,
			 page->difference->machine ? "all" : "its own", page->form->of,
			 difference_label(page->difference, page->table, CONTRAST_A), amount[CONTRAST_A],
			 difference_label(page->difference, page->table, CONTRAST_B), amount[CONTRAST_B]);
	else
		snprintf(text, sizeof(text), "%s (%s)", page->form->title, page->form->of);
	fputc('\n', page->file);
	output_wrap(text, page->width, page->file);
}

static void print_table(const struct difference *difference, enum difference_table table, size_t rows, size_t width,
			FILE *file)
{
	struct page page = { .difference = difference,
			     .table = table,
			     .form = &forms[table],
			     .contrast = &difference->table[table],
			     .width = width,
			     .full = width >= WIDTH_FULL,
			     .file = file };
	AUTO_FREE const char **names = NULL;
	size_t changed;

	if (!contrast_ready(page.contrast))
		return;
	changed = contrast_choose(page.contrast, rows, &page.head, &page.tail);
	print_title(&page);
	if (changed == 0) {
		fputs(page.contrast->count > 0 ? "  nothing has changed\n" : "  there are none\n", file);
		return;
	}
	measure_columns(&page);
	names = calloc(page.head + page.tail + 1, sizeof(*names));
	for (size_t i = 0; names && i < page.head + page.tail; i++)
		names[page.name_count++] = name_of(row_of(&page, i));
	page.names = names;
	if (page.head + page.tail > 0)
		print_header(&page);
	for (size_t i = 0; i < page.head + page.tail; i++)
		print_row(&page, row_of(&page, i));
	if (changed > page.head + page.tail)
		fprintf(file, "  ... and %zu more\n", changed - page.head - page.tail);
}

static int print_head(const struct difference *difference, size_t width, FILE *file)
{
	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		AUTO_FREE char *line = NULL;
		AUTO_FREE char *whole = NULL;
		const char *label = !difference->one     ? (side == CONTRAST_A ? "A" : "B")
				    : side == CONTRAST_A ? "Incident"
							 : "Compared";

		if (difference_headline(difference, side, &line) < 0 || asprintf(&whole, "%s: %s", label, line) < 0)
			return -ENOMEM;
		output_wrap(whole, width, file);
	}
	return 0;
}

/* At most rows of each table. 0 or -ENOMEM. */
static int difference_print(const struct difference *difference, bool memory_first, size_t rows, size_t width,
			    FILE *file)
{
	size_t line = width > WIDTH_MIN ? width : WIDTH_MIN;
	int rc = print_head(difference, line, file);

	if (rc < 0)
		return rc;
	for (unsigned memory = 0; memory < 2; memory++)
		for (unsigned i = 0; i < DIFFERENCE_THREADS; i++)
			if (forms[i].memory == ((memory == 1) != memory_first))
				print_table(difference, i, rows, line, file);
	for (unsigned i = DIFFERENCE_THREADS; i < DIFFERENCE_TABLES; i++)
		print_table(difference, i, rows, line, file);
	if (difference->notes > 0)
		fputc('\n', file);
	for (size_t i = 0; i < difference->notes; i++) {
		AUTO_FREE char *text = NULL;

		if (asprintf(&text, "Note: %s.", difference->note[i]) < 0)
			return -ENOMEM;
		output_wrap(text, line, file);
	}
	return 0;
}

/* ---- as a page of HTML: the headlines and the notes as text, then the JSON and the stacks ---- */

/* Stacks with two counts a line, as folded_diff_write has them; NULL: there are none. */
struct html_stacks {
	const struct buffer *cpu, *memory;
};

/* *ret is for free(3). 0 or -ENOMEM. */
static int make_words(const struct difference *difference, char **ret)
{
	char *text = NULL;
	size_t len = 0;
	FILE *file = open_memstream(&text, &len);
	int rc = file ? 0 : -ENOMEM;

	for (unsigned side = 0; side < CONTRAST_SIDES && rc == 0; side++) {
		AUTO_FREE char *line = NULL;

		rc = difference_headline(difference, side, &line);
		if (rc == 0)
			fprintf(file, "%s%s. ", difference->one ? "" : side == CONTRAST_A ? "A: " : "B: ", line);
	}
	for (size_t i = 0; i < difference->notes && rc == 0; i++)
		fprintf(file, "%s. ", difference->note[i]);
	if (file && fclose(file) != 0)
		rc = -ENOMEM;
	if (rc == 0)
		*ret = text;
	else
		free(text);
	return rc;
}

static void put_stacks(struct json_writer *json, const char *key, const struct buffer *stacks)
{
	json_key(json, key);
	if (stacks)
		json_string_len(json, stacks->data ? stacks->data : "", stacks->len);
	else
		json_null(json);
}

static int put_data(const struct difference *difference, const struct html_stacks *stacks, const struct sink *sink)
{
	AUTO(json_writer_closep) struct json_writer *json = NULL;
	int rc = json_writer_new(report_json_sink(sink), false, &json);

	if (rc < 0)
		return rc;
	json_begin_object(json);
	json_member_u64(json, "format", REPORT_DATA_FORMAT);
	json_member_object(json, "diff");
	difference_json(difference, ROWS_ALL, json);
	put_stacks(json, "cpu_stacks", stacks->cpu);
	put_stacks(json, "memory_stacks", stacks->memory);
	json_end_object(json);
	json_end_object(json);
	return json_writer_close(TAKE(json));
}

/* 0; -ENOMEM; what the sink returned. */
static int difference_html_write(const struct difference *difference, const struct html_stacks *stacks,
				 const struct sink *sink)
{
	AUTO_FREE char *words = NULL;
	int rc = make_words(difference, &words);

	if (rc == 0)
		rc = report_page_begin(sink, "Difference", words);
	if (rc == 0)
		rc = sink_write(sink, REPORT_DATA_BEGIN, strlen(REPORT_DATA_BEGIN));
	if (rc == 0)
		rc = put_data(difference, stacks, sink);
	return rc == 0 ? report_page_end(sink) : rc;
}

/* ---- the command ---- */

#define ROWS_DEFAULT 10

struct job {
	int fd[CONTRAST_SIDES]; /* the second is -1: there is one incident only */
	const char *name[CONTRAST_SIDES];
	enum difference_phase phase;
	bool memory, machine, json, folded, html, scale;
	uint64_t rows;
};

static int wrong_usage(const char *why)
{
	fprintf(stderr, "%s: %s\nTry '%s --help'.\n", command, why, command);
	return EXIT_USAGE;
}

/* The folded stacks of both sides. */
struct sides {
	struct buffer text[CONTRAST_SIDES];
};

static void release_sides(struct sides *sides)
{
	for (size_t i = 0; i < CONTRAST_SIDES; i++)
		buffer_release(&sides->text[i]);
}

static int complain_file(const struct job *job, size_t side, const char *file, int rc)
{
	fprintf(stderr, "%s: ", command);
	output_escaped(stderr, job->name[job->fd[side] < 0 ? 0 : side]);
	fprintf(stderr, "/%s: %s\n", file,
		rc == -EBADMSG  ? "damaged"
		: rc == -ENOENT ? "not there: no stacks were recorded"
				: strerror(-rc));
	return rc;
}

/* -ENOENT: a side has no profile (no message); -ENOMEM; other errors were explained on stderr. */
static int read_profiles(const struct job *job, const struct difference *difference, bool memory, struct sides *ret)
{
	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		int fd = job->fd[side] < 0 ? job->fd[0] : job->fd[side];
		int rc = stack_fold_read(fd, memory, phases_of(difference, side), &ret->text[side]);

		if (rc == -ENOENT || rc == -ENOMEM)
			return rc;
		if (rc < 0)
			return complain_file(job, side, stack_fold_profile(memory), rc);
	}
	return 0;
}

/* From the folded files, which have no phases. As read_profiles; not quiet: explains -ENOENT. */
static int read_folded(const struct job *job, bool memory, bool quiet, struct sides *ret)
{
	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		int rc = job->fd[side] < 0 ? -ENOENT : stack_fold_read_folded(job->fd[side], memory, &ret->text[side]);

		if (rc == -ENOMEM || (rc == -ENOENT && quiet))
			return rc;
		if (rc < 0)
			return complain_file(job, side, stack_fold_folded(memory), rc);
	}
	return 0;
}

static int read_sides(const struct job *job, const struct difference *difference, bool memory, bool quiet,
		      struct sides *ret)
{
	int rc = read_profiles(job, difference, memory, ret);

	if (rc != -ENOENT)
		return rc;
	release_sides(ret);
	rc = read_folded(job, memory, quiet, ret);
	if (rc == 0 && (difference->phase != DIFFERENCE_ALL || !difference->machine))
		fprintf(stderr,
			"%s: not both have a %s: stacks are those of before and during together, of all processes\n",
			command, stack_fold_profile(memory));
	return rc;
}

static int write_folded(const struct job *job, const struct difference *difference, FILE *file)
{
	AUTO(release_sides) struct sides sides = { 0 };
	const struct sink sink = output_sink(file);
	int rc = read_sides(job, difference, job->memory, false, &sides);

	if (rc == 0)
		rc = folded_diff_write(&sides.text[CONTRAST_A], &sides.text[CONTRAST_B], job->scale, &sink);
	if (rc == -ENOMEM)
		return output_no_memory();
	return rc == 0 ? EXIT_OK : EXIT_TROUBLE;
}

/* 0, also if there are none (see *ret_there); -ENOMEM; other errors were explained on stderr. */
static int pair_stacks(const struct job *job, const struct difference *difference, bool memory, struct buffer *ret,
		       bool *ret_there)
{
	AUTO(release_sides) struct sides sides = { 0 };
	struct sink sink = sink_buffer(ret);
	int rc = read_sides(job, difference, memory, true, &sides);

	*ret_there = rc == 0;
	if (rc == 0)
		return folded_diff_write(&sides.text[CONTRAST_A], &sides.text[CONTRAST_B], false, &sink);
	return rc == -ENOENT ? 0 : rc;
}

/* 0 or -ENOMEM. Stacks that are damaged make the difference damaged. */
static int write_html(const struct job *job, struct difference *difference, FILE *file)
{
	AUTO(buffer_release) struct buffer cpu = { 0 };
	AUTO(buffer_release) struct buffer memory = { 0 };
	const struct sink sink = output_sink(file);
	struct html_stacks stacks;
	bool has_cpu = false, has_memory = false;
	int rc = pair_stacks(job, difference, false, &cpu, &has_cpu);

	difference->damaged |= rc < 0;
	if (rc != -ENOMEM)
		rc = pair_stacks(job, difference, true, &memory, &has_memory);
	if (rc == -ENOMEM)
		return rc;
	difference->damaged |= rc < 0;
	stacks = (struct html_stacks){ has_cpu ? &cpu : NULL, has_memory ? &memory : NULL };
	rc = difference_html_write(difference, &stacks, &sink);
	return rc == -ENOMEM ? rc : 0; /* the stream keeps its errors */
}

/* 0 or -ENOMEM. */
static int write_json(const struct job *job, const struct difference *difference, FILE *file)
{
	AUTO(json_writer_closep) struct json_writer *json = NULL;
	int rc = json_writer_new(output_sink(file), true, &json);

	if (rc == 0) {
		json_begin_object(json);
		difference_json(difference, job->rows == UINT64_MAX ? ROWS_ALL : (size_t)job->rows, json);
		json_end_object(json);
		rc = json_writer_close(TAKE(json));
	}
	return rc == -ENOMEM ? rc : 0;
}

/* 0 or -ENOMEM. */
static int write_text(const struct job *job, const struct difference *difference, FILE *file)
{
	struct plot_style style;

	plot_style_detect(file, &style);
	return difference_print(difference, job->memory, job->rows == UINT64_MAX ? ROWS_DEFAULT : (size_t)job->rows,
				style.width, file);
}

static void free_difference(struct difference **difference)
{
	for (size_t i = 0; *difference && i < DIFFERENCE_TABLES; i++)
		contrast_release(&(*difference)->table[i]);
	free(*difference);
}

static int write_output(void *ctx, FILE *file, bool *keep)
{
	const struct job *job = ctx;
	AUTO(free_difference) struct difference *difference = calloc(1, sizeof(*difference));
	int rc;

	if (!difference)
		return output_no_memory();
	difference->phase = job->phase;
	difference->machine = job->machine;
	if (job->folded) {
		difference->one = job->fd[1] < 0;
		return write_folded(job, difference, file);
	}
	if (difference_load(job->fd[0], job->fd[1], difference) < 0)
		return output_no_memory();
	rc = job->html   ? write_html(job, difference, file)
	     : job->json ? write_json(job, difference, file)
			 : write_text(job, difference, file);
	if (rc < 0)
		return output_no_memory();
	*keep = true;
	for (size_t i = 0; i < difference->notes && difference->damaged && (job->json || job->html); i++)
		fprintf(stderr, "%s: %s\n", command, difference->note[i]);
	return difference->damaged || !difference_any(difference) ? EXIT_TROUBLE : EXIT_OK;
}

static bool find_phase(const char *name, enum difference_phase *ret)
{
	const char *nearest;

	for (unsigned i = 0; i < DIFFERENCE_PHASES; i++) {
		if (strcmp(name, phase_names[i]) == 0) {
			*ret = i;
			return true;
		}
	}
	nearest = options_nearest(name, phase_names, DIFFERENCE_PHASES);
	fprintf(stderr, "%s: --phase \"", command);
	output_escaped(stderr, name);
	fprintf(stderr, "\" is not known; %s%s\nTry '%s --help'.\n",
		nearest ? "did you mean " : "it is during, before or all", nearest ? nearest : "", command);
	return false;
}

/* -1: nothing is wrong; else EXIT_USAGE, explained on stderr. */
static int check_usage(const struct job *job, const char *phase, const char *output, bool one)
{
	if (job->json + job->folded + job->html > 1)
		return wrong_usage("only one of --json, --folded and --html");
	if (job->scale && !job->folded)
		return wrong_usage("--normalize is for --folded");
	if (phase && one)
		return wrong_usage("--phase is for two incidents: of one, before is compared with during");
	if (job->html && strcmp(output, "-") == 0 && isatty(STDOUT_FILENO))
		return wrong_usage("--html does not write to a terminal: use --output FILE");
	return -1;
}

static int run_job(struct job *job, const char *directory, const char *output)
{
	AUTO_CLOSE int first = -1;
	AUTO_CLOSE int second = -1;
	struct output_file out = { .command = command, .path = output, .write = write_output, .ctx = job };
	int rc = incident_pick(command, directory, job->name[0], &first);

	if (rc == 0 && job->name[1])
		rc = incident_pick(command, directory, job->name[1], &second);
	if (rc != 0)
		return rc == INCIDENT_PICK_FOREIGN ? EXIT_USAGE : EXIT_TROUBLE;
	if (job->html && !report_page_built()) {
		fprintf(stderr,
			"%s: this spikewatch was built without npm, so it has no --html; everything else works\n",
			command);
		return EXIT_TROUBLE;
	}
	job->fd[0] = first;
	job->fd[1] = second;
	return output_file_write(&out);
}

int diff_command(int argc, char **argv)
{
	const char *directory = NULL, *output = "-", *phase = NULL;
	struct job job = { .rows = UINT64_MAX };
	const struct option_spec options[] = {
		{ 0, "phase", OPTION_TEXT, "PHASE", "stacks of two: during (the spike; default), before, all", &phase },
		{ 0, "memory", OPTION_FLAG, NULL, "stacks of memory first; with --folded no others", &job.memory },
		{ 0, "machine", OPTION_FLAG, NULL, "stacks of all processes, not of the target's alone", &job.machine },
		{ 'n', "rows", OPTION_NUMBER, "COUNT", "at most so many of each table; default 10", &job.rows },
		{ 0, "json", OPTION_FLAG, NULL, "as JSON; every row unless -n says otherwise", &job.json },
		{ 0, "folded", OPTION_FLAG, NULL, "stacks with two counts a line, for flamegraph.pl", &job.folded },
		{ 0, "normalize", OPTION_FLAG, NULL, "with --folded: scale A's counts to as many as B's", &job.scale },
		{ 0, "html", OPTION_FLAG, NULL, "as a page with flame graphs; needs --output", &job.html },
		{ 'o', "output", OPTION_TEXT, "FILE", "where to write; - for the standard output, the default",
		  &output },
		OPTION_DIRECTORY(&directory),
	};
	const struct options_usage usage = {
		.command = command,
		.operands = "A [B]",
		.summary = "Says which functions, threads and mappings grew from incident A to B.",
		.description = "Of A alone: before its spike and during it, its first snapshot and its second.\n"
			       "A and B are names of incidents, parts of them, \"last\", or paths with a slash.",
		.example = "spikewatch diff cpu-high-1 last\n"
			   "spikewatch diff cpu-high-1 last --folded | flamegraph.pl > diff.svg",
		.exits = "0 compared, 1 not found, damaged, or nothing to compare, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_min = 1,
		.operands_max = 2,
	};
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	job.name[0] = argv[first];
	job.name[1] = first + 1 < argc ? argv[first + 1] : NULL;
	code = check_usage(&job, phase, output, !job.name[1]);
	if (code >= 0)
		return code;
	if (phase && !find_phase(phase, &job.phase))
		return EXIT_USAGE;
	return run_job(&job, directory, output);
}
