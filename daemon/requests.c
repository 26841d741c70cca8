/* requests.c: a word and what follows it; a table says who answers the word. */
#include "requests.h"

#include "json.h"
#include "jsonmember.h"
#include "realclock.h"
#include "scope.h"
#include "statusanswer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Names that are suggested when one means several targets. */
#define SUGGESTED 3

struct request {
	const char *word;
	int (*answer)(const struct requests *requests, const char *argument, struct buffer *ret,
		      struct control_rest *rest);
};

static void put_error(struct json_writer *json, const char *error)
{
	jsonmember_text(json, "error", error);
}

/* Begins the one object that an answer is. NULL: no memory. */
static struct json_writer *begin(struct buffer *ret)
{
	struct json_writer *json;

	if (json_writer_new(sink_buffer(ret), false, &json) < 0)
		return NULL;
	json_begin_object(json);

	return json;
}

static int end(struct json_writer *json)
{
	json_end_object(json);

	return json_writer_close(json);
}

/* line: what was asked, or NULL. */
static int refuse(const char *error, const char *line, struct buffer *ret)
{
	struct json_writer *json = begin(ret);

	if (!json)
		return -ENOMEM;

	put_error(json, error);
	if (line)
		jsonmember_text(json, "request", line);

	return end(json);
}

/* ---- status ---- */

static int more_status(void *ctx, struct buffer *ret)
{
	return statusanswer_more(ctx, ret);
}

static void end_status(void *ctx)
{
	statusanswer_free(ctx);
}

static int answer_status(const struct requests *requests, const char *argument, struct buffer *ret,
			 struct control_rest *rest)
{
	struct statusanswer_options options = { .overview = requests->overview,
						.ctx = requests->ctx,
						.clock = realclock() };
	struct statusanswer *answer;
	int r = statusanswer_new(&options, argument, &answer);

	if (r == -EINVAL || r == -E2BIG)
		return refuse("status takes the words brief, nearest=N (1 to 1000), target=GLOB, rule=GLOB, name=GLOB; "
			      "%20 is a blank in a glob",
			      argument, ret);
	if (r < 0)
		return r;

	*rest = (struct control_rest){ .more = more_status, .end = end_status, .ctx = answer };

	return 0;
}

/* ---- reload ---- */

static int answer_reload(const struct requests *requests, const char *argument, struct buffer *ret,
			 struct control_rest *rest)
{
	char message[REQUESTS_MESSAGE_MAX] = "";
	struct json_writer *json;
	bool done;

	(void)rest;
	if (*argument)
		return refuse("reload takes no argument", NULL, ret);

	done = requests->reload(requests->ctx, message) == 0;
	json = begin(ret);
	if (!json)
		return -ENOMEM;
	if (!done)
		put_error(json, message);
	json_key(json, "reload");
	json_begin_object(json);
	json_key(json, "done");
	json_bool(json, done);
	jsonmember_text(json, "message", message);
	json_end_object(json);

	return end(json);
}

/* ---- trigger ---- */

/* The search for what a name means: a target of that name, else the only target of an entry of that name. */
struct search {
	const char *name;
	unsigned char encoded[TARGET_ENCODED_MAX];
	size_t encoded_len, matches;
	bool exact;
	char suggestions[256];
};

static void keep(struct search *search, const struct target *target)
{
	search->encoded_len = target_encode(target, search->encoded, sizeof search->encoded);
}

static void suggest(struct search *search, const char *name)
{
	size_t len = strlen(search->suggestions);

	snprintf(search->suggestions + len, sizeof search->suggestions - len, "%s%s", len ? ", " : "", name);
}

static int look_at(void *ctx, const struct evaluator_sight *sight)
{
	struct search *search = ctx;
	const struct target *target = sight->target;

	if (strcmp(target->name, search->name) == 0) {
		search->exact = true;
		search->matches = 1;
		keep(search, target);
		return 1;
	}
	if (strcmp(target->entry, search->name) != 0)
		return 0;

	if (search->matches++ == 0)
		keep(search, target);
	if (search->matches <= SUGGESTED)
		suggest(search, target->name);

	return 0;
}

static const char *answer_name(enum incidents_answer answer)
{
	static const char *const names[] = {
		[INCIDENTS_OPENED] = "opened",
		[INCIDENTS_MERGED] = "merged",
		[INCIDENTS_REFUSED] = "refused",
	};

	return names[answer];
}

static int put_ticket(const struct incidents_ticket *ticket, struct buffer *ret)
{
	struct json_writer *json = begin(ret);
	char error[256];

	if (!json)
		return -ENOMEM;

	if (ticket->answer == INCIDENTS_REFUSED) {
		snprintf(error, sizeof error, "no incident was opened: %s", ticket->why);
		put_error(json, error);
	}
	json_key(json, "trigger");
	json_begin_object(json);
	jsonmember_text(json, "answer", answer_name(ticket->answer));
	jsonmember_text(json, "why", ticket->why);
	jsonmember_text(json, "directory", ticket->directory);
	jsonmember_text(json, "stem", ticket->stem);
	json_key(json, "sealed_in_ns");
	json_u64(json, ticket->sealed_in_ns);
	json_end_object(json);

	return end(json);
}

/* 1: *ret is the target that name means; 0: error (cap bytes) says why there is none. */
static bool find_target(const struct requests *requests, struct search *search, char *error, size_t cap)
{
	struct overview overview;

	requests->overview(requests->ctx, &overview);
	evaluator_visit_targets(overview.evaluator, look_at, search);
	if (search->matches == 1)
		return true;

	if (search->matches == 0)
		snprintf(error, cap, "no target and no entry is called %.64s; spikewatch status shows their names",
			 search->name);
	else
		snprintf(error, cap,
			 "%.64s means %zu targets (%s ...): name one of them, or none for an incident of all",
			 search->name, search->matches, search->suggestions);

	return false;
}

static int answer_trigger(const struct requests *requests, const char *argument, struct buffer *ret,
			  struct control_rest *rest)
{
	struct incidents_ticket ticket;
	struct target target;
	char error[512];
	int r;

	(void)rest;
	if (!*argument) {
		r = requests->trigger(requests->ctx, NULL, &ticket);
		return r < 0 ? r : put_ticket(&ticket, ret);
	}

	struct search search = { .name = argument };

	if (!find_target(requests, &search, error, sizeof error))
		return refuse(error, NULL, ret);

	r = target_decode(search.encoded, search.encoded_len, &target);
	if (r == 0)
		r = requests->trigger(requests->ctx, &target, &ticket);

	return r < 0 ? r : put_ticket(&ticket, ret);
}

/* ---- all of them ---- */

static const struct request table[] = {
	{ "status", answer_status },
	{ "trigger", answer_trigger },
	{ "reload", answer_reload },
};

int requests_answer(const struct requests *requests, const char *line, struct buffer *ret, struct control_rest *rest)
{
	size_t len = strcspn(line, " ");
	const char *argument = line + len + strspn(line + len, " ");

	for (size_t i = 0; i < ARRAY_LEN(table); i++)
		if (strlen(table[i].word) == len && memcmp(table[i].word, line, len) == 0)
			return table[i].answer(requests, argument, ret, rest);

	return refuse("this daemon knows no such request; it knows: status [WORDS], trigger [TARGET], reload", line,
		      ret);
}
