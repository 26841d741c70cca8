/*
 * statusanswer.c: a document whose writer is kept between the pieces, and a list of ids that says who comes next.
 *
 *                                 ┌──── all were looked at ────▶ those picked ─┐
 *   the head ──▶ nearest? ── yes ─┘                                            ├──▶ the end
 *      │             └────── no ───────────────────────────────▶ everybody ────┘
 *      └── brief ────────────────────────────────────────────────────────────────▶
 *
 * The list is of ids, not of places in the evaluator: who goes leaves a gap there that another one fills. An id that is unknown when its turn comes has
 * gone. The configuration may be another one by then, and rules with it: nothing but numbers is kept from one piece to the next.
 *
 * A row is begun only if the longest possible one fits: what is left out is whole rules, and the document is valid in every case.
 *
 * Rejected: a copy of everything at the beginning. It would be of one moment, at 4 KB for each target and a stop of milliseconds.
 */
#include "statusanswer.h"

#include "json.h"
#include "jsonmember.h"
#include "scope.h"
#include "statusjson.h"
#include "statusquery.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* More than a target, a rule on it and the end of the document can take, and what the writer has not handed on yet. */
#define ROW_MAX (64u << 10)

enum phase { HEAD, PICKING, TARGETS, END };

/* A rule on a target that is among the nearest so far. */
struct pick {
	double nearness;
	size_t place;  /* of the target in the list */
	uint32_t pair; /* the how-manieth rule on it */
};

struct statusanswer {
	struct statusanswer_options options;
	struct statusquery_line asked;
	struct json_writer *json;
	struct buffer *out; /* of the piece that is being made; NULL between pieces */
	uint64_t handed_on; /* bytes, of all pieces */
	int error;          /* of handing on, for ever */
	enum phase phase;
	uint32_t *ids;
	size_t id_count;
	struct pick *picks; /* while picking nearest first, then in the order of the list; NULL: all are wanted */
	size_t pick_count;
	size_t at; /* whose turn is next: a place in the list, or, of those picked, among the picks */
	uint64_t farther, left_out;
};

/* One target's turn. */
struct turn {
	struct statusanswer *answer;
	const struct overview *overview;
	size_t place;
	uint32_t pair;            /* of the rule that is looked at */
	const struct pick *picks; /* of this target; NULL: all its rules are wanted */
	size_t pick_count;
	bool begun;
};

static int hand_on(void *ctx, const void *data, size_t len)
{
	struct statusanswer *answer = ctx;

	answer->handed_on += len;
	if (answer->out && answer->error == 0)
		answer->error = buffer_append(answer->out, data, len);

	return answer->error;
}

static bool is_wanted(const struct statusanswer *answer, const struct evaluator_status *row)
{
	return statusquery_wants(&answer->asked.query, row->target->name, row->target->entry, row->rule->name);
}

/* ---- the nearest ---- */

/* The distance to firing as a part of the threshold, as those who read the answer sort by it. */
static double nearness_of(const struct trigger_decision *decision)
{
	double threshold, nearness;

	if (!decision || !decision->has_distance)
		return INFINITY;

	threshold = decision->value + decision->distance;
	nearness = threshold > 0 ? decision->distance / threshold : decision->distance;

	return isfinite(nearness) ? nearness : INFINITY;
}

/* Of equally near ones the first stays. Most rows of many are not among the nearest: one comparison. */
static void pick(struct statusanswer *answer, const struct pick *candidate)
{
	size_t max = answer->asked.query.nearest, at = answer->pick_count;

	if (at == max) {
		answer->farther++;
		if (answer->picks[--at].nearness <= candidate->nearness)
			return;
	} else {
		answer->pick_count++;
	}
	for (; at > 0 && answer->picks[at - 1].nearness > candidate->nearness; at--)
		answer->picks[at] = answer->picks[at - 1];
	answer->picks[at] = *candidate;
}

static int look(void *ctx, const struct evaluator_status *row)
{
	struct turn *turn = ctx;
	struct pick candidate = { nearness_of(row->decision), turn->place, turn->pair++ };

	if (is_wanted(turn->answer, row))
		pick(turn->answer, &candidate);

	return 0;
}

static int compare(const void *a, const void *b)
{
	const struct pick *left = a, *right = b;

	if (left->place != right->place)
		return left->place < right->place ? -1 : 1;

	return left->pair < right->pair ? -1 : left->pair > right->pair;
}

static bool is_picked(const struct turn *turn, uint32_t pair)
{
	for (size_t i = 0; i < turn->pick_count; i++)
		if (turn->picks[i].pair == pair)
			return true;

	return turn->picks == NULL;
}

/* ---- pieces ---- */

static bool has_room(const struct statusanswer *answer)
{
	const struct buffer *out = answer->out;

	return answer->handed_on + ROW_MAX <= answer->options.max_bytes &&
	       (out->max == 0 || out->len + ROW_MAX <= out->max);
}

static int show(void *ctx, const struct evaluator_status *row)
{
	struct turn *turn = ctx;
	struct statusanswer *answer = turn->answer;

	if (!is_picked(turn, turn->pair++) || !is_wanted(answer, row))
		return 0;
	if (!has_room(answer)) {
		answer->left_out++;
		return 0;
	}

	if (!turn->begun)
		statusjson_begin_target(answer->json, turn->overview, row->target);
	turn->begun = true;
	statusjson_put_rule(answer->json, row);

	return 0;
}

static void put_head(struct statusanswer *answer, const struct overview *overview)
{
	json_begin_object(answer->json);
	statusjson_put_head(answer->json, overview);
	answer->phase = END;
	if (answer->asked.query.brief)
		return;

	json_key(answer->json, "targets");
	json_begin_array(answer->json);
	answer->phase = answer->picks && answer->id_count > 0 ? PICKING : TARGETS;
}

static void visit(struct turn *turn, int (*visitor)(void *ctx, const struct evaluator_status *row))
{
	uint32_t id = turn->answer->ids[turn->place];

	evaluator_visit_one(turn->overview->evaluator, id, visitor, turn);
	if (turn->begun)
		statusjson_end_target(turn->answer->json);
}

static void look_at_next(struct statusanswer *answer, const struct overview *overview)
{
	visit(&(struct turn){ .answer = answer, .overview = overview, .place = answer->at++ }, look);
	if (answer->at < answer->id_count)
		return;

	qsort(answer->picks, answer->pick_count, sizeof(*answer->picks), compare);
	answer->phase = TARGETS;
	answer->at = 0;
}

/* All picks of one target at once. */
static void show_next_picked(struct statusanswer *answer, const struct overview *overview)
{
	const struct pick *picks = &answer->picks[answer->at];
	struct turn turn = { .answer = answer, .overview = overview, .place = picks->place, .picks = picks };

	while (answer->at < answer->pick_count && answer->picks[answer->at].place == turn.place) {
		answer->at++;
		turn.pick_count++;
	}
	visit(&turn, show);
}

static void show_next(struct statusanswer *answer, const struct overview *overview)
{
	if (answer->at == (answer->picks ? answer->pick_count : answer->id_count))
		answer->phase = END;
	else if (answer->picks)
		show_next_picked(answer, overview);
	else
		visit(&(struct turn){ .answer = answer, .overview = overview, .place = answer->at++ }, show);
}

/* Some of the targets. */
static void put_piece(struct statusanswer *answer, const struct overview *overview)
{
	const struct clock *clock = &answer->options.clock;
	mono_t until = mono_add(clock_mono(clock), STATUSANSWER_PIECE_NS);
	size_t end = answer->out->len + STATUSANSWER_PIECE;

	for (int i = 0; i < STATUSANSWER_LOOKS && answer->phase != END && answer->out->len < end; i++) {
		if (i > 0 && mono_diff(clock_mono(clock), until) >= 0)
			break;
		if (answer->phase == PICKING)
			look_at_next(answer, overview);
		else
			show_next(answer, overview);
	}
	if (answer->phase != END)
		return;

	json_end_array(answer->json);
	jsonmember_u64(answer->json, "farther", answer->farther);
	jsonmember_u64(answer->json, "left_out", answer->left_out);
}

static int end(struct statusanswer *answer)
{
	struct json_writer *json = TAKE(answer->json);

	json_end_object(json);

	return json_writer_close(json);
}

int statusanswer_more(struct statusanswer *answer, struct buffer *ret)
{
	struct overview overview;
	int r = 1;

	answer->options.overview(answer->options.ctx, &overview);
	answer->out = ret;
	if (answer->phase == HEAD)
		put_head(answer, &overview);
	else
		put_piece(answer, &overview);
	if (answer->phase == END)
		r = end(answer);
	answer->out = NULL;

	return answer->error < 0 ? answer->error : r;
}

/* ---- the whole ---- */

static void release(struct statusanswer **answer)
{
	statusanswer_free(*answer);
}

/* Counts, and when there is room writes down. */
static int list(void *ctx, const struct evaluator_sight *sight)
{
	struct statusanswer *answer = ctx;

	if (answer->ids)
		answer->ids[answer->id_count] = sight->target->id;
	answer->id_count++;

	return 0;
}

/* All memory that does not depend on what is written. */
static int prepare(struct statusanswer *answer)
{
	uint64_t nearest = answer->asked.query.nearest;
	struct overview overview;

	answer->options.overview(answer->options.ctx, &overview);
	evaluator_visit_targets(overview.evaluator, list, answer);
	answer->ids = calloc(answer->id_count + 1, sizeof(*answer->ids));
	if (!answer->ids)
		return -ENOMEM;

	answer->id_count = 0;
	evaluator_visit_targets(overview.evaluator, list, answer);
	answer->picks = nearest ? calloc(nearest, sizeof(*answer->picks)) : NULL;
	if (nearest && !answer->picks)
		return -ENOMEM;

	return json_writer_new((struct sink){ hand_on, answer }, false, &answer->json);
}

int statusanswer_new(const struct statusanswer_options *options, const char *words, struct statusanswer **ret)
{
	AUTO(release) struct statusanswer *answer = calloc(1, sizeof(*answer));
	int r;

	if (!answer)
		return -ENOMEM;

	answer->options = *options;
	if (answer->options.max_bytes == 0)
		answer->options.max_bytes = STATUSANSWER_MAX;
	r = statusquery_parse(words, &answer->asked);
	if (r == 0)
		r = prepare(answer);
	if (r < 0)
		return r;

	*ret = TAKE(answer);
	return 0;
}

void statusanswer_free(struct statusanswer *answer)
{
	if (!answer)
		return;

	json_writer_close(answer->json);
	free(answer->picks);
	free(answer->ids);
	free(answer);
}
