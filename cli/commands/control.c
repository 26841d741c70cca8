/* control.c: spikewatch reload and spikewatch trigger: requests to the daemon. */
#include "cli/base/client.h"
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "lib/base/base.h"
#include "lib/base/json.h"
#include "lib/base/units.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- reload ---- */

/* The daemon may be in the middle of a scan of a large host. */
#define PATIENCE_S 60u

static int request_reload(const char *socket)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	struct ask ask = {
		.command = "spikewatch reload",
		.socket = socket,
		.request = "reload",
		.patience_s = PATIENCE_S,
	};
	const struct json_node *root, *error;
	int code = ask_daemon(&ask, &document);

	if (code != EXIT_OK)
		return code;

	root = json_root(document);
	error = json_member(root, "error");
	if (error) {
		fprintf(stderr, "spikewatch reload: refused, the old configuration stays in force:\n");
		output_escaped(stderr, answer_text(root, "error"));
		fputc('\n', stderr);
		return EXIT_TROUBLE;
	}
	printf("Reloaded: ");
	output_escaped(stdout, answer_text(json_member(root, "reload"), "message"));
	putchar('\n');
	return EXIT_OK;
}

int reload_command(int argc, char **argv)
{
	const char *socket = NULL;
	const struct option_spec options[] = {
		OPTION_SOCKET(&socket),
	};
	const struct options_usage usage = {
		.command = "spikewatch reload",
		.summary = "Makes the daemon read its configuration again.",
		.description = "All of it is put in force at once. One with an error in it is refused, with the\n"
			       "same words as spikewatchd --check, and so is a change that only a restart can\n"
			       "make: the old one then stays. Unchanged targets keep their history, unchanged\n"
			       "rules their cooldown.",
		.example = "spikewatchd --check && spikewatch reload",
		.exits = "0 the new one is in force, 1 refused, or no daemon, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
	};
	int first, code = options_start(&usage, argc, argv, &first);

	return code >= 0 ? code : request_reload(socket);
}

/* Writing an incident takes a moment after its window is over: a slow disk, others in the queue. */
#define WRITING_S 60u

struct request {
	const char *socket, *target;
	bool wait;
};

/* What the daemon says of the incident. Texts are the document's. */
struct answer {
	const char *kind, *directory, *stem;
	uint64_t sealed_in_ns;
};

/* Sealed incidents whose name is the stem and a number; the newest goes to ret. */
static bool find_sealed(const struct answer *answer, char *ret, size_t cap)
{
	DIR *dir = opendir(answer->directory);
	size_t len = strlen(answer->stem);
	int highest = 0, number, used;

	for (struct dirent *item; dir && (item = readdir(dir));) {
		const char *rest = item->d_name + len;

		if (strncmp(item->d_name, answer->stem, len) != 0)
			continue;
		used = 0;
		if (sscanf(rest, "-%9d%n", &number, &used) != 1 || rest[used] != '\0' || number <= highest)
			continue;
		highest = number;
		snprintf(ret, cap, "%s/%s", answer->directory, item->d_name);
	}
	if (dir)
		closedir(dir);
	return highest > 0;
}

static int wait_until_sealed(const struct answer *answer)
{
	uint64_t patience_s = answer->sealed_in_ns / NS_PER_S + WRITING_S;
	char path[4096];

	if (access(answer->directory, R_OK | X_OK) < 0) {
		fprintf(stderr, "spikewatch trigger: it is being recorded, but %s cannot be read: %s\n",
			answer->directory, strerror(errno));
		return EXIT_TROUBLE;
	}
	for (uint64_t tenths = 0; tenths <= 10 * patience_s; tenths++) {
		if (find_sealed(answer, path, sizeof(path))) {
			output_escaped(stdout, path);
			putchar('\n');
			return EXIT_OK;
		}
		usleep(100000);
	}
	fprintf(stderr, "spikewatch trigger: it was not sealed in time; see spikewatch status, or the journal.\n");
	return EXIT_TROUBLE;
}

static int print_answer(const struct answer *answer)
{
	char seconds[32];

	printf("%s ", strcmp(answer->kind, "merged") == 0 ? "Added to the incident that is open:" : "Recording");
	output_escaped(stdout, answer->stem);
	printf("\nIt will be sealed in %s, in ", units_format_duration(seconds, sizeof(seconds), answer->sealed_in_ns));
	output_escaped(stdout, answer->directory);
	printf("\nThen: spikewatch show last\n");
	return EXIT_OK;
}

/* Of an unset shell variable: without this it would mean everything. */
static bool is_blank(const char *target)
{
	return target && target[strspn(target, " ")] == '\0';
}

static int request_trigger(const struct request *request)
{
	AUTO(json_document_freep) struct json_document *document = NULL;
	char line[512];
	struct ask ask = { .command = "spikewatch trigger", .socket = request->socket, .request = line };
	const struct json_node *root, *given;
	struct answer answer;
	int code;

	if (snprintf(line, sizeof(line), "trigger%s%s", request->target ? " " : "",
		     request->target ? request->target : "") >= (int)sizeof(line) - 1 ||
	    strchr(line, '\n') || is_blank(request->target)) {
		fprintf(stderr, "spikewatch trigger: no target has this name.\n");
		return EXIT_USAGE;
	}
	code = ask_daemon(&ask, &document);
	if (code != EXIT_OK)
		return code;

	root = json_root(document);
	given = json_member(root, "trigger");
	if (json_member(root, "error") || !given || given->type != JSON_OBJECT) {
		output_complain("spikewatch trigger", answer_text(root, "error"), NULL);
		return EXIT_TROUBLE;
	}
	answer = (struct answer){
		.kind = answer_text(given, "answer"),
		.directory = answer_text(given, "directory"),
		.stem = answer_text(given, "stem"),
		.sealed_in_ns = answer_whole(given, "sealed_in_ns"),
	};
	return request->wait ? wait_until_sealed(&answer) : print_answer(&answer);
}

int trigger_command(int argc, char **argv)
{
	struct request request = { 0 };
	const struct option_spec options[] = {
		OPTION_SOCKET(&request.socket),
		{ 'w', "wait", OPTION_FLAG, NULL, "until it is sealed, then print its path only", &request.wait },
	};
	const struct options_usage usage = {
		.command = "spikewatch trigger",
		.operands = "[TARGET]",
		.summary = "Makes the daemon write down what happens now, as if a rule had fired.",
		.description = "TARGET is a target or an entry that has only one, as spikewatch status names\n"
			       "them. Without it the incident is about all targets. It holds the time before\n"
			       "(incidents.before) and goes on for incidents.after.",
		.example = "spikewatch trigger postgres\n"
			   "spikewatch show \"$(spikewatch trigger --wait)\"",
		.exits = "0 it is being recorded, or sealed, 1 refused, no such target, no daemon, 2 wrong usage",
		.options = options,
		.option_count = ARRAY_LEN(options),
		.operands_max = 1,
	};
	int first, code = options_start(&usage, argc, argv, &first);

	if (code >= 0)
		return code;
	request.target = argv[first];
	return request_trigger(&request);
}
