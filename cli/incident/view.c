/*
 * view.c: one function per section. Text and JSON are made from the same columns (struct pictures);
 * the report draws the same pictures (pictures_*) at a higher resolution.
 *
 * Tables of the incident's files are cut into cells, formatted, measured and printed. Memory is
 * fixed: longer cells are cut, further columns and rows are left out. The two snapshots of the
 * memory maps are sorted, and compared in one walk over both.
 */
#include "cli/incident/view.h"

#include "cli/base/output.h"
#include "cli/incident/story.h"
#include "lib/base/base.h"
#include "lib/base/io.h"
#include "lib/base/json.h"
#include "lib/base/map.h"
#include "lib/base/text.h"
#include "lib/base/units.h"
#include "lib/cgroup/cgroup.h"
#include "lib/incident/sample_window.h"
#include "lib/model/target.h"
#include "lib/profile/stack_text.h"
#include "lib/rules/metric.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tables ---- */

#define TABLE_COLUMNS_MAX 16
#define TABLE_ROWS_MAX 40
#define CELL_MAX 128 /* bytes of a presentable cell */
#define TEXT_MIN 8   /* characters; a text column with less room is left out */

enum cell_kind { CELL_PLAIN, CELL_DURATION, CELL_SIZE, CELL_PERCENT };

struct table {
	size_t columns, rows;            /* rows: the header included */
	size_t order[TABLE_COLUMNS_MAX]; /* which column of the file is shown where */
	size_t shown;
	enum cell_kind kind[TABLE_COLUMNS_MAX];
	bool text[TABLE_COLUMNS_MAX];    /* not all of it is numbers */
	size_t width[TABLE_COLUMNS_MAX]; /* characters */
	char cell[TABLE_ROWS_MAX + 1][TABLE_COLUMNS_MAX][CELL_MAX];
};

static size_t text_characters(const char *text)
{
	return output_characters(text, strlen(text));
}

/* Where the unit begins in the name of a column, and its kind; NULL: there is none. */
static const char *find_unit(const char *name, enum cell_kind *ret)
{
	static const struct {
		const char *suffix;
		enum cell_kind kind;
	} units[] = { { "_ns", CELL_DURATION }, { "_bytes", CELL_SIZE }, { "_percent", CELL_PERCENT } };
	size_t len = strlen(name);

	for (size_t i = 0; i < ARRAY_LEN(units); i++) {
		size_t tail = strlen(units[i].suffix);

		if (len > tail && strcmp(name + len - tail, units[i].suffix) == 0) {
			*ret = units[i].kind;
			return name + len - tail;
		}
	}
	return NULL;
}

static bool is_number(const char *text)
{
	return *text && strspn(text, "0123456789.+-") == strlen(text);
}

/* A number with its unit and sign; anything else is only escaped. */
static void format_cell(enum cell_kind kind, const char *from, size_t len, char ret[static CELL_MAX])
{
	const char *digits = len > 0 && (*from == '-' || *from == '+') ? from + 1 : from;
	const char *end = from + len;
	char sign[2] = { digits > from ? *from : '\0', '\0' }, number[CELL_MAX - 8];
	uint64_t value;

	if ((kind != CELL_DURATION && kind != CELL_SIZE) || text_parse_u64(digits, end, &value) != end) {
		size_t used = text_escape_again(ret, CELL_MAX - 2, from, len);

		if (kind == CELL_PERCENT && is_number(ret))
			memcpy(ret + used, " %", 3);
		return;
	}
	if (kind == CELL_DURATION)
		units_format_duration(number, sizeof(number), value);
	else
		units_format_bytes(number, sizeof(number), value);
	snprintf(ret, CELL_MAX, "%s%s", sign, number);
}

/* The columns that were asked for; all of them if the file has none of those. */
static void choose_columns(struct table *table, const char *columns)
{
	table->shown = 0;
	while (columns && *columns) {
		size_t len = strcspn(columns, " ");

		for (size_t c = 0; c < table->columns && table->shown < TABLE_COLUMNS_MAX; c++) {
			const char *name = table->cell[0][c];

			if (strlen(name) == len && memcmp(name, columns, len) == 0)
				table->order[table->shown++] = c;
		}
		columns += len + strspn(columns + len, " ");
	}
	for (size_t c = 0; table->shown == 0 && c < table->columns; c++)
		table->order[c] = c;
	if (table->shown == 0)
		table->shown = table->columns;
}

static void finish_header(struct table *table, const char *columns)
{
	choose_columns(table, columns);
	for (size_t c = 0; c < table->columns; c++) {
		const char *unit = find_unit(table->cell[0][c], &table->kind[c]);

		if (unit) /* which is in the cells */
			table->cell[0][c][unit - table->cell[0][c]] = '\0';
		table->width[c] = text_characters(table->cell[0][c]);
	}
}

static void table_add_row(struct table *table, struct text_part line)
{
	bool header = table->rows == 0;
	struct text_part part;

	for (size_t c = 0; c < (header ? TABLE_COLUMNS_MAX : table->columns) && text_cut(&line, '\t', &part); c++) {
		char *cell = table->cell[table->rows][c];
		size_t wide;

		format_cell(header ? CELL_PLAIN : table->kind[c], part.at, part.len, cell);
		if (header)
			table->columns = c + 1;
		else if (table->kind[c] == CELL_PLAIN && *cell && !is_number(cell))
			table->text[c] = true;
		wide = text_characters(cell);
		if (wide > table->width[c])
			table->width[c] = wide;
	}
	table->rows++;
}

/* Narrows text columns until the line fits, the widest first; then drops columns from the right. */
static void fit_columns(struct table *table, size_t width)
{
	for (;;) {
		size_t total = 0, widest = TABLE_COLUMNS_MAX;

		for (size_t i = 0; i < table->shown; i++) {
			size_t c = table->order[i];

			total += table->width[c] + (i ? 2 : 0);
			if (table->text[c] && table->width[c] > TEXT_MIN &&
			    (widest == TABLE_COLUMNS_MAX || table->width[c] > table->width[widest]))
				widest = c;
		}
		if (total <= width)
			return;
		if (widest < TABLE_COLUMNS_MAX) {
			size_t over = total - width, room = table->width[widest] - TEXT_MIN;

			table->width[widest] -= over < room ? over : room;
		} else if (table->shown > 1) {
			table->shown--;
		} else {
			table->width[table->order[0]] = width;
			return;
		}
	}
}

static void print_rows(const struct table *table, FILE *file)
{
	for (size_t r = 0; r < table->rows; r++) {
		for (size_t i = 0; i < table->shown; i++) {
			size_t c = table->order[i];
			bool last = i + 1 == table->shown;

			output_fit(table->cell[r][c], table->width[c],
				   OUTPUT_CUT_PATHS | (!table->text[c] ? OUTPUT_PAD_LEFT
						       : last          ? 0
								       : OUTPUT_PAD_RIGHT),
				   file);
			if (!last)
				fputs("  ", file);
		}
		fputc('\n', file);
	}
}

static void print_remark(struct text_part line, size_t width, FILE *file)
{
	char shown[512] = "(";
	size_t used;

	while (line.len > 0 && (*line.at == '#' || *line.at == ' ')) {
		line.at++;
		line.len--;
	}
	used = 1 + text_escape_again(shown + 1, sizeof(shown) - 3, line.at, line.len);
	memcpy(shown + used, ")", 2);
	output_wrap(shown, width, file);
}

/* The place of a column in the header; SIZE_MAX: there is none. */
static size_t find_column(struct text_part header, const char *name)
{
	struct text_part part;

	for (size_t c = 0; text_cut(&header, '\t', &part); c++)
		if (text_part_is(&part, name))
			return c;
	return SIZE_MAX;
}

static bool cell_is(struct text_part line, size_t column, const char *value)
{
	struct text_part part = { 0 };

	for (size_t c = 0; text_cut(&line, '\t', &part); c++)
		if (c == column)
			return text_part_is(&part, value);
	return false;
}

/*
 * Prints the header and the first rows of text, and how many rows are not shown. columns: those
 * wanted, separated by spaces; NULL, or none that the file has: all of them. growth: a column; rows that have
 * grown by nothing are counted only. NULL: there is none.
 */
static void table_print(const char *text, size_t len, const char *columns, const char *growth, size_t rows,
			size_t width, FILE *file)
{
	size_t growth_column = SIZE_MAX, unchanged = 0;
	AUTO_FREE struct table *table = calloc(1, sizeof(*table));
	struct text_part rest = { text, len }, line;
	size_t total = 0;

	if (!table) {
		output_incomplete("a table", -ENOMEM);
		return;
	}
	if (rows > TABLE_ROWS_MAX)
		rows = TABLE_ROWS_MAX;
	while (text_cut(&rest, '\n', &line)) {
		if (line.len == 0 || *line.at == '#')
			continue;
		if (total > 0 && cell_is(line, growth_column, "+0")) {
			unchanged++;
			continue;
		}
		if (total == 0 && growth)
			growth_column = find_column(line, growth);
		if (table->rows <= rows)
			table_add_row(table, line);
		if (total++ == 0)
			finish_header(table, columns);
	}
	if (total == 0)
		return;

	fit_columns(table, width);
	print_rows(table, file);
	if (total > table->rows)
		fprintf(file, "(%zu more)\n", total - table->rows);
	if (unchanged > 0)
		fprintf(file, "(%zu did not grow)\n", unchanged);
	for (rest = (struct text_part){ text, len }; text_cut(&rest, '\n', &line);)
		if (line.len > 0 && *line.at == '#')
			print_remark(line, width, file);
}

/* ---- what a picture shows ---- */

#define PEAK_WINDOW_NS (100 * NS_PER_MS) /* below that, the grain of the kernel's accounting shows */
#define PEAK_WINDOW_MAX (60 * NS_PER_S)
#define TICK_NS (4 * NS_PER_MS) /* of the scheduler, at HZ=250: a window may show as much more */
#define RANGE_MAX_NS (3600 * NS_PER_S)

static bool has_cpu_limit(const struct incident *incident)
{
	return incident->limits.cpu != UINT64_MAX && incident->limits.cpu > 0;
}

static void add_level(struct picture *picture, const char *name, double value)
{
	if (picture->levels < PLOT_LEVELS_MAX)
		picture->level[picture->levels++] = (struct plot_level){ name, value };
}

static void choose_cpu_unit(const struct incident *incident, struct picture *picture)
{
	picture->unit = UNIT_PERCENT;
	if (strcmp(incident->rule.metric, "cpu") == 0 && strcmp(incident->rule.of, "core") == 0) {
		picture->scale = 100;
	} else if (has_cpu_limit(incident) && strcmp(incident->rule.metric, "cpu_cores") != 0) {
		picture->scale = 100 * 1e9 / (double)incident->limits.cpu;
	} else {
		picture->unit = UNIT_CORES;
		picture->scale = 1;
	}
}

static uint64_t peak_window(const struct incident_rule *rule, const struct series *series)
{
	uint64_t window_ns = PEAK_WINDOW_NS;

	if (strncmp(rule->metric, "cpu", 3) == 0 && rule->window_ns > 0 && rule->window_ns <= PEAK_WINDOW_MAX)
		window_ns = rule->window_ns;
	return window_ns > series->grain_ns ? window_ns : series->grain_ns;
}

void pictures_cpu(const struct incident *incident, const struct series *series, struct picture *ret)
{
	const char *metric = incident->rule.metric, *of = incident->rule.of;
	bool core = strcmp(of, "core") == 0;
	double threshold;

	*ret = (struct picture){ .window_ns = peak_window(&incident->rule, series) };
	choose_cpu_unit(incident, ret);
	snprintf(ret->title, sizeof(ret->title), "CPU, %s",
		 ret->unit == UNIT_CORES              ? "cores"
		 : strcmp(metric, "cpu") == 0 && core ? "percent of one core"
		 : incident->limits.cpu_is_machine    ? "percent of the machine"
						      : "percent of the limit");
	/* The machine is no threshold of this picture unless it is the limit. */
	if (story_threshold(&incident->rule, &threshold) &&
	    (strcmp(metric, "cpu_cores") == 0 ||
	     (strcmp(metric, "cpu") == 0 && (strcmp(of, "machine") != 0 || incident->limits.cpu_is_machine))))
		add_level(ret, "threshold", threshold);
	if (has_cpu_limit(incident))
		add_level(ret, "limit", (double)incident->limits.cpu / 1e9 * ret->scale);
	/* CPU time of children that ended is credited at once; a quota may be overdrawn, a machine not. */
	if (has_cpu_limit(incident) && incident->limits.cpu_is_machine)
		ret->most = (double)incident->limits.cpu / 1e9 * ret->scale;
	ret->grain = ret->window_ns > TICK_NS ? (double)TICK_NS / (double)ret->window_ns : 0;
}

void pictures_memory(const struct incident *incident, struct picture *ret)
{
	const struct incident_rule *rule = &incident->rule;
	uint64_t limit = incident->limits.memory_bytes;
	double threshold;

	*ret = (struct picture){ .title = "Memory", .unit = UNIT_BYTES, .scale = 1 };
	if (story_threshold(rule, &threshold)) {
		if (strncmp(rule->metric, "memory_", 7) == 0 && strcmp(rule->unit, "bytes") == 0)
			add_level(ret, "threshold", threshold);
		else if (strcmp(rule->metric, "memory") == 0 && limit != UINT64_MAX)
			add_level(ret, "threshold", threshold / 100 * (double)limit);
	}
	if (limit != UINT64_MAX)
		add_level(ret, "limit", (double)limit);
}

bool pictures_metric(const struct incident *incident, struct picture *ret, struct series_rule *ret_rule)
{
	const struct incident_rule *rule = &incident->rule;
	struct series_rule metric = { .window_ns = rule->window_ns };
	double threshold;

	if (!metric_by_name(rule->metric, &metric.metric) || rule->window_ns == 0 || rule->window_ns > PEAK_WINDOW_MAX)
		return false;
	switch (metric.metric) {
	case METRIC_CPU:
	case METRIC_CPU_CORES:
	case METRIC_MEMORY:
	case METRIC_MEMORY_BYTES:
	case METRIC_MEMORY_PEAK:
		return false;
	default:
		break;
	}
	*ret = (struct picture){ .unit = strcmp(rule->unit, "percent") == 0 ? UNIT_PERCENT : UNIT_COUNT, .scale = 1 };
	snprintf(ret->title, sizeof(ret->title), "%s%s", metric_what(metric.metric),
		 strcmp(rule->unit, "per_second") == 0 ? ", per second" : "");
	ret->title[0] =
		(char)(ret->title[0] >= 'a' && ret->title[0] <= 'z' ? ret->title[0] - 'a' + 'A' : ret->title[0]);
	if (story_threshold(rule, &threshold))
		add_level(ret, "threshold", threshold);
	*ret_rule = metric;
	return true;
}

void pictures_range(const struct incident *incident, const struct series *series, struct series_columns *ret)
{
	const struct sample_window_coverage *coverage = &incident->coverage;
	int64_t first = series->points[0].at_ns, last = series->points[series->count - 1].at_ns;
	int64_t most = (int64_t)RANGE_MAX_NS;

	ret->known_to_ns = last;
	if (coverage->got_from_ns < first && coverage->got_from_ns > first - most)
		first = coverage->got_from_ns;
	if (coverage->got_to_ns > last && coverage->got_to_ns < last + most) {
		last = coverage->got_to_ns;
		/* It was sampled until then: without a new row it was unchanged. */
		if (!coverage->gone)
			ret->known_to_ns = last;
	}
	/* Holes at its edges belong to it, as far as they lie in the window. */
	for (size_t i = 0; i < series->holes.count; i++) {
		int64_t from = series->holes.hole[i].from_ns, to = series->holes.hole[i].to_ns;

		from = from > -(int64_t)coverage->want_before_ns ? from : -(int64_t)coverage->want_before_ns;
		to = to < (int64_t)coverage->want_after_ns ? to : (int64_t)coverage->want_after_ns;
		if (from < first && from > first - most)
			first = from;
		if (to > last && to < last + most)
			last = to;
	}
	ret->from_ns = first < 0 ? first : 0;
	ret->to_ns = last > ret->from_ns ? last : ret->from_ns + 1;
}

/* ---- growth of memory between two snapshots ---- */

/* Columns of smaps.tsv that are read; docs/incident.md. */
enum { COLUMN_PID, COLUMN_MAPPING, COLUMN_PERMISSIONS, COLUMN_RSS = 4, COLUMN_SWAP = 7, COLUMNS };

enum growth { GROWTH_RSS, GROWTH_SWAP, GROWTHS };

struct row {
	struct text_part pid, mapping, permissions;
	uint64_t bytes[GROWTHS];
};

struct rows {
	struct row *row;
	size_t count, cap;
};

struct change {
	const struct row *before, *after; /* NULL: new; gone */
};

static void rows_release(struct rows *rows)
{
	free(rows->row);
}

static bool read_number(const struct text_part *piece, uint64_t *ret)
{
	const char *end = piece->at + piece->len;

	/* So bounded, sums and differences do not overflow. */
	return text_parse_u64(piece->at, end, ret) == end && *ret < (uint64_t)1 << 60;
}

static bool read_row(struct text_part line, struct row *ret)
{
	struct text_part column[COLUMNS];
	uint64_t pid;

	for (size_t i = 0; i < COLUMNS; i++)
		if (!text_cut(&line, '\t', &column[i]))
			return false;
	ret->pid = column[COLUMN_PID];
	ret->mapping = column[COLUMN_MAPPING];
	ret->permissions = column[COLUMN_PERMISSIONS];
	return read_number(&ret->pid, &pid) && read_number(&column[COLUMN_RSS], &ret->bytes[GROWTH_RSS]) &&
	       read_number(&column[COLUMN_SWAP], &ret->bytes[GROWTH_SWAP]);
}

static int compare_rows(const void *a, const void *b)
{
	const struct row *left = a, *right = b;
	int order = text_part_compare(&left->pid, &right->pid);

	if (order == 0)
		order = text_part_compare(&left->mapping, &right->mapping);
	return order != 0 ? order : text_part_compare(&left->permissions, &right->permissions);
}

static int read_rows(const struct buffer *text, struct rows *ret)
{
	struct text_part rest = { text->data, text->len }, line;
	struct row row;

	while (text_cut(&rest, '\n', &line)) {
		if (!read_row(line, &row))
			continue;
		if (vector_reserve(&ret->row, &ret->cap, ret->count + 1, sizeof(*ret->row)) < 0)
			return -ENOMEM;
		ret->row[ret->count++] = row;
	}
	if (ret->count > 0)
		qsort(ret->row, ret->count, sizeof(*ret->row), compare_rows);
	return 0;
}

static int64_t growth_of(const struct change *change, enum growth kind)
{
	return (int64_t)(change->after ? change->after->bytes[kind] : 0) -
	       (int64_t)(change->before ? change->before->bytes[kind] : 0);
}

static uint64_t size_of_change(const struct change *change)
{
	return (uint64_t)llabs(growth_of(change, GROWTH_RSS) + growth_of(change, GROWTH_SWAP));
}

static int compare_changes(const void *a, const void *b)
{
	const struct change *left = a, *right = b;
	uint64_t x = size_of_change(left), y = size_of_change(right);

	if (x != y)
		return x > y ? -1 : 1;
	return compare_rows(left->after ? left->after : left->before, right->after ? right->after : right->before);
}

/* ret has room for all rows of both. Returns how many changes there are. */
static size_t find_changes(const struct rows *before, const struct rows *after, struct change *ret)
{
	size_t i = 0, k = 0, count = 0;

	while (i < before->count || k < after->count) {
		struct change change = { NULL, NULL };
		int order = i == before->count  ? 1
			    : k == after->count ? -1
						: compare_rows(&before->row[i], &after->row[k]);

		if (order <= 0)
			change.before = &before->row[i++];
		if (order >= 0)
			change.after = &after->row[k++];
		if (growth_of(&change, GROWTH_RSS) != 0 || growth_of(&change, GROWTH_SWAP) != 0)
			ret[count++] = change;
	}
	return count;
}

static int put_piece(struct buffer *ret, const struct text_part *piece)
{
	int r = buffer_append(ret, piece->at, piece->len);

	return r < 0 ? r : buffer_append(ret, "\t", 1);
}

static int put_change(const struct change *change, struct buffer *ret)
{
	const struct row *row = change->after ? change->after : change->before;
	char text[128];
	int len =
		snprintf(text, sizeof(text), "%+" PRId64 "\t%+" PRId64 "\t%" PRIu64 "\t", growth_of(change, GROWTH_RSS),
			 growth_of(change, GROWTH_SWAP), change->after ? change->after->bytes[GROWTH_RSS] : 0);
	int r = buffer_append(ret, text, (size_t)len);

	if (r == 0)
		r = put_piece(ret, &row->permissions);
	if (r == 0)
		r = put_piece(ret, &row->mapping);
	if (r == 0)
		r = put_piece(ret, &row->pid);
	if (r < 0)
		return r;
	len = snprintf(text, sizeof(text), "%s\n", !change->before ? "new" : !change->after ? "gone" : "");
	return buffer_append(ret, text, (size_t)len);
}

/*
 * Appends to ret a table of what has changed, the largest change first; rss_bytes are those of the
 * second snapshot. Lines that are no rows are skipped. 0; -ENOMEM.
 */
static int growth_table(const struct buffer *first, const struct buffer *second, struct buffer *ret, size_t *ret_rows)
{
	static const char header[] =
		"rss_growth_bytes\tswap_growth_bytes\trss_bytes\tpermissions\tmapping\tpid\tremark\n";
	AUTO(rows_release) struct rows before = { 0 };
	AUTO(rows_release) struct rows after = { 0 };
	AUTO_FREE struct change *changes = NULL;
	size_t count;
	int r;

	if (read_rows(first, &before) < 0 || read_rows(second, &after) < 0)
		return -ENOMEM;
	changes = calloc(before.count + after.count + 1, sizeof(*changes));
	if (!changes)
		return -ENOMEM;

	count = find_changes(&before, &after, changes);
	qsort(changes, count, sizeof(*changes), compare_changes);
	r = buffer_append(ret, header, sizeof(header) - 1);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = put_change(&changes[i], ret);
	if (r < 0)
		return r;
	*ret_rows = count;
	return 0;
}

/* ---- sections of text ---- */

/* NULL: there is no such capture, or it has no file. */
static const struct incident_capture *find_capture(const struct incident *incident, const char *name)
{
	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];

		if (strcmp(capture->name, name) == 0 && capture->file[0] && !strchr(capture->file, '/'))
			return capture;
	}
	return NULL;
}

/* Nothing if there are no two snapshots of the memory. */
static void print_growth(const struct incident *incident, int incidentfd, size_t rows, size_t width, FILE *file)
{
	AUTO(buffer_release) struct buffer before = { .max = INCIDENT_LOAD_CAPTURE_MAX };
	AUTO(buffer_release) struct buffer after = { .max = INCIDENT_LOAD_CAPTURE_MAX };
	AUTO(buffer_release) struct buffer table = { 0 };
	const struct incident_capture *first = find_capture(incident, "smaps");
	const struct incident_capture *second = find_capture(incident, "smaps-again");
	char between[64] = "";
	size_t changes = 0;

	if (!first || !second || incident_load_capture(incidentfd, first->file, &before) < 0 ||
	    incident_load_capture(incidentfd, second->file, &after) < 0 ||
	    output_incomplete("the growth of memory", growth_table(&before, &after, &table, &changes)) < 0)
		return;
	if (first->has_at && second->has_at && second->at_ns > first->at_ns)
		units_format_duration(between, sizeof(between), (uint64_t)second->at_ns - (uint64_t)first->at_ns);
	fprintf(file, "\nBetween the two snapshots of its memory%s%s%s\n", *between ? " (" : "", between,
		*between ? " apart)" : "");
	if (changes == 0)
		fputs("  nothing has grown or shrunk\n", file);
	else
		table_print(table.data, table.len,
			    "rss_growth_bytes swap_growth_bytes rss_bytes permissions mapping pid remark", NULL, rows,
			    width, file);
}

static void print_run(const struct incident_capture *capture, FILE *file)
{
	char took[64];

	if (capture->has_exit)
		fprintf(file, ", exit status %d", capture->exit_status);
	if (capture->has_signal)
		fprintf(file, ", signal %d", capture->signal);
	if (capture->has_duration)
		fprintf(file, ", took %s", units_format_duration(took, sizeof(took), capture->duration_ns));
	if (capture->again_of[0]) {
		fputs(", again ", file);
		output_escaped(file, capture->again_of);
	}
}

static void print_captures(const struct incident *incident, FILE *file)
{
	char size[64];

	if (incident->capture_count)
		fprintf(file, "\nEvidence\n");
	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];
		bool ok = capture->status == INCIDENT_CAPTURE_OK;

		fputs("  ", file);
		output_escaped(file, capture->file[0] ? capture->file : capture->name);
		if (capture->bytes || (ok && capture->file[0]))
			fprintf(file, ", %s",
				units_format(size, sizeof(size), UNIT_BYTES, (double)capture->bytes, UNITS_COLUMN));
		print_run(capture, file);
		if (!ok)
			fprintf(file, ": %s", incident_capture_status_name(capture->status));
		if (capture->why[0]) {
			fputs(": ", file);
			output_escaped(file, capture->why);
		}
		fputc('\n', file);
	}
}

#define THREADS_SHOWN 8
#define MAPS_SHOWN 8
#define STORM_SHOWN 20
#define TARGETS_SHOWN 20
#define TEXT_WIDTH_MAX 100 /* longer lines are hard to read */

/* What is plotted: CPU in the unit that suits the incident, memory in bytes. */
struct pictures {
	struct series_columns cpu, memory;
	struct picture cpu_picture;
	double *values; /* all four, for free(3) */
	bool *hole;     /* of both, likewise */
};

static void free_pictures(struct pictures *pictures)
{
	free(pictures->values);
	free(pictures->hole);
}

/* ---- members ---- */

/* Whether functions of memory come first. */
static bool is_of_memory(const struct incident *incident)
{
	return strncmp(incident->rule.metric, "memory", strlen("memory")) == 0 ||
	       strcmp(incident->rule.metric, "faults") == 0;
}

static struct view_member *find_member(struct view *view, uint64_t pid)
{
	for (size_t i = 0; i < view->member_count; i++)
		if ((uint64_t)view->member[i].pid == pid)
			return &view->member[i];
	return NULL;
}

/* "VmRSS:\t    1628 kB", of the member that was listed last. */
static void take_member_memory(struct view *view, const struct text_part *line)
{
	static const char before[] = "VmRSS:";
	const char *at = line->at + strlen(before), *end = line->at + line->len;
	uint64_t kib;

	if (view->member_count == 0 || line->len <= strlen(before) || memcmp(line->at, before, strlen(before)) != 0)
		return;
	while (at < end && (*at == ' ' || *at == '\t'))
		at++;
	if (text_parse_u64(at, end, &kib) && kib <= UINT64_MAX / 1024)
		view->member[view->member_count - 1].rss_bytes = kib * 1024;
}

/* "# /proc/812/cmdline", and the command line on the next line; and the lines of its status. */
static void take_command_lines(struct view *view, const struct buffer *text)
{
	static const char before[] = "# /proc/", behind[] = "/cmdline";
	struct text_part rest = { text->data, text->len }, line;
	struct view_member *member = NULL;
	uint64_t pid;

	while (text_cut(&rest, '\n', &line)) {
		const char *end = line.at + line.len, *at = line.at + strlen(before);

		if (member)
			text_escape_again(member->cmdline, sizeof(member->cmdline), line.at, line.len);
		else
			take_member_memory(view, &line);
		member = NULL;
		if (line.len <= strlen(before) || memcmp(line.at, before, strlen(before)) != 0)
			continue;
		at = text_parse_u64(at, end, &pid);
		if (!at || pid == 0 || pid > INT32_MAX || (size_t)(end - at) < strlen(behind) ||
		    memcmp(at, behind, strlen(behind)) != 0 || view->member_count == VIEW_MEMBERS_MAX)
			continue;
		member = &view->member[view->member_count++];
		*member = (struct view_member){ .pid = (int32_t)pid, .cpu_percent = NAN };
		/* Why it is not known stands behind it. */
		if ((size_t)(end - at) > strlen(behind))
			member = NULL;
	}
}

/* threads.tsv: pid in the first column, percent of a core in the sixth. */
static void take_member_cpu(struct view *view, const struct buffer *text)
{
	struct text_part rest = { text->data, text->len }, line, cell;
	uint64_t pid;

	while (text_cut(&rest, '\n', &line)) {
		struct view_member *member;
		char number[32];

		if (!text_cut(&line, '\t', &cell) || text_parse_u64(cell.at, cell.at + cell.len, &pid) == NULL)
			continue;
		member = find_member(view, pid);
		for (unsigned column = 1; column <= 5 && member; column++)
			if (!text_cut(&line, '\t', &cell))
				member = NULL;
		if (!member || cell.len == 0 || cell.len >= sizeof(number))
			continue;
		snprintf(number, sizeof(number), "%.*s", (int)cell.len, cell.at);
		member->cpu_percent = (isnan(member->cpu_percent) ? 0 : member->cpu_percent) + strtod(number, NULL);
	}
}

static int compare_by_memory(const void *a, const void *b)
{
	const struct view_member *left = a, *right = b;

	return left->rss_bytes != right->rss_bytes ? (left->rss_bytes > right->rss_bytes ? -1 : 1)
						   : (left->pid > right->pid) - (left->pid < right->pid);
}

static int compare_by_cpu(const void *a, const void *b)
{
	const struct view_member *left = a, *right = b;
	double x = isnan(left->cpu_percent) ? -1 : left->cpu_percent;
	double y = isnan(right->cpu_percent) ? -1 : right->cpu_percent;

	return x != y ? (x > y ? -1 : 1) : (left->pid > right->pid) - (left->pid < right->pid);
}

/* 0; -ENOMEM. What cannot be read is not known. */
static int load_members(int incidentfd, struct view *view)
{
	AUTO(buffer_release) struct buffer status = { .max = INCIDENT_LOAD_CAPTURE_MAX };
	AUTO(buffer_release) struct buffer threads = { .max = INCIDENT_LOAD_CAPTURE_MAX };
	int rc;

	view->member_count = 0;
	if (incident_of_everything(&view->incident) || view->incident.target.kind == TARGET_PROCESS)
		return 0;
	rc = incident_load_capture(incidentfd, "status.txt", &status);
	if (rc == 0)
		take_command_lines(view, &status);
	if (rc != -ENOMEM)
		rc = incident_load_capture(incidentfd, "threads.tsv", &threads);
	if (rc == 0)
		take_member_cpu(view, &threads);
	if (view->member_count > 0)
		qsort(view->member, view->member_count, sizeof(*view->member),
		      is_of_memory(&view->incident) ? compare_by_memory : compare_by_cpu);
	return rc == -ENOMEM ? rc : 0;
}

/* "5918, 65.8 % of a core: postgres: postgres postgres [local] SELECT" */
static void print_member(const struct view_member *member, bool of_memory, const char *lead, size_t width, FILE *file)
{
	char text[sizeof(member->cmdline) + 192], cpu[64] = "", memory[UNITS_TEXT_MAX + 2] = "";

	if (!isnan(member->cpu_percent))
		snprintf(cpu, sizeof(cpu), ", %.1f %% of a core", member->cpu_percent);
	if (of_memory && member->rss_bytes > 0) {
		memcpy(memory, ", ", 2);
		units_format_bytes(memory + 2, sizeof(memory) - 2, member->rss_bytes);
	}
	snprintf(text, sizeof(text), "%s%jd%s%s: %s", lead, (intmax_t)member->pid, cpu, memory,
		 member->cmdline[0] ? member->cmdline : "(command line not known)");
	output_fit(text, width, OUTPUT_CUT_DOTS, file);
	fputc('\n', file);
}

/* A glance compares sizes alone. Samples that the incident itself says it lacks are no damage. */
static void judge_samples(const struct incident *incident, const struct incident_samples *samples,
			  struct incident_load_glance *glance)
{
	const struct stream_reader_report *report = &samples->report;

	if (glance->damaged || samples->error || samples->unfinished || stream_reader_whole(report))
		return;
	for (size_t i = 0; i < incident->capture_count; i++)
		if (strcmp(incident->captures[i].name, "samples") == 0 &&
		    incident->captures[i].status == INCIDENT_CAPTURE_FAILED)
			return;
	glance->damaged = true;
	snprintf(glance->why, sizeof(glance->why), INCIDENT_SAMPLES_FILE " %s",
		 report->complete || report->damaged_lines ? "is damaged" : "was cut off");
}

int view_load(int incidentfd, struct view *ret)
{
	incident_load_glance(incidentfd, &ret->incident, &ret->glance);
	if (load_members(incidentfd, ret) < 0)
		return -ENOMEM;
	if (functions_load(incidentfd, FUNCTION_TABLE_IN_SAMPLES, &ret->functions) < 0 ||
	    functions_load(incidentfd, FUNCTION_TABLE_IN_BYTES, &ret->memory_functions) < 0)
		return -ENOMEM;
	if (incident_samples_load(incidentfd, ret->incident.wall, &ret->samples) < 0)
		return -ENOMEM;
	ret->samples.unfinished = ret->glance.open;
	judge_samples(&ret->incident, &ret->samples, &ret->glance);
	return 0;
}

/* ---- pictures ---- */

/* 0; -ENOMEM. Without samples, or with those of all targets, there are no columns. */
static int make_pictures(const struct view *view, const struct plot_style *style, struct pictures *ret)
{
	const struct series *series = &view->samples.series;
	size_t columns = plot_columns(style);

	*ret = (struct pictures){ .values = NULL };
	pictures_cpu(&view->incident, series, &ret->cpu_picture);
	if (series->count == 0 || incident_of_everything(&view->incident))
		return 0;
	ret->values = calloc(columns * 4, sizeof(double));
	ret->hole = calloc(columns, sizeof(bool));
	if (!ret->values || !ret->hole)
		return -ENOMEM;

	pictures_range(&view->incident, series, &ret->cpu);
	ret->cpu.count = columns;
	ret->cpu.hole = ret->hole;
	ret->memory = ret->cpu;
	ret->cpu.peak = ret->values;
	ret->cpu.mean = ret->values + columns;
	ret->memory.peak = ret->values + columns * 2;
	ret->memory.mean = ret->values + columns * 3;
	series_cpu(series, ret->cpu_picture.window_ns, &ret->cpu);
	series_memory(series, &ret->memory);
	for (size_t i = 0; i < columns * 2; i++)
		ret->values[i] *= ret->cpu_picture.scale;
	return 0;
}

static bool any_known(const struct series_columns *columns)
{
	for (size_t i = 0; i < columns->count; i++) {
		if (!isnan(columns->peak[i]))
			return true;
	}
	return false;
}

/*
 * "no samples for 2.01 s; 97.3 % on average": of the holes that are drawn; "the machine was suspended
 * for 2 h". With a scale of 0 without the average. "": there are none.
 */
static void describe_holes(const struct series *series, const struct series_columns *columns,
			   const struct picture *picture, char *buf, size_t cap)
{
	int64_t column_ns = (columns->to_ns - columns->from_ns) / (int64_t)columns->count;
	double used = 0, all_ns = 0;
	char length[64], times[32] = "", average[64] = "", value[64], suspended[112] = "";
	bool known = picture->scale > 0;
	uint64_t suspended_ns = 0;
	unsigned count = 0;

	*buf = '\0';
	for (size_t i = 0; i < series->holes.count; i++) {
		const struct series_hole *hole = &series->holes.hole[i];
		double cores, ns = (double)(hole->to_ns - hole->from_ns);

		if (hole->to_ns <= columns->from_ns || hole->from_ns >= columns->to_ns)
			continue;
		suspended_ns += hole->suspended_ns;
		if (ns * 2 < (double)column_ns || hole->missed_slots == 0)
			continue;
		count++;
		all_ns += ns;
		known = known && series_hole_cpu(series, hole, columns->known_to_ns, &cores);
		used += known ? cores * ns : 0;
	}
	if (suspended_ns > 0)
		snprintf(suspended, sizeof(suspended), "%sthe machine was suspended for %s", count > 0 ? "; " : "",
			 units_format_duration(length, sizeof(length), suspended_ns));
	if (count == 0) {
		snprintf(buf, cap, "%s", suspended);
		return;
	}
	if (count > 1)
		snprintf(times, sizeof(times), " %u times,", count);
	if (known)
		snprintf(average, sizeof(average), "; %s on average",
			 units_format(value, sizeof(value), picture->unit, used / all_ns * picture->scale,
				      UNITS_COLUMN));
	snprintf(buf, cap, "no samples%s for %s%s%s%s", times,
		 units_format_duration(length, sizeof(length), (uint64_t)all_ns), count > 1 ? " in all" : "", average,
		 suspended);
}

/* rows: of a brief one; 0: with its whole legend and an empty line before it. */
static void draw_picture(const struct series_columns *columns, const struct picture *picture, const char *hole_is,
			 unsigned rows, const struct plot_style *style, FILE *file)
{
	struct plot plot = {
		.title = picture->title,
		.unit = picture->unit,
		.peak = columns->peak,
		.mean = columns->mean,
		.hole = *hole_is ? columns->hole : NULL,
		.hole_is = hole_is,
		.columns = columns->count,
		.from_s = (double)columns->from_ns / 1e9,
		.to_s = (double)columns->to_ns / 1e9,
		.trigger = true,
		.most = picture->most,
		.grain = picture->grain,
		.levels = picture->levels,
		.rows = rows,
		.terse = rows > 0,
	};

	if (!any_known(columns))
		return;
	memcpy(plot.level, picture->level, sizeof(plot.level));
	if (rows == 0)
		fputc('\n', file);
	plot_draw(&plot, style, file);
}

static void draw_cpu(const struct series *series, const struct pictures *pictures, unsigned rows,
		     const struct plot_style *style, FILE *file)
{
	struct picture picture = pictures->cpu_picture;
	size_t len = strlen(picture.title);
	char window[64], hole_is[240] = "";

	if (pictures->cpu.count > 0)
		describe_holes(series, &pictures->cpu, &picture, hole_is, sizeof(hole_is));
	snprintf(picture.title + len, sizeof(picture.title) - len, " (peaks: over %s)",
		 units_format_duration(window, sizeof(window), picture.window_ns));
	draw_picture(&pictures->cpu, &picture, hole_is, rows, style, file);
}

static void draw_memory(const struct incident *incident, const struct series *series, const struct pictures *pictures,
			unsigned rows, const struct plot_style *style, FILE *file)
{
	const struct picture without_average = { .scale = 0 };
	struct picture picture;
	char hole_is[240] = "";

	pictures_memory(incident, &picture);
	if (pictures->memory.count > 0)
		describe_holes(series, &pictures->memory, &without_average, hole_is, sizeof(hole_is));
	draw_picture(&pictures->memory, &picture, hole_is, rows, style, file);
}

static int write_words(const struct view *view, char **ret)
{
	size_t len;
	FILE *file = open_memstream(ret, &len);

	if (!file)
		return -ENOMEM;
	story_tell(&view->incident, &view->samples, file);
	return fclose(file) == 0 ? 0 : -ENOMEM;
}

static void print_capture(const struct incident *incident, int incidentfd, const char *name, const char *title,
			  const char *columns, const char *growth, size_t rows, const struct plot_style *style,
			  FILE *file)
{
	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];
		AUTO(buffer_release) struct buffer text = { .max = INCIDENT_LOAD_CAPTURE_MAX };

		if (strcmp(capture->name, name) != 0 || !capture->file[0] || strchr(capture->file, '/'))
			continue;
		if (incident_load_capture(incidentfd, capture->file, &text) < 0 || text.len == 0)
			continue;
		fprintf(file, "\n%s\n", title);
		table_print(text.data, text.len, columns, growth, rows, style->width, file);
	}
}

/* The busiest targets, of an incident of all targets. */
static void print_targets(const struct peaks *peaks, FILE *file)
{
	char cpu[64], memory[64];
	size_t shown = peaks->count < TARGETS_SHOWN ? peaks->count : TARGETS_SHOWN;

	if (shown == 0)
		return;
	fprintf(file, "\nTargets by their peaks (CPU over 100 ms or more)\n  %12s  %10s  target\n", "cpu", "memory");
	for (size_t i = 0; i < shown; i++) {
		const struct peaks_target *target = &peaks->target[i];

		units_format(cpu, sizeof(cpu), UNIT_CORES, target->cpu_cores, UNITS_COLUMN);
		units_format(memory, sizeof(memory), UNIT_BYTES, (double)target->memory_bytes, UNITS_COLUMN);
		fprintf(file, "  %12s  %10s  ", target->has_cpu ? cpu : "-", target->has_memory ? memory : "-");
		output_escaped(file, target->name[0] ? target->name : "?");
		fputc('\n', file);
	}
	if (peaks->count > shown || peaks->cut)
		fprintf(file, "  ... and %s%zu more\n", peaks->cut ? "at least " : "", peaks->count - shown);
}

static void print_limit(const char *what, bool known, const char *value, bool machine, const char *from, FILE *file)
{
	fprintf(file, "  %s: %s", what, known ? value : "not known");
	if (known && machine) {
		fputs(" (the machine)", file);
	} else if (known && from[0]) {
		fputs(" (", file);
		output_escaped(file, from);
		fputs(")", file);
	}
	fputc('\n', file);
}

static void print_limits(const struct cgroup_limits *limits, FILE *file)
{
	char cpu[64], memory[64];

	fprintf(file, "\nLimits\n");
	units_format(cpu, sizeof(cpu), UNIT_CORES, (double)limits->cpu / 1e9, UNITS_COLUMN);
	units_format(memory, sizeof(memory), UNIT_BYTES, (double)limits->memory_bytes, UNITS_COLUMN);
	print_limit("CPU", limits->cpu != UINT64_MAX, cpu, limits->cpu_is_machine, limits->cpu_from, file);
	print_limit("memory", limits->memory_bytes != UINT64_MAX, memory, limits->memory_is_machine,
		    limits->memory_from, file);
}

static void print_recording(const struct view *view, FILE *file)
{
	const struct sample_window_coverage *coverage = &view->incident.coverage;
	const struct incident_cost *cost = &view->incident.cost;
	char text[64];

	fprintf(file, "\nRecording\n  %ju of %ju ticks of %s, capture rate %.1f %%, %ju samples%s\n",
		(uintmax_t)coverage->ticks_got, (uintmax_t)coverage->ticks_expected,
		units_format_duration(text, sizeof(text), cost->interval_ns), coverage->capture_rate * 100,
		(uintmax_t)coverage->samples, incident_of_everything(&view->incident) ? "" : " of this target");
	if (coverage->onset_late_ns > 0)
		fprintf(file,
			"  while it slept it was looked at less often, to save CPU time: what it used in the first %s "
			"after\n"
			"  that is drawn evenly over that time, and may have begun anywhere in it\n",
			units_format_duration(text, sizeof(text), coverage->onset_late_ns));
	if (coverage->cpu_late_ns > 0)
		fprintf(file,
			"  CPU time of members that had ended was added up to %s late:\n"
			"  before that it is too low, and there too high\n",
			units_format_duration(text, sizeof(text), coverage->cpu_late_ns));
	/* Since the sampler started, not of this incident alone. */
	fprintf(file, "  the sampler so far: %.2f %% of a core, %s late on average, %ju slots missed\n",
		cost->cpu_percent, units_format_duration(text, sizeof(text), cost->mean_sleep_error_ns),
		(uintmax_t)cost->missed_slots);
	if (view->samples.cut || view->samples.dropped)
		fprintf(file, "  not all samples are shown: there are too many, or their times make no sense\n");
}

static void print_open(const struct incident *incident, FILE *file)
{
	char time[64];

	fprintf(file,
		"BEING WRITTEN since %s: this is what there is so far.\nSamples and pictures come when "
		"its window is over.\n\n",
		story_time(incident->wall, false, time, sizeof(time)));
}

/* A difference of more is explained. */
#define GROWN_ABOUT_PERCENT 15

/* By how much the target's memory changed over the samples. False: there are no two. */
static bool memory_change(const struct series *series, int64_t *ret_bytes, int64_t *ret_from_ns, int64_t *ret_to_ns)
{
	const struct series_point *first = NULL, *last = NULL;

	for (size_t i = 0; i < series->count; i++)
		if (sample_has(&series->points[i].sample, SAMPLE_MEMORY)) {
			first = first ? first : &series->points[i];
			last = &series->points[i];
		}
	if (first == last)
		return false;
	*ret_bytes = (int64_t)(last->sample.value[SAMPLE_MEMORY] - first->sample.value[SAMPLE_MEMORY]);
	*ret_from_ns = first->at_ns;
	*ret_to_ns = last->at_ns;
	return true;
}

bool view_memory_change(const struct view *view, char ret[static VIEW_MEMORY_CHANGE_MAX])
{
	const struct functions *functions = &view->memory_functions;
	const struct series *series = &view->samples.series;
	double touched = (double)functions->own[FUNCTION_TABLE_BEFORE] + (double)functions->own[FUNCTION_TABLE_DURING];
	double about = 1 + GROWN_ABOUT_PERCENT / 100.0, grown;
	char touched_text[64], grown_text[64];
	const char *why = "";
	int64_t bytes, from_ns, to_ns;

	if (functions->count == 0 || incident_of_everything(&view->incident) ||
	    !memory_change(series, &bytes, &from_ns, &to_ns))
		return false;
	grown = bytes > 0 ? (double)bytes : 0;
	if (touched > about * grown)
		why = ". Memory that was freed, swapped out, or given back and touched again makes the difference";
	else if (grown > about * touched)
		why = ". Pages of files, of which one fault brings several, pages that were already there and are now"
		      " shared, huge pages that count as small ones (Evidence says if so) and what was touched before "
		      "the"
		      " stacks begin make the difference";
	units_format_bytes(touched_text, sizeof(touched_text), (uint64_t)touched);
	units_format_bytes(grown_text, sizeof(grown_text), (uint64_t)(bytes < 0 ? -bytes : bytes));
	snprintf(ret, VIEW_MEMORY_CHANGE_MAX, "In all it touched %s; its memory %s by %s from %+.1f s to %+.1f s%s.",
		 touched_text, bytes < 0 ? "shrank" : "grew", grown_text, (double)from_ns / NS_PER_S,
		 (double)to_ns / NS_PER_S, why);
	return true;
}

static void print_memory_functions(const struct view *view, const struct plot_style *style, size_t width, FILE *file)
{
	const struct functions *functions = &view->memory_functions;
	char text[VIEW_MEMORY_CHANGE_MAX];

	functions_print(functions, &view->incident, style, file);
	if (!view_memory_change(view, text))
		return;
	fputc('\n', file);
	output_wrap(text, width, file);
}

/* ---- what fits a screen ---- */

/* Rows of a picture; functions and threads on a small screen and on a larger one (lines). */
#define BRIEF_ROWS_MIN 4
#define BRIEF_ROWS_LEAST 3 /* where there is no room for those */
#define BRIEF_ROWS_MAX 12
#define BRIEF_LARGE 32
#define BRIEF_COMMAND_MAX 4096
#define LEAD_WIDTH 60 /* longer names of functions are cut in the headline */

/* "; 71 % of it in tuplesort_performsort". Of what the picture is of. */
static void print_lead(const struct functions *functions, FILE *file)
{
	uint64_t own = functions->own[FUNCTION_TABLE_DURING];
	const struct functions_row *lead = &functions->lead;

	if (lead->function[0] == '\0' || own == 0)
		return;
	fprintf(file, "; %.0f %% %s in ", 100 * (double)lead->total[FUNCTION_TABLE_DURING] / (double)own,
		functions->unit == FUNCTION_TABLE_IN_BYTES ? "of the new memory" : "of its CPU time");
	if (functions->lead_run_time)
		fputs("code made at run time", file);
	else
		output_fit(lead->function, LEAD_WIDTH, OUTPUT_CUT_DOTS, file);
}

void view_headline(const struct view *view, FILE *file)
{
	story_headline(&view->incident, &view->samples, file);
	print_lead(is_of_memory(&view->incident) ? &view->memory_functions : &view->functions, file);
	fputc('.', file);
}

/* What it ran, or where it ran, and so many of its members: a line each. */
static void print_origin(const struct view *view, size_t members, size_t width, FILE *file)
{
	const struct incident_target *target = &view->incident.target;
	const char *what = target->cmdline[0]        ? target->cmdline
			   : view->incident.has_unit ? view->incident.unit.name
						     : target->cgroup;
	char text[BRIEF_COMMAND_MAX];

	if (*what) {
		text_escape(text, sizeof(text), what, strlen(what));
		output_fit(text, width, OUTPUT_CUT_DOTS, file);
		fputc('\n', file);
	}
	for (size_t i = 0; i < view->member_count && i < members; i++)
		print_member(&view->member[i], is_of_memory(&view->incident),
			     members == 1 ? (is_of_memory(&view->incident) ? "Largest member: " : "Busiest member: ")
			     : i == 0     ? "Members: "
					  : "         ",
			     width, file);
}

/* Why there are no functions, if the incident says it. */
static void print_no_functions(const struct incident *incident, size_t width, FILE *file)
{
	char text[4 * sizeof(incident->captures[0].why) + 64];

	for (size_t i = 0; i < incident->capture_count; i++) {
		const struct incident_capture *capture = &incident->captures[i];
		size_t used;

		if (strcmp(capture->name, "stacks") != 0 || capture->status == INCIDENT_CAPTURE_OK || !capture->why[0])
			continue;
		used = (size_t)snprintf(text, sizeof(text), "No functions: ");
		text_escape(text + used, sizeof(text) - used, capture->why, strlen(capture->why));
		output_wrap(text, width, file);
	}
}

/* What is left out until the page fits the screen; each with those before it. */
enum squeeze { SQUEEZE_NOTHING, SQUEEZE_LINES /* empty ones */, SQUEEZE_ROWS /* of the picture */, SQUEEZE_THREADS };

static void print_headline(const struct view *view, size_t width, FILE *file)
{
	AUTO_FREE char *words = NULL;
	size_t len;
	FILE *headline = open_memstream(&words, &len);

	if (headline)
		view_headline(view, headline);
	if (headline && fclose(headline) == 0)
		output_wrap(words, width, file);
	else
		output_incomplete("the headline", -ENOMEM);
}

static void print_brief_top(const struct view *view, size_t width, FILE *file)
{
	output_escaped(file, view->incident.id[0] ? view->incident.id : "(an incident without a name)");
	fputc('\n', file);
	if (view->glance.open)
		fputs("BEING WRITTEN: samples and pictures come when its window is over.\n", file);
	if (view->glance.damaged)
		fprintf(file, "DAMAGED: %s. See spikewatch verify.\n", view->glance.why);
	if (view->glance.readable)
		print_headline(view, width, file);
	print_origin(view, 1, width, file);
}

static void print_brief_bottom(const struct view *view, const struct plot_style *style, size_t width,
			       enum squeeze squeeze, FILE *file)
{
	bool of_memory = is_of_memory(&view->incident), large = style->lines >= BRIEF_LARGE;
	const struct functions *functions = of_memory ? &view->memory_functions : &view->functions;
	AUTO_FREE char *words = NULL;
	size_t len;
	FILE *rest = open_memstream(&words, &len);

	if (functions->count > 0 && functions->lead.function[0])
		fprintf(file, "%s%s\n", squeeze >= SQUEEZE_LINES ? "" : "\n",
			of_memory ? "Where it touched new memory (bytes)"
				  : "Where its CPU time went (percent of its own, before and during the spike)");
	functions_print_brief(functions, large ? 8 : 3, large ? 4 : squeeze >= SQUEEZE_THREADS ? 1 : 2, style, file);
	if (functions->count == 0)
		print_no_functions(&view->incident, width, file);
	if (!rest) {
		output_incomplete("a sentence", -ENOMEM);
		return;
	}
	story_tell_rest(&view->incident, &view->samples, rest);
	if (fclose(rest) == 0 && view->glance.readable && *words)
		output_wrap(words + 1, width, file);
	fputs("All of it: spikewatch show --full; as a page: spikewatch report\n", file);
}

static unsigned count_lines(const char *text)
{
	unsigned lines = 0;

	for (; *text; text++)
		lines += *text == '\n';
	return lines;
}

/* One attempt: what stands above the picture and below it, and how many rows that leaves for the picture. */
static int try_brief(const struct view *view, const struct plot_style *style, enum squeeze squeeze, char **ret_top,
		     char **ret_bottom, unsigned *ret_rows)
{
	size_t width = style->width < TEXT_WIDTH_MAX ? style->width : TEXT_WIDTH_MAX, len;
	FILE *above = open_memstream(ret_top, &len), *below = open_memstream(ret_bottom, &len);
	unsigned taken;
	int rc = 0;

	if (above)
		print_brief_top(view, width, above);
	if (below)
		print_brief_bottom(view, style, width, squeeze, below);
	if (!above || fclose(above) != 0)
		rc = -ENOMEM;
	if (!below || fclose(below) != 0)
		rc = -ENOMEM;
	if (rc < 0)
		return rc;
	/* Title, axis and times of the picture; an empty line before it; the line of the prompt. */
	taken = count_lines(*ret_top) + count_lines(*ret_bottom) + (squeeze >= SQUEEZE_LINES ? 4 : 5);
	*ret_rows = style->lines > taken ? style->lines - taken : 0;
	return 0;
}

int view_brief(const struct view *view, const struct plot_style *style, FILE *file)
{
	AUTO(free_pictures) struct pictures pictures = { 0 };
	AUTO_FREE char *top = NULL, *bottom = NULL;
	enum squeeze squeeze = SQUEEZE_NOTHING;
	unsigned rows, least = BRIEF_ROWS_MIN;
	int rc = make_pictures(view, style, &pictures);

	if (rc == 0)
		rc = try_brief(view, style, squeeze, &top, &bottom, &rows);
	while (rc == 0 && rows < least && squeeze < SQUEEZE_THREADS) {
		free(top);
		free(bottom);
		top = bottom = NULL;
		squeeze++;
		least = squeeze >= SQUEEZE_ROWS ? BRIEF_ROWS_LEAST : BRIEF_ROWS_MIN;
		rc = try_brief(view, style, squeeze, &top, &bottom, &rows);
	}
	if (rc < 0)
		return rc;
	rows = rows < least ? least : rows > BRIEF_ROWS_MAX ? BRIEF_ROWS_MAX : rows;
	fputs(top, file);
	if (squeeze < SQUEEZE_LINES)
		fputc('\n', file);
	if (is_of_memory(&view->incident))
		draw_memory(&view->incident, &view->samples.series, &pictures, rows, style, file);
	else
		draw_cpu(&view->samples.series, &pictures, rows, style, file);
	if (incident_of_everything(&view->incident))
		print_targets(&view->samples.peaks, file);
	fputs(bottom, file);
	return 0;
}

/* ---- everything ---- */

int view_text(const struct view *view, int incidentfd, const struct plot_style *style, FILE *file)
{
	const struct incident *incident = &view->incident;
	size_t width = style->width < TEXT_WIDTH_MAX ? style->width : TEXT_WIDTH_MAX;
	AUTO(free_pictures) struct pictures pictures = { 0 };
	AUTO_FREE char *words = NULL;

	if (make_pictures(view, style, &pictures) < 0 || write_words(view, &words) < 0)
		return -ENOMEM;

	output_escaped(file, incident->id[0] ? incident->id : "(an incident without a name)");
	fputs("\n\n", file);
	if (view->glance.open)
		print_open(incident, file);
	if (view->glance.damaged)
		fprintf(file, "DAMAGED: %s. See spikewatch verify.\n\n", view->glance.why);
	if (view->glance.readable) {
		print_headline(view, width, file);
		print_origin(view, VIEW_MEMBERS_MAX, width, file);
		fputc('\n', file);
		output_wrap(words, width, file);
	}
	draw_cpu(&view->samples.series, &pictures, 0, style, file);
	draw_memory(incident, &view->samples.series, &pictures, 0, style, file);
	if (incident_of_everything(incident))
		print_targets(&view->samples.peaks, file);
	if (is_of_memory(incident))
		print_memory_functions(view, style, width, file);
	print_capture(incident, incidentfd, "threads", "Busiest threads",
		      "pid tid name state cpu_ms cpu_percent wait_ms off_ms user_ms system_ms since_ms remark", NULL,
		      THREADS_SHOWN, style, file);
	functions_print(&view->functions, incident, style, file);
	if (!is_of_memory(incident))
		print_memory_functions(view, style, width, file);
	print_capture(incident, incidentfd, "smaps", "What grew",
		      "rss_growth_bytes rss_bytes swap_bytes permissions mapping pid", "rss_growth_bytes", MAPS_SHOWN,
		      style, file);
	print_growth(incident, incidentfd, MAPS_SHOWN, style->width, file);
	print_capture(incident, incidentfd, incident_kind_name(INCIDENT_STORM), "Firings, the worst first",
		      "firings rule target worst severity first_ns last_ns owner why", NULL, STORM_SHOWN, style, file);
	if (incident->kind != INCIDENT_STORM) {
		print_limits(&incident->limits, file);
		if (!view->glance.open)
			print_recording(view, file);
	}
	print_captures(incident, file);
	return 0;
}

/* ---- JSON ---- */

static void put_values(struct json_writer *json, const char *key, const double *values, size_t count)
{
	json_member_array(json, key);
	for (size_t i = 0; i < count; i++)
		json_double(json, values[i]); /* NAN is written as null */
	json_end_array(json);
}

static void put_columns(struct json_writer *json, const char *key, const struct series_columns *columns)
{
	json_member_object(json, key);
	put_values(json, "peak", columns->peak, columns->count);
	put_values(json, "mean", columns->mean, columns->count);
	json_end_object(json);
}

static void put_holes(struct json_writer *json, const struct series *series, int64_t known_to_ns,
		      const struct picture *picture)
{
	json_member_array(json, "holes");
	for (size_t i = 0; i < series->holes.count; i++) {
		const struct series_hole *hole = &series->holes.hole[i];
		double cores;

		json_begin_object(json);
		json_member_i64(json, "from_ns", hole->from_ns);
		json_member_i64(json, "to_ns", hole->to_ns);
		json_member_u64(json, "missed_slots", hole->missed_slots);
		json_member_u64(json, "suspended_ns", hole->suspended_ns);
		json_member_double(json, picture->unit == UNIT_CORES ? "cpu_cores" : "cpu_percent",
				   series_hole_cpu(series, hole, known_to_ns, &cores) ? cores * picture->scale : NAN);
		json_end_object(json);
	}
	json_end_array(json);
}

static void put_series(struct json_writer *json, const struct series *series, const struct pictures *pictures)
{
	json_key(json, "series");
	if (pictures->cpu.count == 0) {
		json_null(json);
		return;
	}
	json_begin_object(json);
	json_member_i64(json, "from_ns", pictures->cpu.from_ns);
	json_member_i64(json, "to_ns", pictures->cpu.to_ns);
	json_member_u64(json, "peak_window_ns", pictures->cpu_picture.window_ns);
	put_columns(json, pictures->cpu_picture.unit == UNIT_CORES ? "cpu_cores" : "cpu_percent", &pictures->cpu);
	put_columns(json, "memory_bytes", &pictures->memory);
	put_holes(json, series, pictures->cpu.known_to_ns, &pictures->cpu_picture);
	json_end_object(json);
}

static void put_targets(struct json_writer *json, const struct peaks *peaks)
{
	json_member_array(json, "targets");
	for (size_t i = 0; i < peaks->count; i++) {
		const struct peaks_target *target = &peaks->target[i];

		json_begin_object(json);
		json_member_text(json, "name", target->name);
		json_member_double(json, "cpu_cores", target->has_cpu ? target->cpu_cores : NAN);
		json_key(json, "memory_bytes");
		if (target->has_memory)
			json_u64(json, target->memory_bytes);
		else
			json_null(json);
		json_end_object(json);
	}
	json_end_array(json);
}

void view_put_members(const struct view *view, struct json_writer *json)
{
	json_member_array(json, "members");
	for (size_t i = 0; i < view->member_count; i++) {
		json_begin_object(json);
		json_member_i64(json, "pid", view->member[i].pid);
		json_member_text(json, "cmdline", view->member[i].cmdline);
		json_member_double(json, "cpu_percent", view->member[i].cpu_percent); /* NAN is written as null */
		if (view->member[i].rss_bytes > 0)
			json_member_u64(json, "rss_bytes", view->member[i].rss_bytes);
		else
			json_member_null(json, "rss_bytes");
		json_end_object(json);
	}
	json_end_array(json);
}

/* Everything but the incident itself, as an object. */
static int write_rest(const struct view *view, const struct pictures *pictures, const char *words, struct buffer *ret)
{
	int64_t bytes, from_ns, to_ns;
	struct json_writer *json;
	int rc = json_writer_new(sink_buffer(ret), true, &json);

	if (rc < 0)
		return rc;
	json_begin_object(json);
	json_member_bool(json, "open", view->glance.open);
	json_member_bool(json, "damaged", view->glance.damaged);
	if (view->glance.damaged)
		json_member_text(json, "why", view->glance.why);
	json_member_text(json, "summary", words);
	view_put_members(view, json);
	put_series(json, &view->samples.series, pictures);
	put_targets(json, &view->samples.peaks);
	functions_json(&view->functions, json);
	functions_json(&view->memory_functions, json);
	if (memory_change(&view->samples.series, &bytes, &from_ns, &to_ns))
		json_member_i64(json, "memory_growth_bytes", bytes);
	json_end_object(json);
	return json_writer_close(json);
}

int view_json(const struct view *view, const struct plot_style *style)
{
	AUTO(buffer_release) struct buffer incident = { 0 }, rest = { 0 };
	AUTO(free_pictures) struct pictures pictures = { 0 };
	AUTO_FREE char *words = NULL;

	if (make_pictures(view, style, &pictures) < 0 || write_words(view, &words) < 0 ||
	    incident_json_write(&view->incident, sink_buffer(&incident)) < 0 ||
	    write_rest(view, &pictures, words, &rest) < 0)
		return -ENOMEM;

	/* incident.json, without its newline, becomes the first member of the other document. */
	printf("{\n\"incident\": %.*s,", (int)incident.len - 1, incident.data);
	fwrite(rest.data + 1, 1, rest.len - 1, stdout);
	return 0;
}
