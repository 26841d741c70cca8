/*
 * rerun.c: every source is read once, and its events are handed to the rules as they are and to every variant of them at the same time.
 * What is proposed is then tried: the sources are read once more, under rules that have the proposed thresholds.
 *
 * Each source is judged by itself: neither history nor cooldowns reach from one to the next.
 */
#include "rerun.h"

#include "casting.h"
#include "incidentload.h"
#include "options.h"
#include "output.h"
#include "rehearsal.h"
#include "replaysource.h"
#include "replayview.h"
#include "scope.h"
#include "suggestion.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_NS (86400 * NS_PER_S)

/* The same observations under several configurations. */
struct stage {
	struct rehearsal **rehearsals;
	size_t count;
};

struct rerun {
	const struct rerun_request *request;
	struct casting *casting;
	struct stage stage;              /* the configuration as it is, then the variants */
	struct suggestion **suggestions; /* one per rule; NULL: none can be made */
	struct replayview view;
	/* While sources are read. */
	const struct stage *playing;
	bool trying;     /* for the second time: nothing is told */
	uint32_t source; /* its number */
	int result;      /* of collecting */
	uint64_t span_ns;
	bool rereadable;
	int code; /* enum options_exit; the worst so far */
	bool any; /* source could be opened */
};

/* ---- stages ---- */

static void stage_release(struct stage *stage)
{
	for (size_t i = 0; i < stage->count; i++)
		rehearsal_free(stage->rehearsals[i]);
	free(stage->rehearsals);
	*stage = (struct stage){ 0 };
}

static int stage_add(struct stage *stage, const struct rehearsal_options *options)
{
	struct rehearsal **grown = realloc(stage->rehearsals, (stage->count + 1) * sizeof(*grown));
	int r;

	if (!grown)
		return -ENOMEM;
	stage->rehearsals = grown;
	r = rehearsal_new(options, &stage->rehearsals[stage->count]);
	if (r == 0)
		stage->count++;
	return r;
}

static int stage_add_variants(struct stage *stage, const struct whatif *whatif, const struct metric_machine *machine)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < whatif->count; i++) {
		const struct rehearsal_options options = { .config = &whatif->variants[i].config, .machine = *machine };

		r = stage_add(stage, &options);
	}
	return r;
}

/* ---- what comes while a source is read ---- */

static int on_fire(void *ctx, const struct evaluator_firing *firing)
{
	struct rerun *rerun = ctx;

	if (!rerun->trying)
		replayview_firing(&rerun->view, firing);
	return 0;
}

static void on_window(void *ctx, const struct evaluator_firing *window)
{
	struct rerun *rerun = ctx;
	size_t rule = (size_t)(window->rule - rerun->request->config->rules);

	if (rerun->suggestions && rerun->suggestions[rule] && rerun->result == 0)
		rerun->result = suggestion_add(rerun->suggestions[rule], rerun->source, window);
}

/* A reader that has seen enough of us ends it. */
static int on_event(void *ctx, const struct ring_event *event)
{
	struct rerun *rerun = ctx;
	struct ring_event cast;
	int r = 0;

	if (event->type == RING_EVENT_TARGET) {
		cast = *event;
		cast.target.entry = casting_entry(rerun->casting, &event->target);
		event = &cast;
	}
	for (size_t i = 0; r == 0 && i < rerun->playing->count; i++)
		r = rehearsal_event(rerun->playing->rehearsals[i], event);
	if (r == 0)
		r = rerun->result;
	return r == 0 && ferror(stdout) ? -EPIPE : r;
}

static void on_trouble(void *ctx, uint64_t line, uint64_t rows_lost, const char *why)
{
	struct rerun *rerun = ctx;

	if (!rerun->trying)
		replayview_trouble(&rerun->view, line, rows_lost, why);
	rerun->code = EXIT_TROUBLE > rerun->code ? EXIT_TROUBLE : rerun->code;
}

static void on_progress(void *ctx, uint64_t done_bytes, uint64_t size_bytes)
{
	struct rerun *rerun = ctx;

	replayview_progress(&rerun->view, done_bytes, size_bytes);
}

/* ---- sources ---- */

static void complain(struct rerun *rerun, int code, const char *message)
{
	fputs("spikewatch replay: ", stderr);
	output_escaped(stderr, message);
	fputc('\n', stderr);
	rerun->code = rerun->code < code ? code : rerun->code;
}

/* The command line knows the machine best, then the recording. */
static struct metric_machine machine_of(const struct rerun *rerun, const struct replaysource *source)
{
	struct metric_machine machine = rerun->request->machine;

	if (!rerun->request->cores_are_told && source->machine.cores > 0)
		machine.cores = source->machine.cores;
	if (!rerun->request->memory_is_told && source->machine.memory_bytes > 0)
		machine.memory_bytes = source->machine.memory_bytes;
	return machine;
}

/* What is to be said of a source once it is over. */
static void end_source(struct rerun *rerun, const struct replaysource *source, const struct tape_summary *summary,
		       int result)
{
	const struct salvage_report *report = &summary->report;
	bool stream = source->kind != REPLAYSOURCE_RING;

	if (rerun->trying || result == -EPIPE)
		return;
	if (result < 0 && result != -ENOMEM)
		on_trouble(rerun, 0, 0, strerror(-result));
	if (stream && report->ours && !report->complete)
		on_trouble(rerun, 0, 0, "it has no closing checksum: it was cut off, or is still being written");
	replayview_source_end(&rerun->view, source, summary);
	if (summary->any)
		rerun->span_ns += summary->to.ns > summary->from.ns ? summary->to.ns - summary->from.ns : 0;
	if (stream && !report->ours) {
		char message[REPLAYSOURCE_MESSAGE_MAX];

		snprintf(message, sizeof(message), "%.400s: there is no line of ours in it", source->path);
		complain(rerun, EXIT_USAGE, message);
	}
}

/* 0, or what ends the command: -ENOMEM, -EPIPE. What is wrong with the source is said. */
static int play(struct rerun *rerun, struct replaysource *source)
{
	const struct tape_options options = {
		.interval_ns = rerun->request->config->sampling.interval_ns,
		.heartbeat_ns = rerun->request->config->sampling.heartbeat_ns,
		.event = on_event,
		.trouble = on_trouble,
		.ctx = rerun,
	};
	struct metric_machine machine = machine_of(rerun, source);
	struct tape_summary summary;
	int r = 0;

	for (size_t i = 0; r == 0 && i < rerun->playing->count; i++)
		r = rehearsal_again(rerun->playing->rehearsals[i], &machine);
	if (r < 0)
		return r;
	rerun->rereadable &= source->rereadable;
	if (!rerun->trying)
		replayview_source(&rerun->view, source);
	r = replaysource_play(source, &options, on_progress, &summary);
	end_source(rerun, source, &summary, r);
	return r == -ENOMEM || r == -EPIPE ? r : 0;
}

static int play_one(struct rerun *rerun, const char *operand)
{
	AUTO(replaysource_close) struct replaysource source = { .fd = -1 };
	char message[REPLAYSOURCE_MESSAGE_MAX];
	int r = replaysource_open(operand, rerun->request->directory, &source, message);

	if (r == -ENOMEM)
		return r;
	if (r == 0) {
		rerun->any = true;
		return play(rerun, &source);
	}
	if (!rerun->trying)
		complain(rerun, r == -EINVAL ? EXIT_USAGE : EXIT_TROUBLE, message);
	return 0;
}

static int play_all(struct rerun *rerun, const struct stage *stage)
{
	int r = 0;

	rerun->playing = stage;
	for (size_t i = 0; r == 0 && i < rerun->request->source_count; i++) {
		rerun->source = (uint32_t)i;
		r = play_one(rerun, rerun->request->sources[i]);
	}
	return r;
}

/* ---- proposals ---- */

static int make_suggestions(struct rerun *rerun)
{
	if (rerun->request->rate_count == 0)
		return 0;
	rerun->suggestions = calloc(rerun->request->config->rule_count + 1, sizeof(struct suggestion *));
	if (!rerun->suggestions)
		return -ENOMEM;
	for (size_t i = 0; i < rerun->request->config->rule_count; i++) {
		const struct config_rule *rule = &rerun->request->config->rules[i];
		int r = rule->trigger.has_percent ? suggestion_new(rule, &rerun->suggestions[i]) : 0;

		if (r == -ENOMEM)
			return r;
	}
	return 0;
}

static struct replayview_proposal propose(const struct rerun *rerun, size_t rule, double per_day)
{
	struct replayview_proposal proposal = { .rule = &rerun->request->config->rules[rule], .per_day = per_day };

	proposal.wanted = (uint64_t)(per_day * ((double)rerun->span_ns / (double)DAY_NS) + 0.5);
	proposal.fits = rerun->suggestions[rule] != NULL;
	if (proposal.fits)
		suggestion_answer(rerun->suggestions[rule], proposal.wanted, &proposal.answer);
	return proposal;
}

/* Adds the variant that a proposal is. 0; -ENOMEM; 1: it makes no good rule, or one too many. */
static int add_trial(const struct rerun *rerun, struct whatif *trials, const struct replayview_proposal *proposal)
{
	const struct config_rule *rule = proposal->rule;
	char message[WHATIF_MESSAGE_MAX], value[64];
	bool percent = metric_unit(rule->metric) == METRIC_PERCENT;
	int r;

	replayview_threshold(rule, proposal->answer.threshold, value, sizeof(value));
	r = whatif_add(trials, rerun->request->config, (size_t)(rule - rerun->request->config->rules),
		       percent ? "percent" : "above", value, message);
	return r == -EINVAL ? 1 : r;
}

/* Replays everything once more under what is proposed. 0, -ENOMEM, -EPIPE. */
static int try_proposals(struct rerun *rerun, struct replayview_proposal *proposals, size_t count)
{
	AUTO(whatif_release) struct whatif trials = { 0 };
	AUTO(stage_release) struct stage stage = { 0 };
	int r = 0;

	for (size_t i = 0; r >= 0 && i < count; i++) {
		if (!proposals[i].fits || !proposals[i].answer.known)
			continue;
		r = add_trial(rerun, &trials, &proposals[i]);
		proposals[i].replayed = r == 0;
	}
	if (r >= 0)
		r = stage_add_variants(&stage, &trials, &rerun->request->machine);
	rerun->trying = true;
	if (r >= 0)
		r = play_all(rerun, &stage);
	for (size_t i = 0, trial = 0; r == 0 && i < count; i++)
		if (proposals[i].replayed) {
			size_t rule = (size_t)(proposals[i].rule - rerun->request->config->rules);

			proposals[i].fired = rehearsal_rules(stage.rehearsals[trial++])[rule].fired;
		}
	return r;
}

static int suggest(struct rerun *rerun)
{
	size_t count = rerun->request->config->rule_count * rerun->request->rate_count, at = 0;
	AUTO_FREE struct replayview_proposal *proposals = calloc(count + 1, sizeof(*proposals));
	int r = 0;

	if (!proposals)
		return -ENOMEM;
	for (size_t rule = 0; rule < rerun->request->config->rule_count; rule++)
		for (size_t i = 0; i < rerun->request->rate_count; i++)
			proposals[at++] = propose(rerun, rule, rerun->request->rates[i]);
	if (rerun->rereadable)
		r = try_proposals(rerun, proposals, count);
	if (r == 0)
		replayview_proposals(&rerun->view, proposals, count, rerun->span_ns);
	return r;
}

/* ---- all of it ---- */

static int show_variants(struct rerun *rerun)
{
	AUTO_FREE const struct rehearsal_rule **outcomes = calloc(rerun->request->whatif->count + 1, sizeof(*outcomes));

	if (!outcomes)
		return -ENOMEM;
	for (size_t i = 0; i < rerun->request->whatif->count; i++)
		outcomes[i] = rehearsal_rules(rerun->stage.rehearsals[i + 1]);
	replayview_whatif(&rerun->view, rerun->request->whatif, rehearsal_rules(rerun->stage.rehearsals[0]), outcomes);
	return 0;
}

static int run(struct rerun *rerun)
{
	const struct rehearsal_options options = {
		.config = rerun->request->config,
		.machine = rerun->request->machine,
		.fire = on_fire,
		.witness = on_window,
		.ctx = rerun,
	};
	int r = make_suggestions(rerun);

	if (r == 0)
		r = stage_add(&rerun->stage, &options);
	if (r == 0)
		r = stage_add_variants(&rerun->stage, rerun->request->whatif, &rerun->request->machine);
	if (r == 0)
		r = play_all(rerun, &rerun->stage);
	if (r < 0 || (!rerun->any && !rerun->request->json)) /* tables of nothing would hide what was said */
		return r;
	replayview_rules(&rerun->view, rehearsal_rules(rerun->stage.rehearsals[0]), rerun->request->config->rule_count);
	if (rerun->request->whatif->count > 0)
		r = show_variants(rerun);
	if (r == 0 && rerun->request->rate_count > 0)
		r = suggest(rerun);
	return r;
}

static void release(struct rerun *rerun)
{
	stage_release(&rerun->stage);
	for (size_t i = 0; rerun->suggestions && i < rerun->request->config->rule_count; i++)
		suggestion_free(rerun->suggestions[i]);
	free(rerun->suggestions);
	casting_free(rerun->casting);
}

int rerun_all(const struct rerun_request *request)
{
	AUTO(release) struct rerun rerun = { .request = request, .rereadable = true };
	int r = casting_new(request->config, request->as, &rerun.casting);

	if (r == 0)
		r = replayview_open(&rerun.view, request->json, request->summary);
	if (r == 0) {
		r = run(&rerun);
		replayview_close(&rerun.view);
	}
	if (r == -ENOMEM)
		return output_no_memory();
	return r < 0 && rerun.code == EXIT_OK ? EXIT_TROUBLE : rerun.code;
}
