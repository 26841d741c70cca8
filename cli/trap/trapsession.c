/*
 * trapsession.c: the same parts as in the daemon (daemon.c), less what makes it one: the ring has no name, so it goes with the process; the memo
 * is never saved; the spool has no limits, so nothing that others have written is ever removed.
 *
 * Nobody tells the name of an incident that was opened: it is known but for its number (incident_stem), and looked up once it is
 * there.
 */
#include "trapsession.h"

#include "incidents.h"
#include "log.h"
#include "memo.h"
#include "realclock.h"
#include "scope.h"
#include "session.h"
#include "spool.h"
#include "watcher.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define NUMBER_MAX 100 /* incidents of one name in one millisecond */
#define LEFT_MAX 256   /* beyond, nobody counts */

struct caught {
	char stem[INCIDENT_NAME_MAX + 1];
	bool told;
};

struct trapsession {
	struct trapsession_options options;
	struct clock clock;
	struct session *session;
	struct spool *spool;
	struct memo *memo;
	struct evaluator *evaluator;
	struct incidents *incidents;
	struct watcher *watcher;
	uint64_t opened;
	mono_t open_until;
	struct caught *caught;
	size_t caught_count;
	double most_cpu_percent, most_memory_bytes;
};

/* ---- firings ---- */

static void note(struct trapsession *trap, const struct evaluator_firing *firing)
{
	uint64_t after_ns = trap->options.config->incidents.after_ns;

	trap->opened++;
	trap->open_until = mono_add(firing->to, after_ns);
	if (trap->caught_count < TRAPSESSION_CAUGHT_MAX)
		incident_stem(firing->wall, firing->target->name, firing->rule->name,
			      trap->caught[trap->caught_count++].stem, sizeof trap->caught->stem);
	trap->options.caught(trap->options.ctx, firing);
}

static int on_fire(void *ctx, const struct evaluator_firing *firing)
{
	struct trapsession *trap = ctx;
	struct incidents_counts before, after;

	/* Of an incident that is open it is a part, also of the last. */
	if (trap->opened >= trap->options.count && !incidents_is_open(trap->incidents, firing->target->key))
		return 0;

	incidents_counts(trap->incidents, &before);
	int r = incidents_fire(trap->incidents, firing);

	incidents_counts(trap->incidents, &after);
	if (after.opened > before.opened)
		note(trap, firing);

	return r;
}

static void on_judged(void *ctx, const struct config_rule *rule, const struct trigger_decision *decision)
{
	struct trapsession *trap = ctx;
	double *most = rule->metric == METRIC_CPU ? &trap->most_cpu_percent : &trap->most_memory_bytes;

	if (decision->available && decision->value > *most)
		*most = decision->value;
}

/* ---- build ---- */

static int build_rules(struct trapsession *trap)
{
	struct incidents_options incidents = {
		.config = trap->options.config,
		.session = trap->session,
		.memo = trap->memo,
		.spool = trap->spool,
	};
	struct evaluator_options evaluator = {
		.config = trap->options.config,
		.machine = *session_machine(trap->session),
		.memo = trap->memo,
		.fire = on_fire,
		.judged = on_judged,
		.ctx = trap,
	};
	int r = incidents_new(&incidents, &trap->incidents);

	if (r == 0)
		r = evaluator_new(&evaluator, &trap->evaluator);
	if (r == 0)
		r = watcher_new(session_ring(trap->session), trap->evaluator, trap->incidents, NULL, &trap->watcher);
	if (r < 0)
		log_line(LOG_ERR, "cannot build the rules: %s", strerror(-r));

	return r;
}

int trapsession_new(const struct trapsession_options *options, struct trapsession **ret, bool *ret_directory)
{
	static const struct retention_limits unlimited;
	struct trapsession *trap = calloc(1, sizeof *trap);
	int r;

	*ret_directory = false;
	if (!trap)
		return -ENOMEM;

	trap->options = *options;
	trap->clock = realclock();
	trap->caught = calloc(TRAPSESSION_CAUGHT_MAX, sizeof *trap->caught);
	r = trap->caught ? spool_open(options->directory, &unlimited, &trap->spool, NULL) : -ENOMEM;
	*ret_directory = r < 0 && trap->caught;
	if (r == 0)
		r = memo_new("", &trap->memo);
	if (r == 0)
		r = session_new(options->config, NULL, &trap->session);
	if (r == 0)
		r = build_rules(trap);
	if (r < 0) {
		trapsession_free(trap);
		return r;
	}
	*ret = trap;

	return 0;
}

bool trapsession_free(struct trapsession *trap)
{
	if (!trap)
		return true;

	watcher_free(trap->watcher);
	evaluator_free(trap->evaluator);

	bool ended = incidents_free(trap->incidents), freed = ended && session_free(trap->session);

	if (ended)
		spool_free(trap->spool);
	memo_free(trap->memo);
	free(trap->caught);
	free(trap);

	return freed;
}

/* ---- run ---- */

int trapsession_start(struct trapsession *trap)
{
	return session_start(trap->session);
}

int trapsession_poll(struct trapsession *trap)
{
	int r = watcher_poll(trap->watcher);

	incidents_poll(trap->incidents, clock_mono(&trap->clock));

	return r;
}

bool trapsession_done(const struct trapsession *trap)
{
	struct incidents_counts counts;

	incidents_counts(trap->incidents, &counts);

	return trap->opened >= trap->options.count && counts.open == 0;
}

void trapsession_finish(struct trapsession *trap)
{
	session_stop(trap->session);
	watcher_poll(trap->watcher);
	incidents_finish(trap->incidents);
}

/* ---- how it is ---- */

size_t trapsession_targets(const struct trapsession *trap, int *ret_error)
{
	struct discovery_state found;

	discovery_state(session_discovery(trap->session), &found);
	*ret_error = found.roster.failed ? found.roster.last_error : 0;

	return trap->options.config->targets[0].per == CONFIG_PER_GROUP ? found.roster.members : found.roster.targets;
}

static int note_sum(void *ctx, const struct evaluator_sight *sight)
{
	*(uint32_t *)ctx = sight->target->id;

	return sight->target->kind == TARGET_GROUP;
}

size_t trapsession_left(const struct trapsession *trap, int32_t but)
{
	int32_t pids[LEFT_MAX];
	uint32_t id = 0;
	size_t left = 0;

	if (evaluator_visit_targets(trap->evaluator, note_sum, &id) == 0)
		return 0;

	size_t count = discovery_pids(session_discovery(trap->session), id, pids, LEFT_MAX);

	for (size_t i = 0; i < count; i++)
		left += pids[i] != but && (kill(pids[i], 0) == 0 || errno == EPERM);

	return left;
}

const char *trapsession_stacks_off(const struct trapsession *trap)
{
	return session_stacks_off(trap->session);
}

void trapsession_most(const struct trapsession *trap, double *ret_cpu_percent, double *ret_memory_bytes)
{
	*ret_cpu_percent = trap->most_cpu_percent;
	*ret_memory_bytes = trap->most_memory_bytes;
}

uint64_t trapsession_failed(const struct trapsession *trap)
{
	struct incidents_counts counts;

	incidents_counts(trap->incidents, &counts);

	return counts.failed + counts.refused;
}

/* The (rule, target) that is nearest to firing. */
struct nearest {
	uint32_t id;
	double nearness; /* value over threshold */
	bool found;
};

static int visit_nearness(void *ctx, const struct evaluator_status *status)
{
	struct nearest *nearest = ctx;
	const struct trigger_decision *decision = status->decision;
	double threshold = decision && decision->has_distance ? decision->value + decision->distance : 0;
	double nearness = threshold > 0 ? decision->value / threshold : 0;

	if (!nearest->found || nearness > nearest->nearness)
		*nearest = (struct nearest){ .id = status->target->id, .nearness = nearness, .found = true };

	return 0;
}

struct describing {
	uint32_t id;
	struct trapsession_view *view;
};

static int visit_rules(void *ctx, const struct evaluator_status *status)
{
	const struct describing *describing = ctx;
	struct trapsession_view *view = describing->view;
	const struct trigger_decision *decision = status->decision;

	if (status->target->id != describing->id || !decision)
		return 0;
	if (status->rule->metric == METRIC_CPU && decision->available) {
		view->has_cpu = true;
		view->cpu_percent = decision->value;
	}
	if (decision->candidate && decision->pending_ns > view->pending_ns)
		view->pending_ns = decision->pending_ns;
	view->disarmed |= decision->candidate && decision->reason == TRIGGER_NOT_REARMED;

	return 0;
}

static int visit_memory(void *ctx, const struct evaluator_sight *sight)
{
	const struct describing *describing = ctx;
	struct trapsession_view *view = describing->view;

	if (sight->target->id != describing->id)
		return 0;
	snprintf(view->name, sizeof view->name, "%s", sight->target->name);
	if (sight->sample && sample_has(sight->sample, SAMPLE_MEMORY)) {
		view->has_memory = true;
		view->memory_bytes = sight->sample->value[SAMPLE_MEMORY];
	}

	return 1;
}

void trapsession_view(const struct trapsession *trap, struct trapsession_view *ret)
{
	struct nearest nearest = { 0 };
	struct incidents_counts counts;
	int64_t left = mono_diff(trap->open_until, clock_mono(&trap->clock));
	int error;

	incidents_counts(trap->incidents, &counts);
	*ret = (struct trapsession_view){
		.targets = trapsession_targets(trap, &error),
		.caught = trap->opened,
		.open = counts.open,
		.open_ns = left > 0 ? (uint64_t)left : 0,
	};
	evaluator_visit(trap->evaluator, visit_nearness, &nearest);
	if (!nearest.found)
		return;

	struct describing describing = { .id = nearest.id, .view = ret };

	evaluator_visit(trap->evaluator, visit_rules, &describing);
	evaluator_visit_targets(trap->evaluator, visit_memory, &describing);
}

/* ---- what is written ---- */

/* The highest number of it that there is. */
static bool look_up(int dirfd, const char *stem, char ret[static INCIDENT_NAME_MAX + 1])
{
	char name[INCIDENT_NAME_MAX + 16];
	bool found = false;

	for (int number = 1; number <= NUMBER_MAX; number++) {
		snprintf(name, sizeof name, "%s-%d", stem, number);
		if (faccessat(dirfd, name, F_OK, 0) < 0)
			break;
		snprintf(ret, INCIDENT_NAME_MAX + 1, "%.*s", INCIDENT_NAME_MAX, name);
		found = true;
	}

	return found;
}

bool trapsession_written(struct trapsession *trap, char ret[static INCIDENT_NAME_MAX + 1])
{
	AUTO_CLOSE int dirfd = -1;

	for (size_t i = 0; i < trap->caught_count; i++) {
		if (trap->caught[i].told)
			continue;
		if (dirfd < 0)
			dirfd = open(trap->options.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dirfd >= 0 && look_up(dirfd, trap->caught[i].stem, ret)) {
			trap->caught[i].told = true;
			return true;
		}
	}

	return false;
}
