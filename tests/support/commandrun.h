/*
 * commandrun.h: commands of spikewatch as they are called, in this process: what they print to
 * stdout and stderr is kept as one text.
 */
#ifndef SPIKEWATCH_TESTS_COMMANDRUN_H
#define SPIKEWATCH_TESTS_COMMANDRUN_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMANDRUN_OUTPUT_MAX ((size_t)4 << 20)

/* {0} at first. */
struct commandrun {
	char *output; /* of the last command; freed by commandrun_end */
	size_t len;
};

/* Runs it. words end with NULL, the first is the command's name. Its exit code. */
static inline int commandrun(struct commandrun *run, int (*command)(int, char **), char **words)
{
	FILE *file = tmpfile();
	int saved[2] = { dup(STDOUT_FILENO), dup(STDERR_FILENO) };
	int argc = 0, code;

	ck_assert_ptr_nonnull(file);
	while (words[argc])
		argc++;
	fflush(stdout);
	dup2(fileno(file), STDOUT_FILENO);
	dup2(fileno(file), STDERR_FILENO);
	code = command(argc, words);
	fflush(stdout);
	for (int i = 0; i < 2; i++) {
		dup2(saved[i], i == 0 ? STDOUT_FILENO : STDERR_FILENO);
		close(saved[i]);
	}
	if (!run->output)
		run->output = malloc(COMMANDRUN_OUTPUT_MAX);
	rewind(file);
	run->len = fread(run->output, 1, COMMANDRUN_OUTPUT_MAX - 1, file);
	run->output[run->len] = '\0';
	fclose(file);
	return code;
}

#define COMMANDRUN(run, name, ...) commandrun(run, name##_command, (char *[]){ #name, __VA_ARGS__ __VA_OPT__(, ) NULL })

static inline void commandrun_end(struct commandrun *run)
{
	free(run->output);
	run->output = NULL;
}

static inline void commandrun_says(struct commandrun *run, const char *text)
{
	ck_assert_msg(strstr(run->output, text), "does not say \"%s\":\n%.3000s", text, run->output);
}

static inline void commandrun_says_not(struct commandrun *run, const char *text)
{
	ck_assert_msg(!strstr(run->output, text), "says \"%s\":\n%.3000s", text, run->output);
}

/* No byte that acts on a terminal. */
static inline void commandrun_harmless(struct commandrun *run)
{
	for (size_t i = 0; i < run->len; i++) {
		unsigned char byte = (unsigned char)run->output[i];

		ck_assert_msg(byte == '\n' || byte == '\t' || (byte >= ' ' && byte != 0x7f),
			      "byte %02x at %zu:\n%.200s", byte, i, run->output + (i > 100 ? i - 100 : 0));
	}
}

#endif
