/* reload.c: spikewatch reload: the daemon reads its configuration again, and says what came of it. */
#include "answer.h"
#include "ask.h"
#include "commands.h"
#include "options.h"
#include "output.h"
#include "scope.h"

#include <stdio.h>

/* The daemon may be in the middle of a scan of a large host. */
#define PATIENCE_S 60u

static int ask_and_tell(const char *socket)
{
	AUTO(ask_release) struct json_document *document = NULL;
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
		{ 's', "socket", OPTION_TEXT, "PATH", "the daemon's; see spikewatch status --help", &socket },
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

	return code >= 0 ? code : ask_and_tell(socket);
}
