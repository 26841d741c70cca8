/*
 * top_data.c: the ring, the table of targets, and the rules.
 *
 * The ring is looked for in default places, the configuration in the command line of the process
 * whose pid is in the ring. A daemon that starts makes a new file and renames it, so it is enough
 * to check whether the name still leads to the same file. With a new ring target ids start again,
 * and so does the table.
 *
 * The table has rows in the order of their ids, which are given in order: a new one nearly always
 * goes to the end, and a binary search finds it. CPU use is the difference of two samples. A target
 * that did not run leaves no record and was seen unchanged at every tick (a cgroup: whenever it was
 * due). So a window ends where the target was last seen unchanged, and a burst is not spread over
 * the silence before it. The last minute is in two arrays of seconds of the monotonic clock; the
 * highest window of a second counts, because peaks are what is looked for.
 *
 * The rules start in the past, as far back as they need, and judge themselves into the present. If
 * the daemon's state file has a firing later than the start, that one would be wrong in the past
 * (its cooldown would be cut to the rule's own length): it is left out, to be found again in the
 * samples; its cooldown still counts for what is shown. A new configuration is judged from the past
 * on again, and peaks stay: reading the same samples twice does not raise them.
 */
#include "cli/top/top_data.h"

#include "cli/base/options.h"
#include "cli/base/output.h"
#include "daemon/engine/base/proc_read.h"
#include "lib/base/map.h"
#include "lib/cgroup/cgroup.h"
#include "lib/evaluator/rule_state.h"
#include "lib/model/pacing.h"
#include "lib/ring/ring.h"
#include "lib/rules/trigger.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* CPU is taken over at least so long: below, the grain of the kernel's accounting shows. */
#define TOP_TABLE_WINDOW_NS 100000000

/* A target that has ended is still shown for so long. */
#define TOP_TABLE_GONE_NS (10 * NS_PER_S)

/* Further targets are counted only. */
#define TOP_TABLE_TARGETS_MAX 65536u

enum top_feed_state {
	TOP_FEED_ABSENT,  /* there is no ring, see error */
	TOP_FEED_LIVE,    /* its daemon writes it */
	TOP_FEED_SILENT,  /* its daemon is alive, and has not written for a while */
	TOP_FEED_STOPPED, /* its daemon has stopped in order */
	TOP_FEED_KILLED,  /* its daemon has died */
};

/* ---- rows ---- */

static size_t row_place(const struct top_table *table, uint32_t id)
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

static struct top_table_row *find_row(const struct top_table *table, uint32_t id)
{
	size_t at = row_place(table, id);

	return at < table->count && table->row[at]->id == id ? table->row[at] : NULL;
}

static void free_row(struct top_table_row *row)
{
	free(row->name);
	free(row->encoded);
	free(row);
}

static void forget_samples(struct top_table_row *row)
{
	row->seen = false;
	row->has_cpu = false;
}

static void forget_verdicts(struct top_table_row *row)
{
	row->nearness = INFINITY;
	row->nearest = NULL;
	row->waiting_count = 0;
	row->pending = row->cooling = row->fired = 0;
}

/* Keeps all that the ring says of it. */
static int describe_row(struct top_table_row *row, const struct target *target)
{
	unsigned char encoded[TARGET_ENCODED_MAX];
	size_t len = target_encode(target, encoded, sizeof(encoded));
	void *copy;

	if (row->encoded && row->encoded_len == len && memcmp(row->encoded, encoded, len) == 0)
		return 0;
	copy = malloc(len);
	if (!copy)
		return -ENOMEM;
	free(row->encoded);
	row->encoded = memcpy(copy, encoded, len);
	row->encoded_len = len;
	return 0;
}

static int add_row(struct top_table *table, const struct target *target)
{
	AUTO_FREE char *name = NULL;
	struct top_table_row *row;
	size_t at = row_place(table, target->id);

	if (table->count == TOP_TABLE_TARGETS_MAX) {
		table->left_out++;
		return 0;
	}
	name = strdup(target->name);
	if (!name || vector_reserve(&table->row, &table->cap, table->count + 1, sizeof(*table->row)) < 0 ||
	    !(row = calloc(1, sizeof(*row))))
		return -ENOMEM;

	row->id = target->id;
	row->kind = target->kind;
	row->name = TAKE(name);
	row->cpu_peak = row->cpu_cores = NAN;
	forget_verdicts(row);
	memmove(table->row + at + 1, table->row + at, (table->count - at) * sizeof(struct top_table_row *));
	table->row[at] = row;
	table->count++;
	return describe_row(row, target);
}

static int top_table_target(struct top_table *table, const struct target *target)
{
	struct top_table_row *row = find_row(table, target->id);
	char *name;

	if (!row)
		return add_row(table, target);
	if (strcmp(row->name, target->name) == 0)
		return describe_row(row, target);
	name = strdup(target->name);
	if (!name)
		return -ENOMEM;
	free(row->name);
	row->name = name;
	return describe_row(row, target);
}

/* ---- the last minute ---- */

static float memory_now(const struct top_table_row *row)
{
	return row->seen && row->has_memory ? (float)row->memory_bytes : NAN;
}

/* Begins all seconds up to this one. Memory was in them what it was seen last. */
static void advance_to_second(struct top_table_row *row, uint64_t second)
{
	uint64_t first = row->second + 1;

	if (second <= row->second)
		return;
	if (second - row->second > TOP_TABLE_SECONDS)
		first = second - TOP_TABLE_SECONDS + 1;
	for (uint64_t s = first; s <= second; s++) {
		row->cpu[s % TOP_TABLE_SECONDS] = NAN;
		row->memory[s % TOP_TABLE_SECONDS] = memory_now(row);
	}
	row->second = second;
}

static void raise_to(float *value, float to)
{
	if (!(*value >= to))
		*value = to;
}

/* A window of CPU use counts in the second where it ends, and in those that it covers. */
static void note_cpu(struct top_table_row *row, mono_t from, mono_t to, double cores)
{
	uint64_t second = to.ns / NS_PER_S, first = from.ns / NS_PER_S + 1;

	advance_to_second(row, second);
	if (second - first >= TOP_TABLE_SECONDS && first < second)
		first = second - TOP_TABLE_SECONDS + 1;
	for (uint64_t s = first; s < second; s++)
		raise_to(&row->cpu[s % TOP_TABLE_SECONDS], (float)cores);
	if (second + TOP_TABLE_SECONDS > row->second)
		raise_to(&row->cpu[second % TOP_TABLE_SECONDS], (float)cores);
	if (!(row->cpu_peak >= cores))
		row->cpu_peak = cores;
}

/* ---- samples ---- */

static void begin_marks(struct top_table_row *row, mono_t at, uint64_t cpu_ns)
{
	row->window = row->marks[0] = row->marks[1] = (struct top_table_mark){ at, cpu_ns };
	row->has_cpu = true;
}

static void observe_cpu(struct top_table_row *row, mono_t at, uint64_t cpu_ns)
{
	int64_t passed = mono_diff(at, row->window.at);

	/* A counter that decreased has started again. */
	if (!row->has_cpu || cpu_ns < row->window.cpu_ns || passed < 0) {
		begin_marks(row, at, cpu_ns);
		return;
	}
	if (passed < TOP_TABLE_WINDOW_NS)
		return;
	note_cpu(row, row->window.at, at, (double)(cpu_ns - row->window.cpu_ns) / (double)passed);
	row->window = (struct top_table_mark){ at, cpu_ns };
}

/* When the target was last seen unchanged. As judged_target_seen_at. */
static mono_t seen_at(const struct top_table *table, const struct top_table_row *row)
{
	bool told = sample_has(&row->sample, SAMPLE_FILES_READ);
	uint64_t read_ns = row->kind == TARGET_CGROUP && !told ? table->cgroup_read_ns : 0;
	mono_t now = table->nows[row->line];
	int64_t age = mono_diff(now, row->at) - (int64_t)(read_ns / 2);

	if (!table->ticked || age < 0)
		return row->at;
	if (row->kind == TARGET_PROCESS)
		return idle_backoff_seen_at(row->at, NULL, now, table->idle_ns);
	return read_ns ? mono_add(row->at, (uint64_t)age / read_ns * read_ns) : now;
}

static void observe_silence(const struct top_table *table, struct top_table_row *row)
{
	if (row->seen && row->has_cpu)
		observe_cpu(row, seen_at(table, row), row->sample.value[SAMPLE_CPU]);
}

static void observe_memory(struct top_table_row *row, uint64_t second, const struct sample *sample)
{
	uint64_t peak = metric_peak(row->seen ? &row->sample : sample, sample);

	row->has_memory = sample_has(sample, SAMPLE_MEMORY);
	if (row->has_memory)
		row->memory_bytes = sample->value[SAMPLE_MEMORY];
	if (peak > row->memory_peak_bytes)
		row->memory_peak_bytes = peak;
	if (row->has_memory && second + TOP_TABLE_SECONDS > row->second)
		raise_to(&row->memory[second % TOP_TABLE_SECONDS],
			 (float)(peak > row->memory_bytes ? peak : row->memory_bytes));
}

/* Unknown ids are ignored. */
static void top_table_sample(struct top_table *table, uint32_t id, mono_t at, const struct sample *sample)
{
	struct top_table_row *row = find_row(table, id);
	uint64_t second = at.ns / NS_PER_S;

	if (!row)
		return;
	advance_to_second(row, second);
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

static void top_table_gone(struct top_table *table, uint32_t id, mono_t at)
{
	struct top_table_row *row = find_row(table, id);

	if (!row)
		return;
	forget_samples(row);
	forget_verdicts(row);
	row->gone = true;
	row->gone_at = at;
}

/* Samples are missing: no window reaches over this. */
static void top_table_gap(struct top_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		forget_samples(table->row[i]);
	table->ticked = false;
}

/* CPU over it is its average; seconds that lie in it have no value of their own. */
static void top_table_hole(struct top_table *table, const struct sampling_hole *hole)
{
	uint64_t first = hole->from.ns / NS_PER_S, last = hole->to.ns / NS_PER_S;

	if (hole->suspended_ns > 0)
		table->hole[table->line][last % TOP_TABLE_SECONDS] = last + 1;
	if (mono_diff(hole->to, hole->from) < (int64_t)(NS_PER_S / 2) && hole->suspended_ns == 0)
		return;
	table->last_hole = *hole;
	if (last - first >= TOP_TABLE_SECONDS)
		first = last - TOP_TABLE_SECONDS + 1;
	for (uint64_t s = first; s <= last; s++) {
		uint64_t from = s * NS_PER_S > hole->from.ns ? s * NS_PER_S : hole->from.ns;
		uint64_t to = (s + 1) * NS_PER_S < hole->to.ns ? (s + 1) * NS_PER_S : hole->to.ns;

		if (to > from && to - from >= NS_PER_S / 2)
			table->hole[table->line][s % TOP_TABLE_SECONDS] = s + 1;
	}
}

/* Takes out those that ended long enough ago. */
static void remove_ended(struct top_table *table)
{
	size_t kept = 0;

	for (size_t i = 0; i < table->count; i++) {
		struct top_table_row *row = table->row[i];

		if (row->gone && mono_diff(table->now, row->gone_at) > (int64_t)TOP_TABLE_GONE_NS)
			free_row(row);
		else
			table->row[kept++] = row;
	}
	table->count = kept;
}

static void begin_second(const struct top_table *table, struct top_table_row *row, uint64_t second)
{
	observe_silence(table, row);
	advance_to_second(row, second);
	if (!row->seen || !row->has_cpu)
		return;
	row->marks[0] = row->marks[1];
	row->marks[1] = (struct top_table_mark){ seen_at(table, row), row->sample.value[SAMPLE_CPU] };
}

/* All samples up to now were delivered; targets without one were seen unchanged. */
static void top_table_tick(struct top_table *table, mono_t now)
{
	mono_t latest =
		table->ticked && mono_diff(now, table->now) < 0 ? table->now : now; /* another writer may be ahead */
	uint64_t second = latest.ns / NS_PER_S;
	bool begins = !table->ticked || second != table->now.ns / NS_PER_S;

	table->nows[table->line] = now;
	table->now = latest;
	table->ticked = true;
	if (!begins)
		return;
	remove_ended(table);
	for (size_t i = 0; i < table->count; i++)
		begin_second(table, table->row[i], second);
}

/* ---- rules ---- */

/* Forgets what top_table_judge was told. */
static void top_table_judge_begin(struct top_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		forget_verdicts(table->row[i]);
}

/* Before the past is read again: forgets all but names and peaks. */
static void top_table_rewind(struct top_table *table)
{
	top_table_gap(table);
	top_table_judge_begin(table);
	for (size_t i = 0; i < table->count; i++)
		table->row[i]->second = 0;
}

/* Pending ones first. */
static void keep_waiting(struct top_table_row *row, const struct top_table_verdict *verdict)
{
	size_t kept = row->waiting_count < TOP_TABLE_WAITING_MAX ? row->waiting_count : TOP_TABLE_WAITING_MAX;
	size_t at = verdict->wait == TOP_TABLE_PENDING ? row->pending - 1 : kept;

	row->waiting_count++;
	if (at >= TOP_TABLE_WAITING_MAX)
		return;
	if (kept == TOP_TABLE_WAITING_MAX)
		kept--;
	memmove(row->waiting + at + 1, row->waiting + at, (kept - at) * sizeof(*row->waiting));
	row->waiting[at] = *verdict;
}

static void top_table_judge(struct top_table *table, uint32_t id, const struct top_table_verdict *verdict)
{
	struct top_table_row *row = find_row(table, id);
	double nearness = verdict->has_nearness ? verdict->nearness : INFINITY;

	if (!row || row->gone)
		return;
	if (!row->nearest || nearness < row->nearness) {
		row->nearest = verdict->rule;
		row->nearness = nearness;
	}
	row->fired += verdict->fired;
	row->pending += verdict->wait == TOP_TABLE_PENDING;
	row->cooling += verdict->wait == TOP_TABLE_COOLING;
	if (verdict->wait != TOP_TABLE_CALM)
		keep_waiting(row, verdict);
}

/* ---- views ---- */

static bool matches_filter(const struct top_table_row *row, const char *filter)
{
	if (!filter || !*filter)
		return true;
	if (strpbrk(filter, "*?"))
		return fnmatch(filter, row->name, FNM_CASEFOLD) == 0;
	return strcasestr(row->name, filter) != NULL;
}

static double cpu_now(const struct top_table *table, const struct top_table_row *row)
{
	mono_t at = row->seen ? seen_at(table, row) : row->at;
	int64_t passed = mono_diff(at, row->marks[0].at);

	/* Too short a time, until a window has ended. */
	if (!row->seen || !row->has_cpu || passed < TOP_TABLE_WINDOW_NS)
		return NAN;
	return (double)(row->sample.value[SAMPLE_CPU] - row->marks[0].cpu_ns) / (double)passed;
}

/* What it is sorted by, highest first; NAN comes last. */
static double key_of(const struct top_table_row *row, enum top_table_order order)
{
	switch (order) {
	case TOP_TABLE_BY_CPU:
		return row->cpu_cores;
	case TOP_TABLE_BY_MEMORY:
		return row->has_memory && !row->gone ? (double)row->memory_bytes : NAN;
	case TOP_TABLE_BY_DISTANCE:
		return isfinite(row->nearness) ? -row->nearness : NAN;
	case TOP_TABLE_BY_NAME:
	case TOP_TABLE_ORDERS:
		break;
	}
	return 0;
}

static int compare_rows(const void *a, const void *b, void *ctx)
{
	const struct top_table_row *x = *(struct top_table_row *const *)a, *y = *(struct top_table_row *const *)b;
	const struct top_table_wish *wish = ctx;
	double kx = key_of(x, wish->order), ky = key_of(y, wish->order);
	int way = wish->reverse ? -1 : 1, names = strcmp(x->name, y->name);

	if (isnan(kx) != isnan(ky))
		return isnan(kx) ? 1 : -1;
	/* A pending rule is nearer than any distance. */
	if (wish->order == TOP_TABLE_BY_DISTANCE && (x->pending > 0) != (y->pending > 0))
		return x->pending ? -way : way;
	if (!isnan(kx) && kx != ky)
		return kx > ky ? -way : way;
	if (names != 0)
		return wish->order == TOP_TABLE_BY_NAME ? way * names : names;
	return x->id < y->id ? -1 : x->id > y->id;
}

int top_table_view(struct top_table *table, const struct top_table_wish *wish, struct top_table_list *ret)
{
	size_t count = 0;

	if (vector_reserve(&table->view, &table->view_cap, table->count, sizeof(*table->view)) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < table->count; i++) {
		struct top_table_row *row = table->row[i];

		row->cpu_cores = cpu_now(table, row);
		if (matches_filter(row, wish->filter))
			table->view[count++] = row;
	}
	if (count > 1)
		qsort_r(table->view, count, sizeof(struct top_table_row *), compare_rows, (void *)(uintptr_t)wish);

	*ret = (struct top_table_list){ table->view, count };
	return 0;
}

void top_table_history(const struct top_table *table, const struct top_table_row *row, enum top_table_series series,
		       double *ret, size_t count)
{
	const float *values = series == TOP_TABLE_CPU_CORES ? row->cpu : row->memory;
	uint64_t last = table->now.ns / NS_PER_S;

	for (size_t i = 0; i < count; i++)
		ret[i] = NAN;
	for (uint64_t back = 0; back < TOP_TABLE_SECONDS && back <= last; back++) {
		uint64_t second = last - back;
		double *cell = &ret[(TOP_TABLE_SECONDS - 1 - back) * count / TOP_TABLE_SECONDS];
		bool known = row->second > 0 && second <= row->second && second + TOP_TABLE_SECONDS > row->second;
		double value = known ? (double)values[second % TOP_TABLE_SECONDS] : NAN;

		if (table->hole[row->line][second % TOP_TABLE_SECONDS] == second + 1)
			value = TOP_TABLE_HOLE;
		if (!isnan(value) && !(*cell >= value))
			*cell = value;
	}
}

static void top_table_release(struct top_table *table)
{
	for (size_t i = 0; i < table->count; i++)
		free_row(table->row[i]);
	free(table->row);
	free(table->view);
	*table = (struct top_table){ .idle_ns = table->idle_ns, .cgroup_read_ns = table->cgroup_read_ns };
}

/* ---- the rules ---- */

struct top_rules {
	struct metric_machine machine;
	struct config *config;
	struct evaluator *evaluator;
	struct rule_state *saved;      /* by the daemon */
	struct rule_state *rule_state; /* of the evaluator: as saved, where that fits into the past */
	wall_t wall;                   /* of the last tick */
};

static uint64_t hash_mix(uint64_t sum, uint64_t value)
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
	sum = hash_mix(sum, (uint64_t)st.st_ino);
	sum = hash_mix(sum, (uint64_t)st.st_size);
	sum = hash_mix(sum, (uint64_t)st.st_mtim.tv_sec);
	return hash_mix(sum, (uint64_t)st.st_mtim.tv_nsec);
}

/* A number that changes whenever the file or a file in the directory of drop-ins does. */
static uint64_t top_rules_signature(const struct config_file *file)
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

/* NULL is fine. */
static void top_rules_free(struct top_rules *rules)
{
	if (!rules)
		return;

	evaluator_free(rules->evaluator);
	rule_state_free(rules->rule_state);
	rule_state_free(rules->saved);
	config_free(rules->config);
	free(rules);
}

CLEANUP(top_rules, free);

/* 0; as config_file_load otherwise, with its message. */
static int top_rules_new(const struct config_file *file, const struct metric_machine *machine, struct top_rules **ret,
			 char *message)
{
	AUTO(top_rules_freep) struct top_rules *rules = calloc(1, sizeof(*rules));
	int r;

	if (!rules) {
		snprintf(message, CONFIG_FILE_MESSAGE_MAX, "%s", strerror(ENOMEM));
		return -ENOMEM;
	}
	rules->machine = *machine;
	r = config_file_load(file, &rules->config, message);
	if (r < 0)
		return r;

	*ret = TAKE(rules);
	return 0;
}

/* How much of the past the rules need. */
static uint64_t top_rules_span_ns(const struct top_rules *rules)
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

/* A file that is missing, damaged or not readable is no state. */
static int load_saved(struct top_rules *rules)
{
	char boot_id[64], error[256];
	struct paths paths;
	int r;

	proc_read_line(AT_FDCWD, 0, "/proc/sys/kernel/random/boot_id", boot_id, sizeof(boot_id));
	rule_state_free(TAKE(rules->saved));
	r = rule_state_new(boot_id, &rules->saved);
	if (r < 0 || paths_choose(rules->config, &paths) < 0)
		return r;

	AUTO_CLOSE int dirfd = open(paths.state, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	r = dirfd < 0 ? 0 : rule_state_load(rules->saved, dirfd, paths.state_name, error, sizeof(error));
	return r == -ENOMEM ? r : 0;
}

static int ignore_firing(void *ctx, const struct evaluator_firing *firing)
{
	(void)ctx;
	(void)firing;
	return 0;
}

/* Before the events of a ring, from some time on: forgets all but the state file. 0 or -ENOMEM. */
static int top_rules_begin(struct top_rules *rules)
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
	rule_state_free(TAKE(rules->rule_state));
	r = rule_state_new("", &rules->rule_state);
	if (r < 0)
		return r;
	options.rule_state = rules->rule_state;
	return evaluator_new(&options, &rules->evaluator);
}

/* The state as of `wall`: less a firing after it. */
static void forget_later_firing(struct trigger_memory *memory, const struct trigger_rule *rule, wall_t wall)
{
	if (memory->cooldown_until.ns <= wall.ns + rule->cooldown_ns)
		return;
	memory->cooldown_until = (wall_t){ 0 };
	if (memory->count > 0)
		memory->count--;
	memory->disarmed = false;
}

/* The evaluator reads the rule state when it adds the target. */
static int remember_target(struct top_rules *rules, const struct target *target)
{
	for (size_t i = 0; i < rules->config->rule_count; i++) {
		const struct config_rule *rule = &rules->config->rules[i];
		struct trigger_memory memory;
		int r;

		if (!rule_state_get(rules->saved, rule->name, target->key, &memory))
			continue;
		forget_later_firing(&memory, &rule->trigger, rules->wall);
		r = rule_state_put(rules->rule_state, rule->name, target->key, &memory);
		if (r < 0)
			return r;
	}
	return 0;
}

/* One event of the ring, in order. 0 or -ENOMEM. */
static int top_rules_event(struct top_rules *rules, const struct ring_event *event)
{
	int r = event->type == RING_EVENT_TARGET ? remember_target(rules, &event->target) : 0;

	if (event->type == RING_EVENT_TICK)
		rules->wall = event->wall;
	return r < 0 ? r : evaluator_event(rules->evaluator, event);
}

struct judgement {
	const struct top_rules *rules;
	wall_t now;
	struct top_table *table;
};

static uint64_t left_of(const struct judgement *judgement, const struct evaluator_status *status)
{
	wall_t until = status->memory->cooldown_until;
	struct trigger_memory saved;

	if (rule_state_get(judgement->rules->saved, status->rule->name, status->target->key, &saved) &&
	    saved.cooldown_until.ns > until.ns &&
	    saved.cooldown_until.ns <= judgement->now.ns + status->rule->trigger.cooldown_ns)
		until = saved.cooldown_until;
	return until.ns > judgement->now.ns ? until.ns - judgement->now.ns : 0;
}

static struct top_table_verdict verdict_of(const struct judgement *judgement, const struct evaluator_status *status)
{
	const struct trigger_decision *decision = status->decision;
	struct top_table_verdict verdict = { .rule = status->rule->name, .left_ns = left_of(judgement, status) };

	if (decision) {
		double threshold = decision->value + decision->distance;

		verdict.fired = decision->fires;
		verdict.has_nearness = decision->has_distance;
		verdict.nearness = threshold > 0 ? decision->distance / threshold : decision->distance;
	}
	if (verdict.left_ns > 0)
		verdict.wait = TOP_TABLE_COOLING;
	else if (decision && decision->phase == TRIGGER_IN_PENDING)
		verdict.wait = TOP_TABLE_PENDING;
	if (verdict.wait == TOP_TABLE_PENDING) {
		verdict.for_ns = decision->pending_ns;
		verdict.for_whole_ns = status->rule->trigger.for_ns;
	}
	return verdict;
}

static int visit_status(void *ctx, const struct evaluator_status *status)
{
	const struct judgement *judgement = ctx;
	struct top_table_verdict verdict = verdict_of(judgement, status);

	top_table_judge(judgement->table, status->target->id, &verdict);
	return 0;
}

struct rule_list {
	struct judgement judgement;
	struct top_table_rule *rules;
	size_t count, cap;
};

static int add_rule(void *ctx, const struct evaluator_status *status)
{
	const struct trigger_decision *decision = status->decision;
	struct rule_list *list = ctx;
	struct top_table_rule rule = {
		.verdict = verdict_of(&list->judgement, status),
		.unit = metric_unit(status->rule->metric),
		.value = decision && decision->available ? decision->value : NAN,
		.threshold = decision && decision->has_distance ? decision->value + decision->distance : NAN,
		.reason = decision ? trigger_reason_name(decision->reason) : "",
		.firings = status->memory->fired,
	};

	if (list->count < list->cap)
		list->rules[list->count] = rule;
	list->count++;
	return 0;
}

static int by_nearness(const void *a, const void *b)
{
	const struct top_table_rule *x = a, *y = b;
	double nx = x->verdict.has_nearness ? x->verdict.nearness : INFINITY;
	double ny = y->verdict.has_nearness ? y->verdict.nearness : INFINITY;

	return nx < ny ? -1 : nx > ny;
}

/* Gives the table the state of each rule on each target; names are valid as long as the rules. */
static void top_rules_judge(const struct top_rules *rules, wall_t now, struct top_table *table)
{
	struct judgement judgement = { rules, now, table };

	top_table_judge_begin(table);
	if (rules->evaluator)
		evaluator_visit(rules->evaluator, visit_status, &judgement);
}

/* ---- the ring ---- */

/* After so long, and so many intervals, without a tick the daemon counts as silent. */
#define SILENCE_NS (3 * NS_PER_S)
#define SILENCE_INTERVALS 5

static void detach_ring(struct top_feed *feed)
{
	ring_cursor_free(feed->cursor);
	ring_free(feed->ring);
	feed->cursor = NULL;
	feed->ring = NULL;
}

/* Starts with path set, the rest zeroed. May be attached again. */
static void top_feed_release(struct top_feed *feed)
{
	detach_ring(feed);
	feed->has_file = false;
}

/*
 * Maps the ring at path, to be read from back_ns before its last tick on. On failure the old one
 * stays. 0; -EBADMSG: not a ring, or of another version; -errno.
 */
static int top_feed_attach(struct top_feed *feed, uint64_t back_ns)
{
	AUTO(ring_freep) struct ring *ring = NULL;
	struct ring_cursor *cursor;
	struct ring_info info;
	struct stat st;
	int r;

	/* If it is replaced between these two, the next check notices. */
	r = stat(feed->path, &st) < 0 ? -errno : ring_open(AT_FDCWD, feed->path, false, &ring);
	feed->error = r;
	if (r < 0)
		return r;
	r = ring_cursor_new(ring, RING_OLDEST, &cursor);
	if (r < 0)
		return r;

	ring_info(ring, &info);
	ring_cursor_seek(cursor, mono_sub(info.last_tick, back_ns));
	detach_ring(feed);
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
static bool top_feed_replaced(const struct top_feed *feed)
{
	struct stat st;

	if (stat(feed->path, &st) < 0)
		return false;
	return !feed->has_file || st.st_dev != feed->dev || st.st_ino != feed->ino;
}

static void note_event(struct top_feed *feed, const struct ring_event *event)
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
static int top_feed_poll(struct top_feed *feed, int (*take)(void *ctx, const struct ring_event *event), void *ctx)
{
	struct ring_event event;
	int r;

	if (!feed->cursor)
		return 0;
	while ((r = ring_cursor_next(feed->cursor, &event)) == 0) {
		note_event(feed, &event);
		r = take(ctx, &event);
		if (r != 0)
			return r;
	}
	return r < 0 ? r : 0;
}

/* now: of the monotonic clock. alive: whether a process lives. */
static enum top_feed_state top_feed_state(const struct top_feed *feed, mono_t now, ring_alive *alive)
{
	struct ring_info info;
	uint64_t interval_ns;
	int64_t silence;

	if (!feed->ring)
		return TOP_FEED_ABSENT;
	ring_info(feed->ring, &info);
	if (info.clean)
		return TOP_FEED_STOPPED;
	silence = mono_diff(now, info.last_tick);
	interval_ns = ring_interval_ns(feed->ring);
	/* A time in the future is of an earlier boot. */
	if (silence >= 0 && ((uint64_t)silence < SILENCE_NS || (uint64_t)silence / SILENCE_INTERVALS < interval_ns))
		return TOP_FEED_LIVE;
	return alive(info.pid, info.start_ticks) ? TOP_FEED_SILENT : TOP_FEED_KILLED;
}

#define CHECK_INTERVAL_NS NS_PER_S

/* Cgroups are looked at this often unless the configuration says another time. */
#define CGROUP_INTERVAL_NS (100 * NS_PER_MS)

static const struct config no_config = {
	.ring.path = "", .incidents.directory = "", .state_file = "", .history.directory = ""
};

/* ---- places ---- */

static void add_place(struct top_watch *watch, const char *path)
{
	for (size_t i = 0; i < watch->places; i++)
		if (strcmp(watch->place[i], path) == 0)
			return;
	if (watch->places < TOP_WATCH_PLACES)
		snprintf(watch->place[watch->places++], PATHS_MAX, "%s", path);
}

static void set_file(struct top_watch *watch, const char *path, const char *dropins)
{
	snprintf(watch->config_path, PATHS_MAX, "%s", path);
	watch->file =
		(struct config_file){ .path = watch->config_path, .dropins = dropins, .or_builtin = dropins != NULL };
}

/* A configuration that was named must be good. */
static int add_place_of_config(struct top_watch *watch, char *message)
{
	struct config *config;
	struct paths paths;
	int r = config_file_load(&watch->file, &config, message);

	if (r < 0)
		return r;
	if ((watch->config_given || *config->ring.path) && paths_choose(config, &paths) == 0)
		add_place(watch, paths.ring);
	config_free(config);
	return 0;
}

static int find_places(struct top_watch *watch, const char *ring, char *message)
{
	struct paths paths;
	int r = ring ? 0 : add_place_of_config(watch, message);

	if (ring)
		add_place(watch, ring);
	if (r < 0 && watch->config_given)
		return r;
	if (ring || watch->config_given)
		return 0;
	if (paths_choose(&no_config, &paths) == 0)
		add_place(watch, paths.ring);
	add_place(watch, PATHS_SYSTEM_RING);
	return 0;
}

int top_watch_init(struct top_watch *watch, const char *ring, const char *config, char *message)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	*watch = (struct top_watch){ .config_given = config, .table.cgroup_read_ns = CGROUP_INTERVAL_NS };
	if (config && strlen(config) >= PATHS_MAX) {
		snprintf(message, CONFIG_FILE_MESSAGE_MAX, "%s", strerror(ENAMETOOLONG));
		return -ENAMETOOLONG;
	}
	set_file(watch, config ? config : PATHS_CONFIG, config ? NULL : PATHS_DROPINS);
	r = procfd < 0 ? -errno : cgroup_limits_machine(procfd, "", NULL, &watch->machine);
	if (r < 0) {
		snprintf(message, CONFIG_FILE_MESSAGE_MAX, "/proc: %s", strerror(-r));
		return r;
	}
	return find_places(watch, ring, message);
}

void top_watch_release(struct top_watch *watch)
{
	top_feed_release(&watch->feed);
	top_table_release(&watch->table);
	top_rules_free(watch->rules);
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
static void set_file_of_daemon(struct top_watch *watch, int procfd, int32_t pid, const char *path)
{
	char directory[PATHS_MAX], whole[PATHS_MAX];
	ssize_t len = *path == '/' ? 0 : proc_read_link(procfd, pid, "cwd", directory, sizeof(directory));

	if (len < 0)
		return;
	if (snprintf(whole, sizeof(whole), "%s%s%s", len ? directory : "", len ? "/" : "", path) < (int)sizeof(whole))
		set_file(watch, whole, NULL);
}

static void find_config(struct top_watch *watch)
{
	AUTO_CLOSE int procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char words[8192];
	const char *path;
	struct ring_info info;
	ssize_t len;

	if (watch->config_given)
		return;
	set_file(watch, PATHS_CONFIG, PATHS_DROPINS);
	ring_info(watch->feed.ring, &info);
	if (procfd < 0 || info.pid <= 0 || !proc_read_is_alive(info.pid, info.start_ticks))
		return;
	len = proc_read_file(procfd, info.pid, "cmdline", words, sizeof(words));
	path = len > 0 ? config_in(words, (size_t)len) : NULL;
	if (path)
		set_file_of_daemon(watch, procfd, info.pid, path);
}

/* If the configuration is bad the rules stay, as the daemon's do. */
static int load_rules(struct top_watch *watch)
{
	struct top_rules *rules = NULL;
	struct paths paths;
	int r;

	watch->signature = top_rules_signature(&watch->file);
	r = top_rules_new(&watch->file, &watch->machine, &rules, watch->bad_config);
	if (r == -ENOMEM)
		return r;
	if (rules) {
		*watch->bad_config = '\0';
		top_table_judge_begin(&watch->table);
		top_rules_free(watch->rules);
		watch->rules = rules;
		watch->table.cgroup_read_ns = rules->config->sampling.cgroup_interval_ns;
	}
	if (watch->rules && paths_choose(watch->rules->config, &paths) == 0)
		snprintf(watch->incidents, sizeof(watch->incidents), "%s", paths.incidents);
	return watch->rules ? top_rules_begin(watch->rules) : 0;
}

/* ---- rings ---- */

static uint64_t needed_past_ns(const struct top_watch *watch)
{
	uint64_t least = (TOP_TABLE_SECONDS + 1) * NS_PER_S, rules = watch->rules ? top_rules_span_ns(watch->rules) : 0;

	return rules > least ? rules : least;
}

/* From the past on, with the rules that there are now. */
static int read_again(struct top_watch *watch)
{
	struct top_feed *feed = &watch->feed;
	ino_t before = feed->ino;
	int r = load_rules(watch);

	if (r < 0)
		return r;
	r = top_feed_attach(feed, needed_past_ns(watch));
	if (r < 0)
		return r;
	/* A daemon that started at this very moment has begun to number targets anew. */
	if (feed->ino != before)
		top_table_release(&watch->table);
	top_table_rewind(&watch->table);
	return 0;
}

/* The first place where there is a ring; else place_error says why. 0 or -ENOMEM. */
static int attach_first(struct top_watch *watch)
{
	for (size_t i = 0; i < watch->places; i++) {
		int r;

		watch->feed.path = watch->place[i];
		watch->place_error[i] = top_feed_attach(&watch->feed, 0);
		if (watch->place_error[i] == -ENOMEM)
			return -ENOMEM;
		if (watch->place_error[i] < 0)
			continue;
		find_config(watch);
		top_table_release(&watch->table);
		top_rules_free(TAKE(watch->rules));
		watch->table.cgroup_read_ns = CGROUP_INTERVAL_NS;
		watch->since = (wall_t){ 0 };
		r = read_again(watch);
		return r == -ENOMEM ? r : 0;
	}
	return 0;
}

/* A ring that has just been made may not be attached yet; then the next look does it. */
static int check_ring(struct top_watch *watch)
{
	struct top_feed *feed = &watch->feed;
	int r = 0;

	if (feed->ring && top_feed_replaced(feed))
		top_feed_release(feed);
	if (!feed->ring)
		return attach_first(watch);
	if (top_rules_signature(&watch->file) != watch->signature)
		r = read_again(watch);
	return r == -ENOMEM ? r : 0;
}

/* ---- reading ---- */

static int take_event(void *ctx, const struct ring_event *event)
{
	struct top_watch *watch = ctx;
	struct top_table *table = &watch->table;
	int r = watch->rules ? top_rules_event(watch->rules, event) : 0;

	if (r < 0)
		return r;
	/* Whose samples and ticks follow; a tick is no sign of other writers' targets. */
	if (event->type != RING_EVENT_LAPPED && event->type != RING_EVENT_DAMAGED)
		table->line = writer_clocks_of(event->writer);
	switch (event->type) {
	case RING_EVENT_TICK:
		if (watch->since.ns == 0)
			watch->since = event->wall;
		table->idle_ns = event->idle_ns;
		break;
	case RING_EVENT_HOLE:
		top_table_hole(table, &event->hole);
		break;
	case RING_EVENT_SAMPLE:
		top_table_sample(table, event->id, event->time, event->sample);
		break;
	case RING_EVENT_TARGET:
		return top_table_target(table, &event->target);
	case RING_EVENT_GONE:
		top_table_gone(table, event->id, event->time);
		break;
	case RING_EVENT_TICK_END:
		top_table_tick(table, watch->feed.tick);
		break;
	case RING_EVENT_LAPPED:
	case RING_EVENT_DAMAGED:
		top_table_gap(table);
		break;
	}
	return 0;
}

size_t top_watch_rules(const struct top_watch *watch, uint32_t id, struct top_table_rule *ret, size_t cap)
{
	struct rule_list list = { .judgement = { watch->rules, watch->feed.wall, NULL }, .rules = ret, .cap = cap };

	if (!watch->rules || !watch->rules->evaluator || watch->feed.wall.ns == 0)
		return 0;
	evaluator_visit_one(watch->rules->evaluator, id, add_rule, &list);
	qsort(ret, list.count < cap ? list.count : cap, sizeof(*ret), by_nearness);
	return list.count;
}

int top_watch_update(struct top_watch *watch, mono_t now)
{
	int r = 0;

	if (!watch->has_checked || mono_diff(now, watch->checked) >= (int64_t)CHECK_INTERVAL_NS) {
		watch->checked = now;
		watch->has_checked = true;
		r = check_ring(watch);
	}
	if (r == 0)
		r = top_feed_poll(&watch->feed, take_event, watch);
	if (r == 0 && watch->rules && watch->feed.wall.ns > 0)
		top_rules_judge(watch->rules, watch->feed.wall, &watch->table);
	return r;
}

/* ---- messages ---- */

static const char *advice_for(int error)
{
	switch (error) {
	case -ENOENT:
		return "No daemon has made a ring there. Start one: systemctl start spikewatchd, or as yourself\n"
		       "spikewatchd -c FILE. If its ring is elsewhere: --ring FILE, or -c with its configuration.";
	case -EACCES:
	case -EPERM:
		return "Run this as root, as the user of the daemon, or as a member of the group spikewatch.";
	case -EBADMSG:
		return "The file is damaged, or of another version of spikewatch. A daemon that starts makes a new "
		       "one.";
	default:
		return NULL;
	}
}

int top_watch_explain(const struct top_watch *watch, const char *prefix, FILE *file)
{
	const char *what = NULL;
	bool bad = false;

	for (size_t i = 0; i < watch->places; i++) {
		int error = watch->place_error[i];

		fputs(prefix, file);
		output_escaped(file, watch->place[i]);
		fprintf(file, ": %s\n", error == -EBADMSG ? "not a ring that can be read" : strerror(-error));
		bad |= error == -EBADMSG;
		/* Advice on a ring that exists comes first. */
		if (!what || error != -ENOENT)
			what = advice_for(error);
	}
	if (what)
		fprintf(file, "%s\n", what);
	return bad ? EXIT_USAGE : EXIT_TROUBLE;
}

static bool state_note(const struct top_watch *watch, mono_t now, char *buf)
{
	enum top_feed_state state = top_feed_state(&watch->feed, now, proc_read_is_alive);
	struct ring_info info;

	switch (state) {
	case TOP_FEED_LIVE:
		break;
	case TOP_FEED_ABSENT:
		snprintf(buf, TOP_WATCH_NOTE_MAX, "%s; waiting for a daemon to make one",
			 watch->feed.error == -EBADMSG ? "the ring is damaged, or of another version"
						       : "the ring was removed");
		break;
	case TOP_FEED_SILENT:
		ring_info(watch->feed.ring, &info);
		snprintf(buf, TOP_WATCH_NOTE_MAX, "the daemon has written nothing for %.0f s",
			 (double)mono_diff(now, info.last_tick) / 1e9);
		break;
	case TOP_FEED_STOPPED:
	case TOP_FEED_KILLED:
		snprintf(buf, TOP_WATCH_NOTE_MAX, "the daemon has %s; waiting for the next one",
			 state == TOP_FEED_KILLED ? "died" : "stopped");
		break;
	}
	return state != TOP_FEED_LIVE;
}

/* As long as it is in what is shown. */
static bool hole_note(const struct top_table *table, char *buf)
{
	const struct sampling_hole *hole = &table->last_hole;
	int64_t ago_ns = mono_diff(table->now, hole->to);
	char length[64];

	if (hole->to.ns == 0 || ago_ns < 0 || ago_ns > (int64_t)(TOP_TABLE_SECONDS * NS_PER_S))
		return false;
	if (hole->suspended_ns > 0) {
		snprintf(buf, TOP_WATCH_NOTE_MAX, "the machine was suspended for %s; it woke up %.0f s ago",
			 units_format_duration(length, sizeof(length), hole->suspended_ns), (double)ago_ns / 1e9);
		return true;
	}
	snprintf(buf, TOP_WATCH_NOTE_MAX, "the sampler took nothing for %s, %.0f s ago; CPU over it is the average",
		 units_format_duration(length, sizeof(length), (uint64_t)mono_diff(hole->to, hole->from)),
		 (double)ago_ns / 1e9);
	return true;
}

bool top_watch_note(const struct top_watch *watch, mono_t now, size_t index, char *buf)
{
	const struct top_feed *feed = &watch->feed;

	if (state_note(watch, now, buf) && index-- == 0)
		return true;
	if (feed->damaged_pages > 0 && index-- == 0) {
		snprintf(buf, TOP_WATCH_NOTE_MAX, "%ju pages of the ring are damaged; what they held is missing",
			 (uintmax_t)feed->damaged_pages);
		return true;
	}
	if (feed->lost_pages > 0 && index-- == 0) {
		snprintf(buf, TOP_WATCH_NOTE_MAX, "%ju pages of the ring were overwritten before they were read here",
			 (uintmax_t)feed->lost_pages);
		return true;
	}
	if (hole_note(&watch->table, buf) && index-- == 0)
		return true;
	if (watch->table.left_out > 0 && index-- == 0) {
		snprintf(buf, TOP_WATCH_NOTE_MAX, "more than %u targets; %ju are left out", TOP_TABLE_TARGETS_MAX,
			 (uintmax_t)watch->table.left_out);
		return true;
	}
	if (*watch->bad_config && index-- == 0) {
		snprintf(buf, TOP_WATCH_NOTE_MAX, "%s: %s", watch->rules ? "rules as before a change" : "no rules",
			 watch->bad_config);
		return true;
	}
	return false;
}
