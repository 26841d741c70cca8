/*
 * skip.h: a test that cannot run on this machine says so and is not counted as passed: the runner
 * (crew.h) lists it with its reason at the end.
 */
#ifndef SPIKEWATCH_TESTS_SKIP_H
#define SPIKEWATCH_TESTS_SKIP_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What the line of a skipped test begins with, on standard output. */
#define SKIP_MARK "SKIPPED: "

/* Why a helper found that the test cannot run: for SKIP_TEST("%s", skip_reason). */
__attribute__((unused)) static char skip_reason[256];

/* Sets it. False, for the helper to return. */
__attribute__((format(printf, 1, 2), unused)) static bool skip_because(const char *format, ...)
{
	__builtin_va_list args;

	__builtin_va_start(args, format);
	vsnprintf(skip_reason, sizeof skip_reason, format, args);
	__builtin_va_end(args);
	return false;
}

/* The reason that a helper has set, or that there is none. */
__attribute__((unused)) static const char *skip_why(void)
{
	return *skip_reason ? skip_reason : "what it needs is not to be had here";
}

/* Ends the test, in START_TEST only, with a reason as for printf: what is missing here. */
#define SKIP_TEST(...) \
	do { \
		skip_say(__func__, __VA_ARGS__); \
		return; \
	} while (0)

/* For SKIP_TEST. test: Check's name of the function, which ends in "_fn". */
__attribute__((format(printf, 2, 3))) static inline void skip_say(const char *test, const char *format, ...)
{
	char reason[256];
	size_t len = strlen(test);
	__builtin_va_list args;

	__builtin_va_start(args, format);
	vsnprintf(reason, sizeof reason, format, args);
	__builtin_va_end(args);
	if (len > 3 && strcmp(test + len - 3, "_fn") == 0)
		len -= 3;
	dprintf(STDOUT_FILENO, SKIP_MARK "%.*s: %s\n", (int)len, test, reason);
}

#endif
