/*
 * output.h: what commands print: untrusted strings escaped, JSON, files that are replaced as a
 * whole; and the signals that end a command in order. Write errors of stdout are reported once, at
 * the end (process_finish).
 */
#ifndef SPIKEWATCH_CLI_BASE_OUTPUT_H
#define SPIKEWATCH_CLI_BASE_OUTPUT_H

#include "lib/base/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct json_writer;

/*
 * At the start: files and directories that the command makes are its user's alone (umask(2)), since
 * they hold command lines and stacks; a write error is a result, not a signal (SIGPIPE, SIGXFSZ).
 */
void process_setup(void);

/*
 * At the end: closes stdout, waits until the pager was left, and says why stdout could not be
 * written, a full disk for one; a reader that closed the pipe (head) is not reported. Returns code,
 * or EXIT_TROUBLE instead of EXIT_OK.
 */
int process_finish(int code);

/* In a child, before execve(2): both as they were before process_setup. */
void process_setup_undo(void);

/*
 * From now on SIGINT, SIGTERM and SIGHUP (unless it was ignored, as nohup(1) does) are recorded and
 * do not end the process. A second SIGINT ends it at once, with 130.
 */
void interruption_catch(void);

/* The last of these signals; 0: none. */
int interruption_signal(void);

/*
 * The last of them that was sent to this process alone, or 0: what the terminal sends reaches all
 * foreground processes, and must not be sent to a child again.
 */
int interruption_to_pass_on(void);

/*
 * Notes that the output lacks something, because of error (-errno) of what: said on stderr, and
 * output_code makes the exit code EXIT_TROUBLE. Not for 0, -ENOENT and -EBADMSG: what is missing or
 * damaged is for the output to say. Returns error.
 */
int output_incomplete(const char *what, int error);

/* code, or EXIT_TROUBLE instead of EXIT_OK if something was noted. */
int output_code(int code);

/*
 * Calls write with a stream, whose errors it need not check, and returns its exit code;
 * EXIT_TROUBLE, explained on stderr for command, if the output could not be written (for "-",
 * standard output, that is reported at the end of the program). A plain file is written beside path
 * and renamed if write returned EXIT_OK or set *keep, so that it is whole or not there; anything
 * else at path (a pipe, a terminal) is written to directly.
 */
struct output_file {
	const char *command, *path;
	int (*write)(void *ctx, FILE *file, bool *keep);
	void *ctx;
	bool kept; /* set by output_file_write: the file is there, whole */
};
int output_file_write(struct output_file *out);

#define TARGET_NAME_MAX 32

/*
 * The name of a target given on the command line: "postgres-812" for a program's name or path (20
 * bytes of its last part) and its pid; pid 0: "postgres". Bytes that the name of an entry may not
 * have become _. Terminated.
 */
void target_name_of(const char *program, int32_t pid, char ret[static TARGET_NAME_MAX]);

/* Prints len bytes with everything escaped that is not plain printable text. Returns the bytes printed. */
size_t output_escaped_len(FILE *file, const char *text, size_t len);

/* The same of a string. */
static inline size_t output_escaped(FILE *file, const char *text)
{
	return output_escaped_len(file, text, strlen(text));
}

/* Writes to file, which is borrowed. */
struct sink output_sink(FILE *file);

/* A pretty-printing JSON writer on stdout, which reports its errors itself. 0 or -ENOMEM. */
int output_json_new(struct json_writer **ret);

/* Prints "command: what: why" on stderr, what escaped. why may be NULL. */
void output_complain(const char *command, const char *what, const char *why);

/*
 * If standard output is a terminal, what is printed from now on goes through $PAGER (empty: nothing
 * does), else less(1), else more(1). less is told by LESS=FRX, unless $LESS is set, to end at once
 * if all fits the screen. What cannot be paged is printed.
 */
void output_page(void);

/* Prints "out of memory" on stderr. Returns EXIT_TROUBLE. */
int output_no_memory(void);

/* The number of UTF-8 characters in len bytes. */
size_t output_characters(const char *text, size_t len);

/* The bytes of the first count characters of text, or of all of it. */
size_t output_prefix(const char *text, size_t count);

/* How output_fit pads a text that is too short and cuts one that is too long. */
enum output_fit {
	OUTPUT_PAD_LEFT = 1,  /* spaces before it */
	OUTPUT_PAD_RIGHT = 2, /* spaces behind it */
	OUTPUT_CUT_DOTS = 4,  /* two dots stand for the middle that is cut; without it, the end is cut */
	OUTPUT_CUT_PATHS = 8, /* a path begins with two dots instead, because its end says more */
};

/* Prints text in at most width characters. how: bits of enum output_fit. */
void output_fit(const char *text, size_t width, unsigned how, FILE *file);

/* Names of one column. */
struct output_names {
	const char *const *name;
	size_t count;
};

/*
 * As output_fit; but if another one of the names, cut to that width, would look the same, the cut is
 * made before the place where they differ. Where even that does not help a number ends it: "~2".
 */
void output_fit_among(const char *text, const struct output_names *names, size_t width, unsigned how, FILE *file);

/* Prints in lines no wider than width (in characters), broken at spaces where there are any. */
void output_wrap(const char *text, size_t width, FILE *file);

#endif
