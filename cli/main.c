/*
 * main.c: spikewatch: finds the command and runs it. What all commands share is here: the locale of
 * characters (numbers stay in the C locale: output is for scripts too), SIGPIPE, and errors of
 * stdout that stdio has swallowed until the end.
 */
#include "cli/base/options.h"
#include "lib/base/base.h"
#include "lib/base/text.h"

#include <errno.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef SPIKEWATCH_VERSION
#define SPIKEWATCH_VERSION "unknown"
#endif

struct command {
	const char *name;
	const char *what;
	int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
#define X(name, what) { #name, what, name##_command },
	COMMAND_TABLE(X)
#undef X
};

static void help(FILE *file)
{
	fprintf(file, "Usage: spikewatch COMMAND [OPTION...] [ARGUMENT...]\n"
		      "Looks at what spikewatchd recorded around CPU and memory spikes.\n\nCommands:\n");
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].what);
	fprintf(file,
		"\n  spikewatch COMMAND --help   options and examples of a command\n"
		"  spikewatch --version        the version\n"
		"\nExample:\n  spikewatch list && spikewatch show last\n"
		"\nExit code:\n  0 done, 1 trouble found or something failed, 2 wrong usage or none of our files\n");
}

static int unknown(const char *word)
{
	const char *names[ARRAY_LEN(commands)], *nearest;
	char shown[64];

	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		names[i] = commands[i].name;
	nearest = options_nearest(word, names, ARRAY_LEN(names));
	text_escape(shown, sizeof(shown), word, strlen(word));
	if (nearest)
		fprintf(stderr, "spikewatch: there is no command \"%s\"; did you mean %s?\n", shown, nearest);
	else
		fprintf(stderr, "spikewatch: there is no command \"%s\".\n", shown);
	fprintf(stderr, "Try 'spikewatch --help'.\n");
	return EXIT_USAGE;
}

static int dispatch(int argc, char **argv)
{
	const char *word = argc > 1 ? argv[1] : NULL;

	if (!word) {
		help(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
		help(stdout);
		return EXIT_OK;
	}
	if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) {
		printf("spikewatch %s\n", SPIKEWATCH_VERSION);
		return EXIT_OK;
	}
	for (size_t i = 0; i < ARRAY_LEN(commands); i++) {
		if (strcmp(word, commands[i].name) == 0)
			return commands[i].run(argc - 1, argv + 1);
	}
	return unknown(word);
}

/*
 * Why an earlier write failed stdio does not keep: of a pipe it can be seen that nobody reads it
 * any more.
 */
static bool is_unread(int fd)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLOUT };

	return poll(&pollfd, 1, 0) == 1 && pollfd.revents & POLLERR;
}

/*
 * A disk that is full shows itself here at the latest. A reader that has seen enough (head) is no
 * news.
 */
static int finish(int code)
{
	bool failed = ferror(stdout) != 0, unread = failed && is_unread(STDOUT_FILENO);

	errno = 0;
	if (fclose(stdout) == 0 && !failed)
		return code;
	if (errno != EPIPE && !unread)
		fprintf(stderr, "spikewatch: cannot write the output: %s\n", errno ? strerror(errno) : "write error");
	return code == EXIT_OK ? EXIT_TROUBLE : code;
}

int main(int argc, char **argv)
{
	setlocale(LC_CTYPE, "");
	/*
	 * A write to a closed pipe is an error like any other: what a command holds open is then
	 * closed in good order.
	 */
	signal(SIGPIPE, SIG_IGN);

	return finish(dispatch(argc, argv));
}
