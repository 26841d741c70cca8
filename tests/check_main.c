/*
 * check_main.c: runs every suite, or those named on the command line. suites.h is made by the Makefile from the names
 * of the files tests/check_*.c. Check's environment variables work: CK_FORK=no, CK_VERBOSITY, CK_RUN_CASE ...
 */
#include <check.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUITE(name) Suite *name##_suite(void);
#include "suites.h"
#undef SUITE

static const struct {
	const char *name;
	Suite *(*make)(void);
} suites[] = {
#define SUITE(name) { #name, name##_suite },
#include "suites.h"
#undef SUITE
};

#define SUITE_COUNT (sizeof(suites) / sizeof(suites[0]))

static bool wanted(const char *name, int argc, char **argv)
{
	bool found = argc == 1;

	for (int i = 1; i < argc; i++)
		found = found || strcmp(argv[i], name) == 0;

	return found;
}

int main(int argc, char **argv)
{
	/* A hang must end, but a busy machine with sanitizers must not look like one. */
	setenv("CK_DEFAULT_TIMEOUT", "120", 0);

	SRunner *runner = srunner_create(NULL);
	int chosen = 0;

	for (size_t i = 0; i < SUITE_COUNT; i++) {
		if (!wanted(suites[i].name, argc, argv))
			continue;
		srunner_add_suite(runner, suites[i].make());
		chosen++;
	}
	if (chosen == 0 || (argc > 1 && chosen != argc - 1)) {
		fprintf(stderr, "check-spikewatch: no such suite; there are:");
		for (size_t i = 0; i < SUITE_COUNT; i++)
			fprintf(stderr, " %s", suites[i].name);
		fprintf(stderr, "\n");
		srunner_free(runner);
		return 2;
	}

	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
