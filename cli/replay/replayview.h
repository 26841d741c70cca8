/*
 * replayview.h: what a replay has found, for people or as JSON, as it is found: firings are printed while the recording is read. The JSON
 * is one object; it is ended by replayview_close.
 */
#ifndef SPIKEWATCH_REPLAYVIEW_H
#define SPIKEWATCH_REPLAYVIEW_H

#include "evaluator.h"
#include "rehearsal.h"
#include "replaysource.h"
#include "suggestion.h"
#include "whatif.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_writer;

/* Troubles of a source that are told one by one; the rest is counted. */
#define REPLAYVIEW_TROUBLES_MAX 10

struct replayview {
	struct json_writer *json; /* NULL: text */
	bool summary;             /* no list of firings */
	bool progress;            /* standard error is a terminal */
	/* Of the source at hand. */
	const char *path;
	uint64_t troubles;
	unsigned shown_percent; /* progress that stands on the terminal; 0: none */
	bool headed;            /* the head of the list of firings was printed */
};

/* A rule's proposal for so many firings. */
struct replayview_proposal {
	const struct config_rule *rule;
	double per_day;
	uint64_t wanted; /* in what was replayed */
	bool fits;       /* the rule has a threshold to change, and a `for` that can be followed */
	struct suggestion_answer answer;
	bool replayed;
	uint64_t fired; /* if so */
};

/* 0 or -ENOMEM. json: instead of text. */
int replayview_open(struct replayview *view, bool json, bool summary);
void replayview_close(struct replayview *view);

/* A source begins, something is wrong with it, so far it has been read, one of its windows fired, it is over. */
void replayview_source(struct replayview *view, const struct replaysource *source);
void replayview_trouble(struct replayview *view, uint64_t line, uint64_t rows_lost, const char *why);
void replayview_progress(struct replayview *view, uint64_t done_bytes, uint64_t size_bytes);
void replayview_firing(struct replayview *view, const struct evaluator_firing *firing);
void replayview_source_end(struct replayview *view, const struct replaysource *source,
			   const struct tape_summary *summary);

/* Rules, in the order of the configuration. */
void replayview_rules(struct replayview *view, const struct rehearsal_rule *rules, size_t count);

/* base: the outcomes of the configuration as it is; outcomes: those of each variant, for all its rules. */
void replayview_whatif(struct replayview *view, const struct whatif *whatif, const struct rehearsal_rule *base,
		       const struct rehearsal_rule *const *outcomes);

/* span_ns: how much time was replayed. */
void replayview_proposals(struct replayview *view, const struct replayview_proposal *proposals, size_t count,
			  uint64_t span_ns);

/* A threshold as a configuration writes it: 80.5, 1.25, "512MiB" without quotes. Exact. Returns buf. */
const char *replayview_threshold(const struct config_rule *rule, double value, char *buf, size_t cap);

#endif
