/*
 * check_trap_session.c: what spikewatch trap runs on, without the command around it: memory that
 * runs out, a directory that cannot be.
 */
#include "scene.h"
#include "torture.h"

#include "cli/trap/trap.h"
#include "lib/config/config.h"
#include "lib/evaluator/evaluator.h"

#include <errno.h>

Suite *trap_session_suite(void);

static char directory[64];
static struct config *config;

static void setup(void)
{
	struct trap_plan plan = { .memory_bytes = 1 << 20, .after_ns = 0 };
	char error[400];

	scene_directory(directory);
	trap_plan_watch(&plan, getpid(), "scene");
	ck_assert_int_eq(trap_plan_resolve(&plan, error, sizeof(error)), 0);
	ck_assert_int_eq(trap_plan_config(&plan, &config, error, sizeof(error)), 0);
}

static void teardown(void)
{
	config_free(config);
	scene_remove(directory);
}

static void on_caught(void *ctx, const struct evaluator_firing *firing)
{
	(void)firing;
	++*(int *)ctx;
}

START_TEST(memory_that_runs_out_at_the_start_is_survived)
{
	struct scene_log log = scene_log_catch();
	int caught = 0;
	struct trap_session_options options = {
		.config = config, .directory = directory, .count = 1, .caught = on_caught, .ctx = &caught
	};
	bool injected = true, directory_failed;
	long failures = 0;

	for (long n = 1; injected && n < 3000; n++) {
		struct trap_session *trap = NULL;

		torture_arm(n);
		int r = trap_session_new(&options, &trap, &directory_failed);

		injected = torture_disarm();
		ck_assert_int_le(r, 0);
		ck_assert((r == 0) == (trap != NULL));
		ck_assert(injected || r == 0);
		failures += r < 0;
		if (trap)
			trap_session_finish(trap);
		trap_session_free(trap);
	}
	ck_assert(!injected);
	ck_assert_int_gt(failures, 10);
	scene_log_release(&log);
}
END_TEST

START_TEST(a_directory_that_cannot_be_is_told_from_other_trouble)
{
	char path[100];
	int caught = 0;
	struct trap_session_options options = {
		.config = config, .directory = path, .caught = on_caught, .ctx = &caught
	};
	struct trap_session *trap = NULL;
	bool directory_failed = false;

	snprintf(path, sizeof(path), "%s/file", directory);
	scene_write(path, "x");
	ck_assert_int_eq(trap_session_new(&options, &trap, &directory_failed), -ENOTDIR);
	ck_assert(directory_failed);
	ck_assert_ptr_null(trap);
}
END_TEST

Suite *trap_session_suite(void)
{
	Suite *suite = suite_create("trap_session");
	TCase *tcase = tcase_create("session");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, memory_that_runs_out_at_the_start_is_survived);
	tcase_add_test(tcase, a_directory_that_cannot_be_is_told_from_other_trouble);
	suite_add_tcase(suite, tcase);

	return suite;
}
