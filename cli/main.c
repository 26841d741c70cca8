/*
 * main.c: spikewatch: finds the command and runs it. What all commands share is here: the locale of
 * characters (numbers stay in the C locale: output is for scripts too).
 */
#include "cli/base/options.h"
#include "cli/base/output.h"
#include "lib/base/base.h"
#include "lib/base/text.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

#ifndef SPIKEWATCH_VERSION
#define SPIKEWATCH_VERSION "unknown"
#endif

struct command {
	const char *name;
	const char *what;
	int (*run)(int argc, char **argv);
};

/* In the order of --help. */
static const struct command commands[] = {
	{ "list", "incidents, newest last", list_command },
	{ "show", "what happened: in words, pictures and numbers", show_command },
	{ "history", "what targets used, minute by minute: looking back", history_command },
	{ "export", "for the Firefox Profiler, Perfetto, pprof, spreadsheets", export_command },
	{ "prune", "remove incidents that are old, mild or too many", prune_command },
	{ "recover", "what the ring of a killed daemon holds, as an incident", recover_command },
	{ "diff", "which functions, threads and mappings grew, A to B", diff_command },
	{ "report", "an incident as one page of HTML that opens anywhere", report_command },
	{ "status", "how the daemon is, and why each rule did or did not fire", status_command },
	{ "trigger", "an incident now, of one target or of everything", trigger_command },
	{ "reload", "the daemon reads its configuration again", reload_command },
	{ "top", "targets live: CPU, memory, distance to firing, peaks", top_command },
	{ "replay", "rules over what was recorded: what fires, what nearly did", replay_command },
	{ "trap", "wait for a spike and write it down, without a daemon", trap_command },
	{ "record", "stream samples of processes, without a daemon", record_command },
	{ "verify", "is an incident or a recording whole, and if not, what is lost", verify_command },
};

static void help(FILE *file)
{
	fprintf(file, "Usage: spikewatch COMMAND [OPTION...] [ARGUMENT...]\n"
		      "Looks at what spikewatchd recorded around CPU and memory spikes.\n\nCommands:\n");
	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].what);
	fprintf(file, "\n  spikewatch COMMAND --help   options and examples of a command\n"
		      "  spikewatch --version        the version\n"
		      "\nExample:\n  spikewatch list && spikewatch show last\n"
		      "\nExit code:\n  0 done, 1 trouble found or something failed, 2 wrong usage or not a file of "
		      "spikewatch\n");
}

static int unknown_command(const char *word)
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
	return unknown_command(word);
}

int main(int argc, char **argv)
{
	setlocale(LC_CTYPE, "");
	process_setup();
	return process_finish(output_code(dispatch(argc, argv)));
}
