/*
 * functions.c: two rankings of functions from one walk over the file, one for each phase, that become one list: a
 * function that was not there before the spike, or is not any more, has its zeros side by side with the others' numbers.
 * Other processes are ranked for themselves: on a busy machine they would push out what the incident is of. Threads are ranked once. functions_text.c prints them.
 */
#include "functions.h"

#include "hotrows.h"
#include "incidentload.h"
#include "jsonmember.h"
#include "output.h"
#include "scope.h"
#include "text.h"

#include <errno.h>
#include <string.h>

#define ROWS_MAX 10

_Static_assert(FUNCTIONS_SHOWN <= ROWS_MAX && FUNCTIONS_THREADS_SHOWN <= ROWS_MAX, "all that is shown is ranked");

static const struct {
	const char *file, *key, *before, *during, *beside, *top;
} forms[] = {
	[HOTLIST_IN_SAMPLES] = { FUNCTIONS_FILE, "functions", "samples_before", "samples_during", "self_during_ns",
				 "top_samples" },
	[HOTLIST_IN_BYTES] = { FUNCTIONS_MEMORY_FILE, "memory_functions", "bytes_before", "bytes_during",
			       "self_during_faults", "top_bytes" },
};

/* ---- ranking ---- */

/* Rows of the text, the hottest first. */
struct ranking {
	struct hotrows_row row[ROWS_MAX];
	size_t count, max;
	enum hotlist_phase phase;
	bool callers; /* those who call count as much as those who are called: see hotlist.c */
	bool tie;     /* is broken by the other phase */
};

static uint64_t heat(const struct ranking *ranking, const struct hotrows_row *row, enum hotlist_phase phase)
{
	uint64_t sum = row->self[phase] + (ranking->callers ? row->total[phase] : 0);

	/* Only in a file that lies. */
	return sum < row->self[phase] ? UINT64_MAX : sum;
}

static int compare(const struct ranking *ranking, const struct hotrows_row *a, const struct hotrows_row *b,
		   enum hotlist_phase phase)
{
	uint64_t of_a = heat(ranking, a, phase), of_b = heat(ranking, b, phase);

	if (of_a == of_b) {
		of_a = a->total[phase];
		of_b = b->total[phase];
	}
	return (of_a > of_b) - (of_a < of_b);
}

static bool hotter(const struct ranking *ranking, const struct hotrows_row *a, const struct hotrows_row *b)
{
	int order = compare(ranking, a, b, ranking->phase);

	if (order == 0 && ranking->tie)
		order = compare(ranking, a, b, HOTLIST_BEFORE);
	return order > 0;
}

/* What is no hotter than nothing is not ranked. */
static void rank(struct ranking *ranking, const struct hotrows_row *row)
{
	static const struct hotrows_row nothing;
	size_t at = ranking->count;

	if (!hotter(ranking, row, &nothing))
		return;
	while (at > 0 && hotter(ranking, row, &ranking->row[at - 1]))
		at--;
	if (at == ranking->max)
		return;
	if (ranking->count < ranking->max)
		ranking->count++;
	memmove(&ranking->row[at + 1], &ranking->row[at], (ranking->count - at - 1) * sizeof(*row));
	ranking->row[at] = *row;
}

/* Rows of one text are the same if they are in the same place. */
static bool has(const struct ranking *ranking, const struct hotrows_row *row)
{
	for (size_t i = 0; i < ranking->count; i++)
		if (ranking->row[i].function.text == row->function.text)
			return true;
	return false;
}

/* ---- loading ---- */

/* Escapes, but for the backslash: it was escaped when it was written. text_escape writes one as \x5c, and nothing else so. */
static void copy_name(char ret[static FUNCTIONS_NAME_MAX], const struct hotrows_name *name)
{
	size_t used = text_escape(ret, FUNCTIONS_NAME_MAX, name->len ? name->text : "", name->len), to = 0;

	for (size_t from = 0; from < used; to++) {
		bool backslash = strncmp(ret + from, "\\x5c", 4) == 0;

		ret[to] = ret[from];
		from += backslash ? 4 : 1;
	}
	ret[to] = '\0';
}

static bool is_neighbour(const struct hotrows_row *row)
{
	return row->module.len == strlen(HOTLIST_NEIGHBOUR) &&
	       memcmp(row->module.text, HOTLIST_NEIGHBOUR, row->module.len) == 0;
}

static void take(const struct hotrows_row *from, struct functions_row *row)
{
	copy_name(row->function, &from->function);
	copy_name(row->module, &from->module);
	copy_name(row->thread, &from->thread);
	copy_name(row->process, &from->process);
	row->neighbour = is_neighbour(from);
	row->tid = from->tid;
	row->pid = from->pid;
	row->self_ns = from->self_ns;
	row->self_faults = from->self_faults;
	row->top_amount = from->top_amount;
	memcpy(row->self, from->self, sizeof(row->self));
	memcpy(row->total, from->total, sizeof(row->total));
}

/* What stackprofile.h calls so is in no module. */
static bool is_called(const struct hotrows_row *row, const char *name)
{
	return row->module.len == 0 && row->function.len == strlen(name) &&
	       memcmp(row->function.text, name, row->function.len) == 0;
}

static void note(const struct hotrows_row *row, struct functions *ret)
{
	if (is_called(row, "(other)"))
		memcpy(ret->other, row->self, sizeof(ret->other));
	else if (is_called(row, "[no stack]"))
		memcpy(ret->no_stack, row->self, sizeof(ret->no_stack));
}

static void choose(const char *text, size_t len, struct functions *ret)
{
	bool callers = ret->unit == HOTLIST_IN_BYTES;
	struct ranking before = { .max = FUNCTIONS_SHOWN, .phase = HOTLIST_BEFORE, .callers = callers };
	struct ranking during = { .max = FUNCTIONS_SHOWN, .phase = HOTLIST_DURING, .callers = callers };
	struct ranking neighbours = { .max = FUNCTIONS_NEIGHBOURS_SHOWN, .phase = HOTLIST_DURING, .tie = true };
	struct ranking threads = { .max = FUNCTIONS_THREADS_SHOWN, .phase = HOTLIST_DURING, .tie = true };
	struct hotrows rows;
	struct hotrows_row row;

	ret->there = hotrows_start(&rows, text, len) && rows.unit == ret->unit;
	if (!ret->there)
		return;
	memcpy(ret->sum, rows.sum, sizeof(ret->sum));
	while (hotrows_next(&rows, &row)) {
		if (row.function.len == 0) {
			rank(&threads, &row);
			continue;
		}
		if (is_neighbour(&row)) {
			rank(&neighbours, &row);
			continue;
		}
		rank(&before, &row);
		rank(&during, &row);
		note(&row, ret);
	}
	for (size_t i = 0; i < during.count; i++)
		take(&during.row[i], &ret->row[ret->count++]);
	for (size_t i = 0; i < before.count; i++)
		if (!has(&during, &before.row[i]))
			take(&before.row[i], &ret->row[ret->count++]);
	for (size_t i = 0; i < neighbours.count; i++)
		take(&neighbours.row[i], &ret->row[ret->count++]);
	for (size_t i = 0; i < threads.count; i++)
		take(&threads.row[i], &ret->thread[ret->thread_count++]);
	ret->more_functions = rows.more_functions;
	ret->more_threads = rows.more_threads;
}

int functions_load(int incidentfd, enum hotlist_unit unit, struct functions *ret)
{
	AUTO(buffer_release) struct buffer text = { .max = INCIDENTLOAD_CAPTURE_MAX };
	int rc = incidentload_capture(incidentfd, forms[unit].file, &text);

	*ret = (struct functions){ .unit = unit };
	if (rc == 0 && text.len > 0)
		choose(text.data, text.len, ret);
	return rc == -ENOMEM ? rc : 0;
}

/* ---- JSON ---- */

static void put_function(struct json_writer *json, enum hotlist_unit unit, const struct functions_row *row)
{
	json_begin_object(json);
	jsonmember_text(json, "function", row->function);
	jsonmember_text(json, "module", row->module);
	jsonmember_u64(json, "self_before", row->self[HOTLIST_BEFORE]);
	jsonmember_u64(json, "total_before", row->total[HOTLIST_BEFORE]);
	jsonmember_u64(json, "self_during", row->self[HOTLIST_DURING]);
	jsonmember_u64(json, "total_during", row->total[HOTLIST_DURING]);
	jsonmember_u64(json, forms[unit].beside, unit == HOTLIST_IN_BYTES ? row->self_faults : row->self_ns);
	jsonmember_text(json, "top_thread", row->thread);
	jsonmember_i64(json, "top_tid", row->tid);
	jsonmember_u64(json, forms[unit].top, row->top_amount);
	jsonmember_text(json, "top_process", row->process);
	jsonmember_i64(json, "top_pid", row->pid);
	json_end_object(json);
}

static void put_thread(struct json_writer *json, enum hotlist_unit unit, const struct functions_row *row)
{
	json_begin_object(json);
	jsonmember_text(json, "thread", row->thread);
	jsonmember_i64(json, "tid", row->tid);
	jsonmember_text(json, "process", row->process);
	jsonmember_i64(json, "pid", row->pid);
	jsonmember_u64(json, forms[unit].before, row->self[HOTLIST_BEFORE]);
	jsonmember_u64(json, forms[unit].during, row->self[HOTLIST_DURING]);
	json_end_object(json);
}

void functions_json(const struct functions *functions, struct json_writer *json)
{
	enum hotlist_unit unit = functions->unit;

	json_key(json, forms[unit].key);
	if (!functions->there) {
		json_null(json);
		return;
	}
	json_begin_object(json);
	jsonmember_u64(json, forms[unit].before, functions->sum[HOTLIST_BEFORE]);
	jsonmember_u64(json, forms[unit].during, functions->sum[HOTLIST_DURING]);
	json_key(json, "hottest");
	json_begin_array(json);
	for (size_t i = 0; i < functions->count; i++)
		put_function(json, unit, &functions->row[i]);
	json_end_array(json);
	json_key(json, "threads");
	json_begin_array(json);
	for (size_t i = 0; i < functions->thread_count; i++)
		put_thread(json, unit, &functions->thread[i]);
	json_end_array(json);
	jsonmember_u64(json, "functions_left_out", functions->more_functions);
	jsonmember_u64(json, "threads_left_out", functions->more_threads);
	json_end_object(json);
}
