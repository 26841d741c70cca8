/*
 * output.h: what commands print: strings of strangers made harmless, JSON on stdout. Errors of
 * stdout stay in it and are reported once, when the program ends (main.c).
 */
#ifndef SPIKEWATCH_CLI_BASE_OUTPUT_H
#define SPIKEWATCH_CLI_BASE_OUTPUT_H

#include "lib/base/io.h"
#include "lib/base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * interruption.h: somebody asks a command that takes its time to end: SIGINT, SIGTERM, SIGHUP.
 * There is one for the process.
 */

/*
 * From now on these signals are noted and do not end the process; SIGHUP only if it was not
 * ignored, as nohup(1) does. A second SIGINT ends it at once, with 130: who presses Ctrl-C again
 * does not want to wait for an end in good order.
 */
void interruption_catch(void);

/* The signal that came, the last of several; 0: none. */
int interruption_signal(void);

/*
 * The last that a child has not had: 0, or one that was sent to us alone. What the terminal sends,
 * it sends to all that run in the foreground: that must not hit a child twice.
 */
int interruption_to_pass_on(void);

/*
 * output_file.h: the file that a command writes to, "-" for the standard output: whole under its
 * name, or not there at all.
 */

/*
 * Calls write with a stream, whose errors it need not look at, and returns the code that it exits
 * with; EXIT_TROUBLE, explained on stderr for command, if the output could not be written (of "-"
 * that is said when the program ends). A plain file is written beside path and renamed if write
 * returned EXIT_OK or EXIT_TROUBLE with *keep set; anything else at path (a pipe, a terminal) is
 * written to as it is.
 */
struct output_file {
	const char *command, *path;
	int (*write)(void *ctx, FILE *file, bool *keep);
	void *ctx;
	bool kept; /* set by output_file_write: what was written is there, whole */
};
int output_file_write(struct output_file *out);

/* target_name.h: what a target is called that somebody asked for on a command line. */

#define TARGET_NAME_MAX 32

/*
 * "postgres-812" of a program's name or path, of which the first 20 bytes of the last part count,
 * and its pid; pid 0: "postgres". What a name in a configuration may not have becomes _. Always
 * ends with NUL.
 */
void target_name_of(const char *program, int32_t pid, char ret[static TARGET_NAME_MAX]);

/*
 * Prints text with everything escaped that is not plain printable text. Returns the bytes printed.
 */
size_t output_escaped(FILE *file, const char *text);

/* The same of len bytes, that need no NUL. */
size_t output_escaped_len(FILE *file, const char *text, size_t len);

/* Writes to file, which stays the caller's and must outlive the sink. */
struct sink output_sink(FILE *file);

/* A pretty-printing JSON writer on stdout, which reports its errors itself. 0 or -ENOMEM. */
int output_json_new(struct json_writer **ret);

/* Says so on stderr. Returns EXIT_TROUBLE. */
int output_no_memory(void);

/* How many characters of UTF-8 there are in len bytes. */
size_t output_characters(const char *text, size_t len);

/*
 * Prints text in lines no wider than width (in characters), broken at spaces where there are any.
 */
void output_wrap(const char *text, size_t width, FILE *file);

#endif
