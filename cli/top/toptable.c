/*
 * toptable.c: rows in the order of their ids, which are given in order: a new one nearly always goes to the end, and a binary search finds it.
 *
 * CPU use is a difference of two looks. A target that did not run leaves no record, and was seen unchanged at every tick (a cgroup: whenever
 * it was due). So a window ends where it was last seen unchanged, and what then comes at once is not spread over the silence before it.
 *
 * The last minute is kept in two rings of seconds of the monotonic clock, which a row lets go on when it is looked at. The highest window
 * of a second counts: a minute's average is what nobody looks for here.
 */
#include "toptable.h"

#include "idlepace.h"
#include "metric.h"
#include "scope.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

static size_t place(const struct toptable *table, uint32_t id)
{
	size_t low = 0, high = table->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (table->row[middle]->id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct toptable_row *find(const struct toptable *table, uint32_t id)
{
	size_t at = place(table, id);

	return at < table->count && table->row[at]->id == id ? table->row[at] : NULL;
}

static void free_row(struct toptable_row *row)
{
	free(row->name);
	free(row);
}

static int reserve(struct toptable *table)
{
	size_t cap = table->cap ? 2 * table->cap : 32;
	struct toptable_row **row;

	if (table->count < table->cap)
		return 0;
	row = reallocarray(table->row, cap, sizeof(struct toptable_row *));
	if (!row)
		return -ENOMEM;
	table->row = row;
	table->cap = cap;
	return 0;
}

static void forget_past(struct toptable_row *row)
{
	row->seen = false;
	row->has_cpu = false;
}

static void forget_verdicts(struct toptable_row *row)
{
	row->nearness = INFINITY;
	row->nearest = NULL;
	row->waiting_count = 0;
	row->pending = row->cooling = row->fired = 0;
}

static int add(struct toptable *table, const struct target *target)
{
	AUTO_FREE char *name = NULL;
	struct toptable_row *row;
	size_t at = place(table, target->id);

	if (table->count == TOPTABLE_TARGETS_MAX) {
		table->left_out++;
		return 0;
	}
	name = strdup(target->name);
	if (!name || reserve(table) < 0 || !(row = calloc(1, sizeof(*row))))
		return -ENOMEM;

	row->id = target->id;
	row->kind = target->kind;
	row->name = TAKE(name);
	row->cpu_peak = row->cpu_cores = NAN;
	forget_verdicts(row);
	memmove(table->row + at + 1, table->row + at, (table->count - at) * sizeof(struct toptable_row *));
	table->row[at] = row;
	table->count++;
	return 0;
}

int toptable_target(struct toptable *table, const struct target *target)
{
	struct toptable_row *row = find(table, target->id);
	char *name;

	if (!row)
		return add(table, target);
	if (strcmp(row->name, target->name) == 0)
		return 0;
	name = strdup(target->name);
	if (!name)
		return -ENOMEM;
	free(row->name);
	row->name = name;
	return 0;
}

/* ---- the last minute ---- */

static float memory_now(const struct toptable_row *row)
{
	return row->seen && row->has_memory ? (float)row->memory_bytes : NAN;
}

/* Begins all seconds up to this one. What was seen last is what memory still was in them. */
static void go_on(struct toptable_row *row, uint64_t second)
{
	uint64_t first = row->second + 1;

	if (second <= row->second)
		return;
	if (second - row->second > TOPTABLE_SECONDS)
		first = second - TOPTABLE_SECONDS + 1;
	for (uint64_t s = first; s <= second; s++) {
		row->cpu[s % TOPTABLE_SECONDS] = NAN;
		row->memory[s % TOPTABLE_SECONDS] = memory_now(row);
	}
	row->second = second;
}

static void raise(float *value, float to)
{
	if (!(*value >= to))
		*value = to;
}

/* A window of CPU use: it counts in the second where it ends, and in those that it is all there is of. */
static void note_cpu(struct toptable_row *row, mono_t from, mono_t to, double cores)
{
	uint64_t second = to.ns / NS_PER_S, first = from.ns / NS_PER_S + 1;

	go_on(row, second);
	if (second - first >= TOPTABLE_SECONDS && first < second)
		first = second - TOPTABLE_SECONDS + 1;
	for (uint64_t s = first; s < second; s++)
		raise(&row->cpu[s % TOPTABLE_SECONDS], (float)cores);
	if (second + TOPTABLE_SECONDS > row->second)
		raise(&row->cpu[second % TOPTABLE_SECONDS], (float)cores);
	if (!(row->cpu_peak >= cores))
		row->cpu_peak = cores;
}

/* ---- looks ---- */

static void begin_marks(struct toptable_row *row, mono_t at, uint64_t cpu_ns)
{
	row->window = row->marks[0] = row->marks[1] = (struct toptable_mark){ at, cpu_ns };
	row->has_cpu = true;
}

static void observe_cpu(struct toptable_row *row, mono_t at, uint64_t cpu_ns)
{
	int64_t passed = mono_diff(at, row->window.at);

	/* A counter that steps back began anew. */
	if (!row->has_cpu || cpu_ns < row->window.cpu_ns || passed < 0) {
		begin_marks(row, at, cpu_ns);
		return;
	}
	if (passed < TOPTABLE_WINDOW_NS)
		return;
	note_cpu(row, row->window.at, at, (double)(cpu_ns - row->window.cpu_ns) / (double)passed);
	row->window = (struct toptable_mark){ at, cpu_ns };
}

/* When it was last seen as it still is. As watch_seen_at. */
static mono_t seen_at(const struct toptable *table, const struct toptable_row *row)
{
	uint64_t read_ns = row->kind == TARGET_CGROUP ? table->cgroup_read_ns : 0;
	mono_t now = table->nows[row->line];
	int64_t age = mono_diff(now, row->at) - (int64_t)(read_ns / 2);

	if (!table->ticked || age < 0)
		return row->at;
	if (row->kind == TARGET_PROCESS)
		return idlepace_seen_at(row->at, NULL, now, table->idle_ns);
	return read_ns ? mono_add(row->at, (uint64_t)age / read_ns * read_ns) : now;
}

static void observe_silence(const struct toptable *table, struct toptable_row *row)
{
	if (row->seen && row->has_cpu)
		observe_cpu(row, seen_at(table, row), row->sample.value[SAMPLE_CPU]);
}

static void observe_memory(struct toptable_row *row, uint64_t second, const struct sample *sample)
{
	uint64_t peak = metric_peak(row->seen ? &row->sample : sample, sample);

	row->has_memory = sample_has(sample, SAMPLE_MEMORY);
	if (row->has_memory)
		row->memory_bytes = sample->value[SAMPLE_MEMORY];
	if (peak > row->memory_peak_bytes)
		row->memory_peak_bytes = peak;
	if (row->has_memory && second + TOPTABLE_SECONDS > row->second)
		raise(&row->memory[second % TOPTABLE_SECONDS],
		      (float)(peak > row->memory_bytes ? peak : row->memory_bytes));
}

void toptable_sample(struct toptable *table, uint32_t id, mono_t at, const struct sample *sample)
{
	struct toptable_row *row = find(table, id);
	uint64_t second = at.ns / NS_PER_S;

	if (!row)
		return;
	go_on(row, second);
	observe_silence(table, row);
	if (sample_has(sample, SAMPLE_CPU))
		observe_cpu(row, at, sample->value[SAMPLE_CPU]);
	else
		row->has_cpu = false;
	observe_memory(row, second, sample);
	row->sample = *sample;
	row->at = at;
	row->line = table->line;
	row->seen = true;
	row->gone = false;
}

void toptable_gone(struct toptable *table, uint32_t id, mono_t at)
{
	struct toptable_row *row = find(table, id);

	if (!row)
		return;
	forget_past(row);
	forget_verdicts(row);
	row->gone = true;
	row->gone_at = at;
}

void toptable_gap(struct toptable *table)
{
	for (size_t i = 0; i < table->count; i++)
		forget_past(table->row[i]);
	table->ticked = false;
}

/* Takes out those that ended long enough ago. */
static void expire(struct toptable *table)
{
	size_t kept = 0;

	for (size_t i = 0; i < table->count; i++) {
		struct toptable_row *row = table->row[i];

		if (row->gone && mono_diff(table->now, row->gone_at) > (int64_t)TOPTABLE_GONE_NS)
			free_row(row);
		else
			table->row[kept++] = row;
	}
	table->count = kept;
}

static void begin_second(const struct toptable *table, struct toptable_row *row, uint64_t second)
{
	observe_silence(table, row);
	go_on(row, second);
	if (!row->seen || !row->has_cpu)
		return;
	row->marks[0] = row->marks[1];
	row->marks[1] = (struct toptable_mark){ seen_at(table, row), row->sample.value[SAMPLE_CPU] };
}

void toptable_writer(struct toptable *table, uint32_t writer)
{
	table->line = timelines_of(writer);
}

void toptable_tick(struct toptable *table, mono_t now)
{
	mono_t latest = table->ticked && mono_diff(now, table->now) < 0 ? table->now : now; /* of another's */
	uint64_t second = latest.ns / NS_PER_S;
	bool begins = !table->ticked || second != table->now.ns / NS_PER_S;

	table->nows[table->line] = now;
	table->now = latest;
	table->ticked = true;
	if (!begins)
		return;
	expire(table);
	for (size_t i = 0; i < table->count; i++)
		begin_second(table, table->row[i], second);
}

void toptable_rewind(struct toptable *table)
{
	toptable_gap(table);
	toptable_judge_begin(table);
	for (size_t i = 0; i < table->count; i++)
		table->row[i]->second = 0;
}

/* ---- rules ---- */

void toptable_judge_begin(struct toptable *table)
{
	for (size_t i = 0; i < table->count; i++)
		forget_verdicts(table->row[i]);
}

/* Pending ones first. */
static void keep(struct toptable_row *row, const struct toptable_verdict *verdict)
{
	size_t kept = row->waiting_count < TOPTABLE_WAITING_MAX ? row->waiting_count : TOPTABLE_WAITING_MAX;
	size_t at = verdict->wait == TOPTABLE_PENDING ? row->pending - 1 : kept;

	row->waiting_count++;
	if (at >= TOPTABLE_WAITING_MAX)
		return;
	if (kept == TOPTABLE_WAITING_MAX)
		kept--;
	memmove(row->waiting + at + 1, row->waiting + at, (kept - at) * sizeof(*row->waiting));
	row->waiting[at] = *verdict;
}

void toptable_judge(struct toptable *table, uint32_t id, const struct toptable_verdict *verdict)
{
	struct toptable_row *row = find(table, id);
	double nearness = verdict->has_nearness ? verdict->nearness : INFINITY;

	if (!row || row->gone)
		return;
	if (!row->nearest || nearness < row->nearness) {
		row->nearest = verdict->rule;
		row->nearness = nearness;
	}
	row->fired += verdict->fired;
	row->pending += verdict->wait == TOPTABLE_PENDING;
	row->cooling += verdict->wait == TOPTABLE_COOLING;
	if (verdict->wait != TOPTABLE_CALM)
		keep(row, verdict);
}

/* ---- looking ---- */

static bool wanted(const struct toptable_row *row, const char *filter)
{
	if (!filter || !*filter)
		return true;
	if (strpbrk(filter, "*?"))
		return fnmatch(filter, row->name, FNM_CASEFOLD) == 0;
	return strcasestr(row->name, filter) != NULL;
}

static double cpu_now(const struct toptable *table, const struct toptable_row *row)
{
	mono_t at = row->seen ? seen_at(table, row) : row->at;
	int64_t passed = mono_diff(at, row->marks[0].at);

	/* What lies in between is too short to tell, until a window has ended. */
	if (!row->seen || !row->has_cpu || passed < TOPTABLE_WINDOW_NS)
		return NAN;
	return (double)(row->sample.value[SAMPLE_CPU] - row->marks[0].cpu_ns) / (double)passed;
}

/* What it is sorted by, highest first; NAN comes last. */
static double key_of(const struct toptable_row *row, enum toptable_order order)
{
	switch (order) {
	case TOPTABLE_BY_CPU:
		return row->cpu_cores;
	case TOPTABLE_BY_MEMORY:
		return row->has_memory && !row->gone ? (double)row->memory_bytes : NAN;
	case TOPTABLE_BY_DISTANCE:
		return isfinite(row->nearness) ? -row->nearness : NAN;
	case TOPTABLE_BY_NAME:
	case TOPTABLE_ORDERS:
		break;
	}
	return 0;
}

static int compare(const void *a, const void *b, void *ctx)
{
	const struct toptable_row *x = *(struct toptable_row *const *)a, *y = *(struct toptable_row *const *)b;
	const struct toptable_wish *wish = ctx;
	double kx = key_of(x, wish->order), ky = key_of(y, wish->order);
	int way = wish->reverse ? -1 : 1, names = strcmp(x->name, y->name);

	if (isnan(kx) != isnan(ky))
		return isnan(kx) ? 1 : -1;
	/* A rule that waits for its time to pass is nearer than any distance says. */
	if (wish->order == TOPTABLE_BY_DISTANCE && (x->pending > 0) != (y->pending > 0))
		return x->pending ? -way : way;
	if (!isnan(kx) && kx != ky)
		return kx > ky ? -way : way;
	if (names != 0)
		return wish->order == TOPTABLE_BY_NAME ? way * names : names;
	return x->id < y->id ? -1 : x->id > y->id;
}

int toptable_view(struct toptable *table, const struct toptable_wish *wish, struct toptable_list *ret)
{
	size_t count = 0;

	if (table->view_cap < table->count) {
		struct toptable_row **view = reallocarray(table->view, table->cap, sizeof(struct toptable_row *));

		if (!view)
			return -ENOMEM;
		table->view = view;
		table->view_cap = table->cap;
	}
	for (size_t i = 0; i < table->count; i++) {
		struct toptable_row *row = table->row[i];

		row->cpu_cores = cpu_now(table, row);
		if (wanted(row, wish->filter))
			table->view[count++] = row;
	}
	if (count > 1)
		qsort_r(table->view, count, sizeof(struct toptable_row *), compare, (void *)(uintptr_t)wish);

	*ret = (struct toptable_list){ table->view, count };
	return 0;
}

void toptable_history(const struct toptable *table, const struct toptable_row *row, enum toptable_series series,
		      double *ret, size_t count)
{
	const float *values = series == TOPTABLE_CPU_CORES ? row->cpu : row->memory;
	uint64_t last = table->now.ns / NS_PER_S;

	for (size_t i = 0; i < count; i++)
		ret[i] = NAN;
	for (uint64_t back = 0; back < TOPTABLE_SECONDS && back <= last; back++) {
		uint64_t second = last - back;
		double *cell = &ret[(TOPTABLE_SECONDS - 1 - back) * count / TOPTABLE_SECONDS];
		bool known = row->second > 0 && second <= row->second && second + TOPTABLE_SECONDS > row->second;
		double value = known ? (double)values[second % TOPTABLE_SECONDS] : NAN;

		if (!isnan(value) && !(*cell >= value))
			*cell = value;
	}
}

void toptable_release(struct toptable *table)
{
	for (size_t i = 0; i < table->count; i++)
		free_row(table->row[i]);
	free(table->row);
	free(table->view);
	*table = (struct toptable){ .idle_ns = table->idle_ns, .cgroup_read_ns = table->cgroup_read_ns };
}
