/*
 * check_main.c: runs every suite, or those named on the command line. suites.h is made by the
 * Makefile from the names of the files tests/check_*.c. Check's environment variables work:
 * CK_FORK=no, CK_VERBOSITY, CK_RUN_CASE ...
 *
 * Nothing of them is left behind: supervise.h.
 *
 * CHECK_JOBS=N: N suites side by side (crew.h), as make check does; without it, one after the other
 * by Check itself.
 */
#include "crew.h"
#include "supervise.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUITE(name) Suite *name##_suite(void);
#include "suites.h"
#undef SUITE

static const struct crew_suite suites[] = {
#define SUITE(suite) { .name = #suite, .make = suite##_suite },
#include "suites.h"
#undef SUITE
};

#define SUITE_COUNT (sizeof(suites) / sizeof(suites[0]))

/* Suites that take longest, so that none of them is the last to begin. */
static const char *const early[] = {
	"stacktruth",     "trap",      "unwind",  "reload",    "control", "record",    "trouble", "replay",
	"symbolize_live", "ring_torn", "arrival", "follow_up", "daemon",  "incidents", NULL,
};

/* Suites that nothing may run beside, with the reason. */
static const char *const alone[] = { NULL };

static bool named(const char *const *names, const char *name)
{
	while (*names && strcmp(*names, name) != 0)
		names++;

	return *names != NULL;
}

/* Copies those that are wanted. names: ends with NULL; empty: all of them. */
static size_t choose(const char *const *names, struct crew_suite ret[SUITE_COUNT])
{
	size_t chosen = 0;

	for (size_t i = 0; i < SUITE_COUNT; i++) {
		if (*names && !named(names, suites[i].name))
			continue;
		ret[chosen] = suites[i];
		ret[chosen].early = named(early, suites[i].name);
		ret[chosen].alone = named(alone, suites[i].name);
		chosen++;
	}

	return chosen;
}

static int run_by_check(const struct crew_suite *chosen, size_t count)
{
	SRunner *runner = srunner_create(NULL);

	for (size_t i = 0; i < count; i++)
		srunner_add_suite(runner, chosen[i].make());
	srunner_run_all(runner, CK_ENV);

	int failed = srunner_ntests_failed(runner);

	srunner_free(runner);

	return failed;
}

static int run(int argc, char **argv)
{
	/* A hang must end, but a busy machine must not look like one. Suites may ask for more, never for less. */
	setenv("CK_DEFAULT_TIMEOUT", "300", 0);

	struct crew_suite chosen[SUITE_COUNT];
	size_t count = choose((const char *const *)argv + 1, chosen);

	if (count == 0 || (argc > 1 && count != (size_t)argc - 1)) {
		fprintf(stderr, "check-spikewatch: no such suite; there are:");
		for (size_t i = 0; i < SUITE_COUNT; i++)
			fprintf(stderr, " %s", suites[i].name);
		fprintf(stderr, "\n");
		return 2;
	}

	const char *jobs = getenv("CHECK_JOBS");
	int failed = jobs ? crew_run(chosen, count, (int)strtol(jobs, NULL, 10)) : run_by_check(chosen, count);

	if (failed < 0)
		fprintf(stderr, "check-spikewatch: %s\n", strerror(-failed));

	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(int argc, char **argv)
{
	return supervise(run, argc, argv);
}
