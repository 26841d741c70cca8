/*
 * commands.h: the subcommands of spikewatch: one line each. Everything else (dispatch, the list in --help, the nearest
 * name to a wrong one) is made from this table.
 */
#ifndef SPIKEWATCH_COMMANDS_H
#define SPIKEWATCH_COMMANDS_H

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
 * NAME_command is in NAME.c. argv[0] is the name, argv[1] and on its arguments. Returns the code to exit with
 * (options.h: enum options_exit). Output goes to stdout, whose errors the caller reports.
 */
#define X(name, what) int name##_command(int argc, char **argv);
COMMAND_TABLE(X)
#undef X

#endif
