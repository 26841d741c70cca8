/*
 * toprules.c: the engine starts in the past, as far back as the rules look, and judges itself into the present. What the state file says of a
 * firing that is later than where it starts would be wrong there (its cooldown would be cut to the rule's own length, counted from then): such a
 * firing is left out, to be found once more in the samples. What the file says of cooldowns still holds for what is shown.
 */
#include "toprules.h"

#include "evaluator.h"
#include "memo.h"
#include "paths.h"
#include "scope.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

/* Of the file and of all that lies in the directory of drop-ins, in whichever order. */
uint64_t toprules_signature(const struct configfile *file)
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

void toprules_free(struct toprules *rules)
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

int toprules_new(const struct configfile *file, const struct metric_machine *machine, struct toprules **ret,
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

const struct config *toprules_config(const struct toprules *rules)
{
	return rules->config;
}

uint64_t toprules_span_ns(const struct toprules *rules)
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

int toprules_begin(struct toprules *rules)
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

int toprules_event(struct toprules *rules, const struct ring_event *event)
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

void toprules_judge(const struct toprules *rules, wall_t now, struct toptable *table)
{
	struct judgement judgement = { rules, now, table };

	toptable_judge_begin(table);
	if (rules->evaluator)
		evaluator_visit(rules->evaluator, visit, &judgement);
}
