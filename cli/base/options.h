/*
 * options.h: the command line as a table. One table per command gives the parser, the help text and
 * the messages, so they cannot drift apart.
 *
 * Exit codes are the same for every command: see enum options_exit.
 */
#ifndef SPIKEWATCH_CLI_BASE_OPTIONS_H
#define SPIKEWATCH_CLI_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* What scripts can rely on. */
enum options_exit {
	EXIT_OK = 0,
	EXIT_TROUBLE = 1, /* the answer is bad news (damaged, not found, nothing fired), or something failed */
	EXIT_USAGE = 2,   /* the command line is wrong, or the input is not a file of spikewatch */
};

enum option_kind {
	OPTION_FLAG,     /* bool */
	OPTION_TEXT,     /* const char *, points into argv */
	OPTION_NUMBER,   /* uint64_t, decimal */
	OPTION_DURATION, /* uint64_t, nanoseconds: "10ms"; "10" is seconds */
	OPTION_SIZE,     /* uint64_t, bytes: "512MiB", "512M" */
};

struct option_spec {
	char letter;      /* 0: none */
	const char *name; /* without dashes */
	enum option_kind kind;
	const char *argument; /* how help calls it, "DIR"; NULL for flags */
	const char *help;     /* one line; the default belongs in it */
	void *value;          /* of the type that kind says; untouched unless the option is given */
};

/* Options of several commands. value: a const char *. */
#define OPTION_DIRECTORY(value) \
	{ \
		'd', "directory", OPTION_TEXT, "DIR", "where incidents are; see spikewatch list --help", (value) \
	}
#define OPTION_SOCKET(value) \
	{ \
		's', "socket", OPTION_TEXT, "PATH", "the daemon's; see spikewatch status --help", (value) \
	}

/*
 * A command. -h and --help are understood without being listed. Texts are lines without final
 * newline; NULL: none.
 */
struct options_usage {
	const char *command;     /* "spikewatch list" */
	const char *operands;    /* "ID|PATH", "[PATH...]"; NULL: takes none */
	const char *summary;     /* one line */
	const char *description; /* at most a few lines */
	const char *example;     /* whole command lines */
	const char *exits;       /* "0 whole, 1 damaged, 2 not a file of spikewatch" */
	const struct option_spec *options;
	size_t option_count; /* at most OPTIONS_MAX */
	int operands_min;
	int operands_max;      /* -1: any number */
	bool stops_at_operand; /* what follows the first operand is not parsed (a command to run) */
};

/*
 * Every command begins with it: parses, prints help to stdout or the error to stderr. -1: continue
 * with *ret_first, the index of the first operand (operands are moved to the end, as getopt_long(3)
 * does); else the code to exit with.
 */
int options_start(const struct options_usage *usage, int argc, char **argv, int *ret_first);

/*
 * Prints on stderr why a command line is wrong, and where help is. why may hold any byte. Returns
 * EXIT_USAGE.
 */
int options_wrong(const char *command, const char *why);

/* The name nearest to word, NULL if none is near. A prefix is always near. */
const char *options_nearest(const char *word, const char *const *names, size_t count);

/*
 * The commands; cli/main.c has the table of them. argv[0] is the name, argv[1] and on its
 * arguments. Returns the code to exit with. Output goes to stdout, whose errors the caller reports.
 */
int list_command(int argc, char **argv);
int show_command(int argc, char **argv);
int history_command(int argc, char **argv);
int export_command(int argc, char **argv);
int prune_command(int argc, char **argv);
int recover_command(int argc, char **argv);
int diff_command(int argc, char **argv);
int report_command(int argc, char **argv);
int status_command(int argc, char **argv);
int trigger_command(int argc, char **argv);
int reload_command(int argc, char **argv);
int top_command(int argc, char **argv);
int replay_command(int argc, char **argv);
int trap_command(int argc, char **argv);
int record_command(int argc, char **argv);
int verify_command(int argc, char **argv);

#endif
