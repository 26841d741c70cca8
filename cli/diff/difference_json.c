/* difference_json.c: each table as an array of rows; a side on which a row is not there is null, as is a table that is not there. */
#include "difference.h"

#include "contrastload.h"
#include "incident_json.h"
#include "jsonmember.h"
#include "output.h"

static const struct {
	const char *key, *name, *place, *unit;
	const char *measure[CONTRAST_MEASURES]; /* NULL: not told */
	double divisor[CONTRAST_MEASURES];
} forms[DIFFERENCE_TABLES] = {
	[DIFFERENCE_FUNCTIONS] = { "functions", "function", "module", "samples", { "self", "total" }, { 1, 1 } },
	[DIFFERENCE_STACK_THREADS] = { "stack_threads", "thread", "process", "samples", { "self", NULL }, { 1, 1 } },
	[DIFFERENCE_MEMORY_FUNCTIONS] = { "memory_functions",
					  "function",
					  "module",
					  "bytes",
					  { "self", "total" },
					  { 1, 1 } },
	[DIFFERENCE_MEMORY_THREADS] = { "memory_threads", "thread", "process", "bytes", { "self", NULL }, { 1, 1 } },
	[DIFFERENCE_THREADS] = { "threads",
				 "thread",
				 NULL,
				 NULL,
				 { "cpu_percent", "count" },
				 { CONTRASTLOAD_PERCENT, 1 } },
	[DIFFERENCE_MAPPINGS] = { "mappings", "mapping", "permissions", NULL, { "rss_bytes", "swap_bytes" }, { 1, 1 } },
};

static const char *const side_keys[CONTRAST_SIDES] = { "a", "b" };

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
		put_amount(json, row->amount[side][m], forms[table].divisor[m]);
	}
	json_end_object(json);
}

static void put_row(struct json_writer *json, enum difference_table table, const struct contrast *contrast,
		    const struct contrast_row *row)
{
	json_begin_object(json);
	jsonmember_text(json, forms[table].name, row->name);
	if (forms[table].place)
		jsonmember_text(json, forms[table].place, row->place);
	put_side(json, table, row, CONTRAST_A);
	put_side(json, table, row, CONTRAST_B);
	json_key(json, contrast->shares ? "growth_points" : "growth");
	json_begin_object(json);
	for (unsigned m = 0; m < CONTRAST_MEASURES; m++) {
		if (!forms[table].measure[m])
			continue;
		json_key(json, forms[table].measure[m]);
		json_double(json, contrast_growth(contrast, row, m) / forms[table].divisor[m]);
	}
	json_end_object(json);
	json_end_object(json);
}

static void put_rows(struct json_writer *json, enum difference_table table, const struct contrast *contrast, size_t max)
{
	size_t head = contrast->count, tail = 0;

	if (max != DIFFERENCE_ROWS_ALL)
		contrast_choose(contrast, max, &head, &tail);
	json_key(json, "rows");
	json_begin_array(json);
	for (size_t i = 0; i < head; i++)
		put_row(json, table, contrast, &contrast->rows[i]);
	for (size_t i = contrast->count - tail; i < contrast->count; i++)
		put_row(json, table, contrast, &contrast->rows[i]);
	json_end_array(json);
}

static void put_counts(struct json_writer *json, const char *key, const uint64_t counts[static CONTRAST_SIDES])
{
	json_key(json, key);
	json_begin_object(json);
	for (unsigned side = 0; side < CONTRAST_SIDES; side++) {
		json_key(json, side_keys[side]);
		json_u64(json, counts[side]);
	}
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
	if (forms[table].unit) {
		jsonmember_text(json, "unit", forms[table].unit);
		put_counts(json, "all", contrast->sum);
	}
	put_counts(json, table == DIFFERENCE_THREADS ? "cpu_unknown" : "left_out", contrast->left_out);
	put_rows(json, table, contrast, rows);
	json_end_object(json);
}

static void put_incident(struct json_writer *json, const char *key, const struct incident *incident)
{
	json_key(json, key);
	json_begin_object(json);
	jsonmember_text(json, "id", incident->id);
	jsonmember_text(json, "kind", incident_kind_name(incident->kind));
	json_key(json, "time_ns");
	json_u64(json, incident->wall.ns);
	jsonmember_text(json, "hostname", incident->hostname);
	jsonmember_text(json, "target", incident->target.name);
	jsonmember_text(json, "rule", incident->rule.name);
	json_end_object(json);
}

void difference_json(const struct difference *difference, size_t rows, struct json_writer *json)
{
	put_incident(json, "a", &difference->incident[CONTRAST_A]);
	if (difference->one) {
		json_key(json, "b");
		json_null(json);
	} else {
		put_incident(json, "b", &difference->incident[CONTRAST_B]);
	}
	jsonmember_text(json, "phase", difference->one ? "before, during" : difference_phase_name(difference->phase));
	json_key(json, "damaged");
	json_bool(json, difference->damaged);
	json_key(json, "notes");
	json_begin_array(json);
	for (size_t i = 0; i < difference->notes; i++)
		json_string(json, difference->note[i]);
	json_end_array(json);
	for (unsigned i = 0; i < DIFFERENCE_TABLES; i++)
		put_table(json, difference, i, rows);
}
