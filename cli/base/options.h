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

/*
 * commands.h: the subcommands of spikewatch: one line each. Everything else (dispatch, the list in
 * --help, the nearest name to a wrong one) is made from this table.
 */

// clang-format off
/*      name      what it does; in the order of --help */
#define COMMAND_TABLE(X)                                                       \
	X(list,   "incidents, newest last")                                    \
	X(show,   "what happened: in words, pictures and numbers")             \
	X(export, "for the Firefox Profiler, Perfetto, pprof, spreadsheets")   \
	X(prune,  "remove incidents that are old, mild or too many")           \
	X(recover, "what the ring of a killed daemon holds, as an incident")   \
	X(diff,   "which functions, threads and mappings grew, A to B")         \
	X(report, "an incident as one page of HTML that opens anywhere")       \
	X(status, "how the daemon is, and why each rule did or did not fire")     \
	X(trigger, "an incident now, of one target or of everything")          \
	X(reload, "the daemon reads its configuration again")                  \
	X(top,    "targets live: CPU, memory, distance to firing, peaks")       \
	X(replay, "rules over what was recorded: what fires, what nearly did")  \
	X(trap,   "wait for a spike and write it down, without a daemon")      \
	X(record, "stream samples of processes, without a daemon")             \
	X(verify, "is an incident or a recording whole, and if not, what is lost")
// clang-format on

/*
 * NAME_command is in NAME.c. argv[0] is the name, argv[1] and on its arguments. Returns the code to
 * exit with (options.h: enum options_exit). Output goes to stdout, whose errors the caller reports.
 */
#define X(name, what) int name##_command(int argc, char **argv);
COMMAND_TABLE(X)
#undef X

/* What scripts can rely on. */
enum options_exit {
	EXIT_OK = 0,
	EXIT_TROUBLE = 1, /* the answer is bad news (damaged, not found, nothing fired), or something failed */
	EXIT_USAGE = 2,   /* the command line is wrong, or the input is none of ours */
};

enum option_kind {
	OPTION_FLAG,     /* bool */
	OPTION_TEXT,     /* const char *, points into argv */
	OPTION_NUMBER,   /* uint64_t, decimal */
	OPTION_DURATION, /* uint64_t, nanoseconds: "10ms" */
	OPTION_SIZE,     /* uint64_t, bytes: "512MiB" */
};

struct option_spec {
	char letter;      /* 0: none */
	const char *name; /* without dashes */
	enum option_kind kind;
	const char *argument; /* how help calls it, "DIR"; NULL for flags */
	const char *help;     /* one line; the default belongs in it */
	void *value;          /* of the type that kind says; untouched unless the option is given */
};

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
	const char *exits;       /* "0 whole, 1 damaged, 2 not one of ours" */
	const struct option_spec *options;
	size_t option_count; /* at most OPTIONS_MAX */
	int operands_min;
	int operands_max;      /* -1: any number */
	bool stops_at_operand; /* what follows the first operand is not looked at (a command to run) */
};

enum { OPTIONS_HELP = 1 };

/*
 * Reads argv[1] and on; options may stand anywhere unless stops_at_operand. Operands are moved to
 * the end (getopt_long(3)). 0 and *ret_first: index of the first operand; OPTIONS_HELP: --help was
 * given; -EINVAL: error says what is wrong, which option may have been meant, and never more than
 * cap bytes.
 */
int options_parse(const struct options_usage *usage, int argc, char **argv, int *ret_first, char *error, size_t cap);

/* The --help text: at most 24 lines of 80 columns is what commands should aim for. */
void options_help(const struct options_usage *usage, FILE *file);

/*
 * What every command begins with: parses, prints help to stdout or the error to stderr. -1: go on,
 * with *ret_first; else the code to exit with.
 */
int options_start(const struct options_usage *usage, int argc, char **argv, int *ret_first);

/* Which of count names is nearest to word, NULL if none is near. A prefix is always near. */
const char *options_nearest(const char *word, const char *const *names, size_t count);

#endif
