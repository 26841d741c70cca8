/*
 * crew.h: suites side by side, each in a process of its own, with what they found put together.
 *
 * A test is by itself anyway (Check forks for each), so suites differ from tests only in what they
 * share outside: none may count on being the only one that runs. Those that must be say so (alone).
 */
#ifndef SPIKEWATCH_TESTS_CREW_H
#define SPIKEWATCH_TESTS_CREW_H

#include <check.h>

#include <stdbool.h>
#include <stddef.h>

struct crew_suite {
	const char *name;
	Suite *(*make)(void);
	bool early; /* takes long: started before those that do not */
	bool alone; /* nothing runs beside it: after all the others */
};

/*
 * Runs them, at most `jobs` at a time (less than 1: one). Prints for each, when it has ended, its
 * name, checks, seconds from start to end and seconds of CPU, then what it said and, like Check,
 * each test that failed; at last Check's closing line over all of them, and once more what failed.
 *
 * Checks that failed with more than one job are looked at again, if they are of at most three suites and
 * none crashed or hung: each of these suites is run once more, with nothing beside it, and that is what
 * counts. What had failed then is listed as unsteady before the closing line: a test to be mended.
 *
 * A suite whose process dies counts as an error. Check's environment variables work but for log
 * files, which each suite would begin anew. Returns how many tests failed; -errno: it could not
 * start.
 */
int crew_run(const struct crew_suite *suites, size_t count, int jobs);

#endif
