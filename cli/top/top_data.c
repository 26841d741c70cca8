/*
 * top_data.c: the daemon is not asked anything. Where its ring is and which configuration it has is found as far as anybody can see it: by
 * default places, and by the command line of the process whose pid is in the ring.
 *
 * A new ring is a new world: numbers of targets begin anew, so the table does. A new configuration is judged from the past on again, and
 * the peaks stay: reading the same samples twice does not raise them.
 */
#include "cli/top/top_data.h"

#include "cli/base/options.h"
#include "cli/base/output.h"
#include "daemon/engine/base/paths.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/base.h"
#include "lib/cgroup/cgroup_limits.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"
#include "lib/evaluator/rule_state.h"
#include "lib/model/pacing.h"
#include "lib/model/sample.h"
#include "lib/model/target.h"
#include "lib/ring/ring.h"
#include "lib/rules/metric.h"
#include "lib/rules/trigger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

/* CPU is taken over at least so long: below, the grain of the kernel's accounting shows. */
#define TOPTABLE_WINDOW_NS 100000000

/* Whoever ended is still shown for so long. */
#define TOPTABLE_GONE_NS (10 * NS_PER_S)

enum { TOPFEED_ATTACHED = 1 };

/*
 * toptable.c: rows in the order of their ids, which are given in order: a new one nearly always goes to the end, and a binary search finds it.
 *
 * CPU use is a difference of two looks. A target that did not run leaves no record, and was seen unchanged at every tick (a cgroup: whenever
 * it was due). So a window ends where it was last seen unchanged, and what then comes at once is not spread over the silence before it.
 *
 * The last minute is kept in two rings of seconds of the monotonic clock, which a row lets go on when it is looked at. The highest window
 * of a second counts: a minute's average is what nobody looks for here.
 */

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

/*
 * toprules.c: the engine starts in the past, as far back as the rules look, and judges itself into the present. What the state file says of a
 * firing that is later than where it starts would be wrong there (its cooldown would be cut to the rule's own length, counted from then): such a
 * firing is left out, to be found once more in the samples. What the file says of cooldowns still holds for what is shown.
 */

struct toprules {
	struct metric_machine machine;
	struct config *config;
	struct evaluator *evaluator;
	struct memo *saved; /* by the daemon */
	struct memo *memo;  /* of the evaluator: as saved, where that fits into the past */
	mono_t tick;
	wall_t wall;
};

/* ---- the files ---- */

static uint64_t mix(uint64_t sum, uint64_t value)
{
	sum = (sum ^ value) * 0x9e3779b97f4a7c15ULL;
	return sum ^ sum >> 32;
}

static uint64_t stat_signature(int dirfd, const char *path)
{
	struct stat st;
	uint64_t sum = 1;

	if (fstatat(dirfd, path, &st, 0) < 0)
		return 0;
	sum = mix(sum, (uint64_t)st.st_ino);
	sum = mix(sum, (uint64_t)st.st_size);
	sum = mix(sum, (uint64_t)st.st_mtim.tv_sec);
	return mix(sum, (uint64_t)st.st_mtim.tv_nsec);
}

/* A number that changes whenever a file of the configuration does. */
/* Of the file and of all that lies in the directory of drop-ins, in whichever order. */
static uint64_t toprules_signature(const struct configfile *file)
{
	uint64_t sum = stat_signature(AT_FDCWD, file->path);
	DIR *dir = file->dropins ? opendir(file->dropins) : NULL;

	for (struct dirent *item; dir && (item = readdir(dir));)
		if (item->d_name[0] != '.')
			sum += stat_signature(dirfd(dir), item->d_name);
	if (dir)
		closedir(dir);
	return sum;
}

/* ---- life ---- */

/* NULL is fine. */
static void toprules_free(struct toprules *rules)
{
	if (!rules)
		return;

	evaluator_free(rules->evaluator);
	memo_free(rules->memo);
	memo_free(rules->saved);
	config_free(rules->config);
	free(rules);
}

static void release(struct toprules **rules)
{
	toprules_free(*rules);
}

/* 0; as configfile_load otherwise, with its message. */
static int toprules_new(const struct configfile *file, const struct metric_machine *machine, struct toprules **ret,
		 char *message)
{
	AUTO(release) struct toprules *rules = calloc(1, sizeof(*rules));
	int r;

	if (!rules) {
		snprintf(message, CONFIGFILE_MESSAGE_MAX, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	rules->machine = *machine;
	r = configfile_load(file, &rules->config, message);
	if (r < 0)
		return r;

	*ret = TAKE(rules);
	return 0;
}

/* The configuration in force here. */
static const struct config *toprules_config(const struct toprules *rules)
{
	return rules->config;
}

/* How much of the past the rules look back on. */
static uint64_t toprules_span_ns(const struct toprules *rules)
{
	uint64_t span = 0;

	for (size_t i = 0; i < rules->config->rule_count; i++) {
		const struct config_rule *rule = &rules->config->rules[i];
		/* Two more: the window that is open, and the one that has no beginning. */
		uint64_t windows = rule->trigger.history + 2ull, own;

		if (__builtin_mul_overflow(windows, rule->window_ns, &own) ||
		    __builtin_add_overflow(own, rule->trigger.for_ns, &own))
			own = UINT64_MAX;
		span = own > span ? own : span;
	}
	return span;
}

/* ---- what the daemon remembers ---- */

static void trim(char *text)
{
	text[strcspn(text, "\n")] = '\0';
}

static void read_boot_id(char ret[64])
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (!file || !fgets(ret, 64, file))
		*ret = '\0';
	trim(ret);
	if (file)
		fclose(file);
}

/* A file that is missing, damaged or not ours to read says nothing. */
static int load_saved(struct toprules *rules)
{
	char boot_id[64], error[256];
	struct paths paths;
	int r;

	read_boot_id(boot_id);
	memo_free(TAKE(rules->saved));
	r = memo_new(boot_id, &rules->saved);
	if (r < 0 || paths_choose(rules->config, &paths) < 0)
		return r;

	AUTO_CLOSE int dirfd = open(paths.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	r = dirfd < 0 ? 0 : memo_load(rules->saved, dirfd, paths.state_name, error, sizeof(error));
	return r == -ENOMEM ? r : 0;
}

static int ignore_firing(void *ctx, const struct evaluator_firing *firing)
{
	(void)ctx;
	(void)firing;
	return 0;
}

/* The events of a ring are about to be delivered from somewhere on: nothing is known, but what the state file says. 0 or -ENOMEM. */
static int toprules_begin(struct toprules *rules)
{
	struct evaluator_options options = {
		.config = rules->config,
		.machine = rules->machine,
		.fire = ignore_firing,
		.ctx = rules,
	};
	int r = load_saved(rules);

	if (r < 0)
		return r;
	evaluator_free(TAKE(rules->evaluator));
	memo_free(TAKE(rules->memo));
	r = memo_new("", &rules->memo);
	if (r < 0)
		return r;
	options.memo = rules->memo;
	return evaluator_new(&options, &rules->evaluator);
}

/* What was remembered before `wall`, of what is remembered now. */
static void go_back(struct trigger_memory *memory, const struct trigger_rule *rule, wall_t wall)
{
	if (memory->cooldown_until.ns <= wall.ns + rule->cooldown_ns)
		return;
	memory->cooldown_until = (wall_t){ 0 };
	if (memory->count > 0)
		memory->count--;
	memory->disarmed = false;
}

/* The evaluator asks its memo when it makes the target. */
static int remember(struct toprules *rules, const struct target *target)
{
	for (size_t i = 0; i < rules->config->rule_count; i++) {
		const struct config_rule *rule = &rules->config->rules[i];
		struct trigger_memory memory;
		int r;

		if (!memo_get(rules->saved, rule->name, target->key, &memory))
			continue;
		go_back(&memory, &rule->trigger, rules->wall);
		r = memo_put(rules->memo, rule->name, target->key, &memory);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- events ---- */

/* One event of the ring, in order. 0 or -ENOMEM. */
static int toprules_event(struct toprules *rules, const struct ring_event *event)
{
	int r;

	if (event->type != RING_EVENT_LAPPED && event->type != RING_EVENT_DAMAGED)
		evaluator_writer(rules->evaluator, event->writer);
	switch (event->type) {
	case RING_EVENT_TICK:
		rules->tick = event->time;
		rules->wall = event->wall;
		evaluator_idle(rules->evaluator, event->idle_ns);
		return 0;
	case RING_EVENT_SAMPLE:
		evaluator_sample(rules->evaluator, event->id, event->time, event->sample);
		return 0;
	case RING_EVENT_TARGET:
		r = remember(rules, &event->target);
		return r < 0 ? r : evaluator_target(rules->evaluator, &event->target);
	case RING_EVENT_GONE:
		evaluator_gone(rules->evaluator, event->id);
		return 0;
	case RING_EVENT_TICK_END:
		return evaluator_tick(rules->evaluator, rules->tick, rules->wall);
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		evaluator_gap(rules->evaluator);
		return 0;
	}
	return 0;
}

/* ---- verdicts ---- */

struct judgement {
	const struct toprules *rules;
	wall_t now;
	struct toptable *table;
};

static uint64_t left_of(const struct judgement *judgement, const struct evaluator_status *status)
{
	wall_t until = status->memory->cooldown_until;
	struct trigger_memory saved;

	if (memo_get(judgement->rules->saved, status->rule->name, status->target->key, &saved) &&
	    saved.cooldown_until.ns > until.ns &&
	    saved.cooldown_until.ns <= judgement->now.ns + status->rule->trigger.cooldown_ns)
		until = saved.cooldown_until;
	return until.ns > judgement->now.ns ? until.ns - judgement->now.ns : 0;
}

static void set_nearness(const struct trigger_decision *decision, struct toptable_verdict *verdict)
{
	double threshold = decision->value + decision->distance;

	verdict->has_nearness = decision->has_distance;
	verdict->nearness = threshold > 0 ? decision->distance / threshold : decision->distance;
}

static int visit(void *ctx, const struct evaluator_status *status)
{
	const struct judgement *judgement = ctx;
	const struct trigger_decision *decision = status->decision;
	struct toptable_verdict verdict = { .rule = status->rule->name, .left_ns = left_of(judgement, status) };

	if (decision) {
		verdict.fired = decision->fires;
		set_nearness(decision, &verdict);
	}
	if (verdict.left_ns > 0)
		verdict.wait = TOPTABLE_COOLING;
	else if (decision && decision->phase == TRIGGER_IN_PENDING)
		verdict.wait = TOPTABLE_PENDING;
	if (verdict.wait == TOPTABLE_PENDING) {
		verdict.for_ns = decision->pending_ns;
		verdict.for_whole_ns = status->rule->trigger.for_ns;
	}
	toptable_judge(judgement->table, status->target->id, &verdict);
	return 0;
}

/* Hands what each rule thinks of each target to the table, as of now; names stay valid as long as the rules do. */
static void toprules_judge(const struct toprules *rules, wall_t now, struct toptable *table)
{
	struct judgement judgement = { rules, now, table };

	toptable_judge_begin(table);
	if (rules->evaluator)
		evaluator_visit(rules->evaluator, visit, &judgement);
}

/*
 * topfeed.c: a ring is never changed in its place: a daemon that starts makes a new file and renames it. So it is enough to look whether the
 * name still leads to the same file. The old one stays mapped, and readable, until then.
 */

/* A sampler that is held up for so long, and for so many of its intervals, is worth a word. */
#define SILENCE_NS (3 * NS_PER_S)
#define SILENCE_INTERVALS 5

static void let_go(struct topfeed *feed)
{
	ring_cursor_free(feed->cursor);
	ring_free(feed->ring);
	feed->cursor = NULL;
	feed->ring = NULL;
}

/* path set, the rest zeroed, is the right start. Lets go of the ring; may be attached again. */
static void topfeed_release(struct topfeed *feed)
{
	let_go(feed);
	feed->has_file = false;
}

static void free_ring(struct ring **ring)
{
	ring_free(*ring);
}

/*
 * Maps the ring that is at path now, to be read from `back_ns` before its last tick on. What was attached stays so if it fails. 0; -ENOMEM;
 * -EBADMSG: it is no ring, or one of another version; -errno.
 */
static int topfeed_attach(struct topfeed *feed, uint64_t back_ns)
{
	AUTO(free_ring) struct ring *ring = NULL;
	struct ring_cursor *cursor;
	struct ring_info info;
	struct stat st;
	int r;

	/* Should it be replaced between these two, the next look finds out. */
	r = stat(feed->path, &st) < 0 ? -errno : ring_open(AT_FDCWD, feed->path, false, &ring);
	feed->error = r;
	if (r < 0)
		return r;
	r = ring_cursor_new(ring, RING_OLDEST, &cursor);
	if (r < 0)
		return r;

	ring_info(ring, &info);
	ring_cursor_seek(cursor, mono_sub(info.last_tick, back_ns));
	let_go(feed);
	feed->ring = TAKE(ring);
	feed->cursor = cursor;
	feed->has_file = true;
	feed->dev = st.st_dev;
	feed->ino = st.st_ino;
	feed->lost_pages = feed->damaged_pages = 0;
	feed->tick = info.last_tick;
	feed->wall = (wall_t){ 0 };
	return 0;
}

/* Whether another file than the attached one is at path now: a daemon has started since. */
static bool topfeed_replaced(const struct topfeed *feed)
{
	struct stat st;

	if (stat(feed->path, &st) < 0)
		return false;
	return !feed->has_file || st.st_dev != feed->dev || st.st_ino != feed->ino;
}

static void notice(struct topfeed *feed, const struct ring_event *event)
{
	if (event->type == RING_EVENT_TICK) {
		feed->tick = event->time;
		feed->wall = event->wall;
	} else if (event->type == RING_EVENT_LAPPED) {
		feed->lost_pages += event->lost_pages;
	} else if (event->type == RING_EVENT_DAMAGED) {
		feed->damaged_pages += event->lost_pages;
	}
}

/* Delivers what is new until take returns non-zero; 0, that, or -ENOMEM. */
static int topfeed_poll(struct topfeed *feed, int (*take)(void *ctx, const struct ring_event *event), void *ctx)
{
	struct ring_event event;
	int r;

	if (!feed->cursor)
		return 0;
	while ((r = ring_cursor_next(feed->cursor, &event)) == 0) {
		notice(feed, &event);
		r = take(ctx, &event);
		if (r != 0)
			return r;
	}
	return r < 0 ? r : 0;
}

enum topfeed_state topfeed_state(const struct topfeed *feed, mono_t now, ring_alive *alive)
{
	struct ring_info info;
	int64_t silence;

	if (!feed->ring)
		return TOPFEED_ABSENT;
	ring_info(feed->ring, &info);
	if (info.clean)
		return TOPFEED_STOPPED;
	silence = mono_diff(now, info.last_tick);
	/* A time in the future is of another boot. */
	if (silence >= 0 && silence < (int64_t)SILENCE_NS)
		return TOPFEED_LIVE;
	if (silence >= 0 && info.interval_ns > 0 && (uint64_t)silence / SILENCE_INTERVALS < info.interval_ns)
		return TOPFEED_LIVE;
	return alive(info.pid, info.start_ticks) ? TOPFEED_SILENT : TOPFEED_KILLED;
}

void topfeed_info(const struct topfeed *feed, struct ring_info *ret)
{
	ring_info(feed->ring, ret);
}

#define DEFAULT_CONFIG "/etc/spikewatch/spikewatch.json"
#define DEFAULT_DROPINS "/etc/spikewatch/spikewatch.d"
#define SYSTEM_RING "/run/spikewatch/ring"

#define LOOK_INTERVAL_NS NS_PER_S

/* Cgroups are looked at this often unless the configuration says another time. */
#define CGROUP_INTERVAL_NS (100 * NS_PER_MS)

static const struct config nothing = { .ring.path = "", .incidents.directory = "", .state_file = "" };

/* ---- places ---- */

static void add_place(struct topwatch *watch, const char *path)
{
	for (size_t i = 0; i < watch->places; i++)
		if (strcmp(watch->place[i], path) == 0)
			return;
	if (watch->places < TOPWATCH_PLACES)
		snprintf(watch->place[watch->places++], PATHS_MAX, "%s", path);
}

static void set_file(struct topwatch *watch, const char *path, const char *dropins)
{
	snprintf(watch->config_path, PATHS_MAX, "%s", path);
	watch->file = (struct configfile){ .path = watch->config_path, .dropins = dropins };
}

/* A configuration that was named must be good. */
static int add_place_of_config(struct topwatch *watch, char *message)
{
	struct config *config;
	struct paths paths;
	int r = configfile_load(&watch->file, &config, message);

	if (r < 0)
		return r;
	if ((watch->config_given || *config->ring.path) && paths_choose(config, &paths) == 0)
		add_place(watch, paths.ring);
	config_free(config);
	return 0;
}

static int find_places(struct topwatch *watch, const char *ring, char *message)
{
	struct paths paths;
	int r = ring ? 0 : add_place_of_config(watch, message);

	if (ring)
		add_place(watch, ring);
	if (r < 0 && watch->config_given)
		return r;
	if (ring || watch->config_given)
		return 0;
	if (paths_choose(&nothing, &paths) == 0)
		add_place(watch, paths.ring);
	add_place(watch, SYSTEM_RING);
	return 0;
}

int topwatch_init(struct topwatch *watch, const char *ring, const char *config, char *message)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	*watch = (struct topwatch){ .config_given = config, .table.cgroup_read_ns = CGROUP_INTERVAL_NS };
	if (config && strlen(config) >= PATHS_MAX) {
		snprintf(message, CONFIGFILE_MESSAGE_MAX, "%s", strerror(ENAMETOOLONG));
		return -ENAMETOOLONG;
	}
	set_file(watch, config ? config : DEFAULT_CONFIG, config ? NULL : DEFAULT_DROPINS);
	r = procfd < 0 ? -errno : cglimits_machine(procfd, "", &watch->machine);
	if (r < 0) {
		snprintf(message, CONFIGFILE_MESSAGE_MAX, "/proc: %s", strerror(-r));
		return r;
	}
	return find_places(watch, ring, message);
}

void topwatch_release(struct topwatch *watch)
{
	topfeed_release(&watch->feed);
	toptable_release(&watch->table);
	toprules_free(watch->rules);
	watch->rules = NULL;
}

/* ---- the configuration that the daemon has ---- */

/* The value of -c in a command line whose words end with NUL. NULL: there is none. */
static const char *config_in(const char *words, size_t len)
{
	const char *end = words + len, *found = NULL;

	for (const char *word = words; word < end; word += strlen(word) + 1) {
		const char *next = word + strlen(word) + 1;

		if ((strcmp(word, "-c") == 0 || strcmp(word, "--config") == 0) && next < end)
			found = next;
		else if (strncmp(word, "--config=", 9) == 0)
			found = word + 9;
		else if (strncmp(word, "-c", 2) == 0 && word[2])
			found = word + 2;
	}
	return found;
}

/* A relative name is one in the directory that the daemon works in. */
static void set_file_of_daemon(struct topwatch *watch, int procfd, int32_t pid, const char *path)
{
	char directory[PATHS_MAX], whole[PATHS_MAX];
	ssize_t len = *path == '/' ? 0 : procread_link(procfd, pid, "cwd", directory, sizeof(directory));

	if (len < 0)
		return;
	if (snprintf(whole, sizeof(whole), "%s%s%s", len ? directory : "", len ? "/" : "", path) < (int)sizeof(whole))
		set_file(watch, whole, NULL);
}

static void find_config(struct topwatch *watch)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char words[8192];
	const char *path;
	struct ring_info info;
	ssize_t len;

	if (watch->config_given)
		return;
	set_file(watch, DEFAULT_CONFIG, DEFAULT_DROPINS);
	topfeed_info(&watch->feed, &info);
	if (procfd < 0 || info.pid <= 0 || !procread_is_alive(info.pid, info.start_ticks))
		return;
	len = procread_file(procfd, info.pid, "cmdline", words, sizeof(words));
	path = len > 0 ? config_in(words, (size_t)len) : NULL;
	if (path)
		set_file_of_daemon(watch, procfd, info.pid, path);
}

/* Without rules there still are figures. One that is bad now is what the daemon would refuse too: the rules stay. */
static int load_rules(struct topwatch *watch)
{
	struct toprules *rules = NULL;
	int r;

	watch->signature = toprules_signature(&watch->file);
	r = toprules_new(&watch->file, &watch->machine, &rules, watch->bad_config);
	if (r == -ENOMEM)
		return r;
	if (rules) {
		*watch->bad_config = '\0';
		toptable_judge_begin(&watch->table);
		toprules_free(watch->rules);
		watch->rules = rules;
		watch->table.cgroup_read_ns = toprules_config(rules)->sampling.cgroup_interval_ns;
	}
	return watch->rules ? toprules_begin(watch->rules) : 0;
}

/* ---- rings ---- */

static uint64_t span(const struct topwatch *watch)
{
	uint64_t least = (TOPTABLE_SECONDS + 1) * NS_PER_S, rules = watch->rules ? toprules_span_ns(watch->rules) : 0;

	return rules > least ? rules : least;
}

/* From the past on, with the rules that there are now. */
static int begin(struct topwatch *watch)
{
	struct topfeed *feed = &watch->feed;
	ino_t before = feed->ino;
	int r = load_rules(watch);

	if (r < 0)
		return r;
	r = topfeed_attach(feed, span(watch));
	if (r < 0)
		return r;
	/* A daemon that started at this very moment has begun to number targets anew. */
	if (feed->ino != before)
		toptable_release(&watch->table);
	toptable_rewind(&watch->table);
	return 0;
}

/* The first place where there is a ring. What goes wrong with a ring is in place_error. 0 or -ENOMEM. */
static int attach(struct topwatch *watch)
{
	for (size_t i = 0; i < watch->places; i++) {
		int r;

		watch->feed.path = watch->place[i];
		watch->place_error[i] = topfeed_attach(&watch->feed, 0);
		if (watch->place_error[i] == -ENOMEM)
			return -ENOMEM;
		if (watch->place_error[i] < 0)
			continue;
		find_config(watch);
		toptable_release(&watch->table);
		toprules_free(TAKE(watch->rules));
		watch->table.cgroup_read_ns = CGROUP_INTERVAL_NS;
		watch->since = (wall_t){ 0 };
		r = begin(watch);
		return r == -ENOMEM ? r : 0;
	}
	return 0;
}

/* A ring that has just been made may not be attached yet; then the next look does it. */
static int look(struct topwatch *watch)
{
	struct topfeed *feed = &watch->feed;
	int r = 0;

	if (!feed->ring)
		return attach(watch);
	if (topfeed_replaced(feed)) {
		topfeed_release(feed);
		return attach(watch);
	}
	if (toprules_signature(&watch->file) != watch->signature)
		r = begin(watch);
	return r == -ENOMEM ? r : 0;
}

/* ---- reading ---- */

static int take(void *ctx, const struct ring_event *event)
{
	struct topwatch *watch = ctx;
	struct toptable *table = &watch->table;
	int r = watch->rules ? toprules_event(watch->rules, event) : 0;

	if (r < 0)
		return r;
	if (event->type != RING_EVENT_LAPPED && event->type != RING_EVENT_DAMAGED)
		toptable_writer(table, event->writer);
	switch (event->type) {
	case RING_EVENT_TICK:
		if (watch->since.ns == 0)
			watch->since = event->wall;
		table->idle_ns = event->idle_ns;
		break;
	case RING_EVENT_SAMPLE:
		toptable_sample(table, event->id, event->time, event->sample);
		break;
	case RING_EVENT_TARGET:
		return toptable_target(table, &event->target);
	case RING_EVENT_GONE:
		toptable_gone(table, event->id, event->time);
		break;
	case RING_EVENT_TICK_END:
		toptable_tick(table, watch->feed.tick);
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		toptable_gap(table);
		break;
	}
	return 0;
}

int topwatch_update(struct topwatch *watch, mono_t now)
{
	int r = 0;

	if (!watch->has_looked || mono_diff(now, watch->looked) >= (int64_t)LOOK_INTERVAL_NS) {
		watch->looked = now;
		watch->has_looked = true;
		r = look(watch);
	}
	if (r == 0)
		r = topfeed_poll(&watch->feed, take, watch);
	if (r == 0 && watch->rules && watch->feed.wall.ns > 0)
		toprules_judge(watch->rules, watch->feed.wall, &watch->table);
	return r;
}

/* ---- words ---- */

static const char *advice(int error)
{
	switch (error) {
	case -ENOENT:
		return "No daemon has made a ring there. Start one: systemctl start spikewatchd, or for yourself\n"
		       "spikewatchd -c FILE. One whose ring is elsewhere: --ring FILE, or -c with its configuration.";
	case -EACCES:
	case -EPERM:
		return "Ask as root, as the user of the daemon, or as a member of the group spikewatch.";
	case -EBADMSG:
		return "The file is damaged, or of another version of spikewatch. A daemon that starts makes a new "
		       "one.";
	default:
		return NULL;
	}
}

int topwatch_explain(const struct topwatch *watch, const char *prefix, FILE *file)
{
	const char *what = NULL;
	bool bad = false;

	for (size_t i = 0; i < watch->places; i++) {
		int error = watch->place_error[i];

		fputs(prefix, file);
		output_escaped(file, watch->place[i]);
		fprintf(file, ": %s\n", error == -EBADMSG ? "not a ring that can be read" : strerror(-error));
		bad |= error == -EBADMSG;
		/* What can be done about a ring that is there says more. */
		if (!what || error != -ENOENT)
			what = advice(error);
	}
	if (what)
		fprintf(file, "%s\n", what);
	return bad ? EXIT_USAGE : EXIT_TROUBLE;
}

static bool state_note(const struct topwatch *watch, mono_t now, char *buf)
{
	struct ring_info info;

	switch (topfeed_state(&watch->feed, now, procread_is_alive)) {
	case TOPFEED_LIVE:
		return false;
	case TOPFEED_ABSENT:
		snprintf(buf, TOPWATCH_NOTE_MAX, "%s; waiting for a daemon to make one",
			 watch->feed.error == -EBADMSG ? "the ring is damaged, or of another version"
						       : "there is no ring any more");
		return true;
	case TOPFEED_SILENT:
		topfeed_info(&watch->feed, &info);
		snprintf(buf, TOPWATCH_NOTE_MAX, "the daemon has written nothing for %.0f s",
			 (double)mono_diff(now, info.last_tick) / 1e9);
		return true;
	case TOPFEED_STOPPED:
		snprintf(buf, TOPWATCH_NOTE_MAX, "the daemon has stopped; waiting for the next one");
		return true;
	case TOPFEED_KILLED:
		snprintf(buf, TOPWATCH_NOTE_MAX, "the daemon is gone, without a goodbye; waiting for the next one");
		return true;
	}
	return false;
}

bool topwatch_note(const struct topwatch *watch, mono_t now, size_t index, char *buf)
{
	const struct topfeed *feed = &watch->feed;

	if (state_note(watch, now, buf) && index-- == 0)
		return true;
	if (feed->damaged_pages > 0 && index-- == 0) {
		snprintf(buf, TOPWATCH_NOTE_MAX, "%ju pages of the ring are damaged; what they held is missing",
			 (uintmax_t)feed->damaged_pages);
		return true;
	}
	if (feed->lost_pages > 0 && index-- == 0) {
		snprintf(buf, TOPWATCH_NOTE_MAX, "%ju pages of the ring were overwritten before they were read here",
			 (uintmax_t)feed->lost_pages);
		return true;
	}
	if (watch->table.left_out > 0 && index-- == 0) {
		snprintf(buf, TOPWATCH_NOTE_MAX, "more than %u targets; %ju are left out", TOPTABLE_TARGETS_MAX,
			 (uintmax_t)watch->table.left_out);
		return true;
	}
	if (*watch->bad_config && index-- == 0) {
		snprintf(buf, TOPWATCH_NOTE_MAX, "%s: %s", watch->rules ? "rules as before a change" : "no rules",
			 watch->bad_config);
		return true;
	}
	return false;
}
