/*
 * status.c: spikewatch status: asks the daemon at its socket, one line out, one document in. The document is parsed within limits
 * even if it is only passed on: what comes out of --json is always JSON, and safe to look at.
 */
#include "commands.h"
#include "json.h"
#include "options.h"
#include "output.h"
#include "paths.h"
#include "plot.h"
#include "printable.h"
#include "scope.h"
#include "statusview.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#define SYSTEM_SOCKET "/run/spikewatch/control"

/* The daemon answers with at most 64 MiB, and within two seconds. */
#define ANSWER_MAX (65u << 20)
#define PATIENCE_S 5

/* A rule on a target takes about 40 nodes of some 200 bytes each in the answer. */
static const struct json_limits limits = { .size_bytes = ANSWER_MAX, .depth = 8, .nodes = 8u << 20 };

#define ROWS_DEFAULT 40

struct request {
	const char *socket; /* NULL: where daemons are by default */
	bool json;
	uint64_t rows;
	struct statusview_filter filter;
};

/* ---- the socket ---- */

static int connect_to(const char *path, int *ret)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval patience = { .tv_sec = PATIENCE_S };
	AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
	    connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;

	*ret = TAKE_FD(fd);
	return 0;
}

static int receive(int fd, struct buffer *ret)
{
	char piece[16384];
	ssize_t got;
	int rc;

	while ((got = recv(fd, piece, sizeof(piece), 0)) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		rc = buffer_append(ret, piece, (size_t)got);
		if (rc < 0)
			return rc;
	}
	/* It has too many clients, or is about to stop. */
	return ret->len > 0 ? 0 : -EBUSY;
}

static int ask(const char *path, struct buffer *ret)
{
	static const char line[] = "status\n";
	AUTO_CLOSE int fd = -1;
	int rc = connect_to(path, &fd);

	if (rc < 0)
		return rc;
	if (send(fd, line, sizeof(line) - 1, MSG_NOSIGNAL) < 0 && errno != EPIPE)
		return -errno;
	return receive(fd, ret);
}

static void complain(const char *path, int rc)
{
	fprintf(stderr, "spikewatch status: no daemon answers at ");
	output_escaped(stderr, path);
	fprintf(stderr, ": %s\n", strerror(-rc));
}

/* The daemon of whoever asks first, then the system's. Says which were tried if none answers. */
static int ask_somebody(const char *named, struct buffer *ret)
{
	static const struct config nothing = { .ring.path = "", .incidents.directory = "", .state_file = "" };
	const char *tried[2];
	struct paths paths;
	size_t count = 0;
	int errors[2];

	if (named)
		tried[count++] = named;
	else if (paths_choose(&nothing, &paths) == 0)
		tried[count++] = paths.control;
	if (!named && (count == 0 || strcmp(paths.control, SYSTEM_SOCKET) != 0))
		tried[count++] = SYSTEM_SOCKET;

	for (size_t i = 0; i < count; i++) {
		errors[i] = ask(tried[i], ret);
		if (errors[i] == 0)
			return 0;
		buffer_release(ret);
	}
	for (size_t i = 0; i < count; i++)
		complain(tried[i], errors[i]);
	fprintf(stderr, "%s",
		errors[count - 1] == -EACCES
			? "Root and members of its group may ask: try sudo.\n"
			: "Start one with systemctl start spikewatchd, or spikewatchd -c FILE. If its\n"
			  "configuration sets ring.path: --socket PATH, the file control beside the ring.\n");
	return -ENOENT;
}

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
static void emit_target(struct json_writer *json, const struct json_node *target,
			const struct statusview_filter *filter)
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
			if (statusview_wanted(filter, target, rule))
				emit(json, rule);
		json_end_array(json);
	}
	json_end_object(json);
}

static bool any_wanted(const struct json_node *target, const struct statusview_filter *filter)
{
	const struct json_node *rules = json_member(target, "rules");

	for (const struct json_node *rule = rules ? rules->first : NULL; rule; rule = rule->next)
		if (statusview_wanted(filter, target, rule))
			return true;
	return false;
}

/* Returns how many targets are in it. */
static size_t emit_targets(struct json_writer *json, const struct json_node *targets,
			   const struct statusview_filter *filter)
{
	size_t count = 0;

	json_key(json, "targets");
	json_begin_array(json);
	for (const struct json_node *target = targets->first; target; target = target->next) {
		if (target->type != JSON_OBJECT || !any_wanted(target, filter))
			continue;
		emit_target(json, target, filter);
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

static int print_json(const struct json_node *root, const struct statusview_filter *filter)
{
	AUTO(output_json_release) struct json_writer *json = NULL;
	size_t targets = 0;

	if (output_json_new(&json) < 0)
		return output_no_memory();

	json_begin_object(json);
	for (const struct json_node *member = root->first; member; member = member->next) {
		if (is_array(member, "targets"))
			targets += emit_targets(json, member, filter);
		else
			emit_member(json, member);
	}
	json_end_object(json);
	return targets > 0 || filter->count == 0 ? EXIT_OK : nothing_matches();
}

static int print_text(const struct json_node *root, const struct request *request)
{
	struct plot_style style;
	ssize_t rows;

	plot_style_detect(stdout, &style);
	statusview_health(root, style.width, stdout);
	putchar('\n');
	rows = statusview_rules(root, &request->filter, request->rows, style.width, stdout);
	if (rows < 0)
		return output_no_memory();
	if (rows == 0 && request->filter.count > 0)
		return nothing_matches();
	if (rows == 0)
		printf("No rule looks at any target yet.\n");
	return EXIT_OK;
}

static int print(const struct json_node *root, const struct request *request)
{
	const char *error = statusview_text(root, "error");

	if (!json_member(root, "daemon")) {
		fprintf(stderr, "spikewatch status: what answers there is no spikewatchd that I know: ");
		output_escaped(stderr, *error ? error : "it says nothing about itself");
		fputc('\n', stderr);
		return EXIT_TROUBLE;
	}
	return request->json ? print_json(root, &request->filter) : print_text(root, request);
}

static void free_document(struct json_document **document)
{
	json_document_free(*document);
}

static int ask_and_print(const struct request *request)
{
	AUTO(buffer_release) struct buffer answer = { .max = ANSWER_MAX };
	AUTO(free_document) struct json_document *document = NULL;
	struct json_error error;
	int rc = ask_somebody(request->socket, &answer);

	if (rc < 0)
		return EXIT_TROUBLE;
	rc = json_parse(answer.data, answer.len, &limits, &document, &error);
	if (rc == -ENOMEM)
		return output_no_memory();
	if (rc < 0) {
		fprintf(stderr, "spikewatch status: the answer is no JSON: %u:%u: %s\n", error.place.line,
			error.place.column, error.message);
		return EXIT_TROUBLE;
	}
	return print(json_root(document), request);
}

int status_command(int argc, char **argv)
{
	struct request request = { .rows = ROWS_DEFAULT };
	const struct option_spec options[] = {
		{ 's', "socket", OPTION_TEXT, "PATH", "the daemon's; see below", &request.socket },
		{ 'n', "rows", OPTION_NUMBER, "N", "show at most so many, 0 all (40)", &request.rows },
		{ 0, "json", OPTION_FLAG, NULL, "all there is to know, as JSON", &request.json },
	};
	const struct options_usage usage = {
		.command = "spikewatch status",
		.operands = "[TARGET|RULE...]",
		.summary = "Says how the daemon is, and why each rule did or did not fire.",
		.description = "Rules nearest to firing come first. With names (of targets, of their entries, of\n"
			       "rules; * and ? stand for anything) only those, and how often each reason was\n"
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
	request.filter.names = argv + first;
	request.filter.count = (size_t)(argc - first);
	return ask_and_print(&request);
}
