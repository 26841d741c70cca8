/*
 * status.c: spikewatch status. The document is parsed even if it is only passed on: what comes out of --json is always JSON, and safe to
 * look at.
 */
#include "answer.h"
#include "ask.h"
#include "commands.h"
#include "healthview.h"
#include "json.h"
#include "options.h"
#include "output.h"
#include "plot.h"
#include "printable.h"
#include "scope.h"
#include "statusview.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

#define ROWS_DEFAULT 40

struct request {
	const char *socket; /* NULL: where daemons are by default */
	bool json;
	struct statusquery query;
};

/* ---- JSON ---- */

static void emit(struct json_writer *json, const struct json_node *node);

static void emit_member(struct json_writer *json, const struct json_node *node)
{
	if (node->key)
		json_key(json, node->key);
	emit(json, node);
}

static void emit_number(struct json_writer *json, const struct json_node *node)
{
	const char *end = node->text + node->text_len;
	uint64_t number;

	/* Of a double the last digits would be lost. */
	if (text_parse_u64(node->text, end, &number) == end)
		json_u64(json, number);
	else
		json_double(json, node->number);
}

/* As deep as limits.depth. */
static void emit(struct json_writer *json, const struct json_node *node)
{
	const struct json_node *child = node->first;

	switch (node->type) {
	case JSON_NULL:
		json_null(json);
		break;
	case JSON_BOOL:
		json_bool(json, node->boolean);
		break;
	case JSON_NUMBER:
		emit_number(json, node);
		break;
	case JSON_STRING:
		printable_json(json, node->text);
		break;
	case JSON_ARRAY:
		json_begin_array(json);
		for (; child; child = child->next)
			emit_member(json, child);
		json_end_array(json);
		break;
	case JSON_OBJECT:
		json_begin_object(json);
		for (; child; child = child->next)
			emit_member(json, child);
		json_end_object(json);
		break;
	}
}

static bool is_array(const struct json_node *node, const char *key)
{
	return node->type == JSON_ARRAY && node->key && strcmp(node->key, key) == 0;
}

/* A target with those of its rules that are wanted. */
static void emit_target(struct json_writer *json, const struct json_node *target, const struct statusquery *query)
{
	json_begin_object(json);
	for (const struct json_node *member = target->first; member; member = member->next) {
		if (!is_array(member, "rules")) {
			emit_member(json, member);
			continue;
		}
		json_key(json, "rules");
		json_begin_array(json);
		for (const struct json_node *rule = member->first; rule; rule = rule->next)
			if (statusview_wanted(query, target, rule))
				emit(json, rule);
		json_end_array(json);
	}
	json_end_object(json);
}

static bool any_wanted(const struct json_node *target, const struct statusquery *query)
{
	const struct json_node *rules = json_member(target, "rules");

	for (const struct json_node *rule = rules ? rules->first : NULL; rule; rule = rule->next)
		if (statusview_wanted(query, target, rule))
			return true;
	return false;
}

/* Returns how many targets are in it. */
static size_t emit_targets(struct json_writer *json, const struct json_node *targets, const struct statusquery *query)
{
	size_t count = 0;

	json_key(json, "targets");
	json_begin_array(json);
	for (const struct json_node *target = targets->first; target; target = target->next) {
		if (target->type != JSON_OBJECT || !any_wanted(target, query))
			continue;
		emit_target(json, target, query);
		count++;
	}
	json_end_array(json);
	return count;
}

/* ---- answers ---- */

static int nothing_matches(void)
{
	fprintf(stderr, "spikewatch status: no rule and no target that is judged has such a name.\n");
	return EXIT_TROUBLE;
}

static int print_json(const struct json_node *root, const struct statusquery *query)
{
	AUTO(output_json_release) struct json_writer *json = NULL;
	size_t targets = 0;

	if (output_json_new(&json) < 0)
		return output_no_memory();

	json_begin_object(json);
	for (const struct json_node *member = root->first; member; member = member->next) {
		if (is_array(member, "targets"))
			targets += emit_targets(json, member, query);
		else
			emit_member(json, member);
	}
	json_end_object(json);
	return targets > 0 || !statusquery_chooses(query) || query->brief ? EXIT_OK : nothing_matches();
}

static int print_text(const struct json_node *root, const struct statusquery *query)
{
	struct plot_style style;
	ssize_t rows;

	plot_style_detect(stdout, &style);
	healthview_print(root, style.width, stdout);
	if (query->brief)
		return EXIT_OK;
	putchar('\n');
	rows = statusview_rules(root, query, style.width, stdout);
	if (rows < 0)
		return output_no_memory();
	if (rows == 0 && statusquery_chooses(query))
		return nothing_matches();
	if (rows == 0)
		printf("No rule looks at any target yet.\n");
	return EXIT_OK;
}

static int print(const struct json_node *root, const struct request *request)
{
	const char *error = answer_text(root, "error");

	if (!json_member(root, "daemon")) {
		fprintf(stderr, "spikewatch status: what answers there is no spikewatchd that I know: ");
		output_escaped(stderr, *error ? error : "it says nothing about itself");
		fputc('\n', stderr);
		return EXIT_TROUBLE;
	}
	return request->json ? print_json(root, &request->query) : print_text(root, &request->query);
}

/* What is too long for a line is asked for with all the rest, and chosen here. */
static void write_request(const struct statusquery *query, char *buf, size_t cap)
{
	const struct statusquery all = { .brief = query->brief };
	struct statusquery asked = *query;
	size_t len = (size_t)snprintf(buf, cap, "status ");

	if (asked.nearest > STATUSQUERY_NEAREST_MAX)
		asked.nearest = 0;
	if (statusquery_format(&asked, buf + len, cap - len) < 0)
		statusquery_format(&all, buf + len, cap - len);
	if (buf[len] == '\0')
		buf[len - 1] = '\0';
}

static int ask_and_print(const struct request *request)
{
	AUTO(ask_release) struct json_document *document = NULL;
	char line[STATUSQUERY_LINE_MAX];
	struct ask ask = { .command = "spikewatch status", .socket = request->socket, .request = line };
	int code;

	write_request(&request->query, line, sizeof(line) - 1);
	code = ask_daemon(&ask, &document);

	return code == EXIT_OK ? print(json_root(document), request) : code;
}

int status_command(int argc, char **argv)
{
	struct request request = { 0 };
	uint64_t rows = UINT64_MAX;
	const struct option_spec options[] = {
		{ 's', "socket", OPTION_TEXT, "PATH", "the daemon's; see below", &request.socket },
		{ 'n', "rows", OPTION_NUMBER, "N", "only so many, the nearest to firing; 0 all (40; JSON: all)",
		  &rows },
		{ 't', "target", OPTION_TEXT, "NAME", "of targets or entries called so; * and ? match anything",
		  &request.query.target },
		{ 'r', "rule", OPTION_TEXT, "NAME", "of rules called so", &request.query.rule },
		{ 'b', "brief", OPTION_FLAG, NULL, "only how the daemon is, nothing of targets", &request.query.brief },
		{ 0, "json", OPTION_FLAG, NULL, "all there is to know, as JSON", &request.json },
	};
	const struct options_usage usage = {
		.command = "spikewatch status",
		.operands = "[TARGET|RULE...]",
		.summary = "Says how the daemon is, and why each rule did or did not fire.",
		.description = "Rules nearest to firing come first. With names (of targets, of their entries, or\n"
			       "of rules; * and ? stand for anything) only those, and how often each reason was\n"
			       "given. PATH is by default /run/spikewatch/control; for others than root first the\n"
			       "same below $XDG_RUNTIME_DIR or ~/.cache. It is always beside the ring.",
		.example = "spikewatch status 'postgres*'\n"
			   "spikewatch status --json | jq .sampler.capture_percent",
		.exits = "0 answered, 1 no daemon or no such name, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_max = -1,
	};
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	request.query.nearest = rows == UINT64_MAX ? request.json ? 0 : ROWS_DEFAULT : rows;
	request.query.names = argv + first;
	request.query.name_count = (size_t)(argc - first);
	return ask_and_print(&request);
}
