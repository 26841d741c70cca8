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

static char *commandrun_output; /* of the last command; freed by commandrun_end */
static size_t commandrun_len;

/* Runs it. words end with NULL, the first is the command's name. Its exit code. */
static inline int commandrun(int (*command)(int, char **), char **words)
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
	if (!commandrun_output)
		commandrun_output = malloc(COMMANDRUN_OUTPUT_MAX);
	rewind(file);
	commandrun_len = fread(commandrun_output, 1, COMMANDRUN_OUTPUT_MAX - 1, file);
	commandrun_output[commandrun_len] = '\0';
	fclose(file);
	return code;
}

#define COMMANDRUN(name, ...) commandrun(name##_command, (char *[]){ #name, __VA_ARGS__ __VA_OPT__(, ) NULL })

static inline void commandrun_end(void)
{
	free(commandrun_output);
	commandrun_output = NULL;
}

static inline void commandrun_says(const char *text)
{
	ck_assert_msg(strstr(commandrun_output, text), "does not say \"%s\":\n%.3000s", text, commandrun_output);
}

static inline void commandrun_says_not(const char *text)
{
	ck_assert_msg(!strstr(commandrun_output, text), "says \"%s\":\n%.3000s", text, commandrun_output);
}

/* No byte that acts on a terminal. */
static inline void commandrun_harmless(void)
{
	for (size_t i = 0; i < commandrun_len; i++) {
		unsigned char byte = (unsigned char)commandrun_output[i];

		ck_assert_msg(byte == '\n' || byte == '\t' || (byte >= ' ' && byte != 0x7f),
			      "byte %02x at %zu:\n%.200s", byte, i, commandrun_output + (i > 100 ? i - 100 : 0));
	}
}

#endif
